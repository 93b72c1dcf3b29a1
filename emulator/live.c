/* Live registers behind each instruction, in 32-bit registers, for the check of
 * setmaxnreg budgets.
 *
 * Classical backward data flow.  It counts what any register allocation must
 * hold, so a report means that the assembler would have to spill.  Values that
 * are the same in all lanes count nothing: the assembler keeps them in uniform
 * registers, in the constant bank, or computes them again; predicates have
 * registers of their own.  The accumulators of a wgmma are read unless its
 * scale-d predicate is constantly false.
 */
#include <string.h>

#include "emulator/exec.h"
#include "emulator/parse.h"

struct flow {
    struct emu_module *module;
    struct emu_function *function;
    struct arena *arena;
    size_t words; /* of a set */
    int32_t size; /* instructions */
    uint64_t *
        *live_in; /* of each instruction that is a jump target, else NULL */
    uint8_t *constant; /* predicates: 1 constantly false, 2 constantly true, 3
                          varies */
    bool *varying;     /* registers of the module that differ between lanes */
};

static bool in_function(const struct flow *f, int32_t reg) {
    return reg >= f->function->reg_first && reg < f->function->reg_end;
}

static void add(const struct flow *f, uint64_t *set, int32_t reg) {
    if (in_function(f, reg))
        set[(reg - f->function->reg_first) / 64] |=
            1ull << ((reg - f->function->reg_first) % 64);
}

static void drop(const struct flow *f, uint64_t *set, int32_t reg) {
    if (in_function(f, reg))
        set[(reg - f->function->reg_first) / 64] &=
            ~(1ull << ((reg - f->function->reg_first) % 64));
}

/* Predicates written once, by a comparison of constants. */
static void find_constant_predicates(struct flow *f) {
    for (int32_t pc = f->function->first; pc < f->function->end; pc++) {
        const struct emu_inst *inst = &f->module->insts.data[pc];
        for (int i = 0; i < inst->dst_count; i++) {
            int32_t reg = inst->dst[i].reg;
            if (!in_function(f, reg) || inst->dst[i].width != 0)
                continue;
            uint8_t *at = &f->constant[reg - f->function->reg_first];
            bool constant = inst->exec == exec_setp && inst->src_count == 2 &&
                            i == 0 && inst->src[0].reg < 0 &&
                            inst->src[1].reg < 0 && *at == 0 &&
                            (inst->op == EMU_OP_eq || inst->op == EMU_OP_ne);
            bool equal = constant && inst->src[0].offset == inst->src[1].offset;
            *at = !constant ? 3 : equal == (inst->op == EMU_OP_eq) ? 2 : 1;
        }
    }
}

/* ---- values that differ between lanes ---------------------------------- */

/* Whether an instruction makes different values of equal operands. */
static bool is_lane_dependent(const struct emu_inst *inst) {
    if (inst->exec == exec_ld)
        return inst->space != EMU_SPACE_PARAM && inst->space != EMU_SPACE_CONST;
    return inst->unit == EMU_UNIT_TENSOR || inst->unit == EMU_UNIT_MEMORY ||
           inst->exec == exec_call || inst->exec == exec_elect;
}

/* Whether it makes equal values of different operands. */
static bool makes_uniform(const struct flow *f, const struct emu_inst *inst) {
    bool one_lane = inst->exec == exec_shfl && inst->op == EMU_OP_idx &&
                    (inst->src[1].reg < 0 || !f->varying[inst->src[1].reg]);
    return one_lane || inst->exec == exec_vote || inst->exec == exec_redux ||
           inst->exec == exec_activemask;
}

/* Whether the result differs between lanes, as far as is known. */
static bool varies(const struct flow *f, const struct emu_inst *inst) {
    if (makes_uniform(f, inst))
        return false;
    bool result = is_lane_dependent(inst);
    for (int i = 0; i < inst->src_count && !result; i++)
        result = inst->src[i].reg >= 0 && f->varying[inst->src[i].reg];
    return result || (inst->guard.reg >= 0 && f->varying[inst->guard.reg]);
}

/* To a fixed point: a register varies when any of its definitions does. */
static void find_varying(struct flow *f) {
    static const enum emu_special lanes[] = {
        EMU_SPECIAL_TID_X,       EMU_SPECIAL_TID_Y,
        EMU_SPECIAL_TID_Z,       EMU_SPECIAL_LANEID,
        EMU_SPECIAL_LANEMASK_EQ, EMU_SPECIAL_LANEMASK_LT,
        EMU_SPECIAL_LANEMASK_LE, EMU_SPECIAL_LANEMASK_GT,
        EMU_SPECIAL_LANEMASK_GE};
    f->varying = ARENA_NEW_ARRAY(f->arena, bool, f->module->registers.count);
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++)
        f->varying[f->module->special[lanes[i]]] = true;
    f->varying[EMU_REG_SINK] = false;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t pc = f->function->first; pc < f->function->end; pc++) {
            const struct emu_inst *inst = &f->module->insts.data[pc];
            bool new_value = varies(f, inst);
            for (int i = 0; new_value && i < inst->dst_count; i++) {
                bool *at = &f->varying[inst->dst[i].reg];
                changed |= !*at && inst->dst[i].reg != EMU_REG_SINK;
                *at = inst->dst[i].reg != EMU_REG_SINK;
            }
        }
    }
}

