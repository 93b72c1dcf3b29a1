/* The way from spec text through all passes: every spec of the library lowers
 * and verifies after each pass, results do not depend on the run, and values
 * are computed where their shape says. */
#include <criterion/criterion.h>
#include <glob.h>
#include <string.h>

#include "tests/unit/compile_util.h"

TestSuite(lower, .init = compile_setup, .fini = compile_teardown);

/* The text of one stage of an attention given as text. */
static const char *lower(const char *spec, const char *stage,
                         const char *schedule) {
    struct compile_options options = {.target = "sm_80",
                                      .stop_after = stage,
                                      .dump_after = stage,
                                      .verify_each = true,
                                      .schedule = schedule};
    struct compiled compiled;
    cr_assert(compile_spec(spec, &options, &compiled), "%s", messages());
    cr_assert_eq(compiled.dump_count, 1);
    cr_assert_str_eq(compiled.dumps[0].stage, stage);
    return compiled.dumps[0].text;
}

/* Occurrences of `word` in `text` between two marks (NULL: the ends). */
static int count_between(const char *text, const char *from, const char *to,
                         const char *word) {
    const char *begin = from ? strstr(text, from) : text;
    cr_assert_not_null(begin, "no '%s'", from);
    const char *end = to ? strstr(begin + 1, to) : begin + strlen(begin);
    cr_assert_not_null(end, "no '%s'", to);
    int count = 0;
    for (const char *p = begin; (p = strstr(p, word)) && p < end;
         p += strlen(word))
        count++;
    return count;
}

static const char spec_head[] = "attention a { dtype bf16; head_dim 64; ";

static const char *spec_of(const char *lines) {
    return arena_printf(arena, "%s%s }\n", spec_head, lines);
}

Test(lower, every_spec_of_the_library_verifies_after_each_pass,
     .timeout = 300) {
    glob_t files;
    cr_assert_eq(glob("specs/*.attn", 0, NULL, &files), 0,
                 "run from the project's root");
    for (size_t i = 0; i < files.gl_pathc; i++) {
        const char *path = files.gl_pathv[i];
        const struct spec *spec =
            frontend_check_file(arena, sources, path, NULL, diags);
        cr_assert_not_null(spec, "%s: %s", path, messages());
        for (size_t k = 0; k < spec->attention_count; k++) {
            struct compile_options options = {.target = "sm_80",
                                              .stop_after = "pipeline",
                                              .verify_each = true};
            struct compiled compiled;
            cr_assert(compile_attention(arena, sources, spec,
                                        &spec->attentions[k], &options, diags,
                                        &compiled),
                      "%s: %s", path, messages());
            cr_assert_not(compiled.ptx);
        }
    }
    globfree(&files);
}

Test(lower, every_head_dim_lowers, .timeout = 300) {
    for (int dim = 8; dim <= 256; dim += 8) {
        const char *spec = arena_printf(
            arena, "attention a { dtype f16; head_dim %d, %d; mask kv <= q; }",
            dim, 264 - dim);
        const char *text = lower(spec, "pipeline", NULL);
        cr_assert_eq(count_between(text, NULL, NULL, "attn.load"), 0);
        cr_assert_not_null(strstr(text, "attn.shared_bytes"));
    }
}

Test(lower, same_text_gives_same_bytes) {
    const char *spec =
        spec_of("param cap: f32 = 30.0; score cap * tanh(s / cap);"
                "tensor d: i32[batch, kv_len]; mask d[b, q] == d[b, kv];");
    const char *first = lower(spec, "pipeline", NULL);
    for (int i = 0; i < 5; i++)
        cr_assert_str_eq(lower(spec, "pipeline", NULL), first);
}

Test(lower, stages_are_the_passes_in_order) {
    const char *const *stages = compile_stages();
    cr_assert_str_eq(stages[0], "attn");
    size_t count = 0;
    while (stages[count])
        count++;
    cr_assert_str_eq(stages[count - 1], "ptx");
    for (size_t i = 1; i + 1 < count; i++) {
        bool known = false;
        for (size_t k = 0; compile_pass_name(k); k++)
            known |= strcmp(compile_pass_name(k), stages[i]) == 0;
        cr_assert(known, "stage '%s' is no pass", stages[i]);
        cr_assert(compile_stage_is_known(stages[i]));
    }
    cr_assert_not(compile_stage_is_known("tiles"));
}

Test(lower, dumps_of_all_stages_read_back) {
    struct compile_options options = {.stop_after = "pipeline",
                                      .dump_after = "all"};
    struct compiled compiled;
    const char *spec = spec_of("mask kv <= q && q - kv < 100;");
    cr_assert(compile_spec(spec, &options, &compiled), "%s", messages());
    cr_assert_geq(compiled.dump_count, 6);
    for (size_t i = 0; i < compiled.dump_count; i++) {
        const struct compile_dump *dump = &compiled.dumps[i];
        struct strbuf out;
        strbuf_init(&out, arena);
        cr_assert(compile_run_passes(dump->stage, dump->text, dump->length, "",
                                     diags, &out),
                  "%s: %s", dump->stage, messages());
    }
}

