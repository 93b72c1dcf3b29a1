/* Builders of upstream ops: see build.h.  The attn ops are in build_attn.c, the
 * structured control flow and functions in build_control.c. */
#include "ir/build.h"

#include <assert.h>
#include <math.h>
#include <mlir-c/BuiltinAttributes.h>
#include <string.h>

void ir_builder_init(struct ir_builder *b, MlirContext context,
                     struct arena *arena) {
    *b = (struct ir_builder){.context = context,
                             .location = mlirLocationUnknownGet(context),
                             .arena = arena};
}

void ir_at_end(struct ir_builder *b, MlirBlock block) {
    b->block = block;
    b->before = (MlirOperation){NULL};
}

void ir_before(struct ir_builder *b, MlirOperation op) {
    b->block = mlirOperationGetBlock(op);
    b->before = op;
    b->location = mlirOperationGetLocation(op);
}

void ir_after(struct ir_builder *b, MlirOperation op) {
    b->block = mlirOperationGetBlock(op);
    b->before = mlirOperationGetNextInBlock(op);
    b->location = mlirOperationGetLocation(op);
}

/* ---- Any op -------------------------------------------------------------- */

MlirOperation ir_op(struct ir_builder *b, const char *name,
                    const MlirValue *operands, size_t operand_count,
                    const MlirType *results, size_t result_count,
                    const struct ir_attr *attrs, size_t attr_count) {
    enum { MAX_ATTRS = 16 };
    MlirNamedAttribute named[MAX_ATTRS];
    assert(attr_count <= MAX_ATTRS);
    for (size_t i = 0; i < attr_count; i++)
        named[i] = mlirNamedAttributeGet(
            mlirIdentifierGet(b->context, ir_ref(attrs[i].name)),
            attrs[i].value);
    MlirOperationState state = mlirOperationStateGet(ir_ref(name), b->location);
    mlirOperationStateAddOperands(&state, (intptr_t)operand_count, operands);
    mlirOperationStateAddResults(&state, (intptr_t)result_count, results);
    mlirOperationStateAddAttributes(&state, (intptr_t)attr_count, named);
    MlirOperation op = mlirOperationCreate(&state);
    assert(!mlirOperationIsNull(op));
    /* A null reference inserts at the end. */
    if (mlirOperationIsNull(b->before))
        mlirBlockAppendOwnedOperation(b->block, op);
    else
        mlirBlockInsertOwnedOperationBefore(b->block, b->before, op);
    return op;
}

MlirValue ir_value_op(struct ir_builder *b, const char *name,
                      const MlirValue *operands, size_t operand_count,
                      MlirType result, const struct ir_attr *attrs,
                      size_t attr_count) {
    MlirOperation op =
        ir_op(b, name, operands, operand_count, &result, 1, attrs, attr_count);
    return mlirOperationGetResult(op, 0);
}

MlirAttribute ir_attr_i32(MlirContext context, int32_t value) {
    return mlirIntegerAttrGet(ir_type_i32(context), value);
}

MlirAttribute ir_attr_string(MlirContext context, const char *text) {
    return mlirStringAttrGet(context, ir_ref(text));
}

MlirAttribute ir_attr_symbol(MlirContext context, const char *name) {
    return mlirFlatSymbolRefAttrGet(context, ir_ref(name));
}

MlirAttribute ir_attr_unit(MlirContext context) {
    return mlirUnitAttrGet(context);
}

/* ---- Constants ----------------------------------------------------------- */

static MlirValue constant(struct ir_builder *b, MlirType type,
                          MlirAttribute value) {
    struct ir_attr attr = {"value", value};
    return ir_value_op(b, "arith.constant", NULL, 0, type, &attr, 1);
}

MlirValue ir_const_i32(struct ir_builder *b, int32_t value) {
    return ir_splat(b, ir_type_i32(b->context), value);
}

MlirValue ir_const_f32(struct ir_builder *b, float value) {
    return ir_splat(b, ir_type_f32(b->context), (double)value);
}

