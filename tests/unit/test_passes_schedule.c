/* The planner: defaults fit, pinned keys are kept or refused with figures. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "passes/schedule-sm90.h"
#include "passes/schedule.h"
#include "passes/target_limits.h"

static struct arena *arena;
static struct diag_sink *diags;

static void setup(void) {
    arena = arena_create();
    diags = diag_sink_create(arena, source_set_create(arena));
}

static void teardown(void) {
    arena_destroy(arena);
}

TestSuite(schedule, .init = setup, .fini = teardown);

static struct schedule_problem problem(int qk, int v) {
    return (struct schedule_problem){.target = "sm_80",
                                     .head_dim_qk = qk,
                                     .head_dim_v = v,
                                     .dtype = SCALAR_BF16};
}

/* With roles, and a mask that leaves blocks out. */
static struct schedule_problem sparse_problem(void) {
    struct schedule_problem p = problem(128, 128);
    p.target = "sm_90a";
    p.has_mask = p.has_sparse_mask = true;
    return p;
}

static bool reported(const char *part) {
    struct strbuf text;
    strbuf_init(&text, arena);
    diag_render(diags, false, &text);
    return strstr(strbuf_text(&text), part) != NULL;
}

Test(schedule, every_head_dim_has_a_plan_that_fits) {
    for (int qk = 8; qk <= 256; qk += 8) {
        for (int v = 8; v <= 256; v += 8) {
            struct schedule_problem p = problem(qk, v);
            struct schedule_plan plan;
            cr_assert(schedule_resolve(&p, NULL, diags, &plan),
                      "head_dim %d, %d", qk, v);
            cr_assert_leq(plan.shared_bytes, 163 * 1024, "head_dim %d, %d", qk,
                          v);
            cr_assert_leq(plan.registers, 255, "head_dim %d, %d", qk, v);
            cr_assert_eq(plan.tile_m % (16 * plan.warps), 0, "head_dim %d, %d",
                         qk, v);
            cr_assert_geq(plan.ctas_per_sm, 1, "head_dim %d, %d", qk, v);
        }
    }
}

/* K and V have so many stages, Q so many buffers, and the bytes are theirs. */
static void expect_buffers(const struct schedule_plan *plan, int stages,
                           int q_stages) {
    cr_assert_eq(plan->stages, stages);
    cr_assert_eq(plan->q_stages, q_stages);
    cr_assert_eq(plan->shared_bytes,
                 q_stages * plan->shared_q +
                     stages * (plan->shared_k + plan->shared_v) +
                     plan->shared_list);
}

/* Q is there twice where K and V leave room: 192 x 64 keys at D128 do, 256
 * columns of head dimension do not. */
Test(schedule, roles_have_two_buffers_of_q_where_they_fit) {
    struct schedule_problem p = sparse_problem();
    struct schedule_plan plan;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    expect_buffers(&plan, 4, 2);
    p.head_dim_qk = p.head_dim_v = 256;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    expect_buffers(&plan, 2, 1);
}

/* The tiles of a narrow window are short; those of a full mask are not, whatever
 * room there is. */
Test(schedule, short_tiles_have_a_third_buffer_of_q_where_it_fits) {
    struct schedule_problem p = sparse_problem();
    struct schedule_plan plan;
    p.has_sparse_mask = false;
    p.has_window = true;
    p.head_dim_qk = p.head_dim_v = 64;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    expect_buffers(&plan, 8, 3);
    p.has_mask = p.has_window = false;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_eq(plan.q_stages, 2);
}

/* A mask in words of bits: each key's place in its word takes registers. */
Test(schedule, words_of_bits_take_narrower_blocks) {
    struct schedule_problem p = sparse_problem();
    struct schedule_plan plan;
    p.element_reads = true;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_eq(plan.tile_n, 128);
    p.reads_words = true;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_eq(plan.tile_n, 64);
}

