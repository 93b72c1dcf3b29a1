/* Branches, calls, exits, named barriers, and what only takes time. */
#include "emulator/exec.h"
#include "emulator/report.h"

/* The lanes that run here and now. */
static uint32_t split_lanes(struct emu_warp *warp) {
    return warp_split(warp)->mask & warp->alive;
}

/* The scheduler splits the warp when only some of its lanes branch. */
EXEC(bra) {
    uint32_t lanes = split_lanes(warp);
    if (active == lanes) {
        warp_split(warp)->pc = inst->target;
        return EMU_STEP_JUMP;
    }
    if (inst->mods & EMU_MOD_UNI && check_on(warp->cta, EMU_REPORT_CONVERGENCE))
        emu_report_add(warp, inst, EMU_REPORT_CONVERGENCE, active, 0,
                       "bra.uni diverges: lanes 0x%08x of 0x%08x take it",
                       active, lanes);
    emu_warp_diverge(warp, active, inst->target, inst->reconverge);
    return EMU_STEP_JUMP;
}

/* brx.idx: peels one target at a time off the lanes of the split. */
EXEC(brx_idx) {
    uint32_t lanes = split_lanes(warp);
    const union lane32 *index = src32(warp, inst, 0);
    uint32_t first = index->u[__builtin_ctz(active)], same = 0;
    for (int l = 0; l < EMU_LANES; l++)
        same |= (uint32_t)((active >> l & 1) && index->u[l] == first) << l;
    if (first >= (uint32_t)inst->target_count) {
        emu_report_add(warp, inst, EMU_REPORT_INVALID, same, 0,
                       "index %u, the list has %d targets", first,
                       inst->target_count);
        warp->cta->failed = true;
        return EMU_STEP_BLOCK;
    }
    if (same == lanes) {
        warp_split(warp)->pc = inst->targets[first];
        return EMU_STEP_JUMP;
    }
    /* The others execute the same instruction again: diverge to it. */
    warp_split(warp)->pc--;
    emu_warp_diverge(warp, same, inst->targets[first], inst->reconverge);
    return EMU_STEP_JUMP;
}

/* Barriers for the whole CTA no longer wait for warps that are gone. */
EXEC(exit) {
    (void)inst;
    warp_split(warp)->pc++;
    emu_warp_exit_lanes(warp, active);
    return EMU_STEP_JUMP;
}

EXEC(end) {
    return exec_exit(warp, inst, active);
}

/* In an entry the end of the lanes; in a function a branch to its end. */
EXEC(ret) {
    if (inst->target < 0)
        return exec_exit(warp, inst, active);
    return exec_bra(warp, inst, active);
}

EXEC(trap) {
    emu_report_add(warp, inst, EMU_REPORT_TRAP, active, 0, "executed");
    warp->cta->failed = true;
    return EMU_STEP_BLOCK;
}

/* Fences between threads change nothing here: memory is sequentially
 * consistent; barriers and atomics order accesses for the race check. */
EXEC(nop) {
    (void)warp;
    (void)inst;
    (void)active;
    return EMU_STEP_NEXT;
}

/* There is one grid; the wait says from where on the others are complete. */
EXEC(griddep_wait) {
    (void)inst;
    warp->grids_complete |= active;
    return EMU_STEP_NEXT;
}

/* ---- calls ------------------------------------------------------------- */

/* Between .param memory, registers and constants, in either direction. */
static void copy_argument(struct emu_warp *warp, const struct emu_call_arg *to,
                          const struct emu_call_arg *from, uint32_t active) {
    uint32_t stride = warp->cta->grid->module->local_bytes;
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint8_t *base = warp->local + (size_t)l * stride;
        uint8_t *shadow = warp->local_shadow + (size_t)l * stride;
        if (to->size && from->size) {
            memcpy(base + to->offset, base + from->offset, to->size);
            memcpy(shadow + to->offset, shadow + from->offset, to->size);
        } else if (to->size) {
            uint64_t bits = lane_value(warp, from->value, l);
            memcpy(base + to->offset, &bits, to->size < 8 ? to->size : 8);
            memset(shadow + to->offset, 1, to->size);
        } else if (from->size) {
            uint64_t bits = 0;
            memcpy(&bits, base + from->offset, from->size < 8 ? from->size : 8);
            set_lane(warp, to->value, l, bits);
        } else {
            set_lane(warp, to->value, l, lane_value(warp, from->value, l));
        }
    }
    if (!to->size)
        warp->init[to->value.reg] |= active;
}

/* Runs twice: in front of the callee, then (woken) behind it for the
 * results. */
