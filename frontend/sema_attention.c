/* The items of one attention, from top to bottom. */
#include <string.h>

#include "frontend/fold.h"
#include "frontend/sema.h"

static const char *const target_names[] = {"sm_80", "sm_90a", "sm_100a", NULL};
enum { TARGET_COUNT = 3 };

static const char *const warning_names[] = {
    "hides-import",
    "integer-division",
    "repeated-target",
    "score-without-s",
    "unused-param",
    "unused-tensor",
    NULL,
};

const char *const *frontend_targets(void) {
    return target_names;
}

const char *const *frontend_warnings(void) {
    return warning_names;
}

bool frontend_target_is_known(const char *name) {
    for (size_t i = 0; i < TARGET_COUNT; i++)
        if (strcmp(name, target_names[i]) == 0)
            return true;
    return false;
}

/* An attention being filled in. */
struct builder {
    struct sema *sema;
    struct module *module;
    const struct syn_decl *syntax;
    struct decl *decl;
    struct attention *out;
    struct symbols symbols;
    struct env env;
    VEC(const struct let *) lets;
    VEC(struct item) items;
    VEC(struct target_ref) targets;
    uint64_t nodes; /* of all lines so far */
    struct source_range
        first[SYN_SCHEDULE + 1]; /* of the items that come once */
};

/* ---- names --------------------------------------------------------------- */

/* Makes the symbols of all items first, so that a use above the line is known
 * as such. */
static void declare_names(struct builder *b) {
    struct arena *arena = b->sema->arena;
    size_t params = 0, tensors = 0;
    for (size_t i = 0; i < b->syntax->items.count; i++) {
        const struct syn_item *item = b->syntax->items.data[i];
        params += item->kind == SYN_PARAM;
        tensors += item->kind == SYN_TENSOR;
        if (!item->name.text || item->kind == SYN_DTYPE ||
            strmap_get(&b->symbols.map, item->name.text))
            continue;
        struct symbol *symbol = ARENA_NEW(arena, struct symbol);
        symbol->kind = item->kind == SYN_PARAM    ? SYMBOL_PARAM
                       : item->kind == SYN_TENSOR ? SYMBOL_TENSOR
                                                  : SYMBOL_LET;
        symbol->name = item->name.text;
        symbol->where = item->name.where;
        strmap_set(arena, &b->symbols.map, symbol->name, symbol);
        vec_push(arena, &b->symbols.list, symbol);
    }
    b->out->params = ARENA_NEW_ARRAY(arena, struct param, params);
    b->out->tensors = ARENA_NEW_ARRAY(arena, struct tensor, tensors);
}

/* The name may be defined: not taken, not defined before, hiding no name of
 * this file but the attention's own. */
static bool name_is_free(struct builder *b, struct syn_name name,
                         const struct symbol *symbol) {
    struct diag_sink *diags = b->sema->diags;
    const char *shown = diag_name(diags, name.text);
    if (sema_name_is_taken(name.text)) {
        diag_error(diags, name.where, "'%s' belongs to the language", shown);
        return false;
    }
    if (symbol->defined) {
        diag_error(diags, name.where, "'%s' is already defined", shown);
        diag_note(diags, symbol->where, "first defined here");
        return false;
    }
    return sema_may_hide(b->sema, b->module, name, b->decl);
}

/* Defines the item's name; NULL if it cannot be (a first definition stays). */
static struct symbol *define(struct builder *b, const struct syn_item *item) {
    struct symbol *symbol = strmap_get(&b->symbols.map, item->name.text);
    if (!name_is_free(b, item->name, symbol)) {
        symbol->poisoned |= !symbol->defined;
        symbol->defined = true;
        return NULL;
    }
    return symbol;
}

/* Makes the name known; without a value its uses stay silent. */
static void finish(struct symbol *symbol, bool good) {
    if (symbol) {
        symbol->defined = true;
        symbol->poisoned = !good;
    }
}

/* ---- dtype, head_dim, group, scale --------------------------------------- */

