/* Rules of the ops of asynchronous kernels that IRDL cannot say: shapes, places
 * in shared memory, barrier numbers (docs/ir.md, "Asynchronous kernels").
 *
 * Not here: that every wait meets its arrivals; the emulator finds that. */
#include "ir/verify_private.h"

#include <string.h>

#include "ir/walk.h"

static MlirType operand_type(MlirOperation op, size_t i) {
    return mlirValueGetType(ir_operand(op, i));
}

static MlirType result_type(MlirOperation op, size_t i) {
    return mlirValueGetType(ir_result(op, i));
}

static bool is_half(MlirType type) {
    return ir_is_float(type) && ir_element_bits(type) == 16;
}

/* ---- Shared memory ------------------------------------------------------- */

int64_t verify_panel_bytes(MlirOperation op) {
    MlirType type = result_type(op, 0);
    int rank = ir_rank(type);
    int64_t row = ir_extent(type, rank - 1) * (ir_element_bits(type) / 8);
    return ir_extent(type, rank - 2) * (rank == 3 ? ir_extent(type, 0) : 1) *
           row;
}

bool verify_panels(struct verifier *v, MlirOperation op) {
    MlirType type = result_type(op, 0);
    int64_t width = ir_int_attr(op, "swizzle_bytes", 0);
    if (width != 128 && width != 64 && width != 32)
        return fail(v, op, "swizzle_bytes is %lld, expected 128, 64 or 32",
                    (long long)width);
    if (ir_has_attr(op, "pitch"))
        return fail(v, op, "panels have no pitch");
    if (ir_int_attr(op, "byte_offset", 0) % 1024 != 0)
        return fail(v, op, "byte_offset of panels must be a multiple of 1024");
    if (!is_half(type) || ir_extent(type, ir_rank(type) - 2) % 8 != 0)
        return fail(v, op, "panels hold 16-bit floats in a multiple of 8 rows");
    if (ir_extent(type, ir_rank(type) - 1) * 2 % width != 0)
        return fail(
            v, op, "rows of %lld columns are no whole panels of %lld bytes",
            (long long)ir_extent(type, ir_rank(type) - 1), (long long)width);
    return true;
}

static bool want_mbarriers(struct verifier *v, MlirOperation op,
                           MlirType type) {
    return (ir_is_shared(type) && ir_rank(type) == 1 &&
            ir_element_bits(type) == 64) ||
           fail(v, op, "takes mbarriers, a shared memref of rank 1 of i64");
}

static bool check_mbarriers(struct verifier *v, MlirOperation op) {
    int64_t offset = ir_int_attr(op, "byte_offset", -1);
    if (!want_mbarriers(v, op, result_type(op, 0)))
        return false;
    if (offset < 0 || offset % 8 != 0)
        return fail(v, op, "byte_offset is %lld, expected a multiple of 8",
                    (long long)offset);
    int64_t arrivals = ir_int_attr(op, "arrivals", 0);
    return (arrivals >= 1 && arrivals < 1 << 20) ||
           fail(v, op, "%lld arrivals, expected 1 to 2^20 - 1",
                (long long)arrivals);
}

static bool check_mbarrier_use(struct verifier *v, MlirOperation op) {
    int64_t index, count = ir_extent(operand_type(op, 0), 0);
    if (!want_mbarriers(v, op, operand_type(op, 0)))
        return false;
    if (ir_operand_count(op) > 1 &&
        ir_constant_int(ir_operand(op, 1), &index) &&
        (index < 0 || index >= count))
        return fail(v, op, "index %lld of %lld mbarriers", (long long)index,
                    (long long)count);
    int64_t bytes = ir_int_attr(op, "bytes", 0);
    return (bytes >= 0 && bytes < 1 << 20) ||
           fail(v, op, "%lld bytes, an mbarrier counts to 2^20 - 1",
                (long long)bytes);
}

/* ---- Copies and products ------------------------------------------------- */

