/* Runs calls on the emulator: the compiler's PTX and the facts that come with
 * it.
 *
 * A run fails on any report of the emulator, on elements of O and LSE that no
 * kernel wrote, on writes beside them and on tile counters left behind. */
#include <string.h>

#include "compiler/compile.h"
#include "emulator/attention.h"
#include "tests/e2e/executor.h"

const char *emulator_create(struct loaded *loaded, const char *target,
                            struct executor *executor) {
    struct compile_options options = {.target = target, .verify_each = true};
    struct compiled *compiled = ARENA_NEW(loaded->arena, struct compiled);
    if (!compile_attention(loaded->arena, loaded->sources, loaded->spec,
                           loaded->attention, &options, loaded->diags,
                           compiled)) {
        struct strbuf text;
        strbuf_init(&text, loaded->arena);
        diag_render(loaded->diags, false, &text);
        return strbuf_text(&text);
    }
    executor->target = compiled->target;
    executor->compiled = compiled;
    return kernel_info_check(compiled->info, loaded->arena);
}

static struct emu_tensor borrow(const struct call_tensor *tensor) {
    struct emu_tensor result = {.data = tensor->data, .bytes = tensor->bytes};
    memcpy(result.extents, tensor->extents, sizeof result.extents);
    memcpy(result.strides, tensor->strides, sizeof result.strides);
    return result;
}

/* The call's tensors in the order of the kernel's facts. */
static struct emu_tensor *bind_tensors(const struct kernel_info *info,
                                       const struct call *call,
                                       const struct call_tensor *o,
                                       const struct call_tensor *lse) {
    struct emu_tensor *tensors =
        ARENA_NEW_ARRAY(call->arena, struct emu_tensor, info->tensor_count);
    tensors[KERNEL_TENSOR_Q] = borrow(&call->q);
    tensors[KERNEL_TENSOR_K] = borrow(&call->k);
    tensors[KERNEL_TENSOR_V] = borrow(&call->v);
    tensors[KERNEL_TENSOR_O] = borrow(o);
    tensors[KERNEL_TENSOR_LSE] = borrow(lse);
    for (size_t i = KERNEL_TENSOR_CAPTURED; i < info->tensor_count; i++)
        for (size_t j = 0; j < call->attention->tensor_count; j++)
            if (!strcmp(call->captured[j].name, info->tensors[i].name))
                tensors[i] = borrow(&call->captured[j]);
    return tensors;
}

static uint32_t *bind_scalars(const struct kernel_info *info,
                              const struct call *call) {
    uint32_t *scalars =
        ARENA_NEW_ARRAY(call->arena, uint32_t, info->scalar_count);
    for (size_t i = 0; i < info->scalar_count; i++)
        for (size_t j = 0; j < call->attention->param_count; j++)
            if (!strcmp(call->attention->params[j].name, info->scalars[i].name))
                scalars[i] = call->params[j];
    return scalars;
}

static const char *report_text(struct arena *arena,
                               const struct emu_result *total) {
    const struct emu_report *r = total->reports;
    return arena_printf(
        arena,
        "%zu reports of the emulator; the first: %s at %s:%d, %s (%s), CTA %u, "
        "warp %d, lane %d, %llu times: %s",
        total->report_count, emu_report_kind_text(r->kind), r->file, r->line,
        r->instruction, r->source, r->cta[0], r->warp, r->lane,
        (unsigned long long)r->count, r->detail);
}

static const char *judge(struct arena *arena,
                         const struct emu_attention_result *result) {
    if (result->total.report_count)
        return report_text(arena, &result->total);
    if (result->o_unwritten || result->lse_unwritten)
        return arena_printf(arena,
                            "%zu elements of O and %zu of LSE were not written",
                            result->o_unwritten, result->lse_unwritten);
    if (result->o_beside || result->lse_beside)
        return arena_printf(
            arena, "%zu bytes beside O and %zu beside LSE were written",
            result->o_beside, result->lse_beside);
    if (result->workspace_not_zero)
        return arena_printf(arena,
                            "%zu bytes of the workspace are not zero again",
                            result->workspace_not_zero);
    return NULL;
}

/* Of the warps of a CTA: what does not end is reported, after half a minute.
 * The longest case takes less than a quarter. */
enum { MAX_INSTRUCTIONS = 1 << 25 };

/* With one multiprocessor a persistent CTA does all tiles, with several CTAs
 * draw tiles from each other. */
static int multiprocessors_of(const struct executor *executor,
                              const struct call *call, uint64_t seed) {
    static const int counts[] = {1, 2, 4};
    if (executor->multiprocessors != 0)
        return executor->multiprocessors;
    uint64_t mix = seed + (executor->dtype == SCALAR_F16);
    for (int i = 0; i < SIZE_COUNT; i++)
        mix += (uint64_t)call->sizes[i];
    return counts[mix % (sizeof counts / sizeof counts[0])];
}

const char *emulator_run(const struct executor *executor,
                         const struct call *call, uint64_t seed,
                         struct call_tensor *o, struct call_tensor *lse) {
    const struct compiled *compiled = executor->compiled;
    struct emu_source source = {compiled->ptx, compiled->ptx_length,
                                call->attention->name};
    struct emu_attention attention = {
        .info = compiled->info,
        .sources = &source,
        .source_count = 1,
        .tensors = bind_tensors(compiled->info, call, o, lse),
        .scalars = bind_scalars(compiled->info, call),
        .sm_count = multiprocessors_of(executor, call, seed),
    };
    struct emu_options options = emu_options_default();
    struct emu_attention_result result = {0};
    struct emu_error error;
    memcpy(attention.sizes, call->sizes, sizeof attention.sizes);
    options.seed = seed;
    options.threads = 1;
    options.count = false;
    options.max_instructions = MAX_INSTRUCTIONS;
    bool ran = emu_attention_run(&attention, &options, &result, &error);
    const char *message = ran ? judge(call->arena, &result)
                              : arena_strdup(call->arena, error.text);
    emu_result_destroy(&result.total);
    return message;
}
