/* What a name stands for, and what was probably meant where it stands for
 * nothing. */
#include <string.h>

#include "frontend/sema.h"

static const char *const kept_words[] = {
    "b",     "h",        "h_kv",  "q",      "kv",   "s",    "batch",
    "heads", "kv_heads", "q_len", "kv_len", "inf",  "true", "false",
    "bool",  "i32",      "f32",   "f16",    "bf16", "e4m3",
};

bool sema_name_is_taken(const char *name) {
    for (size_t i = 0; i < sizeof kept_words / sizeof *kept_words; i++)
        if (strcmp(name, kept_words[i]) == 0)
            return true;
    return false;
}

/* ---- suggestions --------------------------------------------------------- */

struct candidates {
    VEC(const char *) names;
};

enum wanted { WANT_VALUE, WANT_CALL };

/* More definitions than this are not searched for a suggestion. */
enum { CANDIDATES_MAX = 4000 };

static void add_builtins(struct sema *sema, struct candidates *all) {
    for (int i = 0; i < BUILTIN_COUNT; i++)
        vec_push(sema->arena, &all->names, ast_builtin_name((enum builtin)i));
    vec_push(sema->arena, &all->names, "select");
    vec_push(sema->arena, &all->names, "i32");
    vec_push(sema->arena, &all->names, "f32");
    vec_push(sema->arena, &all->names, "bool");
}

static void add_language_names(struct sema *sema, struct candidates *all) {
    vec_push(sema->arena, &all->names, "true");
    vec_push(sema->arena, &all->names, "false");
    for (int i = 0; i < INDEX_COUNT; i++)
        vec_push(sema->arena, &all->names, ast_index_name((enum index_name)i));
    for (int i = 0; i < SIZE_COUNT; i++)
        vec_push(sema->arena, &all->names, ast_size_name((enum size_name)i));
}

/* The visible name that is closest to an unknown one. */
static const char *suggestion(struct sema *sema, const struct env *env,
                              const char *name, enum wanted wanted) {
    if (diag_is_full(sema->diags))
        return NULL;
    struct candidates all = {0};
    for (size_t i = 0; env->fn && i < env->fn->param_count; i++)
        vec_push(sema->arena, &all.names, env->fn->params[i].name);
    for (size_t i = 0;
         env->kind == ENV_ITEM && env->symbols && i < env->symbols->list.count;
         i++)
        if (env->symbols->list.data[i]->defined)
            vec_push(sema->arena, &all.names, env->symbols->list.data[i]->name);
    for (size_t i = 0;
         i < env->module->seen.count && all.names.count < CANDIDATES_MAX; i++) {
        const struct decl *decl = env->module->seen.data[i];
        bool value = decl->syntax->kind == SYN_CONST;
        bool callable =
            decl->syntax->kind == SYN_FN || decl->syntax->kind == SYN_EXTERN;
        if (wanted == WANT_VALUE ? value : callable)
            vec_push(sema->arena, &all.names, decl->syntax->name.text);
    }
    if (wanted == WANT_CALL)
        add_builtins(sema, &all);
    else if (env->kind == ENV_ITEM)
        add_language_names(sema, &all);
    return diag_closest(name, all.names.data, all.names.count);
}

static void report_unknown(struct sema *sema, const struct env *env,
                           const struct syn *syntax, const char *what,
                           enum wanted wanted) {
    const char *close = suggestion(sema, env, syntax->name, wanted);
    const char *shown = diag_name(sema->diags, syntax->name);
    if (close)
        diag_error(sema->diags, syntax->head,
                   "unknown %s '%s'; did you mean '%s'?", what, shown, close);
    else
        diag_error(sema->diags, syntax->head, "unknown %s '%s'", what, shown);
}

/* ---- names of the language ----------------------------------------------- */

static struct expr *literal_name(struct sema *sema, const struct syn *syntax) {
    if (strcmp(syntax->name, "true") == 0)
        return sema_const(sema, TYPE_BOOL, 1, syntax->where);
    if (strcmp(syntax->name, "false") == 0)
        return sema_const(sema, TYPE_BOOL, 0, syntax->where);
    if (strcmp(syntax->name, "inf") == 0)
        return sema_const(sema, TYPE_F32, 0x7f800000u, syntax->where);
    return NULL;
}

