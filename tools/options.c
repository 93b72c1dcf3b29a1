/* Command line parser over the table in tools/options.def. */
#include "tools/options.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "support/diag.h"

enum option_id {
#define O(id, name, letter, argument, commands, help) OPTION_##id,
#include "tools/options.def"
#undef O
    OPTION_COUNT
};

static const struct option {
    const char *name;
    char letter;
    const char *argument; /* NULL: none; in brackets: optional */
    const char *commands;
    const char *help;
} table[OPTION_COUNT] = {
#define O(id, name, letter, argument, commands, help) \
    [OPTION_##id] = {name, letter, argument, commands, help},
#include "tools/options.def"
#undef O
};

static const struct {
    const char *word;
    char mark; /* in the table's commands */
    const char *usage, *summary;
} commands[COMMAND_COUNT] = {
    [COMMAND_COMPILE] =
        {"", 'C', "FILE.attn (-o OUT | --emit=STAGE | --dump-all DIR)",
         "compile an attention spec to IR, PTX, a cubin or a C header"},
    [COMMAND_CHECK] = {"check", 'K', "FILE...",
                       "check specs and print diagnostics"},
    [COMMAND_FMT] = {"fmt", 'F', "FILE...", "print specs in canonical form"},
    [COMMAND_EXPLAIN] =
        {"explain", 'E', "FILE",
         "print plan, account, launch parameters and block map"},
    [COMMAND_RUN] = {"run", 'R', "FILE",
                     "run an attention on random or given inputs"},
    [COMMAND_BENCH] = {"bench", 'B', "FILE...", "measure on the GPU"},
};

/* --check means two things. */
static const char *help_of(enum option_id id, enum command command) {
    if (id != OPTION_CHECK)
        return table[id].help;
    return command == COMMAND_FMT
               ? "exit 1 if a file is not in canonical form"
               : "compare with the fp64 reference, exit 1 beyond the bounds";
}

const char *command_word(enum command command) {
    return commands[command].word;
}

/* ---- Parsing state ------------------------------------------------------ */

struct parser {
    struct arena *arena;
    struct options *out;
    const char *message;
    bool given[OPTION_COUNT];
    bool help, version;
};

static bool wrong(struct parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool wrong(struct parser *p, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!p->message)
        p->message = arena_vprintf(p->arena, format, args);
    va_end(args);
    return false;
}

/* True if the command takes the option. */
static bool belongs(enum option_id id, enum command command) {
    return strchr(table[id].commands, commands[command].mark) != NULL;
}

/* "; did you mean 'x'?" for a word close to one of the candidates, else "". */
static const char *suggestion(struct parser *p, const char *prefix,
                              const char *word, const char *const *candidates,
                              size_t count) {
    const char *closest = diag_closest(word, candidates, count);
    return closest ? arena_printf(p->arena, "; did you mean '%s%s'?", prefix,
                                  closest)
                   : "";
}

static size_t list_length(const char *const *list) {
    size_t count = 0;
    while (list[count])
        count++;
    return count;
}

/* A word of a NULL-terminated list; otherwise an error that says the list. */
static bool one_of(struct parser *p, const char *what, const char *word,
                   const char *const *list) {
    struct strbuf known;
    strbuf_init(&known, p->arena);
    for (size_t i = 0; list[i]; i++) {
        if (strcmp(list[i], word) == 0)
            return true;
        strbuf_printf(&known, "%s%s", i ? ", " : "", list[i]);
    }
    return wrong(p, "unknown %s '%.80s'%s (known: %s)", what, word,
                 suggestion(p, "", word, list, list_length(list)),
                 strbuf_text(&known));
}

/* ---- Values ------------------------------------------------------------- */

/* A decimal number and nothing else. */
static bool parse_integer(const char *text, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *out = value;
    return *text && !strchr(" \t\n\v\f\r", *text) && *end == 0 && errno == 0;
}

/* Sizes are at least 1: an empty call is a mistake on a command line. */
static bool parse_size(struct parser *p, enum option_id id, const char *text,
                       enum size_name size) {
    int64_t value;
    if (!parse_integer(text, &value) || value < 1 || value > INT32_MAX)
        return wrong(
            p, "--%s needs a whole number from 1 to 2147483647, not '%.80s'",
            table[id].name, text);
    p->out->sizes[size] = value;
    return true;
}

static bool parse_seed(struct parser *p, enum option_id id, const char *text,
                       uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return wrong(p,
                     "--%s needs a whole number from 0 to 2^64-1, not '%.80s'",
                     table[id].name, text);
    return true;
}

static bool parse_seconds(struct parser *p, const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value <= 600))
        return wrong(p,
                     "--seconds needs a number above 0, up to 600, not '%.80s'",
                     text);
    p->out->seconds = value;
    return true;
}

