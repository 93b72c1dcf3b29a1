/* Builders, queries, printing and inlining of the IR. */
#include <criterion/criterion.h>
#include <math.h>
#include <mlir-c/BuiltinAttributes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/build.h"
#include "ir/walk.h"

static struct arena *arena;
static MlirContext context;
static MlirModule module;
static struct ir_builder b;

static void setup(void) {
    arena = arena_create();
    context = ir_context_create();
    ir_builder_init(&b, context, arena);
    module = mlirModuleCreateEmpty(b.location);
    ir_at_end(&b, mlirModuleGetBody(module));
}

static void teardown(void) {
    mlirModuleDestroy(module);
    mlirContextDestroy(context);
    arena_destroy(arena);
}

TestSuite(ir_build, .init = setup, .fini = teardown);

static const char *printed(MlirOperation op) {
    struct strbuf text;
    strbuf_init(&text, arena);
    ir_print(op, false, &text);
    return strbuf_text(&text);
}

static void expect(const char *text, const char *part) {
    cr_assert(strstr(text, part), "missing '%s' in:\n%s", part, text);
}

/* The module verifies, prints and reads back to the same text. */
static const char *checked(void) {
    MlirOperation op = mlirModuleGetOperation(module);
    struct strbuf errors;
    strbuf_init(&errors, arena);
    MlirDiagnosticHandlerID id = ir_diagnostics_capture(context, &errors);
    bool valid = mlirOperationVerify(op);
    const char *text = printed(op);
    cr_assert(valid, "%s\n%s", strbuf_text(&errors), text);
    MlirModule again = ir_parse(context, text, strlen(text));
    cr_assert(!mlirModuleIsNull(again), "%s\n%s", strbuf_text(&errors), text);
    cr_assert_str_eq(printed(mlirModuleGetOperation(again)), text);
    mlirModuleDestroy(again);
    ir_diagnostics_detach(context, id);
    return text;
}

/* A function f(i32, i32, f32) and the builder in its body. */
static MlirOperation begin(void) {
    MlirType i32 = ir_type_i32(context);
    MlirType args[] = {i32, i32, ir_type_f32(context)};
    MlirOperation func = ir_func(&b, "f", false, args, 3, NULL, 0);
    ir_at_end(&b, ir_func_body(func));
    return func;
}

Test(ir_build, constants_and_arithmetic) {
    MlirOperation f = begin();
    MlirValue x = ir_func_arg(f, 0), y = ir_func_arg(f, 1),
              z = ir_func_arg(f, 2);
/* "arith.addf" and the like take floats. */
#define is_float(mlir) (mlir[strlen(mlir) - 1] == 'f')
#define OP(name, mlir) \
    ir_##name(&b, is_float(mlir) ? z : x, is_float(mlir) ? z : y);
    IR_BINARY_OPS(OP)
#undef OP
    ir_exp2(&b, z), ir_absi(&b, x), ir_ctpop(&b, x), ir_roundeven(&b, z);
    ir_sitofp(&b, x, ir_type_f32(context)),
        ir_fptosi(&b, z, ir_type_i32(context));
    ir_select(&b, ir_cmpi(&b, IR_SLE, x, y), x, y);
    ir_not(&b, ir_cmpf(&b, IR_UNO, z, z));
    b.contract = true;
    ir_fma(&b, z, z, ir_const_f32(&b, -INFINITY));
    b.contract = false;
    ir_const_bool(&b, true);
    ir_splat(&b, ir_type_tile(ir_type_f32(context), 64, 1), -INFINITY);
    ir_splat(&b, ir_type_tile(ir_type_i1(context), 1, 64), 1);
    ir_return(&b, NULL, 0);
    const char *text = checked();
    expect(text, "arith.cmpi sle, %arg0, %arg1 : i32");
    expect(text, "arith.cmpf uno");
    expect(text, "math.fma %arg2, %arg2, %cst fastmath<contract> : f32");
    expect(text, "arith.floordivsi");
    expect(text, "dense<0xFF800000> : vector<64x1xf32>");
    expect(text, "dense<true> : vector<1x64xi1>");
}

