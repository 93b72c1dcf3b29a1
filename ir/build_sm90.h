/* Builders of the ops that asynchronous kernels need: votes, mbarriers, TMA
 * copies, wgmma, roles (docs/ir.md).  Used by `rescale` on every target and by
 * the Hopper pipeline. */
#ifndef ATTN_IR_BUILD_SM90_H
#define ATTN_IR_BUILD_SM90_H

#include "ir/build.h"

/* ---- Votes and lane-partial reductions ----------------------------------- */

/* Maximum of the lane's own elements of each row: MxN -> Mx4, i32 (signed) or
 * f32 (a number wins against NaN). */
MlirValue ir_partial_max(struct ir_builder *b, MlirValue tile);
/* True in every lane when the predicate (i1: scalar, Mx1 or Mx4) holds in any
 * lane. */
MlirValue ir_vote_any(struct ir_builder *b, MlirValue predicate);
/* Lane 0's value in every lane (shfl.sync.idx): the same value, where it
 * already is, but kept out of the uniform register file. */
MlirValue ir_uniform(struct ir_builder *b, MlirValue x);
/* `x` of lane number `lane` mod 32, i32 both, `lane` the same in all lanes
 * (shfl.sync.idx). */
MlirValue ir_lane_value(struct ir_builder *b, MlirValue x, MlirValue lane);
/* True in one lane of the warp (elect.sync). */
MlirValue ir_elect(struct ir_builder *b);

/* ---- mbarriers (PTX ISA, "mbarrier") ------------------------------------- */

/* `count` mbarriers at byte_offset of shared memory, each completing a phase
 * after `arrivals` arrivals and all expected bytes. */
MlirValue ir_mbarriers(struct ir_builder *b, const char *name, int byte_offset,
                       int count, int arrivals);
/* Initialises all of them; by one thread, before ir_fence_mbarrier_init. */
void ir_mbarrier_init(struct ir_builder *b, MlirValue barriers);
/* Makes the initialisation visible to asynchronous copies
 * (fence.mbarrier_init.release.cluster). */
void ir_fence_mbarrier_init(struct ir_builder *b);
/* At the start of a kernel that may be launched while the one before it on the
 * stream ends (programmatic dependent launch): lets the next one do so, and
 * waits until those before are complete.  Nothing in global memory may be
 * touched in front of it (PTX ISA, "griddepcontrol").  Marks the function as
 * attn.programmatic. */
void ir_begin_dependent_grid(struct ir_builder *b, MlirOperation func);
/* memref[index] (shared, i32) of lane 0, which loads it for the warp: it is
 * also the lane that arrives at mbarriers for it, so that nobody else's load
 * needs to be waited for. */
MlirValue ir_load_for_warp(struct ir_builder *b, MlirValue memref,
                           MlirValue index);
/* Waits until the phase of this parity (0 or 1) has completed. */
void ir_mbarrier_wait(struct ir_builder *b, MlirValue barriers, MlirValue index,
                      MlirValue parity);
/* One arrival: by an elected lane of each warp, or by the executing thread
 * (single). */
void ir_mbarrier_arrive(struct ir_builder *b, MlirValue barriers,
                        MlirValue index, bool single);
/* The executing thread arrives and announces `bytes` of asynchronous copies. */
void ir_mbarrier_expect_tx(struct ir_builder *b, MlirValue barriers,
                           MlirValue index, int bytes);

/* ---- TMA and wgmma ------------------------------------------------------- */

/* Rows row.. of src[batch, head] to a shared tile, counted by an mbarrier. */
MlirOperation ir_tma_load(struct ir_builder *b, MlirValue src, MlirValue batch,
                          MlirValue head, MlirValue row, MlirValue dst,
                          MlirValue barriers, MlirValue index);
/* The 64 rows of a 16-bit register tile to a tile of panels (stmatrix), where
 * the async proxy sees them once all warps have passed a barrier behind it. */
void ir_stmatrix(struct ir_builder *b, MlirValue value, MlirValue dst);
/* A shared tile to rows row.. of dst[batch, head] by the executing thread,
 * asynchronous; rows outside of dst are left out. */
MlirOperation ir_tma_store(struct ir_builder *b, MlirValue src, MlirValue dst,
                           MlirValue batch, MlirValue head, MlirValue row);
/* Waits until the thread's ir_tma_store have read their tiles. */
void ir_tma_store_wait(struct ir_builder *b);
/* acc + x*y, asynchronous: the result may be read after ir_wgmma_wait. */
MlirValue ir_wgmma(struct ir_builder *b, MlirValue x, MlirValue y,
                   MlirValue acc, bool transpose_b);
/* Orders register writes before the wgmmas that follow (wgmma.fence). */
void ir_wgmma_fence(struct ir_builder *b);
/* Makes the warpgroup's wgmmas since the last one a group. */
void ir_wgmma_commit(struct ir_builder *b);
/* Waits until at most `pending` committed groups are in flight; gives
 * `value`. */
MlirValue ir_wgmma_wait(struct ir_builder *b, MlirValue value, int pending);

/* ---- Roles --------------------------------------------------------------- */

/* Number of the consumer warpgroup whose program this is, i32. */
MlirValue ir_consumer(struct ir_builder *b);
/* Of the key loop that follows, passes begin <= i < end are the consumer's. */
void ir_own_blocks(struct ir_builder *b, MlirValue begin, MlirValue end);
/* Registers of a thread of this warpgroup from here on (setmaxnreg). */
void ir_set_max_registers(struct ir_builder *b, int count, bool increase);
/* Arrives at named barrier `id` (1..15) and waits until `threads` have. */
void ir_bar_sync(struct ir_builder *b, MlirValue id, int threads);
/* Arrives and does not wait. */
void ir_bar_arrive(struct ir_builder *b, MlirValue id, int threads);
/* Draws a number from a counter that runs 0..wrap and starts over
 * (atom.inc). */
MlirValue ir_atomic_inc(struct ir_builder *b, MlirValue workspace,
                        MlirValue element, MlirValue wrap);
/* Number of CTAs, i32. */
MlirValue ir_grid_dim(struct ir_builder *b);
/* A shared tile for TMA and wgmma: panels of swizzle_bytes, see docs/ir.md. */
MlirValue ir_shared_panels(struct ir_builder *b, MlirType type,
                           const char *name, int byte_offset,
                           int swizzle_bytes);

#endif
