/* pipeline, sm_90a: the producer, one warp that walks the tiles and their key
 * blocks and copies K, Q and V by TMA.
 *
 * Its program is a slice of the kernel: the ops that the rows of loads need.
 * Blocks of a counted loop are known, so that one lane does it all; blocks of a
 * list are found by the whole warp (the first part of the kernel's while loop),
 * then one lane copies.
 *
 *     counted    K(0) Q K(1) V(0) K(2) V(1) ... K(last) V(last-1)
 *     listed     the same, the search for block j+1 going before K(j)
 *     next tile  its coordinates and the search for its first block; V(last);
 *                then as above
 *
 * The slot of V(last) becomes free long after K(last) is copied: what the next
 * tile takes to find runs meanwhile.
 *
 * Beside K of a listed block go the word entry·2 + last and its classes, above
 * them those of the block after it; the word -1 stands for a tile without
 * blocks, which takes a slot of K and one of V. */
#include <assert.h>

#include "passes/pipeline-sm90-roles.h"
#include "passes/schedule-sm90.h"

/* Blocks of list masks are found by a whole warp; then one lane copies. */
static struct ir_if begin_copying(struct roles *r) {
    return r->is_list ? ir_if_begin(&r->b, r->elected, NULL, 0, false)
                      : (struct ir_if){0};
}

static void end_copying(struct roles *r, struct ir_if *branch) {
    if (r->is_list)
        ir_if_end(&r->b, branch, NULL, 0);
}

static int tile_bytes(MlirValue tiles) {
    MlirType type = mlirValueGetType(tiles);
    return (int)(ir_extent(type, 1) * ir_extent(type, 2)) * 2;
}

/* The copy of `load` whose first row is `row` into slot `slot`, announced on
 * `full`. */
static void emit_copy(struct roles *r, struct scope *scope, MlirOperation load,
                      MlirValue row, MlirValue tiles, MlirValue full,
                      MlirValue slot) {
    struct ir_builder *b = &r->b;
    MlirValue src = ir_operand(load, 0);
    MlirValue batch = role_slice(r, scope, ir_operand(load, 1));
    MlirValue head = role_slice(r, scope, ir_operand(load, 2));
    ir_mbarrier_expect_tx(b, full, slot, tile_bytes(tiles));
    MlirOperation copy = ir_tma_load(b, src, batch, head, row,
                                     ir_stage(b, tiles, slot), full, slot);
    ir_set_packed_heads(copy, ir_packed_heads(load));
}

/* Copies a K or V block into its slot once that is empty. */
static void copy_block(struct roles *r, struct scope *scope, bool is_k,
                       struct ring ring, MlirValue row) {
    role_wait_empty(r, is_k ? r->k_empty : r->v_empty, ring);
    emit_copy(r, scope, is_k ? r->k_load : r->v_load, row,
              is_k ? r->k_tiles : r->v_tiles, is_k ? r->k_full : r->v_full,
              ring.stage);
}

