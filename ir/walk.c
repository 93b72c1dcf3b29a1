/* Reading and changing the IR: see walk.h.  Inlining is in inline.c. */
#include "ir/walk.h"

#include <assert.h>
#include <mlir-c/BuiltinAttributes.h>
#include <string.h>

#include "support/vec.h"

/* ---- Ops ----------------------------------------------------------------- */

const char *ir_op_name(MlirOperation op) {
    return mlirIdentifierStr(mlirOperationGetName(op)).data;
}

bool ir_is_op(MlirOperation op, const char *name) {
    return !mlirOperationIsNull(op) && strcmp(ir_op_name(op), name) == 0;
}

MlirOperation ir_def(MlirValue value) {
    return mlirValueIsAOpResult(value) ? mlirOpResultGetOwner(value)
                                       : (MlirOperation){NULL};
}

MlirOperation ir_def_op(MlirValue value, const char *name) {
    MlirOperation op = ir_def(value);
    return ir_is_op(op, name) ? op : (MlirOperation){NULL};
}

void ir_erase(MlirOperation op) {
    mlirOperationRemoveFromParent(op);
    mlirOperationDestroy(op);
}

bool ir_is_pure(MlirOperation op) {
    static const char *const pure[] = {
        "attn.read",      "attn.stage",       "memref.dim",
        "memref.load",    "gpu.block_id",     "gpu.thread_id",
        "gpu.lane_id",    "gpu.subgroup_id",  "attn.mul_rp",
        "attn.fragments", "attn.partial_sum", "attn.exp2_split",
        "func.call",      "attn.partial_max", "attn.lane_value"};
    const char *name = ir_op_name(op);
    if (strncmp(name, "arith.", 6) == 0 || strncmp(name, "math.", 5) == 0 ||
        strncmp(name, "vector.", 7) == 0)
        return true;
    for (size_t i = 0; i < sizeof pure / sizeof *pure; i++)
        if (strcmp(name, pure[i]) == 0)
            return true;
    return false;
}

/* No result has a use. */
static bool is_unused(MlirOperation op) {
    for (size_t i = 0; i < ir_result_count(op); i++)
        if (ir_has_uses(ir_result(op, i)))
            return false;
    return true;
}

typedef VEC(MlirOperation) op_list;

/* The ops of a block in order: erasing while walking the block is not safe. */
static op_list ops_of(struct arena *arena, MlirBlock block) {
    op_list ops = {0};
    for (MlirOperation op = mlirBlockGetFirstOperation(block);
         !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op))
        vec_push(arena, &ops, op);
    return ops;
}

/* Last to first, so that a value's users go before it. */
static void erase_dead(struct arena *arena, MlirBlock block) {
    op_list ops = ops_of(arena, block);
    for (size_t i = ops.count; i-- > 0;) {
        MlirOperation op = ops.data[i];
        if (ir_is_pure(op) && is_unused(op)) {
            ir_erase(op);
            continue;
        }
        for (intptr_t r = 0; r < mlirOperationGetNumRegions(op); r++)
            if (!mlirBlockIsNull(ir_region_block(op, (size_t)r)))
                erase_dead(arena, ir_region_block(op, (size_t)r));
    }
}

void ir_erase_dead(MlirBlock block) {
    struct arena *arena = arena_create();
    erase_dead(arena, block);
    arena_destroy(arena);
}

/* ---- Walking ------------------------------------------------------------- */

struct walk {
    MlirOperation root;
    void (*visit)(void *data, MlirOperation op);
    void *data;
};

/* The root is visited by MLIR too; callers ask for what is below it. */
static MlirWalkResult walk_visit(MlirOperation op, void *data) {
    const struct walk *walk = data;
    if (!mlirOperationEqual(op, walk->root))
        walk->visit(walk->data, op);
    return MlirWalkResultAdvance;
}

void ir_walk(MlirOperation root, void (*visit)(void *data, MlirOperation op),
             void *data) {
    struct walk walk = {root, visit, data};
    mlirOperationWalk(root, walk_visit, &walk, MlirWalkPreOrder);
}

struct collect {
    struct arena *arena;
    const char *name;
    op_list ops;
};

static void collect_visit(void *data, MlirOperation op) {
    struct collect *collect = data;
    if (ir_is_op(op, collect->name))
        vec_push(collect->arena, &collect->ops, op);
}

MlirOperation *ir_collect(struct arena *arena, MlirOperation root,
                          const char *name, size_t *out_count) {
    struct collect collect = {.arena = arena, .name = name};
    ir_walk(root, collect_visit, &collect);
    *out_count = collect.ops.count;
    return collect.ops.data;
}

/* ---- Attributes ---------------------------------------------------------- */

/* Inherent or discardable: MLIR looks into both. */
static MlirAttribute get_attr(MlirOperation op, const char *name) {
    return mlirOperationGetAttributeByName(op, ir_ref(name));
}

int64_t ir_int_attr(MlirOperation op, const char *name, int64_t missing) {
    MlirAttribute attr = get_attr(op, name);
    if (mlirAttributeIsNull(attr) || !mlirAttributeIsAInteger(attr))
        return missing;
    return mlirIntegerAttrGetValueInt(attr);
}

