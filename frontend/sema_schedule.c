/* The schedule: known keys, their values and ranges.
 *
 * What depends on a target (shared memory, registers) is checked by the
 * planner, which reports at the places kept in struct schedule.
 */
#include <math.h>
#include <string.h>

#include "frontend/fold.h"
#include "frontend/sema.h"

enum { MMA_M = 16, MMA_N = 8, TILE_MAX = 1024, COUNT_MAX = 64 };

/* One entry being read. */
struct entry {
    struct sema *sema;
    struct env *env;
    const struct syn_entry *syntax;
    struct schedule *out;
};

static const struct syn_value *value(const struct entry *entry, size_t number) {
    return &entry->syntax->values.data[number];
}

static bool no_percent(const struct entry *entry, size_t number) {
    const struct syn_value *v = value(entry, number);
    if (v->percent)
        diag_error(entry->sema->diags, v->where, "'%s' takes no percent value",
                   entry->syntax->key.text);
    return !v->percent;
}

static bool integer(const struct entry *entry, size_t number, int32_t *out) {
    if (!no_percent(entry, number))
        return false;
    const char *what =
        arena_printf(entry->sema->arena, "'%s'", entry->syntax->key.text);
    return sema_const_i32(entry->sema, entry->env, value(entry, number)->expr,
                          what, out);
}

static bool number(const struct entry *entry, size_t position, float *out) {
    struct env constant = {.kind = ENV_CONST,
                           .module = entry->env->module,
                           .symbols = entry->env->symbols};
    const char *what =
        arena_printf(entry->sema->arena, "'%s'", entry->syntax->key.text);
    struct expr *expr =
        sema_expr(entry->sema, &constant, value(entry, position)->expr);
    expr = sema_convert(entry->sema, expr, TYPE_F32, what);
    if (expr)
        *out = fold_float(expr->bits);
    return expr != NULL;
}

/* One of `words`; its position goes to *out. */
static bool word(const struct entry *entry, const char *const *words, int count,
                 int *out) {
    const struct syn_value *v = value(entry, 0);
    if (v->expr->kind == SYN_ERROR)
        return false;
    const char *found =
        v->expr->kind == SYN_NAME && !v->percent ? v->expr->name : "";
    for (int i = 0; i < count; i++)
        if (strcmp(found, words[i]) == 0) {
            *out = i;
            return true;
        }
    struct strbuf all;
    strbuf_init(&all, entry->sema->arena);
    for (int i = 0; i < count; i++)
        strbuf_printf(&all, "%s%s",
                      i == 0           ? ""
                      : i == count - 1 ? " or "
                                       : ", ",
                      words[i]);
    const char *close = diag_closest(found, words, (size_t)count);
    diag_error(entry->sema->diags, v->where, "'%s' must be %s%s%s%s",
               entry->syntax->key.text, strbuf_text(&all),
               close ? "; did you mean '" : "", close ? close : "",
               close ? "'?" : "");
    return false;
}

/* One of the two numbers of `tile`, a multiple of the MMA shape. */
static bool tile_side(const struct entry *entry, size_t position, int multiple,
                      const char *side, int *out) {
    int32_t size;
    if (!integer(entry, position, &size))
        return false;
    if (size >= 1 && size <= TILE_MAX && size % multiple == 0) {
        *out = size;
        return true;
    }
    diag_error(entry->sema->diags, value(entry, position)->where,
               "%s tile of %d; it must be a multiple of %d (the MMA shape) "
               "from %d to %d",
               side, size, multiple, multiple, TILE_MAX);
    return false;
}

static bool read_tile(const struct entry *entry) {
    bool rows = tile_side(entry, 0, MMA_M, "query", &entry->out->tile_m);
    return tile_side(entry, 1, MMA_N, "key", &entry->out->tile_n) && rows;
}

/* Stages or consumers; what fits is for the planner to say. */
static bool count_from_one(const struct entry *entry, int *out) {
    int32_t count;
    if (!integer(entry, 0, &count))
        return false;
    if (count >= 1 && count <= COUNT_MAX) {
        *out = count;
        return true;
    }
    diag_error(entry->sema->diags, value(entry, 0)->where,
               "'%s' must be from 1 to %d, found %d", entry->syntax->key.text,
               COUNT_MAX, count);
    return false;
}

static bool read_stages(const struct entry *entry) {
    return count_from_one(entry, &entry->out->stages);
}

static bool read_consumers(const struct entry *entry) {
    return count_from_one(entry, &entry->out->consumers);
}

static bool read_overlap(const struct entry *entry) {
    static const char *const words[] = {[OVERLAP_NONE] = "none",
                                        [OVERLAP_INTRA] = "intra",
                                        [OVERLAP_PINGPONG] = "pingpong"};
    int found;
    bool good = word(entry, words, 3, &found);
    if (good)
        entry->out->overlap = (enum schedule_overlap)found;
    return good;
}

