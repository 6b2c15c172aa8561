/* SPDX-License-Identifier: Apache-2.0 */
/* Tables, submissions, views and timers of a worker's client. */
#include "runtime/worker/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/worker/client_int.h"

/* ---- life -------------------------------------------------------------------------------------- */

psrt_status_t psrti_client_create(uint32_t rank, uint64_t retry_ns, uint64_t cancel_ns,
                                  const psrti_kernels_t *kernels, const psrti_client_env_t *env,
                                  psrti_client_t **client_p)
{
    psrti_client_t *c = calloc(1, sizeof *c);
    if (!c) return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for a worker");
    c->rank = rank;
    c->retry_ns = retry_ns;
    c->cancel_ns = cancel_ns;
    c->next_recall = c->next_deadline = UINT64_MAX;
    c->k = kernels;
    c->env = *env;
    c->batches.limit = env->batch_bytes;
    psrti_list_init(&c->sent);
    psrti_list_init(&c->delayed);
    psrti_list_init(&c->gated);
    psrti_list_init(&c->completed);
    psrti_list_init(&c->recalled);
    psrti_list_init(&c->timed);
    *client_p = c;
    return PSRT_OK;
}

static void part_destroy(psrti_part_t *p)
{
    free(p->encoded);
    free(p);
}

static void free_parts(psrti_list_t *list)
{
    psrti_list_t *n;
    while ((n = psrti_list_pop(list)))
        part_destroy(PSRTI_LIST_ENTRY(n, psrti_part_t, node));
}

static void table_free(psrti_ctable_t *t)
{
    psrti_list_t *n;
    while ((n = psrti_list_pop(&t->csteps)))
        free(PSRTI_LIST_ENTRY(n, psrti_cstep_t, node));
    for (uint64_t i = 0; i < t->nslices; i++)
        free_parts(&t->slice[i].queue);
    free(t->slice);
    free(t->text);
    free(t);
}

/* Parts that are only in a heap (repeats, CLOCK) are unlinked nodes: they are freed from there. */
static void heap_free(psrti_cowner_t *o)
{
    for (size_t i = 0; i < o->count; i++)
        if (psrti_list_empty(&o->heap[i].part->node)) part_destroy(o->heap[i].part);
    free(o->heap);
}

/* Likewise those that wait for a number. */
static void blocked_free(psrti_cvshard_t *v)
{
    for (psrti_list_t *n; (n = psrti_list_pop(&v->blocked));) {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, wait_node);
        if (psrti_list_empty(&p->node)) part_destroy(p);
    }
    free(v->ring);
}

void psrti_client_destroy(psrti_client_t *c)
{
    if (!c) return;
    for (uint32_t i = 0; c->view && i < c->view->nowners; i++)
        heap_free(&c->owners[i]);
    for (uint32_t i = 0; c->view && i < c->view->nvshards; i++)
        blocked_free(&c->vshards[i]);
    size_t pos = 0;
    void *t;
    while ((t = psrti_map_next(&c->tables, &pos, NULL)))
        table_free(t);
    psrti_map_clear(&c->tables);
    psrti_map_clear(&c->pulls);
    free_parts(&c->sent);
    free_parts(&c->delayed);
    free_parts(&c->recalled);
    while (c->free_parts) {
        psrti_part_t *p = c->free_parts;
        c->free_parts = p->next_free;
        free(p);
    }
    psrti_batches_free(&c->batches);
    psrti_view_unref(c->view);
    free(c->owners);
    free(c->vshards);
    free(c->text);
    free(c);
}

/* ---- owners that are lost ---------------------------------------------------------------------- */

/* With one of its owners a table is lost as a whole, to all workers alike: a step of it that some can
 * still push to and some cannot would never close. Its parts are the caller's to end. */
static void check_owner(psrti_client_t *c, psrti_ctable_t *t, uint16_t vshard, const char *what)
{
    const psrti_view_owner_t *o = &c->view->owners[c->view->vshards[vshard].owner];
    char text[PSRTI_NAME_MAX + 128];
    if (o->alive && c->vshards[vshard].changed_view <= t->created_view) return;
    snprintf(text, sizeof text, "table %s: server:%u %s, its part of the %s is lost", t->spec.name,
             o->server, o->alive ? "was restarted" : "died", what);
    psrti_table_mark_failed(c, t, PSRT_ERR_SHARD_LOST, text);
}

