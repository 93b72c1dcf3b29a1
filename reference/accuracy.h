/* Comparison of O and LSE with the reference: the figures and bounds of
 * language.md, "Accuracy".
 *
 *   O     |O - ref| / |ref| (Euclidean) over the whole tensor within 5e-3
 *         (bf16) or 1e-3 (f16), and each row within four times that
 *   LSE   each value within max(1e-3, 4 * 2^-23 * |LSE|)
 *   rows  that attend to nothing are exactly O = 0, LSE = -inf
 *   NaN   and infinities stand where the reference has them
 *
 * Rows whose scores exceed 4096 (REF_ROW_EXTREME) only need a finite O.
 */
#ifndef ATTN_REFERENCE_ACCURACY_H
#define ATTN_REFERENCE_ACCURACY_H

#include <stdbool.h>
#include <stdint.h>

#include "reference/reference.h"
#include "support/kernel_info.h"
#include "support/strbuf.h"

/* A row of O: batch, query head, query position; b -1: none. */
struct accuracy_row {
    int64_t b, h, q;
};

struct accuracy {
    double o_error, o_bound;     /* over the whole tensor */
    double row_error, row_bound; /* of the worst row */
    struct accuracy_row worst_row;
    double lse_error, lse_bound; /* where error/bound is largest */
    struct accuracy_row worst_lse;
    int64_t rows, empty_rows, nan_rows, extreme_rows;
    int64_t inexact_empty_rows; /* empty rows that are not exactly 0, -inf */
    int64_t pattern_mismatches; /* elements: NaN or infinity on one side only */
    struct accuracy_row first_inexact, first_mismatch;
    bool has_lse;
    bool passed;
};

/* Bound on one LSE value. */
double accuracy_lse_bound(double reference_lse);

/* Compares o (values of `dtype` as float) and lse (may be NULL: not compared)
 * with the reference; all dense and in logical order, reference->row must be
 * given.  sizes as in ref_call, dim_v elements a row. */
void accuracy_check(const struct ref_result *reference, const float *o,
                    const float *lse, const int64_t *sizes, int64_t dim_v,
                    enum scalar_type dtype, struct accuracy *out);

/* The report as text, several lines: figures, bounds, worst row, what
 * differs. */
void accuracy_print(const struct accuracy *accuracy, struct strbuf *out);

/* The same as one JSON object. */
void accuracy_print_json(const struct accuracy *accuracy, struct strbuf *out);

#endif
