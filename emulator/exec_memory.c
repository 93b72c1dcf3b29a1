/* Loads, stores, atomics, address conversion. */
#include <math.h>

#include "emulator/access.h"
#include "emulator/exec.h"
#include "emulator/numeric.h"

/* The address of operand `operand` in each active lane; 32-bit bases wrap. */
static void lane_addresses(struct emu_warp *warp, const struct emu_inst *inst,
                           int operand, int address_index, uint32_t active,
                           uint64_t out[EMU_LANES]) {
    int64_t disp = inst->disp[address_index];
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint64_t base = lane_value(warp, inst->src[operand], l);
        out[l] = inst->src[operand].width == 4
                     ? (uint32_t)(base + (uint64_t)disp)
                     : base + (uint64_t)disp;
    }
}

/* Counts one request, by the space that its first lane uses. */
static void count_request(struct emu_warp *warp, enum emu_space space,
                          const uint64_t *addresses, uint32_t active,
                          unsigned size, bool write) {
    struct emu_cta *cta = warp->cta;
    uint64_t offset = 0;
    if (space == EMU_SPACE_GENERIC)
        space = emu_access_resolve(addresses[__builtin_ctz(active)], &offset);
    if (space == EMU_SPACE_GLOBAL || space == EMU_SPACE_CONST) {
        emu_count_global(cta, addresses, active, size, write);
    } else if (space == EMU_SPACE_SHARED) {
        uint32_t narrow[EMU_LANES];
        for (int l = 0; l < EMU_LANES; l++)
            narrow[l] = active >> l & 1 ? (uint32_t)addresses[l] : 0;
        emu_count_shared(cta, narrow, active, size, write);
    } else if (space == EMU_SPACE_LOCAL) {
        uint64_t bytes = (uint64_t)__builtin_popcount(active) * size;
        *(write ? &cta->counters.local_write_bytes
                : &cta->counters.local_read_bytes) += bytes;
    }
}

/* A vector is one access: aligned to its whole size, one request. */
EXEC(ld) {
    unsigned one = emu_type_bytes(inst->type), size = one * inst->vector;
    uint64_t addresses[EMU_LANES];
    struct access access = emu_access_plain(warp, inst);
    lane_addresses(warp, inst, 0, 0, active, addresses);
    count_request(warp, inst->space, addresses, active, size, false);
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint8_t bytes[32];
        emu_access_load(&access, inst->space, l, addresses[l], size, bytes);
        for (int i = 0; i < inst->vector; i++) {
            uint64_t bits = 0;
            if (inst->dst[i].reg == EMU_REG_SINK)
                continue;
            memcpy(&bits, bytes + (unsigned)i * one, one < 8 ? one : 8);
            set_lane(
                warp, inst->dst[i], l,
                emu_extend_to_register(warp, inst->type, inst->dst[i], bits));
            if (one == 16)
                memcpy(&dst64(warp, inst, i)[1].u[l],
                       bytes + (unsigned)i * one + 8, 8);
        }
    }
    return EMU_STEP_NEXT;
}

/* Lanes store in order; which one wins at the same address is not defined by
 * PTX. */
EXEC(st) {
    unsigned one = emu_type_bytes(inst->type), size = one * inst->vector;
    uint64_t addresses[EMU_LANES];
    struct access access = emu_access_plain(warp, inst);
    lane_addresses(warp, inst, 0, 0, active, addresses);
    count_request(warp, inst->space, addresses, active, size, true);
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint8_t bytes[32];
        for (int i = 0; i < inst->vector; i++) {
            uint64_t bits = lane_value(warp, inst->src[1 + i], l);
            memcpy(bytes + (unsigned)i * one, &bits, one < 8 ? one : 8);
            if (one == 16)
                memcpy(bytes + (unsigned)i * one + 8,
                       &src64(warp, inst, 1 + i)[1].u[l], 8);
        }
        emu_access_store(&access, inst->space, l, addresses[l], size, bytes);
    }
    return EMU_STEP_NEXT;
}

/* ---- atomics ----------------------------------------------------------- */

/* Rounds to nearest even, subnormal numbers kept. */
static uint64_t atomic_float(enum emu_type type, uint64_t old,
                             uint64_t operand) {
    if (type == EMU_TYPE_f64)
        return bits_of_double(double_of_bits(old) + double_of_bits(operand));
    if (type == EMU_TYPE_f32)
        return canonical(bits_of_float(float_of_bits((uint32_t)old) +
                                       float_of_bits((uint32_t)operand)));
    uint32_t result = 0;
    for (int half = 0; half < (emu_type_bytes(type) == 4 ? 2 : 1); half++) {
        double x = (double)half_to_float((uint32_t)(old >> 16 * half), type);
        double y =
            (double)half_to_float((uint32_t)(operand >> 16 * half), type);
        result |= emu_round_to_format(emu_add_to_odd(x, y), half_format(type),
                                      EMU_ROUND_RN, false)
                  << 16 * half;
    }
    return result;
}

