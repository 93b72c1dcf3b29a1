/* TMA: bulk copies between global and shared memory, with and without a tensor
 * map.
 *
 * A load is in flight from its issue until emu_cta_complete_pending picks it;
 * then the bytes land and the mbarrier gets its transaction bytes.  A store
 * reads shared memory when its thread waits for the group, the latest moment
 * allowed; until then nobody may overwrite the source.
 */
#include "emulator/access.h"
#include "emulator/exec.h"
#include "emulator/tensor_map.h"
#include "emulator/trace.h"

struct box {
    struct tensor_map map;
    int32_t at[5];
    unsigned element, row_bytes;
    uint32_t rows; /* product of the outer box extents */
};

/* The geometry of one copy. */
static struct box box_of(const uint8_t map[128], const int32_t coordinates[5]) {
    struct box box = {.rows = 1};
    memcpy(&box.map, map, sizeof box.map);
    memcpy(box.at, coordinates, sizeof box.at);
    box.element = (unsigned)box.map.strides[0];
    box.row_bytes = box.map.box[0] * box.element;
    for (int axis = 1; axis < box.map.rank; axis++)
        box.rows *= box.map.box[axis];
    return box;
}

/* Global address of element 0 of a row of the box; false: the row is
 * outside. */
static bool row_address(const struct box *box, uint32_t row,
                        uint64_t *out_address) {
    uint64_t address = box->map.address;
    for (int axis = 1; axis < box->map.rank; axis++) {
        int64_t at = box->at[axis] + (int64_t)(row % box->map.box[axis]);
        row /= box->map.box[axis];
        if (at < 0 || (uint64_t)at >= box->map.extents[axis])
            return false;
        address += (uint64_t)at * box->map.strides[axis];
    }
    *out_address = address;
    return true;
}

/* Elements [first, end) of a row that are inside the tensor. */
static void row_range(const struct box *box, int64_t *out_first,
                      int64_t *out_end) {
    int64_t left = (int64_t)box->map.extents[0] - box->at[0];
    *out_first = box->at[0] < 0 ? -(int64_t)box->at[0] : 0;
    *out_end = left < box->map.box[0] ? left : box->map.box[0];
    if (*out_end < *out_first)
        *out_end = *out_first;
}

/* Out-of-bounds elements: zeros, or the NaN 0x7fff… of the type. */
static void fill_row(const struct box *box, uint8_t *row) {
    memset(row, 0, box->row_bytes);
    for (unsigned i = 0; box->map.nan_fill && i < box->row_bytes;
         i += box->element) {
        memset(row + i, 0xff, box->element);
        row[i + box->element - 1] = 0x7f;
    }
}

/* A row of the box as bytes, loaded from or stored to global memory. */
static void load_row(struct access *a, const struct box *box, uint32_t row,
                     uint8_t *bytes) {
    uint64_t address;
    int64_t first, end;
    fill_row(box, bytes);
    row_range(box, &first, &end);
    if (first == end || !row_address(box, row, &address))
        return;
    size_t size = (size_t)(end - first) * box->element;
    address += (uint64_t)(box->at[0] + first) * box->element;
    const uint8_t *from = emu_access_global_range(a, 0, address, size, false);
    if (from)
        memcpy(bytes + first * box->element, from, size);
}

static void store_row(struct access *a, const struct box *box, uint32_t row,
                      const uint8_t *bytes) {
    uint64_t address;
    int64_t first, end;
    row_range(box, &first, &end);
    if (first == end || !row_address(box, row, &address))
        return;
    size_t size = (size_t)(end - first) * box->element;
    address += (uint64_t)(box->at[0] + first) * box->element;
    uint8_t *to = emu_access_global_range(a, 0, address, size, true);
    if (to)
        memcpy(to, bytes + first * box->element, size);
}

/* Copies a row between its linear form and its swizzled place in shared
 * memory. */
static void shared_row(struct emu_cta *cta, const struct box *box,
                       uint32_t shared, uint32_t row, uint8_t *bytes,
                       bool to_shared) {
    for (uint32_t i = 0; i < box->row_bytes; i += 16) {
        uint32_t at =
            tensor_swizzle(shared + row * box->row_bytes + i, box->map.swizzle);
        if (to_shared)
            memcpy(cta->shared + at, bytes + i, 16);
        else
            memcpy(bytes + i, cta->shared + at, 16);
    }
}

