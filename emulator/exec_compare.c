/* Comparison and selection: setp, set, selp, slct, and mov.
 *
 * Comparisons yield a mask of lanes.  A floating comparison without `u` is
 * false for NaN, one with `u` is true.
 */
#include <math.h>

#include "emulator/exec.h"
#include "emulator/numeric.h"

static const uint32_t lane_bit[EMU_LANES] = {
#define B(n) 1u << n, 1u << (n + 1), 1u << (n + 2), 1u << (n + 3)
    B(0), B(4), B(8), B(12), B(16), B(20), B(24), B(28),
#undef B
};

/* mask |= condition of each lane; a reduction that vectorises. */
#define MASK(condition)                               \
    do {                                              \
        LANES mask |= (condition) ? lane_bit[l] : 0u; \
    } while (0)

#define COMPARE_INTEGER(name, T, lane, field)                       \
    EMU_VECTOR static uint32_t compare_##name(                      \
        const union lane *a, const union lane *b, enum emu_op op) { \
        uint32_t mask = 0;                                          \
        if (op == EMU_OP_eq)                                        \
            MASK((T)a->field[l] == (T)b->field[l]);                 \
        else if (op == EMU_OP_ne)                                   \
            MASK((T)a->field[l] != (T)b->field[l]);                 \
        else if (op == EMU_OP_lt || op == EMU_OP_lo)                \
            MASK((T)a->field[l] < (T)b->field[l]);                  \
        else if (op == EMU_OP_le || op == EMU_OP_ls)                \
            MASK((T)a->field[l] <= (T)b->field[l]);                 \
        else if (op == EMU_OP_gt || op == EMU_OP_hi)                \
            MASK((T)a->field[l] > (T)b->field[l]);                  \
        else                                                        \
            MASK((T)a->field[l] >= (T)b->field[l]);                 \
        return mask;                                                \
    }
COMPARE_INTEGER(u16, uint16_t, lane32, u)
COMPARE_INTEGER(s16, int16_t, lane32, u)
COMPARE_INTEGER(u32, uint32_t, lane32, u)
COMPARE_INTEGER(s32, int32_t, lane32, s)
COMPARE_INTEGER(u64, uint64_t, lane64, u)
COMPARE_INTEGER(s64, int64_t, lane64, s)

/* The ordered comparison and its complement cover the ordered and the unordered
 * forms: a ltu b is !(a ge b). */
