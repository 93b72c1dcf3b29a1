/* From opcode text and operands to an executable instruction.
 *
 * opcodes.def has one row for each form of an instruction, spelled as in the
 * ISA manual: `add{.rn}{.ftz}.f32` (optional suffixes in braces, alternatives
 * separated by `|`, required alternatives in parentheses), a string with one
 * letter for each operand, the function that executes it and its unit.  The
 * first row whose text and operands fit is taken; no row is an error that says
 * how far the best one got.
 *
 *   d e   written, width of the first, second type
 *   s t   read, width of the first, second type
 *   u l   read, 32 and 64 bits         U L   written, 32 and 64 bits
 *   h F   read, 16 bits, an f32        i     integer constant
 *   p     read predicate               P     written predicate
 *   O     written predicate p|q        N     written, 32 bits and predicate d|p
 *   D S   written, read: any wider register, or the vector of .v2 .v4
 *   V4 v4 written, read: vector of 4 32-bit registers
 *   W     accumulators, written and read
 *   A     [address]                    M     [tensor map, {coordinates}]
 *   B     label                        T     list of branch targets
 *   K     %clock or %globaltimer       C     the operands of a call
 *   ?     what follows may be missing
 */
#include <stdio.h>
#include <string.h>

#include "emulator/exec.h"
#include "emulator/parse.h"

struct form {
    const char *pattern, *operands;
    emu_exec *exec;
    enum emu_unit unit;
};

