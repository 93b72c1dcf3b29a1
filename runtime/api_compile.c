/* The public functions that run the compiler: attn_compile and attn_emit.  The
 * only file of this folder that knows the compiler.
 *
 * The front end runs on every call (it is fast, finds imports and gives the
 * canonical text that the cache key is made of); everything behind it only on a
 * miss. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/compile.h"
#include "runtime/context.h"
#include "runtime/driver.h"
#include "runtime/module.h"

/* One compilation: everything in one arena. */
struct job {
    struct arena *arena;
    struct source_set *sources;
    struct diag_sink *diags;
    const struct spec *spec;
    const struct attention *attention;
    struct compile_options options;
};

/* What `attnc check` would print, as a status. */
static struct attn_status *spec_failure(const struct job *job,
                                        const struct diag_sink *diags) {
    struct strbuf text;
    strbuf_init(&text, job->arena);
    diag_render(diags, false, &text);
    return RT_FAIL(ATTN_INVALID_SPEC, "%s", strbuf_text(&text));
}

/* A text has a path too, for messages and imports. */
static struct attn_status *add_source(const struct job *job,
                                      const struct attn_source *source,
                                      const struct source_file **out_file) {
    if (source == NULL || (source->text == NULL && source->path == NULL))
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "the source has neither a text nor a path");
    const char *path = source->path != NULL ? source->path : "spec.attn";
    *out_file = source->text != NULL
                    ? source_add_text(job->sources, path, source->text,
                                      source->text_size)
                    : source_load(job->sources, path);
    if (*out_file == NULL)
        return RT_FAIL(ATTN_IO, "cannot open '%s': %s", path, strerror(errno));
    return NULL;
}

/* ---- Target ------------------------------------------------------------ */

/* Whether code for this target can be made for this device. */
static bool runs_on(const char *target, const struct rt_device *device) {
    char arch[16];
    struct attn_status *status = rt_arch_for_device(target, device, arch);
    bool runs = status == NULL;
    attn_status_destroy(status);
    return runs;
}

/* "sm_90a" is 901, "sm_90" 900, so that the most specific code of a device
 * wins. */
static int rank_of(const char *target) {
    char *end = NULL;
    long number = strtol(target + 3, &end, 10);
    return (int)number * 10 + (*end != '\0');
}

/* The target for the current device when the caller names none: the spec's
 * first that runs there, or for a spec without targets the best of the
 * compiler's.  NULL without a device; the compiler then has its own rule. */
static const char *device_target(const struct attention *attention) {
    const struct rt_driver *driver = NULL;
    struct rt_device device;
    const char *best = NULL;
    if (attention->target_count == 1) /* nothing to choose: leave CUDA alone */
        return NULL;
    struct attn_status *status = rt_driver_get(&driver);
    if (status == NULL)
        status = rt_device_current(driver, &device);
    if (status == NULL && attention->target_count > 0) {
        for (size_t i = 0; i < attention->target_count && best == NULL; i++)
            if (compile_target_is_supported(attention->targets[i].name) &&
                runs_on(attention->targets[i].name, &device))
                best = attention->targets[i].name;
    } else if (status == NULL) {
        const char *target = NULL;
        for (size_t i = 0; (target = compile_target(i)) != NULL; i++)
            if (runs_on(target, &device) &&
                (best == NULL || rank_of(target) > rank_of(best)))
                best = target;
    }
    attn_status_destroy(status);
    return best;
}

/* ---- Front end --------------------------------------------------------- */

/* The front end, and the target; nothing of MLIR yet. */
static struct attn_status *
job_check(struct job *job, const struct attn_source *source,
          const struct attn_compile_options *options) {
    static const struct attn_compile_options defaults;
    const struct source_file *file = NULL;
    if (options == NULL)
        options = &defaults;
    struct frontend_options frontend = {options->include_dirs,
                                        options->include_count};
    RT_TRY(add_source(job, source, &file));
    job->spec =
        frontend_check(job->arena, job->sources, file, &frontend, job->diags);
    if (job->spec != NULL)
        job->attention = compile_select(job->spec, options->entry, job->diags);
    if (job->attention == NULL)
        return spec_failure(job, job->diags);
    job->options.target = options->target;
    if (job->options.target == NULL)
        job->options.target = device_target(job->attention);
    job->options.schedule = options->schedule;
    return NULL;
}

static void job_init(struct job *job) {
    *job = (struct job){.arena = arena_create()};
    job->sources = source_set_create(job->arena);
    job->diags = diag_sink_create(job->arena, job->sources);
}

/* ---- Compile ----------------------------------------------------------- */

/* What decides the result, and the texts of all files read so far: the spec,
 * its imports and extern files.  The texts are there although the canonical
 * form would do for the kernel: the PTX cites lines of the files, and same
 * input must give same bytes. */
