/* Checks of one tensor: rank, dtype, device, strides, alignment. */
#include "runtime/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    DL_BOOL = 6,    /* kDLBool of newer dlpack.h */
    ROW_ALIGN = 16, /* bytes: cp.async and TMA copy 16 at once */
    TEXT_BYTES = 32,
};

/* A captured bool is one byte a value, by either of DLPack's names for that. */
static bool dtype_matches(DLDataType found, enum scalar_type type) {
    static const struct {
        uint8_t code, other_code, bits;
    } rows[] = {
        [SCALAR_BOOL] = {DL_BOOL, kDLUInt, 8},
        [SCALAR_I32] = {kDLInt, kDLInt, 32},
        [SCALAR_F32] = {kDLFloat, kDLFloat, 32},
        [SCALAR_F16] = {kDLFloat, kDLFloat, 16},
        [SCALAR_BF16] = {kDLBfloat, kDLBfloat, 16},
    };
    return (found.code == rows[type].code ||
            found.code == rows[type].other_code) &&
           found.bits == rows[type].bits && found.lanes == 1;
}

static const char *dtype_text(DLDataType type, char text[static TEXT_BYTES]) {
    static const char *const codes[] = {"int",    "uint",    "float", "handle",
                                        "bfloat", "complex", "bool"};
    if (type.code < sizeof codes / sizeof *codes)
        snprintf(text, TEXT_BYTES, "%s%d", codes[type.code], type.bits);
    else
        snprintf(text, TEXT_BYTES, "dtype code %d, %d bits", type.code,
                 type.bits);
    if (type.lanes != 1)
        snprintf(text, TEXT_BYTES, "vector of %d lanes", type.lanes);
    return text;
}

static const char *device_text(DLDevice device, char text[static TEXT_BYTES]) {
    switch ((int)device.device_type) {
    case kDLCPU:
        return "the CPU";
    case kDLCUDAHost:
        return "pinned host memory";
    case kDLCUDA:
        snprintf(text, TEXT_BYTES, "cuda:%d", device.device_id);
        return text;
    default:
        snprintf(text, TEXT_BYTES, "device type %d", (int)device.device_type);
        return text;
    }
}

/* What can be said before any extent is looked at. */
static struct attn_status *check_kind(const DLTensor *source,
                                      const struct rt_tensor_rule *rule) {
    char text[TEXT_BYTES];
    if (source->ndim != rule->rank)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "tensor '%s' has rank %d, expected %d", rule->name,
                       source->ndim, rule->rank);
    if (!dtype_matches(source->dtype, rule->type))
        return RT_FAIL(ATTN_INVALID_ARGUMENT, "tensor '%s' is %s, expected %s",
                       rule->name, dtype_text(source->dtype, text),
                       scalar_type_text(rule->type));
    /* DLPack numbers managed memory 0, whatever device it is on. */
    bool managed = source->device.device_type == kDLCUDAManaged;
    bool cuda = source->device.device_type == kDLCUDA;
    if (!managed && (!cuda || source->device.device_id != rule->device))
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "tensor '%s' is on %s, the kernel on cuda:%d",
                       rule->name, device_text(source->device, text),
                       rule->device);
    if (source->shape == NULL)
        return RT_FAIL(ATTN_INVALID_ARGUMENT, "tensor '%s' has no shape",
                       rule->name);
    return NULL;
}

/* Copies extents and strides; fills in compact strides where DLPack has
 * none. */
static struct attn_status *read_shape(const DLTensor *source,
                                      const struct rt_tensor_rule *rule,
                                      struct rt_tensor *tensor) {
    int64_t compact = 1, reach = 0;
    tensor->empty = false;
    for (int axis = rule->rank - 1; axis >= 0; axis--) {
        int64_t extent = source->shape[axis];
        if (extent < 0 || extent > INT32_MAX)
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "tensor '%s' has extent %" PRId64
                           " on axis %d, expected 0 to %d",
                           rule->name, extent, axis, INT32_MAX);
        int64_t stride =
            source->strides != NULL ? source->strides[axis] : compact;
        int64_t last = 0;
        tensor->extents[axis] = extent;
        tensor->strides[axis] = extent > 1 ? stride : 0;
        tensor->empty = tensor->empty || extent == 0;
        if (extent > 1 &&
            (__builtin_mul_overflow(extent - 1, stride, &last) ||
             __builtin_add_overflow(reach, last < 0 ? -last : last, &reach) ||
             reach > INT64_MAX / 8))
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "tensor '%s' has stride %" PRId64
                           " on axis %d, which leaves the address space",
                           rule->name, stride, axis);
        if (__builtin_mul_overflow(compact, extent > 0 ? extent : 1, &compact))
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "tensor '%s' has too many elements", rule->name);
    }
    return NULL;
}

