/* f32 and f64 arithmetic and the special-function unit.
 *
 * Round to nearest even has vector loops; other roundings go lane by lane.
 * The approximate functions are computed more accurately than the ISA promises
 * (ex2: 2^-22.5 relative, lg2: 2^-22.6, tanh: 2^-11, sin and cos: 2^-20.9
 * absolute in [-pi, pi], rcp and rsqrt: 1 and 2 units in the last place).
 */
#include <math.h>

#include "emulator/exec.h"
#include "emulator/numeric.h"

#define F32_1 const union lane32 *a = src32(warp, inst, 0)
#define F32_2 \
    F32_1;    \
    const union lane32 *b = src32(warp, inst, 1)
#define F32_3 \
    F32_2;    \
    const union lane32 *c = src32(warp, inst, 2)

/* A handler of each kind: with subnormal numbers, and with .ftz. */
#define F32_HANDLERS(name, sources, plain, flushed)                           \
    LANE_HANDLER(name##_f32, 32, u, sources, canonical(bits_of_float(plain))) \
    LANE_HANDLER(name##_ftz_f32, 32, u, sources,                              \
                 canonical(flush(bits_of_float(flushed))))

#define FA float_of_bits(flush(a->u[l]))
#define FB float_of_bits(flush(b->u[l]))
#define FC float_of_bits(flush(c->u[l]))
F32_HANDLERS(add, F32_2, a->f[l] + b->f[l], FA + FB)
F32_HANDLERS(sub, F32_2, a->f[l] - b->f[l], FA - FB)
F32_HANDLERS(mul, F32_2, a->f[l] * b->f[l], (FA) * (FB))
F32_HANDLERS(fma, F32_3, __builtin_fmaf(a->f[l], b->f[l], c->f[l]),
             __builtin_fmaf(FA, FB, FC))

/* Any rounding, .ftz and .sat. */
static enum emu_step f32_general(struct emu_warp *warp,
                                 const struct emu_inst *inst, uint32_t active,
                                 char operation) {
    bool ftz = inst->mods & EMU_MOD_FTZ;
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint32_t in[3] = {0};
        for (int i = 0; i < inst->src_count && i < 3; i++)
            in[i] = ftz ? flush(src32(warp, inst, i)->u[l])
                        : src32(warp, inst, i)->u[l];
        uint32_t out = emu_f32_operation(operation, float_of_bits(in[0]),
                                         float_of_bits(in[1]),
                                         float_of_bits(in[2]), inst->rounding);
        out = ftz ? flush(out) : out;
        dst32(warp, inst, 0)->u[l] =
            inst->mods & EMU_MOD_SAT ? saturate(out) : out;
    }
    return EMU_STEP_NEXT;
}
#define F32_GENERAL(name, operation)                       \
    EXEC(name##_f32) {                                     \
        return f32_general(warp, inst, active, operation); \
    }
F32_GENERAL(add_any, '+')
F32_GENERAL(sub_any, '-')
F32_GENERAL(mul_any, '*')
F32_GENERAL(fma_any, 'f')
F32_GENERAL(div, '/')
F32_GENERAL(sqrt, 'q')

/* f64 has no vector loops: kernels hardly use it. */
static enum emu_step f64_general(struct emu_warp *warp,
                                 const struct emu_inst *inst, uint32_t active,
                                 char operation) {
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        double in[3] = {0};
        for (int i = 0; i < inst->src_count && i < 3; i++)
            in[i] = src64(warp, inst, i)->f[l];
        dst64(warp, inst, 0)->u[l] =
            emu_f64_operation(operation, in[0], in[1], in[2], inst->rounding);
    }
    return EMU_STEP_NEXT;
}
#define F64_GENERAL(name, operation)                       \
    EXEC(name##_f64) {                                     \
        return f64_general(warp, inst, active, operation); \
    }
F64_GENERAL(add, '+')
F64_GENERAL(sub, '-')
F64_GENERAL(mul, '*')
F64_GENERAL(fma, 'f')
F64_GENERAL(div, '/')
F64_GENERAL(sqrt, 'q')

/* One over a, which f32_general would take for the divisor's other operand. */
EXEC(rcp_f32) {
    bool ftz = inst->mods & EMU_MOD_FTZ;
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint32_t x = src32(warp, inst, 0)->u[l];
        uint32_t out = emu_f32_operation(
            '/', 1.0f, float_of_bits(ftz ? flush(x) : x), 0, inst->rounding);
        dst32(warp, inst, 0)->u[l] = ftz ? flush(out) : out;
    }
    return EMU_STEP_NEXT;
}

EXEC(rcp_f64) {
    for (int l = 0; l < EMU_LANES; l++)
        if (active >> l & 1)
            dst64(warp, inst, 0)->u[l] = emu_f64_operation(
                '/', 1.0, src64(warp, inst, 0)->f[l], 0, inst->rounding);
    return EMU_STEP_NEXT;
}