/* NAME of NAME=VALUE in the arena, the value behind it; NULL after an error. */
static const char *split_name(struct parser *p, enum option_id id,
                              const char *text, const char **out_value) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1]) {
        wrong(p, "--%s needs %s, not '%.80s'", table[id].name,
              table[id].argument, text);
        return NULL;
    }
    *out_value = equals + 1;
    return arena_strndup(p->arena, text, (size_t)(equals - text));
}

/* Which of the three forms a value has; the first that fits. */
static bool parse_param_value(struct option_param *param) {
    const char *text = param->text;
    bool truth = strcmp(text, "true") == 0;
    if (truth || strcmp(text, "false") == 0) {
        param->form = PARAM_BOOL;
        param->integer = truth;
        return true;
    }
    if (parse_integer(text, &param->integer)) {
        param->form = PARAM_INTEGER;
        param->real = (double)param->integer;
        return true;
    }
    char *end;
    param->form = PARAM_FLOAT;
    param->real = strtod(text, &end);
    return end != text && *end == 0 && !strchr(" \t\n\v\f\r", *text);
}

/* The type is known only once the spec is read: the text is kept, and what it
 * could be. */
static bool parse_param(struct parser *p, const char *text) {
    struct option_param param = {0};
    param.name = split_name(p, OPTION_PARAM, text, &param.text);
    if (!param.name)
        return false;
    for (size_t i = 0; i < p->out->params.count; i++)
        if (strcmp(p->out->params.data[i].name, param.name) == 0)
            return wrong(p, "--param %.80s is given twice", param.name);
    if (!parse_param_value(&param))
        return wrong(
            p, "--param %.80s: '%.80s' is neither a number nor true or false",
            param.name, param.text);
    vec_push(p->arena, &p->out->params, param);
    return true;
}

/* LO..HI */
static bool parse_range(const char *text, int64_t *low, int64_t *high) {
    char *end;
    errno = 0;
    *low = strtoll(text, &end, 10);
    if (end == text || errno || strncmp(end, "..", 2) != 0)
        return false;
    return parse_integer(end + 2, high) && *low <= *high && *low >= INT32_MIN &&
           *high <= INT32_MAX;
}

/* NAME=random, NAME=random:LO..HI or NAME=FILE; a file called "random" can be
 * given as ./random. */
static bool parse_tensor(struct parser *p, const char *text) {
    struct option_tensor tensor = {0};
    const char *value;
    tensor.name = split_name(p, OPTION_TENSOR, text, &value);
    if (!tensor.name)
        return false;
    for (size_t i = 0; i < p->out->tensors.count; i++)
        if (strcmp(p->out->tensors.data[i].name, tensor.name) == 0)
            return wrong(p, "--tensor %.80s is given twice", tensor.name);
    if (strncmp(value, "random:", 7) == 0) {
        tensor.has_range = true;
        if (!parse_range(value + 7, &tensor.low, &tensor.high))
            return wrong(p,
                         "--tensor %.80s: '%.80s' is not random:LO..HI with LO "
                         "<= HI in i32",
                         tensor.name, value);
    } else if (strcmp(value, "random") != 0) {
        tensor.file = value;
    }
    vec_push(p->arena, &p->out->tensors, tensor);
    return true;
}

