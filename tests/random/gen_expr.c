/* Random expressions; see gen.h for what they avoid and how.
 *
 * Five grammars: i32, bool, exact f32 (may decide something), bias (bounded f32,
 * may be inexact, decides nothing) and score (depends on s).
 */
#include <math.h>
#include <stdlib.h>

#include "tests/random/gen.h"

/* Bounds of scores: absolute value, and change per change of s. */
static const double SIZE_LIMIT = 100, SLOPE_LIMIT = 10, BIAS_LIMIT = 30;

#define PICK(scope, array) ((array)[rng_range((scope)->rng, 0, \
                                              (int64_t)(sizeof(array) / sizeof *(array)) - 1)])

static int64_t roll(struct gen_scope *scope, int64_t sides) {
    return rng_range(scope->rng, 0, sides - 1);
}

/* ---- Nodes --------------------------------------------------------------- */

const struct gen_node *gen_leaf(struct gen_scope *scope, enum value_type type, const char *text,
                                double size) {
    struct gen_node *node = ARENA_NEW(scope->arena, struct gen_node);
    node->form = arena_strdup(scope->arena, text);
    node->type = type;
    node->size = size;
    return node;
}

static const struct gen_node *literal(struct gen_scope *scope, enum value_type type,
                                      const char *text, double size) {
    struct gen_node *node = (struct gen_node *)gen_leaf(scope, type, text, size);
    node->constant = true;
    return node;
}

/* A composite of literals alone would be folded, and overflow there is an error:
 * its first argument becomes a name. */
static const struct gen_node *vary(struct gen_scope *scope, const struct gen_node *a,
                                   const struct gen_node *b, const struct gen_node *c) {
    if (!a->constant || a->pinned || (b && !b->constant) || (c && !c->constant))
        return a;
    switch (a->type) {
    case TYPE_I32: return gen_leaf(scope, TYPE_I32, scope->ints[0]->form, 0);
    case TYPE_BOOL: return gen_node3(scope, TYPE_BOOL, "($0 > 3)", scope->ints[0], NULL, NULL);
    case TYPE_F32: return gen_node3(scope, TYPE_F32, "f32($0)", scope->ints[0], NULL, NULL);
    }
    return a;
}

static struct gen_node *make(struct gen_scope *scope, enum value_type type, const char *form,
                             const struct gen_node *a, const struct gen_node *b,
                             const struct gen_node *c) {
    struct gen_node *node = ARENA_NEW(scope->arena, struct gen_node);
    node->form = form;
    node->type = type;
    node->args[0] = vary(scope, a, b, c);
    node->args[1] = b;
    node->args[2] = c;
    node->arg_count = c ? 3 : b ? 2 : 1;
    return node;
}

const struct gen_node *gen_node3(struct gen_scope *scope, enum value_type type, const char *form,
                                 const struct gen_node *a, const struct gen_node *b,
                                 const struct gen_node *c) {
    return make(scope, type, form, a, b, c);
}

static const struct gen_node *pinned(struct gen_scope *scope, enum value_type type,
                                     const char *form, const struct gen_node *a,
                                     const struct gen_node *b) {
    struct gen_node *node = make(scope, type, form, a, b, NULL);
    node->pinned = true;
    return node;
}

static const struct gen_node *bounded(struct gen_scope *scope, const char *form,
                                      const struct gen_node *a, const struct gen_node *b,
                                      const struct gen_node *c, double size, double slope) {
    struct gen_node *node = make(scope, TYPE_F32, form, a, b, c);
    node->size = size;
    node->slope = slope;
    return node;
}

void gen_print(const struct gen_node *node, struct strbuf *out) {
    for (const char *at = node->form; *at; at++)
        if (*at == '$')
            gen_print(node->args[*++at - '0'], out);
        else
            strbuf_append_char(out, *at);
}

/* ---- Reads --------------------------------------------------------------- */

