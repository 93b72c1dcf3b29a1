/* What a launcher must know about a compiled attention: its tensors, its
 * parameters and the kernel entries to launch, in order.
 *
 * The back end fills it in next to the PTX, the runtime, the emulator driver
 * and the C header writer read it.  It knows neither MLIR nor CUDA.
 *
 * Everything that depends on the sizes of one call (extents of captured
 * tensors, grids, workspace) is a `struct size_expr`: postfix code over 64-bit
 * integers, so that it can be evaluated, stored in a cache and printed as C.
 */
#ifndef ATTN_SUPPORT_KERNEL_INFO_H
#define ATTN_SUPPORT_KERNEL_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes of one call, indexed by the language's size names. */
enum size_name {
    SIZE_BATCH,
    SIZE_HEADS,
    SIZE_KV_HEADS,
    SIZE_Q_LEN,
    SIZE_KV_LEN,
    SIZE_COUNT,
};

enum scalar_type {
    SCALAR_BOOL, /* one byte in tensors, 32 bits (0 or 1) as a parameter */
    SCALAR_I32,
    SCALAR_F32,
    SCALAR_F16,
    SCALAR_BF16,
    SCALAR_TYPE_COUNT,
};

/* Postfix operations.  Every operand and result is an int64_t; division and
 * remainder round toward minus infinity as in the language. */
enum size_op {
    SIZE_OP_CONST,    /* push value */
    SIZE_OP_SIZE,     /* push sizes[value], value is an enum size_name */
    SIZE_OP_PARAM,    /* push the i32 or bool parameter number `value` */
    SIZE_OP_SM_COUNT, /* push the number of multiprocessors of the device */
    SIZE_OP_NEG,
    SIZE_OP_NOT, /* bitwise */
    SIZE_OP_ABS,
    SIZE_OP_ADD,
    SIZE_OP_SUB,
    SIZE_OP_MUL,
    SIZE_OP_FLOORDIV, /* by zero: evaluation fails */
    SIZE_OP_FLOORMOD,
    SIZE_OP_CEILDIV,
    SIZE_OP_MIN,
    SIZE_OP_MAX,
    SIZE_OP_AND,
    SIZE_OP_OR,
    SIZE_OP_XOR,
    SIZE_OP_SHL,
    SIZE_OP_SHR,
    SIZE_OP_LT, /* comparisons push 0 or 1 */
    SIZE_OP_LE,
    SIZE_OP_EQ,
    SIZE_OP_NE,
    SIZE_OP_SELECT, /* c a b -> c ? a : b */
    SIZE_OP_COUNT,
};

struct size_step {
    enum size_op op;
    int64_t value; /* CONST, SIZE, PARAM only; else 0 */
};

struct size_expr {
    struct size_step *steps;
    size_t count; /* 0: the expression is the constant 0 */
};

/* A tensor of the call.  The first KERNEL_TENSOR_CAPTURED entries of
 * kernel_info.tensors are always q, k, v, o, lse in this order:
 *   q [batch, heads, q_len, head_dim_qk]
 *   k [batch, kv_heads, kv_len, head_dim_qk]
 *   v [batch, kv_heads, kv_len, head_dim_v]
 *   o [batch, heads, q_len, head_dim_v]
 *   lse f32 [batch, heads, q_len]
 * Axis order is logical; memory order is given by the strides (in elements).
 * q, k, v, o need stride 1 on the last axis and 16-byte aligned rows. */
enum {
    KERNEL_TENSOR_Q,
    KERNEL_TENSOR_K,
    KERNEL_TENSOR_V,
    KERNEL_TENSOR_O,
    KERNEL_TENSOR_LSE,
    KERNEL_TENSOR_CAPTURED,
};
enum { KERNEL_MAX_RANK = 8 };

struct kernel_tensor {
    const char *name;
    enum scalar_type type;
    int rank;
    struct size_expr extents[KERNEL_MAX_RANK];
    bool used; /* false: declared but never read; need not be given */
};

