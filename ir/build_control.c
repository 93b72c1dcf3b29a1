/* Builders of structured control flow and functions: see build.h. */
#include <assert.h>
#include <mlir-c/BuiltinAttributes.h>

#include "ir/build.h"
#include "ir/walk.h"

/* An op with regions, each with one block of the given argument types (an empty
 * region where `blocks[i]` is false). */
static MlirOperation region_op(struct ir_builder *b, const char *name,
                               const MlirValue *operands, size_t operand_count,
                               const MlirType *results, size_t result_count,
                               const bool *blocks, size_t region_count,
                               const MlirType *args, size_t arg_count) {
    enum { MAX_ARGS = 64 };
    MlirLocation locations[MAX_ARGS];
    assert(arg_count <= MAX_ARGS && region_count <= 2);
    for (size_t i = 0; i < arg_count; i++)
        locations[i] = b->location;
    MlirRegion regions[2];
    for (size_t i = 0; i < region_count; i++) {
        regions[i] = mlirRegionCreate();
        if (blocks[i])
            mlirRegionAppendOwnedBlock(
                regions[i],
                mlirBlockCreate((intptr_t)arg_count, args, locations));
    }
    MlirOperationState state = mlirOperationStateGet(ir_ref(name), b->location);
    mlirOperationStateAddOperands(&state, (intptr_t)operand_count, operands);
    mlirOperationStateAddResults(&state, (intptr_t)result_count, results);
    mlirOperationStateAddOwnedRegions(&state, (intptr_t)region_count, regions);
    MlirOperation op = mlirOperationCreate(&state);
    if (mlirOperationIsNull(b->before))
        mlirBlockAppendOwnedOperation(b->block, op);
    else
        mlirBlockInsertOwnedOperationBefore(b->block, b->before, op);
    return op;
}

/* First block of a region; loops and arms have just one. */
static MlirBlock body_of(MlirOperation op, intptr_t region) {
    return mlirRegionGetFirstBlock(mlirOperationGetRegion(op, region));
}

/* Every arm and body ends in a yield, also one without values. */
static void yield(struct ir_builder *b, const MlirValue *values, size_t count) {
    ir_op(b, "scf.yield", values, count, NULL, 0, NULL, 0);
}

/* Goes back to a saved place; the location stays what it is now. */
static void restore(struct ir_builder *b, const struct ir_builder *saved) {
    b->block = saved->block;
    b->before = saved->before;
    b->location = saved->location;
}

/* ---- Loops and branches -------------------------------------------------- */

struct ir_for ir_for_begin(struct ir_builder *b, MlirValue lo, MlirValue hi,
                           MlirValue step, const MlirValue *inits,
                           size_t count) {
    MlirValue *operands = ARENA_NEW_ARRAY(b->arena, MlirValue, count + 3);
    MlirType *types = ARENA_NEW_ARRAY(b->arena, MlirType, count + 1);
    operands[0] = lo, operands[1] = hi, operands[2] = step;
    types[0] = mlirValueGetType(lo);
    for (size_t i = 0; i < count; i++) {
        operands[3 + i] = inits[i];
        types[1 + i] = mlirValueGetType(inits[i]);
    }
    struct ir_for loop = {.after = *b};
    loop.op = region_op(b, "scf.for", operands, count + 3, types + 1, count,
                        &(bool){true}, 1, types, count + 1);
    loop.body = body_of(loop.op, 0);
    loop.iv = mlirBlockGetArgument(loop.body, 0);
    ir_at_end(b, loop.body);
    return loop;
}

MlirValue ir_for_arg(const struct ir_for *loop, size_t i) {
    return mlirBlockGetArgument(loop->body, (intptr_t)i + 1);
}

void ir_for_end(struct ir_builder *b, struct ir_for *loop,
                const MlirValue *yields, size_t count) {
    yield(b, yields, count);
    restore(b, &loop->after);
}

