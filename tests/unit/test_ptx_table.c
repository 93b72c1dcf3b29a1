/* insts.def: every row is a legal template, and ptxas takes every row at the
 * lowest ISA and SM that it states; registers, names and layouts. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "backends/ptx/emit.h"
#include "backends/ptx/layout.h"
#include "tests/unit/ptx_util.h"

/* Registers of a vector class; 0: none.  wgmma has n / 2 of them, a tensor copy
 * as many coordinates as dimensions. */
static int vector_length(const struct ptx_row *row, enum ptx_class class) {
    const char *shape = row->text ? strstr(row->text, "m64n") : NULL;
    switch ((int)class) {
    case PTX_R2:
        return 2;
    case PTX_R4:
    case PTX_F4:
        return 4;
    case PTX_FV:
        return shape ? atoi(shape + 4) / 2 : 1;
    case PTX_RV:
        return 5;
    default:
        return 0;
    }
}

/* A legal immediate: thread and register counts come in steps. */
static int64_t immediate_of(const struct ptx_row *row) {
    return strstr(row->id, "_COUNT") || strstr(row->id, "SETMAXNREG") ? 32 : 1;
}

/* An operand of a class, out of fresh registers. */
static struct ptx_operand operand_of(struct ptx_kernel *k,
                                     const struct ptx_row *row,
                                     enum ptx_class class) {
    int length = vector_length(row, class);
    if (length > 0) {
        struct ptx_operand *items =
            ARENA_NEW_ARRAY(k->arena, struct ptx_operand, (size_t)length);
        bool f32 = class == PTX_F4 || class == PTX_FV;
        for (int i = 0; i < length; i++)
            items[i] = ptx_reg_new(k, f32 ? PTX_F : PTX_R, "v");
        return ptx_vector(items, length);
    }
    switch ((int)class) {
    case PTX_SMEM:
        return ptx_address(ptx_reg_new(k, PTX_R, "s"), 16);
    case PTX_GMEM:
        return ptx_address(ptx_reg_new(k, PTX_D, "g"), 16);
    case PTX_IMM:
        return ptx_imm(immediate_of(row));
    case PTX_PARAM:
        return ptx_text("p");
    case PTX_LABEL_NAME:
        return ptx_text("target");
    case PTX_SREG:
        return ptx_text("%tid.x");
    case PTX_SYMBOL:
        return ptx_text("smem");
    case PTX_TEXT:
        return ptx_text("text");
    default:
        return ptx_reg_new(k, class, "x");
    }
}

/* A kernel that holds just this instruction (and a label for branches). */
static struct ptx_kernel *kernel_of(struct arena *arena, enum ptx_op op) {
    const struct ptx_row *row = &ptx_rows[op];
    struct ptx_kernel *k =
        ptx_kernel_create(arena, arena_printf(arena, "k_%s", row->id));
    struct ptx_operand operands[PTX_MAX_OPERANDS], result = {0};
    int count = ptx_row_operand_count(row);
    k->threads = 32;
    vec_push(arena, &k->params, (struct ptx_param){"p", "u64", "any"});
    if (row->result != PTX_NONE)
        result = operand_of(k, row, row->result);
    for (int i = 0; i < count; i++)
        operands[i] = operand_of(k, row, row->operands[i]);
    ptx_append(k, op, result, operands, count);
    if (row->operands[0] == PTX_LABEL_NAME && op != PTX_LABEL)
        ptx_put(k, PTX_LABEL, PTX_NOTHING, ptx_text("target"));
    ptx_put(k, PTX_RET, PTX_NOTHING, PTX_NOTHING);
    return k;
}

Test(ptx_table, templates_name_every_operand_once) {
    for (int op = 0; op < PTX_OP_COUNT; op++) {
        const struct ptx_row *row = &ptx_rows[op];
        int count = ptx_row_operand_count(row);
        cr_assert(row->min_isa >= 10 && row->min_sm >= 20, "%s", row->id);
        if (!row->text)
            continue;
        for (int i = 0; i < PTX_MAX_OPERANDS; i++) {
            char escape[] = {'$', (char)('0' + i), '\0'};
            cr_assert_eq(ptx_count(row->text, escape), i < count, "%s: %s",
                         row->id, escape);
        }
        cr_assert_eq(ptx_count(row->text, "$d"), row->result != PTX_NONE, "%s",
                     row->id);
        cr_assert_null(strpbrk(row->text, ";\n"), "%s", row->id);
    }
}

