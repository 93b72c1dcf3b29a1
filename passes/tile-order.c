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
 * Under a test kv <= q, or where a later query keeps every key that an earlier
 * one does, the first query tiles are the cheapest, those of all heads: they
 * come last, as many as need no more keys than a section.
 *
 *     sections as above, down to tile F          tile F-1: all heads | ...
 *
 * Not here: orders drawn from a counter. */
#include "passes/tile.h"

/* Bytes of K and V that may be in use at once.  Where blocks are left out,
 * tiles that run at the same time read different ones, and fewer heads keep
 * them in the cache. */
enum { SECTION_BYTES = 32 << 20, SPARSE_SECTION_BYTES = 16 << 20 };

/* Keys of a section, of all its heads. */
static int section_keys(const struct tile_kernel *kernel) {
    MlirOperation attention = kernel->attention;
    int64_t dims =
        ir_extent(mlirValueGetType(ir_operand(attention, IR_ATTENTION_K)), 3) +
        ir_extent(mlirValueGetType(ir_operand(attention, IR_ATTENTION_V)), 3);
    int bytes = tile_is_dense(kernel) ? SECTION_BYTES : SPARSE_SECTION_BYTES;
    return (int)(bytes / (2 * dims));
}

/* Query heads (packed: KV heads) of a section: as many as share that many bytes
 * of K and V, at least 1. */
static MlirValue section_heads(struct tile_kernel *kernel, MlirValue total) {
    struct ir_builder *b = &kernel->b;
    MlirValue one = tile_const(kernel, 1);
    MlirValue keys = tile_const(kernel, section_keys(kernel));
    MlirValue kv_heads =
        ir_maxsi(b, ir_divui(b, keys, ir_maxsi(b, kernel->kv_len, one)), one);
    kv_heads = ir_minsi(b, kv_heads, total);
    if (kernel->pack > 1)
        return kv_heads;
    MlirValue ratio = ir_divui(b, tile_size(kernel, "size:heads"),
                               tile_size(kernel, "size:kv_heads"));
    return ir_minsi(b, ir_muli(b, kv_heads, ratio), total);
}

/* ---- The tiles at the end ------------------------------------------------ */

/* Set of the values of a function that depend on an argument. */
static struct ir_map *dependents(struct arena *scratch, MlirOperation func,
                                 MlirValue arg) {
    struct ir_map *set = ir_map_create(scratch);
    ir_map_set(set, arg, arg);
    MlirOperation op = mlirBlockGetFirstOperation(ir_func_body(func));
    for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op))
        if (mlirOperationGetNumRegions(op) > 0 || ir_takes_any(op, set))
            ir_add_results(set, op);
    return set;
}

/* A mask, the values of it that depend on q, and those known to grow. */
struct growth {
    MlirValue q, kv;
    struct arena *scratch;
    struct ir_map *on_q, *known;
};

/* Is it true for all later queries of a key for which it is true? */
static bool grows(const struct growth *g, MlirValue condition) {
    MlirOperation op = ir_def(condition);
    if (!ir_map_has(g->on_q, condition) || ir_map_has(g->known, condition))
        return true;
    bool fits = ir_is_op(op, "arith.andi") || ir_is_op(op, "arith.ori")
                    ? grows(g, ir_operand(op, 0)) && grows(g, ir_operand(op, 1))
                    : !mlirOperationIsNull(
                          ir_find_causal(g->scratch, condition, g->q, g->kv));
    if (fits)
        ir_map_set(g->known, condition, condition);
    return fits;
}

/* Do the first query tiles have the fewest keys? */
static bool starts_cheap(const struct tile_kernel *kernel) {
    MlirOperation mask = kernel->mask;
    MlirValue attends = ir_returned(mask);
    if (!mlirOperationIsNull(kernel->causal))
        return true;
    struct growth g = {.q = ir_func_arg(mask, IR_MASK_Q),
                       .kv = ir_func_arg(mask, IR_MASK_KV),
                       .scratch = kernel->b.arena};
    g.on_q = dependents(g.scratch, mask, g.q);
    g.known = ir_map_create(g.scratch);
    return ir_map_has(g.on_q, attends) && grows(&g, attends);
}

/* F: query tiles that come last, those of all heads. */
static MlirValue last_tiles(struct tile_kernel *kernel, MlirValue tiles) {
    struct ir_builder *b = &kernel->b;
    int most = section_keys(kernel) * kernel->pack / kernel->plan.tile_m;
    MlirValue kv_heads = ir_muli(b, tile_size(kernel, "size:kv_heads"),
                                 tile_size(kernel, "size:batch"));
    return ir_minsi(b, ir_divui(b, tile_const(kernel, most), kv_heads), tiles);
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
    bool has_last = starts_cheap(kernel);
    MlirValue heads = section_heads(kernel, total), one = tile_const(kernel, 1);
    MlirValue behind = {NULL}, in_sections = tiles;
    if (has_last) {
        behind = last_tiles(kernel, tiles);
        in_sections = ir_subi(b, tiles, behind);
    }
    MlirValue size = ir_muli(b, heads, in_sections);
    if (has_last)
        size = ir_maxsi(b, size, one);
    MlirValue section = ir_divui(b, number, size);
    MlirValue first = ir_muli(b, section, heads);
    MlirValue passed = ir_muli(b, first, in_sections);
    MlirValue width =
        ir_minsi(b, heads, ir_subi(b, total, first)); /* the last is narrower */
    MlirValue last = ir_subi(b, tiles, one);
    if (has_last) {
        MlirValue before = ir_muli(b, total, in_sections);
        MlirValue is_last = ir_cmpi(b, IR_SGE, number, before);
        first = ir_select(b, is_last, tile_const(kernel, 0), first);
        passed = ir_select(b, is_last, before, passed);
        width = ir_select(b, is_last, total, width);
        last = ir_select(b, is_last, ir_subi(b, behind, one), last);
    }
    MlirValue rest = ir_subi(b, number, passed);
    *out_tile = ir_subi(b, last, ir_divui(b, rest, width));
    *out_batch_head = ir_addi(b, first, ir_remui(b, rest, width));
}
