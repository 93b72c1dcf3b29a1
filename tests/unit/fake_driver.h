/* A CUDA driver made of C functions: one device of capability 9.0, contexts
 * that are addresses, launches that are recorded with their parameters.
 *
 * An image is an ELF file or a text; it has the kernels whose names stand in
 * it. */
#ifndef ATTN_TESTS_FAKE_DRIVER_H
#define ATTN_TESTS_FAKE_DRIVER_H

#include "runtime/driver.h"

enum {
    FAKE_MAX_LAUNCHES = 8,
    FAKE_MAX_PARAMS = 32,
    FAKE_MAX_MODULES = 8,
    FAKE_MAX_DEPTH = 4,
    FAKE_MAX_SHARED = 227 << 10
};

struct fake_launch {
    char name[32];
    unsigned grid, threads, shared_bytes;
    bool programmatic; /* by cuLaunchKernelEx, with that attribute */
    struct CUstream_st *stream;
    void *params[FAKE_MAX_PARAMS]; /* as passed, valid during the call only… */
    unsigned char bytes[FAKE_MAX_PARAMS]
                       [128]; /* …so each is copied, 128 bytes at most */
};

struct fake_map {
    int type;
    uint64_t address, extents[5], strides[4];
    uint32_t box[5];
    int swizzle;
};

/* What a module handle points to. */
struct fake_module {
    const void *image;
    struct CUctx_st *context; /* current when it was loaded */
    bool loaded;
};

struct fake_state {
    int launch_count, load_count, unload_count, alloc_count, sync_count,
        memset_count;
    struct fake_launch launches[FAKE_MAX_LAUNCHES];
    int max_dynamic_shared;   /* the attribute's last value */
    struct fake_module modules[FAKE_MAX_MODULES]; /* load_count of them */
    struct CUctx_st *current;                     /* the same for all threads */
    struct CUctx_st *below[FAKE_MAX_DEPTH];
    int push_count, pop_count;
    bool capturing;     /* a stream is captured: loads need the relaxed mode */
    int exchange_count; /* of the capture mode, which starts as 0: global */
    int capture_mode;
    struct fake_map map; /* the last one encoded */
    uint64_t memset_address;
    size_t memset_bytes;
    int fail_launch; /* result of cuLaunchKernel */
    int fail_load;   /* result of cuModuleLoadDataEx, with a log */
    int fail_attribute; /* result of cuFuncGetAttribute */
    const void *image;  /* the last one that was to be loaded */
    size_t param_sizes[FAKE_MAX_LAUNCHES]
                      [FAKE_MAX_PARAMS]; /* set by the test, 0: none */
};

extern struct fake_state fake;

/* Forgets everything; a context is current. */
void fake_reset(void);

/* Whether an image has a kernel of this name. */
bool fake_image_has(const void *image, const char *name);

/* The table. */
const struct rt_driver *fake_driver(void);

#endif
