/* CUDA C++ device functions to relocatable PTX through NVRTC. */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/jit.h"
#include "runtime/toolkit.h"

enum { OPTIONAL = false, REQUIRED = true };

struct nvrtc_program;

struct nvrtc {
#define NVRTC(field, name, need, parameters) int(*field) parameters;
#include "runtime/symbols.def"
};

static const struct rt_symbol nvrtc_symbols[] = {
#define NVRTC(field, name, need, parameters) \
    {name, need, offsetof(struct nvrtc, field)},
#include "runtime/symbols.def"
};

static const struct rt_library libnvrtc = {
    .title = "libnvrtc (CUDA toolkit, for extern functions)",
    .names = (const char *const[]){"libnvrtc.so.13", "libnvrtc.so.12",
                                   "libnvrtc.so", NULL},
    .symbols = nvrtc_symbols,
    .symbol_count = sizeof nvrtc_symbols / sizeof *nvrtc_symbols,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nvrtc loaded;
static struct attn_status *failure;

static void load(void) {
    failure = rt_library_open(&libnvrtc, &loaded);
}

/* NVRTC's log names `path`, line and column of each error. */
static struct attn_status *compile_failure(const struct nvrtc *library,
                                           struct nvrtc_program *program,
                                           const struct rt_cuda_source *source,
                                           int result) {
    size_t size = 0;
    char *log = NULL;
    if (library->log_size(program, &size) == 0 && size > 0 &&
        (log = calloc(1, size + 1)) != NULL)
        library->log(program, log);
    struct attn_status *status =
        RT_FAIL(ATTN_TOOLKIT, "NVRTC refused '%s' (error %d)\n%s", source->path,
                result, log != NULL ? log : "");
    free(log);
    return status;
}

/* Copies the PTX out of a compiled program. */
static struct attn_status *take_ptx(const struct nvrtc *library,
                                    struct nvrtc_program *program,
                                    const struct rt_cuda_source *source,
                                    struct strbuf *out_ptx) {
    size_t size = 0;
    int result = library->ptx_size(program, &size);
    char *text = result == 0 ? calloc(1, size + 1) : NULL;
    if (text != NULL)
        result = library->ptx(program, text);
    if (text != NULL && result == 0)
        strbuf_append(out_ptx, text);
    struct attn_status *status = NULL;
    if (result != 0)
        status = compile_failure(library, program, source, result);
    else if (text == NULL)
        status = RT_FAIL(ATTN_OUT_OF_MEMORY,
                         "out of memory for the PTX of '%s'", source->path);
    free(text);
    return status;
}

struct attn_status *rt_nvrtc_compile(const struct rt_cuda_source *source,
                                     const char *arch, struct strbuf *out_ptx) {
    pthread_once(&once, load);
    if (failure != NULL)
        return RT_FAIL(attn_status_code(failure), "%s",
                       attn_status_text(failure));
    struct strbuf gpu, folder, toolkit;
    strbuf_init(&gpu, NULL);
    strbuf_init(&folder, NULL);
    strbuf_init(&toolkit, NULL);
    /* "sm_90a" is asked for as compute_90a: PTX, not SASS. */
    const char *number = strchr(arch, '_');
    strbuf_printf(&gpu, "--gpu-architecture=compute_%s",
                  number != NULL ? number + 1 : arch);
    const char *slash = strrchr(source->path, '/');
    int length = slash != NULL ? (int)(slash - source->path) : 1;
    strbuf_printf(&folder, "--include-path=%.*s", length,
                  slash != NULL ? source->path : ".");
    const char *options[] = {gpu.data, "--relocatable-device-code=true",
                             "--std=c++17", folder.data, NULL};
    int option_count = 4;
    struct strbuf include;
    strbuf_init(&include, NULL);
    if (rt_toolkit_include(&toolkit)) {
        strbuf_printf(&include, "--include-path=%s", toolkit.data);
        options[option_count++] = include.data;
    }
    struct nvrtc_program *program = NULL;
    struct attn_status *status = NULL;
    int result =
        loaded.create(&program, source->text, source->path, 0, NULL, NULL);
    if (result == 0)
        result = loaded.compile(program, option_count, options);
    if (result != 0)
        status = compile_failure(&loaded, program, source, result);
    else
        status = take_ptx(&loaded, program, source, out_ptx);
    if (program != NULL)
        loaded.destroy(&program);
    strbuf_destroy(&gpu);
    strbuf_destroy(&folder);
    strbuf_destroy(&toolkit);
    strbuf_destroy(&include);
    return status;
}
