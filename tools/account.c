/* Cycle and byte account; see tools/account.h. */
#include "tools/account.h"

#include <string.h>

/* Rates a multiprocessor and cycle: A100 white paper, H100 white paper, CUDA
 * programming guide (throughput of native arithmetic instructions). */
/* clang-format off */
static const struct rates {
    const char *target;
    double rate[UNIT_COUNT];
    bool shared_operands; /* the MMA reads K and V from shared memory itself */
} targets[] = {
    /*           MMA   MUFU FP32 shared */
    {"sm_80",   {2048, 16,  64,  128}, false},
    {"sm_90a",  {4096, 16,  128, 128}, true},
    {"sm_100a", {8192, 16,  128, 128}, true},
};
/* clang-format on */

static const struct rates *rates_of(const char *target) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(targets[i].target, target) == 0)
            return &targets[i];
    return &targets[0];
}

/* MUFU operations behind a built-in. */
static const int builtin_mufu[BUILTIN_COUNT] = {
    [BUILTIN_EXP] = 1,  [BUILTIN_EXP2] = 1,    [BUILTIN_LOG] = 1,
    [BUILTIN_LOG2] = 1, [BUILTIN_SQRT] = 1,    [BUILTIN_RSQRT] = 1,
    [BUILTIN_TANH] = 2, [BUILTIN_SIGMOID] = 2, [BUILTIN_SIN] = 1,
    [BUILTIN_COS] = 1,  [BUILTIN_POW] = 2,
};

/* ---- Operations per pair ------------------------------------------------ */

struct counter {
    struct arena *arena;
    bool *let_seen;
    int operations, mufu;
};

static bool varies_with_pair(uint32_t deps) {
    return deps & DEP_S || ((deps & DEP_Q) && (deps & DEP_KV));
}

static bool is_leaf(enum expr_kind kind) {
    return kind == EXPR_CONST || kind == EXPR_INDEX || kind == EXPR_SIZE ||
           kind == EXPR_SCORE || kind == EXPR_PARAM;
}

/* One operation, if it must be done for every pair. */
static void count_node(struct counter *c, const struct expr *expr,
                       uint32_t deps) {
    if (!varies_with_pair(deps) || is_leaf(expr->kind))
        return;
    c->operations++;
    if (expr->kind == EXPR_BUILTIN)
        c->mufu += builtin_mufu[expr->builtin];
    if (expr->kind == EXPR_BINARY && expr->binary == BINARY_DIV &&
        expr->type == TYPE_F32 && !ast_is_const(expr->args[1]))
        c->mufu++; /* rcp */
}

/* Counts `expr` and returns what it depends on, with the fn parameters of the
 * frame replaced by what their arguments depend on. */
static uint32_t count(struct counter *c, const struct expr *expr,
                      const uint32_t *frame) {
    if (expr->kind == EXPR_FN_PARAM)
        return frame[expr->fn_param];
    if (expr->kind == EXPR_LET) {
        if (!c->let_seen[expr->let->number])
            count(c, expr->let->value, NULL);
        c->let_seen[expr->let->number] = true;
        return expr->let->value->deps;
    }
    uint32_t deps =
        expr->kind == EXPR_CALL ? 0 : expr->deps & ~(uint32_t)DEP_FN_PARAM;
    uint32_t *args = ARENA_NEW_ARRAY(c->arena, uint32_t, expr->arg_count);
    for (size_t i = 0; i < expr->arg_count; i++) {
        args[i] = count(c, expr->args[i], frame);
        deps |= args[i];
    }
    if (expr->kind == EXPR_CALL && expr->fn->body)
        return count(c, expr->fn->body, args);
    count_node(c, expr, deps);
    return deps;
}

/* Score lines first: a let that both use belongs to the score. */
static void count_items(struct arena *arena, const struct attention *attention,
                        struct account *out) {
    struct counter c = {.arena = arena,
                        .let_seen =
                            ARENA_NEW_ARRAY(arena, bool, attention->let_count)};
    for (size_t i = 0; i < attention->item_count; i++)
        if (attention->items[i].kind == ITEM_SCORE)
            count(&c, attention->items[i].value, NULL);
    out->score_operations = c.operations;
    out->score_mufu = c.mufu;
    for (size_t i = 0; i < attention->item_count; i++)
        if (attention->items[i].kind == ITEM_MASK)
            count(&c, attention->items[i].value, NULL);
    out->mask_operations = c.operations - out->score_operations;
}

/* ---- Units -------------------------------------------------------------- */

/* Bytes through shared memory: the block is written once; K and V are read by
 * every warp, or once per warpgroup where the MMA takes them from there (with
 * roles that of a consumer; the producer reads nothing); Q is read again for
 * each block where it is not kept in registers. */
static double shared_bytes(const struct schedule_plan *plan,
                           const struct rates *rates, double block) {
    double warpgroups =
        plan->consumers > 0 ? plan->consumers : (plan->warps + 3) / 4;
    double readers = rates->shared_operands ? warpgroups : plan->warps;
    double q = plan->q_registers ? 0 : plan->shared_q;
    return block * (1 + readers) + q;
}

struct account account_of(struct arena *arena,
                          const struct attention *attention,
                          const struct schedule_plan *plan) {
    const struct rates *rates = rates_of(plan->target);
    struct account a = {0};
    double pairs = (double)plan->tile_m * plan->tile_n;
    int dim_qk = schedule_padded_dim(attention->head_dim_qk);
    double block = 2.0 * plan->tile_n * (dim_qk + attention->head_dim_v);
    count_items(arena, attention, &a);
    /* Softmax on a pair: fold the scale (fma), maximum, sum, half a
     * conversion. */
    const double softmax_lanes = 3.5;
    a.amount[UNIT_MMA] = 2 * pairs * (dim_qk + attention->head_dim_v);
    a.amount[UNIT_MUFU] = pairs * (1 + a.score_mufu);
    a.amount[UNIT_FP32] = pairs * (softmax_lanes + a.score_operations);
    a.amount[UNIT_SHARED] = shared_bytes(plan, rates, block);
    a.global_bytes =
        2.0 * plan->tile_n * (attention->head_dim_qk + attention->head_dim_v);
    for (int unit = 0; unit < UNIT_COUNT; unit++) {
        a.rate[unit] = rates->rate[unit];
        a.cycles[unit] = a.amount[unit] / a.rate[unit];
        if (a.cycles[unit] > a.cycles[a.bound])
            a.bound = (enum account_unit)unit;
    }
    return a;
}

const char *account_unit_name(enum account_unit unit) {
    static const char *const names[] = {[UNIT_MMA] = "MMA",
                                        [UNIT_MUFU] = "MUFU",
                                        [UNIT_FP32] = "FP32",
                                        [UNIT_SHARED] = "shared"};
    return names[unit];
}

const char *account_unit_amount(enum account_unit unit) {
    static const char *const names[] = {[UNIT_MMA] = "FLOP",
                                        [UNIT_MUFU] = "operations",
                                        [UNIT_FP32] = "lanes",
                                        [UNIT_SHARED] = "bytes"};
    return names[unit];
}
