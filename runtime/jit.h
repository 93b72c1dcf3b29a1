/* PTX text to a cubin, with CUDA C++ device functions linked in.
 *
 * In process through nvJitLink; without it through the ptxas program.  The
 * third way, the driver's own compiler, is taken by whoever loads the module:
 * it needs a GPU and gives no file. */
#ifndef ATTN_RUNTIME_JIT_H
#define ATTN_RUNTIME_JIT_H

#include "runtime/status.h"
#include "support/strbuf.h"

/* A CUDA C++ file of an `extern` declaration; borrowed. */
struct rt_cuda_source {
    const char *path; /* shown in NVRTC's messages; its folder is searched for
                         includes */
    const char *text; /* ends in NUL */
};

struct rt_jit_input {
    const char *name; /* for messages */
    const char *ptx;
    size_t ptx_size; /* without a final NUL */
    const struct rt_cuda_source *sources;
    size_t source_count;
    const char *arch; /* "sm_90" */
};

/* Assembles and links.  The caller frees *out_cubin with free().  ATTN_TOOLKIT
 * with the tool's log when it refuses the code; ATTN_UNAVAILABLE, naming what
 * is missing, when this machine has no way (also: a toolkit older than the
 * architecture). */
struct attn_status *rt_jit_cubin(const struct rt_jit_input *input,
                                 void **out_cubin, size_t *out_size);

/* The two ways by themselves.  ptxas cannot link sources. */
struct attn_status *rt_jit_nvjitlink(const struct rt_jit_input *input,
                                     void **out_cubin, size_t *out_size);
/* See rt_jit_nvjitlink. */
struct attn_status *rt_jit_ptxas(const struct rt_jit_input *input,
                                 void **out_cubin, size_t *out_size);

/* Compiles one CUDA C++ file to relocatable PTX for `arch` ("sm_80"); the text
 * is appended.  Errors show that file's lines.  Also what the emulator
 * links. */
struct attn_status *rt_nvrtc_compile(const struct rt_cuda_source *source,
                                     const char *arch, struct strbuf *out_ptx);

/* Appends what identifies the assembler of this machine, without opening it
 * (part of cache keys). */
void rt_jit_identity(struct strbuf *out);

#endif
