/* scf.for, scf.if, scf.while: labels, branches, and the registers of the values
 * that they carry.
 *
 * A carried value lives in one set of registers from its initial value to the
 * result: the initial value's own when nobody else needs it, and what the body
 * yields is moved there unless it is there already (accumulators are).  A
 * branch that yields a value of before the branch unchanged gets that value's
 * registers as result, so it moves nothing.  Likewise a while loop's condition
 * passes on what it got where it lies, and a tile that is made only to be
 * yielded is written into the carried registers at once when their old value is
 * done with. */
#include <string.h>

#include "backends/ptx/isel.h"

/* ---- Uniform branches --------------------------------------------------- */

/* The conditions around these are the same for all threads (docs/ir.md). */
static void find_collective(void *data, MlirOperation op) {
    static const char *const names[] = {
        "attn.dot",        "attn.copy_async",       "gpu.barrier",
        "attn.ballot",     "attn.warp_reduce",      "attn.wait_group",
        "attn.store",      "attn.fragments",        "attn.wgmma",
        "attn.bar_sync",   "attn.bar_arrive",       "attn.uniform",
        "attn.lane_value", "attn.set_max_registers"};
    bool *found = data;
    const char *name = ir_op_name(op);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        *found = *found || strcmp(name, names[i]) == 0;
    for (size_t i = 0; i < ir_result_count(op); i++)
        *found = *found || ir_is_vector(mlirValueGetType(ir_result(op, i)));
}

static enum ptx_op branch_op(MlirOperation op) {
    bool uniform = false;
    ir_walk(op, find_collective, &uniform);
    for (size_t i = 0; i < ir_result_count(op); i++)
        uniform = uniform || ir_is_vector(mlirValueGetType(ir_result(op, i)));
    return uniform ? PTX_BRA_UNI : PTX_BRA;
}

static void branch_unless(struct isel *is, enum ptx_op op,
                          struct ptx_operand condition,
                          struct ptx_operand label) {
    condition = isel_in_register(is, PTX_P, condition, "p");
    ptx_guard(ptx_put(is->kernel, op, PTX_NOTHING, label), condition, true);
}

/* ---- Carried values ----------------------------------------------------- */

/* A second storage on the same registers. */
static struct storage *same_registers(struct isel *is,
                                      const struct storage *storage) {
    struct storage *twin = ARENA_NEW(is->arena, struct storage);
    *twin = *storage;
    twin->uses = 0;
    twin->owned = true;
    twin->loop = is->loop;
    twin->anchor_order = -1;
    return twin;
}

static bool same_form(const struct storage *a, const struct storage *b) {
    return a->layout == b->layout && a->class == b->class &&
           a->packed == b->packed && a->shape.groups == b->shape.groups &&
           a->shape.fragments == b->shape.fragments;
}

/* Registers for a value of `type` that starts as `init`: its own when this is
 * its last use, else new ones (a move is added). */
static struct storage *carry(struct isel *is, MlirOperation op, MlirValue value,
                             struct storage *init, struct move_list *moves,
                             const char *hint) {
    struct storage type;
    if (!isel_describe(is, op, mlirValueGetType(value), &type))
        return init;
    struct storage *storage = storage_create(is, &type);
    if (same_form(init, &type) && storage_dies(is, init, 1)) {
        storage->elems = init->elems;
        storage->owned = true;
        init->owned = false;
        return storage;
    }
    storage_fill_registers(is, storage, hint);
    isel_add_moves(is, moves, storage, init);
    return storage;
}

static const char *carried_hint(MlirType type) {
    if (ir_is_tile(type))
        return ir_columns(type) == 4 ? "l" : "acc";
    return ir_is_vector(type) ? "carried" : "c";
}

static void move_and_clear(struct isel *is, struct move_list *moves) {
    isel_move_all(is, moves->to.data, moves->from.data, (int)moves->to.count);
    *moves = (struct move_list){0};
}

/* Moves what a terminator passes on (operands from `first`) to `to`; NULL
 * there: nobody will read it. */
static void pass_on(struct isel *is, MlirOperation terminator, size_t first,
                    struct storage *const *to) {
    struct move_list moves = {0};
    isel_flush(is);
    for (size_t i = first; i < ir_operand_count(terminator); i++)
        if (to[i - first])
            isel_add_moves(is, &moves, to[i - first],
                           isel_storage(is, ir_operand(terminator, i)));
    isel_move_all(is, moves.to.data, moves.from.data, (int)moves.to.count);
    isel_release(is, terminator);
}

static int enter_loop(struct isel *is) {
    int outer = is->loop;
    is->loop = ++is->loop_count;
    is->depth++;
    return outer;
}

static void leave_loop(struct isel *is, int outer) {
    is->loop = outer;
    is->depth--;
}

