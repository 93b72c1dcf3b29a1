/* Structure of the emitted PTX: counts of instructions, what is computed how
 * often, registers that stay in place, errors. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/ptx_util.h"

static int count_in(const char *begin, const char *end, const char *word) {
    int count = 0;
    for (const char *at = begin; (at = strstr(at, word)) != NULL && at < end;
         at += strlen(word))
        count++;
    return count;
}

/* ---- A whole kernel ----------------------------------------------------- */

Test(ptx_isel, instruction_counts) {
    struct ptx_case c = ptx_case_file("causal-d64", "sm_80");
    cr_assert_not_null(c.text, "%s", ptx_case_errors(&c));
    /* Two fragments, 8 column groups, 4 k-steps, two products. */
    cr_assert_eq(ptx_count(c.text, "mma.sync"), 2 * 8 * 4 * 2);
    /* Q: 2 fragments x 4 steps; K and V: 4 pairs of groups x 4 steps each. */
    cr_assert_eq(ptx_count(c.text, "ldmatrix"), 8 + 16 + 16);
    cr_assert_eq(ptx_count(c.text, ".trans"), 16);
    cr_assert_eq(ptx_count(c.text, "cp.async.cg"), 8 + 2 * (4 + 4));
    cr_assert_eq(ptx_count(c.text, "bar.sync"), 1);
    /* P and alpha. */
    cr_assert_eq(ptx_count(c.text, "ex2.approx"), 64 + 4);
    cr_assert_eq(ptx_count(c.text, "cvt.rn.bf16x2"), 32 + 32);
    cr_assert_eq(ptx_count(c.text, "st.global.v2"), 4 * 4);
    cr_assert_eq(ptx_count(c.text, "st.global.f32"), 4);
    cr_assert_eq(ptx_count(c.text, ".local"), 0);
    ptx_case_end(&c);
}

/* Accumulators stay where they are: nothing but the row state moves at the end
 * of the loop, and the arm that passes the scores on is empty. */
Test(ptx_isel, accumulators_stay_in_place) {
    struct ptx_case c = ptx_case_file("causal-d64", "sm_80");
    const char *loop = strstr(c.text, "\nloop_"),
               *end = strstr(c.text, "epilogue");
    cr_assert(loop && end);
    cr_assert_eq(count_in(loop, end, "mov.f32 %acc"), 0);
    cr_assert_eq(count_in(loop, end, "mov.f32 %s"), 0);
    cr_assert_eq(count_in(loop, end, "mov.f32 %carried"), 8); /* m and l */
    cr_assert_eq(ptx_count(c.text, "\nelse_"), 0);
    ptx_case_end(&c);
}

Test(ptx_isel, same_input_same_bytes) {
    struct ptx_case a = ptx_case_file("bias-d64", "sm_80"),
                    b = ptx_case_file("bias-d64", "sm_80");
    cr_assert_str_eq(a.text, b.text);
    ptx_case_end(&a);
    ptx_case_end(&b);
}

