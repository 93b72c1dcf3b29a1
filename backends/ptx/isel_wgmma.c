/* attn.wgmma and its fences: products of a warpgroup (PTX ISA, "Asynchronous
 * warpgroup-level matrix instructions").
 *
 * Operands in shared memory are named by 64-bit descriptors.  The high word is
 * the same for all of one swizzle; the low word holds the address and the
 * leading offset:
 *
 *     bits  0-13   address / 16              bits 32-45   stride offset / 16: 8 rows
 *     bits 16-29   leading offset / 16       bits 62-63   1, 2, 3: 128, 64, 32-byte swizzle
 *
 * A tile is cut into panels of one swizzled row each (docs/ir.md).  Along the
 * depth:
 *
 *     K-major (Q, K)    a k-step of 16 is 32 bytes on in the row, or in the next panel
 *     MN-major (V)      a k-step is 16 rows on; the leading offset leads to the next panel
 *
 * So every descriptor is a word known at the start plus the stage plus a
 * constant.
 *
 * The registers of an accumulator and of an A operand belong to the tensor core
 * until the group of the product is waited for: the storage counts as in
 * flight. */
#include "backends/ptx/isel.h"

/* ---- What is in flight -------------------------------------------------- */

static void start_flight(struct isel *is, struct storage *storage) {
    storage->in_flight++;
    vec_push(is->arena, &is->flights,
             (struct flight){storage, is->wgmma_group});
}

/* Groups up to the `pending` latest ones have landed. */
static void land_groups(struct isel *is, int pending) {
    size_t kept = 0;
    for (size_t i = 0; i < is->flights.count; i++) {
        struct flight *flight = &is->flights.data[i];
        if (flight->group < is->wgmma_group - pending)
            flight->storage->in_flight--;
        else
            is->flights.data[kept++] = *flight;
    }
    is->flights.count = kept;
}

void lower_wgmma_fence(struct isel *is, MlirOperation op) {
    (void)op;
    ptx_put(is->kernel, PTX_WGMMA_FENCE, PTX_NOTHING, PTX_NOTHING);
}

void lower_wgmma_commit(struct isel *is, MlirOperation op) {
    (void)op;
    ptx_put(is->kernel, PTX_WGMMA_COMMIT, PTX_NOTHING, PTX_NOTHING);
    is->wgmma_group++;
}

/* The value passes through: same registers. */
void lower_wgmma_wait(struct isel *is, MlirOperation op) {
    int pending = (int)ir_int_attr(op, "pending", 0);
    struct storage *storage = isel_storage(is, ir_operand(op, 0));
    ptx_put(is->kernel, PTX_WGMMA_WAIT, PTX_NOTHING, ptx_imm(pending));
    land_groups(is, pending);
    storage->uses--;
    isel_bind(is, ir_result(op, 0), storage);
}

/* ---- Descriptors -------------------------------------------------------- */

static struct ptx_operand entry_word(struct isel *is, const char *name,
                                     int value) {
    struct ptx_operand *known = isel_constant_find(is, name, value, 0, 0, 0);
    if (known)
        return *known;
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_operand reg =
        ptx_def(is->kernel, PTX_MOV_B32, name, ptx_imm(value));
    isel_entry_end(is, saved);
    isel_constant_add(is, name, value, 0, 0, 0, reg);
    return reg;
}

/* Stride offset and swizzle. */
static struct ptx_operand high_word(struct isel *is,
                                    const struct shared_view *view) {
    unsigned mode = view->swizzle_bytes == 128  ? 1
                    : view->swizzle_bytes == 64 ? 2
                                                : 3;
    unsigned stride = 8u * (unsigned)view->swizzle_bytes / 16;
    return entry_word(is, "desc_high", (int)(mode << 30 | stride));
}

/* Address and leading offset (in bytes, 0: not used) of a tile, its stage
 * included. */
