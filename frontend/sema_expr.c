/* Types of expressions, conversions, and folding of constants. */
#include <string.h>

#include "frontend/fold.h"
#include "frontend/sema.h"

/* ---- conversions --------------------------------------------------------- */

/* A conversion node, folded on constants, left out where it does nothing. */
static struct expr *cast(struct sema *sema, struct expr *expr,
                         enum value_type type, struct source_range where,
                         bool implicit) {
    if (expr->type == type)
        return expr;
    if (expr->kind == EXPR_CONST)
        return sema_const(sema, type, fold_cast(expr->type, type, expr->bits),
                          where);
    struct expr proto = {.kind = EXPR_CAST, .type = type, .where = where};
    proto.implicit = implicit;
    return sema_node(sema, proto, &expr, 1);
}

/* What to write where a type does not fit. */
static const char *conversion_hint(struct sema *sema, enum value_type from,
                                   enum value_type to) {
    if (to == TYPE_BOOL && from == TYPE_I32)
        return "; compare it, for example `!= 0`";
    return arena_printf(sema->arena, "; write %s(...) to convert",
                        ast_type_name(to));
}

struct expr *sema_convert(struct sema *sema, struct expr *expr,
                          enum value_type type, const char *what) {
    if (!expr || expr->type == type)
        return expr;
    if (expr->type == TYPE_I32 && type == TYPE_F32)
        return cast(sema, expr, type, expr->where, true);
    diag_error(sema->diags, expr->where, "%s must be %s, found %s%s", what,
               ast_type_name(type), ast_type_name(expr->type),
               conversion_hint(sema, expr->type, type));
    return NULL;
}

/* Brings two numbers to one type: f32 as soon as one of them is. */
static void unify(struct sema *sema, struct expr **a, struct expr **b) {
    if ((*a)->type == (*b)->type)
        return;
    *a = cast(sema, *a, TYPE_F32, (*a)->where, true);
    *b = cast(sema, *b, TYPE_F32, (*b)->where, true);
}

static bool is_number(const struct expr *expr) {
    return expr->type != TYPE_BOOL;
}

bool sema_value_type(struct sema *sema, struct syn_name name,
                     enum value_type *out) {
    static const char *const names[] = {"bool", "i32", "f32"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name.text, names[i]) == 0) {
            *out = (enum value_type)i;
            return true;
        }
    const char *close = diag_closest(name.text, names, 3);
    if (close)
        diag_error(sema->diags, name.where,
                   "unknown type '%s'; did you mean '%s'?",
                   diag_name(sema->diags, name.text), close);
    else
        diag_error(sema->diags, name.where,
                   "unknown type '%s'; expected bool, i32 or f32",
                   diag_name(sema->diags, name.text));
    return false;
}

/* ---- operators ----------------------------------------------------------- */

static bool is_relational(enum binary_op op) {
    return op == BINARY_LT || op == BINARY_LE || op == BINARY_GT ||
           op == BINARY_GE;
}

static bool is_comparison(enum binary_op op) {
    return is_relational(op) || op == BINARY_EQ || op == BINARY_NE;
}

static bool is_bitwise(enum binary_op op) {
    return op == BINARY_AND || op == BINARY_OR || op == BINARY_XOR;
}

/* A comparison without parentheses of its own. */
static bool is_bare_comparison(const struct syn *syntax) {
    return syntax->kind == SYN_BINARY && !syntax->parenthesized &&
           is_comparison((enum binary_op)syntax->op);
}

/* Folds the operation, or builds its node. */
static struct expr *make_unary(struct sema *sema, struct env *env,
                               enum unary_op op, struct expr *a,
                               struct source_range where) {
    if (a->kind == EXPR_CONST) {
        uint32_t bits;
        if (fold_unary(op, a->type, a->bits, &bits) == FOLD_OVERFLOW &&
            !env->dead) {
            diag_error(sema->diags, where,
                       "constant expression overflows i32: -(%d)",
                       (int)a->bits);
            return NULL;
        }
        return sema_const(sema, a->type, bits, where);
    }
    struct expr proto = {.kind = EXPR_UNARY, .type = a->type, .where = where};
    proto.unary = op;
    return sema_node(sema, proto, &a, 1);
}

