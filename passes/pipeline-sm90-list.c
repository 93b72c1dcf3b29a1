/* pipeline, sm_90a: a consumer's blocks of a list.
 *
 * It runs its own blocks: runs of them, with what is others' skipped in between
 * and in front (pipeline-sm90-skip.c).  Each run has its first block peeled
 * off.
 *
 *     seek the first own block
 *     do softmax; loop while the next block is own; last P·V
 *        seek the next own block; its S = Q·K^T
 *     while there is one
 *
 * Where a block has one class for all consumers, the list is one run. */
#include "passes/pipeline-sm90-consume.h"

/* Blocks of a list are others' only where each consumer has a class. */
bool consume_has_skips(const struct roles *r) {
    return r->is_list && r->class_count > 1;
}

struct listed consume_read_listed(struct roles *r, struct ring k) {
    struct ir_builder *b = &r->b;
    return (struct listed){ir_load_for_warp(b, r->entries, k.stage),
                           ir_load_for_warp(b, r->entry_classes, k.stage)};
}

struct listed consume_next_listed(struct roles *r, struct ring k) {
    ir_mbarrier_wait(&r->b, r->k_full, k.stage, k.parity);
    return consume_read_listed(r, k);
}

/* i1: is the block this consumer's, or the one after it (`from`: NEXT_CLASSES)?
 */
static MlirValue own_from(struct roles *r, MlirValue classes, int from) {
    struct ir_builder *b = &r->b;
    MlirValue shift = ir_muli(b, r->consumer, role_number(r, r->class_bits));
    MlirValue bit = ir_shli(b, role_number(r, 1 << from), shift);
    return ir_cmpi(b, IR_NE, ir_andi(b, classes, bit), role_number(r, 0));
}

MlirValue consume_is_own(struct roles *r, MlirValue classes) {
    return own_from(r, classes, 0);
}

static MlirValue is_last(struct roles *r, MlirValue word) {
    struct ir_builder *b = &r->b;
    return ir_cmpi(b, IR_NE, ir_andi(b, word, role_number(r, 1)),
                   role_number(r, 0));
}

void consume_set_listed(struct roles *r, struct scope *block,
                        struct listed listed) {
    MlirValue number = ir_shrui(&r->b, listed.word, role_number(r, 1));
    ir_map_set(block->inner, ir_result(r->entry, 0), number);
    ir_map_set(block->inner, ir_result(r->classes, 0), listed.classes);
}

/* From block `at` on to the first one that is own or the tile's last.  Those in
 * front are given back; with `passed`, which receives their number, only K is,
 * and the search ends after as many as the ring holds.  Replaces `at` and the
 * position. */
