/* Where addresses point, and the shadow of global, local and parameter
 * memory. */
#include "emulator/access.h"

#include <string.h>

struct access emu_access_plain(struct emu_warp *warp,
                               const struct emu_inst *inst) {
    bool is_sync = (inst->mods & EMU_MOD_SYNC) != 0;
    return (struct access){.warp = warp,
                           .inst = inst,
                           .is_sync = is_sync,
                           .stamp = warp->clock.at[warp->index],
                           .agent = warp->index};
}

enum emu_space emu_access_resolve(uint64_t address, uint64_t *out_offset) {
    static const struct {
        uint64_t window;
        enum emu_space space;
    } windows[] = {{EMU_WINDOW_SHARED, EMU_SPACE_SHARED},
                   {EMU_WINDOW_LOCAL, EMU_SPACE_LOCAL},
                   {EMU_WINDOW_PARAM, EMU_SPACE_PARAM}};
    *out_offset = address;
    for (size_t i = 0; i < 3; i++) {
        if (address - windows[i].window >= EMU_WINDOW_SIZE)
            continue;
        *out_offset = address - windows[i].window;
        return windows[i].space;
    }
    return EMU_SPACE_GLOBAL;
}

/* Reports an address that is no multiple of `align`, a power of two. */
static bool misaligned(struct access *a, int lane, uint64_t address,
                       unsigned align) {
    if ((address & (align - 1)) == 0)
        return false;
    if (check_on(a->warp->cta, EMU_REPORT_MISALIGNED))
        emu_report_add(a->warp, a->inst, EMU_REPORT_MISALIGNED, 1u << lane,
                       address, "the address is not a multiple of %u", align);
    return true;
}

/* Names the allocation in front of the address: an index error is usually an
 * offset from it. */
static void report_global_bounds(struct access *a, int lane, uint64_t address,
                                 size_t size, bool write) {
    const struct emu_memory *memory = a->warp->cta->grid->memory;
    const struct allocation *below = emu_memory_find_below(memory, address);
    const char *verb = write ? "writes" : "reads";
    if (!below)
        emu_report_add(
            a->warp, a->inst, EMU_REPORT_OUT_OF_BOUNDS, 1u << lane, address,
            "%s %zu bytes of global memory below every allocation", verb, size);
    else
        emu_report_add(
            a->warp, a->inst, EMU_REPORT_OUT_OF_BOUNDS, 1u << lane, address,
            "%s %zu bytes at offset %llu of '%s', which has %zu bytes", verb,
            size, (unsigned long long)(address - below->address), below->name,
            below->size);
}

/* Relaxed stores, and only where a bit is missing: other host threads may note
 * the same byte. */
static void mark_global(uint8_t *shadow, size_t size, uint8_t bits) {
    for (size_t i = 0; i < size; i++)
        if ((shadow[i] & bits) != bits)
            __atomic_store_n(&shadow[i], (uint8_t)(shadow[i] | bits),
                             __ATOMIC_RELAXED);
}

/* Reports the first byte of a range that was never written. */
static void check_global_initialised(struct access *a, int lane,
                                     const struct allocation *in, size_t offset,
                                     size_t size) {
    size_t i = 0;
    while (i < size && (in->shadow[offset + i] & SHADOW_INITIALISED))
        i++;
    if (i < size && check_on(a->warp->cta, EMU_REPORT_UNINITIALISED_MEMORY))
        emu_report_add(a->warp, a->inst, EMU_REPORT_UNINITIALISED_MEMORY,
                       1u << lane, in->address + offset,
                       "byte %zu of '%s' was never written", offset + i,
                       in->name);
}

/* A kernel with a griddepcontrol.wait may run while the grids before it still
 * write what it reads, and read what it writes. */
static void check_grids_complete(struct access *a, int lane, uint64_t address) {
    const struct emu_warp *warp = a->warp;
    if (!warp->cta->grid->entry->waits_for_grids ||
        (warp->grids_complete >> lane & 1) ||
        !check_on(warp->cta, EMU_REPORT_GRID_DEPENDENCY))
        return;
    emu_report_add(a->warp, a->inst, EMU_REPORT_GRID_DEPENDENCY, 1u << lane,
                   address, "the grids before this one may not be complete");
}

uint8_t *emu_access_global_range(struct access *a, int lane, uint64_t address,
                                 size_t size, bool write) {
    struct allocation *in = a->last;
    check_grids_complete(a, lane, address);
    if (!in || address - in->address >= in->size)
        in = emu_memory_find(a->warp->cta->grid->memory, address);
    if (!in || size > in->size - (address - in->address)) {
        report_global_bounds(a, lane, address, size, write);
        return NULL;
    }
    a->last = in;
    size_t offset = (size_t)(address - in->address);
    if (!write)
        check_global_initialised(a, lane, in, offset, size);
    mark_global(in->shadow + offset, size,
                write ? SHADOW_INITIALISED | SHADOW_WRITTEN : SHADOW_READ);
    return in->bytes + offset;
}

/* ---- local memory and parameters --------------------------------------- */

/* Local memory is laid out lane by lane, with a shadow byte for each byte. */
static bool access_local(struct access *a, int lane, uint64_t address,
                         unsigned size, void *bytes, bool write) {
    struct emu_warp *warp = a->warp;
    uint32_t limit = warp->cta->grid->module->local_bytes;
    if (address > limit || size > limit - address) {
        emu_report_add(warp, a->inst, EMU_REPORT_OUT_OF_BOUNDS, 1u << lane,
                       address,
                       "%s %u bytes of local memory, which has %u bytes",
                       write ? "writes" : "reads", size, limit);
        return false;
    }
    uint8_t *at = warp->local + (size_t)lane * limit + address;
    uint8_t *shadow = warp->local_shadow + (size_t)lane * limit + address;
    if (write) {
        memcpy(at, bytes, size);
        memset(shadow, 1, size);
        return true;
    }
    if (memchr(shadow, 0, size) &&
        check_on(warp->cta, EMU_REPORT_UNINITIALISED_MEMORY))
        emu_report_add(warp, a->inst, EMU_REPORT_UNINITIALISED_MEMORY,
                       1u << lane, address,
                       "local memory that was never written");
    memcpy(bytes, at, size);
    return true;
}

