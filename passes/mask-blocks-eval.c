/* The mask over a tile as abstract values: see mask-blocks.h and interval.h.
 *
 * Ops have their transfer functions in interval.c; this file walks the mask
 * function and settles the reads of captured tensors:
 *   every index a point            the element itself
 *   few elements in all            all of them, joined
 *   one index that is no point     the tensor's block summary over the index range; if
 *                                  only run time knows that range, up to 4 elements or
 *                                  2 blocks are looked at
 *   anything else                  nothing is known
 * An index range is clamped like the read itself. */
#include <assert.h>
#include <math.h>
#include <mlir-c/BuiltinAttributes.h>
#include <string.h>

#include "passes/mask-blocks.h"

/* How much code a read may become; and, for an index whose range is not known
 * before run time, what is assumed and checked then. */
enum {
    MAX_ELEMENTS = 16,
    MAX_BLOCKS = 16,
    GUESSED_ELEMENTS = 4,
    GUESSED_BLOCKS = 2
};

/* ---- Facts by value ------------------------------------------------------ */

/* The slot of a key, or the empty one where it belongs. */
static size_t slot_of(const struct mask_eval *e, const void *key) {
    size_t slot = (((uintptr_t)key >> 3) * (size_t)0x9E3779B97F4A7C15u) >> 16;
    while (e->keys[slot & (e->capacity - 1)] &&
           e->keys[slot & (e->capacity - 1)] != key)
        slot++;
    return slot & (e->capacity - 1);
}

struct mask_fact *mask_eval_fact(const struct mask_eval *e, MlirValue value) {
    size_t slot = slot_of(e, value.ptr);
    assert(e->keys[slot]);
    return &e->facts[slot];
}

static void set_fact(struct mask_eval *e, MlirValue value, struct abs_value abs,
                     bool on_kv) {
    size_t slot = slot_of(e, value.ptr);
    e->keys[slot] = value.ptr;
    e->facts[slot] = (struct mask_fact){.value = abs, .on_kv = on_kv};
}

/* ---- Remainders ---------------------------------------------------------- */

/* quotient * factor, in either order. */
static bool is_product_of(MlirValue value, MlirValue quotient,
                          MlirValue factor) {
    MlirOperation op = ir_def_op(value, "arith.muli");
    if (!op.ptr)
        return false;
    return (mlirValueEqual(ir_operand(op, 0), quotient) &&
            mlirValueEqual(ir_operand(op, 1), factor)) ||
           (mlirValueEqual(ir_operand(op, 1), quotient) &&
            mlirValueEqual(ir_operand(op, 0), factor));
}

/* The product's factors are tried as the quotient in turn. */
bool mask_is_floormod(MlirValue value, MlirValue *out_x, MlirValue *out_y) {
    MlirOperation difference = ir_def_op(value, "arith.subi");
    MlirOperation product =
        difference.ptr ? ir_def_op(ir_operand(difference, 1), "arith.muli")
                       : difference;
    if (!product.ptr)
        return false;
    for (size_t i = 0; i < 2; i++) {
        MlirOperation quotient =
            ir_def_op(ir_operand(product, i), "arith.floordivsi");
        if (!quotient.ptr ||
            !mlirValueEqual(ir_operand(quotient, 0),
                            ir_operand(difference, 0)) ||
            !is_product_of(ir_operand(difference, 1), ir_result(quotient, 0),
                           ir_operand(quotient, 1)))
            continue;
        *out_x = ir_operand(quotient, 0);
        *out_y = ir_operand(quotient, 1);
        return true;
    }
    return false;
}

/* ---- Reads --------------------------------------------------------------- */

/* A read on its way: indices clamped to the tensor; hi - lo is at most `width`,
 * which must be checked at run time where `check` is set. */
struct tile_read {
    MlirOperation op;
    MlirValue tensor;
    size_t rank;
    MlirValue lo[KERNEL_MAX_RANK], hi[KERNEL_MAX_RANK], last[KERNEL_MAX_RANK];
    const struct abs_value *indices;
    int64_t width[KERNEL_MAX_RANK];
    bool check[KERNEL_MAX_RANK];
};

