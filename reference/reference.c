/* The attention loop of the reference: groups of query rows, handed out to host
 * threads; every row is computed by one thread in one order, so results do not
 * depend on the number of threads. */
#include "reference/reference.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "reference/code.h"

/* Rows that share one conversion of a block of K and V to double. */
enum { ROWS = 8, MAX_THREADS = 64 };

/* One thread's memory. */
struct scratch {
    union ref_slot *slots;
    double *scores; /* [ROWS][kv_len] */
    uint8_t *kept;  /* [ROWS][kv_len] */
    double *q;      /* [ROWS][head_dim_qk] */
    double *block;  /* [REF_LANES][head_dim], K or V */
    double *o;      /* [ROWS][head_dim_v] */
    double weight_sum[ROWS], row_max[ROWS];
    enum ref_row kind[ROWS];
    int64_t kept_count;
};

/* One run, shared by its threads. */
struct job {
    const struct ref_program *program;
    const struct ref_call *call;
    struct ref_result *result; /* NULL: count the kept pairs only */
    float scale;
    int64_t dim_qk, dim_v, q_len, kv_len;
    int64_t groups; /* of rows in one head */
    int64_t tasks;
    atomic_int_fast64_t next;
};

struct worker {
    struct job *job;
    struct scratch scratch;
};

/* Rows [q, q+rows) of a head. */
struct task {
    int64_t b, h, h_kv, q;
    int rows;
};

/* Keys of a block of which `rest` are left. */
static int64_t at_most_block(int64_t rest) {
    return rest < REF_LANES ? rest : REF_LANES;
}

static bool any_kept(const uint8_t *kept, int64_t count) {
    return memchr(kept, 1, (size_t)count) != NULL;
}

/* Step 1: which pairs of the rows attend. */
static void find_kept(const struct job *job, struct scratch *s,
                      const struct task *task) {
    for (int r = 0; r < task->rows; r++) {
        uint8_t *kept = s->kept + r * job->kv_len;
        ref_begin_row(job->program, job->call, s->slots, task->b, task->h,
                      task->q + r);
        for (int64_t kv = 0; kv < job->kv_len; kv += REF_LANES) {
            int64_t count = at_most_block(job->kv_len - kv);
            const int32_t *mask =
                ref_mask_block(job->program, job->call, s->slots, kv, count);
            for (int64_t l = 0; l < count; l++) {
                kept[kv + l] = mask[l] != 0;
                s->kept_count += mask[l] != 0;
            }
        }
    }
}

/* The loops over a row of K or V go in steps of eight, the divisor of every
 * head dimension: compilers turn a loop of known length into vectors. */
enum { STEP = 8 };

/* Sum of x*y in double, as eight partial sums. */
static double dot(const double *x, const double *y, int64_t count) {
    double sums[STEP] = {0};
    for (int64_t i = 0; i < count; i += STEP)
        for (int j = 0; j < STEP; j++)
            sums[j] += x[i + j] * y[i + j];
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) +
           ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

/* sum += weight * x. */
static void add_scaled(double *restrict sum, double weight,
                       const double *restrict x, int64_t count) {
    for (int64_t i = 0; i < count; i += STEP)
        for (int j = 0; j < STEP; j++)
            sum[i + j] += weight * x[i + j];
}

/* Converts a row; exact. */
static void to_doubles(double *restrict out, const float *restrict in,
                       int64_t count) {
    for (int64_t i = 0; i < count; i += STEP)
        for (int j = 0; j < STEP; j++)
            out[i + j] = in[i + j];
}

/* Rows [kv, kv+count) of K or V that some row keeps, as double. */
static bool fetch_block(const struct job *job, struct scratch *s,
                        const struct task *task,
                        const struct ref_matrix *matrix, int64_t dim,
                        int64_t kv, int64_t count) {
    bool used = false;
    for (int r = 0; r < task->rows; r++)
        used = used || any_kept(s->kept + r * job->kv_len + kv, count);
    const float *head = matrix->data + task->b * matrix->strides[0] +
                        task->h_kv * matrix->strides[1];
    for (int64_t l = 0; used && l < count; l++) {
        const float *row = head + (kv + l) * matrix->strides[2];
        to_doubles(s->block + l * dim, row, dim);
    }
    return used;
}

