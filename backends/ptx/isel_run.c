/* Elementwise operations, collected into runs and emitted element by element.
 *
 *   for every group of 8 columns        column quantities once
 *     for every row of the lane
 *       for every operation of the run  elements c = 0, 1, then pairs are
 * packed
 *
 * So a mask predicate or an exponent lives for two elements, not for a tile of
 * 64 registers.  Operations on rows and scalars that do not need the run's
 * results are emitted at once, which puts them before the run.  Sums and maxima
 * over the columns run along in two chains per row; the shuffles follow the
 * run. */
#include "backends/ptx/isel.h"

#include <string.h>

#include "backends/ptx/isel_number.h"

enum member_kind {
    MEMBER_ELEMENT,
    MEMBER_PACK,
    MEMBER_READ,
    MEMBER_REDUCE,
    MEMBER_PARTIAL
};

struct member {
    enum member_kind kind;
    MlirOperation op;
    const struct element_rule *rule;
    struct storage **in;
    struct ptx_operand *in_operands; /* of the current element */
    enum ptx_class *in_classes;
    int in_count;
    struct storage *result;
    bool live_out;
    bool numbered; /* equal elements are computed once */
    bool contract;
    const char *hint;
    struct read_plan *read;
    enum ptx_op combine;           /* of a reduction */
    struct ptx_operand *chains[2]; /* of a reduction, by row */
};

struct run {
    VEC(struct member) members;
    struct tile_shape shape; /* zeros: not known yet */
};

/* ---- Inside a run ------------------------------------------------------- */

struct ptx_operand run_affine(const struct storage *storage, int f, int i,
                              int j, int c) {
    return storage->elems ? storage_element(storage, f, i, j, c)
                          : storage->temps[storage->packed ? 0 : c];
}

struct ptx_operand run_element(struct isel *is, struct storage *storage, int f,
                               int i, int j, int c) {
    if (storage->read) {
        for (int n = 0; storage->temps_group != j && n < 2; n++)
            storage->temps[n] =
                read_plan_element(is, storage->read, 0, 0, j, n, PTX_NOTHING);
        storage->temps_group = j;
        return storage->temps[c];
    }
    if (!storage->elems)
        return numbering_plain(is, is->numbers,
                               storage->temps[storage->packed ? 0 : c]);
    struct ptx_operand operand = storage_element(storage, f, i, j, c);
    if (operand.kind != PTX_OPERAND_ADDRESS)
        return operand;
    if (storage->layout == LAYOUT_ROW) {
        if (!storage->run_rows)
            storage->run_rows =
                ARENA_NEW_ARRAY(is->arena, struct ptx_operand,
                                2 * (size_t)storage->shape.fragments);
        struct ptx_operand *row = &storage->run_rows[2 * f + i];
        if (row->kind == PTX_OPERAND_NONE)
            *row = isel_plain(is, operand);
        return *row;
    }
    if (storage->layout != LAYOUT_COLUMN)
        return isel_plain(is, operand);
    if (storage->temps_group != j) {
        storage->temps[0] =
            isel_plain(is, storage_element(storage, f, i, j, 0));
        storage->temps[1] =
            isel_plain(is, storage_element(storage, f, i, j, 1));
        storage->temps_group = j;
    }
    return storage->temps[c];
}

static const char *default_hint(const struct storage *storage) {
    static const char *const by_class[PTX_CLASS_COUNT] = {[PTX_P] = "p",
                                                          [PTX_H] = "h",
                                                          [PTX_R] = "r",
                                                          [PTX_F] = "f",
                                                          [PTX_D] = "rd"};
    if (storage->packed)
        return "packed";
    if (storage->class == PTX_F && storage->layout != LAYOUT_SCALAR)
        return storage->layout == LAYOUT_ROW    ? "row"
               : storage->layout == LAYOUT_TILE ? "t"
                                                : "col";
    return by_class[storage->class];
}

