/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of tables: who is in one, what its owner decides, what its holders do about it. */
#include "runtime/server/group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* ---- tables of a group ------------------------------------------------------------------------- */

static const char *name_of(const psrti_group_t *g)
{
    const psrti_table_spec_t *first = &g->table[0]->spec;
    return *first->group ? first->group : first->name;
}

/* Where a table of this name is or would be. */
static size_t position(const psrti_group_t *g, const char *name)
{
    size_t low = 0, high = g->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (strcmp(g->table[mid]->spec.name, name) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The group that the table comes to; NULL: a new one. A name that comes again under another number was
 * forgotten by everyone else, and its old group with it. */
static psrti_group_t *group_find(const psrti_shard_t *s, const psrti_table_spec_t *spec)
{
    if (!*spec->group) return NULL;
    for (psrti_list_t *n = s->groups.prev; n != &s->groups; n = n->prev) {
        psrti_group_t *g = PSRTI_LIST_ENTRY(n, psrti_group_t, node);
        if (strcmp(g->table[0]->spec.group, spec->group) != 0) continue;
        size_t at = position(g, spec->name);
        return at < g->count && strcmp(g->table[at]->spec.name, spec->name) == 0 ? NULL : g;
    }
    return NULL;
}

static void group_free(psrti_group_t *g)
{
    psrti_list_remove(&g->node);
    psrti_list_remove(&g->dirty);
    psrti_list_remove(&g->waiting);
    for (uint32_t o = 0; g->holders && o < g->nowners; o++)
        free(g->holders[o].table);
    free(g->holders);
    free(g->table);
    free(g);
}

/* A table alone is with the owner of its first slice, a named group where its name falls. */
static psrti_group_t *group_new(psrti_shard_t *s, const psrti_stable_t *t)
{
    psrti_group_t *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    const psrti_view_t *view = s->view;
    g->vshard = psrti_table_spec_group_vshard(&t->spec, view->nvshards);
    g->owner = view->vshards[g->vshard].owner;
    g->term = view->vshards[g->vshard].term;
    g->open_round = 1;
    psrti_list_init(&g->dirty);
    psrti_list_init(&g->waiting);
    psrti_list_push(&s->groups, &g->node);
    g->nowners = view->nowners;
    if (g->owner == s->owner) g->holders = calloc(g->nowners, sizeof *g->holders);
    if (g->owner != s->owner || g->holders) return g;
    group_free(g);
    return NULL;
}

static void remove_from(psrti_holder_t *h, const psrti_stable_t *t)
{
    if (h->count && h->table[h->count - 1] == t) h->count--;
}

static psrt_status_t add_to(psrti_holder_t *h, psrti_stable_t *t)
{
    if (h->count && h->table[h->count - 1] == t) return PSRT_OK;
    if (h->count == h->capacity) {
        size_t capacity = h->capacity ? 2 * h->capacity : 4;
        psrti_stable_t **more = realloc(h->table, capacity * sizeof(void *));
        if (!more) return PSRT_ERR_NO_MEMORY;
        h->table = more;
        h->capacity = capacity;
    }
    h->table[h->count++] = t;
    return PSRT_OK;
}

/* The owners that have slices of the table are told of it. */
static psrt_status_t add_holders(const psrti_shard_t *s, psrti_group_t *g, psrti_stable_t *t)
{
    const psrti_view_t *view = s->view;
    for (uint64_t i = 0; i < t->nslices && i < view->nvshards; i++) {
        uint16_t v = psrti_slice_vshard(t->hash, i, view->nvshards);
        if (add_to(&g->holders[view->vshards[v].owner], t) == PSRT_OK) continue;
        for (uint32_t o = 0; o < g->nowners; o++)
            remove_from(&g->holders[o], t);
        return PSRT_ERR_NO_MEMORY;
    }
    return PSRT_OK;
}

static psrt_status_t add_table(psrti_shard_t *s, psrti_group_t *g, psrti_stable_t *t)
{
    psrti_stable_t **more = realloc(g->table, (g->count + 1) * sizeof(void *));
    if (!more) return PSRT_ERR_NO_MEMORY;
    g->table = more;
    if (g->holders && !(t->collected = calloc(t->nslices, sizeof *t->collected)))
        return PSRT_ERR_NO_MEMORY;
    if (g->holders && add_holders(s, g, t) != PSRT_OK) return PSRT_ERR_NO_MEMORY;
    size_t at = position(g, t->spec.name);
    memmove(&more[at + 1], &more[at], (g->count++ - at) * sizeof(void *));
    more[at] = t;
    t->group = g;
    uint64_t local = 0;
    for (uint64_t i = 0; i < t->nslices; i++)
        local += t->slice[i] != NULL;
    t->is_local = local > 0;
    g->local += local;
    g->local_tables += local > 0;
    g->missing += t->nslices;
    return PSRT_OK;
}

psrt_status_t psrti_group_join(psrti_shard_t *s, psrti_stable_t *t)
{
    if (!psrti_optimizer_two_phase(&t->opt)) return PSRT_OK;
    if (!s->owners) return PSRT_ERR_NO_MEMORY;
    psrti_group_t *g = group_find(s, &t->spec);
    if (g && (g->step || g->round || g->verdict.round))
        return psrti_fail(PSRT_ERR_INVALID,
                          "table %s: group %s has begun to make steps: declare all tables of a "
                          "group before the first push to one",
                          t->spec.name, t->spec.group);
    if (!g) g = group_new(s, t);
    psrt_status_t rc = g ? add_table(s, g, t) : PSRT_ERR_NO_MEMORY;
    if (rc && g && g->count == 0) group_free(g);
    return rc;
}

void psrti_groups_view(psrti_shard_t *s)
{
    s->next_due = 0;
    for (psrti_list_t *n = s->groups.next; n != &s->groups; n = n->next) {
        psrti_group_t *g = PSRTI_LIST_ENTRY(n, psrti_group_t, node);
        if (!g->verdict.round) g->term = s->view->vshards[g->vshard].term;
    }
}

void psrti_groups_free(psrti_shard_t *s)
{
    while (!psrti_list_empty(&s->groups))
        group_free(PSRTI_LIST_ENTRY(s->groups.next, psrti_group_t, node));
}

psrti_slice_t *psrti_group_next(const psrti_group_t *g, psrti_group_pos_t *pos)
{
    for (; pos->table < g->count; pos->table++, pos->slice = 0) {
        const psrti_stable_t *t = g->table[pos->table];
        while (pos->slice < t->nslices)
            if (t->slice[pos->slice++]) return t->slice[pos->slice - 1];
    }
    return NULL;
}

void psrti_group_touch(psrti_shard_t *s, psrti_group_t *g)
{
    if (psrti_list_empty(&g->dirty)) psrti_list_push(&s->dirty_groups, &g->dirty);
}

static void wait_until(psrti_shard_t *s, psrti_group_t *g, uint64_t due)
{
    g->due = due;
    s->next_due = PSRTI_MIN(s->next_due, due);
    if (psrti_list_empty(&g->waiting)) psrti_list_push(&s->waiting_groups, &g->waiting);
}

/* ---- the group's owner ------------------------------------------------------------------------- */

void psrti_group_collect(psrti_group_t *g, psrti_stable_t *t, uint64_t slice,
                         const psrti_partial_t *partial)
{
    if (t->collected[slice].known) return; /* told again */
    t->collected[slice] = *partial;
    t->collected[slice].known = 1;
    g->missing--;
}

/* Adds up what was collected of a table, in the order of its slices, and forgets it. */
static psrti_partial_t add_up(psrti_group_t *g, psrti_stable_t *t)
{
    psrti_partial_t sum = { .known = 1 };
    for (uint64_t i = 0; i < t->nslices; i++) {
        const psrti_partial_t *p = &t->collected[i];
        sum.square += p->square;
        sum.value_square += p->value_square;
        sum.nonfinite |= p->nonfinite;
    }
    memset(t->collected, 0, t->nslices * sizeof *t->collected);
    g->missing += t->nslices;
    return sum;
}

static void decide_scale(psrti_group_t *g)
{
    const psrti_optimizer_t *opt = &g->table[0]->opt; /* of clipping and skipping the same in all */
    psrti_verdict_t *v = &g->verdict;
    double square = 0;
    int nonfinite = 0;
    *v = (psrti_verdict_t){ .step = g->open_step, .round = 1 };
    for (size_t i = 0; i < g->count; i++) {
        psrti_stable_t *t = g->table[i];
        psrti_partial_t sum = add_up(g, t);
        t->norms = (psrti_norms_t){ sqrt(sum.square), sqrt(sum.value_square), 0 };
        square += sum.square;
        nonfinite |= sum.nonfinite;
        v->prepare |= (psrti_optimizer_needs(&t->opt) & PSRT_NEEDS_UPDATE_NORM) != 0;
    }
    v->scale = psrti_optimizer_clip_scale(opt, sqrt(square));
    v->skip = nonfinite && opt->skip_nonfinite != 0;
    v->prepare = v->prepare && !v->skip;
    for (size_t i = 0; i < g->count; i++)
        g->table[i]->norms.grad *= v->scale;
}

static void decide_updates(psrti_group_t *g)
{
    g->verdict.round = 2;
    g->verdict.prepare = 0;
    for (size_t i = 0; i < g->count; i++)
        g->table[i]->norms.update = sqrt(add_up(g, g->table[i]).square);
}

/* All partials are there. */
static void decide(psrti_shard_t *s, psrti_group_t *g)
{
    if (g->open_round == 1)
        decide_scale(g);
    else
        decide_updates(g);
    g->open_round = g->verdict.prepare ? 2 : 1;
    g->open_step += g->open_round == 1;
    if (g->verdict.skip && !g->skip_was_logged) {
        psrti_info("%s: step %llu has gradients that are not finite, it changes nothing",
                   name_of(g), (unsigned long long)g->verdict.step);
        g->skip_was_logged = 1;
    }
    g->judged = g->local != 0;
    for (uint32_t o = 0; o < s->view->nowners; o++) {
        if (!g->holders[o].count || o == s->owner) continue;
        g->holders[o].unsent = g->holders[o].count;
        psrti_group_send_verdict(s, g, o);
    }
}

/* ---- a holder ---------------------------------------------------------------------------------- */

void psrti_group_seal(psrti_shard_t *s, psrti_slice_t *slice)
{
    psrti_group_t *g = slice->table->group;
    if (slice->sealed) return;
    psrti_group_measure(s, slice);
    slice->sealed = 1;
    if (++g->sealed == g->local) psrti_group_touch(s, g);
}

static void report(psrti_shard_t *s, psrti_group_t *g, int round)
{
    psrti_group_pos_t pos = { 0 };
    psrti_slice_t *slice;
    g->round = round;
    g->judged = 0;
    if (g->owner == s->owner) {
        while ((slice = psrti_group_next(g, &pos)))
            psrti_group_collect(g, slice->table, slice->index, &slice->partial);
        return;
    }
    g->unheard = g->local_tables;
    g->at = pos;
    g->pause = PSRTI_GROUP_RETRY_NS;
    wait_until(s, g, s->now + g->pause);
    psrti_group_send_report(s, g);
}

static void prepare(psrti_shard_t *s, psrti_group_t *g)
{
    psrti_group_pos_t pos = { 0 };
    psrti_slice_t *slice;
    while ((slice = psrti_group_next(g, &pos)))
        psrti_group_prepare(s, slice, g->verdict.scale);
    report(s, g, 2);
}

/* Applies and publishes the step on all slices; 0: on some there was no memory, later again. */
static int finish_step(psrti_shard_t *s, psrti_group_t *g)
{
    psrti_group_pos_t pos = { 0 };
    psrti_slice_t *slice;
    if (g->verdict.skip && g->skips_counted <= g->step) {
        g->skipped_steps++;
        s->counts.skipped++;
        g->skips_counted = g->step + 1;
    }
    while ((slice = psrti_group_next(g, &pos))) {
        if (slice->version != g->step) continue; /* done before the memory ended */
        if (psrti_group_apply(s, slice, &g->verdict) != PSRT_OK) {
            psrti_error("table %s: no memory to apply step %llu, it stays open",
                        slice->table->spec.name, (unsigned long long)g->step);
            wait_until(s, g, s->now + PSRTI_GROUP_RETRY_NS);
            return 0;
        }
        slice->sealed = 0;
        psrti_step_closed(s, slice, NULL);
    }
    psrti_list_remove(&g->waiting);
    g->step++;
    g->sealed = 0;
    g->round = g->judged = 0;
    for (pos = (psrti_group_pos_t){ 0 }; (slice = psrti_group_next(g, &pos));)
        psrti_close_steps(s, slice, NULL);
    return 1;
}

static int advance(psrti_shard_t *s, psrti_group_t *g)
{
    if (g->judged) {
        if (!g->verdict.prepare) return finish_step(s, g);
        prepare(s, g);
        return 1;
    }
    if (g->round == 0 && g->local && g->sealed == g->local) {
        report(s, g, 1);
        return 1;
    }
    if (g->holders && g->missing == 0) {
        decide(s, g);
        return 1;
    }
    return 0;
}

void psrti_groups_run(psrti_shard_t *s)
{
    psrti_list_t *n;
    while ((n = psrti_list_pop(&s->dirty_groups)))
        while (advance(s, PSRTI_LIST_ENTRY(n, psrti_group_t, dirty)))
            ;
}

/* ---- time -------------------------------------------------------------------------------------- */

/* A verdict that is here and not acted upon waits for memory; else it is waited for. */
static void again(psrti_shard_t *s, psrti_group_t *g)
{
    if (g->judged) {
        psrti_group_touch(s, g);
        return;
    }
    g->at = (psrti_group_pos_t){ 0 };
    s->counts.reports_repeated++;
    g->pause = PSRTI_MIN(2 * g->pause, PSRTI_GROUP_RETRY_MAX_NS);
    g->due = s->now + g->pause;
    psrti_group_send_report(s, g);
}

uint64_t psrti_shard_progress(psrti_shard_t *s, uint64_t now)
{
    psrti_owing_send(s);
    s->now = now;
    if (now < s->next_due) return s->next_due;
    s->next_due = UINT64_MAX;
    for (psrti_list_t *n = s->waiting_groups.next; n != &s->waiting_groups; n = n->next) {
        psrti_group_t *g = PSRTI_LIST_ENTRY(n, psrti_group_t, waiting);
        if (!psrti_group_is_whole(s, g)) continue;
        if (g->due <= now) again(s, g);
        s->next_due = PSRTI_MIN(s->next_due, g->due);
    }
    psrti_groups_run(s);
    return s->next_due;
}
