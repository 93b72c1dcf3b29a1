/* tile: one attention becomes the body of a kernel over tiles.
 *
 * FlashAttention's loop order: a CTA owns the queries of one tile, one head,
 * one batch and visits the key blocks from the last to the first
 * (FlashAttention-2, section 3.1). The score and mask functions are inlined on
 * vectors.  Positions are a row vector (q) and a column vector (kv), so every
 * value gets the smallest shape that it depends on; tile-hoist.c then moves
 * what does not change out of the loops.
 *
 * Not here: how the loads are staged (`pipeline`), what a softmax step is
 * (`online-softmax`). */
#include "passes/tile.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "ir/build_sm90.h"
#include "passes/interval.h"
#include "passes/plan.h"
#include "support/vec.h"

bool tile_is_dense(const struct tile_kernel *kernel) {
    return mlirOperationIsNull(kernel->classify) ||
           ir_has_attr(kernel->attention, "dense");
}

MlirValue tile_const(struct tile_kernel *kernel, int value) {
    return ir_const_i32(&kernel->b, value);
}

/* redux.sync writes a uniform register.  Divisions have no uniform form:
 * without this, coordinates and the index arithmetic behind them would stay in
 * the register file of the lanes during the whole key loop. */
MlirValue tile_uniform(struct ir_builder *b, MlirValue x) {
    return ir_warp_reduce(b, "minsi", x);
}

/* ---- Calls of the spec's functions -------------------------------------- */

/* Arguments of a kernel before its sizes: q, k, v, o, lse. */
enum { FIXED_ARGS = 5 };

/* Inlines `func` on its leading arguments and as many of the kernel's sizes,
 * params, tensors and summaries as it takes. */
static void call_inline(struct tile_kernel *kernel, MlirOperation func,
                        const MlirValue *leading, size_t leading_count,
                        MlirValue *out_results) {
    size_t count = ir_func_arg_count(func);
    MlirValue *args = ARENA_NEW_ARRAY(kernel->b.arena, MlirValue, count);
    assert(count >= leading_count);
    for (size_t i = 0; i < count; i++)
        args[i] =
            i < leading_count
                ? leading[i]
                : ir_func_arg(kernel->func, FIXED_ARGS + i - leading_count);
    ir_inline(&kernel->b, func, args, count, out_results);
}

MlirValue tile_classify(struct tile_kernel *kernel, MlirValue k_first,
                        MlirValue *out_rest) {
    struct ir_builder *b = &kernel->b;
    MlirValue end =
        ir_addi(b, k_first, tile_const(kernel, kernel->plan.tile_n - 1));
    MlirValue last_key = ir_subi(b, kernel->kv_len, tile_const(kernel, 1));
    MlirValue leading[] = {kernel->batch,
                           kernel->head,
                           kernel->kv_head,
                           kernel->q_first,
                           kernel->q_last,
                           k_first,
                           ir_minsi(b, end, last_key)};
    MlirValue results[2];
    call_inline(kernel, kernel->classify, leading, 7, results);
    if (out_rest)
        *out_rest = results[1];
    return results[0];
}

struct tile_vote tile_vote_on(struct tile_kernel *kernel, MlirValue k_first,
                              MlirValue *out_rest) {
    struct ir_builder *b = &kernel->b;
    MlirValue block_class = tile_classify(kernel, k_first, out_rest);
    MlirValue end =
        ir_addi(b, k_first, tile_const(kernel, kernel->plan.tile_n));
    MlirValue full = ir_cmpi(b, IR_SLE, end, kernel->kv_len);
    MlirValue all = ir_cmpi(b, IR_EQ, block_class, tile_const(kernel, 2));
    MlirValue some = ir_cmpi(b, IR_NE, block_class, tile_const(kernel, 0));
    return (struct tile_vote){some, all, full};
}

/* ---- One key block ------------------------------------------------------ */

/* A number that divides a scalar, as the products and sums that make it say; 0
 * for the constant 0. */
