/* Shared-memory tiles and the asynchronous copies that fill them.
 *
 * attn.copy_async gives each thread one 16-byte chunk column and every T/L-th
 * row, L lanes side by side in a row (8 lanes read 128 bytes):
 *
 *     chunk  0 1 2 3 4 5 6 7 | 8 9 ...        second pass over the columns
 *   row 0    t0 t1 ...   t7
 *   row 1    t8 ...
 *
 * so a thread's row, its swizzled place in shared memory and its global row
 * pointer are constants of the kernel, and a copy only adds strides.  Rows at
 * or past the limit, and chunks past the source's columns, are filled with
 * zeros by a source size of 0. */
#include "backends/ptx/isel.h"

/* ---- attn.shared, attn.stage -------------------------------------------- */

void lower_shared(struct isel *is, MlirOperation op) {
    MlirType type = mlirValueGetType(ir_result(op, 0));
    int rank = ir_rank(type);
    struct shared_view *view = ARENA_NEW(is->arena, struct shared_view);
    const char *name = ir_text_attr(op, "name");
    *view = (struct shared_view){
        .name = name ? name : "tile",
        .bytes = (int)(ir_element_bits(ir_element_type(type)) + 7) / 8,
        .byte_offset = (int)ir_int_attr(op, "byte_offset", 0),
        .bf16 = mlirTypeIsABF16(ir_element_type(type)),
    };
    if (rank >= 2 && ir_has_attr(op, "swizzle_bytes")) {
        view->rows = (int)ir_extent(type, rank - 2);
        view->columns = (int)ir_extent(type, rank - 1);
        lower_panels(is, op, view);
    } else if (rank >= 2) {
        view->swizzle =
            (struct swizzle){(int)ir_int_attr(op, "pitch", 0),
                             (int)ir_int_attr(op, "swizzle_bits", 0),
                             (int)ir_int_attr(op, "swizzle_shift", 0)};
        view->rows = (int)ir_extent(type, rank - 2);
        view->columns = (int)ir_extent(type, rank - 1);
        view->stage_bytes = view->rows * view->swizzle.pitch * 16;
        const char *wrong = swizzle_check(view->swizzle, view->byte_offset);
        if (!wrong && rank == 3)
            wrong = swizzle_check(view->swizzle, view->stage_bytes);
        if (wrong)
            isel_error(is, op, "attn.shared '%s': %s", view->name, wrong);
    }
    isel_bind_shared(is, ir_result(op, 0), view);
}

void lower_stage(struct isel *is, MlirOperation op) {
    struct shared_view *view = ARENA_NEW(is->arena, struct shared_view);
    *view = *isel_shared(is, ir_operand(op, 0));
    struct ptx_operand index = isel_scalar(is, ir_operand(op, 1));
    isel_release(is, op);
    if (index.kind == PTX_OPERAND_IMM) {
        view->byte_offset += (int)index.value * view->stage_bytes;
    } else if (view->panels > 0) {
        view->stage_index = index;
    } else {
        bool shift = (view->stage_bytes & (view->stage_bytes - 1)) == 0;
        const char *hint = arena_printf(is->arena, "%s_stage", view->name);
        view->stage =
            shift ? ptx_def(is->kernel, PTX_SHL_B32, hint, index,
                            ptx_imm(__builtin_ctz((unsigned)view->stage_bytes)))
                  : ptx_def(is->kernel, PTX_MUL_LO_S32, hint, index,
                            ptx_imm(view->stage_bytes));
    }
    isel_bind_shared(is, ir_result(op, 0), view);
}

/* ---- Global pointers ---------------------------------------------------- */

static struct ptx_operand head_pointer(struct isel *is, struct argument *arg,
                                       struct ptx_operand b,
                                       struct ptx_operand h) {
    struct ptx_operand base = isel_param_global(is, arg);
    struct ptx_operand b_stride = isel_param_stride(is, arg, 0);
    struct ptx_operand h_stride = isel_param_stride(is, arg, 1);
    struct ptx_operand bytes = ptx_imm(isel_element_bytes(arg));
    struct ptx_operand wide =
        ptx_def(is->kernel, PTX_MUL_WIDE_S32, "rd", b, bytes);
    const char *hint = arena_printf(is->arena, "%s_head", arg->stem);
    struct ptx_operand pointer =
        ptx_def(is->kernel, PTX_MAD_LO_S64, hint, wide, b_stride, base);
    wide = ptx_def(is->kernel, PTX_MUL_WIDE_S32, "rd", h, bytes);
    return ptx_def(is->kernel, PTX_MAD_LO_S64, hint, wide, h_stride, pointer);
}

