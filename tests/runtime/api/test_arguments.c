/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller can get wrong, function by function: a status, a text that names the argument, and
 * outputs that nobody touched. Then what can be asked about the build, and errors per thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <psrt/comm.h>
#include <psrt/psrt.h>

#include "support/test.h"

#define N 1000u

static psrt_context_t *ctx, *other;
static psrt_table_t *table, *foreign;
static float grad[N], value[N];

static psrt_table_t *open_table(psrt_context_t *c, const char *name)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    psrt_table_t *t = NULL;
    p.ndim = 1, p.shape[0] = N;
    cr_assert_eq(psrt_dense_create(c, name, &p, &t), PSRT_OK, "%s", psrt_last_error());
    return t;
}

static void setup(void)
{
    cr_assert_eq(psrt_context_create(NULL, &ctx), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrt_context_create(NULL, &other), PSRT_OK, "%s", psrt_last_error());
    table = open_table(ctx, "w");
    foreign = open_table(other, "foreign");
}

static void teardown(void)
{
    psrt_context_destroy(ctx);
    psrt_context_destroy(other);
}

static void is_told(psrt_status_t status, psrt_status_t expect, const char *word)
{
    cr_assert_eq(status, expect, "%s is %s: %s", word, psrt_status_name(status), psrt_last_error());
    cr_assert_not_null(strstr(psrt_last_error(), word), "%s: %s", word, psrt_last_error());
}

#define INVALID(call, word) is_told((call), PSRT_ERR_INVALID, (word))

/* ---- contexts ---------------------------------------------------------------------------------- */

