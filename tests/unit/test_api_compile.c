/* attn_compile and attn_emit through the whole compiler: results, the cache,
 * errors. */
#include <criterion/criterion.h>

#include <string.h>
#include <sys/stat.h>

#include "attn.h"
#include "runtime/api_launch.h"
#include "runtime/toolkit.h"
#include "tests/unit/fake_driver.h"
#include "tests/unit/folder.h"

static const char spec[] =
    "attention window {\n"
    "    dtype bf16;\n"
    "    head_dim 64;\n"
    "    group any;\n"
    "    param window: i32 = 128;\n"
    "    tensor doc: i32[batch, kv_len];\n"
    "    mask kv <= q && q - kv < window && doc[b, q] == doc[b, kv];\n"
    "    target sm_80;\n"
    "}\n";

TestSuite(api_compile, .init = folder_create, .fini = folder_remove);

static struct attn_context *open_context(void) {
    struct attn_context *context = NULL;
    struct attn_context_options options = {ATTN_CACHE_DISK, folder};
    cr_assert_null(attn_context_create(&options, &context));
    return context;
}

static struct attn_program *
compile(struct attn_context *context, const char *text,
        const struct attn_compile_options *options) {
    struct attn_program *program = NULL;
    struct attn_source source = {text, strlen(text), "window.attn"};
    struct attn_status *status =
        attn_compile(context, &source, options, &program);
    cr_assert_null(status, "%s", attn_status_text(status));
    return program;
}

Test(api_compile, program_says_what_it_is) {
    struct attn_context *context = open_context();
    struct attn_program *program = compile(context, spec, NULL);
    cr_assert_str_eq(attn_program_name(program), "window");
    cr_assert_str_eq(attn_program_target(program), "sm_80");
    cr_assert_eq(attn_program_dtype(program), ATTN_BF16);
    cr_assert_eq(attn_program_head_dim_qk(program), 64);
    cr_assert_eq(attn_program_tensor_count(program), 6);
    cr_assert_str_eq(attn_program_tensor(program, 5)->name, "doc");
    cr_assert_str_eq(attn_program_tensor(program, 5)->extents[1], "kv_len");
    cr_assert_str_eq(attn_program_param(program, 0)->name, "window");
    cr_assert_eq(attn_program_param(program, 0)->default_value, 128.0);
    cr_assert_geq(attn_program_entry_count(program), 1);
    cr_assert_not_null(strstr(attn_program_ptx(program), ".target sm_80"));
    for (size_t i = 0; i < attn_program_entry_count(program); i++)
        cr_assert_not_null(strstr(attn_program_ptx(program),
                                  attn_program_entry(program, i)->name));
    cr_assert_str_eq(attn_program_warnings(program), "");
    attn_program_destroy(program);
    attn_context_destroy(context);
}

Test(api_compile, cache_gives_the_same_bytes) {
    struct attn_context *context = open_context();
    struct attn_program *first = compile(context, spec, NULL);
    cr_assert(!attn_program_from_cache(first));
    struct attn_program *again = compile(context, spec, NULL);
    cr_assert_eq(again, first, "memory");
    struct attn_context *other = open_context();
    struct attn_program *stored = compile(other, spec, NULL);
    cr_assert(attn_program_from_cache(stored), "disk");
    cr_assert_str_eq(attn_program_ptx(stored), attn_program_ptx(first));
    cr_assert_str_eq(attn_program_json(stored), attn_program_json(first));
    struct attn_context *fresh = NULL;
    struct attn_context_options off = {ATTN_CACHE_OFF, NULL};
    cr_assert_null(attn_context_create(&off, &fresh));
    struct attn_program *recompiled = compile(fresh, spec, NULL);
    cr_assert(!attn_program_from_cache(recompiled));
    cr_assert_str_eq(attn_program_ptx(recompiled), attn_program_ptx(first));
    attn_program_destroy(first);
    attn_program_destroy(again);
    attn_program_destroy(stored);
    attn_program_destroy(recompiled);
    attn_context_destroy(context);
    attn_context_destroy(other);
    attn_context_destroy(fresh);
}

/* Everything that changes the result, and the lines that the PTX cites, is in
 * the key. */
Test(api_compile, other_input_is_another_entry) {
    struct attn_context *context = open_context();
    char moved[sizeof spec + 1];
    snprintf(moved, sizeof moved, "\n%s", spec);
    struct attn_compile_options pinned = {.schedule = "tile 64, 64"};
    struct attn_program *programs[] = {compile(context, spec, NULL),
                                       compile(context, moved, NULL),
                                       compile(context, spec, &pinned)};
    for (int i = 1; i < 3; i++) {
        cr_assert_neq(programs[i], programs[0]);
        cr_assert(!attn_program_from_cache(programs[i]));
        cr_assert_str_neq(attn_program_ptx(programs[i]),
                          attn_program_ptx(programs[0]));
    }
    for (int i = 0; i < 3; i++)
        attn_program_destroy(programs[i]);
    attn_context_destroy(context);
}

