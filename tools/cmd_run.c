/* attnc run: one call on a device, with outputs as .npy, a comparison with the
 * reference, and facts for people or programs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reference/accuracy.h"
#include "tools/commands.h"
#include "tools/device.h"
#include "tools/npy.h"

/* Everything about one run. */
struct run {
    struct session *session;
    const struct spec *spec;
    struct inputs inputs;
    struct device_result result;
    struct ref_result reference; /* o NULL: not computed yet */
    struct accuracy accuracy;
    int64_t kept; /* pairs; -1: not counted, or an extern without model is in
                     the way */
};

/* Runs the call where --device says, or where it can. */
static int run_on_device(struct run *run) {
    struct session *session = run->session;
    enum option_device device = session->options->device;
    const char *reason = "";
    if (device == DEVICE_AUTO) {
        bool gpu = device_gpu_available(session->arena, &reason);
        device = gpu ? DEVICE_GPU : DEVICE_CPU;
        session_say(session,
                    gpu ? "running on the GPU" : "running on the emulator: %s",
                    reason);
    }
    switch (device) {
    case DEVICE_REFERENCE:
        return device_reference(session, &run->inputs, &run->reference,
                                &run->result);
    case DEVICE_CPU:
        return device_cpu(session, run->spec, &run->inputs, &run->result);
    case DEVICE_GPU:
    case DEVICE_AUTO:
        break;
    }
    return device_gpu(session, run->spec, &run->inputs, &run->result);
}

/* Comparison with the reference, which is computed unless it is what ran. */
static int compare(struct run *run) {
    if (!run->reference.o) {
        double start = session_clock();
        int status =
            device_reference_run(run->session, &run->inputs, &run->reference);
        if (status != STATUS_OK)
            return status;
        session_say(run->session, "reference: %.2f s", session_clock() - start);
    }
    const struct attention *attention = run->inputs.attention;
    accuracy_check(&run->reference, run->result.o, run->result.lse,
                   run->inputs.sizes, attention->head_dim_v, attention->dtype,
                   &run->accuracy);
    return run->accuracy.passed ? STATUS_OK : STATUS_FAILED;
}

static int write_array(struct run *run, const char *option, const char *path,
                       const float *data, const int64_t *shape, int rank) {
    struct npy array = {
        .type = NPY_F32, .rank = rank, .count = 1, .data = data};
    for (int axis = 0; axis < rank; axis++) {
        array.shape[axis] = shape[axis];
        array.count *= shape[axis];
    }
    const char *error = npy_write(run->session->arena, path, &array);
    return error ? session_fail(run->session, STATUS_FAILED, "%s '%s': %s",
                                option, path, error)
                 : STATUS_OK;
}

/* --o and --lse. */
static int write_outputs(struct run *run) {
    const struct options *o = run->session->options;
    int64_t shape[4];
    inputs_output_shape(&run->inputs, shape);
    int status = STATUS_OK;
    if (o->o)
        status = write_array(run, "--o", o->o, run->result.o, shape, 4);
    if (o->lse && status == STATUS_OK)
        status = write_array(run, "--lse", o->lse, run->result.lse, shape, 3);
    return status;
}

/* Pairs that attend: costs a pass over all pairs, so only on request. */
static void count_kept(struct run *run) {
    const char *missing;
    struct ref_program *program =
        ref_compile(run->session->arena, run->inputs.attention, &missing);
    if (!program)
        return;
    struct ref_call call =
        inputs_reference_call(run->session->arena, &run->inputs);
    struct arena *scratch = arena_create();
    run->kept = ref_count_kept(scratch, program, &call, 0);
    arena_destroy(scratch);
}

static double all_pairs(const struct run *run) {
    const int64_t *s = run->inputs.sizes;
    return (double)s[SIZE_BATCH] * (double)s[SIZE_HEADS] *
           (double)s[SIZE_Q_LEN] * (double)s[SIZE_KV_LEN];
}

