/* The generated C header: compiled as C and C++ and run against a libcuda of
 * ours that prints what it is asked to do.  Skipped with a word without
 * cuda.h. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/header_writer.h"
#include "runtime/toolkit.h"
#include "sample_info.h"
#include "tests/unit/folder.h"

static struct arena *arena;

static void setup(void) {
    arena = arena_create();
    folder_create();
}

static void teardown(void) {
    folder_remove();
    arena_destroy(arena);
}

TestSuite(header, .init = setup, .fini = teardown);

static void write_text(const char *name, const char *text) {
    FILE *file = fopen(arena_printf(arena, "%s/%s", folder, name), "w");
    fputs(text, file);
    fclose(file);
}

static void write_header(const struct kernel_info *info) {
    struct strbuf text;
    strbuf_init(&text, arena);
    header_write(info, "\177ELF cubin", 10, "specs/sample*/.attn", &text);
    write_text("sample.h", text.data);
}

/* Runs a shell command in the folder and gives its output. */
static const char *run(const char *format, const char *include) {
    struct strbuf text;
    strbuf_init(&text, arena);
    char *command = arena_printf(arena, "cd %s && { ", folder);
    command = arena_printf(arena, "%s%s; } 2>&1", command,
                           arena_printf(arena, format, include));
    FILE *pipe = popen(command, "r");
    cr_assert(strbuf_read(&text, pipe, 1 << 20));
    cr_assert_eq(pclose(pipe), 0, "%s\n%s", command, strbuf_text(&text));
    return strbuf_text(&text);
}

static const char *cuda_include(void) {
    static char text[256];
    struct strbuf path;
    strbuf_init(&path, NULL);
    bool found = rt_toolkit_include(&path);
    snprintf(text, sizeof text, "%s", strbuf_text(&path));
    strbuf_destroy(&path);
    if (!found)
        cr_skip_test("no cuda.h on this machine");
    return text;
}