/* An operand as part of a cache key. */
static int operand_key(struct ptx_operand operand) {
    return ptx_is_reg(operand) ? (int)operand.reg : -1 - (int)operand.value;
}

struct ptx_operand isel_head_pointer(struct isel *is, struct argument *arg,
                                     MlirValue b, MlirValue h) {
    struct storage *storages[] = {isel_storage(is, b), isel_storage(is, h)};
    struct ptx_operand b_reg = isel_scalar(is, b), h_reg = isel_scalar(is, h);
    int index = (int)(arg - is->arguments.data);
    int b_key = operand_key(b_reg), h_key = operand_key(h_reg);
    struct ptx_operand *known =
        isel_constant_find(is, "head pointer", index, b_key, h_key, 0);
    if (known)
        return *known;
    /* At top level nothing is gained by hoisting, and the pointer would be
     * alive in the main loop. */
    struct hoist hoist;
    bool hoisted = is->depth > 0 && isel_hoist_begin(is, storages, 2, &hoist);
    struct ptx_operand pointer = head_pointer(is, arg, b_reg, h_reg);
    if (hoisted)
        isel_hoist_end(is, &hoist);
    if (hoisted || is->depth == 0) {
        isel_constant_add(is, "head pointer", index, b_key, h_key, 0, pointer);
    }
    return pointer;
}

struct ptx_operand isel_packed_row(struct isel *is, struct argument *arg,
                                   struct ptx_operand head,
                                   struct ptx_operand row, int heads) {
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand bytes = ptx_imm(isel_element_bytes(arg));
    struct ptx_operand query = ptx_def(k, PTX_SHR_U32, "query", row,
                                       ptx_imm(__builtin_ctz((unsigned)heads)));
    struct ptx_operand in_group =
        ptx_def(k, PTX_AND_B32, "in_group", row, ptx_imm(heads - 1));
    struct ptx_operand wide = ptx_def(k, PTX_MUL_WIDE_S32, "rd", query, bytes);
    struct ptx_operand pointer = ptx_def(k, PTX_MAD_LO_S64, "rd", wide,
                                         isel_param_stride(is, arg, 2), head);
    wide = ptx_def(k, PTX_MUL_WIDE_S32, "rd", in_group, bytes);
    return ptx_def(k, PTX_MAD_LO_S64, "row_ptr", wide,
                   isel_param_stride(is, arg, 1), pointer);
}

/* ---- attn.copy_async ---------------------------------------------------- */

struct copy {
    struct isel *is;
    const struct shared_view *view;
    int lanes;    /* side by side in a row, a power of two */
    int row_step; /* rows from one pass to the next */
    int row_passes, column_passes;
    int chunks, source_chunks; /* of a row: in shared memory, in the source */
};

static struct copy copy_of(struct isel *is, const struct shared_view *view,
                           int source_columns) {
    struct copy copy = {.is = is,
                        .view = view,
                        .chunks = view->columns * view->bytes / 16,
                        .source_chunks = source_columns * view->bytes / 16,
                        .lanes = 1};
    while (copy.lanes < 8 && copy.lanes < copy.chunks)
        copy.lanes *= 2;
    copy.row_step = is->threads / copy.lanes;
    copy.row_passes = (view->rows + copy.row_step - 1) / copy.row_step;
    copy.column_passes = (copy.chunks + copy.lanes - 1) / copy.lanes;
    return copy;
}

/* The thread's row and chunk of the first pass. */
static struct ptx_operand thread_row(struct isel *is, int lanes) {
    struct ptx_operand *known =
        isel_constant_find(is, "copy row", lanes, 0, 0, 0);
    if (known)
        return *known;
    struct ptx_operand thread = isel_thread(is);
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_operand row =
        ptx_def(is->kernel, PTX_SHR_U32, "copy_row", thread,
                ptx_imm(__builtin_ctz((unsigned)lanes)));
    isel_entry_end(is, saved);
    isel_constant_add(is, "copy row", lanes, 0, 0, 0, row);
    return row;
}

