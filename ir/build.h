/* Builders: one typed function per op, for the attn dialect and for the
 * upstream ops that the passes use.
 *
 * A builder holds a place (block, and the op before which it inserts) and the
 * location that new ops get.  Values are MlirValue; operands of elementwise ops
 * must have one type: ir_broadcast stretches row and column quantities. Results
 * are what MLIR's verifier expects; builders do not check again, verify.c
 * does. */
#ifndef ATTN_IR_BUILD_H
#define ATTN_IR_BUILD_H

#include <mlir-c/IR.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/context.h"
#include "ir/types.h"
#include "support/arena.h"

struct ir_builder {
    MlirContext context;
    MlirBlock block;
    MlirOperation before;  /* null: at the end of the block */
    MlirLocation location; /* of new ops */
    struct arena *arena;   /* scratch memory, borrowed */
    bool contract;         /* f32 arith and math ops get fastmath<contract> */
};

/* A builder without a place, unknown location. */
void ir_builder_init(struct ir_builder *b, MlirContext context,
                     struct arena *arena);

/* Inserts at the end of `block` from here on; the location stays. */
void ir_at_end(struct ir_builder *b, MlirBlock block);
/* Inserts before `op` and takes over its location. */
void ir_before(struct ir_builder *b, MlirOperation op);
/* Inserts behind `op` and takes over its location. */
void ir_after(struct ir_builder *b, MlirOperation op);

/* ---- Any op -------------------------------------------------------------- */

/* One attribute of an op to build. */
struct ir_attr {
    const char *name;
    MlirAttribute value;
};

/* Builds and inserts `name` without regions.  At most 16 attributes; `attrs`
 * may be NULL.  Aborts on a name that no dialect of the context has. */
MlirOperation ir_op(struct ir_builder *b, const char *name,
                    const MlirValue *operands, size_t operand_count,
                    const MlirType *results, size_t result_count,
                    const struct ir_attr *attrs, size_t attr_count);

/* The same for one result, which is returned. */
MlirValue ir_value_op(struct ir_builder *b, const char *name,
                      const MlirValue *operands, size_t operand_count,
                      MlirType result, const struct ir_attr *attrs,
                      size_t attr_count);

/* value : i32 */
MlirAttribute ir_attr_i32(MlirContext context, int32_t value);
/* "text", copied. */
MlirAttribute ir_attr_string(MlirContext context, const char *text);
/* @name, a reference to a function of the module. */
MlirAttribute ir_attr_symbol(MlirContext context, const char *name);
/* unit: true by being there. */
MlirAttribute ir_attr_unit(MlirContext context);

/* ---- Constants ----------------------------------------------------------- */

/* arith.constant, scalar i32. */
MlirValue ir_const_i32(struct ir_builder *b, int32_t value);
/* The same as f32; infinities and NaN are allowed. */
MlirValue ir_const_f32(struct ir_builder *b, float value);
/* The same as i1. */
MlirValue ir_const_bool(struct ir_builder *b, bool value);

/* A constant of `type`: scalar, or splat of a vector.  The element type is i1,
 * i32, index (whole values) or a float. */
MlirValue ir_splat(struct ir_builder *b, MlirType type, double value);

/* The value of a scalar or splat integer constant (i1: 0 or 1; index, i32).
 * False: `value` is no such constant. */
bool ir_constant_int(MlirValue value, int64_t *out_value);
/* The same for f32. */
bool ir_constant_float(MlirValue value, double *out_value);

/* ---- Arithmetic ---------------------------------------------------------- */

