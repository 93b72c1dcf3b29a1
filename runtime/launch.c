/* From checked arguments to cuLaunchKernel(Ex).  No allocation, no
 * synchronisation and no query of the device happens here, so a launch can be
 * captured in a graph.  A kernel that is not loaded yet is only told of. */
#include "runtime/launch.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- The frame --------------------------------------------------------- */

static size_t align_up(size_t value, size_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Where the parameters of an entry end that start at `start`. */
static size_t entry_end(const struct kernel_entry *entry, size_t start) {
    size_t end = start;
    for (size_t p = 0; p < entry->param_count; p++)
        end = align_up(end, kernel_param_align(entry->params[p].kind)) +
              kernel_param_size(entry->params[p].kind);
    return end;
}

struct frame_layout {
    size_t tensors, scalars, grids, pointers, storage, storage_bytes, end;
};

/* Where each part of a frame lies.  Parameters of an entry start at a multiple
 * of 64, the largest alignment that one can ask for. */
static struct frame_layout lay_out(const struct kernel_info *info) {
    struct frame_layout at = {0};
    size_t params = 0;
    for (size_t e = 0; e < info->entry_count; e++) {
        params += info->entries[e].param_count;
        at.storage_bytes =
            entry_end(&info->entries[e], align_up(at.storage_bytes, 64));
    }
    at.tensors = align_up(sizeof(struct rt_frame), 16);
    at.pointers = align_up(
        at.tensors + info->tensor_count * sizeof(struct rt_tensor), 16);
    at.scalars = at.pointers + params * sizeof(void *);
    at.grids = at.scalars + info->scalar_count * sizeof(uint32_t);
    at.storage = align_up(at.grids + info->entry_count * sizeof(unsigned),
                          RT_FRAME_ALIGN);
    at.end = align_up(at.storage + at.storage_bytes, RT_FRAME_ALIGN);
    return at;
}

struct attn_status *rt_frame_size(const struct kernel_info *info,
                                  size_t *out_bytes) {
    for (size_t e = 0; e < info->entry_count; e++) {
        size_t bytes = entry_end(&info->entries[e], 0);
        if (bytes > RT_ENTRY_MAX_BYTES)
            return RT_FAIL(
                ATTN_INVALID_ARGUMENT,
                "kernel '%s' takes %zu bytes of parameters, the limit is %d",
                info->entries[e].name, bytes, RT_ENTRY_MAX_BYTES);
    }
    *out_bytes = lay_out(info).end;
    if (*out_bytes > RT_FRAME_MAX)
        return RT_FAIL(
            ATTN_INVALID_ARGUMENT,
            "attention '%s' has arguments of %zu bytes in all, the limit is %d",
            info->name, *out_bytes, RT_FRAME_MAX);
    return NULL;
}

struct rt_frame *rt_frame_init(const struct rt_kernel *kernel, void *memory) {
    struct frame_layout at = lay_out(kernel->info);
    unsigned char *base = memory;
    struct rt_frame *frame = memory;
    *frame = (struct rt_frame){
        .call = {.tensors = (struct rt_tensor *)(base + at.tensors),
                 .scalars = (uint32_t *)(base + at.scalars)},
        .grids = (unsigned *)(base + at.grids),
        .pointers = (void **)(base + at.pointers),
        .storage = base + at.storage,
        .storage_bytes = at.storage_bytes,
    };
    return frame;
}

/* ---- Tensor maps ------------------------------------------------------- */

static int swizzle_code(int bytes) {
    return bytes == 128 ? 3 : bytes == 64 ? 2 : 1;
}

/* Encodes map `index` into 128 bytes: 5-D {panel columns, rows, panels, heads,
 * batch}, or with packed heads {panel columns, heads, rows, panels, batch}, so
 * that one copy fills all swizzled panels.  Axes of extent 1 get the stride
 * that a compact tensor would have, for the driver takes no stride of 0 there.
 */
static struct attn_status *encode_map(const struct rt_kernel *kernel, int index,
                                      const struct rt_call *call,
                                      void *out_map) {
    const struct kernel_tensor_map *map = &kernel->info->tensor_maps[index];
    const struct kernel_tensor *tensor = &kernel->info->tensors[map->tensor];
    const struct rt_tensor *given = &call->tensors[map->tensor];
    const struct rt_tensor *source =
        given->empty ? &call->tensors[KERNEL_TENSOR_Q] : given;
    uint64_t element = scalar_type_size(tensor->type);
    uint64_t extents[5] = {(uint64_t)map->panel_columns}, strides[5] = {0};
    uint64_t compact = (uint64_t)given->extents[3] * element;
    const int *axis_of = kernel_map_axes(map);
    for (int i = 1; i < 5; i++) {
        int axis = axis_of[i];
        int64_t extent = axis >= 0 ? given->extents[axis]
                                   : given->extents[3] / map->panel_columns;
        /* A tensor without elements (kv_len 0) is never copied from, but must
         * encode. */
        extents[i] = extent > 0 ? (uint64_t)extent : 1;
        int64_t stride = axis >= 0 && !given->empty ? given->strides[axis] : 0;
        if (axis < 0)
            strides[i] = (uint64_t)map->panel_columns * element;
        else
            strides[i] = stride != 0 ? (uint64_t)stride * element : compact;
        if (axis >= 0 && stride == 0 && given->extents[axis] > 1)
            strides[i] = 0; /* broadcast on purpose; the driver decides */
        if (stride < 0 || strides[i] >= (uint64_t)1 << 40)
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "tensor '%s' has stride %" PRId64
                           " on axis %d, which a TMA tensor map "
                           "cannot hold (0 to 2^40 bytes)",
                           tensor->name, stride, axis);
        compact *= axis >= 0 ? extents[i] : 1;
    }
    uint32_t box[5];
    for (int i = 0; i < 5; i++)
        box[i] = (uint32_t)kernel_map_box(map, axis_of[i]);
    uint32_t ones[5] = {1, 1, 1, 1, 1};
    int type = tensor->type == SCALAR_BF16 ? RT_TENSOR_MAP_BFLOAT16
                                           : RT_TENSOR_MAP_FLOAT16;
    struct attn_status *status =
        RT_CUDA(kernel->driver, cuTensorMapEncodeTiled,
                (out_map, type, 5, (void *)(uintptr_t)source->address, extents,
                 strides + 1, box, ones, 0, swizzle_code(map->swizzle_bytes),
                 RT_TENSOR_MAP_L2_128B, 0));
    if (status != NULL)
        status = rt_status_wrap(status, "tensor map of '%s': ", tensor->name);
    return status;
}