static int64_t known_divisor(MlirValue x) {
    enum { LIMIT = 1 << 20 };
    int64_t value = 0;
    if (ir_constant_int(x, &value))
        return value < 0 ? 1 : value;
    MlirOperation op = ir_def(x);
    bool is_sum = ir_is_op(op, "arith.addi") || ir_is_op(op, "arith.subi");
    if (mlirOperationIsNull(op) || (!is_sum && !ir_is_op(op, "arith.muli")))
        return 1;
    int64_t left = known_divisor(ir_operand(op, 0));
    int64_t right = known_divisor(ir_operand(op, 1));
    if (is_sum)
        return abs_gcd(left, right);
    return left < LIMIT && right < LIMIT ? left * right : 1;
}

/* local + first: positions, which are not negative and do not wrap around; the
 * attribute has a number that divides the first one. */
static MlirValue positions(struct tile_kernel *kernel, MlirValue local,
                           MlirValue first) {
    struct ir_builder *b = &kernel->b;
    MlirValue sum =
        ir_addi(b, local, ir_broadcast(b, first, mlirValueGetType(local)));
    enum { MOST = 1 << 20 };
    int64_t divisor = known_divisor(first);
    if (divisor == 0 || divisor > MOST)
        divisor = divisor == 0 ? MOST : 1;
    ir_set_attr(ir_def(sum), "attn.position",
                ir_attr_i32(b->context, (int32_t)divisor));
    return sum;
}

/* Key positions of a block, 1xN. */
static MlirValue key_positions(struct tile_kernel *kernel, MlirValue k_first) {
    return positions(kernel, kernel->columns, k_first);
}

/* Scaled scores after the score lines. */
static MlirValue apply_score(struct tile_kernel *kernel, MlirValue raw,
                             MlirValue k_first) {
    struct ir_builder *b = &kernel->b;
    MlirValue scale = ir_operand(kernel->attention, IR_ATTENTION_SCALE);
    double factor = 0;
    MlirValue s = raw;
    if (!ir_constant_float(scale, &factor) || factor != 1) {
        b->contract = true;
        MlirValue wide = ir_constant_float(scale, &factor)
                             ? ir_splat(b, kernel->scores, factor)
                             : ir_broadcast(b, scale, kernel->scores);
        s = ir_mulf(b, s, wide);
        b->contract = false;
    }
    if (mlirOperationIsNull(kernel->score))
        return s;
    MlirValue leading[] = {s,
                           kernel->batch,
                           kernel->row_heads,
                           kernel->kv_head,
                           kernel->rows,
                           key_positions(kernel, k_first)};
    MlirValue scored;
    call_inline(kernel, kernel->score, leading, 6, &scored);
    return ir_broadcast(b, scored, kernel->scores);
}

/* kv <= x (or x >= kv, kv < x, x > kv) with x the same along a row: x becomes
 * at most the last key (kv_len).  False for other comparisons. */
static bool bound_comparison(struct tile_kernel *kernel, MlirOperation op,
                             MlirValue kv) {
    int64_t predicate = ir_int_attr(op, "predicate", -1);
    bool flipped = predicate == IR_SGE || predicate == IR_SGT;
    bool closed = predicate == IR_SLE || predicate == IR_SGE;
    if (!flipped && !closed && predicate != IR_SLT)
        return false;
    MlirValue left = ir_operand(op, flipped), right = ir_operand(op, !flipped);
    MlirValue x = ir_unstretched(right);
    MlirType type = mlirValueGetType(x);
    if (!mlirValueEqual(ir_unstretched(left), kv) ||
        (!ir_is_row(type) && !ir_is_scalar(type)))
        return false;
    struct ir_builder b = kernel->b;
    ir_before(&b, op);
    MlirValue most = closed ? ir_subi(&b, kernel->kv_len, ir_const_i32(&b, 1))
                            : kernel->kv_len;
    if (ir_is_row(type))
        most = ir_broadcast(&b, most, type);
    x = ir_broadcast(&b, ir_minsi(&b, x, most), mlirValueGetType(right));
    mlirOperationSetOperand(op, !flipped, x);
    return true;
}

/* Makes a condition that all kept pairs fulfil false for keys beyond kv_len, at
 * the cost of a row.  False when there is none; `failed`: conditions that were
 * tried before, since conditions are shared. */
