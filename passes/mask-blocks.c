/* mask-blocks: which key blocks to skip, to run whole, to run masked.
 *
 * An abstract interpretation of the mask over a tile of queries and keys
 * (design, section 4), emitted as code: the kernel classifies a block by
 * evaluating intervals instead of all its pairs.  FlexAttention evaluates the
 * mask on every pair of the sequence for the same purpose.
 *
 *   @NAME.classify   0 skip (no pair of the tile attends), 1 partial, 2 whole
 *   @NAME.kv_bounds  first and last key position that may attend for a tile
 *   @NAME$summary_*  kernels that summarise captured tensors block by block
 *
 * Both functions promise to be right for q0 a multiple of tile M, k0 of tile N,
 * q1 - q0 < M and k1 - k0 < N, with the tile of the kernel and those of the
 * variants that will share them; they do not look at the sizes q_len and kv_len
 * (callers clamp q1 and k1).  `skip` and `whole` are never wrong; `partial` may
 * be given where one of them was possible. */
#include <mlir-c/BuiltinAttributes.h>

#include "passes/mask-blocks.h"
#include "passes/pass.h"
#include "passes/plan.h"

enum { MIN_BLOCK = 16, TINY_TILE_BLOCK = 64 };

/* Summary blocks that divide both, unless they would be tiny. */
static int block_of(int rows, int keys) {
    int block = (int)abs_gcd(rows, keys);
    return block < MIN_BLOCK ? TINY_TILE_BLOCK : block;
}

/* ---- Functions ----------------------------------------------------------- */

/* @NAME.SUFFIX(`leading` x i32, shared arguments) behind the mask function. */
static MlirOperation declare(struct mask_blocks *m, struct ir_builder *b,
                             const char *suffix, size_t leading,
                             size_t result_count) {
    MlirType i32 = ir_type_i32(b->context), results[2] = {i32, i32};
    MlirType *types =
        ARENA_NEW_ARRAY(m->arena, MlirType, leading + m->shared_count);
    for (size_t i = 0; i < leading; i++)
        types[i] = i32;
    for (size_t i = 0; i < m->shared_count; i++)
        types[leading + i] =
            mlirValueGetType(ir_func_arg(m->kernel, KERNEL_SHARED + i));
    ir_at_end(b, ir_region_block(m->module, 0));
    b->location = mlirOperationGetLocation(m->mask);
    return ir_func(
        b, arena_printf(m->arena, "%s.%s", ir_func_name(m->kernel), suffix),
        true, types, leading + m->shared_count, results, result_count);
}

/* Positions [lo, hi] of a tile of at most `tile` rows that begins at a multiple
 * of `align`. */
static struct abs_value tile_positions(MlirValue lo, MlirValue hi, int tile,
                                       int align) {
    struct abs_value positions = abs_range(lo, hi, 0, INT32_MAX - 1);
    positions.width = tile - 1;
    positions.align = align;
    return positions;
}

/* i1: do the conditions that must hold together all hold, but for `causal`
 * among them?  `seen`: those that were asked before; not asked again. */
static MlirValue rest_holds(struct mask_eval *e, struct ir_map *seen,
                            MlirValue condition, MlirOperation causal) {
    MlirOperation op = ir_def(condition);
    bool is_causal = !mlirOperationIsNull(op) && mlirOperationEqual(op, causal);
    if (is_causal || ir_map_has(seen, condition))
        return ir_const_bool(e->b, true);
    ir_map_set(seen, condition, condition);
    if (mlirOperationIsNull(op) || !ir_is_op(op, "arith.andi"))
        return mask_eval_fact(e, condition)->value.lo;
    return abs_and(e->b, rest_holds(e, seen, ir_operand(op, 0), causal),
                   rest_holds(e, seen, ir_operand(op, 1), causal));
}

