/* Spec lines to reference code (reference/code.h).
 *
 * One pass over the AST.  Each value knows how often it changes (once a call,
 * once a row, with the key) and whether it depends on `s`; the first decides
 * the program that its step goes to, the second whether f32 is held as double.
 * Functions are expanded with their arguments evaluated once; a let is
 * evaluated once and kept.  Slots of temporaries are reused as on a stack.
 */
#include <assert.h>

#include "reference/code.h"

/* How often a value changes; a step is as fast as its fastest operand. */
enum rate { RATE_CALL, RATE_ROW, RATE_PAIR };

/* Field of a slot that holds a value; the order of the families in REF_OPS. */
enum field { FIELD_I, FIELD_F, FIELD_D };

struct value {
    uint32_t slot;
    enum field field;
    enum rate rate;
    bool scored; /* depends on s */
    bool owned;  /* a temporary: its slot is free after the one use */
};

/* Arguments of the fn being expanded. */
struct frame {
    struct value *args;
};

struct compiler {
    struct arena *arena;
    struct ref_program *program;
    ref_steps *steady; /* takes steps that do not depend on the key */
    ref_steps *varying;
    VEC(uint32_t) free_steady, free_varying;
    struct value score; /* s as the score lines so far leave it */
    struct value *lets; /* by let.number */
    bool *let_done;
    const char *missing_extern;
};

static struct value compile(struct compiler *c, const struct expr *expr,
                            struct frame *frame);

static uint32_t fresh_slot(struct compiler *c) {
    return c->program->slot_count++;
}

static uint32_t slot_for(struct compiler *c, enum rate rate) {
    if (rate == RATE_PAIR && c->free_varying.count)
        return c->free_varying.data[--c->free_varying.count];
    if (rate != RATE_PAIR && c->free_steady.count)
        return c->free_steady.data[--c->free_steady.count];
    return fresh_slot(c);
}

/* Gives a temporary's slot back after its use by a step of rate `user`.  A
 * steady slot that varying code reads stays taken: the row program runs
 * first. */
static void release(struct compiler *c, struct value value, enum rate user) {
    if (!value.owned)
        return;
    if (value.rate == RATE_PAIR)
        vec_push(c->arena, &c->free_varying, value.slot);
    else if (user != RATE_PAIR)
        vec_push(c->arena, &c->free_steady, value.slot);
}

/* Emits op over up to three values.  The result's slot is taken before the
 * operands' are released: an operand never shares memory with the result. */
static struct value emit(struct compiler *c, enum ref_op op, enum field field,
                         const struct value *in, int count) {
    struct value out = {.field = field, .owned = true};
    for (int i = 0; i < count; i++) {
        out.rate = in[i].rate > out.rate ? in[i].rate : out.rate;
        out.scored |= in[i].scored;
    }
    out.slot = slot_for(c, out.rate);
    struct ref_step step = {.op = op, .out = out.slot};
    for (int i = 0; i < count; i++)
        step.in[i] = in[i].slot;
    vec_push(c->arena, out.rate == RATE_PAIR ? c->varying : c->steady, step);
    for (int i = 0; i < count; i++)
        release(c, in[i], out.rate);
    return out;
}

/* An operation on one value. */
static struct value emit1(struct compiler *c, enum ref_op op, enum field field,
                          struct value x) {
    return emit(c, op, field, &x, 1);
}

/* An f32 value as double, which is exact; others as they are. */
static struct value to_double(struct compiler *c, struct value value) {
    return value.field == FIELD_F ? emit1(c, REF_F_TO_D, FIELD_D, value)
                                  : value;
}

/* f32 that depends on s is held as double, wherever it came from. */
static struct value settle(struct compiler *c, struct value value) {
    return value.scored ? to_double(c, value) : value;
}

/* Brings values that an operation combines to one field, and returns it. */
static enum field unify(struct compiler *c, struct value *in, int count,
                        bool scored) {
    enum field field = in[0].field;
    for (int i = 0; i < count; i++)
        if (in[i].field == FIELD_D ||
            (in[i].field == FIELD_F && (scored || in[i].scored)))
            field = FIELD_D;
    for (int i = 0; i < count && field == FIELD_D; i++)
        in[i] = to_double(c, in[i]);
    return field;
}

/* A constant or a parameter: a slot that is filled once a call.  Looks back a
 * little for an equal one; a duplicate costs memory only. */
