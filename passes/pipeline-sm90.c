/* pipeline, sm_90a: warp roles, TMA and mbarriers, wgmma, software pipelining.
 *
 * The kernel that comes in is one consumer warpgroup's program for one tile: it
 * loads its rows of Q, then K and V block by block.  It leaves as
 * FlashAttention-3's schedule (section 3 of the paper; forms and figures:
 * docs/ptx.md):
 *
 *     warpgroup 0     producer: a thread walks the same tiles and blocks, and
 *                     copies K(0), Q, then K(j+1), V(j), ..., V(last) into
 *                     rings of stages; for lists a warp beside it searches
 *     warpgroup 1..   consumers, 64 query rows each, tile after tile
 * (persistent CTAs)
 *
 *     consumer        wait K(j); S = Q·K(j)^T issued; O += P·V(j-1) issued;
 *                     wait S, release K(j); mask, maximum;
 *                     wait O, release V(j-1); exponentials, P; rescale O
 *
 * P·V of a block is issued one iteration late, so that a tensor core always has
 * work while exponentials run.  With `pingpong` the consumers take turns at
 * issuing (named barriers).
 *
 *     ring       full: bytes of the copy    empty: one arrival per
 *     k, v       one for all consumers      consumer warp
 *     q          a slot per consumer        warp of its own consumer, or the
 *                                           one that copies O out of it
 *
 * For list masks the search hands block·2 + last and the block's classes to the
 * producer, which writes them beside K.
 * With attn.q_stages > 1 the next tile's Q is copied while the present one is
 * in use, and O takes the slot of its tile's Q on its way out (TMA).
 *
 * Persistent CTAs take every ctas-th tile; kernels whose tiles differ in an
 * unknown way (lists) draw them from a counter in the workspace instead
 * (pipeline-sm90-tiles.c).
 *
 * Not here: which blocks run and what is computed on them (`tile` and later
 * passes). */
#include "passes/pipeline-sm90.h"

#include <stdio.h>
#include <string.h>

#include "passes/pipeline-sm90-roles.h"
#include "passes/plan.h"

/* ---- Shared memory ------------------------------------------------------ */

/* Bytes of a swizzled panel row: the widest that divides rows of `columns`
 * elements. */
static int swizzle_of(int columns) {
    return columns % 64 == 0 ? 128 : columns % 32 == 0 ? 64 : 32;
}

/* A buffer of `stages` tiles like `load`'s, of whole panels, 1024-byte aligned.
 */
static MlirValue emit_tiles(struct roles *r, MlirOperation load, int stages) {
    MlirType tile = mlirValueGetType(ir_result(load, 0));
    int rows = (int)ir_extent(tile, 0), columns = (int)ir_extent(tile, 1);
    int swizzle = swizzle_of(columns);
    int64_t shape[3] = {stages, rows, columns};
    MlirType type = ir_type_shared(ir_element_type(tile), 3, shape);
    MlirValue tiles = ir_shared_panels(&r->b, type, ir_text_attr(load, "name"),
                                       r->shared_bytes, swizzle);
    int bytes = stages * rows * columns * 2;
    r->shared_bytes += (bytes + 1023) / 1024 * 1024;
    return tiles;
}

MlirValue role_mbarriers(struct roles *r, const char *name, int count,
                         int arrivals) {
    MlirValue barriers =
        ir_mbarriers(&r->b, name, r->shared_bytes, count, arrivals);
    r->shared_bytes += 8 * count;
    return barriers;
}

MlirValue role_words(struct roles *r, const char *name, int count) {
    int64_t words = count;
    struct ir_shared place = {.name = name, .byte_offset = r->shared_bytes};
    r->shared_bytes += (4 * count + 15) / 16 * 16;
    MlirType type = ir_type_shared(ir_type_i32(r->b.context), 1, &words);
    return ir_shared(&r->b, type, &place);
}