static void fill_element(struct isel *is, const struct member *m, int f, int i,
                         int j, int c, struct element *out) {
    *out = (struct element){
        .is = is,
        .op = m->op,
        .in = m->in_operands,
        .in_class = m->in_classes,
        .hint = m->hint,
        .contract = m->contract,
        .unit = 2 * j + c,
    };
    for (int k = 0; k < m->in_count; k++)
        out->in[k] = run_element(is, m->in[k], f, i, j, c);
    if (m->result->elems)
        out->dest = storage_element(m->result, f, i, j, c);
}

static void emit_reduction(struct isel *is, struct member *m, int f, int i,
                           int j, int c) {
    struct ptx_operand x = run_element(is, m->in[0], f, i, j, c);
    struct ptx_operand *chain = &m->chains[c][2 * f + i];
    if (ptx_is_reg(*chain)) {
        ptx_put(is->kernel, m->combine, *chain, *chain, x);
        return;
    }
    *chain = ptx_reg_new(is->kernel, m->in[0]->class, m->hint);
    if (m->kind == MEMBER_PARTIAL && c == 0 && m->in_count > 1)
        ptx_put(is->kernel, m->combine, *chain,
                run_element(is, m->in[1], f, i, j, c), x);
    else
        isel_move(is, *chain, x);
}

static void emit_pack(struct isel *is, struct member *m, int f, int i, int j) {
    struct ptx_operand low = run_element(is, m->in[0], f, i, j, 0);
    struct ptx_operand high = run_element(is, m->in[0], f, i, j, 1);
    enum ptx_op op = m->result->bf16 ? PTX_CVT_BF16X2_F32 : PTX_CVT_F16X2_F32;
    struct ptx_operand dest = m->result->elems
                                  ? storage_element(m->result, f, i, j, 0)
                                  : ptx_reg_new(is->kernel, PTX_R, m->hint);
    ptx_put(is->kernel, op, dest, high, low);
    m->result->temps[0] = dest;
}

/* The sum or difference of two positions as "register + constant". */
static bool emit_affine(struct isel *is, struct member *m, int f, int i, int j,
                        int c) {
    bool subtract = ir_is_op(m->op, "arith.subi");
    if (!subtract && !ir_is_op(m->op, "arith.addi"))
        return false;
    bool positions =
        m->in[0]->range == RANGE_POSITION && m->in[1]->range == RANGE_POSITION;
    m->result->range = subtract && positions ? RANGE_DISTANCE : RANGE_ANY;
    return numbering_affine(
        is, is->numbers, subtract, run_affine(m->in[0], f, i, j, c),
        run_affine(m->in[1], f, i, j, c), &m->result->temps[c]);
}

/* A side of a comparison.  What varies along a row gains nothing as a limit. */
static bool compared_side(struct isel *is, struct storage *storage, int f,
                          int i, int j, int c, bool is_limit,
                          struct compared *out) {
    out->range = storage->range;
    if (storage->range != RANGE_ANY)
        out->value = run_affine(storage, f, i, j, c);
    else if (!is_limit || storage->layout == LAYOUT_TILE ||
             storage->layout == LAYOUT_COLUMN)
        return false;
    else
        out->value = run_element(is, storage, f, i, j, c);
    return true;
}

