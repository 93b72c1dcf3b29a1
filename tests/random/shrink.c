/* Smaller variants of a random spec, most drastic first: lines dropped, sizes and
 * shapes reduced, then expressions replaced by a part of themselves or by a
 * constant of their type. */
#include <string.h>

#include "tests/random/gen.h"

static struct gen_spec *copy_spec(struct arena *arena, const struct gen_spec *spec) {
    struct gen_spec *copy = ARENA_NEW(arena, struct gen_spec);
    *copy = *spec;
    return copy;
}

/* ---- Lines --------------------------------------------------------------- */

static struct gen_spec *drop_item(struct arena *arena, const struct gen_spec *spec, int item) {
    struct gen_spec *copy = copy_spec(arena, spec);
    memmove(&copy->items[item], &copy->items[item + 1],
            (size_t)(spec->item_count - item - 1) * sizeof *copy->items);
    copy->item_count--;
    return copy;
}

static struct gen_spec *drop_fn(struct arena *arena, const struct gen_spec *spec, int fn) {
    struct gen_spec *copy = copy_spec(arena, spec);
    memmove(&copy->fns[fn], &copy->fns[fn + 1],
            (size_t)(spec->fn_count - fn - 1) * sizeof *copy->fns);
    copy->fn_count--;
    return copy;
}

/* ---- Shapes -------------------------------------------------------------- */

enum { SHAPE_STEPS = 15 };

/* Step number `step`; may change nothing. */
static void shrink_shape(struct gen_spec *spec, size_t step) {
    int64_t *n = spec->sizes;
    switch (step) {
    case 0: spec->schedule = NULL; break;
    case 1: n[SIZE_BATCH] = 1; break;
    case 2:
        n[SIZE_HEADS] /= n[SIZE_KV_HEADS];
        n[SIZE_KV_HEADS] = 1;
        break;
    case 3:
        spec->group = 0;
        n[SIZE_HEADS] = n[SIZE_KV_HEADS];
        break;
    case 4: n[SIZE_Q_LEN] = 1; break;
    case 5: n[SIZE_Q_LEN] = (n[SIZE_Q_LEN] + 1) / 2; break;
    case 6: n[SIZE_Q_LEN] -= n[SIZE_Q_LEN] > 1; break;
    case 7: n[SIZE_KV_LEN] = 1; break;
    case 8: n[SIZE_KV_LEN] = (n[SIZE_KV_LEN] + 1) / 2; break;
    case 9: n[SIZE_KV_LEN] -= n[SIZE_KV_LEN] > 1; break;
    case 10: spec->head_dim_v = spec->head_dim_qk; break;
    case 11: spec->head_dim_qk = spec->head_dim_v = 16; break;
    case 12: spec->head_dim_qk = spec->head_dim_v = 64; break;
    case 13: spec->bshd = false; break;
    default: spec->dtype = "bf16"; break;
    }
}

/* ---- Expressions --------------------------------------------------------- */

/* Walks an expression counting replacements; performs number `target`. */
struct rewrite {
    struct arena *arena;
    size_t target, next;
    bool done;
};

static const char *constant_of(enum value_type type) {
    switch (type) {
    case TYPE_BOOL: return "true";
    case TYPE_I32: return "1";
    case TYPE_F32: return "0.5";
    }
    return "";
}

/* Replaces the node itself, if the counter says so: by an argument of its type, or by
 * a constant. */
static const struct gen_node *replace_node(struct rewrite *rewrite, const struct gen_node *node) {
    if (node->pinned || !node->arg_count)
        return NULL;
    for (int i = 0; i < node->arg_count; i++) {
        if (node->args[i]->type != node->type)
            continue;
        if (rewrite->next++ == rewrite->target)
            return node->args[i];
    }
    if (rewrite->next++ != rewrite->target)
        return NULL;
    struct gen_node *constant = ARENA_NEW(rewrite->arena, struct gen_node);
    constant->form = constant_of(node->type);
    constant->type = node->type;
    return constant;
}

static const struct gen_node *rewrite_node(struct rewrite *rewrite, const struct gen_node *node) {
    const struct gen_node *replaced = replace_node(rewrite, node);
    if (replaced) {
        rewrite->done = true;
        return replaced;
    }
    for (int i = 0; i < node->arg_count; i++) {
        const struct gen_node *arg = rewrite_node(rewrite, node->args[i]);
        if (!rewrite->done)
            continue;
        struct gen_node *copy = ARENA_NEW(rewrite->arena, struct gen_node);
        *copy = *node;
        copy->args[i] = arg;
        return copy;
    }
    return node;
}

static struct gen_spec *simplify(struct arena *arena, const struct gen_spec *spec, size_t target) {
    struct rewrite rewrite = {.arena = arena, .target = target};
    for (int i = 0; i < spec->item_count; i++) {
        if (!spec->items[i].value)
            continue;
        const struct gen_node *value = rewrite_node(&rewrite, spec->items[i].value);
        if (rewrite.done) {
            struct gen_spec *copy = copy_spec(arena, spec);
            copy->items[i].value = value;
            return copy;
        }
    }
    return NULL;
}

/* ---- Entry --------------------------------------------------------------- */

struct gen_spec *gen_spec_shrink(struct arena *arena, const struct gen_spec *spec, size_t index) {
    size_t items = (size_t)spec->item_count, fns = (size_t)spec->fn_count;
    if (index < items) {
        /* From the last: a line before may be named by one behind. */
        int item = (int)(items - 1 - index);
        return spec->items[item].kept ? copy_spec(arena, spec) : drop_item(arena, spec, item);
    }
    index -= items;
    if (index < fns)
        return drop_fn(arena, spec, (int)index);
    index -= fns;
    if (index < SHAPE_STEPS) {
        struct gen_spec *copy = copy_spec(arena, spec);
        shrink_shape(copy, index);
        return copy;
    }
    return simplify(arena, spec, index - SHAPE_STEPS);
}
