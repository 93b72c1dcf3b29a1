/* A program's images (cubins, or PTX for the driver's own compiler) loaded into
 * a CUDA context, with their entries ready to launch.  Kernels that not every
 * call runs may come later, each from an image of its own. */
#ifndef ATTN_RUNTIME_MODULE_H
#define ATTN_RUNTIME_MODULE_H

#include "runtime/checks.h"
#include "runtime/driver.h"
#include "runtime/program.h"

struct rt_entry {
    /* Atomic: stored last, so that who reads one may read the rest; NULL: not
     * loaded yet. */
    struct CUfunc_st *function;
    unsigned threads;
    unsigned shared_bytes;
    bool programmatic;          /* kernel_entry.programmatic */
    int registers, local_bytes; /* as the driver reports them */
};

struct rt_kernel {
    const struct rt_driver *driver;
    const struct kernel_info *info; /* borrowed, outlives the kernel */
    struct rt_device device;
    struct CUctx_st *context;
    struct CUmod_st **modules; /* in order of loading */
    size_t module_count;       /* entry_count + 1 at most */
    pthread_mutex_t lock;      /* held while a module is loaded */
    struct rt_entry *entries; /* info->entry_count */
    struct rt_contract contract;
    size_t frame_bytes; /* see launch.h */
};

/* The architecture to assemble for so that code for `target` runs on `device`:
 * "sm_80" on a 9.0 device gives "sm_90"; "sm_90a" runs on 9.0 only.
 * ATTN_INVALID_ARGUMENT, naming both, when it cannot run there. */
struct attn_status *rt_arch_for_device(const char *target,
                                       const struct rt_device *device,
                                       char out_arch[static 16]);

/* A kernel of the current context, whose facts are `device`, with the kernels
 * of `image`; NULL: with none yet.  Shared memory beyond 48 KB is opted in to;
 * what does not fit the device, loaded or not, is refused by name. */
struct attn_status *rt_kernel_create(const struct rt_driver *driver,
                                     const struct rt_device *device,
                                     const struct kernel_info *info,
                                     const void *image, rt_kernels kernels,
                                     struct rt_kernel **out_kernel);

/* Loads those of `kernels` that are not there, entry `index` among them, from
 * `image` into the kernel's context; nothing when that entry is.  May be called
 * while launches and other calls of this function run, and while a stream is
 * captured.  After a failure the kernel is as it was. */
struct attn_status *rt_kernel_load(struct rt_kernel *kernel, size_t index,
                                   const void *image, rt_kernels kernels);

/* Entry `index`, NULL when it is not loaded yet. */
const struct rt_entry *rt_kernel_entry(const struct rt_kernel *kernel,
                                       size_t index);

/* Unloads; NULL is fine. */
void rt_kernel_destroy(struct rt_kernel *kernel);

/* Makes `kernel`'s context current if it is not; *out_pushed says whether it
 * must be popped with rt_context_leave. */
struct attn_status *rt_context_enter(const struct rt_driver *driver,
                                     struct CUctx_st *context,
                                     bool *out_pushed);
/* Undoes rt_context_enter. */
void rt_context_leave(const struct rt_driver *driver, bool pushed);

#endif