/* Step 2: scale * (q . k) for the kept pairs. */
static void scaled_dots(const struct job *job, struct scratch *s,
                        const struct task *task) {
    const struct ref_matrix *q = &job->call->q;
    for (int r = 0; r < task->rows; r++) {
        const float *row = q->data + task->b * q->strides[0] +
                           task->h * q->strides[1] +
                           (task->q + r) * q->strides[2];
        to_doubles(s->q + r * job->dim_qk, row, job->dim_qk);
    }
    for (int64_t kv = 0; kv < job->kv_len; kv += REF_LANES) {
        int64_t count = at_most_block(job->kv_len - kv);
        if (!fetch_block(job, s, task, &job->call->k, job->dim_qk, kv, count))
            continue;
        for (int r = 0; r < task->rows; r++) {
            int64_t at = r * job->kv_len + kv;
            for (int64_t l = 0; l < count; l++)
                if (s->kept[at + l])
                    s->scores[at + l] =
                        job->scale * dot(s->q + r * job->dim_qk,
                                         s->block + l * job->dim_qk,
                                         job->dim_qk);
        }
    }
}

/* Step 3: applies the score lines to the kept pairs of one row.  The mask
 * program runs again: the score lines may use its lets. */
static void apply_score(const struct job *job, struct scratch *s,
                        const struct task *task, int r) {
    ref_begin_row(job->program, job->call, s->slots, task->b, task->h,
                  task->q + r);
    for (int64_t kv = 0; kv < job->kv_len; kv += REF_LANES) {
        int64_t count = at_most_block(job->kv_len - kv),
                at = r * job->kv_len + kv;
        if (!any_kept(s->kept + at, count))
            continue;
        ref_mask_block(job->program, job->call, s->slots, kv, count);
        for (int64_t l = 0; l < REF_LANES; l++)
            s->slots[REF_SLOT_S].d[l] =
                l < count && s->kept[at + l] ? s->scores[at + l] : 0;
        ref_execute(&job->program->score, s->slots, job->call);
        const double *final = s->slots[job->program->score_slot].d;
        for (int64_t l = 0; l < count; l++)
            if (s->kept[at + l])
                s->scores[at + l] = final[l];
    }
}

/* Step 4: turns the scores of a row into weights exp(score - max) and
 * classifies it. */
static void weigh_row(const struct job *job, struct scratch *s, int r) {
    const uint8_t *kept = s->kept + r * job->kv_len;
    double *scores = s->scores + r * job->kv_len;
    double row_max = -INFINITY, lowest_counting = INFINITY;
    bool poisoned = false;
    for (int64_t kv = 0; kv < job->kv_len; kv++) {
        if (!kept[kv])
            continue;
        poisoned = poisoned || isnan(scores[kv]) || scores[kv] == INFINITY;
        row_max = fmax(row_max, scores[kv]);
    }
    s->row_max[r] = row_max;
    s->weight_sum[r] = 0;
    s->kind[r] = poisoned               ? REF_ROW_NAN
                 : row_max == -INFINITY ? REF_ROW_EMPTY
                                        : REF_ROW_PLAIN;
    if (s->kind[r] != REF_ROW_PLAIN)
        return;
    for (int64_t kv = 0; kv < job->kv_len; kv++) {
        if (!kept[kv])
            continue;
        if (scores[kv] > row_max - 200)
            lowest_counting = fmin(lowest_counting, scores[kv]);
        scores[kv] = exp(scores[kv] - row_max);
        s->weight_sum[r] += scores[kv];
    }
    if (fmax(fabs(row_max), fabs(lowest_counting)) > 4096)
        s->kind[r] = REF_ROW_EXTREME;
}

static bool row_has_weights(enum ref_row kind) {
    return kind == REF_ROW_PLAIN || kind == REF_ROW_EXTREME;
}

/* Step 5: the weighted sums of V.  A weight of 0 is multiplied like any other:
 * NaN in V of a kept pair reaches O. */
static void weighted_values(const struct job *job, struct scratch *s,
                            const struct task *task) {
    int64_t dim = job->dim_v;
    memset(s->o, 0, (size_t)(ROWS * dim) * sizeof *s->o);
    for (int64_t kv = 0; kv < job->kv_len; kv += REF_LANES) {
        int64_t count = at_most_block(job->kv_len - kv);
        if (!fetch_block(job, s, task, &job->call->v, dim, kv, count))
            continue;
        for (int r = 0; r < task->rows; r++) {
            double *o = s->o + r * dim;
            int64_t at = r * job->kv_len + kv;
            for (int64_t l = 0; l < count && row_has_weights(s->kind[r]); l++) {
                if (!s->kept[at + l])
                    continue;
                add_scaled(o, s->scores[at + l], s->block + l * dim, dim);
            }
        }
    }
}

