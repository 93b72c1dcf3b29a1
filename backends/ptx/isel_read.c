/* Reads of captured tensors (attn.read) and of single elements (memref.*).
 *
 * Indices of attn.read are clamped to the tensor, so a read for a masked or
 * padded pair stays inside it.  The address is split by what the indices depend
 * on: the scalar and row parts are added up before the elements, the column
 * part once for each column, so a bias read at [h, q, kv] costs one addition an
 * element.
 *
 * A read by position of the column alone is shared by the warp: lane l loads
 * the columns 2l and 2l + 1 of every 64, where the read stands, and elements
 * come by shuffles.  A block of 128 keys takes 4 loads of a lane instead of 32,
 * and as many registers until then:
 *
 *     column 8j + 2 (lane % 4) + c    from lane (4j % 32) + lane % 4, its pair
 *                                     j / 8 */
#include "backends/ptx/isel.h"

/* The load of a captured tensor.  Non-coherent ones want memory that nobody
 * writes while the kernel runs; a programmatic kernel begins while the kernel
 * before it may still write. */
static enum ptx_op load_op(const struct isel *is, enum ptx_op non_coherent) {
    if (!ir_has_attr(is->func, "attn.programmatic"))
        return non_coherent;
    return non_coherent == PTX_LD_GLOBAL_NC_F32   ? PTX_LD_GLOBAL_F32
           : non_coherent == PTX_LD_GLOBAL_NC_U16 ? PTX_LD_GLOBAL_U16
           : non_coherent == PTX_LD_GLOBAL_NC_B16 ? PTX_LD_GLOBAL_B16
           : non_coherent == PTX_LD_GLOBAL_NC_U8  ? PTX_LD_GLOBAL_U8
                                                  : PTX_LD_GLOBAL_B32;
}

struct read_plan {
    MlirOperation op;
    struct argument *arg;
    struct storage *index[ISEL_MAX_RANK];
    enum layout layout;
    int fragments;
    struct ptx_operand last[ISEL_MAX_RANK]; /* extents - 1 */
    struct ptx_operand base;                /* pointer + scalar indices */
    struct ptx_operand *rows;               /* base + row indices; NULL: none */
    struct ptx_operand
        columns[2]; /* offsets of the column indices of group columns_group */
    int columns_group;
    bool has_columns;
    struct ptx_operand *shared; /* loaded for the warp, [2 (j / 8) + c]; NULL */
};

struct read_plan *read_plan_create(struct isel *is, MlirOperation op) {
    struct read_plan *plan = ARENA_NEW(is->arena, struct read_plan);
    plan->op = op;
    plan->arg = isel_argument(is, ir_operand(op, 0));
    plan->columns_group = -1;
    plan->fragments = 1;
    if ((size_t)plan->arg->rank + 1 != ir_operand_count(op)) {
        isel_error(is, op, "attn.read: %d indices for a tensor of rank %d",
                   (int)ir_operand_count(op) - 1, plan->arg->rank);
        return NULL;
    }
    for (int axis = 0; axis < plan->arg->rank; axis++) {
        plan->index[axis] = isel_storage(is, ir_operand(op, (size_t)axis + 1));
        plan->layout |= plan->index[axis]->layout;
        plan->has_columns =
            plan->has_columns || plan->index[axis]->layout == LAYOUT_COLUMN;
        if (plan->index[axis]->layout & LAYOUT_ROW)
            plan->fragments = plan->index[axis]->shape.fragments;
    }
    return plan;
}

enum layout read_plan_layout(const struct read_plan *plan) {
    return plan->layout;
}

/* Extent - 1 of an axis.  Made once for each read, where it is used: as a
 * constant of the kernel it would take a register through the main loop. */
static struct ptx_operand last_index(struct isel *is, struct read_plan *plan,
                                     int axis) {
    struct ptx_operand *last = &plan->last[axis];
    if (!ptx_is_reg(*last))
        *last = ptx_def(is->kernel, PTX_ADD_S32,
                        arena_printf(is->arena, "%s_last", plan->arg->stem),
                        isel_param_extent(is, plan->arg, axis), ptx_imm(-1));
    return *last;
}

