/* PTX parser, module level: directives, variables, functions, scopes, symbols.
 *
 * One pass; names are resolved at once except labels (end of function),
 * functions (end of module: several texts are linked) and the address of
 * dynamic shared memory (after all static shared variables).  Errors leave by
 * longjmp: everything allocated belongs to the module's arena.
 */
#include "emulator/parse.h"

#include "emulator/exec.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void emu_parse_fail(struct parser *parser, const char *format, ...) {
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    const char *text = parser->inst_text, *end = parser->lexer.end;
    int length = 0, line = text ? parser->inst_line : parser->token.line;
    while (text && text + length < end && length < 160 && text[length] != ';' &&
           text[length] != '\n')
        length++;
    snprintf(parser->error->text, sizeof parser->error->text,
             "%s:%d: error: %s%s%.*s",
             parser->module->sources[parser->source].name, line, message,
             length ? "\n    " : "", length, text ? text : "");
    longjmp(*parser->failed, 1);
}

void emu_parse_advance(struct parser *parser) {
    parser->token = emu_lexer_next(&parser->lexer);
    if (parser->token.kind == TOKEN_BAD)
        emu_parse_fail(
            parser, "line %d: malformed token '%.*s'", parser->token.line,
            parser->token.length > 20 ? 20 : (int)parser->token.length,
            parser->token.text);
}

bool emu_parse_is(const struct parser *parser, char punct) {
    return parser->token.kind == TOKEN_PUNCT && parser->token.punct == punct;
}

bool emu_parse_is_word(const struct parser *parser, const char *word) {
    const struct token *token = &parser->token;
    return token->kind == TOKEN_WORD && token->length == strlen(word) &&
           memcmp(token->text, word, token->length) == 0;
}

bool emu_parse_accept(struct parser *parser, char punct) {
    bool is = emu_parse_is(parser, punct);
    if (is)
        emu_parse_advance(parser);
    return is;
}

bool emu_parse_accept_word(struct parser *parser, const char *word) {
    bool is = emu_parse_is_word(parser, word);
    if (is)
        emu_parse_advance(parser);
    return is;
}

void emu_parse_expect(struct parser *parser, char punct) {
    if (emu_parse_accept(parser, punct))
        return;
    const struct token *token = &parser->token;
    emu_parse_fail(parser, "expected '%c', found '%.*s'", punct,
                   token->length > 40 ? 40 : (int)token->length, token->text);
}

const char *emu_parse_name(struct parser *parser) {
    const struct token *token = &parser->token;
    if (token->kind != TOKEN_WORD)
        emu_parse_fail(parser, "expected a name, found '%.*s'",
                       token->length > 40 ? 40 : (int)token->length,
                       token->text);
    if (token->length > 4096)
        emu_parse_fail(parser, "a name of %zu bytes; the limit is 4096",
                       token->length);
    const char *name = arena_strndup(parser->arena, token->text, token->length);
    emu_parse_advance(parser);
    return name;
}

int64_t emu_parse_integer(struct parser *parser, int64_t low, int64_t high) {
    bool negative = emu_parse_accept(parser, '-');
    if (parser->token.kind != TOKEN_INTEGER)
        emu_parse_fail(parser, "expected an integer");
    int64_t value = (int64_t)parser->token.value;
    value = negative ? (int64_t)(0 - (uint64_t)value) : value;
    if (value < low || value > high)
        emu_parse_fail(parser, "%lld is not in [%lld, %lld]", (long long)value,
                       (long long)low, (long long)high);
    emu_parse_advance(parser);
    return value;
}

/* ---- functions ---------------------------------------------------------- */

static struct emu_function *current_function(struct parser *parser) {
    return &parser->module->functions.data[parser->function];
}

