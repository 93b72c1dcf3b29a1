/* What a pass is, the passes there are, and how lists of them run.
 *
 * A pass is one file in passes/ with one entry point; its name is the spelling
 * in
 * --emit=, --run-pass= and --dump-after= and the name of the file.  Passes keep
 * no state between runs: everything they decide is in the module.
 */
#ifndef ATTN_PASSES_PASS_H
#define ATTN_PASSES_PASS_H

#include <mlir-c/IR.h>
#include <mlir-c/Pass.h>
#include <stdbool.h>
#include <stddef.h>

#include "support/arena.h"
#include "support/diag.h"

/* Given to every run of a pass. */
struct pass_ctx {
    struct arena *scratch;   /* reset after each pass */
    struct diag_sink *diags; /* for faults in the user's source */
};

struct pass {
    const char *name;
    const char *summary; /* one line, for --list-passes */
    /* Transforms the module.  False after errors in ctx->diags. */
    bool (*run)(struct pass_ctx *ctx, MlirOperation module);
    MlirPass (*create)(void); /* a stock pass of MLIR instead of `run` */
};

extern const struct pass pass_mask_blocks;
extern const struct pass pass_variants;
extern const struct pass pass_tile;
extern const struct pass pass_online_softmax;
extern const struct pass pass_fold_scale;
extern const struct pass pass_fast_math;
extern const struct pass pass_rescale;
extern const struct pass pass_split_exp;
extern const struct pass pass_pipeline;
extern const struct pass pass_canonicalize; /* stock */
extern const struct pass pass_cse;          /* stock */

/* Pass by name, NULL if there is none. */
const struct pass *pass_find(const char *name);
/* Pass number `index`, NULL past the end. */
const struct pass *pass_get(size_t index);

/* One step of a pipeline.  A stage is what people see: its text can be dumped
 * and a compilation can stop there; cleanups belong to the stage before them.
 */
struct pass_step {
    const struct pass *pass;
    bool is_stage; /* named like the pass */
};

/* The pipeline of a target from the module that ir/from_spec builds to the one
 * that the back end takes; ends with a NULL pass.  NULL for an unknown target.
 */
const struct pass_step *pass_pipeline_of(const char *target);

/* Called after a stage, with all cleanups of the stage done. */
typedef void (*pass_stage_hook)(void *user, const struct pass *stage,
                                MlirOperation module);

struct pass_options {
    bool verify_each;       /* MLIR's verifier and ir/verify after every step */
    const char *stop_after; /* name of a stage; NULL: run all */
    pass_stage_hook hook;   /* may be NULL */
    void *user;
};

/* Runs the steps on a module through an MLIR pass manager.  False when a pass
 * failed; its errors are in `diags`.  A module that does not verify after a
 * pass is a fault of ours: aborts with the pass's name. */
bool pass_run(const struct pass_step *steps, const struct pass_options *options,
              MlirOperation module, struct diag_sink *diags);

#endif
