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
 * with the polynomial of passes/minimax.h.  Factors in front of x and of tanh
 * that are the same for the whole kernel, as cap·tanh(s·(1/cap)) has them, go
 * into the coefficients, which are computed once: 6 instructions an element and
 * one for the vote.  Both arms are within the language's 2^-20 relative or
 * 2^-22 absolute; a NaN takes either arm and stays NaN.
 *
 * tanh.approx.f32 (2^-11 relative) is not used: docs/ptx.md has what it costs.
 *
 * Not here: code that does not depend on scores (evaluated as written, at most
 * once a row or column), functions inside branches, those beside which more
 * than one tile would wait for the branch. */
#include <math.h>

#include "ir/build_sm90.h"
#include "ir/walk.h"
#include "passes/minimax.h"
#include "passes/pass.h"
#include "passes/tile.h"

/* The coefficients, up to out·a^9, stay finite while a <= 2^10 and out·a <=
 * 2^30.  Where a is below 2^-13 the last ones vanish; so do their terms if |s|
 * is no larger than 0.75·2^13. */
static const double smallest_factor = 0x1p-13, largest_factor = 0x1p10,
                    largest_slope = 0x1p30;

/* A soft-cap: out·tanh(a·s), scalars that are the same for the whole kernel. */
struct soft_cap {
    MlirValue s;         /* a tile */
    MlirValue in, out;   /* a and out, f32 */
    MlirOperation value; /* the op that gives the result */
};

/* ---- Recognising --------------------------------------------------------- */

/* A factor that is the same everywhere: a constant or a stretched scalar; null
 * for others. */
static MlirValue uniform(struct ir_builder *b, MlirValue factor) {
    double constant;
    if (ir_constant_float(factor, &constant))
        return ir_const_f32(b, (float)constant);
    MlirOperation stretch = ir_def_op(factor, "vector.broadcast");
    if (mlirOperationIsNull(stretch) ||
        !ir_is_scalar(mlirValueGetType(ir_operand(stretch, 0))))
        return (MlirValue){NULL};
    return ir_operand(stretch, 0);
}

/* Splits a product into a tile and a uniform factor. */
static bool split_product(struct ir_builder *b, MlirOperation mul,
                          MlirValue *out_tile, MlirValue *out_factor) {
    for (size_t i = 0; !mlirOperationIsNull(mul) && i < 2; i++) {
        *out_tile = ir_operand(mul, i);
        *out_factor = uniform(b, ir_operand(mul, 1 - i));
        if (!mlirValueIsNull(*out_factor))
            return true;
    }
    return false;
}

/* The product that is the only use of a value; null when there is none. */
static MlirOperation only_product(MlirValue value) {
    MlirOpOperand use = mlirValueGetFirstUse(value);
    if (mlirOpOperandIsNull(use) ||
        !mlirOpOperandIsNull(mlirOpOperandGetNextUse(use)) ||
        !ir_is_op(mlirOpOperandGetOwner(use), "arith.mulf"))
        return (MlirOperation){NULL};
    return mlirOpOperandGetOwner(use);
}

static struct soft_cap match(struct ir_builder *b, MlirOperation tanh) {
    MlirValue x = ir_operand(tanh, 0), one = ir_const_f32(b, 1), tile;
    struct soft_cap cap = {.s = x, .in = one, .out = one, .value = tanh};
    if (!split_product(b, ir_def_op(x, "arith.mulf"), &cap.s, &cap.in)) {
        cap.s = x;
        cap.in = one;
    }
    MlirOperation product = only_product(ir_result(tanh, 0));
    if (mlirOperationIsNull(product) ||
        !mlirBlockEqual(mlirOperationGetBlock(product),
                        mlirOperationGetBlock(tanh)))
        return cap;
    MlirValue out;
    if (split_product(b, product, &tile, &out) &&
        mlirValueEqual(tile, ir_result(tanh, 0))) {
        cap.out = out;
        cap.value = product;
    }
    return cap;
}

/* ---- Rewriting ----------------------------------------------------------- */

/* A scalar product; of constants at once. */
static MlirValue multiply(struct ir_builder *b, MlirValue x, MlirValue y) {
    double fx, fy;
    if (ir_constant_float(x, &fx) && ir_constant_float(y, &fy))
        return ir_const_f32(b, (float)(fx * fy));
    return ir_mulf(b, x, y);
}

