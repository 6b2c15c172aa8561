/* SPDX-License-Identifier: Apache-2.0 */
/* Who moves things: the baton, and the keeper that takes it when nobody else does. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "runtime/worker/small.h"
#include "runtime/worker/worker_int.h"

#define KEEPER_AFTER_NS 200000u                /* no caller moved anything for so long     */
#define KEEPER_CALM_NS 2000000u                /* between looks after a burst, or in a crowd */
#define KEEPER_IDLE_NS (100 * PSRTI_NS_PER_MS) /* housekeeping when nothing is in flight */

/* ---- notes ------------------------------------------------------------------------------------- */

void psrti_note_post(psrti_worker_t *w, psrti_note_t *note)
{
    pthread_mutex_lock(&w->lock);
    psrti_list_push(&w->inbox, &note->node);
    atomic_store(&w->filled, 1);
    if (!w->busy) pthread_cond_signal(&w->keeper_cond);
    pthread_mutex_unlock(&w->lock);
    psrti_net_wake(w->net);
}

static void fail_as_told(psrti_worker_t *w, const psrti_note_t *note)
{
    const char *text = note->text ? note->text : psrt_status_text(note->status);
    if (note->table)
        psrti_client_table_fail(w->client, note->table, note->status, text);
    else
        psrti_client_fail(w->client, note->status, text);
    if (!note->table) psrti_coll_fail(w->coll, note->status, text);
}

static void do_note(psrti_worker_t *w, psrti_note_t *note)
{
    switch (note->kind) {
    case PSRTI_NOTE_SUBMIT: psrti_op_start(w, note->op); return; /* part of the op */
    case PSRTI_NOTE_MOVE: w->unpolled = UINT8_MAX; return;       /* sending alone is not enough */
    case PSRTI_NOTE_VIEW:
        psrti_links_view(w, note->view);
        psrti_view_unref(note->view);
        break;
    case PSRTI_NOTE_FAIL: fail_as_told(w, note); break;
    }
    free(note->text);
    free(note);
}

unsigned psrti_inbox_read(psrti_worker_t *w)
{
    unsigned n = 0;
    if (!atomic_load(&w->filled)) return 0;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        psrti_list_t *node = psrti_list_pop(&w->inbox);
        if (!node) atomic_store(&w->filled, 0);
        pthread_mutex_unlock(&w->lock);
        if (!node) return n;
        do_note(w, PSRTI_LIST_ENTRY(node, psrti_note_t, node));
        n++;
    }
}

/* ---- the baton --------------------------------------------------------------------------------- */

static void hold(psrti_worker_t *w)
{
    w->busy = 1;
    w->holds++;
    w->holder = pthread_self();
}

int psrti_baton_try(psrti_worker_t *w)
{
    if (w->busy || atomic_load(&w->takers)) return 0;
    hold(w);
    return 1;
}

psrt_status_t psrti_worker_sleep(psrti_worker_t *w, uint64_t deadline)
{
    int rc;
    w->sleepers++;
    atomic_fetch_add(&w->wanted, 1);
    psrti_net_wake(w->net);
    if (deadline == UINT64_MAX) {
        rc = pthread_cond_wait(&w->changed, &w->lock);
    } else {
        struct timespec ts = { (time_t)(deadline / PSRTI_NS_PER_S),
                               (long)(deadline % PSRTI_NS_PER_S) };
        rc = pthread_cond_timedwait(&w->changed, &w->lock, &ts);
    }
    w->sleepers--;
    atomic_fetch_sub(&w->wanted, 1);
    return rc == ETIMEDOUT ? PSRT_ERR_TIMEOUT : PSRT_OK;
}

void psrti_baton_take(psrti_worker_t *w)
{
    pthread_mutex_lock(&w->lock);
    int mine = w->busy && pthread_equal(w->holder, pthread_self());
    if (mine) {
        w->nested++;
    } else {
        atomic_fetch_add(&w->takers, 1);
        while (w->busy)
            psrti_worker_sleep(w, UINT64_MAX);
        atomic_fetch_sub(&w->takers, 1);
        hold(w);
    }
    pthread_mutex_unlock(&w->lock);
    if (!mine) psrti_baton_move(w);
}

void psrti_baton_give(psrti_worker_t *w)
{
    pthread_mutex_lock(&w->lock);
    if (w->nested) {
        w->nested--;
        pthread_mutex_unlock(&w->lock);
        return;
    }
    while (!psrti_list_empty(&w->inbox)) {
        pthread_mutex_unlock(&w->lock);
        psrti_baton_move(w);
        pthread_mutex_lock(&w->lock);
    }
    w->busy = 0;
    if (w->sleepers) pthread_cond_broadcast(&w->changed);
    if (w->live_ops && w->keeper_idle) pthread_cond_signal(&w->keeper_cond);
    pthread_mutex_unlock(&w->lock);
}

