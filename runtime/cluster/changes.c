/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a view. Every task hears of every change, so what it hears is as large as the change and not
 * as the job. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/cluster/convert.h"

typedef struct owner_slot {
    Psrt__Owner owner;
    char *addrs[PSRTI_ADDRS_PER_OWNER];
} owner_slot_t;

typedef struct sizes {
    size_t workers, owners, vshards;
} sizes_t;

static int worker_differs(const psrti_view_t *a, const psrti_view_t *b, size_t i)
{
    return memcmp(&a->workers[i], &b->workers[i], sizeof a->workers[i]) != 0;
}

static int owner_differs(const psrti_view_t *a, const psrti_view_t *b, size_t i)
{
    return memcmp(&a->owners[i], &b->owners[i], sizeof a->owners[i]) != 0;
}

static int vshard_differs(const psrti_view_t *a, const psrti_view_t *b, size_t i)
{
    return a->vshards[i].owner != b->vshards[i].owner || a->vshards[i].term != b->vshards[i].term;
}

static sizes_t count_changes(const psrti_view_t *base, const psrti_view_t *view)
{
    sizes_t n = { 0, 0, 0 };

    for (size_t i = 0; i < view->nworkers; i++)
        n.workers += (size_t)worker_differs(base, view, i);
    for (size_t i = 0; i < view->nowners; i++)
        n.owners += (size_t)owner_differs(base, view, i);
    for (size_t i = 0; i < view->nvshards; i++)
        n.vshards += (size_t)vshard_differs(base, view, i);
    return n;
}

/* Lays out the lists behind the message; they are filled up to the sizes by `fill`. */
static Psrt__View *block_new(const sizes_t *n)
{
    size_t per_worker = sizeof(void *) + sizeof(Psrt__Worker) + sizeof(uint32_t);
    size_t per_owner = sizeof(void *) + sizeof(owner_slot_t) + sizeof(uint32_t);
    char *block = calloc(1, sizeof(Psrt__View) + n->workers * per_worker + n->owners * per_owner +
                                n->vshards * 3 * sizeof(uint32_t));
    Psrt__View *out = (Psrt__View *)block;

    if (!out) return NULL;
    psrt__view__init(out);
    out->workers = (Psrt__Worker **)(out + 1);
    out->owners = (Psrt__Owner **)(out->workers + n->workers);
    return out;
}

static void fill(const psrti_view_t *base, const psrti_view_t *view, const sizes_t *n,
                 Psrt__View *out)
{
    Psrt__Worker *workers = (Psrt__Worker *)(out->owners + n->owners);
    owner_slot_t *slots = (owner_slot_t *)(workers + n->workers);

    out->worker_at = (uint32_t *)(slots + n->owners);
    out->owner_at = out->worker_at + n->workers;
    out->vshard_at = out->owner_at + n->owners;
    out->vshard_owner = out->vshard_at + n->vshards;
    out->vshard_term = out->vshard_owner + n->vshards;
    for (uint32_t i = 0; i < view->nworkers; i++) {
        if (!worker_differs(base, view, i)) continue;
        out->worker_at[out->n_workers] = i;
        psrti_worker_to_wire(&view->workers[i], workers);
        out->workers[out->n_workers++] = workers++;
    }
    for (uint32_t i = 0; i < view->nowners; i++) {
        if (!owner_differs(base, view, i)) continue;
        out->owner_at[out->n_owners] = i;
        psrti_owner_to_wire(&view->owners[i], &slots->owner, slots->addrs);
        out->owners[out->n_owners++] = &slots++->owner;
    }
    for (uint32_t i = 0; i < view->nvshards; i++) {
        if (!vshard_differs(base, view, i)) continue;
        out->vshard_at[out->n_vshard_at] = i;
        out->vshard_owner[out->n_vshard_at] = view->vshards[i].owner;
        out->vshard_term[out->n_vshard_at++] = view->vshards[i].term;
    }
    out->n_worker_at = out->n_workers;
    out->n_owner_at = out->n_owners;
    out->n_vshard_owner = out->n_vshard_term = out->n_vshard_at;
}

Psrt__View *psrti_view_changes_to_wire(const psrti_view_t *base, const psrti_view_t *view)
{
    sizes_t n = count_changes(base, view);
    Psrt__View *out = block_new(&n);

    if (!out) return NULL;
    out->number = view->number;
    out->generation = view->generation;
    out->since = base->number;
    fill(base, view, &n, out);
    return out;
}

static psrt_status_t apply(const Psrt__View *in, psrti_view_t *view)
{
    psrt_status_t st = PSRT_OK;

    view->number = in->number;
    view->generation = in->generation;
    for (size_t i = 0; i < in->n_workers && st == PSRT_OK; i++)
        st = in->worker_at[i] < view->nworkers
                 ? psrti_worker_from_wire(in->workers[i], &view->workers[in->worker_at[i]])
                 : PSRT_ERR_PROTOCOL;
    for (size_t i = 0; i < in->n_owners && st == PSRT_OK; i++)
        st = in->owner_at[i] < view->nowners
                 ? psrti_owner_from_wire(in->owners[i], &view->owners[in->owner_at[i]])
                 : PSRT_ERR_PROTOCOL;
    for (size_t i = 0; i < in->n_vshard_at && st == PSRT_OK; i++) {
        if (in->vshard_at[i] >= view->nvshards || in->vshard_owner[i] >= view->nowners)
            return PSRT_ERR_PROTOCOL;
        psrti_view_vshard_t *v = &view->vshards[in->vshard_at[i]];
        v->owner = (uint16_t)in->vshard_owner[i];
        v->term = in->vshard_term[i];
    }
    return st;
}

psrt_status_t psrti_view_changed(const psrti_view_t *base, const Psrt__View *in,
                                 psrti_view_t **view_p)
{
    if (!base || in->since != base->number || in->n_worker_at != in->n_workers ||
        in->n_owner_at != in->n_owners || in->n_vshard_at != in->n_vshard_owner ||
        in->n_vshard_at != in->n_vshard_term)
        return psrti_fail(PSRT_ERR_PROTOCOL, "malformed changes of a view");
    psrti_view_t *view = psrti_view_clone(base);
    if (!view) return psrti_fail(PSRT_ERR_NO_MEMORY, "no memory for a view");
    psrt_status_t st = apply(in, view);
    if (st == PSRT_OK) {
        *view_p = view;
        return PSRT_OK;
    }
    psrti_view_unref(view);
    return psrti_fail(st, "malformed changes of a view");
}
