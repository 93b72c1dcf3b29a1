/* Modules from text: --run-pass= and PTX from a module (see compile.h). */
#include <string.h>

#include "backends/ptx/ptx.h"
#include "compiler/compile.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "passes/pass.h"
#include "support/vec.h"

/* MLIR's messages about a text that we did not write are the user's to read. */
static void report_text(struct diag_sink *diags, const char *name,
                        const char *what, const struct strbuf *messages) {
    diag_error(diags, SOURCE_NOWHERE, "%s: %s", diag_name(diags, name), what);
    const char *line = strbuf_text(messages);
    while (*line) {
        size_t length = strcspn(line, "\n");
        if (length)
            diag_note(diags, SOURCE_NOWHERE, "%.*s",
                      (int)(length > 300 ? 300 : length), line);
        line += length + (line[length] == '\n');
    }
}

/* Reads and verifies a module; null after errors. */
static MlirModule read_module(MlirContext context, const char *name,
                              const char *text, size_t length,
                              struct diag_sink *diags) {
    struct strbuf messages;
    strbuf_init(&messages, NULL);
    MlirDiagnosticHandlerID handler =
        ir_diagnostics_capture(context, &messages);
    MlirModule module = ir_parse(context, text, length);
    if (mlirModuleIsNull(module)) {
        report_text(diags, name, "not a module in MLIR's text form", &messages);
    } else if (!ir_verify(mlirModuleGetOperation(module))) {
        report_text(diags, name, "the module does not verify", &messages);
        mlirModuleDestroy(module);
        module = (MlirModule){NULL};
    }
    ir_diagnostics_detach(context, handler);
    strbuf_destroy(&messages);
    return module;
}

/* The steps of a comma-separated list of pass names; NULL after an error. */
static struct pass_step *parse_passes(struct arena *arena, const char *list,
                                      struct diag_sink *diags) {
    VEC(struct pass_step) steps = {0};
    while (*list) {
        size_t length = strcspn(list, ",");
        const char *name = arena_strndup(arena, list, length);
        const struct pass *pass = pass_find(name);
        if (!pass) {
            diag_error(diags, SOURCE_NOWHERE, "no pass is called '%s'",
                       diag_name(diags, name));
            return NULL;
        }
        vec_push(arena, &steps, (struct pass_step){pass, true});
        list += length + (list[length] == ',');
    }
    vec_push(arena, &steps, (struct pass_step){NULL, false});
    return steps.data;
}

bool compile_run_passes(const char *name, const char *text, size_t length,
                        const char *passes, struct diag_sink *diags,
                        struct strbuf *out_text) {
    struct arena *scratch = arena_create();
    MlirContext context = ir_context_create();
    MlirModule module = {NULL};
    const struct pass_step *steps = parse_passes(scratch, passes, diags);
    if (steps)
        module = read_module(context, name, text, length, diags);
    bool ok = !mlirModuleIsNull(module);
    if (ok) {
        const struct pass_options options = {.verify_each = true};
        MlirOperation top = mlirModuleGetOperation(module);
        ok = pass_run(steps, &options, top, diags);
        if (ok)
            ir_print(top, false, out_text);
        mlirModuleDestroy(module);
    }
    mlirContextDestroy(context);
    arena_destroy(scratch);
    return ok;
}

/* Name of the first kernel that computes an attention, for the head comment. */
static const char *main_kernel(MlirOperation module, struct arena *scratch) {
    size_t count = 0;
    MlirOperation *funcs = ir_collect(scratch, module, "func.func", &count);
    for (size_t i = 0; i < count; i++) {
        const char *kind = ir_kernel_kind(funcs[i]);
        if (kind && strcmp(kind, "main") == 0)
            return ir_func_name(funcs[i]);
    }
    return NULL;
}

bool compile_emit_ptx(struct arena *arena, const char *name, const char *text,
                      size_t length, struct diag_sink *diags,
                      struct strbuf *out_ptx) {
    MlirContext context = ir_context_create();
    MlirModule module = read_module(context, name, text, length, diags);
    bool ok = !mlirModuleIsNull(module);
    if (ok) {
        MlirOperation top = mlirModuleGetOperation(module);
        const char *target = ir_module_target(top);
        const struct ptx_options options = {
            .target = ptx_target_find(target ? target : compile_target(0)),
            .attention = main_kernel(top, arena),
            .producer = "attnc " ATTN_VERSION};
        if (!options.target)
            diag_error(diags, SOURCE_NOWHERE,
                       "%s: no code generation for target '%s'", name, target);
        ok = options.target &&
             ptx_emit_module(arena, module, &options, out_ptx, NULL, diags);
        mlirModuleDestroy(module);
    }
    mlirContextDestroy(context);
    return ok;
}
