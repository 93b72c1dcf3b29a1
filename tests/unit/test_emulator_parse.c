/* The PTX parser: what it refuses, and how it says so; positions in comments
 * and .loc; linking of several texts.
 */
#include "tests/unit/emulator_harness.h"

/* The message for a text that must be refused. */
static void expect_error(const char *text, const char *message) {
    struct emu_memory *memory = emu_memory_create();
    struct emu_source source = {text, strlen(text), "bad.ptx"};
    struct emu_error error = {""};
    struct emu_module *module = emu_module_create(memory, &source, 1, &error);
    cr_expect(module == NULL, "accepted: %s", text);
    cr_expect_str_eq(error.text, message);
    emu_module_destroy(module);
    emu_memory_destroy(memory);
}

#define IN_KERNEL(body)                                                        \
    PTX_HEAD("sm_80")                                                          \
    ".entry k() {\n.reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred %p<2>;\n" body \
    "\n}"

Test(emulator_parse, refuses_with_line_and_instruction) {
    expect_error(
        IN_KERNEL("tcgen05.alloc.b32 [%r0], 32;"),
        "bad.ptx:6: error: unsupported instruction 'tcgen05.alloc.b32'\n"
        "    tcgen05.alloc.b32 [%r0], 32");
    expect_error(IN_KERNEL("mma.sync.aligned.m8n8k4.row.col.f64 %d0, %d1;"),
                 "bad.ptx:6: error: unsupported form of 'mma': "
                 "'mma.sync.aligned.m8n8k4.row.col.f64' "
                 "is understood up to 'mma.sync.aligned'\n    "
                 "mma.sync.aligned.m8n8k4.row.col.f64 %d0, %d1");
    expect_error(
        IN_KERNEL("add.u32 %r0, %r1;"),
        "bad.ptx:6: error: 2 operands are too few\n    add.u32 %r0, %r1");
    expect_error(IN_KERNEL("add.u32 %r0, %r1, %r2, %r3;"),
                 "bad.ptx:6: error: 4 operands are too many\n    add.u32 %r0, "
                 "%r1, %r2, %r3");
    expect_error(IN_KERNEL("add.u32 %r0, %d1, %r2;"),
                 "bad.ptx:6: error: operand 2 is a register of another width "
                 "than the instruction's "
                 "type\n    add.u32 %r0, %d1, %r2");
    expect_error(IN_KERNEL("add.f32 %r0, %r1, 1;"),
                 "bad.ptx:6: error: operand 3 is an integer constant where a "
                 "float is expected\n"
                 "    add.f32 %r0, %r1, 1");
    expect_error(
        IN_KERNEL("bra NOWHERE;"),
        "bad.ptx:6: error: label 'NOWHERE' is not defined\n    bra NOWHERE");
    expect_error(IN_KERNEL("L: L: ret;"),
                 "bad.ptx:6: error: label 'L' is defined twice\n    L: ret");
    expect_error(
        IN_KERNEL("mov.u32 %r0, %nosuch;"),
        "bad.ptx:6: error: operand 2 is no special register that is supported\n"
        "    mov.u32 %r0, %nosuch");
    expect_error(IN_KERNEL("@%r0 ret;"), "bad.ptx:6: error: a guard that is no "
                                         "predicate register\n    @%r0 ret");
    expect_error(
        IN_KERNEL(".reg .b32 %r<4>;"),
        "bad.ptx:6: error: '%r0' is declared twice\n    .reg .b32 %r<4>");
    expect_error(IN_KERNEL("mov.u32 %r0, 0fXYZ;"),
                 "bad.ptx:6: error: line 6: malformed token '0f'\n    mov.u32 "
                 "%r0, 0fXYZ");
}

