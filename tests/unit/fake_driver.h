/* A CUDA driver made of C functions: one device of capability 9.0, contexts
 * that are addresses, launches that are recorded with their parameters. */
#ifndef ATTN_TESTS_FAKE_DRIVER_H
#define ATTN_TESTS_FAKE_DRIVER_H

#include "runtime/driver.h"

enum {
    FAKE_MAX_LAUNCHES = 8,
    FAKE_MAX_PARAMS = 32,
    FAKE_MAX_SHARED = 227 << 10
};

struct fake_launch {
    char name[32];
    unsigned grid, threads, shared_bytes;
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

struct fake_state {
    int launch_count, load_count, unload_count, alloc_count, sync_count,
        memset_count;
    struct fake_launch launches[FAKE_MAX_LAUNCHES];
    int max_dynamic_shared;   /* the attribute's last value */
    struct CUctx_st *current; /* context of the (only) thread */
    int push_count;
    struct fake_map map; /* the last one encoded */
    uint64_t memset_address;
    size_t memset_bytes;
    int fail_launch; /* result of cuLaunchKernel */
    int fail_load;   /* result of cuModuleLoadDataEx, with a log */
    const void *image;
    size_t param_sizes[FAKE_MAX_LAUNCHES]
                      [FAKE_MAX_PARAMS]; /* set by the test, 0: none */
};

extern struct fake_state fake;

/* Forgets everything; a context is current. */
void fake_reset(void);

/* The table. */
const struct rt_driver *fake_driver(void);

#endif
