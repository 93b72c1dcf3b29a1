/* The key loop of sparse masks where a warp of its own finds the blocks
 * (sm_90a).
 *
 * A while loop whose first part is the search for the next block that is kept,
 * from the last one down, 32 blocks at a time.  A block has a class for the
 * rows of each consumer c, so that it runs for those only that attend to it;
 * one for all where the mask reads query positions as q / n with n tiles or
 * more:
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
 *     classes = (own_c[lane] | whole_c[lane] << 1 | rest_c[lane] << 2) << 3c,
 *               attn.classes = {how many, bits of each}
 *
 * `pipeline` gives the search to the producer warp and hands entry and classes
 * to the consumers beside the K block; one whose `own` is 0 skips it.
 *
 * Not here: kernels without roles (tile-list.c). */
#include <assert.h>

#include "passes/tile.h"

/* Behind RUN and BASE words for each class, but no REST where the mask has
 * none. */
enum { RUN, BASE, OF_CLASSES };
enum of_class { OWN, WHOLE, REST, WORDS };
enum { LANES = 32, MAX_CLASSES = 4 };
enum { SEARCH_MAX = OF_CLASSES + WORDS * MAX_CLASSES };

/* The search under construction. */
struct search {
    struct tile_kernel *kernel;
    int classes; /* of a block: the consumers', or 1 for all of them */
    int words;   /* of a class */
};

static size_t word_of(const struct search *s, int class, enum of_class word) {
    return OF_CLASSES + (size_t)(s->words * class) + word;
}

static size_t search_count(const struct search *s) {
    return word_of(s, s->classes, OWN);
}

/* Is the op x / n with n a multiple of `tile`? */
static bool divides_by_tiles(MlirOperation op, MlirValue x, int64_t tile) {
    int64_t n = 0;
    if (ir_operand_count(op) != 2 || !mlirValueEqual(ir_operand(op, 0), x) ||
        !ir_constant_int(ir_operand(op, 1), &n) || n <= 0)
        return false;
    if (ir_is_op(op, "arith.shrsi") && n < 31)
        return ((int64_t)1 << n) % tile == 0;
    bool divides =
        ir_is_op(op, "arith.divui") || ir_is_op(op, "arith.floordivsi");
    return divides && n % tile == 0;
}

/* Are all rows of a tile the same to the classes? */
static bool rows_are_alike(const struct tile_kernel *kernel) {
    enum { Q_FIRST = 3, Q_LAST = 4 };
    for (size_t i = Q_FIRST; i <= Q_LAST; i++) {
        MlirValue q = ir_func_arg(kernel->classify, i);
        MlirOpOperand use = mlirValueGetFirstUse(q);
        for (; !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use))
            if (!divides_by_tiles(mlirOpOperandGetOwner(use), q,
                                  kernel->plan.tile_m))
                return false;
    }
    return true;
}

/* The lane's votes on its block, keys k_first.., for the rows of one class;
 * `inside`: there is a block. */
static void classify_rows(const struct search *s, int class, MlirValue k_first,
                          MlirValue inside, MlirValue votes[WORDS]) {
    struct tile_kernel *kernel = s->kernel;
    struct ir_builder *b = &kernel->b;
    MlirValue tile_first = kernel->q_first, tile_last = kernel->q_last;
    MlirValue first = ir_addi(b, kernel->tile_first,
                              tile_const(kernel, class * kernel->tile_rows));
    if (s->classes > 1)
        tile_narrow_rows(kernel, first);
    MlirValue rest, block_class = tile_classify(kernel, k_first, &rest);
    kernel->q_first = tile_first, kernel->q_last = tile_last;
    MlirValue end =
        ir_addi(b, k_first, tile_const(kernel, kernel->plan.tile_n));
    MlirValue full = ir_cmpi(b, IR_SLE, end, kernel->kv_len);
    MlirValue all = ir_cmpi(b, IR_EQ, block_class, tile_const(kernel, 2));
    MlirValue some = ir_cmpi(b, IR_NE, block_class, tile_const(kernel, 0));
    MlirValue own = ir_andi(b, inside, some);
    if (class > 0)
        own = ir_andi(b, own, ir_cmpi(b, IR_SLT, first, kernel->row_count));
    votes[OWN] = own;
    votes[WHOLE] = ir_andi(b, all, full);
    votes[REST] = ir_cmpi(b, IR_NE, rest, tile_const(kernel, 0));
}

/* Ballots of the 32 blocks that end at `base`.  All reads come before the first
 * ballot, so that none waits for another. */
