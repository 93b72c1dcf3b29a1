/* The planner: see schedule.h.
 *
 * Split-Q as in FlashAttention-2 (section 3.3): every warp owns whole query
 * rows, so the softmax needs no exchange between warps.  The account per
 * thread, for F = M/(16·W) fragments of rows: accumulator F·Dv/2, scores F·N/2,
 * Q F·Dqk/4 registers (two 16-bit elements each); P reuses the registers of the
 * scores.  The table of preferred tiles was chosen by measurement on an H200;
 * everything else follows from the limits.
 *
 * Not here: choosing a tile by sequence length (kernels serve every length). */
#include "passes/schedule.h"

#include <stdlib.h>

#include "passes/schedule-sm90.h"
#include "passes/target_limits.h"

/* Registers of addresses, running maxima and sums, loop state and operand
 * fragments. */
enum { OVERHEAD_REGISTERS = 44 };

/* Pointers, strides and values under way of a read per element. */
enum { READ_REGISTERS = 20 };

enum { MAX_STAGES = 8, MAX_TILE = 256 };

/* P is at most 2^tau: 2^8 loses nothing in f16 and bf16, and l stays far from
 * overflow. f16 ends at 2^16. */
static const float default_threshold = 8, max_threshold = 15;

int schedule_padded_dim(int head_dim) {
    return (head_dim + 15) / 16 * 16;
}

/* ---- The account --------------------------------------------------------- */

/* Registers of one thread with `warps` warps; fills the plan's account. */
static void account_registers(const struct schedule_problem *problem,
                              struct schedule_plan *plan) {
    int fragments = plan->tile_m / (16 * plan->warps);
    plan->registers_acc = fragments * problem->head_dim_v / 2;
    plan->registers_s = fragments * plan->tile_n / 2;
    plan->registers_q =
        plan->q_registers
            ? fragments * schedule_padded_dim(problem->head_dim_qk) / 4
            : 0;
    plan->registers_other =
        OVERHEAD_REGISTERS +
        (problem->element_reads || problem->has_division ? READ_REGISTERS : 0);
    plan->registers = plan->registers_acc + plan->registers_s +
                      plan->registers_q + plan->registers_other;
}

static void account_shared(const struct schedule_problem *problem,
                           struct schedule_plan *plan) {
    int width = schedule_padded_dim(problem->head_dim_qk);
    plan->shared_q = plan->tile_m * width * 2;
    plan->shared_k = plan->tile_n * width * 2;
    plan->shared_v = plan->tile_n * problem->head_dim_v * 2;
    plan->shared_list = 4 * 32 * plan->warps + 16 * ((plan->warps + 3) / 4);
    plan->shared_bytes = plan->shared_q +
                         plan->stages * (plan->shared_k + plan->shared_v) +
                         plan->shared_list;
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

static void account_occupancy(const struct target_limits *target,
                              struct schedule_plan *plan) {
    int by_shared =
        target->shared_per_sm / (plan->shared_bytes + target->shared_reserved);
    int registers = (plan->registers + 7) / 8 * 8; /* allocated in eights */
    int by_registers =
        target->registers_per_sm / (32 * plan->warps * registers);
    plan->ctas_per_sm = smaller(by_shared, by_registers);
}

static bool registers_fit(const struct target_limits *target,
                          const struct schedule_plan *plan) {
    return plan->registers <= target->registers_per_thread;
}

static bool shared_fits(const struct target_limits *target,
                        const struct schedule_plan *plan) {
    return plan->shared_bytes <= target->shared_per_cta;
}

/* Chooses the warps of a tile: four where the registers allow, else eight, then
 * the widest split that divides the rows.  False: none has few enough
 * registers; the plan then shows the account of the last one tried. */
static bool choose_warps(const struct schedule_problem *problem,
                         const struct target_limits *target,
                         struct schedule_plan *plan) {
    static const int candidates[] = {4, 8, 2, 1, 16};
    bool tried = false;
    int widest = 1;
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        int warps = candidates[i];
        if (plan->tile_m % (16 * warps) != 0 ||
            32 * warps > target->threads_per_cta)
            continue;
        plan->warps = warps;
        account_registers(problem, plan);
        if (registers_fit(target, plan))
            return true;
        if (!tried || warps > widest)
            widest = warps;
        tried = true;
    }
    plan->warps = widest;
    account_registers(problem, plan);
    return false;
}

/* Keeps Q in registers where it is small and the tile leaves room for it; reads
 * per element want that room for their addresses. */