/* Names with commas between; the option may be repeated as well. */
static bool parse_targets(struct parser *p, const char *text) {
    for (;;) {
        size_t length = strcspn(text, ",");
        const char *name = arena_strndup(p->arena, text, length);
        if (!one_of(p, "target", name, frontend_targets()))
            return false;
        for (size_t i = 0; i < p->out->targets.count; i++)
            if (strcmp(p->out->targets.data[i], name) == 0)
                return wrong(p, "--target %s is given twice", name);
        vec_push(p->arena, &p->out->targets, name);
        if (!text[length])
            return true;
        text += length + 1;
    }
}

/* Position of a word in a NULL-terminated list. */
static bool parse_choice(struct parser *p, enum option_id id, const char *text,
                         const char *const *choices, int *out) {
    for (int i = 0; choices[i]; i++)
        if (strcmp(choices[i], text) == 0) {
            *out = i;
            return true;
        }
    return one_of(p, arena_printf(p->arena, "value of --%s", table[id].name),
                  text, choices);
}

static bool parse_device(struct parser *p, const char *text) {
    static const char *const names[] = {"gpu", "cpu", "reference", NULL};
    int choice;
    if (!parse_choice(p, OPTION_DEVICE, text, names, &choice))
        return false;
    p->out->device = DEVICE_GPU + (enum option_device)choice;
    return true;
}

static bool parse_layout(struct parser *p, const char *text) {
    static const char *const names[] = {"bhsd", "bshd", NULL};
    int choice;
    if (!parse_choice(p, OPTION_LAYOUT, text, names, &choice))
        return false;
    p->out->layout = (enum option_layout)choice;
    return true;
}

static bool parse_color(struct parser *p, const char *text) {
    static const char *const names[] = {"auto", "always", "never", NULL};
    int choice = COLOR_ALWAYS;
    if (text && !parse_choice(p, OPTION_COLOR, text, names, &choice))
        return false;
    p->out->color = (enum option_color)choice;
    return true;
}

/* ---- One option --------------------------------------------------------- */

/* Options whose value is any text. */
static const char **text_of(struct options *out, enum option_id id) {
    const struct {
        enum option_id id;
        const char **text;
    } texts[] = {
        {OPTION_OUTPUT, &out->output},
        {OPTION_EMIT, &out->emit},
        {OPTION_DUMP_ALL, &out->dump_all},
        {OPTION_RUN_PASS, &out->run_pass},
        {OPTION_ENTRY, &out->entry},
        {OPTION_SCHEDULE, &out->schedule},
        {OPTION_TRACE, &out->trace},
        {OPTION_Q, &out->q},
        {OPTION_K, &out->k},
        {OPTION_V, &out->v},
        {OPTION_O, &out->o},
        {OPTION_LSE, &out->lse},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].id == id)
            return texts[i].text;
    return NULL;
}

/* Options without a value. */
static bool *flag_of(struct parser *p, enum option_id id) {
    struct options *out = p->out;
    const struct {
        enum option_id id;
        bool *flag;
    } flags[] = {
        {OPTION_HELP, &p->help},
        {OPTION_VERSION, &p->version},
        {OPTION_LIST_PASSES, &out->list_passes},
        {OPTION_VERIFY_EACH, &out->verify_each},
        {OPTION_IN_PLACE, &out->in_place},
        {OPTION_CHECK, &out->check},
        {OPTION_JSON, &out->json},
        {OPTION_VERBOSE, &out->verbose},
        {OPTION_PTX, &out->ptx},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].id == id)
            return flags[i].flag;
    return NULL;
}

static bool repeatable(enum option_id id) {
    return id == OPTION_INCLUDE || id == OPTION_TARGET || id == OPTION_PARAM ||
           id == OPTION_TENSOR;
}

