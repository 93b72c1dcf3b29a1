/* Positions, "register + constant" for every element.
 *
 * A lane's rows and columns are its first one plus constants, so positions take
 * one register however many there are.  Sums with scalars and quotients of keys
 * stay in that form; everything else adds them up element by element. */
#include "backends/ptx/isel.h"

/* vector.step seen as rows or columns: lane position + constants. */
void position_step(struct isel *is, MlirOperation op,
                   const struct storage *type) {
    struct storage *storage = storage_create(is, type);
    storage->range = RANGE_POSITION;
    bool rows = type->layout == LAYOUT_ROW;
    struct ptx_operand base = rows ? isel_row_lane(is) : isel_column_lane(is);
    int count = layout_count(type->layout, type->shape, false);
    for (int k = 0; k < count; k++) {
        int offset = rows ? 16 * (k / 2) + 8 * (k % 2) : 8 * (k / 2) + k % 2;
        storage->elems[k] = ptx_address(base, offset);
    }
    isel_bind(is, ir_result(op, 0), storage);
    storage->anchor = NULL;
    storage->anchor_order = is->depth == 0 ? 0 : -1;
}

/* position + scalar stays "register + constant": one addition for all elements.
 */
bool position_add(struct isel *is, MlirOperation op,
                  struct storage *const in[2]) {
    bool add = ir_is_op(op, "arith.addi"), sub = ir_is_op(op, "arith.subi");
    if (!add && !sub)
        return false;
    int p = in[0]->elems && in[0]->elems[0].kind == PTX_OPERAND_ADDRESS ? 0 : 1;
    struct storage *position = in[p], *other = in[1 - p];
    if ((sub && p == 1) || !position->elems || !other->elems ||
        position->elems[0].kind != PTX_OPERAND_ADDRESS ||
        other->layout != LAYOUT_SCALAR || other->in_run)
        return false;
    struct ptx_operand base = {.kind = PTX_OPERAND_REG,
                               .reg = position->elems[0].reg};
    struct ptx_operand offset = isel_plain(is, other->elems[0]);
    int64_t constant = 0;
    if (offset.kind == PTX_OPERAND_IMM)
        constant = add ? offset.value : -offset.value;
    else
        base =
            ptx_def(is->kernel, add ? PTX_ADD_S32 : PTX_SUB_S32,
                    position->layout == LAYOUT_COLUMN ? "col_pos" : "row_pos",
                    base, offset);
    struct storage *result = storage_create(is, position);
    bool is_position = position->range == RANGE_POSITION && add &&
                       ir_has_attr(op, "attn.position");
    result->range = is_position ? RANGE_POSITION : RANGE_ANY;
    if (is_position)
        result->divisor = (int)ir_int_attr(op, "attn.position", 1);
    int count = layout_count(result->layout, result->shape, false);
    for (int k = 0; k < count; k++)
        result->elems[k] =
            ptx_address(base, position->elems[k].value + constant);
    isel_release(is, op);
    isel_bind(is, ir_result(op, 0), result);
    return true;
}

/* Key positions divided by 2^n where the tile starts at a multiple of it: a
 * lane's columns of a group of 8 do not cross a block, so their quotients are
 * that of the lane's first column plus a constant of the group.  Equal ones are
 * seen as such (isel_number.c). */
bool position_divide(struct isel *is, MlirOperation op,
                     struct storage *const in[2]) {
    if (!ir_is_op(op, "arith.shrsi"))
        return false;
    const struct storage *position = in[0], *count = in[1];
    if (position->layout != LAYOUT_COLUMN || !position->elems ||
        position->divisor == 0 || count->layout != LAYOUT_SCALAR ||
        !count->elems || count->elems[0].kind != PTX_OPERAND_IMM)
        return false;
    int64_t n = count->elems[0].value;
    if (n < 3 || n > 20 || position->divisor % (1 << n) != 0)
        return false;
    struct ptx_operand base = {.kind = PTX_OPERAND_REG,
                               .reg = position->elems[0].reg};
    base = ptx_def(is->kernel, PTX_SHR_S32, "block", base, ptx_imm(n));
    struct storage *result = storage_create(is, position);
    result->range = RANGE_POSITION;
    result->coarse = true;
    int elements = layout_count(result->layout, result->shape, false);
    for (int k = 0; k < elements; k++)
        result->elems[k] = ptx_address(base, position->elems[k].value >> n);
    isel_release(is, op);
    isel_bind(is, ir_result(op, 0), result);
    return true;
}
