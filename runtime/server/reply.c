/* SPDX-License-Identifier: Apache-2.0 */
/* What goes back to workers: acknowledgements, values, and pulls that wait for a version. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/server/group.h"

#define SMALL_BLOCK 2048u

/* ---- blocks ------------------------------------------------------------------------------------ */

static uint64_t block_bytes(const psrti_slice_t *slice)
{
    return slice->len * slice->table->value_bytes;
}

/* Every transport copies so little, so it needs no memory of theirs, which comes in pages. What does is
 * kept for reuse. */
static int is_small(const psrti_slice_t *slice)
{
    return slice->len < PSRTI_SLICE_ELEMS && block_bytes(slice) <= SMALL_BLOCK;
}

static psrti_block_t *small_block_new(uint64_t bytes)
{
    size_t head = (sizeof(psrti_block_t) + 63) & ~(size_t)63;
    psrti_block_t *b = aligned_alloc(64, head + ((bytes + 63) & ~63ull));
    if (!b) return NULL;
    memset(b, 0, head + bytes);
    b->data = (char *)b + head;
    return b;
}

static psrti_block_t *large_block_new(psrti_shard_t *s, uint64_t bytes)
{
    psrti_block_t *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->data = s->env.alloc(s->env.arg, bytes);
    if (b->data) return b;
    free(b);
    return NULL;
}

static psrti_block_t **free_list(const psrti_slice_t *slice)
{
    return &slice->table->free_blocks[slice->len < PSRTI_SLICE_ELEMS];
}

psrti_block_t *psrti_block_new(psrti_shard_t *s, psrti_slice_t *slice)
{
    psrti_block_t **list = free_list(slice), *b = *list;
    if (b)
        *list = b->next;
    else if (is_small(slice))
        b = small_block_new(block_bytes(slice));
    else
        b = large_block_new(s, block_bytes(slice));
    if (!b) return NULL;
    b->slice = slice;
    b->pins = 0;
    s->counts.blocks++;
    return b;
}

void psrti_block_drop(psrti_shard_t *s, psrti_block_t *block)
{
    psrti_slice_t *slice = block->slice;
    s->counts.blocks--;
    if (is_small(slice)) {
        free(block);
        return;
    }
    psrti_block_t **list = free_list(slice);
    block->next = *list;
    *list = block;
}

void psrti_block_unpin(psrti_shard_t *s, psrti_block_t *block)
{
    if (--block->pins == 0 && block->slice->cur != block) psrti_block_drop(s, block);
}

static void tx_done(psrt_tx_t *tx, psrt_status_t status)
{
    (void)status; /* a lost reply is asked for again by its worker */
    psrti_stx_t *stx = PSRTI_CONTAINER_OF(tx, psrti_stx_t, tx);
    psrti_shard_t *s = stx->shard;
    psrti_block_unpin(s, stx->block);
    stx->next = s->free_tx;
    s->free_tx = stx;
}

static psrti_stx_t *tx_new(psrti_shard_t *s, psrti_block_t *block)
{
    psrti_stx_t *stx = s->free_tx;
    if (stx)
        s->free_tx = stx->next;
    else
        stx = calloc(1, sizeof *stx);
    if (!stx) return NULL;
    stx->tx.done = tx_done;
    stx->shard = s;
    stx->block = block;
    return stx;
}

/* ---- sending ----------------------------------------------------------------------------------- */

psrti_block_t *psrti_reply_pin(psrti_shard_t *s, psrti_owed_t *owed)
{
    psrti_slice_t *slice = owed->slice;
    psrt_hdr_t *hdr = &owed->hdr;
    psrti_block_t *b = slice->cur;
    if (hdr->flags & PSRTI_F_AVERAGE)
        b = psrti_average_block(s, slice, hdr->offset - slice->first, hdr->length);
    if (!b) return NULL;
    b->pins++;
    hdr->step = slice->version;
    hdr->term = s->view->vshards[slice->vshard].term;
    return b;
}

