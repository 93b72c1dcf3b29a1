/* fold-scale: positive constant factors of the scores go into the softmax's one
 * FMA.
 *
 *     p = exp2(fma(f·x, c, -m)),  m from mul_rp(rowmax(f·x), c)
 *  => p = exp2(fma(x, f·c, -m)),  m from mul_rp(rowmax(x), f·c)         for a
 * constant f > 0
 *
 * so that maxima are taken on raw scores and the multiplication per element
 * disappears. rowmax commutes with a positive factor only: a negative f would
 * make the maximum a minimum, zero would make 0·inf, and a factor known at
 * launch may be either; they stay. The factor is also found behind select(kept,
 * f·x, -inf) and behind an scf.if whose arms carry the same factor, which is
 * how partial blocks are masked.
 *
 * Before that the code that depends on s is simplified (its accuracy is
 * measured against exact arithmetic, unlike that of masks and of what a bias is
 * made of, which are kept as written):
 *
 *     x / d           => x·(1/d)      d constant or the same for the whole loop
 *     (x·f1)·f2       => x·(f1·f2)    likewise
 *     x·f + y         => fma(x, f, y)
 *     x·f - y         => fma(x, f, -y)
 */
#include <float.h>
#include <math.h>

#include "ir/build.h"
#include "ir/walk.h"
#include "passes/pass.h"
#include "passes/tile.h"

/* ---- What depends on s -------------------------------------------------- */

/* Values computed from the dot product Q·K. */
struct score_set {
    struct arena *arena;
    struct ir_map *members; /* of each to itself */
};

static bool is_score(const struct score_set *set, MlirValue value) {
    return ir_map_has(set->members, value);
}

/* Visited in program order: operands are known before their users.  The slice
 * ends at reductions and at the second dot: only elementwise code is rewritten.
 */
static void visit_score(void *data, MlirOperation op) {
    struct score_set *set = data;
    if (ir_is_op(op, "attn.dot")) {
        if (ir_has_attr(op, "transpose_b"))
            ir_add_results(set->members, op);
        return;
    }
    if (!ir_is_pure(op) || ir_result_count(op) != 1 ||
        !ir_is_tile(mlirValueGetType(ir_result(op, 0))))
        return;
    if (ir_takes_any(op, set->members))
        ir_add_results(set->members, op);
}

/* ---- Factors ------------------------------------------------------------ */

/* A factor that is a normal f32 number. */
static bool is_normal(double factor) {
    double size = fabs(factor);
    return size >= (double)FLT_MIN && size <= (double)FLT_MAX;
}

/* x and f of an arith.mulf by a constant, in either order. */
static bool match_factor(MlirValue value, MlirValue *out_x,
                         double *out_factor) {
    MlirOperation mul = ir_def_op(value, "arith.mulf");
    if (mlirOperationIsNull(mul))
        return false;
    for (size_t i = 0; i < 2; i++) {
        if (!ir_constant_float(ir_operand(mul, i), out_factor))
            continue;
        *out_x = ir_operand(mul, 1 - i);
        return true;
    }
    return false;
}

static bool is_minus_infinity(MlirValue value) {
    double number;
    return ir_constant_float(value, &number) && isinf(number) && number < 0;
}

/* ---- Simplification of score code --------------------------------------- */

struct simplify {
    struct ir_builder b;
    struct score_set *set;
};

/* Replaces `op` by a value that depends on s like op's result did.  The op
 * itself stays until all is done: a new op must not get the address of a member
 * of the set. */
static void replace(struct simplify *s, MlirOperation op, MlirValue value) {
    ir_map_set(s->set->members, value, value);
    ir_replace_uses(ir_result(op, 0), value);
}

/* A factor without its stretching over the tile: a constant or what is
 * broadcast.  Null when it is a tile of its own, or no f32. */
static MlirValue small_factor(struct simplify *s, MlirValue factor) {
    double constant;
    if (ir_constant_float(factor, &constant))
        return ir_const_f32(&s->b, (float)constant);
    MlirOperation wide = ir_def_op(factor, "vector.broadcast");
    return mlirOperationIsNull(wide) ? (MlirValue){NULL} : ir_operand(wide, 0);
}

