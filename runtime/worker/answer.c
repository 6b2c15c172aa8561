/* SPDX-License-Identifier: Apache-2.0 */
/* What servers answer: ACK, VALUE, MOVED. An answer that fits nothing is dropped: it is a duplicate, or
 * belongs to a part that ended. */
#include <stdio.h>

#include "runtime/worker/client_int.h"

static psrti_part_t *part_of(psrti_client_t *c, const psrt_hdr_t *hdr)
{
    if (hdr->seq & PSRTI_PULL_TAG) return psrti_map_get(&c->pulls, hdr->seq);
    psrti_part_t **ring = c->vshards[hdr->vshard].ring;
    psrti_part_t *p = ring ? ring[hdr->seq % PSRTI_NUMBERS] : NULL;
    return p && p->seq == hdr->seq ? p : NULL;
}

/* The server published `version` of a slice: a gated push may go. */
static void learn_version(psrti_client_t *c, const psrt_hdr_t *hdr)
{
    psrti_ctable_t *t = psrti_map_get(&c->tables, hdr->table);
    uint64_t slice = hdr->offset >> PSRTI_SLICE_SHIFT;
    if (!t || slice >= t->nslices || t->spec.consistency != PSRTI_SYNC) return;
    if (hdr->type == PSRTI_T_ACK && hdr->seq == 0)
        t->skipped_steps = PSRTI_MAX(t->skipped_steps, hdr->length);
    if (hdr->step <= t->slice[slice].version) return;
    t->slice[slice].version = hdr->step;
    psrti_slice_kick(c, t, slice);
}

/* The step was closed without this worker: it goes on from the step that is open now. */
static void learn_late(psrti_client_t *c, psrti_part_t *p, const psrt_hdr_t *hdr)
{
    c->counts.late++;
    if (p->op) p->op->result.late = 1;
    if (p->table->next_step >= hdr->step) return;
    p->table->next_step = hdr->step;
    if (p->table->spec.backup) psrti_table_skipped(c, p->table);
}

static void refused(psrti_client_t *c, psrti_part_t *p, psrt_status_t status)
{
    char text[PSRTI_NAME_MAX + 128];
    const psrti_view_owner_t *o = &c->view->owners[p->owner];
    if (status == PSRT_ERR_PEER_LOST)
        snprintf(text, sizeof text,
                 "table %s: worker:0 is gone, and did not give the first values (init rank0)",
                 p->table->spec.name);
    else
        snprintf(text, sizeof text, "table %s: server:%u answered: %s", p->table->spec.name,
                 o->server, psrt_status_text(status));
    if (status == PSRT_ERR_SHARD_LOST)
        psrti_client_table_fail(c, p->table->id, status, text);
    else if (p->op)
        psrti_op_fail(c, p->op, status, text);
    else
        psrti_part_end(c, p, status);
}

/* Whatever else the server says of a request that was taken back, it is said before the answer to
 * CANCEL. */
static psrt_rx_t on_late_ack(psrti_client_t *c, psrti_part_t *p, const psrt_hdr_t *hdr,
                             psrt_status_t status)
{
    if (status == PSRT_ERR_AGAIN) return PSRT_RX_DONE;
    if (status == PSRT_ERR_CANCELED) {
        psrti_cancel_answered(c, p, hdr);
        return PSRT_RX_DONE;
    }
    if (hdr->flags & PSRTI_F_LATE) learn_late(c, p, hdr);
    if (!status && p->flags & PSRTI_F_PULL)
        psrti_part_captured(c, p);
    else
        psrti_part_end(c, p, status);
    return PSRT_RX_DONE;
}

static psrt_rx_t on_ack(psrti_client_t *c, psrti_part_t *p, const psrt_hdr_t *hdr)
{
    psrt_status_t status = (psrt_status_t) - (int)hdr->status;
    if (p->type == PSRTI_T_PULL && !status) return PSRT_RX_BAD; /* its answer is a value */
    if (p->state == PSRTI_PART_CANCELED) return on_late_ack(c, p, hdr, status);
    if (p->state != PSRTI_PART_SENT)
        return PSRT_RX_DONE; /* a repeat is on its way, its answer counts */
    int refused_number =
        status == PSRT_ERR_CANCELED; /* said before, with AGAIN, but that was lost */
    if (status == PSRT_ERR_AGAIN || refused_number) {
        if (refused_number || hdr->flags & PSRTI_F_LATE) psrti_part_renumber(c, p);
        psrti_part_delay(c, p);
        return PSRT_RX_DONE;
    }
    if (status) {
        refused(c, p, status);
        return PSRT_RX_DONE;
    }
    if (hdr->flags & PSRTI_F_LATE) learn_late(c, p, hdr);
    if (p->flags & PSRTI_F_PULL)
        psrti_part_captured(c, p); /* the value follows */
    else
        psrti_part_end(c, p, PSRT_OK);
    return PSRT_RX_DONE;
}