static struct ptx_operand
low_word(struct isel *is, const struct shared_view *view, int leading) {
    struct ptx_kernel *k = is->kernel;
    int offset = view->byte_offset, field = leading > 0 ? leading / 16 : 1;
    struct ptx_operand *known =
        isel_constant_find(is, "descriptor", offset, field, 0, 0);
    struct ptx_operand low;
    if (known) {
        low = *known;
    } else {
        struct ptx_operand smem = isel_smem(is);
        struct ptx_inst *saved = isel_entry_begin(is);
        const char *hint = arena_printf(is->arena, "%s_desc", view->name);
        low = ptx_def(k, PTX_ADD_S32, hint, smem, ptx_imm(offset));
        low = ptx_def(k, PTX_AND_B32, hint, low, ptx_imm(0x3FFFF));
        low = ptx_def(k, PTX_SHR_U32, hint, low, ptx_imm(4));
        low = ptx_def(k, PTX_OR_B32, hint, low, ptx_imm(field << 16));
        isel_entry_end(is, saved);
        isel_constant_add(is, "descriptor", offset, field, 0, 0, low);
    }
    if (!ptx_is_reg(view->stage_index))
        return low;
    return ptx_def(k, PTX_MAD_LO_S32,
                   arena_printf(is->arena, "%s_desc", view->name),
                   view->stage_index, ptx_imm(view->stage_bytes / 16), low);
}

/* Operand in shared memory: its words, and how they grow from k-step to k-step.
 */
struct descriptor {
    const struct shared_view *view;
    struct ptx_operand low, high;
    bool k_major;
};

static struct descriptor
descriptor_of(struct isel *is, const struct shared_view *view, bool k_major) {
    int panel = view->rows * view->swizzle_bytes;
    return (struct descriptor){view, low_word(is, view, k_major ? 0 : panel),
                               high_word(is, view), k_major};
}

/* The descriptor of k-step `step`. */
static struct ptx_operand descriptor_at(struct isel *is,
                                        const struct descriptor *d, int step) {
    int bytes = d->view->swizzle_bytes, per_panel = bytes / 32;
    int offset = d->k_major ? step / per_panel * (d->view->rows * bytes / 16) +
                                  step % per_panel * 2
                            : step * bytes;
    struct ptx_operand low = d->low;
    if (offset > 0)
        low =
            ptx_def(is->kernel, PTX_ADD_S32, "desc_low", low, ptx_imm(offset));
    return ptx_def(is->kernel, PTX_MOV_DESCRIPTOR, "desc", low, d->high);
}

/* ---- The product -------------------------------------------------------- */

static enum ptx_op wgmma_op(bool registers, bool bf16, int columns) {
    _Static_assert(PTX_WGMMA_SS_F16_N256 - PTX_WGMMA_SS_F16_N8 == 31 &&
                       PTX_WGMMA_RS_BF16_N256 - PTX_WGMMA_RS_BF16_N8 == 31,
                   "the rows of a family follow each other");
    enum ptx_op first =
        registers ? (bf16 ? PTX_WGMMA_RS_BF16_N8 : PTX_WGMMA_RS_F16_N8)
                  : (bf16 ? PTX_WGMMA_SS_BF16_N8 : PTX_WGMMA_SS_F16_N8);
    return (enum ptx_op)((int)first + columns / 8 - 1);
}

/* The A fragment of a k-step: the packed pairs of its 16 columns. */
static struct ptx_operand a_registers(struct isel *is, const struct storage *a,
                                      int step) {
    struct ptx_operand *regs =
        ARENA_NEW_ARRAY(is->arena, struct ptx_operand, 4);
    for (int n = 0; n < 4; n++)
        regs[n] = storage_element(a, 0, n & 1, 2 * step + (n >> 1), 0);
    return ptx_vector(regs, 4);
}

/* A predicate that never changes. */
static struct ptx_operand fixed_predicate(struct isel *is, bool value) {
    struct ptx_operand *known =
        isel_constant_find(is, "predicate", value, 0, 0, 0);
    if (known)
        return *known;
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_operand reg =
        ptx_def(is->kernel, value ? PTX_SETP_EQ_S32 : PTX_SETP_NE_S32,
                value ? "adds" : "starts", ptx_imm(0), ptx_imm(0));
    isel_entry_end(is, saved);
    isel_constant_add(is, "predicate", value, 0, 0, 0, reg);
    return reg;
}

