/* Changes of the score, in double where the specs work in f32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/patterns_terms.h"

/* Captured floats are N(0, 1). */
static void floats_setup(struct call *call, struct rng *rng) {
    call_allocate(call);
    call_fill_floats(call, rng);
}

static double alibi(const struct call *call, const struct pair *pair,
                    double s) {
    double slope =
        pow(2, -8.0 * (double)(H + 1) / (double)call->sizes[SIZE_HEADS]);
    return s - slope * (double)(Q - KV);
}

static double alibi_slopes(const struct call *call, const struct pair *pair,
                           double s) {
    double distance = (double)llabs((KV_LEN - KV) - (Q_LEN - Q));
    return s - call_float(call, 0, B, H, 0, 0) * distance;
}

/* T5's formula; the buckets' borders are at distances 8 * 16^(k/8), and the
 * double logarithm of a border may fall a hair short of the whole number. */
static double t5_bias(const struct call *call, const struct pair *pair,
                      double s) {
    int64_t n = llabs(KV - Q), bucket = n;
    if (n >= 8) {
        bucket = 8 + (int64_t)floor(8 * log((double)n / 8) / log(16) + 1e-9);
        bucket = bucket < 15 ? bucket : 15;
    }
    return s + call_float(call, 0, KV > Q ? 16 + bucket : bucket, H, 0, 0);
}

static double relative_bias(const struct call *call, const struct pair *pair,
                            double s) {
    int64_t from_furthest = (KV_LEN - 1 - KV) + Q;
    return s + call_float(call, 0, H, from_furthest, 0, 0);
}

static void relative_bias_2d_setup(struct call *call, struct rng *rng) {
    int64_t length = Q_LEN > KV_LEN ? Q_LEN : KV_LEN;
    int32_t width = pattern_count(rng, length < 24 ? length : 24);
    call_set_i32(call, "width", width);
    call_set_i32(call, "height", (int32_t)((length + width - 1) / width));
    floats_setup(call, rng);
}

static double relative_bias_2d(const struct call *call, const struct pair *pair,
                               double s) {
    int64_t height = call_param_i32(call, 0), width = call_param_i32(call, 1);
    int64_t rows_up = Q / width - KV / width,
            columns_left = Q % width - KV % width;
    return s + call_float(call, 0, H, height - 1 + rows_up,
                          width - 1 + columns_left, 0);
}

static double pair_bias(const struct call *call, const struct pair *pair,
                        double s) {
    return s + call_float(call, 0, B, H, Q, KV);
}

/* All the ways in which people write "does not attend"; the first key always
 * does. */
static void additive_mask_setup(struct call *call, struct rng *rng) {
    static const float very_low[] = {-1e4f, -65504.0f, -1e9f, -3.4028235e38f,
                                     -INFINITY};
    call_allocate(call);
    struct call_tensor *bias = call_tensor(call, "bias", SCALAR_F32);
    float *data = bias->data;
    for (int64_t i = 0, count = call_tensor_count(bias); i < count; i++)
        if (i % KV_LEN != 0 && rng_chance(rng, 40))
            data[i] = very_low[rng_range(rng, 0, 4)];
}

static double additive_mask(const struct call *call, const struct pair *pair,
                            double s) {
    return s + call_float(call, 0, B, Q, KV, 0);
}

static void softcap_setup(struct call *call, struct rng *rng) {
    call_set_f32(call, "cap", (float)(0.5 + 4 * rng_unit(rng)));
}

static double softcap(const struct call *call, const struct pair *pair,
                      double s) {
    (void)pair;
    double cap = (double)call_param_f32(call, 0);
    return cap * tanh(s / cap);
}

/* Running sums of log f with f near 1, as trained gates are. */
static void forget_gate_setup(struct call *call, struct rng *rng) {
    call_allocate(call);
    struct call_tensor *gates = call_tensor(call, "log_gates", SCALAR_F32);
    float *data = gates->data;
    double sum = 0;
    for (int64_t i = 0, count = call_tensor_count(gates); i < count; i++) {
        sum = i % KV_LEN == 0 ? 0 : sum + log(1 - 0.2 * rng_unit(rng));
        data[i] = (float)sum;
    }
}

static double forget_gate(const struct call *call, const struct pair *pair,
                          double s) {
    int64_t position = KV_LEN - (Q_LEN - Q);
    return s + call_float(call, 0, B, H, position, 0) -
           call_float(call, 0, B, H, KV, 0);
}

static double key_gate(const struct call *call, const struct pair *pair,
                       double s) {
    return s - log1p(exp(-call_float(call, 0, B, pair->h_kv, KV, 0)));
}

static double cosine(const struct call *call, const struct pair *pair,
                     double s) {
    return s * call_float(call, 0, H, 0, 0, 0);
}

static void gemma2_setup(struct call *call, struct rng *rng) {
    call_set_i32(call, "window", pattern_count(rng, KV_LEN));
    softcap_setup(call, rng);
}

static bool gemma2_mask(const struct call *call, const struct pair *pair) {
    return KV <= Q && KV > Q - call_param_i32(call, 0);
}

static double gemma2_score(const struct call *call, const struct pair *pair,
                           double s) {
    (void)pair;
    double cap = (double)call_param_f32(call, 1);
    return cap * tanh(s / cap);
}

const struct pattern patterns_score[] = {
    {.name = "alibi", .mask = causal, .score = alibi},
    {.name = "alibi_slopes", .setup = floats_setup, .score = alibi_slopes},
    {.name = "t5_bias", .scale = 1, .setup = floats_setup, .score = t5_bias},
    {.name = "relative_bias", .setup = floats_setup, .score = relative_bias},
    {.name = "relative_bias_2d",
     .setup = relative_bias_2d_setup,
     .score = relative_bias_2d},
    {.name = "pair_bias", .setup = floats_setup, .score = pair_bias},
    {.name = "additive_mask",
     .setup = additive_mask_setup,
     .score = additive_mask},
    {.name = "softcap",
     .setup = softcap_setup,
     .mask = causal,
     .score = softcap},
    {.name = "forget_gate",
     .setup = forget_gate_setup,
     .mask = causal_bottom_right,
     .score = forget_gate},
    {.name = "key_gate",
     .setup = floats_setup,
     .mask = causal,
     .score = key_gate},
    {.name = "cosine", .scale = 1, .setup = floats_setup, .score = cosine},
    {.name = "gemma2_local",
     .setup = gemma2_setup,
     .mask = gemma2_mask,
     .score = gemma2_score},
    {.name = NULL},
};
