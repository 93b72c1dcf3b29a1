/* The planner for warp roles: see schedule-sm90.h.
 *
 * FlashAttention-3's shape: a producer warpgroup and up to four consumer
 * warpgroups of 64 query rows, one CTA a multiprocessor.  setmaxnreg moves
 * registers from the producer to the consumers; a consumer whose products
 * overlap holds at once
 *
 *     accumulator Dv/2 + scores N/2 + P of the block before N/4 + about 30
 *
 * and ptxas serialises wgmma when that does not fit.  The preferred tiles were
 * chosen by measurement on an H200 (docs/ptx.md).
 *
 * Persistent CTAs walk the query tiles in waves, and a wave that is not full
 * costs as much as a full one.  Plain masks therefore get two kernels with
 * different tiles; the sizes of a call say which one is launched. */
#include "passes/schedule-sm90.h"

#include <string.h>

enum {
    ROWS = 64, /* of a consumer: M of wgmma */
    MAX_CONSUMERS = 4,
    MAX_STAGES = 8,
    OTHER_REGISTERS = 30,
    /* Of a score function, and of what a pair reads: addresses, factors, values
     * under way. */
    SCORE_REGISTERS = 2,
    COLUMN_REGISTERS = 12, /* more where it reads a value for each key */
    READ_REGISTERS = 24,
    TANH_REGISTERS = 20,  /* more where the scores stay beside their tanh */
    BARRIER_BYTES = 1024, /* mbarriers, block entries, tile numbers */
};

/* P is at most 2^tau: 2^8 loses nothing in f16 and bf16. */
static const float default_threshold = 8;
/* f16 holds 2^15; bf16 and the f32 sums hold more than any use. */
static const float largest_threshold_f16 = 15, largest_threshold_bf16 = 64;

bool schedule_has_roles(const struct schedule_problem *problem,
                        const struct target_limits *target) {
    return target->has_consumers && !problem->calls_extern &&
           problem->head_dim_qk % 16 == 0 && problem->head_dim_v % 16 == 0;
}

/* By consumers: what the threads of a CTA start with (64 Ki registers, in
 * eights), minus what the producer gives back. */
static const struct {
    int consumer, producer, searching_consumer, searching_producer;
} registers_of[MAX_CONSUMERS + 1] = {
    {0, 0, 0, 0},
    {232, 40, 216, 72}, /* of 256 threads; the split of two serves */
    {232, 40, 216, 72},
    {160, 32, 152, 56},
    {112, 32, 112, 32},
};

/* More consumers than there can be are refused, but only once they have an
 * account. */
int schedule_consumer_registers(int consumers, bool searches) {
    if (consumers > MAX_CONSUMERS)
        consumers = MAX_CONSUMERS;
    return searches ? registers_of[consumers].searching_consumer
                    : registers_of[consumers].consumer;
}

int schedule_producer_registers(int consumers, bool searches) {
    return searches ? registers_of[consumers].searching_producer
                    : registers_of[consumers].producer;
}

/* ---- The account --------------------------------------------------------- */

static void account(const struct schedule_problem *problem,
                    struct schedule_plan *plan) {
    plan->warps = 4 * (plan->consumers + 1);
    plan->q_registers = false;
    plan->registers_acc = problem->head_dim_v / 2;
    plan->registers_s = plan->tile_n / 2 + plan->tile_n / 4;
    /* Quotients and reads under way; scores beside their tanh. */
    if ((problem->element_reads && problem->has_division) ||
        problem->keeps_scores)
        plan->registers_s += plan->tile_n / 2;
    plan->registers_q = 0;
    plan->registers_other =
        OTHER_REGISTERS + (problem->element_reads ? READ_REGISTERS : 0);
    if (problem->has_score)
        plan->registers_other +=
            problem->element_reads
                ? READ_REGISTERS
                : SCORE_REGISTERS +
                      (problem->score_reads_keys ? COLUMN_REGISTERS : 0);
    if (problem->keeps_scores && !problem->element_reads)
        plan->registers_other += TANH_REGISTERS;
    plan->registers =
        plan->registers_acc + plan->registers_s + plan->registers_other;
    plan->shared_q = plan->tile_m * problem->head_dim_qk * 2;
    plan->shared_k = plan->tile_n * problem->head_dim_qk * 2;
    plan->shared_v = plan->tile_n * problem->head_dim_v * 2;
    plan->shared_list = BARRIER_BYTES;
    plan->shared_bytes = plan->q_stages * plan->shared_q +
                         plan->stages * (plan->shared_k + plan->shared_v) +
                         plan->shared_list;
    plan->ctas_per_sm = 1;
}

