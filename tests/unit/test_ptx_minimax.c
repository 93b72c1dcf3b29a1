/* attn.exp2_split on the emulator: the units of columns that it lists give the
 * bits of the f32 model that test_minimax.c proves, the others those of ex2. */
#include <criterion/criterion.h>
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "emulator/emulator.h"
#include "tests/unit/minimax_model.h"
#include "tests/unit/ptx_util.h"

enum { CTAS = 64, SIDE = 16, COUNT = CTAS * SIDE * SIDE };

/* z[c][16 b + r] = exp2_split of x[256 b + 16 r + c], column by column, as the
 * largest of its bits and INT_MIN elsewhere.  %s: units, coefficients. */
static const char kernel[] =
    "module {\n"
    "  func.func @f(%%x: memref<?xf32, strided<[?]>> {attn.arg = \"tensor:x\","
    " attn.extents = [[\"16384\"]]},\n"
    "      %%z: memref<?x?x?xf32, strided<[?, ?, ?]>> {attn.arg = \"lse\"})\n"
    "      attributes {attn.kernel = \"main\", attn.tile = array<i32: 16, 16>,"
    " attn.warps = 1 : i32, attn.grid = [\"64\"]} {\n"
    "    %%c0 = arith.constant 0 : i32\n"
    "    %%c1 = arith.constant 1 : i32\n"
    "    %%c16 = arith.constant 16 : i32\n"
    "    %%limit = arith.constant 1024 : i32\n"
    "    %%low = arith.constant dense<-2147483648> : vector<16x16xi32>\n"
    "    %%low_row = arith.constant dense<-2147483648> : vector<16xi32>\n"
    "    %%wide = arith.constant dense<16> : vector<16x1xi32>\n"
    "    %%bid = gpu.block_id x\n"
    "    %%cta = arith.index_cast %%bid : index to i32\n"
    "    %%row0 = arith.muli %%cta, %%c16 : i32\n"
    "    %%step = vector.step : vector<16xindex>\n"
    "    %%number = arith.index_cast %%step : vector<16xindex> to "
    "vector<16xi32>\n"
    "    %%row = vector.shape_cast %%number : vector<16xi32> to "
    "vector<16x1xi32>\n"
    "    %%col = vector.shape_cast %%number : vector<16xi32> to "
    "vector<1x16xi32>\n"
    "    %%first = vector.broadcast %%row0 : i32 to vector<16x1xi32>\n"
    "    %%place = arith.addi %%row, %%first : vector<16x1xi32>\n"
    "    %%start = arith.muli %%place, %%wide : vector<16x1xi32>\n"
    "    %%starts = vector.broadcast %%start : vector<16x1xi32> to "
    "vector<16x16xi32>\n"
    "    %%cols = vector.broadcast %%col : vector<1x16xi32> to "
    "vector<16x16xi32>\n"
    "    %%index = arith.addi %%starts, %%cols : vector<16x16xi32>\n"
    "    %%value = \"attn.read\"(%%x, %%index) {operandSegmentSizes ="
    " array<i32: 1, 1, 0, 0, 0, 0, 0, 0, 0>} :"
    " (memref<?xf32, strided<[?]>>, vector<16x16xi32>) -> vector<16x16xf32>\n"
    "    %%result = \"attn.exp2_split\"(%%value) {units = array<i32: %s>,"
    " coefficients = array<f32: %s>} : (vector<16x16xf32>) -> "
    "vector<16x16xf32>\n"
    "    %%bits = arith.bitcast %%result : vector<16x16xf32> to "
    "vector<16x16xi32>\n"
    "    scf.for %%c = %%c0 to %%c16 step %%c1 : i32 {\n"
    "      %%which = vector.broadcast %%c : i32 to vector<16x16xi32>\n"
    "      %%same = arith.cmpi eq, %%cols, %%which : vector<16x16xi32>\n"
    "      %%kept = arith.select %%same, %%bits, %%low :"
    " vector<16x16xi1>, vector<16x16xi32>\n"
    "      %%top = vector.multi_reduction <maxsi>, %%kept, %%low_row [1] :"
    " vector<16x16xi32> to vector<16xi32>\n"
    "      %%tops = vector.shape_cast %%top : vector<16xi32> to "
    "vector<16x1xi32>\n"
    "      %%out = arith.bitcast %%tops : vector<16x1xi32> to "
    "vector<16x1xf32>\n"
    "      \"attn.store\"(%%out, %%z, %%c0, %%c, %%row0, %%limit) :"
    " (vector<16x1xf32>, memref<?x?x?xf32, strided<[?, ?, ?]>>,"
    " i32, i32, i32, i32) -> ()\n"
    "    }\n"
    "    return\n"
    "  }\n"
    "}\n";