static void check_owners(psrti_client_t *c, psrti_ctable_t *t)
{
    const psrti_view_t *view = c->view;
    for (uint64_t i = 0; !t->status && i < t->nslices && i < view->nvshards; i++)
        check_owner(c, t, psrti_slice_vshard(t->hash, i, view->nvshards), "values");
    if (!t->status) check_owner(c, t, t->group_vshard, "group's state");
}

/* A table that comes to a group which has lost another. */
static void check_group(psrti_client_t *c, psrti_ctable_t *t)
{
    size_t pos = 0;
    psrti_ctable_t *other;
    while (*t->spec.group && !t->status && (other = psrti_map_next(&c->tables, &pos, NULL)))
        if (other->status && strcmp(other->spec.group, t->spec.group) == 0)
            psrti_table_mark_failed(c, t, other->status, other->text);
}

/* ---- tables ------------------------------------------------------------------------------------ */

psrt_status_t psrti_client_table(psrti_client_t *c, uint32_t id, const psrti_table_spec_t *spec,
                                 uint64_t first_step, psrti_ctable_t **table_p)
{
    psrti_ctable_t *t = psrti_map_get(&c->tables, id);
    if (!t) {
        t = calloc(1, sizeof *t);
        if (!t) return PSRT_ERR_NO_MEMORY;
        t->id = id;
        t->spec = *spec;
        t->hash = psrti_hash_bytes(spec->name, strlen(spec->name));
        t->nslices = psrti_slice_count(spec->elements);
        t->elem = psrt_dtype_size(spec->value_dtype); /* gradients have the same */
        t->wire_value = psrti_table_spec_wire(spec, spec->value_dtype);
        t->next_step = first_step;
        t->created_view = c->view->number;
        t->group_vshard = psrti_table_spec_group_vshard(spec, c->view->nvshards);
        psrti_list_init(&t->csteps);
        t->slice = calloc(t->nslices, sizeof *t->slice);
        if (!t->slice || psrti_map_put(&c->tables, id, t) != PSRT_OK) {
            free(t->slice);
            free(t);
            return PSRT_ERR_NO_MEMORY;
        }
        for (uint64_t i = 0; i < t->nslices; i++) {
            psrti_list_init(&t->slice[i].queue);
            t->slice[i].version = first_step; /* a joiner's first step is open or will be */
        }
        check_owners(c, t);
        if (c->some_table_failed) check_group(c, t);
        if (t->status && *spec->group) psrti_fail_marked(c);
    }
    *table_p = t;
    return PSRT_OK;
}

uint32_t psrti_ctable_id(const psrti_ctable_t *table) { return table->id; }
uint64_t psrti_ctable_skipped_steps(const psrti_ctable_t *table) { return table->skipped_steps; }

const psrti_table_spec_t *psrti_ctable_spec(const psrti_ctable_t *table) { return &table->spec; }

/* The ranges of a step stay together, also when the worker comes late in the middle of them. */
uint64_t psrti_ctable_next_step(const psrti_ctable_t *table)
{
    if (psrti_list_empty(&table->csteps)) return table->next_step;
    const psrti_cstep_t *last = PSRTI_LIST_ENTRY(table->csteps.prev, const psrti_cstep_t, node);
    return last->closing ? table->next_step : last->step;
}

/* ---- views ------------------------------------------------------------------------------------- */

static psrt_status_t first_view(psrti_client_t *c, const psrti_view_t *view)
{
    c->owners = calloc(view->nowners, sizeof *c->owners);
    c->vshards = calloc(view->nvshards, sizeof *c->vshards);
    for (uint32_t v = 0; c->vshards && v < view->nvshards; v++)
        psrti_list_init(&c->vshards[v].blocked);
    return c->owners && c->vshards ? PSRT_OK : PSRT_ERR_NO_MEMORY;
}

