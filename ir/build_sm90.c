/* Builders of the ops of asynchronous kernels: see build_sm90.h and
 * docs/ir.md. */
#include "ir/build_sm90.h"
#include "ir/walk.h"

#include <mlir-c/BuiltinTypes.h>

/* ---- Votes and lane-partial reductions ----------------------------------- */

MlirValue ir_partial_max(struct ir_builder *b, MlirValue tile) {
    MlirType type = mlirValueGetType(tile);
    MlirType result =
        ir_type_tile(ir_element_type(type), ir_extent(type, 0), 4);
    return ir_value_op(b, "attn.partial_max", &tile, 1, result, NULL, 0);
}

MlirValue ir_vote_any(struct ir_builder *b, MlirValue predicate) {
    return ir_value_op(b, "attn.vote_any", &predicate, 1,
                       ir_type_i1(b->context), NULL, 0);
}

MlirValue ir_uniform(struct ir_builder *b, MlirValue x) {
    return ir_value_op(b, "attn.uniform", &x, 1, mlirValueGetType(x), NULL, 0);
}

MlirValue ir_lane_value(struct ir_builder *b, MlirValue x, MlirValue lane) {
    MlirValue operands[2] = {x, lane};
    return ir_value_op(b, "attn.lane_value", operands, 2, mlirValueGetType(x),
                       NULL, 0);
}

MlirValue ir_elect(struct ir_builder *b) {
    return ir_value_op(b, "attn.elect", NULL, 0, ir_type_i1(b->context), NULL,
                       0);
}

/* ---- mbarriers ----------------------------------------------------------- */

MlirValue ir_mbarriers(struct ir_builder *b, const char *name, int byte_offset,
                       int count, int arrivals) {
    int64_t shape = count;
    struct ir_attr attrs[] = {
        {"name", ir_attr_string(b->context, name)},
        {"byte_offset", ir_attr_i32(b->context, byte_offset)},
        {"arrivals", ir_attr_i32(b->context, arrivals)}};
    MlirType type =
        ir_type_shared(mlirIntegerTypeGet(b->context, 64), 1, &shape);
    return ir_value_op(b, "attn.mbarriers", NULL, 0, type, attrs, 3);
}

void ir_mbarrier_init(struct ir_builder *b, MlirValue barriers) {
    ir_op(b, "attn.mbarrier_init", &barriers, 1, NULL, 0, NULL, 0);
}

void ir_fence_mbarrier_init(struct ir_builder *b) {
    ir_op(b, "attn.fence_mbarrier_init", NULL, 0, NULL, 0, NULL, 0);
}

void ir_begin_dependent_grid(struct ir_builder *b, MlirOperation func) {
    static const char *const actions[] = {"launch_dependents", "wait"};
    for (size_t i = 0; i < 2; i++) {
        struct ir_attr action = {"action",
                                 ir_attr_string(b->context, actions[i])};
        ir_op(b, "attn.griddepcontrol", NULL, 0, NULL, 0, &action, 1);
    }
    ir_set_attr(func, "attn.programmatic", ir_attr_unit(b->context));
}

MlirValue ir_load_for_warp(struct ir_builder *b, MlirValue memref,
                           MlirValue index) {
    MlirValue word = ir_load_element(b, memref, &index, 1);
    ir_set_attr(ir_def(word), "attn.one_lane", ir_attr_unit(b->context));
    return ir_uniform(b, word);
}

void ir_mbarrier_wait(struct ir_builder *b, MlirValue barriers, MlirValue index,
                      MlirValue parity) {
    ir_op(b, "attn.mbarrier_wait", (MlirValue[]){barriers, index, parity}, 3,
          NULL, 0, NULL, 0);
}

void ir_mbarrier_arrive(struct ir_builder *b, MlirValue barriers,
                        MlirValue index, bool single) {
    struct ir_attr attr = {"single", ir_attr_unit(b->context)};
    ir_op(b, "attn.mbarrier_arrive", (MlirValue[]){barriers, index}, 2, NULL, 0,
          &attr, single);
}

void ir_mbarrier_expect_tx(struct ir_builder *b, MlirValue barriers,
                           MlirValue index, int bytes) {
    struct ir_attr attr = {"bytes", ir_attr_i32(b->context, bytes)};
    ir_op(b, "attn.mbarrier_expect_tx", (MlirValue[]){barriers, index}, 2, NULL,
          0, &attr, 1);
}

/* ---- TMA and wgmma ------------------------------------------------------- */

