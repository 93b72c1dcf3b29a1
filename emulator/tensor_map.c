/* Encoding of tensor maps, with the driver's restrictions. */
#include "emulator/tensor_map.h"

#include <stdarg.h>
#include <string.h>

unsigned emu_tensor_type_bytes(enum emu_tensor_type type) {
    static const uint8_t bytes[EMU_TENSOR_TYPE_COUNT] = {
        [EMU_TENSOR_UINT8] = 1,        [EMU_TENSOR_UINT16] = 2,
        [EMU_TENSOR_UINT32] = 4,       [EMU_TENSOR_INT32] = 4,
        [EMU_TENSOR_UINT64] = 8,       [EMU_TENSOR_INT64] = 8,
        [EMU_TENSOR_FLOAT16] = 2,      [EMU_TENSOR_FLOAT32] = 4,
        [EMU_TENSOR_FLOAT64] = 8,      [EMU_TENSOR_BFLOAT16] = 2,
        [EMU_TENSOR_FLOAT32_FTZ] = 4,  [EMU_TENSOR_TFLOAT32] = 4,
        [EMU_TENSOR_TFLOAT32_FTZ] = 4,
    };
    return type < EMU_TENSOR_TYPE_COUNT ? bytes[type] : 0;
}

static bool refuse(struct emu_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool refuse(struct emu_error *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return false;
}

/* The limits of cuTensorMapEncodeTiled for one axis. */
static bool check_axis(const struct tensor_map *map, uint32_t axis,
                       const uint32_t *box, const uint32_t *element_strides,
                       struct emu_error *error) {
    uint64_t extent = map->extents[axis], stride = map->strides[axis];
    if (extent == 0 || extent > 1ull << 32)
        return refuse(error, "extent %llu of axis %u is not in [1, 2^32]",
                      (unsigned long long)extent, axis);
    if (box[axis] == 0 || box[axis] > 256)
        return refuse(error, "box extent %u of axis %u is not in [1, 256]",
                      box[axis], axis);
    if (element_strides[axis] != 1)
        return refuse(error, "element stride %u of axis %u; only 1 is emulated",
                      element_strides[axis], axis);
    if (axis > 0 && (stride % 16 || stride >= 1ull << 40))
        return refuse(error,
                      "stride %llu of axis %u is no multiple of 16 below 2^40",
                      (unsigned long long)stride, axis);
    return true;
}

bool emu_tensor_map_encode(uint8_t out_map[128], enum emu_tensor_type type,
                           uint32_t rank, uint64_t address,
                           const uint64_t *extents, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *element_strides,
                           enum emu_tensor_swizzle swizzle, bool nan_fill,
                           struct emu_error *out_error) {
    static const uint32_t swizzle_bytes[EMU_SWIZZLE_COUNT] = {256 * 8, 32, 64,
                                                              128};
    unsigned size = emu_tensor_type_bytes(type);
    if (size == 0 || swizzle >= EMU_SWIZZLE_COUNT)
        return refuse(out_error, "unknown element type %u or swizzle %u", type,
                      swizzle);
    if (rank < 1 || rank > 5)
        return refuse(out_error, "rank %u is not in [1, 5]", rank);
    if (address % 16)
        return refuse(out_error, "the address 0x%llx is no multiple of 16",
                      (unsigned long long)address);
    struct tensor_map map = {.magic = TENSOR_MAP_MAGIC,
                             .type = (uint8_t)type,
                             .rank = (uint8_t)rank,
                             .swizzle = (uint8_t)swizzle,
                             .nan_fill = nan_fill,
                             .address = address};
    map.strides[0] = size;
    for (uint32_t axis = 0; axis < rank; axis++) {
        map.extents[axis] = extents[axis];
        if (axis > 0)
            map.strides[axis] = strides[axis - 1];
        if (!check_axis(&map, axis, box, element_strides, out_error))
            return false;
        map.box[axis] = (uint16_t)box[axis];
    }
    if (box[0] * size % 16)
        return refuse(out_error,
                      "the inner box extent has %u bytes, no multiple of 16",
                      box[0] * size);
    if (box[0] * size > swizzle_bytes[swizzle])
        return refuse(
            out_error,
            "the inner box extent has %u bytes, the swizzle allows %u",
            box[0] * size, swizzle_bytes[swizzle]);
    memcpy(out_map, &map, sizeof map);
    return true;
}