Test(emulator_parse, refuses_module_level_faults) {
    expect_error(PTX_HEAD("sm_80") ".entry k() { ret;",
                 "bad.ptx:4: error: the body that starts at line 4 has no end");
    expect_error(PTX_HEAD("sm_80") ".surfref s;",
                 "bad.ptx:4: error: expected a directive, found '.surfref'");
    expect_error(
        PTX_HEAD("sm_80") ".extern .func f();\n.entry k() {\ncall f;\nret; }",
        "bad.ptx:6: error: function 'f' is declared, not defined\n    call f");
    expect_error(PTX_HEAD("sm_80") ".func f() {\ncall f;\nret; }",
                 "bad.ptx:5: error: 'f' is recursive, or calls are nested "
                 "deeper than 200\n    call f");
    expect_error(
        PTX_HEAD("sm_80") ".entry k() .reqnctapercluster 2, 1, 1 { ret; }",
        "bad.ptx:4: error: clusters of 2 CTAs; only clusters of 1 are "
        "emulated");
    expect_error(PTX_HEAD("sm_80") ".global .b8 huge[99999999];",
                 "bad.ptx:4: error: 99999999 is not in [0, 67108864]");
}

/* Where a report says that it comes from. */
static void expect_origin(const char *body, const char *origin) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    strbuf_printf(
        &text,
        PTX_HEAD("sm_80") ".entry k() {\n.reg .b32 %%r<4>;\n%s\nret;\n}\n"
                          ".file 1 \"/somewhere/lib.attn\"\n",
        body);
    struct device d = device_create(strbuf_text(&text));
    device_run(&d, "k", 1, 1, 0, NULL, 0, NULL);
    cr_assert(d.result.report_count == 1);
    cr_expect_str_eq(d.result.reports[0].source, origin);
    cr_expect_str_eq(d.result.reports[0].instruction, "add.u32 %r0, %r1, 1");
    device_destroy(&d);
    strbuf_destroy(&text);
}

Test(emulator_parse, knows_the_line_of_the_spec) {
    expect_origin("add.u32 %r0, %r1, 1;", "");
    expect_origin(
        "// @ window.attn:12:7\nmov.u32 %r3, 1;\nadd.u32 %r0, %r1, 1;",
        "window.attn:12:7");
    expect_origin("add.u32 %r0, %r1, 1; // a.attn:3:4", "a.attn:3:4");
    expect_origin(
        "// @ a.attn:1:1\nmov.u32 %r3, 1; // b.attn:2:2\nadd.u32 %r0, %r1, 1;",
        "a.attn:1:1");
    expect_origin(".loc 1 40 9\nadd.u32 %r0, %r1, 1;", "lib.attn:40:9");
    expect_origin(".loc 1 40 9\n// @ x.attn:5\nadd.u32 %r0, %r1, 1;",
                  "x.attn:5");
}

/* What nvcc writes: .loc with inlining, pragmas, sections, call sequences. */
Test(emulator_parse, nvcc_output) {
    static const char text[] = PTX_HEAD(
        "sm_80") ".visible .func (.param .b32 func_retval0) f(\n.param .b32 "
                 "f_param_0\n)\n;\n"
                 ".visible .entry k(.param .u64 k_param_0)\n.maxntid 32, 1, "
                 "1\n.minnctapersm 1\n{\n"
                 ".reg .b32 %r<4>;\n.reg .b64 %rd<3>;\n.loc 1 3 0\n$L__tmp0:\n"
                 ".loc 1 5 2, function_name $L__info_string0, inlined_at 1 4 "
                 "5\n"
                 "ld.param.u64 %rd1, [k_param_0];\nmov.u32 %r1, 20;\n{ // "
                 "callseq 0, 0\n"
                 ".reg .b32 temp_param_reg;\n.param .b32 param0;\nst.param.b32 "
                 "[param0+0], %r1;\n"
                 ".param .b32 retval0;\ncall.uni "
                 "(retval0),\nf,\n(\nparam0\n);\n"
                 "ld.param.b32 %r2, [retval0+0];\n} // callseq 0\n.pragma "
                 "\"nounroll\";\n"
                 "st.global.u32 [%rd1], %r2;\nret;\n}\n"
                 ".visible .func (.param .b32 func_retval0) f(.param .b32 "
                 "f_param_0)\n{\n.reg .b32 %r<3>;\n"
                 "ld.param.u32 %r1, [f_param_0];\nmad.lo.s32 %r2, %r1, 2, 2;\n"
                 "st.param.b32 [func_retval0+0], %r2;\nret;\n}\n.file 1 "
                 "\"x.cu\"\n"
                 ".section .debug_str\n{\n$L__info_string0:\n.b8 95,90,0\n}\n";
    struct device d = device_create(text);
    uint32_t out = 0;
    uint64_t address = device_put(&d, NULL, 4, "out");
    device_run(&d, "k", 1, 32, 0, &address, 1, NULL);
    expect_clean(&d);
    device_get(&d, address, &out, 4);
    cr_expect(out == 42);
    device_destroy(&d);
}

