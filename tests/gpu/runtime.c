/* The runtime on a real GPU, with hand-written kernels in place of the compiler's: what
 * kernels receive, tensor maps, graphs, threads, contexts, and the CPU time of a launch.
 *
 *     runtime        exit 0: all passed, 1: not, 3: no GPU
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/api_launch.h"
#include "runtime/module.h"
#include "runtime/program.h"
#include "support/arena.h"

enum { BATCH = 2, HEADS = 3, KV_HEADS = 1, Q_LEN = 5, KV_LEN = 96, D = 64 };

/* Writes what it was given to the workspace as 64-bit words, and adds 1 to word 15. */
static const char echo_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 smem[];\n"
    ".visible .entry echo(.param .u64 q, .param .b32 cap, .param .s64 stride, .param .s32 extent,\n"
    "    .param .s32 kv_len, .param .b32 window, .param .b32 flag, .param .u64 lse,\n"
    "    .param .u64 work)\n{\n"
    "  .reg .b64 %w, %x; .reg .b32 %y;\n"
    "  ld.param.u64 %w, [work]; cvta.to.global.u64 %w, %w;\n"
    "  ld.param.u64 %x, [q]; st.global.u64 [%w], %x;\n"
    "  ld.param.b32 %y, [cap]; cvt.u64.u32 %x, %y; st.global.u64 [%w+8], %x;\n"
    "  ld.param.s64 %x, [stride]; st.global.u64 [%w+16], %x;\n"
    "  ld.param.s32 %y, [extent]; cvt.u64.u32 %x, %y; st.global.u64 [%w+24], %x;\n"
    "  ld.param.s32 %y, [kv_len]; cvt.u64.u32 %x, %y; st.global.u64 [%w+32], %x;\n"
    "  ld.param.b32 %y, [window]; cvt.u64.u32 %x, %y; st.global.u64 [%w+40], %x;\n"
    "  ld.param.b32 %y, [flag]; cvt.u64.u32 %x, %y; st.global.u64 [%w+48], %x;\n"
    "  ld.param.u64 %x, [lse]; st.global.u64 [%w+56], %x;\n"
    "  mov.u32 %y, smem; st.shared.u32 [%y+65532], %y;\n"
    "  atom.global.add.u64 %x, [%w+120], 1;\n"
    "  ret;\n}\n";

/* Calls the extern function and stores its result in the workspace. */
static const char extern_ptx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".extern .func (.param .b32 result) decay(.param .b32 distance);\n"
    ".visible .entry call(.param .u64 work)\n{\n"
    "  .reg .b64 %w; .reg .b32 %x;\n"
    "  ld.param.u64 %w, [work]; cvta.to.global.u64 %w, %w; mov.u32 %x, 3;\n"
    "  {\n  .param .b32 d; .param .b32 r; st.param.b32 [d], %x;\n"
    "  call.uni (r), decay, (d); ld.param.b32 %x, [r];\n  }\n"
    "  st.global.b32 [%w], %x;\n  ret;\n}\n";

/* One TMA copy of K: rows 64 to 127 of batch 1, head 0 (rows from KV_LEN are zero), then
 * shared memory to the workspace as it lies there. */
static const char map_ptx[] =
    ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
    ".visible .entry copy(.param .align 64 .b8 map[128], .param .u64 work)\n{\n"
    "  .reg .b64 %m, %w; .reg .b32 %s, %b, %i, %v, %h, %r, %z, %o; .reg .pred %p;\n"
    "  .shared .align 8 .b64 bar;\n"
    "  mov.b64 %m, map; cvta.param.u64 %m, %m; mov.u32 %s, smem; mov.u32 %b, bar;\n"
    "  mov.u32 %z, 0; mov.u32 %r, 64; mov.u32 %o, 1;\n"
    "  mbarrier.init.shared::cta.b64 [%b], 1; fence.mbarrier_init.release.cluster;\n"
    "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 8192;\n"
    "  cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes\n"
    "    [%s], [%m, {%z, %r, %z, %z, %o}], [%b];\n"
    "W: mbarrier.try_wait.parity.shared::cta.b64 %p, [%b], 0; @!%p bra W;\n"
    "  ld.param.u64 %w, [work]; cvta.to.global.u64 %w, %w; mov.u32 %i, 0;\n"
    "L: ld.shared.u32 %v, [%s]; st.global.u32 [%w], %v; add.u32 %s, %s, 4;\n"
    "  add.u64 %w, %w, 4; add.u32 %i, %i, 4; setp.lt.u32 %p, %i, 8192; @%p bra L;\n"
    "  ret;\n}\n";

