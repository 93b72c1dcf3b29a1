/* Grammar of .attn files.
 *
 * Actions call constructors of syntax.h only.  Names are names wherever no item
 * can start, so every item word is also a `name`.  A missing ';' is repaired
 * where the next token can only start something new (`end`); any other fault
 * recovers at ';' or '}', and the name that a broken line declares is kept so
 * that its uses are not errors too.
 *
 * Default reductions only where there is no choice, and LAC: a fault is seen
 * before a missing ';' is mended on it, and the list of expected tokens in the
 * message is exact.
 */
%require "3.8"
%define api.pure full
%define api.prefix {attn_yy}
%define api.token.prefix {T_}
%define api.location.type {struct source_range}
%define api.header.include {"frontend/parser.h"}
%define lr.default-reduction consistent
%define parse.lac full
%define parse.error custom
%locations
%expect 0
%lex-param {void *scanner} {struct parse_ctx *ctx}
%parse-param {void *scanner} {struct parse_ctx *ctx}

%code requires {
#include "frontend/syntax.h"
}

%code provides {
/* The next token for the parser: the scanner plus bookkeeping (syntax.c). */
int attn_yynext(ATTN_YYSTYPE *value, struct source_range *where, void *scanner,
                struct parse_ctx *ctx);
}

%union {
    struct syn_name name;
    const struct syn *expr;
    struct syn_list *list;
    struct syn_names *names;
    struct syn_params *params;
    struct syn_entry *entry;
    struct syn_entries *entries;
}

%code {
#include "frontend/parse_error.h"

#define attn_yylex attn_yynext

static void attn_yyerror(const struct source_range *where, void *scanner, struct parse_ctx *ctx,
                         const char *message);

/* A range over the right-hand side; empty ones sit after the symbol before. */
#define YYLLOC_DEFAULT(current, rhs, n)                                           \
    ((current) = (n) ? source_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))            \
                     : (struct source_range){YYRHSLOC(rhs, 0).file,               \
                                             YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end})

/* Deep nesting is refused long before (syntax.c); this bounds prefix chains. */
#define YYMAXDEPTH 10000
#define YYINITDEPTH 200
}

%token YYEOF 0 "end of file"
%token START_FILE "start of file" START_SCHEDULE "start of schedule"
%token <name> IDENT "name" STRING "string"
%token <expr> NUMBER "number"
%token <name> ATTENTION "attention" CONST "const" EXTERN "extern" FN "fn" IMPORT "import"
%token <name> DTYPE "dtype" GROUP "group" HEAD_DIM "head_dim" LET "let" MASK "mask"
%token <name> PARAM "param" SCALE "scale" SCHEDULE "schedule" SCORE "score"
%token <name> TARGET "target" TENSOR "tensor"
%token OR_ELSE "||" AND_THEN "&&" EQ "==" NE "!=" LE "<=" GE ">=" SHL "<<" SHR ">>"
%token ARROW "->"

%precedence NO_SEMICOLON
%precedence ';'
%right '?' ':'
%left "||"
%left "&&"
%left '|'
%left '^'
%left '&'
%left "==" "!="
%left '<' "<=" '>' ">="
%left "<<" ">>"
%left '+' '-'
%left '*' '/' '%'
%precedence PREFIX

%type <name> name opt_type
%type <expr> expr opt_value
%type <list> exprs opt_exprs
%type <names> names
%type <params> params opt_params
%type <entry> values
%type <entries> entries

%%

start:
    START_FILE file
  | START_SCHEDULE entries
      { ctx->file->entries = *$entries; }
  ;

/* ---- top level ----------------------------------------------------------- */

file: %empty | file top ;

top:
    CONST name opt_type '=' expr[value] end
      {
          struct syn_decl *decl = syn_decl_add(ctx, SYN_CONST, $name, @$);
          decl->type = $opt_type;
          decl->expr = $value;
      }
  | CONST name error ';'
      { syn_decl_add(ctx, SYN_CONST, $name, @$)->broken = true; yyerrok; }
  | FN name '(' opt_params[params] ')' "->" name[type] '=' expr[body] end
      {
          struct syn_decl *decl = syn_decl_add(ctx, SYN_FN, $2, @$);
          decl->params = *$params;
          decl->type = $type;
          decl->expr = $body;
      }
  | FN name error ';'
      { syn_decl_add(ctx, SYN_FN, $name, @$)->broken = true; yyerrok; }
  | EXTERN STRING[file] FN name '(' opt_params[params] ')' "->" name[type] opt_value[model] end
      {
          struct syn_decl *decl = syn_decl_add(ctx, SYN_EXTERN, $4, @$);
          decl->file = $file;
          decl->params = *$params;
          decl->type = $type;
          decl->expr = $model;
      }
  | EXTERN STRING FN name error ';'
      { syn_decl_add(ctx, SYN_EXTERN, $name, @$)->broken = true; yyerrok; }
  | IMPORT STRING[file] end
      { syn_decl_add(ctx, SYN_IMPORT, $file, @$)->file = $file; }
  | attention
  | ';'
  | error ';'  { yyerrok; }
  | error '}'  { yyerrok; }
  | error '{'  { yyerrok; }
    items close
  ;

