/* Sizes, parameters, tensors, Q, K, V of one call; see tools/inputs.h. */
#include "tools/inputs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "reference/half.h"
#include "tools/npy.h"
#include "tools/random.h"

/* ---- Sizes -------------------------------------------------------------- */

/* The option's size, or another where it was not given. */
static int64_t given_or(const struct options *options, enum size_name size,
                        int64_t other) {
    return options->sizes[size] ? options->sizes[size] : other;
}

/* Defaults follow from what is given: heads from kv_heads and group, kv_heads
 * from heads and group, kv_len from q_len. */
static int resolve_sizes(struct session *session, struct inputs *in) {
    const struct options *o = session->options;
    int64_t group = in->attention->group;
    int64_t *s = in->sizes;
    s[SIZE_BATCH] = given_or(o, SIZE_BATCH, 1);
    s[SIZE_Q_LEN] = given_or(o, SIZE_Q_LEN, 128);
    s[SIZE_KV_LEN] = given_or(o, SIZE_KV_LEN, s[SIZE_Q_LEN]);
    s[SIZE_KV_HEADS] = o->sizes[SIZE_KV_HEADS];
    s[SIZE_HEADS] = o->sizes[SIZE_HEADS];
    if (!s[SIZE_HEADS])
        s[SIZE_HEADS] =
            (s[SIZE_KV_HEADS] ? s[SIZE_KV_HEADS] : 1) * (group ? group : 1);
    if (!s[SIZE_KV_HEADS])
        s[SIZE_KV_HEADS] = group ? s[SIZE_HEADS] / group : s[SIZE_HEADS];
    if (group && s[SIZE_HEADS] != group * s[SIZE_KV_HEADS])
        return session_fail(
            session, STATUS_FAILED,
            "heads must be %" PRId64 " times kv_heads (group %" PRId64
            "), found %" PRId64 " heads and %" PRId64 " KV heads",
            group, group, s[SIZE_HEADS], s[SIZE_KV_HEADS]);
    if (s[SIZE_HEADS] % s[SIZE_KV_HEADS])
        return session_fail(
            session, STATUS_FAILED,
            "heads must be a multiple of kv_heads, found %" PRId64
            " heads and %" PRId64 " KV heads",
            s[SIZE_HEADS], s[SIZE_KV_HEADS]);
    return STATUS_OK;
}

/* ---- Parameters --------------------------------------------------------- */

/* A --param or --tensor that the spec does not have. */
static int unknown_name(struct session *session,
                        const struct attention *attention, const char *option,
                        const char *name, const char *const *names,
                        size_t count) {
    return session_fail(session, STATUS_FAILED,
                        "--%s %s: attention '%s' has no %s of that name%s",
                        option, diag_name(session->diags, name),
                        diag_name(session->diags, attention->name), option,
                        session_suggestion(session, name, names, count));
}

static const struct param *find_param(const struct attention *attention,
                                      const char *name) {
    for (size_t i = 0; i < attention->param_count; i++)
        if (strcmp(attention->params[i].name, name) == 0)
            return &attention->params[i];
    return NULL;
}

/* Bits of an option's value for the parameter's type; false if it does not
 * fit. */
static bool convert_param(const struct option_param *given,
                          enum value_type type, uint32_t *out_bits) {
    switch (type) {
    case TYPE_BOOL:
        *out_bits = (uint32_t)given->integer;
        return given->form != PARAM_FLOAT &&
               (given->integer == 0 || given->integer == 1);
    case TYPE_I32:
        *out_bits = (uint32_t)given->integer;
        return given->form == PARAM_INTEGER && given->integer >= INT32_MIN &&
               given->integer <= INT32_MAX;
    case TYPE_F32:
        *out_bits = bits_of_float((float)given->real);
        return given->form != PARAM_BOOL &&
               (isfinite((float)given->real) || !isfinite(given->real));
    }
    return false;
}

