/* attn.store: rows of a register tile to global memory.
 *
 * A lane holds two neighbouring 16-bit columns of every 8, a word, so a plain
 * store would write 4 bytes.  Neighbouring lanes exchange one word of each pair
 * of groups, so that a lane has 8 bytes of one group and the quad 32 bytes, a
 * sector, of the row:
 *
 *          group j  j+1                bytes of the row
 *   lane 0   w00  w01       lane 0   w00  w10        0..7
 *   lane 1   w10  w11       lane 1   w01  w11       16..23
 *   lane 2   w20  w21  -->  lane 2   w20  w30        8..15
 *   lane 3   w30  w31       lane 3   w21  w31       24..31
 *
 * (A full transpose to 16 bytes a lane takes twice the shuffles and selects.)
 */
#include "backends/ptx/isel.h"

/* Exchanges words a and b between the lanes of a pair: afterwards the even lane
 * holds both a's, the odd one both b's. */
static void exchange(struct isel *is, struct ptx_operand is_odd,
                     struct ptx_operand *a, struct ptx_operand *b) {
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand send = ptx_def(k, PTX_SELP_B32, "r", *a, *b, is_odd);
    struct ptx_operand got =
        ptx_def(k, PTX_SHFL_BFLY_B32, "other", send, ptx_imm(1));
    *a = ptx_def(k, PTX_SELP_B32, "r", got, *a, is_odd);
    *b = ptx_def(k, PTX_SELP_B32, "r", *b, got, is_odd);
}

struct store {
    struct isel *is;
    const struct storage *value;
    struct ptx_operand left;    /* limit - the lane's first row */
    struct ptx_operand column;  /* 2 (lane % 4), the lane's first column */
    struct ptx_operand is_odd;  /* predicate: of a pair of lanes */
    struct ptx_operand place;   /* bytes of a pair of groups in front of it */
};

/* Predicate: row `offset` below the lane's first one is to be written. */
static struct ptx_operand row_inside(const struct store *store, int offset) {
    return ptx_def(store->is->kernel, PTX_SETP_GT_S32, "in_rows", store->left,
                   ptx_imm(offset));
}

/* One row of a 16-bit tile; `pointer` is the row's first byte. */
static void store_row(const struct store *store, int f, int i,
                      struct ptx_operand pointer) {
    struct isel *is = store->is;
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand inside = row_inside(store, 16 * f + 8 * i);
    int groups = store->value->shape.groups, wide = groups / 2 * 2;
    struct ptx_operand at = pointer;
    if (wide > 0)
        at = ptx_def(k, PTX_MAD_WIDE_S32, "row_ptr", store->place, ptx_imm(1),
                     pointer);
    for (int j = 0; j < wide; j += 2) {
        struct ptx_operand *w =
            ARENA_NEW_ARRAY(is->arena, struct ptx_operand, 2);
        for (int n = 0; n < 2; n++)
            w[n] = storage_element(store->value, f, i, j + n, 0);
        exchange(is, store->is_odd, &w[0], &w[1]);
        ptx_guard(ptx_put(k, PTX_ST_GLOBAL_V2_B32, PTX_NOTHING,
                          ptx_address(at, 16 * j), ptx_vector(w, 2)),
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
    struct ptx_operand inside = row_inside(store, 16 * f + 8 * i);
    struct ptx_operand first =
        ptx_def(is->kernel, PTX_SETP_EQ_S32, "p", store->column, ptx_imm(0));
    inside = ptx_def(is->kernel, PTX_AND_PRED, "in_rows", inside, first);
    struct ptx_operand value = storage_element(store->value, f, i, 0, 0);
    ptx_guard(ptx_put(is->kernel, PTX_ST_GLOBAL_F32, PTX_NOTHING,
                      ptx_address(pointer, 0), value),
              inside, false);
}

/* Where in the row the words of a tile lie behind the exchange. */
static void place_words(struct store *store) {
    struct ptx_kernel *k = store->is->kernel;
    struct ptx_operand odd =
        ptx_def(k, PTX_AND_B32, "r", store->column, ptx_imm(2));
    struct ptx_operand high =
        ptx_def(k, PTX_AND_B32, "r", store->column, ptx_imm(4));
    store->is_odd = ptx_def(k, PTX_SETP_NE_S32, "is_odd", odd, ptx_imm(0));
    high = ptx_def(k, PTX_SHL_B32, "r", high, ptx_imm(1));
    store->place = ptx_def(k, PTX_MAD_LO_S32, "place", odd, ptx_imm(8), high);
}

/* Behind the store where nobody wants the tensor (a null pointer); none for
 * tensors that everybody does. */
static struct ptx_operand skip_unwanted(struct isel *is, MlirOperation op,
                                        struct argument *arg) {
    struct ptx_kernel *k = is->kernel;
    if (!ir_has_attr(op, "optional"))
        return PTX_NOTHING;
    struct ptx_operand wanted = ptx_def(
        k, PTX_SETP_NE_S64, "wanted", isel_param_pointer(is, arg), ptx_imm(0));
    struct ptx_operand end =
        ptx_label_new(k, arena_printf(is->arena, "no_%s", arg->stem));
    ptx_guard(ptx_put(k, PTX_BRA_UNI, PTX_NOTHING, end), wanted, true);
    return end;
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
    struct ptx_operand end = skip_unwanted(is, op, arg);
    struct ptx_operand head =
        isel_head_pointer(is, arg, ir_operand(op, 2), ir_operand(op, 3));
    struct ptx_operand stride = isel_param_stride(is, arg, 2);
    struct ptx_operand row_lane = isel_row_lane(is);
    struct ptx_operand row = ptx_def(k, PTX_ADD_S32, "row", row_lane, row0);
    struct store store = {
        .is = is, .value = value, .column = isel_column_lane(is)};
    if (tile)
        place_words(&store);
    store.left = ptx_def(k, PTX_SUB_S32, "rows_left", limit, row);
    int bytes = isel_element_bytes(arg), heads = ir_packed_heads(op);
    struct ptx_operand pointer = {0};
    if (heads == 1) {
        struct ptx_operand wide =
            ptx_def(k, PTX_MUL_WIDE_S32, "rd", row, ptx_imm(bytes));
        pointer = ptx_def(k, PTX_MAD_LO_S64, "row_ptr", wide, stride, head);
    }
    for (int r = 0; r < 2 * shape.shape.fragments; r++) {
        int offset = 16 * (r / 2) + 8 * (r % 2);
        struct ptx_operand at = pointer;
        if (heads > 1)
            at = isel_packed_row(
                is, arg, head,
                ptx_def(k, PTX_ADD_S32, "row", row, ptx_imm(offset)), heads);
        else if (offset > 0)
            at = ptx_def(k, PTX_MAD_LO_S64, "row_ptr", stride,
                         ptx_imm(offset * bytes), pointer);
        if (tile)
            store_row(&store, r / 2, r % 2, at);
        else
            store_scalar_row(&store, r / 2, r % 2, at);
    }
    if (end.kind != PTX_OPERAND_NONE)
        ptx_put(k, PTX_LABEL, PTX_NOTHING, end);
    isel_release(is, op);
}
