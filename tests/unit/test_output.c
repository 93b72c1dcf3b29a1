/* Names of outputs, and the account of explain by hand-counted figures. */
#include <criterion/criterion.h>
#include <string.h>

#include "frontend/frontend.h"
#include "support/arena.h"
#include "tools/account.h"
#include "tools/block_map.h"
#include "tools/output.h"

Test(output, kind_by_extension) {
    cr_expect_eq(output_kind_of("a/b.mlir"), OUTPUT_MODULE);
    cr_expect_eq(output_kind_of("x.ptx"), OUTPUT_PTX);
    cr_expect_eq(output_kind_of("x.sm_80.cubin"), OUTPUT_CUBIN);
    cr_expect_eq(output_kind_of("x.h"), OUTPUT_HEADER);
    cr_expect_eq(output_kind_of("x.hh"), OUTPUT_NONE);
    cr_expect_eq(output_kind_of("ptx"), OUTPUT_NONE);
}

Test(output, target_goes_before_the_extension) {
    struct arena *arena = arena_create();
    cr_expect_str_eq(output_path_for_target(arena, "out.cubin", "sm_80"),
                     "out.sm_80.cubin");
    cr_expect_str_eq(output_path_for_target(arena, "a.b/out", "sm_90a"),
                     "a.b/out.sm_90a");
    cr_expect_str_eq(output_path_for_target(arena, "a.b/x.y.h", "sm_80"),
                     "a.b/x.y.sm_80.h");
    arena_destroy(arena);
}

static const struct attention *attention_of(struct arena *arena,
                                            const char *lines) {
    struct source_set *sources = source_set_create(arena);
    struct diag_sink *diags = diag_sink_create(arena, sources);
    const char *text =
        arena_printf(arena,
                     "fn twice(x: i32) -> i32 = x + x;\n"
                     "attention a { dtype bf16; head_dim 64; %s }",
                     lines);
    const struct spec *spec = frontend_check_text(
        arena, sources, "a.attn", text, strlen(text), NULL, diags);
    cr_assert_not_null(spec);
    return &spec->attentions[0];
}

/* Operations per pair: what only depends on the row or the column is free, a
 * let counts once, a fn by what its arguments depend on. */
Test(account, operations_per_pair) {
    struct arena *arena = arena_create();
    const struct schedule_plan plan = {
        .target = "sm_80", .tile_m = 64, .tile_n = 32, .warps = 4};
    const struct {
        const char *lines;
        int score, mufu, mask;
    } cases[] = {
        {"", 0, 0, 0},
        {"mask kv <= q;", 0, 0, 1},
        {"mask kv + 7 * kv <= q * q - 3;", 0, 0, 1},
        {"score s * 2.0 + exp2(f32(q));", 2, 0, 0},
        {"score 3.0 * tanh(s / 3.0);", 3, 2, 0},
        {"score s / (s + 1.0);", 2, 1, 0},
        {"let d = q - kv; mask d >= 0 && d < 9;", 0, 0, 4},
        {"mask twice(q) < twice(kv);", 0, 0, 1},
        {"mask twice(q - kv) > 3;", 0, 0, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct account a =
            account_of(arena, attention_of(arena, cases[i].lines), &plan);
        cr_expect_eq(a.score_operations, cases[i].score, "%s: score %d",
                     cases[i].lines, a.score_operations);
        cr_expect_eq(a.score_mufu, cases[i].mufu, "%s: mufu %d", cases[i].lines,
                     a.score_mufu);
        cr_expect_eq(a.mask_operations, cases[i].mask, "%s: mask %d",
                     cases[i].lines, a.mask_operations);
        cr_expect_eq(a.amount[UNIT_MUFU], 64 * 32 * (1 + cases[i].mufu));
    }
    arena_destroy(arena);
}

Test(account, units) {
    struct arena *arena = arena_create();
    const struct schedule_plan plan = {.target = "sm_80",
                                       .tile_m = 128,
                                       .tile_n = 64,
                                       .warps = 4,
                                       .q_registers = true};
    struct account a = account_of(arena, attention_of(arena, ""), &plan);
    cr_expect_eq(a.amount[UNIT_MMA], 2.0 * 128 * 64 * 128);
    cr_expect_eq(a.cycles[UNIT_MMA], 1024);
    cr_expect_eq(a.cycles[UNIT_MUFU], 512);
    /* K and V once in, once out for each of the four warps */
    cr_expect_eq(a.amount[UNIT_SHARED], 5 * 64 * 128 * 2);
    cr_expect_eq(a.bound, UNIT_MMA);
    arena_destroy(arena);
}

/* With roles the producer's warpgroup reads nothing: K and V once in, once out
 * for each of the three consumers, Q for each block. */
Test(account, consumers_read) {
    struct arena *arena = arena_create();
    const struct schedule_plan plan = {.target = "sm_90a",
                                       .tile_m = 192,
                                       .tile_n = 128,
                                       .consumers = 3,
                                       .warps = 16,
                                       .shared_q = 192 * 64 * 2};
    struct account a = account_of(arena, attention_of(arena, ""), &plan);
    cr_expect_eq(a.amount[UNIT_SHARED], 4 * 128 * 128 * 2 + 192 * 64 * 2);
    cr_expect_eq(a.bound, UNIT_MMA);
    arena_destroy(arena);
}

/* Every tile's class against its pairs, counted one by one. */
Test(block_map, classes) {
    struct arena *arena = arena_create();
    const char *missing;
    const struct attention *attention =
        attention_of(arena, "mask kv <= q + 3 && q - kv < 40;");
    struct ref_program *program = ref_compile(arena, attention, &missing);
    struct ref_call call = {.sizes = {1, 1, 1, 101, 90}};
    struct block_map map = block_map_create(arena, program, &call, 0, 0, 16, 8);
    cr_assert_eq(map.rows, 7);
    cr_assert_eq(map.columns, 12);
    int64_t total = 0;
    for (int row = 0; row < 7; row++)
        for (int column = 0; column < 12; column++) {
            int kept = 0, pairs = 0;
            for (int q = 16 * row; q < 16 * row + 16 && q < 101; q++)
                for (int kv = 8 * column; kv < 8 * column + 8; kv++) {
                    pairs++; /* keys beyond kv_len count: such tiles are partial
                              */
                    kept += kv < 90 && kv <= q + 3 && q - kv < 40;
                }
            enum block_class expected = kept == 0       ? BLOCK_SKIP
                                        : kept == pairs ? BLOCK_WHOLE
                                                        : BLOCK_PARTIAL;
            cr_expect_eq(map.classes[row * 12 + column], expected,
                         "tile %d, %d", row, column);
            total += kept;
        }
    cr_expect_eq(map.kept, total);
    cr_expect_eq(map.skip + map.partial + map.whole, 7 * 12);
    struct strbuf text;
    strbuf_init(&text, arena);
    block_map_print(&map, &text);
    cr_expect_eq(strncmp(strbuf_text(&text), "        0  +++.........\n", 24),
                 0, "%s", strbuf_text(&text));
    arena_destroy(arena);
}
