/* attn.dot and attn.fragments: ldmatrix and mma.sync.m16n8k16.
 *
 * ldmatrix takes the address of one 8 x 16-byte row from each lane.  Two
 * patterns cover all operands, with 16-byte chunk numbers `2 s + side` of step
 * s:
 *
 *   pattern A   row = lane & 15,                    side = lane >> 4
 *               A operand (M x K rows); B operand with .trans (K x N rows)
 *   pattern B   row = (lane & 7) + 8 (lane >> 4),   side = (lane >> 3) & 1
 *               B operand without .trans (N x K rows)
 *
 * The swizzle xors the chunk with bits of the row, which depend on the lane
 * only (layout.h).  So the address of any step is one lane register, xored with
 * a constant for the chunk bits that the swizzle touches, plus a constant. */
#include "backends/ptx/isel.h"

enum pattern { PATTERN_A, PATTERN_A_WARP, PATTERN_B };

/* Lane part of an address; PATTERN_A_WARP adds the warp's 16 rows. */
static struct ptx_operand lane_address(struct isel *is, struct swizzle swizzle,
                                       enum pattern pattern) {
    struct ptx_operand *known =
        isel_constant_find(is, "ldmatrix", (int)pattern, swizzle.pitch,
                           swizzle.bits, swizzle.shift);
    if (known)
        return *known;
    struct ptx_operand lane = isel_lane(is), smem = isel_smem(is),
                       warp = isel_warp(is);
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand high = ptx_def(k, PTX_SHR_U32, "r", lane, ptx_imm(4));
    struct ptx_operand row, side = high;
    if (pattern == PATTERN_B) {
        struct ptx_operand low = ptx_def(k, PTX_AND_B32, "r", lane, ptx_imm(7));
        row = ptx_def(k, PTX_MAD_LO_S32, "r", high, ptx_imm(8), low);
        side = ptx_def(k, PTX_SHR_U32, "r", lane, ptx_imm(3));
        side = ptx_def(k, PTX_AND_B32, "r", side, ptx_imm(1));
    } else {
        row = ptx_def(k, PTX_AND_B32, "r", lane, ptx_imm(15));
    }
    struct ptx_operand chunk = isel_swizzled(is, swizzle, row, side);
    if (pattern == PATTERN_A_WARP)
        row = ptx_def(k, PTX_MAD_LO_S32, "r", warp, ptx_imm(16 * is->fragments),
                      row);
    struct ptx_operand offset =
        ptx_def(k, PTX_MAD_LO_S32, "r", row, ptx_imm(swizzle.pitch), chunk);
    static const char *const names[] = {"lane_a", "lane_a", "lane_b"};
    struct ptx_operand address =
        ptx_def(k, PTX_MAD_LO_S32, names[pattern], offset, ptx_imm(16), smem);
    isel_entry_end(is, saved);
    isel_constant_add(is, "ldmatrix", (int)pattern, swizzle.pitch, swizzle.bits,
                      swizzle.shift, address);
    return address;
}

/* Addresses of one operand: a lane register for the tile (stage included) and
 * its xored versions.  Where the chunk changes only from k-step to k-step there
 * is one of them, xored on in place: through the product of Q and K every
 * register counts. Where it changes with every load (`cached`) all of them are
 * kept. */
struct tile_address {
    const struct shared_view *view;
    bool cached;
    struct ptx_operand base, xored[4];
    int touched; /* chunk bits that are xored into xored[0] now */
};

static struct tile_address address_of(struct isel *is,
                                      const struct shared_view *view,
                                      enum pattern pattern, bool cached) {
    struct tile_address address = {.view = view, .cached = cached};
    address.base = lane_address(is, view->swizzle, pattern);
    if (ptx_is_reg(view->stage))
        address.base = ptx_def(is->kernel, PTX_ADD_S32,
                               arena_printf(is->arena, "%s_addr", view->name),
                               address.base, view->stage);
    return address;
}

/* The lane register with chunk bits `touched` xored in. */
static struct ptx_operand
xored_address(struct isel *is, struct tile_address *address, int touched) {
    struct ptx_operand *reg =
        &address->xored[address->cached ? touched / 2 : 0];
    int have = address->cached ? touched : address->touched;
    bool own = !address->cached && ptx_is_reg(address->view->stage);
    if (own) /* the base is made for this product and may change */
        *reg = address->base;
    else if (touched == 0)
        return address->base;
    if (!ptx_is_reg(*reg)) {
        *reg = ptx_def(is->kernel, PTX_XOR_B32,
                       arena_printf(is->arena, "%s_addr", address->view->name),
                       address->base, ptx_imm(16 * touched));
    } else if (touched != have) {
        ptx_put(is->kernel, PTX_XOR_B32, *reg, *reg,
                ptx_imm(16 * (touched ^ have)));
    }
    address->touched = touched;
    return *reg;
}

