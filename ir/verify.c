/* Our part of the verifier: see verify.h.  One function per op, in one
 * table. */
#include "ir/verify.h"

#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/Diagnostics.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/verify_private.h"
#include "ir/walk.h"

bool verify_fail(struct verifier *v, MlirOperation op, const char *format,
                 ...) {
    char text[256], message[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(message, sizeof message, "'%s' op %s", ir_op_name(op), text);
    mlirEmitError(mlirOperationGetLocation(op), message);
    v->good = false;
    return false;
}

static MlirType operand_type(MlirOperation op, size_t i) {
    return mlirValueGetType(ir_operand(op, i));
}

static MlirType result_type(MlirOperation op, size_t i) {
    return mlirValueGetType(ir_result(op, i));
}

static bool same(MlirType a, MlirType b) {
    return mlirTypeEqual(a, b);
}

static bool is_half(MlirType type) {
    return ir_is_float(type) && ir_element_bits(type) == 16;
}

/* ---- Shapes -------------------------------------------------------------- */

/* Rows, columns: -1 for any. */
static bool want_vector(struct verifier *v, MlirOperation op, const char *what,
                        MlirType type, int64_t rows, int64_t columns,
                        bool f32) {
    if (!ir_is_vector(type) || ir_rank(type) != 2)
        return fail(v, op, "%s must be a vector of rank 2", what);
    if ((rows >= 0 && ir_rows(type) != rows) ||
        (columns >= 0 && ir_columns(type) != columns))
        return fail(v, op, "%s is %lldx%lld, expected %lldx%lld", what,
                    (long long)ir_rows(type), (long long)ir_columns(type),
                    (long long)(rows >= 0 ? rows : ir_rows(type)),
                    (long long)(columns >= 0 ? columns : ir_columns(type)));
    if (f32 && !ir_is_f32(type))
        return fail(v, op, "%s must hold f32", what);
    return true;
}

/* A tile or buffer in shared memory; its place needs static extents. */
static bool want_shared(struct verifier *v, MlirOperation op, const char *what,
                        MlirType type, int rank) {
    if (!ir_is_shared(type) || ir_rank(type) != rank)
        return fail(v, op, "%s must be a shared memref of rank %d", what, rank);
    for (int i = 0; i < rank; i++)
        if (ir_extent(type, i) <= 0)
            return fail(v, op, "%s must have static extents", what);
    return true;
}

/* A tensor, or a workspace. */
static bool want_global(struct verifier *v, MlirOperation op, const char *what,
                        MlirType type, int rank) {
    if (!ir_is_memref(type) || ir_is_shared(type) || ir_rank(type) != rank)
        return fail(v, op, "%s must be a global memref of rank %d", what, rank);
    return true;
}

/* ---- Ops ----------------------------------------------------------------- */

/* language.md: head_dim is a multiple of 8 from 8 to 256. */
static bool check_qkvo(struct verifier *v, MlirOperation op, const char *what,
                       MlirType type) {
    if (!want_global(v, op, what, type, 4))
        return false;
    int64_t dim = ir_extent(type, 3);
    if (dim < 8 || dim > 256 || dim % 8 != 0)
        return fail(v, op,
                    "%s has head dimension %lld, expected a multiple of 8 from "
                    "8 to 256",
                    what, (long long)dim);
    return is_half(type) || fail(v, op, "%s must hold f16 or bf16", what);
}

/* A function that an attention names: `leading` scalars (f32 first where it
 * takes s), then the kernel's arguments behind lse, at least the first of
 * them. */
static bool check_callee(struct verifier *v, MlirOperation op, const char *attr,
                         size_t leading, size_t results) {
    const char *name = ir_text_attr(op, attr);
    if (!name)
        return !ir_has_attr(op, attr) ||
               fail(v, op, "%s must be a symbol", attr);
    MlirOperation func = ir_find_func(v->module, name);
    if (mlirOperationIsNull(func))
        return fail(v, op, "%s names '%s', which is no function", attr, name);
    MlirType type = mlirTypeAttrGetValue(
        mlirOperationGetAttributeByName(func, ir_ref("function_type")));
    if ((size_t)mlirFunctionTypeGetNumResults(type) != results)
        return fail(v, op, "%s function '%s' must return %zu values", attr,
                    name, results);
    MlirOperation kernel = mlirOperationGetParentOperation(op);
    size_t count = ir_func_arg_count(func),
           shared = ir_func_arg_count(kernel) - 5;
    if (count < leading || count - leading > shared)
        return fail(v, op,
                    "%s function '%s' has %zu arguments, expected %zu to %zu",
                    attr, name, count, leading, leading + shared);
    for (size_t i = leading; i < count; i++)
        if (!same(mlirFunctionTypeGetInput(type, (intptr_t)i),
                  mlirValueGetType(ir_func_arg(kernel, i - leading + 5))))
            return fail(
                v, op,
                "%s function '%s': argument %zu differs from the kernel's",
                attr, name, i);
    return true;
}

/* Passes find the sizes by position: behind lse, in the order of enum
 * size_name. */
static bool check_sizes(struct verifier *v, MlirOperation op) {
    MlirOperation kernel = mlirOperationGetParentOperation(op);
    for (int i = 0; i < SIZE_COUNT; i++) {
        const char *size = size_name_text((enum size_name)i);
        size_t at = 5 + (size_t)i;
        const char *kind = at < ir_func_arg_count(kernel)
                               ? ir_func_arg_kind(kernel, at)
                               : NULL;
        if (!kind || strncmp(kind, "size:", 5) != 0 ||
            strcmp(kind + 5, size) != 0)
            return fail(v, op, "argument %zu of its function must be size:%s",
                        at, size);
    }
    return true;
}

/* Operands, group, and the functions that it names. */
static bool check_attention(struct verifier *v, MlirOperation op) {
    static const char *const names[] = {"q", "k", "v", "o"};
    if (!ir_is_op(mlirOperationGetParentOperation(op), "func.func"))
        return fail(v, op, "must stand in a function");
    for (size_t i = 0; i < 4; i++)
        if (!check_qkvo(v, op, names[i], operand_type(op, i)))
            return false;
    if (!same(ir_element_type(operand_type(op, 0)),
              ir_element_type(operand_type(op, 2))))
        return fail(v, op, "q and v must have one element type");
    if (!want_global(v, op, "lse", operand_type(op, 4), 3) ||
        !ir_is_f32(operand_type(op, 4)))
        return fail(v, op, "lse must hold f32");
    if (ir_int_attr(op, "group", -1) < 0)
        return fail(v, op, "group must not be negative");
    return check_callee(v, op, "mask", 5, 1) &&
           check_callee(v, op, "score", 6, 1) &&
           check_callee(v, op, "classify", 7, 2) &&
           check_callee(v, op, "kv_bounds", 5, 2) && check_sizes(v, op);
}

/* Indices of scalars, rows, columns and tiles that broadcast to one shape. */
static bool check_read(struct verifier *v, MlirOperation op) {
    MlirType tensor = operand_type(op, 0), result = result_type(op, 0);
    size_t count = ir_operand_count(op) - 1;
    if (!want_global(v, op, "tensor", tensor, (int)count))
        return false;
    MlirType shape = ir_type_i32(mlirOperationGetContext(op));
    for (size_t i = 0; i < count; i++) {
        MlirType index = operand_type(op, i + 1);
        if (!ir_is_i32(index) || (ir_is_vector(index) && ir_rank(index) != 2))
            return fail(v, op, "index %zu must be i32, scalar or of rank 2", i);
        int64_t rows = ir_rows(index), columns = ir_columns(index);
        if ((rows > 1 && ir_rows(shape) > 1 && rows != ir_rows(shape)) ||
            (columns > 1 && ir_columns(shape) > 1 &&
             columns != ir_columns(shape)))
            return fail(v, op, "index %zu does not fit the shape of the others",
                        i);
        shape = ir_join_shapes(shape, index);
    }
    unsigned bits = ir_element_bits(tensor);
    bool element_fits = ir_is_float(tensor) ? ir_is_f32(result)
                        : bits == 8         ? ir_is_bool(result)
                                            : bits == 32 && ir_is_i32(result);
    if (!element_fits)
        return fail(v, op, "gives f32 for floats, i1 for i8, i32 for i32");
    return same(
               ir_with_element(result, ir_type_i32(mlirTypeGetContext(result))),
               shape) ||
           fail(v, op, "result must have the joined shape of the indices");
}

/* A shared tile that takes rows of a global tensor, columns padded to 16. */
static bool check_tile_of(struct verifier *v, MlirOperation op, MlirType src,
                          MlirType tile) {
    if (!want_global(v, op, "source", src, 4) ||
        !want_shared(v, op, "tile", tile, 2))
        return false;
    int64_t dim = ir_extent(src, 3), columns = ir_extent(tile, 1);
    if (!same(ir_element_type(src), ir_element_type(tile)))
        return fail(v, op, "source and tile must have one element type");
    return (columns >= dim && columns - dim < 16) ||
           fail(v, op, "tile has %lld columns for a head dimension of %lld",
                (long long)columns, (long long)dim);
}

bool verify_packed(struct verifier *v, MlirOperation op, int64_t rows) {
    int heads = ir_packed_heads(op);
    if (heads >= 1 && (heads & (heads - 1)) == 0 && rows % heads == 0)
        return true;
    return fail(v, op,
                "pack_gqa must be a power of two that divides the %lld rows, "
                "it is %d",
                (long long)rows, heads);
}

static bool check_load(struct verifier *v, MlirOperation op) {
    MlirType tile = result_type(op, 0);
    return check_tile_of(v, op, operand_type(op, 0), tile) &&
           verify_packed(v, op, ir_extent(tile, 0));
}

static bool check_copy_async(struct verifier *v, MlirOperation op) {
    MlirType tile = operand_type(op, 5);
    return check_tile_of(v, op, operand_type(op, 0), tile) &&
           verify_packed(v, op, ir_extent(tile, 0));
}

/* Operand shapes; the sizes that mma.sync can take. */
static bool check_dot(struct verifier *v, MlirOperation op) {
    MlirType a = operand_type(op, 0), b = operand_type(op, 1),
             acc = operand_type(op, 2);
    if (!want_vector(v, op, "accumulator", acc, -1, -1, true) ||
        !want_shared(v, op, "b", b, 2))
        return false;
    if (ir_is_memref(a) ? !want_shared(v, op, "a", a, 2)
                        : !want_vector(v, op, "a", a, -1, -1, false))
        return false;
    if (!is_half(a) || !same(ir_element_type(a), ir_element_type(b)))
        return fail(v, op, "a and b must hold the same 16-bit float type");
    bool transposed = ir_has_attr(op, "transpose_b");
    int64_t m = ir_extent(a, 0), k = ir_extent(a, 1);
    int64_t n = ir_extent(b, transposed ? 0 : 1),
            k_b = ir_extent(b, transposed ? 1 : 0);
    if (k != k_b || m != ir_rows(acc) || n != ir_columns(acc))
        return fail(
            v, op,
            "shapes do not fit: %lldx%lld times %lldx%lld into %lldx%lld",
            (long long)m, (long long)k, (long long)k_b, (long long)n,
            (long long)ir_rows(acc), (long long)ir_columns(acc));
    /* `pipeline` pads K to the 16 of the MMA. */
    return (k % 8 == 0 && n % 8 == 0 && m % 16 == 0) ||
           fail(v, op,
                "M must be a multiple of 16, K and N of 8; they are %lld, "
                "%lld, %lld",
                (long long)m, (long long)k, (long long)n);
}

static bool check_fragments(struct verifier *v, MlirOperation op) {
    MlirType from = operand_type(op, 0), to = result_type(op, 0);
    if (!want_shared(v, op, "tile", from, 2))
        return false;
    if (!is_half(from) || !same(ir_element_type(from), ir_element_type(to)))
        return fail(v, op,
                    "tile and result must hold the same 16-bit float type");
    return want_vector(v, op, "result", to, ir_extent(from, 0),
                       ir_extent(from, 1), false);
}

static bool check_softmax_step(struct verifier *v, MlirOperation op) {
    MlirType acc = operand_type(op, 0), s = operand_type(op, 3),
             value = operand_type(op, 4);
    if (!want_vector(v, op, "acc", acc, -1, -1, true))
        return false;
    int64_t rows = ir_rows(acc);
    if (!want_vector(v, op, "m", operand_type(op, 1), rows, 1, true) ||
        !want_vector(v, op, "l", operand_type(op, 2), rows, 4, true) ||
        !want_vector(v, op, "s", s, rows, -1, true) ||
        !want_shared(v, op, "v", value, 2))
        return false;
    return (ir_extent(value, 0) == ir_columns(s) &&
            ir_extent(value, 1) == ir_columns(acc)) ||
           fail(v, op, "v is %lldx%lld, expected %lldx%lld",
                (long long)ir_extent(value, 0), (long long)ir_extent(value, 1),
                (long long)ir_columns(s), (long long)ir_columns(acc));
}

static bool check_softmax_finish(struct verifier *v, MlirOperation op) {
    MlirType acc = operand_type(op, 0);
    return want_vector(v, op, "acc", acc, -1, -1, true) &&
           want_vector(v, op, "m", operand_type(op, 1), ir_rows(acc), 1,
                       true) &&
           want_vector(v, op, "l", operand_type(op, 2), ir_rows(acc), 4, true);
}

static bool check_mul_rp(struct verifier *v, MlirOperation op) {
    return ir_is_f32(result_type(op, 0)) || fail(v, op, "takes f32");
}

static bool check_partial_sum(struct verifier *v, MlirOperation op) {
    MlirType p = operand_type(op, 0);
    return want_vector(v, op, "p", p, -1, -1, true) &&
           want_vector(v, op, "l", operand_type(op, 1), ir_rows(p), 4, true);
}

/* Is the attribute a list of this many i32 or f32? */
static bool is_list(MlirOperation op, const char *name, bool f32,
                    intptr_t least, intptr_t most) {
    MlirAttribute list = mlirOperationGetAttributeByName(op, ir_ref(name));
    bool typed = f32 ? mlirAttributeIsADenseF32Array(list)
                     : mlirAttributeIsADenseI32Array(list);
    return typed && mlirDenseArrayGetNumElements(list) >= least &&
           mlirDenseArrayGetNumElements(list) <= most;
}

static bool check_exp2_split(struct verifier *v, MlirOperation op) {
    MlirType x = operand_type(op, 0);
    int64_t count = ir_columns(x) / 4, last = -1;
    if (!want_vector(v, op, "x", x, -1, -1, true))
        return false;
    if (!is_list(op, "coefficients", true, 4, IR_EXP2_COEFFICIENTS))
        return fail(v, op, "coefficients must be 4 to %d f32",
                    IR_EXP2_COEFFICIENTS);
    if (!is_list(op, "units", false, 1, count))
        return fail(v, op, "units must be 1 to %lld i32", (long long)count);
    MlirAttribute units = mlirOperationGetAttributeByName(op, ir_ref("units"));
    for (intptr_t i = 0; i < mlirDenseArrayGetNumElements(units); i++) {
        int64_t unit = mlirDenseI32ArrayGetElement(units, i);
        if (unit <= last || unit >= count)
            return fail(v, op, "unit %lld: units must ascend from 0 to %lld",
                        (long long)unit, (long long)count - 1);
        last = unit;
    }
    return true;
}

/* O: 16-bit tile to rank 4; LSE: f32 rows to rank 3. */
static bool check_store(struct verifier *v, MlirOperation op) {
    MlirType value = operand_type(op, 0), dst = operand_type(op, 1);
    if (!want_vector(v, op, "value", value, -1, -1, false))
        return false;
    if (!same(ir_element_type(value), ir_element_type(dst)))
        return fail(v, op, "value and destination must have one element type");
    if (!verify_packed(v, op, ir_extent(value, 0)))
        return false;
    if (ir_is_f32(value))
        return want_vector(v, op, "value", value, -1, 1, true) &&
               want_global(v, op, "destination", dst, 3);
    if (!want_global(v, op, "destination", dst, 4))
        return false;
    return is_half(value) ? want_vector(v, op, "value", value, -1,
                                        ir_extent(dst, 3), false)
                          : fail(v, op, "value must hold f16, bf16 or f32");
}

static bool check_warp_reduce(struct verifier *v, MlirOperation op) {
    static const char *const kinds[] = {"minsi", "maxsi",   "ori",
                                        "andi",  "minnumf", "maxnumf"};
    const char *kind = ir_text_attr(op, "kind");
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0)
            return (i >= 4) == ir_is_f32(operand_type(op, 0)) ||
                   fail(v, op, "kind '%s' does not take this type", kind);
    return fail(v, op,
                "kind must be minsi, maxsi, minnumf, maxnumf, ori or andi");
}

