/* Printing a self-contained C header from kernel_info.
 *
 * What it does at run time is what runtime/launch.c does for one fixed
 * kernel_info: sizes, grids and workspace as C expressions, parameters in a
 * row.  It checks sizes and alignment only; the full argument checks with
 * messages are libattn's. */
#include "runtime/header_writer.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "attn.h"
#include "runtime/driver.h"

/* ---- Names ------------------------------------------------------------- */

/* Below, a line of text to print is a line here, also beyond 80 columns. */
/* clang-format off */

/* Words that are no names in C or C++, or macros of the headers we include. */
static const char *const reserved[] = {
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor",
    "bool", "break", "case", "catch", "char", "class", "compl", "concept",
    "const", "const_cast", "consteval", "constexpr", "constinit", "continue",
    "decltype", "default", "delete", "do", "double", "dynamic_cast", "else",
    "enum", "explicit", "export", "extern", "false", "float", "for", "friend",
    "goto", "if", "inline", "int", "linux", "long", "mutable", "namespace",
    "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq",
    "private", "protected", "public", "register", "reinterpret_cast",
    "requires", "restrict", "return", "short", "signed", "sizeof", "static",
    "static_assert", "static_cast", "struct", "switch", "template", "this",
    "thread_local", "throw", "true", "try", "typedef", "typeid", "typename",
    "typeof", "union", "unix", "unsigned", "using", "virtual", "void",
    "volatile", "wchar_t", "while", "xor", "xor_eq", "NULL", "INT64_MIN",
    "INT32_MAX", "size_t", "int32_t", "int64_t", "uint32_t", "uint64_t",
};

static bool is_reserved(const char *name) {
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (strcmp(name, reserved[i]) == 0)
            return true;
    /* Ours, the CUDA driver's, and the C implementation's. */
    return strncmp(name, "attn_", 5) == 0 || strncasecmp(name, "cu", 2) == 0 ||
           name[0] == '_';
}

static bool is_used(const struct kernel_info *info, const char *name) {
    for (size_t i = 0; i < info->tensor_count; i++)
        if (strcmp(info->tensors[i].name, name) == 0)
            return true;
    for (size_t i = 0; i < info->scalar_count; i++)
        if (strcmp(info->scalars[i].name, name) == 0)
            return true;
    return false;
}

/* `name`, or where C could not take it, `name_` with underscores until it is
 * free. */
static const char *c_name(struct arena *arena, const struct kernel_info *info,
                          const char *name) {
    if (!is_reserved(name))
        return name;
    const char *changed = name[0] == '_' ? arena_printf(arena, "x%s", name)
                                         : arena_printf(arena, "%s_", name);
    if (is_reserved(changed))
        changed = arena_printf(arena, "x_%s", name);
    while (is_used(info, changed))
        changed = arena_printf(arena, "%s_", changed);
    return changed;
}

/* A copy of `info` whose tensors and parameters have C names. */
static struct kernel_info with_c_names(struct arena *arena,
                                       const struct kernel_info *info) {
    struct kernel_info copy = *info;
    copy.tensors =
        ARENA_NEW_ARRAY(arena, struct kernel_tensor, info->tensor_count);
    copy.scalars =
        ARENA_NEW_ARRAY(arena, struct kernel_scalar, info->scalar_count);
    for (size_t i = 0; i < info->tensor_count; i++) {
        copy.tensors[i] = info->tensors[i];
        copy.tensors[i].name = c_name(arena, info, info->tensors[i].name);
    }
    for (size_t i = 0; i < info->scalar_count; i++) {
        copy.scalars[i] = info->scalars[i];
        copy.scalars[i].name = c_name(arena, info, info->scalars[i].name);
    }
    return copy;
}

/* ---- Fixed text -------------------------------------------------------- */

