/* Reading and changing what is there: op kinds, attributes, kernels and their
 * arguments, symbols, uses, and inlining of functions.
 *
 * This is the only place that spells attribute names; see docs/ir.md for what
 * they mean.
 */
#ifndef ATTN_IR_WALK_H
#define ATTN_IR_WALK_H

#include <mlir-c/IR.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/build.h"

/* ---- Ops ----------------------------------------------------------------- */

/* True when the op is called `name` ("attn.dot"); false for a null op. */
bool ir_is_op(MlirOperation op, const char *name);
/* Name of an op; borrowed from the context, NUL-terminated. */
const char *ir_op_name(MlirOperation op);
/* The op that defines a value; null for block arguments. */
MlirOperation ir_def(MlirValue value);
/* The op that defines `value` if it is called `name`, else null. */
MlirOperation ir_def_op(MlirValue value, const char *name);

/* Operand i. */
static inline MlirValue ir_operand(MlirOperation op, size_t i) {
    return mlirOperationGetOperand(op, (intptr_t)i);
}

/* Result i. */
static inline MlirValue ir_result(MlirOperation op, size_t i) {
    return mlirOperationGetResult(op, (intptr_t)i);
}

/* Number of operands. */
static inline size_t ir_operand_count(MlirOperation op) {
    return (size_t)mlirOperationGetNumOperands(op);
}

/* Number of results. */
static inline size_t ir_result_count(MlirOperation op) {
    return (size_t)mlirOperationGetNumResults(op);
}

/* First block of region i; null when the region is empty. */
static inline MlirBlock ir_region_block(MlirOperation op, size_t i) {
    return mlirRegionGetFirstBlock(mlirOperationGetRegion(op, (intptr_t)i));
}

/* Whether any op takes the value as an operand. */
static inline bool ir_has_uses(MlirValue value) {
    return !mlirOpOperandIsNull(mlirValueGetFirstUse(value));
}

/* Every op that takes `old` takes `new` instead, of the same type. */
static inline void ir_replace_uses(MlirValue old, MlirValue new) {
    mlirValueReplaceAllUsesOfWith(old, new);
}

/* Unlinks and destroys an op without uses. */
void ir_erase(MlirOperation op);
/* Erases ops without side effects and without uses, last to first, inside
 * `block` and its regions. */
void ir_erase_dead(MlirBlock block);
/* True for ops that can be dropped when unused: arith, math, vector, attn.read,
 * ids, memref.dim, memref.load, func.call (all functions of the IR are
 * pure). */
bool ir_is_pure(MlirOperation op);

/* Calls visit(data, op) for every op below `root`, root excluded, in program
 * order (pre-order).  The visitor may not erase ops other than those already
 * visited. */
void ir_walk(MlirOperation root, void (*visit)(void *data, MlirOperation op),
             void *data);
/* All ops called `name` below `root`, in program order; an arena array. */
MlirOperation *ir_collect(struct arena *arena, MlirOperation root,
                          const char *name, size_t *out_count);

/* ---- Attributes ---------------------------------------------------------- */

/* Whether the op has an attribute, inherent or discardable. */
static inline bool ir_has_attr(MlirOperation op, const char *name) {
    return !mlirAttributeIsNull(
        mlirOperationGetAttributeByName(op, ir_ref(name)));
}

/* Adds or replaces an attribute. */
static inline void ir_set_attr(MlirOperation op, const char *name,
                               MlirAttribute value) {
    mlirOperationSetAttributeByName(op, ir_ref(name), value);
}

/* Removes an attribute; none of that name is fine. */
static inline void ir_remove_attr(MlirOperation op, const char *name) {
    mlirOperationRemoveAttributeByName(op, ir_ref(name));
}

/* An integer attribute, `missing` when it is absent. */
int64_t ir_int_attr(MlirOperation op, const char *name, int64_t missing);
/* A string or symbol attribute (borrowed from the context), NULL when
 * absent. */