/* An index into an axis: its natural name, or any i32 brought into range. */
static const struct gen_node *table_index(struct gen_scope *scope, const struct gen_table *table,
                                          int axis, int depth) {
    const char *extent = table->extents[axis];
    if (table->natural[axis] && (depth < 1 || roll(scope, 3)))
        return gen_leaf(scope, TYPE_I32, table->natural[axis], 0);
    const char *form = roll(scope, 2) ? arena_printf(scope->arena, "clamp($0, 0, %s - 1)", extent)
                                      : arena_printf(scope->arena, "($0 %% %s)", extent);
    return pinned(scope, TYPE_I32, form, gen_int(scope, depth - 1), NULL);
}

/* A guarded read of a 1-D table at any index: the guard may be false. */
static const struct gen_node *guarded_read(struct gen_scope *scope, const struct gen_table *table,
                                           enum value_type type, int depth) {
    static const char *const otherwise[] = {[TYPE_BOOL] = "false", [TYPE_I32] = "-1",
                                            [TYPE_F32] = "0.5"};
    const char *form = arena_printf(scope->arena, "(0 <= $0 && $0 < %s ? %s[$0] : %s)",
                                    table->extents[0], table->name, otherwise[type]);
    struct gen_node *node = make(scope, type, form, gen_int(scope, depth - 1), NULL, NULL);
    node->size = 8;
    return node;
}

/* A read of a random table of this value type; NULL when there is none. */
static const struct gen_node *read_table(struct gen_scope *scope, enum value_type type,
                                         int depth) {
    int64_t first = scope->table_count ? roll(scope, scope->table_count) : 0;
    for (int64_t i = 0; i < scope->table_count; i++) {
        const struct gen_table *table = &scope->tables[(first + i) % scope->table_count];
        if (ast_value_type(table->type) != type)
            continue;
        if (table->rank == 1 && depth > 1 && !roll(scope, 4))
            return guarded_read(scope, table, type, depth);
        static const char *const forms[] = {"%s[$0]", "%s[$0, $1]", "%s[$0, $1, $2]"};
        struct gen_node *node = ARENA_NEW(scope->arena, struct gen_node);
        struct strbuf form;
        strbuf_init(&form, scope->arena);
        strbuf_append(&form, table->name);
        strbuf_append(&form, forms[table->rank - 1] + 2);
        *node = (struct gen_node){.form = strbuf_text(&form), .type = type,
                                  .arg_count = table->rank, .size = 8};
        for (int axis = 0; axis < table->rank; axis++)
            node->args[axis] = table_index(scope, table, axis, depth - 1);
        return node;
    }
    return NULL;
}

/* ---- i32 ----------------------------------------------------------------- */

static const struct gen_node *int_literal(struct gen_scope *scope) {
    static const char *const large[] = {"2147483647", "(-2147483648)", "65536", "1000003",
                                        "0x7f00ff0f", "(-100000)"};
    if (!roll(scope, 12))
        return literal(scope, TYPE_I32, PICK(scope, large), 0);
    int64_t value = roll(scope, 3) ? rng_range(scope->rng, 0, 12) : rng_range(scope->rng, -9, 80);
    const char *text = arena_printf(scope->arena, value < 0 ? "(%d)" : "%d", (int)value);
    return literal(scope, TYPE_I32, text, 0);
}

static const struct gen_node *divisor(struct gen_scope *scope, int depth) {
    static const char *const literals[] = {"2", "3", "4", "5", "7", "8", "16", "32",
                                           "64", "100", "(-3)", "(-4)", "(-1)", "1"};
    if (depth < 1 || roll(scope, 4)) {
        struct gen_node *node =
            (struct gen_node *)literal(scope, TYPE_I32, PICK(scope, literals), 0);
        node->pinned = true;
        return node;
    }
    return pinned(scope, TYPE_I32, "max($0, 1)", gen_int(scope, depth - 1), NULL);
}

static const struct gen_node *int_leaf(struct gen_scope *scope) {
    if (!roll(scope, 3))
        return int_literal(scope);
    return scope->ints[roll(scope, scope->int_count)];
}

