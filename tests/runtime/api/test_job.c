/* SPDX-License-Identifier: Apache-2.0 */
/* The public API over every transport, with all tasks of the job in this process. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "support/test.h"

#define BIG 600000u /* elements: three slices */

static const char *const transports[] = { "inproc", "shm", "zmq" };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        psrt_status_t rc_ = (call);                                                                \
        if (rc_) return rc_;                                                                       \
    } while (0)

/* Distinct values for each worker, step and element. */
static float grad_of(unsigned rank, unsigned step, uint64_t i)
{
    return (float)((int)((i * 7 + rank * 13 + step * 5) % 17) - 8);
}

static void fill(float *g, uint64_t n, unsigned rank, unsigned step)
{
    for (uint64_t i = 0; i < n; i++)
        g[i] = grad_of(rank, step, i);
}

static psrt_status_t wrong(const char *what, uint64_t i, double got, double want)
{
    fprintf(stderr, "%s: element %llu is %g, must be %g\n", what, (unsigned long long)i, got, want);
    return PSRT_ERR_INTERNAL;
}

static psrt_status_t table(psrt_context_t *ctx, const char *name, const char *consistency,
                           const char *reduce, psrt_table_t **table_p)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 2, p.shape[0] = 600, p.shape[1] = BIG / 600;
    p.consistency = consistency;
    p.reduce = reduce;
    return psrt_dense_create(ctx, name, &p, table_p);
}

/* Sync, sum: values are exact sums of small integers. */
static psrt_status_t sync_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    psrt_table_t *t;
    unsigned workers = ((job_t *)arg)->workers;
    CHECK(table(ctx, "w", "sync", "sum", &t));
    float *g = psrt_alloc(ctx, BIG * 4), *v = psrt_alloc(ctx, BIG * 4);
    float *want = calloc(BIG, 4);
    psrt_status_t rc = PSRT_OK;
    for (unsigned step = 0; !rc && step < 4; step++) {
        fill(g, BIG, rank, step);
        for (unsigned r = 0; r < workers; r++)
            for (uint64_t i = 0; i < BIG; i++)
                want[i] += grad_of(r, step, i);
        rc = psrt_push_pull(t, g, v, NULL);
        for (uint64_t i = 0; !rc && i < BIG; i++)
            if (v[i] != want[i]) rc = wrong("sync", i, v[i], want[i]);
    }
    free(want);
    return rc;
}

static psrt_status_t async_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    psrt_table_t *t;
    unsigned workers = ((job_t *)arg)->workers;
    (void)rank;
    CHECK(table(ctx, "a", "async", NULL, &t));
    float *g = psrt_alloc(ctx, BIG * 4), *v = calloc(BIG, 4);
    psrt_op_t *op[6];
    psrt_status_t rc = PSRT_OK;
    fill(g, BIG, 3, 3);
    for (int i = 0; i < 6; i++)
        CHECK(psrt_push(t, g, &op[i]));
    for (int i = 0; !rc && i < 6; i++)
        rc = psrt_op_wait(op[i], PSRT_FOREVER);
    if (!rc) rc = psrt_barrier(ctx, "pushed", 0, PSRT_FOREVER);
    if (!rc) rc = psrt_pull(t, v, NULL);
    for (uint64_t i = 0; !rc && i < BIG; i++)
        if (v[i] != 6 * (float)workers * g[i]) rc = wrong("async", i, v[i], 6 * workers * g[i]);
    free(v);
    return rc;
}

/* The clock of each worker is what it read last; nobody may be more than two ahead. */
static atomic_uint clocks[JOB_MAX];

static psrt_status_t ssp_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    psrt_table_t *t;
    unsigned workers = ((job_t *)arg)->workers;
    CHECK(table(ctx, "s", "ssp:2", NULL, &t));
    float *g = psrt_alloc(ctx, BIG * 4), *v = psrt_alloc(ctx, BIG * 4);
    for (uint64_t i = 0; i < BIG; i++)
        g[i] = 1;
    for (unsigned step = 1; step <= 8; step++) {
        atomic_store(&clocks[rank], step); /* before the push: never behind the servers' clock */
        CHECK(psrt_push(t, g, NULL));
        CHECK(psrt_pull(t, v, NULL));
        for (unsigned r = 0; r < workers; r++)
            if (atomic_load(&clocks[r]) + 2 < step)
                return wrong("ssp clock", r, atomic_load(&clocks[r]), step);
        if (v[BIG - 1] < step) return wrong("ssp reads its own", BIG - 1, v[BIG - 1], step);
    }
    CHECK(psrt_barrier(ctx, "end", 0, PSRT_FOREVER));
    CHECK(psrt_pull(t, v, NULL));
    return v[BIG / 2] == 8 * (float)workers ? PSRT_OK
                                            : wrong("ssp", BIG / 2, v[BIG / 2], 8 * workers);
}

