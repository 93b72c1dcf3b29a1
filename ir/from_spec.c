/* From a checked spec to stage `attn`: see from_spec.h and docs/ir.md. */
#include "ir/from_spec.h"

#include <assert.h>
#include <math.h>
#include <mlir-c/BuiltinAttributes.h>

#include "ir/from_expr.h"
#include "ir/walk.h"
#include "support/vec.h"

/* The arguments of @NAME behind lse, which the scalar functions take too. */
struct shared_args {
    VEC(MlirType) types;
    VEC(const char *) kinds; /* attn.arg */
    size_t *param_position;  /* by param.number, SIZE_MAX where unused */
    size_t *tensor_position;
};

struct translation {
    struct ir_builder b;
    const struct source_set *sources;
    const struct attention *attention;
    MlirModule module;
    struct shared_args args;
};

/* Ops built from here on come from this place of the text. */
static void at(struct translation *t, struct source_range where) {
    t->b.location = ir_location_of(t->b.context, t->sources, where);
}

/* Appends one of the arguments behind lse. */
static void add_arg(struct translation *t, MlirType type, const char *kind) {
    vec_push(t->b.arena, &t->args.types, type);
    vec_push(t->b.arena, &t->args.kinds, kind);
}

/* Sizes, used params, used tensors. */
static void collect_args(struct translation *t) {
    const struct attention *attention = t->attention;
    struct arena *arena = t->b.arena;
    MlirContext context = t->b.context;
    for (int i = 0; i < SIZE_COUNT; i++)
        add_arg(
            t, ir_type_i32(context),
            arena_printf(arena, "size:%s", size_name_text((enum size_name)i)));
    t->args.param_position =
        ARENA_NEW_ARRAY(arena, size_t, attention->param_count);
    t->args.tensor_position =
        ARENA_NEW_ARRAY(arena, size_t, attention->tensor_count);
    for (size_t i = 0; i < attention->param_count; i++) {
        const struct param *param = &attention->params[i];
        t->args.param_position[i] =
            param->used ? t->args.types.count : SIZE_MAX;
        if (param->used)
            add_arg(t, ir_type_of_value(context, param->type),
                    arena_printf(arena, "param:%s", param->name));
    }
    for (size_t i = 0; i < attention->tensor_count; i++) {
        const struct tensor *tensor = &attention->tensors[i];
        t->args.tensor_position[i] =
            tensor->used ? t->args.types.count : SIZE_MAX;
        if (tensor->used)
            add_arg(t,
                    ir_type_tensor(ir_type_of_scalar(context, tensor->type),
                                   tensor->rank),
                    arena_printf(arena, "tensor:%s", tensor->name));
    }
}

/* What names mean in `func`, whose shared arguments start at `first`. */
static struct ir_scope scope_of(struct translation *t, MlirOperation func,
                                size_t first) {
    const struct attention *attention = t->attention;
    struct arena *arena = t->b.arena;
    struct ir_scope scope = {.b = &t->b,
                             .sources = t->sources,
                             .module = mlirModuleGetOperation(t->module)};
    MlirValue *params =
        ARENA_NEW_ARRAY(arena, MlirValue, attention->param_count);
    MlirValue *tensors =
        ARENA_NEW_ARRAY(arena, MlirValue, attention->tensor_count);
    for (size_t i = 0; i < SIZE_COUNT; i++)
        scope.sizes[i] = ir_func_arg(func, first + i);
    for (size_t i = 0; i < attention->param_count; i++)
        if (t->args.param_position[i] != SIZE_MAX)
            params[i] = ir_func_arg(func, first + t->args.param_position[i]);
    for (size_t i = 0; i < attention->tensor_count; i++)
        if (t->args.tensor_position[i] != SIZE_MAX)
            tensors[i] = ir_func_arg(func, first + t->args.tensor_position[i]);
    scope.params = params;
    scope.tensors = tensors;
    scope.lets =
        ARENA_NEW_ARRAY(arena, struct ir_lowered, attention->let_count);
    return scope;
}

/* ---- Mask and score functions -------------------------------------------- */