/* Defaults, then options; every used parameter must have a value then. */
static int apply_params(struct session *session, struct inputs *in, bool need) {
    const struct attention *attention = in->attention;
    const char **names =
        ARENA_NEW_ARRAY(session->arena, const char *, attention->param_count);
    bool *given = ARENA_NEW_ARRAY(session->arena, bool, attention->param_count);
    in->param_known = given;
    in->params =
        ARENA_NEW_ARRAY(session->arena, uint32_t, attention->param_count);
    for (size_t i = 0; i < attention->param_count; i++) {
        names[i] = attention->params[i].name;
        in->params[i] = attention->params[i].default_bits;
        given[i] =
            attention->params[i].has_default || !attention->params[i].used;
    }
    for (size_t i = 0; i < session->options->params.count; i++) {
        const struct option_param *value = &session->options->params.data[i];
        const struct param *param = find_param(attention, value->name);
        if (!param)
            return unknown_name(session, attention, "param", value->name, names,
                                attention->param_count);
        if (!convert_param(value, param->type, &in->params[param->number]))
            return session_fail(session, STATUS_FAILED,
                                "--param %s: '%s' is no %s value", param->name,
                                diag_name(session->diags, value->text),
                                ast_type_name(param->type));
        given[param->number] = true;
    }
    for (size_t i = 0; i < attention->param_count; i++)
        if (!given[i] && need)
            return session_fail(
                session, STATUS_FAILED,
                "param '%s' has no default: give it with --param %s=VALUE",
                names[i], names[i]);
    return STATUS_OK;
}

/* ---- Memory ------------------------------------------------------------- */

/* Elements of a shape; refuses what cannot fit in this machine's memory. */
static int count_elements(struct session *session, const char *what,
                          const int64_t *shape, int rank, int64_t element_bytes,
                          int64_t *out_count) {
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    int64_t count = 1, bytes = 0;
    bool fits = true;
    for (int axis = 0; axis < rank && fits; axis++)
        fits = !__builtin_mul_overflow(count, shape[axis], &count);
    fits = fits && !__builtin_mul_overflow(count, element_bytes, &bytes) &&
           bytes < memory;
    *out_count = count;
    if (fits)
        return STATUS_OK;
    return session_fail(
        session, STATUS_MISSING,
        "%s with shape %s does not fit into this machine's memory (%" PRId64
        " MiB)",
        what, npy_shape_text(session->arena, shape, rank), memory >> 20);
}

static bool same_shape(const struct npy *array, const int64_t *shape,
                       int rank) {
    bool same = array->rank == rank;
    for (int axis = 0; axis < rank && same; axis++)
        same = array->shape[axis] == shape[axis];
    return same;
}

/* Reads an array that must have this shape. */
static int read_array(struct session *session, const char *option,
                      const char *path, const int64_t *shape, int rank,
                      struct npy *out) {
    const char *error = npy_read(session->arena, path, out);
    if (error)
        return session_fail(session, STATUS_FAILED, "%s: '%s': %s", option,
                            path, error);
    if (!same_shape(out, shape, rank))
        return session_fail(
            session, STATUS_FAILED, "%s: '%s' has shape %s, expected %s",
            option, path, npy_shape_text(session->arena, out->shape, out->rank),
            npy_shape_text(session->arena, shape, rank));
    return STATUS_OK;
}

/* ---- Captured tensors --------------------------------------------------- */

/* Evaluates the extents of a tensor for this call in 64 bits, as a launch does,
 * and lays it out in C order. */
