/* The three ways to run a call: fp64 reference, emulator, GPU. */
#ifndef ATTN_TOOLS_DEVICE_H
#define ATTN_TOOLS_DEVICE_H

#include "compiler/compile.h"
#include "reference/reference.h"
#include "tools/facts.h"
#include "tools/inputs.h"

/* What a run gives; arrays in the arena, dense and in logical order. */
struct device_result {
    float *o; /* values of the dtype */
    float *lse;
    const char *device; /* for people: "reference (fp64)", "NVIDIA H200" */
    const char *target; /* what was compiled for; NULL: nothing was compiled */
    double seconds;     /* of the run alone, as this host saw it */
    const char *facts;  /* JSON object of the device's own facts, or NULL */
    int status; /* STATUS_FAILED: it ran, but with faults that were reported */
};

/* The reference; also leaves its own result in *out_reference. */
int device_reference(struct session *session, const struct inputs *inputs,
                     struct ref_result *out_reference,
                     struct device_result *out);

/* The reference alone, for a comparison. */
int device_reference_run(struct session *session, const struct inputs *inputs,
                         struct ref_result *out_reference);

/* The emulator on the PTX of --target, or of the spec's first target. */
int device_cpu(struct session *session, const struct spec *spec,
               const struct inputs *inputs, struct device_result *out);

/* The GPU, through libattn. */
int device_gpu(struct session *session, const struct spec *spec,
               const struct inputs *inputs, struct device_result *out);

/* True if the machine has a driver and a GPU; otherwise *out_reason says what
 * is missing (in the arena). */
bool device_gpu_available(struct arena *arena, const char **out_reason);

#endif
