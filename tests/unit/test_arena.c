/* arena, vec and strmap: alignment, zeroing, growth, reset, look-up. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "support/arena.h"
#include "support/strmap.h"
#include "support/vec.h"

Test(arena, blocks_are_aligned_and_zeroed) {
    struct arena *arena = arena_create();
    for (size_t size = 0; size < 5000; size += 37) {
        unsigned char *bytes = arena_alloc(arena, size);
        cr_assert_eq((uintptr_t)bytes % 16, 0);
        for (size_t i = 0; i < size; i++)
            cr_assert_eq(bytes[i], 0);
        memset(bytes, 0xff, size);
    }
    arena_destroy(arena);
}

Test(arena, large_blocks_do_not_overlap) {
    struct arena *arena = arena_create();
    char *a = arena_alloc(arena, 3 << 20), *b = arena_alloc(arena, 100);
    memset(a, 1, 3 << 20);
    cr_assert_eq(b[0], 0);
    memset(b, 2, 100);
    cr_assert_eq(a[(3 << 20) - 1], 1);
    arena_destroy(arena);
}

Test(arena, reset_gives_zeroed_memory_again) {
    struct arena *arena = arena_create();
    memset(arena_alloc(arena, 1000), 0xff, 1000);
    arena_reset(arena);
    cr_assert_eq(arena_used(arena), 0);
    const unsigned char *bytes = arena_alloc(arena, 1000);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(bytes[i], 0);
    arena_destroy(arena);
}

Test(arena, grow_keeps_the_bytes) {
    struct arena *arena = arena_create();
    char *text = arena_strdup(arena, "abc");
    char *grown = arena_grow(arena, text, 4, 64);
    cr_assert_eq(grown, text, "the latest allocation grows in place");
    arena_alloc(arena, 1);
    char *moved = arena_grow(arena, grown, 64, 1 << 21);
    cr_assert_str_eq(moved, "abc");
    for (int i = 4; i < 1 << 21; i++)
        cr_assert_eq(moved[i], 0);
    arena_destroy(arena);
}

Test(arena, strings) {
    struct arena *arena = arena_create();
    cr_assert_str_eq(arena_printf(arena, "%s-%d", "x", 42), "x-42");
    cr_assert_str_eq(arena_strndup(arena, "hello", 3), "hel");
    cr_assert_str_eq(arena_strndup(arena, "", 0), "");
    arena_destroy(arena);
}

Test(arena, destroy_of_null_is_allowed) {
    arena_destroy(NULL);
}

Test(vec, push_keeps_order) {
    struct arena *arena = arena_create();
    VEC(int) list = {0};
    for (int i = 0; i < 1000; i++) {
        vec_push(arena, &list, i);
        arena_alloc(arena, 8);
    }
    cr_assert_eq(list.count, 1000);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(list.data[i], i);
    arena_destroy(arena);
}

Test(strmap, set_get_replace) {
    struct arena *arena = arena_create();
    struct strmap map = {0};
    cr_assert_null(strmap_get(&map, "x"));
    static int values[2000];
    for (int i = 0; i < 2000; i++)
        strmap_set(arena, &map, arena_printf(arena, "key%d", i), &values[i]);
    for (int i = 0; i < 2000; i++)
        cr_assert_eq(strmap_get(&map, arena_printf(arena, "key%d", i)),
                     &values[i]);
    cr_assert_null(strmap_get(&map, "key2000"));
    strmap_set(arena, &map, "key7", &values[8]);
    cr_assert_eq(strmap_get(&map, "key7"), &values[8]);
    cr_assert_eq(map.count, 2000);
    arena_destroy(arena);
}
