/* State spaces, vectors, atomics, generic addresses, and copies by cp.async. */
#include "tests/unit/emulator_harness.h"

/* Runs a kernel of one warp: buffers `in` (u32[256]) and `out` (u32[256]). */
static void run_warp(const char *globals, const char *body, const uint32_t *in,
                     uint32_t out[256], uint32_t threads, uint64_t seed) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    strbuf_printf(
        &text,
        PTX_HEAD(
            "sm_90") "%s\n.extern .shared .align 128 .b8 smem[];\n"
                     ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
                     ".reg .pred %%p<8>; .reg .b32 %%r<32>; .reg .b64 %%d<16>; "
                     ".reg .b16 %%h<8>;"
                     ".reg .f32 %%f<8>;\nld.param.u64 %%d0, [in]; ld.param.u64 "
                     "%%d1, [out];\n"
                     "mov.u32 %%r0, %%tid.x; mul.wide.u32 %%d2, %%r0, 4; "
                     "add.u64 %%d3, %%d0, %%d2;\n"
                     "add.u64 %%d4, %%d1, %%d2; mov.u32 %%r1, smem; shl.b32 "
                     "%%r2, %%r0, 2;\n"
                     "add.u32 %%r3, %%r1, %%r2;\n%s\nret;\n}\n",
        globals, body);
    check_with_ptxas(strbuf_text(&text), "sm_90");
    struct device d = device_create(strbuf_text(&text));
    struct emu_options options = emu_options_default();
    options.seed = seed;
    uint64_t params[2] = {device_put(&d, in, 1024, "in"),
                          device_put(&d, NULL, 1024, "out")};
    memset(out, 0, 1024);
    emu_memory_write(d.memory, params[1], out, 1024);
    device_run(&d, "k", 1, threads, 8192, params, 2, &options);
    expect_clean(&d);
    device_get(&d, params[1], out, 1024);
    device_destroy(&d);
    strbuf_destroy(&text);
}

static uint32_t in[256], out[256];

static void fill(void) {
    for (uint32_t i = 0; i < 256; i++)
        in[i] = i * 0x01010101u;
}

Test(emulator_memory, vectors) {
    fill();
    run_warp(
        "",
        "shl.b32 %r4, %r0, 4; cvt.u64.u32 %d5, %r4; add.u64 %d6, %d0, %d5; "
        "add.u64 %d7, %d1, %d5;\nld.global.nc.L1::no_allocate.L2::128B.v4.u32 "
        "{%r5, %r6, %r7, %r8}, [%d6];\nst.global.v2.b32 [%d7], {%r8, %r7};\n"
        "st.global.v2.b32 [%d7+8], {%r6, %r5};",
        in, out, 32, 0);
    for (uint32_t i = 0; i < 128; i++)
        cr_expect(out[i] == in[i / 4 * 4 + 3 - i % 4]);
}

Test(emulator_memory, narrow_loads) {
    fill();
    in[0] = 0x80ff7f01;
    run_warp("",
             "ld.global.s8 %r4, [%d0+3]; st.global.u32 [%d1], %r4;\n"
             "ld.global.u8 %r4, [%d0+2]; st.global.u32 [%d1+4], %r4;\n"
             "ld.global.s16 %r4, [%d0+2]; st.global.u32 [%d1+8], %r4;\n"
             "ld.global.b16 %h0, [%d0]; st.global.b16 [%d1+14], %h0;\n"
             "ld.global.u32 %d5, [%d0]; st.global.u64 [%d1+16], %d5;\n"
             "st.global.u8 [%d1+24], %r4;",
             in, out, 1, 0);
    cr_expect(out[0] == 0xffffff80u && out[1] == 0xff && out[2] == 0xffff80ffu);
    cr_expect(out[3] == 0x7f010000u && out[4] == 0x80ff7f01u && out[5] == 0 &&
              out[6] == 0xff);
}

Test(emulator_memory, module_variables) {
    fill();
    run_warp(".const .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n"
             ".global .align 4 .u32 words[3] = {10, 20};\n.global .f32 half = "
             "0f3F000000;\n",
             "mov.u64 %d5, table; ld.const.u32 %r4, [%d5+4]; st.global.u32 "
             "[%d1], %r4;\n"
             "ld.global.u32 %r4, [words+4]; st.global.u32 [%d1+4], %r4;\n"
             "ld.global.u32 %r4, [words+8]; st.global.u32 [%d1+8], %r4;\n"
             "ld.global.f32 %f0, [half]; st.global.f32 [%d1+12], %f0;\n"
             "st.global.u32 [words], 99; ld.global.u32 %r4, [words]; "
             "st.global.u32 [%d1+16], %r4;",
             in, out, 1, 0);
    cr_expect(out[0] == 0x08070605 && out[1] == 20 && out[2] == 0 &&
              out[3] == 0x3f000000 && out[4] == 99);
}