/* Step 6: the division, and the values of rows that have no weights. */
static void store_row(const struct job *job, struct scratch *s,
                      const struct task *task, int r) {
    int64_t heads = job->call->sizes[SIZE_HEADS];
    int64_t row = (task->b * heads + task->h) * job->q_len + task->q + r;
    double *o = job->result->o + row * job->dim_v;
    double fixed = s->kind[r] == REF_ROW_NAN ? NAN : 0;
    double sum = s->weight_sum[r];
    for (int64_t d = 0; d < job->dim_v; d++)
        o[d] = row_has_weights(s->kind[r]) ? s->o[r * job->dim_v + d] / sum
                                           : fixed;
    double lse = s->kind[r] == REF_ROW_NAN ? NAN : -INFINITY;
    job->result->lse[row] =
        row_has_weights(s->kind[r]) ? s->row_max[r] + log(sum) : lse;
    if (job->result->row)
        job->result->row[row] = (uint8_t)s->kind[r];
}

static void run_task(const struct job *job, struct scratch *s, int64_t number) {
    const int64_t *sizes = job->call->sizes;
    struct task task = {.q = number % job->groups * ROWS};
    task.h = number / job->groups % sizes[SIZE_HEADS];
    task.b = number / job->groups / sizes[SIZE_HEADS];
    task.h_kv = task.h / (sizes[SIZE_HEADS] / sizes[SIZE_KV_HEADS]);
    task.rows = (int)(job->q_len - task.q < ROWS ? job->q_len - task.q : ROWS);
    find_kept(job, s, &task);
    if (!job->result)
        return;
    scaled_dots(job, s, &task);
    for (int r = 0; r < task.rows; r++) {
        if (job->program->has_score)
            apply_score(job, s, &task, r);
        weigh_row(job, s, r);
    }
    weighted_values(job, s, &task);
    for (int r = 0; r < task.rows; r++)
        store_row(job, s, &task, r);
}

/* A thread takes tasks until there are none left. */
static void *work(void *argument) {
    struct worker *worker = argument;
    struct job *job = worker->job;
    for (;;) {
        int64_t number = atomic_fetch_add(&job->next, 1);
        if (number >= job->tasks)
            return NULL;
        run_task(job, &worker->scratch, number);
    }
}

static void scratch_init(struct arena *arena, struct scratch *s,
                         const struct job *job) {
    size_t keys = (size_t)job->kv_len;
    int64_t dim = job->dim_qk > job->dim_v ? job->dim_qk : job->dim_v;
    s->slots = ref_slots_create(arena, job->program, job->call);
    s->kept = ARENA_NEW_ARRAY(arena, uint8_t, ROWS * keys);
    if (!job->result)
        return;
    s->scores = ARENA_NEW_ARRAY(arena, double, ROWS *keys);
    s->q = ARENA_NEW_ARRAY(arena, double, (size_t)(ROWS * job->dim_qk));
    s->o = ARENA_NEW_ARRAY(arena, double, (size_t)(ROWS * job->dim_v));
    s->block = ARENA_NEW_ARRAY(arena, double, (size_t)(REF_LANES * dim));
}

/* Threads for a run, never more than tasks. */
static int thread_count(int wanted, int64_t tasks) {
    long cores = wanted > 0 ? wanted : sysconf(_SC_NPROCESSORS_ONLN);
    cores = cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : cores;
    return (int)(tasks < cores ? tasks : cores);
}

/* Runs a job on threads; returns the kept pairs that they counted.  Threads
 * that cannot be started leave their share to the others. */
static int64_t run_job(struct arena *arena, struct job *job, int threads) {
    int count = thread_count(threads, job->tasks);
    if (count == 0)
        return 0;
    struct worker *workers =
        ARENA_NEW_ARRAY(arena, struct worker, (size_t)count);
    pthread_t handles[MAX_THREADS];
    bool started[MAX_THREADS] = {false};
    for (int i = 0; i < count; i++) {
        workers[i].job = job;
        scratch_init(arena, &workers[i].scratch, job);
    }
    for (int i = 1; i < count; i++)
        started[i] = pthread_create(&handles[i], NULL, work, &workers[i]) == 0;
    work(&workers[0]);
    int64_t kept = workers[0].scratch.kept_count;
    for (int i = 1; i < count; i++) {
        if (started[i])
            pthread_join(handles[i], NULL);
        kept += workers[i].scratch.kept_count;
    }
    return kept;
}

