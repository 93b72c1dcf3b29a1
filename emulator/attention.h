/* Runs a compiled attention on the emulator: the entries of a kernel_info, as
 * the runtime launches them on a GPU.
 */
#ifndef ATTN_EMULATOR_ATTENTION_H
#define ATTN_EMULATOR_ATTENTION_H

#include "emulator/emulator.h"
#include "support/kernel_info.h"

/* A tensor in host memory.  `bytes` from `data` on become one allocation of the
 * device, element [0, …] first; strides count elements. */
struct emu_tensor {
    void *data; /* NULL: not given (unused captured tensors, lse) */
    size_t bytes;
    int64_t extents[KERNEL_MAX_RANK], strides[KERNEL_MAX_RANK];
};

struct emu_attention {
    const struct kernel_info *info;
    const struct emu_source
        *sources; /* the PTX, then the PTX of extern functions */
    size_t source_count;
    int64_t sizes[SIZE_COUNT];
    const struct emu_tensor
        *tensors;            /* by kernel_info.tensors; o and lse are written */
    const uint32_t *scalars; /* bits, by kernel_info.scalars */
    int sm_count; /* for persistent grids; 0: 4, so that CTAs do several tiles
                   */
};

struct emu_attention_result {
    struct emu_result total; /* reports of all entries; counters added up */
    /* Elements of o and lse that no kernel wrote, and bytes beside their
     * elements (gaps of the strides) that one wrote. */
    size_t o_unwritten, lse_unwritten, o_beside, lse_beside;
    size_t workspace_not_zero; /* bytes of the zeroed part that are not zero
                                  again */
};

/* Compiles nothing, checks the sizes of the tables only.  o and lse start
 * uninitialised on the device; what was not written comes back unchanged. False
 * when it could not run (PTX error, workspace expression …); kernels that ran
 * with faults give true and reports.  A trace is of the last entry, the
 * attention itself.  Destroy out_result->total afterwards. */
bool emu_attention_run(const struct emu_attention *attention,
                       const struct emu_options *options,
                       struct emu_attention_result *out_result,
                       struct emu_error *out_error);

#endif