/* A TMA copy between a tensor and a tile. */
static bool check_tma(struct verifier *v, MlirOperation op, MlirType tensor,
                      MlirType tile) {
    if (!ir_is_memref(tensor) || ir_is_shared(tensor) || ir_rank(tensor) != 4)
        return fail(v, op, "tensor must be a global memref of rank 4");
    if (!ir_is_shared(tile) || ir_rank(tile) != 2 || ir_extent(tile, 0) > 256)
        return fail(
            v, op,
            "tile must be a shared memref of rank 2 with at most 256 rows");
    if (ir_extent(tile, 1) != ir_extent(tensor, 3))
        return fail(v, op, "tile has %lld columns for a head dimension of %lld",
                    (long long)ir_extent(tile, 1),
                    (long long)ir_extent(tensor, 3));
    return verify_packed(v, op, ir_extent(tile, 0));
}

static bool check_tma_load(struct verifier *v, MlirOperation op) {
    return check_tma(v, op, operand_type(op, 0), operand_type(op, 4)) &&
           want_mbarriers(v, op, operand_type(op, 5));
}

static bool check_tma_store(struct verifier *v, MlirOperation op) {
    return check_tma(v, op, operand_type(op, 1), operand_type(op, 0));
}

static bool check_stmatrix(struct verifier *v, MlirOperation op) {
    MlirType value = operand_type(op, 0), dst = operand_type(op, 1);
    if (!ir_is_shared(dst) || ir_rank(dst) != 2 || ir_rank(value) != 2)
        return fail(v, op, "takes a tile and a shared memref of rank 2");
    if (!is_half(value) ||
        !mlirTypeEqual(ir_element_type(value), ir_element_type(dst)))
        return fail(v, op, "both tiles must hold the same 16-bit float type");
    return (ir_rows(value) == ir_extent(dst, 0) && ir_rows(value) == 64 &&
            ir_columns(value) == ir_extent(dst, 1)) ||
           fail(v, op,
                "a tile of %lldx%lld into one of %lldx%lld, expected 64 rows",
                (long long)ir_rows(value), (long long)ir_columns(value),
                (long long)ir_extent(dst, 0), (long long)ir_extent(dst, 1));
}

static bool check_wgmma(struct verifier *v, MlirOperation op) {
    MlirType a = operand_type(op, 0), b = operand_type(op, 1),
             acc = operand_type(op, 2);
    bool transposed = ir_has_attr(op, "transpose_b");
    if (!ir_is_shared(b) || ir_rank(b) != 2 || ir_rank(a) != 2 ||
        (ir_is_memref(a) && !ir_is_shared(a)))
        return fail(v, op, "a is a shared tile or a vector, b a shared tile");
    if (!is_half(a) || !mlirTypeEqual(ir_element_type(a), ir_element_type(b)) ||
        !ir_is_f32(acc))
        return fail(v, op,
                    "a and b must hold the same 16-bit float type, acc f32");
    int64_t n = ir_extent(b, transposed ? 0 : 1),
            k = ir_extent(b, transposed ? 1 : 0);
    if (ir_extent(a, 0) != 64 || ir_rows(acc) != 64 || ir_columns(acc) != n ||
        ir_extent(a, 1) != k)
        return fail(
            v, op,
            "shapes do not fit: %lldx%lld times %lldx%lld into %lldx%lld",
            (long long)ir_extent(a, 0), (long long)ir_extent(a, 1),
            (long long)k, (long long)n, (long long)ir_rows(acc),
            (long long)ir_columns(acc));
    if (!ir_is_memref(a) && k % 16 != 0)
        return fail(v, op, "K must be a multiple of 16, it is %lld",
                    (long long)k);
    return (n % 8 == 0 && n <= 256) ||
           fail(v, op, "N must be a multiple of 8 up to 256, it is %lld",
                (long long)n);
}

static bool check_wgmma_wait(struct verifier *v, MlirOperation op) {
    int64_t pending = ir_int_attr(op, "pending", -1);
    return (pending >= 0 && pending < 8) ||
           fail(v, op, "pending is %lld, expected 0 to 7", (long long)pending);
}

/* ---- Roles and votes ----------------------------------------------------- */

/* Registers a thread, over the warpgroups of a CTA: one gave some back, the
 * others take what they ask for, or wait for it forever. */
