/* Types of the IR: see types.h. */
#include "ir/types.h"

#include <assert.h>
#include <mlir-c/BuiltinAttributes.h>

#include "ir/context.h"

MlirType ir_type_of_scalar(MlirContext context, enum scalar_type type) {
    switch (type) {
    case SCALAR_BOOL:
        return ir_type_i8(context);
    case SCALAR_I32:
        return ir_type_i32(context);
    case SCALAR_F32:
        return ir_type_f32(context);
    case SCALAR_F16:
        return ir_type_f16(context);
    case SCALAR_BF16:
        return ir_type_bf16(context);
    case SCALAR_TYPE_COUNT:
        break;
    }
    assert(!"unknown scalar type");
    return ir_type_i32(context);
}

MlirType ir_type_tile(MlirType element, int64_t rows, int64_t columns) {
    int64_t shape[2] = {rows, columns};
    return mlirVectorTypeGet(2, shape, element);
}

MlirType ir_type_vector1(MlirType element, int64_t length) {
    return mlirVectorTypeGet(1, &length, element);
}

/* memref with every stride dynamic but, where asked, the last. */
static MlirType strided_memref(MlirType element, int rank, const int64_t *shape,
                               bool unit_last) {
    int64_t strides[KERNEL_MAX_RANK];
    assert(rank >= 1 && rank <= KERNEL_MAX_RANK);
    for (int i = 0; i < rank; i++)
        strides[i] = mlirShapedTypeGetDynamicStrideOrOffset();
    if (unit_last)
        strides[rank - 1] = 1;
    MlirAttribute layout =
        mlirStridedLayoutAttrGet(mlirTypeGetContext(element), 0, rank, strides);
    return mlirMemRefTypeGet(element, rank, shape, layout,
                             mlirAttributeGetNull());
}

MlirType ir_type_tensor(MlirType element, int rank) {
    int64_t shape[KERNEL_MAX_RANK];
    assert(rank >= 1 && rank <= KERNEL_MAX_RANK);
    for (int i = 0; i < rank; i++)
        shape[i] = mlirShapedTypeGetDynamicSize();
    return strided_memref(element, rank, shape, false);
}

MlirType ir_type_qkvo(MlirType element, int64_t head_dim) {
    int64_t dynamic = mlirShapedTypeGetDynamicSize();
    int64_t shape[4] = {dynamic, dynamic, dynamic, head_dim};
    return strided_memref(element, 4, shape, true);
}

MlirType ir_type_workspace(MlirType element) {
    int64_t shape = mlirShapedTypeGetDynamicSize();
    return mlirMemRefTypeContiguousGet(element, 1, &shape,
                                       mlirAttributeGetNull());
}

/* Memory space of shared memory. */
static MlirAttribute shared_space(MlirContext context) {
    return mlirAttributeParseGet(context,
                                 ir_ref("#gpu.address_space<workgroup>"));
}

MlirType ir_type_shared(MlirType element, int rank, const int64_t *shape) {
    return mlirMemRefTypeContiguousGet(
        element, rank, shape, shared_space(mlirTypeGetContext(element)));
}

MlirType ir_with_element(MlirType type, MlirType element) {
    if (!ir_is_vector(type))
        return element;
    int64_t shape[KERNEL_MAX_RANK];
    int rank = ir_rank(type);
    for (int i = 0; i < rank; i++)
        shape[i] = ir_extent(type, i);
    return mlirVectorTypeGet(rank, shape, element);
}

bool ir_is_tile(MlirType type) {
    return ir_is_vector(type) && ir_rank(type) == 2 && ir_extent(type, 0) > 1 &&
           ir_extent(type, 1) > 1;
}

bool ir_is_row(MlirType type) {
    return ir_is_vector(type) && ir_rank(type) == 2 && ir_extent(type, 1) == 1;
}

bool ir_is_column(MlirType type) {
    return ir_is_vector(type) && ir_rank(type) == 2 &&
           ir_extent(type, 0) == 1 && ir_extent(type, 1) > 1;
}

bool ir_is_shared(MlirType type) {
    if (!ir_is_memref(type))
        return false;
    MlirAttribute space = mlirMemRefTypeGetMemorySpace(type);
    return !mlirAttributeIsNull(space) &&
           mlirAttributeEqual(space, shared_space(mlirTypeGetContext(type)));
}

/* Element is a signless integer of `width` bits. */
static bool is_integer_of(MlirType type, unsigned width) {
    MlirType element = ir_element_type(type);
    return mlirTypeIsAInteger(element) &&
           mlirIntegerTypeGetWidth(element) == width;
}

bool ir_is_i32(MlirType type) {
    return is_integer_of(type, 32);
}
bool ir_is_bool(MlirType type) {
    return is_integer_of(type, 1);
}

int64_t ir_rows(MlirType type) {
    return ir_is_vector(type) ? ir_extent(type, 0) : 1;
}
int64_t ir_columns(MlirType type) {
    return ir_is_vector(type) ? ir_extent(type, 1) : 1;
}

unsigned ir_element_bits(MlirType type) {
    MlirType element = ir_element_type(type);
    if (mlirTypeIsAIndex(element))
        return 64;
    return mlirTypeIsAFloat(element) ? mlirFloatTypeGetWidth(element)
                                     : mlirIntegerTypeGetWidth(element);
}

MlirType ir_join_shapes(MlirType a, MlirType b) {
    if (!ir_is_vector(a) && !ir_is_vector(b))
        return a;
    int64_t rows = ir_rows(a) > ir_rows(b) ? ir_rows(a) : ir_rows(b);
    int64_t columns =
        ir_columns(a) > ir_columns(b) ? ir_columns(a) : ir_columns(b);
    assert((ir_rows(a) == rows || ir_rows(a) == 1) &&
           (ir_rows(b) == rows || ir_rows(b) == 1));
    assert((ir_columns(a) == columns || ir_columns(a) == 1) &&
           (ir_columns(b) == columns || ir_columns(b) == 1));
    return ir_type_tile(ir_element_type(a), rows, columns);
}
