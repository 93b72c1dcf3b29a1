/* The accuracy check: its bounds from both sides, and everything it must
 * notice. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "reference/accuracy.h"
#include "support/arena.h"

enum { ROWS = 6, DIM = 16 };

/* 1 batch, 2 heads, 3 queries; the outputs start equal to the reference. */
struct fixture {
    double ref_o[ROWS * DIM], ref_lse[ROWS];
    uint8_t kind[ROWS];
    float o[ROWS * DIM], lse[ROWS];
};

static struct fixture setup(void) {
    struct fixture f = {0};
    for (int i = 0; i < ROWS * DIM; i++)
        f.o[i] = (float)(f.ref_o[i] = i % 2 ? 1 : -1);
    for (int i = 0; i < ROWS; i++)
        f.lse[i] = (float)(f.ref_lse[i] = i - 2);
    return f;
}

static struct accuracy check(const struct fixture *f, enum scalar_type dtype) {
    const int64_t sizes[SIZE_COUNT] = {1, 2, 2, 3, 5};
    struct ref_result reference = {(double *)(uintptr_t)f->ref_o,
                                   (double *)(uintptr_t)f->ref_lse,
                                   (uint8_t *)(uintptr_t)f->kind};
    struct accuracy a;
    accuracy_check(&reference, f->o, f->lse, sizes, DIM, dtype, &a);
    return a;
}

Test(accuracy, equal_passes) {
    struct fixture f = setup();
    struct accuracy a = check(&f, SCALAR_BF16);
    cr_expect(a.passed);
    cr_expect_eq(a.o_error, 0);
    cr_expect_eq(a.rows, ROWS);
}

Test(accuracy, whole_tensor) {
    for (int over = 0; over < 2; over++) {
        struct fixture f = setup();
        for (int i = 0; i < ROWS * DIM; i++)
            f.o[i] *= over ? 1.0051f : 1.0049f;
        cr_expect_eq(check(&f, SCALAR_BF16).passed, !over);
        cr_expect(!check(&f, SCALAR_F16).passed);
    }
}

Test(accuracy, worst_row) {
    struct fixture f = setup();
    for (int d = 0; d < DIM; d++)
        f.o[4 * DIM + d] *= 1.019f;
    struct accuracy a = check(&f, SCALAR_BF16);
    cr_expect_float_eq(a.row_error, 0.019, 1e-5);
    cr_expect_float_eq(a.o_error, 0.019 / sqrt(6), 1e-5);
    cr_expect_eq(a.worst_row.h, 1);
    cr_expect_eq(a.worst_row.q, 1);
    f.o[4 * DIM] = -1.2f;
    cr_expect(check(&f, SCALAR_BF16).row_error > a.row_bound);
}

Test(accuracy, row_bound_alone_fails) {
    struct fixture f = setup();
    for (int i = 0; i < 5 * DIM; i++) {
        f.ref_o[i] *= 1000; /* the last row hardly counts in the whole */
        f.o[i] *= 1000;
    }
    for (int d = 0; d < DIM; d++)
        f.o[5 * DIM + d] *= 1.03f;
    struct accuracy a = check(&f, SCALAR_BF16);
    cr_expect_lt(a.o_error, a.o_bound);
    cr_expect(!a.passed);
    cr_expect_eq(a.worst_row.h, 1);
    cr_expect_eq(a.worst_row.q, 2);
}

Test(accuracy, lse_bounds) {
    for (int over = 0; over < 2; over++) {
        struct fixture f = setup();
        f.lse[1] += over ? 1.1e-3f : 0.9e-3f;
        struct accuracy a = check(&f, SCALAR_BF16);
        cr_expect_eq(a.passed, !over);
        cr_expect_eq(a.worst_lse.q, 1);
    }
    /* 4 units in the last place at 4000, where 1e-3 is less than that */
    cr_expect_float_eq(accuracy_lse_bound(-4000), 4000 * 0x1p-21, 1e-12);
    cr_expect_eq(accuracy_lse_bound(3), 1e-3);
}

Test(accuracy, lse_is_optional) {
    struct fixture f = setup();
    const int64_t sizes[SIZE_COUNT] = {1, 2, 2, 3, 5};
    struct accuracy a;
    accuracy_check(&(struct ref_result){f.ref_o, f.ref_lse, f.kind}, f.o, NULL,
                   sizes, DIM, SCALAR_BF16, &a);
    cr_expect(a.passed);
    cr_expect(!a.has_lse);
}