static const char helpers[] =
    "#ifndef ATTN_HEADER_HELPERS\n"
    "#define ATTN_HEADER_HELPERS\n"
    "/* Arithmetic of the size expressions; division by zero sets *bad. */\n"
    "static inline int64_t attn_divide(int64_t a, int64_t b, int up, int *bad) {\n"
    "    if (b == 0 || (b == -1 && a == INT64_MIN)) {\n"
    "        *bad = 1;\n"
    "        return 0;\n"
    "    }\n"
    "    int64_t q = a / b, r = a % b;\n"
    "    int negative = (a < 0) != (b < 0);\n"
    "    return q + (r != 0 && up && !negative) - (r != 0 && !up && negative);\n"
    "}\n"
    "#define attn_floordiv(a, b) attn_divide((a), (b), 0, &attn_bad)\n"
    "#define attn_ceildiv(a, b) attn_divide((a), (b), 1, &attn_bad)\n"
    "#define attn_floormod(a, b) ((a) - attn_floordiv(a, b) * (b))\n"
    "static inline int64_t attn_min(int64_t a, int64_t b) { return a < b ? a : b; }\n"
    "static inline int64_t attn_max(int64_t a, int64_t b) { return a > b ? a : b; }\n"
    "static inline int64_t attn_abs(int64_t a) { return a < 0 ? -a : a; }\n"
    "static inline int64_t attn_shl(int64_t a, int64_t n) {\n"
    "    return a * ((int64_t)1 << (n & 31));\n"
    "}\n"
    "static inline int64_t attn_shr(int64_t a, int64_t n) { return a >> (n & 31); }\n"
    "#endif\n\n";

static const char launch_helper[] =
    "#ifndef ATTN_HEADER_LAUNCH\n"
    "#define ATTN_HEADER_LAUNCH\n"
    "/* Launches a kernel that waits itself for the work before it on the stream;\n"
    " * `early`: it may begin while that ends. */\n"
    "static inline CUresult attn_launch_early(CUfunction entry, unsigned grid, unsigned threads,\n"
    "                                         unsigned shared, CUstream stream, void **params,\n"
    "                                         int early) {\n"
    "    CUlaunchAttribute attribute;\n"
    "    CUlaunchConfig config;\n"
    "    memset(&attribute, 0, sizeof attribute);\n"
    "    memset(&config, 0, sizeof config);\n"
    "    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;\n"
    "    attribute.value.programmaticStreamSerializationAllowed = 1;\n"
    "    config.gridDimX = grid, config.gridDimY = config.gridDimZ = 1;\n"
    "    config.blockDimX = threads, config.blockDimY = config.blockDimZ = 1;\n"
    "    config.sharedMemBytes = shared;\n"
    "    config.hStream = stream;\n"
    "    config.attrs = &attribute;\n"
    "    config.numAttrs = early ? 1 : 0;\n"
    "    return cuLaunchKernelEx(&config, entry, params, NULL);\n"
    "}\n"
    "#endif\n\n";

