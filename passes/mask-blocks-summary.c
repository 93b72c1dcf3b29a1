/* Block summaries of captured tensors: see mask-blocks.h.
 *
 * A tensor that the mask reads at a varying index on one axis gets a buffer
 * with the least and the greatest element of every `block` elements along that
 * axis, for all values of the other indices: entry n holds [2n] the minimum,
 * [2n+1] the maximum. One warp makes one entry.  A float block that holds a NaN
 * has the minimum NaN. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "ir/build_sm90.h"
#include "passes/mask-blocks.h"
#include "passes/target_limits.h"

enum { SUMMARY_WARPS = 4, LANES = 32 };

MlirType mask_summary_type(MlirType tensor) {
    MlirContext context = mlirTypeGetContext(tensor);
    return ir_is_float(tensor) ? ir_type_f32(context) : ir_type_i32(context);
}

MlirValue mask_summary_buffer(struct mask_eval *e, size_t tensor, int axis) {
    struct mask_blocks *m = e->m;
    for (size_t i = 0; i < m->summaries.count; i++) {
        const struct mask_summary *known = &m->summaries.data[i];
        if (known->tensor == tensor && known->axis == axis)
            return ir_func_arg(e->func,
                               e->shared + m->shared_count + known->argument);
    }
    size_t number = m->summaries.count;
    vec_push(m->arena, &m->summaries,
             (struct mask_summary){tensor, axis, number});
    MlirType source =
        mlirValueGetType(ir_func_arg(m->kernel, KERNEL_SHARED + tensor));
    MlirType type = ir_type_workspace(mask_summary_type(source));
    ir_func_add_arg(m->classify, type, NULL);
    ir_func_add_arg(m->bounds, type, NULL);
    return ir_func_arg(e->func, e->shared + m->shared_count + number);
}

/* ---- Sizes --------------------------------------------------------------- */

typedef VEC(const char *) word_list;

/* Appends postfix code of the number of entries: product of the other extents,
 * times the blocks of the axis. */
static void entry_words(const struct mask_blocks *m,
                        const struct mask_summary *summary, int rank,
                        word_list *words) {
    size_t argument = KERNEL_SHARED + summary->tensor;
    for (int i = 0; i < rank; i++) {
        size_t count;
        const char **extent =
            ir_extent_words(m->arena, m->kernel, argument, i, &count);
        if (!extent)
            ir_ice(m->kernel, "a captured tensor lacks attn.extents");
        for (size_t k = 0; k < count; k++)
            vec_push(m->arena, words, extent[k]);
        if (i == summary->axis) {
            vec_push(m->arena, words, arena_printf(m->arena, "%d", m->block));
            vec_push(m->arena, words, "ceildiv");
        }
        if (i > 0)
            vec_push(m->arena, words, "mul");
    }
}

/* ---- The kernel ---------------------------------------------------------- */

/* The least and greatest of two values each, and whether one was NaN (i32). */
struct extremes {
    MlirValue least, most, nan;
};

/* One element widened to the summary's type. */
static MlirValue element(struct ir_builder *b, MlirValue tensor,
                         const MlirValue *indices, size_t rank) {
    MlirValue value = ir_read(b, tensor, indices, rank);
    return ir_is_bool(mlirValueGetType(value))
               ? ir_extui(b, value, ir_type_i32(b->context))
               : value;
}