/* clang-format off */
/* Binary ops, operands and result of one type (scalar or vector). */
#define IR_BINARY_OPS(OP)                                                     \
    OP(addi, "arith.addi") OP(subi, "arith.subi") OP(muli, "arith.muli")      \
    OP(divsi, "arith.divsi") OP(divui, "arith.divui")                         \
    OP(remsi, "arith.remsi") OP(remui, "arith.remui")                         \
    OP(floordivsi, "arith.floordivsi") OP(minsi, "arith.minsi")               \
    OP(maxsi, "arith.maxsi") OP(minui, "arith.minui")                         \
    OP(maxui, "arith.maxui") OP(andi, "arith.andi") OP(ori, "arith.ori")      \
    OP(xori, "arith.xori") OP(shli, "arith.shli") OP(shrsi, "arith.shrsi")    \
    OP(shrui, "arith.shrui") OP(addf, "arith.addf") OP(subf, "arith.subf")    \
    OP(mulf, "arith.mulf") OP(divf, "arith.divf")                             \
    OP(maxnumf, "arith.maxnumf") OP(minnumf, "arith.minnumf")                 \
    OP(powf, "math.powf")

/* Unary ops, result of the operand's type. */
#define IR_UNARY_OPS(OP)                                                      \
    OP(negf, "arith.negf") OP(exp2, "math.exp2") OP(exp, "math.exp")          \
    OP(log, "math.log") OP(log2, "math.log2") OP(tanh, "math.tanh")           \
    OP(sqrt, "math.sqrt") OP(rsqrt, "math.rsqrt") OP(sin, "math.sin")         \
    OP(cos, "math.cos") OP(floor, "math.floor") OP(ceil, "math.ceil")         \
    OP(roundeven, "math.roundeven") OP(absf, "math.absf")                     \
    OP(absi, "math.absi") OP(ctpop, "math.ctpop") OP(ctlz, "math.ctlz")       \
    OP(cttz, "math.cttz")

/* Casts: result has the operand's shape and the element type `element`. */
#define IR_CAST_OPS(OP)                                                       \
    OP(index_cast, "arith.index_cast") OP(extui, "arith.extui")               \
    OP(extsi, "arith.extsi") OP(trunci, "arith.trunci")                       \
    OP(sitofp, "arith.sitofp") OP(uitofp, "arith.uitofp")                     \
    OP(fptosi, "arith.fptosi") OP(truncf, "arith.truncf")                     \
    OP(extf, "arith.extf") OP(bitcast, "arith.bitcast")
/* clang-format on */

/* ir_addi(b, x, y), ir_negf(b, x), ir_extf(b, x, element), … */
#define OP(name, mlir) \
    MlirValue ir_##name(struct ir_builder *b, MlirValue x, MlirValue y);
IR_BINARY_OPS(OP)
#undef OP
#define OP(name, mlir) MlirValue ir_##name(struct ir_builder *b, MlirValue x);
IR_UNARY_OPS(OP)
#undef OP
#define OP(name, mlir) \
    MlirValue ir_##name(struct ir_builder *b, MlirValue x, MlirType element);
IR_CAST_OPS(OP)
#undef OP

/* Predicates with MLIR's numbers. */
enum ir_cmpi {
    IR_EQ,
    IR_NE,
    IR_SLT,
    IR_SLE,
    IR_SGT,
    IR_SGE,
    IR_ULT,
    IR_ULE,
    IR_UGT,
    IR_UGE
};
enum ir_cmpf {
    IR_OEQ = 1,
    IR_OGT,
    IR_OGE,
    IR_OLT,
    IR_OLE,
    IR_ONE,
    IR_ORD,
    IR_UEQ,
    IR_UGTF,
    IR_UGEF,
    IR_ULTF,
    IR_ULEF,
    IR_UNE,
    IR_UNO,
};

/* x ? y for integers and index: i1 of the operands' shape. */
MlirValue ir_cmpi(struct ir_builder *b, enum ir_cmpi predicate, MlirValue x,
                  MlirValue y);
/* The same for floats; O predicates are false and U ones true on NaN. */
MlirValue ir_cmpf(struct ir_builder *b, enum ir_cmpf predicate, MlirValue x,
                  MlirValue y);

/* condition ? x : y; the condition is scalar or has the arms' shape. */
MlirValue ir_select(struct ir_builder *b, MlirValue condition, MlirValue x,
                    MlirValue y);

