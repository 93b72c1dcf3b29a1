/* A timeline of one CTA as a Chrome trace (chrome://tracing, Perfetto). */
#ifndef ATTN_EMULATOR_TRACE_H
#define ATTN_EMULATOR_TRACE_H

#include "emulator/machine.h"

struct trace;

/* Starts the trace of a CTA into emu_options.trace. */
struct trace *emu_trace_create(struct emu_cta *cta);

/* An instruction is about to execute: advances the warp's clock and the
 * unit. */
void emu_trace_issue(struct trace *trace, struct emu_warp *warp,
                     const struct emu_inst *inst);

/* Cycle at which the copy engine has moved `bytes` when asked at `start`. */
uint64_t emu_trace_copy(struct trace *trace, uint64_t start, uint32_t bytes);

/* Cycle at which the tensor cores have done a wgmma of `flop` issued now. */
uint64_t emu_trace_wgmma(struct trace *trace, struct emu_warp *warp,
                         uint64_t flop);

/* Writes what is open and closes the JSON. */
void emu_trace_finish(struct trace *trace, struct emu_cta *cta);

#endif