/* Options whose value has a form of its own. */
static bool apply_value(struct parser *p, enum option_id id,
                        const char *value) {
    struct options *out = p->out;
    if (id >= OPTION_BATCH && id <= OPTION_KV_LEN)
        return parse_size(p, id, value,
                          SIZE_BATCH + (enum size_name)(id - OPTION_BATCH));
    if (id == OPTION_INCLUDE) {
        vec_push(p->arena, &out->include_dirs, value);
        return true;
    }
    if (id == OPTION_EMULATOR_SEED) {
        out->has_emulator_seed = true;
        return parse_seed(p, id, value, &out->emulator_seed);
    }
    return id == OPTION_TARGET   ? parse_targets(p, value)
           : id == OPTION_PARAM  ? parse_param(p, value)
           : id == OPTION_TENSOR ? parse_tensor(p, value)
           : id == OPTION_SEED   ? parse_seed(p, id, value, &out->seed)
           : id == OPTION_DEVICE ? parse_device(p, value)
           : id == OPTION_LAYOUT ? parse_layout(p, value)
           : id == OPTION_COLOR  ? parse_color(p, value)
                                 : parse_seconds(p, value);
}

_Static_assert(OPTION_KV_LEN - OPTION_BATCH == SIZE_KV_LEN - SIZE_BATCH,
               "the size options stand in the order of enum size_name");

/* One option with its value (NULL: none), whatever way it was written. */
static bool apply(struct parser *p, enum option_id id, const char *value) {
    bool *flag = flag_of(p, id);
    if (flag) {
        *flag = true;
        return true;
    }
    if (p->given[id] && !repeatable(id))
        return wrong(p, "--%s is given twice", table[id].name);
    p->given[id] = true;
    if (value && !*value)
        return wrong(p, "--%s needs %s, not an empty text", table[id].name,
                     table[id].argument);
    const char **text = text_of(p->out, id);
    if (!text)
        return apply_value(p, id, value);
    *text = value;
    return true;
}

/* ---- Scanning ----------------------------------------------------------- */

static bool takes_value(enum option_id id) {
    return table[id].argument && table[id].argument[0] != '[';
}

/* Suggestions come from the options of this command only. */
static bool unknown_option(struct parser *p, const char *name) {
    const char *names[OPTION_COUNT];
    size_t count = 0;
    enum command command = p->out->command;
    for (int id = 0; id < OPTION_COUNT; id++)
        if (belongs((enum option_id)id, command))
            names[count++] = table[id].name;
    return wrong(p, "unknown option '--%.80s'%s%s%s%s", name,
                 commands[command].word[0] ? " of 'attnc " : "",
                 commands[command].word, commands[command].word[0] ? "'" : "",
                 suggestion(p, "--", name, names, count));
}

/* --name, --name=value, --name value; *next is the next word and moves on when
 * it is taken as the value. */
static bool long_option(struct parser *p, const char *text,
                        char *const **next) {
    size_t length = strcspn(text, "=");
    const char *name = arena_strndup(p->arena, text, length);
    const char *value = text[length] ? text + length + 1 : NULL;
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (strcmp(table[id].name, name) != 0 ||
            !belongs((enum option_id)id, p->out->command))
            continue;
        if (!table[id].argument && value)
            return wrong(p, "--%s takes no value, found '%.80s'", name, value);
        if (takes_value((enum option_id)id) && !value) {
            if (!**next)
                return wrong(p, "--%s needs %s", name, table[id].argument);
            value = *(*next)++;
        }
        return apply(p, (enum option_id)id, value);
    }
    return unknown_option(p, name);
}

/* -Wno-NAME */
static bool warning_option(struct parser *p, const char *text) {
    if (strncmp(text, "no-", 3) != 0)
        return wrong(
            p, "unknown option '-W%.80s'; warnings are silenced with -Wno-NAME",
            text);
    if (p->out->command == COMMAND_FMT)
        return wrong(p, "unknown option '-W%.80s' of 'attnc fmt'", text);
    if (!one_of(p, "warning", text + 3, frontend_warnings()))
        return false;
    vec_push(p->arena, &p->out->silenced, text + 3);
    return true;
}

