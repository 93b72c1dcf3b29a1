/* The door of tests into the public launch functions: loading with a driver
 * table of their own. */
#ifndef ATTN_RUNTIME_API_LAUNCH_H
#define ATTN_RUNTIME_API_LAUNCH_H

#include "runtime/driver.h"

/* attn_kernel_load with `driver` in place of the machine's. */
struct attn_status *rt_api_kernel_load(const struct rt_driver *driver,
                                       struct attn_program *program,
                                       struct attn_kernel **out_kernel);

#endif
