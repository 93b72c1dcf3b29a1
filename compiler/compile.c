/* The compiler from a checked spec to PTX: see compile.h.
 *
 * Here are the choices around the passes (attention, target, schedule) and the
 * one run through them; kernel facts of the spec are in facts.c, text in and
 * out in text.c. */
#include "compiler/compile.h"

#include <assert.h>
#include <string.h>

#include "backends/ptx/ptx.h"
#include "compiler/facts.h"
#include "ir/from_spec.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "passes/plan.h"
#include "passes/target_limits.h"
#include "support/vec.h"

/* ---- Names ------------------------------------------------------------- */

static const char *const stage_names[] = {
    "attn",           "mask-blocks", "variants",  "tile",
    "online-softmax", "fold-scale",  "fast-math", "rescale",
    "split-exp",      "pipeline",    "ptx",       NULL,
};

const char *const *compile_stages(void) {
    return stage_names;
}

static int stage_number(const char *name) {
    for (int i = 0; stage_names[i]; i++)
        if (strcmp(stage_names[i], name) == 0)
            return i;
    return -1;
}

bool compile_stage_is_known(const char *name) {
    return stage_number(name) >= 0;
}

const char *compile_pass_name(size_t index) {
    const struct pass *pass = pass_get(index);
    return pass ? pass->name : NULL;
}

const char *compile_pass_summary(size_t index) {
    const struct pass *pass = pass_get(index);
    return pass ? pass->summary : NULL;
}

const char *compile_target(size_t index) {
    const struct target_limits *limits = target_limits_get(index);
    return limits ? limits->name : NULL;
}

bool compile_target_is_supported(const char *name) {
    return target_limits_find(name) && ptx_target_find(name);
}

/* ---- Choices ----------------------------------------------------------- */

/* Names of the attentions, comma-separated, for a message. */
static const char *attention_names(struct arena *arena,
                                   const struct spec *spec) {
    struct strbuf text;
    strbuf_init(&text, arena);
    for (size_t i = 0; i < spec->attention_count && i < 10; i++)
        strbuf_printf(&text, "%s%s", i ? ", " : "", spec->attentions[i].name);
    if (spec->attention_count > 10)
        strbuf_append(&text, ", ...");
    return strbuf_text(&text);
}

static void unknown_entry(struct arena *arena, const struct spec *spec,
                          const char *entry, struct diag_sink *diags) {
    const char **names =
        ARENA_NEW_ARRAY(arena, const char *, spec->attention_count);
    for (size_t i = 0; i < spec->attention_count; i++)
        names[i] = spec->attentions[i].name;
    diag_error(diags, SOURCE_NOWHERE, "%s has no attention '%s'",
               spec->file->path, diag_name(diags, entry));
    const char *near = diag_closest(entry, names, spec->attention_count);
    if (near)
        diag_note(diags, SOURCE_NOWHERE, "did you mean '%s'?", near);
    else
        diag_note(diags, SOURCE_NOWHERE, "it has %s",
                  attention_names(arena, spec));
}

const struct attention *compile_select(const struct spec *spec,
                                       const char *entry,
                                       struct diag_sink *diags) {
    struct arena *scratch = arena_create();
    const struct attention *found = NULL;
    if (spec->attention_count == 0)
        diag_error(diags, SOURCE_NOWHERE,
                   "%s is a library: it has no attention to compile",
                   spec->file->path);
    else if (entry && !(found = ast_find_attention(spec, entry)))
        unknown_entry(scratch, spec, entry, diags);
    else if (!entry && spec->attention_count > 1)
        diag_error(diags, SOURCE_NOWHERE,
                   "%s has %zu attentions: choose one by --entry (%s)",
                   spec->file->path, spec->attention_count,
                   attention_names(scratch, spec));
    else if (!entry)
        found = &spec->attentions[0];
    arena_destroy(scratch);
    return found;
}

static void note_targets(struct diag_sink *diags) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    for (size_t i = 0; compile_target(i); i++)
        strbuf_printf(&text, "%s%s", i ? ", " : "", compile_target(i));
    diag_note(diags, SOURCE_NOWHERE, "targets with code generation: %s",
              strbuf_text(&text));
    strbuf_destroy(&text);
}

/* What a spec without targets is compiled for (docs/language.md, "Targets"). */
static const char default_target[] = "sm_90a";

