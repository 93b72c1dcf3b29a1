/* pipeline, sm_90a: the producer, a thread that walks the tiles and their key
 * blocks and copies K, Q and V by TMA.
 *
 * Its program is a slice of the kernel: the ops that the rows of loads need.
 * The blocks of a counted loop are known; those of a list are found by the warp
 * beside it (pipeline-sm90-search.c), which hands over a record for each.
 *
 *     counted    K(0) Q K(1) V(0) K(2) V(1) ... K(last) V(last-1)
 *                coordinates of the next tile; V(last); then as above
 *     listed     the same with V(last) at once: its tiles have coordinates
 *
 * The slot of V(last) becomes free long after K(last) is copied: what the next
 * tile takes to compute runs meanwhile.
 *
 * Beside K of a listed block goes its record, for the consumers; the record of
 * a tile without blocks takes a slot of K and one of V. */
#include "passes/pipeline-sm90-roles.h"
#include "passes/schedule-sm90.h"

static int tile_bytes(MlirValue tiles) {
    MlirType type = mlirValueGetType(tiles);
    return (int)(ir_extent(type, 1) * ir_extent(type, 2)) * 2;
}

/* Where the rows of a copy begin. */
struct place {
    MlirValue batch, head, row;
};

static struct place place_of(struct roles *r, struct scope *scope,
                             MlirOperation load, MlirValue row) {
    MlirValue batch = role_slice(r, scope, ir_operand(load, 1));
    MlirValue head = role_slice(r, scope, ir_operand(load, 2));
    return (struct place){batch, head, row};
}

/* The copy of `load` from `from` into slot `slot`, announced on `full`. */
static void emit_copy(struct roles *r, MlirOperation load, struct place from,
                      MlirValue tiles, MlirValue full, MlirValue slot) {
    struct ir_builder *b = &r->b;
    ir_mbarrier_expect_tx(b, full, slot, tile_bytes(tiles));
    MlirOperation copy =
        ir_tma_load(b, ir_operand(load, 0), from.batch, from.head, from.row,
                    ir_stage(b, tiles, slot), full, slot);
    ir_set_packed_heads(copy, ir_packed_heads(load));
}

static void emit_k(struct roles *r, struct scope *scope, struct ring ring,
                   MlirValue row) {
    emit_copy(r, r->k_load, place_of(r, scope, r->k_load, row), r->k_tiles,
              r->k_full, ring.stage);
}

/* Copies a block into its slot once that is empty. */
static void copy_k(struct roles *r, struct scope *scope, struct ring ring,
                   MlirValue row) {
    role_wait_empty(r, r->k_empty, ring);
    emit_k(r, scope, ring, row);
}

static void copy_v(struct roles *r, struct scope *scope, struct ring ring,
                   MlirValue row) {
    role_wait_empty(r, r->v_empty, ring);
    emit_copy(r, r->v_load, place_of(r, scope, r->v_load, row), r->v_tiles,
              r->v_full, ring.stage);
}

/* Consumer i's slot of Q at a position, once it is empty. */
static MlirValue empty_q_slot(struct roles *r, struct ring ring, int i) {
    MlirValue slot = role_q_slot(r, ring.stage, role_number(r, i));
    role_wait_empty(r, r->q_empty, (struct ring){slot, ring.parity});
    return slot;
}

/* Copies the tile's rows of Q, a slot for each consumer. */
static void copy_q(struct roles *r, struct scope *scope, struct ring ring) {
    struct ir_builder *b = &r->b;
    for (int i = 0; i < r->consumers; i++) {
        MlirValue slot = empty_q_slot(r, ring, i);
        MlirValue row = ir_addi(b, role_image(scope, ir_operand(r->q_load, 3)),
                                role_number(r, 64 * i));
        emit_copy(r, r->q_load, place_of(r, scope, r->q_load, row), r->q_tiles,
                  r->q_full, slot);
    }
}

/* The slots of Q for a tile without blocks, as they are. */
static void pass_q(struct roles *r, struct ring ring) {
    for (int i = 0; i < r->consumers; i++)
        ir_mbarrier_arrive(&r->b, r->q_full, empty_q_slot(r, ring, i), true);
}