static void build_classify(struct mask_blocks *m, struct ir_builder *b) {
    struct mask_eval e;
    ir_at_end(b, ir_func_body(m->classify));
    struct abs_value q =
        tile_positions(ir_func_arg(m->classify, 3), ir_func_arg(m->classify, 4),
                       m->most_rows, m->align_rows);
    struct abs_value kv =
        tile_positions(ir_func_arg(m->classify, 5), ir_func_arg(m->classify, 6),
                       m->most_n, m->align_n);
    mask_eval_run(&e, m, b, m->classify, CLASSIFY_SHARED, q, kv);
    MlirValue attends = ir_returned(m->mask);
    struct abs_value keep = mask_eval_fact(&e, attends)->value;
    b->location = mlirOperationGetLocation(m->mask);
    MlirValue partial = abs_is_true(keep.hi)
                            ? ir_const_i32(b, 1)
                            : ir_extui(b, keep.hi, ir_type_i32(b->context));
    MlirValue results[2] = {
        abs_choose(b, keep.lo, ir_const_i32(b, 2), partial)};
    MlirOperation causal =
        ir_find_causal(b->arena, attends, ir_func_arg(m->mask, IR_MASK_Q),
                       ir_func_arg(m->mask, IR_MASK_KV));
    results[1] = ir_const_i32(b, 0);
    if (!mlirOperationIsNull(causal))
        results[1] = ir_extui(
            b, rest_holds(&e, ir_map_create(b->arena), attends, causal),
            ir_type_i32(b->context));
    ir_return(b, results, 2);
    ir_erase_dead(ir_func_body(m->classify));
}

/* Returns whether the range is dense. */
static bool build_bounds(struct mask_blocks *m, struct ir_builder *b) {
    struct mask_eval e;
    ir_at_end(b, ir_func_body(m->bounds));
    struct abs_value q =
        tile_positions(ir_func_arg(m->bounds, 3), ir_func_arg(m->bounds, 4),
                       m->most_m, m->align_m);
    MlirValue kv_len = ir_func_arg(m->bounds, BOUNDS_SHARED + SIZE_KV_LEN);
    MlirValue last = ir_subi(b, kv_len, ir_const_i32(b, 1));
    struct abs_value kv = abs_range(ir_const_i32(b, 0), last, 0, INT32_MAX - 1);
    mask_eval_run(&e, m, b, m->bounds, BOUNDS_SHARED, q, kv);
    struct kv_range range = mask_kv_range(&e, last);
    b->location = mlirOperationGetLocation(m->mask);
    MlirValue results[2] = {range.lo, range.hi};
    ir_return(b, results, 2);
    ir_erase_dead(ir_func_body(m->bounds));
    return range.dense;
}

/* Masks that are not analysed: every block is partial. */
static void build_trivial(struct mask_blocks *m, struct ir_builder *b) {
    ir_at_end(b, ir_func_body(m->classify));
    MlirValue partial[2] = {ir_const_i32(b, 1), ir_const_i32(b, 0)};
    ir_return(b, partial, 2);
    ir_at_end(b, ir_func_body(m->bounds));
    MlirValue kv_len = ir_func_arg(m->bounds, BOUNDS_SHARED + SIZE_KV_LEN);
    MlirValue results[2] = {ir_const_i32(b, 0),
                            ir_subi(b, kv_len, ir_const_i32(b, 1))};
    ir_return(b, results, 2);
}

/* ---- The pass ------------------------------------------------------------ */

/* Straight-line code of bounded size, as ir/from_spec makes it; a module from
 * text may hold something else. */
static bool can_be_analysed(MlirOperation mask) {
    size_t count = 0;
    MlirOperation op = mlirBlockGetFirstOperation(ir_func_body(mask));
    for (; !ir_is_op(op, "func.return"); op = mlirOperationGetNextInBlock(op))
        if (++count > MAX_MASK_OPS || ir_result_count(op) != 1 ||
            mlirOperationGetNumRegions(op) != 0)
            return false;
    return true;
}

static int larger(int x, int y) {
    return x > y ? x : y;
}

/* `rows`: of a class. */
static void add_tile(struct mask_blocks *m, int tile_m, int tile_n, int rows) {
    m->most_m = larger(tile_m, m->most_m);
    m->most_n = larger(tile_n, m->most_n);
    m->most_rows = larger(rows, m->most_rows);
    m->least_n = tile_n < m->least_n ? tile_n : m->least_n;
    m->align_m = (int)abs_gcd(tile_m, m->align_m);
    m->align_n = (int)abs_gcd(tile_n, m->align_n);
    m->align_rows = (int)abs_gcd(rows, m->align_rows);
}

