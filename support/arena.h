/* Region allocation: everything of one compilation lives in one arena and is
 * freed at once.  Single-threaded: one arena per compilation, no locks.
 *
 * Running out of memory aborts with a message; the front end bounds its input
 * instead of checking every allocation.
 */
#ifndef ATTN_SUPPORT_ARENA_H
#define ATTN_SUPPORT_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct arena;

/* A new empty arena; the caller owns it. */
struct arena *arena_create(void);

/* Frees the arena and all that was allocated from it; NULL is allowed. */
void arena_destroy(struct arena *arena);

/* Forgets every allocation and keeps one block for reuse (scratch arenas). */
void arena_reset(struct arena *arena);

/* `size` zeroed bytes, aligned to 16; never NULL, size 0 included. */
void *arena_alloc(struct arena *arena, size_t size);

/* Zeroed array of `count` elements of `size` bytes; aborts on overflow. */
void *arena_alloc_array(struct arena *arena, size_t count, size_t size);

/* A copy of `old_size` bytes at `old` in a zero-extended block of `new_size`
 * bytes.  In place where `old` was the latest allocation. */
void *arena_grow(struct arena *arena, void *old, size_t old_size,
                 size_t new_size);

/* NUL-terminated copy of `text`. */
char *arena_strdup(struct arena *arena, const char *text);

/* NUL-terminated copy of `length` bytes. */
char *arena_strndup(struct arena *arena, const char *text, size_t length);

/* Formatted string in the arena. */
char *arena_printf(struct arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same with a va_list. */
char *arena_vprintf(struct arena *arena, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Bytes handed out so far (after alignment), for reports and limits. */
size_t arena_used(const struct arena *arena);

#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_NEW_ARRAY(arena, type, count) \
    ((type *)arena_alloc_array((arena), (count), sizeof(type)))

#endif