/* @NAME.SUFFIX(leading types, b, h, h_kv, q, kv, shared) -> result; the builder
 * goes into its body. */
static MlirOperation scalar_func(struct translation *t, const char *suffix,
                                 bool takes_score, MlirType result) {
    struct arena *arena = t->b.arena;
    MlirContext context = t->b.context;
    VEC(MlirType) types = {0};
    if (takes_score)
        vec_push(arena, &types, ir_type_f32(context));
    for (int i = 0; i < INDEX_COUNT; i++)
        vec_push(arena, &types, ir_type_i32(context));
    for (size_t i = 0; i < t->args.types.count; i++)
        vec_push(arena, &types, t->args.types.data[i]);
    at(t, t->attention->where);
    ir_at_end(&t->b, mlirModuleGetBody(t->module));
    const char *name = arena_printf(arena, "%s.%s", t->attention->name, suffix);
    MlirOperation func =
        ir_func(&t->b, name, true, types.data, types.count, &result, 1);
    ir_at_end(&t->b, ir_func_body(func));
    return func;
}

/* Names inside a mask or score function; `leading`: arguments before b. */
static struct ir_scope scalar_scope(struct translation *t, MlirOperation func,
                                    size_t leading) {
    struct ir_scope scope = scope_of(t, func, leading + INDEX_COUNT);
    for (size_t i = 0; i < INDEX_COUNT; i++)
        scope.indices[i] = ir_func_arg(func, leading + i);
    return scope;
}

static bool has_item(const struct attention *attention, enum item_kind kind) {
    for (size_t i = 0; i < attention->item_count; i++)
        if (attention->items[i].kind == kind)
            return true;
    return false;
}

/* All mask lines, and-ed from top to bottom. */
static MlirOperation build_mask(struct translation *t) {
    MlirOperation func =
        scalar_func(t, "mask", false, ir_type_i1(t->b.context));
    struct ir_scope scope = scalar_scope(t, func, 0);
    MlirValue keep = {NULL};
    for (size_t i = 0; i < t->attention->item_count; i++) {
        const struct item *item = &t->attention->items[i];
        if (item->kind != ITEM_MASK)
            continue;
        MlirValue line = ir_lower_expr(&scope, item->value).value;
        at(t, item->where);
        keep = mlirValueIsNull(keep) ? line : ir_andi(&t->b, keep, line);
    }
    ir_return(&t->b, &keep, 1);
    return func;
}

/* The score lines one after the other; a let is taken where it stands, since it
 * may use s as it is there. */
static MlirOperation build_score(struct translation *t) {
    MlirOperation func =
        scalar_func(t, "score", true, ir_type_f32(t->b.context));
    struct ir_scope scope = scalar_scope(t, func, 1);
    scope.score = (struct ir_lowered){ir_func_arg(func, 0), true};
    for (size_t i = 0; i < t->attention->item_count; i++) {
        const struct item *item = &t->attention->items[i];
        if (item->kind == ITEM_LET)
            scope.lets[item->let->number] =
                ir_lower_expr(&scope, item->let->value);
        else if (item->kind == ITEM_SCORE)
            scope.score = (struct ir_lowered){
                ir_lower_expr(&scope, item->value).value, true};
    }
    at(t, t->attention->where);
    ir_return(&t->b, &scope.score.value, 1);
    ir_erase_dead(ir_func_body(func));
    return func;
}

/* ---- The attention ------------------------------------------------------- */

/* An extent as postfix words: "kv_len", "128", "ceildiv"; "param:NAME". */
static const char **extent_words(const struct translation *t,
                                 const struct expr *extent, size_t *out_count) {
    struct arena *arena = t->b.arena;
    struct size_expr code = {0};
    bool known = ast_size_expr(arena, extent, &code);
    assert(known);
    (void)known;
    const char **words = ARENA_NEW_ARRAY(arena, const char *, code.count);
    for (size_t i = 0; i < code.count; i++) {
        const struct size_step *step = &code.steps[i];
        if (step->op == SIZE_OP_CONST)
            words[i] = arena_printf(arena, "%lld", (long long)step->value);
        else if (step->op == SIZE_OP_SIZE)
            words[i] = size_name_text((enum size_name)step->value);
        else if (step->op == SIZE_OP_PARAM)
            words[i] = arena_printf(arena, "param:%s",
                                    t->attention->params[step->value].name);
        else
            words[i] = size_op_text(step->op);
    }
    *out_count = code.count;
    return words;
}

