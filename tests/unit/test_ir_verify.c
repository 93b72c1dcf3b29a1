/* Our verifier: every rule refuses a module that breaks it alone, with a message that
 * names what was found, and accepts the example of the last stage. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "ir/context.h"
#include "ir/verify.h"
#include "support/arena.h"

#define QK "memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>"
#define LSE "memref<?x?x?xf32, strided<[?, ?, ?]>>"
#define SPLIT(units, coefficients)                                             \
    "\"attn.exp2_split\"(%s) {units = array<i32: " units                       \
    ">, coefficients = array<f32: " coefficients                               \
    ">} : (vector<64x32xf32>) -> vector<64x32xf32>"
#define WG ", #gpu.address_space<workgroup>>"

/* Values that the cases use. */
static const char prologue[] =
    "func.func @f(%q: " QK ", %lse: " LSE ", %t: memref<?x?xi32, strided<[?, ?]>>,\n"
    "  %flag: memref<?xi8, strided<[?]>>, %i: i32, %x: f32, %p: i1,\n"
    "  %row: vector<64x1xi32>, %column: vector<1x32xi32>, %other: vector<32x1xi32>,\n"
    "  %acc: vector<64x64xf32>, %s: vector<64x32xf32>, %m: vector<64x1xf32>,\n"
    "  %l: vector<64x4xf32>, %h: vector<64x32xbf16>,\n"
    "  %a: memref<64x64xbf16" WG ", %b: memref<32x64xbf16" WG ",\n"
    "  %c: memref<2x32x64xbf16" WG ", %f32s: memref<32x64xf32" WG ") {\n";

