/* mbarriers, TMA copies and warp roles: one or two instructions each.
 *
 * Tiles of attn.shared with swizzle_bytes lie as TMA writes and wgmma reads
 * them:
 *
 *     panel 0: rows 0..R-1, the first swizzle_bytes of each      swizzled by the copy
 *     panel 1: rows 0..R-1, the next ones
 *
 * One copy fills all panels: the tensor map sees a head as {panel columns,
 * rows, panels} (support/kernel_info.h).  Rows outside the tensor are zeros,
 * and count as bytes. */
#include <string.h>

#include "backends/ptx/isel.h"

/* ---- Panels ------------------------------------------------------------- */

void lower_panels(struct isel *is, MlirOperation op, struct shared_view *view) {
    int bytes = (int)ir_int_attr(op, "swizzle_bytes", 0);
    view->swizzle_bytes = bytes;
    if (bytes != 128 && bytes != 64 && bytes != 32) {
        isel_error(is, op,
                   "attn.shared '%s': swizzle_bytes is %d, not 128, 64 or 32",
                   view->name, bytes);
        return;
    }
    view->panels = view->columns * view->bytes / bytes;
    view->stage_bytes = view->rows * view->panels * bytes;
    is->kernel->uses_panels = true;
    if (view->byte_offset % 1024 != 0 || view->rows % 8 != 0 ||
        view->columns * view->bytes % bytes != 0)
        isel_error(is, op,
                   "attn.shared '%s': panels need an offset that is a multiple "
                   "of 1024, "
                   "a multiple of 8 rows, and rows of whole panels",
                   view->name);
}

/* ---- mbarriers ---------------------------------------------------------- */

void lower_mbarriers(struct isel *is, MlirOperation op) {
    struct shared_view *view = ARENA_NEW(is->arena, struct shared_view);
    const char *name = ir_text_attr(op, "name");
    *view = (struct shared_view){
        .name = name ? name : "mbarriers",
        .rows = (int)ir_extent(mlirValueGetType(ir_result(op, 0)), 0),
        .bytes = 8,
        .byte_offset = (int)ir_int_attr(op, "byte_offset", 0),
        .arrivals = (int)ir_int_attr(op, "arrivals", 1),
    };
    isel_bind_shared(is, ir_result(op, 0), view);
}

/* Address of mbarrier `index`. */
static struct ptx_operand mbarrier_address(struct isel *is, MlirValue barriers,
                                           MlirValue index) {
    const struct shared_view *view = isel_shared(is, barriers);
    struct ptx_operand number = isel_scalar(is, index);
    if (number.kind == PTX_OPERAND_IMM)
        return ptx_address(isel_smem(is), view->byte_offset + 8 * number.value);
    struct ptx_operand at = ptx_def(is->kernel, PTX_MAD_LO_S32, "bar", number,
                                    ptx_imm(8), isel_smem(is));
    return ptx_address(at, view->byte_offset);
}

void lower_mbarrier_init(struct isel *is, MlirOperation op) {
    const struct shared_view *view = isel_shared(is, ir_operand(op, 0));
    ptx_comment(is->kernel, PTX_COMMENT, "%s: %d of %d arrivals", view->name,
                view->rows, view->arrivals);
    for (int i = 0; i < view->rows; i++)
        ptx_put(is->kernel, PTX_MBARRIER_INIT, PTX_NOTHING,
                ptx_address(isel_smem(is), view->byte_offset + 8 * i),
                ptx_imm(view->arrivals));
}

void lower_fence_mbarrier_init(struct isel *is, MlirOperation op) {
    (void)op;
    ptx_put(is->kernel, PTX_FENCE_MBARRIER_INIT, PTX_NOTHING, PTX_NOTHING);
}

void lower_griddepcontrol(struct isel *is, MlirOperation op) {
    const char *action = ir_text_attr(op, "action");
    bool waits = action && strcmp(action, "wait") == 0;
    ptx_put(is->kernel,
            waits ? PTX_GRIDDEPCONTROL_WAIT : PTX_GRIDDEPCONTROL_LAUNCH,
            PTX_NOTHING, PTX_NOTHING);
}

