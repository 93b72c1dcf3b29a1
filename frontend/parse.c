/* Drives scanner and parser over one text. */
#include <locale.h>
#include <string.h>

#include "frontend/parse_error.h"
#include "frontend/syntax.h"
#include "support/utf8.h"

#define YYSTYPE ATTN_YYSTYPE
#define YYLTYPE struct source_range
#include "frontend/parser.h"
#include "frontend/lexer.h"

/* ---- bytes --------------------------------------------------------------- */

/* Length of what may not stand at `i`: a control character or a malformed
 * sequence; 0 if the byte is fine.  CR is fine before LF only. */
static size_t bad_bytes(const struct source_file *source, uint32_t i) {
    unsigned char c = (unsigned char)source->text[i];
    if (c == '\r')
        return source->text[i + 1] == '\n' ? 0 : 1; /* text is NUL-terminated */
    if (c < 0x20 || c == 0x7f)
        return c != '\t' && c != '\n';
    return utf8_sequence(source->text + i, source->length - i) == 0;
}

static void report_bytes(const struct source_file *source,
                         struct diag_sink *diags, struct source_range where) {
    unsigned char c = (unsigned char)source->text[where.begin];
    if (c >= 0x80)
        diag_error(diags, where, "malformed UTF-8 (byte 0x%02x)", c);
    else if (c == '\r')
        diag_error(diags, where, "carriage return without line feed");
    else if (c == 0)
        diag_error(diags, where, "NUL character in the text");
    else
        diag_error(diags, where, "control character 0x%02x in the text", c);
}

bool syntax_check_bytes(const struct source_file *source,
                        struct diag_sink *diags) {
    bool good = true;
    for (uint32_t i = 0; i < source->length;) {
        uint32_t end = i;
        while (end < source->length && bad_bytes(source, end))
            end++;
        if (end > i) {
            report_bytes(source, diags,
                         (struct source_range){source->id, i, end});
            good = false;
            i = end;
        } else {
            i += (uint32_t)utf8_sequence(source->text + i, source->length - i);
        }
    }
    return good;
}

/* The text with bad bytes blanked, as the scanner wants it: two NULs behind. */
static char *scanner_text(struct arena *arena, const struct source_file *source,
                          bool good) {
    char *text = arena_alloc(arena, (size_t)source->length + 2);
    memcpy(text, source->text, source->length);
    for (uint32_t i = 0; !good && i < source->length;) {
        size_t bytes = utf8_sequence(source->text + i, source->length - i);
        if (bad_bytes(source, i))
            text[i] = ' ';
        i += bytes ? (uint32_t)bytes : 1;
    }
    return text;
}

/* ---- tokens -------------------------------------------------------------- */

/* Follows brackets and braces; true when the nesting limit is exceeded. */
static bool track_brackets(struct parse_ctx *ctx, int token,
                           struct source_range where) {
    switch (token) {
    case '(':
    case '[':
        return ++ctx->brackets > SYNTAX_MAX_NESTING;
    case ')':
    case ']':
        ctx->brackets -= ctx->brackets > 0;
        return false;
    case ';':
        ctx->brackets = 0;
        ctx->stray = false;
        return false;
    case '{':
        vec_push(ctx->arena, &ctx->braces, where);
        return false;
    case '}':
        ctx->braces.count -= ctx->braces.count > 0;
        return false;
    default:
        return false;
    }
}

/* A text of --schedule may lack its last ';'. */
static bool needs_semicolon(const struct parse_ctx *ctx) {
    uint32_t end = ctx->current.end;
    return ctx->schedule_text && end > 0 && ctx->source->text[end - 1] != ';';
}

int attn_yynext(ATTN_YYSTYPE *value, struct source_range *where, void *scanner,
                struct parse_ctx *ctx) {
    struct source_range end = {ctx->source->id, ctx->source->length,
                               ctx->source->length};
    *where = end;
    if (ctx->pending) {
        int token = ctx->pending;
        ctx->pending = 0;
        *where = (struct source_range){ctx->source->id, 0, 0};
        return token;
    }
    int token = ctx->aborted ? T_YYEOF : attn_yylex(value, where, scanner);
    if (token == T_YYEOF) {
        *where = end;
        if (!ctx->aborted && needs_semicolon(ctx)) {
            ctx->schedule_text = false;
            return ';';
        }
    } else if (track_brackets(ctx, token, *where)) {
        parse_error_nesting(ctx, *where);
        token = T_YYEOF;
    }
    ctx->previous = ctx->current;
    ctx->current = *where;
    return token;
}

/* A context with its scanner, ready to deliver tokens. */
struct scan {
    struct parse_ctx ctx;
    yyscan_t scanner;
};

static void scan_begin(struct scan *scan, struct arena *arena,
                       const struct source_file *source,
                       struct diag_sink *diags) {
    scan->ctx =
        (struct parse_ctx){.arena = arena, .diags = diags, .source = source};
    scan->ctx.file = ARENA_NEW(arena, struct syn_file);
    scan->ctx.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    scan->ctx.current = scan->ctx.previous =
        (struct source_range){source->id, 0, 0};
    bool good = syntax_check_bytes(source, diags);
    char *text = scanner_text(arena, source, good);
    attn_yylex_init_extra(&scan->ctx, &scan->scanner);
    attn_yy_scan_buffer(text, (size_t)source->length + 2, scan->scanner);
}

static void scan_end(struct scan *scan) {
    attn_yylex_destroy(scan->scanner);
    if (scan->ctx.c_locale)
        freelocale((locale_t)scan->ctx.c_locale);
}

static struct syn_file *parse(struct arena *arena,
                              const struct source_file *source,
                              struct diag_sink *diags, int start) {
    struct scan scan;
    scan_begin(&scan, arena, source, diags);
    scan.ctx.pending = start;
    scan.ctx.schedule_text = start == T_START_SCHEDULE;
    attn_yyparse(scan.scanner, &scan.ctx);
    scan_end(&scan);
    return scan.ctx.file;
}

struct syn_file *syntax_parse(struct arena *arena,
                              const struct source_file *source,
                              struct diag_sink *diags) {
    return parse(arena, source, diags, T_START_FILE);
}

struct syn_file *syntax_parse_schedule(struct arena *arena,
                                       const struct source_file *source,
                                       struct diag_sink *diags) {
    return parse(arena, source, diags, T_START_SCHEDULE);
}

struct token_list syntax_tokens(struct arena *arena,
                                const struct source_file *source,
                                struct diag_sink *diags) {
    struct token_list list = {0};
    struct scan scan;
    scan_begin(&scan, arena, source, diags);
    ATTN_YYSTYPE value;
    struct source_range where;
    int kind;
    while ((kind = attn_yylex(&value, &where, scan.scanner)) != T_YYEOF)
        vec_push(arena, &list.tokens,
                 ((struct token){kind, where.begin, where.end}));
    scan_end(&scan);
    return list;
}
