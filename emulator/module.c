/* Modules: parse, link, place shared memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/exec.h"
#include "emulator/memory.h"
#include "emulator/parse.h"

/* Calls were bound to a head; the definition may have come later. */
static void link_calls(struct parser *parser) {
    struct emu_module *module = parser->module;
    for (size_t i = 0; i < module->insts.count; i++) {
        struct emu_inst *inst = &module->insts.data[i];
        if (inst->exec != exec_call)
            continue;
        const struct emu_function *callee =
            &module->functions.data[inst->target];
        parser->source = inst->source;
        parser->inst_text = inst->text;
        parser->inst_line = inst->line;
        if (!callee->defined)
            emu_parse_fail(parser, "function '%s' is declared, not defined",
                           callee->name);
        for (int32_t k = 0; k < inst->arg_count; k++) {
            const struct emu_param *p = &callee->params[k];
            struct emu_call_arg *formal = &inst->formals[k];
            if (p->size != formal->size)
                emu_parse_fail(parser,
                               "parameter '%s' of '%s' has another size in its "
                               "declaration",
                               p->name, callee->name);
            formal->value = p->reg;
            formal->offset = p->offset;
        }
    }
    parser->inst_text = NULL;
}

/* Whether the instruction can see what another CTA did. */
static bool talks_to_other_ctas(const struct emu_inst *inst) {
    bool global =
        inst->space == EMU_SPACE_GLOBAL || inst->space == EMU_SPACE_GENERIC;
    return global && (inst->exec == exec_atom || inst->exec == exec_red ||
                      ((inst->exec == exec_ld || inst->exec == exec_st) &&
                       (inst->mods & EMU_MOD_SYNC)));
}

/* Depth first over the call graph: recursion fails, properties flow to callers.
 * visit: 0 not yet, 1 on the way, 2 done. */
static void visit_function(struct parser *parser, int32_t index, int depth) {
    struct emu_function *f = &parser->module->functions.data[index];
    if (f->visit == 2 || !f->defined)
        return;
    const struct emu_inst *first = &parser->module->insts.data[f->first];
    parser->source = first->source;
    parser->inst_text = first->text;
    parser->inst_line = first->line;
    if (f->visit == 1 || depth > 200)
        emu_parse_fail(parser,
                       "'%s' is recursive, or calls are nested deeper than 200",
                       f->name);
    f->visit = 1;
    for (int32_t pc = f->first; pc < f->end; pc++) {
        const struct emu_inst *inst = &parser->module->insts.data[pc];
        f->serial |= talks_to_other_ctas(inst);
        f->uses_wgmma |=
            inst->exec == exec_wgmma_ss || inst->exec == exec_wgmma_rs;
        f->waits_for_grids |= inst->exec == exec_griddep_wait;
    }
    for (size_t i = 0; i < f->callees.count; i++) {
        visit_function(parser, f->callees.data[i], depth + 1);
        const struct emu_function *callee =
            &parser->module->functions.data[f->callees.data[i]];
        f->serial |= callee->serial;
        f->uses_wgmma |= callee->uses_wgmma;
        f->waits_for_grids |= callee->waits_for_grids;
    }
    f->visit = 2;
}

/* Register 0 is the sink; register 1 keeps 0 free as "none" in special[]. */
static void parse_all(struct parser *parser) {
    struct emu_module *module = parser->module;
    emu_parse_add_register(parser, "_", EMU_TYPE_b128); /* EMU_REG_SINK */
    emu_parse_add_register(parser, "%0",
                           EMU_TYPE_b32); /* special[] uses 0 for none */
    for (size_t i = 0; i < module->source_count; i++)
        emu_parse_text(parser, (int)i);
    link_calls(parser);
    for (size_t i = 0; i < module->functions.count; i++)
        visit_function(parser, (int32_t)i, 0);
    uint32_t align = parser->dynamic_align > 16 ? parser->dynamic_align : 16;
    uint32_t base = (parser->static_shared + align - 1) & ~(align - 1);
    emu_parse_patch_shared(parser, base);
    for (size_t i = 0; i < module->functions.count; i++)
        module->functions.data[i].static_shared = base;
    module->local_bytes = (module->local_bytes + 15) & ~15u;
    if (module->has_setmaxnreg)
        emu_live_analyse(module);
}

struct emu_module *emu_module_create(struct emu_memory *memory,
                                     const struct emu_source *sources,
                                     size_t count,
                                     struct emu_error *out_error) {
    jmp_buf failed;
    struct arena *arena = arena_create();
    struct emu_module *module = ARENA_NEW(arena, struct emu_module);
    struct parser *parser = ARENA_NEW(arena, struct parser);
    struct emu_source *copies =
        ARENA_NEW_ARRAY(arena, struct emu_source, count + 1);
    memcpy(copies, sources, count * sizeof *copies);
    *module = (struct emu_module){.arena = arena,
                                  .memory = memory,
                                  .sources = copies,
                                  .source_count = count};
    parser->module = module;
    parser->arena = arena;
    parser->failed = &failed;
    parser->error = out_error;
    parser->function = -1;
    parser->constants =
        ARENA_NEW_ARRAY(arena, struct constant_slot, PARSE_CONSTANT_SLOTS);
    out_error->text[0] = 0;
    if (setjmp(failed)) {
        arena_destroy(arena);
        return NULL;
    }
    parse_all(parser);
    return module;
}

void emu_module_destroy(struct emu_module *module) {
    if (module)
        arena_destroy(module->arena);
}

const struct emu_function *emu_module_entry(const struct emu_module *module,
                                            const char *name) {
    for (size_t i = 0; i < module->functions.count; i++) {
        const struct emu_function *f = &module->functions.data[i];
        if (f->entry && f->defined && strcmp(f->name, name) == 0)
            return f;
    }
    return NULL;
}

long emu_module_param_bytes(const struct emu_module *module,
                            const char *entry) {
    const struct emu_function *f = emu_module_entry(module, entry);
    return f ? (long)f->param_bytes : -1;
}