static const char map_helper[] =
    "#ifndef ATTN_HEADER_MAPS\n"
    "#define ATTN_HEADER_MAPS\n"
    "/* A TMA tensor map {panel columns, rows, panels, heads, batch}; a stride of an axis\n"
    " * of extent 1 is replaced by a compact one, which the driver accepts. */\n"
    "static inline CUresult attn_encode_map(CUtensorMap *map, CUtensorMapDataType type,\n"
    "                                       CUdeviceptr data, const int64_t *stride,\n"
    "                                       int64_t batch, int64_t heads, int64_t rows,\n"
    "                                       int columns, int panel, int box_heads,\n"
    "                                       int box_rows, int panels,\n"
    "                                       CUtensorMapSwizzle swizzle) {\n"
    "    cuuint64_t row = (cuuint64_t)(rows > 1 ? stride[2] : columns) * 2;\n"
    "    cuuint64_t head = (cuuint64_t)(heads > 1 ? stride[1] : columns) * 2;\n"
    "    cuuint64_t step = (cuuint64_t)(batch > 1 ? stride[0] : columns) * 2;\n"
    "    cuuint64_t extents[5] = {(cuuint64_t)panel, (cuuint64_t)(rows > 0 ? rows : 1),\n"
    "                             (cuuint64_t)(columns / panel), (cuuint64_t)heads,\n"
    "                             (cuuint64_t)batch};\n"
    "    cuuint64_t strides[4] = {row, (cuuint64_t)panel * 2, head, step};\n"
    "    cuuint32_t box[5] = {(cuuint32_t)panel, (cuuint32_t)(box_rows / box_heads),\n"
    "                         (cuuint32_t)panels, 1, 1};\n"
    "    if (box_heads > 1) { /* packed: heads, rows, panels */\n"
    "        extents[3] = extents[2], extents[2] = extents[1], extents[1] = (cuuint64_t)heads;\n"
    "        strides[2] = strides[1], strides[1] = row, strides[0] = head;\n"
    "        box[3] = box[2], box[2] = box[1], box[1] = (cuuint32_t)box_heads;\n"
    "    }\n"
    "    cuuint32_t ones[5] = {1, 1, 1, 1, 1};\n"
    "    return cuTensorMapEncodeTiled(map, type, 5, (void *)(uintptr_t)data, extents, strides,\n"
    "                                  box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,\n"
    "                                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,\n"
    "                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);\n"
    "}\n"
    "#endif\n\n";

/* ---- Pieces ------------------------------------------------------------ */

struct writer {
    const struct kernel_info *info; /* with C names */
    const char *name;
    struct strbuf *out;
};

static void print_expr(const struct writer *w, const struct size_expr *expr) {
    size_expr_print_c(expr, w->info, w->out);
}

static const char *scalar_c_type(enum scalar_type type) {
    return type == SCALAR_F32 ? "float" : "int32_t";
}

/* The names that expressions use, as locals of a function that has `attn_args`
 * and a multiprocessor count. */
static void print_locals(const struct writer *w, const char *sm_count) {
    struct strbuf *out = w->out;
    for (int i = 0; i < SIZE_COUNT; i++) {
        const char *name = size_name_text((enum size_name)i);
        strbuf_printf(out, "    const int64_t %s = attn_args->%s;\n", name,
                      name);
    }
    for (size_t i = 0; i < w->info->scalar_count; i++)
        if (w->info->scalars[i].type != SCALAR_F32)
            strbuf_printf(out, "    const int64_t %s = attn_args->%s;\n",
                          w->info->scalars[i].name, w->info->scalars[i].name);
    strbuf_printf(
        out, "    const int64_t attn_sm_count = %s;\n    int attn_bad = 0;\n",
        sm_count);
    for (int i = 0; i < SIZE_COUNT; i++)
        strbuf_printf(out, "    (void)%s;\n",
                      size_name_text((enum size_name)i));
    for (size_t i = 0; i < w->info->scalar_count; i++)
        if (w->info->scalars[i].type != SCALAR_F32)
            strbuf_printf(out, "    (void)%s;\n", w->info->scalars[i].name);
    strbuf_append(out, "    (void)attn_sm_count;\n    (void)attn_bad;\n");
}

static void print_extents(const struct writer *w,
                          const struct kernel_tensor *tensor) {
    for (int axis = 0; axis < tensor->rank; axis++) {
        strbuf_append(w->out, axis > 0 ? ", " : "");
        print_expr(w, &tensor->extents[axis]);
    }
}

