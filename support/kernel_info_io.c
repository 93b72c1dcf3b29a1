/* The stored form of kernel_info: lines of words, in a fixed order, with counts
 * before lists, so that a reader needs one token of lookahead at most:
 *
 *     attn-kernel-info 3
 *     attention window sm_80 bf16 128 128 0 128 64
 *                              dtype, head dims, group, tile
 *     scalars 1
 *     scalar window i32 1 1 4096
 *                              used, has default, default bits
 *     tensors 5
 *     tensor q bf16 1 4 1 size 0 1 size 1 …
 *                              used, rank, extents
 *     maps 0
 *     entries 1
 *     entry attend 128 65536 0 0 7 3 size 0 size 1 mul
 *                              threads, shared, conditional, programmatic,
 *                              params, grid
 *     pointer 0
 *     …
 *     workspace 0 0
 *     end
 *
 * An expression is its number of steps and the steps.  The reader trusts
 * nothing: every count is bounded by the words that are left, so a damaged file
 * costs no more memory than a good one. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "support/arena.h"
#include "support/kernel_info.h"
#include "support/strbuf.h"

static const char *const param_words[] = {
    [KERNEL_PARAM_POINTER] = "pointer", [KERNEL_PARAM_EXTENT] = "extent",
    [KERNEL_PARAM_STRIDE] = "stride",   [KERNEL_PARAM_SIZE] = "size",
    [KERNEL_PARAM_SCALAR] = "scalar",   [KERNEL_PARAM_WORKSPACE] = "workspace",
    [KERNEL_PARAM_TENSOR_MAP] = "map",
};
enum {
    PARAM_KINDS = sizeof param_words / sizeof *param_words,
    WORD_BYTES = 800, /* longer than any name */
};

/* ---- Writing ----------------------------------------------------------- */

static bool has_value(enum size_op op) {
    return op == SIZE_OP_CONST || op == SIZE_OP_SIZE || op == SIZE_OP_PARAM;
}

static void write_expr(const struct size_expr *expr, struct strbuf *out) {
    strbuf_printf(out, " %zu", expr->count);
    for (size_t i = 0; i < expr->count; i++) {
        strbuf_printf(out, " %s", size_op_text(expr->steps[i].op));
        if (has_value(expr->steps[i].op))
            strbuf_printf(out, " %" PRId64, expr->steps[i].value);
    }
}

static void write_entry(const struct kernel_entry *entry, struct strbuf *out) {
    strbuf_printf(out, "entry %s %d %" PRIu32 " %d %d %zu", entry->name,
                  entry->threads, entry->shared_bytes, entry->conditional,
                  entry->programmatic, entry->param_count);
    write_expr(&entry->grid_x, out);
    for (size_t i = 0; i < entry->param_count; i++) {
        const struct kernel_param *param = &entry->params[i];
        strbuf_printf(out, "\n%s", param_words[param->kind]);
        if (param->kind == KERNEL_PARAM_WORKSPACE)
            write_expr(&param->offset_expr, out);
        else
            strbuf_printf(out, " %d", param->index);
        if (param->kind == KERNEL_PARAM_EXTENT ||
            param->kind == KERNEL_PARAM_STRIDE)
            strbuf_printf(out, " %d", param->axis);
    }
    strbuf_append(out, "\n");
}

void kernel_info_write(const struct kernel_info *info, struct strbuf *out) {
    strbuf_append(out, "attn-kernel-info 3\n");
    strbuf_printf(out, "attention %s %s %s %d %d %d %d %d\n", info->name,
                  info->target, scalar_type_text(info->dtype),
                  info->head_dim_qk, info->head_dim_v, info->group,
                  info->tile_m, info->tile_n);
    strbuf_printf(out, "scalars %zu\n", info->scalar_count);
    for (size_t i = 0; i < info->scalar_count; i++) {
        const struct kernel_scalar *scalar = &info->scalars[i];
        strbuf_printf(out, "scalar %s %s %d %d %" PRIu32 "\n", scalar->name,
                      scalar_type_text(scalar->type), scalar->used,
                      scalar->has_default, scalar->default_bits);
    }
    strbuf_printf(out, "tensors %zu\n", info->tensor_count);
    for (size_t i = 0; i < info->tensor_count; i++) {
        const struct kernel_tensor *tensor = &info->tensors[i];
        strbuf_printf(out, "tensor %s %s %d %d", tensor->name,
                      scalar_type_text(tensor->type), tensor->used,
                      tensor->rank);
        for (int axis = 0; axis < tensor->rank; axis++)
            write_expr(&tensor->extents[axis], out);
        strbuf_append(out, "\n");
    }
    strbuf_printf(out, "maps %zu\n", info->tensor_map_count);
    for (size_t i = 0; i < info->tensor_map_count; i++) {
        const struct kernel_tensor_map *map = &info->tensor_maps[i];
        strbuf_printf(out, "map %d %d %d %d %d %d\n", map->tensor, map->heads,
                      map->box_rows, map->panel_columns, map->panels,
                      map->swizzle_bytes);
    }
    strbuf_printf(out, "entries %zu\n", info->entry_count);
    for (size_t i = 0; i < info->entry_count; i++)
        write_entry(&info->entries[i], out);
    strbuf_append(out, "workspace");
    write_expr(&info->workspace_bytes, out);
    write_expr(&info->workspace_zeroed, out);
    strbuf_append(out, "\nend\n");
}

