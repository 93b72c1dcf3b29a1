/* From a kernel's operations to its instructions: the table of operations,
 * blocks, source locations and section banners. */
#include "backends/ptx/isel.h"

#include <stdarg.h>
#include <string.h>

#include "backends/ptx/place.h"

/* ---- Errors and places -------------------------------------------------- */

void isel_error(struct isel *is, MlirOperation op, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *message = arena_vprintf(is->arena, format, args);
    va_end(args);
    is->failed = true;
    ptx_error_at(is->sink, op, message);
}

void isel_location(struct isel *is, MlirOperation op) {
    const char *file;
    unsigned line, column;
    if (is->options->no_locations ||
        !ir_location_place(mlirOperationGetLocation(op), &file, &line, &column))
        return;
    bool same = is->last_file && strcmp(file, is->last_file) == 0 &&
                line == is->last_line && column == is->last_column;
    if (same)
        return;
    is->last_file = file;
    is->last_line = line;
    is->last_column = column;
    ptx_comment(is->kernel, PTX_LOCATION, "%s:%u:%u", file, line, column);
}

static void find_dot(void *data, MlirOperation op) {
    bool *found = data;
    *found = *found || ir_is_op(op, "attn.dot") || ir_is_op(op, "attn.wgmma");
}

/* Sections: the first top-level loop with products is the main loop, everything
 * behind it the epilogue. */
static void banner_before(struct isel *is, MlirOperation op) {
    const char *section = ir_text_attr(op, "attn.section");
    bool loop = ir_is_op(op, "scf.for") || ir_is_op(op, "scf.while"),
         dots = false;
    if (section)
        ptx_comment(is->kernel, PTX_BANNER, "%s", section);
    else if (is->depth == 0 && loop)
        ir_walk(op, find_dot, &dots);
    if (dots) {
        ptx_comment(is->kernel, PTX_BANNER, "mainloop");
        is->seen_mainloop = true;
    }
}

static void banner_after(struct isel *is, MlirOperation op) {
    bool loop = ir_is_op(op, "scf.for") || ir_is_op(op, "scf.while");
    if (is->depth == 0 && loop && is->seen_mainloop) {
        ptx_comment(is->kernel, PTX_BANNER, "epilogue");
        is->seen_mainloop = false;
        is->last_line = 0;
    }
}

/* ---- Operations of one or two instructions ------------------------------ */

static void bind_scalar(struct isel *is, MlirOperation op, enum ptx_class class,
                        struct ptx_operand operand) {
    isel_release(is, op);
    isel_bind(is, ir_result(op, 0), storage_scalar(is, class, operand));
}

static void lower_constant(struct isel *is, MlirOperation op) {
    struct ptx_operand operand;
    MlirType type = mlirValueGetType(ir_result(op, 0));
    if (!isel_constant(op, &operand)) {
        isel_error(is, op,
                   "the PTX back end takes scalar and splat constants only");
        return;
    }
    enum ptx_class class = ir_is_bool(type)    ? PTX_P
                           : ir_is_float(type) ? PTX_F
                                               : PTX_R;
    bind_scalar(is, op, class, operand);
    isel_storage(is, ir_result(op, 0))->anchor_order = 0;
}

/* Ids that are lane constants: available everywhere. */
static void bind_entry(struct isel *is, MlirOperation op,
                       struct ptx_operand operand) {
    struct storage *storage = storage_scalar(is, PTX_R, operand);
    storage->anchor_order = 0;
    isel_bind(is, ir_result(op, 0), storage);
}

static void lower_lane_id(struct isel *is, MlirOperation op) {
    bind_entry(is, op, isel_lane(is));
}
static void lower_warp_id(struct isel *is, MlirOperation op) {
    bind_entry(is, op, isel_warp(is));
}
static void lower_thread_id(struct isel *is, MlirOperation op) {
    bind_entry(is, op, isel_thread(is));
}
static void lower_block_dim(struct isel *is, MlirOperation op) {
    bind_entry(is, op, ptx_imm(is->threads));
}