/* q, kv_len, s and the like; NULL if the name is none of them. */
static struct expr *language_name(struct sema *sema, const struct syn *syntax) {
    for (int i = 0; i < INDEX_COUNT; i++)
        if (strcmp(syntax->name, ast_index_name((enum index_name)i)) == 0) {
            struct expr *expr =
                sema_leaf(sema, EXPR_INDEX, TYPE_I32, syntax->where);
            expr->index = (enum index_name)i;
            expr->deps = 1u << i;
            return expr;
        }
    for (int i = 0; i < SIZE_COUNT; i++)
        if (strcmp(syntax->name, ast_size_name((enum size_name)i)) == 0) {
            struct expr *expr =
                sema_leaf(sema, EXPR_SIZE, TYPE_I32, syntax->where);
            expr->size = (enum size_name)i;
            expr->deps = DEP_SIZE;
            return expr;
        }
    if (strcmp(syntax->name, "s") != 0)
        return NULL;
    struct expr *score = sema_leaf(sema, EXPR_SCORE, TYPE_F32, syntax->where);
    score->deps = DEP_S;
    return score;
}

static struct expr *fn_param(struct sema *sema, const struct env *env,
                             const struct syn *syntax) {
    for (size_t i = 0; env->fn && i < env->fn->param_count; i++) {
        if (strcmp(env->fn->params[i].name, syntax->name) != 0)
            continue;
        struct expr *expr = sema_leaf(sema, EXPR_FN_PARAM,
                                      env->fn->params[i].type, syntax->where);
        expr->fn_param = (int)i;
        expr->deps = DEP_FN_PARAM;
        return expr;
    }
    return NULL;
}

/* ---- items --------------------------------------------------------------- */

static struct symbol *find_symbol(const struct env *env, const char *name) {
    return env->symbols ? strmap_get(&env->symbols->map, name) : NULL;
}

static const char *symbol_word(const struct symbol *symbol) {
    switch (symbol->kind) {
    case SYMBOL_PARAM:
        return "param";
    case SYMBOL_TENSOR:
        return "tensor";
    case SYMBOL_LET:
        return "let";
    }
    return "";
}

/* The symbol may be used here: in an item, below its line, not broken. */
static bool symbol_usable(struct sema *sema, const struct env *env,
                          const struct syn *syntax,
                          const struct symbol *symbol) {
    const char *shown = diag_name(sema->diags, syntax->name);
    if (env->kind == ENV_CONST) {
        diag_error(sema->diags, syntax->head,
                   "'%s' is a %s; a constant expression may use consts and "
                   "built-ins only",
                   shown, symbol_word(symbol));
        return false;
    }
    if (!symbol->defined) {
        diag_error(sema->diags, syntax->head, "'%s' is used above its line",
                   shown);
        diag_note(sema->diags, symbol->where, "'%s' is defined here", shown);
        return false;
    }
    return !symbol->poisoned;
}

/* A reference to a let; constants are put in. */
static struct expr *let_value(struct sema *sema, const struct syn *syntax,
                              const struct let *let) {
    if (let->value->kind == EXPR_CONST)
        return sema_const(sema, let->value->type, let->value->bits,
                          syntax->where);
    struct expr *expr =
        sema_leaf(sema, EXPR_LET, let->value->type, syntax->where);
    expr->let = let;
    expr->deps = let->value->deps;
    expr->depth = let->value->depth + 1;
    if (expr->depth <= AST_MAX_DEPTH)
        return expr;
    diag_error(sema->diags, syntax->where,
               "expression is %u operations deep with its lets and fns, the "
               "limit is %d",
               expr->depth, AST_MAX_DEPTH);
    return NULL;
}

/* A param, tensor or let of the attention around. */
static struct expr *symbol_value(struct sema *sema, const struct env *env,
                                 const struct syn *syntax,
                                 struct symbol *symbol) {
    if (!symbol_usable(sema, env, syntax, symbol))
        return NULL;
    if (symbol->kind == SYMBOL_LET)
        return let_value(sema, syntax, symbol->let);
    if (symbol->kind == SYMBOL_TENSOR) {
        symbol->tensor->used = true;
        diag_error(sema->diags, syntax->where,
                   "tensor '%s' needs %d %s in brackets",
                   diag_name(sema->diags, syntax->name), symbol->tensor->rank,
                   symbol->tensor->rank == 1 ? "index" : "indices");
        return NULL;
    }
    symbol->param->used = true;
    struct expr *expr =
        sema_leaf(sema, EXPR_PARAM, symbol->param->type, syntax->where);
    expr->param = symbol->param;
    expr->deps = DEP_PARAM;
    return expr;
}

/* ---- definitions at top level -------------------------------------------- */

/* A const has a value; everything else at top level is named for something
 * else. */
static struct expr *decl_value(struct sema *sema, struct decl *decl,
                               const struct syn *syntax) {
    const char *shown = diag_name(sema->diags, syntax->name);
    switch (decl->syntax->kind) {
    case SYN_CONST:
        if (!sema_resolve(sema, decl, syntax->where))
            return NULL;
        return sema_const(sema, decl->constant->type, decl->constant->bits,
                          syntax->where);
    case SYN_FN:
    case SYN_EXTERN:
        diag_error(sema->diags, syntax->where,
                   "'%s' is a fn; call it with arguments", shown);
        return NULL;
    case SYN_ATTENTION:
        diag_error(sema->diags, syntax->where,
                   "'%s' is an attention, not a value", shown);
        return NULL;
    case SYN_IMPORT:
        break;
    }
    return NULL;
}

