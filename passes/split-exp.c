/* split-exp: a share of the softmax's exponentials on the FMA pipes.
 *
 * The MUFU does 16 exp2 a cycle where the tensor cores want 32 and more;
 * FlashAttention-4 (section 3) computes some of them as polynomials.  Here the
 * IR says which: each tile exponential becomes attn.exp2_split with the columns
 * that take the polynomial,
 *
 *     exp2(x) = 2^n p(x - n),   n = x rounded down, p(0) = 1
 *
 * spread evenly over the row, so that both pipes are busy at any time.  A unit
 * of columns is what a lane holds of 8 columns at one parity (docs/ir.md): all
 * lanes go the same way.
 *
 * The degree follows from P's type, whose rounding is to hide the polynomial's
 * error:
 *
 *     P       rounding             degree    error of p
 *     bf16    2^-9  to 2^-8        3         2^-13.5
 *     f16     2^-12 to 2^-11       4         2^-18.4
 *
 * The share is the plan's.  On an H200 every share lost (issue slots are
 * scarcer than MUFU), so that the planner gives none there.
 *
 * Not here: row quantities (alpha, the reciprocal), exp2 that the author wrote.
 */
#include <math.h>
#include <mlir-c/BuiltinAttributes.h>

#include "ir/walk.h"
#include "passes/minimax.h"
#include "passes/pass.h"

/* ---- Recognising -------------------------------------------------------- */

/* The only user of `value` called `name`; null when there is none. */
static MlirOperation user(MlirValue value, const char *name) {
    MlirOpOperand use = mlirValueGetFirstUse(value);
    for (; !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use))
        if (ir_is_op(mlirOpOperandGetOwner(use), name))
            return mlirOpOperandGetOwner(use);
    return (MlirOperation){NULL};
}

/* P of a softmax step: a tile that is summed up and narrowed for the second
 * dot; null when `exp2` is none, else the narrowing. */
static MlirOperation narrowing_of(MlirOperation exp2) {
    MlirValue p = ir_result(exp2, 0);
    bool summed = ir_is_tile(mlirValueGetType(p)) &&
                  !mlirOperationIsNull(user(p, "attn.partial_sum"));
    return summed ? user(p, "arith.truncf") : (MlirOperation){NULL};
}

/* ---- Rewriting ---------------------------------------------------------- */

/* Fills `out_units` with an even spread of the share over `count` units. */
static size_t choose_units(double share, int32_t count, int32_t *out_units) {
    int32_t wanted = (int32_t)lround(share * count);
    size_t chosen = 0;
    for (int32_t unit = 0; unit < count; unit++)
        if ((unit + 1) * wanted / count > unit * wanted / count)
            out_units[chosen++] = unit;
    return chosen;
}

static void rewrite(struct ir_builder *b, MlirOperation exp2,
                    MlirOperation narrowing, double share) {
    MlirType tile = mlirValueGetType(ir_result(exp2, 0));
    int32_t count = (int32_t)ir_columns(tile) / 4;
    int32_t *units = ARENA_NEW_ARRAY(b->arena, int32_t, (size_t)count);
    size_t chosen = choose_units(share, count, units);
    if (chosen == 0)
        return;
    bool bf16 = mlirTypeIsABF16(
        ir_element_type(mlirValueGetType(ir_result(narrowing, 0))));
    ir_before(b, exp2);
    MlirValue split = bf16 ? ir_exp2_split(b, ir_operand(exp2, 0), units,
                                           chosen, minimax_exp2_3, 4)
                           : ir_exp2_split(b, ir_operand(exp2, 0), units,
                                           chosen, minimax_exp2_4, 5);
    ir_replace_uses(ir_result(exp2, 0), split);
    ir_erase(exp2);
}

/* Share of the kernel around an op, 0 when the function names none. */
static double share_of(MlirOperation op) {
    while (!ir_is_op(op, "func.func"))
        op = mlirOperationGetParentOperation(op);
    MlirAttribute share =
        mlirOperationGetAttributeByName(op, ir_ref("attn.exp_poly"));
    return mlirAttributeIsNull(share) ? 0 : mlirFloatAttrGetValueDouble(share);
}

/* split-exp
 * requires     softmax steps as online-softmax and rescale spell them;
 * establishes  the kernel's attn.exp_poly of each P, rounded to whole units of
 *              columns, is computed by polynomials: attn.exp2_split instead of
 *              math.exp2;
 * breaks       nothing; kernels without a share stay as they are. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count = 0;
    MlirOperation *ops = ir_collect(ctx->scratch, module, "math.exp2", &count);
    struct ir_builder b;
    ir_builder_init(&b, mlirOperationGetContext(module), ctx->scratch);
    for (size_t i = 0; i < count; i++) {
        MlirOperation narrowing = narrowing_of(ops[i]);
        double share = share_of(ops[i]);
        if (share > 0 && !mlirOperationIsNull(narrowing))
            rewrite(&b, ops[i], narrowing, share);
    }
    return true;
}

const struct pass pass_split_exp = {
    "split-exp", "a share of the exponentials on the FMA pipes", run, NULL};
