/* Prints kernels as PTX text. */
#ifndef ATTN_BACKENDS_PTX_EMIT_H
#define ATTN_BACKENDS_PTX_EMIT_H

#include "backends/ptx/inst.h"
#include "backends/ptx/target.h"
#include "support/strbuf.h"

/* Lowest `.version` (times ten) for the target and every instruction of the
 * kernels. */
int ptx_isa_needed(const struct ptx_target *target,
                   struct ptx_kernel *const *kernels, size_t count);

/* Appends `.version`, `.target`, `.address_size` and, when `shared_align` is
 * not 0, the declaration of the dynamic shared memory, `smem`, with that
 * alignment. */
void ptx_emit_head(struct strbuf *out, const struct ptx_target *target, int isa,
                   int shared_align);

/* What is called `name` in the kernel's text, for a message; NULL: nothing.
 * Registers have names of their own. */
const char *ptx_name_taken(const struct ptx_kernel *kernel, const char *name);

/* Appends the declarations of the device functions that the kernels call, each
 * once. */
void ptx_emit_externs(struct strbuf *out, struct ptx_kernel *const *kernels,
                      size_t count);

/* Appends one entry: comment, parameters, registers, instructions. */
void ptx_emit_kernel(struct strbuf *out, const struct ptx_kernel *kernel);

/* Appends one instruction (or comment, or label) with its line end. */
void ptx_emit_inst(struct strbuf *out, const struct ptx_kernel *kernel,
                   const struct ptx_inst *inst);

#endif
