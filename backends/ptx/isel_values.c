/* Values and their storages: binding, use counts, element access, moves. */
#include "backends/ptx/isel.h"

#include <string.h>

/* ---- Types -------------------------------------------------------------- */

static bool describe_element(MlirType element, struct storage *out) {
    if (ir_is_f32(element)) {
        out->class = PTX_F;
    } else if (ir_is_bool(element)) {
        out->class = PTX_P;
    } else if (ir_is_float(element) && ir_element_bits(element) == 16) {
        out->class = PTX_H;
        out->bf16 = mlirTypeIsABF16(element);
    } else if (ir_is_i32(element) || mlirTypeIsAIndex(element) ||
               ir_element_bits(element) == 8) {
        out->class = PTX_R; /* index: extents and positions fit in 32 bits */
    } else {
        return false;
    }
    return true;
}

static bool describe_vector(struct isel *is, MlirType type,
                            struct storage *out) {
    int64_t rows = ir_rows(type), columns = ir_columns(type);
    if (ir_rank(type) == 1) { /* result of a reduction over the columns */
        rows = ir_extent(type, 0);
        columns = 1;
    }
    int fragment_rows = 16 * is->row_warps;
    if (rows == 1) {
        out->layout = LAYOUT_COLUMN;
        out->shape = (struct tile_shape){1, (int)columns / 8};
        return columns % 8 == 0;
    }
    if (rows % fragment_rows != 0)
        return false;
    out->shape = (struct tile_shape){(int)rows / fragment_rows, 1};
    out->layout = LAYOUT_ROW;
    if (columns == 1 ||
        columns == 4) /* 4: one partial result for each lane of a quad */
        return true;
    out->layout = LAYOUT_TILE;
    out->shape.groups = (int)columns / 8;
    if (out->class == PTX_H) {
        out->class = PTX_R;
        out->packed = true;
    }
    return columns % 8 == 0;
}

bool isel_describe(struct isel *is, MlirOperation op, MlirType type,
                   struct storage *out) {
    *out = (struct storage){.shape = {1, 1}, .anchor_order = -1};
    bool known = describe_element(ir_element_type(type), out);
    if (known && ir_is_vector(type))
        known = describe_vector(is, type, out);
    if (!known) {
        isel_error(is, op,
                   "the PTX back end has no register layout for a value of "
                   "'%s' (%d warps)",
                   ir_op_name(op), is->warps);
    }
    return known;
}

/* ---- Storages ----------------------------------------------------------- */

struct storage *storage_create(struct isel *is, const struct storage *like) {
    struct storage *storage = ARENA_NEW(is->arena, struct storage);
    *storage = (struct storage){
        .layout = like->layout,
        .class = like->class,
        .packed = like->packed,
        .bf16 = like->bf16,
        .shape = like->shape,
        .loop = is->loop,
        .anchor_order = -1,
    };
    int count = layout_count(storage->layout, storage->shape, storage->packed);
    storage->elems =
        ARENA_NEW_ARRAY(is->arena, struct ptx_operand, (size_t)count);
    return storage;
}

static int element_count(const struct storage *storage) {
    return layout_count(storage->layout, storage->shape, storage->packed);
}

void storage_fill_registers(struct isel *is, struct storage *storage,
                            const char *hint) {
    for (int i = 0; i < element_count(storage); i++)
        storage->elems[i] = ptx_reg_new(is->kernel, storage->class, hint);
    storage->owned = true;
}

struct storage *storage_scalar(struct isel *is, enum ptx_class class,
                               struct ptx_operand operand) {
    struct storage like = {
        .layout = LAYOUT_SCALAR, .class = class, .shape = {1, 1}};
    struct storage *storage = storage_create(is, &like);
    storage->elems[0] = operand;
    return storage;
}

bool storage_dies(const struct isel *is, const struct storage *storage,
                  int uses_now) {
    return storage->owned && storage->elems && storage->loop == is->loop &&
           storage->in_flight == 0 && storage->uses == uses_now;
}

struct ptx_operand storage_element(const struct storage *storage, int f, int i,
                                   int j, int c) {
    return storage->elems[layout_index(storage->layout, storage->shape,
                                       storage->packed, f, i, j, c)];
}

/* ---- The value map ------------------------------------------------------ */

