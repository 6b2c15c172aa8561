/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/inproc/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "transport/frame.h"

#define EAGER_BYTES 2048u
#define BACKLOG_MAX 512u /* nodes in flight a direction: bounds header-only messages */

typedef struct psrti_inproc_node {
    psrti_list_t queue; /* of the receiver's rx, then held; of the sender's done or spare */
    psrti_list_t out;   /* of the sender's out; eager nodes are in no such list */
    const void *data;   /* the sender's memory, or eager */
    uint64_t len;
    uint64_t id;       /* msg.impl while delivered or held */
    psrt_tx_t *tx;     /* NULL: nobody waits */
    psrt_status_t end; /* what tx will be told */
    int withdrawn;     /* the sender closed: the payload may no longer be read */
    uint8_t wire[PSRTI_FRAME_BYTES];
    uint8_t eager[EAGER_BYTES];
} node_t;

typedef psrti_inproc_iface_t iface_t;
typedef psrti_inproc_side_t side_t;
typedef psrti_inproc_link_t link_t;

static iface_t *iface_of(psrt_iface_t *iface) { return PSRTI_CONTAINER_OF(iface, iface_t, base); }

static side_t *side_of(psrt_ep_t *ep) { return PSRTI_CONTAINER_OF(ep, side_t, base); }

static side_t *peer_of(side_t *side) { return &side->link->side[side == &side->link->side[0]]; }

/* ---- nodes and links --------------------------------------------------------------------------- */

static void free_nodes(psrti_list_t *list)
{
    psrti_list_t *entry;
    while ((entry = psrti_list_pop(list)))
        free(PSRTI_LIST_ENTRY(entry, node_t, queue));
}

static void link_unref(link_t *link)
{
    if (atomic_fetch_sub_explicit(&link->refs, 1, memory_order_acq_rel) != 1) return;
    for (int i = 0; i < 2; i++)
        free_nodes(&link->side[i].spare);
    pthread_cond_destroy(&link->finished);
    pthread_mutex_destroy(&link->lock);
    free(link);
}

static void side_init(side_t *side, link_t *link, iface_t *iface)
{
    side->base.iface = &iface->base;
    side->link = link;
    side->iface = iface;
    side->task = iface->params.task;
    psrti_list_t *lists[] = { &side->ep_link, &side->inbox_link, &side->rx,   &side->held,
                              &side->out,     &side->done,       &side->spare };
    for (size_t i = 0; i < PSRTI_COUNT(lists); i++)
        psrti_list_init(lists[i]);
}

link_t *psrti_inproc_link_new(iface_t *dialler, iface_t *acceptor)
{
    link_t *link = calloc(1, sizeof *link);
    if (!link) return NULL;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&link->finished, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&link->lock, NULL);
    atomic_init(&link->refs, 2);
    side_init(&link->side[0], link, dialler);
    side_init(&link->side[1], link, acceptor);
    link->side[1].incoming = 1;
    return link;
}

/* link.lock keeps the interface alive: it closes its sides first. */
void psrti_inproc_post(side_t *side)
{
    if (side->closed) return;
    iface_t *iface = side->iface;
    pthread_mutex_lock(&iface->lock);
    if (psrti_list_empty(&side->inbox_link)) psrti_list_push(&iface->inbox, &side->inbox_link);
    if (iface->armed) {
        iface->armed = 0;
        iface->signaled = 1;
        uint64_t one = 1;
        if (write(iface->event_fd, &one, sizeof one) < 0)
            psrti_error("inproc task %u: wake failed: %s", iface->params.task, strerror(errno));
    }
    pthread_mutex_unlock(&iface->lock);
}

void psrti_inproc_lose(side_t *side, psrt_status_t status)
{
    if (side->lost != PSRT_OK) return;
    side->lost = status;
    psrti_inproc_post(side);
}

static int has_room(const side_t *side, uint64_t len)
{
    if (side->backlog == 0) return 1;
    return side->backlog < BACKLOG_MAX && len <= side->iface->params.window &&
           side->inflight <= side->iface->params.window - len;
}