static void over_transports(job_worker_fn fn, unsigned workers, unsigned servers, unsigned threads)
{
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        job_t job = { .workers = workers,
                      .servers = servers,
                      .threads = threads,
                      .transport = transports[i],
                      .fn = fn };
        job.arg = &job;
        cr_log_info("transport %s", transports[i]);
        for (int r = 0; r < JOB_MAX; r++)
            atomic_store(&clocks[r], 0);
        job_run(&job);
    }
}

Test(job, sync, .timeout = 240) { over_transports(sync_worker, 3, 2, 1); }

Test(job, sync_with_server_threads, .timeout = 240) { over_transports(sync_worker, 2, 2, 3); }

Test(job, async, .timeout = 240) { over_transports(async_worker, 3, 2, 1); }

Test(job, ssp, .timeout = 240) { over_transports(ssp_worker, 3, 2, 2); }

/* ---- callbacks, threads, many operations --------------------------------------------------------- */

typedef struct chain {
    psrt_context_t *ctx;
    psrt_table_t *table;
    float *grad;
    atomic_int left, ended;
} chain_t;

static void next_push(void *arg, const psrt_result_t *result)
{
    chain_t *c = arg;
    psrt_op_t *op;
    atomic_fetch_add(&c->ended, result->status == PSRT_OK ? 1 : 1000);
    if (atomic_fetch_sub(&c->left, 1) <= 0) return;
    psrt_request_t r = PSRT_REQUEST_INIT;
    psrt_submit_params_t p = PSRT_SUBMIT_PARAMS_INIT;
    r.table = c->table, r.grad = c->grad;
    p.callback = next_push, p.arg = c;
    if (psrt_submit(c->ctx, &r, 1, &p, &op) == PSRT_OK) psrt_op_release(op);
}

/* A callback starts the next operation; nobody waits, the keeper moves it all. */
static psrt_status_t chain_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    (void)rank, (void)arg;
    chain_t c = { .ctx = ctx, .left = 50 };
    CHECK(table(ctx, "c", "async", NULL, &c.table));
    c.grad = psrt_alloc(ctx, BIG * 4);
    psrt_result_t first = { PSRT_OK, 0, 0, 0 };
    next_push(&c, &first);
    for (unsigned ms = 0; atomic_load(&c.ended) < 51 && ms < 60000; ms += 10)
        psrt_barrier(ctx, "tick", 1, PSRT_FOREVER);
    return atomic_load(&c.ended) == 51 ? PSRT_OK : wrong("chain", 0, atomic_load(&c.ended), 51);
}

Test(job, callbacks_start_operations, .timeout = 120)
{
    job_t job = { .workers = 1, .servers = 1, .transport = "inproc", .fn = chain_worker };
    job_run(&job);
}

typedef struct pusher {
    psrt_context_t *ctx;
    psrt_table_t *table;
    float *grad;
    psrt_status_t status;
} pusher_t;

static void *push_many(void *arg)
{
    pusher_t *p = arg;
    float one[100];
    memcpy(one, p->grad, sizeof one);
    for (int i = 0; !p->status && i < 200; i++) {
        psrt_op_t *op;
        p->status = psrt_push(p->table, one, &op);
        if (p->status) break;
        if (i % 3 == 0)
            while (psrt_op_test(op, NULL) == PSRT_IN_PROGRESS) {}
        p->status = psrt_op_wait(op, PSRT_FOREVER);
    }
    return NULL;
}