attention:
    ATTENTION name '{'
      { ctx->attention = syn_decl_add(ctx, SYN_ATTENTION, $name, @name); }
    items close
      { ctx->attention = NULL; }
  | ATTENTION error '{'
      {
          struct syn_name none = {NULL, @1};
          ctx->attention = syn_decl_add(ctx, SYN_ATTENTION, none, @1);
          syn_mark_broken(ctx);
      }
    items close
      { ctx->attention = NULL; }
  ;

close:
    '}'
  | error '}'
      { syn_mark_broken(ctx); yyerrok; }
  ;

opt_params:
    %empty   { $$ = syn_params_add(ctx, NULL, (struct syn_name){0}, (struct syn_name){0}); }
  | params
  ;

params:
    name ':' name[type]
      { $$ = syn_params_add(ctx, NULL, $1, $type); }
  | params[list] ',' name ':' name[type]
      { $$ = syn_params_add(ctx, $list, $3, $type); }
  ;

/* The end of a line; a missing one is reported and the parse goes on. */
end:
    ';'
  | %empty %prec NO_SEMICOLON
      { syn_missing_semicolon(ctx); }
  ;

/* ---- items of an attention ----------------------------------------------- */

items: %empty | items item ;

item:
    DTYPE name end
      { syn_item_add(ctx, SYN_DTYPE, @1, @$)->name = $name; }
  | HEAD_DIM exprs end
      { syn_item_add(ctx, SYN_HEAD_DIM, @1, @$)->values = *$exprs; }
  | GROUP expr end
      { syn_item_add(ctx, SYN_GROUP, @1, @$)->expr = $expr; }
  | SCALE expr end
      { syn_item_add(ctx, SYN_SCALE, @1, @$)->expr = $expr; }
  | PARAM name ':' name[type] opt_value end
      {
          struct syn_item *item = syn_item_add(ctx, SYN_PARAM, @1, @$);
          item->name = $2;
          item->type = $type;
          item->expr = $opt_value;
      }
  | PARAM name error ';'
      {
          struct syn_item *item = syn_item_add(ctx, SYN_PARAM, @1, @$);
          item->name = $name;
          item->broken = true;
          yyerrok;
      }
  | TENSOR name ':' name[type] '[' exprs ']' end
      {
          struct syn_item *item = syn_item_add(ctx, SYN_TENSOR, @1, @$);
          item->name = $2;
          item->type = $type;
          item->values = *$exprs;
      }
  | TENSOR name error ';'
      {
          struct syn_item *item = syn_item_add(ctx, SYN_TENSOR, @1, @$);
          item->name = $name;
          item->broken = true;
          yyerrok;
      }
  | LET name opt_type '=' expr end
      {
          struct syn_item *item = syn_item_add(ctx, SYN_LET, @1, @$);
          item->name = $name;
          item->type = $opt_type;
          item->expr = $expr;
      }
  | LET name error ';'
      {
          struct syn_item *item = syn_item_add(ctx, SYN_LET, @1, @$);
          item->name = $name;
          item->broken = true;
          yyerrok;
      }
  | SCORE expr end
      { syn_item_add(ctx, SYN_SCORE, @1, @$)->expr = $expr; }
  | MASK expr end
      { syn_item_add(ctx, SYN_MASK, @1, @$)->expr = $expr; }
  | TARGET names end
      { syn_item_add(ctx, SYN_TARGET, @1, @$)->names = *$names; }
  | SCHEDULE '{' entries close_schedule
      { syn_item_add(ctx, SYN_SCHEDULE, @1, @$)->entries = *$entries; }
  | ';'
  | error ';'
      { syn_mark_broken(ctx); yyerrok; }
  | error '{' entries close_schedule
      { syn_mark_broken(ctx); yyerrok; }
  ;

opt_type:
    %empty    { $$ = (struct syn_name){0}; }
  | ':' name  { $$ = $name; }
  ;

opt_value:
    %empty    { $$ = NULL; }
  | '=' expr  { $$ = $expr; }
  ;

names:
    name                  { $$ = syn_names_add(ctx, NULL, $name); }
  | names[list] ',' name  { $$ = syn_names_add(ctx, $list, $name); }
  ;

/* ---- schedule ------------------------------------------------------------ */

close_schedule: '}' | error '}' { yyerrok; } ;

entries:
    %empty
      { $$ = ARENA_NEW(ctx->arena, struct syn_entries); }
  | entries[list] name values ';'
      { $$ = $list; syn_entry_add(ctx, $$, $values, $name); }
  | entries[list] ';'
      { $$ = $list; }
  | entries[list] error ';'
      { $$ = $list; yyerrok; }
  ;

/* `25%` needs no token of its own: after `expr %` a ',' or ';' cannot start an
 * operand. */
values:
    expr                  { $$ = syn_value_add(ctx, NULL, $1, false, @1); }
  | expr '%'              { $$ = syn_value_add(ctx, NULL, $1, true, @$); }
  | values ',' expr       { $$ = syn_value_add(ctx, $1, $3, false, @3); }
  | values ',' expr '%'   { $$ = syn_value_add(ctx, $1, $3, true, source_join(@3, @4)); }
  ;