/* What one lane sees of a block: elements lane, lane + 32, … */
static struct extremes lane_extremes(struct ir_builder *b, MlirValue tensor,
                                     MlirValue *indices, size_t rank, int axis,
                                     MlirValue start, int block) {
    struct extremes all = {{NULL}, {NULL}, {NULL}};
    MlirType i32 = ir_type_i32(b->context);
    bool is_float = ir_is_float(mlirValueGetType(tensor));
    /* Lanes beyond the block or the tensor repeat the last element; unsigned,
     * since a sum may pass 2^31. */
    MlirValue first = ir_addi(b, start, ir_lane_id(b)),
              one = ir_const_i32(b, 1);
    MlirValue last = ir_minui(b, ir_addi(b, start, ir_const_i32(b, block - 1)),
                              ir_subi(b, ir_dim(b, tensor, axis), one));
    for (int i = 0; i < block; i += LANES) {
        indices[axis] =
            ir_minui(b, ir_addi(b, first, ir_const_i32(b, i)), last);
        MlirValue value = element(b, tensor, indices, rank);
        bool is_first = mlirValueIsNull(all.least);
        MlirValue nan = is_float
                            ? ir_extui(b, ir_cmpf(b, IR_UNO, value, value), i32)
                            : (MlirValue){NULL};
        if (is_first) {
            all = (struct extremes){value, value, nan};
        } else if (is_float) {
            all.least = ir_minnumf(b, all.least, value);
            all.most = ir_maxnumf(b, all.most, value);
            all.nan = ir_ori(b, all.nan, nan);
        } else {
            all.least = ir_minsi(b, all.least, value);
            all.most = ir_maxsi(b, all.most, value);
        }
    }
    return all;
}

/* Indices of the axes other than `axis` from the row number, last axis fastest.
 */
static void split_row(struct ir_builder *b, MlirValue tensor, size_t rank,
                      int axis, MlirValue row, MlirValue *indices) {
    for (size_t i = rank; i-- > 0;) {
        if ((int)i == axis)
            continue;
        MlirValue extent = ir_dim(b, tensor, (int)i);
        indices[i] = ir_remui(b, row, extent);
        row = ir_divui(b, row, extent);
    }
}

/* Stores the entry of one warp. */
static void summarise(struct ir_builder *b, MlirValue tensor, MlirValue buffer,
                      int axis, int block, MlirValue entry,
                      MlirValue entries_per_row) {
    MlirValue indices[KERNEL_MAX_RANK], one = ir_const_i32(b, 1);
    size_t rank = (size_t)ir_rank(mlirValueGetType(tensor));
    split_row(b, tensor, rank, axis, ir_divui(b, entry, entries_per_row),
              indices);
    MlirValue start =
        ir_muli(b, ir_remui(b, entry, entries_per_row), ir_const_i32(b, block));
    struct extremes all =
        lane_extremes(b, tensor, indices, rank, axis, start, block);
    bool is_float = ir_is_float(mlirValueGetType(tensor));
    MlirValue least =
        ir_warp_reduce(b, is_float ? "minnumf" : "minsi", all.least);
    MlirValue most =
        ir_warp_reduce(b, is_float ? "maxnumf" : "maxsi", all.most);
    if (is_float) {
        MlirValue nan = ir_warp_reduce(b, "ori", all.nan);
        MlirValue has_nan = ir_cmpi(b, IR_NE, nan, ir_const_i32(b, 0));
        least = ir_select(b, has_nan, ir_const_f32(b, NAN), least);
    }
    MlirValue lane = ir_lane_id(b);
    struct ir_if writer = ir_if_begin(
        b, ir_cmpi(b, IR_EQ, lane, ir_const_i32(b, 0)), NULL, 0, false);
    MlirValue first = ir_shli(b, entry, one), second = ir_addi(b, first, one);
    ir_store_element(b, least, buffer, &first, 1);
    ir_store_element(b, most, buffer, &second, 1);
    ir_if_end(b, &writer, NULL, 0);
}

/* Warp w of CTA c makes entry 4·c + w. */
static void build_body(struct ir_builder *b, MlirOperation func, int axis,
                       int block) {
    MlirValue tensor = ir_func_arg(func, 0), buffer = ir_func_arg(func, 1);
    MlirValue one = ir_const_i32(b, 1);
    int rank = ir_rank(mlirValueGetType(tensor));
    MlirValue last = ir_subi(b, ir_dim(b, tensor, axis), one);
    MlirValue per_row =
        ir_addi(b, ir_divui(b, last, ir_const_i32(b, block)), one);
    MlirValue total = per_row;
    for (int i = 0; i < rank; i++)
        if (i != axis)
            total = ir_muli(b, total, ir_dim(b, tensor, i));
    MlirValue entry =
        ir_addi(b, ir_muli(b, ir_block_id(b), ir_const_i32(b, SUMMARY_WARPS)),
                ir_subgroup_id(b));
    struct ir_if inside =
        ir_if_begin(b, ir_cmpi(b, IR_SLT, entry, total), NULL, 0, false);
    summarise(b, tensor, buffer, axis, block, entry, per_row);
    ir_if_end(b, &inside, NULL, 0);
    ir_return(b, NULL, 0);
}