Test(ir_build, constants_are_read_back) {
    begin();
    int64_t whole = 0;
    double real = 0;
    cr_assert(ir_constant_int(ir_const_i32(&b, -7), &whole) && whole == -7);
    cr_assert(ir_constant_int(ir_const_bool(&b, true), &whole) && whole == 1);
    cr_assert(ir_constant_float(ir_const_f32(&b, 0.5f), &real) && real == 0.5);
    MlirType row = ir_type_tile(ir_type_f32(context), 64, 1);
    cr_assert(ir_constant_float(ir_splat(&b, row, INFINITY), &real) &&
              isinf(real));
    cr_assert(!ir_constant_int(ir_const_f32(&b, 1), &whole));
    ir_return(&b, NULL, 0);
}

Test(ir_build, tiles) {
    MlirOperation f = begin();
    MlirType f32 = ir_type_f32(context);
    MlirValue row = ir_row_positions(&b, 64),
              column = ir_column_positions(&b, 32);
    MlirType tile = ir_type_tile(ir_type_i32(context), 64, 32);
    MlirValue difference = ir_subi(&b, ir_broadcast(&b, row, tile),
                                   ir_broadcast(&b, column, tile));
    MlirValue scores = ir_sitofp(&b, difference, f32);
    MlirValue maximum = ir_reduce_columns(&b, IR_REDUCE_MAXNUMF, scores);
    cr_assert(ir_is_row(mlirValueGetType(maximum)));
    cr_assert(ir_is_column(mlirValueGetType(column)));
    cr_assert(ir_is_tile(mlirValueGetType(scores)) &&
              ir_is_f32(mlirValueGetType(scores)));
    ir_broadcast(&b, ir_func_arg(f, 2), ir_type_tile(f32, 64, 1));
    ir_return(&b, NULL, 0);
    expect(checked(), "vector.multi_reduction <maxnumf>");
}

Test(ir_build, control_flow) {
    MlirOperation f = begin();
    MlirValue n = ir_func_arg(f, 0), zero = ir_const_i32(&b, 0),
              one = ir_const_i32(&b, 1);
    struct ir_for loop = ir_for_begin(&b, zero, n, one, &zero, 1);
    MlirType i32 = ir_type_i32(context);
    struct ir_if branch =
        ir_if_begin(&b, ir_cmpi(&b, IR_SLT, loop.iv, n), &i32, 1, true);
    ir_if_else(&b, &branch, &one, 1);
    ir_if_end(&b, &branch, &zero, 1);
    MlirValue sum = ir_addi(&b, ir_for_arg(&loop, 0), ir_result(branch.op, 0));
    ir_for_end(&b, &loop, &sum, 1);
    MlirValue start = ir_result(loop.op, 0);
    struct ir_while search = ir_while_begin(&b, &start, 1);
    MlirValue i = ir_while_arg(&search, 0, 0);
    ir_while_do(&b, &search, ir_cmpi(&b, IR_SLT, i, n), &i, 1);
    MlirValue next = ir_addi(&b, ir_while_arg(&search, 1, 0), one);
    ir_while_end(&b, &search, &next, 1);
    struct ir_if alone =
        ir_if_begin(&b, ir_const_bool(&b, true), NULL, 0, false);
    ir_barrier(&b);
    ir_if_end(&b, &alone, NULL, 0);
    ir_return(&b, NULL, 0);
    const char *text = checked();
    expect(text, "scf.for %arg3 = %c0_i32 to %arg0 step %c1_i32 iter_args");
    expect(text, "scf.while");
}

