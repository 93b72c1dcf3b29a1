/* Line maps, places, loading and the search for included files. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/source.h"

static struct arena *arena;
static struct source_set *set;
static char folder[] = "/tmp/attn-test-XXXXXX";

static void setup(void) {
    arena = arena_create();
    set = source_set_create(arena);
}

static void teardown(void) {
    arena_destroy(arena);
}

TestSuite(source, .init = setup, .fini = teardown);

static void expect_place(const struct source_file *file, uint32_t begin,
                         uint32_t line, uint32_t column) {
    struct source_place place =
        source_locate(set, (struct source_range){file->id, begin, begin});
    cr_expect_eq(place.line, line, "byte %u: line %u, expected %u", begin,
                 place.line, line);
    cr_expect_eq(place.column, column, "byte %u: column %u, expected %u", begin,
                 place.column, column);
}

Test(source, lines_and_columns_count_bytes_from_one) {
    const struct source_file *file =
        source_add_text(set, "x", "ab\n\tc\n\nd", 8);
    expect_place(file, 0, 1, 1);
    expect_place(file, 2, 1, 3);
    expect_place(file, 3, 2, 1);
    expect_place(file, 4, 2, 2);
    expect_place(file, 6, 3, 1);
    expect_place(file, 7, 4, 1);
    expect_place(file, 8, 4, 2);
    cr_assert_eq(file->line_count, 4);
}

Test(source, a_bom_is_dropped) {
    const struct source_file *file =
        source_add_text(set, "x", "\xef\xbb\xbfq", 4);
    cr_assert_eq(file->length, 1);
    expect_place(file, 0, 1, 1);
}

Test(source, crlf_is_one_line_end) {
    const struct source_file *file = source_add_text(set, "x", "ab\r\ncd\r", 7);
    size_t length;
    cr_assert_eq(strncmp(source_line(file, 1, &length), "ab", 2), 0);
    cr_assert_eq(length, 2);
    source_line(file, 2, &length);
    cr_assert_eq(length, 3, "a CR without LF belongs to the line");
    source_line(file, 3, &length);
    cr_assert_eq(length, 0);
    source_line(file, 0, &length);
    cr_assert_eq(length, 0);
}

Test(source, ranges_over_lines) {
    const struct source_file *file = source_add_text(set, "x", "ab\ncd", 5);
    struct source_place place =
        source_locate(set, (struct source_range){file->id, 1, 4});
    cr_assert_eq(place.end_line, 2);
    cr_assert_eq(place.end_column, 2);
    cr_assert_null(source_locate(set, SOURCE_NOWHERE).file);
}

Test(source, join) {
    struct source_range a = {1, 5, 7}, b = {1, 2, 6}, c = source_join(a, b);
    cr_assert(c.file == 1 && c.begin == 2 && c.end == 7);
    cr_assert_eq(source_join(SOURCE_NOWHERE, a).begin, 5);
    cr_assert_eq(source_join(a, SOURCE_NOWHERE).end, 7);
}

Test(source, too_large_a_text_is_refused) {
    char *text = calloc(1, SOURCE_MAX_BYTES + 1);
    errno = 0;
    cr_assert_null(source_add_text(set, "x", text, SOURCE_MAX_BYTES + 1));
    cr_assert_eq(errno, EFBIG);
    free(text);
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(arena_printf(arena, "%s/%s", folder, name), "w");
    fputs(text, file);
    fclose(file);
}

static const char *in_folder(const char *name) {
    return arena_printf(arena, "%s/%s", folder, name);
}

Test(source, load_and_search) {
    cr_assert_not_null(mkdtemp(folder));
    mkdir(in_folder("lib"), 0700);
    write_file("main.attn", "main");
    write_file("lib/a.attn", "a");
    write_file("lib/b.attn", "b");
    write_file("b.attn", "near");
    const struct source_file *main_file =
        source_load(set, in_folder("main.attn"));
    cr_assert_str_eq(main_file->text, "main");
    cr_assert_str_eq(main_file->folder, folder);
    cr_assert_eq(source_load(set, in_folder("lib/../main.attn")), main_file,
                 "the same file");

    const char *folders[] = {in_folder("nowhere"), in_folder("lib")};
    cr_assert_null(source_load_include(set, main_file, "a.attn", NULL, 0));
    cr_assert_eq(errno, ENOENT);
    cr_assert_str_eq(
        source_load_include(set, main_file, "a.attn", folders, 2)->text, "a");
    cr_assert_str_eq(
        source_load_include(set, main_file, "b.attn", folders, 2)->text, "near",
        "the folder of the importing file comes first");
    cr_assert_str_eq(
        source_load_include(set, main_file, "lib/b.attn", NULL, 0)->text, "b");
    cr_assert_null(source_load(set, folder));
    cr_assert_eq(errno, EISDIR);
    unlink(in_folder("lib/a.attn")), unlink(in_folder("lib/b.attn"));
    unlink(in_folder("main.attn")), unlink(in_folder("b.attn"));
    rmdir(in_folder("lib")), rmdir(folder);
}
