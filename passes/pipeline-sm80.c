/* pipeline, sm_80: loads become cp.async copies that run ahead of their use.
 *
 * Loads outside of loops (Q) are copied once.  Loads of a loop (K, V) get a
 * buffer of `attn.stages` stages.  With S >= 2 stages K and V of a block are
 * one copy group and one barrier an iteration is enough; S = 3, block i in
 * stage i mod 3:
 *
 *     prologue        copy 0 | copy 1
 *     iteration i     wait (<= S-2 groups in flight); barrier      block i is
 * there, and nobody reads block i-1 copy i+2 into the stage of block i-1 dot,
 * softmax, dot on stage i mod 3
 *
 * With one stage K and V take turns, as in FlashAttention-2:
 *
 *     prologue        copy K0
 *     iteration i     wait; barrier; copy V(i); S = Q·K(i)^T
 *                     wait; barrier; copy K(i+1); softmax; O += P·V(i)
 *
 * Rows of a tile lie `pitch` 16-byte chunks apart, and a chunk's number is
 * xor-ed with bits of its row so that the 8 rows of an ldmatrix phase hit 8
 * different bank groups:
 *
 *     chunks a row    multiple of 8    4 mod 8          2 mod 4          odd
 *     xor with        row & 7          (row >> 1) & 3   (row >> 2) & 1 nothing
 * needed
 *
 * Not here: TMA and warp roles (sm_90a). */
#include <assert.h>

#include "ir/build.h"
#include "ir/walk.h"
#include "passes/pass.h"
#include "passes/pipeline-sm90.h"
#include "passes/schedule.h"
#include "support/vec.h"

/* One attn.load and the shared buffer that replaces it. */
struct buffer {
    MlirOperation load;
    MlirValue shared; /* rank 2, in loops rank 3 */
};

struct kernel {
    struct ir_builder b;
    MlirOperation func;
    int stages;
    bool q_registers;
    int shared_bytes; /* laid out so far */
};

/* ---- Shared memory ------------------------------------------------------ */

/* True when the load feeds the depth of a dot with its columns: A operands and
 * K. */
static bool feeds_depth(MlirOperation load) {
    MlirOpOperand use = mlirValueGetFirstUse(ir_result(load, 0));
    for (; !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use)) {
        MlirOperation user = mlirOpOperandGetOwner(use);
        bool is_b = mlirOpOperandGetOperandNumber(use) == 1;
        if (ir_is_op(user, "attn.dot") && is_b &&
            !ir_has_attr(user, "transpose_b"))
            return false;
    }
    return true;
}

/* Where the next buffer goes and how its rows are spread over the banks. */
static struct ir_shared place_tile(const struct kernel *kernel,
                                   const char *name, int columns) {
    int chunks = columns / 8;
    struct ir_shared place = {
        .name = name, .byte_offset = kernel->shared_bytes, .pitch = chunks};
    if (chunks % 8 == 0)
        place.swizzle_bits = 3;
    else if (chunks % 4 == 0)
        place.swizzle_bits = 2, place.swizzle_shift = 1;
    else if (chunks % 2 == 0)
        place.swizzle_bits = 1, place.swizzle_shift = 2;
    return place;
}

/* Builds the attn.shared of a load at the builder's place; `stages` 0: no stage
 * axis. */
static void emit_buffer(struct kernel *kernel, struct buffer *buffer,
                        int stages) {
    MlirType tile = mlirValueGetType(ir_result(buffer->load, 0));
    int64_t rows = ir_extent(tile, 0);
    int columns = (int)ir_extent(tile, 1);
    if (feeds_depth(buffer->load))
        columns = schedule_padded_dim(columns);
    int64_t staged[3] = {stages, rows, columns};
    MlirType type = ir_type_shared(ir_element_type(tile), stages ? 3 : 2,
                                   stages ? staged : staged + 1);
    struct ir_shared place =
        place_tile(kernel, ir_text_attr(buffer->load, "name"), columns);
    buffer->shared = ir_shared(&kernel->b, type, &place);
    kernel->shared_bytes += (stages ? stages : 1) * (int)rows * columns * 2;
}

/* The lists of `tile` go behind the tiles. */
static void move_lists(struct kernel *kernel) {
    size_t count = 0;
    MlirOperation *shared =
        ir_collect(kernel->b.arena, kernel->func, "attn.shared", &count);
    for (size_t i = 0; i < count; i++) {
        MlirType type = mlirValueGetType(ir_result(shared[i], 0));
        if (ir_rank(type) != 1)
            continue;
        ir_set_attr(shared[i], "byte_offset",
                    ir_attr_i32(kernel->b.context, kernel->shared_bytes));
        int bytes = (int)ir_extent(type, 0) * 4;
        kernel->shared_bytes += (bytes + 15) / 16 * 16;
    }
}

