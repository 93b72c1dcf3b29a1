/* `attnc -o x.h`: one C header with the cubin and a typed launcher, for
 * programs that ship a kernel and want to link libcuda only. */
#ifndef ATTN_RUNTIME_HEADER_WRITER_H
#define ATTN_RUNTIME_HEADER_WRITER_H

#include <stddef.h>

#include "support/kernel_info.h"
#include "support/strbuf.h"

/* Appends the header for `info` (checked) and its cubin.  It includes <cuda.h>,
 * compiles as C99 and C++11, and defines only names that start with the
 * attention's name or attn_.  `origin` is the spec's file name for the head
 * comment. */
void header_write(const struct kernel_info *info, const void *cubin,
                  size_t cubin_size, const char *origin, struct strbuf *out);

#endif