void lower_mbarrier_wait(struct isel *is, MlirOperation op) {
    struct ptx_kernel *k = is->kernel;
    const struct shared_view *view = isel_shared(is, ir_operand(op, 0));
    struct ptx_operand at =
        mbarrier_address(is, ir_operand(op, 0), ir_operand(op, 1));
    struct ptx_operand parity = isel_scalar(is, ir_operand(op, 2));
    struct ptx_operand wait =
        ptx_label_new(k, arena_printf(is->arena, "wait_%s", view->name));
    ptx_put(k, PTX_LABEL, PTX_NOTHING, wait);
    struct ptx_operand done =
        ptx_def(k, PTX_MBARRIER_TRY_WAIT, "done", at, parity);
    ptx_guard(ptx_put(k, PTX_BRA_UNI, PTX_NOTHING, wait), done, true);
    isel_release(is, op);
}

/* True in one lane of every warp, chosen once while all lanes are there. */
static struct ptx_operand elected(struct isel *is) {
    struct ptx_operand *known = isel_constant_find(is, "elected", 0, 0, 0, 0);
    if (known)
        return *known;
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_operand reg =
        ptx_def(is->kernel, PTX_ELECT, "elected", PTX_NOTHING);
    isel_entry_end(is, saved);
    isel_constant_add(is, "elected", 0, 0, 0, 0, reg);
    return reg;
}

void lower_mbarrier_arrive(struct isel *is, MlirOperation op) {
    struct ptx_operand at =
        mbarrier_address(is, ir_operand(op, 0), ir_operand(op, 1));
    struct ptx_operand lane =
        ir_has_attr(op, "single") ? PTX_NOTHING : isel_first_lane(is);
    struct ptx_inst *arrive =
        ptx_put(is->kernel, PTX_MBARRIER_ARRIVE, PTX_NOTHING, at);
    if (ptx_is_reg(lane))
        ptx_guard(arrive, lane, false);
    isel_release(is, op);
}

void lower_mbarrier_expect_tx(struct isel *is, MlirOperation op) {
    struct ptx_operand at =
        mbarrier_address(is, ir_operand(op, 0), ir_operand(op, 1));
    ptx_put(is->kernel, PTX_MBARRIER_EXPECT_TX, PTX_NOTHING, at,
            ptx_imm(ir_int_attr(op, "bytes", 0)));
    isel_release(is, op);
}

/* ---- TMA ---------------------------------------------------------------- */

/* Adds the parameter behind the maps there are, in front of all others: a map
 * that straddles two 128-byte lines is slow to fetch. */
static void declare_map(struct isel *is, struct ptx_tensor_map map) {
    struct ptx_kernel *k = is->kernel;
    size_t place = k->maps.count;
    vec_push(is->arena, &k->maps, map);
    struct ptx_param param = {
        arena_printf(is->arena, "%s[128]", map.name), "align 64 .b8",
        arena_printf(is->arena, "TMA boxes of %d rows", map.box_rows)};
    vec_push(is->arena, &k->params, param);
    memmove(&k->params.data[place + 1], &k->params.data[place],
            (k->params.count - 1 - place) * sizeof param);
    k->params.data[place] = param;
}

/* The address of the tensor map for boxes like the tile's; declared on first
 * use, and fetched at the start by the first thread. */
