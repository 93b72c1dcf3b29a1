/* attnc bench: median time of a launch on the GPU by CUDA events, the rate over
 * the pairs that the mask keeps, and what share of each unit's limit
 * that is. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/commands.h"
#include "tools/device.h"
#include "tools/gpu.h"

/* Dense bf16 MMA FLOP per multiprocessor and cycle, by compute capability; exp2
 * is 16 on all of them (CUDA programming guide, throughput of arithmetic
 * instructions). */
static const struct {
    int major, minor;
    double mma_flop;
} unit_rates[] = {{8, 0, 2048}, {9, 0, 4096}, {10, 0, 8192}};

enum {
    EXP2_PER_CYCLE = 16,
    DEVICE_CLOCK_KHZ = 13, /* CUdevice_attribute numbers */
    DEVICE_MEMORY_CLOCK_KHZ = 36,
    DEVICE_BUS_BITS = 37,
    MIN_SAMPLES = 5,
    MAX_SAMPLES = 4096,
};

/* Times of one benchmark. */
struct measurement {
    float *milliseconds; /* per launch, sorted */
    int samples;
    int launches; /* timed in one sample */
};

/* What the launch took, as shares of what the units can do in its time. */
struct limits {
    double mma, exp2, memory; /* shares, NAN where the limit is not known */
};

struct bench {
    struct session *session;
    struct gpu *gpu;
    struct gpu_call *call;
    const struct inputs *inputs;
    struct measurement times;
    int64_t kept; /* pairs; -1 unknown */
};

/* ---- Timing ------------------------------------------------------------- */

/* A prepared launch and two events around it. */
struct timer {
    const struct rt_driver *driver;
    struct CUstream_st *stream;
    struct CUevent_st *start, *end;
    struct attn_plan *plan;
};

/* Milliseconds for `launches` launches in a row. */
static struct attn_status *time_launches(struct timer *t, int launches,
                                         float *out_ms) {
    RT_TRY(RT_CUDA(t->driver, cuEventRecord, (t->start, t->stream)));
    for (int i = 0; i < launches; i++)
        RT_TRY(attn_plan_launch(t->plan, t->stream));
    RT_TRY(RT_CUDA(t->driver, cuEventRecord, (t->end, t->stream)));
    RT_TRY(RT_CUDA(t->driver, cuEventSynchronize, (t->end)));
    return RT_CUDA(t->driver, cuEventElapsedTime, (out_ms, t->start, t->end));
}

static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Samples of at least a millisecond, so that the cost of events does not show,
 * for as long as --seconds says. */
static struct attn_status *sample(struct bench *bench, struct timer *t) {
    struct measurement *m = &bench->times;
    float ms = 0;
    RT_TRY(
        time_launches(t, 3, &ms)); /* warm up: clocks, caches, lazy loading */
    RT_TRY(time_launches(t, 1, &ms));
    m->launches = ms >= 1 ? 1 : (int)ceil(1 / fmax((double)ms, 1e-3));
    m->milliseconds =
        ARENA_NEW_ARRAY(bench->session->arena, float, MAX_SAMPLES);
    double end = session_clock() + bench->session->options->seconds;
    while (m->samples < MAX_SAMPLES &&
           (m->samples < MIN_SAMPLES || session_clock() < end)) {
        RT_TRY(time_launches(t, m->launches, &ms));
        m->milliseconds[m->samples++] = ms / (float)m->launches;
    }
    qsort(m->milliseconds, (size_t)m->samples, sizeof(float), compare_floats);
    return NULL;
}

static struct attn_status *measure_with(struct bench *bench, struct timer *t) {
    RT_TRY(RT_CUDA(t->driver, cuEventCreate, (&t->start, 0)));
    RT_TRY(RT_CUDA(t->driver, cuEventCreate, (&t->end, 0)));
    RT_TRY(attn_plan_create(bench->gpu->kernel, &bench->call->args, &t->plan));
    return sample(bench, t);
}

static int measure(struct bench *bench) {
    struct timer t = {bench->gpu->driver, bench->gpu->stream, NULL, NULL, NULL};
    struct attn_status *failed = measure_with(bench, &t);
    if (t.plan)
        attn_plan_destroy(t.plan);
    if (t.start)
        t.driver->cuEventDestroy(t.start);
    if (t.end)
        t.driver->cuEventDestroy(t.end);
    return failed ? gpu_fail(bench->session, failed) : STATUS_OK;
}

