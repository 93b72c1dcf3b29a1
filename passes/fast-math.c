/* fast-math: functions of scores without the MUFU where all arguments are
 * small.
 *
 * The softmax's exp2 alone keeps the MUFU (16 lanes a cycle) half as busy as
 * the tensor cores; tanh as (1 - E)/(1 + E) adds an exp2 and a reciprocal to
 * each element.  The FMA pipes have 128 lanes.  Under a soft-cap most scores
 * are small against the cap, so a tanh of a tile in a loop becomes
 *
 *     any |x| of the warp above the bound?    math.tanh x
 *     none                                    x·p(x^2), p of degree 4
 *
 * with the polynomial of passes/minimax.h.  Both arms are within the language's
 * 2^-20 relative or 2^-22 absolute; a NaN takes either arm and stays NaN.
 *
 * tanh.approx.f32 (2^-11 relative) is not used: docs/ptx.md has what it costs.
 *
 * Not here: code that does not depend on scores (evaluated as written, at most
 * once a row or column), functions inside branches. */
#include "ir/build_sm90.h"
#include "ir/walk.h"
#include "passes/minimax.h"
#include "passes/pass.h"

/* Does any element that the warp holds pass the bound?  A NaN does not count.
 */
static MlirValue emit_vote(struct ir_builder *b, MlirValue x, double bound) {
    MlirValue top = ir_partial_max(b, ir_absf(b, x));
    MlirValue limit = ir_splat(b, mlirValueGetType(top), bound);
    return ir_vote_any(b, ir_cmpf(b, IR_OGT, top, limit));
}

/* x·(c[0] + c[1] x^2 + c[2] x^4 + ...). */
static MlirValue emit_odd_polynomial(struct ir_builder *b, MlirValue x,
                                     const float *c, size_t count) {
    MlirType tile = mlirValueGetType(x);
    MlirValue square = ir_mulf(b, x, x);
    MlirValue sum = ir_splat(b, tile, (double)c[count - 1]);
    for (size_t k = count - 1; k-- > 0;)
        sum = ir_fma(b, square, sum, ir_splat(b, tile, (double)c[k]));
    return ir_mulf(b, x, sum);
}

static void rewrite_tanh(struct ir_builder *b, MlirOperation tanh) {
    MlirValue x = ir_operand(tanh, 0);
    MlirType tile = mlirValueGetType(x);
    ir_before(b, tanh);
    b->contract = true;
    MlirValue large = emit_vote(b, x, (double)minimax_tanh_bound);
    struct ir_if branch = ir_if_begin(b, large, &tile, 1, true);
    MlirValue general = ir_tanh(b, x);
    ir_if_else(b, &branch, &general, 1);
    MlirValue small = emit_odd_polynomial(
        b, x, minimax_tanh, sizeof minimax_tanh / sizeof minimax_tanh[0]);
    ir_if_end(b, &branch, &small, 1);
    ir_replace_uses(ir_result(tanh, 0), ir_result(branch.op, 0));
    ir_erase(tanh);
}

/* Runs once for every key block and every element of it, with all lanes of the
 * warp. */
static bool is_hot(MlirOperation op) {
    MlirOperation parent = mlirOperationGetParentOperation(op);
    return ir_is_tile(mlirValueGetType(ir_result(op, 0))) &&
           (ir_is_op(parent, "scf.for") || ir_is_op(parent, "scf.while"));
}

/* Code of scores may use other forms than the written ones. */
static bool may_change(MlirOperation op) {
    MlirAttribute flags =
        mlirOperationGetAttributeByName(op, ir_ref("fastmath"));
    MlirAttribute none = mlirAttributeParseGet(mlirOperationGetContext(op),
                                               ir_ref("#arith.fastmath<none>"));
    return !mlirAttributeIsNull(flags) && !mlirAttributeEqual(flags, none);
}

/* fast-math
 * requires     score code as fold-scale leaves it, fastmath on what depends on
 * s; establishes  tanh of tiles in key loops in arms of a vote; breaks nothing.
 */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count = 0;
    MlirOperation *ops = ir_collect(ctx->scratch, module, "math.tanh", &count);
    struct ir_builder b;
    ir_builder_init(&b, mlirOperationGetContext(module), ctx->scratch);
    for (size_t i = 0; i < count; i++)
        if (is_hot(ops[i]) && may_change(ops[i]))
            rewrite_tanh(&b, ops[i]);
    return true;
}

const struct pass pass_fast_math = {
    "fast-math", "functions of small scores on the FMA pipes", run, NULL};
