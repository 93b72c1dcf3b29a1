/* Random valid specs, and smaller variants of one that fails.
 *
 * Same seed, same spec.  Only specs whose meaning language.md settles are made:
 *   - divisors are constants or max(x, 1);
 *   - indices of captured tensors are in range (clamp, %) or their read is guarded,
 *     but for reads on pairs that a mask line removes;
 *   - nothing that jumps (comparison, floor, i32(), %) is applied to what depends on s
 *     or went through a built-in function of limited accuracy;
 *   - sizes and slopes of scores are tracked and bounded, so that f32 rounding stays
 *     far below the bounds of the comparison.
 */
#ifndef ATTN_TESTS_RANDOM_GEN_H
#define ATTN_TESTS_RANDOM_GEN_H

#include <stdbool.h>

#include "frontend/ast.h"
#include "support/arena.h"
#include "support/strbuf.h"
#include "tests/e2e/rng.h"

/* An expression as text with holes: "$0", "$1", "$2" in `form` are the arguments. */
struct gen_node {
    const char *form;
    enum value_type type;
    int arg_count;
    const struct gen_node *args[3];
    bool pinned;   /* a guard of something around it: not to be replaced */
    bool constant; /* made of literals and consts only */
    double size;   /* f32 in a score: bound of the absolute value */
    double slope;  /* f32 in a score: bound of the derivative by q.k */
};

enum { GEN_MAX_ITEMS = 24, GEN_MAX_FNS = 3 };

/* A line of the attention: `head` + expression + ";", or `head` alone. */
struct gen_item {
    const char *head; /* "mask ", "let x1 = ", "tensor t0: i32[kv_len];" */
    const struct gen_node *value; /* NULL: none */
    bool kept; /* other lines need it: not to be dropped by itself */
};

/* One spec with the sizes that it is run at. */
struct gen_spec {
    const char *dtype;
    int head_dim_qk, head_dim_v;
    int group; /* 0: any */
    struct gen_item items[GEN_MAX_ITEMS];
    int item_count;
    const char *fns[GEN_MAX_FNS]; /* whole lines before the attention */
    int fn_count;
    const char *schedule; /* whole line; NULL: none */
    int64_t sizes[SIZE_COUNT];
    uint64_t data_seed;
    bool bshd; /* memory order of Q, K, V, O */
};

/* The spec of a seed. */
struct gen_spec *gen_spec_create(struct arena *arena, uint64_t seed);

/* Its .attn text. */
void gen_spec_print(const struct gen_spec *spec, struct strbuf *out);

/* Smaller variant number `index`; NULL behind the last.  A variant may be no different,
 * or fail to check (a name whose line is gone): callers skip those. */
struct gen_spec *gen_spec_shrink(struct arena *arena, const struct gen_spec *spec, size_t index);

/* ---- Expressions (gen_expr.c) -------------------------------------------- */

enum { GEN_MAX_LEAVES = 48, GEN_MAX_TABLES = 8 };

/* A captured tensor that expressions may read. */
struct gen_table {
    const char *name;
    enum scalar_type type;
    int rank;
    const char *extents[3]; /* "kv_len", "24" */
    const char *natural[3]; /* an index that is in range by itself, NULL if none */
};

/* What expressions of one place may name. */
struct gen_scope {
    struct arena *arena;
    struct rng *rng;
    const struct gen_node *ints[GEN_MAX_LEAVES];
    int int_count;
    const struct gen_node *bools[GEN_MAX_LEAVES];
    int bool_count;
    const struct gen_node *exact[GEN_MAX_LEAVES]; /* f32 without rounding differences */
    int exact_count;
    const struct gen_node *bias[GEN_MAX_LEAVES];  /* bounded f32 independent of s */
    int bias_count;
    const struct gen_node *scores[GEN_MAX_LEAVES]; /* f32 that depend on s, s first */
    int score_count;
    const char *int_fns[GEN_MAX_FNS], *bool_fns[GEN_MAX_FNS]; /* forms "f0($0, $1)" */
    int int_fn_count, bool_fn_count;
    struct gen_table tables[GEN_MAX_TABLES];
    int table_count;
};

/* A name or other text without arguments; `size` bounds an f32. */
const struct gen_node *gen_leaf(struct gen_scope *scope, enum value_type type, const char *text,
                                double size);
/* A node with up to three arguments (NULL: fewer). */
const struct gen_node *gen_node3(struct gen_scope *scope, enum value_type type, const char *form,
                                 const struct gen_node *a, const struct gen_node *b,
                                 const struct gen_node *c);

/* A random i32 of at most this depth; all of it is specified for any value. */
const struct gen_node *gen_int(struct gen_scope *scope, int depth);
/* A random bool. */
const struct gen_node *gen_bool(struct gen_scope *scope, int depth);
/* A random f32 that every machine computes to the same bits. */
const struct gen_node *gen_exact(struct gen_scope *scope, int depth);
/* A random bounded f32 that does not depend on s. */
const struct gen_node *gen_bias(struct gen_scope *scope, int depth);
/* A random f32 that depends on s, of bounded size and slope. */
const struct gen_node *gen_score(struct gen_scope *scope, int depth);

/* A mask as people write them, with random parts. */
const struct gen_node *gen_mask(struct gen_scope *scope, int depth);

/* Appends the text of an expression. */
void gen_print(const struct gen_node *node, struct strbuf *out);

#endif