/* ---- data flow --------------------------------------------------------- */

static bool reads_accumulators(const struct flow *f,
                               const struct emu_inst *inst) {
    if (inst->exec != exec_wgmma_ss && inst->exec != exec_wgmma_rs)
        return false;
    for (int i = 0; i < inst->src_count; i++)
        if (inst->src[i].width == 0 && in_function(f, inst->src[i].reg)) {
            uint8_t value =
                f->constant[inst->src[i].reg - f->function->reg_first];
            return value != (inst->src[i].negated ? 2 : 1);
        }
    return true;
}

/* set: live behind the instruction; becomes live in front of it. */
static void step_back(const struct flow *f, const struct emu_inst *inst,
                      uint64_t *set) {
    bool accumulates = reads_accumulators(f, inst);
    for (int i = 0; i < inst->dst_count; i++)
        if (accumulates)
            add(f, set, inst->dst[i].reg);
        else if (inst->guard.reg < 0)
            drop(f, set, inst->dst[i].reg);
    for (int i = 0; i < inst->src_count; i++)
        add(f, set, inst->src[i].reg);
    for (int i = 0; i < inst->arg_count; i++)
        if (i >= inst->result_count)
            add(f, set, inst->args[i].value.reg);
    if (inst->guard.reg >= 0)
        add(f, set, inst->guard.reg);
}

/* Registers of 32 bits that a set needs. */
static uint16_t weigh(const struct flow *f, const uint64_t *set) {
    uint32_t total = 0;
    for (size_t w = 0; w < f->words; w++)
        for (uint64_t left = set[w]; left; left &= left - 1) {
            size_t reg = w * 64 + (size_t)__builtin_ctzll(left) +
                         (size_t)f->function->reg_first;
            if (f->varying[reg])
                total +=
                    (emu_type_bytes(f->module->registers.data[reg].type) + 3) /
                    4;
        }
    return (uint16_t)(total > UINT16_MAX ? UINT16_MAX : total);
}

static void join_target(const struct flow *f, uint64_t *set, int32_t target) {
    const uint64_t *from = f->live_in[target - f->function->first];
    for (size_t w = 0; from && w < f->words; w++)
        set[w] |= from[w];
}

/* Live behind an instruction: what its successors need. */
static void live_behind(const struct flow *f, const struct emu_inst *inst,
                        uint64_t *set) {
    bool branch = inst->exec == exec_bra || inst->exec == exec_brx_idx;
    bool ends = inst->exec == exec_exit || inst->exec == exec_ret ||
                inst->exec == exec_end || inst->exec == exec_trap;
    if ((branch || ends) && inst->guard.reg < 0)
        memset(set, 0, f->words * 8);
    if (inst->exec == exec_bra)
        join_target(f, set, inst->target);
    for (int32_t i = 0; inst->exec == exec_brx_idx && i < inst->target_count;
         i++)
        join_target(f, set, inst->targets[i]);
}

/* One pass from the end to the start; true when a set at a target grew. */
static bool flow_pass(const struct flow *f, uint64_t *set) {
    bool changed = false;
    memset(set, 0, f->words * 8);
    for (int32_t i = f->size - 1; i >= 0; i--) {
        struct emu_inst *inst = &f->module->insts.data[f->function->first + i];
        live_behind(f, inst, set);
        inst->live = weigh(f, set);
        step_back(f, inst, set);
        if (f->live_in[i] && memcmp(f->live_in[i], set, f->words * 8) != 0) {
            memcpy(f->live_in[i], set, f->words * 8);
            changed = true;
        }
    }
    return changed;
}

static void make_target(struct flow *f, int32_t target) {
    uint64_t **at = &f->live_in[target - f->function->first];
    if (!*at)
        *at = ARENA_NEW_ARRAY(f->arena, uint64_t, f->words);
}

/* Sets are kept at branch targets only; between them one set walks backward. */
static void analyse_function(struct emu_module *module,
                             struct emu_function *function) {
    struct flow f = {.module = module,
                     .function = function,
                     .arena = arena_create(),
                     .size = function->end - function->first};
    size_t registers = (size_t)(function->reg_end - function->reg_first);
    f.words = registers / 64 + 1;
    f.live_in = ARENA_NEW_ARRAY(f.arena, uint64_t *, (size_t)f.size + 1);
    f.constant = ARENA_NEW_ARRAY(f.arena, uint8_t, registers + 1);
    find_constant_predicates(&f);
    find_varying(&f);
    for (int32_t pc = function->first; pc < function->end; pc++) {
        const struct emu_inst *inst = &module->insts.data[pc];
        if (inst->exec == exec_bra)
            make_target(&f, inst->target);
        for (int32_t i = 0;
             inst->exec == exec_brx_idx && i < inst->target_count; i++)
            make_target(&f, inst->targets[i]);
    }
    uint64_t *set = ARENA_NEW_ARRAY(f.arena, uint64_t, f.words);
    for (int pass = 0; pass < 64 && flow_pass(&f, set); pass++)
        continue;
    arena_destroy(f.arena);
}

void emu_live_analyse(struct emu_module *module) {
    for (size_t i = 0; i < module->functions.count; i++)
        if (module->functions.data[i].defined)
            analyse_function(module, &module->functions.data[i]);
}