/* The comment on top: how to use it, and the tensors with their extents. */
static void print_head(const struct writer *w, const char *origin) {
    const struct kernel_info *info = w->info;
    strbuf_append(w->out, "/* Generated by attnc " ATTN_VERSION " from ");
    for (const char *at = origin; *at != '\0';
         at++) /* no comment ends in a file name */
        strbuf_append_char(w->out,
                           *at == '*' || (unsigned char)*at < ' ' ? '?' : *at);
    strbuf_printf(
        w->out,
        ":\n"
        " * attention '%s', %s, %s, head_dim %d and %d.\n"
        " *\n"
        " *     struct %s_kernel kernel;\n"
        " *     %s_load(&kernel);   // with a CUDA context current\n"
        " *     struct %s_args args =\n"
        " *         %s_args_init(batch, heads, kv_heads, q_len, kv_len);\n"
        " *     args.q.data = …;   // and the others, and parameters\n"
        " *     %s_compact(&args);   // or set the strides yourself\n"
        " *     %s_launch(&kernel, &args, workspace, stream);\n"
        " *\n"
        " * Needs libcuda only.  Tensors (strides are in elements):\n",
        w->name, info->target, scalar_type_text(info->dtype), info->head_dim_qk,
        info->head_dim_v, w->name, w->name, w->name, w->name, w->name, w->name);
    for (size_t i = 0; i < info->tensor_count; i++) {
        strbuf_printf(w->out, " *   %s: %s [", info->tensors[i].name,
                      scalar_type_text(info->tensors[i].type));
        print_extents(w, &info->tensors[i]);
        strbuf_append(w->out, i == KERNEL_TENSOR_LSE
                                  ? "], or 0 when not wanted\n"
                                  : "]\n");
    }
    strbuf_append(w->out, " */\n");
}

static void print_cubin(const struct writer *w, const unsigned char *bytes,
                        size_t size) {
    strbuf_printf(w->out,
                  "__attribute__((aligned(64)))\n"
                  "static const unsigned char %s_cubin[%zu] = {",
                  w->name, size);
    for (size_t i = 0; i < size; i++)
        strbuf_printf(w->out, "%s%d,", i % 20 == 0 ? "\n    " : "", bytes[i]);
    strbuf_append(w->out, "\n};\n\n");
}

static bool has_programmatic(const struct writer *w) {
    for (size_t i = 0; i < w->info->entry_count; i++)
        if (w->info->entries[i].programmatic)
            return true;
    return false;
}

/* The kernel, and one field per tensor, parameter and size of a call. */
static void print_structs(const struct writer *w) {
    struct strbuf *out = w->out;
    strbuf_printf(
        out,
        "struct %s_kernel {\n    CUmodule module;\n    CUfunction entries[%zu];\n"
        "    int sm_count;\n%s};\n\nstruct %s_args {\n"
        "    int32_t batch, heads, kv_heads, q_len, kv_len;\n",
        w->name, w->info->entry_count,
        has_programmatic(w) ? "    int early; /* launched before the work before it ends */\n"
                            : "",
        w->name);
    for (size_t i = 0; i < w->info->tensor_count; i++)
        strbuf_printf(
            out,
            "    struct {\n        CUdeviceptr data;\n        int64_t stride[%d];\n"
            "    } %s;\n",
            w->info->tensors[i].rank, w->info->tensors[i].name);
    for (size_t i = 0; i < w->info->scalar_count; i++)
        strbuf_printf(
            out, "    %s %s;%s\n", scalar_c_type(w->info->scalars[i].type),
            w->info->scalars[i].name,
            w->info->scalars[i].type == SCALAR_BOOL ? " /* 0 or 1 */" : "");
    strbuf_append(out, "};\n\n");
}

/* A C constant with the value of a default. */
static void print_default(const struct kernel_scalar *scalar,
                          struct strbuf *out) {
    float value = 0;
    if (scalar->type != SCALAR_F32) {
        /* INT32_MIN has no literal */
        strbuf_printf(out, "(int32_t)%" PRId64,
                      (int64_t)(int32_t)scalar->default_bits);
        return;
    }
    memcpy(&value, &scalar->default_bits, sizeof value);
    if (value != value)
        strbuf_append(out, "__builtin_nanf(\"\")");
    else if (value - value != 0)
        strbuf_printf(out, "%s__builtin_inff()", value < 0 ? "-" : "");
    else
        strbuf_printf(out, "%.9ef", (double)value);
}

