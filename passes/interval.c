/* Interval arithmetic on i32 and bool as IR code: see interval.h. */
#include "passes/interval.h"

#include <math.h>
#include <mlir-c/BuiltinAttributes.h>
#include <string.h>

#include "ir/walk.h"

enum { FULL_WIDTH_BITS = 32 };
static const int64_t full_width = ((int64_t)1 << FULL_WIDTH_BITS) - 1;

/* ---- i1 with folding ----------------------------------------------------- */

bool abs_is_true(MlirValue x) {
    int64_t n;
    return ir_constant_int(x, &n) && n != 0;
}

bool abs_is_false(MlirValue x) {
    int64_t n;
    return ir_constant_int(x, &n) && n == 0;
}

MlirValue abs_and(struct ir_builder *b, MlirValue x, MlirValue y) {
    if (abs_is_true(x) || abs_is_false(y) || mlirValueEqual(x, y))
        return y;
    if (abs_is_true(y) || abs_is_false(x))
        return x;
    return ir_andi(b, x, y);
}

MlirValue abs_or(struct ir_builder *b, MlirValue x, MlirValue y) {
    if (abs_is_false(x) || abs_is_true(y) || mlirValueEqual(x, y))
        return y;
    if (abs_is_false(y) || abs_is_true(x))
        return x;
    return ir_ori(b, x, y);
}

MlirValue abs_not(struct ir_builder *b, MlirValue x) {
    int64_t n;
    return ir_constant_int(x, &n) ? ir_const_bool(b, n == 0) : ir_not(b, x);
}

MlirValue abs_choose(struct ir_builder *b, MlirValue condition, MlirValue x,
                     MlirValue y) {
    if (abs_is_true(condition) || mlirValueEqual(x, y))
        return x;
    return abs_is_false(condition) ? y : ir_select(b, condition, x, y);
}

/* ---- Values -------------------------------------------------------------- */

struct abs_value abs_range(MlirValue lo, MlirValue hi, int64_t min,
                           int64_t max) {
    return (struct abs_value){.kind = ABS_I32,
                              .lo = lo,
                              .hi = hi,
                              .min = min,
                              .max = max,
                              .width = mlirValueEqual(lo, hi) ? 0 : max - min,
                              .align = 1};
}

static int64_t magnitude_of(int64_t n) {
    return n == 0  ? (int64_t)1 << 31
           : n < 0 ? -n
                   : n; /* 0 is a multiple of everything */
}

struct abs_value abs_point(MlirValue value) {
    MlirType type = mlirValueGetType(value);
    struct abs_value result = {.kind = ABS_NONE, .lo = value, .hi = value};
    if (ir_is_memref(type))
        return result;
    if (ir_is_bool(type)) {
        result.kind = ABS_BOOL;
    } else if (ir_is_i32(type)) {
        int64_t n;
        result = abs_range(value, value, INT32_MIN, INT32_MAX);
        if (ir_constant_int(value, &n)) {
            result.min = result.max = n;
            result.align = magnitude_of(n);
        }
    } else if (ir_is_f32(type)) {
        double x;
        result.kind = ABS_F32;
        result.magnitude =
            ir_constant_float(value, &x) && isfinite(x) ? fabs(x) : INFINITY;
    }
    return result;
}

struct abs_value abs_bool(MlirValue all, MlirValue some) {
    return (struct abs_value){.kind = ABS_BOOL, .lo = all, .hi = some};
}

struct abs_value abs_floats(MlirValue lo, MlirValue hi, MlirValue nan,
                            double magnitude) {
    return (struct abs_value){.kind = ABS_F32,
                              .lo = lo,
                              .hi = hi,
                              .nan = nan,
                              .magnitude = magnitude};
}

struct abs_value abs_unknown(struct ir_builder *b, MlirType type) {
    if (ir_is_bool(type))
        return abs_bool(ir_const_bool(b, false), ir_const_bool(b, true));
    if (ir_is_f32(type))
        return abs_floats(ir_const_f32(b, -INFINITY), ir_const_f32(b, INFINITY),
                          ir_const_bool(b, true), INFINITY);
    return abs_range(ir_const_i32(b, INT32_MIN), ir_const_i32(b, INT32_MAX),
                     INT32_MIN, INT32_MAX);
}

bool abs_is_point(const struct abs_value *value) {
    return mlirValueEqual(value->lo, value->hi);
}

/* Every operand is the same for all pairs. */
static bool all_points(const struct abs_value *operands, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!abs_is_point(&operands[i]))
            return false;
    return true;
}

