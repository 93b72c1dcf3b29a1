/* Interval arithmetic on f32 as IR code: see interval.h.
 *
 * Sums, products and quotients are rounded to nearest, which is monotone, so
 * bounds computed in f32 hold for every pair.  Functions that the hardware
 * approximates are not known to be monotone: nothing is claimed of them. */
#include <math.h>
#include <string.h>

#include "ir/walk.h"
#include "passes/interval.h"

typedef const struct abs_value *abs_ref;

/* Values below this are finite, whatever a few thousand roundings add. */
static const double largest_float = 3e38;

MlirValue abs_nan(struct ir_builder *b, abs_ref value) {
    if (!mlirValueIsNull(value->nan))
        return value->nan;
    if (abs_is_point(value) && !(value->magnitude <= largest_float))
        return ir_cmpf(b, IR_UNO, value->lo, value->lo);
    return ir_const_bool(b, false);
}

/* i1: is an end infinite, so that inf - inf or 0 * inf may happen inside?
 * False at compile time for values of known size. */
static MlirValue infinite(struct ir_builder *b, abs_ref x) {
    if (x->magnitude <= largest_float)
        return ir_const_bool(b, false);
    MlirValue inf = ir_const_f32(b, INFINITY);
    MlirValue end = ir_maxnumf(b, ir_absf(b, x->lo), ir_absf(b, x->hi));
    return ir_cmpf(b, IR_OEQ, end, inf);
}

/* Bounds lo and hi, everything where `bad` or where a bound is NaN. */
static struct abs_value bounded(struct ir_builder *b, MlirValue lo,
                                MlirValue hi, MlirValue bad, double magnitude) {
    if (magnitude > largest_float) {
        magnitude = INFINITY;
        bad = abs_or(b, bad, ir_cmpf(b, IR_UNO, lo, hi));
    }
    if (abs_is_false(bad))
        return abs_floats(lo, hi, (MlirValue){NULL}, magnitude);
    lo = ir_select(b, bad, ir_const_f32(b, -INFINITY), lo);
    hi = ir_select(b, bad, ir_const_f32(b, INFINITY), hi);
    return abs_floats(lo, hi, bad, INFINITY);
}

/* i1: may x op y be NaN, or come from one? */
static MlirValue bad_inputs(struct ir_builder *b, abs_ref x, abs_ref y) {
    MlirValue nan = abs_or(b, abs_nan(b, x), abs_nan(b, y));
    return abs_or(b, nan, abs_or(b, infinite(b, x), infinite(b, y)));
}

static struct abs_value add(struct ir_builder *b, abs_ref x, abs_ref y) {
    return bounded(b, ir_addf(b, x->lo, y->lo), ir_addf(b, x->hi, y->hi),
                   bad_inputs(b, x, y), x->magnitude + y->magnitude);
}

static struct abs_value subtract(struct ir_builder *b, abs_ref x, abs_ref y) {
    return bounded(b, ir_subf(b, x->lo, y->hi), ir_subf(b, x->hi, y->lo),
                   bad_inputs(b, x, y), x->magnitude + y->magnitude);
}

/* The extremes of four corners, none of which is NaN where inputs are finite.
 */
static struct abs_value
corners(struct ir_builder *b,
        MlirValue (*combine)(struct ir_builder *, MlirValue, MlirValue),
        abs_ref x, abs_ref y, MlirValue bad, double magnitude) {
    MlirValue p = combine(b, x->lo, y->lo), q = combine(b, x->lo, y->hi);
    MlirValue r = combine(b, x->hi, y->lo), s = combine(b, x->hi, y->hi);
    MlirValue lo = ir_minnumf(b, ir_minnumf(b, p, q), ir_minnumf(b, r, s));
    MlirValue hi = ir_maxnumf(b, ir_maxnumf(b, p, q), ir_maxnumf(b, r, s));
    return bounded(b, lo, hi, bad, magnitude);
}