MlirValue ir_const_bool(struct ir_builder *b, bool value) {
    return ir_splat(b, ir_type_i1(b->context), value);
}

static MlirValue const_index(struct ir_builder *b, int64_t value) {
    MlirType type = ir_type_index(b->context);
    return constant(b, type, mlirIntegerAttrGet(type, value));
}

MlirValue ir_splat(struct ir_builder *b, MlirType type, double value) {
    MlirType element = ir_element_type(type);
    MlirAttribute attr;
    if (ir_is_float(element))
        attr = mlirFloatAttrDoubleGet(b->context, element, value);
    else if (ir_is_bool(element))
        attr = mlirIntegerAttrGet(element, value != 0);
    else
        attr = mlirIntegerAttrGet(element, (int64_t)value);
    if (ir_is_vector(type))
        attr = mlirDenseElementsAttrSplatGet(type, attr);
    return constant(b, type, attr);
}

/* The element attribute of a constant (splat or scalar), null when it is
 * none. */
static MlirAttribute constant_element(MlirValue value) {
    MlirAttribute none = mlirAttributeGetNull();
    if (!mlirValueIsAOpResult(value))
        return none;
    MlirOperation op = mlirOpResultGetOwner(value);
    MlirStringRef name = mlirIdentifierStr(mlirOperationGetName(op));
    if (!mlirStringRefEqual(name, ir_ref("arith.constant")))
        return none;
    MlirAttribute attr = mlirOperationGetAttributeByName(op, ir_ref("value"));
    if (!mlirAttributeIsADenseElements(attr))
        return attr;
    return mlirDenseElementsAttrIsSplat(attr)
               ? mlirDenseElementsAttrGetSplatValue(attr)
               : none;
}

bool ir_constant_int(MlirValue value, int64_t *out_value) {
    MlirAttribute attr = constant_element(value);
    if (mlirAttributeIsNull(attr) || !mlirAttributeIsAInteger(attr))
        return false;
    *out_value = mlirIntegerAttrGetValueInt(attr);
    if (ir_is_bool(mlirAttributeGetType(attr)))
        *out_value = *out_value != 0;
    return true;
}

bool ir_constant_float(MlirValue value, double *out_value) {
    MlirAttribute attr = constant_element(value);
    if (mlirAttributeIsNull(attr) || !mlirAttributeIsAFloat(attr))
        return false;
    *out_value = mlirFloatAttrGetValueDouble(attr);
    return true;
}

/* ---- Arithmetic ---------------------------------------------------------- */

/* fastmath<contract> for float ops while b->contract is set. */
static size_t fastmath(const struct ir_builder *b, MlirType type,
                       struct ir_attr *attr) {
    if (!b->contract || !ir_is_float(type))
        return 0;
    *attr = (struct ir_attr){
        "fastmath",
        mlirAttributeParseGet(b->context, ir_ref("#arith.fastmath<contract>"))};
    return 1;
}

/* An op whose result has the type of its first operand. */
static MlirValue elementwise(struct ir_builder *b, const char *name,
                             const MlirValue *operands, size_t count) {
    MlirType type = mlirValueGetType(operands[0]);
    struct ir_attr attr;
    size_t attr_count = fastmath(b, type, &attr);
    return ir_value_op(b, name, operands, count, type, &attr, attr_count);
}

/* An op that changes the element type and keeps the shape. */
static MlirValue cast(struct ir_builder *b, const char *name, MlirValue x,
                      MlirType element) {
    MlirType type = ir_with_element(mlirValueGetType(x), element);
    return ir_value_op(b, name, &x, 1, type, NULL, 0);
}

/* The functions of the three tables in build.h. */
#define OP(name, mlir)                                                    \
    MlirValue ir_##name(struct ir_builder *b, MlirValue x, MlirValue y) { \
        return elementwise(b, mlir, (MlirValue[]){x, y}, 2);              \
    }
IR_BINARY_OPS(OP)
#undef OP
#define OP(name, mlir)                                       \
    MlirValue ir_##name(struct ir_builder *b, MlirValue x) { \
        return elementwise(b, mlir, &x, 1);                  \
    }