const char *ir_text_attr(MlirOperation op, const char *name);

/* ---- Symbols and kernels ------------------------------------------------- */

/* A function of the module by name, null when there is none. */
MlirOperation ir_find_func(MlirOperation module, const char *name);
/* Name of a function; borrowed from the context. */
static inline const char *ir_func_name(MlirOperation func) {
    return ir_text_attr(func, "sym_name");
}

/* The function that a symbol attribute of `op` names; null when absent. */
MlirOperation ir_symbol_func(MlirOperation module, MlirOperation op,
                             const char *attr);
/* The attn.attention op inside a function, null when there is none. */
MlirOperation ir_find_attention(MlirOperation func);
/* What a function of one block returns first. */
MlirValue ir_returned(MlirOperation func);
/* The value itself where it is one of lower rank, stretched (vector.broadcast).
 */
MlirValue ir_unstretched(MlirValue value);
/* The first test kv <= q (or q >= kv) among conditions that must all hold
 * (arith.andi), in a mask function or inlined on vectors; null when there is
 * none. */
MlirOperation ir_find_causal(struct arena *scratch, MlirValue condition,
                             MlirValue q, MlirValue kv);

/* Arguments of a mask function: b h h_kv q kv, then the kernel's. */
enum { IR_MASK_Q = 3, IR_MASK_KV = 4 };

/* Operands of attn.attention. */
enum {
    IR_ATTENTION_Q,
    IR_ATTENTION_K,
    IR_ATTENTION_V,
    IR_ATTENTION_O,
    IR_ATTENTION_LSE,
    IR_ATTENTION_SCALE
};

/* attn.arg of an argument ("q", "size:heads", "param:window", …), NULL if
 * none. */
const char *ir_func_arg_kind(MlirOperation func, size_t i);
/* The argument with this attn.arg; false when there is none. */
bool ir_func_find_arg(MlirOperation func, const char *kind, size_t *out_index);
/* Sets (null: only makes room for) an attribute of argument i. */
void ir_func_set_arg_attr(MlirOperation func, size_t i, const char *name,
                          MlirAttribute value);
/* Attribute of argument i, null when absent. */
MlirAttribute ir_func_arg_attr(MlirOperation func, size_t i, const char *name);

/* attn.kernel: "main", "summary"; NULL: no kernel. */
static inline const char *ir_kernel_kind(MlirOperation func) {
    return ir_text_attr(func, "attn.kernel");
}

/* Makes the function a kernel of this kind. */
static inline void ir_set_kernel_kind(MlirOperation func, const char *kind) {
    ir_set_attr(func, "attn.kernel",
                ir_attr_string(mlirOperationGetContext(func), kind));
}

/* An attribute array<i32: first, second>; false when absent. */
bool ir_int_pair(MlirOperation op, const char *name, int *out_first,
                 int *out_second);
/* Sets it. */
void ir_set_int_pair(MlirOperation op, const char *name, int first, int second);

/* attn.tile = array<i32: M, N>; false when absent. */
static inline bool ir_kernel_tile(MlirOperation func, int *out_m, int *out_n) {
    return ir_int_pair(func, "attn.tile", out_m, out_n);
}

/* Sets it: rows and columns of the score tile. */
static inline void ir_set_kernel_tile(MlirOperation func, int m, int n) {
    ir_set_int_pair(func, "attn.tile", m, n);
}

/* attn.warps: warps of a CTA, 0 when absent. */
static inline int ir_kernel_warps(MlirOperation func) {
    return (int)ir_int_attr(func, "attn.warps", 0);
}

/* Sets it. */
static inline void ir_set_kernel_warps(MlirOperation func, int warps) {
    ir_set_attr(func, "attn.warps",
                ir_attr_i32(mlirOperationGetContext(func), warps));
}

/* attn.shared_bytes: shared memory of a CTA, 0 when absent. */
static inline int ir_kernel_shared_bytes(MlirOperation func) {
    return (int)ir_int_attr(func, "attn.shared_bytes", 0);
}

