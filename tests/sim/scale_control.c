/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane of one job: the coordinator's core and a member's core for every task. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cluster/coord_core.h"
#include "runtime/cluster/member_core.h"
#include "scale.h"
#include "support/test.h"
#include "transport/frame.h"

#define BEAT PSRTI_NS_PER_S
#define LEASE (5 * BEAT)
#define VSHARDS 1024
#define OPEN_STEP 4 /* of every table, when a worker joins late */

typedef struct task {
    scale_control_t *job;
    uint32_t id, index;
    uint64_t peer; /* its connection; 0: none */
    uint64_t nonce, down;
    psrti_member_core_t *core; /* NULL: killed */
    psrti_view_owner_t thread;
    uint32_t *held;
    uint32_t nheld, room;
} task_t;

typedef struct packet {
    struct packet *next;
    uint64_t peer;
    int up;     /* to the coordinator */
    size_t len; /* 0: the connection was made */
    uint8_t bytes[];
} packet_t;

struct scale_control {
    scale_size_t size;
    psrti_coord_t *coord;
    task_t *tasks; /* servers first */
    uint32_t ntasks;
    uint64_t now, peers, requests, nonces;
    packet_t *first, **last;
    char *state;
    size_t state_len;
    scale_cost_t cost;
    uint32_t answered; /* tables in answers to declares */
    int done;          /* barriers                      */
};

static scale_role_t role_of(const task_t *t)
{
    return PSRTI_TASK_ROLE(t->id) == PSRTI_SERVER ? SCALE_SERVER : SCALE_WORKER;
}

/* ---- the network ------------------------------------------------------------------------------- */

static int is_beat(const Psrt__Control *m)
{
    return m->body_case == PSRT__CONTROL__BODY_HEARTBEAT ||
           m->body_case == PSRT__CONTROL__BODY_HEARTBEAT_ACK;
}

static void enqueue(scale_control_t *j, uint64_t peer, int up, const Psrt__Control *m)
{
    scale_role_t before = scale_account(SCALE_DRIVER);
    size_t len = m ? psrti_wire_size(m) : 0;
    packet_t *p = malloc(sizeof *p + len);
    *p = (packet_t){ .peer = peer, .up = up, .len = len };
    if (m) psrti_wire_pack(m, p->bytes);
    *j->last = p;
    j->last = &p->next;
    scale_account(before);
}

static task_t *task_of(scale_control_t *j, uint64_t peer)
{
    if (!j->ntasks) return NULL;
    task_t *t = &j->tasks[(peer - 1) % j->ntasks];
    return t->peer == peer && t->core ? t : NULL;
}

static void count(scale_control_t *j, scale_traffic_t *to, const Psrt__Control *m)
{
    j->cost.heartbeats += (uint64_t)is_beat(m);
    if (is_beat(m)) return;
    to->messages++;
    to->bytes += PSRTI_FRAME_BYTES + psrti_wire_size(m);
}

static void deliver(scale_control_t *j, const packet_t *p)
{
    task_t *t = task_of(j, p->peer);
    Psrt__Control *m = NULL;
    if (!t) return;
    if (p->len) cr_assert_eq(psrti_wire_unpack(p->bytes, p->len, UINT32_MAX, &m), PSRT_OK);
    scale_account(p->up ? SCALE_COORDINATOR : role_of(t));
    if (!m) {
        scale_account(SCALE_COORDINATOR);
        psrti_coord_peer_up(j->coord, p->peer, t->id, j->now);
        scale_account(role_of(t));
        psrti_member_core_link_up(t->core, j->now);
    } else if (p->up) {
        cr_assert_eq(psrti_coord_message(j->coord, p->peer, m, j->now), PSRT_OK);
    } else {
        cr_assert_eq(psrti_member_core_message(t->core, m, j->now), PSRT_OK, "%s",
                     psrt_last_error());
    }
    scale_account(SCALE_DRIVER);
    psrti_wire_free(m);
}

static void run(scale_control_t *j)
{
    while (j->first) {
        packet_t *p = j->first;
        deliver(j, p);
        j->first = p->next;
        if (!j->first) j->last = &j->first;
        free(p);
    }
}

/* ---- the coordinator --------------------------------------------------------------------------- */

static void coord_send(void *arg, uint64_t peer, const Psrt__Control *m)
{
    scale_control_t *j = arg;
    task_t *t = task_of(j, peer);
    if (!t) return;
    count(j, &j->cost.down, m);
    if (role_of(t) == SCALE_SERVER && !is_beat(m)) count(j, &j->cost.server_down, m);
    if (!is_beat(m)) t->down += PSRTI_FRAME_BYTES + psrti_wire_size(m);
    enqueue(j, peer, 0, m);
}

