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

/* Scalars. */
MlirType ir_type_i1(MlirContext context);
MlirType ir_type_i8(MlirContext context);
MlirType ir_type_i32(MlirContext context);
MlirType ir_type_i64(MlirContext context);
MlirType ir_type_f32(MlirContext context);
MlirType ir_type_f16(MlirContext context);
MlirType ir_type_bf16(MlirContext context);
MlirType ir_type_index(MlirContext context);

/* Element type in memory; bool is i8. */
MlirType ir_type_of_scalar(MlirContext context, enum scalar_type type);

/* vector<rows x columns x element>; a 1-D vector. */
MlirType ir_type_tile(MlirType element, int64_t rows, int64_t columns);
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
MlirType ir_element_type(MlirType type);
/* The type with another element type; a scalar becomes `element`. */
MlirType ir_with_element(MlirType type, MlirType element);

bool ir_is_scalar(MlirType type);  /* integer, float or index */
bool ir_is_vector(MlirType type);
bool ir_is_tile(MlirType type);    /* vector of rank 2 with M > 1 and N > 1 */
bool ir_is_row(MlirType type);     /* vector<Mx1xT> */
bool ir_is_column(MlirType type);  /* vector<1xNxT>, N > 1 */
bool ir_is_memref(MlirType type);
bool ir_is_shared(MlirType type);  /* memref in workgroup memory */
bool ir_is_float(MlirType type);   /* element is a float */
bool ir_is_f32(MlirType type);     /* element is f32 */
bool ir_is_i32(MlirType type);     /* element is i32 */
bool ir_is_bool(MlirType type);    /* element is i1 */

/* Rank of a vector or memref; 0 for a scalar. */
int ir_rank(MlirType type);
/* Extent of an axis, -1 when dynamic. */
int64_t ir_extent(MlirType type, int axis);
/* Rows and columns of a rank-2 vector; 1 and 1 for a scalar. */
int64_t ir_rows(MlirType type);
int64_t ir_columns(MlirType type);
/* Bits of one element; i1 is 1, index is 64. */
unsigned ir_element_bits(MlirType type);

/* The smallest shape that `a` and `b` (scalars or rank-2 vectors) broadcast to,
 * with the element type of `a`.  Aborts when the shapes do not fit. */
MlirType ir_join_shapes(MlirType a, MlirType b);

#endif
