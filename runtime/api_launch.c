/* The public functions that need a GPU: load, workspace, launch. */
#include <stdlib.h>

#include "runtime/api_launch.h"
#include "runtime/launch.h"
#include "runtime/module.h"
#include "runtime/program.h"

struct attn_kernel {
    struct rt_kernel *rt;         /* owned */
    struct attn_program *program; /* one reference */
    char arch[16];                /* to assemble for */
    int primary; /* device whose primary context is retained; -1: none */
};

struct attn_plan {
    const struct attn_kernel *kernel; /* borrowed */
    struct rt_frame *frame;           /* owned */
};

/* ---- Load -------------------------------------------------------------- */

/* The image for this device: a cubin, or where no assembler is at hand the PTX
 * text, which the driver then compiles.  It may hold more than is wanted. */
static struct attn_status *find_image(const struct attn_kernel *kernel,
                                      rt_kernels wanted, const void **out_image,
                                      rt_kernels *out_kernels) {
    const struct rt_cubin *cubin = NULL;
    struct attn_status *status =
        rt_program_cubin(kernel->program, kernel->arch, wanted, &cubin);
    if (attn_status_code(status) == ATTN_UNAVAILABLE &&
        kernel->program->source_count == 0) {
        attn_status_destroy(status);
        *out_image = kernel->program->ptx;
        *out_kernels = RT_KERNELS_ALL;
        return NULL;
    }
    RT_TRY(status);
    *out_image = cubin->data;
    *out_kernels = cubin->kernels;
    return NULL;
}

static struct attn_status *load(const struct rt_driver *driver,
                                struct attn_kernel *kernel) {
    const struct kernel_info *info = &kernel->program->info;
    struct rt_device device;
    const void *image = NULL;
    rt_kernels kernels = RT_KERNELS_ALL;
    RT_TRY(rt_device_current(driver, &device));
    RT_TRY(rt_arch_for_device(info->target, &device, kernel->arch));
    /* Where every kernel can wait for the first call that runs it, they do. */
    if (rt_conditional_count(info) < info->entry_count)
        RT_TRY(find_image(kernel, RT_KERNELS_ALWAYS, &image, &kernels));
    return rt_kernel_create(driver, &device, info, image, kernels, &kernel->rt);
}

struct attn_status *rt_api_kernel_load(const struct rt_driver *driver,
                                       struct attn_program *program,
                                       struct attn_kernel **out_kernel) {
    struct attn_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY, "out of memory for a kernel");
    kernel->program = rt_program_retain(program);
    kernel->primary = -1;
    struct attn_status *status = load(driver, kernel);
    if (status != NULL)
        attn_kernel_destroy(kernel);
    else
        *out_kernel = kernel;
    return status;
}

struct attn_status *attn_kernel_load(struct attn_program *program,
                                     struct attn_kernel **out_kernel) {
    const struct rt_driver *driver = NULL;
    RT_TRY(rt_driver_get(&driver));
    return rt_api_kernel_load(driver, program, out_kernel);
}

struct attn_status *attn_kernel_load_device(struct attn_program *program,
                                            int device,
                                            struct attn_kernel **out_kernel) {
    const struct rt_driver *driver = NULL;
    struct CUctx_st *context = NULL;
    bool pushed = false;
    int ordinal = 0;
    RT_TRY(rt_driver_get(&driver));
    RT_TRY(RT_CUDA(driver, cuDeviceGet, (&ordinal, device)));
    RT_TRY(RT_CUDA(driver, cuDevicePrimaryCtxRetain, (&context, ordinal)));
    struct attn_status *status = rt_context_enter(driver, context, &pushed);
    if (status == NULL)
        status = rt_api_kernel_load(driver, program, out_kernel);
    rt_context_leave(driver, pushed);
    if (status == NULL)
        (*out_kernel)->primary = ordinal;
    else
        driver->cuDevicePrimaryCtxRelease(ordinal);
    return status;
}

void attn_kernel_destroy(struct attn_kernel *kernel) {
    if (kernel == NULL)
        return;
    const struct rt_driver *driver =
        kernel->rt != NULL ? kernel->rt->driver : NULL;
    rt_kernel_destroy(kernel->rt);
    if (kernel->primary >= 0 && driver != NULL)
        driver->cuDevicePrimaryCtxRelease(kernel->primary);
    rt_program_release(kernel->program);
    free(kernel);
}