/* -2147483648 is legal although 2147483648 alone is not. */
static struct expr *check_unary(struct sema *sema, struct env *env,
                                const struct syn *syntax) {
    enum unary_op op = (enum unary_op)syntax->op;
    const struct syn *operand = syntax->args[0];
    bool literal = operand->kind == SYN_INT && !operand->parenthesized;
    if (op == UNARY_NEG && literal && operand->integer == (uint64_t)1 << 31)
        return sema_const(sema, TYPE_I32, 0x80000000u, syntax->where);
    struct expr *a = sema_expr(sema, env, operand);
    if (!a)
        return NULL;
    bool fits = op == UNARY_NOT
                    ? a->type == TYPE_BOOL
                    : is_number(a) && (op == UNARY_NEG || a->type == TYPE_I32);
    if (!fits) {
        const char *expected = op == UNARY_NEG   ? "i32 or f32"
                               : op == UNARY_NOT ? "bool"
                                                 : "i32";
        diag_error(
            sema->diags, a->where, "operand of '%s' must be %s, found %s%s",
            ast_unary_name(op), expected, ast_type_name(a->type),
            op == UNARY_NOT ? conversion_hint(sema, a->type, TYPE_BOOL) : "");
        return NULL;
    }
    return make_unary(sema, env, op, a, syntax->where);
}

/* Folds the operation, or builds its node.  In a dead arm a fault is no fault
 * and the node is thrown away with the arm. */
static struct expr *make_binary(struct sema *sema, struct env *env,
                                enum binary_op op, struct expr *a,
                                struct expr *b, struct source_range where) {
    enum value_type type = is_comparison(op) ? TYPE_BOOL : a->type;
    bool divides =
        (op == BINARY_DIV || op == BINARY_MOD) && a->type == TYPE_I32;
    bool zero_divisor = divides && b->kind == EXPR_CONST && b->bits == 0;
    if (zero_divisor && !env->dead) {
        diag_error(sema->diags, b->where, "division by zero");
        return NULL;
    }
    if (a->kind == EXPR_CONST && b->kind == EXPR_CONST && !zero_divisor) {
        uint32_t bits;
        if (fold_binary(op, a->type, a->bits, b->bits, &bits) ==
                FOLD_OVERFLOW &&
            !env->dead) {
            diag_error(sema->diags, where,
                       "constant expression overflows i32: %d %s %d",
                       (int)a->bits, ast_binary_name(op), (int)b->bits);
            return NULL;
        }
        return sema_const(sema, type, bits, where);
    }
    struct expr proto = {.kind = EXPR_BINARY, .type = type, .where = where};
    proto.binary = op;
    struct expr *args[] = {a, b};
    return sema_node(sema, proto, args, 2);
}

static void report_operand(struct sema *sema, enum binary_op op,
                           const struct expr *operand, const char *expected) {
    diag_error(sema->diags, operand->where,
               "operand of '%s' must be %s, found %s", ast_binary_name(op),
               expected, ast_type_name(operand->type));
}

static bool both_numbers(struct sema *sema, enum binary_op op,
                         const struct expr *a, const struct expr *b) {
    if (!is_number(a))
        report_operand(sema, op, a, "i32 or f32");
    else if (!is_number(b))
        report_operand(sema, op, b, "i32 or f32");
    return is_number(a) && is_number(b);
}

/* `0 <= x < n`: C would compare a bool with n. */
static bool reject_chain(struct sema *sema, const struct syn *syntax) {
    const struct syn *left = syntax->args[0];
    bool relational = is_relational((enum binary_op)syntax->op);
    if (left->kind != SYN_BINARY || left->parenthesized || !relational ||
        !is_relational((enum binary_op)left->op))
        return false;
    diag_error(sema->diags, syntax->where,
               "comparisons do not chain; write two of them joined by '&&'");
    return true;
}

