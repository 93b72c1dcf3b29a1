/* Opening libcuda once, and turning its results into statuses. */
#include "runtime/driver.h"

#include <pthread.h>
#include <stddef.h>

#include "runtime/toolkit.h"

enum { OPTIONAL = false, REQUIRED = true };

static const struct rt_symbol driver_symbols[] = {
#define DRIVER(field, name, need, parameters) \
    {name, need, offsetof(struct rt_driver, field)},
#include "runtime/symbols.def"
};

static const struct rt_library libcuda = {
    .title = "libcuda (the NVIDIA driver)",
    .names = (const char *const[]){"libcuda.so.1", "libcuda.so", NULL},
    .symbols = driver_symbols,
    .symbol_count = sizeof driver_symbols / sizeof *driver_symbols,
};

/* The one driver of the process: written once, then only read. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rt_driver loaded;
static struct attn_status *failure;

static void load(void) {
    failure = rt_library_open(&libcuda, &loaded);
    if (failure == NULL) {
        int version = 0, result = loaded.cuInit(0);
        loaded.cuDriverGetVersion(&version);
        if (version < RT_PROGRAMMATIC_DRIVER)
            loaded.cuLaunchKernelEx = NULL;
        if (result == RT_CUDA_ERROR_NO_DEVICE)
            failure =
                RT_FAIL(ATTN_UNAVAILABLE, "the NVIDIA driver finds no GPU");
        else if (result != RT_CUDA_SUCCESS)
            failure =
                rt_driver_status(&loaded, result, "cuInit", __FILE__, __LINE__);
    }
}

struct attn_status *rt_driver_get(const struct rt_driver **out_driver) {
    pthread_once(&once, load);
    *out_driver = failure == NULL ? &loaded : NULL;
    if (failure != NULL)
        return RT_FAIL(ATTN_UNAVAILABLE, "%s", attn_status_text(failure));
    return NULL;
}

struct attn_status *rt_driver_status(const struct rt_driver *driver, int result,
                                     const char *call, const char *file,
                                     int line) {
    if (result == RT_CUDA_SUCCESS)
        return NULL;
    const char *name = NULL, *text = NULL;
    driver->cuGetErrorName(result, &name);
    driver->cuGetErrorString(result, &text);
    return rt_status_create(ATTN_CUDA, file, line, "%s: %s (%d): %s", call,
                            name != NULL ? name : "unknown CUDA error", result,
                            text != NULL ? text : "no description");
}

struct attn_status *rt_device_describe(const struct rt_driver *driver,
                                       int ordinal,
                                       struct rt_device *out_device) {
    const struct {
        int attribute;
        int *value;
    } facts[] = {
        {RT_DEVICE_CAPABILITY_MAJOR, &out_device->major},
        {RT_DEVICE_CAPABILITY_MINOR, &out_device->minor},
        {RT_DEVICE_SM_COUNT, &out_device->sm_count},
        {RT_DEVICE_MAX_SHARED_OPTIN, &out_device->max_shared},
    };
    out_device->ordinal = ordinal;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        RT_TRY(RT_CUDA(driver, cuDeviceGetAttribute,
                       (facts[i].value, facts[i].attribute, ordinal)));
    return NULL;
}

struct attn_status *rt_device_current(const struct rt_driver *driver,
                                      struct rt_device *out_device) {
    struct CUctx_st *context = NULL;
    int ordinal = 0;
    RT_TRY(RT_CUDA(driver, cuCtxGetCurrent, (&context)));
    if (context == NULL)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "no CUDA context is current on this thread "
                       "(attn_kernel_load_device "
                       "takes a device instead)");
    RT_TRY(RT_CUDA(driver, cuCtxGetDevice, (&ordinal)));
    return rt_device_describe(driver, ordinal, out_device);
}
