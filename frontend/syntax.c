/* Constructors of the syntax tree.
 *
 * They enforce the two limits that keep every later recursion safe: nesting
 * (parentheses, calls, prefix operators and ?:) and the height of the tree
 * (chains such as a + b + c + ... grow it without nesting).
 */
#include "frontend/syntax.h"

#include "frontend/parse_error.h"

struct syn *syn_leaf(struct parse_ctx *ctx, enum syn_kind kind,
                     struct source_range where) {
    struct syn *leaf = ARENA_NEW(ctx->arena, struct syn);
    leaf->kind = (uint8_t)kind;
    leaf->depth = 1;
    leaf->where = leaf->head = where;
    return leaf;
}

const struct syn *syn_name_ref(struct parse_ctx *ctx, struct syn_name name) {
    struct syn *leaf = syn_leaf(ctx, SYN_NAME, name.where);
    leaf->name = name.text;
    return leaf;
}

static const struct syn *error_leaf(struct parse_ctx *ctx,
                                    struct source_range where) {
    return syn_leaf(ctx, SYN_ERROR, where);
}

/* Checks the limits for a node over `args` that nests `extra` levels more. */
static bool within_limits(struct parse_ctx *ctx, struct syn *node,
                          unsigned extra) {
    unsigned nesting = 0;
    for (size_t i = 0; i < node->arg_count; i++) {
        const struct syn *arg = node->args[i];
        nesting = arg->nesting > nesting ? arg->nesting : nesting;
        node->depth =
            arg->depth + 1 > node->depth ? arg->depth + 1 : node->depth;
    }
    node->nesting = (uint16_t)(nesting + extra);
    if (node->nesting > SYNTAX_MAX_NESTING) {
        diag_error(ctx->diags, node->head, "nesting deeper than %d levels",
                   SYNTAX_MAX_NESTING);
        return false;
    }
    if (node->depth > AST_MAX_DEPTH) {
        diag_error(ctx->diags, node->head,
                   "expression chains more than %d operations; split it with "
                   "let or fn",
                   AST_MAX_DEPTH);
        return false;
    }
    return true;
}

/* A node over `args`; an error leaf if one of them is one or a limit is hit, so
 * that the rest of a runaway chain is swallowed silently. */
static const struct syn *node(struct parse_ctx *ctx, struct syn proto,
                              const struct syn *const *args, size_t count,
                              unsigned extra) {
    for (size_t i = 0; i < count; i++)
        if (args[i]->kind == SYN_ERROR)
            return args[i];
    struct syn *made = ARENA_NEW(ctx->arena, struct syn);
    *made = proto;
    made->depth = 1;
    made->args = args;
    made->arg_count = count;
    return within_limits(ctx, made, extra) ? made
                                           : error_leaf(ctx, proto.where);
}

static const struct syn *const *array(struct parse_ctx *ctx, size_t count,
                                      const struct syn *a, const struct syn *b,
                                      const struct syn *c) {
    const struct syn **args =
        ARENA_NEW_ARRAY(ctx->arena, const struct syn *, count);
    const struct syn *all[] = {a, b, c};
    for (size_t i = 0; i < count; i++)
        args[i] = all[i];
    return args;
}

const struct syn *syn_paren(struct parse_ctx *ctx, const struct syn *inner,
                            struct source_range where) {
    if (inner->kind == SYN_ERROR)
        return inner;
    if (inner->nesting + 1 > SYNTAX_MAX_NESTING) {
        diag_error(ctx->diags, where, "nesting deeper than %d levels",
                   SYNTAX_MAX_NESTING);
        return error_leaf(ctx, where);
    }
    struct syn *copy = ARENA_NEW(ctx->arena, struct syn);
    *copy = *inner;
    copy->parenthesized = true;
    copy->nesting++;
    copy->where = where;
    return copy;
}

const struct syn *syn_unary(struct parse_ctx *ctx, enum unary_op op,
                            struct source_range head, const struct syn *a) {
    struct syn proto = {.kind = SYN_UNARY, .op = (uint8_t)op, .head = head};
    proto.where = source_join(head, a->where);
    return node(ctx, proto, array(ctx, 1, a, NULL, NULL), 1, 1);
}

