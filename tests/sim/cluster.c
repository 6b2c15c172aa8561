/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane: the coordinator's core, a member's core in every process, and the connections
 * between them, which carry packed messages in order and may be lost. */
#include <stdlib.h>
#include <string.h>

#include "runtime/cluster/coord_core.h"
#include "sim.h"

#define HEARTBEAT (50 * MS)
#define LEASE (400 * MS)
#define MAX_LIVES 4096

/* One connection. Its number is the coordinator's peer. */
typedef struct conn {
    struct conn *next; /* all of the simulation */
    uint64_t number;
    int node, open;
    uint32_t life, coordinator; /* lives of both ends */
    uint64_t last[2];           /* arrivals, by to_coordinator */
} conn_t;

typedef struct packet {
    struct packet *next; /* all of the simulation */
    conn_t *conn;
    size_t len;
    uint8_t bytes[];
} packet_t;

typedef struct member {
    sim_t *sim;
    int node;
    psrti_member_core_t *core;
    conn_t *conn;
    psrti_view_owner_t thread;
    uint64_t timer, requests, answered, sets, sets_done;
    int declared; /* tables asked for */
    int admitted; /* it was in a view; until then it may be declared dead unnoticed */
} member_t;

struct sim_control {
    psrti_coord_t *coord; /* NULL while it is down */
    uint32_t life;
    uint64_t timer, numbers;
    char *state; /* the file */
    conn_t *conns;
    packet_t *packets;
    member_t member[2 * SIM_MAX_NODES];
    uint32_t life_of[MAX_LIVES]; /* by incarnation */
    int finished, formed;
    uint64_t changed; /* when the newest view was sent */
};

static void coord_after(sim_t *sim);
static void member_after(member_t *m);

static uint32_t task_of(const sim_t *sim, int node)
{
    return node < sim->nservers ? PSRTI_TASK(PSRTI_SERVER, node)
                                : PSRTI_TASK(PSRTI_WORKER, node - sim->nservers);
}

static uint64_t delay(sim_t *sim)
{
    return sim_random(sim, sim_chance(sim, 20) ? 60 * MS : 2 * MS);
}

/* ---- connections ------------------------------------------------------------------------------- */

static void on_conn_lost(sim_t *sim, void *obj, uint64_t at_coordinator)
{
    conn_t *c = obj;
    struct sim_control *ctl = sim->control;
    if (at_coordinator) {
        if (!ctl->coord || c->coordinator != ctl->life) return;
        psrti_coord_peer_lost(ctl->coord, c->number, sim->now);
        coord_after(sim);
        return;
    }
    member_t *m = &ctl->member[c->node];
    if (m->conn != c) return;
    m->conn = NULL;
    psrti_member_core_link_lost(m->core, PSRT_ERR_PEER_LOST, "cut", sim->now);
    member_after(m);
}

static void conn_close(sim_t *sim, conn_t *c)
{
    if (!c->open) return;
    c->open = 0;
    sim_schedule(sim, sim->now + delay(sim), SIM_NOBODY, on_conn_lost, c, 1);
    if (sim->node[c->node].life == c->life)
        sim_schedule(sim, sim->now + delay(sim), c->node, on_conn_lost, c, 0);
}

static void on_packet(sim_t *sim, void *obj, uint64_t to_coordinator)
{
    packet_t *p = obj;
    struct sim_control *ctl = sim->control;
    member_t *m = &ctl->member[p->conn->node];
    Psrt__Control *msg = NULL;
    psrt_status_t rc = psrti_wire_unpack(p->bytes, p->len, 1u << 24, &msg);
    if (rc)
        sim_fail(sim, "a control message cannot be read");
    else if (!p->conn->open)
        rc = PSRT_OK;
    else if (to_coordinator && p->conn->coordinator == ctl->life) {
        rc = psrti_coord_message(ctl->coord, p->conn->number, msg, sim->now);
        coord_after(sim);
    } else if (!to_coordinator && m->conn == p->conn) {
        rc = psrti_member_core_message(m->core, msg, sim->now);
        member_after(m);
    }
    if (rc)
        sim_fail(sim, "a control message %s was refused: %s", msg ? psrti_wire_name(msg) : "",
                 psrt_status_name(rc));
    psrti_wire_free(msg);
}

