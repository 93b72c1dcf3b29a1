/* Loop-invariant code motion for the pass `tile`.
 *
 * Stock MLIR moves only ops whose effects it knows; attn.read is none of them,
 * and reads of captured tensors by row are what is worth moving most.  Tile
 * values stay where they are: in front of the loop they would hold registers
 * during all of it.
 *
 * Not here: sharing of equal arithmetic, which stock cse does after this pass.
 */
#include "ir/walk.h"
#include "passes/tile.h"
#include "support/vec.h"

typedef VEC(MlirOperation) op_list;

static bool same_block(MlirBlock a, MlirBlock b) {
    return mlirBlockEqual(a, b);
}

/* True if `block` lies in `op`, at any depth. */
static bool block_is_inside(MlirBlock block, MlirOperation op) {
    for (;;) {
        MlirOperation parent = mlirBlockGetParentOperation(block);
        if (mlirOperationEqual(parent, op))
            return true;
        if (ir_is_op(parent, "func.func"))
            return false;
        block = mlirOperationGetBlock(parent);
    }
}

static bool is_defined_inside(MlirValue value, MlirOperation loop) {
    MlirBlock block = mlirValueIsABlockArgument(value)
                          ? mlirBlockArgumentGetOwner(value)
                          : mlirOperationGetBlock(ir_def(value));
    return block_is_inside(block, loop);
}

/* Shared memory changes in the loop; summaries of captured tensors, which are
 * arguments, were written by an earlier kernel. */
static bool reads_what_changes(MlirOperation op) {
    if (ir_is_op(op, "memref.load"))
        return !mlirValueIsABlockArgument(ir_operand(op, 0));
    return ir_is_op(op, "attn.fragments");
}

/* Pure, not a tile, and fed from outside the loop only. */
static bool is_invariant(MlirOperation op, MlirOperation loop) {
    if (!ir_is_pure(op) || reads_what_changes(op) ||
        mlirOperationGetNumRegions(op) != 0)
        return false;
    bool free =
        ir_is_op(op, "arith.constant") || ir_is_op(op, "vector.broadcast");
    if (!free && ir_is_tile(mlirValueGetType(ir_result(op, 0))))
        return false;
    for (size_t i = 0; i < ir_operand_count(op); i++)
        if (is_defined_inside(ir_operand(op, i), loop))
            return false;
    return true;
}

struct collect {
    struct arena *arena;
    op_list ops;
};

static void collect_op(void *data, MlirOperation op) {
    struct collect *collect = data;
    vec_push(collect->arena, &collect->ops, op);
}

static void hoist_loop(struct arena *scratch, MlirOperation loop) {
    struct collect collect = {.arena = scratch};
    ir_walk(loop, collect_op, &collect);
    for (size_t i = 0; i < collect.ops.count; i++)
        if (is_invariant(collect.ops.data[i], loop))
            mlirOperationMoveBefore(collect.ops.data[i], loop);
}

/* ---- Reads by key ------------------------------------------------------- */

static bool is_same_in_columns(MlirValue value) {
    MlirOperation stretch = ir_def_op(value, "vector.broadcast");
    int64_t constant;
    return ir_is_scalar(mlirValueGetType(value)) ||
           ir_constant_int(value, &constant) ||
           (!mlirOperationIsNull(stretch) &&
            ir_is_scalar(mlirValueGetType(ir_operand(stretch, 0))));
}

/* A column position plus or minus scalars. */
static bool is_key_position(MlirValue value) {
    MlirOperation op = ir_def(value);
    if (ir_is_op(op, "vector.shape_cast"))
        return true;
    bool sum = ir_is_op(op, "arith.addi");
    if (!sum && !ir_is_op(op, "arith.subi"))
        return false;
    MlirValue a = ir_operand(op, 0), b = ir_operand(op, 1);
    return (is_key_position(a) && is_same_in_columns(b)) ||
           (sum && is_key_position(b) && is_same_in_columns(a));
}

/* A read of scalars and one key position: a few registers until it is used
 * (isel_read.c). */
static bool reads_by_key(MlirOperation op) {
    int positions = 0;
    if (!ir_is_op(op, "attn.read") ||
        !ir_is_column(mlirValueGetType(ir_result(op, 0))))
        return false;
    for (size_t i = 1; i < ir_operand_count(op); i++) {
        bool position = is_key_position(ir_operand(op, i));
        positions += position;
        if (!position && !is_same_in_columns(ir_operand(op, i)))
            return false;
    }
    return positions == 1;
}

