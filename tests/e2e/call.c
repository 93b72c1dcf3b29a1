/* Calls on host memory; see call.h. */
#include "tests/e2e/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/half.h"

/* A fault of the test itself. */
static _Noreturn void die(const char *what, const char *name) {
    fprintf(stderr, "e2e: %s '%s'\n", what, name);
    abort();
}

/* N(0, 1) rounded to bf16; tiny numbers, which f16 lacks, become 0. */
static float plain_number(struct rng *rng) {
    float x = (float)round_to_scalar(rng_normal(rng), SCALAR_BF16);
    return fabsf(x) < 0x1p-14f ? 0 : x;
}

static float *random_matrix(struct arena *arena, int64_t count,
                            struct rng *rng) {
    float *data = ARENA_NEW_ARRAY(arena, float, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        data[i] = plain_number(rng);
    return data;
}

struct call *call_create(struct arena *arena, const struct attention *attention,
                         const int64_t sizes[SIZE_COUNT], struct rng *rng) {
    struct call *call = ARENA_NEW(arena, struct call);
    call->arena = arena;
    call->attention = attention;
    memcpy(call->sizes, sizes, sizeof call->sizes);
    if (attention->param_count > CALL_MAX_PARAMS ||
        attention->tensor_count > CALL_MAX_TENSORS)
        die("too many params or tensors in", attention->name);
    for (size_t i = 0; i < attention->param_count; i++)
        call->params[i] = attention->params[i].default_bits;
    int64_t q_rows = sizes[SIZE_BATCH] * sizes[SIZE_HEADS] * sizes[SIZE_Q_LEN];
    int64_t kv_rows =
        sizes[SIZE_BATCH] * sizes[SIZE_KV_HEADS] * sizes[SIZE_KV_LEN];
    call->q32 = random_matrix(arena, q_rows * attention->head_dim_qk, rng);
    call->k32 = random_matrix(arena, kv_rows * attention->head_dim_qk, rng);
    call->v32 = random_matrix(arena, kv_rows * attention->head_dim_v, rng);
    return call;
}

static const struct param *find_param(const struct call *call,
                                      const char *name) {
    for (size_t i = 0; i < call->attention->param_count; i++)
        if (!strcmp(call->attention->params[i].name, name))
            return &call->attention->params[i];
    die("no parameter", name);
}

void call_set_i32(struct call *call, const char *name, int32_t value) {
    const struct param *param = find_param(call, name);
    if (param->type != TYPE_I32)
        die("parameter is not an i32:", name);
    call->params[param->number] = (uint32_t)value;
}

void call_set_f32(struct call *call, const char *name, float value) {
    const struct param *param = find_param(call, name);
    if (param->type != TYPE_F32)
        die("parameter is not an f32:", name);
    call->params[param->number] = bits_of_float(value);
}

int64_t call_tensor_count(const struct call_tensor *tensor) {
    int64_t count = 1;
    for (int axis = 0; axis < tensor->rank; axis++)
        count *= tensor->extents[axis];
    return count;
}

/* Dense strides of `tensor` with its axes in memory order `order`, outermost
 * first, each axis but the innermost padded by `padding` elements.  Sets
 * bytes. */
static void set_strides(struct call_tensor *tensor, const int *order,
                        int64_t padding) {
    int64_t stride = 1;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        tensor->strides[order[i]] = stride;
        stride = stride * tensor->extents[order[i]] + padding;
    }
    tensor->bytes = (size_t)stride * scalar_type_size(tensor->type);
}