static void coord_close(void *arg, uint64_t peer) { (void)arg, (void)peer; }

static int coord_persist(void *arg, const char *text, size_t len, int append)
{
    scale_control_t *j = arg;
    scale_role_t before = scale_account(SCALE_DRIVER);
    if (!append) j->state_len = 0;
    j->state = realloc(j->state, j->state_len + len + 1);
    memcpy(j->state + j->state_len, text, len);
    j->state_len += len;
    j->state[j->state_len] = '\0';
    j->cost.state += len;
    scale_account(before);
    return 1;
}

static void coord_note(void *arg, psrt_log_level_t level, const char *text)
{
    (void)arg, (void)level, (void)text;
}

static void coord_finish(void *arg, psrt_status_t status, const char *text)
{
    (void)arg, (void)status, (void)text;
}

static void coord_new(scale_control_t *j, const char *state)
{
    psrti_coord_params_t p = { .workers = j->size.workers,
                               .servers = j->size.servers,
                               .vshards = VSHARDS,
                               .heartbeat_ns = BEAT,
                               .lease_ns = LEASE,
                               .start_timeout_ns = 60 * BEAT,
                               .drain_ns = 10 * BEAT,
                               .state = state };
    psrti_coord_env_t env = { j, coord_send, coord_close, coord_persist, coord_note, coord_finish };
    scale_account(SCALE_COORDINATOR);
    cr_assert_eq(psrti_coord_new(&p, &env, j->now, &j->coord), PSRT_OK, "%s", psrt_last_error());
    scale_account(SCALE_DRIVER);
}

static void coord_tick(scale_control_t *j)
{
    scale_account(SCALE_COORDINATOR);
    psrti_coord_tick(j->coord, j->now);
    scale_account(SCALE_DRIVER);
}

/* ---- the members ------------------------------------------------------------------------------- */

static void m_dial(void *arg)
{
    task_t *t = arg;
    t->peer = 1 + t->index + t->job->ntasks * ++t->job->peers;
    enqueue(t->job, t->peer, 1, NULL);
}

static void m_drop(void *arg) { ((task_t *)arg)->peer = 0; }

static void m_send(void *arg, const Psrt__Control *m)
{
    task_t *t = arg;
    count(t->job, &t->job->cost.up, m);
    enqueue(t->job, t->peer, 1, m);
}

static void m_joined(void *arg, uint64_t incarnation) { (void)arg, (void)incarnation; }

static void m_view(void *arg, psrti_view_t *view, uint32_t worker, size_t n, const uint32_t *table,
                   const uint64_t *from)
{
    (void)arg, (void)view, (void)worker, (void)n, (void)table, (void)from;
}

static void m_declared(void *arg, uint64_t request, size_t n, const psrti_member_table_t *tables)
{
    task_t *t = arg;
    for (size_t i = 0; request && i < n; i++)
        cr_assert_eq(tables[i].status, PSRT_OK, "%s", tables[i].text);
    if (request) t->job->answered += (uint32_t)n;
}

static void note_held(task_t *t, uint32_t id)
{
    scale_role_t before = scale_account(SCALE_DRIVER);
    if (t->nheld == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->held = realloc(t->held, t->room * sizeof *t->held);
    }
    t->held[t->nheld++] = id;
    scale_account(before);
}

static void m_hold(void *arg, size_t n, const psrti_member_table_t *tables)
{
    task_t *t = arg;
    for (size_t i = 0; i < n; i++)
        note_held(t, tables[i].id);
    cr_assert_eq(psrti_member_core_held(t->core, n, tables), PSRT_OK);
}

static void m_prepare(void *arg, uint64_t view, uint32_t worker)
{
    task_t *t = arg;
    scale_role_t before = scale_account(SCALE_DRIVER);
    uint64_t *open = calloc(t->nheld + 1, sizeof *open);
    (void)worker;
    for (uint32_t i = 0; i < t->nheld; i++)
        open[i] = OPEN_STEP;
    scale_account(before);
    psrti_member_core_prepared(t->core, view, t->nheld, t->held, open);
    before = scale_account(SCALE_DRIVER);
    free(open);
    scale_account(before);
}

static void m_done(void *arg, uint64_t request, psrt_status_t status, const char *text)
{
    (void)request;
    cr_assert_eq(status, PSRT_OK, "%s", text);
    ((task_t *)arg)->job->done++;
}

static void m_set_prepare(void *arg, const psrti_member_set_t *set) { (void)arg, (void)set; }

