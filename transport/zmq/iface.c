/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces: opening and closing, progress, sleeping, what all endpoints have in common. */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/zmq/zmq.h"

#define SCORE 10
#define MAX_SOCKETS 65535
#define IFACE_DESCRIPTORS 16 /* five of libzmq's own, epoll, wake, and those of three sockets */
#define DEFAULT_WINDOW (4u << 20)
#define DEFAULT_MAX_MESSAGE (64u << 20)
#define LOG_LINES_PER_S 10
#define MALLOC_KEEP ((size_t)31 << 20) /* glibc adapts to blocks of up to 32 MiB, header included */

/* ---- endpoints --------------------------------------------------------------------------------- */

zt_ep_t *zt_ep_new(zt_iface_t *iface)
{
    zt_ep_t *ep = calloc(1, sizeof(*ep));
    if (!ep) return NULL;
    ep->base.iface = &iface->base;
    ep->peer_fd = ep->own_fd = -1;
    psrti_list_init(&ep->told_link);
    psrti_list_init(&ep->ending_link);
    psrti_list_init(&ep->txs);
    psrti_list_push(&iface->eps, &ep->link);
    return ep;
}

void zt_ep_tell(zt_ep_t *ep)
{
    if (psrti_list_empty(&ep->told_link)) psrti_list_push(&zt_iface_of(ep)->told, &ep->told_link);
}

void zt_ep_lose(zt_ep_t *ep, psrt_status_t status)
{
    if (ep->state >= ZT_LOST) return;
    ep->state = ZT_LOST;
    ep->status = status;
    psrti_list_remove(&ep->ending_link);
    if (ep->accepted) {
        if (ep->own_fd >= 0) shutdown(ep->own_fd, SHUT_RDWR);
    } else {
        zt_monitor_close(&ep->monitor, &ep->sock);
        zt_sock_close(&ep->sock, 0);
    }
    zt_ep_tell(ep);
}

void zt_ep_bad(zt_ep_t *ep, const char *why)
{
    if (zt_may_log(zt_iface_of(ep))) psrti_warn("zmq: %s: closed: %s", ep->name, why);
    zt_ep_lose(ep, PSRT_ERR_PROTOCOL);
}

void zt_ep_bury(zt_ep_t *ep)
{
    zt_iface_t *iface = zt_iface_of(ep);
    if (ep->accepted) {
        uint64_t key = psrti_hash_bytes(ep->id, ZT_ID_BYTES);
        if (psrti_map_get(&iface->by_id, key) == ep) psrti_map_remove(&iface->by_id, key);
        if (psrti_map_get(&iface->by_fd, (uint64_t)ep->peer_fd) == ep)
            psrti_map_remove(&iface->by_fd, (uint64_t)ep->peer_fd);
    }
    if (ep->own_fd >= 0) close(ep->own_fd);
    ep->own_fd = -1;
    ep->state = ZT_CLOSED;
    psrti_list_remove(&ep->told_link);
    psrti_list_remove(&ep->ending_link);
    psrti_list_remove(&ep->link);
    psrti_list_push(&iface->graveyard, &ep->link);
}

static void free_ep(zt_ep_t *ep)
{
    free(ep->addrs);
    free(ep);
}

/* Callers further up the stack may still look at a buried endpoint until progress returns. */
static void empty_graveyard(zt_iface_t *iface)
{
    psrti_list_t *it;
    while ((it = psrti_list_pop(&iface->graveyard)))
        free_ep(PSRTI_LIST_ENTRY(it, zt_ep_t, link));
}

static void ep_close(psrt_ep_t *base)
{
    zt_ep_t *ep = (zt_ep_t *)base;
    psrti_list_remove(&ep->told_link);
    if (ep->accepted)
        zt_accept_close(ep);
    else
        zt_dial_close(ep);
}

int zt_may_log(zt_iface_t *iface)
{
    uint64_t second = psrti_now_ns() / PSRTI_NS_PER_S;
    if (second != iface->log_second) {
        if (iface->log_lines > LOG_LINES_PER_S)
            psrti_warn("zmq: %s: %u more lines like these", iface->addr,
                       iface->log_lines - LOG_LINES_PER_S);
        iface->log_second = second;
        iface->log_lines = 0;
    }
    return ++iface->log_lines <= LOG_LINES_PER_S;
}

/* ---- opening and closing ----------------------------------------------------------------------- */

static psrt_status_t probe(char *why, size_t why_size)
{
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    snprintf(why, why_size, "libzmq %d.%d.%d, %s", major, minor, patch,
             zmq_has("curve") ? "CURVE available" : "without CURVE: no encryption");
    return PSRT_OK;
}

