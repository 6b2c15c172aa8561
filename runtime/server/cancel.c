/* SPDX-License-Identifier: Apache-2.0 */
/* CANCEL: a worker takes a request back. Afterwards nothing waits for it here, and a push that has not
 * been applied by then never will be, in whatever order its frames arrive. A push that was applied before
 * is answered OK; the pull half of an applied push_pull is taken back as any pull. */
#include <stdlib.h>

#include "runtime/server/group.h"

#define NAMED_RANKS 64 /* ranks that one answer can name */

/* The parked pull, or pull half of a push_pull, with this tag; NULL: none. */
static psrti_wait_t *find_wait(const psrti_peer_t *peer, const psrti_slice_t *slice, uint64_t tag)
{
    for (psrti_list_t *n = slice->waiters.next; n != &slice->waiters; n = n->next) {
        psrti_wait_t *w = PSRTI_LIST_ENTRY(n, psrti_wait_t, node);
        if (w->peer == peer && w->tag == tag) return w;
    }
    return NULL;
}

/* A value that found no room yet is not worth sending. */
static void forget_owed(psrti_shard_t *s, psrti_peer_t *peer, const psrti_slice_t *slice,
                        uint64_t tag)
{
    PSRTI_LIST_FOREACH_SAFE(n, tmp, &peer->owed)
    {
        psrti_owed_t *owed = PSRTI_LIST_ENTRY(n, psrti_owed_t, node);
        if (owed->slice != slice || owed->hdr.seq != tag) continue;
        psrti_owed_free(s, owed);
    }
}

/* Does version (ssp: clock) `want` of the slice wait for this worker? */
static int is_missing(const psrti_shard_t *s, psrti_slice_t *slice, uint32_t rank, uint64_t want)
{
    const psrti_stable_t *t = slice->table;
    if (!slice->ready) return rank == 0; /* who sets the values */
    if (t->spec.consistency == PSRTI_SSP)
        return s->view->workers[rank].alive && t->clock[rank] < want;
    if (t->spec.consistency != PSRTI_SYNC || slice->version >= want) return 0;
    return psrti_step_counts(s, t, rank, slice->version) &&
           !psrti_bit_get(psrti_ended(s, slice, slice->version), rank);
}

/* The same of the slices here that step together with it. */
static int is_missing_in_group(const psrti_shard_t *s, const psrti_slice_t *slice, uint32_t rank,
                               uint64_t want)
{
    psrti_group_pos_t pos = { 0 };
    psrti_slice_t *other;
    while (slice->sealed && (other = psrti_group_next(slice->table->group, &pos)))
        if (is_missing(s, other, rank, want)) return 1;
    return 0;
}

/* Names in the answer whom the version waits for: `seq_floor` is the lowest rank, bit i of `length`
 * says that rank seq_floor + i is missing. */
static void name_missing(const psrti_shard_t *s, psrti_slice_t *slice, uint64_t want,
                         psrt_hdr_t *out)
{
    for (uint32_t r = 0; r < s->nworkers; r++) {
        if (!is_missing(s, slice, r, want) && !is_missing_in_group(s, slice, r, want)) continue;
        if (!out->length) out->seq_floor = (uint16_t)r;
        if (r - out->seq_floor < NAMED_RANKS) out->length |= 1ull << (r - out->seq_floor);
    }
}

/* The version that the request waits for: a push that of the step before, since two are open at most. */
static uint64_t awaited(const psrt_hdr_t *req, const psrti_wait_t *wait)
{
    if (wait) return wait->want;
    if (req->seq >> 63) return req->step;
    return req->step - PSRTI_MIN(req->step, 1);
}

/* Refuses a push that has not been applied. BAD: a number that cannot be. */
static psrti_window_result_t refuse(psrti_shard_t *s, psrti_window_t *w, const psrt_hdr_t *req)
{
    if (req->seq_floor > req->seq) return PSRTI_WINDOW_BAD;
    psrti_window_result_t known = psrti_window_check(w, req->seq, req->seq - req->seq_floor);
    if (known != PSRTI_WINDOW_NEW) return known;
    psrti_window_refuse(w, req->seq);
    s->counts.canceled++;
    return known;
}

psrt_rx_t psrti_cancel(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                       const psrt_hdr_t *req)
{
    psrt_hdr_t missing = { 0 };
    psrti_wait_t *wait = find_wait(peer, slice, req->seq);
    name_missing(s, slice, awaited(req, wait), &missing);
    if (!(req->seq >> 63)) {
        psrti_window_t *w = psrti_window_of(s, peer, slice->vshard);
        if (!w) return PSRT_RX_DONE; /* it asks again, or gives the session up */
        psrti_window_result_t known = refuse(s, w, req);
        if (known == PSRTI_WINDOW_BAD) return PSRT_RX_BAD;
        if (known == PSRTI_WINDOW_DUPLICATE && !(req->flags & PSRTI_F_PULL)) {
            psrti_reply_ack(s, peer, req, PSRT_OK, 0, slice->version); /* too late: it is in */
            return PSRT_RX_DONE;
        }
    }
    s->counts.canceled += wait != NULL;
    if (wait) psrti_wait_free(wait);
    forget_owed(s, peer, slice, req->seq);
    psrti_reply_canceled(s, peer, req, &missing);
    return PSRT_RX_DONE;
}
