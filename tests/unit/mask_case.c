/* Masks against brute force: see mask_case.h. */
#include "mask_case.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"
#include "support/vec.h"

void mask_case_init(struct mask_case *c, struct arena *arena,
                    const struct attention *attention, MlirModule module,
                    const int tile[2], const int *second) {
    *c = (struct mask_case){.arena = arena,
                            .attention = attention,
                            .module = mlirModuleGetOperation(module),
                            .tile_m = tile[0],
                            .tile_n = tile[1]};
    c->kernel = ir_find_func(c->module, attention->name);
    ir_set_kernel_tile(c->kernel, tile[0], tile[1]);
    if (second)
        ir_set_int_pair(c->kernel, "attn.second_tile", second[0], second[1]);
    struct source_set *sources = source_set_create(arena);
    struct pass_ctx ctx = {.scratch = arena,
                           .diags = diag_sink_create(arena, sources)};
    bool passed = pass_mask_blocks.run(&ctx, c->module);
    assert(passed);
    (void)passed;
    MlirOperation op = ir_find_attention(c->kernel);
    MlirOperation classify = ir_symbol_func(c->module, op, "classify");
    c->dense = ir_has_attr(op, "dense");
    c->mask = eval_compile(arena, ir_symbol_func(c->module, op, "mask"));
    c->classify = eval_compile(arena, classify);
    c->bounds = eval_compile(arena, ir_symbol_func(c->module, op, "kv_bounds"));
    c->classify_args = ir_func_arg_count(classify) - 7;
}

/* ---- Sizes --------------------------------------------------------------- */

/* Postfix words as in attn.grid. */
static int64_t evaluate_words(struct mask_case *c, const char *const *words,
                              size_t count) {
    struct size_expr expr = {0};
    for (size_t i = 0; i < count; i++) {
        enum size_op op = SIZE_OP_CONST;
        int64_t value = 0;
        bool known = false;
        for (int n = 0; n < SIZE_COUNT && !known; n++)
            if (strcmp(words[i], size_name_text((enum size_name)n)) == 0)
                op = SIZE_OP_SIZE, value = n, known = true;
        for (int n = SIZE_OP_NEG; n < SIZE_OP_COUNT && !known; n++)
            if (strcmp(words[i], size_op_text((enum size_op)n)) == 0)
                op = (enum size_op)n, known = true;
        for (size_t n = 0; n < c->attention->param_count && !known; n++)
            if (strncmp(words[i], "param:", 6) == 0 &&
                strcmp(words[i] + 6, c->attention->params[n].name) == 0)
                op = SIZE_OP_PARAM, value = (int64_t)n, known = true;
        if (!known)
            value = atoll(words[i]);
        size_expr_push(c->arena, &expr, op, value);
    }
    struct size_env env = {.scalars = c->params,
                           .scalar_count = c->attention->param_count};
    int64_t result;
    memcpy(env.sizes, c->sizes, sizeof env.sizes);
    if (!size_expr_eval(&expr, &env, &result))
        abort();
    return result;
}

int64_t mask_case_extents(struct mask_case *c, const struct tensor *tensor,
                          int64_t *out_extents) {
    struct size_env env = {.scalars = c->params,
                           .scalar_count = c->attention->param_count};
    int64_t total = 1;
    memcpy(env.sizes, c->sizes, sizeof env.sizes);
    for (int i = 0; i < tensor->rank; i++) {
        struct size_expr expr = {0};
        if (!ast_size_expr(c->arena, tensor->extents[i], &expr) ||
            !size_expr_eval(&expr, &env, &out_extents[i]))
            abort();
        total *= out_extents[i];
    }
    return total;
}

/* ---- One instance -------------------------------------------------------- */

static struct eval_value param_value(const struct param *param, uint32_t bits) {
    float real;
    memcpy(&real, &bits, sizeof real);
    return param->type == TYPE_F32 ? eval_real(real)
                                   : eval_whole((int32_t)bits);
}

/* Runs one summary kernel over its grid into a fresh buffer. */
static const struct eval_memory *run_summary(struct mask_case *c,
                                             MlirOperation func) {
    size_t count, tensor = 0;
    const char *name = ir_func_arg_kind(func, 0) + strlen("tensor:");
    while (strcmp(c->attention->tensors[tensor].name, name) != 0)
        tensor++;
    struct eval_memory *buffer = ARENA_NEW(c->arena, struct eval_memory);
    const char **words = ir_words(
        c->arena, ir_func_arg_attr(func, 1, "attn.workspace_bytes"), &count);
    int64_t bytes = evaluate_words(c, words, count);
    MlirType element = ir_element_type(mlirValueGetType(ir_func_arg(func, 1)));
    *buffer = (struct eval_memory){.type = ir_is_f32(element) ? SCALAR_F32
                                                              : SCALAR_I32,
                                   .data = arena_alloc(c->arena, (size_t)bytes),
                                   .rank = 1,
                                   .extents = {bytes / 4}};
    memset(buffer->data, 0x5a,
           (size_t)bytes); /* an entry that is not written is wrong */
    struct eval_value args[2] = {eval_memory_arg(&c->tensors[tensor]),
                                 eval_memory_arg(buffer)};
    struct eval_program *program = eval_compile(c->arena, func);
    words = ir_words(c->arena,
                     mlirOperationGetAttributeByName(func, ir_ref("attn.grid")),
                     &count);
    int64_t grid = evaluate_words(c, words, count);
    for (int64_t block = 0; block < grid; block++)
        for (int warp = 0; warp < ir_kernel_warps(func); warp++)
            eval_run(program, args, block, warp, NULL);
    return buffer;
}

