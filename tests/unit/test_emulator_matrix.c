/* ldmatrix, stmatrix, mma.sync and wgmma against products of small integers,
 * which every order of summation computes exactly.
 */
#include "support/bits.h"
#include "tests/unit/emulator_harness.h"

/* bf16 and f16 of integers up to 256. */
static uint16_t bf16_of(int value) {
    return (uint16_t)(bits_of_float((float)value) >> 16);
}

static uint16_t f16_of(int value) {
    if (value == 0)
        return 0;
    uint32_t magnitude = (uint32_t)abs(value);
    int exponent = 31 - __builtin_clz(magnitude);
    uint32_t mantissa = (magnitude << (10 - exponent)) & 0x3ff;
    return (uint16_t)((value < 0 ? 0x8000u : 0) |
                      (uint32_t)(exponent + 15) << 10 | mantissa);
}

static int entry(int i, int j, int seed) {
    return (i * 7 + j * 13 + seed * 5) % 17 - 8;
}

/* One warp or more: `in` and `out` of `bytes` each, seeds 0 to 3. */
static void run_kernel(const char *target, const char *body, const void *in,
                       size_t in_bytes, void *out, size_t out_bytes,
                       uint32_t threads, struct emu_counters *c) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    strbuf_printf(&text,
                  ".version 8.6\n.target %s\n.address_size 64\n"
                  ".extern .shared .align 1024 .b8 smem[];\n"
                  ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg "
                  ".pred %%p<8>;"
                  ".reg .b32 %%r<40>; .reg .b64 %%d<16>; .reg .f32 %%f<128>; "
                  ".reg .b32 %%a<8>;\n"
                  "ld.param.u64 %%d0, [in]; ld.param.u64 %%d1, [out]; mov.u32 "
                  "%%r0, %%tid.x;\n"
                  "mov.u32 %%r1, smem;\n%s\nret;\n}\n",
                  target, body);
    check_with_ptxas(strbuf_text(&text), target);
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct device d = device_create(strbuf_text(&text));
        struct emu_options options = emu_options_default();
        options.seed = seed;
        uint64_t params[2] = {device_put(&d, in, in_bytes, "in"),
                              device_put(&d, NULL, out_bytes, "out")};
        device_run(&d, "k", 1, threads, 65536, params, 2, &options);
        expect_clean(&d);
        device_get(&d, params[1], out, out_bytes);
        if (c)
            *c = d.result.counters;
        device_destroy(&d);
    }
    strbuf_destroy(&text);
}

/* Copies `bytes` of `in` to shared memory, 16 bytes a thread and round. */
#define STAGE(bytes)                                                        \
    "shl.b32 %%r30, %%r0, 4;\nCOPY: setp.lt.u32 %%p7, %%r30, " #bytes       \
    ";\n@!%%p7 bra COPIED;\n"                                               \
    "cvt.u64.u32 %%d10, %%r30; add.u64 %%d10, %%d0, %%d10; add.u32 %%r31, " \
    "%%r1, %%r30;\n"                                                        \
    "ld.global.v4.u32 {%%r32, %%r33, %%r34, %%r35}, [%%d10];\n"             \
    "st.shared.v4.u32 [%%r31], {%%r32, %%r33, %%r34, %%r35};\n"             \
    "mov.u32 %%r36, %%ntid.x; mad.lo.u32 %%r30, %%r36, 16, %%r30;\nbra "    \
    "COPY;\nCOPIED:\n"

