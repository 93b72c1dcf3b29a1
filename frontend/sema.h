/* Shared state of the checker; private to the front end.
 *
 * A module is one file: its own definitions and the table of what it can see.
 * Definitions are resolved on first use, so their order does not matter and a
 * cycle is met while it is being resolved.  A NULL expression means "already
 * reported": every check passes it on silently.
 */
#ifndef ATTN_FRONTEND_SEMA_H
#define ATTN_FRONTEND_SEMA_H

#include "frontend/ast.h"
#include "frontend/frontend.h"
#include "frontend/syntax.h"
#include "support/strmap.h"

enum decl_state { DECL_NEW, DECL_RESOLVING, DECL_DONE, DECL_POISONED };

/* A definition at top level. */
struct decl {
    const struct syn_decl *syntax;
    struct module *module;
    enum decl_state state;
    struct named_const *constant; /* SYN_CONST, once resolved */
    struct fn *fn;                /* SYN_FN, SYN_EXTERN, once resolving began */
};

enum module_state { MODULE_LOADING, MODULE_DONE };

struct module {
    const struct source_file *source;
    enum module_state state;
    VEC(struct decl *) own;
    struct strmap visible;   /* name -> struct decl *, own ones first */
    VEC(struct decl *) seen; /* values of `visible` in a fixed order */
};

struct sema {
    struct arena *arena;
    struct source_set *sources;
    struct diag_sink *diags;
    const struct frontend_options *options;
    VEC(struct module *) modules;
    struct strmap modules_by_id; /* decimal file number -> struct module * */
    unsigned imports_open;       /* depth of the import chain */
    unsigned recursion;          /* depth of expression checks, all files */
    size_t probe_budget;         /* node visits of sema_probe_divisors so far */
    struct strmap probed;        /* places that were reported by it */
};

enum symbol_kind { SYMBOL_PARAM, SYMBOL_TENSOR, SYMBOL_LET };

/* A name defined by an item of an attention. */
struct symbol {
    enum symbol_kind kind;
    const char *name;
    struct source_range where;
    bool defined;  /* its line was reached */
    bool poisoned; /* its line is broken */
    struct param *param;
    struct tensor *tensor;
    struct let *let;
};

struct symbols {
    struct strmap map;
    VEC(struct symbol *) list;
};

enum env_kind {
    ENV_CONST, /* consts and built-ins only */
    ENV_FN,    /* parameters, consts, fns */
    ENV_ITEM,  /* everything of an attention */
};

/* Where an expression stands. */
struct env {
    enum env_kind kind;
    struct module *module;
    const struct fn *fn;     /* ENV_FN */
    struct symbols *symbols; /* names of the attention, or NULL */
    unsigned dead;           /* inside an arm that constants rule out */
    bool lacks_model;        /* out: calls an extern fn without a model */
};

/* ---- sema.c: modules and definitions ------------------------------------- */

/* Resolves the definition; false if it is poisoned.  `use` is the reference. */
bool sema_resolve(struct sema *sema, struct decl *decl,
                  struct source_range use);

/* True for words that the language keeps: q, kv_len, true, bf16, ... */
bool sema_name_is_taken(const char *name);

/* False with an error if `name` is defined at top level of the same file, by
 * anything but `allowed`; hiding an imported name is a warning. */
bool sema_may_hide(struct sema *sema, const struct module *module,
                   struct syn_name name, const struct decl *allowed);

/* Finds an imported or extern file; NULL with an error at the name. */
const struct source_file *sema_find_file(struct sema *sema,
                                         const struct module *module,
                                         struct syn_name name);

/* ---- sema_attention.c ---------------------------------------------------- */

/* Checks one attention into *out; false when something in it is wrong. */
bool sema_attention(struct sema *sema, struct decl *decl,
                    struct attention *out);

/* ---- sema_schedule.c ----------------------------------------------------- */

/* Reads entries into *schedule (keys that are absent stay as they are). */
void sema_schedule(struct sema *sema, struct env *env,
                   const struct syn_entries *entries,
                   struct schedule *schedule);

/* ---- sema_extern.c ------------------------------------------------------- */

/* Finds the CUDA file of an extern fn; with `compare` also checks that it
 * defines the function with this signature. */
bool sema_extern_file(struct sema *sema, struct decl *decl, bool compare);

/* ---- sema_expr.c: expressions -------------------------------------------- */

/* Checks an expression; NULL when something in it is wrong. */
struct expr *sema_expr(struct sema *sema, struct env *env,
                       const struct syn *syntax);

/* The expression converted to `type` (i32 to f32 only); otherwise an error
 * "WHAT must be TYPE, found ..." and NULL.  `expr` may be NULL. */
struct expr *sema_convert(struct sema *sema, struct expr *expr,
                          enum value_type type, const char *what);

/* A constant i32 such as a group or a tile; false when it is none. */
bool sema_const_i32(struct sema *sema, struct env *env,
                    const struct syn *syntax, const char *what, int32_t *out);

/* Type by name for `let`, `param`, `fn`; unknown ones are an error. */
bool sema_value_type(struct sema *sema, struct syn_name name,
                     enum value_type *out);

/* ---- sema_names.c: look-up ----------------------------------------------- */

/* True for the functions of the language, select included. */
bool sema_is_builtin(const char *name);

/* What a plain name stands for in `env`; NULL after an error. */
struct expr *sema_name(struct sema *sema, struct env *env,
                       const struct syn *syntax);

/* The tensor that is read; NULL after an error. */
const struct tensor *sema_tensor(struct sema *sema, struct env *env,
                                 const struct syn *syntax);

/* The fn that is called, resolved; NULL after an error. */
const struct fn *sema_callee(struct sema *sema, struct env *env,
                             const struct syn *syntax);

/* ---- sema_node.c: building nodes ----------------------------------------- */

/* A leaf without its payload. */
struct expr *sema_leaf(struct sema *sema, enum expr_kind kind,
                       enum value_type type, struct source_range where);

/* A constant leaf. */
struct expr *sema_const(struct sema *sema, enum value_type type, uint32_t bits,
                        struct source_range where);
/* A node over `args`; computes deps, depth and nodes and reports a tree that is
 * too large (NULL).  The payload comes from `proto`. */
struct expr *sema_node(struct sema *sema, struct expr proto,
                       struct expr *const *args, size_t count);

/* Fills in fn->params[].uses from the body. */
void sema_count_uses(struct fn *fn);

/* ---- sema_probe.c -------------------------------------------------------- */

/* Reports i32 divisors that are zero because a fn is called with constants. */
void sema_probe_divisors(struct sema *sema, const struct expr *expr);

#endif
