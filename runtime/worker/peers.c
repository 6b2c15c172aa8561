/* SPDX-License-Identifier: Apache-2.0 */
/* Links to other workers, for collectives: the lower rank dials, as long as a communicator wants the link. What the
 * loss of one means is for the communicators to judge. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/worker/small.h"
#include "runtime/worker/worker_int.h"

#define BACKOFF_MIN (10 * PSRTI_NS_PER_MS)
#define BACKOFF_MAX PSRTI_NS_PER_S

psrt_status_t psrti_peers_open(psrti_worker_t *w)
{
    w->peers = calloc(w->p.workers, sizeof *w->peers);
    if (!w->peers)
        return psrti_fail(PSRT_ERR_NO_MEMORY, "out of memory for %u workers", w->p.workers);
    w->next_peer_dial = UINT64_MAX;
    return PSRT_OK;
}

static void dial_later(psrti_worker_t *w, psrti_wpeer_t *p)
{
    p->backoff = p->backoff ? PSRTI_MIN(2 * p->backoff, BACKOFF_MAX) : BACKOFF_MIN;
    p->dial_at = psrti_now_ns() + p->backoff;
    w->next_peer_dial = PSRTI_MIN(w->next_peer_dial, p->dial_at);
}

/* The texts between the spaces. */
static uint32_t split(const char *addrs, char out[][PSRT_ADDR_MAX])
{
    uint32_t n = 0;

    while (n < PSRTI_ADDRS_PER_OWNER) {
        size_t len = strcspn(addrs, " ");
        if (len == 0 || len >= PSRT_ADDR_MAX) break;
        memcpy(out[n], addrs, len);
        out[n++][len] = '\0';
        addrs += len;
        if (*addrs == ' ') addrs++;
    }
    return n;
}

/* Without an address the next view may bring one: it has not joined, or its coordinator was restarted. */
static void dial(psrti_worker_t *w, uint32_t rank)
{
    const psrti_view_worker_t *v = &w->view->workers[rank];
    psrti_wpeer_t *p = &w->peers[rank];
    char addr[PSRTI_ADDRS_PER_OWNER][PSRT_ADDR_MAX];
    uint32_t n = split(v->addrs, addr);

    p->dial_at = 0;
    p->incarnation = v->incarnation;
    if (!v->alive || n == 0) return;
    if (psrti_net_connect(w->net, addr, n, PSRTI_TASK(PSRTI_WORKER, rank), 0, &p->link) == PSRT_OK)
        return;
    if (!p->backoff)
        psrti_warn("worker:%u: cannot dial worker:%u: %s", w->p.rank, rank, psrt_last_error());
    dial_later(w, p);
}

static void dial_if_wanted(psrti_worker_t *w, uint32_t rank)
{
    const psrti_wpeer_t *p = &w->peers[rank];

    if (rank > w->p.rank && !p->link && !p->dial_at && w->view && psrti_coll_wants(w->coll, rank))
        dial(w, rank);
}

void psrti_peers_redial(psrti_worker_t *w, uint64_t now)
{
    if (now < w->next_peer_dial) return;
    w->next_peer_dial = UINT64_MAX;
    for (uint32_t rank = 0; rank < w->p.workers; rank++) {
        psrti_wpeer_t *p = &w->peers[rank];
        if (!p->dial_at) continue;
        if (p->dial_at > now) {
            w->next_peer_dial = PSRTI_MIN(w->next_peer_dial, p->dial_at);
            continue;
        }
        p->dial_at = 0;
        dial_if_wanted(w, rank);
    }
}

static void lost(psrti_worker_t *w, uint32_t rank, psrt_status_t status, const char *text)
{
    psrti_wpeer_t *p = &w->peers[rank];
    int was_up = p->up;

    p->link = NULL;
    p->up = 0;
    if (was_up) {
        w->meetings--;
        psrti_coll_link_lost(w->coll, rank, status,
                             text && *text ? text : psrt_status_text(status));
    }
    if (rank > w->p.rank && psrti_coll_wants(w->coll, rank)) dial_later(w, p);
}

static void drop(psrti_worker_t *w, uint32_t rank, const char *why)
{
    psrti_wpeer_t *p = &w->peers[rank];

    p->dial_at = 0;
    if (p->link) psrti_net_drop(w->net, p->link);
    if (p->link) lost(w, rank, PSRT_ERR_PEER_LOST, why);
}

static void is_up(psrti_worker_t *w, uint32_t rank, psrti_link_t *link)
{
    psrti_wpeer_t *p = &w->peers[rank];

    if (p->link != link) { /* accepted, of a newer life */
        drop(w, rank, "it was restarted");
        p->incarnation = link->incarnation;
    }
    p->link = link;
    p->up = 1;
    p->backoff = p->dial_at = 0;
    w->meetings++;
    psrti_coll_link_up(w->coll, rank, p->incarnation);
}

