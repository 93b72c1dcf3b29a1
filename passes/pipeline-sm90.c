/* pipeline, sm_90a: warp roles, TMA and mbarriers, wgmma, software pipelining.
 *
 * The kernel that comes in is one consumer warpgroup's program for one tile: it loads its
 * rows of Q, then K and V block by block.  It leaves as FlashAttention-3's schedule
 * (section 3 of the paper; forms and figures: docs/ptx.md):
 *
 *     warpgroup 0     producer: warp 0 walks the same tiles and blocks, one lane copies
 *                     K(0), Q, then K(j+1), V(j), ..., V(last) into rings of stages
 *     warpgroup 1..   consumers, 64 query rows each, tile after tile (persistent CTAs)
 *
 *     consumer        wait K(j); S = Q·K(j)^T issued; O += P·V(j-1) issued;
 *                     wait S, release K(j); mask, maximum;
 *                     wait O, release V(j-1); exponentials, P; rescale O
 *
 * P·V of a block is issued one iteration late, so that a tensor core always has work while
 * exponentials run.  With `pingpong` the consumers take turns at issuing (named barriers).
 *
 *     ring            full: bytes of the copy     empty: one arrival per consumer warp
 *     q               a slot per consumer         arrivals of its own four warps
 *     list masks      the producer writes block·2 + whole beside K, -1 ends the tile
 *
 * The producer's program is a slice of the kernel: the ops that rows of loads need.
 *
 * Not here: which blocks run and what is computed on them (`tile` and later passes). */
#include "passes/pipeline-sm90.h"

#include <assert.h>

#include "ir/build_sm90.h"
#include "ir/walk.h"
#include "passes/schedule-sm90.h"
#include "support/vec.h"

/* Position in a ring of stages: next stage, parity of the phase to wait for. */
struct ring {
    MlirValue stage, parity;
};

/* Images of the kernel's old values: those of an inner scope hide the outer ones. */
struct scope {
    struct ir_map *inner;
    const struct ir_map *outer; /* may be NULL */
};

typedef VEC(MlirOperation) op_list;

struct roles {
    struct ir_builder b;
    MlirOperation func;
    int consumers, stages, tile_m;
    bool pingpong;
    /* The kernel as it was. */
    op_list before, after; /* ops of the body in front of and behind the key loop */
    MlirOperation q_load, k_load, v_load, loop, qk, pv;
    MlirBlock loop_body;
    bool is_list;          /* scf.while over a list of blocks, else scf.for */
    MlirOperation entry;   /* list: block·2 + whole */
    size_t state;          /* number of acc among the loop-carried values; m and l follow */
    MlirOperation rescale; /* makes the accumulator operand of P·V; null: it is acc itself */
    MlirOperation exponent; /* first op that needs the new maximum and is a tile */
    /* The new kernel. */
    MlirValue q_tiles, k_tiles, v_tiles, entries;
    MlirValue q_full, q_empty, k_full, k_empty, v_full, v_empty;
    MlirValue tiles, first_tile, ctas; /* persistent loop */
    MlirValue warp, elected, consumer;
    int shared_bytes;
};

enum { STATE_ACC, STATE_M, STATE_L };

static MlirValue number(struct roles *r, int value) { return ir_const_i32(&r->b, value); }

/* A banner in the PTX in front of the op. */
static void name_section(struct roles *r, MlirOperation op, const char *text) {
    ir_set_attr(op, "attn.section", ir_attr_string(r->b.context, text));
}

/* ---- Scopes ------------------------------------------------------------------ */

static MlirValue image(const struct scope *scope, MlirValue value) {
    MlirValue found = ir_map_get(scope->inner, value);
    if (mlirValueEqual(found, value) && scope->outer)
        found = ir_map_get(scope->outer, value);
    return found;
}

static void adopt_operands(void *data, MlirOperation op) {
    const struct scope *scope = data;
    for (size_t i = 0; i < ir_operand_count(op); i++) {
        MlirValue value = ir_operand(op, i);
        ir_map_set(scope->inner, value, image(scope, value));
    }
}

/* Copies an op of the old kernel to the builder's place. */
static void clone(struct roles *r, struct scope *scope, MlirOperation op) {
    adopt_operands(scope, op);
    ir_walk(op, adopt_operands, scope);
    ir_clone(&r->b, op, scope->inner);
}

/* The image of a value of the loop body, what it needs being copied first. */
static MlirValue slice(struct roles *r, struct scope *scope, MlirValue value) {
    MlirOperation def = ir_def(value);
    MlirValue found = image(scope, value);
    if (!mlirValueEqual(found, value) || mlirOperationIsNull(def) ||
        !mlirBlockEqual(mlirOperationGetBlock(def), r->loop_body))
        return found;
    if (!ir_is_pure(def))
        ir_ice(def, "the rows of a load must be computed without side effects");
    for (size_t i = 0; i < ir_operand_count(def); i++)
        slice(r, scope, ir_operand(def, i));
    clone(r, scope, def);
    return image(scope, value);
}

/* ---- Rings ------------------------------------------------------------------- */

