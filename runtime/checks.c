/* Argument checks of a call, in the order in which facts become known:
 * parameters, q and k (which give the sizes), the other fixed tensors, captured
 * tensors. */
#include "runtime/checks.h"

#include <inttypes.h>
#include <string.h>

void rt_contract_find_strides(struct rt_contract *contract) {
    const struct kernel_info *info = contract->info;
    memset(contract->passed_strides, 0,
           info->tensor_count * sizeof *contract->passed_strides);
    for (size_t e = 0; e < info->entry_count; e++)
        for (size_t p = 0; p < info->entries[e].param_count; p++) {
            const struct kernel_param *param = &info->entries[e].params[p];
            if (param->kind == KERNEL_PARAM_STRIDE)
                contract->passed_strides[param->index] |= 1u << param->axis;
            if (param->kind ==
                KERNEL_PARAM_TENSOR_MAP) /* batch, head and row strides */
                contract
                    ->passed_strides[info->tensor_maps[param->index].tensor] |=
                    7u;
        }
}

/* ---- Parameters -------------------------------------------------------- */

static const char *const arg_types[] = {
    [ATTN_BOOL] = "bool", [ATTN_I32] = "i32",   [ATTN_F32] = "f32",
    [ATTN_F16] = "f16",   [ATTN_BF16] = "bf16",
};

/* The bits of a parameter, converted only where nothing can be lost. */
static struct attn_status *scalar_bits(const struct kernel_scalar *scalar,
                                       const struct attn_param_arg *arg,
                                       uint32_t *out_bits) {
    float f32 = arg->type == ATTN_F32 ? arg->value.f32 : (float)arg->value.i32;
    if (scalar->type == SCALAR_BOOL && arg->type == ATTN_BOOL) {
        *out_bits = arg->value.boolean;
    } else if (scalar->type == SCALAR_I32 && arg->type == ATTN_I32) {
        *out_bits = (uint32_t)arg->value.i32;
    } else if (scalar->type == SCALAR_F32 && arg->type == ATTN_F32) {
        memcpy(out_bits, &f32, sizeof f32);
    } else if (scalar->type == SCALAR_F32 && arg->type == ATTN_I32) {
        if ((double)f32 != (double)arg->value.i32)
            return RT_FAIL(
                ATTN_INVALID_ARGUMENT,
                "parameter '%s' is f32, which cannot hold the i32 %" PRId32
                " exactly",
                scalar->name, arg->value.i32);
        memcpy(out_bits, &f32, sizeof f32);
    } else {
        bool known = (unsigned)arg->type <= ATTN_BF16;
        return RT_FAIL(
            ATTN_INVALID_ARGUMENT, "parameter '%s' is given as %s, expected %s",
            scalar->name, known ? arg_types[arg->type] : "an unknown type",
            scalar_type_text(scalar->type));
    }
    return NULL;
}

/* The place of `name` in a table of named structs, or -1. */
static int find_scalar(const struct kernel_info *info, const char *name) {
    for (size_t i = 0; i < info->scalar_count; i++)
        if (strcmp(info->scalars[i].name, name) == 0)
            return (int)i;
    return -1;
}

static int find_captured(const struct kernel_info *info, const char *name) {
    for (size_t i = KERNEL_TENSOR_CAPTURED; i < info->tensor_count; i++)
        if (strcmp(info->tensors[i].name, name) == 0)
            return (int)i;
    return -1;
}

static const struct attn_param_arg *param_arg(const struct attn_args *args,
                                              const char *name) {
    for (size_t i = 0; i < args->param_count; i++)
        if (strcmp(args->params[i].name, name) == 0)
            return &args->params[i];
    return NULL;
}

static const struct attn_tensor_arg *tensor_arg(const struct attn_args *args,
                                                const char *name) {
    for (size_t i = 0; i < args->tensor_count; i++)
        if (strcmp(args->tensors[i].name, name) == 0)
            return &args->tensors[i];
    return NULL;
}

