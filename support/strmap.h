/* A map from strings to pointers in an arena: open addressing, FNV-1a, no
 * removal.  Keys are borrowed and must outlive the map. */
#ifndef ATTN_SUPPORT_STRMAP_H
#define ATTN_SUPPORT_STRMAP_H

#include <stddef.h>

#include "support/arena.h"

struct strmap_slot {
    const char *key; /* NULL: free */
    void *value;
};

/* An all-zero map is empty. */
struct strmap {
    struct strmap_slot *slots;
    size_t count, capacity; /* capacity 0 or a power of two */
};

/* Value of `key`, NULL if absent. */
void *strmap_get(const struct strmap *map, const char *key);

/* Sets or replaces the value of `key`; `value` is not NULL. */
void strmap_set(struct arena *arena, struct strmap *map, const char *key,
                void *value);

#endif
