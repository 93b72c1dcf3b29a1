/* The subcommands of attnc.  Each takes a session with parsed options and returns
 * the exit status. */
#ifndef ATTN_TOOLS_COMMANDS_H
#define ATTN_TOOLS_COMMANDS_H

#include "tools/session.h"

int command_compile(struct session *session); /* FILE -o OUT, --emit, --dump-all, --run-pass */
int command_check(struct session *session);   /* diagnostics only */
int command_fmt(struct session *session);     /* canonical formatting */
int command_explain(struct session *session); /* plan, account, launch, block map */
int command_run(struct session *session);     /* on the GPU, the emulator or the reference */
int command_bench(struct session *session);   /* timing on the GPU */

#endif