IR_UNARY_OPS(OP)
#undef OP
#define OP(name, mlir)                                                         \
    MlirValue ir_##name(struct ir_builder *b, MlirValue x, MlirType element) { \
        return cast(b, mlir, x, element);                                      \
    }
IR_CAST_OPS(OP)
#undef OP

/* arith.cmpi and cmpf: the predicate is MLIR's number as an i64 attribute. */
static MlirValue compare(struct ir_builder *b, const char *name, int predicate,
                         MlirValue x, MlirValue y) {
    MlirType type =
        ir_with_element(mlirValueGetType(x), ir_type_i1(b->context));
    struct ir_attr attr = {
        "predicate", mlirIntegerAttrGet(ir_type_i64(b->context), predicate)};
    return ir_value_op(b, name, (MlirValue[]){x, y}, 2, type, &attr, 1);
}

MlirValue ir_cmpi(struct ir_builder *b, enum ir_cmpi predicate, MlirValue x,
                  MlirValue y) {
    return compare(b, "arith.cmpi", (int)predicate, x, y);
}

MlirValue ir_cmpf(struct ir_builder *b, enum ir_cmpf predicate, MlirValue x,
                  MlirValue y) {
    return compare(b, "arith.cmpf", (int)predicate, x, y);
}

MlirValue ir_select(struct ir_builder *b, MlirValue condition, MlirValue x,
                    MlirValue y) {
    return ir_value_op(b, "arith.select", (MlirValue[]){condition, x, y}, 3,
                       mlirValueGetType(x), NULL, 0);
}

MlirValue ir_not(struct ir_builder *b, MlirValue x) {
    return ir_xori(b, x, ir_splat(b, mlirValueGetType(x), 1));
}

MlirValue ir_fma(struct ir_builder *b, MlirValue x, MlirValue y, MlirValue z) {
    return elementwise(b, "math.fma", (MlirValue[]){x, y, z}, 3);
}

/* A scalar i32 as index. */
static MlirValue to_index(struct ir_builder *b, MlirValue x) {
    MlirType index = ir_type_index(b->context);
    return mlirTypeIsAIndex(mlirValueGetType(x)) ? x
                                                 : ir_index_cast(b, x, index);
}

MlirValue ir_to_i32(struct ir_builder *b, MlirValue x) {
    MlirType i32 = ir_type_i32(b->context);
    return mlirTypeEqual(mlirValueGetType(x), i32) ? x
                                                   : ir_index_cast(b, x, i32);
}

/* ---- Vectors ------------------------------------------------------------- */

MlirValue ir_broadcast(struct ir_builder *b, MlirValue x, MlirType type) {
    MlirType from = mlirValueGetType(x);
    MlirType to = ir_with_element(type, ir_element_type(from));
    if (mlirTypeEqual(from, to))
        return x;
    return ir_value_op(b, "vector.broadcast", &x, 1, to, NULL, 0);
}

/* vector.shape_cast to `type` (same elements). */
static MlirValue shape_cast(struct ir_builder *b, MlirValue x, MlirType type) {
    return ir_value_op(b, "vector.shape_cast", &x, 1, type, NULL, 0);
}

/* 0, 1, 2, … as rows x 1 or 1 x columns: symbolic until the shape_cast, so that
 * the back end computes them from the lane. */
static MlirValue positions(struct ir_builder *b, int64_t rows,
                           int64_t columns) {
    MlirType index = ir_type_index(b->context), i32 = ir_type_i32(b->context);
    MlirValue step =
        ir_value_op(b, "vector.step", NULL, 0,
                    ir_type_vector1(index, rows * columns), NULL, 0);
    return shape_cast(b, ir_index_cast(b, step, i32),
                      ir_type_tile(i32, rows, columns));
}

MlirValue ir_row_positions(struct ir_builder *b, int64_t rows) {
    return positions(b, rows, 1);
}

MlirValue ir_column_positions(struct ir_builder *b, int64_t columns) {
    return positions(b, 1, columns);
}

