/* Canonical layout of .attn files. */
#ifndef ATTN_FRONTEND_FORMAT_H
#define ATTN_FRONTEND_FORMAT_H

#include <stddef.h>

#include "support/arena.h"
#include "support/diag.h"
#include "support/source.h"

/* The text of `source` in canonical layout, in `arena`: one item a line, four
 * spaces an indent, values in one column, comments kept where they were, at
 * most one blank line in a row.  Formatting the result again changes nothing.
 *
 * NULL when the text has lexical or syntax errors, which are reported; callers
 * that leave files with any error alone run frontend_check first. */
char *format_source(struct arena *arena, const struct source_file *source,
                    struct diag_sink *diags, size_t *out_length);

#endif