static size_t slot_of(const struct isel *is, const void *key) {
    size_t slot = (size_t)(((uintptr_t)key >> 3) * 0x9E3779B97F4A7C15u >> 20);
    for (;; slot++) {
        slot &= is->value_capacity - 1;
        if (is->values[slot].key == NULL || is->values[slot].key == key)
            return slot;
    }
}

static void grow_values(struct isel *is) {
    struct value *old = is->values;
    size_t old_capacity = is->value_capacity;
    is->value_capacity = old_capacity ? 2 * old_capacity : 256;
    is->values = ARENA_NEW_ARRAY(is->arena, struct value, is->value_capacity);
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].key)
            is->values[slot_of(is, old[i].key)] = old[i];
}

/* Values may be shared by an op and, when a results list is zero-based, a
 * block: the pointer of a value is unique. */
static struct value *add_value(struct isel *is, MlirValue value,
                               enum value_kind kind) {
    if (2 * (is->value_count + 1) > is->value_capacity)
        grow_values(is);
    struct value *entry = &is->values[slot_of(is, value.ptr)];
    is->value_count += entry->key == NULL;
    *entry = (struct value){.key = value.ptr, .kind = kind};
    return entry;
}

static int count_uses(MlirValue value) {
    int count = 0;
    for (MlirOpOperand use = mlirValueGetFirstUse(value);
         !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use))
        count++;
    return count;
}

void isel_bind(struct isel *is, MlirValue value, struct storage *storage) {
    add_value(is, value, VALUE_STORAGE)->storage = storage;
    storage->uses += count_uses(value);
    if (is->depth == 0 && storage->anchor_order < 0) {
        storage->anchor = is->kernel->cursor;
        storage->anchor_order = ++is->order;
    }
}

void isel_bind_shared(struct isel *is, MlirValue value,
                      struct shared_view *view) {
    add_value(is, value, VALUE_SHARED)->shared = view;
}

void isel_bind_other(struct isel *is, MlirValue value, enum value_kind kind,
                     int argument) {
    add_value(is, value, kind)->argument = argument;
}

struct value *isel_find(struct isel *is, MlirValue value) {
    struct value *entry =
        is->value_capacity ? &is->values[slot_of(is, value.ptr)] : NULL;
    return entry && entry->key ? entry : NULL;
}

struct value *isel_value(struct isel *is, MlirValue value) {
    struct value *entry = isel_find(is, value);
    if (!entry) {
        MlirOperation op = ir_def(value);
        ir_ice(mlirOperationIsNull(op) ? is->func : op,
               "ptx: value without a lowering");
    }
    return entry;
}

struct storage *isel_storage(struct isel *is, MlirValue value) {
    struct value *entry = isel_value(is, value);
    if (entry->kind != VALUE_STORAGE)
        ir_ice(is->func, "ptx: value has no registers");
    return entry->storage;
}

struct shared_view *isel_shared(struct isel *is, MlirValue value) {
    struct value *entry = isel_value(is, value);
    if (entry->kind != VALUE_SHARED)
        ir_ice(is->func, "ptx: value is no shared-memory tile");
    return entry->shared;
}

struct argument *isel_argument(struct isel *is, MlirValue value) {
    struct value *entry = isel_value(is, value);
    if (entry->kind != VALUE_GLOBAL)
        ir_ice(is->func, "ptx: value is no tensor argument");
    return &is->arguments.data[entry->argument];
}

void isel_release(struct isel *is, MlirOperation op) {
    for (size_t i = 0; i < ir_operand_count(op); i++) {
        struct value *entry = isel_value(is, ir_operand(op, i));
        if (entry->kind == VALUE_STORAGE)
            entry->storage->uses--;
    }
}

/* ---- Operands ----------------------------------------------------------- */

struct ptx_operand isel_plain(struct isel *is, struct ptx_operand operand) {
    if (operand.kind != PTX_OPERAND_ADDRESS)
        return operand;
    struct ptx_operand base = {.kind = PTX_OPERAND_REG, .reg = operand.reg};
    if (operand.value == 0)
        return base;
    return ptx_def(is->kernel, PTX_ADD_S32, "r", base, ptx_imm(operand.value));
}

struct ptx_operand isel_scalar(struct isel *is, MlirValue value) {
    return isel_plain(is, isel_storage(is, value)->elems[0]);
}