static struct ptx_operand tensor_map(struct isel *is,
                                     const struct argument *arg,
                                     const struct shared_view *view,
                                     int heads) {
    int index = (int)(arg - is->arguments.data);
    struct ptx_operand *known = isel_constant_find(
        is, "tensor map", index, view->rows, view->swizzle_bytes, heads);
    if (known)
        return *known;
    bool first = true;
    for (size_t i = 0; i < is->kernel->maps.count; i++)
        first = first && is->kernel->maps.data[i].argument != index;
    const char *name = arena_printf(is->arena, first ? "%s_map" : "%s_map_%d",
                                    arg->stem, view->rows);
    declare_map(is,
                (struct ptx_tensor_map){index, view->rows, view->swizzle_bytes,
                                        view->panels, heads, name});
    struct ptx_operand thread = isel_thread(is);
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_operand map =
        ptx_def(is->kernel, PTX_MOV_PARAM_ADDRESS, name, ptx_text(name));
    map = ptx_def(is->kernel, PTX_CVTA_PARAM, name, map);
    struct ptx_operand starts =
        ptx_def(is->kernel, PTX_SETP_EQ_S32, "p", thread, ptx_imm(0));
    ptx_guard(ptx_put(is->kernel, PTX_PREFETCH_TENSORMAP, PTX_NOTHING, map),
              starts, false);
    isel_entry_end(is, saved);
    isel_constant_add(is, "tensor map", index, view->rows, view->swizzle_bytes,
                      heads, map);
    return map;
}

/* Shared-memory address of a tile, the offset of its buffer left out. */
static struct ptx_operand tile_base(struct isel *is,
                                    const struct shared_view *view) {
    if (!ptx_is_reg(view->stage_index))
        return isel_smem(is);
    return ptx_def(is->kernel, PTX_MAD_LO_S32,
                   arena_printf(is->arena, "%s_at", view->name),
                   view->stage_index, ptx_imm(view->stage_bytes),
                   isel_smem(is));
}

static struct ptx_operand tile_address(struct isel *is,
                                       const struct shared_view *view) {
    return ptx_address(tile_base(is, view), view->byte_offset);
}

static bool want_tma_tile(struct isel *is, MlirOperation op,
                          const struct shared_view *view) {
    if (view->panels > 0 && view->rows <= 256)
        return true;
    isel_error(is, op,
               "%s: '%s' must be a tile of panels with at most 256 rows",
               ir_op_name(op), view->name);
    return false;
}

/* Coordinates of a box, from operand `first` of the op on: batch, head, row. */
static struct ptx_operand tma_corner(struct isel *is, MlirOperation op,
                                     size_t first) {
    int heads = ir_packed_heads(op);
    struct ptx_operand at[3];
    static const char *const names[3] = {"b", "h", "r"};
    for (size_t i = 0; i < 3; i++)
        at[i] = isel_in_register(
            is, PTX_R, isel_scalar(is, ir_operand(op, first + i)), names[i]);
    struct ptx_operand zero = isel_in_register(is, PTX_R, ptx_imm(0), "zero");
    struct ptx_operand where[] = {zero, at[2], zero, at[1], at[0]};
    if (heads > 1) { /* the box has rows of `heads` heads, query by query */
        where[1] = at[1];
        where[2] = ptx_def(is->kernel, PTX_SHR_U32, "query", at[2],
                           ptx_imm(__builtin_ctz((unsigned)heads)));
        where[3] = zero;
    }
    struct ptx_operand *corner =
        ARENA_NEW_ARRAY(is->arena, struct ptx_operand, 5);
    memcpy(corner, where, sizeof where);
    return ptx_vector(corner, 5);
}

/* What copies have in common in both directions. */
struct tma_copy {
    const struct argument *tensor;
    const struct shared_view *tile;
    struct ptx_operand map, at, corner;
};

/* Operand numbers: of the tensor, of the tile, and of batch, head and row.
 * False after an error. */
static bool begin_tma(struct isel *is, MlirOperation op, size_t tensor,
                      size_t tile, size_t corner, struct tma_copy *out) {
    out->tensor = isel_argument(is, ir_operand(op, tensor));
    out->tile = isel_shared(is, ir_operand(op, tile));
    if (!want_tma_tile(is, op, out->tile))
        return false;
    out->map = tensor_map(is, out->tensor, out->tile, ir_packed_heads(op));
    out->at = tile_address(is, out->tile);
    out->corner = tma_corner(is, op, corner);
    return true;
}

