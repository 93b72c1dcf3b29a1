/* Expressions of the language as scalar ops: see from_expr.h.
 *
 * Both arms of a condition and both sides of && and || are computed: nothing
 * here traps, and attn.read clamps its indices, so a read that the language
 * says is never performed is at worst a read of another element whose value is
 * dropped. Numbers are those of language.md: i32 wraps, division floors, f32 is
 * evaluated as written unless it depends on s.  arith.fptosi saturates and maps
 * NaN to 0, as the hardware's conversion does; math.powf is C's powf. */
#include "ir/from_expr.h"

#include <assert.h>
#include <string.h>

#include "ir/walk.h"

/* A value that does not depend on s. */
static struct ir_lowered leaf(MlirValue value) {
    assert(!mlirValueIsNull(value));
    return (struct ir_lowered){value, false};
}

/* What bool(x) compares with. */
static MlirValue zero_of(struct ir_builder *b, enum value_type type) {
    return type == TYPE_F32 ? ir_const_f32(b, 0) : ir_const_i32(b, 0);
}

static MlirValue lower_const(struct ir_builder *b, const struct expr *expr) {
    switch (expr->type) {
    case TYPE_BOOL:
        return ir_const_bool(b, ast_const_bool(expr));
    case TYPE_I32:
        return ir_const_i32(b, ast_const_i32(expr));
    case TYPE_F32:
        return ir_const_f32(b, ast_const_f32(expr));
    }
    assert(!"unknown type");
    return (MlirValue){NULL};
}

/* ---- Operators ----------------------------------------------------------- */

static MlirValue lower_unary(struct ir_builder *b, const struct expr *expr,
                             MlirValue x) {
    switch (expr->unary) {
    case UNARY_NEG:
        return expr->type == TYPE_F32 ? ir_negf(b, x)
                                      : ir_subi(b, ir_const_i32(b, 0), x);
    case UNARY_NOT:
        return ir_not(b, x);
    case UNARY_BIT_NOT:
        return ir_xori(b, x, ir_const_i32(b, -1));
    }
    assert(!"unknown operator");
    return x;
}

/* log2 of a constant power of two, -1 for anything else. */
static int power_of_two(MlirValue value) {
    int64_t n;
    if (!ir_constant_int(value, &n) || n <= 0 || (n & (n - 1)) != 0)
        return -1;
    return __builtin_ctzll((unsigned long long)n);
}

/* Floor division: a shift rounds toward minus infinity by itself. */
static MlirValue lower_div(struct ir_builder *b, MlirValue x, MlirValue y) {
    int shift = power_of_two(y);
    if (shift == 0)
        return x;
    return shift > 0 ? ir_shrsi(b, x, ir_const_i32(b, shift))
                     : ir_floordivsi(b, x, y);
}

/* x - y*floor(x/y), which has y's sign. */
static MlirValue lower_mod(struct ir_builder *b, MlirValue x, MlirValue y) {
    int shift = power_of_two(y);
    if (shift >= 0)
        return ir_andi(b, x, ir_const_i32(b, (int32_t)((1u << shift) - 1)));
    return ir_subi(b, x, ir_muli(b, ir_floordivsi(b, x, y), y));
}

/* x - y*floor(x/y) on f32, rounded at each step as the reference does. */
static MlirValue lower_fmod(struct ir_builder *b, MlirValue x, MlirValue y) {
    return ir_subf(b, x, ir_mulf(b, y, ir_floor(b, ir_divf(b, x, y))));
}

/* Shift counts are taken modulo 32. */
static MlirValue shift_count(struct ir_builder *b, MlirValue count) {
    int64_t n;
    if (ir_constant_int(count, &n))
        return ir_const_i32(b, (int32_t)(n & 31));
    return ir_andi(b, count, ir_const_i32(b, 31));
}

/* Operators that are no comparisons.  && and || compute both sides. */
static MlirValue lower_arithmetic(struct ir_builder *b, enum binary_op op,
                                  bool is_float, MlirValue x, MlirValue y) {
    switch ((int)op) {
    case BINARY_ADD:
        return is_float ? ir_addf(b, x, y) : ir_addi(b, x, y);
    case BINARY_SUB:
        return is_float ? ir_subf(b, x, y) : ir_subi(b, x, y);
    case BINARY_MUL:
        return is_float ? ir_mulf(b, x, y) : ir_muli(b, x, y);
    case BINARY_DIV:
        return is_float ? ir_divf(b, x, y) : lower_div(b, x, y);
    case BINARY_MOD:
        return is_float ? lower_fmod(b, x, y) : lower_mod(b, x, y);
    case BINARY_AND:
    case BINARY_AND_THEN:
        return ir_andi(b, x, y);
    case BINARY_OR:
    case BINARY_OR_ELSE:
        return ir_ori(b, x, y);
    case BINARY_XOR:
        return ir_xori(b, x, y);
    case BINARY_SHL:
        return ir_shli(b, x, shift_count(b, y));
    case BINARY_SHR:
        return ir_shrsi(b, x, shift_count(b, y));
    default:
        break;
    }
    assert(!"unknown operator");
    return x;
}

