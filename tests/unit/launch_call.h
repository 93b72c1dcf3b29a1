/* A call of the sample program (sample_info.h) that is right; tests break one
 * thing. */
#ifndef ATTN_TESTS_UNIT_LAUNCH_CALL_H
#define ATTN_TESTS_UNIT_LAUNCH_CALL_H

#include <stdint.h>
#include <string.h>

#include "attn.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, Q_LEN = 100, KV_LEN = 130, D = 64 };

static int64_t shapes[7][4], strides[7][4];
static DLTensor tensors[7]; /* q k v o lse doc unused */
static struct attn_tensor_arg captured[2];
static struct attn_param_arg params[3];
static struct attn_args args;

/* Tensor `i`, compact, at an address of its own. */
static inline void set_tensor(int i, uint8_t code, uint8_t bits, int rank,
                              const int64_t *shape) {
    memcpy(shapes[i], shape, (size_t)rank * sizeof *shape);
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        strides[i][axis] = stride;
        stride *= shape[axis];
    }
    tensors[i] = (DLTensor){.data = (void *)(uintptr_t)(0x10000 * (i + 1)),
                            .device = {kDLCUDA, 0},
                            .ndim = rank,
                            .dtype = {code, bits, 1},
                            .shape = shapes[i],
                            .strides = strides[i]};
}

/* All of the call, with that many queries. */
static inline void set_call(int q_len) {
    set_tensor(0, kDLBfloat, 16, 4, (int64_t[]){BATCH, HEADS, q_len, D});
    set_tensor(1, kDLBfloat, 16, 4, (int64_t[]){BATCH, KV_HEADS, KV_LEN, D});
    set_tensor(2, kDLBfloat, 16, 4, (int64_t[]){BATCH, KV_HEADS, KV_LEN, D});
    set_tensor(3, kDLBfloat, 16, 4, (int64_t[]){BATCH, HEADS, q_len, D});
    set_tensor(4, kDLFloat, 32, 3, (int64_t[]){BATCH, HEADS, q_len});
    set_tensor(5, kDLInt, 32, 2, (int64_t[]){BATCH, KV_LEN + 4});
    set_tensor(6, kDLFloat, 32, 1, (int64_t[]){HEADS});
    captured[0] = (struct attn_tensor_arg){"doc", &tensors[5]};
    captured[1] = (struct attn_tensor_arg){"unused", &tensors[6]};
    params[0] = (struct attn_param_arg){"cap", ATTN_F32, {.f32 = 30.0f}};
    params[1] = (struct attn_param_arg){"window", ATTN_I32, {.i32 = 64}};
    params[2] = (struct attn_param_arg){"flag", ATTN_BOOL, {.boolean = false}};
    args = (struct attn_args){
        &tensors[0], &tensors[1],      &tensors[2], &tensors[3],
        &tensors[4], captured,         1,           params,
        1,           (void *)0x200000, 4096};
}

#endif
