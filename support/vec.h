/* Growable arrays in an arena: `VEC(int) v = {0}; vec_push(arena, &v, 3);`
 *
 * Elements move when the array grows: keep indices, not pointers, while
 * pushing.  Nothing is freed before the arena is.
 */
#ifndef ATTN_SUPPORT_VEC_H
#define ATTN_SUPPORT_VEC_H

#include <stddef.h>

#include "support/arena.h"

/* An array type; an all-zero value is empty. */
#define VEC(type)        \
    struct {             \
        type *data;      \
        size_t count;    \
        size_t capacity; \
    }

/* Appends one element; evaluates `vec` more than once. */
#define vec_push(arena, vec, ...)                                     \
    do {                                                              \
        (vec)->data =                                                 \
            vec_reserve_bytes((arena), (vec)->data, (vec)->count,     \
                              &(vec)->capacity, sizeof *(vec)->data); \
        (vec)->data[(vec)->count++] = (__VA_ARGS__);                  \
    } while (0)

/* Room for one more element of `size` bytes; used by vec_push. */
static inline void *vec_reserve_bytes(struct arena *arena, void *data,
                                      size_t count, size_t *capacity,
                                      size_t size) {
    if (count < *capacity)
        return data;
    size_t larger = *capacity ? *capacity * 2 : 8;
    data = arena_grow(arena, data, *capacity * size, larger * size);
    *capacity = larger;
    return data;
}

#endif
