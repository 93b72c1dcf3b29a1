/* Facts for programs: a small writer of JSON on top of strbuf, and the JSON
 * forms that several commands print. */
#ifndef ATTN_TOOLS_FACTS_H
#define ATTN_TOOLS_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "frontend/ast.h"
#include "support/diag.h"
#include "support/strbuf.h"
#include "tools/session.h"

/* A JSON text being written.  Values go where the writer stands: after
 * json_key inside an object, as the next element inside an array. */
struct json {
    struct strbuf text;
    int depth;
    uint64_t
        nonempty; /* bit d: the object or array at depth d has an element */
    bool after_key;
};

/* An empty text in the arena; at most 60 levels deep. */
void json_init(struct json *json, struct arena *arena);

/* Starts an object '{' or an array '['. */
void json_open(struct json *json, char bracket);

/* Ends it with the matching '}' or ']'. */
void json_close(struct json *json, char bracket);

/* Key of the next value, inside an object. */
void json_key(struct json *json, const char *key);

/* A string; NULL writes null. */
void json_string(struct json *json, const char *text);

/* A whole number. */
void json_integer(struct json *json, int64_t value);

/* Nine digits; NaN is null, infinities are 1e999 and -1e999, which read back as
 * such. */
void json_real(struct json *json, double value);

/* A finished JSON text as one value. */
void json_raw(struct json *json, const char *text);

/* Key and string. */
void json_pair_string(struct json *json, const char *key, const char *text);

/* Key and whole number. */
void json_pair_integer(struct json *json, const char *key, int64_t value);

/* Key and truth value. */
void json_pair_bool(struct json *json, const char *key, bool value);

/* Key and number. */
void json_pair_real(struct json *json, const char *key, double value);

/* The finished text, without a newline at its end. */
const char *json_text(const struct json *json);

/* Writes the finished text and a newline to standard output; an exit status. */
int json_print(const struct json *json, struct session *session);

/* An array of the sink's messages: severity, file, line, column, end, message,
 * warning name, notes. */
void json_diags(struct json *json, const struct diag_sink *sink);

/* The sizes of a call as an object, {"batch": 1, ...}. */
void json_sizes(struct json *json, const int64_t sizes[SIZE_COUNT]);

#endif