static void emit_shared(struct roles *r) {
    struct ir_builder *b = &r->b;
    int q_slots = r->q_stages * r->consumers;
    r->q_tiles = emit_tiles(r, r->q_load, q_slots);
    r->k_tiles = emit_tiles(r, r->k_load, r->stages);
    r->v_tiles = emit_tiles(r, r->v_load, r->stages);
    r->q_full = role_mbarriers(r, "q_full", q_slots, 1);
    int q_arrivals = mlirOperationIsNull(r->o_store) ? 4 : 1;
    r->q_empty = role_mbarriers(r, "q_empty", q_slots, q_arrivals);
    r->k_full = role_mbarriers(r, "k_full", r->stages, 1);
    r->k_empty = role_mbarriers(r, "k_empty", r->stages, 4 * r->consumers);
    r->v_full = role_mbarriers(r, "v_full", r->stages, 1);
    r->v_empty = role_mbarriers(r, "v_empty", r->stages, 4 * r->consumers);
    if (r->is_list) {
        r->entries = role_words(r, "block_entries", r->stages);
        r->entry_classes = role_words(r, "block_classes", r->stages);
        role_found_ring(r);
    }
    if (!mlirValueIsNull(r->counter)) {
        /* Of a list the producer is told too. */
        r->drawn_full = role_mbarriers(r, "drawn_full", DRAWN_SLOTS, 1);
        r->drawn_empty = role_mbarriers(r, "drawn_empty", DRAWN_SLOTS,
                                        4 * r->consumers + r->is_list);
        r->drawn = role_words(r, "drawn_tiles",
                              DRAWN_SLOTS * (1 + (int)r->coordinates.count));
    }
    struct ir_if first =
        ir_if_begin(b, ir_cmpi(b, IR_EQ, ir_thread_id(b), role_number(r, 0)),
                    NULL, 0, false);
    MlirValue all[] = {r->q_full,     r->q_empty,     r->k_full,
                       r->k_empty,    r->v_full,      r->v_empty,
                       r->found_full, r->found_empty, r->drawn_full,
                       r->drawn_empty};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!mlirValueIsNull(all[i]))
            ir_mbarrier_init(b, all[i]);
    ir_fence_mbarrier_init(b);
    ir_if_end(b, &first, NULL, 0);
    ir_barrier(b);
}

/* ---- Taking the kernel apart -------------------------------------------- */

static bool refuse(struct diag_sink *diags, const char *what) {
    diag_error(diags, SOURCE_NOWHERE, "pipeline: %s", what);
    return false;
}

static MlirOperation only_dot(MlirOperation load, bool transposed) {
    MlirOpOperand use = mlirValueGetFirstUse(ir_result(load, 0));
    MlirOperation user =
        mlirOpOperandIsNull(use) ? load : mlirOpOperandGetOwner(use);
    bool fits = ir_is_op(user, "attn.dot") &&
                ir_has_attr(user, "transpose_b") == transposed;
    return fits ? user : (MlirOperation){NULL};
}

/* Loads, dots and the entry in the body of the key loop. */
static bool find_body(struct roles *r, struct diag_sink *diags) {
    MlirOperation op = mlirBlockGetFirstOperation(r->loop_body);
    for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op)) {
        if (ir_has_attr(op, "attn.entry"))
            r->entry = op;
        if (ir_int_pair(op, "attn.classes", &r->class_count, &r->class_bits))
            r->classes = op;
        if (!ir_is_op(op, "attn.load"))
            continue;
        bool is_k = mlirOperationIsNull(r->k_load);
        if (!is_k && !mlirOperationIsNull(r->v_load))
            return refuse(diags, "a key loop must load K and V once each");
        *(is_k ? &r->k_load : &r->v_load) = op;
    }
    if (mlirOperationIsNull(r->k_load) || mlirOperationIsNull(r->v_load))
        return refuse(diags, "a key loop must load K and V");
    r->qk = only_dot(r->k_load, true);
    r->pv = only_dot(r->v_load, false);
    if (mlirOperationIsNull(r->qk) || mlirOperationIsNull(r->pv))
        return refuse(diags, "K must feed a transposed dot and V a plain one");
    if (r->is_list &&
        (mlirOperationIsNull(r->entry) || mlirOperationIsNull(r->classes)))
        return refuse(diags,
                      "a loop over listed blocks needs ops with attn.entry and "
                      "attn.classes");
    MlirValue acc = ir_operand(r->pv, 2);
    r->rescale = ir_def(acc);
    MlirOperation narrow = ir_def_op(ir_operand(r->pv, 0), "arith.truncf");
    if (mlirOperationIsNull(narrow))
        return refuse(diags, "P must be narrowed right before its dot");
    MlirOperation exp2 = ir_def(ir_operand(narrow, 0));
    MlirOperation argument = ir_def(ir_operand(exp2, 0));
    r->exponent = mlirOperationIsNull(argument) ? exp2 : argument;
    return true;
}

