/* SPDX-License-Identifier: Apache-2.0 */
/* libzmq sockets in an interface's epoll, their monitors, and whole messages from them. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "base/log.h"
#include "transport/zmq/zmq.h"

/* Left for the host program, and for connections that arrive meanwhile. */
#define DESCRIPTOR_RESERVE 16

#define HANDSHAKE_MS 10000
#define KEEPALIVE_IDLE_S 5
#define KEEPALIVE_INTERVAL_S 3
#define KEEPALIVE_COUNT 3
#define RETRANSMIT_MS 60000

/* `limit` when there is not even one left to look with; 0 when /proc is not there. */
static size_t descriptors_open(size_t limit)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return errno == EMFILE ? limit : 0;
    size_t count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 3; /* ".", ".." and the directory itself */
}

/* libzmq aborts the process when it needs a descriptor of its own and there is none. */
psrt_status_t zt_descriptors(size_t need)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return PSRT_OK;
    size_t open = descriptors_open((size_t)limit.rlim_cur);
    need += DESCRIPTOR_RESERVE;
    if (open + need <= limit.rlim_cur) return PSRT_OK;
    return psrti_fail(PSRT_ERR_LIMIT,
                      "zmq: too few file descriptors: RLIMIT_NOFILE is %" PRIu64
                      ", at least %zu are needed (%zu open, %zu for this connection and reserve); "
                      "raise it with ulimit -n",
                      (uint64_t)limit.rlim_cur, open + need, open, need);
}

psrt_status_t zt_sock_open(zt_iface_t *iface, zt_sock_t *sock, int type,
                           void (*on_ready)(zt_sock_t *))
{
    void *socket = zmq_socket(iface->zmq, type);
    if (!socket)
        return psrti_fail(errno == EMFILE ? PSRT_ERR_LIMIT : PSRT_ERR_NO_MEMORY,
                          "zmq: no socket: %s", zmq_strerror(errno));
    *sock = (zt_sock_t){ .socket = socket, .on_ready = on_ready, .iface = iface };
    psrti_list_init(&sock->ready_link);
    size_t size = sizeof(sock->fd);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = sock };
    if (zmq_getsockopt(socket, ZMQ_FD, &sock->fd, &size) != 0 ||
        epoll_ctl(iface->epoll_fd, EPOLL_CTL_ADD, sock->fd, &event) != 0) {
        sock->socket = NULL;
        int error = errno;
        zmq_close(socket);
        return psrti_fail(PSRT_ERR_LIMIT, "zmq: cannot watch a socket: %s", zmq_strerror(error));
    }
    zt_sock_mark(sock);
    return PSRT_OK;
}

void zt_sock_close(zt_sock_t *sock, int linger_ms)
{
    if (!sock->socket) return;
    /* libzmq closes the descriptor later, in its own thread. */
    epoll_ctl(sock->iface->epoll_fd, EPOLL_CTL_DEL, sock->fd, NULL);
    psrti_list_remove(&sock->ready_link);
    zmq_setsockopt(sock->socket, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
    zmq_close(sock->socket);
    sock->socket = NULL;
}

void zt_sock_mark(zt_sock_t *sock)
{
    if (psrti_list_empty(&sock->ready_link))
        psrti_list_push(&sock->iface->ready, &sock->ready_link);
}

psrt_status_t zt_sock_int(zt_sock_t *sock, int option, int value)
{
    if (zmq_setsockopt(sock->socket, option, &value, sizeof(value)) == 0) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INTERNAL, "zmq: option %d = %d: %s", option, value,
                      zmq_strerror(errno));
}

/* A host that dies silently is noticed by TCP itself. libzmq's heartbeats would also end the
 * connection of a peer that is merely stopped or busy, which is for the lease to judge.
 * The linger time is set from the beginning: libzmq copies it to what it makes for a socket, and its
 * own default is for ever. A connection that ends by itself while its socket is being closed would wait
 * that long for a peer to take what is left, and zmq_ctx_term with it. */
