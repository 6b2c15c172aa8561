/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dialled endpoints: one DEALER each, never reconnected by libzmq.
 *
 * With IMMEDIATE and no high-water mark a DEALER is writable exactly while it is connected. That is
 * how a connection is seen to be up, and to be lost afterwards; a monitor runs only while dialling,
 * for the reason of a failure, and so costs no descriptors later.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/log.h"
#include "transport/zmq/zmq.h"

#define CONNECT_TIMEOUT_MS 10000
#define DIAL_DESCRIPTORS 4 /* DEALER, its connection, two ends of the monitor */

#define HANDSHAKE_FAILED                                                                           \
    (ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |                  \
     ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

static void dealer_ready(zt_sock_t *sock);
static void monitor_ready(zt_sock_t *monitor);

/* Never used twice, not even by a restarted task: a ROUTER that still knows an identity keeps to its
 * old connection. 'P' in front: libzmq makes up identities that start with 0. */
static psrt_status_t set_routing_id(zt_ep_t *ep)
{
    zt_iface_t *iface = zt_iface_of(ep);
    uint32_t task = htole32(iface->params.task), counter = htole32(++iface->counter);
    uint64_t incarnation = htole64(iface->params.incarnation), random;
    uint8_t id[ZT_ID_BYTES] = { 'P' };
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return psrti_fail(PSRT_ERR_INTERNAL, "zmq: no random numbers: %s", strerror(errno));
    memcpy(id + 1, &task, sizeof(task));
    memcpy(id + 5, &incarnation, sizeof(incarnation));
    memcpy(id + 13, &counter, sizeof(counter));
    memcpy(id + 17, &random, sizeof(random));
    if (zmq_setsockopt(ep->sock.socket, ZMQ_ROUTING_ID, id, sizeof(id)) == 0) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INTERNAL, "zmq: routing id: %s", zmq_strerror(errno));
}

static psrt_status_t set_options(zt_ep_t *ep, int ipv6)
{
    const struct {
        int option, value;
    } options[] = { { ZMQ_IMMEDIATE, 1 },
                    { ZMQ_RECONNECT_IVL, -1 },
                    { ZMQ_CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS } };
    psrt_status_t status = zt_sock_tcp(&ep->sock, ipv6);
    for (size_t i = 0; status == PSRT_OK && i < PSRTI_COUNT(options); i++)
        status = zt_sock_int(&ep->sock, options[i].option, options[i].value);
    if (status == PSRT_OK) status = zt_security_apply(&ep->sock, 0);
    return status == PSRT_OK ? set_routing_id(ep) : status;
}

static void close_sockets(zt_ep_t *ep, int linger_ms)
{
    zt_monitor_close(&ep->monitor, &ep->sock);
    zt_sock_close(&ep->sock, linger_ms);
}

static psrt_status_t dial_next(zt_ep_t *ep)
{
    zt_iface_t *iface = zt_iface_of(ep);
    const char *addr = ep->addrs[ep->addr_next++];
    psrt_status_t status = zt_descriptors(DIAL_DESCRIPTORS);
    if (status == PSRT_OK) status = zt_sock_open(iface, &ep->sock, ZMQ_DEALER, dealer_ready);
    if (status != PSRT_OK) return status;
    ep->sock.ep = ep;
    ep->state = ZT_DIALING;
    ep->status = PSRT_ERR_UNREACHABLE;
    status = set_options(ep, strchr(addr, '[') != NULL);
    if (status == PSRT_OK)
        status = zt_monitor_open(&ep->monitor, &ep->sock,
                                 ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED | HANDSHAKE_FAILED,
                                 monitor_ready);
    ep->monitor.ep = ep;
    if (status == PSRT_OK && zmq_connect(ep->sock.socket, addr) != 0)
        status = psrti_fail(PSRT_ERR_INVALID, "address %s: %s", addr, zmq_strerror(errno));
    if (status != PSRT_OK) close_sockets(ep, 0);
    return status;
}

psrt_status_t zt_ep_open(psrt_iface_t *base, const char *addr, psrt_ep_t **ep_p)
{
    zt_iface_t *iface = (zt_iface_t *)base;
    char host[ZT_HOST_MAX];
    uint16_t port;
    int has_port;
    if (strncmp(addr, "tcp://", 6) != 0)
        return psrti_fail(PSRT_ERR_INVALID, "address %s: tcp://host:port is expected", addr);
    psrt_status_t status = zt_addr_split(addr, host, &port, &has_port);
    if (status != PSRT_OK) return status;
    if (!has_port) return psrti_fail(PSRT_ERR_INVALID, "address %s: the port is missing", addr);
    zt_ep_t *ep = zt_ep_new(iface);
    if (ep) ep->addrs = calloc(ZT_ADDRS_MAX, sizeof(*ep->addrs));
    if (!ep || !ep->addrs)
        status = psrti_fail(PSRT_ERR_NO_MEMORY, "zmq: no memory for an endpoint");
    else
        status = zt_addr_resolve(host, port, ep->addrs, &ep->addr_count);
    if (status == PSRT_OK) {
        snprintf(ep->name, sizeof(ep->name), "%.95s", addr);
        status = dial_next(ep);
    }
    if (status == PSRT_OK)
        *ep_p = &ep->base;
    else if (ep)
        zt_ep_bury(ep);
    return status;
}

