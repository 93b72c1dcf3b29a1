/* pipeline, sm_90a: a consumer, a warpgroup that computes its 64 rows of every
 * tile.
 *
 * The first block of a tile is peeled off: its Q·K^T runs alone.  Each pass of
 * the loop then issues Q·K(j)^T and P·V(j-1) together, so that a tensor core
 * always has work while exponentials run; the last P·V follows the loop. */
#include "passes/pipeline-sm90-roles.h"
#include "passes/schedule-sm90.h"

/* What a consumer carries from block to block: the accumulator without P·V of
 * the block before, whose P waits for its V. */
enum { C_ACC, C_M, C_L, C_P, C_KS, C_KP, C_VS, C_VP, C_COUNT };

MlirValue role_turn_barrier(struct roles *r, int ahead) {
    struct ir_builder *b = &r->b;
    MlirValue turn = ir_addi(b, r->consumer, role_number(r, ahead));
    MlirValue wraps = ir_cmpi(b, IR_SGE, turn, role_number(r, r->consumers));
    turn = ir_select(b, wraps, ir_subi(b, turn, role_number(r, r->consumers)),
                     turn);
    return ir_addi(b, turn, role_number(r, 1));
}

/* O += P·V of the block before, in flight. */
static MlirValue issue_pv(struct roles *r, MlirValue p, MlirValue acc,
                          struct ring v) {
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

/* S = Q·K^T, and P·V of the block before while it runs; waits for S and gives K
 * back. `in_flight` receives the accumulator (null for the first block). */
static MlirValue issue_qk(struct roles *r, const MlirValue carried[C_COUNT],
                          bool is_first, MlirValue *in_flight) {
    struct ir_builder *b = &r->b;
    struct ring k = {carried[C_KS], carried[C_KP]},
                v = {carried[C_VS], carried[C_VP]};
    if (!r->is_list)
        ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    if (!is_first && r->pingpong)
        ir_bar_sync(b, role_turn_barrier(r, 0), 256);
    MlirValue q = ir_stage(b, r->q_tiles, r->q_slot);
    MlirValue zero = ir_splat(b, mlirValueGetType(ir_result(r->qk, 0)), 0);
    ir_wgmma_fence(b);
    MlirValue s = ir_wgmma(b, q, ir_stage(b, r->k_tiles, k.stage), zero, true);
    ir_wgmma_commit(b);
    if (!is_first) {
        *in_flight = issue_pv(r, carried[C_P], carried[C_ACC], v);
        if (r->pingpong)
            ir_bar_arrive(b, role_turn_barrier(r, 1), 256);
    }
    s = ir_wgmma_wait(b, s, is_first ? 0 : 1);
    ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
    return s;
}

/* List masks: true for ops that only find blocks, which is the producer's work.
 * Their results are entered into `found`. */
static bool is_search(struct roles *r, struct ir_map *found, MlirOperation op) {
    bool result = false;
    for (size_t i = 0; r->is_list && i < ir_operand_count(op); i++) {
        MlirValue value = ir_operand(op, i);
        bool state =
            mlirValueIsABlockArgument(value) &&
            mlirBlockEqual(mlirBlockArgumentGetOwner(value), r->loop_body) &&
            (size_t)mlirBlockArgumentGetArgNumber(value) < r->state;
        result =
            result || state || !mlirValueEqual(ir_map_get(found, value), value);
    }
    for (size_t i = 0; result && i < ir_result_count(op); i++)
        if (!mlirOperationEqual(op, r->entry))
            ir_map_set(found, ir_result(op, i), ir_operand(op, 0));
    return result;
}

/* One block, `scope` having the images of the loop counter or entry. */
static void consume_block(struct roles *r, struct scope *scope,
                          MlirValue carried[C_COUNT], bool is_first) {
    MlirValue in_flight = {NULL};
    MlirValue old_acc = mlirBlockGetArgument(
        r->loop_body, (intptr_t)(r->state + STATE_ACC + !r->is_list));
    ir_map_set(scope->inner,
               mlirBlockGetArgument(
                   r->loop_body, (intptr_t)(r->state + STATE_M + !r->is_list)),
               carried[C_M]);
    ir_map_set(scope->inner,
               mlirBlockGetArgument(
                   r->loop_body, (intptr_t)(r->state + STATE_L + !r->is_list)),
               carried[C_L]);
    if (is_first)
        ir_map_set(scope->inner, ir_operand(r->pv, 2), carried[C_ACC]);
    struct ir_map *found = ir_map_create(r->b.arena);
    MlirOperation op = mlirBlockGetFirstOperation(r->loop_body);
    for (; !mlirOperationEqual(op, r->pv);
         op = mlirOperationGetNextInBlock(op)) {
        bool is_rescale = !mlirOperationIsNull(r->rescale) &&
                          mlirOperationEqual(op, r->rescale);
        if (ir_is_op(op, "attn.load") || (is_first && is_rescale) ||
            is_search(r, found, op))
            continue;
        if (mlirOperationEqual(op, r->exponent) && !is_first) {
            struct ring v = {carried[C_VS], carried[C_VP]};
            ir_map_set(scope->inner, old_acc, finish_pv(r, in_flight, v));
            v = role_ring_next(r, v, r->stages);
            carried[C_VS] = v.stage, carried[C_VP] = v.parity;
        }
        if (mlirOperationEqual(op, r->qk)) {
            MlirValue s = issue_qk(r, carried, is_first, &in_flight);
            ir_map_set(scope->inner, ir_result(op, 0), s);
            struct ring k = role_ring_next(
                r, (struct ring){carried[C_KS], carried[C_KP]}, r->stages);
            carried[C_KS] = k.stage, carried[C_KP] = k.parity;
        } else {
            role_clone(r, scope, op);
        }
    }
    MlirOperation yield = mlirBlockGetTerminator(r->loop_body);
    carried[C_ACC] = role_image(scope, ir_operand(r->pv, 2));
    carried[C_P] = role_image(scope, ir_operand(r->pv, 0));
    carried[C_M] = role_image(scope, ir_operand(yield, r->state + STATE_M));
    carried[C_L] = role_image(scope, ir_operand(yield, r->state + STATE_L));
}

/* The last P·V. */
static void consume_tail(struct roles *r, MlirValue carried[C_COUNT]) {
    struct ring v = {carried[C_VS], carried[C_VP]};
    ir_mbarrier_arrive(&r->b, r->q_empty, r->q_slot, false);
    ir_mbarrier_wait(&r->b, r->v_full, v.stage, v.parity);
    ir_wgmma_fence(&r->b);
    MlirValue acc = issue_pv(r, carried[C_P], carried[C_ACC], v);
    carried[C_ACC] = finish_pv(r, acc, v);
    v = role_ring_next(r, v, r->stages);
    carried[C_VS] = v.stage, carried[C_VP] = v.parity;
}

static const char mainloop_title[] = "mainloop: S = Q K(j)^T, O += P V(j-1)";

/* Passes begin <= i < end of the key loop, the first of them peeled off. */
static void consume_counted(struct roles *r, const struct scope *tile,
                            MlirValue begin, MlirValue end,
                            MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue one = role_number(r, 1);
    MlirValue iv = mlirBlockGetArgument(r->loop_body, 0);
    struct scope first = {ir_map_create(b->arena), tile->inner};
    ir_map_set(first.inner, iv, begin);
    consume_block(r, &first, carried, true);
    struct ir_for loop = ir_for_begin(b, ir_addi(b, begin, one), end, one,
                                      carried, C_COUNT);
    role_name_section(r, loop.op, mainloop_title);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_for_arg(&loop, i);
    struct scope block = {ir_map_create(b->arena), tile->inner};
    ir_map_set(block.inner, iv, loop.iv);
    consume_block(r, &block, carried, false);
    ir_for_end(b, &loop, carried, C_COUNT);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
}

/* Waits for the next word of the list: entry·2 + last, negative for a tile
 * without blocks. */
static MlirValue next_word(struct roles *r, const MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    ir_mbarrier_wait(b, r->k_full, carried[C_KS], carried[C_KP]);
    return ir_uniform(b, ir_load_element(b, r->entries, &carried[C_KS], 1));
}

static void consume_listed(struct roles *r, const struct scope *tile,
                           MlirValue word, MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue one = role_number(r, 1);
    struct scope first = {ir_map_create(b->arena), tile->inner};
    ir_map_set(first.inner, ir_result(r->entry, 0), ir_shrui(b, word, one));
    consume_block(r, &first, carried, true);
    MlirValue values[C_COUNT + 1];
    for (size_t i = 0; i < C_COUNT; i++)
        values[i] = carried[i];
    values[C_COUNT] = word;
    struct ir_while loop = ir_while_begin(b, values, C_COUNT + 1);
    role_name_section(r, loop.op, mainloop_title);
    for (size_t i = 0; i <= C_COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue last = ir_andi(b, values[C_COUNT], one);
    MlirValue more = ir_cmpi(b, IR_EQ, last, role_number(r, 0));
    ir_while_do(b, &loop, more, values, C_COUNT + 1);
    for (size_t i = 0; i < C_COUNT; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    struct scope block = {ir_map_create(b->arena), tile->inner};
    values[C_COUNT] = next_word(r, values);
    ir_map_set(block.inner, ir_result(r->entry, 0),
               ir_shrui(b, values[C_COUNT], one));
    consume_block(r, &block, values, false);
    ir_while_end(b, &loop, values, C_COUNT + 1);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
}

enum {
    T_ACC,
    T_M,
    T_L,
    T_KS,
    T_KP,
    T_VS,
    T_VP,
    T_QS,
    T_QP,
    T_COUNT
}; /* results of a tile */

/* All blocks of a tile; `carried` has the ring positions and gets the results.
 */
static void consume_blocks(struct roles *r, const struct scope *tile,
                           MlirValue carried[T_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirType types[T_COUNT];
    MlirValue start[C_COUNT] = {{NULL}};
    for (size_t i = 0; i < 3; i++)
        carried[T_ACC + i] = start[C_ACC + i] = role_image(
            tile, ir_operand(r->loop, r->state + i + (r->is_list ? 0 : 3)));
    for (size_t i = 0; i < T_COUNT; i++)
        types[i] = mlirValueGetType(carried[i]);
    for (size_t i = 0; i < 4; i++)
        start[C_KS + i] = carried[T_KS + i];
    bool has_own = !mlirOperationIsNull(r->own);
    MlirValue word = {NULL}, some, zero = role_number(r, 0);
    MlirValue count = zero, begin = zero;
    if (!r->is_list)
        count = role_image(tile, ir_operand(r->loop, 1));
    MlirValue end = count;
    if (has_own) {
        begin = role_image(tile, ir_operand(r->own, 0));
        end = role_image(tile, ir_operand(r->own, 1));
    }
    if (r->is_list) {
        word = next_word(r, start);
        some = ir_cmpi(b, IR_SGE, word, role_number(r, 0));
    } else {
        some = ir_cmpi(b, IR_SGT, end, begin);
    }
    struct ring q = {carried[T_QS], carried[T_QP]};
    q = role_ring_next(r, q, r->q_stages);
    struct ir_if branch = ir_if_begin(b, some, types, T_COUNT, true);
    if (has_own)
        role_skip_blocks(r, zero, begin, start + C_KS);
    ir_mbarrier_wait(b, r->q_full, r->q_slot, carried[T_QP]);
    if (r->is_list)
        consume_listed(r, tile, word, start);
    else
        consume_counted(r, tile, begin, end, start);
    consume_tail(r, start);
    if (has_own)
        role_skip_blocks(r, end, count, start + C_KS);
    MlirValue done[T_COUNT] = {start[C_ACC], start[C_M],  start[C_L],
                               start[C_KS],  start[C_KP], start[C_VS],
                               start[C_VP],  q.stage,     q.parity};
    ir_if_else(b, &branch, done, T_COUNT);
    if (r->is_list) { /* the slot of the word -1 */
        struct ring k = {carried[T_KS], carried[T_KP]};
        ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
        k = role_ring_next(r, k, r->stages);
        carried[T_KS] = k.stage, carried[T_KP] = k.parity;
    }
    if (has_own) {
        struct ring old = {carried[T_QS], carried[T_QP]};
        MlirValue any = ir_cmpi(b, IR_SGT, count, zero);
        role_skip_tile(r, count, old, carried + T_KS);
        carried[T_QS] = ir_select(b, any, q.stage, old.stage);
        carried[T_QP] = ir_select(b, any, q.parity, old.parity);
    }
    ir_if_end(b, &branch, carried, T_COUNT);
    for (size_t i = 0; i < T_COUNT; i++)
        carried[i] = ir_result(branch.op, i);
}

void role_consumer(struct roles *r, MlirValue warpgroup) {
    struct ir_builder *b = &r->b;
    enum { RINGS = T_COUNT - T_KS };
    ir_set_max_registers(
        b, schedule_consumer_registers(r->consumers, r->is_list), true);
    r->consumer = ir_subi(b, warpgroup, role_number(r, 1));
    if (r->pingpong) { /* the first consumer goes first */
        MlirValue last =
            ir_cmpi(b, IR_EQ, r->consumer, role_number(r, r->consumers - 1));
        struct ir_if branch = ir_if_begin(b, last, NULL, 0, false);
        ir_bar_arrive(b, role_number(r, 1), 256);
        ir_if_end(b, &branch, NULL, 0);
    }
    MlirValue zero = role_number(r, 0), carried[T_COUNT];
    MlirValue inits[RINGS] = {zero, zero, zero, zero, zero, zero};
    struct tile_loop loop = role_tiles_begin(r, inits, RINGS, false,
                                             "consumer: its rows of each tile");
    struct scope tile = role_tiles_head(r, &loop, r->consumer, false);
    for (size_t i = 0; i < RINGS; i++)
        carried[T_KS + i] = role_tiles_arg(&loop, i);
    r->q_slot = role_q_slot(r, carried[T_QS], r->consumer);
    consume_blocks(r, &tile, carried);
    size_t results = r->is_list ? r->state : 0;
    for (size_t i = 0; i < 3; i++)
        ir_map_set(tile.inner, ir_result(r->loop, results + i),
                   carried[T_ACC + i]);
    for (size_t i = 0; i < r->after.count; i++)
        role_clone(r, &tile, r->after.data[i]);
    role_tiles_end(r, &loop, carried + T_KS, false);
}
