/* Reader and writer of .npy files; see tools/npy.h.
 *
 * The format (numpy/lib/format.py): "\x93NUMPY", version, header length (16
 * bits in 1.0, 32 bits from 2.0), a Python dict literal with the keys descr,
 * fortran_order and shape, padded with blanks to a newline, then the
 * elements. */
#include "tools/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "reference/half.h"
#include "support/strbuf.h"

/* Longer headers do not come from a plain array. */
enum { MAX_HEADER = 4096 };

static const size_t max_file_bytes = (size_t)1 << 40;

static const struct {
    const char *name, *descr;
    size_t size;
} types[NPY_TYPE_COUNT] = {
#define T(id, name, descr, bytes) [NPY_##id] = {name, descr, bytes},
    NPY_TYPES(T)
#undef T
};

const char *npy_type_name(enum npy_type type) {
    return types[type].name;
}

/* Bytes of one element. */
static size_t type_size(enum npy_type type) {
    return types[type].size;
}

bool npy_is_float(enum npy_type type) {
    return type == NPY_F16 || type == NPY_F32 || type == NPY_F64;
}

/* ---- Header ------------------------------------------------------------- */

/* Reading position in the header's text. */
struct cursor {
    const char *at, *end;
    struct arena *arena;
    const char *error;
};

/* Records the first fault: what was expected, and the text at the cursor. */
static bool fail(struct cursor *c, const char *expected) {
    if (c->error)
        return false;
    int rest = c->end - c->at > 24 ? 24 : (int)(c->end - c->at);
    char *found = arena_strndup(c->arena, c->at, (size_t)rest);
    for (char *p = found; *p; p++)
        if (*p < 32 || *p > 126)
            *p = '?';
    c->error = arena_printf(c->arena, "bad header: expected %s, found '%s'",
                            expected, found);
    return false;
}

static void skip_blanks(struct cursor *c) {
    while (c->at < c->end &&
           (*c->at == ' ' || *c->at == '\n' || *c->at == '\t'))
        c->at++;
}

/* Skips blanks and takes `wanted` if it comes next. */
static bool accept(struct cursor *c, char wanted) {
    skip_blanks(c);
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static bool accept_word(struct cursor *c, const char *word) {
    skip_blanks(c);
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return true;
}

/* A quoted string without escapes, in the arena. */
static const char *parse_string(struct cursor *c) {
    skip_blanks(c);
    char quote = c->at < c->end ? *c->at : 0;
    if (quote != '\'' && quote != '"') {
        fail(c, "a string");
        return NULL;
    }
    const char *close = memchr(c->at + 1, quote, (size_t)(c->end - c->at - 1));
    if (!close) {
        fail(c, "a closed string");
        return NULL;
    }
    const char *text =
        arena_strndup(c->arena, c->at + 1, (size_t)(close - c->at - 1));
    c->at = close + 1;
    return text;
}

static bool parse_extent(struct cursor *c, int64_t *out) {
    skip_blanks(c);
    if (c->at == c->end || *c->at < '0' || *c->at > '9')
        return fail(c, "an extent");
    for (*out = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *c->at - '0', out))
            return fail(c, "an extent that fits in 64 bits");
    accept(c, 'L'); /* Python 2's long integers */
    return true;
}

/* A tuple: (), (3,), (2, 3), (2, 3,). */
static bool parse_shape(struct cursor *c, struct npy *out) {
    if (!accept(c, '('))
        return fail(c, "a tuple");
    while (!accept(c, ')')) {
        if (out->rank == NPY_MAX_RANK)
            return fail(c, "at most 8 axes");
        if (!parse_extent(c, &out->shape[out->rank++]))
            return false;
        if (!accept(c, ',')) {
            if (!accept(c, ')') || out->rank == 1) /* (5) is no tuple */
                return fail(c, "',' or ')'");
            break;
        }
    }
    return true;
}