static const struct form forms[] = {
#define I(pattern, operands, handler, unit_name) \
    {pattern, operands, exec_##handler, EMU_UNIT_##unit_name},
#include "emulator/opcodes.def"
#undef I
};

enum { MAX_VALUES = 272, MAX_SUFFIXES = 20 };

struct binding {
    struct emu_value dst[MAX_VALUES], src[MAX_VALUES];
    int dst_count, src_count;
    int disp_count;
    char why[160]; /* the reason of the last mismatch */
};

/* ---- suffixes ----------------------------------------------------------- */

enum suffix_kind {
    SUFFIX_MOD,
    SUFFIX_ROUND,
    SUFFIX_ROUND_INTEGER,
    SUFFIX_SPACE,
    SUFFIX_VECTOR
};

static const struct {
    const char *text;
    enum suffix_kind kind;
    int value;
} suffixes[] = {
    {"ftz", SUFFIX_MOD, EMU_MOD_FTZ},
    {"sat", SUFFIX_MOD, EMU_MOD_SAT},
    {"satfinite", SUFFIX_MOD, EMU_MOD_SAT},
    {"relu", SUFFIX_MOD, EMU_MOD_RELU},
    {"NaN", SUFFIX_MOD, EMU_MOD_NAN},
    {"wrap", SUFFIX_MOD, EMU_MOD_WRAP},
    {"shiftamt", SUFFIX_MOD, EMU_MOD_SHIFTAMT},
    {"cc", SUFFIX_MOD, EMU_MOD_CC},
    {"trans", SUFFIX_MOD, EMU_MOD_TRANS},
    {"aligned", SUFFIX_MOD, EMU_MOD_ALIGNED},
    {"volatile", SUFFIX_MOD, EMU_MOD_SYNC},
    {"acquire", SUFFIX_MOD, EMU_MOD_SYNC},
    {"release", SUFFIX_MOD, EMU_MOD_SYNC},
    {"relaxed", SUFFIX_MOD, EMU_MOD_SYNC},
    {"acq_rel", SUFFIX_MOD, EMU_MOD_SYNC},
    {"uni", SUFFIX_MOD, EMU_MOD_UNI},
    {"parity", SUFFIX_MOD, EMU_MOD_PARITY},
    {"read", SUFFIX_MOD, EMU_MOD_READ},
    {"xorsign", SUFFIX_MOD, EMU_MOD_XORSIGN},
    {"rn", SUFFIX_ROUND, EMU_ROUND_RN},
    {"rz", SUFFIX_ROUND, EMU_ROUND_RZ},
    {"rm", SUFFIX_ROUND, EMU_ROUND_RM},
    {"rp", SUFFIX_ROUND, EMU_ROUND_RP},
    {"rna", SUFFIX_ROUND, EMU_ROUND_RNA},
    {"rni", SUFFIX_ROUND_INTEGER, EMU_ROUND_RN},
    {"rzi", SUFFIX_ROUND_INTEGER, EMU_ROUND_RZ},
    {"rmi", SUFFIX_ROUND_INTEGER, EMU_ROUND_RM},
    {"rpi", SUFFIX_ROUND_INTEGER, EMU_ROUND_RP},
    {"global", SUFFIX_SPACE, EMU_SPACE_GLOBAL},
    {"shared", SUFFIX_SPACE, EMU_SPACE_SHARED},
    {"shared::cta", SUFFIX_SPACE, EMU_SPACE_SHARED},
    {"shared::cluster", SUFFIX_SPACE, EMU_SPACE_SHARED},
    {"local", SUFFIX_SPACE, EMU_SPACE_LOCAL},
    {"const", SUFFIX_SPACE, EMU_SPACE_CONST},
    {"param", SUFFIX_SPACE, EMU_SPACE_PARAM},
    {"param::entry", SUFFIX_SPACE, EMU_SPACE_PARAM},
    {"param::func", SUFFIX_SPACE, EMU_SPACE_PARAM},
    {"v2", SUFFIX_VECTOR, 2},
    {"v4", SUFFIX_VECTOR, 4},
    {"v8", SUFFIX_VECTOR, 8},
};

static const char *const op_names[EMU_OP_COUNT] = {
#define OP(name) [EMU_OP_##name] = #name,
#include "emulator/ops.def"
#undef OP
};

/* One suffix may say several things: `.uni` is a modifier and an operation. */
static void apply_suffix(struct emu_inst *inst, const char *text,
                         bool *io_first_space) {
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (strcmp(suffixes[i].text, text) != 0)
            continue;
        int value = suffixes[i].value;
        switch (suffixes[i].kind) {
        case SUFFIX_MOD:
            inst->mods |= (uint16_t)value;
            break;
        case SUFFIX_ROUND:
            inst->rounding = (uint8_t)value;
            break;
        case SUFFIX_ROUND_INTEGER:
            inst->rounding = (uint8_t)value;
            inst->round_integer = true;
            break;
        case SUFFIX_SPACE:
            if (*io_first_space) /* of a copy: the destination */
                inst->space = (uint8_t)value;
            *io_first_space = false;
            break;
        case SUFFIX_VECTOR:
            inst->vector = (uint8_t)value;
            break;
        }
    }
    for (int op = 1; op < EMU_OP_COUNT; op++)
        if (strcmp(op_names[op], text) == 0)
            *(inst->op ? &inst->op2 : &inst->op) = (uint8_t)op;
    unsigned m, n, k;
    if (sscanf(text, "m%un%uk%u", &m, &n, &k) == 3 && n <= 256)
        inst->shape_n = (uint16_t)n;
    char dotted[72];
    snprintf(dotted, sizeof dotted, ".%s", text);
    enum emu_type type = emu_parse_type(dotted);
    if (type != EMU_TYPE_NONE &&
        !inst->type2) /* of mma: result and operands, once */
        *(inst->type ? &inst->type2 : &inst->type) = (uint8_t)type;
}

/* Reads what the suffixes say into `inst`. */
static void apply_suffixes(struct emu_inst *inst, const char *opcode) {
    bool first_space = true;
    inst->vector = 1;
    const char *dot = strchr(opcode, '.');
    while (dot) {
        const char *start = dot + 1, *stop = strchr(start, '.');
        size_t length = stop ? (size_t)(stop - start) : strlen(start);
        char text[64];
        if (length < sizeof text) {
            memcpy(text, start, length);
            text[length] = 0;
            apply_suffix(inst, text, &first_space);
        }
        dot = stop;
    }
}

/* ---- patterns ------------------------------------------------------------ */

static bool ends_suffix(char c) {
    return c == 0 || c == '.';
}

/* Tries the alternatives of a group, from behind its bracket up to `close`;
 * the longest that fits moves `text` on. */
static bool match_group(const char **pattern, const char **text, char close) {
    const char *p = *pattern, *best = NULL;
    while (*p != close) {
        const char *stop = p, *t = *text;
        while (*stop != '|' && *stop != close)
            stop++;
        size_t length = (size_t)(stop - p);
        if (strncmp(t, p, length) == 0 && ends_suffix(t[length]) &&
            (!best || t + length > best))
            best = t + length;
        p = *stop == '|' ? stop + 1 : stop;
    }
    *pattern = p + 1;
    if (best)
        *text = best;
    return best != NULL;
}

