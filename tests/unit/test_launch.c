/* Loading and launching on a recorded driver: what reaches the kernels, and
 * that every wrong argument is named before anything is launched. */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_driver.h"
#include "folder.h"
#include "runtime/api_launch.h"
#include "runtime/launch.h"
#include "runtime/program.h"
#include "sample_info.h"

enum { BATCH = 2, HEADS = 4, KV_HEADS = 2, Q_LEN = 100, KV_LEN = 130, D = 64 };

static const char image[] = "summary attend";

static struct arena *arena;
static struct kernel_info *info;
static struct rt_kernel *kernel;
static struct rt_frame *frame;
static const struct rt_device device = {0, 9, 0, 132, FAKE_MAX_SHARED};

/* A call that is right; tests break one thing. */
static int64_t shapes[7][4], strides[7][4];
static DLTensor tensors[7]; /* q k v o lse doc unused */
static struct attn_tensor_arg captured[2];
static struct attn_param_arg params[3];
static struct attn_args args;

static void set_tensor(int i, uint8_t code, uint8_t bits, int rank,
                       const int64_t *shape) {
    memcpy(shapes[i], shape, (size_t)rank * sizeof *shape);
    int64_t stride = 1;
    for (int axis = rank - 1; axis >= 0; axis--) {
        strides[i][axis] = stride;
        stride *= shape[axis];
    }
    tensors[i] = (DLTensor){.data = (void *)(uintptr_t)(0x10000 * (i + 1)),
                            .device = {kDLCUDA, 0},
                            .ndim = rank,
                            .dtype = {code, bits, 1},
                            .shape = shapes[i],
                            .strides = strides[i]};
}

static void set_call(int q_len) {
    set_tensor(0, kDLBfloat, 16, 4, (int64_t[]){BATCH, HEADS, q_len, D});
    set_tensor(1, kDLBfloat, 16, 4, (int64_t[]){BATCH, KV_HEADS, KV_LEN, D});
    set_tensor(2, kDLBfloat, 16, 4, (int64_t[]){BATCH, KV_HEADS, KV_LEN, D});
    set_tensor(3, kDLBfloat, 16, 4, (int64_t[]){BATCH, HEADS, q_len, D});
    set_tensor(4, kDLFloat, 32, 3, (int64_t[]){BATCH, HEADS, q_len});
    set_tensor(5, kDLInt, 32, 2, (int64_t[]){BATCH, KV_LEN + 4});
    set_tensor(6, kDLFloat, 32, 1, (int64_t[]){HEADS});
    captured[0] = (struct attn_tensor_arg){"doc", &tensors[5]};
    captured[1] = (struct attn_tensor_arg){"unused", &tensors[6]};
    params[0] = (struct attn_param_arg){"cap", ATTN_F32, {.f32 = 30.0f}};
    params[1] = (struct attn_param_arg){"window", ATTN_I32, {.i32 = 64}};
    params[2] = (struct attn_param_arg){"flag", ATTN_BOOL, {.boolean = false}};
    args = (struct attn_args){
        &tensors[0], &tensors[1],      &tensors[2], &tensors[3],
        &tensors[4], captured,         1,           params,
        1,           (void *)0x200000, 4096};
}

static void setup(void) {
    fake_reset();
    arena = arena_create();
    info = sample_info(arena);
    cr_assert_null(rt_kernel_create(fake_driver(), &device, info, image,
                                    RT_KERNELS_ALL, &kernel));
    frame = rt_frame_init(kernel,
                          aligned_alloc(RT_FRAME_ALIGN, kernel->frame_bytes));
    set_call(Q_LEN);
}

static void teardown(void) {
    free(frame);
    rt_kernel_destroy(kernel);
    cr_assert_eq(fake.unload_count, 1);
    arena_destroy(arena);
}

TestSuite(launch, .init = setup, .fini = teardown);

static struct attn_status *launch(void) {
    struct attn_status *status = rt_frame_prepare(kernel, &args, frame);
    return status != NULL
               ? status
               : rt_frame_launch(kernel, frame, (struct CUstream_st *)0x77);
}

static void expect_fault(const char *text) {
    struct attn_status *status = launch();
    cr_assert_eq(attn_status_code(status), ATTN_INVALID_ARGUMENT,
                 "expected: %s", text);
    cr_assert_str_eq(attn_status_text(status), text);
    cr_assert_eq(fake.launch_count, 0);
    attn_status_destroy(status);
}

static void note_param_sizes(void) {
    for (size_t e = 0; e < info->entry_count; e++)
        for (size_t p = 0; p < info->entries[e].param_count; p++)
            fake.param_sizes[e][p] =
                kernel_param_size(info->entries[e].params[p].kind);
}

static uint64_t param64(int entry, int index) {
    uint64_t value = 0;
    memcpy(&value, fake.launches[entry].bytes[index], sizeof value);
    return value;
}

static uint32_t param32(int entry, int index) {
    uint32_t value = 0;
    memcpy(&value, fake.launches[entry].bytes[index], sizeof value);
    return value;
}

