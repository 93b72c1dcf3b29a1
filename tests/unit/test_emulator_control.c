/* Branches, loops, calls, barriers and exchange between lanes, for many
 * seeds. */
#include "tests/unit/emulator_harness.h"

enum { SEEDS = 6 };

/* Registers and the thread's place in `out` (u32 each); the body computes
 * %r9. */
#define THREAD_HEAD(target)                                                \
    PTX_HEAD(target)                                                       \
    "%s\n.extern .shared .align 16 .b8 smem[];\n"                          \
    ".visible .entry k(.param .u64 out)\n{\n.reg .pred %%p<8>; .reg .b32 " \
    "%%r<32>;"                                                             \
    ".reg .b64 %%d<8>;\nld.param.u64 %%d0, [out];\n"                       \
    "mov.u32 %%r0, %%tid.x; mov.u32 %%r1, %%ntid.x; mov.u32 %%r2, "        \
    "%%ctaid.x;\n"                                                         \
    "mad.lo.u32 %%r3, %%r2, %%r1, %%r0; mul.wide.u32 %%d1, %%r3, 4;\n"     \
    "add.u64 %%d0, %%d0, %%d1;\n%s\nst.global.u32 [%%d0], %%r9;\nret;\n}\n"

/* Runs `body` for `threads` threads with several seeds; out[i] must be
 * expect[i]. */
static void run_threads(const char *functions, const char *body, uint32_t grid,
                        uint32_t threads, const uint32_t *expect) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    strbuf_printf(&text, THREAD_HEAD("sm_90"), functions, body);
    check_with_ptxas(strbuf_text(&text), "sm_90");
    size_t count = (size_t)grid * threads;
    uint32_t *out = calloc(count, 4);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct device d = device_create(strbuf_text(&text));
        struct emu_options options = emu_options_default();
        options.seed = seed;
        options.threads = 1 + (int)seed % 2;
        uint64_t address = device_put(&d, NULL, count * 4, "out");
        device_run(&d, "k", grid, threads, 4096, &address, 1, &options);
        expect_clean(&d);
        device_get(&d, address, out, count * 4);
        for (size_t i = 0; i < count; i++)
            cr_assert(out[i] == expect[i],
                      "seed %" PRIu64 ", thread %zu: got %u, expected %u", seed,
                      i, out[i], expect[i]);
        device_destroy(&d);
    }
    free(out);
    strbuf_destroy(&text);
}

Test(emulator_control, divergent_if_else) {
    uint32_t expect[40];
    for (uint32_t i = 0; i < 40; i++)
        expect[i] = i % 3 == 0 ? i + 100 : i * 2;
    run_threads("",
                "rem.u32 %r4, %r0, 3; setp.eq.u32 %p0, %r4, 0;\n@%p0 bra A;\n"
                "shl.b32 %r9, %r0, 1;\nbra B;\nA: add.u32 %r9, %r0, 100;\nB:",
                1, 40, expect);
}

/* Each lane leaves the loop at another time; behind it all meet for a vote. */
Test(emulator_control, divergent_loop_meets_again) {
    uint32_t expect[32];
    for (uint32_t i = 0; i < 32; i++)
        expect[i] = i * (i + 1) / 2 + 1000;
    run_threads("",
                "mov.u32 %r4, 0; mov.u32 %r9, 0;\nL: add.u32 %r9, %r9, %r4;\n"
                "setp.ge.u32 %p0, %r4, %r0;\n@%p0 bra E;\nadd.u32 %r4, %r4, "
                "1;\nbra L;\n"
                "E: activemask.b32 %r5; setp.eq.u32 %p1, %r5, 0xffffffff;\n"
                "@%p1 add.u32 %r9, %r9, 1000;",
                1, 32, expect);
}

/* Two nested loops whose inner branch leaves both. */
Test(emulator_control, break_out_of_nested_loops) {
    uint32_t expect[32];
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t steps = 0;
        for (uint32_t a = 0; a < 5; a++)
            for (uint32_t b = 0; b < 5; b++) {
                if (a * b > i)
                    goto done;
                steps++;
            }
    done:
        expect[i] = steps;
    }
    run_threads(
        "",
        "mov.u32 %r9, 0; mov.u32 %r4, 0;\nA: mov.u32 %r5, 0;\n"
        "B: mul.lo.u32 %r6, %r4, %r5; setp.gt.u32 %p0, %r6, %r0;\n@%p0 bra E;\n"
        "add.u32 %r9, %r9, 1; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 5;\n"
        "@%p1 bra B;\nadd.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 5;\n@%p1 bra "
        "A;\nE:",
        1, 32, expect);
}