/* Can the rows of a store go out by TMA, from the slot that had the same rows
 * of Q?  With one slot the next Q would have to wait for it. */
static bool fits_q_slot(const struct roles *r, MlirOperation store) {
    if (!ir_is_op(store, "attn.store") || r->q_stages == 1)
        return false;
    MlirType rows = mlirValueGetType(ir_operand(store, 0));
    MlirType q = mlirValueGetType(ir_result(r->q_load, 0));
    bool same = ir_is_tile(rows) && ir_columns(rows) == ir_extent(q, 1) &&
                ir_rows(rows) == ir_extent(q, 0) &&
                mlirTypeEqual(ir_element_type(rows), ir_element_type(q)) &&
                ir_packed_heads(store) == ir_packed_heads(r->q_load);
    for (size_t i = 1; i < 5; i++) /* batch, head, row, limit */
        same = same && mlirValueEqual(ir_operand(store, i + 1),
                                      ir_operand(r->q_load, i));
    return same;
}

static bool take_apart(struct roles *r, struct diag_sink *diags) {
    MlirOperation op = mlirBlockGetFirstOperation(ir_func_body(r->func));
    for (; !ir_is_op(op, "func.return"); op = mlirOperationGetNextInBlock(op)) {
        bool has_state =
            ir_result_count(op) >= 3 &&
            (ir_is_op(op, "scf.for") || ir_is_op(op, "scf.while")) &&
            ir_is_tile(
                mlirValueGetType(ir_result(op, ir_result_count(op) - 3)));
        if (has_state) {
            r->loop = op;
            continue;
        }
        if (ir_is_op(op, "attn.load"))
            r->q_load = op;
        if (ir_is_op(op, "attn.own_blocks"))
            r->own = op;
        if (ir_is_op(op, "attn.warp_reduce") && mlirOperationIsNull(r->loop))
            vec_push(r->b.arena, &r->coordinates, op);
        if (mlirOperationIsNull(r->loop))
            vec_push(r->b.arena, &r->before, op);
        else
            vec_push(r->b.arena, &r->after, op);
    }
    if (mlirOperationIsNull(r->loop) || mlirOperationIsNull(r->q_load))
        return refuse(diags, "a kernel needs one load of Q and one key loop");
    if (r->coordinates.count >= MAX_WORDS)
        return refuse(diags, "too many tile coordinates");
    for (size_t i = 0; i < r->after.count; i++)
        if (fits_q_slot(r, r->after.data[i]))
            r->o_store = r->after.data[i];
    r->is_list = ir_is_op(r->loop, "scf.while");
    r->loop_body = ir_region_block(r->loop, r->is_list ? 1 : 0);
    r->state = ir_result_count(r->loop) - 3;
    return find_body(r, diags);
}

/* The old ops go, last to first. */
static void erase_old(struct roles *r) {
    for (size_t i = r->after.count; i-- > 0;)
        ir_erase(r->after.data[i]);
    ir_erase(r->loop);
    for (size_t i = r->before.count; i-- > 0;)
        ir_erase(r->before.data[i]);
}

/* ---- The new kernel ----------------------------------------------------- */

static MlirValue size_arg(struct roles *r, const char *kind) {
    size_t i = 0;
    if (!ir_func_find_arg(r->func, kind, &i))
        ir_ice(r->func, "a kernel needs every size as an argument");
    return ir_func_arg(r->func, i);
}

static void find_pair_read(void *data, MlirOperation op) {
    bool *found = data;
    *found = *found || (ir_is_op(op, "attn.read") &&
                        ir_is_tile(mlirValueGetType(ir_result(op, 0))));
}

/* A kernel may begin while the one before it ends, unless it reads a captured
 * tensor for each pair: those loads are then coherent ones, which ptxas does
 * not move, and that costs more than an early start gains. */
static bool may_begin_early(MlirOperation func) {
    bool found = false;
    ir_walk(func, find_pair_read, &found);
    return !found;
}

