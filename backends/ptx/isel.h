/* Instruction selection: from the operations of one kernel to machine
 * instructions.  Private to isel*.c.
 *
 * Values.  A value of register type has a storage: operands (registers or
 * constants) in one of four layouts.  The layout follows what the value depends
 * on, not its type: a row quantity that was broadcast to a tile keeps its row
 * storage, so whatever is computed from rows only is computed once a row.  i32
 * positions are stored as "register + constant", so the columns of a tile cost
 * one register until they are used.
 *
 * Runs.  Consecutive elementwise operations on tiles are collected and emitted
 * element by element (isel_run.c): temporaries and predicates live for two
 * elements instead of a whole tile.
 *
 * Reuse.  A storage counts the uses that are still to come; the operation that
 * has the last one may write its result there (accumulators, masks).
 */
#ifndef ATTN_BACKENDS_PTX_ISEL_H
#define ATTN_BACKENDS_PTX_ISEL_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/ptx/inst.h"
#include "backends/ptx/layout.h"
#include "backends/ptx/ptx.h"
#include "ir/walk.h"

/* ---- Values ------------------------------------------------------------- */

/* What is known of i32 elements of the form "register + constant": the sum does
 * not wrap around. */
enum position_range {
    RANGE_ANY,      /* nothing */
    RANGE_POSITION, /* it is not negative either: a query or key position */
    RANGE_DISTANCE, /* the difference of two positions */
};

struct storage {
    enum layout layout;
    enum position_range range;
    int divisor; /* of positions: divides the tile's first one; else 0 */
    bool coarse; /* columns: the same for several groups of 8 */
    enum ptx_class class;
    bool packed; /* 16-bit tile, two elements a register */
    bool bf16;   /* of 16-bit elements: bf16, else f16 */
    bool owned;  /* registers that belong to this storage alone */
    struct tile_shape shape;
    struct ptx_operand *elems;   /* NULL while it lives inside a run only */
    struct ptx_operand temps[2]; /* inside a run: current elements c = 0, 1 */
    int temps_group; /* columns: the j that temps belong to, -1: none */
    struct read_plan *read; /* a read of the warp, shuffled where it is used; its
                               elements are in no registers */
    struct ptx_operand
        *run_rows; /* inside a run: "register + constant" added up */
    int run_uses;  /* inside a run: operands of the run that name it */
    bool in_run;   /* defined by the pending run */
    bool numbered; /* inside a run: equal elements are shared */
    int uses;      /* still to come, of all values that share it */
    int loop;      /* innermost loop around the definition, 0: none */
    int in_flight; /* products that still read or write the registers */
    struct ptx_inst *anchor; /* last instruction of a top-level definition */
    int anchor_order;        /* -1: defined inside a loop or branch */
};

/* A tile in shared memory. */
struct shared_view {
    const char *name;
    int rows, columns, bytes; /* of one stage; bytes of one element */
    int stage_bytes;          /* distance of the stages */
    int byte_offset;
    struct swizzle swizzle;
    struct ptx_operand
        stage; /* byte offset of the stage in a register, or none */
    bool bf16;
    int swizzle_bytes, panels; /* tiles of panels, else 0 (isel_sm90.c) */
    struct ptx_operand
        stage_index; /* of tiles of panels: number of the stage, or none */
    int arrivals;    /* of mbarriers */
};

enum value_kind { VALUE_STORAGE, VALUE_SHARED, VALUE_GLOBAL, VALUE_STEP };

struct value {
    const void *key;
    enum value_kind kind;
    struct storage *storage;
    struct shared_view *shared;
    int argument; /* VALUE_GLOBAL: argument of the kernel */
};

/* ---- Kernel arguments --------------------------------------------------- */

enum { ISEL_MAX_RANK = KERNEL_MAX_RANK };

/* The PTX parameters behind one function argument, and the registers that hold
 * them once they were asked for. */
