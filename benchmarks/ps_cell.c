/* SPDX-License-Identifier: Apache-2.0 */
#include "ps_cell.h"

#include <stdlib.h>
#include <string.h>

#include "flags.h"
#include "limits.h"
#include "limits_pair.h"
#include "limits_zmq.h"
#include "stats.h"

#define ROUNDS 5
#define DEPTH_MAX 64
#define DEPTH_BYTES ((uint64_t)1 << 20) /* in flight, if that is at least two operations */
#define ONE_IN_FLIGHT ((uint64_t)64 << 20)
#define CALIBRATE 3
#define SINGLES_MAX 20000.0       /* latencies kept of a round */
#define EXACT ((uint64_t)1 << 24) /* integers below it are exact in f32 */
#define GRADIENT_MAX 3

typedef struct cell {
    ps_worker_t *w;
    ps_tables_t *tables;
    ps_op_t op;
    ps_buffers_t buffers;
    size_t depth; /* operations in flight, each with its own memory for values */
    float *grad;
    float *value[DEPTH_MAX];
    uint64_t singles, pipelined; /* operations of a round */
    double *latency_us;
    size_t latencies;
    double ops_per_s[ROUNDS];
    limits_t limits;
} cell_t;

/* Knuth's multiplicative hash. */
float ps_gradient(uint64_t i, uint32_t rank)
{
    return (float)((((uint32_t)i * 2654435761u >> 20) + rank) & GRADIENT_MAX);
}

void ps_gradient_fill(float *grad, uint64_t elements, uint32_t rank)
{
    for (uint64_t i = 0; i < elements; i++)
        grad[i] = ps_gradient(i, rank);
}

int ps_barrier(ps_worker_t *w)
{
    if (psrt_barrier(w->ctx, "psrt-bench", 0, PSRT_FOREVER) == PSRT_OK) return 0;
    return bench_fail("barrier: %s", psrt_last_error());
}

/* ---- memory --------------------------------------------------------------------------------- */

static float *allocate(const cell_t *c)
{
    uint64_t bytes = c->tables->elements * sizeof(float);
    float *memory = c->buffers == PS_BUFFERS_PSRT ? psrt_alloc(c->w->ctx, bytes) : malloc(bytes);
    if (memory) memset(memory, 0xff, bytes); /* touches the pages; NaNs are no expected value */
    return memory;
}

static void release(const cell_t *c, float *memory)
{
    if (c->buffers == PS_BUFFERS_PSRT)
        psrt_free(c->w->ctx, memory);
    else
        free(memory);
}

static void cell_free(cell_t *c)
{
    release(c, c->grad);
    for (size_t i = 0; i < c->depth; i++)
        release(c, c->value[i]);
    free(c->latency_us);
    if (c->w->pair) limits_pair_end(c->w->pair);
    limits_free(&c->limits);
}

static int cell_init(cell_t *c)
{
    uint64_t bytes = c->tables->elements * sizeof(float), depth = DEPTH_BYTES / bytes;
    c->depth = bytes >= ONE_IN_FLIGHT ? 1 : depth < 2 ? 2 : depth > DEPTH_MAX ? DEPTH_MAX : depth;
    int missing = !(c->grad = allocate(c));
    for (size_t i = 0; i < c->depth; i++)
        missing |= !(c->value[i] = allocate(c));
    c->latency_us = malloc(ROUNDS * (size_t)SINGLES_MAX * sizeof *c->latency_us);
    missing |= !c->latency_us ||
               limits_init(&c->limits, c->tables->elements, c->buffers == PS_BUFFERS_USER);
    if (missing) return bench_fail("%llu bytes: out of memory", (unsigned long long)bytes);
    ps_gradient_fill(c->grad, c->tables->elements, c->w->rank);
    if (c->w->pair) limits_pair_begin(c->w->pair, c->tables->elements);
    if (c->w->zmq) return limits_zmq_begin(c->w->zmq, bytes);
    return 0;
}

/* ---- operations ----------------------------------------------------------------------------- */

psrt_status_t ps_submit(ps_worker_t *w, const ps_tables_t *tables, const float *grad, float *value,
                        psrt_op_t **op_p)
{
    uint64_t each = tables->elements / tables->count;
    for (uint64_t i = 0; i < tables->count; i++) {
        psrt_request_t *r = &w->requests[i];
        *r = (psrt_request_t)PSRT_REQUEST_INIT;
        r->table = tables->table[i];
        r->grad = grad ? grad + i * each : NULL;
        r->value = value ? value + i * each : NULL;
    }
    return psrt_submit(w->ctx, w->requests, tables->count, NULL, op_p);
}

