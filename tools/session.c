/* Loading, messages and files for all commands. */
#include "tools/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void session_forget(struct session *session) {
    session->diags = diag_sink_create(session->arena, session->sources);
    for (size_t i = 0; i < session->options->silenced.count; i++)
        diag_silence(session->diags, session->options->silenced.data[i]);
}

struct session session_create(struct arena *arena,
                              const struct options *options) {
    struct session session = {
        .arena = arena,
        .options = options,
        .sources = source_set_create(arena),
        .frontend = {options->include_dirs.data, options->include_dirs.count},
    };
    session_forget(&session);
    return session;
}

/* NO_COLOR (no-color.org) and a stream that is no terminal switch colour
 * off. */
static bool use_colour(const struct options *options) {
    if (options->color != COLOR_AUTO)
        return options->color == COLOR_ALWAYS;
    const char *no_color = getenv("NO_COLOR");
    return isatty(STDERR_FILENO) && !(no_color && *no_color);
}

int session_report(struct session *session) {
    int status = diag_error_count(session->diags) ? STATUS_FAILED : STATUS_OK;
    if (diag_first(session->diags))
        diag_print(session->diags, use_colour(session->options), stderr);
    session_forget(session);
    return status;
}

int session_fail(struct session *session, int status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    diag_verror(session->diags, SOURCE_NOWHERE, format, args);
    va_end(args);
    session_report(session);
    return status;
}

void session_say(const struct session *session, const char *format, ...) {
    if (!session->options->verbose)
        return;
    va_list args;
    va_start(args, format);
    fputs("attnc: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

const char *session_suggestion(const struct session *session, const char *word,
                               const char *const *candidates, size_t count) {
    const char *closest = diag_closest(word, candidates, count);
    return closest
               ? arena_printf(session->arena, "; did you mean '%s'?", closest)
               : "";
}

/* The attention that --entry names, or the only one.  Which attention a file
 * has is the command line's business, hence STATUS_USAGE. */
static int find_attention(struct session *session, const struct spec *spec,
                          const struct attention **out) {
    const char *entry = session->options->entry, *path = spec->file->path;
    size_t count = spec->attention_count;
    const char **names = ARENA_NEW_ARRAY(session->arena, const char *, count);
    struct strbuf list;
    strbuf_init(&list, session->arena);
    for (size_t i = 0; i < count; i++) {
        names[i] = spec->attentions[i].name;
        strbuf_printf(&list, "%s%s", i ? ", " : "",
                      diag_name(session->diags, names[i]));
    }
    if (count == 0)
        return session_fail(
            session, STATUS_FAILED,
            "'%s' is a library: it holds no attention to compile", path);
    if (!entry && count > 1)
        return session_fail(
            session, STATUS_USAGE,
            "'%s' holds several attentions, choose one with --entry: %s", path,
            strbuf_text(&list));
    *out = entry ? ast_find_attention(spec, entry) : &spec->attentions[0];
    if (!*out)
        return session_fail(session, STATUS_USAGE,
                            "'%s' holds no attention '%s'%s (it has: %s)", path,
                            diag_name(session->diags, entry),
                            session_suggestion(session, entry, names, count),
                            strbuf_text(&list));
    return STATUS_OK;
}

int session_check_schedule(struct session *session, const struct spec *spec) {
    if (!session->options->schedule)
        return STATUS_OK;
    struct diag_sink *messages_so_far = session->diags;
    struct schedule scratch = {0};
    session_forget(session);
    bool ok = frontend_override_schedule(session->arena, session->sources, spec,
                                         session->options->schedule, &scratch,
                                         session->diags);
    if (!ok)
        session_report(session);
    session->diags = messages_so_far;
    return ok ? STATUS_OK : STATUS_USAGE;
}

int session_load(struct session *session, const struct spec **out_spec,
                 const struct attention **out_attention) {
    return session_load_file(session, session->options->files.data[0], out_spec,
                             out_attention);
}

int session_load_file(struct session *session, const char *path,
                      const struct spec **out_spec,
                      const struct attention **out_attention) {
    *out_spec = frontend_check_file(session->arena, session->sources, path,
                                    &session->frontend, session->diags);
    int status = session_report(session);
    if (!*out_spec || status != STATUS_OK)
        return STATUS_FAILED;
    status = session_check_schedule(session, *out_spec);
    return status != STATUS_OK
               ? status
               : find_attention(session, *out_spec, out_attention);
}

int session_write(struct session *session, const char *path, const void *bytes,
                  size_t length) {
    bool standard = strcmp(path, "-") == 0;
    FILE *stream = standard ? stdout : fopen(path, "wb");
    if (!stream)
        return session_fail(session, STATUS_FAILED, "cannot open '%s': %s",
                            path, strerror(errno));
    bool ok = (length == 0 || fwrite(bytes, length, 1, stream) == 1) &&
              fflush(stream) == 0;
    int error = errno;
    if (!standard && fclose(stream) != 0 && ok) {
        ok = false;
        error = errno;
    }
    return ok ? STATUS_OK
              : session_fail(session, STATUS_FAILED, "cannot write '%s': %s",
                             path, strerror(error));
}

double session_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
