/* Types of the IR: scalars, register tiles, memrefs; and questions about them.
 *
 * A register tile is vector<MxNxT>, a row quantity vector<Mx1xT>, a column
 * quantity vector<1xNxT> (docs/ir.md tells the register layouts).
 */
#ifndef ATTN_IR_TYPES_H
#define ATTN_IR_TYPES_H

#include <mlir-c/BuiltinTypes.h>
#include <mlir-c/IR.h>
#include <stdbool.h>
#include <stdint.h>

#include "support/kernel_info.h"

/* Scalars: ir_type_i1(context) and so on. */
#define IR_SCALAR_TYPES(TYPE)                  \
    TYPE(i1, mlirIntegerTypeGet(context, 1))   \
    TYPE(i8, mlirIntegerTypeGet(context, 8))   \
    TYPE(i32, mlirIntegerTypeGet(context, 32)) \
    TYPE(i64, mlirIntegerTypeGet(context, 64)) \
    TYPE(f32, mlirF32TypeGet(context))         \
    TYPE(f16, mlirF16TypeGet(context))         \
    TYPE(bf16, mlirBF16TypeGet(context))       \
    TYPE(index, mlirIndexTypeGet(context))
#define TYPE(name, get)                                          \
    static inline MlirType ir_type_##name(MlirContext context) { \
        return get;                                              \
    }
IR_SCALAR_TYPES(TYPE)
#undef TYPE

/* Element type in memory; bool is i8. */
MlirType ir_type_of_scalar(MlirContext context, enum scalar_type type);

/* vector<rows x columns x element>. */
MlirType ir_type_tile(MlirType element, int64_t rows, int64_t columns);
/* vector<length x element>, for what is built along one axis only. */
MlirType ir_type_vector1(MlirType element, int64_t length);

/* memref<?x...xT, strided<[?, ...]>> with every extent and stride dynamic. */
MlirType ir_type_tensor(MlirType element, int rank);
/* memref<?x?x?xDxT, strided<[?, ?, ?, 1]>>: q, k, v, o. */
MlirType ir_type_qkvo(MlirType element, int64_t head_dim);
/* memref<?xT>: a workspace buffer. */
MlirType ir_type_workspace(MlirType element);
/* Contiguous memref in shared memory (#gpu.address_space<workgroup>). */
MlirType ir_type_shared(MlirType element, int rank, const int64_t *shape);

/* The element type of a vector or memref, the type itself of a scalar. */
static inline MlirType ir_element_type(MlirType type) {
    return mlirTypeIsAShaped(type) ? mlirShapedTypeGetElementType(type) : type;
}

/* The type with another element type; a scalar becomes `element`. */
MlirType ir_with_element(MlirType type, MlirType element);

/* An integer, float or index. */
static inline bool ir_is_scalar(MlirType type) {
    return mlirTypeIsAInteger(type) || mlirTypeIsAFloat(type) ||
           mlirTypeIsAIndex(type);
}

/* A vector of any rank. */
static inline bool ir_is_vector(MlirType type) {
    return mlirTypeIsAVector(type);
}

/* vector<MxNxT>, M > 1 and N > 1. */
bool ir_is_tile(MlirType type);
/* vector<Mx1xT>. */
bool ir_is_row(MlirType type);
/* vector<1xNxT>, N > 1. */
bool ir_is_column(MlirType type);
/* A memref of any memory space. */
static inline bool ir_is_memref(MlirType type) {
    return mlirTypeIsAMemRef(type);
}

/* A memref in workgroup memory. */
bool ir_is_shared(MlirType type);
/* The element is a float of any width. */
static inline bool ir_is_float(MlirType type) {
    return mlirTypeIsAFloat(ir_element_type(type));
}

/* The element is f32. */
static inline bool ir_is_f32(MlirType type) {
    return mlirTypeIsAF32(ir_element_type(type));
}

/* The element is i32. */
bool ir_is_i32(MlirType type);
/* The element is i1. */
bool ir_is_bool(MlirType type);

/* Rank of a vector or memref; 0 for a scalar. */
static inline int ir_rank(MlirType type) {
    return mlirTypeIsAShaped(type) ? (int)mlirShapedTypeGetRank(type) : 0;
}

/* Extent of an axis, -1 when dynamic. */
static inline int64_t ir_extent(MlirType type, int axis) {
    return mlirShapedTypeIsDynamicDim(type, axis)
               ? -1
               : mlirShapedTypeGetDimSize(type, axis);
}

/* Rows of a rank-2 vector; 1 for a scalar. */
int64_t ir_rows(MlirType type);
/* Columns of a rank-2 vector; 1 for a scalar. */
int64_t ir_columns(MlirType type);
/* Bits of one element; i1 is 1, index is 64. */
unsigned ir_element_bits(MlirType type);

/* The smallest shape that `a` and `b` (scalars or rank-2 vectors) broadcast to,
 * with the element type of `a`.  Aborts when the shapes do not fit. */
MlirType ir_join_shapes(MlirType a, MlirType b);

#endif
