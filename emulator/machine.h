/* The running machine: grid, CTA, warp, and the splits of a diverged warp.
 *
 * A warp is a tree of splits.  A split runs a set of lanes from `pc` until it
 * reaches `reconverge`; at a divergent branch it waits for the children that it
 * makes, and goes on at the branch's immediate post-dominator with the lanes
 * that are still alive.  A call is the same with one child.  Only leaves run,
 * and when one waits, another may run: lanes of one warp that wait for each
 * other make progress, as on hardware since Volta.
 */
#ifndef ATTN_EMULATOR_MACHINE_H
#define ATTN_EMULATOR_MACHINE_H

#include "emulator/memory.h"
#include "emulator/program.h"
#include "support/arena.h"

enum {
    EMU_MAX_WARPS = 32,
    EMU_AGENT_ASYNC = 32, /* agent of TMA writes in vector clocks */
    EMU_AGENTS = 33,
    EMU_MAX_SPLITS = 72,
    EMU_NAMED_BARRIERS = 16,
};

#define EMU_CLOCK_IN_FLIGHT 0xffffffffu

/* What each agent has done, as far as the owner knows. */
struct vector_clock {
    uint32_t at[EMU_AGENTS];
};

union lane32 {
    uint32_t u[EMU_LANES];
    int32_t s[EMU_LANES];
    float f[EMU_LANES];
};

union lane64 {
    uint64_t u[EMU_LANES];
    int64_t s[EMU_LANES];
    double f[EMU_LANES];
};

enum wait_kind {
    WAIT_NONE,
    WAIT_CHILDREN, /* of a divergent branch or call */
    WAIT_BARRIER,
    WAIT_MBARRIER, /* try_wait: retried when the phase completes */
    WAIT_CLUSTER,  /* barrier.cluster.wait */
    WAIT_REGISTERS, /* setmaxnreg.inc, until others have given some back */
    WAIT_POLL, /* test_wait or a poll of memory failed: retried when all else
                  waits */
};

struct split {
    int32_t pc, reconverge;
    uint32_t mask;
    int32_t parent; /* -1: the warp's root */
    int32_t children;
    enum wait_kind wait;
    uint32_t wait_object; /* barrier number or shared address */
    uint32_t wait_parity; /* of a phase; result of a barrier's reduction */
    bool in_use;
    bool woken; /* runs its waiting instruction a second time */
};

/* One cp.async of a warp whose lanes have not all waited for it. */
struct async_copy {
    uint32_t lanes;
    uint32_t shared[EMU_LANES];
    uint64_t global[EMU_LANES];
    uint8_t bytes[EMU_LANES];   /* copied; the rest up to `size` is zero */
    uint32_t groups[EMU_LANES]; /* of each lane, when it was issued */
    uint8_t size;
    const struct emu_inst *inst;
};

struct emu_cta;
struct wgmma_op;

struct emu_warp {
    struct emu_cta *cta;
    const uint8_t *constants;
    uint8_t *regs;
    uint32_t *init; /* initialised lanes of each register */
    uint8_t
        *reg_flight; /* uses of each register by wgmma in flight; see wgmma.c */
    int index;
    uint32_t alive; /* lanes that have not exited */
    uint32_t carry;
    int32_t current; /* split that runs */
    int32_t split_count;
    struct split splits[EMU_MAX_SPLITS];
    struct vector_clock clock;     /* what the warp knows */
    struct vector_clock fenced;    /* of it, what the async proxy sees */
    uint32_t lanes_apart; /* with shared accesses since the lanes last met */
    uint32_t lanes_clock; /* epoch that ended then */
    uint8_t *local, *local_shadow; /* lane-major, module->local_bytes each */
    VEC(struct async_copy) copies;
    uint32_t copy_group[EMU_LANES];
    VEC(struct wgmma_op) wgmma;
    uint32_t wgmma_group;
    bool wgmma_fenced;        /* it has executed a wgmma.fence */
    VEC(struct bulk_op) bulk; /* TMA stores not yet waited for */
    uint32_t bulk_group;
    uint32_t grids_complete; /* lanes that have executed griddepcontrol.wait */
    uint32_t cluster_phase; /* at its last barrier.cluster.arrive */
    int32_t reg_budget;     /* of setmaxnreg, 0: none */
    int32_t reg_wanted;     /* by a setmaxnreg.inc that waits */
    uint64_t time;          /* of the timeline, cycles */
    uint64_t *reg_ready;    /* timeline: cycle when a register is there */
    uint64_t instructions;
};

struct named_barrier {
    uint32_t arrived, expected; /* threads; expected 0: no phase is open */
    bool whole;                 /* expects every thread of the CTA */
    struct vector_clock clock, fenced;
    uint64_t time;
    uint32_t reduce_and, reduce_or, reduce_popc;
};