/* Moves an op of the loop that `place` stands in, and what it needs, in front
 * of `place` unless it is visible there. */
static void move_early(MlirOperation op, MlirOperation place) {
    MlirBlock block = mlirOperationGetBlock(place);
    if (!same_block(mlirOperationGetBlock(op), block) ||
        mlirOperationIsBeforeInBlock(op, place))
        return;
    for (size_t i = 0; i < ir_operand_count(op); i++) {
        MlirOperation def = ir_def(ir_operand(op, i));
        if (!mlirOperationIsNull(def))
            move_early(def, place);
    }
    mlirOperationMoveBefore(op, place);
}

/* With roles a consumer waits for Q·K^T before it needs scores: reads of a
 * block's keys are issued in front of that.  Those of a branch stay there:
 * most blocks do not take it, and the other consumers compute meanwhile. */
static void hoist_reads(struct arena *scratch, MlirOperation func) {
    size_t dots = 0, count = 0;
    MlirOperation *dot = ir_collect(scratch, func, "attn.dot", &dots);
    MlirOperation *reads = ir_collect(scratch, func, "attn.read", &count);
    if (dots == 0 || ir_int_attr(func, "attn.consumers", 0) == 0)
        return;
    for (size_t i = 0; i < count; i++)
        if (reads_by_key(reads[i]) &&
            same_block(mlirOperationGetBlock(reads[i]),
                       mlirOperationGetBlock(dot[0])))
            move_early(reads[i], dot[0]);
}

/* ---- Equal reads -------------------------------------------------------- */

/* True if `early` stands in the block of `late` or in one around it. */
static bool is_visible(MlirOperation early, MlirOperation late) {
    MlirBlock home = mlirOperationGetBlock(early),
              block = mlirOperationGetBlock(late);
    while (!same_block(home, block)) {
        MlirOperation parent = mlirBlockGetParentOperation(block);
        if (ir_is_op(parent, "func.func"))
            return false;
        block = mlirOperationGetBlock(parent);
    }
    return true;
}

static bool reads_the_same(MlirOperation a, MlirOperation b) {
    if (ir_operand_count(a) != ir_operand_count(b))
        return false;
    for (size_t i = 0; i < ir_operand_count(a); i++)
        if (!mlirValueEqual(ir_operand(a, i), ir_operand(b, i)))
            return false;
    return true;
}

/* Score and mask lines that read the same element read it once. */
static void share_reads(struct arena *scratch, MlirOperation func) {
    size_t count = 0;
    MlirOperation *reads = ir_collect(scratch, func, "attn.read", &count);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (mlirOperationIsNull(reads[k]) ||
                !reads_the_same(reads[k], reads[i]) ||
                !is_visible(reads[k], reads[i]))
                continue;
            ir_replace_uses(ir_result(reads[i], 0), ir_result(reads[k], 0));
            ir_erase(reads[i]);
            reads[i] = (MlirOperation){NULL};
            break;
        }
    }
}

/* Stretched constants become splats: immediates, and factors that fold-scale
 * can see. */
static void fold_splats(struct arena *scratch, MlirOperation func) {
    struct ir_builder b;
    size_t count = 0;
    MlirOperation *stretches =
        ir_collect(scratch, func, "vector.broadcast", &count);
    ir_builder_init(&b, mlirOperationGetContext(func), scratch);
    for (size_t i = 0; i < count; i++) {
        MlirValue stretched = ir_result(stretches[i], 0);
        MlirType type = mlirValueGetType(stretched);
        double real;
        int64_t whole;
        ir_before(&b, stretches[i]);
        if (ir_constant_float(ir_operand(stretches[i], 0), &real))
            ir_replace_uses(stretched, ir_splat(&b, type, real));
        else if (ir_constant_int(ir_operand(stretches[i], 0), &whole))
            ir_replace_uses(stretched, ir_splat(&b, type, (double)whole));
    }
}

void tile_hoist(struct arena *scratch, MlirOperation func) {
    size_t count = 0;
    fold_splats(scratch, func);
    static const char *const kinds[] = {"scf.for", "scf.while"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        MlirOperation *loops = ir_collect(scratch, func, kinds[k], &count);
        for (size_t i = count; i-- > 0;)
            hoist_loop(scratch, loops[i]);
    }
    hoist_reads(scratch, func);
    share_reads(scratch, func);
}