/* Comparisons of f32 are false for NaN, but for != . */
static MlirValue lower_binary(struct ir_builder *b, const struct expr *expr,
                              MlirValue x, MlirValue y) {
    static const struct {
        bool is_comparison;
        enum ir_cmpi whole;
        enum ir_cmpf real;
    } comparisons[BINARY_OR_ELSE + 1] = {
        [BINARY_LT] = {true, IR_SLT, IR_OLT},
        [BINARY_LE] = {true, IR_SLE, IR_OLE},
        [BINARY_GT] = {true, IR_SGT, IR_OGT},
        [BINARY_GE] = {true, IR_SGE, IR_OGE},
        [BINARY_EQ] = {true, IR_EQ, IR_OEQ},
        [BINARY_NE] = {true, IR_NE, IR_UNE},
    };
    bool is_float = expr->args[0]->type == TYPE_F32;
    if (!comparisons[expr->binary].is_comparison)
        return lower_arithmetic(b, expr->binary, is_float, x, y);
    return is_float ? ir_cmpf(b, comparisons[expr->binary].real, x, y)
                    : ir_cmpi(b, comparisons[expr->binary].whole, x, y);
}

/* Implicit and written conversions alike. */
static MlirValue lower_cast(struct ir_builder *b, enum value_type from,
                            enum value_type to, MlirValue x) {
    MlirType f32 = ir_type_f32(b->context), i32 = ir_type_i32(b->context);
    if (from == to)
        return x;
    switch (to) {
    case TYPE_BOOL: /* NaN is not 0 */
        return from == TYPE_F32 ? ir_cmpf(b, IR_UNE, x, zero_of(b, from))
                                : ir_cmpi(b, IR_NE, x, zero_of(b, from));
    case TYPE_I32:
        return from == TYPE_F32 ? ir_fptosi(b, x, i32) : ir_extui(b, x, i32);
    case TYPE_F32:
        return from == TYPE_I32 ? ir_sitofp(b, x, f32) : ir_uitofp(b, x, f32);
    }
    assert(!"unknown type");
    return x;
}

/* ---- Built-ins ----------------------------------------------------------- */

/* 1 / (1 + exp(-x)): exp overflows to inf, which gives 0. */
static MlirValue lower_sigmoid(struct ir_builder *b, MlirValue x) {
    MlirValue one = ir_const_f32(b, 1);
    return ir_divf(b, one, ir_addf(b, one, ir_exp(b, ir_negf(b, x))));
}

/* x^n for a constant whole n, 0 < n <= 16, by squaring: at most 8 roundings. */
static MlirValue whole_power(struct ir_builder *b, MlirValue x, int n) {
    MlirValue result = {NULL};
    for (MlirValue square = x;; square = ir_mulf(b, square, square)) {
        if (n & 1)
            result =
                mlirValueIsNull(result) ? square : ir_mulf(b, result, square);
        n >>= 1;
        if (n == 0)
            return result;
    }
}

/* Small whole exponents as products, which are exact where powf is. */
static MlirValue lower_pow(struct ir_builder *b, MlirValue x, MlirValue y) {
    double n;
    if (ir_constant_float(y, &n) && n >= 1 && n <= 16 && n == (int)n)
        return whole_power(b, x, (int)n);
    return ir_powf(b, x, y);
}

static MlirValue lower_builtin(struct ir_builder *b, const struct expr *expr,
                               const MlirValue *args) {
    MlirValue x = args[0];
    bool is_float = expr->type == TYPE_F32;
    switch (expr->builtin) {
    case BUILTIN_ABS:
        return is_float ? ir_absf(b, x) : ir_absi(b, x);
    case BUILTIN_MIN:
        return is_float ? ir_minnumf(b, x, args[1]) : ir_minsi(b, x, args[1]);
    case BUILTIN_MAX:
        return is_float ? ir_maxnumf(b, x, args[1]) : ir_maxsi(b, x, args[1]);
    case BUILTIN_CLAMP:
        return is_float ? ir_minnumf(b, ir_maxnumf(b, x, args[1]), args[2])
                        : ir_minsi(b, ir_maxsi(b, x, args[1]), args[2]);
    case BUILTIN_EXP:
        return ir_exp(b, x);
    case BUILTIN_EXP2:
        return ir_exp2(b, x);
    case BUILTIN_LOG:
        return ir_log(b, x);
    case BUILTIN_LOG2:
        return ir_log2(b, x);
    case BUILTIN_SQRT:
        return ir_sqrt(b, x);
    case BUILTIN_RSQRT:
        return ir_rsqrt(b, x);
    case BUILTIN_TANH:
        return ir_tanh(b, x);
    case BUILTIN_SIGMOID:
        return lower_sigmoid(b, x);
    case BUILTIN_SIN:
        return ir_sin(b, x);
    case BUILTIN_COS:
        return ir_cos(b, x);
    case BUILTIN_FLOOR:
        return ir_floor(b, x);
    case BUILTIN_CEIL:
        return ir_ceil(b, x);
    case BUILTIN_ROUND:
        return ir_roundeven(b, x);
    case BUILTIN_POW:
        return lower_pow(b, x, args[1]);
    case BUILTIN_COUNT:
        break;
    }
    assert(!"unknown built-in");
    return x;
}

