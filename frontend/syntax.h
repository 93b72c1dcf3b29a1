/* The syntax tree: what the grammar says about a text, before names and types.
 *
 * Private to the front end.  parser.y calls the constructors below, sema reads
 * the result.  A broken piece is NULL or SYN_ERROR; it was reported already,
 * and sema stays silent about it.
 */
#ifndef ATTN_FRONTEND_SYNTAX_H
#define ATTN_FRONTEND_SYNTAX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frontend/ast.h"
#include "support/arena.h"
#include "support/diag.h"
#include "support/source.h"
#include "support/vec.h"

enum { SYNTAX_MAX_NESTING = 256, SYNTAX_MAX_NAME = 255 };

/* A name with its place; text NULL: missing. */
struct syn_name {
    const char *text;
    struct source_range where;
};

enum syn_kind {
    SYN_ERROR,
    SYN_INT,    /* integer: decimal value, saturated above 2^32 */
    SYN_HEX,    /* integer: value */
    SYN_FLOAT,  /* bits */
    SYN_NAME,   /* name; true, false and inf too */
    SYN_UNARY,  /* op is an enum unary_op; args[0] */
    SYN_BINARY, /* op is an enum binary_op; args[0..1] */
    SYN_SELECT, /* args[0..2] */
    SYN_CALL,   /* name(args) */
    SYN_INDEX,  /* name[args] */
};

struct syn {
    uint8_t kind;
    uint8_t op;
    bool parenthesized;
    uint16_t nesting; /* levels of parentheses, calls, prefix and ?: below */
    uint32_t depth;   /* height of the tree */
    struct source_range where;
    struct source_range head; /* the operator, or the name of a call or read */
    union {
        uint64_t integer;
        uint32_t bits;
        const char *name;
    };
    const struct syn *const *args;
    size_t arg_count;
};

struct syn_list {
    VEC(const struct syn *) exprs;
};

struct syn_param {
    struct syn_name name, type;
};

struct syn_params {
    VEC(struct syn_param) list;
};

struct syn_names {
    VEC(struct syn_name) list;
};

enum syn_item_kind {
    SYN_DTYPE,    /* name */
    SYN_HEAD_DIM, /* values: one or two */
    SYN_GROUP,    /* expr */
    SYN_SCALE,    /* expr */
    SYN_PARAM,    /* name, type, expr or NULL */
    SYN_TENSOR,   /* name, type, values */
    SYN_LET,      /* name, type (may be missing), expr */
    SYN_SCORE,    /* expr */
    SYN_MASK,     /* expr */
    SYN_TARGET,   /* names */
    SYN_SCHEDULE, /* entries */
};

/* One value of a schedule entry: an expression, with % after it or not. */
struct syn_value {
    const struct syn *expr;
    bool percent;
    struct source_range where;
};

struct syn_entry {
    struct syn_name key;
    VEC(struct syn_value) values;
    struct source_range where;
};

struct syn_entries {
    VEC(struct syn_entry *) list;
};

struct syn_item {
    enum syn_item_kind kind;
    bool broken; /* a syntax error swallowed all but the name, if any */
    struct source_range where; /* the line, without its semicolon */
    struct source_range word;  /* its first word */
    struct syn_name name, type;
    const struct syn *expr;
    struct syn_list values;
    struct syn_names names;
    struct syn_entries entries;
};

enum syn_decl_kind { SYN_CONST, SYN_FN, SYN_EXTERN, SYN_IMPORT, SYN_ATTENTION };

/* One thing at top level. */
struct syn_decl {
    enum syn_decl_kind kind;
    bool broken; /* as in syn_item; in an attention: some item is missing */
    struct source_range where;
    struct syn_name name, type;
    struct syn_name file;         /* IMPORT, EXTERN: text without quotes */
    struct syn_params params;     /* FN, EXTERN */
    const struct syn *expr;       /* CONST, FN: body; EXTERN: model or NULL */
    VEC(struct syn_item *) items; /* ATTENTION */
};

struct syn_file {
    VEC(struct syn_decl *) decls;
    struct syn_entries entries; /* of a --schedule text */
};

