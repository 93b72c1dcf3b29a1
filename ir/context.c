/* The MLIR context of a compilation: see context.h. */
#include "ir/context.h"

#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/Diagnostics.h>
#include <mlir-c/Dialect/Arith.h>
#include <mlir-c/Dialect/Func.h>
#include <mlir-c/Dialect/GPU.h>
#include <mlir-c/Dialect/IRDL.h>
#include <mlir-c/Dialect/Math.h>
#include <mlir-c/Dialect/MemRef.h>
#include <mlir-c/Dialect/SCF.h>
#include <mlir-c/Dialect/Vector.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/dialect_irdl.h"

MlirContext ir_context_create(void) {
    MlirContext context = mlirContextCreateWithThreading(false);
    const MlirDialectHandle handles[] = {
        mlirGetDialectHandle__arith__(),  mlirGetDialectHandle__func__(),
        mlirGetDialectHandle__gpu__(),    mlirGetDialectHandle__math__(),
        mlirGetDialectHandle__memref__(), mlirGetDialectHandle__scf__(),
        mlirGetDialectHandle__vector__(), mlirGetDialectHandle__irdl__(),
    };
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        mlirDialectHandleLoadDialect(handles[i], context);
    MlirModule dialect =
        ir_parse(context, ir_dialect_irdl, sizeof ir_dialect_irdl - 1);
    if (mlirModuleIsNull(dialect) ||
        mlirLogicalResultIsFailure(mlirLoadIRDLDialects(dialect))) {
        fprintf(
            stderr,
            "attnc: internal error: the embedded attn dialect does not load\n");
        abort();
    }
    mlirModuleDestroy(dialect);
    return context;
}

/* ---- Diagnostics --------------------------------------------------------- */

/* MlirStringCallback that appends to a strbuf. */
static void append_text(MlirStringRef text, void *data) {
    strbuf_append_bytes(data, text.data, text.length);
}

/* The byte range of a location in a source set, nowhere when it has none. */
static struct source_range range_of(const struct source_set *sources,
                                    MlirLocation location) {
    const char *path;
    unsigned line, column;
    if (!ir_location_place(location, &path, &line, &column) || line == 0)
        return SOURCE_NOWHERE;
    const struct source_file *file;
    for (uint32_t id = 1; (file = source_file_get(sources, id)) != NULL; id++) {
        if (strcmp(file->path, path) != 0 || line > file->line_count)
            continue;
        uint32_t begin =
            file->line_starts[line - 1] + (column > 0 ? column - 1 : 0);
        if (begin > file->length)
            begin = file->length;
        uint32_t end = begin < file->length ? begin + 1 : begin;
        return (struct source_range){file->id, begin, end};
    }
    return SOURCE_NOWHERE;
}

/* One MLIR diagnostic as an error, or as a note to the latest one. */
static void report(struct diag_sink *diags, MlirDiagnostic diagnostic,
                   bool note) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    mlirDiagnosticPrint(diagnostic, append_text, &text);
    struct source_range where =
        range_of(diag_sources(diags), mlirDiagnosticGetLocation(diagnostic));
    if (note)
        diag_note(diags, where, "%s", strbuf_text(&text));
    else
        diag_error(diags, where, "%s", strbuf_text(&text));
    strbuf_destroy(&text);
}

/* Remarks and warnings of MLIR are about its own passes: nothing for the
 * author. */
static MlirLogicalResult to_sink(MlirDiagnostic diagnostic, void *data) {
    MlirDiagnosticSeverity severity = mlirDiagnosticGetSeverity(diagnostic);
    if (severity != MlirDiagnosticError)
        return mlirLogicalResultSuccess();
    report(data, diagnostic, false);
    for (intptr_t i = 0; i < mlirDiagnosticGetNumNotes(diagnostic); i++)
        report(data, mlirDiagnosticGetNote(diagnostic, i), true);
    return mlirLogicalResultSuccess();
}

/* "loc(…): message", for tests and internal errors. */
static MlirLogicalResult to_text(MlirDiagnostic diagnostic, void *data) {
    struct strbuf *text = data;
    mlirLocationPrint(mlirDiagnosticGetLocation(diagnostic), append_text, text);
    strbuf_append(text, ": ");
    mlirDiagnosticPrint(diagnostic, append_text, text);
    strbuf_append_char(text, '\n');
    return mlirLogicalResultSuccess();
}

