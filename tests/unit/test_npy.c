/* .npy files, byte by byte. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/arena.h"
#include "tools/npy.h"

/* A file of version `major`.0 with this header text, padded as NumPy does. */
static size_t build(unsigned char *out, int major, const char *header,
                    const void *data, size_t bytes) {
    size_t prefix = major == 1 ? 10 : 12;
    size_t length = (prefix + strlen(header) + 1 + 63) / 64 * 64 - prefix;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)major;
    out[7] = 0;
    memset(out + 8, 0, prefix - 8);
    out[8] = (unsigned char)length;
    out[9] = (unsigned char)(length >> 8);
    memset(out + prefix, ' ', length);
    memcpy(out + prefix, header, strlen(header));
    out[prefix + length - 1] = '\n';
    if (bytes)
        memcpy(out + prefix + length, data, bytes);
    return prefix + length + bytes;
}

struct fixture {
    struct arena *arena;
    unsigned char bytes[8192];
    size_t length;
    struct npy array;
};

static const char *parse(struct fixture *f, const char *header,
                         const void *data, size_t bytes) {
    f->arena = f->arena ? f->arena : arena_create();
    f->length = build(f->bytes, 1, header, data, bytes);
    return npy_parse(f->arena, f->bytes, f->length, &f->array);
}

#define HEADER(descr, shape) \
    "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }"

Test(npy, reads_what_numpy_writes) {
    struct fixture f = {0};
    const float data[6] = {1, 2, 3, 4, 5, -6.5f};
    cr_assert_null(parse(&f, HEADER("<f4", "(2, 3)"), data, sizeof data));
    cr_expect_eq(f.array.type, NPY_F32);
    cr_expect_eq(f.array.rank, 2);
    cr_expect_eq(f.array.shape[0], 2);
    cr_expect_eq(f.array.shape[1], 3);
    cr_expect_eq(f.array.count, 6);
    cr_expect_eq(npy_get_float(&f.array, 5), -6.5);
}

Test(npy, element_types) {
    struct fixture f = {0};
    const int64_t big[2] = {-5, INT64_C(1) << 40};
    cr_assert_null(parse(&f, HEADER("<i8", "(2,)"), big, sizeof big));
    cr_expect_eq(npy_get_integer(&f.array, 1), INT64_C(1) << 40);
    cr_assert_null(parse(&f, HEADER("<i4", "(1,)"), "\xfe\xff\xff\xff", 4));
    cr_expect_eq(npy_get_integer(&f.array, 0), -2);
    cr_assert_null(parse(&f, HEADER("|b1", "(2,)"), "\x00\x01", 2));
    cr_expect_eq(npy_get_integer(&f.array, 1), 1);
    cr_assert_null(parse(&f, HEADER("|u1", "(1,)"), "\xff", 1));
    cr_expect_eq(npy_get_integer(&f.array, 0), 255);
    cr_assert_null(
        parse(&f, HEADER("<f2", "(3,)"), "\x00\x3c\x00\x7c\x01\x00", 6));
    cr_expect_eq(npy_get_float(&f.array, 0), 1);
    cr_expect_eq(npy_get_float(&f.array, 1), INFINITY);
    cr_expect_eq(npy_get_float(&f.array, 2), 0x1p-24);
    const double d = 0.1;
    cr_assert_null(parse(&f, HEADER("<f8", "()"), &d, sizeof d));
    cr_expect_eq(npy_get_float(&f.array, 0), 0.1);
    cr_expect_eq(f.array.count, 1);
}

Test(npy, shapes) {
    struct fixture f = {0};
    cr_assert_null(parse(&f, HEADER("|u1", "(0, 5)"), "", 0));
    cr_expect_eq(f.array.count, 0);
    cr_assert_null(parse(&f, HEADER("|u1", "(3L, 1L)"), "abc", 3));
    cr_assert_null(parse(
        &f, "{\"shape\": (1,2,), \"descr\": \"|u1\", \"fortran_order\": False}",
        "ab", 2));
    cr_expect_eq(f.array.rank, 2);
}

Test(npy, version_two) {
    struct fixture f = {.arena = arena_create()};
    f.length = build(f.bytes, 2, HEADER("|u1", "(2,)"), "ab", 2);
    cr_assert_null(npy_parse(f.arena, f.bytes, f.length, &f.array));
    cr_expect_eq(npy_get_integer(&f.array, 1), 'b');
}

