/* SPDX-License-Identifier: Apache-2.0 */
/* psrt_op_cancel and deadlines over every transport, with all tasks of the job in this process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "support/test.h"

#define BIG 600000u /* elements: three slices */
#define SLICE (1u << 18)
#define PATTERN 0x5c
#define MS 1000000ull

#define CHECK(call)                                                                                \
    do {                                                                                           \
        psrt_status_t rc_ = (call);                                                                \
        if (rc_) return rc_;                                                                       \
    } while (0)
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "line %d: not so: %s (last error: %s)\n", __LINE__, #cond,             \
                    psrt_last_error());                                                            \
            return PSRT_ERR_INTERNAL;                                                              \
        }                                                                                          \
    } while (0)

static psrt_status_t sync_table(psrt_context_t *ctx, psrt_table_t **table_p)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = BIG;
    p.reduce = "sum";
    return psrt_dense_create(ctx, "w", &p, table_p);
}

static psrt_status_t submit(psrt_context_t *ctx, psrt_table_t *t, const float *grad, float *value,
                            uint64_t deadline, psrt_op_t **op_p)
{
    psrt_request_t r = PSRT_REQUEST_INIT;
    psrt_submit_params_t p = PSRT_SUBMIT_PARAMS_INIT;
    r.table = t;
    r.grad = grad;
    r.value = value;
    if (!grad) r.step = 1000; /* a version that never comes */
    p.deadline_ns = deadline;
    return psrt_submit(ctx, &r, 1, &p, op_p);
}

static int is_pattern(const float *v)
{
    for (size_t i = 0; i < BIG * sizeof *v; i++)
        if (((const unsigned char *)v)[i] != PATTERN) return 0;
    return 1;
}

/* Worker 1 contributes only after worker 0 gave up waiting for it. */
static psrt_status_t impatient_worker(psrt_context_t *ctx, float *g, float *v, float *unused)
{
    psrt_table_t *t;
    psrt_op_t *op;
    CHECK(sync_table(ctx, &t));
    CHECK(submit(ctx, t, g, unused, 300 * MS, &op));
    REQUIRE(psrt_op_wait(op, PSRT_FOREVER) == PSRT_ERR_DEADLINE);
    REQUIRE(strstr(psrt_last_error(), "push_pull of table w, step 0, waits for worker:1"));
    CHECK(submit(ctx, t, NULL, v, 0, &op));
    psrt_op_cancel(op);
    REQUIRE(psrt_op_wait(op, PSRT_FOREVER) == PSRT_ERR_CANCELED);
    memset(unused, PATTERN, BIG * 4);
    REQUIRE(psrt_barrier(ctx, "gave up", 0, PSRT_FOREVER) == PSRT_ERR_DEADLINE);
    CHECK(psrt_barrier(ctx, "gave up", 0, PSRT_FOREVER));
    CHECK(psrt_push_pull(t, g, v, NULL));
    /* Twice 10 and once 1, and what ended at its deadline once or, on a slow machine, not at all. */
    for (uint64_t i = 0; i < BIG; i++)
        REQUIRE((v[i] == 22 || v[i] == 21) && v[i] == v[i / SLICE * SLICE]);
    REQUIRE(is_pattern(unused)); /* nothing wrote to memory of an op that had ended */
    psrt_op_cancel(NULL);
    CHECK(submit(ctx, t, NULL, v, 0, &op));
    psrt_op_cancel(op);
    while (psrt_op_test(op, NULL) == PSRT_IN_PROGRESS)
        continue;
    psrt_op_cancel(op); /* it has ended */
    REQUIRE(psrt_op_wait(op, 0) == PSRT_ERR_CANCELED);
    return psrt_barrier(ctx, "end", 0, PSRT_FOREVER); /* what the user canceled is no failure */
}

static psrt_status_t late_worker(psrt_context_t *ctx, const float *g)
{
    psrt_table_t *t;
    CHECK(sync_table(ctx, &t));
    CHECK(psrt_barrier(ctx, "gave up", 0, PSRT_FOREVER));
    CHECK(psrt_push(t, g, NULL));
    CHECK(psrt_push(t, g, NULL));
    return psrt_barrier(ctx, "end", 0, PSRT_FOREVER);
}

static psrt_status_t run_worker(psrt_context_t *ctx, unsigned rank, void *arg)
{
    float *g = psrt_alloc(ctx, BIG * 4), *v = psrt_alloc(ctx, BIG * 4);
    float *unused = calloc(BIG, 4);
    (void)arg;
    for (uint64_t i = 0; i < BIG; i++)
        g[i] = rank ? 10 : 1;
    psrt_status_t rc = rank ? late_worker(ctx, g) : impatient_worker(ctx, g, v, unused);
    free(unused);
    return rc;
}

