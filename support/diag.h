/* Diagnostics about the user's source: collected in order, printed as
 *
 *     file:line:col: error: message
 *     source line
 *        ^~~~~
 *
 * Analysis goes on after an error; the sink counts.  After DIAG_MAX_ERRORS
 * errors one last message says so and the rest is dropped.  Everything is
 * copied into the sink's arena, so facts can be read after the compilation
 * (library use, JSON).  No output happens before diag_print / diag_render.
 */
#ifndef ATTN_SUPPORT_DIAG_H
#define ATTN_SUPPORT_DIAG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "support/arena.h"
#include "support/source.h"
#include "support/strbuf.h"

enum {
    DIAG_MAX_ERRORS = 100, /* the next one prints "too many errors" */
    DIAG_NAME_BYTES = 80
};

enum diag_severity { DIAG_ERROR, DIAG_WARNING, DIAG_NOTE };

/* One message with its notes. */
struct diag {
    enum diag_severity severity;
    struct source_range where; /* SOURCE_NOWHERE: "attnc: error: ..." */
    const char *message;       /* one line, no trailing period or newline */
    const char *warning;       /* name for -Wno-NAME; else NULL */
    struct diag *notes;        /* list through next, in order */
    struct diag *next;
};

struct diag_sink;

/* An empty sink that allocates from `arena` and resolves places in `sources`
 * (both borrowed; they must outlive the sink). */
struct diag_sink *diag_sink_create(struct arena *arena,
                                   struct source_set *sources);

/* Silences the warnings of this name (-Wno-NAME); the name is copied. */
void diag_silence(struct diag_sink *sink, const char *warning);

/* Reports an error at `where`. */
void diag_error(struct diag_sink *sink, struct source_range where,
                const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same with a va_list. */
void diag_verror(struct diag_sink *sink, struct source_range where,
                 const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Reports a warning; `warning` is the name shown in brackets (borrowed). */
void diag_warning(struct diag_sink *sink, struct source_range where,
                  const char *warning, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a note to the latest error or warning; dropped together with it. */
void diag_note(struct diag_sink *sink, struct source_range where,
               const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Number of errors, at most DIAG_MAX_ERRORS. */
size_t diag_error_count(const struct diag_sink *sink);

/* Number of warnings that were not silenced. */
size_t diag_warning_count(const struct diag_sink *sink);

/* True once the limit of errors is reached: callers may stop early. */
bool diag_is_full(const struct diag_sink *sink);

/* The messages in order, for facts (JSON); NULL when there are none. */
const struct diag *diag_first(const struct diag_sink *sink);

/* The source set given at creation. */
struct source_set *diag_sources(const struct diag_sink *sink);

/* All messages as text, appended to `out`; `colour` adds ANSI escapes. */
void diag_render(const struct diag_sink *sink, bool colour, struct strbuf *out);

/* diag_render to a stream. */
void diag_print(const struct diag_sink *sink, bool colour, FILE *stream);

/* A name cut to DIAG_NAME_BYTES bytes for a message ("..." marks the cut), with
 * bytes outside printable ASCII and UTF-8 replaced by '?'; in the sink's arena.
 */
const char *diag_name(struct diag_sink *sink, const char *name);

/* The candidate that is closest to `word` (edit distance with transpositions,
 * at most a third of the length, at least 1), or NULL.  Case is ignored at
 * half cost.  `candidates` may hold NULLs. */
const char *diag_closest(const char *word, const char *const *candidates,
                         size_t count);

#endif
