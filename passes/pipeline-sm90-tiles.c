/* pipeline, sm_90a: what both roles need: images of the old kernel, positions
 * in rings, and the loop over tiles.
 *
 * With a counter the first tile of a CTA is its own number and each next one is
 * CTAs + atom.inc(counter, tiles - 1).  Every tile is followed by one draw, so
 * a launch draws exactly `tiles` numbers and the counter is 0 again at its end.
 * The producer draws the next tile before it copies one, the search of a list,
 * which runs ahead, once it has found the last block of one.  A record of each
 * tile goes into a ring of two slots: the tile's number, and its coordinates,
 * for whose divisions the other roles would wait; the number -1 tells them to
 * stop.
 *
 *     drawn_full      one arrival, of the role that draws
 *     drawn_empty     one of each consumer warp, and of the producer where the
 *                     search draws
 *
 * Not here: which tile a number stands for (tile-order.c). */
#include "passes/pipeline-sm90-roles.h"

#include <assert.h>
#include <string.h>

MlirValue role_number(struct roles *r, int value) {
    return ir_const_i32(&r->b, value);
}

void role_name_section(struct roles *r, MlirOperation op, const char *text) {
    ir_set_attr(op, "attn.section", ir_attr_string(r->b.context, text));
}

/* ---- Scopes ------------------------------------------------------------- */

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

/* ---- Rings -------------------------------------------------------------- */

struct ring role_ring_at(const MlirValue position[2]) {
    return (struct ring){position[0], position[1]};
}

void role_ring_advance(struct roles *r, MlirValue position[2], int stages) {
    struct ring next = role_ring_next(r, role_ring_at(position), stages);
    position[0] = next.stage, position[1] = next.parity;
}

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

/* ---- Turns --------------------------------------------------------------- */

/* Two consumers meet at a named barrier. */
enum { TURN_THREADS = 256 };

void role_take_turn(struct roles *r) {
    if (r->pingpong)
        ir_bar_sync(&r->b, r->own_turn, TURN_THREADS);
}

void role_pass_turn(struct roles *r) {
    if (r->pingpong)
        ir_bar_arrive(&r->b, r->next_turn, TURN_THREADS);
}

/* ---- What stands in front of the key loop ------------------------------- */

/* An op on what is the same for all tiles (`fixed`). */
static bool is_fixed(const struct ir_map *fixed, MlirOperation op) {
    if (strncmp(ir_op_name(op), "arith.", 6) != 0 &&
        !ir_is_op(op, "memref.dim"))
        return false;
    for (size_t i = 0; i < ir_operand_count(op); i++)
        if (!mlirValueIsABlockArgument(ir_operand(op, i)) &&
            !ir_map_has(fixed, ir_operand(op, i)))
            return false;
    return true;
}

static bool is_quotient(MlirOperation op) {
    return ir_is_op(op, "arith.divui") || ir_is_op(op, "arith.remui") ||
           ir_is_op(op, "arith.divsi") || ir_is_op(op, "arith.remsi");
}

void role_tiles_fix_quotients(struct roles *r) {
    struct ir_map *fixed = ir_map_create(r->b.arena);  /* a set */
    struct ir_map *needed = ir_map_create(r->b.arena); /* a set */
    r->fixed.inner = ir_map_create(r->b.arena);
    for (size_t i = 0; i < r->before.count; i++)
        if (is_fixed(fixed, r->before.data[i])) {
            MlirValue value = ir_result(r->before.data[i], 0);
            ir_map_set(fixed, value, value);
        }
    for (size_t i = r->before.count; i-- > 0;) {
        MlirOperation op = r->before.data[i];
        if (ir_result_count(op) != 1 || !ir_map_has(fixed, ir_result(op, 0)) ||
            (!is_quotient(op) && !ir_map_has(needed, ir_result(op, 0))))
            continue;
        ir_map_set(needed, ir_result(op, 0), ir_result(op, 0));
        for (size_t k = 0; k < ir_operand_count(op); k++)
            ir_map_set(needed, ir_operand(op, k), ir_operand(op, k));
    }
    for (size_t i = 0; i < r->before.count; i++)
        if (ir_result_count(r->before.data[i]) == 1 &&
            ir_map_has(needed, ir_result(r->before.data[i], 0)))
            role_clone(r, &r->fixed, r->before.data[i]);
}

