/* Calls of CUDA C++ device functions: one for every element that differs.
 *
 * The convention is that of nvcc and NVRTC, read off their PTX: i32, f32 and
 * bool are .param .b32 alike, parameters and result.  A bool goes in as 0 or 1;
 * of one that comes back only the low 8 bits count (a byte read from memory is
 * returned sign-extended).
 *
 * Around each call stands a scope with its .param variables; they are written
 * right before the call and read right behind it, so that ptxas can keep them
 * in registers.  `.uni` speaks of the lanes that arrive at the call, not of the
 * whole warp (PTX ISA, call): without a guard it holds in divergent code too.
 */
#include "backends/ptx/isel.h"

#include <string.h>

/* ---- Declarations ------------------------------------------------------- */

/* C++ name of the function that a call names, NULL when it is no extern. */
static const char *extern_name(MlirOperation call) {
    MlirOperation module = call;
    while (!ir_is_op(module, "builtin.module"))
        module = mlirOperationGetParentOperation(module);
    MlirOperation callee = ir_symbol_func(module, call, "callee");
    return mlirOperationIsNull(callee) ? NULL
                                       : ir_text_attr(callee, "attn.extern");
}

static bool can_pass(MlirValue value) {
    MlirType type = mlirValueGetType(value);
    return ir_is_i32(type) || ir_is_f32(type) || ir_is_bool(type);
}

static const struct ptx_extern *find_extern(const struct ptx_kernel *kernel,
                                            const char *name) {
    for (size_t i = 0; i < kernel->externs.count; i++)
        if (strcmp(kernel->externs.data[i].name, name) == 0)
            return &kernel->externs.data[i];
    return NULL;
}

/* No variable has the function's own name, which it would hide. */
static void add_extern(struct ptx_kernel *kernel, const char *name,
                       size_t count) {
    struct arena *arena = kernel->arena;
    const char **parameters = ARENA_NEW_ARRAY(arena, const char *, count);
    struct strbuf list;
    strbuf_init(&list, arena);
    for (size_t i = 0; i < count; i++) {
        parameters[i] = arena_printf(arena, "%s_%zu", name, i);
        strbuf_printf(&list, "%s%s", i > 0 ? ", " : "", parameters[i]);
    }
    struct ptx_extern function = {
        .name = arena_strdup(arena, name),
        .result = arena_printf(arena, "%s_result", name),
        .parameters = parameters,
        .parameter_count = count,
        .arguments = strbuf_take(&list),
    };
    vec_push(arena, &kernel->externs, function);
}

bool isel_declare_extern(struct isel *is, MlirOperation call) {
    const char *name = extern_name(call);
    size_t count = ir_operand_count(call);
    if (!name || ir_result_count(call) != 1) {
        isel_error(is, call,
                   "the PTX back end calls extern functions of one result "
                   "only, which '%s' is not",
                   ir_text_attr(call, "callee"));
        return false;
    }
    bool scalars = can_pass(ir_result(call, 0));
    for (size_t i = 0; i < count; i++)
        scalars = scalars && can_pass(ir_operand(call, i));
    const struct ptx_extern *known = find_extern(is->kernel, name);
    if (!scalars)
        isel_error(is, call,
                   "extern function '%s': an operand or the result is not "
                   "i32, f32 or i1",
                   name);
    else if (known && known->parameter_count != count)
        isel_error(is, call, "extern function '%s' with %zu and %zu operands",
                   name, known->parameter_count, count);
    else if (!known)
        add_extern(is->kernel, name, count);
    return !is->failed;
}

/* ---- One call ----------------------------------------------------------- */

/* What goes into the parameter: predicates as 0 or 1. */
static struct ptx_operand argument_word(const struct element *e, size_t i) {
    if (e->in_class[i] != PTX_P || e->in[i].kind == PTX_OPERAND_IMM)
        return e->in[i];
    return ptx_def(e->is->kernel, PTX_SELP_B32, "r", ptx_imm(1), ptx_imm(0),
                   e->in[i]);
}

static void store_arguments(const struct element *e,
                            const struct ptx_extern *function,
                            const struct ptx_operand *words) {
    for (size_t i = 0; i < function->parameter_count; i++)
        ptx_put(e->is->kernel,
                e->in_class[i] == PTX_F ? PTX_ST_PARAM_F32 : PTX_ST_PARAM_B32,
                PTX_NOTHING, ptx_text(function->parameters[i]), words[i]);
}

struct ptx_operand call_extern(const struct element *e) {
    struct ptx_kernel *k = e->is->kernel;
    const struct ptx_extern *function = find_extern(k, extern_name(e->op));
    struct ptx_operand result = ptx_text(function->result), value;
    MlirType type = mlirValueGetType(ir_result(e->op, 0));
    struct ptx_operand *words = ARENA_NEW_ARRAY(
        e->is->arena, struct ptx_operand, function->parameter_count);
    for (size_t i = 0; i < function->parameter_count; i++)
        words[i] = argument_word(e, i);

    ptx_put(k, PTX_SCOPE, PTX_NOTHING, ptx_text("{"));
    for (size_t i = 0; i < function->parameter_count; i++)
        ptx_put(k, PTX_PARAM_B32, PTX_NOTHING,
                ptx_text(function->parameters[i]));
    ptx_put(k, PTX_PARAM_B32, PTX_NOTHING, result);
    store_arguments(e, function, words);
    ptx_put(k, PTX_CALL_UNI, PTX_NOTHING, result, ptx_text(function->name),
            ptx_text(function->arguments));
    if (ir_is_f32(type))
        value = element_out(e, PTX_LD_PARAM_F32, result);
    else if (ir_is_bool(type))
        value = ptx_def(k, PTX_LD_PARAM_B32, "r", result);
    else
        value = element_out(e, PTX_LD_PARAM_B32, result);
    ptx_put(k, PTX_SCOPE, PTX_NOTHING, ptx_text("}"));
    if (!ir_is_bool(type))
        return value;
    value = ptx_def(k, PTX_AND_B32, "r", value, ptx_imm(255));
    return element_out(e, PTX_SETP_NE_S32, value, ptx_imm(0));
}
