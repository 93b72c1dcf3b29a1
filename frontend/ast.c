/* Helpers over the checked spec: spellings, dependence, inlining, walking. */
#include "frontend/ast.h"

#include <assert.h>
#include <string.h>

#include "frontend/fold.h"

/* ---- spellings ----------------------------------------------------------- */

const char *ast_type_name(enum value_type type) {
    static const char *const names[] = {"bool", "i32", "f32"};
    return names[type];
}

const char *ast_scalar_name(enum scalar_type type) {
    static const char *const names[SCALAR_TYPE_COUNT] = {"bool", "i32", "f32",
                                                         "f16", "bf16"};
    return names[type];
}

const char *ast_index_name(enum index_name index) {
    static const char *const names[INDEX_COUNT] = {"b", "h", "h_kv", "q", "kv"};
    return names[index];
}

const char *ast_size_name(enum size_name size) {
    static const char *const names[SIZE_COUNT] = {"batch", "heads", "kv_heads",
                                                  "q_len", "kv_len"};
    return names[size];
}

const char *ast_unary_name(enum unary_op op) {
    static const char *const names[] = {"-", "!", "~"};
    return names[op];
}

const char *ast_binary_name(enum binary_op op) {
    static const char *const names[] = {
        "+",  "-", "*",  "/", "%",  "&",  "|",  "^",  "<<",
        ">>", "<", "<=", ">", ">=", "==", "!=", "&&", "||"};
    return names[op];
}

const char *ast_builtin_name(enum builtin builtin) {
    static const char *const names[BUILTIN_COUNT] = {
#define B(id, name, args, rule) name,
        AST_BUILTINS(B)
#undef B
    };
    return names[builtin];
}

const char *ast_schedule_key_name(enum schedule_key key) {
    static const char *const names[SCHEDULE_KEY_COUNT] = {
        "tile",    "stages",   "consumers",
        "overlap", "exp_poly", "rescale_threshold",
        "order",
    };
    return names[key];
}

enum value_type ast_value_type(enum scalar_type type) {
    return type == SCALAR_BOOL  ? TYPE_BOOL
           : type == SCALAR_I32 ? TYPE_I32
                                : TYPE_F32;
}

enum scalar_type ast_scalar_type(enum value_type type) {
    return type == TYPE_BOOL  ? SCALAR_BOOL
           : type == TYPE_I32 ? SCALAR_I32
                              : SCALAR_F32;
}

/* ---- constants and dependence -------------------------------------------- */

bool ast_is_const(const struct expr *expr) {
    return expr->kind == EXPR_CONST;
}

int32_t ast_const_i32(const struct expr *expr) {
    assert(expr->kind == EXPR_CONST && expr->type == TYPE_I32);
    return (int32_t)expr->bits;
}

float ast_const_f32(const struct expr *expr) {
    assert(expr->kind == EXPR_CONST && expr->type == TYPE_F32);
    return fold_float(expr->bits);
}

bool ast_const_bool(const struct expr *expr) {
    assert(expr->kind == EXPR_CONST && expr->type == TYPE_BOOL);
    return expr->bits != 0;
}

bool ast_uses_score(const struct expr *expr) {
    return (expr->deps & DEP_S) != 0;
}

bool ast_uses_row(const struct expr *expr) {
    return (expr->deps & DEP_Q) != 0;
}

bool ast_uses_column(const struct expr *expr) {
    return (expr->deps & DEP_KV) != 0;
}

bool ast_uses_head(const struct expr *expr) {
    return (expr->deps & (DEP_B | DEP_H | DEP_H_KV)) != 0;
}

bool ast_is_uniform(const struct expr *expr) {
    return !(expr->deps & (DEP_B | DEP_H | DEP_H_KV | DEP_Q | DEP_KV | DEP_S |
                           DEP_FN_PARAM));
}

const struct attention *ast_find_attention(const struct spec *spec,
                                           const char *name) {
    for (size_t i = 0; i < spec->attention_count; i++)
        if (strcmp(spec->attentions[i].name, name) == 0)
            return &spec->attentions[i];
    return NULL;
}

/* ---- inlining ------------------------------------------------------------ */

/* deps, depth and nodes of a copied node from its arguments. */
static void remeasure(struct expr *node) {
    uint64_t nodes = 1;
    uint32_t depth = 0;
    node->deps &= DEP_TENSOR | DEP_EXTERN;
    for (size_t i = 0; i < node->arg_count; i++) {
        node->deps |= node->args[i]->deps;
        nodes += node->args[i]->nodes;
        depth = node->args[i]->depth > depth ? node->args[i]->depth : depth;
    }
    if (node->kind == EXPR_CALL && node->fn->body) {
        nodes += node->fn->body->nodes;
        depth += node->fn->body->depth;
    }
    node->nodes = nodes > UINT32_MAX ? UINT32_MAX : (uint32_t)nodes;
    node->depth = depth + 1;
}

const struct expr *ast_inline(struct arena *arena, const struct expr *body,
                              const struct expr *const *args) {
    if (body->kind == EXPR_FN_PARAM)
        return args[body->fn_param];
    if (!(body->deps & DEP_FN_PARAM) && body->kind != EXPR_CALL)
        return body;
    struct expr *copy = ARENA_NEW(arena, struct expr);
    const struct expr **inner =
        ARENA_NEW_ARRAY(arena, const struct expr *, body->arg_count);
    *copy = *body;
    copy->args = inner;
    for (size_t i = 0; i < body->arg_count; i++)
        inner[i] = ast_inline(arena, body->args[i], args);
    remeasure(copy);
    return copy;
}

void ast_walk(const struct expr *expr,
              void (*visit)(void *ctx, const struct expr *node), void *ctx) {
    for (size_t i = 0; i < expr->arg_count; i++)
        ast_walk(expr->args[i], visit, ctx);
    if (expr->kind == EXPR_CALL && expr->fn->body)
        ast_walk(expr->fn->body, visit, ctx);
    visit(ctx, expr);
}