/* The receiver no longer uses the node, which is in no queue of its side. From here to the end of the
 * section link.lock is held by the caller. */
static void finish(side_t *receiver, node_t *node, psrt_status_t status)
{
    side_t *sender = peer_of(receiver);
    sender->backlog--;
    sender->inflight -= node->len;
    psrti_list_remove(&node->out);
    if (node->tx) {
        node->end = status;
        psrti_list_push(&sender->done, &node->queue);
        psrti_inproc_post(sender);
    } else {
        psrti_list_push(&sender->spare, &node->queue);
    }
    if (sender->want_write && sender->backlog <= BACKLOG_MAX / 2 &&
        sender->inflight <= sender->iface->params.window / 2) {
        sender->want_write = 0;
        sender->write_due = 1;
        psrti_inproc_post(sender);
    }
    if (sender->closed) pthread_cond_broadcast(&receiver->link->finished);
}

/* Gives back all that this side received. Called by its owner. */
static void give_back(side_t *side, int held_too)
{
    psrti_list_t *entry;
    while ((entry = psrti_list_pop(&side->rx)))
        finish(side, PSRTI_LIST_ENTRY(entry, node_t, queue), PSRT_ERR_PEER_LOST);
    while (held_too && (entry = psrti_list_pop(&side->held))) {
        node_t *node = PSRTI_LIST_ENTRY(entry, node_t, queue);
        psrti_map_remove(&side->iface->received, node->id);
        finish(side, node, PSRT_ERR_PEER_LOST);
    }
}

void psrti_inproc_give_back(side_t *side)
{
    pthread_mutex_lock(&side->link->lock);
    give_back(side, 1);
    pthread_mutex_unlock(&side->link->lock);
}

/* ---- closing ----------------------------------------------------------------------------------- */

/* Takes what the peer has not seen out of its queue, from the first referenced payload on: leaving
 * out a message in the middle would break the order. */
static void withdraw_unseen(side_t *side)
{
    side_t *peer = peer_of(side);
    int cut = 0;
    PSRTI_LIST_FOREACH_SAFE(it, next, &peer->rx)
    {
        node_t *node = PSRTI_LIST_ENTRY(it, node_t, queue);
        cut |= node->data != node->eager;
        if (!cut) continue;
        psrti_list_remove(&node->queue);
        finish(peer, node, PSRT_ERR_CANCELED);
    }
}

static uint64_t close_deadline(const iface_t *iface)
{
    return iface->close_until ? iface->close_until : psrti_now_ns() + PSRTI_INPROC_CLOSE_WAIT_NS;
}

/* Is a payload being read by a thread that will come to the end of it? One that waits here itself might
 * wait for us. */
static int reader_goes_on(const side_t *peer)
{
    const node_t *node = peer->reading;
    return node && node->data != node->eager && !atomic_load(&peer->iface->fencing);
}

/* Waits until the peer no longer reads what is in `out`: without a bound if it is inside on_msg, which
 * returns, and else, since it may hold a payload for ever, for a while. It asks verify then. */
static void fence(side_t *side)
{
    side_t *peer = peer_of(side);
    uint64_t until = close_deadline(side->iface);
    atomic_store(&side->iface->fencing, 1);
    while (!psrti_list_empty(&side->out) && !pthread_equal(peer->reader, pthread_self())) {
        uint64_t now = psrti_now_ns();
        if (now >= until && !reader_goes_on(peer)) {
            psrti_error(
                "inproc task %u: task %u still holds a payload of the endpoint being closed",
                side->task, peer->task);
            break;
        }
        uint64_t next = PSRTI_MAX(until, now + PSRTI_INPROC_CLOSE_WAIT_NS / 10);
        struct timespec at = { (time_t)(next / PSRTI_NS_PER_S), (long)(next % PSRTI_NS_PER_S) };
        pthread_cond_timedwait(&side->link->finished, &side->link->lock, &at);
    }
    atomic_store(&side->iface->fencing, 0);
}

