/* Awkward data, scores, parameters and sizes, each a small spec of its own.
 *
 * The reference says which rows are empty, NaN or beyond the range in which
 * values are promised; a case names the kinds that it must produce, so that it
 * cannot lose its point unnoticed.
 */
#include <math.h>
#include <string.h>

#include "compiler/compile.h"
#include "tests/e2e/suites.h"

enum {
    EXPECT_EMPTY = 1 << REF_ROW_EMPTY,
    EXPECT_NAN = 1 << REF_ROW_NAN,
    EXPECT_EXTREME = 1 << REF_ROW_EXTREME,
};

struct special {
    const char *name;
    const char *items; /* of the attention, but for dtype, head_dim and group */
    unsigned
        expect; /* kinds of rows besides plain ones that must and may occur */
    struct e2e_sizes sizes; /* with `exact` only; else the usual ones */
    bool exact;
    const char *head_dim; /* NULL: 64 */
    const char *group;    /* NULL: any */
    bool packed;          /* its kernel with packed heads must run */
    void (*setup)(struct call *call, struct rng *rng);
};

/* ---- Data ---------------------------------------------------------------- */

/* Fills row `row` of a [.., length, dim] matrix in all heads. */
static void fill_row(const struct call *call, float *matrix,
                     enum size_name heads, enum size_name length, int64_t row,
                     float value) {
    int dim = call->attention->head_dim_qk;
    int64_t blocks = call->sizes[SIZE_BATCH] * call->sizes[heads];
    for (int64_t i = 0; i < blocks; i++)
        for (int d = 0; d < dim; d++)
            matrix[(i * call->sizes[length] + row) * dim + d] = value;
}

/* Keys 3, 10, 17, … are NaN or infinite. */
static void poison_keys(struct call *call, struct rng *rng) {
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (int64_t kv = 3; kv < call->sizes[SIZE_KV_LEN]; kv += 7)
        fill_row(call, call->k32, SIZE_KV_HEADS, SIZE_KV_LEN, kv,
                 values[rng_range(rng, 0, 2)]);
}

static void poison_queries(struct call *call, struct rng *rng) {
    (void)rng;
    fill_row(call, call->q32, SIZE_HEADS, SIZE_Q_LEN, 5, NAN);
    fill_row(call, call->q32, SIZE_HEADS, SIZE_Q_LEN, 64, NAN);
    call->q32[17 * call->attention->head_dim_qk] = NAN;
}

static void poison_values(struct call *call, struct rng *rng) {
    (void)rng;
    call->v32[9 * call->attention->head_dim_v + 3] = NAN;
}

static void infinite_queries(struct call *call, struct rng *rng) {
    (void)rng;
    call->q32[20 * call->attention->head_dim_qk + 1] = INFINITY;
}

static void large_values(struct call *call, struct rng *rng) {
    (void)rng;
    int64_t count = call->sizes[SIZE_BATCH] * call->sizes[SIZE_KV_HEADS] *
                    call->sizes[SIZE_KV_LEN] * call->attention->head_dim_v;
    for (int64_t i = 0; i < count; i++)
        call->v32[i] *= 4096;
}

static void random_table(struct call *call, struct rng *rng) {
    call_allocate(call);
    struct call_tensor *table = call_tensor(call, "t", SCALAR_I32);
    int32_t *data = table->data;
    for (int64_t i = 0, count = call_tensor_count(table); i < count; i++)
        data[i] = (int32_t)rng_range(rng, -3, 3);
}

/* Limits of positions, those that no position reaches among them. */
static void extreme_limits(struct call *call, struct rng *rng) {
    static const int32_t ends[] = {
        INT32_MIN, INT32_MIN + 1, -1000,    -2, -1, 0, 1, 63,
        64,        INT32_MAX - 1, INT32_MAX};
    call_allocate(call);
    struct call_tensor *table = call_tensor(call, "t", SCALAR_I32);
    int32_t *data = table->data;
    for (int64_t i = 0, count = call_tensor_count(table); i < count; i++)
        data[i] = rng_range(rng, 0, 1)
                      ? (int32_t)rng_range(rng, 0, 100)
                      : ends[rng_range(rng, 0, sizeof ends / sizeof *ends - 1)];
}

