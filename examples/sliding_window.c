/* Compile a spec, make tensors, launch, read back.
 *
 *   cc sliding_window.c $(pkg-config --cflags --libs attn) -I$CUDA_HOME/include -lcuda
 *
 * Row 0 of a causal mask sees key 0 only, so its output must be row 0 of v. */
#include <attn.h>
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, HEADS = 8, KV_HEADS = 2, LENGTH = 1000, DIM = 64 };

static const char spec[] = "attention window {\n"
                           "    dtype bf16;\n"
                           "    head_dim 64;\n"
                           "    group any;\n"
                           "    param window: i32 = 128;\n"
                           "    mask kv <= q && q - kv < window;\n"
                           "}\n";

/* A status ends the program here; a server would report it and go on. */
static void check(struct attn_status *status) {
    if (status == NULL)
        return;
    fprintf(stderr, "%s\n", attn_status_text(status));
    exit(1);
}

static void check_cuda(CUresult result) {
    const char *name = "unknown";
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "CUDA: %s\n", name);
    exit(1);
}

/* A bf16 tensor [batch, heads, length, dim] in device memory, filled with random bits of
 * numbers between 0.5 and 1. */
static DLTensor make_tensor(int64_t *shape, uint16_t **out_host) {
    size_t count = (size_t)(shape[0] * shape[1] * shape[2] * shape[3]);
    CUdeviceptr address;
    *out_host = malloc(count * 2);
    for (size_t i = 0; i < count; i++)
        (*out_host)[i] = (uint16_t)(0x3F00 | (rand() & 0x7F));
    check_cuda(cuMemAlloc(&address, count * 2));
    check_cuda(cuMemcpyHtoD(address, *out_host, count * 2));
    DLTensor tensor = {.data = (void *)(uintptr_t)address, .device = {kDLCUDA, 0}, .ndim = 4,
                       .dtype = {kDLBfloat, 16, 1}, .shape = shape}; /* no strides: compact */
    return tensor;
}

int main(void) {
    CUdevice device;
    CUcontext cuda;
    check_cuda(cuInit(0));
    check_cuda(cuDeviceGet(&device, 0));
    check_cuda(cuDevicePrimaryCtxRetain(&cuda, device));
    check_cuda(cuCtxSetCurrent(cuda));

    struct attn_context *context;
    struct attn_program *program;
    struct attn_kernel *kernel;
    struct attn_source source = {spec, sizeof spec - 1, "window.attn"};
    check(attn_context_create(NULL, &context));
    check(attn_compile(context, &source, NULL, &program)); /* from the cache next time */
    check(attn_kernel_load(program, &kernel));
    printf("%s for %s\n", attn_program_name(program), attn_program_target(program));

    int64_t q_shape[] = {BATCH, HEADS, LENGTH, DIM}, k_shape[] = {BATCH, KV_HEADS, LENGTH, DIM};
    uint16_t *q_host, *k_host, *v_host, *o_host;
    DLTensor q = make_tensor(q_shape, &q_host), k = make_tensor(k_shape, &k_host);
    DLTensor v = make_tensor(k_shape, &v_host), o = make_tensor(q_shape, &o_host);
    struct attn_param_arg window = {"window", ATTN_I32, {.i32 = 256}};
    struct attn_args args = {.q = &q, .k = &k, .v = &v, .o = &o, .params = &window,
                             .param_count = 1};

    CUdeviceptr workspace = 0;
    check(attn_workspace_size(kernel, &args, &args.workspace_bytes));
    if (args.workspace_bytes > 0)
        check_cuda(cuMemAlloc(&workspace, args.workspace_bytes));
    args.workspace = (void *)(uintptr_t)workspace;
    check(attn_workspace_clear(kernel, &args, NULL));
    check(attn_launch(kernel, &args, NULL)); /* NULL: the default stream */
    check_cuda(cuMemcpyDtoH(o_host, (CUdeviceptr)(uintptr_t)o.data,
                            sizeof(uint16_t) * BATCH * HEADS * LENGTH * DIM));

    bool good = memcmp(o_host, v_host, DIM * sizeof *o_host) == 0;
    printf("row 0 of o %s row 0 of v\n", good ? "is" : "differs from");
    attn_kernel_destroy(kernel);
    attn_program_destroy(program);
    attn_context_destroy(context);
    return good ? 0 : 1;
}
