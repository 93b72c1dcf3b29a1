/* The disk cache: keys, entries, damage, several writers at once; and programs
 * that are built from its payloads. */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/cache.h"
#include "runtime/context.h"
#include "sample_info.h"
#include "tests/unit/folder.h"

static const struct rt_key key = {0x0123456789abcdef, 42};

TestSuite(cache, .init = folder_create, .fini = folder_remove);

static bool reads(const char *expected) {
    struct strbuf payload;
    strbuf_init(&payload, NULL);
    bool found = rt_cache_read(folder, key, &payload);
    if (found)
        cr_assert_str_eq(strbuf_text(&payload), expected);
    strbuf_destroy(&payload);
    return found;
}

static const char *entry_path(void) {
    static char text[160];
    struct strbuf path;
    strbuf_init(&path, NULL);
    rt_cache_path(folder, key, &path);
    snprintf(text, sizeof text, "%s", path.data);
    strbuf_destroy(&path);
    return text;
}

Test(cache, entry_round_trips) {
    cr_assert(!reads(""));
    cr_assert_null(rt_cache_write(folder, key, "payload", 7));
    cr_assert(reads("payload"));
    cr_assert_null(rt_cache_write(folder, key, "another", 7));
    cr_assert(reads("another"));
    cr_assert_null(rt_cache_write(folder, key, "", 0));
    cr_assert(reads(""));
}

Test(cache, creates_private_folders) {
    struct stat info;
    strcat(folder, "/a/b");
    cr_assert_null(rt_cache_write(folder, key, "x", 1));
    cr_assert(reads("x"));
    cr_assert_eq(stat(folder, &info), 0);
    cr_assert_eq(info.st_mode & 0777, 0700);
    folder[strlen(folder) - 4] = '\0';
}

/* Each single flipped bit and each truncation is found, and the entry
 * removed. */