/* A permutation-like index table `u` next to `t`: legal indices of t
 * everywhere. */
static void nested_tables(struct call *call, struct rng *rng) {
    random_table(call, rng);
    struct call_tensor *index = call_tensor(call, "u", SCALAR_I32);
    int32_t *data = index->data;
    for (int64_t i = 0, count = call_tensor_count(index); i < count; i++)
        data[i] = (int32_t)rng_range(rng, 0, count - 1);
}

/* ---- Cases --------------------------------------------------------------- */

/* Name, items, kinds of rows to expect, further fields. */
#define CASE(label, lines, ...) \
    { .name = (label), .items = (lines), .expect = __VA_ARGS__ }
#define SIZES(...) .exact = true, .sizes = {{__VA_ARGS__}}
#define PACKED(heads) .group = (heads), .packed = true

static const struct special specials[] = {
    /* Rows and tiles without weight. */
    CASE("empty rows", "mask q % 3 == 0 && kv <= q;", EXPECT_EMPTY),
    CASE("all rows empty", "mask kv > kv_len + q;", EXPECT_EMPTY),
    CASE("every other score -inf", "score kv % 2 == 0 ? s : -inf;", 0),
    CASE("rows of -inf", "score q % 2 == 0 ? -inf : s;", EXPECT_EMPTY),
    CASE("whole tiles of -inf", "score kv < 64 || kv >= 128 ? -inf : s;", 0),
    CASE("last tiles of -inf", "score kv >= 8 ? -inf : s;", 0),
    CASE("masked and -inf", "mask kv <= q; score kv == q ? -inf : s;",
         EXPECT_EMPTY),

    /* Large negative numbers as masks. */
    CASE("add -1e4", "score kv <= q ? s : s - 1e4;", 0),
    CASE("add -65504", "score kv <= q ? s : s - 65504.0;", 0),
    CASE("add -1e9", "score kv <= q ? s : s - 1e9;", 0),
    CASE("add -FLT_MAX", "score kv <= q ? s : s - 3.4028235e38;", 0),
    CASE("set -1e9", "score kv <= q ? s : -1e9;", 0),
    CASE("set -FLT_MAX", "score kv <= q ? s : -3.4028235e38;", 0),
    CASE("rows of -1e9", "score q % 2 == 0 ? s - 1e9 : s;", EXPECT_EXTREME),
    CASE("rows of -FLT_MAX", "score q % 2 == 0 ? -3.4028235e38 : s;",
         EXPECT_EXTREME),

    /* NaN and infinities. */
    CASE("NaN and Inf in masked keys", "mask kv % 7 != 3;", 0,
         .setup = poison_keys),
    CASE("NaN in masked keys, causal", "mask kv <= q; mask kv % 7 != 3;", 0,
         .setup = poison_keys),
    CASE("NaN in query rows", "mask kv <= q;", EXPECT_NAN,
         .setup = poison_queries),
    CASE("Inf in a query", "mask kv <= q;", EXPECT_NAN,
         .setup = infinite_queries),
    CASE("NaN in V", "score s;", 0, .setup = poison_values),
    CASE("NaN scores of masked pairs",
         "mask kv <= q; score s + log(f32(q - kv + 1));", 0),
    CASE("+inf on a kept pair", "score kv == 7 && q == 9 ? inf : s;",
         EXPECT_NAN),
    CASE("NaN on a kept pair",
         "score q == 5 && kv == 3 ? sqrt(f32(-1 - kv)) : s;", EXPECT_NAN),
    CASE("+inf on a masked pair", "mask kv != 7; score kv == 7 ? inf : s;", 0),

    /* tanh by its polynomial and by its quotient. */
    CASE("tanh, small and large", "score 20.0 * tanh(kv < 64 ? 0.01 * s : s);",
         0),
    CASE("tanh of +-inf", "score 9.0 * tanh(kv % 9 == 4 ? inf * s : 0.1 * s);",
         0),
    CASE("tanh of NaN",
         "score tanh(q == 5 && kv == 3 ? sqrt(f32(-1 - kv)) : 0.1 * s);",
         EXPECT_NAN),

    /* exp2 by its polynomial. */
    CASE("exp_poly, -inf",
         "schedule { exp_poly 100%; } score q % 2 == 0 ? -inf : s;",
         EXPECT_EMPTY),
    CASE("exp_poly, +inf",
         "schedule { exp_poly 100%; } score kv == 7 && q == 9 ? inf : s;",
         EXPECT_NAN),
    CASE("exp_poly, NaN",
         "schedule { exp_poly 50%; } score q == 5 && kv == 3 ? sqrt(f32(-1 - "
         "kv)) : s;",
         EXPECT_NAN),
    CASE("exp_poly, add -FLT_MAX",
         "schedule { exp_poly 100%; } score kv <= q ? s : s - 3.4028235e38;",
         0),
    CASE("exp_poly, growing",
         "schedule { exp_poly 25%; } score s + 0.5 * f32(kv);", 0),
    CASE("exp_poly, falling steeply",
         "schedule { exp_poly 100%; } score s - 9.0 * f32(kv);", 0),

    /* Ranges of scores. */
    CASE("large scores", "scale 16.0;", 0),
    CASE("scores beyond the range", "scale 5000.0;", EXPECT_EXTREME),
    CASE("negative scale", "scale -0.125; mask kv <= q;", 0),
    CASE("large negative scale", "scale -16.0;", 0),
    CASE("zero scale", "scale 0.0; mask kv <= q;", 0),
    CASE("scale by parameter", "param t: f32 = -0.5; scale t; mask kv <= q;",
         0),
    CASE("zero scale by parameter", "param t: f32 = 0.0; scale t;", 0),
    CASE("growing with kv", "score s + 0.5 * f32(kv);", 0),
    CASE("falling with kv", "score s - 0.5 * f32(kv);", 0),
    CASE("growing steeply", "score s + 9.0 * f32(kv);", 0),
    CASE("falling steeply", "score s - 9.0 * f32(kv);", 0),
    CASE("shifted down", "score s - 3000.0;", 0),
    CASE("shifted up", "score s + 3000.0;", 0),
    CASE("negated", "score -s; mask kv <= q;", 0),
    CASE("squared", "score s * s;", 0),
    CASE("large V", "mask kv <= q;", 0, .setup = large_values),

    /* Parameters and arithmetic at the ends of i32. */
    CASE("window 2^31-1",
         "param w: i32 = 2147483647; mask kv <= q && q - kv < w;", 0),
    CASE("window 2^31-1, added", "param w: i32 = 2147483647; mask kv < q + w;",
         EXPECT_EMPTY),
    CASE("window 2^31-1, subtracted",
         "param w: i32 = 2147483647; mask kv > q - w;", 0),
    CASE("window -2^31, subtracted",
         "param w: i32 = -2147483648; mask kv < q - w;", EXPECT_EMPTY),
    CASE("radius 2^31-1", "param r: i32 = 2147483647; mask abs(q - kv) <= r;",
         0),
    CASE("radius -1", "param r: i32 = -1; mask abs(q - kv) <= r;",
         EXPECT_EMPTY),
    CASE("abs of -2^31", "param m: i32 = -2147483648; mask abs(m + q) < kv;",
         EXPECT_EMPTY),
    CASE("distance from -2^31", "param w: i32 = -2147483648; mask q - kv > w;",
         0),
    CASE("distance -2^31", "param w: i32 = -2147483648; mask kv - q == w;",
         EXPECT_EMPTY),
    CASE("distance 2^31-1", "param w: i32 = 2147483647; mask kv - q <= w;", 0),
    CASE("limits of rows <=", "tensor t: i32[q_len]; mask kv <= t[q];",
         EXPECT_EMPTY, .setup = extreme_limits),
    CASE("limits of rows <", "tensor t: i32[q_len]; mask kv < t[q];",
         EXPECT_EMPTY, .setup = extreme_limits),
    CASE("limits of rows >", "tensor t: i32[q_len]; mask t[q] < kv;",
         EXPECT_EMPTY, .setup = extreme_limits),
    CASE("limits of rows >=", "tensor t: i32[q_len]; mask kv >= t[q];",
         EXPECT_EMPTY, .setup = extreme_limits),
    CASE("limits of rows, other",
         "tensor t: i32[q_len]; mask kv != t[q] && t[q] != 64;", EXPECT_EMPTY,
         .setup = extreme_limits),
    CASE("limits of distances", "tensor t: i32[q_len]; mask q - kv < t[q];",
         EXPECT_EMPTY, .setup = extreme_limits),
    CASE("distances from limits", "tensor t: i32[q_len]; mask t[q] <= q - kv;",
         EXPECT_EMPTY, .setup = extreme_limits),
    CASE("products that wrap",
         "mask (q * 1103515245 + 12345) % 7 != kv * 65539 % 7;", 0),
    CASE("negative divisors", "mask (q - kv) / -3 <= 5 && (q - kv) % -4 != -1;",
         0),
    CASE("shifts",
         "mask ((kv >> 3) ^ (q >> 4)) % 3 != 1 && (1 << (kv & 31)) != 4;", 0),
    CASE("both values of a bool", "param on: bool = true; mask !on || kv <= q;",
         0),
    CASE("floats in a mask",
         "mask f32(kv) * 1.5 <= f32(q) + 0.25 || kv % 5 == 0;", 0),

    /* More tiles than a GPU has multiprocessors, some of them without keys: who
     * had such a tile goes on with one that has several blocks. */
    CASE("tiles without blocks",
         "mask (q / 192) % 3 != 1 && (kv < 64 || kv / 64 == 2 || kv / 64 == 4 "
         "|| kv - q / 64 == 200);",
         EXPECT_EMPTY, SIZES(1, 28, 28, 1150, 300)),
    CASE(
        "tiles without blocks, alike rows",
        "mask (q / 384) % 2 != 1 && (kv < 64 || kv / 64 == 2 || kv / 64 == 4);",
        EXPECT_EMPTY, SIZES(1, 28, 28, 1150, 300), .head_dim = "128"),

    CASE("tiles without blocks, one buffer of Q",
         "mask (q / 384) % 2 != 1 && (kv < 64 || kv / 64 == 2);", EXPECT_EMPTY,
         SIZES(1, 8, 8, 1150, 300), .head_dim = "256"),

    /* Blocks of one consumer are not another's: runs with gaps between them,
     * and more blocks in front of the first own one than stages. */
    CASE("windows of two stages", "mask kv <= q && q - kv < 100;", 0,
         SIZES(1, 6, 6, 700, 700), .head_dim = "256"),
    CASE("runs of two that take turns",
         "mask kv <= q && (q - kv < 40 || kv < 10);", 0,
         SIZES(1, 6, 6, 700, 700), .head_dim = "256"),
    CASE("runs of three", "mask kv <= q && (q - kv < 40 || kv < 10);", 0,
         SIZES(1, 6, 6, 700, 700), .head_dim = "128"),
    CASE("own blocks behind many others'", "mask (q / 64) % 3 == kv / 700;", 0,
         SIZES(1, 3, 3, 600, 2100)),
    CASE("own blocks behind many others', D 128",
         "mask (q / 64) % 3 == kv / 400;", 0, SIZES(1, 3, 3, 600, 1200),
         .head_dim = "128"),

    /* Captured tensors. */
    CASE("guarded reads",
         "tensor t: i32[kv_len]; mask kv + 5 < kv_len && t[kv + 5] > 0;", 0,
         .setup = random_table),
    CASE("reads of reads",
         "tensor t: i32[kv_len]; tensor u: i32[kv_len]; mask t[u[kv]] >= 0;", 0,
         .setup = nested_tables),
    CASE("reads at the row",
         "tensor t: i32[q_len]; mask kv % 4 > t[q]; score s * f32(t[q]);",
         EXPECT_EMPTY, .setup = random_table),

    /* Heads. */
    CASE("mask by head, packed group", "mask kv % (h + 2) == 0 || kv == q;", 0,
         SIZES(2, 6, 2, 50, 70), .group = "3"),
    CASE("score by head and KV head",
         "score s * (f32(h) + 1.0) / (f32(h_kv) + 2.0) + f32(b);", 0,
         SIZES(2, 8, 2, 33, 70), .group = "4"),
    CASE("group 7", "mask kv <= q;", 0, SIZES(1, 7, 1, 20, 40), .group = "7"),

    /* Packed heads: more tiles of single heads than a GPU has multiprocessors.
     */
    CASE("packed, one query", "mask kv <= q + (kv_len - q_len);", 0,
         SIZES(2, 80, 10, 1, 200), PACKED("8")),
    CASE("packed, no mask", "score s * 2.0;", 0, SIZES(1, 160, 40, 9, 90),
         PACKED("4"), .head_dim = "128"),
    CASE("packed, score by head",
         "score s * (f32(h) + 1.0) / (f32(h_kv) + 2.0) + f32(b) - f32(kv - q); "
         "mask kv <= q + 30;",
         0, SIZES(2, 72, 18, 33, 70), PACKED("4")),
    CASE("packed, window", "mask kv <= q + 120 && q + 120 - kv < 40;", 0,
         SIZES(1, 144, 9, 20, 150), PACKED("16"), .head_dim = "128"),
    CASE("packed, periods", "mask (q / 8 + kv / 48) % 3 != 1;", 0,
         SIZES(1, 136, 68, 40, 150), PACKED("2")),
    CASE("packed, KV head in the mask", "mask (kv + h_kv) % 5 != q % 3;", 0,
         SIZES(1, 160, 20, 7, 100), PACKED("8")),
    CASE("packed, reads at the row",
         "tensor t: i32[q_len]; mask kv % 4 > t[q]; score s * f32(t[q]);",
         EXPECT_EMPTY, SIZES(1, 160, 20, 30, 70), PACKED("8"),
         .setup = random_table),
    CASE("packed, reads by head and pair",
         "tensor t: i32[heads, q_len, kv_len]; score s + f32(t[h, q, kv]);", 0,
         SIZES(1, 160, 20, 5, 40), PACKED("8"), .setup = random_table),
    CASE("packed, as many heads as rows", "mask kv <= q;", 0,
         SIZES(1, 192, 3, 3, 70), PACKED("64")),
    CASE("packed, D 256", "mask kv <= q;", 0, SIZES(1, 160, 20, 40, 70),
         PACKED("8"), .head_dim = "256"),
    CASE("packed, D 72, V 40", "mask kv <= q;", 0, SIZES(1, 160, 5, 5, 70),
         PACKED("32"), .head_dim = "72, 40"),
    CASE("packed, no keys", "score s;", EXPECT_EMPTY, SIZES(1, 160, 20, 3, 0),
         PACKED("8")),

    /* Sizes. */
    CASE("one pair", "mask kv <= q;", 0, SIZES(1, 1, 1, 1, 1)),
    CASE("one row", "score s;", 0, SIZES(2, 2, 1, 1, 300)),
    CASE("one key", "score s;", 0, SIZES(2, 2, 1, 130, 1)),
    CASE("fewer keys than a tile", "score s;", 0, SIZES(1, 2, 1, 150, 3)),
    CASE("no keys", "score s;", EXPECT_EMPTY, SIZES(1, 2, 1, 20, 0)),
    CASE("no queries", "score s;", 0, SIZES(1, 2, 1, 0, 20)),
    CASE("no batch", "score s;", 0, SIZES(0, 2, 1, 20, 20)),
    CASE("tile borders", "mask kv <= q;", 0, SIZES(1, 1, 1, 128, 128)),
    CASE("behind tile borders", "mask kv <= q;", 0, SIZES(1, 1, 1, 257, 257),
         .head_dim = "32"),
};

