/* Seeded random numbers of the tests: splitmix64.  Same seed, same tests, on
 * every machine. */
#ifndef ATTN_TESTS_E2E_RNG_H
#define ATTN_TESTS_E2E_RNG_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

/* 64 random bits. */
static inline uint64_t rng_next(struct rng *rng) {
    uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* A whole number of [low, high]. */
static inline int64_t rng_range(struct rng *rng, int64_t low, int64_t high) {
    return low + (int64_t)(rng_next(rng) % (uint64_t)(high - low + 1));
}

/* True in `percent` of 100 cases. */
static inline bool rng_chance(struct rng *rng, int percent) {
    return rng_range(rng, 0, 99) < percent;
}

/* In [0, 1). */
static inline double rng_unit(struct rng *rng) {
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

/* Standard normal (Box and Muller). */
static inline double rng_normal(struct rng *rng) {
    double radius = sqrt(-2 * log(1 - rng_unit(rng)));
    return radius * cos(6.283185307179586 * rng_unit(rng));
}

#endif