/* X_args_init and X_compact. */
static void print_init(const struct writer *w) {
    struct strbuf *out = w->out;
    strbuf_printf(
        out,
        "/* Sizes, and the defaults of the parameters that have one; all else is 0. */\n"
        "static inline struct %s_args %s_args_init(int32_t batch, int32_t heads,\n"
        "        int32_t kv_heads, int32_t q_len, int32_t kv_len) {\n"
        "    struct %s_args attn_args;\n"
        "    memset(&attn_args, 0, sizeof attn_args);\n",
        w->name, w->name, w->name);
    for (int i = 0; i < SIZE_COUNT; i++)
        strbuf_printf(out, "    attn_args.%s = %s;\n",
                      size_name_text((enum size_name)i),
                      size_name_text((enum size_name)i));
    for (size_t i = 0; i < w->info->scalar_count; i++) {
        if (!w->info->scalars[i].has_default)
            continue;
        strbuf_printf(out, "    attn_args.%s = ", w->info->scalars[i].name);
        print_default(&w->info->scalars[i], out);
        strbuf_append(out, ";\n");
    }
    strbuf_append(out, "    return attn_args;\n}\n\n");
    strbuf_printf(
        out,
        "/* Sets all strides to those of compact tensors.  CUDA_ERROR_INVALID_VALUE\n"
        " * when an extent divides by zero. */\n"
        "static inline CUresult %s_compact(struct %s_args *attn_args) {\n",
        w->name, w->name);
    print_locals(w, "0");
    for (size_t i = 0; i < w->info->tensor_count; i++) {
        const struct kernel_tensor *tensor = &w->info->tensors[i];
        strbuf_printf(out, "    attn_args->%s.stride[%d] = 1;\n", tensor->name,
                      tensor->rank - 1);
        for (int axis = tensor->rank - 2; axis >= 0; axis--) {
            strbuf_printf(
                out,
                "    attn_args->%s.stride[%d] = attn_args->%s.stride[%d] * (",
                tensor->name, axis, tensor->name, axis + 1);
            print_expr(w, &tensor->extents[axis + 1]);
            strbuf_append(out, ");\n");
        }
    }
    strbuf_append(
        out,
        "    return attn_bad ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;\n}\n\n");
}

/* Whether the driver takes early launches. */
static void print_early(const struct writer *w) {
    if (has_programmatic(w))
        strbuf_printf(
            w->out,
            "    /* Drivers before CUDA 12.3 do not capture such launches into graphs. */\n"
            "    int version = 0;\n"
            "    result = cuDriverGetVersion(&version);\n"
            "    if (result != CUDA_SUCCESS)\n"
            "        return result;\n"
            "    attn_kernel->early = version >= %d;\n",
            RT_PROGRAMMATIC_DRIVER);
}

/* X_load and X_unload. */
static void print_load(const struct writer *w) {
    struct strbuf *out = w->out;
    strbuf_printf(
        out,
        "/* Loads the cubin (for %s) into the current context. */\n"
        "static inline CUresult %s_load(struct %s_kernel *attn_kernel) {\n"
        "    CUdevice device;\n"
        "    CUresult result = cuCtxGetDevice(&device);\n"
        "    if (result == CUDA_SUCCESS)\n"
        "        result = cuDeviceGetAttribute(&attn_kernel->sm_count,\n"
        "                                      CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "
        "device);\n"
        "    if (result != CUDA_SUCCESS)\n"
        "        return result;\n",
        w->info->target, w->name, w->name);
    print_early(w);
    strbuf_printf(
        out,
        "    result = cuModuleLoadData(&attn_kernel->module, %s_cubin);\n"
        "    if (result != CUDA_SUCCESS)\n"
        "        return result;\n",
        w->name);
    for (size_t i = 0; i < w->info->entry_count; i++) {
        const struct kernel_entry *entry = &w->info->entries[i];
        strbuf_printf(
            out,
            "    if (result == CUDA_SUCCESS)\n"
            "        result = cuModuleGetFunction(&attn_kernel->entries[%zu],\n"
            "                                     attn_kernel->module, \"%s\");\n",
            i, entry->name);
        if (entry->shared_bytes > 48 << 10)
            strbuf_printf(
                out,
                "    if (result == CUDA_SUCCESS)\n"
                "        result = cuFuncSetAttribute(attn_kernel->entries[%zu],\n"
                "            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, %u);\n",
                i, entry->shared_bytes);
    }
    strbuf_printf(
        out,
        "    if (result != CUDA_SUCCESS)\n"
        "        cuModuleUnload(attn_kernel->module);\n"
        "    return result;\n}\n\n"
        "static inline CUresult %s_unload(struct %s_kernel *attn_kernel) {\n"
        "    return cuModuleUnload(attn_kernel->module);\n}\n\n",
        w->name, w->name);
}

