/* Choosing the assembler, and nvJitLink in process.
 *
 * nvJitLink takes PTX for an older target and assembles it for `-arch`, so
 * sm_80 PTX becomes a native sm_90 cubin. */
#include "runtime/jit.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/toolkit.h"

enum { OPTIONAL = false, REQUIRED = true };

struct nvJitLink;

struct nvjitlink {
#define NVJITLINK(field, name, need, parameters) int(*field) parameters;
#include "runtime/symbols.def"
};

static const struct rt_symbol nvjitlink_symbols[] = {
#define NVJITLINK(field, name, need, parameters) \
    {name, need, offsetof(struct nvjitlink, field)},
#include "runtime/symbols.def"
};

static const struct rt_library libnvjitlink = {
    .title = "libnvJitLink (CUDA toolkit)",
    .names = (const char *const[]){"libnvJitLink.so.13", "libnvJitLink.so.12",
                                   "libnvJitLink.so", NULL},
    .symbols = nvjitlink_symbols,
    .symbol_count = sizeof nvjitlink_symbols / sizeof *nvjitlink_symbols,
};

/* Numbers of nvJitLink.h. */
enum {
    NVJITLINK_PTX = 2,
    NVJITLINK_UNRECOGNIZED_ARCH = 16,
    NVJITLINK_UNSUPPORTED_ARCH = 17,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct nvjitlink loaded;
static struct attn_status *failure;

static void load(void) {
    failure = rt_library_open(&libnvjitlink, &loaded);
}

/* The library, opened once for the process; a failure is remembered too. */
static struct attn_status *
open_nvjitlink(const struct nvjitlink **out_library) {
    pthread_once(&once, load);
    *out_library = &loaded;
    if (failure != NULL)
        return RT_FAIL(attn_status_code(failure), "%s",
                       attn_status_text(failure));
    return NULL;
}

/* The status of a failed step, with the linker's log. */
static struct attn_status *link_failure(const struct nvjitlink *library,
                                        struct nvJitLink *handle,
                                        const struct rt_jit_input *input,
                                        int result) {
    size_t size = 0;
    char *log = NULL;
    if (library->error_log_size(handle, &size) == 0 && size > 0 &&
        (log = calloc(1, size + 1)) != NULL)
        library->error_log(handle, log);
    bool arch = result == NVJITLINK_UNRECOGNIZED_ARCH ||
                result == NVJITLINK_UNSUPPORTED_ARCH;
    struct attn_status *status;
    if (arch)
        status = RT_FAIL(ATTN_UNAVAILABLE,
                         "this machine's libnvJitLink does not know %s",
                         input->arch);
    else
        status = RT_FAIL(
            ATTN_TOOLKIT, "nvJitLink refused '%s' for %s (error %d)\n%s",
            input->name, input->arch, result, log != NULL ? log : "");
    free(log);
    return status;
}

/* Compiles each extern file for the same architecture and hands it to the
 * linker. */
static struct attn_status *add_sources(const struct nvjitlink *library,
                                       struct nvJitLink *handle,
                                       const struct rt_jit_input *input) {
    struct attn_status *status = NULL;
    for (size_t i = 0; i < input->source_count && status == NULL; i++) {
        struct strbuf ptx;
        strbuf_init(&ptx, NULL);
        status = rt_nvrtc_compile(&input->sources[i], input->arch, &ptx);
        if (status == NULL) {
            int result =
                library->add_data(handle, NVJITLINK_PTX, ptx.data,
                                  ptx.length + 1, input->sources[i].path);
            if (result != 0)
                status = link_failure(library, handle, input, result);
        }
        strbuf_destroy(&ptx);
    }
    return status;
}

static struct attn_status *add_ptx(const struct nvjitlink *library,
                                   struct nvJitLink *handle,
                                   const struct rt_jit_input *input) {
    /* The input must end in NUL. */
    char *text = malloc(input->ptx_size + 1);
    if (text == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY, "out of memory for the PTX of '%s'",
                       input->name);
    memcpy(text, input->ptx, input->ptx_size);
    text[input->ptx_size] = '\0';
    int result = library->add_data(handle, NVJITLINK_PTX, text,
                                   input->ptx_size + 1, input->name);
    struct attn_status *status =
        result != 0 ? link_failure(library, handle, input, result) : NULL;
    free(text);
    return status;
}

/* All steps of one link; the handle is the caller's to destroy. */
static struct attn_status *link_all(const struct nvjitlink *library,
                                    struct nvJitLink *handle,
                                    const struct rt_jit_input *input,
                                    void **out_cubin, size_t *out_size) {
    size_t size = 0;
    RT_TRY(add_ptx(library, handle, input));
    RT_TRY(add_sources(library, handle, input));
    int result = library->complete(handle);
    if (result == 0)
        result = library->cubin_size(handle, &size);
    if (result != 0)
        return link_failure(library, handle, input, result);
    void *cubin = malloc(size);
    if (cubin == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY,
                       "out of memory for a cubin of %zu bytes", size);
    result = library->cubin(handle, cubin);
    if (result != 0) {
        free(cubin);
        return link_failure(library, handle, input, result);
    }
    *out_cubin = cubin;
    *out_size = size;
    return NULL;
}

struct attn_status *rt_jit_nvjitlink(const struct rt_jit_input *input,
                                     void **out_cubin, size_t *out_size) {
    const struct nvjitlink *library = NULL;
    struct nvJitLink *handle = NULL;
    char arch[32];
    RT_TRY(open_nvjitlink(&library));
    snprintf(arch, sizeof arch, "-arch=%.24s", input->arch);
    const char *options[] = {arch};
    int result = library->create(&handle, 1, options);
    struct attn_status *status =
        result != 0 ? link_failure(library, handle, input, result)
                    : link_all(library, handle, input, out_cubin, out_size);
    if (handle != NULL)
        library->destroy(&handle);
    return status;
}

/* Code for one chip only ("sm_90a") divides registers among warp roles.
 * nvJitLink compiles every input as a part of a program, where ptxas ignores
 * setmaxnreg and waits after each wgmma: the same numbers at a third of the
 * speed.  ptxas itself sees the whole program, and so does the driver's
 * compiler, which the loader takes without it. */
static bool wants_whole_program(const struct rt_jit_input *input) {
    size_t length = strlen(input->arch);
    return input->source_count == 0 && length > 0 &&
           input->arch[length - 1] == 'a';
}

/* Falls back to ptxas only where nvJitLink is missing or too old, never to get
 * a second opinion on bad code. */
struct attn_status *rt_jit_cubin(const struct rt_jit_input *input,
                                 void **out_cubin, size_t *out_size) {
    if (wants_whole_program(input))
        return rt_jit_ptxas(input, out_cubin, out_size);
    struct attn_status *linker = rt_jit_nvjitlink(input, out_cubin, out_size);
    if (attn_status_code(linker) != ATTN_UNAVAILABLE || input->source_count > 0)
        return linker;
    struct attn_status *ptxas = rt_jit_ptxas(input, out_cubin, out_size);
    if (attn_status_code(ptxas) == ATTN_UNAVAILABLE)
        ptxas = rt_status_wrap(ptxas, "%s; ", attn_status_text(linker));
    attn_status_destroy(linker);
    return ptxas;
}

void rt_jit_identity(struct strbuf *out) {
    struct strbuf path;
    strbuf_init(&path, NULL);
    if (rt_library_find(&libnvjitlink, &path) || rt_tool_find("ptxas", &path)) {
        rt_file_identity(path.data, out);
    } else {
        /* Found by the dynamic linker only: its version must do. */
        const struct nvjitlink *library = NULL;
        unsigned major = 0, minor = 0;
        struct attn_status *status = open_nvjitlink(&library);
        if (status == NULL && library->version != NULL)
            library->version(&major, &minor);
        strbuf_printf(out, "nvjitlink %u.%u\n", major, minor);
        attn_status_destroy(status);
    }
    strbuf_destroy(&path);
}