Test(arguments, context_create, .timeout = 60)
{
    psrt_context_t *c = (psrt_context_t *)&c;
    psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
    INVALID(psrt_context_create(NULL, NULL), "ctx_p");
    p.size = 0;
    INVALID(psrt_context_create(&p, &c), "PSRT_CONTEXT_PARAMS_INIT");
    p.size = sizeof p + 8;
    INVALID(psrt_context_create(&p, &c), "PSRT_CONTEXT_PARAMS_INIT");
    p = (psrt_context_params_t)PSRT_CONTEXT_PARAMS_INIT;
    static const char *const bad[][2] = {
        { "nonsense", "nonsense" },
        { "=x", "unknown setting" },
        { "PSRT_RETRY", "PSRT_RETRY" },
        { "PSRT_RETYR=2s", "PSRT_RETRY" },
        { "PSRT_RETRY=soon", "PSRT_RETRY" },
        { "PSRT_RETRY=", "PSRT_RETRY" },
        { "PSRT_RANK=-1", "PSRT_RANK" },
        { "PSRT_RANK=1", "PSRT_RANK" },
        { "PSRT_WORKERS=2", "PSRT_WORKERS" },
        { "PSRT_ROLE=server", "PSRT_ROLE" },
        { "PSRT_COORDINATOR=tcp://127.0.0.1:1", "PSRT_ROLE" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *const settings[] = { bad[i][0], NULL };
        p.settings = settings;
        INVALID(psrt_context_create(&p, &c), bad[i][1]);
        cr_assert_eq(c, (psrt_context_t *)&c, "%s: the output was written", bad[i][0]);
    }
}

Test(arguments, an_empty_role_is_alone, .timeout = 60)
{
    psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
    const char *const settings[] = { "PSRT_ROLE=", NULL };
    psrt_context_t *c;
    p.settings = settings;
    cr_assert_eq(psrt_context_create(&p, &c), PSRT_OK, "%s", psrt_last_error());
    psrt_context_destroy(c);
}

Test(arguments, rank_and_key, .timeout = 60)
{
    psrt_context_t *c = NULL;
    psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
    const char *settings[] = { "PSRT_COORDINATOR=tcp://127.0.0.1:1", "PSRT_ROLE=worker",
                               "PSRT_WORKERS=2", "PSRT_RANK=2", NULL };
    p.settings = settings;
    INVALID(psrt_context_create(&p, &c), "PSRT_RANK");
    settings[3] = "PSRT_RANK=1";
    INVALID(psrt_context_create(&p, &c), "PSRT_KEY_FILE");
    cr_assert_null(c);
}

Test(arguments, context, .init = setup, .fini = teardown, .timeout = 60)
{
    psrt_context_attr_t a = PSRT_CONTEXT_ATTR_INIT;
    char name[300];
    INVALID(psrt_context_query(NULL, &a), "ctx");
    INVALID(psrt_context_query(ctx, NULL), "attr");
    a.size = 1;
    INVALID(psrt_context_query(ctx, &a), "attr");
    memset(name, 'b', sizeof name);
    name[256] = '\0';
    INVALID(psrt_barrier(NULL, "b", 0, 0), "ctx");
    INVALID(psrt_barrier(ctx, NULL, 0, 0), "name");
    INVALID(psrt_barrier(ctx, "", 0, 0), "name");
    INVALID(psrt_barrier(ctx, name, 0, 0), "name");
    INVALID(psrt_barrier(ctx, "b", 2, 0), "count");
    name[255] = '\0';
    cr_assert_eq(psrt_barrier(ctx, name, 1, PSRT_FOREVER), PSRT_OK, "%s", psrt_last_error());
    cr_assert_null(psrt_alloc(NULL, 1));
    cr_assert_not_null(strstr(psrt_last_error(), "context"));
    cr_assert_null(psrt_alloc(ctx, 0));
    cr_assert_not_null(strstr(psrt_last_error(), "0 bytes"));
    psrt_free(ctx, NULL);
    psrt_free(NULL, NULL);
    psrt_context_destroy(NULL);
}

/* ---- tables ------------------------------------------------------------------------------------ */

Test(arguments, dense_create, .init = setup, .fini = teardown, .timeout = 60)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT,
                        two[2] = { PSRT_DENSE_PARAMS_INIT, PSRT_DENSE_PARAMS_INIT };
    psrt_table_t *t = (psrt_table_t *)&t, *many[2] = { t, t };
    const char *names[] = { "fine", "bad" };
    p.ndim = 1, p.shape[0] = 1;
    INVALID(psrt_dense_create(NULL, "t", &p, &t), "ctx");
    INVALID(psrt_dense_create(ctx, NULL, &p, &t), "name");
    INVALID(psrt_dense_create(ctx, "", &p, &t), "name");
    INVALID(psrt_dense_create(ctx, "t", NULL, &t), "params");
    INVALID(psrt_dense_create(ctx, "t", &p, NULL), "table_p");
    INVALID(psrt_dense_create_many(ctx, 1, NULL, &p, &t), "names");
    p.ndim = 0;
    INVALID(psrt_dense_create(ctx, "t", &p, &t), "table t: ndim");
    p.ndim = 1, p.init = "rank0";
    INVALID(psrt_dense_create(ctx, "t", &p, &t), "init_data");
    two[0] = two[1] = p;
    two[0].init = NULL;
    INVALID(psrt_dense_create_many(ctx, 2, names, two, many), "table bad");
    cr_assert(t == (psrt_table_t *)&t && many[0] == t && many[1] == t);
    cr_assert_eq(psrt_dense_create_many(ctx, 0, NULL, NULL, NULL), PSRT_OK);
    p.init = NULL, p.shape[0] = 2;
    is_told(psrt_dense_create(ctx, "w", &p, &t), PSRT_ERR_MISMATCH, "[1000]");
    cr_assert_eq(t, (psrt_table_t *)&t);
}

Test(arguments, table_query, .init = setup, .fini = teardown, .timeout = 60)
{
    psrt_table_attr_t a = PSRT_TABLE_ATTR_INIT;
    INVALID(psrt_table_query(NULL, &a), "table");
    INVALID(psrt_table_query(table, NULL), "attr");
    cr_assert_eq(psrt_table_query(table, &a), PSRT_OK);
    cr_assert_str_eq(a.name, "w");
    cr_assert(a.dtype == PSRT_F32 && a.ndim == 1 && a.shape[0] == N && a.elements == N);
    cr_assert_eq(a.step, 0);
    a.size = 0;
    INVALID(psrt_table_query(table, &a), "attr");
}

