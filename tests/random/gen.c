/* Random specs: items, shapes and sizes around the expressions of gen_expr.c. */
#include "tests/random/gen.h"

#include <stdio.h>
#include <string.h>

#define PICK(rng, array) \
    ((array)[rng_range((rng), 0, (int64_t)(sizeof(array) / sizeof *(array)) - 1)])

static void add_item(struct gen_spec *spec, const char *head, const struct gen_node *value,
                     bool kept) {
    if (spec->item_count < GEN_MAX_ITEMS)
        spec->items[spec->item_count++] = (struct gen_item){head, value, kept};
}

/* ---- Names --------------------------------------------------------------- */

static void add_names(struct gen_scope *scope) {
    /* The first one is what constant expressions are varied with. */
    static const char *const names[] = {"kv", "q", "kv", "q", "h", "b", "h_kv", "q_len",
                                        "kv_len", "heads"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        scope->ints[scope->int_count++] = gen_leaf(scope, TYPE_I32, names[i], 0);
}

/* Values are those of the defaults: calls keep them. */
static void add_params(struct gen_spec *spec, struct gen_scope *scope) {
    static const char *const types[] = {"i32", "f32", "bool"};
    for (int i = 0, count = (int)rng_range(scope->rng, 0, 3); i < count; i++) {
        int type = (int)rng_range(scope->rng, 0, 2);
        const char *name = arena_printf(scope->arena, "p%d", i), *value;
        if (type == 0) {
            value = arena_printf(scope->arena, "%d",
                                 rng_chance(scope->rng, 85) ? (int)rng_range(scope->rng, -2, 90)
                                 : rng_chance(scope->rng, 50)
                                     ? INT32_MAX - (int)rng_range(scope->rng, 0, 300)
                                     : INT32_MIN + (int)rng_range(scope->rng, 0, 300));
            scope->ints[scope->int_count++] = gen_leaf(scope, TYPE_I32, name, 0);
        } else if (type == 1) {
            value = arena_printf(scope->arena, "%.3f", 3 * rng_normal(scope->rng));
            scope->exact[scope->exact_count++] = gen_leaf(scope, TYPE_F32, name, 15);
            scope->bias[scope->bias_count++] = gen_leaf(scope, TYPE_F32, name, 15);
        } else {
            value = rng_chance(scope->rng, 50) ? "true" : "false";
            scope->bools[scope->bool_count++] = gen_leaf(scope, TYPE_BOOL, name, 0);
        }
        add_item(spec, arena_printf(scope->arena, "param %s: %s = %s", name, types[type], value),
                 NULL, false);
    }
}

/* ---- Captured tensors ---------------------------------------------------- */

static void random_axis(struct gen_scope *scope, const char **extent, const char **natural) {
    static const char *const axes[][2] = {
        {"kv_len", "kv"}, {"q_len", "q"}, {"batch", "b"}, {"heads", "h"}, {"kv_heads", "h_kv"},
        {"kv_len", "kv"}, {"q_len", "q"}, {"24", NULL}, {"3", NULL},
        {"(kv_len + 15) / 16", "kv / 16"}, {"(q_len + 31) / 32", "q / 32"},
    };
    int64_t axis = rng_range(scope->rng, 0, sizeof axes / sizeof *axes - 1);
    *extent = axes[axis][0];
    *natural = axes[axis][1];
    if (strchr(*extent, '/')) /* also used as "x % extent" */
        *extent = arena_printf(scope->arena, "(%s)", *extent);
}

static void add_tables(struct gen_spec *spec, struct gen_scope *scope) {
    static const enum scalar_type types[] = {SCALAR_I32, SCALAR_I32, SCALAR_BOOL, SCALAR_F32,
                                             SCALAR_F16, SCALAR_BF16};
    for (int i = 0, count = (int)rng_range(scope->rng, 0, 3); i < count; i++) {
        struct gen_table *table = &scope->tables[scope->table_count++];
        struct strbuf head;
        table->name = arena_printf(scope->arena, "t%d", i);
        table->type = PICK(scope->rng, types);
        table->rank = (int)rng_range(scope->rng, 1, 3);
        strbuf_init(&head, scope->arena);
        strbuf_printf(&head, "tensor %s: %s[", table->name, scalar_type_text(table->type));
        for (int axis = 0; axis < table->rank; axis++) {
            random_axis(scope, &table->extents[axis], &table->natural[axis]);
            strbuf_printf(&head, "%s%s", axis ? ", " : "", table->extents[axis]);
        }
        strbuf_append(&head, "]");
        add_item(spec, strbuf_text(&head), NULL, false);
    }
}

/* ---- fns and lets -------------------------------------------------------- */

/* A fn of two i32 over nothing but its parameters. */
static void add_fn(struct gen_spec *spec, struct gen_scope *scope) {
    struct gen_scope inner = {.arena = scope->arena, .rng = scope->rng};
    bool is_bool = rng_chance(scope->rng, 50);
    int number = spec->fn_count;
    const char *form = arena_printf(scope->arena, "f%d($0, $1)", number);
    struct strbuf text;
    inner.ints[inner.int_count++] = gen_leaf(&inner, TYPE_I32, "x", 0);
    inner.ints[inner.int_count++] = gen_leaf(&inner, TYPE_I32, "y", 0);
    const struct gen_node *body = is_bool ? gen_bool(&inner, 2) : gen_int(&inner, 2);
    strbuf_init(&text, scope->arena);
    strbuf_printf(&text, "fn f%d(x: i32, y: i32) -> %s = ", number, is_bool ? "bool" : "i32");
    gen_print(body, &text);
    strbuf_append(&text, ";");
    spec->fns[spec->fn_count++] = strbuf_text(&text);
    if (is_bool)
        scope->bool_fns[scope->bool_fn_count++] = form;
    else
        scope->int_fns[scope->int_fn_count++] = form;
}

/* The name of a let; that of a constant is one. */
static const struct gen_node *let_name(struct gen_scope *scope, const char *name,
                                       const struct gen_node *value) {
    struct gen_node *leaf =
        (struct gen_node *)gen_leaf(scope, value->type, name, value->size);
    leaf->constant = value->constant;
    return leaf;
}

static void add_let(struct gen_spec *spec, struct gen_scope *scope, int number) {
    const char *name = arena_printf(scope->arena, "x%d", number);
    const char *head = arena_printf(scope->arena, "let %s = ", name);
    const struct gen_node *value;
    switch (rng_range(scope->rng, 0, 3)) {
    case 0:
        value = gen_bool(scope, 2);
        scope->bools[scope->bool_count++] = let_name(scope, name, value);
        break;
    case 1:
        value = gen_bias(scope, 2);
        scope->bias[scope->bias_count++] = let_name(scope, name, value);
        break;
    default:
        value = gen_int(scope, 2);
        scope->ints[scope->int_count++] = let_name(scope, name, value);
        break;
    }
    add_item(spec, head, value, false);
}

/* ---- Scores and masks ---------------------------------------------------- */

/* The name `s` with the size and slope that it has now; in front of the list. */
static void set_s(struct gen_scope *scope, double size, double slope) {
    struct gen_node *s = (struct gen_node *)gen_leaf(scope, TYPE_F32, "s", size);
    s->slope = slope;
    scope->scores[0] = s;
    if (!scope->score_count)
        scope->score_count = 1;
}

static void add_scale(struct gen_spec *spec, struct gen_scope *scope) {
    static const struct {
        const char *text;
        double factor; /* against 1 / sqrt(head_dim) */
    } rows[] = {{"-0.125", 1}, {"0.0", 0}, {"0.25", 2}, {"1.0 / 16.0", 1}, {"-0.5", 4}};
    int64_t row = rng_range(scope->rng, 0, 19);
    double factor = 1;
    if (row < (int64_t)(sizeof rows / sizeof *rows)) {
        add_item(spec, arena_printf(scope->arena, "scale %s", rows[row].text), NULL, false);
        factor = rows[row].factor;
    }
    set_s(scope, 6 * factor, 1);
}

static void add_score(struct gen_spec *spec, struct gen_scope *scope) {
    const struct gen_node *value = gen_score(scope, (int)rng_range(scope->rng, 1, 4));
    if (!strcmp(value->form, "s"))
        value = gen_node3(scope, TYPE_F32, "($0 + 0.5)", value, NULL, NULL);
    add_item(spec, "score ", value, false);
    set_s(scope, value->size + 1, value->slope > 0 ? value->slope : 1);
}

/* The last score line may write a mask as a number. */
static void add_numeric_mask(struct gen_spec *spec, struct gen_scope *scope) {
    static const char *const forms[] = {"($0 ? s : -inf)", "($0 ? s : s - 1e4)",
                                        "($0 ? s : -1e9)", "($0 ? s : -3.4e38)",
                                        "($0 ? s - 65504.0 : s)"};
    add_item(spec, "score ",
             gen_node3(scope, TYPE_F32, PICK(scope->rng, forms), gen_mask(scope, 2), NULL, NULL),
             false);
}

/* A table read at q - kv, which is in range only where kv <= q. */
static void add_causal_read(struct gen_spec *spec, struct gen_scope *scope) {
    add_item(spec, "tensor back: f32[q_len]", NULL, false);
    add_item(spec, "mask ", gen_leaf(scope, TYPE_BOOL, "kv <= q", 0), true);
    add_item(spec, "score s + ", gen_leaf(scope, TYPE_F32, "back[q - kv]", 8), false);
    set_s(scope, scope->scores[0]->size + 8, scope->scores[0]->slope);
}

static void add_lines(struct gen_spec *spec, struct gen_scope *scope) {
    struct rng *rng = scope->rng;
    int lets = (int)rng_range(rng, 0, 2), scores = (int)rng_range(rng, 0, 2);
    int masks = (int)rng_range(rng, 0, 2);
    if (!scores && !masks)
        masks = 1;
    for (int i = 0; lets + scores + masks > 0; i++)
        switch (rng_range(rng, 0, 2)) {
        case 0:
            if (lets > 0)
                lets--, add_let(spec, scope, i);
            break;
        case 1:
            if (scores > 0)
                scores--, add_score(spec, scope);
            break;
        default:
            if (masks > 0)
                masks--, add_item(spec, "mask ", gen_mask(scope, 3), false);
            break;
        }
    if (rng_chance(rng, 15))
        add_causal_read(spec, scope);
    if (rng_chance(rng, 20))
        add_numeric_mask(spec, scope);
}

/* ---- Shapes -------------------------------------------------------------- */

/* One head of few columns, but several tiles of queries and keys. */
static void choose_many_tiles(struct gen_spec *spec, struct rng *rng) {
    spec->head_dim_qk = spec->head_dim_v = 16;
    spec->group = 0;
    spec->sizes[SIZE_BATCH] = spec->sizes[SIZE_HEADS] = spec->sizes[SIZE_KV_HEADS] = 1;
    spec->sizes[SIZE_Q_LEN] = rng_range(rng, 1, 400);
    spec->sizes[SIZE_KV_LEN] = rng_chance(rng, 50) ? spec->sizes[SIZE_Q_LEN]
                                                   : rng_range(rng, 1, 700);
}

/* A group that may be packed into tiles, with few queries and more heads than the
 * emulator has multiprocessors. */
static void choose_group(struct gen_spec *spec, struct rng *rng) {
    static const int groups[] = {2, 4, 8, 8, 16, 32};
    spec->group = PICK(rng, groups);
    int64_t *n = spec->sizes;
    n[SIZE_KV_HEADS] = spec->group <= 4 ? 3 : 1;
    n[SIZE_HEADS] = n[SIZE_KV_HEADS] * spec->group;
    n[SIZE_Q_LEN] = rng_range(rng, 1, 64 / spec->group + 12);
    n[SIZE_KV_LEN] = rng_chance(rng, 30) ? n[SIZE_Q_LEN] : rng_range(rng, 1, 100);
}

static void choose_shape(struct gen_spec *spec, struct rng *rng) {
    static const int usual[] = {16, 32, 64, 64, 24, 40, 48, 80, 8, 128};
    static const int rare[] = {256, 192, 104, 160, 96, 72};
    spec->dtype = rng_chance(rng, 50) ? "bf16" : "f16";
    spec->head_dim_qk = rng_chance(rng, 90) ? PICK(rng, usual) : PICK(rng, rare);
    spec->head_dim_v = rng_chance(rng, 80) ? spec->head_dim_qk : PICK(rng, usual);
    int ratio = (int)rng_range(rng, 1, 4);
    spec->group = rng_chance(rng, 40) ? ratio : 0;
    spec->bshd = rng_chance(rng, 50);
    int64_t *n = spec->sizes;
    n[SIZE_BATCH] = rng_range(rng, 1, 2);
    n[SIZE_KV_HEADS] = ratio == 1 ? rng_range(rng, 1, 2) : 1;
    n[SIZE_HEADS] = n[SIZE_KV_HEADS] * ratio;
    bool few = n[SIZE_BATCH] * n[SIZE_HEADS] <= 2;
    n[SIZE_Q_LEN] = rng_chance(rng, 10) ? 1 : rng_range(rng, 1, few ? 140 : 50);
    n[SIZE_KV_LEN] = rng_chance(rng, 30) ? n[SIZE_Q_LEN] : rng_range(rng, 1, few ? 200 : 100);
    if (n[SIZE_BATCH] * n[SIZE_HEADS] == 1 || rng_chance(rng, 15))
        choose_many_tiles(spec, rng);
    else if (rng_chance(rng, 15))
        choose_group(spec, rng);
}

/* Pinned schedules; those that a target cannot have are dropped by the driver. */
static void choose_schedule(struct gen_spec *spec, struct arena *arena, struct rng *rng) {
    static const int rows[] = {64, 64, 128, 192, 32}, columns[] = {32, 64, 64, 128, 16};
    static const char *const orders[] = {"linear", "lpt", "dynamic"};
    static const char *const overlaps[] = {"intra", "pingpong"};
    if (!rng_chance(rng, 30))
        return;
    if (rng_chance(rng, 25))
        spec->schedule = arena_printf(arena, "schedule { exp_poly %d%%; }",
                                      (int)rng_range(rng, 5, 100));
    else if (rng_chance(rng, 40))
        spec->schedule = arena_printf(arena, "schedule { stages %d; }",
                                      (int)rng_range(rng, 1, 3));
    else if (rng_chance(rng, 25))
        spec->schedule = arena_printf(arena, "schedule { order %s; }", PICK(rng, orders));
    else if (rng_chance(rng, 25))
        spec->schedule = arena_printf(arena, "schedule { tile 128, %d; overlap %s; order %s; }",
                                      PICK(rng, columns), PICK(rng, overlaps),
                                      PICK(rng, orders));
    else
        spec->schedule = arena_printf(arena, "schedule { tile %d, %d; stages %d; }",
                                      PICK(rng, rows), PICK(rng, columns),
                                      (int)rng_range(rng, 1, 3));
}

struct gen_spec *gen_spec_create(struct arena *arena, uint64_t seed) {
    struct gen_spec *spec = ARENA_NEW(arena, struct gen_spec);
    struct rng rng = {seed * 0x2545f4914f6cdd1du + 1};
    struct gen_scope scope = {.arena = arena, .rng = &rng};
    rng_next(&rng);
    choose_shape(spec, &rng);
    choose_schedule(spec, arena, &rng);
    spec->data_seed = rng_next(&rng);
    for (int i = 0, count = (int)rng_range(&rng, 0, 2); i < count; i++)
        add_fn(spec, &scope);
    add_names(&scope);
    add_params(spec, &scope);
    add_tables(spec, &scope);
    add_scale(spec, &scope);
    add_lines(spec, &scope);
    return spec;
}

void gen_spec_print(const struct gen_spec *spec, struct strbuf *out) {
    for (int i = 0; i < spec->fn_count; i++)
        strbuf_printf(out, "%s\n", spec->fns[i]);
    strbuf_printf(out, "attention random {\n    dtype %s;\n    head_dim %d", spec->dtype,
                  spec->head_dim_qk);
    if (spec->head_dim_v != spec->head_dim_qk)
        strbuf_printf(out, ", %d", spec->head_dim_v);
    strbuf_append(out, ";\n    group ");
    if (spec->group)
        strbuf_printf(out, "%d;\n", spec->group);
    else
        strbuf_append(out, "any;\n");
    for (int i = 0; i < spec->item_count; i++) {
        strbuf_printf(out, "    %s", spec->items[i].head);
        if (spec->items[i].value)
            gen_print(spec->items[i].value, out);
        strbuf_append(out, ";\n");
    }
    if (spec->schedule)
        strbuf_printf(out, "    %s\n", spec->schedule);
    strbuf_append(out, "}\n");
}
