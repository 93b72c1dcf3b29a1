/* Random inputs: reproducible, and distributed as they should be. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "tools/random.h"

enum { COUNT = 200001 };

Test(random, normal_distribution) {
    float *x = malloc(COUNT * sizeof *x);
    random_normal(random_stream(3, "q"), x, COUNT);
    double mean = 0, square = 0, fourth = 0, neighbours = 0;
    for (int i = 0; i < COUNT; i++) {
        double value = (double)x[i];
        mean += value / COUNT;
        square += value * value / COUNT;
        fourth += value * value * value * value / COUNT;
        neighbours += i ? value * (double)x[i - 1] / COUNT : 0;
    }
    /* five standard deviations of each estimate */
    cr_expect_lt(fabs(mean), 5 / sqrt(COUNT));
    cr_expect_lt(fabs(square - 1), 5 * sqrt(2) / sqrt(COUNT));
    cr_expect_lt(fabs(fourth - 3), 5 * sqrt(96) / sqrt(COUNT));
    cr_expect_lt(fabs(neighbours), 5 / sqrt(COUNT));
    free(x);
}

/* A prefix of a longer draw, whatever its length. */
Test(random, elements_do_not_depend_on_the_count) {
    float few[7], many[12];
    random_normal(random_stream(1, "k"), few, 7);
    random_normal(random_stream(1, "k"), many, 12);
    for (int i = 0; i < 7; i++)
        cr_expect_eq(few[i], many[i]);
}

Test(random, streams_differ) {
    float a[4], b[4], c[4];
    random_normal(random_stream(1, "q"), a, 4);
    random_normal(random_stream(1, "k"), b, 4);
    random_normal(random_stream(2, "q"), c, 4);
    for (int i = 0; i < 4; i++)
        cr_expect(a[i] != b[i] && a[i] != c[i]);
}

Test(random, ranges_include_their_ends) {
    struct random_stream stream = random_stream(0, "doc");
    int seen[5] = {0}, heads = 0;
    for (int i = 0; i < 5000; i++) {
        int64_t value = random_integer(stream, i, -2, 2);
        cr_assert(value >= -2 && value <= 2);
        seen[value + 2]++;
        heads += random_bool(stream, i);
    }
    for (int i = 0; i < 5; i++)
        cr_expect(seen[i] > 850 && seen[i] < 1150, "%d: %d", i - 2, seen[i]);
    cr_expect(heads > 2300 && heads < 2700);
    for (int i = 0; i < 100; i++)
        cr_expect_geq(random_integer(stream, i, INT32_MIN, INT32_MAX),
                      INT32_MIN);
    cr_expect_eq(random_integer(stream, 9, 7, 7), 7);
}
