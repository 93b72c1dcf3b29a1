/* pipeline, sm_90a: what both roles need: images of the old kernel, positions
 * in rings, and the loop over tiles.
 *
 * With a counter the first tile of a CTA is its own number and each next one is
 * CTAs + atom.inc(counter, tiles - 1).  Every tile is followed by one draw, so
 * a launch draws exactly `tiles` numbers and the counter is 0 again at its end.
 * The producer draws while it copies a tile and names the tile in a ring of two
 * slots; a number past the end tells the consumers to stop.
 *
 *     drawn_full      one arrival, the producer's      drawn_empty      each
 * consumer warp
 *
 * Not here: which tile a number stands for (tile-order.c). */
#include "passes/pipeline-sm90-roles.h"

MlirValue role_number(struct roles *r, int value) {
    return ir_const_i32(&r->b, value);
}

void role_name_section(struct roles *r, MlirOperation op, const char *text) {
    ir_set_attr(op, "attn.section", ir_attr_string(r->b.context, text));
}

/* ---- Scopes
 * ------------------------------------------------------------------ */

MlirValue role_image(const struct scope *scope, MlirValue value) {
    MlirValue found = ir_map_get(scope->inner, value);
    if (mlirValueEqual(found, value) && scope->outer)
        found = ir_map_get(scope->outer, value);
    return found;
}

static void adopt_operands(void *data, MlirOperation op) {
    const struct scope *scope = data;
    for (size_t i = 0; i < ir_operand_count(op); i++) {
        MlirValue value = ir_operand(op, i);
        ir_map_set(scope->inner, value, role_image(scope, value));
    }
}

void role_clone(struct roles *r, struct scope *scope, MlirOperation op) {
    adopt_operands(scope, op);
    ir_walk(op, adopt_operands, scope);
    ir_clone(&r->b, op, scope->inner);
}

MlirValue role_slice(struct roles *r, struct scope *scope, MlirValue value) {
    MlirOperation def = ir_def(value);
    MlirValue found = role_image(scope, value);
    if (!mlirValueEqual(found, value) || mlirOperationIsNull(def) ||
        !mlirBlockEqual(mlirOperationGetBlock(def), r->loop_body))
        return found;
    if (!ir_is_pure(def))
        ir_ice(def, "the rows of a load must be computed without side effects");
    for (size_t i = 0; i < ir_operand_count(def); i++)
        role_slice(r, scope, ir_operand(def, i));
    role_clone(r, scope, def);
    return role_image(scope, value);
}

/* ---- Rings
 * ------------------------------------------------------------------- */

struct ring role_ring_next(struct roles *r, struct ring ring, int stages) {
    struct ir_builder *b = &r->b;
    MlirValue flipped = ir_xori(b, ring.parity, role_number(r, 1));
    if (stages == 1)
        return (struct ring){ring.stage, flipped};
    MlirValue next = ir_addi(b, ring.stage, role_number(r, 1));
    MlirValue wraps = ir_cmpi(b, IR_EQ, next, role_number(r, stages));
    return (struct ring){ir_select(b, wraps, role_number(r, 0), next),
                         ir_select(b, wraps, flipped, ring.parity)};
}

MlirValue role_q_slot(struct roles *r, MlirValue stage, MlirValue consumer) {
    struct ir_builder *b = &r->b;
    if (r->q_stages == 1)
        return consumer;
    return ir_addi(b, ir_muli(b, stage, role_number(r, r->consumers)),
                   consumer);
}

void role_wait_empty(struct roles *r, MlirValue empty, struct ring ring) {
    MlirValue parity = ir_xori(&r->b, ring.parity, role_number(r, 1));
    ir_mbarrier_wait(&r->b, empty, ring.stage, parity);
}

/* ---- What stands in front of the key loop
 * ------------------------------------------ */

struct scope role_tile_head(struct roles *r, MlirValue tile,
                            MlirValue consumer) {
    struct scope scope = {.inner = ir_map_create(r->b.arena)};
    for (size_t i = 0; i < r->before.count; i++) {
        MlirOperation op = r->before.data[i];
        if (ir_is_op(op, "attn.load") || ir_is_op(op, "gpu.block_id") ||
            ir_is_op(op, "attn.own_blocks"))
            continue;
        if (ir_is_op(op, "attn.consumer"))
            ir_map_set(scope.inner, ir_result(op, 0), consumer);
        else if (ir_is_op(op, "arith.index_cast") &&
                 !mlirOperationIsNull(
                     ir_def_op(ir_operand(op, 0), "gpu.block_id")))
            ir_map_set(scope.inner, ir_result(op, 0), tile);
        else if (ir_is_op(op, "attn.warp_reduce")) /* of a uniform value: one
                                                      lane may run this */
            ir_map_set(scope.inner, ir_result(op, 0),
                       role_image(&scope, ir_operand(op, 0)));
        else
            role_clone(r, &scope, op);
    }
    return scope;
}

/* ---- The loop over tiles
 * ------------------------------------------------------------- */

