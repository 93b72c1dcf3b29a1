/* What the back end must know of a GPU: one row for each target name. */
#ifndef ATTN_BACKENDS_PTX_TARGET_H
#define ATTN_BACKENDS_PTX_TARGET_H

#include <stdbool.h>
#include <stddef.h>

/* Instructions beyond the baseline of sm_80 (cp.async, mma.sync bf16, ldmatrix,
 * redux.sync), by the feature that brings them. */
enum ptx_capability {
    PTX_CAP_WGMMA = 1 << 0,    /* wgmma, setmaxnreg: sm_90a only */
    PTX_CAP_TMA = 1 << 1,      /* cp.async.bulk.tensor, mbarrier transactions */
    PTX_CAP_STMATRIX = 1 << 2, /* stmatrix */
    PTX_CAP_TCGEN05 = 1 << 3,  /* tensor memory: sm_100a only */
};

struct ptx_target {
    const char *name;         /* "sm_80", as in `.target` and in specs */
    int sm;                   /* 80 */
    bool specific;            /* the "a" targets: code runs on that chip only */
    int min_isa;              /* lowest `.version` that knows it, times ten */
    unsigned capabilities;    /* enum ptx_capability */
    int shared_bytes_per_cta; /* dynamic shared memory a kernel may opt into */
    int shared_bytes_per_sm;
    int registers_per_sm; /* 32-bit */
    int registers_per_thread;
    int threads_per_cta;
};

/* The row of a target name, NULL for an unknown one. */
const struct ptx_target *ptx_target_find(const char *name);

/* Row number `index` (from 0), NULL past the last: for lists and tests. */
const struct ptx_target *ptx_target_at(size_t index);

#endif