/* A branch into the middle of a loop: no structure, post-dominators only. */
Test(emulator_control, irreducible_loop) {
    uint32_t expect[32];
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t x = i, n = 0;
        bool middle = i & 1;
        for (;;) {
            if (!middle)
                x += 3;
            middle = false;
            x += 5;
            if (++n >= 1 + i % 4)
                break;
        }
        expect[i] = x;
    }
    run_threads(
        "",
        "mov.u32 %r9, %r0; mov.u32 %r4, 0; and.b32 %r5, %r0, 1; and.b32 %r6, "
        "%r0, 3;\n"
        "setp.ne.u32 %p0, %r5, 0;\n@%p0 bra MID;\nTOP: add.u32 %r9, %r9, 3;\n"
        "MID: add.u32 %r9, %r9, 5; setp.ge.u32 %p1, %r4, %r6; add.u32 %r4, "
        "%r4, 1;\n"
        "@!%p1 bra TOP;",
        1, 32, expect);
}

Test(emulator_control, lanes_exit_early) {
    uint32_t expect[64];
    for (uint32_t i = 0; i < 64; i++)
        expect[i] = i < 10 ? 5 : 7;
    run_threads("",
                "mov.u32 %r9, 5; setp.lt.u32 %p0, %r0, 10;\n@%p0 st.global.u32 "
                "[%d0], %r9;\n"
                "@%p0 exit;\nmov.u32 %r9, 7;",
                1, 64, expect);
}

Test(emulator_control, branch_table) {
    uint32_t expect[32];
    for (uint32_t i = 0; i < 32; i++)
        expect[i] = (i & 3) == 0   ? 10
                    : (i & 3) == 1 ? 21
                    : (i & 3) == 2 ? 32
                                   : 10;
    run_threads(
        "",
        "T: .branchtargets A, B, C, A;\nand.b32 %r4, %r0, 3;\nbrx.idx %r4, T;\n"
        "A: mov.u32 %r9, 10;\nbra E;\nB: mov.u32 %r9, 21;\nbra E;\n"
        "C: mov.u32 %r9, 32;\nE:",
        1, 32, expect);
}

/* Parameters in .param space, a divergent early return, two results of a
 * struct, a call under divergence. */
Test(emulator_control, calls) {
    static const char functions[] =
        ".func (.param .b32 res) twice_or_zero(.param .b32 x)\n{\n.reg .b32 "
        "%a; .reg .pred %q;\n"
        "ld.param.u32 %a, [x];\nsetp.gt.u32 %q, %a, 20;\n@%q bra BIG;\n"
        "shl.b32 %a, %a, 1; st.param.b32 [res], %a; ret;\n"
        "BIG: mov.u32 %a, 0; st.param.b32 [res+0], %a; ret;\n}\n"
        ".func (.param .align 8 .b8 res[16]) pair(.param .align 8 .b8 s[16], "
        ".param .b32 y)\n{\n"
        ".reg .b32 %a<4>; .reg .b64 %w;\nld.param.u32 %a0, [s+4]; ld.param.u64 "
        "%w, [s+8];\n"
        "ld.param.u32 %a1, [y]; add.u32 %a0, %a0, %a1; st.param.b32 [res+4], "
        "%a0;\n"
        "mov.u32 %a2, 0; st.param.b32 [res], %a2; st.param.b64 [res+8], %w; "
        "ret;\n}\n";
    uint32_t expect[32];
    for (uint32_t i = 0; i < 32; i++)
        expect[i] = (i & 1) ? (i > 20 ? 0 : 2 * i) : i + 1000 + 7;
    run_threads(
        functions,
        "and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0;\n@%p0 bra EVEN;\n"
        "{ .param .b32 p0; st.param.b32 [p0+0], %r0; .param .b32 ret0;\n"
        "call.uni (ret0), twice_or_zero, (p0);\nld.param.b32 %r9, [ret0+0]; "
        "}\nbra END;\n"
        "EVEN: mov.b64 %d4, 7;\n"
        "{ .param .align 8 .b8 p0[16]; st.param.b32 [p0+4], %r0; st.param.b64 "
        "[p0+8], %d4;\n"
        "st.param.b32 [p0], %r0; .param .b32 p1; mov.u32 %r7, 1000; "
        "st.param.b32 [p1], %r7;\n"
        ".param .align 8 .b8 ret0[16];\ncall (ret0), pair, (p0, p1);\n"
        "ld.param.b32 %r9, [ret0+4]; ld.param.b64 %d5, [ret0+8]; }\n"
        "cvt.u32.u64 %r8, %d5; add.u32 %r9, %r9, %r8;\nEND:",
        1, 32, expect);
}

