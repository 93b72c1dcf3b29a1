/* wgmma: warpgroup matrix multiply with operands in shared memory.
 *
 * The four warps of a warpgroup each compute 16 rows of the 64; no exchange
 * between them is needed, so each executes its part on its own.  The operation
 * runs when its group is waited for: until then the accumulators and the
 * registers of A must not be touched, and shared memory is being read.
 *
 * Shared-memory descriptors (ISA, matrix-descriptor; CUTLASS
 * mma_traits_sm90_gmma): with S bytes of swizzle (16: none) a 16-byte chunk of
 *
 *   K-major   row r, chunk c:        (r/8) stride + (r%8) S + 16 c
 *             without swizzle:       (r/8) stride + (r%8) 16 + c leading
 *   MN-major  chunk c along MN, k:   (c/(S/16)) leading + (k/8) stride
 *                                      + (k%8) S + (c%(S/16)) 16
 *             without swizzle:       c stride + (k/8) leading + (k%8) 16
 *
 * and the chunk's address bits are then swizzled as TMA does.
 * Accumulation is in f32, in the order of k, rounded after each product.
 */
#include "emulator/access.h"
#include "emulator/exec.h"
#include "emulator/numeric.h"
#include "emulator/tensor_map.h"
#include "emulator/trace.h"

enum {
    FLIGHT_ACCUMULATOR = 1,
    FLIGHT_A = 2,
    UNFENCED = 4,
    K_SIZE = 16,
    MAX_N = 256
};

struct operand {
    uint32_t start, leading, stride, swizzle_bytes;
    enum emu_tensor_swizzle swizzle;
    bool mn_major;
};

/* Fields of a matrix descriptor; addresses are in units of 16 bytes. */
static struct operand decode(uint64_t descriptor, bool mn_major) {
    static const enum emu_tensor_swizzle swizzles[4] = {
        EMU_SWIZZLE_NONE, EMU_SWIZZLE_128B, EMU_SWIZZLE_64B, EMU_SWIZZLE_32B};
    static const uint32_t bytes[4] = {16, 128, 64, 32};
    unsigned mode = (unsigned)(descriptor >> 62);
    return (struct operand){
        .start = (uint32_t)(descriptor & 0x3fff) << 4,
        .leading = (uint32_t)(descriptor >> 16 & 0x3fff) << 4,
        .stride = (uint32_t)(descriptor >> 32 & 0x3fff) << 4,
        .swizzle_bytes = bytes[mode],
        .swizzle = swizzles[mode],
        .mn_major = mn_major};
}

/* Address of chunk `c` of row `r` (K-major: r along M or N, c along K;
 * MN-major: r along K, c along M or N). */
static uint32_t chunk_address(const struct operand *o, uint32_t r, uint32_t c) {
    uint32_t s = o->swizzle_bytes, at;
    if (o->swizzle == EMU_SWIZZLE_NONE)
        at = o->mn_major ? c * o->stride + r / 8 * o->leading + r % 8 * 16
                         : r / 8 * o->stride + r % 8 * 16 + c * o->leading;
    else if (o->mn_major)
        at = c / (s / 16) * o->leading + r / 8 * o->stride + r % 8 * s +
             c % (s / 16) * 16;
    else
        at = r / 8 * o->stride + r % 8 * s + c * 16;
    return tensor_swizzle(o->start + at, o->swizzle);
}

/* Rows of K or of M/N, whichever memory has as rows, and 16-byte chunks of
 * each, of `count` rows along M or N. */
struct extent {
    uint32_t rows, chunks;
};

static struct extent extent_of(const struct operand *o, uint32_t count) {
    return o->mn_major ? (struct extent){K_SIZE, count / 8}
                       : (struct extent){count, 2};
}

/* Address of chunk c of row r, counted from `first` along M or N. */
static uint32_t chunk_behind(const struct operand *o, uint32_t first,
                             uint32_t r, uint32_t c) {
    return o->mn_major ? chunk_address(o, r, first / 8 + c)
                       : chunk_address(o, first + r, c);
}

