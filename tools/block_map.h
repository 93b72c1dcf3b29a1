/* The block map of a mask: which tiles of the score matrix are skipped, run
 * whole or run with the mask, found by evaluating every pair of one head.
 *
 * This is what the best classification could say.  The kernel's own (design: an
 * interval analysis of the mask) may call a tile partial that is whole or empty
 * here, never the reverse.
 */
#ifndef ATTN_TOOLS_BLOCK_MAP_H
#define ATTN_TOOLS_BLOCK_MAP_H

#include <stdint.h>

#include "reference/reference.h"
#include "support/strbuf.h"

enum block_class { BLOCK_SKIP, BLOCK_PARTIAL, BLOCK_WHOLE };

struct block_map {
    int tile_m, tile_n;
    int64_t rows, columns;        /* in tiles */
    uint8_t *classes;             /* enum block_class [rows][columns] */
    int64_t skip, partial, whole; /* tiles of each class */
    int64_t kept, pairs;
};

/* Map of query head h of batch b.  A tile that crosses kv_len is never
 * whole. */
struct block_map block_map_create(struct arena *arena,
                                  const struct ref_program *program,
                                  const struct ref_call *call, int64_t b,
                                  int64_t h, int tile_m, int tile_n);

/* As text, one line a row, `.` skip, `+` partial, `#` whole; neighbouring tiles
 * share a character where the map is larger than 64 by 96. */
void block_map_print(const struct block_map *map, struct strbuf *out);

#endif