/* .reg .b32 %a, %b<8>; */
static void parse_registers(struct parser *parser) {
    const char *word = emu_parse_name(parser);
    if (strcmp(word, ".v2") == 0 || strcmp(word, ".v4") == 0)
        emu_parse_fail(parser, "vector registers are not supported");
    enum emu_type type = emu_parse_type(word);
    if (type == EMU_TYPE_NONE)
        emu_parse_fail(parser, "'%s' is no register type", word);
    do {
        const char *name = emu_parse_name(parser);
        int64_t count = -1;
        if (emu_parse_accept(parser, '<')) {
            count = emu_parse_integer(parser, 0, 1 << 17);
            emu_parse_expect(parser, '>');
        }
        for (int64_t i = 0; i < (count < 0 ? 1 : count); i++) {
            const char *full = count < 0 ? name
                                         : arena_printf(parser->arena, "%s%lld",
                                                        name, (long long)i);
            emu_parse_declare(parser, full, SYMBOL_REGISTER)->index =
                emu_parse_add_register(parser, full, type);
        }
    } while (emu_parse_accept(parser, ','));
    emu_parse_expect(parser, ';');
}

/* .loc file line column [, function_name …, inlined_at …] */
static void parse_loc(struct parser *parser) {
    int64_t file = emu_parse_integer(parser, 0, INT32_MAX);
    int64_t line = emu_parse_integer(parser, 0, INT32_MAX);
    const char *name = file < 64 ? parser->loc_file[file] : NULL;
    /* Before the last token is skipped: a comment behind it comes later. */
    if (line > 0 && name)
        parser->lexer.origin =
            arena_printf(parser->arena, "%s:%lld:%llu", name, (long long)line,
                         (unsigned long long)parser->token.value);
    emu_parse_integer(parser, 0, INT32_MAX);
    while (emu_parse_accept(parser, ',')) {
        const char *word = emu_parse_name(parser);
        if (strcmp(word, "function_name") == 0) {
            emu_parse_name(parser);
            if (emu_parse_accept(parser, '+'))
                emu_parse_integer(parser, 0, INT64_MAX);
        } else {
            for (int i = 0; i < 3; i++)
                emu_parse_integer(parser, 0, INT32_MAX);
        }
    }
}

/* NAME: .branchtargets L1, L2; behind its colon. */
static void parse_branch_targets(struct parser *parser, const char *name) {
    struct symbol *symbol = emu_parse_declare(parser, name, SYMBOL_TARGETS);
    VEC(int32_t) targets = {0};
    do {
        const char *label = emu_parse_name(parser);
        vec_push(parser->arena, &targets, emu_parse_label(parser, label));
    } while (emu_parse_accept(parser, ','));
    emu_parse_expect(parser, ';');
    symbol->targets = targets.data;
    symbol->target_count = (int32_t)targets.count;
}

static void parse_pragma(struct parser *parser) {
    do {
        if (parser->token.kind != TOKEN_STRING)
            emu_parse_fail(parser, "expected a string after .pragma");
        emu_parse_advance(parser);
    } while (emu_parse_accept(parser, ','));
    emu_parse_expect(parser, ';');
}

/* The label is the next instruction. */
static void define_label(struct parser *parser, const char *name) {
    int32_t label = emu_parse_label(parser, name);
    if (parser->labels.data[label] >= 0)
        emu_parse_fail(parser, "label '%s' is defined twice", name);
    parser->labels.data[label] = (int32_t)parser->module->insts.count;
}

static void parse_directive(struct parser *parser) {
    if (emu_parse_accept_word(parser, ".reg"))
        parse_registers(parser);
    else if (emu_parse_accept_word(parser, ".loc"))
        parse_loc(parser);
    else if (emu_parse_accept_word(parser, ".pragma"))
        parse_pragma(parser);
    else if (!emu_parse_variable(parser, false))
        emu_parse_fail(parser, "unsupported directive '%s'",
                       emu_parse_name(parser));
}

