/* The polynomials of passes/minimax.h in f32 arithmetic, for every input.
 *
 * The functions below are the instruction sequences of the back end, operation
 * by operation (test_ptx_math.c compares the bits); where the MUFU takes part,
 * its results are the exact ones times 1 +- the largest error that the PTX ISA
 * documents.  Builds with sanitizers check one input in 97. */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "passes/minimax.h"
#include "tests/unit/minimax_model.h"

#if defined(__SANITIZE_ADDRESS__)
enum { STEP = 97 };
#else
enum { STEP = 1 };
#endif

/* fmaf and floorf as one instruction: every x86-64 processor since 2013 has
 * them. */
#if defined(__x86_64__)
#define WITH_FMA __attribute__((target("fma")))
#else
#define WITH_FMA
#endif

/* ---- exp2
 * ----------------------------------------------------------------------- */

/* 2^x for doubles that are f32 numbers; near 0 by its series, exact to 2^-52.
 */
static double power_of_two(double x) {
    if (fabs(x) >= 0x1p-17)
        return exp2(x);
    double y = x * 0.69314718055994531;
    return 1 + y + y * y / 2 + y * y * y / 6;
}

struct exp2_worst {
    double degree_3, degree_4;
};

/* Largest relative errors over the f32 numbers with bits first to last. */
WITH_FMA static struct exp2_worst exp2_errors(uint32_t first, uint32_t last) {
    struct exp2_worst worst = {0, 0};
    for (uint64_t bits = first; bits <= last; bits += STEP) {
        float x = float_of_bits((uint32_t)bits);
        double scale = 1 / power_of_two((double)x);
        double error_3 =
            fabs((double)model_exp2(x, minimax_exp2_3, 4) * scale - 1);
        double error_4 =
            fabs((double)model_exp2(x, minimax_exp2_4, 5) * scale - 1);
        worst.degree_3 = error_3 > worst.degree_3 ? error_3 : worst.degree_3;
        worst.degree_4 = error_4 > worst.degree_4 ? error_4 : worst.degree_4;
    }
    return worst;
}

static void check_exp2(uint32_t first, uint32_t last) {
    struct exp2_worst worst = exp2_errors(first, last);
    cr_log_info("degree 3: 2^%.3f, degree 4: 2^%.3f", log2(worst.degree_3),
                log2(worst.degree_4));
    cr_assert(worst.degree_3 <= 0x1p-13, "degree 3: 2^%.3f",
              log2(worst.degree_3));
    cr_assert(worst.degree_4 <= 0x1p-18, "degree 4: 2^%.3f",
              log2(worst.degree_4));
    cr_assert(worst.degree_3 >= 0x1p-14, "degree 3: 2^%.3f",
              log2(worst.degree_3));
}

/* Every f32 from -126 to 8 (P of a rescale threshold of 8). */
Test(minimax, exp2_of_all_positive_inputs) {
    check_exp2(0, bits_of_float(8.0f));
}
Test(minimax, exp2_of_all_negative_inputs) {
    check_exp2(bits_of_float(-0.0f), bits_of_float(-126.0f));
}

/* Every f32 below -126, and the rest of the domain. */
WITH_FMA static uint32_t any_exp2_bits(uint32_t first, uint32_t last) {
    uint32_t any = 0;
    for (uint64_t bits = first; bits <= last; bits += STEP)
        any |= bits_of_float(
            model_exp2(float_of_bits((uint32_t)bits), minimax_exp2_3, 4));
    return any;
}
Test(minimax, exp2_is_zero_below_the_normal_range) {
    uint32_t first = bits_of_float(-126.0f) + 1u,
             last = bits_of_float(-INFINITY);
    cr_assert_eq(any_exp2_bits(first, last), 0);
    cr_assert(isnan(model_exp2(NAN, minimax_exp2_3, 4)));
    cr_assert(isnan(model_exp2(-NAN, minimax_exp2_4, 5)));
    for (int n = -126; n < 128; n++)
        cr_assert_eq(model_exp2((float)n, minimax_exp2_3, 4), ldexpf(1, n));
}

/* ---- tanh
 * ----------------------------------------------------------------------- */

/* To 2^-47 relative. */
static inline double tanh_exactly(double x) {
    double square = x * x;
    return fabs(x) < 0x1p-8
               ? x * (1 - square / 3 + square * square * (2 / 15.0))
               : tanh(x);
}

/* What the language allows (docs/language.md, built-ins). */
static inline double tanh_allowed(double exact) {
    double relative = fabs(exact) * 0x1p-20;
    return relative > 0x1p-22 ? relative : 0x1p-22;
}

/* Largest error of out·tanh(a·s) by the polynomial, for every f32 s up to its
 * limit, in units of what is allowed of tanh.  Where a·s is below 2^-24, tanh
 * and the polynomial are between 0 and a·s: 2^-24 apart at most. */
