/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of one worker: communicators, and operations that carry out the plans of plan.h over links
 * to the other workers. Pure: no I/O, clock, thread or randomness; messages leave through the env table,
 * ended operations through psrti_coll_completed. The driver calls it from one thread at a time.
 *
 * Invariants
 *  - Nobody touches the memory of an operation that ended.
 *  - Every message of a collective carries the whole signature of its call, so that disagreement is found
 *    wherever a message passes, and where none does by one that is sent when nothing moves (a probe).
 *  - A communicator lives on the links over which its members met. When one of them is lost, a member dies,
 *    calls differ or time is over, it fails: all its operations, now and later, end with the same status
 *    and text, and all members that can be reached are told. Other communicators go on, but for those over a link
 *    that was lost.
 *  - What a peer can make this rank store is bounded: `eager` bytes for each of PSRTI_COLL_AHEAD operations that
 *    were not started here, PSRTI_COLL_WINDOW chunks of those that were.
 *  - Bad input closes its link (RX_BAD) and touches nothing else. */
#ifndef PSRTI_COLL_H
#define PSRTI_COLL_H

#include <psrt/ext/transport_v1.h>
#include <psrt/psrt.h>

#include "base/list.h"
#include "kernels/kernels.h"
#include "runtime/coll/plan.h"
#include "runtime/coll/select.h"
#include "runtime/core/view.h"

#define PSRTI_COLL_AHEAD 16  /* operations a member may begin before another began them */
#define PSRTI_COLL_WINDOW 8  /* chunks of an operation that a member may be ahead of another */
#define PSRTI_COLL_NAME 255  /* bytes of a communicator's name at most */
#define PSRTI_COLL_NOTE 1024 /* bytes of a note at most */
#define PSRTI_COLL_MESSAGE (16u << 20) /* bytes of a message of several blocks at most */

typedef struct psrti_coll psrti_coll_t;
typedef struct psrti_comm psrti_comm_t;

/* What can be called: the collectives of plan.h, in their order, and these. They travel in four bits. */
typedef enum psrti_coll_what {
    PSRTI_COLL_ALLGATHERV = PSRTI_COLL_COUNT,
    PSRTI_COLL_ALLTOALLV,
    PSRTI_COLL_SEND_TO,
    PSRTI_COLL_RECV_FROM,
    PSRTI_COLL_WHATS
} psrti_coll_what_t;

/* A call. in and out, where a rank has both: apart from one another, or in place (plan.h); alltoall and
 * alltoallv may be called with the same buffer, which costs a copy. */
typedef struct psrti_coll_call {
    uint8_t what;  /* psrti_collective_t or psrti_coll_what_t              */
    uint8_t dtype; /* psrt_dtype_t; 0 for a barrier                        */
    uint8_t redop; /* psrt_redop_t; 0 where nothing is reduced             */
    uint32_t
        root; /* in the communicator; of SEND_TO and RECV_FROM the peer; 0 where there is none */
    uint64_t
        count; /* elements: of allreduce, reduce, broadcast, send, recv all, else of one rank's part */
    const void *in; /* NULL where the rank has none */
    void *out;
    /* The v ones: elements of each rank's part and where it begins, in elements. Valid until the op ended.
     * ALLGATHERV uses those of out only, alike on all ranks. */
    const uint64_t *in_counts, *in_offsets, *out_counts, *out_offsets;
} psrti_coll_call_t;

/* An operation; the owner embeds it. Zero it before it is started. */
typedef struct psrti_collop {
    psrti_list_t node;
    psrt_status_t status; /* once ended */
    int ended;
    char *text; /* of a failure, malloc'ed; the owner frees it. NULL: that of the status */
    /* the engine's */
    psrti_comm_t *comm;
    psrti_coll_call_t call;
    uint64_t seq;
    struct psrti_collrun *run; /* what it needs while it runs */
    int is_flat;               /* carried out by the driver, which waits for these members: */
    uint32_t awaited;          /* (bit set)                                                 */
} psrti_collop_t;