/* Four threads of one worker push into one table. */
static psrt_status_t threads_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    (void)rank, (void)arg;
    psrt_dense_params_t dp = PSRT_DENSE_PARAMS_INIT;
    dp.ndim = 1, dp.shape[0] = 100, dp.consistency = "async";
    pusher_t p[4];
    pthread_t thread[4];
    float grad[100], v[100];
    psrt_table_t *t;
    CHECK(psrt_dense_create(ctx, "t", &dp, &t));
    for (int i = 0; i < 100; i++)
        grad[i] = (float)(i % 9);
    for (int i = 0; i < 4; i++) {
        p[i] = (pusher_t){ ctx, t, grad, PSRT_OK };
        pthread_create(&thread[i], NULL, push_many, &p[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++)
        CHECK(p[i].status);
    CHECK(psrt_barrier(ctx, "all", 0, PSRT_FOREVER));
    CHECK(psrt_pull(t, v, NULL));
    for (int i = 0; i < 100; i++)
        if (v[i] != 1600.0f * grad[i]) return wrong("threads", (uint64_t)i, v[i], 1600 * grad[i]);
    return PSRT_OK;
}

Test(job, several_threads_of_a_worker, .timeout = 120)
{
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        job_t job = {
            .workers = 2, .servers = 2, .transport = transports[i], .fn = threads_worker
        };
        job_run(&job);
    }
}

/* ---- setting hyper-parameters -------------------------------------------------------------------- */

typedef struct setter {
    psrt_table_t *t;
    psrt_status_t status;
} setter_t;

static void *set_thread(void *arg)
{
    setter_t *s = arg;
    for (unsigned i = 0; !s->status && i < 20; i++)
        s->status = psrt_table_set(s->t, "lr", 0.5, PSRT_STEP_NEXT, NULL);
    return NULL;
}

/* Threads of all workers set at once while steps go on; every element sees the same rates. */
static psrt_status_t set_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    psrt_table_t *t;
    pthread_t thread[3];
    setter_t s[3];
    float *g = psrt_alloc(ctx, BIG * 4), *v = psrt_alloc(ctx, BIG * 4);
    (void)rank, (void)arg;
    p.ndim = 1, p.shape[0] = BIG, p.optimizer = "sgd:lr=1", p.reduce = "sum";
    CHECK(psrt_dense_create(ctx, "w", &p, &t));
    for (uint64_t i = 0; i < BIG; i++)
        g[i] = 1;
    for (unsigned i = 0; i < 3; i++) {
        s[i] = (setter_t){ t, PSRT_OK };
        pthread_create(&thread[i], NULL, set_thread, &s[i]);
    }
    psrt_status_t rc = PSRT_OK;
    for (unsigned step = 0; !rc && step < 10; step++) {
        rc = psrt_push_pull(t, g, v, NULL);
        for (uint64_t i = 0; !rc && i < BIG; i++)
            if (v[i] != v[0]) rc = wrong("set", i, v[i], v[0]);
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    CHECK(rc);
    for (unsigned i = 0; i < 3; i++)
        CHECK(s[i].status);
    float before = v[0];
    CHECK(psrt_barrier(ctx, "all have set", 0, PSRT_FOREVER));
    CHECK(psrt_push_pull(t, g, v, NULL));
    return before - v[BIG - 1] == 1 ? PSRT_OK : wrong("set", BIG - 1, before - v[BIG - 1], 1);
}

Test(job, hyper_parameters_are_set_by_many, .timeout = 240)
{
    over_transports(set_worker, 2, 2, 2);
}

/* ---- start and stop ------------------------------------------------------------------------------ */

static psrt_status_t barrier_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    psrt_context_attr_t a = PSRT_CONTEXT_ATTR_INIT;
    (void)arg;
    CHECK(psrt_barrier(ctx, "start", 0, PSRT_FOREVER));
    CHECK(psrt_context_query(ctx, &a));
    CHECK(psrt_barrier(ctx, "everyone looked", 0, PSRT_FOREVER));
    return a.rank == rank && a.live_workers == 4 ? PSRT_OK : PSRT_ERR_INTERNAL;
}

