/* What does not change while a kernel runs: lane and warp numbers, parameters,
 * and the places where code is hoisted to. */
#include "backends/ptx/isel.h"

#include <string.h>

/* ---- Places ------------------------------------------------------------- */

struct ptx_inst *isel_entry_begin(struct isel *is) {
    struct ptx_inst *saved = is->kernel->cursor;
    bool nested =
        saved == is->entry_end; /* follow the end instead of coming back */
    is->kernel->cursor = is->entry_end;
    return nested ? NULL : saved;
}

void isel_entry_end(struct isel *is, struct ptx_inst *saved) {
    is->entry_end = is->kernel->cursor;
    is->kernel->cursor = saved ? saved : is->entry_end;
}

bool isel_hoist_begin(struct isel *is, struct storage *const *storages,
                      int count, struct hoist *out) {
    int order = 0;
    out->anchor = NULL;
    for (int i = 0; i < count; i++) {
        if (!ptx_is_reg(storages[i]->elems[0]) &&
            storages[i]->elems[0].kind != PTX_OPERAND_ADDRESS)
            continue; /* constants are available everywhere */
        if (storages[i]->anchor_order < 0)
            return false;
        if (storages[i]->anchor_order > order) {
            order = storages[i]->anchor_order;
            out->anchor = storages[i]->anchor;
        }
    }
    if (!out->anchor) {
        out->saved = isel_entry_begin(is);
    } else {
        out->saved = is->kernel->cursor;
        is->kernel->cursor = out->anchor;
    }
    return true;
}

void isel_hoist_end(struct isel *is, struct hoist *hoist) {
    if (!hoist->anchor)
        isel_entry_end(is, hoist->saved);
    else if (hoist->saved != hoist->anchor)
        is->kernel->cursor = hoist->saved;
}

/* ---- Lane constants ----------------------------------------------------- */

struct ptx_operand isel_swizzled(struct isel *is, struct swizzle swizzle,
                                 struct ptx_operand row,
                                 struct ptx_operand chunk) {
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand bits = row;
    if (swizzle.bits == 0)
        return chunk;
    if (swizzle.shift > 0)
        bits = ptx_def(k, PTX_SHR_U32, "r", bits, ptx_imm(swizzle.shift));
    bits = ptx_def(k, PTX_AND_B32, "r", bits, ptx_imm((1 << swizzle.bits) - 1));
    return ptx_def(k, PTX_XOR_B32, "r", chunk, bits);
}

struct ptx_operand *isel_constant_find(struct isel *is, const char *name,
                                       int k0, int k1, int k2, int k3) {
    const int key[4] = {k0, k1, k2, k3};
    for (size_t i = 0; i < is->constants.count; i++) {
        struct lane_constant *constant = &is->constants.data[i];
        if (strcmp(constant->name, name) == 0 &&
            memcmp(constant->key, key, sizeof key) == 0)
            return &constant->reg;
    }
    return NULL;
}

void isel_constant_add(struct isel *is, const char *name, int k0, int k1,
                       int k2, int k3, struct ptx_operand reg) {
    vec_push(is->arena, &is->constants,
             (struct lane_constant){
                 .name = name, .key = {k0, k1, k2, k3}, .reg = reg});
}

/* Computes a lane constant on first use.  `compute` may use other constants. */
static struct ptx_operand
constant(struct isel *is, const char *name,
         struct ptx_operand (*compute)(struct isel *is)) {
    struct ptx_operand *known = isel_constant_find(is, name, 0, 0, 0, 0);
    if (known)
        return *known;
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_operand reg = compute(is);
    isel_entry_end(is, saved);
    isel_constant_add(is, name, 0, 0, 0, 0, reg);
    return reg;
}

/* The nested calls below move the end of the entry themselves; the cursor
 * follows because it stands at that end. */
