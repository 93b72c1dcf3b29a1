/* variants: a second kernel with another tile.
 *
 * A kernel has one tile, but which tile is best depends on the sizes of the
 * call: persistent CTAs walk the tiles in waves of one tile a multiprocessor,
 * and the last wave is rarely full.  Where the planner names a second tile
 * (attn.second_tile), the function is copied; each copy runs if its condition
 * over the sizes holds (attn.when, a factor of its grid), the other one's grid
 * is empty then.
 *
 * Not here: which tiles, and the condition (schedule-sm90.c). */
#include <mlir-c/BuiltinAttributes.h>

#include "ir/walk.h"
#include "passes/pass.h"
#include "passes/plan.h"

static void set_when(struct pass_ctx *ctx, MlirOperation func,
                     const struct schedule_problem *problem,
                     const struct schedule_plan *plan, bool second) {
    const char *words[SCHEDULE_WHEN_WORDS];
    size_t count = schedule_when(problem, plan, second, ctx->scratch, words);
    ir_set_kernel_when(func, words, count);
}

/* A copy of the function behind it, named after its tile. */
static MlirOperation copy_function(struct pass_ctx *ctx, MlirOperation func,
                                   const struct schedule_plan *plan) {
    MlirContext context = mlirOperationGetContext(func);
    MlirOperation copy = mlirOperationClone(func);
    const char *name =
        arena_printf(ctx->scratch, "%s$tile_%dx%d", ir_func_name(func),
                     plan->tile_m, plan->tile_n);
    ir_set_attr(copy, "sym_name", ir_attr_string(context, name));
    mlirBlockInsertOwnedOperationAfter(mlirOperationGetBlock(func), func, copy);
    ir_remove_attr(copy, "attn.pingpong");
    plan_write(copy, plan);
    return copy;
}

static bool add_variant(struct pass_ctx *ctx, MlirOperation module,
                        MlirOperation func) {
    struct schedule_plan plan, second;
    MlirOperation attention = ir_find_attention(func);
    struct schedule_problem problem = plan_problem(module, attention);
    int tile[2] = {0};
    ir_int_pair(func, "attn.second_tile", &tile[0], &tile[1]);
    ir_remove_attr(func, "attn.second_tile");
    if (!plan_read(ctx, module, func, attention, &plan))
        return false;
    plan.second_m = tile[0], plan.second_n = tile[1];
    if (!schedule_second(&problem, &plan, ctx->diags, &second))
        return false;
    MlirOperation copy = copy_function(ctx, func, &second);
    set_when(ctx, func, &problem, &plan, false);
    set_when(ctx, copy, &problem, &plan, true);
    return true;
}

/* variants
 * requires     functions with one attn.attention, their plan as attributes;
 * establishes  no attn.second_tile; where it was, two functions over the same
 *              mask and score functions, with attn.when;
 * breaks       nothing. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count = 0;
    MlirOperation *attentions =
        ir_collect(ctx->scratch, module, "attn.attention", &count);
    for (size_t i = 0; i < count; i++) {
        MlirOperation func = mlirOperationGetParentOperation(attentions[i]);
        if (ir_has_attr(func, "attn.second_tile") &&
            !add_variant(ctx, module, func))
            return false;
    }
    return true;
}

const struct pass pass_variants = {
    "variants", "a second kernel for sizes that another tile suits better", run,
    NULL};
