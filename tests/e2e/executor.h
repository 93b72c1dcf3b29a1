/* A compiled spec and a machine to run it on: the emulator or a GPU.
 *
 * Executors are created and run from several threads at once, each by one. */
#ifndef ATTN_TESTS_E2E_EXECUTOR_H
#define ATTN_TESTS_E2E_EXECUTOR_H

#include "tests/e2e/call.h"
#include "tests/e2e/load.h"

enum machine { MACHINE_EMULATOR, MACHINE_GPU };

struct executor {
    enum machine machine;
    const char *target; /* "sm_80" */
    enum scalar_type dtype;
    int multiprocessors; /* emulator: 0: 1, 2 or 4, by call and seed */
    union {
        const struct compiled *compiled; /* emulator */
        struct attn_kernel *kernel;      /* GPU */
    };
};

/* Opens the machine's GPU and makes its context current in the calling thread.
 * NULL, or why there is none.  With `poison` a workspace is filled with 0xff
 * before its first state is set; without it a sanitizer can see reads of
 * workspace that nobody wrote. */
const char *executor_gpu_open(struct arena *arena, bool poison);
/* Makes the GPU's context current in another thread; nothing without a GPU. */
void executor_gpu_enter(void);

/* Name of a fact about the GPU ("gpu", "driver", "multiprocessors") and its
 * value, by number; NULL behind the last. */
const char *executor_gpu_fact(struct arena *arena, int number,
                              const char **out_value);

/* Compiles a loaded spec for a target (NULL: the compiler's choice) and, on the
 * GPU, loads it.  NULL, or a text in the spec's arena about what failed. */
const char *executor_create(struct loaded *loaded, enum machine machine,
                            const char *target, struct executor *out_executor);
/* Unloads what executor_create loaded. */
void executor_destroy(struct executor *executor);

/* Runs a call whose q, k, v are encoded in the executor's dtype; fills o and
 * lse, which come from call_output and call_lse_output.  `seed` decides the
 * emulator's order.  NULL, or a text about what failed: a launch error, a
 * report of the emulator, a write beside the outputs, an element of the outputs
 * that was not written. */
const char *executor_run(const struct executor *executor,
                         const struct call *call, uint64_t seed,
                         struct call_tensor *o, struct call_tensor *lse);

/* ---- The machines' parts ------------------------------------------------- */

/* executor_create on the emulator: nothing but the PTX and its facts is
 * kept. */
const char *emulator_create(struct loaded *loaded, const char *target,
                            struct executor *executor);
/* executor_run on the emulator; any report is a failure. */
const char *emulator_run(const struct executor *executor,
                         const struct call *call, uint64_t seed,
                         struct call_tensor *o, struct call_tensor *lse);
/* executor_create on the GPU, through the public API. */
const char *gpu_create(struct loaded *loaded, const char *target,
                       struct executor *executor);
/* executor_run on the GPU; a changed byte beside an output is a failure. */
const char *gpu_run(const struct executor *executor, const struct call *call,
                    struct call_tensor *o, struct call_tensor *lse);
/* The same with every tensor of rank 3 or more spread out on the device: the
 * stride of `axis` is so large that offsets exceed 2^31 elements.  Takes
 * gigabytes. */
const char *gpu_run_far(const struct executor *executor,
                        const struct call *call, int axis,
                        struct call_tensor *o, struct call_tensor *lse);
/* executor_destroy on the GPU. */
void gpu_destroy(struct executor *executor);

#endif
