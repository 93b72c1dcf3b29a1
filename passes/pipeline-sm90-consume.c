/* pipeline, sm_90a: a consumer, a warpgroup that computes its 64 rows of every
 * tile.
 *
 * The first block of a tile is peeled off: its Q·K^T runs while O of the tile
 * before is written.  Each pass of the loop then issues Q·K(j)^T and P·V(j-1)
 * together, so that a tensor core always has work while exponentials run; the
 * last P·V follows the loop.
 *
 *     S = Q·K(0)^T of the first tile
 *     for each tile: softmax; loop; last P·V
 *                    which tile is next; its S = Q·K(0)^T, meanwhile O; wait
 */
#include "passes/pipeline-sm90-roles.h"
#include "passes/schedule-sm90.h"

/* What a consumer carries from block to block: the accumulator without P·V of
 * the block before, whose P waits for its V.  The rings of K and V have as many
 * stages and blocks: V(j-1) lies where K(j-1) lay. */
enum { C_ACC, C_M, C_L, C_P, C_KS, C_KP, C_VS, C_VP, C_COUNT };

/* Named barrier of the consumer `ahead` turns after this one. */
static MlirValue turn_barrier(struct roles *r, int ahead) {
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

/* S = Q·K^T in flight: the slot of Q, the position of K. */
static MlirValue start_qk(struct roles *r, MlirValue q_slot, struct ring k) {
    struct ir_builder *b = &r->b;
    MlirValue q = ir_stage(b, r->q_tiles, q_slot);
    MlirValue zero = ir_splat(b, mlirValueGetType(ir_result(r->qk, 0)), 0);
    ir_wgmma_fence(b);
    MlirValue s = ir_wgmma(b, q, ir_stage(b, r->k_tiles, k.stage), zero, true);
    ir_wgmma_commit(b);
    return s;
}

/* S = Q·K^T, and P·V of the block before while it runs; waits for S and gives K
 * back. `in_flight` receives the accumulator. */
static MlirValue issue_qk(struct roles *r, const MlirValue carried[C_COUNT],
                          MlirValue *in_flight) {
    struct ir_builder *b = &r->b;
    struct ring k = {carried[C_KS], carried[C_KP]},
                v = {carried[C_VS], carried[C_VP]};
    if (!r->is_list)
        ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    if (r->pingpong)
        ir_bar_sync(b, r->own_turn, 256);
    MlirValue s = start_qk(r, r->q_slot, k);
    *in_flight = issue_pv(r, carried[C_P], carried[C_ACC], v);
    if (r->pingpong)
        ir_bar_arrive(b, r->next_turn, 256);
    s = ir_wgmma_wait(b, s, 1);
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

/* Copies one arm of an scf.if without the branch. */
static void take_arm(struct roles *r, struct scope *scope, MlirOperation op,
                     size_t arm) {
    MlirOperation inner = mlirBlockGetFirstOperation(ir_region_block(op, arm));
    for (; !ir_is_op(inner, "scf.yield");
         inner = mlirOperationGetNextInBlock(inner))
        role_clone(r, scope, inner);
    for (size_t i = 0; i < ir_result_count(op); i++)
        ir_map_set(scope->inner, ir_result(op, i),
                   role_image(scope, ir_operand(inner, i)));
}

/* Branches whose condition is known: before the first block every row's
 * reference is the lowest, so the vote of `rescale` says yes; behind it no
 * block crosses the end of the keys (attn.first_pass).  False for other ops. */
static bool take_known_arm(struct roles *r, struct scope *scope,
                           MlirOperation op, bool is_first) {
    MlirOperation condition = {NULL};
    if (ir_is_op(op, "scf.if"))
        condition = ir_def(ir_operand(op, 0));
    if (mlirOperationIsNull(condition))
        return false;
    bool votes = ir_is_op(condition, "attn.vote_any");
    bool crosses = ir_has_attr(condition, "attn.first_pass");
    if (!(is_first ? votes : crosses))
        return false;
    take_arm(r, scope, op, is_first ? 0 : 1);
    return true;
}

/* Behind the first pass: a condition that is false or'ed with another one. */
static bool take_other_condition(struct scope *scope, MlirOperation op) {
    if (!ir_is_op(op, "arith.ori"))
        return false;
    for (size_t i = 0; i < 2; i++) {
        MlirOperation side = ir_def(ir_operand(op, i));
        if (mlirOperationIsNull(side) || !ir_has_attr(side, "attn.first_pass"))
            continue;
        ir_map_set(scope->inner, ir_result(op, 0),
                   role_image(scope, ir_operand(op, 1 - i)));
        return true;
    }
    return false;
}

/* One block, `scope` having the images of the loop counter or entry.  `first`:
 * the scores of a tile's first block; null for others. */
static void consume_block(struct roles *r, struct scope *scope,
                          MlirValue carried[C_COUNT], MlirValue first) {
    bool is_first = !mlirValueIsNull(first);
    MlirValue in_flight = {NULL};
    struct ring own = {carried[C_KS], carried[C_KP]}; /* of this block */
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
            is_search(r, found, op) ||
            (is_first && ir_is_op(op, "attn.vote_any")) ||
            take_known_arm(r, scope, op, is_first) ||
            (!is_first && take_other_condition(scope, op)))
            continue;
        if (mlirOperationEqual(op, r->exponent) && !is_first) {
            struct ring v = {carried[C_VS], carried[C_VP]};
            ir_map_set(scope->inner, old_acc, finish_pv(r, in_flight, v));
            carried[C_VS] = own.stage, carried[C_VP] = own.parity;
        }
        if (is_first && mlirOperationEqual(op, r->qk)) {
            ir_map_set(scope->inner, ir_result(op, 0), first);
        } else if (mlirOperationEqual(op, r->qk)) {
            MlirValue s = issue_qk(r, carried, &in_flight);
            ir_map_set(scope->inner, ir_result(op, 0), s);
            struct ring k = role_ring_next(r, own, r->stages);
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

/* Which blocks of a tile are a consumer's own. */
struct extent {
    MlirValue some;              /* i1: any */
    MlirValue word;              /* list: of the first one; else null */
    MlirValue begin, end, count; /* counted: own passes of all passes */
};

static const char mainloop_title[] = "mainloop: S = Q K(j)^T, O += P V(j-1)";

/* Passes begin <= i < end of the key loop, the first of them peeled off. */
static void consume_counted(struct roles *r, const struct scope *tile,
                            const struct extent *extent, MlirValue s,
                            MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue one = role_number(r, 1);
    MlirValue iv = mlirBlockGetArgument(r->loop_body, 0);
    struct scope first = {ir_map_create(b->arena), tile->inner};
    ir_map_set(first.inner, iv, extent->begin);
    consume_block(r, &first, carried, s);
    struct ir_for loop = ir_for_begin(b, ir_addi(b, extent->begin, one),
                                      extent->end, one, carried, C_COUNT);
    role_name_section(r, loop.op, mainloop_title);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_for_arg(&loop, i);
    struct scope block = {ir_map_create(b->arena), tile->inner};
    ir_map_set(block.inner, iv, loop.iv);
    consume_block(r, &block, carried, (MlirValue){NULL});
    ir_for_end(b, &loop, carried, C_COUNT);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
}

/* Waits for the next word of the list: entry·2 + last, negative for a tile
 * without blocks. */
static MlirValue next_word(struct roles *r, struct ring k) {
    struct ir_builder *b = &r->b;
    ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    return ir_load_for_warp(b, r->entries, k.stage);
}

static void consume_listed(struct roles *r, const struct scope *tile,
                           const struct extent *extent, MlirValue s,
                           MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue one = role_number(r, 1);
    struct scope first = {ir_map_create(b->arena), tile->inner};
    ir_map_set(first.inner, ir_result(r->entry, 0),
               ir_shrui(b, extent->word, one));
    consume_block(r, &first, carried, s);
    MlirValue values[C_COUNT + 1];
    for (size_t i = 0; i < C_COUNT; i++)
        values[i] = carried[i];
    values[C_COUNT] = extent->word;
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
    struct ring k = {values[C_KS], values[C_KP]};
    values[C_COUNT] = next_word(r, k);
    ir_map_set(block.inner, ir_result(r->entry, 0),
               ir_shrui(b, values[C_COUNT], one));
    consume_block(r, &block, values, (MlirValue){NULL});
    ir_while_end(b, &loop, values, C_COUNT + 1);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
}

/* Results of a tile: softmax state, then positions in the rings. */
enum { T_ACC, T_M, T_L, T_KS, T_KP, T_VS, T_VP, T_QS, T_QP, T_COUNT };

/* From the head of a tile. */
static struct extent counted_extent(struct roles *r, const struct scope *tile) {
    struct extent extent = {.begin = role_number(r, 0)};
    extent.count = extent.end = role_image(tile, ir_operand(r->loop, 1));
    if (!mlirOperationIsNull(r->own)) {
        extent.begin = role_image(tile, ir_operand(r->own, 0));
        extent.end = role_image(tile, ir_operand(r->own, 1));
    }
    extent.some = ir_cmpi(&r->b, IR_SGT, extent.end, extent.begin);
    return extent;
}

static struct extent listed_extent(struct roles *r, MlirValue word) {
    MlirValue some = ir_cmpi(&r->b, IR_SGE, word, role_number(r, 0));
    return (struct extent){.some = some, .word = word};
}

/* A tile without own blocks: gives back what the producer copied for others. */
static void pass_tile(struct roles *r, const struct extent *extent,
                      MlirValue carried[T_COUNT]) {
    struct ir_builder *b = &r->b;
    if (r->is_list) { /* the slot of the word -1 */
        struct ring k = {carried[T_KS], carried[T_KP]};
        ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
        k = role_ring_next(r, k, r->stages);
        carried[T_KS] = k.stage, carried[T_KP] = k.parity;
    }
    if (!mlirOperationIsNull(r->own)) {
        struct ring q = {carried[T_QS], carried[T_QP]};
        struct ring next = role_ring_next(r, q, r->q_stages);
        MlirValue any = ir_cmpi(b, IR_SGT, extent->count, role_number(r, 0));
        role_skip_tile(r, extent->count, q, carried + T_KS);
        carried[T_QS] = ir_select(b, any, next.stage, q.stage);
        carried[T_QP] = ir_select(b, any, next.parity, q.parity);
    }
}

/* All blocks of a tile, the scores `s` of the first one being there; `carried`
 * has the ring positions and gets the results. */
static void consume_blocks(struct roles *r, const struct scope *tile,
                           const struct extent *extent, MlirValue s,
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
    struct ring q = {carried[T_QS], carried[T_QP]};
    q = role_ring_next(r, q, r->q_stages);
    struct ir_if branch = ir_if_begin(b, extent->some, types, T_COUNT, true);
    if (r->is_list)
        consume_listed(r, tile, extent, s, start);
    else
        consume_counted(r, tile, extent, s, start);
    consume_tail(r, start);
    if (!mlirOperationIsNull(r->own))
        role_skip_blocks(r, extent->end, extent->count, start + C_KS);
    MlirValue done[T_COUNT] = {start[C_ACC], start[C_M],  start[C_L],
                               start[C_KS],  start[C_KP], start[C_VS],
                               start[C_VP],  q.stage,     q.parity};
    ir_if_else(b, &branch, done, T_COUNT);
    pass_tile(r, extent, carried);
    ir_if_end(b, &branch, carried, T_COUNT);
    for (size_t i = 0; i < T_COUNT; i++)
        carried[i] = ir_result(branch.op, i);
}

/* ---- From tile to tile --------------------------------------------------- */

/* What is behind the key loop: O and LSE of a tile. */
static void write_rows(struct roles *r, struct scope *tile) {
    for (size_t i = 0; i < r->after.count; i++)
        role_clone(r, tile, r->after.data[i]);
}

/* The own blocks of a tile that may be past the end.  Of a list only the word
 * is known, which is waited for. */
static struct extent look_ahead(struct roles *r, const struct tile_loop *at,
                                struct ring k) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[2] = {i32, i32};
    MlirValue zero = role_number(r, 0), none = role_number(r, -1);
    size_t count = r->is_list ? 1 : 2;
    struct ir_if exists =
        ir_if_begin(b, role_tiles_exists(r, at), types, count, true);
    if (r->is_list) {
        MlirValue word = next_word(r, k);
        ir_if_else(b, &exists, &word, 1);
        ir_if_end(b, &exists, &none, 1);
        return listed_extent(r, ir_result(exists.op, 0));
    }
    struct scope tile = role_tiles_head(r, at, r->consumer, false);
    struct extent extent = counted_extent(r, &tile);
    ir_if_else(b, &exists, (MlirValue[]){extent.begin, extent.end}, 2);
    ir_if_end(b, &exists, (MlirValue[]){zero, zero}, 2);
    extent.begin = ir_result(exists.op, 0);
    extent.end = ir_result(exists.op, 1);
    extent.some = ir_cmpi(b, IR_SGT, extent.end, extent.begin);
    return extent;
}

/* Starts tile `at`: its first Q·K^T runs while the rows of the tile before are
 * written (`done`, NULL: there is none).  Changes the positions of K and V;
 * returns the scores, anything for a tile without own blocks. */
static MlirValue start_tile(struct roles *r, const struct extent *extent,
                            struct scope *done, MlirValue carried[T_COUNT]) {
    enum { RESULTS = 5 };
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType scores = mlirValueGetType(ir_result(r->qk, 0));
    MlirType types[RESULTS] = {i32, i32, i32, i32, scores};
    MlirValue values[RESULTS], same[RESULTS];
    for (size_t i = 0; i < 4; i++)
        values[i] = same[i] = carried[T_KS + i];
    struct ir_if some = ir_if_begin(b, extent->some, types, RESULTS, true);
    if (!mlirOperationIsNull(r->own))
        role_skip_blocks(r, role_number(r, 0), extent->begin, values);
    struct ring k = {values[0], values[1]};
    MlirValue q_slot = role_q_slot(r, carried[T_QS], r->consumer);
    ir_mbarrier_wait(b, r->q_full, q_slot, carried[T_QP]);
    if (!r->is_list)
        ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    MlirValue s = start_qk(r, q_slot, k);
    if (done) {
        write_rows(r, done);
        /* Passes at once; ptxas moves stores behind a wait for wgmma, but not
         * across a loop. */
        ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    }
    values[4] = ir_wgmma_wait(b, s, 0);
    ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
    k = role_ring_next(r, k, r->stages);
    values[0] = k.stage, values[1] = k.parity;
    ir_if_else(b, &some, values, RESULTS);
    if (done)
        write_rows(r, done);
    same[4] = ir_splat(b, scores, 0);
    ir_if_end(b, &some, same, RESULTS);
    for (size_t i = 0; i < 4; i++)
        carried[T_KS + i] = ir_result(some.op, i);
    return ir_result(some.op, 4);
}

/* What goes round the loop over tiles behind the rings: the scores of the first
 * block, and its word (lists). */
enum { RINGS = T_COUNT - T_KS, SCORES = RINGS, WORD, MAX_ROUND };

static void consume_tiles(struct roles *r) {
    MlirValue carried[T_COUNT], round[MAX_ROUND];
    size_t count = r->is_list ? MAX_ROUND : WORD;
    for (size_t i = 0; i < RINGS; i++)
        carried[T_KS + i] = role_number(r, 0);
    struct ring k = {carried[T_KS], carried[T_KP]};
    struct tile_loop at = role_tiles_first(r);
    struct extent extent = look_ahead(r, &at, k);
    round[SCORES] = start_tile(r, &extent, NULL, carried);
    round[WORD] = extent.word;
    for (size_t i = 0; i < RINGS; i++)
        round[i] = carried[T_KS + i];
    struct tile_loop loop = role_tiles_begin(r, &at, round, count,
                                             "consumer: its rows of each tile");
    struct scope tile = role_tiles_head(r, &loop, r->consumer, false);
    for (size_t i = 0; i < count; i++)
        round[i] = role_tiles_arg(&loop, i);
    for (size_t i = 0; i < RINGS; i++)
        carried[T_KS + i] = round[i];
    r->q_slot = role_q_slot(r, carried[T_QS], r->consumer);
    extent =
        r->is_list ? listed_extent(r, round[WORD]) : counted_extent(r, &tile);
    consume_blocks(r, &tile, &extent, round[SCORES], carried);
    size_t results = r->is_list ? r->state : 0;
    for (size_t i = 0; i < 3; i++)
        ir_map_set(tile.inner, ir_result(r->loop, results + i),
                   carried[T_ACC + i]);
    k = (struct ring){carried[T_KS], carried[T_KP]};
    at = role_tiles_next(r, &loop);
    extent = look_ahead(r, &at, k);
    round[SCORES] = start_tile(r, &extent, &tile, carried);
    round[WORD] = extent.word;
    for (size_t i = 0; i < RINGS; i++)
        round[i] = carried[T_KS + i];
    role_tiles_end(r, &loop, &at, round);
}

void role_consumer(struct roles *r, MlirValue warpgroup) {
    struct ir_builder *b = &r->b;
    ir_set_max_registers(
        b, schedule_consumer_registers(r->consumers, r->is_list), true);
    r->consumer = ir_subi(b, warpgroup, role_number(r, 1));
    if (r->pingpong) { /* the first consumer goes first */
        r->own_turn = turn_barrier(r, 0);
        r->next_turn = turn_barrier(r, 1);
        MlirValue last =
            ir_cmpi(b, IR_EQ, r->consumer, role_number(r, r->consumers - 1));
        struct ir_if branch = ir_if_begin(b, last, NULL, 0, false);
        ir_bar_arrive(b, role_number(r, 1), 256);
        ir_if_end(b, &branch, NULL, 0);
    }
    consume_tiles(r);
}
