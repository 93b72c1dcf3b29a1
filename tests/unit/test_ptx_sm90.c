/* Kernels with warp roles (sm_90a): what the PTX holds, and what ptxas makes of
 * it. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/compile_util.h"
#include "tests/unit/ptx_util.h"

TestSuite(ptx_sm90, .init = compile_setup, .fini = compile_teardown);

/* The PTX of `attention a { head_dim D; LINES }` for sm_90a. */
static struct compiled compiled_of(int head_dim, const char *lines,
                                   const char *schedule) {
    const char *spec = arena_printf(
        arena, "attention a { dtype bf16; head_dim %d; group any; %s }",
        head_dim, lines);
    struct compile_options options = {
        .target = "sm_90a", .schedule = schedule, .verify_each = true};
    struct compiled compiled;
    cr_assert(compile_spec(spec, &options, &compiled), "%s", messages());
    return compiled;
}

static const char *ptx_of(int head_dim, const char *lines,
                          const char *schedule) {
    return compiled_of(head_dim, lines, schedule).ptx;
}

/* ---- Instructions ------------------------------------------------------- */

/* Products: Q K of the first block, Q K and P V in the loop, the last P V. */
Test(ptx_sm90, hand_written_module) {
    struct ptx_case c = ptx_case_file("causal-d128-sm90a", "sm_90a");
    cr_assert_not_null(c.text, "%s", ptx_case_errors(&c));
    cr_expect_eq(ptx_count(c.text, "wgmma.mma_async"), 4 * 8);
    cr_expect_eq(ptx_count(c.text, "wgmma.commit_group"), 4);
    cr_expect_eq(ptx_count(c.text, "wgmma.wait_group"), 4);
    cr_expect_eq(ptx_count(c.text, "wgmma.fence"), 3);
    cr_expect_eq(ptx_count(c.text, "cp.async.bulk.tensor.5d"), 6);
    cr_expect_eq(ptx_count(c.text, "mbarrier.init"), 12);
    cr_expect_eq(ptx_count(c.text, "setmaxnreg"), 2);
    cr_expect_eq(ptx_count(c.text, "ldmatrix"), 0);
    cr_expect_not_null(strstr(c.text, ".align 1024"));
    cr_expect_not_null(strstr(c.text, "causal(\n    .param .align 64 .b8"));
    cr_expect_eq(c.info.tensor_map_count, 3);
    cr_expect_eq(c.info.entries[0].params[0].kind, KERNEL_PARAM_TENSOR_MAP);
    int spilled = ptx_assemble(c.text, "sm_90a");
    cr_expect(spilled == 0 || spilled == -1, "%d", spilled);
    ptx_case_end(&c);
}

/* Whole blocks run no mask code: it stands behind a branch, for the first block
 * and for the others, and selects each of a lane's 64 scores once.  Without a
 * mask only the first block can cross the end of the keys, and the loop has
 * none. */
Test(ptx_sm90, masks_are_guarded) {
    enum { SCORES = 64 };
    const char *full = ptx_of(128, "", "tile 128, 128");
    const char *causal = ptx_of(128, "mask kv <= q;", "tile 128, 128");
    cr_expect_eq(ptx_count(causal, "wgmma.mma_async"),
                 ptx_count(full, "wgmma.mma_async"));
    cr_expect_eq(ptx_count(causal, "selp.f32"),
                 ptx_count(full, "selp.f32") + SCORES);
    cr_expect_eq(ptx_count(causal, "ex2.approx"),
                 ptx_count(full, "ex2.approx"));
}

/* P goes from the exponentials to the product in the registers that the loop
 * carries: no tile is moved. */
Test(ptx_sm90, no_tile_is_moved) {
    const char *ptx = ptx_of(64, "", "tile 128, 64; consumers 2");
    const char *loop = strstr(ptx, "// ---- mainloop");
    cr_assert_not_null(loop);
    cr_expect_eq(ptx_count(loop, "mov.b32 %packed"), 0);
}

/* CTAs of entry `i` for a call on an H200. */
static int64_t grid_of(const struct kernel_info *info, size_t i, int batch,
                       int heads, int q_len, int kv_len) {
    struct size_env env = {.sizes = {batch, heads, heads, q_len, kv_len},
                           .sm_count = 132};
    int64_t grid = -1;
    cr_assert(size_expr_eval(&info->entries[i].grid_x, &env, &grid));
    return grid;
}