/* What attn.read does to an index. */
static MlirValue clamp(struct ir_builder *b, MlirValue index, MlirValue last) {
    return ir_minsi(b, ir_maxsi(b, index, ir_const_i32(b, 0)), last);
}

/* Clamps the ends of all index intervals. */
static struct tile_read begin_read(struct ir_builder *b, MlirOperation op,
                                   const struct abs_value *operands,
                                   size_t count) {
    struct tile_read read = {.op = op,
                             .tensor = operands[0].lo,
                             .rank = count - 1,
                             .indices = operands + 1};
    MlirValue one = ir_const_i32(b, 1);
    for (size_t i = 0; i < read.rank; i++) {
        const struct abs_value *index = &read.indices[i];
        read.width[i] = index->width;
        read.check[i] = index->loose;
        read.last[i] = ir_subi(b, ir_dim(b, read.tensor, (int)i), one);
        read.lo[i] = clamp(b, index->lo, read.last[i]);
        read.hi[i] = abs_is_point(index) ? read.lo[i]
                                         : clamp(b, index->hi, read.last[i]);
    }
    return read;
}

/* `value` where `good`, else `other`. */
static struct abs_value guarded(struct ir_builder *b, MlirValue good,
                                struct abs_value value,
                                struct abs_value other) {
    struct abs_value condition = abs_point(good);
    return abs_is_true(good) ? value
                             : abs_select(b, &condition, &value, &other);
}

/* Anything of the read's type. */
static struct abs_value unknown_read(struct ir_builder *b,
                                     const struct tile_read *read) {
    return abs_unknown(b, mlirValueGetType(ir_result(read->op, 0)));
}

/* The join of two values of one kind. */
static struct abs_value join(struct ir_builder *b, const struct abs_value *x,
                             const struct abs_value *y) {
    struct abs_value either =
        abs_bool(ir_const_bool(b, false), ir_const_bool(b, true));
    return abs_select(b, &either, x, y);
}

/* Elements that the index ranges cover at most, 0 when that is too many. */
static int64_t element_count(const struct tile_read *read) {
    int64_t count = 1;
    for (size_t i = 0; i < read->rank; i++) {
        if (read->width[i] >= MAX_ELEMENTS)
            return 0;
        count *= read->width[i] + 1;
        if (count > MAX_ELEMENTS)
            return 0;
    }
    return count;
}

/* Joins all elements, `other` where a width does not hold; offsets from lo
 * beyond hi repeat the last element. */
static struct abs_value read_elements(struct ir_builder *b,
                                      const struct tile_read *read,
                                      struct abs_value other) {
    MlirValue spans[KERNEL_MAX_RANK], good = ir_const_bool(b, true);
    for (size_t i = 0; i < read->rank; i++) {
        spans[i] = ir_subi(b, read->hi[i], read->lo[i]);
        if (read->check[i]) {
            MlirValue width = ir_const_i32(b, (int32_t)read->width[i]);
            good = abs_and(b, good, ir_cmpi(b, IR_ULE, spans[i], width));
        }
    }
    struct abs_value result = {.kind = ABS_NONE};
    int64_t steps[KERNEL_MAX_RANK] = {0};
    for (bool more = true; more;) {
        MlirValue at[KERNEL_MAX_RANK];
        for (size_t i = 0; i < read->rank; i++)
            at[i] = steps[i] == 0
                        ? read->lo[i]
                        : ir_addi(b, read->lo[i],
                                  ir_minui(b, spans[i],
                                           ir_const_i32(b, (int32_t)steps[i])));
        struct abs_value element =
            abs_point(ir_read(b, read->tensor, at, read->rank));
        result = result.kind == ABS_NONE ? element : join(b, &result, &element);
        more = false;
        for (size_t i = 0; i < read->rank && !more; i++) {
            more = ++steps[i] <= read->width[i];
            if (!more)
                steps[i] = 0;
        }
    }
    return guarded(b, good, result, other);
}

/* The number of the first summary entry of the row that the other indices pick.
 */
