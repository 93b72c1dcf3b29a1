/* The straight-line code behind the reference: spec lines compiled to steps
 * over REF_LANES neighbouring keys of one row.
 *
 * Three programs share one set of slots.  `row` runs once per query row and
 * fills what does not depend on the key; `mask` and `score` run once per block
 * of keys, mask first.  A slot holds one value per lane: bool (0 or 1) and i32
 * in .i, f32 in .f, and f32 values that depend on `s` in .d, as double.
 */
#ifndef ATTN_REFERENCE_CODE_H
#define ATTN_REFERENCE_CODE_H

#include <stdint.h>

#include "frontend/ast.h"
#include "reference/reference.h"
#include "support/vec.h"

enum { REF_LANES = 64 };

union ref_slot {
    int32_t i[REF_LANES];
    float f[REF_LANES];
    double d[REF_LANES];
};

/* Operations: id, field of the operands, field of the result, value from x, y,
 * z. Families (ADD_I ADD_F ADD_D) stand in the order I, F, D. */
/* clang-format off */
#define REF_OPS(OP) \
    OP(ADD_I, i, i, wrap(u(x) + u(y)))           \
    OP(ADD_F, f, f, x + y)                       \
    OP(ADD_D, d, d, x + y)                       \
    OP(SUB_I, i, i, wrap(u(x) - u(y)))           \
    OP(SUB_F, f, f, x - y)                       \
    OP(SUB_D, d, d, x - y)                       \
    OP(MUL_I, i, i, wrap(u(x) * u(y)))           \
    OP(MUL_F, f, f, x * y)                       \
    OP(MUL_D, d, d, x * y)                       \
    OP(DIV_I, i, i, floor_div(x, y))             \
    OP(DIV_F, f, f, x / y)                       \
    OP(DIV_D, d, d, x / y)                       \
    OP(MOD_I, i, i, floor_mod(x, y))             \
    OP(MOD_F, f, f, float_mod(x, y))             \
    OP(MOD_D, d, d, x - y * floor(x / y))        \
    OP(LT_I, i, i, x < y)                        \
    OP(LT_F, f, i, x < y)                        \
    OP(LT_D, d, i, x < y)                        \
    OP(LE_I, i, i, x <= y)                       \
    OP(LE_F, f, i, x <= y)                       \
    OP(LE_D, d, i, x <= y)                       \
    OP(GT_I, i, i, x > y)                        \
    OP(GT_F, f, i, x > y)                        \
    OP(GT_D, d, i, x > y)                        \
    OP(GE_I, i, i, x >= y)                       \
    OP(GE_F, f, i, x >= y)                       \
    OP(GE_D, d, i, x >= y)                       \
    OP(EQ_I, i, i, x == y)                       \
    OP(EQ_F, f, i, x == y)                       \
    OP(EQ_D, d, i, x == y)                       \
    OP(NE_I, i, i, x != y)                       \
    OP(NE_F, f, i, x != y)                       \
    OP(NE_D, d, i, x != y)                       \
    OP(MIN_I, i, i, x < y ? x : y)               \
    OP(MIN_F, f, f, fminf(x, y))                 \
    OP(MIN_D, d, d, fmin(x, y))                  \
    OP(MAX_I, i, i, x > y ? x : y)               \
    OP(MAX_F, f, f, fmaxf(x, y))                 \
    OP(MAX_D, d, d, fmax(x, y))                  \
    OP(ABS_I, i, i, x < 0 ? wrap(0u - u(x)) : x) \
    OP(ABS_F, f, f, fabsf(x))                    \
    OP(ABS_D, d, d, fabs(x))                     \
    OP(NEG_I, i, i, wrap(0u - u(x)))             \
    OP(NEG_F, f, f, -x)                          \
    OP(NEG_D, d, d, -x)                          \
    OP(AND_I, i, i, x & y)                       \
    OP(OR_I, i, i, x | y)                        \
    OP(XOR_I, i, i, x ^ y)                       \
    OP(SHL_I, i, i, wrap(u(x) << (y & 31)))      \
    OP(SHR_I, i, i, x >> (y & 31))               \
    OP(NOT_B, i, i, !x)                          \
    OP(NOT_I, i, i, ~x)                          \
    OP(EXP_F, f, f, (float)exp((double)x))       \
    OP(EXP_D, d, d, exp(x))                      \
    OP(EXP2_F, f, f, (float)exp2((double)x))     \
    OP(EXP2_D, d, d, exp2(x))                    \
    OP(LOG_F, f, f, (float)log((double)x))       \
    OP(LOG_D, d, d, log(x))                      \
    OP(LOG2_F, f, f, (float)log2((double)x))     \
    OP(LOG2_D, d, d, log2(x))                    \
    OP(SQRT_F, f, f, sqrtf(x))                   \
    OP(SQRT_D, d, d, sqrt(x))                    \
    OP(RSQRT_F, f, f, (float)(1.0 / sqrt((double)x))) \
    OP(RSQRT_D, d, d, 1.0 / sqrt(x))             \
    OP(TANH_F, f, f, (float)tanh((double)x))     \
    OP(TANH_D, d, d, tanh(x))                    \
    OP(SIGMOID_F, f, f, (float)(1.0 / (1.0 + exp(-(double)x)))) \
    OP(SIGMOID_D, d, d, 1.0 / (1.0 + exp(-x)))   \
    OP(SIN_F, f, f, (float)sin((double)x))       \
    OP(SIN_D, d, d, sin(x))                      \
    OP(COS_F, f, f, (float)cos((double)x))       \
    OP(COS_D, d, d, cos(x))                      \
    OP(FLOOR_F, f, f, floorf(x))                 \
    OP(FLOOR_D, d, d, floor(x))                  \
    OP(CEIL_F, f, f, ceilf(x))                   \
    OP(CEIL_D, d, d, ceil(x))                    \
    OP(ROUND_F, f, f, rintf(x))                  \
    OP(ROUND_D, d, d, rint(x))                   \
    OP(POW_F, f, f, (float)pow((double)x, (double)y)) \
    OP(POW_D, d, d, pow(x, y))                   \
    OP(I_TO_F, i, f, (float)x)                   \
    OP(I_TO_D, i, d, (double)x)                  \
    OP(F_TO_D, f, d, (double)x)                  \
    OP(F_TO_I, f, i, saturate(x))                \
    OP(D_TO_I, d, i, saturate(x))                \
    OP(I_TO_B, i, i, x != 0)                     \
    OP(F_TO_B, f, i, x != 0)                     \
    OP(D_TO_B, d, i, x != 0)
