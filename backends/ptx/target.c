/* The table of targets.  Shared memory and register files: CUDA programming
 * guide, "Technical Specifications per Compute Capability"; first PTX ISA: PTX
 * ISA manual, `.target`. */
#include "backends/ptx/target.h"

#include <string.h>

enum { KIB = 1024 };

#define HOPPER (PTX_CAP_TMA | PTX_CAP_STMATRIX)
#define HOPPER_A (HOPPER | PTX_CAP_WGMMA)
#define BLACKWELL_A (HOPPER | PTX_CAP_TCGEN05)

/* clang-format off */
static const struct ptx_target targets[] = {
    /* name     sm   only   ISA capabilities    CTA        SM         registers   threads */
    {"sm_80",   80,  false, 70, 0,              163 * KIB, 164 * KIB, 65536, 255, 1024},
    {"sm_86",   86,  false, 71, 0,               99 * KIB, 100 * KIB, 65536, 255, 1024},
    {"sm_89",   89,  false, 78, 0,               99 * KIB, 100 * KIB, 65536, 255, 1024},
    {"sm_90",   90,  false, 78, HOPPER,         227 * KIB, 228 * KIB, 65536, 255, 1024},
    {"sm_90a",  90,  true,  80, HOPPER_A,       227 * KIB, 228 * KIB, 65536, 255, 1024},
    {"sm_100a", 100, true,  86, BLACKWELL_A,    227 * KIB, 228 * KIB, 65536, 255, 1024},
    {"sm_120",  120, false, 87, HOPPER,          99 * KIB, 100 * KIB, 65536, 255, 1024},
};
/* clang-format on */

enum { TARGET_COUNT = sizeof targets / sizeof targets[0] };

const struct ptx_target *ptx_target_at(size_t index) {
    return index < TARGET_COUNT ? &targets[index] : NULL;
}

const struct ptx_target *ptx_target_find(const char *name) {
    for (size_t i = 0; i < TARGET_COUNT; i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    return NULL;
}