/* A block, a directive, a label or an instruction. */
static void parse_statement(struct parser *parser) {
    parser->inst_text = parser->token.text;
    parser->inst_line = parser->token.line;
    if (emu_parse_accept(parser, '{')) {
        emu_parse_scope_open(parser);
    } else if (emu_parse_is(parser, '}')) {
        emu_parse_scope_close(parser);
        emu_parse_advance(parser);
    } else if (emu_parse_accept(parser, ';')) {
        return;
    } else if (parser->token.kind == TOKEN_WORD &&
               parser->token.text[0] == '.') {
        parse_directive(parser);
    } else if (parser->token.kind == TOKEN_WORD || emu_parse_is(parser, '@')) {
        struct lexer ahead = parser->lexer;
        struct token next = emu_lexer_next(&ahead);
        if (parser->token.kind == TOKEN_WORD && next.kind == TOKEN_PUNCT &&
            next.punct == ':') {
            const char *name = emu_parse_name(parser);
            emu_parse_expect(parser, ':');
            if (emu_parse_accept_word(parser, ".branchtargets"))
                parse_branch_targets(parser, name);
            else
                define_label(parser, name);
        } else {
            emu_parse_instruction(parser);
        }
    } else {
        emu_parse_fail(parser, "expected an instruction");
    }
    parser->inst_text = NULL;
}

/* Labels to program counters, once the function is complete. */
static void resolve_labels(struct parser *parser,
                           struct emu_function *function) {
    for (int32_t pc = function->first; pc < function->end; pc++) {
        struct emu_inst *inst = &parser->module->insts.data[pc];
        parser->inst_text = inst->text;
        parser->inst_line = inst->line;
        int32_t *labels = inst->targets ? inst->targets : &inst->target;
        int32_t count =
            inst->targets ? inst->target_count : inst->reconverge == -2;
        for (int32_t i = 0; i < count; i++) {
            int32_t label = labels[i];
            if (parser->labels.data[label] < 0)
                emu_parse_fail(parser, "label '%s' is not defined",
                               parser->label_names.data[label]);
            labels[i] = parser->labels.data[label];
        }
    }
    parser->inst_text = NULL;
}

/* The added last instruction is the one exit of the function. */
static void parse_body(struct parser *parser) {
    struct emu_module *module = parser->module;
    current_function(parser)->first = (int32_t)module->insts.count;
    current_function(parser)->reg_first = (int32_t)module->registers.count;
    int depth = parser->depth;
    emu_parse_scope_open(parser);
    int line = parser->token.line;
    while (parser->depth > depth) {
        if (parser->token.kind == TOKEN_END)
            emu_parse_fail(parser, "the body that starts at line %d has no end",
                           line);
        parse_statement(parser);
        if (module->insts.count > 1u << 22)
            emu_parse_fail(parser, "more than %u instructions", 1u << 22);
    }
    vec_push(parser->arena, &module->insts,
             (struct emu_inst){.exec = exec_end,
                               .guard.reg = -1,
                               .text = "}",
                               .text_length = 1,
                               .line = parser->lexer.line,
                               .origin = "",
                               .source = (uint16_t)parser->source,
                               .reconverge = -1});
    struct emu_function *function = current_function(parser);
    function->end = (int32_t)module->insts.count;
    function->reg_end = (int32_t)module->registers.count;
    function->defined = true;
    resolve_labels(parser, function);
    emu_cfg_analyse(module, function);
}

/* Performance directives between a function's head and its body. */
static void parse_function_directives(struct parser *parser) {
    struct emu_function *function = current_function(parser);
    static const char *const counted[] = {
        ".maxntid",      ".reqntid",        ".minnctapersm",     ".maxnreg",
        ".maxnctapersm", ".maxclusterrank", ".reqnctapercluster"};
    while (parser->token.kind == TOKEN_WORD) {
        const char *word = emu_parse_name(parser);
        uint32_t values[3] = {1, 1, 1};
        size_t known = 0;
        while (known < 7 && strcmp(counted[known], word) != 0)
            known++;
        if (known == 7 && strcmp(word, ".explicitcluster") != 0 &&
            strcmp(word, ".noreturn") != 0 && strcmp(word, ".pragma") != 0)
            emu_parse_fail(
                parser, "unsupported directive '%s' in front of a body", word);
        if (strcmp(word, ".pragma") == 0)
            parse_pragma(parser);
        int axis = 0;
        while (known < 7 && axis < 3 &&
               (axis == 0 || emu_parse_accept(parser, ',')))
            values[axis++] = (uint32_t)emu_parse_integer(parser, 0, INT32_MAX);
        uint64_t product = (uint64_t)values[0] * values[1] * values[2];
        if (known == 0)
            function->max_threads = product > 1024 ? 1024 : (uint32_t)product;
        else if (known == 1)
            memcpy(function->required_threads, values, sizeof values);
        else if (known == 6 && product != 1)
            emu_parse_fail(
                parser,
                "clusters of %llu CTAs; only clusters of 1 are emulated",
                (unsigned long long)product);
    }
}

