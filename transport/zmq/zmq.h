/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zmq: between any two tasks, over TCP. Internals that its files share.
 *
 * An interface is one libzmq context with one I/O thread: a ROUTER that accepts (when it listens) and
 * one DEALER for each dialled endpoint. Both kinds of endpoint carry the same messages:
 *
 *     data, payload up to ZT_EAGER    one frame:  header 64 bytes | payload
 *     data, larger payload            two frames: header | payload, which libzmq sends in place
 *     link                            one frame of ZT_LINK_BYTES, magic 'P' 'Z' (link.c)
 *
 * Setting up takes three link messages, OPEN, ACCEPT, CONFIRM: the third proves to the acceptor that
 * the peer was alive when ACCEPT was sent, and so which of libzmq's descriptors is the peer's
 * (accept.c). Flow control is by credit: a sender stops when `window` bytes are not yet consumed by
 * the receiver's progress, so that a stopped receiver bounds the memory of both sides. libzmq's
 * high-water marks count messages of any size, which bounds nothing: they are off.
 *
 * Everything belongs to the owner's thread but zt_tx_t's next and freed, and zt_iface_t's freed and
 * armed: libzmq's I/O thread writes those when it is through with a payload.
 */
#ifndef PSRTI_ZMQ_H
#define PSRTI_ZMQ_H

#include <stdatomic.h>
#include <stdint.h>

#include <zmq.h>

#include "base/list.h"
#include "base/map.h"
#include "base/util.h"
#include "transport/frame.h"
#include "transport/transport.h"

#define ZT_EAGER 4096u   /* largest payload that is copied into the frame of its header       */
#define ZT_RX_COPY 8192u /* libzmq keeps frames up to this in a receive buffer, at any alignment */
#define ZT_ID_BYTES 25   /* routing id: 'P' | task 4 | incarnation 8 | counter 4 | random 8   */
#define ZT_LINK_BYTES 40
#define ZT_NONCE_BYTES 16
#define ZT_KEY_BYTES 32
#define ZT_HOST_MAX 200
#define ZT_ADDRS_MAX 8   /* addresses of one host name that are tried                         */
#define ZT_CHARGE 128u   /* what a message counts towards the window, beside its payload      */
#define ZT_CREDITS 4u    /* told in a window                                                  */
#define ZT_LINGER_MS 500 /* for what was sent before an orderly close                         */
#define ZT_PATIENCE_NS PSRTI_NS_PER_S /* longest wait for libzmq's or a peer's part in closing */
#define ZT_BUDGET 64u /* messages taken from one socket in one progress                    */

typedef struct zt_iface zt_iface_t;
typedef struct zt_ep zt_ep_t;

/* A libzmq socket in the interface's epoll. Its descriptor only says that something happened, and
 * any call on the socket may use that up. So a socket is on the ready list until a receive said
 * EAGAIN as the last call on it, and returns there with every send. */
typedef struct zt_sock {
    void *socket; /* NULL: closed */
    int fd;
    void (*on_ready)(struct zt_sock *sock);
    zt_iface_t *iface;
    zt_ep_t *ep; /* of a dialled endpoint */
    psrti_list_t ready_link;
} zt_sock_t;

typedef enum zt_state {
    ZT_DIALING, /* dialled: the connection or its handshake is under way                      */
    ZT_OPENING, /* dialled: OPEN sent; accepted: ACCEPT sent, the user does not know it yet   */
    ZT_UP,
    ZT_ENDING, /* accepted: the connection is gone, what it brought is still delivered       */
    ZT_LOST,
    ZT_CLOSED /* accepted: by the user; waits for the peer to hang up                       */
} zt_state_t;

struct zt_ep {
    psrt_ep_t base;
    psrti_list_t link;      /* iface->eps, then iface->graveyard                              */
    psrti_list_t told_link; /* iface->told                                                    */
    zt_state_t state;
    psrt_status_t status;    /* why it is lost; while dialling: why the handshake failed    */
    int blocked;             /* a send said AGAIN: WRITABLE is owed                         */
    psrti_list_t txs;        /* zt_tx_t that were not answered                              */
    uint64_t sent, credited; /* bytes charged so far, bytes of them that the peer consumed  */
    uint64_t consumed, consumed_told; /* the other direction                                  */
    uint64_t peer_window;
    char name[96]; /* for log lines */
    /* dialled */
    zt_sock_t sock, monitor; /* monitor: until UP */
    size_t addr_count, addr_next;
    char (*addrs)[PSRT_ADDR_MAX];
    /* accepted */
    int accepted;
    int hung_up; /* libzmq reported the disconnect: it reads no payload of this endpoint any more */
    uint64_t since; /* ENDING, CLOSED: when that began */
    psrti_list_t ending_link;
    uint8_t id[ZT_ID_BYTES];
    int peer_fd; /* libzmq's number, which may be reused once the disconnect is reported */
    int own_fd;  /* our duplicate of it, from CONFIRM on: what can be shut down safely */
};

/* A payload that libzmq reads in place. May outlive the endpoint: libzmq frees when it likes. */
typedef struct zt_tx {
    _Atomic(struct zt_tx *) next;
    _Atomic(zt_iface_t *) iface;
    atomic_int freed;
    atomic_int quiet;  /* CREDIT follows, and wakes the owner: being freed does not */
    psrti_list_t link; /* ep->txs */
    psrt_tx_t *tx;     /* NULL: answered */
    zt_ep_t *ep;       /* valid while tx is set */
} zt_tx_t;

/* A received payload: libzmq's message, or a copy of a small one. */
typedef struct zt_rx {
    psrti_list_t link; /* iface->held or iface->spare_rx */
    zmq_msg_t msg;
    _Alignas(64) uint8_t copy[ZT_RX_COPY];
} zt_rx_t;

