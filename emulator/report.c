/* Reports: where in the PTX, which lane, what was wrong. */
#include "emulator/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "support/strbuf.h"

const char *emu_report_kind_text(enum emu_report_kind kind) {
    static const char *const texts[EMU_REPORT_KIND_COUNT] = {
#define X(name, text) [EMU_REPORT_##name] = text,
        EMU_REPORT_KINDS(X)
#undef X
    };
    return texts[kind];
}

/* The slot of (kind, instruction), new or found; NULL when there are too
 * many. */
static struct report_slot *find_slot(struct emu_cta *cta,
                                     const struct emu_inst *inst,
                                     enum emu_report_kind kind, bool *out_new) {
    int32_t pc = (int32_t)(inst - cta->grid->module->insts.data);
    *out_new = false;
    for (size_t i = 0; i < cta->reports.count; i++) {
        struct report_slot *slot = &cta->reports.data[i];
        if (slot->pc == pc && slot->report.kind == kind)
            return slot;
    }
    if (cta->reports.count >= (size_t)cta->grid->options->max_reports)
        return NULL;
    *out_new = true;
    const struct emu_source *source = &cta->grid->module->sources[inst->source];
    struct emu_report report = {.kind = kind,
                                .file = source->name,
                                .line = inst->line,
                                .source = inst->origin,
                                .warp = -1,
                                .lane = -1};
    report.instruction =
        arena_strndup(cta->arena, inst->text, (size_t)inst->text_length);
    memcpy(report.cta, cta->id, sizeof report.cta);
    vec_push(cta->arena, &cta->reports,
             (struct report_slot){.report = report, .pc = pc});
    return &cta->reports.data[cta->reports.count - 1];
}

/* Counts a fault of `inst`; the slot to fill in where it is the first of its
 * kind there, with its detail, else NULL. */
static struct report_slot *first_slot(struct emu_cta *cta,
                                      const struct emu_inst *inst,
                                      enum emu_report_kind kind,
                                      const char *format, va_list args) {
    bool is_new;
    struct report_slot *slot = find_slot(cta, inst, kind, &is_new);
    if (!slot)
        return NULL;
    slot->report.count++;
    if (!is_new)
        return NULL;
    slot->report.detail = arena_vprintf(cta->arena, format, args);
    return slot;
}

void emu_report_add(struct emu_warp *warp, const struct emu_inst *inst,
                    enum emu_report_kind kind, uint32_t lanes, uint64_t address,
                    const char *format, ...) {
    va_list args;
    va_start(args, format);
    struct report_slot *slot = first_slot(warp->cta, inst, kind, format, args);
    va_end(args);
    if (!slot)
        return;
    slot->report.warp = warp->index;
    slot->report.lane = lanes ? __builtin_ctz(lanes) : -1;
    slot->report.address = address;
}

void emu_report_cta(struct emu_cta *cta, const struct emu_inst *inst,
                    enum emu_report_kind kind, const char *format, ...) {
    va_list args;
    va_start(args, format);
    first_slot(cta, inst, kind, format, args);
    va_end(args);
}

struct emu_report emu_report_copy(struct arena *arena,
                                  const struct emu_report *report) {
    struct emu_report copy = *report;
    copy.instruction = arena_strdup(arena, report->instruction);
    copy.detail = arena_strdup(arena, report->detail);
    copy.source = arena_strdup(arena, report->source);
    copy.file = arena_strdup(arena, report->file);
    return copy;
}

void emu_counters_add(struct emu_counters *into,
                      const struct emu_counters *from) {
    uint64_t *a = (uint64_t *)into;
    const uint64_t *b = (const uint64_t *)from;
    for (size_t i = 0; i < sizeof *into / sizeof *a; i++)
        a[i] += b[i];
}

/* ---- deadlock ---------------------------------------------------------- */