static bool bound_keys(struct tile_kernel *kernel, struct ir_map *failed,
                       MlirValue condition, MlirValue kv) {
    MlirOperation op = ir_def(condition);
    if (ir_map_has(failed, condition))
        return false;
    ir_map_set(failed, condition, condition);
    if (ir_is_op(op, "vector.broadcast"))
        return bound_keys(kernel, failed, ir_operand(op, 0), kv);
    if (ir_is_op(op, "arith.andi"))
        return bound_keys(kernel, failed, ir_operand(op, 0), kv) ||
               bound_keys(kernel, failed, ir_operand(op, 1), kv);
    return ir_is_op(op, "arith.cmpi") && bound_comparison(kernel, op, kv);
}

/* Which pairs of the block attend. */
static MlirValue inline_mask(struct tile_kernel *kernel, MlirValue kv) {
    MlirValue leading[] = {kernel->batch, kernel->row_heads, kernel->kv_head,
                           kernel->rows, kv};
    MlirValue attends;
    call_inline(kernel, kernel->mask, leading, 5, &attends);
    return attends;
}

/* -inf where `keep` does not hold. */
static MlirValue keep_scores(struct tile_kernel *kernel, MlirValue keep,
                             MlirValue s) {
    struct ir_builder *b = &kernel->b;
    MlirValue never = ir_splat(b, kernel->scores, -INFINITY);
    return ir_select(b, ir_broadcast(b, keep, kernel->scores), s, never);
}

/* The whole mask, if there is one, or its test kv <= q. */
enum mask_part { MASK_WHOLE, MASK_CAUSAL };

static MlirValue inline_part(struct tile_kernel *kernel, enum mask_part part,
                             MlirValue kv) {
    struct ir_builder *b = &kernel->b;
    if (part == MASK_WHOLE)
        return inline_mask(kernel, kv);
    MlirType shape = ir_type_tile(ir_type_i32(b->context), kernel->tile_rows,
                                  kernel->plan.tile_n);
    return ir_cmpi(b, IR_SLE, ir_broadcast(b, kv, shape),
                   ir_broadcast(b, kernel->rows, shape));
}

/* Scores of masked pairs and of keys beyond kv_len become -inf.  With roles the
 * second test goes along in a comparison of the mask; without, the rows that
 * this takes are scarcer than instructions. */
static MlirValue mask_scores(struct tile_kernel *kernel, enum mask_part part,
                             MlirValue s, MlirValue kv) {
    struct ir_builder *b = &kernel->b;
    MlirValue limit = ir_broadcast(b, kernel->kv_len, mlirValueGetType(kv));
    MlirValue keep = ir_cmpi(b, IR_SLT, kv, limit);
    if (!mlirOperationIsNull(kernel->mask)) {
        MlirValue attends = inline_part(kernel, part, kv);
        MlirType shape =
            ir_join_shapes(mlirValueGetType(attends), mlirValueGetType(keep));
        bool bounded = kernel->plan.consumers > 0 &&
                       bound_keys(kernel, ir_map_create(b->arena), attends, kv);
        keep = bounded ? attends
                       : ir_andi(b, ir_broadcast(b, attends, shape),
                                 ir_broadcast(b, keep, shape));
    }
    return keep_scores(kernel, keep, s);
}

/* The query of a row. */
static MlirValue query_of(struct tile_kernel *kernel, MlirValue row) {
    struct ir_builder *b = &kernel->b;
    if (kernel->pack == 1)
        return row;
    MlirValue shift = tile_const(kernel, __builtin_ctz((unsigned)kernel->pack));
    MlirType type = mlirValueGetType(row);
    return ir_shrui(b, row,
                    ir_is_vector(type) ? ir_broadcast(b, shift, type) : shift);
}

/* Below the diagonal, and in front of the end of the keys: kv <= q holds. */
static MlirValue is_below(struct tile_kernel *kernel, MlirValue k_first) {
    struct ir_builder *b = &kernel->b;
    MlirValue end =
        ir_addi(b, k_first, tile_const(kernel, kernel->plan.tile_n));
    MlirValue most = ir_minsi(
        b,
        ir_addi(b, query_of(kernel, kernel->row_first), tile_const(kernel, 1)),
        kernel->kv_len);
    return ir_cmpi(b, IR_SLE, end, most);
}

