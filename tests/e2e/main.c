/* End-to-end tests: the pattern library and awkward data, from spec text to
 * numbers.
 *
 *     e2e [--suite LIST] [--device cpu|gpu] [--only LIST] [--specs DIR]
 * [--target T]
 *         [--seed N] [--seeds N] [--threads N] [--small] [--sizes B,H,HKV,Q,KV]
 *         [--no-poison] [--json FILE]
 *
 * Without a device the suites picture, predicate, emulator and special run;
 * with
 * --device gpu the suites gpu, special, twin and far, on the GPU.  Exit 0: all
 * passed, 1: not, 2: usage, 3: there is no GPU.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/e2e/suites.h"

struct command {
    struct e2e_options options;
    const char *suites; /* comma-separated; NULL: the device's */
    const char *json;
    bool gpu;
};

static const struct option long_options[] = {
    {"suite", required_argument, NULL, 's'},
    {"device", required_argument, NULL, 'd'},
    {"only", required_argument, NULL, 'o'},
    {"specs", required_argument, NULL, 'p'},
    {"target", required_argument, NULL, 't'},
    {"seed", required_argument, NULL, 'e'},
    {"seeds", required_argument, NULL, 'n'},
    {"threads", required_argument, NULL, 'j'},
    {"small", no_argument, NULL, 'm'},
    {"no-poison", no_argument, NULL, 'c'},
    {"json", required_argument, NULL, 'w'},
    {"sizes", required_argument, NULL, 'z'},
    {NULL, 0, NULL, 0},
};

/* "1,2,1,64,100": batch, heads, kv_heads, q_len, kv_len. */
static bool parse_sizes(const char *text, struct e2e_options *options) {
    char *end = (char *)text;
    for (int i = 0; i < SIZE_COUNT; i++) {
        options->sizes.n[i] = strtoll(end, &end, 10);
        if (options->sizes.n[i] < 1 || *end != (i + 1 < SIZE_COUNT ? ',' : 0))
            return false;
        end += *end == ',';
    }
    return options->has_sizes = true;
}

static bool parse_command(int argc, char **argv, struct command *command) {
    struct e2e_options *options = &command->options;
    int letter;
    *options = (struct e2e_options){
        .specs_dir = "specs", .seed = 1, .seeds = 1, .poison = true};
    while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1)
        switch (letter) {
        case 's':
            command->suites = optarg;
            break;
        case 'd':
            command->gpu = !strcmp(optarg, "gpu");
            if (!command->gpu && strcmp(optarg, "cpu"))
                return false;
            break;
        case 'o':
            options->only = optarg;
            break;
        case 'p':
            options->specs_dir = optarg;
            break;
        case 't':
            options->target = optarg;
            break;
        case 'e':
            options->seed = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            options->seeds = atoi(optarg);
            break;
        case 'j':
            options->threads = atoi(optarg);
            break;
        case 'm':
            options->small = true;
            break;
        case 'c':
            options->poison = false;
            break;
        case 'z':
            if (!parse_sizes(optarg, options))
                return false;
            break;
        case 'w':
            command->json = optarg;
            break;
        default:
            return false;
        }
    return optind == argc && options->seeds >= 1;
}

/* Every file of the folder must have a predicate, and the other way round. */
static void suite_complete(const struct e2e_options *options,
                           struct report *report) {
    struct result result = {
        .suite = "complete", .name = options->specs_dir, .ok = true};
    DIR *folder = opendir(options->specs_dir);
    struct dirent *entry;
    size_t files = 0, patterns = 0;
    char name[256];
    while (folder && (entry = readdir(folder))) {
        size_t length = strlen(entry->d_name);
        if (length < 6 || strcmp(entry->d_name + length - 5, ".attn"))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(length - 5), entry->d_name);
        files++;
        if (!pattern_find(name)) {
            result.ok = false;
            result.name = name;
            result.message =
                "the spec has no predicate in tests/e2e/patterns_*.c";
        }
    }
    if (folder)
        closedir(folder);
    while (pattern_get(patterns))
        patterns++;
    if (result.ok && files != patterns) {
        result.ok = false;
        result.message = "there are more predicates than specs";
    }
    report_add(report, &result);
}

static void run_suites(const struct command *command, struct report *report) {
    const struct e2e_options *options = &command->options;
    struct e2e_options suites = {
        .only = command->suites ? command->suites
                : command->gpu  ? "gpu,special,twin,far"
                               : "complete,picture,predicate,emulator,special"};
    if (e2e_wanted(&suites, "complete"))
        suite_complete(options, report);
    if (e2e_wanted(&suites, "picture"))
        suite_picture(options, report);
    if (e2e_wanted(&suites, "predicate"))
        suite_predicate(options, report);
    if (e2e_wanted(&suites, "emulator"))
        suite_emulator(options, report);
    if (e2e_wanted(&suites, "gpu"))
        suite_gpu(options, report);
    if (e2e_wanted(&suites, "special"))
        suite_special(options, command->gpu, report);
    if (command->gpu && e2e_wanted(&suites, "twin"))
        suite_twin(options, report);
    if (command->gpu && e2e_wanted(&suites, "far"))
        suite_far(options, report);
}

/* Opens the GPU and notes its facts; false when there is none. */
static bool open_gpu(struct arena *arena, const struct command *command,
                     struct report *report) {
    const char *error = executor_gpu_open(arena, command->options.poison);
    const char *name, *value;
    if (error) {
        fprintf(stderr, "e2e: no GPU: %s\n", error);
        return false;
    }
    for (int i = 0; (name = executor_gpu_fact(arena, i, &value)); i++)
        report_fact(report, name, value);
    return true;
}

static void note_run(struct arena *arena, int argc, char **argv,
                     struct report *report) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    const char *line = "e2e";
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    for (int i = 1; i < argc; i++)
        line = arena_printf(arena, "%s %s", line, argv[i]);
    report_fact(report, "date", date);
    report_fact(report, "command", line);
}

int main(int argc, char **argv) {
    struct command command = {0};
    if (!parse_command(argc, argv, &command)) {
        fprintf(
            stderr,
            "usage: e2e [--suite LIST] [--device cpu|gpu] [--only LIST] "
            "[--specs DIR] [--target T] [--seed N] [--seeds N] [--threads N] "
            "[--small] [--sizes B,H,HKV,Q,KV] [--no-poison] [--json FILE]\n");
        return 2;
    }
    struct arena *arena = arena_create();
    struct report *report = report_create(arena, stdout);
    note_run(arena, argc, argv, report);
    if (command.gpu && !open_gpu(arena, &command, report))
        return 3;
    run_suites(&command, report);
    report_print_table(report, stdout);
    if (command.json && !report_write_json(report, command.json)) {
        fprintf(stderr, "e2e: cannot write %s: %s\n", command.json,
                strerror(errno));
        return 1;
    }
    int status = report_failures(report) || !report_count(report);
    arena_destroy(arena);
    return status;
}
