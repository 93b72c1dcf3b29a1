/* Copying ops and inlining functions: see walk.h.
 *
 * MLIR's C API has no value mapping; mlirOperationClone maps what is inside the
 * copied op, and operands from outside are replaced here. */
#include <assert.h>
#include <mlir-c/BuiltinAttributes.h>

#include "ir/walk.h"

/* ---- Value map: open addressing, keys are value pointers ----------------- */

struct ir_map {
    struct arena *arena;
    MlirValue (*entries)[2];
    size_t count, capacity; /* capacity is a power of two */
};

struct ir_map *ir_map_create(struct arena *arena) {
    struct ir_map *map = ARENA_NEW(arena, struct ir_map);
    map->arena = arena;
    map->capacity = 64;
    map->entries =
        arena_alloc_array(arena, map->capacity, sizeof *map->entries);
    return map;
}

/* The slot of a key: its own or the empty one where it belongs. */
static size_t slot_of(const struct ir_map *map, MlirValue key) {
    size_t slot = ((uintptr_t)key.ptr >> 3) * (size_t)0x9E3779B97F4A7C15u;
    for (slot >>= 16;; slot++) {
        const MlirValue found = map->entries[slot & (map->capacity - 1)][0];
        if (!found.ptr || found.ptr == key.ptr)
            return slot & (map->capacity - 1);
    }
}

void ir_map_set(struct ir_map *map, MlirValue from, MlirValue to) {
    if (2 * (map->count + 1) > map->capacity) {
        struct ir_map old = *map;
        map->capacity *= 2;
        map->entries =
            arena_alloc_array(map->arena, map->capacity, sizeof *map->entries);
        for (size_t i = 0; i < old.capacity; i++) {
            if (!old.entries[i][0].ptr)
                continue;
            size_t slot = slot_of(map, old.entries[i][0]);
            map->entries[slot][0] = old.entries[i][0];
            map->entries[slot][1] = old.entries[i][1];
        }
    }
    size_t slot = slot_of(map, from);
    map->count += !map->entries[slot][0].ptr;
    map->entries[slot][0] = from;
    map->entries[slot][1] = to;
}

MlirValue ir_map_get(const struct ir_map *map, MlirValue value) {
    size_t slot = slot_of(map, value);
    return map->entries[slot][0].ptr ? map->entries[slot][1] : value;
}

bool ir_map_has(const struct ir_map *map, MlirValue value) {
    return map->entries[slot_of(map, value)][0].ptr != NULL;
}

bool ir_takes_any(MlirOperation op, const struct ir_map *set) {
    for (size_t i = 0; i < ir_operand_count(op); i++)
        if (ir_map_has(set, ir_operand(op, i)))
            return true;
    return false;
}

void ir_add_results(struct ir_map *set, MlirOperation op) {
    for (size_t i = 0; i < ir_result_count(op); i++)
        ir_map_set(set, ir_result(op, i), ir_result(op, i));
}

/* ---- Cloning ------------------------------------------------------------- */

/* Operands inside the copy refer to the copy already: those are not in the
 * map. */
static MlirWalkResult map_operands(MlirOperation op, void *data) {
    const struct ir_map *map = data;
    for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); i++) {
        MlirValue old = mlirOperationGetOperand(op, i);
        MlirValue new = ir_map_get(map, old);
        if (!mlirValueEqual(old, new))
            mlirOperationSetOperand(op, i, new);
    }
    return MlirWalkResultAdvance;
}

MlirOperation ir_clone(struct ir_builder *b, MlirOperation op,
                       struct ir_map *map) {
    MlirOperation copy = mlirOperationClone(op);
    if (mlirOperationIsNull(b->before))
        mlirBlockAppendOwnedOperation(b->block, copy);
    else
        mlirBlockInsertOwnedOperationBefore(b->block, b->before, copy);
    mlirOperationWalk(copy, map_operands, map, MlirWalkPreOrder);
    for (size_t i = 0; i < ir_result_count(op); i++)
        ir_map_set(map, ir_result(op, i), ir_result(copy, i));
    return copy;
}

/* ---- Inlining ------------------------------------------------------------ */

/* The join of the mapped operands' shapes, starting from a scalar i32. */
static MlirType joined_shape(const struct ir_builder *b, MlirOperation op,
                             const struct ir_map *map) {
    MlirType shape = ir_type_i32(b->context);
    for (size_t i = 0; i < ir_operand_count(op); i++) {
        MlirType type = mlirValueGetType(ir_map_get(map, ir_operand(op, i)));
        if (ir_is_vector(type))
            shape = ir_join_shapes(shape, type);
    }
    return shape;
}

/* A call of an extern function for every element. */
static MlirValue widen_call(struct ir_builder *b, MlirOperation op,
                            const MlirValue *operands, size_t count,
                            MlirType result) {
    enum { MAX_OPERANDS = 64 };
    MlirType types[MAX_OPERANDS];
    MlirOperation module = op;
    while (!ir_is_op(module, "builtin.module"))
        module = mlirOperationGetParentOperation(module);
    MlirOperation callee = ir_symbol_func(module, op, "callee");
    const char *name = ir_text_attr(callee, "attn.extern");
    if (!name)
        ir_ice(op, "only extern functions can be called on vectors");
    for (size_t i = 0; i < count; i++)
        types[i] = mlirValueGetType(operands[i]);
    MlirOperation wide =
        ir_extern_func(module, b->arena, name, types, count, result);
    return ir_result(ir_call(b, wide, operands, count), 0);
}