static bool registers_fit(const struct schedule_plan *plan, bool searches) {
    return plan->registers <=
           schedule_consumer_registers(plan->consumers, searches);
}

/* A sparse mask may take a producer that searches; three consumers, and two
 * tiles of scores, have no register too many. */
static bool fits(const struct schedule_problem *problem,
                 const struct target_limits *target,
                 const struct schedule_plan *plan) {
    bool tight = (problem->has_sparse_mask && plan->consumers >= 3) ||
                 problem->keeps_scores;
    return registers_fit(plan, tight) &&
           plan->shared_bytes <= target->shared_per_cta;
}

/* ---- Defaults ------------------------------------------------------------ */

/* A row has no work beside the softmax. */
static bool is_plain(const struct schedule_problem *problem) {
    return !problem->has_score && !problem->element_reads &&
           !problem->has_sparse_mask;
}

static int wider_dim(const struct schedule_problem *problem) {
    return problem->head_dim_qk > problem->head_dim_v ? problem->head_dim_qk
                                                      : problem->head_dim_v;
}

/* The keys of a row begin or end anywhere, and may be few. */
static bool is_ragged(const struct schedule_problem *problem) {
    return problem->has_window || problem->has_sparse_mask;
}

/* Three consumers read K and V once for 192 rows: power saved, which a card at
 * its limit turns into speed.  Of a mask in blocks of queries such a tile would
 * take the key blocks of several; what a pair reads, several quotients of each
 * key and two tiles of scores take registers that three do not have. */
static int choose_consumers(const struct schedule_problem *problem, int dim) {
    if (dim > 128 || problem->element_reads || problem->reads_words ||
        problem->reads_row_blocks || problem->keeps_scores ||
        problem->key_quotients > 1)
        return 2;
    /* Of a narrow window, taller tiles waste less at both ends. */
    return dim <= 64 && problem->has_window && is_plain(problem) ? 4 : 3;
}

/* Narrow blocks waste less of ragged rows and on the diagonal, and leave room
 * for more stages; a score function's row values and constants are worth wider
 * ones.  Quotients take registers. */
static int choose_keys(const struct schedule_problem *problem, int dim,
                       int consumers) {
    bool narrow = problem->has_window || problem->reads_positions ||
                  problem->has_division;
    /* Each key's place in its word takes what wider blocks' scores leave. */
    if (consumers == 4 || problem->reads_words)
        return 64;
    if (dim > 128)
        return problem->has_score || problem->element_reads ? 128 : 64;
    if (consumers < 3 || (dim <= 64 && !narrow))
        return 128;
    return problem->has_score && !is_ragged(problem) ? 80 : 64;
}

/* Consumers and key tile; `wish` has what is pinned, 0 where nothing is. */
static void choose_tile(const struct schedule_problem *problem,
                        const struct target_limits *target,
                        const struct schedule_plan *wish,
                        struct schedule_plan *plan) {
    int dim = wider_dim(problem);
    plan->consumers =
        wish->consumers ? wish->consumers : choose_consumers(problem, dim);
    plan->tile_m = ROWS * plan->consumers;
    plan->tile_n = wish->tile_n ? wish->tile_n
                                : choose_keys(problem, dim, plan->consumers);
    plan->stages = wish->stages ? wish->stages : 2;
    for (account(problem, plan);
         !wish->tile_n && plan->tile_n > 16 && !fits(problem, target, plan);) {
        plan->tile_n -= 16;
        account(problem, plan);
    }
}

