/* The memory cache: the programs last used, found by key.  A list is enough: a
 * process uses a handful of specs, and a key is two words. */
#include "runtime/context.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PROGRAMS = 256 };

struct attn_context {
    bool in_memory;
    char *folder; /* owned; NULL: no disk cache */
    pthread_mutex_t lock;
    size_t count;
    struct attn_program *programs[MAX_PROGRAMS]; /* the latest used first */
};

static char *choose_folder(const struct attn_context_options *options) {
    struct strbuf folder;
    strbuf_init(&folder, NULL);
    bool disk = options == NULL || options->cache == ATTN_CACHE_DISK;
    bool found =
        disk &&
        rt_cache_folder(options != NULL ? options->cache_dir : NULL, &folder);
    char *text = found ? strbuf_take(&folder) : NULL;
    strbuf_destroy(&folder);
    return text;
}

struct attn_status *
attn_context_create(const struct attn_context_options *options,
                    struct attn_context **out_context) {
    if (options != NULL && (unsigned)options->cache > ATTN_CACHE_OFF)
        return RT_FAIL(ATTN_INVALID_ARGUMENT, "cache mode %d is unknown",
                       (int)options->cache);
    struct attn_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return RT_FAIL(ATTN_OUT_OF_MEMORY, "out of memory for a context");
    context->in_memory = options == NULL || options->cache != ATTN_CACHE_OFF;
    context->folder = choose_folder(options);
    pthread_mutex_init(&context->lock, NULL);
    *out_context = context;
    return NULL;
}

void attn_context_destroy(struct attn_context *context) {
    if (context == NULL)
        return;
    for (size_t i = 0; i < context->count; i++)
        rt_program_release(context->programs[i]);
    pthread_mutex_destroy(&context->lock);
    free(context->folder);
    free(context);
}

const char *rt_context_folder(const struct attn_context *context) {
    return context->folder;
}

/* Moves program `index` to the front. */
static void touch(struct attn_context *context, size_t index) {
    struct attn_program *program = context->programs[index];
    memmove(context->programs + 1, context->programs,
            index * sizeof *context->programs);
    context->programs[0] = program;
}

/* With the lock held: the remembered program in front, or NULL. */
static struct attn_program *find(struct attn_context *context,
                                 struct rt_key key) {
    for (size_t i = 0; i < context->count; i++)
        if (rt_key_equal(context->programs[i]->key, key)) {
            touch(context, i);
            return rt_program_retain(context->programs[0]);
        }
    return NULL;
}

struct attn_program *rt_context_find(struct attn_context *context,
                                     struct rt_key key) {
    pthread_mutex_lock(&context->lock);
    struct attn_program *program = find(context, key);
    pthread_mutex_unlock(&context->lock);
    return program;
}

struct attn_program *rt_context_load(struct attn_context *context,
                                     struct rt_key key) {
    struct attn_program *program = NULL;
    struct strbuf payload;
    if (context->folder == NULL)
        return NULL;
    strbuf_init(&payload, NULL);
    if (rt_cache_read(context->folder, key, &payload)) {
        /* What passes the hash but not the reader was written by other code:
         * rebuild. */
        attn_status_destroy(rt_program_create(strbuf_text(&payload),
                                              payload.length, key,
                                              context->folder, &program));
        if (program != NULL)
            program->from_cache = true;
    }
    strbuf_destroy(&payload);
    return program;
}

struct attn_program *rt_context_remember(struct attn_context *context,
                                         struct attn_program *program) {
    if (!context->in_memory)
        return program;
    pthread_mutex_lock(&context->lock);
    struct attn_program *other = find(context, program->key);
    if (other == NULL) {
        if (context->count == MAX_PROGRAMS)
            rt_program_release(context->programs[--context->count]);
        context->programs[context->count] = rt_program_retain(program);
        touch(context, context->count++);
    }
    pthread_mutex_unlock(&context->lock);
    if (other == NULL)
        return program;
    rt_program_release(program);
    return other;
}
