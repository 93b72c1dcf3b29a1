/* Functions that no single instruction gives, within 2^-20 relative or 2^-22
 * absolute near a zero (language.md, Accuracy).
 *
 * ex2.approx and lg2.approx are good to about 2^-22 (PTX ISA); what is lost is
 * their argument's rounding, so arguments are carried in two parts. tanh.approx
 * (2^-11) and sin.approx (2^-20.5 absolute) are not good enough.  Polynomials
 * are interpolated at Chebyshev nodes in the square of the argument,
 * coefficients rounded to f32. */
#include "backends/ptx/isel.h"

/* Shorthands: temporaries of one element. */
#define op2(e, op, a, b) ptx_def((e)->is->kernel, (op), "f", (a), (b))
#define op1(e, op, a) ptx_def((e)->is->kernel, (op), "f", (a))
#define fma3(e, a, b, c) \
    ptx_def((e)->is->kernel, PTX_FMA_RN_F32, "f", (a), (b), (c))
#define mul2(e, a, b) op2(e, PTX_MUL_RN_F32, a, b)
#define add2(e, a, b) op2(e, PTX_ADD_RN_F32, a, b)
#define sub2(e, a, b) op2(e, PTX_SUB_RN_F32, a, b)
#define neg1(e, a) op1(e, PTX_NEG_F32, a)
#define pick(e, a, b, p) \
    ptx_def((e)->is->kernel, PTX_SELP_F32, "f", (a), (b), (p))
#define test(e, op, a, b) ptx_def((e)->is->kernel, (op), "p", (a), (b))

/* Constants as sums of f32: log2(e), pi/2, 2/ln 2. */
static const float log2e_high = 1.44269502f, log2e_low = 1.92596303e-8f;
static const float half_pi[3] = {1.57079637f, -4.37113883e-8f,
                                 -1.71512451e-15f};
static const float two_over_ln2_high = 2.88539004f,
                   two_over_ln2_low = 3.85192607e-8f;
static const float ln2 = 0.693147182f, two_over_pi = 0.636619747f;

typedef struct ptx_operand operand;

/* c[0] + u (c[1] + u (c[2] + ...)). */
static operand polynomial(const struct element *e, operand u, const float *c,
                          int count) {
    operand sum = ptx_f32(c[count - 1]);
    for (int k = count - 2; k >= 0; k--)
        sum = fma3(e, u, sum, ptx_f32(c[k]));
    return sum;
}

operand math_exp2(const struct element *e) {
    return element_out(e, PTX_EX2_APPROX_FTZ_F32, e->in[0]);
}

/* 2^x = 2^n p(x - n), n = x rounded down, p(0) = 1.  Adding 1.5·2^23 + 127
 * leaves 127 + n in the low bits; shifted, they are the f32 number 2^n, and 0
 * for n = -127, where x is clamped.  2^n is multiplied, not added to the
 * exponent of p as an integer: that would turn a NaN into a number. */
operand math_exp2_split(const struct element *e) {
    static const float magic = 12583039.0f;
    float c[IR_EXP2_COEFFICIENTS];
    struct ptx_kernel *k = e->is->kernel;
    if (e->unit < 0 || !ir_exp2_split_has_unit(e->op, e->unit))
        return math_exp2(e);
    int count = ir_exp2_split_coefficients(e->op, c);
    operand x = op2(e, PTX_MAX_NAN_F32, e->in[0], ptx_f32(-127));
    operand biased = op2(e, PTX_ADD_RM_F32, x, ptx_f32(magic));
    operand fraction = sub2(e, x, add2(e, biased, ptx_f32(-magic)));
    operand bits = ptx_def(k, PTX_MOV_B32_FROM_F32, "r", biased);
    operand exponent = ptx_def(k, PTX_SHL_B32, "r", bits, ptx_imm(23));
    operand power = ptx_def(k, PTX_MOV_F32_FROM_B32, "f", exponent);
    return element_out(e, PTX_MUL_RN_F32, polynomial(e, fraction, c, count),
                       power);
}

/* t = x log2(e) rounded; the result is what was lost. */
static operand exp_argument(const struct element *e, operand x,
                            operand *out_t) {
    *out_t = mul2(e, x, ptx_f32(log2e_high));
    operand lost = fma3(e, x, ptx_f32(log2e_high), neg1(e, *out_t));
    return fma3(e, x, ptx_f32(log2e_low), lost);
}

/* exp of scores: results below 2^-126 are 0.  The clamp keeps what is lost from
 * being inf - inf. */
