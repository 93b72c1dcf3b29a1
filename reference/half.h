/* f16 and bf16 as bit patterns: conversion to and from f32.
 *
 * Rounding is to nearest even; a double is rounded once, not through f32.  NaN
 * stays NaN (quiet), overflow gives infinity, f16 subnormals are kept.
 */
#ifndef ATTN_REFERENCE_HALF_H
#define ATTN_REFERENCE_HALF_H

#include <math.h>
#include <stdint.h>

#include "support/bits.h"
#include "support/kernel_info.h"

/* The f32 of a bf16 pattern; exact. */
static inline float float_of_bf16(uint16_t bits) {
    return float_of_bits((uint32_t)bits << 16);
}

/* The f32 of an f16 pattern; exact. */
static inline float float_of_f16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* `x` rounded to a binary format of `digits` significant bits whose smallest
 * normal number is 2^min_exponent and whose largest finite one is `largest`. */
static inline double round_to_format(double x, int digits, int min_exponent,
                                     double largest) {
    if (!isfinite(x) || x == 0)
        return x;
    int exponent;
    frexp(x, &exponent); /* |x| in [2^(exponent-1), 2^exponent) */
    int lowest = (exponent - 1 < min_exponent ? min_exponent : exponent - 1) -
                 (digits - 1);
    double rounded = ldexp(rint(ldexp(x, -lowest)), lowest);
    return fabs(rounded) > largest ? copysign(INFINITY, x) : rounded;
}

/* `x` rounded to a value of the type: SCALAR_F16, SCALAR_BF16 or SCALAR_F32. */
static inline double round_to_scalar(double x, enum scalar_type type) {
    if (type == SCALAR_F16)
        return round_to_format(x, 11, -14, 65504.0);
    if (type == SCALAR_BF16)
        return round_to_format(x, 8, -126, 0x1.fep127);
    return (double)(float)x;
}

/* The bf16 pattern nearest to `x`. */
static inline uint16_t bf16_of_float(float x) {
    uint32_t bits = bits_of_float(x);
    if (isnan(x))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The f16 pattern nearest to `x`. */
static inline uint16_t f16_of_float(float x) {
    uint16_t sign = (uint16_t)(bits_of_float(x) >> 16 & 0x8000);
    if (isnan(x))
        return sign | 0x7e00;
    double magnitude = fabs(round_to_format(x, 11, -14, 65504.0));
    if (isinf(magnitude))
        return sign | 0x7c00;
    if (magnitude < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)(magnitude * 0x1p24));
    int exponent;
    double fraction = frexp(magnitude, &exponent); /* in [1/2, 1) */
    return (uint16_t)(sign | ((exponent + 14) << 10) |
                      ((uint16_t)(fraction * 2048) & 0x3ff));
}

/* The pattern of a 16-bit type. */
static inline uint16_t half_of_float(float x, enum scalar_type type) {
    return type == SCALAR_F16 ? f16_of_float(x) : bf16_of_float(x);
}

static inline float float_of_half(uint16_t bits, enum scalar_type type) {
    return type == SCALAR_F16 ? float_of_f16(bits) : float_of_bf16(bits);
}

#endif