void lower_tma_load(struct isel *is, MlirOperation op) {
    struct ptx_kernel *k = is->kernel;
    struct tma_copy copy;
    if (!begin_tma(is, op, 0, 4, 1, &copy))
        return;
    struct ptx_operand bar =
        mbarrier_address(is, ir_operand(op, 5), ir_operand(op, 6));
    ptx_comment(k, PTX_COMMENT, "copy %d rows of %s to %s", copy.tile->rows,
                copy.tensor->stem, copy.tile->name);
    ptx_put(k, PTX_TMA_LOAD_5D, PTX_NOTHING, copy.at, copy.map, copy.corner,
            bar);
    isel_release(is, op);
}

void lower_tma_store(struct isel *is, MlirOperation op) {
    struct ptx_kernel *k = is->kernel;
    struct tma_copy copy;
    if (!begin_tma(is, op, 1, 0, 2, &copy))
        return;
    ptx_comment(k, PTX_COMMENT, "copy %d rows of %s to %s", copy.tile->rows,
                copy.tile->name, copy.tensor->stem);
    ptx_put(k, PTX_TMA_STORE_5D, PTX_NOTHING, copy.map, copy.corner, copy.at);
    ptx_put(k, PTX_BULK_COMMIT, PTX_NOTHING, PTX_NOTHING);
    isel_release(is, op);
}

void lower_tma_store_wait(struct isel *is, MlirOperation op) {
    (void)op;
    ptx_put(is->kernel, PTX_BULK_WAIT_READ, PTX_NOTHING, ptx_imm(0));
}

/* Where a lane's address of stmatrix lies in a tile of panels: row lane % 16 of
 * the warp's, and of two neighbouring groups of 8 columns the one that lane /
 * 16 says.  XORed with the bytes of an even group in its panel it is that of
 * that group: a panel row of S bytes has its 16-byte units exchanged by
 * bits 7.. of the address (PTX ISA, "Shared memory matrix layout"). */
static struct ptx_operand stmatrix_lane(struct isel *is, int swizzle_bytes) {
    struct ptx_kernel *k = is->kernel;
    struct swizzle swizzle = {.pitch = swizzle_bytes / 16};
    swizzle.bits = __builtin_ctz((unsigned)swizzle.pitch);
    swizzle.shift = 3 - swizzle.bits;
    struct ptx_operand lane = isel_lane(is);
    struct ptx_operand row = ptx_def(k, PTX_AND_B32, "row", lane, ptx_imm(15));
    struct ptx_operand group =
        ptx_def(k, PTX_SHR_U32, "group", lane, ptx_imm(4));
    group = isel_swizzled(is, swizzle, row, group);
    struct ptx_operand warp =
        ptx_def(k, PTX_AND_B32, "warp", isel_warp(is), ptx_imm(3));
    row = ptx_def(k, PTX_MAD_LO_S32, "row", warp, ptx_imm(16), row);
    group = ptx_def(k, PTX_SHL_B32, "unit", group, ptx_imm(4));
    return ptx_def(k, PTX_MAD_LO_S32, "place", row, ptx_imm(swizzle_bytes),
                   group);
}

void lower_stmatrix(struct isel *is, MlirOperation op) {
    struct ptx_kernel *k = is->kernel;
    const struct storage *value = isel_storage(is, ir_operand(op, 0));
    const struct shared_view *view = isel_shared(is, ir_operand(op, 1));
    int groups = value->shape.groups, bytes = view->swizzle_bytes;
    if (!want_tma_tile(is, op, view))
        return;
    if (!value->packed || value->shape.fragments != 1 || groups % 2 != 0) {
        isel_error(is, op,
                   "attn.stmatrix: takes a packed tile of 16 rows a warp, in "
                   "pairs of 8 columns");
        return;
    }
    ptx_comment(k, PTX_BANNER, "rows to %s", view->name);
    struct ptx_operand units[4]; /* address of an even group of any panel */
    units[0] = ptx_def(k, PTX_ADD_S32, "rows_at", tile_base(is, view),
                       stmatrix_lane(is, bytes));
    for (int unit = 2; unit < bytes / 16; unit += 2)
        units[unit / 2] =
            ptx_def(k, PTX_XOR_B32, "rows_at", units[0], ptx_imm(16 * unit));
    for (int j = 0; j < groups; j += 2) {
        struct ptx_operand *words =
            ARENA_NEW_ARRAY(is->arena, struct ptx_operand, 4);
        for (int n = 0; n < 4; n++)
            words[n] = storage_element(value, 0, n % 2, j + n / 2, 0);
        int panel = 16 * j / bytes, unit = j % (bytes / 16);
        ptx_put(k, PTX_STMATRIX_X4, PTX_NOTHING,
                ptx_address(units[unit / 2],
                            view->byte_offset + panel * view->rows * bytes),
                ptx_vector(words, 4));
    }
    ptx_put(k, PTX_FENCE_PROXY_ASYNC, PTX_NOTHING, PTX_NOTHING);
    isel_release(is, op);
}