/* !x for i1. */
MlirValue ir_not(struct ir_builder *b, MlirValue x);

/* math.fma: x*y + z, rounded once. */
MlirValue ir_fma(struct ir_builder *b, MlirValue x, MlirValue y, MlirValue z);

/* A scalar index as i32 (cut to 32 bits); an i32 comes back as it is. */
MlirValue ir_to_i32(struct ir_builder *b, MlirValue x);

/* ---- Vectors ------------------------------------------------------------- */

/* `x` (scalar, row, column) stretched to `type`'s shape; `x` itself when it has
 * that shape already. */
MlirValue ir_broadcast(struct ir_builder *b, MlirValue x, MlirType type);

/* 0..rows-1 as vector<rows x 1 x i32> (vector.step, index_cast, shape_cast). */
MlirValue ir_row_positions(struct ir_builder *b, int64_t rows);
/* The same as vector<1 x columns x i32>. */
MlirValue ir_column_positions(struct ir_builder *b, int64_t columns);

enum ir_reduction { IR_REDUCE_ADD, IR_REDUCE_MAXNUMF, IR_REDUCE_MINNUMF };

/* vector.multi_reduction over the columns of a MxN tile, from the neutral
 * element (0, -inf, inf), as vector<Mx1>. */
MlirValue ir_reduce_columns(struct ir_builder *b, enum ir_reduction kind,
                            MlirValue tile);

/* ---- Structured control flow --------------------------------------------- */

struct ir_for {
    MlirOperation op;
    MlirBlock body;
    MlirValue iv;
    struct ir_builder after; /* the builder's place behind the loop */
};

/* Starts scf.for (lo, hi, step: i32 or index); the builder is inside the body
 * afterwards.  Loop-carried values: ir_for_arg. */
struct ir_for ir_for_begin(struct ir_builder *b, MlirValue lo, MlirValue hi,
                           MlirValue step, const MlirValue *inits,
                           size_t count);
/* What the loop carries for inits[i], inside the body. */
MlirValue ir_for_arg(const struct ir_for *loop, size_t i);
/* Yields and moves the builder behind the loop; results:
 * ir_result(loop.op, i). */
void ir_for_end(struct ir_builder *b, struct ir_for *loop,
                const MlirValue *yields, size_t count);

struct ir_if {
    MlirOperation op;
    struct ir_builder after;
};

/* Starts scf.if with results of the given types; the builder is inside the then
 * arm.  Results need `has_else`. */
struct ir_if ir_if_begin(struct ir_builder *b, MlirValue condition,
                         const MlirType *results, size_t count, bool has_else);
/* Yields from the then arm and moves to the else arm; needs `has_else`. */
void ir_if_else(struct ir_builder *b, struct ir_if *branch,
                const MlirValue *yields, size_t count);
/* Yields from the last arm and moves behind; results:
 * ir_result(branch.op, i). */
void ir_if_end(struct ir_builder *b, struct ir_if *branch,
               const MlirValue *yields, size_t count);

struct ir_while {
    MlirOperation op;
    struct ir_builder after;
};

/* Starts scf.while; the builder is in the condition part, whose arguments
 * (ir_while_arg) have the types of `inits`. */
struct ir_while ir_while_begin(struct ir_builder *b, const MlirValue *inits,
                               size_t count);
/* One whose condition part passes on only the first `passed` values: so many
 * ir_while_do takes, and the loop has so many results. */
struct ir_while ir_while_begin_passing(struct ir_builder *b,
                                       const MlirValue *inits, size_t count,
                                       size_t passed);
/* Argument i of part 0 (condition) or 1 (body). */
MlirValue ir_while_arg(const struct ir_while *loop, int part, size_t i);
/* scf.condition; passes `values` (types as inits) on and moves into the
 * body. */
void ir_while_do(struct ir_builder *b, struct ir_while *loop,
                 MlirValue condition, const MlirValue *values, size_t count);