/* Characters of the suffixes that both texts start with. */
static size_t common_suffixes(const char *pattern, const char *text) {
    size_t length = 0;
    for (size_t i = 0; pattern[i] && pattern[i] == text[i]; i++)
        if (ends_suffix(text[i + 1]) && ends_suffix(pattern[i + 1]))
            length = i + 1;
    return length;
}

/* Whether all of `opcode` fits the pattern; `out_length`: how much of it
 * does. */
static bool match_pattern(const char *pattern, const char *opcode,
                          size_t *out_length) {
    const char *text = opcode;
    bool complete = true;
    while (*pattern && complete) {
        if (*pattern == '{') {
            pattern++;
            match_group(&pattern, &text, '}');
        } else if (*pattern == '(') {
            pattern++;
            complete = match_group(&pattern, &text, ')');
        } else {
            size_t length = strcspn(pattern, "{(");
            complete = strncmp(text, pattern, length) == 0 &&
                       ends_suffix(text[length]);
            text += complete ? length : common_suffixes(pattern, text);
            pattern += length;
        }
    }
    *out_length = (size_t)(text - opcode);
    return complete && *text == 0;
}

/* ---- operands ------------------------------------------------------------ */

/* Bytes of a lane in the register file: narrow types live in 32 bits. */
static uint8_t slot_width(enum emu_type type) {
    unsigned bytes = emu_type_bytes(type);
    return (uint8_t)(type == EMU_TYPE_pred ? 0 : bytes <= 4 ? 4 : bytes);
}

static struct emu_value register_value(const struct emu_module *module,
                                       int32_t reg) {
    const struct emu_register *r = &module->registers.data[reg];
    return (struct emu_value){r->offset, reg, slot_width(r->type), false};
}

/* The sink is large enough to be written as any width. */
static struct emu_value sink_value(struct parser *parser, uint8_t width) {
    struct emu_value value = register_value(parser->module, EMU_REG_SINK);
    value.width = width;
    return value;
}

static uint64_t symbol_address(const struct symbol *symbol) {
    return symbol->address;
}

/* Bits of a floating constant for a type, or a reason. */
static const char *float_bits(const struct raw_operand *raw, enum emu_type type,
                              uint64_t *out_bits) {
    uint64_t bits = (uint64_t)raw->value;
    unsigned bytes = emu_type_bytes(type);
    if (raw->kind == RAW_FLOAT32 && bytes == 8 && emu_type_class(type) == 'F')
        return "a 32-bit float where 64 bits are expected";
    if (raw->kind == RAW_FLOAT64 && bytes == 4) {
        double wide;
        memcpy(&wide, &bits, 8);
        float single = (float)wide;
        uint32_t low;
        memcpy(&low, &single, 4);
        bits = low;
    } else if (raw->kind == RAW_FLOAT64 && bytes < 4) {
        return "a floating constant where 16 bits are expected";
    }
    *out_bits = bits;
    return NULL;
}

const char *emu_bind_value(struct parser *parser, const struct raw_operand *raw,
                           enum emu_type type, struct emu_value *out_value) {
    struct emu_module *module = parser->module;
    unsigned bytes = emu_type_bytes(type);
    uint8_t width = slot_width(type);
    uint64_t bits = (uint64_t)raw->value;
    if (raw->kind == RAW_REGISTER) {
        const struct emu_register *r =
            &module->registers.data[raw->symbol->index];
        *out_value = register_value(module, raw->symbol->index);
        out_value->negated = raw->negated;
        bool is_predicate = r->type == EMU_TYPE_pred;
        if (is_predicate != (type == EMU_TYPE_pred))
            return is_predicate ? "a predicate where a value is expected"
                                : "a value where a predicate is expected";
        bool is_special = raw->name && raw->name[0] == '%' &&
                          r->name == raw->symbol->name &&
                          strchr(r->name, '.') != NULL;
        if (emu_type_bytes(r->type) != bytes && !is_special)
            return "a register of another width than the instruction's type";
        return NULL;
    }
    if (type == EMU_TYPE_pred)
        return "no predicate register";
    if (raw->kind == RAW_FLOAT32 || raw->kind == RAW_FLOAT64) {
        const char *why = float_bits(raw, type, &bits);
        if (why)
            return why;
    } else if (raw->kind == RAW_INTEGER) {
        if (emu_type_class(type) == 'F' && type != EMU_TYPE_f16x2 &&
            type != EMU_TYPE_bf16x2)
            return "an integer constant where a float is expected";
        bits &= bytes >= 8 ? ~0ull : (1ull << (bytes * 8)) - 1;
    } else if (raw->kind == RAW_NAME && raw->symbol &&
               raw->symbol->kind == SYMBOL_VARIABLE) {
        if (raw->symbol->is_dynamic) {
            *out_value = (struct emu_value){
                emu_parse_shared_constant(parser, (uint64_t)raw->value, width),
                -1, width, false};
            return NULL;
        }
        bits = symbol_address(raw->symbol) + (uint64_t)raw->value;
    } else {
        return "no register or constant";
    }
    *out_value = (struct emu_value){emu_parse_constant(parser, bits, width), -1,
                                    width, false};
    return NULL;
}

