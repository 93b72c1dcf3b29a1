/* online-softmax: the running softmax spelt out in the log2 domain.
 *
 * Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018),
 * with the division delayed to the end as in FlashAttention-2 (section 3.1).
 * Per key block, with c = log2(e):
 *
 *     m'    = max(m, rowmax(s)·c rounded up)       log2 units
 *     alpha = exp2(m - m')
 *     p     = exp2(s·c - m')                       one FMA; <= 1 because m' was
 *                                                  rounded up
 *     l'    = l·alpha + p                          partial sums, the quad is
 *                                                  added at the end
 *     acc'  = acc·alpha + p·V
 *
 * m starts at the lowest finite f32, not at -inf: rows without a kept pair so
 * far have p = exp2(-inf - m) = 0 and alpha = 1 without a test for -inf - -inf.
 *
 * A NaN or +inf score makes p NaN and so poisons l and acc of its own row:
 * maxnumf skips NaN, so nothing else of the row's state hides it.
 *
 * Not here: folding the scale into c (`fold-scale`), conditional rescaling. */
#include <math.h>

#include "ir/build_sm90.h"
#include "ir/walk.h"
#include "passes/pass.h"

enum { STEP_ACC, STEP_M, STEP_L, STEP_S, STEP_V };

/* log2(e) and ln(2), rounded to f32 by ir_splat. */
static const double log2_e = 1.4426950408889634;
static const double ln_2 = 0.6931471805599453;

static void expand_step(struct ir_builder *b, MlirOperation step) {
    ir_before(b, step);
    MlirValue s = ir_operand(step, STEP_S), m = ir_operand(step, STEP_M);
    MlirValue v = ir_operand(step, STEP_V);
    MlirType tile = mlirValueGetType(s), row = mlirValueGetType(m);
    MlirType acc_type = mlirValueGetType(ir_operand(step, STEP_ACC));
    MlirType l_type = mlirValueGetType(ir_operand(step, STEP_L));
    MlirType element = ir_element_type(mlirValueGetType(v));

    MlirValue row_max = ir_reduce_columns(b, IR_REDUCE_MAXNUMF, s);
    MlirValue bound = ir_mul_rp(b, row_max, ir_splat(b, row, log2_e));
    MlirValue m_new = ir_maxnumf(b, m, bound);
    MlirValue alpha = ir_exp2(b, ir_subf(b, m, m_new));
    MlirValue minus_m = ir_broadcast(b, ir_negf(b, m_new), tile);
    MlirValue p = ir_exp2(b, ir_fma(b, s, ir_splat(b, tile, log2_e), minus_m));
    MlirValue l_old =
        ir_mulf(b, ir_operand(step, STEP_L), ir_broadcast(b, alpha, l_type));
    MlirValue l_new = ir_partial_sum(b, p, l_old);
    MlirValue acc = ir_operand(step, STEP_ACC);
    MlirValue rescaled = ir_mulf(b, acc, ir_broadcast(b, alpha, acc_type));
    MlirValue acc_new = ir_dot(b, ir_truncf(b, p, element), v, rescaled, false);

    ir_replace_uses(ir_result(step, STEP_ACC), acc_new);
    ir_replace_uses(ir_result(step, STEP_M), m_new);
    ir_replace_uses(ir_result(step, STEP_L), l_new);
    ir_erase(step);
}

/* O = acc / l and LSE = ln2·(m + log2 l); 0 and -inf for rows that attend to
 * nothing.  Masked V rows may have left NaN in the accumulator of such a row,
 * so it is replaced, not multiplied by 0; a warp without such rows does not. */
static void expand_finish(struct ir_builder *b, MlirOperation finish) {
    ir_before(b, finish);
    MlirValue acc = ir_operand(finish, 0), m = ir_operand(finish, 1);
    MlirType row = mlirValueGetType(m), tile = mlirValueGetType(acc);
    MlirValue zero = ir_splat(b, row, 0);
    MlirValue l = ir_reduce_columns(b, IR_REDUCE_ADD, ir_operand(finish, 2));
    MlirValue nothing = ir_cmpf(b, IR_OEQ, l, zero);
    struct ir_if empty =
        ir_if_begin(b, ir_vote_any(b, nothing), &tile, 1, true);
    MlirValue kept =
        ir_select(b, ir_broadcast(b, nothing, tile), ir_splat(b, tile, 0), acc);
    ir_if_else(b, &empty, &kept, 1);
    ir_if_end(b, &empty, &acc, 1);
    b->contract = true;
    MlirValue inverse = ir_divf(b, ir_splat(b, row, 1), l);
    b->contract = false;
    inverse = ir_select(b, nothing, zero, inverse);
    MlirValue o =
        ir_mulf(b, ir_result(empty.op, 0), ir_broadcast(b, inverse, tile));
    MlirValue log_sum = ir_addf(b, m, ir_log2(b, l));
    MlirValue lse = ir_mulf(b, log_sum, ir_splat(b, row, ln_2));
    lse = ir_select(b, nothing, ir_splat(b, row, -INFINITY), lse);
    ir_replace_uses(ir_result(finish, 0), o);
    ir_replace_uses(ir_result(finish, 1), lse);
    ir_erase(finish);
}

static void expand_all(struct pass_ctx *ctx, MlirOperation module,
                       const char *name,
                       void (*expand)(struct ir_builder *b, MlirOperation op)) {
    struct ir_builder b;
    size_t count = 0;
    MlirOperation *ops = ir_collect(ctx->scratch, module, name, &count);
    ir_builder_init(&b, mlirOperationGetContext(module), ctx->scratch);
    for (size_t i = 0; i < count; i++)
        expand(&b, ops[i]);
}

/* online-softmax
 * requires     attn.softmax_step and attn.softmax_finish on final scores in
 *              natural units, -inf where masked; m starts at -FLT_MAX, l and acc
 *              at 0;
 * establishes  arith, math, attn.mul_rp, attn.partial_sum and attn.dot instead;
 *              m in log2 units;
 * breaks       nothing. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    expand_all(ctx, module, "attn.softmax_step", expand_step);
    expand_all(ctx, module, "attn.softmax_finish", expand_finish);
    return true;
}

const struct pass pass_online_softmax = {
    "online-softmax", "running maximum and sum, delayed division", run, NULL};
