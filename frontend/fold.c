/* Constant arithmetic.  f32 results of functions are computed in fp64 and
 * rounded once; everything else is a single f32 or i32 operation. */
#include "frontend/fold.h"

#include <assert.h>
#include <math.h>

#include "support/bits.h"

float fold_float(uint32_t bits) {
    return float_of_bits(bits);
}

uint32_t fold_bits(float value) {
    if (isnan(value))
        return 0x7fc00000u;
    return bits_of_float(value);
}

/* Stores a wide result; tells whether it fits in i32. */
static enum fold_status store_i32(int64_t wide, uint32_t *out) {
    *out = (uint32_t)wide;
    return wide < INT32_MIN || wide > INT32_MAX ? FOLD_OVERFLOW : FOLD_OK;
}

/* The other results: whatever the 32 bits are. */
static enum fold_status store_bits(uint32_t bits, uint32_t *out) {
    *out = bits;
    return FOLD_OK;
}

/* Division of the language: toward minus infinity, as sizes and positions want
 * it; C truncates. */
static int64_t floor_div(int64_t a, int64_t b) {
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

enum fold_status fold_unary(enum unary_op op, enum value_type type, uint32_t a,
                            uint32_t *out) {
    switch (op) {
    case UNARY_NOT:
        *out = !a;
        return FOLD_OK;
    case UNARY_BIT_NOT:
        *out = ~a;
        return FOLD_OK;
    case UNARY_NEG:
        break;
    }
    if (type == TYPE_I32)
        return store_i32(-(int64_t)(int32_t)a, out);
    *out = fold_bits(-fold_float(a));
    return FOLD_OK;
}

/* Wraps like the kernel in + - *, so that the value is usable even where the
 * status says overflow. */
static enum fold_status binary_i32(enum binary_op op, uint32_t ua, uint32_t ub,
                                   uint32_t *out) {
    int64_t a = (int32_t)ua, b = (int32_t)ub;
    switch (op) {
    case BINARY_ADD:
        return store_i32(a + b, out);
    case BINARY_SUB:
        return store_i32(a - b, out);
    case BINARY_MUL:
        return store_i32(a * b, out);
    case BINARY_DIV:
    case BINARY_MOD:
        *out = 0;
        if (b == 0)
            return FOLD_ZERO_DIVISOR;
        return store_i32(
            op == BINARY_DIV ? floor_div(a, b) : a - b * floor_div(a, b), out);
    case BINARY_AND:
        return store_bits(ua & ub, out);
    case BINARY_OR:
        return store_bits(ua | ub, out);
    case BINARY_XOR:
        return store_bits(ua ^ ub, out);
    case BINARY_SHL:
        return store_bits(ua << (ub & 31), out);
    case BINARY_SHR:
        return store_bits((uint32_t)(a >> (ub & 31)), out);
    case BINARY_LT:
        return store_bits(a < b, out);
    case BINARY_LE:
        return store_bits(a <= b, out);
    case BINARY_GT:
        return store_bits(a > b, out);
    case BINARY_GE:
        return store_bits(a >= b, out);
    case BINARY_EQ:
        return store_bits(a == b, out);
    case BINARY_NE:
        return store_bits(a != b, out);
    case BINARY_AND_THEN:
    case BINARY_OR_ELSE:
        break;
    }
    assert(!"no i32 operation");
    return FOLD_OK;
}

/* One f32 operation each; % is a - b·floor(a/b), every step rounded, as the
 * back end computes it. */
static void binary_f32(enum binary_op op, float a, float b, uint32_t *out) {
    switch (op) {
    case BINARY_ADD:
        *out = fold_bits(a + b);
        return;
    case BINARY_SUB:
        *out = fold_bits(a - b);
        return;
    case BINARY_MUL:
        *out = fold_bits(a * b);
        return;
    case BINARY_DIV:
        *out = fold_bits(a / b);
        return;
    case BINARY_MOD: {
        float quotient = floorf(a / b);
        float product = b * quotient;
        *out = fold_bits(a - product);
        return;
    }
    case BINARY_LT:
        *out = a < b;
        return;
    case BINARY_LE:
        *out = a <= b;
        return;
    case BINARY_GT:
        *out = a > b;
        return;
    case BINARY_GE:
        *out = a >= b;
        return;
    case BINARY_EQ:
        *out = a == b;
        return;
    case BINARY_NE:
        *out = a != b;
        return;
    case BINARY_AND:
    case BINARY_OR:
    case BINARY_XOR:
    case BINARY_SHL:
    case BINARY_SHR:
    case BINARY_AND_THEN:
    case BINARY_OR_ELSE:
        break;
    }
    assert(!"no f32 operation");
}

static void binary_bool(enum binary_op op, uint32_t a, uint32_t b,
                        uint32_t *out) {
    if (op == BINARY_AND || op == BINARY_AND_THEN)
        *out = a & b;
    else if (op == BINARY_OR || op == BINARY_OR_ELSE)
        *out = a | b;
    else if (op == BINARY_XOR || op == BINARY_NE)
        *out = a ^ b;
    else
        *out = a == b;
}

enum fold_status fold_binary(enum binary_op op, enum value_type type,
                             uint32_t a, uint32_t b, uint32_t *out) {
    if (type == TYPE_I32)
        return binary_i32(op, a, b, out);
    if (type == TYPE_F32)
        binary_f32(op, fold_float(a), fold_float(b), out);
    else
        binary_bool(op, a, b, out);
    return FOLD_OK;
}

/* min and max: one NaN gives the other value, -0 is below +0. */
static float min_f32(float a, float b) {
    if (a == b)
        return signbit(a) ? a : b;
    return fminf(a, b);
}

static float max_f32(float a, float b) {
    if (a == b)
        return signbit(a) ? b : a;
    return fmaxf(a, b);
}

/* What stays integer on integers; abs of the smallest one overflows. */
static enum fold_status builtin_i32(enum builtin builtin, const uint32_t *args,
                                    uint32_t *out) {
    int32_t x = (int32_t)args[0];
    if (builtin == BUILTIN_ABS)
        return store_i32(x < 0 ? -(int64_t)x : x, out);
    int32_t y = (int32_t)args[1];
    if (builtin == BUILTIN_MIN)
        return store_i32(x < y ? x : y, out);
    int32_t larger = x > y ? x : y;
    if (builtin == BUILTIN_MAX)
        return store_i32(larger, out);
    assert(builtin == BUILTIN_CLAMP);
    int32_t high = (int32_t)args[2];
    return store_i32(larger < high ? larger : high, out);
}

/* In fp64; the caller rounds once. */
static double one_argument(enum builtin builtin, double x) {
    switch (builtin) {
    case BUILTIN_ABS:
        return fabs(x);
    case BUILTIN_EXP:
        return exp(x);
    case BUILTIN_EXP2:
        return exp2(x);
    case BUILTIN_LOG:
        return log(x);
    case BUILTIN_LOG2:
        return log2(x);
    case BUILTIN_SQRT:
        return sqrt(x);
    case BUILTIN_RSQRT:
        return 1.0 / sqrt(x);
    case BUILTIN_TANH:
        return tanh(x);
    case BUILTIN_SIGMOID:
        return 1.0 / (1.0 + exp(-x));
    case BUILTIN_SIN:
        return sin(x);
    case BUILTIN_COS:
        return cos(x);
    case BUILTIN_FLOOR:
        return floor(x);
    case BUILTIN_CEIL:
        return ceil(x);
    case BUILTIN_ROUND:
        return rint(x);
    case BUILTIN_MIN:
    case BUILTIN_MAX:
    case BUILTIN_CLAMP:
    case BUILTIN_POW:
    case BUILTIN_COUNT:
        break;
    }
    assert(!"takes one argument");
    return x;
}

enum fold_status fold_builtin(enum builtin builtin, enum value_type type,
                              const uint32_t *args, uint32_t *out) {
    if (type == TYPE_I32)
        return builtin_i32(builtin, args, out);
    float x = fold_float(args[0]);
    if (builtin == BUILTIN_MIN)
        *out = fold_bits(min_f32(x, fold_float(args[1])));
    else if (builtin == BUILTIN_MAX)
        *out = fold_bits(max_f32(x, fold_float(args[1])));
    else if (builtin == BUILTIN_CLAMP)
        *out = fold_bits(
            min_f32(max_f32(x, fold_float(args[1])), fold_float(args[2])));
    else if (builtin == BUILTIN_POW)
        *out = fold_bits((float)pow(x, fold_float(args[1])));
    else
        *out = fold_bits((float)one_argument(builtin, x));
    return FOLD_OK;
}

/* The cast of PTX's cvt.rzi: toward zero, saturating, NaN gives 0. */
static uint32_t float_to_i32(float x) {
    if (isnan(x))
        return 0;
    if (x >= 2147483648.0f)
        return INT32_MAX;
    if (x < -2147483648.0f)
        return (uint32_t)INT32_MIN;
    return (uint32_t)(int32_t)x;
}

uint32_t fold_cast(enum value_type from, enum value_type to, uint32_t bits) {
    if (from == to)
        return bits;
    switch (to) {
    case TYPE_BOOL:
        return from == TYPE_I32 ? bits != 0 : fold_float(bits) != 0.0f;
    case TYPE_I32:
        return from == TYPE_BOOL ? bits : float_to_i32(fold_float(bits));
    case TYPE_F32:
        return fold_bits((float)(int32_t)bits);
    }
    return bits;
}
