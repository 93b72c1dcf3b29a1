/* attnc fmt: canonical layout, to standard output, in place, or only checked. A
 * file with errors is left alone. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/format.h"
#include "tools/commands.h"

/* The canonical text of a file; NULL after errors, which are reported. */
static const char *format_file(struct session *session, const char *path,
                               const struct source_file **out_file,
                               size_t *out_length) {
    const char *text = NULL;
    const struct spec *spec =
        frontend_check_file(session->arena, session->sources, path,
                            &session->frontend, session->diags);
    if (spec) {
        *out_file = spec->file;
        text = format_source(session->arena, spec->file, session->diags,
                             out_length);
    }
    if (diag_error_count(session->diags))
        session_report(session);
    session_forget(session); /* warnings are for check */
    return text;
}

/* Replaces a file in one step, so that a crash leaves the old or the new text;
 * its mode is kept, and a symbolic link stays one. */
static int replace_file(struct session *session, const struct source_file *file,
                        const char *text, size_t length) {
    char *temporary =
        arena_printf(session->arena, "%s.fmt-%ld", file->real, (long)getpid());
    struct stat old;
    int status = session_write(session, temporary, text, length);
    if (status != STATUS_OK)
        return status;
    bool ok = stat(file->real, &old) == 0 &&
              chmod(temporary, old.st_mode & 07777) == 0 &&
              rename(temporary, file->real) == 0;
    if (ok)
        return STATUS_OK;
    int error = errno;
    unlink(temporary);
    return session_fail(session, STATUS_FAILED, "cannot replace '%s': %s",
                        file->path, strerror(error));
}

/* Byte for byte: trailing blanks and line ends count. */
static bool is_canonical(const struct source_file *file, const char *text,
                         size_t length) {
    return file->length == length && memcmp(file->text, text, length) == 0;
}

/* Prints, checks or rewrites; a file that is right already is not touched. */
static int fmt_file(struct session *session, const char *path) {
    const struct options *o = session->options;
    const struct source_file *file;
    size_t length;
    const char *text = format_file(session, path, &file, &length);
    if (!text)
        return STATUS_FAILED;
    if (!o->in_place && !o->check)
        return session_write(session, "-", text, length);
    if (is_canonical(file, text, length)) {
        session_say(session, "%s: unchanged", path);
        return STATUS_OK;
    }
    if (o->check) {
        printf("%s: not in canonical form\n", path);
        return STATUS_FAILED;
    }
    session_say(session, "%s: rewritten", path);
    return replace_file(session, file, text, length);
}

int command_fmt(struct session *session) {
    const struct options *o = session->options;
    int status = STATUS_OK;
    for (size_t i = 0; i < o->files.count; i++) {
        if (o->in_place && strcmp(o->files.data[i], "-") == 0)
            return session_fail(session, STATUS_USAGE,
                                "-i cannot rewrite standard input");
        if (fmt_file(session, o->files.data[i]) != STATUS_OK)
            status = STATUS_FAILED;
    }
    return status;
}
