/* attn.store: rows of a register tile to global memory.
 *
 * A lane holds two neighbouring 16-bit columns of every 8, so a plain store
 * would write 4 bytes.  A 4 x 4 transpose of words among the four lanes of a
 * quad gives each lane 8 neighbouring columns of one group, 16 bytes:
 *
 *          group j  j+1 j+2 j+3                      column 32 jj + 8 q
 *   lane 0   w00  w01  w02  w03            lane 0   w00  w10  w20  w30
 *   lane 1   w10  w11  w12  w13    --->    lane 1   w01  w11  w21  w31
 *   ...                                    ...
 */
#include "backends/ptx/isel.h"

/* Exchanges words a and b across lanes that differ in bit `mask`: afterwards
 * the lane without the bit holds both a's, the lane with it both b's. */
static void exchange(struct isel *is, struct ptx_operand has_bit, int mask,
                     struct ptx_operand *a, struct ptx_operand *b) {
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand send = ptx_def(k, PTX_SELP_B32, "r", *a, *b, has_bit);
    struct ptx_operand got =
        ptx_def(k, PTX_SHFL_BFLY_B32, "other", send, ptx_imm(mask));
    *a = ptx_def(k, PTX_SELP_B32, "r", got, *a, has_bit);
    *b = ptx_def(k, PTX_SELP_B32, "r", *b, got, has_bit);
}

struct store {
    struct isel *is;
    const struct storage *value;
    struct ptx_operand left;    /* limit - the lane's first row */
    struct ptx_operand wanted;  /* predicate of an optional store, or none */
    struct ptx_operand column;  /* 2 (lane % 4), the lane's first column */
    struct ptx_operand bits[2]; /* bits 0 and 1 of lane % 4 */
};

static void transpose_quad(const struct store *store, struct ptx_operand *w) {
    struct isel *is = store->is;
    exchange(is, store->bits[0], 1, &w[0], &w[1]);
    exchange(is, store->bits[0], 1, &w[2], &w[3]);
    exchange(is, store->bits[1], 2, &w[0], &w[2]);
    exchange(is, store->bits[1], 2, &w[1], &w[3]);
}

/* Predicate: row `offset` below the lane's first one is to be written. */
static struct ptx_operand row_inside(const struct store *store, int offset) {
    struct ptx_kernel *k = store->is->kernel;
    struct ptx_operand inside =
        ptx_def(k, PTX_SETP_GT_S32, "in_rows", store->left, ptx_imm(offset));
    if (ptx_is_reg(store->wanted))
        inside = ptx_def(k, PTX_AND_PRED, "in_rows", inside, store->wanted);
    return inside;
}

/* One row of a 16-bit tile; `pointer` is the row's first byte. */
static void store_row(const struct store *store, int f, int i,
                      struct ptx_operand pointer) {
    struct isel *is = store->is;
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand inside =
        row_inside(store, 16 * is->row_warps * f + 8 * i);
    int groups = store->value->shape.groups, wide = groups / 4 * 4;
    struct ptx_operand at = pointer;
    if (wide > 0)
        at = ptx_def(k, PTX_MAD_WIDE_S32, "row_ptr", store->column, ptx_imm(8),
                     pointer);
    for (int j = 0; j < wide; j += 4) {
        struct ptx_operand *w =
            ARENA_NEW_ARRAY(is->arena, struct ptx_operand, 4);
        for (int n = 0; n < 4; n++)
            w[n] = storage_element(store->value, f, i, j + n, 0);
        transpose_quad(store, w);
        ptx_guard(ptx_put(k, PTX_ST_GLOBAL_V4_B32, PTX_NOTHING,
                          ptx_address(at, 16 * j), ptx_vector(w, 4)),
                  inside, false);
    }
    if (wide == groups)
        return;
    at = ptx_def(k, PTX_MAD_WIDE_S32, "row_ptr", store->column, ptx_imm(2),
                 pointer);
    for (int j = wide; j < groups; j++)
        ptx_guard(ptx_put(k, PTX_ST_GLOBAL_B32, PTX_NOTHING,
                          ptx_address(at, 16 * j),
                          storage_element(store->value, f, i, j, 0)),
                  inside, false);
}

