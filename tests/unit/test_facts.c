/* The JSON writer. */
#include <criterion/criterion.h>
#include <math.h>

#include "support/arena.h"
#include "tools/facts.h"

Test(facts, nesting_and_values) {
    struct arena *arena = arena_create();
    struct json json;
    json_init(&json, arena);
    json_open(&json, '{');
    json_pair_string(&json, "text", "a \"b\"\n\\ \xff");
    json_pair_string(&json, "nothing", NULL);
    json_pair_integer(&json, "lowest", INT64_MIN);
    json_pair_bool(&json, "yes", true);
    json_key(&json, "list");
    json_open(&json, '[');
    json_integer(&json, 1);
    json_real(&json, 0.1);
    json_open(&json, '[');
    json_close(&json, ']');
    json_open(&json, '{');
    json_close(&json, '}');
    json_close(&json, ']');
    json_key(&json, "raw");
    json_raw(&json, "{\"x\": 1}");
    json_close(&json, '}');
    cr_expect_str_eq(json_text(&json),
                     "{\n"
                     "  \"text\": \"a \\\"b\\\"\\n\\\\ \\ufffd\",\n"
                     "  \"nothing\": null,\n"
                     "  \"lowest\": -9223372036854775808,\n"
                     "  \"yes\": true,\n"
                     "  \"list\": [\n"
                     "    1,\n"
                     "    0.1,\n"
                     "    [],\n"
                     "    {}\n"
                     "  ],\n"
                     "  \"raw\": {\"x\": 1}\n"
                     "}");
    arena_destroy(arena);
}

Test(facts, numbers_that_json_lacks) {
    struct arena *arena = arena_create();
    struct json json;
    json_init(&json, arena);
    json_open(&json, '[');
    json_real(&json, NAN);
    json_real(&json, INFINITY);
    json_real(&json, -INFINITY);
    json_close(&json, ']');
    cr_expect_str_eq(json_text(&json), "[\n  null,\n  1e999,\n  -1e999\n]");
    arena_destroy(arena);
}