static MlirValue row_start(struct mask_eval *e, const struct tile_read *read,
                           size_t axis) {
    struct ir_builder *b = e->b;
    MlirValue one = ir_const_i32(b, 1), block = ir_const_i32(b, e->m->block);
    MlirValue row = ir_const_i32(b, 0);
    for (size_t i = 0; i < read->rank; i++)
        if (i != axis)
            row = ir_addi(b, ir_muli(b, row, ir_addi(b, read->last[i], one)),
                          read->lo[i]);
    MlirValue entries = ir_addi(b, ir_divui(b, read->last[axis], block), one);
    return ir_muli(b, row, entries);
}

/* One summary entry as an abstract value of the read's type. */
static struct abs_value summary_entry(struct ir_builder *b, MlirOperation op,
                                      MlirValue buffer, MlirValue entry) {
    MlirType type = mlirValueGetType(ir_result(op, 0));
    MlirValue one = ir_const_i32(b, 1), zero = ir_const_i32(b, 0);
    MlirValue first = ir_shli(b, entry, one), second = ir_addi(b, first, one);
    MlirValue least = ir_load_element(b, buffer, &first, 1);
    MlirValue most = ir_load_element(b, buffer, &second, 1);
    if (ir_is_bool(type))
        return abs_bool(ir_cmpi(b, IR_NE, least, zero),
                        ir_cmpi(b, IR_NE, most, zero));
    if (ir_is_i32(type))
        return abs_range(least, most, INT32_MIN, INT32_MAX);
    /* A minimum of NaN says that the block holds one. */
    MlirValue nan = ir_cmpf(b, IR_UNO, least, least);
    return abs_floats(ir_select(b, nan, ir_const_f32(b, -INFINITY), least),
                      ir_select(b, nan, ir_const_f32(b, INFINITY), most), nan,
                      INFINITY);
}

/* Summary blocks that the range on an axis touches at most. */
static int64_t block_count(const struct mask_eval *e,
                           const struct tile_read *read, size_t axis) {
    int64_t size = e->m->block, step = abs_gcd(read->indices[axis].align, size);
    return (size - step + read->width[axis]) / size +
           1; /* lo mod size <= size - step */
}

/* Joins the `count` summary entries that the range on `axis` touches. */
static struct abs_value read_summary(struct mask_eval *e,
                                     const struct tile_read *read, size_t axis,
                                     int64_t count) {
    struct ir_builder *b = e->b;
    int64_t size = e->m->block;
    size_t tensor =
        (size_t)mlirBlockArgumentGetArgNumber(ir_operand(read->op, 0)) -
        MASK_INDICES;
    MlirValue buffer = mask_summary_buffer(e, tensor, (int)axis);
    MlirValue start = row_start(e, read, axis),
              block = ir_const_i32(b, (int32_t)size);
    MlirValue first = ir_divui(b, read->lo[axis], block);
    /* An empty tile (k1 < k0) must not lead outside the buffer. */
    MlirValue last = ir_maxsi(b, first, ir_divui(b, read->hi[axis], block));
    MlirValue span = ir_subi(b, last, first);
    MlirValue good = ir_const_bool(b, true);
    if (read->check[axis])
        good = ir_cmpi(b, IR_ULT, span, ir_const_i32(b, (int32_t)count));
    struct abs_value result = {.kind = ABS_NONE};
    for (int64_t i = 0; i < count; i++) {
        MlirValue at = first;
        if (i > 0)
            at = ir_addi(b, first,
                         ir_minui(b, span, ir_const_i32(b, (int32_t)i)));
        struct abs_value entry =
            summary_entry(b, read->op, buffer, ir_addi(b, start, at));
        result = result.kind == ABS_NONE ? entry : join(b, &result, &entry);
    }
    return guarded(b, good, result, unknown_read(b, read));
}

