/* Every spec on a machine: types × sizes × memory orders × seeds against the
 * reference.
 *
 * Work is done in two rounds on all threads: first every (spec, type, target)
 * is compiled once, then every (spec, size) is one job that makes its data and
 * the reference once and runs all compiled forms on it.  The largest sizes come
 * first.
 */
#include <string.h>

#include "tests/e2e/suites.h"

enum { DTYPES = 2, MAX_FORMS = DTYPES * E2E_MAX_TARGETS };

static const char *const dtype_names[DTYPES] = {"bf16", "f16"};
static const enum scalar_type dtypes[DTYPES] = {SCALAR_BF16, SCALAR_F16};

/* One spec as it is tested: with its forms, one for each type and target. */
struct subject {
    const struct pattern *pattern;
    const char *label;    /* name in the report */
    const char *head_dim; /* replaced in the text; NULL: the spec's */
    struct arena *arenas[MAX_FORMS];
    struct loaded loaded[MAX_FORMS];
    struct executor executors[MAX_FORMS];
    const char *errors[MAX_FORMS]; /* of compiling; NULL: fine */
};

struct matrix {
    const struct e2e_options *options;
    struct report *report;
    const char *suite;
    enum machine machine;
    const char *targets[E2E_MAX_TARGETS]; /* NULL: the compiler's choice */
    int target_count;
    struct subject *subjects;
    int64_t subject_count;
    const struct e2e_sizes *sizes;
    int64_t size_count;
};

/* ---- First round: compile ------------------------------------------------ */

static void compile_form(void *context, int64_t index) {
    struct matrix *matrix = context;
    int forms = DTYPES * matrix->target_count, form = (int)(index % forms);
    struct subject *subject = &matrix->subjects[index / forms];
    struct load_changes changes = {.dtype = dtype_names[form % DTYPES],
                                   .head_dim = subject->head_dim};
    struct loaded *loaded = &subject->loaded[form];
    subject->arenas[form] = arena_create();
    subject->errors[form] = "the spec does not check";
    if (load_spec(subject->arenas[form], matrix->options->specs_dir,
                  subject->pattern->name, &changes, loaded))
        subject->errors[form] = executor_create(loaded, matrix->machine,
                                                matrix->targets[form / DTYPES],
                                                &subject->executors[form]);
    if (!subject->errors[form])
        return;
    struct result result = {
        .suite = matrix->suite,
        .name = subject->label,
        .variant =
            arena_printf(subject->arenas[form], "compile %s", changes.dtype),
        .message = subject->errors[form]};
    report_add(matrix->report, &result);
}

/* ---- Second round: run --------------------------------------------------- */

/* Runs one form on a call in one memory order. */
static void run_form(struct matrix *matrix, const struct subject *subject,
                     int form, struct call *call,
                     const struct ref_result *reference,
                     enum call_layout layout, uint64_t seed) {
    const struct executor *executor = &subject->executors[form];
    struct result result = {.suite = matrix->suite, .name = subject->label};
    result.variant = arena_printf(call->arena, "%s %s %s seed %llu",
                                  executor->target, dtype_names[form % DTYPES],
                                  layout == CALL_BSHD ? "BSHD" : "BHSD",
                                  (unsigned long long)seed);
    call_encode(call, dtypes[form % DTYPES], layout);
    e2e_compare(executor, call, layout, reference, seed, &result);
    report_add(matrix->report, &result);
}

/* Which memory orders and types a size is run in: on the emulator one of each
 * in turn, on the GPU all but for the largest sizes. */
static bool is_chosen(const struct matrix *matrix, int64_t index, int form,
                      int layout) {
    const struct e2e_sizes *sizes = &matrix->sizes[index % matrix->size_count];
    int dtype = form % DTYPES;
    if (matrix->machine == MACHINE_EMULATOR)
        return dtype == index % 2 && layout == index / 2 % 2;
    return sizes->n[SIZE_Q_LEN] * sizes->n[SIZE_KV_LEN] < 4 << 20 ||
           dtype == layout;
}

