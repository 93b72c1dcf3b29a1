/* Binds the operands of call: call{.uni} [(results),] function [,
 * (parameters)]. */
#include <stdio.h>
#include <string.h>

#include "emulator/exec.h"
#include "emulator/parse.h"

/* An argument as written: a .param variable of the caller, or a value. */
static bool bind_argument(struct parser *parser, const struct raw_operand *raw,
                          const struct emu_param *formal, bool is_result,
                          struct emu_call_arg *out, char *why,
                          size_t why_size) {
    const struct symbol *symbol = raw->symbol;
    if (raw->kind == RAW_NAME && symbol && symbol->kind == SYMBOL_VARIABLE &&
        symbol->is_local_param) {
        *out = (struct emu_call_arg){.offset = (uint32_t)symbol->address,
                                     .size = symbol->size,
                                     .value.reg = -1};
        if (formal->size && formal->size != symbol->size) {
            snprintf(why, why_size,
                     "argument '%s' has %u bytes, the parameter '%s' %u",
                     raw->name, symbol->size, formal->name, formal->size);
            return false;
        }
        return true;
    }
    enum emu_type type = formal->size == 8  ? EMU_TYPE_b64
                         : formal->size > 2 ? EMU_TYPE_b32
                                            : EMU_TYPE_b16;
    if (formal->size == 0)
        type = parser->module->registers.data[formal->reg.reg].type;
    else if (formal->size > 8) {
        snprintf(why, why_size,
                 "parameter '%s' of %u bytes needs a .param argument",
                 formal->name, formal->size);
        return false;
    }
    const char *reason = is_result && raw->kind != RAW_REGISTER
                             ? "no register"
                             : emu_bind_value(parser, raw, type, &out->value);
    if (reason)
        snprintf(why, why_size, "argument for '%s' is %s", formal->name,
                 reason);
    return reason == NULL;
}

/* Results or arguments against the formals of the callee, one by one. */
static bool bind_list(struct parser *parser, struct emu_inst *inst,
                      const struct raw_operand *list,
                      const struct emu_param *formals, int32_t count,
                      bool is_result, char *why, size_t why_size) {
    if ((list ? list->item_count : 0) != count) {
        snprintf(why, why_size, "%d %s, the function has %d",
                 list ? list->item_count : 0,
                 is_result ? "results" : "arguments", (int)count);
        return false;
    }
    for (int32_t i = 0; i < count; i++) {
        struct emu_call_arg *arg = &inst->args[inst->arg_count];
        if (!bind_argument(parser, &list->items[i], &formals[i], is_result, arg,
                           why, why_size))
            return false;
        inst->formals[inst->arg_count++] =
            (struct emu_call_arg){.value = formals[i].reg,
                                  .offset = formals[i].offset,
                                  .size = formals[i].size};
    }
    return true;
}

bool emu_bind_call(struct parser *parser, struct emu_inst *inst,
                   const struct raw_operand *operands, int count, char *why,
                   size_t why_size) {
    const struct raw_operand *results = NULL, *params = NULL;
    int next = 0;
    if (next < count && operands[next].kind == RAW_LIST)
        results = &operands[next++];
    const struct raw_operand *name = next < count ? &operands[next++] : NULL;
    if (next < count && operands[next].kind == RAW_LIST)
        params = &operands[next++];
    if (!name || name->kind != RAW_NAME || !name->symbol ||
        name->symbol->kind != SYMBOL_FUNCTION || next != count) {
        snprintf(why, why_size,
                 "no call of a declared function (indirect calls are not "
                 "supported)");
        return false;
    }
    struct emu_function *callee =
        &parser->module->functions.data[name->symbol->index];
    if (callee->entry) {
        snprintf(why, why_size, "a call of the kernel '%s'", callee->name);
        return false;
    }
    size_t total = (size_t)callee->param_count + 1;
    inst->args = ARENA_NEW_ARRAY(parser->arena, struct emu_call_arg, total);
    inst->formals = ARENA_NEW_ARRAY(parser->arena, struct emu_call_arg, total);
    inst->arg_count = 0;
    inst->result_count = callee->result_count;
    inst->target = name->symbol->index;
    struct emu_function *caller =
        &parser->module->functions.data[parser->function];
    vec_push(parser->arena, &caller->callees, name->symbol->index);
    return bind_list(parser, inst, results, callee->params,
                     callee->result_count, true, why, why_size) &&
           bind_list(parser, inst, params,
                     callee->params + callee->result_count,
                     callee->param_count - callee->result_count, false, why,
                     why_size);
}