/* Parameters are read only and always initialised. */
static bool load_param(struct access *a, int lane, uint64_t address,
                       unsigned size, void *out_bytes) {
    const struct emu_grid *grid = a->warp->cta->grid;
    if (address > grid->launch->param_bytes ||
        size > grid->launch->param_bytes - address) {
        emu_report_add(a->warp, a->inst, EMU_REPORT_OUT_OF_BOUNDS, 1u << lane,
                       address,
                       "reads %u bytes of the parameters, which have %zu bytes",
                       size, grid->launch->param_bytes);
        return false;
    }
    memcpy(out_bytes, grid->params + address, size);
    return true;
}

/* ---- lanes ------------------------------------------------------------- */

bool emu_access_load(struct access *a, enum emu_space space, int lane,
                     uint64_t address, unsigned size, void *out_bytes) {
    const uint8_t *at = NULL;
    memset(out_bytes, 0, size);
    if (space == EMU_SPACE_GENERIC)
        space = emu_access_resolve(address, &address);
    if (misaligned(a, lane, address, size))
        return false;
    switch (space) {
    case EMU_SPACE_GENERIC:
    case EMU_SPACE_GLOBAL:
    case EMU_SPACE_CONST:
        at = emu_access_global_range(a, lane, address, size, false);
        break;
    case EMU_SPACE_SHARED:
        at =
            emu_access_shared_range(a, lane, (uint32_t)address, size, 1, false);
        break;
    case EMU_SPACE_LOCAL:
        return access_local(a, lane, address, size, out_bytes, false);
    case EMU_SPACE_PARAM:
        return load_param(a, lane, address, size, out_bytes);
    }
    if (at)
        memcpy(out_bytes, at, size);
    return at != NULL;
}

bool emu_access_store(struct access *a, enum emu_space space, int lane,
                      uint64_t address, unsigned size, const void *bytes) {
    uint8_t *at = NULL;
    if (space == EMU_SPACE_GENERIC)
        space = emu_access_resolve(address, &address);
    if (misaligned(a, lane, address, size))
        return false;
    if (space == EMU_SPACE_SHARED) {
        at = emu_access_shared_range(a, lane, (uint32_t)address, size, 1, true);
    } else if (space == EMU_SPACE_LOCAL) {
        uint8_t copy[32];
        memcpy(copy, bytes, size);
        return access_local(a, lane, address, size, copy, true);
    } else if (space == EMU_SPACE_GLOBAL) {
        at = emu_access_global_range(a, lane, address, size, true);
    } else {
        emu_report_add(a->warp, a->inst, EMU_REPORT_OUT_OF_BOUNDS, 1u << lane,
                       address, "writes to memory that is read only");
    }
    if (at)
        memcpy(at, bytes, size);
    return at != NULL;
}

/* ---- counters ---------------------------------------------------------- */

void emu_count_global(struct emu_cta *cta, const uint64_t *addresses,
                      uint32_t lanes, unsigned size, bool write) {
    uint64_t seen[2 * EMU_LANES];
    unsigned count = 0;
    if (!cta->grid->options->count)
        return;
    for (uint32_t left = lanes; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        uint64_t last = (addresses[l] + size - 1) >> 5;
        for (uint64_t sector = addresses[l] >> 5; sector <= last; sector++) {
            unsigned i = 0;
            while (i < count && seen[count - 1 - i] != sector)
                i++;
            if (i == count && count < 2 * EMU_LANES)
                seen[count++] = sector;
        }
    }
    uint64_t bytes = (uint64_t)__builtin_popcount(lanes) * size;
    *(write ? &cta->counters.global_write_bytes
            : &cta->counters.global_read_bytes) += bytes;
    *(write ? &cta->counters.global_write_sectors
            : &cta->counters.global_read_sectors) += count;
}

/* Lanes go in groups that together move 128 bytes at most; a group takes as
 * many passes as its busiest bank has different words. */
void emu_count_shared(struct emu_cta *cta, const uint32_t *addresses,
                      uint32_t lanes, unsigned size, bool write) {
    struct emu_counters *counters = &cta->counters;
    if (!cta->grid->options->count)
        return;
    unsigned words = size > 4 ? size / 4 : 1, group = EMU_LANES / words;
    for (unsigned first = 0; first < EMU_LANES; first += group) {
        uint32_t word_of[EMU_LANES][EMU_LANES];
        uint8_t used[EMU_LANES] = {0};
        unsigned passes = 0;
        for (unsigned l = first; l < first + group; l++) {
            for (unsigned k = 0; (lanes >> l & 1) && k < words; k++) {
                uint32_t word = addresses[l] / 4 + k, bank = word & 31;
                unsigned i = 0;
                while (i < used[bank] && word_of[bank][i] != word)
                    i++;
                if (i == used[bank])
                    word_of[bank][used[bank]++] = word;
                passes = used[bank] > passes ? used[bank] : passes;
            }
        }
        counters->shared_wavefronts += passes;
        counters->shared_conflicts += passes ? passes - 1 : 0;
    }
    uint64_t bytes = (uint64_t)__builtin_popcount(lanes) * size;
    *(write ? &counters->shared_write_bytes : &counters->shared_read_bytes) +=
        bytes;
}