MlirOperation ir_tma_load(struct ir_builder *b, MlirValue src, MlirValue batch,
                          MlirValue head, MlirValue row, MlirValue dst,
                          MlirValue barriers, MlirValue index) {
    MlirValue operands[] = {src, batch, head, row, dst, barriers, index};
    return ir_op(b, "attn.tma_load", operands, 7, NULL, 0, NULL, 0);
}

void ir_stmatrix(struct ir_builder *b, MlirValue value, MlirValue dst) {
    ir_op(b, "attn.stmatrix", (MlirValue[]){value, dst}, 2, NULL, 0, NULL, 0);
}

MlirOperation ir_tma_store(struct ir_builder *b, MlirValue src, MlirValue dst,
                           MlirValue batch, MlirValue head, MlirValue row) {
    MlirValue operands[] = {src, dst, batch, head, row};
    return ir_op(b, "attn.tma_store", operands, 5, NULL, 0, NULL, 0);
}

void ir_tma_store_wait(struct ir_builder *b) {
    ir_op(b, "attn.tma_store_wait", NULL, 0, NULL, 0, NULL, 0);
}

MlirValue ir_wgmma(struct ir_builder *b, MlirValue x, MlirValue y,
                   MlirValue acc, bool transpose_b) {
    struct ir_attr attr = {"transpose_b", ir_attr_unit(b->context)};
    return ir_value_op(b, "attn.wgmma", (MlirValue[]){x, y, acc}, 3,
                       mlirValueGetType(acc), &attr, transpose_b);
}

void ir_wgmma_fence(struct ir_builder *b) {
    ir_op(b, "attn.wgmma_fence", NULL, 0, NULL, 0, NULL, 0);
}

void ir_wgmma_commit(struct ir_builder *b) {
    ir_op(b, "attn.wgmma_commit", NULL, 0, NULL, 0, NULL, 0);
}

MlirValue ir_wgmma_wait(struct ir_builder *b, MlirValue value, int pending) {
    struct ir_attr attr = {"pending", ir_attr_i32(b->context, pending)};
    return ir_value_op(b, "attn.wgmma_wait", &value, 1, mlirValueGetType(value),
                       &attr, 1);
}

/* ---- Roles --------------------------------------------------------------- */

MlirValue ir_consumer(struct ir_builder *b) {
    return ir_value_op(b, "attn.consumer", NULL, 0, ir_type_i32(b->context),
                       NULL, 0);
}

void ir_own_blocks(struct ir_builder *b, MlirValue begin, MlirValue end) {
    ir_op(b, "attn.own_blocks", (MlirValue[]){begin, end}, 2, NULL, 0, NULL, 0);
}

void ir_set_max_registers(struct ir_builder *b, int count, bool increase) {
    struct ir_attr attrs[] = {
        {"count", ir_attr_i32(b->context, count)},
        {"action",
         ir_attr_string(b->context, increase ? "increase" : "decrease")}};
    ir_op(b, "attn.set_max_registers", NULL, 0, NULL, 0, attrs, 2);
}

void ir_bar_sync(struct ir_builder *b, MlirValue id, int threads) {
    struct ir_attr attr = {"threads", ir_attr_i32(b->context, threads)};
    ir_op(b, "attn.bar_sync", &id, 1, NULL, 0, &attr, 1);
}

void ir_bar_arrive(struct ir_builder *b, MlirValue id, int threads) {
    struct ir_attr attr = {"threads", ir_attr_i32(b->context, threads)};
    ir_op(b, "attn.bar_arrive", &id, 1, NULL, 0, &attr, 1);
}

MlirValue ir_atomic_inc(struct ir_builder *b, MlirValue workspace,
                        MlirValue element, MlirValue wrap) {
    return ir_value_op(b, "attn.atomic_inc",
                       (MlirValue[]){workspace, element, wrap}, 3,
                       ir_type_i32(b->context), NULL, 0);
}

MlirValue ir_grid_dim(struct ir_builder *b) {
    struct ir_attr attr = {
        "dimension", mlirAttributeParseGet(b->context, ir_ref("#gpu<dim x>"))};
    return ir_to_i32(b, ir_value_op(b, "gpu.grid_dim", NULL, 0,
                                    mlirIndexTypeGet(b->context), &attr, 1));
}

MlirValue ir_shared_panels(struct ir_builder *b, MlirType type,
                           const char *name, int byte_offset,
                           int swizzle_bytes) {
    struct ir_attr attrs[] = {
        {"name", ir_attr_string(b->context, name)},
        {"byte_offset", ir_attr_i32(b->context, byte_offset)},
        {"swizzle_bytes", ir_attr_i32(b->context, swizzle_bytes)}};
    return ir_value_op(b, "attn.shared", NULL, 0, type, attrs, 3);
}