/* A scalar over a tile: constants as splats, which become immediates. */
static MlirValue stretch(struct ir_builder *b, MlirValue x, MlirType type) {
    double constant;
    return ir_constant_float(x, &constant) ? ir_splat(b, type, constant)
                                           : ir_broadcast(b, x, type);
}

/* |x| <= limit for scalars; false for NaN. */
static MlirValue at_most(struct ir_builder *b, MlirValue x, double limit) {
    return ir_cmpf(b, IR_OLE, ir_absf(b, x), ir_const_f32(b, (float)limit));
}

/* The largest |s| for which the polynomial serves; -1: for none. */
static MlirValue emit_limit(struct ir_builder *b, const struct soft_cap *cap) {
    double in, out;
    if (ir_constant_float(cap->in, &in) && ir_constant_float(cap->out, &out)) {
        double factor = fmax(fabs(in), smallest_factor);
        bool served =
            factor <= largest_factor && fabs(in * out) <= largest_slope;
        double limit = (double)minimax_tanh_bound / factor;
        return ir_const_f32(b, served ? (float)limit : -1);
    }
    MlirValue bound = ir_const_f32(b, minimax_tanh_bound);
    MlirValue size = ir_maxnumf(b, ir_absf(b, cap->in),
                                ir_const_f32(b, (float)smallest_factor));
    MlirValue slope = multiply(b, cap->in, cap->out);
    MlirValue fits = ir_andi(b, at_most(b, cap->in, largest_factor),
                             at_most(b, slope, largest_slope));
    return ir_select(b, fits, ir_divf(b, bound, size), ir_const_f32(b, -1));
}

/* Does any element that the warp holds pass the limit?  A NaN does not count.
 */
static MlirValue emit_vote(struct ir_builder *b, const struct soft_cap *cap) {
    MlirValue top = ir_partial_max(b, ir_absf(b, cap->s));
    MlirValue limit = stretch(b, emit_limit(b, cap), mlirValueGetType(top));
    return ir_vote_any(b, ir_cmpf(b, IR_OGT, top, limit));
}

static MlirValue emit_general(struct ir_builder *b,
                              const struct soft_cap *cap) {
    MlirType tile = mlirValueGetType(cap->s);
    double factor;
    bool plain = ir_constant_float(cap->in, &factor) && factor == 1;
    MlirValue x =
        plain ? cap->s : ir_mulf(b, cap->s, stretch(b, cap->in, tile));
    MlirValue y = ir_tanh(b, x);
    plain = ir_constant_float(cap->out, &factor) && factor == 1;
    return plain ? y : ir_mulf(b, y, stretch(b, cap->out, tile));
}

/* s·(c[0] out a + c[1] out a^3 s^2 + c[2] out a^5 s^4 + ...); the coefficients
 * are computed once. */
static MlirValue emit_polynomial(struct ir_builder *b,
                                 const struct soft_cap *cap) {
    enum { COUNT = sizeof minimax_tanh / sizeof minimax_tanh[0] };
    MlirType tile = mlirValueGetType(cap->s);
    MlirValue c[COUNT], factor = multiply(b, cap->in, cap->out);
    MlirValue step = multiply(b, cap->in, cap->in);
    for (size_t k = 0; k < COUNT; k++) {
        c[k] = multiply(b, factor, ir_const_f32(b, minimax_tanh[k]));
        c[k] = stretch(b, c[k], tile);
        factor = multiply(b, factor, step);
    }
    MlirValue square = ir_mulf(b, cap->s, cap->s), sum = c[COUNT - 1];
    for (size_t k = COUNT - 1; k-- > 0;)
        sum = ir_fma(b, square, sum, c[k]);
    return ir_mulf(b, cap->s, sum);
}