/* Address of chunk pair 2 `step` of the row that lies `row` rows below. */
static struct ptx_operand
step_address(struct isel *is, struct tile_address *address, int row, int step) {
    const struct swizzle *s = &address->view->swizzle;
    int mask = (1 << s->bits) - 1;
    int offset = address->view->byte_offset;
    offset += 16 * (row * s->pitch + (2 * step & ~mask));
    return ptx_address(xored_address(is, address, 2 * step & mask), offset);
}

static struct ptx_operand *new_registers(struct isel *is, const char *hint,
                                         int count) {
    struct ptx_operand *regs =
        ARENA_NEW_ARRAY(is->arena, struct ptx_operand, (size_t)count);
    for (int i = 0; i < count; i++)
        regs[i] = ptx_reg_new(is->kernel, PTX_R, hint);
    return regs;
}

/* ---- The A operand ------------------------------------------------------ */

/* Fragment f of k-step kk from shared memory. */
static void load_a(struct isel *is, struct tile_address *a, int f, int kk,
                   struct ptx_operand *regs) {
    struct ptx_operand address = step_address(is, a, 16 * f, kk);
    ptx_put(is->kernel, PTX_LDMATRIX_X4, ptx_vector(regs, 4), address);
}

/* The same from a packed tile in registers: a0 a1 are columns 16 kk.. of rows i
 * = 0, 1, a2 a3 the next 8 columns. */
static struct ptx_operand *
registers_of_a(struct isel *is, const struct storage *a, int f, int kk) {
    struct ptx_operand *regs =
        ARENA_NEW_ARRAY(is->arena, struct ptx_operand, 4);
    for (int n = 0; n < 4; n++) {
        struct ptx_operand element =
            storage_element(a, f, n & 1, 2 * kk + (n >> 1), 0);
        regs[n] = isel_in_register(is, PTX_R, element, "a");
    }
    return regs;
}

void lower_fragments(struct isel *is, MlirOperation op) {
    struct shared_view *view = isel_shared(is, ir_operand(op, 0));
    struct storage type;
    if (!isel_describe(is, op, mlirValueGetType(ir_result(op, 0)), &type))
        return;
    struct storage *result = storage_create(is, &type);
    storage_fill_registers(
        is, result,
        isel_hint(op, arena_printf(is->arena, "%s_frag", view->name)));
    struct tile_address address = address_of(is, view, PATTERN_A_WARP, false);
    for (int kk = 0; kk < type.shape.groups / 2; kk++)
        for (int f = 0; f < type.shape.fragments; f++)
            load_a(is, &address, f, kk, registers_of_a(is, result, f, kk));
    isel_bind(is, ir_result(op, 0), result);
}

/* ---- The product -------------------------------------------------------- */

/* One attn.dot being lowered.  Step n of a k-step covers 16 columns (the last
 * may cover 8): one ldmatrix, then two mma for each fragment. */
struct product {
    struct isel *is;
    const struct storage *a_registers; /* A operand, or NULL: a_address */
    struct tile_address a_address, b_address;
    bool transpose_b, bf16, from_zero;
    int fragments, groups, k_steps, n_steps;
    const struct storage *in, *out;
    struct ptx_operand *zero;   /* four times a register that holds 0 */
    struct ptx_operand **a, *b; /* operands of the step that comes next */
    struct ptx_operand **a_next, *b_next;
};

/* Loads what step (kk, n) needs. */
static void load_step(struct product *p, int kk, int n) {
    struct isel *is = p->is;
    for (int f = 0; n == 0 && f < p->fragments; f++) {
        if (p->a_registers) {
            p->a_next[f] = registers_of_a(is, p->a_registers, f, kk);
            continue;
        }
        p->a_next[f] = new_registers(is, "a", 4);
        load_a(is, &p->a_address, f, kk, p->a_next[f]);
    }
    bool pair = 2 * n + 1 < p->groups;
    p->b_next = new_registers(is, "b", pair ? 4 : 2);
    enum ptx_op op =
        p->transpose_b ? (pair ? PTX_LDMATRIX_X4 : PTX_LDMATRIX_X2)
                       : (pair ? PTX_LDMATRIX_X4_TRANS : PTX_LDMATRIX_X2_TRANS);
    struct ptx_operand address =
        p->transpose_b ? step_address(is, &p->b_address, 16 * n, kk)
                       : step_address(is, &p->b_address, 16 * kk, n);
    ptx_put(is->kernel, op, ptx_vector(p->b_next, pair ? 4 : 2), address);
}

static struct ptx_operand
accumulator(struct product *p, const struct storage *storage, int f, int j) {
    struct ptx_operand *regs =
        ARENA_NEW_ARRAY(p->is->arena, struct ptx_operand, 4);
    for (int n = 0; n < 4; n++)
        regs[n] = storage_element(storage, f, n >> 1, j, n & 1);
    return ptx_vector(regs, 4);
}

static void multiply_step(struct product *p, int kk, int n) {
    enum ptx_op op = p->bf16 ? PTX_MMA_M16N8K16_BF16 : PTX_MMA_M16N8K16_F16;
    for (int half = 0; half < 2 && 2 * n + half < p->groups; half++)
        for (int f = 0; f < p->fragments; f++) {
            struct ptx_operand out = accumulator(p, p->out, f, 2 * n + half);
            struct ptx_operand in =
                kk > 0         ? out
                : p->from_zero ? ptx_vector(p->zero, 4)
                               : accumulator(p, p->in, f, 2 * n + half);
            ptx_put(p->is->kernel, op, out, ptx_vector(p->a[f], 4),
                    ptx_vector(p->b + 2 * half, 2), in);
        }
}