/* X_workspace_bytes and X_workspace_clear. */
static void print_workspace(const struct writer *w) {
    struct strbuf *out = w->out;
    strbuf_printf(
        out,
        "/* Bytes of workspace for these sizes, 256-byte aligned; -1 when the sizes are\n"
        " * not valid. */\n"
        "static inline int64_t %s_workspace_bytes(const struct %s_kernel *attn_kernel,\n"
        "                                         const struct %s_args *attn_args) {\n",
        w->name, w->name, w->name);
    print_locals(w, "attn_kernel->sm_count");
    strbuf_append(out, "    int64_t attn_bytes = ");
    print_expr(w, &w->info->workspace_bytes);
    strbuf_printf(
        out,
        ";\n    return attn_bad || attn_bytes < 0 ? -1 : attn_bytes;\n}\n\n"
        "/* Zeroes what must be zero in a fresh workspace; again when sizes change. */\n"
        "static inline CUresult %s_workspace_clear(const struct %s_kernel *attn_kernel,\n"
        "                                          const struct %s_args *attn_args,\n"
        "                                          CUdeviceptr attn_workspace,\n"
        "                                          CUstream attn_stream) {\n",
        w->name, w->name, w->name);
    print_locals(w, "attn_kernel->sm_count");
    strbuf_append(out, "    int64_t attn_bytes = ");
    print_expr(w, &w->info->workspace_zeroed);
    strbuf_append(
        out,
        ";\n    if (attn_bad || attn_bytes < 0)\n"
        "        return CUDA_ERROR_INVALID_VALUE;\n"
        "    if (attn_bytes == 0)\n        return CUDA_SUCCESS;\n"
        "    return cuMemsetD8Async(attn_workspace, 0, (size_t)attn_bytes,\n"
        "                           attn_stream);\n}\n\n");
}

/* ---- Launch ------------------------------------------------------------ */

/* Sizes, group, alignment: what the kernel would answer with wrong numbers or a
 * fault. */
static void print_checks(const struct writer *w) {
    struct strbuf *out = w->out;
    strbuf_append(
        out,
        "    if (batch < 0 || heads < 0 || kv_heads < 0 || q_len < 0 || kv_len < 0");
    if (w->info->group > 0)
        strbuf_printf(out, " ||\n        heads != %d * kv_heads",
                      w->info->group);
    else
        strbuf_append(
            out,
            " ||\n        (heads > 0 && (kv_heads == 0 || heads % kv_heads != 0))");
    strbuf_append(out, ")\n        return CUDA_ERROR_INVALID_VALUE;\n"
                       "    if (batch == 0 || heads == 0 || q_len == 0)\n"
                       "        return CUDA_SUCCESS;\n");
    for (int i = 0; i <= KERNEL_TENSOR_O; i++) {
        const char *name = w->info->tensors[i].name;
        strbuf_printf(
            out,
            "    if (attn_args->%s.data %% 16 != 0 || attn_args->%s.stride[3] != 1 ||\n"
            "        ((attn_args->%s.stride[0] | attn_args->%s.stride[1] |\n"
            "          attn_args->%s.stride[2]) & 7) != 0)\n"
            "        return CUDA_ERROR_INVALID_VALUE;\n",
            name, name, name, name, name);
    }
}