static void run_call(struct matrix *matrix, const struct subject *subject,
                     int64_t index, struct call *call) {
    const struct ref_result reference = e2e_reference(call, 1);
    int seeds =
        matrix->machine == MACHINE_EMULATOR ? matrix->options->seeds : 1;
    for (int form = 0; form < DTYPES * matrix->target_count; form++)
        for (int layout = 0; layout < 2 && !subject->errors[form]; layout++)
            for (int seed = 0;
                 seed < seeds && is_chosen(matrix, index, form, layout); seed++)
                run_form(matrix, subject, form, call, &reference,
                         (enum call_layout)layout,
                         matrix->options->seed + (uint64_t)seed);
}

static void run_size(void *context, int64_t index) {
    struct matrix *matrix = context;
    /* Sizes outermost: the largest calls of all specs start first. */
    const struct subject *subject =
        &matrix->subjects[index % matrix->subject_count];
    int64_t place = index / matrix->subject_count;
    struct e2e_sizes sizes = matrix->sizes[place];
    struct rng rng = {matrix->options->seed * 1000003 + (uint64_t)index};
    if (!subject->loaded[0].attention ||
        !e2e_fit_sizes(subject->pattern, subject->loaded[0].attention, &sizes))
        return;
    struct arena *arena = arena_create();
    struct call *call = e2e_call(arena, subject->pattern,
                                 subject->loaded[0].attention, &sizes, &rng);
    if (sizes.n[SIZE_Q_LEN] * sizes.n[SIZE_KV_LEN] < 1 << 20)
        call_restride(call, &rng);
    /* A different type and memory order for each spec at one size. */
    run_call(matrix, subject,
             place + index % matrix->subject_count * matrix->size_count, call);
    arena_destroy(arena);
}

static void matrix_run(struct matrix *matrix) {
    if (matrix->options->has_sizes) {
        matrix->sizes = &matrix->options->sizes;
        matrix->size_count = 1;
    }
    int threads = matrix->options->threads;
    void (*enter)(void) =
        matrix->machine == MACHINE_GPU ? executor_gpu_enter : NULL;
    int forms = DTYPES * matrix->target_count;
    e2e_parallel(matrix->subject_count * forms, threads, enter, compile_form,
                 matrix);
    e2e_parallel(matrix->subject_count * matrix->size_count, threads, enter,
                 run_size, matrix);
    for (int64_t i = 0; i < matrix->subject_count; i++)
        for (int form = 0; form < forms; form++) {
            if (!matrix->subjects[i].errors[form])
                executor_destroy(&matrix->subjects[i].executors[form]);
            arena_destroy(matrix->subjects[i].arenas[form]);
        }
}

/* ---- Subjects and sizes -------------------------------------------------- */

static void add_patterns(struct arena *arena, struct matrix *matrix) {
    const struct pattern *pattern;
    size_t count = 0;
    while (pattern_get(count))
        count++;
    matrix->subjects = ARENA_NEW_ARRAY(arena, struct subject, count);
    matrix->subject_count = 0;
    for (size_t i = 0; (pattern = pattern_get(i)); i++)
        if (e2e_wanted(matrix->options, pattern->name))
            matrix->subjects[matrix->subject_count++] =
                (struct subject){.pattern = pattern, .label = pattern->name};
}

/* `causal` with every head dimension: steps of `step` up to 256, then pairs of
 * two different ones. */
