/* A GPU and one compiled attention on it, for run and bench: libattn for
 * compile, load and launch, the driver's table for memory, streams and
 * events. */
#ifndef ATTN_TOOLS_GPU_H
#define ATTN_TOOLS_GPU_H

#include "attn.h"
#include "runtime/driver.h"
#include "tools/inputs.h"

struct gpu {
    const struct rt_driver *driver;
    struct rt_device device;
    struct CUctx_st *context;
    struct CUstream_st *stream;
    char name[128];
    struct attn_context *attn;
    struct attn_program *program;
    struct attn_kernel *kernel;
    /* Spec to PTX; PTX to loaded kernels, those that calls run. */
    double compile_seconds, load_seconds;
};

/* Opens device 0, compiles the attention for --target, else the spec's first
 * target that runs there, else the device's own, and loads it.  Returns an exit
 * status; close with gpu_close in any case. */
int gpu_open(struct session *session, const struct spec *spec,
             const struct attention *attention, struct gpu *out);

/* Gives everything back, also after a gpu_open that failed half-way. */
void gpu_close(struct gpu *gpu);

/* The tensors of a call in device memory.  The DLTensors point into the inputs
 * and the session's arena, which must outlive the call. */
struct gpu_call {
    struct gpu *gpu; /* borrowed */
    struct attn_args args;
    uint64_t *buffers; /* device addresses to free */
    size_t buffer_count;
    DLTensor q, k, v, o, lse;
    int64_t shape_o[4];
    uint64_t address_o, address_lse;
    size_t workspace_bytes;
};

/* Copies the inputs to the device in the memory order of --layout, allocates O,
 * LSE and the workspace, and puts the workspace into its first state. */
int gpu_call_create(struct session *session, struct gpu *gpu,
                    const struct inputs *inputs, struct gpu_call *out);

/* Frees the device memory; harmless on a zeroed call. */
void gpu_call_destroy(struct gpu_call *call);

/* Copies O and LSE back, dense and in logical order, in the arena. */
int gpu_call_read(struct session *session, struct gpu_call *call,
                  const struct inputs *inputs, float **out_o, float **out_lse);

/* Reports a status of the runtime and returns the exit status for it; ends
 * `status`. */
int gpu_fail(struct session *session, struct attn_status *status);

#endif
