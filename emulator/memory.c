/* Global memory: allocations at addresses of our own choosing.
 *
 * Neighbours are at least 64 KiB apart, so that an index error by a tile does
 * not land in another tensor.  Freed address ranges are never used again.
 */
#include "emulator/memory.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t memory_base = 0x100000000000u;
static const uint64_t memory_gap = 1u << 16;

struct emu_memory *emu_memory_create(void) {
    struct emu_memory *memory = calloc(1, sizeof *memory);
    if (memory)
        memory->next = memory_base;
    return memory;
}

/* Frees what the allocation owns. */
static void release(struct allocation *allocation) {
    free(allocation->bytes);
    free(allocation->shadow);
    free(allocation->name);
}

void emu_memory_destroy(struct emu_memory *memory) {
    if (!memory)
        return;
    for (size_t i = 0; i < memory->count; i++)
        release(&memory->allocations[i]);
    free(memory->allocations);
    free(memory);
}

uint64_t emu_memory_allocate(struct emu_memory *memory, size_t size,
                             const char *name) {
    if (memory->count == memory->capacity) {
        size_t larger = memory->capacity ? memory->capacity * 2 : 16;
        struct allocation *grown =
            realloc(memory->allocations, larger * sizeof *grown);
        if (!grown)
            return 0;
        memory->allocations = grown;
        memory->capacity = larger;
    }
    struct allocation a = {.address = memory->next,
                           .size = size,
                           .bytes = malloc(size ? size : 1),
                           .shadow = calloc(size ? size : 1, 1),
                           .name = strdup(name)};
    if (!a.bytes || !a.shadow || !a.name) {
        release(&a);
        return 0;
    }
    memset(a.bytes, 0xcd,
           size); /* what was never written is at least the same each time */
    memory->allocations[memory->count++] = a;
    memory->next = (memory->next + size + memory_gap + 255) & ~(uint64_t)255;
    return a.address;
}

void emu_memory_free(struct emu_memory *memory, uint64_t address) {
    for (size_t i = 0; i < memory->count; i++) {
        if (memory->allocations[i].address != address)
            continue;
        release(&memory->allocations[i]);
        memmove(&memory->allocations[i], &memory->allocations[i + 1],
                (memory->count - i - 1) * sizeof memory->allocations[0]);
        memory->count--;
        return;
    }
}

struct allocation *emu_memory_find_below(const struct emu_memory *memory,
                                         uint64_t address) {
    size_t low = 0, high = memory->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (memory->allocations[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &memory->allocations[low - 1] : NULL;
}

struct allocation *emu_memory_find(const struct emu_memory *memory,
                                   uint64_t address) {
    struct allocation *a = emu_memory_find_below(memory, address);
    return a && address - a->address < a->size ? a : NULL;
}

/* The allocation that holds the whole range, an empty one at its end
 * included. */
static struct allocation *find_range(const struct emu_memory *memory,
                                     uint64_t address, size_t size) {
    struct allocation *a = emu_memory_find_below(memory, address);
    if (!a || address - a->address > a->size ||
        size > a->size - (address - a->address))
        return NULL;
    return a;
}

bool emu_memory_write(struct emu_memory *memory, uint64_t address,
                      const void *bytes, size_t size) {
    struct allocation *a = find_range(memory, address, size);
    if (!a)
        return false;
    memcpy(a->bytes + (address - a->address), bytes, size);
    memset(a->shadow + (address - a->address), SHADOW_INITIALISED, size);
    return true;
}

bool emu_memory_read(const struct emu_memory *memory, uint64_t address,
                     void *bytes, size_t size) {
    const struct allocation *a = find_range(memory, address, size);
    if (a)
        memcpy(bytes, a->bytes + (address - a->address), size);
    return a != NULL;
}

size_t emu_memory_count_uninitialised(const struct emu_memory *memory,
                                      uint64_t address, size_t size) {
    const struct allocation *a = find_range(memory, address, size);
    size_t count = a ? 0 : size;
    for (size_t i = 0; a && i < size; i++)
        count += !(a->shadow[address - a->address + i] & SHADOW_INITIALISED);
    return count;
}

void emu_memory_begin_launch(struct emu_memory *memory) {
    for (size_t i = 0; i < memory->count; i++) {
        struct allocation *a = &memory->allocations[i];
        for (size_t k = 0; k < a->size; k++)
            a->shadow[k] &= SHADOW_INITIALISED;
    }
}

void emu_memory_count_unique(const struct emu_memory *memory,
                             uint64_t *out_read, uint64_t *out_written) {
    *out_read = *out_written = 0;
    for (size_t i = 0; i < memory->count; i++) {
        const struct allocation *a = &memory->allocations[i];
        for (size_t k = 0; k < a->size; k++) {
            *out_read += (a->shadow[k] & SHADOW_READ) != 0;
            *out_written += (a->shadow[k] & SHADOW_WRITTEN) != 0;
        }
    }
}
