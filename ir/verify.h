/* What MLIR's verifier and IRDL cannot say about our modules: shapes, element
 * types, address spaces, attribute ranges, the arguments of kernels.
 *
 * Run after every pass in tests and at the end of every compilation. */
#ifndef ATTN_IR_VERIFY_H
#define ATTN_IR_VERIFY_H

#include <mlir-c/IR.h>
#include <stdbool.h>

/* MLIR's own verifier, then ours.  Errors go to the context's diagnostic
 * handlers, each at its op and with what was found and expected; false when
 * there is one. */
bool ir_verify(MlirOperation module);

#endif
