/* SPDX-License-Identifier: Apache-2.0 */
/* One context with its embedded server: what callbacks may do, threads that wait beside each other,
 * what is freed, what is left behind. */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <psrt/psrt.h>

#include "support/test.h"

#define N 1000u
#define NEVER 7 /* a version that nobody's pushes produce here */
#define MS 1000000ull

static psrt_context_t *open_context(const char *setting)
{
    const char *const settings[] = { "PSRT_DRAIN_TIMEOUT=100ms", setting, NULL };
    psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
    psrt_context_t *ctx = NULL;
    p.settings = settings;
    cr_assert_eq(psrt_context_create(&p, &ctx), PSRT_OK, "%s", psrt_last_error());
    return ctx;
}

static psrt_table_t *open_table(psrt_context_t *ctx, const char *name, const char *consistency)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    psrt_table_t *t = NULL;
    p.ndim = 1, p.shape[0] = N, p.consistency = consistency;
    cr_assert_eq(psrt_dense_create(ctx, name, &p, &t), PSRT_OK, "%s", psrt_last_error());
    return t;
}

/* A pull that does not end before the context does. */
static psrt_op_t *endless(psrt_context_t *ctx, psrt_table_t *t, float *value)
{
    psrt_request_t r = PSRT_REQUEST_INIT;
    psrt_op_t *op = NULL;
    r.table = t, r.value = value, r.step = NEVER;
    cr_assert_eq(psrt_submit(ctx, &r, 1, NULL, &op), PSRT_OK, "%s", psrt_last_error());
    return op;
}

/* ---- callbacks --------------------------------------------------------------------------------- */

typedef struct calls {
    psrt_context_t *ctx;
    psrt_table_t *table;
    float *value;
    psrt_status_t query, table_query, wait, blocking, barrier, create;
    uint64_t step;
    char text[256];
    void *memory;
    atomic_int done;
} calls_t;

/* Everything that says that it does not block works in a callback; what would wait refuses. */
static void call_everything(void *arg, const psrt_result_t *result)
{
    calls_t *c = arg;
    psrt_context_attr_t ca = PSRT_CONTEXT_ATTR_INIT;
    psrt_table_attr_t ta = PSRT_TABLE_ATTR_INIT;
    psrt_dense_params_t dp = PSRT_DENSE_PARAMS_INIT;
    psrt_table_t *other = NULL;
    (void)result;
    c->query = psrt_context_query(c->ctx, &ca);
    c->table_query = psrt_table_query(c->table, &ta);
    c->step = ta.step;
    psrt_free(c->ctx, psrt_alloc(c->ctx, 100));
    c->memory = psrt_alloc(c->ctx, 4096);
    psrt_op_t *op = endless(c->ctx, c->table, c->value);
    c->wait = psrt_op_wait(op, PSRT_FOREVER);
    snprintf(c->text, sizeof c->text, "%s", psrt_last_error());
    psrt_op_release(op);
    c->blocking = psrt_pull(c->table, c->value, NULL);
    c->barrier = psrt_barrier(c->ctx, "b", 0, PSRT_FOREVER);
    dp.ndim = 1, dp.shape[0] = 1;
    c->create = psrt_dense_create(c->ctx, "other", &dp, &other);
    atomic_store(&c->done, 1);
}

Test(callback, may_call_what_does_not_block, .timeout = 20)
{
    calls_t c = { .ctx = open_context(NULL) };
    c.table = open_table(c.ctx, "x", "sync");
    c.value = psrt_alloc(c.ctx, N * sizeof(float));
    psrt_request_t r = PSRT_REQUEST_INIT;
    psrt_submit_params_t sp = PSRT_SUBMIT_PARAMS_INIT;
    psrt_op_t *op = NULL;
    r.table = c.table, r.grad = c.value;
    sp.callback = call_everything, sp.arg = &c;
    cr_assert_eq(psrt_submit(c.ctx, &r, 1, &sp, &op), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrt_op_wait(op, PSRT_FOREVER), PSRT_OK, "%s", psrt_last_error());
    cr_assert(atomic_load(&c.done));
    cr_assert_eq(c.query, PSRT_OK);
    cr_assert_eq(c.table_query, PSRT_OK);
    cr_assert_eq(c.step, 1);
    cr_assert_not_null(c.memory);
    cr_assert_eq(c.wait, PSRT_ERR_INVALID);
    cr_assert_not_null(strstr(c.text, "callback"), "%s", c.text);
    cr_assert_eq(c.blocking, PSRT_ERR_INVALID);
    cr_assert_eq(c.barrier, PSRT_ERR_INVALID);
    cr_assert_eq(c.create, PSRT_ERR_INVALID);
    psrt_context_destroy(c.ctx);
}

