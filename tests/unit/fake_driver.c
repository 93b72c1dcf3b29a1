#include "fake_driver.h"

#include <ctype.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct fake_state fake;

struct function {
    char name[32];
    const struct fake_module *module;
};

static char context_a;
static struct function functions[64];
static int function_count;
/* Launches and their tensor maps come from several threads. */
static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;

static int get_name(int error, const char **name) {
    *name = error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : "CUDA_ERROR_FAKE";
    return 0;
}
static int get_string(int error, const char **text) {
    (void)error;
    *text = "made up";
    return 0;
}

static int get_attribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == RT_DEVICE_CAPABILITY_MAJOR   ? 9
             : attribute == RT_DEVICE_CAPABILITY_MINOR ? 0
             : attribute == RT_DEVICE_SM_COUNT         ? 132
             : attribute == RT_DEVICE_MAX_SHARED_OPTIN ? FAKE_MAX_SHARED
                                                       : -1;
    return 0;
}

static int get_current(struct CUctx_st **context) {
    *context = fake.current;
    return 0;
}
static int get_device(int *device) {
    *device = 0;
    return 0;
}
static int push(struct CUctx_st *context) {
    fake.below[(fake.push_count - fake.pop_count) % FAKE_MAX_DEPTH] =
        fake.current;
    fake.push_count++;
    fake.current = context;
    return 0;
}
static int pop(struct CUctx_st **context) {
    *context = fake.current;
    fake.pop_count++;
    fake.current =
        fake.below[(fake.push_count - fake.pop_count) % FAKE_MAX_DEPTH];
    return 0;
}

/* The section table ends an ELF file. */
static size_t image_size(const void *image) {
    const Elf64_Ehdr *header = image;
    if (memcmp(image, ELFMAG, SELFMAG) != 0)
        return strlen(image);
    return header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
}

static bool in_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

bool fake_image_has(const void *image, const char *name) {
    const char *start = image, *end = start + image_size(image), *at = start;
    size_t length = strlen(name);
    while ((at = memmem(at, (size_t)(end - at), name, length)) != NULL) {
        bool begins = at == start || !in_name(at[-1]);
        bool ends = at + length == end || !in_name(at[length]);
        if (begins && ends)
            return true;
        at++;
    }
    return false;
}

static int load_data(struct CUmod_st **module, const void *image,
                     unsigned count, int *options, void **values) {
    fake.image = image;
    if (fake.capturing && fake.capture_mode != RT_CAPTURE_MODE_RELAXED)
        return 900;
    for (unsigned i = 0; fake.fail_load != 0 && i < count; i++)
        if (options[i] == RT_JIT_ERROR_LOG_BUFFER)
            strcpy(values[i], "ptxas fatal: made up");
    if (fake.fail_load != 0 || fake.load_count == FAKE_MAX_MODULES)
        return fake.fail_load != 0 ? fake.fail_load : 2;
    struct fake_module *loaded = &fake.modules[fake.load_count++];
    *loaded = (struct fake_module){image, fake.current, true};
    *module = (struct CUmod_st *)loaded;
    return 0;
}
static int unload(struct CUmod_st *module) {
    struct fake_module *loaded = (struct fake_module *)module;
    if (!loaded->loaded || loaded->context != fake.current)
        return 1;
    loaded->loaded = false;
    fake.unload_count++;
    return 0;
}
static int get_function(struct CUfunc_st **function, struct CUmod_st *module,
                        const char *name) {
    const struct fake_module *loaded = (const struct fake_module *)module;
    if (!loaded->loaded || !fake_image_has(loaded->image, name))
        return 500;
    struct function *found = &functions[function_count++ % 64];
    snprintf(found->name, sizeof found->name, "%s", name);
    found->module = loaded;
    *function = (struct CUfunc_st *)found;
    return 0;
}
static int exchange_capture_mode(int *mode) {
    int old = fake.capture_mode;
    fake.capture_mode = *mode;
    *mode = old;
    fake.exchange_count++;
    return 0;
}
static int get_function_attribute(int *value, int attribute,
                                  struct CUfunc_st *function) {
    (void)function;
    *value = attribute == RT_FUNC_REGISTERS ? 168 : 0;
    return fake.fail_attribute;
}
static int set_function_attribute(struct CUfunc_st *function, int attribute,
                                  int value) {
    (void)function;
    if (attribute == RT_FUNC_MAX_DYNAMIC_SHARED)
        fake.max_dynamic_shared = value;
    return 0;
}