Test(arguments, table_set, .init = setup, .fini = teardown, .timeout = 60)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    psrt_table_t *sgd, *async;
    uint64_t step = 77;
    p.ndim = 1, p.shape[0] = N, p.optimizer = "sgd:lr=1";
    cr_assert_eq(psrt_dense_create(ctx, "sgd", &p, &sgd), PSRT_OK);
    p.consistency = "async";
    cr_assert_eq(psrt_dense_create(ctx, "async", &p, &async), PSRT_OK);
    INVALID(psrt_table_set(NULL, "lr", 1, 0, &step), "table is NULL");
    INVALID(psrt_table_set(sgd, NULL, 1, 0, &step), "key is NULL");
    INVALID(psrt_table_set(table, "lr", 1, 0, &step), "table w: optimizer none");
    INVALID(psrt_table_set(sgd, "weight_decy", 1, 0, &step), "\"weight_decay\"");
    INVALID(psrt_table_set(sgd, "lr", -1, 0, &step), "table sgd: optimizer sgd with lr=-1");
    INVALID(psrt_table_set(async, "lr", 1, 3, &step), "PSRT_STEP_NEXT");
    cr_assert_eq(psrt_push_pull(sgd, grad, value, NULL), PSRT_OK);
    is_told(psrt_table_set(sgd, "lr", 1, 0, &step), PSRT_ERR_TOO_LATE, "table sgd: lr");
    cr_assert_eq(step, 77u);
    cr_assert_eq(psrt_table_set(sgd, "lr", 0.5, PSRT_STEP_NEXT, &step), PSRT_OK);
    cr_assert_eq(step, 1u);
    cr_assert_eq(psrt_table_set(async, "lr", 0.5, PSRT_STEP_NEXT, NULL), PSRT_OK);
    cr_assert_eq(psrt_dense_create(ctx, "async", &p, &async), PSRT_OK, "declared as before");
}

/* ---- requests ---------------------------------------------------------------------------------- */

static psrt_request_t request(uint64_t offset, uint64_t count)
{
    psrt_request_t r = PSRT_REQUEST_INIT;
    r.table = table, r.grad = grad, r.offset = offset, r.count = count;
    return r;
}

static void rejects(psrt_request_t r, const char *word)
{
    psrt_op_t *op = (psrt_op_t *)&op;
    psrt_request_t two[2] = { request(0, 0), r };
    INVALID(psrt_submit(ctx, &r, 1, NULL, &op), word);
    INVALID(psrt_submit(ctx, two, 2, NULL, &op), word);
    if (!r.table) INVALID(psrt_submit(ctx, two, 2, NULL, &op), "request 1: table is NULL");
    INVALID(psrt_submit(ctx, &r, 1, NULL, NULL), word);
    cr_assert_eq(op, (psrt_op_t *)&op);
}

Test(arguments, submit, .init = setup, .fini = teardown, .timeout = 60)
{
    psrt_request_t r = request(0, 0);
    psrt_submit_params_t sp = PSRT_SUBMIT_PARAMS_INIT;
    INVALID(psrt_submit(NULL, &r, 1, NULL, NULL), "ctx");
    INVALID(psrt_submit(ctx, NULL, 1, NULL, NULL), "requests");
    INVALID(psrt_submit(ctx, &r, 0, NULL, NULL), "count");
    sp.size = 0;
    INVALID(psrt_submit(ctx, &r, 1, &sp, NULL), "PSRT_SUBMIT_PARAMS_INIT");
    r.size = 0;
    rejects(r, "PSRT_REQUEST_INIT");
    r = request(0, 0), r.table = NULL;
    rejects(r, "table is NULL");
    r.table = foreign;
    rejects(r, "another context");
    r = request(0, 0), r.grad = NULL;
    rejects(r, "table w: neither grad nor value");
    r = request(0, 0), r.priority = 128;
    rejects(r, "table w: priority 128");
    r.priority = -129;
    rejects(r, "table w: priority -129");
    r = request(0, 0), r.grad = NULL, r.value = value, r.more = 1;
    rejects(r, "table w: `more`");
    r = request(0, 0), r.ema = 1;
    rejects(r, "table w: `ema` is for pulls alone");
    r.grad = NULL, r.value = value;
    rejects(r, "table w: `ema` is for pulls of a table");
    rejects(request(1, 0), "table w: a request of 0 elements");
    rejects(request(0, N + 1), "table w: elements 0 to 1001");
    rejects(request(N, 1), "table w: elements 1000 to 1001");
    rejects(request(N - 1, 2), "table w: elements");
    rejects(request(1, UINT64_MAX), "table w: elements");
    rejects(request(UINT64_MAX, 1), "table w: elements");
    rejects(request(UINT64_MAX, UINT64_MAX), "table w: elements");
    r = request(0, 10), r.value = grad;
    rejects(r, "table w: grad and value overlap");
    r.value = grad + 9;
    rejects(r, "overlap");
    r.value = grad + 10; /* beside each other is fine */
    cr_assert_eq(psrt_submit(ctx, &r, 1, NULL, NULL), PSRT_OK, "%s", psrt_last_error());
    /* What was refused moved no clock. */
    psrt_table_attr_t a = PSRT_TABLE_ATTR_INIT;
    cr_assert_eq(psrt_table_query(table, &a), PSRT_OK);
    cr_assert_eq(a.step, 1);
}