/* Two kernels, the second in the other's place: each stores its number in the
 * workspace. */
static const char later_ptx[] =
    ".version 8.0\n.target sm_90a\n.address_size 64\n"
    ".visible .entry one(.param .u64 work)\n{\n"
    "  .reg .b64 %w;\n"
    "  ld.param.u64 %w, [work]; cvta.to.global.u64 %w, %w;\n"
    "  st.global.u64 [%w], 1;\n  ret;\n}\n"
    ".visible .entry one$tile_64x64(.param .u64 work)\n{\n"
    "  .reg .b64 %w;\n"
    "  ld.param.u64 %w, [work]; cvta.to.global.u64 %w, %w;\n"
    "  st.global.u64 [%w], 2;\n  ret;\n}\n";

static const struct rt_driver *driver;
static struct CUctx_st *cuda;
static struct arena *arena;
static int failures;

static void expect(bool good, const char *what) {
    printf("%s %s\n", good ? "pass" : "FAIL", what);
    failures += !good;
}

static void expect_ok(struct attn_status *status, const char *what) {
    if (status != NULL)
        printf("     %s: %s\n", attn_status_origin(status), attn_status_text(status));
    expect(status == NULL, what);
    attn_status_destroy(status);
}

/* ---- Kernels ----------------------------------------------------------- */

static struct size_expr constant(int64_t value) { return size_expr_constant(arena, value); }

static struct kernel_tensor tensor4(const char *name, enum size_name heads,
                                    enum size_name length) {
    return (struct kernel_tensor){
        .name = name, .type = SCALAR_BF16, .rank = 4, .used = true,
        .extents = {size_expr_size(arena, SIZE_BATCH), size_expr_size(arena, heads),
                    size_expr_size(arena, length), constant(D)},
    };
}

static struct kernel_info *make_info(const char *target, const char *entry,
                                     struct kernel_param *params, size_t param_count,
                                     uint32_t shared_bytes) {
    struct kernel_info *info = ARENA_NEW(arena, struct kernel_info);
    *info = (struct kernel_info){.name = "test", .target = target, .dtype = SCALAR_BF16,
                                 .head_dim_qk = D, .head_dim_v = D};
    info->tensors = ARENA_NEW_ARRAY(arena, struct kernel_tensor, 5);
    info->tensor_count = 5;
    info->tensors[0] = tensor4("q", SIZE_HEADS, SIZE_Q_LEN);
    info->tensors[1] = tensor4("k", SIZE_KV_HEADS, SIZE_KV_LEN);
    info->tensors[2] = tensor4("v", SIZE_KV_HEADS, SIZE_KV_LEN);
    info->tensors[3] = tensor4("o", SIZE_HEADS, SIZE_Q_LEN);
    info->tensors[4] = tensor4("lse", SIZE_HEADS, SIZE_Q_LEN);
    info->tensors[4].type = SCALAR_F32;
    info->tensors[4].rank = 3;
    info->scalars = ARENA_NEW_ARRAY(arena, struct kernel_scalar, 3);
    info->scalar_count = 3;
    info->scalars[0] = (struct kernel_scalar){"cap", SCALAR_F32, false, 0, true};
    info->scalars[1] = (struct kernel_scalar){"window", SCALAR_I32, true, 64, true};
    info->scalars[2] = (struct kernel_scalar){"flag", SCALAR_BOOL, true, 1, true};
    info->tensor_maps = ARENA_NEW(arena, struct kernel_tensor_map);
    info->tensor_maps[0] =
        (struct kernel_tensor_map){KERNEL_TENSOR_K, 64, 64, 1, 128, 1};
    info->tensor_map_count = 1;
    info->entries = ARENA_NEW(arena, struct kernel_entry);
    info->entry_count = 1;
    info->entries[0] = (struct kernel_entry){.name = entry, .params = params,
                                             .param_count = param_count, .threads = 1,
                                             .shared_bytes = shared_bytes, .grid_x = constant(1)};
    info->workspace_bytes = constant(8192);
    info->workspace_zeroed = constant(128);
    return info;
}

