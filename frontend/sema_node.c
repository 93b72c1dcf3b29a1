/* Nodes of the checked tree: what they depend on and how large they are. */
#include "frontend/sema.h"

struct expr *sema_leaf(struct sema *sema, enum expr_kind kind,
                       enum value_type type, struct source_range where) {
    struct expr *expr = ARENA_NEW(sema->arena, struct expr);
    expr->kind = kind;
    expr->type = type;
    expr->where = where;
    expr->depth = expr->nodes = 1;
    return expr;
}

struct expr *sema_const(struct sema *sema, enum value_type type, uint32_t bits,
                        struct source_range where) {
    struct expr *expr = sema_leaf(sema, EXPR_CONST, type, where);
    expr->bits = bits;
    return expr;
}

static uint32_t saturated(uint64_t value) {
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* A call counts as its body with the arguments put in. */
static void measure_call(struct expr *call) {
    const struct expr *body = call->fn->body;
    uint64_t nodes = 1 + (body ? body->nodes : 0);
    uint32_t deps = body ? body->deps & ~(uint32_t)DEP_FN_PARAM : 0;
    uint32_t depth = 0;
    for (size_t i = 0; i < call->arg_count; i++) {
        const struct expr *arg = call->args[i];
        bool is_extern = call->fn->is_extern;
        uint32_t uses =
            is_extern ? call->fn->params[i].uses + 1 : call->fn->params[i].uses;
        nodes += (uint64_t)uses * arg->nodes;
        deps |= uses ? arg->deps : 0;
        depth = arg->depth > depth ? arg->depth : depth;
    }
    call->nodes = saturated(nodes);
    call->depth = depth + (body ? body->depth : 0) + 1;
    call->deps = deps | (call->fn->calls_extern ? DEP_EXTERN : 0);
}

static void measure(struct expr *expr) {
    uint64_t nodes = 1;
    uint32_t depth = 0;
    for (size_t i = 0; i < expr->arg_count; i++) {
        const struct expr *arg = expr->args[i];
        nodes += arg->nodes;
        expr->deps |= arg->deps;
        depth = arg->depth > depth ? arg->depth : depth;
    }
    expr->nodes = saturated(nodes);
    expr->depth = depth + 1;
}

struct expr *sema_node(struct sema *sema, struct expr proto,
                       struct expr *const *args, size_t count) {
    struct expr *expr = ARENA_NEW(sema->arena, struct expr);
    const struct expr **copy =
        ARENA_NEW_ARRAY(sema->arena, const struct expr *, count);
    for (size_t i = 0; i < count; i++)
        copy[i] = args[i];
    *expr = proto;
    expr->args = copy;
    expr->arg_count = count;
    if (expr->kind == EXPR_CALL)
        measure_call(expr);
    else
        measure(expr);
    if (expr->depth > AST_MAX_DEPTH)
        diag_error(sema->diags, expr->where,
                   "expression is %u operations deep with its lets and fns, "
                   "the limit is %d",
                   expr->depth, AST_MAX_DEPTH);
    else if (expr->nodes > AST_MAX_NODES)
        diag_error(
            sema->diags, expr->where,
            "expression has %u operations with its fns put in, the limit is %d",
            expr->nodes, AST_MAX_NODES);
    else
        return expr;
    return NULL;
}

static void add_uses(struct fn *fn, const struct expr *expr, uint64_t times) {
    if (expr->kind == EXPR_FN_PARAM)
        fn->params[expr->fn_param].uses =
            saturated(fn->params[expr->fn_param].uses + times);
    for (size_t i = 0; i < expr->arg_count; i++) {
        uint64_t each = expr->kind == EXPR_CALL ? expr->fn->params[i].uses : 1;
        if (expr->kind == EXPR_CALL && expr->fn->is_extern)
            each++; /* passed to the function, besides the uses of its model */
        if (each)
            add_uses(fn, expr->args[i], saturated(times * each));
    }
}

void sema_count_uses(struct fn *fn) {
    if (fn->body)
        add_uses(fn, fn->body, 1);
}