bool sema_is_builtin(const char *name) {
    for (int i = 0; i < BUILTIN_COUNT; i++)
        if (strcmp(name, ast_builtin_name((enum builtin)i)) == 0)
            return true;
    return strcmp(name, "select") == 0;
}

/* A name of the language where it has no value. */
static void report_no_value(struct sema *sema, const struct env *env,
                            const struct syn *syntax) {
    if (env->kind == ENV_FN)
        diag_error(sema->diags, syntax->where,
                   "a fn does not see '%s'; pass it as an argument",
                   syntax->name);
    else
        diag_error(sema->diags, syntax->where,
                   "'%s' is not constant; a constant expression may use consts "
                   "and built-ins only",
                   syntax->name);
}

struct expr *sema_name(struct sema *sema, struct env *env,
                       const struct syn *syntax) {
    struct expr *expr = fn_param(sema, env, syntax);
    if (!expr)
        expr = literal_name(sema, syntax);
    if (expr)
        return expr;
    expr = language_name(sema, syntax);
    if (expr && env->kind == ENV_ITEM)
        return expr;
    if (expr) {
        report_no_value(sema, env, syntax);
        return NULL;
    }
    struct symbol *symbol = find_symbol(env, syntax->name);
    if (symbol)
        return symbol_value(sema, env, syntax, symbol);
    struct decl *decl = strmap_get(&env->module->visible, syntax->name);
    if (decl)
        return decl_value(sema, decl, syntax);
    if (sema_is_builtin(syntax->name))
        diag_error(sema->diags, syntax->where,
                   "'%s' is a built-in function; call it with "
                   "arguments",
                   syntax->name);
    else
        report_unknown(sema, env, syntax, "name", WANT_VALUE);
    return NULL;
}

const struct tensor *sema_tensor(struct sema *sema, struct env *env,
                                 const struct syn *syntax) {
    struct symbol *symbol = find_symbol(env, syntax->name);
    const char *shown = diag_name(sema->diags, syntax->name);
    if (symbol && symbol->kind == SYMBOL_TENSOR) {
        if (!symbol_usable(sema, env, syntax, symbol))
            return NULL;
        symbol->tensor->used = true;
        return symbol->tensor;
    }
    if (symbol || sema_name_is_taken(syntax->name) ||
        sema_is_builtin(syntax->name) ||
        strmap_get(&env->module->visible, syntax->name) ||
        fn_param(sema, env, syntax)) {
        if (!symbol || symbol_usable(sema, env, syntax, symbol))
            diag_error(sema->diags, syntax->head, "'%s' is not a tensor",
                       shown);
        return NULL;
    }
    report_unknown(sema, env, syntax, "tensor", WANT_VALUE);
    return NULL;
}

/* The fn of a definition, if it is one and may be called here. */
static const struct fn *decl_callee(struct sema *sema, struct env *env,
                                    const struct syn *syntax,
                                    struct decl *decl) {
    enum syn_decl_kind kind = decl->syntax->kind;
    const char *shown = diag_name(sema->diags, syntax->name);
    if (kind != SYN_FN && kind != SYN_EXTERN) {
        diag_error(sema->diags, syntax->head, "'%s' is %s, not a fn", shown,
                   kind == SYN_CONST ? "a const" : "an attention");
        diag_note(sema->diags, decl->syntax->name.where, "'%s' is defined here",
                  shown);
        return NULL;
    }
    if (env->kind == ENV_CONST) {
        diag_error(sema->diags, syntax->head,
                   "'%s' is a fn; a constant expression may use consts and "
                   "built-ins only",
                   shown);
        return NULL;
    }
    return sema_resolve(sema, decl, syntax->head) ? decl->fn : NULL;
}

const struct fn *sema_callee(struct sema *sema, struct env *env,
                             const struct syn *syntax) {
    struct decl *decl = strmap_get(&env->module->visible, syntax->name);
    struct symbol *symbol = find_symbol(env, syntax->name);
    const char *shown = diag_name(sema->diags, syntax->name);
    if (symbol && symbol->kind == SYMBOL_TENSOR) {
        diag_error(sema->diags, syntax->head,
                   "'%s' is a tensor; write its indices in [ ]", shown);
        return NULL;
    }
    if (symbol || fn_param(sema, env, syntax) ||
        (!decl && sema_name_is_taken(syntax->name))) {
        diag_error(sema->diags, syntax->head, "'%s' is not a fn", shown);
        return NULL;
    }
    if (decl)
        return decl_callee(sema, env, syntax, decl);
    report_unknown(sema, env, syntax, "fn", WANT_CALL);
    return NULL;
}
