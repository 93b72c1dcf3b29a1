/* The checked spec: what an .attn file means after parsing and checking.
 *
 * Everything here is resolved and typed.  Names are pointers, implicit
 * conversions are EXPR_CAST nodes, constant subexpressions are EXPR_CONST
 * leaves folded step by step in f32 and i32.  The reference and the IR builder
 * read this and nothing else of the front end.  All memory belongs to the arena
 * given to frontend_check; consumers treat it as read-only.
 *
 * Bounds that consumers may rely on: through fn calls and lets an expression is
 * at most AST_MAX_DEPTH nodes deep, and with every fn call inlined (a let
 * reference counts as one node) all lines of an attention together are at most
 * AST_MAX_NODES nodes large.
 */
#ifndef ATTN_FRONTEND_AST_H
#define ATTN_FRONTEND_AST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/arena.h"
#include "support/kernel_info.h"
#include "support/source.h"
#include "support/strbuf.h"

enum {
    AST_MAX_DEPTH = 1024,
    AST_MAX_NODES = 100000, /* of all lines of one attention together */
    AST_MAX_ARGS = 64,      /* parameters of a fn */
};

/* Type of an expression. */
enum value_type { TYPE_BOOL, TYPE_I32, TYPE_F32 };

/* The index names: batch, query head, KV head, query position, key position. */
enum index_name {
    INDEX_B,
    INDEX_H,
    INDEX_H_KV,
    INDEX_Q,
    INDEX_KV,
    INDEX_COUNT
};

enum expr_kind {
    EXPR_CONST, /* bits */
    EXPR_INDEX, /* index; i32 */
    EXPR_SIZE,  /* size; i32 */
    EXPR_SCORE, /* `s`: scaled score after the score lines above; f32 */
    EXPR_PARAM, /* param */
    EXPR_READ,  /* tensor[args], args i32, one per axis */
    EXPR_LET,   /* let: a value fixed where it stands; share it, do not copy */
    EXPR_FN_PARAM, /* parameter number fn_param of the fn around it */
    EXPR_UNARY,    /* unary, args[0] */
    EXPR_BINARY,   /* binary, args[0..1], both of one type */
    EXPR_SELECT,   /* args[0] ? args[1] : args[2], arms of the node's type */
    EXPR_CAST,     /* args[0] converted to the node's type */
    EXPR_BUILTIN,  /* builtin, args: all of one type */
    EXPR_CALL,     /* fn(args), args have exactly the parameters' types */
};

enum unary_op {
    UNARY_NEG,     /* i32 (wraps), f32 */
    UNARY_NOT,     /* bool */
    UNARY_BIT_NOT, /* i32 */
};

/* Operand type in brackets; comparisons give bool, the others their operands'
 * type.  DIV and MOD: floor division and its remainder on i32; IEEE division
 * and x - y*floor(x/y) on f32.  Shift counts are taken modulo 32, SHR is
 * arithmetic.  AND_THEN, OR_ELSE: the right side is not evaluated (no tensor
 * read) when the left one decides. */
/* clang-format off */
enum binary_op {
    BINARY_ADD, BINARY_SUB, BINARY_MUL, BINARY_DIV, BINARY_MOD, /* [i32 f32] */
    BINARY_AND, BINARY_OR, BINARY_XOR,                 /* [i32 bool] */
    BINARY_SHL, BINARY_SHR,                            /* [i32] */
    BINARY_LT, BINARY_LE, BINARY_GT, BINARY_GE,        /* [i32 f32] */
    BINARY_EQ, BINARY_NE,                              /* [i32 f32 bool] */
    BINARY_AND_THEN, BINARY_OR_ELSE,                   /* [bool] */
};
/* clang-format on */

/* Built-in functions: id, spelling, arguments, type rule.
 * KEEP: i32 stays i32, with one f32 all are f32.  FLOAT: all f32, gives f32.
 * ABS of i32 wraps.  MIN and MAX with one NaN give the other. */
/* clang-format off */
#define AST_BUILTINS(B) \
    B(ABS, "abs", 1, KEEP)       \
    B(MIN, "min", 2, KEEP)       \
    B(MAX, "max", 2, KEEP)       \
    B(CLAMP, "clamp", 3, KEEP)   \
    B(EXP, "exp", 1, FLOAT)      \
    B(EXP2, "exp2", 1, FLOAT)    \
    B(LOG, "log", 1, FLOAT)      \
    B(LOG2, "log2", 1, FLOAT)    \
    B(SQRT, "sqrt", 1, FLOAT)    \
    B(RSQRT, "rsqrt", 1, FLOAT)  \
    B(TANH, "tanh", 1, FLOAT)    \
    B(SIGMOID, "sigmoid", 1, FLOAT) \
    B(SIN, "sin", 1, FLOAT)      \
    B(COS, "cos", 1, FLOAT)      \
    B(FLOOR, "floor", 1, FLOAT)  \
    B(CEIL, "ceil", 1, FLOAT)    \
    B(ROUND, "round", 1, FLOAT)  /* to even */ \
    B(POW, "pow", 2, FLOAT)
