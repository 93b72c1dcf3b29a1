/* cp.async: copies from global to shared memory that a thread waits for.
 *
 * A copy is done when its threads wait for it and not before: what is in shared
 * memory until then is the old contents, marked as in flight, so that whoever
 * looks too early both gets a report and sees the wrong bytes.
 */
#include "emulator/access.h"
#include "emulator/exec.h"

/* Bytes that a lane takes from global memory; the rest of the copy is zeros. */
static uint32_t source_bytes(struct emu_warp *warp, const struct emu_inst *inst,
                             int l) {
    uint32_t size = (uint32_t)inst->imm[0];
    if (inst->src_count < 3 || inst->src[2].width == 8) /* a cache policy */
        return size;
    if (inst->src[2].width == 0) /* the ignore-src predicate */
        return src_predicate(warp, inst, 2) >> l & 1 ? 0 : size;
    uint32_t wanted = src32(warp, inst, 2)->u[l];
    return wanted < size ? wanted : size;
}

/* ptxas checks the constant too; a larger one would overrun the record. */
static bool valid_size(struct emu_warp *warp, const struct emu_inst *inst,
                       uint32_t active) {
    int64_t size = inst->imm[0];
    if (size == 4 || size == 8 || size == 16)
        return true;
    emu_report_add(warp, inst, EMU_REPORT_INVALID, active, 0,
                   "a copy of %lld bytes", (long long)size);
    return false;
}

EXEC(cp_async) {
    if (!valid_size(warp, inst, active))
        return EMU_STEP_NEXT;
    struct async_copy copy = {.inst = inst, .size = (uint8_t)inst->imm[0]};
    struct access access = emu_access_plain(warp, inst);
    access.stamp = EMU_CLOCK_IN_FLIGHT;
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        copy.shared[l] = (uint32_t)(lane_value(warp, inst->src[0], l) +
                                    (uint64_t)inst->disp[0]);
        copy.global[l] =
            lane_value(warp, inst->src[1], l) + (uint64_t)inst->disp[1];
        copy.bytes[l] = (uint8_t)source_bytes(warp, inst, l);
        copy.groups[l] = warp->copy_group[l];
        if ((copy.global[l] & (copy.size - 1u)) &&
            check_on(warp->cta, EMU_REPORT_MISALIGNED))
            emu_report_add(
                warp, inst, EMU_REPORT_MISALIGNED, 1u << l, copy.global[l],
                "the global address is not a multiple of %d", copy.size);
        if (emu_access_shared_range(&access, l, copy.shared[l], copy.size,
                                    copy.size, true))
            copy.lanes |= 1u << l;
    }
    emu_count_global(warp->cta, copy.global, copy.lanes, copy.size, false);
    emu_count_shared(warp->cta, copy.shared, copy.lanes, copy.size, true);
    warp->cta->counters.async_copy_bytes +=
        (uint64_t)__builtin_popcount(copy.lanes) * copy.size;
    vec_push(warp->cta->arena, &warp->copies, copy);
    return EMU_STEP_NEXT;
}

/* The bytes land.  Global memory is read now, as late as the rules allow. */
static void complete_lane(struct emu_warp *warp, struct async_copy *copy,
                          int l) {
    struct access access = emu_access_plain(warp, copy->inst);
    uint8_t *to = warp->cta->shared + copy->shared[l];
    const uint8_t *from = NULL;
    if (copy->bytes[l])
        from = emu_access_global_range(&access, l, copy->global[l],
                                       copy->bytes[l], false);
    memset(to, 0, copy->size);
    if (from)
        memcpy(to, from, copy->bytes[l]);
    emu_access_shared_landed(warp->cta, copy->shared[l], copy->size,
                             warp->index, warp->clock.at[warp->index]);
    copy->lanes &= ~(1u << l);
}

/* Completes the copies of `lanes` whose group is before copy_group - pending;
 * pending < 0: all of them. */
static void complete_copies(struct emu_warp *warp, uint32_t lanes,
                            int64_t pending) {
    size_t count = warp->copies.count, kept = 0;
    bool backward = emu_cta_random(warp->cta) & 1;
    for (size_t k = 0; k < count; k++) {
        struct async_copy *copy =
            &warp->copies.data[backward ? count - 1 - k : k];
        for (uint32_t left = copy->lanes & lanes; left; left &= left - 1) {
            int l = __builtin_ctz(left);
            if (pending < 0 || copy->groups[l] + pending < warp->copy_group[l])
                complete_lane(warp, copy, l);
        }
    }
    for (size_t k = 0; k < count; k++)
        if (warp->copies.data[k].lanes)
            warp->copies.data[kept++] = warp->copies.data[k];
    warp->copies.count = kept;
}

EXEC(cp_async_commit) {
    (void)inst;
    for (int l = 0; l < EMU_LANES; l++)
        warp->copy_group[l] += active >> l & 1;
    return EMU_STEP_NEXT;
}

EXEC(cp_async_wait) {
    complete_copies(warp, active, inst->imm_count ? inst->imm[0] : -1);
    return EMU_STEP_NEXT;
}

/* ---- cp.async.mbarrier.arrive ------------------------------------------ */

/* The arrival of cp.async.mbarrier.arrive: first the copies, then the
 * barrier. */
static void complete_arrive(struct emu_cta *cta, struct pending_copy *pending) {
    struct emu_warp *warp = &cta->warps[pending->warp];
    uint32_t lanes = pending->bytes;
    complete_copies(warp, lanes, -1);
    struct mbarrier *barrier = emu_mbarrier_find(cta, pending->mbarrier);
    if (barrier)
        emu_mbarrier_arrive(warp, pending->inst, barrier, lanes, lanes,
                            (uint32_t)__builtin_popcount(lanes));
}

/* The arrival happens when the copies issued so far have landed; without .noinc
 * the pending count first grows by it. */
static enum emu_step defer_arrive(struct emu_warp *warp,
                                  const struct emu_inst *inst, uint32_t active,
                                  bool increment) {
    uint32_t address = src32(warp, inst, 0)->u[__builtin_ctz(active)] +
                       (uint32_t)inst->disp[0];
    struct mbarrier *barrier = emu_mbarrier_get(warp, inst, active, address);
    if (!barrier)
        return EMU_STEP_NEXT;
    barrier->pending += increment ? (uint32_t)__builtin_popcount(active) : 0;
    struct pending_copy pending = {.complete = complete_arrive,
                                   .inst = inst,
                                   .warp = warp->index,
                                   .mbarrier = address,
                                   .bytes = active};
    vec_push(warp->cta->arena, &warp->cta->pending, pending);
    return EMU_STEP_NEXT;
}

EXEC(cp_async_arrive) {
    return defer_arrive(warp, inst, active, true);
}
EXEC(cp_async_arrive_noinc) {
    return defer_arrive(warp, inst, active, false);
}

void emu_warp_check_end(struct emu_warp *warp) {
    complete_copies(warp, ALL_LANES, -1);
    emu_bulk_finish(warp);
    if (warp->wgmma.count && check_on(warp->cta, EMU_REPORT_ASYNC_IN_FLIGHT))
        emu_report_add(warp, warp->wgmma.data[0].inst,
                       EMU_REPORT_ASYNC_IN_FLIGHT, 0, 0,
                       "the warp ends without having waited for it");
}
