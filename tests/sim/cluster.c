/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane: the coordinator's core, and its connections to the processes, which carry
 * packed messages in order and may be lost. */
#include <stdlib.h>
#include <string.h>

#include "control.h"

static void coord_after(sim_t *sim);

uint32_t sim_task_of(const sim_t *sim, int node)
{
    return node < sim->nservers ? PSRTI_TASK(PSRTI_SERVER, node)
                                : PSRTI_TASK(PSRTI_WORKER, node - sim->nservers);
}

static uint64_t delay(sim_t *sim)
{
    return sim_random(sim, sim_chance(sim, 20) ? 60 * MS : 2 * MS);
}

/* ---- connections ----------------------------------------------------------------------------- */

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
    sim_member_after(m);
}

void sim_conn_close(sim_t *sim, conn_t *c)
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
        sim_member_after(m);
    }
    if (rc)
        sim_fail(sim, "a control message %s was refused: %s", msg ? psrti_wire_name(msg) : "",
                 psrt_status_name(rc));
    psrti_wire_free(msg);
}

void sim_conn_send(sim_t *sim, conn_t *c, int to_coordinator, const Psrt__Control *msg)
{
    const sim_node_t *n = &sim->node[c->node];
    if (!c->open) return;
    if (n->cut_off_until > sim->now) { /* the connection does not notice for a while */
        sim_conn_close(sim, c);
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
    int from = to_coordinator ? c->node : SIM_COORDINATOR;
    int to = to_coordinator ? SIM_COORDINATOR : c->node;
    uint64_t at = sim_arrival(sim, from, to, sim->now + delay(sim)),
             *last = &c->last[to_coordinator];
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
    sim_member_after(m);
}

static void on_accept(sim_t *sim, void *obj, uint64_t arg)
{
    conn_t *c = obj;
    struct sim_control *ctl = sim->control;
    (void)arg;
    if (!c->open) return;
    if (!ctl->coord || sim->node[c->node].cut_off_until > sim->now) {
        sim_conn_close(sim, c);
        return;
    }
    c->coordinator = ctl->life;
    psrti_coord_peer_up(ctl->coord, c->number, sim_task_of(sim, c->node), sim->now);
    sim_schedule(sim, sim_arrival(sim, SIM_COORDINATOR, c->node, sim->now + delay(sim)), c->node,
                 on_connected, c, 0);
    coord_after(sim);
}

conn_t *sim_conn_dial(sim_t *sim, int node)
{
    conn_t *c = calloc(1, sizeof *c);
    c->number = ++sim->control->numbers;
    c->node = node;
    c->life = sim->node[node].life;
    c->open = 1;
    c->next = sim->control->conns;
    sim->control->conns = c;
    sim_schedule(sim, sim_arrival(sim, node, SIM_COORDINATOR, sim->now + delay(sim)), SIM_NOBODY,
                 on_accept, c, 0);
    return c;
}

/* ---- the coordinator ------------------------------------------------------------------------- */

static void note_fenced(sim_t *sim, int node, uint64_t incarnation, int alive)
{
    sim_node_t *n = &sim->node[node];
    if (!n->alive || !n->incarnation || n->incarnation != incarnation || alive) return;
    n->fenced = 1;
    if (node < sim->nservers || sim->worker_kills) return;
    /* Cuts and stops fell together. What it has pushed need not be on all slices, so that norms,
     * and the order of sums, are not known from here on; nor is it worth guessing, as it is one
     * seed in 10^5. */
    sim->given_up = 1;
}

/* The model must know who is declared dead while it lives. */
static void note_view(sim_t *sim, const Psrt__View *v)
{
    sim->control->changed = sim->now;
    for (size_t i = 0; i < v->n_owners; i++) {
        size_t server = v->since ? v->owner_at[i] : i;
        note_fenced(sim, (int)server, v->owners[i]->incarnation, v->owners[i]->alive);
    }
    for (size_t i = 0; i < v->n_workers; i++) {
        size_t rank = v->since ? v->worker_at[i] : i;
        note_fenced(sim, sim_worker_node(sim, (int)rank), v->workers[i]->incarnation,
                    v->workers[i]->alive);
    }
}

/* One that is restarted works under a higher generation than all before. */
static void note_generation(sim_t *sim, uint64_t generation)
{
    struct sim_control *ctl = sim->control;
    if (ctl->generation_of != ctl->life && generation <= ctl->generation)
        sim_fail(sim, "generation %llu of the coordinator is given again",
                 (unsigned long long)generation);
    ctl->generation_of = ctl->life;
    ctl->generation = generation;
}

static void coord_send(void *arg, uint64_t peer, const Psrt__Control *msg)
{
    sim_t *sim = arg;
    if (msg->body_case == PSRT__CONTROL__BODY_WELCOME)
        note_generation(sim, msg->welcome->generation);
    if (msg->body_case == PSRT__CONTROL__BODY_VIEW) note_view(sim, msg->view);
    sim_set_sent(sim, msg);
    for (conn_t *c = sim->control->conns; c; c = c->next)
        if (c->number == peer) sim_conn_send(sim, c, 0, msg);
}

static void coord_close(void *arg, uint64_t peer)
{
    sim_t *sim = arg;
    for (conn_t *c = sim->control->conns; c; c = c->next)
        if (c->number == peer) sim_conn_close(sim, c);
}

static int coord_persist(void *arg, const char *text, size_t len, int append)
{
    struct sim_control *ctl = ((sim_t *)arg)->control;
    size_t before = append ? strlen(ctl->state) : 0;
    ctl->state = realloc(ctl->state, before + len + 1);
    memcpy(ctl->state + before, text, len);
    ctl->state[before + len] = '\0';
    return 1;
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
                               .start_workers = (uint32_t)sim->start_workers,
                               .servers = (uint32_t)sim->nservers,
                               .vshards = sim->vshards,
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
        sim_conn_close(sim, c);
    sim_schedule(sim, sim->now + sim_random(sim, 150 * MS), SIM_NOBODY, on_coord_restart, NULL, 0);
}

void sim_control_cut(sim_t *sim)
{
    for (conn_t *c = sim->control->conns; c; c = c->next)
        if (c->open && sim_chance(sim, 30)) sim_conn_close(sim, c);
}

/* ---- all of it ------------------------------------------------------------------------------- */

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

int sim_control_is_formed(const sim_t *sim) { return sim->control->formed; }

int sim_control_is_finished(const sim_t *sim) { return sim->control->finished; }

/* Does every living worker know exactly who lives, for long enough that servers know too, and
 * was it answered? */
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
