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
 *
 * Not here: one block (pipeline-sm90-block.c), the blocks of a list
 * (pipeline-sm90-list.c). */
#include "passes/pipeline-sm90-consume.h"
#include "passes/schedule-sm90.h"

/* Named barrier of the consumer `ahead` turns after this one. */
static MlirValue turn_barrier(struct roles *r, int ahead) {
    struct ir_builder *b = &r->b;
    MlirValue turn = ir_addi(b, r->consumer, role_number(r, ahead));
    MlirValue wraps = ir_cmpi(b, IR_SGE, turn, role_number(r, r->consumers));
    turn = ir_select(b, wraps, ir_subi(b, turn, role_number(r, r->consumers)),
                     turn);
    return ir_addi(b, turn, role_number(r, 1));
}

/* Which blocks of a tile are a consumer's own. */
struct extent {
    MlirValue some;              /* i1: any */
    struct listed at;            /* list: the first one; else null */
    MlirValue begin, end, count; /* counted: own passes of all passes */
};

/* Passes begin <= i < end of the key loop, the first of them peeled off. */
static void consume_counted(struct roles *r, const struct scope *tile,
                            const struct extent *extent, MlirValue s,
                            MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue one = role_number(r, 1);
    MlirValue iv = mlirBlockGetArgument(r->loop_body, 0);
    struct scope first = {ir_map_create(b->arena), tile->inner};
    ir_map_set(first.inner, iv, extent->begin);
    consume_block(r, &first, carried, &(struct peeled){s, {NULL}}, NULL);
    consume_finish_store(r, (MlirValue){NULL});
    struct ir_for loop = ir_for_begin(b, ir_addi(b, extent->begin, one),
                                      extent->end, one, carried, C_COUNT);
    role_name_section(r, loop.op, consume_mainloop_title);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_for_arg(&loop, i);
    struct scope block = {ir_map_create(b->arena), tile->inner};
    ir_map_set(block.inner, iv, loop.iv);
    consume_block(r, &block, carried, NULL, NULL);
    ir_for_end(b, &loop, carried, C_COUNT);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
    consume_release_q(r);
    consume_tail(r, carried);
}

/* ---- A tile -------------------------------------------------------------- */

/* Results of a tile: softmax state, then positions in the rings. */
enum { T_ACC, T_M, T_L, T_KS, T_KP, T_VS, T_VP, T_QS, T_QP, T_COUNT };

static struct extent open_extent(struct roles *r, MlirValue begin,
                                 MlirValue end, MlirValue count) {
    return (struct extent){.some = ir_cmpi(&r->b, IR_SGT, end, begin),
                           .begin = begin,
                           .end = end,
                           .count = count};
}

/* From the head of a tile. */
static struct extent counted_extent(struct roles *r, const struct scope *tile) {
    MlirValue count = role_image(tile, ir_operand(r->loop, 1));
    if (mlirOperationIsNull(r->own))
        return open_extent(r, role_number(r, 0), count, count);
    return open_extent(r, role_image(tile, ir_operand(r->own, 0)),
                       role_image(tile, ir_operand(r->own, 1)), count);
}

static struct extent listed_extent(struct roles *r, struct listed at) {
    struct ir_builder *b = &r->b;
    MlirValue some = ir_cmpi(b, IR_SGE, at.word, role_number(r, 0));
    if (consume_has_skips(r))
        some = ir_andi(b, some, consume_is_own(r, at.classes));
    return (struct extent){.some = some, .at = at};
}

/* The slots of the word -1; a tile whose blocks were all skipped has none left.
 */
static void pass_listed(struct roles *r, struct listed at,
                        MlirValue rings[RING_VALUES]) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[2] = {i32, i32};
    MlirValue same[2] = {rings[0], rings[1]};
    MlirValue none = ir_cmpi(b, IR_SLT, at.word, role_number(r, 0));
    struct ir_if branch = ir_if_begin(b, none, types, 2, true);
    role_skip_block(r, rings, false);
    ir_if_else(b, &branch, rings, 2);
    ir_if_end(b, &branch, same, 2);
    role_set_rings(rings, branch.op);
}