static psrt_status_t send_value(psrti_shard_t *s, psrti_peer_t *peer, psrti_owed_t *owed)
{
    psrti_block_t *b = psrti_reply_pin(s, owed);
    psrti_stx_t *stx = b ? tx_new(s, b) : NULL;
    if (!stx) {
        if (b) psrti_block_unpin(s, b);
        return PSRT_ERR_AGAIN;
    }
    psrt_status_t st = s->env.send(s->env.arg, peer->link, &owed->hdr, psrti_reply_data(owed, b),
                                   psrti_reply_bytes(owed), &stx->tx);
    if (st != PSRT_IN_PROGRESS) tx_done(&stx->tx, st);
    return st;
}

static psrt_status_t send_now(psrti_shard_t *s, psrti_peer_t *peer, psrti_owed_t *owed)
{
    if (owed->slice) return send_value(s, peer, owed);
    return s->env.send(s->env.arg, peer->link, &owed->hdr, NULL, 0, NULL);
}

static psrti_owed_t *owed_new(psrti_shard_t *s)
{
    psrti_list_t *n = psrti_list_pop(&s->free_owed);
    return n ? PSRTI_LIST_ENTRY(n, psrti_owed_t, node) : malloc(sizeof(psrti_owed_t));
}

void psrti_owed_free(psrti_shard_t *s, psrti_owed_t *owed)
{
    psrti_list_remove(&owed->node);
    psrti_list_push(&s->free_owed, &owed->node);
}

static void keep(psrti_shard_t *s, psrti_peer_t *peer, const psrt_hdr_t *hdr, psrti_slice_t *slice)
{
    psrti_owed_t *owed = owed_new(s);
    if (!owed) return; /* the worker asks again */
    owed->hdr = *hdr;
    owed->slice = slice;
    psrti_list_push(&peer->owed, &owed->node);
    if (psrti_list_empty(&peer->owing)) psrti_list_push(&s->owing, &peer->owing);
}

/* Sends, or keeps the header until the link is writable or all are gathered. Order within a peer is
 * kept. */
static void reply(psrti_shard_t *s, psrti_peer_t *peer, const psrt_hdr_t *hdr, psrti_slice_t *slice)
{
    psrti_owed_t now = { .hdr = *hdr, .slice = slice };
    if (!s->gathering && !psrti_list_empty(&peer->owed)) psrti_owed_send(s, peer);
    if (!s->gathering && psrti_list_empty(&peer->owed)) {
        if (send_now(s, peer, &now) != PSRT_ERR_AGAIN) return;
        peer->full = 1;
    }
    keep(s, peer, hdr, slice);
}

void psrti_owed_send(psrti_shard_t *s, psrti_peer_t *peer)
{
    while (!peer->full && !psrti_list_empty(&peer->owed)) {
        psrt_status_t st = psrti_owed_batch(s, peer);
        if (st == PSRT_ERR_NOT_FOUND) {
            psrti_owed_t *owed = PSRTI_LIST_ENTRY(peer->owed.next, psrti_owed_t, node);
            st = send_now(s, peer, owed);
            if (st != PSRT_ERR_AGAIN) psrti_owed_free(s, owed);
        }
        peer->full = st == PSRT_ERR_AGAIN;
    }
}

void psrti_shard_link_writable(psrti_shard_t *s, psrti_peer_t *peer)
{
    if (peer->is_owner) psrti_owner_writable(s, peer);
    peer->full = 0;
    psrti_owed_send(s, peer);
}

static psrt_hdr_t ack_of(const psrt_hdr_t *req, psrt_status_t status)
{
    return (psrt_hdr_t){ .type = PSRTI_T_ACK,
                         .term = req->term,
                         .seq = req->seq,
                         .table = req->table,
                         .vshard = req->vshard,
                         .offset = req->offset,
                         .priority = req->priority,
                         .status = (uint8_t)-status };
}

/* An ACK that may be true of the next number too. */
static int is_plain(const psrt_hdr_t *hdr)
{
    return hdr->type == PSRTI_T_ACK && !hdr->status && hdr->seq && !(hdr->seq & PSRTI_PULL_TAG) &&
           !(hdr->flags & PSRTI_F_LATE);
}

/* Does the last answer that is owed say the same of the number before? Then it answers this one too. How
 * many it answers now; 0: it does not. */
