/* attnc explain: what the compiler decided and why, how the kernels are
 * launched, which tiles the mask skips, and on request the annotated PTX. */
#include <inttypes.h>
#include <string.h>

#include "passes/schedule-sm90.h"
#include "passes/target_limits.h"
#include "tools/account.h"
#include "tools/block_map.h"
#include "tools/commands.h"
#include "tools/device.h"

/* Default lengths: several tiles, so that the map shows something. */
enum { DEFAULT_LENGTH = 1024 };

/* Larger maps take longer than anybody wants to wait. */
static const int64_t max_map_pairs = (int64_t)1 << 31;

struct explain {
    struct session *session;
    const struct spec *spec;
    const struct attention *attention;
    struct inputs inputs;
    struct compiled compiled;
    struct account account;
    const char *no_map; /* why there is no map; NULL: `map` is valid */
    struct block_map map;
};

/* ---- Collecting --------------------------------------------------------- */

/* The block map, or the reason why there is none. */
static void make_map(struct explain *e) {
    struct arena *arena = e->session->arena;
    const struct schedule_plan *plan = &e->compiled.plan;
    const char *missing = inputs_missing(arena, &e->inputs), *unmodelled;
    struct ref_program *program = ref_compile(arena, e->attention, &unmodelled);
    if (missing)
        e->no_map = arena_printf(arena, "needs %s", missing);
    else if (!program)
        e->no_map =
            arena_printf(arena, "extern fn '%s' has no model", unmodelled);
    else if (e->inputs.sizes[SIZE_Q_LEN] >
             max_map_pairs / e->inputs.sizes[SIZE_KV_LEN])
        e->no_map = "more than 2^31 pairs, choose smaller lengths";
    if (e->no_map)
        return;
    struct ref_call call = inputs_reference_call(arena, &e->inputs);
    e->map = block_map_create(arena, program, &call, 0, 0, plan->tile_m,
                              plan->tile_n);
}

static bool compile(struct explain *e) {
    struct session *session = e->session;
    const struct options *o = session->options;
    struct compile_options options = {
        .target = o->targets.count ? o->targets.data[0] : NULL,
        .schedule = o->schedule,
    };
    bool ok =
        compile_attention(session->arena, session->sources, e->spec,
                          e->attention, &options, session->diags, &e->compiled);
    return session_report(session) == STATUS_OK && ok;
}

/* ---- Text --------------------------------------------------------------- */

/* The lines of the spec with a meaning, as the compiler understood them. */
static void print_lines(const struct explain *e, struct strbuf *out) {
    for (size_t i = 0; i < e->attention->item_count; i++) {
        const struct item *item = &e->attention->items[i];
        struct source_place place =
            source_locate(e->session->sources, item->where);
        if (item->kind == ITEM_LET)
            strbuf_printf(out, "  let %s = ", item->let->name);
        else
            strbuf_append(out,
                          item->kind == ITEM_MASK ? "  mask " : "  score ");
        ast_print_expr(out, item->value);
        strbuf_printf(out, "   // line %u\n", place.line);
    }
}

static bool stores_by_tma(const struct kernel_info *info) {
    for (size_t i = 0; i < info->tensor_map_count; i++)
        if (info->tensor_maps[i].tensor == KERNEL_TENSOR_O)
            return true;
    return false;
}

