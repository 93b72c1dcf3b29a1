/* Kernels of tests/ptx on the emulator, against plain attention in fp64. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/unit/ptx_util.h"

static double full(const struct ptx_problem *p, int b, int h, int q, int kv,
                   double s) {
    (void)p, (void)b, (void)h, (void)q, (void)kv;
    return s;
}

static double causal(const struct ptx_problem *p, int b, int h, int q, int kv,
                     double s) {
    (void)p, (void)b, (void)h;
    return kv <= q ? s : -INFINITY;
}

static double softcap(const struct ptx_problem *p, int b, int h, int q, int kv,
                      double s) {
    (void)p, (void)b, (void)h;
    return kv <= q ? 50 * tanh(s / 50) : -INFINITY;
}

static double bias(const struct ptx_problem *p, int b, int h, int q, int kv,
                   double s) {
    (void)b;
    size_t at = ((size_t)h * p->q_len + q) * p->kv_len + kv;
    return s + p->bias[at] + p->slopes[h] * (q - kv);
}

static void run(const char *file, struct ptx_problem problem) {
    struct ptx_case c = ptx_case_file(file, "sm_80");
    cr_assert_not_null(c.text, "%s", ptx_case_errors(&c));
    ptx_check_run(&c, &problem);
    ptx_case_end(&c);
}

#define SIZES(...)         \
    (struct ptx_problem) { \
        __VA_ARGS__        \
    }
/*                          batch heads kv_heads q_len kv_len Dqk Dv bf16 score
 * bias slopes */
Test(ptx_run, causal_d64) {
    run("causal-d64",
        SIZES(1, 2, 1, 130, 150, 64, 64, true, causal, NULL, NULL));
}
Test(ptx_run, causal_d128) {
    run("causal-d128",
        SIZES(1, 1, 1, 140, 140, 128, 128, true, causal, NULL, NULL));
}
Test(ptx_run, padded_columns) {
    run("full-d72", SIZES(2, 1, 1, 70, 131, 72, 72, false, full, NULL, NULL));
}
Test(ptx_run, two_head_dims) {
    run("causal-192-128",
        SIZES(1, 1, 1, 65, 100, 192, 128, true, causal, NULL, NULL));
}
Test(ptx_run, q_in_registers) {
    run("full-d32-frag",
        SIZES(1, 3, 3, 33, 97, 32, 32, false, full, NULL, NULL));
}
Test(ptx_run, one_warp) {
    run("causal-d16",
        SIZES(1, 4, 2, 47, 33, 16, 16, false, causal, NULL, NULL));
}
Test(ptx_run, d256) {
    run("full-d256", SIZES(1, 1, 1, 17, 65, 256, 256, true, full, NULL, NULL));
}
Test(ptx_run, soft_cap) {
    run("softcap-d64",
        SIZES(1, 1, 1, 66, 66, 64, 64, true, softcap, NULL, NULL));
}
Test(ptx_run, captured_tensors) {
    static float table[2 * 50 * 70];
    const float slopes[] = {0.25f, -0.0625f};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        table[i] = (float)(rint(sin((double)i) * 128) / 64); /* exact in f16 */
    struct ptx_problem problem =
        SIZES(1, 2, 2, 50, 70, 64, 64, true, bias, table, slopes);
    run("bias-d64", problem);
}
Test(ptx_run, single_row_and_key) {
    run("causal-d64", SIZES(1, 1, 1, 1, 1, 64, 64, true, causal, NULL, NULL));
}