/* `dtype bf16;` */
static void add_dtype(struct builder *b, const struct syn_item *item) {
    static const char *const names[] = {"f16", "bf16"};
    struct diag_sink *diags = b->sema->diags;
    if (strcmp(item->name.text, "f16") == 0)
        b->out->dtype = SCALAR_F16;
    else if (strcmp(item->name.text, "bf16") == 0)
        b->out->dtype = SCALAR_BF16;
    else if (diag_closest(item->name.text, names, 2))
        diag_error(diags, item->name.where,
                   "unknown dtype '%s'; did you mean '%s'?",
                   diag_name(diags, item->name.text),
                   diag_closest(item->name.text, names, 2));
    else
        diag_error(diags, item->name.where,
                   "unknown dtype '%s'; expected f16 or bf16",
                   diag_name(diags, item->name.text));
}

/* One of the head dims; the message names the nearest legal values. */
static bool head_dim(struct builder *b, const struct syn *syntax, int *out) {
    int32_t dim;
    if (!sema_const_i32(b->sema, &b->env, syntax, "head_dim", &dim))
        return false;
    *out = dim;
    if (dim >= 8 && dim <= 256 && dim % 8 == 0)
        return true;
    int below = dim < 8 ? 8 : dim > 256 ? 256 : dim / 8 * 8;
    int above = below == 256 || dim < 8 ? below : below + 8;
    const char *nearest =
        below == above || dim > 256
            ? arena_printf(b->sema->arena, "the nearest is %d", below)
            : arena_printf(b->sema->arena, "the nearest are %d and %d", below,
                           above);
    diag_error(b->sema->diags, syntax->where,
               "head_dim must be a multiple of 8 from 8 to 256, found %d; %s",
               dim, nearest);
    return false;
}

/* `head_dim 128;` for q, k and v, or `head_dim 192, 128;` for q and k,
 * then v. */
static void add_head_dim(struct builder *b, const struct syn_item *item) {
    size_t count = item->values.exprs.count;
    if (count > 2) {
        diag_error(
            b->sema->diags, item->values.exprs.data[2]->where,
            "head_dim takes one value, or two (q and k, then v), found %zu",
            count);
        return;
    }
    head_dim(b, item->values.exprs.data[0], &b->out->head_dim_qk);
    b->out->head_dim_v = b->out->head_dim_qk;
    if (count == 2)
        head_dim(b, item->values.exprs.data[1], &b->out->head_dim_v);
}

/* `group any;` is what an attention without the line has: 0. */
static void add_group(struct builder *b, const struct syn_item *item) {
    if (item->expr->kind == SYN_NAME && strcmp(item->expr->name, "any") == 0)
        return;
    int32_t group;
    if (!sema_const_i32(b->sema, &b->env, item->expr, "group", &group))
        return;
    if (group < 1)
        diag_error(b->sema->diags, item->expr->where,
                   "group must be at least 1, or any; found %d", group);
    else
        b->out->group = group;
}

/* Adds the size of an expression to the attention's account. */
static bool account(struct builder *b, const struct expr *expr) {
    if (!expr)
        return false;
    bool over = b->nodes > AST_MAX_NODES;
    b->nodes += expr->nodes;
    if (!over && b->nodes > AST_MAX_NODES)
        diag_error(
            b->sema->diags, expr->where,
            "the attention has more than %d operations with its fns put in",
            AST_MAX_NODES);
    sema_probe_divisors(b->sema, expr);
    return b->nodes <= AST_MAX_NODES;
}

/* Words for what an expression must not depend on. */
static const char *describe_deps(uint32_t deps) {
    if (deps & DEP_S)
        return "s";
    if (deps & (DEP_B | DEP_H | DEP_H_KV | DEP_Q | DEP_KV))
        return "b, h, h_kv, q or kv";
    if (deps & DEP_TENSOR)
        return "a tensor";
    if (deps & DEP_EXTERN)
        return "an extern fn";
    return "a size";
}

/* An error unless the expression depends on nothing but `allowed`. */
static bool allow_deps(struct builder *b, const struct expr *expr,
                       uint32_t allowed, const char *what) {
    if (!expr || !(expr->deps & ~allowed))
        return expr != NULL;
    diag_error(b->sema->diags, expr->where, "%s must not depend on %s", what,
               describe_deps(expr->deps & ~allowed));
    return false;
}