struct ir_if ir_if_begin(struct ir_builder *b, MlirValue condition,
                         const MlirType *results, size_t count, bool has_else) {
    struct ir_if branch = {.after = *b};
    const bool blocks[2] = {true, has_else};
    branch.op = region_op(b, "scf.if", &condition, 1, results, count, blocks, 2,
                          NULL, 0);
    ir_at_end(b, body_of(branch.op, 0));
    return branch;
}

void ir_if_else(struct ir_builder *b, struct ir_if *branch,
                const MlirValue *yields, size_t count) {
    yield(b, yields, count);
    b->location = branch->after.location;
    ir_at_end(b, body_of(branch->op, 1));
}

void ir_if_end(struct ir_builder *b, struct ir_if *branch,
               const MlirValue *yields, size_t count) {
    yield(b, yields, count);
    restore(b, &branch->after);
}

struct ir_while ir_while_begin(struct ir_builder *b, const MlirValue *inits,
                               size_t count) {
    return ir_while_begin_passing(b, inits, count, count);
}

struct ir_while ir_while_begin_passing(struct ir_builder *b,
                                       const MlirValue *inits, size_t count,
                                       size_t passed) {
    MlirType *types = ARENA_NEW_ARRAY(b->arena, MlirType, count);
    for (size_t i = 0; i < count; i++)
        types[i] = mlirValueGetType(inits[i]);
    struct ir_while loop = {.after = *b};
    const bool blocks[2] = {true, true};
    loop.op = region_op(b, "scf.while", inits, count, types, passed, blocks, 2,
                        types, count);
    for (size_t i = count; i-- > passed;)
        mlirBlockEraseArgument(body_of(loop.op, 1), (unsigned)i);
    ir_at_end(b, body_of(loop.op, 0));
    return loop;
}

MlirValue ir_while_arg(const struct ir_while *loop, int part, size_t i) {
    return mlirBlockGetArgument(body_of(loop->op, part), (intptr_t)i);
}

void ir_while_do(struct ir_builder *b, struct ir_while *loop,
                 MlirValue condition, const MlirValue *values, size_t count) {
    MlirValue *operands = ARENA_NEW_ARRAY(b->arena, MlirValue, count + 1);
    operands[0] = condition;
    for (size_t i = 0; i < count; i++)
        operands[i + 1] = values[i];
    ir_op(b, "scf.condition", operands, count + 1, NULL, 0, NULL, 0);
    b->location = loop->after.location;
    ir_at_end(b, body_of(loop->op, 1));
}

void ir_while_end(struct ir_builder *b, struct ir_while *loop,
                  const MlirValue *yields, size_t count) {
    yield(b, yields, count);
    restore(b, &loop->after);
}

/* ---- Functions ----------------------------------------------------------- */

/* Name, type and visibility of a function, whether it has a body or not. */
static void set_signature(MlirOperation func, const char *name, bool is_private,
                          const MlirType *args, size_t arg_count,
                          const MlirType *results, size_t result_count) {
    MlirContext context = mlirOperationGetContext(func);
    MlirType type = mlirFunctionTypeGet(context, (intptr_t)arg_count, args,
                                        (intptr_t)result_count, results);
    ir_set_attr(func, "sym_name", ir_attr_string(context, name));
    ir_set_attr(func, "function_type", mlirTypeAttrGet(type));
    if (is_private)
        ir_set_attr(func, "sym_visibility", ir_attr_string(context, "private"));
}

MlirOperation ir_func(struct ir_builder *b, const char *name, bool is_private,
                      const MlirType *args, size_t arg_count,
                      const MlirType *results, size_t result_count) {
    MlirOperation func = region_op(b, "func.func", NULL, 0, NULL, 0,
                                   &(bool){true}, 1, args, arg_count);
    set_signature(func, name, is_private, args, arg_count, results,
                  result_count);
    return func;
}

MlirBlock ir_func_body(MlirOperation func) {
    return body_of(func, 0);
}