struct argument {
    const char *kind; /* attn.arg, "tensor:bias" */
    const char *stem; /* stem of parameter names */
    MlirType type;
    int rank; /* of a memref; 0: scalar */
    const char *scalar, *pointer, *extents[ISEL_MAX_RANK],
        *strides[ISEL_MAX_RANK];
    struct ptx_operand scalar_reg, pointer_reg, global_reg;
    struct ptx_operand extent_regs[ISEL_MAX_RANK], stride_regs[ISEL_MAX_RANK];
};

/* ---- The context -------------------------------------------------------- */

/* Registers that hold a lane constant, by what they mean. */
struct lane_constant {
    const char *name;
    int key[4];
    struct ptx_operand reg;
};

struct run;       /* isel_run.c */
struct numbering; /* isel_number.c */

/* Registers of a product that has not been waited for, and its group. */
struct flight {
    struct storage *storage;
    int group;
};

/* A loop being lowered: what its terminator yields goes to `carried`. */
struct loop_frame {
    MlirBlock body;
    struct storage *const *carried;
    struct loop_frame *outer;
};

struct isel {
    struct arena *arena;
    const struct ptx_options *options;
    struct diag_sink *sink;
    struct ptx_kernel *kernel;
    MlirOperation func;
    int warps, threads;
    int row_warps; /* warps that share the rows of a tile */
    int fragments; /* of 16 rows that a warp has, one below the other */
    bool failed;

    struct value *values; /* open hash table */
    size_t value_count, value_capacity;
    VEC(struct argument) arguments;
    VEC(struct lane_constant) constants;
    struct ptx_inst *entry_end; /* last instruction of the lane constants */
    struct run *run;            /* pending elementwise operations */
    struct numbering *numbers;  /* equal elements of the run being emitted */
    int loop, loop_count;       /* current innermost loop; loops so far */
    struct loop_frame *frame;   /* of the innermost loop */
    VEC(struct flight) flights; /* wgmma: what is not waited for yet */
    int wgmma_group;            /* groups committed so far */
    VEC(MlirOperation)
    early;                 /* operations that were lowered before their turn */
    int depth;             /* loops and branches around the current place */
    int order;             /* of top-level definitions */
    const char *last_file; /* source place of the latest location line */
    unsigned last_line, last_column;
    bool seen_mainloop;
};

/* Reports an operation that cannot be lowered, at its place; lowering goes on
 * so that more can be reported. */