/* A `param` of the spec, given at launch. */
struct kernel_scalar {
    const char *name;
    enum scalar_type type; /* SCALAR_BOOL, SCALAR_I32 or SCALAR_F32 */
    bool has_default;
    uint32_t default_bits; /* i32 bits, f32 bits, or 0/1 */
    bool used;
};

enum kernel_param_kind {
    KERNEL_PARAM_POINTER, /* u64: address of element [0,...,0] of tensor; 0: an
                             lse that is not wanted (its strides are 0 too) */
    KERNEL_PARAM_EXTENT,  /* s32: extent of tensor's axis */
    KERNEL_PARAM_STRIDE,  /* s64: stride of tensor's axis, in elements; 0 when
                             its extent is 1.  An axis whose stride no entry
                             takes must be compact */
    KERNEL_PARAM_SIZE,    /* s32: enum size_name in `index` */
    KERNEL_PARAM_SCALAR,  /* b32: scalar number `index` */
    KERNEL_PARAM_WORKSPACE,  /* u64: workspace address + `offset_expr` */
    KERNEL_PARAM_TENSOR_MAP, /* 128 bytes, 64-byte aligned: CUtensorMap number
                                `index` */
};

struct kernel_param {
    enum kernel_param_kind kind;
    int index; /* tensor, size, scalar or tensor map number */
    int axis;  /* EXTENT and STRIDE */
    struct size_expr offset_expr; /* WORKSPACE: byte offset, a multiple of 16 */
};

/* A TMA tensor map to build from a tensor before launch (sm_90a): 5-D
 * {inner, rows, panels, heads, batch} with 128/64/32-byte swizzle; with packed
 * heads {inner, heads, rows, panels, batch}, so that the rows of a box are
 * query after query, each with its heads. */
struct kernel_tensor_map {
    int tensor;
    int box_rows;      /* rows per copy, of all heads */
    int panel_columns; /* elements per swizzled panel row (64 for 128 bytes of
                          bf16) */
    int panels;        /* panels per copy */
    int swizzle_bytes; /* 128, 64 or 32 */
    int heads;         /* in a box: packed GQA, else 1; divides box_rows */
};

/* One kernel of the PTX module.  Parameters are passed in order, each at its
 * natural alignment (the PTX .param list of the entry has the same order). */
struct kernel_entry {
    const char *name;
    struct kernel_param *params;
    size_t param_count;
    int threads;             /* CTA size, 1-D */
    uint32_t shared_bytes;   /* dynamic shared memory */
    struct size_expr grid_x; /* 1-D grid; 0 CTAs: the entry is not launched */
    bool conditional; /* runs for some sizes only, another entry has its place
                         for the others: may be assembled and loaded when the
                         first call needs it */
    bool programmatic; /* waits for the grids before it itself: may be launched
                          with programmatic stream serialization */
};

struct kernel_info {
    const char *name;   /* of the attention */
    const char *target; /* "sm_80", "sm_90a" */
    enum scalar_type dtype;
    int head_dim_qk, head_dim_v;
    int group;          /* query heads per KV head; 0: any */
    int tile_m, tile_n; /* query and key tile, for reports */
    struct kernel_tensor *tensors;
    size_t tensor_count;
    struct kernel_scalar *scalars;
    size_t scalar_count;
    struct kernel_tensor_map *tensor_maps;
    size_t tensor_map_count;
    struct kernel_entry *entries; /* launched in this order on one stream */
    size_t entry_count;
    struct size_expr
        workspace_bytes; /* 0 when nothing is needed; 256-byte aligned */
    /* Workspace bytes [0, zeroed) must be zero before the first launch that
     * uses the workspace and are zero again after each launch (tile
     * counters). */
    struct size_expr workspace_zeroed;
};

struct arena;
struct strbuf;