/* `a & b == c`: C would compare first. */
static bool reject_mixture(struct sema *sema, const struct syn *syntax) {
    enum binary_op op = (enum binary_op)syntax->op;
    for (size_t i = 0; is_bitwise(op) && i < 2; i++) {
        const struct syn *side = syntax->args[i];
        if (!is_bare_comparison(side))
            continue;
        diag_error(sema->diags, side->where,
                   "'%s' mixed with '%s' needs parentheses around the part "
                   "that comes first",
                   ast_binary_name(op),
                   ast_binary_name((enum binary_op)side->op));
        return true;
    }
    return false;
}

static bool bitwise_operands(struct sema *sema, enum binary_op op,
                             const struct expr *a, const struct expr *b) {
    if (a->type == TYPE_F32)
        report_operand(sema, op, a, "i32 or bool");
    else if (b->type != a->type)
        report_operand(sema, op, b, ast_type_name(a->type));
    return a->type != TYPE_F32 && a->type == b->type;
}

static bool shift_operands(struct sema *sema, enum binary_op op,
                           const struct expr *a, const struct expr *b) {
    if (a->type != TYPE_I32)
        report_operand(sema, op, a, "i32");
    else if (b->type != TYPE_I32)
        report_operand(sema, op, b, "i32");
    return a->type == TYPE_I32 && b->type == TYPE_I32;
}

/* bool with bool, or two numbers. */
static bool equality_operands(struct sema *sema, const struct syn *syntax,
                              const struct expr *a, const struct expr *b) {
    if ((a->type == TYPE_BOOL) == (b->type == TYPE_BOOL))
        return true;
    bool chain = is_bare_comparison(syntax->args[0]);
    diag_error(
        sema->diags, syntax->where, "cannot compare %s with %s%s",
        ast_type_name(a->type), ast_type_name(b->type),
        chain ? "; comparisons do not chain, write two of them joined by '&&'"
              : "");
    return false;
}

/* Types of the operands of everything but && and ||. */
static bool operands_fit(struct sema *sema, const struct syn *syntax,
                         struct expr **a, struct expr **b) {
    enum binary_op op = (enum binary_op)syntax->op;
    if (is_bitwise(op))
        return bitwise_operands(sema, op, *a, *b);
    if (op == BINARY_SHL || op == BINARY_SHR)
        return shift_operands(sema, op, *a, *b);
    bool equality = op == BINARY_EQ || op == BINARY_NE;
    if (equality ? !equality_operands(sema, syntax, *a, *b)
                 : !both_numbers(sema, op, *a, *b))
        return false;
    unify(sema, a, b);
    return *a && *b;
}

/* 1 / 3 is 0: likely meant as a fraction. */
static void warn_lost_remainder(struct sema *sema, const struct syn *syntax) {
    const struct syn *a = syntax->args[0], *b = syntax->args[1];
    if (syntax->op != BINARY_DIV || a->kind != SYN_INT || b->kind != SYN_INT)
        return;
    if (b->integer == 0 || a->integer % b->integer == 0 ||
        b->integer > INT32_MAX || a->integer > INT32_MAX)
        return;
    diag_warning(sema->diags, syntax->where, "integer-division",
                 "integer division gives %u and drops the remainder; write "
                 "%u.0 / %u for f32",
                 (unsigned)(a->integer / b->integer), (unsigned)a->integer,
                 (unsigned)b->integer);
}

static struct expr *check_binary(struct sema *sema, struct env *env,
                                 const struct syn *syntax) {
    struct expr *a = sema_expr(sema, env, syntax->args[0]);
    struct expr *b = sema_expr(sema, env, syntax->args[1]);
    if (!a || !b || reject_chain(sema, syntax) ||
        reject_mixture(sema, syntax) || !operands_fit(sema, syntax, &a, &b))
        return NULL;
    warn_lost_remainder(sema, syntax);
    return make_binary(sema, env, (enum binary_op)syntax->op, a, b,
                       syntax->where);
}

/* ---- && || ?: ------------------------------------------------------------ */

static struct expr *check_bool(struct sema *sema, struct env *env,
                               const struct syn *syntax, const char *what) {
    return sema_convert(sema, sema_expr(sema, env, syntax), TYPE_BOOL, what);
}

static bool is_const_bool(const struct expr *expr, bool value) {
    return expr && expr->kind == EXPR_CONST && expr->bits == value;
}

