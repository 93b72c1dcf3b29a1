/* Entry points of the front end: .attn text to checked spec.
 *
 * Re-entrant and without global state.  Faults in the text go to the diag sink;
 * nothing here prints or exits.
 */
#ifndef ATTN_FRONTEND_FRONTEND_H
#define ATTN_FRONTEND_FRONTEND_H

#include <stdbool.h>
#include <stddef.h>

#include "frontend/ast.h"
#include "support/diag.h"

struct frontend_options {
    const char *const *include_dirs; /* -I folders in order */
    size_t include_dir_count;
};

/* Checks a file of `sources`.  Returns the spec, or NULL when at least one
 * error was reported.  `options` may be NULL. */
struct spec *frontend_check(struct arena *arena, struct source_set *sources,
                            const struct source_file *file,
                            const struct frontend_options *options,
                            struct diag_sink *diags);

/* Reads and checks a file; one that cannot be opened is an error without a
 * place ("cannot open 'x': reason"). */
struct spec *frontend_check_file(struct arena *arena,
                                 struct source_set *sources, const char *path,
                                 const struct frontend_options *options,
                                 struct diag_sink *diags);

/* Checks a text from memory, called `name` in messages. */
struct spec *frontend_check_text(struct arena *arena,
                                 struct source_set *sources, const char *name,
                                 const char *text, size_t length,
                                 const struct frontend_options *options,
                                 struct diag_sink *diags);

/* Applies the text of --schedule ("tile 128, 128; stages 2") to a schedule: the
 * keys that it gives replace those of the file.  Constants of `spec` may be
 * used (NULL: none).  False when errors were reported; the schedule is then as
 * it was. */
bool frontend_override_schedule(struct arena *arena, struct source_set *sources,
                                const struct spec *spec, const char *text,
                                struct schedule *schedule,
                                struct diag_sink *diags);

/* True for the name of a target that the language knows ("sm_80"). */
bool frontend_target_is_known(const char *name);

/* Names of the known targets, NULL-terminated. */
const char *const *frontend_targets(void);

/* Names of all warnings, as in -Wno-NAME, NULL-terminated. */
const char *const *frontend_warnings(void);

#endif
