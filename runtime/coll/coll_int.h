/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the engine share. From the outside in: a worker of the job is a peer; a communicator has
 * members; its calls are numbered in lanes; a call that runs is a run, each of its chunks an exec, each step of an
 * exec a cell; how the steps follow is a sched, which is kept for the next call. */
#ifndef PSRTI_COLL_INT_H
#define PSRTI_COLL_INT_H

#include "base/map.h"
#include "base/util.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/select.h"
#include "transport/frame.h"

#define PSRTI_COLL_SMALL 4096 /* payloads up to this are copied when they come too early */
#define PSRTI_COLL_LINE 64    /* bytes at whose multiples data are cut */
#define PSRTI_COLL_ACTIVE 4   /* chunks of an operation that are worked on at once       */
#define PSRTI_COLL_HISTORY 64 /* calls remembered after they ended                       */
#define PSRTI_COLL_TEXT 512   /* bytes of a failure's text                               */
#define PSRTI_COLL_NOBODY UINT32_MAX
#define PSRTI_FLAT_ALGORITHM 0xff /* of a call that went another way */

typedef enum psrti_coll_msg { /* hdr.seq_floor; docs/wire-format.md */
                              PSRTI_COLL_OPEN = 1,
                              PSRTI_COLL_DATA = 2,
                              PSRTI_COLL_READY = 3,
                              PSRTI_COLL_ABORT = 4,
                              PSRTI_COLL_CLOSE = 5,
                              PSRTI_COLL_NOTED = 6
} psrti_coll_msg_t;

/* ---- messages on their way ---------------------------------------------------------------------- */

/* In the queue of a link that said AGAIN. */
typedef struct psrti_collout {
    psrti_list_t node;
    int is_cell; /* part of a cell, else of a psrti_collctl_t */
} psrti_collout_t;

typedef struct psrti_collctl {
    psrti_collout_t out;
    psrt_hdr_t hdr;
    char data[];
} psrti_collctl_t;

/* A message that came before it was wanted: held in the transport, or copied. */
typedef struct psrti_parcel {
    psrti_list_t node; /* early list of a lane, or alone */
    psrti_list_t held; /* in coll->held                  */
    uint32_t rank;
    int is_held;
    psrt_msg_t msg; /* copied: data points to `small` or `large` */
    void *large;
    _Alignas(64) char small[PSRTI_COLL_SMALL];
} psrti_parcel_t;

/* A member whose link was down when it should have been told of a failure. */
typedef struct psrti_colldebt {
    psrti_list_t node;
    uint64_t incarnation;
    psrti_collctl_t *ctl;
} psrti_colldebt_t;

/* What a member says of itself in its OPEN. */
typedef struct psrti_collcard {
    uint32_t handle; /* of its communicator */
    uint64_t host;
    uint32_t place, tune; /* tune: hash of its rules */
    uint64_t message, chunk, eager;
} psrti_collcard_t;

/* An OPEN that no communicator here has asked for yet. */
typedef struct psrti_collopen {
    psrti_list_t node;
    uint64_t key;
    psrti_collcard_t card;
} psrti_collopen_t;

typedef struct psrti_collpeer {
    int up;
    uint64_t incarnation;
    uint32_t wants; /* communicators and debts that need a link */
    uint32_t nopens;
    psrti_list_t queue, opens, debts;
} psrti_collpeer_t;

struct psrti_coll {
    psrti_coll_params_t p;
    psrti_coll_tune_t tune;
    psrti_coll_env_t env;
    psrti_view_t *view;
    psrti_collpeer_t *peers; /* by rank of the job */
    psrti_map_t by_handle;   /* communicators */
    uint32_t last_handle;
    uint64_t now, next_check;
    uint64_t failures; /* of communicators */
    psrti_list_t comms;
    psrti_list_t meeting; /* those whose members have not all come, oldest first */
    psrti_list_t busy;    /* those for which time passes */
    psrti_list_t ready;   /* execs that may go on */
    psrti_list_t ended;   /* operations */
    psrti_list_t held;    /* parcels */
    psrti_list_t spare;   /* parcels */
    uint32_t nspare;
    int is_over; /* is being destroyed: operations are forgotten */
    uint64_t unsent;
    psrt_status_t status; /* of the context */
    char text[PSRTI_COLL_TEXT];
};

