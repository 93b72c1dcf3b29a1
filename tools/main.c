/* attnc: specs of attention to GPU kernels.  The command line is documented in
 * docs/attnc.1; this file only picks the subcommand. */
#include <stdio.h>

#include "tools/commands.h"

#ifndef ATTN_VERSION
#define ATTN_VERSION "unknown"
#endif

static int (*const command_functions[COMMAND_COUNT])(struct session *) = {
    [COMMAND_COMPILE] = command_compile, [COMMAND_CHECK] = command_check,
    [COMMAND_FMT] = command_fmt,         [COMMAND_EXPLAIN] = command_explain,
    [COMMAND_RUN] = command_run,         [COMMAND_BENCH] = command_bench,
};

static void print_help(struct arena *arena, enum command command) {
    struct strbuf text;
    strbuf_init(&text, arena);
    options_help(command, &text);
    fputs(strbuf_text(&text), stdout);
}

static int usage_error(enum command command, const char *message) {
    const char *word = command_word(command);
    fprintf(stderr, "attnc: error: %s\ntry 'attnc %s%s--help'\n", message, word,
            *word ? " " : "");
    return STATUS_USAGE;
}

/* Output that did not reach its end (a full disk) is a failure, too. */
static int flush_output(int status) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    if (status != STATUS_OK)
        return status;
    perror("attnc: error: cannot write standard output");
    return STATUS_FAILED;
}

int main(int argc, char **argv) {
    struct arena *arena = arena_create();
    struct options options;
    const char *message;
    int status = STATUS_OK;
    switch (options_parse(arena, argc, argv, &options, &message)) {
    case OPTIONS_HELP:
        print_help(arena, options.command);
        break;
    case OPTIONS_VERSION:
        printf("attnc %s\n", ATTN_VERSION);
        break;
    case OPTIONS_WRONG:
        status = usage_error(options.command, message);
        break;
    case OPTIONS_OK: {
        struct session session = session_create(arena, &options);
        status = command_functions[options.command](&session);
        session_report(&session);
        break;
    }
    }
    arena_destroy(arena);
    return flush_output(status);
}