/* Adds or finds the function; a definition may follow a declaration. */
static int32_t function_index(struct parser *parser, const char *name,
                              bool entry) {
    struct symbol *symbol = emu_parse_lookup(parser, name);
    if (symbol && symbol->kind != SYMBOL_FUNCTION)
        emu_parse_fail(parser, "'%s' is declared twice", name);
    if (symbol)
        return symbol->index;
    int depth = parser->depth;
    parser->depth = 0; /* functions are shared by all texts of the module */
    symbol = emu_parse_declare(parser, name, SYMBOL_FUNCTION);
    parser->depth = depth;
    symbol->index = (int32_t)parser->module->functions.count;
    vec_push(parser->arena, &parser->module->functions,
             (struct emu_function){
                 .name = name, .entry = entry, .max_threads = 1024});
    return symbol->index;
}

/* Results and parameters of one head; a definition replaces a declaration's. */
static void set_params(struct parser *parser, struct emu_function *function,
                       const struct param_list *results,
                       const struct param_list *params) {
    int32_t count = (int32_t)(results->count + params->count);
    if (function->params && function->param_count != count)
        emu_parse_fail(
            parser, "'%s' was declared with %d parameters and results, here %d",
            function->name, (int)function->param_count, (int)count);
    function->params =
        ARENA_NEW_ARRAY(parser->arena, struct emu_param, (size_t)count + 1);
    function->param_count = count;
    function->result_count = (int32_t)results->count;
    for (size_t i = 0; i < results->count; i++)
        function->params[i] = results->data[i];
    for (size_t i = 0; i < params->count; i++)
        function->params[results->count + i] = params->data[i];
    if (params->count && function->entry)
        function->param_bytes = params->data[params->count - 1].offset +
                                params->data[params->count - 1].size;
}

/* [.visible …] .entry|.func [(results)] NAME [(params)] directives; | {body} */
static void parse_function(struct parser *parser, bool entry) {
    int line = parser->token.line;
    struct param_list results = {0}, params = {0};
    parser->function = -1;
    parser->entry_params = entry;
    emu_parse_scope_open(parser); /* of the formal parameters */
    if (!entry && emu_parse_is(parser, '('))
        emu_parse_params(parser, &results);
    while (emu_parse_accept_word(parser, ".noreturn"))
        continue;
    const char *name = emu_parse_name(parser);
    if (emu_parse_is(parser, '('))
        emu_parse_params(parser, &params);
    int32_t index = function_index(parser, name, entry);
    struct emu_function *function = &parser->module->functions.data[index];
    parser->function = index;
    set_params(parser, function, &results, &params);
    parse_function_directives(parser);
    if (!emu_parse_accept(parser, ';')) {
        if (!emu_parse_is(parser, '{'))
            emu_parse_fail(parser, "expected the body of '%s' (line %d)", name,
                           line);
        if (current_function(parser)->defined)
            emu_parse_fail(parser, "'%s' is defined twice", name);
        emu_parse_advance(parser);
        emu_parse_labels_reset(parser);
        parse_body(parser);
    }
    emu_parse_scope_close(parser);
    parser->function = -1;
}

/* ---- module ------------------------------------------------------------ */

