/* Region allocation by bumping a pointer through a list of blocks.
 *
 * Blocks double in size up to BLOCK_MAX; a request larger than that gets a
 * block of its own.  Memory comes from calloc, so fresh pages cost nothing to
 * zero; a reused block is cleared when it is handed out again.
 */
#include "support/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_MIN = 4096, BLOCK_MAX = 1 << 20, ALIGNMENT = 16 };

struct block {
    struct block *next; /* older block */
    size_t size, used;  /* payload bytes */
    _Alignas(16) unsigned char data[];
};

struct arena {
    struct block *blocks; /* newest first; NULL before the first allocation */
    size_t used;
};

static _Noreturn void out_of_memory(size_t size) {
    fprintf(stderr, "attn: out of memory (%zu bytes wanted)\n", size);
    abort();
}

static size_t round_up(size_t size) {
    if (size > SIZE_MAX / 2)
        out_of_memory(size);
    return (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

struct arena *arena_create(void) {
    struct arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        out_of_memory(sizeof *arena);
    return arena;
}

static void free_blocks(struct block *block) {
    while (block) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
}

void arena_destroy(struct arena *arena) {
    if (!arena)
        return;
    free_blocks(arena->blocks);
    free(arena);
}

void arena_reset(struct arena *arena) {
    struct block *keep = arena->blocks;
    if (keep) {
        free_blocks(keep->next);
        keep->next = NULL;
        memset(keep->data, 0, keep->used);
        keep->used = 0;
    }
    arena->used = 0;
}

static struct block *add_block(struct arena *arena, size_t size) {
    size_t wanted = arena->blocks ? arena->blocks->size * 2 : BLOCK_MIN;
    if (wanted > BLOCK_MAX)
        wanted = BLOCK_MAX;
    if (wanted < size)
        wanted = size;
    struct block *block = calloc(1, sizeof *block + wanted);
    if (!block)
        out_of_memory(wanted);
    block->size = wanted;
    block->next = arena->blocks;
    arena->blocks = block;
    return block;
}

void *arena_alloc(struct arena *arena, size_t size) {
    size_t rounded = size ? round_up(size) : ALIGNMENT;
    struct block *block = arena->blocks;
    if (!block || block->size - block->used < rounded)
        block = add_block(arena, rounded);
    void *result = block->data + block->used;
    block->used += rounded;
    arena->used += rounded;
    return result;
}

void *arena_alloc_array(struct arena *arena, size_t count, size_t size) {
    if (size && count > SIZE_MAX / 2 / size)
        out_of_memory(SIZE_MAX);
    return arena_alloc(arena, count * size);
}

void *arena_grow(struct arena *arena, void *old, size_t old_size,
                 size_t new_size) {
    struct block *block = arena->blocks;
    size_t old_rounded = old_size ? round_up(old_size) : ALIGNMENT;
    size_t rounded = round_up(new_size);
    /* The latest allocation ends where the free part of the block starts. */
    if (old &&
        (unsigned char *)old + old_rounded == block->data + block->used &&
        rounded >= old_rounded &&
        block->size - block->used >= rounded - old_rounded) {
        block->used += rounded - old_rounded;
        arena->used += rounded - old_rounded;
        return old;
    }
    void *fresh = arena_alloc(arena, new_size);
    if (old_size)
        memcpy(fresh, old, old_size < new_size ? old_size : new_size);
    return fresh;
}

char *arena_strdup(struct arena *arena, const char *text) {
    return arena_strndup(arena, text, strlen(text));
}

char *arena_strndup(struct arena *arena, const char *text, size_t length) {
    char *copy = arena_alloc(arena, length + 1);
    memcpy(copy, text, length);
    return copy;
}

char *arena_printf(struct arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}

char *arena_vprintf(struct arena *arena, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0)
        return arena_strdup(arena, "");
    char *text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, args);
    return text;
}

size_t arena_used(const struct arena *arena) {
    return arena->used;
}