/* ---- Copies ------------------------------------------------------------- */

/* Enters a copy of the ops in `body` that `value` needs, built at the builder's
 * place. */
static void clone_slice(struct kernel *kernel, MlirBlock body, MlirValue value,
                        struct ir_map *map) {
    MlirOperation def = ir_def(value);
    if (mlirOperationIsNull(def) || ir_map_has(map, value) ||
        !mlirBlockEqual(mlirOperationGetBlock(def), body))
        return;
    if (!ir_is_pure(def))
        ir_ice(def, "the rows of a load must be computed without side effects");
    for (size_t i = 0; i < ir_operand_count(def); i++)
        clone_slice(kernel, body, ir_operand(def, i), map);
    ir_clone(&kernel->b, def, map);
}

/* attn.copy_async for `load` as it is in the iteration that `map` describes. */
static void emit_copy(struct kernel *kernel, const struct buffer *buffer,
                      struct ir_map *map, MlirValue destination) {
    MlirOperation load = buffer->load;
    MlirValue operands[5];
    kernel->b.location = mlirOperationGetLocation(load);
    for (size_t i = 0; i < 5; i++) {
        operands[i] = ir_operand(load, i);
        if (!map)
            continue;
        clone_slice(kernel, mlirOperationGetBlock(load), operands[i], map);
        operands[i] = ir_map_get(map, operands[i]);
    }
    MlirOperation copy =
        ir_copy_async(&kernel->b, operands[0], operands[1], operands[2],
                      operands[3], operands[4], destination);
    ir_set_packed_heads(copy, ir_packed_heads(load));
}

/* ---- The loop ----------------------------------------------------------- */

/* A loop with loads, from 0 in steps of 1. */
struct key_loop {
    MlirOperation op;
    MlirBlock body;
    MlirValue iv, count;
    struct buffer *buffers;
    size_t buffer_count;
};

/* The stage of block number `number` in loop order. */
static MlirValue stage_of(struct kernel *kernel, MlirValue number) {
    struct ir_builder *b = &kernel->b;
    if (kernel->stages == 1)
        return ir_const_i32(b, 0);
    return ir_remui(b, number, ir_const_i32(b, kernel->stages));
}

/* The copies of block number `number` (in loop order), if there is one, into
 * its stage. */
static void emit_block_copies(struct kernel *kernel,
                              const struct key_loop *loop, MlirValue number,
                              const struct buffer *buffers, size_t count) {
    struct ir_builder *b = &kernel->b;
    MlirValue exists = ir_cmpi(b, IR_SLT, number, loop->count);
    struct ir_if branch = ir_if_begin(b, exists, NULL, 0, false);
    struct ir_map *map = ir_map_create(b->arena);
    ir_map_set(map, loop->iv, number);
    MlirValue stage = stage_of(kernel, number);
    for (size_t i = 0; i < count; i++)
        emit_copy(kernel, &buffers[i], map,
                  ir_stage(b, buffers[i].shared, stage));
    ir_if_end(b, &branch, NULL, 0);
    ir_commit_group(b);
}

static void wait_and_meet(struct ir_builder *b, int pending) {
    ir_wait_group(b, pending);
    ir_barrier(b);
}

/* Loads become views of the stage that the iteration works on. */
static void replace_loads(struct kernel *kernel, const struct key_loop *loop) {
    for (size_t i = 0; i < loop->buffer_count; i++) {
        MlirOperation load = loop->buffers[i].load;
        ir_before(&kernel->b, load);
        MlirValue stage = stage_of(kernel, loop->iv);
        ir_replace_uses(ir_result(load, 0),
                        ir_stage(&kernel->b, loop->buffers[i].shared, stage));
        ir_erase(load);
    }
}

static void pipeline_stages(struct kernel *kernel,
                            const struct key_loop *loop) {
    struct ir_builder *b = &kernel->b;
    int ahead = kernel->stages - 1;
    ir_before(b, loop->op);
    for (int i = 0; i < ahead; i++)
        emit_block_copies(kernel, loop, ir_const_i32(b, i), loop->buffers,
                          loop->buffer_count);
    ir_before(b, mlirBlockGetFirstOperation(loop->body));
    wait_and_meet(b, ahead - 1);
    MlirValue next = ir_addi(b, loop->iv, ir_const_i32(b, ahead));
    emit_block_copies(kernel, loop, next, loop->buffers, loop->buffer_count);
    replace_loads(kernel, loop);
}