static const char program[] =
    "#include <stdio.h>\n"
    "#include \"sample.h\"\n"
    "CUresult cuCtxGetDevice(CUdevice *d) { *d = 0; return CUDA_SUCCESS; }\n"
    "CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) "
    "{\n"
    "    (void)d; *v = a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 132 : "
    "-1;\n"
    "    return CUDA_SUCCESS; }\n"
    "CUresult cuModuleLoadData(CUmodule *m, const void *i) {\n"
    "    *m = 0; printf(\"load %.9s\\n\", (const char *)i + 1); return "
    "CUDA_SUCCESS; }\n"
    "CUresult cuModuleUnload(CUmodule m) { (void)m; return CUDA_SUCCESS; }\n"
    "CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *n) {\n"
    "    (void)m; *f = (CUfunction)n; return CUDA_SUCCESS; }\n"
    "CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) "
    "{\n"
    "    (void)a; printf(\"shared %s %d\\n\", (char *)f, v); return "
    "CUDA_SUCCESS; }\n"
    "CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, "
    "CUstream s) {\n"
    "    (void)s; printf(\"memset %llx %d %zu\\n\", p, v, n); return "
    "CUDA_SUCCESS; }\n"
    "CUresult cuTensorMapEncodeTiled(CUtensorMap *m, CUtensorMapDataType t, "
    "cuuint32_t r,\n"
    "    void *a, const cuuint64_t *e, const cuuint64_t *s, const cuuint32_t "
    "*b,\n"
    "    const cuuint32_t *o, CUtensorMapInterleave i, CUtensorMapSwizzle w,\n"
    "    CUtensorMapL2promotion l, CUtensorMapFloatOOBfill f) {\n"
    "    (void)o; (void)i; (void)l; (void)f; memset(m, 0, sizeof *m);\n"
    "    printf(\"map %d %u %p [%lu %lu %lu %lu %lu] [%lu %lu %lu %lu] [%u %u "
    "%u] %d\\n\", t, r, a,\n"
    "           e[0], e[1], e[2], e[3], e[4], s[0], s[1], s[2], s[3], b[0], "
    "b[1], b[2], w);\n"
    "    return CUDA_SUCCESS; }\n"
    "CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned "
    "gz, unsigned bx,\n"
    "    unsigned by, unsigned bz, unsigned s, CUstream st, void **p, void "
    "**x) {\n"
    "    printf(\"%s <%u %u %u> <%u %u %u> %u %p %p\", (char *)f, gx, gy, gz, "
    "bx, by, bz, s,\n"
    "           (void *)st, (void *)x);\n"
    "    if (*(char *)f == 's')\n"
    "        printf(\" %llx %d %ld %llx\\n\", *(CUdeviceptr *)p[0], *(int "
    "*)p[1],\n"
    "               *(long *)p[2], *(CUdeviceptr *)p[3]);\n"
    "    else\n"
    "        printf(\" %llx %g %ld %ld %ld %d %d %d %llx %llx %llx\\n\", "
    "*(CUdeviceptr *)p[0],\n"
    "               *(float *)p[1], *(long *)p[2], *(long *)p[3], *(long "
    "*)p[4], *(int *)p[5],\n"
    "               *(int *)p[6], *(int *)p[7], *(CUdeviceptr *)p[8], "
    "*(CUdeviceptr *)p[9],\n"
    "               *(CUdeviceptr *)p[11]);\n"
    "    return CUDA_SUCCESS; }\n"
    "#ifndef DRIVER\n#define DRIVER 12030\n#endif\n"
    "CUresult cuDriverGetVersion(int *v) { *v = DRIVER; return CUDA_SUCCESS; "
    "}\n"
    "CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void "
    "**p, void **x) {\n"
    "    printf(\"%u attributes\", c->numAttrs);\n"
    "    if (c->numAttrs == 1)\n"
    "        printf(\" %d %d\", c->attrs->id == "
    "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,\n"
    "               c->attrs->value.programmaticStreamSerializationAllowed);\n"
    "    printf(\", \");\n"
    "    return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, "
    "c->blockDimX,\n"
    "        c->blockDimY, c->blockDimZ, c->sharedMemBytes, c->hStream, p, x); "
    "}\n"
    "int main(void) {\n"
    "    struct sample_kernel kernel;\n"
    "    struct sample_args args = sample_args_init(2, 4, 2, 100, 130);\n"
    "    sample_load(&kernel);\n"
    "    args.q.data = 0x10000; args.k.data = 0x20000; args.v.data = 0x30000;\n"
    "    args.o.data = 0x40000; args.doc.data = 0x60000; args.cap = 30.0f;\n"
    "    printf(\"compact %d\\n\", sample_compact(&args));\n"
    "    printf(\"workspace %ld\\n\", (long)sample_workspace_bytes(&kernel, "
    "&args));\n"
    "    sample_workspace_clear(&kernel, &args, 0x200000, 0);\n"
    "    printf(\"launch %d\\n\", sample_launch(&kernel, &args, 0x200000, "
    "(CUstream)0x77));\n"
    "    args.kv_heads = 3;\n"
    "    printf(\"ratio %d\\n\", sample_launch(&kernel, &args, 0x200000, 0));\n"
    "    args.kv_heads = 2; args.k.stride[1] += 4;\n"
    "    printf(\"stride %d\\n\", sample_launch(&kernel, &args, 0x200000, "
    "0));\n"
    "    args.k.stride[1] -= 4; args.q.data += 8;\n"
    "    printf(\"alignment %d\\n\", sample_launch(&kernel, &args, 0x200000, "
    "0));\n"
    "    args.q_len = 0;\n"
    "    printf(\"empty %d\\n\", sample_launch(&kernel, &args, 0x200000, 0));\n"
    "    return 0;\n}\n";

/* The same numbers as test_launch.c expects of libattn. */
static const char expected[] =
    "load ELF cubin\n"
    "shared attend 65536\n"
    "compact 0\n"
    "workspace 280\n"
    "memset 200000 0 256\n"
    "summary <6 1 1> <128 1 1> 0 0x77 (nil) 60000 134 134 200100\n"
    "map 9 5 0x20000 [64 130 1 2 2] [128 128 16640 33280] [64 64 1] 3\n"
    "1 attributes 1 1, attend <2 1 1> <256 1 1> 65536 0x77 (nil) 10000 30 "
    "25600 "
    "6400 64 130 64 1 0 200000 40000\n"
    "launch 0\n"
    "ratio 1\n"
    "stride 1\n"
    "alignment 1\n"
    "empty 0\n";

