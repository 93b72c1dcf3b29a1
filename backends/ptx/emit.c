/* Prints instructions from the templates of insts.def.  Decides nothing: order,
 * registers and comments are in the list already. */
#include "backends/ptx/emit.h"

#include <string.h>

/* Name of the dynamic shared memory; MOV_SYMBOL takes its address. */
static const char shared_symbol[] = "smem";

static const char *const class_types[PTX_CLASS_COUNT] = {
    [PTX_P] = ".pred", [PTX_H] = ".b16", [PTX_R] = ".b32",
    [PTX_F] = ".f32",  [PTX_D] = ".b64",
};

static void emit_reg(struct strbuf *out, const struct ptx_kernel *kernel,
                     uint32_t reg) {
    const struct ptx_reg *r = &kernel->regs.data[reg];
    const struct ptx_reg_group *group = &kernel->groups.data[r->group];
    strbuf_printf(out, "%%%s", group->name);
    if (group->count > 1)
        strbuf_printf(out, "%u", r->number);
}

static void emit_operand(struct strbuf *out, const struct ptx_kernel *kernel,
                         const struct ptx_operand *operand) {
    switch (operand->kind) {
    case PTX_OPERAND_NONE:
        break;
    case PTX_OPERAND_REG:
        emit_reg(out, kernel, operand->reg);
        break;
    case PTX_OPERAND_IMM:
        strbuf_printf(out, "%lld", (long long)operand->value);
        break;
    case PTX_OPERAND_F32:
        strbuf_printf(out, "0f%08X", (unsigned)operand->value);
        break;
    case PTX_OPERAND_ADDRESS:
        emit_reg(out, kernel, operand->reg);
        if (operand->value != 0)
            strbuf_printf(out, "+%lld", (long long)operand->value);
        break;
    case PTX_OPERAND_VECTOR:
        strbuf_append_char(out, '{');
        for (int64_t i = 0; i < operand->value; i++) {
            if (i > 0)
                strbuf_append(out, ", ");
            emit_operand(out, kernel, &operand->items[i]);
        }
        strbuf_append_char(out, '}');
        break;
    case PTX_OPERAND_TEXT:
        strbuf_append(out, operand->text);
        break;
    }
}

/* A template with its escapes replaced. */
static void emit_template(struct strbuf *out, const struct ptx_kernel *kernel,
                          const struct ptx_inst *inst) {
    for (const char *c = ptx_rows[inst->op].text; *c != '\0'; c++) {
        if (*c != '$') {
            strbuf_append_char(out, *c);
            continue;
        }
        c++;
        if (*c == 'd')
            emit_operand(out, kernel, &inst->result);
        else
            emit_operand(out, kernel, &inst->operands[*c - '0']);
    }
}

/* Rows without a template. */
static void emit_label(struct strbuf *out, const char *text) {
    strbuf_printf(out, "%s:\n", text);
}
static void emit_comment(struct strbuf *out, const char *text) {
    strbuf_printf(out, "    // %s\n", text);
}
static void emit_banner(struct strbuf *out, const char *text) {
    strbuf_printf(out, "\n    // ---- %s\n", text);
}
static void emit_scope(struct strbuf *out, const char *text) {
    strbuf_printf(out, "    %s\n", text);
}
static void emit_location(struct strbuf *out, const char *text) {
    strbuf_printf(out, "    // @ %s\n", text);
}

static const struct {
    enum ptx_op op;
    void (*emit)(struct strbuf *out, const char *text);
} hooks[] = {
    {PTX_LABEL, emit_label},
    {PTX_SCOPE, emit_scope},
    {PTX_COMMENT, emit_comment},
    {PTX_BANNER, emit_banner},
    {PTX_LOCATION, emit_location},
};

void ptx_emit_inst(struct strbuf *out, const struct ptx_kernel *kernel,
                   const struct ptx_inst *inst) {
    for (size_t i = 0; i < sizeof hooks / sizeof hooks[0]; i++)
        if (hooks[i].op == inst->op) {
            hooks[i].emit(out, inst->operands[0].text);
            return;
        }
    strbuf_append(out, "    ");
    if (inst->guard != 0) {
        strbuf_append(out, inst->guard_negated ? "@!" : "@");
        emit_reg(out, kernel, inst->guard);
        strbuf_append_char(out, ' ');
    }
    emit_template(out, kernel, inst);
    strbuf_append(out, ";\n");
}