Test(lower, row_terms_are_computed_once) {
    const char *text =
        lower(spec_of("tensor w: f32[q_len]; score s + exp(w[q]) * f32(kv);"),
              "tile", NULL);
    cr_assert_eq(count_between(text, NULL, "scf.for", "attn.read"), 1);
    cr_assert_eq(count_between(text, NULL, "scf.for", "math.exp "), 1);
    cr_assert_eq(count_between(text, "scf.for", NULL, "attn.read"), 0);
    cr_assert_eq(count_between(text, "scf.for", NULL, "math.exp "), 0);
}

Test(lower, column_terms_are_computed_once_a_block) {
    const char *text = lower(
        spec_of("tensor w: f32[kv_len]; score s + exp(w[kv]);"), "tile", NULL);
    cr_assert_eq(count_between(text, NULL, "scf.for", "math.exp "), 0);
    cr_assert_eq(count_between(text, "scf.for", NULL, "math.exp "), 1);
    const char *exp = strstr(text, "math.exp ");
    cr_assert_not_null(strstr(exp, "vector<1x64xf32>"));
}

/* Reads of global memory in the PTX of a score line: before the key loop and in
 * it.  A lane holds 4 of the 128 rows of its warp's tile; of the 64 columns it
 * reads 2, which the warp hands round. */
static void count_reads(const char *lines, int before, int inside) {
    const char *ptx = lower(spec_of(lines), "ptx", "tile 128, 64");
    cr_assert_eq(count_between(ptx, ".entry", "\nloop_", "ld.global"), before,
                 "%s", lines);
    cr_assert_eq(count_between(ptx, "\nloop_", NULL, "ld.global"), inside, "%s",
                 lines);
}

Test(lower, ptx_reads_once_per_row_column_or_kernel) {
    count_reads("tensor w: f32[heads]; score s + w[h];", 1, 0);
    count_reads("tensor w: f32[batch, q_len]; score s + w[b, q];", 4, 0);
    count_reads("tensor w: f32[batch, kv_len]; score s + w[b, kv];", 0, 2);
    count_reads("tensor w: f32[q_len, kv_len]; score s + w[q, kv];", 0, 64);
}

Test(lower, mask_code_stands_in_partial_blocks_only) {
    const char *text =
        lower(spec_of("tensor w: i32[kv_len]; mask kv % 3 == 0 && w[kv] > q;"),
              "tile", NULL);
    const char *loop = strstr(text, "attn.softmax_step");
    cr_assert_not_null(loop);
    cr_assert_eq(count_between(text, "transpose_b", "scf.if", "attn.read"), 0);
    cr_assert_eq(count_between(text, "transpose_b", "else", "attn.read"), 1);
}

Test(lower, a_pinned_schedule_is_used) {
    const char *text =
        lower(spec_of(""), "pipeline", "tile 64, 32; stages 3; order linear");
    cr_assert_not_null(strstr(text, "attn.tile = array<i32: 64, 32>"));
    cr_assert_not_null(strstr(text, "attn.stages = 3"));
    cr_assert_not_null(strstr(text, "memref<3x32x64xbf16"));
}

Test(lower, a_schedule_that_does_not_fit_is_refused) {
    struct compile_options options = {.schedule = "tile 256, 256; stages 4"};
    struct compiled compiled;
    const char *spec = spec_of("");
    cr_assert_not(compile_spec(spec, &options, &compiled));
    cr_assert_not_null(strstr(messages(), "the nearest schedule that fits"));
}

Test(lower, broken_module_text_is_an_error) {
    static const char *const texts[] = {"", "module {",
                                        "func.func @f() { return }",
                                        "module { \"attn.dot\"() : () -> () }"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct strbuf out;
        strbuf_init(&out, arena);
        size_t before = diag_error_count(diags);
        bool ok = compile_run_passes("x.mlir", texts[i], strlen(texts[i]),
                                     "tile", diags, &out);
        cr_assert_eq(ok, diag_error_count(diags) == before, "text %zu", i);
        cr_assert(ok == (i == 0 || i == 2), "text %zu: %s", i, messages());
    }
}

Test(lower, unknown_passes_are_an_error) {
    struct strbuf out;
    strbuf_init(&out, arena);
    cr_assert_not(
        compile_run_passes("x.mlir", "module {}", 9, "tile,tilt", diags, &out));
    cr_assert_not_null(strstr(messages(), "no pass is called 'tilt'"));
}