Test(emulator_matrix, ldmatrix_and_stmatrix) {
    uint16_t in[4 * 64], out[2 * 4 * 64];
    for (int i = 0; i < 256; i++)
        in[i] = (uint16_t)(1000 + i);
    static char body[2048];
    snprintf(
        body, sizeof body,
        STAGE(512) "bar.sync 0;\nshl.b32 %%r2, %%r0, 4; "
                   "add.u32 %%r3, %%r1, %%r2;\n"
                   "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%%r4, %%r5, "
                   "%%r6, %%r7}, [%%r3];\n"
                   "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%%r8, "
                   "%%r9, %%r10, %%r11}, [%%r3];\n"
                   "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%%r3+1024], "
                   "{%%r4, %%r5, %%r6, %%r7};\n"
                   "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%%r3+2048], "
                   "{%%r8, %%r9, %%r10, %%r11};\n"
                   "bar.sync 0;\nld.shared.v4.u32 {%%r4, %%r5, %%r6, %%r7}, "
                   "[%%r3+1024];\n"
                   "ld.shared.v4.u32 {%%r8, %%r9, %%r10, %%r11}, [%%r3+2048];\n"
                   "cvt.u64.u32 %%d2, %%r2; add.u64 %%d3, %%d1, %%d2;\n"
                   "st.global.v4.u32 [%%d3], {%%r4, %%r5, %%r6, %%r7};\n"
                   "st.global.v4.u32 [%%d3+512], {%%r8, %%r9, %%r10, %%r11};");
    run_kernel("sm_90", body, in, sizeof in, out, sizeof out, 32, NULL);
    for (int m = 0; m < 4; m++)
        for (int r = 0; r < 8; r++)
            for (int c = 0; c < 8; c++) {
                cr_expect(out[m * 64 + r * 8 + c] == in[m * 64 + r * 8 + c]);
                cr_expect(out[256 + m * 64 + r * 8 + c] ==
                          in[m * 64 + c * 8 + r]);
            }
}

/* The registers themselves: lane l of matrix 0 holds row l/4, columns 2(l%4),
 * +1. */
Test(emulator_matrix, ldmatrix_registers) {
    uint16_t in[64];
    uint32_t out[64];
    for (int i = 0; i < 64; i++)
        in[i] = (uint16_t)i;
    static char body[2048];
    snprintf(
        body, sizeof body,
        STAGE(128) "bar.sync 0;\nand.b32 %%r2, %%r0, 7; "
                   "shl.b32 %%r2, %%r2, 4; add.u32 %%r3, %%r1, %%r2;\n"
                   "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%%r4}, [%%r3];\n"
                   "movmatrix.sync.aligned.m8n8.trans.b16 %%r5, %%r4;\n"
                   "mul.wide.u32 %%d2, %%r0, 4; add.u64 %%d3, %%d1, %%d2; "
                   "st.global.u32 [%%d3], %%r4;\n"
                   "st.global.u32 [%%d3+128], %%r5;");
    run_kernel("sm_80", body, in, sizeof in, out, sizeof out, 32, NULL);
    cr_expect(out[0] == 0x00010000 && out[1] == 0x00030002 &&
              out[4] == 0x00090008);
    cr_expect(out[31] == 0x003f003e);
    cr_expect(out[32] == 0x00080000 && out[33] == 0x00180010 &&
              out[36] == 0x00090001);
}

/* D = A B + C for one mma; fragments are made and read as the ISA manual draws
 * them. */
