/* The checked spec: types, conversions, folding, dependence, items, schedule.
 * What is refused is in tests/errors. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "tests/unit/frontend_util.h"

static const struct attention *first(const struct checked *c) {
    cr_assert_not_null(c->spec, "%s", messages(c));
    return &c->spec->attentions[0];
}

static const struct expr *last_value(const struct checked *c) {
    const struct attention *a = first(c);
    return a->items[a->item_count - 1].value;
}

static const char *printed(const struct checked *c, const struct expr *expr) {
    struct strbuf out;
    strbuf_init(&out, c->arena);
    ast_print_expr(&out, expr);
    return strbuf_text(&out);
}

#define PRELUDE                                                              \
    "fn half(x: f32) -> f32 = x / 2; fn first(x: i32, y: i32) -> i32 = x;\n" \
    "const N = 4; const Z = 0;"
#define NAMES                                                              \
    "param i: i32; param x: f32; param p: bool; tensor t: bf16[q_len, 4];" \
    "tensor m: bool[kv_len];\n"

struct value {
    const char *item, *expected;
    enum value_type type;
};

/* The value of the last item, printed, and its type. */
static void expect_values(const struct value *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct arena *arena = arena_create();
        struct checked c = check_items(
            PRELUDE, arena_printf(arena, "%s%s", NAMES, cases[i].item));
        cr_expect_str_eq(printed(&c, last_value(&c)), cases[i].expected, "%s",
                         cases[i].item);
        cr_expect_eq(last_value(&c)->type, cases[i].type, "%s", cases[i].item);
        checked_free(&c);
        arena_destroy(arena);
    }
}

Test(sema, conversions_are_nodes) {
    static const struct value cases[] = {
        {"let v = i + x;", "(f32(i) + x)", TYPE_F32},
        {"let v: f32 = i;", "f32(i)", TYPE_F32},
        {"let v = half(i);", "half(f32(i))", TYPE_F32},
        {"let v = p ? i : x;", "select(p, f32(i), x)", TYPE_F32},
        {"let v = i < x;", "(f32(i) < x)", TYPE_BOOL},
        {"let v = max(i, x);", "max(f32(i), x)", TYPE_F32},
        {"let v = max(i, 3);", "max(i, 3)", TYPE_I32},
        {"let v = floor(i);", "floor(f32(i))", TYPE_F32},
        {"let v = t[i, 3];", "t[i, 3]", TYPE_F32},
        {"let v = m[kv];", "m[kv]", TYPE_BOOL},
        {"let v = i32(x) + i32(p) + i32(i);", "((i32(x) + i32(p)) + i)",
         TYPE_I32},
        {"let v = bool(x) ^ bool(i);", "(bool(x) ^ bool(i))", TYPE_BOOL},
        {"let v = i / 3;", "(i / 3)", TYPE_I32},
        {"score 3 * s;", "(3.0 * s)", TYPE_F32},
        {"score select(p, i, s);", "select(p, f32(i), s)", TYPE_F32},
    };
    expect_values(cases, sizeof cases / sizeof *cases);
}

Test(sema, constants_fold) {
    static const struct value cases[] = {
        {"let v = 1 + 2 * N;", "9", TYPE_I32},
        {"let v = 1.0 / sqrt(256.0);", "0.0625", TYPE_F32},
        {"let v = -7 / 2;", "-4", TYPE_I32},
        {"let v = 7 % -4;", "-1", TYPE_I32},
        {"let v = 0xFFFFFFFF;", "-1", TYPE_I32},
        {"let v = -2147483648;", "-2147483648", TYPE_I32},
        {"let v = 1 << 31;", "-2147483648", TYPE_I32},
        {"let v = -inf;", "-inf", TYPE_F32},
        {"let v = i32(1e20);", "2147483647", TYPE_I32},
        {"let v = Z == 0 ? i : i / Z;", "i", TYPE_I32},
        {"let v = Z != 0 && i % Z == 1;", "false", TYPE_BOOL},
        {"let v = true && p;", "p", TYPE_BOOL},
        {"let v = p || true;", "true", TYPE_BOOL},
        {"let v = select(N > 3, 1, x);", "1.0", TYPE_F32},
        {"let w = 3; let v = w + 1;", "4", TYPE_I32},
        {"let v = 0.1 + 0.2;", "0.300000012", TYPE_F32},
        {"let v = min(3, 2.5);", "2.5", TYPE_F32},
        {"let v = half(3.0);", "half(3.0)", TYPE_F32},
    };
    expect_values(cases, sizeof cases / sizeof *cases);
}

