/* Collecting reports of a CTA and of a launch. */
#ifndef ATTN_EMULATOR_REPORT_H
#define ATTN_EMULATOR_REPORT_H

#include "emulator/machine.h"

/* Reports a deadlock with the position of every warp and what it waits for. */
void emu_report_deadlock(struct emu_cta *cta, const char *why);

#endif