/* The element type: one of NPY_TYPES. */
static bool parse_descr(struct cursor *c, struct npy *out) {
    const char *descr = parse_string(c);
    if (!descr)
        return false;
    for (int type = 0; type < NPY_TYPE_COUNT; type++) {
        const char *known = types[type].descr;
        /* one-byte types may carry any byte order */
        if (strcmp(known, descr) == 0 || (known[0] == '|' && descr[0] &&
                                          strcmp(known + 1, descr + 1) == 0)) {
            out->type = (enum npy_type)type;
            return true;
        }
    }
    c->error = arena_printf(
        c->arena,
        "elements of type '%.20s'; expected bool, uint8, int32, int64, "
        "float16, float32 or float64, little-endian",
        descr);
    return false;
}

static bool parse_order(struct cursor *c) {
    if (accept_word(c, "False"))
        return true;
    if (!accept_word(c, "True"))
        return fail(c, "True or False");
    c->error =
        "Fortran order; expected C order (numpy.ascontiguousarray makes it)";
    return false;
}

enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

/* key: value; each key once, in any order. */
static bool parse_entry(struct cursor *c, struct npy *out, int *seen) {
    const char *key = parse_string(c);
    if (!key)
        return false;
    int bit = strcmp(key, "descr") == 0           ? HAS_DESCR
              : strcmp(key, "fortran_order") == 0 ? HAS_ORDER
              : strcmp(key, "shape") == 0         ? HAS_SHAPE
                                                  : 0;
    if (!bit || *seen & bit)
        return fail(c, "the keys descr, fortran_order and shape, once each");
    *seen |= bit;
    if (!accept(c, ':'))
        return fail(c, "':'");
    return bit == HAS_DESCR   ? parse_descr(c, out)
           : bit == HAS_ORDER ? parse_order(c)
                              : parse_shape(c, out);
}

static bool parse_header(struct cursor *c, struct npy *out) {
    int seen = 0;
    if (!accept(c, '{'))
        return fail(c, "'{'");
    while (!accept(c, '}')) {
        if (!parse_entry(c, out, &seen))
            return false;
        if (!accept(c, ',')) {
            if (!accept(c, '}'))
                return fail(c, "',' or '}'");
            break;
        }
    }
    skip_blanks(c);
    if (c->at != c->end)
        return fail(c, "the end of the header");
    return seen == HAS_ALL ||
           fail(c, "the keys descr, fortran_order and shape");
}

/* Counts the elements and compares with the bytes that follow the header. */
static const char *check_size(struct arena *arena, size_t have,
                              struct npy *out) {
    out->count = 1;
    bool zero = false;
    for (int axis = 0; axis < out->rank; axis++)
        zero = zero || out->shape[axis] == 0;
    for (int axis = 0; axis < out->rank && !zero; axis++)
        if (__builtin_mul_overflow(out->count, out->shape[axis], &out->count) ||
            out->count > (int64_t)(max_file_bytes / type_size(out->type)))
            return arena_printf(arena, "shape %s is too large",
                                npy_shape_text(arena, out->shape, out->rank));
    if (zero)
        out->count = 0;
    size_t want = (size_t)out->count * type_size(out->type);
    if (have != want)
        return arena_printf(arena, "%zu bytes of elements; %s %s needs %zu",
                            have, npy_type_name(out->type),
                            npy_shape_text(arena, out->shape, out->rank), want);
    return NULL;
}

const char *npy_parse(struct arena *arena, const void *bytes, size_t length,
                      struct npy *out) {
    const unsigned char *b = bytes;
    *out = (struct npy){0};
    if (length < 10 || memcmp(b, "\x93NUMPY", 6) != 0)
        return "no .npy file (it does not start with \\x93NUMPY)";
    if (b[6] < 1 || b[6] > 3 || b[7] != 0)
        return arena_printf(arena,
                            "format version %d.%d; expected 1.0, 2.0 or 3.0",
                            b[6], b[7]);
    size_t start = b[6] == 1 ? 10 : 12;
    if (length < start)
        return "the header is cut off";
    size_t size = b[8] | (size_t)b[9] << 8;
    if (b[6] > 1)
        size |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (size > MAX_HEADER)
        return arena_printf(arena,
                            "a header of %zu bytes; at most %d are expected",
                            size, MAX_HEADER);
    if (length - start < size)
        return "the header is cut off";
    struct cursor c = {(const char *)b + start, (const char *)b + start + size,
                       arena, NULL};
    if (!parse_header(&c, out))
        return c.error;
    out->data = b + start + size;
    return check_size(arena, length - start - size, out);
}