/* -o OUT, -oOUT, -v, -I DIR */
static bool short_option(struct parser *p, const char *text,
                         char *const **next) {
    if (*text == 'W')
        return warning_option(p, text + 1);
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (table[id].letter != *text ||
            !belongs((enum option_id)id, p->out->command))
            continue;
        const char *value = text[1] ? text + 1 : NULL;
        if (!takes_value((enum option_id)id))
            return value ? wrong(p, "unknown option '-%.80s'", text)
                         : apply(p, (enum option_id)id, NULL);
        if (!value && !**next)
            return wrong(p, "-%c needs %s", *text, table[id].argument);
        return apply(p, (enum option_id)id, value ? value : *(*next)++);
    }
    return wrong(p, "unknown option '-%.80s'", text);
}

/* Options and files in any order; after "--" everything is a file. */
static bool parse_words(struct parser *p, char *const *next) {
    bool only_files = false;
    while (*next) {
        const char *word = *next++;
        bool ok = true;
        if (!only_files && strcmp(word, "--") == 0)
            only_files = true;
        else if (!only_files && strncmp(word, "--", 2) == 0)
            ok = long_option(p, word + 2, &next);
        else if (!only_files && word[0] == '-' && word[1])
            ok = short_option(p, word + 1, &next);
        else
            vec_push(p->arena, &p->out->files, word);
        if (!ok)
            return false;
    }
    return true;
}

/* ---- Combinations ------------------------------------------------------- */

/* compile: exactly one file, and something to do with it. */
static bool check_compile(struct parser *p) {
    struct options *o = p->out;
    if (o->list_passes)
        return o->files.count == 0 || wrong(p, "--list-passes takes no file");
    if (o->files.count != 1)
        return wrong(p,
                     o->files.count
                         ? "one file at a time, found '%.80s' and '%.80s'"
                         : "no input file",
                     o->files.count ? o->files.data[0] : "",
                     o->files.count > 1 ? o->files.data[1] : "");
    if (o->run_pass && o->dump_all)
        return wrong(p, "--run-pass and --dump-all exclude each other");
    if (!o->output && !o->emit && !o->dump_all && !o->run_pass)
        return wrong(
            p, "nothing to do: give -o OUT, --emit=STAGE or --dump-all DIR");
    if (o->output && strcmp(o->output, "-") == 0 && !o->emit && !o->run_pass)
        return wrong(p, "-o - needs --emit=STAGE to know what to write");
    return true;
}

/* Standard output can hold one artefact. */
static bool check_outputs(struct parser *p) {
    struct options *o = p->out;
    int to_stdout = o->json;
    const char *outputs[] = {o->o, o->lse, o->trace};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        to_stdout += outputs[i] && strcmp(outputs[i], "-") == 0;
    if (to_stdout > 1)
        return wrong(p, "two outputs to standard output");
    if (o->o && o->lse && strcmp(o->o, o->lse) == 0)
        return wrong(p, "--o and --lse name the same file '%.80s'", o->o);
    return true;
}

/* Options that only one device understands are refused for the others. */
static bool check_run(struct parser *p) {
    struct options *o = p->out;
    if (o->has_emulator_seed && o->device != DEVICE_CPU)
        return wrong(p, "--emulator-seed needs --device cpu");
    if (o->trace && o->device != DEVICE_CPU)
        return wrong(p, "--trace needs --device cpu");
    if (o->device == DEVICE_REFERENCE && (o->targets.count || o->schedule))
        return wrong(
            p, "--device reference compiles nothing: --%s has no meaning there",
            o->schedule ? "schedule" : "target");
    if (o->device == DEVICE_REFERENCE && p->given[OPTION_LAYOUT])
        return wrong(p, "--device reference has no memory order: --layout has "
                        "no meaning there");
    return check_outputs(p);
}