/* A tensor map is a local variable, encoded on every launch. */
static void print_map(const struct writer *w, int index, size_t variable) {
    const struct kernel_tensor_map *map = &w->info->tensor_maps[index];
    const struct kernel_tensor *tensor = &w->info->tensors[map->tensor];
    bool keys =
        map->tensor == KERNEL_TENSOR_K || map->tensor == KERNEL_TENSOR_V;
    bool narrow =
        map->tensor == KERNEL_TENSOR_Q || map->tensor == KERNEL_TENSOR_K;
    strbuf_printf(
        w->out,
        "        __attribute__((aligned(64))) CUtensorMap attn_p%zu;\n"
        "        attn_result = attn_encode_map(&attn_p%zu, CU_TENSOR_MAP_DATA_TYPE_%s,\n"
        "            %s%s%s, attn_args->%s.stride,\n"
        "            batch, %s, %s, %d, %d, %d, %d, %d, CU_TENSOR_MAP_SWIZZLE_%dB);\n"
        "        if (attn_result != CUDA_SUCCESS)\n"
        "            return attn_result;\n",
        variable, variable,
        tensor->type == SCALAR_BF16 ? "BFLOAT16" : "FLOAT16",
        keys ? "kv_len > 0 ? attn_args->" : "attn_args->", tensor->name,
        keys ? ".data : attn_args->q.data" : ".data", tensor->name,
        keys ? "kv_heads" : "heads", keys ? "kv_len" : "q_len",
        narrow ? w->info->head_dim_qk : w->info->head_dim_v, map->panel_columns,
        map->heads, map->box_rows, map->panels, map->swizzle_bytes);
}

/* `attn_p3` is kernel parameter 3. */
static void print_param(const struct writer *w,
                        const struct kernel_param *param, size_t number) {
    struct strbuf *out = w->out;
    const struct kernel_info *info = w->info;
    switch (param->kind) {
    case KERNEL_PARAM_POINTER:
        strbuf_printf(out,
                      "        CUdeviceptr attn_p%zu = attn_args->%s.data;\n",
                      number, info->tensors[param->index].name);
        break;
    case KERNEL_PARAM_EXTENT:
        strbuf_printf(out, "        int32_t attn_p%zu = (int32_t)(", number);
        print_expr(w, &info->tensors[param->index].extents[param->axis]);
        strbuf_append(out, ");\n");
        break;
    case KERNEL_PARAM_STRIDE:
        strbuf_printf(out,
                      "        int64_t attn_p%zu = attn_args->%s.stride[%d];\n",
                      number, info->tensors[param->index].name, param->axis);
        break;
    case KERNEL_PARAM_SIZE:
        strbuf_printf(out, "        int32_t attn_p%zu = attn_args->%s;\n",
                      number, size_name_text((enum size_name)param->index));
        break;
    case KERNEL_PARAM_SCALAR:
        strbuf_printf(out, "        %s attn_p%zu = attn_args->%s;\n",
                      scalar_c_type(info->scalars[param->index].type), number,
                      info->scalars[param->index].name);
        break;
    case KERNEL_PARAM_WORKSPACE:
        strbuf_printf(
            out,
            "        CUdeviceptr attn_p%zu = attn_workspace + (CUdeviceptr)(",
            number);
        print_expr(w, &param->offset_expr);
        strbuf_append(out, ");\n");
        break;
    case KERNEL_PARAM_TENSOR_MAP:
        print_map(w, param->index, number);
        break;
    }
}

