/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by net.c (interfaces, sleeping, memory) and net_link.c (sessions). */
#ifndef PSRTI_NET_INTERNAL_H
#define PSRTI_NET_INTERNAL_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/map.h"
#include "base/pages.h"
#include "runtime/core/net.h"
#include "runtime/core/session.h"

#define NET_MAX_PATHS 8
#define NET_MAX_PENDING 64 /* accepted connections without a session, refused ones included */
#define NET_POLL_CORES 4 /* a poller and a transport's thread on each side of a link of one host */
#define NET_BULK (64u << 10) /* a payload that takes longer to move than a thread to be woken */
#define NET_BULK_TURNS 256u  /* messages after such a one that are part of the same transfer   */
#define NET_QUIET_TURNS 64   /* a path without endpoints is looked at once in so many turns */
#define NET_HELLO_TIMEOUT (5 * PSRTI_NS_PER_S)
#define NET_REFUSED_LINGER PSRTI_NS_PER_S

/* One transport of the net. */
typedef struct net_path {
    const psrt_transport_ops_t *ops;   /* the fault wrapper, if there is one */
    const psrt_transport_ops_t *fault; /* to be destroyed; NULL: not wrapped */
    psrt_iface_t *iface;
    uint32_t open; /* endpoints of our links */
} net_path_t;

typedef enum link_state {
    LINK_DIALING, /* ep_open called, the peer's HELLO is due  */
    LINK_GREETED, /* the peer said HELLO, ours is not out yet */
    LINK_HELLO,   /* our HELLO is out                         */
    LINK_FAILED,  /* no address is left; told by progress     */
    LINK_PENDING, /* accepted, our HELLO is out               */
    LINK_REFUSED, /* accepted and refused; the peer hangs up  */
    LINK_UP,
    LINK_DEAD /* in the graveyard                         */
} link_state_t;

/* Where a dialled link may still try. Freed when it is up. */
typedef struct candidates {
    uint32_t count, next;
    struct {
        uint32_t path;
        char addr[PSRT_ADDR_MAX];
    } at[];
} candidates_t;

typedef struct net_link {
    psrti_link_t pub;  /* first */
    psrti_list_t node; /* in exactly one of the net's lists */
    psrti_net_t *net;
    psrt_ep_t *ep; /* NULL: closed */
    uint32_t path;
    link_state_t state;
    int accepted;
    uint64_t deadline;         /* of the states before UP */
    psrti_acceptor_t acceptor; /* which side that is, `accepted` says */
    psrti_hello_t hello;       /* dialled: what was said */
    candidates_t *candidates;
    psrt_status_t why; /* last failure of a dialled link */
    char text[160];
} net_link_t;

struct psrti_net {
    psrti_net_params_t p;
    psrti_level_t level;
    net_path_t paths[NET_MAX_PATHS]; /* best first */
    uint32_t npaths;
    uint32_t next_session;
    uint32_t npending;
    psrti_list_t dialing, pending, up, graveyard;
    unsigned cores; /* that this process may use */
    uint32_t turns; /* of progress since every path had its turn */
    uint32_t bulk;  /* messages until the last large payload no longer counts */
    int busy;       /* inside progress: links are freed at its end */
    int wake_fd;
    atomic_int sleeping, woken;
    psrti_map_t allocs;  /* by address */
    psrti_pages_t pages; /* those of no path */
};

/* Every message of a session, either way. */
static inline void psrti_net_note(psrti_net_t *net, uint64_t len)
{
    net->bulk = len >= NET_BULK ? NET_BULK_TURNS : net->bulk - (net->bulk != 0);
}

/* net_link.c */
psrt_rx_t psrti_net_on_msg(void *arg, psrt_msg_t *msg);
void psrti_net_on_ep(void *arg, psrt_ep_t *ep, psrt_ep_event_t event, psrt_status_t status);
unsigned psrti_net_timers(psrti_net_t *net, uint64_t now);
/* Next deadline of a handshake, UINT64_MAX for none. */
uint64_t psrti_net_next_deadline(const psrti_net_t *net);
void psrti_net_bury(psrti_net_t *net);

#endif
