/* Canonical layout of .attn files.
 *
 * Works on tokens and the comments between them: the layout is a function of
 * the token sequence, so formatting twice changes nothing, and no token but a
 * stray ';' is dropped, so the meaning stays.
 */
#include "frontend/format.h"

#include <string.h>

#include "frontend/syntax.h"
#define YYSTYPE ATTN_YYSTYPE
#define YYLTYPE struct source_range
#include "frontend/parser.h"

enum { INDENT = 4, WORD_COLUMN = 9, LINE_MAX_COLUMNS = 96 };

/* A line of code with a comment behind it, to be aligned with its
 * neighbours. */
struct trailing {
    size_t at;      /* byte of the output where the blanks before it start */
    size_t column;  /* of that byte */
    unsigned group; /* neighbours share a number */
};

/* How a token is set; known when its statement starts. */
struct shape {
    bool is_prefix;
    bool space;     /* one before it */
    unsigned level; /* rank of a line break before it, NO_BREAK: none */
};

enum { NO_BREAK = 1 << 16 };

struct printer {
    struct arena *arena;
    const char *text;
    const struct token *tokens;
    size_t count;
    struct shape *shapes; /* one for each token */
    struct strbuf out;
    size_t column;    /* of the next byte in the output line */
    unsigned depth;   /* open { */
    size_t first;     /* first token of the statement */
    bool line_open;   /* something was written on this line */
    bool block_start; /* right after a { or at the start of the file */
    bool must_break;  /* a // comment ended the line inside of a statement */
    unsigned group;   /* of trailing comments */
    VEC(struct trailing) trailing;
};

/* ---- output -------------------------------------------------------------- */

static void put(struct printer *p, const char *bytes, size_t length) {
    strbuf_append_bytes(&p->out, bytes, length);
    for (size_t i = 0; i < length; i++)
        p->column = bytes[i] == '\n' ? 0 : p->column + 1;
    p->line_open = true;
}

static void new_line(struct printer *p) {
    strbuf_append_char(&p->out, '\n');
    p->column = 0;
    p->line_open = false;
}

static void pad_to(struct printer *p, size_t column) {
    if (p->column < column) {
        strbuf_append_repeat(&p->out, ' ', column - p->column);
        p->column = column;
    }
}

/* Where the value of an item starts, and the lines that continue it. */
static size_t value_column(const struct printer *p) {
    return p->depth * INDENT + (p->depth == 1 ? WORD_COLUMN : INDENT);
}

static void start_line(struct printer *p) {
    if (p->line_open)
        new_line(p);
    pad_to(p, p->depth * INDENT);
}

static void continue_line(struct printer *p) {
    new_line(p);
    pad_to(p, value_column(p));
    p->line_open = true;
    p->must_break = false;
}

/* ---- comments ------------------------------------------------------------ */

/* A piece of the text between two tokens. */
struct comment {
    const char *begin, *end;
    bool is_line;          /* // */
    unsigned lines_before; /* line ends between the piece before and this one */
};

/* The next comment from *at; false at `end`.  *lines counts line ends on the
 * way. */
static bool next_comment(const char **at, const char *end,
                         struct comment *out) {
    out->lines_before = 0;
    while (*at < end && **at != '/') {
        out->lines_before += **at == '\n';
        (*at)++;
    }
    if (*at >= end)
        return false;
    out->begin = *at;
    out->is_line = (*at)[1] == '/';
    if (out->is_line) {
        const char *stop = memchr(*at, '\n', (size_t)(end - *at));
        *at = stop ? stop : end;
    } else {
        *at = strstr(*at + 2, "*/") + 2;
    }
    out->end = *at;
    return true;
}

/* Writes a comment; line ends inside of it become LF, blanks at its end go. */
static void put_comment(struct printer *p, const struct comment *comment) {
    const char *end = comment->end;
    while (comment->is_line && end > comment->begin && strchr(" \t\r", end[-1]))
        end--;
    for (const char *line = comment->begin; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        const char *cut = stop ? stop : end;
        while (stop && cut > line && cut[-1] == '\r')
            cut--;
        put(p, line, (size_t)(cut - line));
        if (!stop)
            break;
        put(p, "\n", 1);
        line = stop + 1;
    }
}

static void blank_line(struct printer *p, unsigned lines_before) {
    if (lines_before >= 2 && !p->block_start) {
        p->group++;
        if (p->line_open)
            new_line(p);
        new_line(p);
    }
}

/* Leaves two blanks before a comment behind code, and remembers the place. */
static void trailing_comment(struct printer *p, const struct comment *comment) {
    struct trailing trailing = {p->out.length, p->column, p->group};
    if (comment->is_line)
        vec_push(p->arena, &p->trailing, trailing);
    put(p, "  ", 2);
}