/* One received message. `parts` may be larger than 2: the rest was dropped. */
typedef struct zt_in {
    zmq_msg_t id, part[2]; /* id: ROUTER only */
    unsigned parts;
} zt_in_t;

struct zt_iface {
    psrt_iface_t base;
    psrt_iface_params_t params; /* the pointers in it are not used after iface_open */
    uint8_t nonce[ZT_NONCE_BYTES];
    uint8_t secret[ZT_KEY_BYTES], public_key[ZT_KEY_BYTES];
    char addr[PSRT_ADDR_MAX]; /* "" when not listening */
    void *zmq;
    zt_sock_t router, monitor, zap;
    int epoll_fd, wake_fd;
    uint32_t counter;         /* of dialled connections */
    psrti_map_t by_id, by_fd; /* accepted endpoints */
    psrti_list_t eps, ready, told, ending, graveyard, held, spare_rx;
    zt_tx_t *spare_tx;
    unsigned events; /* handled since progress began */
    _Atomic(zt_tx_t *) freed;
    atomic_int armed;
    uint64_t log_second;
    unsigned log_lines;
};

static inline zt_iface_t *zt_iface_of(const zt_ep_t *ep) { return (zt_iface_t *)ep->base.iface; }

/* sock.c */
psrt_status_t zt_descriptors(size_t need);
psrt_status_t zt_sock_open(zt_iface_t *iface, zt_sock_t *sock, int type,
                           void (*on_ready)(zt_sock_t *));
void zt_sock_close(zt_sock_t *sock, int linger_ms);
void zt_sock_mark(zt_sock_t *sock);
psrt_status_t zt_sock_int(zt_sock_t *sock, int option, int value);
psrt_status_t zt_sock_tcp(zt_sock_t *sock, int ipv6); /* what ROUTER and DEALER have in common */
int zt_sock_events(zt_sock_t *sock);
psrt_status_t zt_monitor_open(zt_sock_t *monitor, zt_sock_t *target, int events,
                              void (*on_ready)(zt_sock_t *));
int zt_monitor_read(zt_sock_t *monitor, unsigned *event, uint32_t *value);
void zt_monitor_close(zt_sock_t *monitor, zt_sock_t *target);
int zt_recv(zt_sock_t *sock, int with_id, zt_in_t *in); /* 1: `in` must be given to zt_in_close */
void zt_in_close(zt_in_t *in);

/* addr.c */
psrt_status_t zt_addr_split(const char *text, char host[ZT_HOST_MAX], uint16_t *port,
                            int *has_port);
psrt_status_t zt_addr_resolve(const char *host, uint16_t port, char (*out)[PSRT_ADDR_MAX],
                              size_t *count);
psrt_status_t zt_addr_of_listener(int fd, char addr[PSRT_ADDR_MAX]);
int zt_addr_is_wildcard(const char *addr);

/* security.c */
psrt_status_t zt_security_init(zt_iface_t *iface);
psrt_status_t zt_security_apply(zt_sock_t *sock, int server);
psrt_status_t zt_zap_open(zt_iface_t *iface);

/* link.c */
typedef enum zt_link_kind {
    ZT_LINK_OPEN = 1,    /* dialler: value = its window                                 */
    ZT_LINK_ACCEPT = 2,  /* acceptor: value = its window                                */
    ZT_LINK_CONFIRM = 3, /* dialler                                                     */
    ZT_LINK_REFUSE = 4,  /* acceptor, instead of ACCEPT: value = minus a psrt_status_t  */
    ZT_LINK_CREDIT = 5,  /* value = bytes consumed since the beginning                  */
    ZT_LINK_CLOSE = 6    /* acceptor: nothing follows; hang up                          */
} zt_link_kind_t;
typedef struct zt_link {
    zt_link_kind_t kind;
    uint32_t task;
    uint64_t value, incarnation;
    uint8_t nonce[ZT_NONCE_BYTES];
} zt_link_t;
int zt_link_parse(zt_in_t *in, zt_link_t *link); /* 0: not a link message */
psrt_status_t zt_link_send(zt_ep_t *ep, zt_link_kind_t kind, uint64_t value);
void zt_link_refuse(zt_iface_t *iface, const uint8_t id[ZT_ID_BYTES], psrt_status_t status);

/* data.c */
psrt_status_t zt_send(psrt_ep_t *ep, const psrt_hdr_t *hdr, const void *data, uint64_t len,
                      uint32_t flags, psrt_tx_t *tx);
void zt_deliver(zt_ep_t *ep, zt_in_t *in); /* a message of an endpoint that is UP or ENDING */
void zt_release(psrt_iface_t *base, psrt_msg_t *msg);
void zt_tx_collect(zt_iface_t *iface);
int zt_tx_all_freed(const zt_ep_t *ep);
void zt_tx_cancel(zt_ep_t *ep);
void zt_data_destroy(zt_iface_t *iface);

/* dial.c */
psrt_status_t zt_ep_open(psrt_iface_t *base, const char *addr, psrt_ep_t **ep_p);
void zt_dial_close(zt_ep_t *ep);

/* accept.c */
psrt_status_t zt_listen(zt_iface_t *iface);
void zt_accept_close(zt_ep_t *ep);

/* iface.c */
zt_ep_t *zt_ep_new(zt_iface_t *iface);
void zt_ep_lose(zt_ep_t *ep, psrt_status_t status);
void zt_ep_bad(zt_ep_t *ep, const char *why); /* logs, loses with ERR_PROTOCOL */
void zt_ep_tell(zt_ep_t *ep);
void zt_ep_bury(zt_ep_t *ep); /* no list or map has it afterwards; freed by the next progress */
int zt_may_log(zt_iface_t *iface);

#endif
