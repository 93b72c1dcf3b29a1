/* The key loop of sparse masks: a list of the blocks to run, built by the CTA
 * itself.
 *
 * Threads classify one key block each, 32·W at a time, from the last block
 * down:
 *
 *     thread t   class of block last - t (t beyond the range: skip)
 *     ballot     one word a warp -> shared `words`
 *     barrier
 *     rank       kept blocks of warps before + kept lanes before -> list[rank]
 *     barrier
 *     loop       over the list, in the same order in every run
 *
 * An entry is block·2 + (1 if the block is whole).  `words` is written again
 * only after every thread has passed the second barrier, `list` after the first
 * of the next chunk. */
#include "passes/tile.h"

struct block_list {
    MlirValue words;   /* memref<W x i32>: kept lanes of each warp */
    MlirValue entries; /* memref<32·W x i32> */
    MlirValue thread, lane, warp;
};

static struct block_list emit_list(struct tile_kernel *kernel) {
    struct ir_builder *b = &kernel->b;
    int64_t warps = kernel->plan.warps, threads = 32 * warps;
    MlirType i32 = ir_type_i32(b->context);
    struct ir_shared words = {.name = "block_words"};
    struct ir_shared entries = {.name = "block_list",
                                .byte_offset = (int)(warps + 3) / 4 * 16};
    return (struct block_list){
        .words = ir_shared(b, ir_type_shared(i32, 1, &warps), &words),
        .entries = ir_shared(b, ir_type_shared(i32, 1, &threads), &entries),
        .thread = ir_thread_id(b),
        .lane = ir_lane_id(b),
        .warp = ir_subgroup_id(b),
    };
}

/* The thread's block of a chunk: its list entry, and whether it is kept. */
static void emit_own_class(struct tile_kernel *kernel,
                           const struct block_list *list, MlirValue chunk_last,
                           MlirValue *out_entry, MlirValue *out_keep) {
    struct ir_builder *b = &kernel->b;
    MlirValue wish = ir_subi(b, chunk_last, list->thread);
    MlirValue inside = ir_cmpi(b, IR_SGE, wish, kernel->first_block);
    MlirValue block = ir_maxsi(b, wish, kernel->first_block);
    MlirValue k_first =
        ir_muli(b, block, tile_const(kernel, kernel->plan.tile_n));
    struct tile_vote vote = tile_vote_on(kernel, k_first, NULL);
    MlirValue whole =
        ir_extui(b, ir_andi(b, vote.all, vote.full), ir_type_i32(b->context));
    *out_keep = ir_andi(b, inside, vote.some);
    *out_entry = ir_ori(b, ir_shli(b, block, tile_const(kernel, 1)), whole);
}

/* if (condition) memref[index] = value. */
static void store_if(struct ir_builder *b, MlirValue condition, MlirValue value,
                     MlirValue memref, MlirValue index) {
    struct ir_if branch = ir_if_begin(b, condition, NULL, 0, false);
    ir_store_element(b, value, memref, &index, 1);
    ir_if_end(b, &branch, NULL, 0);
}

/* Fills the list for the chunk that ends at block chunk_last; its length,
 * uniform. */
static MlirValue emit_chunk(struct tile_kernel *kernel,
                            const struct block_list *list,
                            MlirValue chunk_last) {
    struct ir_builder *b = &kernel->b;
    MlirValue entry, keep, zero = tile_const(kernel, 0),
                           one = tile_const(kernel, 1);
    emit_own_class(kernel, list, chunk_last, &entry, &keep);
    MlirValue ballot = ir_ballot(b, keep);
    store_if(b, ir_cmpi(b, IR_EQ, list->lane, zero), ballot, list->words,
             list->warp);
    ir_barrier(b);
    MlirValue lanes_before = ir_subi(b, ir_shli(b, one, list->lane), one);
    MlirValue rank = ir_ctpop(b, ir_andi(b, ballot, lanes_before));
    MlirValue total = zero;
    for (int warp = 0; warp < kernel->plan.warps; warp++) {
        MlirValue index = tile_const(kernel, warp);
        MlirValue kept =
            ir_ctpop(b, ir_load_element(b, list->words, &index, 1));
        MlirValue before = ir_cmpi(b, IR_SLT, index, list->warp);
        rank = ir_addi(b, rank, ir_select(b, before, kept, zero));
        total = ir_addi(b, total, kept);
    }
    store_if(b, keep, entry, list->entries, rank);
    ir_barrier(b);
    return tile_uniform(b, total);
}

/* The loop over the list's entries. */
static void emit_entries(struct tile_kernel *kernel,
                         const struct block_list *list, MlirValue length,
                         MlirValue state[STATE_COUNT]) {
    struct ir_builder *b = &kernel->b;
    MlirValue zero = tile_const(kernel, 0), one = tile_const(kernel, 1);
    struct ir_for loop = ir_for_begin(b, zero, length, one, state, STATE_COUNT);
    MlirValue entry = ir_load_element(b, list->entries, &loop.iv, 1);
    MlirValue block = ir_shrui(b, entry, one);
    MlirValue k_first =
        ir_muli(b, block, tile_const(kernel, kernel->plan.tile_n));
    MlirValue partial = ir_cmpi(b, IR_EQ, ir_andi(b, entry, one), zero);
    MlirValue carried[STATE_COUNT];
    for (size_t i = 0; i < STATE_COUNT; i++)
        carried[i] = ir_for_arg(&loop, i);
    tile_key_block(kernel, k_first, partial, (MlirValue){NULL}, carried);
    ir_for_end(b, &loop, carried, STATE_COUNT);
    for (size_t i = 0; i < STATE_COUNT; i++)
        state[i] = ir_result(loop.op, i);
}

/* The loop counts -block, so that the counter and its end say all about the
 * range of blocks: registers are scarce in the key loop. */
void tile_loop_list(struct tile_kernel *kernel, MlirValue state[STATE_COUNT]) {
    struct ir_builder *b = &kernel->b;
    MlirValue zero = tile_const(kernel, 0), one = tile_const(kernel, 1);
    MlirValue begin = ir_subi(b, zero, kernel->last_block);
    MlirValue end = ir_subi(b, one, kernel->first_block);
    MlirValue some = ir_cmpi(b, IR_SGT, kernel->block_count, zero);
    begin = tile_uniform(b, begin);
    end = tile_uniform(b, ir_select(b, some, end, begin));
    struct block_list list = emit_list(kernel);
    MlirValue threads = tile_const(kernel, 32 * kernel->plan.warps);
    struct ir_for loop =
        ir_for_begin(b, begin, end, threads, state, STATE_COUNT);
    MlirValue carried[STATE_COUNT];
    for (size_t i = 0; i < STATE_COUNT; i++)
        carried[i] = ir_for_arg(&loop, i);
    kernel->first_block = ir_subi(b, one, end);
    MlirValue chunk_last = ir_subi(b, zero, loop.iv);
    MlirValue length = emit_chunk(kernel, &list, chunk_last);
    emit_entries(kernel, &list, length, carried);
    ir_for_end(b, &loop, carried, STATE_COUNT);
    for (size_t i = 0; i < STATE_COUNT; i++)
        state[i] = ir_result(loop.op, i);
}
