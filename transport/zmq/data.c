/* SPDX-License-Identifier: Apache-2.0 */
/* Data messages: sending, the life of a payload that libzmq reads in place, receiving, credit. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/log.h"
#include "transport/zmq/zmq.h"

/* ---- payloads in flight ------------------------------------------------------------------------ */

/* In libzmq's I/O thread: the payload went to the kernel, or was dropped with its connection. */
static void tx_free(void *data, void *hint)
{
    (void)data;
    zt_tx_t *rec = hint;
    zt_iface_t *iface = atomic_load_explicit(&rec->iface, memory_order_relaxed);
    int quiet = atomic_load_explicit(&rec->quiet, memory_order_relaxed);
    zt_tx_t *head = atomic_load_explicit(&iface->freed, memory_order_relaxed);
    atomic_store_explicit(&rec->freed, 1, memory_order_release);
    do {
        atomic_store_explicit(&rec->next, head, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak(&iface->freed, &head, rec));
    /* The owner may reuse rec from here on. It looks at `freed` after it set `armed`. */
    if (!quiet && atomic_exchange(&iface->armed, 0)) eventfd_write(iface->wake_fd, 1);
}

/* Whether the peer answers this payload with CREDIT, as on_data does for its part. */
static int earns_credit(const zt_iface_t *iface, uint64_t len)
{
    return ZT_CHARGE + len >= iface->params.window / ZT_CREDITS;
}

static zt_tx_t *tx_new(zt_ep_t *ep, psrt_tx_t *tx, uint64_t len)
{
    zt_iface_t *iface = zt_iface_of(ep);
    zt_tx_t *rec = iface->spare_tx;
    if (rec)
        iface->spare_tx = atomic_load_explicit(&rec->next, memory_order_relaxed);
    else if (!(rec = malloc(sizeof(*rec))))
        return NULL;
    atomic_store_explicit(&rec->iface, iface, memory_order_relaxed);
    atomic_store_explicit(&rec->freed, 0, memory_order_relaxed);
    atomic_store_explicit(&rec->quiet, earns_credit(iface, len), memory_order_relaxed);
    rec->tx = tx;
    rec->ep = ep;
    psrti_list_push(&ep->txs, &rec->link);
    return rec;
}

static psrt_tx_t *tx_answer(zt_tx_t *rec)
{
    psrt_tx_t *tx = rec->tx;
    rec->tx = NULL;
    psrti_list_remove(&rec->link);
    return tx;
}

/* Takes all that were freed, oldest first. */
static zt_tx_t *take_freed(zt_iface_t *iface)
{
    zt_tx_t *newest = atomic_exchange(&iface->freed, NULL), *oldest = NULL;
    while (newest) {
        zt_tx_t *next = atomic_load_explicit(&newest->next, memory_order_relaxed);
        atomic_store_explicit(&newest->next, oldest, memory_order_relaxed);
        oldest = newest;
        newest = next;
    }
    return oldest;
}

void zt_tx_collect(zt_iface_t *iface)
{
    if (!atomic_load_explicit(&iface->freed, memory_order_relaxed)) return;
    zt_tx_t *next;
    for (zt_tx_t *rec = take_freed(iface); rec; rec = next) {
        next = atomic_load_explicit(&rec->next, memory_order_relaxed);
        psrt_status_t status = PSRT_OK;
        if (rec->tx && rec->ep->state == ZT_LOST) status = rec->ep->status;
        psrt_tx_t *tx = tx_answer(rec);
        atomic_store_explicit(&rec->next, iface->spare_tx, memory_order_relaxed);
        iface->spare_tx = rec;
        iface->events++;
        if (tx)
            tx->done(tx, status); /* may close the endpoint, and so answer others of this list */
    }
}

int zt_tx_all_freed(const zt_ep_t *ep)
{
    for (const psrti_list_t *it = ep->txs.next; it != &ep->txs; it = it->next)
        if (!atomic_load_explicit(&PSRTI_LIST_ENTRY(it, zt_tx_t, link)->freed,
                                  memory_order_acquire))
            return 0;
    return 1;
}

/* Only when libzmq reads none of the payloads any more. The records come back through `freed`. */
void zt_tx_cancel(zt_ep_t *ep)
{
    while (!psrti_list_empty(&ep->txs)) {
        psrt_tx_t *tx = tx_answer(PSRTI_LIST_ENTRY(ep->txs.next, zt_tx_t, link));
        tx->done(tx, PSRT_ERR_CANCELED);
    }
}

/* ---- sending ----------------------------------------------------------------------------------- */

static int send_part(zt_sock_t *sock, zmq_msg_t *msg, int more)
{
    int rc;
    while ((rc = zmq_msg_send(msg, sock->socket, ZMQ_DONTWAIT | more)) < 0 && errno == EINTR)
        ;
    if (rc < 0) zmq_msg_close(msg);
    return rc >= 0;
}

static int send_id(zt_ep_t *ep)
{
    zmq_msg_t msg;
    if (!ep->accepted) return 1;
    if (zmq_msg_init_size(&msg, ZT_ID_BYTES) != 0) return 0;
    memcpy(zmq_msg_data(&msg), ep->id, ZT_ID_BYTES);
    return send_part(&zt_iface_of(ep)->router, &msg, ZMQ_SNDMORE);
}

/* The header, and a small payload behind it. With high-water marks off only a connection that is
 * gone makes a send fail; its LOST comes from progress. */
static psrt_status_t send_head(zt_ep_t *ep, zt_sock_t *sock, const psrt_hdr_t *hdr,
                               const void *data, uint64_t len, int more)
{
    zmq_msg_t msg;
    if (zmq_msg_init_size(&msg, PSRTI_FRAME_BYTES + (size_t)len) != 0)
        return psrti_fail(PSRT_ERR_NO_MEMORY, "zmq: %s: no memory for a message", ep->name);
    uint8_t *out = zmq_msg_data(&msg);
    psrti_frame_encode(hdr, out);
    if (len) memcpy(out + PSRTI_FRAME_BYTES, data, (size_t)len);
    if (!send_id(ep)) {
        zmq_msg_close(&msg);
        return PSRT_ERR_PEER_LOST;
    }
    return send_part(sock, &msg, more) ? PSRT_OK : PSRT_ERR_PEER_LOST;
}

static psrt_status_t send_in_place(zt_ep_t *ep, zt_sock_t *sock, const psrt_hdr_t *hdr,
                                   const void *data, uint64_t len, psrt_tx_t *tx)
{
    zt_tx_t *rec = tx_new(ep, tx, len);
    zmq_msg_t msg;
    if (!rec || zmq_msg_init_data(&msg, (void *)(uintptr_t)data, (size_t)len, tx_free, rec) != 0) {
        if (rec) tx_answer(rec), free(rec);
        return psrti_fail(PSRT_ERR_NO_MEMORY, "zmq: %s: no memory for a message", ep->name);
    }
    psrt_status_t status = send_head(ep, sock, hdr, NULL, 0, ZMQ_SNDMORE);
    if (status != PSRT_OK)
        zmq_msg_close(&msg);
    else if (!send_part(sock, &msg, 0))
        status = PSRT_ERR_PEER_LOST;
    if (status != PSRT_OK) tx_answer(rec); /* the record comes back through `freed` */
    return status == PSRT_OK ? PSRT_IN_PROGRESS : status;
}

static psrt_status_t check_send(const zt_ep_t *ep, const psrt_hdr_t *hdr, const void *data,
                                uint64_t len, const psrt_tx_t *tx)
{
    uint64_t announced, limit = zt_iface_of(ep)->params.max_message;
    psrt_status_t status = psrti_frame_payload(hdr, &announced);
    if (status != PSRT_OK) return status;
    if (announced != len || (len && !data))
        return psrti_fail(PSRT_ERR_INVALID,
                          "zmq: %s: payload of %" PRIu64 " bytes, the header announces %" PRIu64,
                          ep->name, len, announced);
    if (len > limit)
        return psrti_fail(PSRT_ERR_LIMIT,
                          "zmq: %s: payload of %" PRIu64 " bytes, PSRT_MAX_MESSAGE is %" PRIu64,
                          ep->name, len, limit);
    if (len > ZT_EAGER && !tx)
        return psrti_fail(PSRT_ERR_INVALID, "zmq: %s: payload of %" PRIu64 " bytes without a tx",
                          ep->name, len);
    return PSRT_OK;
}

/* The message will be missing: nothing may follow it. */
static psrt_status_t give_up(zt_ep_t *ep, psrt_status_t status)
{
    if (zt_may_log(zt_iface_of(ep))) psrti_warn("%s; closed", psrt_last_error());
    zt_ep_lose(ep, status);
    return status;
}

/* May exceed the window by one message, so that one larger than the window goes through, and so that
 * whoever waits has a window out: enough for the peer to send credit. */
psrt_status_t zt_send(psrt_ep_t *base, const psrt_hdr_t *hdr, const void *data, uint64_t len,
                      uint32_t flags, psrt_tx_t *tx)
{
    (void)flags;
    zt_ep_t *ep = (zt_ep_t *)base;
    zt_iface_t *iface = zt_iface_of(ep);
    if (ep->state > ZT_UP)
        return psrti_fail(PSRT_ERR_PEER_LOST, "zmq: %s: connection lost", ep->name);
    psrt_status_t status = check_send(ep, hdr, data, len, tx);
    if (status == PSRT_ERR_LIMIT) return give_up(ep, status);
    if (status != PSRT_OK) return status;
    if (ep->state < ZT_UP || ep->sent - ep->credited >= iface->params.window) {
        ep->blocked = 1;
        return PSRT_ERR_AGAIN;
    }
    zt_sock_t *sock = ep->accepted ? &iface->router : &ep->sock;
    if (len <= ZT_EAGER)
        status = send_head(ep, sock, hdr, data, len, 0);
    else
        status = send_in_place(ep, sock, hdr, data, len, tx);
    zt_sock_mark(sock);
    if (status >= PSRT_OK)
        ep->sent += ZT_CHARGE + len;
    else if (status == PSRT_ERR_PEER_LOST)
        psrti_fail(status, "zmq: %s: connection lost", ep->name);
    else
        return give_up(ep, status);
    return status;
}

/* ---- receiving --------------------------------------------------------------------------------- */

static zt_rx_t *rx_new(zt_iface_t *iface)
{
    psrti_list_t *spare = psrti_list_pop(&iface->spare_rx);
    zt_rx_t *rx = spare ? PSRTI_LIST_ENTRY(spare, zt_rx_t, link)
                        : aligned_alloc(_Alignof(zt_rx_t), sizeof(zt_rx_t));
    if (!rx) return NULL;
    zmq_msg_init(&rx->msg);
    psrti_list_init(&rx->link);
    return rx;
}

static void rx_end(zt_iface_t *iface, zt_rx_t *rx)
{
    zmq_msg_close(&rx->msg);
    psrti_list_remove(&rx->link);
    psrti_list_push(&iface->spare_rx, &rx->link);
}

/* A small payload is copied: its frame pins a receive buffer, and may start at any address. */
static const void *rx_take(zt_rx_t *rx, zt_in_t *in, uint64_t len)
{
    if (len > ZT_RX_COPY) {
        zmq_msg_move(&rx->msg, &in->part[1]);
        return zmq_msg_data(&rx->msg);
    }
    const uint8_t *from = in->parts == 2
                              ? zmq_msg_data(&in->part[1])
                              : (uint8_t *)zmq_msg_data(&in->part[0]) + PSRTI_FRAME_BYTES;
    memcpy(rx->copy, from, (size_t)len);
    return rx->copy;
}

/* NULL and the header if the message is what zt_send makes. */
static const char *parse(const zt_iface_t *iface, zt_in_t *in, psrt_hdr_t *hdr, uint64_t *len)
{
    const char *why = "frame shorter than a header";
    size_t head = zmq_msg_size(&in->part[0]), body = zmq_msg_size(&in->part[1]);
    if (in->parts > 2) return "too many frames in a message";
    if (head < PSRTI_FRAME_BYTES) return why;
    if (psrti_frame_decode(zmq_msg_data(&in->part[0]), hdr, &why) != PSRT_OK) return why;
    if (hdr->flags & PSRTI_F_EXT) return "header extension";
    if (psrti_frame_payload(hdr, len) != PSRT_OK) return "payload size overflows";
    if (*len > iface->params.max_message) return "payload larger than the limit";
    int two = *len > ZT_EAGER;
    if (in->parts != (two ? 2u : 1u) || head != PSRTI_FRAME_BYTES + (two ? 0 : *len) ||
        body != (two ? *len : 0))
        return "payload is not as long as announced";
    return NULL;
}

static void on_credit(zt_ep_t *ep, uint64_t consumed)
{
    if (consumed < ep->credited || consumed > ep->sent) {
        zt_ep_bad(ep, "credit for what was not sent");
        return;
    }
    ep->credited = consumed;
    if (ep->blocked && ep->sent - consumed < zt_iface_of(ep)->params.window) zt_ep_tell(ep);
}

/* Often enough that a sender does not run dry, seldom enough that it costs nothing. */
static void give_credit(zt_ep_t *ep, uint64_t len)
{
    ep->consumed += ZT_CHARGE + len;
    if (ep->consumed - ep->consumed_told < ep->peer_window / ZT_CREDITS) return;
    if (zt_link_send(ep, ZT_LINK_CREDIT, ep->consumed) == PSRT_OK) ep->consumed_told = ep->consumed;
}

static void on_data(zt_ep_t *ep, zt_in_t *in)
{
    zt_iface_t *iface = zt_iface_of(ep);
    psrt_msg_t msg = { .ep = &ep->base };
    const char *why = parse(iface, in, &msg.hdr, &msg.len);
    zt_rx_t *rx = why ? NULL : rx_new(iface);
    if (!why && !rx) why = "no memory for it";
    if (why) {
        zt_ep_bad(ep, why);
        return;
    }
    if (msg.len) msg.data = rx_take(rx, in, msg.len);
    msg.impl = rx;
    psrti_list_push(&iface->held, &rx->link);
    psrt_rx_t verdict = iface->params.on_msg(iface->base.arg, &msg);
    if (verdict != PSRT_RX_HOLD) rx_end(iface, rx);
    if (verdict == PSRT_RX_BAD && ep->state <= ZT_ENDING)
        zt_ep_bad(ep, "refused by the receiver");
    else if (ep->state == ZT_UP)
        give_credit(ep, msg.len);
}

void zt_deliver(zt_ep_t *ep, zt_in_t *in)
{
    zt_link_t link;
    zt_iface_of(ep)->events++;
    if (!zt_link_parse(in, &link))
        on_data(ep, in);
    else if (link.kind == ZT_LINK_CREDIT)
        on_credit(ep, link.value);
    else if (link.kind == ZT_LINK_CLOSE && !ep->accepted)
        zt_ep_lose(ep, PSRT_ERR_PEER_LOST);
    else
        zt_ep_bad(ep, "unexpected link message");
}

void zt_release(psrt_iface_t *base, psrt_msg_t *msg)
{
    if (msg->impl) rx_end((zt_iface_t *)base, msg->impl);
    msg->impl = NULL;
    msg->data = NULL;
}

/* After libzmq has ended: every payload was freed. */
void zt_data_destroy(zt_iface_t *iface)
{
    psrti_list_t *it;
    zt_tx_t *rec, *next;
    for (rec = take_freed(iface); rec; rec = next) {
        next = atomic_load_explicit(&rec->next, memory_order_relaxed);
        free(rec);
    }
    for (rec = iface->spare_tx; rec; rec = next) {
        next = atomic_load_explicit(&rec->next, memory_order_relaxed);
        free(rec);
    }
    while ((it = psrti_list_pop(&iface->held)))
        rx_end(iface, PSRTI_LIST_ENTRY(it, zt_rx_t, link));
    while ((it = psrti_list_pop(&iface->spare_rx)))
        free(PSRTI_LIST_ENTRY(it, zt_rx_t, link));
}