Test(emulator_memory, local_and_generic) {
    fill();
    run_warp(
        "",
        ".local .align 16 .b8 stack[32];\nmov.u64 %d5, stack; st.local.u32 "
        "[%d5+4], %r0;\n"
        "cvta.local.u64 %d6, %d5; ld.u32 %r4, [%d6+4];\n"
        "cvt.u64.u32 %d7, %r3; cvta.shared.u64 %d7, %d7; st.u32 [%d7], %r4;\n"
        "ld.shared.u32 %r5, [%r3]; cvta.to.shared.u64 %d8, %d7; cvt.u32.u64 "
        "%r6, %d8;\n"
        "sub.u32 %r6, %r6, %r3; isspacep.shared %p0, %d7; isspacep.global %p1, "
        "%d4;\n"
        "isspacep.local %p2, %d4; selp.u32 %r7, 100, 0, %p0; selp.u32 %r8, "
        "1000, 0, %p1;\n"
        "selp.u32 %r9, 5, 0, %p2; add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, "
        "%r7;\n"
        "add.u32 %r5, %r5, %r8; add.u32 %r5, %r5, %r9; st.u32 [%d4], %r5;",
        in, out, 32, 0);
    for (uint32_t i = 0; i < 32; i++)
        cr_expect(out[i] == i + 1100);
}

Test(emulator_memory, static_and_dynamic_shared) {
    fill();
    run_warp(
        ".shared .align 8 .b8 fixed[128];",
        "mov.u32 %r4, fixed; add.u32 %r5, %r4, %r2; st.shared.u32 [%r5], %r0;\n"
        "st.shared.u32 [%r3], 7; ld.shared.u32 %r6, [%r5]; ld.shared.u32 %r7, "
        "[%r3];\n"
        "sub.u32 %r8, %r1, %r4; and.b32 %r9, %r1, 127; add.u32 %r8, %r8, %r9;\n"
        "add.u32 %r6, %r6, %r7; add.u32 %r6, %r6, %r8; st.global.u32 [%d4], "
        "%r6;",
        in, out, 32, 0);
    for (uint32_t i = 0; i < 32; i++)
        cr_expect(out[i] == i + 7 + 128, "%u: %u", i, out[i]);
}

Test(emulator_memory, atomics) {
    fill();
    run_warp(
        "",
        "setp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.u32 [%r1], 0;\nbar.sync 0;\n"
        "atom.shared.add.u32 %r4, [%r1], 1;\nbar.sync 0;\nld.shared.u32 %r5, "
        "[%r1];\n"
        "st.global.u32 [%d4], %r5;\n"
        "red.global.max.s32 [%d1+512], %r0; red.global.or.b32 [%d1+516], %r0;\n"
        "atom.global.inc.u32 %r6, [%d1+520], 3;\n"
        "mov.f32 %f0, 0f3F800000; red.global.add.f32 [%d1+524], %f0;\n"
        "atom.global.cas.b32 %r7, [%d1+528], 0, 77;\n"
        "atom.global.exch.b32 %r7, [%d1+532], %r0;\n"
        "mov.b64 %d5, 5; atom.global.add.u64 %d6, [%d1+536], %d5;\n"
        "atom.global.dec.u32 %r7, [%d1+544], 4;",
        in, out, 64, 5);
    for (uint32_t i = 0; i < 64; i++)
        cr_expect(out[i] == 64);
    cr_expect(out[128] == 63 && out[129] == 63 && out[130] == 0 &&
              out[131] == 0x42800000);
    cr_expect(out[132] == 77 && out[133] < 64 && out[134] == 320 &&
              out[135] == 0);
    cr_expect(out[136] == 1, "64 times dec from 0 with bound 4: got %u",
              out[136]);
}

