/* Whole attentions on the emulator: the accounts equal closed formulas, runs
 * are deterministic, the timeline is JSON, and the speed is what it
 * should be. */
#include <time.h>

#include "compiler/compile.h"
#include "emulator/attention.h"
#include "tests/unit/emulator_harness.h"

enum { DIM = 64, Q_LEN = 256, KV_LEN = 256, HEADS = 2 };

static const char *const plain[] = {
    "attention full { dtype bf16; head_dim 64; }",
    "attention causal { dtype bf16; head_dim 64; mask kv <= q; }",
};

/* A compiled spec and one call with random data. */
struct run {
    struct arena *arena;
    struct compiled compiled;
    int sm_count; /* 0: the default */
    uint16_t *q, *k, *v, *o;
    float *lse;
    struct emu_attention_result result;
};

static void compile_for(struct run *run, const char *text, const char *target) {
    run->arena = arena_create();
    struct source_set *sources = source_set_create(run->arena);
    struct diag_sink *diags = diag_sink_create(run->arena, sources);
    struct spec *spec = frontend_check_text(run->arena, sources, "t.attn", text,
                                            strlen(text), NULL, diags);
    struct compile_options options = {.target = target};
    cr_assert(spec != NULL);
    cr_assert(compile_attention(run->arena, sources, spec, spec->attentions,
                                &options, diags, &run->compiled));
}

static void compile(struct run *run, const char *text) {
    compile_for(run, text, "sm_80");
}

static uint16_t *random_tensor(struct arena *arena, size_t count,
                               uint32_t seed) {
    uint16_t *data = ARENA_NEW_ARRAY(arena, uint16_t, count);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] =
            (uint16_t)(0x3f00 | (seed >> 16 & 0x807f)); /* bf16 in ±[0.5, 1) */
    }
    return data;
}

static struct emu_tensor tensor(void *data, int64_t rows, int64_t dim,
                                size_t element) {
    return (struct emu_tensor){
        .data = data,
        .bytes = (size_t)(HEADS * rows * dim) * element,
        .extents = {1, HEADS, rows, dim},
        .strides = {HEADS * rows * dim, rows * dim, dim, 1}};
}

/* Runs the call, whatever it reports. */
static void execute_any(struct run *run, const struct emu_options *options) {
    struct emu_error error;
    if (!run->q) {
        run->q = random_tensor(run->arena, HEADS * Q_LEN * DIM, 1);
        run->k = random_tensor(run->arena, HEADS * KV_LEN * DIM, 2);
        run->v = random_tensor(run->arena, HEADS * KV_LEN * DIM, 3);
        run->o = ARENA_NEW_ARRAY(run->arena, uint16_t, HEADS * Q_LEN * DIM);
        run->lse = ARENA_NEW_ARRAY(run->arena, float, HEADS *Q_LEN);
    }
    struct emu_tensor tensors[5] = {
        tensor(run->q, Q_LEN, DIM, 2), tensor(run->k, KV_LEN, DIM, 2),
        tensor(run->v, KV_LEN, DIM, 2), tensor(run->o, Q_LEN, DIM, 2),
        tensor(run->lse, Q_LEN, 1, 4)};
    struct emu_source source = {run->compiled.ptx, run->compiled.ptx_length,
                                "kernel.ptx"};
    struct emu_attention call = {.info = run->compiled.info,
                                 .sources = &source,
                                 .source_count = 1,
                                 .sizes = {1, HEADS, HEADS, Q_LEN, KV_LEN},
                                 .sm_count = run->sm_count,
                                 .tensors = tensors};
    cr_assert(emu_attention_run(&call, options, &run->result, &error), "%s",
              error.text);
}

/* Runs the call, which must be clean and complete. */
static void execute(struct run *run, const struct emu_options *options) {
    execute_any(run, options);
    for (size_t i = 0; i < run->result.total.report_count; i++)
        emu_report_print(&run->result.total.reports[i], stderr);
    cr_assert(run->result.total.report_count == 0);
    cr_assert(run->result.o_unwritten == 0 && run->result.lse_unwritten == 0);
    cr_assert(run->result.o_beside == 0 && run->result.lse_beside == 0);
}

static void finish(struct run *run) {
    emu_result_destroy(&run->result.total);
    arena_destroy(run->arena);
}

/* Key tiles that a query tile visits, summed over the query tiles of a head. */
static uint64_t visited_tiles(bool causal, int tile_m, int tile_n) {
    uint64_t count = 0;
    for (int row = 0; row < Q_LEN; row += tile_m) {
        int last = row + tile_m < Q_LEN ? row + tile_m : Q_LEN;
        int keys = causal && last < KV_LEN ? last : KV_LEN;
        count += (uint64_t)((keys + tile_n - 1) / tile_n);
    }
    return HEADS * count;
}

