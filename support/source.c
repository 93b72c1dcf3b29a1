/* Source texts, their line tables and the search for included files. */
#include "support/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/strbuf.h"
#include "support/vec.h"

struct source_set {
    struct arena *arena;
    VEC(struct source_file *) files; /* file number n at n - 1 */
};

struct source_set *source_set_create(struct arena *arena) {
    struct source_set *set = ARENA_NEW(arena, struct source_set);
    set->arena = arena;
    return set;
}

static void index_lines(struct arena *arena, struct source_file *file) {
    uint32_t lines = 1;
    for (uint32_t i = 0; i < file->length; i++)
        lines += file->text[i] == '\n';
    uint32_t *starts = ARENA_NEW_ARRAY(arena, uint32_t, lines);
    uint32_t line = 1;
    for (uint32_t i = 0; i < file->length; i++)
        if (file->text[i] == '\n')
            starts[line++] = i + 1;
    file->line_starts = starts;
    file->line_count = lines;
}

static const char *folder_of(struct arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    return slash == path ? "/"
                         : arena_strndup(arena, path, (size_t)(slash - path));
}

static struct source_file *add(struct source_set *set, const char *path,
                               const char *text, size_t length) {
    if (length > SOURCE_MAX_BYTES) {
        errno = EFBIG;
        return NULL;
    }
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        length -= 3;
    }
    struct source_file *file = ARENA_NEW(set->arena, struct source_file);
    file->path = arena_strdup(set->arena, path);
    file->folder = folder_of(set->arena, path);
    file->text = arena_strndup(set->arena, text, length);
    file->length = (uint32_t)length;
    index_lines(set->arena, file);
    vec_push(set->arena, &set->files, file);
    file->id = (uint32_t)set->files.count;
    return file;
}

const struct source_file *source_add_text(struct source_set *set,
                                          const char *name, const char *text,
                                          size_t length) {
    return add(set, name, text, length);
}

static const struct source_file *find_real(const struct source_set *set,
                                           const char *real) {
    for (size_t i = 0; i < set->files.count; i++) {
        const struct source_file *file = set->files.data[i];
        if (file->real && strcmp(file->real, real) == 0)
            return file;
    }
    return NULL;
}

static struct source_file *read_stream(struct source_set *set, const char *path,
                                       FILE *stream) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    struct source_file *file = NULL;
    if (strbuf_read(&text, stream, SOURCE_MAX_BYTES))
        file = add(set, path, strbuf_text(&text), text.length);
    int error = errno;
    strbuf_destroy(&text);
    errno = error;
    return file;
}

static struct source_file *read_path(struct source_set *set, const char *path) {
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return NULL;
    struct stat info;
    if (fstat(fileno(stream), &info) == 0 && S_ISDIR(info.st_mode)) {
        fclose(stream);
        errno = EISDIR;
        return NULL;
    }
    struct source_file *file = read_stream(set, path, stream);
    int error = errno;
    fclose(stream);
    errno = error;
    return file;
}

const struct source_file *source_load(struct source_set *set,
                                      const char *path) {
    if (strcmp(path, "-") == 0)
        return read_stream(set, "<stdin>", stdin);
    char *real = realpath(path, NULL);
    if (!real)
        return NULL;
    const struct source_file *known = find_real(set, real);
    if (known) {
        free(real);
        return known;
    }
    struct source_file *file = read_path(set, path);
    int error = errno;
    if (file)
        file->real = arena_strdup(set->arena, real);
    free(real);
    errno = error;
    return file;
}

static const struct source_file *load_in(struct source_set *set,
                                         const char *folder, const char *name) {
    if (name[0] == '/' || strcmp(folder, ".") == 0)
        return source_load(set, name);
    const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
    return source_load(set,
                       arena_printf(set->arena, "%s%s%s", folder, slash, name));
}

const struct source_file *source_load_include(struct source_set *set,
                                              const struct source_file *from,
                                              const char *name,
                                              const char *const *folders,
                                              size_t folder_count) {
    if (name[0] == '\0') {
        errno = ENOENT;
        return NULL;
    }
    int error = ENOENT;
    for (size_t i = 0; i <= folder_count; i++) {
        const char *folder = i == 0 ? from->folder : folders[i - 1];
        /* "-" as a name in the text is a file, not standard input. */
        if (folder[0] == '\0' || strcmp(folder, ".") == 0)
            folder = strcmp(name, "-") == 0 ? "./" : ".";
        const struct source_file *file = load_in(set, folder, name);
        if (file)
            return file;
        if (errno != ENOENT && errno != ENOTDIR)
            error = errno;
        if (name[0] == '/')
            break;
    }
    errno = error;
    return NULL;
}

const struct source_file *source_file_get(const struct source_set *set,
                                          uint32_t id) {
    return id >= 1 && id <= set->files.count ? set->files.data[id - 1] : NULL;
}

/* Zero-based line that holds byte `offset`. */
static uint32_t line_of(const struct source_file *file, uint32_t offset) {
    uint32_t low = 0, high = file->line_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (file->line_starts[middle] <= offset)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

struct source_place source_locate(const struct source_set *set,
                                  struct source_range range) {
    struct source_place place = {.file = source_file_get(set, range.file)};
    if (!place.file)
        return place;
    uint32_t line = line_of(place.file, range.begin);
    uint32_t end = line_of(place.file, range.end);
    place.line = line + 1;
    place.column = range.begin - place.file->line_starts[line] + 1;
    place.end_line = end + 1;
    place.end_column = range.end - place.file->line_starts[end] + 1;
    return place;
}

const char *source_line(const struct source_file *file, uint32_t line,
                        size_t *out_length) {
    *out_length = 0;
    if (line < 1 || line > file->line_count)
        return "";
    uint32_t begin = file->line_starts[line - 1];
    uint32_t end =
        line < file->line_count ? file->line_starts[line] - 1 : file->length;
    if (end > begin && line < file->line_count && file->text[end - 1] == '\r')
        end--;
    *out_length = end - begin;
    return file->text + begin;
}

struct source_range source_join(struct source_range a, struct source_range b) {
    if (a.file == 0)
        return b;
    if (b.file != a.file)
        return a;
    return (struct source_range){a.file, a.begin < b.begin ? a.begin : b.begin,
                                 a.end > b.end ? a.end : b.end};
}