/* Whatever a spec does, there is a plan for it. */
Test(schedule, roles_always_have_a_plan) {
    for (int facts = 0; facts < 1 << 9; facts++)
        for (int dim = 16; dim <= 256; dim += 16) {
            struct schedule_problem p = {.target = "sm_90a",
                                         .head_dim_qk = dim,
                                         .head_dim_v = dim,
                                         .dtype = SCALAR_BF16,
                                         .has_mask = true,
                                         .has_score = facts & 1,
                                         .element_reads = facts & 2,
                                         .has_sparse_mask = facts & 4,
                                         .has_window = facts & 8,
                                         .has_division = facts & 16,
                                         .keeps_scores = facts & 32,
                                         .score_reads_keys = facts & 64,
                                         .reads_words = facts & 128,
                                         .reads_row_blocks = facts & 256,
                                         .key_quotients = (facts & 16) >> 3};
            struct schedule_plan plan;
            cr_assert(schedule_resolve(&p, NULL, diags, &plan),
                      "facts %d, head_dim %d", facts, dim);
        }
}

/* With roles, what the mask and the scores do decides on tile and turns
 * (docs/ptx.md). */
Test(schedule, roles_by_mask_and_scores) {
    struct row {
        const char *what;
        struct schedule_problem facts;
        int dim, tile_m, tile_n, stages;
        bool pingpong;
        int second_m;
    };
    static const struct row rows[] = {
        {"plain", {0}, 128, 192, 64, 4, true, 128},
        {"plain", {0}, 64, 192, 128, 4, true, 256},
        {"plain", {0}, 192, 128, 64, 2, true, 0},
        {"plain", {0}, 256, 128, 64, 2, true, 0},
        {"window", {.has_window = true}, 256, 128, 64, 2, true, 0},
        {"scores", {.has_score = true}, 192, 128, 112, 2, true, 0},
        {"scores", {.has_score = true}, 256, 128, 80, 2, true, 0},
        {"scores", {.has_score = true}, 128, 192, 80, 2, true, 128},
        {"scores", {.has_score = true}, 64, 192, 128, 4, true, 128},
        {"scores by key",
         {.has_score = true, .score_reads_keys = true},
         128,
         192,
         64,
         4,
         true,
         128},
        {"scores by pair",
         {.has_score = true, .element_reads = true},
         128,
         128,
         112,
         2,
         true,
         0},
        {"scores beside their tanh",
         {.has_score = true, .keeps_scores = true},
         64,
         128,
         96,
         4,
         true,
         0},
        {"window", {.has_window = true}, 128, 192, 64, 4, false, 128},
        {"window", {.has_window = true}, 64, 256, 64, 8, false, 0},
        {"holes", {.has_sparse_mask = true}, 128, 192, 64, 4, false, 128},
        {"holes", {.has_sparse_mask = true}, 64, 192, 112, 4, false, 128},
        {"documents",
         {.has_sparse_mask = true, .reads_positions = true},
         64,
         192,
         64,
         8,
         false,
         128},
        {"blocks",
         {.has_sparse_mask = true, .reads_row_blocks = true},
         128,
         128,
         128,
         2,
         true,
         0},
        {"two quotients",
         {.has_sparse_mask = true, .key_quotients = 2},
         128,
         128,
         128,
         2,
         true,
         0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct schedule_problem p = row->facts;
        struct schedule_plan plan;
        p.target = "sm_90a";
        p.dtype = SCALAR_BF16;
        p.has_mask = p.has_sparse_mask || p.has_window;
        p.head_dim_qk = p.head_dim_v = row->dim;
        cr_assert(schedule_resolve(&p, NULL, diags, &plan));
        cr_expect(plan.tile_m == row->tile_m && plan.tile_n == row->tile_n &&
                      plan.stages == row->stages &&
                      plan.pingpong == row->pingpong &&
                      plan.second_m == row->second_m,
                  "%s, head_dim %d: tile %d, %d; stages %d; pingpong %d; "
                  "second %d",
                  row->what, row->dim, plan.tile_m, plan.tile_n, plan.stages,
                  plan.pingpong, plan.second_m);
    }
}

Test(schedule, the_account_adds_up) {
    struct schedule_problem p = problem(128, 128);
    struct schedule_plan plan;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_eq(plan.shared_q, 128 * 128 * 2);
    cr_assert_eq(plan.shared_k, plan.tile_n * 128 * 2);
    cr_assert_eq(plan.shared_bytes,
                 plan.shared_q + plan.stages * (plan.shared_k + plan.shared_v) +
                     plan.shared_list);
    cr_assert_eq(plan.registers_acc, 128 * 128 / (32 * plan.warps));
    cr_assert_eq(plan.registers_s, 128 * plan.tile_n / (32 * plan.warps));
}

Test(schedule, odd_head_dims_are_padded_for_the_mma) {
    cr_assert_eq(schedule_padded_dim(8), 16);
    cr_assert_eq(schedule_padded_dim(72), 80);
    cr_assert_eq(schedule_padded_dim(256), 256);
    struct schedule_problem p = problem(72, 40);
    struct schedule_plan plan;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_eq(plan.shared_k, plan.tile_n * 80 * 2);
    cr_assert_eq(plan.shared_v, plan.tile_n * 40 * 2);
}

Test(schedule, reads_per_element_get_registers) {
    struct schedule_problem p = problem(64, 64);
    struct schedule_plan plain, reading;
    cr_assert(schedule_resolve(&p, NULL, diags, &plain));
    p.element_reads = true;
    cr_assert(schedule_resolve(&p, NULL, diags, &reading));
    cr_assert(plain.q_registers);
    cr_assert_not(reading.q_registers);
    cr_assert_gt(reading.registers_other, plain.registers_other);
}

/* What does not fit beside 64 keys at D 128 gets 48. */
Test(schedule, registers_narrow_the_key_tile) {
    struct schedule_problem p = problem(128, 128);
    struct schedule_plan plan;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_eq(plan.tile_n, 64);
    p.element_reads = true;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_eq(plan.tile_n, 48);
    p.element_reads = false;
    p.has_division = true;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_eq(plan.tile_n, 48);
}

Test(schedule, a_second_cta_is_worth_more_than_a_second_stage) {
    struct schedule_problem p = problem(128, 128), wide = problem(256, 256);
    struct schedule_plan plan;
    cr_assert(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_eq(plan.stages, 2); /* 2 x 96.5 KiB fit into 228 */
    cr_assert(schedule_resolve(&wide, NULL, diags, &plan));
    cr_assert_eq(plan.stages, 1); /* 2 x 160 KiB do not, 2 x 96 do */
    cr_assert_eq(plan.tile_m, 64);
}

Test(schedule, pinned_keys_are_kept) {
    struct schedule_problem p = problem(64, 64);
    struct schedule pinned = {.given[SCHEDULE_TILE] = true,
                              .tile_m = 64,
                              .tile_n = 32,
                              .given[SCHEDULE_STAGES] = true,
                              .stages = 3,
                              .given[SCHEDULE_ORDER] = true,
                              .order = ORDER_LINEAR};
    struct schedule_plan plan;
    cr_assert(schedule_resolve(&p, &pinned, diags, &plan));
    cr_assert_eq(plan.tile_m, 64);
    cr_assert_eq(plan.tile_n, 32);
    cr_assert_eq(plan.stages, 3);
    cr_assert_not(plan.longest_first);
    struct strbuf text;
    strbuf_init(&text, arena);
    schedule_print(&plan, &text);
    cr_assert_str_eq(
        strbuf_text(&text),
        "tile 64, 32; stages 3; rescale_threshold 8; order linear");
}

Test(schedule, too_much_shared_memory_names_bytes_and_the_nearest_fit) {
    struct schedule_problem p = problem(128, 128);
    struct schedule pinned = {.given[SCHEDULE_STAGES] = true, .stages = 6};
    struct schedule_plan plan;
    cr_assert_not(schedule_resolve(&p, &pinned, diags, &plan));
    cr_assert(reported("tile 128, 64 with 6 stages needs"));
    cr_assert(reported("(Q 32.0 + 6 x (K 16.0 + V 16.0)"));
    cr_assert(reported("sm_80 has 163.0"));
    cr_assert(
        reported("the nearest schedule that fits: tile 128, 64; stages 4"));
}

Test(schedule, too_many_registers_name_the_parts) {
    struct schedule_problem p = problem(128, 256);
    struct schedule pinned = {
        .given[SCHEDULE_TILE] = true, .tile_m = 256, .tile_n = 256};
    struct schedule_plan plan;
    cr_assert_not(schedule_resolve(&p, &pinned, diags, &plan));
    cr_assert(reported("registers a thread (accumulator 128 + scores 128"));
    cr_assert(reported("sm_80 has 255"));
    cr_assert(reported("the nearest schedule that fits: tile "));
}

Test(schedule, tiles_off_the_mma_shape_are_refused) {
    struct schedule_problem p = problem(64, 64);
    struct schedule pinned = {
        .given[SCHEDULE_TILE] = true, .tile_m = 120, .tile_n = 24};
    struct schedule_plan plan;
    cr_assert_not(schedule_resolve(&p, &pinned, diags, &plan));
    cr_assert(reported("query tile 120: sm_80 needs a multiple of 16"));
    cr_assert(reported("key tile 24: sm_80 needs a multiple of 16"));
}

Test(schedule, keys_of_other_targets_are_refused) {
    struct schedule_problem p = problem(64, 64);
    struct schedule pinned = {.given = {[SCHEDULE_CONSUMERS] = true,
                                        [SCHEDULE_OVERLAP] = true,
                                        [SCHEDULE_RESCALE_THRESHOLD] = true,
                                        [SCHEDULE_ORDER] = true},
                              .consumers = 2,
                              .overlap = OVERLAP_PINGPONG,
                              .rescale_threshold = 20,
                              .order = ORDER_DYNAMIC};
    struct schedule_plan plan;
    cr_assert_not(schedule_resolve(&p, &pinned, diags, &plan));
    cr_assert_eq(diag_error_count(diags), 4);
    cr_assert(reported("rescale_threshold 20: P may reach 2^20"));
}

/* Every target can, none does by itself. */
Test(schedule, exp_poly_is_pinned_only) {
    static const char *const targets[] = {"sm_80", "sm_90a"};
    for (size_t i = 0; i < 2; i++) {
        struct schedule_problem p = problem(128, 128);
        struct schedule pinned = {.given = {[SCHEDULE_EXP_POLY] = true},
                                  .exp_poly = 0.25f};
        struct schedule_plan plan;
        struct strbuf text;
        p.target = targets[i];
        cr_assert(schedule_resolve(&p, NULL, diags, &plan));
        cr_assert_eq(plan.exp_poly, 0);
        cr_assert(schedule_resolve(&p, &pinned, diags, &plan));
        cr_assert_eq(plan.exp_poly, 0.25f);
        strbuf_init(&text, arena);
        schedule_print(&plan, &text);
        cr_assert_not_null(strstr(strbuf_text(&text), "exp_poly 25%; "));
    }
}

Test(schedule, neutral_keys_of_other_targets_are_fine) {
    struct schedule_problem p = problem(64, 64);
    struct schedule pinned = {.given = {[SCHEDULE_OVERLAP] = true,
                                        [SCHEDULE_EXP_POLY] = true,
                                        [SCHEDULE_RESCALE_THRESHOLD] = true},
                              .overlap = OVERLAP_NONE};
    struct schedule_plan plan;
    cr_assert(schedule_resolve(&p, &pinned, diags, &plan));
}

Test(schedule, unknown_targets_are_refused) {
    struct schedule_problem p = problem(64, 64);
    p.target = "sm_10";
    struct schedule_plan plan;
    cr_assert_not(schedule_resolve(&p, NULL, diags, &plan));
    cr_assert_null(target_limits_find("sm_10"));
    cr_assert_str_eq(target_limits_get(0)->name, "sm_80");
}

/* setmaxnreg waits for registers that nobody gives back: what the roles ask for must
 * be there.  A CTA has 64 Ki registers, a thread starts with whole eights. */
Test(schedule, roles_share_the_registers_of_a_cta) {
    for (int consumers = 1; consumers <= 4; consumers++) {
        int start = 65536 / (128 * (consumers + 1)) / 8 * 8;
        int have = (consumers + 1) * (start < 256 ? start : 256);
        for (int searches = 0; searches < 2; searches++) {
            int wanted =
                consumers * schedule_consumer_registers(consumers, searches) +
                schedule_producer_registers(consumers, searches);
            cr_assert(le(int, wanted, have), "%d consumers", consumers);
        }
    }
}
