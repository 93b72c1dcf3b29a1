/* mask-blocks: soundness on random masks and sizes against every pair, and
 * sharpness on the patterns that people use. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/from_spec.h"
#include "ir/verify.h"
#include "mask_case.h"
#include "reference/reference.h"

static uint64_t state = 1;

static uint32_t next_random(void) { /* splitmix64 */
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)(z >> 32);
}

static int below(int n) {
    return (int)(next_random() % (uint32_t)n);
}

/* ---- Random masks -------------------------------------------------------- */

/* Text of a random expression; `exact` says whether the reference must agree:
 * every read in range, every divisor known. */
struct writer {
    struct strbuf *out;
    bool exact;
};

static void write_whole(struct writer *w, int depth);
static void write_bool(struct writer *w, int depth);

static void write(struct writer *w, const char *text) {
    strbuf_append(w->out, text);
}

static void write_call(struct writer *w, const char *name, int depth, int args,
                       void (*arg)(struct writer *, int)) {
    write(w, name);
    write(w, "(");
    for (int i = 0; i < args; i++) {
        if (i > 0)
            write(w, ", ");
        arg(w, depth);
    }
    write(w, ")");
}

static void write_pair(struct writer *w, const char *op, int depth,
                       void (*arg)(struct writer *, int)) {
    write(w, "(");
    arg(w, depth);
    write(w, op);
    arg(w, depth);
    write(w, ")");
}

static void write_leaf(struct writer *w) {
    static const char *const leaves[] = {"q",     "kv",     "q",   "kv", "q",
                                         "kv",    "b",      "h",   "p0", "p1",
                                         "q_len", "kv_len", "h_kv"};
    static const int numbers[] = {0,   1,  2,  3,    4,     5,         7,
                                  8,   16, 17, 31,   32,    48,        64,
                                  100, -1, -3, 1000, 65536, 2147483647};
    if (below(4) == 0)
        strbuf_printf(w->out, "(%d)",
                      numbers[below(sizeof numbers / sizeof *numbers)]);
    else
        write(w, leaves[below(sizeof leaves / sizeof *leaves)]);
}

/* An index: plain, shifted, divided, or anything; now and then out of range. */
static void write_index(struct writer *w, const char *extent, int depth) {
    bool clamped = below(3) != 0;
    if (clamped)
        write(w, "clamp(");
    else
        w->exact = false;
    switch (below(6)) {
    case 0:
        write(w, "q");
        break;
    case 1:
        write(w, "kv");
        break;
    case 2:
        strbuf_printf(w->out, "%s + %d", below(2) ? "q" : "kv", below(40) - 20);
        break;
    case 3:
        strbuf_printf(w->out, "%s / %d", below(2) ? "q" : "kv", 1 << below(7));
        break;
    case 4:
        write(w, "kv + p1");
        break;
    default:
        write_whole(w, depth);
        break;
    }
    if (clamped)
        strbuf_printf(w->out, ", 0, %s - 1)", extent);
}

static void write_read(struct writer *w, const char *tensor, const char *first,
                       const char *extent, int depth) {
    strbuf_printf(w->out, "%s[%s", tensor, first);
    write_index(w, extent, depth);
    write(w, "]");
}