/* A tile without own blocks: gives back what the producer copied for others. */
static void pass_tile(struct roles *r, const struct extent *extent,
                      MlirValue q_parity, MlirValue rings[RING_VALUES]) {
    ir_mbarrier_wait(&r->b, r->q_full, r->q_slot, q_parity);
    consume_release_q(r);
    consume_finish_store(r, (MlirValue){NULL});
    if (r->is_list)
        pass_listed(r, extent->at, rings);
    if (!mlirOperationIsNull(r->own))
        role_skip_tile(r, extent->count, rings);
}

/* All blocks of a tile, the scores `s` of the first one being there; `carried`
 * has the ring positions and gets the results. */
static void consume_blocks(struct roles *r, const struct scope *tile,
                           const struct extent *extent, MlirValue s,
                           MlirValue carried[T_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirType types[T_QS];
    MlirValue start[C_COUNT] = {{NULL}};
    for (size_t i = 0; i < 3; i++)
        carried[T_ACC + i] = start[C_ACC + i] = role_image(
            tile, ir_operand(r->loop, r->state + i + (r->is_list ? 0 : 3)));
    for (size_t i = 0; i < T_QS; i++)
        types[i] = mlirValueGetType(carried[i]);
    for (size_t i = 0; i < RING_VALUES; i++)
        start[C_KS + i] = carried[T_KS + i];
    struct ir_if branch = ir_if_begin(b, extent->some, types, T_QS, true);
    if (r->is_list)
        consume_listed(r, tile, extent->at, s, start);
    else
        consume_counted(r, tile, extent, s, start);
    if (!mlirOperationIsNull(r->own))
        role_skip_blocks(r, extent->end, extent->count, start + C_KS);
    MlirValue done[T_QS] = {start[C_ACC], start[C_M],  start[C_L], start[C_KS],
                            start[C_KP],  start[C_VS], start[C_VP]};
    ir_if_else(b, &branch, done, T_QS);
    pass_tile(r, extent, carried[T_QP], carried + T_KS);
    ir_if_end(b, &branch, carried, T_QS);
    for (size_t i = 0; i < T_QS; i++)
        carried[i] = ir_result(branch.op, i);
    role_ring_advance(r, carried + T_QS, r->q_stages);
}

/* ---- From tile to tile --------------------------------------------------- */

enum { WARPGROUP_THREADS = 128 };

/* O by way of the slot of Q, which nobody reads any more: one thread copies
 * what its warpgroup has written there. */
static void store_by_tma(struct roles *r, const struct scope *tile) {
    struct ir_builder *b = &r->b;
    MlirValue operands[5];
    for (size_t i = 0; i < 5; i++)
        operands[i] = role_image(tile, ir_operand(r->o_store, i));
    MlirValue slot = ir_stage(b, r->q_tiles, r->q_slot);
    ir_stmatrix(b, operands[0], slot);
    ir_bar_sync(b, r->rows_written, WARPGROUP_THREADS);
    struct ir_if one = ir_if_begin(b, r->is_storing, NULL, 0, false);
    MlirOperation copy = ir_tma_store(b, slot, operands[1], operands[2],
                                      operands[3], operands[4]);
    ir_set_packed_heads(copy, ir_packed_heads(r->o_store));
    ir_if_end(b, &one, NULL, 0);
}

/* The tile before, unless this is the first one: once its copy has read the
 * slot, gives that back. */
void consume_finish_store(struct roles *r, MlirValue again) {
    struct ir_builder *b = &r->b;
    if (mlirOperationIsNull(r->o_store))
        return;
    MlirValue finishes = ir_andi(b, r->is_storing, r->has_stored);
    if (!mlirValueIsNull(again))
        finishes = ir_andi(b, finishes, ir_not(b, again));
    struct ir_if one = ir_if_begin(b, finishes, NULL, 0, false);
    ir_tma_store_wait(b);
    ir_mbarrier_arrive(b, r->q_empty, r->stored_slot, true);
    ir_if_end(b, &one, NULL, 0);
}

/* Shared memory must live until the last copy has read it. */
static void finish_last_store(struct roles *r) {
    struct ir_builder *b = &r->b;
    if (mlirOperationIsNull(r->o_store))
        return;
    struct ir_if one = ir_if_begin(b, r->is_storing, NULL, 0, false);
    ir_tma_store_wait(b);
    ir_if_end(b, &one, NULL, 0);
}

/* What is behind the key loop: O and LSE of a tile. */
static void write_rows(struct roles *r, struct scope *tile) {
    for (size_t i = 0; i < r->after.count; i++)
        if (mlirOperationEqual(r->after.data[i], r->o_store))
            store_by_tma(r, tile);
        else
            role_clone(r, tile, r->after.data[i]);
}

/* The own blocks of a tile that may be past the end, and of how many. */
static struct extent look_ahead_counted(struct roles *r,
                                        const struct tile_loop *at) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[3] = {i32, i32, i32};
    MlirValue zero = role_number(r, 0);
    struct ir_if exists =
        ir_if_begin(b, role_tiles_exists(r, at), types, 3, true);
    struct scope tile = role_tiles_head(r, at, r->consumer, false);
    struct extent extent = counted_extent(r, &tile);
    MlirValue found[3] = {extent.begin, extent.end, extent.count};
    ir_if_else(b, &exists, found, 3);
    ir_if_end(b, &exists, (MlirValue[]){zero, zero, zero}, 3);
    return open_extent(r, ir_result(exists.op, 0), ir_result(exists.op, 1),
                       ir_result(exists.op, 2));
}

