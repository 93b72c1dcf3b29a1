/* Extern fns: finding the CUDA file and comparing the signature that it gives.
 *
 * The comparison is textual and lenient: it looks for `name(type, type)` behind
 * a result type and speaks up only where it is sure.  NVRTC has the last
 * word. */
#include <ctype.h>
#include <string.h>

#include "frontend/sema.h"

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* The text with comments and strings blanked, except "C" of extern "C". */
static char *code_only(struct arena *arena, const struct source_file *file) {
    char *code = arena_strndup(arena, file->text, file->length);
    for (size_t i = 0; i < file->length;) {
        size_t begin = i;
        if (code[i] == '/' && code[i + 1] == '/') {
            while (i < file->length && code[i] != '\n')
                i++;
        } else if (code[i] == '/' && code[i + 1] == '*') {
            const char *end = strstr(code + i + 2, "*/");
            i = end ? (size_t)(end - code) + 2 : file->length;
        } else {
            i++;
            continue;
        }
        memset(code + begin, ' ', i - begin);
    }
    return code;
}

/* Next place of `name` as a whole word followed by '(', from `at`; NULL:
 * none. */
static const char *find_function(const char *at, const char *name) {
    size_t length = strlen(name);
    for (const char *p = at; (p = strstr(p, name)); p += length) {
        const char *next = p + length;
        while (isspace((unsigned char)*next))
            next++;
        if (!is_word(p[length]) && (p == at || !is_word(p[-1])) && *next == '(')
            return p;
    }
    return NULL;
}

/* What a C parameter such as "const int d" says; false if it is not plain. */
static bool c_type(const char *text, size_t length, enum value_type *out) {
    static const struct {
        const char *word;
        enum value_type type;
    } types[] = {{"int", TYPE_I32},
                 {"int32_t", TYPE_I32},
                 {"float", TYPE_F32},
                 {"bool", TYPE_BOOL}};
    bool found = false;
    for (size_t i = 0; i < length;) {
        if (!is_word(text[i])) {
            if (!isspace((unsigned char)text[i]))
                return false;
            i++;
            continue;
        }
        size_t end = i;
        while (end < length && is_word(text[end]))
            end++;
        for (size_t t = 0; !found && t < sizeof types / sizeof *types; t++)
            if (strlen(types[t].word) == end - i &&
                !memcmp(types[t].word, text + i, end - i)) {
                *out = types[t].type;
                found = true;
            }
        i = end;
    }
    return found;
}

static const char *c_name(enum value_type type) {
    return type == TYPE_I32 ? "int" : type == TYPE_F32 ? "float" : "bool";
}

/* Compares the parameters in the parentheses at `open`. */
static bool check_params(struct sema *sema, struct decl *decl,
                         const char *open) {
    const struct fn *fn = decl->fn;
    const char *close = strchr(open, ')');
    size_t count = 0;
    for (const char *p = open + 1; close && p < close; count++) {
        const char *end = memchr(p, ',', (size_t)(close - p));
        end = end ? end : close;
        enum value_type type;
        if (!c_type(p, (size_t)(end - p), &type))
            return true; /* not plain C: left to NVRTC */
        if (count < fn->param_count && type != fn->params[count].type) {
            diag_error(sema->diags, fn->params[count].where,
                       "'%s' is %s here, but %s in %s, where %s is expected",
                       diag_name(sema->diags, fn->params[count].name),
                       ast_type_name(fn->params[count].type), c_name(type),
                       fn->file->path, c_name(fn->params[count].type));
            return false;
        }
        p = end + 1;
    }
    if (!close || count == fn->param_count)
        return true;
    diag_error(sema->diags, fn->where,
               "'%s' has %zu parameters here, but %zu in %s",
               diag_name(sema->diags, fn->name), fn->param_count, count,
               fn->file->path);
    return false;
}

/* The words before the name: extern "C", __device__ and the result type. */
static bool check_result(struct sema *sema, struct decl *decl, const char *code,
                         const char *name) {
    const struct fn *fn = decl->fn;
    const char *begin = name;
    while (begin > code && !strchr(";{}", begin[-1]))
        begin--;
    size_t length = (size_t)(name - begin);
    const char *text = arena_strndup(sema->arena, begin, length);
    if (!strstr(text, "__device__")) {
        diag_error(sema->diags, fn->where,
                   "'%s' is no __device__ function in %s",
                   diag_name(sema->diags, fn->name), fn->file->path);
        return false;
    }
    enum value_type type;
    const char *device = strstr(text, "__device__") + strlen("__device__");
    if (!c_type(device, strlen(device), &type) || type == fn->type)
        return true;
    diag_error(sema->diags, fn->where,
               "'%s' gives %s here, but %s in %s, where %s is expected",
               diag_name(sema->diags, fn->name), ast_type_name(fn->type),
               c_name(type), fn->file->path, c_name(fn->type));
    return false;
}

static bool check_definition(struct sema *sema, struct decl *decl) {
    const struct fn *fn = decl->fn;
    const char *code = code_only(sema->arena, fn->file);
    const char *name = find_function(code, fn->name);
    if (!name) {
        diag_error(sema->diags, fn->file_where, "%s does not define '%s'",
                   fn->file->path, diag_name(sema->diags, fn->name));
        return false;
    }
    return check_result(sema, decl, code, name) &&
           check_params(sema, decl, strchr(name, '('));
}

bool sema_extern_file(struct sema *sema, struct decl *decl, bool compare) {
    struct syn_name name = decl->syntax->file;
    decl->fn->file_where = name.where;
    if (!name.text)
        return false;
    decl->fn->file = sema_find_file(sema, decl->module, name);
    return decl->fn->file && (!compare || check_definition(sema, decl));
}