static void write_whole(struct writer *w, int depth) {
    if (depth <= 0) {
        write_leaf(w);
        return;
    }
    switch (below(17)) {
    case 0:
        write_pair(w, " + ", depth - 1, write_whole);
        break;
    case 1:
    case 2:
        write_pair(w, " - ", depth - 1, write_whole);
        break;
    case 3:
        write_pair(w, " * ", depth - 1, write_whole);
        break;
    case 4:
    case 5:
        write(w, "(");
        write_whole(w, depth - 1);
        strbuf_printf(w->out, " %s %d)", below(2) ? "/" : "%",
                      below(5) ? 1 + below(40) : -1 - below(9));
        break;
    case 6:
        w->exact = false; /* the divisor may be zero */
        write_pair(w, below(2) ? " / " : " % ", depth - 1, write_whole);
        break;
    case 7:
        write_call(w, "min", depth - 1, 2, write_whole);
        break;
    case 8:
        write_call(w, "max", depth - 1, 2, write_whole);
        break;
    case 9:
        write_call(w, "clamp", depth - 1, 3, write_whole);
        break;
    case 10:
        write_call(w, "abs", depth - 1, 1, write_whole);
        break;
    case 11:
        write(w, "(");
        write_bool(w, depth - 2);
        write(w, " ? ");
        write_whole(w, depth - 1);
        write(w, " : ");
        write_whole(w, depth - 1);
        write(w, ")");
        break;
    case 12:
        write(w, "(");
        write_whole(w, depth - 1);
        strbuf_printf(w->out, " %s %d)", below(2) ? "<<" : ">>", below(34));
        break;
    case 13: {
        static const char *const bits[] = {" & ", " | ", " ^ "};
        write_pair(w, bits[below(3)], depth - 1, write_whole);
        break;
    }
    case 14:
        write(w, "(~");
        write_whole(w, depth - 1);
        write(w, ")");
        break;
    case 15:
        write_read(w, "doc", "b, ", "max(q_len, kv_len)", depth - 2);
        break;
    default:
        write_read(w, "noise", "", "50", depth - 2);
        break;
    }
}

static void write_real(struct writer *w, int depth) {
    if (depth <= 0) {
        static const char *const leaves[] = {"f32(q)", "f32(kv)", "f0",
                                             "0.5",    "-3.0",    "1e30"};
        write(w, leaves[below(sizeof leaves / sizeof *leaves)]);
        return;
    }
    switch (below(12)) {
    case 0:
        write_pair(w, " + ", depth - 1, write_real);
        break;
    case 1:
        write_pair(w, " - ", depth - 1, write_real);
        break;
    case 2:
        write_pair(w, " * ", depth - 1, write_real);
        break;
    case 3:
        write_pair(w, " / ", depth - 1, write_real);
        break;
    case 4:
        write_call(w, "min", depth - 1, 2, write_real);
        break;
    case 5:
        write_call(w, "max", depth - 1, 2, write_real);
        break;
    case 6:
        write_call(w, "abs", depth - 1, 1, write_real);
        break;
    case 7:
        write_call(w, below(2) ? "floor" : "round", depth - 1, 1, write_real);
        break;
    case 8:
        write(w, "f32(");
        write_whole(w, depth - 1);
        write(w, ")");
        break;
    case 9:
        write_call(w, below(2) ? "exp2" : "sqrt", depth - 1, 1, write_real);
        break;
    case 10:
        write(w, "(");
        write_bool(w, depth - 2);
        write(w, " ? ");
        write_real(w, depth - 1);
        write(w, " : ");
        write_real(w, depth - 1);
        write(w, ")");
        break;
    default:
        write_read(w, "bias", "", "max(q_len, kv_len)", depth - 2);
        break;
    }
}

static void write_comparison(struct writer *w, int depth) {
    static const char *const ops[] = {" <= ", " < ",  " > ",
                                      " >= ", " == ", " != "};
    bool real = below(5) == 0;
    write_pair(w, ops[below(6)], depth - 1, real ? write_real : write_whole);
}

/* Building blocks of real masks, so that random ones are not all noise. */
static void write_common(struct writer *w) {
    static const char *const common[] = {
        "(kv <= q)",
        "(q - kv < p0)",
        "(doc[b, q] == doc[b, kv])",
        "(kv < len[b])",
        "(abs(q - kv) <= p1)",
        "((q - kv) % 4 == 0)",
        "(kv / 16 == q / 16)",
        "(kv < p1)",
        "(kv <= q + (kv_len - q_len))",
        "tab[h, q / 16, kv / 16]",
        "flag[b, kv]",
        "!flag[b, q]",
        "(kv >= start[q])",
        "(q % 8 >= kv % 8)",
        "(f32(q - kv) * 0.25 < 3.0)",
        "(bias[kv] > 0.0)",
        "(kv / p0 == q / p0)",
        "(p2 || kv > q - 7)",
    };
    const char *text = common[below(sizeof common / sizeof *common)];
    w->exact &= strstr(text, "/ p0") == NULL;
    write(w, text);
}