/* ---- Running ------------------------------------------------------------- */

struct special_run {
    const struct e2e_options *options;
    struct report *report;
    enum machine machine;
    const char *targets[E2E_MAX_TARGETS]; /* NULL: the compiler's choice */
    int target_count;
};

/* Kinds of rows in the reference's result as a set of EXPECT_… bits. */
static unsigned row_kinds(const struct call *call,
                          const struct ref_result *reference) {
    const int64_t *n = call->sizes;
    unsigned kinds = 0;
    for (int64_t i = 0, rows = n[SIZE_BATCH] * n[SIZE_HEADS] * n[SIZE_Q_LEN];
         i < rows; i++)
        kinds |= 1u << reference->row[i];
    return kinds & ~(1u << REF_ROW_PLAIN);
}

/* Of the emulator, where a case is about packed heads: with fewer of them
 * packing saves nothing. */
enum { PACKED_MULTIPROCESSORS = 4 };

/* Does a call of the case launch the kernel with packed heads, on a large GPU
 * and on the emulator's small one? */
static bool runs_packed(const struct executor *executor,
                        const struct special *special) {
    const struct kernel_info *info = executor->compiled->info;
    const int multiprocessors[] = {PACKED_MULTIPROCESSORS, 132};
    for (size_t i = 0; i < 2; i++) {
        struct size_env env = {.sm_count = multiprocessors[i]};
        int64_t packed = 0, others = 0, grid = 0;
        memcpy(env.sizes, special->sizes.n, sizeof env.sizes);
        for (size_t e = 0; e < info->entry_count; e++) {
            const char *name = info->entries[e].name;
            size_expr_eval(&info->entries[e].grid_x, &env, &grid);
            if (strstr(name, "$packed"))
                packed += grid;
            else if (strcmp(name, info->name) == 0 || strstr(name, "$tile"))
                others += grid;
        }
        if (packed == 0 || others > 0)
            return false;
    }
    return true;
}

