/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepted endpoints: all behind one ROUTER, told apart by routing id.
 *
 * A ROUTER does not say when a peer is gone, and cannot hang up on one. Its monitor reports the
 * descriptor of each connection that ends, before libzmq closes it, and a message tells the
 * descriptor that it came through. Both are numbers that the system reuses, so the order matters:
 *
 *  - On OPEN the monitor is read first. All that is reported later about this number happened after
 *    this peer had connected.
 *  - CONFIRM answers ACCEPT, so the peer was alive in between: the number was its own then. If no
 *    disconnect was reported up to now, it still is, and our duplicate of the descriptor is the
 *    peer's connection, whatever happens to the number.
 *
 * Shutting that duplicate down hangs up. Once libzmq reports the disconnect, its I/O thread reads no
 * payload of the connection any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/zmq/zmq.h"

#define BACKLOG 1024
#define ACCEPT_DESCRIPTORS 2

static zt_ep_t *find(const zt_iface_t *iface, zmq_msg_t *id)
{
    if (zmq_msg_size(id) != ZT_ID_BYTES) return NULL;
    zt_ep_t *ep = psrti_map_get(&iface->by_id, psrti_hash_bytes(zmq_msg_data(id), ZT_ID_BYTES));
    return ep && memcmp(ep->id, zmq_msg_data(id), ZT_ID_BYTES) == 0 ? ep : NULL;
}

static void hang_up(zt_ep_t *ep)
{
    if (ep->own_fd >= 0) shutdown(ep->own_fd, SHUT_RDWR);
}

/* ---- disconnects ------------------------------------------------------------------------------- */

static void on_hung_up(zt_ep_t *ep)
{
    zt_iface_t *iface = zt_iface_of(ep);
    psrti_map_remove(&iface->by_fd, (uint64_t)ep->peer_fd);
    ep->hung_up = 1;
    if (ep->state == ZT_UP) {
        ep->state = ZT_ENDING;
        ep->since = psrti_now_ns();
        psrti_list_push(&iface->ending, &ep->ending_link);
        zt_sock_mark(&iface->router);
    } else if (ep->state == ZT_OPENING || ep->state == ZT_CLOSED) {
        zt_ep_bury(ep);
    }
}

/* Called in the middle of things: it tells the user nothing. */
static void read_monitor(zt_iface_t *iface)
{
    unsigned event;
    uint32_t fd;
    while (zt_monitor_read(&iface->monitor, &event, &fd)) {
        iface->events++;
        if (event != ZMQ_EVENT_DISCONNECTED) continue;
        zt_ep_t *ep = psrti_map_get(&iface->by_fd, fd);
        if (ep) on_hung_up(ep);
    }
}

static void monitor_ready(zt_sock_t *monitor) { read_monitor(monitor->iface); }

/* After the ROUTER had nothing more to read. A ROUTER that never runs dry delays it, not for ever. */
static void end_all(zt_iface_t *iface, int dry)
{
    PSRTI_LIST_FOREACH_SAFE(it, next, &iface->ending)
    {
        zt_ep_t *ep = PSRTI_LIST_ENTRY(it, zt_ep_t, ending_link);
        if (!dry && psrti_now_ns() - ep->since < ZT_PATIENCE_NS) continue;
        zt_ep_lose(ep, PSRT_ERR_PEER_LOST);
    }
}

/* ---- opening ----------------------------------------------------------------------------------- */

static void reject(zt_iface_t *iface, const char *why)
{
    if (zt_may_log(iface)) psrti_warn("zmq: %s: message from a stranger: %s", iface->addr, why);
}

static void refuse(zt_iface_t *iface, const uint8_t *id, uint32_t task, psrt_status_t status,
                   const char *why)
{
    if (zt_may_log(iface))
        psrti_warn("zmq: %s: refused task %" PRIu32 ": %s", iface->addr, task, why);
    zt_link_refuse(iface, id, status);
}