static void rewrite(struct ir_builder *b, MlirOperation tanh) {
    ir_before(b, tanh);
    b->contract = true;
    struct soft_cap cap = match(b, tanh);
    ir_before(b, cap.value);
    MlirType tile = mlirValueGetType(cap.s);
    MlirValue large = emit_vote(b, &cap);
    struct ir_if branch = ir_if_begin(b, large, &tile, 1, true);
    MlirValue general = emit_general(b, &cap);
    ir_if_else(b, &branch, &general, 1);
    MlirValue small = emit_polynomial(b, &cap);
    ir_if_end(b, &branch, &small, 1);
    ir_replace_uses(ir_result(cap.value, 0), ir_result(branch.op, 0));
}

/* Runs once for every key block and every element of it, with all lanes of the
 * warp. */
static bool is_hot(MlirOperation op) {
    MlirOperation parent = mlirOperationGetParentOperation(op);
    return ir_is_tile(mlirValueGetType(ir_result(op, 0))) &&
           (ir_is_op(parent, "scf.for") || ir_is_op(parent, "scf.while"));
}

/* ---- What waits beside a branch ------------------------------------------ */

/* Is a value used behind `op`, in its block or below it? */
static bool is_used_behind(MlirValue value, MlirOperation op) {
    MlirBlock block = mlirOperationGetBlock(op);
    for (MlirOpOperand use = mlirValueGetFirstUse(value);
         !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use)) {
        MlirOperation user = mlirOpOperandGetOwner(use);
        while (!mlirBlockEqual(mlirOperationGetBlock(user), block))
            user = mlirOperationGetParentOperation(user);
        if (mlirOperationIsBeforeInBlock(op, user))
            return true;
    }
    return false;
}

/* Tiles of scores that are there in front of an op and needed behind it. Around
 * a branch they lie in registers; without one an element passes through all of
 * a score's ops before the next. */
static int waiting_tiles(struct arena *scratch, MlirOperation op) {
    struct ir_map *scores = ir_map_create(scratch); /* a set */
    MlirOperation at = mlirBlockGetFirstOperation(mlirOperationGetBlock(op));
    int count = 0;
    for (; !mlirOperationEqual(at, op); at = mlirOperationGetNextInBlock(at)) {
        if (ir_is_op(at, "attn.dot") || ir_takes_any(at, scores))
            ir_add_results(scores, at);
        if (ir_result_count(at) == 1 && ir_map_has(scores, ir_result(at, 0)) &&
            ir_is_tile(mlirValueGetType(ir_result(at, 0))))
            count += is_used_behind(ir_result(at, 0), op);
    }
    return count;
}

/* ---- The pass ------------------------------------------------------------ */

/* Code of scores may use other forms than the written ones. */
static bool may_change(MlirOperation op) {
    MlirAttribute flags =
        mlirOperationGetAttributeByName(op, ir_ref("fastmath"));
    MlirAttribute none = mlirAttributeParseGet(mlirOperationGetContext(op),
                                               ir_ref("#arith.fastmath<none>"));
    return !mlirAttributeIsNull(flags) && !mlirAttributeEqual(flags, none);
}

static void rewrite_function(struct pass_ctx *ctx, MlirOperation func) {
    size_t count = 0;
    bool changed = false;
    MlirOperation *ops = ir_collect(ctx->scratch, func, "math.tanh", &count);
    struct ir_builder b;
    ir_builder_init(&b, mlirOperationGetContext(func), ctx->scratch);
    for (size_t i = 0; i < count; i++) {
        /* Schedules leave room for one tile beside that of a tanh. */
        if (!is_hot(ops[i]) || !may_change(ops[i]) ||
            waiting_tiles(ctx->scratch, ops[i]) > 1)
            continue;
        rewrite(&b, ops[i]);
        changed = true;
    }
    if (!changed)
        return;
    ir_erase_dead(ir_func_body(func));
    tile_hoist(ctx->scratch, func); /* coefficients and limits */
}

/* fast-math
 * requires     score code as fold-scale leaves it, fastmath on what depends on
 *              s;
 * establishes  tanh of tiles in key loops in arms of a vote;
 * breaks       nothing. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count = 0;
    MlirOperation *funcs =
        ir_collect(ctx->scratch, module, "func.func", &count);
    for (size_t i = 0; i < count; i++)
        rewrite_function(ctx, funcs[i]);
    return true;
}

const struct pass pass_fast_math = {
    "fast-math", "functions of small scores on the FMA pipes", run, NULL};