/* The scale is one number a launch: consts and params only. */
static void add_scale(struct builder *b, const struct syn_item *item) {
    struct expr *scale = sema_expr(b->sema, &b->env, item->expr);
    scale = sema_convert(b->sema, scale, TYPE_F32, "scale");
    if (allow_deps(b, scale, DEP_PARAM, "scale") && account(b, scale))
        b->out->scale = scale;
}

/* ---- param, tensor, let -------------------------------------------------- */

/* A param keeps its number even where its type is wrong, so that later ones
 * are numbered as written. */
static void add_param(struct builder *b, const struct syn_item *item) {
    struct symbol *symbol = define(b, item);
    if (item->broken) {
        finish(symbol, false);
        return;
    }
    struct param param = {.name = item->name.text,
                          .where = item->name.where,
                          .number = (int)b->out->param_count};
    bool good = sema_value_type(b->sema, item->type, &param.type);
    if (item->expr) {
        struct env env = {
            .kind = ENV_CONST, .module = b->module, .symbols = &b->symbols};
        struct expr *value = sema_expr(b->sema, &env, item->expr);
        if (good)
            value = sema_convert(b->sema, value, param.type,
                                 "default of the param");
        param.has_default = value != NULL;
        param.default_bits = value ? value->bits : 0;
    }
    struct param *slot = &b->out->params[b->out->param_count++];
    *slot = param;
    if (symbol)
        symbol->param = slot;
    finish(symbol, good);
}

/* False after an error, with the nearest name. */
static bool tensor_type(struct builder *b, struct syn_name name,
                        enum scalar_type *out) {
    const char *names[SCALAR_TYPE_COUNT];
    for (int i = 0; i < SCALAR_TYPE_COUNT; i++) {
        names[i] = ast_scalar_name((enum scalar_type)i);
        if (strcmp(name.text, names[i]) == 0) {
            *out = (enum scalar_type)i;
            return true;
        }
    }
    struct diag_sink *diags = b->sema->diags;
    const char *close = diag_closest(name.text, names, SCALAR_TYPE_COUNT);
    if (close)
        diag_error(diags, name.where, "unknown type '%s'; did you mean '%s'?",
                   diag_name(diags, name.text), close);
    else
        diag_error(diags, name.where,
                   "unknown type '%s'; expected bool, i32, f32, f16 or bf16",
                   diag_name(diags, name.text));
    return false;
}

/* An extent is evaluated on the host at launch, before anything runs on the
 * device: integers of sizes, consts and params. */
static const struct expr *extent(struct builder *b, const struct syn *syntax) {
    struct expr *expr = sema_expr(b->sema, &b->env, syntax);
    expr = sema_convert(b->sema, expr, TYPE_I32, "extent of a tensor");
    struct size_expr code;
    if (!allow_deps(b, expr, DEP_SIZE | DEP_PARAM, "extent of a tensor") ||
        !account(b, expr))
        return NULL;
    if (expr->kind == EXPR_CONST && (int32_t)expr->bits < 1) {
        diag_error(b->sema->diags, syntax->where,
                   "extent of a tensor must be at least 1, found %d",
                   (int)expr->bits);
        return NULL;
    }
    if (!ast_size_expr(b->sema->arena, expr, &code)) {
        diag_error(b->sema->diags, syntax->where,
                   "extent of a tensor must use integers only, it is evaluated "
                   "at launch");
        return NULL;
    }
    return expr;
}

/* Defined even when faulty, so that uses of the name are not reported again. */
static void add_tensor(struct builder *b, const struct syn_item *item) {
    struct symbol *symbol = define(b, item);
    if (item->broken) {
        finish(symbol, false);
        return;
    }
    struct tensor tensor = {.name = item->name.text,
                            .where = item->name.where,
                            .number = (int)b->out->tensor_count};
    bool good = tensor_type(b, item->type, &tensor.type);
    tensor.value_type = ast_value_type(tensor.type);
    size_t rank = item->values.exprs.count;
    if (rank > KERNEL_MAX_RANK) {
        diag_error(b->sema->diags, item->name.where,
                   "tensor '%s' has rank %zu, the limit is %d",
                   diag_name(b->sema->diags, item->name.text), rank,
                   KERNEL_MAX_RANK);
        rank = KERNEL_MAX_RANK;
        good = false;
    }
    tensor.rank = (int)rank;
    for (size_t i = 0; i < rank; i++)
        tensor.extents[i] = extent(b, item->values.exprs.data[i]);
    struct tensor *slot = &b->out->tensors[b->out->tensor_count++];
    *slot = tensor;
    if (symbol)
        symbol->tensor = slot;
    finish(symbol, good);
}