/* The report for people. */
static void print_text(struct run *run, FILE *stream) {
    const struct attention *attention = run->inputs.attention;
    const int64_t *s = run->inputs.sizes;
    fprintf(stream, "%s on %s", attention->name, run->result.device);
    if (run->result.target)
        fprintf(stream, ", code for %s", run->result.target);
    fprintf(stream, ": %s, head_dim %d", ast_scalar_name(attention->dtype),
            attention->head_dim_qk);
    if (attention->head_dim_v != attention->head_dim_qk)
        fprintf(stream, ", %d", attention->head_dim_v);
    for (int size = 0; size < SIZE_COUNT; size++)
        fprintf(stream, ", %s %" PRId64, size_name_text((enum size_name)size),
                s[size]);
    double seconds = run->result.seconds;
    fprintf(stream, seconds < 1 ? "\n%.3f ms" : "\n%.3f s",
            seconds < 1 ? 1e3 * seconds : seconds);
    if (run->kept >= 0)
        fprintf(stream, ", %" PRId64 " of %.0f pairs attend (%.1f %%)",
                run->kept, all_pairs(run),
                100 * (double)run->kept / all_pairs(run));
    fputc('\n', stream);
    if (run->session->options->check) {
        struct strbuf text;
        strbuf_init(&text, run->session->arena);
        accuracy_print(&run->accuracy, &text);
        fputs(strbuf_text(&text), stream);
    }
}

/* The report for programs. */
static int print_json(struct run *run) {
    const struct attention *attention = run->inputs.attention;
    struct session *session = run->session;
    struct json json;
    json_init(&json, session->arena);
    json_open(&json, '{');
    json_pair_string(&json, "attention", attention->name);
    json_pair_string(&json, "device", run->result.device);
    json_pair_string(&json, "target", run->result.target);
    json_pair_string(&json, "dtype", ast_scalar_name(attention->dtype));
    json_pair_integer(&json, "head_dim_qk", attention->head_dim_qk);
    json_pair_integer(&json, "head_dim_v", attention->head_dim_v);
    json_key(&json, "sizes");
    json_sizes(&json, run->inputs.sizes);
    json_key(&json, "kept_pairs");
    if (run->kept >= 0)
        json_integer(&json, run->kept);
    else
        json_string(&json, NULL);
    json_pair_real(&json, "pairs", all_pairs(run));
    json_pair_real(&json, "seconds", run->result.seconds);
    if (run->result.facts) {
        json_key(&json, "run");
        json_raw(&json, run->result.facts);
    }
    if (session->options->check) {
        struct strbuf text;
        strbuf_init(&text, session->arena);
        accuracy_print_json(&run->accuracy, &text);
        json_key(&json, "check");
        json_raw(&json, strbuf_text(&text));
    }
    json_close(&json, '}');
    return json_print(&json, session);
}

/* True if an array or a trace goes to standard output: the report moves
 * aside. */
static bool stdout_taken(const struct options *o) {
    return (o->o && strcmp(o->o, "-") == 0) ||
           (o->lse && strcmp(o->lse, "-") == 0) ||
           (o->trace && strcmp(o->trace, "-") == 0);
}

int command_run(struct session *session) {
    const struct options *o = session->options;
    struct run run = {.session = session};
    const struct attention *attention;
    int status = session_load(session, &run.spec, &attention);
    if (status == STATUS_OK)
        status = inputs_create(session, attention, true, &run.inputs);
    if (status == STATUS_OK)
        status = inputs_add_matrices(session, &run.inputs);
    if (status == STATUS_OK)
        status = run_on_device(&run);
    if (status != STATUS_OK)
        return status;
    int checked = o->check ? compare(&run) : STATUS_OK;
    if (checked != STATUS_OK && !run.accuracy.rows)
        return checked; /* there was nothing to compare with; said so */
    status = write_outputs(&run);
    if (status != STATUS_OK)
        return status;
    run.kept = -1;
    if (o->json || o->check || o->verbose)
        count_kept(&run);
    if (o->json)
        status = print_json(&run);
    else
        print_text(&run, stdout_taken(o) ? stderr : stdout);
    if (status != STATUS_OK)
        return status;
    return checked != STATUS_OK ? checked : run.result.status;
}
