/* Variables and parameters of PTX text: where they live and what is in them.
 *
 * .global and .const become allocations of the device, .shared gets offsets in
 * the CTA's window, .local and the .param of functions get offsets in a
 * thread's local memory (functions do not recurse, so each has its own place),
 * .param of entries are offsets in the parameter buffer.
 */
#include <string.h>

#include "emulator/memory.h"
#include "emulator/parse.h"
#include "support/bits.h"

enum { MAX_VARIABLE_BYTES = 1 << 26 };

struct declarator {
    const char *name;
    enum emu_type type;
    uint32_t align, vector;
    uint64_t elements; /* 0: an array without extent */
    bool is_array;
};

/* [.align N] [.ptr …] [.v2] .type NAME [extents] */
static struct declarator parse_declarator(struct parser *parser) {
    struct declarator d = {.vector = 1, .elements = 1};
    while (parser->token.kind == TOKEN_WORD && parser->token.text[0] == '.') {
        const char *word = emu_parse_name(parser);
        if (strcmp(word, ".align") == 0) {
            d.align = (uint32_t)emu_parse_integer(parser, 1, 4096);
            if (d.align & (d.align - 1))
                emu_parse_fail(parser, "alignment %u is no power of two",
                               d.align);
        } else if (strcmp(word, ".v2") == 0 || strcmp(word, ".v4") == 0) {
            d.vector = (uint32_t)(word[2] - '0');
        } else if (emu_parse_type(word) != EMU_TYPE_NONE) {
            d.type = emu_parse_type(word);
        } else if (strcmp(word, ".ptr") != 0 && strcmp(word, ".global") != 0 &&
                   strcmp(word, ".shared") != 0 &&
                   strcmp(word, ".const") != 0 && strcmp(word, ".local") != 0) {
            emu_parse_fail(parser, "unsupported '%s' in a declaration", word);
        }
    }
    if (d.type == EMU_TYPE_NONE)
        emu_parse_fail(parser, "a declaration without a type");
    d.name = emu_parse_name(parser);
    while (emu_parse_accept(parser, '[')) {
        d.is_array = true;
        if (emu_parse_accept(parser, ']')) {
            d.elements = 0;
            continue;
        }
        d.elements *=
            (uint64_t)emu_parse_integer(parser, 0, MAX_VARIABLE_BYTES);
        emu_parse_expect(parser, ']');
        if (d.elements > MAX_VARIABLE_BYTES)
            emu_parse_fail(parser, "'%s' is larger than %d bytes", d.name,
                           MAX_VARIABLE_BYTES);
    }
    return d;
}

static uint32_t element_bytes(const struct declarator *d) {
    uint32_t bytes = emu_type_bytes(d->type);
    return bytes * d->vector;
}

static uint32_t round_up(uint32_t value, uint32_t align) {
    return (value + align - 1) / align * align;
}

/* Fails on arrays that no kernel has. */
static uint32_t variable_size(struct parser *parser,
                              const struct declarator *d) {
    uint64_t size = d->elements * element_bytes(d);
    if (size > MAX_VARIABLE_BYTES)
        emu_parse_fail(parser, "'%s' is larger than %d bytes", d->name,
                       MAX_VARIABLE_BYTES);
    return (uint32_t)size;
}

/* Without .align a variable has the alignment of its element. */
static uint32_t variable_align(const struct declarator *d) {
    return d->align ? d->align : element_bytes(d) ? element_bytes(d) : 1;
}

/* One initial value as bytes at `at`. */
static void parse_initial_value(struct parser *parser,
                                const struct declarator *d, uint8_t *at) {
    uint32_t bytes = emu_type_bytes(d->type);
    bool negative = emu_parse_accept(parser, '-');
    uint64_t value = parser->token.value;
    if (parser->token.kind == TOKEN_FLOAT64 && bytes == 4) {
        double wide = double_of_bits(value);
        value = bits_of_float((float)(negative ? -wide : wide));
    } else if (parser->token.kind == TOKEN_INTEGER) {
        value = negative ? 0 - value : value;
    } else if (parser->token.kind != TOKEN_FLOAT32 &&
               parser->token.kind != TOKEN_FLOAT64) {
        emu_parse_fail(parser,
                       "only numbers are supported as initial values of '%s'",
                       d->name);
    } else if (negative) {
        value ^= 1ull << (bytes * 8 - 1);
    }
    emu_parse_advance(parser);
    memcpy(at, &value, bytes < 8 ? bytes : 8);
}

/* Values in nested braces, in order; what is not given is zero. */
static void parse_initialiser(struct parser *parser, const struct declarator *d,
                              uint8_t *bytes, uint32_t size) {
    uint32_t step = emu_type_bytes(d->type), at = 0, depth = 0;
    do {
        while (emu_parse_accept(parser, '{'))
            depth++;
        if (at + step > size)
            emu_parse_fail(parser, "too many initial values for '%s'", d->name);
        parse_initial_value(parser, d, bytes + at);
        at += step;
        while (depth > 0 && emu_parse_accept(parser, '}'))
            depth--;
    } while (depth > 0 && emu_parse_accept(parser, ','));
    if (depth > 0)
        emu_parse_fail(parser, "expected '}' behind the initial values of '%s'",
                       d->name);
}

