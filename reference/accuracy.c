/* Accuracy figures of O and LSE; see reference/accuracy.h for the bounds. */
#include "reference/accuracy.h"

#include <inttypes.h>
#include <math.h>

#include "reference/half.h"

/* Bound on O over the whole tensor for outputs of this type. */
static double o_bound(enum scalar_type dtype) {
    return dtype == SCALAR_F16 ? 1e-3 : 5e-3;
}

double accuracy_lse_bound(double reference_lse) {
    double relative = 4 * 0x1p-23 * fabs(reference_lse);
    return relative > 1e-3 ? relative : 1e-3;
}

/* Squared norms of a row's error and of its reference. */
struct row_sums {
    double error, reference;
};

/* error/reference as a ratio; nothing expected and nothing found is 0. */
static double ratio(struct row_sums sums) {
    if (sums.error == 0)
        return 0;
    return sums.reference > 0 ? sqrt(sums.error / sums.reference) : INFINITY;
}

static double largest(enum scalar_type dtype) {
    return dtype == SCALAR_F16 ? 65504.0 : 0x1.fep127;
}

/* True if the value is not finite where the reference is, or the reverse, or
 * both are not finite in different ways.  Next to the largest value of the type
 * rounding may go either way. */
static bool pattern_differs(double value, double reference,
                            enum scalar_type dtype) {
    double rounded = round_to_scalar(reference, dtype);
    if (isfinite(value) && isfinite(rounded))
        return false;
    if (isnan(value) || isnan(rounded))
        return !(isnan(value) && isnan(rounded));
    bool near_limit = fabs(reference) > 0.98 * largest(dtype) &&
                      fabs(reference) < 1.02 * largest(dtype);
    return !(near_limit && (value > 0) == (reference > 0)) && value != rounded;
}

/* One more value that is NaN or infinite on one side only. */
static void mismatch(struct accuracy *out, struct accuracy_row row) {
    if (out->pattern_mismatches++ == 0)
        out->first_mismatch = row;
}

/* Sums of one row; values that are not finite are compared by kind. */
static struct row_sums compare_row(const double *reference, const float *o,
                                   int64_t dim, enum scalar_type dtype,
                                   struct accuracy_row row,
                                   struct accuracy *out) {
    struct row_sums sums = {0, 0};
    for (int64_t d = 0; d < dim; d++) {
        if (pattern_differs((double)o[d], reference[d], dtype)) {
            mismatch(out, row);
        } else if (isfinite(o[d]) && isfinite(reference[d])) {
            double difference = (double)o[d] - reference[d];
            sums.error += difference * difference;
            sums.reference += reference[d] * reference[d];
        }
    }
    return sums;
}

/* Keeps the LSE that is furthest from the reference in units of its bound. */
static void compare_lse(double reference, double lse, struct accuracy_row row,
                        struct accuracy *out) {
    if (pattern_differs(lse, reference, SCALAR_F32)) {
        mismatch(out, row);
        return;
    }
    if (!isfinite(lse) || !isfinite(reference))
        return;
    double error = fabs(lse - reference), bound = accuracy_lse_bound(reference);
    if (out->worst_lse.b < 0 ||
        error / bound > out->lse_error / out->lse_bound) {
        out->lse_error = error;
        out->lse_bound = bound;
        out->worst_lse = row;
    }
}

/* A row that attends to nothing: O = 0 and LSE = -inf, exactly. */
static void check_empty(const float *o, const float *lse, int64_t dim,
                        struct accuracy_row row, struct accuracy *out) {
    bool exact = !lse || *lse == -INFINITY;
    for (int64_t d = 0; d < dim; d++)
        exact = exact && o[d] == 0;
    if (!exact && out->inexact_empty_rows++ == 0)
        out->first_inexact = row;
}

/* A row beyond the range of the bounds: O is finite, nothing more.  LSE may be
 * -inf: scores near -FLT_MAX leave f32 in units of log2. */
static void check_finite(const float *o, const float *lse, int64_t dim,
                         struct accuracy_row row, struct accuracy *out) {
    for (int64_t d = 0; d < dim; d++)
        if (!isfinite(o[d]))
            mismatch(out, row);
    if (lse && (isnan(*lse) || *lse == INFINITY))
        mismatch(out, row);
}

void accuracy_check(const struct ref_result *reference, const float *o,
                    const float *lse, const int64_t *sizes, int64_t dim_v,
                    enum scalar_type dtype, struct accuracy *out) {
    const struct accuracy_row nowhere = {-1, -1, -1};
    *out = (struct accuracy){
        .o_bound = o_bound(dtype),
        .row_bound = 4 * o_bound(dtype),
        .lse_bound = accuracy_lse_bound(0),
        .worst_row = nowhere,
        .worst_lse = nowhere,
        .first_inexact = nowhere,
        .first_mismatch = nowhere,
        .has_lse = lse != NULL,
        .rows = sizes[SIZE_BATCH] * sizes[SIZE_HEADS] * sizes[SIZE_Q_LEN],
    };
    struct row_sums total = {0, 0};
    for (int64_t i = 0; i < out->rows; i++) {
        struct accuracy_row row = {i / sizes[SIZE_Q_LEN] / sizes[SIZE_HEADS],
                                   i / sizes[SIZE_Q_LEN] % sizes[SIZE_HEADS],
                                   i % sizes[SIZE_Q_LEN]};
        enum ref_row kind = reference->row[i];
        const float *row_o = o + i * dim_v, *row_lse = lse ? lse + i : NULL;
        out->empty_rows += kind == REF_ROW_EMPTY;
        out->nan_rows += kind == REF_ROW_NAN;
        out->extreme_rows += kind == REF_ROW_EXTREME;
        if (kind == REF_ROW_EMPTY) {
            check_empty(row_o, row_lse, dim_v, row, out);
            continue;
        }
        if (kind == REF_ROW_EXTREME) {
            check_finite(row_o, row_lse, dim_v, row, out);
            continue;
        }
        struct row_sums sums = compare_row(reference->o + i * dim_v, row_o,
                                           dim_v, dtype, row, out);
        total.error += sums.error;
        total.reference += sums.reference;
        if (out->worst_row.b < 0 || ratio(sums) > out->row_error) {
            out->row_error = ratio(sums);
            out->worst_row = row;
        }
        if (lse)
            compare_lse(reference->lse[i], (double)*row_lse, row, out);
    }
    out->o_error = ratio(total);
    out->passed = out->o_error <= out->o_bound &&
                  out->row_error <= out->row_bound &&
                  out->lse_error <= out->lse_bound &&
                  out->inexact_empty_rows == 0 && out->pattern_mismatches == 0;
}

