/* SPDX-License-Identifier: Apache-2.0 */
/* Membership, in place of the coordinator: one view after another, in the order in which processes come
 * and go; late joins in two phases; tables are declared when all living servers hold them. What it
 * tells a node arrives in order, each node in its own time. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

typedef struct notice {
    struct notice *next; /* all of the simulation */
    psrti_view_t *view;  /* NULL: of a table, or Prepare */
    int joiner;
    size_t count;
    uint32_t table[SIM_MAX_TABLES];
    uint64_t from[SIM_MAX_TABLES];
    uint64_t number; /* Prepare */
} notice_t;

struct sim_control {
    psrti_view_t *view;
    uint64_t incarnation;
    notice_t *notices;
    int pending;                /* starts and deaths that it has not noticed yet */
    int joining[SIM_MAX_NODES]; /* workers that want in */
    int joiner;                 /* the one that servers prepare for */
    uint64_t join_number;
    int owes[SIM_MAX_NODES];
    uint64_t open[SIM_MAX_TABLES];
    int formed;
};

static void review(sim_t *sim);

uint64_t sim_incarnation(sim_t *sim) { return ++sim->control->incarnation; }

void sim_control_open(sim_t *sim)
{
    struct sim_control *c = calloc(1, sizeof *c);
    uint16_t owner[SIM_VSHARDS];
    sim->control = c;
    c->joiner = SIM_NOBODY;
    c->view = psrti_view_new((uint32_t)sim->nworkers, (uint32_t)sim->nservers, SIM_VSHARDS);
    psrti_place_vshards(SIM_VSHARDS, (uint32_t)sim->nservers, owner);
    for (int v = 0; v < SIM_VSHARDS; v++)
        c->view->vshards[v] = (psrti_view_vshard_t){ .owner = owner[v] };
    for (int i = 0; i < sim->nservers; i++)
        c->view->owners[i].server = (uint32_t)i;
}

void sim_control_close(sim_t *sim)
{
    for (notice_t *n = sim->control->notices, *next; n; n = next) {
        next = n->next;
        psrti_view_unref(n->view);
        free(n);
    }
    psrti_view_unref(sim->control->view);
    free(sim->control);
}

/* ---- telling ----------------------------------------------------------------------------------- */

static notice_t *notice_new(sim_t *sim)
{
    notice_t *n = calloc(1, sizeof *n);
    n->joiner = SIM_NOBODY;
    n->next = sim->control->notices;
    sim->control->notices = n;
    return n;
}

static void tell(sim_t *sim, int node, sim_event_fn fn, void *obj, uint64_t arg)
{
    sim_node_t *n = &sim->node[node];
    uint64_t slow = sim_chance(sim, 20) ? 60 * MS : 2 * MS;
    uint64_t at = sim->now + sim_random(sim, slow);
    n->control_last = PSRTI_MAX(at, n->control_last + 1);
    sim_schedule(sim, n->control_last, node, fn, obj, arg);
}

static void on_view(sim_t *sim, void *obj, uint64_t node)
{
    notice_t *n = obj;
    sim_trace(sim, "view %llu at node %d", (unsigned long long)n->view->number, (int)node);
    if ((int)node < sim->nservers) {
        sim_server_view(&sim->server[node], n->view, n->joiner, n->count, n->table, n->from);
        sim_server_after(&sim->server[node]);
    } else {
        sim_worker_t *w = &sim->worker[(int)node - sim->nservers];
        sim_worker_view(w, n->view);
        sim_worker_after(w);
    }
}

static void on_hold(sim_t *sim, void *obj, uint64_t server)
{
    sim_server_hold(&sim->server[server], obj);
}

static void on_table(sim_t *sim, void *obj, uint64_t rank)
{
    sim_table_t *t = obj;
    sim_worker_table(&sim->worker[rank], t, t->from[rank]);
    sim_worker_after(&sim->worker[rank]);
}