/* Lowers the body; what it yields goes to `carried`. */
static void loop_body(struct isel *is, MlirBlock body,
                      struct storage **carried) {
    struct loop_frame frame = {body, carried, is->frame};
    is->frame = &frame;
    MlirOperation yield = isel_block(is, body);
    if (!is->failed)
        pass_on(is, yield, 0, carried);
    is->frame = frame.outer;
}

/* The only use of a value; null when there are more or none. */
static MlirOpOperand only_use(MlirValue value) {
    MlirOpOperand use = mlirValueGetFirstUse(value);
    bool more = !mlirOpOperandIsNull(use) &&
                !mlirOpOperandIsNull(mlirOpOperandGetNextUse(use));
    return more ? (MlirOpOperand){NULL} : use;
}

struct storage *isel_yield_target(struct isel *is, MlirValue value,
                                  const struct storage *form) {
    MlirOpOperand use = only_use(value);
    if (!is->frame || mlirOpOperandIsNull(use) ||
        !mlirOperationEqual(mlirOpOperandGetOwner(use),
                            mlirBlockGetTerminator(is->frame->body)))
        return NULL;
    struct storage *carried =
        is->frame->carried[mlirOpOperandGetOperandNumber(use)];
    return same_form(carried, form) && storage_dies(is, carried, 0) ? carried
                                                                    : NULL;
}

/* ---- scf.for ------------------------------------------------------------ */

/* The loop is tested at its end; a first test skips it when it runs no time. */
void lower_for(struct isel *is, MlirOperation op) {
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand low = isel_scalar(is, ir_operand(op, 0));
    struct ptx_operand high = isel_scalar(is, ir_operand(op, 1));
    struct ptx_operand step = isel_scalar(is, ir_operand(op, 2));
    MlirBlock body = ir_region_block(op, 0);
    size_t count = ir_result_count(op);
    struct storage **carried =
        ARENA_NEW_ARRAY(is->arena, struct storage *, count);
    struct move_list moves = {0};
    for (size_t i = 0; i < count; i++) {
        MlirValue result = ir_result(op, i);
        carried[i] =
            carry(is, op, result, isel_storage(is, ir_operand(op, 3 + i)),
                  &moves, carried_hint(mlirValueGetType(result)));
    }
    if (is->failed)
        return;
    struct ptx_operand counter = ptx_reg_new(k, PTX_R, "i");
    move_and_clear(is, &moves);
    isel_move(is, counter, low);
    isel_release(is, op);
    enum ptx_op branch = branch_op(op);
    struct ptx_operand loop = ptx_label_new(k, "loop"),
                       end = ptx_label_new(k, "end");
    if (low.kind != PTX_OPERAND_IMM || high.kind != PTX_OPERAND_IMM ||
        low.value >= high.value)
        branch_unless(is, branch,
                      ptx_def(k, PTX_SETP_LT_S32, "p", counter, high), end);
    ptx_put(k, PTX_LABEL, PTX_NOTHING, loop);

    int outer = enter_loop(is);
    isel_bind(is, mlirBlockGetArgument(body, 0),
              storage_scalar(is, PTX_R, counter));
    for (size_t i = 0; i < count; i++) {
        carried[i]->loop = is->loop;
        isel_bind(is, mlirBlockGetArgument(body, (intptr_t)i + 1), carried[i]);
    }
    loop_body(is, body, carried);
    if (is->failed)
        return;
    ptx_put(k, PTX_ADD_S32, counter, counter, step);
    struct ptx_operand more = ptx_def(k, PTX_SETP_LT_S32, "p", counter, high);
    ptx_guard(ptx_put(k, branch, PTX_NOTHING, loop), more, false);
    ptx_put(k, PTX_LABEL, PTX_NOTHING, end);
    leave_loop(is, outer);
    for (size_t i = 0; i < count; i++)
        isel_bind(is, ir_result(op, i), same_registers(is, carried[i]));
}

/* ---- scf.if ------------------------------------------------------------- */

struct use_count {
    struct isel *is;
    const struct storage *storage;
    int count;
};

static void count_uses_of(void *data, MlirOperation op) {
    struct use_count *uses = data;
    for (size_t i = 0; i < ir_operand_count(op); i++) {
        struct value *entry = isel_find(uses->is, ir_operand(op, i));
        uses->count += entry && entry->kind == VALUE_STORAGE &&
                       entry->storage == uses->storage;
    }
}