/* Of a list only the first block is known, which is waited for. */
static struct extent look_ahead(struct roles *r, const struct tile_loop *at,
                                struct ring k) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[2] = {i32, i32};
    MlirValue zero = role_number(r, 0), none = role_number(r, -1);
    if (!r->is_list)
        return look_ahead_counted(r, at);
    struct ir_if exists =
        ir_if_begin(b, role_tiles_exists(r, at), types, 2, true);
    struct listed first = consume_next_listed(r, k);
    ir_if_else(b, &exists, (MlirValue[]){first.word, first.classes}, 2);
    ir_if_end(b, &exists, (MlirValue[]){none, zero}, 2);
    first.word = ir_result(exists.op, 0);
    first.classes = ir_result(exists.op, 1);
    return listed_extent(r, first);
}

/* A tile whose first listed block is not own: seeks the first one that is and
 * computes its scores.  Replaces extent->at and the positions of K and V;
 * returns the scores, `scores` for other tiles. */
static MlirValue catch_up(struct roles *r, struct extent *extent,
                          MlirValue scores, MlirValue carried[T_COUNT]) {
    enum { SCORES = 4, WORD, CLASSES, COUNT };
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), type = mlirValueGetType(scores);
    MlirType types[COUNT] = {i32, i32, i32, i32, type, i32, i32};
    MlirType started_types[3] = {i32, i32, type};
    struct listed at = extent->at;
    MlirValue same[COUNT], rings[4];
    for (size_t i = 0; i < 4; i++)
        same[i] = rings[i] = carried[T_KS + i];
    same[SCORES] = scores, same[WORD] = at.word, same[CLASSES] = at.classes;
    MlirValue any = ir_cmpi(b, IR_SGE, at.word, role_number(r, 0));
    MlirValue is_late = ir_andi(b, any, ir_not(b, extent->some));
    struct ir_if late = ir_if_begin(b, is_late, types, COUNT, true);
    consume_seek_own(r, false, &at, rings);
    MlirValue same_k[2] = {rings[0], rings[1]};
    struct ir_if found =
        ir_if_begin(b, consume_is_own(r, at.classes), started_types, 3, true);
    MlirValue q_slot = role_q_slot(r, carried[T_QS], r->consumer);
    ir_mbarrier_wait(b, r->q_full, q_slot, carried[T_QP]);
    MlirValue s =
        consume_start_qk(r, q_slot, (struct ring){rings[0], rings[1]});
    s = consume_finish_qk(r, s, rings);
    ir_if_else(b, &found, (MlirValue[]){rings[0], rings[1], s}, 3);
    ir_if_end(b, &found, (MlirValue[]){same_k[0], same_k[1], scores}, 3);
    MlirValue results[COUNT] = {ir_result(found.op, 0),
                                ir_result(found.op, 1),
                                rings[2],
                                rings[3],
                                ir_result(found.op, 2),
                                at.word,
                                at.classes};
    ir_if_else(b, &late, results, COUNT);
    ir_if_end(b, &late, same, COUNT);
    for (size_t i = 0; i < 4; i++)
        carried[T_KS + i] = ir_result(late.op, i);
    extent->at =
        (struct listed){ir_result(late.op, WORD), ir_result(late.op, CLASSES)};
    return ir_result(late.op, SCORES);
}

