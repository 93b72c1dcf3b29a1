/* kernel_info as JSON for people and programs: what `attnc --json` and
 * attn_program_json show.  Expressions are C strings; nothing reads this
 * back. */
#include <inttypes.h>
#include <string.h>

#include "support/kernel_info.h"
#include "support/strbuf.h"

static void print_name(const char *key, const char *text, struct strbuf *out) {
    strbuf_printf(out, "\"%s\": ", key);
    strbuf_append_json(out, text, strlen(text));
}

/* C expressions hold no quotes, no backslashes and no control characters. */
static void print_expr(const struct size_expr *expr,
                       const struct kernel_info *info, struct strbuf *out) {
    strbuf_append(out, "\"");
    size_expr_print_c(expr, info, out);
    strbuf_append(out, "\"");
}

static void print_tensor(const struct kernel_info *info,
                         const struct kernel_tensor *tensor,
                         struct strbuf *out) {
    strbuf_append(out, "{");
    print_name("name", tensor->name, out);
    strbuf_printf(out, ", \"type\": \"%s\", \"used\": %s, \"extents\": [",
                  scalar_type_text(tensor->type),
                  tensor->used ? "true" : "false");
    for (int axis = 0; axis < tensor->rank; axis++) {
        strbuf_append(out, axis > 0 ? ", " : "");
        print_expr(&tensor->extents[axis], info, out);
    }
    strbuf_append(out, "]}");
}

static void print_scalar(const struct kernel_scalar *scalar,
                         struct strbuf *out) {
    strbuf_append(out, "{");
    print_name("name", scalar->name, out);
    strbuf_printf(out, ", \"type\": \"%s\", \"used\": %s",
                  scalar_type_text(scalar->type),
                  scalar->used ? "true" : "false");
    if (scalar->has_default && scalar->type == SCALAR_F32) {
        float value = 0;
        memcpy(&value, &scalar->default_bits, sizeof value);
        bool finite = value - value == 0;
        strbuf_printf(out,
                      finite ? ", \"default\": %.9g" : ", \"default\": \"%g\"",
                      (double)value);
    } else if (scalar->has_default && scalar->type == SCALAR_BOOL) {
        strbuf_printf(out, ", \"default\": %s",
                      scalar->default_bits ? "true" : "false");
    } else if (scalar->has_default) {
        strbuf_printf(out, ", \"default\": %" PRId32,
                      (int32_t)scalar->default_bits);
    }
    strbuf_append(out, "}");
}

static void print_param(const struct kernel_info *info,
                        const struct kernel_param *param, struct strbuf *out) {
    static const char *const kinds[] = {
        [KERNEL_PARAM_POINTER] = "pointer",
        [KERNEL_PARAM_EXTENT] = "extent",
        [KERNEL_PARAM_STRIDE] = "stride",
        [KERNEL_PARAM_SIZE] = "size",
        [KERNEL_PARAM_SCALAR] = "param",
        [KERNEL_PARAM_WORKSPACE] = "workspace",
        [KERNEL_PARAM_TENSOR_MAP] = "tensor_map",
    };
    strbuf_printf(out, "{\"kind\": \"%s\", \"bytes\": %zu", kinds[param->kind],
                  kernel_param_size(param->kind));
    switch (param->kind) {
    case KERNEL_PARAM_POINTER:
    case KERNEL_PARAM_EXTENT:
    case KERNEL_PARAM_STRIDE:
        strbuf_append(out, ", ");
        print_name("tensor", info->tensors[param->index].name, out);
        if (param->kind != KERNEL_PARAM_POINTER)
            strbuf_printf(out, ", \"axis\": %d", param->axis);
        break;
    case KERNEL_PARAM_SIZE:
        strbuf_printf(out, ", \"size\": \"%s\"",
                      size_name_text((enum size_name)param->index));
        break;
    case KERNEL_PARAM_SCALAR:
        strbuf_append(out, ", ");
        print_name("param", info->scalars[param->index].name, out);
        break;
    case KERNEL_PARAM_WORKSPACE:
        strbuf_append(out, ", \"offset\": ");
        print_expr(&param->offset_expr, info, out);
        break;
    case KERNEL_PARAM_TENSOR_MAP:
        strbuf_printf(out, ", \"map\": %d", param->index);
        break;
    }
    strbuf_append(out, "}");
}