/* Module variables are allocations like tensors: the same checks apply. */
static void place_global(struct parser *parser, const struct declarator *d,
                         struct symbol *symbol, uint32_t size, bool is_extern) {
    if (is_extern)
        emu_parse_fail(parser, "extern variable '%s' is not supported",
                       d->name);
    parser->global_bytes += size;
    if (parser->global_bytes > MAX_VARIABLE_BYTES)
        emu_parse_fail(parser, "more than %d bytes of module variables",
                       MAX_VARIABLE_BYTES);
    symbol->address =
        emu_memory_allocate(parser->module->memory, size, d->name);
    if (!symbol->address)
        emu_parse_fail(parser, "no memory for '%s'", d->name);
    uint8_t *bytes = arena_alloc(parser->arena, size);
    bool initialised = emu_parse_accept(parser, '=');
    if (initialised)
        parse_initialiser(parser, d, bytes, size);
    /* Module-scope variables without a value are zero. */
    emu_memory_write(parser->module->memory, symbol->address, bytes, size);
}

/* Gives a variable its place in its state space. */
static void place_variable(struct parser *parser, const struct declarator *d,
                           struct symbol *symbol, bool is_extern) {
    struct emu_module *module = parser->module;
    uint32_t size = variable_size(parser, d), align = variable_align(d);
    symbol->size = size;
    symbol->align = align;
    if (symbol->space == EMU_SPACE_GLOBAL || symbol->space == EMU_SPACE_CONST) {
        place_global(parser, d, symbol, size, is_extern);
    } else if (symbol->space == EMU_SPACE_SHARED && d->is_array &&
               d->elements == 0) {
        symbol->is_dynamic = true;
        if (align > parser->dynamic_align)
            parser->dynamic_align = align;
    } else if (symbol->space == EMU_SPACE_SHARED) {
        parser->static_shared = round_up(parser->static_shared, align);
        symbol->address = parser->static_shared;
        parser->static_shared += size;
    } else {
        symbol->is_local_param = symbol->space == EMU_SPACE_PARAM;
        module->local_bytes =
            round_up(module->local_bytes, align > 16 ? align : 16);
        symbol->address = module->local_bytes;
        module->local_bytes += size;
    }
    if (parser->static_shared > MAX_VARIABLE_BYTES ||
        module->local_bytes > 1 << 20)
        emu_parse_fail(
            parser,
            "'%s' does not fit: %u bytes of static shared memory, %u bytes of "
            "local memory in all",
            d->name, parser->static_shared, module->local_bytes);
}

bool emu_parse_variable(struct parser *parser, bool is_extern) {
    static const struct {
        const char *word;
        enum emu_space space;
    } spaces[] = {{".global", EMU_SPACE_GLOBAL},
                  {".const", EMU_SPACE_CONST},
                  {".shared", EMU_SPACE_SHARED},
                  {".local", EMU_SPACE_LOCAL},
                  {".param", EMU_SPACE_PARAM}};
    size_t i = 0;
    while (i < 5 && !emu_parse_is_word(parser, spaces[i].word))
        i++;
    if (i == 5)
        return false;
    emu_parse_advance(parser);
    struct declarator d = parse_declarator(parser);
    struct symbol *symbol = emu_parse_declare(parser, d.name, SYMBOL_VARIABLE);
    symbol->space = spaces[i].space;
    place_variable(parser, &d, symbol, is_extern);
    emu_parse_expect(parser, ';');
    return true;
}

/* One formal parameter; entries lay theirs out in the parameter buffer. */
static void parse_param(struct parser *parser, struct emu_param *param,
                        uint32_t *offset) {
    if (emu_parse_accept_word(parser, ".reg")) {
        const char *type_name = emu_parse_name(parser);
        enum emu_type type = emu_parse_type(type_name);
        if (type == EMU_TYPE_NONE)
            emu_parse_fail(parser, "'%s' is no register type", type_name);
        param->name = emu_parse_name(parser);
        int32_t reg = emu_parse_add_register(parser, param->name, type);
        emu_parse_declare(parser, param->name, SYMBOL_REGISTER)->index = reg;
        emu_bind_value(parser,
                       &(struct raw_operand){
                           .kind = RAW_REGISTER,
                           .symbol = emu_parse_lookup(parser, param->name)},
                       type, &param->reg);
        return;
    }
    if (!emu_parse_accept_word(parser, ".param"))
        emu_parse_fail(parser, "expected .param or .reg");
    struct declarator d = parse_declarator(parser);
    struct symbol *symbol = emu_parse_declare(parser, d.name, SYMBOL_VARIABLE);
    symbol->space = EMU_SPACE_PARAM;
    param->name = d.name;
    if (parser->entry_params) {
        symbol->size = variable_size(parser, &d);
        symbol->align = variable_align(&d);
        *offset = round_up(*offset, symbol->align);
        symbol->address = *offset;
        *offset += symbol->size;
        if (*offset > 32764)
            emu_parse_fail(parser, "more than 32764 bytes of parameters");
    } else {
        place_variable(parser, &d, symbol, false);
    }
    param->offset = (uint32_t)symbol->address;
    param->size = symbol->size;
    param->align = symbol->align;
}

void emu_parse_params(struct parser *parser, struct param_list *out_params) {
    uint32_t offset = 0;
    emu_parse_expect(parser, '(');
    while (!emu_parse_accept(parser, ')')) {
        if (out_params->count && !emu_parse_accept(parser, ','))
            emu_parse_fail(parser, "expected ',' or ')' between parameters");
        struct emu_param param = {.reg.reg = -1};
        parse_param(parser, &param, &offset);
        vec_push(parser->arena, out_params, param);
    }
}