static int issue(cell_t *c, size_t slot, psrt_op_t **op_p)
{
    const float *grad = c->op == PS_PULL ? NULL : c->grad;
    float *value = c->op == PS_PUSH ? NULL : c->value[slot];
    if (ps_submit(c->w, c->tables, grad, value, op_p) != PSRT_OK)
        return bench_fail("%s: %s", ps_op_names[c->op], psrt_last_error());
    c->tables->pushes += c->op != PS_PULL;
    return 0;
}

static int wait_for(const cell_t *c, psrt_op_t *op)
{
    if (psrt_op_wait(op, PSRT_FOREVER) == PSRT_OK) return 0;
    return bench_fail("%s: %s", ps_op_names[c->op], psrt_last_error());
}

/* `count` operations one at a time; their times go to `us` if it is not NULL. */
static int run_singles(cell_t *c, uint64_t count, double *us)
{
    for (uint64_t i = 0; i < count; i++) {
        psrt_op_t *op;
        uint64_t start = bench_now();
        if (issue(c, 0, &op) || wait_for(c, op)) return -1;
        if (us) us[i] = (double)(bench_now() - start) / 1000;
    }
    return 0;
}

/* `count` operations, up to `depth` in flight. */
static int run_pipelined(cell_t *c, uint64_t count, double *ops_per_s)
{
    psrt_op_t *ops[DEPTH_MAX] = { NULL };
    uint64_t start = bench_now();
    for (uint64_t i = 0; i < count; i++) {
        size_t slot = i % c->depth;
        psrt_op_t *previous = ops[slot];
        ops[slot] = NULL;
        if (wait_for(c, previous) || issue(c, slot, &ops[slot])) return -1;
    }
    for (size_t i = 0; i < c->depth; i++)
        if (wait_for(c, ops[(count + i) % c->depth])) return -1;
    *ops_per_s = (double)count * 1e9 / (double)(bench_now() - start);
    return 0;
}

/* ---- plan ----------------------------------------------------------------------------------- */

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

/* Worker 0 tells the others the two numbers through a table, as any trainer could. */
static int share_plan(cell_t *c, float plan[2])
{
    ps_worker_t *w = c->w;
    if (w->rank == 0) {
        float change[2] = { plan[0] - w->plan_sent[0], plan[1] - w->plan_sent[1] };
        memcpy(w->plan_sent, plan, sizeof w->plan_sent);
        if (psrt_push(w->plan_table, change, NULL) != PSRT_OK)
            return bench_fail("plan: %s", psrt_last_error());
    }
    if (ps_barrier(w)) return -1;
    if (psrt_pull(w->plan_table, plan, NULL) != PSRT_OK)
        return bench_fail("plan: %s", psrt_last_error());
    return ps_barrier(w); /* nobody reads the next plan */
}

/* How many operations of a round take the time that the cell has, from a few that are timed. Pushes
 * are limited so that the values stay exact: half of what is left; another cell uses the table. */
static int make_plan(cell_t *c)
{
    const ps_worker_t *w = c->w;
    double us[CALIBRATE], rate;
    if (run_singles(c, 1, NULL) || ps_barrier(c->w) || run_singles(c, CALIBRATE, us) ||
        run_pipelined(c, 2 * c->depth, &rate))
        return -1;
    double round_s = w->options->seconds / ROUNDS;
    double left = (double)EXACT / (GRADIENT_MAX * w->workers) - (double)c->tables->pushes;
    double limit = c->op == PS_PULL ? EXACT : left / (4 * ROUNDS);
    if (limit < 2) return bench_fail("too many pushes for exact sums");
    float plan[2] = { (float)(uint64_t)clamp(0.4 * round_s * 1e6 / bench_median(us, CALIBRATE), 1,
                                             limit < SINGLES_MAX ? limit : SINGLES_MAX),
                      (float)(uint64_t)clamp(0.6 * round_s * rate, 2, limit) };
    if (share_plan(c, plan)) return -1;
    c->singles = (uint64_t)plan[0];
    c->pipelined = (uint64_t)plan[1];
    return 0;
}

/* ---- the cell ------------------------------------------------------------------------------- */

static int measure_limits(cell_t *c)
{
    limits_measure(&c->limits);
    if (c->w->pair) limits_pair_measure(c->w->pair, &c->limits, c->op == PS_PUSH_PULL);
    return c->w->zmq ? limits_zmq_measure(c->w->zmq, c->op != PS_PULL, c->op != PS_PUSH) : 0;
}

/* The barriers keep the other workers asleep while worker 0 measures the limits. */
static int run_round(cell_t *c, size_t round)
{
    if (ps_barrier(c->w)) return -1;
    if (c->w->rank == 0 && measure_limits(c)) return -1;
    if (ps_barrier(c->w)) return -1;
    if (run_singles(c, c->singles, c->latency_us + c->latencies)) return -1;
    c->latencies += c->singles;
    if (c->w->workers > 1 && ps_barrier(c->w)) return -1;
    return run_pipelined(c, c->pipelined, &c->ops_per_s[round]);
}

