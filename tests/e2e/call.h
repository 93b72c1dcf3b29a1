/* One call of an attention on host memory: sizes, parameters, Q, K, V and the
 * captured tensors, in the forms that the reference, the emulator and the GPU
 * want.
 *
 * Shapes of captured tensors come from the checked spec; what is in them comes
 * from the pattern (tests/e2e/patterns.h) or the random generator.  Q, K and V
 * hold numbers that bf16 and f16 both represent, so that one reference run
 * serves both types.
 */
#ifndef ATTN_TESTS_E2E_CALL_H
#define ATTN_TESTS_E2E_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "frontend/ast.h"
#include "reference/reference.h"
#include "support/arena.h"
#include "tests/e2e/rng.h"

enum { CALL_MAX_PARAMS = 16, CALL_MAX_TENSORS = 16 };

/* Memory order of Q, K, V and O. */
enum call_layout {
    CALL_BHSD, /* [batch, heads, length, dim] */
    CALL_BSHD, /* [batch, length, heads, dim] */
};

/* A tensor in host memory. */
struct call_tensor {
    const char *name;
    enum scalar_type type;
    int rank;
    int64_t extents[KERNEL_MAX_RANK];
    int64_t strides[KERNEL_MAX_RANK]; /* elements */
    void *data; /* of `bytes` bytes; element [0, ...] comes first */
    size_t bytes;
};

struct call {
    struct arena *arena; /* borrowed; everything below lives in it */
    const struct attention *attention;
    int64_t sizes[SIZE_COUNT];
    uint32_t params[CALL_MAX_PARAMS];              /* by param.number */
    struct call_tensor captured[CALL_MAX_TENSORS]; /* by tensor.number */
    struct call_tensor q, k, v; /* in the dtype, see call_encode */
    float *q32, *k32, *v32; /* dense [batch, heads or kv_heads, length, dim] */
};

/* A call with these sizes (by enum size_name), default parameters, random Q, K,
 * V. Captured tensors do not exist before call_allocate, which needs the
 * parameters. */
struct call *call_create(struct arena *arena, const struct attention *attention,
                         const int64_t sizes[SIZE_COUNT], struct rng *rng);

/* Gives a parameter by name a value; aborts when the spec has no such i32. */
void call_set_i32(struct call *call, const char *name, int32_t value);
/* The same for an f32. */
void call_set_f32(struct call *call, const char *name, float value);

/* Evaluates the extents and allocates every captured tensor, dense and zeroed.
 * False when an extent is below 1 or too large. */
bool call_allocate(struct call *call);

/* The captured tensor called `name`; aborts when there is none or its type
 * differs. */
struct call_tensor *call_tensor(struct call *call, const char *name,
                                enum scalar_type type);

/* Fills every captured tensor of a float type with N(0, 1) rounded to it. */
void call_fill_floats(struct call *call, struct rng *rng);

/* Moves captured tensors into padded or permuted memory (values stay). */
void call_restride(struct call *call, struct rng *rng);

/* (Re)makes q, k, v as 16-bit tensors of `dtype` from q32, k32, v32. */
void call_encode(struct call *call, enum scalar_type dtype,
                 enum call_layout layout);

/* An output [batch, heads, q_len, head_dim_v] of `dtype`, its data filled with
 * 0xff. */
struct call_tensor call_output(const struct call *call, enum scalar_type dtype,
                               enum call_layout layout);
/* An LSE [batch, heads, q_len] in f32, its data filled with 0xff. */
struct call_tensor call_lse_output(const struct call *call);

/* The call as the reference sees it; `out_tensors` needs CALL_MAX_TENSORS
 * places. */
struct ref_call call_for_reference(const struct call *call,
                                   struct ref_tensor *out_tensors);

/* Values of O or LSE, dense in logical order, in the call's arena. */
float *call_decode(const struct call *call, const struct call_tensor *tensor);

/* Number of elements of all axes. */
int64_t call_tensor_count(const struct call_tensor *tensor);

/* ---- Reading elements in predicates ------------------------------------- */

/* Element [i0, i1, i2, i3] of captured tensor number `tensor`; indices beyond
 * the rank are ignored.  Aborts when one is out of range: a predicate never
 * reads there. */
int32_t call_i32(const struct call *call, int tensor, int64_t i0, int64_t i1,
                 int64_t i2);
/* The same for a bool tensor: any non-zero byte is true. */
bool call_bool(const struct call *call, int tensor, int64_t i0, int64_t i1,
               int64_t i2);
/* The same for f32, f16 and bf16. */
double call_float(const struct call *call, int tensor, int64_t i0, int64_t i1,
                  int64_t i2, int64_t i3);

/* Value of parameter number `param`, an i32. */
int32_t call_param_i32(const struct call *call, int param);
/* The same for an f32. */
float call_param_f32(const struct call *call, int param);

#endif
