/* Values of tokens, and faults inside of tokens. */
#include "frontend/lex_values.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/parse_error.h"

struct syn_name lex_name(struct parse_ctx *ctx, const char *text, size_t length,
                         struct source_range where) {
    if (length > SYNTAX_MAX_NAME) {
        char *start = arena_strndup(ctx->arena, text, SYNTAX_MAX_NAME);
        diag_error(ctx->diags, where,
                   "name '%s' has %zu bytes, the limit is %d",
                   diag_name(ctx->diags, start), length, SYNTAX_MAX_NAME);
        length = SYNTAX_MAX_NAME;
    }
    return (struct syn_name){arena_strndup(ctx->arena, text, length), where};
}

/* Digits in `base`, saturated above 2^32. */
static uint64_t digits(const char *text, unsigned base) {
    uint64_t value = 0;
    for (; *text; text++) {
        unsigned c = (unsigned char)*text;
        unsigned digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
        value = value * base + digit;
        if (value > (uint64_t)1 << 32)
            return (uint64_t)1 << 32 | 1;
    }
    return value;
}

const struct syn *lex_decimal(struct parse_ctx *ctx, const char *text,
                              struct source_range where) {
    struct syn *leaf = syn_leaf(ctx, SYN_INT, where);
    leaf->integer = digits(text, 10);
    return leaf;
}

const struct syn *lex_hex(struct parse_ctx *ctx, const char *text,
                          struct source_range where) {
    struct syn *leaf = syn_leaf(ctx, SYN_HEX, where);
    leaf->integer = digits(text + 2, 16);
    if (leaf->integer > UINT32_MAX) {
        diag_error(ctx->diags, where, "%s does not fit in 32 bits",
                   parse_error_quote(ctx, where));
        leaf->kind = SYN_ERROR;
    }
    return leaf;
}

const struct syn *lex_float(struct parse_ctx *ctx, const char *text,
                            struct source_range where) {
    float value = strtof_l(text, NULL, (locale_t)ctx->c_locale);
    struct syn *leaf = syn_leaf(ctx, SYN_FLOAT, where);
    if (isinf(value)) {
        diag_error(ctx->diags, where,
                   "%s is too large for f32; the largest is 3.4028235e38",
                   parse_error_quote(ctx, where));
        leaf->kind = SYN_ERROR;
        return leaf;
    }
    memcpy(&leaf->bits, &value, sizeof leaf->bits);
    return leaf;
}

const struct syn *lex_bad_number(struct parse_ctx *ctx, const char *text,
                                 struct source_range where) {
    const char *quoted = parse_error_quote(ctx, where);
    if (text[0] == '.')
        diag_error(ctx->diags, where,
                   "malformed number %s; write a digit before the point",
                   quoted);
    else
        diag_error(ctx->diags, where,
                   "malformed number %s; literals look like 12, 0x1F, 1.5, "
                   "1e-3 and have no suffix",
                   quoted);
    return syn_leaf(ctx, SYN_ERROR, where);
}

struct syn_name lex_string(struct parse_ctx *ctx, const char *text,
                           size_t length, struct source_range where) {
    return (struct syn_name){arena_strndup(ctx->arena, text + 1, length - 2),
                             where};
}

struct syn_name lex_open_string(struct parse_ctx *ctx,
                                struct source_range where) {
    ctx->stray = true;
    diag_error(ctx->diags, where, "string does not end on its line");
    return (struct syn_name){NULL, where};
}

void lex_open_comment(struct parse_ctx *ctx) {
    struct source_range where = {ctx->source->id, ctx->comment_begin,
                                 ctx->comment_begin + 2};
    diag_error(ctx->diags, where, "comment does not end");
    ctx->aborted = true;
    syn_mark_broken(ctx);
}

void lex_stray(struct parse_ctx *ctx, const char *text,
               struct source_range where) {
    ctx->stray = true;
    if ((unsigned char)text[0] >= 0x80)
        diag_error(ctx->diags, where,
                   "unexpected %s; only comments and strings may hold "
                   "non-ASCII text",
                   parse_error_quote(ctx, where));
    else
        diag_error(ctx->diags, where, "unexpected character %s",
                   parse_error_quote(ctx, where));
}
