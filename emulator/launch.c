/* Launches: checks the arguments, runs every CTA, gathers reports and counters.
 *
 * CTAs are independent and spread over host threads.  A kernel that talks to
 * other CTAs through global memory (atomics, volatile) runs on one thread, with
 * a window of resident CTAs interleaved by the seed, so that the result does
 * not depend on the host.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "emulator/exec.h"
#include "emulator/report.h"
#include "emulator/trace.h"

enum { RESIDENT_CTAS = 8, MAX_SHARED = 232448, MAX_THREADS = 64 };

struct run {
    struct emu_grid *grid;
    atomic_uint_least64_t next;
    pthread_mutex_t lock; /* of everything below */
    struct emu_counters counters;
    VEC(struct report_slot) reports;
    struct arena *arena; /* of the result */
};

struct emu_options emu_options_default(void) {
    return (struct emu_options){.checks = EMU_CHECK_ALL, .count = true};
}

/* ---- one CTA ----------------------------------------------------------- */

/* Zeroed host memory; there is no use going on without it. */
static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        abort();
    return memory;
}

/* Registers start at cache lines; they are not cleared, the masks tell what is
 * valid. */
static void warp_create(struct emu_cta *cta, struct emu_warp *warp, int index) {
    const struct emu_module *module = cta->grid->module;
    *warp = (struct emu_warp){
        .cta = cta, .index = index, .constants = module->constants};
    if (posix_memalign((void **)&warp->regs, 64,
                       (size_t)module->register_bytes + 64) != 0)
        abort();
    warp->init = allocate(module->registers.count, sizeof *warp->init);
    warp->reg_flight = allocate(module->registers.count, 1);
    warp->local = allocate(EMU_LANES, module->local_bytes);
    warp->local_shadow = allocate(EMU_LANES, module->local_bytes);
    if (cta->grid->options->trace)
        warp->reg_ready =
            allocate(module->registers.count, sizeof *warp->reg_ready);
}

static void warp_destroy(struct emu_warp *warp) {
    free(warp->regs);
    free(warp->init);
    free(warp->reg_flight);
    free(warp->local);
    free(warp->local_shadow);
    free(warp->reg_ready);
}

/* A CTA is made once for each host thread and started again for each index. */
static struct emu_cta *cta_create(struct emu_grid *grid) {
    struct emu_cta *cta = allocate(1, sizeof *cta);
    cta->grid = grid;
    cta->warp_count = (int)((grid->threads + 31) / 32);
    cta->shared_bytes = grid->shared_bytes;
    cta->shared_words = (grid->shared_bytes + 3) / 4;
    cta->shared = allocate(cta->shared_words, 4);
    size_t words = cta->shared_words;
    cta->shadow.bytes = allocate(words, 1);
    cta->shadow.writer = allocate(words, 1);
    cta->shadow.write_clock = allocate(words, 4);
    cta->shadow.readers = allocate(words, 4);
    cta->shadow.read_clock = allocate(words * (size_t)cta->warp_count, 4);
    cta->warps = allocate((size_t)cta->warp_count, sizeof *cta->warps);
    for (int w = 0; w < cta->warp_count; w++)
        warp_create(cta, &cta->warps[w], w);
    cta->arena = arena_create();
    return cta;
}

static void cta_destroy(struct emu_cta *cta) {
    for (int w = 0; w < cta->warp_count; w++)
        warp_destroy(&cta->warps[w]);
    free(cta->warps);
    free(cta->shared);
    free(cta->shadow.bytes);
    free(cta->shadow.writer);
    free(cta->shadow.write_clock);
    free(cta->shadow.readers);
    free(cta->shadow.read_clock);
    arena_destroy(cta->arena);
    free(cta);
}

/* What a special register holds in a lane; it does not change while the CTA
 * runs. */