Test(launch, packs_every_kind_of_parameter) {
    note_param_sizes();
    cr_assert_null(launch());
    cr_assert_eq(fake.launch_count, 2);
    const struct fake_launch *summary = &fake.launches[0],
                             *attend = &fake.launches[1];
    cr_assert_str_eq(summary->name, "summary");
    cr_assert_eq(summary->grid, 3 * BATCH);
    cr_assert_eq(summary->threads, 128);
    cr_assert_eq(summary->shared_bytes, 0);
    cr_assert_eq(param64(0, 0), 0x60000);
    cr_assert_eq(param32(0, 1), KV_LEN + 4);
    cr_assert_eq(param64(0, 2), KV_LEN + 4);
    cr_assert_eq(param64(0, 3), 0x200000 + 256);
    cr_assert_str_eq(attend->name, "attend");
    cr_assert_eq(attend->grid, BATCH);
    cr_assert_eq(attend->threads, 256);
    cr_assert_eq(attend->shared_bytes, 65536);
    cr_assert_eq(attend->stream, (struct CUstream_st *)0x77);
    cr_assert_eq(param64(1, 0), 0x10000);
    cr_assert_eq(param32(1, 1), 0x41f00000); /* 30.0f */
    cr_assert_eq(param64(1, 2), HEADS * Q_LEN * D);
    cr_assert_eq(param64(1, 4), D);
    cr_assert_eq(param32(1, 5), KV_LEN);
    cr_assert_eq(param32(1, 6), 64); /* the default */
    cr_assert_eq(param32(1, 7), 1);
    cr_assert_eq(param64(1, 8), 0x50000);
    cr_assert_eq(param64(1, 9), 0x200000);
    cr_assert_eq(param64(1, 10), 0xA5A5A5A5A5A5A5A5);
    cr_assert_eq(param64(1, 11), 0x40000);
    for (int p = 0; p < 12; p++)
        cr_assert_eq((uintptr_t)attend->params[p] %
                         kernel_param_align(info->entries[1].params[p].kind),
                     0);
}

Test(launch, loads_with_shared_memory_and_never_allocates) {
    cr_assert_eq(fake.load_count, 1);
    cr_assert_eq(fake.max_dynamic_shared, 65536);
    cr_assert_eq(kernel->entries[0].registers, 168);
    cr_assert_null(launch());
    cr_assert_eq(fake.alloc_count + fake.sync_count + fake.memset_count, 0);
}

Test(launch, tensor_map_describes_panels) {
    cr_assert_null(launch());
    cr_assert_eq(fake.map.type, RT_TENSOR_MAP_BFLOAT16);
    cr_assert_eq(fake.map.address, 0x20000);
    cr_assert_arr_eq(fake.map.extents,
                     ((uint64_t[]){64, KV_LEN, 1, KV_HEADS, BATCH}), 40);
    cr_assert_arr_eq(
        fake.map.strides,
        ((uint64_t[]){D * 2, 128, KV_LEN * D * 2, KV_HEADS * KV_LEN * D * 2}),
        32);
    cr_assert_arr_eq(fake.map.box, ((uint32_t[]){64, 64, 1, 1, 1}), 20);
    cr_assert_eq(fake.map.swizzle, 3);
}

/* Packed heads: a box holds every head of 16 queries. */
Test(launch, tensor_map_packs_heads) {
    info->tensor_maps[0] =
        (struct kernel_tensor_map){KERNEL_TENSOR_Q, 64, 64, 1, 128, HEADS};
    cr_assert_null(launch());
    cr_assert_eq(fake.map.address, 0x10000);
    cr_assert_arr_eq(fake.map.extents,
                     ((uint64_t[]){64, HEADS, Q_LEN, 1, BATCH}), 40);
    cr_assert_arr_eq(
        fake.map.strides,
        ((uint64_t[]){Q_LEN * D * 2, D * 2, 128, HEADS * Q_LEN * D * 2}), 32);
    cr_assert_arr_eq(fake.map.box, ((uint32_t[]){64, HEADS, 16, 1, 1}), 20);
}

Test(launch, takes_bshd_views_and_byte_offsets) {
    note_param_sizes();
    strides[0][0] = Q_LEN * HEADS * D;
    strides[0][1] = D;
    strides[0][2] = HEADS * D;
    tensors[0].byte_offset = 32;
    cr_assert_null(launch());
    cr_assert_eq(param64(1, 0), 0x10020);
    cr_assert_eq(param64(1, 3), D);
    cr_assert_eq(param64(1, 4), HEADS * D);
}

Test(launch, output_may_be_interleaved) {
    kernel->contract.passed_strides[3] = 7;
    strides[3][0] = Q_LEN * 3 * HEADS *
                    D; /* one third of a packed [batch, len, 3, heads, dim] */
    strides[3][1] = D;
    strides[3][2] = 3 * HEADS * D;
    cr_assert_null(launch());
}