static uint64_t extend(psrti_shard_t *s, psrti_peer_t *peer, const psrt_hdr_t *hdr)
{
    if (psrti_list_empty(&peer->owed)) return 0;
    psrt_hdr_t *last = &PSRTI_LIST_ENTRY(peer->owed.prev, psrti_owed_t, node)->hdr;
    if (!is_plain(last) || hdr->seq != last->seq + 1 || hdr->flags != last->flags ||
        hdr->table != last->table || hdr->vshard != last->vshard || hdr->term != last->term ||
        hdr->offset != last->offset || last->length + 1 == PSRTI_ACK_RUN)
        return 0;
    last->seq = hdr->seq;
    last->step = hdr->step;
    last->length++;
    s->counts.joined++;
    return last->length + 1;
}

/* A client that has many numbers out does not wait for this one: its ACK may wait for the next ones,
 * which cost both sides less together. */
void psrti_reply_ack(psrti_shard_t *s, psrti_peer_t *peer, const psrt_hdr_t *req,
                     psrt_status_t status, uint16_t flags, uint64_t version)
{
    psrt_hdr_t hdr = ack_of(req, status);
    hdr.flags = flags;
    hdr.step = version;
    int plain = is_plain(&hdr), patient = plain && req->seq_floor >= 2 * PSRTI_ACK_RUN;
    uint64_t run = plain ? extend(s, peer, &hdr) : 0;
    if (run) {
        if ((!patient || run == PSRTI_ACK_RUN) && !s->gathering) psrti_owed_send(s, peer);
    } else if (patient && !s->gathering) {
        psrti_owed_send(s, peer); /* of other numbers */
        keep(s, peer, &hdr, NULL);
    } else {
        reply(s, peer, &hdr, NULL);
    }
}

void psrti_reply_canceled(psrti_shard_t *s, psrti_peer_t *peer, const psrt_hdr_t *req,
                          const psrt_hdr_t *missing)
{
    psrt_hdr_t hdr = ack_of(req, PSRT_ERR_CANCELED);
    hdr.seq_floor = missing->seq_floor;
    hdr.length = missing->length;
    reply(s, peer, &hdr, NULL);
}

void psrti_reply_moved(psrti_shard_t *s, psrti_peer_t *peer, const psrt_hdr_t *req)
{
    const psrti_view_vshard_t *v = &s->view->vshards[req->vshard];
    psrt_hdr_t hdr = { .type = PSRTI_T_MOVED,
                       .term = v->term,
                       .seq = req->seq,
                       .step = v->owner,
                       .table = req->table,
                       .vshard = req->vshard,
                       .offset = req->offset,
                       .priority = req->priority };
    s->counts.moved++;
    reply(s, peer, &hdr, NULL);
}

void psrti_reply_value(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice, uint64_t tag,
                       uint64_t offset, uint64_t length, uint16_t flags, uint8_t priority)
{
    psrt_hdr_t hdr = { .type = PSRTI_T_VALUE,
                       .flags = flags,
                       .seq = tag,
                       .dtype = (uint8_t)slice->table->spec.value_dtype,
                       .codec = (uint8_t)slice->table->spec.codec,
                       .table = slice->table->id,
                       .vshard = slice->vshard,
                       .offset = offset,
                       .length = length,
                       .priority = priority };
    reply(s, peer, &hdr, slice);
}

void psrti_notify_applied(psrti_shard_t *s, psrti_slice_t *slice, const uint64_t *ended,
                          const psrti_peer_t *except)
{
    const psrti_group_t *group = slice->table->group;
    for (psrti_list_t *n = s->peers.next; n != &s->peers; n = n->next) {
        psrti_peer_t *peer = PSRTI_LIST_ENTRY(n, psrti_peer_t, node);
        if (peer == except || !psrti_bit_get(ended, peer->rank)) continue;
        psrt_hdr_t hdr = { .type = PSRTI_T_ACK,
                           .flags = PSRTI_F_APPLIED,
                           .term = s->view->vshards[slice->vshard].term,
                           .step = slice->version,
                           .table = slice->table->id,
                           .vshard = slice->vshard,
                           .offset = slice->first,
                           .length = group ? group->skipped_steps : 0 };
        reply(s, peer, &hdr, NULL);
    }
}