Test(arguments, short_forms, .init = setup, .fini = teardown, .timeout = 60)
{
    INVALID(psrt_push(NULL, grad, NULL), "psrt_push: table");
    INVALID(psrt_push(table, NULL, NULL), "psrt_push: grad");
    INVALID(psrt_pull(NULL, value, NULL), "psrt_pull: table");
    INVALID(psrt_pull(table, NULL, NULL), "psrt_pull: value");
    INVALID(psrt_push_pull(NULL, grad, value, NULL), "psrt_push_pull: table");
    INVALID(psrt_push_pull(table, NULL, value, NULL), "psrt_push_pull: grad");
    INVALID(psrt_push_pull(table, grad, NULL, NULL), "psrt_push_pull: value");
}

Test(arguments, no_operation, .timeout = 60)
{
    psrt_result_t r = { PSRT_ERR_IO, 1, 1, 1 };
    cr_assert_eq(psrt_op_wait(NULL, 0), PSRT_OK);
    cr_assert_eq(psrt_op_test(NULL, NULL), PSRT_OK);
    cr_assert_eq(psrt_op_test(NULL, &r), PSRT_OK);
    cr_assert(r.status == PSRT_OK && r.late == 0 && r.step == 0 && r.version == 0);
    psrt_op_release(NULL);
}

/* ---- servers and coordinator ------------------------------------------------------------------- */

Test(arguments, servers, .timeout = 60)
{
    psrt_server_params_t p = PSRT_SERVER_PARAMS_INIT;
    const char *settings[] = { "PSRT_SERVERS=2", "PSRT_COORDINATOR=tcp://127.0.0.1:1",
                               "PSRT_ROLE=server", "PSRT_RANK=2", NULL };
    p.size = 0;
    INVALID(psrt_server_run(&p), "psrt_server_run");
    INVALID(psrt_coordinator_run(&p), "psrt_coordinator_run");
    p.size = sizeof p;
    INVALID(psrt_server_run(NULL), "PSRT_COORDINATOR");
    INVALID(psrt_coordinator_run(NULL), "PSRT_COORDINATOR");
    p.settings = settings;
    INVALID(psrt_server_run(&p), "PSRT_RANK");
    INVALID(psrt_coordinator_run(&p), "PSRT_ROLE");
    settings[3] = "PSRT_RANK=1";
    INVALID(psrt_server_run(&p), "PSRT_KEY_FILE");
    settings[2] = "PSRT_ROLE=coordinator";
    INVALID(psrt_coordinator_run(&p), "PSRT_KEY_FILE");
    INVALID(psrt_server_run(&p), "PSRT_ROLE");
}

/* ---- what can be asked ------------------------------------------------------------------------- */