static struct ptx_operand thread_chunk(struct isel *is, int lanes) {
    struct ptx_operand *known =
        isel_constant_find(is, "copy chunk", lanes, 0, 0, 0);
    if (known)
        return *known;
    struct ptx_operand thread = isel_thread(is);
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_operand chunk = ptx_def(is->kernel, PTX_AND_B32, "copy_chunk",
                                       thread, ptx_imm(lanes - 1));
    isel_entry_end(is, saved);
    isel_constant_add(is, "copy chunk", lanes, 0, 0, 0, chunk);
    return chunk;
}

/* Shared-memory address of the thread's chunk in row pass 0, or, where the
 * swizzle does not repeat from pass to pass, of pass `pass`. */
static struct ptx_operand thread_target(const struct copy *copy, int pass) {
    struct isel *is = copy->is;
    struct swizzle s = copy->view->swizzle;
    int key = s.bits * 16 + s.shift;
    struct ptx_operand *known =
        isel_constant_find(is, "copy target", copy->lanes, s.pitch, key, pass);
    if (known)
        return *known;
    struct ptx_operand row = thread_row(is, copy->lanes),
                       chunk = thread_chunk(is, copy->lanes);
    struct ptx_operand smem = isel_smem(is);
    struct ptx_kernel *k = is->kernel;
    struct ptx_inst *saved = isel_entry_begin(is);
    if (pass > 0)
        row = ptx_def(k, PTX_ADD_S32, "r", row, ptx_imm(pass * copy->row_step));
    if (s.bits > 0) {
        struct ptx_operand bits = row;
        if (s.shift > 0)
            bits = ptx_def(k, PTX_SHR_U32, "r", bits, ptx_imm(s.shift));
        bits = ptx_def(k, PTX_AND_B32, "r", bits, ptx_imm((1 << s.bits) - 1));
        chunk = ptx_def(k, PTX_XOR_B32, "r", chunk, bits);
    }
    struct ptx_operand offset =
        ptx_def(k, PTX_MAD_LO_S32, "r", row, ptx_imm(s.pitch), chunk);
    struct ptx_operand target =
        ptx_def(k, PTX_MAD_LO_S32, "copy_target", offset, ptx_imm(16), smem);
    isel_entry_end(is, saved);
    isel_constant_add(is, "copy target", copy->lanes, s.pitch, key, pass,
                      target);
    return target;
}

/* The thread's row once more: taken from its target address where that is a
 * shift, so that the main loop needs one register less. */
static struct ptx_operand row_of_target(const struct copy *copy) {
    struct isel *is = copy->is;
    int pitch = copy->view->swizzle.pitch;
    if ((pitch & (pitch - 1)) != 0 || is->depth == 0)
        return thread_row(is, copy->lanes);
    struct ptx_operand offset = ptx_def(is->kernel, PTX_SUB_S32, "r",
                                        thread_target(copy, 0), isel_smem(is));
    return ptx_def(is->kernel, PTX_SHR_U32, "copy_row", offset,
                   ptx_imm(4 + __builtin_ctz((unsigned)pitch)));
}

/* Global address of the thread's chunk in row 0 of src[b, h]; hoisted when b
 * and h are known before the loops. */
static struct ptx_operand thread_source(const struct copy *copy,
                                        struct argument *arg, MlirValue b,
                                        MlirValue h) {
    struct isel *is = copy->is;
    struct ptx_operand head = isel_head_pointer(is, arg, b, h);
    struct ptx_operand *known =
        isel_constant_find(is, "copy source", (int)head.reg, copy->lanes, 0, 0);
    if (known)
        return *known;
    struct ptx_operand row = thread_row(is, copy->lanes),
                       chunk = thread_chunk(is, copy->lanes);
    struct ptx_operand stride = isel_param_stride(is, arg, 2);
    struct storage *storages[] = {isel_storage(is, b), isel_storage(is, h)};
    struct hoist hoist;
    bool hoisted = is->depth > 0 && isel_hoist_begin(is, storages, 2, &hoist);
    if (hoisted &&
        hoist
            .anchor) { /* behind the head pointer, which was put there before */
        while (!ptx_same(is->kernel->cursor->result, head))
            is->kernel->cursor = is->kernel->cursor->next;
        hoist.anchor = is->kernel->cursor;
    }
    struct ptx_kernel *k = is->kernel;
    struct ptx_operand wide = ptx_def(k, PTX_MUL_WIDE_S32, "rd", row,
                                      ptx_imm(isel_element_bytes(arg)));
    struct ptx_operand pointer =
        ptx_def(k, PTX_MAD_LO_S64, "rd", wide, stride, head);
    wide = ptx_def(k, PTX_MUL_WIDE_S32, "rd", chunk, ptx_imm(16));
    pointer =
        ptx_def(k, PTX_ADD_S64, arena_printf(is->arena, "%s_row", arg->stem),
                pointer, wide);
    if (hoisted)
        isel_hoist_end(is, &hoist);
    if (hoisted || is->depth == 0) {
        isel_constant_add(is, "copy source", (int)head.reg, copy->lanes, 0, 0,
                          pointer);
    }
    return pointer;
}