/* Appends a line with a meaning, unless the attention became too large. */
static void add_item(struct builder *b, enum item_kind kind,
                     const struct syn_item *syntax, const struct let *let,
                     const struct expr *value) {
    if (!value || !account(b, value))
        return;
    struct item item = {kind, syntax->where, let, value};
    vec_push(b->sema->arena, &b->items, item);
}

/* A let is a value fixed where it stands; its uses share the node. */
static void add_let(struct builder *b, const struct syn_item *item) {
    struct symbol *symbol = define(b, item);
    struct expr *value =
        item->broken ? NULL : sema_expr(b->sema, &b->env, item->expr);
    enum value_type type;
    if (item->type.text)
        value = sema_value_type(b->sema, item->type, &type)
                    ? sema_convert(b->sema, value, type, "value of the let")
                    : NULL;
    finish(symbol, value != NULL);
    if (!symbol || !value)
        return;
    struct let *let = ARENA_NEW(b->sema->arena, struct let);
    *let = (struct let){item->name.text, item->name.where, value,
                        (int)b->lets.count};
    symbol->let = let;
    vec_push(b->sema->arena, &b->lets, let);
    add_item(b, ITEM_LET, item, let, value);
}

/* ---- score, mask, target ------------------------------------------------- */

static void add_score(struct builder *b, const struct syn_item *item) {
    struct expr *value = sema_expr(b->sema, &b->env, item->expr);
    value = sema_convert(b->sema, value, TYPE_F32, "score");
    if (value && !(value->deps & DEP_S))
        diag_warning(
            b->sema->diags, value->where, "score-without-s",
            "this score does not use s, so q and k have no influence on it");
    add_item(b, ITEM_SCORE, item, NULL, value);
}

static void add_mask(struct builder *b, const struct syn_item *item) {
    struct expr *value = sema_expr(b->sema, &b->env, item->expr);
    value = sema_convert(b->sema, value, TYPE_BOOL, "mask");
    if (allow_deps(b, value, ~(uint32_t)DEP_S, "mask"))
        add_item(b, ITEM_MASK, item, NULL, value);
}

/* Targets keep their order: `run` takes the first that the machine can run. */
static void add_target(struct builder *b, struct syn_name name) {
    struct diag_sink *diags = b->sema->diags;
    const char *shown = diag_name(diags, name.text);
    if (!frontend_target_is_known(name.text)) {
        const char *close = diag_closest(name.text, target_names, TARGET_COUNT);
        if (close)
            diag_error(diags, name.where,
                       "unknown target '%s'; did you mean '%s'?", shown, close);
        else
            diag_error(diags, name.where,
                       "unknown target '%s'; expected sm_80, sm_90a or sm_100a",
                       shown);
        return;
    }
    for (size_t i = 0; i < b->targets.count; i++)
        if (strcmp(b->targets.data[i].name, name.text) == 0) {
            diag_warning(diags, name.where, "repeated-target",
                         "target '%s' is named twice", shown);
            return;
        }
    vec_push(b->sema->arena, &b->targets,
             ((struct target_ref){name.text, name.where}));
}

static void add_schedule(struct builder *b, const struct syn_item *item) {
    b->out->schedule.block = item->word;
    sema_schedule(b->sema, &b->env, &item->entries, &b->out->schedule);
}

/* ---- the whole ----------------------------------------------------------- */

static bool comes_once(enum syn_item_kind kind) {
    return kind == SYN_DTYPE || kind == SYN_HEAD_DIM || kind == SYN_GROUP ||
           kind == SYN_SCALE || kind == SYN_SCHEDULE;
}

/* False with an error for a second dtype, head_dim, group, scale or
 * schedule. */
