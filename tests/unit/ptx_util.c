#include "tests/unit/ptx_util.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emulator/emulator.h"
#include "ir/walk.h"
#include "support/vec.h"

__extension__ typedef _Float16 half;

/* ---- Lowering ----------------------------------------------------------- */

/* Names the tensors and parameters that the kernels capture. */
static void describe_arguments(struct ptx_case *c, MlirModule module) {
    static const char *const fixed[] = {"q", "k", "v", "o", "lse"};
    VEC(struct kernel_tensor) tensors = {0};
    VEC(struct kernel_scalar) scalars = {0};
    for (int i = 0; i < KERNEL_TENSOR_CAPTURED; i++)
        vec_push(c->arena, &tensors,
                 (struct kernel_tensor){.name = fixed[i], .used = true});
    size_t count;
    MlirOperation *funcs = ir_collect(c->arena, mlirModuleGetOperation(module),
                                      "func.func", &count);
    for (size_t f = 0; f < count; f++)
        for (size_t i = 0; i < ir_func_arg_count(funcs[f]); i++) {
            const char *kind = ir_func_arg_kind(funcs[f], i);
            if (kind && strncmp(kind, "tensor:", 7) == 0)
                vec_push(c->arena, &tensors,
                         (struct kernel_tensor){
                             .name = arena_strdup(c->arena, kind + 7)});
            if (kind && strncmp(kind, "param:", 6) == 0)
                vec_push(c->arena, &scalars,
                         (struct kernel_scalar){
                             .name = arena_strdup(c->arena, kind + 6)});
        }
    c->info.tensors = tensors.data;
    c->info.tensor_count = tensors.count;
    c->info.scalars = scalars.data;
    c->info.scalar_count = scalars.count;
}

static struct ptx_case lower(const char *ir, size_t length,
                             const char *target) {
    struct ptx_case c = {.arena = arena_create()};
    c.sink = diag_sink_create(c.arena, source_set_create(c.arena));
    MlirContext context = ir_context_create();
    MlirDiagnosticHandlerID handler = ir_diagnostics_attach(context, c.sink);
    MlirModule module = ir_parse(context, ir, length);
    cr_assert_not(mlirModuleIsNull(module), "the test's IR does not parse: %s",
                  ptx_case_errors(&c));
    describe_arguments(&c, module);
    struct ptx_options options = {.target = ptx_target_find(target)};
    struct strbuf text;
    strbuf_init(&text, c.arena);
    if (ptx_emit_module(c.arena, module, &options, &text, &c.info, c.sink))
        c.text = strbuf_take(&text);
    mlirModuleDestroy(module);
    ir_diagnostics_detach(context, handler);
    mlirContextDestroy(context);
    return c;
}

struct ptx_case ptx_case_text(const char *ir, const char *target) {
    return lower(ir, strlen(ir), target);
}

struct ptx_case ptx_case_file(const char *name, const char *target) {
    char path[256];
    snprintf(path, sizeof path, "tests/ptx/%s.mlir", name);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "cannot open %s", path);
    struct strbuf text;
    strbuf_init(&text, NULL);
    cr_assert(strbuf_read(&text, file, 1 << 22));
    fclose(file);
    struct ptx_case c = lower(strbuf_text(&text), text.length, target);
    strbuf_destroy(&text);
    return c;
}

void ptx_case_end(struct ptx_case *c) {
    arena_destroy(c->arena);
}

const char *ptx_case_errors(const struct ptx_case *c) {
    struct strbuf text;
    strbuf_init(&text, c->arena);
    diag_render(c->sink, false, &text);
    return strbuf_take(&text);
}

int ptx_count(const char *text, const char *word) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL;
         at += strlen(word))
        count++;
    return count;
}

/* ---- ptxas -------------------------------------------------------------- */