/* The other addresses of the name are tried, but not after a refusal: then the peer was found. */
static void dial_failed(zt_ep_t *ep)
{
    psrt_status_t status = ep->status;
    close_sockets(ep, 0);
    while (status == PSRT_ERR_UNREACHABLE && ep->addr_next < ep->addr_count)
        if (dial_next(ep) == PSRT_OK) return;
    psrti_info("zmq: %s: cannot connect: %s", ep->name, psrt_status_text(status));
    zt_ep_lose(ep, status);
}

static void monitor_ready(zt_sock_t *monitor)
{
    zt_ep_t *ep = monitor->ep;
    unsigned event;
    uint32_t value;
    while (monitor->socket && zt_monitor_read(monitor, &event, &value)) {
        zt_iface_of(ep)->events++;
        if (event & HANDSHAKE_FAILED)
            ep->status = PSRT_ERR_REFUSED;
        else if (event & (ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED))
            dial_failed(ep);
    }
}

static void on_answer(zt_ep_t *ep, zt_in_t *in)
{
    zt_iface_t *iface = zt_iface_of(ep);
    zt_link_t link;
    if (!zt_link_parse(in, &link)) {
        zt_ep_bad(ep, "no answer to OPEN");
    } else if (link.kind == ZT_LINK_REFUSE) {
        zt_ep_lose(ep, PSRT_ERR_REFUSED);
    } else if (link.kind != ZT_LINK_ACCEPT || memcmp(link.nonce, iface->nonce, ZT_NONCE_BYTES)) {
        zt_ep_bad(ep, "no answer to OPEN, or that of another job");
    } else {
        ep->peer_window = link.value;
        zt_monitor_close(&ep->monitor, &ep->sock);
        zt_link_send(ep, ZT_LINK_CONFIRM, 0); /* a failure is seen as not writable */
        ep->state = ZT_UP;
        iface->events++;
        if (ep->blocked) zt_ep_tell(ep);
        iface->params.on_ep(iface->base.arg, &ep->base, PSRT_EP_UP, PSRT_OK);
    }
}

/* Closing or losing the endpoint closes the socket: that ends the loop. */
static void dealer_ready(zt_sock_t *sock)
{
    zt_ep_t *ep = sock->ep;
    zt_in_t in;
    for (unsigned i = 0; sock->socket && i < ZT_BUDGET; i++) {
        if (!zt_recv(sock, 0, &in)) break;
        if (ep->state == ZT_UP)
            zt_deliver(ep, &in);
        else
            on_answer(ep, &in);
        zt_in_close(&in);
        if (i + 1 == ZT_BUDGET && sock->socket) zt_sock_mark(sock);
    }
    if (!sock->socket || !psrti_list_empty(&sock->ready_link)) return;
    int events = zt_sock_events(sock);
    if (events & ZMQ_POLLIN) {
        zt_sock_mark(sock);
    } else if (ep->state == ZT_DIALING && (events & ZMQ_POLLOUT)) {
        ep->state = ZT_OPENING;
        zt_link_send(ep, ZT_LINK_OPEN, zt_iface_of(ep)->params.window);
    } else if (ep->state == ZT_UP && !(events & ZMQ_POLLOUT)) {
        zt_ep_lose(ep, PSRT_ERR_PEER_LOST);
    }
}

/* libzmq's threads end the connection on their own; until then they may read payloads. Patience is
 * counted in pauses: time also passes while this process is stopped, and they with it. */
static void wait_freed(zt_ep_t *ep)
{
    const struct timespec pause = { 0, 50000 };
    for (unsigned i = 0; !zt_tx_all_freed(ep) && i < ZT_PATIENCE_NS / 50000; i++)
        nanosleep(&pause, NULL);
    if (!zt_tx_all_freed(ep)) psrti_error("zmq: %s: libzmq does not give payloads back", ep->name);
}

/* What was sent by copy still goes out; with the caller's memory in flight nothing does. */
void zt_dial_close(zt_ep_t *ep)
{
    int orderly = ep->state == ZT_UP && zt_tx_all_freed(ep);
    close_sockets(ep, orderly ? ZT_LINGER_MS : 0);
    ep->state = ZT_CLOSED;
    wait_freed(ep);
    zt_tx_cancel(ep);
    zt_ep_bury(ep);
}