void psrti_peers_on_link(psrti_worker_t *w, psrti_link_t *link, psrti_link_event_t event,
                         psrt_status_t status, const char *text)
{
    uint32_t rank = PSRTI_TASK_RANK(link->task);
    if (rank >= w->p.workers) return;
    psrti_wpeer_t *p = &w->peers[rank];

    switch (event) {
    case PSRTI_LINK_UP: is_up(w, rank, link); break;
    case PSRTI_LINK_WRITABLE:
        if (p->link == link) psrti_coll_link_writable(w->coll, rank);
        break;
    case PSRTI_LINK_LOST:
        if (p->link == link) lost(w, rank, status, text);
        break;
    }
}

psrt_rx_t psrti_peers_on_msg(psrti_worker_t *w, psrti_link_t *link, psrt_msg_t *msg)
{
    uint32_t rank = PSRTI_TASK_RANK(link->task);
    if (rank >= w->p.workers || w->peers[rank].link != link) return PSRT_RX_BAD;
    psrti_smalls_count(w); /* it may be of a call after those */
    return psrti_coll_msg(w->coll, rank, msg);
}

/* A view can be older than the link: it then tells of the life before. Of one that left in order more may be on its
 * way: its own end closes the link. */
static int is_over(const psrti_wpeer_t *p, const psrti_view_worker_t *v)
{
    if (p->incarnation != v->incarnation) return p->incarnation < v->incarnation;
    return !v->alive && !v->finished;
}

/* The engine first, so that it names the death and not the connection. */
void psrti_peers_view(psrti_worker_t *w)
{
    psrti_coll_view(w->coll, w->view);
    for (uint32_t rank = 0; rank < w->view->nworkers && rank < w->p.workers; rank++) {
        const psrti_view_worker_t *v = &w->view->workers[rank];
        const psrti_wpeer_t *p = &w->peers[rank];
        if (p->up && is_over(p, v)) drop(w, rank, v->finished ? "it left the job" : "it died");
        dial_if_wanted(w, rank);
    }
}

void psrti_peers_drop(psrti_worker_t *w)
{
    for (uint32_t rank = 0; rank < w->p.workers; rank++)
        drop(w, rank, "the context was closed");
}

/* ---- the engine's table ------------------------------------------------------------------------ */

static void env_connect(void *arg, uint32_t rank) { dial_if_wanted(arg, rank); }

static psrt_status_t env_send(void *arg, uint32_t rank, psrt_hdr_t *hdr, const void *data,
                              uint64_t len, psrt_tx_t *tx)
{
    psrti_worker_t *w = arg;
    const psrti_wpeer_t *p = &w->peers[rank];
    return p->up ? psrti_net_send(w->net, p->link, hdr, data, len, tx) : PSRT_ERR_AGAIN;
}

static psrt_status_t env_map(void *arg, uint32_t rank, psrt_msg_t *msg, const void **data_p)
{
    (void)rank;
    return psrti_net_map(((psrti_worker_t *)arg)->net, msg, data_p);
}

static psrt_status_t env_verify(void *arg, uint32_t rank, const psrt_msg_t *msg)
{
    (void)rank;
    return psrti_net_verify(((psrti_worker_t *)arg)->net, msg);
}

static void env_release(void *arg, uint32_t rank, psrt_msg_t *msg)
{
    (void)rank;
    psrti_net_release(((psrti_worker_t *)arg)->net, msg);
}

/* The engine knows. */
static void env_drop(void *arg, uint32_t rank)
{
    psrti_worker_t *w = arg;
    psrti_wpeer_t *p = &w->peers[rank];

    if (p->link) psrti_net_drop(w->net, p->link);
    if (p->up) w->meetings--;
    p->link = NULL;
    p->up = 0;
    if (rank > w->p.rank && psrti_coll_wants(w->coll, rank)) dial_later(w, p);
}

static void *env_alloc(void *arg, uint64_t bytes)
{
    void *ptr = NULL;
    return psrti_net_alloc(((psrti_worker_t *)arg)->net, bytes, &ptr) == PSRT_OK ? ptr : NULL;
}

static void env_free(void *arg, void *ptr) { psrti_net_free(((psrti_worker_t *)arg)->net, ptr); }

static void env_note(void *arg, psrti_comm_t *comm, uint32_t member, const void *data, uint64_t len)
{
    psrti_fusion_note(arg, comm, member, data, len);
}

const psrti_coll_env_t psrti_peers_env = { .connect = env_connect,
                                           .send = env_send,
                                           .map = env_map,
                                           .verify = env_verify,
                                           .release = env_release,
                                           .drop = env_drop,
                                           .alloc = env_alloc,
                                           .free = env_free,
                                           .note = env_note };
