/* pipeline, sm_90a: the search for the blocks of list masks, a warp of its own
 * beside the producer.
 *
 * It draws the tiles, names them to the other roles, and runs the first part of
 * the kernel's while loop for each: which blocks, with which classes.  A record
 * for each goes through a ring to the producer; the ring lets the search run
 * ahead, so that nobody waits for it between two blocks or tiles.
 *
 *     record     block·2 + last       classes, those of the block after it
 *                                     above them (NEXT_CLASSES)
 *                -1                   0; of a tile without blocks
 *     found_full     one arrival, the search's
 *     found_empty    one arrival, the producer's
 *
 * The search is one block ahead of the records, so that each can say whether it
 * is the tile's last.
 *
 * Not here: how a block is classified (tile-search.c). */
#include <assert.h>

#include "passes/pipeline-sm90-roles.h"

/* Words of a record. */
enum { FOUND_WORD, FOUND_CLASSES, FOUND_WORDS };

void role_found_ring(struct roles *r) {
    r->found_full = role_mbarriers(r, "found_full", FOUND_SLOTS, 1);
    r->found_empty = role_mbarriers(r, "found_empty", FOUND_SLOTS, 1);
    r->found = role_words(r, "found_blocks", FOUND_SLOTS * FOUND_WORDS);
}

static MlirValue found_index(struct roles *r, MlirValue slot, int word) {
    return role_word_index(r, slot, FOUND_WORDS, word);
}

struct listed role_next_found(struct roles *r, MlirValue position[2]) {
    struct ir_builder *b = &r->b;
    struct ring ring = role_ring_at(position);
    ir_mbarrier_wait(b, r->found_full, ring.stage, ring.parity);
    MlirValue word = found_index(r, ring.stage, FOUND_WORD);
    MlirValue classes = found_index(r, ring.stage, FOUND_CLASSES);
    struct listed listed = {ir_load_element(b, r->found, &word, 1),
                            ir_load_element(b, r->found, &classes, 1)};
    ir_mbarrier_arrive(b, r->found_empty, ring.stage, true);
    role_ring_advance(r, position, FOUND_SLOTS);
    return listed;
}

/* What the search carries along: its position in the ring, and the block that
 * it found before (negative: none) with its classes. */
enum { S_FS, S_FP, S_ENTRY, S_CLASSES, S_COUNT };

/* All lanes wait, so that none is left behind; one writes. */
static void put_found(struct roles *r, struct listed listed,
                      MlirValue position[2]) {
    struct ir_builder *b = &r->b;
    struct ring ring = role_ring_at(position);
    role_wait_empty(r, r->found_empty, ring);
    struct ir_if one = ir_if_begin(b, r->elected, NULL, 0, false);
    MlirValue word = found_index(r, ring.stage, FOUND_WORD);
    MlirValue classes = found_index(r, ring.stage, FOUND_CLASSES);
    ir_store_element(b, listed.word, r->found, &word, 1);
    ir_store_element(b, listed.classes, r->found, &classes, 1);
    ir_mbarrier_arrive(b, r->found_full, ring.stage, true);
    ir_if_end(b, &one, NULL, 0);
    role_ring_advance(r, position, FOUND_SLOTS);
}

/* put_found if the condition holds. */
static void put_found_if(struct roles *r, MlirValue condition,
                         struct listed listed, MlirValue position[2]) {
    struct ir_builder *b = &r->b;
    MlirType i32 = ir_type_i32(b->context), types[2] = {i32, i32};
    MlirValue same[2] = {position[0], position[1]};
    struct ir_if branch = ir_if_begin(b, condition, types, 2, true);
    put_found(r, listed, position);
    ir_if_else(b, &branch, position, 2);
    ir_if_end(b, &branch, same, 2);
    for (size_t i = 0; i < 2; i++)
        position[i] = ir_result(branch.op, i);
}

/* Copies the while loop's search for the next block; `found` receives what it
 * passes on (without the softmax state); returns its condition. */