/* A comparison with a position or a distance of positions. */
static bool emit_comparison(struct isel *is, struct member *m, int f, int i,
                            int j, int c) {
    int64_t predicate = ir_int_attr(m->op, "predicate", 0);
    if (m->kind != MEMBER_ELEMENT || !ir_is_op(m->op, "arith.cmpi") ||
        predicate > IR_SGE)
        return false;
    struct compared sides[2];
    struct number_key key = {.op = m->op.ptr};
    for (int k = 0; k < 2; k++) {
        const struct storage *other = m->in[1 - k];
        bool across = other->range != RANGE_ANY && other->layout != LAYOUT_ROW;
        if (!compared_side(is, m->in[k], f, i, j, c, across, &sides[k]))
            return false;
    }
    if (!numbering_compare(is, is->numbers, sides, &predicate, key.in))
        return false;
    struct element e = {
        .is = is, .op = m->op, .hint = m->hint, .unit = 2 * j + c};
    if (m->result->elems)
        e.dest = storage_element(m->result, f, i, j, c);
    struct ptx_operand known =
        m->numbered ? numbering_find(is->numbers, &key) : PTX_NOTHING;
    if (known.kind == PTX_OPERAND_NONE) {
        known = element_compare(&e, predicate, key.in[0], key.in[1]);
        if (m->numbered)
            numbering_add(is->numbers, &key, known);
    }
    m->result->temps[c] = known;
    return true;
}

/* An element that may have been computed before. */
static void emit_numbered(struct isel *is, struct member *m, int f, int i,
                          int j, int c) {
    struct number_key key = {.op = m->op.ptr};
    if (m->kind == MEMBER_ELEMENT && emit_affine(is, m, f, i, j, c))
        return;
    if (m->kind == MEMBER_ELEMENT && ir_is_op(m->op, "arith.sitofp") &&
        numbering_convert(is, is->numbers, run_affine(m->in[0], f, i, j, c),
                          &m->result->temps[c]))
        return;
    bool has_key = true;
    if (m->kind == MEMBER_READ)
        has_key = read_plan_key(is, m->read, f, i, j, c, key.in);
    else
        for (int k = 0; k < m->in_count; k++)
            key.in[k] = run_affine(m->in[k], f, i, j, c);
    struct ptx_operand known =
        has_key ? numbering_find(is->numbers, &key) : PTX_NOTHING;
    if (known.kind != PTX_OPERAND_NONE) {
        m->result->temps[c] = known;
        return;
    }
    if (m->kind == MEMBER_READ) {
        known = read_plan_element(is, m->read, f, i, j, c, PTX_NOTHING);
    } else {
        struct element e;
        fill_element(is, m, f, i, j, c, &e);
        known = element_emit(m->rule, &e);
    }
    if (has_key)
        numbering_add(is->numbers, &key, known);
    m->result->temps[c] = known;
}

/* One operation for the pair of elements (f, i, j, 0) and (f, i, j, 1). */
static void emit_member(struct isel *is, struct member *m, int f, int i,
                        int j) {
    if (m->kind == MEMBER_PACK) {
        emit_pack(is, m, f, i, j);
        return;
    }
    for (int c = 0; c < 2; c++) {
        struct element e;
        if (m->kind == MEMBER_REDUCE || m->kind == MEMBER_PARTIAL) {
            emit_reduction(is, m, f, i, j, c);
            continue;
        }
        if (emit_comparison(is, m, f, i, j, c))
            continue;
        if (m->numbered) {
            emit_numbered(is, m, f, i, j, c);
            continue;
        }
        struct ptx_operand dest = {0};
        if (m->result->elems)
            dest = storage_element(m->result, f, i, j, c);
        if (m->kind == MEMBER_READ) {
            m->result->temps[c] =
                read_plan_element(is, m->read, f, i, j, c, dest);
            continue;
        }
        fill_element(is, m, f, i, j, c, &e);
        m->result->temps[c] = element_emit(m->rule, &e);
    }
}

/* ---- Planning a run ----------------------------------------------------- */

/* An operand that nobody needs after this member and whose registers fit. */
static struct storage *reusable_operand(const struct isel *is,
                                        const struct member *m) {
    for (int k = 0; k < m->in_count; k++) {
        struct storage *in = m->in[k];
        if (!in->in_run && in->layout == LAYOUT_TILE &&
            m->result->layout == LAYOUT_TILE && in->class == m->result->class &&
            in->packed == m->result->packed &&
            in->shape.groups == m->result->shape.groups &&
            in->shape.fragments == m->result->shape.fragments &&
            storage_dies(is, in, 0))
            return in;
    }
    return NULL;
}

