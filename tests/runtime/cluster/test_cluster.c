/* SPDX-License-Identifier: Apache-2.0 */
/* The drivers with real threads and transports: 3 workers, 2 servers and a coordinator in a
 * process. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/cluster/coordinator.h"
#include "runtime/cluster/member.h"
#include "support/test.h"
#include "transport/transport.h"

#define WORKERS 3
#define SERVERS 2
#define MAX_TABLES 8

typedef struct node {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    psrti_member_t *member;
    uint64_t incarnation;
    psrti_view_t *view;
    uint64_t commit_worker_plus1, commit_step;
    size_t nanswers; /* tables answered in request order of arrival */
    uint64_t request[MAX_TABLES];
    uint32_t id[MAX_TABLES];
    psrt_status_t status[MAX_TABLES];
    uint64_t first_step[MAX_TABLES];
    char text[MAX_TABLES][256];
    int ended;
    psrt_status_t end_status;
    char end_text[256];
    psrt_status_t barrier_status;
    pthread_t thread;
} node_t;

typedef struct cluster {
    psrti_config_t *config;
    psrti_jobkey_t key;
    const char *transport;
    psrti_coordinator_t *coord;
    volatile int stop;
    pthread_t thread;
    psrt_status_t coord_status;
    char coord_text[256];
    char state[64];
    char bind[64];
    char addr[PSRT_ADDR_MAX];
    node_t workers[WORKERS], servers[SERVERS];
} cluster_t;

/* ---- nodes ----------------------------------------------------------------------------------- */

static void on_joined(void *arg, uint64_t incarnation)
{
    node_t *n = arg;
    pthread_mutex_lock(&n->lock);
    n->incarnation = incarnation;
    pthread_mutex_unlock(&n->lock);
}

