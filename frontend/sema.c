/* Files, imports and definitions: from syntax trees to a checked spec.
 *
 * Every file is a module with a table of visible names.  Consts and fns are
 * resolved on first use; a definition that is met while it is being resolved
 * closes a cycle, which is an error for consts and fns alike.
 */
#include "frontend/sema.h"

#include <errno.h>
#include <string.h>

#include "frontend/fold.h"

enum { MAX_IMPORT_DEPTH = 64 };

/* ---- consts -------------------------------------------------------------- */

/* Value of a const, converted to its type if it names one. */
static bool resolve_const(struct sema *sema, struct decl *decl) {
    const struct syn_decl *syntax = decl->syntax;
    struct env env = {.kind = ENV_CONST, .module = decl->module};
    struct expr *value = sema_expr(sema, &env, syntax->expr);
    enum value_type type;
    if (syntax->type.text && !sema_value_type(sema, syntax->type, &type))
        return false;
    if (syntax->type.text)
        value = sema_convert(sema, value, type, "value of the const");
    if (!value)
        return false;
    decl->constant = ARENA_NEW(sema->arena, struct named_const);
    *decl->constant = (struct named_const){
        syntax->name.text, syntax->name.where, value->type, value->bits};
    return true;
}

/* ---- fns ----------------------------------------------------------------- */