/* row_step rows of a tensor in bytes: made where it is used, two instructions
 * being cheaper than two registers through the main loop. */
static struct ptx_operand step_bytes(struct isel *is, struct argument *arg,
                                     int row_step) {
    struct ptx_operand stride = isel_param_stride(is, arg, 2);
    int factor = row_step * isel_element_bytes(arg);
    bool shift = (factor & (factor - 1)) == 0;
    return ptx_def(is->kernel, shift ? PTX_SHL_B64 : PTX_MUL_LO_S64,
                   arena_printf(is->arena, "%s_step", arg->stem), stride,
                   ptx_imm(shift ? __builtin_ctz((unsigned)factor) : factor));
}

/* Whether the thread's chunk of a column pass lies below `limit`: 1 or 0 for
 * all threads, else a predicate. */
static struct ptx_operand chunk_below(const struct copy *copy, int pass,
                                      int limit) {
    struct isel *is = copy->is;
    int first = pass * copy->lanes;
    if (first + copy->lanes <= limit || first >= limit)
        return ptx_imm(first < limit);
    struct ptx_operand *known =
        isel_constant_find(is, "copy column", copy->lanes, pass, limit, 0);
    if (known)
        return *known;
    struct ptx_operand chunk = thread_chunk(is, copy->lanes);
    struct ptx_inst *saved = isel_entry_begin(is);
    struct ptx_operand below = ptx_def(is->kernel, PTX_SETP_LT_S32, "in_row",
                                       chunk, ptx_imm(limit - first));
    isel_entry_end(is, saved);
    isel_constant_add(is, "copy column", copy->lanes, pass, limit, 0, below);
    return below;
}

/* The copies of one row pass.  `size`: 16, or 0 for rows past the limit;
 * `guard`: a predicate, or none, for passes that reach past the tile's rows. */
static void copy_row(const struct copy *copy, int pass,
                     struct ptx_operand target, struct ptx_operand source,
                     struct ptx_operand size, struct ptx_operand guard) {
    struct ptx_kernel *k = copy->is->kernel;
    for (int column = 0; column < copy->column_passes; column++) {
        struct ptx_operand exists = chunk_below(copy, column, copy->chunks);
        struct ptx_operand filled =
            chunk_below(copy, column, copy->source_chunks);
        struct ptx_operand bytes = size;
        if (ptx_is_reg(filled))
            bytes = ptx_def(k, PTX_SELP_B32, "size", size, ptx_imm(0), filled);
        else if (filled.value == 0)
            bytes = ptx_imm(0);
        struct ptx_operand condition = guard;
        if (ptx_is_reg(exists))
            condition = ptx_is_reg(guard)
                            ? ptx_def(k, PTX_AND_PRED, "p", guard, exists)
                            : exists;
        int bytes_along = 16 * copy->lanes * column;
        int64_t offset = copy->view->byte_offset + bytes_along;
        if (copy->row_step % swizzle_period(copy->view->swizzle) == 0)
            offset += 16LL * pass * copy->row_step * copy->view->swizzle.pitch;
        /* Zero fill reads nothing; the address stays inside the row all the
         * same. */
        int64_t source_offset =
            ptx_is_reg(filled) || filled.value ? bytes_along : 0;
        struct ptx_inst *inst = ptx_put(
            k, PTX_CP_ASYNC_CG, PTX_NOTHING, ptx_address(target, offset),
            ptx_address(source, source_offset), bytes);
        if (ptx_is_reg(condition))
            ptx_guard(inst, condition, false);
    }
}