/* 1/d for a divisor that is the same in a row, a column or everywhere; null
 * otherwise. */
static MlirValue reciprocal(struct simplify *s, MlirValue divisor) {
    struct ir_builder *b = &s->b;
    MlirType tile = mlirValueGetType(divisor);
    double constant;
    if (ir_constant_float(divisor, &constant))
        return is_normal(1 / constant) && is_normal(constant)
                   ? ir_splat(b, tile, 1 / constant)
                   : (MlirValue){NULL};
    MlirValue small = small_factor(s, divisor);
    if (mlirValueIsNull(small))
        return small;
    MlirValue one = ir_splat(b, mlirValueGetType(small), 1);
    return ir_broadcast(b, ir_divf(b, one, small), tile);
}

static void simplify_division(struct simplify *s, MlirOperation op) {
    if (!is_score(s->set, ir_operand(op, 0)) ||
        is_score(s->set, ir_operand(op, 1)))
        return;
    ir_before(&s->b, op);
    MlirValue inverse = reciprocal(s, ir_operand(op, 1));
    if (!mlirValueIsNull(inverse))
        replace(s, op, ir_mulf(&s->b, ir_operand(op, 0), inverse));
}

/* Splits a product of a score into the score and the other factor. */
static bool split_product(const struct simplify *s, MlirValue value,
                          MlirValue *out_score, MlirValue *out_factor) {
    MlirOperation mul = ir_def_op(value, "arith.mulf");
    if (mlirOperationIsNull(mul))
        return false;
    size_t score = is_score(s->set, ir_operand(mul, 0)) ? 0 : 1;
    *out_score = ir_operand(mul, score);
    *out_factor = ir_operand(mul, 1 - score);
    return is_score(s->set, *out_score) && !is_score(s->set, *out_factor);
}

/* The product of two small factors; a constant that f32 cannot hold is refused.
 */
static MlirValue multiply_small(struct simplify *s, MlirValue x, MlirValue y) {
    struct ir_builder *b = &s->b;
    double fx, fy;
    if (ir_constant_float(x, &fx) && ir_constant_float(y, &fy))
        return is_normal(fx * fy) ? ir_splat(b, mlirValueGetType(x), fx * fy)
                                  : (MlirValue){NULL};
    MlirType shape = ir_join_shapes(mlirValueGetType(x), mlirValueGetType(y));
    if (ir_is_tile(shape))
        return (MlirValue){NULL};
    return ir_mulf(b, ir_broadcast(b, x, shape), ir_broadcast(b, y, shape));
}

/* A small factor over a tile, as a constant where it is one. */
static MlirValue stretch(struct ir_builder *b, MlirValue small, MlirType tile) {
    double constant;
    return ir_constant_float(small, &constant) ? ir_splat(b, tile, constant)
                                               : ir_broadcast(b, small, tile);
}

static void simplify_product(struct simplify *s, MlirOperation op) {
    MlirValue x, inner, outer_factor, inner_factor;
    if (!split_product(s, ir_result(op, 0), &x, &outer_factor) ||
        !split_product(s, x, &inner, &inner_factor))
        return;
    ir_before(&s->b, op);
    MlirValue first = small_factor(s, inner_factor),
              second = small_factor(s, outer_factor);
    if (mlirValueIsNull(first) || mlirValueIsNull(second))
        return;
    MlirValue both = multiply_small(s, first, second);
    if (mlirValueIsNull(both))
        return;
    MlirValue wide = stretch(&s->b, both, mlirValueGetType(inner));
    replace(s, op, ir_mulf(&s->b, inner, wide));
}

/* The product of a score that is operand i of `op`, null if it is none. */
static MlirOperation score_product(const struct simplify *s, MlirOperation op,
                                   size_t i) {
    MlirValue product = ir_operand(op, i);
    MlirOperation mul = ir_def_op(product, "arith.mulf");
    return is_score(s->set, product) ? mul : (MlirOperation){NULL};
}

