/* Tokens of PTX text, and the `.attn` positions in its comments. */
#ifndef ATTN_EMULATOR_LEX_H
#define ATTN_EMULATOR_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/arena.h"

enum token_kind {
    TOKEN_END,
    TOKEN_WORD, /* identifier, register, directive, opcode with its suffixes */
    TOKEN_INTEGER, /* value: 64 bits */
    TOKEN_FLOAT32, /* 0fXXXXXXXX: value holds the bits */
    TOKEN_FLOAT64, /* 0dX… or a decimal number: value holds the bits of a double
                    */
    TOKEN_STRING, /* without its quotes */
    TOKEN_PUNCT,  /* one character, in `punct` */
    TOKEN_BAD,    /* a byte or number that PTX does not know */
};

struct token {
    enum token_kind kind;
    char punct;
    const char *text;
    size_t length;
    uint64_t value;
    int line;
};

struct lexer {
    const char *cursor, *end;
    int line;
    int token_line;      /* line of the last token, to know trailing comments */
    struct arena *arena; /* for the texts of positions */
    const char
        *origin; /* position from the last own-line comment, "" at first */
    const char *trailing; /* position in a comment behind a token, or NULL */
    int trailing_line;
};

/* A lexer over `length` bytes. */
void emu_lexer_init(struct lexer *lexer, struct arena *arena, const char *text,
                    size_t length);

/* The next token; TOKEN_END again and again at the end. */
struct token emu_lexer_next(struct lexer *lexer);

#endif
