/* Numbers of PTX: f16 and bf16, rounding modes, NaN rules.
 *
 * Results that are NaN are canonical (0x7fffffff, 0x7fff), as on the GPU.
 */
#ifndef ATTN_EMULATOR_NUMERIC_H
#define ATTN_EMULATOR_NUMERIC_H

#include <stdbool.h>
#include <stdint.h>

#include "emulator/program.h"
#include "support/bits.h"

/* Subnormal bits become a zero of the same sign. */
static inline uint32_t flush(uint32_t bits) {
    return bits & 0x7f800000u ? bits : bits & 0x80000000u;
}

static inline uint32_t canonical(uint32_t bits) {
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : bits;
}

/* To [0, 1]; NaN to 0. */
static inline uint32_t saturate(uint32_t bits) {
    float x = float_of_bits(bits);
    return x > 0.0f ? (x < 1.0f ? bits : 0x3f800000u) : 0;
}

static inline float f32_of_bf16(uint32_t bits) {
    return float_of_bits(bits << 16);
}

/* Exact; branchless so that loops over it vectorise: the exponent is moved with
 * a multiplication, which also normalises subnormal numbers. */
static inline float f32_of_f16(uint32_t bits) {
    uint32_t magnitude = (bits & 0x7fffu) << 13;
    float scaled =
        float_of_bits(magnitude) * float_of_bits(0x77800000u); /* 2^112 */
    uint32_t result = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u
                                               : bits_of_float(scaled);
    return float_of_bits(result | (bits & 0x8000u) << 16);
}

/* Round to nearest even, the common case; vectorises. */
static inline uint32_t bf16_of_f32(uint32_t bits) {
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded;
}

/* Round to nearest even, branchless: normal results by integer rounding,
 * subnormal ones by adding 0.5, whose unit in the last place is 2^-24. */
static inline uint32_t f16_of_f32(uint32_t bits) {
    uint32_t magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    uint32_t normal =
        (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    uint32_t subnormal =
        bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    uint32_t result = magnitude >= 0x47800000u ? 0x7c00u : finite;
    return magnitude > 0x7f800000u ? 0x7fffu : result | sign;
}

/* A narrow binary format: 5/10 for f16, 8/7 for bf16, 8/10 for tf32. */
struct float_format {
    int exponent_bits, mantissa_bits;
};

/* Rounds the exact value (or, with `sticky`, a value truncated toward zero
 * whose lost part is not zero) to the format; the bits, right-aligned. */
uint32_t emu_round_to_format(double value, struct float_format format,
                             enum emu_rounding rounding, bool sticky);

/* x + y with every lost bit or-ed into the last place, so that a second
 * rounding to a narrower format is right (round to odd). */
double emu_add_to_odd(double x, double y);

/* f32 operations in any rounding mode: '+', '-', '*', '/', 'f' (fma), 'q'
 * (sqrt). */
uint32_t emu_f32_operation(char operation, float x, float y, float z,
                           enum emu_rounding rounding);
/* The same in f64. */
uint64_t emu_f64_operation(char operation, double x, double y, double z,
                           enum emu_rounding rounding);

/* x rounded to an integral value. */
double emu_round_to_integral(double x, enum emu_rounding rounding);

/* 16-bit floats as float and back, for either type. */
static inline float half_to_float(uint32_t bits, enum emu_type type) {
    return type == EMU_TYPE_bf16 || type == EMU_TYPE_bf16x2
               ? f32_of_bf16(bits & 0xffff)
               : f32_of_f16(bits & 0xffff);
}

static inline struct float_format half_format(enum emu_type type) {
    return type == EMU_TYPE_bf16 || type == EMU_TYPE_bf16x2
               ? (struct float_format){8, 7}
               : (struct float_format){5, 10};
}

#endif