/* An initialised mbarrier object. */
struct mbarrier {
    uint32_t address;
    bool live,
        fenced; /* fenced: its initialisation is visible to the async proxy */
    uint32_t expected, pending, phase;
    int64_t tx;
    struct vector_clock arriving, released;
    struct vector_clock arriving_fenced, released_fenced;
    uint64_t arriving_time, released_time;
};

/* Shadow of shared memory, one entry for each 4 bytes; see shadow.c. */
struct shared_shadow {
    uint8_t
        *bytes; /* low nibble: initialised; high: written by the last writer */
    uint8_t *writer; /* agent; bit 7: through the async proxy */
    uint32_t *write_clock;
    uint32_t *readers;    /* warps that read since the last write */
    uint32_t *read_clock; /* [warp][word] */
};

struct pending_copy;

struct emu_cta {
    struct emu_grid *grid;
    uint32_t id[3], linear;
    int warp_count;
    struct emu_warp *warps;
    uint8_t *shared;
    uint32_t shared_bytes, shared_words;
    struct shared_shadow shadow;
    struct named_barrier barriers[EMU_NAMED_BARRIERS];
    VEC(struct mbarrier) mbarriers;
    VEC(struct pending_copy) pending; /* TMA loads in flight */
    uint32_t async_clock;
    struct vector_clock atomic_clock,
        atomic_fenced; /* of shared atomics and volatile */
    uint32_t cluster_arrived, cluster_phase; /* barrier.cluster */
    struct vector_clock cluster_clock, cluster_fenced, cluster_released,
        cluster_released_fenced;
    uint64_t random;
    bool late;   /* complete asynchronous work only when nothing else runs */
    bool failed; /* stop: deadlock, trap, limit */
    int alive_warps;
    int finished;
    uint64_t steps;      /* warp instructions */
    uint64_t idle_polls; /* rounds in which every warp only polled */
    uint64_t unit_lanes[EMU_UNIT_COUNT];
    struct emu_counters counters;
    struct arena *arena; /* of the CTA: async queues, reports' details */
    VEC(struct report_slot) reports;
    struct trace *trace; /* NULL unless this CTA is traced */
};

struct emu_grid {
    const struct emu_module *module;
    const struct emu_function *entry;
    const struct emu_launch *launch;
    const struct emu_options *options;
    struct emu_memory *memory;
    uint8_t *params;
    uint32_t threads;      /* of a CTA */
    uint32_t shared_bytes; /* static and dynamic */
    uint64_t cta_count;
    int32_t register_count;
};

struct report_slot {
    struct emu_report report;
    int32_t pc;
};

/* A TMA load (or cp.async.bulk) on its way into shared memory. */
struct pending_copy {
    void (*complete)(struct emu_cta *cta, struct pending_copy *copy);
    const struct emu_inst *inst;
    int warp;
    uint32_t shared, mbarrier, bytes;
    uint64_t global;
    uint8_t map[128];
    int32_t coordinates[5];
    uint32_t clock;
    uint64_t ready; /* timeline */
};

/* A TMA store whose source is still being read. */
struct bulk_op {
    const struct emu_inst *inst;
    uint32_t group, shared, bytes;
    uint64_t global;
    uint8_t map[128];
    int32_t coordinates[5];
};

/* A wgmma issued and not yet waited for. */
struct wgmma_op {
    const struct emu_inst *inst;
    uint32_t group;
    bool accumulate;
    uint64_t a, b; /* descriptors */
    uint64_t done; /* timeline */
};

/* ---- reports (report.c) -------------------------------------------------- */

/* Notes a fault of `inst` for the lowest lane of `lanes`; the same kind at the
 * same instruction is counted, not repeated. */
