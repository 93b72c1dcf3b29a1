/* Builders of the attn ops: see build.h and docs/ir.md. */
#include <assert.h>
#include <mlir-c/BuiltinAttributes.h>

#include "ir/build.h"

MlirOperation ir_attention(struct ir_builder *b,
                           const struct ir_attention *attention) {
    MlirValue operands[] = {attention->q, attention->k,   attention->v,
                            attention->o, attention->lse, attention->scale};
    struct ir_attr attr = {"group", ir_attr_i32(b->context, attention->group)};
    return ir_op(b, "attn.attention", operands, 6, NULL, 0, &attr, 1);
}

/* Type of an element once read: f16 and bf16 widen, a byte becomes i1. */
static MlirType read_type(MlirContext context, MlirType element) {
    if (ir_is_float(element))
        return ir_type_f32(context);
    return ir_element_bits(element) == 8 ? ir_type_i1(context) : element;
}

MlirValue ir_read(struct ir_builder *b, MlirValue tensor,
                  const MlirValue *indices, size_t count) {
    MlirValue operands[KERNEL_MAX_RANK + 1] = {tensor};
    int32_t segments[KERNEL_MAX_RANK + 1] = {1};
    assert(count <= KERNEL_MAX_RANK);
    MlirType shape = ir_type_i32(b->context);
    for (size_t i = 0; i < count; i++) {
        operands[i + 1] = indices[i];
        segments[i + 1] = 1;
        shape = ir_join_shapes(shape, mlirValueGetType(indices[i]));
    }
    MlirType element =
        read_type(b->context, ir_element_type(mlirValueGetType(tensor)));
    struct ir_attr attr = {
        "operandSegmentSizes",
        mlirDenseI32ArrayGet(b->context, KERNEL_MAX_RANK + 1, segments)};
    return ir_value_op(b, "attn.read", operands, count + 1,
                       ir_with_element(shape, element), &attr, 1);
}

MlirValue ir_load(struct ir_builder *b, const char *name, MlirValue src,
                  MlirValue batch, MlirValue head, MlirValue row0,
                  MlirValue limit, int64_t rows) {
    MlirType type = mlirValueGetType(src);
    int64_t shape[2] = {rows, ir_extent(type, ir_rank(type) - 1)};
    struct ir_attr attr = {"name", ir_attr_string(b->context, name)};
    return ir_value_op(
        b, "attn.load", (MlirValue[]){src, batch, head, row0, limit}, 5,
        ir_type_shared(ir_element_type(type), 2, shape), &attr, 1);
}

MlirValue ir_dot(struct ir_builder *b, MlirValue x, MlirValue y, MlirValue acc,
                 bool transpose_b) {
    struct ir_attr attr = {"transpose_b", ir_attr_unit(b->context)};
    return ir_value_op(b, "attn.dot", (MlirValue[]){x, y, acc}, 3,
                       mlirValueGetType(acc), &attr, transpose_b);
}

MlirValue ir_fragments(struct ir_builder *b, MlirValue shared) {
    MlirType type = mlirValueGetType(shared);
    MlirType result = ir_type_tile(ir_element_type(type), ir_extent(type, 0),
                                   ir_extent(type, 1));
    return ir_value_op(b, "attn.fragments", &shared, 1, result, NULL, 0);
}

MlirOperation ir_softmax_step(struct ir_builder *b, MlirValue acc, MlirValue m,
                              MlirValue l, MlirValue s, MlirValue v) {
    MlirType results[3] = {mlirValueGetType(acc), mlirValueGetType(m),
                           mlirValueGetType(l)};
    return ir_op(b, "attn.softmax_step", (MlirValue[]){acc, m, l, s, v}, 5,
                 results, 3, NULL, 0);
}

MlirOperation ir_softmax_finish(struct ir_builder *b, MlirValue acc,
                                MlirValue m, MlirValue l) {
    MlirType results[2] = {mlirValueGetType(acc), mlirValueGetType(m)};
    return ir_op(b, "attn.softmax_finish", (MlirValue[]){acc, m, l}, 3, results,
                 2, NULL, 0);
}

MlirValue ir_mul_rp(struct ir_builder *b, MlirValue x, MlirValue y) {
    return ir_value_op(b, "attn.mul_rp", (MlirValue[]){x, y}, 2,
                       mlirValueGetType(x), NULL, 0);
}

MlirValue ir_partial_sum(struct ir_builder *b, MlirValue p, MlirValue l) {
    return ir_value_op(b, "attn.partial_sum", (MlirValue[]){p, l}, 2,
                       mlirValueGetType(l), NULL, 0);
}

