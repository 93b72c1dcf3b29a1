/* The PTX back end: a module after the `pipeline` stage becomes PTX text.
 *
 * Every IR operation is lowered by itself into machine instructions (isel*.c)
 * which are printed from the table in insts.def (emit.c).  Nothing here knows
 * what attention is, and nothing here decides about tiles, stages or layouts:
 * all that is in the module (docs/ir.md).
 */
#ifndef ATTN_BACKENDS_PTX_PTX_H
#define ATTN_BACKENDS_PTX_PTX_H

#include <stdbool.h>

#include <mlir-c/IR.h>

#include "backends/ptx/target.h"
#include "support/arena.h"
#include "support/diag.h"
#include "support/kernel_info.h"
#include "support/strbuf.h"

struct ptx_options {
    const struct ptx_target *target; /* from ptx_target_find */
    const char *attention;           /* name for the head comment; NULL: none */
    const char *producer; /* "attnc 0.1" for the head comment; NULL: none */
    bool no_locations;    /* leave the `// @ file:line:col` lines out */
};

/* Lowers all kernels of `module` (functions with `attn.kernel`; private
 * functions are ignored) and appends one PTX module to `out_text`.
 *
 * `out_info` must hold the spec's facts already (name, tensors, scalars,
 * dtype); added are target, tile_m/n, entries in launch order (summaries first)
 * with their parameters, threads, shared bytes and grids, and workspace_bytes.
 * NULL: not wanted.
 *
 * False with at least one error in `sink` when an operation has no lowering on
 * the target or a limit of the target is exceeded; the text is then
 * unspecified. Everything is allocated from `arena`. */
bool ptx_emit_module(struct arena *arena, MlirModule module,
                     const struct ptx_options *options, struct strbuf *out_text,
                     struct kernel_info *out_info, struct diag_sink *sink);

#endif
