/* The launcher's view of the kernels: parameters in the order of the PTX entry,
 * grids, and one workspace in which the buffers of all kernels lie one after
 * the other, 256-byte aligned. */
#include "backends/ptx/info.h"

#include <stdlib.h>
#include <string.h>

#include "backends/ptx/place.h"
#include "support/vec.h"

enum { WORKSPACE_ALIGN = 256 };

/* ---- Names -------------------------------------------------------------- */

static int find_size(const char *name) {
    for (int i = 0; i < SIZE_COUNT; i++)
        if (strcmp(size_name_text((enum size_name)i), name) == 0)
            return i;
    return -1;
}

static int find_scalar(const struct kernel_info *info, const char *name) {
    for (size_t i = 0; i < info->scalar_count; i++)
        if (strcmp(info->scalars[i].name, name) == 0)
            return (int)i;
    return -1;
}

static int find_tensor(const struct kernel_info *info, const char *name,
                       size_t begin, size_t end) {
    for (size_t i = begin; i < end && i < info->tensor_count; i++)
        if (strcmp(info->tensors[i].name, name) == 0)
            return (int)i;
    return -1;
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* ---- Size expressions --------------------------------------------------- */

static bool push_word(struct arena *arena, const struct kernel_info *info,
                      const char *word, struct size_expr *out) {
    char *end;
    long long number = strtoll(word, &end, 10);
    if (end != word && *end == '\0') {
        size_expr_push(arena, out, SIZE_OP_CONST, number);
        return true;
    }
    int size = find_size(word);
    if (size >= 0) {
        size_expr_push(arena, out, SIZE_OP_SIZE, size);
        return true;
    }
    if (starts_with(word, "param:")) {
        int scalar = find_scalar(info, word + strlen("param:"));
        if (scalar >= 0)
            size_expr_push(arena, out, SIZE_OP_PARAM, scalar);
        return scalar >= 0;
    }
    for (int op = SIZE_OP_SM_COUNT; op < SIZE_OP_COUNT; op++)
        if (strcmp(size_op_text((enum size_op)op), word) == 0) {
            size_expr_push(arena, out, (enum size_op)op, 0);
            return true;
        }
    return false;
}

const char *info_expression(struct arena *arena, const struct kernel_info *info,
                            const char *const *words, size_t count,
                            struct size_expr *out) {
    *out = (struct size_expr){0};
    for (size_t i = 0; i < count; i++)
        if (!push_word(arena, info, words[i], out))
            return words[i];
    return NULL;
}

/* ---- Workspace ---------------------------------------------------------- */

struct buffer {
    int number; /* N of "workspace:N" */
    struct size_expr offset;
};

struct build {
    struct arena *arena;
    struct kernel_info *info;
    struct diag_sink *sink;
    VEC(struct buffer) buffers;
    VEC(struct kernel_tensor_map) maps;
    bool failed;
};

static void build_error(struct build *build, MlirOperation func,
                        const char *what, const char *name) {
    build->failed = true;
    ptx_error_at(build->sink, func,
                 arena_printf(build->arena, "kernel '%s': %s '%s'",
                              ir_func_name(func), what, name));
}

static struct buffer *find_buffer(struct build *build, int number) {
    for (size_t i = 0; i < build->buffers.count; i++)
        if (build->buffers.data[i].number == number)
            return &build->buffers.data[i];
    return NULL;
}

/* Appends a buffer behind those known so far. */
static void add_buffer(struct build *build, MlirOperation func, size_t arg,
                       int number) {
    struct arena *arena = build->arena;
    size_t count;
    const char **words = ir_words(
        arena, ir_func_arg_attr(func, arg, "attn.workspace_bytes"), &count);
    struct size_expr bytes;
    if (!words || count == 0)
        return;
    const char *unknown =
        info_expression(arena, build->info, words, count, &bytes);
    if (unknown) {
        build_error(build, func,
                    "unknown word in attn.workspace_bytes:", unknown);
        return;
    }
    struct buffer buffer = {number, {0}};
    struct size_expr *end = &build->info->workspace_bytes;
    size_expr_append(arena, &buffer.offset, end);
    /* end = end + ceildiv(bytes, 256) * 256 */
    if (end->count == 0)
        size_expr_push(arena, end, SIZE_OP_CONST, 0);
    if (buffer.offset.count == 0)
        size_expr_push(arena, &buffer.offset, SIZE_OP_CONST, 0);
    size_expr_append(arena, end, &bytes);
    size_expr_push(arena, end, SIZE_OP_CONST, WORKSPACE_ALIGN);
    size_expr_push(arena, end, SIZE_OP_CEILDIV, 0);
    size_expr_push(arena, end, SIZE_OP_CONST, WORKSPACE_ALIGN);
    size_expr_push(arena, end, SIZE_OP_MUL, 0);
    size_expr_push(arena, end, SIZE_OP_ADD, 0);
    vec_push(arena, &build->buffers, buffer);
}

/* The buffers that must start at zero, or the others. */
static void collect_buffers(struct build *build, MlirOperation func,
                            bool zeroed) {
    for (size_t i = 0; i < ir_func_arg_count(func); i++) {
        const char *kind = ir_func_arg_kind(func, i);
        bool must_be_zero = !mlirAttributeIsNull(
            ir_func_arg_attr(func, i, "attn.workspace_zeroed"));
        if (!kind || !starts_with(kind, "workspace:") || must_be_zero != zeroed)
            continue;
        int number = atoi(kind + strlen("workspace:"));
        if (!find_buffer(build, number))
            add_buffer(build, func, i, number);
    }
}

/* ---- Parameters --------------------------------------------------------- */

typedef VEC(struct kernel_param) param_list;

static void add_param(struct build *build, param_list *params,
                      enum kernel_param_kind kind, int index, int axis) {
    vec_push(build->arena, params,
             (struct kernel_param){.kind = kind, .index = index, .axis = axis});
}

/* Number of the tensor that an argument of this kind passes, -1: none. */
static int tensor_number(const struct kernel_info *info, const char *kind) {
    static const char *const fixed[] = {"q", "k", "v", "o", "lse"};
    if (starts_with(kind, "tensor:"))
        return find_tensor(info, kind + strlen("tensor:"),
                           KERNEL_TENSOR_CAPTURED, info->tensor_count);
    for (int i = 0; i < KERNEL_TENSOR_CAPTURED; i++)
        if (strcmp(fixed[i], kind) == 0)
            return i;
    return -1;
}

static void add_tensor(struct build *build, MlirOperation func, size_t arg,
                       const char *kind, param_list *params) {
    bool captured = starts_with(kind, "tensor:");
    int tensor = tensor_number(build->info, kind);
    if (tensor < 0) {
        build_error(build, func, "unknown tensor", kind);
        return;
    }
    MlirType type = mlirValueGetType(ir_func_arg(func, arg));
    int rank = ir_rank(type);
    int strides = ir_extent(type, rank - 1) > 0 ? rank - 1 : rank;
    add_param(build, params, KERNEL_PARAM_POINTER, tensor, 0);
    for (int axis = 0; captured && axis < rank; axis++)
        add_param(build, params, KERNEL_PARAM_EXTENT, tensor, axis);
    for (int axis = 0; axis < strides; axis++)
        add_param(build, params, KERNEL_PARAM_STRIDE, tensor, axis);
}

static void add_workspace(struct build *build, MlirOperation func,
                          const char *kind, param_list *params) {
    struct buffer *buffer =
        find_buffer(build, atoi(kind + strlen("workspace:")));
    if (!buffer) {
        build_error(build, func, "no attn.workspace_bytes for", kind);
        return;
    }
    add_param(build, params, KERNEL_PARAM_WORKSPACE, buffer->number, 0);
    params->data[params->count - 1].offset_expr = buffer->offset;
}

static void add_argument(struct build *build, MlirOperation func, size_t arg,
                         param_list *params) {
    const char *kind = ir_func_arg_kind(func, arg);
    if (starts_with(kind, "size:")) {
        int size = find_size(kind + strlen("size:"));
        if (size < 0)
            build_error(build, func, "unknown size", kind);
        add_param(build, params, KERNEL_PARAM_SIZE, size, 0);
    } else if (starts_with(kind, "param:")) {
        int scalar = find_scalar(build->info, kind + strlen("param:"));
        if (scalar < 0)
            build_error(build, func, "unknown parameter", kind);
        add_param(build, params, KERNEL_PARAM_SCALAR, scalar, 0);
    } else if (starts_with(kind, "workspace:")) {
        add_workspace(build, func, kind, params);
    } else {
        add_tensor(build, func, arg, kind, params);
    }
}

/* The tensor maps of a kernel, one for each tensor and box; its first
 * parameters. */
static void add_maps(struct build *build, MlirOperation func,
                     const struct ptx_kernel *kernel, param_list *params) {
    struct kernel_info *info = build->info;
    for (size_t i = 0; i < kernel->maps.count; i++) {
        const struct ptx_tensor_map *map = &kernel->maps.data[i];
        const char *kind = ir_func_arg_kind(func, (size_t)map->argument);
        vec_push(build->arena, &build->maps,
                 (struct kernel_tensor_map){
                     .tensor = tensor_number(info, kind),
                     .box_rows = map->box_rows,
                     .panel_columns = map->swizzle_bytes / 2,
                     .panels = map->panels,
                     .swizzle_bytes = map->swizzle_bytes,
                     .heads = map->heads,
                 });
        add_param(build, params, KERNEL_PARAM_TENSOR_MAP,
                  (int)build->maps.count - 1, 0);
    }
    info->tensor_maps = build->maps.data;
    info->tensor_map_count = build->maps.count;
}

static void build_entry(struct build *build, MlirOperation func,
                        const struct ptx_kernel *kernel,
                        struct kernel_entry *out) {
    param_list params = {0};
    add_maps(build, func, kernel, &params);
    for (size_t i = 0; i < ir_func_arg_count(func); i++)
        add_argument(build, func, i, &params);
    if (!build->failed && params.count != kernel->params.count)
        ir_ice(func, "ptx: parameters of the entry and of kernel_info differ");
    *out = (struct kernel_entry){
        .name = kernel->name,
        .params = params.data,
        .param_count = params.count,
        .threads = kernel->threads,
        .shared_bytes = kernel->shared_bytes,
        .conditional = ir_has_attr(func, "attn.when"),
        .programmatic = ir_has_attr(func, "attn.programmatic"),
    };
    size_t count = 0;
    const char **words = ir_words(
        build->arena,
        mlirOperationGetAttributeByName(func, ir_ref("attn.grid")), &count);
    const char *unknown =
        info_expression(build->arena, build->info, words, count, &out->grid_x);
    if (unknown)
        build_error(build, func, "unknown word in attn.grid:", unknown);
}

bool info_build(struct arena *arena, const MlirOperation *funcs,
                struct ptx_kernel *const *kernels, size_t count,
                const struct ptx_target *target, struct kernel_info *info,
                struct diag_sink *sink) {
    struct build build = {.arena = arena, .info = info, .sink = sink};
    info->target = target->name;
    info->workspace_bytes = (struct size_expr){0};
    info->workspace_zeroed = (struct size_expr){0};
    for (size_t i = 0; i < count; i++)
        collect_buffers(&build, funcs[i], true);
    size_expr_append(arena, &info->workspace_zeroed, &info->workspace_bytes);
    for (size_t i = count; i-- > 0;) /* the tile of the first main kernel */
        if (strcmp(ir_kernel_kind(funcs[i]), "main") == 0)
            ir_kernel_tile(funcs[i], &info->tile_m, &info->tile_n);
    for (size_t i = 0; i < count; i++)
        collect_buffers(&build, funcs[i], false);
    info->entries = ARENA_NEW_ARRAY(arena, struct kernel_entry, count);
    info->entry_count = count;
    for (size_t i = 0; i < count; i++)
        build_entry(&build, funcs[i], kernels[i], &info->entries[i]);
    return !build.failed;
}
