/* A kernel that is taken apart into warp roles; shared by pipeline-sm90*.c
 * only. */
#ifndef ATTN_PASSES_PIPELINE_SM90_ROLES_H
#define ATTN_PASSES_PIPELINE_SM90_ROLES_H

#include "ir/build_sm90.h"
#include "ir/walk.h"
#include "support/vec.h"

/* What stands beside K of a listed block: its number·2 + last (negative for a
 * tile without blocks), and its classes, from bit NEXT_CLASSES on those of the
 * block after it. */
enum { NEXT_CLASSES = 16 };
struct listed {
    MlirValue word, classes;
};

/* Position in a ring of stages: next stage, parity of the phase to wait for. */
struct ring {
    MlirValue stage, parity;
};

/* Images of the kernel's old values: those of an inner scope hide the outer
 * ones. */
struct scope {
    struct ir_map *inner;
    const struct ir_map *outer; /* may be NULL */
};

typedef VEC(MlirOperation) op_list;

struct roles {
    struct ir_builder b;
    MlirOperation func;
    int consumers, stages, q_stages, tile_m;
    bool pingpong;
    /* The kernel as it was. */
    op_list before, after; /* ops in front of and behind the key loop */
    op_list coordinates; /* ops of `before` that give the tile's coordinates */
    MlirOperation q_load, k_load, v_load, loop, qk, pv;
    MlirOperation o_store; /* of `after`: O, which goes out by TMA from the slot
                              of Q; null: no store does */
    MlirOperation own; /* attn.own_blocks; null: all blocks are */
    MlirBlock loop_body;
    bool is_list;        /* scf.while over a list of blocks, else scf.for */
    MlirOperation entry, classes; /* list: the block's number and classes; the
                                     lowest bit of class c says whether the
                                     block is consumer c's own */
    int class_count, class_bits;  /* 1: all consumers have the same class */
    size_t
        state; /* number of acc among the loop-carried values; m and l follow */
    MlirOperation rescale; /* makes the accumulator operand of P·V; null: it is
                              acc itself */
    MlirOperation
        exponent; /* first op that needs the new maximum and is a tile */
    /* The new kernel. */
    MlirValue q_tiles, k_tiles, v_tiles, entries, entry_classes;
    MlirValue q_full, q_empty, k_full, k_empty, v_full, v_empty;
    MlirValue tiles, first_tile, ctas; /* persistent loop */
    MlirValue counter; /* drawn tiles: workspace; null: static order */
    MlirValue drawn, drawn_full, drawn_empty;
    MlirValue found, found_full, found_empty; /* list: records of the search */
    bool one_thread; /* the role being built is a thread, not a warp */
    MlirValue warp, elected, consumer;
    struct scope fixed; /* producer, search: quotients that all tiles share */
    MlirValue q_slot; /* consumer: of the tile in work */
    MlirValue is_storing, rows_written; /* consumer, with o_store: the thread
                                           that copies; named barrier */
    MlirValue has_stored, stored_slot; /* the same: was there a tile before, its
                                          slot of Q */
    MlirValue own_turn, next_turn; /* consumer: named barriers (pingpong) */
    int shared_bytes;
};

enum { STATE_ACC, STATE_M, STATE_L };

/* Slots of the ring through which drawn tiles are named, words of a slot. */
enum { DRAWN_SLOTS = 2, MAX_WORDS = 8 };
/* Slots of the ring of found blocks. */
enum { FOUND_SLOTS = 8 };

/* i32 constant at the builder's place. */
MlirValue role_number(struct roles *r, int value);
/* A banner in the PTX in front of the op. */
void role_name_section(struct roles *r, MlirOperation op, const char *text);

/* The image of an old value; the value itself where it has none. */
MlirValue role_image(const struct scope *scope, MlirValue value);
/* Copies an op of the old kernel to the builder's place. */
void role_clone(struct roles *r, struct scope *scope, MlirOperation op);
/* The image of a value of the loop body, what it needs being copied first. */
MlirValue role_slice(struct roles *r, struct scope *scope, MlirValue value);
/* The position behind `ring` in a ring of `stages`. */
struct ring role_ring_next(struct roles *r, struct ring ring, int stages);
/* A position among the values that a loop carries, stage and parity, and the
 * one behind it in its place. */
struct ring role_ring_at(const MlirValue position[2]);
void role_ring_advance(struct roles *r, MlirValue position[2], int stages);
/* Number of the Q slot of a consumer: `stage` is that of the ring of Q. */
MlirValue role_q_slot(struct roles *r, MlirValue stage, MlirValue consumer);
/* Consumers: waits for its turn at issuing products, and passes it on; nothing
 * without attn.pingpong. */
