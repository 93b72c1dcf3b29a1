/* The emulator's encoding of a tiled tensor map (CUtensorMap is opaque). */
#ifndef ATTN_EMULATOR_TENSOR_MAP_H
#define ATTN_EMULATOR_TENSOR_MAP_H

#include "emulator/emulator.h"

#define TENSOR_MAP_MAGIC 0x50414d54u

struct tensor_map {
    uint32_t magic;
    uint8_t type, rank, swizzle, nan_fill;
    uint64_t address;
    uint64_t extents[5];
    uint64_t strides[5]; /* bytes; [0] is the element size */
    uint16_t box[5];
    uint8_t padding[22];
};

_Static_assert(sizeof(struct tensor_map) == 128, "a tensor map has 128 bytes");

/* Bytes of an element. */
unsigned emu_tensor_type_bytes(enum emu_tensor_type type);

/* Where the byte at shared address `address` goes under a swizzle: the 16-byte
 * chunk number within a row is xored with the row number. */
static inline uint32_t tensor_swizzle(uint32_t address,
                                      enum emu_tensor_swizzle swizzle) {
    uint32_t mask = swizzle == EMU_SWIZZLE_128B  ? 7
                    : swizzle == EMU_SWIZZLE_64B ? 3
                    : swizzle == EMU_SWIZZLE_32B ? 1
                                                 : 0;
    return address ^ ((address >> 7 & mask) << 4);
}

#endif