typedef struct self_release {
    psrt_op_t *_Atomic op;
    atomic_int ended;
} self_release_t;

static void release_self(void *arg, const psrt_result_t *result)
{
    self_release_t *s = arg;
    (void)result;
    psrt_op_release(atomic_exchange(&s->op, NULL));
    atomic_fetch_add(&s->ended, 1);
}

/* The op may be released by its own callback: that of an endless pull, which the end of the context
 * calls. */
Test(callback, may_release_its_operation, .timeout = 20)
{
    psrt_context_t *ctx = open_context(NULL);
    psrt_table_t *t = open_table(ctx, "x", "sync");
    float *v = psrt_alloc(ctx, N * sizeof *v);
    self_release_t s = { NULL, 0 };
    psrt_request_t r = PSRT_REQUEST_INIT;
    psrt_submit_params_t sp = PSRT_SUBMIT_PARAMS_INIT;
    psrt_op_t *op = NULL;
    r.table = t, r.value = v, r.step = NEVER;
    sp.callback = release_self, sp.arg = &s;
    cr_assert_eq(psrt_submit(ctx, &r, 1, &sp, &op), PSRT_OK);
    atomic_store(&s.op, op);
    psrt_context_destroy(ctx);
    cr_assert_eq(atomic_load(&s.ended), 1);
    cr_assert_null(atomic_load(&s.op));
}

/* ---- threads ----------------------------------------------------------------------------------- */

static void *wait_for_op(void *arg) { return (void *)(intptr_t)psrt_op_wait(arg, PSRT_FOREVER); }

/* One thread waits without end; the calls of another one come through, timeouts included. */
Test(threads, a_waiting_thread_holds_up_nobody, .timeout = 20)
{
    psrt_context_t *ctx = open_context(NULL);
    psrt_table_t *t = open_table(ctx, "x", "sync");
    float *v = psrt_alloc(ctx, 3 * N * sizeof *v);
    psrt_op_t *first = endless(ctx, t, v);
    pthread_t thread;
    void *status;
    memset(v, 0, 3 * N * sizeof *v);
    pthread_create(&thread, NULL, wait_for_op, first);
    for (int round = 0; round < 20; round++) {
        psrt_table_attr_t a = PSRT_TABLE_ATTR_INIT;
        psrt_op_t *second = endless(ctx, t, v + N);
        cr_assert_eq(psrt_op_wait(second, 5 * MS), PSRT_ERR_TIMEOUT);
        cr_assert_not_null(strstr(psrt_last_error(), "pull of table x"), "%s", psrt_last_error());
        psrt_op_release(second);
        void *p = psrt_alloc(ctx, 10000);
        cr_assert_not_null(p);
        psrt_free(ctx, p);
        cr_assert_eq(psrt_table_query(t, &a), PSRT_OK);
        open_table(ctx, round % 2 ? "odd" : "even", "sync");
    }
    for (int i = 0; i < NEVER; i++)
        cr_assert_eq(psrt_push(t, v + 2 * N, NULL), PSRT_OK);
    pthread_join(thread, &status);
    cr_assert_eq((psrt_status_t)(intptr_t)status, PSRT_OK);
    psrt_context_destroy(ctx);
}

/* ---- ends -------------------------------------------------------------------------------------- */

/* The context owns its operations: handles that were never released are freed with it. */
Test(ends, operations_are_freed_with_the_context, .timeout = 20)
{
    psrt_context_t *ctx = open_context(NULL);
    psrt_table_t *t = open_table(ctx, "x", "sync");
    float *v = psrt_alloc(ctx, N * sizeof *v);
    psrt_op_t *op = NULL;
    endless(ctx, t, v);
    cr_assert_eq(psrt_pull(t, v, &op), PSRT_OK);
    while (psrt_op_test(op, NULL) == PSRT_IN_PROGRESS) {}
    psrt_context_destroy(ctx);
}

static void count_lost(void *arg, int event, const char *text)
{
    (void)text;
    if (event == PSRT_EVENT_LOST) atomic_fetch_add((atomic_int *)arg, 1);
}

/* Leaving in order is no loss. */
Test(ends, an_orderly_end_is_no_event, .timeout = 20)
{
    psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
    psrt_context_t *ctx = NULL;
    atomic_int lost = 0;
    p.on_event = count_lost, p.arg = &lost;
    cr_assert_eq(psrt_context_create(&p, &ctx), PSRT_OK, "%s", psrt_last_error());
    open_table(ctx, "x", "sync");
    psrt_context_destroy(ctx);
    cr_assert_eq(atomic_load(&lost), 0);
}

