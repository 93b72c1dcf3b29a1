/* From a checked spec to the first module: stage `attn`.
 *
 * One function @NAME with an attn.attention op, and scalar functions @NAME.mask
 * and
 * @NAME.score where the spec has such lines.  Nothing is decided here: tiles,
 * warps and targets come later.
 */
#ifndef ATTN_IR_FROM_SPEC_H
#define ATTN_IR_FROM_SPEC_H

#include "frontend/ast.h"
#include "ir/build.h"

/* The module of one attention; the caller ends it with mlirModuleDestroy.
 * `arena` is scratch memory.  Locations are resolved in `sources`. */
MlirModule ir_from_spec(MlirContext context, struct arena *arena,
                        const struct source_set *sources,
                        const struct attention *attention);

#endif
