/* What the planner must know about a target: memory, registers, and which parts
 * of a schedule it has.  One row per target that the passes can compile for. */
#ifndef ATTN_PASSES_TARGET_LIMITS_H
#define ATTN_PASSES_TARGET_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

struct target_limits {
    const char *name;          /* "sm_80" */
    int shared_per_cta;        /* bytes a CTA may ask for */
    int shared_per_sm;         /* bytes of one multiprocessor */
    int largest_shared_per_sm; /* the same on the largest part that runs this
                                  code */
    int shared_reserved; /* bytes the system takes from shared_per_sm for each
                            CTA */
    int registers_per_thread;
    int registers_per_sm;
    int threads_per_cta;
    bool has_consumers;         /* warp roles: `consumers`, `overlap` */
    bool has_exp_poly;          /* pass split-exp */
    bool has_rescale_threshold; /* pass rescale */
    bool has_dynamic_order;     /* persistent CTAs with a tile counter */
};

/* Row of a target, NULL if the passes cannot compile for it. */
const struct target_limits *target_limits_find(const char *name);

/* Rows in order, NULL past the end; row 0 is the default target. */
const struct target_limits *target_limits_get(size_t index);

#endif