struct register_pool {
    int64_t producer, consumer;
};

static void add_request(void *data, MlirOperation op) {
    struct register_pool *pool = data;
    if (!ir_is_op(op, "attn.set_max_registers"))
        return;
    const char *action = ir_text_attr(op, "action");
    bool increase = action && strcmp(action, "increase") == 0;
    *(increase ? &pool->consumer : &pool->producer) =
        ir_int_attr(op, "count", 0);
}

static bool check_register_pool(struct verifier *v, MlirOperation op) {
    MlirOperation func = op;
    while (!ir_is_op(func, "func.func"))
        func = mlirOperationGetParentOperation(func);
    int64_t groups = ir_kernel_warps(func) / 4;
    struct register_pool pool = {0, 0};
    ir_walk(func, add_request, &pool);
    if (groups < 2 || pool.producer == 0 || pool.consumer == 0)
        return true;
    int64_t start = 65536 / (128 * groups) / 8 * 8;
    int64_t have = groups * (start < 256 ? start : 256);
    int64_t want = pool.producer + (groups - 1) * pool.consumer;
    return want <= have ||
           fail(v, op,
                "%lld warpgroups with %lld registers a thread and one with "
                "%lld want %lld, the CTA has %lld",
                (long long)(groups - 1), (long long)pool.consumer,
                (long long)pool.producer, (long long)want, (long long)have);
}

static bool check_set_max_registers(struct verifier *v, MlirOperation op) {
    int64_t count = ir_int_attr(op, "count", 0);
    if (count < 24 || count > 256 || count % 8 != 0)
        return fail(v, op,
                    "count is %lld, expected a multiple of 8 from 24 to 256",
                    (long long)count);
    return check_register_pool(v, op);
}

static bool check_named_barrier(struct verifier *v, MlirOperation op) {
    int64_t id, threads = ir_int_attr(op, "threads", 0);
    if (ir_constant_int(ir_operand(op, 0), &id) && (id < 1 || id > 15))
        return fail(v, op, "barrier %lld, expected 1 to 15", (long long)id);
    return (threads > 0 && threads <= 1024 && threads % 32 == 0) ||
           fail(v, op, "threads is %lld, expected a multiple of 32",
                (long long)threads);
}

static bool check_partial_max(struct verifier *v, MlirOperation op) {
    MlirType tile = operand_type(op, 0), top = result_type(op, 0);
    bool typed = (ir_is_i32(tile) && ir_is_i32(top)) ||
                 (ir_is_f32(tile) && ir_is_f32(top));
    return (ir_is_tile(tile) && typed && ir_rows(top) == ir_rows(tile) &&
            ir_columns(top) == 4) ||
           fail(v, op, "takes a tile of i32 or f32 and gives its rows times 4");
}

static bool check_vote_any(struct verifier *v, MlirOperation op) {
    MlirType type = operand_type(op, 0);
    return (ir_is_bool(type) &&
            (ir_is_scalar(type) || ir_is_row(type) || ir_columns(type) == 4)) ||
           fail(v, op, "takes an i1: scalar, a row quantity or of 4 columns");
}

const struct verify_rule verify_sm90_rules[] = {
    {"attn.mbarriers", check_mbarriers},
    {"attn.mbarrier_init", check_mbarrier_use},
    {"attn.mbarrier_wait", check_mbarrier_use},
    {"attn.mbarrier_arrive", check_mbarrier_use},
    {"attn.mbarrier_expect_tx", check_mbarrier_use},
    {"attn.tma_load", check_tma_load},
    {"attn.tma_store", check_tma_store},
    {"attn.stmatrix", check_stmatrix},
    {"attn.wgmma", check_wgmma},
    {"attn.wgmma_wait", check_wgmma_wait},
    {"attn.set_max_registers", check_set_max_registers},
    {"attn.bar_sync", check_named_barrier},
    {"attn.bar_arrive", check_named_barrier},
    {"attn.partial_max", check_partial_max},
    {"attn.vote_any", check_vote_any},
    {NULL, NULL},
};