static void simplify_sum(struct simplify *s, MlirOperation op) {
    for (size_t i = 0; i < 2; i++) {
        MlirOperation mul = score_product(s, op, i);
        if (mlirOperationIsNull(mul))
            continue;
        ir_before(&s->b, op);
        replace(s, op,
                ir_fma(&s->b, ir_operand(mul, 0), ir_operand(mul, 1),
                       ir_operand(op, 1 - i)));
        return;
    }
}

/* x·f - y; the sign goes into the FMA's operand. */
static void simplify_difference(struct simplify *s, MlirOperation op) {
    MlirOperation mul = score_product(s, op, 0);
    if (mlirOperationIsNull(mul))
        return;
    ir_before(&s->b, op);
    MlirValue minus = ir_negf(&s->b, ir_operand(op, 1));
    replace(s, op,
            ir_fma(&s->b, ir_operand(mul, 0), ir_operand(mul, 1), minus));
}

static void simplify_all(struct pass_ctx *ctx, MlirOperation func,
                         struct simplify *s, const char *name,
                         void (*rewrite)(struct simplify *, MlirOperation)) {
    size_t count = 0;
    MlirOperation *ops = ir_collect(ctx->scratch, func, name, &count);
    for (size_t i = 0; i < count; i++)
        if (ir_is_tile(mlirValueGetType(ir_result(ops[i], 0))))
            rewrite(s, ops[i]);
}

static void simplify_scores(struct pass_ctx *ctx, MlirOperation func) {
    struct score_set set = {.arena = ctx->scratch,
                            .members = ir_map_create(ctx->scratch)};
    struct simplify s = {.set = &set};
    ir_builder_init(&s.b, mlirOperationGetContext(func), ctx->scratch);
    s.b.contract = true;
    ir_walk(func, visit_score, &set);
    simplify_all(ctx, func, &s, "arith.divf", simplify_division);
    simplify_all(ctx, func, &s, "arith.mulf", simplify_product);
    simplify_all(ctx, func, &s, "arith.addf", simplify_sum);
    simplify_all(ctx, func, &s, "arith.subf", simplify_difference);
    ir_erase_dead(ir_func_body(func));
    tile_hoist(ctx->scratch, func); /* reciprocals and products of invariants */
}

/* ---- Folding into the softmax ------------------------------------------- */

/* One softmax step: scores x, used by exactly the reduction and the FMA. */
struct softmax_site {
    MlirValue scores;
    MlirOperation reduction, bound,
        fma;       /* multi_reduction, attn.mul_rp, math.fma */
    double factor; /* c */
};

/* The op behind a shape_cast. */
static MlirOperation behind_cast(MlirValue value) {
    MlirOperation cast = ir_def_op(value, "vector.shape_cast");
    return mlirOperationIsNull(cast) ? cast : ir_def(ir_operand(cast, 0));
}

/* The users of the scores are the reduction and one FMA with the same constant.
 */
static bool match_users(struct softmax_site *site) {
    MlirOpOperand use = mlirValueGetFirstUse(site->scores);
    double factor;
    for (; !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use)) {
        MlirOperation user = mlirOpOperandGetOwner(use);
        if (mlirOperationEqual(user, site->reduction))
            continue;
        if (!ir_is_op(user, "math.fma") ||
            mlirOpOperandGetOperandNumber(use) != 0 ||
            !ir_constant_float(ir_operand(user, 1), &factor) ||
            factor != site->factor || !mlirOperationIsNull(site->fma))
            return false;
        site->fma = user;
    }
    return !mlirOperationIsNull(site->fma);
}

static bool match_site(MlirOperation bound, struct softmax_site *out_site) {
    *out_site = (struct softmax_site){.bound = bound};
    if (!ir_constant_float(ir_operand(bound, 1), &out_site->factor))
        return false;
    out_site->reduction = behind_cast(ir_operand(bound, 0));
    if (!ir_is_op(out_site->reduction, "vector.multi_reduction"))
        return false;
    out_site->scores = ir_operand(out_site->reduction, 0);
    return match_users(out_site);
}

