/* Masks given by captured tensors. */
#include <string.h>

#include "tests/e2e/patterns_terms.h"

/* ---- Data ---------------------------------------------------------------- */

static int32_t *i32_data(struct call *call, const char *name,
                         int64_t *out_count) {
    struct call_tensor *tensor = call_tensor(call, name, SCALAR_I32);
    *out_count = call_tensor_count(tensor);
    return tensor->data;
}

/* Whole numbers of [low, high] everywhere. */
static void fill_i32(struct call *call, const char *name, struct rng *rng,
                     int64_t low, int64_t high) {
    int64_t count;
    int32_t *data = i32_data(call, name, &count);
    for (int64_t i = 0; i < count; i++)
        data[i] = (int32_t)rng_range(rng, low, high);
}

/* True in `percent` of the places; any non-zero byte is true. */
static void fill_bool(struct call *call, const char *name, struct rng *rng,
                      int percent) {
    struct call_tensor *tensor = call_tensor(call, name, SCALAR_BOOL);
    uint8_t *data = tensor->data;
    for (int64_t i = 0, count = call_tensor_count(tensor); i < count; i++)
        data[i] =
            rng_chance(rng, percent) ? (uint8_t)rng_range(rng, 1, 255) : 0;
}

/* Runs of equal numbers that rise by one, from `first`: about `runs` in a row
 * of `length` elements. */
static void fill_runs(struct call *call, const char *name, struct rng *rng,
                      int64_t length, int64_t runs, int32_t first) {
    int64_t count;
    int32_t *data = i32_data(call, name, &count);
    for (int64_t i = 0; i < count; i++) {
        bool starts = i % length == 0;
        bool rises = rng_range(rng, 0, length - 1) < runs;
        data[i] = starts ? first : data[i - 1] + rises;
    }
}

/* ---- Patterns ------------------------------------------------------------ */

static void prefix_setup(struct call *call, struct rng *rng) {
    call_allocate(call);
    fill_i32(call, "prefix", rng, 0, KV_LEN);
}

static bool prefix_lm(const struct call *call, const struct pair *pair) {
    return Q >= KV || call_i32(call, 0, B, 0, 0) > KV;
}

static void document_setup(struct call *call, struct rng *rng) {
    call_allocate(call);
    fill_runs(call, "doc", rng, KV_LEN, 5, 0);
}

static bool same_document(const struct call *call, const struct pair *pair) {
    return call_i32(call, 0, B, Q, 0) == call_i32(call, 0, B, KV, 0);
}

static bool document(const struct call *call, const struct pair *pair) {
    return Q >= KV && same_document(call, pair);
}

static void document_window_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "window", pattern_count(rng, KV_LEN));
    document_setup(call, rng);
}

static bool document_window(const struct call *call, const struct pair *pair) {
    return document(call, pair) && KV + call_param_i32(call, 0) > Q;
}

static void document_unsorted_setup(struct call *call, struct rng *rng) {
    call_allocate(call);
    fill_i32(call, "q_doc", rng, -2, 4); /* -2: no such key */
    fill_i32(call, "kv_doc", rng, -1, 4);
}

static bool document_unsorted(const struct call *call,
                              const struct pair *pair) {
    return call_i32(call, 0, B, Q, 0) == call_i32(call, 1, B, KV, 0);
}

/* Positions where the current run began, as the spec's comment defines them. */
static void document_offsets_setup(struct call *call, struct rng *rng) {
    int64_t count, length = Q_LEN;
    call_allocate(call);
    fill_runs(call, "start", rng, length, 4, 0);
    int32_t *start = i32_data(call, "start", &count);
    int32_t run = 0;
    int64_t begin = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i % length == 0 || start[i] != run)
            begin = i % length;
        run = start[i];
        start[i] = (int32_t)begin;
    }
}

static bool document_offsets(const struct call *call, const struct pair *pair) {
    return KV <= Q && call_i32(call, 0, B, Q, 0) <= KV;
}

/* Lengths of which some are 0 and some are all. */
static void fill_lengths(struct call *call, const char *name, struct rng *rng,
                         int64_t length) {
    int64_t count;
    int32_t *lengths = i32_data(call, name, &count);
    for (int64_t i = 0; i < count; i++) {
        int kind = (int)rng_range(rng, 0, 4);
        lengths[i] = (int32_t)(kind == 0   ? 0
                               : kind == 1 ? length
                                           : rng_range(rng, 1, length));
    }
}

static void padding_setup(struct call *call, struct rng *rng) {
    call_allocate(call);
    fill_lengths(call, "kv_lens", rng, KV_LEN);
}

static bool padding(const struct call *call, const struct pair *pair) {
    return call_i32(call, 0, B, 0, 0) > KV;
}

static void padding_both_setup(struct call *call, struct rng *rng) {
    padding_setup(call, rng);
    fill_lengths(call, "q_lens", rng, Q_LEN);
}

