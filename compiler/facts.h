/* What the spec alone says about a compiled attention (compiler/ only). */
#ifndef ATTN_COMPILER_FACTS_H
#define ATTN_COMPILER_FACTS_H

#include "frontend/ast.h"
#include "support/kernel_info.h"

/* Name, types, tensors with their extents and parameters of an attention; the
 * back end adds the kernels. */
struct kernel_info *facts_of_attention(struct arena *arena,
                                       const struct attention *attention);

/* True when a score or mask line reads a captured tensor at an index that
 * depends on both the query and the key. */
bool facts_has_element_reads(struct arena *arena,
                             const struct attention *attention);

/* True when the attention has a line of that kind. */
bool facts_has_item(const struct attention *attention, enum item_kind kind);

/* True when the kept keys of a row need not be one range: the mask (or a let)
 * reads a tensor, divides, or joins conditions by `or`. */
bool facts_has_sparse_mask(struct arena *arena,
                           const struct attention *attention);

/* True when a mask line bounds kv from below by something that moves with q, as
 * a sliding window does. */
bool facts_has_window(struct arena *arena, const struct attention *attention);

/* True when a mask line depends on the query head. */
bool facts_mask_reads_head(const struct attention *attention);
/* Does the mask read words with the bits of several keys of a row: [.. q .. kv
 * / 32 ..]? */
bool facts_reads_words(struct arena *arena, const struct attention *attention);
/* Does the mask read a tensor at a query or key position, as document numbers
 * are: doc[q]? */
bool facts_mask_reads_positions(struct arena *arena,
                                const struct attention *attention);
/* Does the mask read a tensor at a block of query positions: keep[q / 128, ..]?
 */
bool facts_mask_reads_row_blocks(struct arena *arena,
                                 const struct attention *attention);

/* Do the scores read a tensor at key positions? */
bool facts_score_reads_keys(struct arena *arena,
                            const struct attention *attention);

/* Does a score line use s beside a tanh?  Its tile stays until the vote on the
 * tanh's arguments is in (passes/fast-math.c). */
bool facts_keeps_scores(struct arena *arena, const struct attention *attention);

/* Quotients and remainders of key positions by what is known at the launch only
 * that the mask takes. */
int facts_mask_key_quotients(struct arena *arena,
                             const struct attention *attention);

/* True when a position is divided by what is not known before the launch, which
 * takes a sequence of instructions and registers. */
bool facts_has_division(struct arena *arena, const struct attention *attention);

/* The CUDA C++ files behind the extern functions that the attention calls, each
 * once. */
const struct source_file *const *
facts_extern_files(struct arena *arena, const struct attention *attention,
                   size_t *out_count);

#endif