/* Has the op been copied in front of all tiles? */
static bool take_fixed(struct roles *r, struct scope *scope, MlirOperation op) {
    if (!r->fixed.inner || ir_result_count(op) != 1 ||
        !ir_map_has(r->fixed.inner, ir_result(op, 0)))
        return false;
    ir_map_set(scope->inner, ir_result(op, 0),
               ir_map_get(r->fixed.inner, ir_result(op, 0)));
    return true;
}

/* Copies what stands in front of the key loop for tile number `tile`; loads are
 * left out, each role has its own.  `known`: the coordinates (NULL: computed).
 */
static struct scope tile_head(struct roles *r, MlirValue tile,
                              MlirValue consumer, const MlirValue *known) {
    struct scope scope = {.inner = ir_map_create(r->b.arena)};
    size_t coordinate = 0;
    for (size_t i = 0; i < r->before.count; i++) {
        MlirOperation op = r->before.data[i];
        if (ir_is_op(op, "attn.load") || ir_is_op(op, "gpu.block_id") ||
            ir_is_op(op, "attn.own_blocks") || take_fixed(r, &scope, op))
            continue;
        if (ir_is_op(op, "attn.consumer"))
            ir_map_set(scope.inner, ir_result(op, 0), consumer);
        else if (ir_is_op(op, "arith.index_cast") &&
                 !mlirOperationIsNull(
                     ir_def_op(ir_operand(op, 0), "gpu.block_id")))
            ir_map_set(scope.inner, ir_result(op, 0), tile);
        else if (ir_is_op(op, "attn.warp_reduce")) {
            /* Of a value that all lanes share, and one lane may run this. */
            MlirValue same = role_image(&scope, ir_operand(op, 0));
            ir_map_set(scope.inner, ir_result(op, 0),
                       known ? known[coordinate] : same);
            coordinate++;
        } else
            role_clone(r, &scope, op);
    }
    return scope;
}

/* ---- The loop over tiles ------------------------------------------------ */

enum { MAX_CARRIED = 10, OWN_TILE = 0, OWN_SLOT, OWN_PARITY, OWN_COUNT };

/* Draws the next tile; of a warp the first lane. */
static MlirValue draw_tile(struct roles *r) {
    struct ir_builder *b = &r->b;
    MlirValue zero = role_number(r, 0),
              wrap = ir_subi(b, r->tiles, role_number(r, 1));
    MlirType i32 = ir_type_i32(b->context);
    if (r->one_thread)
        return ir_addi(b, r->ctas, ir_atomic_inc(b, r->counter, zero, wrap));
    MlirValue is_first = ir_cmpi(b, IR_EQ, ir_lane_id(b), zero);
    struct ir_if one = ir_if_begin(b, is_first, &i32, 1, true);
    MlirValue drawn = ir_atomic_inc(b, r->counter, zero, wrap);
    ir_if_else(b, &one, &drawn, 1);
    ir_if_end(b, &one, &zero, 1);
    return ir_addi(b, r->ctas, ir_uniform(b, ir_result(one.op, 0)));
}

MlirValue role_word_index(struct roles *r, MlirValue slot, int width,
                          int word) {
    struct ir_builder *b = &r->b;
    return ir_addi(b, ir_muli(b, slot, role_number(r, width)),
                   role_number(r, word));
}

/* Of a record. */
static MlirValue word_index(struct roles *r, MlirValue slot, size_t word) {
    return role_word_index(r, slot, 1 + (int)r->coordinates.count, (int)word);
}