static operand exp_fast(const struct element *e) {
    operand x = op2(e, PTX_MIN_NAN_F32, e->in[0], ptx_f32(128));
    operand t,
        lost = exp_argument(e, op2(e, PTX_MAX_NAN_F32, x, ptx_f32(-128)), &t);
    operand power = op1(e, PTX_EX2_APPROX_FTZ_F32, t);
    operand factor = fma3(e, lost, ptx_f32(ln2), ptx_f32(1));
    return element_out(e, PTX_MUL_RN_F32, power, factor);
}

/* exp(x) = 2^t (1 + ln2 d) with t = x log2(e) rounded and d what was lost. */
operand math_exp(const struct element *e) {
    if (e->contract)
        return exp_fast(e);
    operand x = isel_in_register(e->is, PTX_F, e->in[0], "f");
    operand t, lost = exp_argument(e, x, &t);
    operand power = op1(e, PTX_EX2_APPROX_F32, t);
    /* Where 2^t is 0 or infinite there is nothing to correct (inf - inf). */
    operand magnitude = op1(e, PTX_ABS_F32, t);
    operand finite = test(e, PTX_SETP_LT_F32, magnitude, ptx_f32(128.0f));
    lost = pick(e, lost, ptx_f32(0), finite);
    operand scaled = mul2(e, lost, ptx_f32(ln2));
    operand correction = mul2(e, power, scaled);
    operand corrected = add2(e, power, correction);
    return element_out(e, PTX_SELP_F32, corrected, power, finite);
}

operand math_log(const struct element *e) {
    operand power = op1(e, PTX_LG2_APPROX_F32, e->in[0]);
    return element_out(e, PTX_MUL_RN_F32, power, ptx_f32(ln2));
}

/* (1 - E) / (1 + E) with E = exp(-2 |x|), and the sign of x: 1 - E is exact
 * near 0, so that the absolute error there is half of E's.  Where contraction
 * is not allowed, small arguments get a polynomial of relative error 2^-22. */
operand math_tanh(const struct element *e) {
    static const float small[] = {-0.333332866f, 0.133284643f, -0.0531467460f,
                                  0.0172957517f};
    operand x = isel_in_register(e->is, PTX_F, e->in[0], "f");
    operand magnitude = op1(e, PTX_ABS_F32, x);
    operand t = mul2(e, magnitude, ptx_f32(-2 * log2e_high));
    operand power = op1(e, PTX_EX2_APPROX_FTZ_F32, t);
    operand sum = add2(e, power, ptx_f32(1));
    operand inverse = op1(e, PTX_RCP_APPROX_FTZ_F32, sum);
    operand size = mul2(e, sub2(e, ptx_f32(1), power), inverse);
    if (e->contract)
        return element_out(e, PTX_COPYSIGN_F32, x, size);
    operand large = op2(e, PTX_COPYSIGN_F32, x, size);
    operand u = mul2(e, x, x);
    operand cubic = mul2(e, u, x);
    operand near_zero = fma3(e, cubic, polynomial(e, u, small, 4), x);
    operand is_small = test(e, PTX_SETP_LT_F32, magnitude, ptx_f32(0.55f));
    return element_out(e, PTX_SELP_F32, near_zero, large, is_small);
}

/* sin(x + quadrant pi/2): Cody-Waite reduction to [-pi/4, pi/4] with pi/2 in
 * three parts (exact for |x| up to 2^15), then one of two polynomials. */
static operand sine(const struct element *e, int quadrant) {
    static const float sin_terms[] = {-0.166666642f, 0.00833270047f,
                                      -0.000195777218f};
    static const float cos_terms[] = {0.0416666642f, -0.00138882513f,
                                      2.45373413e-05f};
    struct ptx_kernel *k = e->is->kernel;
    operand x = isel_in_register(e->is, PTX_F, e->in[0], "f");
    operand turns = op1(e, PTX_CVT_EVEN_F32, mul2(e, x, ptx_f32(two_over_pi)));
    operand r = x;
    for (int part = 0; part < 3; part++)
        r = fma3(e, turns, ptx_f32(-half_pi[part]), r);
    operand q = ptx_def(k, PTX_CVT_S32_F32, "r", turns);
    if (quadrant != 0)
        q = ptx_def(k, PTX_ADD_S32, "r", q, ptx_imm(quadrant));
    operand u = mul2(e, r, r);
    operand cubic = mul2(e, u, r);
    operand sin_value = fma3(e, cubic, polynomial(e, u, sin_terms, 3), r);
    operand quartic = mul2(e, u, u);
    operand cos_value = fma3(e, u, ptx_f32(-0.5f), ptx_f32(1));
    cos_value = fma3(e, quartic, polynomial(e, u, cos_terms, 3), cos_value);
    operand odd_bit = ptx_def(k, PTX_AND_B32, "r", q, ptx_imm(1));
    operand odd = ptx_def(k, PTX_SETP_NE_S32, "p", odd_bit, ptx_imm(0));
    operand half_bit = ptx_def(k, PTX_AND_B32, "r", q, ptx_imm(2));
    operand half = ptx_def(k, PTX_SETP_NE_S32, "p", half_bit, ptx_imm(0));
    operand value = pick(e, cos_value, sin_value, odd);
    return element_out(e, PTX_SELP_F32, neg1(e, value), value, half);
}