static struct ring ring_next(struct roles *r, struct ring ring) {
    struct ir_builder *b = &r->b;
    MlirValue flipped = ir_xori(b, ring.parity, number(r, 1));
    if (r->stages == 1)
        return (struct ring){ring.stage, flipped};
    MlirValue next = ir_addi(b, ring.stage, number(r, 1));
    MlirValue wraps = ir_cmpi(b, IR_EQ, next, number(r, r->stages));
    return (struct ring){ir_select(b, wraps, number(r, 0), next),
                         ir_select(b, wraps, flipped, ring.parity)};
}

/* ---- Shared memory ------------------------------------------------------------ */

/* Bytes of a swizzled panel row: the widest that divides rows of `columns` elements. */
static int swizzle_of(int columns) {
    return columns % 64 == 0 ? 128 : columns % 32 == 0 ? 64 : 32;
}

/* A buffer of `stages` tiles like `load`'s, of whole panels, 1024-byte aligned. */
static MlirValue emit_tiles(struct roles *r, MlirOperation load, int stages) {
    MlirType tile = mlirValueGetType(ir_result(load, 0));
    int rows = (int)ir_extent(tile, 0), columns = (int)ir_extent(tile, 1);
    int swizzle = swizzle_of(columns);
    int64_t shape[3] = {stages, rows, columns};
    MlirType type = ir_type_shared(ir_element_type(tile), 3, shape);
    MlirValue tiles = ir_shared_panels(&r->b, type, ir_text_attr(load, "name"), r->shared_bytes,
                                       swizzle);
    int bytes = stages * rows * columns * 2;
    r->shared_bytes += (bytes + 1023) / 1024 * 1024;
    return tiles;
}

static MlirValue emit_mbarriers(struct roles *r, const char *name, int count, int arrivals) {
    MlirValue barriers = ir_mbarriers(&r->b, name, r->shared_bytes, count, arrivals);
    r->shared_bytes += 8 * count;
    return barriers;
}

static void emit_shared(struct roles *r) {
    struct ir_builder *b = &r->b;
    r->q_tiles = emit_tiles(r, r->q_load, r->consumers);
    r->k_tiles = emit_tiles(r, r->k_load, r->stages);
    r->v_tiles = emit_tiles(r, r->v_load, r->stages);
    r->q_full = emit_mbarriers(r, "q_full", r->consumers, 1);
    r->q_empty = emit_mbarriers(r, "q_empty", r->consumers, 4);
    r->k_full = emit_mbarriers(r, "k_full", r->stages, 1);
    r->k_empty = emit_mbarriers(r, "k_empty", r->stages, 4 * r->consumers);
    r->v_full = emit_mbarriers(r, "v_full", r->stages, 1);
    r->v_empty = emit_mbarriers(r, "v_empty", r->stages, 4 * r->consumers);
    if (r->is_list) {
        int64_t stages = r->stages;
        struct ir_shared place = {.name = "block_entries", .byte_offset = r->shared_bytes};
        r->entries = ir_shared(b, ir_type_shared(ir_type_i32(b->context), 1, &stages), &place);
        r->shared_bytes += (4 * r->stages + 15) / 16 * 16;
    }
    struct ir_if first = ir_if_begin(b, ir_cmpi(b, IR_EQ, ir_thread_id(b), number(r, 0)), NULL, 0,
                                     false);
    MlirValue all[] = {r->q_full, r->q_empty, r->k_full, r->k_empty, r->v_full, r->v_empty};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        ir_mbarrier_init(b, all[i]);
    ir_fence_mbarrier_init(b);
    ir_if_end(b, &first, NULL, 0);
    ir_barrier(b);
}

/* ---- What stands in front of the key loop ------------------------------------------ */

/* Copies it for tile number `tile`; loads are left out, each role has its own. */
static struct scope clone_tile_head(struct roles *r, MlirValue tile, MlirValue consumer) {
    struct scope scope = {.inner = ir_map_create(r->b.arena)};
    for (size_t i = 0; i < r->before.count; i++) {
        MlirOperation op = r->before.data[i];
        if (ir_is_op(op, "attn.load") || ir_is_op(op, "gpu.block_id"))
            continue;
        if (ir_is_op(op, "attn.consumer"))
            ir_map_set(scope.inner, ir_result(op, 0), consumer);
        else if (ir_is_op(op, "arith.index_cast") &&
                 !mlirOperationIsNull(ir_def_op(ir_operand(op, 0), "gpu.block_id")))
            ir_map_set(scope.inner, ir_result(op, 0), tile);
        else if (ir_is_op(op, "attn.warp_reduce")) /* of a uniform value: one lane may run this */
            ir_map_set(scope.inner, ir_result(op, 0), image(&scope, ir_operand(op, 0)));
        else
            clone(r, &scope, op);
    }
    return scope;
}

/* ---- Producer ------------------------------------------------------------------------ */

/* Blocks of list masks are found by a whole warp; then one lane copies. */
static struct ir_if begin_copying(struct roles *r) {
    return r->is_list ? ir_if_begin(&r->b, r->elected, NULL, 0, false) : (struct ir_if){0};
}

