/* What the suites share; see suites.h. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "compiler/compile.h"
#include "support/strbuf.h"
#include "tests/e2e/suites.h"

bool e2e_wanted(const struct e2e_options *options, const char *name) {
    if (!options->only)
        return true;
    size_t length = strlen(name);
    for (const char *at = options->only; *at;) {
        size_t item = strcspn(at, ",");
        if (item == length && !strncmp(at, name, length))
            return true;
        at += item + (at[item] == ',');
    }
    return false;
}

int e2e_targets(const struct e2e_options *options,
                const char *out_names[E2E_MAX_TARGETS]) {
    int count = 0;
    if (options->target)
        out_names[count++] = options->target;
    else
        while (count < E2E_MAX_TARGETS &&
               (out_names[count] = compile_target((size_t)count)))
            count++;
    return count;
}

bool e2e_fit_sizes(const struct pattern *pattern,
                   const struct attention *attention, struct e2e_sizes *sizes) {
    if (pattern->flags & PATTERN_SHARED &&
        sizes->n[SIZE_Q_LEN] > sizes->n[SIZE_KV_LEN])
        return false;
    if (attention->group)
        sizes->n[SIZE_HEADS] = sizes->n[SIZE_KV_HEADS] * attention->group;
    return true;
}

struct call *e2e_call(struct arena *arena, const struct pattern *pattern,
                      const struct attention *attention,
                      const struct e2e_sizes *sizes, struct rng *rng) {
    struct call *call = call_create(arena, attention, sizes->n, rng);
    if (pattern->setup)
        pattern->setup(call, rng);
    return call;
}

struct ref_result e2e_reference(const struct call *call, int threads) {
    const int64_t *n = call->sizes;
    size_t rows = (size_t)(n[SIZE_BATCH] * n[SIZE_HEADS] * n[SIZE_Q_LEN]);
    struct ref_result result = {
        .o = ARENA_NEW_ARRAY(call->arena, double,
                             rows *(size_t)call->attention->head_dim_v),
        .lse = ARENA_NEW_ARRAY(call->arena, double, rows),
        .row = ARENA_NEW_ARRAY(call->arena, uint8_t, rows),
    };
    struct ref_tensor tensors[CALL_MAX_TENSORS];
    const char *extern_name = NULL;
    struct ref_call ref = call_for_reference(call, tensors);
    struct ref_program *program =
        ref_compile(call->arena, call->attention, &extern_name);
    ref_run(call->arena, program, &ref, threads, &result);
    return result;
}

void e2e_judge(struct arena *arena, const struct accuracy *accuracy,
               struct result *result) {
    struct strbuf text;
    result->o_error = accuracy->o_error;
    result->o_bound = accuracy->o_bound;
    result->row_error = accuracy->row_error;
    result->lse_error = accuracy->lse_error;
    result->lse_bound = accuracy->lse_bound;
    result->ok = accuracy->passed;
    if (accuracy->passed)
        return;
    strbuf_init(&text, arena);
    accuracy_print(accuracy, &text);
    result->message = strbuf_text(&text);
}

void e2e_compare(const struct executor *executor, const struct call *call,
                 enum call_layout layout, const struct ref_result *reference,
                 uint64_t seed, struct result *result) {
    struct accuracy accuracy;
    struct call_tensor o = call_output(call, executor->dtype, layout);
    struct call_tensor lse = call_lse_output(call);
    memcpy(result->sizes, call->sizes, sizeof result->sizes);
    result->message = executor_run(executor, call, seed, &o, &lse);
    result->ok = false;
    if (result->message)
        return;
    accuracy_check(reference, call_decode(call, &o), call_decode(call, &lse),
                   call->sizes, call->attention->head_dim_v, executor->dtype,
                   &accuracy);
    e2e_judge(call->arena, &accuracy, result);
}

/* ---- Threads ------------------------------------------------------------- */

enum { MAX_THREADS = 64 };

struct crew {
    atomic_llong next;
    int64_t count;
    void (*on_start)(void);
    void (*work)(void *context, int64_t index);
    void *context;
};

static void *crew_member(void *argument) {
    struct crew *crew = argument;
    int64_t index;
    if (crew->on_start)
        crew->on_start();
    while ((index = atomic_fetch_add(&crew->next, 1)) < crew->count)
        crew->work(crew->context, index);
    return NULL;
}

void e2e_parallel(int64_t count, int threads, void (*on_start)(void),
                  void (*work)(void *context, int64_t index), void *context) {
    struct crew crew = {
        .count = count, .on_start = on_start, .work = work, .context = context};
    pthread_t members[MAX_THREADS];
    int started = 0;
    if (threads < 1)
        threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    while (started < threads && started < count &&
           !pthread_create(&members[started], NULL, crew_member, &crew))
        started++;
    if (!started)
        crew_member(&crew);
    for (int i = 0; i < started; i++)
        pthread_join(members[i], NULL);
}