/* ---- Building ---------------------------------------------------------- */

/* Appends a step, growing the expression in the arena.  Start from a zeroed
 * expression. */
void size_expr_push(struct arena *arena, struct size_expr *expr,
                    enum size_op op, int64_t value);
/* Appends all steps of `tail`. */
void size_expr_append(struct arena *arena, struct size_expr *expr,
                      const struct size_expr *tail);
/* The expression `value`. */
struct size_expr size_expr_constant(struct arena *arena, int64_t value);
/* The expression that pushes one size. */
struct size_expr size_expr_size(struct arena *arena, enum size_name size);

/* ---- Evaluating -------------------------------------------------------- */

/* The deepest operand stack an expression may need. */
enum { SIZE_EXPR_MAX_DEPTH = 64 };

/* What an expression may ask of one call.  scalars[i] are the bits of scalar i
 * (see kernel_scalar.default_bits). */
struct size_env {
    int64_t sizes[SIZE_COUNT];
    const uint32_t *scalars; /* borrowed */
    size_t scalar_count;
    int64_t sm_count;
};

/* Evaluates in 64 bits; shift counts are taken modulo 32.  False on division by
 * zero, on overflow and on malformed code; *out_value is 0 then. */
bool size_expr_eval(const struct size_expr *expr, const struct size_env *env,
                    int64_t *out_value);

/* ---- Names ------------------------------------------------------------- */

/* "batch", "heads", …: the language's spelling. */
const char *size_name_text(enum size_name size);
/* "bool", "i32", "f32", "f16", "bf16". */
const char *scalar_type_text(enum scalar_type type);
/* Bytes of one element in a tensor: 1, 4, 4, 2, 2. */
size_t scalar_type_size(enum scalar_type type);
/* The spelling of an operation in the stored form: "const", "floordiv", … */
const char *size_op_text(enum size_op op);
/* Operands that an operation pops: 0 to 3. */
int size_op_operand_count(enum size_op op);
/* The tensor's axis behind each of a map's five, innermost first; -1: the
 * panels, which the head dimension is cut into. */
const int *kernel_map_axes(const struct kernel_tensor_map *map);
/* Extent of a map's box along such an axis. */
int kernel_map_box(const struct kernel_tensor_map *map, int axis);
/* Bytes of one kernel parameter: 4, 8 or 128; also its alignment but for tensor
 * maps, which are aligned to 64. */
size_t kernel_param_size(enum kernel_param_kind kind);
/* 4, 8 or 64. */
size_t kernel_param_align(enum kernel_param_kind kind);

/* ---- Checking and printing --------------------------------------------- */

/* Checks every rule this header states (the five fixed tensors, indices, stack
 * discipline, names, limits).  NULL, or a text in the arena that names what is
 * wrong. */
const char *kernel_info_check(const struct kernel_info *info,
                              struct arena *arena);

/* Prints an expression as C over the size names, `attn_sm_count` and the
 * parameters' names.  Operations that C lacks call attn_floordiv,
 * attn_floormod, attn_ceildiv, attn_min, attn_max, attn_abs, attn_shl, attn_shr
 * on int64_t. */
void size_expr_print_c(const struct size_expr *expr,
                       const struct kernel_info *info, struct strbuf *out);

/* Appends the stored form: lines of words, readable by kernel_info_read. */
void kernel_info_write(const struct kernel_info *info, struct strbuf *out);

/* Reads the stored form and checks it (kernel_info_check).  The text need not
 * end in NUL and nothing of it is trusted.  NULL on success; else a text in the
 * arena that names the line, what was found and what was expected. */
const char *kernel_info_read(const char *text, size_t length,
                             struct arena *arena, struct kernel_info *out_info);

/* Prints everything a person or a program needs to launch the kernels, as one
 * JSON object; expressions are C strings. */
void kernel_info_print_json(const struct kernel_info *info, struct strbuf *out);

#endif