void isel_error(struct isel *is, MlirOperation op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- Values: isel_values.c ---------------------------------------------- */

/* Layout, shape and class of a type; false (after an error) for one without
 * registers. */
bool isel_describe(struct isel *is, MlirOperation op, MlirType type,
                   struct storage *out);

/* A storage like `like` with elems allocated (not filled in), no uses, not
 * owned. */
struct storage *storage_create(struct isel *is, const struct storage *like);
/* New registers for every element. */
void storage_fill_registers(struct isel *is, struct storage *storage,
                            const char *hint);
/* A scalar storage that holds one operand. */
struct storage *storage_scalar(struct isel *is, enum ptx_class class,
                               struct ptx_operand operand);
/* True when nobody will read it again after `uses_now` more uses, and it may be
 * overwritten here (own registers, defined in the current loop). */
bool storage_dies(const struct isel *is, const struct storage *storage,
                  int uses_now);

/* Element (f, i, j, c); constants and affine elements as they are. */
struct ptx_operand storage_element(const struct storage *storage, int f, int i,
                                   int j, int c);

/* Binds a value to a storage and adds the value's uses to it. */
void isel_bind(struct isel *is, MlirValue value, struct storage *storage);
/* Binds a value to a tile in shared memory. */
void isel_bind_shared(struct isel *is, MlirValue value,
                      struct shared_view *view);
/* Binds a value of a kind without storage; `argument`: of VALUE_GLOBAL. */
void isel_bind_other(struct isel *is, MlirValue value, enum value_kind kind,
                     int argument);

/* What a value was bound to, NULL when it was not. */
struct value *isel_find(struct isel *is, MlirValue value);
/* What a value was bound to; aborts on a value that was never bound. */
struct value *isel_value(struct isel *is, MlirValue value);
/* The storage of a value; aborts when it has none. */
struct storage *isel_storage(struct isel *is, MlirValue value);
/* The tile in shared memory that a value is, likewise. */
struct shared_view *isel_shared(struct isel *is, MlirValue value);
/* The global tensor that a value is, likewise. */
struct argument *isel_argument(struct isel *is, MlirValue value);

/* Counts one use of each operand as done. */
void isel_release(struct isel *is, MlirOperation op);

/* The register or constant of a scalar value ("register + constant" is added
 * up). */
struct ptx_operand isel_scalar(struct isel *is, MlirValue value);
/* An operand as register or constant: adds up "register + constant". */
struct ptx_operand isel_plain(struct isel *is, struct ptx_operand operand);
/* An operand in a register of `class` (constants are moved). */
struct ptx_operand isel_in_register(struct isel *is, enum ptx_class class,
                                    struct ptx_operand operand,
                                    const char *hint);
/* The move of `from` (any operand) to a register. */
void isel_move(struct isel *is, struct ptx_operand to, struct ptx_operand from);
/* Moves as if all happened at once: no source is overwritten before it is read.
 */
void isel_move_all(struct isel *is, const struct ptx_operand *to,
                   const struct ptx_operand *from, int count);
struct move_list {
    VEC(struct ptx_operand) to;
    VEC(struct ptx_operand) from;
};
/* Adds the moves of every element of `from` to `to`'s registers; nothing where
 * they agree. */
void isel_add_moves(struct isel *is, struct move_list *list,
                    const struct storage *to, const struct storage *from);

/* Name stem for the results of an op: its `attn.name`, else `fallback`. */
const char *isel_hint(MlirOperation op, const char *fallback);

/* ---- Facts of upstream operations: isel_ops.c --------------------------- */

/* True when fastmath allows contraction and approximations within 2^-20. */
bool isel_contract(MlirOperation op);
/* "add", "maxnumf", ... of vector.multi_reduction. */
const char *isel_reduction_kind(struct isel *is, MlirOperation op);
/* True when its initial value changes nothing. */
bool isel_neutral_reduction(MlirOperation op);
/* The operand of an arith.constant (scalar or splat); false for other
 * constants. */
bool isel_constant(MlirOperation op, struct ptx_operand *out_operand);

/* ---- Lane constants and parameters: isel_lanes.c ------------------------ */

/* Instructions go to the start of the kernel from here on; returns where they
 * went. */
struct ptx_inst *isel_entry_begin(struct isel *is);
/* They go there again. */
void isel_entry_end(struct isel *is, struct ptx_inst *saved);

struct hoist {
    struct ptx_inst *saved, *anchor;
};
/* Instructions go behind the definitions of all operands, when all are top
 * level; false (and no change) when one is not. */
bool isel_hoist_begin(struct isel *is, struct storage *const *storages,
                      int count, struct hoist *out);
/* They go where they went before. */
void isel_hoist_end(struct isel *is, struct hoist *hoist);

/* Lane constants, computed once at the start of the kernel. */
struct ptx_operand isel_thread(struct isel *is); /* thread in the CTA */
struct ptx_operand isel_lane(struct isel *is);   /* lane in the warp */
struct ptx_operand isel_first_lane(struct isel *is); /* predicate: lane 0 */
struct ptx_operand isel_warp(struct isel *is);   /* warp in the CTA */
struct ptx_operand
isel_row_lane(struct isel *is); /* 16 fragments (warp % row_warps) + lane / 4 */
struct ptx_operand isel_column_lane(struct isel *is); /* 2 (lane % 4) */
struct ptx_operand
isel_smem(struct isel *is); /* address of the shared memory */

/* The chunk at which chunk `chunk` of row `row` lies (layout.h). */
struct ptx_operand isel_swizzled(struct isel *is, struct swizzle swizzle,
                                 struct ptx_operand row,
                                 struct ptx_operand chunk);

/* A cached lane constant; NULL when it has not been computed yet.  `name` is a
 * literal. */
struct ptx_operand *isel_constant_find(struct isel *is, const char *name,
                                       int k0, int k1, int k2, int k3);
/* Enters it. */
void isel_constant_add(struct isel *is, const char *name, int k0, int k1,
                       int k2, int k3, struct ptx_operand reg);

/* Registers of parameters, loaded once at the start of the kernel. */
struct ptx_operand isel_param_scalar(struct isel *is, struct argument *arg);
/* A tensor's address as given. */
struct ptx_operand isel_param_pointer(struct isel *is, struct argument *arg);
/* The same in the global space. */
struct ptx_operand isel_param_global(struct isel *is, struct argument *arg);
/* The extent of a captured tensor's axis. */
struct ptx_operand isel_param_extent(struct isel *is, struct argument *arg,
                                     int axis);
/* In elements: an index is multiplied by the element's bytes first, so that the
 * stride can be used where it lies, in constant memory. */
struct ptx_operand isel_param_stride(struct isel *is, struct argument *arg,
                                     int axis);
/* Of the tensor's elements. */
int isel_element_bytes(const struct argument *arg);

/* Declares the PTX parameters of a function's arguments and binds the
 * arguments. */
void isel_arguments(struct isel *is);

/* ---- Elementwise: isel_run.c, isel_element.c, isel_math.c --------------- */

/* One elementwise operation on one element. */
struct element {
    struct isel *is;
    MlirOperation op;
    struct ptx_operand *in; /* as many as the operation has operands */
    const enum ptx_class *in_class;
    struct ptx_operand dest; /* the register to write, or none: a new one */
    const char *hint;
    bool contract; /* fastmath: contraction and fast forms allowed */
    int unit;      /* 2j + c of an element of a run, -1 outside of runs */
};

struct element_rule {
    const char *name; /* of the operation */
    struct ptx_operand (*emit)(
        const struct element *e); /* NULL: one instruction */
    enum ptx_op r, f, f_contract,
        p; /* its row by operand class; PTX_OP_COUNT: none */
};

/* The rule of an elementwise operation, NULL when it is none. */
const struct element_rule *element_rule_find(const char *name);
/* Emits one element; returns what holds the result (`dest` when that is given).
 */
struct ptx_operand element_emit(const struct element_rule *rule,
                                const struct element *e);

/* The last instruction of an element: writes dest or a new register. */
struct ptx_operand element_result(const struct element *e, enum ptx_op op,
                                  const struct ptx_operand *operands,
                                  int count);
#define element_out(e, op, ...)                                              \
    element_result((e), (op), (const struct ptx_operand[]){__VA_ARGS__},     \
                   (int)(sizeof((const struct ptx_operand[]){__VA_ARGS__}) / \
                         sizeof(struct ptx_operand)))
/* setp of two i32 (an IR predicate, signed or eq, ne). */
struct ptx_operand element_compare(const struct element *e, int64_t predicate,
                                   struct ptx_operand a, struct ptx_operand b);
/* An operand that is the result already: moved when dest is given. */
struct ptx_operand element_same(const struct element *e,
                                struct ptx_operand operand);

/* Functions of isel_math.c, columns of the rule table; all f32 (docs/ptx.md has
 * their errors).  2^x. */
struct ptx_operand math_exp2(const struct element *e);
/* 2^x, of some units by a polynomial (attn.exp2_split). */
struct ptx_operand math_exp2_split(const struct element *e);
/* e^x. */
struct ptx_operand math_exp(const struct element *e);
/* ln(x). */
struct ptx_operand math_log(const struct element *e);
/* tanh(x). */
struct ptx_operand math_tanh(const struct element *e);
/* sin(x), x in radians. */
struct ptx_operand math_sin(const struct element *e);
/* cos(x), x in radians. */
struct ptx_operand math_cos(const struct element *e);
/* x^y. */
struct ptx_operand math_powf(const struct element *e);
/* x / y. */
struct ptx_operand math_divf(const struct element *e);

/* Calls of extern functions: isel_call.c.  Enters the function that a func.call
 * names into kernel->externs; false after an error (no extern function, operand
 * types that C++ code cannot take).  Needed in front of call_extern, the emit
 * function of func.call. */
bool isel_declare_extern(struct isel *is, MlirOperation call);
/* The call for one element. */
struct ptx_operand call_extern(const struct element *e);

/* True when the op was taken: added to the pending run or emitted. */
bool isel_elementwise(struct isel *is, MlirOperation op);
/* Emits the pending run. */
void isel_flush(struct isel *is);
/* Flushes when an operand of the op (or of what is nested in it) is still
 * pending. */
void isel_flush_for(struct isel *is, MlirOperation op);

/* Writes `// @ file:line:col` when the op comes from another place than the
 * last. */
void isel_location(struct isel *is, MlirOperation op);

/* Loads of attn.read inside and outside runs: isel_read.c. */
struct read_plan;
/* How an attn.read is addressed; NULL after an error. */
struct read_plan *read_plan_create(struct isel *is, MlirOperation op);
/* Layout of the result: join of the indices' layouts. */
enum layout read_plan_layout(const struct read_plan *plan);
/* Loads a read by column position for the whole warp, here and now; elements
 * are then shuffled.  False for other reads, which stay as they are. */
bool read_plan_share(struct isel *is, struct read_plan *plan);
/* Scalar and row parts of the addresses; before the elements. */
void read_plan_begin(struct isel *is, struct read_plan *plan);
/* The element (f, i, j, c) into `dest` or a new register. */
struct ptx_operand read_plan_element(struct isel *is, struct read_plan *plan,
                                     int f, int i, int j, int c,
                                     struct ptx_operand dest);

/* What the element (f, i, j, c) reads: equal keys, equal elements.  False when
 * there are too many indices to tell. */
bool read_plan_key(struct isel *is, const struct read_plan *plan, int f, int i,
                   int j, int c, struct ptx_operand out_key[4]);

/* Positions: isel_position.c.  Binds a vector.step seen as rows or columns
 * (`type`). */
void position_step(struct isel *is, MlirOperation op,
                   const struct storage *type);
/* position + scalar as a position; false for other ops. */
bool position_add(struct isel *is, MlirOperation op,
                  struct storage *const in[2]);
/* Key positions over a power of two that divides the tile's first one; false
 * for other ops. */
bool position_divide(struct isel *is, MlirOperation op,
                     struct storage *const in[2]);

/* Element of a storage inside a run as it is, perhaps "register + constant". */
struct ptx_operand run_affine(const struct storage *storage, int f, int i,
                              int j, int c);
/* Element of a storage inside a run: the temporary when it lives there only,
 * and "register + constant" added up (once for each column). */
struct ptx_operand run_element(struct isel *is, struct storage *storage, int f,
                               int i, int j, int c);

/* Combines the four lanes of a quad: op is a two-operand row. */
struct ptx_operand isel_quad_reduce(struct isel *is, enum ptx_op op,
                                    enum ptx_class class, struct ptx_operand x,
                                    const char *hint);

/* ---- Lowering functions of single operations ---------------------------- */

#define LOWERING(name, function, effect) \
    void function(struct isel *is, MlirOperation op);
#include "backends/ptx/lowerings.def"

/* The view of an attn.shared with swizzle_bytes, tiles of panels. */
void lower_panels(struct isel *is, MlirOperation op, struct shared_view *view);

/* The registers of the loop-carried value that `value`, a tile like `form`, is
 * yielded to, when that is its only use and nobody needs the old value any
 * more; else NULL. */
struct storage *isel_yield_target(struct isel *is, MlirValue value,
                                  const struct storage *form);

/* Lowers the operations of a block up to its terminator, which is returned. */
MlirOperation isel_block(struct isel *is, MlirBlock block);

/* Lowers one kernel; NULL when that failed. */
struct ptx_kernel *isel_kernel(struct arena *arena, MlirOperation func,
                               const struct ptx_options *options,
                               struct diag_sink *sink);

/* The address of row 0, 64-bit, of src[b, h]: global pointer + b, h strides.
 * Hoisted and cached when b and h are top level. */
struct ptx_operand isel_head_pointer(struct isel *is, struct argument *arg,
                                     MlirValue b, MlirValue h);

/* The address of a row of packed heads, `head` being that of their first: query
 * row / heads of head row % heads. */
struct ptx_operand isel_packed_row(struct isel *is, struct argument *arg,
                                   struct ptx_operand head,
                                   struct ptx_operand row, int heads);

#endif
