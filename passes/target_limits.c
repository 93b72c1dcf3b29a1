/* The table of target limits: see target_limits.h.
 *
 * Figures: CUDA C++ Programming Guide, "Features and Technical Specifications
 * per Compute Capability".  sm_80 code also runs on 8.6, 8.9, 9.0 and 12.0; the
 * CTA limit is that of 8.0, so that a CTA planned here fits on 8.0 and 9.0.
 * Parts with 100 KiB (8.6, 8.9, 12.0) need `schedule { }` with a smaller tile.
 */
#include "passes/target_limits.h"

#include <string.h>

/* clang-format off */
static const struct target_limits rows[] = {
    /* name, shared memory: CTA, SM, largest SM, reserved a CTA; registers:
     * thread, SM; threads; has: consumers, exp_poly, rescale_threshold, dynamic
     * order */
    {"sm_80",  163 * 1024, 164 * 1024, 228 * 1024, 1024, 255, 65536, 1024,
     false, true,  true, false},
    {"sm_90a", 227 * 1024, 228 * 1024, 228 * 1024, 1024, 255, 65536, 1024,
     true,  true,  true, true},
};
/* clang-format on */

const struct target_limits *target_limits_get(size_t index) {
    return index < sizeof rows / sizeof rows[0] ? &rows[index] : NULL;
}

const struct target_limits *target_limits_find(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}
