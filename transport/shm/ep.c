/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Endpoints: sending, losing, closing.
 *
 * Fencing. ep_close (and a loss) stores `closed` in the own lane before it returns. A receiver drops
 * descriptors that it finds after that. Of those that it may be reading, copies in the arena, which other
 * endpoints would overwrite, are kept until the peer acknowledged (closed its side) or is dead: the
 * endpoint lingers. Memory of mem_alloc belongs to the user, who may write it again at once: it is taken
 * away from the reader, who goes on reading what was sent (fence.c). Of a VALUE it is enough that
 * `verify`, called after the payload was copied, says STALE if `closed` was set by then. What a killed
 * peer sent before it died stays readable, because the segments live as long as they are mapped here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fence.h"
#include "base/log.h"
#include "transport/shm/shm.h"

/* ---- life ------------------------------------------------------------------------------------- */

shm_ep_t *psrti_shm_ep_new(shm_iface_t *iface, shm_state_t state)
{
    if (iface->ep_count == iface->ep_cap) {
        uint32_t cap = PSRTI_MAX(8u, 2 * iface->ep_cap);
        shm_ep_t **eps = realloc(iface->eps, cap * sizeof(*eps));
        if (!eps) return NULL;
        iface->eps = eps;
        iface->ep_cap = cap;
    }
    shm_ep_t *ep = calloc(1, sizeof *ep);
    if (!ep) return NULL;
    ep->super.iface = &iface->super;
    ep->state = state;
    ep->sock = ep->pidfd = -1;
    ep->free_count = SHM_SLOTS;
    for (unsigned i = 0; i < SHM_SLOTS; i++)
        ep->free_slots[i] = (uint8_t)i;
    psrti_list_init(&ep->holds);
    iface->eps[iface->ep_count++] = ep;
    iface->connecting++;
    return ep;
}

void psrti_shm_ep_up(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_iface_of(ep);
    iface->connecting--;
    ep->state = SHM_UP;
    psrti_debug("shm: task %u: connected to task %u", iface->params.task, ep->peer_task);
    iface->params.on_ep(iface->super.arg, &ep->super, PSRT_EP_UP, PSRT_OK);
}

static void unwatch(shm_ep_t *ep)
{
    int epoll_fd = shm_iface_of(ep)->epoll_fd;
    if (ep->sock >= 0) epoll_ctl(epoll_fd, EPOLL_CTL_DEL, ep->sock, NULL);
    if (ep->pidfd >= 0) epoll_ctl(epoll_fd, EPOLL_CTL_DEL, ep->pidfd, NULL);
}

static void unmap(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_iface_of(ep);
    while (!psrti_list_empty(&ep->holds))
        psrti_shm_hold_put(iface, PSRTI_LIST_ENTRY(ep->holds.next, shm_hold_t, node));
    size_t pos = 0;
    uint64_t id;
    for (shm_rseg_t *rseg; (rseg = psrti_map_next(&ep->rsegs, &pos, &id));)
        psrti_shm_rseg_unref(rseg);
    psrti_map_clear(&ep->rsegs);
    if (ep->own) munmap(ep->own, sizeof *ep->own);
    if (ep->peer) munmap(ep->peer, sizeof *ep->peer);
    ep->own = ep->peer = NULL;
}

static void close_fds(shm_ep_t *ep)
{
    unwatch(ep);
    if (ep->sock >= 0) {
        shutdown(ep->sock, SHUT_RDWR); /* a forked child may hold the socket open */
        close(ep->sock);
    }
    if (ep->pidfd >= 0) close(ep->pidfd);
    ep->sock = ep->pidfd = -1;
}

void psrti_shm_ep_free(shm_ep_t *ep)
{
    unmap(ep);
    close_fds(ep);
    free(ep->passed);
    free(ep);
}

/* ---- ends of descriptors ---------------------------------------------------------------------- */

static void tx_free(shm_ep_t *ep, uint8_t slot)
{
    shm_tx_t *t = &ep->tx[slot];
    if (t->kind == SHM_SEG_ARENA) psrti_shm_arena_give(t);
    if (t->kind == SHM_SEG_TEMP) psrti_shm_seg_free(shm_iface_of(ep), t->seg);
    ep->in_flight -= t->len;
    *t = (shm_tx_t){ 0 };
    ep->free_slots[ep->free_count++] = slot;
}

/* The peer is done with it. False: nothing was sent in this slot. */
bool psrti_shm_tx_retired(shm_ep_t *ep, uint8_t slot)
{
    if (!ep->tx[slot].seg) return false;
    psrt_tx_t *tx = ep->tx[slot].tx;
    tx_free(ep, slot);
    if (tx) tx->done(tx, PSRT_OK);
    return true;
}

