/* SPDX-License-Identifier: Apache-2.0 */
/* What worker.c, baton.c and op.c share. */
#ifndef PSRTI_WORKER_INT_H
#define PSRTI_WORKER_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include <psrt/comm.h>

#include "base/spin.h"
#include "runtime/cluster/member.h"
#include "runtime/coll/coll.h"
#include "runtime/core/net.h"
#include "runtime/worker/worker.h"

/* Left for the holder of the baton. */
typedef struct psrti_note {
    psrti_list_t node;
    enum {
        PSRTI_NOTE_SUBMIT, /* op is set                       */
        PSRTI_NOTE_VIEW,   /* view is set                     */
        PSRTI_NOTE_MOVE,   /* a fusion has something to do; part of it */
        PSRTI_NOTE_FAIL    /* table (0: all), status and text */
    } kind;
    psrt_op_t *op;
    psrti_view_t *view;
    uint32_t table;
    psrt_status_t status;
    char *text; /* of FAIL, malloc'ed; NULL: that of the status */
} psrti_note_t;

struct psrt_op {
    psrti_cop_t cop;
    psrti_list_t node; /* in w->ops */
    psrti_worker_t *worker;
    psrt_op_fn callback;
    void *arg;
    atomic_int done; /* result and text may be read           */
    int refs;        /* of the user and of the runtime; w->lock */
    size_t count;
    psrti_transfer_t one, *transfers; /* &one, or malloc'ed */
    psrti_note_t note;
    struct psrti_wcollop
        *coll; /* a collective or the creation of a communicator, around this; NULL: transfers */
    struct psrti_wfused *fused; /* a tensor of a fusion, around this; NULL: none */
};

/* Its result is kept where that of transfers is. */
typedef struct psrti_wcollop {
    psrt_op_t op; /* first */
    psrti_collop_t core;
    psrti_coll_call_t call;
    psrti_comm_t *comm;
    psrt_comm_t *makes;  /* creation: the handle; NULL: a collective             */
    psrt_comm_t *handle; /* of a collective; NULL: a creation                    */
    enum {
        PSRTI_CALL_NEW,
        PSRTI_CALL_BEGUN,    /* in shared memory by its caller         */
        PSRTI_CALL_RUNS,     /* in shared memory                       */
        PSRTI_CALL_MESSAGES  /* waits for its turn to send messages    */
    } stage;                 /* of a collective                        */
    psrti_list_t small_node; /* in the queue of small.c                */
    struct colour_key {
        int32_t colour, key;
    } own, *all;                  /* split: of the members of the parent; NULL: not asked */
    uint64_t *lists;              /* the v ones: counts and offsets; NULL: none           */
    struct psrti_wbucket *bucket; /* of a fusion, around this, and no operation of the user's */
} psrti_wcollop_t;

/* A communicator as the user holds it. */
struct psrt_comm {
    psrti_list_t node; /* in w->comms */
    psrti_worker_t *worker;
    psrti_comm_t *core;   /* NULL: not made (yet), or a split gave none  */
    int making;           /* the operation of its creation has not ended */
    int freed;            /* by the user, meanwhile                      */
    uint32_t rank, ranks; /* once it is ready                            */
    atomic_int ready;
    struct psrti_small *small; /* NULL: none                                  */
    atomic_int small_on;       /* small calls go through it                   */
    atomic_int
        slow; /* operations that are not started, or in its queue: callers must not pass them */
};

/* Another worker. */
typedef struct psrti_wpeer {
    psrti_link_t *link; /* NULL: none */
    int up;
    uint64_t incarnation;      /* of the link              */
    uint64_t dial_at, backoff; /* 0: not waiting to dial */
} psrti_wpeer_t;

/* A declaration that waits for the coordinator; on w->pending. */
typedef struct psrti_pending {
    psrti_list_t node;
    uint64_t request;
    size_t count;
    int answered;
    uint32_t *ids;
    uint64_t *first_steps;
    psrt_status_t status;
    char text[PSRTI_NAME_MAX + 257];
} psrti_pending_t;

typedef struct psrti_wlink {
    psrti_link_t *link;
    uint64_t redial; /* when to dial again; 0: not waiting */
    uint64_t backoff, incarnation;
    uint64_t down_since; /* wanted, but not up; 0: up or not wanted */
    char why[160];       /* what the last try ended with            */
} psrti_wlink_t;

struct psrti_worker {
    psrti_worker_start_t p;
    psrti_member_t *member;
    psrti_net_t *net;
    const psrti_kernels_t *kernels;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* baton free, an op done, a declaration answered, the end */
    int busy;               /* somebody holds the baton           */
    uint64_t holds;         /* times it was taken                 */
    pthread_t holder;       /* if busy: who                       */
    int nested;             /* times its callbacks took it again  */
    int sleepers;           /* in cond wait on `changed`          */
    int crowded;            /* more pollers than cores here, a copy for the keeper */
    psrti_list_t inbox;     /* notes                              */
    atomic_int filled;      /* the inbox has something            */
    atomic_int wanted;      /* callers that sleep: the keeper gives way              */
    atomic_int takers;      /* those in psrti_baton_take: everybody gives way        */
    psrti_list_t ops;       /* that are not freed                 */
    psrti_list_t pending;
    uint64_t next_request;
    uint64_t live_ops;    /* submitted, not delivered            */
    psrt_status_t status; /* of the context                    */
    char text[PSRTI_NAME_MAX + 257];
    psrt_status_t failed; /* first failed op since the last barrier */
    char failed_text[PSRTI_NAME_MAX + 257];

    psrti_view_t *told; /* of the member's thread: last view of which an event told */