/* What the planner decided, with the sums that had to fit. */
static void print_plan(const struct explain *e, struct strbuf *out) {
    const struct schedule_plan *p = &e->compiled.plan;
    const struct target_limits *limits = target_limits_find(p->target);
    strbuf_printf(out, "\nplan for %s\n  schedule     { ", p->target);
    schedule_print(p, out);
    strbuf_append(out, " }\n");
    strbuf_printf(out,
                  "  CTA          %d query rows, %d keys a block, %d warps (%d "
                  "threads)\n",
                  p->tile_m, p->tile_n, p->warps, 32 * p->warps);
    if (p->second_m > 0)
        strbuf_printf(out,
                      "  variants     tile %d, %d in a second kernel; the "
                      "sizes of a call choose (launch)\n",
                      p->second_m, p->second_n);
    if (p->pack_gqa > 0)
        strbuf_printf(out,
                      "  packed GQA   %d query heads in a tile of another "
                      "kernel, for calls with few queries (launch)\n",
                      p->pack_gqa);
    strbuf_printf(out, "  Q            in %s\n",
                  p->q_registers ? "registers"
                                 : "shared memory, read for every block");
    strbuf_printf(out, "  O            %s\n",
                  stores_by_tma(e->compiled.info)
                      ? "by TMA, out of the shared memory of its tile's Q"
                      : "stored by the lanes that computed it");
    strbuf_printf(out, "  query tiles  %s%s\n",
                  p->longest_first ? "the longest first" : "as numbered",
                  p->consumers == 0 ? ""
                  : p->dynamic      ? ", drawn from a counter"
                                    : ", a fixed share for each CTA");
    if (p->consumers > 0)
        strbuf_printf(out,
                      "  roles        1 producer and %d consumer warpgroups of "
                      "64 rows%s\n",
                      p->consumers,
                      p->pingpong ? ", which take turns at issuing" : "");
    strbuf_printf(out, "  shared       ");
    if (p->q_stages > 1)
        strbuf_printf(out, "%d x ", p->q_stages);
    strbuf_printf(out, "Q %d + %d stages x (K %d + V %d) + %s %d = %d bytes",
                  p->shared_q, p->stages, p->shared_k, p->shared_v,
                  p->consumers > 0 ? "barriers and lists" : "block list",
                  p->shared_list, p->shared_bytes);
    if (limits)
        strbuf_printf(out, " of %d", limits->shared_per_cta);
    strbuf_printf(out,
                  "\n  registers    accumulator %d + scores %d + Q %d + others "
                  "= about %d",
                  p->registers_acc, p->registers_s, p->registers_q,
                  p->registers);
    if (p->consumers > 0)
        strbuf_printf(out, " of a consumer's %d",
                      schedule_consumer_registers(p->consumers, false));
    else if (limits)
        strbuf_printf(out, " of %d", limits->registers_per_thread);
    strbuf_printf(out, "\n  occupancy    %d CTA%s a multiprocessor\n",
                  p->ctas_per_sm, p->ctas_per_sm == 1 ? "" : "s");
}

/* Each unit with its share of the time that the busiest one needs. */
static void print_account(const struct explain *e, struct strbuf *out) {
    const struct account *a = &e->account;
    strbuf_append(
        out, "\naccount of one key block (a model: work over unit rates of the "
             "target)\n");
    for (int unit = 0; unit < UNIT_COUNT; unit++)
        strbuf_printf(
            out,
            "  %-8s %12.0f %-10s / %6.0f a cycle = %8.0f cycles, busy at most "
            "%3.0f %%%s\n",
            account_unit_name((enum account_unit)unit), a->amount[unit],
            account_unit_amount((enum account_unit)unit), a->rate[unit],
            a->cycles[unit], 100 * a->cycles[unit] / a->cycles[a->bound],
            unit == (int)a->bound ? "  <- bound" : "");
    strbuf_printf(out, "  global   %12.0f bytes of K and V, %.1f FLOP a byte\n",
                  a->global_bytes, a->amount[UNIT_MMA] / a->global_bytes);
    strbuf_printf(out,
                  "  per pair: score %d operations, %d of them MUFU; mask %d "
                  "operations, on "
                  "partial blocks only\n",
                  a->score_operations, a->score_mufu, a->mask_operations);
}