static void make_dense(struct arena *arena, struct call_tensor *tensor) {
    static const int order[KERNEL_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    set_strides(tensor, order, 0);
    tensor->data = arena_alloc(arena, tensor->bytes);
}

bool call_allocate(struct call *call) {
    struct size_env env = {.scalars = call->params,
                           .scalar_count = call->attention->param_count};
    memcpy(env.sizes, call->sizes, sizeof env.sizes);
    for (size_t i = 0; i < call->attention->tensor_count; i++) {
        const struct tensor *decl = &call->attention->tensors[i];
        struct call_tensor *tensor = &call->captured[i];
        tensor->name = decl->name;
        tensor->type = decl->type;
        tensor->rank = decl->rank;
        int64_t count = 1;
        for (int axis = 0; axis < decl->rank; axis++) {
            struct size_expr extent = {0};
            if (!ast_size_expr(call->arena, decl->extents[axis], &extent) ||
                !size_expr_eval(&extent, &env, &tensor->extents[axis]) ||
                tensor->extents[axis] < 1 || tensor->extents[axis] > 1 << 28)
                return false;
            count *= tensor->extents[axis];
            if (count > 1 << 28)
                return false;
        }
        make_dense(call->arena, tensor);
    }
    return true;
}

struct call_tensor *call_tensor(struct call *call, const char *name,
                                enum scalar_type type) {
    for (size_t i = 0; i < call->attention->tensor_count; i++) {
        if (strcmp(call->captured[i].name, name))
            continue;
        if (call->captured[i].type != type)
            die("tensor has another type:", name);
        return &call->captured[i];
    }
    die("no tensor", name);
}

static void store_float(const struct call_tensor *tensor, int64_t offset,
                        double value) {
    if (tensor->type == SCALAR_F32)
        ((float *)tensor->data)[offset] = (float)value;
    else
        ((uint16_t *)tensor->data)[offset] =
            half_of_float((float)value, tensor->type);
}

static double load_float(const struct call_tensor *tensor, int64_t offset) {
    if (tensor->type == SCALAR_F32)
        return ((const float *)tensor->data)[offset];
    return float_of_half(((const uint16_t *)tensor->data)[offset],
                         tensor->type);
}

void call_fill_floats(struct call *call, struct rng *rng) {
    for (size_t i = 0; i < call->attention->tensor_count; i++) {
        struct call_tensor *tensor = &call->captured[i];
        if (tensor->type == SCALAR_BOOL || tensor->type == SCALAR_I32)
            continue;
        for (int64_t j = 0, count = call_tensor_count(tensor); j < count; j++)
            store_float(tensor, j, rng_normal(rng));
    }
}

/* Offset in elements of the element that is number `index` in logical order. */
static int64_t offset_of(const struct call_tensor *tensor, int64_t index) {
    int64_t offset = 0;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        offset += index % tensor->extents[axis] * tensor->strides[axis];
        index /= tensor->extents[axis];
    }
    return offset;
}

static void copy_elements(const struct call_tensor *from,
                          struct call_tensor *to) {
    size_t size = scalar_type_size(from->type);
    for (int64_t i = 0, count = call_tensor_count(from); i < count; i++)
        memcpy((char *)to->data + (size_t)offset_of(to, i) * size,
               (const char *)from->data + (size_t)offset_of(from, i) * size,
               size);
}

void call_restride(struct call *call, struct rng *rng) {
    for (size_t i = 0; i < call->attention->tensor_count; i++) {
        struct call_tensor *tensor = &call->captured[i], moved = *tensor;
        int order[KERNEL_MAX_RANK];
        for (int axis = 0; axis < tensor->rank; axis++) {
            int other = (int)rng_range(rng, 0, axis);
            order[axis] = order[other];
            order[other] = axis;
        }
        set_strides(&moved, order, rng_range(rng, 0, 3));
        moved.data = arena_alloc(call->arena, moved.bytes);
        memset(moved.data, 0xa5, moved.bytes);
        copy_elements(tensor, &moved);
        *tensor = moved;
    }
}

/* A 16-bit tensor [batch, heads, length, dim] in the given memory order. */
static struct call_tensor matrix_shape(const struct call *call,
                                       const char *name, enum scalar_type dtype,
                                       enum size_name heads,
                                       enum size_name length, int dim,
                                       enum call_layout layout) {
    static const int orders[2][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};
    struct call_tensor tensor = {.name = name, .type = dtype, .rank = 4};
    tensor.extents[0] = call->sizes[SIZE_BATCH];
    tensor.extents[1] = call->sizes[heads];
    tensor.extents[2] = call->sizes[length];
    tensor.extents[3] = dim;
    set_strides(&tensor, orders[layout], 0);
    return tensor;
}

static void encode(struct call *call, struct call_tensor *tensor,
                   const float *values) {
    tensor->data = arena_alloc(call->arena, tensor->bytes);
    for (int64_t i = 0, count = call_tensor_count(tensor); i < count; i++)
        store_float(tensor, offset_of(tensor, i), (double)values[i]);
}

void call_encode(struct call *call, enum scalar_type dtype,
                 enum call_layout layout) {
    int qk = call->attention->head_dim_qk, dv = call->attention->head_dim_v;
    call->q =
        matrix_shape(call, "q", dtype, SIZE_HEADS, SIZE_Q_LEN, qk, layout);
    call->k =
        matrix_shape(call, "k", dtype, SIZE_KV_HEADS, SIZE_KV_LEN, qk, layout);
    call->v =
        matrix_shape(call, "v", dtype, SIZE_KV_HEADS, SIZE_KV_LEN, dv, layout);
    encode(call, &call->q, call->q32);
    encode(call, &call->k, call->k32);
    encode(call, &call->v, call->v32);
}

