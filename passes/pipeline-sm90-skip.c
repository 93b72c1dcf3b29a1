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

void role_set_rings(MlirValue rings[4], MlirOperation op) {
    for (size_t i = 0; i < 4; i++)
        rings[i] = ir_result(op, i % 2);
}

void role_skip_block(struct roles *r, MlirValue position[2], bool takes_turn) {
    struct ir_builder *b = &r->b;
    struct ring at = role_ring_at(position);
    ir_mbarrier_wait(b, r->k_full, at.stage, at.parity);
    ir_mbarrier_arrive(b, r->k_empty, at.stage, false);
    ir_mbarrier_wait(b, r->v_full, at.stage, at.parity);
    ir_mbarrier_arrive(b, r->v_empty, at.stage, false);
    if (takes_turn) {
        role_take_turn(r);
        role_pass_turn(r);
    }
    role_ring_advance(r, position, r->stages);
}

void role_skip_blocks(struct roles *r, MlirValue begin, MlirValue end,
                      MlirValue rings[4]) {
    struct ir_builder *b = &r->b;
    struct ir_for loop =
        ir_for_begin(b, begin, end, role_number(r, 1), rings, 2);
    MlirValue position[2] = {ir_for_arg(&loop, 0), ir_for_arg(&loop, 1)};
    role_skip_block(r, position, true);
    ir_for_end(b, &loop, position, 2);
    role_set_rings(rings, loop.op);
}

/* The first block of a tile takes no turn, its product runs alone. */
void role_skip_tile(struct roles *r, MlirValue count, MlirValue rings[4]) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context);
    MlirType types[2] = {i32, i32};
    MlirValue before[2] = {rings[0], rings[1]};
    MlirValue some = ir_cmpi(b, IR_SGT, count, role_number(r, 0));
    struct ir_if branch = ir_if_begin(b, some, types, 2, true);
    role_skip_block(r, rings, false);
    role_skip_blocks(r, role_number(r, 1), count, rings);
    ir_if_else(b, &branch, rings, 2);
    ir_if_end(b, &branch, before, 2);
    role_set_rings(rings, branch.op);
}
