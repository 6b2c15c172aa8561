/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/view.h"

#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* The arrays lie behind the struct in one block. */
typedef struct layout {
    size_t workers, owners, vshards, end;
} layout_t;

static layout_t layout_of(uint32_t nworkers, uint32_t nowners, uint32_t nvshards)
{
    layout_t l;

    l.workers = (sizeof(psrti_view_t) + 15) & ~(size_t)15;
    l.owners = l.workers + nworkers * sizeof(psrti_view_worker_t);
    l.vshards = l.owners + nowners * sizeof(psrti_view_owner_t);
    l.end = l.vshards + nvshards * sizeof(psrti_view_vshard_t);
    return l;
}

_Static_assert(sizeof(psrti_view_worker_t) % 8 == 0 && sizeof(psrti_view_owner_t) % 8 == 0,
               "arrays of a view follow each other without padding");

psrti_view_t *psrti_view_new(uint32_t nworkers, uint32_t nowners, uint32_t nvshards)
{
    layout_t l = layout_of(nworkers, nowners, nvshards);
    char *block = calloc(1, l.end);
    psrti_view_t *view = (psrti_view_t *)block;

    if (!view) return NULL;
    atomic_init(&view->refs, 1);
    view->nworkers = nworkers;
    view->nowners = nowners;
    view->nvshards = nvshards;
    view->workers = (psrti_view_worker_t *)(block + l.workers);
    view->owners = (psrti_view_owner_t *)(block + l.owners);
    view->vshards = (psrti_view_vshard_t *)(block + l.vshards);
    return view;
}

psrti_view_t *psrti_view_clone(const psrti_view_t *view)
{
    psrti_view_t *copy = psrti_view_new(view->nworkers, view->nowners, view->nvshards);

    if (!copy) return NULL;
    copy->number = view->number;
    copy->generation = view->generation;
    memcpy(copy->workers, view->workers, view->nworkers * sizeof *view->workers);
    memcpy(copy->owners, view->owners, view->nowners * sizeof *view->owners);
    memcpy(copy->vshards, view->vshards, view->nvshards * sizeof *view->vshards);
    return copy;
}

psrti_view_t *psrti_view_ref(psrti_view_t *view)
{
    atomic_fetch_add_explicit(&view->refs, 1, memory_order_relaxed);
    return view;
}

void psrti_view_unref(psrti_view_t *view)
{
    if (view && atomic_fetch_sub_explicit(&view->refs, 1, memory_order_acq_rel) == 1) free(view);
}

uint32_t psrti_view_live_workers(const psrti_view_t *view)
{
    uint32_t live = 0;

    for (uint32_t i = 0; i < view->nworkers; i++)
        live += view->workers[i].alive != 0;
    return live;
}

uint32_t psrti_view_pollers(const psrti_view_t *view, const char *host)
{
    uint32_t pollers = 0;

    for (uint32_t i = 0; i < view->nworkers; i++)
        pollers += view->workers[i].alive && !strcmp(view->workers[i].host, host);
    for (uint32_t i = 0; i < view->nowners; i++)
        pollers += view->owners[i].alive && !strcmp(view->owners[i].host, host);
    return pollers;
}

uint32_t psrti_view_live_servers(const psrti_view_t *view)
{
    uint32_t live = 0;

    for (uint32_t i = 0; i < view->nowners; i++)
        live += view->owners[i].alive && view->owners[i].thread == 0;
    return live;
}

/* ---- changes --------------------------------------------------------------------------------- */

typedef struct life {
    uint64_t incarnation;
    int alive, finished;
    const char *host;
} life_t;

static void append_change(char *buf, size_t size, size_t *pos, const char *role, uint32_t rank,
                          const life_t *was, const life_t *is)
{
    const char *what;

    if (was->incarnation == is->incarnation && !was->alive == !is->alive) return;
    if (!is->alive)
        what = is->finished ? "left" : "died";
    else
        what = was->alive ? "was restarted" : "joined";
    psrti_append(buf, size, pos, "%s%s:%u %s", *pos ? ", " : "", role, rank, what);
    if (is->alive && *is->host) psrti_append(buf, size, pos, " at %s", is->host);
}

static life_t worker_life(const psrti_view_t *view, uint32_t rank)
{
    const psrti_view_worker_t *w = &view->workers[rank];

    return (life_t){ w->incarnation, w->alive, w->finished, w->host };
}

static life_t owner_life(const psrti_view_t *view, uint32_t owner)
{
    const psrti_view_owner_t *o = &view->owners[owner];

    return (life_t){ o->incarnation, o->alive, 0, o->host };
}

void psrti_view_changes(const psrti_view_t *old, const psrti_view_t *view, char *buf, size_t size)
{
    size_t pos = 0;

    buf[0] = '\0';
    if (!old) {
        uint32_t w = psrti_view_live_workers(view), s = psrti_view_live_servers(view);
        psrti_append(buf, size, &pos, "%u worker%s and %u server%s are in the job", w,
                     w == 1 ? "" : "s", s, s == 1 ? "" : "s");
        return;
    }
    for (uint32_t i = 0; i < view->nworkers && i < old->nworkers; i++) {
        life_t was = worker_life(old, i), is = worker_life(view, i);
        append_change(buf, size, &pos, "worker", i, &was, &is);
    }
    for (uint32_t i = 0; i < view->nowners && i < old->nowners; i++) {
        life_t was = owner_life(old, i), is = owner_life(view, i);
        if (view->owners[i].thread == 0)
            append_change(buf, size, &pos, "server", view->owners[i].server, &was, &is);
    }
}