static void write_bool(struct writer *w, int depth) {
    if (depth <= 0) {
        write_common(w);
        return;
    }
    switch (below(10)) {
    case 0:
    case 1:
        write_pair(w, " && ", depth - 1, write_bool);
        break;
    case 2:
        write_pair(w, " || ", depth - 1, write_bool);
        break;
    case 3:
        write(w, "!(");
        write_bool(w, depth - 1);
        write(w, ")");
        break;
    case 4: {
        static const char *const ops[] = {" == ", " != ", " ^ ", " | ", " & "};
        write_pair(w, ops[below(5)], depth - 1, write_bool);
        break;
    }
    case 5:
        write_call(w, "select", depth - 1, 3, write_bool);
        break;
    case 6:
    case 7:
        write_common(w);
        break;
    default:
        write_comparison(w, depth);
        break;
    }
}

/* ---- Random instances ---------------------------------------------------- */

static const char declarations[] =
    "param p0: i32; param p1: i32; param p2: bool; param f0: f32;"
    "tensor doc: i32[batch, max(q_len, kv_len)]; tensor noise: i32[50 + (p1 & "
    "15)];"
    "tensor len: i32[batch]; tensor start: i32[q_len];"
    "tensor flag: bool[batch, max(q_len, kv_len)]; tensor bias: f32[max(q_len, "
    "kv_len)];"
    "tensor tab: bool[heads, (q_len + 15) / 16, (kv_len + 15) / 16];";

static void fill_whole(struct mask_case *c, const char *name, int32_t *data,
                       int64_t count) {
    int64_t kv_len = c->sizes[SIZE_KV_LEN];
    int32_t value = below(3);
    bool sorted = below(3) != 0;
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(name, "doc") == 0) /* documents, in order or not */
            value = sorted ? value + (below(12) == 0) : below(4);
        else if (strcmp(name, "noise") == 0)
            value = below(3) ? below(100) - 20 : (int32_t)next_random();
        else
            value = below((int)kv_len + 3) - 1;
        data[i] = value;
    }
}

static void fill_tensor(struct mask_case *c, const struct tensor *tensor,
                        struct eval_memory *memory) {
    *memory = (struct eval_memory){.type = tensor->type, .rank = tensor->rank};
    int64_t count = mask_case_extents(c, tensor, memory->extents);
    memory->data =
        arena_alloc(c->arena, (size_t)count * scalar_type_size(tensor->type));
    if (tensor->type == SCALAR_I32) {
        fill_whole(c, tensor->name, memory->data, count);
        return;
    }
    int rarity = 1 + below(20);
    for (int64_t i = 0; i < count; i++) {
        if (tensor->type == SCALAR_BOOL)
            ((uint8_t *)memory->data)[i] =
                (uint8_t)(below(rarity) == 0 ? 0 : 1 + below(255));
        else
            ((float *)memory->data)[i] = below(200) == 0 ? NAN
                                         : below(60) == 0
                                             ? INFINITY
                                             : (float)below(100) - 30;
    }
}

static uint32_t random_param(enum value_type type) {
    static const int32_t wholes[] = {0,  1,  5,  16,         30,
                                     64, -1, -7, 2147483647, -2147483647 - 1};
    static const float reals[] = {0, 0.5f, -2, 1e30f, INFINITY, NAN};
    uint32_t bits;
    if (type == TYPE_BOOL)
        return (uint32_t)below(2);
    if (type == TYPE_I32)
        return (uint32_t)wholes[below(10)];
    memcpy(&bits, &reals[below(6)], sizeof bits);
    return bits;
}