Test(ptx_isel, assembles_without_spills) {
    static const struct {
        const char *file;
        bool may_spill; /* D > 128 */
    } files[] = {
        {"causal-d16", false},    {"full-d32-frag", false},
        {"causal-d64", false},    {"softcap-d64", false},
        {"bias-d64", false},      {"full-d72", false},
        {"causal-d128", false},   {"document", false},
        {"causal-192-128", true}, {"full-d256", true},
    };
    static const char *const archs[] = {"sm_80", "sm_90"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (size_t k = 0; k < 2; k++) {
            struct ptx_case c = ptx_case_file(files[i].file, "sm_80");
            cr_assert_not_null(c.text, "%s", ptx_case_errors(&c));
            int spills = ptx_assemble(c.text, archs[k]);
            cr_assert_neq(spills, -2, "%s for %s", files[i].file, archs[k]);
            cr_assert(files[i].may_spill || spills <= 0, "%s for %s: %d bytes",
                      files[i].file, archs[k], spills);
            ptx_case_end(&c);
        }
}

Test(ptx_isel, launch_facts) {
    struct ptx_case c = ptx_case_file("bias-d64", "sm_80");
    const struct kernel_entry *entry = &c.info.entries[0];
    cr_assert_eq(c.info.entry_count, 1);
    cr_assert_str_eq(entry->name, "bias");
    cr_assert_eq(entry->threads, 128);
    cr_assert_eq(c.info.tile_m, 64);
    /* q k v o: pointer and 3 strides; lse the same; 5 sizes; bias 1 + 3 + 3;
     * slopes 1 + 1 + 1. */
    cr_assert_eq(entry->param_count, 5 * 4 + 5 + 7 + 3);
    cr_assert_eq(ptx_count(c.text, "    .param ."), (int)entry->param_count);
    const struct kernel_param *bias = &entry->params[25];
    cr_assert_eq(bias[0].kind, KERNEL_PARAM_POINTER);
    cr_assert_eq(bias[0].index, KERNEL_TENSOR_CAPTURED);
    cr_assert(bias[3].kind == KERNEL_PARAM_EXTENT && bias[3].axis == 2);
    cr_assert(bias[4].kind == KERNEL_PARAM_STRIDE && bias[4].axis == 0);
    struct size_env env = {.sizes = {2, 3, 3, 65, 9}};
    int64_t grid;
    cr_assert(size_expr_eval(&entry->grid_x, &env, &grid));
    cr_assert_eq(grid, 2 * 2 * 3);
    ptx_case_end(&c);
}

/* Summaries are entries before the main kernel and share its workspace; the
 * list of key blocks is made by ballots. */
Test(ptx_isel, summary_kernels_and_lists) {
    struct ptx_case c = ptx_case_file("document", "sm_80");
    cr_assert_not_null(c.text, "%s", ptx_case_errors(&c));
    cr_assert_eq(c.info.entry_count, 2);
    cr_assert_str_eq(c.info.entries[1].name, "document");
    cr_assert_not_null(strstr(c.info.entries[0].name, "summary"));
    cr_assert_null(strchr(c.info.entries[0].name, '.'));
    cr_assert_gt(ptx_count(c.text, "vote.sync.ballot"), 0);
    struct size_env env = {.sizes = {2, 1, 1, 1000, 1000}};
    int64_t bytes;
    cr_assert(size_expr_eval(&c.info.workspace_bytes, &env, &bytes));
    cr_assert(bytes > 0 && bytes % 256 == 0);
    int offsets = 0;
    for (size_t e = 0; e < 2; e++)
        for (size_t i = 0; i < c.info.entries[e].param_count; i++) {
            struct kernel_param *param = &c.info.entries[e].params[i];
            int64_t offset;
            if (param->kind != KERNEL_PARAM_WORKSPACE)
                continue;
            cr_assert(size_expr_eval(&param->offset_expr, &env, &offset));
            cr_assert(offset % 256 == 0 && offset < bytes);
            offsets++;
        }
    cr_assert_geq(offsets, 2); /* written and read */
    ptx_case_end(&c);
}

/* The place in the spec stands before what it became; sections are marked. */
Test(ptx_isel, annotations) {
    struct ptx_case c = ptx_case_file("document", "sm_80");
    cr_assert_not_null(strstr(c.text, "    // @ specs/document.attn:"));
    cr_assert_not_null(strstr(c.text, "    // ---- mainloop\n"));
    cr_assert_not_null(strstr(c.text, "    // ---- epilogue\n"));
    cr_assert_not_null(strstr(
        c.text, "    // ---- dot: 128 x 64 x 128, q with k transposed\n"));
    ptx_case_end(&c);
}

/* ---- Small pieces ------------------------------------------------------- */

/* A kernel of one warp with the given body; %n is an i32 size, %w a workspace.
 */
static struct ptx_case small(const char *body) {
    char ir[8192];
    snprintf(
        ir, sizeof ir,
        "#wg = #gpu.address_space<workgroup>\n"
        "module { func.func @f(%%n: i32 {attn.arg = \"size:q_len\"}, %%w: "
        "memref<?xf32> "
        "{attn.arg = \"workspace:0\", attn.workspace_bytes = [\"q_len\"]}, "
        "%%o: memref<?x?x?x16xf16, strided<[?, ?, ?, 1]>> {attn.arg = \"o\"})\n"
        "attributes {attn.kernel = \"main\", attn.warps = 1 : i32} "
        "{\n%s\nreturn\n}}\n",
        body);
    return ptx_case_text(ir, "sm_80");
}

static const char rows[] =
    "%step = vector.step : vector<16xindex>\n"
    "%si = arith.index_cast %step : vector<16xindex> to vector<16xi32>\n"
    "%row = vector.shape_cast %si : vector<16xi32> to vector<16x1xi32>\n"
    "%col = vector.shape_cast %si : vector<16xi32> to vector<1x16xi32>\n"
    "%rt = vector.broadcast %row : vector<16x1xi32> to vector<16x16xi32>\n"
    "%ct = vector.broadcast %col : vector<1x16xi32> to vector<16x16xi32>\n";

static const char store_tile[] =
    "%half = arith.truncf %t : vector<16x16xf32> to vector<16x16xf16>\n"
    "\"attn.store\"(%half, %o, %n, %n, %n, %n) : (vector<16x16xf16>, "
    "memref<?x?x?x16xf16, strided<[?, ?, ?, 1]>>, i32, i32, i32, i32) -> ()\n";

/* What depends on rows only is computed once a row, on columns only once a
 * column, even where its type is that of the tile: the tile has 8 elements a
 * lane, 2 rows, 4 columns. */
Test(ptx_isel, rows_and_columns_are_computed_once) {
    char body[4096];
    snprintf(body, sizeof body, "%s%s%s", rows,
             "%rf = arith.sitofp %rt : vector<16x16xi32> to vector<16x16xf32>\n"
             "%cu = arith.uitofp %ct : vector<16x16xi32> to vector<16x16xf32>\n"
             "%t = arith.mulf %rf, %cu : vector<16x16xf32>\n",
             store_tile);
    struct ptx_case c = small(body);
    cr_assert_not_null(c.text, "%s", ptx_case_errors(&c));
    cr_assert_eq(ptx_count(c.text, "cvt.rn.f32.s32"), 2, "%s", c.text);
    cr_assert_eq(ptx_count(c.text, "cvt.rn.f32.u32"), 4);
    cr_assert_eq(ptx_count(c.text, "mul.rn.f32"), 8);
    cr_assert_eq(ptx_assemble(c.text, "sm_80") == -2, 0);
    ptx_case_end(&c);
}

/* f32 arithmetic is rounded step by step unless it may contract. */
Test(ptx_isel, contraction_only_where_allowed) {
    struct ptx_case c =
        small("%c0 = arith.constant 0 : index\n"
              "%a = memref.load %w[%c0] : memref<?xf32>\n"
              "%b = arith.mulf %a, %a : f32\n"
              "%d = arith.addf %b, %a fastmath<contract> : f32\n"
              "memref.store %d, %w[%c0] : memref<?xf32>");
    cr_assert_not_null(strstr(c.text, "mul.rn.f32"));
    cr_assert_not_null(strstr(c.text, "add.f32"));
    cr_assert_null(strstr(c.text, "add.rn.f32"));
    ptx_case_end(&c);
}

/* Values that swap in each round need a third register. */
Test(ptx_isel, parallel_moves) {
    struct ptx_case c = small(
        "%c0 = arith.constant 0 : i32\n%c1 = arith.constant 1 : i32\n"
        "%k = arith.constant 0 : index\n"
        "%r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%x = %c0, %y = %c1)"
        " -> (i32, i32) : i32 { scf.yield %y, %x : i32, i32 }\n"
        "%f = arith.sitofp %r#0 : i32 to f32\n"
        "memref.store %f, %w[%k] : memref<?xf32>");
    cr_assert_not_null(c.text, "%s", ptx_case_errors(&c));
    cr_assert_not_null(strstr(c.text,
                              "mov.b32 %swap, %c0;\n    mov.b32 %c0, %c1;\n"
                              "    mov.b32 %c1, %swap;"),
                       "%s", c.text);
    ptx_case_end(&c);
}

Test(ptx_isel, unknown_operation_is_an_error) {
    struct ptx_case c =
        small("%a = arith.constant 1.0 : f32\n%b = math.erf %a : f32\n"
              "%k = arith.constant 0 : index\n"
              "memref.store %b, %w[%k] : memref<?xf32>");
    cr_assert_null(c.text);
    cr_assert_not_null(
        strstr(ptx_case_errors(&c), "has no lowering for 'math.erf'"));
    ptx_case_end(&c);
}

/* A kernel that stores the sum of calls of @f at w[0]. */
static struct ptx_case calling(const char *declarations, const char *calls) {
    static char ir[4096];
    snprintf(ir, sizeof ir,
             "module { %s func.func @k(%%n: i32 {attn.arg = \"size:q_len\"}, "
             "%%w: memref<?xf32> {attn.arg = \"workspace:0\", "
             "attn.workspace_bytes = [\"q_len\"]}) attributes "
             "{attn.kernel = \"main\", attn.warps = 1 : i32} {\n%s\n"
             "%%c0 = arith.constant 0 : index\n"
             "memref.store %%x, %%w[%%c0] : memref<?xf32>\nreturn\n}}\n",
             declarations, calls);
    return ptx_case_text(ir, "sm_80");
}

static void expect_call_error(const char *declarations, const char *calls,
                              const char *message) {
    struct ptx_case c = calling(declarations, calls);
    cr_assert_null(c.text);
    cr_assert_not_null(strstr(ptx_case_errors(&c), message), "%s",
                       ptx_case_errors(&c));
    ptx_case_end(&c);
}

Test(ptx_isel, calls_that_cannot_be_are_errors) {
    expect_call_error("func.func private @f(%a: i32) -> f32 { "
                      "%y = arith.sitofp %a : i32 to f32 return %y : f32 }",
                      "%x = func.call @f(%n) : (i32) -> f32",
                      "calls extern functions of one result only, which 'f'");
    expect_call_error(
        "func.func private @f(bf16) -> f32 attributes {attn.extern = \"f\"}",
        "%h = arith.constant 1.0 : f32\n"
        "%b = arith.truncf %h : f32 to bf16\n"
        "%x = func.call @f(%b) : (bf16) -> f32",
        "'f': an operand or the result is not i32, f32 or i1");
    expect_call_error(
        "func.func private @f(i32) -> f32 attributes {attn.extern = \"f\"} "
        "func.func private @g() -> f32 attributes {attn.extern = \"f\"}",
        "%y = func.call @f(%n) : (i32) -> f32\n"
        "%z = func.call @g() : () -> f32\n"
        "%x = arith.addf %y, %z : f32",
        "extern function 'f' with 1 and 0 operands");
}

/* PTX would take the kernel's own name for the function's. */
Test(ptx_isel, extern_names_must_be_free) {
    static const char *const taken[][2] = {
        {"k", "the kernel itself"},
        {"workspace_0_ptr", "a parameter"},
        {"endif_0", "a label"},
    };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        char declaration[160], message[160];
        snprintf(declaration, sizeof declaration,
                 "func.func private @f(i32) -> f32 attributes "
                 "{attn.extern = \"%s\"}",
                 taken[i][0]);
        snprintf(message, sizeof message, "the PTX of kernel 'k' calls %s so",
                 taken[i][1]);
        expect_call_error(declaration,
                          "%x = func.call @f(%n) : (i32) -> f32\n"
                          "%c = arith.cmpi eq, %n, %n : i32\n"
                          "scf.if %c { %i = arith.constant 1 : index\n"
                          "memref.store %x, %w[%i] : memref<?xf32> }",
                          message);
    }
}

Test(ptx_isel, illegal_swizzle_is_an_error) {
    struct ptx_case c = small(
        "%s = \"attn.shared\"() {name = \"t\", byte_offset = 0 : i32, "
        "pitch = 6 : i32, swizzle_bits = 3 : i32, swizzle_shift = 0 : i32} "
        ": () -> memref<16x48xf16, #wg>\n"
        "%t = \"attn.fragments\"(%s) : (memref<16x48xf16, #wg>) -> "
        "vector<16x48xf16>\n");
    cr_assert_null(c.text);
    cr_assert_not_null(strstr(ptx_case_errors(&c), "pitch is not a multiple"));
    ptx_case_end(&c);
}

Test(ptx_isel, too_much_shared_memory_is_an_error) {
    struct ptx_case c = ptx_case_text(
        "module { func.func @f() attributes {attn.kernel = \"main\", "
        "attn.shared_bytes = 170000 : i32} { return } }",
        "sm_80");
    cr_assert_null(c.text);
    cr_assert_not_null(
        strstr(ptx_case_errors(&c),
               "kernel needs 170000 bytes of shared memory, sm_80 has 166912"));
    ptx_case_end(&c);
}
