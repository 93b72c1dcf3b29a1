/* The three tables as one list. */
#include "tests/e2e/patterns.h"

#include <string.h>

const struct pattern *pattern_get(size_t index) {
    static const struct pattern *const tables[] = {
        patterns_formula, patterns_table, patterns_score};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct pattern *p = tables[t]; p->name; p++)
            if (index-- == 0)
                return p;
    return NULL;
}

const struct pattern *pattern_find(const char *name) {
    const struct pattern *pattern;
    for (size_t i = 0; (pattern = pattern_get(i)); i++)
        if (!strcmp(pattern->name, name))
            return pattern;
    return NULL;
}

int32_t pattern_count(struct rng *rng, int64_t high) {
    return (int32_t)rng_range(rng, 1, high < 1 ? 1 : high);
}