static struct value preset(struct compiler *c, enum value_type type,
                           const struct param *param, uint32_t bits) {
    struct value value = {.field = type == TYPE_F32 ? FIELD_F : FIELD_I,
                          .rate = RATE_CALL};
    enum { LOOK_BACK = 64 };
    struct ref_program *program = c->program;
    for (size_t i = program->presets.count;
         i-- && i + LOOK_BACK > program->presets.count;) {
        struct ref_preset *known = &program->presets.data[i];
        if (known->param == param && known->bits == bits) {
            value.slot = known->slot;
            return value;
        }
    }
    value.slot = fresh_slot(c);
    vec_push(
        c->arena, &program->presets,
        (struct ref_preset){.slot = value.slot, .param = param, .bits = bits});
    return value;
}

static struct value compile_unary(struct compiler *c, const struct expr *expr,
                                  struct frame *frame) {
    struct value x = compile(c, expr->args[0], frame);
    switch (expr->unary) {
    case UNARY_NEG:
        return emit1(c, REF_NEG_I + x.field, x.field, x);
    case UNARY_NOT:
        return emit1(c, REF_NOT_B, FIELD_I, x);
    case UNARY_BIT_NOT:
        return emit1(c, REF_NOT_I, FIELD_I, x);
    }
    assert(!"unary operator");
    return x;
}

/* First member of an operator's family; the logical operators may evaluate both
 * sides, since reads cannot fail. */
/* clang-format off */
static const struct {
    enum ref_op first;
    bool compares;
} binary_ops[] = {
    [BINARY_ADD] = {REF_ADD_I, false},     [BINARY_SUB] = {REF_SUB_I, false},
    [BINARY_MUL] = {REF_MUL_I, false},     [BINARY_DIV] = {REF_DIV_I, false},
    [BINARY_MOD] = {REF_MOD_I, false},     [BINARY_AND] = {REF_AND_I, false},
    [BINARY_OR] = {REF_OR_I, false},       [BINARY_XOR] = {REF_XOR_I, false},
    [BINARY_SHL] = {REF_SHL_I, false},     [BINARY_SHR] = {REF_SHR_I, false},
    [BINARY_LT] = {REF_LT_I, true},        [BINARY_LE] = {REF_LE_I, true},
    [BINARY_GT] = {REF_GT_I, true},        [BINARY_GE] = {REF_GE_I, true},
    [BINARY_EQ] = {REF_EQ_I, true},        [BINARY_NE] = {REF_NE_I, true},
    [BINARY_AND_THEN] = {REF_AND_I, true}, [BINARY_OR_ELSE] = {REF_OR_I, true},
};
/* clang-format on */

static struct value compile_binary(struct compiler *c, const struct expr *expr,
                                   struct frame *frame) {
    struct value in[2];
    in[0] = compile(c, expr->args[0], frame);
    in[1] = compile(c, expr->args[1], frame);
    enum field field = unify(c, in, 2, false);
    enum ref_op op = binary_ops[expr->binary].first + field;
    return emit(c, op, binary_ops[expr->binary].compares ? FIELD_I : field, in,
                2);
}

/* Both arms are evaluated: nothing in them can fail or be observed. */
static struct value compile_select(struct compiler *c, const struct expr *expr,
                                   struct frame *frame) {
    struct value in[3];
    for (int i = 0; i < 3; i++)
        in[i] = compile(c, expr->args[i], frame);
    enum field field = unify(c, in + 1, 2, in[0].scored);
    return emit(c, REF_SELECT_I + field, field, in, 3);
}

/* Casts to i32 saturate; i32 to f32 rounds once, or is exact where s is
 * in it. */
static struct value compile_cast(struct compiler *c, const struct expr *expr,
                                 struct frame *frame) {
    struct value x = compile(c, expr->args[0], frame);
    switch (expr->type) {
    case TYPE_BOOL:
        return emit1(c, REF_I_TO_B + x.field, FIELD_I, x);
    case TYPE_I32:
        if (x.field == FIELD_I)
            return x;
        return emit1(c, x.field == FIELD_F ? REF_F_TO_I : REF_D_TO_I, FIELD_I,
                     x);
    case TYPE_F32:
        if (x.field != FIELD_I)
            return x;
        return x.scored ? emit1(c, REF_I_TO_D, FIELD_D, x)
                        : emit1(c, REF_I_TO_F, FIELD_F, x);
    }
    assert(!"cast");
    return x;
}