static void check_mma(const char *opcode, int k_size, bool is_bf16,
                      bool f16_accumulate) {
    struct {
        uint16_t a[16][16], b[16][8];
    } in = {0};
    float out[16][8];
    static char body[4096], loads[3000];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < k_size; j++)
            in.a[i][j] =
                is_bf16 ? bf16_of(entry(i, j, 1)) : f16_of(entry(i, j, 1));
    for (int i = 0; i < k_size; i++)
        for (int j = 0; j < 8; j++)
            in.b[i][j] =
                is_bf16 ? bf16_of(entry(i, j, 2)) : f16_of(entry(i, j, 2));
    /* row g = lane/4 at 32 bytes, column 2t = 4 (lane%4) bytes; B by single
     * elements */
    size_t n = (size_t)snprintf(
        loads, sizeof loads,
        "shr.u32 %%r2, %%r0, 2; and.b32 %%r3, %%r0, 3; shl.b32 %%r4, %%r2, 5; "
        "mad.lo.u32 %%r4, %%r3, 4, %%r4; cvt.u64.u32 %%d2, %%r4; add.u64 %%d2, "
        "%%d0, %%d2;\n"
        "ld.global.u32 %%a0, [%%d2]; ld.global.u32 %%a1, [%%d2+256]; "
        "ld.global.u32 %%a2, [%%d2+16]; ld.global.u32 %%a3, [%%d2+272];\n"
        "shl.b32 %%r5, %%r3, 5; mad.lo.u32 %%r5, %%r2, 2, %%r5; cvt.u64.u32 "
        "%%d3, %%r5; "
        "add.u64 %%d3, %%d0, %%d3;\n.reg .b16 %%h<4>;\n"
        "ld.global.u16 %%h0, [%%d3+512]; ld.global.u16 %%h1, [%%d3+528]; "
        "mov.b32 %%a4, {%%h0, %%h1};\nld.global.u16 %%h2, [%%d3+640]; "
        "ld.global.u16 %%h3, [%%d3+656]; mov.b32 %%a5, {%%h2, %%h3};\n");
    const char *a = k_size == 16 ? "{%a0, %a1, %a2, %a3}" : "{%a0, %a1}";
    const char *b = k_size == 16 ? "{%a4, %a5}" : "{%a4}";
    if (f16_accumulate) /* C = 1 everywhere */
        snprintf(body, sizeof body,
                 "%smov.b32 %%r10, 0x3c003c00; mov.b32 %%r11, 0x3c003c00;\n"
                 "%s {%%r10, %%r11}, %s, %s, {%%r10, %%r11};\n"
                 "mov.b32 {%%h0, %%h1}, %%r10; cvt.f32.f16 %%f0, %%h0; "
                 "cvt.f32.f16 %%f1, %%h1;\n"
                 "mov.b32 {%%h0, %%h1}, %%r11; cvt.f32.f16 %%f2, %%h0; "
                 "cvt.f32.f16 %%f3, %%h1;\n",
                 loads, opcode, a, b);
    else
        snprintf(
            body, sizeof body,
            "%smov.f32 %%f0, 0f3F800000; mov.f32 %%f1, %%f0; "
            "mov.f32 %%f2, %%f0; mov.f32 %%f3, %%f0;\n"
            "%s {%%f0, %%f1, %%f2, %%f3}, %s, %s, {%%f0, %%f1, %%f2, %%f3};\n",
            loads, opcode, a, b);
    n = strlen(body);
    snprintf(
        body + n, sizeof body - n,
        "shl.b32 %%r4, %%r2, 5; mad.lo.u32 %%r4, %%r3, 8, %%r4; cvt.u64.u32 "
        "%%d2, %%r4; "
        "add.u64 %%d2, %%d1, %%d2;\nst.global.v2.f32 [%%d2], {%%f0, %%f1}; "
        "st.global.v2.f32 [%%d2+256], {%%f2, %%f3};");
    struct emu_counters counters;
    run_kernel("sm_80", body, &in, sizeof in, out, sizeof out, 32, &counters);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int sum = 1;
            for (int k = 0; k < k_size; k++)
                sum += entry(i, k, 1) * entry(k, j, 2);
            cr_expect(out[i][j] == (float)sum, "%s [%d][%d]: %g, expected %d",
                      opcode, i, j, (double)out[i][j], sum);
        }
    cr_expect(counters.mma_flop == 2u * 16 * 8 * (unsigned)k_size);
}

Test(emulator_matrix, mma) {
    check_mma("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, true,
              false);
    check_mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, false,
              false);
    check_mma("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 16, false,
              true);
    check_mma("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 8, true,
              false);
    check_mma("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 8, false,
              false);
    check_mma("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", 8, false,
              true);
}

