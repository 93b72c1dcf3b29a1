/* The pictures in the specs' comments against the predicates, and the form of
 * the files: no warnings, canonical layout.
 *
 *     // Picture: q_len 4; kv_len 8; window 3; doc 0 0 1 1 1 2 2 2
 *     //     # . . . . . . .
 *
 * The first line gives sizes, integer parameters and the elements of captured
 * tensors; then one line per query, '#' where it attends to the key, '.' where
 * not. Batch, head and KV head are 1.  So no picture can show what the spec
 * does not do.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/format.h"
#include "tests/e2e/suites.h"

/* One "name number number …" of the first line. */
struct setting {
    char name[32];
    int64_t values[64];
    int count;
};

/* Reads the setting at `at`; returns the place behind it (behind its ';'). */
static const char *read_setting(const char *at, struct setting *out) {
    int length = 0;
    *out = (struct setting){0};
    at += strspn(at, " ");
    while ((isalnum((unsigned char)*at) || *at == '_') && length < 31)
        out->name[length++] = *at++;
    while (*at == ' ' && out->count < 64) {
        char *end;
        long long value = strtoll(at, &end, 10);
        if (end == at)
            break;
        out->values[out->count++] = value;
        at = end;
    }
    return at + (*at == ';');
}

static void store_element(struct call_tensor *tensor, int64_t index,
                          int64_t value) {
    if (tensor->type == SCALAR_BOOL)
        ((uint8_t *)tensor->data)[index] = (uint8_t)value;
    else if (tensor->type == SCALAR_I32)
        ((int32_t *)tensor->data)[index] = (int32_t)value;
}

static bool is_param(const struct call *call, const char *name) {
    for (size_t i = 0; i < call->attention->param_count; i++)
        if (!strcmp(call->attention->params[i].name, name))
            return true;
    return false;
}

static bool fill_tensor(struct call *call, const struct setting *setting) {
    for (size_t i = 0; i < call->attention->tensor_count; i++) {
        struct call_tensor *tensor = &call->captured[i];
        if (strcmp(tensor->name, setting->name))
            continue;
        if (call_tensor_count(tensor) != setting->count)
            return false;
        for (int j = 0; j < setting->count; j++)
            store_element(tensor, j, setting->values[j]);
        return true;
    }
    return false;
}

/* Applies the first line in three rounds: sizes, parameters, tensors.  NULL
 * when it names something unknown. */
static struct call *picture_call(struct arena *arena,
                                 const struct attention *attention,
                                 const char *line) {
    int64_t sizes[SIZE_COUNT] = {1, 1, 1, 0, 0};
    struct rng rng = {1};
    struct setting setting;
    for (const char *at = line; *at && *at != '\n';) {
        at = read_setting(at, &setting);
        if (!strcmp(setting.name, "q_len") || !strcmp(setting.name, "kv_len"))
            sizes[setting.name[0] == 'q' ? SIZE_Q_LEN : SIZE_KV_LEN] =
                setting.values[0];
    }
    if (sizes[SIZE_Q_LEN] < 1 || sizes[SIZE_KV_LEN] < 1)
        return NULL;
    sizes[SIZE_HEADS] = attention->group ? attention->group : 1;
    struct call *call = call_create(arena, attention, sizes, &rng);
    for (const char *at = line; *at && *at != '\n';) {
        at = read_setting(at, &setting);
        if (is_param(call, setting.name))
            call_set_i32(call, setting.name, (int32_t)setting.values[0]);
    }
    if (!call_allocate(call))
        return NULL;
    for (const char *at = line; *at && *at != '\n';) {
        at = read_setting(at, &setting);
        bool known = !strcmp(setting.name, "q_len") ||
                     !strcmp(setting.name, "kv_len") ||
                     is_param(call, setting.name);
        if (!known && !fill_tensor(call, &setting))
            return NULL;
    }
    return call;
}

/* Compares the rows that follow `line`; a text about the first difference, or
 * NULL. */
static const char *compare_picture(const struct pattern *pattern,
                                   const struct call *call, const char *line) {
    struct pair pair = {0};
    for (pair.q = 0; pair.q < call->sizes[SIZE_Q_LEN]; pair.q++) {
        line = strchr(line, '\n');
        if (!line || strncmp(line, "\n//     ", 8))
            return "the picture has too few rows";
        line += 8;
        for (pair.kv = 0; pair.kv < call->sizes[SIZE_KV_LEN]; pair.kv++) {
            char expected =
                !pattern->mask || pattern->mask(call, &pair) ? '#' : '.';
            if (line[2 * pair.kv] != expected)
                return arena_printf(
                    call->arena, "row %d column %d is '%c', expected '%c'",
                    (int)pair.q, (int)pair.kv, line[2 * pair.kv], expected);
            if (pair.kv + 1 < call->sizes[SIZE_KV_LEN] &&
                line[2 * pair.kv + 1] != ' ')
                return "columns are not separated by one space";
        }
        if (line[2 * pair.kv - 1] != '\n')
            return "the picture has too many columns";
    }
    line = strchr(line, '\n');
    return line && !strncmp(line, "\n//     ", 8)
               ? "the picture has too many rows"
               : NULL;
}

static const char *check_picture(struct arena *arena,
                                 const struct e2e_options *options,
                                 const struct pattern *pattern,
                                 int64_t *out_sizes) {
    static const struct load_changes as_written = {0};
    static const char mark[] = "// Picture: ";
    struct loaded loaded;
    if (!load_spec(arena, options->specs_dir, pattern->name, &as_written,
                   &loaded))
        return "the spec does not check";
    if (diag_warning_count(loaded.diags)) {
        diag_print(loaded.diags, false, stderr);
        return "the spec has warnings";
    }
    if (strcmp(loaded.attention->name, pattern->name))
        return "the attention is not called like the file";
    size_t length;
    const char *canonical =
        format_source(arena, loaded.spec->file, loaded.diags, &length);
    if (!canonical || strcmp(canonical, loaded.text))
        return "the spec is not in canonical layout: attnc fmt -i";
    const char *line = strstr(loaded.text, mark);
    if (!line) /* block tables are drawn in blocks */
        return strstr(loaded.text, "BLOCK") ? NULL : "the spec has no picture";
    struct call *call =
        picture_call(arena, loaded.attention, line + sizeof mark - 1);
    if (!call)
        return "the picture's first line does not fit the spec";
    memcpy(out_sizes, call->sizes, sizeof call->sizes);
    return compare_picture(pattern, call, line);
}

void suite_picture(const struct e2e_options *options, struct report *report) {
    const struct pattern *pattern;
    for (size_t i = 0; (pattern = pattern_get(i)); i++) {
        if (!e2e_wanted(options, pattern->name))
            continue;
        struct arena *arena = arena_create();
        struct result result = {.suite = "picture", .name = pattern->name};
        result.message = check_picture(arena, options, pattern, result.sizes);
        result.ok = !result.message;
        report_add(report, &result);
        arena_destroy(arena);
    }
}
