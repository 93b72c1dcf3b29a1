/* Helpers of the emulator's unit tests: run PTX text, run tables of single
 * instructions, hand every kernel to ptxas where there is one.
 */
#ifndef ATTN_TESTS_EMULATOR_HARNESS_H
#define ATTN_TESTS_EMULATOR_HARNESS_H

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulator/emulator.h"
#include "support/arena.h"
#include "support/strbuf.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define PTX_HEAD(target) ".version 8.6\n.target " target "\n.address_size 64\n"

/* The toolkit's assembler, or NULL. */
static inline const char *find_ptxas(void) {
    static char path[512];
    const char *home = getenv("CUDA_HOME");
    snprintf(path, sizeof path, "%s/bin/ptxas",
             home ? home : "/usr/local/cuda");
    return access(path, X_OK) == 0 ? path : NULL;
}

/* ptxas must accept the text too. */
static inline void check_with_ptxas(const char *text, const char *target) {
    const char *ptxas = find_ptxas();
    char file[] = "/tmp/attn-ptx-XXXXXX", command[1024];
    if (!ptxas)
        return;
    int fd = mkstemp(file);
    cr_assert(fd >= 0);
    cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    snprintf(command, sizeof command, "%s -arch=%s -o /dev/null %s 2>&1", ptxas,
             target, file);
    FILE *pipe = popen(command, "r");
    char output[2000] = "";
    size_t n = pipe ? fread(output, 1, sizeof output - 1, pipe) : 0;
    output[n] = 0;
    int status = pipe ? pclose(pipe) : -1;
    unlink(file);
    cr_assert(status == 0, "ptxas -arch=%s refuses the kernel:\n%s", target,
              output);
}

/* A device with one module. */
struct device {
    struct emu_memory *memory;
    struct emu_module *module;
    struct emu_result result;
};

static inline struct device device_create(const char *text) {
    struct device d = {.memory = emu_memory_create()};
    struct emu_source source = {text, strlen(text), "test.ptx"};
    struct emu_error error;
    d.module = emu_module_create(d.memory, &source, 1, &error);
    cr_assert(d.module != NULL, "%s", error.text);
    return d;
}

static inline void device_destroy(struct device *d) {
    emu_result_destroy(&d->result);
    emu_module_destroy(d->module);
    emu_memory_destroy(d->memory);
}

/* An initialised buffer. */
static inline uint64_t device_put(struct device *d, const void *bytes,
                                  size_t size, const char *name) {
    uint64_t address = emu_memory_allocate(d->memory, size, name);
    cr_assert(address != 0);
    if (bytes)
        cr_assert(emu_memory_write(d->memory, address, bytes, size));
    return address;
}

static inline void device_get(struct device *d, uint64_t address, void *bytes,
                              size_t size) {
    cr_assert(emu_memory_read(d->memory, address, bytes, size));
}

/* Launches `entry` with 64-bit parameters; `shared`: dynamic bytes. */
static inline void device_run(struct device *d, const char *entry,
                              uint32_t grid, uint32_t threads, uint32_t shared,
                              const uint64_t *params, size_t param_count,
                              const struct emu_options *options) {
    struct emu_options used = options ? *options : emu_options_default();
    struct emu_launch launch = {.entry = entry,
                                .grid = {grid, 1, 1},
                                .block = {threads, 1, 1},
                                .dynamic_shared = shared,
                                .params = params,
                                .param_bytes = param_count * 8};
    struct emu_error error;
    emu_result_destroy(&d->result);
    cr_assert(emu_launch(d->module, &launch, &used, &d->result, &error), "%s",
              error.text);
}

static inline void expect_clean(const struct device *d) {
    for (size_t i = 0; i < d->result.report_count; i++)
        emu_report_print(&d->result.reports[i], stderr);
    cr_assert(d->result.report_count == 0, "%zu reports",
              d->result.report_count);
}

/* ---- tables of single instructions ------------------------------------- */

/* One instruction on the registers %r1-3, %d1-3, %h1-3 (32, 64 and 16 bits of
 * a, b, c), result in %r0, %d0, %h0 or %p0 (1 when true). */
struct instruction_case {
    const char *text;
    uint64_t a, b, c, expect;
};

static inline void append_case(struct strbuf *out,
                               const struct instruction_case *c, size_t i) {
    const uint64_t in[3] = {c->a, c->b, c->c};
    strbuf_append(out, "{\n.reg .b32 %r<4>; .reg .b64 %d<4>; .reg .b16 %h<4>; "
                       ".reg .pred %p<4>; .reg .b32 %dead; .reg .b64 %out;\n");
    for (int k = 0; k < 3; k++) {
        strbuf_printf(out, "mov.b64 %%d%d, 0x%" PRIx64 ";\n", k + 1, in[k]);
        strbuf_printf(out,
                      "cvt.u32.u64 %%r%d, %%d%d;\ncvt.u16.u32 %%h%d, %%r%d;\n",
                      k + 1, k + 1, k + 1, k + 1);
    }
    strbuf_printf(out, "setp.ne.u32 %%p3, %%r3, 0;\n%s\n", c->text);
    if (strstr(c->text, "%p0"))
        strbuf_append(out, "selp.u64 %d0, 1, 0, %p0;\n");
    else if (strstr(c->text, "%r0"))
        strbuf_append(out, "cvt.u64.u32 %d0, %r0;\n");
    else if (strstr(c->text, "%h0"))
        strbuf_append(out, "cvt.u64.u16 %d0, %h0;\n");
    strbuf_printf(out, "st.global.u64 [%%base+%zu], %%d0;\n}\n", i * 8);
}

static inline void run_cases(const struct instruction_case *cases, size_t count,
                             const char *target) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    strbuf_printf(&text, ".version 8.6\n.target %s\n.address_size 64\n",
                  target);
    strbuf_append(&text,
                  ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %base;\n"
                  "ld.param.u64 %base, [out];\n");
    for (size_t i = 0; i < count; i++)
        append_case(&text, &cases[i], i);
    strbuf_append(&text, "ret;\n}\n");
    check_with_ptxas(strbuf_text(&text), target);
    struct device d = device_create(strbuf_text(&text));
    uint64_t out = device_put(&d, NULL, count * 8, "out");
    device_run(&d, "k", 1, 1, 0, &out, 1, NULL);
    expect_clean(&d);
    uint64_t *values = calloc(count, 8);
    device_get(&d, out, values, count * 8);
    for (size_t i = 0; i < count; i++)
        cr_expect(values[i] == cases[i].expect,
                  "%s  a=%" PRIx64 " b=%" PRIx64 " c=%" PRIx64 ": got %" PRIx64
                  ", expected %" PRIx64,
                  cases[i].text, cases[i].a, cases[i].b, cases[i].c, values[i],
                  cases[i].expect);
    free(values);
    device_destroy(&d);
    strbuf_destroy(&text);
}

#endif