void mask_case_prepare(struct mask_case *c) {
    const struct attention *attention = c->attention;
    VEC(struct eval_value) shared = {0};
    for (int i = 0; i < SIZE_COUNT; i++)
        vec_push(c->arena, &shared, eval_whole(c->sizes[i]));
    for (size_t i = 0; i < attention->param_count; i++)
        if (attention->params[i].used)
            vec_push(c->arena, &shared,
                     param_value(&attention->params[i], c->params[i]));
    for (size_t i = 0; i < attention->tensor_count; i++)
        if (attention->tensors[i].used)
            vec_push(c->arena, &shared, eval_memory_arg(&c->tensors[i]));
    /* Summaries in the order of the kernel's workspaces. */
    for (size_t n = shared.count; n < c->classify_args; n++) {
        const char *workspace = ir_func_arg_kind(c->kernel, n + 5);
        MlirOperation op =
            mlirBlockGetFirstOperation(ir_region_block(c->module, 0));
        while (!ir_is_op(op, "func.func") || !ir_kernel_kind(op) ||
               strcmp(ir_kernel_kind(op), "summary") != 0 ||
               strcmp(ir_func_arg_kind(op, 1), workspace) != 0)
            op = mlirOperationGetNextInBlock(op);
        vec_push(c->arena, &shared, eval_memory_arg(run_summary(c, op)));
    }
    c->shared = shared.data;
    c->shared_count = shared.count;
}

/* Arguments of a function: leading ones, then what it takes of the shared
 * ones. */
static struct eval_value *arguments(struct mask_case *c, size_t leading) {
    struct eval_value *args =
        ARENA_NEW_ARRAY(c->arena, struct eval_value, leading + c->shared_count);
    memcpy(args + leading, c->shared, c->shared_count * sizeof *args);
    return args;
}

static void set_head(struct mask_case *c, struct eval_value *args, int64_t b,
                     int64_t h) {
    int64_t group = c->sizes[SIZE_HEADS] / c->sizes[SIZE_KV_HEADS];
    args[0] = eval_whole(b);
    args[1] = eval_whole(h);
    args[2] = eval_whole(h / group);
}

void mask_case_truth(struct mask_case *c, int64_t b, int64_t h,
                     uint8_t *out_keep) {
    struct eval_value *args = arguments(c, 5), result;
    int64_t q_len = c->sizes[SIZE_Q_LEN], kv_len = c->sizes[SIZE_KV_LEN];
    set_head(c, args, b, h);
    for (int64_t q = 0; q < q_len; q++) {
        args[3] = eval_whole(q);
        for (int64_t first = 0; first < kv_len; first += EVAL_LANES) {
            for (int i = 0; i < EVAL_LANES; i++)
                args[4].i[i] = first + i;
            eval_run(c->mask, args, 0, 0, &result);
            for (int i = 0; i < EVAL_LANES && first + i < kv_len; i++)
                out_keep[q * kv_len + first + i] = (uint8_t)result.i[i];
        }
    }
}

/* ---- Comparison ---------------------------------------------------------- */