/* Names that the spec does not have, and names given twice. */
static struct attn_status *check_names(const struct kernel_info *info,
                                       const struct attn_args *args) {
    for (size_t i = 0; i < args->param_count; i++) {
        const char *name = args->params[i].name;
        if (name == NULL || find_scalar(info, name) < 0)
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "attention '%s' has no parameter '%s'", info->name,
                           name != NULL ? name : "(null)");
        if (param_arg(args, name) != &args->params[i])
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "parameter '%s' is given twice", name);
    }
    for (size_t i = 0; i < args->tensor_count; i++) {
        const char *name = args->tensors[i].name;
        if (name == NULL || find_captured(info, name) < 0)
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "attention '%s' has no tensor '%s'", info->name,
                           name != NULL ? name : "(null)");
        if (tensor_arg(args, name) != &args->tensors[i])
            return RT_FAIL(ATTN_INVALID_ARGUMENT, "tensor '%s' is given twice",
                           name);
    }
    return NULL;
}

/* Fills in given values and defaults. */
static struct attn_status *check_params(const struct kernel_info *info,
                                        const struct attn_args *args,
                                        uint32_t *scalars) {
    for (size_t i = 0; i < info->scalar_count; i++) {
        const struct kernel_scalar *scalar = &info->scalars[i];
        const struct attn_param_arg *arg = param_arg(args, scalar->name);
        scalars[i] = scalar->default_bits;
        if (arg != NULL)
            RT_TRY(scalar_bits(scalar, arg, &scalars[i]));
        else if (!scalar->has_default && scalar->used)
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "parameter '%s' is missing (%s, without a default)",
                           scalar->name, scalar_type_text(scalar->type));
    }
    return NULL;
}

/* ---- Tensors ----------------------------------------------------------- */

/* What the contract says about tensor `index`. */
static struct rt_tensor_rule rule_of(const struct rt_contract *contract,
                                     int index, bool addresses) {
    const struct kernel_tensor *tensor = &contract->info->tensors[index];
    return (struct rt_tensor_rule){
        .name = tensor->name,
        .type = tensor->type,
        .rank = tensor->rank,
        .device = contract->device,
        .rows = index <= KERNEL_TENSOR_O,
        .written = index == KERNEL_TENSOR_O || index == KERNEL_TENSOR_LSE,
        .passed_strides = contract->passed_strides[index],
        .check_address = addresses,
    };
}

/* Sizes come from q and k; their own head_dim, batch and group are checked
 * here. */
static struct attn_status *find_sizes(const struct rt_contract *contract,
                                      struct rt_call *call) {
    const struct kernel_info *info = contract->info;
    const int64_t *q = call->tensors[KERNEL_TENSOR_Q].extents;
    const int64_t *k = call->tensors[KERNEL_TENSOR_K].extents;
    int64_t *sizes = call->env.sizes;
    sizes[SIZE_BATCH] = q[0];
    sizes[SIZE_HEADS] = q[1];
    sizes[SIZE_KV_HEADS] = k[1];
    sizes[SIZE_Q_LEN] = q[2];
    sizes[SIZE_KV_LEN] = k[2];
    call->nothing = q[0] == 0 || q[1] == 0 || q[2] == 0;
    int64_t heads = q[1], kv_heads = k[1];
    if (info->group > 0
            ? heads != (int64_t)info->group * kv_heads
            : heads != 0 && (kv_heads == 0 || heads % kv_heads != 0)) {
        if (info->group > 0)
            return RT_FAIL(
                ATTN_INVALID_ARGUMENT,
                "q has %" PRId64 " heads and k %" PRId64
                ", but the spec says group %d: expected %" PRId64 " heads",
                heads, kv_heads, info->group, (int64_t)info->group * kv_heads);
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "q has %" PRId64
                       " heads, expected a multiple of k's %" PRId64,
                       heads, kv_heads);
    }
    return NULL;
}

/* Extents are expressions of sizes and parameters, evaluated in 64 bits. */
static struct attn_status *check_extents(const struct rt_contract *contract,
                                         int index,
                                         const struct rt_call *call) {
    const struct kernel_tensor *tensor = &contract->info->tensors[index];
    const struct rt_tensor *given = &call->tensors[index];
    bool may_be_empty = call->nothing || call->env.sizes[SIZE_KV_LEN] == 0;
    for (int axis = 0; axis < tensor->rank; axis++) {
        int64_t expected = 0;
        if (!size_expr_eval(&tensor->extents[axis], &call->env, &expected))
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "the extent of tensor '%s' on axis %d divides by "
                           "zero or overflows "
                           "with these sizes and parameters",
                           tensor->name, axis);
        if (expected < (may_be_empty ? 0 : 1) || expected > INT32_MAX)
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "tensor '%s' would need extent %" PRId64
                           " on axis %d with these "
                           "sizes and parameters, expected 1 to %d",
                           tensor->name, expected, axis, INT32_MAX);
        if (given->extents[axis] != expected)
            return RT_FAIL(ATTN_INVALID_ARGUMENT,
                           "tensor '%s' has extent %" PRId64
                           " on axis %d, expected %" PRId64,
                           tensor->name, given->extents[axis], axis, expected);
    }
    return NULL;
}

