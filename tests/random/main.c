/* Random specs from text to numbers on the emulator, against the fp64 reference.
 *
 *     random [--count N] [--seed S] [--target T] [--threads N] [--print] [--no-shrink]
 *
 * Spec number i has seed S + i.  A failure is made smaller and printed as a spec
 * with its sizes and the command that repeats it.  --print shows the specs and runs
 * nothing.  Exit 0: none failed, 1: some did, 2: usage.
 */
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/compile.h"
#include "frontend/format.h"
#include "tests/e2e/suites.h"
#include "tests/random/gen.h"

struct random_options {
    int64_t count;
    uint64_t seed;
    const char *target; /* NULL: each of the compiler's in turn */
    int threads;
    bool print, shrink;
};

struct random_run {
    const struct random_options *options;
    atomic_llong failures, refused, empty_rows, rows, kept_pairs, pairs;
    pthread_mutex_t output;
};

/* The seed in work, for the message when a bug of ours aborts the process. */
static _Thread_local uint64_t current_seed;

static void on_crash(int number) {
    char text[96];
    int length = snprintf(text, sizeof text, "random: signal %d in the spec of --seed %llu\n",
                          number, (unsigned long long)current_seed);
    if (write(STDERR_FILENO, text, (size_t)length) < 0)
        _exit(3);
    signal(number, SIG_DFL);
    raise(number);
}

/* ---- One spec ------------------------------------------------------------ */

static void fill_tables(struct call *call, struct rng *rng) {
    call_fill_floats(call, rng);
    for (size_t i = 0; i < call->attention->tensor_count; i++) {
        struct call_tensor *table = &call->captured[i];
        for (int64_t j = 0, count = call_tensor_count(table); j < count; j++)
            if (table->type == SCALAR_I32)
                ((int32_t *)table->data)[j] = (int32_t)rng_range(rng, -3, 40);
            else if (table->type == SCALAR_BOOL)
                ((uint8_t *)table->data)[j] = (uint8_t)rng_range(rng, 0, 1);
    }
    call_restride(call, rng);
}

/* Checks the text.  A pinned schedule that the target cannot have is dropped from
 * `spec` and the text checked again. */
static bool check_spec(struct arena *arena, struct gen_spec *spec, const char *target,
                       struct loaded *out_loaded, bool *out_refused) {
    for (;;) {
        struct strbuf text;
        struct schedule_plan plan;
        struct loaded *loaded = out_loaded;
        strbuf_init(&text, arena);
        gen_spec_print(spec, &text);
        *loaded = (struct loaded){.arena = arena, .name = "random.attn",
                                  .text = strbuf_text(&text)};
        loaded->sources = source_set_create(arena);
        loaded->diags = diag_sink_create(arena, loaded->sources);
        loaded->spec = frontend_check_text(arena, loaded->sources, loaded->name, loaded->text,
                                           text.length, NULL, loaded->diags);
        if (!loaded->spec)
            return false;
        loaded->attention = loaded->spec->attentions;
        if (!spec->schedule || compile_plan(arena, loaded->sources, loaded->spec,
                                            loaded->attention, target, NULL, loaded->diags,
                                            &plan))
            return true;
        spec->schedule = NULL;
        *out_refused = true;
    }
}

/* Formatting must not change the meaning.  NULL, or the text that it made. */
static const char *check_format(struct arena *arena, const struct loaded *loaded) {
    struct loaded again;
    struct strbuf before, after;
    size_t length;
    char *text = format_source(arena, loaded->spec->file, loaded->diags, &length);
    if (!text)
        return "the formatter refuses the spec";
    if (!load_spec_text(arena, "formatted.attn", text, &again))
        return arena_printf(arena, "the formatted spec does not check:\n%s", text);
    strbuf_init(&before, arena);
    strbuf_init(&after, arena);
    ast_print_attention(&before, loaded->attention);
    ast_print_attention(&after, again.attention);
    return strcmp(strbuf_text(&before), strbuf_text(&after))
               ? arena_printf(arena, "formatting changed the meaning:\n%s", text)
               : NULL;
}

