/* SPDX-License-Identifier: Apache-2.0 */
/* Small parts that are queued for the same owner travel together. No part waits for company: what is
 * queued at the moment of sending is taken, in the order of the queue. */
#include "runtime/worker/client_int.h"

static int is_small(const psrti_part_t *p) { return psrti_part_bytes(p) <= PSRTI_BATCH_PAYLOAD; }

/* Are the first two parts small? */
static int pays(const psrti_client_t *c, const psrti_cowner_t *o)
{
    if (!c->batches.limit || o->count < 2 || !is_small(o->heap[0].part)) return 0;
    int second = o->count > 2 && o->heap[2].key < o->heap[1].key ? 2 : 1;
    return is_small(o->heap[second].part);
}

/* Moves parts from the queue into the batch and into `taken`, up to one that does not fit, is large, or
 * finds no memory. */
static void gather(psrti_client_t *c, psrti_cowner_t *o, psrti_batch_t *b, psrti_list_t *taken)
{
    for (psrti_part_t *p; (p = psrti_queue_head(o)) && is_small(p);) {
        psrt_hdr_t hdr;
        const void *data;
        psrt_status_t rc = psrti_part_prepare(c, p, &hdr, &data);
        if (rc == PSRT_ERR_AGAIN) {
            psrti_queue_pop(o);
            psrti_part_block(c, p);
            continue;
        }
        if (rc || !psrti_batch_add(b, &hdr, data, psrti_part_bytes(p))) return;
        psrti_queue_pop(o);
        psrti_list_push(taken, &p->wait_node);
    }
}

/* The queue had room for them before. */
static void put_back(psrti_cowner_t *o, psrti_list_t *taken)
{
    for (psrti_list_t *n; (n = psrti_list_pop(taken));)
        (void)psrti_queue_push(o, PSRTI_LIST_ENTRY(n, psrti_part_t, wait_node));
}

static void all_sent(psrti_client_t *c, const psrti_batch_t *b, psrti_list_t *taken)
{
    c->counts.batches++;
    c->counts.batched += b->count;
    for (psrti_list_t *n; (n = psrti_list_pop(taken));)
        psrti_part_sent(c, PSRTI_LIST_ENTRY(n, psrti_part_t, wait_node));
}

int psrti_batch_send(psrti_client_t *c, uint32_t owner)
{
    psrti_cowner_t *o = &c->owners[owner];
    psrti_list_t taken;
    if (!pays(c, o)) return 0;
    psrti_batch_t *b = psrti_batch_take(&c->batches);
    if (!b) return 0;
    psrti_list_init(&taken);
    gather(c, o, b, &taken);
    int many = b->count > 1;
    psrt_status_t rc = PSRT_ERR_AGAIN;
    if (many) {
        psrt_hdr_t hdr = psrti_batch_header(b);
        rc = c->env.send(c->env.arg, owner, &hdr, b->data, b->bytes, &b->tx);
        o->full = rc == PSRT_ERR_AGAIN;
    }
    if (rc == PSRT_ERR_AGAIN)
        put_back(o, &taken);
    else
        all_sent(c, b, &taken); /* a link that failed reports LOST, and they are sent again */
    if (rc != PSRT_IN_PROGRESS) psrti_batch_give(b);
    return many;
}