/* ---- schedules ---------------------------------------------------------------------------------- */

typedef struct psrti_collmove {
    uint8_t kind; /* psrti_coll_kind_t */
    uint32_t way; /* of a message: which of sched->ways */
    psrti_coll_ref_t src, dst;
    uint32_t nblocks;
    uint32_t like;  /* a block of the data that is as long as the first one of this */
    uint32_t index; /* of a message among those of its way and direction */
    uint32_t round;
} psrti_collmove_t;

/* Between this rank and another one. */
typedef struct psrti_collway {
    uint32_t member;
    uint32_t first_recv, nrecvs; /* in sched->recvs: moves that receive, in order */
    uint32_t nblocks;            /* received in all of them                        */
    uint32_t nsends;
} psrti_collway_t;

typedef struct psrti_collsched {
    psrti_list_t node; /* in comm->scheds, last used first */
    uint8_t what, algorithm;
    int split;    /* one block a move                          */
    int is_apart; /* IN and OUT are never the same memory there */
    uint32_t root, users;
    uint32_t nblocks, tmp, rounds, nmoves, nways;
    psrti_collmove_t *moves;
    uint32_t *round_at; /* rounds + 1: first move of each                                         */
    uint32_t *fence_at; /* rounds + 1: in `fences`, the sends that must be over before each round */
    uint32_t *fences;
    uint32_t *recvs;
    psrti_collway_t *ways;
    uint32_t *way_of; /* by member; NOBODY: none */
    psrti_list_t spare_runs, spare_execs;
} psrti_collsched_t;

/* ---- what runs ---------------------------------------------------------------------------------- */

typedef enum psrti_cell_state {
    PSRTI_CELL_IDLE,
    PSRTI_CELL_WAITING, /* a send: for the other's READY */
    PSRTI_CELL_QUEUED,  /* for its link                  */
    PSRTI_CELL_SENT,    /* not done yet                                   */
    PSRTI_CELL_DONE
} psrti_cell_state_t;

typedef struct psrti_collcell {
    psrt_tx_t tx;
    psrti_collout_t out;
    struct psrti_collexec *exec;
    psrti_parcel_t *parcel; /* of a receive: came already */
    uint8_t state;
} psrti_collcell_t;

typedef struct psrti_collexec {
    psrti_list_t node; /* in coll->ready, or spare */
    struct psrti_collrun *run;
    uint64_t chunk, lo, hi; /* elements of the data (cut) or of each part */
    uint64_t part;          /* cut: elements of a block                    */
    int is_active, is_over;
    uint32_t round, left; /* receives of the round that are missing */
    uint32_t pending;     /* sends that are not done                */
    char *base[3];        /* by psrti_coll_buffer_t: block b is at base + b * stride elements */
    uint64_t stride[3];
    void *scratch;
    uint64_t scratch_bytes;
    psrti_collcell_t cells[]; /* by move */
} psrti_collexec_t;

typedef struct psrti_collwayrun {
    uint64_t sent;        /* bytes */
    uint64_t may_send;    /* chunks below this */
    int is_ready;         /* the other began the call */
    uint64_t granted;     /* chunks that it may send  */
    psrti_list_t waiting; /* cells */
} psrti_collwayrun_t;

/* A call as others see it. */
typedef struct psrti_collsig {
    uint8_t what, dtype, redop, algorithm;
    uint32_t root;
    uint64_t count;
} psrti_collsig_t;

typedef enum psrti_coll_layout {
    PSRTI_LAYOUT_CUT,
    PSRTI_LAYOUT_PARTS,
    PSRTI_LAYOUT_V
} psrti_coll_layout_t;

typedef struct psrti_collcut {
    uint8_t layout;
    uint64_t elements; /* of a chunk */
    uint64_t chunks;   /* at least 1 */
} psrti_collcut_t;