int ptx_isa_needed(const struct ptx_target *target,
                   struct ptx_kernel *const *kernels, size_t count) {
    int isa = target->min_isa;
    for (size_t i = 0; i < count; i++)
        for (const struct ptx_inst *inst = kernels[i]->first->next; inst;
             inst = inst->next)
            if (ptx_rows[inst->op].min_isa > isa)
                isa = ptx_rows[inst->op].min_isa;
    return isa;
}

void ptx_emit_head(struct strbuf *out, const struct ptx_target *target, int isa,
                   int shared_align) {
    strbuf_printf(out, ".version %d.%d\n.target %s\n.address_size 64\n",
                  isa / 10, isa % 10, target->name);
    if (shared_align > 0)
        strbuf_printf(out, "\n.extern .shared .align %d .b8 %s[];\n",
                      shared_align, shared_symbol);
}

const char *ptx_name_taken(const struct ptx_kernel *kernel, const char *name) {
    if (strcmp(name, kernel->name) == 0)
        return "the kernel itself";
    if (kernel->shared_bytes > 0 && strcmp(name, shared_symbol) == 0)
        return "the shared memory";
    for (size_t i = 0; i < kernel->params.count; i++)
        if (strcmp(name, kernel->params.data[i].name) == 0)
            return "a parameter";
    for (const struct ptx_inst *inst = kernel->first->next; inst;
         inst = inst->next)
        if (inst->op == PTX_LABEL &&
            strcmp(name, inst->operands[0].text) == 0)
            return "a label";
    return NULL;
}

static void emit_extern(struct strbuf *out, const struct ptx_extern *function) {
    strbuf_printf(out, ".extern .func (.param .b32 %s) %s(", function->result,
                  function->name);
    for (size_t i = 0; i < function->parameter_count; i++)
        strbuf_printf(out, "%s.param .b32 %s", i > 0 ? ", " : "",
                      function->parameters[i]);
    strbuf_append(out, ");\n");
}

static bool has_extern(const struct ptx_kernel *kernel, const char *name) {
    for (size_t i = 0; i < kernel->externs.count; i++)
        if (strcmp(kernel->externs.data[i].name, name) == 0)
            return true;
    return false;
}

void ptx_emit_externs(struct strbuf *out, struct ptx_kernel *const *kernels,
                      size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t n = 0; n < kernels[i]->externs.count; n++) {
            const struct ptx_extern *function = &kernels[i]->externs.data[n];
            size_t before = 0;
            while (!has_extern(kernels[before], function->name))
                before++;
            if (before == i) /* the first kernel that has it */
                emit_extern(out, function);
        }
}

static void emit_params(struct strbuf *out, const struct ptx_kernel *kernel) {
    size_t width = 0;
    for (size_t i = 0; i < kernel->params.count; i++) {
        size_t length = strlen(kernel->params.data[i].name);
        width = length > width ? length : width;
    }
    for (size_t i = 0; i < kernel->params.count; i++) {
        const struct ptx_param *param = &kernel->params.data[i];
        bool last = i + 1 == kernel->params.count;
        strbuf_printf(out, "    .param .%s %s%s", param->type, param->name,
                      last ? " " : ",");
        strbuf_append_repeat(out, ' ', width - strlen(param->name) + 1);
        strbuf_printf(out, "// %s\n", param->comment);
    }
}

static void emit_registers(struct strbuf *out,
                           const struct ptx_kernel *kernel) {
    for (size_t i = 0; i < kernel->groups.count; i++) {
        const struct ptx_reg_group *group = &kernel->groups.data[i];
        strbuf_printf(out, "    .reg %-5s %%%s", class_types[group->class],
                      group->name);
        if (group->count > 1)
            strbuf_printf(out, "<%u>", group->count);
        strbuf_append(out, ";\n");
    }
}

void ptx_emit_kernel(struct strbuf *out, const struct ptx_kernel *kernel) {
    strbuf_append_char(out, '\n');
    for (size_t i = 0; i < kernel->notes.count; i++)
        strbuf_printf(out, "// %s\n", kernel->notes.data[i]);
    strbuf_printf(out, ".visible .entry %s(\n", kernel->name);
    emit_params(out, kernel);
    strbuf_printf(out, ")\n.maxntid %d, 1, 1\n.minnctapersm 1\n{\n",
                  kernel->threads);
    emit_registers(out, kernel);
    for (const struct ptx_inst *inst = kernel->first->next; inst;
         inst = inst->next)
        if (inst->op != PTX_LOCATION || !inst->next ||
            inst->next->op != PTX_LOCATION)
            ptx_emit_inst(out, kernel, inst);
    strbuf_append(out, "}\n");
}