static bool is_first(struct builder *b, const struct syn_item *item) {
    struct source_range *first = &b->first[item->kind];
    if (comes_once(item->kind) && first->file) {
        const char *word = arena_strndup(
            b->sema->arena, b->module->source->text + item->word.begin,
            item->word.end - item->word.begin);
        diag_error(b->sema->diags, item->word, "'%s' is given twice", word);
        diag_note(b->sema->diags, *first, "first given here");
        return false;
    }
    *first = item->word;
    return true;
}

/* Lines in order: a name is visible from its line on. */
static void add(struct builder *b, const struct syn_item *item) {
    if (b->nodes > AST_MAX_NODES)
        return; /* reported; the rest would only cost memory */
    if (!is_first(b, item))
        return;
    switch (item->kind) {
    case SYN_DTYPE:
        add_dtype(b, item);
        break;
    case SYN_HEAD_DIM:
        add_head_dim(b, item);
        break;
    case SYN_GROUP:
        add_group(b, item);
        break;
    case SYN_SCALE:
        add_scale(b, item);
        break;
    case SYN_PARAM:
        add_param(b, item);
        break;
    case SYN_TENSOR:
        add_tensor(b, item);
        break;
    case SYN_LET:
        add_let(b, item);
        break;
    case SYN_SCORE:
        add_score(b, item);
        break;
    case SYN_MASK:
        add_mask(b, item);
        break;
    case SYN_TARGET:
        for (size_t i = 0; i < item->names.list.count; i++)
            add_target(b, item->names.list.data[i]);
        break;
    case SYN_SCHEDULE:
        add_schedule(b, item);
        break;
    }
}

/* Required items; a syntax error may have swallowed them. */
static void report_missing(struct builder *b) {
    const char *shown = b->syntax->name.text
                            ? diag_name(b->sema->diags, b->syntax->name.text)
                            : "";
    if (b->syntax->broken)
        return;
    if (!b->first[SYN_DTYPE].file)
        diag_error(b->sema->diags, b->syntax->name.where,
                   "attention '%s' has no dtype", shown);
    if (!b->first[SYN_HEAD_DIM].file)
        diag_error(b->sema->diags, b->syntax->name.where,
                   "attention '%s' has no head_dim", shown);
}

static void warn_unused(struct builder *b) {
    struct diag_sink *diags = b->sema->diags;
    for (size_t i = 0; i < b->out->param_count; i++)
        if (!b->out->params[i].used)
            diag_warning(diags, b->out->params[i].where, "unused-param",
                         "param '%s' is never used",
                         diag_name(diags, b->out->params[i].name));
    for (size_t i = 0; i < b->out->tensor_count; i++)
        if (!b->out->tensors[i].used)
            diag_warning(diags, b->out->tensors[i].where, "unused-tensor",
                         "tensor '%s' is never used",
                         diag_name(diags, b->out->tensors[i].name));
}

bool sema_attention(struct sema *sema, struct decl *decl,
                    struct attention *out) {
    size_t errors_before = diag_error_count(sema->diags);
    struct builder b = {.sema = sema,
                        .module = decl->module,
                        .syntax = decl->syntax,
                        .decl = decl,
                        .out = out};
    out->name = decl->syntax->name.text;
    out->where = decl->syntax->name.where;
    b.env = (struct env){
        .kind = ENV_ITEM, .module = decl->module, .symbols = &b.symbols};
    declare_names(&b);
    for (size_t i = 0; i < decl->syntax->items.count; i++)
        add(&b, decl->syntax->items.data[i]);
    report_missing(&b);
    out->lets = b.lets.data;
    out->let_count = b.lets.count;
    out->items = b.items.data;
    out->item_count = b.items.count;
    out->targets = b.targets.data;
    out->target_count = b.targets.count;
    out->lacks_model = b.env.lacks_model;
    for (size_t i = 0; i < b.items.count; i++)
        out->calls_extern |= (b.items.data[i].value->deps & DEP_EXTERN) != 0;
    bool good =
        diag_error_count(sema->diags) == errors_before && !decl->syntax->broken;
    if (good)
        warn_unused(&b);
    return good;
}
