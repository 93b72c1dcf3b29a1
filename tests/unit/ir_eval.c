/* An interpreter of scalar IR functions for tests: see ir_eval.h. */
#include "ir_eval.h"

#include <math.h>
#include <mlir-c/BuiltinAttributes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/vec.h"

enum { MAX_OPERANDS = 10 };

/* Binary and unary integer ops: x and y are int64_t, the result is cut to 32
 * bits. */
/* clang-format off */
#define WHOLE_OPS(OP) \
    OP(ADDI, "arith.addi", x + y) \
    OP(SUBI, "arith.subi", x - y) \
    OP(MULI, "arith.muli", x * y) \
    OP(FLOORDIVSI, "arith.floordivsi", floor_div(x, y)) \
    OP(DIVUI, "arith.divui", y ? u(x) / u(y) : 0) \
    OP(REMUI, "arith.remui", y ? u(x) % u(y) : 0) \
    OP(MINSI, "arith.minsi", x < y ? x : y) \
    OP(MAXSI, "arith.maxsi", x > y ? x : y) \
    OP(MINUI, "arith.minui", u(x) < u(y) ? x : y) \
    OP(ANDI, "arith.andi", x & y) \
    OP(ORI, "arith.ori", x | y) \
    OP(XORI, "arith.xori", x ^ y) \
    OP(SHLI, "arith.shli", (int64_t)((uint64_t)x << (y & 31))) \
    OP(SHRSI, "arith.shrsi", x >> (y & 31)) \
    OP(ABSI, "math.absi", x < 0 ? -x : x) \
    OP(INDEX_CAST, "arith.index_cast", x) \
    OP(EXTUI, "arith.extui", x & 1)
/* clang-format on */

/* clang-format off */
#define REAL_OPS(OP) \
    OP(ADDF, "arith.addf", x + y) \
    OP(SUBF, "arith.subf", x - y) \
    OP(MULF, "arith.mulf", x * y) \
    OP(DIVF, "arith.divf", x / y) \
    OP(MINNUMF, "arith.minnumf", fminf(x, y)) \
    OP(MAXNUMF, "arith.maxnumf", fmaxf(x, y)) \
    OP(NEGF, "arith.negf", -x) \
    OP(ABSF, "math.absf", fabsf(x)) \
    OP(FLOOR, "math.floor", floorf(x)) \
    OP(CEIL, "math.ceil", ceilf(x)) \
    OP(ROUNDEVEN, "math.roundeven", rintf(x)) \
    OP(EXP, "math.exp", (float)exp((double)x)) \
    OP(EXP2, "math.exp2", (float)exp2((double)x)) \
    OP(LOG, "math.log", (float)log((double)x)) \
    OP(LOG2, "math.log2", (float)log2((double)x)) \
    OP(TANH, "math.tanh", (float)tanh((double)x)) \
    OP(SQRT, "math.sqrt", sqrtf(x)) \
    OP(RSQRT, "math.rsqrt", (float)(1.0 / sqrt((double)x))) \
    OP(SIN, "math.sin", (float)sin((double)x)) \
    OP(COS, "math.cos", (float)cos((double)x)) \
    OP(POWF, "math.powf", (float)pow((double)x, (double)y))
/* clang-format on */

#define OP(id, name, value) WHOLE_##id,
enum { WHOLE_OPS(OP) };
#undef OP
#define OP(id, name, value) REAL_##id,
enum { REAL_OPS(OP) };
#undef OP

enum code {
    CODE_WHOLE,
    CODE_REAL,
    CODE_CMPI,
    CODE_CMPF,
    CODE_SELECT,
    CODE_SITOFP,
    CODE_UITOFP,
    CODE_FPTOSI,
    CODE_READ,
    CODE_LOAD,
    CODE_STORE,
    CODE_DIM,
    CODE_LANE,
    CODE_BLOCK,
    CODE_WARP,
    CODE_REDUCE,
    CODE_IF,
};