/* ---- Packing ----------------------------------------------------------- */

static struct attn_status *pack_workspace(const struct rt_call *call,
                                          const struct kernel_param *param,
                                          const struct attn_args *args,
                                          uint64_t *out_value) {
    int64_t offset = 0;
    if (!size_expr_eval(&param->offset_expr, &call->env, &offset) ||
        offset < 0 || (uint64_t)offset > args->workspace_bytes)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "a workspace offset is out of range with these "
                       "arguments");
    *out_value = (uint64_t)(uintptr_t)args->workspace + (uint64_t)offset;
    return NULL;
}

/* Writes one parameter in the form that the PTX .param declares. */
static struct attn_status *pack_param(const struct rt_kernel *kernel,
                                      const struct kernel_param *param,
                                      const struct attn_args *args,
                                      const struct rt_call *call, void *out) {
    uint64_t wide = 0;
    uint32_t narrow = 0;
    switch (param->kind) {
    case KERNEL_PARAM_POINTER:
        wide = call->tensors[param->index].address;
        break;
    case KERNEL_PARAM_STRIDE:
        wide = (uint64_t)call->tensors[param->index].strides[param->axis];
        break;
    case KERNEL_PARAM_EXTENT:
        narrow = (uint32_t)call->tensors[param->index].extents[param->axis];
        break;
    case KERNEL_PARAM_SIZE:
        narrow = (uint32_t)call->env.sizes[param->index];
        break;
    case KERNEL_PARAM_SCALAR:
        narrow = call->scalars[param->index];
        break;
    case KERNEL_PARAM_WORKSPACE:
        RT_TRY(pack_workspace(call, param, args, &wide));
        break;
    case KERNEL_PARAM_TENSOR_MAP:
        return encode_map(kernel, param->index, call, out);
    }
    if (kernel_param_size(param->kind) == 8)
        memcpy(out, &wide, sizeof wide);
    else
        memcpy(out, &narrow, sizeof narrow);
    return NULL;
}

