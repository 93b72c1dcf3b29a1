/* The checked spec as text: expressions for messages and dumps, and the
 * canonical form behind cache keys. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "frontend/ast.h"
#include "frontend/fold.h"

enum { CALLEES_MAX = 4096 };

/* The fns that were printed, in the order of their first call. */
struct callees {
    const struct fn *list[CALLEES_MAX];
    size_t count;
};

/* Lets and fns are written by name for people, by number for cache keys (two
 * files may define fns of one name). */
struct style {
    const struct callees *numbered; /* NULL: by name */
};

static void print(struct strbuf *out, const struct expr *expr,
                  struct style style);

/* Nine digits read back to the same f32; the host's locale must not show. */
static void print_float(struct strbuf *out, float value) {
    if (isnan(value)) {
        strbuf_append(out, "(inf - inf)");
        return;
    }
    if (isinf(value)) {
        strbuf_append(out, value < 0 ? "-inf" : "inf");
        return;
    }
    char text[64];
    int length = snprintf(text, sizeof text, "%.9g", (double)value);
    bool plain = true; /* no point and no exponent yet: "3" would be an i32 */
    for (int i = 0; i < length; i++) {
        if (!strchr("0123456789+-e", text[i]))
            text[i] = '.';
        plain &= text[i] != '.' && text[i] != 'e';
    }
    strbuf_append(out, text);
    if (plain)
        strbuf_append(out, ".0");
}

/* Position of the fn among the callees, their count if it is none of them. */
static size_t number_of(const struct callees *callees, const struct fn *fn) {
    size_t i = 0;
    while (i < callees->count && callees->list[i] != fn)
        i++;
    return i;
}

static void print_const(struct strbuf *out, const struct expr *expr) {
    switch (expr->type) {
    case TYPE_BOOL:
        strbuf_append(out, expr->bits ? "true" : "false");
        break;
    case TYPE_I32:
        strbuf_printf(out, "%" PRId32, (int32_t)expr->bits);
        break;
    case TYPE_F32:
        print_float(out, fold_float(expr->bits));
        break;
    }
}

static void print_args(struct strbuf *out, const char *name,
                       const char *brackets, const struct expr *expr,
                       struct style style) {
    strbuf_printf(out, "%s%c", name, brackets[0]);
    for (size_t i = 0; i < expr->arg_count; i++) {
        strbuf_append(out, i ? ", " : "");
        print(out, expr->args[i], style);
    }
    strbuf_append_char(out, brackets[1]);
}

static void print_binary(struct strbuf *out, const struct expr *expr,
                         struct style style) {
    strbuf_append_char(out, '(');
    print(out, expr->args[0], style);
    strbuf_printf(out, " %s ", ast_binary_name(expr->binary));
    print(out, expr->args[1], style);
    strbuf_append_char(out, ')');
}

static void print(struct strbuf *out, const struct expr *expr,
                  struct style style) {
    switch (expr->kind) {
    case EXPR_CONST:
        print_const(out, expr);
        break;
    case EXPR_INDEX:
        strbuf_append(out, ast_index_name(expr->index));
        break;
    case EXPR_SIZE:
        strbuf_append(out, ast_size_name(expr->size));
        break;
    case EXPR_SCORE:
        strbuf_append_char(out, 's');
        break;
    case EXPR_PARAM:
        strbuf_append(out, expr->param->name);
        break;
    case EXPR_READ:
        print_args(out, expr->tensor->name, "[]", expr, style);
        break;
    case EXPR_LET:
        if (style.numbered)
            strbuf_printf(out, "let%d", expr->let->number);
        else
            strbuf_append(out, expr->let->name);
        break;
    case EXPR_FN_PARAM:
        strbuf_printf(out, "arg%d", expr->fn_param);
        break;
    case EXPR_UNARY:
        strbuf_append(out, ast_unary_name(expr->unary));
        print_args(out, "", "()", expr, style);
        break;
    case EXPR_BINARY:
        print_binary(out, expr, style);
        break;
    case EXPR_SELECT:
        print_args(out, "select", "()", expr, style);
        break;
    case EXPR_CAST:
        print_args(out, ast_type_name(expr->type), "()", expr, style);
        break;
    case EXPR_BUILTIN:
        print_args(out, ast_builtin_name(expr->builtin), "()", expr, style);
        break;
    case EXPR_CALL:
        if (style.numbered)
            strbuf_printf(out, "f%zu_", number_of(style.numbered, expr->fn));
        print_args(out, expr->fn->name, "()", expr, style);
        break;
    }
}

void ast_print_expr(struct strbuf *out, const struct expr *expr) {
    print(out, expr, (struct style){.numbered = NULL});
}

/* ---- the canonical text -------------------------------------------------- */

static void print_callees(struct strbuf *out, const struct expr *expr,
                          struct callees *done);