static uint32_t special_value(const struct emu_cta *cta,
                              const struct emu_warp *warp,
                              enum emu_special special, uint32_t lane) {
    const struct emu_launch *launch = cta->grid->launch;
    uint32_t thread = (uint32_t)warp->index * 32 + lane;
    switch (special) {
    case EMU_SPECIAL_TID_X:
        return thread % launch->block[0];
    case EMU_SPECIAL_TID_Y:
        return thread / launch->block[0] % launch->block[1];
    case EMU_SPECIAL_TID_Z:
        return thread / launch->block[0] / launch->block[1];
    case EMU_SPECIAL_NTID_X:
        return launch->block[0];
    case EMU_SPECIAL_NTID_Y:
        return launch->block[1];
    case EMU_SPECIAL_NTID_Z:
        return launch->block[2];
    case EMU_SPECIAL_CTAID_X:
    case EMU_SPECIAL_CLUSTERID_X:
        return cta->id[0];
    case EMU_SPECIAL_CTAID_Y:
        return cta->id[1];
    case EMU_SPECIAL_CTAID_Z:
        return cta->id[2];
    case EMU_SPECIAL_NCTAID_X:
    case EMU_SPECIAL_NCLUSTERID_X:
        return launch->grid[0];
    case EMU_SPECIAL_NCTAID_Y:
        return launch->grid[1];
    case EMU_SPECIAL_NCTAID_Z:
        return launch->grid[2];
    case EMU_SPECIAL_LANEID:
        return lane;
    case EMU_SPECIAL_WARPID:
        return (uint32_t)warp->index;
    case EMU_SPECIAL_NWARPID:
        return (uint32_t)cta->warp_count;
    case EMU_SPECIAL_SMID:
        return cta->linear % 132;
    case EMU_SPECIAL_NSMID:
        return 132;
    case EMU_SPECIAL_LANEMASK_EQ:
        return 1u << lane;
    case EMU_SPECIAL_LANEMASK_LT:
        return (1u << lane) - 1;
    case EMU_SPECIAL_LANEMASK_LE:
        return (2u << lane) - 1;
    case EMU_SPECIAL_LANEMASK_GT:
        return ~((2u << lane) - 1);
    case EMU_SPECIAL_LANEMASK_GE:
        return ~((1u << lane) - 1);
    case EMU_SPECIAL_DYNAMIC_SMEM:
        return launch->dynamic_shared;
    case EMU_SPECIAL_TOTAL_SMEM:
        return cta->shared_bytes;
    case EMU_SPECIAL_CLUSTER_NCTARANK:
        return 1;
    case EMU_SPECIAL_CLUSTER_CTARANK:
    case EMU_SPECIAL_GRIDID:
    case EMU_SPECIAL_COUNT:
    default:
        return 0;
    }
}

/* Clock 1 is the first epoch: clock 0 in the shadow means never written. */
static void warp_start(struct emu_cta *cta, struct emu_warp *warp) {
    const struct emu_module *module = cta->grid->module;
    struct emu_warp kept = *warp;
    uint32_t threads = cta->grid->threads - (uint32_t)warp->index * 32;
    *warp = (struct emu_warp){.cta = cta,
                              .constants = kept.constants,
                              .regs = kept.regs,
                              .init = kept.init,
                              .reg_flight = kept.reg_flight,
                              .index = kept.index,
                              .local = kept.local,
                              .local_shadow = kept.local_shadow,
                              .reg_ready = kept.reg_ready,
                              .alive = threads >= 32 ? ALL_LANES
                                                     : (1u << threads) - 1,
                              .split_count = 1};
    memset(warp->init, 0, module->registers.count * sizeof *warp->init);
    memset(warp->reg_flight, 0, module->registers.count);
    memset(warp->local_shadow, 0, (size_t)EMU_LANES * module->local_bytes);
    if (warp->reg_ready)
        memset(warp->reg_ready, 0,
               module->registers.count * sizeof *warp->reg_ready);
    warp->splits[0] = (struct split){.pc = cta->grid->entry->first,
                                     .reconverge = -2,
                                     .mask = warp->alive,
                                     .parent = -1,
                                     .in_use = true};
    warp->clock.at[warp->index] = 1;
    for (int i = 0; i < EMU_SPECIAL_COUNT; i++) {
        int32_t reg = module->special[i];
        union lane32 *value =
            (void *)(warp->regs + module->registers.data[reg].offset);
        for (uint32_t l = 0; reg && l < EMU_LANES; l++)
            value->u[l] = special_value(cta, warp, (enum emu_special)i, l);
        warp->init[reg] = ALL_LANES;
    }
}

/* The seed and the index decide everything that follows. */
static void cta_start(struct emu_cta *cta, uint64_t linear) {
    const uint32_t *grid = cta->grid->launch->grid;
    struct emu_cta kept = *cta;
    arena_reset(cta->arena);
    *cta = (struct emu_cta){.grid = kept.grid,
                            .warp_count = kept.warp_count,
                            .warps = kept.warps,
                            .shared = kept.shared,
                            .shared_bytes = kept.shared_bytes,
                            .shared_words = kept.shared_words,
                            .shadow = kept.shadow,
                            .arena = kept.arena,
                            .alive_warps = kept.warp_count};
    cta->linear = (uint32_t)linear;
    cta->id[0] = (uint32_t)(linear % grid[0]);
    cta->id[1] = (uint32_t)(linear / grid[0] % grid[1]);
    cta->id[2] = (uint32_t)(linear / grid[0] / grid[1]);
    cta->random = cta->grid->options->seed * 0x9e3779b97f4a7c15u +
                  linear * 0xda942042e4dd58b5u;
    cta->late = emu_cta_random(cta) & 1;
    memset(cta->shared, 0xcd, (size_t)cta->shared_words * 4);
    memset(cta->shadow.bytes, 0, cta->shared_words);
    memset(cta->shadow.writer, 0, cta->shared_words);
    memset(cta->shadow.write_clock, 0, (size_t)cta->shared_words * 4);
    memset(cta->shadow.readers, 0, (size_t)cta->shared_words * 4);
    for (int w = 0; w < cta->warp_count; w++)
        warp_start(cta, &cta->warps[w]);
    if (cta->grid->options->trace && cta->grid->options->trace_cta == linear)
        cta->trace = emu_trace_create(cta);
}

