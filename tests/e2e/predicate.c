/* The reference against the hand-written predicates.
 *
 * Mask and score pair by pair at sizes up to 4097, then O and LSE against a
 * naive attention of this file that knows predicate and score only.  Scores may
 * differ by the f32 rounding that the language prescribes for what does not
 * depend on s.
 */
#include <math.h>
#include <string.h>

#include "tests/e2e/suites.h"

enum { PREDICATE_MAX_ROW = 8192 };

static const struct e2e_sizes pair_sizes[] = {
    {{1, 1, 1, 4097, 4097}}, {{1, 1, 1, 1000, 1777}}, {{1, 2, 1, 1000, 1000}},
    {{1, 2, 2, 300, 129}},   {{2, 2, 1, 100, 331}},   {{1, 2, 1, 128, 128}},
    {{2, 4, 2, 17, 17}},     {{2, 2, 2, 1, 130}},     {{2, 2, 1, 1, 1}},
};

static const struct e2e_sizes full_sizes[] = {
    {{2, 2, 1, 1, 1}},
    {{2, 4, 2, 17, 40}},
    {{1, 2, 1, 129, 129}},
    {{1, 2, 2, 150, 70}},
};

/* A pair whose score is compared: some per row, where the score is costly. */
static bool close_enough(double found, double expected) {
    if (found == expected)
        return true;
    return fabs(found - expected) <=
           1e-6 * (1 + fabs(expected)) + 2e-4 * (fabs(expected) > 50);
}

/* First difference in row (b, h, q), as a text; NULL if there is none. */
static const char *compare_row(const struct pattern *pattern,
                               const struct call *call, struct ref_eval *eval,
                               struct pair pair, struct rng *rng) {
    uint8_t kept[PREDICATE_MAX_ROW];
    int64_t kv_len = call->sizes[SIZE_KV_LEN];
    ref_eval_mask_row(eval, pair.b, pair.h, pair.q, 0, kv_len, kept);
    for (pair.kv = 0; pair.kv < kv_len; pair.kv++) {
        bool expected = !pattern->mask || pattern->mask(call, &pair);
        if (expected != kept[pair.kv])
            return arena_printf(call->arena,
                                "mask at b %d h %d q %d kv %d: %d, expected %d",
                                (int)pair.b, (int)pair.h, (int)pair.q,
                                (int)pair.kv, kept[pair.kv], expected);
        if (!expected || (kv_len > 300 && !rng_chance(rng, 5)))
            continue;
        double s = (double)(float)(3 * rng_normal(rng));
        double found = ref_eval_score(eval, pair.b, pair.h, pair.q, pair.kv, s);
        double wanted = pattern->score ? pattern->score(call, &pair, s) : s;
        if (!close_enough(found, wanted))
            return arena_printf(call->arena,
                                "score at b %d h %d q %d kv %d, s = %.9g: "
                                "%.12g, expected %.12g",
                                (int)pair.b, (int)pair.h, (int)pair.q,
                                (int)pair.kv, s, found, wanted);
    }
    return NULL;
}

static const char *compare_pairs(const struct pattern *pattern,
                                 const struct call *call, struct rng *rng) {
    const int64_t *n = call->sizes;
    const char *message = NULL, *extern_name = NULL;
    struct ref_tensor tensors[CALL_MAX_TENSORS];
    struct ref_call ref = call_for_reference(call, tensors);
    struct ref_program *program =
        ref_compile(call->arena, call->attention, &extern_name);
    struct ref_eval *eval = ref_eval_create(call->arena, program, &ref);
    struct pair pair = {0};
    for (pair.b = 0; pair.b < n[SIZE_BATCH]; pair.b++)
        for (pair.h = 0; pair.h < n[SIZE_HEADS]; pair.h++) {
            pair.h_kv = pair.h / (n[SIZE_HEADS] / n[SIZE_KV_HEADS]);
            for (pair.q = 0; pair.q < n[SIZE_Q_LEN] && !message; pair.q++)
                message = compare_row(pattern, call, eval, pair, rng);
        }
    return message;
}

/* ---- Naive attention ----------------------------------------------------- */