Test(cache, damage_is_found_and_removed) {
    char bytes[256];
    cr_assert_null(rt_cache_write(folder, key, "payload", 7));
    int file = open(entry_path(), O_RDONLY);
    ssize_t size = read(file, bytes, sizeof bytes);
    close(file);
    for (ssize_t i = 0; i < 8 * size + size; i++) {
        bool cut = i >= 8 * size;
        if (!cut)
            bytes[i / 8] ^= (char)(1 << i % 8);
        file = open(entry_path(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        size_t length = (size_t)(cut ? i - 8 * size : size);
        cr_assert_eq(write(file, bytes, length), (ssize_t)length);
        close(file);
        cr_assert(!reads(""), "bit %zd", i);
        cr_assert_neq(access(entry_path(), F_OK), 0);
        if (!cut)
            bytes[i / 8] ^= (char)(1 << i % 8);
    }
}

Test(cache, entry_of_another_key_is_refused) {
    struct rt_key other = {key.high, key.low + 1};
    cr_assert_null(rt_cache_write(folder, other, "payload", 7));
    char from[160];
    struct strbuf path;
    strbuf_init(&path, NULL);
    rt_cache_path(folder, other, &path);
    snprintf(from, sizeof from, "%s", path.data);
    strbuf_destroy(&path);
    cr_assert_eq(rename(from, entry_path()), 0);
    cr_assert(!reads(""));
}

Test(cache, unwritable_folder_is_a_status) {
    struct attn_status *status = rt_cache_write("/proc/attn", key, "x", 1);
    cr_assert_eq(attn_status_code(status), ATTN_IO);
    cr_assert_not_null(strstr(attn_status_text(status), "/proc/attn"));
    attn_status_destroy(status);
}

enum { WRITERS = 4, ROUNDS = 50, BIG = 200000 };

/* Writers of two different large payloads; readers see one of them or
 * nothing. */
Test(cache, concurrent_processes_see_whole_entries) {
    for (int writer = 0; writer < WRITERS; writer++) {
        if (fork() != 0)
            continue;
        char *payload = malloc(BIG);
        memset(payload, 'a' + writer, BIG);
        for (int i = 0; i < ROUNDS; i++)
            if (rt_cache_write(folder, key, payload, BIG) != NULL)
                _exit(1);
        _exit(0);
    }
    int seen = 0;
    for (int i = 0; i < 20 * ROUNDS; i++) {
        struct strbuf payload;
        strbuf_init(&payload, NULL);
        if (rt_cache_read(folder, key, &payload)) {
            seen++;
            cr_assert_eq(payload.length, BIG);
            cr_assert_eq(payload.data[0], payload.data[BIG - 1]);
        }
        strbuf_destroy(&payload);
    }
    for (int writer = 0, state = 0; writer < WRITERS; writer++) {
        cr_assert_gt(wait(&state), 0);
        cr_assert_eq(state, 0);
    }
    struct strbuf payload;
    strbuf_init(&payload, NULL);
    cr_assert(rt_cache_read(folder, key, &payload),
              "an entry was lost (%d reads)", seen);
    strbuf_destroy(&payload);
}

Test(cache, folder_by_environment) {
    static const struct {
        const char *chosen, *own, *xdg, *home, *want;
    } rows[] = {
        {"/c", "/o", "/x", "/h", "/c"},
        {NULL, "/o", "/x", "/h", "/o"},
        {NULL, NULL, "/x", "/h", "/x/attn"},
        {NULL, NULL, "x", "/h", "/h/.cache/attn"},
        {NULL, "", NULL, "/h", "/h/.cache/attn"},
        {NULL, NULL, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *names[] = {"ATTN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
        const char *values[] = {rows[i].own, rows[i].xdg, rows[i].home};
        for (int v = 0; v < 3; v++)
            if (values[v] != NULL)
                setenv(names[v], values[v], 1);
            else
                unsetenv(names[v]);
        struct strbuf text;
        strbuf_init(&text, NULL);
        bool found = rt_cache_folder(rows[i].chosen, &text);
        cr_assert_eq(found, rows[i].want != NULL, "row %zu", i);
        if (found)
            cr_assert_str_eq(strbuf_text(&text), rows[i].want);
        strbuf_destroy(&text);
    }
}

Test(cache, parts_round_trip_and_refuse_damage) {
    struct rt_part parts[] = {{"abc", 3}, {"", 0}, {"d\0e", 3}}, read[3];
    size_t count = 0;
    struct strbuf payload;
    strbuf_init(&payload, NULL);
    rt_parts_write(parts, 3, &payload);
    cr_assert(rt_parts_read(payload.data, payload.length, read, 3, &count));
    cr_assert_eq(count, 3);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(read[i].size, parts[i].size);
        cr_assert_arr_eq(read[i].data, parts[i].data, parts[i].size);
    }
    cr_assert(!rt_parts_read(payload.data, payload.length, read, 2, &count));
    for (size_t length = 0; length < payload.length; length++)
        cr_assert(!rt_parts_read(payload.data, length, read, 3, &count),
                  "%zu bytes", length);
    for (size_t i = 0; i < 32; i++) {
        payload.data[i] ^= 0x40;
        cr_assert(!rt_parts_read(payload.data, payload.length, read, 3, &count),
                  "byte %zu", i);
        payload.data[i] ^= 0x40;
    }
    strbuf_destroy(&payload);
}

Test(cache, build_identity_is_stable_and_not_empty) {
    struct strbuf a, b;
    strbuf_init(&a, NULL);
    strbuf_init(&b, NULL);
    rt_build_identity(&a);
    rt_build_identity(&b);
    cr_assert_str_eq(a.data, b.data);
    cr_assert_gt(a.length, strlen("attn 0.1.0 \n"), "no build id: '%s'",
                 a.data);
    strbuf_destroy(&a);
    strbuf_destroy(&b);
}

/* ---- Programs and contexts --------------------------------------------- */

static void write_sample(struct strbuf *out) {
    static const struct rt_cuda_source source = {"decay.cu",
                                                 "extern \"C\" __device__ …"};
    struct arena *arena = arena_create();
    struct rt_program_parts parts = {
        .info = sample_info(arena),
        .ptx = ".version 8.0\n",
        .ptx_size = 13,
        .warnings = "spec.attn:1:1: warning: …",
        .sources = &source,
        .source_count = 1,
    };
    strbuf_init(out, NULL);
    rt_program_write(&parts, out);
    arena_destroy(arena);
}

static struct attn_program *sample_program(void) {
    struct attn_program *program = NULL;
    struct strbuf payload;
    write_sample(&payload);
    cr_assert_null(
        rt_program_create(payload.data, payload.length, key, folder, &program));
    strbuf_destroy(&payload);
    return program;
}

Test(cache, program_describes_itself) {
    struct attn_program *program = sample_program();
    cr_assert_str_eq(attn_program_name(program), "sample");
    cr_assert_str_eq(attn_program_target(program), "sm_80");
    cr_assert_eq(attn_program_dtype(program), ATTN_BF16);
    cr_assert_eq(attn_program_tensor_count(program), 7);
    cr_assert_str_eq(attn_program_tensor(program, 5)->extents[1],
                     "kv_len + attn_floordiv(window, 16)");
    cr_assert_null(attn_program_tensor(program, 7));
    cr_assert_eq(attn_program_param(program, 0)->default_value, 64.0);
    cr_assert(!attn_program_param(program, 1)->has_default);
    cr_assert_str_eq(attn_program_entry(program, 1)->grid,
                     "attn_min(batch, attn_sm_count)");
    cr_assert_str_eq(attn_program_ptx(program), ".version 8.0\n");
    cr_assert_str_eq(attn_program_warnings(program),
                     "spec.attn:1:1: warning: …");
    cr_assert_str_eq(program->sources[0].path, "decay.cu");
    cr_assert_not_null(strstr(attn_program_json(program), "\"sample\""));
    attn_program_destroy(program);
}

Test(cache, program_refuses_damaged_payloads) {
    struct strbuf payload;
    write_sample(&payload);
    unsigned seed = 7;
    for (int round = 0; round < 400; round++) {
        struct attn_program *program = NULL;
        size_t at = (size_t)rand_r(&seed) % payload.length;
        char kept = payload.data[at];
        payload.data[at] = (char)rand_r(&seed);
        attn_status_destroy(rt_program_create(payload.data, payload.length, key,
                                              NULL, &program));
        if (program !=
            NULL) /* the damage is in a text, or spells another valid number */
            cr_assert_eq(program->info.entry_count, 2);
        attn_program_destroy(program);
        payload.data[at] = kept;
    }
    strbuf_destroy(&payload);
}

Test(cache, context_remembers_and_loads) {
    struct attn_context_options options = {ATTN_CACHE_DISK, folder};
    struct attn_context *context = NULL;
    cr_assert_null(attn_context_create(&options, &context));
    cr_assert_null(rt_context_find(context, key));
    cr_assert_null(rt_context_load(context, key));
    struct strbuf payload;
    write_sample(&payload);
    cr_assert_null(rt_cache_write(folder, key, payload.data, payload.length));
    struct attn_program *loaded = rt_context_load(context, key);
    cr_assert(attn_program_from_cache(loaded));
    cr_assert_eq(rt_context_remember(context, loaded), loaded);
    struct attn_program *found = rt_context_find(context, key);
    cr_assert_eq(found, loaded);
    cr_assert_eq(rt_context_remember(context, sample_program()),
                 loaded); /* second is dropped */
    attn_context_destroy(context);
    cr_assert_str_eq(attn_program_name(loaded), "sample");
    for (int i = 0; i < 3; i++)
        attn_program_destroy(loaded);
    strbuf_destroy(&payload);
}

static struct attn_context *shared;

static void *use_context(void *unused) {
    for (int i = 0; i < 200; i++) {
        struct attn_program *program = rt_context_find(shared, key);
        if (program == NULL)
            program = rt_context_remember(shared, sample_program());
        cr_assert_str_eq(attn_program_name(program), "sample");
        attn_program_destroy(program);
    }
    return unused;
}

Test(cache, context_is_thread_safe) {
    pthread_t threads[4];
    struct attn_context_options options = {ATTN_CACHE_MEMORY, NULL};
    cr_assert_null(attn_context_create(&options, &shared));
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, use_context, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    attn_context_destroy(shared);
}