/* First member of a built-in's family; those of `keep` have an i32 member. */
/* clang-format off */
static const struct {
    enum ref_op first;
    bool keep;
} builtin_ops[BUILTIN_COUNT] = {
    [BUILTIN_ABS] = {REF_ABS_I, true},     [BUILTIN_MIN] = {REF_MIN_I, true},
    [BUILTIN_MAX] = {REF_MAX_I, true},     [BUILTIN_CLAMP] = {REF_MAX_I, true},
    [BUILTIN_EXP] = {REF_EXP_F, false},    [BUILTIN_EXP2] = {REF_EXP2_F, false},
    [BUILTIN_LOG] = {REF_LOG_F, false},    [BUILTIN_LOG2] = {REF_LOG2_F, false},
    [BUILTIN_SQRT] = {REF_SQRT_F, false},  [BUILTIN_RSQRT] = {REF_RSQRT_F, false},
    [BUILTIN_TANH] = {REF_TANH_F, false},  [BUILTIN_SIGMOID] = {REF_SIGMOID_F, false},
    [BUILTIN_SIN] = {REF_SIN_F, false},    [BUILTIN_COS] = {REF_COS_F, false},
    [BUILTIN_FLOOR] = {REF_FLOOR_F, false}, [BUILTIN_CEIL] = {REF_CEIL_F, false},
    [BUILTIN_ROUND] = {REF_ROUND_F, false}, [BUILTIN_POW] = {REF_POW_F, false},
};
/* clang-format on */

static struct value compile_builtin(struct compiler *c, const struct expr *expr,
                                    struct frame *frame) {
    struct value in[3];
    int count = (int)expr->arg_count;
    for (int i = 0; i < count; i++)
        in[i] = compile(c, expr->args[i], frame);
    enum field field = unify(c, in, count, false);
    enum ref_op op = builtin_ops[expr->builtin].first + field;
    if (!builtin_ops[expr->builtin].keep)
        op -= FIELD_F;
    if (expr->builtin != BUILTIN_CLAMP)
        return emit(c, op, field, in, count);
    struct value raised = emit(c, op, field, in, 2);
    return emit(c, REF_MIN_I + field, field, (struct value[]){raised, in[2]},
                2);
}

/* A read is a step of its own kind: it has up to eight operands. */
static struct value compile_read(struct compiler *c, const struct expr *expr,
                                 struct frame *frame) {
    struct ref_step step = {.op = REF_READ, .tensor = expr->tensor};
    struct value in[KERNEL_MAX_RANK];
    struct value out = {.field = expr->type == TYPE_F32 ? FIELD_F : FIELD_I,
                        .owned = true};
    for (size_t i = 0; i < expr->arg_count; i++) {
        in[i] = compile(c, expr->args[i], frame);
        step.indices[i] = in[i].slot;
        out.rate = in[i].rate > out.rate ? in[i].rate : out.rate;
        out.scored |= in[i].scored;
    }
    step.out = out.slot = slot_for(c, out.rate);
    vec_push(c->arena, out.rate == RATE_PAIR ? c->varying : c->steady, step);
    for (size_t i = 0; i < expr->arg_count; i++)
        release(c, in[i], out.rate);
    return settle(c, out);
}

/* Expands a call.  The arguments are values that the body may use any number of
 * times, so their slots are released after the whole body, not by its steps. */
static struct value compile_call(struct compiler *c, const struct expr *expr,
                                 struct frame *frame) {
    const struct fn *fn = expr->fn;
    if (!fn->body) {
        c->missing_extern = c->missing_extern ? c->missing_extern : fn->name;
        return preset(c, fn->type, NULL, 0);
    }
    struct frame inner = {
        ARENA_NEW_ARRAY(c->arena, struct value, expr->arg_count)};
    bool *owned = ARENA_NEW_ARRAY(c->arena, bool, expr->arg_count);
    for (size_t i = 0; i < expr->arg_count; i++) {
        inner.args[i] = compile(c, expr->args[i], frame);
        owned[i] = inner.args[i].owned;
        inner.args[i].owned = false;
    }
    struct value result = compile(c, fn->body, &inner);
    for (size_t i = 0; i < expr->arg_count; i++) {
        inner.args[i].owned = owned[i];
        if (result.slot == inner.args[i].slot)
            result.owned = owned[i]; /* the body is the parameter itself */
        else
            release(c, inner.args[i], result.rate);
    }
    return result;
}

