/* The kernel under construction by the pass `tile`; shared by tile*.c only. */
#ifndef ATTN_PASSES_TILE_H
#define ATTN_PASSES_TILE_H

#include "ir/build.h"
#include "ir/walk.h"
#include "passes/pass.h"
#include "passes/schedule.h"

/* The running softmax: accumulator MxDv, row maxima Mx1 and partial row sums
 * Mx4. */
enum { STATE_ACC, STATE_M, STATE_L, STATE_COUNT };

struct tile_kernel {
    struct ir_builder b;
    MlirOperation func, attention;
    struct schedule_plan plan;
    /* Functions of the spec, null when absent. */
    MlirOperation mask, score, classify, kv_bounds;
    MlirOperation causal; /* the mask's test kv <= q; null: there is none */
    bool has_rest;        /* roles: it stands beside others */
    MlirValue q_len, kv_len;
    /* Tile coordinates: batch, heads; first and last real query position that
     * classes and bounds are about. */
    MlirValue batch, head, kv_head, q_first, q_last;
    MlirValue tile_first; /* the first row of the tile */
    MlirValue consumer;   /* whose program this is; null: there are no roles */
    int tile_rows; /* query rows of this program: the tile's, or a consumer's 64
                    */
    /* Packed GQA: row r of a tile is query r / pack of head
     * `head` + r % pack.  1: rows are the queries of one head. */
    int pack;
    MlirValue row_count; /* of all tiles of a head: q_len · pack */
    MlirValue row_first; /* the first row of this program */
    MlirValue rows;      /* Mx1: query positions */
    MlirValue row_heads; /* `head`; packed: Mx1, the head of each row */
    MlirValue columns;   /* 1xN: 0..N-1 */
    MlirValue q_tile;    /* shared MxD */
    MlirValue first_block, last_block,
        block_count; /* key blocks, last to first */
    MlirType scores; /* vector<MxNxf32> */
};

/* Do most key blocks of a tile run? */
bool tile_is_dense(const struct tile_kernel *kernel);

/* i32 constant at the builder's place. */
MlirValue tile_const(struct tile_kernel *kernel, int value);

/* The value of all lanes of a warp, known to be one: what is derived from it
 * then lives in uniform registers. */
MlirValue tile_uniform(struct ir_builder *b, MlirValue x);

/* One key block: loads, scores, mask where `partial` (i1, uniform), softmax
 * step. `state` is read and replaced.  `rest` (i1, uniform, null: unknown): of
 * the mask nothing but kv <= q needs a test. */
void tile_key_block(struct tile_kernel *kernel, MlirValue k_first,
                    MlirValue partial, MlirValue rest,
                    MlirValue state[STATE_COUNT]);

/* Class of the keys k_first.. of one block for the queries q_first..q_last (0
 * skip, 1 partial, 2 whole), kernel->classify inlined; needs kernel->classify.
 * *out_rest (may be NULL): 1 where nothing but the test kv <= q is open. */
MlirValue tile_classify(struct tile_kernel *kernel, MlirValue k_first,
                        MlirValue *out_rest);

/* What a lane knows of a block of keys for the queries q_first..q_last (i1):
 * some pair may attend, all before kv_len do, and no key is past kv_len.  A
 * block with `all` and `full` needs no mask code. */
struct tile_vote {
    MlirValue some, all, full;
};

/* The vote on the keys k_first..; as tile_classify. */
struct tile_vote tile_vote_on(struct tile_kernel *kernel, MlirValue k_first,
                              MlirValue *out_rest);

/* Makes q_first..q_last, those of the tile, those of a consumer's rows from
 * `first`; past the end of q they are about the first of them. */
void tile_narrow_rows(struct tile_kernel *kernel, MlirValue first);

/* The loop over key blocks [first_block, last_block] itself, where most of them
 * run. */
void tile_loop_dense(struct tile_kernel *kernel, MlirValue state[STATE_COUNT]);

/* The loop over a list of the blocks that are not skipped, built chunk by chunk
 * in shared memory. */
void tile_loop_list(struct tile_kernel *kernel, MlirValue state[STATE_COUNT]);

/* The same for programs of a consumer: the search for the next block is the
 * first part of a while loop, its number an op with attn.entry and the classes
 * one with attn.classes (tile-search.c). */
void tile_loop_search(struct tile_kernel *kernel, MlirValue state[STATE_COUNT]);

/* Query tile (from 0) and batch·heads + head of persistent tile number
 * `number`, of `tiles` query tiles a head (tile-order.c). */
void tile_order(struct tile_kernel *kernel, MlirValue number, MlirValue tiles,
                MlirValue *out_tile, MlirValue *out_batch_head);

/* A size of the call, "size:heads". */
MlirValue tile_size(struct tile_kernel *kernel, const char *kind);

/* Heads whose tiles are counted: query heads, packed KV heads. */
MlirValue tile_head_count(struct tile_kernel *kernel);

/* Rewrites i32 sums of rows and columns as one row value and one column value,
 * joined by a single tile operation, and their conversions to f32 as
 * conversions of the two. */
void tile_separate(struct tile_kernel *kernel);

/* Moves what does not change in a loop in front of it, innermost loops first,
 * and shares equal reads: values that depend on the row or on nothing are
 * computed once. */
void tile_hoist(struct arena *scratch, MlirOperation func);

#endif
