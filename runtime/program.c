/* Programs: building one from a payload, and its cubins. */
#include "runtime/program.h"

#include <stdlib.h>
#include <string.h>

enum {
    PART_INFO,
    PART_PTX,
    PART_WARNINGS,
    PART_SOURCES, /* path and text of each extern file in turn */
    MAX_PARTS = PART_SOURCES + 2 * 256,
};

void rt_program_write(const struct rt_program_parts *parts,
                      struct strbuf *out_payload) {
    struct strbuf info;
    struct rt_part list[MAX_PARTS];
    strbuf_init(&info, NULL);
    kernel_info_write(parts->info, &info);
    list[PART_INFO] = (struct rt_part){info.data, info.length};
    list[PART_PTX] = (struct rt_part){parts->ptx, parts->ptx_size};
    list[PART_WARNINGS] =
        (struct rt_part){parts->warnings, strlen(parts->warnings)};
    size_t count = PART_SOURCES;
    for (size_t i = 0; i < parts->source_count && count + 2 <= MAX_PARTS; i++) {
        const struct rt_cuda_source *source = &parts->sources[i];
        list[count++] = (struct rt_part){source->path, strlen(source->path)};
        list[count++] = (struct rt_part){source->text, strlen(source->text)};
    }
    rt_parts_write(list, count, out_payload);
    strbuf_destroy(&info);
}

/* ---- The public description --------------------------------------------- */

static enum attn_type public_type(enum scalar_type type) {
    static const enum attn_type types[] = {
        [SCALAR_BOOL] = ATTN_BOOL, [SCALAR_I32] = ATTN_I32,
        [SCALAR_F32] = ATTN_F32,   [SCALAR_F16] = ATTN_F16,
        [SCALAR_BF16] = ATTN_BF16,
    };
    return types[type];
}

static const char *expr_text(const struct attn_program *program,
                             const struct size_expr *expr) {
    struct strbuf text;
    strbuf_init(&text, program->arena);
    size_expr_print_c(expr, &program->info, &text);
    return strbuf_take(&text);
}

static double default_value(const struct kernel_scalar *scalar) {
    float f32 = 0;
    if (scalar->type != SCALAR_F32)
        return (int32_t)scalar->default_bits;
    memcpy(&f32, &scalar->default_bits, sizeof f32);
    return (double)f32;
}

/* Fills in what the public accessors borrow, once, so that they need no
 * lock. */
static void describe(struct attn_program *program) {
    const struct kernel_info *info = &program->info;
    struct arena *arena = program->arena;
    program->tensors =
        ARENA_NEW_ARRAY(arena, struct attn_tensor_info, info->tensor_count);
    program->params =
        ARENA_NEW_ARRAY(arena, struct attn_param_info, info->scalar_count);
    program->entries =
        ARENA_NEW_ARRAY(arena, struct attn_entry_info, info->entry_count);
    for (size_t i = 0; i < info->tensor_count; i++) {
        const struct kernel_tensor *from = &info->tensors[i];
        struct attn_tensor_info *to = &program->tensors[i];
        to->name = from->name;
        to->type = public_type(from->type);
        to->rank = from->rank;
        to->used = from->used;
        for (int axis = 0; axis < from->rank; axis++)
            to->extents[axis] = expr_text(program, &from->extents[axis]);
    }
    for (size_t i = 0; i < info->scalar_count; i++) {
        const struct kernel_scalar *from = &info->scalars[i];
        program->params[i] = (struct attn_param_info){
            .name = from->name,
            .type = public_type(from->type),
            .used = from->used,
            .has_default = from->has_default,
            .default_value = from->has_default ? default_value(from) : 0,
        };
    }
    for (size_t i = 0; i < info->entry_count; i++) {
        const struct kernel_entry *from = &info->entries[i];
        program->entries[i] = (struct attn_entry_info){
            from->name,         from->threads,
            from->shared_bytes, expr_text(program, &from->grid_x),
            from->conditional,  from->programmatic};
    }
    program->workspace = expr_text(program, &info->workspace_bytes);
    struct strbuf json;
    strbuf_init(&json, arena);
    kernel_info_print_json(info, &json);
    program->json = strbuf_take(&json);
}

/* ---- Life -------------------------------------------------------------- */

/* Every part is checked: the entry may come from another build or a damaged
 * disk. */
