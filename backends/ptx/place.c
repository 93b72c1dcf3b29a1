/* From MLIR locations to places of the source set. */
#include "backends/ptx/place.h"

#include <string.h>

#include "ir/context.h"

/* The file of this path, NULL when the set has none. */
static const struct source_file *find_file(const struct source_set *set,
                                           const char *path) {
    const struct source_file *file;
    for (uint32_t id = 1; set && (file = source_file_get(set, id)) != NULL;
         id++)
        if (strcmp(file->path, path) == 0)
            return file;
    return NULL;
}

void ptx_error_at(struct diag_sink *sink, MlirOperation op,
                  const char *message) {
    const char *path;
    unsigned line, column;
    if (!ir_location_place(mlirOperationGetLocation(op), &path, &line,
                           &column)) {
        diag_error(sink, SOURCE_NOWHERE, "%s", message);
        return;
    }
    const struct source_file *file = find_file(diag_sources(sink), path);
    if (!file || line == 0 || line > file->line_count) {
        diag_error(sink, SOURCE_NOWHERE, "%s:%u:%u: %s", path, line, column,
                   message);
        return;
    }
    uint32_t begin =
        file->line_starts[line - 1] + (column > 0 ? column - 1 : 0);
    if (begin > file->length)
        begin = file->length;
    struct source_range where = {file->id, begin,
                                 begin < file->length ? begin + 1 : begin};
    diag_error(sink, where, "%s", message);
}