static int resolve_extents(struct session *session, const struct inputs *in,
                           struct input_tensor *t) {
    struct size_env env = {.scalars = in->params,
                           .scalar_count = in->attention->param_count};
    memcpy(env.sizes, in->sizes, sizeof env.sizes);
    const struct tensor *tensor = t->tensor;
    for (int axis = 0; axis < tensor->rank; axis++) {
        struct size_expr code = {0};
        bool known =
            ast_size_expr(session->arena, tensor->extents[axis], &code) &&
            size_expr_eval(&code, &env, &t->extents[axis]);
        if (!known || t->extents[axis] < 1 || t->extents[axis] > INT32_MAX) {
            struct strbuf text;
            strbuf_init(&text, session->arena);
            ast_print_expr(&text, tensor->extents[axis]);
            const char *value = known ? arena_printf(session->arena, "%" PRId64,
                                                     t->extents[axis])
                                      : "an overflow or a division by zero";
            return session_fail(
                session, STATUS_FAILED,
                "tensor '%s': extent %d (%s) is %s, expected 1 to 2147483647",
                tensor->name, axis, strbuf_text(&text), value);
        }
    }
    int64_t stride = 1;
    int status = count_elements(
        session, arena_printf(session->arena, "tensor '%s'", tensor->name),
        t->extents, tensor->rank, (int64_t)scalar_type_size(tensor->type),
        &t->count);
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        t->strides[axis] = stride;
        stride *= t->extents[axis];
    }
    return status;
}

/* Stores a value as element `index`, rounded to the tensor's type. */
static void store_float(struct input_tensor *t, int64_t index, double value) {
    float rounded = (float)value;
    uint16_t half = half_of_float(
        (float)round_to_scalar(value, t->tensor->type), t->tensor->type);
    if (t->tensor->type == SCALAR_F32)
        memcpy((char *)t->data + index * 4, &rounded, sizeof rounded);
    else
        memcpy((char *)t->data + index * 2, &half, sizeof half);
}

/* Integers are in range here; any non-zero value is a true bool. */
static void store_integer(struct input_tensor *t, int64_t index,
                          int64_t value) {
    int32_t integer = (int32_t)value;
    if (t->tensor->type == SCALAR_BOOL)
        ((uint8_t *)t->data)[index] = value != 0;
    else
        memcpy((char *)t->data + index * 4, &integer, sizeof integer);
}

static bool is_float(enum scalar_type type) {
    return type != SCALAR_BOOL && type != SCALAR_I32;
}

/* Value of a float array that a tensor of this type can hold. */
static bool float_fits(double value, enum scalar_type type) {
    return !isfinite(value) || isfinite(round_to_scalar(value, type));
}

/* Index of the first element that does not fit the tensor's type, -1 for
 * none. */
static int64_t copy_array(struct input_tensor *t, const struct npy *array) {
    for (int64_t i = 0; i < t->count; i++) {
        if (is_float(t->tensor->type)) {
            double value = npy_get_float(array, i);
            if (!float_fits(value, t->tensor->type))
                return i;
            store_float(t, i, value);
        } else {
            int64_t value = npy_get_integer(array, i);
            bool fits = t->tensor->type == SCALAR_BOOL
                            ? value == 0 || value == 1 || array->type == NPY_U8
                            : value >= INT32_MIN && value <= INT32_MAX;
            if (!fits)
                return i;
            store_integer(t, i, value);
        }
    }
    return -1;
}

/* Fills a tensor from a file: floats into float tensors, integers into the
 * others, each checked against the range of the tensor's type. */
static int read_tensor(struct session *session, struct input_tensor *t,
                       const char *path) {
    struct npy array;
    const char *option =
        arena_printf(session->arena, "--tensor %s", t->tensor->name);
    int status =
        read_array(session, option, path, t->extents, t->tensor->rank, &array);
    if (status != STATUS_OK)
        return status;
    if (is_float(t->tensor->type) != npy_is_float(array.type))
        return session_fail(
            session, STATUS_FAILED,
            "%s: '%s' holds %s, the tensor is %s (expected %s)", option, path,
            npy_type_name(array.type), scalar_type_text(t->tensor->type),
            is_float(t->tensor->type) ? "float16, float32 or float64"
                                      : "int32, int64, uint8 or bool");
    int64_t bad = copy_array(t, &array);
    if (bad < 0)
        return STATUS_OK;
    const char *value =
        npy_is_float(array.type)
            ? arena_printf(session->arena, "%.9g", npy_get_float(&array, bad))
            : arena_printf(session->arena, "%" PRId64,
                           npy_get_integer(&array, bad));
    return session_fail(
        session, STATUS_FAILED,
        "%s: element %" PRId64 " of '%s' is %s, out of range for %s", option,
        bad, path, value, scalar_type_text(t->tensor->type));
}