static void random_instance(struct mask_case *c) {
    const struct attention *attention = c->attention;
    c->sizes[SIZE_BATCH] = 1 + below(2);
    c->sizes[SIZE_KV_HEADS] = 1 + below(2);
    c->sizes[SIZE_HEADS] = c->sizes[SIZE_KV_HEADS] * (1 + below(2));
    c->sizes[SIZE_Q_LEN] = 1 + below(below(2) ? 40 : 110);
    c->sizes[SIZE_KV_LEN] = below(2) ? c->sizes[SIZE_Q_LEN] : 1 + below(130);
    c->params = ARENA_NEW_ARRAY(c->arena, uint32_t, attention->param_count);
    for (size_t i = 0; i < attention->param_count; i++)
        c->params[i] = random_param(attention->params[i].type);
    c->tensors =
        ARENA_NEW_ARRAY(c->arena, struct eval_memory, attention->tensor_count);
    for (size_t i = 0; i < attention->tensor_count; i++)
        fill_tensor(c, &attention->tensors[i], &c->tensors[i]);
    mask_case_prepare(c);
}

/* The mask function agrees with the reference on every pair of a head. */
static const char *check_reference(struct mask_case *c, int64_t b, int64_t h,
                                   const uint8_t *keep) {
    const struct attention *attention = c->attention;
    struct ref_call call = {.params = c->params};
    struct ref_tensor *tensors =
        ARENA_NEW_ARRAY(c->arena, struct ref_tensor, attention->tensor_count);
    memcpy(call.sizes, c->sizes, sizeof call.sizes);
    for (size_t i = 0; i < attention->tensor_count; i++) {
        int64_t stride = 1;
        tensors[i].data = c->tensors[i].data;
        for (int axis = attention->tensors[i].rank; axis-- > 0;) {
            tensors[i].extents[axis] = c->tensors[i].extents[axis];
            tensors[i].strides[axis] = stride;
            stride *= c->tensors[i].extents[axis];
        }
    }
    call.tensors = tensors;
    const char *extern_name;
    struct ref_program *program =
        ref_compile(c->arena, attention, &extern_name);
    struct ref_eval *eval = ref_eval_create(c->arena, program, &call);
    int64_t kv_len = c->sizes[SIZE_KV_LEN];
    uint8_t *row = ARENA_NEW_ARRAY(c->arena, uint8_t, (size_t)kv_len);
    for (int64_t q = 0; q < c->sizes[SIZE_Q_LEN]; q++) {
        ref_eval_mask_row(eval, b, h, q, 0, kv_len, row);
        for (int64_t k = 0; k < kv_len; k++)
            if (row[k] != keep[q * kv_len + k])
                return arena_printf(c->arena,
                                    "reference differs at q %lld, kv %lld",
                                    (long long)q, (long long)k);
    }
    return NULL;
}

/* ---- Running ------------------------------------------------------------- */

static const char *run_head(struct mask_case *c, bool exact,
                            struct mask_score *score) {
    int64_t b = below((int)c->sizes[SIZE_BATCH]),
            h = below((int)c->sizes[SIZE_HEADS]);
    uint8_t *keep =
        ARENA_NEW_ARRAY(c->arena, uint8_t,
                        (size_t)(c->sizes[SIZE_Q_LEN] * c->sizes[SIZE_KV_LEN]));
    mask_case_truth(c, b, h, keep);
    const char *wrong = exact ? check_reference(c, b, h, keep) : NULL;
    return wrong ? wrong : mask_case_check(c, b, h, keep, score);
}

/* One random mask with a random tile, at times a second one; true when it was a
 * valid spec. */