static void expect_failure(const char *text,
                           const struct attn_compile_options *options,
                           enum attn_code code, const char *part) {
    struct attn_context *context = open_context();
    struct attn_program *program = NULL;
    struct attn_source source = {text, strlen(text), "bad.attn"};
    struct attn_status *status =
        attn_compile(context, &source, options, &program);
    cr_assert_eq(attn_status_code(status), code, "%s",
                 attn_status_text(status));
    cr_assert_not_null(strstr(attn_status_text(status), part), "%s",
                       attn_status_text(status));
    attn_status_destroy(status);
    attn_context_destroy(context);
}

Test(api_compile, errors_of_the_spec_have_places) {
    expect_failure("attention a { dtype bf16; head_dim 64; mask q < doc; }",
                   NULL, ATTN_INVALID_SPEC, "bad.attn:1:49: error: ");
    expect_failure("attention a {", NULL, ATTN_INVALID_SPEC, "error: ");
    expect_failure("const N = 1;", NULL, ATTN_INVALID_SPEC, "error: ");
    struct attn_compile_options unknown = {.target = "sm_1"},
                                entry = {.entry = "windw"};
    expect_failure(spec, &unknown, ATTN_INVALID_SPEC, "sm_1");
    expect_failure(spec, &entry, ATTN_INVALID_SPEC, "windw");
}

Test(api_compile, missing_files_are_told) {
    struct attn_context *context = open_context();
    struct attn_program *program = NULL;
    struct attn_source source = {.path = "/nonexistent/x.attn"}, nothing = {0};
    struct attn_status *status = attn_compile(context, &source, NULL, &program);
    cr_assert_eq(attn_status_code(status), ATTN_IO);
    cr_assert_str_eq(
        attn_status_text(status),
        "cannot open '/nonexistent/x.attn': No such file or directory");
    attn_status_destroy(status);
    status = attn_compile(context, &nothing, NULL, &program);
    cr_assert_eq(attn_status_code(status), ATTN_INVALID_ARGUMENT);
    attn_status_destroy(status);
    attn_context_destroy(context);
}

Test(api_compile, emits_every_kind_of_stage) {
    struct attn_context *context = open_context();
    struct attn_source source = {spec, sizeof spec - 1, "window.attn"};
    static const char *const stages[] = {"attn", "online-softmax", "pipeline",
                                         "ptx"};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        char *text = NULL;
        struct attn_status *status =
            attn_emit(context, &source, NULL, stages[i], &text);
        cr_assert_null(status, "%s: %s", stages[i], attn_status_text(status));
        cr_assert_not_null(
            strstr(text, i < 3 ? "func.func" : ".visible .entry"), "%s:\n%s",
            stages[i], text);
        attn_text_destroy(text);
    }
    char *text = NULL;
    struct attn_status *status =
        attn_emit(context, &source, NULL, "tiel", &text);
    cr_assert_str_eq(attn_status_text(status), "there is no stage 'tiel'");
    attn_status_destroy(status);
    attn_context_destroy(context);
}

/* ---- The two kernels of causal.attn ------------------------------------ */

/* The machine's ptxas behind a script that notes each run in FOLDER/runs. */
static void count_ptxas_runs(void) {
    struct strbuf tool;
    strbuf_init(&tool, NULL);
    char path[96];
    if (!rt_tool_find("ptxas", &tool))
        cr_skip_test("no ptxas on this machine");
    snprintf(path, sizeof path, "%s/bin", folder);
    mkdir(path, 0700);
    strcat(path, "/ptxas");
    FILE *file = fopen(path, "w");
    fprintf(file, "#!/bin/sh\necho run >>%s/runs\nexec %s \"$@\"\n", folder,
            tool.data);
    fclose(file);
    chmod(path, 0700);
    setenv("CUDA_HOME", folder, 1);
    strbuf_destroy(&tool);
}

static int ptxas_runs(void) {
    char path[96], line[8];
    int runs = 0;
    snprintf(path, sizeof path, "%s/runs", folder);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        runs++;
    if (file != NULL)
        fclose(file);
    return runs;
}

/* Launches an attention with D 128 on made-up addresses. */
static void launch_shape(const struct attn_kernel *kernel, int64_t batch,
                         int64_t heads, int64_t kv_heads, int64_t q_len,
                         int64_t kv_len) {
    int64_t q_shape[4] = {batch, heads, q_len, 128},
            kv_shape[4] = {batch, kv_heads, kv_len, 128};
    DLTensor tensors[4];
    static unsigned char workspace[4096] __attribute__((aligned(256)));
    for (int i = 0; i < 4; i++)
        tensors[i] = (DLTensor){.data = (void *)(uintptr_t)((i + 1) * 1l << 40),
                                .device = {kDLCUDA, 0},
                                .ndim = 4,
                                .dtype = {kDLBfloat, 16, 1},
                                .shape = i == 1 || i == 2 ? kv_shape : q_shape};
    struct attn_args args = {.q = &tensors[0],
                             .k = &tensors[1],
                             .v = &tensors[2],
                             .o = &tensors[3],
                             .workspace = workspace,
                             .workspace_bytes = sizeof workspace};
    struct attn_status *status = attn_launch(kernel, &args, NULL);
    cr_assert_null(status, "%s", attn_status_text(status));
}

