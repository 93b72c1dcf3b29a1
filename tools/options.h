/* The command line, parsed and checked for form.
 *
 * What can be wrong without looking at a spec is found here and is a usage
 * error (exit status 2): unknown options, missing or malformed values, options
 * that exclude each other.  What disagrees with the spec is found later (status
 * 1).
 */
#ifndef ATTN_TOOLS_OPTIONS_H
#define ATTN_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/arena.h"
#include "support/kernel_info.h"
#include "support/strbuf.h"
#include "support/vec.h"

enum command {
    COMMAND_COMPILE, /* no word on the command line */
    COMMAND_CHECK,
    COMMAND_FMT,
    COMMAND_EXPLAIN,
    COMMAND_RUN,
    COMMAND_BENCH,
    COMMAND_COUNT,
};

/* Exit statuses. */
enum {
    STATUS_OK = 0,
    STATUS_FAILED = 1, /* the input or the check failed */
    STATUS_USAGE = 2,
    STATUS_MISSING = 3, /* the machine lacks what the command needs */
};

enum option_device { DEVICE_AUTO, DEVICE_GPU, DEVICE_CPU, DEVICE_REFERENCE };
enum option_layout { LAYOUT_BHSD, LAYOUT_BSHD };
enum option_color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

/* Form of a --param value; the spec's type is checked later. */
enum param_form { PARAM_BOOL, PARAM_INTEGER, PARAM_FLOAT };

struct option_param {
    const char *name, *text;
    enum param_form form;
    int64_t integer; /* BOOL (0 or 1) and INTEGER */
    double real;     /* INTEGER and FLOAT */
};

struct option_tensor {
    const char *name;
    const char *file; /* NULL: random */
    bool has_range;
    int64_t low, high; /* both inclusive */
};

typedef VEC(const char *) option_names;

/* Strings are the caller's argv or live in the arena. */
struct options {
    enum command command;
    option_names files;
    option_names include_dirs;
    option_names targets;
    option_names silenced; /* -Wno-NAME */
    const char *output, *emit, *dump_all, *run_pass, *entry, *schedule, *trace;
    const char *q, *k, *v, *o, *lse;
    bool list_passes, verify_each, in_place, check, json, verbose, ptx;
    enum option_color color;
    enum option_device device;
    enum option_layout layout;
    int64_t sizes[SIZE_COUNT]; /* 0: not given */
    VEC(struct option_param) params;
    VEC(struct option_tensor) tensors;
    uint64_t seed, emulator_seed;
    bool has_emulator_seed;
    double seconds;
};

enum options_result {
    OPTIONS_OK,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_WRONG
};

/* Parses argv[1..].  WRONG: *message (NULL otherwise) says what, in the
 * arena. */
enum options_result options_parse(struct arena *arena, int argc,
                                  char *const *argv, struct options *out,
                                  const char **message);

/* The word of a command; "" for compile. */
const char *command_word(enum command command);

/* The help text of a command. */
void options_help(enum command command, struct strbuf *out);

#endif