static double dot(const float *a, const float *b, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* One row of O and its LSE, textbook softmax over the kept keys. */
static double naive_row(const struct pattern *pattern, const struct call *call,
                        struct pair pair, double *out_o) {
    const int64_t *n = call->sizes;
    int qk = call->attention->head_dim_qk, dv = call->attention->head_dim_v;
    double scale = pattern->scale ? pattern->scale : 1 / sqrt(qk);
    double scores[PREDICATE_MAX_ROW], top = -INFINITY, sum = 0;
    const float *q =
        call->q32 +
        ((pair.b * n[SIZE_HEADS] + pair.h) * n[SIZE_Q_LEN] + pair.q) * qk;
    int64_t first = (pair.b * n[SIZE_KV_HEADS] + pair.h_kv) * n[SIZE_KV_LEN];
    for (pair.kv = 0; pair.kv < n[SIZE_KV_LEN]; pair.kv++) {
        double s = scale * dot(q, call->k32 + (first + pair.kv) * qk, qk);
        bool kept = !pattern->mask || pattern->mask(call, &pair);
        scores[pair.kv] = !kept            ? -INFINITY
                          : pattern->score ? pattern->score(call, &pair, s)
                                           : s;
        top = fmax(top, scores[pair.kv]);
    }
    memset(out_o, 0, (size_t)dv * sizeof *out_o);
    if (top == -INFINITY)
        return -INFINITY;
    for (int64_t kv = 0; kv < n[SIZE_KV_LEN]; kv++) {
        double p = exp(scores[kv] - top);
        sum += p;
        for (int d = 0; d < dv; d++)
            out_o[d] += p * (double)call->v32[(first + kv) * dv + d];
    }
    for (int d = 0; d < dv; d++)
        out_o[d] /= sum;
    return top + log(sum);
}

/* First row of the reference's O or LSE that differs from the naive
 * attention. */
static const char *compare_naive(const struct pattern *pattern,
                                 const struct call *call,
                                 const struct ref_result *found) {
    const int64_t *n = call->sizes;
    int dv = call->attention->head_dim_v;
    double *o = ARENA_NEW_ARRAY(call->arena, double, (size_t)dv);
    int64_t rows = n[SIZE_BATCH] * n[SIZE_HEADS] * n[SIZE_Q_LEN];
    for (int64_t row = 0; row < rows; row++) {
        struct pair pair = {.q = row % n[SIZE_Q_LEN],
                            .h = row / n[SIZE_Q_LEN] % n[SIZE_HEADS],
                            .b = row / n[SIZE_Q_LEN] / n[SIZE_HEADS]};
        pair.h_kv = pair.h / (n[SIZE_HEADS] / n[SIZE_KV_HEADS]);
        double lse = naive_row(pattern, call, pair, o), error = 0;
        for (int d = 0; d < dv; d++)
            error = fmax(error, fabs(o[d] - found->o[row * dv + d]));
        if (error <= 1e-4 && close_enough(found->lse[row], lse))
            continue;
        return arena_printf(
            call->arena,
            "b %d h %d q %d: O differs by %.3g, LSE %.9g, expected %.9g",
            (int)pair.b, (int)pair.h, (int)pair.q, error, found->lse[row], lse);
    }
    return NULL;
}

/* ---- Suite --------------------------------------------------------------- */

struct predicate_run {
    const struct e2e_options *options;
    struct report *report;
    const struct pattern *patterns[128];
    int64_t pattern_count;
};

enum {
    PAIR_SIZES = sizeof pair_sizes / sizeof *pair_sizes,
    FULL_SIZES = sizeof full_sizes / sizeof *full_sizes,
};

/* Compares one spec at one size; NULL when all is well or the size does not
 * fit. */
static const char *run_case(const struct e2e_options *options,
                            const struct pattern *pattern, bool full,
                            struct arena *arena, struct e2e_sizes *sizes) {
    static const struct load_changes as_written = {0};
    struct rng rng = {options->seed};
    struct loaded loaded;
    if (!load_spec(arena, options->specs_dir, pattern->name, &as_written,
                   &loaded))
        return "the spec does not check";
    if (!e2e_fit_sizes(pattern, loaded.attention, sizes))
        return NULL;
    struct call *call = e2e_call(arena, pattern, loaded.attention, sizes, &rng);
    if (sizes->n[SIZE_Q_LEN] < 1000)
        call_restride(call, &rng);
    if (!full)
        return compare_pairs(pattern, call, &rng);
    struct ref_result reference = e2e_reference(call, 1);
    return compare_naive(pattern, call, &reference);
}

static void predicate_work(void *context, int64_t index) {
    struct predicate_run *run = context;
    const struct pattern *pattern = run->patterns[index % run->pattern_count];
    int64_t size = index / run->pattern_count;
    bool full = size >= PAIR_SIZES;
    struct e2e_sizes sizes =
        full ? full_sizes[size - PAIR_SIZES] : pair_sizes[size];
    if (run->options->small && sizes.n[SIZE_Q_LEN] >= 1000)
        return;
    struct arena *arena = arena_create();
    struct result result = {.suite = "predicate",
                            .name = pattern->name,
                            .variant = full ? "O and LSE" : "pairs"};
    result.message = run_case(run->options, pattern, full, arena, &sizes);
    result.ok = !result.message;
    memcpy(result.sizes, sizes.n, sizeof result.sizes);
    report_add(run->report, &result);
    arena_destroy(arena);
}

void suite_predicate(const struct e2e_options *options, struct report *report) {
    struct predicate_run run = {.options = options, .report = report};
    const struct pattern *pattern;
    for (size_t i = 0; (pattern = pattern_get(i)); i++)
        if (e2e_wanted(options, pattern->name))
            run.patterns[run.pattern_count++] = pattern;
    e2e_parallel(run.pattern_count * (PAIR_SIZES + FULL_SIZES),
                 options->threads, NULL, predicate_work, &run);
}
