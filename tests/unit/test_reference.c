/* The fp64 reference against formulas written out in C. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/frontend.h"
#include "reference/half.h"
#include "reference/reference.h"
#include "support/arena.h"

enum { DIM = 8, MAX_LEN = 200 };

/* A call of a spec given as text, on small whole numbers: every dot product is
 * exact in any order. */
struct fixture {
    struct arena *arena;
    const struct attention *attention;
    struct ref_program *program;
    struct ref_call call;
    struct ref_tensor tensors[4];
    uint32_t params[4];
    float *q, *k, *v;
};

static float small(int64_t i) {
    return (float)((i * 7919 + 13) % 17 - 8) / 8;
}

static float *fill(struct arena *arena, int64_t count, int64_t start) {
    float *data = ARENA_NEW_ARRAY(arena, float, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        data[i] = small(start + i * (i % 5 + 1));
    return data;
}

/* Attention `a` with the given lines after dtype and head_dim. */
static struct fixture setup_sizes(const char *lines,
                                  const int64_t sizes[SIZE_COUNT]) {
    struct fixture f = {.arena = arena_create()};
    char *text = arena_printf(
        f.arena, "attention a { dtype bf16; head_dim 8; %s }", lines);
    struct source_set *sources = source_set_create(f.arena);
    struct diag_sink *diags = diag_sink_create(f.arena, sources);
    const struct spec *spec = frontend_check_text(
        f.arena, sources, "a.attn", text, strlen(text), NULL, diags);
    if (!spec)
        diag_print(diags, false, stderr);
    cr_assert_not_null(spec);
    const char *missing;
    f.attention = &spec->attentions[0];
    f.program = ref_compile(f.arena, f.attention, &missing);
    int64_t b = sizes[SIZE_BATCH], h = sizes[SIZE_HEADS],
            h_kv = sizes[SIZE_KV_HEADS];
    int64_t n = sizes[SIZE_Q_LEN], m = sizes[SIZE_KV_LEN];
    f.q = fill(f.arena, b * h * n * DIM, 1);
    f.k = fill(f.arena, b * h_kv * m * DIM, 2);
    f.v = fill(f.arena, b * h_kv * m * DIM, 3);
    memcpy(f.call.sizes, sizes, sizeof f.call.sizes);
    f.call.q = (struct ref_matrix){f.q, {h * n * DIM, n * DIM, DIM}};
    f.call.k = (struct ref_matrix){f.k, {h_kv * m * DIM, m * DIM, DIM}};
    f.call.v = (struct ref_matrix){f.v, {h_kv * m * DIM, m * DIM, DIM}};
    return f;
}

static struct fixture setup(const char *lines, int64_t q_len, int64_t kv_len) {
    return setup_sizes(lines, (int64_t[]){1, 1, 1, q_len, kv_len});
}

/* The pointers into the fixture itself, once it stands where it stays. */
static struct ref_call *call_of(struct fixture *f) {
    f->call.params = f->params;
    f->call.tensors = f->tensors;
    return &f->call;
}

/* Final score of a pair whose scaled dot product is s; -INFINITY masks it. */
typedef double (*formula)(const struct fixture *f, int64_t b, int64_t h,
                          int64_t q, int64_t kv, double s);

struct expected {
    double o[DIM], lse;
};

static struct expected naive(const struct fixture *f, formula score,
                             double scale, int64_t b, int64_t h, int64_t q) {
    const int64_t *s = f->call.sizes;
    int64_t h_kv = h * s[SIZE_KV_HEADS] / s[SIZE_HEADS];
    const float *qr =
        f->q + ((b * s[SIZE_HEADS] + h) * s[SIZE_Q_LEN] + q) * DIM;
    const float *kr =
        f->k + (b * s[SIZE_KV_HEADS] + h_kv) * s[SIZE_KV_LEN] * DIM;
    const float *vr =
        f->v + (b * s[SIZE_KV_HEADS] + h_kv) * s[SIZE_KV_LEN] * DIM;
    struct expected e = {{0}, 0};
    double sum = 0;
    for (int64_t kv = 0; kv < s[SIZE_KV_LEN]; kv++) {
        double dot = 0;
        for (int d = 0; d < DIM; d++)
            dot += (double)qr[d] * (double)kr[kv * DIM + d];
        double weight = exp(score(f, b, h, q, kv, scale * dot));
        sum += weight;
        for (int d = 0; d < DIM; d++)
            e.o[d] += weight == 0 ? 0 : weight * (double)vr[kv * DIM + d];
    }
    for (int d = 0; d < DIM; d++)
        e.o[d] = sum > 0 ? e.o[d] / sum : 0;
    e.lse = log(sum);
    return e;
}

static double default_scale(void) {
    return (double)(float)(1 / sqrt(8.0));
}

static void expect_formula(struct fixture *f, formula score, double scale) {
    const int64_t *s = f->call.sizes;
    int64_t rows = s[SIZE_BATCH] * s[SIZE_HEADS] * s[SIZE_Q_LEN];
    struct ref_result result = {
        ARENA_NEW_ARRAY(f->arena, double, (size_t)(rows * DIM)),
        ARENA_NEW_ARRAY(f->arena, double, (size_t)rows),
        ARENA_NEW_ARRAY(f->arena, uint8_t, (size_t)rows),
    };
    ref_run(f->arena, f->program, call_of(f), 2, &result);
    for (int64_t row = 0; row < rows; row++) {
        int64_t b = row / s[SIZE_Q_LEN] / s[SIZE_HEADS],
                q = row % s[SIZE_Q_LEN];
        struct expected e =
            naive(f, score, scale, b, row / s[SIZE_Q_LEN] % s[SIZE_HEADS], q);
        if (isinf(e.lse)) {
            cr_assert_eq(result.lse[row], -INFINITY);
            cr_assert_eq(result.row[row], REF_ROW_EMPTY);
        } else {
            cr_assert_float_eq(result.lse[row], e.lse, 1e-12,
                               "row %d: lse %.17g, expected %.17g", (int)row,
                               result.lse[row], e.lse);
        }
        for (int d = 0; d < DIM; d++)
            cr_assert_float_eq(result.o[row * DIM + d], e.o[d], 1e-12, "row %d",
                               (int)row);
    }
    arena_destroy(f->arena);
}

static double plain(const struct fixture *f, int64_t b, int64_t h, int64_t q,
                    int64_t kv, double s) {
    (void)f, (void)b, (void)h, (void)q, (void)kv;
    return s;
}

Test(reference, full) {
    struct fixture f = setup("", 5, 7);
    expect_formula(&f, plain, default_scale());
}

Test(reference, scale_may_be_negative) {
    struct fixture f = setup("scale -0.75;", 9, 70);
    expect_formula(&f, plain, -0.75);
}

static double window_cap(const struct fixture *f, int64_t b, int64_t h,
                         int64_t q, int64_t kv, double s) {
    (void)f, (void)b, (void)h;
    return kv <= q && q - kv < 9
               ? 3 * tanh(s / 3) + (double)((float)(q - kv) * 0.125f)
               : -INFINITY;
}

Test(reference, lets_masks_and_scores_in_order) {
    struct fixture f =
        setup("param w: i32 = 9; param cap: f32 = 3.0; let d = q - kv;"
              "score cap * tanh(s / cap); mask d >= 0; mask d < w;"
              "score s + f32(d) * 0.125;",
              67, 133);
    f.params[0] = f.attention->params[0].default_bits;
    f.params[1] = f.attention->params[1].default_bits;
    expect_formula(&f, window_cap, default_scale());
}

static double let_of_s(const struct fixture *f, int64_t b, int64_t h, int64_t q,
                       int64_t kv, double s) {
    (void)f, (void)b, (void)h, (void)q, (void)kv;
    return 2 * s + s * s;
}

/* A let of s is fixed where it stands: before the doubling. */
Test(reference, let_keeps_the_score_of_its_line) {
    struct fixture f =
        setup("let square = s * s; score 2.0 * s; score s + square;", 3, 65);
    expect_formula(&f, let_of_s, default_scale());
}

static double grouped(const struct fixture *f, int64_t b, int64_t h, int64_t q,
                      int64_t kv, double s) {
    (void)f;
    return kv % 3 != 1
               ? s - 0.5 * (double)(h + 1) * (double)labs(q - kv) + (double)b
               : -INFINITY;
}

Test(reference, heads_and_batches) {
    struct fixture f = setup_sizes(
        "group any; mask kv % 3 != 1;"
        "score s - f32((h + 1) * abs(q - kv)) * 0.5 + f32(b + h_kv - h / 2);",
        (int64_t[]){2, 4, 2, 11, 19});
    expect_formula(&f, grouped, default_scale());
}

static const int32_t documents[] = {0, 0, 1, 1, 1, 2, 2, 5, 5, 5};

static double same_document(const struct fixture *f, int64_t b, int64_t h,
                            int64_t q, int64_t kv, double s) {
    (void)f, (void)b, (void)h;
    return documents[q] == documents[kv] && kv <= q ? s : -INFINITY;
}

Test(reference, captured_tensor) {
    struct fixture f = setup(
        "tensor doc: i32[kv_len]; mask doc[q] == doc[kv] && kv <= q;", 10, 10);
    f.tensors[0] = (struct ref_tensor){documents, {10}, {1}};
    expect_formula(&f, same_document, default_scale());
}

static double guarded(const struct fixture *f, int64_t b, int64_t h, int64_t q,
                      int64_t kv, double s) {
    (void)f, (void)b, (void)h;
    return kv < 4 && documents[kv] == 0 ? s + (q < 3 ? (double)documents[q] : 9)
                                        : -INFINITY;
}

/* Reads behind a guard are out of range here: rank-2 table of 3 by 4. */
Test(reference, guarded_reads_are_not_observed) {
    static const int32_t table[12] = {0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1};
    struct fixture f = setup("tensor t: i32[3, 4];"
                             "mask kv < 4 && t[0, kv] == 0;"
                             "score s + (q < 3 ? f32(t[q, 0]) : 9.0);",
                             6, 9);
    f.tensors[0] = (struct ref_tensor){table, {3, 4}, {4, 1}};
    expect_formula(&f, guarded, default_scale());
}

static double none(const struct fixture *f, int64_t b, int64_t h, int64_t q,
                   int64_t kv, double s) {
    (void)f, (void)b, (void)h;
    return q % 2 && kv > 70 ? s : -INFINITY;
}

Test(reference, empty_rows) {
    struct fixture f =
        setup("mask kv > 70; score q % 2 == 1 ? s : -inf;", 5, 80);
    expect_formula(&f, none, default_scale());
}

/* One value, evaluated as a score line. */
static double score_of(const char *line, int64_t q, int64_t kv, double s) {
    struct fixture f = setup(line, MAX_LEN, MAX_LEN);
    struct ref_eval *eval = ref_eval_create(f.arena, f.program, call_of(&f));
    double value = ref_eval_score(eval, 0, 0, q, kv, s);
    arena_destroy(f.arena);
    return value;
}

Test(reference, integers) {
    cr_expect_eq(score_of("score s + f32((q - 10) / 3);", 0, 0, 0), -4);
    cr_expect_eq(score_of("score s + f32((q - 10) % 3);", 0, 0, 0), 2);
    cr_expect_eq(score_of("score s + f32(10 % (q - 3));", 0, 0, 0), -2);
    cr_expect_eq(score_of("score s + f32((q + 2147483647) + 1);", 0, 0, 0),
                 -2147483648.0);
    cr_expect_eq(score_of("score s + f32((q - 16) >> 2);", 0, 0, 0), -4);
    cr_expect_eq(score_of("score s + f32((q + 1) << 33);", 0, 0, 0), 2);
    cr_expect_eq(score_of("score s + f32(i32(f32(q) * 1.0e9));", 100, 0, 0),
                 2147483648.0);
    cr_expect_eq(score_of("score s + f32(~q ^ 5 & 4);", 3, 0, 0),
                 (double)(~3 ^ (5 & 4)));
    cr_expect_eq(score_of("score s + f32(clamp(q - kv, -2, 5));", 3, 9, 0), -2);
}

Test(reference, floats) {
    /* f32 where s does not enter: 0.1 is rounded, and so is each step */
    cr_expect_eq(score_of("score s + f32(q) * 0.1 * 0.1;", 3, 0, 0),
                 (double)(3.0f * 0.1f * 0.1f));
    /* fp64 where it does */
    cr_expect_eq(score_of("score s * 0.1 * 0.1;", 0, 0, 3),
                 3 * (double)0.1f * (double)0.1f);
    cr_expect_eq(score_of("score f32(i32(s)) * 0.1;", 0, 0, 7.9),
                 7 * (double)0.1f);
    cr_expect_eq(score_of("score s > 1.0 ? 2.5 : -1.5;", 0, 0, 1.5), 2.5);
    cr_expect_eq(score_of("score round(s) + floor(s) + ceil(s);", 0, 0, 2.5),
                 2 + 2 + 3);
    cr_expect_eq(score_of("score s % 3.0;", 0, 0, -1), 2);
    cr_expect_eq(
        score_of("score pow(s, 3.0) + pow(f32(q) - 5.0, 0.0);", 0, 0, -2), -7);
    cr_expect(isnan(score_of("score log(s);", 0, 0, -1)));
    cr_expect_eq(score_of("score min(log(s), 4.0);", 0, 0, -1), 4);
    cr_expect_eq(score_of("score f32(i32(log(s)));", 0, 0, -1), 0);
}

Test(reference, nan_stays_in_its_row) {
    struct fixture f = setup("mask kv <= q;", 70, 70);
    double o[70 * DIM], lse[70];
    uint8_t row[70];
    f.q[3 * DIM] = NAN;
    f.k[69 * DIM] = INFINITY; /* read by the last row only */
    f.v[60 * DIM + 2] = NAN;
    f.q[69 * DIM] = 1;
    ref_run(f.arena, f.program, call_of(&f), 1,
            &(struct ref_result){o, lse, row});
    for (int r = 0; r < 70; r++) {
        bool poisoned = r == 3 || r == 69;
        cr_expect_eq(isnan(lse[r]), poisoned, "lse of row %d", r);
        cr_expect_eq(isnan(o[r * DIM]), poisoned, "row %d", r);
        cr_expect_eq(isnan(o[r * DIM + 2]), poisoned || r >= 60, "row %d", r);
        cr_expect_eq(row[r], poisoned ? REF_ROW_NAN : REF_ROW_PLAIN);
    }
    arena_destroy(f.arena);
}

Test(reference, counts_kept_pairs) {
    struct fixture f =
        setup_sizes("group any; mask kv <= q + b; mask h == 0 || kv > 3;",
                    (int64_t[]){2, 2, 1, 130, 101});
    int64_t expected = 0;
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 2; h++)
            for (int q = 0; q < 130; q++)
                for (int kv = 0; kv < 101; kv++)
                    expected += kv <= q + b && (h == 0 || kv > 3);
    cr_expect_eq(ref_count_kept(f.arena, f.program, call_of(&f), 3), expected);
    arena_destroy(f.arena);
}

