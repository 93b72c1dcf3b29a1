/* Conversions.
 *
 * The packing conversions of the softmax (f32 to bf16x2 and f16x2) have vector
 * loops; all others read the source exactly, as a 64-bit integer or a double,
 * and round once.
 */
#include <math.h>

#include "emulator/exec.h"
#include "emulator/numeric.h"

#define PACK_SOURCES \
    const union lane32 *a = src32(warp, inst, 0), *b = src32(warp, inst, 1)
LANE_HANDLER(cvt_bf16x2, 32, u, PACK_SOURCES,
             bf16_of_f32(a->u[l]) << 16 | bf16_of_f32(b->u[l]))
LANE_HANDLER(cvt_f16x2, 32, u, PACK_SOURCES,
             f16_of_f32(a->u[l]) << 16 | f16_of_f32(b->u[l]))

/* f32 to a narrow format with .rz, .relu, .satfinite. */
static uint32_t narrow(const struct emu_inst *inst, uint32_t bits,
                       struct float_format format) {
    double value = (double)float_of_bits(bits);
    if (inst->mods & EMU_MOD_RELU)
        value = value > 0 || isnan(value) ? value : 0.0;
    uint32_t result = emu_round_to_format(value, format, inst->rounding, false);
    uint32_t infinity = ((1u << format.exponent_bits) - 1)
                        << format.mantissa_bits;
    uint32_t sign = 1u << (format.exponent_bits + format.mantissa_bits);
    if ((inst->mods & EMU_MOD_SAT) && (result & ~sign) == infinity)
        result--;
    return result;
}

/* Two f32 to one packed register; the first source goes to the upper half. */
EXEC(cvt_pack_any) {
    bool is_bf16 = inst->type == EMU_TYPE_bf16x2;
    struct float_format format =
        is_bf16 ? (struct float_format){8, 7} : (struct float_format){5, 10};
    for (int l = 0; l < EMU_LANES; l++)
        if (active >> l & 1)
            dst32(warp, inst, 0)->u[l] =
                narrow(inst, src32(warp, inst, 0)->u[l], format) << 16 |
                narrow(inst, src32(warp, inst, 1)->u[l], format);
    return EMU_STEP_NEXT;
}

/* tf32 is an f32 whose lower 13 bits are zero. */
EXEC(cvt_tf32) {
    struct float_format format = {8, 10};
    for (int l = 0; l < EMU_LANES; l++)
        if (active >> l & 1)
            dst32(warp, inst, 0)->u[l] =
                narrow(inst, src32(warp, inst, 0)->u[l], format) << 13;
    return EMU_STEP_NEXT;
}

/* ---- the general form -------------------------------------------------- */

/* The source as a sign-extended integer. */
static int64_t read_integer(uint64_t bits, enum emu_type type) {
    unsigned shift = 64 - 8 * emu_type_bytes(type);
    return emu_type_class(type) == 'S' ? (int64_t)(bits << shift) >> shift
                                       : (int64_t)(bits << shift >> shift);
}

/* Every source format is exact in double. */
static double read_float(uint64_t bits, enum emu_type type, bool ftz) {
    if (type == EMU_TYPE_f64)
        return double_of_bits(bits);
    if (type == EMU_TYPE_f32)
        return (double)float_of_bits(ftz ? flush((uint32_t)bits)
                                         : (uint32_t)bits);
    return (double)half_to_float((uint32_t)bits, type);
}

/* Rounds to the floating type of the destination. */
static uint64_t write_float(const struct emu_inst *inst, double value,
                            bool sticky) {
    enum emu_rounding rounding =
        inst->round_integer ? EMU_ROUND_RN : inst->rounding;
    if (inst->mods & EMU_MOD_SAT)
        value = value > 0 ? (value < 1 ? value : 1) : 0;
    if (inst->mods & EMU_MOD_RELU)
        value = value > 0 || isnan(value) ? value : 0;
    if (inst->type == EMU_TYPE_f64)
        return isnan(value) ? 0x7fffffffffffffffu : bits_of_double(value);
    if (inst->type == EMU_TYPE_f32) {
        uint32_t bits = emu_round_to_format(value, (struct float_format){8, 23},
                                            rounding, sticky);
        return inst->mods & EMU_MOD_FTZ ? flush(bits) : bits;
    }
    return emu_round_to_format(value, half_format(inst->type), rounding,
                               sticky);
}

/* Floating to integer: rounded, clamped to the range; NaN gives 0 in the 32-bit
 * and narrower types and the sign bit alone in the 64-bit ones. */
static uint64_t float_to_integer(double value, enum emu_type type,
                                 enum emu_rounding rounding) {
    unsigned bits = 8 * emu_type_bytes(type);
    bool is_signed = emu_type_class(type) == 'S';
    if (isnan(value))
        return bits == 64 ? 0x8000000000000000u : 0;
    double rounded = emu_round_to_integral(value, rounding);
    double high = ldexp(1.0, (int)bits - is_signed),
           low = is_signed ? -high : 0.0;
    uint64_t largest = is_signed    ? (1ull << (bits - 1)) - 1
                       : bits == 64 ? ~0ull
                                    : (1ull << bits) - 1;
    if (rounded >= high)
        return largest;
    if (rounded <= low)
        return is_signed ? ~largest : 0;
    return is_signed ? (uint64_t)(int64_t)rounded : (uint64_t)rounded;
}