static void m_set_end(void *arg, uint64_t number, int commit, uint64_t from)
{
    (void)arg, (void)number, (void)commit, (void)from;
}

static void m_set_done(void *arg, uint64_t request, psrt_status_t status, const char *text,
                       uint64_t step)
{
    (void)arg, (void)request, (void)status, (void)text, (void)step;
}

static void m_end(void *arg, psrt_status_t status, const char *text)
{
    (void)arg, (void)status, (void)text;
}

/* Hosts and addresses are as long as they are in clusters. */
static void task_start(scale_control_t *j, task_t *t)
{
    psrti_member_env_t env = { t,          m_dial, m_drop,    m_send, m_joined,      m_view,
                               m_declared, m_hold, m_prepare, m_done, m_set_prepare, m_set_end,
                               m_set_done, m_end };
    int server = role_of(t) == SCALE_SERVER;
    psrti_member_core_params_t p = { .task = t->id,
                                     .workers = j->size.workers,
                                     .servers = j->size.servers,
                                     .nthreads = (uint32_t)server,
                                     .threads = &t->thread,
                                     .host = "node0000.cluster",
                                     .coordinator = "tcp://node0000.cluster:9000",
                                     .pid = 12345,
                                     .nonce = 1 + ++j->nonces,
                                     .heartbeat_ns = BEAT,
                                     .lease_ns = LEASE,
                                     .start_timeout_ns = 60 * BEAT,
                                     .coordinator_timeout_ns = 60 * BEAT };
    t->thread = (psrti_view_owner_t){ .server = PSRTI_TASK_RANK(t->id), .naddrs = 2 };
    snprintf(t->thread.addr[0], PSRT_ADDR_MAX, "shm:0123456789abcdef/%08x.0", t->id);
    snprintf(t->thread.addr[1], PSRT_ADDR_MAX, "tcp://10.10.%03u.%03u:40000", t->index / 256,
             t->index % 256);
    t->nheld = 0;
    scale_account(role_of(t));
    cr_assert_eq(psrti_member_core_new(&p, &env, j->now, &t->core), PSRT_OK);
    scale_account(SCALE_DRIVER);
}

static void task_kill(scale_control_t *j, task_t *t)
{
    if (!t->core) return;
    scale_account(role_of(t));
    psrti_member_core_free(t->core);
    t->core = NULL;
    scale_account(SCALE_COORDINATOR);
    if (t->peer) psrti_coord_peer_lost(j->coord, t->peer, j->now);
    scale_account(SCALE_DRIVER);
    t->peer = 0;
}

/* Time passes: heartbeats, dials, leases. */
static void pass(scale_control_t *j, uint64_t ns)
{
    j->now += ns;
    for (uint32_t i = 0; i < j->ntasks; i++) {
        task_t *t = &j->tasks[i];
        if (!t->core) continue;
        scale_account(role_of(t));
        psrti_member_core_tick(t->core, j->now);
        scale_account(SCALE_DRIVER);
    }
    run(j);
    coord_tick(j);
    run(j);
}

/* ---- what a job does --------------------------------------------------------------------------- */

static void begin(scale_control_t *j)
{
    j->cost = (scale_cost_t){ 0 };
    for (uint32_t i = 0; i < j->ntasks; i++)
        j->tasks[i].down = 0;
}

static scale_cost_t cost(scale_control_t *j)
{
    for (uint32_t i = 0; i < j->ntasks; i++)
        j->cost.most = PSRTI_MAX(j->cost.most, j->tasks[i].down);
    return j->cost;
}

scale_control_t *scale_control_open(const scale_size_t *size)
{
    scale_control_t *j = calloc(1, sizeof *j);
    j->size = *size;
    j->now = 100 * BEAT;
    j->last = &j->first;
    j->ntasks = size->servers + size->workers;
    j->tasks = calloc(j->ntasks, sizeof *j->tasks);
    coord_new(j, NULL);
    for (uint32_t i = 0; i < j->ntasks; i++) {
        task_t *t = &j->tasks[i];
        int server = i < size->servers;
        t->job = j;
        t->index = i;
        t->id = server ? PSRTI_TASK(PSRTI_SERVER, i) : PSRTI_TASK(PSRTI_WORKER, i - size->servers);
        task_start(j, t);
    }
    return j;
}

void scale_control_close(scale_control_t *j)
{
    for (uint32_t i = 0; i < j->ntasks; i++) {
        task_kill(j, &j->tasks[i]);
        free(j->tasks[i].held);
    }
    scale_account(SCALE_COORDINATOR);
    psrti_coord_free(j->coord);
    scale_account(SCALE_DRIVER);
    free(j->tasks);
    free(j->state);
    free(j);
}

