/* Equal elements of a run: see isel_number.c. */
#ifndef ATTN_BACKENDS_PTX_ISEL_NUMBER_H
#define ATTN_BACKENDS_PTX_ISEL_NUMBER_H

#include "backends/ptx/isel.h"

enum { NUMBER_OPERANDS = 4 };

/* What an element is: an operation (any address that stands for it, not NULL)
 * on operands; missing ones are zero. */
struct number_key {
    const void *op;
    struct ptx_operand in[NUMBER_OPERANDS];
};

/* A table without entries. */
struct numbering *numbering_create(struct arena *arena);

/* The result of an equal element, or an operand of no kind. */
struct ptx_operand numbering_find(struct numbering *numbers,
                                  const struct number_key *key);
/* Enters the result of an element. */
void numbering_add(struct numbering *numbers, const struct number_key *key,
                   struct ptx_operand result);

/* x + y or x - y (i32) as "register + constant"; false when x is a constant. */
bool numbering_affine(struct isel *is, struct numbering *numbers, bool subtract,
                      struct ptx_operand x, struct ptx_operand y,
                      struct ptx_operand *out_result);

/* f32(base + c) as f32(base) + c, f32(base) being converted once; false for
 * other operands. The same bits while |base + c| <= 2^24, where f32 holds every
 * whole number. */
bool numbering_convert(struct isel *is, struct numbering *numbers,
                       struct ptx_operand x, struct ptx_operand *out_result);

/* One side of a comparison: an affine operand with its range. */
struct compared {
    struct ptx_operand value; /* RANGE_ANY: a register or a constant */
    enum position_range range;
};

/* Rewrites "register + constant" against something else so that the constants
 * are on one side: one subtraction for all elements with these registers in
 * place of an addition for each.  False: nothing to gain. */
bool numbering_compare(struct isel *is, struct numbering *numbers,
                       const struct compared sides[2], int64_t *predicate,
                       struct ptx_operand out_operands[2]);

/* "register + constant" added up, once; other operands as they are. */
struct ptx_operand numbering_plain(struct isel *is, struct numbering *numbers,
                                   struct ptx_operand operand);

#endif
