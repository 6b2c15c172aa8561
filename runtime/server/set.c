/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters that were set for a step.
 *
 * A table's list of changes holds those that some open step may still be without. For one parameter
 * their steps ascend: a later change replaces earlier ones that start where it does or after it. What
 * all open steps have in common is folded into the optimizer's parameters, so that the list is short and
 * mostly empty. */
#include <stdlib.h>

#include "base/log.h"
#include "runtime/server/group.h"

#define MAX_CHANGES 256 /* set for steps that are still to come */

static int is_sync(const psrti_stable_t *t) { return t->spec.consistency == PSRTI_SYNC; }

/* Steps below are closed on some slice, or complete and measured, those below `all` on every one. */
static uint64_t closed_steps(const psrti_stable_t *t, uint64_t *all)
{
    uint64_t some = 0;
    *all = UINT64_MAX;
    for (uint64_t i = 0; i < t->nslices; i++) {
        if (!t->slice[i]) continue;
        some = PSRTI_MAX(some, t->slice[i]->version + t->slice[i]->sealed);
        *all = PSRTI_MIN(*all, t->slice[i]->version);
    }
    return some;
}

/* The optimizer of the update that closes `step`: the table's own with what was set for it. */
static psrti_optimizer_t optimizer_for(const psrti_stable_t *t, uint64_t step)
{
    psrti_optimizer_t opt = t->opt;
    for (uint32_t i = 0; i < t->nchanges; i++)
        if (t->changes[i].from_step <= step) opt.params[t->changes[i].index] = t->changes[i].value;
    return opt;
}

void psrti_params_for(const psrti_slice_t *slice, double params[PSRT_OPTIMIZER_MAX_PARAMS])
{
    const psrti_stable_t *t = slice->table;
    uint64_t step = is_sync(t) ? slice->version : slice->updates;
    if (t->nchanges) {
        psrti_optimizer_t opt = optimizer_for(t, step);
        psrti_optimizer_params_at(&opt, step, params);
    } else {
        psrti_optimizer_params_at(&t->opt, step, params);
    }
}

static void let_go(psrti_shard_t *s)
{
    psrti_stable_t *t = s->set.table;
    s->set.number = 0;
    s->set.table = NULL;
    if (!t) return;
    t->set_hold = UINT64_MAX;
    for (uint64_t i = 0; is_sync(t) && i < t->nslices; i++)
        if (t->slice[i]) psrti_close_steps(s, t->slice[i], NULL);
    psrti_groups_run(s);
}

/* Can the change be made, and does its optimizer take it beside what is set for that step? Makes room
 * for it. */
static psrt_status_t check(psrti_stable_t *t, const char *key, double value, uint64_t from_step,
                           int *index_p)
{
    psrti_optimizer_t opt = optimizer_for(t, from_step);
    psrt_status_t rc = psrti_optimizer_set(&opt, key, value, index_p);
    if (rc) return psrti_fail(rc, "table %s: %s", t->spec.name, psrt_last_error());
    if (!is_sync(t) && from_step != PSRT_STEP_NEXT)
        return psrti_fail(PSRT_ERR_INVALID, "table %s: only sync tables count steps on the servers",
                          t->spec.name);
    if (t->nchanges == MAX_CHANGES)
        return psrti_fail(
            PSRT_ERR_LIMIT,
            "table %s: %d changes of hyper-parameters are set for later steps already",
            t->spec.name, MAX_CHANGES);
    psrti_change_t *room = realloc(t->changes, (t->nchanges + 1) * sizeof *room);
    if (!room)
        return psrti_fail(PSRT_ERR_NO_MEMORY, "table %s: no memory to set %s", t->spec.name, key);
    t->changes = room;
    return PSRT_OK;
}

psrt_status_t psrti_shard_set_prepare(psrti_shard_t *s, uint64_t number, uint32_t table,
                                      const char *key, double value, uint64_t from_step,
                                      uint64_t *step_p)
{
    psrti_stable_t *t = psrti_map_get(&s->tables, table);
    psrti_change_t change = { from_step, value, 0 };
    uint64_t all, reached;
    if (s->set.number != number) let_go(s);
    *step_p = 0;
    if (!t) return PSRT_OK; /* no part of it is here */
    psrt_status_t rc = check(t, key, value, from_step, &change.index);
    if (rc) return rc;
    reached = closed_steps(t, &all);
    s->set.number = number;
    s->set.table = t;
    s->set.change = change;
    if (!is_sync(t)) return PSRT_OK;
    *step_p = reached;
    t->set_hold = from_step == PSRT_STEP_NEXT ? reached : PSRTI_MAX(from_step, reached);
    return PSRT_OK;
}

static void add(psrti_stable_t *t, const psrti_change_t *change)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->nchanges; i++) {
        const psrti_change_t *c = &t->changes[i];
        if (c->index != change->index || c->from_step < change->from_step) t->changes[kept++] = *c;
    }
    t->changes[kept] = *change; /* `check` made room */
    t->nchanges = kept + 1;
}

/* Into the optimizer's parameters goes what holds for every step that is still open. */
static void fold(psrti_stable_t *t)
{
    uint64_t all;
    uint32_t kept = 0;
    (void)closed_steps(t, &all);
    for (uint32_t i = 0; i < t->nchanges; i++) {
        const psrti_change_t *c = &t->changes[i];
        if (c->from_step <= all || !is_sync(t))
            t->opt.params[c->index] = c->value;
        else
            t->changes[kept++] = *c;
    }
    t->nchanges = kept;
}

void psrti_shard_set_end(psrti_shard_t *s, uint64_t number, int commit, uint64_t from_step)
{
    psrti_stable_t *t = s->set.table;
    if (!t || number < s->set.number) return;
    if (commit && number == s->set.number) {
        s->set.change.from_step = from_step;
        add(t, &s->set.change);
        fold(t);
    }
    let_go(s);
}
