/* What the parts of a consumer share: one block (pipeline-sm90-block.c), the
 * blocks of a list (pipeline-sm90-list.c), tiles (pipeline-sm90-consume.c). */
#ifndef ATTN_PASSES_PIPELINE_SM90_CONSUME_H
#define ATTN_PASSES_PIPELINE_SM90_CONSUME_H

#include "passes/pipeline-sm90-roles.h"

/* What a consumer carries from block to block: the accumulator without P·V of
 * the block before, whose P waits for its V.  The rings of K and V have as many
 * stages and blocks: V(j-1) lies where K(j-1) lay. */
enum { C_ACC, C_M, C_L, C_P, C_KS, C_KP, C_VS, C_VP, C_COUNT };

/* Positions in the rings of K and V: stage and parity of each. */
enum { RING_VALUES = 4 };

/* The first block of a tile or a run has its scores already.  `again` (i1): of
 * a tile's second run or a later one; null: that never happens. */
struct peeled {
    MlirValue scores, again;
};

/* Banner of the key loop in the PTX. */
extern const char consume_mainloop_title[];

/* ---- One block ----------------------------------------------------------- */

/* S = Q·K^T in flight: the slot of Q, the position of K. */
MlirValue consume_start_qk(struct roles *r, MlirValue q_slot, struct ring k);
/* Waits for it, nothing else being in flight; gives K back and moves on. */
MlirValue consume_finish_qk(struct roles *r, MlirValue s, MlirValue k_ring[2]);
/* One block, `scope` having the images of the loop counter or entry.  `peeled`:
 * of a first block; NULL for others.  `late`: not NULL for a listed block that
 * is not known yet; receives what stands beside its K, read behind the issue
 * of its products, which do not wait for it then. */
void consume_block(struct roles *r, struct scope *scope,
                   MlirValue carried[C_COUNT], const struct peeled *peeled,
                   struct listed *late);
/* Gives the tile's Q back; later where O is to take its slot. */
void consume_release_q(struct roles *r);
/* Behind a first block, or in a tile without one: gives back the slot of Q from
 * which O of the tile before was copied.  By then the copy is over, and the
 * slot is not wanted before the tile behind.  `again` as above. */
void consume_finish_store(struct roles *r, MlirValue again);
/* The last P·V. */
void consume_tail(struct roles *r, MlirValue carried[C_COUNT]);

/* ---- Lists --------------------------------------------------------------- */

/* Blocks of a list are others' only where each consumer has a class. */
bool consume_has_skips(const struct roles *r);
/* What stands beside K, which is there. */
struct listed consume_read_listed(struct roles *r, struct ring k);
/* Waits for the next block of the list. */
struct listed consume_next_listed(struct roles *r, struct ring k);
/* Enters a block's number and classes. */
void consume_set_listed(struct roles *r, struct scope *block,
                        struct listed listed);
/* i1: is the block this consumer's? */
MlirValue consume_is_own(struct roles *r, MlirValue classes);
/* From block `at` on, which is not own, to the next own one (waited for) or the
 * tile's last, which is skipped too.  Replaces `at`, whose consume_is_own then
 * says which, and the rings.  `in_tile`: an own block was before. */
void consume_seek_own(struct roles *r, bool in_tile, struct listed *at,
                      MlirValue rings[RING_VALUES]);
/* From the first listed block, which may not be own, to the first own one among
 * as many as the ring holds, so that its product can run while rows are
 * written.  K of those passed is given back, V is not.  Replaces `at` and the
 * position of K; returns how many were passed. */
MlirValue consume_seek_early(struct roles *r, struct listed *at,
                             MlirValue k_ring[2]);
/* All own blocks of a tile from `at` on, whose scores are `s`; gives Q back. */
void consume_listed(struct roles *r, const struct scope *tile, struct listed at,
                    MlirValue s, MlirValue carried[C_COUNT]);

#endif