static struct kernel_param echo_params[] = {
    {.kind = KERNEL_PARAM_POINTER, .index = KERNEL_TENSOR_Q},
    {.kind = KERNEL_PARAM_SCALAR, .index = 0},
    {.kind = KERNEL_PARAM_STRIDE, .index = KERNEL_TENSOR_Q, .axis = 1},
    {.kind = KERNEL_PARAM_EXTENT, .index = KERNEL_TENSOR_Q, .axis = 2},
    {.kind = KERNEL_PARAM_SIZE, .index = SIZE_KV_LEN},
    {.kind = KERNEL_PARAM_SCALAR, .index = 1},
    {.kind = KERNEL_PARAM_SCALAR, .index = 2},
    {.kind = KERNEL_PARAM_POINTER, .index = KERNEL_TENSOR_LSE},
    {.kind = KERNEL_PARAM_WORKSPACE},
};
static struct kernel_param call_params[] = {{.kind = KERNEL_PARAM_WORKSPACE}};
static struct kernel_param copy_params[] = {{.kind = KERNEL_PARAM_TENSOR_MAP},
                                            {.kind = KERNEL_PARAM_WORKSPACE}};

static struct attn_program *make_program(const struct kernel_info *info, const char *ptx,
                                         const struct rt_cuda_source *source) {
    struct attn_program *program = NULL;
    struct strbuf payload;
    struct rt_program_parts parts = {.info = info, .ptx = ptx, .ptx_size = strlen(ptx),
                                     .warnings = "", .sources = source,
                                     .source_count = source != NULL};
    strbuf_init(&payload, NULL);
    rt_program_write(&parts, &payload);
    expect_ok(rt_program_create(payload.data, payload.length, (struct rt_key){0}, NULL, &program),
              "program");
    strbuf_destroy(&payload);
    return program;
}

/* ---- A call ------------------------------------------------------------ */

static int64_t q_shape[] = {BATCH, HEADS, Q_LEN, D}, k_shape[] = {BATCH, KV_HEADS, KV_LEN, D};
static DLTensor q, k;
static struct attn_param_arg cap = {"cap", ATTN_F32, {.f32 = 1.0f}};
static uint64_t workspace;
static uint16_t k_host[BATCH * KV_HEADS * KV_LEN * D];

static uint64_t allocate(size_t bytes) {
    uint64_t address = 0;
    expect_ok(RT_CUDA(driver, cuMemAlloc, (&address, bytes)), "cuMemAlloc");
    return address;
}

static struct attn_args make_args(void) {
    q = (DLTensor){.data = (void *)(uintptr_t)allocate(1 << 16), .device = {kDLCUDA, 0},
                   .ndim = 4, .dtype = {kDLBfloat, 16, 1}, .shape = q_shape};
    k = q;
    k.shape = k_shape;
    k.data = (void *)(uintptr_t)allocate(sizeof k_host);
    for (size_t i = 0; i < sizeof k_host / sizeof *k_host; i++)
        k_host[i] = (uint16_t)i;
    driver->cuMemcpyHtoD((uint64_t)(uintptr_t)k.data, k_host, sizeof k_host);
    workspace = allocate(8192);
    return (struct attn_args){.q = &q, .k = &k, .v = &k, .o = &q, .params = &cap,
                              .param_count = 1, .workspace = (void *)(uintptr_t)workspace,
                              .workspace_bytes = 8192};
}