typedef struct psrti_collrun {
    psrti_list_t node; /* spare, or comm->dying */
    psrti_collop_t *op;
    psrti_collsched_t *sched;
    struct psrti_colllane *lane;
    psrti_collsig_t sig;
    psrti_collcut_t cut;
    uint8_t dtype;         /* of the messages */
    uint8_t is_wide;       /* which is not that of the data */
    uint8_t is_broken;     /* a send failed: the loss of its link follows, or `refused` is set */
    uint8_t has_moved;     /* since the time was looked at */
    uint64_t since;        /* when it was last known to move */
    psrt_status_t refused; /* what its link said of a message, not OK: comm->text says it, too */
    uint32_t size;         /* bytes of an element in a message */
    uint64_t base;         /* chunks below it are over  */
    uint64_t opened;       /* chunks below it are begun */
    uint32_t active;       /* those of them that are not over */
    uint32_t inflight;     /* sends that are not done */
    void *copied;          /* input of a call in place whose plan cannot be carried out there */
    psrti_collexec_t *execs[PSRTI_COLL_WINDOW]; /* by chunk */
    psrti_collwayrun_t ways[];
} psrti_collrun_t;

/* ---- communicators ------------------------------------------------------------------------------ */

typedef struct psrti_collslot {
    psrti_collop_t *op; /* runs */
    psrti_list_t early; /* parcels of calls that were not begun */
} psrti_collslot_t;

/* Calls that are numbered together: the collectives of a communicator, or the sends or receives of a pair. */
typedef struct psrti_colllane {
    uint64_t last; /* number of the last call                 */
    uint64_t next; /* number that begins next                 */
    psrti_list_t waiting;
    uint32_t running;
    uint32_t mask; /* slots - 1 */
    psrti_collslot_t *slots;
} psrti_colllane_t;

/* What two members know of one another's calls in a lane. */
typedef struct psrti_collknown {
    uint64_t heard; /* highest number that the other is known to have begun */
    uint64_t told;  /* highest one of ours that the other knows             */
    int is_blocked; /* a send waits for `heard` */
} psrti_collknown_t;

typedef struct psrti_pair {
    psrti_colllane_t send, recv;
    psrti_collslot_t send_slot, recv_slot;
    psrti_collknown_t send_known, recv_known;
} psrti_pair_t;

typedef struct psrti_collmember {
    uint32_t handle; /* of its communicator; 0: has not come */
    uint32_t place;
    uint64_t host, incarnation;
    psrti_collknown_t known;
    psrti_pair_t *pair;    /* made when first used */
    uint64_t early;        /* bytes and messages of it that were not wanted yet */
    uint64_t closed_at;    /* calls it made                       */
    uint64_t closed_sends; /* to this rank                      */
    uint32_t closed_recvs; /* from this rank, the lowest 32 bits */
    uint8_t is_closed, told_us, seen_alive;
} psrti_collmember_t;

typedef struct psrti_collsurvivor {
    uint32_t rank;        /* in the job */
    uint64_t incarnation; /* 0: not known, it was never met */
} psrti_collsurvivor_t;

typedef struct psrti_collpast {
    uint64_t seq;
    psrti_collsig_t sig;
} psrti_collpast_t;

struct psrti_comm {
    psrti_coll_t *coll;
    psrti_list_t node, meeting_node, busy_node;
    enum { PSRTI_COMM_MEETING, PSRTI_COMM_READY, PSRTI_COMM_FAILED } state;
    uint32_t handle, rank, size;
    uint64_t key;
    char *name;
    char title[PSRTI_COLL_NAME + 24]; /* of texts */
    uint32_t *ranks;                  /* in the job, by member */
    uint32_t *place;                  /* member by rank in the job */
    psrti_collmember_t *members;
    uint32_t missing;            /* members that have not come */
    uint64_t origin;             /* of the one that it was made from; 0: none */
    psrti_collsurvivor_t *wider; /* of a shrink: members of the one before */
    uint32_t nwider;
    psrti_collop_t *creation;
    psrt_status_t status;
    char text[PSRTI_COLL_TEXT];
    int is_freed;
    psrti_list_t dying; /* runs of failed calls that wait for sends to be done */
    uint32_t doomed;    /* their number */
    uint64_t since;     /* while it assembles, or has failed: when something last happened */
    int has_moved;
    uint64_t early_max;      /* of a member */
    psrti_coll_topo_t *topo; /* once ready */
    psrti_coll_tune_t *tune; /* its own rules; NULL: those of the engine */
    uint64_t hidden;         /* calls that the user did not make */
    psrti_colllane_t lane;
    psrti_collslot_t slots[PSRTI_COLL_AHEAD];
    psrti_collpast_t past[PSRTI_COLL_HISTORY];
    psrti_list_t scheds;
    uint32_t nscheds;
};

