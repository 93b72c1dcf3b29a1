/* The suites of the end-to-end program and what they share. */
#ifndef ATTN_TESTS_E2E_SUITES_H
#define ATTN_TESTS_E2E_SUITES_H

#include "reference/accuracy.h"
#include "tests/e2e/executor.h"
#include "tests/e2e/load.h"
#include "tests/e2e/patterns.h"
#include "tests/e2e/report.h"

/* Sizes of one call: batch, heads, kv_heads, q_len, kv_len. */
struct e2e_sizes {
    int64_t n[SIZE_COUNT];
};

/* What a run was asked for. */
struct e2e_options {
    const char *specs_dir;
    const char *only;   /* comma-separated names; NULL: all */
    const char *target; /* "sm_80"; NULL: every target the compiler has
                           (emulator), or the compiler's choice (gpu) */
    uint64_t seed;      /* of data and of the emulator's order */
    int seeds;          /* emulator: seeds per size */
    int threads;        /* of reference and emulator; 0: one per core */
    bool small;         /* a selection of sizes: sanitizers, quick looks */
    bool has_sizes;     /* emulator and gpu run `sizes` only */
    struct e2e_sizes sizes;
    bool poison; /* GPU: fill workspaces with 0xff first */
};

/* True if `name` was asked for. */
bool e2e_wanted(const struct e2e_options *options, const char *name);

enum { E2E_MAX_TARGETS = 4 };

/* The target asked for, or all that the compiler has; returns their number. */
int e2e_targets(const struct e2e_options *options,
                const char *out_names[E2E_MAX_TARGETS]);

/* Adapts sizes to a pattern: the group of the spec, shared positions.  False
 * when the pattern cannot have them. */
bool e2e_fit_sizes(const struct pattern *pattern,
                   const struct attention *attention, struct e2e_sizes *sizes);

/* A call of a pattern with its parameters and data. */
struct call *e2e_call(struct arena *arena, const struct pattern *pattern,
                      const struct attention *attention,
                      const struct e2e_sizes *sizes, struct rng *rng);

/* Runs the reference on a call; results in the call's arena. */
struct ref_result e2e_reference(const struct call *call, int threads);

/* Turns an accuracy report into the figures and message of a result. */
void e2e_judge(struct arena *arena, const struct accuracy *accuracy,
               struct result *result);

/* Runs an encoded call on an executor, compares with the reference and fills in
 * everything of `result` but suite, name and variant. */
void e2e_compare(const struct executor *executor, const struct call *call,
                 enum call_layout layout, const struct ref_result *reference,
                 uint64_t seed, struct result *result);

/* Calls work(context, i) for i of [0, count) on `threads` threads (0: one per
 * core); on_start (may be NULL) runs first in each thread. */
void e2e_parallel(int64_t count, int threads, void (*on_start)(void),
                  void (*work)(void *context, int64_t index), void *context);

/* ---- Suites -------------------------------------------------------------- */

/* Each spec's picture against its predicate. */
void suite_picture(const struct e2e_options *options, struct report *report);

/* Each spec, as the reference evaluates it, against its predicate: mask and
 * score pair by pair, O and LSE against a naive attention made of the
 * predicate. */
void suite_predicate(const struct e2e_options *options, struct report *report);

/* Each spec's PTX on the emulator against the reference, small sizes, many
 * seeds; no report of the emulator may appear. */
void suite_emulator(const struct e2e_options *options, struct report *report);

/* Awkward data and sizes, on the emulator or (gpu) on the GPU. */
void suite_special(const struct e2e_options *options, bool gpu,
                   struct report *report);

/* Each spec's PTX on the GPU and on the emulator: the same numbers. */
void suite_twin(const struct e2e_options *options, struct report *report);

/* Strides beyond 2^31 elements, on the GPU. */
void suite_far(const struct e2e_options *options, struct report *report);

/* Each spec on the GPU, both types, all sizes, both layouts; every head
 * dimension. */
void suite_gpu(const struct e2e_options *options, struct report *report);

#endif