static void print_entry(const struct kernel_info *info,
                        const struct kernel_entry *entry, struct strbuf *out) {
    strbuf_append(out, "{");
    print_name("name", entry->name, out);
    strbuf_printf(
        out, ", \"threads\": %d, \"shared_bytes\": %" PRIu32 ", \"grid\": ",
        entry->threads, entry->shared_bytes);
    print_expr(&entry->grid_x, info, out);
    strbuf_printf(out,
                  ", \"conditional\": %s, \"programmatic\": %s,\n     "
                  "\"params\": [",
                  entry->conditional ? "true" : "false",
                  entry->programmatic ? "true" : "false");
    for (size_t i = 0; i < entry->param_count; i++) {
        strbuf_append(out, i > 0 ? ",\n       " : "\n       ");
        print_param(info, &entry->params[i], out);
    }
    strbuf_append(out, "]}");
}

static void print_map(const struct kernel_info *info,
                      const struct kernel_tensor_map *map, struct strbuf *out) {
    strbuf_append(out, "{");
    print_name("tensor", info->tensors[map->tensor].name, out);
    strbuf_printf(out,
                  ", \"heads\": %d, \"box_rows\": %d, \"panel_columns\": %d, "
                  "\"panels\": %d, \"swizzle_bytes\": %d}",
                  map->heads, map->box_rows, map->panel_columns, map->panels,
                  map->swizzle_bytes);
}

static void print_lists(const struct kernel_info *info, struct strbuf *out) {
    strbuf_append(out, "  \"tensors\": [");
    for (size_t i = 0; i < info->tensor_count; i++) {
        strbuf_append(out, i > 0 ? ",\n    " : "\n    ");
        print_tensor(info, &info->tensors[i], out);
    }
    strbuf_append(out, "],\n  \"params\": [");
    for (size_t i = 0; i < info->scalar_count; i++) {
        strbuf_append(out, i > 0 ? ",\n    " : "\n    ");
        print_scalar(&info->scalars[i], out);
    }
    strbuf_append(out, "],\n  \"tensor_maps\": [");
    for (size_t i = 0; i < info->tensor_map_count; i++) {
        strbuf_append(out, i > 0 ? ",\n    " : "\n    ");
        print_map(info, &info->tensor_maps[i], out);
    }
    strbuf_append(out, "],\n  \"entries\": [");
    for (size_t i = 0; i < info->entry_count; i++) {
        strbuf_append(out, i > 0 ? ",\n    " : "\n    ");
        print_entry(info, &info->entries[i], out);
    }
}

void kernel_info_print_json(const struct kernel_info *info,
                            struct strbuf *out) {
    strbuf_append(out, "{\n  ");
    print_name("name", info->name, out);
    strbuf_append(out, ", ");
    print_name("target", info->target, out);
    strbuf_printf(out,
                  ", \"dtype\": \"%s\", \"head_dim\": [%d, %d], \"group\": %d, "
                  "\"tile\": [%d, %d],\n",
                  scalar_type_text(info->dtype), info->head_dim_qk,
                  info->head_dim_v, info->group, info->tile_m, info->tile_n);
    print_lists(info, out);
    strbuf_append(out, "],\n  \"workspace_bytes\": ");
    print_expr(&info->workspace_bytes, info, out);
    strbuf_append(out, ", \"workspace_zeroed\": ");
    print_expr(&info->workspace_zeroed, info, out);
    strbuf_append(out, "\n}\n");
}
