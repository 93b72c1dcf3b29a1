/* Elementwise operations on one element: a table from operation names to
 * instructions, and the few that need more than one.
 *
 * f32 sums and products carry `.rn`, which keeps ptxas from contracting them:
 * what does not depend on the score is evaluated exactly as written. Operations
 * that may contract say so (fastmath) and take the plain form. */
#include <string.h>

#include "backends/ptx/isel.h"

struct ptx_operand element_result(const struct element *e, enum ptx_op op,
                                  const struct ptx_operand *operands,
                                  int count) {
    if (!ptx_is_reg(e->dest))
        return ptx_define(e->is->kernel, op, e->hint, operands, count);
    ptx_append(e->is->kernel, op, e->dest, operands, count);
    return e->dest;
}

struct ptx_operand element_same(const struct element *e,
                                struct ptx_operand operand) {
    if (!ptx_is_reg(e->dest))
        return operand;
    isel_move(e->is, e->dest, operand);
    return e->dest;
}

/* A temporary. */
#define temp(e, op, hint, ...) \
    ptx_def((e)->is->kernel, (op), (hint), __VA_ARGS__)

/* log2 of a power of two, -1 for anything else. */
static int power_of_two(struct ptx_operand operand) {
    if (operand.kind != PTX_OPERAND_IMM || operand.value <= 0 ||
        (operand.value & (operand.value - 1)) != 0)
        return -1;
    return __builtin_ctzll((unsigned long long)operand.value);
}

/* A predicate in a register, constants included. */
static struct ptx_operand predicate(const struct element *e,
                                    struct ptx_operand operand) {
    return isel_in_register(e->is, PTX_P, operand, "p");
}

/* ---- Integers ----------------------------------------------------------- */

static struct ptx_operand emit_divui(const struct element *e) {
    int shift = power_of_two(e->in[1]);
    if (shift >= 0)
        return element_out(e, PTX_SHR_U32, e->in[0], ptx_imm(shift));
    return element_out(e, PTX_DIV_U32, e->in[0], e->in[1]);
}

static struct ptx_operand emit_remui(const struct element *e) {
    if (power_of_two(e->in[1]) >= 0)
        return element_out(e, PTX_AND_B32, e->in[0],
                           ptx_imm(e->in[1].value - 1));
    return element_out(e, PTX_REM_U32, e->in[0], e->in[1]);
}

/* Rounds toward minus infinity: one less than the truncated quotient when there
 * is a remainder and the signs differ. */
static struct ptx_operand emit_floordivsi(const struct element *e) {
    struct ptx_operand a = e->in[0], b = e->in[1];
    int shift = power_of_two(b);
    if (shift >= 0)
        return element_out(e, PTX_SHR_S32, a, ptx_imm(shift));
    struct ptx_operand quotient = temp(e, PTX_DIV_S32, "r", a, b);
    struct ptx_operand product = temp(e, PTX_MUL_LO_S32, "r", quotient, b);
    struct ptx_operand inexact = temp(e, PTX_SETP_NE_S32, "p", product, a);
    struct ptx_operand signs = temp(e, PTX_XOR_B32, "r", a, b);
    struct ptx_operand negative =
        temp(e, PTX_SETP_LT_S32, "p", signs, ptx_imm(0));
    struct ptx_operand down = temp(e, PTX_AND_PRED, "p", inexact, negative);
    struct ptx_operand step =
        temp(e, PTX_SELP_B32, "r", ptx_imm(-1), ptx_imm(0), down);
    return element_out(e, PTX_ADD_S32, quotient, step);
}

static struct ptx_operand emit_cttz(const struct element *e) {
    struct ptx_operand reversed = temp(e, PTX_BREV_B32, "r", e->in[0]);
    return element_out(e, PTX_CLZ_B32, reversed);
}

/* ---- Comparisons -------------------------------------------------------- */

