/* Which lane holds which element: register layouts of tiles and addresses of
 * swizzled shared-memory tiles.
 *
 * A tile of M x N over W warps is cut into fragments of 16 rows for each warp:
 *
 *   row    = 16 (f W + w) + lane / 4 + 8 i      f < F = M / (16 W), i < 2
 *   column = 8 j + 2 (lane % 4) + c             j < N / 8,          c < 2
 *
 * which is the C layout of mma.sync.m16n8k16 (PTX ISA, "Matrix Fragments for
 * mma.m16n8k16") and, with F = 1 and W = 4, of wgmma.  16-bit tiles hold the
 * pair c = 0, 1 in one register; that is the A layout of the next product.
 *
 * Registers of one lane are numbered ((f J + j) 2 + i) 2 + c, J = N / 8, so the
 * four registers of one mma are neighbours.
 */
#ifndef ATTN_BACKENDS_PTX_LAYOUT_H
#define ATTN_BACKENDS_PTX_LAYOUT_H

#include <stdbool.h>

/* What a quantity depends on; a bit set, so that `|` joins two of them. */
enum layout {
    LAYOUT_SCALAR = 0,
    LAYOUT_ROW = 1,    /* one register for each (f, i); partial sums too */
    LAYOUT_COLUMN = 2, /* one register for each (j, c) */
    LAYOUT_TILE = 3,
};

/* Extents of a tile in registers of one lane. */
struct tile_shape {
    int fragments; /* F; 1 for columns */
    int groups;    /* J; 1 for rows */
};

/* Registers that one lane needs; `packed`: two 16-bit elements a register. */
int layout_count(enum layout layout, struct tile_shape shape, bool packed);

/* Register number of element (f, i, j, c); for packed tiles c is ignored. */
int layout_index(enum layout layout, struct tile_shape shape, bool packed,
                 int f, int i, int j, int c);

/* Where the 16-byte chunks of a shared-memory tile lie: chunk c of row r is at
 * byte 16 (r pitch + (c xor ((r >> shift) & (2^bits - 1)))). */
struct swizzle {
    int pitch; /* chunks from row to row */
    int bits, shift;
};

/* The pattern repeats after this many rows. */
int swizzle_period(struct swizzle swizzle);

/* NULL, or what is wrong with a swizzle for tiles at `byte_offset`: the
 * lowering needs rows that are a multiple of the pattern's width and a pattern
 * that repeats within 16 rows, so that addresses differ by constants and
 * constant xors. */
const char *swizzle_check(struct swizzle swizzle, int byte_offset);

/* Byte offset of chunk `chunk` of row `row`. */
int swizzle_offset(struct swizzle swizzle, int row, int chunk);

#endif
