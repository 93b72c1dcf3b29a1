/* attnc run --device gpu. */
#include "tools/device.h"
#include "tools/gpu.h"

bool device_gpu_available(struct arena *arena, const char **out_reason) {
    const struct rt_driver *driver;
    struct attn_status *status = rt_driver_get(&driver);
    *out_reason = arena_strdup(arena, attn_status_text(status));
    bool available = status == NULL;
    attn_status_destroy(status);
    return available;
}

static const char *facts(struct session *session, const struct gpu *gpu,
                         const struct gpu_call *call) {
    struct json json;
    json_init(&json, session->arena);
    json_open(&json, '{');
    json_pair_string(&json, "gpu", gpu->name);
    json_pair_bool(&json, "from_cache", attn_program_from_cache(gpu->program));
    json_pair_real(&json, "compile_seconds", gpu->compile_seconds);
    json_pair_real(&json, "load_seconds", gpu->load_seconds);
    json_pair_integer(&json, "workspace_bytes", (int64_t)call->workspace_bytes);
    json_close(&json, '}');
    return json_text(&json);
}

static int launch(struct session *session, struct gpu *gpu,
                  struct gpu_call *call, double *out_seconds) {
    double start = session_clock();
    struct attn_status *failed =
        attn_launch(gpu->kernel, &call->args, gpu->stream);
    if (!failed)
        failed = RT_CUDA(gpu->driver, cuStreamSynchronize, (gpu->stream));
    *out_seconds = session_clock() - start;
    return failed ? gpu_fail(session, failed) : STATUS_OK;
}

int device_gpu(struct session *session, const struct spec *spec,
               const struct inputs *inputs, struct device_result *out) {
    struct gpu gpu;
    struct gpu_call call = {0};
    *out = (struct device_result){0};
    int status = gpu_open(session, spec, inputs->attention, &gpu);
    if (status == STATUS_OK)
        status = gpu_call_create(session, &gpu, inputs, &call);
    if (status == STATUS_OK)
        status = launch(session, &gpu, &call, &out->seconds);
    if (status == STATUS_OK)
        status = gpu_call_read(session, &call, inputs, &out->o, &out->lse);
    if (status == STATUS_OK) {
        out->device = arena_strdup(session->arena, gpu.name);
        out->target =
            arena_strdup(session->arena, attn_program_target(gpu.program));
        out->facts = facts(session, &gpu, &call);
    }
    gpu_call_destroy(&call);
    gpu_close(&gpu);
    return status;
}
