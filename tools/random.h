/* Seeded random inputs.  Element i of a stream is a pure function of the seed,
 * the stream's name and i: the same data on every machine, whatever else is
 * drawn. */
#ifndef ATTN_TOOLS_RANDOM_H
#define ATTN_TOOLS_RANDOM_H

#include <stdint.h>

struct random_stream {
    uint64_t key;
};

/* The stream `name` ("q", "doc") of a seed. */
struct random_stream random_stream(uint64_t seed, const char *name);

/* Elements [0, count) of normal distribution N(0, 1). */
void random_normal(struct random_stream stream, float *out, int64_t count);

/* Element `index`, 0 or 1 with even odds. */
int random_bool(struct random_stream stream, int64_t index);

/* Element `index`, a whole number of [low, high], both ends included. */
int64_t random_integer(struct random_stream stream, int64_t index, int64_t low,
                       int64_t high);

#endif
