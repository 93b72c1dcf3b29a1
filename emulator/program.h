/* The decoded program: what the parser makes of PTX text and the executor runs.
 *
 * Everything is resolved: registers and constants are byte offsets, labels are
 * instruction indices, symbols are addresses, and each instruction points to
 * the function that executes it for all 32 lanes.
 */
#ifndef ATTN_EMULATOR_PROGRAM_H
#define ATTN_EMULATOR_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulator/emulator.h"
#include "support/arena.h"
#include "support/vec.h"

enum { EMU_LANES = 32 };

enum emu_type {
    EMU_TYPE_NONE,
#define T(name, class, bytes) EMU_TYPE_##name,
#include "emulator/types.def"
#undef T
    EMU_TYPE_COUNT,
};

enum emu_space {
    EMU_SPACE_GENERIC,
    EMU_SPACE_GLOBAL,
    EMU_SPACE_SHARED,
    EMU_SPACE_LOCAL,
    EMU_SPACE_CONST,
    EMU_SPACE_PARAM, /* of the kernel; of functions: local memory */
};

/* Generic addresses: windows of the other spaces.  Global addresses are
 * below. */
#define EMU_WINDOW_SHARED 0x7f0000000000u
#define EMU_WINDOW_LOCAL 0x7e0000000000u
#define EMU_WINDOW_PARAM 0x7d0000000000u
#define EMU_WINDOW_SIZE 0x10000000000u

/* Functional unit of an instruction, for counters and the timeline. */
enum emu_unit {
    EMU_UNIT_CONTROL,
    EMU_UNIT_INTEGER,
    EMU_UNIT_FMA,
    EMU_UNIT_HALF,
    EMU_UNIT_MUFU,
    EMU_UNIT_CONVERT,
    EMU_UNIT_MEMORY,
    EMU_UNIT_TENSOR,
    EMU_UNIT_COPY,
    EMU_UNIT_COUNT,
};

/* Suffixes that modify an instruction, as bits of emu_inst.mods. */
enum emu_mod {
    EMU_MOD_FTZ = 1 << 0,
    EMU_MOD_SAT = 1 << 1,
    EMU_MOD_RELU = 1 << 2,
    EMU_MOD_NAN = 1 << 3,
    EMU_MOD_WRAP = 1 << 4, /* shf, bmsk */
    EMU_MOD_SHIFTAMT = 1 << 5,
    EMU_MOD_CC = 1 << 6, /* sets the carry */
    EMU_MOD_TRANS = 1 << 7,
    EMU_MOD_ALIGNED = 1 << 8,
    EMU_MOD_SYNC =
        1 << 9, /* volatile, acquire, release: orders like a barrier */
    EMU_MOD_UNI = 1 << 10,
    EMU_MOD_PARITY = 1 << 11,
    EMU_MOD_READ = 1 << 12,
    EMU_MOD_XORSIGN = 1 << 13,
};

/* Rounding of the suffix, in emu_inst.rounding; the …I forms round to an
 * integer. */
enum emu_rounding {
    EMU_ROUND_NONE,
    EMU_ROUND_RN,
    EMU_ROUND_RZ,
    EMU_ROUND_RM,
    EMU_ROUND_RP,
    EMU_ROUND_RNA,
};

enum emu_step {
    EMU_STEP_NEXT,  /* go on behind this instruction */
    EMU_STEP_JUMP,  /* the handler set the program counter */
    EMU_STEP_BLOCK, /* the split waits; the handler set its program counter */
};

/* Operation suffixes: comparisons, boolean and atomic operations, modes. */
enum emu_op {
    EMU_OP_NONE,
#define OP(name) EMU_OP_##name,
#include "emulator/ops.def"
#undef OP
    EMU_OP_COUNT,
};

struct emu_warp;
struct emu_inst;

/* Executes an instruction for the lanes of `active` (never 0). */
typedef enum emu_step emu_exec(struct emu_warp *warp,
                               const struct emu_inst *inst, uint32_t active);

/* A register or constant operand. */
struct emu_value {
    int32_t offset; /* >= 0: bytes into the warp's registers; < 0: ~bytes into
                       constants */
    int32_t reg;    /* register number for the initialised mask, -1: constant */
    uint8_t width; /* 0: predicate mask, 4: lane32, 8: lane64, 16: two lane64 */
    bool negated;  /* predicates */
};

/* Register number of the `_` operand: written, never read. */
enum { EMU_REG_SINK = 0 };

struct emu_call_arg {
    struct emu_value value; /* a register or constant, when size is 0 */
    uint32_t offset;        /* else bytes in the thread's local memory */
    uint32_t size;
};

