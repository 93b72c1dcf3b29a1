/* Runs calls on a GPU through the public API: attn.h compiles, loads and
 * launches; memory comes from the driver's table of the runtime.
 *
 * Every output lies between two guards of GUARD bytes that must not
 * change. */
#include <stdio.h>
#include <string.h>

#include "include/attn.h"
#include "runtime/driver.h"
#include "tests/e2e/executor.h"

enum { GUARD = 4096, GUARD_BYTE = 0x5a, MAX_BUFFERS = CALL_MAX_TENSORS + 6 };

/* The one GPU of a run; set before threads start, then read only. */
static const struct rt_driver *driver;
static struct CUctx_st *context;
static bool poison_workspace;

/* ---- The device ---------------------------------------------------------- */

static const char *status_text(struct arena *arena,
                               struct attn_status *status) {
    if (!status)
        return NULL;
    const char *text = arena_printf(arena, "%s (%s)", attn_status_text(status),
                                    attn_status_origin(status));
    attn_status_destroy(status);
    return text;
}

const char *executor_gpu_open(struct arena *arena, bool poison) {
    poison_workspace = poison;
    const char *error = status_text(arena, rt_driver_get(&driver));
    int device = 0;
    if (error)
        return error;
    error = status_text(arena, RT_CUDA(driver, cuDeviceGet, (&device, 0)));
    if (!error)
        error = status_text(arena, RT_CUDA(driver, cuDevicePrimaryCtxRetain,
                                           (&context, device)));
    if (!error)
        executor_gpu_enter();
    return error;
}

void executor_gpu_enter(void) {
    if (driver)
        driver->cuCtxPushCurrent(context);
}

const char *executor_gpu_fact(struct arena *arena, int number,
                              const char **out_value) {
    static const char *const names[] = {"gpu", "cuda driver",
                                        "multiprocessors"};
    char name[128] = "";
    int version = 0, count = 0;
    driver->cuDeviceGetName(name, sizeof name, 0);
    driver->cuDriverGetVersion(&version);
    driver->cuDeviceGetAttribute(&count, RT_DEVICE_SM_COUNT, 0);
    if (number >= 3)
        return NULL;
    *out_value = number == 0   ? arena_strdup(arena, name)
                 : number == 1 ? arena_printf(arena, "%d.%d", version / 1000,
                                              version % 1000 / 10)
                               : arena_printf(arena, "%d", count);
    return names[number];
}

/* ---- Compiling ----------------------------------------------------------- */

const char *gpu_create(struct loaded *loaded, const char *target,
                       struct executor *executor) {
    struct attn_context_options uncached = {.cache = ATTN_CACHE_OFF};
    struct attn_source source = {.text = loaded->text,
                                 .text_size = strlen(loaded->text),
                                 .path = loaded->name};
    struct attn_compile_options options = {.target = target};
    struct attn_context *attn = NULL;
    struct attn_program *program = NULL;
    struct attn_status *status = attn_context_create(&uncached, &attn);
    if (!status)
        status = attn_compile(attn, &source, &options, &program);
    if (!status) {
        executor->target =
            arena_strdup(loaded->arena, attn_program_target(program));
        status = attn_kernel_load_device(program, 0, &executor->kernel);
    }
    attn_program_destroy(program);
    attn_context_destroy(attn);
    return status_text(loaded->arena, status);
}

void gpu_destroy(struct executor *executor) {
    attn_kernel_destroy(executor->kernel);
    executor->kernel = NULL;
}

/* ---- Running ------------------------------------------------------------- */

/* Device memory and descriptions of one call. */
struct launch {
    const struct call *call;
    int far_axis; /* spread tensors out along this axis; -1: as they are */
    uint64_t buffers[MAX_BUFFERS];
    int buffer_count;
    DLTensor q, k, v, o, lse;
    DLTensor captured[CALL_MAX_TENSORS];
    struct attn_tensor_arg tensors[CALL_MAX_TENSORS];
    struct attn_param_arg params[CALL_MAX_PARAMS];
};

static struct attn_status *allocate(struct launch *launch, size_t bytes,
                                    uint64_t *out_address) {
    struct attn_status *status =
        RT_CUDA(driver, cuMemAlloc, (out_address, bytes ? bytes : 1));
    if (!status)
        launch->buffers[launch->buffer_count++] = *out_address;
    return status;
}

static DLDataType dl_type(enum scalar_type type) {
    static const struct {
        uint8_t code, bits;
    } rows[SCALAR_TYPE_COUNT] = {
        [SCALAR_BOOL] = {6, 8}, /* kDLBool, which older headers lack */
        [SCALAR_I32] = {kDLInt, 32},   [SCALAR_F32] = {kDLFloat, 32},
        [SCALAR_F16] = {kDLFloat, 16}, [SCALAR_BF16] = {kDLBfloat, 16},
    };
    return (DLDataType){rows[type].code, rows[type].bits, 1};
}