static void read_words(uint64_t *words, size_t bytes) {
    expect_ok(RT_CUDA(driver, cuMemcpyDtoH, (words, workspace, bytes)), "read back");
}

static void test_echo(const struct attn_kernel *kernel, const struct attn_args *args,
                      const char *what) {
    uint64_t words[16];
    expect_ok(attn_workspace_clear(kernel, args, NULL), "workspace clear");
    expect_ok(attn_launch(kernel, args, NULL), "launch");
    read_words(words, sizeof words);
    const uint64_t want[] = {(uint64_t)(uintptr_t)q.data, 0x3f800000, Q_LEN * D, Q_LEN, KV_LEN,
                             64, 1, 0};
    expect(memcmp(words, want, sizeof want) == 0 && words[15] == 1, what);
}

/* A program for sm_90a; NULL, and the program gone, on devices that are not and
 * after a failure. */
static struct attn_kernel *load_or_skip(struct attn_program *program,
                                        const char *what) {
    struct attn_kernel *kernel = NULL;
    struct attn_status *status = rt_api_kernel_load(driver, program, &kernel);
    if (attn_status_code(status) == ATTN_INVALID_ARGUMENT) {
        printf("skip %s: %s\n", what, attn_status_text(status));
        attn_status_destroy(status);
    } else {
        expect_ok(status, "load sm_90a");
    }
    if (kernel == NULL)
        attn_program_destroy(program);
    return kernel;
}

static void test_map(struct attn_args *args) {
    struct attn_program *program =
        make_program(make_info("sm_90a", "copy", copy_params, 2, 8192), map_ptx, NULL);
    struct attn_kernel *kernel = load_or_skip(program, "tensor maps");
    if (kernel == NULL)
        return;
    static uint16_t panel[64 * 64];
    expect_ok(attn_launch(kernel, args, NULL), "launch with a tensor map");
    expect_ok(RT_CUDA(driver, cuMemcpyDtoH, (panel, workspace, sizeof panel)), "read back");
    bool good = true;
    for (int row = 0; row < 64; row++)
        for (int column = 0; column < 64; column++) {
            /* 128-byte swizzle: 16-byte chunk c of row r lies at chunk c ^ (r mod 8). */
            int at = row * 64 + ((column / 8 ^ row % 8) * 8 + column % 8);
            int source = 64 + row;
            uint16_t want = source < KV_LEN ? k_host[(KV_LEN + source) * D + column] : 0;
            good = good && panel[at] == want;
        }
    expect(good, "tensor map: swizzle, batch offset, zero fill");
    attn_kernel_destroy(kernel);
    attn_program_destroy(program);
}

static void test_extern(const struct attn_args *args) {
    static const struct rt_cuda_source source = {
        "decay.cu", "extern \"C\" __device__ float decay(int d) { return 0.5f * d; }\n"};
    struct attn_program *program =
        make_program(make_info("sm_80", "call", call_params, 1, 0), extern_ptx, &source);
    struct attn_kernel *kernel = NULL;
    expect_ok(rt_api_kernel_load(driver, program, &kernel), "load with an extern function");
    if (kernel == NULL) {
        attn_program_destroy(program);
        return;
    }
    expect_ok(attn_launch(kernel, args, NULL), "launch with an extern function");
    float result = 0;
    expect_ok(RT_CUDA(driver, cuMemcpyDtoH, (&result, workspace, sizeof result)), "read back");
    expect(result == 1.5f, "extern function: NVRTC, nvJitLink");
    attn_kernel_destroy(kernel);
    attn_program_destroy(program);
}

/* The graph functions are not in the runtime's table: it never captures. */
static int (*begin)(void *, int), (*end)(void *, void **);
static int (*instantiate)(void **, void *, unsigned long long);
static int (*launch)(void *, void *);

static void open_graph_functions(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&begin = dlsym(library, "cuStreamBeginCapture_v2");
    *(void **)&end = dlsym(library, "cuStreamEndCapture");
    *(void **)&instantiate = dlsym(library, "cuGraphInstantiateWithFlags");
    *(void **)&launch = dlsym(library, "cuGraphLaunch");
}