struct dependence {
    const char *item;
    uint32_t deps;
};

Test(sema, dependence_goes_through_lets_and_used_parameters) {
    static const struct dependence cases[] = {
        {"let v = q - kv;", DEP_Q | DEP_KV},
        {"let d = q; let v = d + h;", DEP_Q | DEP_H},
        {"let v = first(q, kv);", DEP_Q},
        {"let v = t[q, i] * s;", DEP_Q | DEP_TENSOR | DEP_PARAM | DEP_S},
        {"let v = b + h_kv + batch;", DEP_B | DEP_H_KV | DEP_SIZE},
        {"let v = half(x);", DEP_PARAM},
        {"let v = true ? q : kv;", DEP_Q},
        {"let v = 3;", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *arena = arena_create();
        struct checked c = check_items(
            PRELUDE, arena_printf(arena, "%s%s", NAMES, cases[i].item));
        cr_expect_eq(last_value(&c)->deps, cases[i].deps, "%s: %x",
                     cases[i].item, last_value(&c)->deps);
        checked_free(&c);
        arena_destroy(arena);
    }
}

Test(sema, queries_of_dependence) {
    struct checked c =
        check_items("", "let u = batch; let r = q * h; score s + f32(kv);");
    const struct attention *a = first(&c);
    cr_assert(ast_is_uniform(a->items[0].value));
    cr_assert(ast_uses_row(a->items[1].value) &&
              ast_uses_head(a->items[1].value));
    cr_assert_not(ast_uses_column(a->items[1].value));
    cr_assert(ast_uses_column(a->items[2].value) &&
              ast_uses_score(a->items[2].value));
    checked_free(&c);
}

Test(sema, items_keep_their_order) {
    struct checked c =
        check_items("", "param cap: f32 = 50.0; score s * 2; let t = s; score "
                        "cap * tanh(s / cap) + t;"
                        "mask kv <= q; let u = t; mask q - kv < 7; target "
                        "sm_90a, sm_80; target sm_100a;");
    const struct attention *a = first(&c);
    static const enum item_kind kinds[] = {ITEM_SCORE, ITEM_LET, ITEM_SCORE,
                                           ITEM_MASK,  ITEM_LET, ITEM_MASK};
    cr_assert_eq(a->item_count, 6);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(a->items[i].kind, kinds[i]);
    cr_assert_eq(a->let_count, 2);
    cr_assert_eq(a->items[4].let, a->lets[1]);
    cr_assert_eq(a->lets[1]->value->let, a->lets[0]);
    cr_assert_eq(a->target_count, 3);
    cr_assert_str_eq(a->targets[2].name, "sm_100a");
    checked_free(&c);
}

Test(sema, head_of_the_attention) {
    struct checked c =
        check_text("const D = 96; attention a { dtype f16; head_dim D * 2, D + "
                   "32; group D / 12;\n"
                   "param w: i32 = -3; param y: f32 = 2; param z: bool = true; "
                   "param n: i32;\n"
                   "scale y * 0.5; mask w < n && z; tensor u: f32[heads, "
                   "kv_len / 2 + n]; score s + u[h, 0];}");
    const struct attention *a = first(&c);
    cr_assert_eq(a->dtype, SCALAR_F16);
    cr_assert(a->head_dim_qk == 192 && a->head_dim_v == 128 && a->group == 8);
    cr_assert_eq((int32_t)a->params[0].default_bits, -3);
    cr_assert_eq(a->params[1].default_bits, 0x40000000u);
    cr_assert(a->params[2].has_default && !a->params[3].has_default);
    cr_assert_str_eq(printed(&c, a->scale), "(y * 0.5)");
    cr_assert(a->tensors[0].rank == 2 && a->tensors[0].used);
    checked_free(&c);
}

Test(sema, defaults) {
    struct checked c = check_text("attention a { dtype bf16; head_dim 64; }");
    const struct attention *a = first(&c);
    cr_assert(a->head_dim_v == 64 && a->group == 0 && !a->scale &&
              a->target_count == 0);
    cr_assert_eq(ast_find_attention(c.spec, "a"), a);
    cr_assert_null(ast_find_attention(c.spec, "b2"));
    checked_free(&c);
}

Test(sema, schedule) {
    struct checked c = check_items(
        "const T = 64;",
        "schedule { tile T * 2, T; stages 3; consumers 2; overlap pingpong;"
        "exp_poly 25%; rescale_threshold 8.0; order lpt; }");
    const struct schedule *s = &first(&c)->schedule;
    for (int i = 0; i < SCHEDULE_KEY_COUNT; i++)
        cr_assert(s->given[i] && s->where[i].file);
    cr_assert(s->tile_m == 128 && s->tile_n == 64 && s->stages == 3 &&
              s->consumers == 2);
    cr_assert(s->overlap == OVERLAP_PINGPONG && s->order == ORDER_LPT);
    cr_assert(s->exp_poly == 0.25f && s->rescale_threshold == 8.0f);
    checked_free(&c);
}

Test(sema, schedule_overrides) {
    struct checked c =
        check_items("const T = 64;", "schedule { stages 3; order lpt; }");
    struct schedule s = first(&c)->schedule;
    cr_assert(frontend_override_schedule(c.arena, c.sources, c.spec,
                                         "tile T,32; stages 2", &s, c.diags));
    cr_assert(s.tile_m == 64 && s.tile_n == 32 && s.stages == 2 &&
              s.order == ORDER_LPT);
    struct schedule before = s;
    cr_assert_not(frontend_override_schedule(c.arena, c.sources, c.spec,
                                             "stages 4; tiel 3", &s, c.diags));
    cr_assert_eq(memcmp(&s, &before, sizeof s), 0,
                 "a faulty text changes nothing");
    cr_assert_not_null(
        strstr(messages(&c), "--schedule:1:11: error: unknown schedule key"));
    cr_assert(frontend_override_schedule(c.arena, c.sources, c.spec, "", &s,
                                         c.diags));
    cr_assert(frontend_override_schedule(c.arena, c.sources, c.spec,
                                         "stages 5;", &s, c.diags));
    checked_free(&c);
}

Test(sema, a_library_has_no_attention) {
    struct checked c = check_text("const A = 1; fn f(x: i32) -> i32 = x + A;");
    cr_assert_not_null(c.spec);
    cr_assert_eq(c.spec->attention_count, 0);
    cr_assert(c.spec->fn_count == 1 && c.spec->const_count == 1);
    checked_free(&c);
}

Test(sema, definitions_in_any_order) {
    struct checked c =
        check_text("attention a { dtype f16; head_dim D; mask f(q) < D; }\n"
                   "fn f(x: i32) -> i32 = g(x) + D; const D = E * 2;\n"
                   "fn g(x: i32) -> i32 = x; const E = 32;");
    cr_assert_eq(first(&c)->head_dim_qk, 64);
    checked_free(&c);
}

Test(sema, size_expressions) {
    struct checked c = check_items(
        "fn blocks(n: i32, size: i32) -> i32 = (n + size - 1) / size;",
        "param w: i32; param z: bool; tensor t: f32[blocks(kv_len, 1 << 6), "
        "z ? max(w, 2) : clamp(heads, 1, 4)]; score s + t[0, 0];");
    struct size_expr code;
    cr_assert(ast_size_expr(c.arena, first(&c)->tensors[0].extents[0], &code));
    static const enum size_op ops[] = {
        SIZE_OP_SIZE, SIZE_OP_CONST, SIZE_OP_ADD,     SIZE_OP_CONST,
        SIZE_OP_SUB,  SIZE_OP_CONST, SIZE_OP_FLOORDIV};
    cr_assert_eq(code.count, 7);
    for (size_t i = 0; i < 7; i++)
        cr_assert_eq(code.steps[i].op, ops[i]);
    cr_assert_eq(code.steps[0].value, SIZE_KV_LEN);
    cr_assert_eq(code.steps[5].value, 64);
    cr_assert(ast_size_expr(c.arena, first(&c)->tensors[0].extents[1], &code));
    cr_assert_eq(code.steps[0].op, SIZE_OP_PARAM);
    cr_assert_eq(code.steps[0].value, 1);
    cr_assert_eq(code.steps[code.count - 1].op, SIZE_OP_SELECT);
    checked_free(&c);
}

/* Evaluates launch-time code, as the runtime does. */
static int64_t run(const struct size_expr *code, const int64_t *sizes,
                   const int64_t *params) {
    int64_t stack[64];
    size_t top = 0;
    for (size_t i = 0; i < code->count; i++) {
        const struct size_step *step = &code->steps[i];
        int64_t b = top ? stack[top - 1] : 0, a = top > 1 ? stack[top - 2] : 0;
        switch (step->op) {
        case SIZE_OP_CONST:
            stack[top++] = step->value;
            continue;
        case SIZE_OP_SIZE:
            stack[top++] = sizes[step->value];
            continue;
        case SIZE_OP_PARAM:
            stack[top++] = params[step->value];
            continue;
        case SIZE_OP_NEG:
            stack[top - 1] = -b;
            continue;
        case SIZE_OP_NOT:
            stack[top - 1] = ~b;
            continue;
        case SIZE_OP_ABS:
            stack[top - 1] = b < 0 ? -b : b;
            continue;
        case SIZE_OP_SELECT:
            top -= 2;
            stack[top - 1] = stack[top - 1] ? a : b;
            continue;
        case SIZE_OP_ADD:
            a += b;
            break;
        case SIZE_OP_SUB:
            a -= b;
            break;
        case SIZE_OP_MUL:
            a *= b;
            break;
        case SIZE_OP_FLOORDIV:
            a = a / b - (a % b && (a < 0) != (b < 0));
            break;
        case SIZE_OP_FLOORMOD:
            a = (a % b + b) % b;
            break;
        case SIZE_OP_MIN:
            a = a < b ? a : b;
            break;
        case SIZE_OP_MAX:
            a = a > b ? a : b;
            break;
        case SIZE_OP_AND:
            a &= b;
            break;
        case SIZE_OP_OR:
            a |= b;
            break;
        case SIZE_OP_XOR:
            a ^= b;
            break;
        case SIZE_OP_SHL:
            a <<= b;
            break;
        case SIZE_OP_SHR:
            a >>= b;
            break;
        case SIZE_OP_LT:
            a = a < b;
            break;
        case SIZE_OP_LE:
            a = a <= b;
            break;
        case SIZE_OP_EQ:
            a = a == b;
            break;
        case SIZE_OP_NE:
            a = a != b;
            break;
        case SIZE_OP_SM_COUNT:
        case SIZE_OP_CEILDIV:
        case SIZE_OP_COUNT:
            cr_assert_fail("not emitted by the front end");
        }
        stack[--top - 1] = a;
    }
    cr_assert_eq(top, 1);
    return stack[0];
}

struct extent_case {
    const char *extent;
    int64_t expected;
};

/* batch 2, heads 8, kv_heads 4, q_len 100, kv_len 3000000000; w = 7, z =
 * true */
Test(sema, size_expressions_compute_in_64_bits) {
    static const struct extent_case cases[] = {
        {"kv_len * 4", 12000000000},
        {"(kv_len - q_len) / w", 428571414},
        {"q_len % 33 + heads / kv_heads", 3},
        {"-(q_len - 200)", 100},
        {"~(-q_len)", 99},
        {"abs(batch - heads)", 6},
        {"i32(z) + i32(q_len > heads) + i32(q_len >= 100)", 3},
        {"i32(!z) + i32(bool(w)) + i32(z && w < 8) + i32(w == 8 || z)", 3},
        {"clamp(q_len, 1, 64)", 64},
        {"min(q_len, w) + max(q_len, w)", 107},
        {"z ? w : heads", 7},
        {"w != 7 ? w : heads", 8},
        {"twice(twice(w, 1), q_len & 6)", 31},
        {"n + (1 << 3) + (q_len >> 2) + (w | 8) + (w ^ 1)", 66},
    };
    static const int64_t sizes[] = {2, 8, 4, 100, 3000000000},
                         params[] = {7, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *arena = arena_create();
        struct checked c =
            check_items("fn twice(x: i32, y: i32) -> i32 = x * 2 + y - 1;",
                        arena_printf(arena,
                                     "param w: i32; param z: bool; let n = "
                                     "q_len / 5 - w + 2 - w %% 4;"
                                     "tensor t: i32[%s]; mask t[0] < w && z;",
                                     cases[i].extent));
        struct size_expr code;
        cr_assert(
            ast_size_expr(c.arena, first(&c)->tensors[0].extents[0], &code));
        int64_t found = run(&code, sizes, params);
        cr_expect_eq(found, cases[i].expected, "%s: %ld", cases[i].extent,
                     (long)found);
        checked_free(&c);
        arena_destroy(arena);
    }
}

Test(sema, inlining) {
    struct checked c =
        check_items("fn twice(x: i32, y: i32) -> i32 = x + x * y;",
                    "mask twice(q, kv - 1) < 3;");
    const struct expr *call = last_value(&c)->args[0];
    cr_assert_eq(call->kind, EXPR_CALL);
    cr_assert_eq(call->fn->params[0].uses, 2);
    const struct expr *body = ast_inline(c.arena, call->fn->body, call->args);
    cr_assert_str_eq(printed(&c, body), "(q + (q * (kv - 1)))");
    cr_assert_eq(body->deps, DEP_Q | DEP_KV);
    checked_free(&c);
}

Test(sema, inlining_keeps_inner_calls) {
    struct checked c = check_items(
        "fn one() -> i32 = 1; fn add(x: i32, y: i32) -> i32 = x + y;\n"
        "fn both(x: i32) -> i32 = add(x, one()) * add(2, 3) + batched(x);"
        "fn batched(x: i32) -> i32 = x;",
        "mask both(q - b) < 3;");
    const struct expr *call = last_value(&c)->args[0];
    const struct expr *body = ast_inline(c.arena, call->fn->body, call->args);
    cr_assert_str_eq(printed(&c, body),
                     "((add((q - b), one()) * add(2, 3)) + batched((q - b)))");
    cr_assert_eq(body->deps, DEP_Q | DEP_B);
    checked_free(&c);
}

static void count_nodes(void *ctx, const struct expr *node) {
    size_t *counts = ctx;
    counts[node->kind]++;
}

Test(sema, walking_enters_fns_and_not_lets) {
    struct checked c = check_items("fn f(x: i32) -> i32 = x * 3;",
                                   "let d = q - kv; mask f(d) + f(h) < 3;");
    size_t counts[EXPR_CALL + 1] = {0};
    ast_walk(last_value(&c), count_nodes, counts);
    cr_assert_eq(counts[EXPR_CALL], 2);
    cr_assert_eq(counts[EXPR_FN_PARAM], 2);
    cr_assert_eq(counts[EXPR_LET], 1);
    cr_assert_eq(counts[EXPR_INDEX], 1);
    cr_assert_eq(counts[EXPR_BINARY], 4);
    checked_free(&c);
}

Test(sema, values_of_constants) {
    struct checked c = check_items(
        "", "let i = 1 - 3; let f = 1.0 / 4; let t = 1 < 2; let n = -i;");
    const struct attention *a = first(&c);
    cr_assert_eq(ast_const_i32(a->items[0].value), -2);
    cr_assert_eq(ast_const_f32(a->items[1].value), 0.25f);
    cr_assert(ast_const_bool(a->items[2].value) &&
              ast_is_const(a->items[3].value));
    cr_assert_eq(ast_scalar_type(TYPE_F32), SCALAR_F32);
    cr_assert_eq(ast_scalar_type(TYPE_I32), SCALAR_I32);
    cr_assert_eq(ast_scalar_type(TYPE_BOOL), SCALAR_BOOL);
    checked_free(&c);
}

Test(sema, the_canonical_text_holds_the_schedule) {
    struct checked c = check_items(
        "", "schedule { tile 64, 32; stages 2; consumers 2; order lpt;"
            "overlap intra; exp_poly 50%; rescale_threshold 8; }");
    struct strbuf text;
    strbuf_init(&text, c.arena);
    ast_print_attention(&text, first(&c));
    cr_assert_not_null(
        strstr(strbuf_text(&text),
               "schedule tile 64,32 stages 2 consumers 2 overlap 1 exp_poly "
               "0x3f000000 rescale_threshold 0x41000000 order 1;"));
    checked_free(&c);
}

Test(sema, names_of_targets_and_warnings) {
    cr_assert(frontend_target_is_known("sm_80") &&
              !frontend_target_is_known("sm_81"));
    for (const char *const *name = frontend_targets(); *name; name++)
        cr_assert(frontend_target_is_known(*name));
    cr_assert_str_eq(frontend_warnings()[0], "hides-import");
}

Test(sema, the_canonical_text_ignores_layout_and_names_of_lets) {
    struct checked a =
        check_items("fn f(x: i32) -> i32 = x;", "let d = q; mask f(d) < 3;");
    struct checked b = check_items("// note\nfn f ( y : i32 )->i32=(y) ;",
                                   "let e=q;/* x */ mask f(e)<(3);");
    struct checked other =
        check_items("fn f(x: i32) -> i32 = x;", "let d = q; mask f(d) < 4;");
    struct strbuf texts[3];
    const struct checked *all[] = {&a, &b, &other};
    for (int i = 0; i < 3; i++) {
        strbuf_init(&texts[i], all[i]->arena);
        ast_print_attention(&texts[i], first(all[i]));
    }
    cr_assert_str_eq(strbuf_text(&texts[0]), strbuf_text(&texts[1]));
    cr_assert_str_neq(strbuf_text(&texts[0]), strbuf_text(&texts[2]));
    checked_free(&a), checked_free(&b), checked_free(&other);
}

Test(sema, places_of_nodes) {
    struct checked c = check_items("", "mask kv <= q + 1;");
    struct source_place place =
        source_locate(c.sources, last_value(&c)->args[1]->where);
    cr_assert(place.line == 3 && place.column == 12 && place.end_column == 17);
    checked_free(&c);
}

static void *check_many(void *arg) {
    size_t *wrong = arg;
    for (int i = 0; i < 50; i++) {
        struct checked c =
            check_items(PRELUDE, NAMES "score half(s) + x; mask m[kv] && zz;");
        *wrong += diag_error_count(c.diags) != 1;
        checked_free(&c);
    }
    return NULL;
}

Test(sema, threads_do_not_disturb_each_other) {
    pthread_t threads[4];
    size_t wrong[4] = {0};
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, check_many, &wrong[i]);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(wrong[i], 0);
    }
}