static int record_launch(struct CUfunc_st *function, const unsigned grid[3],
                         const unsigned block[3], unsigned shared_bytes,
                         struct CUstream_st *stream, void **parameters,
                         void **extra, bool programmatic) {
    if (fake.fail_launch != 0)
        return fake.fail_launch;
    if (grid[1] != 1 || grid[2] != 1 || block[1] != 1 || block[2] != 1 ||
        extra != NULL)
        return 1;
    const struct function *launched = (const struct function *)function;
    if (!launched->module->loaded)
        return 1;
    pthread_mutex_lock(&record_lock);
    int n = fake.launch_count++ % FAKE_MAX_LAUNCHES;
    struct fake_launch *record = &fake.launches[n];
    snprintf(record->name, sizeof record->name, "%s", launched->name);
    record->grid = grid[0];
    record->threads = block[0];
    record->shared_bytes = shared_bytes;
    record->stream = stream;
    record->programmatic = programmatic;
    for (int i = 0; i < FAKE_MAX_PARAMS && fake.param_sizes[n][i] != 0; i++) {
        record->params[i] = parameters[i];
        memcpy(record->bytes[i], parameters[i], fake.param_sizes[n][i]);
    }
    pthread_mutex_unlock(&record_lock);
    return 0;
}

static int launch(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
                  unsigned grid_z, unsigned block_x, unsigned block_y,
                  unsigned block_z, unsigned shared_bytes,
                  struct CUstream_st *stream, void **parameters, void **extra) {
    return record_launch(function, (unsigned[3]){grid_x, grid_y, grid_z},
                         (unsigned[3]){block_x, block_y, block_z}, shared_bytes,
                         stream, parameters, extra, false);
}

static int launch_ex(const struct rt_launch_config *config,
                     struct CUfunc_st *function, void **parameters,
                     void **extra) {
    const struct rt_launch_attribute *attribute = config->attributes;
    if (config->attribute_count != 1 ||
        attribute->id != RT_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION ||
        attribute->value.allowed != 1)
        return 1;
    return record_launch(function, config->grid, config->block,
                         config->shared_bytes, config->stream, parameters,
                         extra, true);
}

static int encode(void *map, int type, uint32_t rank, void *address,
                  const uint64_t *extents, const uint64_t *strides,
                  const uint32_t *box, const uint32_t *element_strides,
                  int interleave, int swizzle, int l2_promotion, int fill) {
    if (rank != 5 || interleave != 0 || fill != 0 ||
        l2_promotion != RT_TENSOR_MAP_L2_128B || (uintptr_t)map % 64 != 0 ||
        element_strides[0] != 1)
        return 1;
    pthread_mutex_lock(&record_lock);
    fake.map.type = type;
    fake.map.address = (uint64_t)(uintptr_t)address;
    memcpy(fake.map.extents, extents, sizeof fake.map.extents);
    memcpy(fake.map.strides, strides, sizeof fake.map.strides);
    memcpy(fake.map.box, box, sizeof fake.map.box);
    fake.map.swizzle = swizzle;
    pthread_mutex_unlock(&record_lock);
    memset(map, 0xA5, 128);
    return 0;
}

static int set_bytes(uint64_t address, unsigned char value, size_t count,
                     struct CUstream_st *stream) {
    (void)stream;
    fake.memset_count += value == 0;
    fake.memset_address = address;
    fake.memset_bytes = count;
    return 0;
}
static int allocate(uint64_t *address, size_t bytes) {
    (void)bytes;
    fake.alloc_count++;
    *address = 4096;
    return 0;
}
static int synchronize(struct CUstream_st *stream) {
    (void)stream;
    fake.sync_count++;
    return 0;
}

void fake_reset(void) {
    memset(&fake, 0, sizeof fake);
    fake.current = (struct CUctx_st *)&context_a;
}

const struct rt_driver *fake_driver(void) {
    static const struct rt_driver table = {
        .cuGetErrorName = get_name,
        .cuGetErrorString = get_string,
        .cuDeviceGetAttribute = get_attribute,
        .cuCtxGetCurrent = get_current,
        .cuCtxGetDevice = get_device,
        .cuCtxPushCurrent = push,
        .cuCtxPopCurrent = pop,
        .cuModuleLoadDataEx = load_data,
        .cuModuleUnload = unload,
        .cuModuleGetFunction = get_function,
        .cuThreadExchangeStreamCaptureMode = exchange_capture_mode,
        .cuFuncGetAttribute = get_function_attribute,
        .cuFuncSetAttribute = set_function_attribute,
        .cuLaunchKernel = launch,
        .cuLaunchKernelEx = launch_ex,
        .cuTensorMapEncodeTiled = encode,
        .cuMemsetD8Async = set_bytes,
        .cuMemAlloc = allocate,
        .cuStreamSynchronize = synchronize,
    };
    return &table;
}
