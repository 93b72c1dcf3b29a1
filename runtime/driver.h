/* The CUDA driver as a table of functions.  Everything that talks to the driver
 * takes the table as an argument, so that tests can pass one of their own that
 * records calls. */
#ifndef ATTN_RUNTIME_DRIVER_H
#define ATTN_RUNTIME_DRIVER_H

#include <stdint.h>

#include "runtime/status.h"

struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUevent_st;
struct CUstream_st;

/* CUlaunchConfig with room for one attribute (cuda.h; CUDA 12.0). */
struct rt_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    struct CUstream_st *stream;
    struct rt_launch_attribute *attributes;
    unsigned attribute_count;
};
struct rt_launch_attribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        int allowed; /* of programmatic stream serialization */
    } value;
};

struct rt_driver {
#define DRIVER(field, name, need, parameters) int(*field) parameters;
#include "runtime/symbols.def"
};

/* Numbers of cuda.h that we use. */
enum {
    RT_CUDA_SUCCESS = 0,
    RT_CUDA_ERROR_NO_DEVICE = 100,
    RT_JIT_ERROR_LOG_BUFFER = 5,
    RT_JIT_ERROR_LOG_BUFFER_SIZE = 6,
    RT_FUNC_LOCAL_BYTES = 3,
    RT_FUNC_REGISTERS = 4,
    RT_FUNC_MAX_DYNAMIC_SHARED = 8,
    RT_DEVICE_SM_COUNT = 16,
    RT_DEVICE_CAPABILITY_MAJOR = 75,
    RT_DEVICE_CAPABILITY_MINOR = 76,
    RT_DEVICE_MAX_SHARED_OPTIN = 97,
    RT_CAPTURE_MODE_RELAXED = 2,
    RT_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    /* Drivers before CUDA 12.3 do not capture such launches into graphs. */
    RT_PROGRAMMATIC_DRIVER = 12030,
    RT_TENSOR_MAP_FLOAT16 = 6,
    RT_TENSOR_MAP_BFLOAT16 = 9,
    RT_TENSOR_MAP_L2_128B = 2,
};

/* The machine's driver, opened and initialised on the first call.
 * ATTN_UNAVAILABLE without libcuda or without a device. */
struct attn_status *rt_driver_get(const struct rt_driver **out_driver);

/* What the runtime asks about a device. */
struct rt_device {
    int ordinal;
    int major, minor; /* compute capability */
    int sm_count;
    int max_shared; /* bytes a CTA can opt in to */
};

/* The device of the calling thread's current context; ATTN_INVALID_ARGUMENT
 * when no context is current. */
struct attn_status *rt_device_current(const struct rt_driver *driver,
                                      struct rt_device *out_device);
/* The facts of one device. */
struct attn_status *rt_device_describe(const struct rt_driver *driver,
                                       int ordinal,
                                       struct rt_device *out_device);

/* ATTN_CUDA with the driver's name and text for `result`; NULL for success. */
struct attn_status *rt_driver_status(const struct rt_driver *driver, int result,
                                     const char *call, const char *file,
                                     int line);

/* RT_CUDA(driver, cuFuncSetAttribute, (f, a, v)): a status of that call. */
#define RT_CUDA(driver, call, arguments)                                  \
    rt_driver_status((driver), (driver)->call arguments, #call, __FILE__, \
                     __LINE__)

#endif