/* Fills a tensor at random: N(0, 1), even odds, or a range that the option
 * gives. */
static int draw_tensor(struct session *session, struct input_tensor *t,
                       const struct option_tensor *given) {
    const char *name = t->tensor->name;
    enum scalar_type type = t->tensor->type;
    struct random_stream stream = random_stream(session->options->seed, name);
    if (type == SCALAR_I32 && !given->has_range)
        return session_fail(
            session, STATUS_FAILED,
            "--tensor %s=random: an i32 tensor needs a range, %s=random:LO..HI",
            name, name);
    if (type != SCALAR_I32 && given->has_range)
        return session_fail(
            session, STATUS_FAILED,
            "--tensor %s: a range is for i32 tensors, this one is %s", name,
            scalar_type_text(type));
    if (!is_float(type)) {
        for (int64_t i = 0; i < t->count; i++)
            store_integer(
                t, i,
                type == SCALAR_BOOL
                    ? random_bool(stream, i)
                    : random_integer(stream, i, given->low, given->high));
        return STATUS_OK;
    }
    float *values = ARENA_NEW_ARRAY(session->arena, float, (size_t)t->count);
    random_normal(stream, values, t->count);
    for (int64_t i = 0; i < t->count; i++)
        store_float(t, i, (double)values[i]);
    return STATUS_OK;
}

static int add_tensor(struct session *session, struct inputs *in,
                      struct input_tensor *t,
                      const struct option_tensor *given) {
    int status = resolve_extents(session, in, t);
    if (status != STATUS_OK)
        return status;
    t->data = arena_alloc_array(session->arena, (size_t)t->count,
                                scalar_type_size(t->tensor->type));
    return given->file ? read_tensor(session, t, given->file)
                       : draw_tensor(session, t, given);
}

static const struct option_tensor *given_tensor(const struct options *options,
                                                const char *name) {
    for (size_t i = 0; i < options->tensors.count; i++)
        if (strcmp(options->tensors.data[i].name, name) == 0)
            return &options->tensors.data[i];
    return NULL;
}

/* One of the given tensors is none of the spec's: says which. */
static int unknown_tensor(struct session *session,
                          const struct attention *attention,
                          const char *const *names) {
    for (size_t i = 0; i < session->options->tensors.count; i++) {
        const char *name = session->options->tensors.data[i].name;
        bool known = false;
        for (size_t j = 0; j < attention->tensor_count; j++)
            known = known || strcmp(names[j], name) == 0;
        if (!known)
            return unknown_name(session, attention, "tensor", name, names,
                                attention->tensor_count);
    }
    return STATUS_OK;
}

/* Fills the tensors that options give; every used one must be given if
 * `need`. */
static int apply_tensors(struct session *session, struct inputs *in,
                         bool need) {
    const struct attention *attention = in->attention;
    size_t count = attention->tensor_count;
    const char **names = ARENA_NEW_ARRAY(session->arena, const char *, count);
    in->tensors = ARENA_NEW_ARRAY(session->arena, struct input_tensor, count);
    size_t matched = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tensor *tensor = &attention->tensors[i];
        const struct option_tensor *given =
            given_tensor(session->options, tensor->name);
        names[i] = tensor->name;
        in->tensors[i].tensor = tensor;
        matched += given != NULL;
        if (!given && need && tensor->used)
            return session_fail(
                session, STATUS_FAILED,
                "tensor '%s' is missing: give it with --tensor %s=FILE.npy or "
                "--tensor %s=random%s",
                tensor->name, tensor->name, tensor->name,
                tensor->type == SCALAR_I32 ? ":LO..HI" : "");
        int status =
            given ? add_tensor(session, in, &in->tensors[i], given) : STATUS_OK;
        if (status != STATUS_OK)
            return status;
    }
    return matched == session->options->tensors.count
               ? STATUS_OK
               : unknown_tensor(session, attention, names);
}