static void end_copying(struct roles *r, struct ir_if *branch) {
    if (r->is_list)
        ir_if_end(&r->b, branch, NULL, 0);
}

static int tile_bytes(MlirValue tiles) {
    MlirType type = mlirValueGetType(tiles);
    return (int)(ir_extent(type, 1) * ir_extent(type, 2)) * 2;
}

/* The copy of `load` whose first row is `row` into slot `slot`, announced on `full`. */
static void emit_copy(struct roles *r, struct scope *scope, MlirOperation load, MlirValue row,
                      MlirValue tiles, MlirValue full, MlirValue slot) {
    struct ir_builder *b = &r->b;
    MlirValue src = ir_operand(load, 0);
    MlirValue batch = slice(r, scope, ir_operand(load, 1));
    MlirValue head = slice(r, scope, ir_operand(load, 2));
    ir_mbarrier_expect_tx(b, full, slot, tile_bytes(tiles));
    ir_tma_load(b, src, batch, head, row, ir_stage(b, tiles, slot), full, slot);
}

static void wait_empty(struct roles *r, MlirValue empty, struct ring ring) {
    ir_mbarrier_wait(&r->b, empty, ring.stage, ir_xori(&r->b, ring.parity, number(r, 1)));
}

/* Copies the next K or V block; `entry` (list masks, K only, else null) goes beside it. */
static struct ring produce_block(struct roles *r, struct scope *scope, bool is_k,
                                 struct ring ring, MlirValue row, MlirValue entry) {
    MlirValue full = is_k ? r->k_full : r->v_full;
    struct ir_if copying = begin_copying(r);
    wait_empty(r, is_k ? r->k_empty : r->v_empty, ring);
    if (!mlirValueIsNull(entry))
        ir_store_element(&r->b, entry, r->entries, &ring.stage, 1);
    emit_copy(r, scope, is_k ? r->k_load : r->v_load, row, is_k ? r->k_tiles : r->v_tiles, full,
              ring.stage);
    end_copying(r, &copying);
    return ring_next(r, ring);
}

/* Copies the tile's rows of Q, a slot for each consumer. */
static void produce_q(struct roles *r, struct scope *scope, MlirValue parity) {
    struct ir_builder *b = &r->b;
    struct ir_if copying = begin_copying(r);
    for (int i = 0; i < r->consumers; i++) {
        struct ring slot = {number(r, i), parity};
        wait_empty(r, r->q_empty, slot);
        MlirValue row = ir_addi(b, image(scope, ir_operand(r->q_load, 3)), number(r, 64 * i));
        emit_copy(r, scope, r->q_load, row, r->q_tiles, r->q_full, slot.stage);
    }
    end_copying(r, &copying);
}

/* First row of block number i of a counted loop. */
static MlirValue counted_row(struct roles *r, const struct scope *tile, MlirOperation load,
                             MlirValue i) {
    struct scope scope = {ir_map_create(r->b.arena), tile->inner};
    ir_map_set(scope.inner, mlirBlockGetArgument(r->loop_body, 0), i);
    return slice(r, &scope, ir_operand(load, 3));
}

enum { P_KS, P_KP, P_VS, P_VP, P_QP, P_COUNT }; /* what the producer carries along */

/* K(0), Q, then K(i), V(i-1), then the last V; nothing for a tile without blocks. */
static void produce_counted(struct roles *r, struct scope *tile, MlirValue carried[P_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue none = {NULL}, count = image(tile, ir_operand(r->loop, 1));
    MlirValue zero = number(r, 0), one = number(r, 1);
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[P_COUNT] = {i32, i32, i32, i32, i32};
    struct ir_if some = ir_if_begin(b, ir_cmpi(b, IR_SGT, count, zero), types, P_COUNT, true);
    struct ring k = {carried[P_KS], carried[P_KP]}, v = {carried[P_VS], carried[P_VP]};
    k = produce_block(r, tile, true, k, counted_row(r, tile, r->k_load, zero), none);
    produce_q(r, tile, carried[P_QP]);
    MlirValue inits[4] = {k.stage, k.parity, v.stage, v.parity};
    struct ir_for loop = ir_for_begin(b, one, count, one, inits, 4);
    k = (struct ring){ir_for_arg(&loop, 0), ir_for_arg(&loop, 1)};
    v = (struct ring){ir_for_arg(&loop, 2), ir_for_arg(&loop, 3)};
    k = produce_block(r, tile, true, k, counted_row(r, tile, r->k_load, loop.iv), none);
    MlirValue before = ir_subi(b, loop.iv, one);
    v = produce_block(r, tile, false, v, counted_row(r, tile, r->v_load, before), none);
    ir_for_end(b, &loop, (MlirValue[]){k.stage, k.parity, v.stage, v.parity}, 4);
    v = (struct ring){ir_result(loop.op, 2), ir_result(loop.op, 3)};
    MlirValue last = ir_subi(b, count, one);
    v = produce_block(r, tile, false, v, counted_row(r, tile, r->v_load, last), none);
    MlirValue flipped = ir_xori(b, carried[P_QP], one);
    ir_if_else(b, &some,
               (MlirValue[]){ir_result(loop.op, 0), ir_result(loop.op, 1), v.stage, v.parity,
                             flipped},
               P_COUNT);
    ir_if_end(b, &some, carried, P_COUNT);
    for (size_t i = 0; i < P_COUNT; i++)
        carried[i] = ir_result(some.op, i);
}

/* The V block whose K went before it, if there was one. */
static struct ring produce_late_v(struct roles *r, struct scope *tile, struct ring v,
                                  MlirValue row) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[2] = {i32, i32};
    MlirValue exists = ir_cmpi(b, IR_SGE, row, number(r, 0));
    struct ir_if branch = ir_if_begin(b, exists, types, 2, true);
    struct ring next = produce_block(r, tile, false, v, row, (MlirValue){NULL});
    ir_if_else(b, &branch, (MlirValue[]){next.stage, next.parity}, 2);
    ir_if_end(b, &branch, (MlirValue[]){v.stage, v.parity}, 2);
    return (struct ring){ir_result(branch.op, 0), ir_result(branch.op, 1)};
}

