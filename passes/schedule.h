/* The planner: how one attention is cut into tiles, stages and warps on a
 * target.
 *
 * Starts from what the author pinned (`schedule { }`, --schedule) and fills in
 * the rest from an account of registers and shared memory.  Knows no MLIR;
 * `tile` and `pipeline` read the decisions from the function's attributes.
 */
#ifndef ATTN_PASSES_SCHEDULE_H
#define ATTN_PASSES_SCHEDULE_H

#include <stdbool.h>

#include "frontend/ast.h"
#include "support/arena.h"
#include "support/diag.h"

/* What a schedule is for. */
struct schedule_problem {
    const char *target;          /* "sm_80" */
    int head_dim_qk, head_dim_v; /* 8 to 256 in steps of 8 */
    enum scalar_type dtype;      /* two bytes an element */
    bool element_reads; /* scores or masks read a tensor at [.. q .. kv ..] */
    bool calls_extern;             /* CUDA device functions are called */
    bool has_score;                /* the scores are changed */
    bool has_mask;                 /* pairs are masked */
    bool has_sparse_mask; /* the kept keys of a row are not one range */
    bool has_window;      /* its first key moves with the row */
    bool has_division;    /* positions are divided by a launch-time value */
    int key_quotients;    /* such quotients and remainders of keys, in masks */
    bool score_reads_keys; /* the scores read a tensor at [kv], not at a pair */
    bool keeps_scores;     /* two tiles of scores are live: s, and its tanh */
    int group;            /* query heads of a KV head, 0: any */
    bool mask_reads_head; /* which pairs attend differs from head to head */
    bool reads_words;     /* the mask reads words for several keys of a row */
    bool reads_positions; /* the mask reads a tensor at [q] or [kv] */
    bool reads_row_blocks; /* the mask reads a tensor at [q / constant ..] */
};

struct schedule_plan {
    const char *target;
    int tile_m, tile_n; /* queries of a CTA, keys of a block */
    /* Tile of a second kernel, for calls whose tiles it shares out better among
     * the multiprocessors; 0: there is none. */
    int second_m, second_n;
    /* Packed GQA: a further kernel whose tile holds the rows of so many query
     * heads of one KV head, for calls with few queries; 0: there is none. */
    int pack_gqa;
    int stages;         /* key blocks in shared memory, 1: K and V take turns */
    int warps;          /* of a CTA; rows are split over them */
    int consumers;    /* warpgroups of 64 rows beside a producer; 0: no roles */
    bool pingpong;    /* consumers take turns at issuing products */
    int q_stages;     /* tiles of Q in shared memory at once, 1 to 3 */
    bool q_registers; /* Q stays in registers; else read from shared memory per
                         block */
    float rescale_threshold; /* tau of `rescale` in log2 units, 0: rescale every
                                block */
    float exp_poly;       /* share of the exp2 of P on the FMA pipes, 0 to 1 */
    bool dynamic;         /* tiles are drawn from a counter, in the same order */
    bool longest_first; /* the last query tile (most keys under a causal mask)
                           starts first */
    /* The account, for reports and messages. */
    int shared_q, shared_k, shared_v; /* bytes; K and V of one stage */
    int shared_list; /* bytes of the key-block list, reserved whether it is used
                        or not */
    int shared_bytes; /* in all: q_stages * q + stages * (k + v) + list */
    int registers_acc, registers_s,
        registers_q;     /* accumulator, scores and Q of a thread */
    int registers_other; /* addresses, running values, operand fragments */
    int registers;       /* estimate in all */
    int ctas_per_sm;     /* that fit by shared memory and registers */
};

/* Elements of a row of Q or K in shared memory: whole 16-element steps of the
 * MMA. */
int schedule_padded_dim(int head_dim);

/* Plans.  Keys given in `pinned` (NULL: none) are kept or refused, never
 * changed. False after errors at the places of the keys; each has the
 * arithmetic and, where there is one, a note with the nearest schedule that
 * fits. */
bool schedule_resolve(const struct schedule_problem *problem,
                      const struct schedule *pinned, struct diag_sink *diags,
                      struct schedule_plan *out_plan);

/* The kernels of a plan. */
enum schedule_variant {
    VARIANT_FIRST,  /* the plan itself */
    VARIANT_SECOND, /* where second_m > 0 */
    VARIANT_PACKED, /* where pack_gqa > 0 */
};

/* The plan of the second or the packed kernel of `plan`: its tile, and the
 * order, threshold and exp_poly of the first.  False after an error. */
bool schedule_variant(const struct schedule_problem *problem,
                      const struct schedule_plan *plan,
                      enum schedule_variant variant, struct diag_sink *diags,
                      struct schedule_plan *out_plan);

enum { SCHEDULE_WHEN_WORDS = 72 };

/* The condition under which a kernel of `plan` is launched, 0 or 1, as postfix
 * words over the sizes (docs/runtime.md); it holds for exactly one of them.
 * `packed_m`: query rows of the packed kernel's tile, where there is one.
 * Returns the number of words, 0 where there is only one kernel. */
size_t schedule_when(const struct schedule_problem *problem,
                     const struct schedule_plan *plan,
                     enum schedule_variant variant, int packed_m,
                     struct arena *arena,
                     const char *out_words[SCHEDULE_WHEN_WORDS]);

/* The plan's `order` as schedule { } spells it. */
const char *schedule_order(const struct schedule_plan *plan);

/* The plan as text of `schedule { }`: "tile 128, 64; stages 2; order lpt". */
void schedule_print(const struct schedule_plan *plan, struct strbuf *out);

#endif
