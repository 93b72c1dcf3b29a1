/* Collecting and printing of diagnostics, spelling suggestions. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/diag.h"

static struct arena *arena;
static struct source_set *sources;
static struct diag_sink *sink;

static void setup(void) {
    arena = arena_create();
    sources = source_set_create(arena);
    sink = diag_sink_create(arena, sources);
}

static void teardown(void) {
    arena_destroy(arena);
}

TestSuite(diag, .init = setup, .fini = teardown);

static struct source_range range_of(const char *text, uint32_t begin,
                                    uint32_t end) {
    const struct source_file *file =
        source_add_text(sources, "f.attn", text, strlen(text));
    return (struct source_range){file->id, begin, end};
}

static const char *rendered(bool colour) {
    struct strbuf out;
    strbuf_init(&out, arena);
    diag_render(sink, colour, &out);
    return strbuf_text(&out);
}

Test(diag, caret_under_the_range) {
    diag_error(sink, range_of("mask q < windw;\n", 9, 14), "unknown name '%s'",
               "windw");
    cr_assert_str_eq(rendered(false),
                     "f.attn:1:10: error: unknown name 'windw'\n"
                     "mask q < windw;\n"
                     "         ^~~~~\n");
}

Test(diag, tabs_are_repeated) {
    diag_error(sink, range_of("\ta\tb c\n", 3, 6), "x");
    cr_assert_str_eq(rendered(false),
                     "f.attn:1:4: error: x\n\ta\tb c\n\t \t^~~\n");
}

Test(diag, columns_count_bytes_and_carets_characters) {
    diag_error(sink, range_of("/*\xc3\xa4*/ q", 7, 8), "x");
    cr_assert_str_eq(rendered(false),
                     "f.attn:1:8: error: x\n/*\xc3\xa4*/ q\n      ^\n");
}

Test(diag, a_range_over_lines_ends_with_its_first_line) {
    diag_error(sink, range_of("abc\ndef\n", 1, 6), "x");
    cr_assert_str_eq(rendered(false), "f.attn:1:2: error: x\nabc\n ^~\n");
}

Test(diag, notes_follow_their_message) {
    struct source_range where = range_of("ab", 0, 1);
    diag_error(sink, where, "one");
    diag_note(sink, SOURCE_NOWHERE, "first");
    diag_note(sink, SOURCE_NOWHERE, "second");
    diag_error(sink, SOURCE_NOWHERE, "two");
    cr_assert_str_eq(rendered(false),
                     "f.attn:1:1: error: one\nab\n^\nattnc: note: first\n"
                     "attnc: note: second\nattnc: error: two\n");
}

Test(diag, silenced_warnings_take_their_notes_along) {
    diag_silence(sink, "unused-param");
    diag_warning(sink, SOURCE_NOWHERE, "unused-param", "gone");
    diag_note(sink, SOURCE_NOWHERE, "gone too");
    diag_warning(sink, SOURCE_NOWHERE, "other", "kept");
    cr_assert_str_eq(rendered(false), "attnc: warning: kept [other]\n");
    cr_assert_eq(diag_warning_count(sink), 1);
    cr_assert_eq(diag_error_count(sink), 0);
}

Test(diag, one_hundred_errors_then_a_last_word) {
    for (int i = 0; i < DIAG_MAX_ERRORS; i++)
        diag_error(sink, SOURCE_NOWHERE, "e%d", i);
    cr_assert(diag_is_full(sink));
    cr_assert_null(strstr(rendered(false), "too many"));
    diag_error(sink, SOURCE_NOWHERE, "one more");
    cr_assert_not_null(strstr(rendered(false), "too many errors (100)"));
    cr_assert_null(strstr(rendered(false), "one more"));
    cr_assert_eq(diag_error_count(sink), DIAG_MAX_ERRORS);
}

Test(diag, long_lines_are_cut_around_the_caret) {
    char *text = arena_alloc(arena, 100001);
    memset(text, 'x', 100000);
    diag_error(sink, range_of(text, 50000, 50003), "far");
    const char *out = rendered(false);
    cr_assert(strlen(out) < 500);
    cr_assert_not_null(strstr(out, "f.attn:1:50001: error"));
    cr_assert_not_null(strstr(out, "^~~\n"));
}

Test(diag, colour_adds_escapes_only) {
    diag_error(sink, range_of("ab", 0, 1), "x");
    const char *out = rendered(true);
    struct strbuf plain;
    strbuf_init(&plain, arena);
    for (const char *p = out; *p; p++) {
        if (*p == '\033')
            p = strchr(p, 'm');
        else
            strbuf_append_char(&plain, *p);
    }
    cr_assert_str_eq(strbuf_text(&plain), rendered(false));
    cr_assert_str_neq(out, rendered(false));
}

Test(diag, facts_are_kept) {
    diag_warning(sink, range_of("ab", 1, 2), "w", "text");
    const struct diag *first = diag_first(sink);
    cr_assert_eq(first->severity, DIAG_WARNING);
    cr_assert_str_eq(first->warning, "w");
    cr_assert_str_eq(first->message, "text");
    cr_assert_eq(source_locate(sources, first->where).column, 2);
    cr_assert_null(first->next);
}

Test(diag, names_are_cut_and_cleaned) {
    char name[200];
    memset(name, 'a', sizeof name);
    name[199] = '\0';
    const char *shown = diag_name(sink, name);
    cr_assert_eq(strlen(shown), DIAG_NAME_BYTES + 3);
    cr_assert_str_eq(diag_name(sink, "a\x01\xff"
                                     "b\xc3\xa4"),
                     "a??b\xc3\xa4");
}

struct spelling {
    const char *word, *expected;
};

Test(diag, closest) {
    static const char *const names[] = {"window", "mask",  "q", "kv",
                                        "q_len",  "score", NULL};
    static const struct spelling cases[] = {
        {"windwo", "window"}, {"Mask", "mask"}, {"maks", "mask"},
        {"qlen", "q_len"},    {"xyz", NULL},    {"scores", "score"},
        {"", NULL},           {"zz", NULL},     {"completely", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = diag_closest(cases[i].word, names, 7);
        cr_expect(found == cases[i].expected ||
                      (found && cases[i].expected &&
                       !strcmp(found, cases[i].expected)),
                  "'%s': found %s", cases[i].word, found ? found : "nothing");
    }
}