/* Ends what is in flight; copies in the arena stay while the peer may read them. */
static void tx_cancel_all(shm_ep_t *ep, psrt_status_t status)
{
    bool gone = ep->gone || !ep->peer || atomic_load(&ep->peer->closed);
    bool dead = !ep->peer || psrti_shm_peer_is_dead(ep);
    for (unsigned slot = 0; slot < SHM_SLOTS; slot++) {
        shm_tx_t *t = &ep->tx[slot];
        if (!t->seg || (t->kind == SHM_SEG_ARENA && !gone)) continue;
        psrt_tx_t *tx = t->tx;
        if (tx && t->folded && !dead && psrti_shm_is_read(ep, (uint8_t)slot))
            psrti_shm_seg_privatize(t->seg, t->off, t->len);
        tx_free(ep, (uint8_t)slot);
        if (tx) tx->done(tx, status);
    }
}

static bool arena_held(const shm_ep_t *ep) { return ep->free_count < SHM_SLOTS; }

/* ---- losing and closing ----------------------------------------------------------------------- */

static void fence_peer(shm_ep_t *ep)
{
    if (!ep->own) return;
    atomic_store_explicit(&ep->own->closed, 1, memory_order_seq_cst);
    psrti_full_fence(); /* before any later write to what was sent */
}

static void log_loss(const shm_ep_t *ep, psrt_status_t status, const char *why)
{
    const shm_iface_t *iface = shm_iface_of(ep);
    /* A peer that goes, or that gives up a connection before it stood, has its reasons. */
    bool ordinary =
        status == PSRT_ERR_PEER_LOST ||
        (status == PSRT_ERR_REFUSED && (ep->state == SHM_HELLO || ep->state == SHM_READY));
    char peer[64];
    if (ep->peer)
        snprintf(peer, sizeof peer, "task %u (process %d)", ep->peer_task, (int)ep->peer_pid);
    else if (ep->name[0])
        snprintf(peer, sizeof peer, "at socket %s", ep->name);
    else
        snprintf(peer, sizeof peer, "process %d", (int)ep->peer_pid);
    if (strncmp(why, "shm: ", 5) == 0) why += 5; /* text of psrti_fail */
    psrti_log(ordinary ? PSRT_LOG_INFO : PSRT_LOG_WARN, "shm: task %u: peer %s: %s",
              iface->params.task, peer, why);
}

void psrti_shm_ep_lose(shm_ep_t *ep, psrt_status_t status, const char *why)
{
    shm_iface_t *iface = shm_iface_of(ep);
    bool unknown = ep->state == SHM_HELLO || ep->state == SHM_READY;
    if (ep->state > SHM_UP) return;
    if (ep->state < SHM_UP) iface->connecting--;
    log_loss(ep, status, why ? why : psrt_last_error());
    fence_peer(ep);
    unwatch(ep);
    if (ep->sock >= 0) shutdown(ep->sock, unknown ? SHUT_RDWR : SHUT_WR);
    ep->state = unknown ? SHM_DEAD : SHM_LOST;
    iface->dead += unknown;
    if (unknown) return;
    tx_cancel_all(ep, status);
    if (ep->state != SHM_LOST) return; /* closed in a callback */
    iface->params.on_ep(iface->super.arg, &ep->super, PSRT_EP_LOST, status);
}

void psrti_shm_ep_close(psrt_ep_t *ep_)
{
    shm_ep_t *ep = (shm_ep_t *)ep_;
    shm_iface_t *iface = shm_iface_of(ep);
    bool lost = ep->state == SHM_LOST;
    if (ep->state > SHM_LOST) return;
    if (ep->state < SHM_UP) iface->connecting--;
    fence_peer(ep);
    ep->state = SHM_LINGER;
    tx_cancel_all(ep, PSRT_ERR_CANCELED);
    unmap(ep);
    if (arena_held(ep) && !ep->gone && ep->sock >= 0 && (!lost || psrti_shm_watch(ep) == PSRT_OK)) {
        shutdown(ep->sock, SHUT_WR);
        return;
    }
    psrti_shm_ep_linger_end(ep);
    if (!iface->in_progress) psrti_shm_reap(iface);
}

/* The peer closed or is dead, or the interface closes. */
void psrti_shm_ep_linger_end(shm_ep_t *ep)
{
    for (unsigned slot = 0; slot < SHM_SLOTS; slot++)
        if (ep->tx[slot].seg) tx_free(ep, (uint8_t)slot);
    close_fds(ep);
    ep->state = SHM_DEAD;
    shm_iface_of(ep)->dead++;
}

/* ---- sending ---------------------------------------------------------------------------------- */

static bool has_room(shm_ep_t *ep, uint64_t len, bool in_place)
{
    if (len <= SHM_EAGER) return psrti_shm_lane_room(ep, SHM_ENTRY_HEAD + (uint32_t)len);
    shm_iface_t *iface = shm_iface_of(ep);
    if (ep->free_count == 0 || ep->sock_full) return false;
    if (ep->in_flight > 0 && ep->in_flight + len > iface->params.window) return false;
    if (!psrti_shm_lane_room(ep, SHM_ENTRY_HEAD + sizeof(shm_desc_t))) return false;
    return in_place || psrti_shm_arena_too_small(iface, len) || psrti_shm_arena_fits(iface, len);
}

static psrt_status_t again(shm_ep_t *ep, uint64_t len, bool in_place)
{
    ep->blocked = true;
    ep->blocked_len = len;
    ep->blocked_in_place = in_place;
    return PSRT_ERR_AGAIN;
}