static psrt_status_t members_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    psrt_member_t m[4] = { PSRT_MEMBER_INIT };
    uint32_t n = 4;
    int fine = 1;
    (void)rank, (void)arg;
    CHECK(psrt_context_members(ctx, PSRT_ROLE_WORKER, m, &n));
    fine &= n == 3;
    for (uint32_t i = 0; i < 3; i++)
        fine &= m[i].size == sizeof m[i] && m[i].role == PSRT_ROLE_WORKER && m[i].rank == i &&
                m[i].alive && !m[i].finished && m[i].incarnation && *m[i].host;
    fine &= m[0].incarnation != m[1].incarnation && m[1].incarnation != m[2].incarnation;
    memset(&m[1], 0x55, sizeof m[1]);
    n = 1;
    CHECK(psrt_context_members(ctx, PSRT_ROLE_SERVER, m, &n)); /* two, of which one fits */
    fine &= n == 2 && m[0].role == PSRT_ROLE_SERVER && m[0].rank == 0 && m[0].alive &&
            m[1].rank == 0x55555555;
    n = 0;
    CHECK(psrt_context_members(ctx, PSRT_ROLE_WORKER, NULL, &n));
    fine &= n == 3;
    fine &= psrt_context_members(ctx, (psrt_role_t)3, NULL, &n) == PSRT_ERR_INVALID;
    fine &= psrt_context_members(ctx, PSRT_ROLE_WORKER, NULL, &n) == PSRT_ERR_INVALID;
    m[0].size--;
    fine &= psrt_context_members(ctx, PSRT_ROLE_WORKER, m, &n) == PSRT_ERR_INVALID;
    CHECK(psrt_barrier(ctx, "everyone looked", 0, PSRT_FOREVER));
    return fine ? PSRT_OK : PSRT_ERR_INTERNAL;
}

Test(job, members_are_listed, .timeout = 60)
{
    job_t job = { .workers = 3, .servers = 2, .threads = 2, .fn = members_worker };
    job_run(&job);
}

/* Several contexts of one process leave the start barrier, every time. */
Test(job, contexts_of_one_process_start, .timeout = 240)
{
    for (int round = 0; round < 30; round++) {
        job_t job = { .workers = 4, .servers = 1, .fn = barrier_worker };
        job_run(&job);
    }
}

/* Alone: a context with its embedded server, again and again, leaves nothing behind. */
Test(embedded, cycles, .timeout = 120)
{
    for (int round = 0; round < 30; round++) {
        psrt_context_t *ctx;
        psrt_table_t *t;
        cr_assert_eq(psrt_context_create(NULL, &ctx), PSRT_OK, "%s", psrt_last_error());
        psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
        p.ndim = 1, p.shape[0] = 1000, p.dtype = PSRT_F64, p.optimizer = "sgd:lr=0.5";
        cr_assert_eq(psrt_dense_create(ctx, "x", &p, &t), PSRT_OK, "%s", psrt_last_error());
        double g[1000], v[1000];
        for (int i = 0; i < 1000; i++)
            g[i] = i;
        cr_assert_eq(psrt_push_pull(t, g, v, NULL), PSRT_OK, "%s", psrt_last_error());
        for (int i = 0; i < 1000; i++)
            cr_assert_eq(v[i], -0.5 * i);
        psrt_context_destroy(ctx);
    }
}

/* Destroying with operations in flight ends them, and their callbacks run. */
static void count_end(void *arg, const psrt_result_t *result)
{
    (void)result;
    atomic_fetch_add((atomic_int *)arg, 1);
}

Test(embedded, destroy_with_operations_in_flight, .timeout = 60)
{
    const char *const settings[] = { "PSRT_DRAIN_TIMEOUT=100ms", NULL };
    psrt_context_params_t cp = PSRT_CONTEXT_PARAMS_INIT;
    cp.settings = settings;
    psrt_context_t *ctx;
    psrt_table_t *t;
    atomic_int ended = 0;
    static float v[3][1000];
    cr_assert_eq(psrt_context_create(&cp, &ctx), PSRT_OK, "%s", psrt_last_error());
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = 1000;
    cr_assert_eq(psrt_dense_create(ctx, "x", &p, &t), PSRT_OK, "%s", psrt_last_error());
    for (int i = 0; i < 3; i++) {
        psrt_request_t r = PSRT_REQUEST_INIT;
        psrt_submit_params_t sp = PSRT_SUBMIT_PARAMS_INIT;
        psrt_op_t *op;
        r.table = t, r.value = v[i], r.step = 7; /* a version that never comes */
        sp.callback = count_end, sp.arg = &ended;
        cr_assert_eq(psrt_submit(ctx, &r, 1, &sp, &op), PSRT_OK);
        psrt_op_release(op);
    }
    psrt_context_destroy(ctx);
    cr_assert_eq(atomic_load(&ended), 3);
}
