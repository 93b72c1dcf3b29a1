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
 * Of a list a consumer runs its own blocks: runs of them, with what is others'
 * skipped in between and in front (pipeline-sm90-skip.c).  Each run has its
 * first block peeled off.
 *
 *     seek the first own block
 *     do softmax; loop while the next block is own; last P·V
 *        seek the next own block; its S = Q·K^T
 *     while there is one */
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
        if (!mlirOperationEqual(op, r->entry) &&
            !mlirOperationEqual(op, r->classes))
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

/* The accumulator of the runs before, rescaled if there were any (`again`). */
static void rescale_again(struct roles *r, struct scope *scope,
                          MlirOperation op, MlirValue again) {
    struct ir_builder *b = &r->b;
    MlirValue acc = role_image(scope, ir_operand(r->pv, 2));
    MlirType type = mlirValueGetType(acc);
    struct ir_if branch = ir_if_begin(b, again, &type, 1, true);
    if (ir_is_op(op, "scf.if"))
        take_arm(r, scope, op, 0);
    else
        role_clone(r, scope, op);
    MlirValue scaled = role_image(scope, ir_operand(r->pv, 2));
    ir_if_else(b, &branch, &scaled, 1);
    ir_if_end(b, &branch, &acc, 1);
    ir_map_set(scope->inner, ir_operand(r->pv, 2), ir_result(branch.op, 0));
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

/* The first block of a tile or a run has its scores already.  `again` (i1): of
 * a tile's second run or a later one; null: that never happens. */
struct peeled {
    MlirValue scores, again;
};

/* One block, `scope` having the images of the loop counter or entry.  `peeled`:
 * of a first block; NULL for others. */
static void consume_block(struct roles *r, struct scope *scope,
                          MlirValue carried[C_COUNT],
                          const struct peeled *peeled) {
    bool is_first = peeled != NULL;
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
    if (is_first) {
        ir_map_set(scope->inner, ir_operand(r->pv, 2), carried[C_ACC]);
        ir_map_set(scope->inner, old_acc, carried[C_ACC]);
    }
    struct ir_map *found = ir_map_create(r->b.arena);
    MlirOperation op = mlirBlockGetFirstOperation(r->loop_body);
    for (; !mlirOperationEqual(op, r->pv);
         op = mlirOperationGetNextInBlock(op)) {
        bool is_rescale = !mlirOperationIsNull(r->rescale) &&
                          mlirOperationEqual(op, r->rescale);
        if (is_first && is_rescale) {
            if (!mlirValueIsNull(peeled->again))
                rescale_again(r, scope, op, peeled->again);
            continue;
        }
        if (ir_is_op(op, "attn.load") || is_search(r, found, op) ||
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
            ir_map_set(scope->inner, ir_result(op, 0), peeled->scores);
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
    struct listed at;            /* list: the first one; else null */
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
    consume_block(r, &first, carried, &(struct peeled){s, {NULL}});
    struct ir_for loop = ir_for_begin(b, ir_addi(b, extent->begin, one),
                                      extent->end, one, carried, C_COUNT);
    role_name_section(r, loop.op, mainloop_title);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_for_arg(&loop, i);
    struct scope block = {ir_map_create(b->arena), tile->inner};
    ir_map_set(block.inner, iv, loop.iv);
    consume_block(r, &block, carried, NULL);
    ir_for_end(b, &loop, carried, C_COUNT);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
    ir_mbarrier_arrive(b, r->q_empty, r->q_slot, false);
    consume_tail(r, carried);
}

/* ---- Lists --------------------------------------------------------------- */

/* Blocks of a list are others' only where each consumer has a class. */
static bool has_skips(const struct roles *r) {
    return r->is_list && ir_int_attr(r->classes, "attn.classes", 1) > 1;
}

/* Waits for the next block of the list. */
static struct listed next_listed(struct roles *r, struct ring k) {
    struct ir_builder *b = &r->b;
    ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    return (struct listed){ir_load_for_warp(b, r->entries, k.stage),
                           ir_load_for_warp(b, r->entry_classes, k.stage)};
}

/* i1: is the block this consumer's, or the one after it (`from`: NEXT_CLASSES)?
 */
static MlirValue own_from(struct roles *r, MlirValue classes, int from) {
    struct ir_builder *b = &r->b;
    MlirValue shift = ir_muli(b, r->consumer, role_number(r, CLASS_BITS));
    MlirValue bit = ir_shli(b, role_number(r, 1 << from), shift);
    return ir_cmpi(b, IR_NE, ir_andi(b, classes, bit), role_number(r, 0));
}

static MlirValue is_own(struct roles *r, MlirValue classes) {
    return own_from(r, classes, 0);
}

static MlirValue is_last(struct roles *r, MlirValue word) {
    struct ir_builder *b = &r->b;
    return ir_cmpi(b, IR_NE, ir_andi(b, word, role_number(r, 1)),
                   role_number(r, 0));
}

static void set_listed(struct roles *r, struct scope *block,
                       struct listed listed) {
    MlirValue number = ir_shrui(&r->b, listed.word, role_number(r, 1));
    ir_map_set(block->inner, ir_result(r->entry, 0), number);
    ir_map_set(block->inner, ir_result(r->classes, 0), listed.classes);
}

/* From block `at` on, which is not own, to the next own one (waited for) or the
 * tile's last, which is skipped too.  Replaces `at`, whose is_own then says
 * which, and the rings.  `in_tile`: an own block was before. */
static void seek_own(struct roles *r, bool in_tile, struct listed *at,
                     MlirValue rings[4]) {
    enum { WORD = 4, CLASSES, COUNT };
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[4] = {i32, i32, i32, i32};
    MlirValue values[COUNT] = {rings[0], rings[1], rings[2],
                               rings[3], at->word, at->classes};
    struct ir_while loop = ir_while_begin(b, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue ends =
        ir_ori(b, is_own(r, values[CLASSES]), is_last(r, values[WORD]));
    ir_while_do(b, &loop, ir_not(b, ends), values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    role_skip_block(r, values, true);
    struct listed next = next_listed(r, (struct ring){values[0], values[1]});
    values[WORD] = next.word, values[CLASSES] = next.classes;
    ir_while_end(b, &loop, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_result(loop.op, i);
    *at = (struct listed){values[WORD], values[CLASSES]};
    struct ir_if found = ir_if_begin(b, is_own(r, at->classes), types, 4, true);
    MlirValue same[4] = {values[0], values[1], values[2], values[3]};
    ir_if_else(b, &found, same, 4);
    /* The first own block of a tile takes no turn; one that is not there takes
     * none either. */
    role_skip_block(r, values, in_tile);
    ir_if_end(b, &found, values, 4);
    for (size_t i = 0; i < 4; i++)
        rings[i] = ir_result(found.op, i);
}

/* The first block `at` of a run and the own ones that follow it, the last P·V
 * included.  Replaces `at` by the last block of the run. */
static void consume_run(struct roles *r, const struct scope *tile,
                        const struct peeled *peeled, struct listed *at,
                        MlirValue carried[C_COUNT]) {
    enum { WORD = C_COUNT, CLASSES, COUNT };
    struct ir_builder *b = &r->b;
    struct scope first = {ir_map_create(b->arena), tile->inner};
    set_listed(r, &first, *at);
    consume_block(r, &first, carried, peeled);
    MlirValue values[COUNT];
    for (size_t i = 0; i < C_COUNT; i++)
        values[i] = carried[i];
    values[WORD] = at->word, values[CLASSES] = at->classes;
    struct ir_while loop = ir_while_begin(b, values, COUNT);
    role_name_section(r, loop.op, mainloop_title);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue more = ir_not(b, is_last(r, values[WORD]));
    if (has_skips(r))
        more = ir_andi(b, more, own_from(r, values[CLASSES], NEXT_CLASSES));
    ir_while_do(b, &loop, more, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    struct listed listed =
        next_listed(r, (struct ring){values[C_KS], values[C_KP]});
    struct scope block = {ir_map_create(b->arena), tile->inner};
    set_listed(r, &block, listed);
    consume_block(r, &block, values, NULL);
    values[WORD] = listed.word, values[CLASSES] = listed.classes;
    ir_while_end(b, &loop, values, COUNT);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
    *at =
        (struct listed){ir_result(loop.op, WORD), ir_result(loop.op, CLASSES)};
    if (!has_skips(r))
        ir_mbarrier_arrive(b, r->q_empty, r->q_slot, false);
    consume_tail(r, carried);
}

/* S = Q·K^T of the first block of a tile's second run or a later one. */
static MlirValue restart(struct roles *r, MlirValue rings[4]) {
    struct ir_builder *b = &r->b;
    struct ring k = {rings[0], rings[1]};
    if (r->pingpong)
        ir_bar_sync(b, r->own_turn, 256);
    MlirValue s = start_qk(r, r->q_slot, k);
    if (r->pingpong)
        ir_bar_arrive(b, r->next_turn, 256);
    s = ir_wgmma_wait(b, s, 0);
    ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
    k = role_ring_next(r, k, r->stages);
    rings[0] = k.stage, rings[1] = k.parity;
    return s;
}

/* All runs of a tile.  A loop that does its work before its condition. */
static void consume_runs(struct roles *r, const struct scope *tile,
                         const struct extent *extent, MlirValue s,
                         MlirValue carried[C_COUNT]) {
    enum {
        AT_RINGS = 3,
        WORD = 7,
        CLASSES,
        PASSED,
        AGAIN = PASSED,
        SCORES,
        COUNT
    };
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[] = {i32, i32, i32, i32, i32, i32};
    MlirValue values[COUNT] = {carried[C_ACC],
                               carried[C_M],
                               carried[C_L],
                               carried[C_KS],
                               carried[C_KP],
                               carried[C_VS],
                               carried[C_VP],
                               extent->at.word,
                               extent->at.classes,
                               ir_const_bool(b, false),
                               s};
    struct ir_while loop = ir_while_begin_passing(b, values, COUNT, PASSED);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue run[C_COUNT] = {values[0], values[1], values[2], {NULL},
                              values[3], values[4], values[5], values[6]};
    struct listed at = {values[WORD], values[CLASSES]};
    struct peeled peeled = {values[SCORES], values[AGAIN]};
    consume_run(r, tile, &peeled, &at, run);
    MlirValue where[6] = {run[C_KS], run[C_KP], run[C_VS],
                          run[C_VP], at.word,   at.classes};
    /* Behind the last block no other is own. */
    MlirValue end[6] = {where[0], where[1], where[2],
                        where[3], where[4], role_number(r, 0)};
    struct ir_if done = ir_if_begin(b, is_last(r, at.word), types, 6, true);
    ir_if_else(b, &done, end, 6);
    at = next_listed(r, (struct ring){where[0], where[1]});
    seek_own(r, true, &at, where);
    where[4] = at.word, where[5] = at.classes;
    ir_if_end(b, &done, where, 6);
    for (size_t i = 0; i < 3; i++)
        values[i] = run[C_ACC + i];
    for (size_t i = 0; i < 6; i++)
        values[AT_RINGS + i] = ir_result(done.op, i);
    ir_while_do(b, &loop, is_own(r, values[CLASSES]), values, PASSED);
    for (size_t i = 0; i < PASSED; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    values[SCORES] = restart(r, values + AT_RINGS);
    values[AGAIN] = ir_const_bool(b, true);
    ir_while_end(b, &loop, values, COUNT);
    for (size_t i = 0; i < 3; i++)
        carried[C_ACC + i] = ir_result(loop.op, i);
    for (size_t i = 0; i < 4; i++)
        carried[C_KS + i] = ir_result(loop.op, AT_RINGS + i);
    ir_mbarrier_arrive(b, r->q_empty, r->q_slot, false);
}

/* ---- A tile -------------------------------------------------------------- */

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

static struct extent listed_extent(struct roles *r, struct listed at) {
    struct ir_builder *b = &r->b;
    MlirValue some = ir_cmpi(b, IR_SGE, at.word, role_number(r, 0));
    if (has_skips(r))
        some = ir_andi(b, some, is_own(r, at.classes));
    return (struct extent){.some = some, .at = at};
}

/* The slot of the word -1; in a tile whose blocks were all skipped that of Q.
 */
static void pass_listed(struct roles *r, struct listed at,
                        MlirValue carried[T_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[4] = {i32, i32, i32, i32};
    struct ring k = {carried[T_KS], carried[T_KP]},
                q = {carried[T_QS], carried[T_QP]};
    MlirValue same[4] = {k.stage, k.parity, q.stage, q.parity}, results[4];
    struct ring next_k = role_ring_next(r, k, r->stages);
    if (!has_skips(r)) {
        ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
        carried[T_KS] = next_k.stage, carried[T_KP] = next_k.parity;
        return;
    }
    struct ring next_q = role_ring_next(r, q, r->q_stages);
    MlirValue none = ir_cmpi(b, IR_SLT, at.word, role_number(r, 0));
    struct ir_if branch = ir_if_begin(b, none, types, 4, true);
    ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
    results[0] = next_k.stage, results[1] = next_k.parity;
    results[2] = q.stage, results[3] = q.parity;
    ir_if_else(b, &branch, results, 4);
    ir_mbarrier_wait(b, r->q_full, r->q_slot, q.parity);
    ir_mbarrier_arrive(b, r->q_empty, r->q_slot, false);
    same[2] = next_q.stage, same[3] = next_q.parity;
    ir_if_end(b, &branch, same, 4);
    carried[T_KS] = ir_result(branch.op, 0);
    carried[T_KP] = ir_result(branch.op, 1);
    carried[T_QS] = ir_result(branch.op, 2);
    carried[T_QP] = ir_result(branch.op, 3);
}

/* A tile without own blocks: gives back what the producer copied for others. */
static void pass_tile(struct roles *r, const struct extent *extent,
                      MlirValue carried[T_COUNT]) {
    struct ir_builder *b = &r->b;
    if (r->is_list)
        pass_listed(r, extent->at, carried);
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
    struct listed at = extent->at;
    if (has_skips(r))
        consume_runs(r, tile, extent, s, start);
    else if (r->is_list)
        consume_run(r, tile, &(struct peeled){s, {NULL}}, &at, start);
    else
        consume_counted(r, tile, extent, s, start);
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

/* The own blocks of a tile that may be past the end.  Of a list only the first
 * block is known, which is waited for. */
static struct extent look_ahead(struct roles *r, const struct tile_loop *at,
                                struct ring k) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[2] = {i32, i32};
    MlirValue zero = role_number(r, 0), none = role_number(r, -1);
    struct ir_if exists =
        ir_if_begin(b, role_tiles_exists(r, at), types, 2, true);
    if (r->is_list) {
        struct listed first = next_listed(r, k);
        ir_if_else(b, &exists, (MlirValue[]){first.word, first.classes}, 2);
        ir_if_end(b, &exists, (MlirValue[]){none, zero}, 2);
        first.word = ir_result(exists.op, 0);
        first.classes = ir_result(exists.op, 1);
        return listed_extent(r, first);
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
    seek_own(r, false, &at, rings);
    struct ring k = {rings[0], rings[1]},
                next = role_ring_next(r, k, r->stages);
    struct ir_if found =
        ir_if_begin(b, is_own(r, at.classes), started_types, 3, true);
    MlirValue q_slot = role_q_slot(r, carried[T_QS], r->consumer);
    ir_mbarrier_wait(b, r->q_full, q_slot, carried[T_QP]);
    MlirValue s = ir_wgmma_wait(b, start_qk(r, q_slot, k), 0);
    ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
    ir_if_else(b, &found, (MlirValue[]){next.stage, next.parity, s}, 3);
    ir_if_end(b, &found, (MlirValue[]){k.stage, k.parity, scores}, 3);
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
    s = start_qk(r, q_slot, k);
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
    s = ir_result(some.op, 4);
    return has_skips(r) ? catch_up(r, extent, s, carried) : s;
}

/* What goes round the loop over tiles behind the rings: the scores of the first
 * block, and what is beside it (lists). */
enum { RINGS = T_COUNT - T_KS, SCORES = RINGS, WORD, CLASSES, MAX_ROUND };

static void consume_tiles(struct roles *r) {
    MlirValue carried[T_COUNT], round[MAX_ROUND];
    size_t count = r->is_list ? MAX_ROUND : WORD;
    for (size_t i = 0; i < RINGS; i++)
        carried[T_KS + i] = role_number(r, 0);
    struct ring k = {carried[T_KS], carried[T_KP]};
    struct tile_loop at = role_tiles_first(r);
    struct extent extent = look_ahead(r, &at, k);
    round[SCORES] = start_tile(r, &extent, NULL, carried);
    round[WORD] = extent.at.word, round[CLASSES] = extent.at.classes;
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
    struct listed listed = {round[WORD], round[CLASSES]};
    extent = r->is_list ? listed_extent(r, listed) : counted_extent(r, &tile);
    consume_blocks(r, &tile, &extent, round[SCORES], carried);
    size_t results = r->is_list ? r->state : 0;
    for (size_t i = 0; i < 3; i++)
        ir_map_set(tile.inner, ir_result(r->loop, results + i),
                   carried[T_ACC + i]);
    k = (struct ring){carried[T_KS], carried[T_KP]};
    at = role_tiles_next(r, &loop);
    extent = look_ahead(r, &at, k);
    round[SCORES] = start_tile(r, &extent, &tile, carried);
    round[WORD] = extent.at.word, round[CLASSES] = extent.at.classes;
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
