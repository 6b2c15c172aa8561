/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/worker/worker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/topology.h"
#include "runtime/worker/worker_int.h"

/* ---- what the user is told --------------------------------------------------------------------- */

void psrti_worker_lose(psrti_worker_t *w, psrt_status_t status, const char *text)
{
    pthread_mutex_lock(&w->lock);
    if (!w->status) {
        w->status = status;
        snprintf(w->text, sizeof w->text, "%s", text);
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void psrti_worker_event(psrti_worker_t *w, int event, const char *text)
{
    if (!w->p.on_event) return;
    const psrti_worker_t *outer = psrti_callback_enter(w);
    w->p.on_event(w->p.arg, event, text);
    psrti_callback_leave(outer);
}

/* ---- member's callbacks ------------------------------------------------------------------------ */

static psrti_note_t *note_new(int kind)
{
    psrti_note_t *n = calloc(1, sizeof *n);
    if (n)
        n->kind = kind;
    else
        psrti_error("out of memory, a message of the coordinator is lost");
    return n;
}

static void on_joined(void *arg, uint64_t incarnation)
{
    psrti_worker_t *w = arg;
    psrti_baton_take(w);
    psrti_net_set_incarnation(w->net, incarnation);
    psrti_baton_give(w);
}

static void tell_members(psrti_worker_t *w, psrti_view_t *view)
{
    char text[PSRTI_ERROR_MAX];
    psrti_view_changes(w->told, view, text, sizeof text);
    psrti_view_unref(w->told);
    w->told = psrti_view_ref(view);
    if (*text) psrti_worker_event(w, PSRT_EVENT_MEMBERS, text);
}

static void on_view(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                    const uint32_t *table, const uint64_t *from_step)
{
    psrti_worker_t *w = arg;
    (void)worker, (void)count, (void)table, (void)from_step; /* for servers */
    psrti_note_t *n = note_new(PSRTI_NOTE_VIEW);
    if (!n) return;
    n->view = psrti_view_ref(view);
    psrti_note_post(w, n);
    tell_members(w, view);
}

static void table_failed(psrti_worker_t *w, const psrti_member_table_t *t)
{
    psrti_note_t *n = note_new(PSRTI_NOTE_FAIL);
    if (!n) return;
    n->table = t->id;
    n->status = t->status;
    n->text = strdup(t->text);
    psrti_note_post(w, n);
}

static void take_answer(psrti_pending_t *p, size_t count, const psrti_member_table_t *tables)
{
    p->answered = 1;
    if (count != p->count) {
        p->status = PSRT_ERR_PROTOCOL;
        snprintf(p->text, sizeof p->text, "the coordinator answered for %zu of %zu tables", count,
                 p->count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        p->ids[i] = tables[i].id;
        p->first_steps[i] = tables[i].first_step;
        if (tables[i].status == PSRT_OK || p->status) continue;
        p->status = tables[i].status;
        snprintf(p->text, sizeof p->text, "%s", tables[i].text);
    }
}

static void on_declared(void *arg, uint64_t request, size_t count,
                        const psrti_member_table_t *tables)
{
    psrti_worker_t *w = arg;
    if (request == 0) {
        for (size_t i = 0; i < count; i++)
            table_failed(w, &tables[i]);
        return;
    }
    pthread_mutex_lock(&w->lock);
    for (psrti_list_t *n = w->pending.next; n != &w->pending; n = n->next) {
        psrti_pending_t *p = PSRTI_LIST_ENTRY(n, psrti_pending_t, node);
        if (p->request == request && !p->answered) take_answer(p, count, tables);
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void on_end(void *arg, psrt_status_t status, const char *text)
{
    psrti_worker_t *w = arg;
    if (status == PSRT_OK) status = PSRT_ERR_CLOSED, text = "the job is over";
    psrti_worker_lose(w, status, text && *text ? text : psrt_status_text(status));
    psrti_note_t *n = note_new(PSRTI_NOTE_FAIL);
    if (!n) return;
    n->status = w->status;
    n->text = strdup(w->text);
    psrti_note_post(w, n);
    psrti_worker_event(w, PSRT_EVENT_LOST, w->text);
}

/* ---- start and stop ---------------------------------------------------------------------------- */

static psrt_status_t start_keeper(psrti_worker_t *w)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&w->keeper, NULL, psrti_keeper_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) return psrti_fail(PSRT_ERR_LIMIT, "cannot start a thread: %s", strerror(rc));
    w->keeper_started = 1;
    return PSRT_OK;
}

static psrt_status_t join_job(psrti_worker_t *w)
{
    psrti_view_owner_t own = { .naddrs = 0 };
    own.naddrs = psrti_net_addrs(w->net, own.addr, PSRTI_ADDRS_PER_OWNER);
    psrti_member_params_t mp = { .config = w->p.config,
                                 .nthreads = 1,
                                 .threads = &own,
                                 .key = w->p.key,
                                 .task = PSRTI_TASK(PSRTI_WORKER, w->p.rank),
                                 .workers = w->p.workers,
                                 .servers = w->p.servers,
                                 .coordinator = w->p.coordinator,
                                 .arg = w,
                                 .on_joined = on_joined,
                                 .on_view = on_view,
                                 .on_declared = on_declared,
                                 .on_end = on_end };
    psrt_status_t rc = psrti_member_start(&mp, &w->member);
    return rc ? rc : psrti_member_wait_ready(w->member);
}

static void init_sync(psrti_worker_t *w)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_cond_init(&w->keeper_cond, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&w->lock, NULL);
    psrti_list_init(&w->inbox);
    psrti_list_init(&w->pending);
    psrti_list_init(&w->ops);
    psrti_list_init(&w->comms);
    psrti_list_init(&w->fusions);
    psrti_list_init(&w->smalls);
    psrti_list_init(&w->active_smalls);
    w->next_redial = w->next_peer_dial = w->timer = UINT64_MAX;
    psrti_spin_init(&w->spin, psrti_config_u64(w->p.config, PSRTI_CONF_SPIN),
                    psrti_topology_cores(NULL));
}

psrt_status_t psrti_worker_start(const psrti_worker_start_t *params, psrti_worker_t **worker_p)
{
    psrti_worker_t *w = calloc(1, sizeof *w);
    if (!w) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a worker");
    w->p = *params;
    init_sync(w);
    psrti_client_env_t env = psrti_links_env;
    env.arg = w;
    env.batch_bytes = psrti_config_u64(params->config, PSRTI_CONF_MAX_MESSAGE);
    psrt_status_t rc =
        psrti_kernels_select(psrti_config_text(params->config, PSRTI_CONF_CPU), &w->kernels);
    if (!rc)
        rc = psrti_client_create(params->rank, psrti_config_u64(params->config, PSRTI_CONF_RETRY),
                                 psrti_config_u64(params->config, PSRTI_CONF_CANCEL_TIMEOUT),
                                 w->kernels, &env, &w->client);
    if (!rc) rc = psrti_comms_open(w);
    if (!rc) rc = psrti_links_open(w);
    if (!rc) rc = start_keeper(w);
    if (!rc) rc = join_job(w);
    if (rc) {
        char text[PSRTI_ERROR_MAX];
        snprintf(text, sizeof text, "%s", psrt_last_error());
        psrti_worker_stop(w);
        return psrti_fail(rc, "%s", text);
    }
    *worker_p = w;
    return PSRT_OK;
}

static void drain_until(psrti_worker_t *w, uint64_t deadline)
{
    for (;;) {
        psrti_baton_take(w);
        (void)psrti_baton_move(w);
        uint64_t left = psrti_client_outstanding(w->client) + psrti_comms_in_use(w) +
                        psrti_coll_unsent(w->coll) + (psrti_net_untaken(w->net) > 0);
        uint64_t now = psrti_now_ns();
        if (left && now < deadline) psrti_net_sleep(w->net, PSRTI_NS_PER_MS);
        psrti_baton_give(w);
        if (!left) return;
        if (now < deadline) continue;
        psrti_warn("worker:%u: %llu transfers were not finished within the drain timeout",
                   w->p.rank, (unsigned long long)left);
        return;
    }
}

/* Operations end; then others hear that this worker is in no communicator any more, so that what they still do in
 * them without it goes on. */
static void drain(psrti_worker_t *w)
{
    uint64_t deadline = psrti_deadline(psrti_config_u64(w->p.config, PSRTI_CONF_DRAIN_TIMEOUT));
    drain_until(w, deadline);
    psrti_baton_take(w);
    psrti_comms_leave(w);
    psrti_baton_give(w);
    drain_until(w, deadline);
}

static void stop_keeper(psrti_worker_t *w)
{
    if (!w->keeper_started) return;
    pthread_mutex_lock(&w->lock);
    w->stop = 1;
    atomic_fetch_add(&w->wanted, 1);
    pthread_cond_signal(&w->keeper_cond);
    pthread_mutex_unlock(&w->lock);
    psrti_net_wake(w->net);
    pthread_join(w->keeper, NULL);
}

/* Ends every operation that is left, so that its callback runs and its memory is quiet. */
static void end_ops(psrti_worker_t *w)
{
    psrti_baton_take(w);
    psrti_client_fail(w->client, PSRT_ERR_CLOSED, "the context was closed");
    psrti_coll_fail(w->coll, PSRT_ERR_CLOSED, "the context was closed");
    psrti_links_drop(w);
    psrti_peers_drop(w);
    psrti_baton_move(w);
    psrti_baton_give(w);
}

static void free_notes(psrti_worker_t *w)
{
    psrti_list_t *node;
    while ((node = psrti_list_pop(&w->inbox))) {
        psrti_note_t *n = PSRTI_LIST_ENTRY(node, psrti_note_t, node);
        psrti_view_unref(n->view);
        free(n->text);
        if (n->kind != PSRTI_NOTE_SUBMIT && n->kind != PSRTI_NOTE_MOVE) free(n);
    }
}

void psrti_worker_stop(psrti_worker_t *w)
{
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    int well = w->status == PSRT_OK;
    pthread_mutex_unlock(&w->lock);
    if (w->member && well) {
        drain(w);
        psrti_member_leave(w->member, 0);
    }
    if (w->net && w->client) end_ops(w); /* from here on the client does not call the member */
    psrti_member_stop(w->member);
    stop_keeper(w);
    free_notes(w);
    psrti_comms_close(w);
    psrti_client_destroy(w->client);
    psrti_net_close(w->net);
    psrti_ops_free(w);
    psrti_view_unref(w->view);
    psrti_view_unref(w->told);
    free(w->links);
    pthread_cond_destroy(&w->changed);
    pthread_cond_destroy(&w->keeper_cond);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* ---- declarations ------------------------------------------------------------------------------ */

static psrt_status_t await_answer(psrti_worker_t *w, psrti_pending_t *p)
{
    pthread_mutex_lock(&w->lock);
    w->sleepers++;
    while (!p->answered && !w->status)
        pthread_cond_wait(&w->changed, &w->lock);
    w->sleepers--;
    psrti_list_remove(&p->node);
    psrt_status_t rc = p->answered ? p->status : w->status;
    if (rc) psrti_fail(rc, "%s", p->answered ? p->text : w->text);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* The tables of an answered declaration; the baton brings the view they belong to first. */
static psrt_status_t open_tables(psrti_worker_t *w, const psrti_pending_t *p,
                                 const psrti_table_spec_t *specs, psrti_ctable_t **tables_p)
{
    psrt_status_t rc = PSRT_OK;
    psrti_baton_take(w);
    for (size_t i = 0; !rc && i < p->count; i++)
        rc = psrti_client_table(w->client, p->ids[i], &specs[i], p->first_steps[i], &tables_p[i]);
    psrti_baton_give(w);
    return rc ? psrti_fail(rc, "out of memory for %zu tables", p->count) : PSRT_OK;
}

psrt_status_t psrti_worker_declare(psrti_worker_t *w, size_t count, const psrti_table_spec_t *specs,
                                   psrti_ctable_t **tables_p)
{
    psrti_pending_t p = { .count = count };
    psrt_status_t rc;
    p.ids = calloc(count, sizeof *p.ids);
    p.first_steps = calloc(count, sizeof *p.first_steps);
    if (p.ids && p.first_steps) {
        pthread_mutex_lock(&w->lock);
        p.request = ++w->next_request;
        psrti_list_push(&w->pending, &p.node);
        pthread_mutex_unlock(&w->lock);
        psrti_member_declare(w->member, p.request, count, specs);
        rc = await_answer(w, &p);
        if (!rc) rc = open_tables(w, &p, specs, tables_p);
    } else {
        rc = psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for %zu tables", count);
    }
    free(p.ids);
    free(p.first_steps);
    return rc;
}

/* ---- barrier and set --------------------------------------------------------------------------- */

static psrt_status_t check_alive(psrti_worker_t *w)
{
    pthread_mutex_lock(&w->lock);
    psrt_status_t rc = w->status;
    if (rc) psrti_fail(rc, "%s", w->text);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* Completes the caller's earlier operations; reports one that failed. */
static psrt_status_t settle_ops(psrti_worker_t *w, const char *name, uint64_t deadline)
{
    psrt_status_t rc = PSRT_OK;
    pthread_mutex_lock(&w->lock);
    while (w->live_ops && rc == PSRT_OK) {
        if (!psrti_baton_try(w)) {
            rc = psrti_worker_sleep(w, deadline);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        if (!psrti_baton_move(w)) psrti_net_sleep(w->net, PSRTI_NS_PER_MS);
        psrti_baton_give(w);
        pthread_mutex_lock(&w->lock);
        if (psrti_now_ns() >= deadline) rc = PSRT_ERR_TIMEOUT;
    }
    if (rc) {
        psrti_fail(rc, "barrier %s: %llu earlier operations of this worker have not ended", name,
                   (unsigned long long)w->live_ops);
    } else if ((rc = w->failed)) {
        psrti_fail(rc, "barrier %s: an earlier operation failed: %s", name, w->failed_text);
        w->failed = PSRT_OK;
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

psrt_status_t psrti_worker_barrier(psrti_worker_t *w, const char *name, uint32_t count,
                                   uint64_t timeout_ns)
{
    uint64_t deadline = timeout_ns == PSRT_FOREVER ? UINT64_MAX : psrti_deadline(timeout_ns);
    psrt_status_t rc = check_alive(w);
    if (!rc) rc = settle_ops(w, name, deadline);
    if (rc) return rc;
    uint64_t now = psrti_now_ns();
    uint64_t left = deadline == UINT64_MAX ? PSRT_FOREVER : deadline > now ? deadline - now : 0;
    return psrti_member_barrier(w->member, name, count, left);
}

psrt_status_t psrti_worker_set(psrti_worker_t *w, const psrti_ctable_t *table, const char *key,
                               double value, uint64_t from_step, uint64_t *step_p)
{
    psrt_status_t rc = check_alive(w);
    if (rc) return rc;
    return psrti_member_set(w->member, psrti_ctable_id(table), key, value, from_step, step_p);
}

/* ---- memory and facts -------------------------------------------------------------------------- */

void *psrti_worker_alloc(psrti_worker_t *w, uint64_t bytes)
{
    void *p = NULL;
    psrti_baton_take(w);
    psrt_status_t rc = psrti_net_alloc(w->net, bytes, &p);
    psrti_baton_give(w);
    return rc ? NULL : p;
}

void psrti_worker_free(psrti_worker_t *w, void *ptr)
{
    psrti_baton_take(w);
    psrti_net_free(w->net, ptr);
    psrti_baton_give(w);
}

static void list_transports(const psrti_worker_t *w, char *buf, size_t size)
{
    size_t pos = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; w->view && i < w->view->nowners; i++) {
        const psrti_link_t *link = w->links[i].link;
        if (!link || !link->up || strstr(buf, link->transport)) continue;
        psrti_append(buf, size, &pos, "%s%s", pos ? "," : "", link->transport);
    }
}

void psrti_worker_facts(psrti_worker_t *w, psrti_worker_facts_t *out)
{
    memset(out, 0, sizeof *out);
    psrti_baton_take(w);
    psrti_client_counts(w->client, &out->counts);
    if (w->view) {
        out->view = w->view->number;
        out->live_workers = psrti_view_live_workers(w->view);
        out->live_servers = psrti_view_live_servers(w->view);
    }
    list_transports(w, out->transports, sizeof out->transports);
    psrti_baton_give(w);
}

static void fill_member(psrt_member_t *m, psrt_role_t role, uint32_t rank, uint64_t incarnation,
                        int alive, int finished, const char *host)
{
    *m = (psrt_member_t)PSRT_MEMBER_INIT;
    m->role = role, m->rank = rank;
    m->incarnation = incarnation;
    m->alive = alive != 0, m->finished = finished != 0;
    snprintf(m->host, sizeof m->host, "%s", host);
}

static uint32_t list_workers(const psrti_view_t *v, psrt_member_t *members, uint32_t capacity)
{
    for (uint32_t i = 0; i < v->nworkers && i < capacity; i++) {
        const psrti_view_worker_t *p = &v->workers[i];
        fill_member(&members[i], PSRT_ROLE_WORKER, i, p->incarnation, p->alive, p->finished,
                    p->host);
    }
    return v->nworkers;
}

static uint32_t list_servers(const psrti_view_t *v, psrt_member_t *members, uint32_t capacity)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->nowners; i++) {
        const psrti_view_owner_t *o = &v->owners[i];
        if (o->thread) continue;
        if (n < capacity)
            fill_member(&members[n], PSRT_ROLE_SERVER, o->server, o->incarnation, o->alive, 0,
                        o->host);
        n++;
    }
    return n;
}

uint32_t psrti_worker_members(psrti_worker_t *w, psrt_role_t role, psrt_member_t *members,
                              uint32_t capacity)
{
    uint32_t n = 0;
    psrti_baton_take(w);
    if (w->view && role == PSRT_ROLE_WORKER)
        n = list_workers(w->view, members, capacity);
    else if (w->view)
        n = list_servers(w->view, members, capacity);
    psrti_baton_give(w);
    return n;
}

uint64_t psrti_worker_next_step(psrti_worker_t *w, const psrti_ctable_t *table)
{
    psrti_baton_take(w);
    uint64_t step = psrti_ctable_next_step(table);
    psrti_baton_give(w);
    return step;
}

uint64_t psrti_worker_skipped_steps(psrti_worker_t *w, const psrti_ctable_t *table)
{
    psrti_baton_take(w);
    uint64_t steps = psrti_ctable_skipped_steps(table);
    psrti_baton_give(w);
    return steps;
}