static void count_line(void *arg, psrt_log_level_t level, const char *line)
{
    if (level > PSRT_LOG_WARN) return;
    fprintf(stderr, "%s\n", line);
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* Nor is it worth a warning, however short the life was: some connections are not even open yet. */
Test(ends, an_orderly_end_is_quiet, .timeout = 60)
{
    atomic_int lines = 0;
    psrt_log_set_sink(count_line, &lines);
    for (int round = 0; round < 40; round++)
        psrt_context_destroy(open_context(NULL));
    psrt_log_set_sink(NULL, NULL);
    cr_assert_eq(atomic_load(&lines), 0);
}

static int entries(const char *path, const char *prefix)
{
    DIR *dir = opendir(path);
    int n = 0;
    cr_assert_not_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    closedir(dir);
    return n;
}

static void cycle(const char *setting)
{
    psrt_context_t *ctx = open_context(setting);
    psrt_table_t *t = open_table(ctx, "x", "async");
    float *v = psrt_alloc(ctx, N * sizeof *v);
    cr_assert_eq(psrt_push(t, v, NULL), PSRT_OK, "%s", psrt_last_error());
    psrt_context_destroy(ctx);
}

/* Descriptors, threads and directories are as before. */
Test(ends, nothing_is_left_behind, .timeout = 240)
{
    static const char *const settings[] = { "PSRT_TRANSPORT=inproc", "PSRT_TRANSPORT=shm",
                                            "PSRT_TRANSPORT=zmq" };
    for (size_t i = 0; i < 3; i++) {
        cycle(settings[i]);
        int fds = entries("/proc/self/fd", ""), threads = entries("/proc/self/task", "");
        int dirs = entries("/tmp", "psrt-embedded-");
        for (int round = 0; round < 30; round++)
            cycle(settings[i]);
        cr_assert_eq(entries("/proc/self/fd", ""), fds, "%s: %d descriptors, %d before",
                     settings[i], entries("/proc/self/fd", ""), fds);
        cr_assert_leq(entries("/proc/self/task", ""), threads);
        cr_assert_leq(entries("/tmp", "psrt-embedded-"), dirs);
    }
}

/* A create that fails half way frees what it had made; the text of the first failure stays. */
Test(ends, a_failed_create_leaves_nothing, .timeout = 20)
{
    static const char *const bad[] = { "PSRT_BIND_ADDRESS=no.such.host.invalid", "PSRT_CPU=pentium",
                                       "PSRT_TRANSPORT=carrier-pigeon", "PSRT_FAULT=nonsense" };
    static const char *const named[] = { "no.such.host.invalid", "pentium", "carrier-pigeon",
                                         "nonsense" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *const settings[] = { bad[i], NULL };
        psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
        psrt_context_t *ctx = NULL;
        int fds = entries("/proc/self/fd", "");
        p.settings = settings;
        cr_assert_eq(psrt_context_create(&p, &ctx), PSRT_ERR_INVALID, "%s: %s", bad[i],
                     psrt_last_error());
        cr_assert_null(ctx);
        cr_assert_not_null(strstr(psrt_last_error(), named[i]), "%s: %s", bad[i],
                           psrt_last_error());
        cr_assert_eq(entries("/proc/self/fd", ""), fds, "%s", bad[i]);
    }
}

/* ---- memory ------------------------------------------------------------------------------------ */

Test(memory, an_impossible_size_is_an_error, .timeout = 20)
{
    static const char *const settings[] = { "PSRT_TRANSPORT=inproc", "PSRT_TRANSPORT=shm",
                                            "PSRT_TRANSPORT=zmq" };
    for (size_t i = 0; i < 3; i++) {
        psrt_context_t *ctx = open_context(settings[i]);
        static const uint64_t sizes[] = { 1ull << 50, 1ull << 63, UINT64_MAX };
        for (size_t s = 0; s < 3; s++) {
            char number[32];
            snprintf(number, sizeof number, "%llu", (unsigned long long)sizes[s]);
            cr_assert_null(psrt_alloc(ctx, sizes[s]));
            cr_assert_not_null(strstr(psrt_last_error(), number), "%s, %s bytes: %s", settings[i],
                               number, psrt_last_error());
        }
        float *p = psrt_alloc(ctx, 10000);
        cr_assert_not_null(p, "%s", psrt_last_error());
        for (int k = 0; k < 2500; k++)
            cr_assert_eq(p[k], 0);
        cr_assert_eq((uintptr_t)p % 4096, 0);
        psrt_context_destroy(ctx);
    }
}
