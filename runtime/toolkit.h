/* Where a CUDA toolkit's libraries and tools are on this machine, and which one
 * it is.  $CUDA_HOME, then $CUDA_PATH, then /usr/local/cuda; libraries then by
 * the dynamic linker's own search (LD_LIBRARY_PATH, what the process has
 * loaded, ld.so.cache), tools by PATH. */
#ifndef ATTN_RUNTIME_TOOLKIT_H
#define ATTN_RUNTIME_TOOLKIT_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/status.h"
#include "support/strbuf.h"

/* One function to look up: where its address goes, and whether it may lack. */
struct rt_symbol {
    const char *name;
    bool required;
    size_t offset; /* of the function pointer in the table */
};

/* A library by its file names, the best first. */
struct rt_library {
    const char *title;        /* "libnvJitLink" for messages */
    const char *const *names; /* NULL-terminated: "libnvJitLink.so.13", … */
    const struct rt_symbol *symbols;
    size_t symbol_count;
};

/* Opens the library and fills `table`; it stays open.  ATTN_UNAVAILABLE says
 * where it was searched or which function it lacks. */
struct attn_status *rt_library_open(const struct rt_library *library,
                                    void *table);

/* A path of the library's file found without opening it, in the toolkit folders
 * only; false when there is none. */
bool rt_library_find(const struct rt_library *library, struct strbuf *out_path);

/* The path of a tool such as "ptxas"; false when there is none. */
bool rt_tool_find(const char *name, struct strbuf *out_path);

/* The toolkit's include folder (cuda_fp16.h); false when there is none. */
bool rt_toolkit_include(struct strbuf *out_path);

/* Appends path, size and time of a file: changes when the file does.  Opening
 * the library to ask its version takes longer than a warm start may. */
void rt_file_identity(const char *path, struct strbuf *out);

#endif
