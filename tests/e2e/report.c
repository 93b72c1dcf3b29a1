/* Results of a test run; see report.h. */
#include "tests/e2e/report.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "support/arena.h"
#include "support/strbuf.h"
#include "support/vec.h"

struct fact {
    const char *name, *value;
};

struct report {
    struct arena *arena;
    FILE *log;
    pthread_mutex_t lock;
    VEC(struct result) results;
    VEC(struct fact) facts;
    size_t failures;
};

struct report *report_create(struct arena *arena, FILE *log) {
    struct report *report = ARENA_NEW(arena, struct report);
    report->arena = arena;
    report->log = log;
    pthread_mutex_init(&report->lock, NULL);
    return report;
}

static void print_failure(FILE *log, const struct result *result) {
    const int64_t *n = result->sizes;
    fprintf(log,
            "FAIL %s %s [%s] batch %lld heads %lld/%lld q_len %lld kv_len "
            "%lld: %s\n",
            result->suite, result->name, result->variant,
            (long long)n[SIZE_BATCH], (long long)n[SIZE_HEADS],
            (long long)n[SIZE_KV_HEADS], (long long)n[SIZE_Q_LEN],
            (long long)n[SIZE_KV_LEN], result->message);
}

void report_add(struct report *report, const struct result *result) {
    pthread_mutex_lock(&report->lock);
    struct result copy = *result;
    copy.suite = arena_strdup(report->arena, result->suite);
    copy.name = arena_strdup(report->arena, result->name);
    copy.variant =
        arena_strdup(report->arena, result->variant ? result->variant : "");
    copy.message =
        arena_strdup(report->arena, result->message ? result->message : "");
    vec_push(report->arena, &report->results, copy);
    if (!result->ok) {
        report->failures++;
        print_failure(report->log, &copy);
    }
    pthread_mutex_unlock(&report->lock);
}

void report_fact(struct report *report, const char *name, const char *value) {
    pthread_mutex_lock(&report->lock);
    struct fact fact = {arena_strdup(report->arena, name),
                        arena_strdup(report->arena, value)};
    vec_push(report->arena, &report->facts, fact);
    pthread_mutex_unlock(&report->lock);
}

size_t report_failures(const struct report *report) {
    return report->failures;
}

size_t report_count(const struct report *report) {
    return report->results.count;
}

/* Sums of the results with the suite and name of number `first`, or nothing
 * when an earlier result had them already. */
static void print_group(const struct report *report, size_t first,
                        FILE *stream) {
    const struct result *results = report->results.data,
                        *head = &results[first];
    size_t count = 0, failures = 0;
    double o = 0, row = 0, lse = 0;
    for (size_t i = 0; i < report->results.count; i++) {
        const struct result *r = &results[i];
        if (strcmp(r->suite, head->suite) || strcmp(r->name, head->name))
            continue;
        if (i < first)
            return;
        count++;
        failures += !r->ok;
        o = fmax(o, r->o_bound > 0 ? r->o_error / r->o_bound : 0);
        row = fmax(row, r->o_bound > 0 ? r->row_error / (4 * r->o_bound) : 0);
        lse = fmax(lse, r->lse_bound > 0 ? r->lse_error / r->lse_bound : 0);
    }
    fprintf(stream, "%-10s %-24s %5zu %5zu   %6.3f %6.3f %6.3f\n", head->suite,
            head->name, count, failures, o, row, lse);
}

void report_print_table(const struct report *report, FILE *stream) {
    fprintf(stream, "%-10s %-24s %5s %5s   %s\n", "suite", "name", "runs",
            "fail", "worst error / bound: O, row, LSE");
    for (size_t i = 0; i < report->results.count; i++)
        print_group(report, i, stream);
    fprintf(stream, "%zu comparisons, %zu failures\n", report->results.count,
            report->failures);
}

static void json_number(struct strbuf *out, const char *name, double value) {
    if (isfinite(value))
        strbuf_printf(out, ", \"%s\": %.6g", name, value);
    else
        strbuf_printf(out, ", \"%s\": null", name);
}

static void json_text(struct strbuf *out, const char *lead, const char *name,
                      const char *value) {
    strbuf_printf(out, "%s\"%s\": ", lead, name);
    strbuf_append_json(out, value, strlen(value));
}

static void json_result(struct strbuf *out, const struct result *result) {
    json_text(out, "{", "suite", result->suite);
    json_text(out, ", ", "name", result->name);
    json_text(out, ", ", "variant", result->variant);
    for (int size = 0; size < SIZE_COUNT; size++)
        strbuf_printf(out, ", \"%s\": %lld",
                      size_name_text((enum size_name)size),
                      (long long)result->sizes[size]);
    if (result->o_bound > 0) {
        json_number(out, "o_error", result->o_error);
        json_number(out, "o_bound", result->o_bound);
        json_number(out, "o_row_error", result->row_error);
        json_number(out, "lse_error", result->lse_error);
        json_number(out, "lse_bound", result->lse_bound);
    }
    strbuf_printf(out, ", \"ok\": %s", result->ok ? "true" : "false");
    if (!result->ok)
        json_text(out, ", ", "message", result->message);
    strbuf_append(out, "}");
}

bool report_write_json(const struct report *report, const char *path) {
    struct strbuf out;
    strbuf_init(&out, NULL);
    strbuf_append(&out, "{\"facts\": {");
    for (size_t i = 0; i < report->facts.count; i++)
        json_text(&out, i ? ", " : "", report->facts.data[i].name,
                  report->facts.data[i].value);
    strbuf_printf(
        &out, "},\n\"comparisons\": %zu, \"failures\": %zu,\n\"results\": [\n",
        report->results.count, report->failures);
    for (size_t i = 0; i < report->results.count; i++) {
        json_result(&out, &report->results.data[i]);
        strbuf_append(&out, i + 1 < report->results.count ? ",\n" : "\n");
    }
    strbuf_append(&out, "]}\n");
    FILE *stream = fopen(path, "w");
    bool ok = stream && fwrite(out.data, 1, out.length, stream) == out.length;
    if (stream)
        ok &= fclose(stream) == 0;
    strbuf_destroy(&out);
    return ok;
}
