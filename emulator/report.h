/* Collecting reports of a CTA and of a launch. */
#ifndef ATTN_EMULATOR_REPORT_H
#define ATTN_EMULATOR_REPORT_H

#include "emulator/machine.h"

/* A copy whose texts live in `arena`. */
struct emu_report emu_report_copy(struct arena *arena,
                                  const struct emu_report *report);

/* Adds every counter. */
void emu_counters_add(struct emu_counters *into,
                      const struct emu_counters *from);

/* Reports a deadlock with the position of every warp and what it waits for. */
void emu_report_deadlock(struct emu_cta *cta, const char *why);

#endif