/* address + clamped index * stride; `address` none: the product alone. */
static struct ptx_operand add_index(struct isel *is, struct read_plan *plan,
                                    int axis, struct ptx_operand index,
                                    struct ptx_operand address) {
    struct ptx_kernel *k = is->kernel;
    struct argument *arg = plan->arg;
    bool constant = index.kind == PTX_OPERAND_IMM;
    if (constant && index.value <= 0 && ptx_is_reg(address))
        return address; /* index 0, which every axis has */
    /* In this order an empty axis gives 0, where the launcher has something. */
    index = ptx_def(k, PTX_MIN_S32, "r", index, last_index(is, plan, axis));
    index = ptx_def(k, PTX_MAX_S32, "r", index, ptx_imm(0));
    /* The clamped index is not negative: with its upper half known to be 0 the
     * product takes two multiplications instead of three. */
    struct ptx_operand stride =
        ptx_def(k, PTX_SHL_B64, "rd", isel_param_stride(is, arg, axis),
                ptx_imm(__builtin_ctz((unsigned)isel_element_bytes(arg))));
    struct ptx_operand wide = ptx_def(k, PTX_CVT_U64_U32, "rd", index);
    if (!ptx_is_reg(address))
        return ptx_def(k, PTX_MUL_LO_S64, "rd", wide, stride);
    return ptx_def(k, PTX_MAD_LO_S64, "rd", wide, stride, address);
}

void read_plan_begin(struct isel *is, struct read_plan *plan) {
    if (plan->shared)
        return;
    plan->base = isel_param_global(is, plan->arg);
    bool has_rows = false;
    for (int axis = 0; axis < plan->arg->rank; axis++) {
        struct storage *index = plan->index[axis];
        has_rows = has_rows || index->layout == LAYOUT_ROW;
        if (index->layout == LAYOUT_SCALAR)
            plan->base = add_index(is, plan, axis,
                                   isel_plain(is, index->elems[0]), plan->base);
    }
    if (!has_rows)
        return;
    plan->rows = ARENA_NEW_ARRAY(is->arena, struct ptx_operand,
                                 2 * (size_t)plan->fragments);
    for (int r = 0; r < 2 * plan->fragments; r++) {
        plan->rows[r] = plan->base;
        for (int axis = 0; axis < plan->arg->rank; axis++)
            if (plan->index[axis]->layout == LAYOUT_ROW) {
                struct ptx_operand index = isel_plain(
                    is, storage_element(plan->index[axis], r / 2, r % 2, 0, 0));
                plan->rows[r] = add_index(is, plan, axis, index, plan->rows[r]);
            }
    }
}

/* Offsets of both columns of a group. */
static void read_columns(struct isel *is, struct read_plan *plan, int j) {
    if (plan->columns_group == j)
        return;
    plan->columns_group = j;
    for (int c = 0; c < 2; c++) {
        plan->columns[c] = PTX_NOTHING;
        for (int axis = 0; axis < plan->arg->rank; axis++)
            if (plan->index[axis]->layout == LAYOUT_COLUMN)
                plan->columns[c] =
                    add_index(is, plan, axis,
                              run_element(is, plan->index[axis], 0, 0, j, c),
                              plan->columns[c]);
    }
}

/* Is the index a position, column lane + constants, in registers already? */
static bool is_column_position(const struct storage *index) {
    if (index->layout != LAYOUT_COLUMN || !index->elems)
        return false;
    const struct ptx_operand *first = &index->elems[0];
    for (int k = 0; k < 2 * index->shape.groups; k++) {
        const struct ptx_operand *e = &index->elems[k];
        if (e->kind != PTX_OPERAND_ADDRESS || e->reg != first->reg ||
            e->value != first->value + 8 * (k / 2) + k % 2)
            return false;
    }
    return true;
}

