/* Block maps by brute force; see tools/block_map.h. */
#include "tools/block_map.h"

#include <inttypes.h>

enum { MAX_LINES = 64, MAX_COLUMNS = 96 };

/* Adds the kept pairs of one query row to the counts of its tiles. */
static void count_row(const uint8_t *mask, int64_t kv_len, int tile_n,
                      int64_t *counts) {
    for (int64_t kv = 0; kv < kv_len; kv++)
        counts[kv / tile_n] += mask[kv];
}

static enum block_class classify(int64_t kept, int64_t rows, int64_t column,
                                 int64_t kv_len, int tile_n) {
    if (kept == 0)
        return BLOCK_SKIP;
    bool crosses = (column + 1) * tile_n > kv_len;
    return !crosses && kept == rows * tile_n ? BLOCK_WHOLE : BLOCK_PARTIAL;
}

/* Classes of one row of tiles, queries [q, q+rows). */
static void map_row(struct block_map *map, struct ref_eval *eval,
                    const int64_t *sizes, int64_t b, int64_t h, int64_t row,
                    uint8_t *mask, int64_t *counts) {
    int64_t q = row * map->tile_m, kv_len = sizes[SIZE_KV_LEN];
    int64_t rest = sizes[SIZE_Q_LEN] - q,
            rows = rest < map->tile_m ? rest : map->tile_m;
    for (int64_t column = 0; column < map->columns; column++)
        counts[column] = 0;
    for (int64_t r = 0; r < rows; r++) {
        ref_eval_mask_row(eval, b, h, q + r, 0, kv_len, mask);
        count_row(mask, kv_len, map->tile_n, counts);
    }
    for (int64_t column = 0; column < map->columns; column++) {
        enum block_class class =
            classify(counts[column], rows, column, kv_len, map->tile_n);
        map->classes[row * map->columns + column] = (uint8_t) class;
        map->skip += class == BLOCK_SKIP;
        map->partial += class == BLOCK_PARTIAL;
        map->whole += class == BLOCK_WHOLE;
        map->kept += counts[column];
    }
}

struct block_map block_map_create(struct arena *arena,
                                  const struct ref_program *program,
                                  const struct ref_call *call, int64_t b,
                                  int64_t h, int tile_m, int tile_n) {
    const int64_t *sizes = call->sizes;
    struct block_map map = {
        .tile_m = tile_m,
        .tile_n = tile_n,
        .rows = (sizes[SIZE_Q_LEN] + tile_m - 1) / tile_m,
        .columns = (sizes[SIZE_KV_LEN] + tile_n - 1) / tile_n,
        .pairs = sizes[SIZE_Q_LEN] * sizes[SIZE_KV_LEN],
    };
    map.classes =
        ARENA_NEW_ARRAY(arena, uint8_t, (size_t)(map.rows * map.columns));
    uint8_t *mask = ARENA_NEW_ARRAY(arena, uint8_t, (size_t)sizes[SIZE_KV_LEN]);
    int64_t *counts = ARENA_NEW_ARRAY(arena, int64_t, (size_t)map.columns);
    struct ref_eval *eval = ref_eval_create(arena, program, call);
    for (int64_t row = 0; row < map.rows; row++)
        map_row(&map, eval, sizes, b, h, row, mask, counts);
    return map;
}

/* Character for the tiles [row, row+height) x [column, column+width). */
static char symbol(const struct block_map *map, int64_t row, int64_t height,
                   int64_t column, int64_t width) {
    bool seen[3] = {false};
    for (int64_t r = row; r < row + height && r < map->rows; r++)
        for (int64_t c = column; c < column + width && c < map->columns; c++)
            seen[map->classes[r * map->columns + c]] = true;
    if (!seen[BLOCK_PARTIAL] && !seen[BLOCK_WHOLE])
        return '.';
    return seen[BLOCK_PARTIAL] || seen[BLOCK_SKIP] ? '+' : '#';
}

void block_map_print(const struct block_map *map, struct strbuf *out) {
    int64_t height = (map->rows + MAX_LINES - 1) / MAX_LINES;
    int64_t width = (map->columns + MAX_COLUMNS - 1) / MAX_COLUMNS;
    for (int64_t row = 0; row < map->rows; row += height) {
        strbuf_printf(out, "%9" PRId64 "  ", row * map->tile_m);
        for (int64_t column = 0; column < map->columns; column += width)
            strbuf_append_char(out, symbol(map, row, height, column, width));
        strbuf_append_char(out, '\n');
    }
}