static void count_facts(struct random_run *run, const struct call *call,
                        const struct ref_result *reference) {
    const int64_t *n = call->sizes;
    int64_t rows = n[SIZE_BATCH] * n[SIZE_HEADS] * n[SIZE_Q_LEN], empty = 0;
    for (int64_t i = 0; i < rows; i++)
        empty += reference->row[i] == REF_ROW_EMPTY;
    struct ref_tensor tensors[CALL_MAX_TENSORS];
    const char *extern_name;
    struct ref_call ref = call_for_reference(call, tensors);
    struct ref_program *program = ref_compile(call->arena, call->attention, &extern_name);
    run->kept_pairs += ref_count_kept(call->arena, program, &ref, 1);
    run->pairs += rows * n[SIZE_KV_LEN];
    run->rows += rows;
    run->empty_rows += empty;
}

/* Runs a spec.  NULL when all is well; else what failed.  *out_invalid: the text does not
 * check.  Facts are counted when `run` is given. */
static const char *try_spec(struct arena *arena, struct gen_spec *spec, const char *target,
                            struct random_run *run, bool *out_invalid) {
    struct loaded loaded;
    struct executor executor;
    struct result result = {0};
    bool refused = false;
    struct rng rng = {spec->data_seed};
    *out_invalid = !check_spec(arena, spec, target, &loaded, &refused);
    if (*out_invalid) {
        struct strbuf text;
        strbuf_init(&text, arena);
        diag_render(loaded.diags, false, &text);
        return strbuf_text(&text);
    }
    const char *error = check_format(arena, &loaded);
    if (!error)
        error = executor_create(&loaded, MACHINE_EMULATOR, target, &executor);
    if (error)
        return error;
    struct call *call = call_create(arena, loaded.attention, spec->sizes, &rng);
    enum call_layout layout = spec->bshd ? CALL_BSHD : CALL_BHSD;
    if (!call_allocate(call))
        return "an extent of a tensor is out of range";
    fill_tables(call, &rng);
    call_encode(call, loaded.attention->dtype, layout);
    struct ref_result reference = e2e_reference(call, 1);
    if (run) {
        run->refused += refused;
        count_facts(run, call, &reference);
    }
    e2e_compare(&executor, call, layout, &reference, spec->data_seed, &result);
    return result.ok ? NULL : result.message;
}

/* ---- Shrinking ----------------------------------------------------------- */

enum { SHRINK_TRIES = 400 };

static bool same_spec(struct arena *arena, const struct gen_spec *a, const struct gen_spec *b) {
    struct strbuf left, right;
    strbuf_init(&left, arena);
    strbuf_init(&right, arena);
    gen_spec_print(a, &left);
    gen_spec_print(b, &right);
    return !memcmp(a->sizes, b->sizes, sizeof a->sizes) && a->bshd == b->bshd &&
           !strcmp(strbuf_text(&left), strbuf_text(&right));
}

/* The first smaller variant that still fails, or NULL; uses up tries. */
static struct gen_spec *smaller(struct arena *arena, const struct gen_spec *spec,
                                const char *target, int *tries, const char **out_message) {
    struct gen_spec *variant;
    for (size_t i = 0; *tries > 0 && (variant = gen_spec_shrink(arena, spec, i)); i++) {
        struct arena *scratch = arena_create();
        bool invalid;
        const char *message = NULL;
        if (!same_spec(scratch, spec, variant)) {
            --*tries;
            message = try_spec(scratch, variant, target, NULL, &invalid);
            if (message && !invalid)
                *out_message = arena_strdup(arena, message);
        }
        arena_destroy(scratch);
        if (message && !invalid)
            return variant;
    }
    return NULL;
}