/* Causal, 16 heads. */
static void launch_square(const struct attn_kernel *kernel, int64_t batch,
                          int64_t length) {
    launch_shape(kernel, batch, 16, 16, length, length);
}

/* Load and launch as one process does it, with what is on the disk. */
static void use_causal(void) {
    static const char second_name[] = "causal$tile_128x128";
    struct attn_context *context = open_context();
    struct attn_program *program = NULL;
    struct attn_kernel *kernel = NULL;
    struct attn_source source = {.path = "specs/causal.attn"};
    struct attn_compile_options options = {.target = "sm_90a"};
    fake_reset();
    cr_assert_null(attn_compile(context, &source, &options, &program));
    cr_assert_eq(attn_program_entry_count(program), 2);
    cr_assert_str_eq(attn_program_entry(program, 1)->name, second_name);
    cr_assert(attn_program_entry(program, 0)->conditional);
    cr_assert(attn_program_entry(program, 1)->conditional);
    cr_assert(attn_program_entry(program, 1)->programmatic);
    struct attn_status *status =
        rt_api_kernel_load(fake_driver(), program, &kernel);
    cr_assert_null(status, "%s", attn_status_text(status));
    cr_assert_eq(fake.load_count, 0);
    launch_square(kernel, 2, 8192);
    cr_assert_str_eq(fake.launches[0].name, "causal");
    cr_assert_eq(fake.load_count, 1);
    cr_assert_arr_eq(fake.image, "\177ELF", 4);
    cr_assert(fake_image_has(fake.image, "causal"));
    cr_assert(!fake_image_has(fake.image, second_name));
    launch_square(kernel, 2, 1024);
    cr_assert_str_eq(fake.launches[1].name, second_name);
    cr_assert_eq(fake.load_count, 2);
    cr_assert(fake_image_has(fake.image, second_name));
    cr_assert(!fake_image_has(fake.image, "causal"));
    launch_square(kernel, 2, 1024);
    cr_assert_eq(fake.load_count, 2);
    cr_assert_eq(fake.launch_count, 3);
    attn_kernel_destroy(kernel);
    cr_assert_eq(fake.unload_count, 2);
    attn_program_destroy(program);
    attn_context_destroy(context);
}

/* By nvJitLink too, which gets the PTX without the kernel that does not run. */
Test(api_compile, packed_heads_are_assembled_when_they_run) {
    static const char text[] = "attention packing { dtype bf16; head_dim 128; "
                               "group 8; mask kv <= q; }";
    static const char packed_name[] = "packing$packed8_128x64";
    struct attn_context *context = open_context();
    struct attn_program *program = NULL;
    struct attn_kernel *kernel = NULL;
    struct attn_source source = {.text = text, .text_size = sizeof text - 1};
    struct attn_compile_options options = {.target = "sm_80"};
    const void *cubin = NULL;
    size_t size = 0;
    fake_reset();
    cr_assert_null(attn_compile(context, &source, &options, &program));
    cr_assert_null(rt_api_kernel_load(fake_driver(), program, &kernel));
    cr_assert_eq(fake.load_count, 0);
    launch_shape(kernel, 64, 64, 8, 1, 4096);
    cr_assert_str_eq(fake.launches[0].name, packed_name);
    cr_assert_eq(fake.load_count, 1);
    bool assembled = memcmp(fake.image, "\177ELF", 4) == 0;
    cr_assert_eq(fake_image_has(fake.image, "packing"), !assembled);
    launch_shape(kernel, 1, 64, 8, 4096, 4096);
    cr_assert_str_eq(fake.launches[1].name, "packing");
    cr_assert_eq(fake.load_count, assembled ? 2 : 1);
    attn_kernel_destroy(kernel);
    if (assembled) {
        cr_assert_null(attn_program_cubin(program, "sm_90", &cubin, &size));
        cr_assert(fake_image_has(cubin, "packing"));
        cr_assert(fake_image_has(cubin, packed_name));
    }
    attn_program_destroy(program);
    attn_context_destroy(context);
}

Test(api_compile, kernels_are_assembled_when_they_run) {
    count_ptxas_runs();
    use_causal();
    cr_assert_eq(ptxas_runs(), 2);
    use_causal();
    cr_assert_eq(ptxas_runs(), 2, "both cubins are on the disk");
}
