/* SPDX-License-Identifier: Apache-2.0 */
/* Links to the other workers as the engine sees them: what waits for one that said AGAIN, and what a worker has to be
 * told as soon as it can be reached again. */
#include <stdlib.h>
#include <string.h>

#include "runtime/coll/coll_int.h"

typedef psrti_collpeer_t peer_t;

static void enqueue(psrti_coll_t *coll, peer_t *peer, psrti_collout_t *out)
{
    psrti_list_push(&peer->queue, &out->node);
    coll->unsent++;
}

static void dequeue(psrti_coll_t *coll, psrti_collout_t *out)
{
    psrti_list_remove(&out->node);
    coll->unsent--;
}

/* ---- messages without memory of the caller ------------------------------------------------------- */

static psrti_collctl_t *ctl_new(const psrt_hdr_t *hdr, const void *data, uint64_t len)
{
    psrti_collctl_t *ctl = malloc(sizeof *ctl + len);
    if (!ctl) return NULL;
    *ctl = (psrti_collctl_t){ .hdr = *hdr };
    psrti_list_init(&ctl->out.node);
    if (len) memcpy(ctl->data, data, len);
    return ctl;
}

static psrt_status_t send_ctl(psrti_coll_t *coll, uint32_t rank, psrt_hdr_t *hdr, const void *data)
{
    return coll->env.send(coll->env.arg, rank, hdr, data, hdr->length, NULL);
}

/* Nothing if the link is down: whoever needs to know of that hears of the loss. */
void psrti_peer_tell(psrti_coll_t *coll, uint32_t rank, psrt_hdr_t *hdr, const void *data,
                     uint64_t len)
{
    peer_t *peer = &coll->peers[rank];
    if (!peer->up) return;
    hdr->type = PSRTI_T_COLL;
    hdr->length = len;
    if (psrti_list_empty(&peer->queue) && send_ctl(coll, rank, hdr, data) != PSRT_ERR_AGAIN) return;
    psrti_collctl_t *ctl = ctl_new(hdr, data, len);
    if (ctl)
        enqueue(coll, peer, &ctl->out); /* else it is lost, and found by the time that passes */
}

/* Tells it when there is a link again. */
void psrti_peer_owe(psrti_coll_t *coll, uint32_t rank, uint64_t incarnation, psrt_hdr_t *hdr,
                    const void *data, uint64_t len)
{
    psrti_colldebt_t *debt = malloc(sizeof *debt);
    hdr->type = PSRTI_T_COLL;
    hdr->length = len;
    psrti_collctl_t *ctl = ctl_new(hdr, data, len);
    if (!debt || !ctl) {
        free(debt);
        free(ctl);
        return;
    }
    *debt = (psrti_colldebt_t){ .incarnation = incarnation, .ctl = ctl };
    psrti_list_push(&coll->peers[rank].debts, &debt->node);
    psrti_peer_want(coll, rank);
}

static void pay(psrti_coll_t *coll, uint32_t rank)
{
    peer_t *peer = &coll->peers[rank];
    for (psrti_list_t *n; (n = psrti_list_pop(&peer->debts)) != NULL;) {
        psrti_colldebt_t *debt = PSRTI_LIST_ENTRY(n, psrti_colldebt_t, node);
        peer->wants--;
        if (peer->up && debt->incarnation == peer->incarnation)
            psrti_peer_tell(coll, rank, &debt->ctl->hdr, debt->ctl->data, debt->ctl->hdr.length);
        free(debt->ctl);
        free(debt);
    }
}

void psrti_peer_forgive(psrti_coll_t *coll, uint32_t rank)
{
    int up = coll->peers[rank].up;
    coll->peers[rank].up = 0;
    pay(coll, rank);
    coll->peers[rank].up = up;
}

void psrti_peer_want(psrti_coll_t *coll, uint32_t rank)
{
    peer_t *peer = &coll->peers[rank];
    if (peer->wants++ == 0 && !peer->up) coll->env.connect(coll->env.arg, rank);
}

/* ---- cells -------------------------------------------------------------------------------------- */