int inputs_create(struct session *session, const struct attention *attention,
                  bool need_all, struct inputs *out) {
    *out = (struct inputs){.attention = attention};
    int status = resolve_sizes(session, out);
    if (status == STATUS_OK)
        status = apply_params(session, out, need_all);
    return status == STATUS_OK ? apply_tensors(session, out, need_all) : status;
}

const char *inputs_missing(struct arena *arena, const struct inputs *inputs) {
    const struct attention *attention = inputs->attention;
    for (size_t i = 0; i < attention->param_count; i++)
        if (!inputs->param_known[i])
            return arena_printf(arena, "--param %s=VALUE",
                                attention->params[i].name);
    for (size_t i = 0; i < attention->tensor_count; i++)
        if (attention->tensors[i].used && !inputs->tensors[i].data)
            return arena_printf(
                arena, "--tensor %s=FILE.npy or --tensor %s=random%s",
                attention->tensors[i].name, attention->tensors[i].name,
                attention->tensors[i].type == SCALAR_I32 ? ":LO..HI" : "");
    return NULL;
}

/* ---- Q, K, V ------------------------------------------------------------ */

/* Q, K or V from a file of floats, rounded once to the dtype. */
static int read_matrix(struct session *session, const char *option,
                       const char *path, enum scalar_type dtype,
                       struct input_matrix *m) {
    struct npy array;
    int status = read_array(session, option, path, m->shape, 4, &array);
    if (status != STATUS_OK)
        return status;
    if (!npy_is_float(array.type))
        return session_fail(
            session, STATUS_FAILED,
            "%s: '%s' holds %s, expected float16, float32 or float64", option,
            path, npy_type_name(array.type));
    for (int64_t i = 0; i < m->count; i++) {
        double value = npy_get_float(&array, i);
        if (!float_fits(value, dtype))
            return session_fail(
                session, STATUS_FAILED,
                "%s: element %" PRId64 " of '%s' is %.9g, out of range for %s",
                option, i, path, value, scalar_type_text(dtype));
        m->data[i] = (float)round_to_scalar(value, dtype);
    }
    return STATUS_OK;
}

/* Q, K or V from a file or at random. */
static int add_matrix(struct session *session, const struct inputs *in,
                      const char *name, const char *path, enum size_name heads,
                      enum size_name length, int dim, struct input_matrix *m) {
    enum scalar_type dtype = in->attention->dtype;
    const char *option = arena_printf(session->arena, "--%s", name);
    m->shape[0] = in->sizes[SIZE_BATCH];
    m->shape[1] = in->sizes[heads];
    m->shape[2] = in->sizes[length];
    m->shape[3] = dim;
    int status =
        count_elements(session, name, m->shape, 4, sizeof(float), &m->count);
    if (status != STATUS_OK)
        return status;
    m->data = ARENA_NEW_ARRAY(session->arena, float, (size_t)m->count);
    if (path)
        return read_matrix(session, option, path, dtype, m);
    random_normal(random_stream(session->options->seed, name), m->data,
                  m->count);
    for (int64_t i = 0; i < m->count; i++)
        m->data[i] = float_of_half(half_of_float(m->data[i], dtype), dtype);
    return STATUS_OK;
}

int inputs_add_matrices(struct session *session, struct inputs *in) {
    const struct options *o = session->options;
    int dim_qk = in->attention->head_dim_qk, dim_v = in->attention->head_dim_v;
    int status = add_matrix(session, in, "q", o->q, SIZE_HEADS, SIZE_Q_LEN,
                            dim_qk, &in->q);
    if (status == STATUS_OK)
        status = add_matrix(session, in, "k", o->k, SIZE_KV_HEADS, SIZE_KV_LEN,
                            dim_qk, &in->k);
    if (status == STATUS_OK)
        status = add_matrix(session, in, "v", o->v, SIZE_KV_HEADS, SIZE_KV_LEN,
                            dim_v, &in->v);
    return status;
}

