/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of every type through the public API and every transport, all tasks in this process. What the
 * servers must hold is computed in double and 64-bit integers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "support/half_ref.h"
#include "support/test.h"

#define N 300000u /* two slices */
#define WORKERS 3u

static const char *const transports[] = { "inproc", "shm", "zmq" };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        psrt_status_t rc_ = (call);                                                                \
        if (rc_) return rc_;                                                                       \
    } while (0)

typedef struct kind {
    const char *name;
    psrt_dtype_t dtype;
    const char *codec;
    const half_format_t *half; /* of what is published; NULL: integers */
} kind_t;

static const kind_t kinds[] = {
    { "f16", PSRT_F16, NULL, &half_f16 },      { "bf16", PSRT_BF16, NULL, &half_bf16 },
    { "f32/f16", PSRT_F32, "f16", &half_f16 }, { "f32/bf16", PSRT_F32, "bf16", &half_bf16 },
    { "i32", PSRT_I32, NULL, NULL },           { "i64", PSRT_I64, NULL, NULL },
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void put(const kind_t *k, void *buf, uint64_t i, double v)
{
    if (k->dtype == PSRT_F32)
        ((float *)buf)[i] = (float)v;
    else if (k->half)
        ((uint16_t *)buf)[i] = half_encode(k->half, half_round(k->half, v));
    else if (k->dtype == PSRT_I32)
        ((int32_t *)buf)[i] = (int32_t)v;
    else
        ((int64_t *)buf)[i] = (int64_t)v;
}

static double get(const kind_t *k, const void *buf, uint64_t i)
{
    if (k->dtype == PSRT_F32) return ((const float *)buf)[i];
    if (k->half) return half_decode(k->half, ((const uint16_t *)buf)[i]);
    if (k->dtype == PSRT_I32) return ((const int32_t *)buf)[i];
    return (double)((const int64_t *)buf)[i];
}

/* What a worker hands over: floats that 16 bits do not hold, integers that f32 does not hold. */
static double given(const kind_t *k, unsigned rank, unsigned step, uint64_t i)
{
    int small = (int)((i * 7 + rank * 13 + step * 5) % 97) - 48;
    if (k->dtype == PSRT_I64) return small * 0x1p40 + (double)i;
    return k->half ? small * 0.1 : small * 0x1p20 + (double)(i % 1000);
}

/* The gradient as it reaches the server. */
static double arrives(const kind_t *k, unsigned rank, unsigned step, uint64_t i)
{
    double x = given(k, rank, step, i);
    return k->half ? half_round(k->half, k->dtype == PSRT_F32 ? (float)x : x) : x;
}

static psrt_status_t compare(const kind_t *k, const char *what, const void *v, const double *master,
                             uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        double m = master[first + i], want = k->half ? half_round(k->half, m) : m;
        if (get(k, v, i) == want) continue;
        unsigned long long element = first + i;
        fprintf(stderr, "%s, %s: element %llu is %.9g, must be %.9g\n", k->name, what, element,
                get(k, v, i), want);
        return PSRT_ERR_INTERNAL;
    }
    return PSRT_OK;
}

typedef struct work {
    const kind_t *kind;
    unsigned rank;
    psrt_context_t *ctx;
    psrt_table_t *table;
    void *grad, *value;
    double *master; /* what the servers hold */
} work_t;

static psrt_status_t open_table(work_t *w, const char *consistency, int deterministic)
{
    char name[64];
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    snprintf(name, sizeof name, "%s %s", w->kind->name, consistency);
    p.dtype = w->kind->dtype, p.codec = w->kind->codec;
    p.ndim = 1, p.shape[0] = N;
    p.consistency = consistency, p.reduce = "sum", p.deterministic = deterministic;
    p.init = w->kind->half ? "constant:value=0.7" : "constant:value=7";
    CHECK(psrt_dense_create(w->ctx, name, &p, &w->table));
    for (uint64_t i = 0; i < N; i++)
        w->master[i] = w->kind->half ? 0.7f : 7;
    return PSRT_OK;
}

/* Sums of a step are exact in f32; adding them rounds. */
static void add_step(work_t *w, unsigned step, uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        double sum = 0;
        for (unsigned r = 0; r < WORKERS; r++)
            sum += arrives(w->kind, r, step, i);
        w->master[i] = w->kind->half ? (float)(w->master[i] + sum) : w->master[i] + sum;
    }
}

static void fill(work_t *w, unsigned step)
{
    for (uint64_t i = 0; i < N; i++)
        put(w->kind, w->grad, i, given(w->kind, w->rank, step, i));
}

