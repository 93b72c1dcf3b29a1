/* f32 models, instruction by instruction, of what the back end emits for
 * attn.exp2_split and for tanh (backends/ptx/isel_math.c, passes/fast-math.c).
 */
#ifndef ATTN_TESTS_UNIT_MINIMAX_MODEL_H
#define ATTN_TESTS_UNIT_MINIMAX_MODEL_H

#include <math.h>
#include <stdint.h>

#include "passes/minimax.h"
#include "support/bits.h"

/* max.NaN; add.rm with 1.5·2^23 + 127, whose unit is 1: the sum rounded down is
 * the sum with x rounded down; the rest rounds to nearest. */
static inline float model_exp2(float x, const float *c, int count) {
    const float magic = 12583039.0f;
    float clamped = x < -127.0f ? -127.0f : x;
    float biased = floorf(clamped) + magic;
    float fraction = clamped - (biased - magic);
    float sum = c[count - 1];
    for (int k = count - 2; k >= 0; k--)
        sum = fmaf(fraction, sum, c[k]);
    return sum * float_of_bits(bits_of_float(biased) << 23);
}

/* The argument of ex2 for an exp of x, not clamped, and the factor that makes
 * up for its rounding. */
static inline float model_exp_exponent(float x) {
    return x * 1.44269502f;
}
static inline float model_exp_factor(float x) {
    float lost = fmaf(x, 1.44269502f, -model_exp_exponent(x));
    return fmaf(fmaf(x, 1.92596303e-8f, lost), 0.693147182f, 1.0f);
}

/* The coefficients of out·tanh(a·s) in s, as passes/fast-math.c has them
 * computed. */
enum { MODEL_TANH_COUNT = sizeof minimax_tanh / sizeof minimax_tanh[0] };
static inline void model_tanh_coefficients(float a, float out,
                                           float c[MODEL_TANH_COUNT]) {
    float factor = a * out, step = a * a;
    for (int k = 0; k < MODEL_TANH_COUNT; k++, factor *= step)
        c[k] = factor * minimax_tanh[k];
}

static inline float model_tanh_small(float s, const float *c) {
    float square = s * s, sum = c[MODEL_TANH_COUNT - 1];
    for (int k = MODEL_TANH_COUNT - 2; k >= 0; k--)
        sum = fmaf(square, sum, c[k]);
    return s * sum;
}

/* The argument of ex2 for a tanh of x. */
static inline float model_tanh_exponent(float x) {
    return fabsf(x) * (-2 * 1.44269502f);
}

/* tanh from 2^model_tanh_exponent(x), the MUFU's ex2 and rcp having these
 * relative errors. */
static inline float model_tanh_large(float x, double exact_power,
                                     double ex2_error, double rcp_error) {
    float power = (float)(exact_power * (1 + ex2_error));
    float sum = power + 1.0f;
    float inverse = (float)((1 / (double)sum) * (1 + rcp_error));
    return copysignf((1.0f - power) * inverse, x);
}

#endif
