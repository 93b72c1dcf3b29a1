/* Constant arithmetic of the language: one operation at a time, in i32 and f32,
 * as language.md says.  Values are bits: i32, f32 or 0/1. */
#ifndef ATTN_FRONTEND_FOLD_H
#define ATTN_FRONTEND_FOLD_H

#include "frontend/ast.h"

enum fold_status {
    FOLD_OK,
    FOLD_OVERFLOW,     /* i32 + - * / abs, unary -; *out is the wrapped value */
    FOLD_ZERO_DIVISOR, /* i32 / or % by zero; *out is 0 */
};

/* `type` is the operand type.  AND_THEN and OR_ELSE take both sides. */
enum fold_status fold_unary(enum unary_op op, enum value_type type, uint32_t a,
                            uint32_t *out);

/* The same for two operands. */
enum fold_status fold_binary(enum binary_op op, enum value_type type,
                             uint32_t a, uint32_t b, uint32_t *out);

/* `type` is the type of arguments and result; `args`: as many as it takes. */
enum fold_status fold_builtin(enum builtin builtin, enum value_type type,
                              const uint32_t *args, uint32_t *out);

/* Conversion between any two types: f32 to i32 truncates and saturates. */
uint32_t fold_cast(enum value_type from, enum value_type to, uint32_t bits);

/* Bits as a value. */
float fold_float(uint32_t bits);

/* Bits of a value; NaN becomes 0x7fc00000. */
uint32_t fold_bits(float value);

#endif