const char *compile_resolve_target(const struct attention *attention,
                                   const char *target,
                                   struct diag_sink *diags) {
    if (target && compile_target_is_supported(target))
        return target_limits_find(target)->name;
    if (target) {
        diag_error(diags, SOURCE_NOWHERE, "no code generation for target '%s'",
                   diag_name(diags, target));
        note_targets(diags);
        return NULL;
    }
    for (size_t i = 0; i < attention->target_count; i++)
        if (compile_target_is_supported(attention->targets[i].name))
            return target_limits_find(attention->targets[i].name)->name;
    if (attention->target_count == 0)
        return default_target;
    diag_error(diags, attention->targets[0].where,
               "no code generation for target '%s'",
               attention->targets[0].name);
    note_targets(diags);
    return NULL;
}

bool compile_plan(struct arena *arena, struct source_set *sources,
                  const struct spec *spec, const struct attention *attention,
                  const char *target, const char *schedule,
                  struct diag_sink *diags, struct schedule_plan *out_plan) {
    struct schedule pinned = attention->schedule;
    if (schedule && !frontend_override_schedule(arena, sources, spec, schedule,
                                                &pinned, diags))
        return false;
    const struct schedule_problem problem = {
        .target = target,
        .head_dim_qk = attention->head_dim_qk,
        .head_dim_v = attention->head_dim_v,
        .dtype = attention->dtype,
        .element_reads = facts_has_element_reads(arena, attention),
        .calls_extern = attention->calls_extern,
        .has_score = facts_has_item(attention, ITEM_SCORE),
        .has_mask = facts_has_item(attention, ITEM_MASK),
        .has_sparse_mask = facts_has_sparse_mask(arena, attention),
        .has_window = facts_has_window(arena, attention),
        .has_division = facts_has_division(arena, attention),
        .key_quotients = facts_mask_key_quotients(arena, attention),
        .score_reads_keys = facts_score_reads_keys(arena, attention),
        .keeps_scores = facts_keeps_scores(arena, attention),
        .group = attention->group,
        .mask_reads_head = facts_mask_reads_head(attention),
        .reads_words = facts_reads_words(arena, attention),
        .reads_positions = facts_mask_reads_positions(arena, attention),
        .reads_row_blocks = facts_mask_reads_row_blocks(arena, attention)};
    return schedule_resolve(&problem, &pinned, diags, out_plan);
}

bool compile_check(struct arena *arena, struct source_set *sources,
                   const struct spec *spec, const char *target,
                   const char *schedule, struct diag_sink *diags) {
    size_t errors = diag_error_count(diags);
    struct schedule_plan plan;
    for (size_t i = 0; i < spec->attention_count; i++) {
        const struct attention *attention = &spec->attentions[i];
        const char *first = compile_resolve_target(attention, target, diags);
        if (!first)
            continue;
        compile_plan(arena, sources, spec, attention, first, schedule, diags,
                     &plan);
        for (size_t k = 0; k < attention->target_count && !target; k++) {
            const char *name = attention->targets[k].name;
            if (compile_target_is_supported(name) && strcmp(name, first) != 0)
                compile_plan(arena, sources, spec, attention, name, schedule,
                             diags, &plan);
        }
    }
    return diag_error_count(diags) == errors;
}

/* ---- One compilation --------------------------------------------------- */

/* What the stage hook needs. */
struct compilation {
    struct arena *arena;
    const struct compile_options *options;
    VEC(struct compile_dump) dumps;
};

static bool wants_dump(const struct compilation *c, const char *stage) {
    const char *wish = c->options->dump_after;
    return wish && (strcmp(wish, "all") == 0 || strcmp(wish, stage) == 0);
}

static void keep_dump(struct compilation *c, const char *stage,
                      const char *text, size_t length) {
    int number = stage_number(stage);
    assert(number >= 0);
    vec_push(c->arena, &c->dumps,
             (struct compile_dump){stage_names[number], number, text, length});
}

static void dump_module(struct compilation *c, const char *stage,
                        MlirModule module) {
    if (!wants_dump(c, stage))
        return;
    struct strbuf text;
    strbuf_init(&text, c->arena);
    ir_print(mlirModuleGetOperation(module), true, &text);
    keep_dump(c, stage, strbuf_text(&text), text.length);
}

static void on_stage(void *user, const struct pass *stage,
                     MlirOperation module) {
    dump_module(user, stage->name, mlirModuleFromOperation(module));
}

static bool stops_after(const struct compilation *c, const char *stage) {
    const char *last = c->options->stop_after;
    return last && strcmp(last, stage) == 0;
}