Test(launch, strides_of_unit_axes_do_not_matter) {
    note_param_sizes();
    for (int i = 0; i < 6; i++)
        shapes[i][0] = 1;
    strides[0][0] = 12345;
    cr_assert_null(launch());
    cr_assert_eq(param64(1, 2), 0);
}

Test(launch, null_strides_are_compact) {
    note_param_sizes();
    tensors[0].strides = NULL;
    cr_assert_null(launch());
    cr_assert_eq(param64(1, 2), HEADS * Q_LEN * D);
}

Test(launch, lse_may_be_left_out) {
    note_param_sizes();
    args.lse = NULL;
    cr_assert_null(launch());
    cr_assert_eq(param64(1, 8), 0);
}

Test(launch, parameters_override_defaults) {
    note_param_sizes();
    args.param_count = 3;
    params[1].value.i32 = -32; /* doc then has KV_LEN - 2 columns */
    shapes[5][1] = KV_LEN - 2;
    cr_assert_null(launch());
    cr_assert_eq(param32(1, 6), (uint32_t)-32);
    cr_assert_eq(param32(1, 7), 0);
}

Test(launch, f32_parameters_take_exact_integers) {
    note_param_sizes();
    params[0] = (struct attn_param_arg){"cap", ATTN_I32, {.i32 = 30}};
    cr_assert_null(launch());
    cr_assert_eq(param32(1, 1), 0x41f00000);
    fake.launch_count = 0;
    params[0].value.i32 = (1 << 24) + 1;
    expect_fault(
        "parameter 'cap' is f32, which cannot hold the i32 16777217 exactly");
}

Test(launch, no_queries_is_no_launch) {
    for (int i = 0; i < 3; i++) {
        static const int tensor_of[] = {0, 3, 4};
        shapes[tensor_of[i]][2] = 0;
    }
    args.workspace = NULL;
    cr_assert_null(launch());
    cr_assert_eq(fake.launch_count, 0);
}

Test(launch, no_keys_still_launches) {
    shapes[1][2] = shapes[2][2] = 0;
    shapes[5][1] = 4;
    tensors[1].data = tensors[2].data = NULL;
    cr_assert_null(launch());
    cr_assert_eq(fake.launch_count, 1); /* the summary has no blocks */
    cr_assert_str_eq(fake.launches[0].name, "attend");
    cr_assert_eq(fake.map.address, 0x10000);
}

/* ---- Wrong arguments --------------------------------------------------- */

Test(launch, names_wrong_tensors) {
#define WRONG(change, text) \
    do {                    \
        teardown();         \
        setup();            \
        change;             \
        expect_fault(text); \
    } while (0)
    WRONG(args.q = NULL, "tensor 'q' is missing");
    WRONG(args.o = NULL, "tensor 'o' is missing");
    WRONG(tensors[0].ndim = 3, "tensor 'q' has rank 3, expected 4");
    WRONG(tensors[1].dtype.code = kDLFloat,
          "tensor 'k' is float16, expected bf16");
    WRONG(tensors[4].dtype.bits = 64, "tensor 'lse' is float64, expected f32");
    WRONG(tensors[5].dtype.code = kDLUInt,
          "tensor 'doc' is uint32, expected i32");
    WRONG(tensors[2].device.device_type = kDLCPU,
          "tensor 'v' is on the CPU, the kernel on cuda:0");
    WRONG(tensors[2].device.device_id = 3,
          "tensor 'v' is on cuda:3, the kernel on cuda:0");
    WRONG(shapes[1][0] = 3, "tensor 'k' has extent 3 on axis 0, expected 2");
    WRONG(shapes[0][3] = 32, "tensor 'q' has extent 32 on axis 3, expected 64");
    WRONG(shapes[2][2] = 129,
          "tensor 'v' has extent 129 on axis 2, expected 130");
    WRONG(shapes[5][1] = 130,
          "tensor 'doc' has extent 130 on axis 1, expected 134");
    WRONG(shapes[4][2] = 1,
          "tensor 'lse' has extent 1 on axis 2, expected 100");
    WRONG(shapes[0][1] = -1,
          "tensor 'q' has extent -1 on axis 1, expected 0 to 2147483647");
    WRONG(strides[0][3] = 2,
          "tensor 'q' has stride 2 on its last axis, expected 1");
    WRONG(strides[1][2] = 68,
          "tensor 'k' has stride 68 on axis 2, expected a multiple of 8 "
          "elements (rows start at multiples of 16 bytes)");
    WRONG(strides[3][1] = 0,
          "tensor 'o' has stride 0 on axis 1, expected 6400 (compact)");
    WRONG(
        (kernel->contract.passed_strides[3] = 7, strides[3][1] = 0),
        "tensor 'o' is written, but its elements overlap (stride 0 on axis 1)");
    WRONG((kernel->contract.passed_strides[3] = 7, strides[3][1] = 8 * D),
          "tensor 'o' is written, but its elements overlap (stride 512 on axis "
          "1)");
    WRONG(strides[4][2] = 2,
          "tensor 'lse' has stride 2 on axis 2, expected 1 (compact)");
    WRONG(strides[0][0] = INT64_MAX - 7,
          "tensor 'q' has stride 9223372036854775800 on axis 0, "
          "which leaves the address space");
    WRONG(tensors[0].data = NULL, "tensor 'q' has no data");
    WRONG(tensors[0].byte_offset = 8,
          "tensor 'q' starts at 0x10008, expected a multiple of 16 bytes");
    WRONG(tensors[5].byte_offset = 2,
          "tensor 'doc' starts at 0x60002, expected a multiple of 4 bytes");
    WRONG(strides[1][1] = -6400,
          "tensor 'k' has stride -6400 on axis 1, which a TMA tensor map "
          "cannot hold (0 to 2^40 bytes)");
}