/* The whole mask, or where `rest` (null: unknown) its test kv <= q alone. */
static MlirValue mask_open(struct tile_kernel *kernel, MlirValue rest,
                           MlirValue s, MlirValue kv) {
    struct ir_builder *b = &kernel->b;
    if (mlirValueIsNull(rest))
        return mask_scores(kernel, MASK_WHOLE, s, kv);
    struct ir_if branch = ir_if_begin(b, rest, &kernel->scores, 1, true);
    MlirValue causal = mask_scores(kernel, MASK_CAUSAL, s, kv);
    ir_if_else(b, &branch, &causal, 1);
    MlirValue all = mask_scores(kernel, MASK_WHOLE, s, kv);
    ir_if_end(b, &branch, &all, 1);
    return ir_result(branch.op, 0);
}

/* The mask of a partial block.  With roles a mask that holds kv <= q beside
 * other conditions is there without that test too, for the many partial blocks
 * below the diagonal: the far end of a window, the beginning of a document.
 * Where the classes say that the other conditions hold, that test is there
 * alone: the diagonal of a document. */
static MlirValue apply_mask(struct tile_kernel *kernel, MlirValue s,
                            MlirValue k_first, MlirValue rest) {
    struct ir_builder *b = &kernel->b;
    MlirValue kv = key_positions(kernel, k_first);
    if (!kernel->has_rest)
        return mask_scores(kernel, MASK_WHOLE, s, kv);
    struct ir_if below =
        ir_if_begin(b, is_below(kernel, k_first), &kernel->scores, 1, true);
    MlirValue attends = inline_mask(kernel, kv);
    MlirValue test =
        ir_result(ir_find_causal(b->arena, attends, kernel->rows, kv), 0);
    ir_replace_uses(test, ir_splat(b, mlirValueGetType(test), 1));
    MlirValue others = keep_scores(kernel, attends, s);
    ir_if_else(b, &below, &others, 1);
    MlirValue all = mask_open(kernel, rest, s, kv);
    ir_if_end(b, &below, &all, 1);
    return ir_result(below.op, 0);
}

void tile_key_block(struct tile_kernel *kernel, MlirValue k_first,
                    MlirValue partial, MlirValue rest,
                    MlirValue state[STATE_COUNT]) {
    struct ir_builder *b = &kernel->b;
    MlirOperation attention = kernel->attention;
    MlirValue k =
        ir_load(b, "k", ir_operand(attention, IR_ATTENTION_K), kernel->batch,
                kernel->kv_head, k_first, kernel->kv_len, kernel->plan.tile_n);
    MlirValue v =
        ir_load(b, "v", ir_operand(attention, IR_ATTENTION_V), kernel->batch,
                kernel->kv_head, k_first, kernel->kv_len, kernel->plan.tile_n);
    MlirValue raw =
        ir_dot(b, kernel->q_tile, k, ir_splat(b, kernel->scores, 0), true);
    MlirValue s = apply_score(kernel, raw, k_first);
    struct ir_if branch = ir_if_begin(b, partial, &kernel->scores, 1, true);
    MlirValue masked = apply_mask(kernel, s, k_first, rest);
    ir_if_else(b, &branch, &masked, 1);
    ir_if_end(b, &branch, &s, 1);
    MlirOperation step =
        ir_softmax_step(b, state[STATE_ACC], state[STATE_M], state[STATE_L],
                        ir_result(branch.op, 0), v);
    for (size_t i = 0; i < STATE_COUNT; i++)
        state[i] = ir_result(step, i);
}

/* Is the block of this class (0, 1, 2) not whole?  mask-blocks makes classes as
 * `all ? 2 : some`, of which only `all` counts. */
static MlirValue is_not_whole(struct tile_kernel *kernel, MlirValue class) {
    struct ir_builder *b = &kernel->b;
    MlirOperation select = ir_def_op(class, "arith.select");
    int64_t whole = 0;
    if (!mlirOperationIsNull(select) &&
        ir_constant_int(ir_operand(select, 1), &whole) && whole == 2 &&
        !mlirOperationIsNull(ir_def_op(ir_operand(select, 2), "arith.extui")))
        return ir_xori(b, ir_operand(select, 0), ir_const_bool(b, true));
    return ir_cmpi(b, IR_NE, class, tile_const(kernel, 2));
}