/* Writes a record.  Of a warp all lanes wait, so that none is left behind. */
static void publish(struct roles *r, struct ring ring, const MlirValue *words) {
    struct ir_builder *b = &r->b;
    struct ir_if one = {0};
    role_wait_empty(r, r->drawn_empty, ring);
    if (!r->one_thread)
        one = ir_if_begin(b, r->elected, NULL, 0, false);
    for (size_t i = 0; i <= r->coordinates.count; i++) {
        MlirValue index = word_index(r, ring.stage, i);
        ir_store_element(b, words[i], r->drawn, &index, 1);
    }
    ir_mbarrier_arrive(b, r->drawn_full, ring.stage, true);
    if (!r->one_thread)
        ir_if_end(b, &one, NULL, 0);
}

/* Reads the next record. */
static void receive(struct roles *r, struct ring ring, MlirValue *words) {
    struct ir_builder *b = &r->b;
    ir_mbarrier_wait(b, r->drawn_full, ring.stage, ring.parity);
    for (size_t i = 0; i <= r->coordinates.count; i++) {
        MlirValue index = word_index(r, ring.stage, i);
        words[i] = r->one_thread ? ir_load_element(b, r->drawn, &index, 1)
                                 : ir_load_for_warp(b, r->drawn, index);
    }
    ir_mbarrier_arrive(b, r->drawn_empty, ring.stage, r->one_thread);
}

/* The loop of the role that draws: the tile to do, and the position for its
 * record. */
static void begin_drawing(struct roles *r, struct tile_loop *loop,
                          MlirValue *values) {
    struct ir_builder *b = &r->b;
    size_t own = loop->count, total = own + OWN_COUNT;
    values[own + OWN_TILE] = r->first_tile;
    values[own + OWN_SLOT] = values[own + OWN_PARITY] = role_number(r, 0);
    loop->drawn = ir_while_begin(b, values, total);
    for (size_t i = 0; i < total; i++)
        values[i] = ir_while_arg(&loop->drawn, 0, i);
    MlirValue more = ir_cmpi(b, IR_SLT, values[own + OWN_TILE], r->tiles);
    ir_while_do(b, &loop->drawn, more, values, total);
    loop->tile = ir_while_arg(&loop->drawn, 1, own + OWN_TILE);
    loop->ring = (struct ring){ir_while_arg(&loop->drawn, 1, own + OWN_SLOT),
                               ir_while_arg(&loop->drawn, 1, own + OWN_PARITY)};
    if (!r->is_list)
        loop->next = draw_tile(r);
}

/* The loop of another role: the position of the next record, then the words of
 * the tile to do.  The first record is read in front of the loop. */
static void begin_receiving(struct roles *r, struct tile_loop *loop,
                            MlirValue *values) {
    struct ir_builder *b = &r->b;
    size_t own = loop->count, words = own + 2;
    size_t total = words + 1 + r->coordinates.count;
    values[own] = loop->ring.stage, values[own + 1] = loop->ring.parity;
    for (size_t i = 0; i <= r->coordinates.count; i++)
        values[words + i] = loop->words[i];
    loop->drawn = ir_while_begin(b, values, total);
    for (size_t i = 0; i < total; i++)
        values[i] = ir_while_arg(&loop->drawn, 0, i);
    MlirValue more = ir_cmpi(b, IR_SGE, values[words], role_number(r, 0));
    ir_while_do(b, &loop->drawn, more, values, total);
    loop->ring = (struct ring){ir_while_arg(&loop->drawn, 1, own),
                               ir_while_arg(&loop->drawn, 1, own + 1)};
    for (size_t i = 0; i <= r->coordinates.count; i++)
        loop->words[i] = ir_while_arg(&loop->drawn, 1, words + i);
    loop->tile = loop->words[0];
}

struct tile_loop role_tiles_first(struct roles *r) {
    struct tile_loop loop = {.tile = r->first_tile};
    if (mlirValueIsNull(r->counter))
        return loop;
    MlirValue zero = role_number(r, 0);
    struct ring start = {zero, zero};
    receive(r, start, loop.words);
    loop.tile = loop.words[0];
    loop.ring = role_ring_next(r, start, DRAWN_SLOTS);
    return loop;
}

