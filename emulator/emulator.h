/* Executes PTX text on the CPU and reports what hardware would not.
 *
 * One `struct emu_memory` is a device: global memory and the modules loaded
 * into it.  A launch runs a grid of one entry to its end and returns reports
 * and counters.  The result depends on the inputs and the seed only, never on
 * the number of host threads.
 *
 * What is executed and what is checked: docs/emulator.md.
 */
#ifndef ATTN_EMULATOR_EMULATOR_H
#define ATTN_EMULATOR_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct emu_memory;
struct emu_module;

/* Why a call failed, one or more lines without a newline at the end. */
struct emu_error {
    char text[1024];
};

/* ---- global memory ---------------------------------------------------- */

/* An empty device; the caller owns it and destroys it after its modules. */
struct emu_memory *emu_memory_create(void);
/* Frees all allocations; NULL is allowed. */
void emu_memory_destroy(struct emu_memory *memory);

/* `size` bytes of uninitialised global memory, aligned to 256 bytes and far
 * from every other allocation.  `name` (copied) appears in reports.  Returns
 * the device address, 0 when the host is out of memory. */
uint64_t emu_memory_allocate(struct emu_memory *memory, size_t size,
                             const char *name);

/* Frees what emu_memory_allocate returned; later accesses are out of bounds. */
void emu_memory_free(struct emu_memory *memory, uint64_t address);

/* Host to device; the bytes count as initialised.  False: out of bounds. */
bool emu_memory_write(struct emu_memory *memory, uint64_t address,
                      const void *bytes, size_t size);

/* Device to host, initialised or not.  False: out of bounds. */
bool emu_memory_read(const struct emu_memory *memory, uint64_t address,
                     void *bytes, size_t size);

/* Number of the bytes of [address, address+size) that were never written. */
size_t emu_memory_count_uninitialised(const struct emu_memory *memory,
                                      uint64_t address, size_t size);

/* ---- modules ---------------------------------------------------------- */

struct emu_source {
    const char *text; /* PTX, need not be NUL-terminated; borrowed until the
                         module's end */
    size_t length;
    const char *name; /* file name for messages */
};

/* Parses and links `count` PTX texts (more than one: `.extern .func` of one is
 * defined in another) and places their global variables in `memory`.  NULL on
 * error, with `file:line: error: …` in `out_error`. */
struct emu_module *emu_module_create(struct emu_memory *memory,
                                     const struct emu_source *sources,
                                     size_t count, struct emu_error *out_error);
/* Frees the module, not its variables in the memory; NULL is allowed. */
void emu_module_destroy(struct emu_module *module);

/* Bytes of the parameter buffer of `entry`, or -1 when there is no such
 * entry. */
long emu_module_param_bytes(const struct emu_module *module, const char *entry);

/* ---- reports ---------------------------------------------------------- */

/* Name, short text. */
#define EMU_REPORT_KINDS(X)                                                 \
    X(OUT_OF_BOUNDS, "out-of-bounds access")                                \
    X(MISALIGNED, "misaligned access")                                      \
    X(UNINITIALISED_REGISTER, "read of an uninitialised register")          \
    X(UNINITIALISED_MEMORY, "read of uninitialised memory")                 \
    X(ASYNC_IN_FLIGHT,                                                      \
      "asynchronous operation observed before it was waited for")           \
    X(PROXY, "generic-proxy write used by the async proxy without a fence") \
    X(RACE, "shared-memory data race")                                      \
    X(WGMMA_REGISTER, "register of a wgmma in flight touched")              \
    X(REGISTER_BUDGET, "more live registers than setmaxnreg leaves")        \
    X(DEADLOCK, "deadlock")                                                 \
    X(CONVERGENCE, "warp-wide instruction without its lanes")               \
    X(BARRIER, "misuse of a barrier")                                       \
    X(GRID_DEPENDENCY, "global memory touched before griddepcontrol.wait")  \
    X(INVALID, "invalid operand value")                                     \
    X(TRAP, "trap")

enum emu_report_kind {
#define X(name, text) EMU_REPORT_##name,
    EMU_REPORT_KINDS(X)
#undef X
        EMU_REPORT_KIND_COUNT,
};

/* The short text of a kind. */
const char *emu_report_kind_text(enum emu_report_kind kind);

struct emu_report {
    enum emu_report_kind kind;
    const char *file; /* PTX file and line */
    int line;
    const char
        *instruction;   /* its text, without guard of whitespace around it */
    const char *source; /* "x.attn:12:7", "" when the PTX does not say */
    uint32_t cta[3];
    int warp, lane;     /* of the first occurrence; -1: the whole CTA */
    uint64_t address;   /* 0 where the report is not about memory */
    uint64_t count;     /* occurrences at this instruction, in all CTAs */
    const char *detail; /* what was found, what was expected */
};

/* ---- counters --------------------------------------------------------- */

