/* Stage `attn`: what each expression of the language becomes, and that the
 * functions compute what the language says (interpreted). */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "frontend_util.h"
#include "ir/from_spec.h"
#include "ir/verify.h"
#include "ir_eval.h"

struct built {
    struct checked checked;
    MlirContext context;
    MlirModule module;
    const char *text;
};

static struct built build(const char *before, const char *items) {
    struct built built = {.checked = check_items(before, items)};
    cr_assert(built.checked.spec, "%s", messages(&built.checked));
    struct arena *arena = built.checked.arena;
    built.context = ir_context_create();
    built.module = ir_from_spec(built.context, arena, built.checked.sources,
                                &built.checked.spec->attentions[0]);
    MlirOperation op = mlirModuleGetOperation(built.module);
    struct strbuf text, errors;
    strbuf_init(&text, arena);
    strbuf_init(&errors, arena);
    MlirDiagnosticHandlerID id = ir_diagnostics_capture(built.context, &errors);
    ir_print(op, true, &text);
    built.text = strbuf_text(&text);
    cr_assert(ir_verify(op), "%s\n%s", strbuf_text(&errors), built.text);
    MlirModule again = ir_parse(built.context, built.text, text.length);
    cr_assert(!mlirModuleIsNull(again), "%s\n%s", strbuf_text(&errors),
              built.text);
    mlirModuleDestroy(again);
    ir_diagnostics_detach(built.context, id);
    return built;
}

static void done(struct built *built) {
    mlirModuleDestroy(built->module);
    mlirContextDestroy(built->context);
    checked_free(&built->checked);
}

static void expect(const char *text, const char *part) {
    cr_assert(strstr(text, part), "missing '%s' in:\n%s", part, text);
}

static void expect_not(const char *text, const char *part) {
    cr_assert(!strstr(text, part), "unexpected '%s' in:\n%s", part, text);
}

Test(ir_from_spec, function_and_arguments) {
    struct built b =
        build("", "param window: i32 = 4; param unused: f32 = 1.0;"
                  "tensor doc: i32[batch, kv_len];"
                  "mask doc[b, q] == doc[b, kv] && q - kv < window;");
    expect(b.text, "func.func @t(");
    expect(b.text, "attn.arg = \"size:kv_len\"");
    expect(b.text, "attn.arg = \"param:window\"");
    expect(b.text, "attn.arg = \"tensor:doc\", attn.extents = [[\"batch\"], "
                   "[\"kv_len\"]]");
    expect(b.text, "func.func private @t.mask(");
    expect(b.text, "mask = @t.mask");
    expect(b.text, "\"test.attn\":3:");
    expect_not(b.text, "param:unused");
    expect_not(b.text, "@t.score");
    done(&b);
}

Test(ir_from_spec, contraction_only_behind_s) {
    struct built b = build("", "score s * 2.0 + f32(q) * 0.5;");
    MlirOperation score =
        ir_find_func(mlirModuleGetOperation(b.module), "t.score");
    size_t contracted = 0, plain = 0, count;
    MlirOperation *products =
        ir_collect(b.checked.arena, score, "arith.mulf", &count);
    for (size_t i = 0; i < count; i++)
        mlirValueEqual(ir_operand(products[i], 0), ir_func_arg(score, 0))
            ? contracted++
            : plain++;
    cr_assert(contracted == 1 && plain == 1);
    expect(b.text, "arith.addf");
    expect(b.text, "fastmath<contract>");
    done(&b);
}

Test(ir_from_spec, lets_are_shared_and_keep_their_s) {
    struct built b = build(
        "", "let before = tanh(s); score s * 3.0; score s + before + before;");
    MlirOperation score =
        ir_find_func(mlirModuleGetOperation(b.module), "t.score");
    size_t count;
    MlirOperation *tanhs =
        ir_collect(b.checked.arena, score, "math.tanh", &count);
    cr_assert(count == 1);
    cr_assert(mlirValueEqual(ir_operand(tanhs[0], 0), ir_func_arg(score, 0)));
    done(&b);
}