/* ---- Views -------------------------------------------------------------- */

/* A dense matrix as the reference sees it. */
static struct ref_matrix matrix_view(const struct input_matrix *m) {
    return (struct ref_matrix){m->data,
                               {m->shape[1] * m->shape[2] * m->shape[3],
                                m->shape[2] * m->shape[3], m->shape[3]}};
}

struct ref_call inputs_reference_call(struct arena *arena,
                                      const struct inputs *inputs) {
    size_t count = inputs->attention->tensor_count;
    struct ref_tensor *tensors =
        ARENA_NEW_ARRAY(arena, struct ref_tensor, count);
    for (size_t i = 0; i < count; i++) {
        tensors[i].data = inputs->tensors[i].data;
        memcpy(tensors[i].extents, inputs->tensors[i].extents,
               sizeof tensors[i].extents);
        memcpy(tensors[i].strides, inputs->tensors[i].strides,
               sizeof tensors[i].strides);
    }
    struct ref_call call = {.params = inputs->params,
                            .tensors = tensors,
                            .q = matrix_view(&inputs->q),
                            .k = matrix_view(&inputs->k),
                            .v = matrix_view(&inputs->v)};
    memcpy(call.sizes, inputs->sizes, sizeof call.sizes);
    return call;
}

void inputs_strides(const int64_t shape[4], enum option_layout layout,
                    int64_t out[4]) {
    out[3] = 1;
    out[0] = shape[1] * shape[2] * shape[3];
    out[1] = layout == LAYOUT_BHSD ? shape[2] * shape[3] : shape[3];
    out[2] = layout == LAYOUT_BHSD ? shape[3] : shape[1] * shape[3];
}

/* Offset in memory of row `row` (counted in logical order). */
static int64_t row_offset(const int64_t shape[4], const int64_t strides[4],
                          int64_t row) {
    int64_t position = row % shape[2], head = row / shape[2] % shape[1];
    int64_t batch = row / shape[2] / shape[1];
    return batch * strides[0] + head * strides[1] + position * strides[2];
}

uint16_t *inputs_pack(struct arena *arena, const struct input_matrix *matrix,
                      enum scalar_type dtype, enum option_layout layout) {
    uint16_t *bits = ARENA_NEW_ARRAY(arena, uint16_t, (size_t)matrix->count);
    int64_t strides[4], dim = matrix->shape[3];
    inputs_strides(matrix->shape, layout, strides);
    for (int64_t row = 0; row < matrix->count / dim; row++) {
        uint16_t *to = bits + row_offset(matrix->shape, strides, row);
        for (int64_t d = 0; d < dim; d++)
            to[d] = half_of_float(matrix->data[row * dim + d], dtype);
    }
    return bits;
}

float *inputs_unpack(struct arena *arena, const uint16_t *bits,
                     const int64_t shape[4], enum scalar_type dtype,
                     enum option_layout layout) {
    int64_t strides[4], dim = shape[3], rows = shape[0] * shape[1] * shape[2];
    float *values = ARENA_NEW_ARRAY(arena, float, (size_t)(rows * dim));
    inputs_strides(shape, layout, strides);
    for (int64_t row = 0; row < rows; row++) {
        const uint16_t *from = bits + row_offset(shape, strides, row);
        for (int64_t d = 0; d < dim; d++)
            values[row * dim + d] = float_of_half(from[d], dtype);
    }
    return values;
}

void inputs_output_shape(const struct inputs *inputs, int64_t out[4]) {
    out[0] = inputs->sizes[SIZE_BATCH];
    out[1] = inputs->sizes[SIZE_HEADS];
    out[2] = inputs->sizes[SIZE_Q_LEN];
    out[3] = inputs->attention->head_dim_v;
}