/* Takes the node's transmission; the chain runs through priv[0]. */
static psrt_tx_t *take_tx(node_t *node, psrt_tx_t *chain)
{
    psrt_tx_t *tx = node->tx;
    if (!tx) return chain;
    node->tx = NULL;
    tx->priv[0] = (uintptr_t)chain;
    return tx;
}

/* Takes all transmissions that are still pending. */
static psrt_tx_t *take_pending(side_t *side)
{
    psrt_tx_t *chain = NULL;
    psrti_list_t *entry;
    while ((entry = psrti_list_pop(&side->done))) {
        node_t *node = PSRTI_LIST_ENTRY(entry, node_t, queue);
        chain = take_tx(node, chain);
        psrti_list_push(&side->spare, &node->queue);
    }
    while ((entry = psrti_list_pop(&side->out))) {
        node_t *node = PSRTI_LIST_ENTRY(entry, node_t, out);
        chain = take_tx(node, chain);
        node->withdrawn = 1;
    }
    return chain;
}

/* Nobody is told of the side any more: it is out of the inbox, and stays out. Another thread may have
 * posted it since it was taken out of there. link.lock is held. */
static void mark_closed(side_t *side)
{
    side->closed = 1;
    pthread_mutex_lock(&side->iface->lock);
    psrti_list_remove(&side->inbox_link);
    pthread_mutex_unlock(&side->iface->lock);
}

void psrti_inproc_ep_close(psrt_ep_t *ep)
{
    side_t *side = side_of(ep);
    link_t *link = side->link;
    psrti_list_remove(&side->ep_link);

    pthread_mutex_lock(&link->lock);
    mark_closed(side);
    side->want_write = 0;
    give_back(side, 1);
    if (side->reading) { /* we are inside its on_msg; the caller promises not to read on */
        finish(side, side->reading, PSRT_ERR_PEER_LOST);
        side->reading = NULL;
    }
    withdraw_unseen(side);
    psrti_inproc_lose(peer_of(side), PSRT_ERR_PEER_LOST);
    fence(side);
    psrt_tx_t *chain = take_pending(side);
    pthread_mutex_unlock(&link->lock);

    while (chain) {
        psrt_tx_t *tx = chain;
        chain = (psrt_tx_t *)(uintptr_t)tx->priv[0];
        tx->done(tx, PSRT_ERR_CANCELED);
    }
    link_unref(link);
}

void psrti_inproc_drop_incoming(side_t *side, psrt_status_t status)
{
    link_t *link = side->link;
    pthread_mutex_lock(&link->lock);
    mark_closed(side);
    give_back(side, 0);
    psrti_inproc_lose(peer_of(side), status);
    pthread_mutex_unlock(&link->lock);
    link_unref(link);
}

/* ---- receiving --------------------------------------------------------------------------------- */

/* ERR_PROTOCOL closes the endpoint: `what` is one readable reason. */
static psrt_status_t check_frame(const iface_t *iface, const node_t *node, psrt_hdr_t *hdr,
                                 const char **what)
{
    uint64_t bytes;
    if (psrti_frame_decode(node->wire, hdr, what) != PSRT_OK) return PSRT_ERR_PROTOCOL;
    if (psrti_frame_payload(hdr, &bytes) != PSRT_OK || bytes != node->len)
        *what = "payload length differs from the header's";
    else if (bytes > iface->params.max_message)
        *what = "message larger than the limit";
    return *what ? PSRT_ERR_PROTOCOL : PSRT_OK;
}

/* The peer misbehaved: both sides end. link.lock is held. */
static void side_fail(side_t *side, psrt_status_t status, const char *what)
{
    psrti_warn("inproc task %u: closing the endpoint of task %u: %s", side->task,
               peer_of(side)->task, what);
    give_back(side, 0);
    psrti_inproc_lose(side, status);
    psrti_inproc_lose(peer_of(side), PSRT_ERR_PEER_LOST);
}