struct step {
    enum code code;
    int detail; /* number in WHOLE_OPS or REAL_OPS, predicate, reduction */
    bool is_bool, is_index, is_float;
    size_t in[MAX_OPERANDS], in_count, out;
    struct step *body; /* CODE_IF */
    size_t body_count;
};

/* Constants are filled into their slot when the slot array is there. */
struct constant {
    size_t slot;
    struct eval_value value;
};

struct eval_program {
    struct arena *arena;
    VEC(struct constant) constants;
    struct eval_value *slots;
    size_t slot_count, arg_count, result_count;
    size_t *results;
    struct step *steps;
    size_t step_count;
    VEC(const void *) keys; /* value pointer of a slot */
};

struct eval_value eval_whole(int64_t value) {
    struct eval_value result = {.memory = NULL};
    for (int i = 0; i < EVAL_LANES; i++)
        result.i[i] = value;
    return result;
}

struct eval_value eval_real(float value) {
    struct eval_value result = {.memory = NULL};
    for (int i = 0; i < EVAL_LANES; i++)
        result.f[i] = value;
    return result;
}

struct eval_value eval_memory_arg(const struct eval_memory *memory) {
    struct eval_value result = {.memory = memory};
    return result;
}

/* ---- Decoding ------------------------------------------------------------ */

static size_t slot_of(const struct eval_program *program, MlirValue value) {
    for (size_t i = program->keys.count; i-- > 0;)
        if (program->keys.data[i] == value.ptr)
            return i;
    fprintf(stderr, "ir_eval: value without a slot\n");
    abort();
}

static size_t new_slot(struct eval_program *program, MlirValue value) {
    vec_push(program->arena, &program->keys, value.ptr);
    return program->keys.count - 1;
}

static int find(const char *const *names, const char *name) {
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

#define OP(id, name, value) name,
static const char *const whole_names[] = {WHOLE_OPS(OP) NULL};
static const char *const real_names[] = {REAL_OPS(OP) NULL};
#undef OP
static const char *const reductions[] = {"minsi",   "maxsi", "minnumf",
                                         "maxnumf", "ori",   NULL};

static const struct {
    const char *name;
    enum code code;
} others[] = {
    {"arith.cmpi", CODE_CMPI},
    {"arith.cmpf", CODE_CMPF},
    {"arith.select", CODE_SELECT},
    {"arith.sitofp", CODE_SITOFP},
    {"arith.uitofp", CODE_UITOFP},
    {"arith.fptosi", CODE_FPTOSI},
    {"attn.read", CODE_READ},
    {"memref.load", CODE_LOAD},
    {"memref.store", CODE_STORE},
    {"memref.dim", CODE_DIM},
    {"gpu.lane_id", CODE_LANE},
    {"gpu.block_id", CODE_BLOCK},
    {"gpu.subgroup_id", CODE_WARP},
    {"attn.warp_reduce", CODE_REDUCE},
    {"scf.if", CODE_IF},
};

static struct step *decode_block(struct eval_program *program, MlirBlock block,
                                 size_t *out_count);

static void decode_constant(struct eval_program *program, MlirOperation op) {
    int64_t whole;
    double real;
    MlirValue value = ir_result(op, 0);
    struct constant constant = {.slot = new_slot(program, value)};
    if (ir_constant_int(value, &whole))
        constant.value = eval_whole(whole);
    else if (ir_constant_float(value, &real))
        constant.value = eval_real((float)real);
    vec_push(program->arena, &program->constants, constant);
}

static struct step decode(struct eval_program *program, MlirOperation op) {
    const char *name = ir_op_name(op);
    struct step step = {.in_count = ir_operand_count(op)};
    for (size_t i = 0; i < step.in_count; i++)
        step.in[i] = slot_of(program, ir_operand(op, i));
    if (step.in_count > 0)
        step.is_float =
            ir_is_float(mlirValueGetType(ir_operand(op, step.in_count - 1)));
    if (ir_result_count(op) > 0) {
        MlirType type = mlirValueGetType(ir_result(op, 0));
        step.out = new_slot(program, ir_result(op, 0));
        step.is_bool = ir_is_bool(type);
        step.is_index = mlirTypeIsAIndex(type);
    }
    if ((step.detail = find(whole_names, name)) >= 0) {
        step.code = CODE_WHOLE;
        return step;
    }
    if ((step.detail = find(real_names, name)) >= 0) {
        step.code = CODE_REAL;
        return step;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(name, others[i].name) != 0)
            continue;
        step.code = others[i].code;
        step.detail = (int)ir_int_attr(op, "predicate", 0);
        if (step.code == CODE_REDUCE)
            step.detail = find(reductions, ir_text_attr(op, "kind"));
        if (step.code == CODE_IF)
            step.body =
                decode_block(program, ir_region_block(op, 0), &step.body_count);
        return step;
    }
    ir_ice(op, "ir_eval does not know this op");
}