/* Value of `expr` (bool) at (q, kv) = (7, 3). */
static bool holds(const char *before, const char *expr) {
    struct arena *arena = arena_create();
    struct built b = build(before, arena_printf(arena, "mask %s;", expr));
    MlirOperation mask =
        ir_find_func(mlirModuleGetOperation(b.module), "t.mask");
    const int64_t indices[5] = {0, 0, 0, 7, 3};
    const int64_t sizes[5] = {1, 2, 1, 16, 32};
    struct eval_value args[10], result;
    for (int i = 0; i < 10; i++)
        args[i] = eval_whole(i < 5 ? indices[i] : sizes[i - 5]);
    eval_run(eval_compile(arena, mask), args, 0, 0, &result);
    done(&b);
    arena_destroy(arena);
    return result.i[0];
}

Test(ir_from_spec, arithmetic_of_the_language) {
    /* Variables q = 7, kv = 3 keep the front end from folding. */
    static const char *const truths[] = {
        "(kv - q) / 3 == -2",
        "(kv - q) % 3 == 2",
        "(q - kv) / -3 == -2",
        "(q - kv) % -3 == -2",
        "(kv - q) / 4 == -1",
        "(kv - q) % 4 == 0",
        "(kv - q - 1) % 4 == 3",
        "(kv - 11) / 8 == -1",
        "(q + 2147483647) < 0",
        "abs(kv - q) == 4",
        "~q == -8",
        "(q << 33) == 14",
        "((0 - q) >> 1) == -4",
        "(q ^ kv) == 4",
        "min(q, kv) == 3",
        "max(q, kv) == 7",
        "clamp(q, 0, 5) == 5",
        "i32(f32(q) * 0.5) == 3",
        "i32(-0.5 * f32(q)) == -3",
        "i32(f32(q) * 1e30) == 2147483647",
        "i32(f32(0 - q) * 1e30) == -2147483648",
        "i32(sqrt(f32(0 - q))) == 0",
        "i32(true) == 1 && q == 7",
        "bool(q - 7) == false",
        "select(q > kv, 1, 2) == 1",
        "(q > kv ? 1.5 : f32(kv)) == 1.5",
        "f32(q) % -4.0 == -1.0",
        "round(f32(q) / 2.0) == 4.0",
        "floor(f32(0 - q) / 2.0) == -4.0",
        "ceil(f32(q) / 2.0) == 4.0",
        "pow(f32(0 - q), 3.0) == -343.0",
        "pow(f32(q), 0.0) == 1.0",
        "min(f32(q), sqrt(f32(0 - q))) == 7.0",
        "max(sqrt(f32(0 - q)), f32(kv)) == 3.0",
        "!(sqrt(f32(0 - q)) == sqrt(f32(0 - q)))",
        "sqrt(f32(0 - q)) != f32(q)",
        "abs(sigmoid(f32(q - 7)) - 0.5) < 1e-6",
        "abs(exp(f32(kv - 3)) - 1.0) < 1e-6",
        "(q > 1) == (kv > 1)",
        "(q > 1) ^ (kv > 5)",
        "twice(q) == 14",
        "apply(q, kv) == 11",
        "heads == 2 && kv_heads == 1 && q_len == 16 && kv_len == 32 && batch "
        "== 1 && q > 0",
    };
    const char *fns = "fn twice(x: i32) -> i32 = x + x;\n"
                      "fn apply(x: i32, y: i32) -> i32 = twice(x) - y;";
    for (size_t i = 0; i < sizeof truths / sizeof *truths; i++)
        cr_expect(holds(fns, truths[i]), "%s", truths[i]);
}

Test(ir_from_spec, powers_of_two_become_shifts) {
    struct built b =
        build("", "mask q / 128 == kv / 128 && q % 64 != 3 && kv / 3 > 1;");
    expect(b.text, "arith.shrsi");
    expect(b.text, "arith.andi");
    MlirOperation mask =
        ir_find_func(mlirModuleGetOperation(b.module), "t.mask");
    size_t count;
    ir_collect(b.checked.arena, mask, "arith.floordivsi", &count);
    cr_assert(count == 1);
    done(&b);
}

Test(ir_from_spec, default_scale) {
    struct built b = build("", "mask kv <= q;");
    expect(b.text, "1.250000e-01 : f32");
    done(&b);
}

Test(ir_from_spec, scale_of_a_parameter) {
    struct built b = build("", "param x: f32; scale x * -2.0; mask kv <= q;");
    MlirOperation func = ir_find_func(mlirModuleGetOperation(b.module), "t");
    MlirOperation op = ir_find_attention(func);
    MlirOperation product =
        ir_def_op(ir_operand(op, IR_ATTENTION_SCALE), "arith.mulf");
    cr_assert(product.ptr);
    done(&b);
}