/* Operands inside region `region` of `op` that name the storage. */
static int uses_in_region(struct isel *is, MlirOperation op, size_t region,
                          const struct storage *storage) {
    struct use_count uses = {is, storage, 0};
    MlirBlock block = ir_region_block(op, region);
    if (mlirBlockIsNull(block))
        return 0;
    for (MlirOperation inner = mlirBlockGetFirstOperation(block);
         !mlirOperationIsNull(inner);
         inner = mlirOperationGetNextInBlock(inner)) {
        count_uses_of(&uses, inner);
        ir_walk(inner, count_uses_of, &uses);
    }
    return uses.count;
}

struct branch_result {
    struct storage *storage; /* of the result */
    struct storage *
        passed; /* value of before the branch whose registers it has, or NULL */
    int uses[2]; /* of `passed` in both arms */
};

static MlirOperation terminator_of(MlirOperation op, size_t region) {
    return mlirBlockGetTerminator(ir_region_block(op, region));
}

/* Gives result i the registers of a value that an arm passes through, if that
 * value is not needed behind the branch. */
static struct branch_result result_of(struct isel *is, MlirOperation op,
                                      size_t i,
                                      const struct branch_result *earlier) {
    struct branch_result result = {0};
    struct storage type;
    if (!isel_describe(is, op, mlirValueGetType(ir_result(op, i)), &type))
        return result;
    result.storage = storage_create(is, &type);
    for (size_t arm = 0; arm < 2; arm++) {
        struct value *entry =
            isel_find(is, ir_operand(terminator_of(op, arm), i));
        if (!entry || entry->kind != VALUE_STORAGE ||
            !same_form(entry->storage, &type))
            continue;
        struct storage *passed = entry->storage;
        bool taken = false;
        for (size_t n = 0; n < i; n++)
            taken = taken || earlier[n].passed == passed;
        if (taken)
            continue;
        result.uses[0] = uses_in_region(is, op, 0, passed);
        result.uses[1] = uses_in_region(is, op, 1, passed);
        if (!storage_dies(is, passed, result.uses[0] + result.uses[1]))
            continue;
        result.passed = passed;
        result.storage->elems = passed->elems;
        result.storage->owned = true;
        return result;
    }
    storage_fill_registers(is, result.storage, isel_hint(op, "x"));
    return result;
}

/* Does `op` run only where `condition` holds? */
static bool runs_under(MlirOperation op, MlirValue condition) {
    MlirOperation outer = mlirOperationGetParentOperation(op);
    for (; !mlirOperationIsNull(outer) && !ir_is_op(outer, "func.func");
         op = outer, outer = mlirOperationGetParentOperation(op))
        if (ir_is_op(outer, "scf.if") &&
            mlirValueEqual(ir_operand(outer, 0), condition) &&
            mlirBlockEqual(mlirOperationGetBlock(op),
                           ir_region_block(outer, 0)))
            return true;
    return false;
}

/* Is result i of an scf.if read only in first arms of branches on the same
 * condition?  Then what its second arm yields is never seen. */
static bool second_arm_unread(MlirOperation op, size_t i) {
    MlirOpOperand use = mlirValueGetFirstUse(ir_result(op, i));
    for (; !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use))
        if (!runs_under(mlirOpOperandGetOwner(use), ir_operand(op, 0)))
            return false;
    return true;
}

/* Lowers one arm.  What the other arm uses does not count here: only one runs.
 */
static void lower_arm(struct isel *is, MlirOperation op, size_t arm,
                      const struct branch_result *results, size_t count) {
    struct storage **to = ARENA_NEW_ARRAY(is->arena, struct storage *, count);
    for (size_t i = 0; i < count; i++) {
        bool unread = arm == 1 && second_arm_unread(op, i);
        to[i] = unread ? NULL : results[i].storage;
        if (results[i].passed) {
            results[i].passed->uses = results[i].uses[arm];
            results[i].passed->owned = true;
        }
    }
    is->depth++;
    MlirOperation yield = isel_block(is, ir_region_block(op, arm));
    if (!is->failed)
        pass_on(is, yield, 0, to);
    is->depth--;
    for (size_t i = 0; i < count; i++)
        if (results[i].passed)
            results[i].passed->owned = false;
}

