/* mbarriers and TMA: phases, transaction bytes, tensor maps with every swizzle
 * and out-of-bounds fill, stores, bulk copies, clusters of one CTA.
 */
#include "tests/unit/emulator_harness.h"

/* Parameters: in, out, tensor map of in, tensor map of out. */
struct params {
    uint64_t in, out;
    uint8_t padding[48];
    uint8_t in_map[128], out_map[128];
};

struct tensor {
    uint32_t rank;
    uint64_t extents[5], strides[4];
    uint32_t box[5];
    enum emu_tensor_swizzle swizzle;
    bool nan_fill;
};

static void encode(uint8_t map[128], const struct tensor *t, uint64_t address) {
    static const uint32_t ones[5] = {1, 1, 1, 1, 1};
    struct emu_error error;
    cr_assert(emu_tensor_map_encode(map, EMU_TENSOR_BFLOAT16, t->rank, address,
                                    t->extents, t->strides, t->box, ones,
                                    t->swizzle, t->nan_fill, &error),
              "%s", error.text);
}

/* Thread 0 initialises an mbarrier at shared address 0 (buffer from 1024 on);
 * the body runs in thread 0, behind it all threads copy the buffer to out when
 * `dump`. */
static void run_tma(const char *body, const struct tensor *t, const void *in,
                    size_t in_bytes, void *out, size_t out_bytes, size_t dump) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    strbuf_append(
        &text, PTX_HEAD("sm_90") ".extern .shared .align 1024 .b8 smem[];\n"
                                 ".visible .entry k(.param .u64 in, .param "
                                 ".u64 out, .param .align 64 .b8 im[128],\n"
                                 ".param .align 64 .b8 om[128])\n{\n.reg .pred "
                                 "%p<8>; .reg .b32 %r<40>;"
                                 ".reg .b64 %d<16>;\nld.param.u64 %d0, [in]; "
                                 "ld.param.u64 %d1, [out];\n"
                                 "mov.b64 %d2, im; cvta.param.u64 %d2, %d2; "
                                 "mov.b64 %d3, om; cvta.param.u64 %d3, %d3;\n"
                                 "mov.u32 %r0, %tid.x; mov.u32 %r1, smem; "
                                 "add.u32 %r2, %r1, 1024;\n"
                                 "setp.ne.u32 %p0, %r0, 0;\n@%p0 bra JOIN;\n"
                                 "mbarrier.init.shared::cta.b64 [%r1], "
                                 "1;\nfence.mbarrier_init.release.cluster;\n");
    strbuf_append(&text, body);
    strbuf_printf(
        &text,
        "\nJOIN: bar.sync 0;\nmov.u32 %%r3, 0;\nDUMP: setp.ge.u32 %%p1, %%r3, "
        "%zu;\n"
        "@%%p1 bra END;\nmad.lo.u32 %%r4, %%r0, 4, %%r3; setp.lt.u32 %%p2, "
        "%%r4, %zu;\n"
        "add.u32 %%r5, %%r2, %%r4; cvt.u64.u32 %%d4, %%r4; add.u64 %%d5, %%d1, "
        "%%d4;\n"
        "@%%p2 ld.shared.u32 %%r6, [%%r5];\n@%%p2 st.global.u32 [%%d5], %%r6;\n"
        "add.u32 %%r3, %%r3, 128;\nbra DUMP;\nEND: ret;\n}\n",
        dump, dump);
    check_with_ptxas(strbuf_text(&text), "sm_90");
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct device d = device_create(strbuf_text(&text));
        struct params params = {.in = device_put(&d, in, in_bytes, "in"),
                                .out = device_put(&d, out, out_bytes, "out")};
        struct emu_options options = emu_options_default();
        options.seed = seed;
        encode(params.in_map, t, params.in);
        encode(params.out_map, t, params.out);
        device_run(&d, "k", 1, 32, 32768, (uint64_t *)&params,
                   sizeof params / 8, &options);
        expect_clean(&d);
        if (seed == 5)
            device_get(&d, params.out, out, out_bytes);
        device_destroy(&d);
    }
    strbuf_destroy(&text);
}

#define WAIT0                                                                \
    "W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], 0;\n@!%p3 bra " \
    "W;\n"

/* A box of 64 x 8 elements at (column, row) of a 96 x 20 tensor, with each
 * swizzle. */