static struct attn_status *read_payload(struct attn_program *program,
                                        const char *payload, size_t size) {
    struct rt_part parts[MAX_PARTS];
    size_t count = 0;
    /* The views below point into this copy. */
    char *copy = arena_alloc(program->arena, size + 1);
    memcpy(copy, payload, size);
    if (!rt_parts_read(copy, size, parts, MAX_PARTS, &count) ||
        count < PART_SOURCES || (count - PART_SOURCES) % 2 != 0)
        return RT_FAIL(ATTN_IO, "a stored program is damaged");
    const char *fault =
        kernel_info_read(parts[PART_INFO].data, parts[PART_INFO].size,
                         program->arena, &program->info);
    if (fault != NULL)
        return RT_FAIL(
            ATTN_IO, "the kernel facts of a program are not right: %s", fault);
    program->ptx = parts[PART_PTX].data;
    program->ptx_size = parts[PART_PTX].size;
    program->warnings = parts[PART_WARNINGS].data;
    program->source_count = (count - PART_SOURCES) / 2;
    program->sources = ARENA_NEW_ARRAY(program->arena, struct rt_cuda_source,
                                       program->source_count);
    for (size_t i = 0; i < program->source_count; i++)
        program->sources[i] =
            (struct rt_cuda_source){parts[PART_SOURCES + 2 * i].data,
                                    parts[PART_SOURCES + 2 * i + 1].data};
    return NULL;
}

struct attn_status *rt_program_create(const char *payload, size_t size,
                                      struct rt_key key,
                                      const char *cache_folder,
                                      struct attn_program **out_program) {
    struct attn_program *program = calloc(1, sizeof *program);
    if (program == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY, "out of memory for a program");
    program->references = 1;
    program->key = key;
    program->arena = arena_create();
    pthread_mutex_init(&program->lock, NULL);
    if (cache_folder != NULL)
        program->cache_folder = arena_strdup(program->arena, cache_folder);
    struct attn_status *status = read_payload(program, payload, size);
    if (status != NULL) {
        rt_program_release(program);
        return status;
    }
    describe(program);
    *out_program = program;
    return NULL;
}

struct attn_program *rt_program_retain(struct attn_program *program) {
    __atomic_add_fetch(&program->references, 1, __ATOMIC_RELAXED);
    return program;
}