/* ---- Spread out ---------------------------------------------------------- */

/* Elements that the far axis spans, if only just: more than 2^31. */
static const int64_t FAR_SPAN = ((int64_t)1 << 31) + 4096;

/* Strides of `tensor` with the far axis outermost and its last index beyond
 * FAR_SPAN. */
static void spread(struct call_tensor *tensor, int axis) {
    int64_t steps = tensor->extents[axis] > 1 ? tensor->extents[axis] - 1 : 1;
    int64_t stride = 1;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        if (i == axis)
            continue;
        tensor->strides[i] = stride;
        stride *= tensor->extents[i];
    }
    int64_t far = (FAR_SPAN / steps + 63) / 64 * 64;
    tensor->strides[axis] = far > stride ? far : (stride + 63) / 64 * 64;
    tensor->bytes = (size_t)(tensor->strides[axis] * steps + stride) *
                    scalar_type_size(tensor->type);
}

/* Copies every row (last axis) between a host tensor and its spread-out
 * copy. */
static struct attn_status *copy_rows(const struct call_tensor *host,
                                     const struct call_tensor *device,
                                     uint64_t address, bool to_device) {
    size_t size = scalar_type_size(host->type);
    int last = host->rank - 1;
    size_t bytes = (size_t)host->extents[last] * size;
    int64_t rows = call_tensor_count(host) /
                   (host->extents[last] ? host->extents[last] : 1);
    struct attn_status *status = NULL;
    for (int64_t row = 0; row < rows && !status; row++) {
        int64_t from = 0, to = 0, rest = row;
        for (int axis = last - 1; axis >= 0; axis--) {
            from += rest % host->extents[axis] * host->strides[axis];
            to += rest % host->extents[axis] * device->strides[axis];
            rest /= host->extents[axis];
        }
        char *near = (char *)host->data + (size_t)from * size;
        uint64_t far = address + (uint64_t)to * size;
        status = to_device ? RT_CUDA(driver, cuMemcpyHtoD, (far, near, bytes))
                           : RT_CUDA(driver, cuMemcpyDtoH, (near, far, bytes));
    }
    return status;
}

static DLTensor describe(struct call_tensor *tensor, uint64_t address) {
    return (DLTensor){.data = (void *)(uintptr_t)address,
                      .device = {kDLCUDA, 0},
                      .ndim = tensor->rank,
                      .dtype = dl_type(tensor->type),
                      .shape = tensor->extents,
                      .strides = tensor->strides};
}

/* Uploads a spread-out copy; its shape lives in the call's arena. */
static struct attn_status *upload_far(struct launch *launch,
                                      const struct call_tensor *tensor,
                                      DLTensor *out) {
    struct call_tensor *far =
        ARENA_NEW(launch->call->arena, struct call_tensor);
    uint64_t address = 0;
    *far = *tensor;
    spread(far, launch->far_axis);
    struct attn_status *status = allocate(launch, far->bytes, &address);
    if (!status)
        status = copy_rows(tensor, far, address, true);
    *out = describe(far, address);
    return status;
}

/* Copies a tensor to the device, between guards, and describes it. */
static struct attn_status *upload(struct launch *launch,
                                  struct call_tensor *tensor, DLTensor *out) {
    uint64_t address = 0;
    if (launch->far_axis >= 0 && tensor->rank == 4)
        return upload_far(launch, tensor, out);
    struct attn_status *status =
        allocate(launch, tensor->bytes + 2 * GUARD, &address);
    if (!status)
        status =
            RT_CUDA(driver, cuMemsetD8Async,
                    (address, GUARD_BYTE, tensor->bytes + 2 * GUARD, NULL));
    if (!status && tensor->bytes)
        status = RT_CUDA(driver, cuMemcpyHtoD,
                         (address + GUARD, tensor->data, tensor->bytes));
    *out = describe(tensor, address + GUARD);
    return status;
}

static struct attn_status *upload_all(struct launch *launch, struct call *call,
                                      struct call_tensor *o,
                                      struct call_tensor *lse) {
    struct {
        struct call_tensor *host;
        DLTensor *device;
    } fixed[] = {{&call->q, &launch->q},
                 {&call->k, &launch->k},
                 {&call->v, &launch->v},
                 {o, &launch->o},
                 {lse, &launch->lse}};
    struct attn_status *status = NULL;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed && !status; i++)
        status = upload(launch, fixed[i].host, fixed[i].device);
    for (size_t i = 0; i < call->attention->tensor_count && !status; i++) {
        status = upload(launch, &call->captured[i], &launch->captured[i]);
        launch->tensors[i] = (struct attn_tensor_arg){call->captured[i].name,
                                                      &launch->captured[i]};
    }
    return status;
}