/* All steps, each one's operands loaded before the products of the one before.
 */
static void multiply(struct product *p) {
    size_t fragments = (size_t)p->fragments;
    p->a = ARENA_NEW_ARRAY(p->is->arena, struct ptx_operand *, fragments);
    p->a_next = ARENA_NEW_ARRAY(p->is->arena, struct ptx_operand *, fragments);
    load_step(p, 0, 0);
    for (int step = 0; step < p->k_steps * p->n_steps; step++) {
        int kk = step / p->n_steps, n = step % p->n_steps, next = step + 1;
        for (size_t f = 0; f < fragments; f++)
            p->a[f] = p->a_next[f];
        p->b = p->b_next;
        if (next < p->k_steps * p->n_steps)
            load_step(p, next / p->n_steps, next % p->n_steps);
        multiply_step(p, kk, n);
    }
}

/* True for a constant 0 in every element. */
static bool is_zero(const struct storage *storage) {
    return storage->layout == LAYOUT_SCALAR &&
           storage->elems[0].kind == PTX_OPERAND_F32 &&
           storage->elems[0].value == 0;
}

/* The registers of the result: the accumulator's own when this is its last use.
 */
static struct storage *result_of(struct isel *is, MlirOperation op,
                                 const struct storage *type,
                                 struct storage *acc, const char *hint) {
    struct storage *result = storage_create(is, type);
    if (acc->layout == LAYOUT_TILE && storage_dies(is, acc, 0)) {
        result->elems = acc->elems;
        result->owned = true;
        acc->owned = false;
    } else {
        storage_fill_registers(is, result, isel_hint(op, hint));
    }
    return result;
}

static bool check_operands(struct isel *is, MlirOperation op,
                           const struct product *p, int k_a, int k_b, int n_b) {
    if (k_a == k_b && n_b == 8 * p->groups && k_a % 16 == 0)
        return true;
    isel_error(
        is, op,
        "attn.dot: operands are %d and %d x %d for a result of %d columns; the "
        "inner extents must be equal and a multiple of 16",
        k_a, k_b, n_b, 8 * p->groups);
    return false;
}

void lower_dot(struct isel *is, MlirOperation op) {
    struct value *a = isel_value(is, ir_operand(op, 0));
    struct shared_view *b = isel_shared(is, ir_operand(op, 1));
    struct storage *acc = isel_storage(is, ir_operand(op, 2)), type;
    if (!isel_describe(is, op, mlirValueGetType(ir_result(op, 0)), &type))
        return;
    struct product p = {.is = is,
                        .transpose_b = ir_has_attr(op, "transpose_b"),
                        .bf16 = b->bf16,
                        .fragments = type.shape.fragments,
                        .groups = type.shape.groups,
                        .in = acc};
    int k_a = a->kind == VALUE_SHARED ? a->shared->columns
                                      : 8 * a->storage->shape.groups;
    p.k_steps = k_a / 16;
    p.n_steps = (p.groups + 1) / 2;
    if (!check_operands(is, op, &p, k_a, p.transpose_b ? b->columns : b->rows,
                        p.transpose_b ? b->rows : b->columns))
        return;
    isel_release(is, op);
    p.from_zero = is_zero(acc);
    struct storage *result =
        result_of(is, op, &type, acc, p.transpose_b ? "s" : "acc");
    p.out = result;
    ptx_comment(is->kernel, PTX_BANNER, "dot: %d x %d x %d, %s with %s%s",
                16 * is->warps * p.fragments, 8 * p.groups, k_a,
                a->kind == VALUE_SHARED ? a->shared->name : "registers",
                b->name, p.transpose_b ? " transposed" : "");
    if (a->kind == VALUE_SHARED)
        p.a_address = address_of(is, a->shared, PATTERN_A_WARP, false);
    else
        p.a_registers = a->storage;
    p.b_address = address_of(is, b, p.transpose_b ? PATTERN_B : PATTERN_A,
                             !p.transpose_b);
    p.zero = ARENA_NEW_ARRAY(is->arena, struct ptx_operand, 4);
    if (p.from_zero)
        p.zero[0] = isel_in_register(is, PTX_F, ptx_f32(0), "zero");
    for (int n = 1; n < 4; n++)
        p.zero[n] = p.zero[0];
    if (!p.from_zero && acc->layout != LAYOUT_TILE) {
        struct storage *full =
            storage_create(is, &type); /* a splat other than 0 */
        storage_fill_registers(is, full, "acc");
        struct move_list moves = {0};
        isel_add_moves(is, &moves, full, acc);
        isel_move_all(is, moves.to.data, moves.from.data, (int)moves.to.count);
        p.in = full;
    }
    multiply(&p);
    isel_bind(is, ir_result(op, 0), result);
}