/* "doc" of "tensor:doc". */
static const char *tensor_name(const struct mask_blocks *m, size_t tensor) {
    const char *kind = ir_func_arg_kind(m->kernel, KERNEL_SHARED + tensor);
    assert(kind && strncmp(kind, "tensor:", 7) == 0);
    return kind + 7;
}

/* The kernel of one summary, whose buffer is argument `argument` of the
 * attention's. */
static void build_kernel(struct mask_blocks *m, struct ir_builder *b,
                         const struct mask_summary *summary, size_t argument) {
    MlirValue source = ir_func_arg(m->kernel, KERNEL_SHARED + summary->tensor);
    MlirType type = mlirValueGetType(source);
    MlirType args[2] = {type, ir_type_workspace(mask_summary_type(type))};
    int rank = ir_rank(type);
    ir_before(b, m->kernel);
    b->location = mlirOperationGetLocation(m->mask);
    MlirOperation func = ir_func(
        b,
        arena_printf(m->arena, "%s$summary_%s_%d", ir_func_name(m->kernel),
                     tensor_name(m, summary->tensor), summary->axis),
        false, args, 2, NULL, 0);
    ir_at_end(b, ir_func_body(func));
    const char *target = ir_module_target(m->module);
    if (target && target_limits_find(target)->has_consumers)
        ir_begin_dependent_grid(b, func);
    build_body(b, func, summary->axis, m->block);

    word_list grid = {0}, bytes = {0};
    entry_words(m, summary, rank, &grid);
    vec_push(m->arena, &grid, arena_printf(m->arena, "%d", SUMMARY_WARPS));
    vec_push(m->arena, &grid, "ceildiv");
    entry_words(m, summary, rank, &bytes);
    vec_push(m->arena, &bytes, "8"); /* two values of four bytes */
    vec_push(m->arena, &bytes, "mul");
    ir_set_kernel_kind(func, "summary");
    ir_set_kernel_warps(func, SUMMARY_WARPS);
    ir_set_kernel_grid(func, grid.data, grid.count);
    const char *workspace = ir_func_arg_kind(m->kernel, argument);
    ir_func_set_arg_attr(
        func, 0, "attn.arg",
        ir_attr_string(
            b->context,
            ir_func_arg_kind(m->kernel, KERNEL_SHARED + summary->tensor)));
    ir_func_set_arg_attr(func, 0, "attn.extents",
                         ir_func_arg_attr(m->kernel,
                                          KERNEL_SHARED + summary->tensor,
                                          "attn.extents"));
    ir_func_set_arg_attr(func, 1, "attn.arg",
                         ir_attr_string(b->context, workspace));
    ir_set_workspace_bytes(func, 1, bytes.data, bytes.count);
    ir_set_workspace_bytes(m->kernel, argument, bytes.data, bytes.count);
}

/* Workspaces that the kernel has already. */
static size_t workspace_count(MlirOperation kernel) {
    size_t count = 0;
    for (size_t i = 0; i < ir_func_arg_count(kernel); i++) {
        const char *kind = ir_func_arg_kind(kernel, i);
        count += kind && strncmp(kind, "workspace:", 10) == 0;
    }
    return count;
}

void mask_summary_kernels(struct mask_blocks *m, struct ir_builder *b) {
    size_t first = workspace_count(m->kernel);
    for (size_t i = 0; i < m->summaries.count; i++) {
        const struct mask_summary *summary = &m->summaries.data[i];
        size_t argument = ir_func_arg_count(m->kernel);
        MlirType source = mlirValueGetType(
            ir_func_arg(m->kernel, KERNEL_SHARED + summary->tensor));
        ir_func_add_arg(m->kernel, ir_type_workspace(mask_summary_type(source)),
                        arena_printf(m->arena, "workspace:%zu", first + i));
        build_kernel(m, b, summary, argument);
    }
}
