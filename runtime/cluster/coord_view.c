/* SPDX-License-Identifier: Apache-2.0 */
/* Views, and the two phases in which a late worker enters one.
 *
 * A late join asks every live server for its highest open steps (Prepare); from then on servers
 * close no step above those until the next view. Any other change of the view ends that hold, so
 * it starts the join again under a new number. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/coord_internal.h"

psrt_status_t psrti_coord_form(psrti_coord_t *c)
{
    c->nowners = 0;
    for (uint32_t i = 0; i < c->p.servers; i++) {
        c->servers[i].first_owner = c->nowners;
        c->nowners += c->servers[i].nthreads;
    }
    if (c->nowners > PSRTI_MAX_RANKS) return PSRT_ERR_LIMIT;
    free(c->owner_of_vshard);
    free(c->server_of_owner);
    c->owner_of_vshard = calloc(c->p.vshards, sizeof *c->owner_of_vshard);
    c->server_of_owner = calloc(c->nowners + 1, sizeof *c->server_of_owner);
    if (!c->owner_of_vshard || !c->server_of_owner) return PSRT_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < c->p.servers; i++)
        for (uint32_t t = 0; t < c->servers[i].nthreads; t++)
            c->server_of_owner[c->servers[i].first_owner + t] = i;
    if (c->nowners) psrti_place_vshards(c->p.vshards, c->nowners, c->owner_of_vshard);
    return PSRT_OK;
}

_Static_assert(sizeof((place_t *)NULL)->host == PSRTI_VIEW_HOST, "hosts are copied into views");

static psrti_view_t *build(const psrti_coord_t *c)
{
    uint32_t vshards = c->nowners ? c->p.vshards : 0;
    psrti_view_t *view = psrti_view_new(c->p.workers, c->nowners, vshards);

    if (!view) return NULL;
    view->number = c->view_number;
    view->generation = c->generation;
    for (uint32_t i = 0; i < c->p.workers; i++) {
        const place_t *p = &c->workers[i];
        if (p->state == PLACE_JOINING) continue;
        view->workers[i].incarnation = p->incarnation;
        view->workers[i].alive = p->state == PLACE_ALIVE;
        view->workers[i].finished = p->state == PLACE_FINISHED;
        memcpy(view->workers[i].host, p->host, sizeof p->host);
        memcpy(view->workers[i].addrs, p->addrs, sizeof p->addrs);
    }
    for (uint32_t i = 0; i < c->p.servers; i++) {
        const place_t *p = &c->servers[i];
        for (uint32_t t = 0; t < p->nthreads; t++) {
            psrti_view_owner_t *owner = &view->owners[p->first_owner + t];
            if (p->threads) *owner = p->threads[t];
            owner->server = i;
            owner->thread = t;
            owner->incarnation = p->incarnation;
            owner->alive = p->state == PLACE_ALIVE;
            memcpy(owner->host, p->host, sizeof p->host);
        }
    }
    for (uint32_t v = 0; v < vshards; v++) {
        view->vshards[v].owner = c->owner_of_vshard[v];
        view->vshards[v].term = c->servers[view->owners[c->owner_of_vshard[v]].server].term;
    }
    return view;
}

static void new_view(psrti_coord_t *c)
{
    c->view_number++;
    c->published = c->now;
    c->view_due = 0;
    psrti_view_t *view = build(c);
    if (!view) {
        psrti_coord_no_memory(c);
        return;
    }
    psrti_view_unref(c->before);
    c->before = c->view;
    c->view = view;
    psrti_coord_persist(c);
}

/* A view as it is sent: the changes to those who have `base`, else all of it. Made when needed. */
typedef struct forms {
    const psrti_view_t *base;
    Psrt__View *changes, *whole;
} forms_t;

static void forms_free(forms_t *f)
{
    free(f->changes);
    free(f->whole);
}

/* NULL: no memory, the job ends. */
static Psrt__View *form_for(psrti_coord_t *c, forms_t *f, place_t *to)
{
    int has_base = f->base && to->view_sent == f->base->number;
    Psrt__View **form = has_base ? &f->changes : &f->whole;

    if (!*form)
        *form =
            has_base ? psrti_view_changes_to_wire(f->base, c->view) : psrti_view_to_wire(c->view);
    if (!*form) psrti_coord_no_memory(c);
    to->view_sent = c->view->number;
    return *form;
}

