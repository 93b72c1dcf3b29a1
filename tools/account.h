/* The cycle and byte account of explain: what one key block costs one CTA on
 * each unit of a multiprocessor, by the unit rates of the target.
 *
 * A model, not a measurement: it counts the work that any schedule with this
 * tile must do and divides by the rate of each unit.  The unit that needs most
 * cycles bounds the kernel from below; latencies and issue slots are not
 * in it. */
#ifndef ATTN_TOOLS_ACCOUNT_H
#define ATTN_TOOLS_ACCOUNT_H

#include "frontend/ast.h"
#include "passes/schedule.h"
#include "support/arena.h"

enum account_unit {
    UNIT_MMA,    /* FLOP, 16-bit inputs, f32 accumulation */
    UNIT_MUFU,   /* exp2 and kin */
    UNIT_FP32,   /* lanes of f32 and integer arithmetic */
    UNIT_SHARED, /* bytes */
    UNIT_COUNT,
};

struct account {
    double amount[UNIT_COUNT], rate[UNIT_COUNT], cycles[UNIT_COUNT];
    enum account_unit bound; /* needs most cycles */
    double global_bytes;     /* K and V of the block */
    /* Per pair, from the spec: operations that vary with row and column. */
    int score_operations, score_mufu;
    int mask_operations; /* on partial blocks only */
};

/* Account of one key block for a plan. */
struct account account_of(struct arena *arena,
                          const struct attention *attention,
                          const struct schedule_plan *plan);

/* "MMA", "MUFU", "FP32", "shared". */
const char *account_unit_name(enum account_unit unit);

/* What its amount counts: "FLOP", "operations", "lanes", "bytes". */
const char *account_unit_amount(enum account_unit unit);

#endif
