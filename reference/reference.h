/* Naive attention in fp64, straight from the checked spec.
 *
 * The yardstick for everything else: it reads the AST and shares no code with
 * the IR, the passes or the back ends.  language.md's rules literally: what
 * does not depend on `s` is evaluated in f32 and i32 exactly as written, one
 * rounding a step; what depends on `s`, the dot products, the softmax and the
 * sums are fp64.  No tiling, no running maximum: the scores of a row, their
 * maximum, the weights, the weighted sum of V.
 *
 * For speed the mask and score lines are compiled to straight-line code over
 * REF_LANES neighbouring keys (reference/code.h), and pairs that are masked
 * cost neither a dot product nor a score.  Both arms of a choice are evaluated;
 * a read outside its tensor yields 0 and touches no memory, so an arm not taken
 * is never observed.
 */
#ifndef ATTN_REFERENCE_REFERENCE_H
#define ATTN_REFERENCE_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frontend/ast.h"
#include "support/arena.h"
#include "support/kernel_info.h"

struct ref_program;

/* A captured tensor in memory: element [i0, i1, ...] is at data + sum of
 * i*stride elements of `type`.  data NULL: not given (reads yield 0). */
struct ref_tensor {
    const void *data; /* borrowed */
    int64_t extents[KERNEL_MAX_RANK];
    int64_t strides[KERNEL_MAX_RANK];
};

/* A float view [batch, heads or kv_heads, length, head_dim]; the last axis has
 * stride 1, the others are given in elements. */
struct ref_matrix {
    const float
        *data; /* borrowed; values already rounded to the spec's dtype */
    int64_t strides[3];
};

/* One call; all memory is borrowed. */
struct ref_call {
    int64_t sizes[SIZE_COUNT]; /* each >= 0, heads a multiple of kv_heads */
    const uint32_t *params; /* bits by param.number, see param.default_bits */
    const struct ref_tensor *tensors; /* by tensor.number */
    struct ref_matrix q, k, v;
};

/* What is known of a row of O besides its values. */
enum ref_row {
    REF_ROW_PLAIN,
    REF_ROW_EMPTY,   /* every pair masked or -inf: O = 0, LSE = -inf */
    REF_ROW_NAN,     /* a kept score is NaN or +inf: O and LSE are NaN */
    REF_ROW_EXTREME, /* a score that counts exceeds 4096: only finiteness is
                        promised */
};

/* Results, dense and in logical order; arrays of the caller. */
struct ref_result {
    double *o;    /* [batch, heads, q_len, head_dim_v] */
    double *lse;  /* [batch, heads, q_len] */
    uint8_t *row; /* enum ref_row [batch, heads, q_len]; NULL: not wanted */
};

/* Compiles the spec's lines.  NULL when an extern fn without a model is called;
 * *out_extern is then its name.  The attention must outlive the program. */
struct ref_program *ref_compile(struct arena *arena,
                                const struct attention *attention,
                                const char **out_extern);

/* Runs a call on `threads` host threads (0: as many as there are cores).  The
 * result does not depend on their number.  Scratch memory comes from
 * `arena`. */
void ref_run(struct arena *arena, const struct ref_program *program,
             const struct ref_call *call, int threads,
             struct ref_result *result);

/* Pairs that the mask keeps, over all batches and query heads. */
int64_t ref_count_kept(struct arena *arena, const struct ref_program *program,
                       const struct ref_call *call, int threads);

/* ---- Single pairs ------------------------------------------------------- */

/* Evaluates mask and score at chosen pairs of a call; not to be shared between
 * threads.  Program and call must outlive it. */
struct ref_eval;

/* An evaluator in the arena. */
struct ref_eval *ref_eval_create(struct arena *arena,
                                 const struct ref_program *program,
                                 const struct ref_call *call);

/* Mask of keys [kv, kv+count) of a row: out[i] is 1 or 0. */
void ref_eval_mask_row(struct ref_eval *eval, int64_t b, int64_t h, int64_t q,
                       int64_t kv, int64_t count, uint8_t *out);

/* The final score of a pair whose scaled dot product is `s`; the mask does not
 * enter. */
double ref_eval_score(struct ref_eval *eval, int64_t b, int64_t h, int64_t q,
                      int64_t kv, double s);

#endif
