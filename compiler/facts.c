/* Kernel facts from the checked spec: see facts.h. */
#include "compiler/facts.h"

#include "support/vec.h"

/* q, k, v, o, lse in kernel_info's order. */
static void fixed_tensors(struct arena *arena,
                          const struct attention *attention,
                          struct kernel_tensor *tensors) {
    static const struct {
        const char *name;
        enum size_name heads, length;
        bool is_lse, has_v_dim;
    } rows[KERNEL_TENSOR_CAPTURED] = {
        [KERNEL_TENSOR_Q] = {"q", SIZE_HEADS, SIZE_Q_LEN, false, false},
        [KERNEL_TENSOR_K] = {"k", SIZE_KV_HEADS, SIZE_KV_LEN, false, false},
        [KERNEL_TENSOR_V] = {"v", SIZE_KV_HEADS, SIZE_KV_LEN, false, true},
        [KERNEL_TENSOR_O] = {"o", SIZE_HEADS, SIZE_Q_LEN, false, true},
        [KERNEL_TENSOR_LSE] = {"lse", SIZE_HEADS, SIZE_Q_LEN, true, false},
    };
    for (int i = 0; i < KERNEL_TENSOR_CAPTURED; i++) {
        int dim =
            rows[i].has_v_dim ? attention->head_dim_v : attention->head_dim_qk;
        tensors[i] = (struct kernel_tensor){
            .name = rows[i].name,
            .type = rows[i].is_lse ? SCALAR_F32 : attention->dtype,
            .rank = rows[i].is_lse ? 3 : 4,
            .extents = {size_expr_size(arena, SIZE_BATCH),
                        size_expr_size(arena, rows[i].heads),
                        size_expr_size(arena, rows[i].length),
                        rows[i].is_lse ? (struct size_expr){0}
                                       : size_expr_constant(arena, dim)},
            .used = true,
        };
    }
}

static struct kernel_tensor captured_tensor(struct arena *arena,
                                            const struct tensor *tensor) {
    struct kernel_tensor out = {.name = tensor->name,
                                .type = tensor->type,
                                .rank = tensor->rank,
                                .used = tensor->used};
    for (int axis = 0; axis < tensor->rank; axis++)
        if (!ast_size_expr(arena, tensor->extents[axis], &out.extents[axis]))
            out.extents[axis] =
                (struct size_expr){0}; /* refused by the front end */
    return out;
}

struct kernel_info *facts_of_attention(struct arena *arena,
                                       const struct attention *attention) {
    struct kernel_info *info = ARENA_NEW(arena, struct kernel_info);
    info->name = attention->name;
    info->dtype = attention->dtype;
    info->head_dim_qk = attention->head_dim_qk;
    info->head_dim_v = attention->head_dim_v;
    info->group = attention->group;
    info->tensor_count = KERNEL_TENSOR_CAPTURED + attention->tensor_count;
    info->tensors =
        ARENA_NEW_ARRAY(arena, struct kernel_tensor, info->tensor_count);
    fixed_tensors(arena, attention, info->tensors);
    for (size_t i = 0; i < attention->tensor_count; i++)
        info->tensors[KERNEL_TENSOR_CAPTURED + i] =
            captured_tensor(arena, &attention->tensors[i]);
    info->scalar_count = attention->param_count;
    info->scalars =
        ARENA_NEW_ARRAY(arena, struct kernel_scalar, info->scalar_count);
    for (size_t i = 0; i < attention->param_count; i++) {
        const struct param *param = &attention->params[i];
        info->scalars[i] = (struct kernel_scalar){
            param->name, ast_scalar_type(param->type), param->has_default,
            param->default_bits, param->used};
    }
    return info;
}

/* ---- Reads ------------------------------------------------------------- */

/* x / 128: the same for a block of positions. */
static bool is_coarse(const struct expr *index) {
    enum { BLOCK = 16 };
    while (index->kind == EXPR_LET)
        index = index->let->value;
    return index->kind == EXPR_BINARY && index->binary == BINARY_DIV &&
           index->args[1]->kind == EXPR_CONST &&
           (int32_t)index->args[1]->bits >= BLOCK;
}

/* Which positions the indices of a read depend on, blocks of them apart. */
struct indices {
    bool row, column, row_block, key_block;
};

static struct indices indices_of(const struct expr *read) {
    struct indices on = {false, false, false, false};
    for (size_t i = 0; i < read->arg_count; i++) {
        const struct expr *index = read->args[i];
        bool row = ast_uses_row(index), column = ast_uses_column(index);
        bool coarse = is_coarse(index);
        on.row = on.row || (!coarse && row);
        on.column = on.column || (!coarse && column);
        on.row_block = on.row_block || (coarse && row);
        on.key_block = on.key_block || (coarse && column);
    }
    return on;
}