/* Bytes from byte_offset on that a buffer needs; 0 for a faulty one. */
static int64_t shared_bytes(MlirOperation op) {
    MlirType type = result_type(op, 0);
    int rank = ir_rank(type);
    if (rank == 1)
        return ir_extent(type, 0) * (ir_element_bits(type) / 8);
    if (ir_has_attr(op, "swizzle_bytes"))
        return verify_panel_bytes(op);
    int64_t rows =
        ir_extent(type, rank - 2) * (rank == 3 ? ir_extent(type, 0) : 1);
    return rows * ir_int_attr(op, "pitch", 0) * 16;
}

static bool check_shared(struct verifier *v, MlirOperation op) {
    MlirType type = result_type(op, 0);
    int rank = ir_rank(type);
    int64_t offset = ir_int_attr(op, "byte_offset", -1);
    if (rank < 1 || rank > 3 || !want_shared(v, op, "buffer", type, rank))
        return fail(v, op, "must give a shared memref of rank 1 to 3");
    if (offset < 0 || offset % 16 != 0)
        return fail(v, op, "byte_offset is %lld, expected a multiple of 16",
                    (long long)offset);
    if (rank == 1)
        return !ir_has_attr(op, "pitch") ||
               fail(v, op, "a list has no pitch and no swizzle");
    if (ir_has_attr(op, "swizzle_bytes"))
        return verify_panels(v, op);
    int64_t pitch = ir_int_attr(op, "pitch", -1),
            bits = ir_int_attr(op, "swizzle_bits", -1);
    int64_t shift = ir_int_attr(op, "swizzle_shift", -1);
    int64_t bytes = ir_extent(type, rank - 1) * (ir_element_bits(type) / 8);
    if (pitch * 16 < bytes)
        return fail(v, op, "pitch of %lld chunks for rows of %lld bytes",
                    (long long)pitch, (long long)bytes);
    if (bits < 0 || bits > 3 || shift < 0 || shift > 7 ||
        ((int64_t)1 << bits) > pitch)
        return fail(
            v, op,
            "swizzle of %lld bits, shift %lld does not fit a pitch of %lld",
            (long long)bits, (long long)shift, (long long)pitch);
    return true;
}