MlirOperation ir_store(struct ir_builder *b, MlirValue value, MlirValue dst,
                       MlirValue batch, MlirValue head, MlirValue row0,
                       MlirValue limit, bool optional) {
    struct ir_attr attr = {"optional", ir_attr_unit(b->context)};
    return ir_op(b, "attn.store",
                 (MlirValue[]){value, dst, batch, head, row0, limit}, 6, NULL,
                 0, &attr, optional);
}

MlirValue ir_exp2_split(struct ir_builder *b, MlirValue x, const int32_t *units,
                        size_t unit_count, const float *coefficients,
                        size_t coefficient_count) {
    struct ir_attr attrs[] = {
        {"units",
         mlirDenseI32ArrayGet(b->context, (intptr_t)unit_count, units)},
        {"coefficients",
         mlirDenseF32ArrayGet(b->context, (intptr_t)coefficient_count,
                              coefficients)},
    };
    return ir_value_op(b, "attn.exp2_split", &x, 1, mlirValueGetType(x), attrs,
                       2);
}

bool ir_exp2_split_has_unit(MlirOperation split, int unit) {
    MlirAttribute units =
        mlirOperationGetAttributeByName(split, ir_ref("units"));
    intptr_t count = mlirDenseArrayGetNumElements(units);
    for (intptr_t i = 0; i < count; i++)
        if (mlirDenseI32ArrayGetElement(units, i) == unit)
            return true;
    return false;
}

int ir_exp2_split_coefficients(MlirOperation split,
                               float out_coefficients[IR_EXP2_COEFFICIENTS]) {
    MlirAttribute list =
        mlirOperationGetAttributeByName(split, ir_ref("coefficients"));
    int count = (int)mlirDenseArrayGetNumElements(list);
    assert(count <= IR_EXP2_COEFFICIENTS);
    for (int i = 0; i < count; i++)
        out_coefficients[i] = mlirDenseF32ArrayGetElement(list, i);
    return count;
}

MlirValue ir_ballot(struct ir_builder *b, MlirValue predicate) {
    return ir_value_op(b, "attn.ballot", &predicate, 1, ir_type_i32(b->context),
                       NULL, 0);
}

MlirValue ir_warp_reduce(struct ir_builder *b, const char *kind, MlirValue x) {
    struct ir_attr attr = {"kind", ir_attr_string(b->context, kind)};
    return ir_value_op(b, "attn.warp_reduce", &x, 1, mlirValueGetType(x), &attr,
                       1);
}

MlirValue ir_shared(struct ir_builder *b, MlirType type,
                    const struct ir_shared *place) {
    struct ir_attr attrs[] = {
        {"name", ir_attr_string(b->context, place->name)},
        {"byte_offset", ir_attr_i32(b->context, place->byte_offset)},
        {"pitch", ir_attr_i32(b->context, place->pitch)},
        {"swizzle_bits", ir_attr_i32(b->context, place->swizzle_bits)},
        {"swizzle_shift", ir_attr_i32(b->context, place->swizzle_shift)},
    };
    return ir_value_op(b, "attn.shared", NULL, 0, type, attrs,
                       ir_rank(type) == 1 ? 2 : 5);
}

MlirValue ir_stage(struct ir_builder *b, MlirValue buffer, MlirValue index) {
    MlirType type = mlirValueGetType(buffer);
    int64_t shape[2] = {ir_extent(type, 1), ir_extent(type, 2)};
    return ir_value_op(b, "attn.stage", (MlirValue[]){buffer, index}, 2,
                       ir_type_shared(ir_element_type(type), 2, shape), NULL,
                       0);
}

MlirOperation ir_copy_async(struct ir_builder *b, MlirValue src,
                            MlirValue batch, MlirValue head, MlirValue row0,
                            MlirValue limit, MlirValue dst) {
    return ir_op(b, "attn.copy_async",
                 (MlirValue[]){src, batch, head, row0, limit, dst}, 6, NULL, 0,
                 NULL, 0);
}

void ir_commit_group(struct ir_builder *b) {
    ir_op(b, "attn.commit_group", NULL, 0, NULL, 0, NULL, 0);
}

void ir_wait_group(struct ir_builder *b, int pending) {
    struct ir_attr attr = {"pending", ir_attr_i32(b->context, pending)};
    ir_op(b, "attn.wait_group", NULL, 0, NULL, 0, &attr, 1);
}