/* ---- reading operands -------------------------------------------------- */

/* Why these bytes are no map for the instruction, or NULL.  They come from
 * memory that the kernel may have written. */
static const char *invalid_map(const uint8_t bytes[128],
                               const struct emu_inst *inst,
                               uint32_t shared_bytes) {
    struct tensor_map map;
    memcpy(&map, bytes, sizeof map);
    if (map.magic != TENSOR_MAP_MAGIC || map.rank < 1 || map.rank > 5 ||
        map.strides[0] != emu_tensor_type_bytes(map.type) ||
        map.swizzle >= EMU_SWIZZLE_COUNT)
        return "there is no tensor map at this address";
    if (map.rank != inst->target_count)
        return "the tensor map has another rank than the instruction";
    uint64_t total = map.strides[0];
    for (int axis = 0; axis < map.rank; axis++) {
        if (map.box[axis] < 1 || map.box[axis] > 256)
            return "there is no tensor map at this address";
        total *= map.box[axis];
        if (total > shared_bytes)
            return "the box is larger than shared memory";
    }
    return map.box[0] * map.strides[0] % 16
               ? "there is no tensor map at this address"
               : NULL;
}

/* The tensor map at a generic address; false after a report. */
static bool read_map(struct emu_warp *warp, const struct emu_inst *inst,
                     int lane, int operand, int disp, uint8_t out_map[128]) {
    uint64_t address =
        lane_value(warp, inst->src[operand], lane) + (uint64_t)inst->disp[disp];
    struct access access = emu_access_plain(warp, inst);
    for (unsigned i = 0; i < 128; i += 16)
        if (!emu_access_load(&access, EMU_SPACE_GENERIC, lane, address + i, 16,
                             out_map + i))
            return false;
    const char *why = address % 64
                          ? "a tensor map must be aligned to 64 bytes"
                          : invalid_map(out_map, inst, warp->cta->shared_bytes);
    if (why && check_on(warp->cta, EMU_REPORT_INVALID))
        emu_report_add(warp, inst, EMU_REPORT_INVALID, 1u << lane, address,
                       "%s", why);
    return why == NULL;
}

static void read_coordinates(struct emu_warp *warp, const struct emu_inst *inst,
                             int lane, int operand, int32_t out[5]) {
    for (int i = 0; i < 5; i++)
        out[i] = i < inst->target_count
                     ? src32(warp, inst, operand + i)->s[lane]
                     : 0;
}

/* A shared address, given as 32 bits or as a generic address. */
static uint32_t shared_operand(struct emu_warp *warp,
                               const struct emu_inst *inst, int lane,
                               int operand, int disp) {
    uint64_t address =
        lane_value(warp, inst->src[operand], lane) + (uint64_t)inst->disp[disp];
    uint64_t offset = address;
    if (inst->src[operand].width == 8)
        emu_access_resolve(address, &offset);
    return (uint32_t)offset;
}

/* ---- loads ------------------------------------------------------------- */

/* The bytes are there: readable by whoever sees the mbarrier complete. */
static void land(struct emu_cta *cta, struct pending_copy *copy) {
    struct mbarrier *barrier = emu_mbarrier_find(cta, copy->mbarrier);
    uint32_t clock = ++cta->async_clock;
    emu_access_shared_landed(cta, copy->shared, copy->bytes, EMU_AGENT_ASYNC,
                             clock);
    if (!barrier)
        return;
    if (copy->ready > barrier->arriving_time)
        barrier->arriving_time = copy->ready;
    emu_mbarrier_complete_tx(cta, barrier, copy->bytes, clock);
}

/* Row by row, so that a row outside costs nothing. */
static void complete_tensor(struct emu_cta *cta, struct pending_copy *copy) {
    struct box box = box_of(copy->map, copy->coordinates);
    struct access access =
        emu_access_plain(&cta->warps[copy->warp], copy->inst);
    uint8_t row[256 * 8];
    for (uint32_t r = 0; r < box.rows; r++) {
        load_row(&access, &box, r, row);
        shared_row(cta, &box, copy->shared, r, row, true);
    }
    land(cta, copy);
}