static bool check_stage(struct verifier *v, MlirOperation op) {
    MlirType from = operand_type(op, 0), to = result_type(op, 0);
    if (!want_shared(v, op, "buffer", from, 3) ||
        !want_shared(v, op, "tile", to, 2))
        return false;
    return (ir_extent(from, 1) == ir_extent(to, 0) &&
            ir_extent(from, 2) == ir_extent(to, 1) &&
            same(ir_element_type(from), ir_element_type(to))) ||
           fail(v, op, "tile must be one stage of the buffer");
}

static bool check_wait_group(struct verifier *v, MlirOperation op) {
    int64_t pending = ir_int_attr(op, "pending", -1);
    return (pending >= 0 && pending < 16) ||
           fail(v, op, "pending is %lld, expected 0 to 15", (long long)pending);
}

/* ---- Kernels ------------------------------------------------------------- */

/* Does the type of an argument fit its attn.arg? */
static bool argument_fits(const char *kind, MlirType type) {
    MlirContext context = mlirTypeGetContext(type);
    if (strlen(kind) == 1 && strchr("qkvo", kind[0]))
        return ir_is_memref(type) && ir_rank(type) == 4 && is_half(type);
    if (strcmp(kind, "lse") == 0)
        return ir_is_memref(type) && ir_rank(type) == 3 && ir_is_f32(type);
    if (strncmp(kind, "size:", 5) == 0)
        return same(type, ir_type_i32(context));
    if (strncmp(kind, "param:", 6) == 0)
        return same(type, ir_type_i32(context)) ||
               same(type, ir_type_f32(context)) ||
               same(type, ir_type_i1(context));
    if (strncmp(kind, "tensor:", 7) == 0)
        return ir_is_memref(type) && ir_rank(type) <= KERNEL_MAX_RANK;
    if (strncmp(kind, "workspace:", 10) == 0)
        return same(type, ir_type_workspace(ir_type_i32(context))) ||
               same(type, ir_type_workspace(ir_type_f32(context)));
    return false;
}