bool psrti_shm_ep_writable(shm_ep_t *ep)
{
    return ep->blocked && has_room(ep, ep->blocked_len, ep->blocked_in_place);
}

static void send_inline(shm_ep_t *ep, const psrt_hdr_t *hdr, const void *data, uint32_t len)
{
    uint32_t bytes = SHM_ENTRY_HEAD + len;
    uint8_t *at = psrti_shm_lane_begin(ep, bytes);
    psrti_frame_body_encode(hdr, at + 8);
    if (len > 0) memcpy(at + SHM_ENTRY_HEAD, data, len);
    psrti_shm_lane_commit(ep, bytes, SHM_INLINE, 0, len);
}

/* Finds or makes shared memory that holds the payload, known to the peer, and fills *t. */
static psrt_status_t place(shm_ep_t *ep, shm_seg_t *seg, const void *data, uint64_t len,
                           shm_tx_t *t, uint64_t *off_p)
{
    shm_iface_t *iface = shm_iface_of(ep);
    psrt_status_t status;
    if (seg) {
        *t = (shm_tx_t){ .seg = seg, .kind = seg->kind, .len = len };
        *off_p = (uint64_t)((const uint8_t *)data - seg->base);
        return psrti_shm_pass_seg(ep, seg);
    }
    if (psrti_shm_arena_too_small(iface, len)) {
        status = psrti_shm_seg_temp(iface, len, &seg);
        if (status != PSRT_OK) return status;
        status = psrti_shm_pass_seg(ep, seg);
        if (status != PSRT_OK) {
            psrti_shm_seg_free(iface, seg);
            return status;
        }
        *t = (shm_tx_t){ .seg = seg, .kind = seg->kind, .len = len };
        *off_p = 0;
    } else {
        status = psrti_shm_arena_create(iface);
        if (status == PSRT_OK) status = psrti_shm_pass_seg(ep, iface->arena);
        *t = (shm_tx_t){ .len = len };
        if (status == PSRT_OK) status = psrti_shm_arena_take(iface, len, t, off_p);
        if (status != PSRT_OK) return status;
    }
    psrti_stage_copy(&iface->stage, t->seg->base + *off_p, data, len);
    return PSRT_OK;
}

static psrt_status_t send_desc(shm_ep_t *ep, const psrt_hdr_t *hdr, const void *data, uint64_t len,
                               psrt_tx_t *tx)
{
    shm_seg_t *seg = psrti_shm_seg_find(shm_iface_of(ep), data, len);
    if (seg && psrti_shm_seg_is_private(seg, (uint64_t)((const uint8_t *)data - seg->base), len))
        seg = NULL; /* peers cannot see it any more */
    if (!has_room(ep, len, seg != NULL)) return again(ep, len, seg != NULL);
    shm_tx_t t;
    shm_desc_t desc = { .len = len };
    psrt_status_t status = place(ep, seg, data, len, &t, &desc.off);
    if (status == PSRT_ERR_AGAIN) return again(ep, len, seg != NULL);
    if (status != PSRT_OK) return ep->failed = status; /* a message is missing: LOST follows */

    uint8_t slot = ep->free_slots[--ep->free_count];
    t.tx = seg ? tx : NULL;
    t.folded = hdr->type != PSRTI_T_VALUE;
    t.off = desc.off;
    ep->tx[slot] = t;
    ep->in_flight += len;
    desc.seg = t.seg->id;
    uint32_t bytes = SHM_ENTRY_HEAD + sizeof desc;
    uint8_t *at = psrti_shm_lane_begin(ep, bytes);
    psrti_frame_body_encode(hdr, at + 8);
    memcpy(at + SHM_ENTRY_HEAD, &desc, sizeof desc);
    psrti_shm_lane_commit(ep, bytes, SHM_DESC, slot, 0);
    return seg ? PSRT_IN_PROGRESS : PSRT_OK;
}

psrt_status_t psrti_shm_send(psrt_ep_t *ep_, const psrt_hdr_t *hdr, const void *data, uint64_t len,
                             uint32_t flags, psrt_tx_t *tx)
{
    shm_ep_t *ep = (shm_ep_t *)ep_;
    (void)flags; /* waking costs nothing while the peer is awake, and is done once */
    if (ep->state < SHM_UP) return again(ep, 0, true);
    if (ep->state != SHM_UP || ep->failed != PSRT_OK) return PSRT_ERR_PEER_LOST;
    uint64_t announced;
    if (psrti_frame_payload(hdr, &announced) != PSRT_OK || announced != len)
        return psrti_fail(PSRT_ERR_INVALID, "shm: the header does not announce %llu bytes",
                          (unsigned long long)len);
    if (len <= SHM_EAGER) {
        if (!has_room(ep, len, true)) return again(ep, len, true);
        send_inline(ep, hdr, data, (uint32_t)len);
        return PSRT_OK;
    }
    if (!tx)
        return psrti_fail(PSRT_ERR_INVALID, "shm: %llu bytes without a tx; at most %u",
                          (unsigned long long)len, SHM_EAGER);
    return send_desc(ep, hdr, data, len, tx);
}
