/* Finding and opening NVIDIA's libraries and tools.  Nothing is linked, so that
 * the library loads on machines without them. */
#include "runtime/toolkit.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const library_folders[] = {
    "lib64",
#if defined(__aarch64__)
    "targets/sbsa-linux/lib",
#else
    "targets/x86_64-linux/lib",
#endif
    "lib",
};

/* Root number `index` of a toolkit, NULL after the last, "" for an unset
 * variable. */
static const char *toolkit_root(int index) {
    const char *root = index == 0   ? getenv("CUDA_HOME")
                       : index == 1 ? getenv("CUDA_PATH")
                       : index == 2 ? "/usr/local/cuda"
                                    : NULL;
    return root == NULL && index < 2 ? "" : root;
}

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

/* Candidate files in toolkit folders, in order; `visit` ends the walk with
 * true. */
static bool each_file(const struct rt_library *library, struct strbuf *path,
                      bool (*visit)(const char *path, void *data), void *data) {
    enum { FOLDERS = sizeof library_folders / sizeof *library_folders };
    const char *root = NULL;
    for (int r = 0; (root = toolkit_root(r)) != NULL; r++)
        for (int f = 0; root[0] != '\0' && f < FOLDERS; f++)
            for (const char *const *name = library->names; *name != NULL;
                 name++) {
                strbuf_clear(path);
                strbuf_printf(path, "%s/%s/%s", root, library_folders[f],
                              *name);
                if (is_file(path->data) && visit(path->data, data))
                    return true;
            }
    return false;
}

static bool accept_file(const char *path, void *data) {
    (void)path;
    (void)data;
    return true;
}

/* A file that is there but cannot be opened (another architecture) is passed
 * over. */
static bool open_file(const char *path, void *data) {
    void **handle = data;
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return *handle != NULL;
}

bool rt_library_find(const struct rt_library *library,
                     struct strbuf *out_path) {
    return each_file(library, out_path, accept_file, NULL);
}

struct attn_status *rt_library_open(const struct rt_library *library,
                                    void *table) {
    struct strbuf path;
    strbuf_init(&path, NULL);
    void *handle = NULL;
    each_file(library, &path, open_file, &handle);
    strbuf_destroy(&path);
    for (const char *const *name = library->names;
         handle == NULL && *name != NULL; name++)
        handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return RT_FAIL(
            ATTN_UNAVAILABLE,
            "%s not found (searched as %s in $CUDA_HOME, $CUDA_PATH, "
            "/usr/local/cuda and the dynamic linker's path)",
            library->title, library->names[0]);
    for (size_t i = 0; i < library->symbol_count; i++) {
        const struct rt_symbol *symbol = &library->symbols[i];
        void *address = dlsym(handle, symbol->name);
        if (address == NULL && symbol->required)
            return RT_FAIL(ATTN_UNAVAILABLE,
                           "%s on this machine is too old: it lacks %s",
                           library->title, symbol->name);
        memcpy((char *)table + symbol->offset, &address, sizeof address);
    }
    return NULL;
}

bool rt_tool_find(const char *name, struct strbuf *out_path) {
    const char *root = NULL;
    for (int r = 0; (root = toolkit_root(r)) != NULL; r++) {
        strbuf_clear(out_path);
        strbuf_printf(out_path, "%s/bin/%s", root, name);
        if (root[0] != '\0' && access(out_path->data, X_OK) == 0)
            return true;
    }
    const char *list = getenv("PATH");
    while (list != NULL && *list != '\0') {
        size_t length = strcspn(list, ":");
        strbuf_clear(out_path);
        strbuf_printf(out_path, "%.*s/%s", (int)length, list, name);
        if (length > 0 && is_file(out_path->data) &&
            access(out_path->data, X_OK) == 0)
            return true;
        list += length + (list[length] == ':');
    }
    return false;
}

bool rt_toolkit_include(struct strbuf *out_path) {
    const char *root = NULL;
    for (int r = 0; (root = toolkit_root(r)) != NULL; r++) {
        strbuf_clear(out_path);
        strbuf_printf(out_path, "%s/include", root);
        size_t length = out_path->length;
        strbuf_append(out_path, "/cuda_fp16.h");
        bool found = root[0] != '\0' && is_file(out_path->data);
        out_path->data[out_path->length = length] = '\0';
        if (found)
            return true;
    }
    return false;
}

void rt_file_identity(const char *path, struct strbuf *out) {
    struct stat info = {0};
    if (stat(path, &info) != 0)
        info.st_size = -1;
    strbuf_printf(out, "%s %" PRId64 " %" PRId64 ".%09ld\n", path,
                  (int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec,
                  info.st_mtim.tv_nsec);
}