/* clang-format on */

enum ref_op {
#define OP(id, from, to, value) REF_##id,
    REF_OPS(OP)
#undef OP
        REF_SELECT_I, /* x (i32) ? y : z in one field */
    REF_SELECT_F,
    REF_SELECT_D,
    REF_READ, /* tensor[slots of `indices`] */
};

/* slots[out] = op(slots[in[0]], slots[in[1]], slots[in[2]]) in every lane. */
struct ref_step {
    enum ref_op op;
    uint32_t out;
    uint32_t in[3]; /* unused operands repeat slot 0 */
    const struct tensor *tensor;
    uint32_t indices[KERNEL_MAX_RANK];
};

typedef VEC(struct ref_step) ref_steps;

/* Slots with a fixed meaning; the first INDEX_COUNT are the index names. */
enum {
    REF_SLOT_S = INDEX_COUNT, /* scaled score, .d */
    REF_SLOT_SIZES,           /* SIZE_COUNT slots */
    REF_SLOT_FIRST_FREE = REF_SLOT_SIZES + SIZE_COUNT,
};

/* A slot filled once per call: a constant or a parameter. */
struct ref_preset {
    uint32_t slot;
    const struct param *param; /* NULL: `bits` */
    uint32_t bits;
};

struct ref_program {
    const struct attention *attention;
    ref_steps row, mask, score;
    ref_steps scale; /* over presets only */
    VEC(struct ref_preset) presets;
    uint32_t slot_count;
    bool has_mask, has_score, has_scale;
    uint32_t mask_slot;  /* .i, valid if has_mask */
    uint32_t score_slot; /* .d: REF_SLOT_S without score lines */
    uint32_t scale_slot; /* .f, valid if has_scale */
};

/* The slots of one evaluator, presets, sizes and everything per call
 * filled in. */
union ref_slot *ref_slots_create(struct arena *arena,
                                 const struct ref_program *program,
                                 const struct ref_call *call);

/* Executes steps on all lanes. */
void ref_execute(const ref_steps *steps, union ref_slot *slots,
                 const struct ref_call *call);

/* Sets b, h, h_kv and q, and runs the row program. */
void ref_begin_row(const struct ref_program *program,
                   const struct ref_call *call, union ref_slot *slots,
                   int64_t b, int64_t h, int64_t q);

/* Sets kv of lane i to first+i (clamped to the last key, so that lanes beyond
 * it stay harmless) and runs the mask program.  Lanes beyond `count` are
 * masked. */
const int32_t *ref_mask_block(const struct ref_program *program,
                              const struct ref_call *call,
                              union ref_slot *slots, int64_t first,
                              int64_t count);

#endif
