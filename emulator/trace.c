/* The timeline: one CTA, timed by the rates of the units of its multiprocessor.
 *
 * A simple model of a throughput machine: a warp issues in order, one
 * instruction a cycle; an instruction starts when its operands are there and
 * its unit is free; a unit is busy for lanes / rate.  Each quarter of the
 * multiprocessor (warp number modulo 4) has a quarter of each unit.  Memory has
 * a latency and a rate, caches are not modelled.  Under the timeline the warp
 * with the earliest clock runs next, so that the interleaving is the timed
 * one. */
#include "emulator/trace.h"

#include "emulator/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUARTERS = 4, COPY_LATENCY = 600 };

struct unit_rate {
    const char *name;
    unsigned cycles;  /* a warp instruction keeps a quarter's unit busy */
    unsigned latency; /* until its result can be read */
};

/* Lanes per cycle and quarter: FMA 32, integer and conversion 16, MUFU 4. */
static const struct unit_rate rates[EMU_UNIT_COUNT] = {
    [EMU_UNIT_CONTROL] = {"control", 1, 1},
    [EMU_UNIT_INTEGER] = {"integer", 2, 4},
    [EMU_UNIT_FMA] = {"FMA", 1, 4},
    [EMU_UNIT_HALF] = {"half", 1, 4},
    [EMU_UNIT_MUFU] = {"MUFU", 8, 18},
    [EMU_UNIT_CONVERT] = {"convert", 2, 6},
    [EMU_UNIT_MEMORY] = {"memory", 4, 30},
    [EMU_UNIT_TENSOR] = {"tensor core", 0, 18},
    [EMU_UNIT_COPY] = {"copy engine", 4, 1},
};

/* A stretch of one unit by one warp, still growing. */
struct segment {
    enum emu_unit unit;
    int warp;
    uint64_t start, end;
    const char *origin;
    bool open;
};

struct trace {
    FILE *out;
    unsigned mma_flop_per_cycle; /* of a quarter */
    uint64_t free[QUARTERS][EMU_UNIT_COUNT];
    uint64_t copy_free;
    struct segment warps[EMU_MAX_WARPS], units[QUARTERS][EMU_UNIT_COUNT];
};

enum { TRACK_UNITS = 1000 };

static void name_track(struct trace *trace, int track, const char *name) {
    fprintf(trace->out,
            "{\"ph\":\"M\",\"pid\":0,\"tid\":%d,\"name\":\"thread_name\","
            "\"args\":{\"name\":\"%s\"}},\n",
            track, name);
}

static int unit_track(int quarter, enum emu_unit unit) {
    return TRACK_UNITS + (int)unit * QUARTERS + quarter;
}

/* Tracks are named first; units in the order in which they are shown. */
struct trace *emu_trace_create(struct emu_cta *cta) {
    struct trace *trace = calloc(1, sizeof *trace);
    char name[64];
    if (!trace)
        abort();
    trace->out = cta->grid->options->trace;
    /* Dense bf16: 2048 FLOP a cycle and multiprocessor on sm_80, 4096 on
     * sm_90. */
    trace->mma_flop_per_cycle =
        (cta->grid->module->sm >= 90 ? 4096u : 2048u) / QUARTERS;
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", trace->out);
    for (int w = 0; w < cta->warp_count; w++) {
        snprintf(name, sizeof name, "warp %d", w);
        name_track(trace, w, name);
    }
    static const enum emu_unit shown[] = {EMU_UNIT_TENSOR, EMU_UNIT_MUFU,
                                          EMU_UNIT_FMA};
    for (size_t u = 0; u < 3; u++)
        for (int q = 0; q < QUARTERS; q++) {
            snprintf(name, sizeof name, "%s %d", rates[shown[u]].name, q);
            name_track(trace, unit_track(q, shown[u]), name);
        }
    name_track(trace, unit_track(0, EMU_UNIT_COPY), "copy engine");
    return trace;
}

/* One complete event; a cycle is a microsecond of the display. */
static void write_event(struct trace *trace, int track, const char *name,
                        int warp, const char *origin, uint64_t start,
                        uint64_t end) {
    fprintf(trace->out,
            "{\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"name\":\"%s\",\"ts\":%llu,"
            "\"dur\":%llu,\"args\":{\"warp\":%d,\"source\":\"%s\"}},\n",
            track, name, (unsigned long long)start,
            (unsigned long long)(end - start), warp,
            strpbrk(origin, "\"\\") ? "" : origin);
}

static void close_segment(struct trace *trace, struct segment *s, int track) {
    if (s->open)
        write_event(trace, track, rates[s->unit].name, s->warp, s->origin,
                    s->start, s->end);
    s->open = false;
}

