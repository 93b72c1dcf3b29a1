/* Scalar functions and integer operations of the back end, on the emulator
 * against libm: 2^-20 relative, or 2^-22 absolute near a zero (language.md,
 * Accuracy). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/emulator.h"
#include "tests/unit/ptx_util.h"

enum { COUNT = 4096, THREADS = 32 };

/* z[i] = OPS of %a = x[i] and %c = y[i]; the operations define %r. */
static const char kernel[] =
    "module {\n"
    "  func.func @f(%%x: memref<?x%s> {attn.arg = \"workspace:0\", "
    "attn.workspace_bytes = [\"16\"]},\n"
    "      %%y: memref<?x%s> {attn.arg = \"workspace:1\", attn.workspace_bytes "
    "= [\"16\"]},\n"
    "      %%z: memref<?x%s> {attn.arg = \"workspace:2\", attn.workspace_bytes "
    "= [\"16\"]})\n"
    "      attributes {attn.kernel = \"summary\", attn.warps = 1 : i32, "
    "attn.grid = [\"1\"]} {\n"
    "    %%c32 = arith.constant 32 : index\n"
    "    %%b = gpu.block_id x\n"
    "    %%t = gpu.thread_id x\n"
    "    %%base = arith.muli %%b, %%c32 : index\n"
    "    %%i = arith.addi %%base, %%t : index\n"
    "    %%a = memref.load %%x[%%i] : memref<?x%s>\n"
    "    %%c = memref.load %%y[%%i] : memref<?x%s>\n"
    "    %s\n"
    "    memref.store %%r, %%z[%%i] : memref<?x%s>\n"
    "    return\n"
    "  }\n"
    "}\n";

/* Runs the kernel; x, y, z hold COUNT words. */
static void run(const char *type, const char *ops, const void *x, const void *y,
                void *z) {
    char ir[4096];
    snprintf(ir, sizeof ir, kernel, type, type, type, type, type, ops, type);
    struct ptx_case c = ptx_case_text(ir, "sm_80");
    cr_assert_not_null(c.text, "%s", ptx_case_errors(&c));
    struct emu_memory *memory = emu_memory_create();
    const void *inputs[] = {x, y, x};
    uint64_t params[3];
    for (int i = 0; i < 3; i++) {
        params[i] = emu_memory_allocate(memory, 4 * COUNT, "buffer");
        cr_assert(emu_memory_write(memory, params[i], inputs[i], 4 * COUNT));
    }
    struct emu_error error = {""};
    struct emu_source source = {c.text, strlen(c.text), "math.ptx"};
    struct emu_module *module = emu_module_create(memory, &source, 1, &error);
    cr_assert_not_null(module, "%s", error.text);
    struct emu_launch launch = {.entry = "f",
                                .grid = {COUNT / THREADS, 1, 1},
                                .block = {THREADS, 1, 1},
                                .params = params,
                                .param_bytes = sizeof params};
    struct emu_options options = emu_options_default();
    options.threads = 1;
    struct emu_result result;
    cr_assert(emu_launch(module, &launch, &options, &result, &error), "%s",
              error.text);
    cr_assert_eq(result.report_count, 0);
    emu_memory_read(memory, params[2], z, 4 * COUNT);
    emu_result_destroy(&result);
    emu_module_destroy(module);
    emu_memory_destroy(memory);
    ptx_case_end(&c);
}

static float x[COUNT], y[COUNT], z[COUNT];

/* Values from low to high, with zeros, infinities and NaN among them. */
static void fill(float low, float high) {
    static const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY,
                                    NAN,  1.0f,  -1.0f};
    for (int i = 0; i < COUNT; i++)
        x[i] = low + (high - low) * (float)i / (COUNT - 1);
    memcpy(x + 100, special, sizeof special);
}

static void check(const char *ops, double (*want)(double)) {
    run("f32", ops, x, x, z);
    for (int i = 0; i < COUNT; i++) {
        double expected = want(x[i]);
        if (isnan(expected)) {
            cr_assert(isnan(z[i]), "f(%a) = %a, want NaN", x[i], z[i]);
            continue;
        }
        if (isinf(expected) || fabs(expected) > 3.4028235e38) {
            cr_assert(isinf(z[i]) && (z[i] > 0) == (expected > 0),
                      "f(%a) = %a, want %a", x[i], z[i], expected);
            continue;
        }
        double bound = fmax(fabs(expected) * 0x1p-20, 0x1p-22);
        cr_assert(fabs(z[i] - expected) <= bound, "f(%a) = %a, want %a", x[i],
                  z[i], expected);
    }
}