static void classify_chunk(const struct search *s, MlirValue base,
                           MlirValue out[SEARCH_MAX]) {
    struct tile_kernel *kernel = s->kernel;
    struct ir_builder *b = &kernel->b;
    MlirValue votes[MAX_CLASSES][WORDS];
    MlirValue wish = ir_subi(b, base, ir_lane_id(b));
    MlirValue inside = ir_cmpi(b, IR_SGE, wish, kernel->first_block);
    MlirValue k_first = ir_muli(b, ir_maxsi(b, wish, kernel->first_block),
                                tile_const(kernel, kernel->plan.tile_n));
    for (int c = 0; c < s->classes; c++)
        classify_rows(s, c, k_first, inside, votes[c]);
    for (int c = 0; c < s->classes; c++) {
        for (int i = 0; i < s->words; i++)
            out[word_of(s, c, (enum of_class)i)] = ir_ballot(b, votes[c][i]);
        MlirValue own = out[word_of(s, c, OWN)];
        out[RUN] = c == 0 ? own : ir_ori(b, out[RUN], own);
    }
    out[BASE] = ir_subi(b, base, tile_const(kernel, LANES));
}

/* Steps from chunk to chunk until one has a kept block or none is left. */
static void find_chunk(const struct search *s, MlirValue state[SEARCH_MAX]) {
    struct tile_kernel *kernel = s->kernel;
    struct ir_builder *b = &kernel->b;
    MlirValue values[SEARCH_MAX];
    size_t count = search_count(s);
    struct ir_while loop = ir_while_begin(b, state, count);
    for (size_t i = 0; i < count; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue empty = ir_cmpi(b, IR_EQ, values[RUN], tile_const(kernel, 0));
    MlirValue left = ir_cmpi(b, IR_SGE, values[BASE], kernel->first_block);
    ir_while_do(b, &loop, ir_andi(b, empty, left), values, count);
    classify_chunk(s, ir_while_arg(&loop, 1, BASE), values);
    ir_while_end(b, &loop, values, count);
    for (size_t i = 0; i < count; i++)
        state[i] = ir_result(loop.op, i);
}

static MlirValue bit(struct ir_builder *b, MlirValue word, MlirValue number) {
    return ir_andi(b, ir_shrui(b, word, number), ir_const_i32(b, 1));
}

/* The next block of the chunk; takes it out of `run`. */
static MlirValue take_block(const struct search *s, MlirValue state[SEARCH_MAX],
                            MlirValue *out_classes) {
    struct tile_kernel *kernel = s->kernel;
    struct ir_builder *b = &kernel->b;
    MlirValue run = state[RUN], lane = ir_cttz(b, run);
    MlirValue block =
        ir_subi(b, ir_addi(b, state[BASE], tile_const(kernel, LANES)), lane);
    ir_set_attr(ir_def(block), "attn.entry", ir_attr_unit(b->context));
    MlirValue classes = tile_const(kernel, 0);
    for (int c = 0; c < s->classes; c++)
        for (int i = 0; i < s->words; i++) {
            MlirValue word = state[word_of(s, c, (enum of_class)i)];
            MlirValue place = tile_const(kernel, WORDS * c + i);
            classes = ir_ori(b, classes, ir_shli(b, bit(b, word, lane), place));
        }
    ir_set_int_pair(ir_def(classes), "attn.classes", s->classes, WORDS);
    state[RUN] = ir_andi(b, run, ir_subi(b, run, tile_const(kernel, 1)));
    *out_classes = classes;
    return block;
}

/* The classes of the consumer whose program this is, from bit 0 on. */
static MlirValue own_class(const struct search *s, MlirValue classes) {
    struct tile_kernel *kernel = s->kernel;
    struct ir_builder *b = &kernel->b;
    if (s->classes == 1)
        return classes;
    return ir_shrui(b, classes,
                    ir_muli(b, kernel->consumer, tile_const(kernel, WORDS)));
}

void tile_loop_search(struct tile_kernel *kernel,
                      MlirValue state[STATE_COUNT]) {
    enum { MAX = SEARCH_MAX + STATE_COUNT };
    struct ir_builder *b = &kernel->b;
    const struct search s = {
        .kernel = kernel,
        .classes = rows_are_alike(kernel) ? 1 : kernel->plan.consumers,
        .words = kernel->has_rest ? WORDS : REST};
    size_t words = search_count(&s), count = words + STATE_COUNT;
    MlirValue zero = tile_const(kernel, 0), one = tile_const(kernel, 1);
    MlirValue values[MAX];
    assert(s.classes <= MAX_CLASSES);
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
    find_chunk(&s, values);
    MlirValue found = ir_cmpi(b, IR_NE, values[RUN], zero);
    ir_while_do(b, &loop, found, values, count);
    for (size_t i = 0; i < count; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    MlirValue classes, block = take_block(&s, values, &classes);
    MlirValue own = own_class(&s, classes), rest = {NULL};
    MlirValue whole = bit(b, own, tile_const(kernel, WHOLE));
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