/* One stage: buffers[0] is K, buffers[1] is V. */
static void pipeline_turns(struct kernel *kernel, const struct key_loop *loop,
                           MlirOperation first_dot) {
    struct ir_builder *b = &kernel->b;
    const struct buffer *k = &loop->buffers[0], *v = &loop->buffers[1];
    ir_before(b, loop->op);
    emit_block_copies(kernel, loop, ir_const_i32(b, 0), k, 1);
    ir_before(b, v->load);
    wait_and_meet(b, 0);
    emit_copy(kernel, v, NULL, ir_stage(b, v->shared, ir_const_i32(b, 0)));
    ir_commit_group(b);
    ir_after(b, first_dot);
    wait_and_meet(b, 0);
    MlirValue next = ir_addi(b, loop->iv, ir_const_i32(b, 1));
    emit_block_copies(kernel, loop, next, k, 1);
    replace_loads(kernel, loop);
}

/* ---- Finding things ----------------------------------------------------- */

static MlirOperation parent_of(MlirOperation op) {
    return mlirOperationGetParentOperation(op);
}

/* The loop around `op` that no other loop is around. */
static MlirOperation outermost_loop(MlirOperation op) {
    MlirOperation outermost = op;
    for (; !ir_is_op(op, "func.func"); op = parent_of(op))
        if (ir_is_op(op, "scf.for"))
            outermost = op;
    return outermost;
}

/* A loop inside another one refills buffers that slower warps may still read,
 * unless the outer body meets at a barrier before it. */
static void separate_rounds(struct kernel *kernel,
                            const struct key_loop *loop) {
    if (ir_is_op(parent_of(loop->op), "func.func"))
        return;
    MlirOperation op =
        mlirBlockGetFirstOperation(mlirOperationGetBlock(loop->op));
    for (; !mlirOperationEqual(op, loop->op);
         op = mlirOperationGetNextInBlock(op))
        if (ir_is_op(op, "gpu.barrier"))
            return;
    ir_before(&kernel->b, loop->op);
    ir_barrier(&kernel->b);
}

static bool is_int(MlirValue value, int64_t expected) {
    int64_t found;
    return ir_constant_int(value, &found) && found == expected;
}

static MlirOperation only_dot(MlirOperation load, bool transposed) {
    MlirOpOperand use = mlirValueGetFirstUse(ir_result(load, 0));
    MlirOperation user =
        mlirOpOperandIsNull(use) ? load : mlirOpOperandGetOwner(use);
    bool fits = ir_is_op(user, "attn.dot") &&
                ir_has_attr(user, "transpose_b") == transposed;
    return fits ? user : (MlirOperation){NULL};
}

/* ---- A kernel ----------------------------------------------------------- */

/* Copies the tiles that are loaded once, in front of the loops. */
static void pipeline_resident(struct kernel *kernel, MlirOperation load) {
    struct ir_builder *b = &kernel->b;
    struct buffer buffer = {.load = load};
    ir_before(b, load);
    emit_buffer(kernel, &buffer, 0);
    emit_copy(kernel, &buffer, NULL, buffer.shared);
    ir_commit_group(b);
    ir_replace_uses(ir_result(load, 0), buffer.shared);
    ir_erase(load);
}

/* A operands of dots in registers: read once, before the outermost loop. Copies
 * of the first blocks may stay in flight when they were issued right before. */
static void keep_in_registers(struct kernel *kernel, MlirOperation dot,
                              int in_flight) {
    struct ir_builder *b = &kernel->b;
    MlirValue tile = ir_operand(dot, 0);
    if (!ir_is_memref(mlirValueGetType(tile)))
        return;
    ir_before(b, outermost_loop(dot));
    b->location = mlirOperationGetLocation(dot);
    wait_and_meet(b, in_flight);
    mlirOperationSetOperand(dot, 0, ir_fragments(b, tile));
}