/* Comments between statements: one on the line of the statement before stays
 * there, others get lines of their own. */
static unsigned comments_between(struct printer *p, const char *at,
                                 const char *end) {
    struct comment comment;
    while (next_comment(&at, end, &comment)) {
        bool own_line = comment.lines_before > 0 || !p->line_open;
        if (own_line) {
            blank_line(p, comment.lines_before);
            start_line(p);
            p->group++;
        } else {
            trailing_comment(p, &comment);
        }
        put_comment(p, &comment);
        p->block_start = false;
        if (comment.is_line || own_line)
            new_line(p);
    }
    return comment.lines_before;
}

/* Comments inside of a statement stay between the same tokens. */
static void comments_inside(struct printer *p, const char *at,
                            const char *end) {
    struct comment comment;
    while (next_comment(&at, end, &comment)) {
        if (p->must_break)
            continue_line(p);
        else
            put(p, " ", 1);
        put_comment(p, &comment);
        p->must_break = comment.is_line;
    }
}

/* ---- tokens -------------------------------------------------------------- */

static bool is_name(int kind) {
    return kind == T_IDENT || (kind >= T_ATTENTION && kind <= T_TENSOR);
}

static bool is_operand_end(int kind) {
    return is_name(kind) || kind == T_NUMBER || kind == T_STRING ||
           kind == ')' || kind == ']';
}

static bool ends_statement(int kind) {
    return kind == ';' || kind == '{' || kind == '}';
}

/* How tightly the operator binds, as in the grammar; 0: not an operator. */
static unsigned binding(int kind) {
    static const struct {
        int kind;
        unsigned binding;
    } table[] = {
        {'?', 1},   {':', 1},  {T_OR_ELSE, 2}, {T_AND_THEN, 3}, {'|', 4},
        {'^', 5},   {'&', 6},  {T_EQ, 7},      {T_NE, 7},       {'<', 8},
        {'>', 8},   {T_LE, 8}, {T_GE, 8},      {T_SHL, 9},      {'+', 10},
        {T_SHR, 9}, {'-', 10}, {'*', 11},      {'/', 11},       {'%', 11},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].kind == kind)
            return table[i].binding;
    return 0;
}

/* A - ! or ~ in front of its operand: behind the first word of an item or of a
 * schedule entry, or behind anything that ends no operand. */
static bool is_prefix(const struct printer *p, size_t first, size_t i) {
    int kind = p->tokens[i].kind;
    if (kind != '-' && kind != '!' && kind != '~')
        return false;
    return i == first || (p->depth > 0 && i == first + 1) ||
           !is_operand_end(p->tokens[i - 1].kind);
}

/* 25% of a schedule. */
static bool is_percent(const struct printer *p, size_t i) {
    int next = i + 1 < p->count ? p->tokens[i + 1].kind : ';';
    return p->tokens[i].kind == '%' && (next == ';' || next == ',');
}

/* A blank between token i and the one before. */
static bool wants_space(const struct printer *p, size_t i, bool ternary) {
    int kind = p->tokens[i].kind, before = p->tokens[i - 1].kind;
    if (kind == ';' || kind == ',' || kind == ')' || kind == ']')
        return false;
    if (before == '(' || before == '[' || p->shapes[i - 1].is_prefix ||
        is_percent(p, i))
        return false;
    if (kind == ':')
        return ternary;
    if (kind == '(' || kind == '[')
        return !is_name(before);
    return true;
}

/* Rank of a break before token i: fewer brackets first, then looser operators;
 * behind the = of a fn or const above all. */
static unsigned break_level(const struct printer *p, size_t i,
                            unsigned brackets, bool ternary) {
    int kind = p->tokens[i].kind, before = p->tokens[i - 1].kind;
    unsigned inside = brackets * 16;
    if (before == '=' && p->depth == 0)
        return inside;
    if (before == ',')
        return inside;
    if (p->shapes[i].is_prefix || is_percent(p, i) || (kind == ':' && !ternary))
        return NO_BREAK;
    return binding(kind) ? inside + binding(kind) : NO_BREAK;
}

/* Fills in the shapes of the statement that starts at token `first`. */
static void shape_statement(struct printer *p, size_t first) {
    unsigned brackets = 0, ternaries = 0;
    for (size_t i = first; i < p->count; i++) {
        int kind = p->tokens[i].kind;
        struct shape *shape = &p->shapes[i];
        bool ternary = kind == ':' && ternaries > 0;
        brackets -= (kind == ')' || kind == ']') && brackets > 0;
        shape->is_prefix = is_prefix(p, first, i);
        shape->space = i > first && wants_space(p, i, ternary);
        shape->level = NO_BREAK;
        if (i > first)
            shape->level = break_level(p, i, brackets, ternary);
        brackets += kind == '(' || kind == '[';
        ternaries += kind == '?';
        ternaries -= ternary;
        if (ends_statement(kind))
            break;
    }
}