static struct ptx_operand compute_thread(struct isel *is) {
    return ptx_def(is->kernel, PTX_MOV_SREG, "thread", ptx_text("%tid.x"));
}
static struct ptx_operand compute_lane(struct isel *is) {
    return ptx_def(is->kernel, PTX_AND_B32, "lane", isel_thread(is),
                   ptx_imm(31));
}
static struct ptx_operand compute_warp(struct isel *is) {
    return ptx_def(is->kernel, PTX_SHR_U32, "warp", isel_thread(is),
                   ptx_imm(5));
}
static struct ptx_operand compute_row_lane(struct isel *is) {
    struct ptx_operand lane = isel_lane(is), warp = isel_warp(is);
    struct ptx_operand row =
        ptx_def(is->kernel, PTX_SHR_U32, "row_lane", lane, ptx_imm(2));
    if (is->row_warps != is->warps) /* a power of two: warpgroups */
        warp = ptx_def(is->kernel, PTX_AND_B32, "row_warp", warp,
                       ptx_imm(is->row_warps - 1));
    return ptx_def(is->kernel, PTX_MAD_LO_S32, "row_lane", warp,
                   ptx_imm(16 * is->fragments), row);
}
static struct ptx_operand compute_column_lane(struct isel *is) {
    struct ptx_operand twice =
        ptx_def(is->kernel, PTX_SHL_B32, "r", isel_thread(is), ptx_imm(1));
    return ptx_def(is->kernel, PTX_AND_B32, "column_lane", twice, ptx_imm(6));
}
static struct ptx_operand compute_first_lane(struct isel *is) {
    return ptx_def(is->kernel, PTX_SETP_EQ_S32, "first_lane", isel_lane(is),
                   ptx_imm(0));
}
static struct ptx_operand compute_smem(struct isel *is) {
    return ptx_def(is->kernel, PTX_MOV_SYMBOL, "smem_base", ptx_text("smem"));
}

struct ptx_operand isel_thread(struct isel *is) {
    return constant(is, "thread", compute_thread);
}
struct ptx_operand isel_lane(struct isel *is) {
    return constant(is, "lane", compute_lane);
}
struct ptx_operand isel_warp(struct isel *is) {
    return constant(is, "warp", compute_warp);
}
struct ptx_operand isel_first_lane(struct isel *is) {
    return constant(is, "first_lane", compute_first_lane);
}
struct ptx_operand isel_row_lane(struct isel *is) {
    return constant(is, "row_lane", compute_row_lane);
}
struct ptx_operand isel_column_lane(struct isel *is) {
    return constant(is, "column_lane", compute_column_lane);
}
struct ptx_operand isel_smem(struct isel *is) {
    return constant(is, "smem", compute_smem);
}

/* ---- Parameters --------------------------------------------------------- */

/* Loads a parameter at the start of the kernel, once. */
static struct ptx_operand load_param(struct isel *is, struct ptx_operand *reg,
                                     enum ptx_op op, const char *name) {
    if (!ptx_is_reg(*reg)) {
        struct ptx_inst *saved = isel_entry_begin(is);
        *reg = ptx_def(is->kernel, op, name, ptx_text(name));
        isel_entry_end(is, saved);
    }
    return *reg;
}

struct ptx_operand isel_param_scalar(struct isel *is, struct argument *arg) {
    enum ptx_op op = ir_is_f32(arg->type) ? PTX_LD_PARAM_F32 : PTX_LD_PARAM_B32;
    return load_param(is, &arg->scalar_reg, op, arg->scalar);
}

struct ptx_operand isel_param_pointer(struct isel *is, struct argument *arg) {
    return load_param(is, &arg->pointer_reg, PTX_LD_PARAM_B64, arg->pointer);
}

struct ptx_operand isel_param_global(struct isel *is, struct argument *arg) {
    struct ptx_operand pointer = isel_param_pointer(is, arg);
    if (!ptx_is_reg(arg->global_reg)) {
        struct ptx_inst *saved = isel_entry_begin(is);
        arg->global_reg =
            ptx_def(is->kernel, PTX_CVTA_GLOBAL, arg->stem, pointer);
        isel_entry_end(is, saved);
    }
    return arg->global_reg;
}

