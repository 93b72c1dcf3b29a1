/* The rules that kernel_info.h states, checked: what passes here can be
 * evaluated, packed and launched without looking at an index twice.  Used on
 * what the back end made (a fault of ours) and on what a cache file says (not
 * trusted). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "support/arena.h"
#include "support/kernel_info.h"

enum {
    MAX_NAME = 255, /* the language's limit for identifiers */
    MAX_ENTRY_NAME =
        3 * MAX_NAME, /* an attention's, a tensor's and a word between */
    MAX_ITEMS =
        4096, /* tensors, scalars, maps, entries, parameters of one entry */
    MAX_STEPS = 1 << 16, /* of one expression */
    MAX_SHARED = 1 << 20,
};

struct checker {
    const struct kernel_info *info;
    struct arena *arena;
    const char *fault; /* the first one */
};

#define FAULT(c, ...)                             \
    ((c)->fault = (c)->fault != NULL ? (c)->fault \
                                     : arena_printf((c)->arena, __VA_ARGS__))

/* Stored names are words of a line and identifiers at once; entries may have
 * PTX's '$'. */
static void check_word(struct checker *c, const char *what, const char *name,
                       size_t limit, char also) {
    size_t length = name != NULL ? strlen(name) : 0;
    bool good =
        length > 0 && length <= limit && !(name[0] >= '0' && name[0] <= '9');
    for (size_t i = 0; good && i < length; i++) {
        char ch = name[i];
        good = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
               (ch >= '0' && ch <= '9') || ch == '_' || ch == also;
    }
    if (!good)
        FAULT(c, "%s name '%.80s' is no identifier", what,
              name != NULL ? name : "");
}

static void check_name(struct checker *c, const char *what, const char *name) {
    check_word(c, what, name, MAX_NAME, '_');
}

/* Inclusive bounds. */
static void check_range(struct checker *c, const char *what, int64_t value,
                        int64_t low, int64_t high) {
    if (value < low || value > high)
        FAULT(c, "%s is %" PRId64 ", expected %" PRId64 " to %" PRId64, what,
              value, low, high);
}

/* A PARAM step may read integers only. */
static void check_step(struct checker *c, const char *what,
                       struct size_step step) {
    const struct kernel_info *info = c->info;
    if (step.op == SIZE_OP_SIZE) {
        check_range(c, what, step.value, 0, SIZE_COUNT - 1);
    } else if (step.op == SIZE_OP_PARAM) {
        if (step.value < 0 || (uint64_t)step.value >= info->scalar_count)
            FAULT(c, "%s reads parameter %" PRId64 " of %zu", what, step.value,
                  info->scalar_count);
        else if (info->scalars[step.value].type == SCALAR_F32)
            FAULT(c, "%s reads the f32 parameter '%s'", what,
                  info->scalars[step.value].name);
    } else if (step.op != SIZE_OP_CONST && step.value != 0) {
        FAULT(c, "%s has an operation '%s' with a value", what,
              size_op_text(step.op));
    }
}

/* One pass over the code with the depth of the stack. */
static void check_expr(struct checker *c, const char *what,
                       const struct size_expr *expr) {
    size_t depth = 0;
    if (expr->count > MAX_STEPS) {
        FAULT(c, "%s has %zu steps, the limit is %d", what, expr->count,
              MAX_STEPS);
        return;
    }
    for (size_t i = 0; i < expr->count && c->fault == NULL; i++) {
        struct size_step step = expr->steps[i];
        if ((unsigned)step.op >= SIZE_OP_COUNT) {
            FAULT(c, "%s has an unknown operation %d", what, (int)step.op);
            return;
        }
        size_t operands = (size_t)size_op_operand_count(step.op);
        if (depth < operands) {
            FAULT(c, "%s lacks an operand of '%s'", what,
                  size_op_text(step.op));
            return;
        }
        depth = depth - operands + 1;
        if (depth > SIZE_EXPR_MAX_DEPTH)
            FAULT(c, "%s needs a stack deeper than %d", what,
                  SIZE_EXPR_MAX_DEPTH);
        check_step(c, what, step);
    }
    if (c->fault == NULL && expr->count > 0 && depth != 1)
        FAULT(c, "%s leaves %zu values, expected 1", what, depth);
}