void role_take_turn(struct roles *r);
void role_pass_turn(struct roles *r);
/* Waits until the consumers gave the slot back. */
void role_wait_empty(struct roles *r, MlirValue empty, struct ring ring);

/* The loop of a persistent CTA over its tiles, in one of two orders: every
 * ctas-th tile, or tiles drawn from a counter (pipeline-sm90-tiles.c).  One
 * role draws and names the tiles to the others: the search, where there is
 * none the producer. */
struct tile_loop {
    struct ir_for counted;
    struct ir_while drawn;
    size_t count;               /* values carried for the role */
    MlirValue tile;             /* the tile's number, in the body */
    MlirValue next;             /* who draws: the tile after it */
    MlirValue words[MAX_WORDS]; /* others: number and coordinates */
    struct ring ring;           /* who draws: of the tile's record; others: of
                                   the next one */
};

/* Who does not draw: the first tile of the CTA, at the builder's place.  It may
 * be past the end, like the next: then role_tiles_exists is false. */
struct tile_loop role_tiles_first(struct roles *r);
/* The tile behind `at`, to be taken once in each pass of the loop. */
struct tile_loop role_tiles_next(struct roles *r, const struct tile_loop *at);
/* i1: is there such a tile? */
MlirValue role_tiles_exists(struct roles *r, const struct tile_loop *at);
/* Starts the loop with values that the body carries on: role_tiles_arg.
 * `first`: role_tiles_first, NULL for the role that draws. */
struct tile_loop role_tiles_begin(struct roles *r,
                                  const struct tile_loop *first,
                                  const MlirValue *inits, size_t count,
                                  const char *section);
/* Carried value `i`, in the body. */
MlirValue role_tiles_arg(const struct tile_loop *loop, size_t i);
/* The same behind role_tiles_end. */
MlirValue role_tiles_result(const struct tile_loop *loop, size_t i);
/* Outside the consumers, in front of the loop: copies quotients of what all
 * tiles share, and what they need. */
void role_tiles_fix_quotients(struct roles *r);
/* What stands in front of the key loop, for the tile of the loop.  `leads`: in
 * the role that draws. */
struct scope role_tiles_head(struct roles *r, const struct tile_loop *loop,
                             MlirValue consumer, bool leads);
/* `next`: role_tiles_next, NULL for the role that draws. */
void role_tiles_end(struct roles *r, struct tile_loop *loop,
                    const struct tile_loop *next, const MlirValue *yields);

/* Consumers: K and V at the same stage and parity, the first two results of the
 * op. */
void role_set_rings(MlirValue rings[4], MlirOperation op);
/* Consumers: one pass of the key loop without this consumer.  K and V lie in
 * the same stage of their rings, no product being in flight: stage and parity,
 * replaced.  A turn is taken and passed on, so that all consumers take equally
 * many. */
void role_skip_block(struct roles *r, MlirValue position[2], bool takes_turn);
/* Passes begin <= i < end of a counted loop; rings: stage and parity of K, then
 * those of V, which are the same. */
void role_skip_blocks(struct roles *r, MlirValue begin, MlirValue end,
                      MlirValue rings[4]);
/* A whole tile of `count` passes without it. */
void role_skip_tile(struct roles *r, MlirValue count, MlirValue rings[4]);
/* mbarriers behind what shared memory holds already. */
MlirValue role_mbarriers(struct roles *r, const char *name, int count,
                         int arrivals);
/* i32 words there, 16-byte aligned; memref<count x i32>. */
MlirValue role_words(struct roles *r, const char *name, int count);
/* Index of a word of slot `slot` of a ring whose slots have `width` words. */
MlirValue role_word_index(struct roles *r, MlirValue slot, int width, int word);
/* Lists: the ring of found blocks behind what shared memory holds. */
void role_found_ring(struct roles *r);
/* The producer: the next record of the search, waited for; its slot is given
 * back.  Replaces the position, stage and parity. */
struct listed role_next_found(struct roles *r, MlirValue position[2]);
/* The programs of the producer warpgroup, at the builder's place: warp 0 copies
 * and, for lists, warp 1 searches. */
void role_producer(struct roles *r);
/* Of the searching warp alone. */
void role_search(struct roles *r);
/* A consumer's; `warpgroup`: of the CTA, from 1. */
void role_consumer(struct roles *r, MlirValue warpgroup);

#endif