static void on_table_lost(sim_t *sim, void *obj, uint64_t rank)
{
    const sim_table_t *t = obj;
    sim_worker_t *w = &sim->worker[rank];
    psrti_client_table_fail(w->client, t->id, PSRT_ERR_SHARD_LOST,
                            "a server of the table was killed");
    sim_worker_after(w);
}

static int in_view(const sim_t *sim, int node)
{
    const psrti_view_t *v = sim->control->view;
    const sim_node_t *n = &sim->node[node];
    if (!n->alive) return 0;
    if (node < sim->nservers)
        return v->owners[node].alive && v->owners[node].incarnation == n->incarnation;
    const psrti_view_worker_t *w = &v->workers[node - sim->nservers];
    return w->alive && w->incarnation == n->incarnation;
}

static void broadcast(sim_t *sim, notice_t *n)
{
    struct sim_control *c = sim->control;
    n->view = psrti_view_ref(c->view);
    sim_trace(sim, "view %llu", (unsigned long long)c->view->number);
    for (int node = 0; node < sim->nservers + sim->nworkers; node++)
        if (in_view(sim, node)) tell(sim, node, on_view, n, (uint64_t)node);
}

/* ---- views ------------------------------------------------------------------------------------- */

static psrti_view_t *change(sim_t *sim)
{
    struct sim_control *c = sim->control;
    psrti_view_t *next = psrti_view_clone(c->view);
    next->number++;
    psrti_view_unref(c->view);
    c->view = next;
    return next;
}

/* What lives elsewhere of a lost table is of no use: its steps would never close. */
static void tell_of_losses(sim_t *sim)
{
    for (int i = 0; i < sim->ntables; i++) {
        sim_table_t *t = &sim->table[i];
        if (!t->lost || t->told_lost) continue;
        t->told_lost = 1;
        for (int r = 0; r < sim->nworkers; r++)
            if (in_view(sim, sim_worker_node(sim, r)))
                tell(sim, sim_worker_node(sim, r), on_table_lost, t, (uint64_t)r);
    }
}

/* A view that ends the hold of a join begins the join again. */
static void publish(sim_t *sim)
{
    broadcast(sim, notice_new(sim));
    tell_of_losses(sim);
    sim->control->joiner = SIM_NOBODY;
    review(sim);
}

static void server_in(sim_t *sim, int server)
{
    psrti_view_t *v = change(sim);
    v->owners[server].alive = 1;
    v->owners[server].incarnation = sim->node[server].incarnation;
    for (int i = 0; i < SIM_VSHARDS; i++)
        if (v->vshards[i].owner == server) v->vshards[i].term++;
}

/* The job begins with one view of everybody. */
static void form(sim_t *sim)
{
    struct sim_control *c = sim->control;
    for (int i = 0; i < sim->nservers; i++)
        server_in(sim, i);
    for (int i = 0; i < sim->nworkers; i++)
        c->view->workers[i] =
            (psrti_view_worker_t){ .incarnation = sim->node[sim_worker_node(sim, i)].incarnation,
                                   .alive = 1 };
    for (uint64_t n = 1 + sim_random(sim, 4); n; n--)
        sim_table_new(sim, c->view);
    c->formed = 1;
    publish(sim);
}

static void on_started(sim_t *sim, void *obj, uint64_t node)
{
    struct sim_control *c = sim->control;
    (void)obj;
    if (--c->pending == 0 && !c->formed) {
        form(sim);
        return;
    }
    if (!c->formed || !sim->node[node].alive || in_view(sim, (int)node)) return;
    if ((int)node < sim->nservers) {
        server_in(sim, (int)node);
        publish(sim);
        return;
    }
    int rank = (int)node - sim->nservers;
    c->joining[rank] = 1;
    if (c->view->workers[rank].alive) { /* its earlier life has ended */
        change(sim)->workers[rank].alive = 0;
        publish(sim);
    }
    review(sim);
}