/* Sends it, or queues it behind what waits for the link. */
void psrti_peer_send_cell(psrti_coll_t *coll, uint32_t rank, psrti_collcell_t *cell)
{
    peer_t *peer = &coll->peers[rank];
    if (psrti_list_empty(&peer->queue) && psrti_cell_send(cell, rank) != PSRT_ERR_AGAIN) return;
    cell->out.is_cell = 1;
    cell->state = PSRTI_CELL_QUEUED;
    enqueue(coll, peer, &cell->out);
}

void psrti_peer_unqueue(psrti_coll_t *coll, psrti_collcell_t *cell) { dequeue(coll, &cell->out); }

/* ---- links -------------------------------------------------------------------------------------- */

static psrt_status_t send_out(psrti_coll_t *coll, uint32_t rank, psrti_collout_t *out)
{
    if (out->is_cell) return psrti_cell_send(PSRTI_CONTAINER_OF(out, psrti_collcell_t, out), rank);
    psrti_collctl_t *ctl = PSRTI_CONTAINER_OF(out, psrti_collctl_t, out);
    return send_ctl(coll, rank, &ctl->hdr, ctl->data);
}

void psrti_coll_link_writable(psrti_coll_t *coll, uint32_t rank)
{
    peer_t *peer = &coll->peers[rank];
    while (!psrti_list_empty(&peer->queue)) {
        psrti_collout_t *out = PSRTI_LIST_ENTRY(peer->queue.next, psrti_collout_t, node);
        /* Taken off first: a cell that is sent may be over, and used again, before send returns. */
        psrti_list_t *next = out->node.next;
        psrti_list_remove(&out->node);
        if (send_out(coll, rank, out) == PSRT_ERR_AGAIN) {
            psrti_list_insert_before(next, &out->node);
            return;
        }
        coll->unsent--;
        if (!out->is_cell) free(PSRTI_CONTAINER_OF(out, psrti_collctl_t, out));
    }
    psrti_coll_drain(coll);
}

void psrti_coll_link_up(psrti_coll_t *coll, uint32_t rank, uint64_t incarnation)
{
    peer_t *peer = &coll->peers[rank];
    if (peer->up) psrti_coll_link_lost(coll, rank, PSRT_ERR_PEER_LOST, "replaced by a new one");
    peer->up = 1;
    peer->incarnation = incarnation;
    pay(coll, rank);
    psrti_meet_send_opens(coll, rank);
}

/* Messages that wait are dropped, but for news of failures, which are owed from now on; cells belong to runs, and
 * those are ended by their communicators. */
static void clear_queue(psrti_coll_t *coll, uint32_t rank)
{
    peer_t *peer = &coll->peers[rank];
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &peer->queue)
    {
        psrti_collout_t *out = PSRTI_LIST_ENTRY(it, psrti_collout_t, node);
        if (out->is_cell) continue;
        psrti_collctl_t *ctl = PSRTI_CONTAINER_OF(out, psrti_collctl_t, out);
        dequeue(coll, out);
        if (ctl->hdr.seq_floor == PSRTI_COLL_ABORT && ctl->hdr.table)
            psrti_peer_owe(coll, rank, peer->incarnation, &ctl->hdr, ctl->data, ctl->hdr.length);
        free(ctl);
    }
}

static void clear_opens(psrti_coll_t *coll, uint32_t rank)
{
    peer_t *peer = &coll->peers[rank];
    for (psrti_list_t *n; (n = psrti_list_pop(&peer->opens)) != NULL;)
        free(PSRTI_LIST_ENTRY(n, psrti_collopen_t, node));
    peer->nopens = 0;
}

void psrti_coll_link_lost(psrti_coll_t *coll, uint32_t rank, psrt_status_t status, const char *text)
{
    peer_t *peer = &coll->peers[rank];
    if (!peer->up) return;
    peer->up = 0;
    clear_queue(coll, rank);
    clear_opens(coll, rank);
    PSRTI_LIST_FOREACH_SAFE(it, tmp, &coll->comms)
    {
        psrti_comm_t *comm = PSRTI_LIST_ENTRY(it, psrti_comm_t, node);
        uint32_t member = comm->place[rank];
        if (member != PSRTI_COLL_NOBODY) psrti_comm_link_lost(comm, member, status, text);
    }
    psrti_coll_drain(coll);
}