const struct gen_node *gen_int(struct gen_scope *scope, int depth) {
    static const char *const two[] = {"($0 + $1)", "($0 - $1)", "($0 + $1)", "($0 - $1)",
                                      "($0 * $1)", "min($0, $1)", "max($0, $1)", "($0 & $1)",
                                      "($0 | $1)", "($0 ^ $1)", "($0 << $1)", "($0 >> $1)"};
    static const char *const one[] = {"abs($0)", "(-$0)", "(~$0)"};
    const struct gen_node *read;
    if (depth < 1 || !roll(scope, 4))
        return int_leaf(scope);
    int d = depth - 1;
    switch (roll(scope, 12)) {
    case 0:
    case 1: return gen_node3(scope, TYPE_I32, "($0 / $1)", gen_int(scope, d), divisor(scope, d),
                             NULL);
    case 2: return gen_node3(scope, TYPE_I32, "($0 % $1)", gen_int(scope, d), divisor(scope, d),
                             NULL);
    case 3: return gen_node3(scope, TYPE_I32, PICK(scope, one), gen_int(scope, d), NULL, NULL);
    case 4: return gen_node3(scope, TYPE_I32, "($0 ? $1 : $2)", gen_bool(scope, d),
                             gen_int(scope, d), gen_int(scope, d));
    case 5:
        read = read_table(scope, TYPE_I32, d);
        return read ? read : int_leaf(scope);
    case 6: return gen_node3(scope, TYPE_I32, "i32($0)", gen_exact(scope, d), NULL, NULL);
    case 7:
        if (scope->int_fn_count)
            return gen_node3(scope, TYPE_I32, scope->int_fns[roll(scope, scope->int_fn_count)],
                             gen_int(scope, d), gen_int(scope, d), NULL);
        return gen_node3(scope, TYPE_I32, "i32($0)", gen_bool(scope, d), NULL, NULL);
    default:
        return gen_node3(scope, TYPE_I32, PICK(scope, two), gen_int(scope, d), gen_int(scope, d),
                         NULL);
    }
}

/* A number near an end of i32, or any. */
static const struct gen_node *int_edge(struct gen_scope *scope) {
    int64_t near = rng_range(scope->rng, -300, 300), value;
    switch (roll(scope, 4)) {
    case 0: value = INT32_MAX - llabs(near); break;
    case 1: value = INT32_MIN + llabs(near); break;
    case 2: value = (1 << 30) + near; break;
    default: return int_leaf(scope);
    }
    const char *text = arena_printf(scope->arena, value < 0 ? "(%lld)" : "%lld",
                                    (long long)value);
    struct gen_node *node = (struct gen_node *)literal(scope, TYPE_I32, text, 0);
    node->pinned = true;
    return node;
}

/* ---- bool ---------------------------------------------------------------- */

static const struct gen_node *comparison(struct gen_scope *scope, int depth) {
    static const char *const forms[] = {"($0 < $1)", "($0 <= $1)", "($0 > $1)",
                                        "($0 >= $1)", "($0 == $1)", "($0 != $1)"};
    if (!roll(scope, 5))
        return gen_node3(scope, TYPE_BOOL, PICK(scope, forms), gen_exact(scope, depth),
                         gen_exact(scope, depth), NULL);
    return gen_node3(scope, TYPE_BOOL, PICK(scope, forms), gen_int(scope, depth),
                     gen_int(scope, depth), NULL);
}

const struct gen_node *gen_bool(struct gen_scope *scope, int depth) {
    static const char *const two[] = {"($0 && $1)", "($0 || $1)", "($0 && $1)", "($0 || $1)",
                                      "($0 ^ $1)", "($0 & $1)", "($0 | $1)", "($0 == $1)"};
    const struct gen_node *read;
    if (depth < 1)
        return scope->bool_count && roll(scope, 2) ? scope->bools[roll(scope, scope->bool_count)]
                                                   : comparison(scope, 0);
    int d = depth - 1;
    switch (roll(scope, 9)) {
    case 0: return gen_node3(scope, TYPE_BOOL, "(!$0)", gen_bool(scope, d), NULL, NULL);
    case 1: return gen_node3(scope, TYPE_BOOL, "($0 ? $1 : $2)", gen_bool(scope, d),
                             gen_bool(scope, d), gen_bool(scope, d));
    case 2:
        read = read_table(scope, TYPE_BOOL, d);
        return read ? read : comparison(scope, d);
    case 3:
        if (scope->bool_fn_count)
            return gen_node3(scope, TYPE_BOOL, scope->bool_fns[roll(scope, scope->bool_fn_count)],
                             gen_int(scope, d), gen_int(scope, d), NULL);
        return gen_node3(scope, TYPE_BOOL, "bool($0)", gen_int(scope, d), NULL, NULL);
    case 4:
    case 5:
        return gen_node3(scope, TYPE_BOOL, PICK(scope, two), gen_bool(scope, d),
                         gen_bool(scope, d), NULL);
    default: return comparison(scope, d);
    }
}

