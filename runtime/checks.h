/* All arguments of one call against a kernel_info: nothing is launched before
 * everything here has passed. */
#ifndef ATTN_RUNTIME_CHECKS_H
#define ATTN_RUNTIME_CHECKS_H

#include "runtime/tensor.h"

/* What is known about a kernel before any call; computed once at load. */
struct rt_contract {
    const struct kernel_info *info; /* borrowed */
    int device;                     /* CUDA ordinal */
    int sm_count;
    uint32_t *passed_strides; /* per tensor: bit a: the kernel is told the
                                 stride of axis a */
};

/* The arguments of a call in the kernel_info's numbering.  `tensors` and
 * `scalars` have room for all of it and are the caller's. */
struct rt_call {
    struct size_env env;
    struct rt_tensor *tensors;
    uint32_t *scalars;
    bool nothing; /* q_len, heads or batch is 0: there is nothing to do */
};

/* Fills `contract->passed_strides` (room for info->tensor_count). */
void rt_contract_find_strides(struct rt_contract *contract);

/* Checks `args` and fills `call`.  Without `addresses`, data pointers and o and
 * lse may be missing.  ATTN_INVALID_ARGUMENT names the argument, what was found
 * and what was expected. */
struct attn_status *rt_call_check(const struct rt_contract *contract,
                                  const struct attn_args *args, bool addresses,
                                  struct rt_call *call);

/* The workspace that a checked call needs, and how much of it must start as
 * zero. */
struct attn_status *rt_call_workspace(const struct rt_contract *contract,
                                      const struct rt_call *call,
                                      uint64_t *out_bytes,
                                      uint64_t *out_zeroed);

#endif
