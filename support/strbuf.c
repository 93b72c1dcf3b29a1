/* Growing strings, in an arena or on the heap. */
#include "support/strbuf.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "support/utf8.h"

void strbuf_init(struct strbuf *buf, struct arena *arena) {
    *buf = (struct strbuf){.arena = arena};
}

void strbuf_destroy(struct strbuf *buf) {
    if (!buf->arena)
        free(buf->data);
    strbuf_init(buf, buf->arena);
}

void strbuf_clear(struct strbuf *buf) {
    buf->length = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

/* Makes room for `extra` more bytes and a NUL. */
static void reserve(struct strbuf *buf, size_t extra) {
    if (extra < buf->capacity - buf->length)
        return;
    if (extra > SIZE_MAX / 4 || buf->length > SIZE_MAX / 4)
        abort();
    size_t wanted = buf->capacity ? buf->capacity * 2 : 64;
    if (wanted < buf->length + extra + 1)
        wanted = buf->length + extra + 1;
    if (buf->arena) {
        buf->data = arena_grow(buf->arena, buf->data, buf->capacity, wanted);
    } else {
        buf->data = realloc(buf->data, wanted);
        if (!buf->data)
            abort();
    }
    buf->data[buf->length] = '\0';
    buf->capacity = wanted;
}

void strbuf_append_bytes(struct strbuf *buf, const void *bytes, size_t length) {
    reserve(buf, length);
    if (length)
        memcpy(buf->data + buf->length, bytes, length);
    buf->length += length;
    buf->data[buf->length] = '\0';
}

void strbuf_append(struct strbuf *buf, const char *text) {
    strbuf_append_bytes(buf, text, strlen(text));
}

void strbuf_append_char(struct strbuf *buf, char c) {
    strbuf_append_bytes(buf, &c, 1);
}

void strbuf_append_repeat(struct strbuf *buf, char c, size_t count) {
    reserve(buf, count);
    memset(buf->data + buf->length, c, count);
    buf->length += count;
    buf->data[buf->length] = '\0';
}

void strbuf_printf(struct strbuf *buf, const char *format, ...) {
    va_list args;
    va_start(args, format);
    strbuf_vprintf(buf, format, args);
    va_end(args);
}

void strbuf_vprintf(struct strbuf *buf, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        return;
    reserve(buf, (size_t)length);
    vsnprintf(buf->data + buf->length, (size_t)length + 1, format, args);
    buf->length += (size_t)length;
}

void strbuf_append_json(struct strbuf *buf, const char *text, size_t length) {
    strbuf_append_char(buf, '"');
    for (size_t i = 0; i < length;) {
        unsigned char c = (unsigned char)text[i];
        size_t bytes = utf8_sequence(text + i, length - i);
        if (c == '"' || c == '\\')
            strbuf_printf(buf, "\\%c", c);
        else if (c == '\n')
            strbuf_append(buf, "\\n");
        else if (c == '\t')
            strbuf_append(buf, "\\t");
        else if (c < 0x20)
            strbuf_printf(buf, "\\u%04x", c);
        else if (bytes == 0)
            strbuf_append(buf, "\\ufffd");
        else
            strbuf_append_bytes(buf, text + i, bytes);
        i += bytes ? bytes : 1;
    }
    strbuf_append_char(buf, '"');
}

const char *strbuf_text(const struct strbuf *buf) {
    return buf->data ? buf->data : "";
}

char *strbuf_take(struct strbuf *buf) {
    reserve(buf, 0);
    char *text = buf->data;
    strbuf_init(buf, buf->arena);
    return text;
}

bool strbuf_read(struct strbuf *buf, FILE *stream, size_t limit) {
    char chunk[16384];
    size_t total = 0, got;
    while ((got = fread(chunk, 1, sizeof chunk, stream)) > 0) {
        if (got > limit - total) {
            errno = EFBIG;
            return false;
        }
        total += got;
        strbuf_append_bytes(buf, chunk, got);
    }
    return !ferror(stream);
}