Test(launch, names_wrong_captures_and_parameters) {
    WRONG(args.tensor_count = 0, "tensor 'doc' is missing");
    WRONG(captured[0].tensor = NULL, "tensor 'doc' is missing");
    WRONG(captured[0].name = "dog", "attention 'sample' has no tensor 'dog'");
    WRONG((captured[1] = captured[0], args.tensor_count = 2),
          "tensor 'doc' is given twice");
    WRONG((args.tensor_count = 2, shapes[6][0] = 1),
          "tensor 'unused' has extent 1 on axis 0, expected 4");
    WRONG(args.param_count = 0,
          "parameter 'cap' is missing (f32, without a default)");
    WRONG(params[0].name = "cup", "attention 'sample' has no parameter 'cup'");
    WRONG(params[0].type = ATTN_BOOL,
          "parameter 'cap' is given as bool, expected f32");
    WRONG((args.param_count = 2, params[1] = params[0]),
          "parameter 'cap' is given twice");
    WRONG((args.param_count = 2, params[1].type = ATTN_F32),
          "parameter 'window' is given as f32, expected i32");
    WRONG((args.param_count = 2, params[1].value.i32 = INT32_MIN),
          "tensor 'doc' would need extent -134217598 on axis 1 with these "
          "sizes and parameters, "
          "expected 1 to 2147483647");
}

Test(launch, names_wrong_sizes_and_workspaces) {
    WRONG(shapes[0][1] = shapes[3][1] = shapes[4][1] = 3,
          "q has 3 heads, expected a multiple of k's 2");
    WRONG(info->group = 4,
          "q has 4 heads and k 2, but the spec says group 4: expected 8 heads");
    WRONG(args.workspace = NULL,
          "the workspace has 0 bytes, expected 280 (attn_workspace_size)");
    WRONG(args.workspace_bytes = 279,
          "the workspace has 279 bytes, expected 280 (attn_workspace_size)");
    WRONG(args.workspace = (void *)0x200010,
          "the workspace starts at 0x200010, expected a multiple of 256 bytes");
}

/* ---- The rest ---------------------------------------------------------- */

Test(launch, workspace_size_needs_shapes_only) {
    uint64_t bytes = 0, zeroed = 0;
    args.o = args.lse = NULL;
    args.workspace = NULL;
    for (int i = 0; i < 6; i++)
        tensors[i].data = NULL;
    cr_assert_null(rt_workspace_size(kernel, &args, frame, &bytes, &zeroed));
    cr_assert_eq(bytes, 256 + 3 * 8);
    cr_assert_eq(zeroed, 256);
}

Test(launch, workspace_clear_zeroes_the_counters) {
    cr_assert_null(rt_workspace_clear(kernel, &args, frame, NULL));
    cr_assert_eq(fake.memset_count, 1);
    cr_assert_eq(fake.memset_address, 0x200000);
    cr_assert_eq(fake.memset_bytes, 256);
}

Test(launch, enters_the_kernels_context) {
    struct CUctx_st *own = fake.current;
    fake.current = NULL;
    cr_assert_null(launch());
    cr_assert_eq(fake.push_count, 1);
    cr_assert_null(fake.current);
    fake.current = own;
}

Test(launch, driver_failure_names_the_kernel) {
    fake.fail_launch = 1;
    struct attn_status *status = launch();
    cr_assert_eq(attn_status_code(status), ATTN_CUDA);
    cr_assert_str_eq(
        attn_status_text(status),
        "kernel 'summary': cuLaunchKernel: CUDA_ERROR_FAKE (1): made up");
    attn_status_destroy(status);
}

static void expect_load_fault(const char *part) {
    struct rt_kernel *other = NULL;
    struct attn_status *status = rt_kernel_create(
        fake_driver(), &device, info, image, RT_KERNELS_ALL, &other);
    cr_assert_not_null(status);
    cr_assert_not_null(strstr(attn_status_text(status), part), "%s",
                       attn_status_text(status));
    attn_status_destroy(status);
    fake.unload_count = 0;
}

Test(launch, load_failures_are_told) {
    fake.fail_load = 209;
    expect_load_fault("ptxas fatal: made up");
    fake.fail_load = 0;
    info->entries[1].name = "absent";
    expect_load_fault("kernel 'absent': cuModuleGetFunction");
    info->entries[1].name = "attend";
    info->entries[1].shared_bytes = 228 << 10;
    expect_load_fault("kernel 'attend' needs 233472 bytes of shared memory, "
                      "the device has 232448");
    info->entries[1].shared_bytes = 0;
}

