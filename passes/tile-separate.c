/* Sums of positions, split into a row part and a column part.
 *
 * Source like `q - kv + kv_len - 1` becomes three tile operations when it is
 * inlined as it stands.  i32 addition wraps and so may be reordered exactly:
 *
 *     (q + kv_len - 1) - kv      one row value, one column value, one tile op
 *
 * and the row part leaves the key loop.  Only addition and subtraction of i32:
 * f32 sums are evaluated as written. */
#include "ir/walk.h"
#include "passes/tile.h"

/* A term of a sum: a scalar, row or column value, added or subtracted. */
struct term {
    MlirValue value;
    bool negative;
};

enum { MAX_TERMS = 32 };

struct sum {
    struct term terms[MAX_TERMS];
    size_t count;
};

static bool is_i32_tile(MlirValue value) {
    MlirType type = mlirValueGetType(value);
    return ir_is_tile(type) && ir_is_i32(type);
}

static bool is_sum(MlirOperation op) {
    return (ir_is_op(op, "arith.addi") || ir_is_op(op, "arith.subi")) &&
           is_i32_tile(ir_result(op, 0));
}

/* Appends the terms of a tile value; false when it holds something else, or too
 * much. */
static bool collect_terms(struct ir_builder *b, MlirValue value, bool negative,
                          struct sum *sum) {
    MlirOperation op = ir_def(value);
    int64_t constant;
    if (!mlirOperationIsNull(op) && is_sum(op)) {
        bool flips = ir_is_op(op, "arith.subi");
        return collect_terms(b, ir_operand(op, 0), negative, sum) &&
               collect_terms(b, ir_operand(op, 1), negative != flips, sum);
    }
    if (sum->count == MAX_TERMS)
        return false;
    MlirOperation stretch = ir_def_op(value, "vector.broadcast");
    MlirValue small = {NULL};
    if (!mlirOperationIsNull(stretch))
        small = ir_operand(stretch, 0);
    else if (ir_constant_int(value, &constant))
        small = ir_const_i32(b, (int32_t)constant);
    if (mlirValueIsNull(small))
        return false;
    sum->terms[sum->count++] = (struct term){small, negative};
    return true;
}

/* True when the terms are one row and one column value: nothing to gain. */
static bool is_separate(const struct sum *sum) {
    if (sum->count != 2)
        return false;
    MlirType a = mlirValueGetType(sum->terms[0].value),
             b = mlirValueGetType(sum->terms[1].value);
    return (ir_is_row(a) && ir_is_column(b)) ||
           (ir_is_column(a) && ir_is_row(b));
}

static MlirValue add_term(struct ir_builder *b, MlirValue total,
                          struct term term, bool negated) {
    bool negative = term.negative != negated;
    if (mlirValueIsNull(total)) {
        if (!negative)
            return term.value;
        total = ir_splat(b, mlirValueGetType(term.value), 0);
    }
    MlirType shape =
        ir_join_shapes(mlirValueGetType(total), mlirValueGetType(term.value));
    MlirValue x = ir_broadcast(b, total, shape),
              y = ir_broadcast(b, term.value, shape);
    return negative ? ir_subi(b, x, y) : ir_addi(b, x, y);
}

/* Sum of the scalars, or of the rows, or of the columns; null when there are
 * none. Added terms come first, so that a zero to subtract from is rarely
 * needed. */
static MlirValue add_terms(struct ir_builder *b, const struct sum *sum,
                           bool (*wants)(MlirType), bool negated,
                           MlirValue total) {
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < sum->count; i++)
            if (wants(mlirValueGetType(sum->terms[i].value)) &&
                (sum->terms[i].negative != negated) == (pass == 1))
                total = add_term(b, total, sum->terms[i], negated);
    return total;
}

/* The first term of a kind is subtracted. */
static bool starts_negative(const struct sum *sum, bool (*wants)(MlirType)) {
    for (size_t i = 0; i < sum->count; i++)
        if (wants(mlirValueGetType(sum->terms[i].value)))
            return sum->terms[i].negative;
    return false;
}

/* rows + scalars and columns, joined by one tile operation. */
static MlirValue build_separate(struct ir_builder *b, const struct sum *sum,
                                MlirType tile) {
    MlirValue none = {NULL};
    bool minus_rows = starts_negative(sum, ir_is_row);
    bool minus_columns = !minus_rows && starts_negative(sum, ir_is_column);
    MlirValue scalars = add_terms(b, sum, ir_is_scalar, minus_rows, none);
    MlirValue rows = add_terms(b, sum, ir_is_row, minus_rows, scalars);
    MlirValue columns = add_terms(b, sum, ir_is_column, minus_columns, none);
    if (mlirValueIsNull(rows) || mlirValueIsNull(columns))
        return none;
    MlirValue r = ir_broadcast(b, rows, tile),
              c = ir_broadcast(b, columns, tile);
    if (minus_rows)
        return ir_subi(b, c, r);
    return minus_columns ? ir_subi(b, r, c) : ir_addi(b, r, c);
}

/* True when a user needs the sum itself, not as a part of a larger one. */
static bool is_root(MlirOperation op) {
    MlirOpOperand use = mlirValueGetFirstUse(ir_result(op, 0));
    for (; !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use))
        if (!is_sum(mlirOpOperandGetOwner(use)))
            return true;
    return false;
}

static void separate_ops(struct ir_builder *b, MlirOperation func,
                         const char *name) {
    size_t count = 0;
    MlirOperation *ops = ir_collect(b->arena, func, name, &count);
    for (size_t i = 0; i < count; i++) {
        struct sum sum = {.count = 0};
        if (!is_sum(ops[i]) || !is_root(ops[i]))
            continue;
        ir_before(b, ops[i]);
        MlirValue old = ir_result(ops[i], 0);
        if (!collect_terms(b, old, false, &sum) || is_separate(&sum))
            continue;
        MlirValue separate = build_separate(b, &sum, mlirValueGetType(old));
        if (!mlirValueIsNull(separate))
            ir_replace_uses(old, separate);
    }
}

void tile_separate(struct tile_kernel *kernel) {
    struct ir_builder *b = &kernel->b;
    separate_ops(b, kernel->func, "arith.addi");
    separate_ops(b, kernel->func, "arith.subi");
    ir_erase_dead(ir_func_body(kernel->func));
}