enum { MAX_CARRIED = 8, OWN_TILE = 0, OWN_SLOT, OWN_PARITY, OWN_COUNT };

/* Draws the next tile.  A searching producer is a whole warp: its first lane
 * draws. */
static MlirValue draw_tile(struct roles *r) {
    struct ir_builder *b = &r->b;
    MlirValue zero = role_number(r, 0),
              wrap = ir_subi(b, r->tiles, role_number(r, 1));
    MlirType i32 = ir_type_i32(b->context);
    if (!r->is_list)
        return ir_addi(b, r->ctas, ir_atomic_inc(b, r->counter, zero, wrap));
    MlirValue is_first = ir_cmpi(b, IR_EQ, ir_lane_id(b), zero);
    struct ir_if one = ir_if_begin(b, is_first, &i32, 1, true);
    MlirValue drawn = ir_atomic_inc(b, r->counter, zero, wrap);
    ir_if_else(b, &one, &drawn, 1);
    ir_if_end(b, &one, &zero, 1);
    return ir_addi(b, r->ctas, ir_uniform(b, ir_result(one.op, 0)));
}

/* Names the drawn tile to the consumers. */
static void publish_tile(struct roles *r, struct tile_loop *loop) {
    struct ir_builder *b = &r->b;
    struct ir_if one = {0};
    if (r->is_list)
        one = ir_if_begin(b, r->elected, NULL, 0, false);
    role_wait_empty(r, r->drawn_empty, loop->ring);
    ir_store_element(b, loop->next, r->drawn, &loop->ring.stage, 1);
    ir_mbarrier_arrive(b, r->drawn_full, loop->ring.stage, true);
    if (r->is_list)
        ir_if_end(b, &one, NULL, 0);
}

/* The tile that the producer named. */
static MlirValue receive_tile(struct roles *r, struct ring ring) {
    struct ir_builder *b = &r->b;
    ir_mbarrier_wait(b, r->drawn_full, ring.stage, ring.parity);
    MlirValue tile =
        ir_uniform(b, ir_load_element(b, r->drawn, &ring.stage, 1));
    ir_mbarrier_arrive(b, r->drawn_empty, ring.stage, false);
    return tile;
}

struct tile_loop role_tiles_begin(struct roles *r, const MlirValue *inits,
                                  size_t count, bool is_producer,
                                  const char *section) {
    struct ir_builder *b = &r->b;
    struct tile_loop loop = {.count = count};
    if (mlirValueIsNull(r->counter)) {
        loop.counted =
            ir_for_begin(b, r->first_tile, r->tiles, r->ctas, inits, count);
        loop.tile = loop.counted.iv;
        role_name_section(r, loop.counted.op, section);
        return loop;
    }
    MlirValue values[MAX_CARRIED + OWN_COUNT], zero = role_number(r, 0);
    size_t total = count + OWN_COUNT;
    for (size_t i = 0; i < count; i++)
        values[i] = inits[i];
    values[count + OWN_TILE] = r->first_tile;
    values[count + OWN_SLOT] = values[count + OWN_PARITY] = zero;
    loop.drawn = ir_while_begin(b, values, total);
    role_name_section(r, loop.drawn.op, section);
    for (size_t i = 0; i < total; i++)
        values[i] = ir_while_arg(&loop.drawn, 0, i);
    MlirValue more = ir_cmpi(b, IR_SLT, values[count + OWN_TILE], r->tiles);
    ir_while_do(b, &loop.drawn, more, values, total);
    loop.tile = ir_while_arg(&loop.drawn, 1, count + OWN_TILE);
    loop.ring = (struct ring){ir_while_arg(&loop.drawn, 1, count + OWN_SLOT),
                              ir_while_arg(&loop.drawn, 1, count + OWN_PARITY)};
    if (is_producer)
        loop.next = draw_tile(r);
    return loop;
}

MlirValue role_tiles_arg(const struct tile_loop *loop, size_t i) {
    return loop->counted.op.ptr ? ir_for_arg(&loop->counted, i)
                                : ir_while_arg(&loop->drawn, 1, i);
}

void role_tiles_end(struct roles *r, struct tile_loop *loop,
                    const MlirValue *yields, bool is_producer) {
    struct ir_builder *b = &r->b;
    if (mlirValueIsNull(r->counter)) {
        ir_for_end(b, &loop->counted, yields, loop->count);
        return;
    }
    MlirValue values[MAX_CARRIED + OWN_COUNT];
    if (is_producer)
        publish_tile(r, loop);
    else
        loop->next = receive_tile(r, loop->ring);
    struct ring ring = role_ring_next(r, loop->ring, DRAWN_SLOTS);
    for (size_t i = 0; i < loop->count; i++)
        values[i] = yields[i];
    MlirValue own[OWN_COUNT] = {loop->next, ring.stage, ring.parity};
    for (size_t i = 0; i < OWN_COUNT; i++)
        values[loop->count + i] = own[i];
    ir_while_end(b, &loop->drawn, values, loop->count + OWN_COUNT);
}