/* coll.c */
void psrti_coll_drain(psrti_coll_t *coll);
void psrti_coll_end(psrti_collop_t *op, psrt_status_t status, const char *text);
void psrti_comm_busy(psrti_comm_t *comm);
void psrti_lane_pump(psrti_comm_t *comm, psrti_colllane_t *lane);

/* counted.c */
void psrti_comm_remember(psrti_comm_t *comm, uint64_t seq, psrti_collsig_t sig);
void psrti_comm_pass_counted(psrti_comm_t *comm);
unsigned long long psrti_comm_number(const psrti_comm_t *comm, uint8_t what, uint64_t seq);

/* peer.c */
void psrti_peer_tell(psrti_coll_t *coll, uint32_t rank, psrt_hdr_t *hdr, const void *data,
                     uint64_t len);
void psrti_peer_owe(psrti_coll_t *coll, uint32_t rank, uint64_t incarnation, psrt_hdr_t *hdr,
                    const void *data, uint64_t len);
void psrti_peer_forgive(psrti_coll_t *coll, uint32_t rank);
void psrti_peer_want(psrti_coll_t *coll, uint32_t rank);
void psrti_peer_send_cell(psrti_coll_t *coll, uint32_t rank, psrti_collcell_t *cell);
void psrti_peer_unqueue(psrti_coll_t *coll, psrti_collcell_t *cell);

/* parcel.c */
psrti_parcel_t *psrti_parcel_new(psrti_coll_t *coll, uint32_t rank, const psrt_msg_t *msg,
                                 psrt_rx_t *rx_p);
psrt_status_t psrti_parcel_copy(psrti_coll_t *coll, psrti_parcel_t *parcel);
void psrti_parcel_free(psrti_coll_t *coll, psrti_parcel_t *parcel);
void psrti_parcels_copy_from(psrti_coll_t *coll, uint32_t rank);

/* meet.c */
psrt_rx_t psrti_meet_open(psrti_coll_t *coll, uint32_t rank, const psrt_msg_t *msg);
void psrti_meet_send_opens(psrti_coll_t *coll, uint32_t rank);
void psrti_meet_lost(psrti_comm_t *comm, uint32_t member);
void psrti_meet_withdrawn(psrti_coll_t *coll, uint32_t rank, const psrt_hdr_t *hdr,
                          const char *data);
void psrti_comm_view(psrti_comm_t *comm);

/* comm.c */
void psrti_lane_init(psrti_colllane_t *lane, psrti_collslot_t *slots, uint32_t count);
psrti_pair_t *psrti_comm_pair(psrti_comm_t *comm, uint32_t member);
const char *psrti_member_name(const psrti_comm_t *comm, uint32_t member, char buf[128]);
int psrti_coll_lives(const psrti_view_t *view, uint32_t rank, uint64_t incarnation);
void psrti_comm_want(psrti_comm_t *comm);
void psrti_comm_unwant(psrti_comm_t *comm);
void psrti_comm_end(psrti_comm_t *comm, psrt_status_t status, const char *text, uint32_t told_by);
void psrti_comm_undoom(psrti_comm_t *comm);
void psrti_comm_forget(psrti_comm_t *comm);
int psrti_comm_has_work(const psrti_comm_t *comm);
uint32_t psrti_comm_stuck_at(const psrti_comm_t *comm);
void psrti_comm_drop_early(psrti_comm_t *comm, uint32_t member);
void psrti_comm_link_lost(psrti_comm_t *comm, uint32_t member, psrt_status_t status,
                          const char *text);
void psrti_comm_withdrawn(psrti_comm_t *comm, uint32_t member, psrt_status_t status);
void psrti_comm_fail_memory(psrti_comm_t *comm, const psrti_collop_t *op);
void psrti_comm_bad_early(psrti_comm_t *comm, uint32_t member);
void psrti_comm_closed(psrti_comm_t *comm, uint32_t member, const psrt_hdr_t *hdr);
int psrti_comm_check_closed(psrti_comm_t *comm, const psrti_collop_t *op);
void psrti_comm_aborted(psrti_comm_t *comm, uint32_t member, const psrt_hdr_t *hdr,
                        const char *data);
psrt_status_t psrti_comm_find_hosts(psrti_comm_t *comm);
const psrti_coll_tune_t *psrti_comm_rules(const psrti_comm_t *comm);
uint8_t psrti_comm_algorithm(const psrti_comm_t *comm, const psrti_coll_call_t *call);

