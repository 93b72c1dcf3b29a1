/* What a suite of tests needs to call the compiler: `.init = compile_setup,
 * .fini = compile_teardown`. */
#ifndef ATTN_TESTS_UNIT_COMPILE_UTIL_H
#define ATTN_TESTS_UNIT_COMPILE_UTIL_H

#include <criterion/criterion.h>
#include <string.h>

#include "compiler/compile.h"

/* Of the test that runs. */
static struct arena *arena;
static struct source_set *sources;
static struct diag_sink *diags;

static inline void compile_setup(void) {
    arena = arena_create();
    sources = source_set_create(arena);
    diags = diag_sink_create(arena, sources);
}

static inline void compile_teardown(void) {
    arena_destroy(arena);
}

/* The text of all messages. */
static inline const char *messages(void) {
    struct strbuf text;
    strbuf_init(&text, arena);
    diag_render(diags, false, &text);
    return strbuf_text(&text);
}

/* Compiles the only attention of a text; false after errors. */
static inline bool compile_spec(const char *spec,
                                const struct compile_options *options,
                                struct compiled *out_compiled) {
    return compile_text(arena, sources, "test.attn", spec, strlen(spec), NULL,
                        NULL, options, diags, out_compiled);
}

#endif