Test(emulator_attention, accounts_equal_closed_formulas) {
    for (int causal = 0; causal < 2; causal++) {
        struct run run = {0};
        struct emu_options options = emu_options_default();
        compile(&run, plain[causal]);
        execute(&run, &options);
        const struct emu_counters *c = &run.result.total.counters;
        uint64_t m = (uint64_t)run.compiled.info->tile_m,
                 n = (uint64_t)run.compiled.info->tile_n;
        uint64_t tiles = visited_tiles(causal, (int)m, (int)n);
        /* S = Q K^T and O += P V, 2 FLOP each, for every visited tile */
        cr_expect(c->mma_flop == tiles * 4 * m * n * DIM,
                  "%" PRIu64 " FLOP, %" PRIu64 " tiles of "
                  "%" PRIu64 " x %" PRIu64,
                  c->mma_flop, tiles, m, n);
        /* FlashAttention-2: Q once, K and V once for each visited tile */
        uint64_t rows = HEADS * Q_LEN;
        cr_expect(c->async_copy_bytes == (rows * DIM + tiles * 2 * n * DIM) * 2,
                  "%" PRIu64 " bytes copied", c->async_copy_bytes);
        cr_expect(c->global_read_bytes == c->async_copy_bytes);
        cr_expect(c->global_read_sectors == c->global_read_bytes / 32);
        cr_expect(c->global_unique_read_bytes ==
                  (rows + 2 * HEADS * KV_LEN) * DIM * 2);
        cr_expect(c->global_unique_write_bytes == rows * DIM * 2 + rows * 4);
        cr_expect(c->global_write_bytes == c->global_unique_write_bytes);
        /* one exp2 for each element, and a few for each row */
        cr_expect(c->mufu_lanes >= tiles * m * n);
        cr_expect(c->mufu_lanes < tiles * m * n * 11 / 10 + 32 * rows);
        cr_expect(c->local_read_bytes == 0 && c->local_write_bytes == 0);
        finish(&run);
    }
}

/* The same for the TMA and wgmma kernel, where the compiler makes one: a copy
 * brings whole boxes, the tensor cores compute whole tiles. */
Test(emulator_attention, accounts_of_sm_90a) {
    struct run run = {0};
    struct emu_options options = emu_options_default();
    if (!compile_target_is_supported("sm_90a"))
        cr_skip_test("no code generation for sm_90a");
    compile_for(&run, plain[0], "sm_90a");
    execute(&run, &options);
    const struct emu_counters *c = &run.result.total.counters;
    uint64_t m = (uint64_t)run.compiled.info->tile_m,
             n = (uint64_t)run.compiled.info->tile_n;
    uint64_t tiles = visited_tiles(false, (int)m, (int)n);
    uint64_t query_tiles = HEADS * ((Q_LEN + m - 1) / m);
    cr_expect(c->mma_flop == tiles * 4 * m * n * DIM);
    cr_expect(c->async_copy_bytes ==
              (query_tiles * m * DIM + tiles * 2 * n * DIM) * 2);
    cr_expect(c->global_unique_read_bytes ==
              (HEADS * Q_LEN + 2 * HEADS * KV_LEN) * DIM * 2);
    cr_expect(c->global_unique_write_bytes ==
              HEADS * Q_LEN * DIM * 2 + HEADS * Q_LEN * 4);
    finish(&run);
}

/* The swizzle of shared memory leaves no conflicts but a few. */
Test(emulator_attention, shared_memory_has_few_conflicts) {
    struct run run = {0};
    struct emu_options options = emu_options_default();
    compile(&run, plain[0]);
    execute(&run, &options);
    const struct emu_counters *c = &run.result.total.counters;
    cr_expect(c->shared_conflicts * 20 < c->shared_wavefronts,
              "%" PRIu64 " of %" PRIu64, c->shared_conflicts,
              c->shared_wavefronts);
    finish(&run);
}

Test(emulator_attention, same_seed_same_run) {
    struct run first = {0}, again = {0};
    compile(&first, plain[1]);
    compile(&again, plain[1]);
    struct emu_options options = emu_options_default();
    options.seed = 7;
    options.threads = 1;
    execute(&first, &options);
    options.threads = 3;
    execute(&again, &options);
    cr_expect(memcmp(first.o, again.o, HEADS * Q_LEN * DIM * 2) == 0);
    cr_expect(memcmp(&first.result.total.counters, &again.result.total.counters,
                     sizeof(struct emu_counters)) == 0);
    finish(&first);
    finish(&again);
}