static void parse_file(struct parser *parser) {
    int64_t number = emu_parse_integer(parser, 0, INT32_MAX);
    if (parser->token.kind != TOKEN_STRING)
        emu_parse_fail(parser, "expected a file name after .file");
    const char *name =
        arena_strndup(parser->arena, parser->token.text, parser->token.length);
    const char *base = strrchr(name, '/');
    if (number < 64)
        parser->loc_file[number] = base ? base + 1 : name;
    emu_parse_advance(parser);
    while (emu_parse_accept(parser, ','))
        emu_parse_integer(parser, INT64_MIN, INT64_MAX);
}

/* .section NAME { … }: debug information, skipped. */
static void parse_section(struct parser *parser) {
    emu_parse_name(parser);
    emu_parse_expect(parser, '{');
    int depth = 1;
    while (depth > 0) {
        if (parser->token.kind == TOKEN_END)
            emu_parse_fail(parser, "a .section without an end");
        depth += emu_parse_is(parser, '{') - emu_parse_is(parser, '}');
        emu_parse_advance(parser);
    }
}

/* Several targets: the highest one sets the rates of the timeline. */
static void parse_target(struct parser *parser) {
    do {
        const char *word = emu_parse_name(parser);
        if (strncmp(word, "sm_", 3) == 0)
            parser->module->sm = atoi(word + 3) > parser->module->sm
                                     ? atoi(word + 3)
                                     : parser->module->sm;
    } while (emu_parse_accept(parser, ','));
}

static void parse_module_item(struct parser *parser) {
    while (emu_parse_accept_word(parser, ".visible") ||
           emu_parse_accept_word(parser, ".weak") ||
           emu_parse_accept_word(parser, ".common"))
        continue;
    bool is_extern = emu_parse_accept_word(parser, ".extern");
    if (emu_parse_accept_word(parser, ".entry")) {
        parse_function(parser, true);
    } else if (emu_parse_accept_word(parser, ".func")) {
        parse_function(parser, false);
    } else if (emu_parse_variable(parser, is_extern)) {
        return;
    } else if (emu_parse_accept_word(parser, ".version")) {
        if (parser->token.kind != TOKEN_FLOAT64)
            emu_parse_fail(parser, "expected a version such as 8.0");
        emu_parse_advance(parser);
    } else if (emu_parse_accept_word(parser, ".target")) {
        parse_target(parser);
    } else if (emu_parse_accept_word(parser, ".address_size")) {
        emu_parse_integer(parser, 64, 64);
    } else if (emu_parse_accept_word(parser, ".file")) {
        parse_file(parser);
    } else if (emu_parse_accept_word(parser, ".loc")) {
        parse_loc(parser);
    } else if (emu_parse_accept_word(parser, ".section")) {
        parse_section(parser);
    } else if (emu_parse_accept_word(parser, ".pragma")) {
        parse_pragma(parser);
    } else {
        emu_parse_fail(parser, "expected a directive, found '%.*s'",
                       parser->token.length > 40 ? 40
                                                 : (int)parser->token.length,
                       parser->token.text);
    }
}

/* nvcc writes .file behind the functions whose .loc use it: read them first. */
static void scan_files(struct parser *parser) {
    struct lexer start = parser->lexer;
    for (struct token t = emu_lexer_next(&parser->lexer); t.kind != TOKEN_END;
         t = emu_lexer_next(&parser->lexer)) {
        if (t.kind != TOKEN_WORD || t.length != 5 ||
            memcmp(t.text, ".file", 5) != 0)
            continue;
        emu_parse_advance(parser);
        parse_file(parser);
        if (parser->token.kind == TOKEN_END)
            break;
    }
    parser->lexer = start;
}

void emu_parse_text(struct parser *parser, int source) {
    const struct emu_source *text = &parser->module->sources[source];
    parser->source = source;
    emu_lexer_init(&parser->lexer, parser->arena, text->text, text->length);
    parser->origin = "";
    parser->inst_text = NULL;
    memset(parser->loc_file, 0, sizeof parser->loc_file);
    scan_files(parser);
    emu_parse_scope_open(parser);
    emu_parse_advance(parser);
    while (parser->token.kind != TOKEN_END)
        parse_module_item(parser);
    emu_parse_scope_close(parser);
}