/* text.c */
void psrti_comm_watch(psrti_comm_t *comm, uint64_t now);
void psrti_comm_time_out(psrti_comm_t *comm, const psrti_collop_t *op);

/* sched.c */
psrt_status_t psrti_sched_get(psrti_comm_t *comm, uint8_t what, uint8_t algorithm, uint32_t root,
                              int split, psrti_collsched_t **sched_p);
void psrti_sched_free(psrti_coll_t *coll, psrti_collsched_t *sched);
int psrti_move_receives(const psrti_collmove_t *move);

/* layout.c */
int psrti_layout_is_exchange(uint8_t what);
int psrti_layout_is_pair(uint8_t what);
int psrti_layout_reduces(uint8_t what);
psrti_collective_t psrti_layout_collective(uint8_t what);
uint8_t psrti_layout_dtype(const psrti_coll_call_t *call);
uint64_t psrti_layout_sum(const uint64_t *counts, uint32_t n);
uint64_t psrti_layout_measure(const psrti_comm_t *comm, const psrti_coll_call_t *call);
psrti_collcut_t psrti_layout_cut(const psrti_collop_t *op, uint32_t size, uint32_t nblocks);
int psrti_layout_splits(const psrti_collop_t *op, uint8_t algorithm, uint32_t size,
                        psrti_collcut_t cut);
uint64_t psrti_layout_bound(const psrti_collrun_t *run, const psrti_collway_t *way);
uint64_t psrti_layout_input_bytes(const psrti_collrun_t *run);
void psrti_layout_place(psrti_collexec_t *exec);
psrt_status_t psrti_layout_open(psrti_collexec_t *exec);
uint64_t psrti_layout_len(const psrti_collexec_t *exec, const psrti_collmove_t *move);
char *psrti_layout_at(const psrti_collexec_t *exec, psrti_coll_ref_t ref);
void psrti_layout_close(psrti_collexec_t *exec);

/* run.c */
void psrti_run_begin(psrti_collop_t *op, psrti_colllane_t *lane);
psrti_collexec_t *psrti_run_exec(psrti_collrun_t *run, uint64_t chunk);
void psrti_run_doom(psrti_collrun_t *run);
void psrti_run_free(psrti_collrun_t *run);
uint32_t psrti_run_stuck_at(const psrti_collrun_t *run);
void psrti_exec_ready(psrti_collexec_t *exec);
void psrti_exec_advance(psrti_collexec_t *exec);
psrt_rx_t psrti_exec_message(psrti_collexec_t *exec, uint32_t move, psrt_msg_t *msg, uint32_t rank,
                             psrti_parcel_t *parcel);

void psrti_run_perish(psrti_collrun_t *run);

/* send.c */
psrti_collknown_t *psrti_run_known(const psrti_collrun_t *run, uint32_t member);
void psrti_run_tell_ready(psrti_collrun_t *run, uint32_t member, uint64_t granted,
                          int wants_answer);
const psrti_collmove_t *psrti_cell_move(const psrti_collcell_t *cell);
psrt_status_t psrti_cell_send(psrti_collcell_t *cell, uint32_t rank);
void psrti_cell_post(psrti_collexec_t *exec, uint32_t move);
void psrti_way_flush(psrti_collrun_t *run, uint32_t way);
void psrti_run_refused(psrti_collrun_t *run);
/* Later chunks of a call have no messages without data. */
static inline int psrti_exec_skips(const psrti_collexec_t *exec, uint64_t len)
{
    return exec->chunk > 0 && len == 0;
}

/* recv.c */
void psrti_comm_disagree(psrti_comm_t *comm, uint32_t member, uint64_t seq,
                         const psrti_collsig_t *theirs, const psrti_collsig_t *ours);
psrti_collsig_t psrti_sig_of(const psrti_comm_t *comm, const psrti_coll_call_t *call,
                             uint8_t algorithm);
psrti_collsig_t psrti_sig_for(const psrti_collrun_t *run, uint32_t member, int is_data, int sends);
int psrti_recv_early(psrti_collop_t *op);
void psrti_recv_counted(psrti_comm_t *comm, uint64_t seq);
uint64_t psrti_comm_early_max(const psrti_comm_t *comm);

#endif
