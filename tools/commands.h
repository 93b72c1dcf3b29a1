/* The subcommands of attnc.  Each takes a session with parsed options and
 * returns the exit status. */
#ifndef ATTN_TOOLS_COMMANDS_H
#define ATTN_TOOLS_COMMANDS_H

#include "tools/session.h"

/* FILE -o OUT, --emit, --dump-all, --run-pass, --list-passes. */
int command_compile(struct session *session);

/* Diagnostics of every file. */
int command_check(struct session *session);

/* Canonical layout: printed, in place, or checked. */
int command_fmt(struct session *session);

/* Plan, account, launch parameters, block map, PTX. */
int command_explain(struct session *session);

/* One call on the GPU, the emulator or the reference. */
int command_run(struct session *session);

/* Timing on the GPU. */
int command_bench(struct session *session);

#endif