/* The public functions over the same driver: a kernel outlives its program's
 * handle, a plan repeats its launch without looking at the arguments again. */
Test(launch, public_functions) {
    static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                              ".visible .entry summary() { ret; }\n"
                              ".visible .entry attend() { ret; }\n";
    struct rt_program_parts parts = {
        .info = info, .ptx = ptx, .ptx_size = sizeof ptx - 1, .warnings = ""};
    struct attn_program *program = NULL;
    struct attn_kernel *public_kernel = NULL;
    struct attn_plan *plan = NULL;
    struct strbuf payload;
    strbuf_init(&payload, NULL);
    rt_program_write(&parts, &payload);
    cr_assert_null(rt_program_create(payload.data, payload.length,
                                     (struct rt_key){1, 2}, NULL, &program));
    strbuf_destroy(&payload);
    cr_assert_null(rt_api_kernel_load(fake_driver(), program, &public_kernel));
    attn_program_destroy(program);
    /* A cubin where this machine has an assembler, else the PTX for the
     * driver. */
    cr_assert(memcmp(fake.image, "\177ELF", 4) == 0 ||
              memcmp(fake.image, ptx, 20) == 0);
    size_t bytes = 0;
    cr_assert_null(attn_workspace_size(public_kernel, &args, &bytes));
    cr_assert_eq(bytes, 280);
    cr_assert_null(attn_workspace_clear(public_kernel, &args, NULL));
    cr_assert_eq(fake.memset_count, 1);
    cr_assert_null(attn_launch(public_kernel, &args, NULL));
    cr_assert_eq(fake.launch_count, 2);
    cr_assert_null(attn_plan_create(public_kernel, &args, &plan));
    cr_assert_eq(fake.launch_count, 2);
    memset(tensors, 0, sizeof tensors);
    note_param_sizes();
    fake.launch_count = 0;
    cr_assert_null(attn_plan_launch(plan, NULL));
    cr_assert_null(attn_plan_launch(plan, NULL));
    cr_assert_eq(fake.launch_count, 4);
    cr_assert_eq(param64(1, 0), 0x10000);
    attn_plan_destroy(plan);
    attn_kernel_destroy(public_kernel);
    cr_assert_eq(fake.unload_count, 1);
    fake.unload_count = 0;
}

Test(launch, null_arguments_are_refused) {
    struct attn_status *status = rt_frame_prepare(kernel, NULL, frame);
    cr_assert_eq(attn_status_code(status), ATTN_INVALID_ARGUMENT);
    attn_status_destroy(status);
    args.params = NULL;
    status = rt_frame_prepare(kernel, &args, frame);
    cr_assert_eq(attn_status_code(status), ATTN_INVALID_ARGUMENT);
    attn_status_destroy(status);
}

