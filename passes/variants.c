/* variants: further kernels with other tiles.
 *
 * A kernel has one tile, but which tile is best depends on the sizes of the
 * call.  Persistent CTAs walk the tiles in waves of one tile a multiprocessor,
 * and the last wave is rarely full: the planner may name a second tile
 * (attn.second_tile).  A call with few queries fills no tile with those of one
 * head: a packed kernel (attn.packed_heads) puts the heads of a KV head into
 * one, which also reads K and V once for all of them.  The function is copied
 * for each; a copy runs if its condition over the sizes holds (attn.when, a
 * factor of its grid), the others' grids are empty then.
 *
 * Not here: which tiles, and the conditions (schedule-sm90.c). */
#include <mlir-c/BuiltinAttributes.h>

#include "ir/walk.h"
#include "passes/pass.h"
#include "passes/plan.h"

/* One function and its variants. */
struct family {
    struct pass_ctx *ctx;
    struct schedule_problem problem;
    struct schedule_plan plan;
    int packed_m; /* rows of the packed kernel's tile, 0: there is none */
};

static void set_when(struct family *family, MlirOperation func,
                     enum schedule_variant variant) {
    const char *words[SCHEDULE_WHEN_WORDS];
    size_t count = schedule_when(&family->problem, &family->plan, variant,
                                 family->packed_m, family->ctx->scratch, words);
    ir_set_kernel_when(func, words, count);
}

/* A copy of the function behind it, named after its tile. */
static void copy_function(struct family *family, MlirOperation func,
                          const struct schedule_plan *plan,
                          enum schedule_variant variant) {
    MlirContext context = mlirOperationGetContext(func);
    struct arena *arena = family->ctx->scratch;
    MlirOperation copy = mlirOperationClone(func);
    const char *name =
        variant == VARIANT_PACKED
            ? arena_printf(arena, "%s$packed%d_%dx%d", ir_func_name(func),
                           family->plan.pack_gqa, plan->tile_m, plan->tile_n)
            : arena_printf(arena, "%s$tile_%dx%d", ir_func_name(func),
                           plan->tile_m, plan->tile_n);
    ir_set_attr(copy, "sym_name", ir_attr_string(context, name));
    mlirBlockInsertOwnedOperationAfter(mlirOperationGetBlock(func), func, copy);
    ir_remove_attr(copy, "attn.pingpong");
    plan_write(copy, plan);
    if (variant == VARIANT_PACKED)
        ir_set_attr(copy, "attn.pack_gqa",
                    ir_attr_i32(context, family->plan.pack_gqa));
    set_when(family, copy, variant);
}

static bool add_variants(struct pass_ctx *ctx, MlirOperation module,
                         MlirOperation func) {
    struct family family = {.ctx = ctx};
    struct schedule_plan second, packed;
    MlirOperation attention = ir_find_attention(func);
    family.problem = plan_problem(module, attention);
    if (!plan_read(ctx, module, func, attention, &family.plan))
        return false;
    ir_remove_attr(func, "attn.second_tile");
    ir_remove_attr(func, "attn.packed_heads");
    /* Each copy goes right behind the function: last first. */
    if (family.plan.pack_gqa > 0) {
        if (!schedule_variant(&family.problem, &family.plan, VARIANT_PACKED,
                              ctx->diags, &packed))
            return false;
        family.packed_m = packed.tile_m;
        copy_function(&family, func, &packed, VARIANT_PACKED);
    }
    if (family.plan.second_m > 0) {
        if (!schedule_variant(&family.problem, &family.plan, VARIANT_SECOND,
                              ctx->diags, &second))
            return false;
        copy_function(&family, func, &second, VARIANT_SECOND);
    }
    set_when(&family, func, VARIANT_FIRST);
    return true;
}

/* variants
 * requires     functions with one attn.attention, their plan as attributes;
 * establishes  no attn.second_tile and no attn.packed_heads; where they were,
 *              functions over the same mask and score functions, with
 *              attn.when and, packed, attn.pack_gqa;
 * breaks       nothing. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count = 0;
    MlirOperation *attentions =
        ir_collect(ctx->scratch, module, "attn.attention", &count);
    for (size_t i = 0; i < count; i++) {
        MlirOperation func = mlirOperationGetParentOperation(attentions[i]);
        bool has_variants = ir_has_attr(func, "attn.second_tile") ||
                            ir_has_attr(func, "attn.packed_heads");
        if (has_variants && !add_variants(ctx, module, func))
            return false;
    }
    return true;
}

const struct pass pass_variants = {
    "variants", "further kernels for sizes that other tiles suit better", run,
    NULL};