typedef struct psrti_coll_env {
    void *arg;
    /* A link with this worker is wanted from now on: dial (the lower rank does), and dial again after a loss,
     * until psrti_coll_wants says no. */
    void (*connect)(void *arg, uint32_t rank);
    /* As the transport's send. */
    psrt_status_t (*send)(void *arg, uint32_t rank, psrt_hdr_t *hdr, const void *data, uint64_t len,
                          psrt_tx_t *tx);
    psrt_status_t (*map)(void *arg, uint32_t rank, psrt_msg_t *msg, const void **data_p);
    psrt_status_t (*verify)(void *arg, uint32_t rank, const psrt_msg_t *msg);
    void (*release)(void *arg, uint32_t rank, psrt_msg_t *msg);
    /* Closes the link, if there is one: its pending sends are done before this returns; no LOST follows. Called
     * only from psrti_coll_progress. */
    void (*drop)(void *arg, uint32_t rank);
    /* Scratch that transports carry without a copy where they can; NULL: none. Need not be zeroed. */
    void *(*alloc)(void *arg, uint64_t bytes);
    void (*free)(void *arg, void *ptr);
    /* A note of another member, see psrti_comm_note. NULL: notes are dropped. */
    void (*note)(void *arg, psrti_comm_t *comm, uint32_t member, const void *data, uint64_t len);
} psrti_coll_env_t;

typedef struct psrti_coll_params {
    uint32_t rank, workers; /* in the job */
    uint64_t host;          /* workers with the same one share memory                 */
    uint32_t place;         /* on the host: workers whose places are near are near    */
    const psrti_kernels_t *kernels;
    uint64_t
        eager; /* bytes of an operation sent to a peer that has not begun it; the same on all ranks */
    uint64_t
        chunk; /* bytes of a block that travel at once; the same on all ranks                   */
    uint64_t
        message; /* bytes that the links take at once; the same on all ranks; 0, or above it: PSRTI_COLL_MESSAGE */
    uint64_t
        timeout; /* ns without progress after which an operation fails; 0: never                   */
    uint64_t
        grace; /* ns that a peer has to let go of the memory of a failed one before its link is closed */
    const psrti_coll_tune_t *tune; /* PSRT_COLL_TUNE; the same on all ranks; copied; NULL: none */
} psrti_coll_params_t;

psrt_status_t psrti_coll_create(const psrti_coll_params_t *params, const psrti_coll_env_t *env,
                                psrti_coll_t **coll_p);
/* All links must be gone; operations that have not ended are forgotten, communicators freed. NULL allowed. */
void psrti_coll_destroy(psrti_coll_t *coll);

/* ---- events ------------------------------------------------------------------------------------- */

/* At most one link with a worker is up; UP of a new one says that the old one is lost. */
void psrti_coll_link_up(psrti_coll_t *coll, uint32_t rank, uint64_t incarnation);
void psrti_coll_link_writable(psrti_coll_t *coll, uint32_t rank);
void psrti_coll_link_lost(psrti_coll_t *coll, uint32_t rank, psrt_status_t status,
                          const char *text);
/* A message of type PSRTI_T_COLL. */
psrt_rx_t psrti_coll_msg(psrti_coll_t *coll, uint32_t rank, psrt_msg_t *msg);
void psrti_coll_view(psrti_coll_t *coll, psrti_view_t *view);
/* Goes on with whatever can go on; after links have moved. Returns the time of the next timer (UINT64_MAX:
 * none). */
uint64_t psrti_coll_progress(psrti_coll_t *coll, uint64_t now);
/* Before the driver sleeps: copies what peers sent too early and lets go of their memory, so that no rank waits
 * for another one that waits for it. Number of messages let go. */
unsigned psrti_coll_idle(psrti_coll_t *coll);
/* The context is lost: everything ends with this status. */
void psrti_coll_fail(psrti_coll_t *coll, psrt_status_t status, const char *text);

/* Next ended operation, NULL: none. */
psrti_collop_t *psrti_coll_completed(psrti_coll_t *coll);
/* Somebody needs a link with this worker. */
int psrti_coll_wants(const psrti_coll_t *coll, uint32_t rank);
/* Messages that wait for a link that is up: before links are closed in order, they should be gone. */
uint64_t psrti_coll_unsent(const psrti_coll_t *coll);

/* ---- communicators ------------------------------------------------------------------------------ */

/* Of these workers (ranks of the job, each once, the own one among them), which all create it with the same
 * name and list. `op` ends when it is ready, or with: ERR_INVALID; ERR_NO_MEMORY; ERR_PEER_LOST a member died
 * meanwhile; ERR_TIMEOUT names who has not created it; ERR_MISMATCH other rules, another PSRT_COLL_CHUNK or eager limit.
 * *comm_p is set also if it fails then; NULL after ERR_INVALID and ERR_NO_MEMORY, which are returned. */
psrt_status_t psrti_comm_create(psrti_coll_t *coll, const char *name, const uint32_t *ranks,
                                uint32_t count, psrti_collop_t *op, psrti_comm_t **comm_p);
/* The same, with rules of its own instead of those of the engine; they are copied, and go on to what is made of it. NULL:
 * those of the engine. */
psrt_status_t psrti_comm_create_tuned(psrti_coll_t *coll, const psrti_coll_tune_t *tune,
                                      const char *name, const uint32_t *ranks, uint32_t count,
                                      psrti_collop_t *op, psrti_comm_t **comm_p);
