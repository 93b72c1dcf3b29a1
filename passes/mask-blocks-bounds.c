/* The key range outside which nothing attends: see mask-blocks.h.
 *
 * The mask's and, or, not become intersection, hull and the range of the
 * negation; a comparison is turned around until kv stands alone (inverse
 * interval propagation, HC4-revise in constraint solving): from v = x + y in
 * [lo, hi] follows that x is in [lo - max y, hi - min y].  Other values of the
 * mask are the intervals that mask-blocks-eval.c found for all keys at once.  A
 * step back through an op that may have wrapped says nothing. */
#include <assert.h>
#include <math.h>
#include <mlir-c/BuiltinAttributes.h>

#include "passes/mask-blocks.h"

/* Steps of inverse propagation in one mask; shared subexpressions are walked
 * again. */
enum { MAX_STEPS = 2000 };

/* Bounds wanted for a value; null: none on that side. */
struct wanted {
    MlirValue lo, hi;
};

/* What they mean for kv. */
struct solution {
    struct wanted kv;
    bool reached; /* kv itself was reached, by steps that keep the range full */
};

struct solver {
    struct mask_eval *e;
    struct ir_builder *b;
    MlirValue last; /* kv_len - 1 */
    int steps;
};

static const MlirValue none = {NULL};

/* Is there a bound? */
static bool is_set(MlirValue value) {
    return !mlirValueIsNull(value);
}

static const struct mask_fact *fact_of(const struct solver *s,
                                       MlirValue value) {
    return mask_eval_fact(s->e, value);
}

/* ---- Ranges -------------------------------------------------------------- */

/* All keys. */
static struct kv_range everything(struct solver *s, bool dense) {
    return (struct kv_range){
        .lo = ir_const_i32(s->b, 0), .hi = s->last, .dense = dense};
}

/* All keys where `some` holds, else none. */
static struct kv_range where(struct solver *s, MlirValue some, bool dense) {
    struct kv_range range = everything(s, dense);
    if (abs_is_true(some))
        return range;
    range.hi = abs_choose(s->b, some, s->last, ir_const_i32(s->b, -1));
    return range;
}

/* Keys in both. */
static struct kv_range intersect(struct solver *s, struct kv_range x,
                                 struct kv_range y) {
    return (struct kv_range){.lo = ir_maxsi(s->b, x.lo, y.lo),
                             .hi = ir_minsi(s->b, x.hi, y.hi),
                             .lower = x.lower || y.lower,
                             .upper = x.upper || y.upper,
                             .dense = x.dense && y.dense};
}

/* The smallest range around both; an empty one adds nothing.  Two ranges may
 * leave a gap between them, but not if both start at the first or end at the
 * last key. */
static struct kv_range hull(struct solver *s, struct kv_range x,
                            struct kv_range y) {
    struct ir_builder *b = s->b;
    MlirValue x_empty = ir_cmpi(b, IR_SGT, x.lo, x.hi),
              y_empty = ir_cmpi(b, IR_SGT, y.lo, y.hi);
    MlirValue lo = ir_select(b, y_empty, x.lo, ir_minsi(b, x.lo, y.lo));
    MlirValue hi = ir_select(b, y_empty, x.hi, ir_maxsi(b, x.hi, y.hi));
    return (struct kv_range){
        .lo = ir_select(b, x_empty, y.lo, lo),
        .hi = ir_select(b, x_empty, y.hi, hi),
        .lower = x.lower && y.lower,
        .upper = x.upper && y.upper,
        .dense = x.dense && y.dense &&
                 ((!x.lower && !y.lower) || (!x.upper && !y.upper))};
}

/* ---- Inverse propagation ------------------------------------------------- */

static struct solution solve(struct solver *s, MlirValue value,
                             struct wanted wanted);

/* Nothing is known of kv. */
static struct solution no_solution(void) {
    return (struct solution){{none, none}, false};
}

