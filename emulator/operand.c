/* Reads one PTX instruction: guard, opcode and operands as written.
 *
 * Operands are read without knowing the opcode; bind.c then finds the form of
 * the instruction that they fit.
 */
#include <string.h>

#include "emulator/parse.h"

static const char *const special_names[EMU_SPECIAL_COUNT] = {
#define X(name, text) [EMU_SPECIAL_##name] = text,
    EMU_SPECIALS(X)
#undef X
};

/* The ordinary register behind a special one, made on first use. */
static struct symbol *special_register(struct parser *parser,
                                       const char *name) {
    for (int i = 0; i < EMU_SPECIAL_COUNT; i++) {
        if (strcmp(special_names[i], name) != 0)
            continue;
        if (!parser->module->special[i])
            parser->module->special[i] =
                emu_parse_add_register(parser, special_names[i], EMU_TYPE_u32);
        struct symbol *symbol = ARENA_NEW(parser->arena, struct symbol);
        *symbol = (struct symbol){.name = special_names[i],
                                  .kind = SYMBOL_REGISTER,
                                  .index = parser->module->special[i]};
        return symbol;
    }
    return NULL;
}

/* A register, a symbol with an offset, a label, or `_`. */
static void parse_named(struct parser *parser, struct raw_operand *out) {
    const char *name = emu_parse_name(parser);
    out->name = name;
    if (strcmp(name, "_") == 0) {
        out->kind = RAW_SINK;
        return;
    }
    out->symbol = emu_parse_lookup(parser, name);
    if (!out->symbol && name[0] == '%')
        out->symbol = special_register(parser, name);
    if (out->symbol && out->symbol->kind == SYMBOL_REGISTER) {
        out->kind = RAW_REGISTER;
        return;
    }
    out->kind = name[0] == '%' ? RAW_SPECIAL : RAW_NAME;
    while (emu_parse_is(parser, '+') || emu_parse_is(parser, '-')) {
        bool negative = emu_parse_is(parser, '-');
        emu_parse_advance(parser);
        int64_t value = emu_parse_integer(parser, INT32_MIN, UINT32_MAX);
        out->value += negative ? -value : value;
    }
}

/* A sign applies to the bits of floats. */
static void parse_number(struct parser *parser, struct raw_operand *out) {
    bool negative = emu_parse_accept(parser, '-');
    uint64_t value = parser->token.value;
    if (parser->token.kind == TOKEN_INTEGER) {
        out->kind = RAW_INTEGER;
        out->value = (int64_t)(negative ? 0 - value : value);
    } else if (parser->token.kind == TOKEN_FLOAT32) {
        out->kind = RAW_FLOAT32;
        out->value = (int64_t)(value ^ (negative ? 0x80000000u : 0));
    } else if (parser->token.kind == TOKEN_FLOAT64) {
        out->kind = RAW_FLOAT64;
        out->value = (int64_t)(value ^ (negative ? 1ull << 63 : 0));
    } else {
        emu_parse_fail(parser, "expected an operand, found '%.*s'",
                       parser->token.length > 40 ? 40
                                                 : (int)parser->token.length,
                       parser->token.text);
    }
    emu_parse_advance(parser);
}

static struct raw_operand parse_operand(struct parser *parser, int nesting);

/* Operands up to `close`, into `out`. */
static void parse_sequence(struct parser *parser, struct raw_operand *out,
                           char close, int nesting) {
    VEC(struct raw_operand) items = {0};
    while (!emu_parse_accept(parser, close)) {
        if (items.count && !emu_parse_accept(parser, ','))
            emu_parse_fail(parser, "expected ',' or '%c'", close);
        vec_push(parser->arena, &items, parse_operand(parser, nesting + 1));
        if (items.count > 512)
            emu_parse_fail(parser, "more than 512 operands in one vector");
    }
    out->items = items.data;
    out->item_count = (int)items.count;
}

