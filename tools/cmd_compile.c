/* attnc FILE: a spec, or a module in MLIR's text form, to IR, PTX, a cubin or a
 * C header; --emit, --dump-all, --run-pass, --list-passes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/commands.h"
#include "tools/output.h"

static int list_passes(struct session *session) {
    struct strbuf text;
    strbuf_init(&text, session->arena);
    for (size_t i = 0; compile_pass_name(i); i++)
        strbuf_printf(&text, "%-16s %s\n", compile_pass_name(i),
                      compile_pass_summary(i));
    return session_write(session, "-", strbuf_text(&text), text.length);
}

/* ---- What to write ------------------------------------------------------ */

/* The one thing that -o and --emit ask for. */
struct wish {
    enum output_kind kind;
    const char *stage; /* MODULE: NULL is the last pass */
    const char *path;  /* "-": standard output */
};

/* A --emit that names no stage. */
static int unknown_stage(struct session *session, const char *stage) {
    const char *const *stages = compile_stages();
    struct strbuf known;
    strbuf_init(&known, session->arena);
    size_t count = 0;
    for (; stages[count]; count++)
        strbuf_printf(&known, "%s%s", count ? ", " : "", stages[count]);
    return session_fail(
        session, STATUS_USAGE, "unknown stage '%s' of --emit%s (known: %s)",
        diag_name(session->diags, stage),
        session_suggestion(session, stage, stages, count), strbuf_text(&known));
}

/* --emit decides what is written, else the end of the name does. */
static int resolve_wish(struct session *session, struct wish *out) {
    const struct options *o = session->options;
    enum output_kind by_name =
        o->output ? output_kind_of(o->output) : OUTPUT_NONE;
    *out = (struct wish){by_name, NULL, o->output ? o->output : "-"};
    if (o->emit) {
        if (!compile_stage_is_known(o->emit))
            return unknown_stage(session, o->emit);
        bool ptx = strcmp(o->emit, "ptx") == 0;
        out->kind = ptx ? OUTPUT_PTX : OUTPUT_MODULE;
        out->stage = ptx ? NULL : o->emit;
        if (by_name == OUTPUT_CUBIN || by_name == OUTPUT_HEADER)
            return session_fail(
                session, STATUS_USAGE,
                "--emit=%s writes text, '%s' asks for something else", o->emit,
                o->output);
    } else if (!o->output) {
        out->kind = o->run_pass ? OUTPUT_MODULE
                                : OUTPUT_NONE; /* NONE: --dump-all alone */
    } else if (strcmp(o->output, "-") == 0) {
        out->kind = OUTPUT_MODULE; /* of --run-pass */
    } else if (by_name == OUTPUT_NONE) {
        return session_fail(
            session, STATUS_USAGE,
            "cannot tell from '%s' what to write: the name must end in .mlir, "
            ".ptx, .cubin or .h (or give --emit=STAGE)",
            o->output);
    }
    return STATUS_OK;
}

/* ---- From a module ------------------------------------------------------ */

static bool is_module(const char *path) {
    return output_kind_of(path) == OUTPUT_MODULE;
}

/* Every name of --run-pass must be a pass: a usage error otherwise. */
static int check_pass_names(struct session *session) {
    const char *names[64];
    size_t count = 0;
    while (count < 64 && compile_pass_name(count)) {
        names[count] = compile_pass_name(count);
        count++;
    }
    for (const char *list = session->options->run_pass; list && *list;) {
        size_t length = strcspn(list, ",");
        const char *name = arena_strndup(session->arena, list, length);
        bool known = false;
        for (size_t i = 0; i < count; i++)
            known = known || strcmp(names[i], name) == 0;
        if (!known)
            return session_fail(
                session, STATUS_USAGE,
                "unknown pass '%s' of --run-pass%s (see --list-passes)",
                diag_name(session->diags, name),
                session_suggestion(session, name, names, count));
        list += length + (list[length] == ',');
    }
    return STATUS_OK;
}