Test(questions, configuration, .timeout = 60)
{
    psrt_config_info_t i = { .size = 0 };
    size_t n = 0, found = 0;
    INVALID(psrt_config_query(0, NULL), "size");
    INVALID(psrt_config_query(0, &i), "size");
    setenv("PSRT_RETRY", "7s", 1);
    for (psrt_status_t rc = PSRT_OK;; n++) {
        memset(&i, 0, sizeof i);
        i.size = sizeof i;
        if ((rc = psrt_config_query(n, &i)) == PSRT_ERR_NOT_FOUND) break;
        cr_assert_eq(rc, PSRT_OK, "%s", psrt_last_error());
        cr_assert(i.name && i.type && i.default_text && i.doc && *i.doc, "entry %zu", n);
        cr_assert_eq(strncmp(i.name, "PSRT_", 5), 0);
        cr_assert_eq(strcmp(i.type, "enum") == 0, i.choices != NULL, "%s", i.name);
        if (strcmp(i.name, "PSRT_RETRY") == 0) {
            found++;
            cr_assert_str_eq(i.value, "7s");
            cr_assert_str_eq(i.origin, "environment");
            cr_assert_str_eq(i.default_text, "2s");
        } else if (strcmp(i.name, "PSRT_LEASE") == 0) {
            found++;
            cr_assert_str_eq(i.value, "5s");
            cr_assert_str_eq(i.origin, "default");
        }
        cr_assert_lt(n, 1000);
    }
    cr_assert_eq(found, 2);
    i.size = sizeof i;
    cr_assert_eq(psrt_config_query(SIZE_MAX, &i), PSRT_ERR_NOT_FOUND);
    setenv("PSRT_RETRY", "soon", 1);
    INVALID(psrt_config_query(0, &i), "PSRT_RETRY");
}

static int has_module(const char *kind, const char *name, int available)
{
    psrt_module_info_t m = { .size = sizeof m };
    for (size_t i = 0; psrt_module_query(i, &m) == PSRT_OK; i++)
        if (strcmp(m.kind, kind) == 0 && strcmp(m.name, name) == 0) return m.available == available;
    return 0;
}

Test(questions, modules, .timeout = 60)
{
    static const char *const optimizers[] = { "sgd", "momentum", "adam" };
    static const char *const transports[] = { "inproc", "shm", "zmq" };
    psrt_module_info_t m = { .size = 0 };
    size_t n = 0;
    INVALID(psrt_module_query(0, NULL), "size");
    INVALID(psrt_module_query(0, &m), "size");
    m.size = sizeof m;
    while (psrt_module_query(n, &m) == PSRT_OK) {
        cr_assert(*m.kind && *m.name, "entry %zu", n);
        cr_assert_lt(++n, 1000);
    }
    is_told(psrt_module_query(n, &m), PSRT_ERR_NOT_FOUND, "module");
    is_told(psrt_module_query(SIZE_MAX, &m), PSRT_ERR_NOT_FOUND, "module");
    for (size_t i = 0; i < 3; i++) {
        cr_assert(has_module("transport", transports[i], 1), "%s", transports[i]);
        cr_assert(has_module("optimizer", optimizers[i], 1), "%s", optimizers[i]);
    }
    cr_assert(has_module("kernels", "scalar", 1));
    cr_assert(has_module("module", "rdma", 0));
    cr_assert(has_module("module", "cuda", 0));
}

Test(questions, topology, .timeout = 60)
{
    char full[512], cut[8], one[1] = { 'x' };
    memset(cut, 'x', sizeof cut);
    psrt_topology_describe(full, sizeof full);
    cr_assert_gt(strlen(full), sizeof cut);
    cr_assert_null(strchr(full, '\n'));
    psrt_topology_describe(cut, sizeof cut);
    cr_assert_eq(strlen(cut), sizeof cut - 1);
    cr_assert_eq(strncmp(cut, full, sizeof cut - 1), 0);
    psrt_topology_describe(one, 1);
    cr_assert_eq(one[0], '\0');
    psrt_topology_describe(NULL, 10);
    psrt_topology_describe(full, 0);
}

