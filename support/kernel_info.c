/* Size expressions of a compiled attention: build, evaluate, print as C.
 *
 * The expressions are a stack machine rather than a tree, so that a cache entry
 * read from disk can be checked in one pass and evaluated without allocation.
 * Checking a whole kernel_info is kernel_info_check.c, the stored form
 * kernel_info_io.c, JSON kernel_info_json.c. */
#include "support/kernel_info.h"

#include <inttypes.h>
#include <string.h>

#include "support/arena.h"
#include "support/strbuf.h"

/* ---- Tables ------------------------------------------------------------ */

static const char *const size_names[] = {
    [SIZE_BATCH] = "batch",       [SIZE_HEADS] = "heads",
    [SIZE_KV_HEADS] = "kv_heads", [SIZE_Q_LEN] = "q_len",
    [SIZE_KV_LEN] = "kv_len",
};

static const struct {
    const char *name;
    size_t size;
} scalar_types[] = {
    [SCALAR_BOOL] = {"bool", 1}, [SCALAR_I32] = {"i32", 4},
    [SCALAR_F32] = {"f32", 4},   [SCALAR_F16] = {"f16", 2},
    [SCALAR_BF16] = {"bf16", 2},
};

/* How an operation is spelled when stored, how many operands it pops, and how
 * it looks in C: an infix operator, or a function (ends in a letter). */
static const struct {
    const char *name;
    int operands;
    const char *c;
} ops[] = {
    [SIZE_OP_CONST] = {"const", 0, NULL},
    [SIZE_OP_SIZE] = {"size", 0, NULL},
    [SIZE_OP_PARAM] = {"param", 0, NULL},
    [SIZE_OP_SM_COUNT] = {"sm_count", 0, NULL},
    [SIZE_OP_NEG] = {"neg", 1, "-"},
    [SIZE_OP_NOT] = {"not", 1, "~"},
    [SIZE_OP_ABS] = {"abs", 1, "attn_abs"},
    [SIZE_OP_ADD] = {"add", 2, "+"},
    [SIZE_OP_SUB] = {"sub", 2, "-"},
    [SIZE_OP_MUL] = {"mul", 2, "*"},
    [SIZE_OP_FLOORDIV] = {"floordiv", 2, "attn_floordiv"},
    [SIZE_OP_FLOORMOD] = {"floormod", 2, "attn_floormod"},
    [SIZE_OP_CEILDIV] = {"ceildiv", 2, "attn_ceildiv"},
    [SIZE_OP_MIN] = {"min", 2, "attn_min"},
    [SIZE_OP_MAX] = {"max", 2, "attn_max"},
    [SIZE_OP_AND] = {"and", 2, "&"},
    [SIZE_OP_OR] = {"or", 2, "|"},
    [SIZE_OP_XOR] = {"xor", 2, "^"},
    [SIZE_OP_SHL] = {"shl", 2, "attn_shl"},
    [SIZE_OP_SHR] = {"shr", 2, "attn_shr"},
    [SIZE_OP_LT] = {"lt", 2, "<"},
    [SIZE_OP_LE] = {"le", 2, "<="},
    [SIZE_OP_EQ] = {"eq", 2, "=="},
    [SIZE_OP_NE] = {"ne", 2, "!="},
    [SIZE_OP_SELECT] = {"select", 3, "?"},
};

_Static_assert(sizeof size_names / sizeof *size_names == SIZE_COUNT,
               "one name a size");
_Static_assert(sizeof scalar_types / sizeof *scalar_types == SCALAR_TYPE_COUNT,
               "one row a type");
_Static_assert(sizeof ops / sizeof *ops == SIZE_OP_COUNT,
               "one row an operation");

const char *size_name_text(enum size_name size) {
    return size_names[size];
}
const char *scalar_type_text(enum scalar_type type) {
    return scalar_types[type].name;
}
size_t scalar_type_size(enum scalar_type type) {
    return scalar_types[type].size;
}
const char *size_op_text(enum size_op op) {
    return ops[op].name;
}
int size_op_operand_count(enum size_op op) {
    return ops[op].operands;
}

const int *kernel_map_axes(const struct kernel_tensor_map *map) {
    static const int single[] = {3, 2, -1, 1, 0}, packed[] = {3, 1, 2, -1, 0};
    return map->heads > 1 ? packed : single;
}

int kernel_map_box(const struct kernel_tensor_map *map, int axis) {
    switch (axis) {
    case 3:
        return map->panel_columns;
    case 2:
        return map->box_rows / map->heads;
    case 1:
        return map->heads;
    case -1:
        return map->panels;
    default:
        return 1;
    }
}

