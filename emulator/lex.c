/* Lexer for PTX.
 *
 * Words are greedy: `cp.async.bulk.tensor.5d.shared::cluster.global` is one
 * token, as is `%tid.x`; the parser splits them.  Comments are dropped, but a
 * position of the form `file.attn:LINE:COL` in one is kept (the back end writes
 * `// @ file.attn:LINE:COL` above the instructions that it is behind).
 */
#include "emulator/lex.h"

#include <stdlib.h>
#include <string.h>

void emu_lexer_init(struct lexer *lexer, struct arena *arena, const char *text,
                    size_t length) {
    *lexer = (struct lexer){.cursor = text,
                            .end = text + length,
                            .line = 1,
                            .arena = arena,
                            .origin = ""};
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_word_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '$' || c == '%' || c == '.';
}

static bool is_word(char c) {
    return is_word_start(c) || is_digit(c);
}

/* Looks for `….attn:LINE[:COL]` in a comment; NULL when there is none. */
static const char *find_position(struct lexer *lexer, const char *text,
                                 const char *end) {
    static const char suffix[] = ".attn:";
    const size_t length = sizeof suffix - 1;
    for (const char *p = text; p + length < end; p++) {
        if (*p != '.' || memcmp(p, suffix, length) != 0 || !is_digit(p[length]))
            continue;
        const char *first = p, *last = p + length;
        while (first > text && (unsigned char)first[-1] > ' ')
            first--;
        while (last < end && is_digit(*last))
            last++;
        if (last + 1 < end && *last == ':' && is_digit(last[1]))
            for (last++; last < end && is_digit(*last);)
                last++;
        return arena_strndup(lexer->arena, first, (size_t)(last - first));
    }
    return NULL;
}

/* A comment behind code on its line holds for that line only. */
static void note_comment(struct lexer *lexer, const char *text,
                         const char *end) {
    const char *position = find_position(lexer, text, end);
    if (position && lexer->token_line == lexer->line) {
        lexer->trailing = position;
        lexer->trailing_line = lexer->line;
    } else if (position) {
        lexer->origin = position;
    }
}

/* Skips blanks and comments; false on a comment without an end. */
static bool skip_space(struct lexer *lexer) {
    while (lexer->cursor < lexer->end) {
        char c = *lexer->cursor;
        size_t left = (size_t)(lexer->end - lexer->cursor);
        if (c == '\n') {
            lexer->line++;
            lexer->cursor++;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' ||
                   c == '\v') {
            lexer->cursor++;
        } else if (left >= 2 && c == '/' && lexer->cursor[1] == '/') {
            const char *stop = memchr(lexer->cursor, '\n', left);
            stop = stop ? stop : lexer->end;
            note_comment(lexer, lexer->cursor, stop);
            lexer->cursor = stop;
        } else if (left >= 2 && c == '/' && lexer->cursor[1] == '*') {
            const char *p = lexer->cursor + 2;
            while (p + 1 < lexer->end && !(p[0] == '*' && p[1] == '/'))
                lexer->line += *p++ == '\n';
            if (p + 1 >= lexer->end)
                return false;
            lexer->cursor = p + 2;
        } else {
            return true;
        }
    }
    return true;
}