Test(ptx_math, exp) {
    fill(-110, 95);
    check("%r = math.exp %a : f32", exp);
}
Test(ptx_math, exp_contracted) {
    fill(-110, 95);
    check("%r = math.exp %a fastmath<contract> : f32", exp);
}

static void check_relative(const char *ops, double (*want)(double)) {
    fill(-85, 88);
    run("f32", ops, x, x, z);
    for (int i = 200; i < COUNT; i++)
        cr_assert(fabs(z[i] / want(x[i]) - 1) <= 0x1p-20, "f(%a) = %a", x[i],
                  z[i]);
}
static double sigmoid(double value) {
    return 1 / (1 + exp(-value));
}
Test(ptx_math, exp_is_relative) {
    check_relative("%r = math.exp %a : f32", exp);
    check_relative("%r = math.exp %a fastmath<contract> : f32", exp);
}
Test(ptx_math, sigmoid_is_relative) {
    static const char ops[] =
        "%one = arith.constant 1.0 : f32\n"
        " %n = arith.negf %a fastmath<contract> : f32\n"
        " %e = math.exp %n fastmath<contract> : f32\n"
        " %d = arith.addf %one, %e fastmath<contract> : f32\n"
        " %r = arith.divf %one, %d fastmath<contract> : f32";
    check(ops, sigmoid);
    check_relative(ops, sigmoid);
}
Test(ptx_math, exp2) {
    fill(-120, 130);
    check("%r = math.exp2 %a : f32", exp2);
}
Test(ptx_math, log) {
    fill(1e-6f, 40);
    check("%r = math.log %a : f32", log);
}
Test(ptx_math, tanh) {
    fill(-12, 12);
    check("%r = math.tanh %a : f32", tanh);
    fill(-0.7f, 0.7f);
    check("%r = math.tanh %a : f32", tanh);
}
Test(ptx_math, tanh_contracted) {
    fill(-12, 12);
    check("%r = math.tanh %a fastmath<contract> : f32", tanh);
    fill(-0.7f, 0.7f);
    check("%r = math.tanh %a fastmath<contract> : f32", tanh);
}
Test(ptx_math, sin) {
    fill(-32768, 32768);
    check("%r = math.sin %a : f32", sin);
    fill(-4, 4);
    check("%r = math.sin %a : f32", sin);
}
Test(ptx_math, cos) {
    fill(-32768, 32768);
    check("%r = math.cos %a : f32", cos);
}

/* Exponents of every kind against every kind of base. */
Test(ptx_math, powf) {
    static const float bases[] = {
        -INFINITY, -3.5f, -2,    -1, -0.3f, -0.0f, 0,        1e-40f, 0.2f,
        0.99f,     1,     1.01f, 2,  7.5f,  1e20f, INFINITY, NAN};
    static const float exponents[] = {
        -INFINITY, -31, -3, -2.5f, -2, -1, -0.5f, -0.0f,    0,
        0.25f,     1,   2,  2.5f,  3,  15, 100,   INFINITY, NAN};
    enum { BASES = sizeof bases / 4, EXPONENTS = sizeof exponents / 4 };
    for (int i = 0; i < COUNT; i++) {
        x[i] = i < BASES * EXPONENTS ? bases[i % BASES] : 0.001f * (float)i;
        y[i] = i < BASES * EXPONENTS ? exponents[i / BASES]
                                     : (float)(i % 37) * 0.7f - 12;
    }
    run("f32", "%r = math.powf %a, %c : f32", x, y, z);
    for (int i = 0; i < COUNT; i++) {
        double expected = pow(x[i], y[i]);
        if (isnan(expected))
            cr_assert(isnan(z[i]), "pow(%a, %a) = %a, want NaN", x[i], y[i],
                      z[i]);
        else if (fabs(expected) > 3.4028235e38 || expected == 0)
            cr_assert(z[i] == (float)expected &&
                          !signbit(z[i]) == !signbit(expected),
                      "pow(%a, %a) = %a, want %a", x[i], y[i], z[i], expected);
        else
            cr_assert(fabs(z[i] - expected) <=
                          fmax(fabs(expected) * 0x1p-20, 0x1p-149 * 2),
                      "pow(%a, %a) = %a, want %a", x[i], y[i], z[i], expected);
    }
}

