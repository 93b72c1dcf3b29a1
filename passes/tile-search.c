/* The key loop of sparse masks where a warp of its own finds the blocks
 * (sm_90a).
 *
 * A while loop whose first part is the search for the next block that is kept,
 * from the last one down, 32 blocks at a time:
 *
 *     lane l       class of block base - l
 *     run, whole   ballots: blocks of this chunk still to come; whole ones
 *     base         last block of the next chunk
 *
 *     while (run == 0 && base >= first_block) { classify; base -= 32 }
 *     lane = cttz(run); run &= run - 1
 *     entry = (base + 32 - lane)·2 + whole[lane]
 *
 * `pipeline` gives the search to the producer warp and hands `entry` to the
 * consumers beside the K block.  The classes are those of the whole CTA's query
 * rows.
 *
 * Not here: kernels without roles (tile-list.c). */
#include "passes/tile.h"

enum { RUN, WHOLE, BASE, SEARCH_COUNT };
enum { LANES = 32 };

/* Ballots of the 32 blocks that end at `base`: kept ones and whole ones. */
static void classify_chunk(struct tile_kernel *kernel, MlirValue base,
                           MlirValue out[SEARCH_COUNT]) {
    struct ir_builder *b = &kernel->b;
    MlirValue width = tile_const(kernel, kernel->plan.tile_n);
    MlirValue wish = ir_subi(b, base, ir_lane_id(b));
    MlirValue inside = ir_cmpi(b, IR_SGE, wish, kernel->first_block);
    MlirValue k_first =
        ir_muli(b, ir_maxsi(b, wish, kernel->first_block), width);
    MlirValue block_class = tile_classify(kernel, k_first);
    MlirValue full =
        ir_cmpi(b, IR_SLE, ir_addi(b, k_first, width), kernel->kv_len);
    MlirValue all = ir_cmpi(b, IR_EQ, block_class, tile_const(kernel, 2));
    MlirValue some = ir_cmpi(b, IR_NE, block_class, tile_const(kernel, 0));
    out[RUN] = ir_ballot(b, ir_andi(b, inside, some));
    out[WHOLE] = ir_ballot(b, ir_andi(b, all, full));
    out[BASE] = ir_subi(b, base, tile_const(kernel, LANES));
}

/* Steps from chunk to chunk until one has a kept block or none is left. */
static void search(struct tile_kernel *kernel, MlirValue state[SEARCH_COUNT]) {
    struct ir_builder *b = &kernel->b;
    MlirValue values[SEARCH_COUNT];
    struct ir_while loop = ir_while_begin(b, state, SEARCH_COUNT);
    for (size_t i = 0; i < SEARCH_COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue empty = ir_cmpi(b, IR_EQ, values[RUN], tile_const(kernel, 0));
    MlirValue left = ir_cmpi(b, IR_SGE, values[BASE], kernel->first_block);
    ir_while_do(b, &loop, ir_andi(b, empty, left), values, SEARCH_COUNT);
    classify_chunk(kernel, ir_while_arg(&loop, 1, BASE), values);
    ir_while_end(b, &loop, values, SEARCH_COUNT);
    for (size_t i = 0; i < SEARCH_COUNT; i++)
        state[i] = ir_result(loop.op, i);
}

/* The next block of the chunk; takes it out of `run`. */
static MlirValue take_entry(struct tile_kernel *kernel,
                            MlirValue state[SEARCH_COUNT]) {
    struct ir_builder *b = &kernel->b;
    MlirValue one = tile_const(kernel, 1), run = state[RUN];
    MlirValue lane = ir_cttz(b, run);
    MlirValue block =
        ir_subi(b, ir_addi(b, state[BASE], tile_const(kernel, LANES)), lane);
    MlirValue whole = ir_andi(b, ir_shrui(b, state[WHOLE], lane), one);
    MlirValue entry = ir_ori(b, ir_shli(b, block, one), whole);
    ir_set_attr(ir_def(entry), "attn.entry", ir_attr_unit(b->context));
    state[RUN] = ir_andi(b, run, ir_subi(b, run, one));
    return entry;
}

void tile_loop_search(struct tile_kernel *kernel,
                      MlirValue state[STATE_COUNT]) {
    enum { COUNT = SEARCH_COUNT + STATE_COUNT };
    struct ir_builder *b = &kernel->b;
    MlirValue zero = tile_const(kernel, 0), one = tile_const(kernel, 1),
              values[COUNT];
    MlirValue none = ir_cmpi(b, IR_EQ, kernel->block_count, zero);
    values[RUN] = values[WHOLE] = zero;
    values[BASE] = ir_select(b, none, ir_subi(b, kernel->first_block, one),
                             kernel->last_block);
    for (size_t i = 0; i < STATE_COUNT; i++)
        values[SEARCH_COUNT + i] = state[i];
    struct ir_while loop = ir_while_begin(b, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    search(kernel, values);
    MlirValue found = ir_cmpi(b, IR_NE, values[RUN], zero);
    ir_while_do(b, &loop, found, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    MlirValue entry = take_entry(kernel, values);
    MlirValue k_first = ir_muli(b, ir_shrui(b, entry, one),
                                tile_const(kernel, kernel->plan.tile_n));
    MlirValue partial = ir_cmpi(b, IR_EQ, ir_andi(b, entry, one), zero);
    tile_key_block(kernel, k_first, partial, values + SEARCH_COUNT);
    ir_while_end(b, &loop, values, COUNT);
    for (size_t i = 0; i < STATE_COUNT; i++)
        state[i] = ir_result(loop.op, SEARCH_COUNT + i);
}