Test(reference, does_not_depend_on_threads) {
    double o[2][200 * DIM], lse[2][200];
    for (int i = 0; i < 2; i++) {
        struct fixture f =
            setup("mask (q * kv) % 7 != 2; score s * 1.7;", 200, 190);
        ref_run(f.arena, f.program, call_of(&f), i ? 7 : 1,
                &(struct ref_result){o[i], lse[i], NULL});
        arena_destroy(f.arena);
    }
    cr_expect_eq(memcmp(o[0], o[1], sizeof o[0]), 0);
    cr_expect_eq(memcmp(lse[0], lse[1], sizeof lse[0]), 0);
}

Test(reference, extern_needs_a_model) {
    struct arena *arena = arena_create();
    struct source_set *sources = source_set_create(arena);
    struct diag_sink *diags = diag_sink_create(arena, sources);
    char path[] = "/tmp/attn-reference-XXXXXX.cu";
    int file = mkstemps(path, 3);
    cr_assert_geq(file, 0);
    const char *cuda =
        "extern \"C\" __device__ float decay(int d) { return d; }\n";
    cr_assert_eq(write(file, cuda, strlen(cuda)), (ssize_t)strlen(cuda));
    close(file);
    const char *text = arena_printf(
        arena,
        "extern \"%s\" fn decay(d: i32) -> f32;"
        "attention a { dtype f16; head_dim 8; score s + decay(q); }",
        path);
    const struct spec *spec = frontend_check_text(
        arena, sources, "a.attn", text, strlen(text), NULL, diags);
    unlink(path);
    cr_assert_not_null(spec);
    const char *missing;
    cr_expect_null(ref_compile(arena, &spec->attentions[0], &missing));
    cr_expect_str_eq(missing, "decay");
    arena_destroy(arena);
}

Test(half, conversions_round_to_even) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float f16 = float_of_f16((uint16_t)bits),
              bf16 = float_of_bf16((uint16_t)bits);
        if (!isnan(f16))
            cr_assert_eq(f16_of_float(f16), bits);
        if (!isnan(bf16))
            cr_assert_eq(bf16_of_float(bf16), bits);
        cr_assert_eq(isnan(float_of_f16(f16_of_float(f16))), isnan(f16));
        cr_assert_eq(round_to_scalar((double)bf16, SCALAR_BF16) == (double)bf16,
                     !isnan(bf16));
    }
    cr_expect_eq(f16_of_float(65519.0f), 0x7bff);
    cr_expect_eq(f16_of_float(65520.0f), 0x7c00);
    cr_expect_eq(f16_of_float(0x1p-25f), 0);
    cr_expect_eq(f16_of_float(0x1.8p-25f), 1);
    cr_expect_eq(bf16_of_float(0x1.01p0f), 0x3f80);
    cr_expect_eq(bf16_of_float(0x1.03p0f), 0x3f82);
    cr_expect_eq(round_to_scalar(0x1.01p0, SCALAR_BF16), 1);
    cr_expect_eq(round_to_scalar(65519.999, SCALAR_F16), 65504);
}