/* The same numbers for every seed: the kernel has no races. */
Test(emulator_attention, every_seed_gives_the_same_numbers) {
    struct run run = {0};
    static uint16_t o[HEADS * Q_LEN * DIM];
    compile(&run, plain[1]);
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct emu_options options = emu_options_default();
        options.seed = seed;
        if (seed)
            emu_result_destroy(&run.result.total);
        execute(&run, &options);
        if (seed == 0)
            memcpy(o, run.o, sizeof o);
        cr_expect(memcmp(o, run.o, sizeof o) == 0, "seed %" PRIu64, seed);
    }
    finish(&run);
}

static float bf16_value(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Full with 2 heads, D 64: on 4 multiprocessors the 4 tiles of 192 rows run in
 * one wave, on 2 the 2 tiles of 256 rows do. */
Test(emulator_attention, variants_agree) {
    static const int sm_counts[2] = {4, 2};
    static const int tiles[2][2] = {{192, 128}, {256, 64}};
    static uint16_t o[HEADS * Q_LEN * DIM];
    struct run run = {0};
    compile_for(&run, plain[0], "sm_90a");
    cr_assert_eq(run.compiled.info->entry_count, 2);
    for (int i = 0; i < 2; i++) {
        struct emu_options options = emu_options_default();
        run.sm_count = sm_counts[i];
        if (i)
            emu_result_destroy(&run.result.total);
        execute(&run, &options);
        uint64_t pairs = visited_tiles(false, tiles[i][0], tiles[i][1]) *
                         (uint64_t)(tiles[i][0] * tiles[i][1]);
        cr_expect_eq(run.result.total.counters.mma_flop, 4 * pairs * DIM);
        for (size_t k = 0; k < sizeof o / sizeof o[0] && i; k++)
            cr_assert_float_eq(bf16_value(o[k]), bf16_value(run.o[k]), 0x1p-6f);
        memcpy(o, run.o, sizeof o);
    }
    finish(&run);
}

/* Listed blocks run for the consumers that attend to them, 64 rows each, and
 * nobody else: a window, and for the second half of a tile the first keys
 * too, so that blocks are skipped in front, in between and at the end. */
Test(emulator_attention, consumers_skip_what_is_others) {
    enum { ROWS = 64, N = 32, WINDOW = 64 };
    struct run run = {0};
    struct emu_options options = emu_options_default();
    compile_for(&run,
                "attention list { dtype bf16; head_dim 64; mask kv <= q; "
                "mask q - kv < 64 || (kv < 32 && q % 128 >= 64); "
                "schedule { tile 128, 32; } }",
                "sm_90a");
    execute(&run, &options);
    uint64_t own = 0;
    for (int q0 = 0; q0 < Q_LEN; q0 += ROWS)
        for (int k0 = 0; k0 < KV_LEN; k0 += N) {
            bool near = k0 < q0 + ROWS && q0 - (k0 + N - 1) < WINDOW;
            own += near || (k0 == 0 && q0 % 128 == ROWS);
        }
    cr_expect_eq(run.result.total.counters.mma_flop,
                 HEADS * own * 4 * ROWS * N * DIM);
    finish(&run);
}

/* ---- kernels broken by taking one line away ---------------------------- */

/* Whether the line's instruction, behind its guard, starts with `opcode`. */
static bool line_has(const char *line, const char *opcode) {
    line += strspn(line, " \t");
    if (*line == '@')
        line += strcspn(line, " ") + 1;
    return strncmp(line, opcode, strlen(opcode)) == 0;
}

/* Runs the kernel once without each line that has one of the opcodes; every run
 * but `unnoticed` must give a report.  Returns the number of lines. */
static int remove_each(struct run *run, const char *const *opcodes,
                       size_t count, int unnoticed) {
    char *text = (char *)(uintptr_t)run->compiled.ptx;
    int lines = 0;
    for (char *line = text; line && *line;) {
        char *next = strchr(line, '\n'), saved[2];
        size_t opcode = 0;
        while (opcode < count && !line_has(line, opcodes[opcode]))
            opcode++;
        if (opcode < count) {
            memcpy(saved, line, 2);
            memcpy(line, "//", 2);
            struct emu_options options = emu_options_default();
            options.max_instructions = 3000000;
            emu_result_destroy(&run->result.total);
            execute_any(run, &options);
            memcpy(line, saved, 2);
            bool noticed = run->result.total.report_count > 0;
            cr_expect(noticed || unnoticed-- > 0,
                      "nothing is reported without %.60s", line);
            lines++;
        }
        line = next ? next + 1 : NULL;
    }
    return lines;
}

Test(emulator_attention, missing_synchronisation_sm_80) {
    static const char *const opcodes[] = {"cp.async.wait_group",
                                          "cp.async.commit_group", "bar.sync"};
    struct run run = {0};
    compile(&run, plain[1]);
    cr_expect(remove_each(&run, opcodes, COUNT(opcodes), 0) >= 5);
    finish(&run);
}

Test(emulator_attention, missing_synchronisation_sm_90a) {
    static const char *const opcodes[] = {
        "fence.mbarrier_init",       "bar.sync",
        "mbarrier.arrive.expect_tx", "wgmma.fence",
        "wgmma.commit_group",        "wgmma.wait_group"};
    struct run run = {0};
    if (!compile_target_is_supported("sm_90a"))
        cr_skip_test("no code generation for sm_90a");
    compile_for(&run,
                "attention causal { dtype bf16; head_dim 64; mask kv <= q; "
                "schedule { tile 128, 64; overlap intra; } }",
                "sm_90a");
    run.sm_count = 1; /* a CTA goes from tile to tile, four of them */
    /* The scores of the next tile's first block are written by wgmma alone: the
     * fence in front is needed for registers that ptxas shares. */
    cr_expect(remove_each(&run, opcodes, COUNT(opcodes), 1) >= 12);
    finish(&run);
}

/* Lane 0 reads tile records and words of the block list and gives their slots
 * back.  If all lanes read, nothing orders the others' reads before the next
 * write: without the guards of the loads that is reported. */
Test(emulator_attention, all_lanes_read_one_gives_back) {
    static const char guard[] = "@%first_lane ld.shared";
    enum { BLANKS = sizeof "@%first_lane" - 1 };
    struct run run = {0};
    compile_for(&run,
                "attention list { dtype bf16; head_dim 64; "
                "mask kv <= q; "
                "mask q - kv < 64 || (kv < 32 && q % 128 >= 64); "
                "schedule { tile 128, 32; stages 1; overlap intra; } }",
                "sm_90a");
    run.sm_count = 1;
    char *text = (char *)(uintptr_t)run.compiled.ptx;
    int loads = 0, noticed = 0;
    for (char *at = text; (at = strstr(at, guard)) != NULL; at += BLANKS) {
        struct emu_options options = emu_options_default();
        memset(at, ' ', BLANKS);
        emu_result_destroy(&run.result.total);
        execute_any(&run, &options);
        memcpy(at, guard, BLANKS);
        loads++;
        noticed += run.result.total.report_count > 0;
    }
    /* The record of a tile's first block is read in front of the barrier behind
     * which O of the tile before is copied: that orders its two words. */
    cr_expect_geq(loads, 10);
    cr_expect_eq(noticed, loads - 2, "%d of %d", noticed, loads);
    finish(&run);
}

/* Balanced brackets outside strings, the tracks, and times within the end. */
static void check_trace(const char *text) {
    int depth = 0;
    bool in_string = false;
    for (const char *p = text; *p; p++) {
        in_string ^= *p == '"';
        if (!in_string)
            depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        cr_assert(depth >= 0);
    }
    cr_expect(depth == 0 && !in_string);
    cr_expect(strstr(text, "\"name\":\"warp 3\"") &&
              strstr(text, "\"name\":\"MUFU 0\"") &&
              strstr(text, "\"name\":\"tensor core 1\"") &&
              strstr(text, "t.attn:1:"));
    cr_expect(!strstr(text, ",\n]"), "a comma in front of the end");
    const char *end = strstr(text, "\"name\":\"end\",\"ts\":");
    cr_assert(end != NULL);
    /* Four quarters of 512 FLOP a cycle: the tensor cores alone need this
     * long. */
    unsigned long long cycles = strtoull(end + 18, NULL, 10);
    cr_expect(cycles >= 4ull * 64 * KV_LEN * DIM / 2048, "%llu cycles", cycles);
    cr_expect(cycles < 200000, "%llu cycles", cycles);
}

Test(emulator_attention, timeline) {
    struct run run = {0};
    struct emu_options options = emu_options_default();
    char *text = NULL;
    size_t size = 0;
    options.trace = open_memstream(&text, &size);
    compile(&run, plain[0]);
    execute(&run, &options);
    fclose(options.trace);
    check_trace(text);
    free(text);
    finish(&run);
}

/* Issue of the project: 256 x 256, D 64, causal, under 2 s on one core with all
 * checks.  A tenth of that is asked for here, for one head. */
Test(emulator_attention, speed) {
    struct run run = {0};
    struct emu_options options = emu_options_default();
    struct timespec start, stop;
    options.threads = 1;
    compile(&run, plain[1]);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    execute(&run, &options);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &stop);
    double seconds = (double)(stop.tv_sec - start.tv_sec) +
                     1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
    cr_expect(seconds < 2.0, "%.2f s", seconds);
    finish(&run);
}
