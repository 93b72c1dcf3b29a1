/* Status objects: a code, a text and the place in this library that raised it.
 * After IREE's iree_status_t, without its stack of annotations. */
#include "runtime/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct attn_status {
    enum attn_code code;
    char *text;   /* owned, follows the struct */
    char *origin; /* likewise */
};

/* What is returned when there is no memory for anything better; never written
 * to. */
static char no_memory_text[] = "out of memory";
static char no_memory_origin[] = __FILE__;
static struct attn_status no_memory = {ATTN_OUT_OF_MEMORY, no_memory_text,
                                       no_memory_origin};

/* One block holds the struct, the text and the origin. */
static struct attn_status *create(enum attn_code code, const char *origin,
                                  const char *tail_text, const char *format,
                                  va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        return &no_memory;
    size_t tail = strlen(tail_text), origin_bytes = strlen(origin) + 1;
    struct attn_status *status =
        malloc(sizeof *status + (size_t)length + tail + 1 + origin_bytes);
    if (status == NULL)
        return &no_memory;
    status->code = code;
    status->text = (char *)(status + 1);
    status->origin = status->text + length + tail + 1;
    vsnprintf(status->text, (size_t)length + 1, format, args);
    memcpy(status->text + length, tail_text, tail + 1);
    memcpy(status->origin, origin, origin_bytes);
    size_t end = (size_t)length + tail;
    while (end > 0 && status->text[end - 1] == '\n')
        status->text[--end] = '\0';
    return status;
}

struct attn_status *rt_status_create(enum attn_code code, const char *file,
                                     int line, const char *format, ...) {
    char origin[160];
    snprintf(origin, sizeof origin, "%s:%d", file, line);
    va_list args;
    va_start(args, format);
    struct attn_status *status = create(code, origin, "", format, args);
    va_end(args);
    return status;
}

struct attn_status *rt_status_wrap(struct attn_status *cause,
                                   const char *format, ...) {
    va_list args;
    va_start(args, format);
    struct attn_status *status =
        create(cause->code, cause->origin, cause->text, format, args);
    va_end(args);
    attn_status_destroy(cause);
    return status;
}

enum attn_code attn_status_code(const struct attn_status *status) {
    return status != NULL ? status->code : ATTN_OK;
}

const char *attn_status_text(const struct attn_status *status) {
    return status != NULL ? status->text : "ok";
}

const char *attn_status_origin(const struct attn_status *status) {
    return status != NULL ? status->origin : "";
}

void attn_status_destroy(struct attn_status *status) {
    if (status != &no_memory)
        free(status);
}