/* [base], [base+4], [base+-4], [base, {coordinates}] behind the bracket. */
static void parse_address(struct parser *parser, struct raw_operand *out,
                          int nesting) {
    out->kind = RAW_ADDRESS;
    out->items = ARENA_NEW_ARRAY(parser->arena, struct raw_operand, 2);
    out->items[0] = parse_operand(parser, nesting + 1);
    out->item_count = 1;
    while (emu_parse_is(parser, '+') || emu_parse_is(parser, '-')) {
        bool negative = emu_parse_is(parser, '-');
        emu_parse_advance(parser);
        int64_t value = emu_parse_integer(parser, INT32_MIN, UINT32_MAX);
        out->value += negative ? -value : value;
    }
    if (emu_parse_accept(parser, ',')) {
        out->items[1] = parse_operand(parser, nesting + 1);
        out->item_count = 2;
    }
    emu_parse_expect(parser, ']');
}

/* One operand; nesting is bounded, whatever the input. */
static struct raw_operand parse_operand(struct parser *parser, int nesting) {
    struct raw_operand out = {0};
    if (nesting > 3)
        emu_parse_fail(parser, "operands nested deeper than 3");
    if (emu_parse_accept(parser, '[')) {
        parse_address(parser, &out, nesting);
    } else if (emu_parse_accept(parser, '{')) {
        out.kind = RAW_VECTOR;
        parse_sequence(parser, &out, '}', nesting);
    } else if (emu_parse_accept(parser, '(')) {
        out.kind = RAW_LIST;
        parse_sequence(parser, &out, ')', nesting);
    } else if (emu_parse_accept(parser, '!')) {
        parse_named(parser, &out);
        out.negated = true;
    } else if (parser->token.kind == TOKEN_WORD) {
        parse_named(parser, &out);
    } else {
        parse_number(parser, &out);
    }
    if (emu_parse_accept(parser, '|')) {
        out.second = ARENA_NEW(parser->arena, struct raw_operand);
        *out.second = parse_operand(parser, nesting + 1);
    }
    return out;
}

/* @p or @!p in front of an instruction. */
static struct emu_value parse_guard(struct parser *parser) {
    struct emu_value guard = {.reg = -1};
    if (!emu_parse_accept(parser, '@'))
        return guard;
    bool negated = emu_parse_accept(parser, '!');
    struct raw_operand raw = parse_operand(parser, 0);
    if (raw.kind != RAW_REGISTER ||
        emu_bind_value(parser, &raw, EMU_TYPE_pred, &guard) != NULL)
        emu_parse_fail(parser, "a guard that is no predicate register");
    guard.negated = negated;
    return guard;
}

/* The position that belongs to the instruction just read. */
static const char *instruction_origin(struct parser *parser) {
    if (parser->lexer.trailing &&
        parser->lexer.trailing_line == parser->inst_line) {
        const char *trailing = parser->lexer.trailing;
        parser->lexer.trailing = NULL;
        return trailing;
    }
    return parser->origin;
}

void emu_parse_instruction(struct parser *parser) {
    struct raw_operand operands[PARSE_MAX_OPERANDS];
    struct emu_inst inst = {.line = parser->token.line,
                            .source = (uint16_t)parser->source,
                            .reconverge = -1};
    int count = 0;
    parser->origin = parser->lexer.origin;
    inst.guard = parse_guard(parser);
    inst.text = parser->token.text;
    parser->inst_text = inst.text;
    parser->inst_line = inst.line;
    const char *opcode = emu_parse_name(parser);
    while (!emu_parse_is(parser, ';')) {
        if (count && !emu_parse_accept(parser, ','))
            emu_parse_fail(parser, "expected ',' or ';' between operands");
        if (count == PARSE_MAX_OPERANDS)
            emu_parse_fail(parser, "more than %d operands", PARSE_MAX_OPERANDS);
        operands[count++] = parse_operand(parser, 0);
    }
    inst.text_length = (int32_t)(parser->token.text - inst.text);
    emu_bind_instruction(parser, &inst, opcode, operands, count);
    emu_parse_advance(parser); /* reads on to the comment behind `;` */
    inst.origin = instruction_origin(parser);
    vec_push(parser->arena, &parser->module->insts, inst);
}