/* Workers that come and go change nothing for the tables. */
static int servers_changed(const psrti_view_t *old, const psrti_view_t *view)
{
    for (uint32_t i = 0; i < view->nowners; i++)
        if (!old->owners[i].alive != !view->owners[i].alive) return 1;
    for (uint32_t v = 0; v < view->nvshards; v++)
        if (old->vshards[v].term != view->vshards[v].term) return 1;
    return 0;
}

/* What was sent under an older term or to an owner that is gone must be sent anew. */
static void resend(psrti_client_t *c, psrti_part_t *p)
{
    if (p->state != PSRTI_PART_SENT || p->in_flight) return;
    psrti_list_remove(&p->node);
    p->resend = 1;
    c->counts.retries++;
    psrti_part_ready(c, p);
}

void psrti_client_view(psrti_client_t *c, psrti_view_t *view)
{
    if (c->view && view->number <= c->view->number) return;
    if (!c->view && first_view(c, view) != PSRT_OK) {
        psrti_client_fail(c, PSRT_ERR_NO_MEMORY, "out of memory for the view of the job");
        return;
    }
    for (uint32_t v = 0; c->view && v < view->nvshards; v++)
        if (view->vshards[v].term > c->view->vshards[v].term)
            c->vshards[v].changed_view = view->number;
    int changed = c->view && servers_changed(c->view, view);
    psrti_view_unref(c->view);
    c->view = psrti_view_ref(view);
    if (!changed) return;
    size_t pos = 0;
    psrti_ctable_t *t;
    while ((t = psrti_map_next(&c->tables, &pos, NULL)))
        check_owners(c, t);
    psrti_fail_marked(c); /* of all lost tables in one pass */
}

/* ---- submitting -------------------------------------------------------------------------------- */

static int needs_clock(const psrti_ctable_t *t, const psrti_transfer_t *x)
{
    if (t->spec.consistency == PSRTI_ASYNC) return 0;
    return t->spec.consistency == PSRTI_SSP || x->more || x->count != t->spec.elements;
}

/* The cstep of a step, made on first use; NULL: not needed, or (status set) no memory. */
static psrti_cstep_t *cstep_of(psrti_ctable_t *t, const psrti_transfer_t *x, uint64_t step)
{
    psrti_list_t *last = t->csteps.prev;
    if (last != &t->csteps) {
        psrti_cstep_t *cs = PSRTI_LIST_ENTRY(last, psrti_cstep_t, node);
        if (cs->step == step && !cs->closing) return cs;
    }
    if (!needs_clock(t, x)) return NULL;
    psrti_cstep_t *cs = calloc(1, sizeof *cs);
    if (!cs) return NULL;
    cs->step = cs->last = step;
    psrti_list_push(&t->csteps, &cs->node);
    return cs;
}

static uint64_t pull_want(const psrti_ctable_t *t, uint64_t asked)
{
    if (asked != PSRT_STEP_NEXT && t->spec.consistency == PSRTI_SYNC) return asked;
    if (t->spec.consistency == PSRTI_SYNC) return t->next_step;
    if (t->spec.consistency == PSRTI_ASYNC) return 0;
    return t->next_step - PSRTI_MIN(t->next_step, t->spec.staleness);
}

static void set_kind(psrti_part_t *p, const psrti_transfer_t *x, const psrti_cstep_t *cs,
                     uint64_t slice_len)
{
    if (!x->grad) {
        p->type = PSRTI_T_PULL;
        if (x->average) p->flags |= PSRTI_F_AVERAGE;
    } else if (x->init) {
        p->type = PSRTI_T_INIT;
    } else {
        p->type = PSRTI_T_PUSH;
        if (p->count == slice_len) p->flags |= PSRTI_F_WHOLE;
        if (!cs) p->flags |= PSRTI_F_END;
        if (x->value) p->flags |= PSRTI_F_PULL;
    }
}

