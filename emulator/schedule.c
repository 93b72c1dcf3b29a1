/* Which warp of a CTA runs next, and how a warp diverges and meets again.
 *
 * The seed chooses warps, the length of their turns, the order of the two sides
 * of a branch, and the order of asynchronous completions.  Every other seed
 * completes asynchronous work only when no warp can run: the latest moment that
 * the rules allow.
 */
#include "emulator/exec.h"
#include "emulator/report.h"
#include "emulator/trace.h"

uint64_t emu_cta_random(struct emu_cta *cta) {
    uint64_t z = (cta->random += 0x9e3779b97f4a7c15u); /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Splits of the warp that wait for `object` in this way run again. */
static void wake(struct emu_warp *warp, enum wait_kind kind, uint32_t object) {
    for (int i = 0; i < warp->split_count; i++) {
        struct split *s = &warp->splits[i];
        if (!s->in_use || s->wait != kind || s->wait_object != object)
            continue;
        s->wait = WAIT_NONE;
        s->woken = true;
    }
}

void emu_cta_wake(struct emu_cta *cta, enum wait_kind kind, uint32_t object) {
    cta->idle_polls = 0;
    for (int w = 0; w < cta->warp_count; w++)
        wake(&cta->warps[w], kind, object);
}

/* ---- divergence -------------------------------------------------------- */

/* Takes a free place; the number of places bounds the depth of divergence. */
static int32_t new_split(struct emu_warp *warp, uint32_t mask, int32_t pc,
                         int32_t reconverge, int32_t parent) {
    int32_t i = 0;
    while (i < warp->split_count && warp->splits[i].in_use)
        i++;
    if (i == EMU_MAX_SPLITS) {
        emu_report_cta(warp->cta, &warp->cta->grid->module->insts.data[pc],
                       EMU_REPORT_INVALID,
                       "warp %d has more than %d diverged groups", warp->index,
                       EMU_MAX_SPLITS);
        warp->cta->failed = true;
        return -1;
    }
    if (i == warp->split_count)
        warp->split_count++;
    warp->splits[i] = (struct split){.pc = pc,
                                     .reconverge = reconverge,
                                     .mask = mask,
                                     .parent = parent,
                                     .in_use = true};
    if (parent >= 0)
        warp->splits[parent].children++;
    return i;
}

void emu_warp_diverge(struct emu_warp *warp, uint32_t taken, int32_t target,
                      int32_t reconverge) {
    int32_t own = warp->current, next = warp_split(warp)->pc + 1;
    uint32_t rest = warp->splits[own].mask & warp->alive & ~taken;
    struct {
        uint32_t mask;
        int32_t pc;
    } side[2] = {{taken, target}, {rest, next}};
    int first = emu_cta_random(warp->cta) & 1;
    if (target == reconverge && next == reconverge) {
        warp->splits[own].pc = reconverge;
        return;
    }
    bool replace = warp->splits[own].reconverge == reconverge;
    int32_t parent = replace ? warp->splits[own].parent : own, last = -1;
    if (!replace) {
        warp->splits[own].pc = reconverge;
        warp->splits[own].wait = WAIT_CHILDREN;
    }
    for (int i = 0; i < 2; i++) {
        int k = i ^ first;
        if (side[k].pc == reconverge)
            continue; /* these lanes wait in the parent */
        if (replace && last < 0) {
            warp->splits[own].mask = side[k].mask;
            warp->splits[own].pc = side[k].pc;
            last = own;
        } else {
            last =
                new_split(warp, side[k].mask, side[k].pc, reconverge, parent);
        }
    }
    warp->current = last >= 0 ? last : own;
}

void emu_warp_call(struct emu_warp *warp, uint32_t lanes, int32_t pc,
                   int32_t end) {
    int32_t own = warp->current;
    warp->splits[own].wait = WAIT_CHILDREN;
    int32_t child = new_split(warp, lanes, pc, end, own);
    warp->current = child >= 0 ? child : own;
}

/* The split has reached its end; its parent runs when all its children have. */
static void finish_split(struct emu_warp *warp, int32_t index) {
    struct split *s = &warp->splits[index];
    s->in_use = false;
    if (s->parent < 0)
        return;
    struct split *parent = &warp->splits[s->parent];
    if (--parent->children == 0) {
        parent->wait = WAIT_NONE;
        warp->current = s->parent;
    }
}

void emu_warp_exit_lanes(struct emu_warp *warp, uint32_t lanes) {
    warp->alive &= ~lanes;
    if (warp->alive)
        return;
    warp->cta->alive_warps--;
    emu_barrier_warp_exits(warp->cta);
    emu_warp_check_end(warp);
}

/* ---- one warp's turn --------------------------------------------------- */

static bool is_runnable(const struct split *s) {
    return s->in_use && s->wait == WAIT_NONE;
}

/* Makes a runnable split current, a random one where there are several. */
static bool pick_split(struct emu_warp *warp) {
    int32_t count = 0, pick = -1;
    if (warp->split_count == 1)
        return is_runnable(&warp->splits[0]);
    for (int32_t i = 0; i < warp->split_count; i++) {
        if (!is_runnable(&warp->splits[i]))
            continue;
        count++;
        if (pick < 0 || emu_cta_random(warp->cta) % (uint64_t)count == 0)
            pick = i;
    }
    warp->current = pick < 0 ? warp->current : pick;
    return pick >= 0;
}

/* Initialised, not in flight, within the budget: before every instruction. */
static void check_registers(struct emu_warp *warp, const struct emu_inst *inst,
                            uint32_t active) {
    const struct emu_module *module = warp->cta->grid->module;
    for (int i = 0; i < inst->src_count; i++) {
        int32_t reg = inst->src[i].reg;
        if (reg < 0 || !(active & ~warp->init[reg]))
            continue;
        if (check_on(warp->cta, EMU_REPORT_UNINITIALISED_REGISTER))
            emu_report_add(warp, inst, EMU_REPORT_UNINITIALISED_REGISTER,
                           active & ~warp->init[reg], 0,
                           "%s was never written in lanes 0x%08x",
                           module->registers.data[reg].name,
                           active & ~warp->init[reg]);
        warp->init[reg] |= active; /* once is enough */
    }
    if (warp->wgmma.count)
        emu_wgmma_check_registers(warp, inst, active);
    if (warp->reg_budget && inst->live > warp->reg_budget &&
        check_on(warp->cta, EMU_REPORT_REGISTER_BUDGET))
        emu_report_add(warp, inst, EMU_REPORT_REGISTER_BUDGET, active, 0,
                       "%d registers are live here, setmaxnreg left %d",
                       inst->live, warp->reg_budget);
}

/* The lanes whose guard is true; an unwritten guard is a fault too. */
static uint32_t guarded(struct emu_warp *warp, const struct emu_inst *inst,
                        uint32_t lanes) {
    uint32_t mask;
    memcpy(&mask, value_at(warp, inst->guard), sizeof mask);
    uint32_t unknown = lanes & ~warp->init[inst->guard.reg];
    if (unknown && check_on(warp->cta, EMU_REPORT_UNINITIALISED_REGISTER))
        emu_report_add(warp, inst, EMU_REPORT_UNINITIALISED_REGISTER, unknown,
                       0, "the guard was never written in lanes 0x%08x",
                       unknown);
    return lanes & (inst->guard.negated ? ~mask : mask);
}

/* Executes the instruction at the current split's counter. */
static void step(struct emu_warp *warp) {
    struct split *s = warp_split(warp);
    uint32_t lanes = s->mask & warp->alive;
    if (!lanes || s->pc == s->reconverge) {
        finish_split(warp, warp->current);
        return;
    }
    struct emu_cta *cta = warp->cta;
    const struct emu_inst *inst = &cta->grid->module->insts.data[s->pc];
    uint32_t active = inst->guard.reg < 0 ? lanes : guarded(warp, inst, lanes);
    cta->steps++;
    if (!active) {
        s->pc++;
        return;
    }
    check_registers(warp, inst, active);
    if (!s->woken) {
        uint32_t lane_count = (uint32_t)__builtin_popcount(active);
        cta->counters.instructions++;
        cta->counters.lane_instructions += lane_count;
        cta->unit_lanes[inst->unit] += lane_count;
        if (cta->trace)
            emu_trace_issue(cta->trace, warp, inst);
    }
    if (inst->exec(warp, inst, active) != EMU_STEP_NEXT)
        return;
    for (int i = 0; i < inst->dst_count; i++)
        warp->init[inst->dst[i].reg] |= active;
    if (cta->grid->entry->uses_wgmma)
        emu_wgmma_note_writes(warp, inst);
    warp->splits[warp->current].pc++;
}

/* Runs one warp for up to `turn` instructions or until all its splits wait. */
static void run_warp(struct emu_warp *warp, uint64_t turn) {
    while (turn-- > 0 && warp->alive && !warp->cta->failed) {
        if (!is_runnable(&warp->splits[warp->current]) && !pick_split(warp))
            return;
        step(warp);
    }
}

/* ---- the CTA ----------------------------------------------------------- */

/* A random warp that can run; under the timeline the one with the earliest
 * clock. */
static struct emu_warp *pick_warp(struct emu_cta *cta) {
    struct emu_warp *pick = NULL;
    uint64_t count = 0;
    for (int w = 0; w < cta->warp_count; w++) {
        struct emu_warp *warp = &cta->warps[w];
        if (!warp->alive || !pick_split(warp))
            continue;
        count++;
        bool better = cta->trace ? !pick || warp->time < pick->time
                                 : !pick || emu_cta_random(cta) % count == 0;
        if (better)
            pick = warp;
    }
    return pick;
}

/* Pollers look again; false when there are none or all have looked in vain. */
static bool wake_pollers(struct emu_cta *cta) {
    bool any = false;
    for (int w = 0; w < cta->warp_count; w++) {
        struct emu_warp *warp = &cta->warps[w];
        for (int i = 0; i < warp->split_count; i++) {
            struct split *s = &warp->splits[i];
            if (!s->in_use || s->wait != WAIT_POLL)
                continue;
            s->wait = WAIT_NONE;
            s->woken = true;
            any = true;
        }
    }
    return any && ++cta->idle_polls < 2000;
}

bool emu_cta_run(struct emu_cta *cta, uint64_t budget) {
    uint64_t end = cta->steps + budget,
             limit = cta->grid->options->max_instructions;
    while (cta->alive_warps > 0 && !cta->failed && cta->steps < end) {
        struct emu_warp *warp = pick_warp(cta);
        if (!warp) {
            if (emu_cta_complete_pending(cta) || wake_pollers(cta))
                continue;
            emu_report_deadlock(cta, "no warp can run");
            cta->failed = true;
            break;
        }
        if (cta->trace && emu_cta_complete_before(cta, warp->time))
            continue; /* which may have woken an earlier warp */
        uint64_t r = emu_cta_random(cta);
        run_warp(warp, cta->trace ? 1 : (r & 7) == 0 ? 1 : 1 + (r >> 8) % 64);
        if (!cta->late && (r >> 32) % 4 == 0 && !cta->trace)
            emu_cta_complete_pending(cta);
        if (cta->steps > limit) {
            emu_report_deadlock(cta, "the instruction limit is reached");
            cta->failed = true;
        }
    }
    return cta->alive_warps == 0 || cta->failed;
}