/* The only column index of a read by position; -1: not such a read. */
static int shared_axis(const struct read_plan *plan) {
    int found = -1;
    for (int axis = 0; axis < plan->arg->rank; axis++) {
        struct storage *index = plan->index[axis];
        if (index->in_run)
            return -1;
        if (index->layout == LAYOUT_SCALAR)
            continue;
        if (found >= 0 || !is_column_position(index))
            return -1;
        found = axis;
    }
    return found;
}

static struct ptx_operand load_element(struct isel *is, MlirType element,
                                       struct ptx_operand address,
                                       struct ptx_operand dest);

bool read_plan_share(struct isel *is, struct read_plan *plan) {
    struct ptx_kernel *k = is->kernel;
    int axis = plan->layout == LAYOUT_COLUMN ? shared_axis(plan) : -1;
    if (axis < 0)
        return false;
    isel_location(is, plan->op);
    MlirType element = ir_element_type(plan->arg->type);
    const struct storage *index = plan->index[axis];
    int pairs = (index->shape.groups + 7) / 8;
    struct ptx_operand column = {.kind = PTX_OPERAND_REG,
                                 .reg = index->elems[0].reg};
    struct ptx_operand quad =
        ptx_def(k, PTX_AND_B32, "r", isel_lane(is), ptx_imm(28));
    column = ptx_def(k, PTX_MAD_LO_S32, "col_pos", quad, ptx_imm(2), column);
    read_plan_begin(is, plan);
    struct ptx_operand *shared =
        ARENA_NEW_ARRAY(is->arena, struct ptx_operand, 2 * (size_t)pairs);
    for (int n = 0; n < 2 * pairs; n++) {
        int64_t offset = index->elems[0].value + 64 * (n / 2) + n % 2;
        struct ptx_operand at = isel_plain(is, ptx_address(column, offset));
        at = add_index(is, plan, axis, at, plan->base);
        shared[n] = ir_element_bits(element) == 8
                        ? ptx_def(k, load_op(is, PTX_LD_GLOBAL_NC_U8), "r",
                                  ptx_address(at, 0))
                        : load_element(is, element, at, PTX_NOTHING);
    }
    plan->shared = shared;
    return true;
}

/* Element (j, c) of what the warp has loaded. */
static struct ptx_operand shuffle_element(struct isel *is,
                                          const struct read_plan *plan, int j,
                                          int c, struct ptx_operand dest) {
    struct element e = {.is = is, .dest = dest, .hint = "read"};
    MlirType element = ir_element_type(plan->arg->type);
    struct ptx_operand from = plan->shared[2 * (j / 8) + c];
    struct ptx_operand lane = ptx_imm(4 * j % 32);
    if (ir_is_float(element))
        return element_out(&e, PTX_SHFL_QUAD_F32, from, lane);
    if (ir_element_bits(element) != 8)
        return element_out(&e, PTX_SHFL_QUAD_B32, from, lane);
    struct ptx_operand byte =
        ptx_def(is->kernel, PTX_SHFL_QUAD_B32, "r", from, lane);
    return element_out(&e, PTX_SETP_NE_S32, byte, ptx_imm(0));
}

/* Loads one element and converts it to the language's type. */
static struct ptx_operand load_element(struct isel *is, MlirType element,
                                       struct ptx_operand address,
                                       struct ptx_operand dest) {
    struct ptx_kernel *k = is->kernel;
    struct element e = {.is = is, .dest = dest, .hint = "read"};
    address = ptx_address(address, 0);
    if (ir_is_f32(element))
        return element_out(&e, load_op(is, PTX_LD_GLOBAL_NC_F32), address);
    if (ir_element_bits(element) == 8) {
        struct ptx_operand byte =
            ptx_def(k, load_op(is, PTX_LD_GLOBAL_NC_U8), "r", address);
        return element_out(&e, PTX_SETP_NE_S32, byte, ptx_imm(0));
    }
    if (mlirTypeIsABF16(element)) { /* the upper half of an f32 */
        struct ptx_operand word =
            ptx_def(k, load_op(is, PTX_LD_GLOBAL_NC_U16), "r", address);
        word = ptx_def(k, PTX_SHL_B32, "r", word, ptx_imm(16));
        return element_out(&e, PTX_MOV_F32_FROM_B32, word);
    }
    if (ir_is_float(element)) {
        struct ptx_operand half =
            ptx_def(k, load_op(is, PTX_LD_GLOBAL_NC_B16), "h", address);
        return element_out(&e, PTX_CVT_F32_F16, half);
    }
    return element_out(&e, load_op(is, PTX_LD_GLOBAL_NC_B32), address);
}

