/* mbarrier objects: phases, arrivals, transaction bytes.
 *
 * An object is 8 bytes of shared memory.  What it holds is kept beside memory,
 * and an ordinary write over the bytes of a live object is reported. Completing
 * a phase releases what every arrival has published; a successful wait acquires
 * it.
 */
#include "emulator/access.h"
#include "emulator/exec.h"

enum { MBARRIER_MAX_COUNT = (1 << 20) - 1 };

struct mbarrier *emu_mbarrier_find(struct emu_cta *cta, uint32_t address) {
    for (size_t i = 0; i < cta->mbarriers.count; i++)
        if (cta->mbarriers.data[i].live &&
            cta->mbarriers.data[i].address == address)
            return &cta->mbarriers.data[i];
    return NULL;
}

struct mbarrier *emu_mbarrier_get(struct emu_warp *warp,
                                  const struct emu_inst *inst, uint32_t active,
                                  uint32_t address) {
    struct mbarrier *barrier = emu_mbarrier_find(warp->cta, address);
    if (!barrier && check_on(warp->cta, EMU_REPORT_BARRIER))
        emu_report_add(warp, inst, EMU_REPORT_BARRIER, active, address,
                       "there is no initialised mbarrier at shared address %u",
                       address);
    return barrier;
}

/* The shared address of operand `i`, the same in all active lanes. */
static uint32_t barrier_address(struct emu_warp *warp,
                                const struct emu_inst *inst, uint32_t active,
                                int i, int disp) {
    int l = __builtin_ctz(active);
    uint64_t address =
                 lane_value(warp, inst->src[i], l) + (uint64_t)inst->disp[disp],
             offset;
    if (inst->src[i].width == 8 &&
        emu_access_resolve(address, &offset) == EMU_SPACE_SHARED)
        return (uint32_t)offset;
    return (uint32_t)address;
}

/* The object's bytes count as written by synchronisation, never as a race. */
static void touch(struct emu_warp *warp, const struct emu_inst *inst,
                  uint32_t address) {
    struct access access = emu_access_plain(warp, inst);
    access.is_sync = true;
    emu_access_shared_range(&access, 0, address, 8, 8, true);
}

/* Each active lane makes an object; initialising a live one is a fault. */
EXEC(mbarrier_init) {
    for (uint32_t left = active; left; left &= left - 1) {
        uint32_t lane = left & -left;
        int l = __builtin_ctz(left);
        uint32_t address = barrier_address(warp, inst, lane, 0, 0);
        uint32_t count = src32(warp, inst, 1)->u[l];
        if (count == 0 || count > MBARRIER_MAX_COUNT)
            emu_report_add(warp, inst, EMU_REPORT_BARRIER, lane, address,
                           "an mbarrier for %u arrivals", count);
        if (emu_mbarrier_find(warp->cta, address) &&
            check_on(warp->cta, EMU_REPORT_BARRIER))
            emu_report_add(warp, inst, EMU_REPORT_BARRIER, lane, address,
                           "the mbarrier at shared address %u is live already",
                           address);
        touch(warp, inst, address);
        struct mbarrier *b = emu_mbarrier_find(warp->cta, address);
        struct mbarrier fresh = {.address = address,
                                 .live = true,
                                 .expected = count,
                                 .pending = count};
        if (b)
            *b = fresh;
        else
            vec_push(warp->cta->arena, &warp->cta->mbarriers, fresh);
    }
    return EMU_STEP_NEXT;
}

/* The memory is ordinary again. */
EXEC(mbarrier_inval) {
    uint32_t address = barrier_address(warp, inst, active, 0, 0);
    struct mbarrier *b = emu_mbarrier_get(warp, inst, active, address);
    if (b)
        b->live = false;
    return EMU_STEP_NEXT;
}

/* Ends the phase when neither arrivals nor bytes are missing. */
static void try_complete(struct emu_cta *cta, struct mbarrier *b) {
    if (b->pending != 0 || b->tx != 0)
        return;
    b->phase++;
    b->pending = b->expected;
    b->released = b->arriving;
    b->released_fenced = b->arriving_fenced;
    b->released_time = b->arriving_time;
    emu_cta_wake(cta, WAIT_MBARRIER, b->address);
    emu_cta_wake(cta, WAIT_POLL, b->address);
}