static const struct {
    const char *op;       /* one op, or a whole function after '@' */
    const char *message;  /* NULL: fine */
} cases[] = {
    /* read */
    {"\"attn.read\"(%t, %row, %column) {operandSegmentSizes = array<i32: "
     "1,1,1,0,0,0,0,0,0>} :"
     " (memref<?x?xi32, strided<[?, ?]>>, vector<64x1xi32>, vector<1x32xi32>) "
     "-> vector<64x32xi32>",
     NULL},
    {"\"attn.read\"(%t, %row, %column) {operandSegmentSizes = array<i32: "
     "1,1,1,0,0,0,0,0,0>} :"
     " (memref<?x?xi32, strided<[?, ?]>>, vector<64x1xi32>, vector<1x32xi32>) "
     "-> vector<64x1xi32>",
     "joined shape"},
    {"\"attn.read\"(%t, %row, %other) {operandSegmentSizes = array<i32: "
     "1,1,1,0,0,0,0,0,0>} :"
     " (memref<?x?xi32, strided<[?, ?]>>, vector<64x1xi32>, vector<32x1xi32>) "
     "-> vector<64x1xi32>",
     "index 1 does not fit"},
    {"\"attn.read\"(%t, %i) {operandSegmentSizes = array<i32: "
     "1,1,0,0,0,0,0,0,0>} :"
     " (memref<?x?xi32, strided<[?, ?]>>, i32) -> i32",
     "tensor must be a global memref of rank 1"},
    {"\"attn.read\"(%flag, %i) {operandSegmentSizes = array<i32: "
     "1,1,0,0,0,0,0,0,0>} :"
     " (memref<?xi8, strided<[?]>>, i32) -> i32",
     "i1 for i8"},
    {"\"attn.read\"(%flag, %x) {operandSegmentSizes = array<i32: "
     "1,1,0,0,0,0,0,0,0>} :"
     " (memref<?xi8, strided<[?]>>, f32) -> i1",
     "index 0 must be i32"},
    /* load, copy_async */
    {"\"attn.load\"(%q, %i, %i, %i, %i) {name = \"k\"} : (" QK
     ", i32, i32, i32, i32)"
     " -> memref<32x64xbf16" WG,
     NULL},
    {"\"attn.load\"(%q, %i, %i, %i, %i) {name = \"q\", pack_gqa = 8 : i32} : "
     "(" QK ", i32, i32, i32, i32)"
     " -> memref<32x64xbf16" WG,
     NULL},
    {"\"attn.load\"(%q, %i, %i, %i, %i) {name = \"q\", pack_gqa = 6 : i32} : "
     "(" QK ", i32, i32, i32, i32)"
     " -> memref<36x64xbf16" WG,
     "a power of two that divides the 36 rows, it is 6"},
    {"\"attn.load\"(%q, %i, %i, %i, %i) {name = \"k\"} : (" QK
     ", i32, i32, i32, i32)"
     " -> memref<32x80xbf16" WG,
     "80 columns for a head dimension of 64"},
    {"\"attn.load\"(%q, %i, %i, %i, %i) {name = \"k\"} : (" QK
     ", i32, i32, i32, i32)"
     " -> memref<32x64xf16" WG,
     "one element type"},
    {"\"attn.copy_async\"(%q, %i, %i, %i, %i, %b) : (" QK
     ", i32, i32, i32, i32,"
     " memref<32x64xbf16" WG ") -> ()",
     NULL},
    {"\"attn.copy_async\"(%q, %i, %i, %i, %i, %c) : (" QK
     ", i32, i32, i32, i32,"
     " memref<2x32x64xbf16" WG ") -> ()",
     "tile must be a shared memref of rank 2"},
    /* dot */
    {"\"attn.dot\"(%a, %b, %s) {transpose_b} : (memref<64x64xbf16" WG
     ", memref<32x64xbf16" WG ", vector<64x32xf32>) -> vector<64x32xf32>",
     NULL},
    {"\"attn.dot\"(%h, %b, %acc) : (vector<64x32xbf16>, memref<32x64xbf16" WG
     ", vector<64x64xf32>) -> vector<64x64xf32>",
     NULL},
    {"\"attn.dot\"(%a, %b, %s) : (memref<64x64xbf16" WG ", memref<32x64xbf16" WG
     ", vector<64x32xf32>) -> vector<64x32xf32>",
     "64x64 times 32x64 into 64x32"},
    {"\"attn.dot\"(%a, %f32s, %s) {transpose_b} : (memref<64x64xbf16" WG
     ", memref<32x64xf32" WG ", vector<64x32xf32>) -> vector<64x32xf32>",
     "same 16-bit float type"},
    /* wgmma, wait */
    {"\"attn.wgmma\"(%a, %b, %s) {transpose_b} : (memref<64x64xbf16" WG
     ", memref<32x64xbf16" WG ", vector<64x32xf32>) -> vector<64x32xf32>",
     NULL},
    {"\"attn.wgmma\"(%h, %b, %acc) : (vector<64x32xbf16>, memref<32x64xbf16" WG
     ", vector<64x64xf32>) -> vector<64x64xf32>",
     NULL},
    {"\"attn.wgmma\"(%a, %b, %s) : (memref<64x64xbf16" WG
     ", memref<32x64xbf16" WG ", vector<64x32xf32>) -> vector<64x32xf32>",
     "64x64 times 32x64 into 64x32"},
    {"\"attn.wgmma\"(%a, %f32s, %s) {transpose_b} : (memref<64x64xbf16" WG
     ", memref<32x64xf32" WG ", vector<64x32xf32>) -> vector<64x32xf32>",
     "same 16-bit float type"},
    {"\"attn.wgmma_wait\"(%acc) {pending = 9 : i32} : (vector<64x64xf32>) -> "
     "vector<64x64xf32>",
     "pending is 9"},
    /* panels, mbarriers, TMA */
    {"\"attn.shared\"() {name = \"k\", byte_offset = 1024 : i32, swizzle_bytes "
     "= 128 : i32} : ()"
     " -> memref<2x32x64xbf16" WG,
     NULL},
    {"\"attn.shared\"() {name = \"k\", byte_offset = 512 : i32, swizzle_bytes "
     "= 128 : i32} : ()"
     " -> memref<2x32x64xbf16" WG,
     "multiple of 1024"},
    {"\"attn.shared\"() {name = \"k\", byte_offset = 0 : i32, swizzle_bytes = "
     "96 : i32} : ()"
     " -> memref<32x64xbf16" WG,
     "swizzle_bytes is 96"},
    {"\"attn.shared\"() {name = \"k\", byte_offset = 0 : i32, swizzle_bytes = "
     "128 : i32} : ()"
     " -> memref<32x80xbf16" WG,
     "no whole panels"},
    {"\"attn.mbarriers\"() {name = \"full\", byte_offset = 4 : i32, arrivals = "
     "1 : i32} : ()"
     " -> memref<2xi64" WG,
     "multiple of 8"},
    {"\"attn.mbarriers\"() {name = \"full\", byte_offset = 8 : i32, arrivals = "
     "0 : i32} : ()"
     " -> memref<2xi64" WG,
     "0 arrivals"},
    {"\"attn.mbarrier_wait\"(%c, %i, %i) : (memref<2x32x64xbf16" WG
     ", i32, i32) -> ()",
     "takes mbarriers"},
    {"\"attn.tma_load\"(%q, %i, %i, %i, %c, %b, %i) : (" QK ", i32, i32, i32,"
     " memref<2x32x64xbf16" WG ", memref<32x64xbf16" WG ", i32) -> ()",
     "tile must be a shared memref of rank 2"},
    {"\"attn.tma_store\"(%a, %q, %i, %i, %i) {pack_gqa = 8 : i32} : "
     "(memref<64x64xbf16" WG ", " QK ", i32, i32, i32) -> ()",
     NULL},
    {"\"attn.tma_store\"(%c, %q, %i, %i, %i) : (memref<2x32x64xbf16" WG ", " QK
     ", i32, i32, i32) -> ()",
     "tile must be a shared memref of rank 2"},
    {"\"attn.tma_store\"(%a, %b, %i, %i, %i) : (memref<64x64xbf16" WG
     ", memref<32x64xbf16" WG ", i32, i32, i32) -> ()",
     "tensor must be a global memref of rank 4"},
    {"\"attn.stmatrix\"(%h, %a) : (vector<64x32xbf16>, memref<64x64xbf16" WG
     ") -> ()",
     "a tile of 64x32 into one of 64x64, expected 64 rows"},
    {"\"attn.stmatrix\"(%acc, %a) : (vector<64x64xf32>, memref<64x64xbf16" WG
     ") -> ()",
     "same 16-bit float type"},
    /* roles and votes */
    {"\"attn.set_max_registers\"() {count = 250 : i32, action = \"increase\"} "
     ": () -> ()",
     "count is 250"},
    {"\"attn.bar_sync\"(%i) {threads = 100 : i32} : (i32) -> ()",
     "threads is 100"},
    {"\"attn.vote_any\"(%p) : (i1) -> i1", NULL},
    {"\"attn.vote_any\"(%m) : (vector<64x1xf32>) -> i1", "takes an i1"},
    /* softmax */
    {"\"attn.softmax_step\"(%acc, %m, %l, %s, %b) : (vector<64x64xf32>, "
     "vector<64x1xf32>,"
     " vector<64x4xf32>, vector<64x32xf32>, memref<32x64xbf16" WG
     ") -> (vector<64x64xf32>,"
     " vector<64x1xf32>, vector<64x4xf32>)",
     NULL},
    {"\"attn.softmax_step\"(%acc, %m, %m, %s, %b) : (vector<64x64xf32>, "
     "vector<64x1xf32>,"
     " vector<64x1xf32>, vector<64x32xf32>, memref<32x64xbf16" WG
     ") -> (vector<64x64xf32>,"
     " vector<64x1xf32>, vector<64x1xf32>)",
     "l is 64x1, expected 64x4"},
    {"\"attn.softmax_step\"(%acc, %m, %l, %s, %a) : (vector<64x64xf32>, "
     "vector<64x1xf32>,"
     " vector<64x4xf32>, vector<64x32xf32>, memref<64x64xbf16" WG
     ") -> (vector<64x64xf32>,"
     " vector<64x1xf32>, vector<64x4xf32>)",
     "v is 64x64, expected 32x64"},
    {"\"attn.softmax_finish\"(%acc, %l, %l) : (vector<64x64xf32>, "
     "vector<64x4xf32>,"
     " vector<64x4xf32>) -> (vector<64x64xf32>, vector<64x4xf32>)",
     "m is 64x4, expected 64x1"},
    {"\"attn.partial_sum\"(%s, %m) : (vector<64x32xf32>, vector<64x1xf32>) -> "
     "vector<64x1xf32>",
     "l is 64x1, expected 64x4"},
    {"\"attn.mul_rp\"(%i, %i) : (i32, i32) -> i32", "takes f32"},
    {SPLIT("0, 7", "1.0, 0.7, 0.2, 0.1"), NULL},
    {SPLIT("0, 8", "1.0, 0.7, 0.2, 0.1"),
     "unit 8: units must ascend from 0 to 7"},
    {SPLIT("3, 3", "1.0, 0.7, 0.2, 0.1"), "unit 3: units must ascend"},
    {SPLIT("0", "1.0, 0.7, 0.2"), "coefficients must be 4 to 6 f32"},
    {"\"attn.partial_max\"(%s) : (vector<64x32xf32>) -> vector<64x4xf32>",
     NULL},
    {"\"attn.partial_max\"(%s) : (vector<64x32xf32>) -> vector<64x4xi32>",
     "takes a tile of i32 or f32"},
    {"\"attn.fragments\"(%a) : (memref<64x64xbf16" WG ") -> vector<64x32xbf16>",
     "result is 64x32, expected 64x64"},
    /* store */
    {"\"attn.store\"(%m, %lse, %i, %i, %i, %i) : (vector<64x1xf32>, " LSE
     ", i32, i32, i32, i32) -> ()",
     NULL},
    {"\"attn.store\"(%m, %lse, %i, %i, %i, %i) {pack_gqa = 128 : i32} : "
     "(vector<64x1xf32>, " LSE ", i32, i32, i32, i32) -> ()",
     "divides the 64 rows, it is 128"},
    {"\"attn.store\"(%h, %q, %i, %i, %i, %i) : (vector<64x32xbf16>, " QK
     ", i32, i32, i32, i32) -> ()",
     "value is 64x32, expected 64x64"},
    {"\"attn.store\"(%m, %q, %i, %i, %i, %i) : (vector<64x1xf32>, " QK
     ", i32, i32, i32, i32) -> ()",
     "one element type"},
    /* warps, shared memory */
    {"\"attn.warp_reduce\"(%i) {kind = \"minsi\"} : (i32) -> i32", NULL},
    {"\"attn.warp_reduce\"(%i) {kind = \"minnumf\"} : (i32) -> i32",
     "does not take this type"},
    {"\"attn.warp_reduce\"(%i) {kind = \"add\"} : (i32) -> i32",
     "kind must be minsi"},
    {"\"attn.wait_group\"() {pending = 16 : i32} : () -> ()",
     "pending is 16, expected 0 to 15"},
    {"\"attn.stage\"(%c, %i) : (memref<2x32x64xbf16" WG
     ", i32) -> memref<64x64xbf16" WG,
     "one stage of the buffer"},
    {"\"attn.shared\"() {name = \"k\", byte_offset = 8 : i32} : () -> "
     "memref<4xi32" WG,
     "byte_offset is 8, expected a multiple of 16"},
    {"\"attn.shared\"() {name = \"k\", byte_offset = 0 : i32, pitch = 4 : i32,"
     " swizzle_bits = 0 : i32, swizzle_shift = 0 : i32} : () -> "
     "memref<32x64xbf16" WG,
     "pitch of 4 chunks for rows of 128 bytes"},
    {"\"attn.shared\"() {name = \"k\", byte_offset = 0 : i32, pitch = 2 : i32,"
     " swizzle_bits = 2 : i32, swizzle_shift = 0 : i32} : () -> "
     "memref<32x16xbf16" WG,
     "swizzle of 2 bits"},
    /* functions */
    {"@func.func @g(%x: i32) attributes {attn.kernel = \"main\", attn.warps = "
     "4 : i32} { return }",
     "argument 0 of a kernel lacks attn.arg"},
    {"@func.func @g(%x: f32 {attn.arg = \"size:heads\"}) { return }",
     "does not fit attn.arg = \"size:heads\""},
    {"@func.func @g() attributes {attn.kernel = \"other\", attn.warps = 4 : "
     "i32} { return }",
     "expected main or summary"},
    {"@func.func @g() attributes {attn.kernel = \"main\", attn.warps = 64 : "
     "i32} { return }",
     "attn.warps is 64"},
    {"@func.func @g() attributes {attn.tile = array<i32: 128, 60>} { return }",
     "attn.tile is 128, 60"},
    {"@func.func private @g()", "only extern functions may lack a body"},
    {"@func.func private @g(i32) -> f32 attributes {attn.extern = \"g\"}",
     NULL},
    {"@func.func @g() attributes {attn.kernel = \"main\", attn.warps = 4 : i32,"
     " attn.shared_bytes = 4096 : i32} {"
     " %k = \"attn.shared\"() {name = \"k\", byte_offset = 16 : i32, pitch = 8 "
     ": i32,"
     " swizzle_bits = 3 : i32, swizzle_shift = 0 : i32} : () -> "
     "memref<32x64xbf16" WG " return }",
     "ends at byte 4112, attn.shared_bytes is 4096"},
    {"@func.func @g(%q: " QK ", %l: " LSE ", %x: f32) {"
     " \"attn.attention\"(%q, %q, %q, %q, %l, %x) {group = -1 : i32} : (" QK
     ", " QK ", " QK ", " QK ", " LSE ", f32) -> () return }",
     "group must not be negative"},
    {"@func.func @g(%q: " QK ", %k: " QK ", %v: " QK ", %o: " QK ", %l: " LSE
     ") {"
     " %x = arith.constant 1.0 : f32"
     " \"attn.attention\"(%q, %k, %v, %o, %l, %x) {group = 0 : i32, mask = "
     "@no} : (" QK ", " QK ", " QK ", " QK ", " LSE ", f32) -> () return }",
     "names 'no', which is no function"},
    {"@func.func @g(%q: " QK ", %k: " QK ", %v: " QK ", %o: " QK ", %l: " LSE
     ","
     " %s: i32 {attn.arg = \"size:heads\"}) { %x = arith.constant 1.0 : f32"
     " \"attn.attention\"(%q, %k, %v, %o, %l, %x) {group = 0 : i32} : (" QK
     ", " QK ", " QK ", " QK ", " LSE ", f32) -> () return }",
     "argument 5 of its function must be size:batch"},
    {"@func.func private @mask(%b: i32) -> i1 { %p = arith.constant true "
     "return %p : i1 }"
     "func.func @g(%q: " QK ", %k: " QK ", %v: " QK ", %o: " QK ", %l: " LSE
     ") {"
     " %x = arith.constant 1.0 : f32"
     " \"attn.attention\"(%q, %k, %v, %o, %l, %x) {group = 0 : i32, mask = "
     "@mask} : (" QK ", " QK ", " QK ", " QK ", " LSE ", f32) -> () return }",
     "has 1 arguments, expected 5 to 5"},
};