/* What a single option cannot know of the others. */
static bool check_combination(struct parser *p) {
    struct options *o = p->out;
    enum command command = o->command;
    if (command == COMMAND_COMPILE)
        return check_compile(p);
    if (o->files.count == 0)
        return wrong(p, "no input file");
    bool several = command == COMMAND_CHECK || command == COMMAND_FMT ||
                   command == COMMAND_BENCH;
    if (!several && o->files.count > 1)
        return wrong(p, "'attnc %s' takes one file, found '%.80s' and '%.80s'",
                     commands[command].word, o->files.data[0],
                     o->files.data[1]);
    if (command == COMMAND_FMT && o->in_place && o->check)
        return wrong(p, "-i and --check exclude each other");
    if (command == COMMAND_FMT && o->files.count > 1 && !o->in_place &&
        !o->check)
        return wrong(p, "several files need -i or --check");
    if (o->targets.count > 1 && command != COMMAND_CHECK)
        return wrong(p, "'attnc %s' takes one target, found '%s' and '%s'",
                     commands[command].word, o->targets.data[0],
                     o->targets.data[1]);
    return command != COMMAND_RUN || check_run(p);
}

enum options_result options_parse(struct arena *arena, int argc,
                                  char *const *argv, struct options *out,
                                  const char **message) {
    *out = (struct options){.seconds = 0.5};
    *message = NULL;
    struct parser p = {.arena = arena, .out = out};
    char *const *next = argv + (argc > 0);
    for (int command = COMMAND_CHECK; *next && command < COMMAND_COUNT;
         command++)
        if (strcmp(*next, commands[command].word) == 0) {
            out->command = (enum command)command;
            next++;
            break;
        }
    bool scanned = parse_words(&p, next);
    if (p.help)
        return OPTIONS_HELP;
    if (scanned && p.version)
        return OPTIONS_VERSION;
    if (scanned && check_combination(&p))
        return OPTIONS_OK;
    *message = p.message;
    return OPTIONS_WRONG;
}

/* ---- Help --------------------------------------------------------------- */

/* Text starts at one column; a long option pushes it to the next line. */
static void print_option(struct strbuf *out, enum option_id id,
                         enum command command) {
    const struct option *option = &table[id];
    size_t start = out->length;
    strbuf_printf(out, option->letter ? "  -%c, " : "      ", option->letter);
    strbuf_printf(out, "--%s", option->name);
    if (option->argument && option->argument[0] == '[')
        strbuf_printf(out, "[=%.*s]", (int)strlen(option->argument) - 2,
                      option->argument + 1);
    else if (option->argument)
        strbuf_printf(out, " %s", option->argument);
    enum { COLUMN = 30 };
    size_t used = out->length - start;
    if (used >= COLUMN) {
        strbuf_append_char(out, '\n');
        used = 0;
    }
    strbuf_append_repeat(out, ' ', COLUMN - used);
    strbuf_printf(out, "%s\n", help_of(id, command));
}

void options_help(enum command command, struct strbuf *out) {
    const char *word = commands[command].word;
    strbuf_printf(out, "usage: attnc %s%s%s [options]\n", word,
                  *word ? " " : "", commands[command].usage);
    if (command == COMMAND_COMPILE) {
        for (int other = COMMAND_CHECK; other < COMMAND_COUNT; other++)
            strbuf_printf(out, "       attnc %s %s [options]\n",
                          commands[other].word, commands[other].usage);
    }
    strbuf_printf(out, "\n%s\n\noptions:\n", commands[command].summary);
    for (int id = 0; id < OPTION_COUNT; id++)
        if (belongs((enum option_id)id, command))
            print_option(out, (enum option_id)id, command);
    if (command != COMMAND_FMT)
        strbuf_append(
            out, "      -Wno-NAME               silence the warning [NAME]\n");
    if (command == COMMAND_COMPILE)
        strbuf_append(out, "\n'attnc COMMAND --help' explains check, fmt, "
                           "explain, run, bench.\n");
    strbuf_append(out,
                  "\nexit status: 0; 1 the input or a check failed; 2 usage; "
                  "3 the machine lacks what the command needs\n");
}
