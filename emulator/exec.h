/* What every instruction handler uses: operand access and lane loops.
 *
 * Registers are arrays of 32 lanes.  A handler computes all lanes, active or
 * not (no lane can trap), and commits the active ones; so its loops
 * vectorise. */
#ifndef ATTN_EMULATOR_EXEC_H
#define ATTN_EMULATOR_EXEC_H

#include <string.h>

#include "emulator/machine.h"

#define ALL_LANES 0xffffffffu

#define EXEC(name)                                   \
    enum emu_step exec_##name(struct emu_warp *warp, \
                              const struct emu_inst *inst, uint32_t active)

/* Loops over lanes carry nothing: source and destination are the same register
 * or do not overlap. */
#if defined(__GNUC__) && !defined(__clang__)
#define LANES _Pragma("GCC ivdep") for (int l = 0; l < EMU_LANES; l++)
#else
#define LANES for (int l = 0; l < EMU_LANES; l++)
#endif

/* Compiled twice where the compiler can: for AVX2 and FMA, and for any CPU. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define EMU_VECTOR __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define EMU_VECTOR
#endif

#define I(pattern, operands, handler, unit) emu_exec exec_##handler;
#include "emulator/opcodes.def"
#undef I

/* The end of a function: leaves it, or ends the lanes of an entry. */
emu_exec exec_end;

static inline void *value_at(struct emu_warp *warp, struct emu_value value) {
    return value.offset >= 0
               ? warp->regs + value.offset
               : (uint8_t *)(uintptr_t)(warp->constants + ~value.offset);
}

static inline const union lane32 *src32(struct emu_warp *warp,
                                        const struct emu_inst *inst, int i) {
    return value_at(warp, inst->src[i]);
}

static inline const union lane64 *src64(struct emu_warp *warp,
                                        const struct emu_inst *inst, int i) {
    return value_at(warp, inst->src[i]);
}

static inline union lane32 *dst32(struct emu_warp *warp,
                                  const struct emu_inst *inst, int i) {
    return value_at(warp, inst->dst[i]);
}

static inline union lane64 *dst64(struct emu_warp *warp,
                                  const struct emu_inst *inst, int i) {
    return value_at(warp, inst->dst[i]);
}

/* A predicate operand as a mask of lanes, negation applied. */
static inline uint32_t src_predicate(struct emu_warp *warp,
                                     const struct emu_inst *inst, int i) {
    uint32_t mask;
    memcpy(&mask, value_at(warp, inst->src[i]), sizeof mask);
    return inst->src[i].negated ? ~mask : mask;
}

static inline void set_predicate(struct emu_warp *warp,
                                 const struct emu_inst *inst, int i,
                                 uint32_t active, uint32_t mask) {
    uint32_t old, *at = value_at(warp, inst->dst[i]);
    memcpy(&old, at, sizeof old);
    old = (old & ~active) | (mask & active);
    memcpy(at, &old, sizeof old);
}

static inline void commit32(union lane32 *restrict d,
                            const union lane32 *restrict value,
                            uint32_t active) {
    for (int l = 0; l < EMU_LANES; l++)
        d->u[l] = (active >> l) & 1 ? value->u[l] : d->u[l];
}

static inline void commit64(union lane64 *restrict d,
                            const union lane64 *restrict value,
                            uint32_t active) {
    for (int l = 0; l < EMU_LANES; l++)
        d->u[l] = (active >> l) & 1 ? value->u[l] : d->u[l];
}

/* A value of any width in lane `l`, zero-extended; predicates not allowed. */
static inline uint64_t lane_value(struct emu_warp *warp, struct emu_value value,
                                  int l) {
    const void *at = value_at(warp, value);
    return value.width == 4 ? ((const union lane32 *)at)->u[l]
                            : ((const union lane64 *)at)->u[l];
}

static inline void set_lane(struct emu_warp *warp, struct emu_value value,
                            int l, uint64_t bits) {
    void *at = value_at(warp, value);
    if (value.width == 4)
        ((union lane32 *)at)->u[l] = (uint32_t)bits;
    else
        ((union lane64 *)at)->u[l] = bits;
}

/* What a register at least as wide as `type` holds of a value of that type:
 * sign-extended for signed types, else zero-extended. */
uint64_t emu_extend_to_register(struct emu_warp *warp, enum emu_type type,
                                struct emu_value value, uint64_t bits);

/* Reports a warp-wide instruction that not all 32 lanes execute. */
static inline bool check_converged(struct emu_warp *warp,
                                   const struct emu_inst *inst,
                                   uint32_t active) {
    if (active == ALL_LANES)
        return true;
    if (check_on(warp->cta, EMU_REPORT_CONVERGENCE))
        emu_report_add(warp, inst, EMU_REPORT_CONVERGENCE, active, 0,
                       "only lanes 0x%08x execute it; all 32 must", active);
    return false;
}

/* A handler whose destination 0 is `field` of a union lane##width: `setup`
 * declares the sources, `value` is computed for lane l. */
#define LANE_HANDLER(name, width, field, setup, value)    \
    EMU_VECTOR EXEC(name) {                               \
        setup;                                            \
        union lane##width *d = dst##width(warp, inst, 0); \
        if (active == ALL_LANES) {                        \
            LANES d->field[l] = value;                    \
        } else {                                          \
            union lane##width scratch;                    \
            LANES scratch.field[l] = value;               \
            commit##width(d, &scratch, active);           \
        }                                                 \
        return EMU_STEP_NEXT;                             \
    }

#endif