struct ptx_operand element_compare(const struct element *e, int64_t predicate,
                                   struct ptx_operand a, struct ptx_operand b) {
    static const enum ptx_op rows[] = {
        [IR_EQ] = PTX_SETP_EQ_S32,  [IR_NE] = PTX_SETP_NE_S32,
        [IR_SLT] = PTX_SETP_LT_S32, [IR_SLE] = PTX_SETP_LE_S32,
        [IR_SGT] = PTX_SETP_GT_S32, [IR_SGE] = PTX_SETP_GE_S32,
        [IR_ULT] = PTX_SETP_LT_U32, [IR_ULE] = PTX_SETP_LE_U32,
        [IR_UGT] = PTX_SETP_GT_U32, [IR_UGE] = PTX_SETP_GE_U32,
    };
    return element_out(e, rows[predicate], a, b);
}

static struct ptx_operand emit_cmpi(const struct element *e) {
    int64_t which = ir_int_attr(e->op, "predicate", 0);
    if (e->in_class[0] != PTX_P)
        return element_compare(e, which, e->in[0], e->in[1]);
    /* Booleans: only equality has a meaning. */
    struct ptx_operand a = predicate(e, e->in[0]), b = predicate(e, e->in[1]);
    if (which == IR_NE)
        return element_out(e, PTX_XOR_PRED, a, b);
    struct ptx_operand differ = temp(e, PTX_XOR_PRED, "p", a, b);
    return element_out(e, PTX_NOT_PRED, differ);
}

static struct ptx_operand emit_cmpf(const struct element *e) {
    static const enum ptx_op rows[] = {
        [IR_OEQ] = PTX_SETP_EQ_F32,   [IR_OGT] = PTX_SETP_GT_F32,
        [IR_OGE] = PTX_SETP_GE_F32,   [IR_OLT] = PTX_SETP_LT_F32,
        [IR_OLE] = PTX_SETP_LE_F32,   [IR_ONE] = PTX_SETP_NE_F32,
        [IR_ORD] = PTX_SETP_NUM_F32,  [IR_UEQ] = PTX_SETP_EQU_F32,
        [IR_UGTF] = PTX_SETP_GTU_F32, [IR_UGEF] = PTX_SETP_GEU_F32,
        [IR_ULTF] = PTX_SETP_LTU_F32, [IR_ULEF] = PTX_SETP_LEU_F32,
        [IR_UNE] = PTX_SETP_NEU_F32,  [IR_UNO] = PTX_SETP_NAN_F32,
    };
    int64_t which = ir_int_attr(e->op, "predicate", 0);
    if (which < IR_OEQ || which > IR_UNO) /* always false, always true */
        return element_same(e, ptx_imm(which != 0));
    return element_out(e, rows[which], e->in[0], e->in[1]);
}

/* ---- Booleans and selection --------------------------------------------- */

/* and, or, xor of predicates with constants folded; of words in the second row.
 */
static struct ptx_operand logic(const struct element *e, enum ptx_op word,
                                enum ptx_op pred) {
    struct ptx_operand a = e->in[0], b = e->in[1];
    if (e->in_class[0] != PTX_P)
        return element_out(e, word, a, b);
    if (a.kind == PTX_OPERAND_IMM) {
        a = e->in[1];
        b = e->in[0];
    }
    if (b.kind != PTX_OPERAND_IMM)
        return element_out(e, pred, a, b);
    bool one = b.value != 0;
    if (pred == PTX_XOR_PRED && one)
        return ptx_is_reg(a) ? element_out(e, PTX_NOT_PRED, a)
                             : element_same(e, ptx_imm(!a.value));
    bool keeps = pred == PTX_AND_PRED ? one : !one; /* x & 1, x | 0, x ^ 0 */
    return element_same(e, keeps ? a : b);
}

static struct ptx_operand emit_andi(const struct element *e) {
    return logic(e, PTX_AND_B32, PTX_AND_PRED);
}
static struct ptx_operand emit_ori(const struct element *e) {
    return logic(e, PTX_OR_B32, PTX_OR_PRED);
}
static struct ptx_operand emit_xori(const struct element *e) {
    return logic(e, PTX_XOR_B32, PTX_XOR_PRED);
}

