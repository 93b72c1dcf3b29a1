/* attnc check: every diagnostic of every file; goes on after one that cannot be
 * read or has errors. */
#include <stdio.h>

#include "compiler/compile.h"
#include "tools/commands.h"
#include "tools/facts.h"

/* Front end and planner for one file; messages stay in the sink.  STATUS_USAGE
 * when
 * --schedule is malformed. */
static int check_file(struct session *session, const char *path,
                      const struct spec **out_spec) {
    const struct options *o = session->options;
    *out_spec = NULL;
    const struct spec *spec =
        frontend_check_file(session->arena, session->sources, path,
                            &session->frontend, session->diags);
    if (!spec)
        return STATUS_FAILED;
    if (session_check_schedule(session, spec) != STATUS_OK)
        return STATUS_USAGE;
    size_t count = o->targets.count ? o->targets.count : 1;
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        const char *target = o->targets.count ? o->targets.data[i] : NULL;
        ok = compile_check(session->arena, session->sources, spec, target,
                           o->schedule, session->diags) &&
             ok;
    }
    *out_spec = ok ? spec : NULL;
    return ok ? STATUS_OK : STATUS_FAILED;
}

static void print_facts(struct json *json, struct session *session,
                        const char *path, const struct spec *spec) {
    json_open(json, '{');
    json_pair_string(json, "file", path);
    json_pair_bool(json, "ok", spec != NULL);
    json_key(json, "attentions");
    json_open(json, '[');
    for (size_t i = 0; spec && i < spec->attention_count; i++)
        json_string(json, spec->attentions[i].name);
    json_close(json, ']');
    json_key(json, "diagnostics");
    json_diags(json, session->diags);
    json_close(json, '}');
}

int command_check(struct session *session) {
    const struct options *o = session->options;
    int status = STATUS_OK;
    struct json json;
    json_init(&json, session->arena);
    json_open(&json, '[');
    for (size_t i = 0; i < o->files.count; i++) {
        const struct spec *spec;
        int found = check_file(session, o->files.data[i], &spec);
        if (found == STATUS_USAGE)
            return found;
        status = found == STATUS_OK ? status : found;
        if (o->json)
            print_facts(&json, session, o->files.data[i], spec);
        else
            session_report(session);
        session_forget(session);
        if (spec)
            session_say(session, "%s: %zu attentions, no errors",
                        o->files.data[i], spec->attention_count);
    }
    json_close(&json, ']');
    if (o->json && json_print(&json, session) != STATUS_OK)
        return STATUS_FAILED;
    return status;
}
