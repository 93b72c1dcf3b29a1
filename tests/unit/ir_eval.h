/* Runs scalar functions of the IR (mask, score, classify, kv_bounds, summaries)
 * on 32 lanes at once, for tests.
 *
 * Numbers behave as the hardware's: i32 wraps, arith.fptosi saturates and NaN
 * gives 0, integer division by zero gives 0 (language: unspecified), reads
 * clamp their indices. A warp of a kernel runs as one call: gpu.lane_id is the
 * lane number. */
#ifndef ATTN_TESTS_IR_EVAL_H
#define ATTN_TESTS_IR_EVAL_H

#include "ir/walk.h"
#include "support/arena.h"

enum { EVAL_LANES = 32 };

/* Dense memory behind a memref argument. */
struct eval_memory {
    enum scalar_type type; /* SCALAR_BOOL: bytes */
    void *data;
    int rank;
    int64_t extents[KERNEL_MAX_RANK];
};

/* One SSA value in all lanes: i1, i32 and index in i (i32 sign-extended), f32
 * in f. */
struct eval_value {
    int64_t i[EVAL_LANES];
    float f[EVAL_LANES];
    const struct eval_memory *memory;
};

struct eval_program;

/* Decodes a function once.  Aborts on an op that it does not know. */
struct eval_program *eval_compile(struct arena *arena, MlirOperation func);

/* Runs it.  `args`: one value an argument; `results`: what it returns.  block
 * and warp: gpu.block_id and gpu.subgroup_id. */
void eval_run(struct eval_program *program, const struct eval_value *args,
              int64_t block, int64_t warp, struct eval_value *results);

/* The same number in every lane. */
struct eval_value eval_whole(int64_t value);
struct eval_value eval_real(float value);
struct eval_value eval_memory_arg(const struct eval_memory *memory);

#endif
