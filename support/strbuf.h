/* A growing string.  The data is always NUL-terminated once something was
 * appended (strbuf_text gives "" before).
 *
 * With an arena the memory belongs to the arena; without one (NULL) it is heap
 * memory and strbuf_destroy frees it.
 */
#ifndef ATTN_SUPPORT_STRBUF_H
#define ATTN_SUPPORT_STRBUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "support/arena.h"

struct strbuf {
    char *data;
    size_t length;
    size_t capacity;
    struct arena *arena; /* borrowed; NULL: heap */
};

/* An empty string in `arena`, or on the heap for NULL. */
void strbuf_init(struct strbuf *buf, struct arena *arena);

/* Frees heap memory; empties the string.  Harmless with an arena. */
void strbuf_destroy(struct strbuf *buf);

/* Empties the string and keeps its memory. */
void strbuf_clear(struct strbuf *buf);

/* Appends a NUL-terminated text. */
void strbuf_append(struct strbuf *buf, const char *text);

/* Appends any bytes. */
void strbuf_append_bytes(struct strbuf *buf, const void *bytes, size_t length);

/* Appends one byte. */
void strbuf_append_char(struct strbuf *buf, char c);

/* Appends `count` times c. */
void strbuf_append_repeat(struct strbuf *buf, char c, size_t count);

/* printf at the end of the string. */
void strbuf_printf(struct strbuf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same with a va_list. */
void strbuf_vprintf(struct strbuf *buf, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Appends `text` as a JSON string with its quotes; bytes that are no UTF-8
 * become U+FFFD. */
void strbuf_append_json(struct strbuf *buf, const char *text, size_t length);

/* The text, "" when empty; valid until the next append. */
const char *strbuf_text(const struct strbuf *buf);

/* Moves the text out and leaves the buffer empty; heap text is the caller's to
 * free().  Never NULL. */
char *strbuf_take(struct strbuf *buf);

/* Appends all of `stream` but at most `limit` bytes; false (with errno) on a
 * read error, EFBIG when the limit is exceeded. */
bool strbuf_read(struct strbuf *buf, FILE *stream, size_t limit);

#endif