static void print_row(struct strbuf *out, struct accuracy_row row) {
    if (row.b < 0)
        strbuf_append(out, "none");
    else
        strbuf_printf(out, "b=%" PRId64 " h=%" PRId64 " q=%" PRId64, row.b,
                      row.h, row.q);
}

static void print_figure(struct strbuf *out, const char *name, double error,
                         double bound) {
    strbuf_printf(out, "  %-12s %.3e  (bound %.1e)%s", name, error, bound,
                  error <= bound ? "" : "  EXCEEDED");
}

void accuracy_print(const struct accuracy *a, struct strbuf *out) {
    strbuf_printf(out, "check: %s\n", a->passed ? "passed" : "FAILED");
    print_figure(out, "O", a->o_error, a->o_bound);
    strbuf_append_char(out, '\n');
    print_figure(out, "O, worst row", a->row_error, a->row_bound);
    strbuf_append(out, "  at ");
    print_row(out, a->worst_row);
    strbuf_append_char(out, '\n');
    if (a->has_lse) {
        print_figure(out, "LSE", a->lse_error, a->lse_bound);
        strbuf_append(out, "  at ");
        print_row(out, a->worst_lse);
        strbuf_append_char(out, '\n');
    }
    strbuf_printf(out, "  rows         %" PRId64, a->rows);
    if (a->empty_rows)
        strbuf_printf(out, ", %" PRId64 " empty (%s)", a->empty_rows,
                      a->inexact_empty_rows ? "NOT EXACT" : "exact");
    if (a->nan_rows)
        strbuf_printf(out, ", %" PRId64 " NaN", a->nan_rows);
    if (a->extreme_rows)
        strbuf_printf(out,
                      ", %" PRId64 " with scores beyond 4096 (finite only)",
                      a->extreme_rows);
    strbuf_append_char(out, '\n');
    if (a->inexact_empty_rows) {
        strbuf_printf(out,
                      "  %" PRId64
                      " empty rows are not O = 0, LSE = -inf; the first at ",
                      a->inexact_empty_rows);
        print_row(out, a->first_inexact);
        strbuf_append_char(out, '\n');
    }
    if (a->pattern_mismatches) {
        strbuf_printf(out,
                      "  %" PRId64
                      " values are NaN or infinite on one side only; "
                      "the first at ",
                      a->pattern_mismatches);
        print_row(out, a->first_mismatch);
        strbuf_append_char(out, '\n');
    }
}

/* JSON has no infinity: it is written as a number that reads back as one. */
static void json_number(struct strbuf *out, const char *key, double value) {
    strbuf_printf(out, "\"%s\": ", key);
    if (isfinite(value))
        strbuf_printf(out, "%.6g", value);
    else
        strbuf_append(out, isnan(value) ? "null"
                           : value > 0  ? "1e999"
                                        : "-1e999");
}

static void json_row(struct strbuf *out, const char *key,
                     struct accuracy_row row) {
    if (row.b < 0)
        strbuf_printf(out, ", \"%s\": null", key);
    else
        strbuf_printf(out, ", \"%s\": [%" PRId64 ", %" PRId64 ", %" PRId64 "]",
                      key, row.b, row.h, row.q);
}

void accuracy_print_json(const struct accuracy *a, struct strbuf *out) {
    strbuf_printf(out, "{\"passed\": %s, ", a->passed ? "true" : "false");
    json_number(out, "o_error", a->o_error);
    json_number((strbuf_append(out, ", "), out), "o_bound", a->o_bound);
    json_number((strbuf_append(out, ", "), out), "row_error", a->row_error);
    json_number((strbuf_append(out, ", "), out), "row_bound", a->row_bound);
    json_row(out, "worst_row", a->worst_row);
    if (a->has_lse) {
        json_number((strbuf_append(out, ", "), out), "lse_error", a->lse_error);
        json_number((strbuf_append(out, ", "), out), "lse_bound", a->lse_bound);
        json_row(out, "worst_lse", a->worst_lse);
    }
    strbuf_printf(out,
                  ", \"rows\": %" PRId64 ", \"empty_rows\": %" PRId64
                  ", \"nan_rows\": %" PRId64 ", \"extreme_rows\": %" PRId64
                  ", \"inexact_empty_rows\": %" PRId64
                  ", \"pattern_mismatches\": %" PRId64 "}",
                  a->rows, a->empty_rows, a->nan_rows, a->extreme_rows,
                  a->inexact_empty_rows, a->pattern_mismatches);
}
