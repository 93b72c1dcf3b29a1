/* The shadow of shared memory: who wrote and read each word, and when.
 *
 * The race check is happens-before with vector clocks, in the manner of
 * FastTrack (Flanagan and Freund, PLDI 2009), with a warp as the thread: a word
 * keeps the epoch (agent, clock) of its last write and, for each warp, the
 * clock of its last read since.  An access is ordered after an epoch when the
 * warp's vector clock has reached it.  Barriers and mbarriers carry clocks from
 * warp to warp.  Lanes of one warp are not checked against each other, but a
 * lane that arrives alone speaks for the others only up to the last
 * bar.warp.sync or barrier of the whole warp.
 *
 * Work in flight has the clock infinity, which no vector clock reaches: whoever
 * touches such a word did not wait.  The async proxy sees a generic write only
 * when a proxy fence came between: emu_warp.fenced is the vector clock of what
 * has been fenced.
 */
#include <string.h>

#include "emulator/access.h"

enum { WRITER_ASYNC = 0x80, WRITER_AGENT = 0x7f };

/* Bytes [address, address+size) within a word, as a nibble. */
static inline uint32_t word_nibble(uint32_t word, uint32_t address,
                                   uint32_t size) {
    uint32_t first = word * 4, last = first + 4, end = address + size;
    uint32_t nibble = 15;
    if (address > first)
        nibble &= 15u << (address - first);
    if (end < last)
        nibble &= 15u >> (last - end);
    return nibble;
}

static const char *agent_name(struct emu_cta *cta, int agent, uint32_t clock) {
    const char *in_flight = clock == EMU_CLOCK_IN_FLIGHT ? " (in flight)" : "";
    if (agent == EMU_AGENT_ASYNC)
        return arena_printf(cta->arena, "an asynchronous copy%s", in_flight);
    return arena_printf(cta->arena, "warp %d%s", agent, in_flight);
}

/* In flight: nobody waited.  Otherwise nothing orders the two accesses. */
static void report_conflict(struct access *a, int lane, uint32_t word,
                            bool write, const char *what, int agent,
                            uint32_t clock) {
    struct emu_cta *cta = a->warp->cta;
    enum emu_report_kind kind = clock == EMU_CLOCK_IN_FLIGHT
                                    ? EMU_REPORT_ASYNC_IN_FLIGHT
                                    : EMU_REPORT_RACE;
    if (check_on(cta, kind))
        emu_report_add(
            a->warp, a->inst, kind, 1u << lane, word * 4u,
            "%s shared memory that %s by %s with no synchronisation between",
            write ? "writes" : "reads", what, agent_name(cta, agent, clock));
}

/* Once reported, a word is made to look ordered, or every later access repeats
 * it. */
static void check_last_write(struct access *a, int lane, uint32_t word,
                             uint32_t nibble, bool write) {
    struct shared_shadow *s = &a->warp->cta->shadow;
    int agent = s->writer[word] & WRITER_AGENT;
    uint32_t clock = s->write_clock[word];
    if (clock > a->warp->clock.at[agent] && (s->bytes[word] >> 4 & nibble))
        report_conflict(a, lane, word, write, "is written", agent, clock);
    if (!a->async_proxy || (s->writer[word] & WRITER_ASYNC) || clock == 0 ||
        clock == EMU_CLOCK_IN_FLIGHT || clock <= a->warp->fenced.at[agent])
        return;
    if (check_on(a->warp->cta, EMU_REPORT_PROXY))
        emu_report_add(a->warp, a->inst, EMU_REPORT_PROXY, 1u << lane,
                       word * 4u,
                       "warp %d wrote it through the generic proxy; "
                       "fence.proxy.async is missing "
                       "between",
                       agent);
}

/* Notes the read also where it was a fault: a write may conflict with it. */
static void read_word(struct access *a, int lane, uint32_t word,
                      uint32_t nibble) {
    struct emu_cta *cta = a->warp->cta;
    struct shared_shadow *s = &cta->shadow;
    bool unordered = s->write_clock[word] >
                     a->warp->clock.at[s->writer[word] & WRITER_AGENT];
    if ((s->bytes[word] & nibble) != nibble && !unordered &&
        check_on(cta, EMU_REPORT_UNINITIALISED_MEMORY)) {
        emu_report_add(a->warp, a->inst, EMU_REPORT_UNINITIALISED_MEMORY,
                       1u << lane, word * 4u,
                       "shared memory that was never written");
        s->bytes[word] |= (uint8_t)nibble;
    }
    if (a->is_sync)
        return;
    if (unordered || a->async_proxy)
        check_last_write(a, lane, word, nibble, false);
    s->readers[word] |= 1u << a->warp->index;
    s->read_clock[(size_t)a->warp->index * cta->shared_words + word] = a->stamp;
}