void emu_report_add(struct emu_warp *warp, const struct emu_inst *inst,
                    enum emu_report_kind kind, uint32_t lanes, uint64_t address,
                    const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* The same for the whole CTA. */
void emu_report_cta(struct emu_cta *cta, const struct emu_inst *inst,
                    enum emu_report_kind kind, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static inline bool check_on(const struct emu_cta *cta,
                            enum emu_report_kind kind) {
    return (cta->grid->options->checks >> kind) & 1;
}

/* ---- scheduling (schedule.c) ------------------------------------------- */

/* The next number of the CTA's generator. */
uint64_t emu_cta_random(struct emu_cta *cta);

/* Splits of all warps that wait for `object` in this way run again. */
void emu_cta_wake(struct emu_cta *cta, enum wait_kind kind, uint32_t object);
/* Registers a thread left in the pool of the CTA, over all its warps
 * (setmaxnreg). */
int emu_free_registers(const struct emu_cta *cta);

/* The running split branches: `taken` lanes to `target`, the rest go on. */
void emu_warp_diverge(struct emu_warp *warp, uint32_t taken, int32_t target,
                      int32_t reconverge);

/* A child that runs `lanes` from `pc` until `end`; then the current split
 * executes its instruction again. */
void emu_warp_call(struct emu_warp *warp, uint32_t lanes, int32_t pc,
                   int32_t end);

/* The lanes are gone. */
void emu_warp_exit_lanes(struct emu_warp *warp, uint32_t lanes);

/* A warp has ended: barriers for the whole CTA expect fewer threads. */
void emu_barrier_warp_exits(struct emu_cta *cta);

/* Reports asynchronous work that the warp never waited for (async.c). */
void emu_warp_check_end(struct emu_warp *warp);

/* Runs up to `budget` instructions of the CTA; true when the CTA has
 * finished. */
bool emu_cta_run(struct emu_cta *cta, uint64_t budget);

static inline struct split *warp_split(struct emu_warp *warp) {
    return &warp->splits[warp->current];
}

/* ---- vector clocks ----------------------------------------------------- */

static inline void clock_join(struct vector_clock *into,
                              const struct vector_clock *from) {
    for (int i = 0; i < EMU_AGENTS; i++)
        into->at[i] = into->at[i] > from->at[i] ? into->at[i] : from->at[i];
}

/* The warp publishes what it did to `clock`, then starts a new epoch. */
static inline void clock_release(struct emu_warp *warp,
                                 struct vector_clock *clock,
                                 struct vector_clock *fenced) {
    clock_join(clock, &warp->clock);
    clock_join(fenced, &warp->fenced);
    warp->clock.at[warp->index]++;
}

/* All lanes are here and order their memory accesses. */
static inline void clock_lanes_meet(struct emu_warp *warp) {
    warp->lanes_apart = 0;
    warp->lanes_clock = warp->clock.at[warp->index]++;
}

/* The same for some lanes.  What other lanes did since they last met is not
 * theirs to publish. */
static inline void clock_release_lanes(struct emu_warp *warp, uint32_t lanes,
                                       struct vector_clock *clock,
                                       struct vector_clock *fenced) {
    uint32_t now = warp->clock.at[warp->index];
    if (warp->lanes_apart & ~lanes)
        warp->clock.at[warp->index] = warp->lanes_clock;
    clock_join(clock, &warp->clock);
    clock_join(fenced, &warp->fenced);
    warp->clock.at[warp->index] = now + 1;
}

static inline void clock_acquire(struct emu_warp *warp,
                                 const struct vector_clock *clock,
                                 const struct vector_clock *fenced) {
    clock_join(&warp->clock, clock);
    clock_join(&warp->fenced, fenced);
}

/* ---- mbarriers (mbarrier.c) -------------------------------------------- */

/* The live mbarrier at a shared address, or NULL. */
struct mbarrier *emu_mbarrier_find(struct emu_cta *cta, uint32_t address);

/* The mbarrier, or NULL after a report that there is none. */
struct mbarrier *emu_mbarrier_get(struct emu_warp *warp,
                                  const struct emu_inst *inst, uint32_t active,
                                  uint32_t address);

/* `count` arrivals of `lanes` of a warp, with release; `together`: all lanes of
 * the instruction. */
void emu_mbarrier_arrive(struct emu_warp *warp, const struct emu_inst *inst,
                         struct mbarrier *barrier, uint32_t lanes,
                         uint32_t together, uint32_t count);

/* Ends the TMA stores of a warp that exits (tma.c). */
void emu_bulk_finish(struct emu_warp *warp);

/* `bytes` of an asynchronous copy have arrived; completes the phase when
 * due. */
void emu_mbarrier_complete_tx(struct emu_cta *cta, struct mbarrier *barrier,
                              uint32_t bytes, uint32_t async_clock);

/* Reports registers of the instruction that a wgmma in flight uses
 * (wgmma.c). */
void emu_wgmma_check_registers(struct emu_warp *warp,
                               const struct emu_inst *inst, uint32_t active);

/* Notes registers written by other instructions, for the check of
 * wgmma.fence. */
void emu_wgmma_note_writes(struct emu_warp *warp, const struct emu_inst *inst);

/* Completes one asynchronous copy chosen by the seed; false when there is
 * none. */
bool emu_cta_complete_pending(struct emu_cta *cta);

/* Under the timeline: completes the first copy that is ready by `time`; false
 * when there is none. */
bool emu_cta_complete_before(struct emu_cta *cta, uint64_t time);

#endif