/* Options that choose something in a spec mean nothing for a module. */
static int check_module_options(struct session *session,
                                const struct wish *wish) {
    const struct options *o = session->options;
    if (wish->kind == OUTPUT_CUBIN || wish->kind == OUTPUT_HEADER)
        return session_fail(
            session, STATUS_USAGE,
            "a module knows no tensors and parameters of a spec: it can become "
            ".mlir or .ptx, not '%s'",
            wish->path);
    const char *name = o->entry                ? "--entry"
                       : o->targets.count      ? "--target"
                       : o->schedule           ? "--schedule"
                       : o->dump_all           ? "--dump-all"
                       : o->include_dirs.count ? "-I"
                       : o->verify_each        ? "--verify-each"
                                               : NULL;
    if (name)
        return session_fail(session, STATUS_USAGE,
                            "%s has no meaning for the module '%s'", name,
                            o->files.data[0]);
    if (o->emit && strcmp(o->emit, "ptx") != 0)
        return session_fail(
            session, STATUS_USAGE,
            "--emit=%s is for specs; a module takes --run-pass=NAMES", o->emit);
    return check_pass_names(session);
}

/* The back end on a module as "pipeline" leaves it. */
static int write_module_ptx(struct session *session, const char *path,
                            const char *origin, const struct strbuf *module) {
    struct strbuf ptx;
    strbuf_init(&ptx, session->arena);
    if (!compile_emit_ptx(session->arena, origin, strbuf_text(module),
                          module->length, session->diags, &ptx))
        return session_report(session);
    session_report(session);
    return session_write(session, path, strbuf_text(&ptx), ptx.length);
}

/* A .mlir file: passes, then text or PTX. */
static int compile_module_file(struct session *session,
                               const struct wish *wish) {
    const char *path = session->options->files.data[0];
    int status = check_module_options(session, wish);
    if (status != STATUS_OK)
        return status;
    const struct source_file *file = source_load(session->sources, path);
    if (!file)
        return session_fail(session, STATUS_FAILED, "cannot open '%s': %s",
                            path, strerror(errno));
    struct strbuf module;
    strbuf_init(&module, session->arena);
    const char *passes = session->options->run_pass;
    if (!compile_run_passes(path, file->text, file->length,
                            passes ? passes : "", session->diags, &module))
        return session_report(session);
    session_report(session);
    if (wish->kind == OUTPUT_MODULE)
        return session_write(session, wish->path, strbuf_text(&module),
                             module.length);
    return write_module_ptx(session, wish->path, path, &module);
}

/* ---- From a spec -------------------------------------------------------- */

/* Targets to compile for: --target, else all of the spec, else the default. */
static int resolve_targets(struct session *session,
                           const struct attention *attention,
                           option_names *out) {
    const struct options *o = session->options;
    *out = (option_names){0};
    for (size_t i = 0; i < o->targets.count; i++)
        vec_push(session->arena, out, o->targets.data[i]);
    for (size_t i = 0; i < attention->target_count && !o->targets.count; i++)
        vec_push(session->arena, out, attention->targets[i].name);
    if (out->count == 0)
        vec_push(session->arena, out, NULL);
    for (size_t i = 0; i < out->count; i++) {
        out->data[i] =
            compile_resolve_target(attention, out->data[i], session->diags);
        if (!out->data[i])
            return session_report(session);
    }
    return STATUS_OK;
}

/* A folder that may exist already. */
static int make_folder(struct session *session, const char *path) {
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return STATUS_OK;
    return session_fail(session, STATUS_FAILED,
                        "cannot make the folder '%s': %s", path,
                        strerror(errno));
}

/* DIR/NN-STAGE.mlir; with several targets DIR/TARGET/NN-STAGE.mlir. */
static int write_dumps(struct session *session, const struct compiled *compiled,
                       bool several) {
    const char *folder = session->options->dump_all;
    int status = make_folder(session, folder);
    if (several && status == STATUS_OK) {
        folder =
            arena_printf(session->arena, "%s/%s", folder, compiled->target);
        status = make_folder(session, folder);
    }
    for (size_t i = 0; i < compiled->dump_count && status == STATUS_OK; i++) {
        const struct compile_dump *dump = &compiled->dumps[i];
        bool ptx = strcmp(dump->stage, "ptx") == 0;
        const char *path =
            ptx ? arena_printf(session->arena, "%s/%02d-ptx.ptx", folder,
                               dump->number)
                : arena_printf(session->arena, "%s/%02d-%s.mlir", folder,
                               dump->number, dump->stage);
        status = session_write(session, path, dump->text, dump->length);
        session_say(session, "wrote %s", path);
    }
    return status;
}