/* q, k, v, o and lse: names, types and ranks are fixed. */
static void check_fixed_tensors(struct checker *c) {
    static const char *const names[KERNEL_TENSOR_CAPTURED] = {"q", "k", "v",
                                                              "o", "lse"};
    for (int i = 0; i < KERNEL_TENSOR_CAPTURED && c->fault == NULL; i++) {
        const struct kernel_tensor *tensor = &c->info->tensors[i];
        bool lse = i == KERNEL_TENSOR_LSE;
        enum scalar_type type = lse ? SCALAR_F32 : c->info->dtype;
        if (strcmp(tensor->name, names[i]) != 0 || tensor->type != type ||
            tensor->rank != (lse ? 3 : 4))
            FAULT(c, "tensor %d is %s %s of rank %d, expected %s %s of rank %d",
                  i, tensor->name, scalar_type_text(tensor->type), tensor->rank,
                  names[i], scalar_type_text(type), lse ? 3 : 4);
    }
}

static void check_tensor(struct checker *c,
                         const struct kernel_tensor *tensor) {
    check_name(c, "tensor", tensor->name);
    check_range(c, "a tensor's type", tensor->type, 0, SCALAR_TYPE_COUNT - 1);
    check_range(c, "a tensor's rank", tensor->rank, 1, KERNEL_MAX_RANK);
    for (int axis = 0; axis < tensor->rank && c->fault == NULL; axis++)
        check_expr(c, "an extent", &tensor->extents[axis]);
}

static void check_scalar(struct checker *c,
                         const struct kernel_scalar *scalar) {
    check_name(c, "parameter", scalar->name);
    check_range(c, "a parameter's type", scalar->type, 0, SCALAR_F32);
    if (scalar->has_default && scalar->type == SCALAR_BOOL)
        check_range(c, "a bool default", scalar->default_bits, 0, 1);
}

/* Bounds of cuTensorMapEncodeTiled: at most 256 per box axis, whole panels
 * only. */
static void check_map(struct checker *c, const struct kernel_tensor_map *map) {
    check_range(c, "a tensor map's tensor", map->tensor, KERNEL_TENSOR_Q,
                KERNEL_TENSOR_O);
    check_range(c, "a tensor map's rows", map->box_rows, 1, 256);
    check_range(c, "a tensor map's heads", map->heads, 1, 256);
    if (c->fault == NULL && map->box_rows % map->heads != 0)
        FAULT(c,
              "a tensor map has boxes of %d rows for %d heads, expected a "
              "multiple",
              map->box_rows, map->heads);
    if (c->fault == NULL && map->heads > 1 && map->tensor != KERNEL_TENSOR_Q &&
        map->tensor != KERNEL_TENSOR_O)
        FAULT(c, "a tensor map packs heads of tensor %d, expected q or o",
              map->tensor);
    check_range(c, "a tensor map's panels", map->panels, 1, 256);
    if (map->swizzle_bytes != 32 && map->swizzle_bytes != 64 &&
        map->swizzle_bytes != 128)
        FAULT(c, "a tensor map's swizzle is %d, expected 32, 64 or 128",
              map->swizzle_bytes);
    check_range(c, "a tensor map's panel columns", map->panel_columns, 1,
                map->swizzle_bytes / 2);
    if (c->fault != NULL)
        return;
    bool qk = map->tensor == KERNEL_TENSOR_Q || map->tensor == KERNEL_TENSOR_K;
    int head_dim = qk ? c->info->head_dim_qk : c->info->head_dim_v;
    if (head_dim % map->panel_columns != 0)
        FAULT(c,
              "a tensor map has panels of %d columns, which do not divide "
              "head_dim %d",
              map->panel_columns, head_dim);
}

/* After this a parameter can be packed without looking at its indices. */
static void check_param(struct checker *c, const struct kernel_param *param) {
    const struct kernel_info *info = c->info;
    int64_t limit = 0;
    switch (param->kind) {
    case KERNEL_PARAM_POINTER:
    case KERNEL_PARAM_EXTENT:
    case KERNEL_PARAM_STRIDE:
        limit = (int64_t)info->tensor_count;
        break;
    case KERNEL_PARAM_SIZE:
        limit = SIZE_COUNT;
        break;
    case KERNEL_PARAM_SCALAR:
        limit = (int64_t)info->scalar_count;
        break;
    case KERNEL_PARAM_TENSOR_MAP:
        limit = (int64_t)info->tensor_map_count;
        break;
    case KERNEL_PARAM_WORKSPACE:
        check_expr(c, "a workspace offset", &param->offset_expr);
        return;
    default:
        FAULT(c, "a kernel parameter has the unknown kind %d",
              (int)param->kind);
        return;
    }
    if (param->index < 0 || param->index >= limit) {
        FAULT(c, "a kernel parameter's index is %d of %" PRId64, param->index,
              limit);
        return;
    }
    if (param->kind == KERNEL_PARAM_EXTENT ||
        param->kind == KERNEL_PARAM_STRIDE)
        check_range(c, "a kernel parameter's axis", param->axis, 0,
                    info->tensors[param->index].rank - 1);
}

