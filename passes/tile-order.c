/* In which order persistent CTAs visit the tiles.
 *
 * CTA c runs tiles c, c + CTAs, c + 2·CTAs, ...; so tiles that are neighbours
 * here run at the same time and share K and V in the L2 cache.  With
 * longest_first the query tiles that have the most keys under a causal mask
 * come first, which leaves short tiles to even out the end.  Heads go in
 * sections whose K and V fit into the L2 cache:
 *
 *     section 0                                 section 1
 *     tile T-1: heads 0..hs-1 | tile T-2: ...   tile T-1: heads hs..2hs-1 | ...
 *
 * Not here: orders drawn from a counter. */
#include "passes/tile.h"

/* Bytes of K and V that may be in use at once. */
enum { SECTION_BYTES = 32 << 20 };

/* Query heads (packed: KV heads) of a section: as many as share that many bytes
 * of K and V, at least 1. */
static MlirValue section_heads(struct tile_kernel *kernel, MlirValue total) {
    struct ir_builder *b = &kernel->b;
    MlirOperation attention = kernel->attention;
    int64_t dims =
        ir_extent(mlirValueGetType(ir_operand(attention, IR_ATTENTION_K)), 3) +
        ir_extent(mlirValueGetType(ir_operand(attention, IR_ATTENTION_V)), 3);
    MlirValue one = tile_const(kernel, 1);
    MlirValue keys = tile_const(kernel, (int)(SECTION_BYTES / (2 * dims)));
    MlirValue kv_heads =
        ir_maxsi(b, ir_divui(b, keys, ir_maxsi(b, kernel->kv_len, one)), one);
    kv_heads = ir_minsi(b, kv_heads, total);
    if (kernel->pack > 1)
        return kv_heads;
    MlirValue ratio = ir_divui(b, tile_size(kernel, "size:heads"),
                               tile_size(kernel, "size:kv_heads"));
    return ir_minsi(b, ir_muli(b, kv_heads, ratio), total);
}

void tile_order(struct tile_kernel *kernel, MlirValue number, MlirValue tiles,
                MlirValue *out_tile, MlirValue *out_batch_head) {
    struct ir_builder *b = &kernel->b;
    if (!kernel->plan.longest_first || mlirOperationIsNull(kernel->mask)) {
        *out_tile = ir_remui(b, number, tiles);
        *out_batch_head = ir_divui(b, number, tiles);
        return;
    }
    MlirValue total =
        ir_muli(b, tile_head_count(kernel), tile_size(kernel, "size:batch"));
    MlirValue heads = section_heads(kernel, total);
    MlirValue section = ir_divui(b, number, ir_muli(b, heads, tiles));
    MlirValue first = ir_muli(b, section, heads);
    MlirValue rest = ir_subi(b, number, ir_muli(b, first, tiles));
    MlirValue width =
        ir_minsi(b, heads, ir_subi(b, total, first)); /* the last is narrower */
    MlirValue last = ir_subi(b, tiles, tile_const(kernel, 1));
    *out_tile = ir_subi(b, last, ir_divui(b, rest, width));
    *out_batch_head = ir_addi(b, first, ir_remui(b, rest, width));
}