struct ptx_operand isel_param_extent(struct isel *is, struct argument *arg,
                                     int axis) {
    return load_param(is, &arg->extent_regs[axis], PTX_LD_PARAM_B32,
                      arg->extents[axis]);
}

struct ptx_operand isel_param_stride(struct isel *is, struct argument *arg,
                                     int axis) {
    return load_param(is, &arg->stride_regs[axis], PTX_LD_PARAM_B64,
                      arg->strides[axis]);
}

int isel_element_bytes(const struct argument *arg) {
    return (int)ir_element_bits(ir_element_type(arg->type)) / 8;
}

static const char *declare(struct isel *is, const char *type,
                           const char *comment, const char *format,
                           const char *stem, int axis) {
    char *name = arena_printf(is->arena, "%s_%s", stem, format);
    if (axis >= 0)
        name = arena_printf(is->arena, "%s%d", name, axis);
    vec_push(is->arena, &is->kernel->params,
             (struct ptx_param){name, type, comment});
    return name;
}

static void declare_memref(struct isel *is, struct argument *arg) {
    bool captured = strncmp(arg->kind, "tensor:", 7) == 0;
    bool workspace = strncmp(arg->kind, "workspace:", 10) == 0;
    arg->pointer = declare(is, "u64", arg->kind, "ptr", arg->stem, -1);
    if (workspace)
        return;
    /* q, k, v, o have stride 1 on their last axis. */
    bool rows = ir_extent(arg->type, arg->rank - 1) > 0;
    for (int axis = 0; captured && axis < arg->rank; axis++)
        arg->extents[axis] =
            declare(is, "s32", "extent", "extent", arg->stem, axis);
    for (int axis = 0; axis < arg->rank - (rows ? 1 : 0); axis++)
        arg->strides[axis] = declare(is, "s64", "stride, in elements", "stride",
                                     arg->stem, axis);
}

static void declare_argument(struct isel *is, size_t index) {
    struct argument arg = {.kind = ir_func_arg_kind(is->func, index)};
    arg.type = mlirValueGetType(ir_func_arg(is->func, index));
    if (!arg.kind)
        ir_ice(is->func, "ptx: kernel argument without attn.arg");
    const char *colon = strchr(arg.kind, ':');
    bool size = strncmp(arg.kind, "size:", 5) == 0;
    /* User names get a prefix, so that they cannot meet ours. */
    arg.stem = !colon ? arg.kind
               : size
                   ? colon + 1
                   : arena_printf(is->arena, "%.*s_%s", (int)(colon - arg.kind),
                                  arg.kind, colon + 1);
    if (ir_is_memref(arg.type)) {
        arg.rank = ir_rank(arg.type);
        declare_memref(is, &arg);
    } else {
        arg.scalar = arg.stem;
        vec_push(
            is->arena, &is->kernel->params,
            (struct ptx_param){arg.scalar, size ? "s32" : "b32", arg.kind});
    }
    vec_push(is->arena, &is->arguments, arg);
}

void isel_arguments(struct isel *is) {
    for (size_t i = 0; i < ir_func_arg_count(is->func); i++)
        declare_argument(is, i);
    for (size_t i = 0; i < is->arguments.count; i++) {
        MlirValue value = ir_func_arg(is->func, i);
        struct argument *arg = &is->arguments.data[i];
        if (arg->rank > 0) {
            isel_bind_other(is, value, VALUE_GLOBAL, (int)i);
            continue;
        }
        struct ptx_operand reg = {0};
        struct storage type;
        if (!isel_describe(is, is->func, arg->type, &type))
            continue;
        if (ir_has_uses(value)) {
            reg = isel_param_scalar(is, arg);
            if (type.class == PTX_P) { /* a bool is 0 or 1 in 32 bits */
                struct ptx_inst *saved = isel_entry_begin(is);
                reg = ptx_def(is->kernel, PTX_SETP_NE_S32, "param_bool", reg,
                              ptx_imm(0));
                isel_entry_end(is, saved);
            }
        }
        struct storage *storage = storage_scalar(is, type.class, reg);
        storage->anchor_order = 0;
        isel_bind(is, value, storage);
    }
}