EXEC(call) {
    struct split *s = warp_split(warp);
    const struct emu_function *callee =
        &warp->cta->grid->module->functions.data[inst->target];
    if (s->woken) {
        s->woken = false;
        for (int i = 0; i < inst->result_count; i++)
            copy_argument(warp, &inst->args[i], &inst->formals[i], active);
        return EMU_STEP_NEXT;
    }
    for (int32_t reg = callee->reg_first; reg < callee->reg_end; reg++)
        warp->init[reg] &= ~active;
    for (int i = inst->result_count; i < inst->arg_count; i++)
        copy_argument(warp, &inst->formals[i], &inst->args[i], active);
    s->woken = true;
    emu_warp_call(warp, active, callee->first, callee->end - 1);
    return EMU_STEP_JUMP;
}

/* ---- named barriers ---------------------------------------------------- */

/* Wakes the waiting splits, hands them what the others published, and opens the
 * next phase. */
static void barrier_complete(struct emu_cta *cta, uint32_t id) {
    struct named_barrier *b = &cta->barriers[id];
    for (int w = 0; w < cta->warp_count; w++) {
        struct emu_warp *warp = &cta->warps[w];
        for (int i = 0; i < warp->split_count; i++) {
            struct split *s = &warp->splits[i];
            if (!s->in_use || s->wait != WAIT_BARRIER || s->wait_object != id)
                continue;
            s->wait = WAIT_NONE;
            s->woken = true;
            const struct emu_inst *inst = &cta->grid->module->insts.data[s->pc];
            s->wait_parity = inst->op == EMU_OP_popc  ? b->reduce_popc
                             : inst->op == EMU_OP_and ? b->reduce_and
                                                      : b->reduce_or;
            clock_acquire(warp, &b->clock, &b->fenced);
            warp->time = warp->time > b->time ? warp->time : b->time;
        }
    }
    cta->idle_polls = 0;
    *b = (struct named_barrier){0};
}

void emu_barrier_warp_exits(struct emu_cta *cta) {
    for (uint32_t id = 0; id < EMU_NAMED_BARRIERS; id++) {
        struct named_barrier *b = &cta->barriers[id];
        if (b->whole && b->arrived &&
            b->arrived >= 32u * (uint32_t)cta->alive_warps)
            barrier_complete(cta, id);
    }
}

/* The barrier of operand 0 and the count of operand `count_operand`; false:
 * report made. */
static bool barrier_open(struct emu_warp *warp, const struct emu_inst *inst,
                         uint32_t active, int count_operand, uint32_t *out_id) {
    int lane = __builtin_ctz(active);
    struct emu_cta *cta = warp->cta;
    uint32_t id = src32(warp, inst, 0)->u[lane];
    bool whole = count_operand < 0;
    uint32_t count = whole ? 32u * (uint32_t)cta->alive_warps
                           : src32(warp, inst, count_operand)->u[lane];
    if (id >= EMU_NAMED_BARRIERS || count == 0 || count % 32) {
        emu_report_add(warp, inst, EMU_REPORT_BARRIER, active, 0,
                       "barrier %u with %u threads; barriers are 0 to 15, "
                       "counts multiples of 32",
                       id, count);
        cta->failed = true;
        return false;
    }
    struct named_barrier *b = &cta->barriers[id];
    if (b->expected &&
        (b->whole != whole || (!whole && b->expected != count)) &&
        check_on(cta, EMU_REPORT_BARRIER))
        emu_report_add(warp, inst, EMU_REPORT_BARRIER, active, 0,
                       "barrier %u expects %u threads, others came for %u", id,
                       count, b->expected);
    b->expected = count;
    b->whole = whole;
    *out_id = id;
    return true;
}

/* Adds the warp; true when that completes the phase. */
static bool barrier_arrive(struct emu_warp *warp, const struct emu_inst *inst,
                           uint32_t active, uint32_t id) {
    struct emu_cta *cta = warp->cta;
    struct named_barrier *b = &cta->barriers[id];
    bool converged = active == warp->alive;
    if (!converged && inst->mods & EMU_MOD_ALIGNED &&
        check_on(cta, EMU_REPORT_CONVERGENCE))
        emu_report_add(warp, inst, EMU_REPORT_CONVERGENCE, active, 0,
                       "only lanes 0x%08x of 0x%08x are here", active,
                       warp->alive);
    b->arrived += converged || inst->mods & EMU_MOD_ALIGNED
                      ? 32
                      : (uint32_t)__builtin_popcount(active);
    clock_release_lanes(warp, active, &b->clock, &b->fenced);
    if (converged)
        clock_lanes_meet(warp);
    b->time = b->time > warp->time ? b->time : warp->time;
    cta->counters.barriers++;
    uint32_t expected =
        b->whole ? 32u * (uint32_t)cta->alive_warps : b->expected;
    if (b->arrived > expected && check_on(cta, EMU_REPORT_BARRIER))
        emu_report_add(warp, inst, EMU_REPORT_BARRIER, active, 0,
                       "%u threads arrive at barrier %u, which expects %u",
                       b->arrived, id, expected);
    return b->arrived >= expected;
}