/* A kernel in one text calls a device function in another. */
Test(emulator_parse, links_texts) {
    static const char kernel[] = PTX_HEAD(
        "sm_80") ".extern .func (.param .b32 r) decay(.param .b32 x);\n"
                 ".entry k(.param .u64 out) { .reg .b32 %r<3>; .reg .b64 %d0; "
                 "ld.param.u64 %d0, [out];\n"
                 "mov.u32 %r0, 5; .param .b32 p0; st.param.b32 [p0], %r0; "
                 ".param .b32 q0;\n"
                 "call (q0), decay, (p0); ld.param.b32 %r1, [q0]; "
                 "st.global.u32 [%d0], %r1; ret; }\n";
    static const char function[] =
        PTX_HEAD("sm_80") ".global .u32 table[2] = {3, 4};\n"
                          ".visible .func (.param .b32 r) decay(.param .b32 x) "
                          "{ .reg .b32 %a<3>;\n"
                          "ld.param.u32 %a0, [x]; ld.global.u32 %a1, "
                          "[table+4]; mul.lo.u32 %a0, %a0, %a1;\n"
                          "st.param.b32 [r], %a0; ret; }\n";
    struct emu_source sources[2] = {{kernel, strlen(kernel), "a.ptx"},
                                    {function, strlen(function), "b.ptx"}};
    struct emu_error error;
    struct device d = {.memory = emu_memory_create()};
    d.module = emu_module_create(d.memory, sources, 2, &error);
    cr_assert(d.module != NULL, "%s", error.text);
    uint32_t out = 0;
    uint64_t address = device_put(&d, NULL, 4, "out");
    device_run(&d, "k", 1, 1, 0, &address, 1, NULL);
    device_get(&d, address, &out, 4);
    cr_expect(out == 20);
    device_destroy(&d);
}

Test(emulator_parse, launch_arguments_are_checked) {
    struct device d = device_create(
        PTX_HEAD("sm_80") ".entry k(.param .u32 a) .maxntid 64 { ret; }");
    struct emu_options options = emu_options_default();
    static const struct {
        const char *entry, *message;
        uint32_t grid, block, shared;
        size_t bytes;
    } rows[] = {
        {"x", "there is no entry 'x'", 1, 32, 0, 4},
        {"k", "'k' takes 4 bytes of parameters, given 8", 1, 32, 0, 8},
        {"k", "'k' with 65 x 1 x 1 threads; the limit is 64", 1, 65, 0, 4},
        {"k", "'k' with an empty grid", 0, 32, 0, 4},
        {"k", "'k' with 300000 bytes of shared memory; the limit is 232448", 1,
         32, 300000, 4},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t params = 0;
        struct emu_launch launch = {.entry = rows[i].entry,
                                    .grid = {rows[i].grid, 1, 1},
                                    .block = {rows[i].block, 1, 1},
                                    .dynamic_shared = rows[i].shared,
                                    .params = &params,
                                    .param_bytes = rows[i].bytes};
        struct emu_error error = {""};
        emu_result_destroy(&d.result);
        cr_expect(!emu_launch(d.module, &launch, &options, &d.result, &error));
        cr_expect_str_eq(error.text, rows[i].message);
    }
    device_destroy(&d);
}