/* Global address of the thread's chunk in row row0 + its own + `first` of
 * packed heads. */
static struct ptx_operand packed_source(const struct copy *copy,
                                        MlirOperation op,
                                        struct ptx_operand thread, int first) {
    struct isel *is = copy->is;
    struct ptx_kernel *k = is->kernel;
    struct argument *arg = isel_argument(is, ir_operand(op, 0));
    struct ptx_operand head =
        isel_head_pointer(is, arg, ir_operand(op, 1), ir_operand(op, 2));
    struct ptx_operand row = ptx_def(k, PTX_ADD_S32, "r", thread,
                                     isel_scalar(is, ir_operand(op, 3)));
    if (first > 0)
        row = ptx_def(k, PTX_ADD_S32, "r", row, ptx_imm(first));
    struct ptx_operand pointer =
        isel_packed_row(is, arg, head, row, ir_packed_heads(op));
    return ptx_def(k, PTX_MAD_WIDE_S32,
                   arena_printf(is->arena, "%s_src", arg->stem),
                   thread_chunk(is, copy->lanes), ptx_imm(16), pointer);
}

void lower_copy_async(struct isel *is, MlirOperation op) {
    struct argument *arg = isel_argument(is, ir_operand(op, 0));
    MlirValue b = ir_operand(op, 1), h = ir_operand(op, 2);
    struct ptx_operand row0 = isel_scalar(is, ir_operand(op, 3));
    struct ptx_operand limit = isel_scalar(is, ir_operand(op, 4));
    struct shared_view *view = isel_shared(is, ir_operand(op, 5));
    struct copy copy =
        copy_of(is, view, (int)ir_extent(arg->type, arg->rank - 1));
    struct ptx_kernel *k = is->kernel;
    bool repeats = copy.row_step % swizzle_period(view->swizzle) == 0;

    ptx_comment(k, PTX_COMMENT, "copy %d rows of %s to %s", view->rows,
                arg->stem, view->name);
    bool packed = ir_packed_heads(op) > 1;
    struct ptx_operand source = {0}, step = {0};
    if (!packed) {
        source = thread_source(&copy, arg, b, h);
        struct ptx_operand stride = isel_param_stride(is, arg, 2);
        if (copy.row_passes > 1)
            step = step_bytes(is, arg, copy.row_step);
        struct ptx_operand wide = ptx_def(k, PTX_MUL_WIDE_S32, "rd", row0,
                                          ptx_imm(isel_element_bytes(arg)));
        source = ptx_def(k, PTX_MAD_LO_S64,
                         arena_printf(is->arena, "%s_src", arg->stem), wide,
                         stride, source);
    }
    struct ptx_operand thread = row_of_target(&copy);
    struct ptx_operand left = ptx_def(k, PTX_SUB_S32, "rows_left", limit, row0);
    left = ptx_def(k, PTX_SUB_S32, "rows_left", left, thread);
    struct ptx_operand target = {0};
    for (int pass = 0; pass < copy.row_passes; pass++) {
        if (pass == 0 || !repeats)
            target = thread_target(&copy, pass);
        if ((pass == 0 || !repeats) && ptx_is_reg(view->stage))
            target = ptx_def(k, PTX_ADD_S32, "r", target, view->stage);
        int first = pass * copy.row_step;
        struct ptx_operand inside =
            ptx_def(k, PTX_SETP_GT_S32, "p", left, ptx_imm(first));
        struct ptx_operand size =
            ptx_def(k, PTX_SELP_B32, "size", ptx_imm(16), ptx_imm(0), inside);
        struct ptx_operand guard = {0};
        if (first + copy.row_step > view->rows)
            guard = ptx_def(k, PTX_SETP_LT_S32, "p", thread,
                            ptx_imm(view->rows - first));
        if (packed)
            source = packed_source(&copy, op, thread, first);
        copy_row(&copy, pass, target, source, size, guard);
        if (!packed && pass + 1 < copy.row_passes)
            source = ptx_def(k, PTX_ADD_S64,
                             arena_printf(is->arena, "%s_src", arg->stem),
                             source, step);
    }
    isel_release(is, op);
}
