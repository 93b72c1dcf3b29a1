/* Specs as the tests use them: read from specs/, with dtype and head_dim
 * replaced in the text where a test wants others. */
#ifndef ATTN_TESTS_E2E_LOAD_H
#define ATTN_TESTS_E2E_LOAD_H

#include <stdbool.h>

#include "frontend/frontend.h"

/* A checked spec with what belongs to it. */
struct loaded {
    struct arena *arena; /* borrowed */
    struct source_set *sources;
    struct diag_sink *diags;
    const char *name; /* of the file, for messages */
    const char *text; /* after the replacements */
    const struct spec *spec;
    const struct attention *attention; /* the only one of the file */
};

/* What to replace; zero: nothing. */
struct load_changes {
    const char *dtype;    /* "f16" */
    const char *head_dim; /* "64" or "192, 128" */
    const char *group;    /* "any" */
};

/* Whole text of a file in the arena; NULL when it cannot be read. */
char *load_text(struct arena *arena, const char *path);

/* `text` with the values of the items replaced; the items must be there. */
char *load_replace(struct arena *arena, const char *text,
                   const struct load_changes *changes);

/* Checks a text.  False after printing its diagnostics to standard error. */
bool load_spec_text(struct arena *arena, const char *name, const char *text,
                    struct loaded *out_loaded);

/* Reads DIR/NAME.attn, changes it and checks it; false after a message. */
bool load_spec(struct arena *arena, const char *dir, const char *name,
               const struct load_changes *changes, struct loaded *out_loaded);

#endif