/* ---- pulls that wait --------------------------------------------------------------------------- */

static int is_due(const psrti_shard_t *s, const psrti_slice_t *slice, uint64_t want)
{
    if (!slice->ready) return 0;
    switch (slice->table->spec.consistency) {
    case PSRTI_SYNC: return slice->version >= want;
    case PSRTI_SSP: return psrti_min_clock(s, slice->table) >= want;
    default: return 1;
    }
}

void psrti_wait_free(psrti_wait_t *wait)
{
    wait->slice->parked[wait->peer->rank]--;
    psrti_list_remove(&wait->node);
    psrti_list_remove(&wait->peer_node);
    free(wait);
}

/* Nearly always the worker waits for nothing else here, and the others are not looked at. */
static int is_parked(const psrti_slice_t *slice, const psrti_peer_t *peer, uint64_t tag)
{
    if (!slice->parked || !slice->parked[peer->rank]) return 0;
    for (const psrti_list_t *n = slice->waiters.next; n != &slice->waiters; n = n->next) {
        const psrti_wait_t *w = PSRTI_LIST_ENTRY(n, const psrti_wait_t, node);
        if (w->peer == peer && w->tag == tag) return 1;
    }
    return 0;
}

static psrti_wait_t *wait_new(const psrti_shard_t *s, psrti_slice_t *slice)
{
    if (!slice->parked) slice->parked = calloc(s->nworkers, sizeof *slice->parked);
    psrti_wait_t *w = slice->parked ? calloc(1, sizeof *w) : NULL;
    if (w) w->slice = slice;
    return w;
}

void psrti_pull_or_park(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                        const psrt_hdr_t *req, uint64_t want, uint16_t flags)
{
    if (is_due(s, slice, want)) {
        psrti_reply_value(s, peer, slice, req->seq, req->offset, req->length, flags, req->priority);
        return;
    }
    if (psrti_is_orphan(s, slice)) {
        psrti_reply_ack(s, peer, req, PSRT_ERR_PEER_LOST, 0, slice->version);
        return;
    }
    /* Captured, but not applied yet: the worker's step may go on. */
    if (req->type == PSRTI_T_PUSH) psrti_reply_ack(s, peer, req, PSRT_OK, 0, slice->version);
    if (is_parked(slice, peer, req->seq)) return;
    psrti_wait_t *w = wait_new(s, slice);
    if (!w) return; /* the worker asks again */
    slice->parked[peer->rank]++;
    w->peer = peer;
    w->tag = req->seq, w->want = want;
    w->offset = req->offset, w->length = req->length;
    w->flags = flags, w->type = req->type, w->priority = req->priority;
    psrti_list_push(&slice->waiters, &w->node);
    psrti_list_push(&peer->waits, &w->peer_node);
    s->counts.parked++;
}

static void refuse_orphaned(psrti_shard_t *s, psrti_slice_t *slice, psrti_wait_t *w)
{
    psrt_hdr_t req = { .term = s->view->vshards[slice->vshard].term,
                       .seq = w->tag,
                       .table = slice->table->id,
                       .vshard = slice->vshard,
                       .offset = w->offset,
                       .priority = w->priority };
    psrti_reply_ack(s, w->peer, &req, PSRT_ERR_PEER_LOST, 0, slice->version);
    psrti_wait_free(w);
}

void psrti_wake_slice(psrti_shard_t *s, psrti_slice_t *slice)
{
    PSRTI_LIST_FOREACH_SAFE(n, tmp, &slice->waiters)
    {
        psrti_wait_t *w = PSRTI_LIST_ENTRY(n, psrti_wait_t, node);
        if (psrti_is_orphan(s, slice)) {
            refuse_orphaned(s, slice, w);
            continue;
        }
        if (!is_due(s, slice, w->want)) continue;
        psrti_reply_value(s, w->peer, slice, w->tag, w->offset, w->length, w->flags, w->priority);
        psrti_wait_free(w);
    }
}