/* ---- wgmma ------------------------------------------------------------- */

enum { M = 64, K = 16, IMAGE = 65536 };

/* Where element (row along M or N, k) lies: the layouts of the ISA manual, each
 * written down on its own here.  Strides: 8-row groups 1024, panels 4096
 * bytes. */
static size_t place(int row, int k, int swizzle, bool mn_major) {
    size_t at;
    if (!mn_major &&
        swizzle ==
            0) /* 8x8 blocks of 128 bytes: k blocks 128, row groups 256 */
        return (size_t)(row / 8 * 256 + k / 8 * 128 + row % 8 * 16 + k % 8 * 2);
    if (mn_major && swizzle == 0) /* blocks along N 256 apart, along K 128 */
        return (size_t)(row / 8 * 256 + k / 8 * 128 + k % 8 * 16 + row % 8 * 2);
    if (!mn_major)
        at = (size_t)(row / 8 * 8 * swizzle + row % 8 * swizzle + k * 2);
    else
        at = (size_t)(row / (swizzle / 2) * 4096 + k / 8 * 8 * swizzle +
                      k % 8 * swizzle + row % (swizzle / 2) * 2);
    /* 16-byte chunk number xor 128-byte line number, as far as the swizzle
     * reaches */
    size_t line = at / 128 % 8, chunk = at / 16 % 8;
    size_t mask = (size_t)swizzle / 16 - 1;
    return at / 128 * 128 + (chunk ^ (line & mask)) * 16 + at % 16;
}

static uint64_t descriptor_bits(int swizzle, bool mn_major) {
    uint64_t mode = swizzle == 128  ? 1
                    : swizzle == 64 ? 2
                    : swizzle == 32 ? 3
                                    : 0;
    uint64_t leading = swizzle == 0 ? 128 : mn_major ? 4096 : 16;
    uint64_t stride = swizzle == 0 ? 256 : 8 * (uint64_t)swizzle;
    if (swizzle == 0 && mn_major) { /* along N: stride; along K: leading */
        leading = 128;
        stride = 256;
    }
    return mode << 62 | (stride >> 4) << 32 | (leading >> 4) << 16;
}

