/* Device, program and tensors for run and bench; see tools/gpu.h. */
#include "tools/gpu.h"

#include <string.h>

#include "compiler/compile.h"
#include "runtime/module.h"

int gpu_fail(struct session *session, struct attn_status *status) {
    enum attn_code code = attn_status_code(status);
    session_fail(session, STATUS_FAILED, "%s", attn_status_text(status));
    session_say(session, "raised at %s", attn_status_origin(status));
    attn_status_destroy(status);
    return code == ATTN_UNAVAILABLE || code == ATTN_OUT_OF_MEMORY
               ? STATUS_MISSING
               : STATUS_FAILED;
}

/* ---- Device and program ------------------------------------------------- */

/* Device 0 with its primary context current, as the CUDA runtime API would have
 * it. */
static struct attn_status *open_device(struct gpu *gpu) {
    RT_TRY(rt_driver_get(&gpu->driver));
    const struct rt_driver *driver = gpu->driver;
    int device;
    RT_TRY(RT_CUDA(driver, cuDeviceGet, (&device, 0)));
    RT_TRY(RT_CUDA(driver, cuDeviceGetName,
                   (gpu->name, sizeof gpu->name, device)));
    RT_TRY(rt_device_describe(driver, 0, &gpu->device));
    RT_TRY(RT_CUDA(driver, cuDevicePrimaryCtxRetain, (&gpu->context, device)));
    RT_TRY(RT_CUDA(driver, cuCtxPushCurrent, (gpu->context)));
    return RT_CUDA(driver, cuStreamCreate,
                   (&gpu->stream, 1)); /* 1: non-blocking */
}

/* True if the compiler knows the target and its code runs on the device. */
static bool runs_there(const struct gpu *gpu, const char *target) {
    char arch[16];
    struct attn_status *status = rt_arch_for_device(target, &gpu->device, arch);
    bool runs = status == NULL;
    attn_status_destroy(status);
    return runs && compile_target_is_supported(target);
}

/* The spec's first target that runs on the device; NULL leaves the choice to
 * the library.  Not OK, naming both, if the spec has targets and none runs. */
static int choose_target(struct session *session, const struct gpu *gpu,
                         const struct attention *attention, const char **out) {
    *out = session->options->targets.count ? session->options->targets.data[0]
                                           : NULL;
    struct strbuf names;
    strbuf_init(&names, session->arena);
    for (size_t i = 0; i < attention->target_count && !*out; i++) {
        if (runs_there(gpu, attention->targets[i].name))
            *out = attention->targets[i].name;
        strbuf_printf(&names, "%s%s", i ? ", " : "",
                      attention->targets[i].name);
    }
    if (*out || attention->target_count == 0)
        return STATUS_OK;
    return session_fail(
        session, STATUS_FAILED,
        "attention '%s' is for %s; %s (sm_%d%d) runs none of them, "
        "choose another with --target",
        attention->name, strbuf_text(&names), gpu->name, gpu->device.major,
        gpu->device.minor);
}

/* The way of any host program: context, program, kernel. */
static struct attn_status *compile_and_load(struct session *session,
                                            const struct spec *spec,
                                            const struct attention *attention,
                                            const char *target,
                                            struct gpu *gpu) {
    struct attn_source source = {spec->file->text, spec->file->length,
                                 spec->file->path};
    struct attn_compile_options options = {
        .entry = attention->name,
        .target = target,
        .schedule = session->options->schedule,
        .include_dirs = session->options->include_dirs.data,
        .include_count = session->options->include_dirs.count,
    };
    double start = session_clock();
    RT_TRY(attn_context_create(NULL, &gpu->attn));
    RT_TRY(attn_compile(gpu->attn, &source, &options, &gpu->program));
    gpu->compile_seconds = session_clock() - start;
    start = session_clock();
    RT_TRY(attn_kernel_load_device(gpu->program, 0, &gpu->kernel));
    gpu->load_seconds = session_clock() - start;
    return NULL;
}

int gpu_open(struct session *session, const struct spec *spec,
             const struct attention *attention, struct gpu *out) {
    *out = (struct gpu){0};
    struct attn_status *failed = open_device(out);
    if (failed)
        return gpu_fail(session, failed);
    const char *target;
    int status = choose_target(session, out, attention, &target);
    if (status != STATUS_OK)
        return status;
    failed = compile_and_load(session, spec, attention, target, out);
    if (failed)
        return gpu_fail(session, failed);
    session_say(session, "%s, code for %s: %s in %.1f ms", out->name,
                attn_program_target(out->program),
                attn_program_from_cache(out->program) ? "from the cache"
                                                      : "compiled",
                1e3 * out->compile_seconds);
    return STATUS_OK;
}