operand math_sin(const struct element *e) {
    return sine(e, 0);
}
operand math_cos(const struct element *e) {
    return sine(e, 1);
}

static bool is_one(operand x) {
    return x.kind == PTX_OPERAND_F32 && x.value == ptx_f32(1).value;
}

/* Is the value 1 + exp(...), as of a sigmoid?  It is no subnormal number, so
 * that its reciprocal need not be scaled. */
static bool is_one_plus_exp(MlirValue value) {
    MlirOperation sum = ir_def_op(value, "arith.addf");
    double one;
    if (mlirOperationIsNull(sum))
        return false;
    for (size_t i = 0; i < 2; i++)
        if (ir_constant_float(ir_operand(sum, i), &one) && one == 1 &&
            !mlirOperationIsNull(ir_def_op(ir_operand(sum, 1 - i), "math.exp")))
            return true;
    return false;
}

operand math_divf(const struct element *e) {
    if (!e->contract)
        return element_out(e, PTX_DIV_RN_F32, e->in[0], e->in[1]);
    if (is_one(e->in[0]) && is_one_plus_exp(ir_operand(e->op, 1)))
        return element_out(e, PTX_RCP_APPROX_FTZ_F32, e->in[1]);
    if (is_one(e->in[0]))
        return element_out(e, PTX_RCP_APPROX_F32, e->in[1]);
    return element_out(e, PTX_DIV_FULL_F32, e->in[0], e->in[1]);
}

/* ---- pow ---------------------------------------------------------------- */

/* log2 of a positive finite number in two parts: exponent + 2/ln2
 * atanh(f/(2+f)), f = mantissa - 1 in [sqrt(1/2) - 1, sqrt(2) - 1]. */
static void log2_parts(const struct element *e, operand a, operand *out_high,
                       operand *out_low) {
    static const float terms[] = {0.961796939f, 0.576914310f, 0.426831663f};
    struct ptx_kernel *k = e->is->kernel;
    operand tiny = test(e, PTX_SETP_LT_F32, a, ptx_f32(1.17549435e-38f));
    operand scaled = mul2(e, a, ptx_f32(16777216.0f));
    a = pick(e, scaled, a, tiny);
    operand bias = pick(e, ptx_f32(-24), ptx_f32(0), tiny);
    operand bits = ptx_def(k, PTX_MOV_B32_FROM_F32, "r", a);
    operand above =
        ptx_def(k, PTX_SUB_S32, "r", bits, ptx_imm(0x3F3504F3)); /* sqrt(1/2) */
    operand exponent_bits =
        ptx_def(k, PTX_AND_B32, "r", above, ptx_imm(-8388608));
    operand mantissa_bits = ptx_def(k, PTX_SUB_S32, "r", bits, exponent_bits);
    operand m = ptx_def(k, PTX_MOV_F32_FROM_B32, "f", mantissa_bits);
    operand whole = ptx_def(k, PTX_SHR_S32, "r", exponent_bits, ptx_imm(23));
    operand exponent = add2(e, op1(e, PTX_CVT_F32_S32, whole), bias);

    operand f = add2(e, m, ptx_f32(-1));
    operand v = add2(e, f, ptx_f32(2));
    operand v_low = sub2(e, f, add2(e, v, ptx_f32(-2)));
    operand inverse = op1(e, PTX_RCP_APPROX_F32, v);
    operand s = mul2(e, f, inverse), minus_s = neg1(e, s);
    operand rest = fma3(e, minus_s, v_low, fma3(e, minus_s, v, f));
    operand s_low = mul2(e, rest, inverse);
    operand u = mul2(e, s, s);
    operand tail = mul2(e, mul2(e, s, u), polynomial(e, u, terms, 3));

    operand high = mul2(e, s, ptx_f32(two_over_ln2_high));
    operand low = fma3(e, s, ptx_f32(two_over_ln2_high), neg1(e, high));
    low = fma3(e, s, ptx_f32(two_over_ln2_low), low);
    low = fma3(e, s_low, ptx_f32(two_over_ln2_high), low);
    low = add2(e, low, tail);
    operand sum = add2(e, exponent, high);
    operand lost = sub2(e, high, sub2(e, sum, exponent));
    low = add2(e, lost, low);
    *out_high = add2(e, sum, low);
    *out_low = sub2(e, low, sub2(e, *out_high, sum));
}