/* clang-format on */

enum builtin {
#define B(id, name, args, rule) BUILTIN_##id,
    AST_BUILTINS(B)
#undef B
        BUILTIN_COUNT
};

/* What an expression depends on: through lets, and through fns by the arguments
 * of parameters that the body uses. */
enum {
    DEP_B = 1 << INDEX_B,
    DEP_H = 1 << INDEX_H,
    DEP_H_KV = 1 << INDEX_H_KV,
    DEP_Q = 1 << INDEX_Q,
    DEP_KV = 1 << INDEX_KV,
    DEP_S = 1 << 5,
    DEP_SIZE = 1 << 6,
    DEP_PARAM = 1 << 7,
    DEP_TENSOR = 1 << 8,   /* reads a captured tensor */
    DEP_EXTERN = 1 << 9,   /* calls an extern fn */
    DEP_FN_PARAM = 1 << 10 /* inside the body of a fn only */
};

struct param;
struct tensor;
struct let;
struct fn;

struct expr {
    enum expr_kind kind;
    enum value_type type;
    struct source_range where; /* the source text that this node stands for */
    uint32_t deps;             /* DEP_* */
    union {
        uint32_t bits; /* CONST: i32, f32 (NaN is 0x7fc00000) or 0/1 */
        enum index_name index;
        enum size_name size;
        const struct param *param;
        const struct tensor *tensor;
        const struct let *let;
        int fn_param;
        enum unary_op unary;
        enum binary_op binary;
        enum builtin builtin;
        const struct fn *fn;
        bool implicit; /* CAST: not written by the author */
    };
    const struct expr *const *args;
    size_t arg_count;
    uint32_t depth, nodes; /* after inlining, for the bounds above */
};

/* `const NAME = value;` */
struct named_const {
    const char *name;
    struct source_range where; /* the name */
    enum value_type type;
    uint32_t bits;
};

struct fn_param {
    const char *name;
    struct source_range where;
    enum value_type type;
    uint32_t uses; /* in the body with its calls inlined; 0: never used */
};

/* A fn, or an extern function in CUDA C++. */
struct fn {
    const char *name;
    struct source_range where; /* the name */
    struct fn_param *params;
    size_t param_count;
    enum value_type type;    /* of the result */
    const struct expr *body; /* extern: the model, NULL when there is none */
    bool is_extern;
    bool calls_extern; /* is extern, or calls one through others too */
    bool lacks_model;  /* the same, of externs without a model */
    const struct source_file *file; /* extern: the CUDA file, NULL otherwise */
    struct source_range file_where; /* extern: the file name in the spec */
};

struct param {
    const char *name;
    struct source_range where;
    enum value_type type;
    bool has_default;
    uint32_t default_bits;
    bool used;
    int number; /* position in attention.params */
};

struct tensor {
    const char *name;
    struct source_range where;
    enum scalar_type type;      /* of the elements in memory */
    enum value_type value_type; /* of a read: f16 and bf16 are read as f32 */
    int rank;
    /* i32 expressions over sizes, consts and params (fn calls allowed); to be
     * evaluated in 64 bits, see ast_size_expr. */
    const struct expr *extents[KERNEL_MAX_RANK];
    bool used;
    int number; /* position in attention.tensors */
};

struct let {
    const char *name;
    struct source_range where;
    const struct expr *value;
    int number; /* position among the lets of the attention */
};

enum item_kind {
    ITEM_LET,   /* let */
    ITEM_SCORE, /* value: f32, the new s */
    ITEM_MASK,  /* value: bool, and-ed; does not depend on s */
};

/* Lines with a meaning, in source order. */
struct item {
    enum item_kind kind;
    struct source_range where; /* the whole line */
    const struct let *let;
    const struct expr *value; /* of the let too */
};

/* Decisions of the compiler that can be pinned. */
enum schedule_key {
    SCHEDULE_TILE,
    SCHEDULE_STAGES,
    SCHEDULE_CONSUMERS,
    SCHEDULE_OVERLAP,
    SCHEDULE_EXP_POLY,
    SCHEDULE_RESCALE_THRESHOLD,
    SCHEDULE_ORDER,
    SCHEDULE_KEY_COUNT,
};

enum schedule_overlap {
    OVERLAP_NONE,     /* one tile after the other */
    OVERLAP_INTRA,    /* QK(j+1) issued before softmax(j), in one warpgroup */
    OVERLAP_PINGPONG, /* intra, and the warpgroups take turns */
};

enum schedule_order {
    ORDER_LINEAR,  /* as numbered */
    ORDER_LPT,     /* longest tile first */
    ORDER_DYNAMIC, /* atomic tile counter */
};