/* Made of another one by all members of the new: with its name and rules, and never taken for one that was made of a
 * third. */
psrt_status_t psrti_comm_derive(psrti_comm_t *parent, const uint32_t *ranks, uint32_t count,
                                psrti_collop_t *op, psrti_comm_t **comm_p);
/* Of those members that the view calls alive, in their lives of the time when this one was ready, in the same order;
 * all of them call it. While it is not ready and the view changes it is proposed anew, so its members are known only
 * then. */
psrt_status_t psrti_comm_shrink(psrti_comm_t *comm, psrti_collop_t *op, psrti_comm_t **comm_p);
/* Operations that have not ended end with ERR_CANCELED (later, through psrti_coll_completed), and the others are
 * told that this member is gone: what they began before ends well if it needs nothing more from it. */
void psrti_comm_free(psrti_comm_t *comm);
/* Has operations that have not ended. */
int psrti_comm_is_in_use(const psrti_comm_t *comm);
/* The others are told as by psrti_comm_free, if it is ready and not in use: else nothing is done. Operations that begin
 * here afterwards end with ERR_CLOSED. */
void psrti_comm_leave(psrti_comm_t *comm);

psrt_status_t
psrti_comm_status(const psrti_comm_t *comm);           /* OK; ERR_BUSY: not ready; why it failed */
const char *psrti_comm_text(const psrti_comm_t *comm); /* of a failure */
uint32_t psrti_comm_rank(const psrti_comm_t *comm);
uint32_t psrti_comm_size(const psrti_comm_t *comm);
uint32_t psrti_comm_hosts(const psrti_comm_t *comm);        /* 0: not known yet */
const uint32_t *psrti_comm_ranks(const psrti_comm_t *comm); /* in the job, by member */

/* ---- operations --------------------------------------------------------------------------------- */

/* Checks nothing of the caller's arguments but what memory safety needs; ends `op` in any case, maybe before it
 * returns (psrti_coll_completed tells). */
void psrti_coll_start(psrti_comm_t *comm, const psrti_coll_call_t *call, psrti_collop_t *op);
/* The operation ends soon, and its communicator fails with this status: an operation that only some ranks carry
 * out leaves the others waiting. Nothing if it ended. */
void psrti_coll_cancel(psrti_collop_t *op, psrt_status_t status, const char *text);
/* "allreduce of 100 f32 sum, operation 7 of communicator w: rank 3 has not called it" into buf. */
void psrti_coll_describe(const psrti_collop_t *op, char *buf, size_t size);

/* Sends a few bytes to a member, in order with everything else between the two. */
psrt_status_t psrti_comm_note(psrti_comm_t *comm, uint32_t member, const void *data, uint64_t len);
/* Fails the communicator on all members. */
void psrti_comm_fail(psrti_comm_t *comm, psrt_status_t status, const char *text);

/* "allreduce of 100 f32 sum", "broadcast of 3 f64 from rank 1" into buf. */
void psrti_coll_call_text(const psrti_coll_call_t *call, char *buf, size_t size);

/* ---- calls that the driver carries out ----------------------------------------------------------- */

/* They go through shared memory (flat.h). The engine counts them, in the order of the others, so that a member that
 * carries such a call out with messages is answered with ERR_MISMATCH on both. */

/* One that needs nothing more of the engine. */
void psrti_coll_count(psrti_comm_t *comm, const psrti_coll_call_t *call);
/* An operation that begins later: it can be canceled and described, before it is started or begun. */
void psrti_coll_queue(psrti_comm_t *comm, const psrti_coll_call_t *call, psrti_collop_t *op);
/* It is the driver's, and begins now; `counted`: the last call that was counted is this one. */
void psrti_coll_begin(psrti_collop_t *op, int counted);
/* It has waited since then for these members: the communicator fails if one of all freed it before this call, or if time is over. */
void psrti_coll_watch(psrti_collop_t *op, uint32_t members, uint64_t since, uint64_t now);
/* A member called something else: fails the communicator. */
void psrti_coll_differ(psrti_comm_t *comm, uint32_t member, const psrti_coll_call_t *theirs,
                       const psrti_coll_call_t *ours);
/* Collectives (bit set) for which the communicator's rules name one algorithm whatever the size: those want
 * it. */
uint32_t psrti_comm_tuned(const psrti_comm_t *comm);
/* Grows whenever a communicator fails. */
uint64_t psrti_coll_failures(const psrti_coll_t *coll);
/* The calls until now were the driver's own: texts count from here. */
void psrti_comm_hide_calls(psrti_comm_t *comm);

#endif