/* ---- Reading ----------------------------------------------------------- */

struct reader {
    const char *at, *end;
    int line;
    struct arena *arena;
    const char *fault; /* the first one; afterwards every word reads as "" */
};

/* Remembers the first fault and skips the rest of the text. */
static void fail(struct reader *r, const char *expected, const char *word,
                 size_t length) {
    if (r->fault == NULL)
        r->fault = arena_printf(r->arena, "line %d: expected %s, found '%.*s'",
                                r->line, expected,
                                length > 40 ? 40 : (int)length, word);
    r->at = r->end;
}

/* The next word; "" at the end.  Longer ones than any name are cut, and
 * fail. */
static const char *read_word(struct reader *r, char buffer[static WORD_BYTES]) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n'))
        r->line += *r->at++ == '\n';
    size_t length = 0;
    while (r->at < r->end && *r->at != ' ' && *r->at != '\n' &&
           *r->at != '\0' && length < WORD_BYTES - 1)
        buffer[length++] = *r->at++;
    buffer[length] = '\0';
    return buffer;
}

static void expect(struct reader *r, const char *word) {
    char buffer[WORD_BYTES];
    if (strcmp(read_word(r, buffer), word) != 0)
        fail(r, word, buffer, strlen(buffer));
}

/* Only the canonical spelling is accepted: no sign or zeros in front, no
 * spaces. */
static int64_t read_integer(struct reader *r, int64_t low, int64_t high) {
    char buffer[WORD_BYTES], *end = NULL;
    read_word(r, buffer);
    long long value = strtoll(buffer, &end, 10);
    char canonical[24];
    snprintf(canonical, sizeof canonical, "%lld", value);
    if (strcmp(canonical, buffer) == 0 && value >= low && value <= high)
        return value;
    fail(r, "an integer in range", buffer, strlen(buffer));
    return low > 0 ? low : 0;
}

static bool read_flag(struct reader *r) {
    return read_integer(r, 0, 1) != 0;
}

/* A count of items of at least two bytes each, so never more than half the
 * rest. */
static size_t read_count(struct reader *r) {
    return (size_t)read_integer(r, 0, (r->end - r->at) / 2);
}

static const char *read_name(struct reader *r) {
    char buffer[WORD_BYTES];
    return arena_strdup(r->arena, read_word(r, buffer));
}

/* One of `count` words; fails with 0. */
static int read_choice(struct reader *r, const char *what,
                       const char *(*text)(int), int count) {
    char buffer[WORD_BYTES];
    read_word(r, buffer);
    for (int i = 0; i < count; i++)
        if (strcmp(buffer, text(i)) == 0)
            return i;
    fail(r, what, buffer, strlen(buffer));
    return 0;
}

static const char *type_word(int i) {
    return scalar_type_text((enum scalar_type)i);
}
static const char *op_word(int i) {
    return size_op_text((enum size_op)i);
}
static const char *param_word(int i) {
    return param_words[i];
}

static enum scalar_type read_type(struct reader *r) {
    return (enum scalar_type)read_choice(r, "a type", type_word,
                                         SCALAR_TYPE_COUNT);
}

static struct size_expr read_expr(struct reader *r) {
    struct size_expr expr = {0};
    size_t count = read_count(r);
    for (size_t i = 0; i < count && r->fault == NULL; i++) {
        enum size_op op = (enum size_op)read_choice(r, "an operation", op_word,
                                                    SIZE_OP_COUNT);
        int64_t value =
            has_value(op) ? read_integer(r, INT64_MIN, INT64_MAX) : 0;
        size_expr_push(r->arena, &expr, op, value);
    }
    return expr;
}

static void read_scalars(struct reader *r, struct kernel_info *info) {
    expect(r, "scalars");
    info->scalar_count = read_count(r);
    info->scalars =
        ARENA_NEW_ARRAY(r->arena, struct kernel_scalar, info->scalar_count);
    for (size_t i = 0; i < info->scalar_count && r->fault == NULL; i++) {
        struct kernel_scalar *scalar = &info->scalars[i];
        expect(r, "scalar");
        scalar->name = read_name(r);
        scalar->type = read_type(r);
        scalar->used = read_flag(r);
        scalar->has_default = read_flag(r);
        scalar->default_bits = (uint32_t)read_integer(r, 0, UINT32_MAX);
    }
}