static bool padding_both(const struct call *call, const struct pair *pair) {
    return call_i32(call, 0, B, 0, 0) > Q && call_i32(call, 1, B, 0, 0) > KV;
}

static void jagged_setup(struct call *call, struct rng *rng) {
    int64_t length = Q_LEN, count;
    int32_t *cuts = ARENA_NEW_ARRAY(call->arena, int32_t, (size_t)length + 2);
    int32_t sequences = 0;
    for (int64_t i = 1; i < length; i++)
        if (rng_range(rng, 0, length - 1) < 5)
            cuts[++sequences] = (int32_t)i;
    cuts[++sequences] = (int32_t)length;
    call_set_i32(call, "sequences", sequences);
    call_allocate(call);
    int32_t *offsets = i32_data(call, "offsets", &count);
    memcpy(offsets, cuts, (size_t)count * sizeof *cuts);
    int32_t *seq = i32_data(call, "seq", &count);
    for (int64_t i = 0, s = 0; i < count; i++) {
        s += i >= cuts[s + 1];
        seq[i] = (int32_t)s;
    }
}

static bool jagged(const struct call *call, const struct pair *pair) {
    int32_t sequence = call_i32(call, 1, Q, 0, 0);
    return KV <= Q && KV >= call_i32(call, 0, sequence, 0, 0);
}

static void global_window_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "radius", pattern_count(rng, KV_LEN / 4));
    call_allocate(call);
    fill_bool(call, "is_global", rng, 3);
}

static bool global_window(const struct call *call, const struct pair *pair) {
    int64_t radius = call_param_i32(call, 0);
    if (Q - radius <= KV && KV <= Q + radius)
        return true;
    return call_bool(call, 0, B, Q, 0) || call_bool(call, 0, B, KV, 0);
}

static void block_sparse_setup(struct call *call, struct rng *rng) {
    call_allocate(call);
    fill_bool(call, "keep", rng, 50);
}

static bool block_sparse(const struct call *call, const struct pair *pair) {
    return call_bool(call, 0, H, Q >> 7, KV >> 7);
}

static void bigbird_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "globals", (int32_t)rng_range(rng, 0, 2));
    call_allocate(call);
    fill_bool(call, "random", rng, 15);
}

static bool bigbird(const struct call *call, const struct pair *pair) {
    int64_t row = Q >> 6, column = KV >> 6, globals = call_param_i32(call, 0);
    bool window = row - 1 <= column && column <= row + 1;
    return window || row < globals || column < globals ||
           call_bool(call, 0, H, row, column);
}

/* Random trees over `nodes` draft tokens: parents[i] < i, or -1 for a root. */
static void random_parents(struct rng *rng, int64_t nodes, int64_t *parents) {
    for (int64_t i = 0; i < nodes; i++)
        parents[i] = i == 0 || rng_chance(rng, 10)
                         ? -1
                         : rng_range(rng, i > 8 ? i - 8 : 0, i - 1);
}

static void tree_setup(struct call *call, struct rng *rng) {
    int64_t nodes = Q_LEN;
    call_allocate(call);
    uint8_t *table = call_tensor(call, "ancestor", SCALAR_BOOL)->data;
    int64_t *parents = ARENA_NEW_ARRAY(call->arena, int64_t, (size_t)nodes);
    for (int64_t b = 0; b < call->sizes[SIZE_BATCH]; b++) {
        random_parents(rng, nodes, parents);
        for (int64_t i = 0; i < nodes; i++)
            for (int64_t j = i; j >= 0; j = parents[j])
                table[(b * nodes + i) * nodes + j] = 1;
    }
}

static bool tree(const struct call *call, const struct pair *pair) {
    int64_t node = KV - (KV_LEN - Q_LEN); /* of the key; negative: the past */
    return node < 0 || call_bool(call, 0, B, Q, node);
}

static void tree_bitmask_setup(struct call *call, struct rng *rng) {
    int64_t nodes = Q_LEN, words = (nodes + 31) / 32;
    call_allocate(call);
    uint32_t *table = call_tensor(call, "ancestors", SCALAR_I32)->data;
    int64_t *parents = ARENA_NEW_ARRAY(call->arena, int64_t, (size_t)nodes);
    for (int64_t b = 0; b < call->sizes[SIZE_BATCH]; b++) {
        random_parents(rng, nodes, parents);
        for (int64_t i = 0; i < nodes; i++)
            for (int64_t j = i; j >= 0; j = parents[j])
                table[(b * nodes + i) * words + j / 32] |= 1u << j % 32;
    }
}

static bool tree_bitmask(const struct call *call, const struct pair *pair) {
    int64_t node = KV - (KV_LEN - Q_LEN);
    if (node < 0)
        return true;
    uint32_t word = (uint32_t)call_i32(call, 0, B, Q, node / 32);
    return word & 1u << node % 32;
}

