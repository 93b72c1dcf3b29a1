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
    share_reads(scratch, func);
}