void sim_control_started(sim_t *sim, int node)
{
    sim->node[node].control_last = sim->now;
    sim->control->pending++;
    sim_schedule(sim, sim->now + sim_random(sim, 10 * MS), SIM_NOBODY, on_started, NULL,
                 (uint64_t)node);
}

static void on_died(sim_t *sim, void *obj, uint64_t node)
{
    struct sim_control *c = sim->control;
    (void)obj;
    c->pending--;
    if ((int)node < sim->nservers) {
        psrti_view_owner_t *o = &c->view->owners[node];
        if (!o->alive || in_view(sim, (int)node)) return;
        change(sim)->owners[node].alive = 0;
    } else {
        int rank = (int)node - sim->nservers;
        int was_joining = c->joiner == rank && !sim->node[node].alive;
        if (!sim->node[node].alive) c->joining[rank] = 0;
        if (!was_joining && (!c->view->workers[rank].alive || in_view(sim, (int)node))) return;
        change(sim)->workers[rank].alive = 0; /* also ends the servers' hold */
    }
    publish(sim);
}

void sim_control_died(sim_t *sim, int node)
{
    for (int i = 0; i < sim->ntables && node < sim->nservers; i++) {
        sim_table_t *t = &sim->table[i];
        for (uint64_t k = 0; k < t->nslices; k++)
            if (t->slice[k].server == node && t->declared) t->lost = 1;
    }
    sim->control->pending++;
    sim_schedule(sim, sim->now + sim_random(sim, 100 * MS), SIM_NOBODY, on_died, NULL,
                 (uint64_t)node);
}

void sim_control_fence(sim_t *sim, int node)
{
    if (!sim->control->formed || !in_view(sim, node)) return;
    sim->node[node].fenced = 1;
    change(sim)->workers[node - sim->nservers].alive = 0;
    publish(sim);
}

/* ---- late joins -------------------------------------------------------------------------------- */

static void on_open_step(void *arg, uint32_t table, uint64_t open_step)
{
    notice_t *n = arg;
    n->table[n->count] = table;
    n->from[n->count++] = open_step;
}

static void commit(sim_t *sim)
{
    struct sim_control *c = sim->control;
    int rank = c->joiner, node = sim_worker_node(sim, rank);
    notice_t *n = notice_new(sim);
    n->joiner = rank;
    for (int i = 0; i < sim->ntables; i++) {
        sim->table[i].from[rank] = c->open[i];
        sim->table[i].from_life[rank] = sim->node[node].life;
        if (!c->open[i]) continue;
        n->table[n->count] = sim->table[i].id;
        n->from[n->count++] = c->open[i];
    }
    psrti_view_t *v = change(sim);
    v->workers[rank].alive = 1;
    v->workers[rank].incarnation = sim->node[node].incarnation;
    c->joining[rank] = 0;
    c->joiner = SIM_NOBODY;
    sim->counts.joins++;
    broadcast(sim, n);
    for (int i = 0; i < sim->ntables; i++)
        if (in_view(sim, node) && sim->table[i].declared && !sim->table[i].lost)
            tell(sim, node, on_table, &sim->table[i], (uint64_t)rank);
    review(sim);
}

static void on_prepared(sim_t *sim, void *obj, uint64_t server)
{
    struct sim_control *c = sim->control;
    const notice_t *n = obj;
    if (c->joiner == SIM_NOBODY || n->number != c->join_number || !c->owes[server]) return;
    c->owes[server] = 0;
    for (size_t i = 0; i < n->count; i++)
        c->open[n->table[i] - 1] = PSRTI_MAX(c->open[n->table[i] - 1], n->from[i] + 1);
    for (int i = 0; i < sim->nservers; i++)
        if (c->owes[i]) return;
    commit(sim);
}