static void allocate_result(struct isel *is, struct member *m) {
    struct storage *reused = reusable_operand(is, m);
    if (!reused)
        reused = isel_yield_target(is, ir_result(m->op, 0), m->result);
    if (reused) {
        m->result->elems = reused->elems;
        m->result->owned = true;
        reused->owned = false;
        return;
    }
    int count =
        layout_count(m->result->layout, m->result->shape, m->result->packed);
    m->result->elems =
        ARENA_NEW_ARRAY(is->arena, struct ptx_operand, (size_t)count);
    storage_fill_registers(is, m->result, m->hint);
}

/* Columns that are computed from coarse ones and from what is the same for all
 * columns. */
static bool is_coarse(const struct member *m) {
    bool coarse = false;
    for (int k = 0; k < m->in_count; k++) {
        if (m->in[k]->layout != LAYOUT_SCALAR && !m->in[k]->coarse)
            return false;
        coarse = coarse || m->in[k]->coarse;
    }
    return coarse && m->result->layout == LAYOUT_COLUMN;
}

/* Inputs that do not change while the run is emitted: no tiles in registers.
 * Equal elements of attn.exp2_split may go different ways.  Of columns only
 * coarse ones have equals. */
static bool is_numbered(const struct member *m) {
    if (ir_is_op(m->op, "attn.exp2_split"))
        return false;
    bool fits = (m->kind == MEMBER_ELEMENT && m->in_count <= NUMBER_OPERANDS) ||
                m->kind == MEMBER_READ;
    bool many = m->result->layout == LAYOUT_TILE || m->result->coarse;
    if (!fits || m->live_out || !many || m->result->packed)
        return false;
    for (int k = 0; k < m->in_count; k++)
        if (m->in[k]->read)
            return false;
    for (int k = 0; k < m->in_count; k++)
        if (m->in[k]->in_run
                ? !m->in[k]->numbered && m->in[k]->layout == LAYOUT_TILE
                : m->in[k]->layout == LAYOUT_TILE)
            return false;
    return true;
}

static void plan_run(struct isel *is, struct run *run) {
    for (size_t k = 0; k < run->members.count; k++)
        for (int n = 0; n < run->members.data[k].in_count; n++) {
            run->members.data[k].in[n]->run_uses++;
            run->members.data[k].in[n]->temps_group = -1;
        }
    for (size_t k = 0; k < run->members.count; k++) {
        struct member *m = &run->members.data[k];
        m->live_out = m->result->uses > m->result->run_uses;
        m->result->coarse = !m->live_out && is_coarse(m);
        m->numbered = m->result->numbered = is_numbered(m);
        for (int n = 0; n < m->in_count; n++)
            m->in[n]->uses--;
        if (m->kind == MEMBER_REDUCE || m->kind == MEMBER_PARTIAL) {
            size_t rows = 2 * (size_t)run->shape.fragments;
            m->chains[0] = ARENA_NEW_ARRAY(is->arena, struct ptx_operand, rows);
            m->chains[1] = ARENA_NEW_ARRAY(is->arena, struct ptx_operand, rows);
        } else if (m->live_out) {
            allocate_result(is, m);
        }
        if (m->kind == MEMBER_READ)
            read_plan_begin(is, m->read);
    }
}

/* Joins the two chains of each row; whole reductions then go over the quad. */
static void finish_reduction(struct isel *is, struct member *m) {
    struct storage *result = m->result;
    result->elems = ARENA_NEW_ARRAY(is->arena, struct ptx_operand,
                                    2 * (size_t)result->shape.fragments);
    for (int r = 0; r < 2 * result->shape.fragments; r++) {
        struct ptx_operand x = m->chains[0][r];
        ptx_put(is->kernel, m->combine, x, x, m->chains[1][r]);
        if (m->kind == MEMBER_REDUCE) {
            x = isel_quad_reduce(is, m->combine, result->class, x, m->hint);
            struct ptx_operand init =
                run_element(is, m->in[1], r / 2, r % 2, 0, 0);
            if (!isel_neutral_reduction(m->op))
                x = ptx_def(is->kernel, m->combine, m->hint, init, x);
        }
        result->elems[r] = x;
    }
    result->owned = true;
}