/* As many buffers as fit, at most `wanted`, at least one; `count` is a member
 * of the plan. */
static void choose_buffers(const struct schedule_problem *problem,
                           const struct target_limits *target, int wanted,
                           struct schedule_plan *plan, int *count) {
    for (*count = wanted; *count > 1; --*count) {
        account(problem, plan);
        if (fits(problem, target, plan))
            return;
    }
    account(problem, plan);
}

/* Small blocks need more of them under way; of long rows a second buffer of Q
 * is worth more than a third stage. */
static void choose_stages(const struct schedule_problem *problem,
                          const struct target_limits *target,
                          struct schedule_plan *plan) {
    bool narrow = problem->head_dim_qk <= 64 && problem->head_dim_v <= 64;
    int wanted = narrow ? 4 : 2;
    if (plan->tile_n <= 64 && wider_dim(problem) <= 128)
        wanted *= 2;
    choose_buffers(problem, target, wanted, plan, &plan->stages);
}

/* With a second buffer the next tile's Q is copied while the present one is in
 * use; K and V come first.  O leaves out of its tile's buffer, which is free
 * behind the first block of the tile after it: of short tiles the copies of
 * other keys would wait for that, so they have a third one where it fits. */
static void choose_q_stages(const struct schedule_problem *problem,
                            const struct target_limits *target,
                            struct schedule_plan *plan) {
    int wanted = is_ragged(problem) ? 3 : 2;
    choose_buffers(problem, target, wanted, plan, &plan->q_stages);
}

/* ---- Several kernels ---------------------------------------------------- */

/* Time of a row of the second tile in percent of the first one's, full and
 * under a mask (H200). */
static const struct pair {
    int dim, first_n, second_m, full, masked;
} pairs[] = {{64, 128, 256, 103, 98},
             {64, 128, 128, 111, 111},
             {128, 64, 128, 108, 107},
             {128, 128, 128, 108, 105}};

/* The tile of packed heads, where the first kernel's is taller: the fewest rows
 * that keep two consumers busy. */
enum { PACKED_M = 128, PACKED_N = 128 };

static const struct pair *pair_of(const struct schedule_problem *problem,
                                  const struct schedule_plan *plan) {
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (wider_dim(problem) <= pairs[i].dim &&
            plan->tile_n <= pairs[i].first_n &&
            plan->second_m == pairs[i].second_m)
            return &pairs[i];
    return NULL;
}

/* Only where the author left the shape to the planner. */
static void choose_second(const struct schedule_problem *problem,
                          const struct schedule *pinned,
                          struct schedule_plan *plan) {
    if (schedule_shape_is_pinned(pinned) || plan->consumers != 3)
        return;
    bool tall =
        wider_dim(problem) <= 64 && is_plain(problem) && !is_ragged(problem);
    plan->second_m = tall ? 256 : 128;
    plan->second_n = tall ? 64 : 128;
}

/* Waves of tiles of `rows` rows, times the time of one. */
static size_t wave_words(int rows, int percent, struct arena *arena,
                         const char **out_words) {
    const char *words[] = {"q_len",   arena_printf(arena, "%d", rows),
                           "ceildiv", "heads",
                           "mul",     "batch",
                           "mul",     "sm_count",
                           "ceildiv", arena_printf(arena, "%d", rows * percent),
                           "mul"};
    memcpy(out_words, words, sizeof words);
    return sizeof words / sizeof words[0];
}

/* Under a mask tiles take from little to much time and are drawn the longest
 * first, so that multiprocessors end nearly together: time goes with the rows,
 * a tile that is not full counting half of what it lacks, and is not less than
 * that of the longest tile, which takes twice the mean. */