static MlirValue yielded(MlirOperation branch, size_t arm, size_t result) {
    return ir_operand(mlirBlockGetTerminator(ir_region_block(branch, arm)),
                      result);
}

static bool has_one_result(MlirOperation op) {
    return ir_result_count(op) == 1;
}

/* The positive factor that all finite values of `scores` carry. */
static bool find_factor(MlirValue scores, double *out_factor) {
    MlirValue x;
    if (match_factor(scores, &x, out_factor))
        return *out_factor > 0 && is_normal(*out_factor);
    MlirOperation select = ir_def_op(scores, "arith.select");
    if (!mlirOperationIsNull(select))
        return is_minus_infinity(ir_operand(select, 2)) &&
               find_factor(ir_operand(select, 1), out_factor);
    MlirOperation branch = ir_def_op(scores, "scf.if");
    double other;
    return !mlirOperationIsNull(branch) && has_one_result(branch) &&
           find_factor(yielded(branch, 0, 0), out_factor) &&
           find_factor(yielded(branch, 1, 0), &other) && other == *out_factor;
}

/* The scores without the factor that find_factor found.  An scf.if is changed
 * in place: its result is used by the site only. */
static MlirValue strip_factor(struct ir_builder *b, MlirValue scores) {
    MlirValue x;
    double factor;
    if (match_factor(scores, &x, &factor))
        return x;
    MlirOperation select = ir_def_op(scores, "arith.select");
    if (!mlirOperationIsNull(select)) {
        MlirValue kept = strip_factor(b, ir_operand(select, 1));
        ir_before(b, select);
        return ir_select(b, ir_operand(select, 0), kept, ir_operand(select, 2));
    }
    MlirOperation branch = ir_def(scores);
    for (size_t arm = 0; arm < 2; arm++) {
        MlirOperation yield =
            mlirBlockGetTerminator(ir_region_block(branch, arm));
        mlirOperationSetOperand(yield, 0,
                                strip_factor(b, ir_operand(yield, 0)));
    }
    return scores;
}

static void set_factor(struct ir_builder *b, MlirOperation op, double factor) {
    ir_before(b, op);
    MlirType type = mlirValueGetType(ir_operand(op, 1));
    mlirOperationSetOperand(op, 1, ir_splat(b, type, factor));
}

static void fold_site(struct ir_builder *b, struct softmax_site *site) {
    double factor;
    if (!find_factor(site->scores, &factor) ||
        !is_normal(factor * site->factor))
        return;
    MlirValue raw = strip_factor(b, site->scores);
    mlirOperationSetOperand(site->reduction, 0, raw);
    mlirOperationSetOperand(site->fma, 0, raw);
    set_factor(b, site->bound, factor * site->factor);
    set_factor(b, site->fma, factor * site->factor);
}

static void fold_function(struct pass_ctx *ctx, MlirOperation func) {
    struct ir_builder b;
    size_t count = 0;
    simplify_scores(ctx, func);
    ir_builder_init(&b, mlirOperationGetContext(func), ctx->scratch);
    MlirOperation *bounds =
        ir_collect(ctx->scratch, func, "attn.mul_rp", &count);
    for (size_t i = 0; i < count; i++) {
        struct softmax_site site;
        if (match_site(bounds[i], &site))
            fold_site(&b, &site);
    }
    ir_erase_dead(ir_func_body(func));
}

/* fold-scale
 * requires     the form that `online-softmax` leaves: rowmax, attn.mul_rp by a
 *              constant, fma by the same constant, and no other use of the
 *              scores;
 * establishes  scores without a positive constant factor; divisions of scores
 *              by loop invariants as products; fused multiply-adds in score
 *              code;
 * breaks       nothing: m stays in log2 units. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count = 0;
    MlirOperation *funcs =
        ir_collect(ctx->scratch, module, "func.func", &count);
    for (size_t i = 0; i < count; i++)
        if (ir_kernel_kind(funcs[i]))
            fold_function(ctx, funcs[i]);
    return true;
}

const struct pass pass_fold_scale = {
    "fold-scale", "scale and log2(e) folded into one FMA", run, NULL};