/* The f64 starting values that division and square root refine: the upper 32
 * bits of the result; .ftz is in the name of both. */
static inline uint64_t upper_half(double value) {
    return isnan(value) ? 0x7fffffff00000000u
                        : bits_of_double(value) & 0xffffffff00000000u;
}
static inline double flushed64(double x) {
    return fabs(x) < 0x1p-1022 ? copysign(0.0, x) : x;
}
#define F64_1 const union lane64 *a = src64(warp, inst, 0)
LANE_HANDLER(rcp_approx_f64, 64, u, F64_1,
             upper_half(flushed64(1.0 / flushed64(a->f[l]))))
LANE_HANDLER(rsqrt_approx_f64, 64, u, F64_1,
             upper_half(1.0 / sqrt(flushed64(a->f[l]))))

/* ---- sign, minimum, maximum -------------------------------------------- */

LANE_HANDLER(abs_f32, 32, u, F32_1, canonical(a->u[l] & 0x7fffffffu))
LANE_HANDLER(abs_ftz_f32, 32, u, F32_1, canonical(flush(a->u[l] & 0x7fffffffu)))
LANE_HANDLER(neg_f32, 32, u, F32_1, canonical(a->u[l] ^ 0x80000000u))
LANE_HANDLER(neg_ftz_f32, 32, u, F32_1, canonical(flush(a->u[l] ^ 0x80000000u)))
LANE_HANDLER(abs_f64, 64, u, F64_1, a->u[l] & 0x7fffffffffffffffu)
LANE_HANDLER(neg_f64, 64, u, F64_1, a->u[l] ^ 0x8000000000000000u)
LANE_HANDLER(copysign_f32, 32, u, F32_2,
             (a->u[l] & 0x80000000u) | (b->u[l] & 0x7fffffffu))
#define F64_2 \
    F64_1;    \
    const union lane64 *b = src64(warp, inst, 1)
LANE_HANDLER(copysign_f64, 64, u, F64_2,
             (a->u[l] & 0x8000000000000000u) | (b->u[l] & 0x7fffffffffffffffu))

/* The number wins against NaN; -0 is less than +0.  With .NaN, NaN wins. */
static inline uint32_t choose(uint32_t x, uint32_t y, bool x_wins,
                              uint32_t if_equal) {
    uint32_t result = float_of_bits(x) == float_of_bits(y) ? if_equal
                      : x_wins                             ? x
                                                           : y;
    result = (x & 0x7fffffffu) > 0x7f800000u ? y : result;
    result = (y & 0x7fffffffu) > 0x7f800000u ? x : result;
    return canonical(result);
}
static inline uint32_t min_f32(uint32_t x, uint32_t y) {
    return choose(x, y, float_of_bits(x) < float_of_bits(y), x | y);
}
static inline uint32_t max_f32(uint32_t x, uint32_t y) {
    return choose(x, y, float_of_bits(x) > float_of_bits(y), x & y);
}
/* The rule of .NaN. */
static inline uint32_t nan_wins(uint32_t x, uint32_t y, uint32_t result) {
    bool nan =
        (x & 0x7fffffffu) > 0x7f800000u || (y & 0x7fffffffu) > 0x7f800000u;
    return nan ? 0x7fffffffu : result;
}
LANE_HANDLER(min_f32, 32, u, F32_2, min_f32(a->u[l], b->u[l]))
LANE_HANDLER(max_f32, 32, u, F32_2, max_f32(a->u[l], b->u[l]))

/* .ftz, .NaN, .xorsign.abs and a third operand. */
static enum emu_step min_max_general(struct emu_warp *warp,
                                     const struct emu_inst *inst,
                                     uint32_t active, bool is_max) {
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint32_t result = src32(warp, inst, 0)->u[l];
        result = inst->mods & EMU_MOD_FTZ ? flush(result) : result;
        for (int i = 1; i < inst->src_count; i++) {
            uint32_t x = result, y = src32(warp, inst, i)->u[l];
            y = inst->mods & EMU_MOD_FTZ ? flush(y) : y;
            uint32_t sign = (x ^ y) & 0x80000000u;
            if (inst->mods & EMU_MOD_XORSIGN) {
                x &= 0x7fffffffu;
                y &= 0x7fffffffu;
            }
            result = is_max ? max_f32(x, y) : min_f32(x, y);
            result = inst->mods & EMU_MOD_NAN ? nan_wins(x, y, result)
                                              : canonical(result);
            if (inst->mods & EMU_MOD_XORSIGN)
                result = (result & 0x7fffffffu) | sign;
        }
        dst32(warp, inst, 0)->u[l] = result;
    }
    return EMU_STEP_NEXT;
}
EXEC(min_any_f32) {
    return min_max_general(warp, inst, active, false);
}
EXEC(max_any_f32) {
    return min_max_general(warp, inst, active, true);
}