static void read_tensors(struct reader *r, struct kernel_info *info) {
    expect(r, "tensors");
    info->tensor_count = read_count(r);
    info->tensors =
        ARENA_NEW_ARRAY(r->arena, struct kernel_tensor, info->tensor_count);
    for (size_t i = 0; i < info->tensor_count && r->fault == NULL; i++) {
        struct kernel_tensor *tensor = &info->tensors[i];
        expect(r, "tensor");
        tensor->name = read_name(r);
        tensor->type = read_type(r);
        tensor->used = read_flag(r);
        tensor->rank = (int)read_integer(r, 1, KERNEL_MAX_RANK);
        for (int axis = 0; axis < tensor->rank; axis++)
            tensor->extents[axis] = read_expr(r);
    }
}

static void read_maps(struct reader *r, struct kernel_info *info) {
    expect(r, "maps");
    info->tensor_map_count = read_count(r);
    info->tensor_maps = ARENA_NEW_ARRAY(r->arena, struct kernel_tensor_map,
                                        info->tensor_map_count);
    for (size_t i = 0; i < info->tensor_map_count && r->fault == NULL; i++) {
        struct kernel_tensor_map *map = &info->tensor_maps[i];
        expect(r, "map");
        map->tensor = (int)read_integer(r, 0, INT32_MAX);
        map->heads = (int)read_integer(r, 0, INT32_MAX);
        map->box_rows = (int)read_integer(r, 0, INT32_MAX);
        map->panel_columns = (int)read_integer(r, 0, INT32_MAX);
        map->panels = (int)read_integer(r, 0, INT32_MAX);
        map->swizzle_bytes = (int)read_integer(r, 0, INT32_MAX);
    }
}

static void read_param(struct reader *r, struct kernel_param *param) {
    param->kind = (enum kernel_param_kind)read_choice(r, "a parameter kind",
                                                      param_word, PARAM_KINDS);
    if (param->kind == KERNEL_PARAM_WORKSPACE)
        param->offset_expr = read_expr(r);
    else
        param->index = (int)read_integer(r, 0, INT32_MAX);
    if (param->kind == KERNEL_PARAM_EXTENT ||
        param->kind == KERNEL_PARAM_STRIDE)
        param->axis = (int)read_integer(r, 0, KERNEL_MAX_RANK - 1);
}

static void read_entries(struct reader *r, struct kernel_info *info) {
    expect(r, "entries");
    info->entry_count = read_count(r);
    info->entries =
        ARENA_NEW_ARRAY(r->arena, struct kernel_entry, info->entry_count);
    for (size_t i = 0; i < info->entry_count && r->fault == NULL; i++) {
        struct kernel_entry *entry = &info->entries[i];
        expect(r, "entry");
        entry->name = read_name(r);
        entry->threads = (int)read_integer(r, 0, INT32_MAX);
        entry->shared_bytes = (uint32_t)read_integer(r, 0, UINT32_MAX);
        entry->conditional = read_flag(r);
        entry->programmatic = read_flag(r);
        entry->param_count = read_count(r);
        entry->grid_x = read_expr(r);
        entry->params =
            ARENA_NEW_ARRAY(r->arena, struct kernel_param, entry->param_count);
        for (size_t p = 0; p < entry->param_count && r->fault == NULL; p++)
            read_param(r, &entry->params[p]);
    }
}

const char *kernel_info_read(const char *text, size_t length,
                             struct arena *arena,
                             struct kernel_info *out_info) {
    struct reader r = {
        .at = text, .end = text + length, .line = 1, .arena = arena};
    struct kernel_info info = {0};
    expect(&r, "attn-kernel-info");
    expect(&r, "3");
    expect(&r, "attention");
    info.name = read_name(&r);
    info.target = read_name(&r);
    info.dtype = read_type(&r);
    info.head_dim_qk = (int)read_integer(&r, 0, INT32_MAX);
    info.head_dim_v = (int)read_integer(&r, 0, INT32_MAX);
    info.group = (int)read_integer(&r, 0, INT32_MAX);
    info.tile_m = (int)read_integer(&r, 0, INT32_MAX);
    info.tile_n = (int)read_integer(&r, 0, INT32_MAX);
    read_scalars(&r, &info);
    read_tensors(&r, &info);
    read_maps(&r, &info);
    read_entries(&r, &info);
    expect(&r, "workspace");
    info.workspace_bytes = read_expr(&r);
    info.workspace_zeroed = read_expr(&r);
    expect(&r, "end");
    if (r.fault == NULL &&
        (r.at == r.end || *r.at != '\n' || r.at + 1 != r.end))
        fail(&r, "the end of the text", r.at, (size_t)(r.end - r.at));
    if (r.fault == NULL)
        r.fault = kernel_info_check(&info, arena);
    if (r.fault == NULL)
        *out_info = info;
    return r.fault;
}