/* Sizes, zero fill by src-size and by the predicate, groups in order. */
Test(emulator_memory, cp_async) {
    fill();
    for (uint64_t seed = 0; seed < 8; seed++) {
        run_warp("",
                 "shl.b32 %r4, %r0, 4; add.u32 %r5, %r1, %r4; cvt.u64.u32 %d5, "
                 "%r4;\n"
                 "add.u64 %d6, %d0, %d5; cp.async.cg.shared.global.L2::128B "
                 "[%r5], [%d6], 16;\n"
                 "cp.async.commit_group;\nadd.u32 %r6, %r3, 1024;\n"
                 "cp.async.ca.shared.global [%r6], [%d3], 4, "
                 "2;\ncp.async.commit_group;\n"
                 "setp.gt.u32 %p0, %r0, 7; cp.async.ca.shared.global "
                 "[%r6+256], [%d3], 4, %p0;\n"
                 "cp.async.commit_group;\ncp.async.wait_group "
                 "2;\nld.shared.u32 %r7, [%r5+4];\n"
                 "st.global.u32 [%d4], %r7;\ncp.async.wait_group "
                 "1;\nld.shared.u32 %r7, [%r6];\n"
                 "st.global.u32 [%d4+128], %r7;\ncp.async.wait_all;\n"
                 "ld.shared.u32 %r7, [%r6+256]; st.global.u32 [%d4+256], %r7;",
                 in, out, 32, seed);
        for (uint32_t i = 0; i < 32; i++) {
            cr_expect(out[i] == in[4 * i + 1]);
            cr_expect(out[32 + i] == (in[i] & 0xffff));
            cr_expect(out[64 + i] == (i > 7 ? 0 : in[i]));
        }
    }
}

/* The arrival of cp.async.mbarrier.arrive.noinc: one for each thread. */
Test(emulator_memory, cp_async_with_mbarrier) {
    fill();
    for (uint64_t seed = 0; seed < 8; seed++) {
        run_warp("",
                 "setp.eq.u32 %p0, %r0, 0;\n@%p0 mbarrier.init.shared::cta.b64 "
                 "[%r1], 64;\n"
                 "bar.sync 0;\nadd.u32 %r4, %r3, 128;\n"
                 "cp.async.ca.shared.global [%r4], [%d3], 4;\n"
                 "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];\n"
                 "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], "
                 "0;\n@!%p1 bra W;\n"
                 "xor.b32 %r5, %r2, 128; add.u32 %r5, %r5, %r1; ld.shared.u32 "
                 "%r6, [%r5+128];\n"
                 "st.global.u32 [%d4], %r6;",
                 in, out, 64, seed);
        for (uint32_t i = 0; i < 64; i++)
            cr_expect(out[i] == in[i ^ 32]);
    }
}

/* Cache policies are read and change nothing. */
Test(emulator_memory, cache_policies) {
    fill();
    run_warp("",
             "createpolicy.fractional.L2::evict_last.b64 %d5, 0f3F800000;\n"
             "ld.global.L2::cache_hint.u32 %r4, [%d3], %d5;\n"
             "cp.async.ca.shared.global.L2::cache_hint [%r3], [%d3], 4, %d5;\n"
             "cp.async.wait_all; ld.shared.u32 %r5, [%r3];\n"
             "add.u32 %r4, %r4, %r5;\n"
             "st.global.L2::cache_hint.u32 [%d4], %r4, %d5;",
             in, out, 32, 0);
    for (uint32_t i = 0; i < 32; i++)
        cr_expect(out[i] == 2 * in[i]);
}

/* What was not written stays uninitialised, and can be counted. */
Test(emulator_memory, host_side) {
    struct emu_memory *memory = emu_memory_create();
    uint64_t a = emu_memory_allocate(memory, 100, "a"),
             b = emu_memory_allocate(memory, 10, "b");
    uint8_t bytes[100] = {0};
    cr_expect(a % 256 == 0 && b % 256 == 0 && b >= a + 100 + 65536);
    cr_expect(emu_memory_count_uninitialised(memory, a, 100) == 100);
    cr_expect(emu_memory_write(memory, a + 10, bytes, 50));
    cr_expect(emu_memory_count_uninitialised(memory, a, 100) == 50);
    cr_expect(!emu_memory_write(memory, a + 90, bytes, 11));
    cr_expect(!emu_memory_read(memory, a - 1, bytes, 1));
    cr_expect(emu_memory_read(memory, a, bytes, 100));
    emu_memory_free(memory, a);
    cr_expect(!emu_memory_read(memory, a, bytes, 1));
    cr_expect(emu_memory_read(memory, b, bytes, 10));
    emu_memory_destroy(memory);
}