/* Messages of parsing and verifying a text, "" when there are none. */
static const char *messages_of(struct arena *arena, MlirContext context, const char *text) {
    struct strbuf errors;
    strbuf_init(&errors, arena);
    MlirDiagnosticHandlerID id = ir_diagnostics_capture(context, &errors);
    MlirModule module = ir_parse(context, text, strlen(text));
    cr_assert(!mlirModuleIsNull(module), "%s\n%s", strbuf_text(&errors), text);
    bool good = ir_verify(mlirModuleGetOperation(module));
    ir_diagnostics_detach(context, id);
    mlirModuleDestroy(module);
    cr_assert(good == (errors.length == 0));
    return strbuf_text(&errors);
}

Test(ir_verify, rules) {
    MlirContext context = ir_context_create();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *arena = arena_create();
        const char *text = cases[i].op[0] == '@'
                               ? cases[i].op + 1
                               : arena_printf(arena, "%s%s%s\nreturn\n}", prologue,
                                              strstr(cases[i].op, "-> ()")    ? ""
                                              : strstr(cases[i].op, ") -> (") ? "%r:3 = "
                                                                              : "%r = ",
                                              cases[i].op);
        if (strstr(cases[i].op, "softmax_finish"))
            text = arena_printf(arena, "%s%%r:2 = %s\nreturn\n}", prologue, cases[i].op);
        const char *found = messages_of(arena, context, text);
        if (cases[i].message)
            cr_expect(strstr(found, cases[i].message), "expected '%s', found '%s' for\n%s",
                      cases[i].message, found, cases[i].op);
        else
            cr_expect_str_empty(found, "%s\n%s", found, cases[i].op);
        arena_destroy(arena);
    }
    mlirContextDestroy(context);
}