size_t kernel_param_size(enum kernel_param_kind kind) {
    switch (kind) {
    case KERNEL_PARAM_POINTER:
    case KERNEL_PARAM_STRIDE:
    case KERNEL_PARAM_WORKSPACE:
        return 8;
    case KERNEL_PARAM_EXTENT:
    case KERNEL_PARAM_SIZE:
    case KERNEL_PARAM_SCALAR:
        return 4;
    case KERNEL_PARAM_TENSOR_MAP:
        return 128;
    }
    return 0;
}

size_t kernel_param_align(enum kernel_param_kind kind) {
    return kind == KERNEL_PARAM_TENSOR_MAP ? 64 : kernel_param_size(kind);
}

/* ---- Building ---------------------------------------------------------- */

void size_expr_push(struct arena *arena, struct size_expr *expr,
                    enum size_op op, int64_t value) {
    /* The room is the next power of two from 4, so that the struct needs no
     * field for it. */
    size_t n = expr->count;
    if (n == 0 || (n >= 4 && (n & (n - 1)) == 0)) {
        size_t room = n < 4 ? 4 : 2 * n;
        struct size_step *steps = arena_alloc(arena, room * sizeof *steps);
        if (n != 0)
            memcpy(steps, expr->steps, n * sizeof *steps);
        expr->steps = steps;
    }
    expr->steps[expr->count++] = (struct size_step){op, value};
}

void size_expr_append(struct arena *arena, struct size_expr *expr,
                      const struct size_expr *tail) {
    if (tail->count == 0)
        size_expr_push(arena, expr, SIZE_OP_CONST, 0);
    for (size_t i = 0; i < tail->count; i++)
        size_expr_push(arena, expr, tail->steps[i].op, tail->steps[i].value);
}

struct size_expr size_expr_constant(struct arena *arena, int64_t value) {
    struct size_expr expr = {0};
    size_expr_push(arena, &expr, SIZE_OP_CONST, value);
    return expr;
}

struct size_expr size_expr_size(struct arena *arena, enum size_name size) {
    struct size_expr expr = {0};
    size_expr_push(arena, &expr, SIZE_OP_SIZE, size);
    return expr;
}

/* ---- Evaluating -------------------------------------------------------- */

/* C truncates; the language rounds toward minus infinity. */
static bool floor_divide(int64_t a, int64_t b, int64_t *quotient,
                         int64_t *remainder) {
    if (b == 0 || (a == INT64_MIN && b == -1))
        return false;
    *quotient = a / b;
    *remainder = a % b;
    if (*remainder != 0 && (*remainder < 0) != (b < 0)) {
        *quotient -= 1;
        *remainder += b;
    }
    return true;
}

/* As a multiplication, so that lost bits are an overflow. */
static bool shift_left(int64_t a, int64_t count, int64_t *out) {
    return !__builtin_mul_overflow(a, (int64_t)1 << (count & 31), out);
}

/* Operands that need no stack; false when the call has no such thing. */
static bool eval_leaf(struct size_step step, const struct size_env *env,
                      int64_t *out) {
    if (step.op == SIZE_OP_CONST) {
        *out = step.value;
    } else if (step.op == SIZE_OP_SM_COUNT) {
        *out = env->sm_count;
    } else if (step.op == SIZE_OP_SIZE) {
        if (step.value < 0 || step.value >= SIZE_COUNT)
            return false;
        *out = env->sizes[step.value];
    } else {
        if (step.value < 0 || (uint64_t)step.value >= env->scalar_count)
            return false;
        *out = (int32_t)env->scalars[step.value];
    }
    return true;
}

static bool eval_unary(enum size_op op, int64_t a, int64_t *out) {
    if (op == SIZE_OP_NOT) {
        *out = ~a;
        return true;
    }
    if (op == SIZE_OP_ABS && a >= 0) {
        *out = a;
        return true;
    }
    return !__builtin_sub_overflow((int64_t)0, a, out);
}

static bool eval_binary(enum size_op op, int64_t a, int64_t b, int64_t *out) {
    int64_t quotient = 0, remainder = 0;
    switch ((int)op) {
    case SIZE_OP_ADD:
        return !__builtin_add_overflow(a, b, out);
    case SIZE_OP_SUB:
        return !__builtin_sub_overflow(a, b, out);
    case SIZE_OP_MUL:
        return !__builtin_mul_overflow(a, b, out);
    case SIZE_OP_FLOORDIV:
    case SIZE_OP_FLOORMOD:
    case SIZE_OP_CEILDIV:
        if (!floor_divide(a, b, &quotient, &remainder))
            return false;
        *out = op == SIZE_OP_FLOORMOD
                   ? remainder
                   : quotient + (op == SIZE_OP_CEILDIV && remainder != 0);
        return true;
    case SIZE_OP_MIN:
        *out = a < b ? a : b;
        return true;
    case SIZE_OP_MAX:
        *out = a > b ? a : b;
        return true;
    case SIZE_OP_AND:
        *out = a & b;
        return true;
    case SIZE_OP_OR:
        *out = a | b;
        return true;
    case SIZE_OP_XOR:
        *out = a ^ b;
        return true;
    case SIZE_OP_SHL:
        return shift_left(a, b, out);
    case SIZE_OP_SHR:
        *out = a >> (b & 31);
        return true;
    case SIZE_OP_LT:
        *out = a < b;
        return true;
    case SIZE_OP_LE:
        *out = a <= b;
        return true;
    case SIZE_OP_EQ:
        *out = a == b;
        return true;
    case SIZE_OP_NE:
        *out = a != b;
        return true;
    default:
        return false;
    }
}

