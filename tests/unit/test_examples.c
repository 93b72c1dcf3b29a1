/* What newcomers copy must compile: examples/ and the C blocks of
 * docs/runtime.md; and the man page must know every option.  Runs in the
 * project's root folder. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/header_writer.h"
#include "runtime/toolkit.h"
#include "sample_info.h"

#define COMPILE "gcc -std=c17 -Wall -Wextra -Werror -Iinclude -fsyntax-only "

static struct arena *arena;
static void setup(void) {
    arena = arena_create();
}
static void teardown(void) {
    arena_destroy(arena);
}
TestSuite(examples, .init = setup, .fini = teardown);

static const char *read_text(const char *path) {
    struct strbuf text;
    strbuf_init(&text, arena);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    cr_assert(strbuf_read(&text, file, 1 << 20));
    fclose(file);
    return strbuf_text(&text);
}

static void run(const char *command) {
    cr_assert_eq(system(command), 0, "%s", command);
}

static const char *cuda_include(void) {
    struct strbuf path;
    strbuf_init(&path, arena);
    if (!rt_toolkit_include(&path))
        cr_skip_test("no cuda.h on this machine");
    return strbuf_text(&path);
}

Test(examples, sliding_window_compiles_and_is_short) {
    const char *include = cuda_include();
    int lines = 0;
    for (const char *at = read_text("examples/sliding_window.c"); *at != '\0';
         at++)
        lines += *at == '\n';
    cr_assert_lt(lines, 100);
    run(arena_printf(arena, COMPILE "-isystem %s examples/sliding_window.c",
                     include));
}

/* The header as the writer makes it, for an attention of the example's name. */
Test(examples, embedded_compiles_with_a_generated_header) {
    const char *include = cuda_include();
    char folder[] = "/tmp/attn-test-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    struct strbuf text;
    strbuf_init(&text, arena);
    struct kernel_info *info = sample_info(arena);
    info->name = "sliding_window";
    header_write(info, "cubin", 5, "sliding_window.attn", &text);
    const char *path = arena_printf(arena, "%s/sliding_window.h", folder);
    FILE *file = fopen(path, "w");
    fputs(text.data, file);
    fclose(file);
    run(arena_printf(arena, COMPILE "-I%s -isystem %s examples/embedded.c",
                     folder, include));
    unlink(path);
    rmdir(folder);
}

/* Every C block is the body of a function that has names to talk about. */
static const char prelude[] = "#include \"attn.h\"\n#include <stdio.h>\n"
                              "void *allocate_on_device(size_t bytes);\n";

Test(examples, blocks_of_the_manual_compile) {
    char folder[] = "/tmp/attn-test-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    const char *at = read_text("docs/runtime.md");
    int blocks = 0;
    while ((at = strstr(at, "\n```c\n")) != NULL) {
        at += strlen("\n```c\n");
        const char *end = strstr(at, "```");
        const char *path = arena_printf(arena, "%s/block.c", folder);
        char *body = arena_strndup(arena, at, (size_t)(end - at));
        FILE *file = fopen(path, "w");
        fputs(prelude, file);
        /* A block that declares a name itself does not get it from outside. */
        bool own_program = strstr(body, "struct attn_program *program") != NULL;
        bool own_q = strstr(body, "DLTensor q") != NULL;
        bool own_args = strstr(body, "struct attn_args args") != NULL;
        fprintf(file,
                "void block(struct attn_kernel *kernel, struct attn_program "
                "*%s, int64_t batch,\n"
                "           int64_t heads, int64_t q_len, void *q_data, "
                "DLTensor doc,\n"
                "           DLTensor tensors[4], struct CUstream_st *stream,\n"
                "           struct attn_args %s) {\n",
                own_program ? "given" : "program",
                own_args ? "given_args" : "args");
        if (!own_q)
            fputs("    DLTensor q = tensors[0], k = tensors[1], v = "
                  "tensors[2], o = tensors[3];\n",
                  file);
        fputs(body, file);
        fputs("}\n", file);
        fclose(file);
        run(arena_printf(arena,
                         COMPILE "-Wno-unused %s -Wno-unused-parameter "
                                 "-Wno-unused-but-set-variable",
                         path));
        unlink(path);
        blocks++;
        at = end;
    }
    rmdir(folder);
    cr_assert_geq(blocks, 5);
}

/* The version script names exactly the functions of the public header. */
Test(examples, exports_are_the_public_functions) {
    const char *map = read_text("runtime/libattn.map");
    int declared = 0, listed = 0;
    for (const char *at = read_text("include/attn.h");
         (at = strstr(at, "\nATTN_API ")) != NULL;) {
        at = strstr(at, "attn_");
        while (at[strspn(at, "abcdefghijklmnopqrstuvwxyz_")] !=
               '(') /* a type, not the name */
            at = strstr(at + 1, "attn_");
        int length = (int)strcspn(at, "(");
        const char *line = arena_printf(arena, "        %.*s;\n", length, at);
        cr_assert_not_null(strstr(map, line), "runtime/libattn.map lacks %.*s",
                           length, at);
        declared++;
    }
    for (const char *at = map; (at = strstr(at, "        attn_")) != NULL; at++)
        listed++;
    cr_assert_eq(listed, declared);
    cr_assert_gt(declared, 30);
}

Test(examples, public_header_is_cxx_too) {
    run("printf '#include <attn.h>\nattn_args a; attn_code c = ATTN_OK;\n' | "
        "g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude "
        "-fsyntax-only -x c++ -");
}

Test(examples, man_page_knows_every_option) {
    static const char *const names[] = {
#define O(id, name, short_name, argument, commands, help) name,
#include "tools/options.def"
#undef O
    };
    const char *page = read_text("docs/attnc.1");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct strbuf escaped; /* a man page spells '-' as "\-" */
        strbuf_init(&escaped, arena);
        strbuf_append(&escaped, "\\-\\-");
        for (const char *c = names[i]; *c != '\0'; c++)
            strbuf_append(&escaped, *c == '-' ? "\\-" : (char[]){*c, '\0'});
        cr_assert_not_null(strstr(page, escaped.data),
                           "--%s is not in docs/attnc.1", names[i]);
    }
}