/* ptxas knows nothing older than sm_75 and ISA 6.3. */
enum { OLDEST_SM = 75, OLDEST_ISA = 63 };

/* Rows that make sense only in a sequence: a call needs its declaration and its
 * parameters, a scope its other brace.  The tests of extern functions have
 * them. */
static bool needs_context(const struct ptx_row *row) {
    for (int i = 0; i < ptx_row_operand_count(row); i++)
        if (row->operands[i] == PTX_TEXT && row->text)
            return true;
    return strcmp(row->id, "SCOPE") == 0 || strcmp(row->id, "PARAM_B32") == 0 ||
           strncmp(row->id, "ST_PARAM_", 9) == 0;
}

static void assemble_rows(int sm, int isa) {
    struct arena *arena = arena_create();
    /* wgmma and setmaxnreg exist on the "a" target only. */
    struct ptx_target target = {
        .name = arena_printf(arena, sm == 90 ? "sm_%da" : "sm_%d", sm)};
    struct strbuf text;
    strbuf_init(&text, arena);
    ptx_emit_head(&text, &target, sm == 90 && isa < 80 ? 80 : isa,
                  true); /* sm_90a: ISA 8.0 */
    int rows = 0;
    for (int op = 0; op < PTX_OP_COUNT; op++) {
        int row_sm = ptx_rows[op].min_sm, row_isa = ptx_rows[op].min_isa;
        if (needs_context(&ptx_rows[op]))
            continue;
        if ((row_sm < OLDEST_SM ? OLDEST_SM : row_sm) != sm ||
            (row_isa < OLDEST_ISA ? OLDEST_ISA : row_isa) != isa)
            continue;
        ptx_emit_kernel(&text, kernel_of(arena, (enum ptx_op)op));
        rows++;
    }
    if (rows > 0)
        cr_assert_neq(ptx_assemble(strbuf_text(&text), target.name), -2,
                      "sm_%d, ISA %d", sm, isa);
    arena_destroy(arena);
}

Test(ptx_table, rows_assemble_at_their_minimum) {
    static const int sms[] = {75, 80, 90, 100},
                     isas[] = {63, 65, 70, 71, 77, 78, 80, 86};
    for (size_t i = 0; i < sizeof sms / sizeof *sms; i++)
        for (size_t j = 0; j < sizeof isas / sizeof *isas; j++)
            assemble_rows(sms[i], isas[j]);
}

Test(ptx_table, targets) {
    const struct ptx_target *target;
    for (size_t i = 0; (target = ptx_target_at(i)) != NULL; i++) {
        cr_assert_eq(ptx_target_find(target->name), target);
        cr_assert(target->shared_bytes_per_cta < target->shared_bytes_per_sm);
        cr_assert_eq(target->specific,
                     target->name[strlen(target->name) - 1] == 'a');
    }
    cr_assert_null(ptx_target_find("sm_10"));
}

static struct ptx_kernel *empty_kernel(void) {
    return ptx_kernel_create(arena_create(), "k");
}

static const char *print(struct ptx_kernel *k) {
    struct strbuf text;
    strbuf_init(&text, k->arena);
    k->threads = 64;
    ptx_emit_kernel(&text, k);
    return strbuf_take(&text);
}