/* A constant that settles the result makes the other side dead. */
static struct expr *check_logic(struct sema *sema, struct env *env,
                                const struct syn *syntax) {
    enum binary_op op = (enum binary_op)syntax->op;
    const char *what =
        op == BINARY_AND_THEN ? "operand of '&&'" : "operand of '||'";
    bool decides = op == BINARY_OR_ELSE; /* the value that settles the result */
    struct expr *a = check_bool(sema, env, syntax->args[0], what);
    bool dead = is_const_bool(a, decides);
    env->dead += dead;
    struct expr *b = check_bool(sema, env, syntax->args[1], what);
    env->dead -= dead;
    if (!a || !b)
        return NULL;
    if (dead || is_const_bool(b, decides))
        return sema_const(sema, TYPE_BOOL, decides, syntax->where);
    if (is_const_bool(a, !decides))
        return b;
    if (is_const_bool(b, !decides))
        return a;
    struct expr proto = {
        .kind = EXPR_BINARY, .type = TYPE_BOOL, .where = syntax->where};
    proto.binary = op;
    struct expr *args[] = {a, b};
    return sema_node(sema, proto, args, 2);
}

/* Arms of one type, or i32 and f32 as f32. */
static bool unify_arms(struct sema *sema, struct source_range where,
                       struct expr **a, struct expr **b) {
    if ((*a)->type != (*b)->type && (!is_number(*a) || !is_number(*b))) {
        diag_error(sema->diags, where,
                   "the two values are %s and %s, which do not mix",
                   ast_type_name((*a)->type), ast_type_name((*b)->type));
        return false;
    }
    unify(sema, a, b);
    return *a && *b;
}

/* c ? a : b, written that way or as select(c, a, b). */
static struct expr *check_select(struct sema *sema, struct env *env,
                                 const struct syn *syntax) {
    struct expr *c = check_bool(sema, env, syntax->args[0], "condition");
    unsigned dead_a = is_const_bool(c, false), dead_b = is_const_bool(c, true);
    env->dead += dead_a;
    struct expr *a = sema_expr(sema, env, syntax->args[1]);
    env->dead += dead_b - dead_a;
    struct expr *b = sema_expr(sema, env, syntax->args[2]);
    env->dead -= dead_b;
    if (!c || !a || !b || !unify_arms(sema, syntax->where, &a, &b))
        return NULL;
    if (dead_a)
        return b;
    if (dead_b)
        return a;
    struct expr proto = {
        .kind = EXPR_SELECT, .type = a->type, .where = syntax->where};
    struct expr *args[] = {c, a, b};
    return sema_node(sema, proto, args, 3);
}

/* ---- calls and reads ----------------------------------------------------- */

/* Checks all arguments, so that each fault is reported; false if one is
 * wrong. */
static bool check_args(struct sema *sema, struct env *env,
                       const struct syn *syntax, struct expr **args) {
    bool good = true;
    for (size_t i = 0; i < syntax->arg_count; i++) {
        args[i] = sema_expr(sema, env, syntax->args[i]);
        good &= args[i] != NULL;
    }
    return good;
}

static bool count_fits(struct sema *sema, const struct syn *syntax,
                       size_t expected) {
    if (syntax->arg_count == expected)
        return true;
    diag_error(sema->diags, syntax->where,
               "'%s' takes %zu argument%s, found %zu",
               diag_name(sema->diags, syntax->name), expected,
               expected == 1 ? "" : "s", syntax->arg_count);
    return false;
}

static struct expr *check_cast(struct sema *sema, struct env *env,
                               const struct syn *syntax, enum value_type type) {
    struct expr *arg = NULL;
    if (!count_fits(sema, syntax, 1) || !check_args(sema, env, syntax, &arg))
        return NULL;
    return cast(sema, arg, type, syntax->where, false);
}

struct builtin_row {
    enum builtin id;
    const char *name;
    size_t args;
    bool keeps_i32;
};

enum { RULE_KEEP = true, RULE_FLOAT = false };

static const struct builtin_row builtins[] = {
#define B(id, name, args, rule) {BUILTIN_##id, name, args, RULE_##rule},
    AST_BUILTINS(B)
#undef B
};

