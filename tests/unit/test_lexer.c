/* Tokens: kinds, byte ranges, literals, comments, bad bytes. */
#include <criterion/criterion.h>
#include <string.h>

#include "frontend/syntax.h"
#include "frontend/parser.h"
#include "tests/unit/frontend_util.h"

struct lexed {
    struct checked c;
    struct token_list list;
    const char *text;
};

static struct lexed lex(const char *text) {
    struct lexed lexed = {.c = {.arena = arena_create()}};
    lexed.c.sources = source_set_create(lexed.c.arena);
    lexed.c.diags = diag_sink_create(lexed.c.arena, lexed.c.sources);
    const struct source_file *file =
        source_add_text(lexed.c.sources, "t", text, strlen(text));
    lexed.text = file->text;
    lexed.list = syntax_tokens(lexed.c.arena, file, lexed.c.diags);
    return lexed;
}

/* The tokens, each in [ ]. */
static const char *joined(const struct lexed *lexed) {
    struct strbuf out;
    strbuf_init(&out, lexed->c.arena);
    for (size_t i = 0; i < lexed->list.tokens.count; i++) {
        const struct token *t = &lexed->list.tokens.data[i];
        strbuf_append_char(&out, '[');
        strbuf_append_bytes(&out, lexed->text + t->begin, t->end - t->begin);
        strbuf_append_char(&out, ']');
    }
    return strbuf_text(&out);
}

static void expect_tokens(const char *text, const char *expected) {
    struct lexed lexed = lex(text);
    cr_expect_str_eq(joined(&lexed), expected, "%s gives %s", text,
                     joined(&lexed));
    cr_expect_eq(diag_error_count(lexed.c.diags), 0, "%s", messages(&lexed.c));
    checked_free(&lexed.c);
}

Test(lexer, tokens) {
    expect_tokens("a<=b", "[a][<=][b]");
    expect_tokens("a<-b->c", "[a][<][-][b][->][c]");
    expect_tokens("1<<2>>3", "[1][<<][2][>>][3]");
    expect_tokens("x&&y||!z&w|~v^u",
                  "[x][&&][y][||][!][z][&][w][|][~][v][^][u]");
    expect_tokens("a==b!=c=d", "[a][==][b][!=][c][=][d]");
    expect_tokens("0x1F 12 1.5 1. 1e-3 1.e5 2E+7",
                  "[0x1F][12][1.5][1.][1e-3][1.e5][2E+7]");
    expect_tokens("25%;", "[25][%][;]");
    expect_tokens("\"f.cu\" _a1", "[\"f.cu\"][_a1]");
}

Test(lexer, comments_and_blanks_vanish) {
    expect_tokens("a // b\nc", "[a][c]");
    expect_tokens("a/* b\n * c */d/**/e/***/f", "[a][d][e][f]");
    expect_tokens("a /* \xc3\xa4 // */ b", "[a][b]");
    expect_tokens("\xef\xbb\xbf"
                  "a\r\nb\tc",
                  "[a][b][c]");
    expect_tokens("a // no line end", "[a]");
}

Test(lexer, words_are_tokens_of_their_own) {
    struct lexed lexed = lex("mask masks attention");
    cr_assert_eq(lexed.list.tokens.data[0].kind, T_MASK);
    cr_assert_eq(lexed.list.tokens.data[1].kind, T_IDENT);
    cr_assert_eq(lexed.list.tokens.data[2].kind, T_ATTENTION);
    checked_free(&lexed.c);
}

struct fault {
    const char *text, *message;
};

Test(lexer, faults) {
    static const struct fault cases[] = {
        {"a\x01", "control character 0x01"},
        {"a\x7f", "control character 0x7f"},
        {"a\rb", "carriage return"},
        {"a\x0c", "control character 0x0c"},
        {"// \xff", "malformed UTF-8 (byte 0xff)"},
        {"// \xed\xa0\x80", "malformed UTF-8"},
        {"// \xc0\x80", "malformed UTF-8"},
        {"\"abc", "string does not end"},
        {"\"abc\ndef\"", "string does not end"},
        {"/* a", "comment does not end"},
        {"#", "unexpected character '#'"},
        {"\xc3\xa4", "non-ASCII"},
        {"1.5f", "malformed number '1.5f'"},
        {".5", "a digit before the point"},
        {"1e", "malformed number"},
        {"1e400", "too large for f32"},
        {"0x123456789", "does not fit in 32 bits"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lexed lexed = lex(cases[i].text);
        cr_expect_not_null(strstr(messages(&lexed.c), cases[i].message),
                           "%s: %s", cases[i].text, messages(&lexed.c));
        checked_free(&lexed.c);
    }
}

Test(lexer, ranges_are_byte_offsets) {
    struct lexed lexed = lex("/* \xc3\xa4 */ ab\n  cd");
    cr_assert_eq(lexed.list.tokens.data[0].begin, 9);
    cr_assert_eq(lexed.list.tokens.data[0].end, 11);
    cr_assert_eq(lexed.list.tokens.data[1].begin, 14);
    checked_free(&lexed.c);
}