/* ---- Calls --------------------------------------------------------------- */

MlirType ir_type_of_value(MlirContext context, enum value_type type) {
    switch (type) {
    case TYPE_BOOL:
        return ir_type_i1(context);
    case TYPE_I32:
        return ir_type_i32(context);
    case TYPE_F32:
        return ir_type_f32(context);
    }
    assert(!"unknown type");
    return ir_type_i32(context);
}

/* A CUDA C++ function stays a call of a declaration; the back end emits it. */
static MlirValue lower_extern(struct ir_scope *scope, const struct fn *fn,
                              const MlirValue *args) {
    struct ir_builder *b = scope->b;
    MlirType types[AST_MAX_ARGS];
    for (size_t i = 0; i < fn->param_count; i++)
        types[i] = ir_type_of_value(b->context, fn->params[i].type);
    MlirOperation func =
        ir_extern_func(scope->module, b->arena, fn->name, types,
                       fn->param_count, ir_type_of_value(b->context, fn->type));
    return ir_result(ir_call(b, func, args, fn->param_count), 0);
}

/* The body with the arguments' values for its parameters: each is computed
 * once. */
static struct ir_lowered lower_call(struct ir_scope *scope, const struct fn *fn,
                                    const struct ir_lowered *args,
                                    const MlirValue *values, bool uses_score) {
    if (fn->is_extern)
        return (struct ir_lowered){lower_extern(scope, fn, values), uses_score};
    const struct ir_lowered *outer = scope->fn_args;
    scope->fn_args = args;
    struct ir_lowered result = ir_lower_expr(scope, fn->body);
    scope->fn_args = outer;
    return result;
}

/* Once in a function.  A let is outside of any fn, whose parameters it cannot
 * see. */
static struct ir_lowered lower_let(struct ir_scope *scope,
                                   const struct let *let) {
    struct ir_lowered *known = &scope->lets[let->number];
    if (mlirValueIsNull(known->value)) {
        const struct ir_lowered *outer = scope->fn_args;
        scope->fn_args = NULL;
        *known = ir_lower_expr(scope, let->value);
        scope->fn_args = outer;
    }
    return *known;
}

/* Kinds with operands, which are lowered already. */
static struct ir_lowered lower_node(struct ir_scope *scope,
                                    const struct expr *expr,
                                    const struct ir_lowered *args,
                                    const MlirValue *values, bool uses_score) {
    struct ir_builder *b = scope->b;
    struct ir_lowered result = {{NULL}, uses_score};
    b->location = ir_location_of(b->context, scope->sources, expr->where);
    b->contract = uses_score;
    switch ((int)expr->kind) {
    case EXPR_READ:
        result.value = ir_read(b, scope->tensors[expr->tensor->number], values,
                               expr->arg_count);
        break;
    case EXPR_UNARY:
        result.value = lower_unary(b, expr, values[0]);
        break;
    case EXPR_BINARY:
        result.value = lower_binary(b, expr, values[0], values[1]);
        break;
    case EXPR_SELECT:
        result.value = ir_select(b, values[0], values[1], values[2]);
        break;
    case EXPR_CAST:
        result.value =
            lower_cast(b, expr->args[0]->type, expr->type, values[0]);
        break;
    case EXPR_BUILTIN:
        result.value = lower_builtin(b, expr, values);
        break;
    case EXPR_CALL:
        result = lower_call(scope, expr->fn, args, values, uses_score);
        break;
    default:
        assert(!"unknown expression");
    }
    b->contract = false;
    return result;
}

struct ir_lowered ir_lower_expr(struct ir_scope *scope,
                                const struct expr *expr) {
    struct ir_builder *b = scope->b;
    switch ((int)expr->kind) {
    case EXPR_CONST:
        b->location = ir_location_of(b->context, scope->sources, expr->where);
        return leaf(lower_const(b, expr));
    case EXPR_INDEX:
        return leaf(scope->indices[expr->index]);
    case EXPR_SIZE:
        return leaf(scope->sizes[expr->size]);
    case EXPR_PARAM:
        return leaf(scope->params[expr->param->number]);
    case EXPR_SCORE:
        return scope->score;
    case EXPR_LET:
        return lower_let(scope, expr->let);
    case EXPR_FN_PARAM:
        return scope->fn_args[expr->fn_param];
    default:
        break;
    }
    /* The recursion is as deep as the expression; its arrays live in the
     * arena. */
    struct ir_lowered *args =
        ARENA_NEW_ARRAY(b->arena, struct ir_lowered, expr->arg_count);
    MlirValue *values = ARENA_NEW_ARRAY(b->arena, MlirValue, expr->arg_count);
    bool uses_score = false;
    for (size_t i = 0; i < expr->arg_count; i++) {
        args[i] = ir_lower_expr(scope, expr->args[i]);
        values[i] = args[i].value;
        uses_score |= args[i].uses_score;
    }
    return lower_node(scope, expr, args, values, uses_score);
}
