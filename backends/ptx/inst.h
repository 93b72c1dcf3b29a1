/* Machine instructions: the table of insts.def, operands, virtual registers and
 * the instruction list of one kernel.
 *
 * A kernel is a linked list, so that code which is the same for every iteration
 * (lane addresses, row pointers) can be put where its inputs are known while
 * later code is being written.
 */
#ifndef ATTN_BACKENDS_PTX_INST_H
#define ATTN_BACKENDS_PTX_INST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/arena.h"
#include "support/vec.h"

/* Operand and register classes of insts.def. */
enum ptx_class {
    PTX_NONE,
    PTX_P, /* .pred */
    PTX_H, /* .b16 */
    PTX_R, /* .b32 */
    PTX_F, /* .f32 */
    PTX_D, /* .b64 */
    PTX_R2,
    PTX_R4,
    PTX_F4,
    PTX_RV, /* any length */
    PTX_FV,
    PTX_SMEM,
    PTX_GMEM,
    PTX_IMM,
    PTX_PARAM,
    PTX_LABEL_NAME,
    PTX_SREG,
    PTX_SYMBOL,
    PTX_TEXT,
    PTX_CLASS_COUNT,
};

enum ptx_op {
#define I(id, result, operands, isa, sm, template) PTX_##id,
#include "backends/ptx/insts.def"
#undef I
    PTX_OP_COUNT,
};

enum { PTX_MAX_OPERANDS = 4 };

/* One row of the table. */
struct ptx_row {
    const char *id;
    enum ptx_class result;
    enum ptx_class operands[PTX_MAX_OPERANDS]; /* PTX_NONE ends the list */
    int min_isa;                               /* `.version` times ten */
    int min_sm;
    const char *text; /* template; NULL: printed by a hook */
};

extern const struct ptx_row ptx_rows[PTX_OP_COUNT];

/* Operands of a row, without the result. */
int ptx_row_operand_count(const struct ptx_row *row);

enum ptx_operand_kind {
    PTX_OPERAND_NONE,
    PTX_OPERAND_REG,
    PTX_OPERAND_IMM,     /* value */
    PTX_OPERAND_F32,     /* value: the bits */
    PTX_OPERAND_ADDRESS, /* register + value */
    PTX_OPERAND_VECTOR,  /* value registers at `items` */
    PTX_OPERAND_TEXT,    /* label, symbol, special register, comment */
};

/* An operand is small and passed by value; vectors and texts are borrowed from
 * the kernel's arena. */
struct ptx_operand {
    enum ptx_operand_kind kind;
    uint32_t reg; /* register number, 0 is none */
    int64_t value;
    const struct ptx_operand *items;
    const char *text;
};

struct ptx_inst {
    struct ptx_inst *next;
    enum ptx_op op;
    bool guard_negated;
    uint32_t guard; /* predicate register, 0: always */
    struct ptx_operand result;
    struct ptx_operand operands[PTX_MAX_OPERANDS];
};

/* Registers of one name: %acc0 .. %acc63. */
struct ptx_reg_group {
    const char *name;
    enum ptx_class class;
    uint32_t count;
};

struct ptx_reg {
    uint32_t group; /* index into reg_groups */
    uint32_t number;
};

/* A TMA tensor map: a parameter of the kernel in front of the others. */
struct ptx_tensor_map {
    int argument;      /* of the function: the tensor */
    int box_rows;      /* rows of one copy */
    int swizzle_bytes; /* 128, 64, 32: bytes of a panel's row */
    int panels;
    int heads;        /* of a box: packed GQA, else 1 */
    const char *name; /* of the parameter */
};

/* A device function of another module that the kernel calls; its parameters and
 * result are .b32.  Texts are the names of .param variables. */
struct ptx_extern {
    const char *name;
    const char *result;
    const char *const *parameters;
    size_t parameter_count;
    const char *arguments; /* the parameters as a list: "f_0, f_1" */
};

/* A parameter of the entry, in order. */
struct ptx_param {
    const char *name;
    const char *type; /* "u64", "s64", "s32", "b32" ... */
    const char *comment;
};