/* c ? a : b of predicates: (c & a) | (!c & b). */
static struct ptx_operand select_predicate(const struct element *e,
                                           struct ptx_operand c) {
    struct ptx_operand a = predicate(e, e->in[1]), b = predicate(e, e->in[2]);
    struct ptx_operand not_c = temp(e, PTX_NOT_PRED, "p", c);
    struct ptx_operand first = temp(e, PTX_AND_PRED, "p", c, a);
    struct ptx_operand second = temp(e, PTX_AND_PRED, "p", not_c, b);
    return element_out(e, PTX_OR_PRED, first, second);
}

static struct ptx_operand emit_select(const struct element *e) {
    struct ptx_operand c = e->in[0];
    if (c.kind == PTX_OPERAND_IMM)
        return element_same(e, e->in[c.value ? 1 : 2]);
    if (ptx_same(e->in[1], e->in[2]))
        return element_same(e, e->in[1]);
    if (e->in_class[1] == PTX_P)
        return select_predicate(e, c);
    enum ptx_op op = e->in_class[1] == PTX_F ? PTX_SELP_F32 : PTX_SELP_B32;
    return element_out(e, op, e->in[1], e->in[2], c);
}

/* ---- Casts -------------------------------------------------------------- */

static struct ptx_operand extend(const struct element *e, int64_t one) {
    if (e->in_class[0] != PTX_P)
        return element_same(e, e->in[0]);
    if (e->in[0].kind == PTX_OPERAND_IMM)
        return element_same(e, ptx_imm(e->in[0].value ? one : 0));
    return element_out(e, PTX_SELP_B32, ptx_imm(one), ptx_imm(0), e->in[0]);
}
static struct ptx_operand emit_extui(const struct element *e) {
    return extend(e, 1);
}
static struct ptx_operand emit_extsi(const struct element *e) {
    if (e->in_class[0] == PTX_P ||
        ir_element_bits(mlirValueGetType(ir_operand(e->op, 0))) != 8)
        return extend(e, -1);
    struct ptx_operand high =
        temp(e, PTX_SHL_B32, "r", e->in[0], ptx_imm(24)); /* i8 */
    return element_out(e, PTX_SHR_S32, high, ptx_imm(24));
}

static struct ptx_operand emit_trunci(const struct element *e) {
    if (!ir_is_bool(mlirValueGetType(ir_result(e->op, 0))))
        return element_same(e, e->in[0]);
    struct ptx_operand bit = temp(e, PTX_AND_B32, "r", e->in[0], ptx_imm(1));
    return element_out(e, PTX_SETP_NE_S32, bit, ptx_imm(0));
}

static struct ptx_operand to_float(const struct element *e, enum ptx_op op,
                                   float one) {
    if (e->in_class[0] != PTX_P)
        return element_out(e, op, e->in[0]);
    struct ptx_operand c = predicate(e, e->in[0]);
    return element_out(e, PTX_SELP_F32, ptx_f32(one), ptx_f32(0), c);
}
static struct ptx_operand emit_sitofp(const struct element *e) {
    return to_float(e, PTX_CVT_F32_S32, -1);
}
static struct ptx_operand emit_uitofp(const struct element *e) {
    return to_float(e, PTX_CVT_F32_U32, 1);
}

static struct ptx_operand emit_bitcast(const struct element *e) {
    bool to_f32 = ir_is_f32(mlirValueGetType(ir_result(e->op, 0)));
    bool from_f32 = e->in_class[0] == PTX_F;
    if (to_f32 == from_f32)
        return element_same(e, e->in[0]);
    return element_out(e, to_f32 ? PTX_MOV_F32_FROM_B32 : PTX_MOV_B32_FROM_F32,
                       e->in[0]);
}

static bool is_bf16(MlirValue value) {
    return mlirTypeIsABF16(ir_element_type(mlirValueGetType(value)));
}

/* Scalars only; tiles are packed by the run. */
static struct ptx_operand emit_truncf(const struct element *e) {
    bool bf16 = is_bf16(ir_result(e->op, 0));
    return element_out(e, bf16 ? PTX_CVT_BF16_F32 : PTX_CVT_F16_F32, e->in[0]);
}