const struct gen_node *gen_mask(struct gen_scope *scope, int depth) {
    static const char *const one[] = {
        "(q - kv < $0)", "(abs(q - kv) <= $0)", "(kv <= q || kv < $0)", "(kv <= q + $0)",
        "(kv >= $0)", "(q >= $0 || kv <= q)", "(q - kv < 20 || kv < $0)",
    };
    static const char *const divided[] = {
        "(q / $0 == kv / $0)", "(kv / $0 <= q / $0)", "((q - kv) % $0 == 0)",
        "(kv % $0 != q % $0)", "((q / $0 + kv / $0) % 2 == 0)", "(q % $0 >= kv % $0)",
    };
    /* Sums and products that may leave i32 inside one tile. */
    static const char *const edges[] = {
        "(kv < q + $0)", "(kv > q - $0)", "(kv + $0 >= q)", "(abs(q + $0) >= kv)",
        "(kv * $0 <= q)", "(q * 65539 + $0 > kv)", "((kv + $0) / 3 <= q)", "(-(kv + $0) < q)",
        "((kv - $0 >> 2) < q)", "((q + $0) % 64 >= kv % 64)", "((kv << 24) + $0 <= q)",
    };
    const struct gen_node *read;
    switch (roll(scope, 9)) {
    case 0: return gen_leaf(scope, TYPE_BOOL, "(kv <= q)", 0);
    case 8: return gen_node3(scope, TYPE_BOOL, PICK(scope, edges), int_edge(scope), NULL, NULL);
    case 1: return gen_leaf(scope, TYPE_BOOL, "(kv <= q + (kv_len - q_len))", 0);
    case 2: return gen_node3(scope, TYPE_BOOL, PICK(scope, one), gen_int(scope, 1), NULL, NULL);
    case 3: return gen_node3(scope, TYPE_BOOL, PICK(scope, divided), divisor(scope, 0), NULL,
                             NULL);
    case 4:
        read = read_table(scope, TYPE_I32, 1);
        if (read)
            return gen_node3(scope, TYPE_BOOL, roll(scope, 2) ? "($0 <= $1)" : "($0 == $1)", read,
                             gen_int(scope, depth - 1), NULL);
        return gen_bool(scope, depth);
    case 5:
        read = read_table(scope, TYPE_BOOL, 2);
        return read ? read : gen_bool(scope, depth);
    default: return gen_bool(scope, depth);
    }
}

/* ---- exact f32 ----------------------------------------------------------- */

static const struct gen_node *float_literal(struct gen_scope *scope) {
    static const char *const texts[] = {"0.5", "1.0", "2.0", "0.25", "(-1.5)", "3.0", "0.1",
                                        "(-0.3)", "1e-3", "7.75"};
    return literal(scope, TYPE_F32, PICK(scope, texts), 8);
}

static const struct gen_node *exact_leaf(struct gen_scope *scope) {
    if (scope->exact_count && !roll(scope, 3))
        return scope->exact[roll(scope, scope->exact_count)];
    if (roll(scope, 2))
        return float_literal(scope);
    return gen_node3(scope, TYPE_F32, "f32($0)", int_leaf(scope), NULL, NULL);
}