struct tile_truth {
    bool some, all;
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static struct tile_truth truth_of(const struct mask_case *c,
                                  const uint8_t *keep, int64_t q0, int64_t k0) {
    int64_t q_len = c->sizes[SIZE_Q_LEN], kv_len = c->sizes[SIZE_KV_LEN];
    struct tile_truth truth = {false, true};
    for (int64_t q = q0; q < smaller(q0 + c->tile_m, q_len); q++)
        for (int64_t k = k0; k < smaller(k0 + c->tile_n, kv_len); k++) {
            truth.some |= keep[q * kv_len + k] != 0;
            truth.all &= keep[q * kv_len + k] != 0;
        }
    return truth;
}

static const char *check_tile(struct mask_case *c, int64_t q0, int64_t k0,
                              int64_t class, struct tile_truth truth,
                              struct mask_score *score) {
    if (class < 0 || class > 2)
        return arena_printf(c->arena, "class %lld", (long long)class);
    score->skip += class == 0;
    score->partial += class == 1;
    score->whole += class == 2;
    score->lost += class == 1 && (!truth.some || truth.all);
    if ((class == 0 && truth.some) || (class == 2 && !truth.all))
        return arena_printf(c->arena, "tile at q %lld, kv %lld is called %s",
                            (long long)q0, (long long)k0,
                            class == 0 ? "skip" : "whole");
    return NULL;
}

/* A tile in which nothing but kv <= q is open. */
static const char *check_causal(struct mask_case *c, const uint8_t *keep,
                                int64_t q0, int64_t k0,
                                struct mask_score *score) {
    int64_t q_len = c->sizes[SIZE_Q_LEN], kv_len = c->sizes[SIZE_KV_LEN];
    score->causal++;
    for (int64_t q = q0; q < smaller(q0 + c->tile_m, q_len); q++)
        for (int64_t k = k0; k < smaller(k0 + c->tile_n, kv_len); k++)
            if ((keep[q * kv_len + k] != 0) != (k <= q))
                return arena_printf(c->arena,
                                    "tile at q %lld, kv %lld is not causal",
                                    (long long)q0, (long long)k0);
    return NULL;
}

/* All tiles of one row of tiles, a lane a key block. */
static const char *check_row(struct mask_case *c, struct eval_value *args,
                             const uint8_t *keep, int64_t q0,
                             struct mask_score *score) {
    int64_t kv_len = c->sizes[SIZE_KV_LEN],
            blocks = (kv_len + c->tile_n - 1) / c->tile_n;
    struct eval_value class[2];
    args[3] = eval_whole(q0);
    args[4] = eval_whole(smaller(q0 + c->tile_m, c->sizes[SIZE_Q_LEN]) - 1);
    for (int64_t first = 0; first < blocks; first += EVAL_LANES) {
        for (int i = 0; i < EVAL_LANES; i++) {
            args[5].i[i] = (first + i) * c->tile_n;
            args[6].i[i] = smaller((first + i + 1) * c->tile_n, kv_len) - 1;
        }
        eval_run(c->classify, args, 0, 0, class);
        for (int i = 0; i < EVAL_LANES && first + i < blocks; i++) {
            int64_t k0 = (first + i) * c->tile_n;
            const char *wrong = check_tile(c, q0, k0, class[0].i[i],
                                           truth_of(c, keep, q0, k0), score);
            if (!wrong && class[1].i[i] != 0)
                wrong = check_causal(c, keep, q0, k0, score);
            if (wrong)
                return wrong;
        }
    }
    return NULL;
}

static const char *check_bounds(struct mask_case *c, struct eval_value *args,
                                const uint8_t *keep, int64_t q0,
                                struct mask_score *score) {
    int64_t kv_len = c->sizes[SIZE_KV_LEN];
    struct eval_value bounds[2];
    args[3] = eval_whole(q0);
    args[4] = eval_whole(smaller(q0 + c->tile_m, c->sizes[SIZE_Q_LEN]) - 1);
    eval_run(c->bounds, args, 0, 0, bounds);
    int64_t first = bounds[0].i[0], last = bounds[1].i[0];
    if (first <= last && (first < 0 || last >= kv_len))
        return arena_printf(c->arena, "kv_bounds at q %lld are %lld to %lld",
                            (long long)q0, (long long)first, (long long)last);
    for (int64_t q = q0; q < smaller(q0 + c->tile_m, c->sizes[SIZE_Q_LEN]); q++)
        for (int64_t k = 0; k < kv_len; k++)
            if (keep[q * kv_len + k] && (k < first || k > last))
                return arena_printf(
                    c->arena,
                    "kv_bounds at q %lld are %lld to %lld: %lld attends",
                    (long long)q0, (long long)first, (long long)last,
                    (long long)k);
    if (first > last)
        return NULL;
    for (int64_t k0 = first / c->tile_n * c->tile_n; k0 <= last;
         k0 += c->tile_n) {
        if (truth_of(c, keep, q0, k0).some)
            break;
        score->loose++;
    }
    for (int64_t k0 = last / c->tile_n * c->tile_n; k0 >= first;
         k0 -= c->tile_n) {
        if (truth_of(c, keep, q0, k0).some)
            break;
        score->loose++;
    }
    return NULL;
}

const char *mask_case_check(struct mask_case *c, int64_t b, int64_t h,
                            const uint8_t *keep, struct mask_score *score) {
    struct eval_value *args = arguments(c, 7), *bounds_args = arguments(c, 5);
    const char *wrong = NULL;
    score->dense = c->dense;
    set_head(c, args, b, h);
    set_head(c, bounds_args, b, h);
    for (int64_t q0 = 0; q0 < c->sizes[SIZE_Q_LEN] && !wrong; q0 += c->tile_m) {
        wrong = check_row(c, args, keep, q0, score);
        if (!wrong)
            wrong = check_bounds(c, bounds_args, keep, q0, score);
    }
    return wrong;
}
