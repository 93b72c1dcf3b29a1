/* The key loop of sparse masks where a warp of its own finds the blocks
 * (sm_90a).
 *
 * A while loop whose first part is the search for the next block that is kept,
 * from the last one down, 32 blocks at a time.  A block has a class for the
 * rows of each consumer c, so that it runs for those only that attend to it:
 *
 *     lane l       classes of block base - l
 *     run          ballot: blocks of this chunk still to come
 *     own, whole, rest
 *                  ballots for each consumer; rest: nothing but kv <= q is open
 *     base         last block of the next chunk
 *
 *     while (run == 0 && base >= first_block) { classify; base -= 32 }
 *     lane = cttz(run); run &= run - 1
 *     entry = base + 32 - lane
 *     classes = (own_c[lane] | whole_c[lane] << 1 | rest_c[lane] << 2) << 3c
 *
 * `pipeline` gives the search to the producer warp and hands entry and classes
 * to the consumers beside the K block; one whose `own` is 0 skips it.
 *
 * Not here: kernels without roles (tile-list.c). */
#include <assert.h>

#include "passes/tile.h"

/* Behind RUN and BASE words for each consumer.  OWN stays 0 for a single one,
 * REST where the mask has none. */
enum { RUN, BASE, OF_CONSUMERS };
enum of_consumer { OWN, WHOLE, REST, WORDS };
enum { LANES = 32, MAX_CONSUMERS = 4 };
enum { SEARCH_MAX = OF_CONSUMERS + WORDS * MAX_CONSUMERS };

static size_t word_of(int consumer, enum of_consumer word) {
    return OF_CONSUMERS + (size_t)(WORDS * consumer) + word;
}

static size_t search_count(const struct tile_kernel *kernel) {
    return word_of(kernel->plan.consumers, OWN);
}

/* The lane's votes on its block, keys k_first.., for the rows of one consumer;
 * `inside`: there is a block.  REST is null where the mask has none. */
static void classify_rows(struct tile_kernel *kernel, int consumer,
                          MlirValue k_first, MlirValue inside,
                          MlirValue votes[WORDS]) {
    struct ir_builder *b = &kernel->b;
    MlirValue tile_first = kernel->q_first, tile_last = kernel->q_last;
    MlirValue first = ir_addi(b, kernel->tile_first,
                              tile_const(kernel, consumer * kernel->tile_rows));
    tile_narrow_rows(kernel, first);
    MlirValue rest, block_class = tile_classify(kernel, k_first, &rest);
    kernel->q_first = tile_first, kernel->q_last = tile_last;
    MlirValue end =
        ir_addi(b, k_first, tile_const(kernel, kernel->plan.tile_n));
    MlirValue full = ir_cmpi(b, IR_SLE, end, kernel->kv_len);
    MlirValue all = ir_cmpi(b, IR_EQ, block_class, tile_const(kernel, 2));
    MlirValue some = ir_cmpi(b, IR_NE, block_class, tile_const(kernel, 0));
    MlirValue own = ir_andi(b, inside, some);
    if (consumer > 0)
        own = ir_andi(b, own, ir_cmpi(b, IR_SLT, first, kernel->row_count));
    votes[OWN] = own;
    votes[WHOLE] = ir_andi(b, all, full);
    votes[REST] = (MlirValue){NULL};
    if (kernel->has_rest)
        votes[REST] = ir_cmpi(b, IR_NE, rest, tile_const(kernel, 0));
}

/* Ballots of the 32 blocks that end at `base`.  All reads come before the first
 * ballot, so that none waits for another. */
static void classify_chunk(struct tile_kernel *kernel, MlirValue base,
                           MlirValue out[SEARCH_MAX]) {
    struct ir_builder *b = &kernel->b;
    int consumers = kernel->plan.consumers;
    MlirValue votes[MAX_CONSUMERS][WORDS];
    MlirValue wish = ir_subi(b, base, ir_lane_id(b));
    MlirValue inside = ir_cmpi(b, IR_SGE, wish, kernel->first_block);
    MlirValue k_first = ir_muli(b, ir_maxsi(b, wish, kernel->first_block),
                                tile_const(kernel, kernel->plan.tile_n));
    for (int c = 0; c < consumers; c++)
        classify_rows(kernel, c, k_first, inside, votes[c]);
    for (int c = 0; c < consumers; c++) {
        MlirValue *words = out + word_of(c, OWN);
        MlirValue own = ir_ballot(b, votes[c][OWN]);
        out[RUN] = c == 0 ? own : ir_ori(b, out[RUN], own);
        words[OWN] = consumers == 1 ? tile_const(kernel, 0) : own;
        words[WHOLE] = ir_ballot(b, votes[c][WHOLE]);
        words[REST] = kernel->has_rest ? ir_ballot(b, votes[c][REST])
                                       : tile_const(kernel, 0);
    }
    out[BASE] = ir_subi(b, base, tile_const(kernel, LANES));
}