static struct abs_value multiply(struct ir_builder *b, abs_ref x, abs_ref y) {
    return corners(b, ir_mulf, x, y, bad_inputs(b, x, y),
                   x->magnitude * y->magnitude);
}

/* No claim where the divisor may be zero. */
static struct abs_value divide(struct ir_builder *b, abs_ref x, abs_ref y) {
    MlirValue zero = ir_const_f32(b, 0);
    MlirValue has_zero = ir_andi(b, ir_cmpf(b, IR_OLE, y->lo, zero),
                                 ir_cmpf(b, IR_OGE, y->hi, zero));
    return corners(b, ir_divf, x, y, abs_or(b, bad_inputs(b, x, y), has_zero),
                   INFINITY);
}

/* minnum and maxnum give the other operand for one NaN: the bounds of a value
 * that may be NaN are infinite, which covers that. */
static struct abs_value extreme(struct ir_builder *b, abs_ref x, abs_ref y,
                                bool is_min) {
    MlirValue nan = abs_and(b, abs_nan(b, x), abs_nan(b, y));
    MlirValue lo =
        is_min ? ir_minnumf(b, x->lo, y->lo) : ir_maxnumf(b, x->lo, y->lo);
    MlirValue hi =
        is_min ? ir_minnumf(b, x->hi, y->hi) : ir_maxnumf(b, x->hi, y->hi);
    /* Where x may be NaN and y is not, the result may be any value of y. */
    MlirValue x_nan = abs_nan(b, x), y_nan = abs_nan(b, y);
    if (is_min) {
        hi = abs_choose(b, x_nan, ir_maxnumf(b, hi, y->hi), hi);
        hi = abs_choose(b, y_nan, ir_maxnumf(b, hi, x->hi), hi);
    } else {
        lo = abs_choose(b, x_nan, ir_minnumf(b, lo, y->lo), lo);
        lo = abs_choose(b, y_nan, ir_minnumf(b, lo, x->lo), lo);
    }
    return bounded(b, lo, hi, nan, fmax(x->magnitude, y->magnitude));
}

/* |x|, from 0 where x has both signs. */
static struct abs_value absolute(struct ir_builder *b, abs_ref x) {
    MlirValue zero = ir_const_f32(b, 0);
    MlirValue lo = ir_maxnumf(b, zero, ir_maxnumf(b, x->lo, ir_negf(b, x->hi)));
    MlirValue hi = ir_maxnumf(b, ir_negf(b, x->lo), x->hi);
    return bounded(b, lo, hi, abs_nan(b, x), x->magnitude);
}

static struct abs_value negate(struct ir_builder *b, abs_ref x) {
    return bounded(b, ir_negf(b, x->hi), ir_negf(b, x->lo), abs_nan(b, x),
                   x->magnitude);
}

/* floor, ceil and rounding to even are exact and monotone. */
static struct abs_value round_by(struct ir_builder *b, abs_ref x,
                                 MlirValue (*round)(struct ir_builder *,
                                                    MlirValue)) {
    double magnitude =
        x->magnitude <= largest_float ? x->magnitude + 1 : INFINITY;
    return bounded(b, round(b, x->lo), round(b, x->hi), abs_nan(b, x),
                   magnitude);
}

/* Conversion rounds to nearest, which is monotone. */
static struct abs_value from_integer(struct ir_builder *b, abs_ref x,
                                     bool is_signed) {
    MlirType f32 = ir_type_f32(b->context);
    double magnitude = is_signed ? 2147483648.0 : 1;
    MlirValue lo =
        is_signed ? ir_sitofp(b, x->lo, f32) : ir_uitofp(b, x->lo, f32);
    MlirValue hi =
        is_signed ? ir_sitofp(b, x->hi, f32) : ir_uitofp(b, x->hi, f32);
    return abs_floats(lo, hi, (MlirValue){NULL}, magnitude);
}

/* ---- Comparisons --------------------------------------------------------- */