static void destroy(zt_iface_t *iface)
{
    if (iface->zmq)
        while (zmq_ctx_term(iface->zmq) != 0 && errno == EINTR)
            ;
    PSRTI_LIST_FOREACH_SAFE(it, next, &iface->eps)
    {
        zt_ep_t *ep = PSRTI_LIST_ENTRY(it, zt_ep_t, link);
        zt_tx_cancel(ep);
        zt_ep_bury(ep);
    }
    empty_graveyard(iface);
    zt_data_destroy(iface);
    psrti_map_clear(&iface->by_id);
    psrti_map_clear(&iface->by_fd);
    if (iface->epoll_fd >= 0) close(iface->epoll_fd);
    if (iface->wake_fd >= 0) close(iface->wake_fd);
    sodium_memzero(iface->secret, sizeof(iface->secret));
    free(iface);
}

/* Without the caller's memory in flight, what was sent by copy still goes out for a while. */
static int linger_of(const zt_ep_t *ep) { return psrti_list_empty(&ep->txs) ? ZT_LINGER_MS : 0; }

static void iface_close(psrt_iface_t *base)
{
    zt_iface_t *iface = (zt_iface_t *)base;
    int router_linger = ZT_LINGER_MS;
    for (psrti_list_t *it = iface->eps.next; it != &iface->eps; it = it->next) {
        zt_ep_t *ep = PSRTI_LIST_ENTRY(it, zt_ep_t, link);
        if (ep->accepted) {
            router_linger = PSRTI_MIN(router_linger, linger_of(ep));
            continue;
        }
        zt_monitor_close(&ep->monitor, &ep->sock);
        zt_sock_close(&ep->sock, linger_of(ep));
    }
    zt_monitor_close(&iface->monitor, &iface->router);
    zt_sock_close(&iface->router, router_linger);
    zt_sock_close(&iface->zap, 0);
    destroy(iface);
}

static void copy_params(zt_iface_t *iface, const psrt_iface_params_t *params)
{
    iface->params = *params;
    iface->base.arg = params->arg;
    if (!iface->params.window) iface->params.window = DEFAULT_WINDOW;
    if (!iface->params.max_message) iface->params.max_message = DEFAULT_MAX_MESSAGE;
    if (params->job_nonce) memcpy(iface->nonce, params->job_nonce, ZT_NONCE_BYTES);
}

/* libzmq starts its threads with the first socket: here, where the caller's mask is what they shall have. */
static psrt_status_t start_threads(zt_iface_t *iface)
{
    void *socket = zmq_socket(iface->zmq, ZMQ_PAIR);
    if (!socket)
        return psrti_fail(PSRT_ERR_LIMIT, "zmq: cannot start threads: %s", zmq_strerror(errno));
    zmq_close(socket);
    return PSRT_OK;
}

static psrt_status_t open_descriptors(zt_iface_t *iface)
{
    psrt_status_t status = zt_descriptors(IFACE_DESCRIPTORS);
    if (status != PSRT_OK) return status;
    iface->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    iface->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
    if (iface->epoll_fd < 0 || iface->wake_fd < 0 ||
        epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, iface->wake_fd, &event) != 0)
        return psrti_fail(PSRT_ERR_LIMIT, "zmq: cannot open descriptors: %s", strerror(errno));
    iface->zmq = zmq_ctx_new();
    if (!iface->zmq) return psrti_fail(PSRT_ERR_NO_MEMORY, "zmq: no context");
    zmq_ctx_set(iface->zmq, ZMQ_MAX_SOCKETS, MAX_SOCKETS);
    return start_threads(iface);
}

/* libzmq takes each large message from malloc in its thread, and the owner frees it. glibc gives memory
 * above its thresholds back to the system each time and faults it in again for the next message, which
 * costs a third of the throughput. The thresholds follow the largest block that was mapped and freed,
 * unless the host program set them: this one, which nobody touches, lets 62 MiB stay. */
static void keep_freed_messages(void)
{
    void *volatile block = malloc(MALLOC_KEEP);
    free(block);
}

extern const psrt_transport_ops_t psrti_transport_zmq;

static psrt_status_t iface_open(const psrt_iface_params_t *params, psrt_iface_t **iface_p)
{
    zt_iface_t *iface = calloc(1, sizeof(*iface));
    if (!iface) return psrti_fail(PSRT_ERR_NO_MEMORY, "zmq: no memory for an interface");
    psrti_list_t *const lists[] = { &iface->eps,     &iface->ready,     &iface->told,
                                    &iface->ending,  &iface->graveyard, &iface->held,
                                    &iface->spare_rx };
    for (size_t i = 0; i < PSRTI_COUNT(lists); i++)
        psrti_list_init(lists[i]);
    iface->base.ops = &psrti_transport_zmq;
    iface->epoll_fd = iface->wake_fd = -1;
    copy_params(iface, params);
    keep_freed_messages();
    psrt_status_t status = zt_security_init(iface);
    if (status == PSRT_OK) status = open_descriptors(iface);
    if (status == PSRT_OK && params->listen) status = zt_zap_open(iface);
    if (status == PSRT_OK && params->listen) status = zt_listen(iface);
    if (status == PSRT_OK)
        *iface_p = &iface->base;
    else
        iface_close(&iface->base);
    return status;
}