/* Sums kept for the elements of one run are not for code elsewhere: it may
 * stand behind a branch around this one. */
static void forget_sums(struct member *m) {
    for (int n = 0; n < m->in_count; n++) {
        m->in[n]->run_rows = NULL;
        m->in[n]->temps_group = -1;
    }
}

static void clean_run(struct run *run) {
    for (size_t k = 0; k < run->members.count; k++) {
        struct member *m = &run->members.data[k];
        m->result->in_run = false;
        m->result->numbered = false;
        for (int n = 0; n < m->in_count; n++)
            m->in[n]->run_uses = 0;
        forget_sums(m);
    }
}

void isel_flush(struct isel *is) {
    struct run *run = is->run;
    if (!run || run->members.count == 0)
        return;
    is->run = NULL;
    is->numbers = numbering_create(is->arena);
    isel_location(is, run->members.data[0].op);
    if (run->shape.fragments == 0)
        run->shape.fragments = 1; /* columns only */
    plan_run(is, run);
    for (int j = 0; j < run->shape.groups; j++)
        for (int r = 0; r < 2 * run->shape.fragments; r++)
            for (size_t k = 0; k < run->members.count; k++) {
                struct member *m = &run->members.data[k];
                if (r == 0 || m->result->layout != LAYOUT_COLUMN)
                    emit_member(is, m, r / 2, r % 2, j);
            }
    for (size_t k = 0; k < run->members.count; k++)
        if (run->members.data[k].chains[0])
            finish_reduction(is, &run->members.data[k]);
    clean_run(run);
}

static bool needs_pending(struct isel *is, MlirValue operand) {
    struct value *entry = isel_value(is, operand);
    return entry->kind == VALUE_STORAGE && entry->storage->in_run;
}

void isel_flush_for(struct isel *is, MlirOperation op) {
    for (size_t i = 0; i < ir_operand_count(op); i++)
        if (needs_pending(is, ir_operand(op, i))) {
            isel_flush(is);
            return;
        }
}

/* ---- Joining a run ------------------------------------------------------ */

static bool same_shape(const struct run *run, const struct storage *storage) {
    bool columns = storage->layout == LAYOUT_COLUMN;
    return run->shape.groups == 0 ||
           (run->shape.groups == storage->shape.groups &&
            (columns || run->shape.fragments == storage->shape.fragments ||
             !run->shape.fragments));
}

/* Adds a member; `shape` is that of the tile or column it works on.  Row
 * results of the pending run (reductions) are ready only after it. */
static void add_member(struct isel *is, struct member *m,
                       const struct storage *shape) {
    bool waits = is->run && !same_shape(is->run, shape);
    for (int k = 0; k < m->in_count; k++)
        waits =
            waits || (m->in[k]->in_run && !(m->in[k]->layout & LAYOUT_COLUMN));
    if (waits)
        isel_flush(is);
    if (!is->run)
        is->run = ARENA_NEW(is->arena, struct run);
    struct run *run = is->run;
    run->shape.groups = shape->shape.groups;
    if (shape->layout != LAYOUT_COLUMN)
        run->shape.fragments = shape->shape.fragments;
    m->result->in_run = true;
    m->result->elems = NULL;
    vec_push(is->arena, &run->members, *m);
    isel_bind(is, ir_result(m->op, 0), m->result);
    m->result->anchor_order = -1;
}

/* Packs a tile in the run that makes it, wherever in the block the truncf
 * stands: half the registers from then on. */