/* The stronger of two bounds. */
static MlirValue tighter(struct solver *s, MlirValue x, MlirValue y,
                         bool is_lower) {
    if (!is_set(x) || !is_set(y))
        return is_set(x) ? x : y;
    return is_lower ? ir_maxsi(s->b, x, y) : ir_minsi(s->b, x, y);
}

/* Saturation only loosens: a value that is an i32 lies within i32. */
static MlirValue add_bound(struct solver *s, MlirValue bound, MlirValue y) {
    return is_set(bound) ? abs_add_saturating(s->b, bound, y) : none;
}

static MlirValue sub_bound(struct solver *s, MlirValue bound, MlirValue y) {
    return is_set(bound) ? abs_sub_saturating(s->b, bound, y) : none;
}

/* y - bound */
static MlirValue from_bound(struct solver *s, MlirValue y, MlirValue bound) {
    return is_set(bound) ? abs_sub_saturating(s->b, y, bound) : none;
}

/* Solutions through both operands of an op hold together. */
static struct solution both(struct solver *s, struct solution x,
                            struct solution y, bool x_on_kv, bool y_on_kv) {
    return (struct solution){{tighter(s, x.kv.lo, y.kv.lo, true),
                              tighter(s, x.kv.hi, y.kv.hi, false)},
                             x_on_kv != y_on_kv &&
                                 (x_on_kv ? x.reached : y.reached)};
}

/* x + y or x - y in [lo, hi]: what remains for each operand that depends on kv,
 * the other one ranging over its forward interval. */
static struct solution solve_sum(struct solver *s, MlirOperation op,
                                 struct wanted wanted, bool is_sum) {
    MlirValue x = ir_operand(op, 0), y = ir_operand(op, 1);
    const struct mask_fact *fx = fact_of(s, x), *fy = fact_of(s, y);
    struct solution from_x = no_solution(), from_y = no_solution();
    const struct abs_value *ax = &fx->value, *ay = &fy->value;
    if (fx->on_kv) {
        struct wanted w = {sub_bound(s, wanted.lo, ay->hi),
                           sub_bound(s, wanted.hi, ay->lo)};
        if (!is_sum)
            w = (struct wanted){add_bound(s, wanted.lo, ay->lo),
                                add_bound(s, wanted.hi, ay->hi)};
        from_x = solve(s, x, w);
    }
    if (fy->on_kv) {
        struct wanted w = {sub_bound(s, wanted.lo, ax->hi),
                           sub_bound(s, wanted.hi, ax->lo)};
        if (!is_sum)
            w = (struct wanted){from_bound(s, ax->lo, wanted.hi),
                                from_bound(s, ax->hi, wanted.lo)};
        from_y = solve(s, y, w);
    }
    return both(s, from_x, from_y, fx->on_kv, fy->on_kv);
}

/* x*c in [lo, hi], c > 0: x in [ceil(lo/c), floor(hi/c)]. */
static struct solution solve_product(struct solver *s, MlirOperation op,
                                     struct wanted wanted) {
    int64_t c;
    MlirValue x = ir_operand(op, 0);
    if (!ir_constant_int(ir_operand(op, 1), &c)) {
        x = ir_operand(op, 1);
        if (!ir_constant_int(ir_operand(op, 0), &c))
            return no_solution();
    }
    if (c <= 0)
        return no_solution();
    struct ir_builder *b = s->b;
    MlirValue factor = ir_const_i32(b, (int32_t)c);
    struct wanted w = wanted;
    if (is_set(w.lo)) {
        MlirValue quotient = ir_floordivsi(b, wanted.lo, factor);
        MlirValue exact =
            ir_cmpi(b, IR_EQ, ir_muli(b, quotient, factor), wanted.lo);
        w.lo = ir_select(b, exact, quotient,
                         ir_addi(b, quotient, ir_const_i32(b, 1)));
    }
    if (is_set(w.hi))
        w.hi = ir_floordivsi(b, w.hi, factor);
    return solve(s, x, w);
}