/* One parameter of an entry: its PTX type and what to pass. */
static void print_param(const struct kernel_info *info,
                        const struct kernel_param *param, struct strbuf *out) {
    const char *tensor = param->kind == KERNEL_PARAM_POINTER ||
                                 param->kind == KERNEL_PARAM_EXTENT ||
                                 param->kind == KERNEL_PARAM_STRIDE
                             ? info->tensors[param->index].name
                             : "";
    switch (param->kind) {
    case KERNEL_PARAM_POINTER:
        strbuf_printf(out, "u64 %s", tensor);
        break;
    case KERNEL_PARAM_EXTENT:
        strbuf_printf(out, "s32 %s.extent[%d]", tensor, param->axis);
        break;
    case KERNEL_PARAM_STRIDE:
        strbuf_printf(out, "s64 %s.stride[%d]", tensor, param->axis);
        break;
    case KERNEL_PARAM_SIZE:
        strbuf_printf(out, "s32 %s",
                      size_name_text((enum size_name)param->index));
        break;
    case KERNEL_PARAM_SCALAR:
        strbuf_printf(out, "b32 %s", info->scalars[param->index].name);
        break;
    case KERNEL_PARAM_WORKSPACE:
        strbuf_append(out, "u64 workspace + ");
        size_expr_print_c(&param->offset_expr, info, out);
        break;
    case KERNEL_PARAM_TENSOR_MAP:
        strbuf_printf(
            out, "tensor map of %s",
            info->tensors[info->tensor_maps[param->index].tensor].name);
        break;
    }
}

/* The value of an expression for the sizes at hand, or a word that says what
 * lacks. */
static void print_value(const struct explain *e, const struct size_expr *expr,
                        struct strbuf *out) {
    struct size_env env = {.scalars = e->inputs.params,
                           .scalar_count = e->attention->param_count,
                           .sm_count = 1};
    memcpy(env.sizes, e->inputs.sizes, sizeof env.sizes);
    int64_t value;
    for (size_t i = 0; i < expr->count; i++)
        if (expr->steps[i].op == SIZE_OP_SM_COUNT) {
            strbuf_append(out, "depends on the device");
            return;
        }
    if (size_expr_eval(expr, &env, &value))
        strbuf_printf(out, "%" PRId64, value);
    else
        strbuf_append(out, "an overflow or a division by zero");
}

/* A kernel, its grid and its parameters, wrapped at some 80 columns. */
static void print_entry(const struct explain *e,
                        const struct kernel_entry *entry, struct strbuf *out) {
    const struct kernel_info *info = e->compiled.info;
    strbuf_printf(out, "  %s\n    grid       ", entry->name);
    size_expr_print_c(&entry->grid_x, info, out);
    strbuf_append(out, " = ");
    print_value(e, &entry->grid_x, out);
    strbuf_printf(
        out, "\n    block      %d threads, %u bytes of dynamic shared memory\n",
        entry->threads, entry->shared_bytes);
    size_t column = 0;
    for (size_t i = 0; i < entry->param_count; i++) {
        size_t start = out->length;
        strbuf_append(out, i == 0        ? "    parameters "
                           : column > 70 ? ",\n               "
                                         : ", ");
        column = i == 0 || column > 70 ? 15 : column + (out->length - start);
        start = out->length;
        print_param(info, &entry->params[i], out);
        column += out->length - start;
    }
    strbuf_append(out, "\n");
}

/* Every kernel with its grid and parameters, formulas and figures. */
static void print_launch(const struct explain *e, struct strbuf *out) {
    const struct kernel_info *info = e->compiled.info;
    strbuf_append(out, "\nlaunch, in this order; figures for");
    for (int size = 0; size < SIZE_COUNT; size++)
        strbuf_printf(out, "%s %s %" PRId64, size ? "," : "",
                      size_name_text((enum size_name)size),
                      e->inputs.sizes[size]);
    strbuf_append_char(out, '\n');
    for (size_t i = 0; i < info->entry_count; i++)
        print_entry(e, &info->entries[i], out);
    strbuf_append(out, "  workspace    ");
    size_expr_print_c(&info->workspace_bytes, info, out);
    strbuf_append(out, " = ");
    print_value(e, &info->workspace_bytes, out);
    strbuf_append(out, " bytes\n");
}

