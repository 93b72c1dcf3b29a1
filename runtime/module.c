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
static struct attn_status *load_image(const struct rt_driver *driver,
                                      const void *image,
                                      struct CUmod_st **out_module) {
    char *log = calloc(1, LOG_BYTES);
    if (log == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY,
                       "out of memory for the driver's log");
    int options[] = {RT_JIT_ERROR_LOG_BUFFER, RT_JIT_ERROR_LOG_BUFFER_SIZE};
    void *values[] = {log, (void *)(uintptr_t)LOG_BYTES};
    struct attn_status *status = RT_CUDA(
        driver, cuModuleLoadDataEx, (out_module, image, 2, options, values));
    log[LOG_BYTES - 1] = '\0';
    if (status != NULL && log[0] != '\0')
        status = rt_status_wrap(status, "%s\n", log);
    free(log);
    return status;
}

/* The function of one entry, its shared memory opted in to. */
static struct attn_status *find_entry(const struct rt_driver *driver,
                                      struct CUmod_st *module,
                                      const struct kernel_entry *source,
                                      struct rt_entry *entry) {
    struct attn_status *status = RT_CUDA(
        driver, cuModuleGetFunction, (&entry->function, module, source->name));
    if (status != NULL)
        return rt_status_wrap(status, "kernel '%s': ", source->name);
    entry->threads = (unsigned)source->threads;
    entry->shared_bytes = source->shared_bytes;
    entry->programmatic = source->programmatic;
    if (source->shared_bytes > STATIC_SHARED_LIMIT)
        RT_TRY(RT_CUDA(driver, cuFuncSetAttribute,
                       (entry->function, RT_FUNC_MAX_DYNAMIC_SHARED,
                        (int)source->shared_bytes)));
    RT_TRY(RT_CUDA(driver, cuFuncGetAttribute,
                   (&entry->registers, RT_FUNC_REGISTERS, entry->function)));
    return RT_CUDA(driver, cuFuncGetAttribute,
                   (&entry->local_bytes, RT_FUNC_LOCAL_BYTES, entry->function));
}

/* The entries of the set that are not loaded into `found`; the others stay as
 * they are. */
static struct attn_status *find_entries(const struct rt_kernel *kernel,
                                        struct CUmod_st *module,
                                        rt_kernels kernels,
                                        struct rt_entry *found) {
    const struct kernel_info *info = kernel->info;
    for (size_t i = 0; i < info->entry_count; i++)
        if (rt_kernels_have(kernels, info, i) &&
            rt_kernel_entry(kernel, i) == NULL)
            RT_TRY(find_entry(kernel->driver, module, &info->entries[i],
                              &found[i]));
    return NULL;
}

/* Lets launches see what was found. */
static void publish(struct rt_kernel *kernel, const struct rt_entry *found) {
    for (size_t i = 0; i < kernel->info->entry_count; i++) {
        struct rt_entry *entry = &kernel->entries[i];
        if (found[i].function == NULL)
            continue;
        entry->threads = found[i].threads;
        entry->shared_bytes = found[i].shared_bytes;
        entry->programmatic = found[i].programmatic;
        entry->registers = found[i].registers;
        entry->local_bytes = found[i].local_bytes;
        __atomic_store_n(&entry->function, found[i].function, __ATOMIC_RELEASE);
    }
}

/* Loads an image for a set of kernels: all of them become ready, or none and
 * nothing stays loaded. */
static struct attn_status *load_kernels(struct rt_kernel *kernel,
                                        const void *image, rt_kernels kernels) {
    struct CUmod_st *module = NULL;
    struct rt_entry *found = calloc(kernel->info->entry_count, sizeof *found);
    if (found == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY, "out of memory for kernel '%s'",
                       kernel->info->name);
    struct attn_status *status = load_image(kernel->driver, image, &module);
    if (status == NULL) {
        status = find_entries(kernel, module, kernels, found);
        if (status != NULL)
            kernel->driver->cuModuleUnload(module);
    }
    if (status == NULL) {
        publish(kernel, found);
        kernel->modules[kernel->module_count++] = module;
    }
    free(found);
    return status;
}

/* Of all entries, before they are loaded: a program that does not fit is
 * refused here and not in the midst of its launches. */
static struct attn_status *check_shared(const struct kernel_info *info,
                                        const struct rt_device *device) {
    for (size_t i = 0; i < info->entry_count; i++) {
        const struct kernel_entry *entry = &info->entries[i];
        if ((int64_t)entry->shared_bytes > device->max_shared)
            return RT_FAIL(
                ATTN_INVALID_ARGUMENT,
                "kernel '%s' needs %u bytes of shared memory, the device has "
                "%d",
                entry->name, entry->shared_bytes, device->max_shared);
    }
    return NULL;
}

