/* A context: where the disk cache is, and the programs remembered in memory. */
#ifndef ATTN_RUNTIME_CONTEXT_H
#define ATTN_RUNTIME_CONTEXT_H

#include "runtime/program.h"

/* The disk cache's folder, NULL when it is off. */
const char *rt_context_folder(const struct attn_context *context);

/* A remembered program with one more reference, or NULL. */
struct attn_program *rt_context_find(struct attn_context *context,
                                     struct rt_key key);

/* Reads a program from the disk; NULL when it is not there or damaged.  Not
 * remembered. */
struct attn_program *rt_context_load(struct attn_context *context,
                                     struct rt_key key);

/* Remembers a program, with a reference of its own.  When another thread was
 * faster, `program` is ended and that thread's returned. */
struct attn_program *rt_context_remember(struct attn_context *context,
                                         struct attn_program *program);

#endif