void gpu_close(struct gpu *gpu) {
    attn_kernel_destroy(gpu->kernel);
    attn_program_destroy(gpu->program);
    if (gpu->attn)
        attn_context_destroy(gpu->attn);
    if (gpu->stream)
        gpu->driver->cuStreamDestroy(gpu->stream);
    struct CUctx_st *popped;
    if (gpu->context) {
        gpu->driver->cuCtxPopCurrent(&popped);
        gpu->driver->cuDevicePrimaryCtxRelease(gpu->device.ordinal);
    }
}

/* ---- Tensors ------------------------------------------------------------ */

/* Device memory with `bytes` copied from `host` (NULL: left as it is). */
static struct attn_status *upload(struct gpu_call *call, const void *host,
                                  size_t bytes, uint64_t *out_address) {
    const struct rt_driver *driver = call->gpu->driver;
    RT_TRY(RT_CUDA(driver, cuMemAlloc, (out_address, bytes ? bytes : 1)));
    call->buffers[call->buffer_count++] = *out_address;
    return host ? RT_CUDA(driver, cuMemcpyHtoD, (*out_address, host, bytes))
                : NULL;
}

/* A DLPack tensor over device memory; strides NULL: compact. */
static DLTensor describe(uint64_t address, enum scalar_type type, int rank,
                         const int64_t *shape, const int64_t *strides) {
    static const struct {
        uint8_t code, bits;
    } types[SCALAR_TYPE_COUNT] = {
        [SCALAR_BOOL] = {kDLUInt, 8},    [SCALAR_I32] = {kDLInt, 32},
        [SCALAR_F32] = {kDLFloat, 32},   [SCALAR_F16] = {kDLFloat, 16},
        [SCALAR_BF16] = {kDLBfloat, 16},
    };
    /* DLPack's tensors do not say const; the runtime only reads them. */
    return (DLTensor){
        .data = (void *)(uintptr_t)address, /* NOLINT: a device address */
        .device = {kDLCUDA, 0},
        .ndim = rank,
        .dtype = {types[type].code, types[type].bits, 1},
        .shape = (int64_t *)(uintptr_t)shape,
        .strides = (int64_t *)(uintptr_t)strides,
    };
}

/* Q, K or V, rounded to the dtype and laid out in the order asked for. */
static struct attn_status *upload_matrix(struct session *session,
                                         struct gpu_call *call,
                                         const struct input_matrix *m,
                                         enum scalar_type dtype,
                                         DLTensor *out) {
    enum option_layout layout = session->options->layout;
    struct arena *scratch = arena_create();
    int64_t *strides = ARENA_NEW_ARRAY(session->arena, int64_t, 4);
    uint64_t address = 0;
    inputs_strides(m->shape, layout, strides);
    struct attn_status *status =
        upload(call, inputs_pack(scratch, m, dtype, layout),
               (size_t)m->count * 2, &address);
    arena_destroy(scratch);
    *out = describe(address, dtype, 4, m->shape, strides);
    return status;
}

/* A tensor that the spec never uses may be missing. */
static struct attn_status *upload_captured(struct session *session,
                                           struct gpu_call *call,
                                           const struct inputs *inputs) {
    size_t count = inputs->attention->tensor_count;
    struct attn_tensor_arg *args =
        ARENA_NEW_ARRAY(session->arena, struct attn_tensor_arg, count);
    DLTensor *tensors = ARENA_NEW_ARRAY(session->arena, DLTensor, count);
    call->args.tensors = args;
    for (size_t i = 0; i < count; i++) {
        const struct input_tensor *t = &inputs->tensors[i];
        uint64_t address;
        if (!t->data)
            continue;
        RT_TRY(upload(call, t->data,
                      (size_t)t->count * scalar_type_size(t->tensor->type),
                      &address));
        tensors[i] = describe(address, t->tensor->type, t->tensor->rank,
                              t->extents, t->strides);
        args[call->args.tensor_count++] =
            (struct attn_tensor_arg){t->tensor->name, &tensors[i]};
    }
    return NULL;
}

/* All parameters, defaults included, by name. */
static void describe_params(struct session *session, struct gpu_call *call,
                            const struct inputs *inputs) {
    size_t count = inputs->attention->param_count;
    struct attn_param_arg *args =
        ARENA_NEW_ARRAY(session->arena, struct attn_param_arg, count);
    for (size_t i = 0; i < count; i++) {
        const struct param *param = &inputs->attention->params[i];
        args[i].name = param->name;
        switch (param->type) {
        case TYPE_BOOL:
            args[i].type = ATTN_BOOL;
            args[i].value.boolean = inputs->params[i] != 0;
            break;
        case TYPE_I32:
            args[i].type = ATTN_I32;
            args[i].value.i32 = (int32_t)inputs->params[i];
            break;
        case TYPE_F32:
            args[i].type = ATTN_F32;
            memcpy(&args[i].value.f32, &inputs->params[i], sizeof(float));
            break;
        }
    }
    call->args.params = args;
    call->args.param_count = count;
}