struct ptx_operand read_plan_element(struct isel *is, struct read_plan *plan,
                                     int f, int i, int j, int c,
                                     struct ptx_operand dest) {
    if (plan->shared)
        return shuffle_element(is, plan, j, c, dest);
    struct ptx_operand address =
        plan->rows ? plan->rows[2 * f + i] : plan->base;
    if (plan->has_columns) {
        read_columns(is, plan, j);
        address =
            ptx_def(is->kernel, PTX_ADD_S64, "rd", address, plan->columns[c]);
    }
    for (int axis = 0; axis < plan->arg->rank; axis++)
        if (plan->index[axis]->layout == LAYOUT_TILE)
            address = add_index(is, plan, axis,
                                run_element(is, plan->index[axis], f, i, j, c),
                                address);
    return load_element(is, ir_element_type(plan->arg->type), address, dest);
}

bool read_plan_key(struct isel *is, const struct read_plan *plan, int f, int i,
                   int j, int c, struct ptx_operand out_key[4]) {
    enum { MAX_KEY = 4 };
    (void)is;
    int used = 2;
    out_key[0] = ptx_imm(plan->rows ? 2 * f + i : -1);
    bool fine = false;
    for (int axis = 0; axis < plan->arg->rank; axis++)
        fine = fine || (plan->index[axis]->layout == LAYOUT_COLUMN &&
                        !plan->index[axis]->coarse);
    out_key[1] = ptx_imm(fine ? 2 * j + c : -1);
    for (int axis = 0; axis < plan->arg->rank; axis++) {
        bool varies = plan->index[axis]->layout == LAYOUT_TILE ||
                      plan->index[axis]->coarse;
        if (!varies)
            continue;
        if (used == MAX_KEY)
            return false;
        out_key[used++] = run_affine(plan->index[axis], f, i, j, c);
    }
    return true;
}

/* ---- memref.load, memref.store, memref.dim ------------------------------ */

/* Address of an element: shared (32 bits) or global (64 bits). */
static struct ptx_operand element_address(struct isel *is, MlirOperation op,
                                          size_t memref, bool *out_shared) {
    struct ptx_kernel *k = is->kernel;
    struct value *entry = isel_value(is, ir_operand(op, memref));
    *out_shared = entry->kind == VALUE_SHARED;
    if (*out_shared) {
        struct shared_view *view = entry->shared;
        struct ptx_operand index = isel_scalar(is, ir_operand(op, memref + 1));
        struct ptx_operand smem = isel_smem(is);
        if (index.kind == PTX_OPERAND_IMM)
            return ptx_address(smem,
                               view->byte_offset + index.value * view->bytes);
        struct ptx_operand address = ptx_def(
            k, PTX_MAD_LO_S32, arena_printf(is->arena, "%s_addr", view->name),
            index, ptx_imm(view->bytes), smem);
        return ptx_address(address, view->byte_offset);
    }
    struct argument *arg = isel_argument(is, ir_operand(op, memref));
    struct ptx_operand address = isel_param_global(is, arg);
    int bytes = isel_element_bytes(arg);
    for (int axis = 0; axis < arg->rank; axis++) {
        struct ptx_operand index = isel_in_register(
            is, PTX_R,
            isel_scalar(is, ir_operand(op, memref + 1 + (size_t)axis)), "r");
        bool dense = !arg->strides[axis]; /* workspace, last axis of q, k, v */
        if (dense) {
            address = ptx_def(k, PTX_MAD_WIDE_S32, "rd", index, ptx_imm(bytes),
                              address);
            continue;
        }
        struct ptx_operand wide =
            ptx_def(k, PTX_MUL_WIDE_S32, "rd", index, ptx_imm(bytes));
        address = ptx_def(k, PTX_MAD_LO_S64, "rd", wide,
                          isel_param_stride(is, arg, axis), address);
    }
    return ptx_address(address, 0);
}