MlirValue ir_reduce_columns(struct ir_builder *b, enum ir_reduction kind,
                            MlirValue tile) {
    static const struct {
        const char *attr;
        double neutral;
    } kinds[] = {
        [IR_REDUCE_ADD] = {"#vector.kind<add>", 0},
        [IR_REDUCE_MAXNUMF] = {"#vector.kind<maxnumf>", -INFINITY},
        [IR_REDUCE_MINNUMF] = {"#vector.kind<minnumf>", INFINITY},
    };
    MlirType type = mlirValueGetType(tile);
    MlirType element = ir_element_type(type);
    int64_t rows = ir_rows(type), axis = 1;
    MlirType flat = ir_type_vector1(element, rows);
    MlirValue neutral = ir_splat(b, flat, kinds[kind].neutral);
    struct ir_attr attrs[] = {
        {"kind", mlirAttributeParseGet(b->context, ir_ref(kinds[kind].attr))},
        {"reduction_dims", mlirDenseI64ArrayGet(b->context, 1, &axis)},
    };
    MlirValue sum =
        ir_value_op(b, "vector.multi_reduction", (MlirValue[]){tile, neutral},
                    2, flat, attrs, 2);
    return shape_cast(b, sum, ir_type_tile(element, rows, 1));
}

/* ---- Memory and GPU ------------------------------------------------------ */

/* The memref (and value before it) followed by the indices as index. */
static size_t memory_operands(struct ir_builder *b, MlirValue *operands,
                              size_t used, const MlirValue *indices,
                              size_t count) {
    assert(count <= KERNEL_MAX_RANK);
    for (size_t i = 0; i < count; i++)
        operands[used + i] = to_index(b, indices[i]);
    return used + count;
}

MlirValue ir_load_element(struct ir_builder *b, MlirValue memref,
                          const MlirValue *indices, size_t count) {
    MlirValue operands[KERNEL_MAX_RANK + 1] = {memref};
    size_t used = memory_operands(b, operands, 1, indices, count);
    return ir_value_op(b, "memref.load", operands, used,
                       ir_element_type(mlirValueGetType(memref)), NULL, 0);
}

void ir_store_element(struct ir_builder *b, MlirValue value, MlirValue memref,
                      const MlirValue *indices, size_t count) {
    MlirValue operands[KERNEL_MAX_RANK + 2] = {value, memref};
    size_t used = memory_operands(b, operands, 2, indices, count);
    ir_op(b, "memref.store", operands, used, NULL, 0, NULL, 0);
}

MlirValue ir_dim(struct ir_builder *b, MlirValue memref, int axis) {
    MlirValue operands[2] = {memref, const_index(b, axis)};
    return ir_to_i32(b, ir_value_op(b, "memref.dim", operands, 2,
                                    ir_type_index(b->context), NULL, 0));
}

/* A gpu id op: index-typed, converted to i32. */
static MlirValue gpu_id(struct ir_builder *b, const char *name,
                        bool has_dimension) {
    struct ir_attr attr = {"dimension", mlirAttributeGetNull()};
    if (has_dimension)
        attr.value = mlirAttributeParseGet(b->context, ir_ref("#gpu<dim x>"));
    return ir_to_i32(b, ir_value_op(b, name, NULL, 0, ir_type_index(b->context),
                                    &attr, has_dimension));
}

MlirValue ir_block_id(struct ir_builder *b) {
    return gpu_id(b, "gpu.block_id", true);
}
MlirValue ir_thread_id(struct ir_builder *b) {
    return gpu_id(b, "gpu.thread_id", true);
}
MlirValue ir_lane_id(struct ir_builder *b) {
    return gpu_id(b, "gpu.lane_id", false);
}
MlirValue ir_subgroup_id(struct ir_builder *b) {
    return gpu_id(b, "gpu.subgroup_id", false);
}
void ir_barrier(struct ir_builder *b) {
    ir_op(b, "gpu.barrier", NULL, 0, NULL, 0, NULL, 0);
}
