/* What all commands share: arena, sources, messages, and loading a spec the way
 * the options say. */
#ifndef ATTN_TOOLS_SESSION_H
#define ATTN_TOOLS_SESSION_H

#include "frontend/frontend.h"
#include "support/diag.h"
#include "tools/options.h"

struct session {
    struct arena *arena; /* borrowed; lives until the program ends */
    const struct options *options;
    struct source_set *sources;
    struct diag_sink *diags;
    struct frontend_options frontend;
};

/* A session for parsed options; silences the warnings of -Wno-NAME. */
struct session session_create(struct arena *arena,
                              const struct options *options);

/* Prints the messages collected so far on standard error and forgets them.
 * Returns STATUS_FAILED if there were errors, else STATUS_OK. */
int session_report(struct session *session);

/* Forgets the messages collected so far without printing them. */
void session_forget(struct session *session);

/* Reports a message without a place ("attnc: error: ...") at once; returns
 * `status`. */
int session_fail(struct session *session, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A line on standard error if -v was given. */
void session_say(const struct session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads and checks the one input file and finds the attention that --entry
 * names. A status other than OK was reported. */
int session_load(struct session *session, const struct spec **out_spec,
                 const struct attention **out_attention);

/* The same for one of several files. */
int session_load_file(struct session *session, const char *path,
                      const struct spec **out_spec,
                      const struct attention **out_attention);

/* Checks the form of --schedule against a spec: STATUS_USAGE after an error in
 * it, which is printed at once. */
int session_check_schedule(struct session *session, const struct spec *spec);

/* "; did you mean 'x'?" or "", in the arena. */
const char *session_suggestion(const struct session *session, const char *word,
                               const char *const *candidates, size_t count);

/* Writes a whole file ("-": standard output); STATUS_FAILED after a message. */
int session_write(struct session *session, const char *path, const void *bytes,
                  size_t length);

/* Seconds of a clock that only goes forward. */
double session_clock(void);

#endif