/* Checks the reads of rows [first, first+count) along M or N. */
static void check_operand(struct emu_warp *warp, const struct emu_inst *inst,
                          const struct operand *o, uint32_t first,
                          uint32_t count) {
    struct access access = emu_access_plain(warp, inst);
    access.async_proxy = true;
    access.stamp = EMU_CLOCK_IN_FLIGHT;
    struct extent n = extent_of(o, count);
    for (uint32_t r = 0; r < n.rows; r++)
        for (uint32_t c = 0; c < n.chunks; c++) {
            uint32_t at = chunk_behind(o, first, r, c);
            emu_access_shared_range(&access, 0, at, 16, 16, false);
        }
    warp->cta->counters.shared_read_bytes += (uint64_t)n.rows * n.chunks * 16;
}

/* The reads end: from here on the memory may be overwritten. */
static void release_operand(struct emu_warp *warp, const struct operand *o,
                            uint32_t first, uint32_t count) {
    struct extent n = extent_of(o, count);
    for (uint32_t r = 0; r < n.rows; r++)
        for (uint32_t c = 0; c < n.chunks; c++) {
            uint32_t at = chunk_behind(o, first, r, c);
            if (at + 16 <= warp->cta->shared_bytes)
                emu_access_shared_was_read(warp, at, 16);
        }
}

/* out[k * pitch + row - first] of the operand as floats. */
static void gather(struct emu_warp *warp, const struct operand *o,
                   uint32_t first, uint32_t count, bool is_bf16, float *out,
                   uint32_t pitch) {
    const struct emu_cta *cta = warp->cta;
    struct extent n = extent_of(o, count);
    for (uint32_t r = 0; r < n.rows; r++)
        for (uint32_t c = 0; c < n.chunks; c++) {
            uint32_t at = chunk_behind(o, first, r, c);
            uint16_t bits[8] = {0};
            if (at + 16 <= cta->shared_bytes)
                memcpy(bits, cta->shared + at, 16);
            for (uint32_t i = 0; i < 8; i++) {
                float value =
                    is_bf16 ? f32_of_bf16(bits[i]) : f32_of_f16(bits[i]);
                if (o->mn_major)
                    out[r * pitch + c * 8 + i] = value;
                else
                    out[(c * 8 + i) * pitch + r] = value;
            }
        }
}

static bool from_registers(const struct emu_inst *inst) {
    return inst->exec == exec_wgmma_rs;
}

/* Sources: SS a, b, scale-d; RS a0-a3, b, scale-d.  Constants: scale-a,
 * scale-b, transpose-a (SS only), transpose-b. */
static struct operand operand_a(const struct wgmma_op *op) {
    return decode(op->a, op->inst->imm[2] != 0);
}
static struct operand operand_b(const struct wgmma_op *op) {
    return decode(op->b, op->inst->imm[from_registers(op->inst) ? 2 : 3] != 0);
}

/* Warp i of a warpgroup has rows 16i to 16i+15 of A and D. */
static uint32_t first_row(const struct emu_warp *warp) {
    return (uint32_t)warp->index % 4 * 16;
}

/* ---- computing --------------------------------------------------------- */

struct product {
    float a[K_SIZE][16];
    float b[K_SIZE][MAX_N];
    float d[16][MAX_N];
};

/* The fragment of registers is that of mma.m16n8k16. */
static void load_a(struct emu_warp *warp, const struct wgmma_op *op,
                   bool is_bf16, struct product *p) {
    if (!from_registers(op->inst)) {
        struct operand a = operand_a(op);
        gather(warp, &a, first_row(warp), 16, is_bf16, p->a[0], 16);
        return;
    }
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < EMU_LANES; l++) {
            uint32_t bits = src32(warp, op->inst, i)->u[l];
            int row = l / 4 + 8 * (i & 1), k = 2 * (l % 4) + 8 * (i >> 1);
            p->a[k][row] =
                is_bf16 ? float_of_bits(bits << 16) : f32_of_f16(bits & 0xffff);
            p->a[k + 1][row] = is_bf16 ? float_of_bits(bits & 0xffff0000u)
                                       : f32_of_f16(bits >> 16);
        }
}