/* True where the block needs the mask code: it crosses kv_len, which only the
 * first pass of a loop can, or is not known to be whole.  A mask without
 * classification is evaluated everywhere. */
static MlirValue needs_mask(struct tile_kernel *kernel, MlirValue k_first,
                            MlirValue *out_rest) {
    struct ir_builder *b = &kernel->b;
    bool has_mask = !mlirOperationIsNull(kernel->mask);
    if (has_mask && mlirOperationIsNull(kernel->classify))
        return ir_const_bool(b, true);
    MlirValue k_end =
        ir_addi(b, k_first, tile_const(kernel, kernel->plan.tile_n));
    MlirValue crosses = ir_cmpi(b, IR_SGT, k_end, kernel->kv_len);
    ir_set_attr(ir_def(crosses), "attn.first_pass", ir_attr_unit(b->context));
    if (mlirOperationIsNull(kernel->classify))
        return crosses;
    MlirValue rest, block_class = tile_classify(kernel, k_first, &rest);
    if (kernel->has_rest)
        *out_rest = ir_cmpi(b, IR_NE, rest, tile_const(kernel, 0));
    return ir_ori(b, crosses, is_not_whole(kernel, block_class));
}

void tile_loop_dense(struct tile_kernel *kernel, MlirValue state[STATE_COUNT]) {
    struct ir_builder *b = &kernel->b;
    struct ir_for loop =
        ir_for_begin(b, tile_const(kernel, 0), kernel->block_count,
                     tile_const(kernel, 1), state, STATE_COUNT);
    MlirValue block = ir_subi(b, kernel->last_block, loop.iv);
    MlirValue k_first =
        ir_muli(b, block, tile_const(kernel, kernel->plan.tile_n));
    MlirValue rest = {NULL}, partial = needs_mask(kernel, k_first, &rest);
    MlirValue carried[STATE_COUNT];
    for (size_t i = 0; i < STATE_COUNT; i++)
        carried[i] = ir_for_arg(&loop, i);
    tile_key_block(kernel, k_first, partial, rest, carried);
    ir_for_end(b, &loop, carried, STATE_COUNT);
    for (size_t i = 0; i < STATE_COUNT; i++)
        state[i] = ir_result(loop.op, i);
}

/* ---- The kernel around the loop ----------------------------------------- */

MlirValue tile_size(struct tile_kernel *kernel, const char *kind) {
    size_t i = 0;
    if (!ir_func_find_arg(kernel->func, kind, &i))
        ir_ice(kernel->func, "a kernel needs every size as an argument");
    return ir_func_arg(kernel->func, i);
}

MlirValue tile_head_count(struct tile_kernel *kernel) {
    return tile_size(kernel, plan_heads_size(kernel->func));
}

/* ceil(x / divisor) for x >= 0. */
static MlirValue ceil_div(struct tile_kernel *kernel, MlirValue x,
                          int divisor) {
    struct ir_builder *b = &kernel->b;
    MlirValue up = ir_addi(b, x, tile_const(kernel, divisor - 1));
    return ir_divui(b, up, tile_const(kernel, divisor));
}

/* The query head and the KV head of head number `number`: of the query heads,
 * packed of the KV heads. */
static void emit_heads(struct tile_kernel *kernel, MlirValue number) {
    struct ir_builder *b = &kernel->b;
    number = tile_uniform(b, number);
    if (kernel->pack > 1) {
        kernel->kv_head = number;
        kernel->head = ir_muli(b, number, tile_const(kernel, kernel->pack));
        return;
    }
    kernel->head = number;
    int64_t group = ir_int_attr(kernel->attention, "group", 0);
    MlirValue ratio = group ? tile_const(kernel, (int)group)
                            : ir_divui(b, tile_size(kernel, "size:heads"),
                                       tile_size(kernel, "size:kv_heads"));
    kernel->kv_head = group == 1
                          ? kernel->head
                          : tile_uniform(b, ir_divui(b, kernel->head, ratio));
}

/* CTA number -> query tile (fastest), head, batch.  Under a causal mask the
 * last query tile has the most keys: with longest_first it comes first. */
