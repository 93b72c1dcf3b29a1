/* Facts for the launcher, from the kernels of a module. */
#ifndef ATTN_BACKENDS_PTX_INFO_H
#define ATTN_BACKENDS_PTX_INFO_H

#include "backends/ptx/inst.h"
#include "backends/ptx/target.h"
#include "ir/walk.h"
#include "support/diag.h"
#include "support/kernel_info.h"

/* Fills in target, tile, entries and workspace of `info`, whose tensors and
 * scalars are there already.  False (after an error) when a name or a size
 * expression of the module is unknown. */
bool info_build(struct arena *arena, const MlirOperation *funcs,
                struct ptx_kernel *const *kernels, size_t count,
                const struct ptx_target *target, struct kernel_info *info,
                struct diag_sink *sink);

/* Translates postfix words ("q_len", "128", "ceildiv", "param:window",
 * "sm_count") into an expression; NULL, or the word that is unknown. */
const char *info_expression(struct arena *arena, const struct kernel_info *info,
                            const char *const *words, size_t count,
                            struct size_expr *out);

#endif