static double percent(int64_t part, int64_t whole) {
    return 100 * (double)part / (double)whole;
}

/* The picture, then how many tiles and pairs it stands for. */
static void print_map(const struct explain *e, struct strbuf *out) {
    const struct block_map *m = &e->map;
    strbuf_append(out, "\nblock map of the mask");
    if (e->no_map) {
        strbuf_printf(out, ": %s\n", e->no_map);
        return;
    }
    strbuf_printf(out,
                  ", batch 0, head 0, tiles of %d queries by %d keys\n"
                  "  . skipped   + with mask code   # whole, no mask code\n",
                  m->tile_m, m->tile_n);
    block_map_print(m, out);
    int64_t tiles = m->rows * m->columns;
    strbuf_printf(out,
                  "  tiles: %" PRId64 " skipped (%.1f %%), %" PRId64
                  " partial (%.1f %%), %" PRId64 " whole (%.1f %%)\n",
                  m->skip, percent(m->skip, tiles), m->partial,
                  percent(m->partial, tiles), m->whole,
                  percent(m->whole, tiles));
    strbuf_printf(
        out,
        "  pairs: %" PRId64 " of %" PRId64
        " attend (%.1f %%), %.1f %% of those in "
        "visited tiles\n",
        m->kept, m->pairs, percent(m->kept, m->pairs),
        m->partial + m->whole
            ? percent(m->kept, (m->partial + m->whole) * m->tile_m * m->tile_n)
            : 0);
}

/* Lines, plan, account, launch, map: from what was written to what runs. */
static void print_text(const struct explain *e, struct strbuf *out) {
    const struct attention *a = e->attention;
    struct source_place place = source_locate(e->session->sources, a->where);
    strbuf_printf(out, "%s (%s:%u): %s, head_dim %d", a->name,
                  e->spec->file->path, place.line, ast_scalar_name(a->dtype),
                  a->head_dim_qk);
    if (a->head_dim_v != a->head_dim_qk)
        strbuf_printf(out, ", %d", a->head_dim_v);
    strbuf_append(out, a->group ? ", group " : ", any group\n");
    if (a->group)
        strbuf_printf(out, "%d\n", a->group);
    print_lines(e, out);
    print_plan(e, out);
    print_account(e, out);
    print_launch(e, out);
    print_map(e, out);
    if (e->session->options->ptx)
        strbuf_printf(out, "\n%s", e->compiled.ptx);
}

/* ---- JSON --------------------------------------------------------------- */

static void json_plan(const struct explain *e, struct json *json) {
    const struct schedule_plan *p = &e->compiled.plan;
    struct strbuf text;
    strbuf_init(&text, e->session->arena);
    schedule_print(p, &text);
    json_key(json, "plan");
    json_open(json, '{');
    json_pair_string(json, "schedule", strbuf_text(&text));
    json_pair_integer(json, "tile_m", p->tile_m);
    json_pair_integer(json, "tile_n", p->tile_n);
    if (p->second_m > 0) {
        json_pair_integer(json, "second_tile_m", p->second_m);
        json_pair_integer(json, "second_tile_n", p->second_n);
    }
    if (p->pack_gqa > 0)
        json_pair_integer(json, "pack_gqa", p->pack_gqa);
    json_pair_integer(json, "stages", p->stages);
    json_pair_integer(json, "warps", p->warps);
    json_pair_bool(json, "q_registers", p->q_registers);
    json_pair_bool(json, "longest_first", p->longest_first);
    json_pair_integer(json, "shared_bytes", p->shared_bytes);
    json_pair_integer(json, "registers", p->registers);
    json_pair_integer(json, "ctas_per_sm", p->ctas_per_sm);
    json_close(json, '}');
}