static void on_view(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                    const uint32_t *table, const uint64_t *from_step)
{
    node_t *n = arg;
    pthread_mutex_lock(&n->lock);
    psrti_view_unref(n->view);
    n->view = psrti_view_ref(view);
    if (from_step) {
        n->commit_worker_plus1 = worker + 1;
        if (count == 1 && table[0] == 1) n->commit_step = from_step[0];
    }
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void on_declared(void *arg, uint64_t request, size_t count,
                        const psrti_member_table_t *tables)
{
    node_t *n = arg;
    pthread_mutex_lock(&n->lock);
    for (size_t i = 0; i < count && n->nanswers < MAX_TABLES; i++) {
        size_t at = n->nanswers++;
        n->request[at] = request;
        n->id[at] = tables[i].id;
        n->status[at] = tables[i].status;
        n->first_step[at] = tables[i].first_step;
        snprintf(n->text[at], sizeof n->text[at], "%s", tables[i].text);
    }
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

/* The lock is held while the member starts, so its handle is there when a callback needs it. */
static psrti_member_t *member_of(node_t *n)
{
    pthread_mutex_lock(&n->lock);
    psrti_member_t *m = n->member;
    pthread_mutex_unlock(&n->lock);
    return m;
}

static void on_hold(void *arg, size_t count, const psrti_member_table_t *tables)
{
    psrti_member_held(member_of(arg), count, tables);
}

static void on_prepare(void *arg, uint64_t view, uint32_t worker)
{
    uint32_t table = 1;
    uint64_t open = 41;
    (void)worker;
    psrti_member_prepared(member_of(arg), view, 1, &table, &open);
}

static void on_end(void *arg, psrt_status_t status, const char *text)
{
    node_t *n = arg;
    pthread_mutex_lock(&n->lock);
    n->ended = 1;
    n->end_status = status;
    snprintf(n->end_text, sizeof n->end_text, "%s", text);
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void node_start(cluster_t *c, node_t *n, uint32_t task)
{
    psrti_view_owner_t thread = { .naddrs = 1 };
    int server = PSRTI_TASK_ROLE(task) == PSRTI_SERVER;
    snprintf(thread.addr[0], PSRT_ADDR_MAX, "address of %u", PSRTI_TASK_RANK(task));
    psrti_member_params_t p = {
        .config = c->config,
        .key = &c->key,
        .task = task,
        .workers = WORKERS,
        .servers = SERVERS,
        .coordinator = c->addr,
        .nthreads = (uint32_t)server,
        .threads = server ? &thread : NULL,
        .arg = n,
        .on_joined = on_joined,
        .on_view = on_view,
        .on_declared = on_declared,
        .on_hold = on_hold,
        .on_prepare = on_prepare,
        .on_end = on_end,
    };
    pthread_mutex_lock(&n->lock);
    psrt_status_t st = psrti_member_start(&p, &n->member);
    pthread_mutex_unlock(&n->lock);
    cr_assert_eq(st, PSRT_OK, "%s", psrt_last_error());
}

static void node_stop(node_t *n)
{
    psrti_member_stop(n->member);
    n->member = NULL;
    psrti_view_unref(n->view);
    n->view = NULL;
}

static void wait_answers(node_t *n, size_t count)
{
    pthread_mutex_lock(&n->lock);
    while (n->nanswers < count && !n->ended)
        pthread_cond_wait(&n->changed, &n->lock);
    size_t answers = n->nanswers;
    pthread_mutex_unlock(&n->lock);
    cr_assert_eq(answers, count);
}

static void wait_end(node_t *n)
{
    pthread_mutex_lock(&n->lock);
    while (!n->ended)
        pthread_cond_wait(&n->changed, &n->lock);
    pthread_mutex_unlock(&n->lock);
}

static psrti_table_spec_t spec_of(const char *name, uint64_t rows)
{
    psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
    psrti_table_spec_t spec;
    p.ndim = 2;
    p.shape[0] = rows;
    p.shape[1] = 7;
    cr_assert_eq(psrti_table_spec_make(name, &p, &spec), PSRT_OK, "%s", psrt_last_error());
    return spec;
}

/* ---- cluster --------------------------------------------------------------------------------- */

static void *serve(void *arg)
{
    cluster_t *c = arg;
    c->coord_status = psrti_coordinator_serve(c->coord, &c->stop);
    if (c->coord_status != PSRT_OK)
        snprintf(c->coord_text, sizeof c->coord_text, "%s", psrt_last_error());
    return NULL;
}

static void coord_open(cluster_t *c)
{
    psrti_coordinator_params_t p = {
        .config = c->config,
        .key = &c->key,
        .workers = WORKERS,
        .servers = SERVERS,
        .transports = c->transport,
        .listen_fd = -1,
        .bind_address = *c->bind ? c->bind : NULL,
        .state_file = *c->state ? c->state : NULL,
    };
    cr_assert_eq(psrti_coordinator_open(&p, &c->coord), PSRT_OK, "%s", psrt_last_error());
    snprintf(c->addr, sizeof c->addr, "%s", psrti_coordinator_addr(c->coord));
    c->stop = 0;
    cr_assert_eq(pthread_create(&c->thread, NULL, serve, c), 0);
}

static psrt_status_t coord_join(cluster_t *c)
{
    pthread_join(c->thread, NULL);
    psrti_coordinator_close(c->coord);
    c->coord = NULL;
    return c->coord_status;
}

static void coord_stop(cluster_t *c)
{
    __atomic_store_n(&c->stop, 1, __ATOMIC_RELEASE);
    cr_assert_eq(coord_join(c), PSRT_OK);
}

static void node_init(node_t *n)
{
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
}

static cluster_t *cluster_new(const char *transport, const char *start_timeout)
{
    cluster_t *c = calloc(1, sizeof *c);
    static const char *const set[][2] = {
        { "PSRT_HEARTBEAT", "50ms" },
        { "PSRT_LEASE", "2s" },
        { "PSRT_VSHARDS", "16" },
        { "PSRT_DRAIN_TIMEOUT", "1s" },
    };

    cr_assert_eq(psrti_config_create(&c->config), PSRT_OK);
    for (size_t i = 0; i < PSRTI_COUNT(set); i++)
        cr_assert_eq(psrti_config_set(c->config, set[i][0], set[i][1]), PSRT_OK);
    cr_assert_eq(psrti_config_set(c->config, "PSRT_START_TIMEOUT", start_timeout), PSRT_OK);
    cr_assert_eq(psrti_jobkey_generate(&c->key), PSRT_OK);
    c->transport = transport;
    for (int i = 0; i < WORKERS; i++)
        node_init(&c->workers[i]);
    for (int i = 0; i < SERVERS; i++)
        node_init(&c->servers[i]);
    return c;
}

static void cluster_free(cluster_t *c)
{
    for (int i = 0; i < WORKERS; i++)
        node_stop(&c->workers[i]);
    for (int i = 0; i < SERVERS; i++)
        node_stop(&c->servers[i]);
    psrti_config_destroy(c->config);
    free(c);
}

/* The servers, and so many workers. */
static void start_some(cluster_t *c, uint32_t workers)
{
    for (uint32_t i = 0; i < workers; i++)
        node_start(c, &c->workers[i], PSRTI_TASK(PSRTI_WORKER, i));
    for (uint32_t i = 0; i < SERVERS; i++)
        node_start(c, &c->servers[i], PSRTI_TASK(PSRTI_SERVER, i));
    for (uint32_t i = 0; i < workers; i++)
        cr_assert_eq(psrti_member_wait_ready(c->workers[i].member), PSRT_OK, "%s",
                     psrt_last_error());
    for (uint32_t i = 0; i < SERVERS; i++)
        cr_assert_eq(psrti_member_wait_ready(c->servers[i].member), PSRT_OK, "%s",
                     psrt_last_error());
}

static void start_all(cluster_t *c) { start_some(c, WORKERS); }

static void finish_all(cluster_t *c)
{
    for (int i = 0; i < WORKERS; i++)
        psrti_member_leave(c->workers[i].member, 0);
    for (int i = 0; i < SERVERS; i++) {
        wait_end(&c->servers[i]);
        cr_assert_eq(c->servers[i].end_status, PSRT_OK, "%s", c->servers[i].end_text);
    }
    cr_assert_eq(coord_join(c), PSRT_OK, "%s", c->coord_text);
}

static void *meet(void *arg)
{
    node_t *n = arg;
    n->barrier_status = psrti_member_barrier(n->member, "epoch", 0, PSRT_FOREVER);
    return NULL;
}

static void meet_all(cluster_t *c)
{
    for (int i = 0; i < WORKERS; i++)
        cr_assert_eq(pthread_create(&c->workers[i].thread, NULL, meet, &c->workers[i]), 0);
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(c->workers[i].thread, NULL);
        cr_assert_eq(c->workers[i].barrier_status, PSRT_OK);
    }
}

static void check_view(const cluster_t *c)
{
    const psrti_view_t *v = c->workers[0].view;
    uint32_t count[SERVERS] = { 0 };

    cr_assert_eq(v->nworkers, WORKERS);
    cr_assert_eq(v->nowners, SERVERS);
    cr_assert_eq(v->nvshards, 16);
    for (int i = 0; i < WORKERS; i++) {
        cr_assert_eq(v->workers[i].alive, 1);
        cr_assert_eq(v->workers[i].incarnation, c->workers[i].incarnation);
    }
    for (int i = 0; i < SERVERS; i++) {
        char addr[PSRT_ADDR_MAX];
        snprintf(addr, sizeof addr, "address of %d", i);
        cr_assert_eq(v->owners[i].incarnation, c->servers[i].incarnation);
        cr_assert_str_eq(v->owners[i].addr[0], addr);
    }
    for (uint32_t s = 0; s < 16; s++) {
        cr_assert_eq(v->vshards[s].term, 1);
        count[v->vshards[s].owner]++;
    }
    cr_assert_eq(count[0], 8);
    cr_assert_eq(count[1], 8);
}

static void whole_job(const char *transport)
{
    cluster_t *c = cluster_new(transport, "30s");
    coord_open(c);
    start_all(c);
    check_view(c);
    psrti_table_spec_t specs[2] = { spec_of("b", 3), spec_of("a", 5) }, other = spec_of("a", 6);
    for (int i = 0; i < WORKERS; i++)
        psrti_member_declare(c->workers[i].member, 1, 2, specs);
    for (int i = 0; i < WORKERS; i++)
        wait_answers(&c->workers[i], 2);
    for (int i = 0; i < WORKERS; i++) {
        cr_assert_eq(c->workers[i].status[0], PSRT_OK);
        cr_assert_eq(c->workers[i].id[0], c->workers[0].id[0]);
        cr_assert_neq(c->workers[i].id[0], c->workers[i].id[1]);
    }
    /* After the first push a mismatch is the newcomer's alone; before, everybody's. */
    psrti_member_used(c->workers[0].member, c->workers[0].id[0]);
    psrti_table_spec_t used = spec_of("b", 4);
    psrti_member_declare(c->workers[0].member, 2, 1, &used);
    wait_answers(&c->workers[0], 3);
    cr_assert_eq(c->workers[0].status[2], PSRT_ERR_MISMATCH);
    psrti_member_declare(c->workers[1].member, 2, 1, &other);
    wait_answers(&c->workers[1], 4);
    wait_answers(&c->workers[0], 4);
    wait_answers(&c->workers[2], 3);
    cr_assert_eq(c->workers[2].status[2], PSRT_ERR_MISMATCH);
    cr_assert_eq(c->workers[2].request[2], 0);
    cr_assert_eq(c->workers[2].id[2], c->workers[2].id[1]);
    cr_assert(strstr(c->workers[2].text[2], "table a:"), "%s", c->workers[2].text[2]);
    meet_all(c);
    meet_all(c);
    finish_all(c);
    cluster_free(c);
}

Test(cluster, whole_job_inproc, .timeout = 120) { whole_job("inproc"); }

Test(cluster, whole_job_zmq, .timeout = 120)
{
    if (!psrti_transport_find("zmq")) cr_skip_test("no zmq in this build");
    whole_job("zmq");
}

Test(cluster, start_timeout_names_the_missing, .timeout = 120)
{
    cluster_t *c = cluster_new("inproc", "300ms");
    coord_open(c);
    node_start(c, &c->workers[0], PSRTI_TASK(PSRTI_WORKER, 0));
    node_start(c, &c->workers[2], PSRTI_TASK(PSRTI_WORKER, 2));
    node_start(c, &c->servers[1], PSRTI_TASK(PSRTI_SERVER, 1));
    const char *text =
        "job did not assemble within 0.3 s: missing worker:1, server:0 (3 of 5 joined)";
    cr_assert_eq(psrti_member_wait_ready(c->workers[0].member), PSRT_ERR_START_TIMEOUT);
    cr_assert_str_eq(psrt_last_error(), text);
    wait_end(&c->servers[1]);
    cr_assert_str_eq(c->servers[1].end_text, text);
    cr_assert_eq(coord_join(c), PSRT_ERR_START_TIMEOUT);
    cr_assert_str_eq(c->coord_text, text);
    cluster_free(c);
}

Test(cluster, barrier_timeout_names_the_missing, .timeout = 120)
{
    cluster_t *c = cluster_new("inproc", "30s");
    coord_open(c);
    start_all(c);
    cr_assert_eq(psrti_member_barrier(c->workers[1].member, "half", 0, 50 * PSRTI_NS_PER_MS),
                 PSRT_ERR_TIMEOUT);
    cr_assert_str_eq(psrt_last_error(), "barrier \"half\": waiting for worker:0, worker:2");
    meet_all(c);
    finish_all(c);
    cluster_free(c);
}

/* ---- coming back ----------------------------------------------------------------------------- */

static void forget(node_t *n)
{
    node_stop(n);
    n->incarnation = 0;
    n->nanswers = 0;
    n->ended = 0;
}

/* A worker that dies and is started again in its place enters a running job. */
Test(cluster, a_worker_joins_late, .timeout = 120)
{
    cluster_t *c = cluster_new("inproc", "30s");
    coord_open(c);
    start_all(c);
    psrti_table_spec_t spec = spec_of("t", 3 * PSRTI_SLICE_ELEMS); /* with a part on every server */
    psrti_member_declare(c->workers[0].member, 1, 1, &spec);
    wait_answers(&c->workers[0], 1);
    cr_assert_eq(c->workers[0].id[0], 1); /* the table that on_prepare reports */
    uint64_t first_life = c->workers[1].incarnation;
    forget(&c->workers[1]);
    node_start(c, &c->workers[1], PSRTI_TASK(PSRTI_WORKER, 1));
    cr_assert_eq(psrti_member_wait_ready(c->workers[1].member), PSRT_OK, "%s", psrt_last_error());
    cr_assert(c->workers[1].incarnation > first_life);
    psrti_member_declare(c->workers[1].member, 1, 1, &spec);
    wait_answers(&c->workers[1], 1);
    cr_assert_eq(c->workers[1].status[0], PSRT_OK);
    cr_assert_eq(c->workers[1].id[0], 1);
    cr_assert_eq(c->workers[1].first_step[0], 42);
    for (int i = 0; i < SERVERS; i++) {
        pthread_mutex_lock(&c->servers[i].lock);
        cr_assert_eq(c->servers[i].commit_worker_plus1, 2);
        cr_assert_eq(c->servers[i].commit_step, 42);
        pthread_mutex_unlock(&c->servers[i].lock);
    }
    meet_all(c);
    finish_all(c);
    cluster_free(c);
}

/* One that was never there before does so in the same way. */
Test(cluster, a_worker_joins_for_the_first_time_when_the_job_runs, .timeout = 120)
{
    cluster_t *c = cluster_new("inproc", "30s");
    cr_assert_eq(psrti_config_set(c->config, "PSRT_START_WORKERS", "2"), PSRT_OK);
    coord_open(c);
    start_some(c, 2);
    psrti_table_spec_t spec = spec_of("t", 3 * PSRTI_SLICE_ELEMS);
    psrti_member_declare(c->workers[0].member, 1, 1, &spec);
    wait_answers(&c->workers[0], 1);
    cr_assert_eq(c->workers[0].first_step[0], 0);
    cr_assert(!c->workers[0].view->workers[2].alive);
    node_start(c, &c->workers[2], PSRTI_TASK(PSRTI_WORKER, 2));
    cr_assert_eq(psrti_member_wait_ready(c->workers[2].member), PSRT_OK, "%s", psrt_last_error());
    psrti_member_declare(c->workers[2].member, 1, 1, &spec);
    wait_answers(&c->workers[2], 1);
    cr_assert_eq(c->workers[2].status[0], PSRT_OK);
    cr_assert_eq(c->workers[2].first_step[0], 42);
    meet_all(c);
    finish_all(c);
    cluster_free(c);
}

Test(cluster, a_taken_rank_is_refused, .timeout = 120)
{
    cluster_t *c = cluster_new("inproc", "30s");
    node_t second;
    char text[128], host[64] = "";
    coord_open(c);
    start_all(c);
    memset(&second, 0, sizeof second);
    node_init(&second);
    node_start(c, &second, PSRTI_TASK(PSRTI_WORKER, 1));
    cr_assert_eq(psrti_member_wait_ready(second.member), PSRT_ERR_REFUSED);
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "worker:1 is already taken by pid %d on host %s", (int)getpid(),
             host);
    cr_assert_str_eq(psrt_last_error(), text);
    node_stop(&second);
    meet_all(c);
    finish_all(c);
    cluster_free(c);
}

Test(cluster, the_coordinator_comes_back, .timeout = 120)
{
    if (!psrti_transport_find("zmq")) cr_skip_test("no zmq in this build");
    cluster_t *c = cluster_new("zmq", "30s");
    char dir[] = "/tmp/psrt-test-XXXXXX";
    cr_assert(mkdtemp(dir) != NULL);
    snprintf(c->state, sizeof c->state, "%s/state", dir);
    coord_open(c);
    start_all(c);
    psrti_table_spec_t specs[2] = { spec_of("t", 3), spec_of("u", 4) };
    psrti_member_declare(c->workers[0].member, 1, 1, &specs[0]);
    wait_answers(&c->workers[0], 1);
    uint64_t view = c->workers[0].view->number, incarnation = c->workers[0].incarnation;
    snprintf(c->bind, sizeof c->bind, "%s", c->addr + strlen("tcp://"));
    coord_stop(c);
    /* What is asked meanwhile is answered afterwards. */
    psrti_member_declare(c->workers[0].member, 2, 2, specs);
    psrti_member_declare(c->workers[2].member, 1, 1, specs);
    coord_open(c);
    wait_answers(&c->workers[0], 3);
    wait_answers(&c->workers[2], 1);
    cr_assert_eq(c->workers[0].id[1], c->workers[0].id[0]);
    cr_assert_eq(c->workers[2].id[0], c->workers[0].id[0]);
    cr_assert(c->workers[0].id[2] > c->workers[0].id[0]);
    meet_all(c);
    pthread_mutex_lock(&c->workers[0].lock);
    cr_assert(c->workers[0].view->number > view);
    cr_assert_eq(c->workers[0].view->generation, 2);
    cr_assert_eq(c->workers[0].view->workers[0].incarnation, incarnation);
    pthread_mutex_unlock(&c->workers[0].lock);
    finish_all(c);
    cr_assert_eq(rmdir(dir), 0, "the state of a job that ended is left");
    cluster_free(c);
}

Test(cluster, no_coordinator, .timeout = 120)
{
    cluster_t *c = cluster_new("inproc", "300ms");
    coord_open(c);
    coord_stop(c);
    node_start(c, &c->workers[0], PSRTI_TASK(PSRTI_WORKER, 0));
    cr_assert_eq(psrti_member_wait_ready(c->workers[0].member), PSRT_ERR_UNREACHABLE);
    cr_assert(strstr(psrt_last_error(), c->addr), "%s", psrt_last_error());
    cluster_free(c);
}