/* The value of a let, evaluated at the first use and kept.  Lets that read s
 * are evaluated where they stand (compile_scores), so that the first use finds
 * them. */
static struct value compile_let(struct compiler *c, const struct let *let) {
    if (!c->let_done[let->number]) {
        c->lets[let->number] = compile(c, let->value, NULL);
        c->lets[let->number].owned = false;
        c->let_done[let->number] = true;
    }
    return c->lets[let->number];
}

static struct value compile(struct compiler *c, const struct expr *expr,
                            struct frame *frame) {
    switch (expr->kind) {
    case EXPR_CONST:
        return preset(c, expr->type, NULL, expr->bits);
    case EXPR_INDEX:
        return (struct value){.slot = (uint32_t)expr->index,
                              .rate = expr->index == INDEX_KV ? RATE_PAIR
                                                              : RATE_ROW};
    case EXPR_SIZE:
        return (struct value){.slot = REF_SLOT_SIZES + (uint32_t)expr->size};
    case EXPR_SCORE:
        return c->score;
    case EXPR_PARAM:
        return preset(c, expr->type, expr->param, 0);
    case EXPR_READ:
        return compile_read(c, expr, frame);
    case EXPR_LET:
        return compile_let(c, expr->let);
    case EXPR_FN_PARAM:
        return frame->args[expr->fn_param];
    case EXPR_UNARY:
        return compile_unary(c, expr, frame);
    case EXPR_BINARY:
        return compile_binary(c, expr, frame);
    case EXPR_SELECT:
        return compile_select(c, expr, frame);
    case EXPR_CAST:
        return compile_cast(c, expr, frame);
    case EXPR_BUILTIN:
        return compile_builtin(c, expr, frame);
    case EXPR_CALL:
        return compile_call(c, expr, frame);
    }
    assert(!"expression kind");
    return c->score;
}

/* And-s the mask lines.  Masks do not depend on s, so they go first. */
static void compile_masks(struct compiler *c) {
    struct ref_program *program = c->program;
    struct value all = {0};
    c->varying = &program->mask;
    for (size_t i = 0; i < program->attention->item_count; i++) {
        const struct item *item = &program->attention->items[i];
        if (item->kind != ITEM_MASK)
            continue;
        struct value mask = compile(c, item->value, NULL);
        if (program->has_mask)
            mask = emit(c, REF_AND_I, FIELD_I, (struct value[]){all, mask}, 2);
        all = mask;
        program->has_mask = true;
    }
    program->mask_slot = all.slot;
}

/* Score lines in order; a let that reads s is fixed where it stands. */
static void compile_scores(struct compiler *c) {
    struct ref_program *program = c->program;
    c->varying = &program->score;
    for (size_t i = 0; i < program->attention->item_count; i++) {
        const struct item *item = &program->attention->items[i];
        if (item->kind == ITEM_LET && ast_uses_score(item->value))
            compile_let(c, item->let);
        if (item->kind != ITEM_SCORE)
            continue;
        c->score = to_double(c, compile(c, item->value, NULL));
        c->score.owned = false;
        program->has_score = true;
    }
    program->score_slot = c->score.slot;
}

struct ref_program *ref_compile(struct arena *arena,
                                const struct attention *attention,
                                const char **out_extern) {
    struct ref_program *program = ARENA_NEW(arena, struct ref_program);
    program->attention = attention;
    program->slot_count = REF_SLOT_FIRST_FREE;
    struct compiler c = {
        .arena = arena,
        .program = program,
        .steady = &program->scale,
        .varying = &program->scale,
        .score = {.slot = REF_SLOT_S,
                  .field = FIELD_D,
                  .rate = RATE_PAIR,
                  .scored = true},
        .lets = ARENA_NEW_ARRAY(arena, struct value, attention->let_count),
        .let_done = ARENA_NEW_ARRAY(arena, bool, attention->let_count),
    };
    if (attention->scale) {
        program->has_scale = true;
        program->scale_slot = compile(&c, attention->scale, NULL).slot;
    }
    c.steady = &program->row;
    compile_masks(&c);
    compile_scores(&c);
    *out_extern = c.missing_extern;
    return c.missing_extern ? NULL : program;
}
