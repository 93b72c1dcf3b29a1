/* Precedence, associativity, contextual words, recovery, limits. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/frontend_util.h"

struct pair {
    const char *text, *expected;
};

/* The value of the last line of an attention with a few params. */
static void expect_value(const char *item, const char *expected) {
    struct arena *arena = arena_create();
    struct checked c = check_items(
        "fn f(x: i32) -> i32 = x;",
        arena_printf(
            arena,
            "param i: i32; param j: i32; param p: bool; param x: f32; %s",
            item));
    struct strbuf out;
    strbuf_init(&out, arena);
    if (c.spec && c.spec->attentions[0].item_count) {
        const struct attention *a = &c.spec->attentions[0];
        ast_print_expr(&out, a->items[a->item_count - 1].value);
    }
    cr_expect_str_eq(strbuf_text(&out), expected, "%s gives %s\n%s", item,
                     strbuf_text(&out), messages(&c));
    checked_free(&c);
    arena_destroy(arena);
}

Test(parser, precedence_is_that_of_c) {
    static const struct pair cases[] = {
        {"let v = i + j * q;", "(i + (j * q))"},
        {"let v = i - j - q;", "((i - j) - q)"},
        {"let v = i / j * q % kv;", "(((i / j) * q) % kv)"},
        {"let v = i << j + q;", "(i << (j + q))"},
        {"let v = i >> j < q;", "((i >> j) < q)"},
        {"let v = i < j == p;", "((i < j) == p)"},
        {"let v = i & j ^ q | kv;", "(((i & j) ^ q) | kv)"},
        {"let v = i | j ^ q & kv;", "(i | (j ^ (q & kv)))"},
        {"let v = p && i < j || q < kv && p;",
         "((p && (i < j)) || ((q < kv) && p))"},
        {"let v = p ? i : p ? j : q;", "select(p, i, select(p, j, q))"},
        {"let v = p ? p ? i : j : q;", "select(p, select(p, i, j), q)"},
        {"let v = p || p ? i : j;", "select((p || p), i, j)"},
        {"let v = -i * j;", "(-(i) * j)"},
        {"let v = - - ~i;", "-(-(~(i)))"},
        {"let v = !p && p;", "(!(p) && p)"},
        {"let v = (i + j) * q;", "((i + j) * q)"},
        {"let v = -f(i)[j];", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_value(cases[i].text, cases[i].expected);
}

Test(parser, words_are_names_where_no_item_can_start) {
    expect_value("param mask: i32; let score = mask; let v = score + mask;",
                 "(score + mask)");
    expect_value("param fn: i32; param const: i32; let v = fn + const;",
                 "(fn + const)");
    expect_value(
        "let tile = i; let stages = tile; let any = stages; let v = any;",
        "any");
}

Test(parser, stray_semicolons_are_fine) {
    struct checked c =
        check_text(";;const A = 1;;attention a {; dtype f16;;head_dim 8;"
                   "schedule {; stages 2;; };};");
    cr_assert_not_null(c.spec, "%s", messages(&c));
    cr_assert_eq(c.spec->attentions[0].schedule.stages, 2);
    checked_free(&c);
}

Test(parser, every_error_of_a_file_in_one_run) {
    struct checked c =
        check_items("const A = ;", "maks q;\nmask zz;\nlet x = ;\nmask q < x;\n"
                                   "schedule { stages ; tile 8; }\nscore yy;");
    cr_assert_eq(diag_error_count(c.diags), 7, "%s", messages(&c));
    checked_free(&c);
}

static size_t error_count(const char *text) {
    struct checked c = check_text(text);
    size_t count = diag_error_count(c.diags);
    checked_free(&c);
    return count;
}

static void fill(char *out, const char *unit, int times) {
    for (int i = 0; i < times; i++)
        strcat(out, unit);
}

/* `times` repetitions of `unit` before q < 3. */
static size_t errors_of_nesting(const char *unit, int times,
                                const char *closing) {
    char *text = calloc(1, 1 << 20);
    strcpy(text, "attention a { dtype f16; head_dim 8; mask ");
    fill(text, unit, times);
    strcat(text, "q");
    fill(text, closing, times);
    strcat(text, " < 3; }");
    size_t count = error_count(text);
    free(text);
    return count;
}

Test(parser, nesting_of_256_is_legal_and_257_is_one_error) {
    cr_expect_eq(errors_of_nesting("(", 256, ")"), 0);
    cr_expect_eq(errors_of_nesting("(", 257, ")"), 1);
    cr_expect_eq(errors_of_nesting("- ", 256, ""), 0);
    cr_expect_eq(errors_of_nesting("- ", 257, ""), 1);
    cr_expect_eq(errors_of_nesting("abs(", 256, ")"), 0);
    cr_expect_eq(errors_of_nesting("abs(", 257, ")"), 1);
    cr_expect_eq(errors_of_nesting("- ", 20000, ""), 1);
    cr_expect_eq(errors_of_nesting("(", 20000, ""), 1);
}

Test(parser, chains_do_not_count_as_nesting) {
    cr_expect_eq(errors_of_nesting("q + ", 1000, ""), 0);
    cr_expect_eq(errors_of_nesting("q + ", 5000, ""), 1);
}

Test(parser, every_prefix_of_a_file_is_an_error_or_legal) {
    const char *text =
        "const T = 1 + 2; fn f(x: f32, q: i32) -> f32 = q < T ? x : -x;\n"
        "attention a { dtype bf16; head_dim 64, 32; group any; scale f(1.0, "
        "2);\n"
        "param w: i32 = 0x10; tensor t: f16[heads, (q_len + 1) / 2];\n"
        "let d: i32 = q - kv; score s * t[h, q] + f32(d); mask d < w || !(q != "
        "3);"
        "target sm_80, sm_90a; schedule { tile 64, 32; exp_poly 25%; } }";
    char *prefix = calloc(1, strlen(text) + 1);
    for (size_t n = 0; n <= strlen(text); n++) {
        memcpy(prefix, text, n);
        struct checked c = check_text(prefix);
        cr_expect_eq(c.spec == NULL, diag_error_count(c.diags) > 0);
        checked_free(&c);
    }
    free(prefix);
    cr_assert_eq(error_count(text), 0);
}