/* First row of block number i of a counted loop. */
static MlirValue counted_row(struct roles *r, const struct scope *tile,
                             MlirOperation load, MlirValue i) {
    struct scope scope = {ir_map_create(r->b.arena), tile->inner};
    ir_map_set(scope.inner, mlirBlockGetArgument(r->loop_body, 0), i);
    return role_slice(r, &scope, ir_operand(load, 3));
}

/* What the producer carries along: rings, then the V that is still to be
 * copied: its first row (negative: none), batch and head. */
enum {
    P_KS,
    P_KP,
    P_VS,
    P_VP,
    P_QS,
    P_QP,
    P_RINGS,
    P_ROW = P_RINGS,
    P_BATCH,
    P_HEAD,
    P_COUNT
};

enum { LATE_ROW, LATE_BATCH, LATE_HEAD, LATE_COUNT };

/* Copies the last V of the tile before. */
static struct ring produce_late(struct roles *r, struct ring v,
                                const MlirValue late[LATE_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[2] = {i32, i32};
    MlirValue some = ir_cmpi(b, IR_SGE, late[LATE_ROW], role_number(r, 0));
    struct ir_if branch = ir_if_begin(b, some, types, 2, true);
    role_wait_empty(r, r->v_empty, v);
    struct place from = {late[LATE_BATCH], late[LATE_HEAD], late[LATE_ROW]};
    emit_copy(r, r->v_load, from, r->v_tiles, r->v_full, v.stage);
    struct ring next = role_ring_next(r, v, r->stages);
    ir_if_else(b, &branch, (MlirValue[]){next.stage, next.parity}, 2);
    ir_if_end(b, &branch, (MlirValue[]){v.stage, v.parity}, 2);
    return (struct ring){ir_result(branch.op, 0), ir_result(branch.op, 1)};
}

/* Row, batch and head of the V that a tile leaves behind. */
static void leave_late(struct roles *r, struct scope *tile, MlirValue row,
                       MlirValue late[LATE_COUNT]) {
    late[LATE_ROW] = row;
    late[LATE_BATCH] = role_slice(r, tile, ir_operand(r->v_load, 1));
    late[LATE_HEAD] = role_slice(r, tile, ir_operand(r->v_load, 2));
}

/* K(0), Q, then K(i), V(i-1); the last V is left for later.  For a tile without
 * blocks the slots of Q alone. */
static void produce_counted(struct roles *r, struct scope *tile,
                            MlirValue carried[P_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue count = role_image(tile, ir_operand(r->loop, 1));
    MlirValue zero = role_number(r, 0), one = role_number(r, 1);
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[P_COUNT] = {i32, i32, i32, i32, i32, i32, i32, i32, i32};
    MlirValue none[P_COUNT];
    struct ring k = {carried[P_KS], carried[P_KP]},
                v = {carried[P_VS], carried[P_VP]},
                q = {carried[P_QS], carried[P_QP]};
    v = produce_late(r, v, carried + P_ROW);
    carried[P_VS] = v.stage, carried[P_VP] = v.parity;
    carried[P_ROW] = role_number(r, -1);
    role_ring_advance(r, carried + P_QS, r->q_stages);
    for (size_t i = 0; i < P_COUNT; i++)
        none[i] = carried[i];
    struct ir_if some =
        ir_if_begin(b, ir_cmpi(b, IR_SGT, count, zero), types, P_COUNT, true);
    copy_k(r, tile, k, counted_row(r, tile, r->k_load, zero));
    k = role_ring_next(r, k, r->stages);
    copy_q(r, tile, q);
    MlirValue inits[4] = {k.stage, k.parity, v.stage, v.parity};
    struct ir_for loop = ir_for_begin(b, one, count, one, inits, 4);
    k = (struct ring){ir_for_arg(&loop, 0), ir_for_arg(&loop, 1)};
    v = (struct ring){ir_for_arg(&loop, 2), ir_for_arg(&loop, 3)};
    copy_k(r, tile, k, counted_row(r, tile, r->k_load, loop.iv));
    k = role_ring_next(r, k, r->stages);
    MlirValue before = ir_subi(b, loop.iv, one);
    copy_v(r, tile, v, counted_row(r, tile, r->v_load, before));
    v = role_ring_next(r, v, r->stages);
    ir_for_end(b, &loop, (MlirValue[]){k.stage, k.parity, v.stage, v.parity},
               4);
    MlirValue last = ir_subi(b, count, one);
    MlirValue done[P_COUNT] = {ir_result(loop.op, 0), ir_result(loop.op, 1),
                               ir_result(loop.op, 2), ir_result(loop.op, 3),
                               carried[P_QS],         carried[P_QP]};
    leave_late(r, tile, counted_row(r, tile, r->v_load, last), done + P_ROW);
    ir_if_else(b, &some, done, P_COUNT);
    pass_q(r, q);
    ir_if_end(b, &some, none, P_COUNT);
    for (size_t i = 0; i < P_COUNT; i++)
        carried[i] = ir_result(some.op, i);
}

/* ---- Listed blocks ------------------------------------------------------- */

/* The rings of a copier of listed blocks; the last one is that of the search.
 */
enum { L_KS, L_KP, L_VS, L_VP, L_QS, L_QP, L_FS, L_FP, L_COUNT };

/* First row of the block of a record. */
static MlirValue listed_row(struct roles *r, const struct scope *tile,
                            MlirOperation load, MlirValue word) {
    struct scope scope = {ir_map_create(r->b.arena), tile->inner};
    ir_map_set(scope.inner, ir_result(r->entry, 0),
               ir_shrui(&r->b, word, role_number(r, 1)));
    return role_slice(r, &scope, ir_operand(load, 3));
}

/* The record of the next K beside its slot, once that is empty. */
static void put_record(struct roles *r, struct ring k, struct listed listed) {
    role_wait_empty(r, r->k_empty, k);
    ir_store_element(&r->b, listed.word, r->entries, &k.stage, 1);
    ir_store_element(&r->b, listed.classes, r->entry_classes, &k.stage, 1);
}

/* K of a record with the record. */
static void copy_listed_k(struct roles *r, struct scope *tile, MlirValue *rings,
                          struct listed listed) {
    struct ring k = role_ring_at(rings + L_KS);
    put_record(r, k, listed);
    emit_k(r, tile, k, listed_row(r, tile, r->k_load, listed.word));
    role_ring_advance(r, rings + L_KS, r->stages);
}

static void copy_listed_v(struct roles *r, struct scope *tile, MlirValue *rings,
                          MlirValue word) {
    copy_v(r, tile, role_ring_at(rings + L_VS),
           listed_row(r, tile, r->v_load, word));
    role_ring_advance(r, rings + L_VS, r->stages);
}

/* For a tile without blocks: the record -1, and slots of V and Q that stay as
 * they are, so that the rings keep step. */
static void produce_nothing(struct roles *r, MlirValue *rings,
                            struct listed listed) {
    struct ir_builder *b = &r->b;
    struct ring k = role_ring_at(rings + L_KS), v = role_ring_at(rings + L_VS);
    put_record(r, k, listed);
    ir_mbarrier_arrive(b, r->k_full, k.stage, true);
    pass_q(r, role_ring_at(rings + L_QS));
    role_wait_empty(r, r->v_empty, v);
    ir_mbarrier_arrive(b, r->v_full, v.stage, true);
    role_ring_advance(r, rings + L_KS, r->stages);
    role_ring_advance(r, rings + L_VS, r->stages);
    role_ring_advance(r, rings + L_QS, r->q_stages);
}

/* K(0), Q, then K(j), V(j-1), V(last) of the records of a tile. */
static void produce_blocks(struct roles *r, struct scope *tile,
                           MlirValue *rings, struct listed first) {
    enum { WORD = L_COUNT, COUNT };
    struct ir_builder *b = &r->b;
    MlirValue values[COUNT];
    copy_listed_k(r, tile, rings, first);
    copy_q(r, tile, role_ring_at(rings + L_QS));
    role_ring_advance(r, rings + L_QS, r->q_stages);
    for (size_t i = 0; i < L_COUNT; i++)
        values[i] = rings[i];
    values[WORD] = first.word;
    struct ir_while loop = ir_while_begin(b, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue last = ir_andi(b, values[WORD], role_number(r, 1));
    MlirValue more = ir_cmpi(b, IR_EQ, last, role_number(r, 0));
    ir_while_do(b, &loop, more, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    struct listed next = role_next_found(r, values + L_FS);
    copy_listed_k(r, tile, values, next);
    copy_listed_v(r, tile, values, values[WORD]);
    values[WORD] = next.word;
    ir_while_end(b, &loop, values, COUNT);
    for (size_t i = 0; i < L_COUNT; i++)
        rings[i] = ir_result(loop.op, i);
    copy_listed_v(r, tile, rings, ir_result(loop.op, WORD));
}

static void produce_listed(struct roles *r, struct scope *tile,
                           MlirValue rings[L_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[L_COUNT] = {i32, i32, i32, i32, i32, i32, i32, i32};
    MlirValue none[L_COUNT];
    struct listed first = role_next_found(r, rings + L_FS);
    for (size_t i = 0; i < L_COUNT; i++)
        none[i] = rings[i];
    MlirValue some = ir_cmpi(b, IR_SGE, first.word, role_number(r, 0));
    struct ir_if branch = ir_if_begin(b, some, types, L_COUNT, true);
    produce_blocks(r, tile, rings, first);
    ir_if_else(b, &branch, rings, L_COUNT);
    produce_nothing(r, none, first);
    ir_if_end(b, &branch, none, L_COUNT);
    for (size_t i = 0; i < L_COUNT; i++)
        rings[i] = ir_result(branch.op, i);
}

/* ---- The warp ------------------------------------------------------------ */

/* The copier beside a searching warp, whose tiles it takes like a consumer. */
static void copy_found(struct roles *r) {
    MlirValue zero = role_number(r, 0), rings[L_COUNT];
    for (size_t i = 0; i < L_COUNT; i++)
        rings[i] = zero;
    struct tile_loop at = role_tiles_first(r);
    struct tile_loop loop =
        role_tiles_begin(r, &at, rings, L_COUNT,
                         "producer: K(0), Q, then K(j+1) and V(j) as found");
    struct scope tile = role_tiles_head(r, &loop, zero, false);
    for (size_t i = 0; i < L_COUNT; i++)
        rings[i] = role_tiles_arg(&loop, i);
    produce_listed(r, &tile, rings);
    at = role_tiles_next(r, &loop);
    role_tiles_end(r, &loop, &at, rings);
}

static void copy_counted(struct roles *r) {
    MlirValue zero = role_number(r, 0);
    MlirValue carried[P_COUNT] = {
        zero, zero, zero, zero, zero, zero, role_number(r, -1), zero, zero};
    struct tile_loop loop = role_tiles_begin(
        r, NULL, carried, P_COUNT, "producer: K(0), Q, then K(j+1) and V(j)");
    struct scope tile = role_tiles_head(r, &loop, zero, true);
    for (size_t i = 0; i < P_COUNT; i++)
        carried[i] = role_tiles_arg(&loop, i);
    produce_counted(r, &tile, carried);
    role_tiles_end(r, &loop, NULL, carried);
    for (size_t i = 0; i < P_COUNT; i++)
        carried[i] = role_tiles_result(&loop, i);
    produce_late(r, (struct ring){carried[P_VS], carried[P_VP]},
                 carried + P_ROW);
}

static MlirValue is_warp(struct roles *r, int warp) {
    return ir_cmpi(&r->b, IR_EQ, r->warp, role_number(r, warp));
}

void role_producer(struct roles *r) {
    struct ir_builder *b = &r->b;
    ir_set_max_registers(
        b, schedule_producer_registers(r->consumers, r->is_list), false);
    r->elected = ir_elect(b);
    MlirValue copies = ir_andi(b, is_warp(r, 0), r->elected);
    struct ir_if role = ir_if_begin(b, copies, NULL, 0, false);
    role_tiles_fix_quotients(r);
    r->one_thread = true;
    if (r->is_list)
        copy_found(r);
    else
        copy_counted(r);
    r->one_thread = false;
    r->fixed.inner = NULL;
    ir_if_end(b, &role, NULL, 0);
    if (!r->is_list)
        return;
    struct ir_if search = ir_if_begin(b, is_warp(r, 1), NULL, 0, false);
    role_tiles_fix_quotients(r);
    role_search(r);
    r->fixed.inner = NULL;
    ir_if_end(b, &search, NULL, 0);
}