/* The call itself, its parameters being in attn_params. */
static void print_call(const struct writer *w, size_t index) {
    const struct kernel_entry *entry = &w->info->entries[index];
    if (entry->programmatic)
        strbuf_printf(
            w->out,
            "        attn_result = attn_launch_early(attn_kernel->entries[%zu], "
            "(unsigned)attn_grid, %d, %u,\n"
            "                                        attn_stream, attn_params, "
            "attn_kernel->early);\n",
            index, entry->threads, entry->shared_bytes);
    else
        strbuf_printf(
            w->out,
            "        attn_result = cuLaunchKernel(attn_kernel->entries[%zu], "
            "(unsigned)attn_grid, 1, 1,\n"
            "                                     %d, 1, 1, %u, attn_stream,\n"
            "                                     attn_params, NULL);\n",
            index, entry->threads, entry->shared_bytes);
}

static const char refuse_bad[] =
    "    if (attn_bad || attn_grid < 0 || attn_grid > INT32_MAX)\n"
    "        return CUDA_ERROR_INVALID_VALUE;\n";

/* One launch in a block of its own; of an empty grid nothing is prepared. */
static void print_entry(const struct writer *w, size_t index) {
    const struct kernel_entry *entry = &w->info->entries[index];
    struct strbuf *out = w->out;
    strbuf_printf(out, "    /* %s */\n    attn_grid = ", entry->name);
    print_expr(w, &entry->grid_x);
    strbuf_printf(out, ";\n%s    if (attn_grid > 0) {\n", refuse_bad);
    for (size_t p = 0; p < entry->param_count; p++)
        print_param(w, &entry->params[p], p);
    strbuf_append(out, "        void *attn_params[] = {");
    for (size_t p = 0; p < entry->param_count; p++)
        strbuf_printf(out, "%s&attn_p%zu",
                      p == 0       ? ""
                      : p % 6 == 0 ? ",\n            "
                                   : ", ",
                      p);
    strbuf_printf(out,
                  "%s};\n        if (attn_bad)\n"
                  "            return CUDA_ERROR_INVALID_VALUE;\n",
                  entry->param_count == 0 ? "NULL" : "");
    print_call(w, index);
    strbuf_append(out, "        if (attn_result != CUDA_SUCCESS)\n"
                       "            return attn_result;\n    }\n");
}

static void print_launch(const struct writer *w) {
    strbuf_printf(
        w->out,
        "/* Launches on the stream; neither allocates nor waits.  The workspace may be\n"
        " * 0 when %s_workspace_bytes is 0.  CUDA_ERROR_INVALID_VALUE: sizes, alignment\n"
        " * or strides that the kernel cannot take. */\n"
        "static inline CUresult %s_launch(const struct %s_kernel *attn_kernel,\n"
        "                                 const struct %s_args *attn_args,\n"
        "                                 CUdeviceptr attn_workspace,\n"
        "                                 CUstream attn_stream) {\n",
        w->name, w->name, w->name, w->name);
    print_locals(w, "attn_kernel->sm_count");
    strbuf_append(
        w->out,
        "    CUresult attn_result = CUDA_SUCCESS;\n    int64_t attn_grid = 0;\n"
        "    (void)attn_workspace;\n");
    print_checks(w);
    for (size_t i = 0; i < w->info->entry_count; i++)
        print_entry(w, i);
    strbuf_append(w->out, "    return attn_result;\n}\n\n");
}

void header_write(const struct kernel_info *info, const void *cubin,
                  size_t cubin_size, const char *origin, struct strbuf *out) {
    struct arena *arena = arena_create();
    struct kernel_info named = with_c_names(arena, info);
    struct writer w = {&named, info->name, out};
    print_head(&w, origin);
    strbuf_printf(
        out,
        "#ifndef ATTN_HEADER_%s\n#define ATTN_HEADER_%s\n\n#include <cuda.h>\n"
        "#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n\n",
        w.name, w.name);
    strbuf_append(out, helpers);
    if (has_programmatic(&w))
        strbuf_append(out, launch_helper);
    if (info->tensor_map_count > 0)
        strbuf_append(out, map_helper);
    print_cubin(&w, cubin, cubin_size);
    print_structs(&w);
    print_init(&w);
    print_load(&w);
    print_workspace(&w);
    print_launch(&w);
    strbuf_append(out, "#endif\n");
    arena_destroy(arena);
}