/* With two stages the blocks behind the first one come too late for that. */
static bool seeks_early(const struct roles *r) {
    return consume_has_skips(r) && r->stages > 2;
}

/* Gives back V of the blocks that consume_seek_early passed. */
static void skip_late(struct roles *r, MlirValue passed, MlirValue v_ring[2]) {
    struct ir_builder *b = &r->b;
    MlirValue one = role_number(r, 1);
    struct ir_for loop =
        ir_for_begin(b, role_number(r, 0), passed, one, v_ring, 2);
    MlirValue v[2] = {ir_for_arg(&loop, 0), ir_for_arg(&loop, 1)};
    ir_mbarrier_wait(b, r->v_full, v[0], v[1]);
    ir_mbarrier_arrive(b, r->v_empty, v[0], false);
    role_take_turn(r);
    role_pass_turn(r);
    role_ring_advance(r, v, r->stages);
    ir_for_end(b, &loop, v, 2);
    for (size_t i = 0; i < 2; i++)
        v_ring[i] = ir_result(loop.op, i);
}

/* Starts tile `at`: its first Q·K^T runs while the rows of the tile before are
 * written (`done`, NULL: there is none).  Changes the positions of K and V, and
 * extent->at to the first own block; returns its scores, anything for a tile
 * without one. */
static MlirValue start_tile(struct roles *r, struct extent *extent,
                            struct scope *done, MlirValue carried[T_COUNT]) {
    enum { RESULTS = 5 };
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType scores = mlirValueGetType(ir_result(r->qk, 0));
    MlirType types[RESULTS] = {i32, i32, i32, i32, scores};
    MlirValue values[RESULTS], same[RESULTS], s;
    MlirValue passed = {NULL};
    if (seeks_early(r)) {
        passed = consume_seek_early(r, &extent->at, carried + T_KS);
        *extent = listed_extent(r, extent->at);
    }
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
    s = consume_start_qk(r, q_slot, k);
    if (done) {
        write_rows(r, done);
        /* Passes at once; ptxas moves stores behind a wait for wgmma, but not
         * across a loop. */
        ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    }
    values[4] = consume_finish_qk(r, s, values);
    ir_if_else(b, &some, values, RESULTS);
    if (done)
        write_rows(r, done);
    same[4] = ir_splat(b, scores, 0);
    ir_if_end(b, &some, same, RESULTS);
    for (size_t i = 0; i < 4; i++)
        carried[T_KS + i] = ir_result(some.op, i);
    s = ir_result(some.op, 4);
    if (seeks_early(r))
        skip_late(r, passed, carried + T_VS);
    if (consume_has_skips(r))
        s = catch_up(r, extent, s, carried);
    return s;
}

/* What goes round the loop over tiles behind the rings: the scores of the first
 * block; of a list what is beside it, else, where a consumer does not own all
 * blocks, which ones it does: the head of a tile takes long to say. */
