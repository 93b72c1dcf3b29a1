/* The command line: what it means and what it refuses. */
#include <criterion/criterion.h>
#include <string.h>

#include "support/arena.h"
#include "tools/options.h"

enum { MAX_WORDS = 32 };

static struct options options;
static const char *message;

/* Parses a line split at single blanks. */
static enum options_result parse(const char *line) {
    struct arena *arena = arena_create();
    char *copy = arena_strdup(arena, line), *words[MAX_WORDS + 1] = {"attnc"};
    int count = 1;
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        words[count++] = word;
    cr_assert_lt(count, MAX_WORDS);
    return options_parse(arena, count, words, &options, &message);
}

static void expect_wrong(const char *line, const char *expected) {
    cr_assert_eq(parse(line), OPTIONS_WRONG, "'%s' is accepted", line);
    cr_assert_not_null(message, "'%s'", line);
    cr_expect_not_null(strstr(message, expected), "'%s': '%s' lacks '%s'", line,
                       message, expected);
}

Test(options, compile) {
    cr_assert_eq(parse("x.attn -o x.cubin --target sm_80,sm_90a -Iinc -I more"),
                 OPTIONS_OK);
    cr_expect_eq(options.command, COMMAND_COMPILE);
    cr_expect_str_eq(options.output, "x.cubin");
    cr_expect_eq(options.targets.count, 2);
    cr_expect_str_eq(options.targets.data[1], "sm_90a");
    cr_expect_str_eq(options.include_dirs.data[0], "inc");
    cr_expect_str_eq(options.include_dirs.data[1], "more");
    cr_assert_eq(parse("--emit=tile x.attn"), OPTIONS_OK);
    cr_expect_str_eq(options.emit, "tile");
    cr_assert_eq(parse("-ox.ptx -- --odd.attn"), OPTIONS_OK);
    cr_expect_str_eq(options.files.data[0], "--odd.attn");
    cr_assert_eq(parse("--list-passes"), OPTIONS_OK);
    cr_assert_eq(parse("m.mlir --run-pass=cse,canonicalize"), OPTIONS_OK);
}

Test(options, run) {
    cr_assert_eq(
        parse(
            "run x.attn --device cpu --batch 2 --heads=8 --kv-heads 2 --q-len "
            "17 "
            "--param w=-3 --param c=1.5 --param b=true --tensor t=random:0..7"),
        OPTIONS_OK);
    cr_expect_eq(options.command, COMMAND_RUN);
    cr_expect_eq(options.device, DEVICE_CPU);
    cr_expect_eq(options.sizes[SIZE_BATCH], 2);
    cr_expect_eq(options.sizes[SIZE_HEADS], 8);
    cr_expect_eq(options.sizes[SIZE_KV_HEADS], 2);
    cr_expect_eq(options.sizes[SIZE_Q_LEN], 17);
    cr_expect_eq(options.sizes[SIZE_KV_LEN], 0);
    cr_expect_eq(options.params.data[0].form, PARAM_INTEGER);
    cr_expect_eq(options.params.data[0].integer, -3);
    cr_expect_eq(options.params.data[1].form, PARAM_FLOAT);
    cr_expect_eq(options.params.data[1].real, 1.5);
    cr_expect_eq(options.params.data[2].form, PARAM_BOOL);
    cr_expect(options.tensors.data[0].has_range);
    cr_expect_eq(options.tensors.data[0].high, 7);
    cr_expect_null(options.tensors.data[0].file);
    cr_assert_eq(
        parse("run x.attn --o - --lse y.npy --seed 18446744073709551615"),
        OPTIONS_OK);
    cr_expect_eq(options.seed, UINT64_MAX);
}

Test(options, others) {
    cr_assert_eq(parse("check a.attn b.attn --json -Wno-unused-param"),
                 OPTIONS_OK, "%s", message);
    cr_expect_str_eq(options.silenced.data[0], "unused-param");
    cr_assert_eq(parse("fmt -i a.attn b.attn"), OPTIONS_OK);
    cr_assert_eq(parse("explain a.attn --ptx --color=never"), OPTIONS_OK);
    cr_expect_eq(options.color, COLOR_NEVER);
    cr_assert_eq(parse("bench a.attn --seconds 2 --layout bshd --color"),
                 OPTIONS_OK);
    cr_expect_eq(options.layout, LAYOUT_BSHD);
    cr_expect_eq(options.color, COLOR_ALWAYS);
}

