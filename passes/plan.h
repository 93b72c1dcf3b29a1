/* The schedule plan in the IR: attributes of a kernel function.
 *
 *     attn.tile = array<i32: M, N>   attn.warps   attn.stages   : i32
 *     attn.second_tile = array<i32: M, N>   of a second kernel (variants.c)
 *     attn.packed_heads : i32        of a packed kernel (variants.c)
 *     attn.pack_gqa : i32            heads in a tile of this kernel; absent: 1
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

/* attn.pack_gqa: query heads of one KV head that share a tile's rows; 1: rows
 * are queries of one head. */
int plan_packed_heads(MlirOperation func);

/* "size:heads", with packed heads "size:kv_heads": the heads whose tiles are
 * counted. */
const char *plan_heads_size(MlirOperation func);

/* attn.grid: `words`, times the condition of a variant (attn.when). */
void plan_set_grid(MlirOperation func, struct arena *arena,
                   const char *const *words, size_t count);

enum { PLAN_TILE_WORDS = 9 };
/* The number of query tiles of `tile_m` rows, as postfix words over the sizes;
 * with packed heads those of all heads of a group count as one. */
size_t plan_tile_words(MlirOperation func, struct arena *arena, int tile_m,
                       const char *out_words[PLAN_TILE_WORDS]);

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