#define COMPARE_FLOAT(name, lane)                                   \
    EMU_VECTOR static uint32_t compare_##name(                      \
        const union lane *a, const union lane *b, enum emu_op op) { \
        uint32_t mask = 0;                                          \
        switch (op) {                                               \
        case EMU_OP_eq:                                             \
            MASK(a->f[l] == b->f[l]);                               \
            return mask;                                            \
        case EMU_OP_lt:                                             \
            MASK(a->f[l] < b->f[l]);                                \
            return mask;                                            \
        case EMU_OP_le:                                             \
            MASK(a->f[l] <= b->f[l]);                               \
            return mask;                                            \
        case EMU_OP_gt:                                             \
            MASK(a->f[l] > b->f[l]);                                \
            return mask;                                            \
        case EMU_OP_ge:                                             \
            MASK(a->f[l] >= b->f[l]);                               \
            return mask;                                            \
        case EMU_OP_ne:                                             \
            MASK(a->f[l]<b->f[l] || a->f[l]> b->f[l]);              \
            return mask;                                            \
        case EMU_OP_neu:                                            \
            MASK(a->f[l] == b->f[l]);                               \
            return ~mask;                                           \
        case EMU_OP_geu:                                            \
            MASK(a->f[l] < b->f[l]);                                \
            return ~mask;                                           \
        case EMU_OP_gtu:                                            \
            MASK(a->f[l] <= b->f[l]);                               \
            return ~mask;                                           \
        case EMU_OP_leu:                                            \
            MASK(a->f[l] > b->f[l]);                                \
            return ~mask;                                           \
        case EMU_OP_ltu:                                            \
            MASK(a->f[l] >= b->f[l]);                               \
            return ~mask;                                           \
        case EMU_OP_equ:                                            \
            MASK(a->f[l]<b->f[l] || a->f[l]> b->f[l]);              \
            return ~mask;                                           \
        case EMU_OP_num:                                            \
            MASK(a->f[l] == a->f[l] && b->f[l] == b->f[l]);         \
            return mask;                                            \
        default:                                                    \
            MASK(a->f[l] == a->f[l] && b->f[l] == b->f[l]);         \
            return ~mask;                                           \
        }                                                           \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wswitch-enum"
COMPARE_FLOAT(f32, lane32)
COMPARE_FLOAT(f64, lane64)
#pragma GCC diagnostic pop

/* Sources 0 and 1 as floats, flushed, or one half of each widened. */
static uint32_t compare_as_f32(struct emu_warp *warp,
                               const struct emu_inst *inst, enum emu_type type,
                               int shift) {
    union lane32 a, b;
    for (int l = 0; l < EMU_LANES; l++) {
        uint32_t x = src32(warp, inst, 0)->u[l], y = src32(warp, inst, 1)->u[l];
        if (type == EMU_TYPE_f32) {
            a.u[l] = flush(x);
            b.u[l] = flush(y);
        } else {
            a.f[l] = half_to_float(x >> shift, type);
            b.f[l] = half_to_float(y >> shift, type);
        }
    }
    return compare_f32(&a, &b, inst->op);
}

/* The comparison of a type, as a mask of lanes. */
static uint32_t compare(struct emu_warp *warp, const struct emu_inst *inst,
                        enum emu_type type) {
    bool is_signed = emu_type_class(type) == 'S';
    const union lane32 *a = src32(warp, inst, 0), *b = src32(warp, inst, 1);
    const union lane64 *wide_a = src64(warp, inst, 0),
                       *wide_b = src64(warp, inst, 1);
    if (type == EMU_TYPE_f64)
        return compare_f64(wide_a, wide_b, inst->op);
    if (type == EMU_TYPE_f32 && !(inst->mods & EMU_MOD_FTZ))
        return compare_f32(a, b, inst->op);
    if (emu_type_class(type) == 'F')
        return compare_as_f32(warp, inst, type, 0);
    switch (emu_type_bytes(type)) {
    case 2:
        return is_signed ? compare_s16(a, b, inst->op)
                         : compare_u16(a, b, inst->op);
    case 4:
        return is_signed ? compare_s32(a, b, inst->op)
                         : compare_u32(a, b, inst->op);
    default:
        return is_signed ? compare_s64(wide_a, wide_b, inst->op)
                         : compare_u64(wide_a, wide_b, inst->op);
    }
}

/* With a third source: the comparison combined with it. */
static uint32_t combine(struct emu_warp *warp, const struct emu_inst *inst,
                        uint32_t mask) {
    if (inst->src_count < 3)
        return mask;
    uint32_t other = src_predicate(warp, inst, 2);
    return inst->op2 == EMU_OP_and  ? mask & other
           : inst->op2 == EMU_OP_or ? mask | other
                                    : mask ^ other;
}

EXEC(setp) {
    uint32_t mask = compare(warp, inst, inst->type);
    uint32_t first = combine(warp, inst, mask),
             second = combine(warp, inst, ~mask);
    set_predicate(warp, inst, 0, active, first);
    if (inst->dst[1].reg != EMU_REG_SINK)
        set_predicate(warp, inst, 1, active, second);
    return EMU_STEP_NEXT;
}

/* setp.f16x2 p|q: the low halves give p, the high halves q. */
EXEC(setp_packed) {
    uint32_t low = compare_as_f32(warp, inst, inst->type, 0);
    uint32_t high = compare_as_f32(warp, inst, inst->type, 16);
    set_predicate(warp, inst, 0, active, combine(warp, inst, low));
    if (inst->dst[1].reg != EMU_REG_SINK)
        set_predicate(warp, inst, 1, active, combine(warp, inst, high));
    return EMU_STEP_NEXT;
}

/* set: all ones or 1.0 where true. */
EXEC(set) {
    uint32_t mask = combine(warp, inst, compare(warp, inst, inst->type2));
    uint32_t truth = inst->type == EMU_TYPE_f32 ? 0x3f800000u : 0xffffffffu;
    union lane32 value;
    LANES value.u[l] = mask & lane_bit[l] ? truth : 0;
    commit32(dst32(warp, inst, 0), &value, active);
    return EMU_STEP_NEXT;
}

#define SELECT_SOURCES(width)                               \
    const union lane##width *a = src##width(warp, inst, 0), \
                            *b = src##width(warp, inst, 1); \
    uint32_t mask = src_predicate(warp, inst, 2)
LANE_HANDLER(selp_b32, 32, u, SELECT_SOURCES(32),
             mask &lane_bit[l] ? a->u[l] : b->u[l])
LANE_HANDLER(selp_b64, 64, u, SELECT_SOURCES(64),
             mask &lane_bit[l] ? a->u[l] : b->u[l])

#define SLCT_SOURCES(width)                                 \
    const union lane##width *a = src##width(warp, inst, 0), \
                            *b = src##width(warp, inst, 1); \
    const union lane32 *c = src32(warp, inst, 2)
LANE_HANDLER(slct_s32_b32, 32, u, SLCT_SOURCES(32),
             c->s[l] >= 0 ? a->u[l] : b->u[l])
LANE_HANDLER(slct_s32_b64, 64, u, SLCT_SOURCES(64),
             c->s[l] >= 0 ? a->u[l] : b->u[l])
LANE_HANDLER(slct_f32_b32, 32, u, SLCT_SOURCES(32),
             c->f[l] >= 0.0f ? a->u[l] : b->u[l])
LANE_HANDLER(slct_f32_b64, 64, u, SLCT_SOURCES(64),
             c->f[l] >= 0.0f ? a->u[l] : b->u[l])

/* ---- mov --------------------------------------------------------------- */

LANE_HANDLER(mov_b32, 32, u, const union lane32 *a = src32(warp, inst, 0),
             a->u[l])
LANE_HANDLER(mov_b64, 64, u, const union lane64 *a = src64(warp, inst, 0),
             a->u[l])

EXEC(mov_b128) {
    union lane64 *d = dst64(warp, inst, 0);
    const union lane64 *a = src64(warp, inst, 0);
    commit64(&d[0], &a[0], active);
    commit64(&d[1], &a[1], active);
    return EMU_STEP_NEXT;
}

EXEC(mov_pred) {
    set_predicate(warp, inst, 0, active, src_predicate(warp, inst, 0));
    return EMU_STEP_NEXT;
}

/* d = {a, b, …}: the first element in the low bits; imm 0: bytes of one. */
EXEC(mov_pack) {
    unsigned bytes = (unsigned)inst->imm[0];
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint64_t part[2] = {0};
        for (unsigned i = 0; i < inst->vector; i++) {
            uint64_t value = lane_value(warp, inst->src[i], l);
            if (bytes < 8)
                value &= (1ull << (8 * bytes)) - 1;
            part[i * bytes / 8] |= value << (8 * (i * bytes % 8));
        }
        set_lane(warp, inst->dst[0], l, part[0]);
        if (inst->dst[0].width == 16)
            dst64(warp, inst, 0)[1].u[l] = part[1];
    }
    return EMU_STEP_NEXT;
}

EXEC(mov_unpack) {
    unsigned bytes = (unsigned)inst->imm[0];
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint64_t part[2] = {lane_value(warp, inst->src[0], l), 0};
        if (inst->src[0].width == 16)
            part[1] = src64(warp, inst, 0)[1].u[l];
        for (unsigned i = 0; i < inst->vector; i++) {
            if (inst->dst[i].reg == EMU_REG_SINK)
                continue;
            uint64_t value = part[i * bytes / 8] >> (8 * (i * bytes % 8));
            if (bytes < 8)
                value &= (1ull << (8 * bytes)) - 1;
            set_lane(warp, inst->dst[i], l, value);
        }
    }
    return EMU_STEP_NEXT;
}

/* mov from %clock, %clock64, %globaltimer: a count that grows with the warp's
 * instructions (with its cycles under the timeline). */
EXEC(mov_clock) {
    uint64_t now = warp->cta->trace ? warp->time : warp->cta->steps;
    for (int l = 0; l < EMU_LANES; l++)
        if (active >> l & 1)
            set_lane(warp, inst->dst[0], l, now);
    return EMU_STEP_NEXT;
}