/* Arrives and waits; the instruction runs again when the phase is over. */
static enum emu_step barrier_wait(struct emu_warp *warp,
                                  const struct emu_inst *inst, uint32_t active,
                                  int count_operand) {
    uint32_t id;
    if (!barrier_open(warp, inst, active, count_operand, &id))
        return EMU_STEP_BLOCK;
    struct split *s = warp_split(warp);
    s->wait = WAIT_BARRIER;
    s->wait_object = id;
    if (barrier_arrive(warp, inst, active, id))
        barrier_complete(warp->cta, id);
    return EMU_STEP_BLOCK;
}

EXEC(bar_sync) {
    struct split *s = warp_split(warp);
    if (s->woken) {
        s->woken = false;
        return EMU_STEP_NEXT;
    }
    return barrier_wait(warp, inst, active, inst->src_count > 1 ? 1 : -1);
}

EXEC(bar_arrive) {
    uint32_t id;
    if (!barrier_open(warp, inst, active, 1, &id))
        return EMU_STEP_BLOCK;
    if (barrier_arrive(warp, inst, active, id))
        barrier_complete(warp->cta, id);
    return EMU_STEP_NEXT;
}

/* bar.red d, a[, b], p: p is the last source. */
EXEC(bar_red) {
    struct split *s = warp_split(warp);
    if (!s->woken) {
        uint32_t mask = src_predicate(warp, inst, inst->src_count - 1) & active;
        uint32_t id =
            src32(warp, inst, 0)->u[__builtin_ctz(active)] % EMU_NAMED_BARRIERS;
        struct named_barrier *b = &warp->cta->barriers[id];
        bool first = b->arrived == 0;
        b->reduce_and = (first || b->reduce_and) && mask == active;
        b->reduce_or = b->reduce_or || mask != 0;
        b->reduce_popc += (uint32_t)__builtin_popcount(mask);
        return barrier_wait(warp, inst, active, inst->src_count > 2 ? 1 : -1);
    }
    s->woken = false;
    if (inst->op == EMU_OP_popc) {
        union lane32 value;
        LANES value.u[l] = s->wait_parity;
        commit32(dst32(warp, inst, 0), &value, active);
    } else {
        set_predicate(warp, inst, 0, active, s->wait_parity ? ALL_LANES : 0);
    }
    return EMU_STEP_NEXT;
}

/* Registers a thread that every warp of a CTA starts with: 64 Ki a CTA, in
 * eights (what ptxas gives a kernel that may use them all). */
static int start_registers(const struct emu_cta *cta) {
    int registers = 65536 / (32 * cta->warp_count) / 8 * 8;
    return registers < 256 ? registers : 256;
}

int emu_free_registers(const struct emu_cta *cta) {
    int start = start_registers(cta), left = start * cta->warp_count;
    for (int w = 0; w < cta->warp_count; w++)
        left -= cta->warps[w].reg_budget ? cta->warps[w].reg_budget : start;
    return left;
}

/* setmaxnreg: the budget of the warp's role from here on.  An increase waits
 * until the CTA's pool has enough (PTX ISA, "setmaxnreg"). */
EXEC(setmaxnreg) {
    int64_t count = inst->imm[0];
    if ((count < 24 || count > 256 || count % 8) &&
        check_on(warp->cta, EMU_REPORT_INVALID))
        emu_report_add(
            warp, inst, EMU_REPORT_INVALID, active, 0,
            "%lld registers; a multiple of 8 in [24, 256] is expected",
            (long long)count);
    int now = warp->reg_budget ? warp->reg_budget : start_registers(warp->cta);
    struct split *s = warp_split(warp);
    s->woken = false;
    if (count > now && count - now > emu_free_registers(warp->cta)) {
        s->wait = WAIT_REGISTERS;
        s->wait_object = 0;
        warp->reg_wanted = (int32_t)count;
        return EMU_STEP_BLOCK;
    }
    warp->reg_budget = (int32_t)count;
    if (count < now)
        emu_cta_wake(warp->cta, WAIT_REGISTERS, 0);
    return EMU_STEP_NEXT;
}
