/* What the parts of the mask-blocks pass share: see mask-blocks.c.
 *
 *     mask-blocks-eval.c      the mask over a tile as abstract values, reads too
 *     mask-blocks-bounds.c    the key range outside which nothing attends
 *     mask-blocks-summary.c   block summaries of captured tensors, their kernels
 */
#ifndef ATTN_PASSES_MASK_BLOCKS_H
#define ATTN_PASSES_MASK_BLOCKS_H

#include "ir/walk.h"
#include "passes/interval.h"
#include "support/vec.h"

enum {
    MASK_INDICES = 5,  /* mask arguments: b h h_kv q kv, then the shared ones */
    KERNEL_SHARED = 5, /* kernel arguments before them: q k v o lse */
    CLASSIFY_SHARED = 7, /* b h h_kv q0 q1 k0 k1 */
    BOUNDS_SHARED = 5,   /* b h h_kv q0 q1 */
    MAX_MASK_OPS = 4000, /* larger masks: everything is partial */
};

/* Minima and maxima of a tensor along one axis, block by block. */
struct mask_summary {
    size_t tensor; /* position among the shared arguments */
    int axis;
    size_t argument; /* position among the arguments behind the shared ones */
};

struct mask_blocks {
    struct arena *arena;
    MlirOperation module, kernel, attention, mask;
    MlirOperation classify, bounds; /* functions being built */
    /* Tiles of the kernel and of its variants: the most queries and keys, the
     * fewest keys, and what divides where they begin; `rows` are the queries of
     * a class, the tile's or a consumer's. */
    int most_m, most_n, least_n, align_m, align_n, most_rows, align_rows;
    int block;           /* elements that one summary entry covers */
    size_t shared_count; /* sizes, params, tensors */
    VEC(struct mask_summary) summaries;
};

/* Key positions [lo, hi] that may attend, within [0, kv_len - 1]. */
struct kv_range {
    MlirValue lo, hi;
    bool lower, upper; /* is it a constraint from below, from above */
    bool dense;        /* most key blocks inside are expected to attend */
};

/* The abstract value of every value of the mask function. */
struct mask_fact {
    struct abs_value value;
    bool on_kv;        /* depends on kv */
    bool has_range[2]; /* ranges of the value and of its negation, once known */
    struct kv_range range[2];
};

struct mask_eval {
    struct mask_blocks *m;
    struct ir_builder *b;
    MlirOperation func; /* where the code goes; its shared arguments start at */
    size_t shared;
    bool all_keys; /* kv is any key, not one of a tile */
    struct mask_fact *facts;
    const void **keys; /* open addressing: value pointers */
    size_t capacity;
};

/* Evaluates the whole mask at the builder's place: q in [q_lo, q_hi], kv in
 * [kv_lo, kv_hi] (abstract values), the rest from func's arguments. */
void mask_eval_run(struct mask_eval *e, struct mask_blocks *m,
                   struct ir_builder *b, MlirOperation func, size_t shared,
                   struct abs_value q, struct abs_value kv);

/* What is known of a value of the mask function. */
struct mask_fact *mask_eval_fact(const struct mask_eval *e, MlirValue value);

/* x and y when `value` is x - floor(x/y)*y; false for anything else. */
bool mask_is_floormod(MlirValue value, MlirValue *out_x, MlirValue *out_y);

/* Range of the mask's result; emits code at e's builder. */
struct kv_range mask_kv_range(struct mask_eval *e, MlirValue last);

/* The buffer of a summary as an argument of `e->func`; asks for it when it is
 * new. */
MlirValue mask_summary_buffer(struct mask_eval *e, size_t tensor, int axis);

/* Adds the kernels of all summaries in front of the attention's kernel, and the
 * buffers to the kernel's arguments. */
void mask_summary_kernels(struct mask_blocks *m, struct ir_builder *b);

/* Element type of a summary of a tensor: f32 for floats, else i32 (bool: 0, 1).
 */
MlirType mask_summary_type(MlirType tensor);

#endif