/* bound*c + rest, saturating: bound is first brought to where the product fits.
 */
static MlirValue scaled(struct solver *s, MlirValue bound, int64_t c,
                        int32_t rest) {
    struct ir_builder *b = s->b;
    if (!is_set(bound))
        return none;
    MlirValue least = ir_const_i32(b, (int32_t)(INT32_MIN / c));
    MlirValue most = ir_const_i32(b, (int32_t)(INT32_MAX / c));
    MlirValue inside = ir_minsi(b, ir_maxsi(b, bound, least), most);
    MlirValue product = ir_muli(b, inside, ir_const_i32(b, (int32_t)c));
    MlirValue sum = abs_add_saturating(b, product, ir_const_i32(b, rest));
    MlirValue above = ir_cmpi(b, IR_SGT, bound, most),
              below = ir_cmpi(b, IR_SLT, bound, least);
    sum = ir_select(b, above, ir_const_i32(b, INT32_MAX), sum);
    return ir_select(b, below, ir_const_i32(b, INT32_MIN), sum);
}

/* bound*c + rest for a c > 0 that only run time knows.  Where the product
 * leaves i32 (or comes near its ends; f32 rounds by 2^-22 at most in all) a
 * bound on the safe side. */
static MlirValue scaled_by(struct solver *s, MlirValue bound, MlirValue c,
                           MlirValue rest, bool is_lower) {
    enum { SAFE = 2147470000 };
    struct ir_builder *b = s->b;
    MlirType f32 = ir_type_f32(b->context);
    if (!is_set(bound))
        return none;
    MlirValue size = ir_absf(b, ir_sitofp(b, bound, f32));
    MlirValue estimate = ir_mulf(b, size, ir_sitofp(b, c, f32));
    MlirValue large =
        ir_cmpf(b, IR_OGT, estimate, ir_const_f32(b, 2147480000.0f));
    MlirValue negative = ir_cmpi(b, IR_SLT, bound, ir_const_i32(b, 0));
    MlirValue end =
        ir_select(b, negative, ir_const_i32(b, is_lower ? INT32_MIN : -SAFE),
                  ir_const_i32(b, is_lower ? SAFE : INT32_MAX));
    MlirValue product = ir_select(b, large, end, ir_muli(b, bound, c));
    return abs_add_saturating(b, product, rest);
}

/* floor(x/y) in [lo, hi] for a divisor y that is the same for all pairs: no
 * range where it is not positive. */
static struct solution solve_quotient_by(struct solver *s, MlirOperation op,
                                         struct wanted wanted) {
    const struct mask_fact *divisor = fact_of(s, ir_operand(op, 1));
    struct ir_builder *b = s->b;
    if (divisor->on_kv || !abs_is_point(&divisor->value))
        return no_solution();
    MlirValue y = divisor->value.lo, zero = ir_const_i32(b, 0);
    MlirValue rest = ir_subi(b, y, ir_const_i32(b, 1));
    MlirValue positive = ir_cmpi(b, IR_SGT, y, zero);
    struct wanted w = {scaled_by(s, wanted.lo, y, zero, true),
                       scaled_by(s, wanted.hi, y, rest, false)};
    if (is_set(w.lo))
        w.lo = ir_select(b, positive, w.lo, ir_const_i32(b, INT32_MIN));
    if (is_set(w.hi))
        w.hi = ir_select(b, positive, w.hi, ir_const_i32(b, INT32_MAX));
    return solve(s, ir_operand(op, 0), w);
}

/* floor(x/c) in [lo, hi], c > 0: x in [lo*c, hi*c + c-1]. */
static struct solution solve_quotient(struct solver *s, MlirOperation op,
                                      struct wanted wanted) {
    int64_t c;
    bool is_shift = ir_is_op(op, "arith.shrsi");
    if (!ir_constant_int(ir_operand(op, 1), &c))
        return is_shift ? no_solution() : solve_quotient_by(s, op, wanted);
    if (is_shift)
        c = c >= 0 && c < 31 ? (int64_t)1 << c : 0;
    if (c <= 0)
        return no_solution();
    struct wanted w = {scaled(s, wanted.lo, c, 0),
                       scaled(s, wanted.hi, c, (int32_t)(c - 1))};
    return solve(s, ir_operand(op, 0), w);
}