static psrt_status_t admit(zt_iface_t *iface, const uint8_t *id, const zt_link_t *link, int fd)
{
    zt_ep_t *ep = zt_ep_new(iface);
    if (!ep) return PSRT_ERR_NO_MEMORY;
    ep->accepted = 1;
    ep->state = ZT_OPENING;
    ep->peer_window = link->value;
    ep->peer_fd = fd;
    memcpy(ep->id, id, ZT_ID_BYTES);
    snprintf(ep->name, sizeof(ep->name), "task %" PRIu32, link->task);
    /* Takes the place that CONFIRM needs: the dialler is up when it sees our ACCEPT, and must not be
     * turned away then because others came in between. */
    ep->own_fd = fcntl(iface->epoll_fd, F_DUPFD_CLOEXEC, 0);
    if (ep->own_fd < 0) {
        zt_ep_bury(ep);
        return PSRT_ERR_LIMIT;
    }
    zt_ep_t *before = psrti_map_get(&iface->by_fd, (uint64_t)fd);
    if (before) on_hung_up(before); /* its own connection had ended before it could CONFIRM */
    if (psrti_map_put(&iface->by_id, psrti_hash_bytes(id, ZT_ID_BYTES), ep) != PSRT_OK ||
        psrti_map_put(&iface->by_fd, (uint64_t)fd, ep) != PSRT_OK) {
        zt_ep_bury(ep);
        return PSRT_ERR_NO_MEMORY;
    }
    if (zt_link_send(ep, ZT_LINK_ACCEPT, iface->params.window) != PSRT_OK) zt_ep_bury(ep);
    return PSRT_OK;
}

static void on_stranger(zt_iface_t *iface, zt_in_t *in)
{
    const uint8_t *id = zmq_msg_data(&in->id);
    zt_link_t link;
    int fd = zmq_msg_get(&in->part[0], ZMQ_SRCFD);
    if (!zt_link_parse(in, &link)) {
        reject(iface, "not a link message");
    } else if (link.kind != ZT_LINK_OPEN) {
        return; /* crossed with our closing of the endpoint */
    } else if (zmq_msg_size(&in->id) != ZT_ID_BYTES || fd < 0 ||
               psrti_map_get(&iface->by_id, psrti_hash_bytes(id, ZT_ID_BYTES))) {
        reject(iface, "bad routing id");
    } else if (memcmp(link.nonce, iface->nonce, ZT_NONCE_BYTES) != 0) {
        refuse(iface, id, link.task, PSRT_ERR_MISMATCH, "it belongs to another job");
    } else if (zt_descriptors(ACCEPT_DESCRIPTORS) != PSRT_OK) {
        refuse(iface, id, link.task, PSRT_ERR_LIMIT, psrt_last_error());
    } else {
        read_monitor(iface);
        psrt_status_t status = admit(iface, id, &link, fd);
        if (status != PSRT_OK) refuse(iface, id, link.task, status, psrt_status_text(status));
    }
}

static void on_confirm(zt_ep_t *ep, zt_in_t *in)
{
    zt_iface_t *iface = zt_iface_of(ep);
    zt_link_t link;
    int duplicated = dup3(ep->peer_fd, ep->own_fd, O_CLOEXEC) >= 0;
    read_monitor(iface);
    if (ep->hung_up) return; /* and buried */
    if (!duplicated || !zt_link_parse(in, &link) || link.kind != ZT_LINK_CONFIRM) {
        refuse(iface, ep->id, 0, PSRT_ERR_PROTOCOL, "no CONFIRM, or no descriptor for it");
        hang_up(ep);
        zt_ep_bury(ep);
        return;
    }
    ep->state = ZT_UP;
    iface->events++;
    iface->params.on_ep(iface->base.arg, &ep->base, PSRT_EP_UP, PSRT_OK);
}

/* ---- the socket -------------------------------------------------------------------------------- */

static void on_message(zt_iface_t *iface, zt_in_t *in)
{
    zt_ep_t *ep = find(iface, &in->id);
    if (!ep)
        on_stranger(iface, in);
    else if (ep->state == ZT_OPENING)
        on_confirm(ep, in);
    else if (ep->state == ZT_UP || ep->state == ZT_ENDING)
        zt_deliver(ep, in);
    else if (ep->state == ZT_CLOSED && psrti_now_ns() - ep->since > ZT_PATIENCE_NS)
        hang_up(ep); /* it should have seen CLOSE */
}

static void router_ready(zt_sock_t *router)
{
    zt_iface_t *iface = router->iface;
    zt_in_t in;
    for (unsigned i = 0; i < ZT_BUDGET; i++) {
        if (!zt_recv(router, 1, &in)) {
            end_all(iface, 1);
            return;
        }
        on_message(iface, &in);
        zt_in_close(&in);
    }
    end_all(iface, 0);
    zt_sock_mark(router);
}