enum { RINGS = T_COUNT - T_KS, SCORES = RINGS, EXTENT };
enum { WORD = EXTENT, CLASSES };
enum { BEGIN = EXTENT, END, PASSES, MAX_ROUND };

/* Enters the extent of the tile behind; how many values go round. */
static size_t set_round(struct roles *r, const struct extent *extent,
                        MlirValue round[MAX_ROUND]) {
    if (r->is_list) {
        round[WORD] = extent->at.word, round[CLASSES] = extent->at.classes;
        return CLASSES + 1;
    }
    round[BEGIN] = extent->begin, round[END] = extent->end;
    round[PASSES] = extent->count;
    return mlirOperationIsNull(r->own) ? EXTENT : MAX_ROUND;
}

static struct extent get_round(struct roles *r, const struct scope *tile,
                               const MlirValue round[MAX_ROUND]) {
    if (r->is_list)
        return listed_extent(r, (struct listed){round[WORD], round[CLASSES]});
    if (mlirOperationIsNull(r->own))
        return counted_extent(r, tile);
    return open_extent(r, round[BEGIN], round[END], round[PASSES]);
}

/* Says whether the CTA had a tile before, and which slot of Q was its. */
static void enter_stored(struct roles *r, const struct tile_loop *at,
                         MlirValue q_stage) {
    struct ir_builder *b = &r->b;
    if (mlirOperationIsNull(r->o_store))
        return;
    r->has_stored = ir_cmpi(b, IR_NE, at->tile, r->first_tile);
    MlirValue wraps = ir_cmpi(b, IR_EQ, q_stage, role_number(r, 0));
    MlirValue before = ir_subi(b, q_stage, role_number(r, 1));
    before = ir_select(b, wraps, role_number(r, r->q_stages - 1), before);
    r->stored_slot = role_q_slot(r, before, r->consumer);
}

static void consume_tiles(struct roles *r) {
    MlirValue carried[T_COUNT], round[MAX_ROUND];
    for (size_t i = 0; i < RINGS; i++)
        carried[T_KS + i] = role_number(r, 0);
    struct ring k = {carried[T_KS], carried[T_KP]};
    struct tile_loop at = role_tiles_first(r);
    struct extent extent = look_ahead(r, &at, k);
    round[SCORES] = start_tile(r, &extent, NULL, carried);
    size_t count = set_round(r, &extent, round);
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
    enter_stored(r, &loop, carried[T_QS]);
    extent = get_round(r, &tile, round);
    consume_blocks(r, &tile, &extent, round[SCORES], carried);
    size_t results = r->is_list ? r->state : 0;
    for (size_t i = 0; i < 3; i++)
        ir_map_set(tile.inner, ir_result(r->loop, results + i),
                   carried[T_ACC + i]);
    k = (struct ring){carried[T_KS], carried[T_KP]};
    at = role_tiles_next(r, &loop);
    extent = look_ahead(r, &at, k);
    round[SCORES] = start_tile(r, &extent, &tile, carried);
    set_round(r, &extent, round);
    for (size_t i = 0; i < RINGS; i++)
        round[i] = carried[T_KS + i];
    role_tiles_end(r, &loop, &at, round);
    finish_last_store(r);
}

void role_consumer(struct roles *r, MlirValue warpgroup) {
    struct ir_builder *b = &r->b;
    ir_set_max_registers(
        b, schedule_consumer_registers(r->consumers, r->is_list), true);
    r->consumer = ir_subi(b, warpgroup, role_number(r, 1));
    if (!mlirOperationIsNull(r->o_store)) {
        MlirValue warp = ir_andi(b, r->warp, role_number(r, 3));
        r->is_storing =
            ir_andi(b, ir_cmpi(b, IR_EQ, warp, role_number(r, 0)), ir_elect(b));
        r->rows_written = ir_addi(b, warpgroup, role_number(r, r->consumers));
    }
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