static bool random_mask(MlirContext context, uint64_t seed,
                        struct mask_score *score) {
    static const int tiles[][2] = {{16, 16}, {32, 16}, {16, 32}, {64, 64},
                                   {64, 16}, {32, 24}, {48, 32}, {16, 40}};
    struct strbuf text;
    state = seed * 0x2545F4914F6CDD1Du + 7;
    strbuf_init(&text, NULL);
    const char *causal = below(3) == 0 ? "mask kv <= q; " : "";
    strbuf_printf(&text, "%s %smask ", declarations, causal);
    struct writer w = {&text, true};
    write_bool(&w, 1 + below(4));
    write(&w, ";");
    struct checked checked = check_items("", strbuf_text(&text));
    bool valid = checked.spec != NULL;
    if (valid) {
        struct mask_case c;
        /* One kernel in three has a variant; the planner's tiles are whole
         * 16s. */
        enum { TILES = sizeof tiles / sizeof *tiles, WHOLE = 5 };
        bool varies = below(3) == 0;
        const int *tile = tiles[below(varies ? WHOLE : TILES)];
        const int *second = varies ? tiles[below(WHOLE)] : NULL;
        MlirModule module =
            ir_from_spec(context, checked.arena, checked.sources,
                         &checked.spec->attentions[0]);
        mask_case_init(&c, checked.arena, &checked.spec->attentions[0], module,
                       tile, second);
        cr_assert(ir_verify(c.module), "seed %llu", (unsigned long long)seed);
        for (int i = 0; i < 2; i++) {
            if (second && i == 1)
                c.tile_m = second[0], c.tile_n = second[1];
            random_instance(&c);
            const char *wrong = run_head(&c, w.exact, score);
            cr_assert(!wrong,
                      "seed %llu: %s\n%s\ntile %d, %d; q_len %lld, kv_len "
                      "%lld; p0 %d p1 %d",
                      (unsigned long long)seed, wrong,
                      strbuf_text(&text) + sizeof declarations - 1, c.tile_m,
                      c.tile_n, (long long)c.sizes[SIZE_Q_LEN],
                      (long long)c.sizes[SIZE_KV_LEN], (int)c.params[0],
                      (int)c.params[1]);
        }
        mlirModuleDestroy(module);
    }
    checked_free(&checked);
    strbuf_destroy(&text);
    return valid;
}

enum { SHARES = 4, MASKS_PER_SHARE = 750 };

static void random_share(int share) {
    MlirContext context = ir_context_create();
    struct mask_score score = {0};
    int valid = 0;
    const char *only = getenv("ATTN_MASK_SEED");
    if (only) {
        random_mask(context, strtoull(only, NULL, 10), &score);
        return;
    }
    for (int i = 0; i < MASKS_PER_SHARE; i++)
        valid += random_mask(context, (uint64_t)(share * MASKS_PER_SHARE + i),
                             &score);
    /* The generator must not degenerate: most texts are specs, all classes
     * occur. */
    cr_expect(valid >= 2000 / SHARES, "only %d of %d masks are specs", valid,
              MASKS_PER_SHARE);
    cr_expect(score.skip > 0 && score.partial > 0 && score.whole > 0);
    cr_expect(score.causal > 0);
    cr_log_info(
        "%d masks: %zu skip, %zu whole, %zu partial of which %zu need not be",
        valid, score.skip, score.whole, score.partial, score.lost);
    mlirContextDestroy(context);
}

Test(mask_blocks, random_masks_0) {
    random_share(0);
}
Test(mask_blocks, random_masks_1) {
    random_share(1);
}
Test(mask_blocks, random_masks_2) {
    random_share(2);
}
Test(mask_blocks, random_masks_3) {
    random_share(3);
}

/* ---- Sharpness on common patterns ---------------------------------------- */

/* Sizes such that tiles cross the ends; documents of 25 keys and more; a table
 * that keeps about a third of its blocks. */