static size_t drawn_words(int rows, int percent, struct arena *arena,
                          const char **out_words) {
    const char *tile = arena_printf(arena, "%d", rows);
    const char *words[] = {"q_len", "q_len",    tile,    "ceildiv", tile,
                           "mul",   "add",      "heads", "mul",     "batch",
                           "mul",   "sm_count", NULL,    "mul",     "max",
                           NULL,    "mul"};
    enum { COUNT = sizeof words / sizeof words[0] };
    words[COUNT - 5] = arena_printf(arena, "%d", 4 * rows);
    words[COUNT - 2] = arena_printf(arena, "%d", percent);
    memcpy(out_words, words, sizeof words);
    return COUNT;
}

static size_t cost_words(const struct schedule_problem *problem, int rows,
                         int percent, struct arena *arena,
                         const char **out_words) {
    return problem->has_mask ? drawn_words(rows, percent, arena, out_words)
                             : wave_words(rows, percent, arena, out_words);
}

/* Which of the kernels with a tile of their own runs. */
static size_t tile_words(const struct schedule_problem *problem,
                         const struct schedule_plan *plan, bool second,
                         struct arena *arena, const char **out_words) {
    const struct pair *pair = pair_of(problem, plan);
    int percent = !pair ? 100 : problem->has_mask ? pair->masked : pair->full;
    int rows[2] = {plan->tile_m, plan->second_m}, percents[2] = {100, percent};
    size_t count =
        cost_words(problem, rows[second], percents[second], arena, out_words);
    count += cost_words(problem, rows[!second], percents[!second], arena,
                        out_words + count);
    out_words[count++] = second ? "le" : "lt";
    return count;
}

/* Do packed heads save a tenth of the waves of tiles, or (`packed` false) not?
 * Where all tiles of single heads run at once, packing them gains nothing: each
 * reads K and V in the same time, most of them from the L2 cache.  And rows of
 * several heads cost more. */
static size_t packed_words(const struct schedule_plan *plan, bool packed,
                           int packed_m, struct arena *arena,
                           const char **out_words) {
    const char *single[] = {"q_len",   arena_printf(arena, "%d", plan->tile_m),
                            "ceildiv", "heads",
                            "mul",     "batch",
                            "mul",     "sm_count",
                            "ceildiv", "9",
                            "mul"};
    const char *several[] = {
        "q_len",   arena_printf(arena, "%d", plan->pack_gqa),
        "mul",     arena_printf(arena, "%d", packed_m),
        "ceildiv", "kv_heads",
        "mul",     "batch",
        "mul",     "sm_count",
        "ceildiv", "10",
        "mul"};
    enum { SINGLE = sizeof single / sizeof *single };
    enum { SEVERAL = sizeof several / sizeof *several };
    memcpy(out_words + (packed ? SEVERAL : 0), single, sizeof single);
    memcpy(out_words + (packed ? 0 : SINGLE), several, sizeof several);
    out_words[SINGLE + SEVERAL] = packed ? "le" : "lt";
    return SINGLE + SEVERAL + 1;
}

size_t schedule_when(const struct schedule_problem *problem,
                     const struct schedule_plan *plan,
                     enum schedule_variant variant, int packed_m,
                     struct arena *arena,
                     const char *out_words[SCHEDULE_WHEN_WORDS]) {
    size_t count = 0;
    if (plan->pack_gqa > 0)
        count = packed_words(plan, variant == VARIANT_PACKED, packed_m, arena,
                             out_words);
    if (plan->second_m == 0 || variant == VARIANT_PACKED)
        return count;
    bool both = count > 0;
    count += tile_words(problem, plan, variant == VARIANT_SECOND, arena,
                        out_words + count);
    if (both)
        out_words[count++] = "mul";
    return count;
}