MlirDiagnosticHandlerID ir_diagnostics_attach(MlirContext context,
                                              struct diag_sink *diags) {
    return mlirContextAttachDiagnosticHandler(context, to_sink, diags, NULL);
}

MlirDiagnosticHandlerID ir_diagnostics_capture(MlirContext context,
                                               struct strbuf *text) {
    return mlirContextAttachDiagnosticHandler(context, to_text, text, NULL);
}

void ir_diagnostics_detach(MlirContext context, MlirDiagnosticHandlerID id) {
    mlirContextDetachDiagnosticHandler(context, id);
}

/* ---- Locations ----------------------------------------------------------- */

MlirLocation ir_location(MlirContext context, const char *file, unsigned line,
                         unsigned column) {
    return mlirLocationFileLineColGet(context, ir_ref(file), line, column);
}

MlirLocation ir_location_of(MlirContext context,
                            const struct source_set *sources,
                            struct source_range where) {
    struct source_place place = source_locate(sources, where);
    if (!place.file)
        return mlirLocationUnknownGet(context);
    return ir_location(context, place.file->path, place.line, place.column);
}

bool ir_location_place(MlirLocation location, const char **out_file,
                       unsigned *out_line, unsigned *out_column) {
    if (mlirLocationIsAFileLineColRange(location)) {
        MlirIdentifier name = mlirLocationFileLineColRangeGetFilename(location);
        *out_file = mlirIdentifierStr(name).data;
        *out_line =
            (unsigned)mlirLocationFileLineColRangeGetStartLine(location);
        *out_column =
            (unsigned)mlirLocationFileLineColRangeGetStartColumn(location);
        return true;
    }
    if (mlirLocationIsACallSite(location))
        return ir_location_place(mlirLocationCallSiteGetCallee(location),
                                 out_file, out_line, out_column);
    if (mlirLocationIsAName(location))
        return ir_location_place(mlirLocationNameGetChildLoc(location),
                                 out_file, out_line, out_column);
    if (!mlirLocationIsAFused(location))
        return false;
    enum { MAX_FUSED = 16 };
    MlirLocation parts[MAX_FUSED];
    unsigned count = mlirLocationFusedGetNumLocations(location);
    if (count > MAX_FUSED)
        return false;
    mlirLocationFusedGetLocations(location, parts);
    for (unsigned i = 0; i < count; i++)
        if (ir_location_place(parts[i], out_file, out_line, out_column))
            return true;
    return false;
}

/* ---- Text ---------------------------------------------------------------- */

void ir_print(MlirOperation op, bool locations, struct strbuf *out) {
    MlirOpPrintingFlags flags = mlirOpPrintingFlagsCreate();
    if (locations)
        mlirOpPrintingFlagsEnableDebugInfo(flags, true, false);
    mlirOperationPrintWithFlags(op, flags, append_text, out);
    mlirOpPrintingFlagsDestroy(flags);
    strbuf_append_char(out, '\n');
}

MlirModule ir_parse(MlirContext context, const char *text, size_t length) {
    /* The parser needs the byte after the text to be NUL. */
    struct strbuf copy;
    strbuf_init(&copy, NULL);
    strbuf_append_bytes(&copy, text, length);
    MlirStringRef ref = mlirStringRefCreate(strbuf_text(&copy), length);
    MlirModule module = mlirModuleCreateParse(context, ref);
    strbuf_destroy(&copy);
    return module;
}

_Noreturn void ir_ice(MlirOperation op, const char *what) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    if (!mlirOperationIsNull(op)) {
        MlirOpPrintingFlags flags = mlirOpPrintingFlagsCreate();
        mlirOpPrintingFlagsEnableDebugInfo(flags, true, false);
        mlirOpPrintingFlagsUseLocalScope(flags);
        mlirOpPrintingFlagsSkipRegions(flags);
        mlirOperationPrintWithFlags(op, flags, append_text, &text);
        mlirOpPrintingFlagsDestroy(flags);
    }
    fprintf(stderr, "attnc: internal error: %s\n  %s\n", what,
            strbuf_text(&text));
    abort();
}