WITH_FMA static double worst_tanh_polynomial(float a, float out) {
    float c[MODEL_TANH_COUNT];
    double worst = 0, wide = (double)a, back = 1 / (double)out;
    uint64_t first = bits_of_float(0x1p-24f / a);
    model_tanh_coefficients(a, out, c);
    for (uint64_t bits = first; bits <= bits_of_float(minimax_tanh_bound / a);
         bits += STEP) {
        float s = float_of_bits((uint32_t)bits);
        double exact = tanh_exactly((double)s * wide);
        double error = fabs((double)model_tanh_small(s, c) * back - exact);
        double allowed = tanh_allowed(exact);
        worst = error > worst * allowed ? error / allowed : worst;
    }
    return worst;
}

static void check_tanh_polynomial(float a, float out) {
    double worst = worst_tanh_polynomial(a, out);
    cr_log_info("%.3f of the tolerance", worst);
    cr_assert(worst <= 0.8, "%.3f of the tolerance", worst);
}
Test(minimax, tanh_polynomial_of_all_inputs) {
    check_tanh_polynomial(1, 1);
}
/* Soft-caps of Grok 1 at D 128, Gemma 2 at D 256, and at the ends of a. */
Test(minimax, soft_caps_of_all_inputs) {
    check_tanh_polynomial(0.0883883461f / 30, 30);
    check_tanh_polynomial(0.0625f / 50, 50);
    check_tanh_polynomial(0x1.9p-13f, 700);
    check_tanh_polynomial(1000, 0.37f);
}
/* A factor so small that all but the first coefficients vanish. */
Test(minimax, large_caps_are_nearly_linear) {
    float c[MODEL_TANH_COUNT], a = 1e-7f, out = 1e7f;
    model_tanh_coefficients(a, out, c);
    for (float s = 0; s < 6144; s += 0.37f)
        cr_assert(fabs((double)model_tanh_small(s, c) -
                       tanh((double)s * (double)a) * (double)out) <=
                      (double)s * 0x1p-18,
                  "%g", (double)s);
}

/* Largest error of the form for all x among the f32 numbers with bits first to
 * last, the errors of ex2 (2^-22) and rcp (2^-23) being at their worst. */
WITH_FMA static double worst_tanh_quotient(uint32_t first, uint32_t last) {
    double worst = 0;
    for (uint64_t bits = first; bits <= last; bits += STEP) {
        float x = float_of_bits((uint32_t)bits);
        double power = power_of_two((double)model_tanh_exponent(x));
        double exact = tanh_exactly((double)x), allowed = tanh_allowed(exact);
        for (int corner = 0; corner < 4; corner++) {
            double ex2_error = corner & 1 ? 0x1p-22 : -0x1p-22;
            double rcp_error = corner & 2 ? 0x1p-23 : -0x1p-23;
            double value =
                (double)model_tanh_large(x, power, ex2_error, rcp_error);
            double error = fabs(value - exact);
            worst = error > worst * allowed ? error / allowed : worst;
        }
    }
    return worst;
}

/* Past 10 the result is 1 - 2 exp(-20) or more, whatever the errors are; below
 * 2^-27 the power rounds as at 2^-27. */
Test(minimax, tanh_quotient_of_all_inputs) {
    double worst =
        worst_tanh_quotient(bits_of_float(0x1p-28f), bits_of_float(10.0f));
    cr_assert(worst <= 1, "%.3f of the tolerance", worst);
    cr_log_info("%.3f of the tolerance", worst);
    cr_assert_eq(model_tanh_large(INFINITY, 0, 0, 0), 1);
    cr_assert_eq(model_tanh_large(-INFINITY, 0, 0, 0), -1);
}

/* ---- exp ----------------------------------------------------------------- */

/* Largest relative error of exp(x), the error of ex2 being at its worst. */
WITH_FMA static double worst_exp(uint32_t first, uint32_t last) {
    double worst = 0;
    for (uint64_t bits = first; bits <= last; bits += STEP) {
        float x = float_of_bits((uint32_t)bits);
        double power = power_of_two((double)model_exp_exponent(x));
        double scale = 1 / exp((double)x);
        float factor = model_exp_factor(x);
        for (int sign = -1; sign <= 1; sign += 2) {
            float value = (float)(power * (1 + sign * 0x1p-22)) * factor;
            double error = fabs((double)value * scale - 1);
            worst = error > worst ? error : worst;
        }
    }
    return worst;
}

/* Every f32 whose exp is a normal number; below 2^-26 ex2 and the factor are
 * those of 2^-26. */
Test(minimax, exp_of_all_positive_inputs) {
    double worst = worst_exp(bits_of_float(0x1p-26f), bits_of_float(88.7f));
    cr_assert(worst <= 0x1p-21, "2^%.3f", log2(worst));
}
Test(minimax, exp_of_all_negative_inputs) {
    double worst = worst_exp(bits_of_float(-0x1p-26f), bits_of_float(-87.3f));
    cr_assert(worst <= 0x1p-21, "2^%.3f", log2(worst));
}