/* Exactly one of the two kernels has work, whatever the sizes. */
Test(ptx_sm90, one_variant_runs) {
    static const int lengths[] = {1, 127, 512, 2048, 4097, 16384, 1 << 30};
    static const struct {
        int dim, batch, heads, len;
        size_t full, causal; /* entries that run */
    } known[] = {{128, 1, 16, 512, 1, 1},  {128, 1, 16, 2048, 1, 1},
                 {128, 32, 16, 512, 1, 0}, {128, 4, 16, 4096, 0, 0},
                 {128, 2, 16, 8192, 0, 0}, {128, 1, 16, 16384, 0, 0},
                 {64, 4, 32, 4096, 1, 1},  {64, 1, 32, 16384, 0, 1}};
    for (size_t n = 0; n < sizeof known / sizeof known[0]; n++)
        for (int masked = 0; masked < 2; masked++) {
            struct compiled c =
                compiled_of(known[n].dim, masked ? "mask kv <= q;" : "", NULL);
            cr_assert_eq(c.info->entry_count, 2);
            size_t runs = masked ? known[n].causal : known[n].full;
            int len = known[n].len;
            cr_expect_gt(
                grid_of(c.info, runs, known[n].batch, known[n].heads, len, len),
                0);
            for (size_t i = 0; i < 49; i++) {
                int q = lengths[i % 7], kv = lengths[i / 7];
                cr_expect((grid_of(c.info, 0, 2, 16, q, kv) == 0) !=
                          (grid_of(c.info, 1, 2, 16, q, kv) == 0));
            }
        }
}

/* Of a spec with packed heads too, on small devices and large ones; packed
 * where few queries fill the tiles of single heads badly. */
Test(ptx_sm90, one_of_three_kernels_runs) {
    static const char *const targets[] = {"sm_80", "sm_90a"};
    static const int lengths[] = {0, 1, 5, 64, 127, 500, 4097, 1 << 26};
    static const int multiprocessors[] = {1, 16, 132};
    static const struct {
        int batch, kv_heads, q_len;
        bool packed;
    } known[] = {{64, 8, 1, true}, {1, 8, 1, false},    {8, 8, 20, true},
                 {8, 8, 64, true}, {4, 8, 4096, false}, {8, 8, 127, false},
                 {32, 2, 16, true}};
    for (int t = 0; t < 2; t++) {
        struct compiled c;
        struct compile_options options = {.target = targets[t]};
        cr_assert(compile_spec("attention a { dtype bf16; head_dim 128; group "
                               "8; mask kv <= q; }",
                               &options, &c),
                  "%s", messages());
        size_t count = c.info->entry_count;
        cr_assert_eq(count, t == 0 ? 2 : 3);
        for (size_t n = 0; n < 8 * 8 * 3; n++) {
            int q = lengths[n % 8], kv = lengths[n / 8 % 8], run = 0;
            struct size_env env = {.sizes = {2, 64, 8, q, kv},
                                   .sm_count = multiprocessors[n / 64]};
            for (size_t i = 0; i < count; i++) {
                int64_t grid = -1;
                cr_assert(
                    size_expr_eval(&c.info->entries[i].grid_x, &env, &grid));
                run += grid > 0;
            }
            cr_expect_eq(run, q > 0, "%s q_len %d", targets[t], q);
        }
        for (size_t n = 0; n < sizeof known / sizeof known[0]; n++) {
            struct size_env env = {
                .sizes = {known[n].batch, 8 * known[n].kv_heads,
                          known[n].kv_heads, known[n].q_len, 4096},
                .sm_count = 132};
            int64_t grid = -1;
            cr_assert(size_expr_eval(&c.info->entries[count - 1].grid_x, &env,
                                     &grid));
            cr_expect_eq(grid > 0, known[n].packed, "%s, batch %d, q_len %d",
                         targets[t], known[n].batch, known[n].q_len);
        }
    }
}

/* Q comes in one box, query after query, each with the heads of a group. */
Test(ptx_sm90, packed_heads_are_one_box) {
    struct compiled c;
    struct compile_options options = {.target = "sm_90a"};
    cr_assert(compile_spec("attention a { dtype bf16; head_dim 64; group 16; }",
                           &options, &c),
              "%s", messages());
    const struct kernel_entry *packed =
        &c.info->entries[c.info->entry_count - 1];
    int boxes = 0; /* of Q and of O */
    for (size_t p = 0; p < packed->param_count; p++) {
        if (packed->params[p].kind != KERNEL_PARAM_TENSOR_MAP)
            continue;
        const struct kernel_tensor_map *map =
            &c.info->tensor_maps[packed->params[p].index];
        bool has_rows =
            map->tensor == KERNEL_TENSOR_Q || map->tensor == KERNEL_TENSOR_O;
        cr_expect_eq(map->heads, has_rows ? 16 : 1);
        boxes += has_rows && map->box_rows == 64;
    }
    cr_expect_eq(boxes, 2);
}