/* Steps of push_pull, then one of push and pull, then ranges: the same sums each time. */
static psrt_status_t sync_steps(work_t *w)
{
    unsigned step = 0;
    CHECK(open_table(w, "sync", 1));
    CHECK(psrt_pull(w->table, w->value, NULL));
    CHECK(compare(w->kind, "first values", w->value, w->master, 0, N));
    for (; step < 3; step++) {
        fill(w, step);
        add_step(w, step, 0, N);
        if (step < 2) {
            CHECK(psrt_push_pull(w->table, w->grad, w->value, NULL));
        } else {
            CHECK(psrt_push(w->table, w->grad, NULL));
            CHECK(psrt_pull(w->table, w->value, NULL));
        }
        CHECK(compare(w->kind, "sync", w->value, w->master, 0, N));
    }
    const uint64_t from = 100, split = 262000, to = 299999;
    const size_t elem = psrt_dtype_size(w->kind->dtype);
    psrt_request_t r = PSRT_REQUEST_INIT;
    fill(w, step);
    add_step(w, step, from, to - from);
    r.table = w->table, r.more = 1;
    r.grad = (const char *)w->grad + split * elem, r.offset = split, r.count = to - split;
    CHECK(psrt_submit(w->ctx, &r, 1, NULL, NULL));
    r.more = 0;
    r.grad = (const char *)w->grad + from * elem, r.offset = from, r.count = split - from;
    CHECK(psrt_submit(w->ctx, &r, 1, NULL, NULL));
    r.grad = NULL, r.value = w->value, r.offset = 262100,
    r.count = 100; /* over the slices' border */
    CHECK(psrt_submit(w->ctx, &r, 1, NULL, NULL));
    CHECK(compare(w->kind, "range", w->value, w->master, 262100, 100));
    CHECK(psrt_pull(w->table, w->value, NULL));
    return compare(w->kind, "after ranges", w->value, w->master, 0, N);
}

/* Every worker pushes the same gradient twice, whatever the order: multiples of 2^-3 that start from
 * 0.7 are not exact, so the values lie within the roundings of six sums. */
static psrt_status_t unordered_steps(work_t *w, const char *consistency)
{
    CHECK(open_table(w, consistency, 0));
    for (uint64_t i = 0; i < N; i++) {
        double g = (double)(int)(i % 33) - 16;
        put(w->kind, w->grad, i, w->kind->half ? g / 8 : g * 0x1p20);
        w->master[i] += 2 * WORKERS * (w->kind->half ? g / 8 : g * 0x1p20);
    }
    for (int step = 0; step < 2; step++) {
        CHECK(psrt_push(w->table, w->grad, NULL));
        CHECK(psrt_pull(w->table, w->value, NULL));
    }
    CHECK(psrt_barrier(w->ctx, w->kind->name, 0, PSRT_FOREVER));
    CHECK(psrt_pull(w->table, w->value, NULL));
    for (uint64_t i = 0; i < N; i++) {
        double got = get(w->kind, w->value, i), m = w->master[i], slack = 24 * 0x1p-24;
        double low = w->kind->half ? half_round(w->kind->half, m - slack) : m;
        double high = w->kind->half ? half_round(w->kind->half, m + slack) : m;
        if (got >= low && got <= high) continue;
        fprintf(stderr, "%s, %s: element %llu is %.9g, must be %.9g\n", w->kind->name, consistency,
                (unsigned long long)i, got, m);
        return PSRT_ERR_INTERNAL;
    }
    return PSRT_OK;
}

static psrt_status_t run_kind(work_t *w)
{
    CHECK(sync_steps(w));
    CHECK(unordered_steps(w, "async"));
    return unordered_steps(w, "ssp:1");
}

static psrt_status_t worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    psrt_status_t rc = PSRT_OK;
    int plain = *(const int *)arg; /* memory: of the runtime, or malloc'ed */
    for (size_t i = 0; !rc && i < KINDS; i++) {
        size_t bytes = N * psrt_dtype_size(kinds[i].dtype);
        work_t w = { .kind = &kinds[i], .rank = rank, .ctx = ctx };
        w.grad = plain ? malloc(bytes) : psrt_alloc(ctx, bytes);
        w.value = plain ? malloc(bytes) : psrt_alloc(ctx, bytes);
        w.master = malloc(N * sizeof *w.master);
        rc = w.grad && w.value && w.master ? run_kind(&w) : PSRT_ERR_NO_MEMORY;
        if (plain)
            free(w.grad), free(w.value);
        else
            psrt_free(ctx, w.grad), psrt_free(ctx, w.value);
        free(w.master);
    }
    return rc;
}

Test(types, every_type_over_every_transport, .timeout = 400)
{
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        int plain = i % 2;
        job_t job = { .workers = WORKERS,
                      .servers = 2,
                      .transport = transports[i],
                      .fn = worker,
                      .arg = &plain };
        cr_log_info("transport %s", transports[i]);
        job_run(&job);
    }
}

/* First values of worker 0: an f32 table with a codec takes them whole, an i64 table exactly. */
static psrt_status_t rank0_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    (void)arg;
    static const kind_t i64 = { "i64", PSRT_I64, NULL, NULL };
    const kind_t *used[] = { &kinds[0], &kinds[3], &i64 };
    for (size_t t = 0; t < sizeof used / sizeof *used; t++) {
        const kind_t *k = used[t];
        double first[4] = { 3, -17, 1e6, 0.125 };
        char init[4 * 8], value[4 * 8];
        psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
        psrt_table_t *table;
        if (k->dtype == PSRT_F16) first[2] = 1000;
        if (k->dtype == PSRT_I64) first[3] = -0x1p52 - 1;
        for (unsigned i = 0; i < 4; i++)
            put(k, init, i, first[i]);
        p.dtype = k->dtype, p.codec = k->codec, p.ndim = 1, p.shape[0] = 4;
        p.init = "rank0", p.init_data = rank == 0 ? init : NULL;
        CHECK(psrt_dense_create(ctx, k->name, &p, &table));
        CHECK(psrt_pull(table, value, NULL));
        CHECK(compare(k, "rank0", value, first, 0, 4));
    }
    return PSRT_OK;
}

Test(types, first_values_of_worker_0, .timeout = 60)
{
    job_t job = { .workers = 2, .servers = 2, .transport = "shm", .fn = rank0_worker };
    job_run(&job);
}
