/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a part: queued behind its slice, ready in its owner's heap, sent, answered, ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/worker/client_int.h"

void psrti_part_unready(psrti_client_t *c, psrti_part_t *p)
{
    if (p->state == PSRTI_PART_READY) psrti_queue_remove(&c->owners[p->owner], p);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static void tx_done(psrt_tx_t *tx, psrt_status_t status);

psrti_part_t *psrti_part_new(psrti_client_t *c, psrti_ctable_t *table, psrti_cop_t *op)
{
    psrti_part_t *p = c->free_parts;
    if (p)
        c->free_parts = p->next_free;
    else
        p = malloc(sizeof *p);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    p->client = c;
    p->table = table;
    p->op = op;
    p->tx.done = tx_done;
    p->order = ++c->order;
    psrti_list_init(&p->node);
    psrti_list_init(&p->wait_node);
    psrti_list_init(&p->op_node);
    if (op) psrti_list_push(&op->parts, &p->op_node);
    c->outstanding++;
    return p;
}

static void part_free(psrti_client_t *c, psrti_part_t *p)
{
    c->outstanding--;
    free(p->encoded);
    p->encoded = NULL;
    p->next_free = c->free_parts;
    c->free_parts = p;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void number_free(psrti_client_t *c, psrti_part_t *p)
{
    if (!p->seq) return;
    if (!psrti_part_mutates(p)) {
        psrti_map_remove(&c->pulls, p->seq);
        return;
    }
    psrti_cvshard_t *v = &c->vshards[p->vshard];
    v->ring[p->seq % PSRTI_NUMBERS] = NULL;
    while (v->floor < v->next_seq && !v->ring[v->floor % PSRTI_NUMBERS])
        v->floor++;
}

/* As many as there are numbers for. Called also when one that was to take a number is gone. */
static void unblock(psrti_client_t *c, psrti_cvshard_t *v)
{
    uint64_t left = PSRTI_NUMBERS - (v->next_seq - v->floor);
    for (psrti_list_t *n; left && (n = psrti_list_pop(&v->blocked)); left--)
        psrti_part_ready(c, PSRTI_LIST_ENTRY(n, psrti_part_t, wait_node));
}

/* ERR_AGAIN: the vshard has no number left. */
static psrt_status_t number_take(psrti_client_t *c, psrti_part_t *p)
{
    if (p->seq) return PSRT_OK;
    if (!psrti_part_mutates(p)) {
        uint64_t tag = PSRTI_PULL_TAG | ++c->next_tag;
        psrt_status_t rc = psrti_map_put(&c->pulls, tag, p);
        if (!rc) p->seq = tag;
        return rc;
    }
    psrti_cvshard_t *v = &c->vshards[p->vshard];
    if (!v->ring) {
        v->ring = calloc(PSRTI_NUMBERS, sizeof(void *));
        if (!v->ring) return PSRT_ERR_NO_MEMORY;
        v->next_seq = v->floor = 1;
    }
    if (v->next_seq - v->floor >= PSRTI_NUMBERS) return PSRT_ERR_AGAIN;
    p->seq = v->next_seq++;
    v->ring[p->seq % PSRTI_NUMBERS] = p;
    return PSRT_OK;
}

void psrti_part_renumber(psrti_client_t *c, psrti_part_t *p)
{
    number_free(c, p);
    p->seq = 0;
    unblock(c, &c->vshards[p->vshard]);
}

/* ---- queueing -------------------------------------------------------------------------------- */

void psrti_part_ready(psrti_client_t *c, psrti_part_t *p)
{
    psrti_list_remove(&p->wait_node);
    p->state = PSRTI_PART_READY;
    p->owner = c->view->vshards[p->vshard].owner;
    if (psrti_queue_push(&c->owners[p->owner], p) != PSRT_OK)
        psrti_part_end(c, p, PSRT_ERR_NO_MEMORY);
}

static int gate_is_open(const psrti_client_t *c, const psrti_part_t *p)
{
    const psrti_ctable_t *t = p->table;
    if (p->type != PSRTI_T_PUSH || t->spec.consistency != PSRTI_SYNC) return 1;
    return p->step <= t->slice[p->slice].version + 1 || c->now >= p->due;
}

void psrti_slice_kick(psrti_client_t *c, psrti_ctable_t *table, uint64_t slice)
{
    psrti_list_t *queue = &table->slice[slice].queue;
    if (psrti_list_empty(queue)) return;
    psrti_part_t *head = PSRTI_LIST_ENTRY(queue->next, psrti_part_t, node);
    if (head->state != PSRTI_PART_QUEUED) return;
    if (!head->due) head->due = c->now + c->retry_ns;
    if (gate_is_open(c, head))
        psrti_part_ready(c, head);
    else if (psrti_list_empty(&head->wait_node))
        psrti_list_push(&c->gated, &head->wait_node);
}

void psrti_part_enqueue(psrti_client_t *c, psrti_part_t *p)
{
    p->state = PSRTI_PART_QUEUED;
    psrti_list_push(&p->table->slice[p->slice].queue, &p->node);
    psrti_slice_kick(c, p->table, p->slice);
}

/* ---- sending --------------------------------------------------------------------------------- */

void psrti_part_header(psrti_client_t *c, const psrti_part_t *p, psrt_hdr_t *hdr)
{
    memset(hdr, 0, sizeof *hdr);
    hdr->type = p->type;
    hdr->flags = (uint16_t)(p->flags | (p->tries ? PSRTI_F_RETRY : 0));
    hdr->term = c->view->vshards[p->vshard].term;
    hdr->seq = p->seq;
    hdr->step = p->step;
    hdr->table = p->table->id;
    hdr->vshard = p->vshard;
    hdr->offset = p->offset;
    hdr->length = p->count;
    hdr->priority = (uint8_t)(p->priority + 128);
    if (p->type == PSRTI_T_PUSH) {
        hdr->dtype = (uint8_t)p->table->spec.grad_dtype;
        hdr->codec = (uint8_t)p->table->spec.codec;
    }
    if (p->type == PSRTI_T_INIT) hdr->dtype = (uint8_t)p->table->spec.value_dtype;
    if (psrti_part_mutates(p)) hdr->seq_floor = (uint16_t)(p->seq - c->vshards[p->vshard].floor);
}

static void note_used(psrti_client_t *c, const psrti_part_t *p)
{
    if (p->table->used || p->type != PSRTI_T_PUSH) return;
    p->table->used = 1;
    c->env.used(c->env.arg, p->table->id);
}

void psrti_part_sent(psrti_client_t *c, psrti_part_t *p)
{
    int was_head = !p->tries && p->type != PSRTI_T_CLOCK;
    uint64_t wait = c->retry_ns << PSRTI_MIN(p->tries + (p->captured ? 4u : 0u), 4u);
    psrti_list_remove(&p->node);
    p->state = PSRTI_PART_SENT;
    p->due = c->now + wait;
    p->tries++;
    p->session = c->owners[p->owner].session;
    p->resend = 0;
    psrti_list_push(&c->sent, &p->node);
    if (was_head) psrti_slice_kick(c, p->table, p->slice);
}

uint64_t psrti_part_bytes(const psrti_part_t *p)
{
    const psrti_table_spec_t *spec = &p->table->spec;
    if (!psrti_part_mutates(p)) return 0;
    if (p->type == PSRTI_T_INIT) return p->count * p->table->elem; /* sent as they are */
    return p->count * psrt_dtype_size(psrti_table_spec_wire(spec, spec->grad_dtype));
}

/* What a part sends. With a codec that is a copy, made when the part is sent first, since a
 * repeat and a send in flight read it too. */
static psrt_status_t payload_of(psrti_client_t *c, psrti_part_t *p, const void **data_p)
{
    psrti_codec_t codec = p->table->spec.codec;
    *data_p = p->grad;
    if (p->type != PSRTI_T_PUSH || codec == PSRTI_CODEC_NONE) return PSRT_OK;
    if (!p->encoded) {
        uint64_t bytes = psrti_part_bytes(p);
        p->encoded = malloc(PSRTI_MAX(bytes, 1u));
        if (!p->encoded) return PSRT_ERR_NO_MEMORY;
        psrti_half_of(c, codec)->from_f32(p->encoded, p->grad, p->count);
    }
    *data_p = p->encoded;
    return PSRT_OK;
}

psrt_status_t psrti_part_prepare(psrti_client_t *c, psrti_part_t *p, psrt_hdr_t *hdr,
                                 const void **data_p)
{
    psrt_status_t rc = number_take(c, p);
    if (!rc) rc = payload_of(c, p, data_p);
    if (rc) return rc;
    note_used(c, p);
    psrti_part_header(c, p, hdr);
    return PSRT_OK;
}

static psrt_status_t send_part(psrti_client_t *c, psrti_part_t *p)
{
    psrt_hdr_t hdr;
    const void *data;
    uint64_t len = psrti_part_bytes(p);
    psrt_status_t rc = psrti_part_prepare(c, p, &hdr, &data);
    if (rc) return rc;
    p->in_flight = len != 0;
    rc = c->env.send(c->env.arg, p->owner, &hdr, len ? data : NULL, len, len ? &p->tx : NULL);
    if (rc != PSRT_IN_PROGRESS) p->in_flight = 0;
    return rc;
}

void psrti_part_block(psrti_client_t *c, psrti_part_t *p)
{
    p->state = PSRTI_PART_BLOCKED;
    psrti_list_push(&c->vshards[p->vshard].blocked, &p->wait_node);
    c->starved = 1;
}

/* A captured push_pull waits for its value, which other workers decide. From now on it is the
 * pull that is left of it and has no number; the value that it asked for by its number will be
 * dropped. */
static void become_pull(psrti_client_t *c, psrti_part_t *p)
{
    const psrti_table_spec_t *spec = &p->table->spec;
    c->counts.pushed_bytes += psrti_part_bytes(p);
    number_free(c, p);
    p->seq = 0;
    p->type = PSRTI_T_PULL;
    p->flags = 0;
    p->step++;
    if (spec->consistency == PSRTI_SSP) p->step -= PSRTI_MIN(p->step, spec->staleness);
    psrti_list_remove(&p->node);
    p->resend = 1;
    psrti_part_ready(c, p);
}

void psrti_numbers_relieve(psrti_client_t *c)
{
    c->starved = 0;
    for (uint32_t v = 0; v < c->view->nvshards; v++) {
        if (!c->vshards[v].ring || psrti_list_empty(&c->vshards[v].blocked)) continue;
        for (uint32_t i = 0; i < PSRTI_NUMBERS; i++) {
            psrti_part_t *p = c->vshards[v].ring[i];
            if (p && p->captured && p->state == PSRTI_PART_SENT && !p->in_flight) become_pull(c, p);
        }
        unblock(c, &c->vshards[v]);
    }
}

void psrti_owner_send(psrti_client_t *c, uint32_t owner)
{
    psrti_cowner_t *o = &c->owners[owner];
    while (o->up && !o->full && o->count) {
        if (psrti_batch_send(c, owner)) continue;
        psrti_part_t *p = psrti_queue_head(o);
        if (!p) break;
        psrt_status_t rc = send_part(c, p);
        if (rc == PSRT_ERR_AGAIN && p->seq) {
            o->full = 1;
            return;
        }
        psrti_queue_pop(o);
        if (rc == PSRT_ERR_AGAIN) {
            psrti_part_block(c, p);
        } else if (rc == PSRT_ERR_NO_MEMORY) {
            psrti_part_end(c, p, rc);
        } else {
            psrti_part_sent(c, p); /* a link that failed reports LOST, and the part is sent again */
        }
    }
}

static void tx_done(psrt_tx_t *tx, psrt_status_t status)
{
    (void)status; /* a failed link reports LOST */
    psrti_part_t *p = PSRTI_CONTAINER_OF(tx, psrti_part_t, tx);
    psrti_client_t *c = p->client;
    p->in_flight = 0;
    if (p->state == PSRTI_PART_ENDED) psrti_part_end(c, p, p->status);
}

void psrti_part_delay(psrti_client_t *c, psrti_part_t *p)
{
    uint64_t wait = 5 * PSRTI_NS_PER_MS << PSRTI_MIN(p->tries, 6u);
    psrti_list_remove(&p->node);
    p->state = PSRTI_PART_DELAYED;
    p->due = c->now + PSRTI_MIN(wait, c->retry_ns);
    psrti_list_push(&c->delayed, &p->node);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Takes the part out of every queue that could still send it. */
static void withdraw(psrti_client_t *c, psrti_part_t *p)
{
    psrti_part_unready(c, p);
    int was_queued = p->state < PSRTI_PART_DELAYED;
    psrti_list_remove(&p->node);
    psrti_list_remove(&p->wait_node);
    p->state = PSRTI_PART_ENDED;
    number_free(c, p);
    p->seq = 0;
    unblock(c, &c->vshards[p->vshard]);
    if (was_queued && p->type != PSRTI_T_CLOCK) psrti_slice_kick(c, p->table, p->slice);
}

static void count_bytes(psrti_client_t *c, const psrti_part_t *p)
{
    c->counts.pushed_bytes += psrti_part_bytes(p);
    if (p->value) c->counts.pulled_bytes += p->count * psrt_dtype_size(p->table->wire_value);
}

/* CLOCKs that no push of the user's waits for. */
static void tell_step(psrti_client_t *c, psrti_ctable_t *t, uint64_t step, int skip)
{
    psrti_cstep_t *cs = calloc(1, sizeof *cs);
    if (!cs) return;
    cs->step = cs->last = step;
    cs->closing = 1;
    if (skip) {
        cs->skip = 1;
        cs->epoch = t->epoch++;
        cs->uncaptured = t->uncaptured;
    }
    psrti_list_insert_before(t->csteps.next, &cs->node); /* the last one is the user's */
    psrti_cstep_review(c, t, cs);
}

/* A push that should have ended its step was given up: CLOCK ends the step instead, else the other
 * workers' step would never close. On slices where the step has ended it changes nothing. */
static void end_step_without(psrti_client_t *c, const psrti_part_t *p)
{
    psrti_ctable_t *t = p->table;
    if (t->status || c->status || t->spec.consistency != PSRTI_SYNC) return;
    for (psrti_list_t *n = t->csteps.next; n != &t->csteps; n = n->next) {
        const psrti_cstep_t *cs = PSRTI_LIST_ENTRY(n, const psrti_cstep_t, node);
        if (cs->step <= p->step && p->step <= cs->last && !cs->skip) return;
    }
    tell_step(c, t, p->step, 0);
}

void psrti_part_end(psrti_client_t *c, psrti_part_t *p, psrt_status_t status)
{
    if (p->state != PSRTI_PART_ENDED) {
        withdraw(c, p);
        p->status = status;
        if (status == PSRT_OK) count_bytes(c, p);
        if (p->type == PSRTI_T_PUSH) psrti_part_captured(c, p);
        if (status && (p->flags & PSRTI_F_END)) end_step_without(c, p);
    }
    if (p->in_flight) return; /* tx_done comes back here */
    psrti_cop_t *op = p->op;
    psrti_ctable_t *table = p->table;
    psrti_cstep_t *cstep = p->cstep;
    int is_clock = p->type == PSRTI_T_CLOCK;
    psrti_list_remove(&p->op_node);
    psrti_list_remove(&p->node); /* it may have been recalled while in flight */
    part_free(c, p);
    if (is_clock) {
        cstep->clocks--;
        psrti_cstep_review(c, table, cstep);
    }
    if (!op) return;
    if (status && status != op->result.status)
        psrti_op_fail(c, op, status, NULL);
    else
        psrti_op_settle(c, op);
}

void psrti_op_settle(psrti_client_t *c, psrti_cop_t *op)
{
    if (op->ended || !psrti_list_empty(&op->parts)) return;
    op->ended = 1;
    psrti_list_remove(&op->timed);
    psrti_list_push(&c->completed, &op->node);
}

/* A push of another table that is on its way when a table of its op is lost: it still goes
 * there, so that the other workers' step can close, but its value is not waited for. */
static int goes_on(const psrti_part_t *p, psrt_status_t status)
{
    return status == PSRT_ERR_SHARD_LOST && p->type == PSRTI_T_PUSH && !p->captured &&
           !p->table->status && (p->state == PSRTI_PART_READY || p->state == PSRTI_PART_SENT);
}

static void abandon(psrti_client_t *c, psrti_part_t *p, psrt_status_t status)
{
    p->abandoned = 1;
    if (goes_on(p, status)) {
        p->value = NULL;
        p->flags &= (uint16_t)~PSRTI_F_PULL;
        return;
    }
    psrti_part_end(c, p, status);
}

static psrti_part_t *next_of_op(const psrti_cop_t *op)
{
    for (psrti_list_t *n = op->parts.next; n != &op->parts; n = n->next) {
        psrti_part_t *p = PSRTI_LIST_ENTRY(n, psrti_part_t, op_node);
        if (!p->abandoned) return p;
    }
    return NULL;
}

/* The first failure gives the op its status; its other parts are given up: whatever answer comes
 * for them is dropped, and the op ends when no send of theirs is in flight any more. */
void psrti_op_fail(psrti_client_t *c, psrti_cop_t *op, psrt_status_t status, const char *text)
{
    if (op->ended) return;
    if (op->result.status == PSRT_OK) {
        op->result.status = status;
        op->text = strdup(text ? text : psrt_status_text(status));
        psrti_part_t *p;
        while ((p = next_of_op(op)))
            abandon(c, p, status); /* ending one may change the list */
    }
    psrti_op_settle(c, op);
}

/* ---- steps that end with CLOCK --------------------------------------------------------------- */

/* A skip that waits for nothing more. */
static psrti_cstep_t *skip_that_is_due(const psrti_ctable_t *t)
{
    for (psrti_list_t *n = t->csteps.next; n != &t->csteps; n = n->next) {
        psrti_cstep_t *cs = PSRTI_LIST_ENTRY(n, psrti_cstep_t, node);
        if (cs->skip && !cs->clocked && !cs->uncaptured) return cs;
    }
    return NULL;
}

/* Skips that waited for this push may go: none must arrive before a push to a step that it
 * skips. */
static void note_captured(psrti_client_t *c, const psrti_part_t *p)
{
    psrti_ctable_t *t = p->table;
    psrti_cstep_t *due;
    t->uncaptured--;
    for (psrti_list_t *n = t->csteps.next; n != &t->csteps; n = n->next) {
        psrti_cstep_t *cs = PSRTI_LIST_ENTRY(n, psrti_cstep_t, node);
        if (cs->skip && !cs->clocked && cs->epoch >= p->epoch) cs->uncaptured--;
    }
    while ((due = skip_that_is_due(t)))
        psrti_cstep_review(c, t, due);
}

void psrti_part_captured(psrti_client_t *c, psrti_part_t *p)
{
    if (p->captured) return;
    p->captured = 1;
    if (!psrti_list_empty(&c->vshards[p->vshard].blocked)) c->starved = 1;
    note_captured(c, p);
    if (!p->cstep) return;
    p->cstep->uncaptured--;
    psrti_cstep_review(c, p->table, p->cstep);
}

/* One CLOCK to each owner with slices of the table. Any vshard of the owner addresses it. */
static void make_clocks(psrti_client_t *c, psrti_ctable_t *t, psrti_cstep_t *cs)
{
    uint8_t *told = calloc(c->view->nowners, 1);
    for (uint64_t i = 0; told && i < t->nslices && i < c->view->nvshards; i++) {
        uint16_t v = psrti_slice_vshard(t->hash, i, c->view->nvshards);
        uint32_t owner = c->view->vshards[v].owner;
        if (told[owner]) continue;
        psrti_part_t *p = psrti_part_new(c, t, NULL);
        if (!p) continue;
        told[owner] = 1;
        p->type = PSRTI_T_CLOCK;
        p->flags = cs->skip ? PSRTI_F_LATE : 0;
        p->cstep = cs;
        p->step = cs->step;
        p->vshard = v;
        p->slice = i;
        p->offset = psrti_slice_first(i);
        p->priority = 127;
        cs->clocks++;
        psrti_part_ready(c, p);
    }
    free(told);
}

/* The clock of ssp says that everything of this step and of all before is there. */
static int waits_for_earlier(const psrti_ctable_t *t, const psrti_cstep_t *cs)
{
    if (t->spec.consistency != PSRTI_SSP) return 0;
    for (const psrti_list_t *n = t->csteps.next; n != &t->csteps; n = n->next) {
        const psrti_cstep_t *o = PSRTI_LIST_ENTRY(n, const psrti_cstep_t, node);
        if (o->step < cs->step && !o->clocked) return 1;
    }
    return 0;
}

void psrti_table_skipped(psrti_client_t *c, psrti_ctable_t *t) { tell_step(c, t, t->next_step, 1); }

/* A worker that gives its pushes up is not held back by the two steps that may be open: its clock runs ahead of
 * the others', and servers refuse what they hear of it. So no more than two steps are told at a time; the
 * one that is told last tells those behind it in its turn. */
static int told_by_another(psrti_ctable_t *t, const psrti_cstep_t *cs)
{
    psrti_cstep_t *before = NULL;
    int told = 0;

    if (t->spec.consistency != PSRTI_SYNC || cs->skip) return 0;
    for (psrti_list_t *n = t->csteps.next; n != &t->csteps; n = n->next) {
        psrti_cstep_t *o = PSRTI_LIST_ENTRY(n, psrti_cstep_t, node);
        if (o == cs || !o->clocked || o->skip) continue;
        told++;
        if (o->last + 1 == cs->step) before = o;
    }
    if (told < 2 || !before) return 0;
    before->last = cs->last;
    return 1;
}

static void tell(psrti_client_t *c, psrti_ctable_t *t, psrti_cstep_t *cs)
{
    cs->clocks = 1; /* ours, so that none that fails at once frees it under us */
    make_clocks(c, t, cs);
    cs->clocks--;
}

void psrti_cstep_review(psrti_client_t *c, psrti_ctable_t *t, psrti_cstep_t *cs)
{
    if (!cs->closing || cs->uncaptured || (!cs->clocked && waits_for_earlier(t, cs))) return;
    psrti_list_t *next =
        cs->clocked ? &t->csteps : cs->node.next; /* may have waited for this one */
    int first = !cs->clocked;
    cs->clocked = 1;
    if (!t->status && !c->status) {
        if (first && !told_by_another(t, cs)) tell(c, t, cs);
        for (; !cs->clocks && cs->step < cs->last; tell(c, t, cs))
            cs->step++;
    }
    if (!cs->clocks) {
        psrti_list_remove(&cs->node);
        free(cs);
    }
    if (next != &t->csteps) psrti_cstep_review(c, t, PSRTI_LIST_ENTRY(next, psrti_cstep_t, node));
}
