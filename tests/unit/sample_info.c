#include "sample_info.h"

static struct size_expr binary(struct arena *arena, struct size_expr a,
                               enum size_op op, struct size_expr b) {
    size_expr_append(arena, &a, &b);
    size_expr_push(arena, &a, op, 0);
    return a;
}

static struct kernel_tensor tensor4(struct arena *arena, const char *name,
                                    enum scalar_type type, enum size_name heads,
                                    enum size_name length, int head_dim) {
    struct kernel_tensor tensor = {
        .name = name, .type = type, .rank = 4, .used = true};
    tensor.extents[0] = size_expr_size(arena, SIZE_BATCH);
    tensor.extents[1] = size_expr_size(arena, heads);
    tensor.extents[2] = size_expr_size(arena, length);
    tensor.extents[3] = size_expr_constant(arena, head_dim);
    return tensor;
}

static void fill_tensors(struct arena *arena, struct kernel_info *info) {
    info->tensors =
        ARENA_NEW_ARRAY(arena, struct kernel_tensor, SAMPLE_TENSORS);
    info->tensor_count = SAMPLE_TENSORS;
    info->tensors[0] =
        tensor4(arena, "q", SCALAR_BF16, SIZE_HEADS, SIZE_Q_LEN, 64);
    info->tensors[1] =
        tensor4(arena, "k", SCALAR_BF16, SIZE_KV_HEADS, SIZE_KV_LEN, 64);
    info->tensors[2] =
        tensor4(arena, "v", SCALAR_BF16, SIZE_KV_HEADS, SIZE_KV_LEN, 64);
    info->tensors[3] =
        tensor4(arena, "o", SCALAR_BF16, SIZE_HEADS, SIZE_Q_LEN, 64);
    info->tensors[4] =
        tensor4(arena, "lse", SCALAR_F32, SIZE_HEADS, SIZE_Q_LEN, 1);
    info->tensors[4].rank = 3;
    struct size_expr window = {0};
    size_expr_push(arena, &window, SIZE_OP_PARAM, SAMPLE_WINDOW);
    info->tensors[SAMPLE_DOC] = (struct kernel_tensor){
        .name = "doc",
        .type = SCALAR_I32,
        .rank = 2,
        .used = true,
        .extents = {size_expr_size(arena, SIZE_BATCH),
                    binary(arena, size_expr_size(arena, SIZE_KV_LEN),
                           SIZE_OP_ADD,
                           binary(arena, window, SIZE_OP_FLOORDIV,
                                  size_expr_constant(arena, 16)))},
    };
    info->tensors[SAMPLE_UNUSED] = (struct kernel_tensor){
        .name = "unused",
        .type = SCALAR_F32,
        .rank = 1,
        .extents = {size_expr_size(arena, SIZE_HEADS)},
    };
}

static void fill_scalars(struct arena *arena, struct kernel_info *info) {
    info->scalars =
        ARENA_NEW_ARRAY(arena, struct kernel_scalar, SAMPLE_SCALARS);
    info->scalar_count = SAMPLE_SCALARS;
    info->scalars[SAMPLE_WINDOW] =
        (struct kernel_scalar){"window", SCALAR_I32, true, 64, true};
    info->scalars[SAMPLE_CAP] =
        (struct kernel_scalar){"cap", SCALAR_F32, false, 0, true};
    info->scalars[SAMPLE_FLAG] =
        (struct kernel_scalar){"flag", SCALAR_BOOL, true, 1, true};
}

static struct size_expr key_blocks(struct arena *arena) {
    return binary(arena, size_expr_size(arena, SIZE_KV_LEN), SIZE_OP_CEILDIV,
                  size_expr_constant(arena, 64));
}