/* Notes why this form does not fit; the last reason is shown if none does. */
static bool mismatch(struct binding *b, int operand, const char *why) {
    snprintf(b->why, sizeof b->why, "operand %d is %s", operand + 1, why);
    return false;
}

/* A value of exactly `type`, or any register at least as wide when
 * `relaxed`. */
static bool bind_one(struct parser *parser, struct binding *b,
                     const struct raw_operand *raw, int index,
                     enum emu_type type, bool is_dst, bool relaxed) {
    struct emu_value value;
    int *count = is_dst ? &b->dst_count : &b->src_count;
    if (*count == MAX_VALUES)
        return mismatch(b, index, "one vector element too many");
    if (raw->kind == RAW_SINK && is_dst) {
        value = sink_value(parser, slot_width(type));
    } else if (relaxed && raw->kind == RAW_REGISTER) {
        enum emu_type own =
            parser->module->registers.data[raw->symbol->index].type;
        if (own == EMU_TYPE_pred || emu_type_bytes(own) < emu_type_bytes(type))
            return mismatch(b, index, "a register too narrow for the type");
        value = register_value(parser->module, raw->symbol->index);
    } else if (is_dst && raw->kind != RAW_REGISTER) {
        return mismatch(b, index, "no register to write to");
    } else {
        const char *why = emu_bind_value(parser, raw, type, &value);
        if (why)
            return mismatch(b, index, why);
    }
    (is_dst ? b->dst : b->src)[(*count)++] = value;
    return true;
}

static bool bind_vector(struct parser *parser, struct binding *b,
                        const struct raw_operand *raw, int index,
                        enum emu_type type, bool is_dst, bool relaxed) {
    if (raw->kind != RAW_VECTOR)
        return mismatch(b, index, "no vector");
    for (int i = 0; i < raw->item_count; i++)
        if (!bind_one(parser, b, &raw->items[i], index, type, is_dst, relaxed))
            return false;
    return true;
}

/* [base+displacement].  A .param variable of a function is local memory. */
static bool bind_address(struct parser *parser, struct emu_inst *inst,
                         struct binding *b, const struct raw_operand *raw,
                         int index) {
    if (raw->kind != RAW_ADDRESS || raw->item_count != 1)
        return mismatch(b, index, "no address");
    struct raw_operand base = raw->items[0];
    enum emu_type type = EMU_TYPE_b64;
    if (base.kind == RAW_REGISTER)
        type = parser->module->registers.data[base.symbol->index].type;
    if (base.kind == RAW_REGISTER && emu_type_bytes(type) != 4 &&
        emu_type_bytes(type) != 8)
        return mismatch(b, index, "an address that is neither 32 nor 64 bits");
    if (base.kind == RAW_NAME && base.symbol &&
        base.symbol->kind == SYMBOL_VARIABLE && base.symbol->is_local_param &&
        inst->space == EMU_SPACE_PARAM)
        inst->space = EMU_SPACE_LOCAL;
    if (b->disp_count == 3)
        return mismatch(b, index, "one address too many");
    inst->disp[b->disp_count++] = raw->value;
    return bind_one(parser, b, &base, index, type, false, false);
}

/* [map, {coordinates}]: map address, then the coordinates; imm gets their
 * count. */
static bool bind_tensor(struct parser *parser, struct emu_inst *inst,
                        struct binding *b, const struct raw_operand *raw,
                        int index) {
    if (raw->kind != RAW_ADDRESS || raw->item_count != 2)
        return mismatch(b, index, "no [tensor map, {coordinates}]");
    inst->disp[b->disp_count++] = raw->value;
    inst->target_count = raw->items[1].item_count;
    return bind_one(parser, b, &raw->items[0], index, EMU_TYPE_b64, false,
                    false) &&
           bind_vector(parser, b, &raw->items[1], index, EMU_TYPE_b32, false,
                       false);
}