    /* of the holder of the baton */
    psrti_client_t *client;
    psrti_view_t *view;
    psrti_wlink_t *links; /* by owner */
    uint64_t next_redial, timer;
    unsigned unpolled; /* submissions since the links were looked at */
    psrti_coll_t *coll;
    psrti_wpeer_t *peers; /* by rank */
    psrti_list_t comms, fusions, smalls, active_smalls;
    unsigned nsmalls;
    uint64_t failures_seen; /* of communicators, by small.c */
    uint32_t
        meetings; /* communicators, links to workers, collectives: without one there is nothing to move */
    uint64_t next_peer_dial;
    psrti_spin_t spin;
    _Atomic uint64_t last_progress; /* read by the keeper */

    pthread_t keeper;
    int keeper_started, keeper_idle, stop;
    pthread_cond_t keeper_cond;
};

/* baton.c */
/* Takes the baton for a moment; whoever waits with it gives way. A callback runs with the baton and may
 * take it again. Returns with w->lock released. */
void psrti_baton_take(psrti_worker_t *w);
/* Takes it if nobody has it or waits to take it. w->lock is held before and after. */
int psrti_baton_try(psrti_worker_t *w);
void psrti_baton_give(psrti_worker_t *w);
/* With the baton: what others left. The holder reads it before it gives the baton back, so only notes
 * of the member's thread can be older than a submission that finds the baton free. */
unsigned psrti_inbox_read(psrti_worker_t *w);
/* With the baton: does everything that can be done now; number of events. */
unsigned psrti_baton_move(psrti_worker_t *w);
/* With the baton: sends what can be sent now, and does not look at what came. */
void psrti_baton_send(psrti_worker_t *w);
/* With the baton: moves and sleeps until *done, the deadline, or another caller wants to take it or
 * (give_way) to wait with it. */
void psrti_baton_run(psrti_worker_t *w, atomic_int *done, uint64_t deadline, int give_way);
void *psrti_keeper_main(void *arg);
/* Any thread. */
void psrti_note_post(psrti_worker_t *w, psrti_note_t *note);
/* Waits on `changed` with w->lock held; ERR_TIMEOUT past the deadline. */
psrt_status_t psrti_worker_sleep(psrti_worker_t *w, uint64_t deadline);

/* worker.c: the context is lost from now on; the first reason stays. The caller fails the client. */
void psrti_worker_lose(psrti_worker_t *w, psrt_status_t status, const char *text);
void psrti_worker_event(psrti_worker_t *w, int event, const char *text);

/* links.c: with the baton */
psrt_status_t psrti_links_open(psrti_worker_t *w);
void psrti_links_view(psrti_worker_t *w, psrti_view_t *view);
void psrti_links_redial(psrti_worker_t *w, uint64_t now);
void psrti_links_drop(psrti_worker_t *w); /* all */
extern const psrti_client_env_t psrti_links_env;

/* peers.c: links to other workers, with the baton */
psrt_status_t psrti_peers_open(psrti_worker_t *w);
void psrti_peers_on_link(psrti_worker_t *w, psrti_link_t *link, psrti_link_event_t event,
                         psrt_status_t status, const char *text);
psrt_rx_t psrti_peers_on_msg(psrti_worker_t *w, psrti_link_t *link, psrt_msg_t *msg);
void psrti_peers_view(psrti_worker_t *w);
void psrti_peers_redial(psrti_worker_t *w, uint64_t now);
void psrti_peers_drop(psrti_worker_t *w); /* all */
extern const psrti_coll_env_t psrti_peers_env;

/* comm.c: with the baton */
psrt_status_t psrti_comms_open(psrti_worker_t *w);
/* Communicators with operations that have not ended. */
uint64_t psrti_comms_in_use(psrti_worker_t *w);
/* The context ends: communicators that are not in use are left in order. */
void psrti_comms_leave(psrti_worker_t *w);
void psrti_comms_close(psrti_worker_t *w);
void psrti_comm_op_start(psrti_wcollop_t *op);
unsigned psrti_comms_move(psrti_worker_t *w, uint64_t now); /* and sets w->timer */

/* fusion.c: with the baton */
unsigned psrti_fusions_move(psrti_worker_t *w, uint64_t now); /* and sets w->timer */
void psrti_fusions_close(psrti_worker_t *w);
void psrti_fusion_note(psrti_worker_t *w, const psrti_comm_t *comm, uint32_t member,
                       const void *data, uint64_t len);
void psrti_fusion_bucket_ended(struct psrti_wbucket *bucket);
void psrti_fusion_cancel(const psrt_op_t *op);
void psrti_fusion_describe(const psrt_op_t *op, char *buf, size_t size);

/* op.c */
void psrti_op_start(psrti_worker_t *w, psrt_op_t *op);  /* with the baton */
void psrti_op_init(psrti_worker_t *w, psrt_op_t *op);   /* zeroed before */
void psrti_op_submit(psrti_worker_t *w, psrt_op_t *op); /* starts it, or leaves it in the inbox */
unsigned psrti_ops_deliver(psrti_worker_t *w);          /* with the baton; those that ended */
void psrti_op_deliver(psrti_worker_t *w,
                      psrt_op_t *op);   /* one that is not of the client, likewise */
void psrti_ops_free(psrti_worker_t *w); /* all have ended */
/* Around a callback of the user; `enter` returns what `leave` takes. */
const psrti_worker_t *psrti_callback_enter(const psrti_worker_t *w);
void psrti_callback_leave(const psrti_worker_t *outer);

static inline uint64_t psrti_deadline(uint64_t timeout_ns)
{
    uint64_t now = psrti_now_ns();
    return timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

#endif
