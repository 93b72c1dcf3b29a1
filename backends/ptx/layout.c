/* Arithmetic of register layouts and swizzles; see layout.h. */
#include "backends/ptx/layout.h"

#include <stddef.h>

int layout_count(enum layout layout, struct tile_shape shape, bool packed) {
    switch (layout) {
    case LAYOUT_SCALAR:
        return 1;
    case LAYOUT_ROW:
        return 2 * shape.fragments;
    case LAYOUT_COLUMN:
        return 2 * shape.groups;
    case LAYOUT_TILE:
        break;
    }
    return (packed ? 2 : 4) * shape.fragments * shape.groups;
}

int layout_index(enum layout layout, struct tile_shape shape, bool packed,
                 int f, int i, int j, int c) {
    switch (layout) {
    case LAYOUT_SCALAR:
        return 0;
    case LAYOUT_ROW:
        return 2 * f + i;
    case LAYOUT_COLUMN:
        return 2 * j + c;
    case LAYOUT_TILE:
        break;
    }
    int pair = 2 * (f * shape.groups + j) + i;
    return packed ? pair : 2 * pair + c;
}

int swizzle_period(struct swizzle swizzle) {
    return swizzle.bits == 0 ? 1 : 1 << (swizzle.shift + swizzle.bits);
}

const char *swizzle_check(struct swizzle swizzle, int byte_offset) {
    if (swizzle.pitch < 1 || swizzle.bits < 0 || swizzle.bits > 3 ||
        swizzle.shift < 0)
        return "pitch or swizzle out of range";
    if (byte_offset % 16 != 0)
        return "offset is not a multiple of 16 bytes";
    if (swizzle.bits == 0)
        return NULL;
    if (swizzle.pitch % (1 << swizzle.bits) != 0)
        return "pitch is not a multiple of the swizzle's width";
    if (byte_offset % (16 << swizzle.bits) != 0)
        return "offset is not a multiple of the swizzle's width";
    if (swizzle_period(swizzle) > 16)
        return "swizzle does not repeat within 16 rows";
    return NULL;
}

int swizzle_offset(struct swizzle swizzle, int row, int chunk) {
    int pattern = (row >> swizzle.shift) & ((1 << swizzle.bits) - 1);
    return 16 * (row * swizzle.pitch + (chunk ^ pattern));
}
