/* Results of a test run: collected, printed as a short table, written as
 * JSON. */
#ifndef ATTN_TESTS_E2E_REPORT_H
#define ATTN_TESTS_E2E_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "support/kernel_info.h"

/* One comparison. */
struct result {
    const char
        *suite;       /* "picture", "predicate", "emulator", "gpu", "special" */
    const char *name; /* of the spec or the case */
    const char *variant; /* "sm_80 bf16 BSHD seed 3"; "" */
    int64_t sizes[SIZE_COUNT];
    double o_error, o_bound; /* relative error of O; bound 0: not measured */
    double row_error;        /* worst row */
    double lse_error,
        lse_bound; /* worst difference of LSE, in units of its own bound */
    bool ok;
    const char *message; /* what went wrong, "" */
};

struct report;

/* Allocates results and texts in `arena`; prints failures to `log` as they
 * come. */
struct report *report_create(struct arena *arena, FILE *log);

/* Adds a result; texts are copied.  Safe from several threads. */
void report_add(struct report *report, const struct result *result);

/* A fact about the run ("gpu", "driver", …) for the JSON file; copied. */
void report_fact(struct report *report, const char *name, const char *value);

size_t report_failures(const struct report *report);
size_t report_count(const struct report *report);

/* A line per suite and spec: number of comparisons, failures, worst errors. */
void report_print_table(const struct report *report, FILE *stream);

/* {"facts": {…}, "results": […]}; false with errno when the file cannot be
 * written. */
bool report_write_json(const struct report *report, const char *path);

#endif