static int digit_value(char c) {
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

/* Digits of `base` from `text` on; returns the number of characters. */
static size_t read_digits(const char *text, const char *end, int base,
                          uint64_t *out_value) {
    const char *p = text;
    uint64_t value = 0;
    for (; p < end && digit_value(*p) < base; p++)
        value = value * (uint64_t)base + (uint64_t)digit_value(*p);
    *out_value = value;
    return (size_t)(p - text);
}

/* Digits with a point or exponent; false for a plain integer. */
static bool read_decimal_float(struct token *token, const char *end) {
    const char *p = token->text;
    bool is_float = false;
    char copy[64];
    while (p < end &&
           (is_digit(*p) || *p == '.' || *p == 'e' || *p == 'E' ||
            ((*p == '+' || *p == '-') && (p[-1] == 'e' || p[-1] == 'E')))) {
        is_float |= !is_digit(*p);
        p++;
    }
    token->length = (size_t)(p - token->text);
    if (!is_float || token->length >= sizeof copy)
        return false;
    memcpy(copy, token->text, token->length);
    copy[token->length] = 0;
    char *stop;
    double number = strtod(copy, &stop);
    token->kind = *stop ? TOKEN_BAD : TOKEN_FLOAT64;
    memcpy(&token->value, &number, sizeof number);
    return true;
}

/* 0fX and 0dX are bits, 0x 0b 0 are integers, the rest decimal. */
static void read_number(struct lexer *lexer, struct token *token) {
    const char *p = token->text, *end = lexer->end;
    char prefix = p[0] == '0' && p + 1 < end ? p[1] : 0;
    token->kind = TOKEN_INTEGER;
    if (prefix == 'f' || prefix == 'F' || prefix == 'd' || prefix == 'D') {
        bool is_single = (prefix | 0x20) == 'f';
        size_t digits = read_digits(p + 2, end, 16, &token->value);
        token->kind = digits == (is_single ? 8u : 16u)
                          ? (is_single ? TOKEN_FLOAT32 : TOKEN_FLOAT64)
                          : TOKEN_BAD;
        token->length = digits + 2;
    } else if (prefix == 'x' || prefix == 'X') {
        token->length = 2 + read_digits(p + 2, end, 16, &token->value);
    } else if (prefix == 'b' || prefix == 'B') {
        token->length = 2 + read_digits(p + 2, end, 2, &token->value);
    } else if (!read_decimal_float(token, end)) {
        token->length =
            read_digits(p, end, p[0] == '0' ? 8 : 10, &token->value);
    }
    if (token->kind == TOKEN_INTEGER && p + token->length < end &&
        p[token->length] == 'U')
        token->length++;
    if (p + token->length < end && is_word(p[token->length]))
        token->kind = TOKEN_BAD;
}

/* `::` belongs to a word, a single colon ends a label. */
static void read_word(struct lexer *lexer, struct token *token) {
    const char *p = token->text;
    while (p < lexer->end) {
        if (is_word(*p))
            p++;
        else if (p + 2 < lexer->end && p[0] == ':' && p[1] == ':' &&
                 is_word(p[2]))
            p += 2;
        else
            break;
    }
    token->kind = TOKEN_WORD;
    token->length = (size_t)(p - token->text);
}

static void read_string(struct lexer *lexer, struct token *token) {
    const char *p = token->text + 1;
    while (p < lexer->end && *p != '"' && *p != '\n')
        p++;
    bool closed = p < lexer->end && *p == '"';
    token->kind = closed ? TOKEN_STRING : TOKEN_BAD;
    lexer->cursor = closed ? p + 1 : p;
    token->text++;
    token->length = (size_t)(p - token->text);
}

struct token emu_lexer_next(struct lexer *lexer) {
    struct token token = {.kind = TOKEN_END, .text = lexer->end};
    bool complete = skip_space(lexer);
    token.line = lexer->line;
    token.text = lexer->cursor;
    if (!complete) {
        token.kind = TOKEN_BAD;
        token.length = 2;
        lexer->cursor = lexer->end;
        return token;
    }
    if (lexer->cursor == lexer->end)
        return token;
    lexer->token_line = lexer->line;
    token.length = 1;
    char c = *lexer->cursor;
    if (c == '"') {
        read_string(lexer, &token);
        return token;
    }
    if (is_digit(c)) {
        read_number(lexer, &token);
    } else if (is_word_start(c)) {
        read_word(lexer, &token);
    } else {
        token.kind = c != 0 && strchr("{}[]()<>;,:+-=@!|&*/", c) ? TOKEN_PUNCT
                                                                 : TOKEN_BAD;
        token.punct = c;
    }
    lexer->cursor += token.length;
    return token;
}