static void test_graph(const struct attn_kernel *kernel,
                       const struct attn_args *args) {
    struct CUstream_st *stream = NULL;
    void *graph = NULL, *executable = NULL;
    uint64_t words[16];
    driver->cuStreamCreate(&stream, 1);
    expect(begin(stream, 0) == 0, "begin capture");
    expect_ok(attn_workspace_clear(kernel, args, stream), "clear while capturing");
    expect_ok(attn_launch(kernel, args, stream), "launch while capturing");
    expect_ok(attn_launch(kernel, args, stream), "second launch while capturing");
    expect(end(stream, &graph) == 0 && instantiate(&executable, graph, 0) == 0, "end capture");
    for (int i = 0; i < 3; i++)
        expect(launch(executable, stream) == 0, "graph launch");
    driver->cuStreamSynchronize(stream);
    read_words(words, sizeof words);
    expect(words[15] == 2, "graph: clear and two launches, three times");
    driver->cuStreamDestroy(stream);
}

/* Microseconds. */
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* "one" for kv_len below KV_LEN, else the second kernel. */
static struct attn_program *make_later_program(void) {
    struct kernel_info *info = make_info("sm_90a", "one", call_params, 1, 0);
    struct kernel_entry *entries =
        ARENA_NEW_ARRAY(arena, struct kernel_entry, 2);
    entries[0] = entries[1] = info->entries[0];
    entries[1].name = "one$tile_64x64";
    entries[0].conditional = entries[1].conditional = true;
    for (int i = 0; i < 2; i++) {
        struct size_expr grid = size_expr_size(arena, SIZE_KV_LEN);
        size_expr_push(arena, &grid, SIZE_OP_CONST, KV_LEN);
        size_expr_push(arena, &grid, SIZE_OP_LT, 0);
        size_expr_push(arena, &grid, SIZE_OP_CONST, i == 0);
        size_expr_push(arena, &grid, SIZE_OP_EQ, 0);
        entries[i].grid_x = grid;
    }
    info->entries = entries;
    info->entry_count = 2;
    return make_program(info, later_ptx, NULL);
}

/* A launch that loads its kernel is captured, in the strictest mode. */
static void test_later(const struct attn_args *args) {
    struct attn_program *program = make_later_program();
    struct attn_kernel *kernel =
        load_or_skip(program, "kernels that come later");
    struct CUstream_st *stream = NULL;
    void *graph = NULL, *executable = NULL;
    uint64_t word = 0;
    if (kernel == NULL)
        return;
    driver->cuStreamCreate(&stream, 1);
    expect(begin(stream, 0) == 0, "begin capture");
    double start = now();
    expect_ok(attn_launch(kernel, args, stream), "load a kernel in a capture");
    printf("kernel loaded in %.1f ms\n", (now() - start) / 1e3);
    expect(end(stream, &graph) == 0 &&
               instantiate(&executable, graph, 0) == 0 &&
               launch(executable, stream) == 0,
           "the capture goes on");
    driver->cuStreamSynchronize(stream);
    read_words(&word, sizeof word);
    expect(word == 2, "graph: the second kernel ran");
    k_shape[2] = KV_LEN - 1;
    expect_ok(attn_launch(kernel, args, stream),
              "load and launch the other kernel");
    k_shape[2] = KV_LEN;
    driver->cuStreamSynchronize(stream);
    read_words(&word, sizeof word);
    expect(word == 1, "the other kernel ran");
    driver->cuStreamDestroy(stream);
    attn_kernel_destroy(kernel);
    attn_program_destroy(program);
}

struct thread_work {
    const struct attn_kernel *kernel;
    const struct attn_args *args;
    bool good;
};

enum { THREADS = 4, LAUNCHES = 500 };

/* No context is current on this thread. */
static void *launch_often(void *data) {
    struct thread_work *work = data;
    work->good = true;
    for (int i = 0; i < LAUNCHES; i++) {
        struct attn_status *status = attn_launch(work->kernel, work->args, NULL);
        work->good = work->good && status == NULL;
        attn_status_destroy(status);
    }
    return NULL;
}

