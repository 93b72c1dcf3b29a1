/* The pattern library a second time: every spec of specs/ as a C predicate and
 * score, written from the formula in the spec's comment and not from its text,
 * with the data that make sense for it.
 */
#ifndef ATTN_TESTS_E2E_PATTERNS_H
#define ATTN_TESTS_E2E_PATTERNS_H

#include <stddef.h>

#include "tests/e2e/call.h"

/* A query and a key. */
struct pair {
    int64_t b, h, h_kv, q, kv;
};

enum {
    /* Queries and keys share positions: q_len <= kv_len. */
    PATTERN_SHARED = 1,
};

struct pattern {
    const char *name; /* specs/NAME.attn; the attention is called NAME too */
    unsigned flags;   /* PATTERN_… */
    double scale;     /* of q.k; 0: 1 / sqrt(head_dim) */
    /* Parameters and captured tensors; the call has its sizes already,
     * call_allocate is the setup's to call between the two.  NULL: neither. */
    void (*setup)(struct call *call, struct rng *rng);
    /* True if the pair attends; NULL: always. */
    bool (*mask)(const struct call *call, const struct pair *pair);
    /* Final score from the scaled dot product; NULL: itself. */
    double (*score)(const struct call *call, const struct pair *pair, double s);
};

/* The tables, each ended by an entry without name. */
extern const struct pattern
    patterns_formula[]; /* masks by sizes and parameters */
extern const struct pattern patterns_table[]; /* masks by captured tensors */
extern const struct pattern patterns_score[]; /* changes of the score */

/* Pattern number `index` over all tables, NULL behind the last. */
const struct pattern *pattern_get(size_t index);

/* Pattern by name, NULL if there is none. */
const struct pattern *pattern_find(const char *name);

/* Convenience of the tables' setups: a number of [1, high], 1 when high < 1. */
int32_t pattern_count(struct rng *rng, int64_t high);

#endif