/* Columns up to the next break of the same rank or above; stops counting when
 * they are more than a line has. */
static size_t chunk_width(const struct printer *p, size_t i) {
    size_t width = 0;
    for (size_t j = i; j < p->count && width <= LINE_MAX_COLUMNS; j++) {
        if (j > i && (p->shapes[j].level <= p->shapes[i].level ||
                      ends_statement(p->tokens[j - 1].kind)))
            break;
        width += p->tokens[j].end - p->tokens[j].begin;
        width += j > i && p->shapes[j].space;
    }
    return width;
}

static void put_token(struct printer *p, size_t i) {
    const struct token *token = &p->tokens[i];
    const struct shape *shape = &p->shapes[i];
    bool word = p->depth == 1 && i == p->first + 1 && token->kind != ';' &&
                token->kind != '{';
    bool wrap = shape->level != NO_BREAK && p->column > value_column(p) &&
                p->column + 1 + chunk_width(p, i) > LINE_MAX_COLUMNS;
    if (p->must_break || (wrap && !word))
        continue_line(p);
    else if (word)
        pad_to(p, value_column(p));
    else if (i > p->first && shape->space)
        put(p, " ", 1);
    put(p, p->text + token->begin, token->end - token->begin);
}

/* ---- statements ---------------------------------------------------------- */

static const char *gap_begin(const struct printer *p, size_t i) {
    return p->text + (i ? p->tokens[i - 1].end : 0);
}

/* The gap before token i, which starts a statement or is a closing brace. */
static void between(struct printer *p, size_t i, bool closing) {
    unsigned lines =
        comments_between(p, gap_begin(p, i), p->text + p->tokens[i].begin);
    if (!closing)
        blank_line(p, lines);
}

/* A closing brace, one level out. */
static void close_block(struct printer *p, size_t i) {
    between(p, i, true);
    p->depth -= p->depth > 0;
    p->group++;
    start_line(p);
    put(p, "}", 1);
    p->block_start = false;
}

/* One statement from token i; returns the token after it. */
static size_t statement(struct printer *p, size_t i) {
    between(p, i, false);
    start_line(p);
    p->first = i;
    shape_statement(p, i);
    p->must_break = false;
    for (;; i++) {
        if (i > p->first)
            comments_inside(p, gap_begin(p, i), p->text + p->tokens[i].begin);
        put_token(p, i);
        if (i + 1 == p->count || ends_statement(p->tokens[i].kind))
            break;
    }
    p->block_start = p->tokens[i].kind == '{';
    p->depth += p->block_start;
    return i + 1;
}

/* All statements and the comments around them. */
static void print_all(struct printer *p, const char *end) {
    for (size_t i = 0; i < p->count;) {
        int kind = p->tokens[i].kind;
        if (kind == '}')
            close_block(p, i++);
        else if (kind == ';')
            between(p, i++, true);
        else
            i = statement(p, i);
        p->group += kind == '{' || p->block_start;
    }
    comments_between(p, gap_begin(p, p->count), end);
    if (p->line_open)
        new_line(p);
}

/* The output with the comments of each group in one column. */
static void align_comments(struct printer *p, struct strbuf *out) {
    size_t from = 0;
    for (size_t i = 0; i < p->trailing.count;) {
        size_t end = i, column = 0;
        for (; end < p->trailing.count; end++) {
            const struct trailing *t = &p->trailing.data[end];
            if (t->group != p->trailing.data[i].group)
                break;
            column = t->column > column ? t->column : column;
        }
        for (; i < end; i++) {
            const struct trailing *t = &p->trailing.data[i];
            strbuf_append_bytes(out, p->out.data + from, t->at - from);
            strbuf_append_repeat(out, ' ', column - t->column);
            from = t->at;
        }
    }
    strbuf_append_bytes(out, strbuf_text(&p->out) + from, p->out.length - from);
}

char *format_source(struct arena *arena, const struct source_file *source,
                    struct diag_sink *diags, size_t *out_length) {
    size_t errors_before = diag_error_count(diags);
    syntax_parse(arena, source, diags);
    if (diag_error_count(diags) > errors_before)
        return NULL;
    struct token_list list = syntax_tokens(arena, source, diags);
    struct printer p = {.arena = arena,
                        .text = source->text,
                        .tokens = list.tokens.data,
                        .count = list.tokens.count,
                        .block_start = true};
    p.shapes = ARENA_NEW_ARRAY(arena, struct shape, p.count);
    strbuf_init(&p.out, arena);
    print_all(&p, source->text + source->length);
    struct strbuf aligned;
    strbuf_init(&aligned, arena);
    align_comments(&p, &aligned);
    *out_length = aligned.length;
    return strbuf_take(&aligned);
}
