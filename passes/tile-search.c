/* The key loop of sparse masks where a warp of its own finds the blocks
 * (sm_90a).
 *
 * A while loop whose first part is the search for the next block that is kept,
 * from the last one down, 32 blocks at a time.  A block has a class for the
 * rows of each consumer c, so that it runs for those only that attend to it;
 * one for all where the mask reads query positions as q / n with n tiles or
 * more:
 *
 *     lane l       classes of block base - l, three bits for each consumer c:
 *                  own, whole, rest (nothing but kv <= q is open)
 *     run          ballot: blocks of this chunk still to come
 *     base         last block of the next chunk
 *
 *     while (run == 0 && base >= first_block) { classify; base -= 32 }
 *     lane = cttz(run); run &= run - 1
 *     entry = base + 32 - lane
 *     classes = those of the lane; attn.classes = {how many, bits of each}
 *
 * `pipeline` gives the search to a warp beside the producer, and the consumers
 * get entry and classes beside the K block; one whose `own` is 0 skips it.
 *
 * Not here: kernels without roles (tile-list.c). */
#include "ir/build_sm90.h"
#include "passes/tile.h"

/* What a search goes on with: CLASSES differ from lane to lane. */
enum { RUN, BASE, CLASSES, SEARCH_COUNT };
/* Bits of a class. */
enum { OWN, WHOLE, REST, CLASS_BITS };
enum { LANES = 32 };

/* The search under construction. */
struct search {
    struct tile_kernel *kernel;
    int classes; /* of a block: the consumers', or 1 for all of them */
};

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

/* bit `place` where the condition holds. */
static MlirValue bit_if(struct tile_kernel *kernel, MlirValue condition,
                        int place) {
    return ir_select(&kernel->b, condition, tile_const(kernel, 1 << place),
                     tile_const(kernel, 0));
}

/* The class of the lane's block, keys k_first.., for the rows of one consumer,
 * at its place; `inside`: there is a block.  `own` says whether they attend. */
static MlirValue classify_rows(const struct search *s, int class,
                               MlirValue k_first, MlirValue inside,
                               MlirValue *own) {
    struct tile_kernel *kernel = s->kernel;
    struct ir_builder *b = &kernel->b;
    MlirValue tile_first = kernel->q_first, tile_last = kernel->q_last;
    MlirValue first = ir_addi(b, kernel->tile_first,
                              tile_const(kernel, class * kernel->tile_rows));
    if (s->classes > 1)
        tile_narrow_rows(kernel, first);
    MlirValue rest;
    struct tile_vote vote = tile_vote_on(kernel, k_first, &rest);
    kernel->q_first = tile_first, kernel->q_last = tile_last;
    *own = ir_andi(b, inside, vote.some);
    if (class > 0)
        *own = ir_andi(b, *own, ir_cmpi(b, IR_SLT, first, kernel->row_count));
    int place = CLASS_BITS * class;
    MlirValue whole = ir_andi(b, vote.all, vote.full);
    MlirValue bits = ir_ori(b, bit_if(kernel, *own, place + OWN),
                            bit_if(kernel, whole, place + WHOLE));
    if (!kernel->has_rest)
        return bits;
    rest = ir_cmpi(b, IR_NE, rest, tile_const(kernel, 0));
    return ir_ori(b, bits, bit_if(kernel, rest, place + REST));
}

/* Classes of the 32 blocks that end at `base`, one a lane. */
static void classify_chunk(const struct search *s, MlirValue base,
                           MlirValue out[SEARCH_COUNT]) {
    struct tile_kernel *kernel = s->kernel;
    struct ir_builder *b = &kernel->b;
    MlirValue any = {NULL}, own;
    MlirValue wish = ir_subi(b, base, ir_lane_id(b));
    MlirValue inside = ir_cmpi(b, IR_SGE, wish, kernel->first_block);
    MlirValue k_first = ir_muli(b, ir_maxsi(b, wish, kernel->first_block),
                                tile_const(kernel, kernel->plan.tile_n));
    for (int c = 0; c < s->classes; c++) {
        MlirValue bits = classify_rows(s, c, k_first, inside, &own);
        out[CLASSES] = c == 0 ? bits : ir_ori(b, out[CLASSES], bits);
        any = c == 0 ? own : ir_ori(b, any, own);
    }
    out[RUN] = ir_ballot(b, any);
    out[BASE] = ir_subi(b, base, tile_const(kernel, LANES));
}

