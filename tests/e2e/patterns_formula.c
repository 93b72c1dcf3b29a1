/* Masks given by positions, sizes and parameters alone. */
#include <stdlib.h>

#include "tests/e2e/patterns_terms.h"

static void window_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "window", pattern_count(rng, KV_LEN));
}

static bool sliding_window(const struct call *call, const struct pair *pair) {
    int64_t oldest = Q - call_param_i32(call, 0) + 1;
    return oldest <= KV && KV <= Q;
}

static void radius_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "radius", pattern_count(rng, KV_LEN / 2));
}

static bool local_symmetric(const struct call *call, const struct pair *pair) {
    int64_t radius = call_param_i32(call, 0);
    return Q - radius <= KV && KV <= Q + radius;
}

static void dilated_window_setup(struct call *call, struct rng *rng) {
    radius_setup(call, rng);
    call_set_i32(call, "dilation", (int32_t)rng_range(rng, 1, 7));
}

static bool dilated_window(const struct call *call, const struct pair *pair) {
    int64_t distance = llabs(Q - KV);
    return distance <= call_param_i32(call, 0) &&
           distance % call_param_i32(call, 1) == 0;
}

static bool dilated_causal(const struct call *call, const struct pair *pair) {
    (void)call;
    return Q >= KV && ((Q - KV) & 3) == 0;
}

static void stride_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "stride", pattern_count(rng, KV_LEN / 3));
}

static bool strided_sparse(const struct call *call, const struct pair *pair) {
    int64_t stride = call_param_i32(call, 0);
    if (KV > Q)
        return false;
    return KV > Q - stride || KV % stride == Q % stride;
}

static void chunk_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "chunk", pattern_count(rng, KV_LEN));
}

static bool chunked_causal(const struct call *call, const struct pair *pair) {
    int64_t chunk = call_param_i32(call, 0);
    int64_t begin = Q - Q % chunk; /* of the query's chunk */
    return begin <= KV && KV <= Q;
}

static void block_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "block", pattern_count(rng, KV_LEN / 2));
}

static bool block_causal(const struct call *call, const struct pair *pair) {
    int64_t block = call_param_i32(call, 0);
    int64_t end = Q - Q % block + block; /* of the query's block, exclusive */
    return KV < end;
}

static void sink_window_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "sinks", (int32_t)rng_range(rng, 0, KV_LEN / 4));
    window_setup(call, rng);
}

static bool sink_window(const struct call *call, const struct pair *pair) {
    bool sink =
        KV<call_param_i32(call, 0), near = KV> Q - call_param_i32(call, 1);
    return KV <= Q && (sink || near);
}

/* A canvas that is not square and holds all positions; odd kernels
 * inside it. */
static void canvas_setup(struct call *call, struct rng *rng) {
    int64_t length = Q_LEN > KV_LEN ? Q_LEN : KV_LEN;
    int32_t width = pattern_count(rng, length < 40 ? length : 40);
    int32_t height = (int32_t)((length + width - 1) / width);
    call_set_i32(call, "height", height);
    call_set_i32(call, "width", width);
    call_set_i32(call, "kernel_h",
                 2 * (pattern_count(rng, (height + 1) / 2) - 1) + 1);
    call_set_i32(call, "kernel_w",
                 2 * (pattern_count(rng, (width + 1) / 2) - 1) + 1);
}

/* First of the `kernel` rows (or columns) that position x sees on an axis:
 * centred on x, moved inside the canvas. */
static int64_t neighbourhood_begin(int64_t x, int64_t extent, int64_t kernel) {
    int64_t begin = x - (kernel - 1) / 2;
    if (begin + kernel > extent)
        begin = extent - kernel;
    return begin < 0 ? 0 : begin;
}

static bool neighbourhood_2d(const struct call *call, const struct pair *pair) {
    int64_t height = call_param_i32(call, 0), width = call_param_i32(call, 1);
    int64_t kernel_h = call_param_i32(call, 2),
            kernel_w = call_param_i32(call, 3);
    int64_t top = neighbourhood_begin(Q / width, height, kernel_h);
    int64_t left = neighbourhood_begin(Q % width, width, kernel_w);
    int64_t y = KV / width, x = KV % width;
    return top <= y && y < top + kernel_h && left <= x && x < left + kernel_w;
}

static void block_diffusion_setup(struct call *call, struct rng *rng) {
    int64_t length = Q_LEN > KV_LEN ? Q_LEN : KV_LEN;
    call_set_i32(call, "half", (int32_t)((length + 1) / 2));
    call_set_i32(call, "block", pattern_count(rng, length / 4));
}

static bool block_diffusion(const struct call *call, const struct pair *pair) {
    int64_t half = call_param_i32(call, 0), block = call_param_i32(call, 1);
    int64_t q_block = Q % half / block, kv_block = KV % half / block;
    if (Q < half) /* noisy query */
        return KV < half ? q_block == kv_block : kv_block < q_block;
    return KV >= half && kv_block <= q_block;
}

const struct pattern patterns_formula[] = {
    {.name = "full"},
    {.name = "causal", .mask = causal},
    {.name = "causal_bottom_right", .mask = causal_bottom_right},
    {.name = "mla_prefill", .mask = causal_bottom_right},
    {.name = "sliding_window", .setup = window_setup, .mask = sliding_window},
    {.name = "local_symmetric", .setup = radius_setup, .mask = local_symmetric},
    {.name = "dilated_window",
     .setup = dilated_window_setup,
     .mask = dilated_window},
    {.name = "dilated_causal", .mask = dilated_causal},
    {.name = "strided_sparse", .setup = stride_setup, .mask = strided_sparse},
    {.name = "chunked_causal", .setup = chunk_setup, .mask = chunked_causal},
    {.name = "block_causal", .setup = block_setup, .mask = block_causal},
    {.name = "sink_window", .setup = sink_window_setup, .mask = sink_window},
    {.name = "neighbourhood_2d",
     .setup = canvas_setup,
     .mask = neighbourhood_2d},
    {.name = "block_diffusion",
     .setup = block_diffusion_setup,
     .mask = block_diffusion},
    {.name = NULL},
};