/* Left as they are: the kernel has to write every element. */
static struct attn_status *allocate_outputs(struct session *session,
                                            struct gpu_call *call,
                                            const struct inputs *inputs) {
    int64_t *strides = ARENA_NEW_ARRAY(session->arena, int64_t, 4);
    inputs_output_shape(inputs, call->shape_o);
    inputs_strides(call->shape_o, session->options->layout, strides);
    size_t rows =
        (size_t)(call->shape_o[0] * call->shape_o[1] * call->shape_o[2]);
    RT_TRY(upload(call, NULL, rows * (size_t)call->shape_o[3] * 2,
                  &call->address_o));
    RT_TRY(upload(call, NULL, rows * sizeof(float), &call->address_lse));
    call->o = describe(call->address_o, inputs->attention->dtype, 4,
                       call->shape_o, strides);
    call->lse = describe(call->address_lse, SCALAR_F32, 3, call->shape_o, NULL);
    call->args.o = &call->o;
    call->args.lse = &call->lse;
    return NULL;
}

/* Loads the kernels that the call runs.  Then the workspace: size from the
 * library, memory from here, first state by the library. */
static struct attn_status *allocate_workspace(struct session *session,
                                              struct gpu_call *call) {
    struct gpu *gpu = call->gpu;
    double start = session_clock();
    RT_TRY(
        attn_workspace_size(gpu->kernel, &call->args, &call->workspace_bytes));
    gpu->load_seconds += session_clock() - start;
    session_say(session, "loaded in %.1f ms", 1e3 * gpu->load_seconds);
    if (call->workspace_bytes == 0)
        return NULL;
    uint64_t address;
    RT_TRY(upload(call, NULL, call->workspace_bytes, &address));
    call->args.workspace =
        (void *)(uintptr_t)address; /* NOLINT: a device address */
    call->args.workspace_bytes = call->workspace_bytes;
    RT_TRY(attn_workspace_clear(gpu->kernel, &call->args, gpu->stream));
    return RT_CUDA(gpu->driver, cuStreamSynchronize, (gpu->stream));
}

/* Inputs, parameters, outputs; the workspace last, since its size follows from
 * the others. */
static struct attn_status *fill_call(struct session *session,
                                     const struct inputs *inputs,
                                     struct gpu_call *call) {
    enum scalar_type dtype = inputs->attention->dtype;
    RT_TRY(upload_matrix(session, call, &inputs->q, dtype, &call->q));
    RT_TRY(upload_matrix(session, call, &inputs->k, dtype, &call->k));
    RT_TRY(upload_matrix(session, call, &inputs->v, dtype, &call->v));
    call->args.q = &call->q;
    call->args.k = &call->k;
    call->args.v = &call->v;
    RT_TRY(upload_captured(session, call, inputs));
    describe_params(session, call, inputs);
    RT_TRY(allocate_outputs(session, call, inputs));
    return allocate_workspace(session, call);
}

int gpu_call_create(struct session *session, struct gpu *gpu,
                    const struct inputs *inputs, struct gpu_call *out) {
    *out = (struct gpu_call){.gpu = gpu};
    enum { FIXED_BUFFERS = 6 }; /* q, k, v, o, lse, workspace */
    out->buffers =
        ARENA_NEW_ARRAY(session->arena, uint64_t,
                        FIXED_BUFFERS + inputs->attention->tensor_count);
    struct attn_status *failed = fill_call(session, inputs, out);
    return failed ? gpu_fail(session, failed) : STATUS_OK;
}

void gpu_call_destroy(struct gpu_call *call) {
    for (size_t i = 0; i < call->buffer_count; i++)
        call->gpu->driver->cuMemFree(call->buffers[i]);
    call->buffer_count = 0;
}

int gpu_call_read(struct session *session, struct gpu_call *call,
                  const struct inputs *inputs, float **out_o, float **out_lse) {
    const struct rt_driver *driver = call->gpu->driver;
    const int64_t *shape = call->shape_o;
    size_t rows = (size_t)(shape[0] * shape[1] * shape[2]),
           count = rows * (size_t)shape[3];
    struct arena *scratch = arena_create();
    uint16_t *bits = ARENA_NEW_ARRAY(scratch, uint16_t, count);
    *out_lse = ARENA_NEW_ARRAY(session->arena, float, rows);
    struct attn_status *failed = RT_CUDA(
        driver, cuMemcpyDtoH, (bits, call->address_o, count * sizeof *bits));
    if (!failed)
        failed = RT_CUDA(driver, cuMemcpyDtoH,
                         (*out_lse, call->address_lse, rows * sizeof(float)));
    *out_o = inputs_unpack(session->arena, bits, shape,
                           inputs->attention->dtype, session->options->layout);
    arena_destroy(scratch);
    return failed ? gpu_fail(session, failed) : STATUS_OK;
}