/* One part per slice of the range. */
static psrt_status_t add_parts(psrti_client_t *c, psrti_cop_t *op, const psrti_transfer_t *x,
                               psrti_cstep_t *cs, uint64_t step, psrti_list_t *made)
{
    psrti_ctable_t *t = x->table;
    for (uint64_t at = x->offset, end = x->offset + x->count; at < end;) {
        uint64_t i = at >> PSRTI_SLICE_SHIFT;
        uint64_t stop = PSRTI_MIN(end, psrti_slice_first(i + 1)), done = (at - x->offset) * t->elem;
        psrti_part_t *p = psrti_part_new(c, t, op);
        if (!p) return PSRT_ERR_NO_MEMORY;
        p->slice = i;
        p->offset = at;
        p->count = stop - at;
        p->vshard = psrti_slice_vshard(t->hash, i, c->view->nvshards);
        p->priority = x->priority;
        p->step = step;
        p->grad = x->grad ? (const char *)x->grad + done : NULL;
        p->value = x->value ? (char *)x->value + done : NULL;
        set_kind(p, x, cs, psrti_slice_len(t->spec.elements, i));
        if (p->type == PSRTI_T_PUSH) {
            p->epoch = t->epoch;
            t->uncaptured++;
        }
        if (p->type == PSRTI_T_PUSH && cs) {
            p->cstep = cs;
            cs->uncaptured++;
        }
        psrti_list_push(made, &p->node);
        at = stop;
    }
    return PSRT_OK;
}

/* Steps a transfer: its parts join `made`, the table's clock moves on. */
static psrt_status_t add_transfer(psrti_client_t *c, psrti_cop_t *op, const psrti_transfer_t *x,
                                  psrti_list_t *made)
{
    psrti_ctable_t *t = x->table;
    int push = x->grad && !x->init;
    uint64_t step = push ? (x->step == PSRT_STEP_NEXT ? psrti_ctable_next_step(t) : x->step)
                         : pull_want(t, x->step);
    psrti_cstep_t *cs = push ? cstep_of(t, x, step) : NULL;
    if (push && !cs && needs_clock(t, x)) return PSRT_ERR_NO_MEMORY;
    if (cs && !x->more) cs->closing = 1;
    psrt_status_t rc = add_parts(c, op, x, cs, step, made);
    if (!push) return rc;
    op->result.step = step;
    if (!x->more && step >= t->next_step) t->next_step = step + 1;
    return rc;
}

/* Fails the op before anything of it counts: no table's clock has moved. */
static int is_refused(psrti_client_t *c, psrti_cop_t *op, const psrti_transfer_t *x, size_t count)
{
    if (c->status) psrti_op_fail(c, op, c->status, c->text);
    for (size_t i = 0; !op->ended && i < count; i++)
        if (x[i].table->status) psrti_op_fail(c, op, x[i].table->status, x[i].table->text);
    return op->ended;
}

static uint64_t pulled_bytes(const psrti_transfer_t *x, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (x[i].value) bytes += x[i].count * x[i].table->elem;
    return bytes;
}

void psrti_client_submit(psrti_client_t *c, psrti_cop_t *op, const psrti_transfer_t *transfers,
                         size_t count)
{
    psrti_list_t made;
    psrti_list_init(&made);
    psrti_list_init(&op->parts);
    psrti_list_init(&op->node);
    psrti_list_init(&op->timed);
    op->result.version = UINT64_MAX;
    if (is_refused(c, op, transfers, count)) return;
    psrt_status_t rc = PSRT_OK;
    op->is_bulk = pulled_bytes(transfers, count) >= PSRTI_BULK_BYTES;
    for (size_t i = 0; !rc && i < count; i++)
        rc = add_transfer(c, op, &transfers[i], &made);
    if (rc) {
        psrti_op_fail(c, op, rc, NULL);
        return;
    }
    psrti_list_t *n;
    while ((n = psrti_list_pop(&made)))
        psrti_part_enqueue(c, PSRTI_LIST_ENTRY(n, psrti_part_t, node));
    if (op->deadline) psrti_cancel_watch(c, op);
    psrti_op_settle(c, op);
}

/* ---- links and timers -------------------------------------------------------------------------- */

