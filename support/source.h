/* Source texts of one compilation and the places in them.
 *
 * A place is a byte range in a numbered file; lines and columns are computed
 * only when somebody asks.  Lines and columns are 1-based, columns count bytes.
 * A BOM at the start of a text is dropped, and columns count without it.
 * A line ends with LF (a CR before it belongs to the line end).
 */
#ifndef ATTN_SUPPORT_SOURCE_H
#define ATTN_SUPPORT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/arena.h"

/* Larger texts are refused (EFBIG). */
enum { SOURCE_MAX_BYTES = 16 << 20 };

/* Bytes [begin, end) of file number `file` of a source_set.  file 0: no place
 * (SOURCE_NOWHERE), so that a zeroed range is valid. */
struct source_range {
    uint32_t file;
    uint32_t begin;
    uint32_t end;
};

#define SOURCE_NOWHERE ((struct source_range){0, 0, 0})

struct source_file {
    uint32_t id;        /* position in the set, from 1 */
    const char *path;   /* as shown in messages; "<memory>" and the like too */
    const char *real;   /* canonical path, NULL for texts from memory */
    const char *folder; /* where relative includes start; "." by default */
    const char *text;   /* without BOM, NUL-terminated; may hold NULs too */
    uint32_t length;
    const uint32_t *line_starts; /* byte offset of each line */
    uint32_t line_count;         /* at least 1 */
};

/* A resolved place. */
struct source_place {
    const struct source_file *file; /* NULL: no place */
    uint32_t line, column;          /* of the first byte, 1-based */
    uint32_t end_line, end_column;  /* just after the last byte */
};

struct source_set;

/* An empty set whose files live in `arena`. */
struct source_set *source_set_create(struct arena *arena);

/* Adds a text from memory; copied.  NULL (errno EFBIG) when it is too large. */
const struct source_file *source_add_text(struct source_set *set,
                                          const char *name, const char *text,
                                          size_t length);

/* Reads a file ("-": standard input); the same file (by canonical path) is
 * returned again, not read twice.  NULL with errno set when that fails;
 * folders are EISDIR. */
const struct source_file *source_load(struct source_set *set, const char *path);

/* Searches `name` (absolute, or relative to the folder of `from`, then to each
 * of `folders` in order) and loads it.  NULL with errno of the last attempt
 * that found something unreadable, else ENOENT. */
const struct source_file *source_load_include(struct source_set *set,
                                              const struct source_file *from,
                                              const char *name,
                                              const char *const *folders,
                                              size_t folder_count);

/* File by number, NULL for 0 or an unknown number. */
const struct source_file *source_file_get(const struct source_set *set,
                                          uint32_t id);

/* Line and column of a range; .file is NULL for SOURCE_NOWHERE. */
struct source_place source_locate(const struct source_set *set,
                                  struct source_range range);

/* Text of a 1-based line without its end; "" and length 0 beyond the last. */
const char *source_line(const struct source_file *file, uint32_t line,
                        size_t *out_length);

/* The smallest range that covers both; one of them may be nowhere. */
struct source_range source_join(struct source_range a, struct source_range b);

#endif