scale_cost_t scale_join(scale_control_t *j)
{
    begin(j);
    pass(j, 0);
    for (uint32_t i = 0; i < j->ntasks; i++)
        cr_assert(psrti_member_core_is_ready(j->tasks[i].core));
    return cost(j);
}

scale_cost_t scale_beat(scale_control_t *j)
{
    begin(j);
    pass(j, BEAT);
    return cost(j);
}

static task_t *worker(scale_control_t *j, uint32_t rank)
{
    return &j->tasks[j->size.servers + rank];
}

static psrti_table_spec_t *specs_of(uint32_t first, uint32_t count)
{
    psrti_table_spec_t *specs = calloc(count, sizeof *specs);
    for (uint32_t i = 0; i < count; i++) {
        psrt_dense_params_t p = PSRT_DENSE_PARAMS_INIT;
        char name[64];
        p.ndim = 1;
        p.shape[0] = 1000;
        p.optimizer = "adam:lr=0.001";
        snprintf(name, sizeof name, "model/layer%06u/weight", first + i);
        cr_assert_eq(psrti_table_spec_make(name, &p, &specs[i]), PSRT_OK, "%s", psrt_last_error());
    }
    return specs;
}

scale_cost_t scale_declare(scale_control_t *j, uint32_t rank, uint32_t requests)
{
    uint32_t each = j->size.tables / requests;
    task_t *t = worker(j, rank);
    begin(j);
    j->answered = 0;
    for (uint32_t i = 0; i < requests; i++) {
        psrti_table_spec_t *specs = specs_of(i * each, each);
        scale_account(SCALE_WORKER);
        cr_assert_eq(psrti_member_core_declare(t->core, ++j->requests, each, specs), PSRT_OK);
        scale_account(SCALE_DRIVER);
        free(specs);
        run(j);
    }
    cr_assert_eq(j->answered, each * requests);
    return cost(j);
}

scale_cost_t scale_barrier(scale_control_t *j)
{
    begin(j);
    j->done = 0;
    for (uint32_t r = 0; r < j->size.workers; r++) {
        scale_account(SCALE_WORKER);
        psrti_member_core_barrier(worker(j, r)->core, ++j->requests, "epoch", 0);
        scale_account(SCALE_DRIVER);
        run(j);
    }
    cr_assert_eq((uint32_t)j->done, j->size.workers);
    return cost(j);
}

scale_cost_t scale_leave(scale_control_t *j, uint32_t first, uint32_t n)
{
    begin(j);
    for (uint32_t r = first; r < first + n; r++) {
        scale_account(SCALE_WORKER);
        psrti_member_core_leave(worker(j, r)->core, 0);
        scale_account(SCALE_DRIVER);
        run(j);
    }
    pass(j, BEAT);
    return cost(j);
}

/* The lease of a task that was killed ends, the others beat. */
static void outlive(scale_control_t *j, task_t *t)
{
    task_kill(j, t);
    for (uint64_t ns = 0; ns <= LEASE + BEAT; ns += BEAT)
        pass(j, BEAT);
}

scale_cost_t scale_rejoin(scale_control_t *j, uint32_t rank)
{
    task_t *t = worker(j, rank);
    outlive(j, t);
    begin(j);
    task_start(j, t);
    pass(j, 0);
    cr_assert(psrti_member_core_is_ready(t->core));
    return cost(j);
}

scale_cost_t scale_lose_server(scale_control_t *j, uint32_t rank)
{
    task_t *t = &j->tasks[rank];
    begin(j);
    outlive(j, t);
    task_start(j, t);
    pass(j, 0);
    cr_assert(psrti_member_core_is_ready(t->core));
    return cost(j);
}

scale_cost_t scale_restart(scale_control_t *j)
{
    scale_account(SCALE_COORDINATOR);
    psrti_coord_free(j->coord);
    scale_account(SCALE_DRIVER);
    for (uint32_t i = 0; i < j->ntasks; i++) {
        task_t *t = &j->tasks[i];
        t->peer = 0;
        scale_account(role_of(t));
        psrti_member_core_link_lost(t->core, PSRT_ERR_PEER_LOST, "gone", j->now);
        scale_account(SCALE_DRIVER);
    }
    begin(j);
    char *state = strdup(j->state);
    coord_new(j, state);
    free(state);
    pass(j, BEAT);
    for (uint32_t i = 0; i < j->ntasks; i++)
        cr_assert(psrti_member_core_is_current(j->tasks[i].core));
    return cost(j);
}