/* A fn after the fns that it calls, once. */
static void print_fn(struct strbuf *out, const struct fn *fn,
                     struct callees *done) {
    size_t number = number_of(done, fn);
    if (number < done->count)
        return;
    if (number < CALLEES_MAX)
        done->list[done->count++] = fn;
    if (fn->body)
        print_callees(out, fn->body, done);
    strbuf_printf(out, "fn f%zu_%s(", number, fn->name);
    for (size_t i = 0; i < fn->param_count; i++)
        strbuf_printf(out, "%s%s", i ? ", " : "",
                      ast_type_name(fn->params[i].type));
    strbuf_printf(out, ") -> %s", ast_type_name(fn->type));
    if (fn->body) {
        strbuf_append(out, " = ");
        print(out, fn->body, (struct style){done});
    }
    strbuf_append(out, ";\n");
    if (fn->file) {
        strbuf_printf(out, "cuda %" PRIu32 "\n", fn->file->length);
        strbuf_append_bytes(out, fn->file->text, fn->file->length);
        strbuf_append_char(out, '\n');
    }
}

static void print_callees(struct strbuf *out, const struct expr *expr,
                          struct callees *done) {
    for (size_t i = 0; i < expr->arg_count; i++)
        print_callees(out, expr->args[i], done);
    if (expr->kind == EXPR_CALL)
        print_fn(out, expr->fn, done);
}

/* What is given at launch. */
static void print_params(struct strbuf *out, const struct attention *attention,
                         struct style style) {
    for (size_t i = 0; i < attention->param_count; i++) {
        const struct param *param = &attention->params[i];
        strbuf_printf(out, "param %s: %s", param->name,
                      ast_type_name(param->type));
        if (param->has_default)
            strbuf_printf(out, " = 0x%08" PRIx32, param->default_bits);
        strbuf_printf(out, "%s;\n", param->used ? "" : " unused");
    }
    for (size_t i = 0; i < attention->tensor_count; i++) {
        const struct tensor *tensor = &attention->tensors[i];
        strbuf_printf(out, "tensor %s: %s[", tensor->name,
                      ast_scalar_name(tensor->type));
        for (int axis = 0; axis < tensor->rank; axis++) {
            strbuf_append(out, axis ? ", " : "");
            print(out, tensor->extents[axis], style);
        }
        strbuf_printf(out, "]%s;\n", tensor->used ? "" : " unused");
    }
}

/* The pinned decisions only. */
static void print_schedule(struct strbuf *out, const struct schedule *s) {
    strbuf_append(out, "schedule");
    if (s->given[SCHEDULE_TILE])
        strbuf_printf(out, " tile %d,%d", s->tile_m, s->tile_n);
    if (s->given[SCHEDULE_STAGES])
        strbuf_printf(out, " stages %d", s->stages);
    if (s->given[SCHEDULE_CONSUMERS])
        strbuf_printf(out, " consumers %d", s->consumers);
    if (s->given[SCHEDULE_OVERLAP])
        strbuf_printf(out, " overlap %d", (int)s->overlap);
    if (s->given[SCHEDULE_EXP_POLY])
        strbuf_printf(out, " exp_poly 0x%08" PRIx32, fold_bits(s->exp_poly));
    if (s->given[SCHEDULE_RESCALE_THRESHOLD])
        strbuf_printf(out, " rescale_threshold 0x%08" PRIx32,
                      fold_bits(s->rescale_threshold));
    if (s->given[SCHEDULE_ORDER])
        strbuf_printf(out, " order %d", (int)s->order);
    strbuf_append(out, ";\n");
}

/* Fns called by extents, scale and lines, before the lines that call them. */
static void print_all_callees(struct strbuf *out,
                              const struct attention *attention,
                              struct callees *done) {
    for (size_t i = 0; i < attention->tensor_count; i++)
        for (int axis = 0; axis < attention->tensors[i].rank; axis++)
            print_callees(out, attention->tensors[i].extents[axis], done);
    if (attention->scale)
        print_callees(out, attention->scale, done);
    for (size_t i = 0; i < attention->item_count; i++)
        print_callees(out, attention->items[i].value, done);
}

void ast_print_attention(struct strbuf *out,
                         const struct attention *attention) {
    struct callees callees = {.count = 0};
    const struct style canonical = {&callees};
    print_all_callees(out, attention, &callees);
    strbuf_printf(out, "attention %s\ndtype %s;\nhead_dim %d, %d;\ngroup %d;\n",
                  attention->name, ast_scalar_name(attention->dtype),
                  attention->head_dim_qk, attention->head_dim_v,
                  attention->group);
    print_params(out, attention, canonical);
    if (attention->scale) {
        strbuf_append(out, "scale ");
        print(out, attention->scale, canonical);
        strbuf_append(out, ";\n");
    }
    for (size_t i = 0; i < attention->item_count; i++) {
        const struct item *item = &attention->items[i];
        if (item->kind == ITEM_LET)
            strbuf_printf(out, "let%d = ", item->let->number);
        else
            strbuf_append(out, item->kind == ITEM_SCORE ? "score " : "mask ");
        print(out, item->value, canonical);
        strbuf_append(out, ";\n");
    }
    print_schedule(out, &attention->schedule);
}
