/* Every kernel of tests/emulator is broken on purpose; the emulator must say so
 * at the line that is marked, and nothing else.
 *
 * `// expect: KIND` behind an instruction: a report of that kind there, with
 * every seed.  Alternatives are separated by `|`; `?` behind a kind: with some
 * seeds only.  Over all seeds every file must give at least one report.
 */
#include <dirent.h>

#include "emulator/emulator.h"
#include "tests/unit/emulator_harness.h"

enum { SEEDS = 12, MAX_EXPECTED = 64, BUFFER = 4096 };

struct expectation {
    int line;
    const char *kinds; /* up to the end of the line */
    size_t length;
    bool optional;
};

struct broken {
    const char *name;
    char *text;
    unsigned threads, shared;
    char target[16];
    struct expectation expected[MAX_EXPECTED];
    int expected_count;
};

static const char *kind_name(enum emu_report_kind kind) {
    static const char *const names[] = {
#define X(name, text) [EMU_REPORT_##name] = #name,
        EMU_REPORT_KINDS(X)
#undef X
    };
    return names[kind];
}

static struct broken read_broken(const char *folder, const char *name) {
    char path[512];
    struct strbuf text;
    struct broken b = {.name = name};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    cr_assert(file != NULL, "cannot open %s", path);
    strbuf_init(&text, NULL);
    cr_assert(strbuf_read(&text, file, 1 << 20));
    fclose(file);
    b.text = strbuf_take(&text);
    const char *launch = strstr(b.text, "// launch:"),
               *target = strstr(b.text, ".target ");
    cr_assert(launch && sscanf(launch, "// launch: threads %u, shared %u",
                               &b.threads, &b.shared) == 2);
    cr_assert(target && sscanf(target, ".target %15s", b.target) == 1);
    int line = 1;
    for (const char *p = b.text; *p; p++) {
        line += *p == '\n';
        if (strncmp(p, "// expect: ", 11) != 0)
            continue;
        cr_assert(b.expected_count < MAX_EXPECTED);
        struct expectation *e = &b.expected[b.expected_count++];
        *e = (struct expectation){
            .line = line, .kinds = p + 11, .length = strcspn(p + 11, "\n")};
        e->optional = memchr(e->kinds, '?', e->length) != NULL;
    }
    cr_assert(b.expected_count > 0, "%s expects nothing", name);
    return b;
}

static bool names_kind(const struct expectation *e, enum emu_report_kind kind) {
    const char *name = kind_name(kind);
    size_t length = strlen(name);
    for (size_t i = 0; i + length <= e->length; i++) {
        bool starts = i == 0 || e->kinds[i - 1] == '|';
        if (starts && strncmp(e->kinds + i, name, length) == 0 &&
            (i + length == e->length || strchr("|?", e->kinds[i + length])))
            return true;
    }
    return false;
}

/* Checks one run's reports; their number. */
static size_t check_reports(const struct broken *b,
                            const struct emu_result *result, uint64_t seed) {
    bool seen[MAX_EXPECTED] = {false};
    for (size_t i = 0; i < result->report_count; i++) {
        const struct emu_report *r = &result->reports[i];
        bool found = false;
        for (int k = 0; k < b->expected_count; k++)
            if (b->expected[k].line == r->line &&
                names_kind(&b->expected[k], r->kind))
                found = seen[k] = true;
        cr_expect(found, "%s, seed %" PRIu64 ": unexpected %s at line %d: %s",
                  b->name, seed, kind_name(r->kind), r->line, r->detail);
        cr_expect_str_eq(r->source, "broken.attn:7:3");
        cr_expect(r->instruction[0] != 0 && r->detail[0] != 0);
        cr_expect_str_eq(r->file, "test.ptx");
    }
    for (int k = 0; k < b->expected_count; k++)
        cr_expect(seen[k] || b->expected[k].optional,
                  "%s, seed %" PRIu64 ": nothing at line %d", b->name, seed,
                  b->expected[k].line);
    return result->report_count;
}

static size_t run_broken(const struct broken *b, uint64_t seed,
                         uint32_t checks) {
    static const uint8_t zeros[BUFFER];
    struct device d = device_create(b->text);
    uint8_t params[16 + 48 + 128] = {0};
    uint64_t buffers[2] = {device_put(&d, zeros, BUFFER, "buf"),
                           device_put(&d, NULL, BUFFER, "raw")};
    uint64_t extents[2] = {64, 16}, strides[1] = {128};
    uint32_t box[2] = {64, 8}, ones[2] = {1, 1};
    struct emu_error error;
    memcpy(params, buffers, sizeof buffers);
    cr_assert(emu_tensor_map_encode(params + 64, EMU_TENSOR_BFLOAT16, 2,
                                    buffers[0], extents, strides, box, ones,
                                    EMU_SWIZZLE_128B, false, &error));
    struct emu_launch launch = {.entry = "kernel",
                                .grid = {1, 1, 1},
                                .block = {b->threads, 1, 1},
                                .dynamic_shared = b->shared,
                                .params = params,
                                .param_bytes = sizeof params};
    struct emu_options options = emu_options_default();
    options.seed = seed;
    options.checks = checks;
    options.max_instructions = 1000000;
    cr_assert(emu_launch(d.module, &launch, &options, &d.result, &error), "%s",
              error.text);
    size_t count = checks == EMU_CHECK_ALL ? check_reports(b, &d.result, seed)
                                           : d.result.report_count;
    device_destroy(&d);
    return count;
}

static void check_broken(const char *folder, const char *name) {
    struct broken b = read_broken(folder, name);
    size_t reports = 0;
    check_with_ptxas(b.text, b.target);
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        reports += run_broken(&b, seed, EMU_CHECK_ALL);
    cr_expect(reports > 0, "%s gave no report with %d seeds", name, SEEDS);
    free(b.text);
}

Test(emulator_checks, broken_kernels) {
    const char *folder = "tests/emulator";
    DIR *directory = opendir(folder);
    int files = 0;
    cr_assert(directory != NULL, "run this in the project's root");
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 4, ".ptx") != 0)
            continue;
        check_broken(folder, entry->d_name);
        files++;
    }
    closedir(directory);
    cr_assert(files >= 30, "only %d kernels", files);
}

/* Each kind has a kernel. */
Test(emulator_checks, every_kind_is_covered) {
    bool covered[EMU_REPORT_KIND_COUNT] = {false};
    DIR *directory = opendir("tests/emulator");
    cr_assert(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 4, ".ptx") != 0)
            continue;
        struct broken b = read_broken("tests/emulator", entry->d_name);
        for (int k = 0; k < b.expected_count; k++)
            for (int kind = 0; kind < EMU_REPORT_KIND_COUNT; kind++)
                covered[kind] |=
                    names_kind(&b.expected[k], (enum emu_report_kind)kind);
        free(b.text);
    }
    closedir(directory);
    for (int kind = 0; kind < EMU_REPORT_KIND_COUNT; kind++)
        cr_expect(covered[kind], "no kernel of tests/emulator expects %s",
                  kind_name((enum emu_report_kind)kind));
}

/* A check that is switched off is silent. */
Test(emulator_checks, checks_can_be_switched_off) {
    struct broken b = read_broken("tests/emulator", "uninitialised_shared.ptx");
    cr_expect(
        run_broken(&b, 0, EMU_CHECK_ALL & ~EMU_CHECK(UNINITIALISED_MEMORY)) ==
        0);
    free(b.text);
}