static void carry(sim_t *sim, conn_t *c, int to_coordinator, const Psrt__Control *msg)
{
    const sim_node_t *n = &sim->node[c->node];
    if (!c->open) return;
    if (n->cut_off_until > sim->now) { /* the connection does not notice for a while */
        conn_close(sim, c);
        return;
    }
    sim_trace(sim, "node %d %s coordinator: %s", c->node, to_coordinator ? "->" : "<-",
              psrti_wire_name(msg));
    size_t len = psrti_wire_size(msg);
    packet_t *p = malloc(sizeof *p + len);
    p->next = sim->control->packets;
    sim->control->packets = p;
    p->conn = c;
    p->len = len;
    psrti_wire_pack(msg, p->bytes);
    uint64_t at = sim->now + delay(sim), *last = &c->last[to_coordinator];
    *last = PSRTI_MAX(at, *last + 1);
    sim_schedule(sim, *last, to_coordinator ? SIM_NOBODY : c->node, on_packet, p,
                 (uint64_t)to_coordinator);
}

static void on_connected(sim_t *sim, void *obj, uint64_t arg)
{
    conn_t *c = obj;
    (void)arg;
    member_t *m = &sim->control->member[c->node];
    if (m->conn != c || !c->open) return;
    psrti_member_core_link_up(m->core, sim->now);
    member_after(m);
}

static void on_accept(sim_t *sim, void *obj, uint64_t arg)
{
    conn_t *c = obj;
    struct sim_control *ctl = sim->control;
    (void)arg;
    if (!c->open) return;
    if (!ctl->coord || sim->node[c->node].cut_off_until > sim->now) {
        conn_close(sim, c);
        return;
    }
    c->coordinator = ctl->life;
    psrti_coord_peer_up(ctl->coord, c->number, task_of(sim, c->node), sim->now);
    sim_schedule(sim, sim->now + delay(sim), c->node, on_connected, c, 0);
    coord_after(sim);
}

/* ---- the coordinator --------------------------------------------------------------------------- */

static void note_fenced(sim_t *sim, int node, uint64_t incarnation, int alive)
{
    sim_node_t *n = &sim->node[node];
    if (!n->alive || !n->incarnation || n->incarnation != incarnation || alive) return;
    n->fenced = 1;
    if (node < sim->nservers || sim->worker_kills) return;
    /* Cuts and stops fell together. What it has pushed need not be on all slices, so that norms, and the
     * order of sums, are not known from here on; nor is it worth guessing, as it is one seed in 10^5. */
    sim->given_up = 1;
}

/* The model must know who is declared dead while it lives. */
static void note_view(sim_t *sim, const Psrt__View *v)
{
    sim->control->changed = sim->now;
    for (int i = 0; i < sim->nservers; i++)
        note_fenced(sim, i, v->owners[i]->incarnation, v->owners[i]->alive);
    for (int i = 0; i < sim->nworkers; i++)
        note_fenced(sim, sim_worker_node(sim, i), v->workers[i]->incarnation, v->workers[i]->alive);
}

static void coord_send(void *arg, uint64_t peer, const Psrt__Control *msg)
{
    sim_t *sim = arg;
    if (msg->body_case == PSRT__CONTROL__BODY_VIEW) note_view(sim, msg->view);
    sim_set_sent(sim, msg);
    for (conn_t *c = sim->control->conns; c; c = c->next)
        if (c->number == peer) carry(sim, c, 0, msg);
}

static void coord_close(void *arg, uint64_t peer)
{
    sim_t *sim = arg;
    for (conn_t *c = sim->control->conns; c; c = c->next)
        if (c->number == peer) conn_close(sim, c);
}

static void coord_persist(void *arg, const char *text, size_t len)
{
    struct sim_control *ctl = ((sim_t *)arg)->control;
    free(ctl->state);
    ctl->state = malloc(len + 1);
    memcpy(ctl->state, text, len);
    ctl->state[len] = '\0';
}

static void coord_note(void *arg, psrt_log_level_t level, const char *text)
{
    (void)level;
    sim_trace(arg, "coordinator: %s", text);
}