/* ---- i32: facts and wrapping -------------------------------------------- */

int64_t abs_gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

static bool fits(int64_t min, int64_t max) {
    return min >= INT32_MIN && max <= INT32_MAX;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Facts of a result whose exact bounds are [min, max]; all of i32 where that
 * wraps. */
static struct abs_value facts(int64_t min, int64_t max, int64_t width,
                              int64_t align, bool loose) {
    struct abs_value result = {.kind = ABS_I32,
                               .min = min,
                               .max = max,
                               .align = align,
                               .loose = loose};
    if (!fits(min, max))
        result.min = INT32_MIN, result.max = INT32_MAX, result.loose = true;
    result.width = smaller(width, result.loose ? full_width : max - min);
    return result;
}

/* Fills in the bounds: the type's range where `bad`, else lo and hi.  A width
 * of 0 that is certain makes it a point. */
static struct abs_value bounded(struct ir_builder *b, struct abs_value result,
                                MlirValue lo, MlirValue hi, MlirValue bad) {
    if (mlirValueIsNull(bad)) {
        result.lo = lo;
        result.hi = result.width == 0 && !result.loose ? lo : hi;
        return result;
    }
    result.lo = ir_select(b, bad, ir_const_i32(b, INT32_MIN), lo);
    result.hi = ir_select(b, bad, ir_const_i32(b, INT32_MAX), hi);
    return result;
}

/* A copy of the op as a point; what its facts say of wrapping does not matter,
 * since the copy wraps in the same way. */
static struct abs_value exact(struct ir_builder *b, MlirOperation op,
                              struct abs_value result,
                              const struct abs_value *operands, size_t count) {
    struct ir_map *map = ir_map_create(b->arena);
    for (size_t i = 0; i < count; i++)
        ir_map_set(map, ir_operand(op, i), operands[i].lo);
    result.lo = result.hi = ir_result(ir_clone(b, op, map), 0);
    result.width = 0;
    if (result.loose)
        result.align = 1;
    result.loose = false;
    return result;
}

/* i1: did sum = x + y (difference = x - y) wrap? */
static MlirValue sum_wraps(struct ir_builder *b, MlirValue x, MlirValue y,
                           MlirValue sum) {
    MlirValue signs = ir_andi(b, ir_xori(b, x, sum), ir_xori(b, y, sum));
    return ir_cmpi(b, IR_SLT, signs, ir_const_i32(b, 0));
}

static MlirValue difference_wraps(struct ir_builder *b, MlirValue x,
                                  MlirValue y, MlirValue difference) {
    MlirValue signs = ir_andi(b, ir_xori(b, x, y), ir_xori(b, x, difference));
    return ir_cmpi(b, IR_SLT, signs, ir_const_i32(b, 0));
}

/* x + c by a constant: x is brought to where the sum fits, which makes it the
 * nearest i32. */
static MlirValue add_constant(struct ir_builder *b, MlirValue x, int64_t c) {
    int64_t end = (c < 0 ? (int64_t)INT32_MIN : (int64_t)INT32_MAX) - c, known;
    if (ir_constant_int(x, &known)) {
        bool past = c < 0 ? known < end : known > end;
        return ir_const_i32(b, (int32_t)((past ? end : known) + c));
    }
    MlirValue limit = ir_const_i32(b, (int32_t)end);
    x = c < 0 ? ir_maxsi(b, x, limit) : ir_minsi(b, x, limit);
    return ir_addi(b, x, ir_const_i32(b, (int32_t)c));
}

MlirValue abs_add_saturating(struct ir_builder *b, MlirValue x, MlirValue y) {
    int64_t c;
    if (ir_constant_int(y, &c))
        return add_constant(b, x, c);
    MlirValue sum = ir_addi(b, x, y);
    MlirValue end = ir_xori(b, ir_shrsi(b, x, ir_const_i32(b, 31)),
                            ir_const_i32(b, INT32_MAX));
    return ir_select(b, sum_wraps(b, x, y, sum), end, sum);
}

MlirValue abs_sub_saturating(struct ir_builder *b, MlirValue x, MlirValue y) {
    int64_t c;
    if (ir_constant_int(y, &c) && c > INT32_MIN)
        return add_constant(b, x, -c);
    MlirValue difference = ir_subi(b, x, y);
    MlirValue end = ir_xori(b, ir_shrsi(b, x, ir_const_i32(b, 31)),
                            ir_const_i32(b, INT32_MAX));
    return ir_select(b, difference_wraps(b, x, y, difference), end, difference);
}

/* ---- i32: transfer functions --------------------------------------------- */

typedef const struct abs_value *abs_ref;

/* [x.lo + y.lo, x.hi + y.hi]. */
static struct abs_value apply_add(struct ir_builder *b, MlirOperation op,
                                  abs_ref v) {
    abs_ref x = &v[0], y = &v[1];
    struct abs_value result =
        facts(x->min + y->min, x->max + y->max, x->width + y->width,
              abs_gcd(x->align, y->align), x->loose || y->loose);
    if (all_points(v, 2))
        return exact(b, op, result, v, 2);
    MlirValue lo = ir_addi(b, x->lo, y->lo), hi = ir_addi(b, x->hi, y->hi),
              bad = {NULL};
    if (!fits(x->min + y->min, x->max + y->max))
        bad = ir_ori(b, sum_wraps(b, x->lo, y->lo, lo),
                     sum_wraps(b, x->hi, y->hi, hi));
    return bounded(b, result, lo, hi, bad);
}

/* [x.lo - y.hi, x.hi - y.lo]. */
static struct abs_value apply_sub(struct ir_builder *b, MlirOperation op,
                                  abs_ref v) {
    abs_ref x = &v[0], y = &v[1];
    /* The lower bound uses y's upper one, about whose alignment nothing is
     * known. */
    int64_t align = y->width == 0 ? abs_gcd(x->align, y->align) : 1;
    struct abs_value result =
        facts(x->min - y->max, x->max - y->min, x->width + y->width, align,
              x->loose || y->loose);
    if (all_points(v, 2))
        return exact(b, op, result, v, 2);
    MlirValue lo = ir_subi(b, x->lo, y->hi), hi = ir_subi(b, x->hi, y->lo),
              bad = {NULL};
    if (!fits(x->min - y->max, x->max - y->min))
        bad = ir_ori(b, difference_wraps(b, x->lo, y->hi, lo),
                     difference_wraps(b, x->hi, y->lo, hi));
    return bounded(b, result, lo, hi, bad);
}

/* x*c: bounds swap for c < 0; wraps where x leaves [type / c]. */
static struct abs_value scale(struct ir_builder *b, abs_ref x, MlirValue factor,
                              int64_t c) {
    int64_t at_min = x->min * c, at_max = x->max * c, size = c < 0 ? -c : c;
    int64_t align = c < 0 ? 1 : c == 0 ? (int64_t)1 << 31 : x->align * c;
    if (align > (int64_t)1 << 31)
        align = c;
    struct abs_value result =
        facts(smaller(at_min, at_max), larger(at_min, at_max),
              smaller(x->width, full_width) * size, align, x->loose);
    MlirValue first = ir_muli(b, x->lo, factor),
              last = ir_muli(b, x->hi, factor), bad = {NULL};
    if (!fits(smaller(at_min, at_max), larger(at_min, at_max))) {
        /* Toward zero is inside on both sides; size >= 2 here. */
        MlirValue least =
            ir_const_i32(b, (int32_t)(-(int64_t)INT32_MAX / size));
        MlirValue most = ir_const_i32(b, (int32_t)(INT32_MAX / size));
        bad = ir_ori(b, ir_cmpi(b, IR_SLT, x->lo, least),
                     ir_cmpi(b, IR_SGT, x->hi, most));
    }
    return c < 0 ? bounded(b, result, last, first, bad)
                 : bounded(b, result, first, last, bad);
}

/* The larger magnitude of an interval's ends, as f32 (2^31 for the lowest). */
static MlirValue float_magnitude(struct ir_builder *b, abs_ref x) {
    MlirType f32 = ir_type_f32(b->context);
    return ir_maxnumf(b, ir_absf(b, ir_sitofp(b, x->lo, f32)),
                      ir_absf(b, ir_sitofp(b, x->hi, f32)));
}

/* The extremes of a function that is monotone in each operand by itself. */
static void
corners(struct ir_builder *b,
        MlirValue (*combine)(struct ir_builder *, MlirValue, MlirValue),
        abs_ref x, abs_ref y, MlirValue *out_lo, MlirValue *out_hi) {
    MlirValue p = combine(b, x->lo, y->lo), q = combine(b, x->hi, y->lo);
    *out_lo = ir_minsi(b, p, q);
    *out_hi = ir_maxsi(b, p, q);
    if (abs_is_point(y))
        return;
    MlirValue r = combine(b, x->lo, y->hi), s = combine(b, x->hi, y->hi);
    *out_lo = ir_minsi(b, *out_lo, ir_minsi(b, r, s));
    *out_hi = ir_maxsi(b, *out_hi, ir_maxsi(b, r, s));
}

/* By a constant: scale.  Else the extremes of the four corners. */
static struct abs_value apply_mul(struct ir_builder *b, MlirOperation op,
                                  abs_ref v) {
    abs_ref x = &v[0], y = &v[1];
    int64_t c;
    int64_t ends[4] = {x->min * y->min, x->min * y->max, x->max * y->min,
                       x->max * y->max};
    int64_t min = smaller(smaller(ends[0], ends[1]), smaller(ends[2], ends[3]));
    int64_t max = larger(larger(ends[0], ends[1]), larger(ends[2], ends[3]));
    if (all_points(v, 2))
        return exact(b, op, facts(min, max, 0, 1, false), v, 2);
    if (ir_constant_int(x->lo, &c) && abs_is_point(x))
        return scale(b, y, x->lo, c);
    if (ir_constant_int(y->lo, &c) && abs_is_point(y))
        return scale(b, x, y->lo, c);
    /* No static width; where the product of magnitudes may leave i32 (f32
     * rounds by 3 * 2^-24 at most), the result is everything. */
    struct abs_value result = facts(min, max, full_width, 1, false);
    MlirValue lo, hi, bad = {NULL};
    if (abs_is_point(x))
        corners(b, ir_muli, y, x, &lo, &hi);
    else
        corners(b, ir_muli, x, y, &lo, &hi);
    if (!fits(min, max)) {
        MlirValue product =
            ir_mulf(b, float_magnitude(b, x), float_magnitude(b, y));
        bad = ir_cmpf(b, IR_OGT, product, ir_const_f32(b, 2147480000.0f));
    }
    return bounded(b, result, lo, hi, bad);
}

/* At compile time; y is not 0. */
static int64_t floor_div(int64_t x, int64_t y) {
    int64_t quotient = x / y;
    return quotient - (x % y != 0 && (x % y < 0) != (y < 0));
}

/* floor(end / c) for an end of x and a constant c > 0; a shift where c is a
 * power of two, without a sign where x is not negative. */
static MlirValue floor_div_const(struct ir_builder *b, abs_ref x, MlirValue end,
                                 int64_t c) {
    if ((c & (c - 1)) == 0)
        return ir_shrsi(
            b, end, ir_const_i32(b, __builtin_ctzll((unsigned long long)c)));
    MlirValue divisor = ir_const_i32(b, (int32_t)c);
    return x->min >= 0 && !x->loose ? ir_divui(b, end, divisor)
                                    : ir_floordivsi(b, end, divisor);
}

/* Floor division by a constant c > 0: monotone.  lo mod c is a multiple of g =
 * gcd(align, c), so at most c - g, which limits how many multiples of c a tile
 * crosses. */
static struct abs_value divide(struct ir_builder *b, abs_ref x, int64_t c) {
    int64_t width = (c - abs_gcd(x->align, c) + x->width) / c;
    struct abs_value result =
        facts(floor_div(x->min, c), floor_div(x->max, c), width,
              x->align % c == 0 ? x->align / c : 1, x->loose);
    MlirValue lo = floor_div_const(b, x, x->lo, c);
    if (width == 0 && !x->loose)
        return bounded(b, result, lo, lo, (MlirValue){NULL});
    return bounded(b, result, lo, floor_div_const(b, x, x->hi, c),
                   (MlirValue){NULL});
}

/* By a constant: divide.  Else corners, which needs a divisor of one sign. */
static struct abs_value apply_floordiv(struct ir_builder *b, MlirOperation op,
                                       abs_ref v) {
    abs_ref x = &v[0], y = &v[1];
    int64_t c;
    bool constant = ir_constant_int(y->lo, &c) && abs_is_point(y);
    if (all_points(v, 2)) {
        struct abs_value result = facts(INT32_MIN, INT32_MAX, 0, 1, false);
        if (constant && c > 0)
            result = facts(floor_div(x->min, c), floor_div(x->max, c), 0,
                           x->align % c == 0 ? x->align / c : 1, false);
        return exact(b, op, result, v, 2);
    }
    if (constant && c > 0)
        return divide(b, x, c);
    /* Any divisor that is positive, or below -1 so that nothing wraps: the
     * extremes are at corners.  Elsewhere everything; the division itself gets
     * a 1 there. */
    MlirValue positive = ir_cmpi(b, IR_SGT, y->lo, ir_const_i32(b, 0));
    MlirValue negative = ir_cmpi(b, IR_SLT, y->hi, ir_const_i32(b, -1));
    MlirValue good = ir_ori(b, positive, negative), one = ir_const_i32(b, 1);
    struct abs_value divisor = *y;
    divisor.lo = ir_select(b, good, y->lo, one);
    divisor.hi = abs_is_point(y) ? divisor.lo : ir_select(b, good, y->hi, one);
    MlirValue lo, hi;
    corners(b, ir_floordivsi, x, &divisor, &lo, &hi);
    return bounded(b, facts(INT32_MIN, INT32_MAX, full_width, 1, false), lo, hi,
                   abs_not(b, good));
}

/* The remainder repeats with y: exact ends while x stays between two multiples
 * of y, else all remainders of y's sign. */
struct abs_value abs_floormod(struct ir_builder *b, abs_ref x, abs_ref y) {
    MlirValue zero = ir_const_i32(b, 0), one = ir_const_i32(b, 1);
    if (!abs_is_point(y))
        return abs_unknown(b, ir_type_i32(b->context));
    int64_t c = 0;
    bool constant = ir_constant_int(y->lo, &c) && c > 0;
    MlirValue good =
        constant ? ir_const_bool(b, true) : ir_cmpi(b, IR_SGT, y->lo, zero);
    MlirValue divisor = abs_choose(b, good, y->lo, one);
    MlirValue first = constant ? floor_div_const(b, x, x->lo, c)
                               : ir_floordivsi(b, x->lo, divisor);
    MlirValue last = constant ? floor_div_const(b, x, x->hi, c)
                              : ir_floordivsi(b, x->hi, divisor);
    MlirValue same = ir_cmpi(b, IR_EQ, first, last);
    MlirValue lo = ir_subi(b, x->lo, ir_muli(b, first, divisor));
    MlirValue hi = ir_subi(b, x->hi, ir_muli(b, last, divisor));
    lo = ir_select(b, same, lo, zero);
    hi = ir_select(b, same, hi, ir_subi(b, divisor, one));
    struct abs_value result =
        constant ? facts(0, c - 1, c - 1, 1, false)
                 : facts(INT32_MIN, INT32_MAX, full_width, 1, false);
    return bounded(b, result, lo, hi,
                   constant ? (MlirValue){NULL} : abs_not(b, good));
}

/* x >> n for one n: floor division by 2^n, monotone.  The count is below 32. */
static struct abs_value apply_shrsi(struct ir_builder *b, MlirOperation op,
                                    abs_ref v) {
    int64_t n;
    if (all_points(v, 2))
        return exact(b, op, facts(INT32_MIN, INT32_MAX, 0, 1, false), v, 2);
    if (!abs_is_point(&v[1]))
        return abs_unknown(b, ir_type_i32(b->context));
    if (ir_constant_int(v[1].lo, &n) && n < 31)
        return divide(b, &v[0], (int64_t)1 << n);
    return bounded(b, facts(INT32_MIN, INT32_MAX, full_width, 1, false),
                   ir_shrsi(b, v[0].lo, v[1].lo), ir_shrsi(b, v[0].hi, v[1].lo),
                   (MlirValue){NULL});
}

/* A product with a power of two; 1 << 31 is negative and left alone. */
static struct abs_value apply_shli(struct ir_builder *b, MlirOperation op,
                                   abs_ref v) {
    int64_t n;
    if (all_points(v, 2))
        return exact(b, op, facts(INT32_MIN, INT32_MAX, 0, 1, false), v, 2);
    if (abs_is_point(&v[1]) && ir_constant_int(v[1].lo, &n) && n < 31)
        return scale(b, &v[0], ir_const_i32(b, (int32_t)1 << n),
                     (int64_t)1 << n);
    return abs_unknown(b, ir_type_i32(b->context));
}

/* Monotone in both; the width is that of the wider operand. */
static struct abs_value apply_minmax(struct ir_builder *b, MlirOperation op,
                                     abs_ref v) {
    bool is_min = ir_is_op(op, "arith.minsi");
    abs_ref x = &v[0], y = &v[1];
    int64_t min = is_min ? smaller(x->min, y->min) : larger(x->min, y->min);
    int64_t max = is_min ? smaller(x->max, y->max) : larger(x->max, y->max);
    struct abs_value result =
        facts(min, max, larger(x->width, y->width), abs_gcd(x->align, y->align),
              x->loose || y->loose);
    if (all_points(v, 2))
        return exact(b, op, result, v, 2);
    MlirValue lo =
        is_min ? ir_minsi(b, x->lo, y->lo) : ir_maxsi(b, x->lo, y->lo);
    MlirValue hi =
        is_min ? ir_minsi(b, x->hi, y->hi) : ir_maxsi(b, x->hi, y->hi);
    return bounded(b, result, lo, hi, (MlirValue){NULL});
}

/* |x| from 0 where x has both signs; |-2^31| wraps. */
static struct abs_value apply_absi(struct ir_builder *b, MlirOperation op,
                                   abs_ref v) {
    abs_ref x = &v[0];
    bool wraps = x->min == INT32_MIN;
    int64_t max = larger(-x->min, x->max);
    struct abs_value result =
        facts(wraps ? INT32_MIN : 0, wraps ? INT32_MAX : max, x->width, 1,
              x->loose || wraps);
    if (all_points(v, 1))
        return exact(b, op, result, v, 1);
    MlirValue zero = ir_const_i32(b, 0), bad = {NULL};
    MlirValue below = ir_subi(b, zero, x->hi), above = ir_subi(b, zero, x->lo);
    MlirValue lo = ir_maxsi(b, zero, ir_maxsi(b, x->lo, below));
    MlirValue hi = ir_maxsi(b, above, x->hi);
    if (wraps)
        bad = ir_cmpi(b, IR_EQ, x->lo, ir_const_i32(b, INT32_MIN));
    return bounded(b, result, lo, hi, bad);
}

/* & | ^: remainders and complements exactly, else what signs and sizes tell. */
static struct abs_value apply_bits(struct ir_builder *b, MlirOperation op,
                                   abs_ref v) {
    abs_ref x = &v[0], y = &v[1];
    MlirType i32 = ir_type_i32(b->context);
    MlirValue zero = ir_const_i32(b, 0), none = {NULL};
    bool is_and = ir_is_op(op, "arith.andi");
    int64_t c;
    if (all_points(v, 2))
        return exact(b, op, facts(INT32_MIN, INT32_MAX, 0, 1, false), v, 2);
    if (is_and && abs_is_point(y) && ir_constant_int(y->lo, &c) && c >= 0 &&
        c < INT32_MAX && (c & (c + 1)) == 0) {
        struct abs_value modulus = abs_point(ir_const_i32(b, (int32_t)c + 1));
        return abs_floormod(b, x, &modulus);
    }
    if (is_and && (x->min >= 0 || y->min >= 0)) {
        int64_t max = x->min < 0   ? y->max
                      : y->min < 0 ? x->max
                                   : smaller(x->max, y->max);
        MlirValue hi = x->min < 0   ? y->hi
                       : y->min < 0 ? x->hi
                                    : ir_minsi(b, x->hi, y->hi);
        return bounded(b, facts(0, max, max, 1, false), zero, hi, none);
    }
    if (ir_is_op(op, "arith.xori") && abs_is_point(y) &&
        ir_constant_int(y->lo, &c) && c == -1)
        return bounded(
            b, facts(-1 - x->max, -1 - x->min, x->width, 1, x->loose),
            ir_xori(b, x->hi, y->lo), ir_xori(b, x->lo, y->lo), none);
    if (!is_and && x->min >= 0 && y->min >= 0 && fits(0, x->max + y->max))
        return bounded(b, facts(0, x->max + y->max, x->max + y->max, 1, false),
                       zero, ir_addi(b, x->hi, y->hi), none);
    return abs_unknown(b, i32);
}

/* ---- Bool ---------------------------------------------------------------- */

/* and, or, xor of i1: "all" and "some" by themselves. */
static struct abs_value apply_logic(struct ir_builder *b, MlirOperation op,
                                    abs_ref v) {
    abs_ref x = &v[0], y = &v[1];
    if (all_points(v, 2))
        return exact(b, op, (struct abs_value){.kind = ABS_BOOL}, v, 2);
    if (ir_is_op(op, "arith.andi"))
        return abs_bool(abs_and(b, x->lo, y->lo), abs_and(b, x->hi, y->hi));
    if (ir_is_op(op, "arith.ori"))
        return abs_bool(abs_or(b, x->lo, y->lo), abs_or(b, x->hi, y->hi));
    /* xor: all where one is all and the other none. */
    MlirValue x_none = abs_not(b, x->hi), y_none = abs_not(b, y->hi);
    MlirValue all =
        abs_or(b, abs_and(b, x->lo, y_none), abs_and(b, x_none, y->lo));
    MlirValue none =
        abs_or(b, abs_and(b, x->lo, y->lo), abs_and(b, x_none, y_none));
    return abs_bool(all, abs_not(b, none));
}

static struct abs_value negated(struct ir_builder *b, struct abs_value x) {
    return abs_bool(abs_not(b, x.hi), abs_not(b, x.lo));
}

/* Some pair may be equal where the intervals meet; all are where both are one
 * number. */
static struct abs_value compare_equal(struct ir_builder *b, abs_ref x,
                                      abs_ref y) {
    MlirValue some = ir_andi(b, ir_cmpi(b, IR_SLE, x->lo, y->hi),
                             ir_cmpi(b, IR_SLE, y->lo, x->hi));
    MlirValue all = ir_andi(b, ir_cmpi(b, IR_EQ, x->lo, y->hi),
                            ir_cmpi(b, IR_EQ, x->hi, y->lo));
    return abs_bool(all, some);
}

/* "All" compares the worst ends, "some" the best ones. */
static struct abs_value apply_cmpi(struct ir_builder *b, MlirOperation op,
                                   abs_ref v) {
    abs_ref x = &v[0], y = &v[1];
    if (all_points(v, 2))
        return exact(b, op, (struct abs_value){.kind = ABS_BOOL}, v, 2);
    enum ir_cmpi predicate = (enum ir_cmpi)ir_int_attr(op, "predicate", 0);
    if (x->kind == ABS_BOOL) { /* == and != are negated xor and xor */
        MlirValue x_none = abs_not(b, x->hi), y_none = abs_not(b, y->hi);
        MlirValue same =
            abs_or(b, abs_and(b, x->lo, y->lo), abs_and(b, x_none, y_none));
        MlirValue other =
            abs_or(b, abs_and(b, x->lo, y_none), abs_and(b, x_none, y->lo));
        if (predicate == IR_EQ)
            return abs_bool(same, abs_not(b, other));
        return predicate == IR_NE ? abs_bool(other, abs_not(b, same))
                                  : abs_unknown(b, ir_type_i1(b->context));
    }
    if (predicate >= IR_ULT) { /* as signed where nothing is negative */
        if (x->min < 0 || y->min < 0)
            return abs_unknown(b, ir_type_i1(b->context));
        predicate = (enum ir_cmpi)((int)predicate - (int)IR_ULT + (int)IR_SLT);
    }
    switch ((int)predicate) {
    case IR_EQ:
        return compare_equal(b, x, y);
    case IR_NE:
        return negated(b, compare_equal(b, x, y));
    case IR_SLT:
    case IR_SLE:
        return abs_bool(ir_cmpi(b, predicate, x->hi, y->lo),
                        ir_cmpi(b, predicate, x->lo, y->hi));
    default:
        return abs_bool(ir_cmpi(b, predicate, x->lo, y->hi),
                        ir_cmpi(b, predicate, x->hi, y->lo));
    }
}

/* ---- Any kind ------------------------------------------------------------ */

struct abs_value abs_select(struct ir_builder *b, abs_ref condition, abs_ref x,
                            abs_ref y) {
    MlirValue all = condition->lo, none = abs_not(b, condition->hi);
    if (x->kind == ABS_BOOL) {
        MlirValue some = abs_or(b, abs_and(b, condition->hi, x->hi),
                                abs_and(b, abs_not(b, all), y->hi));
        return abs_bool(
            abs_and(b, abs_or(b, none, x->lo), abs_or(b, all, y->lo)), some);
    }
    bool is_float = x->kind == ABS_F32;
    MlirValue lo =
        is_float ? ir_minnumf(b, x->lo, y->lo) : ir_minsi(b, x->lo, y->lo);
    MlirValue hi =
        is_float ? ir_maxnumf(b, x->hi, y->hi) : ir_maxsi(b, x->hi, y->hi);
    lo = abs_choose(b, all, x->lo, abs_choose(b, none, y->lo, lo));
    hi = abs_choose(b, all, x->hi, abs_choose(b, none, y->hi, hi));
    if (!is_float)
        return abs_range(lo, hi, smaller(x->min, y->min),
                         larger(x->max, y->max));
    MlirValue x_nan = abs_nan(b, x), y_nan = abs_nan(b, y);
    MlirValue nan = abs_choose(
        b, all, x_nan, abs_choose(b, none, y_nan, abs_or(b, x_nan, y_nan)));
    /* A point that is NaN leaves no bound behind: everything, to be safe. */
    lo = abs_choose(b, nan, ir_const_f32(b, -INFINITY), lo);
    hi = abs_choose(b, nan, ir_const_f32(b, INFINITY), hi);
    return abs_floats(lo, hi, nan, fmax(x->magnitude, y->magnitude));
}

static struct abs_value apply_select(struct ir_builder *b, MlirOperation op,
                                     abs_ref v) {
    if (!all_points(v, 3))
        return abs_select(b, &v[0], &v[1], &v[2]);
    struct abs_value result = {
        .kind = v[1].kind,
        .min = smaller(v[1].min, v[2].min),
        .max = larger(v[1].max, v[2].max),
        .align = v[1].kind == ABS_I32 ? abs_gcd(v[1].align, v[2].align) : 1,
        .magnitude = fmax(v[1].magnitude, v[2].magnitude)};
    return exact(b, op, result, v, 3);
}

/* 0 or 1. */
static struct abs_value apply_extui(struct ir_builder *b, MlirOperation op,
                                    abs_ref v) {
    struct abs_value result = facts(0, 1, 1, 1, false);
    if (all_points(v, 1))
        return exact(b, op, result, v, 1);
    MlirType i32 = ir_type_i32(b->context);
    return bounded(b, result, ir_extui(b, v[0].lo, i32),
                   ir_extui(b, v[0].hi, i32), (MlirValue){NULL});
}

/* The hardware's conversion: toward zero, saturating. */
static struct abs_value apply_fptosi(struct ir_builder *b, MlirOperation op,
                                     abs_ref v) {
    struct abs_value result = facts(INT32_MIN, INT32_MAX, full_width, 1, false);
    if (all_points(v, 1))
        return exact(b, op, result, v, 1);
    MlirType i32 = ir_type_i32(b->context);
    /* Monotone and saturating; NaN is 0, and with NaN the bounds are infinite.
     */
    return bounded(b, result, ir_fptosi(b, v[0].lo, i32),
                   ir_fptosi(b, v[0].hi, i32), (MlirValue){NULL});
}

/* Ops on i32 and i1.  `bools`: the rule for i1 operands, where it differs. */
static const struct {
    const char *name;
    struct abs_value (*whole)(struct ir_builder *b, MlirOperation op,
                              abs_ref v);
    struct abs_value (*bools)(struct ir_builder *b, MlirOperation op,
                              abs_ref v);
} rules[] = {
    {"arith.addi", apply_add, NULL},
    {"arith.subi", apply_sub, NULL},
    {"arith.muli", apply_mul, NULL},
    {"arith.floordivsi", apply_floordiv, NULL},
    {"arith.shrsi", apply_shrsi, NULL},
    {"arith.shli", apply_shli, NULL},
    {"arith.minsi", apply_minmax, NULL},
    {"arith.maxsi", apply_minmax, NULL},
    {"math.absi", apply_absi, NULL},
    {"arith.andi", apply_bits, apply_logic},
    {"arith.ori", apply_bits, apply_logic},
    {"arith.xori", apply_bits, apply_logic},
    {"arith.cmpi", apply_cmpi, apply_cmpi},
    {"arith.extui", NULL, apply_extui},
};

struct abs_value abs_apply(struct ir_builder *b, MlirOperation op,
                           const struct abs_value *operands, size_t count) {
    const char *name = ir_op_name(op);
    MlirType type = mlirValueGetType(ir_result(op, 0));
    if (strcmp(name, "arith.select") == 0)
        return apply_select(b, op, operands);
    if (strcmp(name, "arith.fptosi") == 0)
        return apply_fptosi(b, op, operands);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (strcmp(name, rules[i].name) != 0)
            continue;
        if (operands[0].kind == ABS_I32 && rules[i].whole)
            return rules[i].whole(b, op, operands);
        if (operands[0].kind == ABS_BOOL && rules[i].bools)
            return rules[i].bools(b, op, operands);
    }
    if (all_points(operands, count)) {
        struct ir_map *map = ir_map_create(b->arena);
        for (size_t i = 0; i < count; i++)
            ir_map_set(map, ir_operand(op, i), operands[i].lo);
        struct abs_value result = abs_point(ir_result(ir_clone(b, op, map), 0));
        if (strcmp(name, "arith.sitofp") == 0 ||
            strcmp(name, "arith.uitofp") == 0)
            result.magnitude = 2147483648.0;
        return result;
    }
    if (ir_is_f32(type) || operands[0].kind == ABS_F32)
        return abs_apply_float(b, op, name, operands, count);
    return abs_unknown(b, type);
}
