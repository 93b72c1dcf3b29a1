/* NumPy's .npy files (format 1.0 to 3.0), read strictly and written.
 *
 * C order only, little-endian or one-byte elements, rank 0 to 8.  The header is
 * parsed as the Python literal that NumPy writes, not evaluated; a file that is
 * longer or shorter than its header says is an error.
 */
#ifndef ATTN_TOOLS_NPY_H
#define ATTN_TOOLS_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "support/arena.h"

enum { NPY_MAX_RANK = 8 };

/* Element types: id, NumPy's name, NumPy's descr, bytes. */
/* clang-format off */
#define NPY_TYPES(T)            \
    T(BOOL, "bool", "|b1", 1)   \
    T(U8, "uint8", "|u1", 1)    \
    T(I32, "int32", "<i4", 4)   \
    T(I64, "int64", "<i8", 8)   \
    T(F16, "float16", "<f2", 2) \
    T(F32, "float32", "<f4", 4) \
    T(F64, "float64", "<f8", 8)
/* clang-format on */

enum npy_type {
#define T(id, name, descr, bytes) NPY_##id,
    NPY_TYPES(T)
#undef T
        NPY_TYPE_COUNT
};

struct npy {
    enum npy_type type;
    int rank;
    int64_t shape[NPY_MAX_RANK];
    int64_t count;    /* elements */
    const void *data; /* dense, C order; not aligned to more than one byte */
};

/* NumPy's name of the type, "float32". */
const char *npy_type_name(enum npy_type type);

/* Parses a file in memory; data points into `bytes`.  NULL on success, else a
 * text in the arena that says what was found and what was expected. */
const char *npy_parse(struct arena *arena, const void *bytes, size_t length,
                      struct npy *out);

/* Reads a file ("-": standard input) into the arena.  Result as npy_parse. */
const char *npy_read(struct arena *arena, const char *path, struct npy *out);

/* Element `index` (in C order) of a bool or integer array. */
int64_t npy_get_integer(const struct npy *array, int64_t index);

/* Element `index` of a float array; exact. */
double npy_get_float(const struct npy *array, int64_t index);

/* True for float16, float32 and float64. */
bool npy_is_float(enum npy_type type);

/* Writes an array in format 1.0 ("-": standard output).  Result as
 * npy_parse. */
const char *npy_write(struct arena *arena, const char *path,
                      const struct npy *array);

/* The shape as NumPy prints it, "(2, 8, 128)", in the arena. */
const char *npy_shape_text(struct arena *arena, const int64_t *shape, int rank);

#endif