/* Delivers the oldest message. link.lock is held and released around the callback. */
static void deliver(side_t *side)
{
    iface_t *iface = side->iface;
    node_t *node = PSRTI_LIST_ENTRY(psrti_list_pop(&side->rx), node_t, queue);
    psrt_msg_t msg = { .data = node->len ? node->data : NULL, .len = node->len, .ep = &side->base };
    const char *what = NULL;
    psrt_status_t status = check_frame(iface, node, &msg.hdr, &what);
    node->id = ++iface->next_id;
    if (status == PSRT_OK && psrti_map_put(&iface->received, node->id, node) != PSRT_OK) {
        status = PSRT_ERR_NO_MEMORY;
        what = "out of memory";
    }
    if (status != PSRT_OK) {
        finish(side, node, status);
        side_fail(side, status, what);
        return;
    }
    uint64_t id = node->id;
    msg.impl = (void *)(uintptr_t)id;
    side->reading = node;
    side->reader = pthread_self();
    pthread_mutex_unlock(&side->link->lock);
    psrt_rx_t verdict = iface->params.on_msg(iface->base.arg, &msg);
    pthread_mutex_lock(&side->link->lock);

    int ended_inside = side->reading != node; /* by close, or by release */
    side->reading = NULL;
    if (ended_inside || verdict != PSRT_RX_HOLD) psrti_map_remove(&iface->received, id);
    if (ended_inside) return;
    if (verdict == PSRT_RX_HOLD) {
        psrti_list_push(&side->held, &node->queue);
        return;
    }
    finish(side, node, PSRT_OK);
    if (verdict == PSRT_RX_BAD) side_fail(side, PSRT_ERR_PROTOCOL, "refused by its receiver");
}

static void complete(side_t *side)
{
    node_t *node = PSRTI_LIST_ENTRY(psrti_list_pop(&side->done), node_t, queue);
    psrt_tx_t *tx = node->tx;
    psrt_status_t status = node->end;
    psrti_list_push(&side->spare, &node->queue);
    pthread_mutex_unlock(&side->link->lock);
    tx->done(tx, status);
    pthread_mutex_lock(&side->link->lock);
}

static void tell(side_t *side, psrt_ep_event_t event, psrt_status_t status)
{
    iface_t *iface = side->iface;
    pthread_mutex_unlock(&side->link->lock);
    iface->params.on_ep(iface->base.arg, &side->base, event, status);
    pthread_mutex_lock(&side->link->lock);
}

/* Handles one event of the side; 0 if there is none. link.lock is held. */
static int step(side_t *side)
{
    if (side->closed) return 0;
    if (side->up_due) {
        side->up_due = 0;
        side->up = 1;
        tell(side, PSRT_EP_UP, PSRT_OK);
    } else if (!psrti_list_empty(&side->done)) {
        complete(side);
    } else if (side->lost_told) {
        return 0;
    } else if (!psrti_list_empty(&side->rx)) {
        deliver(side);
    } else if (side->lost != PSRT_OK) {
        side->lost_told = 1;
        tell(side, PSRT_EP_LOST, side->lost);
    } else if (side->write_due) {
        side->write_due = 0;
        tell(side, PSRT_EP_WRITABLE, PSRT_OK);
    } else {
        return 0;
    }
    return 1;
}

static void accept_incoming(side_t *side)
{
    side->incoming = 0;
    side->up_due = 1;
    psrti_list_push(&side->iface->eps, &side->ep_link);
    peer_of(side)->up_due = 1;
    psrti_inproc_post(peer_of(side));
}

unsigned psrti_inproc_run(side_t *side, unsigned budget)
{
    link_t *link = side->link;
    unsigned events = 0;
    atomic_fetch_add_explicit(&link->refs, 1, memory_order_relaxed);
    pthread_mutex_lock(&link->lock);
    if (side->incoming && side->lost != PSRT_OK) { /* the dialler gave up */
        pthread_mutex_unlock(&link->lock);
        psrti_inproc_drop_incoming(side, PSRT_OK);
        link_unref(link);
        return 0;
    }
    if (side->incoming) accept_incoming(side);
    while (events < budget && step(side))
        events++;
    if (events == budget) psrti_inproc_post(side);
    pthread_mutex_unlock(&link->lock);
    link_unref(link);
    return events;
}

