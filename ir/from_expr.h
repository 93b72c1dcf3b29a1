/* Expressions of the language as arith, math and attn.read ops (used by
 * from_spec). */
#ifndef ATTN_IR_FROM_EXPR_H
#define ATTN_IR_FROM_EXPR_H

#include "frontend/ast.h"
#include "ir/build.h"

/* A lowered value.  f32 ops on a value that depends on s may contract. */
struct ir_lowered {
    MlirValue value;
    bool uses_score;
};

/* What names stand for while expressions are lowered into one function. */
struct ir_scope {
    struct ir_builder *b;
    const struct source_set *sources;
    MlirOperation module; /* extern functions are declared here */
    MlirValue indices[INDEX_COUNT];
    MlirValue sizes[SIZE_COUNT];
    const MlirValue *params;  /* by param.number; null where unused */
    const MlirValue *tensors; /* by tensor.number */
    struct ir_lowered score;  /* s as it is now; null in masks */
    struct ir_lowered *lets;  /* by let.number; null value: not lowered yet */
    const struct ir_lowered *fn_args; /* inside a fn body */
};

/* bool as i1, i32 or f32.  (A bool parameter has 32 bits in the kernel's
 * parameter list all the same.) */
MlirType ir_type_of_value(MlirContext context, enum value_type type);

/* Appends the ops of `expr` at the builder's place, each with its own
 * location. */
struct ir_lowered ir_lower_expr(struct ir_scope *scope,
                                const struct expr *expr);

#endif