const char *npy_read(struct arena *arena, const char *path, struct npy *out) {
    bool standard = strcmp(path, "-") == 0;
    FILE *stream = standard ? stdin : fopen(path, "rb");
    if (!stream)
        return arena_printf(arena, "cannot open: %s", strerror(errno));
    struct strbuf bytes;
    strbuf_init(&bytes, arena);
    bool ok = strbuf_read(&bytes, stream, max_file_bytes);
    int error = errno;
    if (!standard)
        fclose(stream);
    if (!ok)
        return arena_printf(arena, "cannot read: %s", strerror(error));
    return npy_parse(arena, strbuf_text(&bytes), bytes.length, out);
}

/* ---- Elements ----------------------------------------------------------- */

int64_t npy_get_integer(const struct npy *array, int64_t index) {
    const char *at =
        (const char *)array->data + index * (int64_t)type_size(array->type);
    int32_t i32;
    int64_t i64;
    switch (array->type) {
    case NPY_BOOL:
        return *at != 0;
    case NPY_U8:
        return (unsigned char)*at;
    case NPY_I32:
        memcpy(&i32, at, sizeof i32);
        return i32;
    case NPY_I64:
        memcpy(&i64, at, sizeof i64);
        return i64;
    case NPY_F16:
    case NPY_F32:
    case NPY_F64:
    case NPY_TYPE_COUNT:
        break;
    }
    return 0;
}

double npy_get_float(const struct npy *array, int64_t index) {
    const char *at =
        (const char *)array->data + index * (int64_t)type_size(array->type);
    uint16_t f16;
    float f32;
    double f64;
    switch (array->type) {
    case NPY_F16:
        memcpy(&f16, at, sizeof f16);
        return (double)float_of_f16(f16);
    case NPY_F32:
        memcpy(&f32, at, sizeof f32);
        return (double)f32;
    case NPY_F64:
        memcpy(&f64, at, sizeof f64);
        return f64;
    case NPY_BOOL:
    case NPY_U8:
    case NPY_I32:
    case NPY_I64:
    case NPY_TYPE_COUNT:
        break;
    }
    return 0;
}

/* ---- Writing ------------------------------------------------------------ */

const char *npy_shape_text(struct arena *arena, const int64_t *shape,
                           int rank) {
    struct strbuf text;
    strbuf_init(&text, arena);
    strbuf_append_char(&text, '(');
    for (int axis = 0; axis < rank; axis++)
        strbuf_printf(&text, "%s%" PRId64, axis ? ", " : "", shape[axis]);
    strbuf_append(&text, rank == 1 ? ",)" : ")");
    return strbuf_text(&text);
}

/* Header padded so that the data starts at a multiple of 64, as NumPy does. */
static bool write_stream(FILE *stream, struct arena *arena,
                         const struct npy *array) {
    struct strbuf header;
    strbuf_init(&header, arena);
    strbuf_printf(&header,
                  "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                  types[array->type].descr,
                  npy_shape_text(arena, array->shape, array->rank));
    size_t prefix = 10;
    strbuf_append_repeat(&header, ' ', 63 - (prefix + header.length) % 64);
    strbuf_append_char(&header, '\n');
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    start[8] = (unsigned char)(header.length & 255);
    start[9] = (unsigned char)(header.length >> 8);
    size_t bytes = (size_t)array->count * type_size(array->type);
    return fwrite(start, sizeof start, 1, stream) == 1 &&
           fwrite(header.data, header.length, 1, stream) == 1 &&
           (bytes == 0 || fwrite(array->data, bytes, 1, stream) == 1) &&
           fflush(stream) == 0;
}

const char *npy_write(struct arena *arena, const char *path,
                      const struct npy *array) {
    bool standard = strcmp(path, "-") == 0;
    FILE *stream = standard ? stdout : fopen(path, "wb");
    if (!stream)
        return arena_printf(arena, "cannot open: %s", strerror(errno));
    bool ok = write_stream(stream, arena, array);
    int error = errno;
    if (!standard && fclose(stream) != 0 && ok) {
        ok = false;
        error = errno;
    }
    return ok ? NULL : arena_printf(arena, "cannot write: %s", strerror(error));
}
