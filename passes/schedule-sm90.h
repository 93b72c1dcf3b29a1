/* The planner's half for targets with warp roles, and what both halves use. */
#ifndef ATTN_PASSES_SCHEDULE_SM90_H
#define ATTN_PASSES_SCHEDULE_SM90_H

#include "passes/schedule.h"
#include "passes/target_limits.h"

/* True for head dimensions that TMA copies as whole swizzled panels (multiples
 * of 16) and code without calls, at which ptxas serialises wgmma.  Others run
 * the schedule of sm_80. */
bool schedule_has_roles(const struct schedule_problem *problem,
                        const struct target_limits *target);

/* Like schedule_resolve, for a producer warp and consumer warpgroups of 64
 * query rows. `pinned` may be NULL. */
bool schedule_resolve_roles(const struct schedule_problem *problem,
                            const struct target_limits *target,
                            const struct schedule *pinned,
                            struct diag_sink *diags,
                            struct schedule_plan *out_plan);

/* setmaxnreg of a consumer for that many consumers.  `searches`: the producer
 * classifies blocks, which takes more registers than copying. */
int schedule_consumer_registers(int consumers, bool searches);
/* setmaxnreg of the producer, likewise. */
int schedule_producer_registers(int consumers, bool searches);

/* ---- Both halves (schedule.c) ---- */

/* True where the author pinned the tile, stages, consumers or overlap. */
bool schedule_shape_is_pinned(const struct schedule *pinned);

/* The query heads that a tile may hold, 0: packing is not for this problem.
 * `rows`: of a program, which must hold whole groups. */
int schedule_pack_gqa(const struct schedule_problem *problem,
                      const struct schedule *pinned, int rows);

/* Takes over the pinned order (linear or not), rescale_threshold and
 * exp_poly. */
void schedule_take_pins(const struct schedule *pinned,
                        struct schedule_plan *plan);

/* Error: the plan's shared memory, term by term, exceeds the target's.  `rest`
 * names what `shared_list` counts. */
void schedule_refuse_shared(const struct target_limits *target,
                            const struct schedule_plan *plan, const char *rest,
                            struct source_range where, struct diag_sink *diags);

/* Note: `near` is the nearest schedule that fits. */
void schedule_note_fit(const struct schedule_plan *near,
                       struct source_range where, struct diag_sink *diags);

#endif
