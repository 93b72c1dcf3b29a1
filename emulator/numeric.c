/* Scalar arithmetic where the vector loops do not reach: other rounding modes
 * than to nearest even, narrow formats, integral rounding.
 *
 * Directed rounding uses the host's rounding mode; the operations are volatile
 * so that the compiler neither folds nor moves them.
 */
#include "emulator/numeric.h"

#include <fenv.h>
#include <math.h>

/* Ties away from zero has no host mode and is done on the bits. */
static int host_mode(enum emu_rounding rounding) {
    switch (rounding) {
    case EMU_ROUND_RZ:
        return FE_TOWARDZERO;
    case EMU_ROUND_RM:
        return FE_DOWNWARD;
    case EMU_ROUND_RP:
        return FE_UPWARD;
    case EMU_ROUND_NONE:
    case EMU_ROUND_RN:
    case EMU_ROUND_RNA:
    default:
        return FE_TONEAREST;
    }
}

/* An operation of one type in the rounding that the host's unit is set to; the
 * operands are volatile, for the compiler does not know of the mode. */
#define OPERATION(name, type, fused, root)                   \
    static type name(char operation, type x, type y, type z, \
                     enum emu_rounding rounding) {           \
        volatile type a = x, b = y, c = z, result = 0;       \
        int old = fegetround();                              \
        fesetround(host_mode(rounding));                     \
        switch (operation) {                                 \
        case '+':                                            \
            result = a + b;                                  \
            break;                                           \
        case '-':                                            \
            result = a - b;                                  \
            break;                                           \
        case '*':                                            \
            result = a * b;                                  \
            break;                                           \
        case '/':                                            \
            result = a / b;                                  \
            break;                                           \
        case 'f':                                            \
            result = fused(a, b, c);                         \
            break;                                           \
        case 'q':                                            \
            result = root(a);                                \
            break;                                           \
        default:                                             \
            break;                                           \
        }                                                    \
        fesetround(old);                                     \
        return result;                                       \
    }
OPERATION(operation_f32, float, fmaf, sqrtf)
OPERATION(operation_f64, double, fma, sqrt)

uint32_t emu_f32_operation(char operation, float x, float y, float z,
                           enum emu_rounding rounding) {
    return canonical(
        bits_of_float(operation_f32(operation, x, y, z, rounding)));
}

uint64_t emu_f64_operation(char operation, double x, double y, double z,
                           enum emu_rounding rounding) {
    double result = operation_f64(operation, x, y, z, rounding);
    return isnan(result) ? 0x7fffffffffffffffu : bits_of_double(result);
}

double emu_round_to_integral(double x, enum emu_rounding rounding) {
    switch (rounding) {
    case EMU_ROUND_RZ:
        return trunc(x);
    case EMU_ROUND_RM:
        return floor(x);
    case EMU_ROUND_RP:
        return ceil(x);
    case EMU_ROUND_RNA:
        return round(x);
    case EMU_ROUND_NONE:
    case EMU_ROUND_RN:
    default:
        return nearbyint(x);
    }
}

double emu_add_to_odd(double x, double y) {
    double sum = x + y;
    if (!isfinite(sum))
        return sum;
    double part = sum - x, error = (x - (sum - part)) + (y - part);
    uint64_t bits = bits_of_double(sum);
    if (error == 0.0 || (bits & 1))
        return sum;
    /* The exact value lies between sum and a neighbour; take the odd one. */
    bool away = (error > 0) == (sum > 0);
    return double_of_bits(away ? bits + 1 : bits - 1);
}

/* Whether to add one unit after cutting `rest` (of a unit of `half`*2) off. */
static bool rounds_up(uint64_t rest, uint64_t half, bool odd, bool negative,
                      bool sticky, enum emu_rounding rounding) {
    bool inexact = rest != 0 || sticky;
    switch (rounding) {
    case EMU_ROUND_RZ:
        return false;
    case EMU_ROUND_RM:
        return inexact && negative;
    case EMU_ROUND_RP:
        return inexact && !negative;
    case EMU_ROUND_RNA:
        return rest >= half;
    case EMU_ROUND_NONE:
    case EMU_ROUND_RN:
    default:
        return rest > half || (rest == half && (odd || sticky));
    }
}

uint32_t emu_round_to_format(double value, struct float_format format,
                             enum emu_rounding rounding, bool sticky) {
    uint64_t bits = bits_of_double(value);
    bool negative = bits >> 63;
    int bias = (1 << (format.exponent_bits - 1)) - 1,
        mantissa = format.mantissa_bits;
    uint32_t sign = (uint32_t)negative << (format.exponent_bits + mantissa);
    uint32_t infinity = ((1u << format.exponent_bits) - 1) << mantissa;
    if (isnan(value))
        return infinity | ((1u << mantissa) - 1);
    if (isinf(value))
        return sign | infinity;
    int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
    uint64_t fraction =
        (bits & 0xfffffffffffffu) | (exponent > -1023 ? 1ull << 52 : 0);
    if (fraction == 0)
        return sign;
    int smallest = 1 - bias;
    int cut = 52 - mantissa + (exponent < smallest ? smallest - exponent : 0);
    if (cut > 60) { /* far below the smallest subnormal number */
        sticky = sticky || fraction != 0;
        fraction = 0;
        cut = 60;
    }
    uint64_t kept = fraction >> cut, rest = fraction & ((1ull << cut) - 1);
    kept += rounds_up(rest, 1ull << (cut - 1), kept & 1, negative, sticky,
                      rounding);
    int biased = exponent < smallest ? 0 : exponent + bias - 1;
    uint64_t result = ((uint64_t)biased << mantissa) + kept;
    if (result >= infinity) {
        bool stays_finite = rounding == EMU_ROUND_RZ ||
                            (rounding == EMU_ROUND_RM && !negative) ||
                            (rounding == EMU_ROUND_RP && negative);
        result = stays_finite ? infinity - 1 : infinity;
    }
    return sign | (uint32_t)result;
}
