/* f16 and bf16 arithmetic, one or two numbers in a register.
 *
 * Every operation is done exactly (or rounded to odd) in double and rounded
 * once to the narrow format.
 */
#include <math.h>

#include "emulator/exec.h"
#include "emulator/numeric.h"

typedef double half_operation(double x, double y, double z);

static double half_add(double x, double y, double z) {
    (void)z;
    return emu_add_to_odd(x, y);
}
static double half_sub(double x, double y, double z) {
    (void)z;
    return emu_add_to_odd(x, -y);
}
static double half_mul(double x, double y, double z) {
    (void)z;
    return x * y;
}
/* The product of two halves is exact in double; only the sum needs care. */
static double half_fma(double x, double y, double z) {
    return emu_add_to_odd(x * y, z);
}

/* Smallest normal number 2^-14 in f16: .ftz flushes below. */
static double flush_half(double x, enum emu_type type) {
    bool is_f16 = type == EMU_TYPE_f16 || type == EMU_TYPE_f16x2;
    return is_f16 && fabs(x) < 0x1p-14 ? copysign(0.0, x) : x;
}

/* One number: widen, compute, modifiers, round once. */
static uint32_t half_one(const struct emu_inst *inst, half_operation *operation,
                         const uint32_t in[3]) {
    double v[3];
    bool ftz = inst->mods & EMU_MOD_FTZ;
    for (int i = 0; i < 3; i++) {
        v[i] = (double)half_to_float(in[i], inst->type);
        v[i] = ftz ? flush_half(v[i], inst->type) : v[i];
    }
    double result = operation(v[0], v[1], v[2]);
    if (inst->mods & EMU_MOD_SAT)
        result = result > 0 ? (result < 1 ? result : 1) : 0;
    if (inst->mods & EMU_MOD_RELU)
        result = result > 0 || isnan(result) ? result : 0;
    uint32_t bits = emu_round_to_format(result, half_format(inst->type),
                                        EMU_ROUND_RN, false);
    if (ftz && (bits & 0x7c00u) == 0)
        bits &= 0x8000u;
    return bits;
}

static bool is_packed(enum emu_type type) {
    return type == EMU_TYPE_f16x2 || type == EMU_TYPE_bf16x2;
}

/* One or two numbers of each lane. */
static enum emu_step half_general(struct emu_warp *warp,
                                  const struct emu_inst *inst, uint32_t active,
                                  half_operation *operation) {
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint32_t result = 0;
        for (int half = 0; half <= is_packed(inst->type); half++) {
            uint32_t in[3] = {0};
            for (int i = 0; i < inst->src_count && i < 3; i++)
                in[i] = src32(warp, inst, i)->u[l] >> (16 * half) & 0xffff;
            result |= half_one(inst, operation, in) << (16 * half);
        }
        dst32(warp, inst, 0)->u[l] = result;
    }
    return EMU_STEP_NEXT;
}
EXEC(add_half) {
    return half_general(warp, inst, active, half_add);
}
EXEC(sub_half) {
    return half_general(warp, inst, active, half_sub);
}
EXEC(mul_half) {
    return half_general(warp, inst, active, half_mul);
}
EXEC(fma_half) {
    return half_general(warp, inst, active, half_fma);
}

/* ex2 and tanh: the approximate functions of the f16 unit, correctly
 * rounded. */
static double half_ex2(double x, double y, double z) {
    (void)y;
    (void)z;
    return exp2(x);
}
static double half_tanh(double x, double y, double z) {
    (void)y;
    (void)z;
    return tanh(x);
}
EXEC(ex2_half) {
    return half_general(warp, inst, active, half_ex2);
}
EXEC(tanh_half) {
    return half_general(warp, inst, active, half_tanh);
}

/* Sign operations work on the bits; NaN becomes canonical. */
static uint32_t half_canonical(uint32_t bits, enum emu_type type) {
    return isnan(half_to_float(bits, type)) ? 0x7fffu : bits;
}

/* abs and neg: `keep` and then `toggle` bits of each number. */
static enum emu_step half_bits(struct emu_warp *warp,
                               const struct emu_inst *inst, uint32_t active,
                               uint32_t keep, uint32_t toggle) {
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint32_t x = src32(warp, inst, 0)->u[l], result = 0;
        for (int half = 0; half <= is_packed(inst->type); half++) {
            uint32_t one = ((x >> (16 * half) & 0xffff) & keep) ^ toggle;
            if (inst->mods & EMU_MOD_FTZ && (one & 0x7c00u) == 0)
                one &= 0x8000u;
            result |= half_canonical(one, inst->type) << (16 * half);
        }
        dst32(warp, inst, 0)->u[l] = result;
    }
    return EMU_STEP_NEXT;
}
EXEC(abs_half) {
    return half_bits(warp, inst, active, 0x7fff, 0);
}
EXEC(neg_half) {
    return half_bits(warp, inst, active, 0xffff, 0x8000);
}

/* The number wins against NaN unless .NaN says otherwise. */
static uint32_t half_choose(uint32_t x, uint32_t y, const struct emu_inst *inst,
                            bool is_max) {
    float fx = half_to_float(x, inst->type), fy = half_to_float(y, inst->type);
    if (isnan(fx) || isnan(fy)) {
        if ((isnan(fx) && isnan(fy)) || inst->mods & EMU_MOD_NAN)
            return 0x7fff;
        return isnan(fx) ? y : x;
    }
    if (fx == fy)
        return is_max ? x & y : x | y;
    return (fx < fy) == is_max ? y : x;
}

/* Minimum or maximum of one or two numbers of each lane. */
static enum emu_step half_min_max(struct emu_warp *warp,
                                  const struct emu_inst *inst, uint32_t active,
                                  bool is_max) {
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint32_t x = src32(warp, inst, 0)->u[l], y = src32(warp, inst, 1)->u[l],
                 result = 0;
        for (int half = 0; half <= is_packed(inst->type); half++) {
            int shift = 16 * half;
            uint32_t p = x >> shift & 0xffff, q = y >> shift & 0xffff;
            if (inst->mods & EMU_MOD_FTZ) {
                p = (p & 0x7c00u) == 0 ? p & 0x8000u : p;
                q = (q & 0x7c00u) == 0 ? q & 0x8000u : q;
            }
            result |= half_choose(p, q, inst, is_max) << shift;
        }
        dst32(warp, inst, 0)->u[l] = result;
    }
    return EMU_STEP_NEXT;
}
EXEC(min_half) {
    return half_min_max(warp, inst, active, false);
}
EXEC(max_half) {
    return half_min_max(warp, inst, active, true);
}
