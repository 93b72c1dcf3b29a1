/* pipeline, sm_90a: blocks of a tile that hold nothing for a consumer's rows.
 *
 * All consumers share the copies of K and V, but a causal mask leaves the last
 * blocks of a tile to the consumers with the last rows, and a window the first
 * blocks to those with the first rows.  `tile` says which passes of the key
 * loop are a consumer's own (attn.own_blocks), the classes of a listed block
 * whether it is; in the others it only gives the slots back, as soon as they
 * are full: before that its arrival would count for the block that was in the
 * slot before.  It waits for V behind K as the producer copies them, so that
 * nobody can wait in a circle. */
#include "passes/pipeline-sm90-roles.h"

void role_skip_block(struct roles *r, MlirValue rings[4], bool takes_turn) {
    struct ir_builder *b = &r->b;
    struct ring k = role_ring_at(rings), v = role_ring_at(rings + 2);
    ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    ir_mbarrier_arrive(b, r->k_empty, k.stage, false);
    ir_mbarrier_wait(b, r->v_full, v.stage, v.parity);
    ir_mbarrier_arrive(b, r->v_empty, v.stage, false);
    if (takes_turn) {
        role_take_turn(r);
        role_pass_turn(r);
    }
    role_ring_advance(r, rings, r->stages);
    role_ring_advance(r, rings + 2, r->stages);
}

void role_skip_blocks(struct roles *r, MlirValue begin, MlirValue end,
                      MlirValue rings[4]) {
    struct ir_builder *b = &r->b;
    struct ir_for loop =
        ir_for_begin(b, begin, end, role_number(r, 1), rings, 4);
    for (size_t i = 0; i < 4; i++)
        rings[i] = ir_for_arg(&loop, i);
    role_skip_block(r, rings, true);
    ir_for_end(b, &loop, rings, 4);
    for (size_t i = 0; i < 4; i++)
        rings[i] = ir_result(loop.op, i);
}

/* The first block of a tile takes no turn, its product runs alone. */
void role_skip_tile(struct roles *r, MlirValue count, struct ring q,
                    MlirValue rings[4]) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[4] = {i32, i32, i32, i32};
    MlirValue before[4];
    for (size_t i = 0; i < 4; i++)
        before[i] = rings[i];
    MlirValue some = ir_cmpi(b, IR_SGT, count, role_number(r, 0));
    struct ir_if branch = ir_if_begin(b, some, types, 4, true);
    ir_mbarrier_wait(b, r->q_full, r->q_slot, q.parity);
    ir_mbarrier_arrive(b, r->q_empty, r->q_slot, false);
    role_skip_block(r, rings, false);
    role_skip_blocks(r, role_number(r, 1), count, rings);
    ir_if_else(b, &branch, rings, 4);
    ir_if_end(b, &branch, before, 4);
    for (size_t i = 0; i < 4; i++)
        rings[i] = ir_result(branch.op, i);
}