/* Yields and moves behind the loop. */
void ir_while_end(struct ir_builder *b, struct ir_while *loop,
                  const MlirValue *yields, size_t count);

/* ---- Memory and GPU ------------------------------------------------------ */

/* memref.load; indices are i32 or index scalars, one per axis. */
MlirValue ir_load_element(struct ir_builder *b, MlirValue memref,
                          const MlirValue *indices, size_t count);
/* memref.store of a scalar, indices likewise. */
void ir_store_element(struct ir_builder *b, MlirValue value, MlirValue memref,
                      const MlirValue *indices, size_t count);
/* Extent of an axis as i32. */
MlirValue ir_dim(struct ir_builder *b, MlirValue memref, int axis);

/* Number of the CTA on axis x, i32. */
MlirValue ir_block_id(struct ir_builder *b);
/* Number of the thread in its CTA, i32. */
MlirValue ir_thread_id(struct ir_builder *b);
/* Number of the lane in its warp, i32. */
MlirValue ir_lane_id(struct ir_builder *b);
/* Number of the warp in its CTA, i32. */
MlirValue ir_subgroup_id(struct ir_builder *b);
/* All threads of the CTA meet; shared memory written before is visible
 * after. */
void ir_barrier(struct ir_builder *b);

/* ---- Functions ----------------------------------------------------------- */

/* A func.func at the builder's place (a module body) with an entry block that
 * has the given argument types; the builder does not move.  Argument locations
 * are the builder's. */
MlirOperation ir_func(struct ir_builder *b, const char *name, bool is_private,
                      const MlirType *args, size_t arg_count,
                      const MlirType *results, size_t result_count);
/* The entry block; null for a declaration. */
MlirBlock ir_func_body(MlirOperation func);
/* Number of arguments, of declarations too. */
size_t ir_func_arg_count(MlirOperation func);
/* Argument i inside the body. */
MlirValue ir_func_arg(MlirOperation func, size_t i);
/* Appends an argument (type and block argument), with `attn.arg` unless
 * NULL. */
MlirValue ir_func_add_arg(MlirOperation func, MlirType type, const char *arg);
/* func.return; `values` are what the function's type says. */
void ir_return(struct ir_builder *b, const MlirValue *values, size_t count);
/* The declaration of a CUDA C++ function `name` (attribute attn.extern = its
 * name) for these argument types, made at the end of the module when it is not
 * there.  Vector types of one shape: the function applied to every element;
 * those declarations are called NAME.RxC. */
MlirOperation ir_extern_func(MlirOperation module, struct arena *arena,
                             const char *name, const MlirType *args,
                             size_t arg_count, MlirType result);
/* func.call of `func`; results: ir_result. */
MlirOperation ir_call(struct ir_builder *b, MlirOperation func,
                      const MlirValue *args, size_t count);

/* ---- attn ---------------------------------------------------------------- */

/* Operands of attn.attention.  Its functions take the arguments of the function
 * around it that follow lse, in that order: mask and score the sizes, params
 * and tensors, classify and kv_bounds the workspaces too. */
struct ir_attention {
    MlirValue q, k, v, o, lse, scale;
    int group; /* query heads per KV head; 0: any */
};
/* The op; the caller sets its attributes mask, score, … (docs/ir.md). */
MlirOperation ir_attention(struct ir_builder *b,
                           const struct ir_attention *attention);

/* Element of a captured tensor: f16/bf16/f32 -> f32, i8 -> i1, i32.  The shape
 * is the join of the index shapes. */
MlirValue ir_read(struct ir_builder *b, MlirValue tensor,
                  const MlirValue *indices, size_t count);

/* Fresh shared tile of `rows` rows, its columns being src's last extent. */
MlirValue ir_load(struct ir_builder *b, const char *name, MlirValue src,
                  MlirValue batch, MlirValue head, MlirValue row0,
                  MlirValue limit, int64_t rows);