bool schedule_variant(const struct schedule_problem *problem,
                      const struct schedule_plan *plan,
                      enum schedule_variant variant, struct diag_sink *diags,
                      struct schedule_plan *out_plan) {
    struct schedule pinned = {.tile_m = plan->second_m,
                              .tile_n = plan->second_n};
    if (variant == VARIANT_PACKED) {
        if (plan->consumers <= 2) {
            *out_plan = *plan;
            out_plan->second_m = out_plan->second_n = out_plan->pack_gqa = 0;
            return true;
        }
        pinned.tile_m = PACKED_M;
        pinned.tile_n = PACKED_N;
    }
    pinned.given[SCHEDULE_TILE] = true;
    if (!schedule_resolve_roles(problem, target_limits_find(plan->target),
                                &pinned, diags, out_plan))
        return false;
    out_plan->rescale_threshold = plan->rescale_threshold;
    out_plan->exp_poly = plan->exp_poly;
    out_plan->longest_first = plan->longest_first;
    out_plan->dynamic = plan->dynamic;
    return true;
}

/* ---- Pinned keys --------------------------------------------------------- */

static bool refuse_shape(const struct target_limits *target,
                         const struct schedule *pinned,
                         const struct schedule_plan *plan,
                         struct diag_sink *diags) {
    size_t before = diag_error_count(diags);
    if (plan->consumers > MAX_CONSUMERS)
        diag_error(diags, pinned->where[SCHEDULE_CONSUMERS],
                   "%d consumers: %s runs 1 to %d consumer warpgroups beside "
                   "the producer",
                   plan->consumers, target->name, MAX_CONSUMERS);
    if (pinned->given[SCHEDULE_TILE] &&
        pinned->tile_m != ROWS * plan->consumers)
        diag_error(diags, pinned->where[SCHEDULE_TILE],
                   "query tile %d: %s needs %d rows for each of %d consumers "
                   "(%d in all)",
                   pinned->tile_m, target->name, ROWS, plan->consumers,
                   ROWS * plan->consumers);
    if (plan->tile_n % 16 != 0 || plan->tile_n < 16 || plan->tile_n > 256)
        diag_error(diags, pinned->where[SCHEDULE_TILE],
                   "key tile %d: %s needs a multiple of 16 (depth of wgmma) "
                   "from 16 to 256",
                   plan->tile_n, target->name);
    if (plan->stages < 1 || plan->stages > MAX_STAGES)
        diag_error(diags, pinned->where[SCHEDULE_STAGES],
                   "stages %d: must be from 1 to %d", plan->stages, MAX_STAGES);
    if (pinned->given[SCHEDULE_EXP_POLY] && pinned->exp_poly > 0 &&
        !target->has_exp_poly)
        diag_error(diags, pinned->where[SCHEDULE_EXP_POLY],
                   "%s computes every exp2 on the MUFU: exp_poly must be 0%%, "
                   "found %g%%",
                   target->name, (double)pinned->exp_poly * 100);
    if (pinned->given[SCHEDULE_OVERLAP] && pinned->overlap == OVERLAP_NONE)
        diag_error(diags, pinned->where[SCHEDULE_OVERLAP],
                   "%s always issues the next product before the softmax: use "
                   "`intra` or "
                   "`pingpong`",
                   target->name);
    return diag_error_count(diags) == before;
}

static bool refuse_threshold(const struct schedule_problem *problem,
                             const struct schedule *pinned,
                             const struct schedule_plan *plan,
                             struct diag_sink *diags) {
    bool f16 = problem->dtype == SCALAR_F16;
    float most = f16 ? largest_threshold_f16 : largest_threshold_bf16;
    if (plan->rescale_threshold <= most)
        return true;
    diag_error(diags, pinned->where[SCHEDULE_RESCALE_THRESHOLD],
               "rescale_threshold %g: P may reach 2^%g, %s takes at most %g",
               (double)plan->rescale_threshold, (double)plan->rescale_threshold,
               f16 ? "f16" : "bf16", (double)most);
    return false;
}