static bool check_arguments(struct verifier *v, MlirOperation func,
                            bool is_kernel) {
    for (size_t i = 0; i < ir_func_arg_count(func); i++) {
        const char *kind = ir_func_arg_kind(func, i);
        if (!kind && is_kernel)
            return fail(v, func, "argument %zu of a kernel lacks attn.arg", i);
        if (kind &&
            !argument_fits(kind, mlirValueGetType(ir_func_arg(func, i))))
            return fail(v, func,
                        "argument %zu does not fit attn.arg = \"%.80s\"", i,
                        kind);
    }
    return true;
}

struct buffers {
    struct verifier *v;
    int64_t limit;
};

static void check_buffer(void *data, MlirOperation op) {
    struct buffers *buffers = data;
    if (!ir_is_op(op, "attn.shared"))
        return;
    int64_t end = ir_int_attr(op, "byte_offset", 0) + shared_bytes(op);
    if (end > buffers->limit)
        fail(buffers->v, op, "ends at byte %lld, attn.shared_bytes is %lld",
             (long long)end, (long long)buffers->limit);
}

/* Kernels: attributes and arguments; declarations: extern functions only. */
static bool check_func(struct verifier *v, MlirOperation func) {
    const char *kind = ir_kernel_kind(func);
    int m, n, warps = ir_kernel_warps(func);
    if (ir_has_attr(func, "attn.extern"))
        return mlirBlockIsNull(ir_region_block(func, 0)) ||
               fail(v, func, "an extern function has no body");
    if (mlirBlockIsNull(ir_region_block(func, 0)))
        return fail(v, func, "only extern functions may lack a body");
    if (!check_arguments(v, func, kind != NULL))
        return false;
    bool tiled = ir_kernel_tile(func, &m, &n);
    if (tiled && (m <= 0 || m % 16 != 0 || n <= 0 || n % 8 != 0))
        return fail(v, func,
                    "attn.tile is %d, %d, expected multiples of 16 and 8", m,
                    n);
    if (!kind)
        return true;
    if (strcmp(kind, "main") != 0 && strcmp(kind, "summary") != 0)
        return fail(v, func,
                    "attn.kernel is \"%.80s\", expected main or summary", kind);
    if (warps < 1 || warps > 32)
        return fail(v, func, "attn.warps is %d, expected 1 to 32", warps);
    struct buffers buffers = {v, ir_kernel_shared_bytes(func)};
    if (ir_has_attr(func, "attn.shared_bytes"))
        ir_walk(func, check_buffer, &buffers);
    return v->good;
}

