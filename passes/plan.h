/* The schedule plan in the IR: attributes of a kernel function.
 *
 *     attn.tile = array<i32: M, N>   attn.warps   attn.stages   : i32
 *     attn.second_tile = array<i32: M, N>   of a second kernel (variants.c)
 *     attn.consumers : i32           consumer warpgroups, where there are roles
 *     attn.q_stages : i32            buffers of Q, where there are roles
 *     attn.pingpong                  unit: they take turns at issuing products
 *     attn.q_registers               unit: Q is kept in registers
 *     attn.rescale_threshold         f32, tau in log2 units; absent: 0
 *     attn.exp_poly                  f32, share of exp2 on FMA pipes; absent: 0
 *     attn.order                     "lpt" or "linear"
 */
#ifndef ATTN_PASSES_PLAN_H
#define ATTN_PASSES_PLAN_H

#include "passes/pass.h"
#include "passes/schedule.h"

/* Writes the decisions of a plan to the function. */
void plan_write(MlirOperation func, const struct schedule_plan *plan);

/* The problem that a function with one attn.attention poses on the module's
 * target. */
struct schedule_problem plan_problem(MlirOperation module,
                                     MlirOperation attention);

/* The plan of a function: its attributes, or the planner's own where there are
 * none (they are written then).  The account is that of the tile.  False after
 * an error. */
bool plan_read(struct pass_ctx *ctx, MlirOperation module, MlirOperation func,
               MlirOperation attention, struct schedule_plan *out_plan);

#endif