Test(questions, versions_types_and_codes, .timeout = 60)
{
    cr_assert_str_eq(psrt_version(), PSRT_VERSION_STRING);
    cr_assert_eq(psrt_dtype_size(PSRT_F64), 8);
    cr_assert_eq(psrt_dtype_size(PSRT_BF16), 2);
    cr_assert_eq(psrt_dtype_size(PSRT_DTYPE_NONE), 0);
    cr_assert_eq(psrt_dtype_size((psrt_dtype_t)-1), 0);
    cr_assert_str_eq(psrt_dtype_name(PSRT_F32), "f32");
    cr_assert_str_eq(psrt_dtype_name((psrt_dtype_t)77), "none");
    cr_assert_str_eq(psrt_status_name(PSRT_ERR_SHARD_LOST), "PSRT_ERR_SHARD_LOST");
    cr_assert_str_eq(psrt_status_name((psrt_status_t)-1000), "PSRT_UNKNOWN");
    cr_assert_str_eq(psrt_status_text((psrt_status_t)1000), "unknown status");
}

/* ---- errors per thread ------------------------------------------------------------------------- */

static void *fail_elsewhere(void *arg)
{
    cr_assert_str_eq(psrt_last_error(), "");
    (void)psrt_barrier(NULL, "b", 0, 0);
    snprintf(arg, 512, "%s", psrt_last_error());
    return NULL;
}

Test(errors, are_per_thread, .timeout = 60)
{
    char mine[512], theirs[512] = "";
    pthread_t thread;
    cr_assert_str_eq(psrt_last_error(), "");
    INVALID(psrt_push(NULL, NULL, NULL), "psrt_push");
    snprintf(mine, sizeof mine, "%s", psrt_last_error());
    pthread_create(&thread, NULL, fail_elsewhere, theirs);
    pthread_join(thread, NULL);
    cr_assert_not_null(strstr(theirs, "psrt_barrier"), "%s", theirs);
    cr_assert_str_eq(psrt_last_error(), mine);
    cr_assert_eq(psrt_op_wait(NULL, 0), PSRT_OK); /* success does not touch it */
    cr_assert_str_eq(psrt_last_error(), mine);
}

static void *wait_elsewhere(void *arg)
{
    cr_assert_eq(psrt_op_wait(arg, 1000000), PSRT_ERR_TIMEOUT);
    cr_assert_not_null(strstr(psrt_last_error(), "table w"), "%s", psrt_last_error());
    return NULL;
}

/* The text of an op reaches the thread that waits for it, and no other. */
Test(errors, of_an_operation_reach_the_waiter, .init = setup, .fini = teardown, .timeout = 60)
{
    psrt_request_t r = PSRT_REQUEST_INIT;
    psrt_op_t *op = NULL;
    pthread_t thread;
    char before[512];
    r.table = table, r.value = value, r.step = 1;
    cr_assert_eq(psrt_submit(ctx, &r, 1, NULL, &op), PSRT_OK);
    snprintf(before, sizeof before, "%s", psrt_last_error());
    pthread_create(&thread, NULL, wait_elsewhere, op);
    pthread_join(thread, NULL);
    cr_assert_str_eq(psrt_last_error(), before);
    cr_assert_eq(psrt_push(table, grad, NULL), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrt_op_wait(op, PSRT_FOREVER), PSRT_OK, "%s", psrt_last_error());
}

Test(arguments, what_one_sends_itself_is_what_it_expects, .init = setup, .fini = teardown,
     .timeout = 60)
{
    psrt_comm_t *comm;
    uint64_t two = 2, three = 3;
    float in[3] = { 1, 2, 3 }, out[3] = { 0 };
    cr_assert_eq(psrt_comm_create(ctx, NULL, &comm, NULL), PSRT_OK, "%s", psrt_last_error());
    cr_assert_eq(psrt_alltoallv(comm, in, &three, NULL, out, &two, NULL, PSRT_F32, NULL),
                 PSRT_ERR_INVALID);
    cr_assert(strstr(psrt_last_error(), "sends 3 elements to itself and expects 2"), "%s",
              psrt_last_error());
    cr_assert_eq(psrt_alltoallv(comm, in, &three, NULL, out, &three, NULL, PSRT_F32, NULL),
                 PSRT_OK);
    cr_assert_eq(out[2], 3);
    psrt_comm_free(comm);
}
