/* rescale: the reference maximum moves only when it must (lazy softmax).
 *
 * FlashAttention-4 rescales its accumulator only when the row maximum grew by
 * more than tau (log2 units).  Here that is taken to its end: the fast path has
 * no shuffle, no alpha and no multiplication of the accumulator.  Per key
 * block, with x the scores, c > 0 their factor to log2 units and m the
 * reference:
 *
 *     limit = min(bits(m/c + tau/c), INT_MIN)   unsigned: INT_MIN for a
 *                                               negative sum
 *     grow  = any lane saw bits(x) >= limit     as i32; INT_MIN: always
 *     grow:   m' = max(m, rowmax(x)·c)
 *             alpha = exp2(m - m'), l = l·alpha, acc = acc·alpha
 *     else:   m' = m
 *
 * For positive floats the order of the bits is the order of the values.
 *
 * A row whose reference is below -tau, as at the start, always takes the exact
 * path, so the first block of a tile is exact.  P is at most 2^tau: tau is 8
 * for f16 and bf16, whose P holds it without loss.  A positive NaN counts as
 * above every limit, a negative one below: both make P NaN on either path.
 *
 * Not here: what the exact path computes (`online-softmax`). */
#include <mlir-c/BuiltinAttributes.h>

#include "ir/build_sm90.h"
#include "ir/walk.h"
#include "passes/pass.h"

/* The ops of one softmax step that this pass looks at. */
struct step {
    MlirOperation row_max; /* vector.multi_reduction of x */
    MlirValue x, c;        /* scores, their factor as a splat row */
    double factor;
    MlirValue m_old, m_new;  /* m_new = maxnumf(m_old, mul_rp(rowmax(x), c)) */
    MlirValue alpha;         /* exp2(m_old - m_new) */
    MlirOperation scale_l;   /* l * alpha */
    MlirOperation scale_acc; /* acc * alpha */
};

/* ---- Recognising -------------------------------------------------------- */

/* The only user of `value` called `name`; null when there is none. */
static MlirOperation user(MlirValue value, const char *name) {
    for (MlirOpOperand use = mlirValueGetFirstUse(value);
         !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use))
        if (ir_is_op(mlirOpOperandGetOwner(use), name))
            return mlirOpOperandGetOwner(use);
    return (MlirOperation){NULL};
}

/* alpha: the exp2 of a difference whose left side is the old reference. */
static bool find_alpha(struct step *step) {
    for (MlirOpOperand use = mlirValueGetFirstUse(step->m_old);
         !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use)) {
        MlirOperation difference = mlirOpOperandGetOwner(use);
        if (!ir_is_op(difference, "arith.subf") ||
            mlirOpOperandGetOperandNumber(use) != 0)
            continue;
        MlirOperation exp2 = user(ir_result(difference, 0), "math.exp2");
        if (mlirOperationIsNull(exp2))
            continue;
        step->alpha = ir_result(exp2, 0);
        return true;
    }
    return false;
}

/* The multiplications by broadcast alpha: of l (Mx4) and of the accumulator. */
static bool find_scalings(struct step *step) {
    step->scale_l = step->scale_acc = (MlirOperation){NULL};
    for (MlirOpOperand use = mlirValueGetFirstUse(step->alpha);
         !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use)) {
        MlirOperation wide = mlirOpOperandGetOwner(use);
        if (!ir_is_op(wide, "vector.broadcast"))
            return false;
        MlirOperation product = user(ir_result(wide, 0), "arith.mulf");
        if (mlirOperationIsNull(product))
            return false;
        if (mlirOperationIsNull(
                user(ir_result(product, 0), "attn.partial_sum")))
            step->scale_acc = product;
        else
            step->scale_l = product;
    }
    return !mlirOperationIsNull(step->scale_l) &&
           !mlirOperationIsNull(step->scale_acc);
}

/* Fills `step` from the op that brings the row maximum to log2 units. */
static bool match(MlirOperation bound, struct step *step) {
    MlirOperation cast = ir_def_op(ir_operand(bound, 0), "vector.shape_cast");
    if (mlirOperationIsNull(cast))
        return false;
    step->row_max = ir_def_op(ir_operand(cast, 0), "vector.multi_reduction");
    step->c = ir_operand(bound, 1);
    MlirOperation maximum = user(ir_result(bound, 0), "arith.maxnumf");
    if (mlirOperationIsNull(step->row_max) || mlirOperationIsNull(maximum) ||
        !ir_constant_float(step->c, &step->factor) || !(step->factor > 0))
        return false;
    step->x = ir_operand(step->row_max, 0);
    step->m_new = ir_result(maximum, 0);
    bool first = mlirValueEqual(ir_operand(maximum, 1), ir_result(bound, 0));
    step->m_old = ir_operand(maximum, first ? 0 : 1);
    return find_alpha(step) && find_scalings(step);
}

/* ---- Rewriting ---------------------------------------------------------- */