static void emit_coordinates(struct tile_kernel *kernel) {
    struct ir_builder *b = &kernel->b;
    int tile_m = kernel->plan.tile_m;
    MlirValue heads = tile_head_count(kernel);
    MlirValue cta = ir_block_id(b);
    MlirValue tiles = ceil_div(kernel, kernel->row_count, tile_m);
    MlirValue batch_head = ir_divui(b, cta, tiles);
    MlirValue tile = ir_remui(b, cta, tiles);
    if (kernel->plan.consumers > 0)
        tile_order(kernel, cta, tiles, &tile, &batch_head);
    else if (kernel->plan.longest_first)
        tile = ir_subi(b, ir_subi(b, tiles, tile_const(kernel, 1)), tile);
    tile = tile_uniform(b, tile);
    kernel->batch = tile_uniform(b, ir_divui(b, batch_head, heads));
    emit_heads(kernel, ir_remui(b, batch_head, heads));
    kernel->row_first = ir_muli(b, tile, tile_const(kernel, tile_m));
    MlirValue last = ir_minsi(
        b, ir_addi(b, kernel->row_first, tile_const(kernel, tile_m - 1)),
        ir_subi(b, kernel->row_count, tile_const(kernel, 1)));
    kernel->q_first = query_of(kernel, kernel->row_first);
    kernel->q_last = query_of(kernel, last);
    kernel->tile_first = kernel->row_first;
    if (kernel->plan.consumers > 0) {
        kernel->consumer = ir_consumer(b);
        MlirValue offset =
            ir_muli(b, kernel->consumer, tile_const(kernel, kernel->tile_rows));
        kernel->row_first = ir_addi(b, kernel->row_first, offset);
    }
}

static void emit_positions(struct tile_kernel *kernel) {
    struct ir_builder *b = &kernel->b;
    MlirValue local = ir_row_positions(b, kernel->tile_rows);
    MlirValue rows = positions(kernel, local, kernel->row_first);
    MlirType type = mlirValueGetType(rows);
    kernel->rows = query_of(kernel, rows);
    kernel->row_heads = kernel->head;
    if (kernel->pack > 1) {
        MlirValue in_group = ir_andi(
            b, rows,
            ir_broadcast(b, tile_const(kernel, kernel->pack - 1), type));
        kernel->row_heads =
            ir_addi(b, in_group, ir_broadcast(b, kernel->head, type));
    }
    kernel->columns = ir_column_positions(b, kernel->plan.tile_n);
}

/* First and last key that rows q_first..q_last may attend to, inside [0,
 * kv_len).
 */
static void emit_bounds(struct tile_kernel *kernel, MlirValue range[2]) {
    struct ir_builder *b = &kernel->b;
    range[0] = tile_const(kernel, 0);
    range[1] = ir_subi(b, kernel->kv_len, tile_const(kernel, 1));
    if (!mlirOperationIsNull(kernel->kv_bounds)) {
        MlirValue leading[] = {kernel->batch, kernel->head, kernel->kv_head,
                               kernel->q_first, kernel->q_last};
        MlirValue bounds[2];
        call_inline(kernel, kernel->kv_bounds, leading, 5, bounds);
        range[0] = ir_maxsi(b, bounds[0], range[0]);
        range[1] = ir_minsi(b, bounds[1], range[1]);
    }
}

/* The range of key blocks that may hold kept pairs; empty: block_count is 0. */
static void emit_key_range(struct tile_kernel *kernel) {
    struct ir_builder *b = &kernel->b;
    MlirValue zero = tile_const(kernel, 0);
    MlirValue width = tile_const(kernel, kernel->plan.tile_n);
    MlirValue range[2];
    emit_bounds(kernel, range);
    kernel->first_block = ir_divui(b, range[0], width);
    kernel->last_block = ir_divui(b, range[1], width);
    MlirValue span = ir_subi(b, kernel->last_block, kernel->first_block);
    MlirValue count = ir_addi(b, span, tile_const(kernel, 1));
    MlirValue some = ir_cmpi(b, IR_SLE, range[0], range[1]);
    kernel->block_count = ir_select(b, some, count, zero);
}

void tile_narrow_rows(struct tile_kernel *kernel, MlirValue first) {
    struct ir_builder *b = &kernel->b;
    MlirValue last =
        ir_addi(b, first, tile_const(kernel, kernel->tile_rows - 1));
    kernel->q_first = query_of(kernel, first);
    kernel->q_last =
        ir_maxsi(b, ir_minsi(b, query_of(kernel, last), kernel->q_last),
                 kernel->q_first);
}