psrt_status_t zt_sock_tcp(zt_sock_t *sock, int ipv6)
{
    const struct {
        int option, value;
    } options[] = {
        { ZMQ_LINGER, ZT_LINGER_MS },
        { ZMQ_SNDHWM, 0 },
        { ZMQ_RCVHWM, 0 },
        { ZMQ_IPV6, ipv6 },
        { ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS },
        { ZMQ_TCP_KEEPALIVE, 1 },
        { ZMQ_TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S },
        { ZMQ_TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_S },
        { ZMQ_TCP_KEEPALIVE_CNT, KEEPALIVE_COUNT },
        { ZMQ_TCP_MAXRT, RETRANSMIT_MS },
    };
    for (size_t i = 0; i < PSRTI_COUNT(options); i++) {
        psrt_status_t status = zt_sock_int(sock, options[i].option, options[i].value);
        if (status != PSRT_OK) return status;
    }
    /* A frame has the header at most beside the payload, and 33 bytes of CURVE. Anything larger ends
     * the connection before memory is taken for it. */
    int64_t largest = (int64_t)sock->iface->params.max_message + 2 * PSRTI_FRAME_BYTES;
    if (zmq_setsockopt(sock->socket, ZMQ_MAXMSGSIZE, &largest, sizeof(largest)) == 0)
        return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "zmq: largest message %" PRIi64 ": %s", largest,
                      zmq_strerror(errno));
}

int zt_sock_events(zt_sock_t *sock)
{
    int events = 0;
    size_t size = sizeof(events);
    while (zmq_getsockopt(sock->socket, ZMQ_EVENTS, &events, &size) != 0 && errno == EINTR)
        ;
    return events;
}

psrt_status_t zt_monitor_open(zt_sock_t *monitor, zt_sock_t *target, int events,
                              void (*on_ready)(zt_sock_t *))
{
    zt_iface_t *iface = target->iface;
    char name[64];
    snprintf(name, sizeof(name), "inproc://monitor-%" PRIu32, iface->counter);
    if (zmq_socket_monitor(target->socket, name, events) != 0)
        return psrti_fail(PSRT_ERR_LIMIT, "zmq: cannot watch a socket: %s", zmq_strerror(errno));
    psrt_status_t status = zt_sock_open(iface, monitor, ZMQ_PAIR, on_ready);
    /* Unlimited: libzmq's I/O thread would wait, with all connections, while this is full. */
    if (status == PSRT_OK) status = zt_sock_int(monitor, ZMQ_RCVHWM, 0);
    if (status == PSRT_OK && zmq_connect(monitor->socket, name) != 0)
        status = psrti_fail(PSRT_ERR_LIMIT, "zmq: %s: %s", name, zmq_strerror(errno));
    if (status != PSRT_OK) zt_monitor_close(monitor, target);
    return status;
}

static int recv_part(void *socket, zmq_msg_t *msg)
{
    int rc;
    do {
        rc = zmq_msg_recv(msg, socket, ZMQ_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    return rc >= 0;
}

/* An event is two frames: number and value in host order, then the address. */
int zt_monitor_read(zt_sock_t *monitor, unsigned *event, uint32_t *value)
{
    zt_in_t in;
    if (!zt_recv(monitor, 0, &in)) return 0;
    *event = 0;
    if (zmq_msg_size(&in.part[0]) == 6) {
        const uint8_t *data = zmq_msg_data(&in.part[0]);
        uint16_t number;
        memcpy(&number, data, sizeof(number));
        memcpy(value, data + sizeof(number), sizeof(*value));
        *event = number;
    }
    zt_in_close(&in);
    return 1;
}

/* In this order: the I/O thread writes events as long as the monitor runs, and waits for a reader. */
void zt_monitor_close(zt_sock_t *monitor, zt_sock_t *target)
{
    if (target->socket) zmq_socket_monitor(target->socket, NULL, 0);
    zt_sock_close(monitor, 0);
}

/* Later parts are there as soon as the first one is. */
int zt_recv(zt_sock_t *sock, int with_id, zt_in_t *in)
{
    zmq_msg_t *first = with_id ? &in->id : &in->part[0];
    zmq_msg_init(&in->id);
    zmq_msg_init(&in->part[0]);
    zmq_msg_init(&in->part[1]);
    in->parts = with_id ? 0 : 1;
    if (!recv_part(sock->socket, first)) return 0; /* empty messages own nothing */
    int more = zmq_msg_more(first);
    while (more) {
        /* cppcheck-suppress uninitvar ; initialised below when it is used */
        zmq_msg_t extra, *part = in->parts < 2 ? &in->part[in->parts] : &extra;
        if (part == &extra) zmq_msg_init(&extra);
        if (!recv_part(sock->socket, part)) break;
        more = zmq_msg_more(part);
        if (part == &extra) zmq_msg_close(&extra);
        in->parts++;
    }
    return 1;
}

void zt_in_close(zt_in_t *in)
{
    zmq_msg_close(&in->id);
    zmq_msg_close(&in->part[0]);
    zmq_msg_close(&in->part[1]);
}