#define WARNINGS "-Wall -Wextra -Wshadow -Wpedantic -Werror"

Test(header, launches_what_the_library_would) {
    const char *include = cuda_include();
    write_header(sample_info(arena));
    write_text("main.c", program);
    const char *output =
        run("gcc -std=c99 " WARNINGS " -isystem %s main.c -o main && ./main",
            include);
    cr_assert_str_eq(output, expected);
}

/* Graphs of older drivers do not take the attribute. */
Test(header, launches_late_with_an_older_driver) {
    const char *include = cuda_include();
    write_header(sample_info(arena));
    write_text("main.c", program);
    const char *output = run("gcc -std=c99 -DDRIVER=12020 " WARNINGS
                             " -isystem %s main.c -o main && ./main",
                             include);
    cr_assert_not_null(strstr(output, "\n0 attributes, attend <2 1 1>"));
}

/* No map is made for a kernel that does not run. */
Test(header, prepares_nothing_for_an_empty_grid) {
    const char *include = cuda_include();
    struct kernel_info *info = sample_info(arena);
    info->entries[SAMPLE_ATTEND].grid_x = size_expr_constant(arena, 0);
    write_header(info);
    write_text("main.c", program);
    const char *output =
        run("gcc -std=c99 " WARNINGS " -isystem %s main.c -o main && ./main",
            include);
    cr_assert_null(strstr(output, "map "));
    cr_assert_null(strstr(output, "attend <"));
    cr_assert_not_null(strstr(output, "launch 0\n"));
}

Test(header, packs_heads_into_a_box) {
    const char *include = cuda_include();
    struct kernel_info *info = sample_info(arena);
    info->tensor_maps[0] =
        (struct kernel_tensor_map){KERNEL_TENSOR_Q, 64, 64, 1, 128, 4};
    write_header(info);
    write_text("main.c", program);
    const char *output =
        run("gcc -std=c99 " WARNINGS " -isystem %s main.c -o main && ./main",
            include);
    cr_assert_not_null(strstr(output, "map 9 5 0x10000 [64 4 100 1 2] "
                                      "[12800 128 128 51200] [64 4 16] 3\n"));
}

Test(header, compiles_as_cxx_and_in_two_files) {
    const char *include = cuda_include();
    write_header(sample_info(arena));
    write_text("a.cc", "#include \"sample.h\"\n#include \"sample.h\"\n"
                       "CUresult f(sample_kernel *k, sample_args *a) { return "
                       "sample_launch(k, a, 0, 0); }\n");
    run("g++ -std=c++11 " WARNINGS " -Wno-unused-function -isystem %s -c a.cc",
        include);
}

/* Names that are legal in a spec and not in C, or that the header uses
 * itself. */
Test(header, names_of_the_spec_cannot_break_it) {
    const char *include = cuda_include();
    struct kernel_info *info = sample_info(arena);
    info->scalars[SAMPLE_WINDOW].name = "int";
    info->scalars[SAMPLE_CAP].name = "int_";
    info->scalars[SAMPLE_FLAG].name = "attn_kernel";
    info->tensors[SAMPLE_DOC].name = "cuLaunchKernel";
    info->tensors[SAMPLE_UNUSED].name = "stream";
    info->scalars[SAMPLE_CAP].has_default = true;
    info->scalars[SAMPLE_CAP].default_bits = 0xff800000; /* -inf */
    info->scalars[SAMPLE_WINDOW].default_bits = 0x80000000;
    cr_assert_null(kernel_info_check(info, arena));
    write_header(info);
    write_text("a.c", "#include \"sample.h\"\n"
                      "int f(struct sample_args *a) { return a->int__ + "
                      "a->x_attn_kernel; }\n");
    run("gcc -std=c99 " WARNINGS " -Wno-unused-function -isystem %s -c a.c",
        include);
    run("g++ -x c++ -std=c++11 " WARNINGS
        " -Wno-unused-function -isystem %s -c a.c",
        include);
}

Test(header, same_input_same_bytes) {
    struct strbuf a, b;
    strbuf_init(&a, arena);
    strbuf_init(&b, arena);
    header_write(sample_info(arena), "x", 1, "s.attn", &a);
    header_write(sample_info(arena), "x", 1, "s.attn", &b);
    cr_assert_str_eq(a.data, b.data);
}