static struct ptx_operand special_register(struct isel *is, const char *name,
                                           const char *hint) {
    struct ptx_operand *known = isel_constant_find(is, name, 0, 0, 0, 0);
    if (known)
        return *known;
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_operand reg =
        ptx_def(is->kernel, PTX_MOV_SREG, hint, ptx_text(name));
    isel_entry_end(is, saved);
    isel_constant_add(is, name, 0, 0, 0, 0, reg);
    return reg;
}

static void lower_block_id(struct isel *is, MlirOperation op) {
    bind_entry(is, op, special_register(is, "%ctaid.x", "cta"));
}
static void lower_grid_dim(struct isel *is, MlirOperation op) {
    bind_entry(is, op, special_register(is, "%nctaid.x", "cta_count"));
}

static void lower_barrier(struct isel *is, MlirOperation op) {
    (void)op;
    ptx_put(is->kernel, PTX_BAR_SYNC, PTX_NOTHING, ptx_imm(0));
}

static void lower_commit_group(struct isel *is, MlirOperation op) {
    (void)op;
    ptx_put(is->kernel, PTX_CP_ASYNC_COMMIT, PTX_NOTHING, PTX_NOTHING);
}

static void lower_wait_group(struct isel *is, MlirOperation op) {
    ptx_put(is->kernel, PTX_CP_ASYNC_WAIT, PTX_NOTHING,
            ptx_imm(ir_int_attr(op, "pending", 0)));
}

void lower_ballot(struct isel *is, MlirOperation op) {
    struct ptx_operand predicate =
        isel_in_register(is, PTX_P, isel_scalar(is, ir_operand(op, 0)), "p");
    bind_scalar(is, op, PTX_R,
                ptx_def(is->kernel, PTX_VOTE_BALLOT, "ballot", predicate));
}

/* Any element of the lane, then any lane. */
static void lower_vote_any(struct isel *is, MlirOperation op) {
    struct storage *storage = isel_storage(is, ir_operand(op, 0));
    int count = layout_count(storage->layout, storage->shape, false);
    struct ptx_operand any =
        isel_in_register(is, PTX_P, storage->elems[0], "p");
    for (int k = 1; k < count; k++)
        any = ptx_def(is->kernel, PTX_OR_PRED, "p", any, storage->elems[k]);
    bind_scalar(is, op, PTX_P, ptx_def(is->kernel, PTX_VOTE_ANY, "any", any));
}

/* Integers have an instruction; f32 takes five exchanges. */
void lower_warp_reduce(struct isel *is, MlirOperation op) {
    static const struct {
        const char *kind;
        enum ptx_op redux, f32;
    } kinds[] = {
        {"minsi", PTX_REDUX_MIN_S32, PTX_OP_COUNT},
        {"maxsi", PTX_REDUX_MAX_S32, PTX_OP_COUNT},
        {"ori", PTX_REDUX_OR_B32, PTX_OP_COUNT},
        {"andi", PTX_REDUX_AND_B32, PTX_OP_COUNT},
        {"addi", PTX_REDUX_ADD_S32, PTX_OP_COUNT},
        {"minnumf", PTX_OP_COUNT, PTX_MIN_F32},
        {"maxnumf", PTX_OP_COUNT, PTX_MAX_F32},
    };
    struct storage *storage = isel_storage(is, ir_operand(op, 0));
    struct ptx_operand x = isel_scalar(is, ir_operand(op, 0));
    const char *kind = ir_text_attr(op, "kind");
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++) {
        bool f32 = storage->class == PTX_F;
        if (strcmp(kinds[i].kind, kind) != 0 ||
            f32 != (kinds[i].f32 != PTX_OP_COUNT))
            continue;
        if (!f32)
            x = ptx_def(is->kernel, kinds[i].redux, "warp_value", x);
        else
            x = isel_in_register(is, PTX_F, x, "warp_value");
        for (int mask = 16; f32 && mask > 0; mask /= 2) {
            struct ptx_operand other = ptx_def(is->kernel, PTX_SHFL_BFLY_F32,
                                               "other", x, ptx_imm(mask));
            x = ptx_def(is->kernel, kinds[i].f32, "warp_value", x, other);
        }
        bind_scalar(is, op, storage->class, x);
        return;
    }
    isel_error(is, op, "attn.warp_reduce: unknown kind '%s' for this type",
               kind ? kind : "");
}

