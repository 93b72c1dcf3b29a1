/* One PTX module from one IR module: kernels in launch order, head comments,
 * and the facts for the launcher. */
#include <string.h>

#include "backends/ptx/emit.h"
#include "backends/ptx/info.h"
#include "backends/ptx/isel.h"
#include "backends/ptx/place.h"

typedef VEC(MlirOperation) func_list;

/* Kernels of the module: summaries first, each kind in module order. */
static func_list kernels_of(struct arena *arena, MlirModule module) {
    static const char *const kinds[] = {"summary", "main"};
    func_list funcs = {0};
    MlirBlock body = mlirModuleGetBody(module);
    for (int k = 0; k < 2; k++)
        for (MlirOperation op = mlirBlockGetFirstOperation(body);
             !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op)) {
            const char *kind =
                ir_is_op(op, "func.func") ? ir_kernel_kind(op) : NULL;
            if (kind && strcmp(kind, kinds[k]) == 0)
                vec_push(arena, &funcs, op);
        }
    return funcs;
}

static void add_note(struct ptx_kernel *kernel, const char *text) {
    vec_push(kernel->arena, &kernel->notes, text);
}

/* The comment above an entry. */
static void annotate(struct ptx_kernel *kernel, MlirOperation func) {
    struct arena *arena = kernel->arena;
    int m, n;
    add_note(kernel,
             arena_printf(
                 arena,
                 "%s kernel: %d threads (%d warps), %u bytes of shared memory",
                 ir_kernel_kind(func), kernel->threads, kernel->threads / 32,
                 kernel->shared_bytes));
    if (ir_kernel_tile(func, &m, &n))
        add_note(kernel,
                 arena_printf(arena, "tile: %d queries x %d keys", m, n));
    size_t count = 0;
    const char **words = ir_words(
        arena, mlirOperationGetAttributeByName(func, ir_ref("attn.grid")),
        &count);
    struct strbuf grid;
    strbuf_init(&grid, arena);
    strbuf_append(&grid, "grid (postfix):");
    for (size_t i = 0; i < count; i++)
        strbuf_printf(&grid, " %s", words[i]);
    if (count > 0)
        add_note(kernel, strbuf_take(&grid));
}

static bool check_limits(MlirOperation func, const struct ptx_kernel *kernel,
                         const struct ptx_target *target,
                         struct diag_sink *sink, struct arena *arena) {
    if (kernel->shared_bytes > (uint32_t)target->shared_bytes_per_cta)
        ptx_error_at(
            sink, func,
            arena_printf(arena,
                         "kernel needs %u bytes of shared memory, %s has %d",
                         kernel->shared_bytes, target->name,
                         target->shared_bytes_per_cta));
    else if (kernel->threads > target->threads_per_cta)
        ptx_error_at(sink, func,
                     arena_printf(arena, "kernel needs %d threads, %s has %d",
                                  kernel->threads, target->name,
                                  target->threads_per_cta));
    else
        return true;
    return false;
}

/* Rows of insts.def that the target lacks are errors, one for each kernel. */
static bool check_instructions(MlirOperation func,
                               const struct ptx_kernel *kernel,
                               const struct ptx_target *target,
                               struct diag_sink *sink, struct arena *arena) {
    for (const struct ptx_inst *inst = kernel->first->next; inst;
         inst = inst->next)
        if (ptx_rows[inst->op].min_sm > target->sm) {
            ptx_error_at(sink, func,
                         arena_printf(arena, "%s needs sm_%d, the target is %s",
                                      ptx_rows[inst->op].id,
                                      ptx_rows[inst->op].min_sm, target->name));
            return false;
        }
    return true;
}

/* Device functions have the names that the user gave them. */
static bool check_externs(MlirOperation func, const struct ptx_kernel *kernel,
                          struct diag_sink *sink, struct arena *arena) {
    for (size_t i = 0; i < kernel->externs.count; i++) {
        const char *name = kernel->externs.data[i].name;
        const char *taken = ptx_name_taken(kernel, name);
        if (!taken)
            continue;
        ptx_error_at(sink, func,
                     arena_printf(arena,
                                  "extern function '%s': the PTX of kernel "
                                  "'%s' calls %s so; rename the function",
                                  name, kernel->name, taken));
        return false;
    }
    return true;
}

static void print_module(struct strbuf *out, const struct ptx_options *options,
                         struct ptx_kernel *const *kernels, size_t count) {
    int shared_align = 0; /* swizzle atoms of panels are 1024 bytes */
    for (size_t i = 0; i < count; i++) {
        int align = kernels[i]->uses_panels        ? 1024
                    : kernels[i]->shared_bytes > 0 ? 128
                                                   : 0;
        shared_align = align > shared_align ? align : shared_align;
    }
    if (options->attention)
        strbuf_printf(out, "// attention %s for %s", options->attention,
                      options->target->name);
    if (options->attention && options->producer)
        strbuf_printf(out, ", by %s", options->producer);
    if (options->attention)
        strbuf_append_char(out, '\n');
    ptx_emit_head(out, options->target,
                  ptx_isa_needed(options->target, kernels, count),
                  shared_align);
    ptx_emit_externs(out, kernels, count);
    for (size_t i = 0; i < count; i++)
        ptx_emit_kernel(out, kernels[i]);
}

bool ptx_emit_module(struct arena *arena, MlirModule module,
                     const struct ptx_options *options, struct strbuf *out_text,
                     struct kernel_info *out_info, struct diag_sink *sink) {
    func_list funcs = kernels_of(arena, module);
    struct ptx_kernel **kernels =
        ARENA_NEW_ARRAY(arena, struct ptx_kernel *, funcs.count);
    bool ok = funcs.count > 0;
    if (!ok)
        diag_error(sink, SOURCE_NOWHERE,
                   "the module has no kernel (a function with attn.kernel)");
    for (size_t i = 0; i < funcs.count; i++) {
        kernels[i] = isel_kernel(arena, funcs.data[i], options, sink);
        if (!kernels[i]) {
            ok = false;
            continue;
        }
        annotate(kernels[i], funcs.data[i]);
        ok = check_limits(funcs.data[i], kernels[i], options->target, sink,
                          arena) &&
             ok;
        ok = check_instructions(funcs.data[i], kernels[i], options->target,
                                sink, arena) &&
             ok;
        ok = check_externs(funcs.data[i], kernels[i], sink, arena) && ok;
    }
    if (!ok)
        return false;
    print_module(out_text, options, kernels, funcs.count);
    return !out_info || info_build(arena, funcs.data, kernels, funcs.count,
                                   options->target, out_info, sink);
}