Test(launch, architectures) {
    static const struct {
        const char *target, *arch;
        int major, minor;
    } rows[] = {
        {"sm_80", "sm_90", 9, 0},   {"sm_80", "sm_80", 8, 0},
        {"sm_80", "sm_120", 12, 0}, {"sm_90a", "sm_90a", 9, 0},
        {"sm_90a", NULL, 10, 0},    {"sm_90", NULL, 8, 9},
        {"sm_86", NULL, 8, 0},      {"sm_100f", "sm_100f", 10, 3},
        {"sm_100f", NULL, 12, 0},   {"sm_", NULL, 9, 0},
        {"gfx90", NULL, 9, 0},      {"sm_90aa", NULL, 9, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rt_device other = {.major = rows[i].major,
                                  .minor = rows[i].minor};
        char arch[16] = "";
        struct attn_status *status =
            rt_arch_for_device(rows[i].target, &other, arch);
        cr_assert_eq(status == NULL, rows[i].arch != NULL, "%s on %d.%d",
                     rows[i].target, rows[i].major, rows[i].minor);
        if (rows[i].arch != NULL)
            cr_assert_str_eq(arch, rows[i].arch);
        attn_status_destroy(status);
    }
}

/* ---- Kernels that come later -------------------------------------------- */

enum { SHORT = SAMPLE_SECOND_Q_LEN };
static const char second_name[] = "attend$tile_64x64";
static const char second_ptx[] =
    "// summary, attend\n.version 8.0\n.target sm_90a\n.address_size 64\n"
    "\n.visible .entry summary(\n)\n{\n    {\n    }\n    ret;\n}\n"
    "\n.visible .entry attend(\n)\n{\n    ret;\n}\n"
    "\n.visible .entry attend$tile_64x64(\n)\n{\n    ret;\n}\n";

/* A ptxas that "assembles" to the names of the kernels, notes each run, and
 * refuses with the text of FOLDER/broken. */
static void make_toolkit(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/bin", folder);
    mkdir(path, 0700);
    strcat(path, "/ptxas");
    FILE *file = fopen(path, "w");
    fprintf(file,
            "#!/bin/sh\n"
            "out=; in=\n"
            "while [ $# -gt 0 ]; do\n"
            "    case $1 in\n"
            "    -o) out=$2; shift ;;\n"
            "    *.ptx) in=$1 ;;\n"
            "    esac\n"
            "    shift\n"
            "done\n"
            "cat %s/broken 2>/dev/null && exit 7\n"
            "grep -q '^.version' $in && ! grep -q '^[^.}{/ )]' $in || exit 8\n"
            "sed -n 's/^.visible .entry \\(.*\\)($/\\1/p' $in | "
            "tr '\\n' ' ' >$out\n"
            "echo \"$(cat $out)\" >>%s/runs\n",
            folder, folder);
    fclose(file);
    chmod(path, 0700);
    setenv("CUDA_HOME", folder, 1);
}

static void break_toolkit(const char *message) {
    char path[96];
    snprintf(path, sizeof path, "%s/broken", folder);
    FILE *file = fopen(path, "w");
    fprintf(file, "%s\n", message);
    fclose(file);
}

static void mend_toolkit(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/broken", folder);
    cr_assert_eq(unlink(path), 0);
}

/* What ptxas was run for, a line each. */
static void expect_runs(const char *runs) {
    char path[96], text[400] = "";
    snprintf(path, sizeof path, "%s/runs", folder);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    cr_assert_str_eq(text, runs);
}

static struct attn_program *program;
static struct attn_kernel *lazy;

/* Another one from the same payload, as another process makes it. */
static struct attn_program *make_program(const char *cache_folder) {
    struct rt_program_parts parts = {.info = info,
                                     .ptx = second_ptx,
                                     .ptx_size = sizeof second_ptx - 1,
                                     .warnings = ""};
    struct attn_program *made = NULL;
    struct strbuf payload;
    strbuf_init(&payload, NULL);
    rt_program_write(&parts, &payload);
    cr_assert_null(rt_program_create(payload.data, payload.length,
                                     (struct rt_key){1, 2}, cache_folder,
                                     &made));
    strbuf_destroy(&payload);
    return made;
}

/* Two modules: what every call runs, and what calls with Q_LEN run. */
static void load_lazy(void) {
    size_t bytes = 0;
    struct attn_status *status =
        rt_api_kernel_load(fake_driver(), program, &lazy);
    cr_assert_null(status, "%s", attn_status_text(status));
    set_call(Q_LEN);
    status = attn_workspace_size(lazy, &args, &bytes);
    cr_assert_null(status, "%s", attn_status_text(status));
    fake.exchange_count = 0;
}

static void setup_later(void) {
    folder_create();
    make_toolkit();
    fake_reset();
    arena = arena_create();
    info = sample_info_with_second(arena);
    program = make_program(NULL);
    set_call(Q_LEN);
}

static void teardown_later(void) {
    attn_kernel_destroy(lazy);
    cr_assert_eq(fake.unload_count, fake.load_count);
    attn_program_destroy(program);
    arena_destroy(arena);
    folder_remove();
}

TestSuite(later, .init = setup_later, .fini = teardown_later);

/* The three calls that may load, by number. */
static struct attn_status *call(int which) {
    struct attn_plan *plan = NULL;
    size_t bytes = 0;
    if (which == 0)
        return attn_workspace_size(lazy, &args, &bytes);
    if (which == 1)
        return attn_launch(lazy, &args, NULL);
    struct attn_status *status = attn_plan_create(lazy, &args, &plan);
    attn_plan_destroy(plan);
    return status;
}

static void expect_all_calls_work(void) {
    for (int which = 0; which < 3; which++) {
        struct attn_status *status = call(which);
        cr_assert_null(status, "call %d: %s", which, attn_status_text(status));
    }
}

/* What fails, and that the first kernel is as it was. */
static void expect_second_fault(int which, enum attn_code code,
                                const char *part) {
    set_call(SHORT);
    struct attn_status *status = call(which);
    int loads = fake.load_count;
    cr_assert_eq(attn_status_code(status), code, "%s",
                 attn_status_text(status));
    static const char start[] = "loading kernel 'attend$tile_64x64': ";
    cr_assert_eq(strncmp(attn_status_text(status), start, sizeof start - 1), 0,
                 "%s", attn_status_text(status));
    cr_assert_not_null(strstr(attn_status_text(status), part), "%s",
                       attn_status_text(status));
    attn_status_destroy(status);
    cr_assert_eq(fake.launch_count, 0);
    cr_assert_eq(fake.unload_count, loads - 2);
    set_call(Q_LEN);
    expect_all_calls_work();
    cr_assert_str_eq(fake.launches[1].name, "attend");
    cr_assert_eq(fake.load_count, loads);
    fake.launch_count = 0;
}

Test(later, load_leaves_them_out) {
    cr_assert_null(rt_api_kernel_load(fake_driver(), program, &lazy));
    cr_assert_eq(fake.load_count, 1);
    cr_assert(fake_image_has(fake.image, "summary"));
    cr_assert(!fake_image_has(fake.image, "attend"));
    cr_assert(!fake_image_has(fake.image, second_name));
    expect_all_calls_work();
    cr_assert_eq(fake.load_count, 2);
    cr_assert(fake_image_has(fake.image, "attend"));
    cr_assert(!fake_image_has(fake.image, second_name));
    cr_assert_eq(fake.launch_count, 2);
    cr_assert_str_eq(fake.launches[1].name, "attend");
    expect_runs("summary \nattend \n");
}

/* A program without summaries: nothing at load, then one module. */
Test(later, all_can_wait) {
    attn_program_destroy(program);
    info->entries++, info->entry_count--;
    program = make_program(NULL);
    cr_assert_null(rt_api_kernel_load(fake_driver(), program, &lazy));
    cr_assert_eq(fake.load_count, 0);
    expect_runs("");
    set_call(SHORT);
    expect_all_calls_work();
    cr_assert_eq(fake.load_count, 1);
    cr_assert_str_eq(fake.launches[0].name, second_name);
    expect_runs("attend$tile_64x64 \n");
}

Test(later, the_first_call_that_needs_it_loads_it) {
    for (int which = 0; which < 3; which++) {
        fake_reset();
        load_lazy();
        set_call(SHORT);
        cr_assert_null(call(which));
        cr_assert_eq(fake.load_count, 3, "call %d", which);
        cr_assert(fake_image_has(fake.image, second_name));
        cr_assert(!fake_image_has(fake.image, "attend"));
        fake.launch_count = 0;
        expect_all_calls_work();
        expect_all_calls_work();
        cr_assert_eq(fake.load_count, 3, "call %d", which);
        cr_assert_eq(fake.launch_count, 4);
        cr_assert_str_eq(fake.launches[0].name, "summary");
        cr_assert_str_eq(fake.launches[1].name, second_name);
        cr_assert_eq(fake.launches[1].threads, 256);
        cr_assert_eq(fake.launches[1].shared_bytes, 65536);
        set_call(Q_LEN);
        expect_all_calls_work();
        cr_assert_str_eq(fake.launches[5].name, "attend");
        cr_assert_eq(fake.load_count, 3);
        attn_kernel_destroy(lazy);
        lazy = NULL;
        cr_assert_eq(fake.unload_count, 3);
    }
    expect_runs("summary \nattend \nattend$tile_64x64 \n");
}

Test(later, no_work_loads_nothing) {
    load_lazy();
    set_call(SHORT);
    shapes[0][0] = shapes[1][0] = shapes[2][0] = shapes[3][0] = shapes[4][0] =
        shapes[5][0] = 0;
    expect_all_calls_work();
    cr_assert_eq(fake.load_count, 2);
    cr_assert_eq(fake.launch_count, 0);
}

Test(later, a_plan_only_launches) {
    struct attn_plan *plan = NULL;
    load_lazy();
    set_call(SHORT);
    cr_assert_null(attn_plan_create(lazy, &args, &plan));
    cr_assert_eq(fake.load_count, 3);
    cr_assert_eq(fake.launch_count, 0);
    fake.fail_load = 1;
    fake.exchange_count = 0;
    cr_assert_null(attn_plan_launch(plan, NULL));
    cr_assert_str_eq(fake.launches[1].name, second_name);
    cr_assert_eq(fake.exchange_count, 0);
    attn_plan_destroy(plan);
}

enum { THREADS = 8 };
static pthread_barrier_t together;

static void *call_at_once(void *number) {
    pthread_barrier_wait(&together);
    return call((int)(intptr_t)number % 3);
}

Test(later, threads_that_need_it_at_once_make_it_once) {
    pthread_t threads[THREADS];
    load_lazy();
    set_call(SHORT);
    pthread_barrier_init(&together, NULL, THREADS);
    for (intptr_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, call_at_once, (void *)i),
                     0);
    for (int i = 0; i < THREADS; i++) {
        void *status = NULL;
        pthread_join(threads[i], &status);
        cr_assert_null(status, "%s", attn_status_text(status));
    }
    pthread_barrier_destroy(&together);
    cr_assert_eq(fake.load_count, 3);
    cr_assert_eq(fake.launch_count, 2 * 3);
    expect_runs("summary \nattend \nattend$tile_64x64 \n");
}