struct ptx_kernel {
    struct arena *arena; /* borrowed */
    const char *name;
    VEC(struct ptx_param) params;
    VEC(struct ptx_extern) externs;
    VEC(struct ptx_reg) regs; /* regs.data[0] is no register */
    VEC(struct ptx_reg_group) groups;
    struct ptx_inst *first, *cursor; /* new instructions go behind the cursor */
    uint32_t label_count;
    int threads;
    uint32_t shared_bytes;
    bool uses_panels; /* shared tiles need 1024-byte alignment */
    VEC(struct ptx_tensor_map) maps;
    VEC(const char *) notes; /* lines of the head comment */
};

/* An empty kernel; name and arena are borrowed. */
struct ptx_kernel *ptx_kernel_create(struct arena *arena, const char *name);

/* A new virtual register; `hint` is the stem of its name ("acc" gives %acc0,
 * %acc1, ...).  Names that PTX reserves are changed. */
struct ptx_operand ptx_reg_new(struct ptx_kernel *kernel, enum ptx_class class,
                               const char *hint);

/* The class of a register. */
enum ptx_class ptx_reg_class(const struct ptx_kernel *kernel, uint32_t reg);

static inline struct ptx_operand ptx_imm(int64_t value) {
    return (struct ptx_operand){.kind = PTX_OPERAND_IMM, .value = value};
}
static inline struct ptx_operand ptx_f32_bits(uint32_t bits) {
    return (struct ptx_operand){.kind = PTX_OPERAND_F32, .value = bits};
}
/* The f32 constant `value`. */
struct ptx_operand ptx_f32(float value);
/* The address reg + offset; `reg` is a register or an address. */
struct ptx_operand ptx_address(struct ptx_operand reg, int64_t offset);
/* A vector of registers; `items` must live as long as the kernel. */
static inline struct ptx_operand ptx_vector(const struct ptx_operand *items,
                                            int count) {
    return (struct ptx_operand){
        .kind = PTX_OPERAND_VECTOR, .value = count, .items = items};
}
static inline struct ptx_operand ptx_text(const char *text) {
    return (struct ptx_operand){.kind = PTX_OPERAND_TEXT, .text = text};
}
static inline bool ptx_is_reg(struct ptx_operand operand) {
    return operand.kind == PTX_OPERAND_REG;
}
/* Equal registers or equal constants. */
bool ptx_same(struct ptx_operand a, struct ptx_operand b);

/* Appends an instruction behind the cursor; `result` is ignored by rows without
 * one.  Aborts when an operand does not fit the row's class. */
struct ptx_inst *ptx_append(struct ptx_kernel *kernel, enum ptx_op op,
                            struct ptx_operand result,
                            const struct ptx_operand *operands, int count);

/* ptx_put(kernel, op, result, operands...): appends. */
#define ptx_put(kernel, op, result, ...)                                 \
    ptx_append((kernel), (op), (result),                                 \
               (const struct ptx_operand[]){__VA_ARGS__},                \
               (int)(sizeof((const struct ptx_operand[]){__VA_ARGS__}) / \
                     sizeof(struct ptx_operand)))

/* Appends with a new register as result, named after `hint`; returns it. */
struct ptx_operand ptx_define(struct ptx_kernel *kernel, enum ptx_op op,
                              const char *hint,
                              const struct ptx_operand *operands, int count);
#define ptx_def(kernel, op, hint, ...)                                   \
    ptx_define((kernel), (op), (hint),                                   \
               (const struct ptx_operand[]){__VA_ARGS__},                \
               (int)(sizeof((const struct ptx_operand[]){__VA_ARGS__}) / \
                     sizeof(struct ptx_operand)))

/* No operand: the result of rows that have none. */
#define PTX_NOTHING ((struct ptx_operand){0})

/* Makes an instruction conditional. */
void ptx_guard(struct ptx_inst *inst, struct ptx_operand predicate,
               bool negated);

/* A label name that no other code of the kernel uses ("loop" gives loop_3). */
struct ptx_operand ptx_label_new(struct ptx_kernel *kernel, const char *stem);

/* Appends a comment line, a banner, or a source location line. */
void ptx_comment(struct ptx_kernel *kernel, enum ptx_op kind,
                 const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