static void pull_packing(struct isel *is, const struct member *m) {
    MlirValue value = ir_result(m->op, 0);
    if (m->result->class != PTX_F || m->result->layout != LAYOUT_TILE)
        return;
    for (MlirOpOperand use = mlirValueGetFirstUse(value);
         !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use)) {
        MlirOperation user = mlirOpOperandGetOwner(use);
        if (ir_is_op(user, "arith.truncf") &&
            mlirBlockEqual(mlirOperationGetBlock(user),
                           mlirOperationGetBlock(m->op))) {
            vec_push(is->arena, &is->early, user);
            isel_elementwise(is, user);
            return;
        }
    }
}

/* ---- Rows and scalars: at once ------------------------------------------ */

static void emit_now(struct isel *is, struct member *m) {
    isel_location(is, m->op);
    struct storage *result = storage_create(is, m->result);
    int rows = result->layout == LAYOUT_ROW ? 2 * result->shape.fragments : 1;
    for (int r = 0; r < rows; r++) {
        struct element e;
        fill_element(is, m, r / 2, r % 2, 0, 0, &e);
        for (int k = 0; k < m->in_count; k++)
            e.in[k] = isel_plain(is, e.in[k]);
        e.dest = PTX_NOTHING;
        e.unit = -1;
        result->elems[r] = element_emit(m->rule, &e);
    }
    forget_sums(m);
    isel_release(is, m->op);
    isel_bind(is, ir_result(m->op, 0), result);
}

static void read_now(struct isel *is, struct member *m) {
    isel_location(is, m->op);
    struct storage *result = storage_create(is, m->result);
    read_plan_begin(is, m->read);
    int rows = result->layout == LAYOUT_ROW ? 2 * result->shape.fragments : 1;
    for (int r = 0; r < rows; r++)
        result->elems[r] =
            read_plan_element(is, m->read, r / 2, r % 2, 0, 0, PTX_NOTHING);
    forget_sums(m);
    isel_release(is, m->op);
    isel_bind(is, ir_result(m->op, 0), result);
}

/* ---- Operations --------------------------------------------------------- */

static void alias(struct isel *is, MlirOperation op) {
    struct storage *storage = isel_storage(is, ir_operand(op, 0));
    storage->uses--;
    isel_bind(is, ir_result(op, 0), storage);
}

static bool reshape(struct isel *is, MlirOperation op) {
    struct value *operand = isel_value(is, ir_operand(op, 0));
    if (operand->kind != VALUE_STEP) {
        alias(is, op);
        return true;
    }
    struct storage type;
    if (ir_is_op(op, "arith.index_cast"))
        isel_bind_other(is, ir_result(op, 0), VALUE_STEP, 0);
    else if (isel_describe(is, op, mlirValueGetType(ir_result(op, 0)), &type))
        position_step(is, op, &type);
    return true;
}

struct ptx_operand isel_quad_reduce(struct isel *is, enum ptx_op op,
                                    enum ptx_class class, struct ptx_operand x,
                                    const char *hint) {
    struct ptx_kernel *k = is->kernel;
    bool predicate = class == PTX_P;
    for (int mask = 1; mask <= 2; mask *= 2) {
        struct ptx_operand word =
            predicate ? ptx_def(k, PTX_SELP_B32, "r", ptx_imm(1), ptx_imm(0), x)
                      : x;
        enum ptx_op shuffle =
            class == PTX_F ? PTX_SHFL_BFLY_F32 : PTX_SHFL_BFLY_B32;
        struct ptx_operand other =
            ptx_def(k, shuffle, "other", word, ptx_imm(mask));
        if (predicate)
            other = ptx_def(k, PTX_SETP_NE_S32, "p", other, ptx_imm(0));
        x = ptx_def(k, op, hint, x, other);
    }
    return x;
}