/* A share is written with %, so that 0.25 and 25 cannot be mixed up. */
static bool read_exp_poly(const struct entry *entry) {
    const struct syn_value *v = value(entry, 0);
    float percent;
    if (!number(entry, 0, &percent))
        return false;
    if (!v->percent) {
        diag_error(entry->sema->diags, v->where,
                   "'exp_poly' is a share; write it as in 25%%");
        return false;
    }
    if (!(percent >= 0.0f && percent <= 100.0f)) {
        diag_error(entry->sema->diags, v->where,
                   "'exp_poly' must be from 0%% to 100%%");
        return false;
    }
    entry->out->exp_poly = percent / 100.0f;
    return true;
}

/* In log2 units; the planner bounds it by the element type. */
static bool read_rescale_threshold(const struct entry *entry) {
    float tau;
    if (!no_percent(entry, 0) || !number(entry, 0, &tau))
        return false;
    if (!(tau >= 0.0f && isfinite(tau))) {
        diag_error(entry->sema->diags, value(entry, 0)->where,
                   "'rescale_threshold' must be finite and not negative");
        return false;
    }
    entry->out->rescale_threshold = tau;
    return true;
}

static bool read_order(const struct entry *entry) {
    static const char *const words[] = {[ORDER_LINEAR] = "linear",
                                        [ORDER_LPT] = "lpt",
                                        [ORDER_DYNAMIC] = "dynamic"};
    int found;
    bool good = word(entry, words, 3, &found);
    if (good)
        entry->out->order = (enum schedule_order)found;
    return good;
}

static const struct key_row {
    size_t values;
    bool (*read)(const struct entry *entry);
} keys[SCHEDULE_KEY_COUNT] = {
    [SCHEDULE_TILE] = {2, read_tile},
    [SCHEDULE_STAGES] = {1, read_stages},
    [SCHEDULE_CONSUMERS] = {1, read_consumers},
    [SCHEDULE_OVERLAP] = {1, read_overlap},
    [SCHEDULE_EXP_POLY] = {1, read_exp_poly},
    [SCHEDULE_RESCALE_THRESHOLD] = {1, read_rescale_threshold},
    [SCHEDULE_ORDER] = {1, read_order},
};

/* Number of the key, SCHEDULE_KEY_COUNT with an error for an unknown one. */
static int find_key(struct sema *sema, struct syn_name name) {
    const char *names[SCHEDULE_KEY_COUNT];
    for (int i = 0; i < SCHEDULE_KEY_COUNT; i++) {
        names[i] = ast_schedule_key_name((enum schedule_key)i);
        if (strcmp(name.text, names[i]) == 0)
            return i;
    }
    const char *close = diag_closest(name.text, names, SCHEDULE_KEY_COUNT);
    const char *shown = diag_name(sema->diags, name.text);
    if (close)
        diag_error(sema->diags, name.where,
                   "unknown schedule key '%s'; did you mean '%s'?", shown,
                   close);
    else
        diag_error(sema->diags, name.where,
                   "unknown schedule key '%s'; expected tile, stages, "
                   "consumers, overlap, "
                   "exp_poly, rescale_threshold or order",
                   shown);
    return SCHEDULE_KEY_COUNT;
}

/* The table says how many values a key takes and who reads them. */
static void read_entry(struct entry *entry, struct source_range *seen) {
    struct sema *sema = entry->sema;
    const struct syn_entry *syntax = entry->syntax;
    int key = find_key(sema, syntax->key);
    if (key == SCHEDULE_KEY_COUNT)
        return;
    if (seen[key].file) {
        diag_error(sema->diags, syntax->key.where, "'%s' is given twice",
                   syntax->key.text);
        diag_note(sema->diags, seen[key], "first given here");
        return;
    }
    seen[key] = syntax->key.where;
    if (syntax->values.count != keys[key].values) {
        diag_error(sema->diags, syntax->where,
                   "'%s' takes %zu value%s, found %zu", syntax->key.text,
                   keys[key].values, keys[key].values == 1 ? "" : "s",
                   syntax->values.count);
        return;
    }
    if (keys[key].read(entry)) {
        entry->out->given[key] = true;
        entry->out->where[key] = syntax->where;
    }
}

void sema_schedule(struct sema *sema, struct env *env,
                   const struct syn_entries *entries,
                   struct schedule *schedule) {
    struct source_range seen[SCHEDULE_KEY_COUNT] = {0};
    for (size_t i = 0; i < entries->list.count; i++) {
        struct entry entry = {sema, env, entries->list.data[i], schedule};
        read_entry(&entry, seen);
    }
    if (schedule->given[SCHEDULE_OVERLAP] &&
        schedule->overlap == OVERLAP_PINGPONG &&
        schedule->given[SCHEDULE_CONSUMERS] && schedule->consumers < 2) {
        diag_error(
            sema->diags, schedule->where[SCHEDULE_OVERLAP],
            "ping-pong takes turns between at least 2 consumers, found %d",
            schedule->consumers);
        diag_note(sema->diags, schedule->where[SCHEDULE_CONSUMERS], "set here");
    }
}