static void choose_q_registers(const struct schedule_problem *problem,
                               const struct target_limits *target,
                               struct schedule_plan *plan) {
    if (schedule_padded_dim(problem->head_dim_qk) > 64 ||
        problem->element_reads)
        return;
    plan->q_registers = true;
    account_registers(problem, plan);
    if (plan->registers <= target->registers_per_thread - 32)
        return;
    plan->q_registers = false;
    account_registers(problem, plan);
}

/* Completes a plan whose tile and stages are set; true if it fits the target.
 */
static bool complete(const struct schedule_problem *problem,
                     const struct target_limits *target,
                     struct schedule_plan *plan) {
    plan->q_registers = false;
    bool fits = choose_warps(problem, target, plan);
    if (fits)
        choose_q_registers(problem, target, plan);
    account_shared(problem, plan);
    account_occupancy(target, plan);
    return fits && shared_fits(target, plan);
}

/* ---- Defaults ------------------------------------------------------------ */

/* The preferred tile.  Two fragments of rows a warp (128 rows) halve the
 * traffic of K and V from shared memory; they need 2·Dv/2 registers, so that
 * wide V gets 64 rows.  64 keys were the fastest at every head dimension on an
 * H200 (128 win 5 % at 64 and spill); fewer where registers are short. */
static void default_tile(const struct schedule_problem *problem,
                         const struct target_limits *target,
                         struct schedule_plan *plan) {
    static const int keys[] = {64, 48, 32};
    plan->tile_m = problem->head_dim_v <= 128 ? 128 : 64;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        plan->tile_n = keys[i];
        if (choose_warps(problem, target, plan) && plan->warps <= 4)
            return;
    }
}

/* CTAs of a plan on one multiprocessor of a given shared memory. */
static int ctas_by_shared(const struct target_limits *target,
                          const struct schedule_plan *plan, int shared_per_sm) {
    return shared_per_sm / (plan->shared_bytes + target->shared_reserved);
}

/* Two stages, unless one lets another CTA onto the largest multiprocessor that
 * runs the target's code: its warps hide latency better than a second stage. */
static int default_stages(const struct schedule_problem *problem,
                          const struct target_limits *target,
                          struct schedule_plan *plan) {
    plan->stages = 1;
    complete(problem, target, plan);
    int alone =
        smaller(2, ctas_by_shared(target, plan, target->largest_shared_per_sm));
    plan->stages = 2;
    bool fits = complete(problem, target, plan);
    return fits && ctas_by_shared(target, plan,
                                  target->largest_shared_per_sm) >= alone
               ? 2
               : 1;
}

/* ---- Pinned keys --------------------------------------------------------- */

/* Keys that decide something this target does not have. */
static bool refuse_foreign_keys(const struct target_limits *target,
                                const struct schedule *pinned,
                                struct diag_sink *diags) {
    const struct source_range *where = pinned->where;
    size_t before = diag_error_count(diags);
    if (pinned->given[SCHEDULE_CONSUMERS] && !target->has_consumers)
        diag_error(
            diags, where[SCHEDULE_CONSUMERS],
            "%s has no consumer warpgroups: every warp loads and computes",
            target->name);
    if (pinned->given[SCHEDULE_OVERLAP] && pinned->overlap != OVERLAP_NONE &&
        !target->has_consumers)
        diag_error(diags, where[SCHEDULE_OVERLAP],
                   "%s has no overlap but `none`: its MMA instructions are "
                   "synchronous",
                   target->name);
    if (pinned->given[SCHEDULE_EXP_POLY] && pinned->exp_poly > 0 &&
        !target->has_exp_poly)
        diag_error(diags, where[SCHEDULE_EXP_POLY],
                   "%s computes every exp2 on the MUFU: exp_poly must be 0%%, "
                   "found %g%%",
                   target->name, (double)pinned->exp_poly * 100);
    if (pinned->given[SCHEDULE_RESCALE_THRESHOLD] &&
        pinned->rescale_threshold > 0 && !target->has_rescale_threshold)
        diag_error(diags, where[SCHEDULE_RESCALE_THRESHOLD],
                   "%s rescales with every key block: rescale_threshold must "
                   "be 0, found %g",
                   target->name, (double)pinned->rescale_threshold);
    if (pinned->given[SCHEDULE_RESCALE_THRESHOLD] &&
        pinned->rescale_threshold > max_threshold)
        diag_error(diags, where[SCHEDULE_RESCALE_THRESHOLD],
                   "rescale_threshold %g: P may reach 2^%g, f16 and bf16 hold "
                   "it up to 2^%g",
                   (double)pinned->rescale_threshold,
                   (double)pinned->rescale_threshold, (double)max_threshold);
    if (pinned->given[SCHEDULE_ORDER] && pinned->order == ORDER_DYNAMIC &&
        !target->has_dynamic_order)
        diag_error(diags, where[SCHEDULE_ORDER],
                   "%s has no dynamic order: use `linear` or `lpt`",
                   target->name);
    return diag_error_count(diags) == before;
}