static void pattern_tensor(struct mask_case *c, const struct tensor *tensor,
                           struct eval_memory *memory) {
    *memory = (struct eval_memory){.type = tensor->type, .rank = tensor->rank};
    int64_t count = mask_case_extents(c, tensor, memory->extents);
    memory->data =
        arena_alloc(c->arena, (size_t)count * scalar_type_size(tensor->type));
    int32_t document = 0, start = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i - start >= 25 && below(20) == 0)
            document++, start = (int32_t)i;
        if (tensor->type == SCALAR_BOOL)
            ((uint8_t *)memory->data)[i] = strcmp(tensor->name, "tab") == 0
                                               ? below(3) == 0
                                               : i % 300 < 170;
        else if (strcmp(tensor->name, "doc") == 0)
            ((int32_t *)memory->data)[i] = document;
        else if (strcmp(tensor->name, "offsets") == 0)
            ((int32_t *)memory->data)[i] = (int32_t)i * 31;
        else if (strcmp(tensor->name, "start") == 0)
            ((int32_t *)memory->data)[i] = start;
        else
            ((int32_t *)memory->data)[i] = 100 + below(150);
    }
}

static struct mask_score pattern_score(const char *items, int q_len, int kv_len,
                                       int tile_m, int tile_n) {
    struct checked checked = check_items("", items);
    cr_assert(checked.spec, "%s", messages(&checked));
    const struct attention *attention = &checked.spec->attentions[0];
    MlirContext context = ir_context_create();
    MlirModule module =
        ir_from_spec(context, checked.arena, checked.sources, attention);
    struct mask_case c;
    struct mask_score score = {0};
    mask_case_init(&c, checked.arena, attention, module,
                   (int[]){tile_m, tile_n}, NULL);
    c.sizes[SIZE_BATCH] = 2, c.sizes[SIZE_HEADS] = 4,
    c.sizes[SIZE_KV_HEADS] = 2;
    c.sizes[SIZE_Q_LEN] = q_len, c.sizes[SIZE_KV_LEN] = kv_len;
    c.params = ARENA_NEW_ARRAY(c.arena, uint32_t, attention->param_count);
    for (size_t i = 0; i < attention->param_count; i++)
        c.params[i] = attention->params[i].default_bits;
    c.tensors =
        ARENA_NEW_ARRAY(c.arena, struct eval_memory, attention->tensor_count);
    for (size_t i = 0; i < attention->tensor_count; i++)
        pattern_tensor(&c, &attention->tensors[i], &c.tensors[i]);
    mask_case_prepare(&c);
    const char *wrong = run_head(&c, true, &score);
    cr_assert(!wrong, "%s: %s", items, wrong);
    mlirModuleDestroy(module);
    mlirContextDestroy(context);
    checked_free(&checked);
    return score;
}

