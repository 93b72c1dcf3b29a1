/* From .attn text to PTX: the front end, the passes and the back end in a row.
 *
 * Pure and re-entrant: every call has an MLIR context of its own, nothing is
 * printed, written to a file or kept between calls.  Faults in the input go to
 * the diag sink; results live in the caller's arena.  This is the only header
 * of the compiler that tools and the runtime's API glue need.
 */
#ifndef ATTN_COMPILER_COMPILE_H
#define ATTN_COMPILER_COMPILE_H

#include <stdbool.h>
#include <stddef.h>

#include "frontend/ast.h"
#include "frontend/frontend.h"
#include "passes/schedule.h"
#include "support/arena.h"
#include "support/diag.h"
#include "support/kernel_info.h"

/* Names of the stages in order, NULL-terminated: "attn", then one per pass
 * ("mask-blocks" … "pipeline"), then "ptx".  Spellings of --emit= and
 * --dump-after=. */
const char *const *compile_stages(void);
/* Whether `name` is one of them. */
bool compile_stage_is_known(const char *name);

/* Names of everything --run-pass= takes (the passes and the stock cleanups);
 * NULL when `index` is past the end. */
const char *compile_pass_name(size_t index);
/* What it does, in one line. */
const char *compile_pass_summary(size_t index);

/* Targets that the compiler can generate code for, NULL past the end; number 0
 * is the default.  A subset of frontend_targets(). */
const char *compile_target(size_t index);
/* Whether `name` is one of them. */
bool compile_target_is_supported(const char *name);

/* Zero is the default of every field; strings are borrowed. */
struct compile_options {
    const char *target;   /* "sm_80"; NULL: the spec's first supported one, else
                             the default */
    const char *schedule; /* text of --schedule; NULL: the spec's */
    const char *stop_after; /* stage name: do no work after it; NULL: "ptx" */
    const char *dump_after; /* keep the text of this stage in `dumps`; "all": of
                               every one */
    bool verify_each; /* run both verifiers after every pass, not only at the
                         end */
};

/* The text of the module after a stage (MLIR generic form with locations,
 * readable back by compile_run_passes; for "ptx" the PTX). */
struct compile_dump {
    const char *stage;
    int number; /* position in compile_stages(), for file names "%02d-%s" */
    const char *text;
    size_t length;
};

/* The result for one attention and one target.  One PTX module per
 * attention. */
struct compiled {
    const struct attention *attention; /* borrowed from the spec */
    const char *target;
    struct schedule_plan plan; /* what the planner decided, with its account */
    const char *ptx;           /* NULL when stopped before "ptx" */
    size_t ptx_length;
    struct kernel_info *info; /* NULL when stopped before "ptx" */
    /* CUDA C++ files whose functions the PTX calls; to be compiled for the
     * target and linked with it.  Empty for most specs. */
    const struct source_file *const *extern_files;
    size_t extern_file_count;
    struct compile_dump *dumps;
    size_t dump_count;
};

/* The attention to compile: by name, or the only one of the file for NULL. NULL
 * after an error (no attention at all, several without a name, unknown name
 * with a suggestion). */
const struct attention *compile_select(const struct spec *spec,
                                       const char *entry,
                                       struct diag_sink *diags);

/* Target that compile_attention will use: `target`, else the first of the
 * spec's that the compiler has, else sm_90a.  NULL after an error that names
 * what was asked and what is supported. */
const char *compile_resolve_target(const struct attention *attention,
                                   const char *target, struct diag_sink *diags);

/* Plans the schedule for one target as compile_attention will (spec, overridden
 * by `schedule` text).  False after errors: bad text, or it does not fit; the
 * message has the arithmetic and a note the nearest schedule that fits. */
bool compile_plan(struct arena *arena, struct source_set *sources,
                  const struct spec *spec, const struct attention *attention,
                  const char *target, const char *schedule,
                  struct diag_sink *diags, struct schedule_plan *out_plan);

/* What `attnc check` does beyond the front end: plans every attention for each
 * of its supported targets.  False when errors were reported. */
bool compile_check(struct arena *arena, struct source_set *sources,
                   const struct spec *spec, const char *target,
                   const char *schedule, struct diag_sink *diags);

/* Compiles one attention of a checked spec.  False when errors were reported.
 * `options` may be NULL. */
bool compile_attention(struct arena *arena, struct source_set *sources,
                       const struct spec *spec,
                       const struct attention *attention,
                       const struct compile_options *options,
                       struct diag_sink *diags, struct compiled *out_compiled);

/* Checks a text called `name` and compiles the attention `entry` (NULL: the
 * only one): frontend_check_text, compile_select and compile_attention in
 * one. */
bool compile_text(struct arena *arena, struct source_set *sources,
                  const char *name, const char *text, size_t length,
                  const char *entry, const struct frontend_options *frontend,
                  const struct compile_options *options,
                  struct diag_sink *diags, struct compiled *out_compiled);

/* A canonical text of everything that decides the bytes of the result:
 * attention, extern files, target, resolved schedule and the compiler's
 * version.  Basis of cache keys; needs no MLIR.  False when errors were
 * reported. */
bool compile_key(struct arena *arena, struct source_set *sources,
                 const struct spec *spec, const struct attention *attention,
                 const struct compile_options *options, struct diag_sink *diags,
                 struct strbuf *out_key);

/* Runs passes (comma-separated names of compile_pass_name, or "" for none) on a
 * module in MLIR's text form, verifies after each, and appends the module after
 * the last one. Text that does not parse or verify is an error in `diags` that
 * quotes MLIR. */
bool compile_run_passes(const char *name, const char *text, size_t length,
                        const char *passes, struct diag_sink *diags,
                        struct strbuf *out_text);

/* The same from a module after "pipeline" to PTX.  A module alone does not know
 * the spec's tensors and parameters, so there are no kernel facts. */
bool compile_emit_ptx(struct arena *arena, const char *name, const char *text,
                      size_t length, struct diag_sink *diags,
                      struct strbuf *out_ptx);

#endif
