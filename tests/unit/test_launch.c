/* Loading and launching on a recorded driver: what reaches the kernels, and
 * that every wrong argument is named before anything is launched. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"
#include "launch_call.h"
#include "runtime/api_launch.h"
#include "runtime/launch.h"
#include "sample_info.h"

static const char image[] = "summary attend";

static struct arena *arena;
static struct kernel_info *info;
static struct rt_kernel *kernel;
static struct rt_frame *frame;
static const struct rt_device device = {0, 9, 0, 132, FAKE_MAX_SHARED};

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

/* A kernel that waits for the grids before it may start while they end; others
 * are launched as ever, and all are where the driver cannot. */
Test(launch, kernels_that_wait_themselves_start_early) {
    struct rt_driver plain = *kernel->driver;
    const struct rt_driver *driver = kernel->driver;
    cr_assert_null(launch());
    cr_assert(!fake.launches[0].programmatic);
    cr_assert(fake.launches[1].programmatic);
    plain.cuLaunchKernelEx = NULL;
    kernel->driver = &plain;
    cr_assert_null(launch());
    cr_assert_eq(fake.launch_count, 4);
    cr_assert(!fake.launches[3].programmatic);
    cr_assert_eq(fake.launches[3].shared_bytes, 65536);
    kernel->driver = driver;
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
