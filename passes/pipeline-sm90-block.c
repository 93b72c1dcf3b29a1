/* pipeline, sm_90a: one key block of a consumer.
 *
 * The ops of the key loop's body, with its products issued early: Q·K(j)^T and
 * P·V(j-1) run while the exponentials of a block are computed.
 *
 * Not here: which blocks (pipeline-sm90-consume.c, pipeline-sm90-list.c). */
#include "passes/pipeline-sm90-consume.h"

const char consume_mainloop_title[] = "mainloop: S = Q K(j)^T, O += P V(j-1)";

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
MlirValue consume_start_qk(struct roles *r, MlirValue q_slot, struct ring k) {
    struct ir_builder *b = &r->b;
    MlirValue q = ir_stage(b, r->q_tiles, q_slot);
    MlirValue zero = ir_splat(b, mlirValueGetType(ir_result(r->qk, 0)), 0);
    ir_wgmma_fence(b);
    MlirValue s = ir_wgmma(b, q, ir_stage(b, r->k_tiles, k.stage), zero, true);
    ir_wgmma_commit(b);
    return s;
}

MlirValue consume_finish_qk(struct roles *r, MlirValue s, MlirValue k_ring[2]) {
    s = ir_wgmma_wait(&r->b, s, 0);
    ir_mbarrier_arrive(&r->b, r->k_empty, k_ring[0], false);
    role_ring_advance(r, k_ring, r->stages);
    return s;
}

/* S = Q·K^T, and P·V of the block before while it runs; reads what stands
 * beside K (`listed`, may be NULL); waits for S and gives K back. `in_flight`
 * receives the accumulator. */
static MlirValue issue_qk(struct roles *r, const MlirValue carried[C_COUNT],
                          struct listed *listed, MlirValue *in_flight) {
    struct ir_builder *b = &r->b;
    struct ring k = {carried[C_KS], carried[C_KP]},
                v = {carried[C_VS], carried[C_VP]};
    if (!r->is_list || listed)
        ir_mbarrier_wait(b, r->k_full, k.stage, k.parity);
    role_take_turn(r);
    MlirValue s = consume_start_qk(r, r->q_slot, k);
    *in_flight = issue_pv(r, carried[C_P], carried[C_ACC], v);
    role_pass_turn(r);
    if (listed)
        *listed = consume_read_listed(r, k);
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
        result = result || state || ir_map_has(found, value);
    }
    if (result && !mlirOperationEqual(op, r->entry) &&
        !mlirOperationEqual(op, r->classes))
        ir_add_results(found, op);
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

/* The argument of the key loop's body that carries acc, m or l. */
static MlirValue state_argument(const struct roles *r, int which) {
    size_t number = r->state + (size_t)which + !r->is_list;
    return mlirBlockGetArgument(r->loop_body, (intptr_t)number);
}

/* Enters the maximum and the sum of the blocks before; of a first block the
 * accumulator too, which no product has changed. */
static void map_state(struct roles *r, struct scope *scope,
                      const MlirValue carried[C_COUNT], bool is_first) {
    ir_map_set(scope->inner, state_argument(r, STATE_M), carried[C_M]);
    ir_map_set(scope->inner, state_argument(r, STATE_L), carried[C_L]);
    if (!is_first)
        return;
    ir_map_set(scope->inner, ir_operand(r->pv, 2), carried[C_ACC]);
    ir_map_set(scope->inner, state_argument(r, STATE_ACC), carried[C_ACC]);
}

void consume_block(struct roles *r, struct scope *scope,
                   MlirValue carried[C_COUNT], const struct peeled *peeled,
                   struct listed *late) {
    bool is_first = peeled != NULL;
    MlirValue in_flight = {NULL}, scores = {NULL};
    struct ring own = {carried[C_KS], carried[C_KP]}; /* of this block */
    map_state(r, scope, carried, is_first);
    if (late) {
        scores = issue_qk(r, carried, late, &in_flight);
        consume_set_listed(r, scope, *late);
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
            ir_map_set(scope->inner, state_argument(r, STATE_ACC),
                       finish_pv(r, in_flight, v));
            carried[C_VS] = own.stage, carried[C_VP] = own.parity;
        }
        if (is_first && mlirOperationEqual(op, r->qk)) {
            ir_map_set(scope->inner, ir_result(op, 0), peeled->scores);
        } else if (mlirOperationEqual(op, r->qk)) {
            if (!late)
                scores = issue_qk(r, carried, NULL, &in_flight);
            ir_map_set(scope->inner, ir_result(op, 0), scores);
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

void consume_release_q(struct roles *r) {
    if (mlirOperationIsNull(r->o_store))
        ir_mbarrier_arrive(&r->b, r->q_empty, r->q_slot, false);
}

/* The last P·V. */
void consume_tail(struct roles *r, MlirValue carried[C_COUNT]) {
    struct ring v = {carried[C_VS], carried[C_VP]};
    ir_mbarrier_wait(&r->b, r->v_full, v.stage, v.parity);
    ir_wgmma_fence(&r->b);
    MlirValue acc = issue_pv(r, carried[C_P], carried[C_ACC], v);
    carried[C_ACC] = finish_pv(r, acc, v);
    role_ring_advance(r, carried + C_VS, r->stages);
}