/* Scale of the scores in f32: the spec's, or 1/sqrt(head_dim of q). */
static float score_scale(const struct ref_program *program,
                         const struct ref_call *call) {
    if (!program->has_scale)
        return (float)(1.0 / sqrt((double)program->attention->head_dim_qk));
    struct arena *arena = arena_create();
    union ref_slot *slots = ref_slots_create(arena, program, call);
    ref_execute(&program->scale, slots, call);
    float scale = slots[program->scale_slot].f[0];
    arena_destroy(arena);
    return scale;
}

static void job_init(struct job *job, const struct ref_program *program,
                     const struct ref_call *call, struct ref_result *result) {
    const int64_t *sizes = call->sizes;
    assert(sizes[SIZE_KV_HEADS] > 0 &&
           sizes[SIZE_HEADS] % sizes[SIZE_KV_HEADS] == 0);
    job->program = program;
    job->call = call;
    job->result = result;
    job->scale = result ? score_scale(program, call) : 0;
    job->dim_qk = program->attention->head_dim_qk;
    job->dim_v = program->attention->head_dim_v;
    job->q_len = sizes[SIZE_Q_LEN];
    job->kv_len = sizes[SIZE_KV_LEN];
    job->groups = (job->q_len + ROWS - 1) / ROWS;
    job->tasks = sizes[SIZE_BATCH] * sizes[SIZE_HEADS] * job->groups;
    atomic_init(&job->next, 0);
}

void ref_run(struct arena *arena, const struct ref_program *program,
             const struct ref_call *call, int threads,
             struct ref_result *result) {
    struct job job;
    job_init(&job, program, call, result);
    run_job(arena, &job, threads);
}

int64_t ref_count_kept(struct arena *arena, const struct ref_program *program,
                       const struct ref_call *call, int threads) {
    const int64_t *sizes = call->sizes;
    if (!program->has_mask)
        return sizes[SIZE_BATCH] * sizes[SIZE_HEADS] * sizes[SIZE_Q_LEN] *
               sizes[SIZE_KV_LEN];
    struct job job;
    job_init(&job, program, call, NULL);
    return run_job(arena, &job, threads);
}

/* ---- Single pairs ------------------------------------------------------- */

struct ref_eval {
    const struct ref_program *program;
    const struct ref_call *call;
    union ref_slot *slots;
    int64_t b, h, q; /* the row that the slots are set up for; b -1: none */
};

struct ref_eval *ref_eval_create(struct arena *arena,
                                 const struct ref_program *program,
                                 const struct ref_call *call) {
    struct ref_eval *eval = ARENA_NEW(arena, struct ref_eval);
    *eval = (struct ref_eval){
        program, call, ref_slots_create(arena, program, call), -1, 0, 0};
    return eval;
}

/* Sets the slots up for a row unless they are. */
static void eval_row(struct ref_eval *eval, int64_t b, int64_t h, int64_t q) {
    if (eval->b == b && eval->h == h && eval->q == q)
        return;
    ref_begin_row(eval->program, eval->call, eval->slots, b, h, q);
    eval->b = b;
    eval->h = h;
    eval->q = q;
}

void ref_eval_mask_row(struct ref_eval *eval, int64_t b, int64_t h, int64_t q,
                       int64_t kv, int64_t count, uint8_t *out) {
    eval_row(eval, b, h, q);
    for (int64_t i = 0; i < count; i += REF_LANES) {
        int64_t lanes = at_most_block(count - i);
        const int32_t *mask = ref_mask_block(eval->program, eval->call,
                                             eval->slots, kv + i, lanes);
        for (int64_t l = 0; l < lanes; l++)
            out[i + l] = mask[l] != 0;
    }
}

double ref_eval_score(struct ref_eval *eval, int64_t b, int64_t h, int64_t q,
                      int64_t kv, double s) {
    eval_row(eval, b, h, q);
    ref_mask_block(eval->program, eval->call, eval->slots, kv, 1);
    for (int l = 0; l < REF_LANES; l++)
        eval->slots[REF_SLOT_S].d[l] = s;
    ref_execute(&eval->program->score, eval->slots, eval->call);
    return eval->slots[eval->program->score_slot].d[0];
}