static struct fixture with_empty_row(void) {
    struct fixture f = setup();
    f.kind[2] = REF_ROW_EMPTY;
    for (int d = 0; d < DIM; d++)
        f.o[2 * DIM + d] = (float)(f.ref_o[2 * DIM + d] = 0);
    f.lse[2] = -INFINITY;
    f.ref_lse[2] = -INFINITY;
    return f;
}

Test(accuracy, empty_rows_are_exact) {
    struct fixture f = with_empty_row();
    cr_expect(check(&f, SCALAR_BF16).passed);
    f.o[2 * DIM + 5] = 1e-30f;
    struct accuracy a = check(&f, SCALAR_BF16);
    cr_expect(!a.passed);
    cr_expect_eq(a.inexact_empty_rows, 1);
    cr_expect_eq(a.first_inexact.q, 2);
    f = with_empty_row();
    f.lse[2] = -1e30f;
    cr_expect(!check(&f, SCALAR_BF16).passed);
    f.lse[2] = NAN;
    cr_expect(!check(&f, SCALAR_BF16).passed);
}

Test(accuracy, nan_pattern) {
    struct fixture f = setup();
    f.o[3 * DIM + 1] = NAN;
    struct accuracy a = check(&f, SCALAR_BF16);
    cr_expect(!a.passed);
    cr_expect_eq(a.pattern_mismatches, 1);
    cr_expect_eq(a.first_mismatch.h, 1);
    f.ref_o[3 * DIM + 1] = NAN;
    cr_expect(check(&f, SCALAR_BF16).passed);
    f.o[3 * DIM + 1] = 0;
    cr_expect(!check(&f, SCALAR_BF16).passed);
    f = setup();
    f.lse[0] = INFINITY;
    cr_expect(!check(&f, SCALAR_BF16).passed);
}

Test(accuracy, overflow_of_the_type) {
    struct fixture f = setup();
    f.ref_o[0] = 1e5; /* infinite in f16, not in bf16 */
    f.o[0] = INFINITY;
    cr_expect(check(&f, SCALAR_F16).passed);
    cr_expect(!check(&f, SCALAR_BF16).passed);
    f.o[0] = -INFINITY;
    cr_expect(!check(&f, SCALAR_F16).passed);
}

Test(accuracy, extreme_rows_must_be_finite_only) {
    struct fixture f = setup();
    f.kind[1] = REF_ROW_EXTREME;
    f.o[1 * DIM] = 77;
    f.lse[1] = 12;
    struct accuracy a = check(&f, SCALAR_BF16);
    cr_expect(a.passed);
    cr_expect_eq(a.extreme_rows, 1);
    f.o[1 * DIM] = NAN;
    cr_expect(!check(&f, SCALAR_BF16).passed);
}

Test(accuracy, nothing_expected_but_something_found) {
    struct fixture f = setup();
    for (int d = 0; d < DIM; d++)
        f.ref_o[d] = 0;
    cr_expect(!check(&f, SCALAR_BF16).passed);
    cr_expect(isinf(check(&f, SCALAR_BF16).row_error));
}

Test(accuracy, report_names_what_failed) {
    struct fixture f = with_empty_row();
    f.o[2 * DIM] = 3;
    f.o[5 * DIM] = NAN;
    struct accuracy a = check(&f, SCALAR_BF16);
    struct arena *arena = arena_create();
    struct strbuf text;
    strbuf_init(&text, arena);
    accuracy_print(&a, &text);
    cr_expect_not_null(strstr(strbuf_text(&text), "check: FAILED"));
    cr_expect_not_null(strstr(strbuf_text(&text), "the first at b=0 h=0 q=2"));
    cr_expect_not_null(strstr(strbuf_text(&text), "the first at b=0 h=1 q=2"));
    strbuf_clear(&text);
    accuracy_print_json(&a, &text);
    cr_expect_not_null(strstr(strbuf_text(&text), "\"inexact_empty_rows\": 1"));
    cr_expect_not_null(strstr(strbuf_text(&text), "\"passed\": false"));
    arena_destroy(arena);
}
