/* Statuses: success is NULL, texts are kept, wrapping puts a prefix in
 * front. */
#include <criterion/criterion.h>

#include <string.h>

#include "runtime/status.h"

Test(status, null_is_success) {
    cr_assert_eq(attn_status_code(NULL), ATTN_OK);
    cr_assert_str_eq(attn_status_text(NULL), "ok");
    cr_assert_str_eq(attn_status_origin(NULL), "");
    attn_status_destroy(NULL);
}

Test(status, keeps_code_text_and_origin) {
    struct attn_status *status =
        RT_FAIL(ATTN_IO, "cannot open '%s': %d\n\n", "x", 2);
    cr_assert_eq(attn_status_code(status), ATTN_IO);
    cr_assert_str_eq(attn_status_text(status), "cannot open 'x': 2");
    cr_assert_not_null(strstr(attn_status_origin(status), "test_status.c:"));
    attn_status_destroy(status);
}

Test(status, wrap_prefixes_and_keeps_the_origin) {
    struct attn_status *cause =
        rt_status_create(ATTN_CUDA, "somewhere.c", 7, "boom");
    struct attn_status *status =
        rt_status_wrap(cause, "kernel '%s': ", "attend");
    cr_assert_eq(attn_status_code(status), ATTN_CUDA);
    cr_assert_str_eq(attn_status_text(status), "kernel 'attend': boom");
    cr_assert_str_eq(attn_status_origin(status), "somewhere.c:7");
    attn_status_destroy(status);
}

static struct attn_status *passes_on(bool bad) {
    RT_TRY(bad ? RT_FAIL(ATTN_INVALID_ARGUMENT, "bad") : NULL);
    return RT_FAIL(ATTN_IO, "reached");
}

Test(status, try_returns_only_failures) {
    struct attn_status *status = passes_on(true);
    cr_assert_str_eq(attn_status_text(status), "bad");
    attn_status_destroy(status);
    status = passes_on(false);
    cr_assert_str_eq(attn_status_text(status), "reached");
    attn_status_destroy(status);
}

Test(status, long_texts_are_not_cut) {
    char long_text[5000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    struct attn_status *status = RT_FAIL(ATTN_TOOLKIT, "%s", long_text);
    cr_assert_str_eq(attn_status_text(status), long_text);
    attn_status_destroy(status);
}