void rt_program_release(struct attn_program *program) {
    if (program == NULL ||
        __atomic_sub_fetch(&program->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (struct rt_cubin *cubin = program->cubins, *next; cubin != NULL;
         cubin = next) {
        next = cubin->next;
        free(cubin->data);
        free(cubin);
    }
    pthread_mutex_destroy(&program->lock);
    arena_destroy(program->arena);
    free(program);
}

/* ---- Cubins ------------------------------------------------------------ */

/* Another set of kernels, the same program for another architecture or by
 * another toolkit is another entry. */
static struct rt_key cubin_key(const struct attn_program *program,
                               const char *arch, rt_kernels kernels) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    strbuf_append_bytes(&text, &program->key, sizeof program->key);
    strbuf_printf(&text, "cubin %s %d\n", arch, kernels);
    rt_jit_identity(&text);
    struct rt_key key = rt_key_of(text.data, text.length);
    strbuf_destroy(&text);
    return key;
}

/* Does the set have the kernel of this name?  One that nobody launches is in
 * the whole only. */
static bool has_name(const struct kernel_info *info, rt_kernels kernels,
                     const char *name, size_t length) {
    for (size_t i = 0; i < info->entry_count; i++)
        if (strlen(info->entries[i].name) == length &&
            memcmp(info->entries[i].name, name, length) == 0)
            return rt_kernels_have(kernels, info, i);
    return kernels == RT_KERNELS_ALL;
}

/* Appends the PTX without the kernels that are not wanted.  A kernel is, as the
 * back end writes it, the lines from ".visible .entry NAME(" to a "}" at the
 * start of a line. */
static void select_kernels(const struct attn_program *program,
                           rt_kernels kernels, struct strbuf *out) {
    static const char start[] = "\n.visible .entry ", stop[] = "\n}\n";
    const char *rest = program->ptx, *entry = NULL, *end = NULL;
    while ((entry = strstr(rest, start)) != NULL &&
           (end = strstr(entry, stop)) != NULL) {
        const char *name = entry + strlen(start);
        const char *next = end + strlen(stop) - 1;
        bool wanted =
            has_name(&program->info, kernels, name, strcspn(name, "(\n"));
        strbuf_append_bytes(out, rest,
                            (size_t)((wanted ? next : entry) - rest));
        rest = next;
    }
    strbuf_append(out, rest);
}

static struct attn_status *assemble(const struct attn_program *program,
                                    const char *arch, rt_kernels kernels,
                                    void **out_data, size_t *out_size) {
    struct strbuf ptx;
    strbuf_init(&ptx, NULL);
    select_kernels(program, kernels, &ptx);
    struct rt_jit_input input = {
        .name = program->info.name,
        .ptx = ptx.data,
        .ptx_size = ptx.length,
        .sources = program->sources,
        .source_count = program->source_count,
        .arch = arch,
    };
    struct attn_status *status = rt_jit_cubin(&input, out_data, out_size);
    strbuf_destroy(&ptx);
    return status;
}

/* Reads the cubin from the disk, or makes and stores it. */
static struct attn_status *make_cubin(const struct attn_program *program,
                                      struct rt_cubin *cubin) {
    struct rt_key key = {0};
    if (program->cache_folder != NULL) {
        struct strbuf stored;
        strbuf_init(&stored, NULL);
        key = cubin_key(program, cubin->arch, cubin->kernels);
        bool found = rt_cache_read(program->cache_folder, key, &stored) &&
                     stored.length > 0;
        cubin->size = stored.length;
        cubin->data = found ? strbuf_take(&stored) : NULL;
        strbuf_destroy(&stored);
        if (found)
            return NULL;
    }
    RT_TRY(assemble(program, cubin->arch, cubin->kernels, &cubin->data,
                    &cubin->size));
    if (program->cache_folder !=
        NULL) /* a full disk costs time next run, nothing else */
        attn_status_destroy(rt_cache_write(program->cache_folder, key,
                                           cubin->data, cubin->size));
    return NULL;
}

/* With the lock held; NULL when it is not in memory. */
static const struct rt_cubin *recall_cubin(const struct attn_program *program,
                                           const char *arch,
                                           rt_kernels kernels) {
    const struct rt_cubin *cubin = program->cubins;
    while (cubin != NULL &&
           (cubin->kernels != kernels || strcmp(cubin->arch, arch) != 0))
        cubin = cubin->next;
    return cubin;
}

/* With the lock held.  Two threads that want the same cubin make it once. */
static struct attn_status *find_cubin(struct attn_program *program,
                                      const char *arch, rt_kernels wanted,
                                      const struct rt_cubin **out_cubin) {
    /* Kernel by kernel only where not every call runs all of them. */
    if (rt_conditional_count(&program->info) == 0)
        wanted = RT_KERNELS_ALL;
    *out_cubin = recall_cubin(program, arch, RT_KERNELS_ALL);
    if (*out_cubin == NULL)
        *out_cubin = recall_cubin(program, arch, wanted);
    if (*out_cubin != NULL)
        return NULL;
    struct rt_cubin *cubin = calloc(1, sizeof *cubin);
    if (cubin == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY, "out of memory for a cubin");
    memcpy(cubin->arch, arch, strlen(arch) + 1);
    cubin->kernels = wanted;
    struct attn_status *status = make_cubin(program, cubin);
    if (status != NULL) {
        free(cubin);
        return status;
    }
    cubin->next = program->cubins;
    program->cubins = cubin;
    *out_cubin = cubin;
    return NULL;
}

struct attn_status *rt_program_cubin(struct attn_program *program,
                                     const char *arch, rt_kernels wanted,
                                     const struct rt_cubin **out_cubin) {
    if (strncmp(arch, "sm_", 3) != 0 ||
        strlen(arch) >= sizeof(*out_cubin)->arch)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "'%.40s' is no architecture (like sm_90)", arch);
    pthread_mutex_lock(&program->lock);
    struct attn_status *status = find_cubin(program, arch, wanted, out_cubin);
    pthread_mutex_unlock(&program->lock);
    return status;
}

struct attn_status *attn_program_cubin(struct attn_program *program,
                                       const char *arch, const void **out_data,
                                       size_t *out_size) {
    const struct rt_cubin *cubin = NULL;
    if (arch == NULL)
        arch = program->info.target;
    RT_TRY(rt_program_cubin(program, arch, RT_KERNELS_ALL, &cubin));
    *out_data = cubin->data;
    *out_size = cubin->size;
    return NULL;
}
