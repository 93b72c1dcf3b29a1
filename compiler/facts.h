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
bool facts_has_element_reads(const struct attention *attention);

/* True when the attention has a line of that kind. */
bool facts_has_item(const struct attention *attention, enum item_kind kind);

/* True when the kept keys of a row need not be one range: the mask (or a let)
 * reads a tensor, divides, or joins conditions by `or`. */
bool facts_has_sparse_mask(const struct attention *attention);

/* True when a mask line bounds kv from below by something that moves with q, as
 * a sliding window does. */
bool facts_has_window(const struct attention *attention);

/* True when a mask line depends on the query head. */
bool facts_mask_reads_head(const struct attention *attention);
/* Does the mask read words with the bits of several keys of a row: [.. q .. kv
 * / 32 ..]? */
bool facts_reads_words(const struct attention *attention);

/* True when a position is divided by what is not known before the launch, which
 * takes a sequence of instructions and registers. */
bool facts_has_division(const struct attention *attention);

/* The CUDA C++ files behind the extern functions that the attention calls, each
 * once. */
const struct source_file *const *
facts_extern_files(struct arena *arena, const struct attention *attention,
                   size_t *out_count);

#endif