Test(emulator_hopper, tma_swizzles) {
    static uint16_t in[20][96], out[8 * 64];
    for (int r = 0; r < 20; r++)
        for (int c = 0; c < 96; c++)
            in[r][c] = (uint16_t)(r * 96 + c + 1);
    for (int swizzle = 0; swizzle < EMU_SWIZZLE_COUNT; swizzle++) {
        uint32_t width = swizzle == 1   ? 16
                         : swizzle == 2 ? 32
                                        : 64; /* elements of a row */
        struct tensor t = {.rank = 2,
                           .extents = {96, 20},
                           .strides = {192},
                           .box = {width, 8},
                           .swizzle = (enum emu_tensor_swizzle)swizzle};
        char body[1024];
        memset(out, 0, sizeof out);
        snprintf(body, sizeof body,
                 "mov.u32 %%r10, 16; mov.u32 %%r11, 5;\n"
                 "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%r1], %u;\n"
                 "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::"
                 "complete_tx::bytes "
                 "[%%r2], [%%d2, {%%r10, %%r11}], [%%r1];\n%s",
                 width * 16,
                 "W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], "
                 "0;\n@!%p3 bra W;\n");
        run_tma(body, &t, in, sizeof in, out, sizeof out, width * 16);
        for (uint32_t r = 0; r < 8; r++)
            for (uint32_t c = 0; c < width; c++) {
                uint32_t byte = (r * width + c) * 2, chunk = byte / 16,
                         line = byte / 128;
                uint32_t mask = swizzle == 0   ? 0
                                : swizzle == 1 ? 1
                                : swizzle == 2 ? 3
                                               : 7;
                uint32_t at = (chunk ^ (line & mask)) * 8 + byte / 2 % 8;
                cr_expect(out[at] == in[5 + r][16 + c],
                          "swizzle %d row %u column %u", swizzle, r, c);
            }
    }
}

/* Rows and columns outside on every side read as zero, or as NaN. */
Test(emulator_hopper, tma_out_of_bounds) {
    static uint16_t in[4][24], out[8][16];
    for (int i = 0; i < 96; i++)
        in[i / 24][i % 24] = (uint16_t)(i + 1);
    for (int nan_fill = 0; nan_fill < 2; nan_fill++) {
        struct tensor t = {.rank = 2,
                           .extents = {20, 4},
                           .strides = {48},
                           .box = {16, 8},
                           .nan_fill = nan_fill};
        run_tma("mov.u32 %r10, 8; mov.s32 %r11, -2;\n"
                "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\n"
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::"
                "complete_tx::bytes "
                "[%r2], [%d2, {%r10, %r11}], [%r1];\n" WAIT0,
                &t, in, sizeof in, out, sizeof out, 256);
        for (int r = 0; r < 8; r++)
            for (int c = 0; c < 16; c++) {
                bool inside = r >= 2 && r < 6 && c < 12;
                uint16_t outside = nan_fill ? 0x7fff : 0;
                cr_expect(out[r][c] == (inside ? in[r - 2][8 + c] : outside),
                          "%d %d", r, c);
            }
    }
}

/* The compiler's form: 5-D {64, rows, panels, heads, batch}, two panels in one
 * copy. */
Test(emulator_hopper, tma_five_dimensions) {
    static uint16_t in[2][3][10][128],
        out[2][8][64]; /* batch, head, row, column */
    for (int i = 0; i < 2 * 3 * 10 * 128; i++)
        ((uint16_t *)in)[i] = (uint16_t)(i % 60000 + 1);
    struct tensor t = {.rank = 5,
                       .extents = {64, 10, 2, 3, 2},
                       .strides = {256, 128, 2560, 7680},
                       .box = {64, 8, 2, 1, 1},
                       .swizzle = EMU_SWIZZLE_128B};
    run_tma(
        "mov.u32 %r10, 0; mov.u32 %r11, 4; mov.u32 %r12, 2; mov.u32 %r13, 1;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 2048;\n"
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::"
        "bytes "
        "[%r2], [%d2, {%r10, %r11, %r10, %r12, %r13}], [%r1];\n" WAIT0,
        &t, in, sizeof in, out, sizeof out, 2048);
    for (uint32_t p = 0; p < 2; p++)
        for (uint32_t r = 0; r < 8; r++)
            for (uint32_t c = 0; c < 64; c++) {
                uint32_t at = ((c / 8) ^ (r & 7)) * 8 + c % 8;
                uint16_t expect = 4 + r < 10 ? in[1][2][4 + r][p * 64 + c] : 0;
                cr_expect(out[p][r][at] == expect, "panel %u row %u column %u",
                          p, r, c);
            }
}

