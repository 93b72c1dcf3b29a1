/* The instruction table as data, and the instruction list of a kernel.
 *
 * Classes are checked when an instruction is appended: a wrong operand is a
 * fault of isel and shows there, not in ptxas. */
#include "backends/ptx/inst.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bits.h"

/* Class names as insts.def spells them. */
#define CLASS_NONE PTX_NONE
#define CLASS_P PTX_P
#define CLASS_H PTX_H
#define CLASS_R PTX_R
#define CLASS_F PTX_F
#define CLASS_D PTX_D
#define CLASS_R2 PTX_R2
#define CLASS_R4 PTX_R4
#define CLASS_F4 PTX_F4
#define CLASS_RV PTX_RV
#define CLASS_FV PTX_FV
#define CLASS_SMEM PTX_SMEM
#define CLASS_GMEM PTX_GMEM
#define CLASS_IMM PTX_IMM
#define CLASS_PARAM PTX_PARAM
#define CLASS_LABEL PTX_LABEL_NAME
#define CLASS_SREG PTX_SREG
#define CLASS_SYMBOL PTX_SYMBOL
#define CLASS_TEXT PTX_TEXT

/* (A, B, C) -> {CLASS_A, CLASS_B, CLASS_C}; (NONE) is an empty list. */
#define PICK(_1, _2, _3, _4, name, ...) name
#define CLASSES1(a) \
    { CLASS_##a }
#define CLASSES2(a, b) \
    { CLASS_##a, CLASS_##b }
#define CLASSES3(a, b, c) \
    { CLASS_##a, CLASS_##b, CLASS_##c }
#define CLASSES4(a, b, c, d) \
    { CLASS_##a, CLASS_##b, CLASS_##c, CLASS_##d }
#define CLASSES(...) \
    PICK(__VA_ARGS__, CLASSES4, CLASSES3, CLASSES2, CLASSES1, _)(__VA_ARGS__)

const struct ptx_row ptx_rows[PTX_OP_COUNT] = {
#define I(id, result, operands, isa, sm, template) \
    [PTX_##id] = {#id, CLASS_##result, CLASSES operands, isa, sm, template},
#include "backends/ptx/insts.def"
#undef I
};

int ptx_row_operand_count(const struct ptx_row *row) {
    int count = 0;
    while (count < PTX_MAX_OPERANDS && row->operands[count] != PTX_NONE)
        count++;
    return count;
}

_Noreturn static void fault(const struct ptx_kernel *kernel, enum ptx_op op,
                            const char *what) {
    fprintf(stderr, "attnc: internal error: ptx: kernel %s, %s: %s\n",
            kernel->name, ptx_rows[op].id, what);
    abort();
}

struct ptx_kernel *ptx_kernel_create(struct arena *arena, const char *name) {
    struct ptx_kernel *kernel = ARENA_NEW(arena, struct ptx_kernel);
    kernel->arena = arena;
    /* The text lives longer than the module, and PTX names have no '.'. */
    char *copy = arena_strdup(arena, name);
    for (char *at = copy; *at; at++)
        if (*at == '.')
            *at = '_';
    kernel->name = copy;
    vec_push(arena, &kernel->regs, (struct ptx_reg){0, 0});
    /* A head that is never printed, so that the cursor is never null. */
    kernel->first = kernel->cursor = ARENA_NEW(arena, struct ptx_inst);
    return kernel;
}

/* ---- registers ---------------------------------------------------------- */

/* Stems that, followed by a number or not, are PTX's own registers. */
static const char *const reserved_stems[] = {
    "tid",
    "ntid",
    "laneid",
    "warpid",
    "nwarpid",
    "ctaid",
    "nctaid",
    "smid",
    "nsmid",
    "gridid",
    "clock",
    "pm",
    "envreg",
    "globaltimer",
    "reserved_smem_offset_",
    "total_smem_size",
    "dynamic_smem_size",
    "aggr_smem_size",
    "current_graph_exec",
    "is_explicit_cluster",
    "clusterid",
    "nclusterid",
};

static bool is_reserved(const char *name) {
    for (size_t i = 0; i < sizeof reserved_stems / sizeof reserved_stems[0];
         i++)
        if (strcmp(name, reserved_stems[i]) == 0)
            return true;
    return false;
}

/* A stem as it may be written: letters, digits and underscores, no digit at the
 * end (numbers follow), not reserved. */
static const char *clean_stem(struct arena *arena, const char *hint) {
    char *stem = arena_printf(arena, "%.40s__", hint);
    size_t length = strlen(stem) - 2;
    for (size_t i = 0; i < length; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ012345"
                    "6789_",
                    stem[i]))
            stem[i] = '_';
    bool digit =
        length > 0 && stem[length - 1] >= '0' && stem[length - 1] <= '9';
    stem[length + (digit ? 1 : 0)] = '\0';
    if (!is_reserved(stem) && length > 0)
        return stem;
    return arena_printf(arena, "%s_", length ? stem : "x");
}

/* The group of a stem and class; a stem used by another class gets the class's
 * letter. */
static uint32_t find_group(struct ptx_kernel *kernel, enum ptx_class class,
                           const char *hint) {
    static const char letters[] = {[PTX_P] = 'p',
                                   [PTX_H] = 'h',
                                   [PTX_R] = 'r',
                                   [PTX_F] = 'f',
                                   [PTX_D] = 'd'};
    const char *stem = hint;
    for (int attempt = 0;; attempt++) {
        bool taken = false;
        for (uint32_t i = 0; i < kernel->groups.count; i++) {
            if (strcmp(kernel->groups.data[i].name, stem) != 0)
                continue;
            if (kernel->groups.data[i].class == class)
                return i;
            taken = true;
        }
        const char *clean =
            attempt == 0 ? clean_stem(kernel->arena, hint) : stem;
        if (!taken && strcmp(clean, stem) == 0)
            break;
        stem = taken
                   ? arena_printf(kernel->arena, "%s_%c", clean, letters[class])
                   : clean;
    }
    vec_push(
        kernel->arena, &kernel->groups,
        (struct ptx_reg_group){arena_strdup(kernel->arena, stem), class, 0});
    return (uint32_t)kernel->groups.count - 1;
}

struct ptx_operand ptx_reg_new(struct ptx_kernel *kernel, enum ptx_class class,
                               const char *hint) {
    uint32_t group = find_group(kernel, class, hint);
    vec_push(kernel->arena, &kernel->regs,
             (struct ptx_reg){group, kernel->groups.data[group].count++});
    return (struct ptx_operand){.kind = PTX_OPERAND_REG,
                                .reg = (uint32_t)kernel->regs.count - 1};
}

enum ptx_class ptx_reg_class(const struct ptx_kernel *kernel, uint32_t reg) {
    return kernel->groups.data[kernel->regs.data[reg].group].class;
}

/* ---- operands ----------------------------------------------------------- */

struct ptx_operand ptx_f32(float value) {
    return ptx_f32_bits(bits_of_float(value));
}

struct ptx_operand ptx_address(struct ptx_operand reg, int64_t offset) {
    int64_t base = reg.kind == PTX_OPERAND_ADDRESS ? reg.value : 0;
    return (struct ptx_operand){
        .kind = PTX_OPERAND_ADDRESS, .reg = reg.reg, .value = base + offset};
}

bool ptx_same(struct ptx_operand a, struct ptx_operand b) {
    return a.kind == b.kind && a.reg == b.reg && a.value == b.value &&
           (a.kind == PTX_OPERAND_REG || a.kind == PTX_OPERAND_IMM ||
            a.kind == PTX_OPERAND_F32);
}

/* Length of a vector class, -1 for any, 0 for the other classes. */
static int vector_length(enum ptx_class class) {
    switch ((int)class) {
    case PTX_R2:
        return 2;
    case PTX_R4:
    case PTX_F4:
        return 4;
    case PTX_RV:
    case PTX_FV:
        return -1;
    default:
        return 0;
    }
}

static bool vector_fits(const struct ptx_kernel *kernel, enum ptx_class class,
                        struct ptx_operand operand) {
    int length = vector_length(class);
    if (operand.kind != PTX_OPERAND_VECTOR ||
        (length > 0 && operand.value != length))
        return false;
    enum ptx_class element = class == PTX_F4 || class == PTX_FV ? PTX_F : PTX_R;
    for (int64_t i = 0; i < operand.value; i++)
        if (!ptx_is_reg(operand.items[i]) ||
            ptx_reg_class(kernel, operand.items[i].reg) != element)
            return false;
    return true;
}

static bool operand_fits(const struct ptx_kernel *kernel, enum ptx_class class,
                         struct ptx_operand operand) {
    if (vector_length(class) != 0)
        return vector_fits(kernel, class, operand);
    switch (operand.kind) {
    case PTX_OPERAND_REG:
        return ptx_reg_class(kernel, operand.reg) == class;
    case PTX_OPERAND_IMM:
        return class == PTX_R || class == PTX_D || class == PTX_IMM;
    case PTX_OPERAND_F32:
        return class == PTX_F;
    case PTX_OPERAND_ADDRESS:
        return (class == PTX_SMEM &&
                ptx_reg_class(kernel, operand.reg) == PTX_R) ||
               (class == PTX_GMEM &&
                ptx_reg_class(kernel, operand.reg) == PTX_D);
    case PTX_OPERAND_TEXT:
        return class >= PTX_PARAM && class <= PTX_TEXT;
    case PTX_OPERAND_NONE:
    case PTX_OPERAND_VECTOR:
        break;
    }
    return false;
}

/* ---- the list ----------------------------------------------------------- */

struct ptx_inst *ptx_append(struct ptx_kernel *kernel, enum ptx_op op,
                            struct ptx_operand result,
                            const struct ptx_operand *operands, int count) {
    const struct ptx_row *row = &ptx_rows[op];
    if (count > 0 && operands[0].kind == PTX_OPERAND_NONE)
        count = 0;
    if (count != ptx_row_operand_count(row))
        fault(kernel, op, "wrong number of operands");
    struct ptx_inst *inst = ARENA_NEW(kernel->arena, struct ptx_inst);
    inst->op = op;
    if (row->result != PTX_NONE) {
        bool writable = ptx_is_reg(result) || result.kind == PTX_OPERAND_VECTOR;
        if (!writable || !operand_fits(kernel, row->result, result))
            fault(kernel, op, "result of the wrong class");
        inst->result = result;
    }
    for (int i = 0; i < count; i++) {
        if (!operand_fits(kernel, row->operands[i], operands[i]))
            fault(kernel, op,
                  arena_printf(kernel->arena, "operand %d of the wrong class",
                               i));
        inst->operands[i] = operands[i];
    }
    inst->next = kernel->cursor->next;
    kernel->cursor->next = inst;
    kernel->cursor = inst;
    return inst;
}

struct ptx_operand ptx_define(struct ptx_kernel *kernel, enum ptx_op op,
                              const char *hint,
                              const struct ptx_operand *operands, int count) {
    struct ptx_operand result = ptx_reg_new(kernel, ptx_rows[op].result, hint);
    ptx_append(kernel, op, result, operands, count);
    return result;
}

void ptx_guard(struct ptx_inst *inst, struct ptx_operand predicate,
               bool negated) {
    inst->guard = predicate.reg;
    inst->guard_negated = negated;
}

struct ptx_operand ptx_label_new(struct ptx_kernel *kernel, const char *stem) {
    return ptx_text(
        arena_printf(kernel->arena, "%s_%u", stem, kernel->label_count++));
}

void ptx_comment(struct ptx_kernel *kernel, enum ptx_op kind,
                 const char *format, ...) {
    va_list args;
    va_start(args, format);
    struct ptx_operand text =
        ptx_text(arena_vprintf(kernel->arena, format, args));
    va_end(args);
    ptx_put(kernel, kind, PTX_NOTHING, text);
}
