/* Offsets beyond 2^31 elements: Q, K, V, O and a captured tensor of rank 4 lie
 * so far apart along one axis that 32-bit offsets would wrap.  GPU only: it
 * takes tens of gigabytes of device memory, one case at a time.
 */
#include <string.h>

#include "tests/e2e/suites.h"

static const struct e2e_sizes far_sizes = {{2, 2, 2, 20, 40}};

static const char *const axis_names[] = {"batch", "heads", "length"};

static const char *run_far(const struct e2e_options *options, int axis,
                           struct arena *arena, struct result *result) {
    static const struct load_changes changes = {.head_dim = "64"};
    const struct pattern *pattern = pattern_find("pair_bias");
    struct rng rng = {options->seed};
    struct loaded loaded;
    struct executor executor;
    struct accuracy accuracy;
    if (!load_spec(arena, options->specs_dir, pattern->name, &changes, &loaded))
        return "the spec does not check";
    const char *error =
        executor_create(&loaded, MACHINE_GPU, options->target, &executor);
    if (error)
        return error;
    struct call *call =
        e2e_call(arena, pattern, loaded.attention, &far_sizes, &rng);
    struct ref_result reference = e2e_reference(call, options->threads);
    memcpy(result->sizes, call->sizes, sizeof result->sizes);
    call_encode(call, loaded.attention->dtype, CALL_BHSD);
    struct call_tensor o =
        call_output(call, loaded.attention->dtype, CALL_BHSD);
    struct call_tensor lse = call_lse_output(call);
    error = gpu_run_far(&executor, call, axis, &o, &lse);
    executor_destroy(&executor);
    if (error)
        return error;
    accuracy_check(&reference, call_decode(call, &o), call_decode(call, &lse),
                   call->sizes, loaded.attention->head_dim_v,
                   loaded.attention->dtype, &accuracy);
    e2e_judge(arena, &accuracy, result);
    return result->message;
}

void suite_far(const struct e2e_options *options, struct report *report) {
    if (!e2e_wanted(options, "far"))
        return;
    for (int axis = 0; axis < 3; axis++) {
        struct arena *arena = arena_create();
        struct result result = {
            .suite = "far", .name = "pair_bias", .variant = axis_names[axis]};
        result.message = run_far(options, axis, arena, &result);
        result.ok = !result.message;
        report_add(report, &result);
        arena_destroy(arena);
    }
}