struct schedule {
    bool given[SCHEDULE_KEY_COUNT];
    struct source_range where[SCHEDULE_KEY_COUNT]; /* key and values */
    int tile_m, tile_n;                            /* multiples of 16 and 8 */
    int stages;                                    /* >= 1 */
    int consumers;                                 /* >= 1 */
    enum schedule_overlap overlap;
    float exp_poly;          /* share of the exp2 on FMA pipes, 0 to 1 */
    float rescale_threshold; /* tau, log2 units, finite, >= 0 */
    enum schedule_order order;
    struct source_range block; /* the word `schedule`, or nowhere */
};

struct target_ref {
    const char *name; /* "sm_80", "sm_90a", "sm_100a" */
    struct source_range where;
};

struct attention {
    const char *name;
    struct source_range where;   /* the name */
    enum scalar_type dtype;      /* SCALAR_F16 or SCALAR_BF16 */
    int head_dim_qk, head_dim_v; /* 8 to 256 in steps of 8 */
    int group;                   /* query heads per KV head; 0: any */
    /* f32 over consts and params; NULL: 1/sqrt(head_dim_qk) */
    const struct expr *scale;
    struct param *params;
    size_t param_count;
    struct tensor *tensors;
    size_t tensor_count;
    const struct let **lets;
    size_t let_count;
    struct item *items;
    size_t item_count;
    struct target_ref *targets; /* in order, without repeats; 0: none given */
    size_t target_count;
    struct schedule schedule;
    bool calls_extern, lacks_model; /* some expression, see struct fn */
};

/* A checked file.  Lists of fns and consts hold what the file can see: its own
 * and what its imports bring. */
struct spec {
    const struct source_file *file;
    struct attention *attentions; /* of the file itself */
    size_t attention_count;       /* 0: the file is a library */
    const struct fn **fns;        /* without externs */
    size_t fn_count;
    const struct fn **externs;
    size_t extern_count;
    const struct named_const **consts;
    size_t const_count;
};

/* Attention by name, NULL if there is none. */
const struct attention *ast_find_attention(const struct spec *spec,
                                           const char *name);

/* Value of a constant leaf; kind and type must fit (asserted). */
int32_t ast_const_i32(const struct expr *expr);

/* The same for f32. */
float ast_const_f32(const struct expr *expr);

/* The same for bool. */
bool ast_const_bool(const struct expr *expr);

/* True for a constant leaf. */
bool ast_is_const(const struct expr *expr);

/* Depends on s. */
bool ast_uses_score(const struct expr *expr);

/* Depends on the query row (q). */
bool ast_uses_row(const struct expr *expr);

/* Depends on the key column (kv). */
bool ast_uses_column(const struct expr *expr);

/* Depends on the batch or the head (b, h, h_kv). */
bool ast_uses_head(const struct expr *expr);

/* Depends on nothing that changes inside of one launch. */
bool ast_is_uniform(const struct expr *expr);

/* A copy of `body` with EXPR_FN_PARAM number i replaced by args[i] (inlining of
 * one call; calls inside stay calls).  The arguments are shared, not copied.
 * deps is recomputed; depth and nodes are estimates. */
const struct expr *ast_inline(struct arena *arena, const struct expr *body,
                              const struct expr *const *args);

/* Calls visit(ctx, node) for `expr` and everything below it, children first;
 * fn bodies are entered at each call, lets are not (they are items themselves,
 * and a chain of them could take exponential time). */
void ast_walk(const struct expr *expr,
              void (*visit)(void *ctx, const struct expr *node), void *ctx);

/* Launch-time code of an extent (or any integer expression without index
 * names, s, tensor reads and f32): fns are inlined, parameters are numbered by
 * param.number.  False: the expression holds something else. */
bool ast_size_expr(struct arena *arena, const struct expr *expr,
                   struct size_expr *out);

/* Spelling of a value type: "f32". */
const char *ast_type_name(enum value_type type);

/* Spelling of an element type: "bf16". */
const char *ast_scalar_name(enum scalar_type type);

/* Spelling of an index: "h_kv". */
const char *ast_index_name(enum index_name index);

/* Spelling of a size: "kv_len". */
const char *ast_size_name(enum size_name size);

/* Spelling of an operator: "-". */
const char *ast_unary_name(enum unary_op op);

/* Spelling of an operator: "<=". */
const char *ast_binary_name(enum binary_op op);

/* Spelling of a built-in: "tanh". */
const char *ast_builtin_name(enum builtin builtin);

/* Spelling of a key: "exp_poly". */
const char *ast_schedule_key_name(enum schedule_key key);

/* Type of the value that reading such an element gives. */
enum value_type ast_value_type(enum scalar_type type);

/* Element type that holds such a value. */
enum scalar_type ast_scalar_type(enum value_type type);

/* The expression as .attn text, fully parenthesised where it must be; floats
 * print so that they read back to the same bits. */
void ast_print_expr(struct strbuf *out, const struct expr *expr);

/* A canonical text of everything that decides what the attention computes and
 * how it is compiled, the fns that it calls and the text of its extern files
 * included (basis of cache keys; independent of comments, names of lets and
 * layout of the file). */
void ast_print_attention(struct strbuf *out, const struct attention *attention);

#endif