/* Neighbouring instructions of the same kind become one event. */
static void extend(struct trace *trace, struct segment *s, int track,
                   enum emu_unit unit, int warp, const char *origin,
                   uint64_t start, uint64_t end) {
    enum { MAX_GAP = 8 };
    bool same = s->open && s->unit == unit && s->warp == warp &&
                s->origin == origin && start <= s->end + MAX_GAP;
    if (!same) {
        close_segment(trace, s, track);
        *s = (struct segment){unit, warp, start, end, origin, true};
    }
    s->end = end > s->end ? end : s->end;
}

static uint64_t latest(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* FLOP of one warp's mma.sync, from its operand count (k16: 6 registers). */
static unsigned mma_cycles(const struct trace *trace,
                           const struct emu_inst *inst) {
    unsigned k = inst->src_count - inst->dst_count >= 6 ? 16 : 8;
    return 2u * 16 * 8 * k / trace->mma_flop_per_cycle;
}

static bool is_wgmma(const struct emu_inst *inst) {
    return inst->exec == exec_wgmma_ss || inst->exec == exec_wgmma_rs;
}

void emu_trace_issue(struct trace *trace, struct emu_warp *warp,
                     const struct emu_inst *inst) {
    int quarter = warp->index % QUARTERS;
    enum emu_unit unit = inst->unit;
    uint64_t *busy = &trace->free[quarter][unit], start = warp->time;
    for (int i = 0; i < inst->src_count; i++)
        if (inst->src[i].reg >= 0)
            start = latest(start, warp->reg_ready[inst->src[i].reg]);
    bool asynchronous = is_wgmma(inst);
    unsigned cycles = unit == EMU_UNIT_TENSOR && !asynchronous
                          ? mma_cycles(trace, inst)
                          : rates[unit].cycles;
    if (unit != EMU_UNIT_CONTROL && !asynchronous) {
        start = latest(start, *busy);
        *busy = start + cycles;
    }
    warp->time = start + 1;
    extend(trace, &trace->warps[warp->index], warp->index, unit, warp->index,
           inst->origin, start, start + (cycles ? cycles : 1));
    if (asynchronous)
        return;
    uint64_t ready = start + cycles + rates[unit].latency;
    for (int i = 0; i < inst->dst_count; i++)
        warp->reg_ready[inst->dst[i].reg] = ready;
    if (unit == EMU_UNIT_TENSOR || unit == EMU_UNIT_MUFU ||
        unit == EMU_UNIT_FMA)
        extend(trace, &trace->units[quarter][unit], unit_track(quarter, unit),
               unit, warp->index, inst->origin, start, start + cycles);
}

uint64_t emu_trace_copy(struct trace *trace, uint64_t start, uint32_t bytes) {
    enum { BYTES_PER_CYCLE = 32 };
    uint64_t begin = latest(start, trace->copy_free);
    trace->copy_free = begin + bytes / BYTES_PER_CYCLE;
    write_event(trace, unit_track(0, EMU_UNIT_COPY), "copy", -1, "", begin,
                trace->copy_free);
    return trace->copy_free + COPY_LATENCY;
}

uint64_t emu_trace_wgmma(struct trace *trace, struct emu_warp *warp,
                         uint64_t flop) {
    int quarter = warp->index % QUARTERS;
    uint64_t *busy = &trace->free[quarter][EMU_UNIT_TENSOR];
    uint64_t start = latest(warp->time, *busy),
             end = start + flop / trace->mma_flop_per_cycle;
    *busy = end;
    extend(trace, &trace->units[quarter][EMU_UNIT_TENSOR],
           unit_track(quarter, EMU_UNIT_TENSOR), EMU_UNIT_TENSOR, warp->index,
           "", start, end);
    return end + rates[EMU_UNIT_TENSOR].latency;
}

void emu_trace_finish(struct trace *trace, struct emu_cta *cta) {
    uint64_t end = 0;
    for (int w = 0; w < cta->warp_count; w++) {
        close_segment(trace, &trace->warps[w], w);
        end = latest(end, cta->warps[w].time);
    }
    for (int q = 0; q < QUARTERS; q++)
        for (int u = 0; u < EMU_UNIT_COUNT; u++)
            close_segment(trace, &trace->units[q][u],
                          unit_track(q, (enum emu_unit)u));
    fprintf(trace->out,
            "{\"ph\":\"i\",\"pid\":0,\"tid\":0,\"s\":\"g\",\"name\":\"end\","
            "\"ts\":%llu}]}\n",
            (unsigned long long)end);
    free(trace);
    cta->trace = NULL;
}