Test(emulator_control, barrier_orders_warps) {
    uint32_t expect[128];
    for (uint32_t i = 0; i < 128; i++)
        expect[i] = (127 - i) * 3;
    run_threads(
        "",
        "mov.u32 %r4, smem; shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r4;\n"
        "mul.lo.u32 %r6, %r0, 3; st.shared.u32 [%r5], %r6;\nbar.sync 0;\n"
        "sub.u32 %r7, 127, %r0; shl.b32 %r7, %r7, 2; add.u32 %r7, %r7, %r4;\n"
        "ld.shared.u32 %r9, [%r7];",
        1, 128, expect);
}

/* Producer warp 0 arrives, consumer warp 1 waits; warps 2 and 3 are not
 * involved. */
Test(emulator_control, named_barrier_of_two_warps) {
    uint32_t expect[128];
    for (uint32_t i = 0; i < 128; i++)
        expect[i] = i / 32 == 1 ? 77 : 0;
    run_threads("",
                "mov.u32 %r9, 0; mov.u32 %r4, smem; shr.u32 %r5, %r0, 5;\n"
                "setp.eq.u32 %p0, %r5, 0; setp.eq.u32 %p1, %r5, 1; setp.eq.u32 "
                "%p2, %r0, 0;\n"
                "@%p2 st.shared.u32 [%r4], 77;\n@%p0 bar.arrive 3, 64;\n"
                "@%p1 bar.sync 3, 64;\n@%p1 ld.shared.u32 %r9, [%r4];",
                1, 128, expect);
}

Test(emulator_control, barrier_reductions) {
    uint32_t expect[96];
    for (uint32_t i = 0; i < 96; i++)
        expect[i] = 24 + 1000 + 0;
    run_threads("",
                "and.b32 %r4, %r0, 3; setp.eq.u32 %p0, %r4, 0;\n"
                "bar.red.popc.u32 %r9, 0, %p0;\nbar.red.or.pred %p1, 0, %p0;\n"
                "bar.red.and.pred %p2, 0, %p0;\n@%p1 add.u32 %r9, %r9, 1000;\n"
                "@%p2 add.u32 %r9, %r9, 5;",
                1, 96, expect);
}

Test(emulator_control, shuffles) {
    uint32_t up[32], down[32], bfly[32], idx[32], segment[32];
    for (uint32_t i = 0; i < 32; i++) {
        up[i] = i < 3 ? i + 500 : i - 3;
        down[i] = i > 28 ? i + 500 : i + 3;
        bfly[i] = i ^ 5;
        idx[i] = 9;
        segment[i] = (i & 24) + 2; /* lane 2 of each group of 8 */
    }
    run_threads("",
                "shfl.sync.up.b32 %r9|%p0, %r0, 3, 0, 0xffffffff;\n"
                "@!%p0 add.u32 %r9, %r9, 500;",
                1, 32, up);
    run_threads("",
                "shfl.sync.down.b32 %r9|%p0, %r0, 3, 31, 0xffffffff;\n"
                "@!%p0 add.u32 %r9, %r9, 500;",
                1, 32, down);
    run_threads("", "shfl.sync.bfly.b32 %r9, %r0, 5, 0x1f, 0xffffffff;", 1, 32,
                bfly);
    run_threads("", "shfl.sync.idx.b32 %r9, %r0, 9, 0x1f, 0xffffffff;", 1, 32,
                idx);
    run_threads("", "shfl.sync.idx.b32 %r9, %r0, 2, 0x181f, 0xffffffff;", 1, 32,
                segment);
}