struct emu_counters {
    uint64_t instructions;      /* warp instructions */
    uint64_t lane_instructions; /* lanes that took part in them */
    uint64_t global_read_bytes,
        global_write_bytes; /* as asked for by the lanes */
    uint64_t global_read_sectors,
        global_write_sectors; /* 32-byte sectors per request */
    uint64_t global_unique_read_bytes,
        global_unique_write_bytes; /* each byte once a launch */
    uint64_t shared_read_bytes, shared_write_bytes;
    uint64_t shared_wavefronts; /* passes through the banks */
    uint64_t shared_conflicts;  /* passes beyond what the bytes need */
    uint64_t local_read_bytes, local_write_bytes;
    uint64_t async_copy_bytes; /* global to shared by cp.async and TMA */
    uint64_t mma_flop;         /* 2 per multiply-add */
    uint64_t mufu_lanes;       /* ex2 lg2 rcp rsqrt sqrt sin cos tanh */
    uint64_t fma_lanes;        /* f32 add, mul, fma */
    uint64_t half_lanes;    /* f16 and bf16 arithmetic, two per packed lane */
    uint64_t integer_lanes; /* integer and logic */
    uint64_t convert_lanes;
    uint64_t barriers; /* bar and mbarrier operations */
};

/* ---- launches --------------------------------------------------------- */

#define EMU_CHECK(kind) (1u << EMU_REPORT_##kind)
#define EMU_CHECK_ALL 0xffffffffu

struct emu_options {
    uint64_t seed;   /* order of warps, of asynchronous completions */
    int threads;     /* host threads; 0: one for each online core */
    uint32_t checks; /* EMU_CHECK(…) bits; accesses out of bounds are always
                        reported */
    bool count;      /* fill the counters */
    uint64_t max_instructions; /* warp instructions a CTA may take; 0: 2^36 */
    int max_reports;    /* different (kind, instruction) pairs kept; 0: 100 */
    FILE *trace;        /* Chrome trace of one CTA; NULL: none (borrowed) */
    uint32_t trace_cta; /* its linear index */
};

/* Seed 0, all checks, counters on. */
struct emu_options emu_options_default(void);

struct emu_launch {
    const char *entry;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared; /* bytes */
    const void *params;      /* laid out as the entry's .param list */
    size_t param_bytes;
};

struct emu_result {
    struct emu_report *reports; /* owned by the result */
    size_t report_count;
    struct emu_counters counters;
    double seconds; /* host time */
    void *storage;  /* behind the reports */
};

/* Runs the grid to its end.  False when it could not start (no such entry,
 * wrong block, parameters of another size …), with the reason; a kernel that
 * ran with faults returns true and reports.  `out_result` is to be destroyed
 * in either case. */
bool emu_launch(struct emu_module *module, const struct emu_launch *launch,
                const struct emu_options *options,
                struct emu_result *out_result, struct emu_error *out_error);
/* Frees the reports; harmless on a zeroed result. */
void emu_result_destroy(struct emu_result *result);

/* Writes a report as text, several lines. */
void emu_report_print(const struct emu_report *report, FILE *stream);

/* ---- tensor maps ------------------------------------------------------ */

/* The values of these enums are those of CUtensorMapDataType and kin. */
enum emu_tensor_type {
    EMU_TENSOR_UINT8,
    EMU_TENSOR_UINT16,
    EMU_TENSOR_UINT32,
    EMU_TENSOR_INT32,
    EMU_TENSOR_UINT64,
    EMU_TENSOR_INT64,
    EMU_TENSOR_FLOAT16,
    EMU_TENSOR_FLOAT32,
    EMU_TENSOR_FLOAT64,
    EMU_TENSOR_BFLOAT16,
    EMU_TENSOR_FLOAT32_FTZ,
    EMU_TENSOR_TFLOAT32,
    EMU_TENSOR_TFLOAT32_FTZ,
    EMU_TENSOR_TYPE_COUNT,
};

enum emu_tensor_swizzle {
    EMU_SWIZZLE_NONE,
    EMU_SWIZZLE_32B,
    EMU_SWIZZLE_64B,
    EMU_SWIZZLE_128B,
    EMU_SWIZZLE_COUNT,
};

/* Encodes a tiled tensor map, with the arguments and the restrictions of
 * cuTensorMapEncodeTiled: `extents` in elements, innermost first, `strides` in
 * bytes for axes 1 … rank-1, `box` and `element_strides` in elements.  The 128
 * bytes are the emulator's own encoding.  `nan_fill`: out-of-bounds elements of
 * floating types read as NaN instead of zero.  False with a message when the
 * driver would refuse. */
bool emu_tensor_map_encode(uint8_t out_map[128], enum emu_tensor_type type,
                           uint32_t rank, uint64_t address,
                           const uint64_t *extents, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *element_strides,
                           enum emu_tensor_swizzle swizzle, bool nan_fill,
                           struct emu_error *out_error);

#endif
