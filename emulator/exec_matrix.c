/* ldmatrix, stmatrix, movmatrix and mma.sync.
 *
 * Fragments of an 8x8 matrix of 16-bit elements: lane l holds row l/4, columns
 * 2(l%4) and 2(l%4)+1.  The operands of mma.m16n8k16 are made of these:
 *
 *        k 0-7  k 8-15              n 0-7               n 0-7
 *   m 0-7  a0     a2       k 0-7     b0       m 0-7     c0 c1
 *   m 8-15 a1     a3       k 8-15    b1       m 8-15    c2 c3
 *
 * (B is held by columns).  f32 accumulation: products are exact, d starts at c
 * and takes the products in the order of k, rounding to nearest after each one.
 * Hardware adds blocks of 4 to 16 products with truncation, so its results
 * differ in the last bits.
 */
#include "emulator/access.h"
#include "emulator/exec.h"
#include "emulator/numeric.h"

/* Inlined into both clones of EMU_VECTOR functions. */
#define INLINE static inline __attribute__((always_inline))

static int matrix_count(const struct emu_inst *inst) {
    return inst->op == EMU_OP_x4 ? 4 : inst->op == EMU_OP_x2 ? 2 : 1;
}

/* Row addresses of lanes 0 … 8*count-1, counted as shared-memory requests. */
static void row_addresses(struct emu_warp *warp, const struct emu_inst *inst,
                          int count, bool write, uint32_t out[EMU_LANES]) {
    for (int l = 0; l < 8 * count; l++)
        out[l] = (uint32_t)(lane_value(warp, inst->src[0], l) +
                            (uint64_t)inst->disp[0]);
    for (int l = 8 * count; l < EMU_LANES; l++)
        out[l] = 0;
    emu_count_shared(warp->cta, out,
                     count == 4 ? ALL_LANES : (1u << (8 * count)) - 1, 16,
                     write);
}

/* Lanes 8m to 8m+7 give the row addresses of matrix m. */
EXEC(ldmatrix) {
    int count = matrix_count(inst);
    uint32_t rows[EMU_LANES];
    struct access access = emu_access_plain(warp, inst);
    if (!check_converged(warp, inst, active))
        return EMU_STEP_NEXT;
    row_addresses(warp, inst, count, false, rows);
    for (int m = 0; m < count; m++) {
        uint16_t element[8][8] = {{0}};
        for (int r = 0; r < 8; r++) {
            const uint8_t *at = emu_access_shared_range(
                &access, 8 * m + r, rows[8 * m + r], 16, 16, false);
            if (at)
                memcpy(element[r], at, 16);
        }
        union lane32 *d = dst32(warp, inst, m);
        for (int l = 0; l < EMU_LANES; l++) {
            int row = l / 4, column = 2 * (l % 4);
            d->u[l] = inst->mods & EMU_MOD_TRANS
                          ? element[column][row] |
                                (uint32_t)element[column + 1][row] << 16
                          : element[row][column] |
                                (uint32_t)element[row][column + 1] << 16;
        }
    }
    return EMU_STEP_NEXT;
}

/* The inverse of ldmatrix: fragments back to rows. */
EXEC(stmatrix) {
    int count = matrix_count(inst);
    uint32_t rows[EMU_LANES];
    struct access access = emu_access_plain(warp, inst);
    if (!check_converged(warp, inst, active))
        return EMU_STEP_NEXT;
    row_addresses(warp, inst, count, true, rows);
    for (int m = 0; m < count; m++) {
        uint16_t element[8][8];
        const union lane32 *a = src32(warp, inst, 1 + m);
        for (int l = 0; l < EMU_LANES; l++) {
            int row = l / 4, column = 2 * (l % 4);
            bool trans = inst->mods & EMU_MOD_TRANS;
            *(trans ? &element[column][row] : &element[row][column]) =
                (uint16_t)a->u[l];
            *(trans ? &element[column + 1][row] : &element[row][column + 1]) =
                (uint16_t)(a->u[l] >> 16);
        }
        for (int r = 0; r < 8; r++) {
            uint8_t *at = emu_access_shared_range(
                &access, 8 * m + r, rows[8 * m + r], 16, 16, true);
            if (at)
                memcpy(at, element[r], 16);
        }
    }
    return EMU_STEP_NEXT;
}

/* Transposes one 8x8 matrix held in registers. */
EXEC(movmatrix) {
    uint16_t element[8][8];
    union lane32 value;
    const union lane32 *a = src32(warp, inst, 0);
    if (!check_converged(warp, inst, active))
        return EMU_STEP_NEXT;
    for (int l = 0; l < EMU_LANES; l++) {
        element[l / 4][2 * (l % 4)] = (uint16_t)a->u[l];
        element[l / 4][2 * (l % 4) + 1] = (uint16_t)(a->u[l] >> 16);
    }
    for (int l = 0; l < EMU_LANES; l++)
        value.u[l] = element[2 * (l % 4)][l / 4] |
                     (uint32_t)element[2 * (l % 4) + 1][l / 4] << 16;
    commit32(dst32(warp, inst, 0), &value, ALL_LANES);
    return EMU_STEP_NEXT;
}

