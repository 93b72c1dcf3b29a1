/* Canonical layout: fixed cases, idempotence, comments, meaning. */
#include <criterion/criterion.h>
#include <string.h>

#include "frontend/format.h"
#include "tests/unit/frontend_util.h"

/* The formatted text in *c's arena; NULL for a text with errors. */
static const char *formatted(struct checked *c, const char *text) {
    c->arena = arena_create();
    c->sources = source_set_create(c->arena);
    c->diags = diag_sink_create(c->arena, c->sources);
    const struct source_file *file =
        source_add_text(c->sources, "t", text, strlen(text));
    size_t length;
    const char *out = format_source(c->arena, file, c->diags, &length);
    cr_expect(!out || strlen(out) == length);
    return out;
}

/* `text` becomes `expected`, and that stays as it is. */
static void expect_format(const char *text, const char *expected) {
    struct checked once, twice;
    const char *out = formatted(&once, text);
    cr_expect_str_eq(out ? out : "(errors)", expected, "got:\n%s", out);
    const char *again = out ? formatted(&twice, out) : NULL;
    cr_expect_str_eq(again ? again : "(errors)", expected,
                     "the second time:\n%s", again);
    checked_free(&once);
    if (out)
        checked_free(&twice);
}

Test(format, items_get_lines_and_a_column) {
    expect_format(
        "attention a{dtype bf16;head_dim 64 ,32;mask kv<=q&&!(q-kv>=-w)  ;"
        "tensor t:i32 [ batch,kv_len ] ;param w:i32=3;}",
        "attention a {\n"
        "    dtype    bf16;\n"
        "    head_dim 64, 32;\n"
        "    mask     kv <= q && !(q - kv >= -w);\n"
        "    tensor   t: i32[batch, kv_len];\n"
        "    param    w: i32 = 3;\n"
        "}\n");
}

Test(format, operators_and_prefixes) {
    expect_format("const A=- 1+ -2*~3- -4;const B=A>0?A:-A;fn f( x:i32,y:f32 "
                  ")->f32=-y*f(x,- y) ;",
                  "const A = -1 + -2 * ~3 - -4;\n"
                  "const B = A > 0 ? A : -A;\n"
                  "fn f(x: i32, y: f32) -> f32 = -y * f(x, -y);\n");
    expect_format(
        "attention a{scale -1.0;score -s;mask !p;scale (1);let x=(1);}",
        "attention a {\n    scale    -1.0;\n    score    -s;\n    mask     "
        "!p;\n"
        "    scale    (1);\n    let      x = (1);\n}\n");
}

Test(format, schedules) {
    expect_format(
        "attention a{schedule{tile 64,64;exp_poly 25 %;x 5%2;rescale_threshold "
        "-1;}}",
        "attention a {\n    schedule {\n        tile 64, 64;\n        exp_poly "
        "25%;\n"
        "        x 5 % 2;\n        rescale_threshold -1;\n    }\n}\n");
}

Test(format, comments_stay) {
    expect_format(
        "// head\n\n\n\n/* block\n   of two */\nconst A=1; // one\nconst "
        "LONG=2; // two\n"
        "/* before */ const B = /* inside */ 3 /* behind */;\n// last",
        "// head\n\n/* block\n   of two */\nconst A = 1;     // one\n"
        "const LONG = 2;  // two\n/* before */\nconst B = /* inside */ 3 /* "
        "behind */;\n"
        "// last\n");
    expect_format(
        "attention a {// x\n  // y\n\n  dtype f16 // z\n ; // w\n }// end",
        "attention a {  // x\n    // y\n\n    dtype    f16 // z\n             "
        ";  // w\n"
        "}  // end\n");
}

Test(format, at_most_one_blank_line) {
    expect_format("\n\nconst A = 1;\n\n\n\nconst B = 2;\nconst C = 3;\n\n",
                  "const A = 1;\n\nconst B = 2;\nconst C = 3;\n");
    expect_format("attention a {\n\n\n  dtype f16;\n\n}\n",
                  "attention a {\n    dtype    f16;\n}\n");
}

Test(format, long_lines_wrap_before_an_operator) {
    struct checked c;
    const char *out =
        formatted(&c, "attention a { mask aaaaaaaaaaaaaaaaaaaaaaaa < "
                      "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb && "
                      "cccccccccccccccccccccccccc < dddddddddddddddddddd || "
                      "eeeeeeeeeeeeeeeeeee(f, g) < h; }");
    for (const char *line = out; *line; line = strchr(line, '\n') + 1)
        cr_expect(strchr(line, '\n') - line <= 96, "too long: %s", line);
    cr_expect_not_null(strstr(out, "\n             && cccccccccc"), "%s", out);
    checked_free(&c);
}

Test(format, breaks_prefer_the_loosest_operator) {
    expect_format(
        "fn f(x: i32) -> i32 = x;\nconst C = 1;\nattention a { tensor t: "
        "bool[9, 9, 9];"
        "mask abs(row - column) <= 1 || row < globals || column < globals || "
        "random[h, row, column]; }",
        "fn f(x: i32) -> i32 = x;\nconst C = 1;\nattention a {\n"
        "    tensor   t: bool[9, 9, 9];\n"
        "    mask     abs(row - column) <= 1 || row < globals || column < "
        "globals\n"
        "             || random[h, row, column];\n}\n");
}

Test(format, line_ends_and_bom) {
    expect_format("\xef\xbb\xbf"
                  "const A = 1; /* a\r\n b */\r\n// c  \r\n",
                  "const A = 1;  /* a\n b */\n// c\n");
    expect_format("", "");
    expect_format("  \n\n", "");
    expect_format(";;", "");
}

Test(format, faulty_texts_are_left_alone) {
    static const char *const texts[] = {"const A = ;", "attention a {",
                                        "const A = 1 # 2;", "\x01", "/* open"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct checked c;
        cr_expect_null(formatted(&c, texts[i]), "%s", texts[i]);
        checked_free(&c);
    }
}