/* |x|^y for 0 < |x| < inf and finite y. */
static operand power_of_magnitude(const struct element *e, operand magnitude,
                                  operand y) {
    operand high, low;
    log2_parts(e, magnitude, &high, &low);
    operand t = mul2(e, y, high);
    operand lost = fma3(e, y, low, fma3(e, y, high, neg1(e, t)));
    operand size = op1(e, PTX_ABS_F32, t);
    operand finite = test(e, PTX_SETP_LT_F32, size, ptx_f32(128.0f));
    operand power = op1(e, PTX_EX2_APPROX_F32, t);
    operand scaled = mul2(e, lost, ptx_f32(ln2));
    operand corrected = add2(e, power, mul2(e, power, scaled));
    return pick(e, corrected, power, finite);
}

/* C's powf, special cases included (C17 F.10.4.4). */
operand math_powf(const struct element *e) {
    const operand zero = ptx_f32(0), one = ptx_f32(1),
                  infinity = ptx_f32(__builtin_inff());
    const operand nan = ptx_f32_bits(0x7FC00000u);
    operand x = isel_in_register(e->is, PTX_F, e->in[0], "f");
    operand y = isel_in_register(e->is, PTX_F, e->in[1], "f");
    operand magnitude = op1(e, PTX_ABS_F32, x), size_y = op1(e, PTX_ABS_F32, y);
    operand value = power_of_magnitude(e, magnitude, y);

    /* 0, inf and |y| = inf: the result is 0 or inf. */
    operand y_positive = test(e, PTX_SETP_GT_F32, y, zero);
    operand y_negative = test(e, PTX_SETP_LT_F32, y, zero);
    operand is_zero = test(e, PTX_SETP_EQ_F32, magnitude, zero);
    operand is_inf = test(e, PTX_SETP_EQ_F32, magnitude, infinity);
    operand large = test(e, PTX_SETP_GT_F32, magnitude, one);
    operand y_inf = test(e, PTX_SETP_EQ_F32, size_y, infinity);
    value = pick(e, pick(e, zero, infinity, y_positive), value, is_zero);
    value = pick(e, pick(e, infinity, zero, y_positive), value, is_inf);
    operand grows = pick(e, pick(e, infinity, zero, y_positive),
                         pick(e, infinity, zero, y_negative), large);
    value = pick(e, grows, value, y_inf);

    /* A negative base needs a whole exponent; an odd one keeps the sign. */
    operand half = mul2(e, y, ptx_f32(0.5f));
    operand is_whole = test(e, PTX_SETP_EQ_F32, op1(e, PTX_CVT_EVEN_F32, y), y);
    operand half_whole =
        test(e, PTX_SETP_NE_F32, op1(e, PTX_CVT_EVEN_F32, half), half);
    operand odd = test(e, PTX_AND_PRED, is_whole, half_whole);
    operand signed_value =
        ptx_def(e->is->kernel, PTX_COPYSIGN_F32, "f", x, value);
    value = pick(e, signed_value, value, odd);
    operand negative = test(e, PTX_SETP_LT_F32, x, zero);
    operand finite_x = test(e, PTX_SETP_LT_F32, magnitude, infinity);
    operand undefined = test(e, PTX_AND_PRED, negative, finite_x);
    operand broken = ptx_def(e->is->kernel, PTX_NOT_PRED, "p", is_whole);
    undefined = test(e, PTX_AND_PRED, undefined, broken);
    value = pick(e, nan, value, undefined);

    operand unordered = test(e, PTX_SETP_NAN_F32, x, y);
    value = pick(e, nan, value, unordered);
    operand x_one = test(e, PTX_SETP_EQ_F32, x, one);
    operand y_zero = test(e, PTX_SETP_EQ_F32, y, zero);
    value = pick(e, one, value, x_one);
    operand unit = test(e, PTX_SETP_EQ_F32, magnitude, one);
    operand unit_inf = test(e, PTX_AND_PRED, unit, y_inf); /* (-1)^inf = 1 */
    value = pick(e, one, value, unit_inf);
    return element_out(e, PTX_SELP_F32, one, value, y_zero);
}