static const struct builtin_row *find_builtin(const char *name) {
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (strcmp(builtins[i].name, name) == 0)
            return &builtins[i];
    return NULL;
}

/* Constant arguments fold at once; overflow in code that is never reached is no
 * error. */
static struct expr *make_builtin(struct sema *sema, struct env *env,
                                 enum builtin builtin, struct expr *const *args,
                                 size_t count, struct source_range where) {
    uint32_t values[3], bits;
    bool constant = true;
    for (size_t i = 0; i < count; i++) {
        constant &= args[i]->kind == EXPR_CONST;
        values[i] = args[i]->bits;
    }
    if (constant) {
        if (fold_builtin(builtin, args[0]->type, values, &bits) ==
                FOLD_OVERFLOW &&
            !env->dead) {
            diag_error(sema->diags, where,
                       "constant expression overflows i32: %s(%d)",
                       ast_builtin_name(builtin), (int)values[0]);
            return NULL;
        }
        return sema_const(sema, args[0]->type, bits, where);
    }
    struct expr proto = {
        .kind = EXPR_BUILTIN, .type = args[0]->type, .where = where};
    proto.builtin = builtin;
    return sema_node(sema, proto, args, count);
}

/* KEEP functions stay i32 on i32 arguments; all others compute in f32. */
static struct expr *check_builtin(struct sema *sema, struct env *env,
                                  const struct syn *syntax,
                                  const struct builtin_row *row) {
    struct expr *args[3];
    if (!count_fits(sema, syntax, row->args) ||
        !check_args(sema, env, syntax, args))
        return NULL;
    enum value_type type = row->keeps_i32 ? TYPE_I32 : TYPE_F32;
    for (size_t i = 0; i < row->args; i++) {
        if (!is_number(args[i])) {
            diag_error(sema->diags, args[i]->where,
                       "argument %zu of '%s' must be i32 or f32, found bool",
                       i + 1, row->name);
            return NULL;
        }
        if (args[i]->type == TYPE_F32)
            type = TYPE_F32;
    }
    for (size_t i = 0; i < row->args; i++) {
        args[i] = cast(sema, args[i], type, args[i]->where, true);
        if (!args[i])
            return NULL;
    }
    return make_builtin(sema, env, row->id, args, row->args, syntax->where);
}

/* Arguments are checked even where the fn is unknown: their faults count
 * too. */
static struct expr *check_fn_call(struct sema *sema, struct env *env,
                                  const struct syn *syntax) {
    const struct fn *fn = sema_callee(sema, env, syntax);
    struct expr **args =
        ARENA_NEW_ARRAY(sema->arena, struct expr *, syntax->arg_count);
    if (fn && !count_fits(sema, syntax, fn->param_count))
        return NULL;
    if (!check_args(sema, env, syntax, args) || !fn)
        return NULL;
    for (size_t i = 0; i < fn->param_count; i++) {
        const char *what =
            arena_printf(sema->arena, "argument %zu ('%s') of '%s'", i + 1,
                         diag_name(sema->diags, fn->params[i].name),
                         diag_name(sema->diags, fn->name));
        args[i] = sema_convert(sema, args[i], fn->params[i].type, what);
        if (!args[i])
            return NULL;
    }
    env->lacks_model |= fn->lacks_model;
    struct expr proto = {
        .kind = EXPR_CALL, .type = fn->type, .where = syntax->where};
    proto.fn = fn;
    return sema_node(sema, proto, args, fn->param_count);
}

/* Casts and select look like calls; a fn cannot have their names. */
static struct expr *check_call(struct sema *sema, struct env *env,
                               const struct syn *syntax) {
    if (strcmp(syntax->name, "bool") == 0)
        return check_cast(sema, env, syntax, TYPE_BOOL);
    if (strcmp(syntax->name, "i32") == 0)
        return check_cast(sema, env, syntax, TYPE_I32);
    if (strcmp(syntax->name, "f32") == 0)
        return check_cast(sema, env, syntax, TYPE_F32);
    if (strcmp(syntax->name, "select") == 0)
        return count_fits(sema, syntax, 3) ? check_select(sema, env, syntax)
                                           : NULL;
    const struct builtin_row *row = find_builtin(syntax->name);
    return row ? check_builtin(sema, env, syntax, row)
               : check_fn_call(sema, env, syntax);
}

