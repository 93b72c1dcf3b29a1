/* The MLIR context of a compilation: dialects, diagnostics, text in and out,
 * locations.
 *
 * Only ir/ and passes/ include mlir-c.  One context per compilation, used by
 * one thread; the `attn` dialect is loaded from dialect.irdl.mlir, whose text
 * is part of the binary (build/gen/dialect_irdl.h).
 */
#ifndef ATTN_IR_CONTEXT_H
#define ATTN_IR_CONTEXT_H

#include <mlir-c/Diagnostics.h>
#include <mlir-c/IR.h>
#include <stdbool.h>
#include <stddef.h>

#include "support/diag.h"
#include "support/source.h"
#include "support/strbuf.h"

/* A context with arith, math, scf, vector, memref, gpu, func and attn loaded.
 * The caller ends it with mlirContextDestroy.  Aborts if the embedded dialect
 * does not load: that is a fault of the build. */
MlirContext ir_context_create(void);

/* While attached, MLIR's diagnostics become entries of `diags` at the place of
 * their location (FileLineCol of a file in its source set; else nowhere).
 * Detach with the returned id before `diags` ends. */
MlirDiagnosticHandlerID ir_diagnostics_attach(MlirContext context,
                                              struct diag_sink *diags);

/* While attached, MLIR's diagnostics are appended to `text`, one line each. */
MlirDiagnosticHandlerID ir_diagnostics_capture(MlirContext context,
                                               struct strbuf *text);

/* Ends either kind of handler. */
void ir_diagnostics_detach(MlirContext context, MlirDiagnosticHandlerID id);

/* Location of the first byte of a range; unknown for SOURCE_NOWHERE. */
MlirLocation ir_location_of(MlirContext context,
                            const struct source_set *sources,
                            struct source_range where);

/* FileLineCol location, 1-based line and column. */
MlirLocation ir_location(MlirContext context, const char *file, unsigned line,
                         unsigned column);

/* File, line and column behind a location (the first FileLineCol inside fused,
 * named and call-site locations; for a call site that of the callee).  False:
 * there is none.  `out_file` is borrowed from the context. */
bool ir_location_place(MlirLocation location, const char **out_file,
                       unsigned *out_line, unsigned *out_column);

/* Appends the operation as text that ir_parse reads back; `locations` adds
 * loc(...) to every line. */
void ir_print(MlirOperation op, bool locations, struct strbuf *out);

/* Reads a module; null (after diagnostics) when the text is none.  The caller
 * ends it with mlirModuleDestroy. */
MlirModule ir_parse(MlirContext context, const char *text, size_t length);

/* MlirStringRef of a NUL-terminated text (borrowed). */
static inline MlirStringRef ir_ref(const char *text) {
    return mlirStringRefCreateFromCString(text);
}

/* A fault of ours: prints `what`, the op with its location, and aborts. */
_Noreturn void ir_ice(MlirOperation op, const char *what);

#endif