/* The new value of a read-modify-write; `swap`: the third operand of cas. */
static uint64_t atomic_result(const struct emu_inst *inst, uint64_t old,
                              uint64_t operand, uint64_t swap) {
    unsigned shift = 64 - 8 * emu_type_bytes(inst->type);
    bool is_signed = emu_type_class(inst->type) == 'S';
    int64_t signed_old = (int64_t)(old << shift) >> shift;
    int64_t signed_operand = (int64_t)(operand << shift) >> shift;
    bool less = is_signed ? signed_operand < signed_old : operand < old;
    if (inst->op == EMU_OP_add && emu_type_class(inst->type) == 'F')
        return atomic_float(inst->type, old, operand);
    if (inst->op == EMU_OP_add)
        return old + operand;
    if (inst->op == EMU_OP_exch)
        return operand;
    if (inst->op == EMU_OP_cas)
        return old == operand ? swap : old;
    if (inst->op == EMU_OP_min)
        return less ? operand : old;
    if (inst->op == EMU_OP_max)
        return less ? old : operand;
    if (inst->op == EMU_OP_and)
        return old & operand;
    if (inst->op == EMU_OP_or)
        return old | operand;
    if (inst->op == EMU_OP_xor)
        return old ^ operand;
    if (inst->op == EMU_OP_inc)
        return old >= operand ? 0 : old + 1;
    return old == 0 || old > operand ? operand : old - 1; /* dec */
}

/* Lanes go one after the other; the CTAs of a kernel with atomics share one
 * host thread. */
static enum emu_step atomic(struct emu_warp *warp, const struct emu_inst *inst,
                            uint32_t active, bool returns) {
    unsigned size = emu_type_bytes(inst->type);
    uint64_t addresses[EMU_LANES];
    struct access access = emu_access_plain(warp, inst);
    access.is_sync = true;
    lane_addresses(warp, inst, 0, 0, active, addresses);
    count_request(warp, inst->space, addresses, active, size, false);
    count_request(warp, inst->space, addresses, active, size, true);
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint64_t old = 0, operand = lane_value(warp, inst->src[1], l);
        uint64_t swap =
            inst->op == EMU_OP_cas ? lane_value(warp, inst->src[2], l) : 0;
        if (!emu_access_load(&access, inst->space, l, addresses[l], size, &old))
            continue;
        uint64_t value = atomic_result(inst, old, operand, swap);
        emu_access_store(&access, inst->space, l, addresses[l], size, &value);
        if (returns && inst->dst[0].reg != EMU_REG_SINK)
            set_lane(warp, inst->dst[0], l, old);
    }
    warp->cta->idle_polls = 0;
    return EMU_STEP_NEXT;
}
EXEC(atom) {
    return atomic(warp, inst, active, true);
}
EXEC(red) {
    return atomic(warp, inst, active, false);
}

/* ---- addresses --------------------------------------------------------- */

/* Where the space lies in generic addresses; global memory is the identity. */
static uint64_t window_of(enum emu_space space) {
    switch (space) {
    case EMU_SPACE_SHARED:
        return EMU_WINDOW_SHARED;
    case EMU_SPACE_LOCAL:
        return EMU_WINDOW_LOCAL;
    case EMU_SPACE_PARAM:
        return EMU_WINDOW_PARAM;
    case EMU_SPACE_GENERIC:
    case EMU_SPACE_GLOBAL:
    case EMU_SPACE_CONST:
    default:
        return 0;
    }
}

EXEC(cvta) {
    for (int l = 0; l < EMU_LANES; l++)
        if (active >> l & 1)
            set_lane(warp, inst->dst[0], l,
                     lane_value(warp, inst->src[0], l) +
                         window_of(inst->space));
    return EMU_STEP_NEXT;
}

EXEC(cvta_to) {
    for (int l = 0; l < EMU_LANES; l++)
        if (active >> l & 1)
            set_lane(warp, inst->dst[0], l,
                     lane_value(warp, inst->src[0], l) -
                         window_of(inst->space));
    return EMU_STEP_NEXT;
}

EXEC(isspacep) {
    uint32_t mask = 0;
    for (int l = 0; l < EMU_LANES; l++) {
        uint64_t offset = 0;
        enum emu_space space =
            emu_access_resolve(lane_value(warp, inst->src[0], l), &offset);
        mask |= (uint32_t)(space == (enum emu_space)inst->space) << l;
    }
    set_predicate(warp, inst, 0, active, mask);
    return EMU_STEP_NEXT;
}

/* mapa in a cluster of one CTA: the address itself; other ranks do not
 * exist. */
EXEC(mapa) {
    for (int l = 0; l < EMU_LANES; l++) {
        if (!(active >> l & 1))
            continue;
        uint32_t rank = src32(warp, inst, 1)->u[l];
        if (rank != 0 && check_on(warp->cta, EMU_REPORT_INVALID))
            emu_report_add(warp, inst, EMU_REPORT_INVALID, 1u << l, 0,
                           "CTA %u of a cluster of 1", rank);
        set_lane(warp, inst->dst[0], l, lane_value(warp, inst->src[0], l));
    }
    return EMU_STEP_NEXT;
}

/* A cache policy: no caches here, so that any value will do. */
EXEC(createpolicy) {
    for (int l = 0; l < EMU_LANES; l++)
        if (active >> l & 1)
            set_lane(warp, inst->dst[0], l, 0);
    return EMU_STEP_NEXT;
}