/* A write must come after all reads since the last write. */
static void check_readers(struct access *a, int lane, uint32_t word) {
    struct emu_cta *cta = a->warp->cta;
    struct shared_shadow *s = &cta->shadow;
    for (uint32_t left = s->readers[word]; left; left &= left - 1) {
        int reader = __builtin_ctz(left);
        uint32_t clock =
            s->read_clock[(size_t)reader * cta->shared_words + word];
        if (clock > a->warp->clock.at[reader])
            report_conflict(a, lane, word, true, "is read", reader, clock);
    }
}

/* An ordered write stands for all accesses in front of it. */
static void write_word(struct access *a, int lane, uint32_t word,
                       uint32_t nibble) {
    struct shared_shadow *s = &a->warp->cta->shadow;
    uint8_t writer = (uint8_t)(a->agent | (a->async_proxy ? WRITER_ASYNC : 0));
    if (!a->is_sync) {
        int last = s->writer[word] & WRITER_AGENT;
        if (s->write_clock[word] > a->warp->clock.at[last] || a->async_proxy)
            check_last_write(a, lane, word, nibble, true);
        if (s->readers[word])
            check_readers(a, lane, word);
    }
    bool same = s->writer[word] == writer && s->write_clock[word] == a->stamp;
    uint32_t written = same ? (s->bytes[word] >> 4) | nibble : nibble;
    s->bytes[word] = (uint8_t)((s->bytes[word] & 15) | nibble | written << 4);
    s->writer[word] = writer;
    s->write_clock[word] = a->stamp;
    s->readers[word] = 0;
}

/* An ordinary write into a live mbarrier destroys it. */
static void check_mbarriers(struct access *a, int lane, uint32_t address,
                            uint32_t size) {
    const struct emu_cta *cta = a->warp->cta;
    for (size_t i = 0; i < cta->mbarriers.count; i++) {
        const struct mbarrier *b = &cta->mbarriers.data[i];
        if (b->live && address < b->address + 8 &&
            b->address < address + size && check_on(cta, EMU_REPORT_BARRIER))
            emu_report_add(a->warp, a->inst, EMU_REPORT_BARRIER, 1u << lane,
                           address,
                           "overwrites the live mbarrier at shared "
                           "address %u",
                           b->address);
    }
}

uint8_t *emu_access_shared_range(struct access *a, int lane, uint32_t address,
                                 uint32_t size, uint32_t align, bool write) {
    struct emu_cta *cta = a->warp->cta;
    if (address > cta->shared_bytes || size > cta->shared_bytes - address) {
        emu_report_add(a->warp, a->inst, EMU_REPORT_OUT_OF_BOUNDS, 1u << lane,
                       address,
                       "%s %u bytes of shared memory, which has %u bytes",
                       write ? "writes" : "reads", size, cta->shared_bytes);
        return NULL;
    }
    if ((address & (align - 1)) && check_on(cta, EMU_REPORT_MISALIGNED))
        emu_report_add(a->warp, a->inst, EMU_REPORT_MISALIGNED, 1u << lane,
                       address, "the address is not a multiple of %u", align);
    if (write && !a->is_sync)
        check_mbarriers(a, lane, address, size);
    if (a->is_sync)
        clock_acquire(a->warp, &cta->atomic_clock, &cta->atomic_fenced);
    else if (!a->async_proxy)
        a->warp->lanes_apart |= 1u << lane;
    for (uint32_t word = address / 4; word * 4 < address + size; word++) {
        uint32_t nibble = word_nibble(word, address, size);
        if (write)
            write_word(a, lane, word, nibble);
        else
            read_word(a, lane, word, nibble);
    }
    if (a->is_sync)
        clock_release(a->warp, &cta->atomic_clock, &cta->atomic_fenced);
    return cta->shared + address;
}

void emu_access_shared_landed(struct emu_cta *cta, uint32_t address,
                              uint32_t size, int agent, uint32_t stamp) {
    struct shared_shadow *s = &cta->shadow;
    for (uint32_t word = address / 4; word * 4 < address + size; word++) {
        if (s->write_clock[word] != EMU_CLOCK_IN_FLIGHT ||
            (s->writer[word] & WRITER_AGENT) != agent)
            continue; /* overwritten meanwhile, which was reported */
        s->write_clock[word] = stamp;
    }
}

void emu_access_shared_was_read(struct emu_warp *warp, uint32_t address,
                                uint32_t size) {
    uint32_t *clock = warp->cta->shadow.read_clock +
                      (size_t)warp->index * warp->cta->shared_words;
    for (uint32_t word = address / 4; word * 4 < address + size; word++)
        if (clock[word] == EMU_CLOCK_IN_FLIGHT)
            clock[word] = warp->clock.at[warp->index];
}