/* What find_read looks for among the reads. */
struct read_search {
    bool (*test)(struct indices on);
    bool found;
};

static void visit_read(void *data, const struct expr *node) {
    struct read_search *search = data;
    if (node->kind == EXPR_READ)
        search->found = search->found || search->test(indices_of(node));
}

static bool is_element_read(struct indices on) {
    return on.row && on.column;
}

static bool is_word_read(struct indices on) {
    return on.row && on.key_block;
}

static bool is_position_read(struct indices on) {
    return on.row || on.column;
}

static bool is_key_read(struct indices on) {
    return on.column;
}

static bool is_row_block_read(struct indices on) {
    return on.row_block;
}

/* An integer division by what is known at the launch. */
static bool is_division(const struct expr *node) {
    return node->kind == EXPR_BINARY && node->type == TYPE_I32 &&
           (node->binary == BINARY_DIV || node->binary == BINARY_MOD) &&
           node->args[1]->kind != EXPR_CONST;
}

static void visit_division(void *data, const struct expr *node) {
    bool *found = data;
    *found = *found || (is_division(node) &&
                        (ast_uses_row(node) || ast_uses_column(node)));
}

static void visit_quotients(void *data, const struct expr *node) {
    int *count = data;
    *count += is_division(node) && ast_uses_column(node);
}

static void visit_tanh(void *data, const struct expr *node) {
    bool *found = data;
    *found =
        *found || (node->kind == EXPR_BUILTIN && node->builtin == BUILTIN_TANH);
}

static void visit_scores(void *data, const struct expr *node) {
    int *count = data;
    *count += node->kind == EXPR_SCORE ||
              (node->kind == EXPR_LET && (node->let->value->deps & DEP_S) != 0);
}

static void visit_let(void *data, const struct expr *node) {
    bool *used = data;
    if (node->kind == EXPR_LET)
        used[node->let->number] = true;
}

enum lines { SCORES = 1, MASKS = 2 };

/* Visits lines of the attention and the lets that they use. */
static void visit_lines(struct arena *arena, const struct attention *attention,
                        int lines,
                        void (*visit)(void *data, const struct expr *node),
                        void *data) {
    bool *used = ARENA_NEW_ARRAY(arena, bool, attention->item_count);
    /* A let stands before its uses. */
    for (size_t i = attention->item_count; i-- > 0;) {
        const struct item *item = &attention->items[i];
        bool counts = item->kind == ITEM_MASK    ? lines & MASKS
                      : item->kind == ITEM_SCORE ? lines & SCORES
                                                 : used[item->let->number];
        if (!counts)
            continue;
        ast_walk(item->value, visit, data);
        ast_walk(item->value, visit_let, used);
    }
}

static bool find(struct arena *arena, const struct attention *attention,
                 int lines,
                 void (*visit)(void *data, const struct expr *node)) {
    bool found = false;
    visit_lines(arena, attention, lines, visit, &found);
    return found;
}

static bool find_read(struct arena *arena, const struct attention *attention,
                      int lines, bool (*test)(struct indices on)) {
    struct read_search search = {test, false};
    visit_lines(arena, attention, lines, visit_read, &search);
    return search.found;
}

bool facts_has_division(struct arena *arena,
                        const struct attention *attention) {
    return find(arena, attention, SCORES | MASKS, visit_division);
}

int facts_mask_key_quotients(struct arena *arena,
                             const struct attention *attention) {
    int count = 0;
    visit_lines(arena, attention, MASKS, visit_quotients, &count);
    return count;
}

bool facts_score_reads_keys(struct arena *arena,
                            const struct attention *attention) {
    return find_read(arena, attention, SCORES, is_key_read);
}

bool facts_keeps_scores(struct arena *arena,
                        const struct attention *attention) {
    int most = 0;
    for (size_t i = 0; i < attention->item_count; i++) {
        int count = 0;
        if (attention->items[i].kind == ITEM_SCORE)
            ast_walk(attention->items[i].value, visit_scores, &count);
        most = count > most ? count : most;
    }
    return most > 1 && find(arena, attention, SCORES, visit_tanh);
}

bool facts_has_element_reads(struct arena *arena,
                             const struct attention *attention) {
    return find_read(arena, attention, SCORES | MASKS, is_element_read);
}

bool facts_reads_words(struct arena *arena, const struct attention *attention) {
    return find_read(arena, attention, MASKS, is_word_read);
}