static void check_entry(struct checker *c, const struct kernel_entry *entry) {
    check_word(c, "entry", entry->name, MAX_ENTRY_NAME, '$');
    check_range(c, "an entry's threads", entry->threads, 1, 1024);
    check_range(c, "an entry's shared memory", entry->shared_bytes, 0,
                MAX_SHARED);
    check_range(c, "an entry's parameter count", (int64_t)entry->param_count, 0,
                MAX_ITEMS);
    check_expr(c, "a grid", &entry->grid_x);
    for (size_t i = 0; i < entry->param_count && c->fault == NULL; i++)
        check_param(c, &entry->params[i]);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Tensors and parameters share the attention's scope: no name twice. */
static void check_unique(struct checker *c) {
    const struct kernel_info *info = c->info;
    size_t captured = info->tensor_count - KERNEL_TENSOR_CAPTURED;
    size_t count = captured + info->scalar_count;
    const char **names = ARENA_NEW_ARRAY(c->arena, const char *, count);
    for (size_t i = 0; i < captured; i++)
        names[i] = info->tensors[KERNEL_TENSOR_CAPTURED + i].name;
    for (size_t i = 0; i < info->scalar_count; i++)
        names[captured + i] = info->scalars[i].name;
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            FAULT(c, "the name '%s' stands twice", names[i]);
}

/* Counts first: the loops behind rely on them. */
static void check_header(struct checker *c) {
    const struct kernel_info *info = c->info;
    check_name(c, "attention", info->name);
    check_name(c, "target", info->target);
    if (info->dtype != SCALAR_F16 && info->dtype != SCALAR_BF16)
        FAULT(c, "dtype is %d, expected f16 or bf16", (int)info->dtype);
    check_range(c, "head_dim", info->head_dim_qk, 1, 256);
    check_range(c, "head_dim of v", info->head_dim_v, 1, 256);
    check_range(c, "group", info->group, 0, INT32_MAX);
    check_range(c, "tile_m", info->tile_m, 0, 65536);
    check_range(c, "tile_n", info->tile_n, 0, 65536);
    check_range(c, "the tensor count", (int64_t)info->tensor_count,
                KERNEL_TENSOR_CAPTURED, MAX_ITEMS);
    check_range(c, "the parameter count", (int64_t)info->scalar_count, 0,
                MAX_ITEMS);
    check_range(c, "the tensor map count", (int64_t)info->tensor_map_count, 0,
                MAX_ITEMS);
    check_range(c, "the entry count", (int64_t)info->entry_count, 1, MAX_ITEMS);
}

const char *kernel_info_check(const struct kernel_info *info,
                              struct arena *arena) {
    struct checker c = {.info = info, .arena = arena};
    check_header(&c);
    for (size_t i = 0; c.fault == NULL && i < info->scalar_count; i++)
        check_scalar(&c, &info->scalars[i]);
    for (size_t i = 0; c.fault == NULL && i < info->tensor_count; i++)
        check_tensor(&c, &info->tensors[i]);
    if (c.fault == NULL)
        check_fixed_tensors(&c);
    for (size_t i = 0; c.fault == NULL && i < info->tensor_map_count; i++)
        check_map(&c, &info->tensor_maps[i]);
    for (size_t i = 0; c.fault == NULL && i < info->entry_count; i++)
        check_entry(&c, &info->entries[i]);
    if (c.fault == NULL)
        check_unique(&c);
    if (c.fault == NULL)
        check_expr(&c, "the workspace size", &info->workspace_bytes);
    if (c.fault == NULL)
        check_expr(&c, "the zeroed workspace size", &info->workspace_zeroed);
    return c.fault;
}