/* ---- Figures ------------------------------------------------------------ */

static double median_seconds(const struct measurement *m) {
    return 1e-3 * (double)m->milliseconds[m->samples / 2];
}

/* FLOP of the two products on the pairs that attend. */
static double flop(const struct bench *bench) {
    const struct attention *a = bench->inputs->attention;
    return bench->kept < 0
               ? NAN
               : 2.0 * (double)bench->kept * (a->head_dim_qk + a->head_dim_v);
}

/* Bytes that must move at least: Q, K, V in, O and LSE out, each once. */
static double least_bytes(const struct bench *bench) {
    const int64_t *shape = bench->call->shape_o;
    double rows = (double)(shape[0] * shape[1] * shape[2]);
    return 2.0 * (double)(bench->inputs->q.count + bench->inputs->k.count +
                          bench->inputs->v.count) +
           rows * (2.0 * (double)shape[3] + 4);
}

/* A device attribute, NAN where the driver has none. */
static double attribute(const struct bench *bench, int number) {
    int value = 0;
    if (bench->gpu->driver->cuDeviceGetAttribute(
            &value, number, bench->gpu->device.ordinal) != 0)
        return NAN;
    return value > 0 ? value : NAN;
}

/* Cycles are those of the boost clock: a card that throttles shows lower
 * shares. */
static struct limits shares(const struct bench *bench) {
    double seconds = median_seconds(&bench->times);
    double cycles = seconds * 1e3 * attribute(bench, DEVICE_CLOCK_KHZ) *
                    bench->gpu->device.sm_count;
    double bandwidth = 2e3 * attribute(bench, DEVICE_MEMORY_CLOCK_KHZ) *
                       attribute(bench, DEVICE_BUS_BITS) / 8;
    double mma_flop = NAN;
    for (size_t i = 0; i < sizeof unit_rates / sizeof *unit_rates; i++)
        if (unit_rates[i].major == bench->gpu->device.major &&
            unit_rates[i].minor == bench->gpu->device.minor)
            mma_flop = unit_rates[i].mma_flop;
    double kept = bench->kept < 0 ? NAN : (double)bench->kept;
    return (struct limits){flop(bench) / (cycles * mma_flop),
                           kept / (cycles * EXP2_PER_CYCLE),
                           least_bytes(bench) / (seconds * bandwidth)};
}

static void count_kept(struct bench *bench) {
    const char *missing;
    struct arena *scratch = arena_create();
    struct ref_program *program =
        ref_compile(scratch, bench->inputs->attention, &missing);
    struct ref_call call = inputs_reference_call(scratch, bench->inputs);
    bench->kept = program ? ref_count_kept(scratch, program, &call, 0) : -1;
    arena_destroy(scratch);
}

/* ---- Reports ------------------------------------------------------------ */

/* Everything that a table of results needs to be told apart from another
 * run. */
