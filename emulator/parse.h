/* Inside of the PTX parser: its state, symbols and unbound operands. */
#ifndef ATTN_EMULATOR_PARSE_H
#define ATTN_EMULATOR_PARSE_H

#include <setjmp.h>

#include "emulator/lex.h"
#include "emulator/program.h"

enum symbol_kind {
    SYMBOL_REGISTER,
    SYMBOL_VARIABLE,
    SYMBOL_FUNCTION,
    SYMBOL_LABEL,
    SYMBOL_TARGETS, /* a .branchtargets list */
};

struct symbol {
    const char *name;
    enum symbol_kind kind;
    enum emu_space space; /* variables */
    bool is_dynamic;      /* the extern .shared array */
    bool is_local_param;  /* .param of a function: lives in local memory */
    int32_t index;        /* register, function or label number */
    uint64_t address;
    uint32_t size, align;
    int32_t *targets; /* label numbers */
    int32_t target_count;
    struct symbol *bucket_next, *scope_next;
};

enum raw_kind {
    RAW_REGISTER,
    RAW_SPECIAL, /* %clock and kin, and the special registers by name */
    RAW_INTEGER,
    RAW_FLOAT32,
    RAW_FLOAT64,
    RAW_NAME, /* a symbol or a label not seen yet, plus value */
    RAW_VECTOR,
    RAW_LIST,
    RAW_ADDRESS, /* items[0] base, value displacement, items[1] coordinates */
    RAW_SINK,
};

/* An operand as written, before an instruction form gives it a meaning. */
struct raw_operand {
    enum raw_kind kind;
    bool negated;
    struct symbol *symbol;
    const char *name;
    int64_t value;
    struct raw_operand *items;
    int item_count;
    struct raw_operand *second; /* of p|q */
};

enum {
    PARSE_BUCKETS = 4096,
    PARSE_MAX_OPERANDS = 16,
    PARSE_CONSTANT_SLOTS = 8192,
    PARSE_LABEL_BUCKETS = 1024,
    PARSE_OPCODES = 256
};

struct constant_slot {
    bool used;
    uint8_t width;
    uint64_t value;
    int32_t offset;
};

/* A text of an opcode met before: its first form, and what its suffixes say. */
struct opcode_entry {
    const char *opcode; /* NULL: unused */
    int form;
    struct emu_inst inst;
};

/* A constant that waits for the size of static shared memory. */
struct shared_patch {
    int32_t offset;
    uint8_t width;
    uint64_t addend;
};

struct parser {
    struct emu_module *module;
    struct arena *arena;
    struct lexer lexer;
    struct token token; /* current */
    int source;         /* index of the text */
    jmp_buf *failed;
    struct emu_error *error;

    struct symbol *buckets[PARSE_BUCKETS];
    struct symbol *scope[64]; /* symbols of each open scope */
    int depth;

    struct opcode_entry opcodes[PARSE_OPCODES];
    struct constant_slot *constants; /* PARSE_CONSTANT_SLOTS, power of two */
    uint32_t constants_used;
    VEC(struct shared_patch) patches;
    uint32_t dynamic_align, static_shared;
    uint64_t global_bytes;

    int32_t function;    /* index of the function being read, -1 outside */
    bool entry_params;   /* the parameters being read are those of an entry */
    VEC(int32_t) labels; /* program counter of each label, -1: not yet */
    VEC(const char *) label_names;
    struct symbol *label_buckets[PARSE_LABEL_BUCKETS];
    const char *loc_file[64]; /* of .file, by number */
    const char *origin;       /* the .attn position that applies */
    const char *inst_text;    /* start of the statement, for messages */
    int inst_line;
};