Test(ir_verify, the_last_stage_is_valid) {
    struct arena *arena = arena_create();
    MlirContext context = ir_context_create();
    struct strbuf text;
    strbuf_init(&text, arena);
    FILE *file = fopen("tests/ptx/causal-d64.mlir", "rb");
    cr_assert(file && strbuf_read(&text, file, 1 << 20));
    fclose(file);
    cr_expect_str_empty(messages_of(arena, context, strbuf_text(&text)));
    mlirContextDestroy(context);
    arena_destroy(arena);
}

Test(ir_verify, errors_reach_the_source) {
    struct arena *arena = arena_create();
    struct source_set *sources = source_set_create(arena);
    struct diag_sink *diags = diag_sink_create(arena, sources);
    source_add_text(sources, "a.attn", "one\ntwo three\n", 14);
    MlirContext context = ir_context_create();
    const char *text = "func.func @g() attributes {attn.tile = array<i32: 1, 1>} { return }"
                       " loc(\"a.attn\":2:5)";
    MlirDiagnosticHandlerID id = ir_diagnostics_attach(context, diags);
    MlirModule module = ir_parse(context, text, strlen(text));
    cr_assert(!ir_verify(mlirModuleGetOperation(module)));
    ir_diagnostics_detach(context, id);
    struct strbuf out;
    strbuf_init(&out, arena);
    diag_render(diags, false, &out);
    cr_expect(strstr(strbuf_text(&out), "a.attn:2:5: error: 'func.func' op attn.tile is 1, 1"),
              "%s", strbuf_text(&out));
    mlirModuleDestroy(module);
    mlirContextDestroy(context);
    arena_destroy(arena);
}