/* Copies the tile's rows of Q, a slot for each consumer. */
static void copy_q(struct roles *r, struct scope *scope, struct ring ring) {
    struct ir_builder *b = &r->b;
    for (int i = 0; i < r->consumers; i++) {
        MlirValue consumer = role_number(r, i);
        struct ring slot = {role_q_slot(r, ring.stage, consumer), ring.parity};
        role_wait_empty(r, r->q_empty, slot);
        MlirValue row = ir_addi(b, role_image(scope, ir_operand(r->q_load, 3)),
                                role_number(r, 64 * i));
        emit_copy(r, scope, r->q_load, row, r->q_tiles, r->q_full, slot.stage);
    }
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
    struct ir_if copying = begin_copying(r);
    role_wait_empty(r, r->v_empty, v);
    ir_mbarrier_expect_tx(b, r->v_full, v.stage, tile_bytes(r->v_tiles));
    ir_tma_load(b, ir_operand(r->v_load, 0), late[LATE_BATCH], late[LATE_HEAD],
                late[LATE_ROW], ir_stage(b, r->v_tiles, v.stage), r->v_full,
                v.stage);
    end_copying(r, &copying);
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

/* K(0), Q, then K(i), V(i-1); the last V is left for later.  Nothing for a tile
 * without blocks. */
static void produce_counted(struct roles *r, struct scope *tile,
                            MlirValue carried[P_COUNT]) {
    struct ir_builder *b = &r->b;
    MlirValue count = role_image(tile, ir_operand(r->loop, 1));
    MlirValue zero = role_number(r, 0), one = role_number(r, 1);
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[P_COUNT] = {i32, i32, i32, i32, i32, i32, i32, i32, i32};
    struct ring k = {carried[P_KS], carried[P_KP]},
                v = {carried[P_VS], carried[P_VP]},
                q = {carried[P_QS], carried[P_QP]};
    v = produce_late(r, v, carried + P_ROW);
    carried[P_VS] = v.stage, carried[P_VP] = v.parity;
    carried[P_ROW] = role_number(r, -1);
    struct ir_if some =
        ir_if_begin(b, ir_cmpi(b, IR_SGT, count, zero), types, P_COUNT, true);
    copy_block(r, tile, true, k, counted_row(r, tile, r->k_load, zero));
    k = role_ring_next(r, k, r->stages);
    copy_q(r, tile, q);
    q = role_ring_next(r, q, r->q_stages);
    MlirValue inits[4] = {k.stage, k.parity, v.stage, v.parity};
    struct ir_for loop = ir_for_begin(b, one, count, one, inits, 4);
    k = (struct ring){ir_for_arg(&loop, 0), ir_for_arg(&loop, 1)};
    v = (struct ring){ir_for_arg(&loop, 2), ir_for_arg(&loop, 3)};
    copy_block(r, tile, true, k, counted_row(r, tile, r->k_load, loop.iv));
    k = role_ring_next(r, k, r->stages);
    MlirValue before = ir_subi(b, loop.iv, one);
    copy_block(r, tile, false, v, counted_row(r, tile, r->v_load, before));
    v = role_ring_next(r, v, r->stages);
    ir_for_end(b, &loop, (MlirValue[]){k.stage, k.parity, v.stage, v.parity},
               4);
    MlirValue last = ir_subi(b, count, one);
    MlirValue done[P_COUNT] = {ir_result(loop.op, 0),
                               ir_result(loop.op, 1),
                               ir_result(loop.op, 2),
                               ir_result(loop.op, 3),
                               q.stage,
                               q.parity};
    leave_late(r, tile, counted_row(r, tile, r->v_load, last), done + P_ROW);
    ir_if_else(b, &some, done, P_COUNT);
    ir_if_end(b, &some, carried, P_COUNT);
    for (size_t i = 0; i < P_COUNT; i++)
        carried[i] = ir_result(some.op, i);
}

/* Copies the while loop's search for the next block; `found` receives what it
 * passes on (without the softmax state); returns its condition. */
static MlirValue clone_search(struct roles *r, const struct scope *tile,
                              const MlirValue *args, MlirValue *found) {
    MlirBlock search = ir_region_block(r->loop, 0);
    struct scope scope = {ir_map_create(r->b.arena), tile->inner};
    for (size_t i = 0; i < r->state; i++)
        ir_map_set(scope.inner, mlirBlockGetArgument(search, (intptr_t)i),
                   args[i]);
    MlirOperation op = mlirBlockGetFirstOperation(search);
    for (; !ir_is_op(op, "scf.condition"); op = mlirOperationGetNextInBlock(op))
        role_clone(r, &scope, op);
    for (size_t i = 0; i < r->state; i++)
        found[i] = role_image(&scope, ir_operand(op, i + 1));
    return role_image(&scope, ir_operand(op, 0));
}

/* What the search for blocks carries along: rings, and two blocks under way. */
enum {
    L_KS,
    L_KP,
    L_VS,
    L_VP,
    L_QS,
    L_QP,
    L_ENTRY,   /* found, its K not copied yet; negative: none */
    L_CLASSES, /* of that block; in front of the body of the one found now */
    L_ROW,     /* of that block's keys */
    L_V_ROW,   /* of the block whose V comes next; negative: none.  Before the
                  first search: of the tile before, as are the next two */
    L_V_BATCH,
    L_V_HEAD,
    L_COUNT
};

/* K of the block that was found before, with its entry; then Q behind the first
 * block, else V of the block before.  Behind the first search of a tile nothing
 * was found before: the last V of the tile before.  `after`: classes of the
 * block found now, anything where there is none. */
static void produce_found(struct roles *r, struct scope *tile, MlirValue more,
                          MlirValue after, MlirValue own[L_COUNT]) {
    enum { CHANGED = 6 };
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[CHANGED] = {i32, i32, i32, i32, i32, i32};
    MlirValue zero = role_number(r, 0);
    struct ring k = {own[L_KS], own[L_KP]}, v = {own[L_VS], own[L_VP]},
                q = {own[L_QS], own[L_QP]};
    MlirValue exists = ir_cmpi(b, IR_SGE, own[L_ENTRY], zero);
    struct ir_if found = ir_if_begin(b, exists, types, CHANGED, true);
    MlirValue last = ir_extui(b, ir_xori(b, more, ir_const_bool(b, true)), i32);
    MlirValue word =
        ir_ori(b, ir_shli(b, own[L_ENTRY], role_number(r, 1)), last);
    after = ir_shli(b, after, role_number(r, NEXT_CLASSES));
    MlirValue classes = ir_ori(b, own[L_CLASSES], after);
    MlirValue late = ir_cmpi(b, IR_SGE, own[L_V_ROW], zero);
    struct ir_if copying = begin_copying(r);
    role_wait_empty(r, r->k_empty, k);
    ir_store_element(b, word, r->entries, &k.stage, 1);
    ir_store_element(b, classes, r->entry_classes, &k.stage, 1);
    emit_copy(r, tile, r->k_load, own[L_ROW], r->k_tiles, r->k_full, k.stage);
    end_copying(r, &copying);
    struct ir_if second = ir_if_begin(b, late, NULL, 0, true);
    copying = begin_copying(r);
    copy_block(r, tile, false, v, own[L_V_ROW]);
    end_copying(r, &copying);
    ir_if_else(b, &second, NULL, 0);
    copying = begin_copying(r);
    copy_q(r, tile, q);
    end_copying(r, &copying);
    ir_if_end(b, &second, NULL, 0);
    struct ring next_k = role_ring_next(r, k, r->stages);
    struct ring next_v = role_ring_next(r, v, r->stages);
    struct ring next_q = role_ring_next(r, q, r->q_stages);
    MlirValue rings[CHANGED] = {next_k.stage,
                                next_k.parity,
                                ir_select(b, late, next_v.stage, v.stage),
                                ir_select(b, late, next_v.parity, v.parity),
                                ir_select(b, late, q.stage, next_q.stage),
                                ir_select(b, late, q.parity, next_q.parity)};
    ir_if_else(b, &found, rings, CHANGED);
    struct ring late_v = produce_late(r, v, own + L_V_ROW);
    own[L_VS] = late_v.stage, own[L_VP] = late_v.parity;
    ir_if_end(b, &found, own, CHANGED);
    for (size_t i = 0; i < CHANGED; i++)
        own[i] = ir_result(found.op, i);
    own[L_V_ROW] = own[L_ROW];
}

/* For a tile without blocks: the entry -1, and a slot of V that stays as it is,
 * so that K and V keep step. */
static void produce_nothing(struct roles *r, MlirValue own[L_COUNT]) {
    enum { CHANGED = 4 };
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[CHANGED] = {i32, i32, i32, i32};
    struct ring k = {own[L_KS], own[L_KP]}, v = {own[L_VS], own[L_VP]};
    MlirValue none = ir_cmpi(b, IR_SLT, own[L_V_ROW], role_number(r, 0));
    struct ir_if branch = ir_if_begin(b, none, types, CHANGED, true);
    struct ir_if copying = begin_copying(r);
    role_wait_empty(r, r->k_empty, k);
    ir_store_element(b, role_number(r, -1), r->entries, &k.stage, 1);
    ir_store_element(b, role_number(r, 0), r->entry_classes, &k.stage, 1);
    ir_mbarrier_arrive(b, r->k_full, k.stage, true);
    role_wait_empty(r, r->v_empty, v);
    ir_mbarrier_arrive(b, r->v_full, v.stage, true);
    end_copying(r, &copying);
    struct ring next_k = role_ring_next(r, k, r->stages);
    struct ring next_v = role_ring_next(r, v, r->stages);
    ir_if_else(
        b, &branch,
        (MlirValue[]){next_k.stage, next_k.parity, next_v.stage, next_v.parity},
        CHANGED);
    ir_if_end(b, &branch, (MlirValue[]){k.stage, k.parity, v.stage, v.parity},
              CHANGED);
    for (size_t i = 0; i < CHANGED; i++)
        own[L_KS + i] = ir_result(branch.op, i);
}

/* The body of the while loop behind the search, with the values that it passed
 * on. */
static struct scope search_body(struct roles *r, const struct scope *tile,
                                const MlirValue *passed) {
    struct scope body = {ir_map_create(r->b.arena), tile->inner};
    for (size_t i = 0; i < r->state; i++)
        ir_map_set(body.inner, mlirBlockGetArgument(r->loop_body, (intptr_t)i),
                   passed[i]);
    return body;
}

/* The search runs one block ahead of the copies, so that each entry can say
 * whether it is the tile's last. */
static void produce_listed(struct roles *r, struct scope *tile,
                           MlirValue carried[P_COUNT]) {
    enum { MAX_SEARCH = 16 };
    struct ir_builder *b = &r->b;
    MlirValue values[MAX_SEARCH + L_COUNT], found[MAX_SEARCH + L_COUNT];
    size_t search = r->state, total = search + L_COUNT;
    assert(search <= MAX_SEARCH);
    for (size_t i = 0; i < search; i++)
        values[i] = role_image(tile, ir_operand(r->loop, i));
    for (size_t i = 0; i < L_COUNT; i++)
        values[search + i] = i < P_RINGS ? carried[i] : role_number(r, -1);
    for (size_t i = 0; i < LATE_COUNT; i++)
        values[search + L_V_ROW + i] = carried[P_ROW + i];
    struct ir_while loop = ir_while_begin(b, values, total);
    for (size_t i = 0; i < total; i++)
        found[i] = values[i] = ir_while_arg(&loop, 0, i);
    MlirValue more = clone_search(r, tile, values, found);
    struct scope ahead = search_body(r, tile, found);
    MlirValue after = role_slice(r, &ahead, ir_result(r->classes, 0));
    produce_found(r, tile, more, after, found + search);
    found[search + L_CLASSES] = after;
    ir_while_do(b, &loop, more, found, total);

    for (size_t i = 0; i < total; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    struct scope body = search_body(r, tile, values);
    MlirValue *own = values + search;
    own[L_ENTRY] = role_slice(r, &body, ir_result(r->entry, 0));
    own[L_ROW] = role_slice(r, &body, ir_operand(r->k_load, 3));
    MlirOperation yield = mlirBlockGetTerminator(r->loop_body);
    for (size_t i = 0; i < search; i++)
        values[i] = role_slice(r, &body, ir_operand(yield, i));
    ir_while_end(b, &loop, values, total);

    for (size_t i = 0; i < L_COUNT; i++)
        own[i] = ir_result(loop.op, search + i);
    produce_nothing(r, own);
    for (size_t i = 0; i < P_RINGS; i++)
        carried[i] = own[i];
    leave_late(r, tile, own[L_V_ROW], carried + P_ROW);
}

void role_producer(struct roles *r) {
    struct ir_builder *b = &r->b;
    ir_set_max_registers(
        b, schedule_producer_registers(r->consumers, r->is_list), false);
    MlirValue loads = ir_cmpi(b, IR_EQ, r->warp, role_number(r, 0));
    r->elected = ir_elect(b);
    struct ir_if role = ir_if_begin(
        b, r->is_list ? loads : ir_andi(b, loads, r->elected), NULL, 0, false);
    role_tiles_fix_quotients(r);
    MlirValue zero = role_number(r, 0);
    MlirValue carried[P_COUNT] = {
        zero, zero, zero, zero, zero, zero, role_number(r, -1), zero, zero};
    struct tile_loop loop = role_tiles_begin(
        r, NULL, carried, P_COUNT, "producer: K(0), Q, then K(j+1) and V(j)");
    struct scope tile = role_tiles_head(r, &loop, zero, true);
    for (size_t i = 0; i < P_COUNT; i++)
        carried[i] = role_tiles_arg(&loop, i);
    if (r->is_list)
        produce_listed(r, &tile, carried);
    else
        produce_counted(r, &tile, carried);
    role_tiles_end(r, &loop, NULL, carried);
    for (size_t i = 0; i < P_COUNT; i++)
        carried[i] = role_tiles_result(&loop, i);
    produce_late(r, (struct ring){carried[P_VS], carried[P_VP]},
                 carried + P_ROW);
    ir_if_end(b, &role, NULL, 0);
    r->fixed.inner = NULL;
}