/* The passes and the back end on a module of stage "attn". */
static bool lower_module(struct compilation *c, MlirModule module,
                         struct diag_sink *diags, struct compiled *out) {
    dump_module(c, "attn", module);
    if (stops_after(c, "attn"))
        return true;
    const struct pass_options passes = {.verify_each = c->options->verify_each,
                                        .stop_after = c->options->stop_after,
                                        .hook = on_stage,
                                        .user = c};
    if (!pass_run(pass_pipeline_of(out->target), &passes,
                  mlirModuleGetOperation(module), diags))
        return false;
    if (c->options->stop_after && !stops_after(c, "ptx"))
        return true;
    struct strbuf ptx;
    strbuf_init(&ptx, c->arena);
    struct kernel_info *info = facts_of_attention(c->arena, out->attention);
    const struct ptx_options options = {.target = ptx_target_find(out->target),
                                        .attention = out->attention->name,
                                        .producer = "attnc " ATTN_VERSION};
    if (!ptx_emit_module(c->arena, module, &options, &ptx, info, diags))
        return false;
    out->info = info;
    out->ptx_length = ptx.length;
    out->ptx = strbuf_text(&ptx);
    if (wants_dump(c, "ptx"))
        keep_dump(c, "ptx", out->ptx, out->ptx_length);
    return true;
}

/* Builds the module of the attention, with target and plan on it, and lowers
 * it. */
static bool compile_module(struct compilation *c, struct source_set *sources,
                           struct diag_sink *diags, struct compiled *out) {
    struct arena *scratch = arena_create();
    MlirContext context = ir_context_create();
    MlirModule module = ir_from_spec(context, scratch, sources, out->attention);
    MlirOperation top = mlirModuleGetOperation(module);
    ir_set_module_target(top, out->target);
    plan_write(ir_find_func(top, out->attention->name), &out->plan);
    bool ok = lower_module(c, module, diags, out);
    mlirModuleDestroy(module);
    mlirContextDestroy(context);
    arena_destroy(scratch);
    return ok;
}

bool compile_attention(struct arena *arena, struct source_set *sources,
                       const struct spec *spec,
                       const struct attention *attention,
                       const struct compile_options *options,
                       struct diag_sink *diags, struct compiled *out_compiled) {
    static const struct compile_options defaults = {0};
    struct compilation c = {.arena = arena,
                            .options = options ? options : &defaults};
    *out_compiled = (struct compiled){.attention = attention};
    out_compiled->target =
        compile_resolve_target(attention, c.options->target, diags);
    if (!out_compiled->target ||
        !compile_plan(arena, sources, spec, attention, out_compiled->target,
                      c.options->schedule, diags, &out_compiled->plan))
        return false;
    if (!compile_module(&c, sources, diags, out_compiled))
        return false;
    out_compiled->extern_files =
        facts_extern_files(arena, attention, &out_compiled->extern_file_count);
    out_compiled->dumps = c.dumps.data;
    out_compiled->dump_count = c.dumps.count;
    return true;
}

bool compile_text(struct arena *arena, struct source_set *sources,
                  const char *name, const char *text, size_t length,
                  const char *entry, const struct frontend_options *frontend,
                  const struct compile_options *options,
                  struct diag_sink *diags, struct compiled *out_compiled) {
    const struct spec *spec = frontend_check_text(arena, sources, name, text,
                                                  length, frontend, diags);
    const struct attention *attention =
        spec ? compile_select(spec, entry, diags) : NULL;
    return attention && compile_attention(arena, sources, spec, attention,
                                          options, diags, out_compiled);
}

bool compile_key(struct arena *arena, struct source_set *sources,
                 const struct spec *spec, const struct attention *attention,
                 const struct compile_options *options, struct diag_sink *diags,
                 struct strbuf *out_key) {
    struct schedule_plan plan;
    const char *target = compile_resolve_target(
        attention, options ? options->target : NULL, diags);
    if (!target ||
        !compile_plan(arena, sources, spec, attention, target,
                      options ? options->schedule : NULL, diags, &plan))
        return false;
    strbuf_printf(out_key, "attn %s\ntarget %s\nschedule ", ATTN_VERSION,
                  target);
    schedule_print(&plan, out_key);
    strbuf_printf(out_key, "; second %d, %d; packed %d; warps %d; q %s\n",
                  plan.second_m, plan.second_n, plan.pack_gqa, plan.warps,
                  plan.q_registers ? "registers" : "shared");
    ast_print_attention(out_key, attention);
    return true;
}