static struct attn_status *load(struct rt_kernel *kernel, const void *image,
                                rt_kernels kernels) {
    const struct kernel_info *info = kernel->info;
    if (info->tensor_map_count > 0 &&
        kernel->driver->cuTensorMapEncodeTiled == NULL)
        return RT_FAIL(
            ATTN_UNAVAILABLE,
            "the NVIDIA driver is too old: it lacks cuTensorMapEncodeTiled");
    RT_TRY(check_shared(info, &kernel->device));
    RT_TRY(rt_frame_size(info, &kernel->frame_bytes));
    RT_TRY(RT_CUDA(kernel->driver, cuCtxGetCurrent, (&kernel->context)));
    if (image != NULL)
        RT_TRY(load_kernels(kernel, image, kernels));
    rt_contract_find_strides(&kernel->contract);
    return NULL;
}

struct attn_status *rt_kernel_create(const struct rt_driver *driver,
                                     const struct rt_device *device,
                                     const struct kernel_info *info,
                                     const void *image, rt_kernels kernels,
                                     struct rt_kernel **out_kernel) {
    struct rt_kernel *kernel = calloc(1, sizeof *kernel);
    struct rt_entry *entries = calloc(info->entry_count, sizeof *entries);
    uint32_t *strides = calloc(info->tensor_count, sizeof *strides);
    struct CUmod_st **modules =
        calloc(info->entry_count + 1, sizeof(struct CUmod_st *));
    if (kernel == NULL || entries == NULL || strides == NULL ||
        modules == NULL) {
        free(kernel);
        free(modules);
        free(entries);
        free(strides);
        return RT_FAIL(ATTN_OUT_OF_MEMORY, "out of memory for kernel '%s'",
                       info->name);
    }
    kernel->driver = driver;
    kernel->info = info;
    kernel->device = *device;
    kernel->entries = entries;
    kernel->modules = modules;
    kernel->contract =
        (struct rt_contract){info, device->ordinal, device->sm_count, strides};
    pthread_mutex_init(&kernel->lock, NULL);
    struct attn_status *status = load(kernel, image, kernels);
    if (status != NULL)
        rt_kernel_destroy(kernel);
    else
        *out_kernel = kernel;
    return status;
}

/* Loading is forbidden to a thread while it, or any thread in the global mode,
 * captures a stream; not so in the relaxed mode, and none of this is work on
 * the stream.  Drivers without the function know no such modes. */
static struct attn_status *load_relaxed(struct rt_kernel *kernel,
                                        const void *image, rt_kernels kernels) {
    const struct rt_driver *driver = kernel->driver;
    int mode = RT_CAPTURE_MODE_RELAXED;
    if (driver->cuThreadExchangeStreamCaptureMode == NULL)
        return load_kernels(kernel, image, kernels);
    RT_TRY(RT_CUDA(driver, cuThreadExchangeStreamCaptureMode, (&mode)));
    struct attn_status *status = load_kernels(kernel, image, kernels);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    return status;
}

struct attn_status *rt_kernel_load(struct rt_kernel *kernel, size_t index,
                                   const void *image, rt_kernels kernels) {
    bool pushed = false;
    struct attn_status *status = NULL;
    pthread_mutex_lock(&kernel->lock);
    if (rt_kernel_entry(kernel, index) == NULL) {
        status = rt_context_enter(kernel->driver, kernel->context, &pushed);
        if (status == NULL)
            status = load_relaxed(kernel, image, kernels);
        rt_context_leave(kernel->driver, pushed);
    }
    pthread_mutex_unlock(&kernel->lock);
    return status;
}

const struct rt_entry *rt_kernel_entry(const struct rt_kernel *kernel,
                                       size_t index) {
    const struct rt_entry *entry = &kernel->entries[index];
    return __atomic_load_n(&entry->function, __ATOMIC_ACQUIRE) != NULL ? entry
                                                                       : NULL;
}

/* A context that is gone has taken its modules with it. */
static void unload(struct rt_kernel *kernel) {
    bool pushed = false;
    struct attn_status *status =
        rt_context_enter(kernel->driver, kernel->context, &pushed);
    for (size_t i = 0; status == NULL && i < kernel->module_count; i++)
        kernel->driver->cuModuleUnload(kernel->modules[i]);
    attn_status_destroy(status);
    rt_context_leave(kernel->driver, pushed);
}

void rt_kernel_destroy(struct rt_kernel *kernel) {
    if (kernel == NULL)
        return;
    if (kernel->module_count > 0)
        unload(kernel);
    pthread_mutex_destroy(&kernel->lock);
    free(kernel->modules);
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