/* The module after a stage, from the dumps. */
static int write_module(struct session *session,
                        const struct compiled *compiled, const char *stage,
                        const char *path) {
    for (size_t i = 0; i < compiled->dump_count; i++) {
        const struct compile_dump *dump = &compiled->dumps[i];
        if (strcmp(dump->stage, stage) == 0)
            return session_write(session, path, dump->text, dump->length);
    }
    return session_fail(session, STATUS_FAILED,
                        "the pipeline of %s has no stage '%s'",
                        compiled->target, stage);
}

/* The last stage before "ptx". */
static const char *last_pass(void) {
    const char *const *stages = compile_stages(), *last = stages[0];
    for (size_t i = 0; stages[i]; i++)
        if (strcmp(stages[i], "ptx") != 0)
            last = stages[i];
    return last;
}

/* One compilation, and what the options want of it. */
static int compile_target_to(struct session *session, const struct spec *spec,
                             const struct attention *attention,
                             const char *target, const struct wish *wish,
                             bool several) {
    const struct options *o = session->options;
    const char *stage = wish->kind != OUTPUT_MODULE ? NULL
                        : wish->stage               ? wish->stage
                                                    : last_pass();
    struct compile_options options = {
        .target = target,
        .schedule = o->schedule,
        .stop_after = o->dump_all ? NULL : stage,
        .dump_after = o->dump_all ? "all" : stage,
        .verify_each = o->verify_each,
    };
    struct compiled compiled;
    double start = session_clock();
    bool ok = compile_attention(session->arena, session->sources, spec,
                                attention, &options, session->diags, &compiled);
    int status = session_report(session);
    if (!ok || status != STATUS_OK)
        return STATUS_FAILED;
    struct strbuf plan;
    strbuf_init(&plan, session->arena);
    schedule_print(&compiled.plan, &plan);
    session_say(session, "%s for %s in %.1f ms: %s", attention->name,
                compiled.target, 1e3 * (session_clock() - start),
                strbuf_text(&plan));
    if (o->dump_all)
        status = write_dumps(session, &compiled, several);
    if (status != STATUS_OK || wish->kind == OUTPUT_NONE)
        return status;
    if (wish->kind == OUTPUT_MODULE)
        return write_module(session, &compiled, stage, wish->path);
    struct output_code code = {
        compiled.ptx,          compiled.ptx_length,        compiled.info,
        compiled.extern_files, compiled.extern_file_count, spec->file->path};
    return output_write_code(session, wish->kind, wish->path, &code);
}

/* A spec: one compilation a target. */
static int compile_spec(struct session *session, const struct wish *wish) {
    const struct spec *spec;
    const struct attention *attention;
    option_names targets;
    int status = session_load(session, &spec, &attention);
    if (status == STATUS_OK)
        status = resolve_targets(session, attention, &targets);
    if (status != STATUS_OK)
        return status;
    bool several = targets.count > 1;
    if (several && wish->kind != OUTPUT_NONE && strcmp(wish->path, "-") == 0)
        return session_fail(
            session, STATUS_USAGE,
            "%zu outputs to standard output, one per target: choose one with "
            "--target, or give -o OUT",
            targets.count);
    for (size_t i = 0; i < targets.count && status == STATUS_OK; i++) {
        struct wish one = *wish;
        if (several)
            one.path = output_path_for_target(session->arena, wish->path,
                                              targets.data[i]);
        status = compile_target_to(session, spec, attention, targets.data[i],
                                   &one, several);
    }
    return status;
}

int command_compile(struct session *session) {
    const struct options *o = session->options;
    struct wish wish;
    if (o->list_passes)
        return list_passes(session);
    int status = resolve_wish(session, &wish);
    if (status != STATUS_OK)
        return status;
    if (is_module(o->files.data[0]))
        return compile_module_file(session, &wish);
    if (o->run_pass)
        return session_fail(session, STATUS_USAGE,
                            "--run-pass works on a .mlir file, not on '%s'",
                            o->files.data[0]);
    return compile_spec(session, &wish);
}