/* ---- The table ----------------------------------------------------------- */

static const struct verify_rule checks[] = {
    {"func.func", check_func},
    {"attn.attention", check_attention},
    {"attn.read", check_read},
    {"attn.load", check_load},
    {"attn.dot", check_dot},
    {"attn.fragments", check_fragments},
    {"attn.softmax_step", check_softmax_step},
    {"attn.softmax_finish", check_softmax_finish},
    {"attn.mul_rp", check_mul_rp},
    {"attn.partial_sum", check_partial_sum},
    {"attn.exp2_split", check_exp2_split},
    {"attn.store", check_store},
    {"attn.warp_reduce", check_warp_reduce},
    {"attn.shared", check_shared},
    {"attn.stage", check_stage},
    {"attn.copy_async", check_copy_async},
    {"attn.wait_group", check_wait_group},
};

static void check_op(void *data, MlirOperation op) {
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (ir_is_op(op, checks[i].name)) {
            checks[i].check(data, op);
            return;
        }
    for (const struct verify_rule *rule = verify_sm90_rules; rule->name; rule++)
        if (ir_is_op(op, rule->name)) {
            rule->check(data, op);
            return;
        }
}

bool ir_verify(MlirOperation module) {
    if (!mlirOperationVerify(module))
        return false;
    struct verifier verifier = {module, true};
    ir_walk(module, check_op, &verifier);
    return verifier.good;
}