/* ---- Integers ----------------------------------------------------------- */

static int32_t a[COUNT], b[COUNT], r[COUNT];

static void fill_integers(void) {
    uint32_t state = 7;
    for (int i = 0; i < COUNT; i++) {
        state = state * 1664525u + 1013904223u;
        a[i] = (int32_t)state >> (i % 29);
        state = state * 1664525u + 1013904223u;
        b[i] = (int32_t)state >> (3 + i % 28);
        b[i] = b[i] == 0 || b[i] == -1 ? 7 : b[i];
    }
}

Test(ptx_math, floor_division) {
    fill_integers();
    run("i32", "%r = arith.floordivsi %a, %c : i32", a, b, r);
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(r[i], (int32_t)floor((double)a[i] / b[i]), "%d / %d = %d",
                     a[i], b[i], r[i]);
    run("i32",
        "%k = arith.constant 8 : i32\n %r = arith.floordivsi %a, %k : i32", a,
        b, r);
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(r[i], a[i] >> 3);
}

Test(ptx_math, bits) {
    fill_integers();
    run("i32",
        "%p = math.ctpop %a : i32\n %q = math.cttz %c : i32\n %s = math.ctlz "
        "%a : i32\n"
        "%u = arith.addi %p, %q : i32\n %r = arith.addi %u, %s : i32",
        a, b, r);
    for (int i = 0; i < COUNT; i++) {
        int zeros = a[i] == 0 ? 32 : __builtin_clz((unsigned)a[i]);
        cr_assert_eq(r[i], __builtin_popcount((unsigned)a[i]) +
                               __builtin_ctz((unsigned)b[i]) + zeros);
    }
}

Test(ptx_math, booleans) {
    fill_integers();
    run("i32",
        "%z0 = arith.constant 0 : i32\n %one = arith.constant true\n"
        "%p = arith.cmpi slt, %a, %c : i32\n %q = arith.cmpi ult, %a, %c : "
        "i32\n"
        "%d = arith.cmpi ne, %p, %q : i1\n %n = arith.xori %d, %one : i1\n"
        "%u = arith.select %n, %p, %q : i1\n %e = arith.extui %u : i1 to i32\n"
        "%s = arith.extsi %d : i1 to i32\n %r = arith.subi %e, %s : i32",
        a, b, r);
    for (int i = 0; i < COUNT; i++) {
        bool p = a[i] < b[i], q = (uint32_t)a[i] < (uint32_t)b[i], d = p != q;
        cr_assert_eq(r[i], (!d ? p : q) + d);
    }
}

/* Comparisons with NaN: ordered ones are false, unordered ones true. */
Test(ptx_math, comparisons_with_nan) {
    static const char *const names[] = {"oeq", "ogt", "oge", "olt", "ole",
                                        "one", "ord", "ueq", "ugt", "uge",
                                        "ult", "ule", "une", "uno"};
    char ops[256];
    for (int i = 0; i < COUNT; i++) {
        x[i] = i % 3 == 0 ? NAN : (float)(i % 5);
        y[i] = i % 7 == 0 ? NAN : (float)(i % 4);
    }
    for (int k = 0; k < 14; k++) {
        snprintf(ops, sizeof ops,
                 "%%p = arith.cmpf %s, %%a, %%c : f32\n"
                 "%%r = arith.uitofp %%p : i1 to f32",
                 names[k]);
        run("f32", ops, x, y, z);
        for (int i = 0; i < COUNT; i++) {
            bool nan = isnan(x[i]) || isnan(y[i]);
            const bool plain[] = {
                x[i] == y[i], x[i] > y[i],          x[i] >= y[i], x[i] < y[i],
                x[i] <= y[i], !nan && x[i] != y[i], !nan};
            bool want = k < 7 ? plain[k] : k == 13 ? nan : nan || plain[k - 7];
            cr_assert_eq(z[i], want, "%s(%g, %g)", names[k], x[i], y[i]);
        }
    }
}