static struct step *decode_block(struct eval_program *program, MlirBlock block,
                                 size_t *out_count) {
    VEC(struct step) steps = {0};
    MlirOperation op = mlirBlockGetFirstOperation(block);
    for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op)) {
        if (ir_is_op(op, "func.return") || ir_is_op(op, "scf.yield"))
            break;
        if (ir_is_op(op, "arith.constant"))
            decode_constant(program, op);
        else
            vec_push(program->arena, &steps, decode(program, op));
    }
    *out_count = steps.count;
    return steps.data;
}

struct eval_program *eval_compile(struct arena *arena, MlirOperation func) {
    struct eval_program *program = ARENA_NEW(arena, struct eval_program);
    program->arena = arena;
    program->arg_count = ir_func_arg_count(func);
    for (size_t i = 0; i < program->arg_count; i++)
        new_slot(program, ir_func_arg(func, i));
    program->steps =
        decode_block(program, ir_func_body(func), &program->step_count);
    MlirOperation end = mlirBlockGetTerminator(ir_func_body(func));
    program->result_count = ir_operand_count(end);
    program->results = ARENA_NEW_ARRAY(arena, size_t, program->result_count);
    for (size_t i = 0; i < program->result_count; i++)
        program->results[i] = slot_of(program, ir_operand(end, i));
    program->slot_count = program->keys.count;
    program->slots =
        ARENA_NEW_ARRAY(arena, struct eval_value, program->slot_count);
    for (size_t i = 0; i < program->constants.count; i++)
        program->slots[program->constants.data[i].slot] =
            program->constants.data[i].value;
    return program;
}

/* ---- Running ------------------------------------------------------------- */

static uint32_t u(int64_t x) {
    return (uint32_t)x;
}

static int64_t floor_div(int64_t x, int64_t y) {
    if (y == 0)
        return 0;
    int64_t quotient = x / y;
    return quotient - (x % y != 0 && (x % y < 0) != (y < 0));
}

static int64_t whole_op(int number, int64_t x, int64_t y) {
    switch (number) {
#define OP(id, name, value) \
    case WHOLE_##id:        \
        return (int64_t)(value);
        WHOLE_OPS(OP)
#undef OP
    default:
        abort();
    }
}

static float real_op(int number, float x, float y) {
    switch (number) {
#define OP(id, name, value) \
    case REAL_##id:         \
        return value;
        REAL_OPS(OP)
#undef OP
    default:
        abort();
    }
}

static bool compare_whole(int predicate, int64_t x, int64_t y) {
    switch (predicate) {
    case IR_EQ:
        return x == y;
    case IR_NE:
        return x != y;
    case IR_SLT:
        return x < y;
    case IR_SLE:
        return x <= y;
    case IR_SGT:
        return x > y;
    case IR_SGE:
        return x >= y;
    case IR_ULT:
        return u(x) < u(y);
    case IR_ULE:
        return u(x) <= u(y);
    case IR_UGT:
        return u(x) > u(y);
    default:
        return u(x) >= u(y);
    }
}