/* min(x, y) >= lo bounds both; so does max(x, y) <= hi. */
static struct solution solve_extreme(struct solver *s, MlirOperation op,
                                     struct wanted wanted) {
    bool is_min = ir_is_op(op, "arith.minsi");
    struct wanted w = {is_min ? wanted.lo : none, is_min ? none : wanted.hi};
    MlirValue x = ir_operand(op, 0), y = ir_operand(op, 1);
    struct solution from_x =
        fact_of(s, x)->on_kv ? solve(s, x, w) : no_solution();
    struct solution from_y =
        fact_of(s, y)->on_kv ? solve(s, y, w) : no_solution();
    struct solution result = both(s, from_x, from_y, true, true);
    result.reached = false;
    return result;
}

/* |x| <= hi: x in [-hi, hi]. */
static struct solution solve_absolute(struct solver *s, MlirOperation op,
                                      struct wanted wanted) {
    if (!is_set(wanted.hi))
        return no_solution();
    MlirValue zero = ir_const_i32(s->b, 0);
    struct wanted w = {abs_sub_saturating(s->b, zero, wanted.hi), wanted.hi};
    struct solution result = solve(s, ir_operand(op, 0), w);
    result.reached &= !is_set(wanted.lo);
    return result;
}

/* ~x in [lo, hi]: x in [~hi, ~lo]. */
static struct solution solve_complement(struct solver *s, MlirOperation op,
                                        struct wanted wanted) {
    int64_t c;
    if (!ir_constant_int(ir_operand(op, 1), &c) || c != -1)
        return no_solution();
    MlirValue ones = ir_const_i32(s->b, -1);
    struct wanted w = {
        is_set(wanted.hi) ? ir_xori(s->b, wanted.hi, ones) : none,
        is_set(wanted.lo) ? ir_xori(s->b, wanted.lo, ones) : none};
    return solve(s, ir_operand(op, 0), w);
}

/* One step back through an op. */
static struct solution solve_op(struct solver *s, MlirOperation op,
                                struct wanted wanted) {
    if (ir_is_op(op, "arith.addi") || ir_is_op(op, "arith.subi"))
        return solve_sum(s, op, wanted, ir_is_op(op, "arith.addi"));
    if (ir_is_op(op, "arith.muli"))
        return solve_product(s, op, wanted);
    if (ir_is_op(op, "arith.floordivsi") || ir_is_op(op, "arith.shrsi"))
        return solve_quotient(s, op, wanted);
    if (ir_is_op(op, "arith.minsi") || ir_is_op(op, "arith.maxsi"))
        return solve_extreme(s, op, wanted);
    if (ir_is_op(op, "math.absi"))
        return solve_absolute(s, op, wanted);
    if (ir_is_op(op, "arith.xori"))
        return solve_complement(s, op, wanted);
    return no_solution();
}

/* Nothing where the forward interval is the type's range: the op may have
 * wrapped. */
static struct solution unless_wrapped(struct solver *s,
                                      const struct abs_value *value,
                                      struct solution solution) {
    struct ir_builder *b = s->b;
    if (!value->loose || (!is_set(solution.kv.lo) && !is_set(solution.kv.hi)))
        return solution;
    MlirValue least = ir_const_i32(b, INT32_MIN),
              most = ir_const_i32(b, INT32_MAX);
    MlirValue wrapped = ir_andi(b, ir_cmpi(b, IR_EQ, value->lo, least),
                                ir_cmpi(b, IR_EQ, value->hi, most));
    if (is_set(solution.kv.lo))
        solution.kv.lo = ir_select(b, wrapped, least, solution.kv.lo);
    if (is_set(solution.kv.hi))
        solution.kv.hi = ir_select(b, wrapped, most, solution.kv.hi);
    return solution;
}