/* A grid of 0 is legal: the entry has nothing to do. */
static struct attn_status *find_grid(const struct rt_call *call,
                                     const struct kernel_entry *entry,
                                     unsigned *out_grid) {
    int64_t grid = 0;
    if (!size_expr_eval(&entry->grid_x, &call->env, &grid) || grid < 0 ||
        grid > INT32_MAX)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "kernel '%s' would need %" PRId64
                       " CTAs with these sizes, expected 0 to "
                       "%d",
                       entry->name, grid, INT32_MAX);
    *out_grid = (unsigned)grid;
    return NULL;
}

/* No workspace is fine where none is needed. */
static struct attn_status *check_workspace(const struct rt_kernel *kernel,
                                           const struct attn_args *args,
                                           const struct rt_call *call) {
    uint64_t bytes = 0, zeroed = 0;
    RT_TRY(rt_call_workspace(&kernel->contract, call, &bytes, &zeroed));
    if (bytes == 0)
        return NULL;
    if (args->workspace == NULL || args->workspace_bytes < bytes)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "the workspace has %zu bytes, expected %" PRIu64
                       " (attn_workspace_size)",
                       args->workspace != NULL ? args->workspace_bytes : 0,
                       bytes);
    if ((uintptr_t)args->workspace % RT_WORKSPACE_ALIGN != 0)
        return RT_FAIL(
            ATTN_INVALID_ARGUMENT,
            "the workspace starts at %p, expected a multiple of %d bytes",
            args->workspace, RT_WORKSPACE_ALIGN);
    return NULL;
}

struct attn_status *rt_frame_find_grids(const struct rt_kernel *kernel,
                                        struct rt_frame *frame) {
    const struct kernel_info *info = kernel->info;
    for (size_t e = 0; e < info->entry_count && !frame->call.nothing; e++)
        RT_TRY(find_grid(&frame->call, &info->entries[e], &frame->grids[e]));
    return NULL;
}

struct attn_status *rt_frame_prepare(const struct rt_kernel *kernel,
                                     const struct attn_args *args,
                                     struct rt_frame *frame) {
    const struct kernel_info *info = kernel->info;
    RT_TRY(rt_call_check(&kernel->contract, args, true, &frame->call));
    if (frame->call.nothing)
        return NULL;
    RT_TRY(check_workspace(kernel, args, &frame->call));
    RT_TRY(rt_frame_find_grids(kernel, frame));
    /* All entries are packed before the first is launched: a fault in the
     * second must not leave half a call behind. */
    size_t offset = 0;
    void **pointer = frame->pointers;
    for (size_t e = 0; e < info->entry_count; e++) {
        const struct kernel_entry *entry = &info->entries[e];
        offset = align_up(offset, 64);
        for (size_t p = 0; p < entry->param_count; p++) {
            const struct kernel_param *param = &entry->params[p];
            offset = align_up(offset, kernel_param_align(param->kind));
            *pointer = frame->storage + offset;
            if (frame->grids[e] > 0)
                RT_TRY(pack_param(kernel, param, args, &frame->call, *pointer));
            offset += kernel_param_size(param->kind);
            pointer++;
        }
    }
    return NULL;
}

/* ---- Launching --------------------------------------------------------- */

/* A programmatic kernel may begin while the work before it on the stream ends;
 * what it reads it waits for itself. */
