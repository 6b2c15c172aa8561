/* SPDX-License-Identifier: Apache-2.0 */
/* Links: authenticated sessions over whichever transport reaches the peer best.
 *
 * A net owns the interfaces of one thread. Every connection starts with the handshake of session.h,
 * which proves both ends to each other; nothing else is let through before.
 * Invariants:
 * - at most one link per (peer task, channel) is accepted, threads of servers apart; a newer one of
 *   the same or a higher incarnation closes the older before it carries traffic; a lower incarnation is
 *   refused;
 * - every frame that reaches on_msg has the session of its link;
 * - after LOST nothing more comes from a link and its pending sends are done.
 * On the control plane a process has no incarnation before it joined, so there (control = 1)
 * several links of a task may be up and the coordinator decides between them.
 * A lost link is a fact about a connection; whether the peer is dead is for views to say.
 * One thread at a time; only psrti_net_wake and psrti_net_set_incarnation may be called from
 * others. The net keeps its own note in msg->flags: copies of a held message must keep it. */
#ifndef PSRTI_NET_H
#define PSRTI_NET_H

#include <psrt/ext/transport_v1.h>

#include "base/config.h"
#include "base/jobkey.h"
#include "runtime/core/view.h"

typedef struct psrti_net psrti_net_t;

typedef struct psrti_link {
    uint32_t session;
    uint32_t task; /* of the peer */
    uint64_t incarnation;
    uint32_t channel; /* data: as in HELLO (session.h); control: 0 */
    int up;
    void *user;
    const char *transport; /* name of the path, "" before UP */
} psrti_link_t;            /* the net's own struct begins with this one */

typedef enum psrti_link_event {
    PSRTI_LINK_UP,
    PSRTI_LINK_WRITABLE,
    PSRTI_LINK_LOST /* status and text say why; the link is freed after the callback returned */
} psrti_link_event_t;

typedef struct psrti_net_params {
    const psrti_config_t *config; /* transports, fault, security, sizes; outlives the net */
    const psrti_jobkey_t *key;    /* outlives the net                                     */
    uint32_t task;
    uint64_t incarnation;   /* may be set later with psrti_net_set_incarnation               */
    const char *transports; /* comma list allowed here; NULL: PSRT_TRANSPORT or all by score */
    int listen;
    int listen_fd;            /* zmq; -1: none */
    const char *bind_address; /* zmq; NULL: PSRT_BIND_ADDRESS or loopback */
    uint32_t channel;         /* accepted links must ask for this channel        */
    int control;              /* 1: control plane: encrypted at the level authenticated too, and
                                 fault injection leaves it alone              */
    void *arg;
    void (*on_link)(void *arg, psrti_link_t *link, psrti_link_event_t event, psrt_status_t status,
                    const char *text);
    psrt_rx_t (*on_msg)(void *arg, psrti_link_t *link, psrt_msg_t *msg);
    /* Accepting side, after the token was found right: OK, or a refusal with its reason in text.
     * NULL: everyone with the key. */
    psrt_status_t (*admit)(void *arg, uint32_t task, uint64_t incarnation, char *text, size_t size);
} psrti_net_params_t;

psrt_status_t psrti_net_open(const psrti_net_params_t *params, psrti_net_t **net_p);
/* Closes all links (no callbacks) and interfaces. NULL allowed. */
void psrti_net_close(psrti_net_t *net);
void psrti_net_set_incarnation(psrti_net_t *net, uint64_t incarnation);

/* Addresses of the listening interfaces, best first. */
uint32_t psrti_net_addrs(const psrti_net_t *net, char addr[][PSRT_ADDR_MAX], uint32_t max);

/* Dials; UP or LOST follows through on_link (never from inside this call). Of the addresses that
 * can be reached the best path is tried first, then the next one. ERR_UNREACHABLE: none can be. */
psrt_status_t psrti_net_connect(psrti_net_t *net, const char addr[][PSRT_ADDR_MAX], uint32_t naddrs,
                                uint32_t task, uint32_t channel, psrti_link_t **link_p);
/* Fences and frees the link; no LOST callback; pending sends are done with ERR_CANCELED. */
void psrti_net_drop(psrti_net_t *net, psrti_link_t *link);
/* All links, the same way. */
void psrti_net_close_links(psrti_net_t *net);

/* As the transport's send; hdr->session is filled in. */
psrt_status_t psrti_net_send(psrti_net_t *net, psrti_link_t *link, psrt_hdr_t *hdr,
                             const void *data, uint64_t len, psrt_tx_t *tx);
/* Payload of a message: msg->data, or mapped. ERR_STALE: withdrawn by the sender. */
psrt_status_t psrti_net_map(psrti_net_t *net, psrt_msg_t *msg, const void **data_p);
psrt_status_t psrti_net_verify(psrti_net_t *net, const psrt_msg_t *msg);
void psrti_net_release(psrti_net_t *net, psrt_msg_t *msg);

/* Moves everything that can move; number of events. */
unsigned psrti_net_progress(psrti_net_t *net);
/* 0: who polls now takes a core from the threads that bring what it waits for. */
int psrti_net_may_poll(const psrti_net_t *net);
/* Sleeps until something arrives, psrti_net_wake, or the time is over; returns at once if something
 * is there already. */
void psrti_net_sleep(psrti_net_t *net, uint64_t timeout_ns);
/* Bytes that were sent and that a close now may withdraw. */
uint64_t psrti_net_untaken(const psrti_net_t *net);
/* Any thread. No system call unless the net sleeps. */
void psrti_net_wake(psrti_net_t *net);

/* Memory that the paths of this net carry without copying; zeroed, page aligned. */
psrt_status_t psrti_net_alloc(psrti_net_t *net, uint64_t bytes, void **ptr_p);
void psrti_net_free(psrti_net_t *net, void *ptr);

#endif
