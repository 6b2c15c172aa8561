/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of inproc: one link with two sides. Each side belongs to one interface and is the
 * endpoint that its user sees. A send appends a node to the receiving side's `rx`; the receiver's
 * progress delivers it; a finished node goes back to the sender's `done` if somebody waits for it.
 *
 * Locks, in this order: the registry's, link.lock, iface.lock. None is held during a callback.
 */
#ifndef PSRTI_INPROC_LINK_H
#define PSRTI_INPROC_LINK_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/map.h"
#include <psrt/ext/transport_v1.h>

#define PSRTI_INPROC_CLOSE_WAIT_NS PSRTI_NS_PER_S /* ep_close waits this long for a holder */

typedef struct psrti_inproc_iface {
    psrt_iface_t base;
    psrt_iface_params_t params;
    uint64_t id;
    psrti_list_t registry_link;
    psrti_list_t eps;     /* sides seen by the user; owner thread only */
    psrti_map_t received; /* id -> node being delivered or held; owner thread only */
    uint64_t next_id;
    uint64_t close_until; /* while iface_close runs: one deadline for all endpoints */
    atomic_int fencing;   /* the owner waits for a reader of its payloads */
    int event_fd;
    pthread_mutex_t lock; /* the rest */
    psrti_list_t inbox;   /* sides with something to do */
    int armed;            /* the owner sleeps or is about to: write event_fd */
    int signaled;         /* event_fd was written and not yet read */
} psrti_inproc_iface_t;

/* Guarded by link.lock except where said. */
typedef struct psrti_inproc_side {
    psrt_ep_t base;
    struct psrti_inproc_link *link;
    psrti_inproc_iface_t *iface;       /* not valid any more once closed */
    uint32_t task;                     /* of iface, for the log lines of either side */
    psrti_list_t ep_link;              /* of iface.eps; owner thread only */
    psrti_list_t inbox_link;           /* of iface.inbox; iface.lock */
    psrti_list_t rx;                   /* nodes sent to this side */
    psrti_list_t held;                 /* nodes whose HOLD has not ended */
    struct psrti_inproc_node *reading; /* inside on_msg */
    pthread_t reader;                  /* thread that received last */
    psrti_list_t out;      /* referenced payloads of this side that the peer may still read */
    psrti_list_t done;     /* finished nodes of this side whose tx waits for its status */
    psrti_list_t spare;    /* unused nodes of this side */
    uint64_t inflight;     /* payload bytes sent and not finished */
    unsigned backlog;      /* nodes sent and not finished */
    psrt_status_t lost;    /* not OK: no sends, LOST is due after what is in rx and done */
    unsigned incoming : 1; /* accepting side that its interface has not seen yet */
    unsigned up_due : 1, up : 1, want_write : 1, write_due : 1, lost_told : 1, closed : 1;
} psrti_inproc_side_t;

typedef struct psrti_inproc_link {
    pthread_mutex_t lock;
    pthread_cond_t finished;     /* a payload was given back; ep_close may wait */
    atomic_int refs;             /* one a side until closed, one for a progress that is in it */
    psrti_inproc_side_t side[2]; /* dialler, acceptor */
} psrti_inproc_link_t;

/* Both sides refer to it; NULL without memory. Side 1 is incoming until its interface ran it. */
psrti_inproc_link_t *psrti_inproc_link_new(psrti_inproc_iface_t *dialler,
                                           psrti_inproc_iface_t *acceptor);
/* Tells the owner of `side` that there is something to do. link.lock is held. */
void psrti_inproc_post(psrti_inproc_side_t *side);
/* New sends are refused and LOST follows what is already there. link.lock is held. */
void psrti_inproc_lose(psrti_inproc_side_t *side, psrt_status_t status);
/* Handles at most `budget` events of a side that was in the inbox; returns how many it handled. */
unsigned psrti_inproc_run(psrti_inproc_side_t *side, unsigned budget);
/* Gives back all that this side received and has not finished; the user reads none of it any more. */
void psrti_inproc_give_back(psrti_inproc_side_t *side);
/* Ends a side that its interface never saw: nobody to tell, nothing to fence. */
void psrti_inproc_drop_incoming(psrti_inproc_side_t *side, psrt_status_t status);

/* Slots of the transport table. */
void psrti_inproc_ep_close(psrt_ep_t *ep);
psrt_status_t psrti_inproc_send(psrt_ep_t *ep, const psrt_hdr_t *hdr, const void *data,
                                uint64_t len, uint32_t flags, psrt_tx_t *tx);
void psrti_inproc_release(psrt_iface_t *iface, psrt_msg_t *msg);
psrt_status_t psrti_inproc_verify(psrt_iface_t *iface, const psrt_msg_t *msg);

#endif
