/* Reading and changing specs; see load.h. */
#include "tests/e2e/load.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/strbuf.h"

enum { LOAD_MAX_BYTES = 1 << 20 };

char *load_text(struct arena *arena, const char *path) {
    FILE *stream = fopen(path, "rb");
    struct strbuf text;
    if (!stream)
        return NULL;
    strbuf_init(&text, arena);
    bool ok = strbuf_read(&text, stream, LOAD_MAX_BYTES);
    fclose(stream);
    return ok ? strbuf_take(&text) : NULL;
}

/* Start of the line whose first word is `item`, NULL if there is none. */
static const char *find_item(const char *text, const char *item) {
    size_t length = strlen(item);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += strspn(line, " \t\n");
        if (!strncmp(line, item, length) &&
            isspace((unsigned char)line[length]))
            return line;
        if (!*line)
            break;
    }
    return NULL;
}

static char *replace_item(struct arena *arena, const char *text,
                          const char *item, const char *value) {
    const char *begin = find_item(text, item);
    const char *end = begin ? strchr(begin, ';') : NULL;
    if (!end) {
        fprintf(stderr, "e2e: the spec has no '%s' item to replace\n", item);
        abort();
    }
    return arena_printf(arena, "%.*s%s %s%s", (int)(begin - text), text, item,
                        value, end);
}

char *load_replace(struct arena *arena, const char *text,
                   const struct load_changes *changes) {
    char *result = arena_strdup(arena, text);
    if (changes->dtype)
        result = replace_item(arena, result, "dtype", changes->dtype);
    if (changes->head_dim)
        result = replace_item(arena, result, "head_dim", changes->head_dim);
    if (changes->group)
        result = replace_item(arena, result, "group", changes->group);
    return result;
}

bool load_spec_text(struct arena *arena, const char *name, const char *text,
                    struct loaded *out_loaded) {
    struct loaded loaded = {.arena = arena, .name = name, .text = text};
    loaded.sources = source_set_create(arena);
    loaded.diags = diag_sink_create(arena, loaded.sources);
    loaded.spec = frontend_check_text(arena, loaded.sources, name, text,
                                      strlen(text), NULL, loaded.diags);
    if (!loaded.spec) {
        diag_print(loaded.diags, false, stderr);
        return false;
    }
    if (loaded.spec->attention_count != 1) {
        fprintf(stderr, "e2e: %s has %zu attentions, expected one\n", name,
                loaded.spec->attention_count);
        return false;
    }
    loaded.attention = loaded.spec->attentions;
    *out_loaded = loaded;
    return true;
}

bool load_spec(struct arena *arena, const char *dir, const char *name,
               const struct load_changes *changes, struct loaded *out_loaded) {
    const char *path = arena_printf(arena, "%s/%s.attn", dir, name);
    char *text = load_text(arena, path);
    if (!text) {
        fprintf(stderr, "e2e: cannot read %s: %s\n", path, strerror(errno));
        return false;
    }
    return load_spec_text(arena, path, load_replace(arena, text, changes),
                          out_loaded);
}