/* What the last operation left: its own values, or for a push those that are pulled now. */
static int verify(cell_t *c)
{
    size_t slot = c->op == PS_PUSH ? 0 : (c->pipelined - 1) % c->depth;
    if (ps_barrier(c->w)) return -1;
    if (c->op == PS_PUSH && ps_submit(c->w, c->tables, NULL, c->value[slot], NULL) != PSRT_OK)
        return bench_fail("pull: %s", psrt_last_error());
    for (uint64_t i = 0; i < c->tables->elements; i++) {
        float sum = 0;
        for (uint32_t rank = 0; rank < c->w->workers; rank++)
            sum += ps_gradient(i, rank);
        float wanted = sum * (float)c->tables->pushes;
        if (c->value[slot][i] != wanted)
            return bench_fail("%s, %llu bytes, %s buffers: element %llu is %.9g, not %.9g",
                              ps_op_names[c->op], (unsigned long long)c->tables->elements * 4,
                              ps_buffers_names[c->buffers], (unsigned long long)i,
                              (double)c->value[slot][i], (double)wanted);
    }
    return 0;
}

static double limit_us(cell_t *c)
{
    switch (c->op) {
    case PS_PUSH: return limits_add_us(&c->limits);
    case PS_PULL: return limits_copy_us(&c->limits);
    default: return limits_add_us(&c->limits) + limits_copy_us(&c->limits);
    }
}

/* What all workers did together: they began together and did the same number of operations, so it is
 * the slowest one's rate that counts for all. Everyone adds its own to its element of a table. */
static int total_rate(cell_t *c, double *total_p)
{
    ps_worker_t *w = c->w;
    float rate = (float)bench_median(c->ops_per_s, ROUNDS), change[PS_TASKS_MAX] = { 0 };
    change[w->rank] = rate - w->rate_sent;
    w->rate_sent = rate;
    if (psrt_push(w->rate_table, change, NULL) != PSRT_OK)
        return bench_fail("rates: %s", psrt_last_error());
    float all[PS_TASKS_MAX];
    if (ps_barrier(w)) return -1;
    if (psrt_pull(w->rate_table, all, NULL) != PSRT_OK)
        return bench_fail("rates: %s", psrt_last_error());
    for (uint32_t i = 0; i < w->workers; i++)
        if (all[i] < rate) rate = all[i];
    *total_p = (double)rate * w->workers;
    return ps_barrier(w); /* nobody adds the next rate */
}

/* Two processes that share memory: they have a limit of their own where both work at once. */
static void summarize_raw(cell_t *c, ps_row_t *row)
{
    if (c->w->zmq) {
        row->raw_us = (double)row->bytes / limits_zmq_gbps(c->w->zmq) / 1000;
        row->raw_ping_us = limits_zmq_ping_us(c->w->zmq);
    }
    if (!c->w->pair) return;
    row->raw_us = c->op == PS_PUSH_PULL ? limits_pair_us(c->w->pair) : limit_us(c);
    row->raw_us /= (double)c->tables->count;
    row->raw_ping_us = limits_pair_ping_us(c->w->pair);
}

static void summarize(cell_t *c, ps_row_t *row)
{
    bench_sort(c->latency_us, c->latencies);
    row->op = c->op;
    row->buffers = c->buffers;
    row->bytes = c->tables->elements / c->tables->count * sizeof(float);
    row->tables = c->tables->count;
    row->workers = c->w->workers;
    row->servers = c->w->servers;
    row->p50_us = bench_percentile(c->latency_us, c->latencies, 50);
    row->p99_us = bench_percentile(c->latency_us, c->latencies, 99);
    row->ops_per_s = bench_median(c->ops_per_s, ROUNDS) * (double)c->tables->count;
    row->limit_us = limit_us(c) / (double)c->tables->count;
    summarize_raw(c, row);
}

int ps_cell_run(ps_worker_t *w, ps_tables_t *tables, ps_op_t op, ps_buffers_t buffers,
                ps_row_t *row_p)
{
    cell_t cell = { .w = w, .tables = tables, .op = op, .buffers = buffers };
    int failed = cell_init(&cell) || make_plan(&cell);
    for (size_t round = 0; round < ROUNDS && !failed; round++)
        failed = run_round(&cell, round);
    double all = 0;
    failed = failed || verify(&cell) || total_rate(&cell, &all);
    if (!failed && w->rank == 0) summarize(&cell, row_p);
    row_p->all_ops_per_s = all * (double)tables->count;
    /* After a failure operations may still use the memory: it goes with the process. */
    if (!failed) cell_free(&cell);
    return failed ? -1 : 0;
}