/* Which passes of the key loop, from the tile's last block down, hold keys of
 * the consumer's own rows. */
static void emit_own_blocks(struct tile_kernel *kernel) {
    struct ir_builder *b = &kernel->b;
    MlirValue zero = tile_const(kernel, 0), one = tile_const(kernel, 1);
    MlirValue width = tile_const(kernel, kernel->plan.tile_n);
    MlirValue count = kernel->block_count, range[2];
    emit_bounds(kernel, range);
    MlirValue some =
        ir_andi(b, ir_cmpi(b, IR_SLE, range[0], range[1]),
                ir_cmpi(b, IR_SLT, kernel->row_first, kernel->row_count));
    MlirValue last = kernel->last_block;
    MlirValue begin = ir_subi(b, last, ir_divui(b, range[1], width));
    MlirValue end =
        ir_addi(b, ir_subi(b, last, ir_divui(b, range[0], width)), one);
    begin = ir_select(b, some, ir_maxsi(b, begin, zero), count);
    ir_own_blocks(b, begin, ir_minsi(b, end, count));
}

static void emit_epilogue(struct tile_kernel *kernel,
                          MlirValue state[STATE_COUNT]) {
    struct ir_builder *b = &kernel->b;
    MlirOperation finish =
        ir_softmax_finish(b, state[STATE_ACC], state[STATE_M], state[STATE_L]);
    MlirValue o = ir_operand(kernel->attention, IR_ATTENTION_O);
    MlirType element = ir_element_type(mlirValueGetType(o));
    MlirOperation stores[2];
    stores[0] = ir_store(b, ir_truncf(b, ir_result(finish, 0), element), o,
                         kernel->batch, kernel->head, kernel->row_first,
                         kernel->row_count, false);
    stores[1] =
        ir_store(b, ir_result(finish, 1),
                 ir_operand(kernel->attention, IR_ATTENTION_LSE), kernel->batch,
                 kernel->head, kernel->row_first, kernel->row_count, true);
    ir_set_packed_heads(stores[0], kernel->pack);
    ir_set_packed_heads(stores[1], kernel->pack);
}

static void emit_kernel(struct tile_kernel *kernel) {
    struct ir_builder *b = &kernel->b;
    MlirType f32 = ir_type_f32(b->context);
    int rows = kernel->tile_rows;
    MlirValue v = ir_operand(kernel->attention, IR_ATTENTION_V);
    emit_coordinates(kernel);
    emit_positions(kernel);
    kernel->q_tile = ir_load(
        b, "q", ir_operand(kernel->attention, IR_ATTENTION_Q), kernel->batch,
        kernel->head, kernel->row_first, kernel->row_count, rows);
    ir_set_packed_heads(ir_def(kernel->q_tile), kernel->pack);
    emit_key_range(kernel);
    MlirValue state[STATE_COUNT] = {
        ir_splat(b, ir_type_tile(f32, rows, ir_extent(mlirValueGetType(v), 3)),
                 0),
        ir_splat(b, ir_type_tile(f32, rows, 1), -FLT_MAX),
        ir_splat(b, ir_type_tile(f32, rows, 4), 0),
    };
    bool dense = tile_is_dense(kernel);
    bool has_roles = kernel->plan.consumers > 0;
    /* Where a consumer decides alone, classes are about its own rows. */
    if (dense && has_roles)
        tile_narrow_rows(kernel, kernel->row_first);
    if (dense && has_roles && !mlirOperationIsNull(kernel->kv_bounds))
        emit_own_blocks(kernel);
    if (dense)
        tile_loop_dense(kernel, state);
    else if (has_roles)
        tile_loop_search(kernel, state);
    else
        tile_loop_list(kernel, state);
    emit_epilogue(kernel, state);
}

/* ---- The pass ----------------------------------------------------------- */

static void set_grid(MlirOperation func, struct arena *arena, int tile_m) {
    const char *words[PLAN_TILE_WORDS];
    size_t count = plan_tile_words(func, arena, tile_m, words);
    ir_set_kernel_kind(func, "main");
    plan_set_grid(func, arena, words, count);
}

