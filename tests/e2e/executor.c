/* The machines behind one interface; see executor.h. */
#include "tests/e2e/executor.h"

const char *executor_create(struct loaded *loaded, enum machine machine,
                            const char *target, struct executor *out_executor) {
    *out_executor = (struct executor){.machine = machine,
                                      .dtype = loaded->attention->dtype};
    if (machine == MACHINE_GPU)
        return gpu_create(loaded, target, out_executor);
    return emulator_create(loaded, target, out_executor);
}

void executor_destroy(struct executor *executor) {
    if (executor->machine == MACHINE_GPU)
        gpu_destroy(executor);
}

const char *executor_run(const struct executor *executor,
                         const struct call *call, uint64_t seed,
                         struct call_tensor *o, struct call_tensor *lse) {
    if (executor->machine == MACHINE_GPU)
        return gpu_run(executor, call, o, lse);
    return emulator_run(executor, call, seed, o, lse);
}
