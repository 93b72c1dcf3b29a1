/* JSON writer and shared JSON forms; see tools/facts.h. */
#include "tools/facts.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

void json_init(struct json *json, struct arena *arena) {
    *json = (struct json){0};
    strbuf_init(&json->text, arena);
}

static void new_line(struct json *json) {
    strbuf_append_char(&json->text, '\n');
    strbuf_append_repeat(&json->text, ' ', 2 * (size_t)json->depth);
}

/* Separator before a value or a key. */
static void separate(struct json *json) {
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    uint64_t bit = (uint64_t)1 << json->depth;
    if (json->nonempty & bit)
        strbuf_append_char(&json->text, ',');
    json->nonempty |= bit;
    if (json->depth)
        new_line(json);
}

void json_open(struct json *json, char bracket) {
    separate(json);
    strbuf_append_char(&json->text, bracket);
    json->depth++;
    assert(json->depth < 60);
    json->nonempty &= ~((uint64_t)1 << json->depth);
}

void json_close(struct json *json, char bracket) {
    bool empty = !(json->nonempty >> json->depth & 1);
    json->depth--;
    if (!empty)
        new_line(json);
    strbuf_append_char(&json->text, bracket);
}

void json_key(struct json *json, const char *key) {
    separate(json);
    strbuf_append_json(&json->text, key, strlen(key));
    strbuf_append(&json->text, ": ");
    json->after_key = true;
}

void json_string(struct json *json, const char *text) {
    separate(json);
    if (text)
        strbuf_append_json(&json->text, text, strlen(text));
    else
        strbuf_append(&json->text, "null");
}

void json_integer(struct json *json, int64_t value) {
    separate(json);
    strbuf_printf(&json->text, "%" PRId64, value);
}

void json_real(struct json *json, double value) {
    separate(json);
    if (isfinite(value))
        strbuf_printf(&json->text, "%.9g", value);
    else
        strbuf_append(&json->text, isnan(value) ? "null"
                                   : value > 0  ? "1e999"
                                                : "-1e999");
}

void json_raw(struct json *json, const char *text) {
    separate(json);
    strbuf_append(&json->text, text);
}

void json_pair_string(struct json *json, const char *key, const char *text) {
    json_key(json, key);
    json_string(json, text);
}

void json_pair_integer(struct json *json, const char *key, int64_t value) {
    json_key(json, key);
    json_integer(json, value);
}

void json_pair_bool(struct json *json, const char *key, bool value) {
    json_key(json, key);
    json_raw(json, value ? "true" : "false");
}

void json_pair_real(struct json *json, const char *key, double value) {
    json_key(json, key);
    json_real(json, value);
}

const char *json_text(const struct json *json) {
    assert(json->depth == 0);
    return strbuf_text(&json->text);
}

int json_print(const struct json *json, struct session *session) {
    const char *text = arena_printf(session->arena, "%s\n", json_text(json));
    return session_write(session, "-", text, strlen(text));
}

static void json_place(struct json *json, const struct diag_sink *sink,
                       struct source_range where) {
    struct source_place place = source_locate(diag_sources(sink), where);
    if (!place.file)
        return;
    json_pair_string(json, "file", place.file->path);
    json_pair_integer(json, "line", place.line);
    json_pair_integer(json, "column", place.column);
    json_pair_integer(json, "end_line", place.end_line);
    json_pair_integer(json, "end_column", place.end_column);
}

/* A diagnostic and those behind it, each with its notes. */
static void json_diag_list(struct json *json, const struct diag_sink *sink,
                           const struct diag *diag) {
    static const char *const severities[] = {[DIAG_ERROR] = "error",
                                             [DIAG_WARNING] = "warning",
                                             [DIAG_NOTE] = "note"};
    json_open(json, '[');
    for (; diag; diag = diag->next) {
        json_open(json, '{');
        json_pair_string(json, "severity", severities[diag->severity]);
        json_place(json, sink, diag->where);
        json_pair_string(json, "message", diag->message);
        if (diag->warning)
            json_pair_string(json, "warning", diag->warning);
        if (diag->notes) {
            json_key(json, "notes");
            json_diag_list(json, sink,
                           diag->notes); /* notes have none themselves */
        }
        json_close(json, '}');
    }
    json_close(json, ']');
}

void json_diags(struct json *json, const struct diag_sink *sink) {
    json_diag_list(json, sink, diag_first(sink));
}

void json_sizes(struct json *json, const int64_t sizes[SIZE_COUNT]) {
    json_open(json, '{');
    for (int size = 0; size < SIZE_COUNT; size++)
        json_pair_integer(json, size_name_text((enum size_name)size),
                          sizes[size]);
    json_close(json, '}');
}