bool facts_mask_reads_positions(struct arena *arena,
                                const struct attention *attention) {
    return find_read(arena, attention, MASKS, is_position_read);
}

bool facts_mask_reads_row_blocks(struct arena *arena,
                                 const struct attention *attention) {
    return find_read(arena, attention, MASKS, is_row_block_read);
}

static void visit_sparse(void *data, const struct expr *node) {
    bool *found = data;
    bool periodic = node->kind == EXPR_BINARY &&
                    (node->binary == BINARY_MOD || node->binary == BINARY_DIV ||
                     node->binary == BINARY_OR_ELSE);
    *found = *found || periodic || node->kind == EXPR_READ;
}

bool facts_has_sparse_mask(struct arena *arena,
                           const struct attention *attention) {
    return find(arena, attention, MASKS, visit_sparse);
}

bool facts_mask_reads_head(const struct attention *attention) {
    for (size_t i = 0; i < attention->item_count; i++)
        if (attention->items[i].kind == ITEM_MASK &&
            (attention->items[i].value->deps & DEP_H) != 0)
            return true;
    return false;
}

/* Coefficients of q and kv in a sum, sign * e; what is no sum counts as
 * constant.  `budget` bounds the nodes that are looked at: a chain of lets
 * could double them at each step. */
struct slopes {
    int q, kv, budget;
};

static void add_slopes(struct slopes *s, const struct expr *e, int sign) {
    if (s->budget-- <= 0)
        return;
    if (e->kind == EXPR_INDEX) {
        s->q += e->index == INDEX_Q ? sign : 0;
        s->kv += e->index == INDEX_KV ? sign : 0;
    } else if (e->kind == EXPR_LET) {
        add_slopes(s, e->let->value, sign);
    } else if (e->kind == EXPR_UNARY && e->unary == UNARY_NEG) {
        add_slopes(s, e->args[0], -sign);
    } else if (e->kind == EXPR_BINARY &&
               (e->binary == BINARY_ADD || e->binary == BINARY_SUB)) {
        add_slopes(s, e->args[0], sign);
        add_slopes(s, e->args[1], e->binary == BINARY_ADD ? sign : -sign);
    }
}

enum { SLOPE_BUDGET = 1000 };

static bool is_distance(const struct expr *e) {
    struct slopes s = {.budget = SLOPE_BUDGET};
    if (e->kind != EXPR_BUILTIN || e->builtin != BUILTIN_ABS)
        return false;
    add_slopes(&s, e->args[0], 1);
    return (s.q < 0 && s.kv > 0) || (s.q > 0 && s.kv < 0);
}

/* kv - q > c in any spelling, or abs(q - kv) < c. */
static void visit_window(void *data, const struct expr *node) {
    bool *found = data;
    if (node->kind != EXPR_BINARY)
        return;
    bool less = node->binary == BINARY_LT || node->binary == BINARY_LE;
    if (!less && node->binary != BINARY_GT && node->binary != BINARY_GE)
        return;
    struct slopes s = {.budget = SLOPE_BUDGET};
    add_slopes(&s, node->args[less], 1);
    add_slopes(&s, node->args[!less], -1);
    *found = *found || (s.kv > 0 && s.q < 0) || is_distance(node->args[!less]);
}

bool facts_has_window(struct arena *arena, const struct attention *attention) {
    return find(arena, attention, MASKS, visit_window);
}

bool facts_has_item(const struct attention *attention, enum item_kind kind) {
    for (size_t i = 0; i < attention->item_count; i++)
        if (attention->items[i].kind == kind)
            return true;
    return false;
}

/* ---- Extern files ------------------------------------------------------ */

struct file_list {
    struct arena *arena;
    VEC(const struct source_file *) files;
};

static void visit_call(void *data, const struct expr *node) {
    struct file_list *list = data;
    if (node->kind != EXPR_CALL || !node->fn->is_extern)
        return;
    for (size_t i = 0; i < list->files.count; i++)
        if (list->files.data[i] == node->fn->file)
            return;
    vec_push(list->arena, &list->files, node->fn->file);
}

const struct source_file *const *
facts_extern_files(struct arena *arena, const struct attention *attention,
                   size_t *out_count) {
    struct file_list list = {.arena = arena};
    if (attention->calls_extern) {
        for (size_t i = 0; i < attention->item_count; i++)
            ast_walk(attention->items[i].value, visit_call, &list);
        if (attention->scale)
            ast_walk(attention->scale, visit_call, &list);
    }
    *out_count = list.files.count;
    return list.files.data;
}
