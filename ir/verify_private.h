/* Shared by verify*.c: reporting, and the rules of asynchronous kernels. */
#ifndef ATTN_IR_VERIFY_PRIVATE_H
#define ATTN_IR_VERIFY_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include <mlir-c/IR.h>

struct verifier {
    MlirOperation module;
    bool good;
};

/* One op's check; false after a report. */
struct verify_rule {
    const char *name; /* of the op */
    bool (*check)(struct verifier *v, MlirOperation op);
};

/* Reports at the op; always false, so that checks read `return fail(…)`. */
bool verify_fail(struct verifier *v, MlirOperation op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define fail verify_fail

/* Votes, mbarriers, TMA, wgmma and roles (verify_sm90.c); ends with a null
 * name. */
extern const struct verify_rule verify_sm90_rules[];

/* pack_gqa of an op on a tile of `rows` rows; false after a report. */
bool verify_packed(struct verifier *v, MlirOperation op, int64_t rows);

/* The rules of an attn.shared with swizzle_bytes; false after a report. */
bool verify_panels(struct verifier *v, MlirOperation op);
/* Bytes of all stages of such a buffer. */
int64_t verify_panel_bytes(MlirOperation op);

#endif
