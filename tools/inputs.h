/* Inputs of one call, from the options: sizes, parameters, captured tensors, Q,
 * K and V, read from .npy files or drawn at random.
 *
 * Errors name the option, what was found and what the spec wants; they are
 * disagreements with the spec (STATUS_FAILED), except inputs larger than the
 * machine's memory (STATUS_MISSING).
 */
#ifndef ATTN_TOOLS_INPUTS_H
#define ATTN_TOOLS_INPUTS_H

#include "reference/reference.h"
#include "tools/session.h"

/* A captured tensor, dense in C order. */
struct input_tensor {
    const struct tensor *tensor;
    int64_t extents[KERNEL_MAX_RANK], strides[KERNEL_MAX_RANK], count;
    void *data; /* elements of tensor->type; NULL: not given (it is unused then)
                 */
};

/* Q, K or V: dense [batch, heads, length, dim], rounded to the dtype. */
struct input_matrix {
    int64_t shape[4], count;
    float *data;
};

struct inputs {
    const struct attention *attention;
    int64_t sizes[SIZE_COUNT];
    uint32_t *params;             /* bits by param.number */
    bool *param_known;            /* has a value, or is not used */
    struct input_tensor *tensors; /* by tensor.number */
    struct input_matrix q, k, v;
};

/* Sizes, parameters and captured tensors.  `need_all` false: parameters without
 * a value and tensors that are not given are left out, see inputs_missing. */
int inputs_create(struct session *session, const struct attention *attention,
                  bool need_all, struct inputs *out);

/* Adds Q, K and V (--q, --k, --v, or N(0, 1)). */
int inputs_add_matrices(struct session *session, struct inputs *inputs);

/* The option that would give the first parameter or tensor that the spec uses
 * and lacks ("--param cap=VALUE"), in the arena; NULL when all are there. */
const char *inputs_missing(struct arena *arena, const struct inputs *inputs);

/* The call for the reference; borrows from `inputs`, tensor views in the
 * arena. */
struct ref_call inputs_reference_call(struct arena *arena,
                                      const struct inputs *inputs);

/* Strides in elements of [batch, heads, length, dim] for a memory order. */
void inputs_strides(const int64_t shape[4], enum option_layout layout,
                    int64_t out_strides[4]);

/* The 16-bit elements of a matrix in a memory order, in the arena. */
uint16_t *inputs_pack(struct arena *arena, const struct input_matrix *matrix,
                      enum scalar_type dtype, enum option_layout layout);

/* The reverse for O: floats, dense and in logical order, in the arena. */
float *inputs_unpack(struct arena *arena, const uint16_t *bits,
                     const int64_t shape[4], enum scalar_type dtype,
                     enum option_layout layout);

/* Shape of O: [batch, heads, q_len, head_dim_v]. */
void inputs_output_shape(const struct inputs *inputs, int64_t out_shape[4]);

#endif