static void over(const char *transport)
{
    job_t job = { .workers = 2, .servers = 2, .threads = 1, .transport = transport };
    job.fn = run_worker;
    job_run(&job);
}

Test(ends, inproc) { over("inproc"); }
Test(ends, shm) { over("shm"); }
Test(ends, zmq) { over("zmq"); }

/* ---- alone ------------------------------------------------------------------------------------- */

typedef struct nested {
    psrt_context_t *ctx;
    psrt_table_t *table;
    float *value;
    psrt_op_t *op;
    psrt_status_t submitted;
} nested_t;

/* Starts an operation that cannot end, and cancels it, all within a callback. */
static void start_and_cancel(void *arg, const psrt_result_t *result)
{
    nested_t *n = arg;
    (void)result;
    n->submitted = submit(n->ctx, n->table, NULL, n->value, 0, &n->op);
    if (!n->submitted) psrt_op_cancel(n->op);
}

Test(ends, within_a_callback)
{
    nested_t n = { 0 };
    cr_assert_eq(psrt_context_create(NULL, &n.ctx), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(sync_table(n.ctx, &n.table), PSRT_OK);
    n.value = psrt_alloc(n.ctx, BIG * 4);
    psrt_request_t r = PSRT_REQUEST_INIT;
    psrt_submit_params_t p = PSRT_SUBMIT_PARAMS_INIT;
    r.table = n.table;
    r.value = n.value;
    p.callback = start_and_cancel;
    p.arg = &n;
    psrt_op_t *op;
    cr_assert_eq(psrt_submit(n.ctx, &r, 1, &p, &op), PSRT_OK);
    cr_assert_eq(psrt_op_wait(op, PSRT_FOREVER), PSRT_OK);
    cr_assert_eq(n.submitted, PSRT_OK);
    cr_assert_eq(psrt_op_wait(n.op, PSRT_FOREVER), PSRT_ERR_CANCELED);
    psrt_context_destroy(n.ctx);
}

Test(ends, the_default_deadline)
{
    const char *const settings[] = { "PSRT_OP_DEADLINE=10ms", NULL };
    psrt_context_params_t cp = PSRT_CONTEXT_PARAMS_INIT;
    psrt_context_t *ctx;
    psrt_table_t *t;
    psrt_op_t *op;
    cp.settings = settings;
    cr_assert_eq(psrt_context_create(&cp, &ctx), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(sync_table(ctx, &t), PSRT_OK);
    float *v = psrt_alloc(ctx, BIG * 4);
    cr_assert_eq(submit(ctx, t, NULL, v, 0, &op), PSRT_OK);
    cr_assert_eq(psrt_op_wait(op, PSRT_FOREVER), PSRT_ERR_DEADLINE);
    cr_assert_eq(submit(ctx, t, NULL, v, 0, NULL), PSRT_ERR_DEADLINE, "also when it waits itself");
    cr_assert(strstr(psrt_last_error(), "deadline passed: pull of table w, step 1000"), "%s",
              psrt_last_error());
    cr_assert_eq(submit(ctx, t, v, NULL, 3600000 * MS, NULL), PSRT_OK);
    psrt_context_destroy(ctx);
}

Test(ends, the_deadline_in_a_group_names_the_group)
{
    psrt_context_t *ctx;
    psrt_table_t *t[2];
    cr_assert_eq(psrt_context_create(NULL, &ctx), PSRT_OK, "%s", psrt_last_error());
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    p.ndim = 1, p.shape[0] = 8;
    p.optimizer = "sgd:clip_norm=1", p.group = "model";
    cr_assert_eq(psrt_dense_create(ctx, "a", &p, &t[0]), PSRT_OK);
    cr_assert_eq(psrt_dense_create(ctx, "b", &p, &t[1]), PSRT_OK);
    float g[8] = { 0 }, v[8];
    psrt_request_t r = PSRT_REQUEST_INIT;
    psrt_submit_params_t sp = PSRT_SUBMIT_PARAMS_INIT;
    r.table = t[0], r.grad = g, r.value = v;
    sp.deadline_ns = 200 * MS; /* nobody pushes to b */
    cr_assert_eq(psrt_submit(ctx, &r, 1, &sp, NULL), PSRT_ERR_DEADLINE);
    cr_assert(strstr(psrt_last_error(), "table a, step 0, waits for worker:0 in group model"), "%s",
              psrt_last_error());
    psrt_context_destroy(ctx);
}