/* Strings in attributes are uniqued without a NUL; an identifier has one. */
static const char *interned(MlirContext context, MlirStringRef text) {
    return mlirIdentifierStr(mlirIdentifierGet(context, text)).data;
}

/* Text of a string or symbol attribute, NULL for anything else. */
static const char *attr_text(MlirAttribute attr) {
    if (mlirAttributeIsNull(attr))
        return NULL;
    MlirContext context = mlirAttributeGetContext(attr);
    if (mlirAttributeIsAString(attr))
        return interned(context, mlirStringAttrGetValue(attr));
    if (mlirAttributeIsAFlatSymbolRef(attr))
        return interned(context, mlirFlatSymbolRefAttrGetValue(attr));
    return NULL;
}

const char *ir_text_attr(MlirOperation op, const char *name) {
    return attr_text(get_attr(op, name));
}

/* ---- Symbols and kernels ------------------------------------------------- */

MlirOperation ir_find_func(MlirOperation module, const char *name) {
    MlirBlock body = ir_region_block(module, 0);
    for (MlirOperation op = mlirBlockGetFirstOperation(body);
         !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op))
        if (ir_is_op(op, "func.func") && strcmp(ir_func_name(op), name) == 0)
            return op;
    return (MlirOperation){NULL};
}

MlirOperation ir_symbol_func(MlirOperation module, MlirOperation op,
                             const char *attr) {
    const char *name = ir_text_attr(op, attr);
    return name ? ir_find_func(module, name) : (MlirOperation){NULL};
}

MlirOperation ir_find_attention(MlirOperation func) {
    MlirBlock body = ir_region_block(func, 0);
    if (mlirBlockIsNull(body))
        return (MlirOperation){NULL};
    for (MlirOperation op = mlirBlockGetFirstOperation(body);
         !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op))
        if (ir_is_op(op, "attn.attention"))
            return op;
    return (MlirOperation){NULL};
}

MlirValue ir_returned(MlirOperation func) {
    return ir_operand(mlirBlockGetTerminator(ir_func_body(func)), 0);
}

MlirValue ir_unstretched(MlirValue value) {
    MlirOperation stretch = ir_def_op(value, "vector.broadcast");
    return mlirOperationIsNull(stretch) ? value : ir_operand(stretch, 0);
}

/* Values are shared: what was seen before is not walked again. */
static MlirOperation find_causal(struct ir_map *seen, MlirValue condition,
                                 MlirValue q, MlirValue kv) {
    MlirOperation op = ir_def(ir_unstretched(condition)), none = {NULL};
    if (mlirOperationIsNull(op) || ir_map_has(seen, condition))
        return none;
    ir_map_set(seen, condition, condition);
    if (ir_is_op(op, "arith.andi")) {
        MlirOperation left = find_causal(seen, ir_operand(op, 0), q, kv);
        return mlirOperationIsNull(left)
                   ? find_causal(seen, ir_operand(op, 1), q, kv)
                   : left;
    }
    int64_t predicate = ir_int_attr(op, "predicate", -1);
    bool flipped = predicate == IR_SGE;
    bool fits = ir_is_op(op, "arith.cmpi") &&
                (flipped || predicate == IR_SLE) &&
                mlirValueEqual(ir_unstretched(ir_operand(op, flipped)), kv) &&
                mlirValueEqual(ir_unstretched(ir_operand(op, !flipped)), q);
    return fits ? op : none;
}

MlirOperation ir_find_causal(struct arena *scratch, MlirValue condition,
                             MlirValue q, MlirValue kv) {
    return find_causal(ir_map_create(scratch), condition, q, kv);
}

MlirAttribute ir_func_arg_attr(MlirOperation func, size_t i, const char *name) {
    MlirAttribute all = get_attr(func, "arg_attrs");
    if (mlirAttributeIsNull(all) ||
        (intptr_t)i >= mlirArrayAttrGetNumElements(all))
        return mlirAttributeGetNull();
    return mlirDictionaryAttrGetElementByName(
        mlirArrayAttrGetElement(all, (intptr_t)i), ir_ref(name));
}

const char *ir_func_arg_kind(MlirOperation func, size_t i) {
    return attr_text(ir_func_arg_attr(func, i, "attn.arg"));
}

bool ir_func_find_arg(MlirOperation func, const char *kind, size_t *out_index) {
    for (size_t i = 0; i < ir_func_arg_count(func); i++) {
        const char *text = ir_func_arg_kind(func, i);
        if (!text || strcmp(text, kind) != 0)
            continue;
        *out_index = i;
        return true;
    }
    return false;
}