/* A store writes what is inside and nothing else. */
Test(emulator_hopper, tma_store) {
    static uint16_t in[4][24], out[4][24];
    memset(out, 0x55, sizeof out);
    for (int i = 0; i < 96; i++)
        in[i / 24][i % 24] = (uint16_t)(i + 1);
    struct tensor t = {
        .rank = 2, .extents = {20, 4}, .strides = {48}, .box = {16, 8}};
    run_tma("mov.u32 %r10, 8; mov.u32 %r11, 1;\n"
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\n"
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_"
            "tx::bytes "
            "[%r2], [%d2, {%r10, %r11}], [%r1];\n" WAIT0
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d3, "
            "{%r10, %r11}], [%r2];\n"
            "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n",
            &t, in, sizeof in, out, sizeof out, 0);
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 24; c++)
            cr_expect(out[r][c] ==
                          (r >= 1 && c >= 8 && c < 20 ? in[r][c] : 0x5555),
                      "%d %d", r, c);
}

Test(emulator_hopper, bulk_copies) {
    static uint32_t in[64], out[64];
    for (uint32_t i = 0; i < 64; i++)
        in[i] = i * 3 + 1;
    struct tensor t = {.rank = 1, .extents = {8}, .box = {8}};
    run_tma("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 256;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%r2], [%d0], 128, "
            "[%r1];\nadd.u32 %r9, %r2, 128; add.u64 %d9, %d0, 128;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%r9], [%d9], 128, "
            "[%r1];\n" WAIT0
            "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 256;\n"
            "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\n",
            &t, in, sizeof in, out, sizeof out, 0);
    cr_expect(memcmp(in, out, sizeof in) == 0);
}

/* A ring of two stages: warp 0 produces, warps 1 and 2 consume, several rounds,
 * so that phases change parity; every interleaving gives the same sums. */
Test(emulator_hopper, mbarrier_pipeline) {
    static const char text[] = PTX_HEAD(
        "sm_90") ".extern .shared .align 16 .b8 smem[];\n"
                 ".visible .entry k(.param .u64 out)\n{\n.reg .pred %p<8>; "
                 ".reg .b32 %r<20>; .reg .b64 %d<4>;\n"
                 "ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, "
                 "smem; shr.u32 %r2, %r0, 5;\n"
                 "and.b32 %r3, %r0, 31; setp.eq.u32 %p0, %r0, 0;\n"
                 "@!%p0 bra READY;\n"
                 "mbarrier.init.shared::cta.b64 [%r1], 32; "
                 "mbarrier.init.shared::cta.b64 [%r1+8], 32;\n"
                 "mbarrier.init.shared::cta.b64 [%r1+16], 64; "
                 "mbarrier.init.shared::cta.b64 [%r1+24], 64;\n"
                 "READY: bar.sync 0;\nmov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 "
                 "%r9, 0;\n"
                 "setp.ne.u32 %p1, %r2, 0;\n@%p1 bra CONSUME;\n"
                 "PRODUCE: and.b32 %r6, %r4, 1; shl.b32 %r7, %r6, 3; add.u32 "
                 "%r7, %r7, %r1; shr.u32 %r8, %r4, 1;\n"
                 "and.b32 %r8, %r8, 1; xor.b32 %r8, %r8, 1;\n"
                 "PW: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r7+16], "
                 "%r8;\n@!%p2 bra PW;\n"
                 "mad.lo.u32 %r10, %r6, 128, %r1; mad.lo.u32 %r10, %r3, 4, "
                 "%r10; mad.lo.u32 %r11, %r4, 100, %r3;\n"
                 "st.shared.u32 [%r10+64], "
                 "%r11;\nmbarrier.arrive.shared::cta.b64 _, [%r7];\n"
                 "add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 9;\n@%p3 bra "
                 "PRODUCE;\nbra END;\n"
                 "CONSUME: and.b32 %r6, %r4, 1; shl.b32 %r7, %r6, 3; add.u32 "
                 "%r7, %r7, %r1; shr.u32 %r8, %r4, 1;\n"
                 "and.b32 %r8, %r8, 1;\n"
                 "CW: mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r7], "
                 "%r8;\n@!%p2 bra CW;\n"
                 "mad.lo.u32 %r10, %r6, 128, %r1; mad.lo.u32 %r10, %r3, 4, "
                 "%r10; ld.shared.u32 %r11, [%r10+64];\n"
                 "add.u32 %r9, %r9, %r11;\nmbarrier.arrive.shared::cta.b64 _, "
                 "[%r7+16];\n"
                 "add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 9;\n@%p3 bra "
                 "CONSUME;\n"
                 "END: mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %d0, %d1; "
                 "st.global.u32 [%d1], %r9;\nret;\n}\n";
    uint32_t out[96];
    check_with_ptxas(text, "sm_90");
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct device d = device_create(text);
        struct emu_options options = emu_options_default();
        options.seed = seed;
        uint64_t address = device_put(&d, NULL, sizeof out, "out");
        device_run(&d, "k", 1, 96, 512, &address, 1, &options);
        expect_clean(&d);
        device_get(&d, address, out, sizeof out);
        for (uint32_t i = 32; i < 96; i++)
            cr_expect(out[i] == 3600 + 9 * (i % 32));
        device_destroy(&d);
    }
}