/* Patterns on which no tile may be partial without need. */
static const struct pattern {
    const char *items;
    bool dense; /* the kernel may loop over the range */
    bool tight; /* kv_bounds end at a block with a pair on both sides */
} patterns[] = {
    {"mask kv <= q;", true, true},
    {"mask kv <= q + (kv_len - q_len);", true, true},
    {"mask q >= kv;", true, true},
    {"param w: i32 = 70; mask kv <= q && q - kv < w;", true, true},
    {"param w: i32 = 70; mask kv <= q && kv > q - w;", true, true},
    {"param w: i32 = 2147483647; mask kv <= q && q - kv < w;", true, true},
    {"param w: i32 = 40; mask abs(q - kv) <= w;", true, true},
    {"mask q - kv <= 40 && kv - q <= 40;", true, true},
    {"param w: i32 = 40; mask kv <= q && (q - kv < w || kv < 4);", false, true},
    {"param g: i32 = 20; mask q < g || kv < g || abs(q - kv) <= 33;", false,
     true},
    {"param p: i32 = 90; mask kv < p || kv <= q;", true, true},
    {"tensor doc: i32[batch, max(q_len, kv_len)]; mask doc[b, q] == doc[b, "
     "kv];",
     false, false},
    {"tensor doc: i32[batch, max(q_len, kv_len)]; mask kv <= q; mask doc[b, q] "
     "== doc[b, kv];",
     false, false},
    {"tensor start: i32[max(q_len, kv_len)]; mask kv >= start[q] && kv <= q;",
     true, true},
    {"tensor len: i32[batch]; mask kv < len[b];", true, true},
    {"tensor flag: bool[batch, 300]; mask flag[b, kv];", false, false},
    {"mask kv / 128 == q / 128 && kv <= q;", true, true},
    {"mask kv / 64 <= q / 64;", true, true},
    {"mask q / 50 >= kv / 50;", true, true},
    {"param c: i32 = 50; mask q / c >= kv / c;", true, true},
    {"param c: i32 = 100; mask q / c == kv / c && kv <= q;", true, true},
    {"tensor doc: i32[max(q_len, kv_len)]; tensor offsets: i32[100];"
     "mask kv >= offsets[doc[q]];",
     true, true},
    {"tensor tab: bool[heads, (q_len + 15) / 16, (kv_len + 15) / 16];"
     "mask tab[h, q / 16, kv / 16];",
     false, false},
    {"tensor tab: bool[heads, (q_len + 63) / 64, (kv_len + 63) / 64];"
     "mask tab[h, q / 64, kv / 64];",
     false, false},
    {"mask (q - kv) % 4 == 0 && kv <= q;", true, true},
    {"mask (q - kv) % 7 == 0 && abs(q - kv) < 100;", true, false},
    {"mask h % 2 == 0 || kv <= q;", true, true},
    {"mask true;", true, true},
};

Test(mask_blocks, common_patterns_are_exact) {
    static const int tiles[][2] = {{64, 64}, {64, 32}, {32, 64}};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        for (size_t t = 0; t < 3; t++) {
            const struct pattern *p = &patterns[i];
            struct mask_score score =
                pattern_score(p->items, 250, 250, tiles[t][0], tiles[t][1]);
            cr_expect(score.lost == 0,
                      "%zu of %zu partial tiles need not be, tile %d, %d: %s",
                      score.lost, score.partial, tiles[t][0], tiles[t][1],
                      p->items);
            cr_expect(score.dense == p->dense, "dense is %d: %s", score.dense,
                      p->items);
            cr_expect(!p->tight || score.loose == 0,
                      "%zu loose blocks, tile %d, %d: %s", score.loose,
                      tiles[t][0], tiles[t][1], p->items);
        }
}

Test(mask_blocks, lengths_may_differ) {
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        pattern_score(patterns[i].items, 97, 250, 64, 32);
        pattern_score(patterns[i].items, 250, 97, 64, 32);
        pattern_score(patterns[i].items, 1, 130, 128, 64);
        pattern_score(patterns[i].items, 130, 1, 128, 64);
    }
}

/* Bounds at the ends of i32 become "unknown", not something else. */
Test(mask_blocks, extreme_parameters) {
    static const char *const values[] = {
        "2147483647", "-2147483648", "-2147483647", "-1", "0", "1073741824"};
    static const char *const masks[] = {
        "kv + p > q",
        "q - kv < p",
        "kv > q - p",
        "kv * p >= q",
        "abs(kv - p) < 50",
        "(q - p) / 3 < kv",
        "(kv + p) % 16 <= q % 16",
        "kv << 28 > p",
        "-p < kv - q",
        "abs(p) - kv < q",
        "kv / p == q / p",
        "kv - p == q - p",
        "min(kv, p) < q && max(q, p) > kv",
        "!(kv + p <= q) || kv - q == p",
        "(kv ^ p) < q",
        "clamp(kv, p, q) == q",
        "~(kv + p) < q",
    };
    struct arena *arena = arena_create();
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
            const char *items = arena_printf(
                arena, "param p: i32 = %s; mask %s;", values[v], masks[m]);
            if (strcmp(values[v], "0") == 0 && strstr(masks[m], "/ p"))
                continue;
            pattern_score(items, 70, 100, 32, 16);
        }
    arena_destroy(arena);
}