struct call_tensor call_output(const struct call *call, enum scalar_type dtype,
                               enum call_layout layout) {
    struct call_tensor o =
        matrix_shape(call, "o", dtype, SIZE_HEADS, SIZE_Q_LEN,
                     call->attention->head_dim_v, layout);
    o.data = arena_alloc(call->arena, o.bytes);
    memset(o.data, 0xff, o.bytes);
    return o;
}

struct call_tensor call_lse_output(const struct call *call) {
    static const int order[3] = {0, 1, 2};
    struct call_tensor lse = {.name = "lse", .type = SCALAR_F32, .rank = 3};
    lse.extents[0] = call->sizes[SIZE_BATCH];
    lse.extents[1] = call->sizes[SIZE_HEADS];
    lse.extents[2] = call->sizes[SIZE_Q_LEN];
    set_strides(&lse, order, 0);
    lse.data = arena_alloc(call->arena, lse.bytes);
    memset(lse.data, 0xff, lse.bytes);
    return lse;
}

static struct ref_matrix dense_matrix(const float *data, int64_t heads,
                                      int64_t length, int64_t dim) {
    return (struct ref_matrix){data, {heads * length * dim, length * dim, dim}};
}

struct ref_call call_for_reference(const struct call *call,
                                   struct ref_tensor *out_tensors) {
    struct ref_call ref = {.params = call->params, .tensors = out_tensors};
    const int64_t *sizes = call->sizes;
    memcpy(ref.sizes, sizes, sizeof ref.sizes);
    for (size_t i = 0; i < call->attention->tensor_count; i++) {
        const struct call_tensor *tensor = &call->captured[i];
        out_tensors[i].data = tensor->data;
        memcpy(out_tensors[i].extents, tensor->extents, sizeof tensor->extents);
        memcpy(out_tensors[i].strides, tensor->strides, sizeof tensor->strides);
    }
    int qk = call->attention->head_dim_qk, dv = call->attention->head_dim_v;
    ref.q = dense_matrix(call->q32, sizes[SIZE_HEADS], sizes[SIZE_Q_LEN], qk);
    ref.k =
        dense_matrix(call->k32, sizes[SIZE_KV_HEADS], sizes[SIZE_KV_LEN], qk);
    ref.v =
        dense_matrix(call->v32, sizes[SIZE_KV_HEADS], sizes[SIZE_KV_LEN], dv);
    return ref;
}

float *call_decode(const struct call *call, const struct call_tensor *tensor) {
    int64_t count = call_tensor_count(tensor);
    float *values = ARENA_NEW_ARRAY(call->arena, float, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)load_float(tensor, offset_of(tensor, i));
    return values;
}

/* ---- Reading elements in predicates ------------------------------------- */

static int64_t element(const struct call *call, int tensor,
                       const int64_t index[4]) {
    const struct call_tensor *t = &call->captured[tensor];
    int64_t offset = 0;
    for (int axis = 0; axis < t->rank; axis++) {
        if (index[axis] < 0 || index[axis] >= t->extents[axis])
            die("the predicate reads out of range of", t->name);
        offset += index[axis] * t->strides[axis];
    }
    return offset;
}

int32_t call_i32(const struct call *call, int tensor, int64_t i0, int64_t i1,
                 int64_t i2) {
    int64_t offset = element(call, tensor, (int64_t[4]){i0, i1, i2, 0});
    return ((const int32_t *)call->captured[tensor].data)[offset];
}

bool call_bool(const struct call *call, int tensor, int64_t i0, int64_t i1,
               int64_t i2) {
    int64_t offset = element(call, tensor, (int64_t[4]){i0, i1, i2, 0});
    return ((const uint8_t *)call->captured[tensor].data)[offset] != 0;
}

double call_float(const struct call *call, int tensor, int64_t i0, int64_t i1,
                  int64_t i2, int64_t i3) {
    int64_t offset = element(call, tensor, (int64_t[4]){i0, i1, i2, i3});
    return load_float(&call->captured[tensor], offset);
}

int32_t call_param_i32(const struct call *call, int param) {
    return (int32_t)call->params[param];
}

float call_param_f32(const struct call *call, int param) {
    return float_of_bits(call->params[param]);
}