/* D += scale A B, one rank at a time. */
EMU_VECTOR static void multiply(struct product *p, int n_size, float scale) {
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < K_SIZE; k++) {
            float a = p->a[k][m] * scale;
            const float *b = p->b[k];
            float *d = p->d[m];
            for (int n = 0; n < n_size; n += 8)
                for (int i = 0; i < 8; i++)
                    d[n + i] += a * b[n + i];
        }
}

/* Zero, or the accumulators where scale-d says so. */
static void load_d(struct emu_warp *warp, const struct wgmma_op *op,
                   struct product *p) {
    const struct emu_inst *inst = op->inst;
    int n_size = inst->shape_n;
    for (int m = 0; m < 16; m++)
        memset(p->d[m], 0, (size_t)n_size * sizeof(float));
    for (int i = 0; op->accumulate && i < inst->dst_count; i++)
        for (int l = 0; l < EMU_LANES; l++) {
            const union lane32 *d = dst32(warp, inst, i);
            if (inst->type == EMU_TYPE_f32) {
                p->d[l / 4 + 8 * (i >> 1 & 1)]
                    [8 * (i / 4) + 2 * (l % 4) + (i & 1)] = d->f[l];
            } else {
                float *at =
                    &p->d[l / 4 + 8 * (i & 1)][8 * (i / 2) + 2 * (l % 4)];
                at[0] = f32_of_f16(d->u[l] & 0xffff);
                at[1] = f32_of_f16(d->u[l] >> 16);
            }
        }
}

static void store_d(struct emu_warp *warp, const struct wgmma_op *op,
                    const struct product *p) {
    const struct emu_inst *inst = op->inst;
    for (int i = 0; i < inst->dst_count; i++)
        for (int l = 0; l < EMU_LANES; l++) {
            union lane32 *d = dst32(warp, inst, i);
            if (inst->type == EMU_TYPE_f32) {
                d->u[l] = canonical(
                    bits_of_float(p->d[l / 4 + 8 * (i >> 1 & 1)]
                                      [8 * (i / 4) + 2 * (l % 4) + (i & 1)]));
            } else {
                const float *at =
                    &p->d[l / 4 + 8 * (i & 1)][8 * (i / 2) + 2 * (l % 4)];
                d->u[l] = f16_of_f32(bits_of_float(at[0])) |
                          f16_of_f32(bits_of_float(at[1])) << 16;
            }
        }
}

/* The whole operation, at the moment it is waited for. */
static void complete(struct emu_warp *warp, const struct wgmma_op *op) {
    struct product p;
    const struct emu_inst *inst = op->inst;
    bool is_bf16 = inst->type2 == EMU_TYPE_bf16;
    struct operand b = operand_b(op);
    load_a(warp, op, is_bf16, &p);
    gather(warp, &b, 0, inst->shape_n, is_bf16, p.b[0], MAX_N);
    load_d(warp, op, &p);
    multiply(&p, inst->shape_n, (float)(inst->imm[0] * inst->imm[1]));
    store_d(warp, op, &p);
    release_operand(warp, &b, 0, inst->shape_n);
    if (!from_registers(inst)) {
        struct operand a = operand_a(op);
        release_operand(warp, &a, first_row(warp), 16);
    }
}

/* ---- registers in flight ----------------------------------------------- */

