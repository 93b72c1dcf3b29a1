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

struct i32_case {
    enum binary_op op;
    int32_t a, b, expected;
};

Test(fold, i32_operators) {
    static const struct i32_case cases[] = {
        {BINARY_ADD, 3, -5, -2},      {BINARY_SUB, 3, -5, 8},
        {BINARY_MUL, -3, 5, -15},     {BINARY_AND, 12, 10, 8},
        {BINARY_OR, 12, 10, 14},      {BINARY_XOR, 12, 10, 6},
        {BINARY_AND, -1, 255, 255},   {BINARY_LT, -1, 0, 1},
        {BINARY_LT, 0, 0, 0},         {BINARY_LE, 0, 0, 1},
        {BINARY_LE, 1, 0, 0},         {BINARY_GT, 1, 0, 1},
        {BINARY_GT, -1, 1, 0},        {BINARY_GE, 1, 1, 1},
        {BINARY_GE, INT32_MIN, 0, 0}, {BINARY_EQ, 4, 4, 1},
        {BINARY_EQ, 4, 5, 0},         {BINARY_NE, 4, 5, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(i32(cases[i].op, cases[i].a, cases[i].b),
                     cases[i].expected, "case %zu", i);
}

struct f32_case {
    enum binary_op op;
    float a, b;
    uint32_t expected;
};

Test(fold, f32_comparisons_with_nan_are_false_but_for_ne) {
    static const struct f32_case cases[] = {
        {BINARY_LT, 1, 2, 1}, {BINARY_LT, NAN, 2, 0},
        {BINARY_LE, 2, 2, 1}, {BINARY_LE, 2, NAN, 0},
        {BINARY_GT, 3, 2, 1}, {BINARY_GT, NAN, 2, 0},
        {BINARY_GE, 2, 2, 1}, {BINARY_GE, NAN, 2, 0},
        {BINARY_EQ, 2, 2, 1}, {BINARY_EQ, 0, -0.0f, 1},
        {BINARY_NE, 2, 2, 0}, {BINARY_NE, 1, 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out;
        fold_binary(cases[i].op, TYPE_F32, fold_bits(cases[i].a),
                    fold_bits(cases[i].b), &out);
        cr_expect_eq(out, cases[i].expected, "case %zu", i);
    }
    uint32_t out, nan = fold_bits(NAN);
    fold_binary(BINARY_EQ, TYPE_F32, nan, nan, &out);
    cr_expect_eq(out, 0);
    fold_binary(BINARY_NE, TYPE_F32, nan, nan, &out);
    cr_expect_eq(out, 1);
    cr_expect_eq(f32(BINARY_SUB, 1.5f, 2.0f), -0.5f);
}

Test(fold, bool_operators) {
    static const enum binary_op ops[] = {
        BINARY_AND, BINARY_AND_THEN, BINARY_OR, BINARY_OR_ELSE,
        BINARY_XOR, BINARY_NE,       BINARY_EQ};
    static const uint32_t tables[] = {0x8, 0x8, 0xe, 0xe, 0x6, 0x6, 0x9};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (uint32_t pair = 0; pair < 4; pair++) {
            uint32_t out;
            fold_binary(ops[i], TYPE_BOOL, pair & 1, pair >> 1, &out);
            cr_expect_eq(out, tables[i] >> pair & 1, "operator %zu", i);
        }
    uint32_t out;
    fold_unary(UNARY_NOT, TYPE_BOOL, 1, &out);
    cr_expect_eq(out, 0);
    fold_unary(UNARY_BIT_NOT, TYPE_I32, 5, &out);
    cr_expect_eq((int32_t)out, -6);
}

Test(fold, i32_built_ins_stay_i32) {
    uint32_t args[] = {(uint32_t)-7, 3, 2}, out;
    fold_builtin(BUILTIN_ABS, TYPE_I32, args, &out);
    cr_expect_eq(out, 7);
    fold_builtin(BUILTIN_MIN, TYPE_I32, args, &out);
    cr_expect_eq((int32_t)out, -7);
    fold_builtin(BUILTIN_MAX, TYPE_I32, args, &out);
    cr_expect_eq(out, 3);
    fold_builtin(BUILTIN_CLAMP, TYPE_I32, args, &out);
    cr_expect_eq(out, 2, "min(max(-7, 3), 2)");
}

Test(fold, f32_functions_are_rounded_once) {
    static const enum builtin ids[] = {BUILTIN_EXP, BUILTIN_LOG, BUILTIN_TANH,
                                       BUILTIN_SIN, BUILTIN_COS, BUILTIN_ABS,
                                       BUILTIN_SQRT};
    double (*const functions[])(double) = {exp, log,  tanh, sin,
                                           cos, fabs, sqrt};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        for (float x = 0.1f; x < 20; x *= 1.7f)
            cr_expect_eq(call(ids[i], x, 0, 0), (float)functions[i](x));
    cr_expect(signbit(call(BUILTIN_MIN, 0.0f, -0.0f, 0)));
    cr_expect_not(signbit(call(BUILTIN_MAX, -0.0f, 0.0f, 0)));
}