/* A at 0, B at IMAGE/2 of shared memory; two wgmmas, the second accumulates. */
static void check_wgmma(int n, int swizzle, bool a_mn, bool b_mn,
                        bool a_registers) {
    static uint8_t in[IMAGE];
    static float out[M][256];
    static char body[16384];
    struct strbuf s;
    memset(in, 0, sizeof in);
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) {
            uint16_t bits = bf16_of(entry(i, k, 3));
            memcpy(in + place(i, k, swizzle, a_mn), &bits, 2);
        }
    for (int j = 0; j < n; j++)
        for (int k = 0; k < K; k++) {
            uint16_t bits = bf16_of(entry(k, j, 4));
            memcpy(in + IMAGE / 2 + place(j, k, swizzle, b_mn), &bits, 2);
        }
    strbuf_init(&s, NULL);
    snprintf(body, sizeof body, STAGE(65536));
    strbuf_append(&s, body);
    strbuf_append(&s, "fence.proxy.async;\nbar.sync 0;\nshr.u32 %r2, %r1, 4; "
                      "cvt.u64.u32 %d2, %r2;\n");
    strbuf_printf(&s,
                  "or.b64 %%d3, %%d2, 0x%" PRIx64 "; add.u64 %%d4, %%d2, %d; "
                  "or.b64 %%d4, %%d4, 0x%" PRIx64 ";\n",
                  descriptor_bits(swizzle, a_mn), IMAGE / 32,
                  descriptor_bits(swizzle, b_mn));
    /* the fragment of A in registers, K-major without swizzle only */
    if (a_registers)
        strbuf_append(
            &s,
            "shr.u32 %r3, %r0, 5; shr.u32 %r4, %r0, 2; and.b32 %r4, %r4, 7; "
            "and.b32 %r5, %r0, 3;\nmul.lo.u32 %r6, %r3, 512; mad.lo.u32 %r6, "
            "%r4, 16, %r6; "
            "mad.lo.u32 %r6, %r5, 4, %r6; add.u32 %r6, %r6, %r1;\n"
            "ld.shared.u32 %a0, [%r6]; ld.shared.u32 %a1, [%r6+256]; "
            "ld.shared.u32 %a2, [%r6+128]; ld.shared.u32 %a3, [%r6+384];\n");
    strbuf_append(&s, "setp.ne.u32 %p0, %r0, %r0; setp.eq.u32 %p1, %r0, %r0;\n"
                      "wgmma.fence.sync.aligned;\n");
    for (int round = 0; round < 2; round++) {
        strbuf_printf(
            &s, "wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {", n);
        for (int i = 0; i < n / 2; i++)
            strbuf_printf(&s, "%s%%f%d", i ? ", " : "", i);
        strbuf_printf(&s, "}, %s, %%d4, %%p%d, 1, 1%s, %d;\n",
                      a_registers ? "{%a0, %a1, %a2, %a3}" : "%d3", round,
                      a_registers ? ""
                      : a_mn      ? ", 1"
                                  : ", 0",
                      b_mn);
    }
    strbuf_append(
        &s,
        "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
        "shr.u32 %r3, %r0, 5; shr.u32 %r4, %r0, 2; and.b32 %r4, %r4, 7; "
        "and.b32 %r5, %r0, 3; mad.lo.u32 %r4, %r3, 16, %r4;\n");
    strbuf_printf(
        &s, "mul.lo.u32 %%r6, %%r4, 1024; mad.lo.u32 %%r6, %%r5, 8, %%r6; "
            "cvt.u64.u32 %%d5, %%r6; add.u64 %%d5, %%d1, %%d5;\n");
    for (int j = 0; j < n / 8; j++)
        strbuf_printf(&s,
                      "st.global.v2.f32 [%%d5+%d], {%%f%d, %%f%d}; "
                      "st.global.v2.f32 [%%d5+%d], {%%f%d, %%f%d};\n",
                      j * 32, 4 * j, 4 * j + 1, j * 32 + 8192, 4 * j + 2,
                      4 * j + 3);
    struct emu_counters counters;
    run_kernel("sm_90a", strbuf_text(&s), in, sizeof in, out, sizeof out, 128,
               &counters);
    int wrong = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < n; j++) {
            int sum = 0;
            for (int k = 0; k < K; k++)
                sum += 2 * entry(i, k, 3) * entry(k, j, 4);
            wrong += out[i][j] != (float)sum;
        }
    cr_expect(wrong == 0,
              "n %d swizzle %d A %s%s B %s: %d of %d elements are wrong", n,
              swizzle, a_mn ? "MN" : "K", a_registers ? " registers" : "",
              b_mn ? "MN" : "K", wrong, M * n);
    cr_expect(counters.mma_flop == 2u * 2 * M * K * (unsigned)n);
    strbuf_destroy(&s);
}

Test(emulator_matrix, wgmma_layouts) {
    static const int swizzles[] = {0, 32, 64, 128};
    for (size_t i = 0; i < COUNT(swizzles); i++)
        for (int majors = 0; majors < 4; majors++)
            check_wgmma(64, swizzles[i], majors & 1, majors & 2, false);
}

Test(emulator_matrix, wgmma_shapes) {
    check_wgmma(8, 0, false, false, false);
    check_wgmma(80, 128, false, false, false);
    check_wgmma(128, 128, false, true, false);
    check_wgmma(192, 128, false, true, false);
    check_wgmma(128, 64, false, true, false);
    check_wgmma(256, 128, false, false, false);
    check_wgmma(8, 0, false, false, true);
    check_wgmma(96, 0, false, true, true);
    check_wgmma(200, 0, false, false, true);
}
