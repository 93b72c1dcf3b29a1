/* A kernel shipped inside a program: no attn at run time, libcuda only.
 *
 *   attnc sliding_window.attn --target sm_80 -o sliding_window.h
 *   cc embedded.c -I$CUDA_HOME/include -lcuda
 *
 * The cubin in the header runs on the target's generation of devices (sm_80 on 8.x,
 * sm_90a on 9.0).  Here q, k, v and o share one [batch, len, heads, dim] layout. */
#include "sliding_window.h"

#include <stdio.h>

enum { BATCH = 1, HEADS = 8, LENGTH = 512, DIM = 128 };

static CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr address = 0;
    if (cuMemAlloc(&address, bytes) == CUDA_SUCCESS)
        cuMemsetD8(address, 0, bytes);
    return address;
}

int main(void) {
    CUdevice device;
    CUcontext context;
    struct sliding_window_kernel kernel;
    if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
        cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        sliding_window_load(&kernel) != CUDA_SUCCESS) {
        fprintf(stderr, "no device that this cubin runs on\n");
        return 1;
    }
    struct sliding_window_args args =
        sliding_window_args_init(BATCH, HEADS, HEADS, LENGTH, LENGTH);
    size_t bytes = (size_t)BATCH * HEADS * LENGTH * DIM * 2;
    args.window = 64;
    sliding_window_compact(&args); /* then [batch, len, heads, dim] instead */
    args.q.stride[1] = args.k.stride[1] = args.v.stride[1] = args.o.stride[1] = DIM;
    args.q.stride[2] = args.k.stride[2] = args.v.stride[2] = args.o.stride[2] = HEADS * DIM;
    args.q.data = allocate(bytes);
    args.k.data = allocate(bytes);
    args.v.data = allocate(bytes);
    args.o.data = allocate(bytes);
    args.lse.data = allocate(sizeof(float) * BATCH * HEADS * LENGTH);

    int64_t workspace_bytes = sliding_window_workspace_bytes(&kernel, &args);
    CUdeviceptr workspace = workspace_bytes > 0 ? allocate((size_t)workspace_bytes) : 0;
    CUresult result = sliding_window_launch(&kernel, &args, workspace, NULL);
    float lse[3];
    if (result == CUDA_SUCCESS)
        result = cuMemcpyDtoH(lse, args.lse.data, sizeof lse);
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "launch failed: %d\n", (int)result);
        return 1;
    }
    /* All scores are 0: row r sees r + 1 keys, and its LSE is log(r + 1). */
    printf("lse %.4f %.4f %.4f, expected 0.0000 0.6931 1.0986\n", (double)lse[0], (double)lse[1],
           (double)lse[2]);
    sliding_window_unload(&kernel);
    return 0;
}