/* ---- gathering --------------------------------------------------------- */

static struct report_slot copy_slot(struct arena *arena,
                                    const struct report_slot *slot) {
    struct report_slot copy = {emu_report_copy(arena, &slot->report), slot->pc};
    return copy;
}

static uint64_t linear_cta(const struct run *run,
                           const struct emu_report *report) {
    const uint32_t *grid = run->grid->launch->grid;
    return report->cta[0] +
           grid[0] * (report->cta[1] + (uint64_t)grid[1] * report->cta[2]);
}

/* Merges by (kind, instruction), keeping the occurrence of the first CTA. */
static void add_report(struct run *run, const struct report_slot *slot) {
    for (size_t i = 0; i < run->reports.count; i++) {
        struct report_slot *have = &run->reports.data[i];
        if (have->pc != slot->pc || have->report.kind != slot->report.kind)
            continue;
        uint64_t count = have->report.count + slot->report.count;
        if (linear_cta(run, &slot->report) < linear_cta(run, &have->report))
            *have = copy_slot(run->arena, slot);
        have->report.count = count;
        return;
    }
    vec_push(run->arena, &run->reports, copy_slot(run->arena, slot));
}

/* Adds the CTA to the launch under the lock. */
static void cta_finish(struct run *run, struct emu_cta *cta) {
    struct emu_counters *c = &cta->counters;
    c->mufu_lanes += cta->unit_lanes[EMU_UNIT_MUFU];
    c->fma_lanes += cta->unit_lanes[EMU_UNIT_FMA];
    c->half_lanes += cta->unit_lanes[EMU_UNIT_HALF];
    c->integer_lanes += cta->unit_lanes[EMU_UNIT_INTEGER];
    c->convert_lanes += cta->unit_lanes[EMU_UNIT_CONVERT];
    if (cta->trace)
        emu_trace_finish(cta->trace, cta);
    pthread_mutex_lock(&run->lock);
    emu_counters_add(&run->counters, c);
    for (size_t i = 0; i < cta->reports.count; i++)
        add_report(run, &cta->reports.data[i]);
    pthread_mutex_unlock(&run->lock);
}

/* ---- threads ----------------------------------------------------------- */

/* A host thread takes the next CTA until there is none. */
static void *run_independent(void *argument) {
    struct run *run = argument;
    struct emu_cta *cta = cta_create(run->grid);
    for (;;) {
        uint64_t linear = atomic_fetch_add(&run->next, 1);
        if (linear >= run->grid->cta_count)
            break;
        cta_start(cta, linear);
        while (!emu_cta_run(cta, UINT64_MAX / 4))
            continue;
        cta_finish(run, cta);
    }
    cta_destroy(cta);
    return NULL;
}

/* A window of CTAs on this thread, taking turns. */
static void run_interleaved(struct run *run) {
    struct emu_cta *resident[RESIDENT_CTAS];
    uint64_t total = run->grid->cta_count, next = 0, count = 0;
    uint64_t window = total < RESIDENT_CTAS ? total : RESIDENT_CTAS;
    for (; count < window; count++) {
        resident[count] = cta_create(run->grid);
        cta_start(resident[count], next++);
    }
    struct emu_cta order = {.random = run->grid->options->seed ^ 0x5eed};
    while (count > 0) {
        uint64_t k = emu_cta_random(&order) % count;
        if (!emu_cta_run(resident[k], 1 + emu_cta_random(&order) % 2000))
            continue;
        cta_finish(run, resident[k]);
        if (next < total) {
            cta_start(resident[k], next++);
            continue;
        }
        cta_destroy(resident[k]);
        resident[k] = resident[--count];
    }
}