/* x < y and x <= y, false for NaN. */
static struct abs_value ordered(struct ir_builder *b, enum ir_cmpf predicate,
                                abs_ref x, abs_ref y) {
    MlirValue nan = abs_or(b, abs_nan(b, x), abs_nan(b, y));
    MlirValue all = ir_cmpf(b, predicate, x->hi, y->lo);
    return abs_bool(abs_and(b, all, abs_not(b, nan)),
                    ir_cmpf(b, predicate, x->lo, y->hi));
}

/* Like compare_equal on i32; NaN equals nothing. */
static struct abs_value equal(struct ir_builder *b, abs_ref x, abs_ref y) {
    MlirValue nan = abs_or(b, abs_nan(b, x), abs_nan(b, y));
    MlirValue some = ir_andi(b, ir_cmpf(b, IR_OLE, x->lo, y->hi),
                             ir_cmpf(b, IR_OLE, y->lo, x->hi));
    MlirValue all = ir_andi(b, ir_cmpf(b, IR_OEQ, x->lo, y->hi),
                            ir_cmpf(b, IR_OEQ, x->hi, y->lo));
    return abs_bool(abs_and(b, all, abs_not(b, nan)), some);
}

struct abs_value abs_compare_floats(struct ir_builder *b,
                                    enum ir_cmpf predicate, abs_ref x,
                                    abs_ref y) {
    struct abs_value result;
    bool negated = false;
    /* An unordered predicate is the negation of the opposite ordered one. */
    switch ((int)predicate) {
    case IR_UGEF:
        negated = true; /* fallthrough */
    case IR_OLT:
        result = ordered(b, IR_OLT, x, y);
        break;
    case IR_UGTF:
        negated = true; /* fallthrough */
    case IR_OLE:
        result = ordered(b, IR_OLE, x, y);
        break;
    case IR_ULEF:
        negated = true; /* fallthrough */
    case IR_OGT:
        result = ordered(b, IR_OLT, y, x);
        break;
    case IR_ULTF:
        negated = true; /* fallthrough */
    case IR_OGE:
        result = ordered(b, IR_OLE, y, x);
        break;
    case IR_UNE:
        negated = true; /* fallthrough */
    case IR_OEQ:
        result = equal(b, x, y);
        break;
    default:
        return abs_unknown(b, ir_type_i1(b->context));
    }
    if (!negated)
        return result;
    return abs_bool(abs_not(b, result.hi), abs_not(b, result.lo));
}

struct abs_value abs_apply_float(struct ir_builder *b, MlirOperation op,
                                 const char *name,
                                 const struct abs_value *operands,
                                 size_t count) {
    abs_ref x = &operands[0], y = count > 1 ? &operands[1] : x;
    if (strcmp(name, "arith.cmpf") == 0)
        return abs_compare_floats(
            b, (enum ir_cmpf)ir_int_attr(op, "predicate", 0), x, y);
    if (strcmp(name, "arith.addf") == 0)
        return add(b, x, y);
    if (strcmp(name, "arith.subf") == 0)
        return subtract(b, x, y);
    if (strcmp(name, "arith.mulf") == 0)
        return multiply(b, x, y);
    if (strcmp(name, "arith.divf") == 0)
        return divide(b, x, y);
    if (strcmp(name, "arith.minnumf") == 0 ||
        strcmp(name, "arith.maxnumf") == 0)
        return extreme(b, x, y, name[7] == 'i');
    if (strcmp(name, "arith.negf") == 0)
        return negate(b, x);
    if (strcmp(name, "math.absf") == 0)
        return absolute(b, x);
    if (strcmp(name, "math.floor") == 0)
        return round_by(b, x, ir_floor);
    if (strcmp(name, "math.ceil") == 0)
        return round_by(b, x, ir_ceil);
    if (strcmp(name, "math.roundeven") == 0)
        return round_by(b, x, ir_roundeven);
    if (strcmp(name, "arith.sitofp") == 0)
        return from_integer(b, x, true);
    if (strcmp(name, "arith.uitofp") == 0)
        return from_integer(b, x, false);
    return abs_unknown(b, mlirValueGetType(ir_result(op, 0)));
}
