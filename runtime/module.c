/* Loading an image and looking up its entries. */
#include "runtime/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch.h"

enum {
    STATIC_SHARED_LIMIT = 48 << 10, /* more must be opted in to by attribute */
    LOG_BYTES = 8 << 10,
};

struct attn_status *rt_arch_for_device(const char *target,
                                       const struct rt_device *device,
                                       char out_arch[static 16]) {
    int number = 0, used = 0;
    if (sscanf(target, "sm_%d%n", &number, &used) != 1 || number < 10 ||
        number > 9999 || strlen(target + used) > 1)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "'%s' is no GPU target (like sm_80)", target);
    char suffix = target[used];
    int major = number / 10, minor = number % 10;
    bool runs = major < device->major ||
                (major == device->major && minor <= device->minor);
    if (suffix == 'a') /* architecture-specific: this capability only */
        runs = major == device->major && minor == device->minor;
    else if (suffix == 'f') /* family-specific */
        runs = runs && major == device->major;
    if (!runs)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "code for %s does not run on this device (compute "
                       "capability %d.%d)",
                       target, device->major, device->minor);
    if (suffix == 'a' || suffix == 'f')
        snprintf(out_arch, 16, "%.15s", target);
    else
        snprintf(out_arch, 16, "sm_%d%d", device->major, device->minor);
    return NULL;
}

/* A cubin or PTX text; the driver tells them apart.  Its log says what it
 * disliked. */
static struct attn_status *load_image(struct rt_kernel *kernel,
                                      const void *image) {
    char *log = calloc(1, LOG_BYTES);
    if (log == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY,
                       "out of memory for the driver's log");
    int options[] = {RT_JIT_ERROR_LOG_BUFFER, RT_JIT_ERROR_LOG_BUFFER_SIZE};
    void *values[] = {log, (void *)(uintptr_t)LOG_BYTES};
    struct attn_status *status =
        RT_CUDA(kernel->driver, cuModuleLoadDataEx,
                (&kernel->module, image, 2, options, values));
    log[LOG_BYTES - 1] = '\0';
    if (status != NULL && log[0] != '\0')
        status = rt_status_wrap(status, "%s\n", log);
    free(log);
    return status;
}

/* The function of one entry, its shared memory opted in to. */
static struct attn_status *find_entry(struct rt_kernel *kernel,
                                      const struct kernel_entry *source,
                                      struct rt_entry *entry) {
    const struct rt_driver *driver = kernel->driver;
    if ((int64_t)source->shared_bytes > kernel->device.max_shared)
        return RT_FAIL(
            ATTN_INVALID_ARGUMENT,
            "kernel '%s' needs %u bytes of shared memory, the device has %d",
            source->name, source->shared_bytes, kernel->device.max_shared);
    struct attn_status *status =
        RT_CUDA(driver, cuModuleGetFunction,
                (&entry->function, kernel->module, source->name));
    if (status != NULL)
        return rt_status_wrap(status, "kernel '%s': ", source->name);
    entry->threads = (unsigned)source->threads;
    entry->shared_bytes = source->shared_bytes;
    if (source->shared_bytes > STATIC_SHARED_LIMIT)
        RT_TRY(RT_CUDA(driver, cuFuncSetAttribute,
                       (entry->function, RT_FUNC_MAX_DYNAMIC_SHARED,
                        (int)source->shared_bytes)));
    RT_TRY(RT_CUDA(driver, cuFuncGetAttribute,
                   (&entry->registers, RT_FUNC_REGISTERS, entry->function)));
    return RT_CUDA(driver, cuFuncGetAttribute,
                   (&entry->local_bytes, RT_FUNC_LOCAL_BYTES, entry->function));
}

static struct attn_status *load(struct rt_kernel *kernel, const void *image) {
    const struct kernel_info *info = kernel->info;
    if (info->tensor_map_count > 0 &&
        kernel->driver->cuTensorMapEncodeTiled == NULL)
        return RT_FAIL(
            ATTN_UNAVAILABLE,
            "the NVIDIA driver is too old: it lacks cuTensorMapEncodeTiled");
    RT_TRY(rt_frame_size(info, &kernel->frame_bytes));
    RT_TRY(RT_CUDA(kernel->driver, cuCtxGetCurrent, (&kernel->context)));
    RT_TRY(load_image(kernel, image));
    for (size_t i = 0; i < info->entry_count; i++)
        RT_TRY(find_entry(kernel, &info->entries[i], &kernel->entries[i]));
    rt_contract_find_strides(&kernel->contract);
    return NULL;
}

struct attn_status *rt_kernel_create(const struct rt_driver *driver,
                                     const struct rt_device *device,
                                     const struct kernel_info *info,
                                     const void *image,
                                     struct rt_kernel **out_kernel) {
    struct rt_kernel *kernel = calloc(1, sizeof *kernel);
    struct rt_entry *entries = calloc(info->entry_count, sizeof *entries);
    uint32_t *strides = calloc(info->tensor_count, sizeof *strides);
    if (kernel == NULL || entries == NULL || strides == NULL) {
        free(kernel);
        free(entries);
        free(strides);
        return RT_FAIL(ATTN_OUT_OF_MEMORY, "out of memory for kernel '%s'",
                       info->name);
    }
    kernel->driver = driver;
    kernel->info = info;
    kernel->device = *device;
    kernel->entries = entries;
    kernel->contract =
        (struct rt_contract){info, device->ordinal, device->sm_count, strides};
    struct attn_status *status = load(kernel, image);
    if (status != NULL)
        rt_kernel_destroy(kernel);
    else
        *out_kernel = kernel;
    return status;
}

void rt_kernel_destroy(struct rt_kernel *kernel) {
    if (kernel == NULL)
        return;
    bool pushed = false;
    if (kernel->module != NULL) {
        struct attn_status *status =
            rt_context_enter(kernel->driver, kernel->context, &pushed);
        /* A context that is gone has taken its modules with it. */
        if (status == NULL)
            kernel->driver->cuModuleUnload(kernel->module);
        attn_status_destroy(status);
        rt_context_leave(kernel->driver, pushed);
    }
    free(kernel->entries);
    free(kernel->contract.passed_strides);
    free(kernel);
}

struct attn_status *rt_context_enter(const struct rt_driver *driver,
                                     struct CUctx_st *context,
                                     bool *out_pushed) {
    struct CUctx_st *current = NULL;
    *out_pushed = false;
    RT_TRY(RT_CUDA(driver, cuCtxGetCurrent, (&current)));
    if (current != context) {
        RT_TRY(RT_CUDA(driver, cuCtxPushCurrent, (context)));
        *out_pushed = true;
    }
    return NULL;
}

void rt_context_leave(const struct rt_driver *driver, bool pushed) {
    struct CUctx_st *popped = NULL;
    if (pushed)
        driver->cuCtxPopCurrent(&popped);
}