/* Did any score pass its row's limit? */
static MlirValue emit_vote(struct ir_builder *b, const struct step *step,
                           double tau) {
    MlirType row = mlirValueGetType(step->m_old);
    MlirType i32 = ir_type_i32(b->context);
    MlirType row_bits = ir_with_element(row, i32);
    MlirValue limit = ir_fma(b, step->m_old, ir_splat(b, row, 1 / step->factor),
                             ir_splat(b, row, tau / step->factor));
    MlirValue limit_bits = ir_minui(b, ir_bitcast(b, limit, i32),
                                    ir_splat(b, row_bits, INT32_MIN));
    MlirValue top = ir_partial_max(b, ir_bitcast(b, step->x, i32));
    MlirValue wide = ir_broadcast(b, limit_bits, mlirValueGetType(top));
    return ir_vote_any(b, ir_cmpi(b, IR_SGE, top, wide));
}

/* The exact update; yields m, alpha and the scaled l. */
static void emit_exact(struct ir_builder *b, const struct step *step,
                       MlirValue l, MlirValue out_values[3]) {
    MlirType row = mlirValueGetType(step->m_old);
    MlirValue row_max = ir_reduce_columns(b, IR_REDUCE_MAXNUMF, step->x);
    MlirValue m = ir_maxnumf(
        b, step->m_old, ir_mul_rp(b, row_max, ir_splat(b, row, step->factor)));
    MlirValue alpha = ir_exp2(b, ir_subf(b, step->m_old, m));
    out_values[0] = m;
    out_values[1] = alpha;
    out_values[2] = ir_mulf(b, l, ir_broadcast(b, alpha, mlirValueGetType(l)));
}

/* The operand of a scaling that is not alpha. */
static MlirValue scaled_operand(MlirOperation product, MlirValue alpha) {
    MlirOperation wide = ir_def_op(ir_operand(product, 1), "vector.broadcast");
    bool second = !mlirOperationIsNull(wide) &&
                  mlirValueEqual(ir_operand(wide, 0), alpha);
    return ir_operand(product, second ? 0 : 1);
}

static void rewrite(struct ir_builder *b, const struct step *step, double tau) {
    MlirValue l = scaled_operand(step->scale_l, step->alpha);
    MlirValue acc = scaled_operand(step->scale_acc, step->alpha);
    MlirType row = mlirValueGetType(step->m_old),
             acc_type = mlirValueGetType(acc);
    MlirType types[] = {row, row, mlirValueGetType(l)};

    ir_before(b, step->row_max);
    MlirValue grow = emit_vote(b, step, tau);
    MlirValue one = ir_splat(b, row, 1);
    struct ir_if update = ir_if_begin(b, grow, types, 3, true);
    MlirValue exact[3], same[3] = {step->m_old, one, l};
    emit_exact(b, step, l, exact);
    ir_if_else(b, &update, exact, 3);
    ir_if_end(b, &update, same, 3);

    ir_before(b, step->scale_acc);
    struct ir_if rescale = ir_if_begin(b, grow, &acc_type, 1, true);
    MlirValue scaled =
        ir_mulf(b, acc, ir_broadcast(b, ir_result(update.op, 1), acc_type));
    ir_if_else(b, &rescale, &scaled, 1);
    ir_if_end(b, &rescale, &acc, 1);

    ir_replace_uses(ir_result(step->scale_acc, 0), ir_result(rescale.op, 0));
    ir_replace_uses(ir_result(step->scale_l, 0), ir_result(update.op, 2));
    ir_replace_uses(step->m_new, ir_result(update.op, 0));
}

/* tau of the kernel around an op, 0 when the function names none. */
static double threshold_of(MlirOperation op) {
    while (!ir_is_op(op, "func.func"))
        op = mlirOperationGetParentOperation(op);
    MlirAttribute tau =
        mlirOperationGetAttributeByName(op, ir_ref("attn.rescale_threshold"));
    return mlirAttributeIsNull(tau) ? 0 : mlirFloatAttrGetValueDouble(tau);
}

/* rescale
 * requires     softmax steps as online-softmax spells them, the factor a
 *              positive constant (as fold-scale leaves it);
 * establishes  m, l and acc change only in arms guarded by a vote of the warp; P
 *              is at most 2^tau, tau from the kernel's attn.rescale_threshold;
 * breaks       nothing; steps of another form and kernels with tau = 0 stay as
 *              they are. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count = 0;
    MlirOperation *bounds =
        ir_collect(ctx->scratch, module, "attn.mul_rp", &count);
    struct ir_builder b;
    ir_builder_init(&b, mlirOperationGetContext(module), ctx->scratch);
    for (size_t i = 0; i < count; i++) {
        struct step step;
        double tau = threshold_of(bounds[i]);
        if (tau > 0 && match(bounds[i], &step)) {
            MlirBlock block = mlirOperationGetBlock(step.row_max);
            rewrite(&b, &step, tau);
            ir_erase_dead(block);
        }
    }
    return true;
}

const struct pass pass_rescale = {
    "rescale", "the reference maximum moves only when it grew by more than tau",
    run, NULL};