static void print_json(const struct bench *bench, const char *file,
                       struct json *json) {
    const struct attention *a = bench->inputs->attention;
    const struct measurement *m = &bench->times;
    struct limits share = shares(bench);
    double seconds = median_seconds(m);
    int driver_version = 0;
    bench->gpu->driver->cuDriverGetVersion(&driver_version);
    json_open(json, '{');
    json_pair_string(json, "file", file);
    json_pair_string(json, "attention", a->name);
    json_pair_string(json, "gpu", bench->gpu->name);
    json_pair_integer(json, "driver_cuda_version", driver_version);
    json_pair_string(json, "target", attn_program_target(bench->gpu->program));
    json_pair_string(json, "schedule", bench->session->options->schedule);
    json_pair_string(json, "layout",
                     bench->session->options->layout == LAYOUT_BSHD ? "bshd"
                                                                    : "bhsd");
    json_pair_string(json, "dtype", ast_scalar_name(a->dtype));
    json_pair_integer(json, "head_dim_qk", a->head_dim_qk);
    json_pair_integer(json, "head_dim_v", a->head_dim_v);
    json_key(json, "sizes");
    json_sizes(json, bench->inputs->sizes);
    json_key(json, "kept_pairs");
    if (bench->kept >= 0)
        json_integer(json, bench->kept);
    else
        json_string(json, NULL);
    json_pair_real(json, "median_seconds", seconds);
    json_pair_real(json, "fastest_seconds", 1e-3 * (double)m->milliseconds[0]);
    json_pair_real(json, "slowest_seconds",
                   1e-3 * (double)m->milliseconds[m->samples - 1]);
    json_pair_integer(json, "samples", m->samples);
    json_pair_integer(json, "launches_per_sample", m->launches);
    json_pair_real(json, "tflops", 1e-12 * flop(bench) / seconds);
    json_key(json, "share_of_limit");
    json_open(json, '{');
    json_pair_real(json, "mma", share.mma);
    json_pair_real(json, "exp2", share.exp2);
    json_pair_real(json, "memory", share.memory);
    json_close(json, '}');
    json_pair_real(json, "compile_seconds", bench->gpu->compile_seconds);
    json_pair_bool(json, "from_cache",
                   attn_program_from_cache(bench->gpu->program));
    json_pair_real(json, "load_seconds", bench->gpu->load_seconds);
    json_pair_integer(json, "workspace_bytes",
                      (int64_t)bench->call->workspace_bytes);
    json_close(json, '}');
}

/* NaN: the limit of this device is not known. */
static void print_share(const char *unit, double share) {
    if (!isnan(share))
        printf(", %s %.1f %%", unit, 100 * share);
}

static void print_text(const struct bench *bench) {
    const struct measurement *m = &bench->times;
    struct limits share = shares(bench);
    double seconds = median_seconds(m);
    printf("%-24s %s %s  %9.1f us (%.1f to %.1f)",
           bench->inputs->attention->name, bench->gpu->name,
           attn_program_target(bench->gpu->program), 1e6 * seconds,
           1e3 * (double)m->milliseconds[0],
           1e3 * (double)m->milliseconds[m->samples - 1]);
    if (bench->kept >= 0)
        printf("  %.1f TFLOP/s", 1e-12 * flop(bench) / seconds);
    print_share("of the limit: MMA", share.mma);
    print_share("exp2", share.exp2);
    print_share("memory", share.memory);
    putchar('\n');
}

/* ---- One file ----------------------------------------------------------- */

/* One upload, one measurement, one line. */
static int bench_inputs(struct session *session, struct gpu *gpu,
                        const struct inputs *inputs, struct json *json,
                        const char *file) {
    struct gpu_call call;
    struct bench bench = {
        .session = session, .gpu = gpu, .call = &call, .inputs = inputs};
    int status = gpu_call_create(session, gpu, inputs, &call);
    if (status == STATUS_OK)
        status = measure(&bench);
    if (status == STATUS_OK) {
        count_kept(&bench);
        if (session->options->json)
            print_json(&bench, file, json);
        else
            print_text(&bench);
    }
    gpu_call_destroy(&call);
    return status;
}

/* Compiles first: a spec with errors does not wait for its inputs. */
static int bench_file(struct session *session, const char *file,
                      struct json *json) {
    const struct spec *spec;
    const struct attention *attention;
    struct inputs inputs;
    struct gpu gpu = {0};
    int status = session_load_file(session, file, &spec, &attention);
    if (status == STATUS_OK)
        status = inputs_create(session, attention, true, &inputs);
    if (status != STATUS_OK)
        return status;
    status = gpu_open(session, spec, attention, &gpu);
    if (status == STATUS_OK)
        status = inputs_add_matrices(session, &inputs);
    if (status == STATUS_OK)
        status = bench_inputs(session, &gpu, &inputs, json, file);
    gpu_close(&gpu);
    return status;
}

int command_bench(struct session *session) {
    const struct options *o = session->options;
    struct json json;
    json_init(&json, session->arena);
    json_open(&json, '[');
    int status = STATUS_OK;
    for (size_t i = 0; i < o->files.count && status == STATUS_OK; i++)
        status = bench_file(session, o->files.data[i], &json);
    json_close(&json, ']');
    if (o->json && status == STATUS_OK)
        status = json_print(&json, session);
    return status;
}