static void complete_bulk(struct emu_cta *cta, struct pending_copy *copy) {
    struct access access =
        emu_access_plain(&cta->warps[copy->warp], copy->inst);
    const uint8_t *from =
        emu_access_global_range(&access, 0, copy->global, copy->bytes, false);
    if (from)
        memcpy(cta->shared + copy->shared, from, copy->bytes);
    land(cta, copy);
}

/* Checks destination and mbarrier, marks the destination as in flight. */
static bool begin_load(struct emu_warp *warp, int lane,
                       struct pending_copy *copy, uint32_t align) {
    struct emu_cta *cta = warp->cta;
    struct mbarrier *barrier =
        emu_mbarrier_get(warp, copy->inst, 1u << lane, copy->mbarrier);
    if (!barrier)
        return false;
    if (!barrier->fenced && check_on(cta, EMU_REPORT_PROXY))
        emu_report_add(warp, copy->inst, EMU_REPORT_PROXY, 1u << lane,
                       copy->mbarrier,
                       "the initialisation of the mbarrier was not made "
                       "visible to the async proxy "
                       "(fence.mbarrier_init or fence.proxy.async)");
    struct access access = emu_access_plain(warp, copy->inst);
    access.async_proxy = true;
    access.agent = EMU_AGENT_ASYNC;
    access.stamp = EMU_CLOCK_IN_FLIGHT;
    if (!emu_access_shared_range(&access, lane, copy->shared, copy->bytes,
                                 align, true))
        return false;
    cta->counters.async_copy_bytes += copy->bytes;
    cta->counters.global_read_bytes += copy->bytes;
    cta->counters.global_read_sectors += (copy->bytes + 31) / 32;
    cta->counters.shared_write_bytes += copy->bytes;
    if (cta->trace)
        copy->ready = emu_trace_copy(cta->trace, warp->time, copy->bytes);
    vec_push(cta->arena, &cta->pending, *copy);
    return true;
}

/* [dst], [map, {coordinates}], [mbarrier] */
EXEC(tma_load) {
    for (uint32_t left = active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        struct pending_copy copy = {
            .complete = complete_tensor, .inst = inst, .warp = warp->index};
        if (!read_map(warp, inst, lane, 1, 1, copy.map))
            continue;
        read_coordinates(warp, inst, lane, 2, copy.coordinates);
        copy.shared = shared_operand(warp, inst, lane, 0, 0);
        copy.mbarrier =
            shared_operand(warp, inst, lane, 2 + inst->target_count, 2);
        struct box box = box_of(copy.map, copy.coordinates);
        copy.bytes = box.rows * box.row_bytes;
        begin_load(warp, lane, &copy, 128);
    }
    return EMU_STEP_NEXT;
}

/* The global side of a copy without a tensor map. */
static void check_bulk(struct emu_warp *warp, const struct emu_inst *inst,
                       int lane, uint64_t global, uint32_t bytes,
                       const char *direction) {
    if ((bytes % 16 || global % 16) &&
        check_on(warp->cta, EMU_REPORT_MISALIGNED))
        emu_report_add(warp, inst, EMU_REPORT_MISALIGNED, 1u << lane, global,
                       "%u bytes %s this address; both must be multiples of 16",
                       bytes, direction);
}

/* [dst], [src], size, [mbarrier] */
EXEC(bulk_load) {
    for (uint32_t left = active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        struct pending_copy copy = {
            .complete = complete_bulk, .inst = inst, .warp = warp->index};
        copy.shared = shared_operand(warp, inst, lane, 0, 0);
        copy.global =
            lane_value(warp, inst->src[1], lane) + (uint64_t)inst->disp[1];
        copy.bytes = src32(warp, inst, 2)->u[lane];
        copy.mbarrier = shared_operand(warp, inst, lane, 3, 2);
        check_bulk(warp, inst, lane, copy.global, copy.bytes, "from");
        begin_load(warp, lane, &copy, 16);
    }
    return EMU_STEP_NEXT;
}