/* One f32 of a row quantity, by one lane of the quad. */
static void store_scalar_row(const struct store *store, int f, int i,
                             struct ptx_operand pointer) {
    struct isel *is = store->is;
    struct ptx_operand inside =
        row_inside(store, 16 * is->row_warps * f + 8 * i);
    struct ptx_operand first =
        ptx_def(is->kernel, PTX_SETP_EQ_S32, "p", store->column, ptx_imm(0));
    inside = ptx_def(is->kernel, PTX_AND_PRED, "in_rows", inside, first);
    struct ptx_operand value = storage_element(store->value, f, i, 0, 0);
    ptx_guard(ptx_put(is->kernel, PTX_ST_GLOBAL_F32, PTX_NOTHING,
                      ptx_address(pointer, 0), value),
              inside, false);
}

void lower_store(struct isel *is, MlirOperation op) {
    struct storage *value = isel_storage(is, ir_operand(op, 0));
    struct argument *arg = isel_argument(is, ir_operand(op, 1));
    struct ptx_operand row0 = isel_scalar(is, ir_operand(op, 4));
    struct ptx_operand limit = isel_scalar(is, ir_operand(op, 5));
    struct ptx_kernel *k = is->kernel;
    MlirType type = mlirValueGetType(ir_operand(op, 0));
    bool tile = ir_is_tile(type);
    struct storage shape;
    if (!isel_describe(is, op, type, &shape))
        return;
    if (tile && !value->packed) {
        isel_error(is, op, "attn.store: tiles must be f16 or bf16");
        return;
    }
    ptx_comment(k, PTX_BANNER, "store %s", arg->stem);
    struct ptx_operand head =
        isel_head_pointer(is, arg, ir_operand(op, 2), ir_operand(op, 3));
    struct ptx_operand stride = isel_param_stride(is, arg, 2);
    struct ptx_operand row_lane = isel_row_lane(is);
    struct ptx_operand row = ptx_def(k, PTX_ADD_S32, "row", row_lane, row0);
    struct store store = {
        .is = is, .value = value, .column = isel_column_lane(is)};
    for (int bit = 0; tile && bit < 2; bit++) {
        struct ptx_operand masked =
            ptx_def(k, PTX_AND_B32, "r", store.column, ptx_imm(2 << bit));
        store.bits[bit] =
            ptx_def(k, PTX_SETP_NE_S32, "quad_bit", masked, ptx_imm(0));
    }
    store.left = ptx_def(k, PTX_SUB_S32, "rows_left", limit, row);
    if (ir_has_attr(op, "optional"))
        store.wanted = ptx_def(k, PTX_SETP_NE_S64, "wanted",
                               isel_param_pointer(is, arg), ptx_imm(0));
    int bytes = isel_element_bytes(arg);
    struct ptx_operand wide =
        ptx_def(k, PTX_MUL_WIDE_S32, "rd", row, ptx_imm(bytes));
    struct ptx_operand pointer =
        ptx_def(k, PTX_MAD_LO_S64, "row_ptr", wide, stride, head);
    for (int r = 0; r < 2 * shape.shape.fragments; r++) {
        int offset = 16 * is->row_warps * (r / 2) + 8 * (r % 2);
        struct ptx_operand at = pointer;
        if (offset > 0)
            at = ptx_def(k, PTX_MAD_LO_S64, "row_ptr", stride,
                         ptx_imm(offset * bytes), pointer);
        if (tile)
            store_row(&store, r / 2, r % 2, at);
        else
            store_scalar_row(&store, r / 2, r % 2, at);
    }
    isel_release(is, op);
}