static psrt_status_t iface_addr(psrt_iface_t *base, char *addr, size_t size)
{
    const zt_iface_t *iface = (zt_iface_t *)base;
    if (!iface->addr[0]) return psrti_fail(PSRT_ERR_INVALID, "zmq: this interface does not listen");
    if (zt_addr_is_wildcard(iface->addr))
        return psrti_fail(PSRT_ERR_INVALID,
                          "zmq: listening on %s, which peers cannot dial: bind the address of one "
                          "interface (PSRT_BIND_ADDRESS)",
                          iface->addr);
    if ((size_t)snprintf(addr, size, "%s", iface->addr) >= size)
        return psrti_fail(PSRT_ERR_INVALID, "zmq: address %s needs more room", iface->addr);
    return PSRT_OK;
}

static int reachable(psrt_iface_t *iface, const char *addr)
{
    (void)iface;
    return strncmp(addr, "tcp://", 6) == 0;
}

/* ---- progress ---------------------------------------------------------------------------------- */

static void poll_descriptors(zt_iface_t *iface)
{
    struct epoll_event events[64];
    int count = epoll_wait(iface->epoll_fd, events, PSRTI_COUNT(events), 0);
    for (int i = 0; i < count; i++) {
        uint64_t ignored;
        if (events[i].data.ptr)
            zt_sock_mark(events[i].data.ptr);
        else if (read(iface->wake_fd, &ignored, sizeof(ignored)) < 0)
            continue; /* what it announces is looked for in any case */
    }
}

/* Sockets that become ready meanwhile wait for the next round, so that it ends. */
static void serve_sockets(zt_iface_t *iface)
{
    psrti_list_t end;
    psrti_list_push(&iface->ready, &end);
    for (psrti_list_t *it; (it = psrti_list_pop(&iface->ready)) != &end;) {
        zt_sock_t *sock = PSRTI_LIST_ENTRY(it, zt_sock_t, ready_link);
        sock->on_ready(sock);
    }
}

static void tell(zt_iface_t *iface)
{
    psrti_list_t *it;
    while ((it = psrti_list_pop(&iface->told))) {
        zt_ep_t *ep = PSRTI_LIST_ENTRY(it, zt_ep_t, told_link);
        iface->events++;
        if (ep->state == ZT_LOST) {
            iface->params.on_ep(iface->base.arg, &ep->base, PSRT_EP_LOST, ep->status);
        } else if (ep->blocked) {
            ep->blocked = 0;
            iface->params.on_ep(iface->base.arg, &ep->base, PSRT_EP_WRITABLE, PSRT_OK);
        }
    }
}

static unsigned progress(psrt_iface_t *base)
{
    zt_iface_t *iface = (zt_iface_t *)base;
    iface->events = 0;
    empty_graveyard(iface);
    poll_descriptors(iface);
    zt_tx_collect(iface);
    serve_sockets(iface);
    tell(iface);
    return iface->events;
}

/* `armed` first, then `freed`: tx_free does it the other way round, so one of both sees the other. */
static psrt_status_t arm(psrt_iface_t *base)
{
    zt_iface_t *iface = (zt_iface_t *)base;
    if (!psrti_list_empty(&iface->ready) || !psrti_list_empty(&iface->told)) return PSRT_ERR_BUSY;
    atomic_store(&iface->armed, 1);
    if (!atomic_load(&iface->freed)) return PSRT_OK;
    atomic_store(&iface->armed, 0);
    return PSRT_ERR_BUSY;
}

static int wait_fd(psrt_iface_t *base) { return ((zt_iface_t *)base)->epoll_fd; }

const psrt_transport_ops_t psrti_transport_zmq = {
    .size = sizeof(psrt_transport_ops_t),
    .name = "zmq",
    .score = SCORE,
    .caps = PSRT_TRANSPORT_CAP_THREADS,
    .probe = probe,
    .iface_open = iface_open,
    .iface_close = iface_close,
    .iface_addr = iface_addr,
    .reachable = reachable,
    .ep_open = zt_ep_open,
    .ep_close = ep_close,
    .send = zt_send,
    .release = zt_release,
    .progress = progress,
    .arm = arm,
    .wait_fd = wait_fd,
};
