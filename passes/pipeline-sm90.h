/* The Hopper half of the pass `pipeline`. */
#ifndef ATTN_PASSES_PIPELINE_SM90_H
#define ATTN_PASSES_PIPELINE_SM90_H

#include "passes/pass.h"

/* Gives one kernel its warp roles (pipeline-sm90.c).
 *
 * requires     one attn.load of Q (64 rows of consumer `attn.consumer`) before
 *              one key loop with loads of K and V: an scf.for that counts from
 *              0 by 1, or an scf.while whose first part finds the next
 *              block and whose body has ops with attn.entry and attn.classes;
 *              acc, m, l are the last three loop-carried values; attn.stages,
 *              attn.q_stages (1 when absent), attn.consumers, attn.pingpong on
 *              the kernel;
 * establishes  roles, shared tiles, mbarriers, TMA copies and wgmma; a
 *              persistent loop over tiles; attn.warps, attn.grid,
 *              attn.shared_bytes;
 * breaks       nothing.
 *
 * False after an error in ctx->diags. */
bool pipeline_sm90(struct pass_ctx *ctx, MlirOperation func);

#endif