static struct attn_status *find_key(const struct job *job,
                                    struct rt_key *out_key) {
    struct strbuf text;
    const struct source_file *file = NULL;
    /* A sink of its own, for compile_attention will report the same again. */
    struct diag_sink *diags = diag_sink_create(job->arena, job->sources);
    strbuf_init(&text, job->arena);
    rt_build_identity(&text);
    if (!compile_key(job->arena, job->sources, job->spec, job->attention,
                     &job->options, diags, &text))
        return spec_failure(job, diags);
    for (uint32_t id = 1; (file = source_file_get(job->sources, id)) != NULL;
         id++) {
        strbuf_printf(&text, "file %s %u\n", file->path,
                      (unsigned)file->length);
        strbuf_append_bytes(&text, file->text, file->length);
    }
    *out_key = rt_key_of(text.data, text.length);
    return NULL;
}

/* The expensive part, only on a miss of both caches. */
static struct attn_status *compile_payload(const struct job *job,
                                           struct strbuf *out_payload) {
    struct compiled compiled = {0};
    if (!compile_attention(job->arena, job->sources, job->spec, job->attention,
                           &job->options, job->diags, &compiled))
        return spec_failure(job, job->diags);
    struct rt_cuda_source *externs = ARENA_NEW_ARRAY(
        job->arena, struct rt_cuda_source, compiled.extern_file_count);
    for (size_t i = 0; i < compiled.extern_file_count; i++)
        externs[i] = (struct rt_cuda_source){compiled.extern_files[i]->path,
                                             compiled.extern_files[i]->text};
    struct strbuf warnings;
    strbuf_init(&warnings, job->arena);
    diag_render(job->diags, false, &warnings);
    struct rt_program_parts parts = {
        .info = compiled.info,
        .ptx = compiled.ptx,
        .ptx_size = compiled.ptx_length,
        .warnings = strbuf_text(&warnings),
        .sources = externs,
        .source_count = compiled.extern_file_count,
    };
    rt_program_write(&parts, out_payload);
    return NULL;
}

static struct attn_status *compile_program(const struct job *job,
                                           struct attn_context *context,
                                           struct rt_key key,
                                           struct attn_program **out_program) {
    struct strbuf payload;
    strbuf_init(&payload, NULL);
    const char *folder = rt_context_folder(context);
    struct attn_status *status = compile_payload(job, &payload);
    if (status == NULL)
        status = rt_program_create(payload.data, payload.length, key, folder,
                                   out_program);
    if (status == NULL &&
        folder != NULL) /* a full disk costs time next run, nothing else */
        attn_status_destroy(
            rt_cache_write(folder, key, payload.data, payload.length));
    strbuf_destroy(&payload);
    return status;
}

/* Memory, disk, compiler.  When another thread was faster, its program wins. */
static struct attn_status *find_or_compile(struct job *job,
                                           struct attn_context *context,
                                           struct attn_program **out_program) {
    struct rt_key key = {0};
    RT_TRY(find_key(job, &key));
    struct attn_program *program = rt_context_find(context, key);
    if (program == NULL) {
        program = rt_context_load(context, key);
        if (program == NULL)
            RT_TRY(compile_program(job, context, key, &program));
        program = rt_context_remember(context, program);
    }
    *out_program = program;
    return NULL;
}

struct attn_status *attn_compile(struct attn_context *context,
                                 const struct attn_source *source,
                                 const struct attn_compile_options *options,
                                 struct attn_program **out_program) {
    struct job job;
    job_init(&job);
    struct attn_status *status = job_check(&job, source, options);
    if (status == NULL)
        status = find_or_compile(&job, context, out_program);
    arena_destroy(job.arena);
    return status;
}

/* ---- Emit -------------------------------------------------------------- */

/* The stage is compiled to and no further; the text is malloc-ed for the
 * caller. */
static struct attn_status *emit(struct job *job, const char *stage,
                                char **out_text) {
    struct compiled compiled = {0};
    job->options.stop_after = stage;
    job->options.dump_after = stage;
    if (!compile_attention(job->arena, job->sources, job->spec, job->attention,
                           &job->options, job->diags, &compiled))
        return spec_failure(job, job->diags);
    const char *text =
        compiled.dump_count > 0 ? compiled.dumps[0].text : compiled.ptx;
    *out_text = text != NULL ? strdup(text) : NULL;
    if (*out_text == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY,
                       "out of memory for the text of stage '%s'", stage);
    return NULL;
}

struct attn_status *attn_emit(struct attn_context *context,
                              const struct attn_source *source,
                              const struct attn_compile_options *options,
                              const char *stage, char **out_text) {
    (void)context; /* dumps are for people and are not cached */
    if (stage == NULL || !compile_stage_is_known(stage))
        return RT_FAIL(ATTN_INVALID_ARGUMENT, "there is no stage '%.80s'",
                       stage != NULL ? stage : "");
    struct job job;
    job_init(&job);
    struct attn_status *status = job_check(&job, source, options);
    if (status == NULL)
        status = emit(&job, stage, out_text);
    arena_destroy(job.arena);
    return status;
}

void attn_text_destroy(char *text) {
    free(text);
}
