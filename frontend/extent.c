/* Extents as launch-time code: postfix over 64-bit integers.
 *
 * A fn call is put in by binding its parameters to the arguments' expressions;
 * a let is its value.  The code has no branches, so a division in an arm of ?:
 * that is not taken still runs: a zero divisor there makes the launch
 * fail. */
#include "frontend/ast.h"
#include "support/vec.h"

enum { MAX_STEPS = 4096 };

/* Parameters of the fn around, and of the calls around that. */
struct binding {
    const struct expr *const *args;
    const struct binding *outer;
};

struct emitter {
    struct arena *arena;
    VEC(struct size_step) steps;
};

static bool emit(struct emitter *e, const struct expr *expr,
                 const struct binding *binding);

static bool step(struct emitter *e, enum size_op op, int64_t value) {
    if (e->steps.count >= MAX_STEPS)
        return false;
    vec_push(e->arena, &e->steps, ((struct size_step){op, value}));
    return true;
}

static bool emit_args(struct emitter *e, const struct expr *expr,
                      const struct binding *binding) {
    for (size_t i = 0; i < expr->arg_count; i++)
        if (!emit(e, expr->args[i], binding))
            return false;
    return true;
}

/* Integers and bools alike: && and || work on 0 and 1. */
static bool emit_binary(struct emitter *e, const struct expr *expr,
                        const struct binding *binding) {
    static const enum size_op ops[] = {
        [BINARY_ADD] = SIZE_OP_ADD,      [BINARY_SUB] = SIZE_OP_SUB,
        [BINARY_MUL] = SIZE_OP_MUL,      [BINARY_DIV] = SIZE_OP_FLOORDIV,
        [BINARY_MOD] = SIZE_OP_FLOORMOD, [BINARY_AND] = SIZE_OP_AND,
        [BINARY_OR] = SIZE_OP_OR,        [BINARY_XOR] = SIZE_OP_XOR,
        [BINARY_SHL] = SIZE_OP_SHL,      [BINARY_SHR] = SIZE_OP_SHR,
        [BINARY_LT] = SIZE_OP_LT,        [BINARY_LE] = SIZE_OP_LE,
        [BINARY_GT] = SIZE_OP_LT,        [BINARY_GE] = SIZE_OP_LE,
        [BINARY_EQ] = SIZE_OP_EQ,        [BINARY_NE] = SIZE_OP_NE,
        [BINARY_AND_THEN] = SIZE_OP_AND, [BINARY_OR_ELSE] = SIZE_OP_OR,
    };
    bool swapped = expr->binary == BINARY_GT || expr->binary == BINARY_GE;
    return emit(e, expr->args[swapped], binding) &&
           emit(e, expr->args[!swapped], binding) &&
           step(e, ops[expr->binary], 0);
}

static bool emit_builtin(struct emitter *e, const struct expr *expr,
                         const struct binding *binding) {
    if (expr->builtin == BUILTIN_CLAMP)
        return emit(e, expr->args[0], binding) &&
               emit(e, expr->args[1], binding) && step(e, SIZE_OP_MAX, 0) &&
               emit(e, expr->args[2], binding) && step(e, SIZE_OP_MIN, 0);
    enum size_op op = expr->builtin == BUILTIN_MIN   ? SIZE_OP_MIN
                      : expr->builtin == BUILTIN_MAX ? SIZE_OP_MAX
                                                     : SIZE_OP_ABS;
    return emit_args(e, expr, binding) && step(e, op, 0);
}

static bool emit_unary(struct emitter *e, const struct expr *expr,
                       const struct binding *binding) {
    if (!emit_args(e, expr, binding))
        return false;
    if (expr->unary == UNARY_NOT)
        return step(e, SIZE_OP_CONST, 0) && step(e, SIZE_OP_EQ, 0);
    return step(e, expr->unary == UNARY_NEG ? SIZE_OP_NEG : SIZE_OP_NOT, 0);
}

/* Only bool and i32 occur: a bool is 0 or 1 already. */
static bool emit_cast(struct emitter *e, const struct expr *expr,
                      const struct binding *binding) {
    if (!emit_args(e, expr, binding))
        return false;
    if (expr->type == TYPE_BOOL)
        return step(e, SIZE_OP_CONST, 0) && step(e, SIZE_OP_NE, 0);
    return true; /* bool to i32 */
}

/* Operands first, operation last.  False: something that only the device knows
 * (positions, tensors, floats). */
static bool emit(struct emitter *e, const struct expr *expr,
                 const struct binding *binding) {
    if (expr->type == TYPE_F32)
        return false;
    switch (expr->kind) {
    case EXPR_CONST:
        return step(e, SIZE_OP_CONST, (int32_t)expr->bits);
    case EXPR_SIZE:
        return step(e, SIZE_OP_SIZE, expr->size);
    case EXPR_PARAM:
        return step(e, SIZE_OP_PARAM, expr->param->number);
    case EXPR_LET:
        return emit(e, expr->let->value, NULL);
    case EXPR_FN_PARAM:
        return emit(e, binding->args[expr->fn_param], binding->outer);
    case EXPR_UNARY:
        return emit_unary(e, expr, binding);
    case EXPR_BINARY:
        return emit_binary(e, expr, binding);
    case EXPR_SELECT:
        return emit_args(e, expr, binding) && step(e, SIZE_OP_SELECT, 0);
    case EXPR_CAST:
        return emit_cast(e, expr, binding);
    case EXPR_BUILTIN:
        return emit_builtin(e, expr, binding);
    case EXPR_CALL: {
        struct binding inner = {expr->args, binding};
        return expr->fn->body && !expr->fn->is_extern &&
               emit(e, expr->fn->body, &inner);
    }
    case EXPR_INDEX:
    case EXPR_SCORE:
    case EXPR_READ:
        break;
    }
    return false;
}

bool ast_size_expr(struct arena *arena, const struct expr *expr,
                   struct size_expr *out) {
    struct emitter e = {.arena = arena};
    if (!emit(&e, expr, NULL))
        return false;
    *out = (struct size_expr){e.steps.data, e.steps.count};
    return true;
}