static void expect_error(const char *header, size_t bytes,
                         const char *expected) {
    struct fixture f = {0};
    static const char zeros[64];
    const char *error = parse(&f, header, zeros, bytes);
    cr_assert_not_null(error, "%s is accepted", header);
    cr_expect_not_null(strstr(error, expected), "'%s' lacks '%s'", error,
                       expected);
    arena_destroy(f.arena);
}

Test(npy, refuses_with_a_reason) {
    expect_error(HEADER(">f4", "(1,)"), 4, "elements of type '>f4'");
    expect_error(HEADER("<c8", "(1,)"), 8, "elements of type '<c8'");
    expect_error("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", 4,
                 "Fortran order");
    expect_error("{'descr': '<f4', 'fortran_order': False}", 4, "the keys");
    expect_error("{'descr': '<f4', 'descr': '<f4'}", 4, "once each");
    expect_error(
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", 4,
        "a string");
    expect_error(HEADER("<f4", "(1)"), 4, "',' or ')'");
    expect_error(HEADER("<f4", "(-1,)"), 4, "an extent");
    expect_error(HEADER("<f4", "(99999999999999999999,)"), 4,
                 "fits in 64 bits");
    expect_error(HEADER("<f4", "(4000000000, 4000000000, 4000000000)"), 4,
                 "too large");
    expect_error(HEADER("<f4", "(1,1,1,1,1,1,1,1,1)"), 4, "at most 8 axes");
    expect_error(HEADER("<f4", "(3,)"), 8,
                 "8 bytes of elements; float32 (3,) needs 12");
    expect_error(HEADER("<f4", "(1,)"), 8, "8 bytes of elements");
    expect_error("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", 4,
                 "the end");
    expect_error("nonsense", 0, "'{'");
    expect_error("{'descr", 0, "a closed string");
}

/* Every cut of a good file is an error, never a crash. */
Test(npy, truncated) {
    struct fixture f = {0};
    cr_assert_null(parse(&f, HEADER("<f4", "(2,)"), "12345678", 8));
    for (size_t length = 0; length < f.length; length++) {
        unsigned char *exact = malloc(length ? length : 1);
        memcpy(exact, f.bytes, length);
        cr_expect_not_null(npy_parse(f.arena, exact, length, &f.array),
                           "%zu bytes", length);
        free(exact);
    }
}

/* Every byte of the header changed to every value: an error or a parse, no
 * crash. */
Test(npy, damaged) {
    struct fixture f = {0};
    cr_assert_null(parse(&f, HEADER("<f4", "(2,)"), "12345678", 8));
    int accepted = 0;
    for (size_t at = 0; at < 80; at++)
        for (int value = 0; value < 256; value++) {
            unsigned char damaged[8192];
            memcpy(damaged, f.bytes, f.length);
            damaged[at] = (unsigned char)value;
            accepted += npy_parse(f.arena, damaged, f.length, &f.array) == NULL;
        }
    cr_expect_lt(
        accepted,
        80 + 64 * 3); /* the original, and other blanks in the padding */
}

Test(npy, written_files_read_back) {
    struct arena *arena = arena_create();
    char path[] = "/tmp/attn-npy-XXXXXX";
    close(mkstemp(path));
    const float data[4] = {1, -INFINITY, 0, 3.25f};
    struct npy array = {NPY_F32, 3, {1, 2, 2}, 4, data}, back;
    cr_assert_null(npy_write(arena, path, &array));
    cr_assert_null(npy_read(arena, path, &back));
    unlink(path);
    cr_expect_eq(back.rank, 3);
    cr_expect_eq(back.shape[2], 2);
    cr_expect_eq(memcmp(back.data, data, sizeof data), 0);
    const char *start = (const char *)back.data - 128;
    cr_expect_eq(
        memcmp(start,
               "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': "
               "False, 'shape': (1, 2, 2), }",
               72),
        0);
    cr_expect_eq(start[127], '\n');
    arena_destroy(arena);
}

Test(npy, files_that_are_not_there) {
    struct arena *arena = arena_create();
    struct npy array = {NPY_F32, 0, {0}, 0, NULL};
    cr_expect_str_eq(npy_read(arena, "/nonexistent.npy", &array),
                     "cannot open: No such file or directory");
    cr_expect_str_eq(npy_write(arena, "/nonexistent/x.npy", &array),
                     "cannot open: No such file or directory");
    cr_expect_not_null(npy_read(arena, "/", &array));
    arena_destroy(arena);
}
