/* Control flow of one function: where diverged lanes meet again, and how many
 * registers are live.
 *
 * Reconvergence is at the immediate post-dominator of the branch's block
 * (Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", on the
 * reversed graph).  Blocks that cannot reach the exit have none: their lanes
 * never meet.
 */
#include <string.h>

#include "emulator/exec.h"
#include "emulator/parse.h"

struct block {
    int32_t first, end;
    int32_t *succ;
    int32_t succ_count;
    VEC(int32_t) pred;
    int32_t order; /* postorder number on the reversed graph, -1: not reached */
    int32_t parent; /* immediate post-dominator */
};

struct graph {
    struct emu_module *module;
    struct emu_function *function;
    struct arena *arena;
    struct block *blocks;
    int32_t count;
    int32_t *block_of; /* of each instruction, relative to first */
};

/* Instructions behind which the lanes that executed them do not go on. */
static bool ends_lanes(const struct emu_inst *inst) {
    return inst->exec == exec_exit || inst->exec == exec_ret ||
           inst->exec == exec_trap || inst->exec == exec_end;
}

static bool is_branch(const struct emu_inst *inst) {
    return inst->exec == exec_bra || inst->exec == exec_brx_idx;
}

static struct emu_inst *inst_at(const struct graph *g, int32_t pc) {
    return &g->module->insts.data[pc];
}

static void mark_targets(const struct graph *g, const struct emu_inst *inst,
                         bool *leader) {
    if (inst->exec == exec_bra)
        leader[inst->target - g->function->first] = true;
    for (int32_t i = 0; inst->exec == exec_brx_idx && i < inst->target_count;
         i++)
        leader[inst->targets[i] - g->function->first] = true;
}

/* Blocks start at targets and behind branches; the exit is a block of its
 * own. */
static void find_blocks(struct graph *g) {
    int32_t size = g->function->end - g->function->first;
    bool *leader = ARENA_NEW_ARRAY(g->arena, bool, (size_t)size + 1);
    leader[0] = leader[size - 1] = true;
    for (int32_t i = 0; i < size; i++) {
        const struct emu_inst *inst = inst_at(g, g->function->first + i);
        mark_targets(g, inst, leader);
        if (is_branch(inst) || ends_lanes(inst))
            leader[i + 1] = true;
    }
    for (int32_t i = 0; i < size; i++)
        g->count += leader[i];
    g->blocks = ARENA_NEW_ARRAY(g->arena, struct block, (size_t)g->count);
    g->block_of = ARENA_NEW_ARRAY(g->arena, int32_t, (size_t)size);
    int32_t block = -1;
    for (int32_t i = 0; i < size; i++) {
        if (leader[i])
            g->blocks[++block].first = g->function->first + i;
        g->blocks[block].end = g->function->first + i + 1;
        g->block_of[i] = block;
    }
}

static void add_edge(struct graph *g, int32_t from, int32_t to) {
    g->blocks[from].succ[g->blocks[from].succ_count++] = to;
    vec_push(g->arena, &g->blocks[to].pred, from);
}

/* A guarded branch or exit also falls through. */
static void find_edges(struct graph *g) {
    int32_t base = g->function->first, exit = g->count - 1;
    for (int32_t b = 0; b < g->count; b++) {
        const struct emu_inst *last = inst_at(g, g->blocks[b].end - 1);
        g->blocks[b].succ =
            ARENA_NEW_ARRAY(g->arena, int32_t, (size_t)last->target_count + 3);
        if (last->exec == exec_bra)
            add_edge(g, b, g->block_of[last->target - base]);
        for (int32_t i = 0;
             last->exec == exec_brx_idx && i < last->target_count; i++)
            add_edge(g, b, g->block_of[last->targets[i] - base]);
        if (ends_lanes(last) && b != exit)
            add_edge(g, b, exit);
        bool falls =
            !(is_branch(last) || ends_lanes(last)) || last->guard.reg >= 0;
        if (falls && b != exit)
            add_edge(g, b, b + 1);
    }
}

/* Postorder of the reversed graph from the exit, without recursion. */
static int32_t *reverse_postorder(struct graph *g, int32_t *out_count) {
    int32_t *stack = ARENA_NEW_ARRAY(g->arena, int32_t, (size_t)g->count + 1);
    size_t *next = ARENA_NEW_ARRAY(g->arena, size_t, (size_t)g->count + 1);
    int32_t *order = ARENA_NEW_ARRAY(g->arena, int32_t, (size_t)g->count + 1);
    int32_t depth = 0, count = 0;
    for (int32_t b = 0; b < g->count; b++)
        g->blocks[b].order = g->blocks[b].parent = -1;
    bool *seen = ARENA_NEW_ARRAY(g->arena, bool, (size_t)g->count);
    stack[depth++] = g->count - 1;
    seen[g->count - 1] = true;
    while (depth > 0) {
        int32_t b = stack[depth - 1];
        if (next[b] < g->blocks[b].pred.count) {
            int32_t p = g->blocks[b].pred.data[next[b]++];
            if (!seen[p])
                stack[depth++] = p;
            seen[p] = true;
        } else {
            g->blocks[b].order = count;
            order[count++] = b;
            depth--;
        }
    }
    *out_count = count;
    return order;
}

/* The nearest common ancestor in the tree of post-dominators so far. */
static int32_t meet(const struct graph *g, int32_t a, int32_t b) {
    while (a != b) {
        while (g->blocks[a].order < g->blocks[b].order)
            a = g->blocks[a].parent;
        while (g->blocks[b].order < g->blocks[a].order)
            b = g->blocks[b].parent;
    }
    return a;
}

/* Again and again until no block gets another parent; -1: not reached yet. */
static void find_post_dominators(struct graph *g) {
    int32_t count, exit = g->count - 1;
    int32_t *order = reverse_postorder(g, &count);
    g->blocks[exit].parent = exit;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = count - 2; i >= 0; i--) {
            struct block *block = &g->blocks[order[i]];
            int32_t parent = -1;
            for (int32_t k = 0; k < block->succ_count; k++) {
                int32_t s = block->succ[k];
                if (g->blocks[s].order < 0 || g->blocks[s].parent < 0)
                    continue;
                parent = parent < 0 ? s : meet(g, parent, s);
            }
            changed |= parent != block->parent;
            block->parent = parent;
        }
    }
}

/* A return inside a function is a branch to its one exit. */
static void set_reconvergence(struct graph *g) {
    for (int32_t b = 0; b < g->count; b++) {
        struct emu_inst *last = inst_at(g, g->blocks[b].end - 1);
        int32_t parent = g->blocks[b].order < 0 ? -1 : g->blocks[b].parent;
        if (is_branch(last))
            last->reconverge = parent < 0 ? -1 : g->blocks[parent].first;
        if (last->exec == exec_ret) {
            last->target = g->function->entry ? -1 : g->function->end - 1;
            last->reconverge = g->function->end - 1;
        }
    }
}

void emu_cfg_analyse(struct emu_module *module, struct emu_function *function) {
    struct graph g = {
        .module = module, .function = function, .arena = arena_create()};
    find_blocks(&g);
    find_edges(&g);
    find_post_dominators(&g);
    set_reconvergence(&g);
    for (int32_t pc = function->first; pc < function->end; pc++)
        if (inst_at(&g, pc)->exec == exec_setmaxnreg)
            module->has_setmaxnreg = true;
    arena_destroy(g.arena);
}