/* The nearest smaller tile that fits, with fewer stages if need be. */
static void note_nearest(const struct schedule_problem *problem,
                         const struct target_limits *target,
                         const struct schedule_plan *wish,
                         struct source_range where, struct diag_sink *diags) {
    struct schedule_plan near = *wish;
    for (near.tile_n = wish->tile_n / 16 * 16; near.tile_n >= 16;
         near.tile_n -= 16)
        for (near.stages = wish->stages; near.stages >= 1; near.stages--) {
            account(problem, &near);
            if (!fits(problem, target, &near))
                continue;
            schedule_note_fit(&near, where, diags);
            return;
        }
}

static bool refuse_misfit(const struct schedule_problem *problem,
                          const struct target_limits *target,
                          const struct schedule_plan *plan,
                          struct source_range where, struct diag_sink *diags) {
    if (!registers_fit(plan, false))
        diag_error(
            diags, where,
            "tile %d, %d needs about %d registers a consumer thread "
            "(accumulator %d + "
            "scores and P %d + other %d), with %d consumers there are %d",
            plan->tile_m, plan->tile_n, plan->registers, plan->registers_acc,
            plan->registers_s, plan->registers_other, plan->consumers,
            schedule_consumer_registers(plan->consumers, false));
    else if (plan->shared_bytes > target->shared_per_cta)
        schedule_refuse_shared(target, plan, "barriers", where, diags);
    else
        return true;
    note_nearest(problem, target, plan, where, diags);
    return false;
}

static struct source_range blame(const struct schedule *pinned) {
    if (!pinned)
        return SOURCE_NOWHERE;
    static const enum schedule_key keys[] = {SCHEDULE_TILE, SCHEDULE_STAGES,
                                             SCHEDULE_CONSUMERS};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (pinned->given[keys[i]])
            return pinned->where[keys[i]];
    return pinned->block;
}

/* What is pinned of the shape; a query tile alone says how many consumers it is
 * for. */
static struct schedule_plan wish_of(const struct schedule *pinned) {
    struct schedule_plan wish = {.consumers = 0};
    if (!pinned)
        return wish;
    if (pinned->given[SCHEDULE_TILE]) {
        wish.consumers = pinned->tile_m / ROWS > 0 ? pinned->tile_m / ROWS : 1;
        wish.tile_n = pinned->tile_n;
    }
    if (pinned->given[SCHEDULE_CONSUMERS])
        wish.consumers = pinned->consumers;
    wish.stages = pinned->given[SCHEDULE_STAGES] ? pinned->stages : 0;
    return wish;
}

bool schedule_resolve_roles(const struct schedule_problem *problem,
                            const struct target_limits *target,
                            const struct schedule *pinned,
                            struct diag_sink *diags,
                            struct schedule_plan *out_plan) {
    struct schedule_plan wish = wish_of(pinned);
    struct schedule_plan plan = {.target = target->name,
                                 .q_stages = 1,
                                 .longest_first = true,
                                 .dynamic = problem->has_mask,
                                 .rescale_threshold = default_threshold};
    choose_tile(problem, target, &wish, &plan);
    if (!wish.stages)
        choose_stages(problem, target, &plan);
    choose_q_stages(problem, target, &plan);
    /* Who leaves blocks to others would still have to wait for its turn. */
    plan.pingpong =
        plan.consumers == 2 || (plan.consumers == 3 && !is_ragged(problem));
    choose_second(problem, pinned, &plan);
    plan.pack_gqa = schedule_pack_gqa(problem, pinned, ROWS);
    if (pinned) {
        if (pinned->given[SCHEDULE_OVERLAP])
            plan.pingpong =
                pinned->overlap == OVERLAP_PINGPONG && plan.consumers > 1;
        schedule_take_pins(pinned, &plan);
        if (pinned->given[SCHEDULE_ORDER])
            plan.dynamic = pinned->order == ORDER_DYNAMIC;
        if (!refuse_shape(target, pinned, &plan, diags) ||
            !refuse_threshold(problem, pinned, &plan, diags))
            return false;
    }
    if (!refuse_misfit(problem, target, &plan, blame(pinned), diags))
        return false;
    *out_plan = plan;
    return true;
}