/* Of a window with D 64 tall tiles waste less; in whatever spelling. */
Test(ptx_sm90, windows_take_tall_tiles) {
    static const struct {
        const char *mask;
        int tile_m;
    } rows[] = {
        {"mask kv <= q && q - kv < 128;", 256},
        {"let d = q - kv; mask d >= 0; mask d < 128;", 256},
        {"mask kv > q - 128;", 256},
        {"mask q + 128 >= kv && -kv + q <= 128;", 256},
        {"param w: i32; mask abs(kv - q) < w;", 256},
        {"mask kv <= q;", 192},
        {"mask q >= kv - 3;", 192},
        {"mask kv < 100;", 192},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cr_expect_eq(compiled_of(64, rows[i].mask, NULL).plan.tile_m,
                     rows[i].tile_m, "%s", rows[i].mask);
}

/* Head dimensions that are no whole panels run without roles. */
Test(ptx_sm90, no_roles_where_tma_cannot) {
    const char *ptx = ptx_of(72, "", NULL);
    cr_expect_eq(ptx_count(ptx, "wgmma"), 0);
    cr_expect(ptx_count(ptx, "mma.sync") > 0);
    cr_expect(ptx_assemble(ptx, "sm_90a") >= -1);
}

/* ---- What ptxas says ---------------------------------------------------- */

/* No spills, and wgmma stays asynchronous. */
static void assemble(int head_dim, const char *lines) {
    int spilled = ptx_assemble(ptx_of(head_dim, lines, NULL), "sm_90a");
    cr_expect(spilled == 0 || spilled == -1, "head_dim %d, '%s': %d", head_dim,
              lines, spilled);
}

Test(ptx_sm90, d64) {
    assemble(64, "");
    assemble(64, "mask kv <= q;");
}
Test(ptx_sm90, d128) {
    assemble(128, "");
    assemble(128, "mask kv <= q;");
}
Test(ptx_sm90, d192) {
    assemble(192, "mask kv <= q;");
}
Test(ptx_sm90, d256) {
    assemble(256, "");
    assemble(256, "mask kv <= q;");
}

/* ---- Schedules ---------------------------------------------------------- */

Test(ptx_sm90, schedule_is_visible) {
    const char *pingpong = ptx_of(128, "", "consumers 2; overlap pingpong");
    const char *intra = ptx_of(128, "", "consumers 2; overlap intra");
    cr_expect(ptx_count(pingpong, "bar.arrive") > 0);
    cr_expect_eq(ptx_count(intra, "bar.arrive"), 0);
    cr_expect_not_null(strstr(pingpong, ".maxntid 384"));
    const char *four = ptx_of(64, "", "consumers 4; tile 256, 64; stages 4");
    cr_expect_not_null(strstr(four, ".maxntid 640"));
    cr_expect_not_null(strstr(four, "setmaxnreg.inc.sync.aligned.u32 112"));
}

/* Both kernels wait for the grids before them once, before they touch global
 * memory. */
Test(ptx_sm90, kernels_wait_for_the_grids_before) {
    struct compiled c = compiled_of(
        128, "tensor doc: i32[q_len]; mask doc[q] == doc[kv];", "consumers 2");
    cr_assert_eq(c.info->entry_count, 2);
    const char *at = c.ptx;
    for (size_t i = 0; i < 2; i++) {
        cr_expect(c.info->entries[i].programmatic);
        const char *entry = strstr(at, ".visible .entry");
        const char *wait = strstr(entry, "griddepcontrol.wait;");
        cr_assert_not_null(wait);
        static const char *const accesses[] = {"ld.global", "st.global",
                                               "atom.global", "cp.async.bulk"};
        for (size_t k = 0; k < sizeof accesses / sizeof accesses[0]; k++) {
            const char *access = strstr(entry, accesses[k]);
            cr_expect(!access || access > wait, "%s", accesses[k]);
        }
        at = wait;
    }
    cr_expect_eq(ptx_count(c.ptx, "griddepcontrol.wait;"), 2);
    cr_expect_eq(ptx_count(c.ptx, "ld.global.nc"), 0);
}

/* One with non-coherent loads in its loop does not begin early. */
Test(ptx_sm90, reads_of_pairs_are_non_coherent) {
    struct compiled c = compiled_of(
        128, "tensor bias: f32[q_len, kv_len]; score s + bias[q, kv];", NULL);
    cr_expect(!c.info->entries[0].programmatic);
    cr_expect_eq(ptx_count(c.ptx, "griddepcontrol"), 0);
    cr_expect(ptx_count(c.ptx, "ld.global.nc") > 0);
}

/* The tile that a spec's lines get: lets count where a mask uses them, and an
 * index is looked at through them. */
Test(ptx_sm90, tiles_by_lines) {
    static const struct {
        const char *lines;
        int tile_m, tile_n;
    } rows[] = {
        {"let m = exp2(-8.0 * f32(h + 1) / f32(heads));"
         "score s + m * f32(kv - q); mask kv <= q;",
         192, 80},
        {"tensor gate: f32[kv_len]; score s + gate[kv];", 192, 64},
        {"score 30.0 * tanh(s / 30.0);", 192, 80},
        {"score max(-s, tanh(s));", 128, 80},
        {"tensor keep: bool[(q_len + 127) / 128, (kv_len + 127) / 128];"
         "let row = q / 128; let column = kv / 128; mask keep[row, column];",
         128, 128},
        {"tensor doc: i32[q_len]; mask doc[q] == doc[kv];", 192, 64},
        {"param w: i32 = 8; mask kv / w <= q / w;", 192, 64},
        {"param w: i32 = 8; let x = kv % w; let y = kv / w;"
         "mask x <= q % w && y <= q / w;",
         128, 128},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct schedule_plan plan = compiled_of(128, rows[i].lines, NULL).plan;
        cr_expect(plan.tile_m == rows[i].tile_m &&
                      plan.tile_n == rows[i].tile_n,
                  "%s: tile %d, %d", rows[i].lines, plan.tile_m, plan.tile_n);
    }
}

static bool refused(const char *schedule) {
    const char *spec = "attention a { dtype f16; head_dim 128; group any; }";
    struct compile_options options = {.target = "sm_90a", .schedule = schedule};
    struct compiled compiled;
    return !compile_spec(spec, &options, &compiled);
}

Test(ptx_sm90, schedules_that_do_not_fit_are_refused) {
    cr_expect(refused("tile 192, 128"));
    cr_expect_not_null(strstr(messages(), "with 3 consumers there are 160"));
    cr_expect(refused("tile 128, 128; stages 4"));
    cr_expect_not_null(strstr(messages(), "of shared memory"));
    cr_expect_not_null(strstr(messages(), "the nearest schedule that fits"));
    cr_expect(refused("tile 128, 64; consumers 3"));
    cr_expect_not_null(strstr(messages(), "192 in all"));
    cr_expect(refused("consumers 5"));
    cr_expect(refused("rescale_threshold 16"));
    cr_expect_not_null(strstr(messages(), "f16 takes at most 15"));
    cr_expect(refused("overlap none"));
}

/* Each line doubles the paths to the first one; what walks them all never ends.
 */
Test(ptx_sm90, shared_values_are_walked_once, .timeout = 60) {
    static const struct {
        const char *first, *twice, *last;
    } rows[] = {
        {"kv < 5", "&&", "mask x40 && kv <= q;"},
        {"kv < 5", "||", "mask x40 || kv <= q;"},
        {"kv <= q", "||", "mask x40;"},
        {"kv", "+", "mask x40 < 5 || kv <= q;"},
        {"q - kv", "*", "mask x40 < 5;"},
        {"doc[b, q] == doc[b, kv]", "&&", "mask x40;"},
        {"doc[b, q] == doc[b, kv]", "&&", "mask kv <= q; mask x40;"},
        {"s", "+", "score x40;"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *lines =
            arena_printf(arena, "tensor doc: i32[batch, kv_len]; let x0 = %s;",
                         rows[i].first);
        for (int n = 1; n <= 40; n++)
            lines = arena_printf(arena, "%s let x%d = x%d %s x%d;", lines, n,
                                 n - 1, rows[i].twice, n - 1);
        lines = arena_printf(arena, "%s %s", lines, rows[i].last);
        cr_expect_not_null(ptx_of(64, lines, NULL));
    }
}