static const char *run_special(const struct special_run *run,
                               const char *target,
                               const struct special *special, const char *dtype,
                               struct arena *arena, struct result *result) {
    const struct e2e_options *options = run->options;
    struct rng rng = {options->seed};
    struct e2e_sizes sizes = special->exact
                                 ? special->sizes
                                 : (struct e2e_sizes){{1, 2, 1, 100, 150}};
    struct loaded loaded;
    struct executor executor;
    const char *text =
        arena_printf(arena,
                     "attention special {\n    dtype %s;\n    head_dim %s;\n   "
                     " group %s;\n    %s\n}\n",
                     dtype, special->head_dim ? special->head_dim : "64",
                     special->group ? special->group : "any", special->items);
    memcpy(result->sizes, sizes.n, sizeof result->sizes);
    if (!load_spec_text(arena, special->name, text, &loaded))
        return "the spec does not check";
    const char *error =
        executor_create(&loaded, run->machine, target, &executor);
    if (error)
        return error;
    if (special->packed && run->machine == MACHINE_EMULATOR &&
        !runs_packed(&executor, special))
        return "the kernel with packed heads does not run";
    if (special->packed)
        executor.multiprocessors = PACKED_MULTIPROCESSORS;
    struct call *call = call_create(arena, loaded.attention, sizes.n, &rng);
    if (special->setup)
        special->setup(call, &rng);
    struct ref_result reference = e2e_reference(call, 1);
    unsigned kinds = row_kinds(call, &reference);
    call_encode(call, loaded.attention->dtype, CALL_BSHD);
    e2e_compare(&executor, call, CALL_BSHD, &reference, options->seed, result);
    result->variant = arena_printf(arena, "%s %s", executor.target, dtype);
    executor_destroy(&executor);
    if (result->message)
        return result->message;
    return kinds == special->expect
               ? NULL
               : "the data have rows of other kinds than expected";
}

static void special_work(void *context, int64_t index) {
    static const char *const dtypes[] = {"bf16", "f16"};
    struct special_run *run = context;
    const struct special *special = &specials[index / 2 / run->target_count];
    const char *target = run->targets[index / 2 % run->target_count];
    struct arena *arena = arena_create();
    struct result result = {.suite = run->machine == MACHINE_GPU ? "special gpu"
                                                                 : "special",
                            .name = special->name,
                            .variant = dtypes[index % 2]};
    result.message =
        run_special(run, target, special, dtypes[index % 2], arena, &result);
    result.ok = !result.message;
    report_add(run->report, &result);
    arena_destroy(arena);
}

void suite_special(const struct e2e_options *options, bool gpu,
                   struct report *report) {
    struct special_run run = {options,
                              report,
                              gpu ? MACHINE_GPU : MACHINE_EMULATOR,
                              {options->target},
                              1};
    if (!e2e_wanted(options, "special"))
        return;
    if (!gpu)
        run.target_count = e2e_targets(options, run.targets);
    e2e_parallel(
        2 * run.target_count * (int64_t)(sizeof specials / sizeof *specials),
        options->threads, gpu ? executor_gpu_enter : NULL, special_work, &run);
}