/* The tile of a kernel, its attribute or what the planner writes there, and
 * those of the variants to come.  A packed tile holds fewer queries: a part of
 * an aligned tile. */
static bool find_tiles(struct pass_ctx *ctx, struct mask_blocks *m) {
    struct schedule_plan plan, packed;
    int tile_m, tile_n;
    bool has_variants = ir_has_attr(m->kernel, "attn.second_tile") ||
                        ir_has_attr(m->kernel, "attn.packed_heads");
    bool planned = ir_kernel_tile(m->kernel, &tile_m, &tile_n);
    if ((!planned || has_variants) &&
        !plan_read(ctx, m->module, m->kernel, m->attention, &plan))
        return false;
    if (!planned) {
        tile_m = plan.tile_m;
        tile_n = plan.tile_n;
    }
    int consumers = (int)ir_int_attr(m->kernel, "attn.consumers", 0);
    int rows = consumers > 0 ? tile_m / consumers : tile_m;
    m->most_m = m->align_m = tile_m;
    m->most_n = m->least_n = m->align_n = tile_n;
    m->most_rows = m->align_rows = rows;
    if (has_variants && plan.second_m > 0)
        add_tile(m, plan.second_m, plan.second_n,
                 consumers > 0 ? rows : plan.second_m);
    if (has_variants && plan.pack_gqa > 0) {
        struct schedule_problem problem = plan_problem(m->module, m->attention);
        if (!schedule_variant(&problem, &plan, VARIANT_PACKED, ctx->diags,
                              &packed))
            return false;
        add_tile(m, packed.tile_m, packed.tile_n,
                 consumers > 0 ? rows : packed.tile_m);
    }
    return true;
}

static bool run_on_kernel(struct pass_ctx *ctx, MlirOperation module,
                          MlirOperation attention) {
    struct ir_builder b;
    struct mask_blocks m = {.arena = ctx->scratch,
                            .module = module,
                            .attention = attention,
                            .kernel =
                                mlirOperationGetParentOperation(attention)};
    m.mask = ir_symbol_func(module, attention, "mask");
    if (mlirOperationIsNull(m.mask) || ir_has_attr(attention, "classify"))
        return true;
    if (!find_tiles(ctx, &m))
        return false;
    ir_builder_init(&b, mlirOperationGetContext(module), ctx->scratch);
    m.block = block_of(m.align_rows, m.align_n);
    m.shared_count = ir_func_arg_count(m.kernel) - KERNEL_SHARED;
    m.classify = declare(&m, &b, "classify", CLASSIFY_SHARED, 2);
    m.bounds = declare(&m, &b, "kv_bounds", BOUNDS_SHARED, 2);
    bool dense = false;
    if (can_be_analysed(m.mask)) {
        build_classify(&m, &b);
        dense = build_bounds(&m, &b);
    } else {
        build_trivial(&m, &b);
    }
    mask_summary_kernels(&m, &b);
    ir_set_attr(attention, "classify",
                ir_attr_symbol(b.context, ir_func_name(m.classify)));
    ir_set_attr(attention, "kv_bounds",
                ir_attr_symbol(b.context, ir_func_name(m.bounds)));
    if (dense)
        ir_set_attr(attention, "dense", ir_attr_unit(b.context));
    return true;
}

/* mask-blocks
 * requires     stage `attn`; attn.tile on the kernels, else the planner's is
 *              taken;
 * establishes  stage `mask-blocks`: classify, kv_bounds and summaries of every
 *              attention with a mask;
 * breaks       nothing: mask and score functions stay as they are. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count;
    MlirOperation *attentions =
        ir_collect(ctx->scratch, module, "attn.attention", &count);
    bool good = true;
    for (size_t i = 0; i < count; i++)
        good &= run_on_kernel(ctx, module, attentions[i]);
    return good;
}

const struct pass pass_mask_blocks = {
    .name = "mask-blocks",
    .summary =
        "derive which key blocks to skip, to run whole and to run masked",
    .run = run,
};
