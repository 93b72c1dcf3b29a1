/* Coefficients made by scripts/minimax.py, lowest power first.
 *
 * Errors are those of exact evaluation; what f32 arithmetic makes of them is
 * bounded for every input by tests/unit/test_minimax.c. */
#ifndef ATTN_PASSES_MINIMAX_H
#define ATTN_PASSES_MINIMAX_H

/* 2^f for 0 <= f <= 1, relative error 2^-13.51. */
static const float minimax_exp2_3[4] = {
    0x1.000000p+0f, 0x1.63e658p-1f, 0x1.d23794p-3f, 0x1.3baa9ap-4f};

/* 2^f for 0 <= f <= 1, relative error 2^-18.40. */
static const float minimax_exp2_4[5] = {
    0x1.000000p+0f, 0x1.62d6c6p-1f, 0x1.ee2454p-3f, 0x1.abf854p-5f,
    0x1.b7f768p-7f};

/* tanh x / x in powers of x^2 for |x| <= minimax_tanh_bound; error
 * 0.47 of max(2^-20 tanh x, 2^-22). */
static const float minimax_tanh[5] = {
    0x1.ffffc4p-1f, -0x1.55412cp-2f, 0x1.0f37eap-3f, -0x1.970fdap-5f,
    0x1.9e6096p-7f};
static const float minimax_tanh_bound = 0.75f;

#endif
