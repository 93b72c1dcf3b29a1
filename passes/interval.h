/* Abstract values over a tile of (query, key) pairs, as IR code.
 *
 * The value of a scalar expression over all pairs of a tile is described by an
 * interval whose bounds are computed at run time (Cousot and Cousot's interval domain,
 * with code instead of numbers) next to facts known at compile time.  Rules:
 *
 * - i32: every pair's value is in [lo, hi].  A bound that would wrap makes the whole
 *   interval the type's range at run time; it never saturates.
 * - f32: every pair's value that is no NaN is in [lo, hi]; `nan` tells whether some may
 *   be.  Bounds are no NaN unless the value is a point.  Arithmetic on bounds is the
 *   arithmetic of the expression: rounding to nearest is monotone.
 * - bool: lo is "all pairs", hi is "some pair may".
 * - A point (lo and hi are one SSA value) is the exact value of every pair.
 */
#ifndef ATTN_PASSES_INTERVAL_H
#define ATTN_PASSES_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/build.h"

enum abs_kind { ABS_NONE, ABS_BOOL, ABS_I32, ABS_F32 };

struct abs_value {
    enum abs_kind kind; /* ABS_NONE: a tensor or the like; lo is the value */
    MlirValue lo, hi;
    /* i32, at compile time */
    int64_t min, max; /* bounds of lo and hi */
    int64_t width; /* hi - lo at most; while `loose`, only if nothing wrapped */
    int64_t align; /* lo is a multiple (unless loose); >= 1 */
    bool loose;
    /* f32 */
    MlirValue nan;    /* i1; null: never (or a point: see abs_nan) */
    double magnitude; /* |value| at most, INFINITY: not known */
};

/* The exact value of every pair; facts are those of the type. */
struct abs_value abs_point(MlirValue value);

/* An i32 point or interval with static bounds; width from them, align 1. */
struct abs_value abs_range(MlirValue lo, MlirValue hi, int64_t min,
                           int64_t max);

/* A bool from "all" and "some". */
struct abs_value abs_bool(MlirValue all, MlirValue some);

/* An f32 interval; `nan` null: never NaN. */
struct abs_value abs_floats(MlirValue lo, MlirValue hi, MlirValue nan,
                            double magnitude);

/* Everything that the type (i1, i32, f32) allows. */
struct abs_value abs_unknown(struct ir_builder *b, MlirType type);

/* True for a single value, the same for all pairs. */
bool abs_is_point(const struct abs_value *value);

/* i1: may some pair's value be NaN? */
MlirValue abs_nan(struct ir_builder *b, const struct abs_value *value);

/* The result of a scalar op with these operands; the op itself is copied when
 * all are points.  Ops without a rule give abs_unknown.  Inserts at the
 * builder's place. */
struct abs_value abs_apply(struct ir_builder *b, MlirOperation op,
                           const struct abs_value *operands, size_t count);

/* The remainder of floor division, x - y*floor(x/y): mask-blocks recognises it
 * in the op sequence, where separate intervals would lose the relation. */
struct abs_value abs_floormod(struct ir_builder *b, const struct abs_value *x,
                              const struct abs_value *y);

/* condition ? x : y, all of one kind. */
struct abs_value abs_select(struct ir_builder *b,
                            const struct abs_value *condition,
                            const struct abs_value *x,
                            const struct abs_value *y);

/* Transfer functions of f32 ops (interval_float.c): abs_apply calls them. */
struct abs_value abs_apply_float(struct ir_builder *b, MlirOperation op,
                                 const char *name,
                                 const struct abs_value *operands,
                                 size_t count);
/* The i1 of arith.cmpf on two f32 intervals. */
struct abs_value abs_compare_floats(struct ir_builder *b,
                                    enum ir_cmpf predicate,
                                    const struct abs_value *x,
                                    const struct abs_value *y);

/* x && y of i1, folding constants. */
MlirValue abs_and(struct ir_builder *b, MlirValue x, MlirValue y);
/* x || y, likewise. */
MlirValue abs_or(struct ir_builder *b, MlirValue x, MlirValue y);
/* !x, likewise. */
MlirValue abs_not(struct ir_builder *b, MlirValue x);
/* condition ? x : y of any scalar type, likewise. */
MlirValue abs_choose(struct ir_builder *b, MlirValue condition, MlirValue x,
                     MlirValue y);
/* The constant true. */
bool abs_is_true(MlirValue x);
/* The constant false. */
bool abs_is_false(MlirValue x);

/* Greatest common divisor of positive numbers. */
int64_t abs_gcd(int64_t a, int64_t b);

/* Saturating i32 sum (for targets of inverse propagation). */
MlirValue abs_add_saturating(struct ir_builder *b, MlirValue x, MlirValue y);
/* Saturating i32 difference. */
MlirValue abs_sub_saturating(struct ir_builder *b, MlirValue x, MlirValue y);

#endif
