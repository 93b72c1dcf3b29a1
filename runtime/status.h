/* Errors of the world (CUDA, files, wrong arguments): made where they happen,
 * returned upwards unchanged.  NULL is success.  The public attn_status is the
 * same object. */
#ifndef ATTN_RUNTIME_STATUS_H
#define ATTN_RUNTIME_STATUS_H

#include "attn.h"

/* A new status with a formatted text.  Never NULL: without memory it is a
 * constant that says so. */
struct attn_status *rt_status_create(enum attn_code code, const char *file,
                                     int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A status with a prefix put before the text of `cause`, which it ends. */
struct attn_status *rt_status_wrap(struct attn_status *cause,
                                   const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define RT_FAIL(code, ...) \
    rt_status_create((code), __FILE__, __LINE__, __VA_ARGS__)

/* Returns from the calling function when `expression` fails. */
#define RT_TRY(expression)                                \
    do {                                                  \
        struct attn_status *rt_try_status = (expression); \
        if (rt_try_status != NULL)                        \
            return rt_try_status;                         \
    } while (0)

#endif