/* No word of the language and no other parameter's name. */
static bool param_is_valid(struct sema *sema, const struct decl *decl,
                           size_t number) {
    const struct syn_param *param = &decl->syntax->params.list.data[number];
    const char *shown = diag_name(sema->diags, param->name.text);
    static const char *const fixed[] = {"true", "false", "inf",  "bool", "i32",
                                        "f32",  "f16",   "bf16", "e4m3"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (strcmp(param->name.text, fixed[i]) == 0) {
            diag_error(sema->diags, param->name.where,
                       "'%s' belongs to the language", shown);
            return false;
        }
    for (size_t i = 0; i < number; i++) {
        const struct syn_name *other = &decl->syntax->params.list.data[i].name;
        if (strcmp(other->text, param->name.text) != 0)
            continue;
        diag_error(sema->diags, param->name.where,
                   "parameter '%s' is defined twice", shown);
        diag_note(sema->diags, other->where, "first defined here");
        return false;
    }
    return true;
}

bool sema_may_hide(struct sema *sema, const struct module *module,
                   struct syn_name name, const struct decl *allowed) {
    const struct decl *hidden = strmap_get(&module->visible, name.text);
    if (!hidden || hidden == allowed)
        return true;
    const char *shown = diag_name(sema->diags, name.text);
    if (hidden->module == module) {
        diag_error(sema->diags, name.where,
                   "'%s' is already defined in this file", shown);
        diag_note(sema->diags, hidden->syntax->name.where,
                  "first defined here");
        return false;
    }
    diag_warning(sema->diags, name.where, "hides-import",
                 "'%s' hides an imported name", shown);
    diag_note(sema->diags, hidden->syntax->name.where,
              "the hidden one is defined here");
    return true;
}

/* All parameters are looked at, so that one error does not hide the next. */
static bool check_signature(struct sema *sema, struct decl *decl,
                            struct fn *fn) {
    const struct syn_decl *syntax = decl->syntax;
    size_t count = syntax->params.list.count;
    bool good = true;
    if (count > AST_MAX_ARGS) {
        diag_error(sema->diags, syntax->name.where,
                   "fn has %zu parameters, the limit is %d", count,
                   AST_MAX_ARGS);
        return false;
    }
    fn->params = ARENA_NEW_ARRAY(sema->arena, struct fn_param, count);
    fn->param_count = count;
    for (size_t i = 0; i < count; i++) {
        const struct syn_param *param = &syntax->params.list.data[i];
        fn->params[i].name = param->name.text;
        fn->params[i].where = param->name.where;
        good &= sema_value_type(sema, param->type, &fn->params[i].type);
        good &= param_is_valid(sema, decl, i);
        good &= sema_may_hide(sema, decl->module, param->name, NULL);
    }
    return sema_value_type(sema, syntax->type, &fn->type) && good;
}

/* Signature first, then the file of an extern, then the body; the fn is known
 * while its body is checked, so that a recursive call is seen. */
static bool resolve_fn(struct sema *sema, struct decl *decl) {
    const struct syn_decl *syntax = decl->syntax;
    struct fn *fn = ARENA_NEW(sema->arena, struct fn);
    fn->name = syntax->name.text;
    fn->where = syntax->name.where;
    fn->is_extern = syntax->kind == SYN_EXTERN;
    decl->fn = fn;
    bool good = check_signature(sema, decl, fn);
    if (fn->is_extern)
        good = sema_extern_file(sema, decl, good) && good;
    if (!fn->params || !syntax->expr) {
        fn->calls_extern = fn->lacks_model = fn->is_extern;
        return good;
    }
    struct env env = {.kind = ENV_FN, .module = decl->module, .fn = fn};
    struct expr *body = good ? sema_expr(sema, &env, syntax->expr) : NULL;
    body = sema_convert(sema, body, fn->type,
                        fn->is_extern ? "model of the fn" : "result of the fn");
    if (!body)
        return false;
    fn->body = body;
    fn->calls_extern = fn->is_extern || (body->deps & DEP_EXTERN);
    fn->lacks_model = env.lacks_model;
    sema_count_uses(fn);
    sema_probe_divisors(sema, body);
    return true;
}

/* ---- resolving ----------------------------------------------------------- */

static void report_cycle(struct sema *sema, struct decl *decl,
                         struct source_range use) {
    bool is_const = decl->syntax->kind == SYN_CONST;
    const char *shown = diag_name(sema->diags, decl->syntax->name.text);
    diag_error(sema->diags, use,
               is_const ? "const '%s' depends on itself"
                        : "fn '%s' calls itself; recursion is not possible",
               shown);
    diag_note(sema->diags, decl->syntax->name.where, "'%s' is defined here",
              shown);
}

bool sema_resolve(struct sema *sema, struct decl *decl,
                  struct source_range use) {
    switch (decl->state) {
    case DECL_DONE:
        return true;
    case DECL_POISONED:
        return false;
    case DECL_RESOLVING:
        report_cycle(sema, decl, use);
        decl->state = DECL_POISONED;
        return false;
    case DECL_NEW:
        break;
    }
    decl->state = DECL_RESOLVING;
    bool good = !decl->syntax->broken;
    if (good)
        good = decl->syntax->kind == SYN_CONST ? resolve_const(sema, decl)
                                               : resolve_fn(sema, decl);
    decl->state =
        good && decl->state == DECL_RESOLVING ? DECL_DONE : DECL_POISONED;
    return decl->state == DECL_DONE;
}

/* ---- names of a module --------------------------------------------------- */

static void see(struct sema *sema, struct module *module, struct decl *decl) {
    strmap_set(sema->arena, &module->visible, decl->syntax->name.text, decl);
    vec_push(sema->arena, &module->seen, decl);
}

/* Enters a definition of the file itself; the first of a name wins. */
static void add_own(struct sema *sema, struct module *module,
                    const struct syn_decl *syntax) {
    struct syn_name name = syntax->name;
    if (syntax->kind == SYN_IMPORT || !name.text)
        return;
    const char *shown = diag_name(sema->diags, name.text);
    const struct decl *first = strmap_get(&module->visible, name.text);
    bool callable = syntax->kind == SYN_FN || syntax->kind == SYN_EXTERN;
    if (first) {
        diag_error(sema->diags, name.where, "'%s' is already defined", shown);
        diag_note(sema->diags, first->syntax->name.where, "first defined here");
    } else if (sema_name_is_taken(name.text)) {
        diag_error(sema->diags, name.where, "'%s' belongs to the language",
                   shown);
    } else if (callable && sema_is_builtin(name.text)) {
        diag_error(sema->diags, name.where, "'%s' is a built-in function",
                   shown);
    }
    struct decl *decl = ARENA_NEW(sema->arena, struct decl);
    decl->syntax = syntax;
    decl->module = module;
    vec_push(sema->arena, &module->own, decl);
    if (!first)
        see(sema, module, decl);
}

/* ---- imports ------------------------------------------------------------- */

/* One name that an import brings. */
static void take_over(struct sema *sema, struct module *module,
                      struct decl *brought, struct source_range import) {
    struct syn_name name = brought->syntax->name;
    struct decl *known = strmap_get(&module->visible, name.text);
    const char *shown = diag_name(sema->diags, name.text);
    if (brought->syntax->kind == SYN_ATTENTION || known == brought)
        return;
    if (!known) {
        see(sema, module, brought);
    } else if (known->module == module) {
        diag_warning(sema->diags, known->syntax->name.where, "hides-import",
                     "'%s' hides an imported name", shown);
        diag_note(sema->diags, name.where, "the hidden one is defined here");
    } else {
        diag_error(sema->diags, import, "this import brings another '%s'",
                   shown);
        diag_note(sema->diags, known->syntax->name.where,
                  "one is defined here");
        diag_note(sema->diags, name.where, "the other one is defined here");
    }
}

static struct module *load_module(struct sema *sema,
                                  const struct source_file *source);

const struct source_file *sema_find_file(struct sema *sema,
                                         const struct module *module,
                                         struct syn_name name) {
    const struct frontend_options *options = sema->options;
    const struct source_file *file =
        source_load_include(sema->sources, module->source, name.text,
                            options ? options->include_dirs : NULL,
                            options ? options->include_dir_count : 0);
    if (!file)
        diag_error(sema->diags, name.where, "cannot open '%s': %s",
                   diag_name(sema->diags, name.text), strerrordesc_np(errno));
    return file;
}

/* Brings the names of the other file, its own and those it imports. */
static void import(struct sema *sema, struct module *module,
                   const struct syn_decl *syntax) {
    struct source_range where = syntax->file.where;
    if (!syntax->file.text)
        return;
    if (sema->imports_open >= MAX_IMPORT_DEPTH) {
        diag_error(sema->diags, where,
                   "imports are nested deeper than %d files", MAX_IMPORT_DEPTH);
        return;
    }
    const struct source_file *file = sema_find_file(sema, module, syntax->file);
    struct module *brought = file ? load_module(sema, file) : NULL;
    if (!brought)
        return;
    if (brought->state == MODULE_LOADING) {
        diag_error(sema->diags, where, "import of '%s' closes a cycle",
                   diag_name(sema->diags, syntax->file.text));
        return;
    }
    for (size_t i = 0; i < brought->seen.count; i++)
        take_over(sema, module, brought->seen.data[i], where);
}

/* Once for each file, whatever names lead to it.  It is known before its
 * imports are read, so that a cycle is seen. */
static struct module *load_module(struct sema *sema,
                                  const struct source_file *source) {
    const char *key = arena_printf(sema->arena, "%u", source->id);
    struct module *module = strmap_get(&sema->modules_by_id, key);
    if (module)
        return module;
    module = ARENA_NEW(sema->arena, struct module);
    module->source = source;
    strmap_set(sema->arena, &sema->modules_by_id, key, module);
    vec_push(sema->arena, &sema->modules, module);
    sema->imports_open++;
    struct syn_file *syntax = syntax_parse(sema->arena, source, sema->diags);
    for (size_t i = 0; i < syntax->decls.count; i++)
        add_own(sema, module, syntax->decls.data[i]);
    for (size_t i = 0; i < syntax->decls.count; i++)
        if (syntax->decls.data[i]->kind == SYN_IMPORT)
            import(sema, module, syntax->decls.data[i]);
    sema->imports_open--;
    module->state = MODULE_DONE;
    return module;
}

/* ---- the spec ------------------------------------------------------------ */

/* Checks what nobody has used yet. */
static void resolve_module(struct sema *sema, struct module *module) {
    for (size_t i = 0; i < module->own.count; i++) {
        struct decl *decl = module->own.data[i];
        if (decl->syntax->kind != SYN_ATTENTION && decl->state == DECL_NEW)
            sema_resolve(sema, decl, decl->syntax->name.where);
    }
}

static void check_attentions(struct sema *sema, struct module *module,
                             struct spec *spec) {
    size_t count = 0;
    for (size_t i = 0; i < module->own.count; i++)
        count += module->own.data[i]->syntax->kind == SYN_ATTENTION;
    spec->attentions = ARENA_NEW_ARRAY(sema->arena, struct attention, count);
    for (size_t i = 0; i < module->own.count; i++) {
        struct decl *decl = module->own.data[i];
        if (decl->syntax->kind == SYN_ATTENTION)
            sema_attention(sema, decl,
                           &spec->attentions[spec->attention_count++]);
    }
}

/* What the file can see, in the order in which it came to see it. */
static void collect_definitions(struct sema *sema, const struct module *module,
                                struct spec *spec) {
    size_t count = module->seen.count;
    spec->fns = ARENA_NEW_ARRAY(sema->arena, const struct fn *, count);
    spec->externs = ARENA_NEW_ARRAY(sema->arena, const struct fn *, count);
    spec->consts =
        ARENA_NEW_ARRAY(sema->arena, const struct named_const *, count);
    for (size_t i = 0; i < count; i++) {
        const struct decl *decl = module->seen.data[i];
        if (decl->state != DECL_DONE)
            continue;
        if (decl->syntax->kind == SYN_CONST)
            spec->consts[spec->const_count++] = decl->constant;
        else if (decl->syntax->kind == SYN_FN)
            spec->fns[spec->fn_count++] = decl->fn;
        else
            spec->externs[spec->extern_count++] = decl->fn;
    }
}

struct spec *frontend_check(struct arena *arena, struct source_set *sources,
                            const struct source_file *file,
                            const struct frontend_options *options,
                            struct diag_sink *diags) {
    struct sema sema = {
        .arena = arena, .sources = sources, .diags = diags, .options = options};
    size_t errors_before = diag_error_count(diags);
    struct module *module = load_module(&sema, file);
    for (size_t i = 0; i < sema.modules.count; i++)
        resolve_module(&sema, sema.modules.data[i]);
    struct spec *spec = ARENA_NEW(arena, struct spec);
    spec->file = file;
    check_attentions(&sema, module, spec);
    collect_definitions(&sema, module, spec);
    return diag_error_count(diags) > errors_before ? NULL : spec;
}

struct spec *frontend_check_file(struct arena *arena,
                                 struct source_set *sources, const char *path,
                                 const struct frontend_options *options,
                                 struct diag_sink *diags) {
    const struct source_file *file = source_load(sources, path);
    if (file)
        return frontend_check(arena, sources, file, options, diags);
    diag_error(diags, SOURCE_NOWHERE, "cannot open '%s': %s",
               diag_name(diags, path), strerrordesc_np(errno));
    return NULL;
}

struct spec *frontend_check_text(struct arena *arena,
                                 struct source_set *sources, const char *name,
                                 const char *text, size_t length,
                                 const struct frontend_options *options,
                                 struct diag_sink *diags) {
    const struct source_file *file =
        source_add_text(sources, name, text, length);
    if (file)
        return frontend_check(arena, sources, file, options, diags);
    diag_error(diags, SOURCE_NOWHERE, "cannot read '%s': %s",
               diag_name(diags, name), strerrordesc_np(errno));
    return NULL;
}

bool frontend_override_schedule(struct arena *arena, struct source_set *sources,
                                const struct spec *spec, const char *text,
                                struct schedule *schedule,
                                struct diag_sink *diags) {
    size_t errors_before = diag_error_count(diags);
    const struct source_file *file =
        source_add_text(sources, "--schedule", text, strlen(text));
    if (!file) {
        diag_error(diags, SOURCE_NOWHERE, "the text of --schedule is too long");
        return false;
    }
    struct sema sema = {.arena = arena, .sources = sources, .diags = diags};
    struct module module = {.source = file};
    for (size_t i = 0; spec && i < spec->const_count; i++) {
        struct syn_decl *syntax = ARENA_NEW(arena, struct syn_decl);
        syntax->kind = SYN_CONST;
        syntax->name =
            (struct syn_name){spec->consts[i]->name, spec->consts[i]->where};
        struct decl *decl = ARENA_NEW(arena, struct decl);
        *decl = (struct decl){
            .syntax = syntax, .module = &module, .state = DECL_DONE};
        decl->constant = ARENA_NEW(arena, struct named_const);
        *decl->constant = *spec->consts[i];
        see(&sema, &module, decl);
    }
    struct env env = {.kind = ENV_CONST, .module = &module};
    struct schedule merged = *schedule;
    struct syn_file *syntax = syntax_parse_schedule(arena, file, diags);
    sema_schedule(&sema, &env, &syntax->entries, &merged);
    if (diag_error_count(diags) > errors_before)
        return false;
    *schedule = merged;
    return true;
}