/* What the launcher must know of each captured tensor; summaries are sized by
 * it. */
static void set_extents(struct translation *t, MlirOperation func) {
    const struct attention *attention = t->attention;
    for (size_t i = 0; i < attention->tensor_count; i++) {
        const struct tensor *tensor = &attention->tensors[i];
        const char *const *words[KERNEL_MAX_RANK];
        size_t counts[KERNEL_MAX_RANK];
        if (!tensor->used)
            continue;
        for (int axis = 0; axis < tensor->rank; axis++)
            words[axis] = extent_words(t, tensor->extents[axis], &counts[axis]);
        ir_set_extents(func, 5 + t->args.tensor_position[i], t->b.arena, words,
                       counts, tensor->rank);
    }
}

/* @NAME with all its arguments, empty. */
static MlirOperation kernel_func(struct translation *t) {
    static const char *const kinds[] = {"q", "k", "v", "o", "lse"};
    const struct attention *attention = t->attention;
    struct arena *arena = t->b.arena;
    MlirContext context = t->b.context;
    MlirType element = ir_type_of_scalar(context, attention->dtype);
    MlirType qk = ir_type_qkvo(element, attention->head_dim_qk);
    MlirType vo = ir_type_qkvo(element, attention->head_dim_v);
    const MlirType fixed[] = {qk, qk, vo, vo,
                              ir_type_tensor(ir_type_f32(context), 3)};
    VEC(MlirType) types = {0};
    for (size_t i = 0; i < 5; i++)
        vec_push(arena, &types, fixed[i]);
    for (size_t i = 0; i < t->args.types.count; i++)
        vec_push(arena, &types, t->args.types.data[i]);
    MlirOperation func = ir_func(&t->b, attention->name, false, types.data,
                                 types.count, NULL, 0);
    for (size_t i = 0; i < types.count; i++)
        ir_func_set_arg_attr(
            func, i, "attn.arg",
            ir_attr_string(context,
                           i < 5 ? kinds[i] : t->args.kinds.data[i - 5]));
    set_extents(t, func);
    return func;
}

/* The factor of q·k, over consts and params only. */
static MlirValue build_scale(struct translation *t, MlirOperation func) {
    if (!t->attention->scale)
        return ir_const_f32(
            &t->b, (float)(1.0 / sqrt((double)t->attention->head_dim_qk)));
    struct ir_scope scope = scope_of(t, func, 5);
    MlirValue scale = ir_lower_expr(&scope, t->attention->scale).value;
    at(t, t->attention->where);
    return scale;
}

MlirModule ir_from_spec(MlirContext context, struct arena *arena,
                        const struct source_set *sources,
                        const struct attention *attention) {
    struct translation t = {.sources = sources, .attention = attention};
    ir_builder_init(&t.b, context, arena);
    at(&t, attention->where);
    t.module = mlirModuleCreateEmpty(t.b.location);
    ir_at_end(&t.b, mlirModuleGetBody(t.module));
    collect_args(&t);
    MlirOperation func = kernel_func(&t);
    ir_at_end(&t.b, ir_func_body(func));
    struct ir_attention operands = {ir_func_arg(func, 0), ir_func_arg(func, 1),
                                    ir_func_arg(func, 2), ir_func_arg(func, 3),
                                    ir_func_arg(func, 4), build_scale(&t, func),
                                    attention->group};
    MlirOperation op = ir_attention(&t.b, &operands);
    ir_return(&t.b, NULL, 0);
    if (has_item(attention, ITEM_MASK))
        ir_set_attr(op, "mask",
                    ir_attr_symbol(context, ir_func_name(build_mask(&t))));
    if (has_item(attention, ITEM_SCORE))
        ir_set_attr(op, "score",
                    ir_attr_symbol(context, ir_func_name(build_score(&t))));
    return t.module;
}