/* Bounds on kv under which `value` can be within `wanted`. */
static struct solution solve(struct solver *s, MlirValue value,
                             struct wanted wanted) {
    const struct mask_fact *fact = fact_of(s, value);
    if (!fact->on_kv || fact->value.kind != ABS_I32 || s->steps++ > MAX_STEPS)
        return no_solution();
    if (mlirValueIsABlockArgument(value))
        return (struct solution){wanted, true};
    return unless_wrapped(s, &fact->value, solve_op(s, ir_def(value), wanted));
}

/* ---- Comparisons --------------------------------------------------------- */

static struct kv_range range_of(struct solver *s, MlirValue value,
                                bool negated);

/* A bool that is not taken apart: all keys, unless it holds for none. */
static struct kv_range leaf(struct solver *s, MlirValue value, bool negated,
                            bool dense) {
    const struct abs_value *abs = &fact_of(s, value)->value;
    return where(s, negated ? abs_not(s->b, abs->lo) : abs->hi, dense);
}

/* (x mod c) compared with something, for a c that every tile runs through: no
 * tile is without pairs. */
static bool is_dense_remainder(const struct solver *s, MlirValue value) {
    MlirValue x, y;
    int64_t c;
    MlirOperation bits = ir_def_op(value, "arith.andi");
    if (bits.ptr && ir_constant_int(ir_operand(bits, 1), &c) && c >= 0 &&
        (c & (c + 1)) == 0)
        return c < s->e->m->least_n && fact_of(s, ir_operand(bits, 0))->on_kv;
    return mask_is_floormod(value, &x, &y) && ir_constant_int(y, &c) && c > 0 &&
           c <= s->e->m->least_n && fact_of(s, x)->on_kv;
}

/* A solution cut to the keys there are. */
static struct kv_range to_range(struct solver *s, struct solution solution,
                                bool dense) {
    struct kv_range range = everything(s, dense);
    if (is_set(solution.kv.lo))
        range.lo = ir_maxsi(s->b, range.lo, solution.kv.lo), range.lower = true;
    if (is_set(solution.kv.hi))
        range.hi = ir_minsi(s->b, range.hi, solution.kv.hi), range.upper = true;
    return range;
}

/* x <= y (strict: x < y). */
static struct solution solve_order(struct solver *s, MlirValue x, MlirValue y,
                                   bool strict) {
    struct ir_builder *b = s->b;
    const struct mask_fact *fx = fact_of(s, x), *fy = fact_of(s, y);
    MlirValue one = ir_const_i32(b, 1), most = fy->value.hi,
              least = fx->value.lo;
    if (strict) {
        most = abs_sub_saturating(b, most, one);
        least = abs_add_saturating(b, least, one);
    }
    struct solution from_x = solve(s, x, (struct wanted){none, most});
    struct solution from_y = solve(s, y, (struct wanted){least, none});
    return both(s, from_x, from_y, fx->on_kv, fy->on_kv);
}

/* x == y: each lies in the other's interval. */
static struct solution solve_equal(struct solver *s, MlirValue x, MlirValue y) {
    const struct mask_fact *fx = fact_of(s, x), *fy = fact_of(s, y);
    struct solution from_x =
        solve(s, x, (struct wanted){fy->value.lo, fy->value.hi});
    struct solution from_y =
        solve(s, y, (struct wanted){fx->value.lo, fx->value.hi});
    return both(s, from_x, from_y, fx->on_kv, fy->on_kv);
}

