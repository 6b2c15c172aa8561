/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane at a process: its member's core, and what the process does with what it
 * hears. */
#include <string.h>

#include "control.h"

static sim_server_t *server_of(const member_t *m) { return &m->sim->server[m->node]; }

static sim_worker_t *worker_of(const member_t *m)
{
    return &m->sim->worker[m->node - m->sim->nservers];
}

static int is_server(const member_t *m) { return m->node < m->sim->nservers; }

static void member_dial(void *arg)
{
    member_t *m = arg;
    m->conn = sim_conn_dial(m->sim, m->node);
}

static void member_drop(void *arg)
{
    member_t *m = arg;
    conn_t *c = m->conn;
    m->conn = NULL;
    if (c) sim_conn_close(m->sim, c);
}

static void member_send(void *arg, const Psrt__Control *msg)
{
    member_t *m = arg;
    if (m->conn) sim_conn_send(m->sim, m->conn, 1, msg);
}

static void member_joined(void *arg, uint64_t incarnation)
{
    member_t *m = arg;
    m->sim->node[m->node].incarnation = incarnation;
    if (incarnation < MAX_LIVES) m->sim->control->life_of[incarnation] = m->sim->node[m->node].life;
}

static int has_part(const sim_table_t *t, int server)
{
    for (uint64_t i = 0; i < t->nslices; i++)
        if (t->slice[i].server == server) return 1;
    return 0;
}

/* The model learns a joiner's first step on a table from the first server with a part of it that
 * is told; the others are not. */
static void note_join(sim_t *sim, int server, const psrti_view_t *view, uint32_t rank, size_t count,
                      const uint32_t *table, const uint64_t *from)
{
    uint64_t incarnation = view->workers[rank].incarnation;
    uint32_t life = incarnation < MAX_LIVES ? sim->control->life_of[incarnation] : 0;
    int fresh = 1, begun = 0, ended = 0;
    for (int i = 0; i < sim->ntables; i++)
        fresh &= sim->table[i].from_life[rank] < life;
    for (int i = 0; i < sim->ntables; i++) {
        sim_table_t *t = &sim->table[i];
        if (t->from_life[rank] >= life || !has_part(t, server)) continue;
        t->from_life[rank] = life;
        t->from[rank] = 0;
        for (size_t k = 0; k < count; k++)
            if (t->id == table[k]) t->from[rank] = from[k];
        begun |= t->from[rank] > 0;
        ended |= t->from[rank] == sim->steps;
    }
    sim->counts.joins += (uint64_t)fresh;
    sim->counts.joins_at_a_step += (uint64_t)begun;
    sim->counts.joins_at_the_end += (uint64_t)ended;
}

/* Every worker declares what there is; a lost table is replaced by another when all servers
 * live. */
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
        if (from_step) note_join(sim, m->node, view, worker, count, table, from_step);
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
    sim_member_after(m);
}

static void on_exit_fenced(sim_t *sim, void *obj, uint64_t arg)
{
    (void)arg;
    sim_exit_fenced(sim, ((member_t *)obj)->node);
}

static int somebody_left(const sim_t *sim)
{
    int left = 0;
    for (int r = 0; r < sim->nworkers; r++)
        left |= sim->node[sim_worker_node(sim, r)].left;
    return left;
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
    if (status == PSRT_OK && somebody_left(m->sim))
        m->sim->control->finished = 1; /* who died meanwhile is not waited for */
    if (m->sim->control->finished) return;
    /* Refused: the coordinator has not heard yet that the process before was killed. */
    int again = status == PSRT_ERR_REFUSED && m->sim->node[m->node].life > 1;
    const sim_node_t *n = &m->sim->node[m->node];
    int fenced = status == PSRT_ERR_FENCED && (n->fenced || n->doubted || !m->admitted);
    if (!again && !fenced)
        sim_fail(m->sim, "%s ended with %s: %s", name, psrt_status_name(status), text);
    sim_schedule(m->sim, m->sim->now, m->node, on_exit_fenced, m, 0);
}

static void on_member_timer(sim_t *sim, void *obj, uint64_t at)
{
    member_t *m = obj;
    (void)sim;
    if (m->timer == at) sim_member_after(m);
}

void sim_member_after(member_t *m)
{
    sim_t *sim = m->sim;
    uint64_t next = psrti_member_core_tick(m->core, sim->now);
    if (psrti_member_core_is_current(m->core)) sim->node[m->node].frozen = 0;
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
    psrti_member_core_params_t p = { .task = sim_task_of(sim, node),
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
        sim_member_after(m);
}

void sim_control_leave(sim_t *sim, int node)
{
    psrti_member_core_leave(sim->control->member[node].core, 0);
}

int sim_control_has_left(const sim_t *sim, int node)
{
    return psrti_member_core_ended(sim->control->member[node].core);
}

void sim_control_died(sim_t *sim, int node)
{
    member_t *m = &sim->control->member[node];
    if (m->conn) sim_conn_close(sim, m->conn);
    m->conn = NULL;
    psrti_member_core_free(m->core);
    m->core = NULL;
}
