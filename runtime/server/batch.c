/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that came together, and answers that go together. */
#include "runtime/server/shard_int.h"

/* ---- answers ----------------------------------------------------------------------------------- */

void psrti_gather_begin(psrti_shard_t *s) { s->gathering = s->batches.limit != 0; }

void psrti_owing_send(psrti_shard_t *s)
{
    for (psrti_list_t *n; (n = psrti_list_pop(&s->owing));)
        psrti_owed_send(s, PSRTI_LIST_ENTRY(n, psrti_peer_t, owing));
}

void psrti_gather_end(psrti_shard_t *s)
{
    s->gathering = 0;
    psrti_owing_send(s);
}

/* 0: it is large, does not fit, or there is no memory. */
static int add(psrti_shard_t *s, psrti_batch_t *batch, psrti_owed_t *owed)
{
    uint64_t len = psrti_reply_bytes(owed);
    if (len > PSRTI_BATCH_PAYLOAD) return 0;
    if (!owed->slice) return psrti_batch_add(batch, &owed->hdr, NULL, 0);
    psrti_block_t *b = psrti_reply_pin(s, owed);
    int added = b && psrti_batch_add(batch, &owed->hdr, psrti_reply_data(owed, b), len);
    if (b) psrti_block_unpin(s, b);
    return added;
}

/* What is owed from the first one on, as far as it is small and fits. */
static void fill(psrti_shard_t *s, psrti_peer_t *peer, psrti_batch_t *batch)
{
    psrti_list_t *n = peer->owed.next;
    while (n != &peer->owed && add(s, batch, PSRTI_LIST_ENTRY(n, psrti_owed_t, node)))
        n = n->next;
}

psrt_status_t psrti_owed_batch(psrti_shard_t *s, psrti_peer_t *peer)
{
    if (!s->batches.limit || peer->owed.next->next == &peer->owed) return PSRT_ERR_NOT_FOUND;
    psrti_batch_t *b = psrti_batch_take(&s->batches);
    if (!b) return PSRT_ERR_NOT_FOUND;
    fill(s, peer, b);
    uint32_t count = b->count;
    psrt_status_t st = PSRT_ERR_NOT_FOUND;
    if (count > 1) {
        psrt_hdr_t hdr = psrti_batch_header(b);
        st = s->env.send(s->env.arg, peer->link, &hdr, b->data, b->bytes, &b->tx);
    }
    if (st != PSRT_IN_PROGRESS) psrti_batch_give(b);
    if (st == PSRT_ERR_AGAIN || st == PSRT_ERR_NOT_FOUND) return st;
    s->counts.batches++;
    s->counts.batched += count;
    while (count--)
        psrti_owed_free(s, PSRTI_LIST_ENTRY(peer->owed.next, psrti_owed_t, node));
    return st;
}

/* ---- requests ---------------------------------------------------------------------------------- */

/* Nothing is touched before the whole batch was found well formed. */
psrt_rx_t psrti_batch_msg(psrti_shard_t *s, psrti_peer_t *peer, psrt_msg_t *msg)
{
    const uint32_t requests = 1u << PSRTI_T_PUSH | 1u << PSRTI_T_PULL | 1u << PSRTI_T_INIT |
                              1u << PSRTI_T_CLOCK | 1u << PSRTI_T_CANCEL;
    psrt_msg_t one = *msg;
    psrt_rx_t rx = PSRT_RX_DONE;
    psrt_status_t rc = PSRT_OK;
    const void *data;
    uint64_t pos = 0;
    if (s->env.map(s->env.arg, msg, &data) != PSRT_OK) return PSRT_RX_DONE;
    if (psrti_batch_check(data, msg->len, requests) != PSRT_OK) return PSRT_RX_BAD;
    psrti_gather_begin(s);
    while (rx == PSRT_RX_DONE &&
           (rc = psrti_batch_next(data, msg->len, requests, &pos, &one)) == PSRT_OK)
        rx = psrti_shard_msg(s, peer, &one);
    psrti_gather_end(s);
    return rc == PSRT_ERR_PROTOCOL ? PSRT_RX_BAD : rx;
}