static void coord_finish(void *arg, psrt_status_t status, const char *text)
{
    sim_t *sim = arg;
    sim->control->finished = 1;
    sim_trace(sim, "the job is over: %s %s", psrt_status_name(status), text);
}

static void on_coord_timer(sim_t *sim, void *obj, uint64_t at)
{
    (void)obj;
    if (sim->control->timer == at) coord_after(sim);
}

static void coord_after(sim_t *sim)
{
    struct sim_control *ctl = sim->control;
    if (!ctl->coord || ctl->finished) return;
    uint64_t next = psrti_coord_tick(ctl->coord, sim->now);
    ctl->timer = PSRTI_MAX(next, sim->now + 1);
    if (next != UINT64_MAX)
        sim_schedule(sim, ctl->timer, SIM_NOBODY, on_coord_timer, NULL, ctl->timer);
}

static void coord_start(sim_t *sim)
{
    struct sim_control *ctl = sim->control;
    psrti_coord_params_t p = { .workers = (uint32_t)sim->nworkers,
                               .servers = (uint32_t)sim->nservers,
                               .vshards = SIM_VSHARDS,
                               .heartbeat_ns = HEARTBEAT,
                               .lease_ns = LEASE,
                               .start_timeout_ns = 60 * PSRTI_NS_PER_S,
                               .drain_ns = 5 * PSRTI_NS_PER_S,
                               .state = ctl->state };
    psrti_coord_env_t env = {
        sim, coord_send, coord_close, coord_persist, coord_note, coord_finish
    };
    ctl->life++;
    if (psrti_coord_new(&p, &env, sim->now, &ctl->coord) != PSRT_OK)
        sim_fail(sim, "the coordinator does not start: %s", psrt_last_error());
    else
        coord_after(sim);
}

static void on_coord_restart(sim_t *sim, void *obj, uint64_t arg)
{
    (void)obj, (void)arg;
    coord_start(sim);
}

void sim_control_kill(sim_t *sim)
{
    struct sim_control *ctl = sim->control;
    if (!ctl->coord || ctl->finished) return;
    sim_trace(sim, "the coordinator is killed");
    sim->counts.coordinator_restarts++;
    psrti_coord_free(ctl->coord);
    ctl->coord = NULL;
    for (conn_t *c = ctl->conns; c; c = c->next)
        conn_close(sim, c);
    sim_schedule(sim, sim->now + sim_random(sim, 150 * MS), SIM_NOBODY, on_coord_restart, NULL, 0);
}

/* ---- members ----------------------------------------------------------------------------------- */

static sim_server_t *server_of(const member_t *m) { return &m->sim->server[m->node]; }

static sim_worker_t *worker_of(const member_t *m)
{
    return &m->sim->worker[m->node - m->sim->nservers];
}

static int is_server(const member_t *m) { return m->node < m->sim->nservers; }

static void member_dial(void *arg)
{
    member_t *m = arg;
    sim_t *sim = m->sim;
    conn_t *c = calloc(1, sizeof *c);
    c->number = ++sim->control->numbers;
    c->node = m->node;
    c->life = sim->node[m->node].life;
    c->open = 1;
    c->next = sim->control->conns;
    sim->control->conns = c;
    m->conn = c;
    sim_schedule(sim, sim->now + delay(sim), SIM_NOBODY, on_accept, c, 0);
}

static void member_drop(void *arg)
{
    member_t *m = arg;
    conn_t *c = m->conn;
    m->conn = NULL;
    if (c) conn_close(m->sim, c);
}

static void member_send(void *arg, const Psrt__Control *msg)
{
    member_t *m = arg;
    if (m->conn) carry(m->sim, m->conn, 1, msg);
}

static void member_joined(void *arg, uint64_t incarnation)
{
    member_t *m = arg;
    m->sim->node[m->node].incarnation = incarnation;
    if (incarnation < MAX_LIVES) m->sim->control->life_of[incarnation] = m->sim->node[m->node].life;
}

