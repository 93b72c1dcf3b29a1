/* Kernels that come later: what is assembled and loaded when, once, by whom,
 * and what a failure leaves behind; on a recorded driver and a scripted ptxas.
 */
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_driver.h"
#include "folder.h"
#include "launch_call.h"
#include "runtime/api_launch.h"
#include "runtime/program.h"
#include "sample_info.h"

static struct arena *arena;
static struct kernel_info *info;

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