/* Row sums of partial sums (one value for each lane of a quad). */
static void reduce_partial(struct isel *is, struct member *m) {
    isel_flush_for(is, m->op);
    isel_location(is, m->op);
    struct storage *result = storage_create(is, m->result);
    for (int r = 0; r < 2 * result->shape.fragments; r++) {
        struct ptx_operand x = isel_in_register(
            is, result->class, storage_element(m->in[0], r / 2, r % 2, 0, 0),
            m->hint);
        x = isel_quad_reduce(is, m->combine, result->class, x, m->hint);
        if (!isel_neutral_reduction(m->op))
            x = ptx_def(is->kernel, m->combine, m->hint,
                        storage_element(m->in[1], r / 2, r % 2, 0, 0), x);
        result->elems[r] = x;
    }
    isel_release(is, m->op);
    isel_bind(is, ir_result(m->op, 0), result);
}

/* Combining instruction of vector.multi_reduction by kind and class. */
static const struct {
    const char *kind, *hint;
    enum ptx_op f, r, p;
} reductions[] = {
    {"add", "row_sum", PTX_ADD_RN_F32, PTX_ADD_S32, PTX_XOR_PRED},
    {"maxnumf", "row_max", PTX_MAX_F32, PTX_OP_COUNT, PTX_OP_COUNT},
    {"minnumf", "row_min", PTX_MIN_F32, PTX_OP_COUNT, PTX_OP_COUNT},
    {"maxsi", "row_max", PTX_OP_COUNT, PTX_MAX_S32, PTX_AND_PRED},
    {"minsi", "row_min", PTX_OP_COUNT, PTX_MIN_S32, PTX_OR_PRED},
    {"and", "row_all", PTX_OP_COUNT, PTX_AND_B32, PTX_AND_PRED},
    {"or", "row_any", PTX_OP_COUNT, PTX_OR_B32, PTX_OR_PRED},
};

static bool add_reduction(struct isel *is, struct member *m) {
    const char *kind = isel_reduction_kind(is, m->op);
    m->kind = MEMBER_REDUCE;
    m->combine = PTX_OP_COUNT;
    for (size_t k = 0; kind && k < sizeof reductions / sizeof *reductions; k++)
        if (strcmp(reductions[k].kind, kind) == 0) {
            enum ptx_class class = m->in[0]->class;
            m->combine = class == PTX_F   ? reductions[k].f
                         : class == PTX_R ? reductions[k].r
                                          : reductions[k].p;
            m->hint = isel_hint(m->op, reductions[k].hint);
        }
    if (m->combine == PTX_OP_COUNT) {
        isel_error(is, m->op, "the PTX back end lacks the reduction '%s'",
                   kind ? kind : "?");
        return false;
    }
    if (ir_columns(mlirValueGetType(ir_operand(m->op, 0))) == 4) {
        reduce_partial(is, m);
        return true;
    }
    struct storage shape;
    if (isel_describe(is, m->op, mlirValueGetType(ir_operand(m->op, 0)),
                      &shape))
        add_member(is, m, &shape);
    return true;
}

static void add_element(struct isel *is, struct member *m, enum layout layout,
                        const struct storage *type) {
    bool pack = ir_is_op(m->op, "arith.truncf") && type->packed;
    if (pack)
        m->kind = MEMBER_PACK;
    else
        m->result->layout = layout;
    if (m->result->layout == LAYOUT_TILE ||
        m->result->layout == LAYOUT_COLUMN) {
        m->result->shape = type->shape;
        add_member(is, m, m->result);
        pull_packing(is, m);
        return;
    }
    isel_flush_for(is, m->op);
    if (m->kind == MEMBER_READ)
        read_now(is, m);
    else
        emit_now(is, m);
}