static void seek(struct roles *r, struct listed *at, MlirValue position[2],
                 MlirValue *passed) {
    enum { WORD = 2, CLASSES, PASSED, COUNT };
    struct ir_builder *b = &r->b;
    MlirValue values[COUNT] = {position[0], position[1], at->word, at->classes};
    size_t count = passed ? COUNT : PASSED;
    if (passed)
        values[PASSED] = role_number(r, 0);
    struct ir_while loop = ir_while_begin(b, values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue ends =
        ir_ori(b, consume_is_own(r, values[CLASSES]), is_last(r, values[WORD]));
    if (passed)
        ends = ir_ori(
            b, ends,
            ir_cmpi(b, IR_SGE, values[PASSED], role_number(r, r->stages)));
    ir_while_do(b, &loop, ir_not(b, ends), values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    if (passed) {
        ir_mbarrier_arrive(b, r->k_empty, values[0], false);
        role_ring_advance(r, values, r->stages);
    } else {
        role_skip_block(r, values, true);
    }
    struct listed next = consume_next_listed(r, role_ring_at(values));
    values[WORD] = next.word, values[CLASSES] = next.classes;
    if (passed)
        values[PASSED] = ir_addi(b, values[PASSED], role_number(r, 1));
    ir_while_end(b, &loop, values, count);
    position[0] = ir_result(loop.op, 0), position[1] = ir_result(loop.op, 1);
    *at =
        (struct listed){ir_result(loop.op, WORD), ir_result(loop.op, CLASSES)};
    if (passed)
        *passed = ir_result(loop.op, PASSED);
}

MlirValue consume_seek_early(struct roles *r, struct listed *at,
                             MlirValue k_ring[2]) {
    MlirValue passed;
    seek(r, at, k_ring, &passed);
    return passed;
}

void consume_seek_own(struct roles *r, bool in_tile, struct listed *at,
                      MlirValue rings[RING_VALUES]) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[2] = {i32, i32};
    seek(r, at, rings, NULL);
    struct ir_if found =
        ir_if_begin(b, consume_is_own(r, at->classes), types, 2, true);
    MlirValue same[2] = {rings[0], rings[1]};
    ir_if_else(b, &found, same, 2);
    /* The first own block of a tile takes no turn; one that is not there takes
     * none either. */
    role_skip_block(r, rings, in_tile);
    ir_if_end(b, &found, rings, 2);
    role_set_rings(rings, found.op);
}

/* Are captured tensors read in front of the products?  Then the block must be
 * known there. */
static bool reads_early(const struct roles *r) {
    MlirOperation op = mlirBlockGetFirstOperation(r->loop_body);
    for (; !mlirOperationEqual(op, r->qk); op = mlirOperationGetNextInBlock(op))
        if (ir_is_op(op, "attn.read"))
            return true;
    return false;
}

/* The first block `at` of a run and the own ones that follow it, the last P·V
 * included.  Replaces `at` by the last block of the run. */
static void consume_run(struct roles *r, const struct scope *tile,
                        const struct peeled *peeled, struct listed *at,
                        MlirValue carried[C_COUNT]) {
    enum { WORD = C_COUNT, CLASSES, COUNT };
    struct ir_builder *b = &r->b;
    struct scope first = {ir_map_create(b->arena), tile->inner};
    consume_set_listed(r, &first, *at);
    consume_block(r, &first, carried, peeled, NULL);
    consume_finish_store(r, peeled->again);
    MlirValue values[COUNT];
    for (size_t i = 0; i < C_COUNT; i++)
        values[i] = carried[i];
    values[WORD] = at->word, values[CLASSES] = at->classes;
    struct ir_while loop = ir_while_begin(b, values, COUNT);
    role_name_section(r, loop.op, consume_mainloop_title);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue more = ir_not(b, is_last(r, values[WORD]));
    if (consume_has_skips(r))
        more = ir_andi(b, more, own_from(r, values[CLASSES], NEXT_CLASSES));
    ir_while_do(b, &loop, more, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    struct scope block = {ir_map_create(b->arena), tile->inner};
    struct listed listed;
    if (reads_early(r)) {
        listed =
            consume_next_listed(r, (struct ring){values[C_KS], values[C_KP]});
        consume_set_listed(r, &block, listed);
        consume_block(r, &block, values, NULL, NULL);
    } else {
        consume_block(r, &block, values, NULL, &listed);
    }
    values[WORD] = listed.word, values[CLASSES] = listed.classes;
    ir_while_end(b, &loop, values, COUNT);
    for (size_t i = 0; i < C_COUNT; i++)
        carried[i] = ir_result(loop.op, i);
    *at =
        (struct listed){ir_result(loop.op, WORD), ir_result(loop.op, CLASSES)};
    if (!consume_has_skips(r))
        consume_release_q(r);
    consume_tail(r, carried);
}

/* S = Q·K^T of the first block of a tile's second run or a later one. */
static MlirValue restart(struct roles *r, MlirValue rings[RING_VALUES]) {
    role_take_turn(r);
    MlirValue s =
        consume_start_qk(r, r->q_slot, (struct ring){rings[0], rings[1]});
    role_pass_turn(r);
    return consume_finish_qk(r, s, rings);
}

/* Behind a run whose last block is `at`: the next own block, or one without
 * classes if there is none.  Replaces the rings. */
static struct listed seek_behind(struct roles *r, struct listed at,
                                 MlirValue rings[RING_VALUES]) {
    enum { WORD = RING_VALUES, CLASSES, COUNT };
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[COUNT] = {i32, i32, i32, i32, i32, i32};
    MlirValue end[COUNT] = {rings[0], rings[1], rings[2],
                            rings[3], at.word,  role_number(r, 0)};
    struct ir_if done = ir_if_begin(b, is_last(r, at.word), types, COUNT, true);
    ir_if_else(b, &done, end, COUNT);
    at = consume_next_listed(r, (struct ring){rings[0], rings[1]});
    consume_seek_own(r, true, &at, rings);
    MlirValue next[COUNT] = {rings[0], rings[1], rings[2],
                             rings[3], at.word,  at.classes};
    ir_if_end(b, &done, next, COUNT);
    for (size_t i = 0; i < RING_VALUES; i++)
        rings[i] = ir_result(done.op, i);
    return (struct listed){ir_result(done.op, WORD),
                           ir_result(done.op, CLASSES)};
}

/* What goes from run to run: the softmax state, rings, and the first block; and
 * into a run only, whether it is not the first one, and its scores. */
enum { R_RINGS = 3, R_WORD = 7, R_CLASSES, R_PASSED };
enum { R_AGAIN = R_PASSED, R_SCORES, R_COUNT };

/* All runs of a tile.  A loop that does its work before its condition. */
static void consume_runs(struct roles *r, const struct scope *tile,
                         struct listed first, MlirValue s,
                         MlirValue carried[C_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue values[R_COUNT], run[C_COUNT] = {{NULL}};
    for (size_t i = 0; i < R_RINGS; i++)
        values[i] = carried[C_ACC + i];
    for (size_t i = 0; i < RING_VALUES; i++)
        values[R_RINGS + i] = carried[C_KS + i];
    values[R_WORD] = first.word, values[R_CLASSES] = first.classes;
    values[R_AGAIN] = ir_const_bool(b, false), values[R_SCORES] = s;
    struct ir_while loop = ir_while_begin_passing(b, values, R_COUNT, R_PASSED);
    for (size_t i = 0; i < R_COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    for (size_t i = 0; i < R_RINGS; i++)
        run[C_ACC + i] = values[i];
    for (size_t i = 0; i < RING_VALUES; i++)
        run[C_KS + i] = values[R_RINGS + i];
    struct listed at = {values[R_WORD], values[R_CLASSES]};
    struct peeled peeled = {values[R_SCORES], values[R_AGAIN]};
    consume_run(r, tile, &peeled, &at, run);
    at = seek_behind(r, at, run + C_KS);
    for (size_t i = 0; i < R_RINGS; i++)
        values[i] = run[C_ACC + i];
    for (size_t i = 0; i < RING_VALUES; i++)
        values[R_RINGS + i] = run[C_KS + i];
    values[R_WORD] = at.word, values[R_CLASSES] = at.classes;
    ir_while_do(b, &loop, consume_is_own(r, at.classes), values, R_PASSED);
    for (size_t i = 0; i < R_PASSED; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    values[R_SCORES] = restart(r, values + R_RINGS);
    values[R_AGAIN] = ir_const_bool(b, true);
    ir_while_end(b, &loop, values, R_COUNT);
    for (size_t i = 0; i < R_RINGS; i++)
        carried[C_ACC + i] = ir_result(loop.op, i);
    for (size_t i = 0; i < RING_VALUES; i++)
        carried[C_KS + i] = ir_result(loop.op, R_RINGS + i);
    consume_release_q(r);
}

void consume_listed(struct roles *r, const struct scope *tile, struct listed at,
                    MlirValue s, MlirValue carried[C_COUNT]) {
    if (consume_has_skips(r))
        consume_runs(r, tile, at, s, carried);
    else
        consume_run(r, tile, &(struct peeled){s, {NULL}}, &at, carried);
}
