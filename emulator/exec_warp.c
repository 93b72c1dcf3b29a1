/* Exchange between the lanes of a warp: shfl, vote, match, redux, elect.
 *
 * The member mask names the lanes that take part.  Hardware waits for those
 * that are elsewhere and gives garbage for those that are gone; here either is
 * a report, since the compiler's kernels are converged at every such
 * instruction.
 */
#include "emulator/exec.h"

/* The lanes of the member mask operand of each active lane; reports lanes that
 * are not here.  Returns the lanes that do take part. */
static uint32_t members(struct emu_warp *warp, const struct emu_inst *inst,
                        uint32_t active, int operand) {
    const union lane32 *mask = src32(warp, inst, operand);
    uint32_t named = mask->u[__builtin_ctz(active)];
    uint32_t existing =
        warp->cta->grid->threads - (uint32_t)warp->index * 32 >= 32
            ? ALL_LANES
            : (1u << (warp->cta->grid->threads - (uint32_t)warp->index * 32)) -
                  1;
    uint32_t missing = named & existing & ~active;
    if (missing && check_on(warp->cta, EMU_REPORT_CONVERGENCE))
        emu_report_add(
            warp, inst, EMU_REPORT_CONVERGENCE, missing, 0,
            "the member mask 0x%08x names lanes 0x%08x that are not here "
            "(active: 0x%08x, exited: 0x%08x)",
            named, missing, active, existing & ~warp->alive);
    uint32_t unnamed = active & ~named;
    if (unnamed && check_on(warp->cta, EMU_REPORT_CONVERGENCE))
        emu_report_add(
            warp, inst, EMU_REPORT_CONVERGENCE, unnamed, 0,
            "lanes 0x%08x execute it without being in the member mask 0x%08x",
            unnamed, named);
    return named & active;
}

/* shfl.sync d[|p], a, b, c, membermask: ISA, shfl.sync, semantics. */
EXEC(shfl) {
    uint32_t present = members(warp, inst, active, 3), valid = 0;
    const union lane32 *a = src32(warp, inst, 0), *b = src32(warp, inst, 1);
    const union lane32 *c = src32(warp, inst, 2);
    union lane32 value;
    for (int l = 0; l < EMU_LANES; l++) {
        uint32_t segment = c->u[l] >> 8 & 31, clamp = c->u[l] & 31,
                 lane = (uint32_t)l;
        uint32_t high = (lane & segment) | (clamp & ~segment),
                 low = lane & segment;
        uint32_t amount = b->u[l] & 31, from = 0;
        bool ok = false;
        if (inst->op == EMU_OP_up) {
            from = lane - amount;
            ok = (int32_t)from >= (int32_t)high;
        } else if (inst->op == EMU_OP_down) {
            from = lane + amount;
            ok = from <= high;
        } else if (inst->op == EMU_OP_bfly) {
            from = lane ^ amount;
            ok = from <= high;
        } else {
            from = low | (amount & ~segment);
            ok = from <= high;
        }
        from = ok ? from & 31 : lane;
        value.u[l] = a->u[from];
        valid |= (uint32_t)ok << l;
        if ((active >> l & 1) && !(present >> from & 1) && from != lane &&
            check_on(warp->cta, EMU_REPORT_CONVERGENCE))
            emu_report_add(warp, inst, EMU_REPORT_CONVERGENCE, 1u << l, 0,
                           "reads lane %u, which does not take part", from);
    }
    commit32(dst32(warp, inst, 0), &value, active);
    if (inst->dst_count > 1 && inst->dst[1].reg != EMU_REG_SINK)
        set_predicate(warp, inst, 1, active, valid);
    return EMU_STEP_NEXT;
}

/* Lanes that are not here count for nothing. */
EXEC(vote) {
    uint32_t present = members(warp, inst, active, inst->src_count - 1);
    uint32_t truth = src_predicate(warp, inst, 0) & present;
    if (inst->op == EMU_OP_ballot) {
        union lane32 value;
        LANES value.u[l] = truth;
        commit32(dst32(warp, inst, 0), &value, active);
        return EMU_STEP_NEXT;
    }
    bool result = inst->op == EMU_OP_all   ? truth == present
                  : inst->op == EMU_OP_any ? truth != 0
                                           : truth == 0 || truth == present;
    set_predicate(warp, inst, 0, active, result ? ALL_LANES : 0);
    return EMU_STEP_NEXT;
}

/* match.any: the lanes with the same value; match.all: all of them, or none. */
EXEC(match) {
    uint32_t present = members(warp, inst, active, 1), agree = 0;
    union lane32 value = {{0}};
    for (int l = 0; l < EMU_LANES; l++) {
        for (int k = 0; k < EMU_LANES; k++)
            if ((present >> l & present >> k & 1) &&
                lane_value(warp, inst->src[0], l) ==
                    lane_value(warp, inst->src[0], k))
                value.u[l] |= 1u << k;
    }
    if (inst->op == EMU_OP_all) {
        agree = value.u[__builtin_ctz(active)] == present ? ALL_LANES : 0;
        LANES value.u[l] = present & agree;
        if (inst->dst_count > 1 && inst->dst[1].reg != EMU_REG_SINK)
            set_predicate(warp, inst, 1, active, agree);
    }
    commit32(dst32(warp, inst, 0), &value, active);
    return EMU_STEP_NEXT;
}

/* All members get the reduction of all members. */
EXEC(redux) {
    uint32_t present = members(warp, inst, active, 1), result = 0;
    const union lane32 *a = src32(warp, inst, 0);
    bool first = true, is_signed = inst->type == EMU_TYPE_s32;
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(present >> l & 1))
            continue;
        uint32_t x = a->u[l];
        bool less = is_signed ? (int32_t)x < (int32_t)result : x < result;
        if (first)
            result = x;
        else if (inst->op == EMU_OP_add)
            result += x;
        else if (inst->op == EMU_OP_min)
            result = less ? x : result;
        else if (inst->op == EMU_OP_max)
            result = less ? result : x;
        else if (inst->op == EMU_OP_and)
            result &= x;
        else if (inst->op == EMU_OP_or)
            result |= x;
        else
            result ^= x;
        first = false;
    }
    union lane32 value;
    LANES value.u[l] = result;
    commit32(dst32(warp, inst, 0), &value, active);
    return EMU_STEP_NEXT;
}

/* elect.sync d|p, membermask: the lowest lane, as hardware picks it. */
EXEC(elect) {
    uint32_t present = members(warp, inst, active, 0);
    uint32_t leader = present ? (uint32_t)__builtin_ctz(present) : 0;
    if (inst->dst[0].reg != EMU_REG_SINK) {
        union lane32 value;
        LANES value.u[l] = leader;
        commit32(dst32(warp, inst, 0), &value, active);
    }
    set_predicate(warp, inst, 1, active, present & (1u << leader));
    return EMU_STEP_NEXT;
}

EXEC(activemask) {
    union lane32 value;
    LANES value.u[l] = active;
    commit32(dst32(warp, inst, 0), &value, active);
    return EMU_STEP_NEXT;
}

EXEC(bar_warp_sync) {
    members(warp, inst, active, 0);
    if (active == warp->alive)
        clock_lanes_meet(warp);
    return EMU_STEP_NEXT;
}