static void add_head_dims(struct arena *arena, struct matrix *matrix,
                          int step) {
    static const char *const pairs[] = {"192, 128", "128, 64", "64, 128",
                                        "24, 40",   "256, 64", "16, 256",
                                        "72, 80",   "8, 8"};
    enum { PAIRS = sizeof pairs / sizeof *pairs };
    const struct pattern *pattern = pattern_find("causal");
    int64_t steps = 256 / step;
    matrix->subjects =
        ARENA_NEW_ARRAY(arena, struct subject, (size_t)steps + PAIRS);
    matrix->subject_count = steps + PAIRS;
    for (int64_t i = 0; i < matrix->subject_count; i++) {
        struct subject *subject = &matrix->subjects[i];
        subject->pattern = pattern;
        subject->head_dim = i < steps
                                ? arena_printf(arena, "%d", (int)(i + 1) * step)
                                : pairs[i - steps];
        subject->label = arena_printf(arena, "head_dim %s", subject->head_dim);
    }
}

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))

static const struct e2e_sizes emulator_sizes[] = {
    {{1, 2, 1, 129, 129}}, {{1, 1, 1, 100, 193}}, {{1, 2, 2, 130, 64}},
    {{2, 2, 1, 17, 40}},   {{2, 2, 1, 1, 1}},
};

static const struct e2e_sizes emulator_head_dim_sizes[] = {{{1, 2, 1, 37, 70}}};

void suite_emulator(const struct e2e_options *options, struct report *report) {
    struct arena *arena = arena_create();
    struct matrix matrix = {.options = options,
                            .report = report,
                            .suite = "emulator",
                            .machine = MACHINE_EMULATOR,
                            .sizes = emulator_sizes,
                            .size_count = COUNT(emulator_sizes)};
    matrix.target_count = e2e_targets(options, matrix.targets);
    if (options->small) {
        matrix.sizes += 3;
        matrix.size_count -= 3;
    }
    add_patterns(arena, &matrix);
    matrix_run(&matrix);
    if (e2e_wanted(options, "head_dims")) {
        matrix.sizes = emulator_head_dim_sizes;
        matrix.size_count = COUNT(emulator_head_dim_sizes);
        add_head_dims(arena, &matrix, options->small ? 64 : 24);
        matrix_run(&matrix);
    }
    arena_destroy(arena);
}

static const struct e2e_sizes gpu_sizes[] = {
    {{1, 2, 1, 4097, 4097}}, {{1, 2, 2, 4097, 1030}}, {{1, 4, 1, 1000, 4097}},
    {{2, 4, 2, 1000, 1000}}, {{2, 2, 1, 1000, 777}},  {{2, 6, 2, 128, 515}},
    {{2, 4, 4, 128, 128}},   {{3, 4, 2, 64, 64}},     {{3, 3, 1, 17, 17}},
    {{2, 8, 1, 17, 300}},    {{2, 4, 2, 1, 1}},       {{4, 8, 2, 1, 1000}},
};

static const struct e2e_sizes gpu_small_sizes[] = {
    {{1, 2, 1, 300, 515}},
    {{1, 2, 2, 129, 100}},
    {{1, 1, 1, 1, 17}},
};

static const struct e2e_sizes gpu_head_dim_sizes[] = {
    {{2, 4, 2, 515, 515}},
    {{1, 2, 1, 130, 333}},
    {{1, 2, 2, 17, 17}},
};

void suite_gpu(const struct e2e_options *options, struct report *report) {
    struct arena *arena = arena_create();
    struct matrix matrix = {.options = options,
                            .report = report,
                            .suite = "gpu",
                            .machine = MACHINE_GPU,
                            .sizes = gpu_sizes,
                            .size_count = COUNT(gpu_sizes)};
    matrix.targets[matrix.target_count++] = options->target;
    if (options->small) {
        matrix.sizes = gpu_small_sizes;
        matrix.size_count = COUNT(gpu_small_sizes);
    }
    add_patterns(arena, &matrix);
    matrix_run(&matrix);
    if (e2e_wanted(options, "head_dims")) {
        matrix.sizes = gpu_head_dim_sizes;
        matrix.size_count = COUNT(gpu_head_dim_sizes);
        add_head_dims(arena, &matrix, options->small ? 64 : 8);
        matrix_run(&matrix);
    }
    arena_destroy(arena);
}