/* A cluster of one CTA has rank 0 of 1; mapa gives the CTA's own address. */
Test(emulator_hopper, cluster_of_one) {
    static const char text[] = PTX_HEAD(
        "sm_90") ".shared .align 16 .b8 word[16];\n.visible .entry k(.param "
                 ".u64 out)\n{\n"
                 ".reg .b32 %r<9>; .reg .b64 %d0;\nld.param.u64 %d0, [out]; "
                 "mov.u32 %r0, %cluster_ctarank;\n"
                 "mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, word; mov.u32 "
                 "%r3, 0;\n"
                 "mapa.shared::cluster.u32 %r4, %r2, %r3; sub.u32 %r4, %r4, "
                 "%r2;\n"
                 "barrier.cluster.arrive.release.aligned;\nbarrier.cluster."
                 "wait.acquire.aligned;\n"
                 "griddepcontrol.wait;\nadd.u32 %r4, %r4, %r0; mad.lo.u32 %r4, "
                 "%r1, 10, %r4;\n"
                 "st.global.u32 [%d0], %r4; griddepcontrol.launch_dependents; "
                 "nanosleep.u32 20;\nret;\n}\n";
    uint32_t out = 0;
    check_with_ptxas(text, "sm_90");
    struct device d = device_create(text);
    uint64_t address = device_put(&d, NULL, 4, "out");
    device_run(&d, "k", 1, 64, 0, &address, 1, NULL);
    expect_clean(&d);
    device_get(&d, address, &out, 4);
    cr_expect(out == 10);
    device_destroy(&d);
}

Test(emulator_hopper, tensor_maps_are_checked) {
    static const struct {
        uint64_t address, extent, stride;
        uint32_t rank, box;
        enum emu_tensor_swizzle swizzle;
        const char *message;
    } rows[] = {
        {0x1008, 64, 128, 2, 64, EMU_SWIZZLE_128B,
         "the address 0x1008 is no multiple of 16"},
        {0x1000, 0, 128, 2, 64, EMU_SWIZZLE_128B,
         "extent 0 of axis 0 is not in [1, 2^32]"},
        {0x1000, 64, 120, 2, 64, EMU_SWIZZLE_128B,
         "stride 120 of axis 1 is no multiple of 16 below 2^40"},
        {0x1000, 64, 128, 6, 64, EMU_SWIZZLE_128B, "rank 6 is not in [1, 5]"},
        {0x1000, 64, 128, 2, 257, EMU_SWIZZLE_NONE,
         "box extent 257 of axis 0 is not in [1, 256]"},
        {0x1000, 64, 128, 2, 64, EMU_SWIZZLE_64B,
         "the inner box extent has 128 bytes, the swizzle allows 64"},
        {0x1000, 64, 128, 2, 4, EMU_SWIZZLE_NONE,
         "the inner box extent has 8 bytes, no multiple of 16"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint8_t map[128];
        uint64_t extents[6] = {rows[i].extent, 8, 8, 8, 8, 8};
        uint64_t strides[5] = {rows[i].stride, 4096, 4096, 4096, 4096};
        uint32_t box[6] = {rows[i].box, 8, 1, 1, 1, 1},
                 ones[6] = {1, 1, 1, 1, 1, 1};
        struct emu_error error = {""};
        cr_expect(!emu_tensor_map_encode(map, EMU_TENSOR_BFLOAT16, rows[i].rank,
                                         rows[i].address, extents, strides, box,
                                         ones, rows[i].swizzle, false, &error));
        cr_expect_str_eq(error.text, rows[i].message);
    }
}