/* `old` (a dictionary) with one entry set. */
static MlirAttribute with_entry(MlirContext context, MlirAttribute old,
                                const char *name, MlirAttribute value) {
    enum { MAX_ENTRIES = 16 };
    MlirNamedAttribute entries[MAX_ENTRIES];
    intptr_t used = 0;
    for (intptr_t i = 0; i < mlirDictionaryAttrGetNumElements(old); i++) {
        MlirNamedAttribute entry = mlirDictionaryAttrGetElement(old, i);
        if (strcmp(mlirIdentifierStr(entry.name).data, name) == 0)
            continue;
        assert(used < MAX_ENTRIES - 1);
        entries[used++] = entry;
    }
    if (!mlirAttributeIsNull(value))
        entries[used++] = mlirNamedAttributeGet(
            mlirIdentifierGet(context, ir_ref(name)), value);
    return mlirDictionaryAttrGet(context, used, entries);
}

void ir_func_set_arg_attr(MlirOperation func, size_t i, const char *name,
                          MlirAttribute value) {
    enum { MAX_ARGS = 256 };
    MlirContext context = mlirOperationGetContext(func);
    MlirAttribute all = get_attr(func, "arg_attrs"), dictionaries[MAX_ARGS];
    size_t count = ir_func_arg_count(func);
    size_t known =
        mlirAttributeIsNull(all) ? 0 : (size_t)mlirArrayAttrGetNumElements(all);
    assert(count <= MAX_ARGS && i < count);
    for (size_t k = 0; k < count; k++)
        dictionaries[k] = k < known ? mlirArrayAttrGetElement(all, (intptr_t)k)
                                    : mlirDictionaryAttrGet(context, 0, NULL);
    dictionaries[i] = with_entry(context, dictionaries[i], name, value);
    ir_set_attr(func, "arg_attrs",
                mlirArrayAttrGet(context, (intptr_t)count, dictionaries));
}

bool ir_int_pair(MlirOperation op, const char *name, int *out_first,
                 int *out_second) {
    MlirAttribute attr = get_attr(op, name);
    if (mlirAttributeIsNull(attr) || !mlirAttributeIsADenseI32Array(attr) ||
        mlirDenseArrayGetNumElements(attr) != 2)
        return false;
    *out_first = mlirDenseI32ArrayGetElement(attr, 0);
    *out_second = mlirDenseI32ArrayGetElement(attr, 1);
    return true;
}

void ir_set_int_pair(MlirOperation op, const char *name, int first,
                     int second) {
    int32_t pair[2] = {first, second};
    ir_set_attr(op, name,
                mlirDenseI32ArrayGet(mlirOperationGetContext(op), 2, pair));
}

/* An array of strings: postfix code is stored as words. */
static MlirAttribute word_array(MlirContext context, const char *const *words,
                                size_t count) {
    enum { MAX_WORDS = 256 };
    MlirAttribute attrs[MAX_WORDS];
    assert(count <= MAX_WORDS);
    for (size_t i = 0; i < count; i++)
        attrs[i] = ir_attr_string(context, words[i]);
    return mlirArrayAttrGet(context, (intptr_t)count, attrs);
}

void ir_set_kernel_grid(MlirOperation func, const char *const *words,
                        size_t count) {
    ir_set_attr(func, "attn.grid",
                word_array(mlirOperationGetContext(func), words, count));
}

void ir_set_kernel_when(MlirOperation func, const char *const *words,
                        size_t count) {
    ir_set_attr(func, "attn.when",
                word_array(mlirOperationGetContext(func), words, count));
}

void ir_set_workspace_bytes(MlirOperation func, size_t i,
                            const char *const *words, size_t count) {
    ir_func_set_arg_attr(
        func, i, "attn.workspace_bytes",
        word_array(mlirOperationGetContext(func), words, count));
}

void ir_set_extents(MlirOperation func, size_t i, struct arena *arena,
                    const char *const *const *words, const size_t *counts,
                    int rank) {
    MlirContext context = mlirOperationGetContext(func);
    MlirAttribute *axes = ARENA_NEW_ARRAY(arena, MlirAttribute, (size_t)rank);
    for (int axis = 0; axis < rank; axis++)
        axes[axis] = word_array(context, words[axis], counts[axis]);
    ir_func_set_arg_attr(func, i, "attn.extents",
                         mlirArrayAttrGet(context, rank, axes));
}

const char **ir_extent_words(struct arena *arena, MlirOperation func, size_t i,
                             int axis, size_t *out_count) {
    MlirAttribute axes = ir_func_arg_attr(func, i, "attn.extents");
    *out_count = 0;
    if (mlirAttributeIsNull(axes) || axis >= mlirArrayAttrGetNumElements(axes))
        return NULL;
    return ir_words(arena, mlirArrayAttrGetElement(axes, axis), out_count);
}

const char **ir_words(struct arena *arena, MlirAttribute array,
                      size_t *out_count) {
    *out_count = 0;
    if (mlirAttributeIsNull(array) || !mlirAttributeIsAArray(array))
        return NULL;
    size_t count = (size_t)mlirArrayAttrGetNumElements(array);
    const char **words = ARENA_NEW_ARRAY(arena, const char *, count);
    for (size_t i = 0; i < count; i++) {
        MlirAttribute word = mlirArrayAttrGetElement(array, (intptr_t)i);
        words[i] = mlirAttributeIsAString(word) ? attr_text(word) : "";
    }
    *out_count = count;
    return words;
}