static psrt_status_t bind_failed(const char *addr)
{
    psrt_status_t status = errno == EADDRINUSE      ? PSRT_ERR_BUSY
                           : errno == EADDRNOTAVAIL ? PSRT_ERR_INVALID
                                                    : PSRT_ERR_IO;
    return psrti_fail(status, "zmq: cannot listen on %s: %s", addr, zmq_strerror(errno));
}

/* libzmq's I/O thread must not block in accept when a client has given up meanwhile. */
static psrt_status_t adopt(zt_iface_t *iface, int fd, char addr[PSRT_ADDR_MAX])
{
    psrt_status_t status = zt_addr_of_listener(fd, addr);
    if (status != PSRT_OK) return status;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return psrti_fail(PSRT_ERR_IO, "descriptor %d: %s", fd, strerror(errno));
    return zt_sock_int(&iface->router, ZMQ_USE_FD, fd);
}

static psrt_status_t bind_addr(const zt_iface_t *iface, char addr[PSRT_ADDR_MAX])
{
    const char *text = iface->params.bind_address ? iface->params.bind_address : "127.0.0.1";
    char host[ZT_HOST_MAX], found[ZT_ADDRS_MAX][PSRT_ADDR_MAX];
    uint16_t port;
    int has_port;
    size_t count;
    psrt_status_t status = zt_addr_split(text, host, &port, &has_port);
    if (status == PSRT_OK) status = zt_addr_resolve(host, port, found, &count);
    if (status != PSRT_OK) return status;
    snprintf(addr, PSRT_ADDR_MAX, "%s", found[0]);
    return PSRT_OK;
}

psrt_status_t zt_listen(zt_iface_t *iface)
{
    zt_sock_t *router = &iface->router;
    char addr[PSRT_ADDR_MAX];
    size_t size = sizeof(iface->addr);
    psrt_status_t status = zt_sock_open(iface, router, ZMQ_ROUTER, router_ready);
    if (status == PSRT_OK)
        status = iface->params.listen_fd >= 0 ? adopt(iface, iface->params.listen_fd, addr)
                                              : bind_addr(iface, addr);
    if (status == PSRT_OK) status = zt_sock_tcp(router, strchr(addr, '[') != NULL);
    if (status == PSRT_OK) status = zt_sock_int(router, ZMQ_ROUTER_MANDATORY, 1);
    if (status == PSRT_OK) status = zt_sock_int(router, ZMQ_BACKLOG, BACKLOG);
    if (status == PSRT_OK) status = zt_security_apply(router, 1);
    if (status == PSRT_OK)
        status = zt_monitor_open(&iface->monitor, router, ZMQ_EVENT_DISCONNECTED, monitor_ready);
    if (status != PSRT_OK) return status;
    if (zmq_bind(router->socket, addr) != 0) return bind_failed(addr);
    if (zmq_getsockopt(router->socket, ZMQ_LAST_ENDPOINT, iface->addr, &size) != 0)
        return bind_failed(addr);
    return PSRT_OK;
}

/* ---- closing ----------------------------------------------------------------------------------- */

static void wait_hung_up(zt_ep_t *ep)
{
    zt_iface_t *iface = zt_iface_of(ep);
    struct pollfd poll_fd = { .fd = iface->monitor.fd, .events = POLLIN };
    unsigned polls = 0; /* as in wait_freed; each ends after 10 ms at the latest */
    for (read_monitor(iface); !ep->hung_up && polls < ZT_PATIENCE_NS / 10000000; polls++) {
        poll(&poll_fd, 1, 10);
        read_monitor(iface);
    }
    if (!ep->hung_up) psrti_error("zmq: %s: libzmq does not end the connection", ep->name);
}

/* What was sent by copy still goes out, in front of CLOSE; with the caller's memory in flight the
 * connection is cut. Either way the endpoint stays, unseen, until the disconnect is reported. */
void zt_accept_close(zt_ep_t *ep)
{
    int orderly = ep->state == ZT_UP && zt_tx_all_freed(ep);
    if (orderly)
        zt_link_send(ep, ZT_LINK_CLOSE, 0);
    else
        hang_up(ep);
    ep->state = ZT_LOST;
    if (!orderly && !zt_tx_all_freed(ep)) wait_hung_up(ep);
    zt_tx_cancel(ep);
    psrti_list_remove(&ep->ending_link);
    ep->state = ZT_CLOSED;
    ep->since = psrti_now_ns();
    if (ep->hung_up) zt_ep_bury(ep);
}