Test(later, a_failure_leaves_the_kernel_as_it_was) {
    load_lazy();
    break_toolkit("out of luck");
    for (int which = 0; which < 3; which++)
        expect_second_fault(which, ATTN_TOOLKIT, "out of luck");
    mend_toolkit();
    for (int which = 0; which < 3; which++) {
        fake.fail_load = 209;
        expect_second_fault(which, ATTN_CUDA, "ptxas fatal: made up");
        fake.fail_load = 0;
        fake.fail_attribute = 1; /* when the module is there already */
        expect_second_fault(which, ATTN_CUDA, "cuFuncGetAttribute");
        fake.fail_attribute = 0;
    }
    set_call(SHORT);
    expect_all_calls_work();
    cr_assert_str_eq(fake.launches[1].name, second_name);
    attn_kernel_destroy(lazy);
    lazy = NULL;
}

Test(later, is_loaded_into_the_kernels_context) {
    static char other;
    struct CUctx_st *own = fake.current;
    load_lazy();
    set_call(SHORT);
    fake.current = (struct CUctx_st *)&other;
    cr_assert_null(call(0));
    cr_assert_eq(fake.modules[2].context, own);
    cr_assert_eq(fake.push_count, 1);
    cr_assert_eq(fake.pop_count, 1);
    cr_assert_eq(fake.current, (struct CUctx_st *)&other);
    attn_kernel_destroy(lazy); /* all from the right context, too */
    lazy = NULL;
    cr_assert_eq(fake.unload_count, 3);
    cr_assert_eq(fake.current, (struct CUctx_st *)&other);
}