unsigned psrti_baton_move(psrti_worker_t *w)
{
    unsigned events = psrti_inbox_read(w);
    uint64_t now = psrti_now_ns();
    w->unpolled = 0;
    events += psrti_net_progress(w->net);
    psrti_links_redial(w, now);
    w->timer = psrti_client_progress(w->client, now);
    events += psrti_ops_deliver(w);
    if (w->meetings) events += psrti_comms_move(w, now);
    atomic_store_explicit(&w->last_progress, now, memory_order_relaxed);
    return events;
}

void psrti_baton_send(psrti_worker_t *w)
{
    w->timer = psrti_client_progress(w->client, psrti_now_ns());
    psrti_ops_deliver(w);
}

void psrti_baton_run(psrti_worker_t *w, atomic_int *done, uint64_t deadline, int give_way)
{
    psrti_spin_begin(&w->spin);
    for (;;) {
        unsigned events = psrti_baton_move(w);
        if (events) psrti_spin_begin(&w->spin);
        if (done && atomic_load_explicit(done, memory_order_acquire)) return;
        if (atomic_load(&w->takers) || (give_way && atomic_load(&w->wanted))) return;
        if (events) {
            if (deadline != UINT64_MAX && psrti_now_ns() >= deadline) return;
            continue;
        }
        if (!give_way && psrti_net_may_poll(w->net) && psrti_spin_again(&w->spin)) continue;
        if (w->meetings && (psrti_coll_idle(w->coll) || !psrti_smalls_sleep(w))) continue;
        uint64_t until = PSRTI_MIN(deadline, PSRTI_MIN(w->timer, w->next_redial));
        uint64_t now = psrti_now_ns();
        if (now < deadline)
            psrti_net_sleep(w->net, until == UINT64_MAX ? PSRTI_NS_PER_S
                                    : until > now       ? until - now
                                                        : 0);
        if (w->meetings) psrti_smalls_awake(w);
        if (deadline <= now) return;
    }
}

/* ---- the keeper -------------------------------------------------------------------------------- */

/* Sleeps until it may have something to do. A caller that keeps the baton for long wakes it when it gives
 * the baton back: a look each 200 us would only take cores from what it waits for. So it would in a crowd, where a
 * caller that moved nothing for so long rather waits for a core. w->lock is held. */
static void keeper_rest(psrti_worker_t *w, uint64_t quiet, int held_for_long)
{
    uint64_t ns = held_for_long            ? KEEPER_IDLE_NS
                  : w->live_ops            ? (w->crowded ? KEEPER_CALM_NS : KEEPER_AFTER_NS)
                  : quiet < KEEPER_IDLE_NS ? KEEPER_CALM_NS
                                           : KEEPER_IDLE_NS;
    uint64_t until = psrti_now_ns() + ns;
    struct timespec ts = { (time_t)(until / PSRTI_NS_PER_S), (long)(until % PSRTI_NS_PER_S) };
    w->keeper_idle = ns == KEEPER_IDLE_NS;
    pthread_cond_timedwait(&w->keeper_cond, &w->lock, &ts);
    w->keeper_idle = 0;
}

/* Nothing is in flight: a look every 100 ms, so that lost links are noticed and dialled. */
void *psrti_keeper_main(void *arg)
{
    psrti_worker_t *w = arg;
    uint64_t looked = 0, hold_seen = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        uint64_t now = psrti_now_ns();
        uint64_t last = atomic_load_explicit(&w->last_progress, memory_order_relaxed);
        uint64_t quiet = now > last ? now - last : 0;
        int due = !psrti_list_empty(&w->inbox) || now - looked >= KEEPER_IDLE_NS ||
                  (w->live_ops && quiet >= KEEPER_AFTER_NS);
        if (!due || !psrti_baton_try(w)) {
            int held_for_long = w->busy && w->holds == hold_seen;
            hold_seen = w->holds;
            keeper_rest(w, quiet, held_for_long);
            continue;
        }
        int in_flight = w->live_ops != 0;
        pthread_mutex_unlock(&w->lock);
        looked = now;
        if (in_flight)
            psrti_baton_run(w, NULL, now + KEEPER_IDLE_NS, 1);
        else
            psrti_baton_move(w);
        psrti_baton_give(w);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}
