/* Checks a text in a unit test: one arena, one source set, one sink. */
#ifndef ATTN_TESTS_UNIT_FRONTEND_UTIL_H
#define ATTN_TESTS_UNIT_FRONTEND_UTIL_H

#include <string.h>

#include "frontend/frontend.h"

struct checked {
    struct arena *arena;
    struct source_set *sources;
    struct diag_sink *diags;
    struct spec *spec; /* NULL after an error */
};

/* Checks `text`; end it with checked_free. */
static inline struct checked check_text(const char *text) {
    struct checked c = {.arena = arena_create()};
    c.sources = source_set_create(c.arena);
    c.diags = diag_sink_create(c.arena, c.sources);
    c.spec = frontend_check_text(c.arena, c.sources, "test.attn", text,
                                 strlen(text), NULL, c.diags);
    return c;
}

static inline void checked_free(struct checked *c) {
    arena_destroy(c->arena);
}

/* The text of all messages. */
static inline const char *messages(const struct checked *c) {
    struct strbuf out;
    strbuf_init(&out, c->arena);
    diag_render(c->diags, false, &out);
    return strbuf_text(&out);
}

/* Wraps items in an attention and checks it. */
static inline struct checked check_items(const char *before,
                                         const char *items) {
    struct arena *arena = arena_create();
    const char *text = arena_printf(
        arena, "%s\nattention t { dtype bf16; head_dim 64;\n%s\n}\n", before,
        items);
    struct checked c = check_text(text);
    arena_destroy(arena);
    return c;
}

#endif