static const char *find_ptxas(void) {
    static const char *const places[] = {"/usr/local/cuda/bin/ptxas",
                                         "/usr/bin/ptxas"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    return NULL;
}

int ptx_assemble(const char *text, const char *arch) {
    if (!find_ptxas())
        return -1;
    char path[] = "/tmp/attn-ptx-XXXXXX", command[256], line[512];
    int fd = mkstemp(path), worst = 0, spill;
    bool slow = false;
    FILE *file = fdopen(fd, "w");
    fputs(text, file);
    fclose(file);
    snprintf(command, sizeof command, "%s -arch=%s -v %s -o /dev/null 2>&1",
             find_ptxas(), arch, path);
    FILE *out = popen(command, "r");
    while (fgets(line, sizeof line, out)) {
        const char *frame = strstr(line, "stack frame, ");
        if (frame && sscanf(frame, "stack frame, %d", &spill) == 1 &&
            spill > worst)
            worst = spill;
        bool warns = strstr(line, "Potential Performance Loss") != NULL;
        slow = slow || warns;
        if (warns || strstr(line, "error") || strstr(line, "fatal"))
            fputs(line, stderr);
    }
    int status = pclose(out);
    unlink(path);
    return status != 0 ? -2 : slow ? -3 : worst;
}

/* ---- Numbers ------------------------------------------------------------ */

/* The 16-bit pattern nearest to x, and its value. */
static uint16_t to_half(float x, bool bf16, float *out_value) {
    if (bf16) {
        uint32_t bits;
        memcpy(&bits, &x, 4);
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
        memcpy(out_value, &bits, 4);
        return (uint16_t)(bits >> 16);
    }
    half value = (half)x;
    uint16_t pattern;
    memcpy(&pattern, &value, 2);
    *out_value = (float)value;
    return pattern;
}

static double from_half(uint16_t pattern, bool bf16) {
    if (bf16) {
        uint32_t bits = (uint32_t)pattern << 16;
        float value;
        memcpy(&value, &bits, 4);
        return value;
    }
    half value;
    memcpy(&value, &pattern, 2);
    return (double)value;
}

static float random_unit(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state / 2147483648.0f * 1.7f;
}

/* A tensor [batch, heads, length, dim] on the host and on the device. */
struct tensor {
    int heads, length, dim;
    float *values;
    uint64_t address;
};

static float *row_of(const struct tensor *t, int b, int h, int i) {
    return t->values + (((size_t)b * t->heads + h) * t->length + i) * t->dim;
}

static struct tensor tensor_create(const struct ptx_problem *p,
                                   struct emu_memory *memory, int heads,
                                   int length, int dim, const char *name,
                                   uint32_t seed) {
    struct tensor t = {heads, length, dim, NULL, 0};
    size_t count = (size_t)p->batch * heads * length * dim;
    uint16_t *words = malloc(2 * count);
    t.values = malloc(4 * count);
    for (size_t i = 0; i < count; i++)
        words[i] = to_half(random_unit(&seed), p->bf16, &t.values[i]);
    t.address = emu_memory_allocate(memory, 2 * count, name);
    cr_assert(emu_memory_write(memory, t.address, words, 2 * count));
    free(words);
    return t;
}

struct run {
    const struct ptx_problem *p;
    struct emu_memory *memory;
    struct tensor q, k, v, o;
    uint64_t lse, bias, slopes;
};

static uint64_t upload(struct emu_memory *memory, const void *bytes,
                       size_t size, const char *name) {
    uint64_t address = emu_memory_allocate(memory, size, name);
    cr_assert(emu_memory_write(memory, address, bytes, size));
    return address;
}

static uint64_t upload_bias(const struct run *run) {
    size_t count = (size_t)run->p->heads * run->p->q_len * run->p->kv_len;
    half *words = malloc(2 * count);
    for (size_t i = 0; i < count; i++)
        words[i] = (half)run->p->bias[i];
    uint64_t address = upload(run->memory, words, 2 * count, "bias");
    free(words);
    return address;
}

/* Value of one kernel parameter. */
static int64_t param_value(const struct run *run,
                           const struct kernel_info *info,
                           const struct kernel_param *param) {
    const struct ptx_problem *p = run->p;
    const struct tensor *tensors[] = {&run->q, &run->k, &run->v, &run->o};
    const int64_t sizes[] = {p->batch, p->heads, p->kv_heads, p->q_len,
                             p->kv_len};
    if (param->kind == KERNEL_PARAM_SIZE)
        return sizes[param->index];
    const char *name = info->tensors[param->index].name;
    if (param->index < KERNEL_TENSOR_LSE) {
        const struct tensor *t = tensors[param->index];
        const int64_t strides[] = {(int64_t)t->heads * t->length * t->dim,
                                   (int64_t)t->length * t->dim, t->dim};
        return param->kind == KERNEL_PARAM_POINTER ? (int64_t)t->address
                                                   : strides[param->axis];
    }
    int64_t extents[3] = {p->batch, p->heads, p->q_len};
    uint64_t address = run->lse;
    if (strcmp(name, "bias") == 0) {
        address = run->bias;
        memcpy(extents, (int64_t[]){p->heads, p->q_len, p->kv_len},
               sizeof extents);
    } else if (strcmp(name, "slopes") == 0) {
        address = run->slopes;
        memcpy(extents, (int64_t[]){1, 1, p->heads}, sizeof extents);
    }
    int axis = param->axis + (strcmp(name, "slopes") == 0 ? 2 : 0);
    int64_t stride = 1;
    for (int i = axis + 1; i < 3; i++)
        stride *= extents[i];
    return param->kind == KERNEL_PARAM_POINTER  ? (int64_t)address
           : param->kind == KERNEL_PARAM_EXTENT ? extents[axis]
                                                : stride;
}

static void launch(const struct run *run, const struct ptx_case *c) {
    const struct kernel_entry *entry =
        &c->info.entries[c->info.entry_count - 1];
    uint8_t params[1024] = {0};
    size_t size = 0;
    for (size_t i = 0; i < entry->param_count; i++) {
        size_t bytes = kernel_param_size(entry->params[i].kind);
        size = (size + bytes - 1) / bytes * bytes;
        int64_t value = param_value(run, &c->info, &entry->params[i]);
        memcpy(params + size, &value, bytes);
        size += bytes;
    }
    int64_t grid;
    struct size_env env = {.sizes = {run->p->batch, run->p->heads,
                                     run->p->kv_heads, run->p->q_len,
                                     run->p->kv_len}};
    cr_assert(size_expr_eval(&entry->grid_x, &env, &grid));
    struct emu_error error = {""};
    struct emu_source source = {c->text, strlen(c->text), "test.ptx"};
    struct emu_module *module =
        emu_module_create(run->memory, &source, 1, &error);
    cr_assert_not_null(module, "%s", error.text);
    struct emu_launch launch = {.entry = entry->name,
                                .grid = {(uint32_t)grid, 1, 1},
                                .block = {(uint32_t)entry->threads, 1, 1},
                                .dynamic_shared = entry->shared_bytes,
                                .params = params,
                                .param_bytes = size};
    struct emu_options options = emu_options_default();
    options.threads = 1;
    struct emu_result result;
    bool ok = emu_launch(module, &launch, &options, &result, &error);
    cr_assert(ok, "%s", error.text);
    for (size_t i = 0; i < result.report_count && i < 3; i++)
        emu_report_print(&result.reports[i], stderr);
    cr_assert_eq(result.report_count, 0, "%zu reports", result.report_count);
    cr_assert_eq(result.counters.shared_conflicts,
                 0); /* swizzles and pitches */
    emu_result_destroy(&result);
    emu_module_destroy(module);
}

/* O and LSE of one row in fp64. */
static void reference_row(const struct run *run, int b, int h, int q, double *o,
                          double *out_lse) {
    const struct ptx_problem *p = run->p;
    int h_kv = h / (p->heads / p->kv_heads);
    double *score = malloc(sizeof *score * (size_t)p->kv_len), max = -INFINITY,
           sum = 0;
    for (int kv = 0; kv < p->kv_len; kv++) {
        double dot = 0;
        for (int d = 0; d < p->head_dim_qk; d++)
            dot += (double)row_of(&run->q, b, h, q)[d] *
                   row_of(&run->k, b, h_kv, kv)[d];
        score[kv] = p->score(p, b, h, q, kv, dot / sqrt(p->head_dim_qk));
        max = fmax(max, score[kv]);
    }
    for (int d = 0; d < p->head_dim_v; d++)
        o[d] = 0;
    for (int kv = 0; kv < p->kv_len && max > -INFINITY; kv++) {
        double weight = exp(score[kv] - max);
        sum += weight;
        for (int d = 0; d < p->head_dim_v; d++)
            o[d] += weight * row_of(&run->v, b, h_kv, kv)[d];
    }
    for (int d = 0; d < p->head_dim_v && sum > 0; d++)
        o[d] /= sum;
    *out_lse = max + log(sum);
    free(score);
}

static void compare(const struct run *run) {
    const struct ptx_problem *p = run->p;
    size_t rows = (size_t)p->batch * p->heads * p->q_len;
    uint16_t *words = malloc(2 * rows * p->head_dim_v);
    float *lse = malloc(4 * rows);
    double *o = malloc(sizeof *o * (size_t)p->head_dim_v), want_lse, error = 0,
           norm = 0;
    cr_assert_eq(emu_memory_count_uninitialised(run->memory, run->o.address,
                                                2 * rows * p->head_dim_v),
                 0);
    emu_memory_read(run->memory, run->o.address, words,
                    2 * rows * p->head_dim_v);
    emu_memory_read(run->memory, run->lse, lse, 4 * rows);
    for (size_t row = 0; row < rows; row++) {
        int q = (int)(row % p->q_len), h = (int)(row / p->q_len % p->heads);
        reference_row(run, (int)(row / p->q_len / p->heads), h, q, o,
                      &want_lse);
        if (isinf(want_lse))
            cr_assert_eq(lse[row], want_lse, "row %zu: LSE %g", row, lse[row]);
        else
            cr_assert_float_eq(lse[row], want_lse, 1e-3,
                               "row %zu: LSE %g, want %g", row, lse[row],
                               want_lse);
        for (int d = 0; d < p->head_dim_v; d++) {
            double got = from_half(words[row * p->head_dim_v + d], p->bf16);
            error += (got - o[d]) * (got - o[d]);
            norm += o[d] * o[d];
        }
    }
    cr_assert_leq(sqrt(error / norm), p->bf16 ? 5e-3 : 1e-3,
                  "relative error %g", sqrt(error / norm));
    free(words);
    free(lse);
    free(o);
}

void ptx_check_run(const struct ptx_case *c, const struct ptx_problem *p) {
    struct emu_memory *memory = emu_memory_create();
    struct run run = {.p = p, .memory = memory};
    run.q =
        tensor_create(p, memory, p->heads, p->q_len, p->head_dim_qk, "q", 1);
    run.k = tensor_create(p, memory, p->kv_heads, p->kv_len, p->head_dim_qk,
                          "k", 2);
    run.v =
        tensor_create(p, memory, p->kv_heads, p->kv_len, p->head_dim_v, "v", 3);
    run.o = (struct tensor){p->heads, p->q_len, p->head_dim_v, NULL, 0};
    size_t rows = (size_t)p->batch * p->heads * p->q_len;
    run.o.address = emu_memory_allocate(memory, 2 * rows * p->head_dim_v, "o");
    run.lse = emu_memory_allocate(memory, 4 * rows, "lse");
    if (p->bias)
        run.bias = upload_bias(&run);
    if (p->slopes)
        run.slopes = upload(memory, p->slopes, 4 * (size_t)p->heads, "slopes");
    launch(&run, c);
    compare(&run);
    free(run.q.values);
    free(run.k.values);
    free(run.v.values);
    emu_memory_destroy(memory);
}