/* ---- Kernels that come later -------------------------------------------- */

static struct attn_status *load_entry(const struct attn_kernel *kernel,
                                      size_t index) {
    const void *image = NULL;
    rt_kernels kernels = RT_KERNELS_ALL;
    RT_TRY(find_image(kernel, (rt_kernels)index, &image, &kernels));
    return rt_kernel_load(kernel->rt, index, image, kernels);
}

/* Assembles and loads what the call of a frame needs and the kernel lacks.
 * Threads that come at the same time wait for the first one, in the program and
 * in the kernel. */
static struct attn_status *complete(const struct attn_kernel *kernel,
                                    const struct rt_frame *frame) {
    size_t lacking = 0;
    while (rt_frame_lacks_entry(kernel->rt, frame, &lacking)) {
        struct attn_status *status = load_entry(kernel, lacking);
        if (status != NULL)
            return rt_status_wrap(status, "loading kernel '%s': ",
                                  kernel->rt->info->entries[lacking].name);
    }
    return NULL;
}

/* ---- Launch ------------------------------------------------------------ */

/* A frame on the stack of the calling function: launches allocate nothing. */
#define STACK_FRAME(name, kernel)                                            \
    unsigned char name##_memory[(kernel)->rt->frame_bytes + RT_FRAME_ALIGN]; \
    struct rt_frame *name = rt_frame_init(                                   \
        (kernel)->rt,                                                        \
        name##_memory +                                                      \
            (RT_FRAME_ALIGN - (uintptr_t)name##_memory % RT_FRAME_ALIGN))

struct attn_status *attn_workspace_size(const struct attn_kernel *kernel,
                                        const struct attn_args *args,
                                        size_t *out_bytes) {
    uint64_t bytes = 0, zeroed = 0;
    STACK_FRAME(frame, kernel);
    RT_TRY(rt_workspace_size(kernel->rt, args, frame, &bytes, &zeroed));
    RT_TRY(rt_frame_find_grids(kernel->rt, frame));
    RT_TRY(complete(kernel, frame));
    *out_bytes = (size_t)bytes;
    return NULL;
}

struct attn_status *attn_workspace_clear(const struct attn_kernel *kernel,
                                         const struct attn_args *args,
                                         struct CUstream_st *stream) {
    STACK_FRAME(frame, kernel);
    return rt_workspace_clear(kernel->rt, args, frame, stream);
}

struct attn_status *attn_launch(const struct attn_kernel *kernel,
                                const struct attn_args *args,
                                struct CUstream_st *stream) {
    STACK_FRAME(frame, kernel);
    RT_TRY(rt_frame_prepare(kernel->rt, args, frame));
    RT_TRY(complete(kernel, frame));
    return rt_frame_launch(kernel->rt, frame, stream);
}

struct attn_status *attn_plan_create(const struct attn_kernel *kernel,
                                     const struct attn_args *args,
                                     struct attn_plan **out_plan) {
    struct attn_plan *plan = calloc(1, sizeof *plan);
    void *memory = aligned_alloc(RT_FRAME_ALIGN, kernel->rt->frame_bytes);
    struct attn_status *status = NULL;
    if (plan == NULL || memory == NULL) {
        status = RT_FAIL(ATTN_OUT_OF_MEMORY, "out of memory for a plan");
    } else {
        plan->kernel = kernel;
        plan->frame = rt_frame_init(kernel->rt, memory);
        status = rt_frame_prepare(kernel->rt, args, plan->frame);
        if (status == NULL)
            status = complete(kernel, plan->frame);
    }
    if (status != NULL) {
        free(memory);
        free(plan);
        return status;
    }
    *out_plan = plan;
    return NULL;
}

struct attn_status *attn_plan_launch(const struct attn_plan *plan,
                                     struct CUstream_st *stream) {
    return rt_frame_launch(plan->kernel->rt, plan->frame, stream);
}

void attn_plan_destroy(struct attn_plan *plan) {
    if (plan != NULL)
        free(plan->frame);
    free(plan);
}