/* The model learns a joiner's first steps from the first server that is told. */
static void note_join(sim_t *sim, const psrti_view_t *view, uint32_t rank, size_t count,
                      const uint32_t *table, const uint64_t *from)
{
    uint64_t incarnation = view->workers[rank].incarnation;
    uint32_t life = incarnation < MAX_LIVES ? sim->control->life_of[incarnation] : 0;
    int fresh = 0;
    for (int i = 0; i < sim->ntables; i++) {
        sim_table_t *t = &sim->table[i];
        if (t->from_life[rank] >= life) continue;
        fresh = 1;
        t->from_life[rank] = life;
        t->from[rank] = 0;
        for (size_t k = 0; k < count; k++)
            if (t->id == table[k]) t->from[rank] = from[k];
    }
    sim->counts.joins += (uint64_t)fresh;
}

/* Every worker declares what there is; a lost table is replaced by another when all servers live. */
static void declare(member_t *m)
{
    sim_t *sim = m->sim;
    psrti_table_spec_t specs[SIM_MAX_TABLES];
    size_t n = 0;
    while (m->declared < sim->ntables)
        specs[n++] = sim->table[m->declared++].spec;
    if (!n) return;
    psrti_member_core_declare(m->core, ++m->requests, n, specs);
}

static void replace_lost(sim_t *sim, const psrti_view_t *view)
{
    for (uint32_t i = 0; i < view->nowners; i++)
        if (!view->owners[i].alive) return;
    for (int i = 0, n = sim->ntables; i < n && sim->ntables < SIM_MAX_TABLES; i++) {
        sim_table_t *t = &sim->table[i];
        if (!t->lost || t->replaced) continue;
        t->replaced = 1;
        sim_table_new(sim, view);
    }
}

static void declare_all(sim_t *sim)
{
    for (int r = 0; r < sim->nworkers; r++) {
        member_t *m = &sim->control->member[sim_worker_node(sim, r)];
        if (sim->node[m->node].alive && sim->worker[r].view) declare(m);
    }
}

static void member_view(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                        const uint32_t *table, const uint64_t *from_step)
{
    member_t *m = arg;
    sim_t *sim = m->sim;
    sim_trace(sim, "view %llu at node %d%s", (unsigned long long)view->number, m->node,
              from_step ? " with a joiner" : "");
    m->admitted = 1;
    if (!sim->control->formed) {
        sim->control->formed = 1;
        for (uint64_t n = 1 + sim_random(sim, 4); n; n--)
            sim_table_new(sim, view);
        sim->running = 1;
    }
    if (is_server(m)) {
        if (from_step) note_join(sim, view, worker, count, table, from_step);
        sim_server_view(server_of(m), view, from_step ? (int)worker : SIM_NOBODY, count, table,
                        from_step);
        sim_server_after(server_of(m));
        return;
    }
    sim_worker_view(worker_of(m), view);
    replace_lost(sim, view);
    declare_all(sim);
    sim_worker_after(worker_of(m));
}

static int is_known(const sim_t *sim, const sim_table_t *t)
{
    for (int r = 0; r < sim->nworkers; r++) {
        const sim_node_t *n = &sim->node[sim_worker_node(sim, r)];
        if (n->alive && !n->fenced && sim->worker[r].table[t->index]) return 1;
    }
    return 0;
}

static sim_table_t *table_of(sim_t *sim, const psrti_member_table_t *in)
{
    for (int i = 0; i < sim->ntables; i++) {
        sim_table_t *t = &sim->table[i];
        if (strcmp(t->spec.name, in->spec->name) != 0) continue;
        if (t->id && t->id != in->id) {
            if (is_known(sim, t)) sim_fail(sim, "%s has two numbers", t->spec.name);
            sim->renumbered = 1; /* nobody who knew the first one came back to the coordinator */
            t->abandoned |= t->declared;
            for (uint64_t k = 0; k < t->nslices; k++)
                t->slice[k].life = 0;
        }
        t->id = in->id;
        return t;
    }
    sim_fail(sim, "nobody declared %s", in->spec->name);
    return &sim->table[0];
}

static void member_declared(void *arg, uint64_t request, size_t count,
                            const psrti_member_table_t *tables)
{
    member_t *m = arg;
    sim_worker_t *w = worker_of(m);
    if (request) m->answered++;
    for (size_t i = 0; i < count; i++) {
        sim_table_t *t = table_of(m->sim, &tables[i]);
        if (t->abandoned) {
            w->gone[t->index] = t->lost = 1;
        } else if (tables[i].status == PSRT_OK) {
            t->declared = 1;
            sim_worker_table(w, t, tables[i].first_step);
        } else if (tables[i].status == PSRT_ERR_SHARD_LOST && sim_is_damaged(m->sim, t)) {
            t->lost = 1;
            w->gone[t->index] = 1;
            psrti_client_table_fail(w->client, t->id, tables[i].status, tables[i].text);
        } else {
            sim_fail(m->sim, "worker:%d: %s: %s", w->rank, t->spec.name, tables[i].text);
        }
    }
    sim_worker_after(w);
}

