/* PTX to cubin with the machine's own CUDA toolkit; skipped with a word without
 * one. Which way is missing is simulated by an environment that hides it. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/jit.h"
#include "runtime/toolkit.h"

static const char plain_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry twice(.param .u64 p)\n{\n"
    "  .reg .b64 %a;\n  .reg .f32 %x;\n"
    "  ld.param.u64 %a, [p];\n  cvta.to.global.u64 %a, %a;\n"
    "  ld.global.f32 %x, [%a];\n  add.f32 %x, %x, %x;\n  st.global.f32 [%a], "
    "%x;\n"
    "  ret;\n}\n";

static const char calling_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".extern .func (.param .b32 result) decay(.param .b32 distance);\n"
    ".visible .entry attend(.param .u64 p)\n{\n"
    "  .reg .b64 %a;\n  .reg .b32 %x;\n"
    "  ld.param.u64 %a, [p];\n  cvta.to.global.u64 %a, %a;\n  ld.global.b32 "
    "%x, [%a];\n"
    "  {\n  .param .b32 d; .param .b32 r;\n  st.param.b32 [d], %x;\n"
    "  call.uni (r), decay, (d);\n  ld.param.b32 %x, [r];\n  }\n"
    "  st.global.b32 [%a], %x;\n  ret;\n}\n";

static const struct rt_cuda_source decay = {
    "specs/decay.cu", "#include <cuda_fp16.h>\n"
                      "extern \"C\" __device__ float decay(int d) { return "
                      "exp2f(-0.1f * (float)d); }\n"};

static struct rt_jit_input input_of(const char *ptx, const char *arch) {
    return (struct rt_jit_input){
        .name = "test", .ptx = ptx, .ptx_size = strlen(ptx), .arch = arch};
}

/* Ends the test, saying why, when a tool is missing. */
static void skip_without(struct attn_status *status) {
    if (attn_status_code(status) != ATTN_UNAVAILABLE)
        return;
    char reason[400];
    snprintf(reason, sizeof reason, "%s", attn_status_text(status));
    attn_status_destroy(status);
    cr_skip_test("%s", reason);
}

/* An ELF file for CUDA; byte 7 is its OS ABI (older toolkits 0x33, newer
 * 0x41). */
static void expect_cubin(const void *data, size_t size) {
    cr_assert_gt(size, 64);
    cr_assert_arr_eq(data, "\177ELF\2\1\1", 7);
    cr_assert_eq(((const unsigned char *)data)[18], 190); /* EM_CUDA */
}

static bool contains(const void *data, size_t size, const char *name) {
    return memmem(data, size, name, strlen(name)) != NULL;
}

typedef struct attn_status *assembler(const struct rt_jit_input *, void **,
                                      size_t *);

/* A cubin with the function `name`. */
static void expect_assembled(assembler *assemble,
                             const struct rt_jit_input *input,
                             const char *name) {
    void *cubin = NULL;
    size_t size = 0;
    struct attn_status *status = assemble(input, &cubin, &size);
    skip_without(status);
    cr_assert_null(status, "%s", attn_status_text(status));
    expect_cubin(cubin, size);
    cr_assert(contains(cubin, size, name));
    free(cubin);
}

/* An error of the tool whose text has `word`. */
static void expect_refusal(assembler *assemble,
                           const struct rt_jit_input *input, const char *word) {
    void *cubin = NULL;
    size_t size = 0;
    struct attn_status *status = assemble(input, &cubin, &size);
    skip_without(status);
    cr_assert_eq(attn_status_code(status), ATTN_TOOLKIT, "%s",
                 attn_status_text(status));
    cr_assert_not_null(strstr(attn_status_text(status), word), "%s",
                       attn_status_text(status));
    cr_assert_null(cubin);
    attn_status_destroy(status);
}

Test(jit, nvjitlink_assembles_for_newer_devices) {
    static const char *const archs[] = {"sm_80", "sm_90", "sm_90a", "sm_100"};
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        struct rt_jit_input input = input_of(plain_ptx, archs[i]);
        expect_assembled(rt_jit_nvjitlink, &input, "twice");
    }
}

Test(jit, ptxas_assembles) {
    struct rt_jit_input input = input_of(plain_ptx, "sm_90");
    expect_assembled(rt_jit_ptxas, &input, "twice");
}

static const char wrong_ptx[] =
    ".version 7.0\n.target sm_80\n.entry f() { nonsense; }";

Test(jit, nvjitlink_shows_its_log) {
    struct rt_jit_input input = input_of(wrong_ptx, "sm_80");
    expect_refusal(rt_jit_nvjitlink, &input, "nonsense");
}

Test(jit, ptxas_shows_its_log) {
    struct rt_jit_input input = input_of(wrong_ptx, "sm_80");
    expect_refusal(rt_jit_ptxas, &input, "nonsense");
}