static float x[COUNT], z[COUNT];

/* The kernel's parameters as PTX lays them out. */
struct params {
    uint64_t x;
    int32_t extent;
    int64_t stride;
    uint64_t z;
    int64_t strides[3];
};

static void run(const char *units, const float *c, int count) {
    char ir[8192], coefficients[128];
    for (int k = 0, at = 0; k < count; k++)
        at +=
            snprintf(coefficients + at, sizeof coefficients - (size_t)at,
                     "%s0x%08X", k ? ", " : "", (unsigned)bits_of_float(c[k]));
    snprintf(ir, sizeof ir, kernel, units, coefficients);
    struct ptx_case p = ptx_case_text(ir, "sm_80");
    cr_assert_not_null(p.text, "%s", ptx_case_errors(&p));
    cr_assert(ptx_assemble(p.text, "sm_80") <= 0);
    struct emu_memory *memory = emu_memory_create();
    struct params params = {
        .extent = COUNT, .stride = 1, .strides = {COUNT, CTAS * SIDE, 1}};
    params.x = emu_memory_allocate(memory, sizeof x, "x");
    params.z = emu_memory_allocate(memory, sizeof z, "z");
    cr_assert(emu_memory_write(memory, params.x, x, sizeof x));
    struct emu_error error = {""};
    struct emu_source source = {p.text, strlen(p.text), "minimax.ptx"};
    struct emu_module *module = emu_module_create(memory, &source, 1, &error);
    cr_assert_not_null(module, "%s", error.text);
    struct emu_launch launch = {.entry = "f",
                                .grid = {CTAS, 1, 1},
                                .block = {32, 1, 1},
                                .params = &params,
                                .param_bytes = sizeof params};
    struct emu_options options = emu_options_default();
    options.threads = 1;
    struct emu_result result;
    cr_assert(emu_launch(module, &launch, &options, &result, &error), "%s",
              error.text);
    cr_assert_eq(result.report_count, 0);
    emu_memory_read(memory, params.z, z, sizeof z);
    emu_result_destroy(&result);
    emu_module_destroy(module);
    emu_memory_destroy(memory);
    ptx_case_end(&p);
}

/* Every exponent, with all kinds of fractions, and what is special. */
static void fill(void) {
    static const float special[] = {
        0.0f,    -0.0f,    -INFINITY, NAN,      -126.0f, -126.5f, -127.0f,
        -1e30f,  1e-40f,   -1e-40f,   -1e-9f,   8.0f,    127.0f,  -0.999f,
        127.99f, -125.99f, 1.0f,      -FLT_MAX, -1.0f,   0.5f};
    uint32_t state = 1;
    for (int i = 0; i < COUNT; i++) {
        state = state * 1664525u + 1013904223u;
        float unit = (float)(state >> 8) * 0x1p-24f;
        x[i] = i % 3 == 0   ? 8 - 136 * unit
               : i % 3 == 1 ? 8 - 16 * unit
                            : unit - 0.5f;
    }
    for (int i = 0; i < COUNT; i += 640)
        memcpy(x + i, special, sizeof special);
}

/* Compares all elements; bit u of `units`: unit u goes to the polynomial. */
static void check(unsigned units, const float *c, int count) {
    for (int row = 0; row < CTAS * SIDE; row++)
        for (int column = 0; column < SIDE; column++) {
            float in = x[SIDE * row + column],
                  out = z[CTAS * SIDE * column + row];
            bool poly = units >> (2 * (column / 8) + column % 2) & 1;
            float want = poly ? model_exp2(in, c, count) : exp2f(in);
            bool same = isnan(in) ? isnan(out)
                        : poly
                            ? bits_of_float(out) == bits_of_float(want)
                            : fabsf(out - want) <= want * 0x1p-22f + 0x1p-126f;
            cr_assert(same, "%s(%a) = %a, want %a", poly ? "poly" : "ex2", in,
                      out, want);
        }
}

Test(ptx_minimax, listed_units_take_the_polynomial) {
    fill();
    run("1, 2", minimax_exp2_3, 4);
    check(0x6, minimax_exp2_3, 4);
}

Test(ptx_minimax, degree_4_on_every_unit) {
    fill();
    run("0, 1, 2, 3", minimax_exp2_4, 5);
    check(0xf, minimax_exp2_4, 5);
}
