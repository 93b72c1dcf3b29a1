/* Packs parameters of kernel entries and launches them in order. */
#include "emulator/attention.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/report.h"
#include "support/arena.h"

enum { MAX_PARAM_BYTES = 4096, DEFAULT_SM_COUNT = 4 };

struct session {
    const struct emu_attention *call;
    struct emu_memory *memory;
    struct emu_module *module;
    struct arena *arena;
    struct size_env env;
    uint64_t *addresses; /* of tensors */
    uint64_t workspace;
    int64_t workspace_bytes, workspace_zeroed;
    struct emu_error *error;
};

static bool fail(struct session *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool fail(struct session *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(s->error->text, sizeof s->error->text, format, args);
    va_end(args);
    return false;
}

/* Outputs start uninitialised on the device. */
static bool is_output(size_t tensor) {
    return tensor == KERNEL_TENSOR_O || tensor == KERNEL_TENSOR_LSE;
}

/* Every tensor becomes one allocation, so that a step beyond it is a fault. */
static bool upload(struct session *s) {
    const struct kernel_info *info = s->call->info;
    s->addresses = ARENA_NEW_ARRAY(s->arena, uint64_t, info->tensor_count);
    for (size_t i = 0; i < info->tensor_count; i++) {
        const struct emu_tensor *t = &s->call->tensors[i];
        if (!t->data)
            continue;
        s->addresses[i] =
            emu_memory_allocate(s->memory, t->bytes, info->tensors[i].name);
        if (!s->addresses[i])
            return fail(s, "no memory for tensor '%s'", info->tensors[i].name);
        if (!is_output(i))
            emu_memory_write(s->memory, s->addresses[i], t->data, t->bytes);
    }
    return true;
}

/* The zeroed part holds tile counters; the rest is what the kernels must write
 * before they read it. */
static bool allocate_workspace(struct session *s) {
    const struct kernel_info *info = s->call->info;
    if (!size_expr_eval(&info->workspace_bytes, &s->env, &s->workspace_bytes) ||
        !size_expr_eval(&info->workspace_zeroed, &s->env,
                        &s->workspace_zeroed) ||
        s->workspace_bytes < 0 || s->workspace_zeroed > s->workspace_bytes)
        return fail(s, "the workspace size of '%s' cannot be computed",
                    info->name);
    s->workspace =
        emu_memory_allocate(s->memory, (size_t)s->workspace_bytes, "workspace");
    if (!s->workspace)
        return fail(s, "no memory for a workspace of %lld bytes",
                    (long long)s->workspace_bytes);
    void *zeros = arena_alloc(s->arena, (size_t)s->workspace_zeroed);
    return emu_memory_write(s->memory, s->workspace, zeros,
                            (size_t)s->workspace_zeroed);
}

/* ---- parameters -------------------------------------------------------- */

/* 5-D {panel columns, rows, panels, heads, batch} or, packed, {panel columns,
 * heads, rows, panels, batch}, as the runtime encodes it: axes of extent 1 get
 * the stride of a compact tensor. */
static bool encode_map(struct session *s, int index, uint8_t out[128]) {
    const struct kernel_tensor_map *map = &s->call->info->tensor_maps[index];
    const struct emu_tensor *t = &s->call->tensors[map->tensor];
    enum scalar_type type = s->call->info->tensors[map->tensor].type;
    uint64_t element = scalar_type_size(type),
             compact = (uint64_t)t->extents[3] * element;
    const int *axis_of = kernel_map_axes(map);
    uint64_t extents[5] = {(uint64_t)map->panel_columns}, strides[5] = {0};
    for (int i = 1; i < 5; i++) {
        int axis = axis_of[i];
        extents[i] = (uint64_t)(axis >= 0 ? t->extents[axis]
                                          : t->extents[3] / map->panel_columns);
        extents[i] = extents[i] > 0 ? extents[i] : 1;
        uint64_t stride = axis >= 0 && t->extents[axis] > 1
                              ? (uint64_t)t->strides[axis] * element
                              : compact;
        strides[i] = axis < 0 ? (uint64_t)map->panel_columns * element : stride;
        compact *= axis >= 0 ? extents[i] : 1;
    }
    uint32_t box[5];
    for (int i = 0; i < 5; i++)
        box[i] = (uint32_t)kernel_map_box(map, axis_of[i]);
    uint32_t ones[5] = {1, 1, 1, 1, 1};
    return emu_tensor_map_encode(
        out, type == SCALAR_BF16 ? EMU_TENSOR_BFLOAT16 : EMU_TENSOR_FLOAT16, 5,
        s->addresses[map->tensor], extents, strides + 1, box, ones,
        map->swizzle_bytes == 128  ? EMU_SWIZZLE_128B
        : map->swizzle_bytes == 64 ? EMU_SWIZZLE_64B
                                   : EMU_SWIZZLE_32B,
        false, s->error);
}

/* One parameter in the form that the PTX .param list declares. */
static bool pack_param(struct session *s, const struct kernel_param *param,
                       uint8_t *out) {
    const struct emu_tensor *t = &s->call->tensors[param->index];
    uint64_t wide = 0;
    int64_t offset = 0;
    switch (param->kind) {
    case KERNEL_PARAM_POINTER:
        wide = s->addresses[param->index];
        break;
    case KERNEL_PARAM_STRIDE:
        if (t->data && t->extents[param->axis] > 1)
            wide = (uint64_t)t->strides[param->axis];
        break;
    case KERNEL_PARAM_EXTENT:
        wide = (uint32_t)t->extents[param->axis];
        break;
    case KERNEL_PARAM_SIZE:
        wide = (uint32_t)s->env.sizes[param->index];
        break;
    case KERNEL_PARAM_SCALAR:
        wide = s->call->scalars[param->index];
        break;
    case KERNEL_PARAM_WORKSPACE:
        if (!size_expr_eval(&param->offset_expr, &s->env, &offset) ||
            offset < 0 || offset > s->workspace_bytes)
            return fail(s, "a workspace offset is out of range");
        wide = s->workspace + (uint64_t)offset;
        break;
    case KERNEL_PARAM_TENSOR_MAP:
        return encode_map(s, param->index, out);
    }
    memcpy(out, &wide, kernel_param_size(param->kind));
    return true;
}

/* ---- launching --------------------------------------------------------- */

/* Reports move into the total's storage, the session's arena. */
static void add_result(struct session *s, struct emu_result *total,
                       struct emu_result *part) {
    size_t count = total->report_count + part->report_count;
    struct emu_report *reports =
        ARENA_NEW_ARRAY(s->arena, struct emu_report, count);
    if (total->report_count)
        memcpy(reports, total->reports, total->report_count * sizeof *reports);
    for (size_t i = 0; i < part->report_count; i++)
        reports[total->report_count + i] =
            emu_report_copy(s->arena, &part->reports[i]);
    total->reports = reports;
    total->report_count = count;
    total->seconds += part->seconds;
    emu_counters_add(&total->counters, &part->counters);
    emu_result_destroy(part);
}

/* Parameters lie at their natural alignment, as in the PTX .param list. */
static bool launch_entry(struct session *s, const struct kernel_entry *entry,
                         const struct emu_options *options,
                         struct emu_result *total) {
    uint8_t params[MAX_PARAM_BYTES];
    size_t end = 0;
    int64_t grid = 0;
    memset(params, 0, sizeof params);
    if (!size_expr_eval(&entry->grid_x, &s->env, &grid) || grid < 0 ||
        grid > INT32_MAX)
        return fail(s, "the grid of '%s' cannot be computed", entry->name);
    if (grid == 0)
        return true;
    for (size_t i = 0; i < entry->param_count; i++) {
        size_t align = kernel_param_align(entry->params[i].kind);
        end = (end + align - 1) / align * align;
        if (end + kernel_param_size(entry->params[i].kind) > MAX_PARAM_BYTES)
            return fail(s, "'%s' has more than %d bytes of parameters",
                        entry->name, MAX_PARAM_BYTES);
        if (!pack_param(s, &entry->params[i], params + end))
            return false;
        end += kernel_param_size(entry->params[i].kind);
    }
    struct emu_launch launch = {.entry = entry->name,
                                .grid = {(uint32_t)grid, 1, 1},
                                .block = {(uint32_t)entry->threads, 1, 1},
                                .dynamic_shared = entry->shared_bytes,
                                .params = params,
                                .param_bytes = end};
    struct emu_result part;
    if (!emu_launch(s->module, &launch, options, &part, s->error)) {
        emu_result_destroy(&part);
        return false;
    }
    add_result(s, total, &part);
    return true;
}

/* ---- outputs ----------------------------------------------------------- */

/* Marks the bytes of every element, counting those that no kernel wrote. */
static size_t count_unwritten(struct session *s, size_t tensor,
                              uint8_t *is_element) {
    const struct kernel_tensor *declared = &s->call->info->tensors[tensor];
    const struct emu_tensor *t = &s->call->tensors[tensor];
    size_t element = scalar_type_size(declared->type), unwritten = 0;
    int64_t index[KERNEL_MAX_RANK] = {0}, total = 1;
    for (int axis = 0; axis < declared->rank; axis++)
        total *= t->extents[axis];
    for (int64_t i = 0; i < total; i++) {
        int64_t offset = 0;
        for (int axis = 0; axis < declared->rank; axis++)
            offset += index[axis] * t->strides[axis];
        uint64_t at = (uint64_t)offset * element;
        unwritten += emu_memory_count_uninitialised(
                         s->memory, s->addresses[tensor] + at, element) != 0;
        if (at + element <= t->bytes)
            memset(is_element + at, 1, element);
        for (int axis = declared->rank - 1;
             axis >= 0 && ++index[axis] == t->extents[axis]; axis--)
            index[axis] = 0;
    }
    return unwritten;
}

/* Copies only what was written, so that the caller can tell the rest. */
static void download(struct session *s, size_t tensor, size_t *out_unwritten,
                     size_t *out_beside) {
    const struct emu_tensor *t = &s->call->tensors[tensor];
    uint64_t address = s->addresses[tensor];
    *out_unwritten = *out_beside = 0;
    if (!t->data)
        return;
    uint8_t *is_element = arena_alloc(s->arena, t->bytes);
    uint8_t *bytes = arena_alloc(s->arena, t->bytes);
    *out_unwritten = count_unwritten(s, tensor, is_element);
    emu_memory_read(s->memory, address, bytes, t->bytes);
    for (size_t i = 0; i < t->bytes; i++) {
        if (emu_memory_count_uninitialised(s->memory, address + i, 1))
            continue;
        *out_beside += !is_element[i];
        ((uint8_t *)t->data)[i] = bytes[i];
    }
}

/* Tile counters that a launch left behind would break the next one. */
static size_t count_not_zero(struct session *s) {
    uint8_t *bytes = arena_alloc(s->arena, (size_t)s->workspace_zeroed);
    size_t count = 0;
    emu_memory_read(s->memory, s->workspace, bytes,
                    (size_t)s->workspace_zeroed);
    for (int64_t i = 0; i < s->workspace_zeroed; i++)
        count += bytes[i] != 0;
    return count;
}

static bool run(struct session *s, const struct emu_options *options,
                struct emu_attention_result *result) {
    const struct kernel_info *info = s->call->info;
    s->module = emu_module_create(s->memory, s->call->sources,
                                  s->call->source_count, s->error);
    if (!s->module || !upload(s) || !allocate_workspace(s))
        return false;
    struct emu_options used = *options;
    for (size_t i = 0; i < info->entry_count; i++) {
        used.trace = i + 1 == info->entry_count ? options->trace : NULL;
        if (!launch_entry(s, &info->entries[i], &used, &result->total))
            return false;
    }
    download(s, KERNEL_TENSOR_O, &result->o_unwritten, &result->o_beside);
    download(s, KERNEL_TENSOR_LSE, &result->lse_unwritten, &result->lse_beside);
    result->workspace_not_zero = count_not_zero(s);
    return true;
}

bool emu_attention_run(const struct emu_attention *attention,
                       const struct emu_options *options,
                       struct emu_attention_result *out_result,
                       struct emu_error *out_error) {
    struct session s = {.call = attention,
                        .memory = emu_memory_create(),
                        .arena = arena_create(),
                        .error = out_error};
    *out_result = (struct emu_attention_result){.total.storage = s.arena};
    memcpy(s.env.sizes, attention->sizes, sizeof s.env.sizes);
    s.env.scalars = attention->scalars;
    s.env.scalar_count = attention->info->scalar_count;
    s.env.sm_count =
        attention->sm_count ? attention->sm_count : DEFAULT_SM_COUNT;
    out_error->text[0] = 0;
    bool ok = run(&s, options, out_result);
    emu_module_destroy(s.module);
    emu_memory_destroy(s.memory);
    return ok;
}