/* ---- mma.sync ---------------------------------------------------------- */

/* Both halves of each lane as floats: out[half][lane]. */
INLINE void widen(const union lane32 *a, bool is_bf16,
                  float out[2][EMU_LANES]) {
    if (is_bf16) {
        LANES out[0][l] = float_of_bits(a->u[l] << 16);
        LANES out[1][l] = float_of_bits(a->u[l] & 0xffff0000u);
    } else {
        LANES out[0][l] = f32_of_f16(a->u[l] & 0xffff);
        LANES out[1][l] = f32_of_f16(a->u[l] >> 16);
    }
}

/* A by columns, so that 8 rows lie side by side; B by rows. */
struct tile {
    float a[16][16]; /* [k][m] */
    float b[16][8];  /* [k][n] */
    float c[16][8];  /* [m][n] */
};

/* Lane l holds row or column l/4, k = 2(l%4) and the next one, of an 8x8 block
 * whose k-th line starts at `out` + k * pitch. */
INLINE void spread(float half[2][EMU_LANES], float *out, int pitch) {
    for (int t = 0; t < 4; t++)
        for (int g = 0; g < 8; g++) {
            out[2 * t * pitch + g] = half[0][4 * g + t];
            out[(2 * t + 1) * pitch + g] = half[1][4 * g + t];
        }
}

INLINE void load_operands(struct emu_warp *warp, const struct emu_inst *inst,
                          int k_size, bool is_bf16, struct tile *t) {
    float half[2][EMU_LANES];
    int a_registers = k_size / 4, b_registers = k_size / 8;
    for (int i = 0; i < a_registers; i++) {
        widen(src32(warp, inst, i), is_bf16, half);
        spread(half, &t->a[8 * (i >> 1)][8 * (i & 1)], 16);
    }
    for (int i = 0; i < b_registers; i++) {
        widen(src32(warp, inst, a_registers + i), is_bf16, half);
        spread(half, t->b[8 * i], 8);
    }
}

INLINE void multiply(struct tile *t, int k_size) {
    for (int m = 0; m < 16; m++) {
        float sum[8];
        memcpy(sum, t->c[m], sizeof sum);
        for (int k = 0; k < k_size; k++)
            for (int n = 0; n < 8; n++)
                sum[n] += t->a[k][m] * t->b[k][n];
        memcpy(t->c[m], sum, sizeof sum);
    }
}

/* c[i][j] are two neighbouring columns in rows l/4 and l/4 + 8. */
EMU_VECTOR static void mma_f32(struct emu_warp *warp,
                               const struct emu_inst *inst, int k_size,
                               bool is_bf16) {
    struct tile t;
    int first = k_size / 4 + k_size / 8; /* of C among the sources */
    load_operands(warp, inst, k_size, is_bf16, &t);
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < EMU_LANES; l++)
            t.c[l / 4 + 8 * (i >> 1)][2 * (l % 4) + (i & 1)] =
                src32(warp, inst, first + i)->f[l];
    multiply(&t, k_size);
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < EMU_LANES; l++)
            dst32(warp, inst, i)->u[l] = canonical(bits_of_float(
                t.c[l / 4 + 8 * (i >> 1)][2 * (l % 4) + (i & 1)]));
}

/* f16 accumulators: summed in f32, rounded once at the end. */
EMU_VECTOR static void mma_f16(struct emu_warp *warp,
                               const struct emu_inst *inst, int k_size) {
    struct tile t;
    int first = k_size / 4 + k_size / 8;
    float half[2][EMU_LANES];
    load_operands(warp, inst, k_size, false, &t);
    for (int i = 0; i < 2; i++) {
        widen(src32(warp, inst, first + i), false, half);
        for (int l = 0; l < EMU_LANES; l++)
            for (int h = 0; h < 2; h++)
                t.c[l / 4 + 8 * i][2 * (l % 4) + h] = half[h][l];
    }
    multiply(&t, k_size);
    for (int i = 0; i < 2; i++)
        for (int l = 0; l < EMU_LANES; l++) {
            const float *c = &t.c[l / 4 + 8 * i][2 * (l % 4)];
            dst32(warp, inst, i)->u[l] = f16_of_f32(bits_of_float(c[0])) |
                                         f16_of_f32(bits_of_float(c[1])) << 16;
        }
}

/* All 32 lanes hold a part of each operand. */
static enum emu_step mma(struct emu_warp *warp, const struct emu_inst *inst,
                         uint32_t active, int k_size) {
    if (!check_converged(warp, inst, active))
        return EMU_STEP_NEXT;
    if (inst->type == EMU_TYPE_f32)
        mma_f32(warp, inst, k_size, inst->type2 == EMU_TYPE_bf16);
    else
        mma_f16(warp, inst, k_size);
    warp->cta->counters.mma_flop += 2u * 16 * 8 * (unsigned)k_size;
    return EMU_STEP_NEXT;
}
EXEC(mma_k16) {
    return mma(warp, inst, active, 16);
}
EXEC(mma_k8) {
    return mma(warp, inst, active, 8);
}