Test(jit, unknown_architecture_is_unavailable) {
    struct rt_jit_input input = input_of(plain_ptx, "sm_999");
    void *cubin = NULL;
    size_t size = 0;
    struct attn_status *status = rt_jit_cubin(&input, &cubin, &size);
    cr_assert_eq(attn_status_code(status), ATTN_UNAVAILABLE, "%s",
                 attn_status_text(status));
    attn_status_destroy(status);
}

Test(jit, extern_functions_are_linked) {
    struct rt_jit_input input = input_of(calling_ptx, "sm_90");
    input.sources = &decay;
    input.source_count = 1;
    expect_assembled(rt_jit_cubin, &input, "decay");
}

Test(jit, missing_extern_function_is_named) {
    struct rt_cuda_source empty = {"specs/empty.cu",
                                   "extern \"C\" __device__ int other;\n"};
    struct rt_jit_input input = input_of(calling_ptx, "sm_90");
    input.sources = &empty;
    input.source_count = 1;
    expect_refusal(rt_jit_cubin, &input, "decay");
}

Test(jit, nvrtc_errors_show_the_files_lines) {
    struct rt_cuda_source broken = {"specs/broken.cu",
                                    "\n\nextern \"C\" __device__ float f(int d)"
                                    " { return oops; }\n"};
    struct strbuf ptx;
    strbuf_init(&ptx, NULL);
    struct attn_status *status = rt_nvrtc_compile(&broken, "sm_80", &ptx);
    skip_without(status);
    cr_assert_eq(attn_status_code(status), ATTN_TOOLKIT);
    cr_assert_not_null(strstr(attn_status_text(status), "specs/broken.cu(3)"),
                       "%s", attn_status_text(status));
    cr_assert_eq(ptx.length, 0);
    attn_status_destroy(status);
    strbuf_destroy(&ptx);
}

Test(jit, nvrtc_gives_relocatable_ptx) {
    struct strbuf ptx;
    strbuf_init(&ptx, NULL);
    struct attn_status *status = rt_nvrtc_compile(&decay, "sm_80", &ptx);
    skip_without(status);
    cr_assert_not_null(strstr(ptx.data, ".target sm_80"));
    cr_assert_not_null(strstr(ptx.data, ".visible .func"));
    strbuf_destroy(&ptx);
}

/* A toolkit of our making: only an executable called ptxas, which fails. */
Test(jit, tool_that_fails_is_shown_with_its_output) {
    char folder[] = "/tmp/attn-test-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/bin", folder);
    mkdir(path, 0700);
    strcat(path, "/ptxas");
    FILE *file = fopen(path, "w");
    fputs("#!/bin/sh\necho out of luck >&2\nexit 7\n", file);
    fclose(file);
    chmod(path, 0700);
    setenv("CUDA_HOME", folder, 1);
    struct rt_jit_input input = input_of(plain_ptx, "sm_80");
    void *cubin = NULL;
    size_t size = 0;
    struct attn_status *status = rt_jit_ptxas(&input, &cubin, &size);
    cr_assert_eq(attn_status_code(status), ATTN_TOOLKIT);
    cr_assert_not_null(
        strstr(attn_status_text(status), "exit status 7)\nout of luck"), "%s",
        attn_status_text(status));
    attn_status_destroy(status);
    input.sources = &decay;
    input.source_count = 1;
    status = rt_jit_ptxas(&input, &cubin, &size);
    cr_assert_eq(attn_status_code(status), ATTN_UNAVAILABLE);
    attn_status_destroy(status);
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
    rmdir(folder);
}

Test(jit, missing_library_says_where_it_was_searched) {
    const struct rt_library absent = {
        .title = "libabsent",
        .names = (const char *const[]){"libabsent.so.1", NULL}};
    struct attn_status *status = rt_library_open(&absent, NULL);
    cr_assert_eq(attn_status_code(status), ATTN_UNAVAILABLE);
    cr_assert_not_null(strstr(attn_status_text(status), "libabsent not found"));
    attn_status_destroy(status);
    static const struct rt_symbol symbols[] = {{"no_such_function", true, 0}};
    const struct rt_library libc = {
        .title = "libc",
        .names = (const char *const[]){"libc.so.6", NULL},
        .symbols = symbols,
        .symbol_count = 1};
    void *table = NULL;
    status = rt_library_open(&libc, &table);
    cr_assert_str_eq(
        attn_status_text(status),
        "libc on this machine is too old: it lacks no_such_function");
    attn_status_destroy(status);
}

Test(jit, identity_does_not_change_by_itself) {
    struct strbuf a, b;
    strbuf_init(&a, NULL);
    strbuf_init(&b, NULL);
    rt_jit_identity(&a);
    rt_jit_identity(&b);
    cr_assert_str_eq(a.data, b.data);
    strbuf_destroy(&a);
    strbuf_destroy(&b);
}