static enum ptx_op move_op(enum ptx_class class) {
    switch ((int)class) {
    case PTX_P:
        return PTX_MOV_PRED;
    case PTX_F:
        return PTX_MOV_F32;
    case PTX_D:
        return PTX_MOV_B64;
    default:
        return PTX_MOV_B32;
    }
}

void isel_move(struct isel *is, struct ptx_operand to,
               struct ptx_operand from) {
    enum ptx_class class = ptx_reg_class(is->kernel, to.reg);
    if (from.kind == PTX_OPERAND_ADDRESS) {
        struct ptx_operand base = {.kind = PTX_OPERAND_REG, .reg = from.reg};
        ptx_put(is->kernel, PTX_ADD_S32, to, base, ptx_imm(from.value));
    } else if (class == PTX_P && from.kind == PTX_OPERAND_IMM) {
        enum ptx_op op = from.value ? PTX_SETP_EQ_S32 : PTX_SETP_NE_S32;
        ptx_put(is->kernel, op, to, ptx_imm(0), ptx_imm(0));
    } else if (!ptx_same(to, from)) {
        ptx_put(is->kernel, move_op(class), to, from);
    }
}

struct ptx_operand isel_in_register(struct isel *is, enum ptx_class class,
                                    struct ptx_operand operand,
                                    const char *hint) {
    if (ptx_is_reg(operand))
        return operand;
    struct ptx_operand reg = ptx_reg_new(is->kernel, class, hint);
    isel_move(is, reg, operand);
    return reg;
}

/* ---- Parallel moves ----------------------------------------------------- */

static bool reads(struct ptx_operand operand, uint32_t reg) {
    return (operand.kind == PTX_OPERAND_REG ||
            operand.kind == PTX_OPERAND_ADDRESS) &&
           operand.reg == reg;
}

/* A pending move whose destination no other pending move still reads; -1: all
 * pending moves form cycles. */
static int find_free_move(const struct ptx_operand *to,
                          const struct ptx_operand *from, const bool *done,
                          int count) {
    for (int i = 0; i < count; i++) {
        bool free = !done[i];
        for (int k = 0; free && k < count; k++)
            free = done[k] || k == i || !reads(from[k], to[i].reg);
        if (free)
            return i;
    }
    return -1;
}

void isel_move_all(struct isel *is, const struct ptx_operand *to,
                   const struct ptx_operand *from, int count) {
    struct ptx_operand *source =
        ARENA_NEW_ARRAY(is->arena, struct ptx_operand, (size_t)count);
    bool *done = ARENA_NEW_ARRAY(is->arena, bool, (size_t)count);
    if (count > 0)
        memcpy(source, from, (size_t)count * sizeof *source);
    for (int left = count; left > 0;) {
        int i = find_free_move(to, source, done, count);
        if (i >= 0) {
            isel_move(is, to[i], source[i]);
            done[i] = true;
            left--;
            continue;
        }
        for (i = 0; done[i]; i++)
            ;
        /* A cycle: save what the first pending move overwrites. */
        enum ptx_class class = ptx_reg_class(is->kernel, to[i].reg);
        struct ptx_operand saved = ptx_reg_new(is->kernel, class, "swap");
        isel_move(is, saved, to[i]);
        for (int k = 0; k < count; k++)
            if (!done[k] && reads(source[k], to[i].reg))
                source[k].reg = saved.reg;
    }
}

void isel_add_moves(struct isel *is, struct move_list *list,
                    const struct storage *to, const struct storage *from) {
    if (to == from || to->elems == from->elems)
        return;
    for (int f = 0; f < to->shape.fragments; f++)
        for (int j = 0; j < to->shape.groups; j++)
            for (int k = 0; k < 4; k++) {
                int i = k >> 1, c = k & 1;
                bool first =
                    (to->layout & LAYOUT_ROW || (f == 0 && i == 0)) &&
                    (to->layout & LAYOUT_COLUMN || (j == 0 && c == 0)) &&
                    !(to->packed && c == 1);
                struct ptx_operand a, b;
                if (!first)
                    continue;
                a = storage_element(to, f, i, j, c);
                b = storage_element(from, f, i, j, c);
                if (ptx_same(a, b))
                    continue;
                vec_push(is->arena, &list->to, a);
                vec_push(is->arena, &list->from, b);
            }
}

const char *isel_hint(MlirOperation op, const char *fallback) {
    const char *name = ir_text_attr(op, "attn.name");
    return name ? name : fallback;
}