/* A read with at least one index that is no point. */
static struct abs_value eval_read(struct mask_eval *e, MlirOperation op,
                                  const struct abs_value *operands,
                                  size_t count, bool on_kv) {
    size_t varying = 0, axis = 0;
    for (size_t i = 1; i < count; i++)
        if (!abs_is_point(&operands[i]))
            varying++, axis = i - 1;
    struct tile_read read = begin_read(e->b, op, operands, count);
    if (element_count(&read))
        return read_elements(e->b, &read, unknown_read(e->b, &read));
    if (varying != 1 || !mlirValueIsABlockArgument(ir_operand(op, 0)) ||
        (on_kv && e->all_keys))
        return unknown_read(e->b, &read);
    if (block_count(e, &read, axis) <= MAX_BLOCKS)
        return read_summary(e, &read, axis, block_count(e, &read, axis));
    read.check[axis] = true;
    struct abs_value blocks = read_summary(e, &read, axis, GUESSED_BLOCKS);
    read.width[axis] = GUESSED_ELEMENTS - 1;
    return read_elements(e->b, &read, blocks);
}

/* ---- The walk ------------------------------------------------------------ */

/* Every operand is the same for all pairs: the op is copied. */
static bool all_points(const struct abs_value *operands, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!abs_is_point(&operands[i]))
            return false;
    return true;
}

/* Reads and remainders here, the rest in interval.c. */
static struct abs_value eval_op(struct mask_eval *e, MlirOperation op,
                                const struct abs_value *operands, size_t count,
                                bool on_kv) {
    MlirValue x, y;
    bool exact = all_points(operands, count);
    if (!exact && ir_is_op(op, "attn.read"))
        return eval_read(e, op, operands, count, on_kv);
    if (!exact && mask_is_floormod(ir_result(op, 0), &x, &y))
        return abs_floormod(e->b, &mask_eval_fact(e, x)->value,
                            &mask_eval_fact(e, y)->value);
    return abs_apply(e->b, op, operands, count);
}

/* Facts about the arguments: indices are below 2^31 - 1, sizes are not
 * negative. */
static void eval_arguments(struct mask_eval *e, struct abs_value q,
                           struct abs_value kv) {
    MlirOperation mask = e->m->mask;
    for (size_t i = 0; i < ir_func_arg_count(mask); i++) {
        bool is_shared = i >= MASK_INDICES;
        struct abs_value value = abs_point(
            ir_func_arg(e->func, is_shared ? e->shared + i - MASK_INDICES : i));
        bool is_size = is_shared && i < MASK_INDICES + SIZE_COUNT;
        if (!is_shared || is_size)
            value.min = 0, value.max = is_size ? INT32_MAX : INT32_MAX - 1;
        if (i == IR_MASK_Q || i == IR_MASK_KV)
            value = i == IR_MASK_Q ? q : kv;
        set_fact(e, ir_func_arg(mask, i), value, i == IR_MASK_KV);
    }
}

/* Values of a straight-line function. */
static size_t value_count(MlirOperation func) {
    size_t count = ir_func_arg_count(func);
    MlirOperation op = mlirBlockGetFirstOperation(ir_func_body(func));
    for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op))
        count += ir_result_count(op);
    return count;
}

void mask_eval_run(struct mask_eval *e, struct mask_blocks *m,
                   struct ir_builder *b, MlirOperation func, size_t shared,
                   struct abs_value q, struct abs_value kv) {
    *e = (struct mask_eval){.m = m,
                            .b = b,
                            .func = func,
                            .shared = shared,
                            .capacity = 64,
                            .all_keys = kv.width >= m->most_n};
    while (e->capacity < 2 * value_count(m->mask))
        e->capacity *= 2;
    e->facts = ARENA_NEW_ARRAY(m->arena, struct mask_fact, e->capacity);
    e->keys = ARENA_NEW_ARRAY(m->arena, const void *, e->capacity);
    eval_arguments(e, q, kv);
    MlirOperation op = mlirBlockGetFirstOperation(ir_func_body(m->mask));
    for (; !ir_is_op(op, "func.return"); op = mlirOperationGetNextInBlock(op)) {
        size_t count = ir_operand_count(op);
        struct abs_value *operands =
            ARENA_NEW_ARRAY(m->arena, struct abs_value, count);
        bool on_kv = false;
        for (size_t i = 0; i < count; i++) {
            struct mask_fact *fact = mask_eval_fact(e, ir_operand(op, i));
            operands[i] = fact->value;
            on_kv |= fact->on_kv;
        }
        b->location = mlirOperationGetLocation(op);
        set_fact(e, ir_result(op, 0), eval_op(e, op, operands, count, on_kv),
                 on_kv);
    }
}