/* cp.async and TMA move 16 bytes at once: every row must start at a multiple of
 * that. */
static struct attn_status *check_rows(const struct rt_tensor_rule *rule,
                                      const struct rt_tensor *tensor) {
    int last = rule->rank - 1;
    int64_t unit = ROW_ALIGN / (int64_t)scalar_type_size(rule->type);
    if (tensor->extents[last] > 1 && tensor->strides[last] != 1)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "tensor '%s' has stride %" PRId64
                       " on its last axis, expected 1",
                       rule->name, tensor->strides[last]);
    for (int axis = 0; axis < last; axis++)
        if (tensor->strides[axis] % unit != 0)
            return RT_FAIL(
                ATTN_INVALID_ARGUMENT,
                "tensor '%s' has stride %" PRId64
                " on axis %d, expected a multiple "
                "of %" PRId64 " elements (rows start at multiples of %d bytes)",
                rule->name, tensor->strides[axis], axis, unit, ROW_ALIGN);
    return NULL;
}

/* Axes whose stride the kernel is not told. */
static struct attn_status *check_compact(const struct rt_tensor_rule *rule,
                                         const struct rt_tensor *tensor) {
    int64_t compact = 1;
    for (int axis = rule->rank - 1; axis >= 0; axis--) {
        bool passed = (rule->passed_strides >> axis & 1) != 0;
        if (!passed && tensor->extents[axis] > 1 &&
            tensor->strides[axis] != compact)
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "tensor '%s' has stride %" PRId64
                           " on axis %d, expected %" PRId64 " (compact)",
                           rule->name, tensor->strides[axis], axis, compact);
        compact *= tensor->extents[axis];
    }
    return NULL;
}

/* A written tensor has no two elements at one address: taken from the smallest
 * stride up, each axis steps over all that the axes below it span.
 * Interleavings that are free of overlap in another way are refused too; no
 * tensor library makes any. */
static struct attn_status *check_distinct(const struct rt_tensor_rule *rule,
                                          const struct rt_tensor *tensor) {
    int64_t span = 0; /* offset of the last element of the axes done */
    uint32_t done = 0;
    for (int count = 0; count < rule->rank; count++) {
        int next = -1;
        for (int axis = 0; axis < rule->rank; axis++)
            if ((done >> axis & 1) == 0 &&
                (next < 0 ||
                 llabs(tensor->strides[axis]) < llabs(tensor->strides[next])))
                next = axis;
        done |= 1u << next;
        if (tensor->extents[next] <= 1)
            continue;
        if (llabs(tensor->strides[next]) <= span)
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "tensor '%s' is written, but its elements overlap "
                           "(stride %" PRId64 " on axis %d)",
                           rule->name, tensor->strides[next], next);
        span += (tensor->extents[next] - 1) * llabs(tensor->strides[next]);
    }
    return NULL;
}

/* The address of the first element of a view. */
static struct attn_status *check_address(const DLTensor *source,
                                         const struct rt_tensor_rule *rule,
                                         struct rt_tensor *tensor) {
    tensor->address = (uint64_t)(uintptr_t)source->data + source->byte_offset;
    if (!rule->check_address || tensor->empty)
        return NULL;
    if (source->data == NULL)
        return RT_FAIL(ATTN_INVALID_ARGUMENT, "tensor '%s' has no data",
                       rule->name);
    uint64_t align = rule->rows ? ROW_ALIGN : scalar_type_size(rule->type);
    if (tensor->address % align != 0)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "tensor '%s' starts at 0x%" PRIx64
                       ", expected a multiple of %" PRIu64 " bytes",
                       rule->name, tensor->address, align);
    return NULL;
}

struct attn_status *rt_tensor_read(const DLTensor *source,
                                   const struct rt_tensor_rule *rule,
                                   struct rt_tensor *out_tensor) {
    RT_TRY(check_kind(source, rule));
    out_tensor->given = true;
    return read_shape(source, rule, out_tensor);
}

struct attn_status *rt_tensor_check(const DLTensor *source,
                                    const struct rt_tensor_rule *rule,
                                    struct rt_tensor *tensor) {
    if (!tensor->empty) {
        if (rule->rows)
            RT_TRY(check_rows(rule, tensor));
        RT_TRY(check_compact(rule, tensor));
        if (rule->written)
            RT_TRY(check_distinct(rule, tensor));
    }
    return check_address(source, rule, tensor);
}