/* The same figures as print_account, unrounded. */
static void json_account(const struct explain *e, struct json *json) {
    const struct account *a = &e->account;
    json_key(json, "account");
    json_open(json, '{');
    for (int unit = 0; unit < UNIT_COUNT; unit++) {
        json_key(json, account_unit_name((enum account_unit)unit));
        json_open(json, '{');
        json_pair_real(json, account_unit_amount((enum account_unit)unit),
                       a->amount[unit]);
        json_pair_real(json, "per_cycle", a->rate[unit]);
        json_pair_real(json, "cycles", a->cycles[unit]);
        json_close(json, '}');
    }
    json_pair_string(json, "bound", account_unit_name(a->bound));
    json_pair_real(json, "global_bytes", a->global_bytes);
    json_pair_integer(json, "score_operations", a->score_operations);
    json_pair_integer(json, "score_mufu", a->score_mufu);
    json_pair_integer(json, "mask_operations", a->mask_operations);
    json_close(json, '}');
}

/* null with a reason where the mask cannot be evaluated on the host. */
static void json_map(const struct explain *e, struct json *json) {
    const struct block_map *m = &e->map;
    json_key(json, "block_map");
    if (e->no_map) {
        json_string(json, NULL);
        json_pair_string(json, "no_block_map", e->no_map);
        return;
    }
    json_open(json, '{');
    json_pair_integer(json, "rows", m->rows);
    json_pair_integer(json, "columns", m->columns);
    json_pair_integer(json, "skip", m->skip);
    json_pair_integer(json, "partial", m->partial);
    json_pair_integer(json, "whole", m->whole);
    json_pair_integer(json, "kept_pairs", m->kept);
    json_key(json, "map"); /* every tile, a string a row */
    json_open(json, '[');
    for (int64_t row = 0; row < m->rows; row++) {
        char *line = arena_alloc(e->session->arena, (size_t)m->columns + 1);
        for (int64_t column = 0; column < m->columns; column++)
            line[column] = ".+#"[m->classes[row * m->columns + column]];
        json_string(json, line);
    }
    json_close(json, ']');
    json_close(json, '}');
}

static int print_json(const struct explain *e) {
    struct strbuf kernel;
    struct json json;
    strbuf_init(&kernel, e->session->arena);
    kernel_info_print_json(e->compiled.info, &kernel);
    json_init(&json, e->session->arena);
    json_open(&json, '{');
    json_pair_string(&json, "attention", e->attention->name);
    json_pair_string(&json, "target", e->compiled.target);
    json_key(&json, "sizes");
    json_sizes(&json, e->inputs.sizes);
    json_plan(e, &json);
    json_account(e, &json);
    json_key(&json, "kernel");
    json_raw(&json, strbuf_text(&kernel));
    json_map(e, &json);
    if (e->session->options->ptx)
        json_pair_string(&json, "ptx", e->compiled.ptx);
    json_close(&json, '}');
    return json_print(&json, e->session);
}

int command_explain(struct session *session) {
    struct options *options = ARENA_NEW(session->arena, struct options);
    *options = *session->options;
    int64_t *sizes = options->sizes;
    if (!sizes[SIZE_Q_LEN])
        sizes[SIZE_Q_LEN] =
            sizes[SIZE_KV_LEN] ? sizes[SIZE_KV_LEN] : DEFAULT_LENGTH;
    session->options = options;
    struct explain e = {.session = session};
    int status = session_load(session, &e.spec, &e.attention);
    if (status == STATUS_OK)
        status = inputs_create(session, e.attention, false, &e.inputs);
    if (status != STATUS_OK)
        return status;
    if (!compile(&e))
        return STATUS_FAILED;
    e.account = account_of(session->arena, e.attention, &e.compiled.plan);
    make_map(&e);
    if (options->json)
        return print_json(&e);
    struct strbuf text;
    strbuf_init(&text, session->arena);
    print_text(&e, &text);
    return session_write(session, "-", strbuf_text(&text), text.length);
}