/* Fills in what all members have; false for operands without registers. */
static bool member_of(struct isel *is, MlirOperation op, struct member *m,
                      struct storage *out_type) {
    *m = (struct member){.op = op, .contract = isel_contract(op)};
    if (!isel_describe(is, op, mlirValueGetType(ir_result(op, 0)), out_type))
        return false;
    m->result = ARENA_NEW(is->arena, struct storage);
    *m->result = *out_type;
    m->result->loop = is->loop;
    m->hint = isel_hint(op, default_hint(out_type));
    size_t count = ir_operand_count(op);
    m->in = ARENA_NEW_ARRAY(is->arena, struct storage *, count);
    m->in_operands = ARENA_NEW_ARRAY(is->arena, struct ptx_operand, count);
    m->in_classes = ARENA_NEW_ARRAY(is->arena, enum ptx_class, count);
    for (size_t i = 0; i < count; i++) {
        struct value *value = isel_value(is, ir_operand(op, i));
        if (value->kind != VALUE_STORAGE)
            continue;
        m->in_classes[m->in_count] = value->storage->class;
        m->in[m->in_count++] = value->storage;
    }
    return true;
}

/* Is the value only used element by element? */
static bool stays_in_runs(MlirValue value) {
    for (MlirOpOperand use = mlirValueGetFirstUse(value);
         !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use)) {
        MlirOperation user = mlirOpOperandGetOwner(use);
        bool fits = ir_is_op(user, "vector.broadcast")
                        ? stays_in_runs(ir_result(user, 0))
                        : ir_is_op(user, "attn.read") ||
                              element_rule_find(ir_op_name(user));
        if (!fits)
            return false;
    }
    return true;
}

bool isel_elementwise(struct isel *is, MlirOperation op) {
    const char *name = ir_op_name(op);
    if (strcmp(name, "vector.step") == 0) {
        isel_bind_other(is, ir_result(op, 0), VALUE_STEP, 0);
        return true;
    }
    if (strcmp(name, "vector.broadcast") == 0 ||
        strcmp(name, "vector.shape_cast") == 0 ||
        strcmp(name, "arith.index_cast") == 0)
        return reshape(is, op);
    bool read = strcmp(name, "attn.read") == 0;
    bool reduce = strcmp(name, "vector.multi_reduction") == 0;
    bool partial_max = strcmp(name, "attn.partial_max") == 0;
    bool partial = partial_max || strcmp(name, "attn.partial_sum") == 0;
    const struct element_rule *rule = element_rule_find(name);
    if (!rule && !read && !reduce && !partial)
        return false;
    if (ir_is_op(op, "func.call") && !isel_declare_extern(is, op))
        return true;
    struct member m;
    struct storage type;
    if (!member_of(is, op, &m, &type))
        return true;
    if (reduce)
        return add_reduction(is, &m);
    if (partial) {
        m.kind = MEMBER_PARTIAL;
        enum ptx_op max = m.in[0]->class == PTX_F ? PTX_MAX_F32 : PTX_MAX_S32;
        m.combine = partial_max ? max : PTX_ADD_RN_F32;
        m.hint = isel_hint(op, partial_max ? "top" : "l_part");
        struct storage shape;
        if (isel_describe(is, op, mlirValueGetType(ir_operand(op, 0)), &shape))
            add_member(is, &m, &shape);
        return true;
    }
    m.rule = rule;
    enum layout layout = LAYOUT_SCALAR;
    for (int k = 0; k < m.in_count; k++)
        layout |= m.in[k]->layout;
    if (read) {
        m.kind = MEMBER_READ;
        m.read = read_plan_create(is, op);
        if (!m.read)
            return true;
        layout = read_plan_layout(m.read);
        if (read_plan_share(is, m.read) && stays_in_runs(ir_result(op, 0))) {
            m.result->layout = layout;
            m.result->shape = type.shape;
            m.result->read = m.read;
            m.result->anchor_order = -1;
            isel_release(is, op);
            isel_bind(is, ir_result(op, 0), m.result);
            return true;
        }
    } else if (position_add(is, op, m.in) || position_divide(is, op, m.in)) {
        return true;
    }
    add_element(is, &m, layout, &type);
    return true;
}