struct tile_loop role_tiles_next(struct roles *r,
                                 const struct tile_loop *loop) {
    struct tile_loop next = {.ring = loop->ring};
    if (mlirValueIsNull(r->counter)) {
        next.tile = ir_addi(&r->b, loop->tile, r->ctas);
        return next;
    }
    receive(r, loop->ring, next.words);
    next.tile = next.words[0];
    next.ring = role_ring_next(r, loop->ring, DRAWN_SLOTS);
    return next;
}

MlirValue role_tiles_exists(struct roles *r, const struct tile_loop *at) {
    if (mlirValueIsNull(r->counter))
        return ir_cmpi(&r->b, IR_SLT, at->tile, r->tiles);
    return ir_cmpi(&r->b, IR_SGE, at->tile, role_number(r, 0));
}

struct tile_loop role_tiles_begin(struct roles *r,
                                  const struct tile_loop *first,
                                  const MlirValue *inits, size_t count,
                                  const char *section) {
    struct ir_builder *b = &r->b;
    bool leads = first == NULL;
    struct tile_loop loop = {.count = 0};
    if (first)
        loop = *first;
    loop.count = count;
    if (mlirValueIsNull(r->counter)) {
        loop.counted =
            ir_for_begin(b, r->first_tile, r->tiles, r->ctas, inits, count);
        loop.tile = loop.counted.iv;
        role_name_section(r, loop.counted.op, section);
        return loop;
    }
    MlirValue values[MAX_CARRIED + OWN_COUNT + MAX_WORDS];
    assert(count <= MAX_CARRIED);
    for (size_t i = 0; i < count; i++)
        values[i] = inits[i];
    if (leads)
        begin_drawing(r, &loop, values);
    else
        begin_receiving(r, &loop, values);
    role_name_section(r, loop.drawn.op, section);
    return loop;
}

MlirValue role_tiles_arg(const struct tile_loop *loop, size_t i) {
    return loop->counted.op.ptr ? ir_for_arg(&loop->counted, i)
                                : ir_while_arg(&loop->drawn, 1, i);
}

MlirValue role_tiles_result(const struct tile_loop *loop, size_t i) {
    return ir_result(loop->counted.op.ptr ? loop->counted.op : loop->drawn.op,
                     i);
}

struct scope role_tiles_head(struct roles *r, const struct tile_loop *loop,
                             MlirValue consumer, bool leads) {
    bool draws = !mlirValueIsNull(r->counter);
    struct scope scope = tile_head(r, loop->tile, consumer,
                                   draws && !leads ? loop->words + 1 : NULL);
    MlirValue words[MAX_WORDS] = {loop->tile};
    for (size_t i = 0; i < r->coordinates.count; i++)
        words[i + 1] = role_image(&scope, ir_result(r->coordinates.data[i], 0));
    if (draws && leads)
        publish(r, loop->ring, words);
    return scope;
}

void role_tiles_end(struct roles *r, struct tile_loop *loop,
                    const struct tile_loop *next, const MlirValue *yields) {
    struct ir_builder *b = &r->b;
    bool leads = next == NULL;
    if (mlirValueIsNull(r->counter)) {
        ir_for_end(b, &loop->counted, yields, loop->count);
        return;
    }
    MlirValue values[MAX_CARRIED + OWN_COUNT + MAX_WORDS];
    size_t total = loop->count;
    for (size_t i = 0; i < loop->count; i++)
        values[i] = yields[i];
    if (leads)
        values[total++] = r->is_list ? draw_tile(r) : loop->next;
    struct ring ring =
        leads ? role_ring_next(r, loop->ring, DRAWN_SLOTS) : next->ring;
    values[total++] = ring.stage;
    values[total++] = ring.parity;
    for (size_t i = 0; !leads && i <= r->coordinates.count; i++)
        values[total++] = next->words[i];
    ir_while_end(b, &loop->drawn, values, total);
    if (!leads)
        return;
    MlirValue end[MAX_WORDS];
    for (size_t i = 0; i <= r->coordinates.count; i++)
        end[i] = role_number(r, -1);
    ring.stage = ir_result(loop->drawn.op, loop->count + OWN_SLOT);
    ring.parity = ir_result(loop->drawn.op, loop->count + OWN_PARITY);
    publish(r, ring, end);
}
