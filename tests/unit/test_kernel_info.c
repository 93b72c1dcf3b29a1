/* kernel_info: expressions against C's arithmetic, the stored form and its
 * reader. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "sample_info.h"
#include "support/strbuf.h"

static struct arena *arena;
static void setup(void) {
    arena = arena_create();
}
static void teardown(void) {
    arena_destroy(arena);
}
TestSuite(kernel_info, .init = setup, .fini = teardown);

static const uint32_t bits[] = {7, 0, (uint32_t)-3};
static const struct size_env env = {.sizes = {2, 8, 4, 1000, 77},
                                    .scalars = bits,
                                    .scalar_count = 3,
                                    .sm_count = 132};

/* a op b, both constants; `good` says whether it may succeed. */
static int64_t compute(enum size_op op, int64_t a, int64_t b, bool *good) {
    struct size_expr expr = {0};
    int64_t value = 0;
    size_expr_push(arena, &expr, SIZE_OP_CONST, a);
    if (size_op_operand_count(op) == 2)
        size_expr_push(arena, &expr, SIZE_OP_CONST, b);
    size_expr_push(arena, &expr, op, 0);
    *good = size_expr_eval(&expr, &env, &value);
    return value;
}

Test(kernel_info, binary_operations) {
    static const struct {
        enum size_op op;
        int64_t a, b, want;
    } rows[] = {
        {SIZE_OP_ADD, 3, -5, -2},      {SIZE_OP_SUB, 3, -5, 8},
        {SIZE_OP_MUL, -3, 5, -15},     {SIZE_OP_FLOORDIV, -7, 2, -4},
        {SIZE_OP_FLOORDIV, 7, -2, -4}, {SIZE_OP_FLOORMOD, -7, 3, 2},
        {SIZE_OP_FLOORMOD, 7, -3, -2}, {SIZE_OP_CEILDIV, 7, 2, 4},
        {SIZE_OP_CEILDIV, -7, 2, -3},  {SIZE_OP_CEILDIV, 8, 2, 4},
        {SIZE_OP_MIN, 3, -5, -5},      {SIZE_OP_MAX, 3, -5, 3},
        {SIZE_OP_AND, 12, 10, 8},      {SIZE_OP_OR, 12, 10, 14},
        {SIZE_OP_XOR, 12, 10, 6},      {SIZE_OP_SHL, 3, 33, 6},
        {SIZE_OP_SHR, -8, 1, -4},      {SIZE_OP_LT, 1, 2, 1},
        {SIZE_OP_LE, 2, 2, 1},         {SIZE_OP_EQ, 2, 3, 0},
        {SIZE_OP_NE, 2, 3, 1},         {SIZE_OP_NEG, 5, 0, -5},
        {SIZE_OP_NOT, 5, 0, -6},       {SIZE_OP_ABS, -5, 0, 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool good = false;
        int64_t got = compute(rows[i].op, rows[i].a, rows[i].b, &good);
        cr_assert(good && got == rows[i].want, "%s %ld %ld gave %ld",
                  size_op_text(rows[i].op), (long)rows[i].a, (long)rows[i].b,
                  (long)got);
    }
}

Test(kernel_info, evaluation_fails_instead_of_wrapping) {
    static const struct {
        enum size_op op;
        int64_t a, b;
    } rows[] = {
        {SIZE_OP_FLOORDIV, 1, 0},    {SIZE_OP_FLOORMOD, 1, 0},
        {SIZE_OP_CEILDIV, 1, 0},     {SIZE_OP_FLOORDIV, INT64_MIN, -1},
        {SIZE_OP_ADD, INT64_MAX, 1}, {SIZE_OP_SUB, INT64_MIN, 1},
        {SIZE_OP_MUL, INT64_MAX, 2}, {SIZE_OP_SHL, INT64_MAX, 1},
        {SIZE_OP_NEG, INT64_MIN, 0}, {SIZE_OP_ABS, INT64_MIN, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool good = true;
        int64_t value = compute(rows[i].op, rows[i].a, rows[i].b, &good);
        cr_assert(!good && value == 0, "%s %ld %ld", size_op_text(rows[i].op),
                  (long)rows[i].a, (long)rows[i].b);
    }
}

Test(kernel_info, leaves_and_select) {
    struct size_expr expr = {0};
    int64_t value = 0;
    /* kv_len < q_len ? param 2 : sm_count */
    size_expr_push(arena, &expr, SIZE_OP_SIZE, SIZE_KV_LEN);
    size_expr_push(arena, &expr, SIZE_OP_SIZE, SIZE_Q_LEN);
    size_expr_push(arena, &expr, SIZE_OP_LT, 0);
    size_expr_push(arena, &expr, SIZE_OP_PARAM, 2);
    size_expr_push(arena, &expr, SIZE_OP_SM_COUNT, 0);
    size_expr_push(arena, &expr, SIZE_OP_SELECT, 0);
    cr_assert(size_expr_eval(&expr, &env, &value));
    cr_assert_eq(value, -3);
    struct size_expr empty = {0};
    cr_assert(size_expr_eval(&empty, &env, &value));
    cr_assert_eq(value, 0);
}

Test(kernel_info, malformed_code_is_refused) {
    static struct size_step deep[SIZE_EXPR_MAX_DEPTH + 1];
    struct size_step missing[] = {{SIZE_OP_CONST, 1}, {SIZE_OP_ADD, 0}};
    struct size_step leftover[] = {{SIZE_OP_CONST, 1}, {SIZE_OP_CONST, 1}};
    struct size_step unknown[] = {{(enum size_op)99, 1}};
    struct size_step size[] = {{SIZE_OP_SIZE, SIZE_COUNT}};
    struct size_step param[] = {{SIZE_OP_PARAM, 3}};
    struct size_expr exprs[] = {{deep, SIZE_EXPR_MAX_DEPTH + 1},
                                {missing, 2},
                                {leftover, 2},
                                {unknown, 1},
                                {size, 1},
                                {param, 1}};
    for (size_t i = 0; i < sizeof exprs / sizeof *exprs; i++) {
        int64_t value = 1;
        cr_assert(!size_expr_eval(&exprs[i], &env, &value), "case %zu", i);
        struct kernel_info *info = sample_info(arena);
        info->workspace_bytes = exprs[i];
        cr_assert_not_null(kernel_info_check(info, arena), "case %zu", i);
    }
}

Test(kernel_info, prints_c) {
    struct kernel_info *info = sample_info(arena);
    struct strbuf text;
    strbuf_init(&text, arena);
    size_expr_print_c(&info->entries[SAMPLE_SUMMARY].grid_x, info, &text);
    cr_assert_str_eq(text.data, "attn_ceildiv(kv_len, 64) * batch");
    strbuf_clear(&text);
    size_expr_print_c(&info->tensors[SAMPLE_DOC].extents[1], info, &text);
    cr_assert_str_eq(text.data, "kv_len + attn_floordiv(window, 16)");
    strbuf_clear(&text);
    struct size_expr chain = size_expr_size(arena, SIZE_BATCH);
    size_expr_push(arena, &chain, SIZE_OP_SIZE, SIZE_HEADS);
    size_expr_push(arena, &chain, SIZE_OP_MUL, 0);
    size_expr_push(arena, &chain, SIZE_OP_CONST, 4);
    size_expr_push(arena, &chain, SIZE_OP_MUL, 0);
    size_expr_print_c(&chain, info, &text);
    cr_assert_str_eq(text.data, "batch * heads * 4");
    strbuf_clear(&text);
    struct size_expr expr = {0};
    size_expr_push(arena, &expr, SIZE_OP_SIZE, SIZE_HEADS);
    size_expr_push(arena, &expr, SIZE_OP_CONST, 2);
    size_expr_push(arena, &expr, SIZE_OP_SUB, 0);
    size_expr_push(arena, &expr, SIZE_OP_NEG, 0);
    size_expr_push(arena, &expr, SIZE_OP_CONST, 5000000000);
    size_expr_push(arena, &expr, SIZE_OP_CONST, -1);
    size_expr_push(arena, &expr, SIZE_OP_SELECT, 0);
    size_expr_print_c(&expr, info, &text);
    cr_assert_str_eq(text.data, "(-(heads - 2)) ? INT64_C(5000000000) : -1");
}

static char *stored(const struct kernel_info *info) {
    struct strbuf text;
    strbuf_init(&text, arena);
    kernel_info_write(info, &text);
    return strbuf_take(&text);
}

Test(kernel_info, stored_form_round_trips) {
    struct kernel_info read;
    char *text = stored(sample_info(arena));
    cr_assert_null(kernel_info_read(text, strlen(text), arena, &read));
    cr_assert_str_eq(stored(&read), text);
    cr_assert_str_eq(read.entries[SAMPLE_ATTEND].name, "attend");
    cr_assert_eq(read.entries[SAMPLE_ATTEND].shared_bytes, 65536);
    cr_assert(!read.entries[SAMPLE_SUMMARY].programmatic);
    cr_assert(read.entries[SAMPLE_ATTEND].programmatic);
    cr_assert_eq(read.tensors[SAMPLE_UNUSED].used, 0);
}

Test(kernel_info, conditional_entries_round_trip) {
    struct kernel_info read;
    char *text = stored(sample_info_with_second(arena));
    cr_assert_null(kernel_info_read(text, strlen(text), arena, &read));
    cr_assert_str_eq(stored(&read), text);
    cr_assert_eq(read.entry_count, SAMPLE_SECOND + 1);
    for (size_t i = 0; i < read.entry_count; i++)
        cr_assert_eq(read.entries[i].conditional, i != SAMPLE_SUMMARY);
    struct strbuf json;
    strbuf_init(&json, arena);
    kernel_info_print_json(&read, &json);
    const char *last = strstr(json.data, "\"name\": \"attend$tile_64x64\"");
    cr_assert_not_null(last);
    cr_assert_not_null(
        strstr(last, "(q_len <= 64)\", \"conditional\": true, "));
    const char *first = strstr(json.data, "\"name\": \"attend\"");
    cr_assert_not_null(first);
    cr_assert_not_null(strstr(first, "(64 < q_len)\", \"conditional\": true, "
                                     "\"programmatic\": true,\n"));
}

Test(kernel_info, reader_names_the_line) {
    struct kernel_info read;
    const char *text =
        "attn-kernel-info 3\nattention x sm_80 bf17 64 64 0 1 1\n";
    const char *fault = kernel_info_read(text, strlen(text), arena, &read);
    cr_assert_str_eq(fault, "line 2: expected a type, found 'bf17'");
}

/* The longest names the language allows, and an entry made of two of them. */
Test(kernel_info, longest_names_round_trip) {
    struct kernel_info *info = sample_info(arena), read;
    char *name = arena_alloc(arena, 256);
    memset(name, 'n', 255);
    info->name = info->tensors[SAMPLE_DOC].name = name;
    info->entries[0].name = arena_printf(arena, "%s$summary_%s_1", name, name);
    char *text = stored(info);
    cr_assert_null(kernel_info_read(text, strlen(text), arena, &read));
    cr_assert_str_eq(read.entries[0].name, info->entries[0].name);
}

/* Every truncation is an error: the form ends with a mark. */
Test(kernel_info, truncated_text_is_refused) {
    struct kernel_info read;
    char *text = stored(sample_info(arena));
    for (size_t length = 0; length < strlen(text); length++)
        cr_assert_not_null(kernel_info_read(text, length, arena, &read),
                           "%zu bytes", length);
}

/* Bytes changed at random: an error, or something that passes every check. */
Test(kernel_info, damaged_text_never_gives_an_unchecked_result) {
    char *text = stored(sample_info(arena));
    size_t length = strlen(text);
    unsigned seed = 1;
    for (int round = 0; round < 3000; round++) {
        struct arena *scratch = arena_create();
        char *copy = arena_strndup(scratch, text, length);
        for (int i = 0; i < 1 + round % 3; i++)
            copy[(size_t)rand_r(&seed) % length] =
                "0123456789 \nabz-\x80\0"[rand_r(&seed) % 18];
        struct kernel_info read;
        if (kernel_info_read(copy, length, scratch, &read) == NULL) {
            cr_assert_null(kernel_info_check(&read, scratch));
            int64_t value = 0;
            size_expr_eval(&read.workspace_bytes, &env, &value);
        }
        cr_assert(arena_used(scratch) < 1 << 20);
        arena_destroy(scratch);
    }
}

/* What the check must find, one broken rule at a time. */
Test(kernel_info, check_finds_broken_rules) {
    struct kernel_info *info = sample_info(arena);
    info->entries[0].name = "window$summary";
    cr_assert_null(kernel_info_check(info, arena));
#define BROKEN(change)                                                  \
    do {                                                                \
        info = sample_info(arena);                                      \
        change;                                                         \
        cr_assert_not_null(kernel_info_check(info, arena), "%s passed", \
                           #change);                                    \
    } while (0)
    BROKEN(info->name = "two words");
    BROKEN(info->name = "");
    BROKEN(info->entries[0].name = "window.summary");
    BROKEN(info->tensors[SAMPLE_DOC].name = "a$b");
    BROKEN(info->dtype = SCALAR_F32);
    BROKEN(info->head_dim_qk = 0);
    BROKEN(info->entry_count = 0);
    BROKEN(info->tensors[0].name = "query");
    BROKEN(info->tensors[KERNEL_TENSOR_LSE].type = SCALAR_BF16);
    BROKEN(info->tensors[KERNEL_TENSOR_K].rank = 3);
    BROKEN(info->tensors[SAMPLE_DOC].name = "window");
    BROKEN(info->tensors[SAMPLE_DOC].rank = 9);
    BROKEN(info->scalars[SAMPLE_FLAG].default_bits = 2);
    BROKEN(info->scalars[SAMPLE_FLAG].type = SCALAR_F16);
    BROKEN(info->scalars[SAMPLE_WINDOW].type =
               SCALAR_F32); /* an extent reads it */
    BROKEN(info->tensor_maps[0].swizzle_bytes = 48);
    BROKEN(info->tensor_maps[0].panel_columns = 48);
    BROKEN(info->tensor_maps[0].heads = 0);
    BROKEN(info->tensor_maps[0].heads = 4); /* of k */
    BROKEN(info->tensor_maps[0].tensor = KERNEL_TENSOR_Q;
           info->tensor_maps[0].heads = 48);
    BROKEN(info->tensor_maps[0].tensor = KERNEL_TENSOR_V;
           info->tensor_maps[0].heads = 4);
    BROKEN(info->entries[0].threads = 1025);
    BROKEN(info->entries[0].params[0].index = SAMPLE_TENSORS);
    BROKEN(info->entries[0].params[2].axis = 2);
    BROKEN(info->entries[1].params[10].index = 1);
    BROKEN(info->entries[1].params[5].index = SIZE_COUNT);
#undef BROKEN
}

Test(kernel_info, json_names_everything) {
    struct strbuf text;
    strbuf_init(&text, arena);
    kernel_info_print_json(sample_info(arena), &text);
    const char *needles[] = {
        "\"name\": \"sample\"",
        "{\"name\": \"doc\", \"type\": \"i32\", \"used\": true, "
        "\"extents\": [\"batch\", \"kv_len + attn_floordiv(window, 16)\"]}",
        "{\"name\": \"window\", \"type\": \"i32\", \"used\": true, "
        "\"default\": 64}",
        "{\"kind\": \"stride\", \"bytes\": 8, \"tensor\": \"q\", \"axis\": 2}",
        "{\"kind\": \"tensor_map\", \"bytes\": 128, \"map\": 0}",
        "\"workspace_bytes\": \"256 + (attn_ceildiv(kv_len, 64) * 8)\"",
    };
    for (size_t i = 0; i < sizeof needles / sizeof *needles; i++)
        cr_assert(strstr(text.data, needles[i]) != NULL, "no %s in\n%s",
                  needles[i], text.data);
}