void lower_if(struct isel *is, MlirOperation op) {
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand condition = isel_scalar(is, ir_operand(op, 0));
    size_t count = ir_result_count(op);
    struct branch_result *results =
        ARENA_NEW_ARRAY(is->arena, struct branch_result, count);
    isel_release(is, op);
    for (size_t i = 0; i < count; i++)
        results[i] = result_of(is, op, i, results);
    if (is->failed)
        return;
    enum ptx_op branch = branch_op(op);
    bool has_else = !mlirBlockIsNull(ir_region_block(op, 1));
    struct ptx_operand end = ptx_label_new(k, "endif");
    struct ptx_operand other = has_else ? ptx_label_new(k, "else") : end;
    branch_unless(is, branch, condition, other);
    struct ptx_inst *skip = k->cursor;
    lower_arm(is, op, 0, results, count);
    if (has_else && !is->failed) {
        struct ptx_inst *then_end = k->cursor;
        ptx_put(k, branch, PTX_NOTHING, end);
        ptx_put(k, PTX_LABEL, PTX_NOTHING, other);
        struct ptx_inst *else_begin = k->cursor;
        lower_arm(is, op, 1, results, count);
        if (k->cursor ==
            else_begin) { /* nothing to do: branch to the end at once */
            then_end->next = else_begin->next;
            k->cursor = then_end;
            skip->operands[0] = end;
        }
    }
    ptx_put(k, PTX_LABEL, PTX_NOTHING, end);
    is->last_line = 0;
    for (size_t i = 0; i < count; i++) {
        results[i].storage->loop = is->loop;
        isel_bind(is, ir_result(op, i), results[i].storage);
    }
}

/* ---- scf.while ---------------------------------------------------------- */

/* Registers for what the condition passes on as result i.  A carried value that
 * only passes through stays where it is; others get registers of their own:
 * they must survive the body, whose yields may overwrite the carried ones. */
static struct storage *passed_storage(struct isel *is, MlirOperation op,
                                      size_t i, MlirOperation condition,
                                      struct storage **carried,
                                      size_t carried_count) {
    MlirValue value = ir_operand(condition, i + 1);
    MlirType type = mlirValueGetType(ir_result(op, i));
    struct storage form;
    if (!isel_describe(is, op, type, &form))
        return NULL;
    bool through =
        i < carried_count && !mlirOpOperandIsNull(only_use(value)) &&
        mlirValueEqual(
            value, mlirBlockGetArgument(ir_region_block(op, 0), (intptr_t)i));
    if (through && same_form(carried[i], &form))
        return same_registers(is, carried[i]);
    struct storage *storage = storage_create(is, &form);
    storage_fill_registers(is, storage, carried_hint(type));
    return storage;
}

void lower_while(struct isel *is, MlirOperation op) {
    struct ptx_kernel *k = is->kernel;
    MlirBlock before = ir_region_block(op, 0), after = ir_region_block(op, 1);
    size_t count = ir_operand_count(op), passed_count = ir_result_count(op);
    struct storage **carried =
        ARENA_NEW_ARRAY(is->arena, struct storage *, count);
    struct storage **passed =
        ARENA_NEW_ARRAY(is->arena, struct storage *, passed_count);
    struct move_list moves = {0};
    for (size_t i = 0; i < count; i++) {
        MlirValue arg = mlirBlockGetArgument(before, (intptr_t)i);
        carried[i] = carry(is, op, arg, isel_storage(is, ir_operand(op, i)),
                           &moves, carried_hint(mlirValueGetType(arg)));
    }
    if (is->failed)
        return;
    move_and_clear(is, &moves);
    isel_release(is, op);
    enum ptx_op branch = branch_op(op);
    struct ptx_operand loop = ptx_label_new(k, "while"),
                       end = ptx_label_new(k, "end");
    ptx_put(k, PTX_LABEL, PTX_NOTHING, loop);

    int outer = enter_loop(is);
    for (size_t i = 0; i < count; i++) {
        carried[i]->loop = is->loop;
        isel_bind(is, mlirBlockGetArgument(before, (intptr_t)i), carried[i]);
    }
    MlirOperation condition = isel_block(is, before);
    if (is->failed)
        return;
    isel_flush(is);
    struct ptx_operand more = isel_scalar(is, ir_operand(condition, 0));
    for (size_t i = 0; i < passed_count; i++) {
        passed[i] = passed_storage(is, op, i, condition, carried, count);
        if (!passed[i])
            return;
    }
    pass_on(is, condition, 1, passed);
    branch_unless(is, branch, more, end);
    for (size_t i = 0; i < passed_count; i++)
        isel_bind(is, mlirBlockGetArgument(after, (intptr_t)i), passed[i]);
    /* Yields go to the carried registers; where a value passed through, the
     * body's name for them is the passed storage. */
    struct storage **to = ARENA_NEW_ARRAY(is->arena, struct storage *, count);
    for (size_t i = 0; i < count; i++) {
        bool through =
            i < passed_count && passed[i]->elems == carried[i]->elems;
        to[i] = through ? passed[i] : carried[i];
    }
    loop_body(is, after, to);
    if (is->failed)
        return;
    ptx_put(k, branch, PTX_NOTHING, loop);
    ptx_put(k, PTX_LABEL, PTX_NOTHING, end);
    leave_loop(is, outer);
    for (size_t i = 0; i < passed_count; i++)
        isel_bind(is, ir_result(op, i), same_registers(is, passed[i]));
}