/* Distance of a plan from the wish, for "the nearest that fits". */
static int distance(const struct schedule_plan *wish,
                    const struct schedule_plan *plan) {
    return abs(wish->tile_m - plan->tile_m) + abs(wish->tile_n - plan->tile_n) +
           16 * abs(wish->stages - plan->stages);
}

/* The plan nearest to `wish` that fits; false if there is none. */
static bool nearest_fit(const struct schedule_problem *problem,
                        const struct target_limits *target,
                        const struct schedule_plan *wish,
                        struct schedule_plan *out_plan) {
    bool found = false;
    int max_m = smaller(wish->tile_m, MAX_TILE),
        max_n = smaller(wish->tile_n, MAX_TILE);
    for (int m = max_m / 16 * 16; m >= 16; m -= 16) {
        for (int n = max_n / 16 * 16; n >= 16; n -= 16) {
            for (int stages = smaller(wish->stages, MAX_STAGES); stages >= 1;
                 stages--) {
                struct schedule_plan plan = *wish;
                plan.tile_m = m;
                plan.tile_n = n;
                plan.stages = stages;
                if (!complete(problem, target, &plan))
                    continue;
                if (!found || distance(wish, &plan) < distance(wish, out_plan))
                    *out_plan = plan;
                found = true;
            }
        }
    }
    return found;
}

void schedule_take_pins(const struct schedule *pinned,
                        struct schedule_plan *plan) {
    plan->longest_first =
        !pinned->given[SCHEDULE_ORDER] || pinned->order != ORDER_LINEAR;
    if (pinned->given[SCHEDULE_RESCALE_THRESHOLD])
        plan->rescale_threshold = pinned->rescale_threshold;
    if (pinned->given[SCHEDULE_EXP_POLY])
        plan->exp_poly = pinned->exp_poly;
}

void schedule_note_fit(const struct schedule_plan *near,
                       struct source_range where, struct diag_sink *diags) {
    diag_note(diags, where,
              "the nearest schedule that fits: tile %d, %d; stages %d",
              near->tile_m, near->tile_n, near->stages);
}

void schedule_refuse_shared(const struct target_limits *target,
                            const struct schedule_plan *plan, const char *rest,
                            struct source_range where, struct diag_sink *diags) {
    diag_error(diags, where,
               "tile %d, %d with %d stage%s needs %.1f KiB of shared "
               "memory (Q %.1f + %d x "
               "(K %.1f + V %.1f) + %s %.1f), %s has %.1f",
               plan->tile_m, plan->tile_n, plan->stages,
               plan->stages == 1 ? "" : "s", plan->shared_bytes / 1024.0,
               plan->shared_q / 1024.0, plan->stages, plan->shared_k / 1024.0,
               plan->shared_v / 1024.0, rest, plan->shared_list / 1024.0,
               target->name, target->shared_per_cta / 1024.0);
}

static void note_nearest(const struct schedule_problem *problem,
                         const struct target_limits *target,
                         const struct schedule_plan *wish,
                         struct source_range where, struct diag_sink *diags) {
    struct schedule_plan near;
    if (wish->tile_m < 16 || wish->tile_n < 16 ||
        !nearest_fit(problem, target, wish, &near))
        return;
    schedule_note_fit(&near, where, diags);
}

/* Place of the key to blame: the tile, else the stages, else the block. */
static struct source_range blame(const struct schedule *pinned) {
    if (!pinned)
        return SOURCE_NOWHERE;
    if (pinned->given[SCHEDULE_TILE])
        return pinned->where[SCHEDULE_TILE];
    return pinned->given[SCHEDULE_STAGES] ? pinned->where[SCHEDULE_STAGES]
                                          : pinned->block;
}

static bool refuse_misfit(const struct schedule_problem *problem,
                          const struct target_limits *target,
                          const struct schedule_plan *plan,
                          struct source_range where, struct diag_sink *diags) {
    if (!registers_fit(target, plan))
        diag_error(diags, where,
                   "tile %d, %d needs about %d registers a thread (accumulator "
                   "%d + scores %d + "
                   "other %d, %d warps), %s has %d",
                   plan->tile_m, plan->tile_n, plan->registers,
                   plan->registers_acc, plan->registers_s,
                   plan->registers_other, plan->warps, target->name,
                   target->registers_per_thread);
    else if (!shared_fits(target, plan))
        schedule_refuse_shared(target, plan, "list", where, diags);
    else
        return true;
    note_nearest(problem, target, plan, where, diags);
    return false;
}

