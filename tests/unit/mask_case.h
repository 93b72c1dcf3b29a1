/* A mask and one set of sizes, for tests of mask-blocks: the functions that the
 * pass made, the truth of every pair, and the comparison of both. */
#ifndef ATTN_TESTS_MASK_CASE_H
#define ATTN_TESTS_MASK_CASE_H

#include "frontend_util.h"
#include "ir_eval.h"

/* Numbers of one comparison. */
struct mask_score {
    size_t skip, partial, whole; /* tiles by class */
    size_t lost;                 /* partial where skip or whole was possible */
    size_t causal;               /* nothing but kv <= q is open */
    size_t
        loose; /* key blocks inside kv_bounds but without a pair, at its ends */
    bool dense;
};

struct mask_case {
    struct arena *arena;
    const struct attention *attention;
    MlirOperation module, kernel;
    int tile_m, tile_n;
    bool dense;
    struct eval_program *mask, *classify, *bounds;
    size_t classify_args; /* shared ones and summaries */
    /* One instance. */
    int64_t sizes[SIZE_COUNT];
    uint32_t *params;            /* bits */
    struct eval_memory *tensors; /* by tensor.number */
    struct eval_value *shared;   /* sizes, params, tensors, summaries */
    size_t shared_count;
};

/* Compiles the mask functions of the file's only attention after mask-blocks
 * with this tile; they must hold for the tile `second` (NULL: none) of a
 * variant, too, which the caller may put into tile_m and tile_n.  The module
 * belongs to the caller and must outlive the case. */
void mask_case_init(struct mask_case *c, struct arena *arena,
                    const struct attention *attention, MlirModule module,
                    const int tile[2], const int *second);

/* Takes sizes (c->sizes), params and tensor data (arrays by number, extents
 * set) and runs the summary kernels. */
void mask_case_prepare(struct mask_case *c);

/* Extents of a tensor for c->sizes and c->params; the element count is
 * returned. */
int64_t mask_case_extents(struct mask_case *c, const struct tensor *tensor,
                          int64_t *out_extents);

/* True for the pair by the mask function itself, rows [b, h, q] of kv_len
 * bytes. */
void mask_case_truth(struct mask_case *c, int64_t b, int64_t h,
                     uint8_t *out_keep);

/* Compares every tile and the key ranges of one head with the truth.  NULL, or
 * what is wrong (in the arena). */
const char *mask_case_check(struct mask_case *c, int64_t b, int64_t h,
                            const uint8_t *keep, struct mask_score *score);

#endif