/* Number of tiles, and where a persistent CTA starts and how far it steps. */
static void emit_tile_range(struct roles *r) {
    struct ir_builder *b = &r->b;
    int packed = plan_packed_heads(r->func);
    MlirValue rows = size_arg(r, "size:q_len");
    if (packed > 1)
        rows = ir_muli(b, rows, role_number(r, packed));
    rows = ir_addi(b, rows, role_number(r, r->tile_m - 1));
    MlirValue per_head = ir_divui(b, rows, role_number(r, r->tile_m));
    MlirValue heads = ir_muli(b, size_arg(r, plan_heads_size(r->func)),
                              size_arg(r, "size:batch"));
    r->tiles = ir_muli(b, per_head, heads);
    r->first_tile = ir_block_id(b);
    r->ctas = ir_grid_dim(b);
}

/* A number that no kernel of the module uses for a workspace buffer. */
static int free_workspace(struct roles *r, MlirOperation func) {
    size_t count = 0;
    int number = 0;
    MlirOperation module = mlirOperationGetParentOperation(func);
    MlirOperation *funcs = ir_collect(r->b.arena, module, "func.func", &count);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < ir_func_arg_count(funcs[i]); k++) {
            const char *kind = ir_func_arg_kind(funcs[i], k);
            int taken;
            if (kind && sscanf(kind, "workspace:%d", &taken) == 1 &&
                taken >= number)
                number = taken + 1;
        }
    return number;
}

/* The tile counter, a word of the workspace that starts at 0. */
static void add_counter(struct roles *r) {
    MlirContext context = r->b.context;
    static const char *const bytes[] = {"4"};
    const char *kind =
        arena_printf(r->b.arena, "workspace:%d", free_workspace(r, r->func));
    r->counter =
        ir_func_add_arg(r->func, ir_type_workspace(ir_type_i32(context)), kind);
    size_t index = ir_func_arg_count(r->func) - 1;
    ir_set_workspace_bytes(r->func, index, bytes, 1);
    ir_func_set_arg_attr(r->func, index, "attn.workspace_zeroed",
                         ir_attr_unit(context));
}

/* A CTA a multiprocessor, or a tile if those are fewer; none where the other
 * variant runs. */
static void set_launch(struct roles *r) {
    const char *words[PLAN_TILE_WORDS + 2] = {"sm_count"};
    size_t count =
        1 + plan_tile_words(r->func, r->b.arena, r->tile_m, words + 1);
    words[count++] = "min";
    plan_set_grid(r->func, r->b.arena, words, count);
    ir_set_kernel_warps(r->func, 4 * (r->consumers + 1));
    ir_set_attr(r->func, "attn.row_warps", ir_attr_i32(r->b.context, 4));
    ir_set_kernel_shared_bytes(r->func, r->shared_bytes);
}

bool pipeline_sm90(struct pass_ctx *ctx, MlirOperation func) {
    struct roles r = {.func = func};
    int tile_n;
    ir_builder_init(&r.b, mlirOperationGetContext(func), ctx->scratch);
    r.stages = (int)ir_int_attr(func, "attn.stages", 2);
    r.q_stages = (int)ir_int_attr(func, "attn.q_stages", 1);
    r.consumers = (int)ir_int_attr(func, "attn.consumers", 2);
    r.pingpong = ir_has_attr(func, "attn.pingpong") && r.consumers > 1;
    if (!ir_kernel_tile(func, &r.tile_m, &tile_n) ||
        !take_apart(&r, ctx->diags))
        return false;
    const char *order = ir_text_attr(func, "attn.order");
    if (order && strcmp(order, "dynamic") == 0)
        add_counter(&r);
    struct ir_builder *b = &r.b;
    MlirOperation end = mlirBlockGetTerminator(ir_func_body(func));
    ir_before(b, end);
    b->location = mlirOperationGetLocation(r.q_load);
    emit_shared(&r);
    if (may_begin_early(func))
        ir_begin_dependent_grid(b, func);
    emit_tile_range(&r);
    r.warp = ir_uniform(b, ir_subgroup_id(b));
    MlirValue warpgroup = ir_shrui(b, r.warp, role_number(&r, 2));
    MlirValue is_producer = ir_cmpi(b, IR_EQ, warpgroup, role_number(&r, 0));
    struct ir_if roles = ir_if_begin(b, is_producer, NULL, 0, true);
    role_producer(&r);
    ir_if_else(b, &roles, NULL, 0);
    role_consumer(&r, warpgroup);
    ir_if_end(b, &roles, NULL, 0);
    erase_old(&r);
    ir_erase_dead(ir_func_body(func));
    set_launch(&r);
    return true;
}