Test(later, is_loaded_during_a_capture) {
    enum { THREAD_LOCAL = 1 };
    load_lazy();
    fake.capturing = true;
    fake.capture_mode = THREAD_LOCAL;
    fake.fail_load = 209;
    expect_second_fault(1, ATTN_CUDA, "made up");
    cr_assert_eq(fake.capture_mode, THREAD_LOCAL);
    fake.fail_load = 0;
    set_call(SHORT);
    expect_all_calls_work();
    cr_assert_eq(fake.capture_mode, THREAD_LOCAL);
    cr_assert_eq(fake.exchange_count, 4);
    cr_assert_eq(fake.launch_count, 2);
}

Test(later, old_drivers_have_no_capture_mode) {
    struct rt_driver old = *fake_driver();
    old.cuThreadExchangeStreamCaptureMode = NULL;
    cr_assert_null(rt_api_kernel_load(&old, program, &lazy));
    set_call(SHORT);
    expect_all_calls_work();
    cr_assert_eq(fake.load_count, 2); /* summary and this */
    attn_kernel_destroy(lazy);        /* before `old` goes */
    lazy = NULL;
}

Test(later, shared_memory_is_checked_at_load) {
    attn_program_destroy(program);
    info->entries[SAMPLE_SECOND].shared_bytes = 228 << 10;
    program = make_program(NULL);
    struct attn_status *status =
        rt_api_kernel_load(fake_driver(), program, &lazy);
    cr_assert_str_eq(attn_status_text(status),
                     "kernel 'attend$tile_64x64' needs 233472 bytes of shared "
                     "memory, the device has 232448");
    attn_status_destroy(status);
    cr_assert_eq(fake.load_count, 0);
}

static void expect_everything_is_loaded(void) {
    load_lazy();
    set_call(SHORT);
    expect_all_calls_work();
    cr_assert_eq(fake.load_count, 1);
    cr_assert_str_eq(fake.launches[1].name, second_name);
}

Test(later, the_whole_in_memory_is_taken) {
    const void *cubin = NULL;
    size_t size = 0;
    cr_assert_null(attn_program_cubin(program, NULL, &cubin, &size));
    expect_everything_is_loaded();
    cr_assert_eq(fake.image, cubin);
    expect_runs("summary attend attend$tile_64x64 \n");
}

Test(later, the_driver_compiles_both) {
    break_toolkit("ptxas: unknown gpu-name"); /* too old: as good as none */
    expect_everything_is_loaded();
    cr_assert(fake_image_has(fake.image, "version"));
}

Test(later, the_driver_compiles_it_when_the_assembler_is_gone) {
    load_lazy();
    break_toolkit("ptxas: unknown gpu-name");
    set_call(SHORT);
    expect_all_calls_work();
    cr_assert_eq(fake.load_count, 3);
    cr_assert(fake_image_has(fake.image, "version"));
    cr_assert_str_eq(fake.launches[1].name, second_name);
}

/* Each set is an entry of its own; the public cubin is the whole. */
Test(later, each_set_is_cached_on_disk) {
    static const char each[] = "summary \nattend \nattend$tile_64x64 \n";
    for (int process = 0; process < 2; process++) {
        fake_reset();
        attn_program_destroy(program);
        program = make_program(folder);
        load_lazy();
        cr_assert(!fake_image_has(fake.image, second_name));
        set_call(SHORT);
        expect_all_calls_work();
        cr_assert_eq(fake.load_count, 3);
        cr_assert(fake_image_has(fake.image, second_name));
        expect_runs(each);
        attn_kernel_destroy(lazy);
        lazy = NULL;
        cr_assert_eq(fake.unload_count, 3);
    }
    const void *cubin = NULL;
    size_t size = 0;
    cr_assert_null(attn_program_cubin(program, "sm_90a", &cubin, &size));
    cr_assert(fake_image_has(cubin, "attend"));
    cr_assert(fake_image_has(cubin, second_name));
    expect_runs("summary \nattend \nattend$tile_64x64 \n"
                "summary attend attend$tile_64x64 \n");
}