/* ---- stores ------------------------------------------------------------ */

/* The source counts as being read until the group is waited for. */
static void begin_store(struct emu_warp *warp, int lane, struct bulk_op *op,
                        uint32_t align) {
    struct access access = emu_access_plain(warp, op->inst);
    access.async_proxy = true;
    access.stamp = EMU_CLOCK_IN_FLIGHT;
    if (!emu_access_shared_range(&access, lane, op->shared, op->bytes, align,
                                 false))
        return;
    op->group = warp->bulk_group;
    warp->cta->counters.shared_read_bytes += op->bytes;
    warp->cta->counters.global_write_bytes += op->bytes;
    warp->cta->counters.global_write_sectors += (op->bytes + 31) / 32;
    vec_push(warp->cta->arena, &warp->bulk, *op);
}

/* [map, {coordinates}], [src] */
EXEC(tma_store) {
    for (uint32_t left = active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        struct bulk_op op = {.inst = inst};
        if (!read_map(warp, inst, lane, 0, 0, op.map))
            continue;
        read_coordinates(warp, inst, lane, 1, op.coordinates);
        op.shared = shared_operand(warp, inst, lane, 1 + inst->target_count, 1);
        struct box box = box_of(op.map, op.coordinates);
        op.bytes = box.rows * box.row_bytes;
        begin_store(warp, lane, &op, 128);
    }
    return EMU_STEP_NEXT;
}

/* [dst], [src], size */
EXEC(bulk_store) {
    for (uint32_t left = active; left; left &= left - 1) {
        int lane = __builtin_ctz(left);
        struct bulk_op op = {.inst = inst};
        op.global =
            lane_value(warp, inst->src[0], lane) + (uint64_t)inst->disp[0];
        op.shared = shared_operand(warp, inst, lane, 1, 1);
        op.bytes = src32(warp, inst, 2)->u[lane];
        check_bulk(warp, inst, lane, op.global, op.bytes, "to");
        begin_store(warp, lane, &op, 16);
    }
    return EMU_STEP_NEXT;
}

/* Reads the source at the last moment allowed. */
static void complete_store(struct emu_warp *warp, struct bulk_op *op) {
    struct access access = emu_access_plain(warp, op->inst);
    if (op->inst->exec == exec_tma_store) {
        struct box box = box_of(op->map, op->coordinates);
        uint8_t row[256 * 8];
        for (uint32_t r = 0; r < box.rows; r++) {
            shared_row(warp->cta, &box, op->shared, r, row, false);
            store_row(&access, &box, r, row);
        }
    } else {
        uint8_t *to =
            emu_access_global_range(&access, 0, op->global, op->bytes, true);
        if (to)
            memcpy(to, warp->cta->shared + op->shared, op->bytes);
    }
    emu_access_shared_was_read(warp, op->shared, op->bytes);
}

EXEC(bulk_commit) {
    (void)inst;
    (void)active;
    warp->bulk_group++;
    return EMU_STEP_NEXT;
}

/* wait_group N{.read}: all but the last N groups are done. */
EXEC(bulk_wait) {
    size_t kept = 0;
    (void)active;
    for (size_t i = 0; i < warp->bulk.count; i++) {
        struct bulk_op *op = &warp->bulk.data[i];
        if (op->group + (uint64_t)inst->imm[0] < warp->bulk_group)
            complete_store(warp, op);
        else
            warp->bulk.data[kept++] = *op;
    }
    warp->bulk.count = kept;
    return EMU_STEP_NEXT;
}

void emu_bulk_finish(struct emu_warp *warp) {
    for (size_t i = 0; i < warp->bulk.count; i++) {
        struct bulk_op *op = &warp->bulk.data[i];
        if (check_on(warp->cta, EMU_REPORT_ASYNC_IN_FLIGHT))
            emu_report_add(warp, op->inst, EMU_REPORT_ASYNC_IN_FLIGHT, 0,
                           op->shared,
                           "the warp ends while its source is being read "
                           "(cp.async.bulk.wait_group.read is missing)");
        complete_store(warp, op);
    }
    warp->bulk.count = 0;
}
