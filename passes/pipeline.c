/* All pass lists, and the machinery that runs them.
 *
 * Every pass of ours is registered with MLIR's pass manager as an external pass
 * on the module; a stage's hook runs as one more external pass, so that a
 * single pass manager run does the whole list.  The file of the pass `pipeline`
 * is pipeline-sm80.c. */
#include <assert.h>
#include <mlir-c/Transforms.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/context.h"
#include "ir/verify.h"
#include "passes/pass.h"
#include "passes/target_limits.h"

const struct pass pass_canonicalize = {"canonicalize",
                                       "fold and simplify (stock MLIR)", NULL,
                                       mlirCreateTransformsCanonicalizer};
const struct pass pass_cse = {
    "cse", "share equal subexpressions, drop dead ones (stock MLIR)", NULL,
    mlirCreateTransformsCSE};

static const struct pass *const all_passes[] = {
    &pass_mask_blocks, &pass_variants,     &pass_tile,    &pass_online_softmax,
    &pass_fold_scale,  &pass_fast_math,    &pass_rescale, &pass_split_exp,
    &pass_pipeline,    &pass_canonicalize, &pass_cse,
};
enum { PASS_COUNT = sizeof all_passes / sizeof all_passes[0] };

/* cse runs after each stage that clones code: it drops what was inlined in vain
 * and shares index arithmetic between the positions of neighbouring ops. */
static const struct pass_step sm80_steps[] = {
    {&pass_mask_blocks, true},
    {&pass_variants, true},
    {&pass_tile, true},
    {&pass_cse, false},
    {&pass_online_softmax, true},
    {&pass_fold_scale, true},
    {&pass_cse, false},
    {&pass_fast_math, true},
    {&pass_rescale, true},
    {&pass_split_exp, true},
    {&pass_pipeline, true},
    {&pass_cse, false},
    {NULL, false},
};

const struct pass_step *pass_pipeline_of(const char *target) {
    return target_limits_find(target) ? sm80_steps : NULL;
}

const struct pass *pass_get(size_t index) {
    return index < PASS_COUNT ? all_passes[index] : NULL;
}

const struct pass *pass_find(const char *name) {
    for (size_t i = 0; i < PASS_COUNT; i++)
        if (strcmp(all_passes[i]->name, name) == 0)
            return all_passes[i];
    return NULL;
}

/* ---- Running ------------------------------------------------------------ */

/* One run of pass_run; external passes point to it. */
struct run {
    const struct pass_options *options;
    struct pass_ctx ctx;
    const struct pass *current; /* the pass that runs or ran last */
    struct strbuf messages;     /* what MLIR said meanwhile */
};

/* User data of one external pass: a pass of ours, or the end of a step. */
struct run_step {
    struct run *run;
    const struct pass *pass;
    bool announces; /* the hook of a stage, not the pass itself */
};

/* Type ids of external passes are addresses; MLIR wants one for each kind of
 * pass. */
static const _Alignas(8) char pass_ids[PASS_COUNT + 1][8];

static MlirTypeID pass_id(const struct run_step *step) {
    size_t number = PASS_COUNT;
    for (size_t i = 0; i < PASS_COUNT && !step->announces; i++)
        if (all_passes[i] == step->pass)
            number = i;
    return mlirTypeIDCreate(pass_ids[number]);
}

static void nothing(void *user) {
    (void)user;
}

/* The pass manager never clones a module pass in a single-threaded context;
 * sharing the step is right in any case, it is not written to. */
static void *share(void *user) {
    return user;
}

/* A module that breaks its own rules after a pass is our fault: say which pass.
 */
static _Noreturn void ice_after(const struct run *run) {
    fprintf(stderr, "attn: internal error: after pass '%s':\n%s\n",
            run->current ? run->current->name : "(none)",
            strbuf_text(&run->messages));
    abort();
}

static void run_external(MlirOperation module, MlirExternalPass external,
                         void *user) {
    struct run_step *step = user;
    struct run *run = step->run;
    if (step->announces) {
        run->options->hook(run->options->user, step->pass, module);
        return;
    }
    run->current = step->pass;
    if (!step->pass->run(&run->ctx, module))
        mlirExternalPassSignalFailure(external);
    else if (run->options->verify_each && !ir_verify(module))
        ice_after(run);
    arena_reset(run->ctx.scratch);
}

static void add_external(MlirPassManager manager, struct run_step *step) {
    struct MlirExternalPassCallbacks callbacks = {.construct = nothing,
                                                  .destruct = nothing,
                                                  .clone = share,
                                                  .run = run_external};
    const char *name = step->announces ? "stage-hook" : step->pass->name;
    const char *summary =
        step->announces ? "reports a stage" : step->pass->summary;
    mlirPassManagerAddOwnedPass(
        manager, mlirCreateExternalPass(
                     pass_id(step), ir_ref(name), ir_ref(name), ir_ref(summary),
                     ir_ref("builtin.module"), 0, NULL, callbacks, step));
}

/* Number of steps to run: all, or up to the stage `stop_after` with its
 * cleanups. */
static size_t count_steps(const struct pass_step *steps,
                          const char *stop_after) {
    size_t count = 0;
    bool reached = false;
    for (; steps[count].pass; count++) {
        if (reached && steps[count].is_stage)
            break;
        reached = reached || (stop_after &&
                              strcmp(steps[count].pass->name, stop_after) == 0);
    }
    return count;
}

/* Fills the pass manager; a stage's hook comes after its cleanups. */
static void add_steps(MlirPassManager manager, struct run *run,
                      struct arena *arena, const struct pass_step *steps,
                      size_t count) {
    const struct pass *stage = NULL;
    for (size_t i = 0; i <= count; i++) {
        bool ends_stage = i == count || steps[i].is_stage;
        if (ends_stage && stage && run->options->hook) {
            struct run_step *hook = ARENA_NEW(arena, struct run_step);
            *hook = (struct run_step){run, stage, true};
            add_external(manager, hook);
        }
        if (i == count)
            break;
        if (steps[i].is_stage)
            stage = steps[i].pass;
        if (steps[i].pass->create) {
            mlirPassManagerAddOwnedPass(manager, steps[i].pass->create());
            continue;
        }
        struct run_step *step = ARENA_NEW(arena, struct run_step);
        *step = (struct run_step){run, steps[i].pass, false};
        add_external(manager, step);
    }
}

bool pass_run(const struct pass_step *steps, const struct pass_options *options,
              MlirOperation module, struct diag_sink *diags) {
    static const struct pass_options defaults = {0};
    MlirContext context = mlirOperationGetContext(module);
    struct arena *arena = arena_create();
    struct run run = {.options = options ? options : &defaults,
                      .ctx = {arena_create(), diags}};
    size_t errors = diag_error_count(diags);
    strbuf_init(&run.messages, arena);
    MlirDiagnosticHandlerID handler =
        ir_diagnostics_capture(context, &run.messages);
    MlirPassManager manager = mlirPassManagerCreate(context);
    mlirPassManagerEnableVerifier(manager, run.options->verify_each);
    add_steps(manager, &run, arena, steps,
              count_steps(steps, run.options->stop_after));
    bool ok =
        mlirLogicalResultIsSuccess(mlirPassManagerRunOnOp(manager, module));
    bool refused = diag_error_count(diags) != errors;
    if (!refused && (!ok || !ir_verify(module)))
        ice_after(&run);
    mlirPassManagerDestroy(manager);
    ir_diagnostics_detach(context, handler);
    arena_destroy(run.ctx.scratch);
    arena_destroy(arena);
    return ok && !refused;
}