void psrti_client_link_up(psrti_client_t *c, uint32_t owner)
{
    c->owners[owner].up = 1;
    c->owners[owner].full = 0;
    c->owners[owner].session++;
}

void psrti_client_link_writable(psrti_client_t *c, uint32_t owner)
{
    c->owners[owner].full = 0;
    if (!psrti_list_empty(&c->recalled)) c->next_recall = 0;
}

void psrti_client_link_lost(psrti_client_t *c, uint32_t owner)
{
    c->owners[owner].up = 0;
    PSRTI_LIST_FOREACH_SAFE(n, tmp, &c->sent)
    {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, node);
        if (p->owner == owner) resend(c, p);
    }
    psrti_cancel_lost(c, owner);
}

static void scan_delayed(psrti_client_t *c, uint64_t *next)
{
    PSRTI_LIST_FOREACH_SAFE(n, tmp, &c->delayed)
    {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, node);
        if (p->due > c->now) {
            *next = PSRTI_MIN(*next, p->due);
            continue;
        }
        if (p->in_flight) continue;
        psrti_list_remove(&p->node);
        p->resend = 1;
        psrti_part_ready(c, p);
    }
}

/* Repeats what was not answered in time, and probes for gated steps. Looks at everything that is out,
 * so it runs four times in a retry period only. */
static void scan_sent(psrti_client_t *c)
{
    PSRTI_LIST_FOREACH_SAFE(n, tmp, &c->sent)
    {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, node);
        if (p->due <= c->now && c->owners[p->owner].up) resend(c, p);
    }
    PSRTI_LIST_FOREACH_SAFE(n, tmp, &c->gated)
    {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, wait_node);
        if (p->due <= c->now) psrti_slice_kick(c, p->table, p->slice);
    }
}

static void send_all(psrti_client_t *c)
{
    for (uint32_t i = 0; i < c->view->nowners; i++)
        if (c->owners[i].count) psrti_owner_send(c, i);
}

uint64_t psrti_client_progress(psrti_client_t *c, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    c->now = now;
    if (!c->view) return next;
    psrti_cancel_progress(c, &next);
    if (!psrti_list_empty(&c->delayed)) scan_delayed(c, &next);
    if (now >= c->next_scan) {
        scan_sent(c);
        c->starved = 1; /* parts that held numbers may have been on their way */
        c->next_scan = now + c->retry_ns / 4;
    }
    send_all(c);
    if (c->starved) {
        psrti_numbers_relieve(c);
        send_all(c);
    }
    if (c->outstanding) next = PSRTI_MIN(next, c->next_scan);
    return next;
}

psrti_cop_t *psrti_client_completed(psrti_client_t *c)
{
    psrti_list_t *n = psrti_list_pop(&c->completed);
    return n ? PSRTI_LIST_ENTRY(n, psrti_cop_t, node) : NULL;
}

uint64_t psrti_client_outstanding(const psrti_client_t *c) { return c->outstanding; }

void psrti_client_counts(const psrti_client_t *c, psrti_client_counts_t *out) { *out = c->counts; }

void psrti_client_describe(const psrti_client_t *c, const psrti_cop_t *op, char *buf, size_t size)
{
    if (psrti_list_empty(&op->parts)) {
        snprintf(buf, size, "the operation has ended");
        return;
    }
    uint64_t left = 0;
    for (const psrti_list_t *n = op->parts.next; n != &op->parts; n = n->next)
        left++;
    const psrti_part_t *p = PSRTI_LIST_ENTRY(op->parts.next, const psrti_part_t, op_node);
    const psrti_view_owner_t *o = &c->view->owners[c->view->vshards[p->vshard].owner];
    const char *what = !p->grad ? "pull" : p->value ? "push_pull" : "push";
    const char *why = p->state < PSRTI_PART_SENT ? "not sent yet to"
                      : p->captured              ? "other workers are missing, says"
                                                 : "no answer from";
    snprintf(buf, size, "%s of table %s, step %llu: %s server:%u (%llu part%s open)", what,
             p->table->spec.name, (unsigned long long)p->step, why, o->server,
             (unsigned long long)left, left == 1 ? "" : "s");
}