void psrti_inproc_release(psrt_iface_t *base, psrt_msg_t *msg)
{
    node_t *node = psrti_map_remove(&iface_of(base)->received, (uintptr_t)msg->impl);
    if (!node) return; /* its endpoint was closed */
    side_t *side = side_of(msg->ep);
    pthread_mutex_lock(&side->link->lock);
    if (side->reading == node) side->reading = NULL; /* before its on_msg returned */
    psrti_list_remove(&node->queue);
    finish(side, node, PSRT_OK);
    pthread_mutex_unlock(&side->link->lock);
}

psrt_status_t psrti_inproc_verify(psrt_iface_t *base, const psrt_msg_t *msg)
{
    node_t *node = psrti_map_get(&iface_of(base)->received, (uintptr_t)msg->impl);
    if (!node) return PSRT_ERR_STALE;
    link_t *link = side_of(msg->ep)->link;
    pthread_mutex_lock(&link->lock);
    psrt_status_t status = node->withdrawn ? PSRT_ERR_STALE : PSRT_OK;
    pthread_mutex_unlock(&link->lock);
    return status;
}

/* ---- sending ----------------------------------------------------------------------------------- */

static node_t *take_node(side_t *side)
{
    psrti_list_t *entry = psrti_list_pop(&side->spare);
    if (entry) return PSRTI_LIST_ENTRY(entry, node_t, queue);
    node_t *node = malloc(sizeof *node);
    if (!node) return NULL;
    psrti_list_init(&node->queue);
    psrti_list_init(&node->out);
    return node;
}

static void enqueue(side_t *side, node_t *node, const psrt_hdr_t *hdr, const void *data,
                    uint64_t len, psrt_tx_t *tx)
{
    psrti_frame_encode(hdr, node->wire);
    node->len = len;
    node->withdrawn = 0;
    node->tx = tx;
    node->data = tx ? data : node->eager;
    if (!tx && len) memcpy(node->eager, data, len);
    if (tx) psrti_list_push(&side->out, &node->out);
    side->backlog++;
    side->inflight += len;
    psrti_list_push(&peer_of(side)->rx, &node->queue);
    psrti_inproc_post(peer_of(side));
}

static psrt_status_t send_locked(side_t *side, const psrt_hdr_t *hdr, const void *data,
                                 uint64_t len, psrt_tx_t *tx)
{
    if (side->lost != PSRT_OK) return side->lost;
    if (!side->up || !has_room(side, len)) {
        if (side->up)
            side->want_write = 1;
        else
            side->write_due = 1; /* follows UP */
        return PSRT_ERR_AGAIN;
    }
    node_t *node = take_node(side);
    if (!node) {
        side_fail(side, PSRT_ERR_NO_MEMORY, "out of memory");
        return PSRT_ERR_NO_MEMORY;
    }
    enqueue(side, node, hdr, data, len, len > EAGER_BYTES ? tx : NULL);
    return len > EAGER_BYTES ? PSRT_IN_PROGRESS : PSRT_OK;
}

/* SEND_MORE is not used: the peer is woken by a system call only when it sleeps, once. */
psrt_status_t psrti_inproc_send(psrt_ep_t *ep, const psrt_hdr_t *hdr, const void *data,
                                uint64_t len, uint32_t flags, psrt_tx_t *tx)
{
    (void)flags;
    side_t *side = side_of(ep);
    if (len > EAGER_BYTES && !tx) return PSRT_ERR_INVALID;
    pthread_mutex_lock(&side->link->lock);
    psrt_status_t status = send_locked(side, hdr, data, len, tx);
    pthread_mutex_unlock(&side->link->lock);
    return status;
}