static bool pipeline_loop(struct kernel *kernel, MlirOperation op,
                          struct buffer *buffers, size_t count,
                          struct diag_sink *diags) {
    struct key_loop loop = {.op = op,
                            .body = ir_region_block(op, 0),
                            .buffers = buffers,
                            .buffer_count = count,
                            .count = ir_operand(op, 1)};
    loop.iv = mlirBlockGetArgument(loop.body, 0);
    if (!is_int(ir_operand(op, 0), 0) || !is_int(ir_operand(op, 2), 1)) {
        diag_error(diags, SOURCE_NOWHERE,
                   "pipeline: a loop with loads must count 0, 1, 2, ...");
        return false;
    }
    MlirOperation qk = only_dot(buffers[0].load, true);
    if (count != 2 || mlirOperationIsNull(qk) ||
        mlirOperationIsNull(only_dot(buffers[1].load, false))) {
        diag_error(diags, SOURCE_NOWHERE,
                   "pipeline: a key loop must load K for a transposed dot, "
                   "then V for a plain one");
        return false;
    }
    ir_before(&kernel->b,
              mlirBlockGetFirstOperation(ir_func_body(kernel->func)));
    for (size_t i = 0; i < count; i++)
        emit_buffer(kernel, &buffers[i], kernel->stages);
    separate_rounds(kernel, &loop);
    if (kernel->stages == 1)
        pipeline_turns(kernel, &loop, qk);
    else
        pipeline_stages(kernel, &loop);
    bool nested = !ir_is_op(parent_of(op), "func.func");
    int groups_behind_q = kernel->stages == 1 ? 1 : kernel->stages - 1;
    if (kernel->q_registers)
        keep_in_registers(kernel, qk, nested ? 0 : groups_behind_q);
    return true;
}

/* The loads of one loop body, in order; an arena array. */
static struct buffer *loads_of(struct kernel *kernel, MlirOperation loop,
                               size_t *out_count) {
    VEC(struct buffer) found = {0};
    MlirOperation op = mlirBlockGetFirstOperation(ir_region_block(loop, 0));
    for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op))
        if (ir_is_op(op, "attn.load"))
            vec_push(kernel->b.arena, &found, (struct buffer){.load = op});
    *out_count = found.count;
    return found.data;
}

static bool pipeline_kernel(struct kernel *kernel, struct diag_sink *diags) {
    struct arena *arena = kernel->b.arena;
    size_t load_count = 0, loop_count = 0, pipelined = 0;
    MlirOperation *loads =
        ir_collect(arena, kernel->func, "attn.load", &load_count);
    MlirOperation *loops =
        ir_collect(arena, kernel->func, "scf.for", &loop_count);
    for (size_t i = 0; i < load_count; i++) {
        if (!ir_is_op(parent_of(loads[i]), "func.func"))
            continue;
        pipeline_resident(kernel, loads[i]);
        pipelined++;
    }
    for (size_t i = 0; i < loop_count; i++) {
        size_t count = 0;
        struct buffer *buffers = loads_of(kernel, loops[i], &count);
        if (count != 0 &&
            !pipeline_loop(kernel, loops[i], buffers, count, diags))
            return false;
        pipelined += count;
    }
    if (pipelined != load_count) {
        diag_error(diags, SOURCE_NOWHERE,
                   "pipeline: a load is neither in the kernel's body nor "
                   "directly in a loop");
        return false;
    }
    move_lists(kernel);
    ir_set_kernel_shared_bytes(kernel->func, kernel->shared_bytes);
    return true;
}

/* pipeline
 * requires     attn.load in the kernel's body (resident) or directly in an
 *              scf.for that counts from 0 by 1, whose rows are pure functions of
 *              the loop's counter; attn.stages on the kernel (1 where absent);
 *              kernels with attn.consumers are those of pipeline-sm90.h;
 * establishes  attn.shared buffers with their places, cp.async copies, waits and
 *              barriers; attn.shared_bytes; no attn.load is left;
 * breaks       nothing. */
static bool run(struct pass_ctx *ctx, MlirOperation module) {
    size_t count = 0;
    MlirOperation *funcs =
        ir_collect(ctx->scratch, module, "func.func", &count);
    for (size_t i = 0; i < count; i++) {
        size_t loads = 0;
        ir_collect(ctx->scratch, funcs[i], "attn.load", &loads);
        if (loads == 0)
            continue;
        if (ir_has_attr(funcs[i], "attn.consumers")) {
            if (!pipeline_sm90(ctx, funcs[i]))
                return false;
            continue;
        }
        struct kernel kernel = {
            .func = funcs[i],
            .stages = (int)ir_int_attr(funcs[i], "attn.stages", 1),
            .q_registers = ir_has_attr(funcs[i], "attn.q_registers")};
        ir_builder_init(&kernel.b, mlirOperationGetContext(module),
                        ctx->scratch);
        if (!pipeline_kernel(&kernel, ctx->diags))
            return false;
    }
    return true;
}

const struct pass pass_pipeline = {
    "pipeline",
    "copies ahead of their use: cp.async stages, or roles with TMA (sm_90a)",
    run, NULL};
