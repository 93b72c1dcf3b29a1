/* The same PTX on the GPU and on the emulator: do the numbers agree?
 *
 * Both round P to the dtype and add in f32, but tensor cores add in an order of
 * their own and ex2.approx differs in its last bits.  So elements of O may fall
 * on two sides of a rounding: no two may be further apart than one unit in the
 * last place of the row's largest element, and nearly all must be the
 * same. */
#include <math.h>

#include "tests/e2e/suites.h"

static const struct e2e_sizes twin_sizes = {{1, 2, 1, 100, 193}};

/* Least share of elements that must be bit for bit the same. */
static const double SAME_SHARE = 0.9;

/* Spacing of the dtype's numbers at magnitude x. */
static double spacing(double x, enum scalar_type dtype) {
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, exponent - (dtype == SCALAR_F16 ? 11 : 8));
}

struct twin_figures {
    double
        worst; /* difference in units of spacing at the row's largest element */
    int64_t same, elements;
};

static struct twin_figures compare_outputs(const float *a, const float *b,
                                           int64_t rows, int64_t dim,
                                           enum scalar_type dtype) {
    struct twin_figures figures = {.elements = rows * dim};
    for (int64_t row = 0; row < rows; row++) {
        double largest = 0;
        for (int64_t i = row * dim; i < (row + 1) * dim; i++)
            largest = fmax(largest, fabs((double)a[i]));
        double unit = spacing(fmax(largest, 1e-6), dtype);
        for (int64_t i = row * dim; i < (row + 1) * dim; i++) {
            double difference = fabs((double)a[i] - (double)b[i]) / unit;
            figures.same += difference == 0;
            if (!(difference <= figures.worst))
                figures.worst = difference;
        }
    }
    return figures;
}

/* Runs one spec on one machine; NULL or what failed. */
static const char *run_machine(struct loaded *loaded, enum machine machine,
                               const char *target, const struct call *call,
                               float **out_o) {
    struct executor executor;
    struct call_tensor o =
        call_output(call, loaded->attention->dtype, CALL_BSHD);
    struct call_tensor lse = call_lse_output(call);
    const char *error = executor_create(loaded, machine, target, &executor);
    if (error)
        return error;
    error = executor_run(&executor, call, 1, &o, &lse);
    executor_destroy(&executor);
    *out_o = call_decode(call, &o);
    return error;
}

static const char *run_twin(const struct e2e_options *options,
                            const struct pattern *pattern, struct arena *arena,
                            struct result *result) {
    static const struct load_changes as_written = {0};
    struct e2e_sizes sizes = twin_sizes;
    struct rng rng = {options->seed};
    struct loaded loaded;
    float *gpu = NULL, *emulator = NULL;
    const char *target = options->target ? options->target : "sm_80";
    if (!load_spec(arena, options->specs_dir, pattern->name, &as_written,
                   &loaded))
        return "the spec does not check";
    e2e_fit_sizes(pattern, loaded.attention, &sizes);
    struct call *call =
        e2e_call(arena, pattern, loaded.attention, &sizes, &rng);
    call_encode(call, loaded.attention->dtype, CALL_BSHD);
    for (int i = 0; i < SIZE_COUNT; i++)
        result->sizes[i] = call->sizes[i];
    const char *error = run_machine(&loaded, MACHINE_GPU, target, call, &gpu);
    if (!error)
        error = run_machine(&loaded, MACHINE_EMULATOR, target, call, &emulator);
    if (error)
        return error;
    struct twin_figures figures = compare_outputs(
        gpu, emulator,
        sizes.n[SIZE_BATCH] * sizes.n[SIZE_HEADS] * sizes.n[SIZE_Q_LEN],
        loaded.attention->head_dim_v, loaded.attention->dtype);
    double same = (double)figures.same / (double)figures.elements;
    result->o_error = result->row_error = figures.worst;
    result->o_bound = 1;
    result->variant =
        arena_printf(arena, "%s, %.2f %% identical", target, 100 * same);
    if (!(figures.worst <= 1))
        return arena_printf(arena, "O differs by %.2f units in the last place",
                            figures.worst);
    return same >= SAME_SHARE ? NULL : "too few elements of O are identical";
}

struct twin_run {
    const struct e2e_options *options;
    struct report *report;
};

static void twin_work(void *context, int64_t index) {
    struct twin_run *run = context;
    const struct pattern *pattern = pattern_get((size_t)index);
    if (!e2e_wanted(run->options, pattern->name))
        return;
    struct arena *arena = arena_create();
    struct result result = {.suite = "twin", .name = pattern->name};
    result.message = run_twin(run->options, pattern, arena, &result);
    result.ok = !result.message;
    report_add(run->report, &result);
    arena_destroy(arena);
}

void suite_twin(const struct e2e_options *options, struct report *report) {
    struct twin_run run = {options, report};
    int64_t count = 0;
    while (pattern_get((size_t)count))
        count++;
    e2e_parallel(count, options->threads, executor_gpu_enter, twin_work, &run);
}