Test(emulator_control, votes_and_reductions) {
    uint32_t vote[32], match[32], redux[32], elect[32];
    for (uint32_t i = 0; i < 32; i++) {
        vote[i] = 0xff + 1000 + 0;
        match[i] = 0x11111111u << (i & 3);
        redux[i] = 496 + 31 + 0xfffffff0u;
        elect[i] = i == 0;
    }
    run_threads(
        "",
        "setp.lt.u32 %p0, %r0, 8;\nvote.sync.ballot.b32 %r9, %p0, 0xffffffff;\n"
        "vote.sync.any.pred %p1, %p0, 0xffffffff; vote.sync.all.pred %p2, %p0, "
        "0xffffffff;\n"
        "vote.sync.uni.pred %p3, %p0, 0xffffffff;\n@%p1 add.u32 %r9, %r9, "
        "1000;\n"
        "@%p2 add.u32 %r9, %r9, 1;\n@%p3 add.u32 %r9, %r9, 1;",
        1, 32, vote);
    run_threads("",
                "and.b32 %r4, %r0, 3; match.any.sync.b32 %r9, %r4, 0xffffffff;",
                1, 32, match);
    run_threads(
        "",
        "redux.sync.add.u32 %r4, %r0, 0xffffffff; redux.sync.max.u32 %r5, %r0, "
        "0xffffffff;\nsub.s32 %r6, %r0, 16; redux.sync.min.s32 %r7, %r6, "
        "0xffffffff;\n"
        "add.u32 %r9, %r4, %r5; add.u32 %r9, %r9, %r7;",
        1, 32, redux);
    run_threads("", "elect.sync _|%p0, 0xffffffff; selp.u32 %r9, 1, 0, %p0;", 1,
                32, elect);
}

Test(emulator_control, special_registers) {
    uint32_t expect[2 * 48];
    for (uint32_t i = 0; i < 2 * 48; i++) {
        uint32_t thread = i % 48;
        expect[i] = i / 48 * 1000000 + 2 * 100000 + 48 * 1000 + thread % 32 +
                    thread / 32 * 100;
    }
    run_threads(
        "",
        "mov.u32 %r4, %laneid; mov.u32 %r5, %warpid; mov.u32 %r6, %nctaid.x;\n"
        "mad.lo.u32 %r9, %r5, 100, %r4; mad.lo.u32 %r9, %r6, 100000, %r9;\n"
        "mad.lo.u32 %r9, %r1, 1000, %r9; mad.lo.u32 %r9, %r2, 1000000, %r9;\n",
        2, 48, expect);
}

/* A lock that one lane holds while another of the same warp wants it: lanes of
 * a warp make progress independently. */
Test(emulator_control, lanes_wait_for_each_other) {
    uint32_t expect[32];
    for (uint32_t i = 0; i < 32; i++)
        expect[i] = 1;
    run_threads(
        "",
        "mov.u32 %r4, smem; setp.eq.u32 %p0, %r0, 0; mov.u32 %r9, 1;\n"
        "@%p0 st.volatile.shared.u32 [%r4], 0;\nbar.warp.sync 0xffffffff;\n"
        "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra WAIT;\n"
        "st.volatile.shared.u32 [%r4], 5;\nbra END;\n"
        "WAIT: ld.volatile.shared.u32 %r5, [%r4]; setp.ne.u32 %p2, %r5, 5;\n"
        "@%p2 bra WAIT;\nEND:",
        1, 32, expect);
}

/* CTAs that draw their work from one counter: the same for any number of
 * threads. */
Test(emulator_control, dynamic_work_is_deterministic) {
    static const char text[] = PTX_HEAD(
        "sm_80") ".visible .entry k(.param .u64 out, .param .u64 counter)\n{\n"
                 ".reg .pred %p; .reg .b32 %r<8>; .reg .b64 "
                 "%d<8>;\nld.param.u64 %d0, [out];\n"
                 "ld.param.u64 %d1, [counter]; mov.u32 %r0, %ctaid.x;\n"
                 "L: atom.global.add.u32 %r1, [%d1], 1; setp.ge.u32 %p, %r1, "
                 "64;\n@%p bra E;\n"
                 "mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d0, %d2; "
                 "st.global.u32 [%d2], %r0; bra L;\n"
                 "E: ret;\n}\n";
    uint32_t first[64], again[64];
    for (int threads = 1; threads <= 4; threads++) {
        struct device d = device_create(text);
        uint32_t zero = 0;
        uint64_t params[2] = {device_put(&d, NULL, sizeof first, "out"),
                              device_put(&d, &zero, 4, "counter")};
        struct emu_options options = emu_options_default();
        options.seed = 3;
        options.threads = threads;
        device_run(&d, "k", 6, 1, 0, params, 2, &options);
        expect_clean(&d);
        device_get(&d, params[0], threads == 1 ? first : again, sizeof first);
        cr_expect(threads == 1 || memcmp(first, again, sizeof first) == 0);
        device_destroy(&d);
    }
    bool shared = false;
    for (int i = 1; i < 64; i++)
        shared |= first[i] != first[0];
    cr_expect(shared, "one CTA did all the work");
}
