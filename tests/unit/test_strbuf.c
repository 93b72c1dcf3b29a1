/* Growing strings on the heap and in an arena. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/strbuf.h"

Test(strbuf, append_on_the_heap) {
    struct strbuf buf;
    strbuf_init(&buf, NULL);
    cr_assert_str_eq(strbuf_text(&buf), "");
    strbuf_append(&buf, "abc");
    strbuf_append_char(&buf, '-');
    strbuf_append_repeat(&buf, 'x', 3);
    strbuf_printf(&buf, "%d/%s", 7, "q");
    cr_assert_str_eq(strbuf_text(&buf), "abc-xxx7/q");
    cr_assert_eq(buf.length, 10);
    strbuf_clear(&buf);
    cr_assert_str_eq(strbuf_text(&buf), "");
    strbuf_destroy(&buf);
}

Test(strbuf, long_texts_in_an_arena) {
    struct arena *arena = arena_create();
    struct strbuf buf;
    strbuf_init(&buf, arena);
    for (int i = 0; i < 10000; i++) {
        strbuf_printf(&buf, "%04d", i);
        arena_alloc(arena, 1);
    }
    cr_assert_eq(buf.length, 40000);
    cr_assert_eq(strncmp(strbuf_text(&buf) + 4 * 1234, "12341235", 8), 0);
    strbuf_destroy(&buf);
    arena_destroy(arena);
}

Test(strbuf, take_moves_the_text_out) {
    struct strbuf buf;
    strbuf_init(&buf, NULL);
    char *empty = strbuf_take(&buf);
    cr_assert_str_eq(empty, "");
    strbuf_append(&buf, "text");
    char *text = strbuf_take(&buf);
    cr_assert_str_eq(text, "text");
    cr_assert_eq(buf.length, 0);
    free(empty);
    free(text);
}

Test(strbuf, json_escapes) {
    struct strbuf buf;
    strbuf_init(&buf, NULL);
    const char text[] = "a\"b\\c\nd\te\x01"
                        "f\xff\xc3\xa4";
    strbuf_append_json(&buf, text, sizeof text - 1);
    cr_assert_str_eq(strbuf_text(&buf),
                     "\"a\\\"b\\\\c\\nd\\te\\u0001f\\ufffd\xc3\xa4\"");
    strbuf_destroy(&buf);
}

Test(strbuf, read_obeys_the_limit) {
    char bytes[] = "0123456789";
    for (size_t limit = 8; limit <= 12; limit++) {
        FILE *stream = fmemopen(bytes, 10, "r");
        struct strbuf buf;
        strbuf_init(&buf, NULL);
        errno = 0;
        bool good = strbuf_read(&buf, stream, limit);
        cr_assert_eq(good, limit >= 10);
        cr_assert_eq(errno, good ? 0 : EFBIG);
        strbuf_destroy(&buf);
        fclose(stream);
    }
}
