/* Constant arithmetic against the rules of the language. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>

#include "frontend/fold.h"

static int32_t i32(enum binary_op op, int32_t a, int32_t b) {
    uint32_t out;
    fold_binary(op, TYPE_I32, (uint32_t)a, (uint32_t)b, &out);
    return (int32_t)out;
}

static float f32(enum binary_op op, float a, float b) {
    uint32_t out;
    fold_binary(op, TYPE_F32, fold_bits(a), fold_bits(b), &out);
    return fold_float(out);
}

static float call(enum builtin builtin, float a, float b, float c) {
    uint32_t args[] = {fold_bits(a), fold_bits(b), fold_bits(c)}, out;
    fold_builtin(builtin, TYPE_F32, args, &out);
    return fold_float(out);
}

Test(fold, division_rounds_down) {
    cr_assert_eq(i32(BINARY_DIV, 7, 2), 3);
    cr_assert_eq(i32(BINARY_DIV, -7, 2), -4);
    cr_assert_eq(i32(BINARY_DIV, 7, -2), -4);
    cr_assert_eq(i32(BINARY_DIV, -7, -2), 3);
    cr_assert_eq(i32(BINARY_DIV, -8, 2), -4);
    for (int a = -20; a <= 20; a++)
        for (int b = -5; b <= 5; b++) {
            if (b == 0)
                continue;
            int quotient = i32(BINARY_DIV, a, b), rest = i32(BINARY_MOD, a, b);
            cr_assert_eq(quotient * b + rest, a);
            cr_assert(rest == 0 || (rest < 0) == (b < 0),
                      "the remainder has b's sign");
        }
}

Test(fold, overflow_is_told_and_wraps) {
    uint32_t out;
    cr_assert_eq(fold_binary(BINARY_ADD, TYPE_I32, INT32_MAX, 1, &out),
                 FOLD_OVERFLOW);
    cr_assert_eq((int32_t)out, INT32_MIN);
    cr_assert_eq(
        fold_binary(BINARY_DIV, TYPE_I32, 0x80000000u, 0xffffffffu, &out),
        FOLD_OVERFLOW);
    cr_assert_eq(fold_unary(UNARY_NEG, TYPE_I32, 0x80000000u, &out),
                 FOLD_OVERFLOW);
    cr_assert_eq(
        fold_binary(BINARY_MOD, TYPE_I32, 0x80000000u, 0xffffffffu, &out),
        FOLD_OK);
    cr_assert_eq(out, 0);
    cr_assert_eq(fold_binary(BINARY_DIV, TYPE_I32, 1, 0, &out),
                 FOLD_ZERO_DIVISOR);
}

Test(fold, shifts_take_the_count_modulo_32) {
    cr_assert_eq(i32(BINARY_SHL, 1, 33), 2);
    cr_assert_eq(i32(BINARY_SHL, 1, 31), INT32_MIN);
    cr_assert_eq(i32(BINARY_SHR, -8, 1), -4);
    cr_assert_eq(i32(BINARY_SHR, -8, -31), -4, "-31 modulo 32 is 1");
}

Test(fold, float_steps_round_in_f32) {
    cr_assert_eq(f32(BINARY_ADD, 16777216.0f, 1.0f), 16777216.0f);
    cr_assert_eq(f32(BINARY_MUL, 0.1f, 3.0f), 0.1f * 3.0f);
    cr_assert(isinf(f32(BINARY_DIV, 1.0f, 0.0f)));
    cr_assert_eq(f32(BINARY_MOD, -7.5f, 2.0f), 0.5f);
    cr_assert_eq(f32(BINARY_MOD, 7.5f, -2.0f), -0.5f);
    cr_assert_eq(fold_bits(NAN), 0x7fc00000u);
    cr_assert_eq(fold_bits(-NAN), 0x7fc00000u);
}

Test(fold, minimum_and_maximum_with_a_nan) {
    cr_assert_eq(call(BUILTIN_MIN, NAN, 2.0f, 0), 2.0f);
    cr_assert_eq(call(BUILTIN_MAX, 2.0f, NAN, 0), 2.0f);
    cr_assert(isnan(call(BUILTIN_MIN, NAN, NAN, 0)));
    cr_assert_eq(call(BUILTIN_CLAMP, 5.0f, 0.0f, 3.0f), 3.0f);
    cr_assert_eq(call(BUILTIN_CLAMP, 5.0f, 3.0f, 0.0f), 0.0f,
                 "min(max(5,3),0)");
}

Test(fold, functions) {
    cr_assert_eq(call(BUILTIN_ROUND, 2.5f, 0, 0), 2.0f);
    cr_assert_eq(call(BUILTIN_ROUND, 3.5f, 0, 0), 4.0f);
    cr_assert_eq(call(BUILTIN_FLOOR, -0.5f, 0, 0), -1.0f);
    cr_assert_eq(call(BUILTIN_CEIL, 0.5f, 0, 0), 1.0f);
    cr_assert_eq(call(BUILTIN_RSQRT, 4.0f, 0, 0), 0.5f);
    cr_assert_eq(call(BUILTIN_SIGMOID, 0.0f, 0, 0), 0.5f);
    cr_assert_eq(call(BUILTIN_POW, -2.0f, 3.0f, 0), -8.0f);
    cr_assert_eq(call(BUILTIN_POW, NAN, 0.0f, 0), 1.0f);
    cr_assert(isnan(call(BUILTIN_POW, -2.0f, 0.5f, 0)));
    cr_assert_eq(call(BUILTIN_EXP2, 3.0f, 0, 0), 8.0f);
    cr_assert_eq(call(BUILTIN_LOG2, 8.0f, 0, 0), 3.0f);
}

Test(fold, conversions_truncate_and_saturate) {
    cr_assert_eq((int32_t)fold_cast(TYPE_F32, TYPE_I32, fold_bits(-1.9f)), -1);
    cr_assert_eq((int32_t)fold_cast(TYPE_F32, TYPE_I32, fold_bits(3e9f)),
                 INT32_MAX);
    cr_assert_eq((int32_t)fold_cast(TYPE_F32, TYPE_I32, fold_bits(-INFINITY)),
                 INT32_MIN);
    cr_assert_eq(fold_cast(TYPE_F32, TYPE_I32, fold_bits(NAN)), 0);
    cr_assert_eq(fold_cast(TYPE_F32, TYPE_BOOL, fold_bits(NAN)), 1);
    cr_assert_eq(fold_cast(TYPE_F32, TYPE_BOOL, fold_bits(-0.0f)), 0);
    cr_assert_eq(fold_cast(TYPE_I32, TYPE_BOOL, 7), 1);
    cr_assert_eq(fold_float(fold_cast(TYPE_BOOL, TYPE_F32, 1)), 1.0f);
    cr_assert_eq(fold_float(fold_cast(TYPE_I32, TYPE_F32, 16777217)),
                 16777216.0f);
}