/* State of one parse; lexer, grammar and constructors share it. */
struct parse_ctx {
    struct arena *arena;
    struct diag_sink *diags;
    const struct source_file *source;
    struct syn_file *file;
    struct syn_decl *attention; /* being read */
    void *c_locale;             /* locale_t of numbers, "." in any host */
    /* lexer */
    uint32_t offset;                       /* bytes consumed */
    uint32_t comment_begin;                /* of the comment being skipped */
    struct source_range current, previous; /* the latest two tokens */
    unsigned brackets;                     /* open ( and [ */
    VEC(struct source_range) braces;       /* open { */
    int pending;                           /* token to deliver first, 0: none */
    bool aborted;       /* nesting limit hit: deliver only the end */
    bool stray;         /* the line had a message about a character */
    bool schedule_text; /* parsing the text of --schedule */
};

/* Parses `source`; faults go to `diags`.  Never NULL. */
struct syn_file *syntax_parse(struct arena *arena,
                              const struct source_file *source,
                              struct diag_sink *diags);

/* Parses schedule entries only ("tile 128,128; stages 2"). */
struct syn_file *syntax_parse_schedule(struct arena *arena,
                                       const struct source_file *source,
                                       struct diag_sink *diags);

/* Reports control characters and malformed UTF-8; true if the text has none. */
bool syntax_check_bytes(const struct source_file *source,
                        struct diag_sink *diags);

/* One token of a text, for the formatter. */
struct token {
    int kind; /* of parser.h */
    uint32_t begin, end;
};

struct token_list {
    VEC(struct token) tokens;
};

/* All tokens in order, without the end; lexical faults go to `diags`. */
struct token_list syntax_tokens(struct arena *arena,
                                const struct source_file *source,
                                struct diag_sink *diags);

/* ---- constructors called by the grammar ---------------------------------- */

/* A leaf; the caller sets its value. */
struct syn *syn_leaf(struct parse_ctx *ctx, enum syn_kind kind,
                     struct source_range where);

/* A plain name. */
const struct syn *syn_name_ref(struct parse_ctx *ctx, struct syn_name name);

/* `inner` in parentheses. */
const struct syn *syn_paren(struct parse_ctx *ctx, const struct syn *inner,
                            struct source_range where);

/* A prefix operator; `head` is its place. */
const struct syn *syn_unary(struct parse_ctx *ctx, enum unary_op op,
                            struct source_range head, const struct syn *a);

/* Two operands. */
const struct syn *syn_binary(struct parse_ctx *ctx, enum binary_op op,
                             struct source_range head, const struct syn *a,
                             const struct syn *b);

/* c ? a : b. */
const struct syn *syn_select(struct parse_ctx *ctx, struct source_range head,
                             const struct syn *c, const struct syn *a,
                             const struct syn *b);

/* SYN_CALL or SYN_INDEX. */
const struct syn *syn_apply(struct parse_ctx *ctx, enum syn_kind kind,
                            struct syn_name name, const struct syn_list *args,
                            struct source_range where);

/* Appends to a list of expressions; NULL makes one (as in the next three). */
struct syn_list *syn_list_add(struct parse_ctx *ctx, struct syn_list *list,
                              const struct syn *expr);

/* Appends to a list of names. */
struct syn_names *syn_names_add(struct parse_ctx *ctx, struct syn_names *list,
                                struct syn_name name);

/* Appends a parameter; a name without text adds none. */
struct syn_params *syn_params_add(struct parse_ctx *ctx,
                                  struct syn_params *list, struct syn_name name,
                                  struct syn_name type);

/* Appends a value to a schedule entry. */
struct syn_entry *syn_value_add(struct parse_ctx *ctx, struct syn_entry *entry,
                                const struct syn *expr, bool percent,
                                struct source_range where);

/* Appends a complete entry. */
void syn_entry_add(struct parse_ctx *ctx, struct syn_entries *list,
                   struct syn_entry *entry, struct syn_name key);

/* A new item of the attention being read (or a detached one outside of any). */
struct syn_item *syn_item_add(struct parse_ctx *ctx, enum syn_item_kind kind,
                              struct source_range word,
                              struct source_range where);

/* A new thing at top level. */
struct syn_decl *syn_decl_add(struct parse_ctx *ctx, enum syn_decl_kind kind,
                              struct syn_name name, struct source_range where);

/* Marks the attention being read as incomplete: what it lacks is no fault. */
void syn_mark_broken(struct parse_ctx *ctx);

/* Reports a missing ';' just after the token before the current one. */
void syn_missing_semicolon(struct parse_ctx *ctx);

#endif
