/* Messages about syntax: what was found, what was expected, and where it helps
 * what was probably meant. */
#include "frontend/parse_error.h"

#include <string.h>

static const char *const item_words[] = {
    "dtype", "head_dim", "group", "scale",  "param",    "tensor",
    "let",   "score",    "mask",  "target", "schedule",
};
static const char *const top_words[] = {"attention", "fn", "const", "import",
                                        "extern"};

enum {
    ITEM_WORDS = sizeof item_words / sizeof *item_words,
    TOP_WORDS = sizeof top_words / sizeof *top_words,
    QUOTE_BYTES = 40,
};

/* The tokens that the parser could have taken. */
struct expected {
    const char *const *names;
    size_t count;
};

static bool has(const struct expected *set, const char *name) {
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(set->names[i], name) == 0)
            return true;
    return false;
}

static bool is_one_of(const char *word, const char *const *words,
                      size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static const char *slice(struct parse_ctx *ctx, struct source_range where) {
    uint32_t length = where.end - where.begin;
    bool cut = length > QUOTE_BYTES;
    char *text = arena_strndup(ctx->arena, ctx->source->text + where.begin,
                               cut ? QUOTE_BYTES : length);
    return diag_name(ctx->diags,
                     cut ? arena_printf(ctx->arena, "%s...", text) : text);
}

const char *parse_error_quote(struct parse_ctx *ctx,
                              struct source_range where) {
    if (where.begin >= ctx->source->length)
        return "end of file";
    return arena_printf(ctx->arena, "'%s'", slice(ctx, where));
}

/* Adds one alternative to "a, b or c"; `left` is how many follow. */
static void add_alternative(struct strbuf *out, const char *text, size_t left) {
    if (out->length)
        strbuf_append(out, left ? ", " : " or ");
    strbuf_append(out, text);
}

/* Said already by "an expression", "an operator" or "a name", or legal only
 * because the parser mends a missing ';'. */
static bool is_implied(const struct expected *set, const char *name) {
    bool operand = has(set, "number"), operators = has(set, "'+'");
    if (strcmp(name, "'('") == 0)
        return operand || operators;
    if (strcmp(name, "'['") == 0)
        return operators;
    if (strcmp(name, "'}'") == 0)
        return has(set, "';'");
    if (strcmp(name, "fn") == 0)
        return operand || has(set, "name") || has(set, "attention");
    return false;
}

/* "an operator or ';'": the expected tokens, families under one name. */
static const char *describe(struct parse_ctx *ctx, const struct expected *set) {
    const char *parts[64];
    size_t count = 0;
    bool operand = has(set, "number"), operators = has(set, "'+'");
    if (operand)
        parts[count++] = "an expression";
    else if (has(set, "name"))
        parts[count++] = "a name";
    if (operators)
        parts[count++] = "an operator";
    for (size_t i = 0; i < set->count && count < 64; i++) {
        const char *name = set->names[i];
        bool punctuation = strchr(";,)]}({[:=", name[1]) && name[0] == '\'';
        bool other = strcmp(name, "->") == 0 || strcmp(name, "fn") == 0 ||
                     strcmp(name, "string") == 0;
        if (is_implied(set, name))
            continue;
        if (strcmp(name, "string") == 0)
            parts[count++] = "a string";
        else if (other)
            parts[count++] = arena_printf(ctx->arena, "'%s'", name);
        else if (punctuation)
            parts[count++] = name;
    }
    struct strbuf out;
    strbuf_init(&out, ctx->arena);
    for (size_t i = 0; i < count; i++)
        add_alternative(&out, parts[i], count - 1 - i);
    return strbuf_text(&out);
}

/* True where a new item or a new thing at top level can start. */
static bool at_start(const struct parse_ctx *ctx) {
    if (ctx->previous.end == 0)
        return true;
    return strchr(";{}", ctx->source->text[ctx->previous.end - 1]) != NULL;
}

static const char *found_word(struct parse_ctx *ctx) {
    const struct source_range w = ctx->current;
    return arena_strndup(ctx->arena, ctx->source->text + w.begin,
                         w.end - w.begin);
}

/* A word that starts no item: misspelled, or in the wrong place. */
static void report_unknown_item(struct parse_ctx *ctx) {
    const char *word = found_word(ctx);
    const char *close = diag_closest(word, item_words, ITEM_WORDS);
    if (is_one_of(word, top_words, TOP_WORDS))
        diag_error(ctx->diags, ctx->current,
                   "'%s' belongs outside of the attention", word);
    else if (close)
        diag_error(ctx->diags, ctx->current,
                   "unknown item '%s'; did you mean '%s'?",
                   diag_name(ctx->diags, word), close);
    else
        diag_error(ctx->diags, ctx->current,
                   "unknown item '%s'; expected dtype, head_dim, group, scale, "
                   "param, tensor, "
                   "let, score, mask, target or schedule",
                   diag_name(ctx->diags, word));
}

static void report_unknown_top(struct parse_ctx *ctx) {
    const char *word = found_word(ctx);
    const char *close = diag_closest(word, top_words, TOP_WORDS);
    if (is_one_of(word, item_words, ITEM_WORDS))
        diag_error(ctx->diags, ctx->current,
                   "'%s' belongs inside of an attention", word);
    else if (close)
        diag_error(ctx->diags, ctx->current,
                   "unexpected '%s'; did you mean '%s'?",
                   diag_name(ctx->diags, word), close);
    else
        diag_error(
            ctx->diags, ctx->current,
            "unexpected %s; expected attention, fn, const, import or extern",
            parse_error_quote(ctx, ctx->current));
}

static void report_end_of_file(struct parse_ctx *ctx,
                               const struct expected *set) {
    if (has(set, "';'") && !at_start(ctx))
        syn_missing_semicolon(ctx);
    if (ctx->braces.count) {
        diag_error(ctx->diags, ctx->current,
                   "missing '}' at the end of the file");
        diag_note(ctx->diags, ctx->braces.data[ctx->braces.count - 1],
                  "the '{' is here");
    } else if (at_start(ctx) || !has(set, "';'")) {
        diag_error(ctx->diags, ctx->current,
                   "unexpected end of file, expected %s", describe(ctx, set));
    }
}

/* "; did you mean '&&'?" where a word or sign of another language was found. */
static const char *hint(struct parse_ctx *ctx, const struct expected *set) {
    static const char *const pairs[][2] = {
        {"=", "=="},
        {"and", "&&"},
        {"or", "||"},
        {"not", "!"},
    };
    const char *word = found_word(ctx);
    bool operators = has(set, "'+'");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (operators && strcmp(word, pairs[i][0]) == 0)
            return arena_printf(ctx->arena, "; did you mean '%s'?",
                                pairs[i][1]);
    return "";
}

static bool starts_later_line(const struct parse_ctx *ctx) {
    const struct source_set *sources = diag_sources(ctx->diags);
    return source_locate(sources, ctx->current).line >
           source_locate(sources, ctx->previous).end_line;
}

void parse_error_report(struct parse_ctx *ctx, const char *found,
                        const char *const *expected, size_t expected_count) {
    syn_mark_broken(ctx);
    if (ctx->aborted || (ctx->stray && strcmp(found, "end of file") != 0))
        return;
    struct expected set = {expected, expected_count};
    bool word = strcmp(found, "name") == 0 ||
                is_one_of(found, item_words, ITEM_WORDS) ||
                is_one_of(found, top_words, TOP_WORDS);
    if (strcmp(found, "end of file") == 0)
        report_end_of_file(ctx, &set);
    else if (word && at_start(ctx) && has(&set, "mask") && !has(&set, "name"))
        report_unknown_item(ctx);
    else if (at_start(ctx) && has(&set, "attention") && !has(&set, "name"))
        report_unknown_top(ctx);
    else if (at_start(ctx) && has(&set, "mask") && !has(&set, "name"))
        diag_error(ctx->diags, ctx->current,
                   "unexpected %s, expected an item or '}'",
                   parse_error_quote(ctx, ctx->current));
    else if (has(&set, "';'") && !at_start(ctx) && starts_later_line(ctx))
        syn_missing_semicolon(ctx);
    else
        diag_error(ctx->diags, ctx->current, "unexpected %s, expected %s%s",
                   parse_error_quote(ctx, ctx->current), describe(ctx, &set),
                   hint(ctx, &set));
}

void parse_error_nesting(struct parse_ctx *ctx, struct source_range where) {
    if (!ctx->aborted)
        diag_error(ctx->diags, where, "nesting deeper than %d levels",
                   SYNTAX_MAX_NESTING);
    ctx->aborted = true;
    syn_mark_broken(ctx);
}