/* Sets it. */
static inline void ir_set_kernel_shared_bytes(MlirOperation func, int bytes) {
    ir_set_attr(func, "attn.shared_bytes",
                ir_attr_i32(mlirOperationGetContext(func), bytes));
}

/* attn.grid: postfix words. */
void ir_set_kernel_grid(MlirOperation func, const char *const *words,
                        size_t count);
/* attn.when: the condition for launching it, postfix words. */
void ir_set_kernel_when(MlirOperation func, const char *const *words,
                        size_t count);
/* pack_gqa of a load, copy or store: rows row0.. are numbers of (query, head)
 * pairs, row r being query r / heads of head `head` + r % heads.  1: rows are
 * queries of one head (the attribute is absent then). */
static inline void ir_set_packed_heads(MlirOperation op, int heads) {
    if (heads > 1)
        ir_set_attr(op, "pack_gqa",
                    ir_attr_i32(mlirOperationGetContext(op), heads));
}
static inline int ir_packed_heads(MlirOperation op) {
    return (int)ir_int_attr(op, "pack_gqa", 1);
}

/* attn.extents of tensor argument i: postfix words of one axis, a list an
 * axis. */
void ir_set_extents(MlirOperation func, size_t i, struct arena *arena,
                    const char *const *const *words, const size_t *counts,
                    int rank);
/* Words of one axis; NULL when the attribute is missing. */
const char **ir_extent_words(struct arena *arena, MlirOperation func, size_t i,
                             int axis, size_t *out_count);
/* attn.workspace_bytes of argument i: postfix words. */
void ir_set_workspace_bytes(MlirOperation func, size_t i,
                            const char *const *words, size_t count);
/* Words of an array of strings, an arena array; NULL for a null attribute. */
const char **ir_words(struct arena *arena, MlirAttribute array,
                      size_t *out_count);
/* attn.target of the module, NULL when absent. */
static inline const char *ir_module_target(MlirOperation module) {
    return ir_text_attr(module, "attn.target");
}

/* Sets it: "sm_80" and so on. */
static inline void ir_set_module_target(MlirOperation module,
                                        const char *target) {
    ir_set_attr(module, "attn.target",
                ir_attr_string(mlirOperationGetContext(module), target));
}

/* ---- Inlining ------------------------------------------------------------ */

/* A map from values to values. */
struct ir_map;
/* An empty one, in the arena. */
struct ir_map *ir_map_create(struct arena *arena);
/* Adds or replaces the image of a value; a value may be its own, which makes of
 * a map a set. */
void ir_map_set(struct ir_map *map, MlirValue from, MlirValue to);
/* The image of a value, the value itself when it has none. */
MlirValue ir_map_get(const struct ir_map *map, MlirValue value);
/* Whether a value has an image. */
bool ir_map_has(const struct ir_map *map, MlirValue value);
/* Does the op take a value of the set? */
bool ir_takes_any(MlirOperation op, const struct ir_map *set);
/* Adds the op's results to the set. */
void ir_add_results(struct ir_map *set, MlirOperation op);

/* A copy of `op` (regions included) at the builder's place, operands mapped;
 * results are entered into the map.  Keeps op's location. */
MlirOperation ir_clone(struct ir_builder *b, MlirOperation op,
                       struct ir_map *map);

/* Copies the body of a single-block function to the builder's place with `args`
 * for its arguments; out_results (may be NULL) receives what it returns.
 *
 * Arguments of a scalar function may be vectors of rank 2: every elementwise op
 * and attn.read is then rebuilt on the join of its operands' shapes, operands
 * being broadcast where needed, so a value that depends on rows only stays a
 * row quantity.  Positions (attn.position) divided by a constant become a
 * scalar where it is the same for all of them.  Ops with regions take scalars
 * only. */
void ir_inline(struct ir_builder *b, MlirOperation func, const MlirValue *args,
               size_t count, MlirValue *out_results);

#endif