/* Ends the parse with `file:line: error: …` and the text of the instruction. */
_Noreturn void emu_parse_fail(struct parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Moves to the next token. */
void emu_parse_advance(struct parser *parser);

/* Whether the token is this punctuation or word; emu_parse_accept also skips
 * it. */
bool emu_parse_is(const struct parser *parser, char punct);
/* The same for a word. */
bool emu_parse_is_word(const struct parser *parser, const char *word);
/* Skips the token when it is this punctuation. */
bool emu_parse_accept(struct parser *parser, char punct);
/* Skips the token when it is this word. */
bool emu_parse_accept_word(struct parser *parser, const char *word);
/* Skips this punctuation, fails on anything else. */
void emu_parse_expect(struct parser *parser, char punct);

/* A copy of the word at the token, which is skipped; fails on anything else. */
const char *emu_parse_name(struct parser *parser);

/* An integer constant with optional sign; fails beyond [low, high]. */
int64_t emu_parse_integer(struct parser *parser, int64_t low, int64_t high);

/* Scopes and names.  emu_parse_declare fails when the scope has the name. */
void emu_parse_scope_open(struct parser *parser);
/* Forgets the names of the innermost scope. */
void emu_parse_scope_close(struct parser *parser);
/* The innermost symbol of that name, or NULL. */
struct symbol *emu_parse_lookup(const struct parser *parser, const char *name);
/* A new symbol in the innermost scope; fails when the scope has the name. */
struct symbol *emu_parse_declare(struct parser *parser, const char *name,
                                 enum symbol_kind kind);

/* Forgets the labels of the function before. */
void emu_parse_labels_reset(struct parser *parser);

/* Adds a register of `type`; its number. */
int32_t emu_parse_add_register(struct parser *parser, const char *name,
                               enum emu_type type);

/* Byte offset (as ~offset) of a constant broadcast to all lanes. */
int32_t emu_parse_constant(struct parser *parser, uint64_t value,
                           uint8_t width);

/* The same for an address `addend` bytes into dynamic shared memory, whose
 * place is known at the end only; emu_parse_patch_shared then fills them in. */
int32_t emu_parse_shared_constant(struct parser *parser, uint64_t addend,
                                  uint8_t width);
/* Fills in the constants above. */
void emu_parse_patch_shared(struct parser *parser, uint32_t dynamic_base);

/* The type named by ".f32" and so on, EMU_TYPE_NONE for other words. */
enum emu_type emu_parse_type(const char *word);

/* The label's number, created on first use (forward branches). */
int32_t emu_parse_label(struct parser *parser, const char *name);

struct param_list {
    struct emu_param *data;
    size_t count, capacity;
};

/* A variable of any state space at the token; false when there is none
 * (decl.c). */
bool emu_parse_variable(struct parser *parser, bool is_extern);

/* ( .param …, .reg … ) of a function head; declares the names (decl.c). */
void emu_parse_params(struct parser *parser, struct param_list *out_params);

/* All of one PTX text. */
void emu_parse_text(struct parser *parser, int source);

/* Reads guard, opcode and operands up to `;` and appends the instruction. */
void emu_parse_instruction(struct parser *parser);

/* Finds the form of `opcode` and binds the operands to `inst` (bind.c). */
void emu_bind_instruction(struct parser *parser, struct emu_inst *inst,
                          const char *opcode,
                          const struct raw_operand *operands, int count);

/* Value of a register, constant or symbol operand for a type; NULL, or the
 * reason why it does not fit. */
const char *emu_bind_value(struct parser *parser, const struct raw_operand *raw,
                           enum emu_type type, struct emu_value *out_value);

/* The operands of a call (call.c); false with the reason. */
bool emu_bind_call(struct parser *parser, struct emu_inst *inst,
                   const struct raw_operand *operands, int count, char *why,
                   size_t why_size);

/* Basic blocks and reconvergence points of one function (cfg.c). */
void emu_cfg_analyse(struct emu_module *module, struct emu_function *function);

/* Fills emu_inst.live of all functions (live.c). */
void emu_live_analyse(struct emu_module *module);

#endif