/* The DLTensor given for tensor `index`, or NULL. */
static const DLTensor *source_of(const struct kernel_info *info,
                                 const struct attn_args *args, int index) {
    const DLTensor *const fixed[KERNEL_TENSOR_CAPTURED] = {
        args->q, args->k, args->v, args->o, args->lse};
    if (index < KERNEL_TENSOR_CAPTURED)
        return fixed[index];
    const struct attn_tensor_arg *arg =
        tensor_arg(args, info->tensors[index].name);
    return arg != NULL ? arg->tensor : NULL;
}

/* In two rounds: sizes are known only once q and k are read, and a wrong extent
 * explains more than the strides that follow from it. */
static struct attn_status *check_tensors(const struct rt_contract *contract,
                                         const struct attn_args *args,
                                         bool addresses, struct rt_call *call) {
    const struct kernel_info *info = contract->info;
    for (int i = 0; i < (int)info->tensor_count; i++) {
        const DLTensor *source = source_of(info, args, i);
        struct rt_tensor_rule rule = rule_of(contract, i, addresses);
        bool optional = i == KERNEL_TENSOR_LSE ||
                        (i == KERNEL_TENSOR_O && !addresses) ||
                        (i >= KERNEL_TENSOR_CAPTURED && !info->tensors[i].used);
        if (source == NULL && !optional)
            return RT_FAIL(ATTN_INVALID_ARGUMENT, "tensor '%s' is missing",
                           rule.name);
        memset(&call->tensors[i], 0, sizeof call->tensors[i]);
        if (source != NULL)
            RT_TRY(rt_tensor_read(source, &rule, &call->tensors[i]));
        if (i == KERNEL_TENSOR_K)
            RT_TRY(find_sizes(contract, call));
    }
    for (int i = 0; i < (int)info->tensor_count; i++) {
        struct rt_tensor_rule rule = rule_of(contract, i, addresses);
        if (!call->tensors[i].given)
            continue;
        RT_TRY(check_extents(contract, i, call));
        RT_TRY(rt_tensor_check(source_of(info, args, i), &rule,
                               &call->tensors[i]));
    }
    return NULL;
}

struct attn_status *rt_call_check(const struct rt_contract *contract,
                                  const struct attn_args *args, bool addresses,
                                  struct rt_call *call) {
    const struct kernel_info *info = contract->info;
    if (args == NULL)
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "the arguments are missing (NULL)");
    if ((args->tensors == NULL && args->tensor_count > 0) ||
        (args->params == NULL && args->param_count > 0))
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "a list of arguments is NULL, its count is not 0");
    call->env = (struct size_env){
        .scalars = call->scalars,
        .scalar_count = info->scalar_count,
        .sm_count = contract->sm_count,
    };
    RT_TRY(check_names(info, args));
    RT_TRY(check_params(info, args, call->scalars));
    return check_tensors(contract, args, addresses, call);
}

struct attn_status *rt_call_workspace(const struct rt_contract *contract,
                                      const struct rt_call *call,
                                      uint64_t *out_bytes,
                                      uint64_t *out_zeroed) {
    const struct kernel_info *info = contract->info;
    int64_t bytes = 0, zeroed = 0;
    if (!call->nothing &&
        (!size_expr_eval(&info->workspace_bytes, &call->env, &bytes) ||
         !size_expr_eval(&info->workspace_zeroed, &call->env, &zeroed) ||
         bytes < 0 || zeroed < 0 || zeroed > bytes))
        return RT_FAIL(ATTN_INVALID_ARGUMENT,
                       "the workspace of attention '%s' has no valid size with "
                       "these arguments",
                       info->name);
    *out_bytes = (uint64_t)bytes;
    *out_zeroed = (uint64_t)zeroed;
    return NULL;
}
