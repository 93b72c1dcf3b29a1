/* DLPack tensors as the kernels see them: one address, extents, strides. */
#ifndef ATTN_RUNTIME_TENSOR_H
#define ATTN_RUNTIME_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include <dlpack/dlpack.h>

#include "runtime/status.h"
#include "support/kernel_info.h"

struct rt_tensor {
    uint64_t address; /* of element [0, …, 0]; 0: not given */
    int64_t extents[KERNEL_MAX_RANK];
    int64_t strides[KERNEL_MAX_RANK]; /* in elements; 0 on axes of extent 1 */
    bool given;
    bool empty; /* an extent is 0 */
};

/* What a tensor must be, apart from its extents. */
struct rt_tensor_rule {
    const char *name;
    enum scalar_type type;
    int rank;
    int device;   /* CUDA ordinal */
    bool rows;    /* q, k, v, o: last stride 1, rows at multiples of 16 bytes */
    bool written; /* no two elements at one address */
    uint32_t passed_strides; /* bit a: the kernel is told the stride of axis a;
                                the other axes must be compact */
    bool check_address;      /* false: only shapes matter (workspace size) */
};

/* Reads a DLTensor: rank, dtype and device are checked, extents and strides
 * copied (compact strides where DLPack has none).  ATTN_INVALID_ARGUMENT names
 * the tensor, what was found and what was expected. */
struct attn_status *rt_tensor_read(const DLTensor *source,
                                   const struct rt_tensor_rule *rule,
                                   struct rt_tensor *out_tensor);

/* The second half, once the caller has found the extents right: strides and
 * address. */
struct attn_status *rt_tensor_check(const DLTensor *source,
                                    const struct rt_tensor_rule *rule,
                                    struct rt_tensor *tensor);

#endif
