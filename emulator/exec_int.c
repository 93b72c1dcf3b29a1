/* Integer arithmetic, logic and bit fields.
 *
 * 16-bit values live zero-extended in 32-bit lanes.  Arithmetic is done on
 * unsigned types, where wrapping is defined.
 */
#include "emulator/exec.h"

/* Rows of macros, which clang-format takes for declarations. */
/* clang-format off */
#define SOURCES1(width) const union lane##width *a = src##width(warp, inst, 0)
#define SOURCES2(width) SOURCES1(width); const union lane##width *b = src##width(warp, inst, 1)
#define SOURCES3(width) SOURCES2(width); const union lane##width *c = src##width(warp, inst, 2)

/* Handlers for one, two and three sources of type T, result of unsigned type U:
 * `x y z` are the operands of the lane. */
#define UNARY(name, width, T, U, value) \
    static inline U name##_one(T x) { return (U)(value); } \
    LANE_HANDLER(name, width, u, SOURCES1(width), name##_one((T)a->u[l]))
#define BINARY(name, width, T, U, value) \
    static inline U name##_one(T x, T y) { return (U)(value); } \
    LANE_HANDLER(name, width, u, SOURCES2(width), name##_one((T)a->u[l], (T)b->u[l]))
#define TERNARY(name, width, T, U, value) \
    static inline U name##_one(T x, T y, T z) { return (U)(value); } \
    LANE_HANDLER(name, width, u, SOURCES3(width), name##_one((T)a->u[l], (T)b->u[l], (T)c->u[l]))

BINARY(add_b16, 32, uint16_t, uint16_t, x + y)
BINARY(add_b32, 32, uint32_t, uint32_t, x + y)
BINARY(add_b64, 64, uint64_t, uint64_t, x + y)
BINARY(sub_b16, 32, uint16_t, uint16_t, x - y)
BINARY(sub_b32, 32, uint32_t, uint32_t, x - y)
BINARY(sub_b64, 64, uint64_t, uint64_t, x - y)

static inline uint32_t saturate_s32(int64_t value) {
    return (uint32_t)(value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : value);
}
BINARY(add_sat_s32, 32, int32_t, uint32_t, saturate_s32((int64_t)x + y))
BINARY(sub_sat_s32, 32, int32_t, uint32_t, saturate_s32((int64_t)x - y))

BINARY(mul_lo_b16, 32, uint16_t, uint16_t, (uint32_t)x * y)
BINARY(mul_lo_b32, 32, uint32_t, uint32_t, x * y)
BINARY(mul_lo_b64, 64, uint64_t, uint64_t, x * y)
BINARY(mul_hi_u16, 32, uint16_t, uint16_t, ((uint32_t)x * y) >> 16)
BINARY(mul_hi_s16, 32, int16_t, uint16_t, (uint32_t)((int32_t)x * y) >> 16)
BINARY(mul_hi_u32, 32, uint32_t, uint32_t, ((uint64_t)x * y) >> 32)
BINARY(mul_hi_s32, 32, int32_t, uint32_t, (uint64_t)((int64_t)x * y) >> 32)
__extension__ typedef unsigned __int128 uint128;
__extension__ typedef __int128 int128;
BINARY(mul_hi_u64, 64, uint64_t, uint64_t, ((uint128)x * y) >> 64)
BINARY(mul_hi_s64, 64, int64_t, uint64_t, (uint128)((int128)x * y) >> 64)
BINARY(mul24_lo_u32, 32, uint32_t, uint32_t, (x & 0xffffff) * (y & 0xffffff))
BINARY(mul24_lo_s32, 32, int32_t, uint32_t,
       (int64_t)((int32_t)((uint32_t)x << 8) >> 8) * ((int32_t)((uint32_t)y << 8) >> 8))

BINARY(mul_wide_u16, 32, uint16_t, uint32_t, (uint32_t)x * y)
BINARY(mul_wide_s16, 32, int16_t, uint32_t, (int32_t)x * y)
LANE_HANDLER(mul_wide_u32, 64, u, SOURCES2(32), (uint64_t)a->u[l] * b->u[l])
LANE_HANDLER(mul_wide_s32, 64, s, SOURCES2(32), (int64_t)a->s[l] * b->s[l])

TERNARY(mad_lo_b16, 32, uint16_t, uint16_t, (uint32_t)x * y + z)
TERNARY(mad_lo_b32, 32, uint32_t, uint32_t, x * y + z)
TERNARY(mad_lo_b64, 64, uint64_t, uint64_t, x * y + z)
TERNARY(mad_hi_u32, 32, uint32_t, uint32_t, (((uint64_t)x * y) >> 32) + z)
TERNARY(mad_hi_s32, 32, int32_t, uint32_t, ((uint64_t)((int64_t)x * y) >> 32) + (uint32_t)z)
TERNARY(mad_hi_u64, 64, uint64_t, uint64_t, (uint64_t)(((uint128)x * y) >> 64) + z)
TERNARY(mad_hi_s64, 64, int64_t, uint64_t,
        (uint64_t)((uint128)((int128)x * y) >> 64) + (uint64_t)z)
LANE_HANDLER(mad_wide_u16, 32, u, SOURCES3(32),
             (uint32_t)(uint16_t)a->u[l] * (uint16_t)b->u[l] + c->u[l])
LANE_HANDLER(mad_wide_s16, 32, u, SOURCES3(32),
             (uint32_t)((int16_t)a->u[l] * (int16_t)b->u[l]) + c->u[l])
#define SOURCES_WIDE SOURCES2(32); const union lane64 *c = src64(warp, inst, 2)
LANE_HANDLER(mad_wide_u32, 64, u, SOURCES_WIDE, (uint64_t)a->u[l] * b->u[l] + c->u[l])
LANE_HANDLER(mad_wide_s32, 64, u, SOURCES_WIDE,
             (uint64_t)((int64_t)a->s[l] * b->s[l]) + c->u[l])

/* Division by zero gives all ones and the dividend as remainder; the ISA leaves
 * it open.  The most negative number divided by -1 wraps. */
#define UNSIGNED_DIVISION(type, width, T)                                       \
    BINARY(div_##type, width, T, T, y == 0 ? (T)~(T)0 : (T)(x / y))             \
    BINARY(rem_##type, width, T, T, y == 0 ? x : (T)(x % y))
#define SIGNED_DIVISION(type, width, T, U)                                      \
    BINARY(div_##type, width, T, U,                                             \
           y == 0 ? (U)~(U)0 : y == -1 ? (U)(0 - (U)x) : (U)(x / y))             \
    BINARY(rem_##type, width, T, U, y == 0 ? (U)x : y == -1 ? (U)0 : (U)(x % y))
UNSIGNED_DIVISION(u16, 32, uint16_t)
UNSIGNED_DIVISION(u32, 32, uint32_t)
UNSIGNED_DIVISION(u64, 64, uint64_t)
SIGNED_DIVISION(s16, 32, int16_t, uint16_t)
SIGNED_DIVISION(s32, 32, int32_t, uint32_t)
SIGNED_DIVISION(s64, 64, int64_t, uint64_t)

UNARY(abs_s16, 32, int16_t, uint16_t, x < 0 ? -x : x)
UNARY(abs_s32, 32, int32_t, uint32_t, x < 0 ? 0 - (uint32_t)x : (uint32_t)x)
UNARY(abs_s64, 64, int64_t, uint64_t, x < 0 ? 0 - (uint64_t)x : (uint64_t)x)
UNARY(neg_s16, 32, uint16_t, uint16_t, 0 - x)
UNARY(neg_s32, 32, uint32_t, uint32_t, 0 - x)
UNARY(neg_s64, 64, uint64_t, uint64_t, 0 - x)

#define MIN_MAX(type, width, T, U)                          \
    BINARY(min_##type, width, T, U, x < y ? x : y)          \
    BINARY(max_##type, width, T, U, x > y ? x : y)
MIN_MAX(u16, 32, uint16_t, uint16_t)
MIN_MAX(s16, 32, int16_t, uint16_t)
MIN_MAX(u32, 32, uint32_t, uint32_t)
MIN_MAX(s32, 32, int32_t, uint32_t)
MIN_MAX(u64, 64, uint64_t, uint64_t)
MIN_MAX(s64, 64, int64_t, uint64_t)
static inline int32_t not_negative(int32_t x) { return x > 0 ? x : 0; }
BINARY(min_relu_s32, 32, int32_t, uint32_t, not_negative(x < y ? x : y))
BINARY(max_relu_s32, 32, int32_t, uint32_t, not_negative(x > y ? x : y))

BINARY(and_b32, 32, uint32_t, uint32_t, x & y)
BINARY(or_b32, 32, uint32_t, uint32_t, x | y)
BINARY(xor_b32, 32, uint32_t, uint32_t, x ^ y)
BINARY(and_b64, 64, uint64_t, uint64_t, x & y)
BINARY(or_b64, 64, uint64_t, uint64_t, x | y)
BINARY(xor_b64, 64, uint64_t, uint64_t, x ^ y)
UNARY(not_b16, 32, uint16_t, uint16_t, ~x)
UNARY(not_b32, 32, uint32_t, uint32_t, ~x)
UNARY(not_b64, 64, uint64_t, uint64_t, ~x)
UNARY(cnot_b16, 32, uint16_t, uint16_t, x == 0)
UNARY(cnot_b32, 32, uint32_t, uint32_t, x == 0)
UNARY(cnot_b64, 64, uint64_t, uint64_t, x == 0)

EXEC(and_pred) {
    uint32_t a = src_predicate(warp, inst, 0), b = src_predicate(warp, inst, 1);
    set_predicate(warp, inst, 0, active, a & b);
    return EMU_STEP_NEXT;
}
EXEC(or_pred) {
    uint32_t a = src_predicate(warp, inst, 0), b = src_predicate(warp, inst, 1);
    set_predicate(warp, inst, 0, active, a | b);
    return EMU_STEP_NEXT;
}
EXEC(xor_pred) {
    uint32_t a = src_predicate(warp, inst, 0), b = src_predicate(warp, inst, 1);
    set_predicate(warp, inst, 0, active, a ^ b);
    return EMU_STEP_NEXT;
}
EXEC(not_pred) {
    set_predicate(warp, inst, 0, active, ~src_predicate(warp, inst, 0));
    return EMU_STEP_NEXT;
}

/* Shifts clamp their amount, always 32 bits, at the width. */
#define SHIFT_SOURCES(width) SOURCES1(width); const union lane32 *b = src32(warp, inst, 1)
LANE_HANDLER(shl_b16, 32, u, SHIFT_SOURCES(32), b->u[l] > 15 ? 0 : (uint16_t)(a->u[l] << b->u[l]))
LANE_HANDLER(shl_b32, 32, u, SHIFT_SOURCES(32), b->u[l] > 31 ? 0 : a->u[l] << (b->u[l] & 31))
LANE_HANDLER(shl_b64, 64, u, SHIFT_SOURCES(64), b->u[l] > 63 ? 0 : a->u[l] << (b->u[l] & 63))
LANE_HANDLER(shr_u16, 32, u, SHIFT_SOURCES(32), b->u[l] > 15 ? 0 : a->u[l] >> b->u[l])
LANE_HANDLER(shr_s16, 32, u, SHIFT_SOURCES(32),
             (uint16_t)((int16_t)a->u[l] >> (b->u[l] > 15 ? 15 : b->u[l])))
LANE_HANDLER(shr_u32, 32, u, SHIFT_SOURCES(32), b->u[l] > 31 ? 0 : a->u[l] >> (b->u[l] & 31))
LANE_HANDLER(shr_s32, 32, s, SHIFT_SOURCES(32), a->s[l] >> (b->u[l] > 31 ? 31 : b->u[l]))
LANE_HANDLER(shr_u64, 64, u, SHIFT_SOURCES(64), b->u[l] > 63 ? 0 : a->u[l] >> (b->u[l] & 63))
LANE_HANDLER(shr_s64, 64, s, SHIFT_SOURCES(64), a->s[l] >> (b->u[l] > 63 ? 63 : b->u[l]))

static inline uint32_t funnel_amount(const struct emu_inst *inst, uint32_t amount) {
    return inst->mods & EMU_MOD_WRAP ? amount & 31 : amount > 32 ? 32 : amount;
}
#define FUNNEL (((uint64_t)b->u[l] << 32) | a->u[l])
LANE_HANDLER(shf_l, 32, u, SOURCES3(32),
             (uint32_t)(FUNNEL << funnel_amount(inst, c->u[l]) >> 32))
LANE_HANDLER(shf_r, 32, u, SOURCES3(32), (uint32_t)(FUNNEL >> funnel_amount(inst, c->u[l])))

LANE_HANDLER(popc_b32, 32, u, SOURCES1(32), (uint32_t)__builtin_popcount(a->u[l]))
LANE_HANDLER(popc_b64, 32, u, SOURCES1(64), (uint32_t)__builtin_popcountll(a->u[l]))
LANE_HANDLER(clz_b32, 32, u, SOURCES1(32), a->u[l] ? (uint32_t)__builtin_clz(a->u[l]) : 32)
LANE_HANDLER(clz_b64, 32, u, SOURCES1(64), a->u[l] ? (uint32_t)__builtin_clzll(a->u[l]) : 64)

static inline uint64_t reverse_bits(uint64_t x) {
    x = ((x >> 1) & 0x5555555555555555u) | ((x & 0x5555555555555555u) << 1);
    x = ((x >> 2) & 0x3333333333333333u) | ((x & 0x3333333333333333u) << 2);
    x = ((x >> 4) & 0x0f0f0f0f0f0f0f0fu) | ((x & 0x0f0f0f0f0f0f0f0fu) << 4);
    return __builtin_bswap64(x);
}
LANE_HANDLER(brev_b32, 32, u, SOURCES1(32), (uint32_t)(reverse_bits(a->u[l]) >> 32))
LANE_HANDLER(brev_b64, 64, u, SOURCES1(64), reverse_bits(a->u[l]))

/* The highest bit that differs from the sign; .shiftamt: how far to the top. */
static inline uint32_t find_bit(uint64_t x, unsigned bits, bool shift_amount) {
    if (x == 0)
        return 0xffffffffu;
    uint32_t position = 63 - (uint32_t)__builtin_clzll(x);
    return shift_amount ? bits - 1 - position : position;
}
#define SHIFTAMT (inst->mods & EMU_MOD_SHIFTAMT)
LANE_HANDLER(bfind_u32, 32, u, SOURCES1(32), find_bit(a->u[l], 32, SHIFTAMT))
LANE_HANDLER(bfind_s32, 32, u, SOURCES1(32),
             find_bit((uint32_t)(a->s[l] ^ (a->s[l] >> 31)), 32, SHIFTAMT))
LANE_HANDLER(bfind_u64, 32, u, SOURCES1(64), find_bit(a->u[l], 64, SHIFTAMT))
LANE_HANDLER(bfind_s64, 32, u, SOURCES1(64),
             find_bit((uint64_t)(a->s[l] ^ (a->s[l] >> 63)), 64, SHIFTAMT))

/* Bit-field extract: fields beyond the value read as its sign (signed) or 0. */
static inline uint64_t extract_field(uint64_t x, uint32_t position, uint32_t length,
                                     unsigned bits, bool is_signed) {
    position &= 255;
    length &= 255;
    if (length == 0)
        return 0;
    uint32_t last = position + length - 1 > bits - 1 ? bits - 1 : position + length - 1;
    bool sign = is_signed && (x >> last & 1);
    uint64_t field = position >= bits ? 0 : x >> position;
    if (length < 64)
        field &= (1ull << length) - 1;
    uint32_t valid = position >= bits ? 0 : bits - position;
    uint32_t kept = length < valid ? length : valid;
    if (sign && kept < 64)
        field |= ~0ull << kept;
    return field;
}
#define FIELD_SOURCES(width) \
    SOURCES1(width); const union lane32 *b = src32(warp, inst, 1), *c = src32(warp, inst, 2)
LANE_HANDLER(bfe_u32, 32, u, FIELD_SOURCES(32),
             (uint32_t)extract_field(a->u[l], b->u[l], c->u[l], 32, false))
LANE_HANDLER(bfe_s32, 32, u, FIELD_SOURCES(32),
             (uint32_t)extract_field(a->u[l], b->u[l], c->u[l], 32, true))
LANE_HANDLER(bfe_u64, 64, u, FIELD_SOURCES(64),
             extract_field(a->u[l], b->u[l], c->u[l], 64, false))
LANE_HANDLER(bfe_s64, 64, u, FIELD_SOURCES(64),
             extract_field(a->u[l], b->u[l], c->u[l], 64, true))

static inline uint64_t insert_field(uint64_t field, uint64_t into, uint32_t position,
                                    uint32_t length, unsigned bits) {
    position &= 255;
    length &= 255;
    if (length == 0 || position >= bits)
        return into;
    uint64_t mask = (length >= 64 ? ~0ull : (1ull << length) - 1) << position;
    return (into & ~mask) | ((field << position) & mask);
}
#define INSERT_SOURCES(width) \
    SOURCES2(width); const union lane32 *c = src32(warp, inst, 2), *e = src32(warp, inst, 3)
LANE_HANDLER(bfi_b32, 32, u, INSERT_SOURCES(32),
             (uint32_t)insert_field(a->u[l], b->u[l], c->u[l], e->u[l], 32))
LANE_HANDLER(bfi_b64, 64, u, INSERT_SOURCES(64),
             insert_field(a->u[l], b->u[l], c->u[l], e->u[l], 64))

static inline uint32_t bit_mask(uint32_t position, uint32_t length, bool wrap) {
    if (wrap) {
        position &= 31;
        length &= 31;
    }
    if (position > 31 || length == 0)
        return 0;
    return (length > 31 ? ~0u : (1u << length) - 1) << position;
}
LANE_HANDLER(bmsk, 32, u, SOURCES2(32), bit_mask(a->u[l], b->u[l], inst->mods & EMU_MOD_WRAP))

/* Selects bytes of b:a; without a mode each nibble of c may also take a sign.
 */
static inline uint32_t permute(uint32_t a, uint32_t b, uint32_t c, enum emu_op mode) {
    static const uint8_t table[6][4][4] = {
        /* forward 4, backward 4 extract, replicate 8, edge clamp left, right,
         * replicate 16 */
        {{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}},
        {{0, 7, 6, 5}, {1, 0, 7, 6}, {2, 1, 0, 7}, {3, 2, 1, 0}},
        {{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}},
        {{0, 1, 2, 3}, {1, 1, 2, 3}, {2, 2, 2, 3}, {3, 3, 3, 3}},
        {{0, 0, 0, 0}, {0, 1, 1, 1}, {0, 1, 2, 2}, {0, 1, 2, 3}},
        {{0, 1, 0, 1}, {2, 3, 2, 3}, {0, 1, 0, 1}, {2, 3, 2, 3}},
    };
    uint64_t bytes = ((uint64_t)b << 32) | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t select = mode == EMU_OP_NONE ? (c >> (4 * i)) & 15
                                              : table[mode - EMU_OP_f4e][c & 3][i];
        uint32_t byte = (uint32_t)(bytes >> (8 * (select & 7))) & 255;
        if (select & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << (8 * i);
    }
    return result;
}
LANE_HANDLER(prmt, 32, u, SOURCES3(32), permute(a->u[l], b->u[l], c->u[l], inst->op))

static inline uint32_t logic3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (int i = 0; i < 8; i++)
        if (table >> i & 1)
            result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}
LANE_HANDLER(lop3, 32, u, SOURCES3(32),
             logic3(a->u[l], b->u[l], c->u[l], (uint32_t)inst->imm[0]))

/* dp4a: four byte products added to c. */
static inline uint32_t dot4(uint32_t a, uint32_t b, uint32_t c, bool a_signed, bool b_signed) {
    for (int i = 0; i < 4; i++) {
        int32_t x = a_signed ? (int8_t)(a >> (8 * i)) : (int32_t)(a >> (8 * i) & 255);
        int32_t y = b_signed ? (int8_t)(b >> (8 * i)) : (int32_t)(b >> (8 * i) & 255);
        c += (uint32_t)(x * y);
    }
    return c;
}
LANE_HANDLER(dp4a, 32, u, SOURCES3(32),
             dot4(a->u[l], b->u[l], c->u[l], inst->type == EMU_TYPE_s32,
                  inst->type2 == EMU_TYPE_s32))

static inline uint32_t absolute_difference_u32(uint32_t x, uint32_t y) {
    return x > y ? x - y : y - x;
}
static inline uint32_t absolute_difference_s32(int32_t x, int32_t y) {
    return x > y ? (uint32_t)x - (uint32_t)y : (uint32_t)y - (uint32_t)x;
}
LANE_HANDLER(sad_u32, 32, u, SOURCES3(32), absolute_difference_u32(a->u[l], b->u[l]) + c->u[l])
LANE_HANDLER(sad_s32, 32, u, SOURCES3(32), absolute_difference_s32(a->s[l], b->s[l]) + c->u[l])

/* Add and subtract with carry: add(.cc), addc(.cc), sub(.cc), subc(.cc).  The
 * carry of a subtraction is a borrow. */
static enum emu_step with_carry(struct emu_warp *warp, const struct emu_inst *inst,
                                uint32_t active, bool subtract, bool use_carry) {
    uint32_t carry_out = 0;
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint64_t x = lane_value(warp, inst->src[0], l), y = lane_value(warp, inst->src[1], l);
        uint64_t in = use_carry ? warp->carry >> l & 1 : 0;
        unsigned bits = inst->dst[0].width * 8u;
        uint128 sum = subtract ? (uint128)x - y - in : (uint128)x + y + in;
        carry_out |= (uint32_t)(sum >> bits & 1) << l;
        set_lane(warp, inst->dst[0], l, (uint64_t)sum);
    }
    if (inst->mods & EMU_MOD_CC)
        warp->carry = (warp->carry & ~active) | carry_out;
    return EMU_STEP_NEXT;
}
EXEC(add_cc) { return with_carry(warp, inst, active, false, false); }
EXEC(addc) { return with_carry(warp, inst, active, false, true); }
EXEC(sub_cc) { return with_carry(warp, inst, active, true, false); }
EXEC(subc) { return with_carry(warp, inst, active, true, true); }

/* mad.cc, madc of 32 bits: low or high half of a*b, plus c, plus carry. */
static enum emu_step mad_carry(struct emu_warp *warp, const struct emu_inst *inst,
                               uint32_t active, bool use_carry) {
    uint32_t carry_out = 0;
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint32_t x = src32(warp, inst, 0)->u[l], y = src32(warp, inst, 1)->u[l];
        uint64_t product = inst->type == EMU_TYPE_s32
                               ? (uint64_t)((int64_t)(int32_t)x * (int32_t)y) : (uint64_t)x * y;
        uint32_t half = inst->op == EMU_OP_hi ? (uint32_t)(product >> 32) : (uint32_t)product;
        uint64_t sum = (uint64_t)half + src32(warp, inst, 2)->u[l] +
                       (use_carry ? warp->carry >> l & 1 : 0);
        carry_out |= (uint32_t)(sum >> 32 & 1) << l;
        dst32(warp, inst, 0)->u[l] = (uint32_t)sum;
    }
    if (inst->mods & EMU_MOD_CC)
        warp->carry = (warp->carry & ~active) | carry_out;
    return EMU_STEP_NEXT;
}
EXEC(mad_cc) { return mad_carry(warp, inst, active, false); }
EXEC(madc) { return mad_carry(warp, inst, active, true); }
