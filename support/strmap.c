/* String map with open addressing; grows at three quarters. */
#include "support/strmap.h"

#include <stdint.h>
#include <string.h>

static size_t hash_of(const char *key) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 0x100000001b3u;
    return (size_t)(hash ^ (hash >> 29));
}

/* The slot of `key`, or the free one where it belongs; capacity > count. */
static struct strmap_slot *find(const struct strmap *map, const char *key) {
    size_t at = hash_of(key) & (map->capacity - 1);
    while (map->slots[at].key && strcmp(map->slots[at].key, key) != 0)
        at = (at + 1) & (map->capacity - 1);
    return &map->slots[at];
}

void *strmap_get(const struct strmap *map, const char *key) {
    return map->capacity ? find(map, key)->value : NULL;
}

static void grow(struct arena *arena, struct strmap *map) {
    struct strmap larger = {.capacity = map->capacity ? map->capacity * 2 : 16};
    larger.slots = ARENA_NEW_ARRAY(arena, struct strmap_slot, larger.capacity);
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key)
            *find(&larger, map->slots[i].key) = map->slots[i];
    larger.count = map->count;
    *map = larger;
}

void strmap_set(struct arena *arena, struct strmap *map, const char *key,
                void *value) {
    if ((map->count + 1) * 4 > map->capacity * 3)
        grow(arena, map);
    struct strmap_slot *slot = find(map, key);
    if (!slot->key)
        map->count++;
    *slot = (struct strmap_slot){key, value};
}