bool size_expr_eval(const struct size_expr *expr, const struct size_env *env,
                    int64_t *out_value) {
    int64_t stack[SIZE_EXPR_MAX_DEPTH];
    size_t depth = 0;
    *out_value = 0;
    if (expr->count == 0)
        return true;
    for (size_t i = 0; i < expr->count; i++) {
        struct size_step step = expr->steps[i];
        if ((unsigned)step.op >= SIZE_OP_COUNT)
            return false;
        size_t operands = (size_t)ops[step.op].operands;
        if (depth < operands || depth - operands >= SIZE_EXPR_MAX_DEPTH)
            return false;
        depth -= operands;
        int64_t *top = &stack[depth++];
        bool good = true;
        if (operands == 0)
            good = eval_leaf(step, env, top);
        else if (operands == 1)
            good = eval_unary(step.op, top[0], top);
        else if (operands == 2)
            good = eval_binary(step.op, top[0], top[1], top);
        else
            top[0] = top[0] != 0 ? top[1] : top[2];
        if (!good)
            return false;
    }
    if (depth != 1)
        return false;
    *out_value = stack[0];
    return true;
}

/* ---- Printing as C ----------------------------------------------------- */

/* The first step of the operand whose last step is `last`. */
static size_t operand_start(const struct size_expr *expr, size_t last) {
    size_t wanted = 1, i = last + 1;
    while (wanted > 0) {
        i--;
        wanted += (size_t)ops[expr->steps[i].op].operands - 1;
    }
    return i;
}

/* Constants that fit an int are plain; larger ones need a type. */
static void print_leaf(struct size_step step, const struct kernel_info *info,
                       struct strbuf *out) {
    if (step.op == SIZE_OP_SIZE)
        strbuf_append(out, size_names[step.value]);
    else if (step.op == SIZE_OP_SM_COUNT)
        strbuf_append(out, "attn_sm_count");
    else if (step.op == SIZE_OP_PARAM)
        strbuf_append(out, info->scalars[step.value].name);
    else if (step.value == INT64_MIN)
        strbuf_append(out, "INT64_MIN");
    else if (step.value > INT32_MAX || step.value < -INT32_MAX)
        strbuf_printf(out, "INT64_C(%" PRId64 ")", step.value);
    else
        strbuf_printf(out, "%" PRId64, step.value);
}

/* Prints the operand that ends at step `last`; `inner` puts infix forms in
 * parentheses. */
static void print_operand(const struct size_expr *expr, size_t last,
                          const struct kernel_info *info, bool inner,
                          struct strbuf *out) {
    struct size_step step = expr->steps[last];
    const char *c = ops[step.op].c;
    int operands = ops[step.op].operands;
    if (operands == 0) {
        print_leaf(step, info, out);
        return;
    }
    size_t ends[3] = {0};
    size_t end = last - 1;
    for (int i = operands - 1; i >= 0; i--) {
        ends[i] = end;
        if (i > 0)
            end = operand_start(expr, end) - 1;
    }
    bool call = c[0] == 'a';
    inner = inner && !call;
    strbuf_append(out, inner ? "(" : "");
    if (call || operands == 1)
        strbuf_printf(out, "%s%s", c, call ? "(" : "");
    for (int i = 0; i < operands; i++) {
        if (i > 0 && call)
            strbuf_append(out, ", ");
        else if (i > 0)
            strbuf_printf(out, " %s ", i == 2 ? ":" : c);
        /* a * b * c reads as (a * b) * c by itself. */
        bool chain = i == 0 &&
                     (step.op == SIZE_OP_ADD || step.op == SIZE_OP_MUL) &&
                     expr->steps[ends[0]].op == step.op;
        print_operand(expr, ends[i], info, !call && !chain, out);
    }
    strbuf_append(out, inner || call ? ")" : "");
}

void size_expr_print_c(const struct size_expr *expr,
                       const struct kernel_info *info, struct strbuf *out) {
    if (expr->count == 0)
        strbuf_append(out, "0");
    else
        print_operand(expr, expr->count - 1, info, false, out);
}