/* Steps from chunk to chunk until one has a kept block or none is left. */
static void find_chunk(const struct search *s, MlirValue state[SEARCH_COUNT]) {
    struct tile_kernel *kernel = s->kernel;
    struct ir_builder *b = &kernel->b;
    MlirValue values[SEARCH_COUNT];
    struct ir_while loop = ir_while_begin(b, state, SEARCH_COUNT);
    for (size_t i = 0; i < SEARCH_COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    MlirValue empty = ir_cmpi(b, IR_EQ, values[RUN], tile_const(kernel, 0));
    MlirValue left = ir_cmpi(b, IR_SGE, values[BASE], kernel->first_block);
    ir_while_do(b, &loop, ir_andi(b, empty, left), values, SEARCH_COUNT);
    classify_chunk(s, ir_while_arg(&loop, 1, BASE), values);
    ir_while_end(b, &loop, values, SEARCH_COUNT);
    for (size_t i = 0; i < SEARCH_COUNT; i++)
        state[i] = ir_result(loop.op, i);
}

static MlirValue bit(struct ir_builder *b, MlirValue word, MlirValue number) {
    return ir_andi(b, ir_shrui(b, word, number), ir_const_i32(b, 1));
}

/* The next block of the chunk; takes it out of `run`. */
static MlirValue take_block(const struct search *s,
                            MlirValue state[SEARCH_COUNT],
                            MlirValue *out_classes) {
    struct tile_kernel *kernel = s->kernel;
    struct ir_builder *b = &kernel->b;
    MlirValue run = state[RUN], lane = ir_cttz(b, run);
    MlirValue block =
        ir_subi(b, ir_addi(b, state[BASE], tile_const(kernel, LANES)), lane);
    ir_set_attr(ir_def(block), "attn.entry", ir_attr_unit(b->context));
    MlirValue classes = ir_lane_value(b, state[CLASSES], lane);
    ir_set_int_pair(ir_def(classes), "attn.classes", s->classes, CLASS_BITS);
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
    return ir_shrui(
        b, classes,
        ir_muli(b, kernel->consumer, tile_const(kernel, CLASS_BITS)));
}

void tile_loop_search(struct tile_kernel *kernel,
                      MlirValue state[STATE_COUNT]) {
    enum { COUNT = SEARCH_COUNT + STATE_COUNT };
    struct ir_builder *b = &kernel->b;
    const struct search s = {
        .kernel = kernel,
        .classes = rows_are_alike(kernel) ? 1 : kernel->plan.consumers};
    MlirValue zero = tile_const(kernel, 0), one = tile_const(kernel, 1);
    MlirValue values[COUNT];
    MlirValue none = ir_cmpi(b, IR_EQ, kernel->block_count, zero);
    values[RUN] = values[CLASSES] = zero;
    values[BASE] = ir_select(b, none, ir_subi(b, kernel->first_block, one),
                             kernel->last_block);
    for (size_t i = 0; i < STATE_COUNT; i++)
        values[SEARCH_COUNT + i] = state[i];
    struct ir_while loop = ir_while_begin(b, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 0, i);
    find_chunk(&s, values);
    MlirValue found = ir_cmpi(b, IR_NE, values[RUN], zero);
    ir_while_do(b, &loop, found, values, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    MlirValue classes, block = take_block(&s, values, &classes);
    MlirValue own = own_class(&s, classes), rest = {NULL};
    MlirValue whole = bit(b, own, tile_const(kernel, WHOLE));
    if (kernel->has_rest)
        rest = ir_cmpi(b, IR_NE, bit(b, own, tile_const(kernel, REST)), zero);
    MlirValue k_first =
        ir_muli(b, block, tile_const(kernel, kernel->plan.tile_n));
    tile_key_block(kernel, k_first, ir_cmpi(b, IR_EQ, whole, zero), rest,
                   values + SEARCH_COUNT);
    ir_while_end(b, &loop, values, COUNT);
    for (size_t i = 0; i < STATE_COUNT; i++)
        state[i] = ir_result(loop.op, SEARCH_COUNT + i);
}