static void member_hold(void *arg, size_t count, const psrti_member_table_t *tables)
{
    member_t *m = arg;
    for (size_t i = 0; i < count; i++)
        sim_server_hold(server_of(m), table_of(m->sim, &tables[i]));
    psrti_member_core_held(m->core, count, tables);
}

typedef struct report {
    size_t count;
    uint32_t table[SIM_MAX_TABLES];
    uint64_t step[SIM_MAX_TABLES];
} report_t;

static void on_open_step(void *arg, uint32_t table, uint64_t open_step)
{
    report_t *r = arg;
    r->table[r->count] = table;
    r->step[r->count++] = open_step;
}

static void member_prepare(void *arg, uint64_t view, uint32_t worker)
{
    member_t *m = arg;
    report_t r = { 0 };
    (void)worker;
    psrti_shard_prepare(server_of(m)->shard, on_open_step, &r);
    psrti_member_core_prepared(m->core, view, r.count, r.table, r.step);
}

static void member_barrier_done(void *arg, uint64_t request, psrt_status_t status, const char *text)
{
    (void)arg, (void)request, (void)status, (void)text;
}

static void member_set_prepare(void *arg, const psrti_member_set_t *set)
{
    member_t *m = arg;
    uint64_t step = 0;
    psrt_status_t rc = psrti_shard_set_prepare(server_of(m)->shard, set->number, set->table,
                                               set->key, set->value, set->from_step, &step);
    sim_server_after(server_of(m)); /* an older hold may have ended */
    psrti_member_core_set_prepared(m->core, set->number, step, rc, rc ? psrt_last_error() : "");
}

static void member_set_end(void *arg, uint64_t number, int commit, uint64_t from_step)
{
    member_t *m = arg;
    sim_set_end(server_of(m), number, commit, from_step);
    sim_server_after(server_of(m));
    if (commit) psrti_member_core_set_ended(m->core, number);
}

static void member_set_done(void *arg, uint64_t request, psrt_status_t status, const char *text,
                            uint64_t step)
{
    member_t *m = arg;
    (void)step;
    if (request != ++m->sets_done) sim_fail(m->sim, "sets are answered out of order");
    sim_set_done(m->sim, status, text);
}

void sim_control_set(sim_worker_t *w, uint32_t table, const char *key, double value,
                     uint64_t from_step)
{
    member_t *m = &w->sim->control->member[sim_worker_node(w->sim, w->rank)];
    psrti_member_core_set(m->core, ++m->sets, table, key, value, from_step);
    member_after(m);
}

static void on_exit_fenced(sim_t *sim, void *obj, uint64_t arg)
{
    (void)arg;
    sim_exit_fenced(sim, ((member_t *)obj)->node);
}

/* The process ends and is started anew. */
static void member_end(void *arg, psrt_status_t status, const char *text)
{
    member_t *m = arg;
    char name[32];
    sim_trace(m->sim, "%s ends: %s %s", sim_node_name(m->sim, m->node, name),
              psrt_status_name(status), text);
    if (status == PSRT_ERR_START_TIMEOUT && !m->sim->control->formed)
        m->sim->control->finished = 1; /* somebody was killed and not started again */
    if (m->sim->control->finished) return;
    /* Refused: the coordinator has not heard yet that the process before was killed. */
    int again = status == PSRT_ERR_REFUSED && m->sim->node[m->node].life > 1;
    const sim_node_t *n = &m->sim->node[m->node];
    int fenced = status == PSRT_ERR_FENCED && (n->fenced || n->cut_off_until || !m->admitted);
    if (!again && !fenced)
        sim_fail(m->sim, "%s ended with %s: %s", name, psrt_status_name(status), text);
    sim_schedule(m->sim, m->sim->now, m->node, on_exit_fenced, m, 0);
}

