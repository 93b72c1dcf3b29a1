/* Helpers of the PTX back end's tests: IR files in, PTX out, ptxas, and a run
 * on the emulator against plain fp64 attention. */
#ifndef ATTN_TESTS_UNIT_PTX_UTIL_H
#define ATTN_TESTS_UNIT_PTX_UTIL_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/ptx/ptx.h"

/* One lowered module; everything lives in `arena`. */
struct ptx_case {
    struct arena *arena;
    struct diag_sink *sink;
    const char *text; /* NULL: the back end reported errors */
    struct kernel_info info;
};

/* Lowers tests/ptx/NAME.mlir, or IR text; captured tensors are taken from the
 * kernel's arguments.  End with ptx_case_end. */
struct ptx_case ptx_case_file(const char *name, const char *target);
struct ptx_case ptx_case_text(const char *ir, const char *target);
void ptx_case_end(struct ptx_case *c);

/* The reported errors as text. */
const char *ptx_case_errors(const struct ptx_case *c);

/* Occurrences of `word` in the text. */
int ptx_count(const char *text, const char *word);

/* Runs ptxas on the text.  -1: no ptxas here; -2: it refused (its messages go
 * to standard error); -3: it serialised wgmma or ignored setmaxnreg (C7504 to
 * C7514); else the bytes of spill stores of the worst kernel. */
int ptx_assemble(const char *text, const char *arch);

/* The sizes and scores of one emulated run. */
struct ptx_problem {
    int batch, heads, kv_heads, q_len, kv_len, head_dim_qk, head_dim_v;
    bool bf16;
    /* The score of a pair from scale * q.k, -INFINITY: masked. */
    double (*score)(const struct ptx_problem *p, int b, int h, int q, int kv,
                    double s);
    const float *bias;   /* [heads][q_len][kv_len], rounded to f16, or NULL */
    const float *slopes; /* [heads], or NULL */
};

/* Runs the main kernel on the emulator with random inputs and compares O and
 * LSE with fp64; fails the current test on a report or a difference. */
void ptx_check_run(const struct ptx_case *c, const struct ptx_problem *problem);

#endif
