/* attnc run --device cpu: the emulator on the very PTX that the compiler emits,
 * with the PTX of extern functions linked in. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/attention.h"
#include "runtime/jit.h"
#include "tools/device.h"
#include "tools/gpu.h"

/* One emulated call. */
struct cpu {
    struct session *session;
    const struct inputs *inputs;
    struct compiled compiled;
    struct emu_source *sources;
    size_t source_count;
    struct emu_tensor *tensors; /* by kernel_info.tensors */
    uint32_t *scalars;          /* by kernel_info.scalars */
    uint16_t *o;
    float *lse;
    int64_t shape_o[4];
    FILE *trace;
    struct emu_attention_result result;
};

/* ---- Code --------------------------------------------------------------- */

/* One target: the emulator runs code for any, so the spec's first will do. */
static int compile(struct cpu *cpu, const struct spec *spec) {
    struct session *session = cpu->session;
    const struct options *o = session->options;
    struct compile_options options = {
        .target = o->targets.count ? o->targets.data[0] : NULL,
        .schedule = o->schedule,
    };
    double start = session_clock();
    bool ok = compile_attention(session->arena, session->sources, spec,
                                cpu->inputs->attention, &options,
                                session->diags, &cpu->compiled);
    int status = session_report(session);
    if (!ok || status != STATUS_OK)
        return STATUS_FAILED;
    session_say(session, "compiled for %s in %.1f ms", cpu->compiled.target,
                1e3 * (session_clock() - start));
    return STATUS_OK;
}

/* The PTX of an extern file, by NVRTC. */
static int compile_extern(struct cpu *cpu, const struct source_file *file,
                          struct emu_source *out) {
    struct strbuf ptx;
    strbuf_init(&ptx, cpu->session->arena);
    struct rt_cuda_source source = {file->path, file->text};
    struct attn_status *failed =
        rt_nvrtc_compile(&source, cpu->compiled.target, &ptx);
    if (failed)
        return gpu_fail(cpu->session, failed);
    *out = (struct emu_source){strbuf_text(&ptx), ptx.length, file->path};
    return STATUS_OK;
}