/* A label may come later: its number now, its place at the end of the
 * function. */
static bool bind_label(struct parser *parser, struct emu_inst *inst,
                       struct binding *b, const struct raw_operand *raw,
                       int index) {
    if (raw->kind != RAW_NAME || raw->value != 0)
        return mismatch(b, index, "no label");
    inst->target = emu_parse_label(parser, raw->name);
    inst->reconverge = -2; /* resolve at the end of the function */
    return true;
}

static bool bind_targets(struct parser *parser, struct emu_inst *inst,
                         struct binding *b, const struct raw_operand *raw,
                         int index) {
    if (raw->kind != RAW_NAME || !raw->symbol ||
        raw->symbol->kind != SYMBOL_TARGETS)
        return mismatch(b, index, "no list of branch targets");
    inst->target_count = raw->symbol->target_count;
    inst->targets =
        ARENA_NEW_ARRAY(parser->arena, int32_t, (size_t)inst->target_count + 1);
    memcpy(inst->targets, raw->symbol->targets,
           sizeof(int32_t) * (size_t)inst->target_count);
    return true;
}

/* Letters of one value of a type that the letter or a suffix fixes. */
static bool is_plain_letter(const struct emu_inst *inst, char letter,
                            enum emu_type *out_type, bool *out_dst) {
    static const struct {
        char letter;
        enum emu_type type;
        bool is_dst;
    } rows[] = {
        {'U', EMU_TYPE_u32, true},   {'L', EMU_TYPE_u64, true},
        {'P', EMU_TYPE_pred, true},  {'u', EMU_TYPE_u32, false},
        {'l', EMU_TYPE_u64, false},  {'h', EMU_TYPE_u16, false},
        {'p', EMU_TYPE_pred, false}, {'F', EMU_TYPE_f32, false},
    };
    *out_dst = letter == 'd' || letter == 'e';
    *out_type = letter == 'd' || letter == 's' ? inst->type : inst->type2;
    if (strchr("dest", letter))
        return true;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].letter != letter)
            continue;
        *out_type = rows[i].type;
        *out_dst = rows[i].is_dst;
        return true;
    }
    return false;
}

/* ld, st and cvt: a register at least as wide as the type, or a vector of
 * them. */
static bool bind_relaxed(struct parser *parser, struct emu_inst *inst,
                         struct binding *b, const struct raw_operand *raw,
                         int index, bool is_dst) {
    bool is_vector = raw->kind == RAW_VECTOR;
    enum emu_type type =
        !is_dst && inst->exec == exec_cvt ? inst->type2 : inst->type;
    if (is_vector != (inst->vector > 1))
        return mismatch(b, index, is_vector ? "a vector" : "no vector");
    if (is_vector && raw->item_count != inst->vector)
        return mismatch(b, index, "a vector of another length");
    return is_vector ? bind_vector(parser, b, raw, index, type, is_dst, true)
                     : bind_one(parser, b, raw, index, type, is_dst, true);
}