void emu_mbarrier_arrive(struct emu_warp *warp, const struct emu_inst *inst,
                         struct mbarrier *b, uint32_t lanes, uint32_t together,
                         uint32_t count) {
    struct emu_cta *cta = warp->cta;
    if (count > b->pending) {
        if (check_on(cta, EMU_REPORT_BARRIER))
            emu_report_add(warp, inst, EMU_REPORT_BARRIER, lanes, b->address,
                           "%u arrivals at the mbarrier at %u, whose phase %u "
                           "expects %u more",
                           count, b->address, b->phase, b->pending);
        count = b->pending;
    }
    b->pending -= count;
    clock_release_lanes(warp, together, &b->arriving, &b->arriving_fenced);
    b->arriving_time =
        b->arriving_time > warp->time ? b->arriving_time : warp->time;
    cta->counters.barriers++;
    try_complete(cta, b);
}

void emu_mbarrier_complete_tx(struct emu_cta *cta, struct mbarrier *b,
                              uint32_t bytes, uint32_t async_clock) {
    b->tx -= bytes;
    uint32_t *seen = &b->arriving.at[EMU_AGENT_ASYNC];
    *seen = async_clock > *seen ? async_clock : *seen;
    try_complete(cta, b);
}

/* The token of the current phase: its number, so that test_wait can tell. */
static void return_state(struct emu_warp *warp, const struct emu_inst *inst,
                         uint32_t lanes, uint32_t phase) {
    if (inst->dst_count == 0 || inst->dst[0].reg == EMU_REG_SINK)
        return;
    for (int l = 0; l < EMU_LANES; l++)
        if (lanes >> l & 1)
            set_lane(warp, inst->dst[0], l, phase);
}

/* mbarrier.arrive [addr]{, count}: each active lane arrives. */
EXEC(mbarrier_arrive) {
    for (uint32_t left = active; left; left &= left - 1) {
        uint32_t lane = left & -left;
        uint32_t address = barrier_address(warp, inst, lane, 0, 0);
        struct mbarrier *b = emu_mbarrier_get(warp, inst, lane, address);
        if (!b)
            return EMU_STEP_NEXT;
        uint32_t count = inst->src_count > 1
                             ? src32(warp, inst, 1)->u[__builtin_ctz(left)]
                             : 1;
        return_state(warp, inst, lane, b->phase);
        emu_mbarrier_arrive(warp, inst, b, lane, active, count);
    }
    return EMU_STEP_NEXT;
}

/* Bytes may arrive before they are expected: the count is signed. */
EXEC(mbarrier_expect_tx) {
    for (uint32_t left = active; left; left &= left - 1) {
        uint32_t lane = left & -left;
        struct mbarrier *b = emu_mbarrier_get(
            warp, inst, lane, barrier_address(warp, inst, lane, 0, 0));
        if (b)
            b->tx += src32(warp, inst, 1)->u[__builtin_ctz(left)];
    }
    return EMU_STEP_NEXT;
}

EXEC(mbarrier_arrive_expect_tx) {
    for (uint32_t left = active; left; left &= left - 1) {
        uint32_t lane = left & -left;
        struct mbarrier *b = emu_mbarrier_get(
            warp, inst, lane, barrier_address(warp, inst, lane, 0, 0));
        if (!b)
            return EMU_STEP_NEXT;
        b->tx += src32(warp, inst, 1)->u[__builtin_ctz(left)];
        return_state(warp, inst, lane, b->phase);
        emu_mbarrier_arrive(warp, inst, b, lane, active, 1);
    }
    return EMU_STEP_NEXT;
}

/* Whether the awaited phase is over: the one of that parity, or of that
 * token. */
static bool phase_done(const struct mbarrier *b, bool parity,
                       uint64_t operand) {
    return parity ? (b->phase & 1) != (operand & 1)
                  : b->phase != (uint32_t)operand;
}

/* test_wait and try_wait.  try_wait suspends until the phase completes; by the
 * seed it sometimes gives up first, as its time limit allows.  test_wait that
 * fails lets the others run before it looks again. */