static MlirValue clone_search(struct roles *r, const struct scope *tile,
                              const MlirValue *args, MlirValue *found) {
    MlirBlock search = ir_region_block(r->loop, 0);
    struct scope scope = {ir_map_create(r->b.arena), tile->inner};
    for (size_t i = 0; i < r->state; i++)
        ir_map_set(scope.inner, mlirBlockGetArgument(search, (intptr_t)i),
                   args[i]);
    MlirOperation op = mlirBlockGetFirstOperation(search);
    for (; !ir_is_op(op, "scf.condition"); op = mlirOperationGetNextInBlock(op))
        role_clone(r, &scope, op);
    for (size_t i = 0; i < r->state; i++)
        found[i] = role_image(&scope, ir_operand(op, i + 1));
    return role_image(&scope, ir_operand(op, 0));
}

/* The body of the while loop behind the search, with the values that it passed
 * on. */
static struct scope search_body(struct roles *r, const struct scope *tile,
                                const MlirValue *passed) {
    struct scope body = {ir_map_create(r->b.arena), tile->inner};
    for (size_t i = 0; i < r->state; i++)
        ir_map_set(body.inner, mlirBlockGetArgument(r->loop_body, (intptr_t)i),
                   passed[i]);
    return body;
}

/* The record of the block found before; `after`: classes of the one found now,
 * anything unless `more`. */
static struct listed make_record(struct roles *r, const MlirValue own[S_COUNT],
                                 MlirValue more, MlirValue after) {
    struct ir_builder *b = &r->b;
    MlirValue last = ir_extui(b, ir_not(b, more), ir_type_i32(b->context));
    MlirValue doubled = ir_shli(b, own[S_ENTRY], role_number(r, 1));
    after = ir_shli(b, after, role_number(r, NEXT_CLASSES));
    return (struct listed){ir_ori(b, doubled, last),
                           ir_ori(b, own[S_CLASSES], after)};
}

/* The records of a tile. */
static void search_tile(struct roles *r, struct scope *tile,
                        MlirValue position[2]) {
    enum { MAX_SEARCH = 16 };
    struct ir_builder *b = &r->b;
    MlirValue values[MAX_SEARCH + S_COUNT], found[MAX_SEARCH + S_COUNT];
    MlirValue zero = role_number(r, 0), none = role_number(r, -1);
    size_t search = r->state, total = search + S_COUNT;
    assert(search <= MAX_SEARCH);
    for (size_t i = 0; i < search; i++)
        values[i] = role_image(tile, ir_operand(r->loop, i));
    MlirValue start[S_COUNT] = {position[0], position[1], none, zero};
    for (size_t i = 0; i < S_COUNT; i++)
        values[search + i] = start[i];
    struct ir_while loop = ir_while_begin(b, values, total);
    for (size_t i = 0; i < total; i++)
        found[i] = values[i] = ir_while_arg(&loop, 0, i);
    MlirValue *own = found + search;
    MlirValue more = clone_search(r, tile, values, found);
    struct scope ahead = search_body(r, tile, found);
    MlirValue after = role_slice(r, &ahead, ir_result(r->classes, 0));
    put_found_if(r, ir_cmpi(b, IR_SGE, own[S_ENTRY], zero),
                 make_record(r, own, more, after), own + S_FS);
    own[S_CLASSES] = after;
    ir_while_do(b, &loop, more, found, total);

    for (size_t i = 0; i < total; i++)
        values[i] = ir_while_arg(&loop, 1, i);
    struct scope body = search_body(r, tile, values);
    values[search + S_ENTRY] = role_slice(r, &body, ir_result(r->entry, 0));
    MlirOperation yield = mlirBlockGetTerminator(r->loop_body);
    for (size_t i = 0; i < search; i++)
        values[i] = role_slice(r, &body, ir_operand(yield, i));
    ir_while_end(b, &loop, values, total);

    for (size_t i = 0; i < 2; i++)
        position[i] = ir_result(loop.op, search + S_FS + i);
    MlirValue entry = ir_result(loop.op, search + S_ENTRY);
    put_found_if(r, ir_cmpi(b, IR_SLT, entry, zero),
                 (struct listed){none, zero}, position);
}

void role_search(struct roles *r) {
    MlirValue zero = role_number(r, 0);
    MlirValue position[2] = {zero, zero};
    struct tile_loop loop = role_tiles_begin(r, NULL, position, 2,
                                             "search: the blocks of each tile");
    struct scope tile = role_tiles_head(r, &loop, zero, true);
    for (size_t i = 0; i < 2; i++)
        position[i] = role_tiles_arg(&loop, i);
    search_tile(r, &tile, position);
    role_tiles_end(r, &loop, NULL, position);
}