/* Steps from chunk to chunk until one has a kept block or none is left. */
static void search(struct tile_kernel *kernel, MlirValue state[SEARCH_MAX]) {
    struct ir_builder *b = &kernel->b;
    MlirValue values[SEARCH_MAX];
    size_t count = search_count(kernel);
    struct ir_while loop = ir_while_begin(b, state, count);
    for (size_t i = 0; i < count; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue empty = ir_cmpi(b, IR_EQ, values[RUN], tile_const(kernel, 0));
    MlirValue left = ir_cmpi(b, IR_SGE, values[BASE], kernel->first_block);
    ir_while_do(b, &loop, ir_andi(b, empty, left), values, count);
    classify_chunk(kernel, ir_while_arg(&loop, 1, BASE), values);
    ir_while_end(b, &loop, values, count);
    for (size_t i = 0; i < count; i++)
        state[i] = ir_result(loop.op, i);
}

static MlirValue bit(struct ir_builder *b, MlirValue word, MlirValue number) {
    return ir_andi(b, ir_shrui(b, word, number), ir_const_i32(b, 1));
}

static void mark(struct ir_builder *b, MlirValue value, const char *attribute) {
    ir_set_attr(ir_def(value), attribute, ir_attr_unit(b->context));
}

/* The next block of the chunk; takes it out of `run`. */
static MlirValue take_block(struct tile_kernel *kernel,
                            MlirValue state[SEARCH_MAX],
                            MlirValue *out_classes) {
    struct ir_builder *b = &kernel->b;
    MlirValue run = state[RUN], lane = ir_cttz(b, run);
    MlirValue block =
        ir_subi(b, ir_addi(b, state[BASE], tile_const(kernel, LANES)), lane);
    mark(b, block, "attn.entry");
    MlirValue classes = tile_const(kernel, 0);
    for (int i = 0; i < WORDS * kernel->plan.consumers; i++) {
        MlirValue set = bit(b, state[OF_CONSUMERS + i], lane);
        classes = ir_ori(b, classes, ir_shli(b, set, tile_const(kernel, i)));
    }
    mark(b, classes, "attn.classes");
    state[RUN] = ir_andi(b, run, ir_subi(b, run, tile_const(kernel, 1)));
    *out_classes = classes;
    return block;
}

void tile_loop_search(struct tile_kernel *kernel,
                      MlirValue state[STATE_COUNT]) {
    enum { MAX = SEARCH_MAX + STATE_COUNT };
    struct ir_builder *b = &kernel->b;
    size_t words = search_count(kernel), count = words + STATE_COUNT;
    MlirValue zero = tile_const(kernel, 0), one = tile_const(kernel, 1);
    MlirValue values[MAX];
    assert(kernel->plan.consumers <= MAX_CONSUMERS);
    MlirValue none = ir_cmpi(b, IR_EQ, kernel->block_count, zero);
    for (size_t i = 0; i < words; i++)
        values[i] = zero;
    values[BASE] = ir_select(b, none, ir_subi(b, kernel->first_block, one),
                             kernel->last_block);
    for (size_t i = 0; i < STATE_COUNT; i++)
        values[words + i] = state[i];
    struct ir_while loop = ir_while_begin(b, values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    search(kernel, values);
    MlirValue found = ir_cmpi(b, IR_NE, values[RUN], zero);
    ir_while_do(b, &loop, found, values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    MlirValue classes, block = take_block(kernel, values, &classes);
    MlirValue own = ir_shrui(
        b, classes, ir_muli(b, kernel->consumer, tile_const(kernel, WORDS)));
    MlirValue whole = bit(b, own, tile_const(kernel, WHOLE));
    MlirValue rest = {NULL};
    if (kernel->has_rest)
        rest = ir_cmpi(b, IR_NE, bit(b, own, tile_const(kernel, REST)), zero);
    MlirValue k_first =
        ir_muli(b, block, tile_const(kernel, kernel->plan.tile_n));
    tile_key_block(kernel, k_first, ir_cmpi(b, IR_EQ, whole, zero), rest,
                   values + words);
    ir_while_end(b, &loop, values, count);
    for (size_t i = 0; i < STATE_COUNT; i++)
        state[i] = ir_result(loop.op, words + i);
}
