/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers. A result is persisted before anybody is told, and the last few are kept per worker: a
 * repeated request gets the answer that the first one got, whatever was lost in between. */
#include <stdlib.h>
#include <string.h>

#include "runtime/cluster/coord_internal.h"

typedef struct waiter {
    struct waiter *next;
    place_t *worker;
    uint64_t request;
} waiter_t;

typedef struct barrier {
    struct barrier *next;
    uint32_t count;   /* 0: all live workers */
    uint32_t waiting; /* length of waiters */
    uint32_t gone;    /* arrived and died */
    waiter_t *waiters;
    char name[];
} barrier_t;

static void send_done(psrti_coord_t *c, const place_t *worker, const char *name, uint64_t request,
                      psrt_status_t status, const char *text)
{
    Psrt__BarrierDone body = PSRT__BARRIER_DONE__INIT;

    body.name = (char *)name;
    body.request = request;
    body.status = (int32_t)status;
    body.text = (char *)text;
    PSRTI_CONTROL(msg, BARRIER_DONE, barrier_done, &body);
    psrti_coord_send(c, worker->peer, &msg);
}

static void remember(place_t *worker, uint64_t request, psrt_status_t status)
{
    uint32_t i = worker->next_result++ % COORD_RESULTS;

    worker->results[i].request = request;
    worker->results[i].status = status;
    worker->changed = 1;
}

static barrier_t **find(psrti_coord_t *c, const char *name)
{
    barrier_t **at = &c->barriers;

    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static void barrier_free(barrier_t *b)
{
    while (b->waiters) {
        waiter_t *w = b->waiters;
        b->waiters = w->next;
        free(w);
    }
    free(b);
}

static void finish(psrti_coord_t *c, barrier_t **at, psrt_status_t status, const char *text)
{
    barrier_t *b = *at;

    *at = b->next;
    for (waiter_t *w = b->waiters; w; w = w->next)
        remember(w->worker, w->request, status);
    psrti_coord_persist(c);
    for (waiter_t *w = b->waiters; w; w = w->next)
        send_done(c, w->worker, b->name, w->request, status, text);
    barrier_free(b);
}

/* Workers that died are not waited for; those of them that had arrived count as arrived. */
static int is_complete(const psrti_coord_t *c, const barrier_t *b)
{
    uint32_t live = psrti_coord_live_workers(c);

    if (b->count == 0) return b->waiting >= live;
    return b->waiting + b->gone >= PSRTI_MIN(b->count, live + b->gone);
}

static int waits(const barrier_t *b, const place_t *worker)
{
    for (const waiter_t *w = b->waiters; w; w = w->next)
        if (w->worker == worker) return 1;
    return 0;
}

static int leave_barrier(barrier_t *b, const place_t *worker)
{
    for (waiter_t **at = &b->waiters; *at; at = &(*at)->next) {
        waiter_t *w = *at;
        if (w->worker != worker) continue;
        *at = w->next;
        b->waiting--;
        free(w);
        return 1;
    }
    return 0;
}

static void name_missing(psrti_coord_t *c, const barrier_t *b, char *text, size_t size)
{
    size_t pos = 0;
    const char *sep = "";
    char name[32];

    (void)psrti_append(text, size, &pos, "barrier \"%.200s\": waiting for ", b->name);
    for (uint32_t i = 0; i < c->p.workers; i++) {
        if (c->workers[i].state != PLACE_ALIVE || waits(b, &c->workers[i])) continue;
        if (pos + 40 > size) {
            (void)psrti_append(text, size, &pos, "%s...", sep);
            return;
        }
        (void)psrti_append(text, size, &pos, "%s%s", sep,
                           psrti_task_name(c->workers[i].task, name));
        sep = ", ";
    }
}

static void withdraw(psrti_coord_t *c, place_t *worker, const Psrt__Barrier *msg)
{
    barrier_t **at = find(c, msg->name);
    char text[COORD_TEXT_MAX] = "";

    if (*at && waits(*at, worker)) {
        name_missing(c, *at, text, sizeof text);
        (void)leave_barrier(*at, worker);
        if (!(*at)->waiters && !(*at)->gone) {
            barrier_t *b = *at;
            *at = b->next;
            barrier_free(b);
        }
    }
    send_done(c, worker, msg->name, msg->request, PSRT_ERR_TIMEOUT, text);
}

static barrier_t *barrier_new(barrier_t **at, const char *name, uint32_t count)
{
    size_t len = strlen(name) + 1;
    barrier_t *b = calloc(1, sizeof *b + len);

    if (!b) return NULL;
    memcpy(b->name, name, len);
    b->count = count;
    *at = b;
    return b;
}

static psrt_status_t arrive(psrti_coord_t *c, place_t *worker, const Psrt__Barrier *msg)
{
    barrier_t **at = find(c, msg->name);
    barrier_t *b = *at ? *at : barrier_new(at, msg->name, msg->count);
    waiter_t *w = calloc(1, sizeof *w);
    char text[COORD_TEXT_MAX], name[32];

    if (!b || !w) {
        free(w);
        return PSRT_ERR_NO_MEMORY;
    }
    (void)leave_barrier(b, worker); /* an older request of the same worker was given up */
    w->worker = worker;
    w->request = msg->request;
    w->next = b->waiters;
    b->waiters = w;
    b->waiting++;
    if (b->count != msg->count) {
        snprintf(text, sizeof text, "barrier \"%.200s\": %s gave count %u, others %u", msg->name,
                 psrti_task_name(worker->task, name), msg->count, b->count);
        finish(c, at, PSRT_ERR_MISMATCH, text);
    } else if (is_complete(c, b)) {
        finish(c, at, PSRT_OK, "");
    }
    return PSRT_OK;
}

psrt_status_t psrti_coord_on_barrier(psrti_coord_t *c, place_t *worker, const Psrt__Barrier *msg)
{
    if (msg->request == 0 || strlen(msg->name) > PSRTI_NAME_MAX) return PSRT_ERR_PROTOCOL;
    for (uint32_t i = 0; i < COORD_RESULTS; i++) {
        psrt_status_t st = worker->results[i].status;
        if (worker->results[i].request != msg->request) continue;
        send_done(c, worker, msg->name, msg->request, st, psrt_status_text(st));
        return PSRT_OK;
    }
    if (msg->withdraw) {
        withdraw(c, worker, msg);
        return PSRT_OK;
    }
    const barrier_t *b = *find(c, msg->name);
    for (const waiter_t *w = b ? b->waiters : NULL; w; w = w->next)
        if (w->worker == worker && w->request == msg->request) return PSRT_OK; /* repeated */
    return arrive(c, worker, msg);
}

void psrti_coord_barrier_gone(psrti_coord_t *c, place_t *worker)
{
    for (barrier_t **at = &c->barriers; *at;) {
        barrier_t *b = *at;
        b->gone += (uint32_t)leave_barrier(b, worker);
        if (is_complete(c, b))
            finish(c, at, PSRT_OK, "");
        else
            at = &b->next;
    }
}

void psrti_coord_barriers_free(psrti_coord_t *c)
{
    while (c->barriers) {
        barrier_t *b = c->barriers;
        c->barriers = b->next;
        barrier_free(b);
    }
}