Test(options, help_and_version) {
    cr_expect_eq(parse("--help"), OPTIONS_HELP);
    cr_expect_eq(parse("run --help"), OPTIONS_HELP);
    cr_expect_eq(options.command, COMMAND_RUN);
    cr_expect_eq(parse("--version"), OPTIONS_VERSION);
    expect_wrong("run x.attn --version", "unknown option '--version'");
}

Test(options, unknown) {
    expect_wrong("run x.attn --q-length 3",
                 "unknown option '--q-length' of 'attnc run'");
    expect_wrong("run x.attn --qlen 3", "did you mean '--q-len'?");
    expect_wrong("check x.attn -x", "unknown option '-x'");
    expect_wrong("x.attn --batch 3", "unknown option '--batch'");
    expect_wrong("fmt x.attn --target sm_80",
                 "unknown option '--target' of 'attnc fmt'");
    expect_wrong("check x.attn -Wall", "-Wno-NAME");
    expect_wrong("check x.attn -Wno-unused-parm",
                 "did you mean 'unused-param'?");
    expect_wrong("check x.attn --target sm_81", "unknown target 'sm_81'");
    expect_wrong("run x.attn --device tpu", "unknown value of --device 'tpu'");
}

Test(options, malformed) {
    expect_wrong("run x.attn --batch 0", "--batch needs a whole number from 1");
    expect_wrong("run x.attn --batch -1", "not '-1'");
    expect_wrong("run x.attn --q-len 2147483648", "not '2147483648'");
    expect_wrong("run x.attn --q-len 12x", "not '12x'");
    expect_wrong("run x.attn --q-len", "--q-len needs N");
    expect_wrong("run x.attn --q-len=", "not an empty text");
    expect_wrong("run x.attn --param w", "--param needs NAME=X");
    expect_wrong("run x.attn --param =3", "--param needs NAME=X");
    expect_wrong("run x.attn --param w=", "--param needs NAME=X");
    expect_wrong("run x.attn --param w=abc",
                 "neither a number nor true or false");
    expect_wrong("run x.attn --tensor t", "--tensor needs NAME=FILE");
    expect_wrong("run x.attn --tensor t=random:5..2", "not random:LO..HI");
    expect_wrong("run x.attn --tensor t=random:0..", "not random:LO..HI");
    expect_wrong("run x.attn --tensor t=random:0..9999999999",
                 "not random:LO..HI");
    expect_wrong("run x.attn --seed -1", "--seed needs a whole number");
    expect_wrong("bench x.attn --seconds 0",
                 "--seconds needs a number above 0");
    expect_wrong("run x.attn --check=yes", "--check takes no value");
    expect_wrong("x.attn -o", "-o needs OUT");
}

Test(options, repeated) {
    expect_wrong("run x.attn --param w=1 --param w=2",
                 "--param w is given twice");
    expect_wrong("run x.attn --tensor t=a --tensor t=b",
                 "--tensor t is given twice");
    expect_wrong("run x.attn --batch 1 --batch 1", "--batch is given twice");
    expect_wrong("x.attn -o a.ptx -o b.ptx", "--output is given twice");
    expect_wrong("check x.attn --target sm_80 --target sm_80",
                 "--target sm_80 is given twice");
}

Test(options, combinations) {
    expect_wrong("", "no input file");
    expect_wrong("x.attn", "nothing to do");
    expect_wrong("x.attn y.attn -o z.ptx", "one file at a time");
    expect_wrong("x.attn -o -", "-o - needs --emit");
    expect_wrong("run", "no input file");
    expect_wrong("run x.attn y.attn", "'attnc run' takes one file");
    expect_wrong("run x.attn --o - --lse -", "two outputs to standard output");
    expect_wrong("run x.attn --o - --json", "two outputs to standard output");
    expect_wrong("run x.attn --o a --lse a", "name the same file");
    expect_wrong("run x.attn --target sm_80,sm_90a", "takes one target");
    expect_wrong("run x.attn --device gpu --trace t.json",
                 "--trace needs --device cpu");
    expect_wrong("run x.attn --emulator-seed 3",
                 "--emulator-seed needs --device cpu");
    expect_wrong("run x.attn --device reference --target sm_80",
                 "--target has no meaning");
    expect_wrong("fmt a.attn b.attn", "several files need -i or --check");
    expect_wrong("fmt a.attn -i --check", "exclude each other");
}

Test(options, help_lists_what_the_command_takes) {
    struct arena *arena = arena_create();
    struct strbuf text;
    strbuf_init(&text, arena);
    options_help(COMMAND_FMT, &text);
    cr_expect_not_null(strstr(strbuf_text(&text), "-i, --in-place"));
    cr_expect_null(strstr(strbuf_text(&text), "--target"));
    arena_destroy(arena);
}