/* Copies the while loop's search for the next block; `found` receives what it passes on
 * (without the softmax state); returns its condition. */
static MlirValue clone_search(struct roles *r, const struct scope *tile, const MlirValue *args,
                              MlirValue *found) {
    MlirBlock search = ir_region_block(r->loop, 0);
    struct scope scope = {ir_map_create(r->b.arena), tile->inner};
    for (size_t i = 0; i < r->state; i++)
        ir_map_set(scope.inner, mlirBlockGetArgument(search, (intptr_t)i), args[i]);
    MlirOperation op = mlirBlockGetFirstOperation(search);
    for (; !ir_is_op(op, "scf.condition"); op = mlirOperationGetNextInBlock(op))
        clone(r, &scope, op);
    for (size_t i = 0; i < r->state; i++)
        found[i] = image(&scope, ir_operand(op, i + 1));
    return image(&scope, ir_operand(op, 0));
}

/* Q; for each block that the search finds K with its entry, then V of the block before;
 * the last V; the entry -1. */
static void produce_listed(struct roles *r, struct scope *tile, MlirValue carried[P_COUNT]) {
    enum { MAX_SEARCH = 8, K_STAGE = 0, K_PARITY, V_STAGE, V_PARITY, V_ROW, OWN };
    struct ir_builder *b = &r->b;
    MlirValue values[MAX_SEARCH + OWN], found[MAX_SEARCH + OWN];
    size_t search = r->state, total = search + OWN;
    assert(search <= MAX_SEARCH);
    produce_q(r, tile, carried[P_QP]);
    for (size_t i = 0; i < search; i++)
        values[i] = image(tile, ir_operand(r->loop, i));
    for (size_t i = 0; i < 4; i++)
        values[search + i] = carried[P_KS + i];
    values[search + V_ROW] = number(r, -1);
    struct ir_while loop = ir_while_begin(b, values, total);
    for (size_t i = 0; i < total; i++)
        found[i] = values[i] = ir_while_arg(&loop, 0, i);
    MlirValue more = clone_search(r, tile, values, found);
    ir_while_do(b, &loop, more, found, total);

    struct scope body = {ir_map_create(b->arena), tile->inner};
    for (size_t i = 0; i < search; i++)
        ir_map_set(body.inner, mlirBlockGetArgument(r->loop_body, (intptr_t)i),
                   ir_while_arg(&loop, 1, i));
    for (size_t i = 0; i < total; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    struct ring k = {values[search + K_STAGE], values[search + K_PARITY]};
    struct ring v = {values[search + V_STAGE], values[search + V_PARITY]};
    MlirValue entry = slice(r, &body, ir_result(r->entry, 0));
    MlirValue row = slice(r, &body, ir_operand(r->k_load, 3));
    k = produce_block(r, &body, true, k, row, entry);
    v = produce_late_v(r, tile, v, values[search + V_ROW]);
    MlirOperation yield = mlirBlockGetTerminator(r->loop_body);
    for (size_t i = 0; i < search; i++)
        values[i] = slice(r, &body, ir_operand(yield, i));
    MlirValue own[OWN] = {k.stage, k.parity, v.stage, v.parity, row};
    for (size_t i = 0; i < OWN; i++)
        values[search + i] = own[i];
    ir_while_end(b, &loop, values, total);

    k = (struct ring){ir_result(loop.op, search), ir_result(loop.op, search + K_PARITY)};
    v = (struct ring){ir_result(loop.op, search + V_STAGE), ir_result(loop.op, search + V_PARITY)};
    v = produce_late_v(r, tile, v, ir_result(loop.op, search + V_ROW));
    struct ir_if copying = begin_copying(r);
    wait_empty(r, r->k_empty, k);
    ir_store_element(b, number(r, -1), r->entries, &k.stage, 1);
    ir_mbarrier_arrive(b, r->k_full, k.stage, true);
    end_copying(r, &copying);
    k = ring_next(r, k);
    MlirValue next[P_COUNT] = {k.stage, k.parity, v.stage, v.parity,
                               ir_xori(b, carried[P_QP], number(r, 1))};
    for (size_t i = 0; i < P_COUNT; i++)
        carried[i] = next[i];
}

static void emit_producer(struct roles *r) {
    struct ir_builder *b = &r->b;
    ir_set_max_registers(b, schedule_producer_registers(r->consumers, r->is_list), false);
    MlirValue loads = ir_cmpi(b, IR_EQ, r->warp, number(r, 0));
    r->elected = ir_elect(b);
    struct ir_if role = ir_if_begin(b, r->is_list ? loads : ir_andi(b, loads, r->elected), NULL, 0,
                                    false);
    MlirValue zero = number(r, 0);
    MlirValue carried[P_COUNT] = {zero, zero, zero, zero, zero};
    struct ir_for loop = ir_for_begin(b, r->first_tile, r->tiles, r->ctas, carried, P_COUNT);
    name_section(r, loop.op, "producer: K(0), Q, then K(j+1) and V(j)");
    struct scope tile = clone_tile_head(r, loop.iv, zero);
    for (size_t i = 0; i < P_COUNT; i++)
        carried[i] = ir_for_arg(&loop, i);
    if (r->is_list)
        produce_listed(r, &tile, carried);
    else
        produce_counted(r, &tile, carried);
    ir_for_end(b, &loop, carried, P_COUNT);
    ir_if_end(b, &role, NULL, 0);
}

/* ---- Consumer -------------------------------------------------------------------------- */

/* What a consumer carries from block to block: the accumulator without P·V of the block
 * before, whose P waits for its V. */
enum { C_ACC, C_M, C_L, C_P, C_KS, C_KP, C_VS, C_VP, C_COUNT };

static MlirValue turn_barrier(struct roles *r, int ahead) {
    struct ir_builder *b = &r->b;
    MlirValue turn = ir_addi(b, r->consumer, number(r, ahead));
    MlirValue wraps = ir_cmpi(b, IR_SGE, turn, number(r, r->consumers));
    turn = ir_select(b, wraps, ir_subi(b, turn, number(r, r->consumers)), turn);
    return ir_addi(b, turn, number(r, 1));
}

/* O += P·V of the block before, in flight. */
static MlirValue issue_pv(struct roles *r, MlirValue p, MlirValue acc, struct ring v) {
    struct ir_builder *b = &r->b;
    ir_mbarrier_wait(b, r->v_full, v.stage, v.parity);
    acc = ir_wgmma(b, p, ir_stage(b, r->v_tiles, v.stage), acc, false);
    ir_wgmma_commit(b);
    return acc;
}

static MlirValue finish_pv(struct roles *r, MlirValue acc, struct ring v) {
    acc = ir_wgmma_wait(&r->b, acc, 0);
    ir_mbarrier_arrive(&r->b, r->v_empty, v.stage, false);
    return acc;
}

/* S = Q·K^T, and P·V of the block before while it runs; waits for S and gives K back.
 * `in_flight` receives the accumulator (null for the first block). */
static MlirValue issue_qk(struct roles *r, const MlirValue carried[C_COUNT], bool is_first,
                          MlirValue *in_flight) {
    struct ir_builder *b = &r->b;
    struct ring k = {carried[C_KS], carried[C_KP]}, v = {carried[C_VS], carried[C_VP]};
    if (!r->is_list)
        ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    if (!is_first && r->pingpong)
        ir_bar_sync(b, turn_barrier(r, 0), 256);
    MlirValue q = ir_stage(b, r->q_tiles, r->consumer);
    MlirValue zero = ir_splat(b, mlirValueGetType(ir_result(r->qk, 0)), 0);
    ir_wgmma_fence(b);
    MlirValue s = ir_wgmma(b, q, ir_stage(b, r->k_tiles, k.stage), zero, true);
    ir_wgmma_commit(b);
    if (!is_first) {
        *in_flight = issue_pv(r, carried[C_P], carried[C_ACC], v);
        if (r->pingpong)
            ir_bar_arrive(b, turn_barrier(r, 1), 256);
    }
    s = ir_wgmma_wait(b, s, is_first ? 0 : 1);
    ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
    return s;
}

/* List masks: true for ops that only find blocks, which is the producer's work.  Their
 * results are entered into `found`. */
static bool is_search(struct roles *r, struct ir_map *found, MlirOperation op) {
    bool result = false;
    for (size_t i = 0; r->is_list && i < ir_operand_count(op); i++) {
        MlirValue value = ir_operand(op, i);
        bool state = mlirValueIsABlockArgument(value) &&
                     mlirBlockEqual(mlirBlockArgumentGetOwner(value), r->loop_body) &&
                     (size_t)mlirBlockArgumentGetArgNumber(value) < r->state;
        result = result || state || !mlirValueEqual(ir_map_get(found, value), value);
    }
    for (size_t i = 0; result && i < ir_result_count(op); i++)
        if (!mlirOperationEqual(op, r->entry))
            ir_map_set(found, ir_result(op, i), ir_operand(op, 0));
    return result;
}

/* One block, `scope` having the images of the loop counter or entry. */
static void consume_block(struct roles *r, struct scope *scope, MlirValue carried[C_COUNT],
                          bool is_first) {
    MlirValue in_flight = {NULL};
    MlirValue old_acc = mlirBlockGetArgument(
        r->loop_body, (intptr_t)(r->state + STATE_ACC + !r->is_list));
    ir_map_set(scope->inner, mlirBlockGetArgument(r->loop_body,
                                                  (intptr_t)(r->state + STATE_M + !r->is_list)),
               carried[C_M]);
    ir_map_set(scope->inner, mlirBlockGetArgument(r->loop_body,
                                                  (intptr_t)(r->state + STATE_L + !r->is_list)),
               carried[C_L]);
    if (is_first)
        ir_map_set(scope->inner, ir_operand(r->pv, 2), carried[C_ACC]);
    struct ir_map *found = ir_map_create(r->b.arena);
    MlirOperation op = mlirBlockGetFirstOperation(r->loop_body);
    for (; !mlirOperationEqual(op, r->pv); op = mlirOperationGetNextInBlock(op)) {
        bool is_rescale = !mlirOperationIsNull(r->rescale) && mlirOperationEqual(op, r->rescale);
        if (ir_is_op(op, "attn.load") || (is_first && is_rescale) ||
            is_search(r, found, op))
            continue;
        if (mlirOperationEqual(op, r->exponent) && !is_first) {
            struct ring v = {carried[C_VS], carried[C_VP]};
            ir_map_set(scope->inner, old_acc, finish_pv(r, in_flight, v));
            v = ring_next(r, v);
            carried[C_VS] = v.stage, carried[C_VP] = v.parity;
        }
        if (mlirOperationEqual(op, r->qk)) {
            MlirValue s = issue_qk(r, carried, is_first, &in_flight);
            ir_map_set(scope->inner, ir_result(op, 0), s);
            struct ring k = ring_next(r, (struct ring){carried[C_KS], carried[C_KP]});
            carried[C_KS] = k.stage, carried[C_KP] = k.parity;
        } else {
            clone(r, scope, op);
        }
    }
    MlirOperation yield = mlirBlockGetTerminator(r->loop_body);
    carried[C_ACC] = image(scope, ir_operand(r->pv, 2));
    carried[C_P] = image(scope, ir_operand(r->pv, 0));
    carried[C_M] = image(scope, ir_operand(yield, r->state + STATE_M));
    carried[C_L] = image(scope, ir_operand(yield, r->state + STATE_L));
}

/* The last P·V. */
static void consume_tail(struct roles *r, MlirValue carried[C_COUNT]) {
    struct ring v = {carried[C_VS], carried[C_VP]};
    ir_mbarrier_arrive(&r->b, r->q_empty, r->consumer, false);
    ir_mbarrier_wait(&r->b, r->v_full, v.stage, v.parity);
    ir_wgmma_fence(&r->b);
    MlirValue acc = issue_pv(r, carried[C_P], carried[C_ACC], v);
    carried[C_ACC] = finish_pv(r, acc, v);
    v = ring_next(r, v);
    carried[C_VS] = v.stage, carried[C_VP] = v.parity;
}

static const char mainloop_title[] = "mainloop: S = Q K(j)^T, O += P V(j-1)";

static void consume_counted(struct roles *r, const struct scope *tile,
                            MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue count = image(tile, ir_operand(r->loop, 1)), iv = mlirBlockGetArgument(r->loop_body, 0);
    struct scope first = {ir_map_create(b->arena), tile->inner};
    ir_map_set(first.inner, iv, number(r, 0));
    consume_block(r, &first, carried, true);
    struct ir_for loop = ir_for_begin(b, number(r, 1), count, number(r, 1), carried, C_COUNT);
    name_section(r, loop.op, mainloop_title);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_for_arg(&loop, i);
    struct scope block = {ir_map_create(b->arena), tile->inner};
    ir_map_set(block.inner, iv, loop.iv);
    consume_block(r, &block, carried, false);
    ir_for_end(b, &loop, carried, C_COUNT);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
}

/* Waits for the next entry of the list; negative at the end. */
static MlirValue next_entry(struct roles *r, const MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    ir_mbarrier_wait(b, r->k_full, carried[C_KS], carried[C_KP]);
    return ir_uniform(b, ir_load_element(b, r->entries, &carried[C_KS], 1));
}

static void consume_listed(struct roles *r, const struct scope *tile, MlirValue entry,
                           MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    struct scope first = {ir_map_create(b->arena), tile->inner};
    ir_map_set(first.inner, ir_result(r->entry, 0), entry);
    consume_block(r, &first, carried, true);
    MlirValue values[C_COUNT + 1];
    for (size_t i = 0; i < C_COUNT; i++)
        values[i] = carried[i];
    values[C_COUNT] = entry;
    struct ir_while loop = ir_while_begin(b, values, C_COUNT + 1);
    name_section(r, loop.op, mainloop_title);
    for (size_t i = 0; i < C_COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    values[C_COUNT] = next_entry(r, values);
    MlirValue more = ir_cmpi(b, IR_SGE, values[C_COUNT], number(r, 0));
    ir_while_do(b, &loop, more, values, C_COUNT + 1);
    for (size_t i = 0; i < C_COUNT; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    struct scope block = {ir_map_create(b->arena), tile->inner};
    ir_map_set(block.inner, ir_result(r->entry, 0), ir_while_arg(&loop, 1, C_COUNT));
    consume_block(r, &block, values, false);
    values[C_COUNT] = ir_while_arg(&loop, 1, C_COUNT);
    ir_while_end(b, &loop, values, C_COUNT + 1);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
}

enum { T_ACC, T_M, T_L, T_KS, T_KP, T_VS, T_VP, T_QP, T_COUNT }; /* results of a tile */

/* All blocks of a tile; `carried` has the ring positions and gets the results. */
static void consume_blocks(struct roles *r, const struct scope *tile,
                           MlirValue carried[T_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirType types[T_COUNT];
    MlirValue start[C_COUNT] = {{NULL}};
    for (size_t i = 0; i < 3; i++)
        carried[T_ACC + i] = start[C_ACC + i] =
            image(tile, ir_operand(r->loop, r->state + i + (r->is_list ? 0 : 3)));
    for (size_t i = 0; i < T_COUNT; i++)
        types[i] = mlirValueGetType(carried[i]);
    for (size_t i = 0; i < 4; i++)
        start[C_KS + i] = carried[T_KS + i];
    MlirValue entry = {NULL}, some;
    if (r->is_list) {
        ir_mbarrier_wait(b, r->q_full, r->consumer, carried[T_QP]);
        entry = next_entry(r, start);
        some = ir_cmpi(b, IR_SGE, entry, number(r, 0));
    } else {
        some = ir_cmpi(b, IR_SGT, image(tile, ir_operand(r->loop, 1)), number(r, 0));
    }
    MlirValue flipped = ir_xori(b, carried[T_QP], number(r, 1));
    struct ir_if branch = ir_if_begin(b, some, types, T_COUNT, true);
    if (r->is_list) {
        consume_listed(r, tile, entry, start);
    } else {
        ir_mbarrier_wait(b, r->q_full, r->consumer, carried[T_QP]);
        consume_counted(r, tile, start);
    }
    consume_tail(r, start);
    MlirValue done[T_COUNT] = {start[C_ACC], start[C_M],  start[C_L],  start[C_KS],
                               start[C_KP],  start[C_VS], start[C_VP], flipped};
    ir_if_else(b, &branch, done, T_COUNT);
    if (r->is_list) {
        ir_mbarrier_arrive(b, r->q_empty, r->consumer, false);
        carried[T_QP] = flipped;
    }
    ir_if_end(b, &branch, carried, T_COUNT);
    for (size_t i = 0; i < T_COUNT; i++)
        carried[i] = ir_result(branch.op, i);
    if (r->is_list) { /* the slot of the entry -1 */
        struct ring k = {carried[T_KS], carried[T_KP]};
        ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
        k = ring_next(r, k);
        carried[T_KS] = k.stage, carried[T_KP] = k.parity;
    }
}

static void emit_consumer(struct roles *r, MlirValue warpgroup) {
    struct ir_builder *b = &r->b;
    enum { RINGS = T_COUNT - T_KS };
    ir_set_max_registers(b, schedule_consumer_registers(r->consumers, r->is_list), true);
    r->consumer = ir_subi(b, warpgroup, number(r, 1));
    if (r->pingpong) { /* the first consumer goes first */
        MlirValue last = ir_cmpi(b, IR_EQ, r->consumer, number(r, r->consumers - 1));
        struct ir_if branch = ir_if_begin(b, last, NULL, 0, false);
        ir_bar_arrive(b, number(r, 1), 256);
        ir_if_end(b, &branch, NULL, 0);
    }
    MlirValue zero = number(r, 0), carried[T_COUNT];
    MlirValue inits[RINGS] = {zero, zero, zero, zero, zero};
    struct ir_for loop = ir_for_begin(b, r->first_tile, r->tiles, r->ctas, inits, RINGS);
    name_section(r, loop.op, "consumer: its rows of each tile");
    struct scope tile = clone_tile_head(r, loop.iv, r->consumer);
    for (size_t i = 0; i < RINGS; i++)
        carried[T_KS + i] = ir_for_arg(&loop, i);
    consume_blocks(r, &tile, carried);
    size_t results = r->is_list ? r->state : 0;
    for (size_t i = 0; i < 3; i++)
        ir_map_set(tile.inner, ir_result(r->loop, results + i), carried[T_ACC + i]);
    for (size_t i = 0; i < r->after.count; i++)
        clone(r, &tile, r->after.data[i]);
    ir_for_end(b, &loop, carried + T_KS, RINGS);
}

/* ---- Taking the kernel apart ----------------------------------------------------------- */

static bool refuse(struct diag_sink *diags, const char *what) {
    diag_error(diags, SOURCE_NOWHERE, "pipeline: %s", what);
    return false;
}

static MlirOperation only_dot(MlirOperation load, bool transposed) {
    MlirOpOperand use = mlirValueGetFirstUse(ir_result(load, 0));
    MlirOperation user = mlirOpOperandIsNull(use) ? load : mlirOpOperandGetOwner(use);
    bool fits = ir_is_op(user, "attn.dot") && ir_has_attr(user, "transpose_b") == transposed;
    return fits ? user : (MlirOperation){NULL};
}

/* Loads, dots and the entry in the body of the key loop. */
static bool find_body(struct roles *r, struct diag_sink *diags) {
    MlirOperation op = mlirBlockGetFirstOperation(r->loop_body);
    for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op)) {
        if (ir_has_attr(op, "attn.entry"))
            r->entry = op;
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
    if (r->is_list && mlirOperationIsNull(r->entry))
        return refuse(diags, "a loop over listed blocks needs an op with attn.entry");
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

static bool take_apart(struct roles *r, struct diag_sink *diags) {
    MlirOperation op = mlirBlockGetFirstOperation(ir_func_body(r->func));
    for (; !ir_is_op(op, "func.return"); op = mlirOperationGetNextInBlock(op)) {
        bool has_state = ir_result_count(op) >= 3 &&
                         (ir_is_op(op, "scf.for") || ir_is_op(op, "scf.while")) &&
                         ir_is_tile(mlirValueGetType(ir_result(op, ir_result_count(op) - 3)));
        if (has_state) {
            r->loop = op;
            continue;
        }
        if (ir_is_op(op, "attn.load"))
            r->q_load = op;
        if (mlirOperationIsNull(r->loop))
            vec_push(r->b.arena, &r->before, op);
        else
            vec_push(r->b.arena, &r->after, op);
    }
    if (mlirOperationIsNull(r->loop) || mlirOperationIsNull(r->q_load))
        return refuse(diags, "a kernel needs one load of Q and one key loop");
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

/* ---- The new kernel ----------------------------------------------------------------------- */

static MlirValue size_arg(struct roles *r, const char *kind) {
    size_t i = 0;
    if (!ir_func_find_arg(r->func, kind, &i))
        ir_ice(r->func, "a kernel needs every size as an argument");
    return ir_func_arg(r->func, i);
}

/* Number of tiles, and where a persistent CTA starts and how far it steps. */
static void emit_tile_range(struct roles *r) {
    struct ir_builder *b = &r->b;
    MlirValue rows = ir_addi(b, size_arg(r, "size:q_len"), number(r, r->tile_m - 1));
    MlirValue per_head = ir_divui(b, rows, number(r, r->tile_m));
    MlirValue heads = ir_muli(b, size_arg(r, "size:heads"), size_arg(r, "size:batch"));
    r->tiles = ir_muli(b, per_head, heads);
    r->first_tile = ir_block_id(b);
    r->ctas = ir_grid_dim(b);
}

static void set_launch(struct roles *r) {
    const char *words[] = {"sm_count", "q_len", arena_printf(r->b.arena, "%d", r->tile_m),
                           "ceildiv",  "heads", "mul", "batch", "mul", "min"};
    ir_set_kernel_grid(r->func, words, sizeof words / sizeof words[0]);
    ir_set_kernel_warps(r->func, 4 * (r->consumers + 1));
    ir_set_attr(r->func, "attn.row_warps", ir_attr_i32(r->b.context, 4));
    ir_set_kernel_shared_bytes(r->func, r->shared_bytes);
}

bool pipeline_sm90(struct pass_ctx *ctx, MlirOperation func) {
    struct roles r = {.func = func};
    int tile_n;
    ir_builder_init(&r.b, mlirOperationGetContext(func), ctx->scratch);
    r.stages = (int)ir_int_attr(func, "attn.stages", 2);
    r.consumers = (int)ir_int_attr(func, "attn.consumers", 2);
    r.pingpong = ir_has_attr(func, "attn.pingpong") && r.consumers > 1;
    if (!ir_kernel_tile(func, &r.tile_m, &tile_n) || !take_apart(&r, ctx->diags))
        return false;
    struct ir_builder *b = &r.b;
    MlirOperation end = mlirBlockGetTerminator(ir_func_body(func));
    ir_before(b, end);
    b->location = mlirOperationGetLocation(r.q_load);
    emit_shared(&r);
    emit_tile_range(&r);
    r.warp = ir_uniform(b, ir_subgroup_id(b));
    MlirValue warpgroup = ir_shrui(b, r.warp, number(&r, 2));
    MlirValue is_producer = ir_cmpi(b, IR_EQ, warpgroup, number(&r, 0));
    struct ir_if roles = ir_if_begin(b, is_producer, NULL, 0, true);
    emit_producer(&r);
    ir_if_else(b, &roles, NULL, 0);
    emit_consumer(&r, warpgroup);
    ir_if_end(b, &roles, NULL, 0);
    erase_old(&r);
    ir_erase_dead(ir_func_body(func));
    set_launch(&r);
    return true;
}
