/* libFuzzer target of the front end: checks any bytes as an .attn file.
 *
 * Besides not crashing: a file without errors formats to a text that has none
 * either, means the same, and formats to itself.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/format.h"
#include "frontend/frontend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Everything that decides what the spec means. */
static const char *meaning(struct arena *arena, const struct spec *spec) {
    struct strbuf out;
    strbuf_init(&out, arena);
    for (size_t i = 0; i < spec->attention_count; i++)
        ast_print_attention(&out, &spec->attentions[i]);
    for (size_t i = 0; i < spec->const_count; i++)
        strbuf_printf(&out, "const %s %d %u\n", spec->consts[i]->name,
                      (int)spec->consts[i]->type, spec->consts[i]->bits);
    for (size_t i = 0; i < spec->fn_count; i++) {
        strbuf_printf(&out, "fn %s ", spec->fns[i]->name);
        ast_print_expr(&out, spec->fns[i]->body);
        strbuf_append_char(&out, '\n');
    }
    return strbuf_text(&out);
}

static struct spec *check(struct arena *arena, struct source_set *sources,
                          struct diag_sink *diags, const char *text,
                          size_t length) {
    return frontend_check_text(arena, sources, "<input>", text, length, NULL,
                               diags);
}

static void require(int condition) {
    if (!condition)
        abort();
}

static void check_format(struct arena *arena, struct source_set *sources,
                         struct diag_sink *diags, const struct spec *spec) {
    size_t length, again_length;
    char *text = format_source(arena, spec->file, diags, &length);
    require(text != NULL);
    struct spec *formatted = check(arena, sources, diags, text, length);
    require(formatted != NULL);
    require(strcmp(meaning(arena, spec), meaning(arena, formatted)) == 0);
    char *again = format_source(arena, formatted->file, diags, &again_length);
    require(again && again_length == length &&
            memcmp(text, again, length) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_create();
    struct source_set *sources = source_set_create(arena);
    struct diag_sink *diags = diag_sink_create(arena, sources);
    struct spec *spec = check(arena, sources, diags, (const char *)data, size);
    struct strbuf rendered;
    strbuf_init(&rendered, arena);
    diag_render(diags, size % 2, &rendered);
    require((spec == NULL) == (diag_error_count(diags) > 0));
    if (spec)
        check_format(arena, sources, diags, spec);
    struct schedule schedule = {0};
    char *text = arena_strndup(arena, (const char *)data, size);
    frontend_override_schedule(arena, sources, spec, text, &schedule, diags);
    arena_destroy(arena);
    return 0;
}