static struct attn_status *
launch_entry(const struct rt_driver *driver, const struct rt_entry *entry,
             unsigned grid, struct CUstream_st *stream, void **pointers) {
    if (!entry->programmatic || driver->cuLaunchKernelEx == NULL)
        return RT_CUDA(driver, cuLaunchKernel,
                       (entry->function, grid, 1, 1, entry->threads, 1, 1,
                        entry->shared_bytes, stream, pointers, NULL));
    struct rt_launch_attribute attribute = {
        .id = RT_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION, .value.allowed = 1};
    const struct rt_launch_config config = {.grid = {grid, 1, 1},
                                            .block = {entry->threads, 1, 1},
                                            .shared_bytes = entry->shared_bytes,
                                            .stream = stream,
                                            .attributes = &attribute,
                                            .attribute_count = 1};
    return RT_CUDA(driver, cuLaunchKernelEx,
                   (&config, entry->function, pointers, NULL));
}

/* An entry whose grid is empty has parameters too: they are stepped over. */
static struct attn_status *launch_entries(const struct rt_kernel *kernel,
                                          const struct rt_frame *frame,
                                          struct CUstream_st *stream) {
    void **pointers = frame->pointers;
    for (size_t e = 0; e < kernel->info->entry_count; e++) {
        if (frame->grids[e] > 0) {
            const struct rt_entry *entry = rt_kernel_entry(kernel, e);
            assert(entry != NULL);
            struct attn_status *status = launch_entry(
                kernel->driver, entry, frame->grids[e], stream, pointers);
            if (status != NULL)
                return rt_status_wrap(
                    status, "kernel '%s': ", kernel->info->entries[e].name);
        }
        pointers += kernel->info->entries[e].param_count;
    }
    return NULL;
}

struct attn_status *rt_frame_launch(const struct rt_kernel *kernel,
                                    const struct rt_frame *frame,
                                    struct CUstream_st *stream) {
    bool pushed = false;
    if (frame->call.nothing)
        return NULL;
    RT_TRY(rt_context_enter(kernel->driver, kernel->context, &pushed));
    struct attn_status *status = launch_entries(kernel, frame, stream);
    rt_context_leave(kernel->driver, pushed);
    return status;
}

bool rt_frame_lacks_entry(const struct rt_kernel *kernel,
                          const struct rt_frame *frame, size_t *out_index) {
    const struct kernel_info *info = kernel->info;
    for (size_t e = 0; e < info->entry_count && !frame->call.nothing; e++)
        if (frame->grids[e] > 0 && rt_kernel_entry(kernel, e) == NULL) {
            *out_index = e;
            return true;
        }
    return false;
}

struct attn_status *rt_workspace_size(const struct rt_kernel *kernel,
                                      const struct attn_args *args,
                                      struct rt_frame *frame,
                                      uint64_t *out_bytes,
                                      uint64_t *out_zeroed) {
    RT_TRY(rt_call_check(&kernel->contract, args, false, &frame->call));
    return rt_call_workspace(&kernel->contract, &frame->call, out_bytes,
                             out_zeroed);
}

struct attn_status *rt_workspace_clear(const struct rt_kernel *kernel,
                                       const struct attn_args *args,
                                       struct rt_frame *frame,
                                       struct CUstream_st *stream) {
    uint64_t bytes = 0, zeroed = 0;
    bool pushed = false;
    RT_TRY(rt_workspace_size(kernel, args, frame, &bytes, &zeroed));
    RT_TRY(check_workspace(kernel, args, &frame->call));
    if (zeroed == 0)
        return NULL;
    RT_TRY(rt_context_enter(kernel->driver, kernel->context, &pushed));
    struct attn_status *status =
        RT_CUDA(kernel->driver, cuMemsetD8Async,
                ((uint64_t)(uintptr_t)args->workspace, 0, zeroed, stream));
    rt_context_leave(kernel->driver, pushed);
    return status;
}
