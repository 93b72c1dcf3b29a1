/* A folder of its own for each test of a suite: `.init = folder_create,
 * .fini = folder_remove`. */
#ifndef ATTN_TESTS_UNIT_FOLDER_H
#define ATTN_TESTS_UNIT_FOLDER_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Its path, without a slash at the end. */
static char folder[64];

/* Makes an empty folder. */
static inline void folder_create(void) {
    strcpy(folder, "/tmp/attn-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

/* Removes it with all that is in it. */
static inline void folder_remove(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

#endif
