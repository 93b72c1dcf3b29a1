/* Outputs made from PTX; see tools/output.h. */
#include "tools/output.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/header_writer.h"
#include "runtime/jit.h"
#include "tools/gpu.h"

static const struct {
    const char *extension;
    enum output_kind kind;
} extensions[] = {
    {".mlir", OUTPUT_MODULE},
    {".ptx", OUTPUT_PTX},
    {".cubin", OUTPUT_CUBIN},
    {".h", OUTPUT_HEADER},
};

enum output_kind output_kind_of(const char *path) {
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof extensions / sizeof *extensions; i++)
        if (strcmp(dot, extensions[i].extension) == 0)
            return extensions[i].kind;
    return OUTPUT_NONE;
}

const char *output_path_for_target(struct arena *arena, const char *path,
                                   const char *target) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    int stem = (int)((dot ? dot : name + strlen(name)) - path);
    return arena_printf(arena, "%.*s.%s%s", stem, path, target, dot ? dot : "");
}

/* The cubin of the code for its own target; the caller frees it. */
static int assemble(struct session *session, const struct output_code *code,
                    void **out_cubin, size_t *out_size) {
    struct rt_cuda_source *sources = ARENA_NEW_ARRAY(
        session->arena, struct rt_cuda_source, code->extern_file_count);
    for (size_t i = 0; i < code->extern_file_count; i++)
        sources[i] = (struct rt_cuda_source){code->extern_files[i]->path,
                                             code->extern_files[i]->text};
    struct rt_jit_input input = {
        .name = code->origin,
        .ptx = code->ptx,
        .ptx_size = code->ptx_length,
        .sources = sources,
        .source_count = code->extern_file_count,
        .arch = code->info->target,
    };
    double start = session_clock();
    struct attn_status *failed = rt_jit_cubin(&input, out_cubin, out_size);
    if (failed)
        return gpu_fail(session, failed);
    session_say(session, "assembled for %s in %.1f ms: %zu bytes",
                code->info->target, 1e3 * (session_clock() - start), *out_size);
    return STATUS_OK;
}

static int write_header(struct session *session, const char *path,
                        const struct output_code *code, const void *cubin,
                        size_t size) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    header_write(code->info, cubin, size, code->origin, &text);
    int status = session_write(session, path, strbuf_text(&text), text.length);
    strbuf_destroy(&text);
    return status;
}

int output_write_code(struct session *session, enum output_kind kind,
                      const char *path, const struct output_code *code) {
    if (kind == OUTPUT_PTX)
        return session_write(session, path, code->ptx, code->ptx_length);
    void *cubin = NULL;
    size_t size = 0;
    int status = assemble(session, code, &cubin, &size);
    if (status == STATUS_OK)
        status = kind == OUTPUT_CUBIN
                     ? session_write(session, path, cubin, size)
                     : write_header(session, path, code, cubin, size);
    free(cubin);
    return status;
}