typedef VEC(MlirOperation) function_list;

/* Scalar functions are private to their attention, whose variants share them:
 * gone once all are inlined. */
static void note_functions(const struct tile_kernel *kernel,
                           function_list *inlined) {
    const MlirOperation functions[] = {kernel->mask, kernel->score,
                                       kernel->classify, kernel->kv_bounds};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        bool known = mlirOperationIsNull(functions[i]);
        for (size_t k = 0; k < inlined->count && !known; k++)
            known = mlirOperationEqual(inlined->data[k], functions[i]);
        if (!known)
            vec_push(kernel->b.arena, inlined, functions[i]);
    }
}

/* The test kv <= q of the mask, and whether there are others beside it. */
static void find_causal(struct tile_kernel *kernel) {
    MlirOperation mask = kernel->mask;
    if (mlirOperationIsNull(mask))
        return;
    MlirValue attends = ir_returned(mask);
    kernel->causal =
        ir_find_causal(kernel->b.arena, attends, ir_func_arg(mask, IR_MASK_Q),
                       ir_func_arg(mask, IR_MASK_KV));
    kernel->has_rest = kernel->plan.consumers > 0 &&
                       !mlirOperationIsNull(kernel->causal) &&
                       !mlirOperationEqual(kernel->causal, ir_def(attends));
}

static bool tile_function(struct pass_ctx *ctx, MlirOperation module,
                          MlirOperation func, function_list *inlined) {
    struct tile_kernel kernel = {.func = func,
                                 .attention = ir_find_attention(func)};
    if (!plan_read(ctx, module, func, kernel.attention, &kernel.plan))
        return false;
    MlirOperation attention = kernel.attention;
    ir_builder_init(&kernel.b, mlirOperationGetContext(module), ctx->scratch);
    ir_before(&kernel.b, attention);
    kernel.mask = ir_symbol_func(module, attention, "mask");
    kernel.score = ir_symbol_func(module, attention, "score");
    kernel.classify = ir_symbol_func(module, attention, "classify");
    kernel.kv_bounds = ir_symbol_func(module, attention, "kv_bounds");
    kernel.q_len = tile_size(&kernel, "size:q_len");
    kernel.kv_len = tile_size(&kernel, "size:kv_len");
    kernel.pack = plan_packed_heads(func);
    kernel.row_count = kernel.q_len;
    if (kernel.pack > 1)
        kernel.row_count =
            ir_muli(&kernel.b, kernel.q_len, tile_const(&kernel, kernel.pack));
    find_causal(&kernel);
    kernel.tile_rows = kernel.plan.consumers > 0
                           ? kernel.plan.tile_m / kernel.plan.consumers
                           : kernel.plan.tile_m;
    kernel.scores = ir_type_tile(ir_type_f32(kernel.b.context),
                                 kernel.tile_rows, kernel.plan.tile_n);
    emit_kernel(&kernel);
    ir_erase(attention);
    note_functions(&kernel, inlined);
    tile_separate(&kernel);
    tile_hoist(ctx->scratch, func);
    ir_erase_dead(ir_func_body(func));
    set_grid(func, ctx->scratch, kernel.plan.tile_m);
    return true;
}

/* tile
 * requires     functions with one attn.attention in their entry block; scalar
 *              functions mask, score, classify, kv_bounds with one block each;
 * establishes  kernels over tiles: loads, dots, one attn.softmax_step per key
 *              block, softmax_finish, stores; attn.kernel, attn.grid and the
 *              plan as attributes; values that do not change in a loop stand in
 *              front of it;
 * breaks       nothing: summary kernels are left alone, the inlined functions
 *              are erased. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count = 0;
    MlirOperation *attentions =
        ir_collect(ctx->scratch, module, "attn.attention", &count);
    function_list inlined = {0};
    for (size_t i = 0; i < count; i++)
        if (!tile_function(ctx, module,
                           mlirOperationGetParentOperation(attentions[i]),
                           &inlined))
            return false;
    for (size_t i = 0; i < inlined.count; i++)
        ir_erase(inlined.data[i]);
    return true;
}

const struct pass pass_tile = {"tile", "loops over query and key tiles", run,
                               NULL};