size_t ir_func_arg_count(MlirOperation func) {
    MlirAttribute type =
        mlirOperationGetAttributeByName(func, ir_ref("function_type"));
    return (size_t)mlirFunctionTypeGetNumInputs(mlirTypeAttrGetValue(type));
}

MlirValue ir_func_arg(MlirOperation func, size_t i) {
    return mlirBlockGetArgument(ir_func_body(func), (intptr_t)i);
}

MlirValue ir_func_add_arg(MlirOperation func, MlirType type, const char *arg) {
    enum { MAX_ARGS = 256 };
    MlirType inputs[MAX_ARGS], results[16];
    MlirType old = mlirTypeAttrGetValue(
        mlirOperationGetAttributeByName(func, ir_ref("function_type")));
    intptr_t count = mlirFunctionTypeGetNumInputs(old);
    intptr_t result_count = mlirFunctionTypeGetNumResults(old);
    assert(count < MAX_ARGS && result_count <= 16);
    for (intptr_t i = 0; i < count; i++)
        inputs[i] = mlirFunctionTypeGetInput(old, i);
    for (intptr_t i = 0; i < result_count; i++)
        results[i] = mlirFunctionTypeGetResult(old, i);
    inputs[count] = type;
    MlirType new = mlirFunctionTypeGet(mlirOperationGetContext(func), count + 1,
                                       inputs, result_count, results);
    mlirOperationSetAttributeByName(func, ir_ref("function_type"),
                                    mlirTypeAttrGet(new));
    MlirValue value = mlirBlockAddArgument(ir_func_body(func), type,
                                           mlirOperationGetLocation(func));
    /* Also without a kind: arg_attrs, where present, must grow with the
     * arguments. */
    ir_func_set_arg_attr(
        func, (size_t)count, "attn.arg",
        arg ? ir_attr_string(mlirOperationGetContext(func), arg)
            : mlirAttributeGetNull());
    return value;
}

void ir_return(struct ir_builder *b, const MlirValue *values, size_t count) {
    ir_op(b, "func.return", values, count, NULL, 0, NULL, 0);
}

MlirOperation ir_extern_func(MlirOperation module, struct arena *arena,
                             const char *name, const MlirType *args,
                             size_t arg_count, MlirType result) {
    const char *symbol = name;
    if (ir_is_vector(result))
        symbol = arena_printf(arena, "%s.%dx%d", name, (int)ir_rows(result),
                              (int)ir_columns(result));
    MlirOperation known = ir_find_func(module, symbol);
    if (!mlirOperationIsNull(known))
        return known;
    struct ir_builder b;
    ir_builder_init(&b, mlirOperationGetContext(module), arena);
    ir_at_end(&b, body_of(module, 0));
    MlirOperation func = region_op(&b, "func.func", NULL, 0, NULL, 0,
                                   &(bool){false}, 1, NULL, 0);
    set_signature(func, symbol, true, args, arg_count, &result, 1);
    ir_set_attr(func, "attn.extern", ir_attr_string(b.context, name));
    return func;
}

MlirOperation ir_call(struct ir_builder *b, MlirOperation func,
                      const MlirValue *args, size_t count) {
    MlirType type = mlirTypeAttrGetValue(
        mlirOperationGetAttributeByName(func, ir_ref("function_type")));
    MlirType results[16];
    intptr_t result_count = mlirFunctionTypeGetNumResults(type);
    assert(result_count <= 16);
    for (intptr_t i = 0; i < result_count; i++)
        results[i] = mlirFunctionTypeGetResult(type, i);
    MlirAttribute name =
        mlirOperationGetAttributeByName(func, ir_ref("sym_name"));
    struct ir_attr attr = {
        "callee",
        mlirFlatSymbolRefAttrGet(b->context, mlirStringAttrGetValue(name))};
    return ir_op(b, "func.call", args, count, results, (size_t)result_count,
                 &attr, 1);
}