/* ---- The table ---------------------------------------------------------- */

enum {
    PURE,
    EFFECT
}; /* EFFECT: pending elementwise operations are emitted before */

static const struct {
    const char *name;
    void (*lower)(struct isel *is, MlirOperation op);
    int effect;
} lowerings[] = {
#define LOWERING(name, function, effect) {name, function, effect},
#define LOCAL_LOWERING LOWERING
#include "backends/ptx/lowerings.def"
};

static bool is_unused_pure(MlirOperation op) {
    for (size_t i = 0; i < ir_result_count(op); i++)
        if (ir_has_uses(ir_result(op, i)))
            return false;
    return ir_is_pure(op);
}

static void lower_op(struct isel *is, MlirOperation op) {
    const char *name = ir_op_name(op);
    if (is_unused_pure(op)) {
        isel_release(is, op);
        return;
    }
    if (isel_elementwise(is, op))
        return;
    for (size_t i = 0; i < sizeof lowerings / sizeof *lowerings; i++) {
        if (strcmp(lowerings[i].name, name) != 0)
            continue;
        if (lowerings[i].effect == EFFECT)
            isel_flush(is);
        else
            isel_flush_for(is, op);
        banner_before(is, op);
        if (lowerings[i].effect == EFFECT || strncmp(name, "attn.", 5) == 0)
            isel_location(is, op);
        lowerings[i].lower(is, op);
        banner_after(is, op);
        return;
    }
    isel_error(is, op, "the PTX back end has no lowering for '%s'", name);
}

static bool was_lowered_early(const struct isel *is, MlirOperation op) {
    for (size_t i = 0; i < is->early.count; i++)
        if (mlirOperationEqual(is->early.data[i], op))
            return true;
    return false;
}

MlirOperation isel_block(struct isel *is, MlirBlock block) {
    MlirOperation last = mlirBlockGetTerminator(block);
    for (MlirOperation op = mlirBlockGetFirstOperation(block);
         !mlirOperationEqual(op, last) && !is->failed;
         op = mlirOperationGetNextInBlock(op))
        if (!was_lowered_early(is, op))
            lower_op(is, op);
    return last;
}

struct ptx_kernel *isel_kernel(struct arena *arena, MlirOperation func,
                               const struct ptx_options *options,
                               struct diag_sink *sink) {
    struct isel is = {
        .arena = arena, .options = options, .sink = sink, .func = func};
    is.warps = ir_kernel_warps(func);
    if (is.warps == 0)
        is.warps = 1;
    is.threads = 32 * is.warps;
    is.row_warps = (int)ir_int_attr(func, "attn.row_warps", is.warps);
    int tile_m = 0, tile_n = 0;
    bool whole = ir_kernel_tile(func, &tile_m, &tile_n) &&
                 is.row_warps == is.warps; /* else a warpgroup's 64 rows */
    is.fragments = whole ? tile_m / (16 * is.warps) : 1;
    is.kernel = ptx_kernel_create(arena, ir_func_name(func));
    is.kernel->threads = is.threads;
    is.kernel->shared_bytes = (uint32_t)ir_kernel_shared_bytes(func);
    ptx_comment(is.kernel, PTX_BANNER, "parameters and lane constants");
    is.entry_end = is.kernel->cursor;
    ptx_comment(is.kernel, PTX_BANNER, "prologue");
    isel_arguments(&is);
    isel_block(&is, ir_func_body(func));
    if (!is.failed) {
        isel_flush(&is);
        ptx_put(is.kernel, PTX_RET, PTX_NOTHING, PTX_NOTHING);
    }
    return is.failed ? NULL : is.kernel;
}