static bool compare_real(int predicate, float x, float y) {
    bool unordered = isnan(x) || isnan(y);
    switch (predicate) {
    case IR_OEQ:
        return x == y;
    case IR_OGT:
        return x > y;
    case IR_OGE:
        return x >= y;
    case IR_OLT:
        return x < y;
    case IR_OLE:
        return x <= y;
    case IR_ORD:
        return !unordered;
    case IR_UNE:
        return !(x == y);
    case IR_UNO:
        return unordered;
    default:
        fprintf(stderr, "ir_eval: cmpf predicate %d\n", predicate);
        abort();
    }
}

static int64_t saturate(float x) {
    if (isnan(x))
        return 0;
    return x >= 2147483648.0f   ? INT32_MAX
           : x < -2147483648.0f ? INT32_MIN
                                : (int64_t)x;
}

static float half_bits(uint16_t bits, bool is_bf16) {
    if (is_bf16) {
        uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        return value;
    }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent == 0
                      ? ldexpf((float)fraction, -24)
                      : ldexpf((float)(fraction + 1024), exponent - 25);
    return bits >> 15 ? -value : value;
}

static void read_element(const struct eval_memory *memory, int64_t at,
                         struct eval_value *out, int lane) {
    switch (memory->type) {
    case SCALAR_BOOL:
        out->i[lane] = ((const uint8_t *)memory->data)[at] != 0;
        break;
    case SCALAR_I32:
        out->i[lane] = ((const int32_t *)memory->data)[at];
        break;
    case SCALAR_F32:
        out->f[lane] = ((const float *)memory->data)[at];
        break;
    case SCALAR_F16:
    case SCALAR_BF16:
        out->f[lane] = half_bits(((const uint16_t *)memory->data)[at],
                                 memory->type == SCALAR_BF16);
        break;
    case SCALAR_TYPE_COUNT:
        abort();
    }
}

/* Element number for the indices in slots in[first...]; reads clamp, loads must
 * fit. */
static int64_t address(const struct eval_program *program,
                       const struct step *step,
                       const struct eval_memory *memory, size_t first, int lane,
                       bool clamp) {
    int64_t at = 0;
    for (int i = 0; i < memory->rank; i++) {
        int64_t index = program->slots[step->in[first + (size_t)i]].i[lane];
        int64_t last = memory->extents[i] - 1;
        if (clamp)
            index = index < 0 ? 0 : index > last ? last : index;
        if (index < 0 || index > last) {
            fprintf(stderr, "ir_eval: index %lld of %lld\n", (long long)index,
                    (long long)last + 1);
            abort();
        }
        at = at * memory->extents[i] + index;
    }
    return at;
}

static void reduce(struct eval_value *out, const struct eval_value *x,
                   int kind) {
    int64_t whole = x->i[0];
    float real = x->f[0];
    for (int i = 1; i < EVAL_LANES; i++) {
        switch (kind) {
        case 0:
            whole = x->i[i] < whole ? x->i[i] : whole;
            break;
        case 1:
            whole = x->i[i] > whole ? x->i[i] : whole;
            break;
        case 2:
            real = fminf(real, x->f[i]);
            break;
        case 3:
            real = fmaxf(real, x->f[i]);
            break;
        case 4:
            whole |= x->i[i];
            break;
        default:
            abort();
        }
    }
    *out = eval_whole(whole);
    memcpy(out->f, eval_real(real).f, sizeof out->f);
}

struct place {
    int64_t block, warp;
};

static void execute(struct eval_program *program, const struct step *steps,
                    size_t count, const bool *active, struct place place);

