/* Errors of the back end at the place of an operation. */
#ifndef ATTN_BACKENDS_PTX_PLACE_H
#define ATTN_BACKENDS_PTX_PLACE_H

#include <mlir-c/IR.h>

#include "support/diag.h"

/* Reports `message` at the op's location: with source line and caret when the
 * file is in the sink's source set, else with "file:line:col: " before the
 * message. */
void ptx_error_at(struct diag_sink *sink, MlirOperation op,
                  const char *message);

#endif