/* Shapes that the MMA instructions cannot take. */
static bool refuse_bad_shape(const struct target_limits *target,
                             const struct schedule *pinned,
                             const struct schedule_plan *plan,
                             struct diag_sink *diags) {
    size_t before = diag_error_count(diags);
    struct source_range tile = pinned->where[SCHEDULE_TILE];
    if (plan->tile_m % 16 != 0 || plan->tile_m < 16 || plan->tile_m > MAX_TILE)
        diag_error(diags, tile,
                   "query tile %d: %s needs a multiple of 16 (rows of "
                   "mma.m16n8k16) from 16 to %d",
                   plan->tile_m, target->name, MAX_TILE);
    if (plan->tile_n % 16 != 0 || plan->tile_n < 16 || plan->tile_n > MAX_TILE)
        diag_error(diags, tile,
                   "key tile %d: %s needs a multiple of 16 (depth of "
                   "mma.m16n8k16) from 16 to %d",
                   plan->tile_n, target->name, MAX_TILE);
    if (plan->stages < 1 || plan->stages > MAX_STAGES)
        diag_error(diags, pinned->where[SCHEDULE_STAGES],
                   "stages %d: must be from 1 to %d", plan->stages, MAX_STAGES);
    return diag_error_count(diags) == before;
}

/* ---- Packed GQA --------------------------------------------------------- */

bool schedule_shape_is_pinned(const struct schedule *pinned) {
    static const enum schedule_key shape[] = {
        SCHEDULE_TILE, SCHEDULE_STAGES, SCHEDULE_CONSUMERS, SCHEDULE_OVERLAP};
    for (size_t i = 0; pinned && i < sizeof shape / sizeof shape[0]; i++)
        if (pinned->given[shape[i]])
            return true;
    return false;
}

/* Blocks of keys are classified for a whole tile: a mask must be the same for
 * all of its heads.  Powers of two, so that a row's query and head are a shift
 * and a mask. */
int schedule_pack_gqa(const struct schedule_problem *problem,
                      const struct schedule *pinned, int rows) {
    int group = problem->group;
    bool packs = group > 1 && (group & (group - 1)) == 0 && rows % group == 0 &&
                 !problem->mask_reads_head && !schedule_shape_is_pinned(pinned);
    return packs ? group : 0;
}

bool schedule_resolve(const struct schedule_problem *problem,
                      const struct schedule *pinned, struct diag_sink *diags,
                      struct schedule_plan *out_plan) {
    const struct target_limits *target = target_limits_find(problem->target);
    if (!target) {
        diag_error(diags, blame(pinned), "no schedule for target '%s'",
                   problem->target);
        return false;
    }
    if (schedule_has_roles(problem, target))
        return schedule_resolve_roles(problem, target, pinned, diags, out_plan);
    struct schedule_plan plan = {.target = target->name, .longest_first = true};
    plan.rescale_threshold =
        target->has_rescale_threshold ? default_threshold : 0;
    default_tile(problem, target, &plan);
    if (pinned && pinned->given[SCHEDULE_TILE]) {
        plan.tile_m = pinned->tile_m;
        plan.tile_n = pinned->tile_n;
    }
    plan.stages = 1;
    if (pinned && pinned->given[SCHEDULE_STAGES])
        plan.stages = pinned->stages;
    if (pinned) {
        bool legal = refuse_foreign_keys(target, pinned, diags);
        if (!refuse_bad_shape(target, pinned, &plan, diags) || !legal)
            return false;
        schedule_take_pins(pinned, &plan);
    }
    if (!pinned || !pinned->given[SCHEDULE_STAGES])
        plan.stages = default_stages(problem, target, &plan);
    complete(problem, target, &plan);
    if (!refuse_misfit(problem, target, &plan, blame(pinned), diags))
        return false;
    plan.pack_gqa = schedule_pack_gqa(problem, pinned, plan.tile_m);
    *out_plan = plan;
    return true;
}

const char *schedule_order(const struct schedule_plan *plan) {
    return plan->dynamic ? "dynamic" : plan->longest_first ? "lpt" : "linear";
}

void schedule_print(const struct schedule_plan *plan, struct strbuf *out) {
    strbuf_printf(out, "tile %d, %d; ", plan->tile_m, plan->tile_n);
    if (plan->consumers > 0)
        strbuf_printf(out, "consumers %d; overlap %s; ", plan->consumers,
                      plan->pingpong ? "pingpong" : "intra");
    strbuf_printf(out, "stages %d; ", plan->stages);
    if (plan->exp_poly > 0)
        strbuf_printf(out, "exp_poly %g%%; ", (double)plan->exp_poly * 100);
    strbuf_printf(out, "rescale_threshold %g; order %s",
                  (double)plan->rescale_threshold, schedule_order(plan));
}