static void on_prepare(sim_t *sim, void *obj, uint64_t server)
{
    notice_t *asked = obj, *n = notice_new(sim);
    n->number = asked->number;
    psrti_shard_prepare(sim->server[server].shard, on_open_step, n);
    sim_schedule(sim, sim->now + sim_random(sim, 3 * MS), SIM_NOBODY, on_prepared, n, server);
}

static void next_join(sim_t *sim)
{
    struct sim_control *c = sim->control;
    for (int i = 0; i < sim->nworkers && c->joiner == SIM_NOBODY; i++)
        if (c->joining[i]) c->joiner = i;
    if (c->joiner == SIM_NOBODY) return;
    notice_t *n = notice_new(sim);
    n->number = ++c->join_number;
    memset(c->open, 0, sizeof c->open);
    int owed = 0;
    for (int i = 0; i < sim->nservers; i++) {
        c->owes[i] = in_view(sim, i);
        owed += c->owes[i];
        if (c->owes[i]) tell(sim, i, on_prepare, n, (uint64_t)i);
    }
    if (!owed) commit(sim);
}

/* ---- tables ------------------------------------------------------------------------------------ */

/* Only to servers that it was not told of in this life. */
static void ask_to_hold(sim_t *sim, sim_table_t *t)
{
    for (int i = 0; i < sim->nservers; i++) {
        uint32_t life = sim->node[i].life;
        if (!in_view(sim, i) || (t->held[i] & ~1u) == life << 1) continue;
        t->held[i] = life << 1;
        tell(sim, i, on_hold, t, (uint64_t)i);
    }
}

static int is_held(const sim_t *sim, const sim_table_t *t)
{
    for (int i = 0; i < sim->nservers; i++)
        if (!in_view(sim, i) || t->held[i] != (sim->node[i].life << 1 | 1)) return 0;
    return 1;
}

/* A table whose server was killed is declared anew under another name when all servers live. */
static void review_tables(sim_t *sim)
{
    struct sim_control *c = sim->control;
    for (int i = 0; i < sim->nservers; i++)
        if (!in_view(sim, i)) return;
    for (int i = 0; i < sim->ntables; i++) {
        sim_table_t *t = &sim->table[i];
        if (t->lost && !t->replaced && sim->ntables < SIM_MAX_TABLES) {
            t->replaced = 1;
            sim_table_new(sim, c->view);
        }
        if (t->declared) continue;
        ask_to_hold(sim, t);
        if (!is_held(sim, t)) continue;
        t->declared = 1;
        for (int r = 0; r < sim->nworkers; r++)
            if (in_view(sim, sim_worker_node(sim, r)))
                tell(sim, sim_worker_node(sim, r), on_table, t, (uint64_t)r);
    }
}

static void on_held(sim_t *sim, void *obj, uint64_t arg)
{
    sim_table_t *t = obj;
    int server = (int)(arg & 0xff);
    uint32_t life = (uint32_t)(arg >> 8);
    if (in_view(sim, server) && sim->node[server].life == life && t->held[server] == life << 1)
        t->held[server] |= 1;
    review(sim);
}

void sim_control_held(sim_t *sim, int server, sim_table_t *table)
{
    sim_schedule(sim, sim->now + sim_random(sim, 2 * MS), SIM_NOBODY, on_held, table,
                 (uint64_t)server | (uint64_t)sim->node[server].life << 8);
}

/* ---- what is to be done ------------------------------------------------------------------------ */

static void review(sim_t *sim)
{
    if (!sim->control->formed) return;
    if (sim->control->joiner == SIM_NOBODY) next_join(sim);
    review_tables(sim);
}

int sim_control_is_quiet(const sim_t *sim)
{
    const struct sim_control *c = sim->control;
    if (!c->formed || c->pending || c->joiner != SIM_NOBODY) return 0;
    for (int i = 0; i < sim->nservers; i++)
        if (!in_view(sim, i)) return 1; /* nothing can be declared any more */
    for (int i = 0; i < sim->ntables; i++)
        if (!sim->table[i].declared) return 0;
    return 1;
}