struct emu_inst {
    emu_exec *exec;
    struct emu_value guard; /* reg -1: none */
    struct emu_value *dst;  /* dst_count, then src_count at src */
    struct emu_value *src;
    uint16_t dst_count, src_count;
    uint16_t mods;
    uint8_t type, type2; /* enum emu_type, in the order of the suffixes */
    uint8_t rounding, space, vector, unit;
    uint8_t op, op2;    /* enum emu_op: the first two operation suffixes */
    bool round_integer; /* .rni and kin */
    int64_t disp[3];    /* displacement of each address operand, in order */
    int64_t imm[4];     /* integer constant operands, in order */
    uint8_t imm_count;
    uint16_t shape_n;   /* N of mMnNkK */
    int32_t target;     /* branch target, callee's function index */
    int32_t reconverge; /* program counter where a divergent branch meets, -1:
                           never */
    int32_t *targets;   /* brx.idx */
    int32_t target_count;
    struct emu_call_arg *args, *formals; /* call: pairs, results first */
    int32_t arg_count, result_count;
    uint16_t live;   /* 32-bit registers live behind it (setmaxnreg modules) */
    uint16_t source; /* index of the PTX text */
    int32_t line;
    int32_t text_length;
    const char *text;   /* borrowed from the PTX */
    const char *origin; /* "x.attn:12:7" or "" */
};

struct emu_param {
    const char *name;
    uint32_t offset, size, align;
    struct emu_value reg; /* function formals that are registers (size 0) */
};

struct emu_function {
    const char *name;
    bool entry, defined;
    int32_t first, end; /* instructions [first, end); end-1 is the one exit */
    int32_t reg_first, reg_end; /* its register numbers */
    struct emu_param *params;   /* results first for functions */
    int32_t param_count, result_count;
    uint32_t param_bytes; /* entries */
    uint32_t
        static_shared; /* bytes before the dynamic part, entry and callees */
    uint32_t max_threads, required_threads[3];
    bool serial; /* uses global atomics: CTAs run in one deterministic order */
    bool uses_wgmma;
    bool waits_for_grids; /* has a griddepcontrol.wait */
    VEC(int32_t) callees;
    int32_t visit; /* call-graph walk */
};

struct emu_register {
    const char *name;
    uint8_t type;
    int32_t offset;
};

struct emu_module {
    struct arena *arena;
    struct emu_memory *memory; /* borrowed */
    const struct emu_source *sources;
    size_t source_count;
    VEC(struct emu_inst) insts;
    VEC(struct emu_function) functions;
    VEC(struct emu_register) registers;
    int32_t register_bytes;
    uint8_t *constants; /* broadcast to 32 lanes */
    size_t constant_bytes, constant_capacity;
    uint32_t
        local_bytes; /* per thread: locals and parameters of all functions */
    int32_t special[32]; /* register number of a special register, 0: unused */
    bool has_setmaxnreg;
    int sm; /* of .target, 80 or 90 */
};

/* Special registers that are ordinary registers, filled in at launch. */
#define EMU_SPECIALS(X)                                                        \
    X(TID_X, "%tid.x")                                                         \
    X(TID_Y, "%tid.y") X(TID_Z, "%tid.z") X(NTID_X, "%ntid.x") X(              \
        NTID_Y, "%ntid.y") X(NTID_Z, "%ntid.z") X(CTAID_X, "%ctaid.x")         \
        X(CTAID_Y, "%ctaid.y") X(CTAID_Z, "%ctaid.z") X(NCTAID_X, "%nctaid.x") \
            X(NCTAID_Y, "%nctaid.y") X(NCTAID_Z, "%nctaid.z") X(               \
                LANEID, "%laneid") X(WARPID, "%warpid") X(NWARPID, "%nwarpid") \
                X(SMID, "%smid") X(NSMID, "%nsmid") X(GRIDID, "%gridid") X(    \
                    LANEMASK_EQ, "%lanemask_eq") X(LANEMASK_LT,                \
                                                   "%lanemask_lt")             \
                    X(LANEMASK_LE, "%lanemask_le") X(LANEMASK_GT,              \
                                                     "%lanemask_gt")           \
                        X(LANEMASK_GE, "%lanemask_ge") X(DYNAMIC_SMEM,         \
                                                         "%dynamic_smem_size") \
                            X(TOTAL_SMEM, "%total_smem_size")                  \
                                X(CLUSTER_CTARANK, "%cluster_ctarank")         \
                                    X(CLUSTER_NCTARANK, "%cluster_nctarank")   \
                                        X(CLUSTERID_X, "%clusterid.x")         \
                                            X(NCLUSTERID_X, "%nclusterid.x")

enum emu_special {
#define X(name, text) EMU_SPECIAL_##name,
    EMU_SPECIALS(X)
#undef X
        EMU_SPECIAL_COUNT,
};

_Static_assert(EMU_SPECIAL_COUNT <= 32, "emu_module.special holds 32");

/* The defined entry of that name, or NULL. */
const struct emu_function *emu_module_entry(const struct emu_module *module,
                                            const char *name);

/* Bytes of a value of the type; 0 for predicates. */
static inline unsigned emu_type_bytes(enum emu_type type) {
    static const uint8_t bytes[EMU_TYPE_COUNT] = {
#define T(name, class, bytes) [EMU_TYPE_##name] = bytes,
#include "emulator/types.def"
#undef T
    };
    return bytes[type];
}

/* 'B' 'U' 'S' 'F' 'P', 0 for none. */
static inline char emu_type_class(enum emu_type type) {
    static const char class[EMU_TYPE_COUNT] = {
#define T(name, class, bytes) [EMU_TYPE_##name] = #class[0],
#include "emulator/types.def"
#undef T
    };
    return class[type];
}

#endif
