/* Zero divisors that become visible only when a fn is called with constants:
 * `fn f(x: i32, n: i32) -> i32 = x / n;` and `f(q, 0)`.
 *
 * Evaluates calls with what is known of their arguments and stays silent about
 * everything unknown.  The work is bounded by a budget for the whole run; a
 * divisor beyond it is simply not seen.
 */
#include "frontend/fold.h"
#include "frontend/sema.h"

enum { PROBE_BUDGET = 4000000 };

/* A value that may be known. */
struct known {
    bool is_known;
    uint32_t bits;
};

/* The call being entered: values of its parameters. */
struct frame {
    const struct known *params; /* NULL: not inside a fn */
    const struct expr *call;    /* outermost call, where faults are reported */
};

static struct known probe(struct sema *sema, const struct expr *expr,
                          const struct frame *frame);

static void report(struct sema *sema, const struct expr *divisor,
                   const struct expr *call) {
    const char *key = arena_printf(sema->arena, "%u:%u:%u", call->where.file,
                                   call->where.begin, call->where.end);
    if (strmap_get(&sema->probed, key))
        return;
    strmap_set(sema->arena, &sema->probed, key, (void *)call);
    diag_error(sema->diags, call->where, "division by zero in this call");
    diag_note(sema->diags, divisor->where, "this divisor is 0");
}

static struct known probe_call(struct sema *sema, const struct expr *expr,
                               const struct frame *frame) {
    struct known params[AST_MAX_ARGS];
    bool any = false;
    for (size_t i = 0; i < expr->arg_count; i++) {
        params[i] = probe(sema, expr->args[i], frame);
        any |= params[i].is_known;
    }
    if (!any || expr->fn->is_extern || !expr->fn->body)
        return (struct known){0};
    struct frame inner = {params, frame->call ? frame->call : expr};
    return probe(sema, expr->fn->body, &inner);
}

/* Operators that do not look at their right side when the left one decides. */
static struct known probe_logic(struct sema *sema, const struct expr *expr,
                                const struct frame *frame) {
    bool decides = expr->binary == BINARY_OR_ELSE;
    struct known a = probe(sema, expr->args[0], frame);
    if (a.is_known && a.bits == decides)
        return a;
    struct known b = probe(sema, expr->args[1], frame);
    if (b.is_known && (b.bits == decides || a.is_known))
        return b;
    return (struct known){0};
}

/* A divisor that is zero with these arguments is the fault looked for; outside
 * of any call the ordinary check has reported it. */
static struct known probe_binary(struct sema *sema, const struct expr *expr,
                                 const struct frame *frame) {
    if (expr->binary == BINARY_AND_THEN || expr->binary == BINARY_OR_ELSE)
        return probe_logic(sema, expr, frame);
    struct known a = probe(sema, expr->args[0], frame);
    struct known b = probe(sema, expr->args[1], frame);
    bool divides = expr->args[0]->type == TYPE_I32 &&
                   (expr->binary == BINARY_DIV || expr->binary == BINARY_MOD);
    if (divides && b.is_known && b.bits == 0) {
        if (frame->call)
            report(sema, expr->args[1], frame->call);
        return (struct known){0};
    }
    struct known result = {a.is_known && b.is_known, 0};
    if (result.is_known)
        fold_binary(expr->binary, expr->args[0]->type, a.bits, b.bits,
                    &result.bits);
    return result;
}

/* Only the arm taken counts where the condition is known. */
static struct known probe_select(struct sema *sema, const struct expr *expr,
                                 const struct frame *frame) {
    struct known c = probe(sema, expr->args[0], frame);
    if (c.is_known)
        return probe(sema, expr->args[c.bits ? 1 : 2], frame);
    probe(sema, expr->args[1], frame);
    probe(sema, expr->args[2], frame);
    return (struct known){0};
}

/* Nodes that need all of their operands. */
static struct known probe_strict(struct sema *sema, const struct expr *expr,
                                 const struct frame *frame) {
    uint32_t values[3] = {0};
    struct known result = {expr->kind != EXPR_READ, 0};
    for (size_t i = 0; i < expr->arg_count; i++) {
        struct known arg = probe(sema, expr->args[i], frame);
        result.is_known &= arg.is_known;
        if (i < 3)
            values[i] = arg.bits;
    }
    if (!result.is_known)
        return result;
    if (expr->kind == EXPR_UNARY)
        fold_unary(expr->unary, expr->type, values[0], &result.bits);
    else if (expr->kind == EXPR_CAST)
        result.bits = fold_cast(expr->args[0]->type, expr->type, values[0]);
    else
        fold_builtin(expr->builtin, expr->type, values, &result.bits);
    return result;
}

/* The budget bounds fns that call fns: what lies behind it is not probed. */
static struct known probe(struct sema *sema, const struct expr *expr,
                          const struct frame *frame) {
    if (sema->probe_budget >= PROBE_BUDGET)
        return (struct known){0};
    sema->probe_budget++;
    switch (expr->kind) {
    case EXPR_CONST:
        return (struct known){true, expr->bits};
    case EXPR_FN_PARAM:
        return frame->params ? frame->params[expr->fn_param]
                             : (struct known){0};
    case EXPR_BINARY:
        return probe_binary(sema, expr, frame);
    case EXPR_SELECT:
        return probe_select(sema, expr, frame);
    case EXPR_CALL:
        return probe_call(sema, expr, frame);
    case EXPR_UNARY:
    case EXPR_CAST:
    case EXPR_BUILTIN:
    case EXPR_READ:
        return probe_strict(sema, expr, frame);
    case EXPR_INDEX:
    case EXPR_SIZE:
    case EXPR_SCORE:
    case EXPR_PARAM:
    case EXPR_LET:
        break;
    }
    return (struct known){0};
}

void sema_probe_divisors(struct sema *sema, const struct expr *expr) {
    struct frame outside = {0};
    if (expr)
        probe(sema, expr, &outside);
}