/* The negation of a comparison is the opposite comparison. */
static struct kv_range range_of_comparison(struct solver *s, MlirValue value,
                                           bool negated) {
    static const enum ir_cmpi opposites[] = {
        [IR_EQ] = IR_NE,   [IR_NE] = IR_EQ,   [IR_SLT] = IR_SGE,
        [IR_SLE] = IR_SGT, [IR_SGT] = IR_SLE, [IR_SGE] = IR_SLT};
    MlirOperation op = ir_def(value);
    int64_t predicate = ir_int_attr(op, "predicate", -1);
    MlirValue x = ir_operand(op, 0), y = ir_operand(op, 1);
    bool dense = is_dense_remainder(s, x) || is_dense_remainder(s, y);
    if (predicate < 0 || predicate > IR_SGE ||
        fact_of(s, x)->value.kind != ABS_I32)
        return leaf(s, value, negated, false);
    struct solution solution = no_solution();
    switch ((int)(negated ? opposites[predicate] : (enum ir_cmpi)predicate)) {
    case IR_EQ:
        solution = solve_equal(s, x, y);
        break;
    case IR_SLT:
        solution = solve_order(s, x, y, true);
        break;
    case IR_SLE:
        solution = solve_order(s, x, y, false);
        break;
    case IR_SGT:
        solution = solve_order(s, y, x, true);
        break;
    case IR_SGE:
        solution = solve_order(s, y, x, false);
        break;
    default:
        break; /* IR_NE leaves no range */
    }
    if (!is_set(solution.kv.lo) && !is_set(solution.kv.hi))
        return leaf(s, value, negated, dense);
    return to_range(s, solution, solution.reached || dense);
}

/* ---- Logic --------------------------------------------------------------- */

/* c ? x : y is (c and x) or (not c and y). */
static struct kv_range range_of_select(struct solver *s, MlirOperation op,
                                       bool negated) {
    MlirValue condition = ir_operand(op, 0);
    struct kv_range taken = intersect(s, range_of(s, condition, false),
                                      range_of(s, ir_operand(op, 1), negated));
    struct kv_range other = intersect(s, range_of(s, condition, true),
                                      range_of(s, ir_operand(op, 2), negated));
    return hull(s, taken, other);
}

/* By De Morgan a negated "and" is an "or" of negations. */
static struct kv_range range_of_op(struct solver *s, MlirValue value,
                                   bool negated) {
    MlirOperation op = ir_def(value);
    s->b->location = mlirOperationGetLocation(op);
    bool is_and = ir_is_op(op, "arith.andi");
    int64_t c;
    if (is_and || ir_is_op(op, "arith.ori")) {
        struct kv_range x = range_of(s, ir_operand(op, 0), negated);
        struct kv_range y = range_of(s, ir_operand(op, 1), negated);
        return is_and != negated ? intersect(s, x, y) : hull(s, x, y);
    }
    if (ir_is_op(op, "arith.xori") && ir_constant_int(ir_operand(op, 1), &c) &&
        c == 1)
        return range_of(s, ir_operand(op, 0), !negated);
    if (ir_is_op(op, "arith.select"))
        return range_of_select(s, op, negated);
    if (ir_is_op(op, "arith.cmpi"))
        return range_of_comparison(s, value, negated);
    return leaf(s, value, negated, false);
}

/* Computed once per value and sign: shared subexpressions would blow up
 * otherwise. */
static struct kv_range range_of(struct solver *s, MlirValue value,
                                bool negated) {
    struct mask_fact *fact = mask_eval_fact(s->e, value);
    if (fact->has_range[negated])
        return fact->range[negated];
    /* The same for all keys: all of them or none. */
    struct kv_range range = !fact->on_kv || mlirValueIsABlockArgument(value)
                                ? leaf(s, value, negated, true)
                                : range_of_op(s, value, negated);
    fact->range[negated] = range;
    fact->has_range[negated] = true;
    return range;
}

struct kv_range mask_kv_range(struct mask_eval *e, MlirValue last) {
    struct solver solver = {.e = e, .b = e->b, .last = last};
    return range_of(&solver, ir_returned(e->m->mask), false);
}
