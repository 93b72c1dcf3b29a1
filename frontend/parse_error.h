/* Messages about syntax. */
#ifndef ATTN_FRONTEND_PARSE_ERROR_H
#define ATTN_FRONTEND_PARSE_ERROR_H

#include "frontend/syntax.h"

/* Reports that the current token (its grammar symbol is `found`) is not one of
 * `expected` (spellings as in parser.y).  Silent after an abort. */
void parse_error_report(struct parse_ctx *ctx, const char *found,
                        const char *const *expected, size_t expected_count);

/* Reports that the nesting limit is exceeded at `where` and ends the parse. */
void parse_error_nesting(struct parse_ctx *ctx, struct source_range where);

/* Source text of a token for a message, in quotes, cut where it is long. */
const char *parse_error_quote(struct parse_ctx *ctx, struct source_range where);

#endif