const struct syn *syn_binary(struct parse_ctx *ctx, enum binary_op op,
                             struct source_range head, const struct syn *a,
                             const struct syn *b) {
    if (a->kind == SYN_ERROR) /* no garbage for the rest of a runaway chain */
        return a;
    struct syn proto = {.kind = SYN_BINARY, .op = (uint8_t)op, .head = head};
    proto.where = source_join(a->where, b->where);
    return node(ctx, proto, array(ctx, 2, a, b, NULL), 2, 0);
}

const struct syn *syn_select(struct parse_ctx *ctx, struct source_range head,
                             const struct syn *c, const struct syn *a,
                             const struct syn *b) {
    struct syn proto = {.kind = SYN_SELECT, .head = head};
    proto.where = source_join(c->where, b->where);
    return node(ctx, proto, array(ctx, 3, c, a, b), 3, 1);
}

const struct syn *syn_apply(struct parse_ctx *ctx, enum syn_kind kind,
                            struct syn_name name, const struct syn_list *args,
                            struct source_range where) {
    struct syn proto = {
        .kind = (uint8_t)kind, .head = name.where, .where = where};
    proto.name = name.text;
    return node(ctx, proto, args->exprs.data, args->exprs.count, 1);
}

struct syn_list *syn_list_add(struct parse_ctx *ctx, struct syn_list *list,
                              const struct syn *expr) {
    if (!list)
        list = ARENA_NEW(ctx->arena, struct syn_list);
    vec_push(ctx->arena, &list->exprs, expr);
    return list;
}

struct syn_names *syn_names_add(struct parse_ctx *ctx, struct syn_names *list,
                                struct syn_name name) {
    if (!list)
        list = ARENA_NEW(ctx->arena, struct syn_names);
    vec_push(ctx->arena, &list->list, name);
    return list;
}

struct syn_params *syn_params_add(struct parse_ctx *ctx,
                                  struct syn_params *list, struct syn_name name,
                                  struct syn_name type) {
    if (!list)
        list = ARENA_NEW(ctx->arena, struct syn_params);
    if (name.text)
        vec_push(ctx->arena, &list->list, ((struct syn_param){name, type}));
    return list;
}

struct syn_entry *syn_value_add(struct parse_ctx *ctx, struct syn_entry *entry,
                                const struct syn *expr, bool percent,
                                struct source_range where) {
    if (!entry)
        entry = ARENA_NEW(ctx->arena, struct syn_entry);
    vec_push(ctx->arena, &entry->values,
             ((struct syn_value){expr, percent, where}));
    return entry;
}

void syn_entry_add(struct parse_ctx *ctx, struct syn_entries *list,
                   struct syn_entry *entry, struct syn_name key) {
    entry->key = key;
    entry->where = source_join(
        key.where, entry->values.data[entry->values.count - 1].where);
    vec_push(ctx->arena, &list->list, entry);
}

struct syn_item *syn_item_add(struct parse_ctx *ctx, enum syn_item_kind kind,
                              struct source_range word,
                              struct source_range where) {
    struct syn_item *item = ARENA_NEW(ctx->arena, struct syn_item);
    item->kind = kind;
    item->word = word;
    item->where = where;
    if (ctx->attention)
        vec_push(ctx->arena, &ctx->attention->items, item);
    return item;
}

struct syn_decl *syn_decl_add(struct parse_ctx *ctx, enum syn_decl_kind kind,
                              struct syn_name name, struct source_range where) {
    struct syn_decl *decl = ARENA_NEW(ctx->arena, struct syn_decl);
    decl->kind = kind;
    decl->name = name;
    decl->where = where;
    vec_push(ctx->arena, &ctx->file->decls, decl);
    return decl;
}

void syn_mark_broken(struct parse_ctx *ctx) {
    if (ctx->attention)
        ctx->attention->broken = true;
}

void syn_missing_semicolon(struct parse_ctx *ctx) {
    struct source_range before = ctx->previous;
    struct source_range gap = {before.file, before.end, before.end};
    diag_error(ctx->diags, gap, "expected ';' after %s",
               parse_error_quote(ctx, before));
}
