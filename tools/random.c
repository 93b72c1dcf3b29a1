/* Counter-based random numbers: the finaliser of splitmix64 (Steele, Lea,
 * Flood: Fast Splittable Pseudorandom Number Generators, 2014) over key +
 * index, and Box-Muller for the normal distribution. */
#include "tools/random.h"

#include <math.h>

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

struct random_stream random_stream(uint64_t seed, const char *name) {
    uint64_t key = mix(seed);
    for (const char *p = name; *p; p++)
        key = mix(key ^ (unsigned char)*p);
    return (struct random_stream){key};
}

static uint64_t draw(struct random_stream stream, int64_t index) {
    return mix(stream.key ^ mix((uint64_t)index));
}

/* In (0, 1]. */
static double unit(uint64_t bits) {
    return ((double)(bits >> 11) + 1) * 0x1p-53;
}

void random_normal(struct random_stream stream, float *out, int64_t count) {
    const double two_pi = 6.283185307179586;
    for (int64_t i = 0; i < count; i += 2) {
        double radius = sqrt(-2 * log(unit(draw(stream, i))));
        double angle = two_pi * unit(draw(stream, i + 1));
        out[i] = (float)(radius * cos(angle));
        if (i + 1 < count)
            out[i + 1] = (float)(radius * sin(angle));
    }
}

int random_bool(struct random_stream stream, int64_t index) {
    return (int)(draw(stream, index) >> 63);
}

int64_t random_integer(struct random_stream stream, int64_t index, int64_t low,
                       int64_t high) {
    uint64_t span =
        (uint64_t)(high - low) + 1; /* at most 2^32: the bias is below 2^-31 */
    return low + (int64_t)(draw(stream, index) % span);
}
