/* Values of tokens: what the scanner's rules call.  Faults are reported and a
 * usable value comes back. */
#ifndef ATTN_FRONTEND_LEX_VALUES_H
#define ATTN_FRONTEND_LEX_VALUES_H

#include "frontend/syntax.h"

/* A copy of a name, cut (with an error) beyond SYNTAX_MAX_NAME bytes. */
struct syn_name lex_name(struct parse_ctx *ctx, const char *text, size_t length,
                         struct source_range where);

/* A decimal i32; its range is checked later, since -2147483648 is legal. */
const struct syn *lex_decimal(struct parse_ctx *ctx, const char *text,
                              struct source_range where);
/* 0x…, a 32-bit pattern; an error beyond 32 bits. */
const struct syn *lex_hex(struct parse_ctx *ctx, const char *text,
                          struct source_range where);
/* 1.5, 1e-3; an error where it overflows f32. */
const struct syn *lex_float(struct parse_ctx *ctx, const char *text,
                            struct source_range where);

/* Something that starts like a number: 1.5f, .5, 0x, 1e. */
const struct syn *lex_bad_number(struct parse_ctx *ctx, const char *text,
                                 struct source_range where);

/* A string without its quotes. */
struct syn_name lex_string(struct parse_ctx *ctx, const char *text,
                           size_t length, struct source_range where);

/* A string that does not end on its line; an empty name. */
struct syn_name lex_open_string(struct parse_ctx *ctx,
                                struct source_range where);

/* A comment that does not end. */
void lex_open_comment(struct parse_ctx *ctx);

/* A character that no token starts with. */
void lex_stray(struct parse_ctx *ctx, const char *text,
               struct source_range where);

#endif