/* As for f32: the number wins, and -0 is less than +0. */
static inline double min_max_f64(double x, double y, bool is_max) {
    if (isnan(x) || isnan(y))
        return isnan(x) ? y : x;
    if (x == y)
        return signbit(x) == is_max ? y : x;
    return (x < y) == is_max ? y : x;
}
LANE_HANDLER(min_f64, 64, f, F64_2, min_max_f64(a->f[l], b->f[l], false))
LANE_HANDLER(max_f64, 64, f, F64_2, min_max_f64(a->f[l], b->f[l], true))

/* ---- special functions ------------------------------------------------- */

/* 2^x for a float: Taylor series on [-1/2, 1/2] in double (relative error below
 * 2^-31), scaled by exponent arithmetic; the conversion rounds once. */
static inline float exp2_float(float x) {
    double wide = x > 200.0f ? 200.0 : x < -200.0f ? -200.0 : (double)x;
    double shifted = wide + 0x1.8p52;
    double f = wide - (shifted - 0x1.8p52);
    double p = 0x1.62c0223a5c822p-20;
    p = p * f + 0x1.ffcbfc588b0c5p-17;
    p = p * f + 0x1.430912f86c787p-13;
    p = p * f + 0x1.5d87fe78a6731p-10;
    p = p * f + 0x1.3b2ab6fba4e77p-7;
    p = p * f + 0x1.c6b08d704a0c0p-5;
    p = p * f + 0x1.ebfbdff82c58fp-3;
    p = p * f + 0x1.62e42fefa39efp-1;
    p = p * f + 1.0;
    uint64_t exponent = bits_of_double(shifted) << 52;
    float result = (float)double_of_bits(bits_of_double(p) + exponent);
    return x != x ? x : result;
}
F32_HANDLERS(ex2, F32_1, exp2_float(a->f[l]), exp2_float(FA))

#define SCALAR_FUNCTION(name, expression)    \
    static inline float name##_of(float x) { \
        return (float)(expression);          \
    }                                        \
    F32_HANDLERS(name, F32_1, name##_of(a->f[l]), name##_of(FA))
SCALAR_FUNCTION(lg2, log2((double)x))
SCALAR_FUNCTION(sin, sin((double)x))
SCALAR_FUNCTION(cos, cos((double)x))
SCALAR_FUNCTION(rcp_approx, 1.0f / x)
SCALAR_FUNCTION(rsqrt, 1.0 / sqrt((double)x))
SCALAR_FUNCTION(sqrt_approx, sqrtf(x))
LANE_HANDLER(tanh_f32, 32, u, F32_1,
             canonical(bits_of_float((float)tanh((double)a->f[l]))))

/* div.approx: divisors above 2^126 have a reciprocal that is flushed to
 * zero. */
static inline float divide_approx(float x, float y) {
    if (fabsf(y) > 0x1p126f && isfinite(y))
        return isinf(x) ? NAN : copysignf(0.0f, x) * copysignf(1.0f, y);
    return x / y;
}
F32_HANDLERS(div_approx, F32_2, divide_approx(a->f[l], b->f[l]),
             divide_approx(FA, FB))
F32_HANDLERS(div_full, F32_2, a->f[l] / b->f[l], FA / FB)

/* testp.op.f32: the class of a number, from its bits. */
static bool has_class(uint32_t bits, enum emu_op op) {
    uint32_t magnitude = bits & 0x7fffffffu;
    bool subnormal = magnitude < 0x00800000u && magnitude != 0;
    if (op == EMU_OP_finite)
        return magnitude < 0x7f800000u;
    if (op == EMU_OP_infinite)
        return magnitude == 0x7f800000u;
    if (op == EMU_OP_number)
        return magnitude <= 0x7f800000u;
    if (op == EMU_OP_notanumber)
        return magnitude > 0x7f800000u;
    return op == EMU_OP_subnormal ? subnormal
                                  : magnitude < 0x7f800000u && !subnormal;
}
EXEC(testp_f32) {
    uint32_t mask = 0;
    for (int l = 0; l < EMU_LANES; l++)
        mask |= (uint32_t)has_class(src32(warp, inst, 0)->u[l], inst->op) << l;
    set_predicate(warp, inst, 0, active, mask);
    return EMU_STEP_NEXT;
}
EXEC(testp_f64) {
    uint32_t mask = 0;
    for (int l = 0; l < EMU_LANES; l++) {
        double x = src64(warp, inst, 0)->f[l];
        bool subnormal = x != 0 && fabs(x) < 0x1p-1022;
        uint32_t like = isnan(x)    ? 0x7fc00000u
                        : isinf(x)  ? 0x7f800000u
                        : subnormal ? 1u
                                    : 0x3f800000u;
        mask |= (uint32_t)has_class(like, inst->op) << l;
    }
    set_predicate(warp, inst, 0, active, mask);
    return EMU_STEP_NEXT;
}
