/* Memory accesses of lanes: bounds, alignment, initialisation, races.
 *
 * Faults are reported here; a load that fails reads zeros, a store that fails
 * is dropped, and the kernel goes on.
 */
#ifndef ATTN_EMULATOR_ACCESS_H
#define ATTN_EMULATOR_ACCESS_H

#include "emulator/machine.h"

/* How an access takes part in the checks. */
struct access {
    struct emu_warp *warp;
    const struct emu_inst *inst;
    bool is_sync;     /* volatile, acquire, release, atomic: no race check */
    bool async_proxy; /* by TMA or wgmma */
    uint32_t stamp;   /* clock to note; EMU_CLOCK_IN_FLIGHT while it lasts */
    int agent;        /* writer to note */
    struct allocation *last; /* of global memory: where the lane before was */
};

/* An ordinary access of a warp's lanes. */
struct access emu_access_plain(struct emu_warp *warp,
                               const struct emu_inst *inst);

/* Reads or writes `size` bytes (1 to 16) at a lane's address in a space; a
 * generic address is resolved.  False: a fault, reported; reads give zeros. */
bool emu_access_load(struct access *access, enum emu_space space, int lane,
                     uint64_t address, unsigned size, void *out_bytes);
/* Likewise for writing. */
bool emu_access_store(struct access *access, enum emu_space space, int lane,
                      uint64_t address, unsigned size, const void *bytes);

/* Checks a range of global memory and returns its bytes, or NULL after a
 * report. `write` marks it initialised, reading checks that it is. */
uint8_t *emu_access_global_range(struct access *access, int lane,
                                 uint64_t address, size_t size, bool write);

/* The same for shared memory, with the race and proxy checks; the range may be
 * of any size, aligned to `align`. */
uint8_t *emu_access_shared_range(struct access *access, int lane,
                                 uint32_t address, uint32_t size,
                                 uint32_t align, bool write);

/* Marks the end of asynchronous work on a shared range: words noted as in
 * flight get `stamp` of the agent (writes) or of the warp (reads). */
void emu_access_shared_landed(struct emu_cta *cta, uint32_t address,
                              uint32_t size, int agent, uint32_t stamp);
/* Likewise for reads of a warp. */
void emu_access_shared_was_read(struct emu_warp *warp, uint32_t address,
                                uint32_t size);

/* The space and offset behind a generic address; GLOBAL keeps it as it is. */
enum emu_space emu_access_resolve(uint64_t address, uint64_t *out_offset);

/* Counts a request's distinct 32-byte sectors, and its passes through the
 * shared-memory banks. */
void emu_count_global(struct emu_cta *cta, const uint64_t *addresses,
                      uint32_t lanes, unsigned size, bool write);
/* Likewise: passes through the banks of shared memory. */
void emu_count_shared(struct emu_cta *cta, const uint32_t *addresses,
                      uint32_t lanes, unsigned size, bool write);

#endif