static void send_body(psrti_coord_t *c, place_t *to, forms_t *forms)
{
    Psrt__View *body = form_for(c, forms, to);

    if (!body) return;
    PSRTI_CONTROL(msg, VIEW, view, body);
    psrti_coord_send(c, to->peer, &msg);
}

/* With the steps of the tables that were dealt to that server. */
static void send_commit(psrti_coord_t *c, place_t *to, forms_t *forms, const place_t *worker,
                        const psrti_dealt_t *dealt)
{
    Psrt__Commit body = PSRT__COMMIT__INIT;
    const uint32_t *first = &dealt->first[PSRTI_TASK_RANK(to->task)];
    size_t n = first[1] - first[0];
    uint64_t *steps = malloc((n + 1) * (sizeof *steps + sizeof *body.table));

    if (!steps) {
        psrti_coord_no_memory(c);
        return;
    }
    uint32_t *tables = (uint32_t *)(steps + n);
    for (size_t i = 0; i < n; i++) {
        uint32_t at = dealt->index[first[0] + i];
        tables[i] = worker->from_table[at];
        steps[i] = worker->from_step[at];
    }
    body.view = form_for(c, forms, to);
    body.worker = PSRTI_TASK_RANK(worker->task);
    body.n_table = body.n_from_step = n;
    body.table = tables;
    body.from_step = steps;
    PSRTI_CONTROL(msg, COMMIT, commit, &body);
    if (body.view) psrti_coord_send(c, to->peer, &msg);
    free(steps);
}

static psrt_status_t deal_steps(const psrti_coord_t *c, const place_t *worker, psrti_dealt_t *dealt)
{
    return psrti_coord_deal(c, worker->from_table, worker->nfrom, dealt);
}

/* Servers first, so that they count a joiner before it can push. */
static void broadcast(psrti_coord_t *c, const place_t *joiner)
{
    forms_t forms = { .base = c->before };
    psrti_dealt_t dealt = { NULL, NULL };

    if (joiner && deal_steps(c, joiner, &dealt) != PSRT_OK) {
        psrti_coord_no_memory(c);
        return;
    }
    for (uint32_t i = 0; i < c->p.servers; i++) {
        if (joiner)
            send_commit(c, &c->servers[i], &forms, joiner, &dealt);
        else
            send_body(c, &c->servers[i], &forms);
    }
    for (uint32_t i = 0; i < c->p.workers; i++)
        if (c->workers[i].state == PLACE_ALIVE) send_body(c, &c->workers[i], &forms);
    psrti_coord_dealt_free(&dealt);
    forms_free(&forms);
}

void psrti_coord_publish(psrti_coord_t *c)
{
    if (!c->formed || c->recovering || c->ending) return;
    new_view(c);
    if (c->ending) return;
    broadcast(c, NULL);
    if (c->joiner) psrti_coord_join_gone(c, c->joiner);
    psrti_coord_next_join(c);
}

/* Workers are told of by time; servers at once, since what they hold waits for it. */
void psrti_coord_publish_soon(psrti_coord_t *c)
{
    uint64_t due = c->published + COORD_VIEW_NS * psrti_place_count(c);

    if (!c->formed || c->recovering || c->ending) return;
    if (c->now >= due)
        psrti_coord_publish(c);
    else if (!c->view_due)
        c->view_due = due;
}

void psrti_coord_publish_due(psrti_coord_t *c)
{
    if (c->view_due && c->now >= c->view_due) psrti_coord_publish(c);
}

/* To one task that registered again, all of it. A server that missed late joins must still learn their
 * steps; with all but the first commit goes a view that changes nothing. */
void psrti_coord_send_view(psrti_coord_t *c, place_t *to, uint64_t last_seen)
{
    forms_t forms = { .base = c->view };
    int committed = 0;

    if (!c->view) return;
    for (uint32_t i = 0; i < c->p.workers && PSRTI_TASK_ROLE(to->task) == PSRTI_SERVER; i++) {
        const place_t *w = &c->workers[i];
        psrti_dealt_t dealt;
        if (w->state != PLACE_ALIVE || w->commit_view <= last_seen) continue;
        if (deal_steps(c, w, &dealt) != PSRT_OK) {
            psrti_coord_no_memory(c);
            break;
        }
        send_commit(c, to, &forms, w, &dealt);
        psrti_coord_dealt_free(&dealt);
        committed = 1;
    }
    if (!committed) send_body(c, to, &forms);
    forms_free(&forms);
}