/* This thread takes part; fewer threads than asked for is no failure. */
static void run_parallel(struct run *run) {
    pthread_t threads[MAX_THREADS];
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t count = (uint64_t)run->grid->options->threads;
    if (run->grid->options->threads <= 0)
        count = online > 0 ? (uint64_t)online : 1;
    count = count > MAX_THREADS ? MAX_THREADS : count;
    count = count > run->grid->cta_count ? run->grid->cta_count : count;
    uint64_t started = 0;
    for (uint64_t i = 1; i < count; i++)
        if (pthread_create(&threads[started], NULL, run_independent, run) == 0)
            started++;
    run_independent(run);
    for (uint64_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* ---- the interface ----------------------------------------------------- */

static bool fail(struct emu_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool fail(struct emu_error *error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return false;
}

/* What cuLaunchKernel would refuse, with a reason. */
static bool check_launch(const struct emu_module *module,
                         const struct emu_launch *launch,
                         const struct emu_function *entry,
                         struct emu_error *error) {
    if (!entry)
        return fail(error, "there is no entry '%s'", launch->entry);
    if (launch->param_bytes != entry->param_bytes)
        return fail(error, "'%s' takes %u bytes of parameters, given %zu",
                    launch->entry, entry->param_bytes, launch->param_bytes);
    uint64_t threads =
        (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    for (int i = 0; i < 3; i++) {
        if (launch->block[i] == 0 || launch->block[i] > 1024 ||
            threads > entry->max_threads)
            return fail(error,
                        "'%s' with %u x %u x %u threads; the limit is %u",
                        launch->entry, launch->block[0], launch->block[1],
                        launch->block[2], entry->max_threads);
        if (entry->required_threads[0] &&
            launch->block[i] != entry->required_threads[i])
            return fail(error, "'%s' requires %u x %u x %u threads",
                        launch->entry, entry->required_threads[0],
                        entry->required_threads[1], entry->required_threads[2]);
        if (launch->grid[i] == 0)
            return fail(error, "'%s' with an empty grid", launch->entry);
    }
    if (launch->dynamic_shared > MAX_SHARED ||
        entry->static_shared + launch->dynamic_shared > MAX_SHARED)
        return fail(error,
                    "'%s' with %u bytes of shared memory; the limit is %d",
                    launch->entry,
                    entry->static_shared + launch->dynamic_shared, MAX_SHARED);
    (void)module;
    return true;
}

/* Reports in the order of the PTX, whatever order the CTAs ended in. */
static int compare_slots(const void *a, const void *b) {
    const struct report_slot *x = a, *y = b;
    if (x->pc != y->pc)
        return x->pc < y->pc ? -1 : 1;
    return (int)x->report.kind - (int)y->report.kind;
}

/* Merged reports, counters, and the bytes touched at least once. */
static void fill_result(struct run *run, struct emu_result *result) {
    size_t count = run->reports.count;
    if (count)
        qsort(run->reports.data, count, sizeof *run->reports.data,
              compare_slots);
    result->reports = ARENA_NEW_ARRAY(run->arena, struct emu_report, count);
    for (size_t i = 0; i < count; i++)
        result->reports[i] = run->reports.data[i].report;
    result->report_count = count;
    result->counters = run->counters;
    emu_memory_count_unique(run->grid->memory,
                            &result->counters.global_unique_read_bytes,
                            &result->counters.global_unique_write_bytes);
}

bool emu_launch(struct emu_module *module, const struct emu_launch *launch,
                const struct emu_options *options,
                struct emu_result *out_result, struct emu_error *out_error) {
    *out_result = (struct emu_result){0};
    const struct emu_function *entry = emu_module_entry(module, launch->entry);
    if (!check_launch(module, launch, entry, out_error))
        return false;
    struct emu_options used = *options;
    used.max_reports = used.max_reports > 0 ? used.max_reports : 100;
    used.max_instructions =
        used.max_instructions ? used.max_instructions : 1ull << 36;
    struct emu_grid grid = {
        .module = module,
        .entry = entry,
        .launch = launch,
        .options = &used,
        .memory = module->memory,
        .threads = launch->block[0] * launch->block[1] * launch->block[2],
        .shared_bytes = entry->static_shared + launch->dynamic_shared,
        .cta_count =
            (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2]};
    struct run run = {.grid = &grid, .arena = arena_create()};
    out_result->storage = run.arena;
    grid.params = arena_alloc(run.arena, launch->param_bytes);
    if (launch->param_bytes)
        memcpy(grid.params, launch->params, launch->param_bytes);
    struct timespec start, stop;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pthread_mutex_init(&run.lock, NULL);
    emu_memory_begin_launch(module->memory);
    if (entry->serial)
        run_interleaved(&run);
    else
        run_parallel(&run);
    pthread_mutex_destroy(&run.lock);
    clock_gettime(CLOCK_MONOTONIC, &stop);
    fill_result(&run, out_result);
    out_result->seconds = (double)(stop.tv_sec - start.tv_sec) +
                          1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
    return true;
}

void emu_result_destroy(struct emu_result *result) {
    arena_destroy(result->storage);
    *result = (struct emu_result){0};
}
