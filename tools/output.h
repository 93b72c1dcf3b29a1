/* What `attnc FILE -o OUT` writes: the kinds of output and how each is made
 * from PTX and kernel facts. */
#ifndef ATTN_TOOLS_OUTPUT_H
#define ATTN_TOOLS_OUTPUT_H

#include "compiler/compile.h"
#include "tools/session.h"

enum output_kind {
    OUTPUT_NONE,
    OUTPUT_MODULE, /* MLIR text after a stage */
    OUTPUT_PTX,
    OUTPUT_CUBIN,
    OUTPUT_HEADER, /* C header with the cubin and a launcher */
};

/* Kind by the extension of a path: .mlir .ptx .cubin .h; NONE for others. */
enum output_kind output_kind_of(const char *path);

/* OUT.EXT with a target put before the extension: OUT.sm_80.EXT. */
const char *output_path_for_target(struct arena *arena, const char *path,
                                   const char *target);

/* PTX with its facts, from a spec or from a module. */
struct output_code {
    const char *ptx;
    size_t ptx_length;
    const struct kernel_info *info;
    const struct source_file *const *extern_files; /* CUDA C++ to link */
    size_t extern_file_count;
    const char *origin; /* input file, for comments and messages */
};

/* Writes the code as PTX, cubin or header.  STATUS_MISSING where the machine
 * has no assembler, or no NVRTC for extern functions. */
int output_write_code(struct session *session, enum output_kind kind,
                      const char *path, const struct output_code *code);

#endif