static int collect_sources(struct cpu *cpu) {
    const struct compiled *c = &cpu->compiled;
    struct arena *arena = cpu->session->arena;
    cpu->sources =
        ARENA_NEW_ARRAY(arena, struct emu_source, 1 + c->extern_file_count);
    const char *name = arena_printf(arena, "%s.ptx", c->attention->name);
    cpu->sources[cpu->source_count++] =
        (struct emu_source){c->ptx, c->ptx_length, name};
    for (size_t i = 0; i < c->extern_file_count; i++) {
        int status = compile_extern(cpu, c->extern_files[i],
                                    &cpu->sources[cpu->source_count++]);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* ---- Data --------------------------------------------------------------- */

static struct emu_tensor matrix(struct cpu *cpu, const struct input_matrix *m) {
    enum option_layout layout = cpu->session->options->layout;
    struct emu_tensor tensor = {
        .data = inputs_pack(cpu->session->arena, m,
                            cpu->inputs->attention->dtype, layout),
        .bytes = (size_t)m->count * sizeof(uint16_t),
    };
    memcpy(tensor.extents, m->shape, sizeof m->shape);
    inputs_strides(m->shape, layout, tensor.strides);
    return tensor;
}

/* O and LSE start as zeros; the emulator tells what no kernel wrote. */
static void add_outputs(struct cpu *cpu) {
    struct arena *arena = cpu->session->arena;
    int64_t *shape = cpu->shape_o;
    inputs_output_shape(cpu->inputs, shape);
    int64_t rows = shape[0] * shape[1] * shape[2];
    struct emu_tensor *o = &cpu->tensors[KERNEL_TENSOR_O];
    struct emu_tensor *lse = &cpu->tensors[KERNEL_TENSOR_LSE];
    cpu->o = ARENA_NEW_ARRAY(arena, uint16_t, (size_t)(rows * shape[3]));
    cpu->lse = ARENA_NEW_ARRAY(arena, float, (size_t)rows);
    o->data = cpu->o;
    o->bytes = (size_t)(rows * shape[3]) * sizeof *cpu->o;
    memcpy(o->extents, shape, sizeof cpu->shape_o);
    inputs_strides(shape, cpu->session->options->layout, o->strides);
    lse->data = cpu->lse;
    lse->bytes = (size_t)rows * sizeof *cpu->lse;
    memcpy(lse->extents, shape, 3 * sizeof *shape);
    lse->strides[0] = shape[1] * shape[2];
    lse->strides[1] = shape[2];
    lse->strides[2] = 1;
}

/* Captured tensors and parameters are matched by name. */
static void add_captured(struct cpu *cpu) {
    const struct kernel_info *info = cpu->compiled.info;
    for (size_t i = KERNEL_TENSOR_CAPTURED; i < info->tensor_count; i++)
        for (size_t j = 0; j < cpu->inputs->attention->tensor_count; j++) {
            const struct input_tensor *t = &cpu->inputs->tensors[j];
            if (!t->data || strcmp(t->tensor->name, info->tensors[i].name) != 0)
                continue;
            struct emu_tensor *out = &cpu->tensors[i];
            out->data = t->data;
            out->bytes = (size_t)t->count * scalar_type_size(t->tensor->type);
            memcpy(out->extents, t->extents, sizeof out->extents);
            memcpy(out->strides, t->strides, sizeof out->strides);
        }
    for (size_t i = 0; i < info->scalar_count; i++)
        for (size_t j = 0; j < cpu->inputs->attention->param_count; j++) {
            const struct param *param = &cpu->inputs->attention->params[j];
            if (strcmp(param->name, info->scalars[i].name) == 0)
                cpu->scalars[i] = cpu->inputs->params[j];
        }
}

static void add_data(struct cpu *cpu) {
    const struct kernel_info *info = cpu->compiled.info;
    struct arena *arena = cpu->session->arena;
    cpu->tensors =
        ARENA_NEW_ARRAY(arena, struct emu_tensor, info->tensor_count);
    cpu->scalars = ARENA_NEW_ARRAY(arena, uint32_t, info->scalar_count);
    cpu->tensors[KERNEL_TENSOR_Q] = matrix(cpu, &cpu->inputs->q);
    cpu->tensors[KERNEL_TENSOR_K] = matrix(cpu, &cpu->inputs->k);
    cpu->tensors[KERNEL_TENSOR_V] = matrix(cpu, &cpu->inputs->v);
    add_outputs(cpu);
    add_captured(cpu);
}

/* ---- Run ---------------------------------------------------------------- */

static int emulate(struct cpu *cpu, double *out_seconds) {
    struct emu_options options = emu_options_default();
    options.seed = cpu->session->options->emulator_seed;
    options.trace = cpu->trace;
    struct emu_attention call = {
        .info = cpu->compiled.info,
        .sources = cpu->sources,
        .source_count = cpu->source_count,
        .tensors = cpu->tensors,
        .scalars = cpu->scalars,
    };
    memcpy(call.sizes, cpu->inputs->sizes, sizeof call.sizes);
    struct emu_error error;
    double start = session_clock();
    bool ran = emu_attention_run(&call, &options, &cpu->result, &error);
    *out_seconds = session_clock() - start;
    return ran ? STATUS_OK
               : session_fail(cpu->session, STATUS_FAILED, "the emulator: %s",
                              error.text);
}

static int emulate_with_trace(struct cpu *cpu, double *out_seconds) {
    const char *path = cpu->session->options->trace;
    bool standard = path && strcmp(path, "-") == 0;
    if (path)
        cpu->trace = standard ? stdout : fopen(path, "w");
    if (path && !cpu->trace)
        return session_fail(cpu->session, STATUS_FAILED,
                            "--trace: cannot open '%s'", path);
    int status = emulate(cpu, out_seconds);
    if (cpu->trace && !standard && fclose(cpu->trace) != 0)
        return session_fail(cpu->session, STATUS_FAILED,
                            "--trace: cannot write '%s'", path);
    return status;
}

/* ---- What the emulator found -------------------------------------------- */

/* A count that must be zero after a run, and what it means otherwise. */
static size_t complain(struct cpu *cpu, size_t count, const char *what) {
    if (count)
        session_fail(cpu->session, STATUS_FAILED, "the emulator: %zu %s", count,
                     what);
    return count;
}

/* Prints every fault; STATUS_FAILED if there was one. */
static int report_faults(struct cpu *cpu) {
    const struct emu_attention_result *r = &cpu->result;
    for (size_t i = 0; i < r->total.report_count; i++)
        emu_report_print(&r->total.reports[i], stderr);
    size_t faults = r->total.report_count;
    faults += complain(cpu, r->o_unwritten, "elements of O were not written");
    faults +=
        complain(cpu, r->lse_unwritten, "elements of LSE were not written");
    faults += complain(cpu, r->o_beside, "bytes beside O were written");
    faults += complain(cpu, r->lse_beside, "bytes beside LSE were written");
    faults += complain(cpu, r->workspace_not_zero,
                       "bytes of the workspace are not zero again");
    return faults ? STATUS_FAILED : STATUS_OK;
}

/* A report with the fields that emu_report_print shows. */
static void json_report(struct json *json, const struct emu_report *report) {
    json_open(json, '{');
    json_pair_string(json, "kind", emu_report_kind_text(report->kind));
    json_pair_string(json, "file", report->file);
    json_pair_integer(json, "line", report->line);
    json_pair_string(json, "instruction", report->instruction);
    json_pair_string(json, "source", report->source);
    json_pair_integer(json, "warp", report->warp);
    json_pair_integer(json, "lane", report->lane);
    json_pair_integer(json, "count", (int64_t)report->count);
    json_pair_string(json, "detail", report->detail);
    json_close(json, '}');
}

/* Counters by their names in struct emu_counters, then the reports. */
static const char *facts(struct cpu *cpu) {
    const struct emu_counters *c = &cpu->result.total.counters;
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"instructions", c->instructions},
        {"lane_instructions", c->lane_instructions},
        {"global_read_bytes", c->global_read_bytes},
        {"global_write_bytes", c->global_write_bytes},
        {"global_read_sectors", c->global_read_sectors},
        {"global_write_sectors", c->global_write_sectors},
        {"global_unique_read_bytes", c->global_unique_read_bytes},
        {"global_unique_write_bytes", c->global_unique_write_bytes},
        {"shared_read_bytes", c->shared_read_bytes},
        {"shared_write_bytes", c->shared_write_bytes},
        {"shared_wavefronts", c->shared_wavefronts},
        {"shared_conflicts", c->shared_conflicts},
        {"local_read_bytes", c->local_read_bytes},
        {"local_write_bytes", c->local_write_bytes},
        {"async_copy_bytes", c->async_copy_bytes},
        {"mma_flop", c->mma_flop},
        {"mufu_lanes", c->mufu_lanes},
        {"fma_lanes", c->fma_lanes},
        {"half_lanes", c->half_lanes},
        {"integer_lanes", c->integer_lanes},
        {"convert_lanes", c->convert_lanes},
        {"barriers", c->barriers},
    };
    struct json json;
    json_init(&json, cpu->session->arena);
    json_open(&json, '{');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        json_pair_integer(&json, rows[i].name, (int64_t)rows[i].value);
    json_key(&json, "reports");
    json_open(&json, '[');
    for (size_t i = 0; i < cpu->result.total.report_count; i++)
        json_report(&json, &cpu->result.total.reports[i]);
    json_close(&json, ']');
    json_close(&json, '}');
    return json_text(&json);
}

int device_cpu(struct session *session, const struct spec *spec,
               const struct inputs *inputs, struct device_result *out) {
    struct cpu cpu = {.session = session, .inputs = inputs};
    *out = (struct device_result){.device = "the emulator"};
    int status = compile(&cpu, spec);
    if (status == STATUS_OK)
        status = collect_sources(&cpu);
    if (status != STATUS_OK)
        return status;
    add_data(&cpu);
    status = emulate_with_trace(&cpu, &out->seconds);
    if (status == STATUS_OK) {
        const struct emu_counters *c = &cpu.result.total.counters;
        out->status = report_faults(&cpu);
        out->target = cpu.compiled.target;
        out->facts = facts(&cpu);
        out->lse = cpu.lse;
        out->o =
            inputs_unpack(session->arena, cpu.o, cpu.shape_o,
                          inputs->attention->dtype, session->options->layout);
        session_say(session,
                    "emulated %" PRIu64 " warp instructions in %.4f s "
                    "(%.1f million a second), %.3g MMA FLOP",
                    c->instructions, out->seconds,
                    1e-6 * (double)c->instructions / out->seconds,
                    (double)c->mma_flop);
    }
    emu_result_destroy(&cpu.result.total);
    return status;
}