static void print_failure(struct random_run *run, const struct gen_spec *spec, uint64_t seed,
                          const char *target, const char *message, struct arena *arena) {
    const int64_t *n = spec->sizes;
    struct strbuf text;
    strbuf_init(&text, arena);
    gen_spec_print(spec, &text);
    pthread_mutex_lock(&run->output);
    printf("FAIL seed %llu on %s\n%s", (unsigned long long)seed, target, strbuf_text(&text));
    printf("// batch %lld, heads %lld, kv_heads %lld, q_len %lld, kv_len %lld, %s, data seed "
           "%llu\n%s\nrepeat: random --count 1 --seed %llu --target %s\n\n",
           (long long)n[SIZE_BATCH], (long long)n[SIZE_HEADS], (long long)n[SIZE_KV_HEADS],
           (long long)n[SIZE_Q_LEN], (long long)n[SIZE_KV_LEN], spec->bshd ? "BSHD" : "BHSD",
           (unsigned long long)spec->data_seed, message, (unsigned long long)seed, target);
    fflush(stdout);
    pthread_mutex_unlock(&run->output);
}

static void run_seed(struct random_run *run, uint64_t seed, const char *target) {
    struct arena *arena = arena_create(), *scratch = arena_create();
    bool invalid;
    int tries = run->options->shrink ? SHRINK_TRIES : 0;
    struct gen_spec *spec = gen_spec_create(arena, seed), *next;
    const char *message = try_spec(scratch, spec, target, run, &invalid);
    if (message) {
        run->failures++;
        message = arena_strdup(arena, message);
        while (!invalid && (next = smaller(arena, spec, target, &tries, &message)))
            spec = next;
        print_failure(run, spec, seed, target, message, arena);
    }
    arena_destroy(scratch);
    arena_destroy(arena);
}

static void work(void *context, int64_t index) {
    struct random_run *run = context;
    size_t targets = 0;
    while (compile_target(targets))
        targets++;
    current_seed = run->options->seed + (uint64_t)index;
    run_seed(run, current_seed,
             run->options->target ? run->options->target
                                  : compile_target((size_t)index % (targets ? targets : 1)));
}

/* ---- Command ------------------------------------------------------------- */

static bool parse_command(int argc, char **argv, struct random_options *options) {
    static const struct option names[] = {
        {"count", required_argument, NULL, 'c'},  {"seed", required_argument, NULL, 's'},
        {"target", required_argument, NULL, 't'}, {"threads", required_argument, NULL, 'j'},
        {"print", no_argument, NULL, 'p'},        {"no-shrink", no_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    int letter;
    *options = (struct random_options){.count = 200, .seed = 1, .shrink = true};
    while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1)
        switch (letter) {
        case 'c': options->count = atoll(optarg); break;
        case 's': options->seed = strtoull(optarg, NULL, 10); break;
        case 't': options->target = optarg; break;
        case 'j': options->threads = atoi(optarg); break;
        case 'p': options->print = true; break;
        case 'n': options->shrink = false; break;
        default: return false;
        }
    return optind == argc && options->count >= 1;
}

static void print_specs(const struct random_options *options) {
    for (int64_t i = 0; i < options->count; i++) {
        struct arena *arena = arena_create();
        struct strbuf text;
        strbuf_init(&text, arena);
        gen_spec_print(gen_spec_create(arena, options->seed + (uint64_t)i), &text);
        printf("// seed %llu\n%s\n", (unsigned long long)options->seed + (uint64_t)i,
               strbuf_text(&text));
        arena_destroy(arena);
    }
}

int main(int argc, char **argv) {
    struct random_options options;
    if (!parse_command(argc, argv, &options)) {
        fprintf(stderr, "usage: random [--count N] [--seed S] [--target T] [--threads N] "
                        "[--print] [--no-shrink]\n");
        return 2;
    }
    if (options.print) {
        print_specs(&options);
        return 0;
    }
    struct random_run run = {.options = &options, .output = PTHREAD_MUTEX_INITIALIZER};
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
    e2e_parallel(options.count, options.threads, NULL, work, &run);
    printf("%lld specs, %lld failures; %lld schedules refused; %.0f %% of the pairs kept, "
           "%.0f %% of the rows empty\n",
           (long long)options.count, (long long)run.failures, (long long)run.refused,
           100.0 * (double)run.kept_pairs / (double)(run.pairs ? run.pairs : 1),
           100.0 * (double)run.empty_rows / (double)(run.rows ? run.rows : 1));
    return run.failures != 0;
}
