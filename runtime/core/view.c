/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/view.h"

#include <stdlib.h>
#include <string.h>

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