static void execute_memory(struct eval_program *program,
                           const struct step *step, int lane) {
    struct eval_value *slots = program->slots, *out = &slots[step->out];
    if (step->code == CODE_STORE) {
        const struct eval_memory *memory = slots[step->in[1]].memory;
        int64_t at = address(program, step, memory, 2, lane, false);
        if (memory->type == SCALAR_F32)
            ((float *)memory->data)[at] = slots[step->in[0]].f[lane];
        else
            ((int32_t *)memory->data)[at] = (int32_t)slots[step->in[0]].i[lane];
        return;
    }
    const struct eval_memory *memory = slots[step->in[0]].memory;
    if (step->code == CODE_DIM)
        out->i[lane] = memory->extents[slots[step->in[1]].i[lane]];
    else
        read_element(
            memory,
            address(program, step, memory, 1, lane, step->code == CODE_READ),
            out, lane);
}

static void execute_lane(struct eval_program *program, const struct step *step,
                         int lane, struct place place) {
    struct eval_value *slots = program->slots, *out = &slots[step->out];
    const struct eval_value *x = &slots[step->in[0]];
    const struct eval_value *y = &slots[step->in[step->in_count > 1 ? 1 : 0]];
    const struct eval_value *z = &slots[step->in[step->in_count > 2 ? 2 : 0]];
    int64_t whole;
    switch (step->code) {
    case CODE_WHOLE:
        whole = whole_op(step->detail, x->i[lane], y->i[lane]);
        out->i[lane] = step->is_index  ? whole
                       : step->is_bool ? whole & 1
                                       : (int32_t)whole;
        break;
    case CODE_REAL:
        out->f[lane] = real_op(step->detail, x->f[lane], y->f[lane]);
        break;
    case CODE_CMPI:
        out->i[lane] = compare_whole(step->detail, x->i[lane], y->i[lane]);
        break;
    case CODE_CMPF:
        out->i[lane] = compare_real(step->detail, x->f[lane], y->f[lane]);
        break;
    case CODE_SELECT:
        out->i[lane] = x->i[lane] ? y->i[lane] : z->i[lane];
        out->f[lane] = x->i[lane] ? y->f[lane] : z->f[lane];
        break;
    case CODE_SITOFP:
    case CODE_UITOFP:
        out->f[lane] = (float)x->i[lane];
        break;
    case CODE_FPTOSI:
        out->i[lane] = saturate(x->f[lane]);
        break;
    case CODE_LANE:
        out->i[lane] = lane;
        break;
    case CODE_BLOCK:
        out->i[lane] = place.block;
        break;
    case CODE_WARP:
        out->i[lane] = place.warp;
        break;
    case CODE_READ:
    case CODE_LOAD:
    case CODE_STORE:
    case CODE_DIM:
        execute_memory(program, step, lane);
        break;
    case CODE_REDUCE:
    case CODE_IF:
        abort();
    }
}

static void execute(struct eval_program *program, const struct step *steps,
                    size_t count, const bool *active, struct place place) {
    for (size_t n = 0; n < count; n++) {
        const struct step *step = &steps[n];
        if (step->code == CODE_REDUCE) {
            reduce(&program->slots[step->out], &program->slots[step->in[0]],
                   step->detail);
            continue;
        }
        if (step->code == CODE_IF) {
            bool inside[EVAL_LANES];
            for (int i = 0; i < EVAL_LANES; i++)
                inside[i] = active[i] && program->slots[step->in[0]].i[i];
            execute(program, step->body, step->body_count, inside, place);
            continue;
        }
        for (int lane = 0; lane < EVAL_LANES; lane++)
            if (active[lane])
                execute_lane(program, step, lane, place);
    }
}

void eval_run(struct eval_program *program, const struct eval_value *args,
              int64_t block, int64_t warp, struct eval_value *results) {
    bool active[EVAL_LANES];
    for (int i = 0; i < EVAL_LANES; i++)
        active[i] = true;
    for (size_t i = 0; i < program->arg_count; i++)
        program->slots[i] = args[i];
    execute(program, program->steps, program->step_count, active,
            (struct place){block, warp});
    for (size_t i = 0; i < program->result_count; i++)
        results[i] = program->slots[program->results[i]];
}