/* Flags of the registers that the operation uses, set or cleared. */
static void mark_registers(struct emu_warp *warp, const struct emu_inst *inst,
                           bool in_flight) {
    for (int i = 0; i < inst->dst_count; i++) {
        uint8_t *flags = &warp->reg_flight[inst->dst[i].reg];
        *flags = in_flight
                     ? *flags | FLIGHT_ACCUMULATOR
                     : *flags & (uint8_t) ~(FLIGHT_ACCUMULATOR | UNFENCED);
    }
    for (int i = 0; from_registers(inst) && i < 4; i++) {
        if (inst->src[i].reg < 0)
            continue;
        uint8_t *flags = &warp->reg_flight[inst->src[i].reg];
        *flags = in_flight ? *flags | FLIGHT_A : *flags & (uint8_t)~FLIGHT_A;
    }
}

static bool is_wgmma(const struct emu_inst *inst) {
    return inst->exec == exec_wgmma_ss || inst->exec == exec_wgmma_rs;
}

static void report_flight(struct emu_warp *warp, const struct emu_inst *inst,
                          uint32_t active, int32_t reg, const char *verb) {
    const struct emu_module *module = warp->cta->grid->module;
    if (check_on(warp->cta, EMU_REPORT_WGMMA_REGISTER))
        emu_report_add(warp, inst, EMU_REPORT_WGMMA_REGISTER, active, 0,
                       "%s %s, %s of a wgmma that was not waited for", verb,
                       module->registers.data[reg].name,
                       warp->reg_flight[reg] & FLIGHT_ACCUMULATOR
                           ? "an accumulator"
                           : "part of the operand A");
}

void emu_wgmma_check_registers(struct emu_warp *warp,
                               const struct emu_inst *inst, uint32_t active) {
    uint8_t own = is_wgmma(inst) ? FLIGHT_ACCUMULATOR : 0;
    for (int i = 0; i < inst->dst_count; i++)
        if (warp->reg_flight[inst->dst[i].reg] &
            (FLIGHT_ACCUMULATOR | FLIGHT_A) & ~own)
            report_flight(warp, inst, active, inst->dst[i].reg, "writes");
    own = is_wgmma(inst) ? FLIGHT_A : 0;
    for (int i = 0; i < inst->src_count; i++)
        if (inst->src[i].reg >= 0 && (warp->reg_flight[inst->src[i].reg] &
                                      (FLIGHT_ACCUMULATOR | FLIGHT_A) & ~own))
            report_flight(warp, inst, active, inst->src[i].reg, "reads");
}

void emu_wgmma_note_writes(struct emu_warp *warp, const struct emu_inst *inst) {
    for (int i = 0; !is_wgmma(inst) && i < inst->dst_count; i++)
        warp->reg_flight[inst->dst[i].reg] |= UNFENCED;
}

/* The first wgmma needs a fence in any case, later ones when a register that
 * they use was written since. */
static void check_fenced(struct emu_warp *warp, const struct emu_inst *inst) {
    const struct emu_module *module = warp->cta->grid->module;
    const char *name = NULL;
    if (!warp->wgmma_fenced && check_on(warp->cta, EMU_REPORT_WGMMA_REGISTER))
        emu_report_add(warp, inst, EMU_REPORT_WGMMA_REGISTER, ALL_LANES, 0,
                       "no wgmma.fence before the warp's first wgmma");
    warp->wgmma_fenced = true;
    for (int i = 0; i < inst->dst_count; i++)
        if (warp->reg_flight[inst->dst[i].reg] & UNFENCED)
            name = module->registers.data[inst->dst[i].reg].name;
    for (int i = 0; from_registers(inst) && i < 4; i++)
        if (inst->src[i].reg >= 0 &&
            warp->reg_flight[inst->src[i].reg] & UNFENCED)
            name = module->registers.data[inst->src[i].reg].name;
    if (name && check_on(warp->cta, EMU_REPORT_WGMMA_REGISTER))
        emu_report_add(warp, inst, EMU_REPORT_WGMMA_REGISTER, ALL_LANES, 0,
                       "%s was written and no wgmma.fence followed", name);
}

/* ---- instructions ------------------------------------------------------ */