/* ---- expressions --------------------------------------------------------- */

opt_exprs:
    %empty  { $$ = ARENA_NEW(ctx->arena, struct syn_list); }
  | exprs
  ;

exprs:
    expr                  { $$ = syn_list_add(ctx, NULL, $expr); }
  | exprs[list] ',' expr  { $$ = syn_list_add(ctx, $list, $expr); }
  ;

expr:
    NUMBER
  | name                    { $$ = syn_name_ref(ctx, $name); }
  | '(' expr[inner] ')'     { $$ = syn_paren(ctx, $inner, @$); }
  | name '(' opt_exprs ')'  { $$ = syn_apply(ctx, SYN_CALL, $name, $opt_exprs, @$); }
  | name '[' exprs ']'      { $$ = syn_apply(ctx, SYN_INDEX, $name, $exprs, @$); }
  | '-' expr[a] %prec PREFIX  { $$ = syn_unary(ctx, UNARY_NEG, @1, $a); }
  | '!' expr[a] %prec PREFIX  { $$ = syn_unary(ctx, UNARY_NOT, @1, $a); }
  | '~' expr[a] %prec PREFIX  { $$ = syn_unary(ctx, UNARY_BIT_NOT, @1, $a); }
  | expr[a] '+' expr[b]     { $$ = syn_binary(ctx, BINARY_ADD, @2, $a, $b); }
  | expr[a] '-' expr[b]     { $$ = syn_binary(ctx, BINARY_SUB, @2, $a, $b); }
  | expr[a] '*' expr[b]     { $$ = syn_binary(ctx, BINARY_MUL, @2, $a, $b); }
  | expr[a] '/' expr[b]     { $$ = syn_binary(ctx, BINARY_DIV, @2, $a, $b); }
  | expr[a] '%' expr[b]     { $$ = syn_binary(ctx, BINARY_MOD, @2, $a, $b); }
  | expr[a] "<<" expr[b]    { $$ = syn_binary(ctx, BINARY_SHL, @2, $a, $b); }
  | expr[a] ">>" expr[b]    { $$ = syn_binary(ctx, BINARY_SHR, @2, $a, $b); }
  | expr[a] '<' expr[b]     { $$ = syn_binary(ctx, BINARY_LT, @2, $a, $b); }
  | expr[a] "<=" expr[b]    { $$ = syn_binary(ctx, BINARY_LE, @2, $a, $b); }
  | expr[a] '>' expr[b]     { $$ = syn_binary(ctx, BINARY_GT, @2, $a, $b); }
  | expr[a] ">=" expr[b]    { $$ = syn_binary(ctx, BINARY_GE, @2, $a, $b); }
  | expr[a] "==" expr[b]    { $$ = syn_binary(ctx, BINARY_EQ, @2, $a, $b); }
  | expr[a] "!=" expr[b]    { $$ = syn_binary(ctx, BINARY_NE, @2, $a, $b); }
  | expr[a] '&' expr[b]     { $$ = syn_binary(ctx, BINARY_AND, @2, $a, $b); }
  | expr[a] '^' expr[b]     { $$ = syn_binary(ctx, BINARY_XOR, @2, $a, $b); }
  | expr[a] '|' expr[b]     { $$ = syn_binary(ctx, BINARY_OR, @2, $a, $b); }
  | expr[a] "&&" expr[b]    { $$ = syn_binary(ctx, BINARY_AND_THEN, @2, $a, $b); }
  | expr[a] "||" expr[b]    { $$ = syn_binary(ctx, BINARY_OR_ELSE, @2, $a, $b); }
  | expr[c] '?' expr[a] ':' expr[b]  { $$ = syn_select(ctx, @2, $c, $a, $b); }
  ;

/* Words are words only where an item starts. */
name:
    IDENT
  | ATTENTION | CONST | EXTERN | FN | IMPORT
  | DTYPE | GROUP | HEAD_DIM | LET | MASK | PARAM | SCALE | SCHEDULE | SCORE | TARGET | TENSOR
  ;

%%

/* Hands the parser's view of a fault to parse_error.c. */
static int yyreport_syntax_error(const yypcontext_t *where, void *scanner,
                                 struct parse_ctx *ctx) {
    (void)scanner;
    yysymbol_kind_t kinds[YYNTOKENS];
    const char *expected[YYNTOKENS];
    int count = yypcontext_expected_tokens(where, kinds, YYNTOKENS);
    for (int i = 0; i < count; i++)
        expected[i] = yysymbol_name(kinds[i]);
    yysymbol_kind_t found = yypcontext_token(where);
    parse_error_report(ctx, yysymbol_name(found), expected, count > 0 ? (size_t)count : 0);
    return 0;
}

/* The parser's stack is full: only chains of prefix operators and ?: get here. */
static void attn_yyerror(const struct source_range *where, void *scanner, struct parse_ctx *ctx,
                         const char *message) {
    (void)where;
    (void)scanner;
    (void)message;
    parse_error_nesting(ctx, ctx->current);
}