Test(ptx_table, reserved_and_odd_names) {
    struct ptx_kernel *k = empty_kernel();
    struct ptx_operand tid = ptx_reg_new(k, PTX_R, "tid"),
                       odd = ptx_reg_new(k, PTX_R, "x1");
    ptx_reg_new(k, PTX_R, "x");
    ptx_reg_new(k, PTX_R, "x");
    struct ptx_operand f = ptx_reg_new(k, PTX_F, "tid");
    ptx_put(k, PTX_MOV_B32, tid, odd);
    ptx_put(k, PTX_MOV_F32, f, ptx_f32(1.0f));
    const char *text = print(k);
    cr_assert_not_null(strstr(text, "mov.b32 %tid_, %x1_;"), "%s", text);
    cr_assert_not_null(strstr(text, "mov.f32 %tid__f, 0f3F800000;"), "%s",
                       text);
    arena_destroy(k->arena);
}

Test(ptx_table, guards_and_addresses) {
    struct ptx_kernel *k = empty_kernel();
    struct ptx_operand p = ptx_reg_new(k, PTX_P, "p"),
                       a = ptx_reg_new(k, PTX_D, "at");
    struct ptx_operand v = ptx_reg_new(k, PTX_R, "v");
    ptx_guard(ptx_put(k, PTX_ST_GLOBAL_B32, PTX_NOTHING, ptx_address(a, 8), v),
              p, true);
    cr_assert_not_null(
        strstr(print(k), "    @!%p st.global.b32 [%at+8], %v;\n"));
    arena_destroy(k->arena);
}

Test(ptx_table, wrong_class_aborts, .signal = SIGABRT) {
    struct ptx_kernel *k = empty_kernel();
    ptx_def(k, PTX_ADD_S32, "r", ptx_reg_new(k, PTX_F, "f"), ptx_imm(1));
}

Test(ptx_table, wrong_count_aborts, .signal = SIGABRT) {
    struct ptx_kernel *k = empty_kernel();
    ptx_def(k, PTX_ADD_S32, "r", ptx_imm(1));
}

Test(ptx_table, layout_numbers_are_a_permutation) {
    const struct tile_shape shape = {2, 5};
    bool seen[40] = {false};
    for (int f = 0; f < 2; f++)
        for (int j = 0; j < 5; j++)
            for (int i = 0; i < 2; i++)
                for (int c = 0; c < 2; c++) {
                    int at =
                        layout_index(LAYOUT_TILE, shape, false, f, i, j, c);
                    cr_assert(at >= 0 && at < 40 && !seen[at]);
                    seen[at] = true;
                    cr_assert_eq(
                        layout_index(LAYOUT_TILE, shape, true, f, i, j, c),
                        at / 2);
                    cr_assert_eq(
                        layout_index(LAYOUT_ROW, shape, false, f, i, j, c),
                        2 * f + i);
                    cr_assert_eq(
                        layout_index(LAYOUT_COLUMN, shape, false, f, i, j, c),
                        2 * j + c);
                }
    cr_assert_eq(layout_count(LAYOUT_TILE, shape, true), 20);
    cr_assert_eq(layout_count(LAYOUT_SCALAR, shape, false), 1);
}

/* Eight lanes of one ldmatrix phase read eight rows: their chunks must lie in
 * different 16-byte columns of the 128 bytes that the banks span. */
Test(ptx_table, swizzles_are_free_of_conflicts) {
    const struct swizzle swizzles[] = {{8, 3, 0}, {16, 3, 0}, {4, 2, 1},
                                       {2, 1, 2}, {9, 0, 0},  {11, 0, 0},
                                       {24, 3, 0}};
    for (size_t s = 0; s < sizeof swizzles / sizeof *swizzles; s++)
        for (int chunk = 0; chunk < swizzles[s].pitch; chunk++) {
            unsigned banks = 0;
            for (int row = 0; row < 8; row++)
                banks |= 1u
                         << (swizzle_offset(swizzles[s], row, chunk) / 16 % 8);
            cr_assert_null(swizzle_check(swizzles[s], 0));
            cr_assert_eq(banks, 0xFF, "pitch %d, chunk %d", swizzles[s].pitch,
                         chunk);
        }
    cr_assert_not_null(swizzle_check((struct swizzle){6, 3, 0}, 0));
    cr_assert_not_null(swizzle_check((struct swizzle){8, 3, 0}, 16));
    cr_assert_not_null(swizzle_check((struct swizzle){8, 3, 2}, 0));
}