/* ---- Roles -------------------------------------------------------------- */

static void bind_result(struct isel *is, MlirOperation op, enum ptx_class class,
                        struct ptx_operand operand) {
    isel_release(is, op);
    isel_bind(is, ir_result(op, 0), storage_scalar(is, class, operand));
}

void lower_elect(struct isel *is, MlirOperation op) {
    bind_result(is, op, PTX_P, elected(is));
}

void lower_uniform(struct isel *is, MlirOperation op) {
    struct ptx_operand x =
        isel_in_register(is, PTX_R, isel_scalar(is, ir_operand(op, 0)), "r");
    bind_result(
        is, op, PTX_R,
        ptx_def(is->kernel, PTX_SHFL_IDX_B32, "uniform", x, ptx_imm(0)));
}

void lower_lane_value(struct isel *is, MlirOperation op) {
    struct ptx_operand x =
        isel_in_register(is, PTX_R, isel_scalar(is, ir_operand(op, 0)), "r");
    struct ptx_operand lane =
        isel_in_register(is, PTX_R, isel_scalar(is, ir_operand(op, 1)), "r");
    bind_result(is, op, PTX_R,
                ptx_def(is->kernel, PTX_SHFL_LANE_B32, "of_lane", x, lane));
}

void lower_set_max_registers(struct isel *is, MlirOperation op) {
    const char *action = ir_text_attr(op, "action");
    bool increase = action && strcmp(action, "increase") == 0;
    ptx_put(is->kernel, increase ? PTX_SETMAXNREG_INC : PTX_SETMAXNREG_DEC,
            PTX_NOTHING, ptx_imm(ir_int_attr(op, "count", 0)));
}

static void named_barrier(struct isel *is, MlirOperation op, enum ptx_op row) {
    struct ptx_operand id = isel_scalar(is, ir_operand(op, 0));
    ptx_put(is->kernel, row, PTX_NOTHING, id,
            ptx_imm(ir_int_attr(op, "threads", 0)));
    isel_release(is, op);
}

void lower_bar_sync(struct isel *is, MlirOperation op) {
    named_barrier(is, op, PTX_BAR_SYNC_COUNT);
}

void lower_bar_arrive(struct isel *is, MlirOperation op) {
    named_barrier(is, op, PTX_BAR_ARRIVE_COUNT);
}

void lower_atomic_inc(struct isel *is, MlirOperation op) {
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand base =
        isel_param_global(is, isel_argument(is, ir_operand(op, 0)));
    struct ptx_operand element = isel_scalar(is, ir_operand(op, 1));
    struct ptx_operand wrap = isel_scalar(is, ir_operand(op, 2));
    struct ptx_operand at =
        element.kind == PTX_OPERAND_IMM
            ? ptx_address(base, 4 * element.value)
            : ptx_address(ptx_def(k, PTX_MAD_WIDE_S32, "counter", element,
                                  ptx_imm(4), base),
                          0);
    bind_result(is, op, PTX_R, ptx_def(k, PTX_ATOM_INC_U32, "drawn", at, wrap));
}