Test(ir_build, attention_ops) {
    MlirType bf16 = ir_type_bf16(context), f32 = ir_type_f32(context);
    MlirType i32 = ir_type_i32(context), qkvo = ir_type_qkvo(bf16, 64);
    MlirType args[] = {qkvo,
                       qkvo,
                       qkvo,
                       qkvo,
                       ir_type_tensor(f32, 3),
                       i32,
                       ir_type_tensor(i32, 2)};
    MlirOperation f = ir_func(&b, "f", false, args, 7, NULL, 0);
    ir_at_end(&b, ir_func_body(f));
    MlirValue q = ir_func_arg(f, 0), k = ir_func_arg(f, 1),
              v = ir_func_arg(f, 2);
    MlirValue n = ir_func_arg(f, 5);
    ir_attention(&b, &(struct ir_attention){q, k, v, ir_func_arg(f, 3),
                                            ir_func_arg(f, 4),
                                            ir_const_f32(&b, 0.125f), 0});
    MlirValue q_s = ir_load(&b, "q", q, n, n, n, n, 64),
              k_s = ir_load(&b, "k", k, n, n, n, n, 32);
    MlirValue v_s = ir_load(&b, "v", v, n, n, n, n, 32);
    MlirValue s = ir_dot(&b, ir_fragments(&b, q_s), k_s,
                         ir_splat(&b, ir_type_tile(f32, 64, 32), 0), true);
    MlirValue acc = ir_splat(&b, ir_type_tile(f32, 64, 64), 0);
    MlirValue m = ir_splat(&b, ir_type_tile(f32, 64, 1), -INFINITY);
    MlirValue l = ir_splat(&b, ir_type_tile(f32, 64, 4), 0);
    MlirOperation step = ir_softmax_step(&b, acc, m, l, s, v_s);
    MlirOperation end = ir_softmax_finish(
        &b, ir_result(step, 0), ir_result(step, 1), ir_result(step, 2));
    ir_partial_sum(&b, s, l), ir_mul_rp(&b, m, m);
    ir_store(&b, ir_truncf(&b, ir_result(end, 0), bf16), ir_func_arg(f, 3), n,
             n, n, n, false);
    ir_store(&b, ir_result(end, 1), ir_func_arg(f, 4), n, n, n, n, true);
    ir_ballot(&b, ir_const_bool(&b, true)),
        ir_warp_reduce(&b, "minsi", ir_lane_id(&b));
    MlirType stages = ir_type_shared(bf16, 3, (int64_t[]){2, 32, 64});
    MlirValue buffer =
        ir_shared(&b, stages, &(struct ir_shared){"k", 0, 8, 3, 0});
    ir_copy_async(&b, k, n, n, n, n, ir_stage(&b, buffer, n));
    ir_commit_group(&b), ir_wait_group(&b, 1);
    MlirValue list =
        ir_shared(&b, ir_type_shared(i32, 1, (int64_t[]){32}),
                  &(struct ir_shared){.name = "list", .byte_offset = 4096});
    ir_store_element(&b, ir_dim(&b, ir_func_arg(f, 6), 1), list, &n, 1);
    MlirValue read[] = {n, ir_column_positions(&b, 32)};
    cr_assert(ir_is_column(
        mlirValueGetType(ir_read(&b, ir_func_arg(f, 6), read, 2))));
    ir_block_id(&b), ir_thread_id(&b), ir_subgroup_id(&b);
    ir_return(&b, NULL, 0);
    ir_set_kernel_kind(f, "main"), ir_set_kernel_tile(f, 64, 32),
        ir_set_kernel_warps(f, 4);
    const char *grid[] = {"q_len", "64", "ceildiv"};
    ir_set_kernel_grid(f, grid, 3);
    const char *text = checked();
    expect(text, "\"attn.dot\"");
    expect(text, "transpose_b");
    expect(text, "attn.grid = [\"q_len\", \"64\", \"ceildiv\"]");
    expect(text, "memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>");
}

Test(ir_build, arguments_are_appended) {
    MlirOperation f = begin();
    ir_return(&b, NULL, 0);
    ir_func_set_arg_attr(f, 0, "attn.arg",
                         ir_attr_string(context, "size:batch"));
    ir_func_add_arg(f, ir_type_workspace(ir_type_i32(context)), "workspace:0");
    const char *words[] = {"kv_len", "8", "mul"};
    ir_set_workspace_bytes(f, 3, words, 3);
    size_t index = 0, count = 0;
    cr_assert(ir_func_find_arg(f, "workspace:0", &index) && index == 3);
    const char **back =
        ir_words(arena, ir_func_arg_attr(f, 3, "attn.workspace_bytes"), &count);
    cr_assert(count == 3 && strcmp(back[2], "mul") == 0);
    expect(checked(), "attn.arg = \"workspace:0\"");
}