static void adjacency_setup(struct call *call, struct rng *rng) {
    call_allocate(call);
    fill_bool(call, "edge", rng, 20);
}

static bool adjacency(const struct call *call, const struct pair *pair) {
    return call_bool(call, 0, B, Q, KV);
}

static void ranges_setup(struct call *call, struct rng *rng) {
    int64_t count;
    call_allocate(call);
    fill_i32(call, "first", rng, 0, KV_LEN);
    fill_i32(call, "end", rng, 0, KV_LEN); /* below first: an empty row */
    int32_t *first = i32_data(call, "first", &count);
    int32_t *end = i32_data(call, "end", &count);
    for (int64_t i = 0; i < count; i++)
        if (end[i] < first[i] && rng_chance(rng, 80))
            end[i] = (int32_t)KV_LEN;
}

static bool ranges(const struct call *call, const struct pair *pair) {
    return call_i32(call, 0, B, Q, 0) <= KV && call_i32(call, 1, B, Q, 0) > KV;
}

/* Images and text in turn: even runs are text. */
static void image_setup(struct call *call, struct rng *rng) {
    int64_t count;
    call_allocate(call);
    fill_runs(call, "image", rng, KV_LEN, 8, 0);
    int32_t *image = i32_data(call, "image", &count);
    for (int64_t i = 0; i < count; i++)
        image[i] = image[i] % 2 ? image[i] / 2 : -1;
}

static bool image_bidirectional(const struct call *call,
                                const struct pair *pair) {
    int32_t image = call_i32(call, 0, B, Q, 0);
    return KV <= Q || (image != -1 && call_i32(call, 0, B, KV, 0) == image);
}

static void shared_prefix_setup(struct call *call, struct rng *rng) {
    call_allocate(call);
    fill_runs(call, "answer", rng, KV_LEN, 6, 0);
}

static bool shared_prefix(const struct call *call, const struct pair *pair) {
    int32_t answer = call_i32(call, 0, B, KV, 0);
    if (KV > Q)
        return false;
    return answer == 0 || call_i32(call, 0, B, Q, 0) == answer;
}

/* Zigzag: the rank's positions are two chunks, one from each end. */
static void fill_zigzag(struct call *call, const char *name, int64_t rank,
                        int64_t ranks) {
    int64_t count;
    int32_t *position = i32_data(call, name, &count);
    int64_t chunk = (count + 1) / 2;
    for (int64_t i = 0; i < count; i++) {
        int64_t part = i < chunk ? rank : 2 * ranks - 1 - rank;
        position[i] = (int32_t)(part * chunk + i % chunk);
    }
}

static void ring_setup(struct call *call, struct rng *rng) {
    int64_t ranks = rng_range(rng, 2, 4);
    call_allocate(call);
    fill_zigzag(call, "q_position", rng_range(rng, 0, ranks - 1), ranks);
    fill_zigzag(call, "kv_position", rng_range(rng, 0, ranks - 1), ranks);
}

static bool ring_causal(const struct call *call, const struct pair *pair) {
    return call_i32(call, 0, Q, 0, 0) >= call_i32(call, 1, KV, 0, 0);
}

const struct pattern patterns_table[] = {
    {.name = "prefix_lm", .setup = prefix_setup, .mask = prefix_lm},
    {.name = "document",
     .flags = PATTERN_SHARED,
     .setup = document_setup,
     .mask = document},
    {.name = "document_window",
     .flags = PATTERN_SHARED,
     .setup = document_window_setup,
     .mask = document_window},
    {.name = "document_unsorted",
     .setup = document_unsorted_setup,
     .mask = document_unsorted},
    {.name = "document_offsets",
     .setup = document_offsets_setup,
     .mask = document_offsets},
    {.name = "padding", .setup = padding_setup, .mask = padding},
    {.name = "padding_both", .setup = padding_both_setup, .mask = padding_both},
    {.name = "jagged", .setup = jagged_setup, .mask = jagged},
    {.name = "global_window",
     .flags = PATTERN_SHARED,
     .setup = global_window_setup,
     .mask = global_window},
    {.name = "block_sparse", .setup = block_sparse_setup, .mask = block_sparse},
    {.name = "bigbird", .setup = bigbird_setup, .mask = bigbird},
    {.name = "tree", .setup = tree_setup, .mask = tree},
    {.name = "tree_bitmask", .setup = tree_bitmask_setup, .mask = tree_bitmask},
    {.name = "adjacency", .setup = adjacency_setup, .mask = adjacency},
    {.name = "ranges", .setup = ranges_setup, .mask = ranges},
    {.name = "image_bidirectional",
     .flags = PATTERN_SHARED,
     .setup = image_setup,
     .mask = image_bidirectional},
    {.name = "shared_prefix",
     .flags = PATTERN_SHARED,
     .setup = shared_prefix_setup,
     .mask = shared_prefix},
    {.name = "ring_causal", .setup = ring_setup, .mask = ring_causal},
    {.name = NULL},
};