/* x (MxK)·y + acc (MxN), f32 sums; y is KxN, or NxK with `transpose_b`. */
MlirValue ir_dot(struct ir_builder *b, MlirValue x, MlirValue y, MlirValue acc,
                 bool transpose_b);
/* A shared tile in registers, as the left operand of dots. */
MlirValue ir_fragments(struct ir_builder *b, MlirValue shared);

/* One key block of the online softmax: scores s, values v.  Results 0..2: acc,
 * m, l. */
MlirOperation ir_softmax_step(struct ir_builder *b, MlirValue acc, MlirValue m,
                              MlirValue l, MlirValue s, MlirValue v);
/* acc / l and the logarithm of the sum of a row.  Results 0..1: o, lse. */
MlirOperation ir_softmax_finish(struct ir_builder *b, MlirValue acc,
                                MlirValue m, MlirValue l);

/* x·y rounded toward +infinity, f32. */
MlirValue ir_mul_rp(struct ir_builder *b, MlirValue x, MlirValue y);
/* l plus, in every lane, the lane's own elements of each row of p. */
MlirValue ir_partial_sum(struct ir_builder *b, MlirValue p, MlirValue l);
/* Writes a tile to rows row0.. of dst[batch, head], those below `limit`.
 * `optional`: dst may be a null pointer at run time, then nothing is
 * written. */
MlirOperation ir_store(struct ir_builder *b, MlirValue value, MlirValue dst,
                       MlirValue batch, MlirValue head, MlirValue row0,
                       MlirValue limit, bool optional);
/* Degrees that attn.exp2_split may have: 3 to 5. */
enum { IR_EXP2_COEFFICIENTS = 6 };
/* exp2 of a tile: the listed units of columns (ascending) by the polynomial,
 * the rest on the MUFU.  Unit 2j + c is what the lanes of a quad hold at parity
 * c of 8 columns: columns 8j + 2k + c, k < 4. */
MlirValue ir_exp2_split(struct ir_builder *b, MlirValue x, const int32_t *units,
                        size_t unit_count, const float *coefficients,
                        size_t coefficient_count);
/* Does the polynomial serve this unit? */
bool ir_exp2_split_has_unit(MlirOperation split, int unit);
/* Its coefficients, lowest power first; returns how many. */
int ir_exp2_split_coefficients(MlirOperation split,
                               float out_coefficients[IR_EXP2_COEFFICIENTS]);

/* Bit i is the i1 predicate of lane i, as i32 in every lane. */
MlirValue ir_ballot(struct ir_builder *b, MlirValue predicate);
/* Over the 32 lanes, the result in each.  kind: minsi maxsi minnumf maxnumf ori
 * andi. */
MlirValue ir_warp_reduce(struct ir_builder *b, const char *kind, MlirValue x);

/* How a shared buffer lies in memory (contract: attn.shared). */
struct ir_shared {
    const char *name;
    int byte_offset, pitch, swizzle_bits,
        swizzle_shift; /* rank 1: byte_offset only */
};
/* A buffer of type ir_type_shared at this place. */
MlirValue ir_shared(struct ir_builder *b, MlirType type,
                    const struct ir_shared *place);
/* Stage `index` of a buffer [stages, rows, columns]. */
MlirValue ir_stage(struct ir_builder *b, MlirValue buffer, MlirValue index);
/* cp.async of rows row0.. of src[batch, head] to a shared tile; rows from
 * `limit` on and padding columns become zero. */
MlirOperation ir_copy_async(struct ir_builder *b, MlirValue src,
                            MlirValue batch, MlirValue head, MlirValue row0,
                            MlirValue limit, MlirValue dst);
/* Makes the lane's copies since the last one a group
 * (cp.async.commit_group). */
void ir_commit_group(struct ir_builder *b);
/* Waits until at most `pending` of the lane's groups are in flight; other warps
 * see them after ir_barrier. */
void ir_wait_group(struct ir_builder *b, int pending);

#endif