static struct ptx_operand emit_extf(const struct element *e) {
    if (e->in_class[0] != PTX_H)
        return element_same(e, e->in[0]);
    if (!is_bf16(ir_operand(e->op, 0)))
        return element_out(e, PTX_CVT_F32_F16, e->in[0]);
    struct ptx_operand word = temp(e, PTX_CVT_U32_U16, "r", e->in[0]);
    word = temp(e, PTX_SHL_B32, "r", word, ptx_imm(16));
    return element_out(e, PTX_MOV_F32_FROM_B32, word);
}

/* ---- f32 ---------------------------------------------------------------- */

static struct ptx_operand emit_negf(const struct element *e) {
    if (e->in[0].kind == PTX_OPERAND_F32)
        return element_same(
            e, ptx_f32_bits((uint32_t)e->in[0].value ^ 0x80000000u));
    return element_out(e, PTX_NEG_F32, e->in[0]);
}

/* ---- The table ---------------------------------------------------------- */

#define NO PTX_OP_COUNT

/* clang-format off */
#define BOTH(row) row, row /* exact already: contraction changes nothing */
static const struct element_rule rules[] = {
    /* operation         more than one   i32             f32, f32 that may contract, i1 */
    {"arith.addi",       NULL,           PTX_ADD_S32,    NO, NO, PTX_XOR_PRED},
    {"arith.subi",       NULL,           PTX_SUB_S32,    NO, NO, PTX_XOR_PRED},
    {"arith.muli",       NULL,           PTX_MUL_LO_S32, NO, NO, PTX_AND_PRED},
    {"arith.divsi",      NULL,           PTX_DIV_S32,    NO, NO, NO},
    {"arith.remsi",      NULL,           PTX_REM_S32,    NO, NO, NO},
    {"arith.divui",      emit_divui,     NO,             NO, NO, NO},
    {"arith.remui",      emit_remui,     NO,             NO, NO, NO},
    {"arith.floordivsi", emit_floordivsi, NO,            NO, NO, NO},
    {"arith.minsi",      NULL,           PTX_MIN_S32,    NO, NO, PTX_OR_PRED},
    {"arith.maxsi",      NULL,           PTX_MAX_S32,    NO, NO, PTX_AND_PRED},
    {"arith.minui",      NULL,           PTX_MIN_U32,    NO, NO, PTX_AND_PRED},
    {"arith.maxui",      NULL,           PTX_MAX_U32,    NO, NO, PTX_OR_PRED},
    {"arith.andi",       emit_andi,      NO,             NO, NO, NO},
    {"arith.ori",        emit_ori,       NO,             NO, NO, NO},
    {"arith.xori",       emit_xori,      NO,             NO, NO, NO},
    {"arith.shli",       NULL,           PTX_SHL_B32,    NO, NO, NO},
    {"arith.shrsi",      NULL,           PTX_SHR_S32,    NO, NO, NO},
    {"arith.shrui",      NULL,           PTX_SHR_U32,    NO, NO, NO},
    {"arith.cmpi",       emit_cmpi,      NO,             NO, NO, NO},
    {"arith.cmpf",       emit_cmpf,      NO,             NO, NO, NO},
    {"arith.select",     emit_select,    NO,             NO, NO, NO},
    {"arith.extui",      emit_extui,     NO,             NO, NO, NO},
    {"arith.extsi",      emit_extsi,     NO,             NO, NO, NO},
    {"arith.trunci",     emit_trunci,    NO,             NO, NO, NO},
    {"arith.sitofp",     emit_sitofp,    NO,             NO, NO, NO},
    {"arith.uitofp",     emit_uitofp,    NO,             NO, NO, NO},
    {"arith.fptosi",     NULL,           NO,             BOTH(PTX_CVT_S32_F32), NO},
    {"arith.fptoui",     NULL,           NO,             BOTH(PTX_CVT_U32_F32), NO},
    {"arith.bitcast",    emit_bitcast,   NO,             NO, NO, NO},
    {"arith.truncf",     emit_truncf,    NO,             NO, NO, NO},
    {"arith.extf",       emit_extf,      NO,             NO, NO, NO},
    {"arith.addf",       NULL,           NO,             PTX_ADD_RN_F32, PTX_ADD_F32, NO},
    {"arith.subf",       NULL,           NO,             PTX_SUB_RN_F32, PTX_SUB_F32, NO},
    {"arith.mulf",       NULL,           NO,             PTX_MUL_RN_F32, PTX_MUL_F32, NO},
    {"arith.divf",       math_divf,      NO,             NO, NO, NO},
    {"arith.maxnumf",    NULL,           NO,             BOTH(PTX_MAX_F32), NO},
    {"arith.minnumf",    NULL,           NO,             BOTH(PTX_MIN_F32), NO},
    {"arith.negf",       emit_negf,      NO,             NO, NO, NO},
    {"math.fma",         NULL,           NO,             BOTH(PTX_FMA_RN_F32), NO},
    {"math.exp2",        math_exp2,      NO,             NO, NO, NO},
    {"math.exp",         math_exp,       NO,             NO, NO, NO},
    {"math.log2",        NULL,           NO,             BOTH(PTX_LG2_APPROX_F32), NO},
    {"math.log",         math_log,       NO,             NO, NO, NO},
    {"math.tanh",        math_tanh,      NO,             NO, NO, NO},
    {"math.sin",         math_sin,       NO,             NO, NO, NO},
    {"math.cos",         math_cos,       NO,             NO, NO, NO},
    {"math.powf",        math_powf,      NO,             NO, NO, NO},
    {"math.sqrt",        NULL,           NO,             BOTH(PTX_SQRT_RN_F32), NO},
    {"math.rsqrt",       NULL,           NO,             BOTH(PTX_RSQRT_APPROX_F32), NO},
    {"math.floor",       NULL,           NO,             BOTH(PTX_CVT_FLOOR_F32), NO},
    {"math.ceil",        NULL,           NO,             BOTH(PTX_CVT_CEIL_F32), NO},
    {"math.roundeven",   NULL,           NO,             BOTH(PTX_CVT_EVEN_F32), NO},
    {"math.absf",        NULL,           NO,             BOTH(PTX_ABS_F32), NO},
    {"math.copysign",    NULL,           NO,             BOTH(PTX_COPYSIGN_F32), NO},
    {"math.absi",        NULL,           PTX_ABS_S32,    NO, NO, NO},
    {"math.ctpop",       NULL,           PTX_POPC_B32,   NO, NO, NO},
    {"math.ctlz",        NULL,           PTX_CLZ_B32,    NO, NO, NO},
    {"math.cttz",        emit_cttz,      NO,             NO, NO, NO},
    {"attn.mul_rp",      NULL,           NO,             BOTH(PTX_MUL_RP_F32), NO},
    {"attn.exp2_split",  math_exp2_split, NO,            NO, NO, NO},
    {"func.call",        call_extern,    NO,             NO, NO, NO},
};
#undef BOTH
/* clang-format on */

const struct element_rule *element_rule_find(const char *name) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].name, name) == 0)
            return &rules[i];
    return NULL;
}

struct ptx_operand element_emit(const struct element_rule *rule,
                                const struct element *e) {
    if (rule->emit)
        return rule->emit(e);
    enum ptx_op op = e->in_class[0] == PTX_F
                         ? (e->contract ? rule->f_contract : rule->f)
                     : e->in_class[0] == PTX_P ? rule->p
                                               : rule->r;
    if (op == PTX_OP_COUNT)
        ir_ice(e->op, "ptx: no instruction for this operand type");
    struct ptx_operand in[4];
    int count = ptx_row_operand_count(&ptx_rows[op]);
    for (int k = 0; k < count; k++)
        in[k] = e->in_class[k] == PTX_P ? predicate(e, e->in[k]) : e->in[k];
    return element_result(e, op, in, count);
}