static psrt_rx_t on_value(psrti_client_t *c, uint32_t owner, psrti_part_t *p, psrt_msg_t *msg)
{
    const psrt_hdr_t *hdr = &msg->hdr;
    const void *data;
    if (!p->value && p->type == PSRTI_T_PUSH) { /* its op failed meanwhile */
        psrti_part_end(c, p, PSRT_OK);
        return PSRT_RX_DONE;
    }
    if (!p->value || hdr->offset != p->offset || hdr->length != p->count ||
        hdr->dtype != p->table->spec.value_dtype || hdr->codec != p->table->spec.codec ||
        msg->len != p->count * psrt_dtype_size(p->table->wire_value))
        return PSRT_RX_BAD;
    /* Withdrawn by the server: it is being fenced; the link's loss makes us ask again. */
    if (c->env.map(c->env.arg, owner, msg, &data) != PSRT_OK) return PSRT_RX_DONE;
    if (p->table->spec.codec == PSRTI_CODEC_NONE)
        (p->op && p->op->is_bulk ? c->k->stream : c->k->copy)(p->value, data, msg->len);
    else
        psrti_half_of(c, p->table->spec.codec)->to_f32(p->value, data, p->count);
    if (c->env.verify(c->env.arg, owner, msg) != PSRT_OK) return PSRT_RX_DONE;
    if (hdr->flags & PSRTI_F_LATE) learn_late(c, p, hdr);
    if (p->op && hdr->step < p->op->result.version) p->op->result.version = hdr->step;
    psrti_part_end(c, p, PSRT_OK);
    return PSRT_RX_DONE;
}

/* An ACK of several numbers, up to its own: each as if it had come alone. */
static psrt_rx_t on_run(psrti_client_t *c, uint32_t owner, const psrt_msg_t *msg)
{
    psrt_msg_t one = *msg;
    uint64_t last = msg->hdr.seq;
    psrt_rx_t rx = PSRT_RX_DONE;
    if (last & PSRTI_PULL_TAG || msg->hdr.length >= PSRTI_MIN(last, (uint64_t)PSRTI_NUMBERS))
        return PSRT_RX_BAD;
    one.hdr.length = 0;
    for (uint64_t n = last - msg->hdr.length; rx == PSRT_RX_DONE && n <= last; n++) {
        one.hdr.seq = n;
        rx = psrti_client_msg(c, owner, &one);
    }
    return rx;
}

/* Seq 0 is no number, and other statuses tell something else by `length`. */
static int is_run(const psrt_hdr_t *hdr)
{
    return hdr->type == PSRTI_T_ACK && hdr->seq && !hdr->status && hdr->length;
}

/* A number of answers in one message, each as if it had come alone. */
static psrt_rx_t on_batch(psrti_client_t *c, uint32_t owner, psrt_msg_t *msg)
{
    const uint32_t answers = 1u << PSRTI_T_ACK | 1u << PSRTI_T_VALUE | 1u << PSRTI_T_MOVED;
    psrt_msg_t one = *msg;
    psrt_rx_t rx = PSRT_RX_DONE;
    psrt_status_t rc = PSRT_OK;
    const void *data;
    uint64_t pos = 0;
    if (c->env.map(c->env.arg, owner, msg, &data) != PSRT_OK) return PSRT_RX_DONE;
    if (psrti_batch_check(data, msg->len, answers) != PSRT_OK) return PSRT_RX_BAD;
    while (rx == PSRT_RX_DONE &&
           (rc = psrti_batch_next(data, msg->len, answers, &pos, &one)) == PSRT_OK)
        rx = psrti_client_msg(c, owner, &one);
    return rc == PSRT_ERR_PROTOCOL ? PSRT_RX_BAD : rx;
}

psrt_rx_t psrti_client_msg(psrti_client_t *c, uint32_t owner, psrt_msg_t *msg)
{
    const psrt_hdr_t *hdr = &msg->hdr;
    if (hdr->type == PSRTI_T_BYE) return PSRT_RX_DONE;
    if (hdr->type == PSRTI_T_BATCH) return on_batch(c, owner, msg);
    if (is_run(hdr)) return on_run(c, owner, msg);
    if (hdr->type != PSRTI_T_ACK && hdr->type != PSRTI_T_VALUE && hdr->type != PSRTI_T_MOVED)
        return PSRT_RX_BAD;
    if (!c->view || hdr->vshard >= c->view->nvshards) return PSRT_RX_BAD;
    if (hdr->type == PSRTI_T_MOVED) {
        /* Served again under the term of the view that comes; the retry timer sees to it. */
        c->counts.moved++;
        return PSRT_RX_DONE;
    }
    if (hdr->term < c->view->vshards[hdr->vshard].term) return PSRT_RX_DONE;
    psrti_part_t *p = part_of(c, hdr);
    if (p && (p->owner != owner || p->table->id != hdr->table || p->state == PSRTI_PART_ENDED))
        p = NULL;
    psrt_rx_t rx = PSRT_RX_DONE;
    if (p && hdr->type == PSRTI_T_VALUE)
        rx = on_value(c, owner, p, msg);
    else if (p)
        rx = on_ack(c, p, hdr);
    learn_version(c, hdr);
    return rx;
}