void lower_memref_load(struct isel *is, MlirOperation op) {
    struct storage type;
    bool shared;
    MlirType element = mlirValueGetType(ir_result(op, 0));
    if (!isel_describe(is, op, element, &type))
        return;
    struct ptx_operand address = element_address(is, op, 0, &shared);
    enum ptx_op load =
        shared ? (type.class == PTX_F ? PTX_LD_SHARED_F32 : PTX_LD_SHARED_B32)
        : type.class == PTX_F           ? PTX_LD_GLOBAL_F32
        : type.class == PTX_H           ? load_op(is, PTX_LD_GLOBAL_NC_B16)
        : ir_element_bits(element) == 8 ? load_op(is, PTX_LD_GLOBAL_NC_U8)
                                        : PTX_LD_GLOBAL_B32;
    struct ptx_operand value =
        ptx_reg_new(is->kernel, type.class, isel_hint(op, "load"));
    bool one_lane = ir_has_attr(op, "attn.one_lane");
    if (one_lane) /* the others hand on a register, though nobody reads it */
        isel_move(is, value, ptx_imm(0));
    struct ptx_inst *inst = ptx_put(is->kernel, load, value, address);
    if (one_lane)
        ptx_guard(inst, isel_first_lane(is), false);
    isel_release(is, op);
    isel_bind(is, ir_result(op, 0), storage_scalar(is, type.class, value));
}

void lower_memref_store(struct isel *is, MlirOperation op) {
    bool shared;
    struct storage *value = isel_storage(is, ir_operand(op, 0));
    struct ptx_operand operand = isel_scalar(is, ir_operand(op, 0));
    struct ptx_operand address = element_address(is, op, 1, &shared);
    bool f32 = value->class == PTX_F;
    if (value->class != PTX_F && value->class != PTX_R) {
        isel_error(is, op,
                   "memref.store: the PTX back end stores i32 and f32 only");
        return;
    }
    operand = isel_in_register(is, value->class, operand, f32 ? "f" : "r");
    enum ptx_op store = shared ? (f32 ? PTX_ST_SHARED_F32 : PTX_ST_SHARED_B32)
                               : (f32 ? PTX_ST_GLOBAL_F32 : PTX_ST_GLOBAL_B32);
    ptx_put(is->kernel, store, PTX_NOTHING, address, operand);
    isel_release(is, op);
}

void lower_memref_dim(struct isel *is, MlirOperation op) {
    struct argument *arg = isel_argument(is, ir_operand(op, 0));
    int64_t axis = 0;
    bool known = ir_constant_int(ir_operand(op, 1), &axis) && axis >= 0 &&
                 axis < arg->rank;
    int64_t fixed = known ? ir_extent(arg->type, (int)axis) : -1;
    if (!known || (fixed < 0 && !arg->extents[axis])) {
        isel_error(is, op,
                   "memref.dim: only constant axes of captured tensors have an "
                   "extent");
        return;
    }
    struct ptx_operand extent =
        fixed >= 0 ? ptx_imm(fixed) : isel_param_extent(is, arg, (int)axis);
    isel_release(is, op);
    struct storage *storage = storage_scalar(is, PTX_R, extent);
    storage->anchor_order = 0;
    isel_bind(is, ir_result(op, 0), storage);
}