static void fill_entries(struct arena *arena, struct kernel_info *info) {
    static const struct kernel_param summary[] = {
        {.kind = KERNEL_PARAM_POINTER, .index = SAMPLE_DOC},
        {.kind = KERNEL_PARAM_EXTENT, .index = SAMPLE_DOC, .axis = 1},
        {.kind = KERNEL_PARAM_STRIDE, .index = SAMPLE_DOC, .axis = 0},
        {.kind = KERNEL_PARAM_WORKSPACE},
    };
    static const struct kernel_param attend[] = {
        {.kind = KERNEL_PARAM_POINTER, .index = KERNEL_TENSOR_Q},
        {.kind = KERNEL_PARAM_SCALAR, .index = SAMPLE_CAP},
        {.kind = KERNEL_PARAM_STRIDE, .index = KERNEL_TENSOR_Q, .axis = 0},
        {.kind = KERNEL_PARAM_STRIDE, .index = KERNEL_TENSOR_Q, .axis = 1},
        {.kind = KERNEL_PARAM_STRIDE, .index = KERNEL_TENSOR_Q, .axis = 2},
        {.kind = KERNEL_PARAM_SIZE, .index = SIZE_KV_LEN},
        {.kind = KERNEL_PARAM_SCALAR, .index = SAMPLE_WINDOW},
        {.kind = KERNEL_PARAM_SCALAR, .index = SAMPLE_FLAG},
        {.kind = KERNEL_PARAM_POINTER, .index = KERNEL_TENSOR_LSE},
        {.kind = KERNEL_PARAM_WORKSPACE},
        {.kind = KERNEL_PARAM_TENSOR_MAP, .index = 0},
        {.kind = KERNEL_PARAM_POINTER, .index = KERNEL_TENSOR_O},
    };
    enum { SUMMARY_PARAMS = sizeof summary / sizeof *summary };
    enum { ATTEND_PARAMS = sizeof attend / sizeof *attend };
    info->entries = ARENA_NEW_ARRAY(arena, struct kernel_entry, SAMPLE_ENTRIES);
    info->entry_count = SAMPLE_ENTRIES;
    struct kernel_entry *entry = &info->entries[SAMPLE_SUMMARY];
    *entry = (struct kernel_entry){.name = "summary", .threads = 128};
    entry->params = ARENA_NEW_ARRAY(arena, struct kernel_param, SUMMARY_PARAMS);
    for (entry->param_count = 0; entry->param_count < SUMMARY_PARAMS;
         entry->param_count++)
        entry->params[entry->param_count] = summary[entry->param_count];
    entry->params[3].offset_expr = size_expr_constant(arena, 256);
    entry->grid_x = binary(arena, key_blocks(arena), SIZE_OP_MUL,
                           size_expr_size(arena, SIZE_BATCH));
    entry = &info->entries[SAMPLE_ATTEND];
    *entry = (struct kernel_entry){.name = "attend",
                                   .threads = 256,
                                   .shared_bytes = 65536,
                                   .programmatic = true};
    entry->params = ARENA_NEW_ARRAY(arena, struct kernel_param, ATTEND_PARAMS);
    for (entry->param_count = 0; entry->param_count < ATTEND_PARAMS;
         entry->param_count++)
        entry->params[entry->param_count] = attend[entry->param_count];
    struct size_expr sms = {0};
    size_expr_push(arena, &sms, SIZE_OP_SM_COUNT, 0);
    entry->grid_x =
        binary(arena, size_expr_size(arena, SIZE_BATCH), SIZE_OP_MIN, sms);
}

struct kernel_info *sample_info(struct arena *arena) {
    struct kernel_info *info = ARENA_NEW(arena, struct kernel_info);
    *info = (struct kernel_info){
        .name = "sample",
        .target = "sm_80",
        .dtype = SCALAR_BF16,
        .head_dim_qk = 64,
        .head_dim_v = 64,
        .tile_m = 128,
        .tile_n = 64,
    };
    fill_tensors(arena, info);
    fill_scalars(arena, info);
    info->tensor_maps = ARENA_NEW_ARRAY(arena, struct kernel_tensor_map, 1);
    info->tensor_map_count = 1;
    info->tensor_maps[0] =
        (struct kernel_tensor_map){KERNEL_TENSOR_K, 64, 64, 1, 128, 1};
    fill_entries(arena, info);
    info->workspace_bytes =
        binary(arena, size_expr_constant(arena, 256), SIZE_OP_ADD,
               binary(arena, key_blocks(arena), SIZE_OP_MUL,
                      size_expr_constant(arena, 8)));
    info->workspace_zeroed = size_expr_constant(arena, 256);
    return info;
}

/* grid * (a op b), in steps of its own. */
static struct size_expr guarded(struct arena *arena, struct size_expr grid,
                                struct size_expr a, enum size_op op,
                                struct size_expr b) {
    struct size_expr copy = {0};
    size_expr_append(arena, &copy, &grid);
    return binary(arena, copy, SIZE_OP_MUL, binary(arena, a, op, b));
}

struct kernel_info *sample_info_with_second(struct arena *arena) {
    struct kernel_info *info = sample_info(arena);
    struct kernel_entry *entries =
        ARENA_NEW_ARRAY(arena, struct kernel_entry, SAMPLE_SECOND + 1);
    for (int i = 0; i < SAMPLE_ENTRIES; i++)
        entries[i] = info->entries[i];
    struct kernel_entry *first = &entries[SAMPLE_ATTEND],
                        *second = &entries[SAMPLE_SECOND];
    *second = *first;
    second->name = "attend$tile_64x64";
    first->conditional = second->conditional = true;
    second->grid_x =
        guarded(arena, first->grid_x, size_expr_size(arena, SIZE_Q_LEN),
                SIZE_OP_LE, size_expr_constant(arena, SAMPLE_SECOND_Q_LEN));
    first->grid_x = guarded(arena, first->grid_x,
                            size_expr_constant(arena, SAMPLE_SECOND_Q_LEN),
                            SIZE_OP_LT, size_expr_size(arena, SIZE_Q_LEN));
    info->target = "sm_90a";
    info->entries = entries;
    info->entry_count = SAMPLE_SECOND + 1;
    return info;
}