static void test_threads(const struct attn_kernel *kernel, const struct attn_args *args) {
    struct thread_work work[THREADS];
    pthread_t threads[THREADS];
    uint64_t words[16];
    expect_ok(attn_workspace_clear(kernel, args, NULL), "workspace clear");
    driver->cuCtxSynchronize();
    for (int i = 0; i < THREADS; i++) {
        work[i] = (struct thread_work){kernel, args, false};
        pthread_create(&threads[i], NULL, launch_often, &work[i]);
    }
    bool good = true;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        good = good && work[i].good;
    }
    driver->cuCtxSynchronize();
    read_words(words, sizeof words);
    expect(good && words[15] == THREADS * LAUNCHES, "threads without a current context");
}

/* CPU time of a launch; the queue is drained in between so that it never blocks. */
static void time_launches(const struct attn_kernel *kernel, const struct attn_args *args) {
    struct attn_plan *plan = NULL;
    double checked = 0, planned = 0;
    expect_ok(attn_plan_create(kernel, args, &plan), "plan");
    for (int round = 0; round < 20; round++) {
        double start = now();
        for (int i = 0; i < 100; i++)
            attn_status_destroy(attn_launch(kernel, args, NULL));
        checked += now() - start;
        driver->cuCtxSynchronize();
        start = now();
        for (int i = 0; i < 100; i++)
            attn_status_destroy(attn_plan_launch(plan, NULL));
        planned += now() - start;
        driver->cuCtxSynchronize();
    }
    printf("launch %.2f us, planned launch %.2f us of CPU time\n", checked / 2000, planned / 2000);
    expect(checked / 2000 < 10, "a launch takes less than 10 us");
    attn_plan_destroy(plan);
}

static void test_refusals(void) {
    struct attn_program *program =
        make_program(make_info("sm_120a", "echo", echo_params, 9, 0), echo_ptx, NULL);
    struct attn_kernel *kernel = NULL;
    struct attn_status *status = rt_api_kernel_load(driver, program, &kernel);
    expect(attn_status_code(status) == ATTN_INVALID_ARGUMENT, "another device's code is refused");
    attn_status_destroy(status);
    attn_program_destroy(program);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was said before a crash counts */
    struct attn_status *status = rt_driver_get(&driver);
    if (status != NULL) {
        printf("no GPU: %s\n", attn_status_text(status));
        attn_status_destroy(status);
        return 3;
    }
    arena = arena_create();
    driver->cuDevicePrimaryCtxRetain(&cuda, 0);
    driver->cuCtxPushCurrent(cuda);
    struct attn_args args = make_args();
    const struct kernel_info *info = make_info("sm_80", "echo", echo_params, 9, 65536);
    struct attn_program *program = make_program(info, echo_ptx, NULL);
    struct attn_kernel *kernel = NULL, *primary = NULL;
    expect_ok(rt_api_kernel_load(driver, program, &kernel), "load into the current context");
    expect_ok(attn_kernel_load_device(program, 0, &primary), "load into the primary context");
    test_echo(kernel, &args, "every kind of parameter arrives");
    test_echo(primary, &args, "the same in the primary context");
    open_graph_functions();
    test_graph(kernel, &args);
    test_later(&args);
    test_threads(kernel, &args);
    time_launches(kernel, &args);
    test_map(&args);
    test_extern(&args);
    test_refusals();
    /* The driver's own compiler, as on a machine without a toolkit. */
    struct rt_device device;
    struct rt_kernel *direct = NULL;
    expect_ok(rt_device_current(driver, &device), "device");
    expect_ok(rt_kernel_create(driver, &device, info, echo_ptx, RT_KERNELS_ALL,
                               &direct),
              "load PTX text");
    rt_kernel_destroy(direct);
    attn_kernel_destroy(kernel);
    attn_kernel_destroy(primary);
    attn_program_destroy(program);
    printf("%d failures\n", failures);
    return failures > 0;
}