/* tensor[i, j]: one i32 index for each axis. */
static struct expr *check_read(struct sema *sema, struct env *env,
                               const struct syn *syntax) {
    const struct tensor *tensor = sema_tensor(sema, env, syntax);
    struct expr **args =
        ARENA_NEW_ARRAY(sema->arena, struct expr *, syntax->arg_count);
    if (!check_args(sema, env, syntax, args) || !tensor)
        return NULL;
    if (syntax->arg_count != (size_t)tensor->rank) {
        diag_error(sema->diags, syntax->where,
                   "tensor '%s' needs %d %s, found %zu",
                   diag_name(sema->diags, tensor->name), tensor->rank,
                   tensor->rank == 1 ? "index" : "indices", syntax->arg_count);
        diag_note(sema->diags, tensor->where, "it is declared here");
        return NULL;
    }
    for (size_t i = 0; i < syntax->arg_count; i++)
        if (!sema_convert(sema, args[i], TYPE_I32, "index of a tensor"))
            return NULL;
    struct expr proto = {
        .kind = EXPR_READ, .type = tensor->value_type, .where = syntax->where};
    proto.tensor = tensor;
    proto.deps = DEP_TENSOR;
    return sema_node(sema, proto, args, syntax->arg_count);
}

/* ---- entry points -------------------------------------------------------- */

/* -2147483648 is a negation of a literal that does not fit; unary minus sees it
 * before this does. */
static struct expr *check_literal(struct sema *sema, const struct syn *syntax) {
    if (syntax->kind == SYN_FLOAT)
        return sema_const(sema, TYPE_F32, syntax->bits, syntax->where);
    if (syntax->kind == SYN_INT && syntax->integer > INT32_MAX) {
        diag_error(sema->diags, syntax->head,
                   "integer does not fit in i32; the range is -2147483648 to "
                   "2147483647");
        return NULL;
    }
    return sema_const(sema, TYPE_I32, (uint32_t)syntax->integer, syntax->where);
}

/* One function for each kind of syntax; NULL after an error. */
static struct expr *check_kind(struct sema *sema, struct env *env,
                               const struct syn *syntax) {
    switch ((enum syn_kind)syntax->kind) {
    case SYN_ERROR:
        return NULL;
    case SYN_INT:
    case SYN_HEX:
    case SYN_FLOAT:
        return check_literal(sema, syntax);
    case SYN_NAME:
        return sema_name(sema, env, syntax);
    case SYN_UNARY:
        return check_unary(sema, env, syntax);
    case SYN_BINARY:
        if (syntax->op == BINARY_AND_THEN || syntax->op == BINARY_OR_ELSE)
            return check_logic(sema, env, syntax);
        return check_binary(sema, env, syntax);
    case SYN_SELECT:
        return check_select(sema, env, syntax);
    case SYN_CALL:
        return check_call(sema, env, syntax);
    case SYN_INDEX:
        return check_read(sema, env, syntax);
    }
    return NULL;
}

struct expr *sema_expr(struct sema *sema, struct env *env,
                       const struct syn *syntax) {
    if (sema->recursion >= 2 * AST_MAX_DEPTH) {
        diag_error(sema->diags, syntax->where,
                   "definitions that use each other are nested too deeply");
        return NULL;
    }
    sema->recursion++;
    struct expr *expr = check_kind(sema, env, syntax);
    sema->recursion--;
    return expr;
}

bool sema_const_i32(struct sema *sema, struct env *env,
                    const struct syn *syntax, const char *what, int32_t *out) {
    struct env constant = {
        .kind = ENV_CONST, .module = env->module, .symbols = env->symbols};
    struct expr *expr = sema_expr(sema, &constant, syntax);
    expr = sema_convert(sema, expr, TYPE_I32, what);
    if (!expr)
        return false;
    *out = (int32_t)expr->bits;
    return true;
}
