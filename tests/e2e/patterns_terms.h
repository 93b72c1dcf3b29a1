/* Names of positions, so that the tables' formulas read as in the specs'
 * comments, and the masks that several of them share.  `call` and `pair` are
 * the arguments of a mask or score.
 */
#ifndef ATTN_TESTS_E2E_PATTERNS_TERMS_H
#define ATTN_TESTS_E2E_PATTERNS_TERMS_H

#include "tests/e2e/patterns.h"

#define B (pair->b)
#define H (pair->h)
#define Q (pair->q)
#define KV (pair->kv)
#define Q_LEN (call->sizes[SIZE_Q_LEN])
#define KV_LEN (call->sizes[SIZE_KV_LEN])

static inline bool causal(const struct call *call, const struct pair *pair) {
    (void)call;
    return Q >= KV;
}

/* Counted from the ends: keys behind kv <= queries behind q, the other way
 * round. */
static inline bool causal_bottom_right(const struct call *call,
                                       const struct pair *pair) {
    return KV_LEN - 1 - KV >= Q_LEN - 1 - Q;
}

#endif