static bool is_zero(const struct storage *storage) {
    return storage->layout == LAYOUT_SCALAR &&
           storage->elems[0].kind == PTX_OPERAND_F32 &&
           storage->elems[0].value == 0;
}

/* Registers of the result: the accumulator's own when nobody else needs it. */
static struct storage *result_of(struct isel *is, MlirOperation op,
                                 const struct storage *type,
                                 struct storage *acc, const char *hint) {
    struct storage *result = storage_create(is, type);
    if (acc->layout == LAYOUT_TILE && storage_dies(is, acc, 0)) {
        result->elems = acc->elems;
        result->owned = true;
        acc->owned = false;
        return result;
    }
    storage_fill_registers(is, result, isel_hint(op, hint));
    if (!is_zero(acc)) {
        struct move_list moves = {0};
        isel_add_moves(is, &moves, result, acc);
        isel_move_all(is, moves.to.data, moves.from.data, (int)moves.to.count);
    }
    return result;
}

static int rounded_up(int value, int step) {
    return (value + step - 1) / step * step;
}

static bool check_shape(struct isel *is, MlirOperation op, int rows, int k_a,
                        int k_b, int n_b, const struct storage *type) {
    int columns = 8 * type->shape.groups;
    if (rows == 64 && is->row_warps == 4 && type->shape.fragments == 1 &&
        columns <= 256 && rounded_up(k_a, 16) == rounded_up(k_b, 16) &&
        n_b == columns)
        return true;
    isel_error(is, op,
               "attn.wgmma: operands are %d x %d and %d x %d for a result of "
               "%d columns; "
               "a warpgroup multiplies 64 rows, at most 256 columns wide",
               rows, k_a, k_b, n_b, columns);
    return false;
}

void lower_wgmma(struct isel *is, MlirOperation op) {
    struct value *a = isel_value(is, ir_operand(op, 0));
    struct shared_view *b = isel_shared(is, ir_operand(op, 1));
    struct storage *acc = isel_storage(is, ir_operand(op, 2)), type;
    bool transposed = ir_has_attr(op, "transpose_b"),
         registers = a->kind == VALUE_STORAGE;
    if (!isel_describe(is, op, mlirValueGetType(ir_result(op, 0)), &type))
        return;
    int rows = registers ? 16 * is->row_warps * a->storage->shape.fragments
                         : a->shared->rows;
    int k_a = registers ? 8 * a->storage->shape.groups : a->shared->columns;
    if (!check_shape(is, op, rows, k_a, transposed ? b->columns : b->rows,
                     transposed ? b->rows : b->columns, &type))
        return;
    isel_release(is, op);
    bool from_zero = is_zero(acc);
    struct storage *result =
        result_of(is, op, &type, acc, transposed ? "s" : "acc");
    struct ptx_operand out = ptx_vector(result->elems, 4 * type.shape.groups);
    ptx_comment(is->kernel, PTX_BANNER, "wgmma: 64 x %d x %d, %s with %s%s",
                8 * type.shape.groups, k_a,
                registers ? "registers" : a->shared->name, b->name,
                transposed ? " transposed" : "");
    struct descriptor a_words = {0}, b_words = descriptor_of(is, b, transposed);
    if (!registers)
        a_words = descriptor_of(is, a->shared, true);
    enum ptx_op row = wgmma_op(registers, b->bf16, 8 * type.shape.groups);
    for (int step = 0; step < rounded_up(k_a, 16) / 16; step++) {
        struct ptx_operand x = registers ? a_registers(is, a->storage, step)
                                         : descriptor_at(is, &a_words, step);
        struct ptx_operand y = descriptor_at(is, &b_words, step);
        ptx_put(is->kernel, row, out, x, y,
                fixed_predicate(is, step > 0 || !from_zero),
                ptx_imm(!transposed));
    }
    start_flight(is, result);
    if (registers)
        start_flight(is, a->storage);
    isel_bind(is, ir_result(op, 0), result);
}