static void describe_params(struct launch *launch) {
    const struct attention *attention = launch->call->attention;
    for (size_t i = 0; i < attention->param_count; i++) {
        uint32_t bits = launch->call->params[i];
        struct attn_param_arg *arg = &launch->params[i];
        arg->name = attention->params[i].name;
        switch (attention->params[i].type) {
        case TYPE_BOOL:
            arg->type = ATTN_BOOL;
            arg->value.boolean = bits != 0;
            break;
        case TYPE_I32:
            arg->type = ATTN_I32;
            arg->value.i32 = (int32_t)bits;
            break;
        case TYPE_F32:
            arg->type = ATTN_F32;
            memcpy(&arg->value.f32, &bits, sizeof bits);
            break;
        }
    }
}

static struct attn_status *launch_kernel(struct launch *launch,
                                         const struct attn_kernel *kernel) {
    const struct attention *attention = launch->call->attention;
    struct attn_args args = {.q = &launch->q,
                             .k = &launch->k,
                             .v = &launch->v,
                             .o = &launch->o,
                             .lse = &launch->lse,
                             .tensors = launch->tensors,
                             .tensor_count = attention->tensor_count,
                             .params = launch->params,
                             .param_count = attention->param_count};
    uint64_t workspace = 0;
    struct attn_status *status =
        attn_workspace_size(kernel, &args, &args.workspace_bytes);
    if (!status && args.workspace_bytes)
        status = allocate(launch, args.workspace_bytes, &workspace);
    args.workspace = (void *)(uintptr_t)workspace;
    if (!status && args.workspace_bytes && poison_workspace)
        status = RT_CUDA(driver, cuMemsetD8Async,
                         (workspace, 0xff, args.workspace_bytes, NULL));
    if (!status)
        status = attn_workspace_clear(kernel, &args, NULL);
    if (!status)
        status = attn_launch(kernel, &args, NULL);
    if (!status)
        status = RT_CUDA(driver, cuStreamSynchronize, (NULL));
    return status;
}

/* Copies an output back; *out_guards becomes false when something beside it
 * changed. */
static struct attn_status *download(struct arena *arena,
                                    struct call_tensor *tensor,
                                    const DLTensor *device, bool *out_guards) {
    size_t bytes = tensor->bytes + 2 * GUARD;
    uint8_t *all = arena_alloc(arena, bytes);
    struct attn_status *status =
        RT_CUDA(driver, cuMemcpyDtoH,
                (all, (uint64_t)(uintptr_t)device->data - GUARD, bytes));
    if (status)
        return status;
    for (int i = 0; i < GUARD; i++)
        if (all[i] != GUARD_BYTE ||
            all[GUARD + tensor->bytes + (size_t)i] != GUARD_BYTE)
            *out_guards = false;
    memcpy(tensor->data, all + GUARD, tensor->bytes);
    return NULL;
}

/* O of a spread-out run comes back row by row. */
static struct attn_status *download_output(struct launch *launch,
                                           struct call_tensor *o,
                                           bool *out_guards) {
    struct call_tensor far = *o;
    if (launch->far_axis < 0)
        return download(launch->call->arena, o, &launch->o, out_guards);
    memcpy(far.strides, launch->o.strides,
           (size_t)far.rank * sizeof *far.strides);
    return copy_rows(o, &far, (uint64_t)(uintptr_t)launch->o.data, false);
}

static const char *run_on_gpu(const struct executor *executor,
                              const struct call *call, int far_axis,
                              struct call_tensor *o, struct call_tensor *lse) {
    struct call copy = *call; /* DLPack wants mutable shapes */
    struct launch launch = {.call = &copy, .far_axis = far_axis};
    bool guards = true;
    struct attn_status *status = upload_all(&launch, &copy, o, lse);
    describe_params(&launch);
    if (!status)
        status = launch_kernel(&launch, executor->kernel);
    if (!status)
        status = download_output(&launch, o, &guards);
    if (!status)
        status = download(call->arena, lse, &launch.lse, &guards);
    for (int i = 0; i < launch.buffer_count; i++)
        driver->cuMemFree(launch.buffers[i]);
    if (status)
        return status_text(call->arena, status);
    return guards ? NULL : "memory beside O or LSE was written";
}

const char *gpu_run(const struct executor *executor, const struct call *call,
                    struct call_tensor *o, struct call_tensor *lse) {
    return run_on_gpu(executor, call, -1, o, lse);
}

const char *gpu_run_far(const struct executor *executor,
                        const struct call *call, int axis,
                        struct call_tensor *o, struct call_tensor *lse) {
    return run_on_gpu(executor, call, axis, o, lse);
}