/* Only when they are added to: scale-d false overwrites them. */
static void check_accumulators(struct emu_warp *warp,
                               const struct emu_inst *inst) {
    const struct emu_module *module = warp->cta->grid->module;
    for (int i = 0; i < inst->dst_count; i++) {
        int32_t reg = inst->dst[i].reg;
        if (warp->init[reg] == ALL_LANES)
            continue;
        if (check_on(warp->cta, EMU_REPORT_UNINITIALISED_REGISTER))
            emu_report_add(warp, inst, EMU_REPORT_UNINITIALISED_REGISTER,
                           ~warp->init[reg], 0,
                           "the accumulator %s was never written",
                           module->registers.data[reg].name);
        warp->init[reg] = ALL_LANES;
    }
}

/* Checks everything at issue, computes nothing. */
static enum emu_step issue(struct emu_warp *warp, const struct emu_inst *inst,
                           uint32_t active) {
    struct emu_cta *cta = warp->cta;
    int b = from_registers(inst) ? 4 : 1;
    if (!check_converged(warp, inst, active))
        return EMU_STEP_NEXT;
    if (cta->warp_count % 4 && check_on(cta, EMU_REPORT_INVALID))
        emu_report_add(warp, inst, EMU_REPORT_INVALID, active, 0,
                       "%d warps do not make whole warpgroups",
                       cta->warp_count);
    uint32_t scale = src_predicate(warp, inst, b + 1);
    struct wgmma_op op = {.inst = inst,
                          .group = warp->wgmma_group,
                          .accumulate = scale & 1,
                          .a = src64(warp, inst, 0)->u[0],
                          .b = src64(warp, inst, b)->u[0]};
    struct operand operand = operand_b(&op);
    if (op.accumulate)
        check_accumulators(warp, inst);
    check_fenced(warp, inst);
    check_operand(warp, inst, &operand, 0, inst->shape_n);
    if (!from_registers(inst)) {
        operand = operand_a(&op);
        check_operand(warp, inst, &operand, first_row(warp), 16);
    }
    mark_registers(warp, inst, true);
    uint64_t flop = 2u * 16 * K_SIZE * (uint64_t)inst->shape_n;
    cta->counters.mma_flop += flop;
    if (cta->trace)
        op.done = emu_trace_wgmma(cta->trace, warp, flop);
    vec_push(cta->arena, &warp->wgmma, op);
    return EMU_STEP_NEXT;
}
EXEC(wgmma_ss) {
    return issue(warp, inst, active);
}
EXEC(wgmma_rs) {
    return issue(warp, inst, active);
}

/* What was written so far may be used by a wgmma. */
EXEC(wgmma_fence) {
    const struct emu_module *module = warp->cta->grid->module;
    (void)inst;
    (void)active;
    for (size_t r = 0; r < module->registers.count; r++)
        warp->reg_flight[r] &= (uint8_t)~UNFENCED;
    warp->wgmma_fenced = true;
    return EMU_STEP_NEXT;
}

EXEC(wgmma_commit) {
    (void)inst;
    (void)active;
    warp->wgmma_group++;
    return EMU_STEP_NEXT;
}

/* wait_group N: in order of issue, all but the last N groups. */
EXEC(wgmma_wait) {
    size_t kept = 0;
    (void)active;
    for (size_t i = 0; i < warp->wgmma.count; i++) {
        struct wgmma_op *op = &warp->wgmma.data[i];
        if (op->group + (uint64_t)inst->imm[0] >= warp->wgmma_group) {
            warp->wgmma.data[kept++] = *op;
            continue;
        }
        complete(warp, op);
        mark_registers(warp, op->inst, false);
        warp->time = warp->time > op->done ? warp->time : op->done;
    }
    warp->wgmma.count = kept;
    for (size_t i = 0; i < kept; i++)
        mark_registers(warp, warp->wgmma.data[i].inst, true);
    return EMU_STEP_NEXT;
}