/* An integer as a double, truncated toward zero; `out_sticky`: bits were
 * lost. */
static double integer_to_double(int64_t value, bool is_signed,
                                bool *out_sticky) {
    bool negative = is_signed && value < 0;
    uint64_t magnitude = negative ? 0 - (uint64_t)value : (uint64_t)value;
    *out_sticky = false;
    if (magnitude >> 53) {
        int shift = 11 - __builtin_clzll(magnitude);
        *out_sticky = (magnitude & ((1ull << shift) - 1)) != 0;
        magnitude = magnitude >> shift << shift;
    }
    double result = (double)magnitude;
    return negative ? -result : result;
}

/* Rounding to f64 itself is the host's. */
static uint64_t integer_to_f64(int64_t value, bool is_signed,
                               enum emu_rounding rounding) {
    uint64_t high = (uint64_t)value >> 32, low = (uint64_t)value & 0xffffffffu;
    double upper = is_signed ? (double)(int32_t)high : (double)high;
    return emu_f64_operation('f', upper, 0x1p32, (double)low, rounding);
}

/* .sat between integers: the nearest value of the destination. */
static uint64_t clamp_integer(int64_t value, bool from_unsigned,
                              enum emu_type to) {
    unsigned bits = 8 * emu_type_bytes(to);
    bool is_signed = emu_type_class(to) == 'S';
    uint64_t largest = is_signed    ? (1ull << (bits - 1)) - 1
                       : bits == 64 ? ~0ull
                                    : (1ull << bits) - 1;
    if (from_unsigned || value >= 0)
        return (uint64_t)value > largest ? largest : (uint64_t)value;
    int64_t lowest = is_signed ? (int64_t)~largest : 0;
    return (uint64_t)(value < lowest ? lowest : value);
}

/* Source bits to destination bits, not yet extended to the register. */
static uint64_t convert(const struct emu_inst *inst, uint64_t bits) {
    enum emu_type to = inst->type, from = inst->type2;
    bool to_float = emu_type_class(to) == 'F',
         from_float = emu_type_class(from) == 'F';
    bool ftz = inst->mods & EMU_MOD_FTZ;
    if (from_float) {
        double value = read_float(bits, from, ftz);
        if (!to_float)
            return float_to_integer(value, to, inst->rounding);
        if (inst->round_integer)
            value = emu_round_to_integral(value, inst->rounding);
        if (to == EMU_TYPE_f32 && from == EMU_TYPE_f64 && ftz &&
            fabs(value) < 0x1p-126)
            value = copysign(0.0, value);
        return write_float(inst, value, false);
    }
    int64_t value = read_integer(bits, from);
    bool is_signed = emu_type_class(from) == 'S', sticky;
    if (!to_float)
        return inst->mods & EMU_MOD_SAT ? clamp_integer(value, !is_signed, to)
                                        : (uint64_t)value;
    if (to == EMU_TYPE_f64)
        return integer_to_f64(value, is_signed, inst->rounding);
    double wide = integer_to_double(value, is_signed, &sticky);
    return write_float(inst, wide, sticky);
}

uint64_t emu_extend_to_register(struct emu_warp *warp, enum emu_type type,
                                struct emu_value value, uint64_t bits) {
    unsigned bytes = emu_type_bytes(type);
    const struct emu_module *module = warp->cta->grid->module;
    if (bytes >= 8 || value.reg < 0)
        return bits;
    unsigned shift = 64 - 8 * bytes;
    uint64_t wide = emu_type_class(type) == 'S'
                        ? (uint64_t)((int64_t)(bits << shift) >> shift)
                        : bits << shift >> shift;
    unsigned own = emu_type_bytes(module->registers.data[value.reg].type);
    return own >= 8 ? wide : wide & ((1ull << (8 * own)) - 1);
}

EXEC(cvt) {
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint64_t bits = convert(inst, lane_value(warp, inst->src[0], l));
        set_lane(warp, inst->dst[0], l,
                 emu_extend_to_register(warp, inst->type, inst->dst[0], bits));
    }
    return EMU_STEP_NEXT;
}

/* The conversions that kernels do per element, as vector loops. */
#define ONE32 const union lane32 *a = src32(warp, inst, 0)
#define ONE64 const union lane64 *a = src64(warp, inst, 0)
LANE_HANDLER(cvt_f32_s32, 32, f, ONE32, (float)a->s[l])
LANE_HANDLER(cvt_f32_u32, 32, f, ONE32, (float)a->u[l])
LANE_HANDLER(cvt_u64_u32, 64, u, ONE32, a->u[l])
LANE_HANDLER(cvt_s64_s32, 64, s, ONE32, a->s[l])
LANE_HANDLER(cvt_u32_u64, 32, u, ONE64, (uint32_t)a->u[l])
LANE_HANDLER(cvt_f32_f16, 32, u, ONE32,
             canonical(bits_of_float(f32_of_f16(a->u[l]))))
LANE_HANDLER(cvt_f32_bf16, 32, u, ONE32, canonical(a->u[l] << 16))
LANE_HANDLER(cvt_f16_f32, 32, u, ONE32, f16_of_f32(a->u[l]))
LANE_HANDLER(cvt_bf16_f32, 32, u, ONE32, bf16_of_f32(a->u[l]))