/* One operand for one letter. */
static bool bind_letter(struct parser *parser, struct emu_inst *inst,
                        struct binding *b, const struct raw_operand *raw,
                        int index, char letter) {
    enum emu_type type;
    bool is_dst;
    if (raw->second && letter != 'O' && letter != 'N')
        return mismatch(b, index, "a pair p|q where one operand is expected");
    if (raw->negated && letter != 'p')
        return mismatch(b, index,
                        "negated, which only a predicate that is read can be");
    if (is_plain_letter(inst, letter, &type, &is_dst))
        return bind_one(parser, b, raw, index, type, is_dst, false);
    switch (letter) {
    case 'O': {
        struct raw_operand sink = {.kind = RAW_SINK};
        return bind_one(parser, b, raw, index, EMU_TYPE_pred, true, false) &&
               bind_one(parser, b, raw->second ? raw->second : &sink, index,
                        EMU_TYPE_pred, true, false);
    }
    case 'D':
    case 'S':
        return bind_relaxed(parser, inst, b, raw, index, letter == 'D');
    case 'W':
        if (raw->kind != RAW_VECTOR ||
            raw->item_count !=
                inst->shape_n / (inst->type == EMU_TYPE_f32 ? 2 : 4))
            return mismatch(b, index, "no accumulator of the shape's size");
        return bind_vector(parser, b, raw, index, EMU_TYPE_b32, true, false);
    case 'N': {
        struct raw_operand first = *raw, sink = {.kind = RAW_SINK};
        first.second = NULL;
        return bind_one(parser, b, &first, index, EMU_TYPE_u32, true, false) &&
               bind_one(parser, b, raw->second ? raw->second : &sink, index,
                        EMU_TYPE_pred, true, false);
    }
    case 'K':
        if (raw->kind != RAW_SPECIAL ||
            (strncmp(raw->name, "%clock", 6) != 0 &&
             strncmp(raw->name, "%globaltimer", 12) != 0))
            return mismatch(b, index, "no special register that is supported");
        return true;
    case 'A':
        return bind_address(parser, inst, b, raw, index);
    case 'M':
        return bind_tensor(parser, inst, b, raw, index);
    case 'B':
        return bind_label(parser, inst, b, raw, index);
    case 'T':
        return bind_targets(parser, inst, b, raw, index);
    case 'i':
        if (raw->kind != RAW_INTEGER || inst->imm_count == 4)
            return mismatch(b, index, "no integer constant");
        inst->imm[inst->imm_count++] = raw->value;
        return true;
    default:
        return mismatch(b, index, "of a kind that the table does not know");
    }
}

/* A vector of exactly `count` 32-bit registers; one may stand without
 * braces. */
static bool bind_counted(struct parser *parser, struct binding *b,
                         const struct raw_operand *raw, int index, char letter,
                         int count) {
    if (raw->negated || raw->second)
        return mismatch(b, index, "no vector of registers");
    if (raw->kind == RAW_REGISTER && count == 1)
        return bind_one(parser, b, raw, index, EMU_TYPE_b32, letter == 'V',
                        false);
    if (raw->kind != RAW_VECTOR || raw->item_count != count)
        return mismatch(b, index, "no vector of the form's length");
    return bind_vector(parser, b, raw, index, EMU_TYPE_b32, letter == 'V',
                       false);
}

/* {a, b} packed into or unpacked from one register: mov.b32, .b64, .b128. */
static bool bind_pack(struct parser *parser, struct emu_inst *inst,
                      struct binding *b, const struct raw_operand *operands,
                      int count) {
    bool unpack = inst->exec == exec_mov_unpack;
    const struct raw_operand *vector = &operands[unpack ? 0 : 1];
    if (count != 2 || vector->kind != RAW_VECTOR ||
        (vector->item_count != 2 && vector->item_count != 4))
        return mismatch(b, unpack ? 0 : 1, "no vector of 2 or 4");
    unsigned bytes = emu_type_bytes(inst->type) / (unsigned)vector->item_count;
    if (bytes < 1)
        return mismatch(b, unpack ? 0 : 1, "a vector of too many elements");
    static const enum emu_type types[9] = {[1] = EMU_TYPE_b8,
                                           [2] = EMU_TYPE_b16,
                                           [4] = EMU_TYPE_b32,
                                           [8] = EMU_TYPE_b64};
    inst->vector = (uint8_t)vector->item_count;
    inst->imm[0] = bytes;
    return bind_vector(parser, b, vector, unpack ? 0 : 1, types[bytes], unpack,
                       false) &&
           bind_one(parser, b, &operands[unpack], unpack, inst->type, !unpack,
                    false);
}

/* All operands of one form, by the letters of its row. */
static bool bind_operands(struct parser *parser, const struct form *form,
                          struct emu_inst *inst, struct binding *b,
                          const struct raw_operand *operands, int count) {
    b->dst_count = b->src_count = b->disp_count = 0;
    inst->imm_count = 0;
    if (form->operands[0] == 'C')
        return emu_bind_call(parser, inst, operands, count, b->why,
                             sizeof b->why);
    if (inst->exec == exec_mov_pack || inst->exec == exec_mov_unpack)
        return bind_pack(parser, inst, b, operands, count);
    bool optional = false;
    int index = 0;
    for (const char *p = form->operands; *p; p++) {
        bool counted = p[1] >= '1' && p[1] <= '9';
        if (*p == '?') {
            optional = true;
        } else if (index == count) {
            if (!optional) {
                snprintf(b->why, sizeof b->why, "%d operands are too few",
                         count);
                return false;
            }
            break;
        } else if (counted) {
            if (!bind_counted(parser, b, &operands[index], index, *p,
                              p[1] - '0'))
                return false;
            index++;
            p++;
        } else if (!bind_letter(parser, inst, b, &operands[index], index, *p)) {
            return false;
        } else {
            index++;
        }
    }
    if (index < count)
        snprintf(b->why, sizeof b->why, "%d operands are too many", count);
    return index == count;
}