/* What a split waits for, with what is missing. */
static void describe_wait(struct emu_cta *cta, struct strbuf *out,
                          const struct emu_warp *warp, const struct split *s) {
    if (s->wait == WAIT_REGISTERS) {
        strbuf_printf(out,
                      "waits in setmaxnreg for %d registers a thread; the "
                      "CTA's pool has %d left",
                      warp->reg_wanted, emu_free_registers(cta));
    } else if (s->wait == WAIT_BARRIER) {
        const struct named_barrier *b = &cta->barriers[s->wait_object];
        strbuf_printf(
            out, "waits at barrier %u, where %u of %u threads have arrived",
            s->wait_object, b->arrived,
            b->whole ? 32u * (uint32_t)cta->alive_warps : b->expected);
    } else if (s->wait == WAIT_MBARRIER || s->wait == WAIT_POLL) {
        const struct mbarrier *b = emu_mbarrier_find(cta, s->wait_object);
        strbuf_printf(out,
                      "waits for the phase of parity %u of the mbarrier at "
                      "shared address "
                      "%u",
                      s->wait_parity, s->wait_object);
        if (b)
            strbuf_printf(
                out,
                " (phase %u, %u of %u arrivals missing, %lld bytes missing)",
                b->phase, b->pending, b->expected, (long long)b->tx);
    } else {
        strbuf_append(out, "runs");
    }
}

/* One line for each group of lanes. */
static void describe_warp(struct emu_cta *cta, struct strbuf *out,
                          const struct emu_warp *warp) {
    const struct emu_module *module = cta->grid->module;
    if (!warp->alive) {
        strbuf_printf(out, "\n  warp %d: exited", warp->index);
        return;
    }
    for (int i = 0; i < warp->split_count; i++) {
        const struct split *s = &warp->splits[i];
        if (!s->in_use || s->wait == WAIT_CHILDREN || !(s->mask & warp->alive))
            continue;
        const struct emu_inst *inst =
            &module->insts.data[s->pc < 0 ? 0 : s->pc];
        strbuf_printf(out,
                      "\n  warp %d lanes 0x%08x: %s:%d%s%s%s: ", warp->index,
                      s->mask & warp->alive, module->sources[inst->source].name,
                      inst->line, inst->origin[0] ? " (" : "", inst->origin,
                      inst->origin[0] ? ")" : "");
        describe_wait(cta, out, warp, s);
    }
}

/* The instruction of the first warp that is left, to hang the report on. */
static const struct emu_inst *first_position(struct emu_cta *cta) {
    const struct emu_module *module = cta->grid->module;
    for (int w = 0; w < cta->warp_count; w++) {
        const struct emu_warp *warp = &cta->warps[w];
        for (int i = 0; warp->alive && i < warp->split_count; i++)
            if (warp->splits[i].in_use &&
                warp->splits[i].wait != WAIT_CHILDREN &&
                (warp->splits[i].mask & warp->alive) && warp->splits[i].pc >= 0)
                return &module->insts.data[warp->splits[i].pc];
    }
    return &module->insts.data[cta->grid->entry->first];
}

void emu_report_deadlock(struct emu_cta *cta, const char *why) {
    if (!check_on(cta, EMU_REPORT_DEADLOCK))
        return;
    struct strbuf text;
    strbuf_init(&text, cta->arena);
    strbuf_append(&text, why);
    for (int w = 0; w < cta->warp_count; w++)
        describe_warp(cta, &text, &cta->warps[w]);
    emu_report_cta(cta, first_position(cta), EMU_REPORT_DEADLOCK, "%s",
                   strbuf_text(&text));
}

void emu_report_print(const struct emu_report *r, FILE *stream) {
    fprintf(stream, "%s:%d: %s\n    %s\n", r->file, r->line,
            emu_report_kind_text(r->kind), r->instruction);
    fprintf(stream, "  %s\n  CTA (%u, %u, %u)", r->detail, r->cta[0], r->cta[1],
            r->cta[2]);
    if (r->warp >= 0)
        fprintf(stream, ", warp %d", r->warp);
    if (r->lane >= 0)
        fprintf(stream, ", lane %d", r->lane);
    if (r->address)
        fprintf(stream, ", address 0x%llx", (unsigned long long)r->address);
    if (r->count > 1)
        fprintf(stream, ", %llu times", (unsigned long long)r->count);
    if (r->source[0])
        fprintf(stream, "\n  from %s", r->source);
    fputc('\n', stream);
}
