/* Global memory of the emulated device, with a shadow byte for each byte.
 *
 * Kernels run on several host threads: a shadow byte belongs to one data byte,
 * so that writers of neighbouring bytes do not disturb each other.
 */
#ifndef ATTN_EMULATOR_MEMORY_H
#define ATTN_EMULATOR_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulator/emulator.h"

enum {
    SHADOW_INITIALISED = 1,
    SHADOW_READ = 2, /* since the launch began: for unique bytes */
    SHADOW_WRITTEN = 4,
};

struct allocation {
    uint64_t address;
    size_t size;
    uint8_t *bytes, *shadow;
    char *name;
};

struct emu_memory {
    struct allocation *allocations; /* by address */
    size_t count, capacity;
    uint64_t next;
};

/* The allocation that holds the byte at `address`, or NULL. */
struct allocation *emu_memory_find(const struct emu_memory *memory,
                                   uint64_t address);

/* The nearest allocation at or below the address, for messages, or NULL. */
struct allocation *emu_memory_find_below(const struct emu_memory *memory,
                                         uint64_t address);

/* Forgets which bytes a launch read and wrote. */
void emu_memory_begin_launch(struct emu_memory *memory);

/* Bytes read and written at least once since then. */
void emu_memory_count_unique(const struct emu_memory *memory,
                             uint64_t *out_read, uint64_t *out_written);

#endif
