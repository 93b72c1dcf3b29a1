/* attnc run --device reference. */
#include "reference/half.h"
#include "tools/device.h"

static int64_t row_count(const struct inputs *inputs) {
    return inputs->sizes[SIZE_BATCH] * inputs->sizes[SIZE_HEADS] *
           inputs->sizes[SIZE_Q_LEN];
}

int device_reference_run(struct session *session, const struct inputs *inputs,
                         struct ref_result *out_reference) {
    const char *missing = NULL;
    struct ref_program *program =
        ref_compile(session->arena, inputs->attention, &missing);
    if (!program)
        return session_fail(
            session, STATUS_FAILED,
            "the reference cannot evaluate extern fn '%s': it has no model "
            "(write one: extern \"FILE\" fn %s(...) -> TYPE = EXPRESSION;)",
            missing, missing);
    size_t rows = (size_t)row_count(inputs);
    size_t dim = (size_t)inputs->attention->head_dim_v;
    out_reference->o = ARENA_NEW_ARRAY(session->arena, double, rows *dim);
    out_reference->lse = ARENA_NEW_ARRAY(session->arena, double, rows);
    out_reference->row = ARENA_NEW_ARRAY(session->arena, uint8_t, rows);
    struct ref_call call = inputs_reference_call(session->arena, inputs);
    struct arena *scratch = arena_create();
    ref_run(scratch, program, &call, 0, out_reference);
    arena_destroy(scratch);
    return STATUS_OK;
}

int device_reference(struct session *session, const struct inputs *inputs,
                     struct ref_result *out_reference,
                     struct device_result *out) {
    double start = session_clock();
    int status = device_reference_run(session, inputs, out_reference);
    if (status != STATUS_OK)
        return status;
    int64_t rows = row_count(inputs),
            count = rows * inputs->attention->head_dim_v;
    *out = (struct device_result){.device = "reference (fp64)",
                                  .seconds = session_clock() - start};
    out->o = ARENA_NEW_ARRAY(session->arena, float, (size_t)count);
    out->lse = ARENA_NEW_ARRAY(session->arena, float, (size_t)rows);
    for (int64_t i = 0; i < count; i++)
        out->o[i] = (float)round_to_scalar(out_reference->o[i],
                                           inputs->attention->dtype);
    for (int64_t i = 0; i < rows; i++)
        out->lse[i] = (float)out_reference->lse[i];
    return STATUS_OK;
}
