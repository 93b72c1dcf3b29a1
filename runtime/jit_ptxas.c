/* PTX to a cubin through the ptxas program, for machines with a toolkit's tools
 * but without libnvJitLink.  Files live in a fresh private folder; arguments
 * are passed without a shell. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/jit.h"
#include "runtime/toolkit.h"

extern char **environ;

enum { MAX_CUBIN = 256 << 20, MAX_LOG = 1 << 20 };

/* The folder of one run and the files in it. */
struct workdir {
    char *folder, *ptx, *cubin, *log;
    struct arena *arena;
};

/* mkdtemp makes it private (mode 0700), so nobody can put a link in our way. */
static struct attn_status *workdir_create(struct workdir *dir) {
    const char *base = getenv("TMPDIR");
    dir->arena = arena_create();
    dir->folder = arena_printf(dir->arena, "%s/attn-XXXXXX",
                               base != NULL && base[0] != '\0' ? base : "/tmp");
    if (mkdtemp(dir->folder) == NULL) {
        struct attn_status *status =
            RT_FAIL(ATTN_IO, "cannot create the folder '%s': %s", dir->folder,
                    strerror(errno));
        arena_destroy(dir->arena);
        dir->arena = NULL;
        return status;
    }
    dir->ptx = arena_printf(dir->arena, "%s/in.ptx", dir->folder);
    dir->cubin = arena_printf(dir->arena, "%s/out.cubin", dir->folder);
    dir->log = arena_printf(dir->arena, "%s/log", dir->folder);
    return NULL;
}

static void workdir_destroy(struct workdir *dir) {
    unlink(dir->ptx);
    unlink(dir->cubin);
    unlink(dir->log);
    rmdir(dir->folder);
    arena_destroy(dir->arena);
}

static struct attn_status *write_file(const char *path, const void *data,
                                      size_t size) {
    FILE *file = fopen(path, "wbex");
    bool good = file != NULL && fwrite(data, 1, size, file) == size;
    if (file != NULL && fclose(file) != 0)
        good = false;
    return good ? NULL
                : RT_FAIL(ATTN_IO, "cannot write '%s': %s", path,
                          strerror(errno));
}

static bool read_file(const char *path, size_t limit, struct strbuf *out) {
    FILE *file = fopen(path, "rbe");
    bool good = file != NULL && strbuf_read(out, file, limit);
    if (file != NULL)
        fclose(file);
    return good;
}

/* Runs the tool and waits; its output goes to the log.  0 for success. */
static int run_tool(const char *tool, char *const arguments[],
                    const char *log) {
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    int state = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log,
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    int error = posix_spawn(&child, tool, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0)
        return -1;
    pid_t waited;
    do
        waited = waitpid(child, &state, 0);
    while (waited < 0 && errno == EINTR);
    /* A host that ignores SIGCHLD has no status to give: the output file
     * decides. */
    return waited < 0 ? 0 : WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

/* Writes, runs, reads.  A tool that does not know the architecture counts as
 * missing. */
static struct attn_status *assemble(const struct rt_jit_input *input,
                                    const char *tool, const struct workdir *dir,
                                    struct strbuf *cubin) {
    char arch[32];
    snprintf(arch, sizeof arch, "-arch=%.24s", input->arch);
    char *arguments[] = {(char *)"ptxas", arch,       dir->ptx,
                         (char *)"-o",    dir->cubin, NULL};
    RT_TRY(write_file(dir->ptx, input->ptx, input->ptx_size));
    int result = run_tool(tool, arguments, dir->log);
    if (result == 0 && read_file(dir->cubin, MAX_CUBIN, cubin) &&
        cubin->length > 0)
        return NULL;
    struct strbuf log;
    strbuf_init(&log, NULL);
    read_file(dir->log, MAX_LOG, &log);
    bool arch_unknown = strstr(strbuf_text(&log), "gpu-name") != NULL;
    struct attn_status *status =
        RT_FAIL(arch_unknown ? ATTN_UNAVAILABLE : ATTN_TOOLKIT,
                "%s refused '%s' for %s (exit status %d)\n%s", tool,
                input->name, input->arch, result, strbuf_text(&log));
    strbuf_destroy(&log);
    return status;
}

struct attn_status *rt_jit_ptxas(const struct rt_jit_input *input,
                                 void **out_cubin, size_t *out_size) {
    struct strbuf tool, cubin;
    struct workdir dir = {0};
    if (input->source_count > 0)
        return RT_FAIL(
            ATTN_UNAVAILABLE,
            "'%s' calls extern functions, which libnvJitLink must link",
            input->name);
    strbuf_init(&tool, NULL);
    strbuf_init(&cubin, NULL);
    struct attn_status *status = NULL;
    if (!rt_tool_find("ptxas", &tool))
        status = RT_FAIL(ATTN_UNAVAILABLE,
                         "ptxas not found (searched in $CUDA_HOME/bin, "
                         "$CUDA_PATH/bin, /usr/local/cuda/bin and PATH)");
    if (status == NULL)
        status = workdir_create(&dir);
    if (status == NULL)
        status = assemble(input, tool.data, &dir, &cubin);
    if (status == NULL) {
        *out_size = cubin.length;
        *out_cubin = strbuf_take(&cubin);
    }
    if (dir.arena != NULL)
        workdir_destroy(&dir);
    strbuf_destroy(&tool);
    strbuf_destroy(&cubin);
    return status;
}