static void on_member_timer(sim_t *sim, void *obj, uint64_t at)
{
    member_t *m = obj;
    (void)sim;
    if (m->timer == at) member_after(m);
}

static void member_after(member_t *m)
{
    sim_t *sim = m->sim;
    uint64_t next = psrti_member_core_tick(m->core, sim->now);
    m->timer = PSRTI_MAX(next, sim->now + 1);
    if (next != UINT64_MAX) sim_schedule(sim, m->timer, m->node, on_member_timer, m, m->timer);
}

void sim_control_started(sim_t *sim, int node)
{
    member_t *m = &sim->control->member[node];
    memset(m, 0, sizeof *m);
    m->sim = sim;
    m->node = node;
    m->thread.naddrs = 1;
    snprintf(m->thread.addr[0], PSRT_ADDR_MAX, "sim:%d", node);
    psrti_member_core_params_t p = { .task = task_of(sim, node),
                                     .workers = (uint32_t)sim->nworkers,
                                     .servers = (uint32_t)sim->nservers,
                                     .nthreads = (uint32_t)is_server(m),
                                     .threads = &m->thread,
                                     .host = "sim",
                                     .coordinator = "sim",
                                     .pid = 1,
                                     .nonce = sim_random(sim, UINT64_MAX) | 1,
                                     .heartbeat_ns = HEARTBEAT,
                                     .lease_ns = LEASE,
                                     .start_timeout_ns = 60 * PSRTI_NS_PER_S,
                                     .coordinator_timeout_ns = 60 * PSRTI_NS_PER_S };
    psrti_member_env_t env = { m,
                               member_dial,
                               member_drop,
                               member_send,
                               member_joined,
                               member_view,
                               member_declared,
                               member_hold,
                               member_prepare,
                               member_barrier_done,
                               member_set_prepare,
                               member_set_end,
                               member_set_done,
                               member_end };
    if (psrti_member_core_new(&p, &env, sim->now, &m->core) != PSRT_OK)
        sim_fail(sim, "a member does not start: %s", psrt_last_error());
    else
        member_after(m);
}

void sim_control_died(sim_t *sim, int node)
{
    member_t *m = &sim->control->member[node];
    if (m->conn) conn_close(sim, m->conn);
    m->conn = NULL;
    psrti_member_core_free(m->core);
    m->core = NULL;
}

void sim_control_cut(sim_t *sim)
{
    for (conn_t *c = sim->control->conns; c; c = c->next)
        if (c->open && sim_chance(sim, 30)) conn_close(sim, c);
}

/* ---- all of it --------------------------------------------------------------------------------- */

void sim_control_open(sim_t *sim)
{
    sim->control = calloc(1, sizeof *sim->control);
    coord_start(sim);
}

void sim_control_close(sim_t *sim)
{
    struct sim_control *ctl = sim->control;
    for (conn_t *c = ctl->conns, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    for (packet_t *p = ctl->packets, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    psrti_coord_free(ctl->coord);
    free(ctl->state);
    free(ctl);
}

int sim_control_is_finished(const sim_t *sim) { return sim->control->finished; }

/* Does every living worker know exactly who lives, for long enough that servers know too, and was it
 * answered? */
int sim_control_is_quiet(const sim_t *sim)
{
    const struct sim_control *ctl = sim->control;
    if (!ctl->coord || !ctl->formed || sim->now < ctl->changed + 300 * MS) return 0;
    for (int r = 0; r < sim->nworkers; r++) {
        const member_t *m = &ctl->member[sim_worker_node(sim, r)];
        const psrti_view_t *v = sim->worker[r].view;
        if (!sim->node[m->node].alive) continue;
        if (!v || m->answered < m->requests || m->sets_done < m->sets || m->declared < sim->ntables)
            return 0;
        for (int n = 0; n < sim->nservers + sim->nworkers; n++) {
            int worker = n - sim->nservers;
            int alive = worker < 0 ? v->owners[n].alive : v->workers[worker].alive;
            uint64_t inc = worker < 0 ? v->owners[n].incarnation : v->workers[worker].incarnation;
            if (alive != sim->node[n].alive) return 0;
            if (alive && inc != sim->node[n].incarnation) return 0;
        }
    }
    return 1;
}