static enum emu_step wait_phase(struct emu_warp *warp,
                                const struct emu_inst *inst, uint32_t active,
                                enum wait_kind kind) {
    struct split *s = warp_split(warp);
    int l = __builtin_ctz(active);
    uint32_t address = barrier_address(warp, inst, active, 0, 0);
    uint64_t operand = lane_value(warp, inst->src[1], l);
    bool parity = inst->mods & EMU_MOD_PARITY, woken = s->woken;
    struct mbarrier *b = emu_mbarrier_get(warp, inst, active, address);
    s->woken = false;
    bool done = !b || phase_done(b, parity, operand);
    bool gives_up = kind == WAIT_POLL
                        ? woken
                        : !woken && emu_cta_random(warp->cta) % 8 == 0;
    if (!done && (!gives_up || warp->cta->trace)) {
        s->wait = kind;
        s->wait_object = address;
        s->wait_parity = (uint32_t)operand & 1;
        return EMU_STEP_BLOCK;
    }
    if (done && b) {
        clock_acquire(warp, &b->released, &b->released_fenced);
        warp->time =
            warp->time > b->released_time ? warp->time : b->released_time;
    }
    set_predicate(warp, inst, 0, active, done ? ALL_LANES : 0);
    return EMU_STEP_NEXT;
}
EXEC(mbarrier_test_wait) {
    return wait_phase(warp, inst, active, WAIT_POLL);
}
EXEC(mbarrier_try_wait) {
    return wait_phase(warp, inst, active, WAIT_MBARRIER);
}

/* ---- fences ------------------------------------------------------------ */

/* fence.proxy.async: all that the warp knows of is now visible to the async
 * proxy; a later write has a later clock. */
EXEC(fence_proxy_async) {
    (void)inst;
    (void)active;
    clock_join(&warp->fenced, &warp->clock);
    warp->clock.at[warp->index]++;
    for (size_t i = 0; i < warp->cta->mbarriers.count; i++)
        warp->cta->mbarriers.data[i].fenced = true;
    return EMU_STEP_NEXT;
}

/* fence.mbarrier_init: the initialisations are visible to the async proxy. */
EXEC(fence_mbarrier_init) {
    (void)inst;
    (void)active;
    for (size_t i = 0; i < warp->cta->mbarriers.count; i++)
        warp->cta->mbarriers.data[i].fenced = true;
    return EMU_STEP_NEXT;
}

/* barrier.cluster in a cluster of one CTA: a barrier of its own for all
 * threads, with arrival and wait apart. */
static bool cluster_arrived(struct emu_warp *warp, uint32_t active) {
    struct emu_cta *cta = warp->cta;
    cta->cluster_arrived += (uint32_t)__builtin_popcount(active);
    clock_release(warp, &cta->cluster_clock, &cta->cluster_fenced);
    if (cta->cluster_arrived < cta->grid->threads)
        return false;
    cta->cluster_arrived = 0;
    cta->cluster_phase++;
    cta->cluster_released = cta->cluster_clock;
    cta->cluster_released_fenced = cta->cluster_fenced;
    return true;
}

/* The phase is remembered, for a wait that comes after it is over. */
EXEC(cluster_arrive) {
    (void)inst;
    warp->cluster_phase = warp->cta->cluster_phase;
    if (cluster_arrived(warp, active))
        emu_cta_wake(warp->cta, WAIT_CLUSTER, 0);
    return EMU_STEP_NEXT;
}

EXEC(cluster_wait) {
    struct split *s = warp_split(warp);
    (void)inst;
    (void)active;
    s->woken = false;
    if (warp->cta->cluster_phase == warp->cluster_phase) {
        s->wait = WAIT_CLUSTER;
        s->wait_object = 0;
        return EMU_STEP_BLOCK;
    }
    clock_acquire(warp, &warp->cta->cluster_released,
                  &warp->cta->cluster_released_fenced);
    return EMU_STEP_NEXT;
}

/* ---- asynchronous completions ------------------------------------------ */

static void complete_at(struct emu_cta *cta, size_t index) {
    struct pending_copy copy = cta->pending.data[index];
    cta->pending.data[index] = cta->pending.data[--cta->pending.count];
    copy.complete(cta, &copy);
}

/* The one that the timeline has ready first. */
static size_t earliest(const struct emu_cta *cta) {
    size_t pick = 0;
    for (size_t i = 1; i < cta->pending.count; i++)
        if (cta->pending.data[i].ready < cta->pending.data[pick].ready)
            pick = i;
    return pick;
}

bool emu_cta_complete_pending(struct emu_cta *cta) {
    size_t count = cta->pending.count;
    if (count == 0)
        return false;
    complete_at(cta, cta->trace ? earliest(cta) : emu_cta_random(cta) % count);
    return true;
}

bool emu_cta_complete_before(struct emu_cta *cta, uint64_t time) {
    if (cta->pending.count == 0)
        return false;
    size_t pick = earliest(cta);
    bool due = cta->pending.data[pick].ready <= time;
    if (due)
        complete_at(cta, pick);
    return due;
}