/* Rebuilds a scalar op on vectors of `shape`. */
static void widen(struct ir_builder *b, MlirOperation op, MlirType shape,
                  struct ir_map *map) {
    enum { MAX_OPERANDS = 64, MAX_ATTRS = 16 };
    MlirValue operands[MAX_OPERANDS];
    struct ir_attr attrs[MAX_ATTRS];
    size_t count = ir_operand_count(op);
    intptr_t attr_count = mlirOperationGetNumAttributes(op);
    assert(count <= MAX_OPERANDS && attr_count <= MAX_ATTRS &&
           ir_result_count(op) == 1);
    if (mlirOperationGetNumRegions(op) != 0)
        ir_ice(op, "an op with regions cannot take vectors");
    /* A read takes indices of any shape; a scalar select condition stays
     * scalar. */
    bool keeps_shapes = ir_is_op(op, "attn.read");
    bool is_select = ir_is_op(op, "arith.select");
    for (size_t i = 0; i < count; i++) {
        operands[i] = ir_map_get(map, ir_operand(op, i));
        bool scalar_condition =
            is_select && i == 0 && !ir_is_vector(mlirValueGetType(operands[i]));
        if (!keeps_shapes && !scalar_condition)
            operands[i] = ir_broadcast(b, operands[i], shape);
    }
    for (intptr_t i = 0; i < attr_count; i++) {
        MlirNamedAttribute attr = mlirOperationGetAttribute(op, i);
        attrs[i] =
            (struct ir_attr){mlirIdentifierStr(attr.name).data, attr.attribute};
    }
    MlirType result =
        ir_with_element(shape, mlirValueGetType(ir_result(op, 0)));
    if (ir_is_op(op, "func.call")) {
        ir_map_set(map, ir_result(op, 0),
                   widen_call(b, op, operands, count, result));
        return;
    }
    ir_map_set(map, ir_result(op, 0),
               ir_value_op(b, ir_op_name(op), operands, count, result, attrs,
                           (size_t)attr_count));
}

/* ---- Positions over a constant ------------------------------------------ */

/* The first of the positions `sum` of a tile that lies inside one block of
 * `divisor` positions; null for others. */
static MlirValue position_of_block(MlirOperation sum, int64_t divisor) {
    MlirValue none = {NULL};
    MlirType type = mlirValueGetType(ir_result(sum, 0));
    int64_t count = ir_extent(type, 0) * ir_extent(type, 1);
    MlirOperation stretch = ir_def_op(ir_operand(sum, 1), "vector.broadcast");
    if (divisor % count != 0 ||
        ir_int_attr(sum, "attn.position", 1) % count != 0 ||
        mlirOperationIsNull(stretch) ||
        ir_is_vector(mlirValueGetType(ir_operand(stretch, 0))))
        return none;
    return ir_operand(stretch, 0);
}

/* The positions of a tile divided by a constant: where the tile lies inside one
 * block of so many, that is one number, the first position's.  A table over
 * blocks is then read once a tile instead of once a pair.  Elsewhere the
 * division is unsigned, since positions are not negative.  False for other
 * ops. */
static bool divide_tile(struct ir_builder *b, MlirOperation op,
                        struct ir_map *map) {
    int64_t divisor = 0;
    bool is_shift = ir_is_op(op, "arith.shrsi");
    if ((!is_shift && !ir_is_op(op, "arith.floordivsi")) ||
        !ir_constant_int(ir_map_get(map, ir_operand(op, 1)), &divisor) ||
        divisor < 0 || (is_shift && divisor > 30))
        return false;
    MlirValue positions = ir_map_get(map, ir_operand(op, 0));
    MlirOperation sum = ir_def_op(positions, "arith.addi");
    if (mlirOperationIsNull(sum) || !ir_has_attr(sum, "attn.position"))
        return false;
    if (is_shift)
        divisor = (int64_t)1 << divisor;
    if (divisor == 0)
        return false;
    MlirValue first = position_of_block(sum, divisor);
    MlirValue by = ir_map_get(map, ir_operand(op, 1));
    if (mlirValueIsNull(first) && is_shift)
        return false;
    b->location = mlirOperationGetLocation(op);
    if (mlirValueIsNull(first)) {
        first = positions;
        by = ir_broadcast(b, by, mlirValueGetType(positions));
    }
    ir_map_set(map, ir_result(op, 0),
               is_shift ? ir_shrsi(b, first, by) : ir_divui(b, first, by));
    return true;
}

void ir_inline(struct ir_builder *b, MlirOperation func, const MlirValue *args,
               size_t count, MlirValue *out_results) {
    struct ir_map *map = ir_map_create(b->arena);
    MlirLocation location = b->location;
    assert(count == ir_func_arg_count(func));
    for (size_t i = 0; i < count; i++)
        ir_map_set(map, ir_func_arg(func, i), args[i]);
    MlirOperation op = mlirBlockGetFirstOperation(ir_func_body(func));
    for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op)) {
        if (ir_is_op(op, "func.return"))
            break;
        if (divide_tile(b, op, map))
            continue;
        MlirType shape = joined_shape(b, op, map);
        if (ir_is_vector(shape)) {
            b->location = mlirOperationGetLocation(op);
            widen(b, op, shape, map);
        } else {
            ir_clone(b, op, map);
        }
    }
    b->location = location;
    for (size_t i = 0; out_results && i < ir_operand_count(op); i++)
        out_results[i] = ir_map_get(map, ir_operand(op, i));
}