/* Destinations and sources in one array that belongs to the module. */
static void store_values(struct parser *parser, struct emu_inst *inst,
                         const struct binding *b) {
    size_t total = (size_t)(b->dst_count + b->src_count);
    inst->dst = ARENA_NEW_ARRAY(parser->arena, struct emu_value, total + 1);
    inst->src = inst->dst + b->dst_count;
    memcpy(inst->dst, b->dst, sizeof b->dst[0] * (size_t)b->dst_count);
    memcpy(inst->src, b->src, sizeof b->src[0] * (size_t)b->src_count);
    inst->dst_count = (uint16_t)b->dst_count;
    inst->src_count = (uint16_t)b->src_count;
}

_Noreturn static void fail_without_form(struct parser *parser,
                                        const char *opcode, size_t best) {
    size_t mnemonic = strcspn(opcode, ".");
    if (best < mnemonic)
        emu_parse_fail(parser, "unsupported instruction '%s'", opcode);
    emu_parse_fail(
        parser, "unsupported form of '%.*s': '%s' is understood up to '%.*s'",
        (int)mnemonic, opcode, opcode, (int)best, opcode);
}

/* ---- the table --------------------------------------------------------- */

enum { FORM_COUNT = sizeof forms / sizeof forms[0] };

/* The first form from `start` on that the opcode fits; FORM_COUNT: none.
 * `io_best`: the most characters that any form understood. */
static int find_form(const char *opcode, int start, size_t *io_best) {
    for (int i = start; i < FORM_COUNT; i++) {
        size_t length = 0;
        if (forms[i].pattern[0] == opcode[0] &&
            match_pattern(forms[i].pattern, opcode, &length))
            return i;
        *io_best = length > *io_best ? length : *io_best;
    }
    return FORM_COUNT;
}

/* What the text of an opcode says, kept for the next instruction that
 * has it. */
static struct opcode_entry *find_opcode(struct parser *parser,
                                        const char *opcode, size_t *io_best) {
    uint32_t hash = 2166136261u;
    for (const char *p = opcode; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    struct opcode_entry *entry = &parser->opcodes[hash % PARSE_OPCODES];
    if (entry->opcode && strcmp(entry->opcode, opcode) == 0)
        return entry;
    *entry = (struct opcode_entry){.opcode = opcode,
                                   .form = find_form(opcode, 0, io_best)};
    apply_suffixes(&entry->inst, opcode);
    if (strncmp(opcode, "bar.", 4) == 0)
        entry->inst.mods |= EMU_MOD_ALIGNED;
    return entry;
}

static void copy_suffixes(struct emu_inst *to, const struct emu_inst *from) {
    to->mods = from->mods;
    to->type = from->type;
    to->type2 = from->type2;
    to->rounding = from->rounding;
    to->space = from->space;
    to->vector = from->vector;
    to->op = from->op;
    to->op2 = from->op2;
    to->round_integer = from->round_integer;
    to->shape_n = from->shape_n;
}

void emu_bind_instruction(struct parser *parser, struct emu_inst *inst,
                          const char *opcode,
                          const struct raw_operand *operands, int count) {
    struct binding binding;
    size_t best = 0;
    binding.why[0] = 0;
    const struct opcode_entry *entry = find_opcode(parser, opcode, &best);
    for (int i = entry->form; i < FORM_COUNT;
         i = find_form(opcode, i + 1, &best)) {
        struct emu_inst candidate = *inst;
        candidate.exec = forms[i].exec;
        candidate.unit = (uint8_t)forms[i].unit;
        copy_suffixes(&candidate, &entry->inst);
        if (!bind_operands(parser, &forms[i], &candidate, &binding, operands,
                           count))
            continue;
        store_values(parser, &candidate, &binding);
        *inst = candidate;
        return;
    }
    if (binding.why[0])
        emu_parse_fail(parser, "%s", binding.why);
    fail_without_form(parser, opcode, best);
}