const struct gen_node *gen_exact(struct gen_scope *scope, int depth) {
    static const char *const two[] = {"($0 + $1)", "($0 - $1)", "($0 * $1)", "min($0, $1)",
                                      "max($0, $1)", "($0 / $1)", "($0 % $1)"};
    static const char *const one[] = {"(-$0)", "abs($0)", "floor($0)", "ceil($0)", "round($0)"};
    const struct gen_node *read;
    if (depth < 1 || !roll(scope, 4))
        return exact_leaf(scope);
    int d = depth - 1;
    switch (roll(scope, 7)) {
    case 0: return gen_node3(scope, TYPE_F32, PICK(scope, one), gen_exact(scope, d), NULL, NULL);
    case 1: return gen_node3(scope, TYPE_F32, "f32($0)", gen_int(scope, d), NULL, NULL);
    case 2:
        read = read_table(scope, TYPE_F32, d);
        return read ? read : exact_leaf(scope);
    case 3: return gen_node3(scope, TYPE_F32, "($0 ? $1 : $2)", gen_bool(scope, d),
                             gen_exact(scope, d), gen_exact(scope, d));
    default:
        return gen_node3(scope, TYPE_F32, PICK(scope, two), gen_exact(scope, d),
                         gen_exact(scope, d), NULL);
    }
}

/* ---- bias ---------------------------------------------------------------- */

/* Keeps a bias within BIAS_LIMIT. */
static const struct gen_node *limit_bias(struct gen_scope *scope, const struct gen_node *node) {
    if (node->size <= BIAS_LIMIT)
        return node;
    struct gen_node *limited =
        (struct gen_node *)bounded(scope, "clamp($0, -20.0, 20.0)", node, NULL, NULL, 20, 0);
    limited->pinned = true;
    return limited;
}

static const struct gen_node *bias_leaf(struct gen_scope *scope) {
    struct gen_node *node;
    switch (roll(scope, 5)) {
    case 0: return bounded(scope, "f32($0 % 13)", gen_int(scope, 1), NULL, NULL, 13, 0);
    case 1: return bounded(scope, "(0.05 * f32(clamp($0, -200, 200)))", gen_int(scope, 1), NULL,
                           NULL, 10, 0);
    case 2:
        node = (struct gen_node *)bounded(scope, "clamp($0, -4.0, 9.0)", gen_exact(scope, 2),
                                          NULL, NULL, 9, 0);
        node->pinned = true;
        return node;
    case 3:
        if (scope->bias_count)
            return scope->bias[roll(scope, scope->bias_count)];
        return float_literal(scope);
    default: {
        const struct gen_node *read = read_table(scope, TYPE_F32, 2);
        return read ? read : float_literal(scope);
    }
    }
}

static const struct gen_node *bias_function(struct gen_scope *scope, int depth) {
    static const struct {
        const char *form;
        double size; /* of the result for arguments up to BIAS_LIMIT */
    } rows[] = {
        {"exp(min($0, 3.0))", 21},     {"exp2(min($0, 4.0))", 16}, {"log(abs($0) + 0.5)", 4},
        {"log2(abs($0) + 0.25)", 5},   {"sqrt(abs($0))", 6},       {"tanh($0)", 1},
        {"sigmoid($0)", 1},            {"sin($0)", 1},             {"cos($0)", 1},
        {"rsqrt(abs($0) + 0.25)", 2},  {"pow(abs($0) + 0.5, 0.75)", 13},
        {"pow(min(abs($0), 5.0), 2.0)", 25}, {"clamp($0, -5.0, 5.0)", 5},
    };
    int64_t row = roll(scope, sizeof rows / sizeof *rows);
    return bounded(scope, rows[row].form, gen_bias(scope, depth), NULL, NULL, rows[row].size, 0);
}

const struct gen_node *gen_bias(struct gen_scope *scope, int depth) {
    if (depth < 1 || !roll(scope, 4))
        return bias_leaf(scope);
    int d = depth - 1;
    const struct gen_node *a, *b;
    switch (roll(scope, 6)) {
    case 0:
        a = gen_bias(scope, d), b = gen_bias(scope, d);
        return limit_bias(scope, bounded(scope, roll(scope, 2) ? "($0 + $1)" : "($0 - $1)", a, b,
                                         NULL, a->size + b->size, 0));
    case 1:
        a = gen_bias(scope, d), b = gen_bias(scope, d);
        return limit_bias(scope, bounded(scope, "($0 * $1)", a, b, NULL, a->size * b->size, 0));
    case 2:
        a = gen_bias(scope, d), b = gen_bias(scope, d);
        return bounded(scope, "($0 ? $1 : $2)", gen_bool(scope, d), a, b,
                       fmax(a->size, b->size), 0);
    case 3:
        a = gen_bias(scope, d), b = gen_bias(scope, d);
        return bounded(scope, roll(scope, 2) ? "min($0, $1)" : "max($0, $1)", a, b, NULL,
                       fmax(a->size, b->size), 0);
    default: return bias_function(scope, d);
    }
}