Test(ir_build, inlining_keeps_row_quantities) {
    MlirType i32 = ir_type_i32(context), i1 = ir_type_i1(context);
    MlirType args[] = {i32, i32, i32};
    MlirOperation callee = ir_func(&b, "mask", true, args, 3, &i1, 1);
    ir_at_end(&b, ir_func_body(callee));
    MlirValue shifted =
        ir_addi(&b, ir_func_arg(callee, 0), ir_func_arg(callee, 2));
    MlirValue keep = ir_cmpi(&b, IR_SLE, ir_func_arg(callee, 1), shifted);
    ir_return(&b, &keep, 1);
    ir_at_end(&b, mlirModuleGetBody(module));
    MlirOperation f = begin();
    MlirValue actual[] = {ir_row_positions(&b, 64), ir_column_positions(&b, 32),
                          ir_func_arg(f, 0)};
    MlirValue result;
    ir_inline(&b, callee, actual, 3, &result);
    cr_assert(ir_is_tile(mlirValueGetType(result)) &&
              ir_is_bool(mlirValueGetType(result)));
    ir_return(&b, NULL, 0);
    const char *text = checked();
    expect(text, "vector.broadcast %arg0 : i32 to vector<64x1xi32>");
    expect(text, ": vector<64x32xi32>");
}

Test(ir_build, inlining_calls_extern_functions_on_elements) {
    MlirOperation top = mlirModuleGetOperation(module);
    MlirType i32 = ir_type_i32(context), f32 = ir_type_f32(context);
    MlirType args[] = {i32, i32};
    MlirOperation decay = ir_extern_func(top, arena, "decay", args, 2, f32);
    cr_assert(mlirOperationEqual(
        decay, ir_extern_func(top, arena, "decay", args, 2, f32)));
    MlirOperation callee = ir_func(&b, "score", true, args, 2, &f32, 1);
    ir_at_end(&b, ir_func_body(callee));
    MlirValue passed[] = {ir_func_arg(callee, 0), ir_func_arg(callee, 1)};
    MlirValue value = ir_result(ir_call(&b, decay, passed, 2), 0);
    ir_return(&b, &value, 1);
    ir_at_end(&b, mlirModuleGetBody(module));
    MlirOperation f = begin();
    MlirValue actual[] = {ir_row_positions(&b, 64), ir_func_arg(f, 0)}, result;
    ir_inline(&b, callee, actual, 2, &result);
    cr_assert(ir_is_row(mlirValueGetType(result)));
    ir_return(&b, NULL, 0);
    const char *text = checked();
    expect(
        text,
        "func.func private @decay.64x1(vector<64x1xi32>, vector<64x1xi32>) -> "
        "vector<64x1xf32> attributes {attn.extern = \"decay\"}");
    expect(text, "call @decay.64x1");
}

Test(ir_build, inlining_remaps_nested_regions) {
    MlirType i32 = ir_type_i32(context);
    MlirOperation callee = ir_func(&b, "sum", true, &i32, 1, &i32, 1);
    ir_at_end(&b, ir_func_body(callee));
    MlirValue n = ir_func_arg(callee, 0), zero = ir_const_i32(&b, 0);
    struct ir_for loop =
        ir_for_begin(&b, zero, n, ir_const_i32(&b, 1), &zero, 1);
    MlirValue next = ir_addi(&b, ir_for_arg(&loop, 0), n);
    ir_for_end(&b, &loop, &next, 1);
    MlirValue sum = ir_result(loop.op, 0);
    ir_return(&b, &sum, 1);
    ir_at_end(&b, mlirModuleGetBody(module));
    MlirOperation f = begin();
    MlirValue actual = ir_func_arg(f, 1), result;
    ir_inline(&b, callee, &actual, 1, &result);
    ir_return(&b, NULL, 0);
    checked();
    cr_assert(mlirValueEqual(ir_operand(ir_def(result), 1), actual));
}

Test(ir_build, dead_code_goes) {
    MlirOperation f = begin();
    MlirValue x = ir_func_arg(f, 0);
    ir_addi(&b, ir_muli(&b, x, x), ir_const_i32(&b, 1));
    ir_return(&b, NULL, 0);
    ir_erase_dead(ir_func_body(f));
    MlirOperation first = mlirBlockGetFirstOperation(ir_func_body(f));
    cr_assert(ir_is_op(first, "func.return"));
}

Test(ir_build, locations) {
    const char *file;
    unsigned line, column;
    MlirLocation place = ir_location(context, "window.attn", 7, 12);
    MlirLocation fused = mlirLocationFusedGet(
        context, 2, (MlirLocation[]){mlirLocationUnknownGet(context), place},
        mlirAttributeGetNull());
    cr_assert(ir_location_place(fused, &file, &line, &column));
    cr_assert(strcmp(file, "window.attn") == 0 && line == 7 && column == 12);
    cr_assert(!ir_location_place(mlirLocationUnknownGet(context), &file, &line,
                                 &column));
}