/* To all servers: the last ones may have been lost with the coordinator before. */
void psrti_coord_send_commits(psrti_coord_t *c)
{
    forms_t forms = { .base = c->view };

    for (uint32_t i = 0; i < c->p.workers && !c->ending; i++) {
        const place_t *w = &c->workers[i];
        psrti_dealt_t dealt;
        if (w->state != PLACE_ALIVE || !w->commit_view) continue;
        if (deal_steps(c, w, &dealt) != PSRT_OK) {
            psrti_coord_no_memory(c);
            break;
        }
        for (uint32_t s = 0; s < c->p.servers; s++)
            if (c->servers[s].state == PLACE_ALIVE)
                send_commit(c, &c->servers[s], &forms, w, &dealt);
        psrti_coord_dealt_free(&dealt);
    }
    forms_free(&forms);
}

/* ---- late joins ------------------------------------------------------------------------------ */

static void commit(psrti_coord_t *c)
{
    place_t *joiner = c->joiner;

    c->joiner = NULL;
    if (psrti_coord_collect_steps(c, joiner) != PSRT_OK) {
        psrti_coord_no_memory(c);
        return;
    }
    joiner->state = PLACE_ALIVE;
    joiner->changed = 1;
    joiner->commit_view = c->view_number + 1;
    new_view(c);
    if (!c->ending) broadcast(c, joiner);
    psrti_coord_next_join(c);
}

void psrti_coord_send_prepare(psrti_coord_t *c, const place_t *server)
{
    Psrt__Prepare body = PSRT__PREPARE__INIT;

    body.view = c->join_view;
    body.worker = PSRTI_TASK_RANK(c->joiner->task);
    PSRTI_CONTROL(msg, PREPARE, prepare, &body);
    psrti_coord_send(c, server->peer, &msg);
}

/* One join at a time. */
void psrti_coord_next_join(psrti_coord_t *c)
{
    if (!c->formed || c->recovering || c->ending || c->joiner) return;
    for (uint32_t i = 0; i < c->p.workers && !c->joiner; i++)
        if (c->workers[i].state == PLACE_JOINING) c->joiner = &c->workers[i];
    if (!c->joiner) return;
    c->join_view = c->view_number + 1;
    c->join_owed = 0;
    for (uint32_t i = 0; i < c->p.servers; i++) {
        place_t *s = &c->servers[i];
        s->owes_prepared = s->state == PLACE_ALIVE;
        c->join_owed += (uint32_t)s->owes_prepared;
    }
    for (uint32_t i = 0; i < c->p.servers; i++)
        if (c->servers[i].owes_prepared) psrti_coord_send_prepare(c, &c->servers[i]);
    if (c->join_owed == 0) commit(c);
}

void psrti_coord_server_prepared(psrti_coord_t *c, place_t *server)
{
    if (!server->owes_prepared) return;
    server->owes_prepared = 0;
    /* A server that died is followed by a new view, which starts the join again. */
    if (--c->join_owed == 0 && c->joiner && server->state == PLACE_ALIVE) commit(c);
}

void psrti_coord_on_prepared(psrti_coord_t *c, place_t *server, const Psrt__Prepared *msg)
{
    if (!c->joiner || msg->view != c->join_view || !server->owes_prepared) return;
    for (size_t i = 0; i < msg->n_table && i < msg->n_open_step; i++)
        psrti_coord_open_step(c, msg->table[i], msg->open_step[i]);
    psrti_coord_server_prepared(c, server);
}

void psrti_coord_join_gone(psrti_coord_t *c, place_t *worker)
{
    if (c->joiner != worker) return;
    c->joiner = NULL;
    for (uint32_t i = 0; i < c->p.servers; i++)
        c->servers[i].owes_prepared = 0;
    c->join_owed = 0;
}

uint64_t psrti_coord_first_step(const place_t *worker, uint32_t table)
{
    uint32_t low = 0, high = worker->nfrom;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (worker->from_table[mid] == table) return worker->from_step[mid];
        if (worker->from_table[mid] < table)
            low = mid + 1;
        else
            high = mid;
    }
    return 0;
}