/* ---- score --------------------------------------------------------------- */

static bool is_tame(const struct gen_node *node) {
    return node->size <= SIZE_LIMIT && node->slope <= SLOPE_LIMIT;
}

/* Functions of one score: size and slope of the result from those of the argument. */
static const struct gen_node *score_function(struct gen_scope *scope, int depth) {
    static const struct {
        const char *form;
        double size, size_factor, slope_factor; /* size: the larger of size, factor * arg */
    } rows[] = {
        {"tanh($0)", 1, 0, 1},           {"(8.0 * tanh($0 / 8.0))", 8, 0, 1},
        {"sigmoid($0)", 1, 0, 0.25},     {"abs($0)", 0, 1, 1},
        {"(-$0)", 0, 1, 1},              {"clamp($0, -3.0, 4.0)", 4, 0, 1},
        {"sin($0)", 1, 0, 1},            {"cos($0)", 1, 0, 1},
        {"exp(min($0, 2.0))", 8, 0, 7.4}, {"exp2(min($0, 3.0))", 8, 0, 5.6},
        {"log(abs($0) + 0.5)", 5, 0, 2}, {"log2(abs($0) + 1.0)", 7, 0, 1.5},
        {"sqrt(abs($0) + 0.25)", 11, 0, 1}, {"rsqrt(abs($0) + 0.5)", 1.5, 0, 1.5},
        {"($0 / (abs($0) + 1.0))", 1, 0, 1}, {"pow(abs($0) + 0.5, 0.5)", 11, 0, 1},
        {"max($0, 0.1 * $0)", 0, 1, 1},  {"(0.5 * $0)", 0, 0.5, 0.5},
        {"($0 * sigmoid($0))", 0, 1, 1.2}, {"min($0, 1.5)", 1.5, 1, 1},
    };
    int64_t row = roll(scope, sizeof rows / sizeof *rows);
    const struct gen_node *a = gen_score(scope, depth);
    return bounded(scope, rows[row].form, a, NULL, NULL,
                   fmax(rows[row].size, rows[row].size_factor * a->size),
                   rows[row].slope_factor * a->slope);
}

const struct gen_node *gen_score(struct gen_scope *scope, int depth) {
    const struct gen_node *leaf = scope->scores[roll(scope, scope->score_count)];
    if (depth < 1 || !roll(scope, 5))
        return leaf;
    int d = depth - 1;
    const struct gen_node *a = gen_score(scope, d), *b, *result;
    switch (roll(scope, 6)) {
    case 0:
        b = gen_bias(scope, d);
        result = bounded(scope, roll(scope, 2) ? "($0 + $1)" : "($0 - $1)", a, b, NULL,
                         a->size + b->size, a->slope);
        break;
    case 1:
        b = gen_bias(scope, d);
        result = bounded(scope, "($0 * $1)", a, b, NULL, a->size * b->size, a->slope * b->size);
        break;
    case 2:
        b = roll(scope, 2) ? gen_score(scope, d) : gen_bias(scope, d);
        result = bounded(scope, "($1 ? $0 : $2)", a, gen_bool(scope, d), b,
                         fmax(a->size, b->size), fmax(a->slope, b->slope));
        break;
    case 3:
        b = gen_score(scope, d);
        result = bounded(scope, roll(scope, 2) ? "($0 + $1)" : "max($0, $1)", a, b, NULL,
                         a->size + b->size, a->slope + b->slope);
        break;
    default: result = score_function(scope, d); break;
    }
    return is_tame(result) ? result : leaf;
}
