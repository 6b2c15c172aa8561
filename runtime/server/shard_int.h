/* SPDX-License-Identifier: Apache-2.0 */
/* What shard.c, step.c, set.c, reply.c, cancel.c and batch.c share. */
#ifndef PSRTI_SHARD_INT_H
#define PSRTI_SHARD_INT_H

#include "base/list.h"
#include "base/map.h"
#include "kernels/optimizer.h"
#include "runtime/core/batch.h"
#include "runtime/server/shard.h"
#include "runtime/server/window.h"
#include "transport/frame.h"

#define PSRTI_APPLY_BLOCK 65536u /* bytes of gradient folded and applied at once: stays in L2 */
#ifndef PSRTI_MASTER_BYTES       /* the simulator has no large slices */
#define PSRTI_MASTER_BYTES 8192u /* of a slice from which on a master may pay                 */
#endif
#ifndef PSRTI_ACK_RUN   /* the simulator has fewer, so that they run on */
#define PSRTI_ACK_RUN 8 /* numbers that an ACK answers at most          */
#endif

/* Values of one version of a slice, in the format in which they are sent. */
typedef struct psrti_block {
    struct psrti_block *next; /* in the table's free list */
    struct psrti_slice *slice;
    void *data;
    uint32_t pins; /* sends in flight that read it */
} psrti_block_t;

/* Two-phase tables: what is measured on a slice when a step is complete. */
typedef struct psrti_partial {
    double square;       /* sum of squares of the gradient; second round: of the update */
    double value_square; /* of the values, if the optimizer needs it                    */
    uint8_t nonfinite;   /* the gradient has NaN or infinities                          */
    uint8_t known;       /* where partials are collected: this one is there             */
} psrti_partial_t;

typedef struct psrti_norms {
    double grad, value, update; /* of the whole table */
} psrti_norms_t;

/* What the update of a two-phase table also depends on. */
typedef struct psrti_facts {
    double scale; /* of the gradient */
    psrti_norms_t norms;
} psrti_facts_t;

/* Contributions to a sync step of a slice. */
typedef struct psrti_step {
    void *acc;             /* sum so far; NULL: nothing yet                            */
    void **staged;         /* by rank; deterministic: contributions ahead of their turn;
                              backup workers: those of workers that have not ended the step */
    uint32_t next_rank;    /* deterministic: ranks below are in acc                     */
    uint32_t contributors; /* workers with a contribution                               */
    uint32_t ended;        /* workers that ended the step                               */
} psrti_step_t;

typedef struct psrti_slice {
    struct psrti_stable *table;
    uint64_t index, first, len;
    uint16_t vshard;
    uint8_t ready;  /* values are set (rank0 tables: after INIT) */
    uint8_t sealed; /* two-phase: step `version` is complete and measured, not applied */
    psrti_partial_t partial;
    psrti_block_t *cur; /* what pulls read                                                   */
    void *master;       /* the values in acc_dtype, see master.c; NULL: in cur */
    uint32_t unread;    /* updates since one found a reader */
    uint64_t version;   /* sync: closed steps; else: applied messages */
    uint64_t updates;   /* applies of the optimizer                   */
    void *state[PSRT_OPTIMIZER_MAX_STATES];
    void *average;        /* of the values, in acc_dtype; NULL: not wanted */
    psrti_step_t step[2]; /* step s at s % 2, for version <= s <= version + 1                     */
    uint64_t *bits;       /* sync: 4 bitmaps of workers: contributed[0], [1], ended[0], [1]       */
    psrti_list_t waiters; /* psrti_wait_t */
    uint16_t *parked;     /* by worker: its waiters; NULL: there were none yet */
} psrti_slice_t;

/* A hyper-parameter's value for the updates of steps from from_step on. */
typedef struct psrti_change {
    uint64_t from_step;
    double value;
    int index; /* of the optimizer's parameters */
} psrti_change_t;

/* Table as this owner holds it. */
typedef struct psrti_stable {
    uint32_t id;
    psrti_table_spec_t spec;
    uint64_t hash;
    psrt_dtype_t wire_value, wire_grad; /* formats of published values and of contributions */
    size_t acc_bytes, value_bytes, grad_bytes; /* an element of acc_dtype, and of those two */
    psrti_optimizer_t opt;
    psrti_init_t *init;
    uint64_t nslices;      /* of the whole table          */
    psrti_slice_t **slice; /* by slice index; NULL: elsewhere */
    psrti_block_t
        *free_blocks[2];     /* of a full slice's size, of a shorter one's: the last slice's */
    uint64_t *from_step;     /* by worker: first step that it counts for */
    uint64_t *skipped;       /* by worker: it came late and ends no more steps below */
    uint64_t *clock;         /* by worker: steps ended (ssp)             */
    uint64_t last_from;      /* the highest of from_step and skipped     */
    uint64_t slowest;        /* the lowest clock of a living worker...   */
    uint32_t nslowest;       /* ...and how many have it; 0: not known    */
    uint64_t hold_from;      /* prepare: close no step from here on      */
    uint64_t set_hold;       /* the same for a set that is not decided   */
    psrti_change_t *changes; /* set for steps that are not closed on all slices; see set.c */
    uint32_t nchanges;
    struct psrti_group *group; /* two-phase tables; NULL: the others       */
    int is_local;              /* of a group: it has slices here           */
    psrti_norms_t norms;
    uint64_t norms_heard;       /* number of the round that they are of     */
    psrti_partial_t *collected; /* by slice: at the owner of the group      */
} psrti_stable_t;

/* A parked pull. */
typedef struct psrti_wait {
    psrti_list_t node; /* in the slice's waiters */
    psrti_list_t peer_node;
    psrti_peer_t *peer;
    psrti_slice_t *slice;
    uint64_t tag, want, offset, length;
    uint16_t flags;
    uint8_t type, priority; /* of the request */
} psrti_wait_t;

/* A reply that found no room, or is gathered with others. Values are looked up when it goes out, so it
 * pins nothing. */
typedef struct psrti_owed {
    psrti_list_t node;
    psrt_hdr_t hdr;
    psrti_slice_t *slice; /* VALUE: of this slice; else NULL */
} psrti_owed_t;

struct psrti_peer {
    psrti_list_t node; /* in shard->peers */
    void *link;
    uint32_t task, rank;
    uint64_t incarnation;
    int full; /* its link said AGAIN and is not writable yet */
    psrti_list_t owed, waits;
    psrti_list_t owing;    /* in shard->owing */
    int is_owner, dialled; /* another owner, in no list; else a worker */
    uint32_t owner;
};

/* Links with another owner: reports go out on one, come in on the other. */
typedef struct psrti_owner_link {
    psrti_peer_t *out, *in; /* NULL: none now */
    uint64_t dial_due;      /* not earlier    */
} psrti_owner_link_t;

/* A send of a block in flight. */
typedef struct psrti_stx {
    psrt_tx_t tx;
    psrti_shard_t *shard;
    psrti_block_t *block;
    struct psrti_stx *next; /* free list */
} psrti_stx_t;

struct psrti_shard {
    uint32_t owner;
    const psrti_kernels_t *k;
    psrti_shard_env_t env;
    psrti_view_t *view;
    uint32_t nworkers, live; /* live: of the workers */
    int preparing;           /* between Prepare and the next view                      */
    struct {
        uint64_t number;       /* 0: none */
        psrti_stable_t *table; /* that is held */
        psrti_change_t change;
    } set;               /* prepared, not decided */
    psrti_map_t tables;  /* id -> psrti_stable_t                                   */
    psrti_map_t windows; /* task << 16 | vshard -> psrti_window_t                  */
    psrti_list_t peers;
    psrti_stx_t *free_tx;
    psrti_list_t free_owed;
    psrti_batches_t batches;
    int gathering;         /* replies are kept until psrti_gather_end */
    psrti_list_t owing;    /* peers with replies that were kept       */
    void *scratch, *fresh; /* PSRTI_APPLY_BLOCK: a gradient; values on their way into a block */
    uint64_t now;          /* of the last psrti_shard_progress               */
    uint64_t next_due;     /* no group of waiting_groups has to act earlier */
    psrti_list_t groups, dirty_groups, waiting_groups;
    psrti_owner_link_t *owners; /* by owner */
    psrti_shard_counts_t counts;
};

/* reply.c */
void psrti_reply_ack(psrti_shard_t *s, psrti_peer_t *peer, const psrt_hdr_t *req,
                     psrt_status_t status, uint16_t flags, uint64_t version);
/* Answer to CANCEL: `missing` has seq_floor and length, which name the workers that were waited for. */
void psrti_reply_canceled(psrti_shard_t *s, psrti_peer_t *peer, const psrt_hdr_t *req,
                          const psrt_hdr_t *missing);
void psrti_reply_moved(psrti_shard_t *s, psrti_peer_t *peer, const psrt_hdr_t *req);
/* Value of the slice's published version; tag, offset, length as asked for. */
void psrti_reply_value(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice, uint64_t tag,
                       uint64_t offset, uint64_t length, uint16_t flags, uint8_t priority);
/* Answers a pull or push_pull at once or parks it until version (ssp: clock) `want`. */
void psrti_pull_or_park(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                        const psrt_hdr_t *req, uint64_t want, uint16_t flags);
/* Answers what became due, and what nobody will make due. */
void psrti_wake_slice(psrti_shard_t *s, psrti_slice_t *slice);
void psrti_wait_free(psrti_wait_t *wait);
/* Tells workers whose bit is set in `ended` that the slice has a new version, but not `except`. */
void psrti_notify_applied(psrti_shard_t *s, psrti_slice_t *slice, const uint64_t *ended,
                          const psrti_peer_t *except);
/* Sends what is owed as far as the link takes it, small answers together. */
void psrti_owed_send(psrti_shard_t *s, psrti_peer_t *peer);
/* The block that a VALUE sends, pinned, with its version and term in the header; NULL: no memory. */
psrti_block_t *psrti_reply_pin(psrti_shard_t *s, psrti_owed_t *owed);
void psrti_owed_free(psrti_shard_t *s, psrti_owed_t *owed);
psrti_block_t *psrti_block_new(psrti_shard_t *s, psrti_slice_t *slice);
void psrti_block_drop(psrti_shard_t *s, psrti_block_t *block);
void psrti_block_unpin(psrti_shard_t *s, psrti_block_t *block);

/* batch.c */
psrt_rx_t psrti_batch_msg(psrti_shard_t *s, psrti_peer_t *peer, psrt_msg_t *msg);
/* The first answers that are owed, if they are small and more than one, as one message; ERR_NOT_FOUND:
 * they are not. */
psrt_status_t psrti_owed_batch(psrti_shard_t *s, psrti_peer_t *peer);
/* Between them answers to all peers are gathered. */
void psrti_gather_begin(psrti_shard_t *s);
void psrti_gather_end(psrti_shard_t *s);
/* Sends what is kept, to all peers. */
void psrti_owing_send(psrti_shard_t *s);

/* cancel.c: the worker takes a request for elements of this slice back. */
psrt_rx_t psrti_cancel(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice,
                       const psrt_hdr_t *req);

/* set.c */
/* The hyper-parameters for the slice's next update: what was set for it, lr after the schedule. */
void psrti_params_for(const psrti_slice_t *slice, double params[PSRT_OPTIMIZER_MAX_PARAMS]);

/* master.c */
/* Before an update: makes a master if it pays, and drops one that does not. */
void psrti_master_review(psrti_shard_t *s, psrti_slice_t *slice);
/* Bytes of an update that are made, then written out. */
uint64_t psrti_master_block(const psrti_shard_t *s, const psrti_slice_t *slice);
/* Writes n new values of the master, from element `at` of the slice on, into the block that is sent. */
void psrti_master_publish(psrti_shard_t *s, const psrti_slice_t *slice, uint64_t at,
                          const void *values, uint64_t n, psrti_block_t *out);

/* average.c */
/* The averages start as the values; nothing where none are wanted. */
void psrti_average_start(psrti_shard_t *s, psrti_slice_t *slice);
/* After an update of n elements at element `at` of the slice to `values`, in acc_dtype. */
void psrti_average_update(psrti_slice_t *slice, uint64_t at, const void *values, uint64_t n);
/* A block whose n elements at `at` are the averages, as they are sent. NULL: no memory. */
psrti_block_t *psrti_average_block(psrti_shard_t *s, psrti_slice_t *slice, uint64_t at, uint64_t n);

/* step.c */
/* Window of the peer's numbers on a virtual shard, made on first use; NULL: no memory. */
psrti_window_t *psrti_window_of(psrti_shard_t *s, const psrti_peer_t *peer, uint16_t vshard);
psrt_rx_t psrti_push(psrti_shard_t *s, psrti_peer_t *peer, psrti_slice_t *slice, psrt_msg_t *msg);
psrt_rx_t psrti_clock(psrti_shard_t *s, psrti_peer_t *peer, psrti_stable_t *table,
                      const psrt_hdr_t *req);
/* Closes every step of the slice that is complete; `except` (may be NULL) is not told. */
void psrti_close_steps(psrti_shard_t *s, psrti_slice_t *slice, const psrti_peer_t *except);
void psrti_step_free(psrti_step_t *step, uint32_t nworkers);
/* Two-phase tables. The sum of the complete step is in acc then, if there is any; its divisor. */
uint32_t psrti_step_sum(psrti_shard_t *s, psrti_slice_t *slice);
/* Writes the update over the gradient in acc. */
void psrti_prepare(psrti_shard_t *s, psrti_slice_t *slice, void *acc, const psrti_facts_t *facts);
/* One update of elements [first, first + len) with the gradient acc + last. `facts` NULL: one phase. */
psrt_status_t psrti_apply(psrti_shard_t *s, psrti_slice_t *slice, uint64_t first, uint64_t len,
                          const void *acc, const void *last, uint32_t divisor,
                          const psrti_facts_t *facts);
/* Publishes the version after the apply of step `version`, tells all who ended it but `except`. */
void psrti_step_closed(psrti_shard_t *s, psrti_slice_t *slice, const psrti_peer_t *except);
/* Room for the slice in acc_dtype, not zeroed; free() it. NULL: no memory. */
void *psrti_acc_new(const psrti_slice_t *slice);
uint64_t psrti_min_clock(const psrti_shard_t *s, psrti_stable_t *table);

/* Does `step` count this worker: alive, and not a joiner that starts later? */
static inline int psrti_step_counts(const psrti_shard_t *s, const psrti_stable_t *t, uint32_t rank,
                                    uint64_t step)
{
    return s->view->workers[rank].alive && t->from_step[rank] <= step;
}
/* Payload of a VALUE. */
static inline uint64_t psrti_reply_bytes(const psrti_owed_t *owed)
{
    return owed->slice ? owed->hdr.length * owed->slice->table->value_bytes : 0;
}
static inline const void *psrti_reply_data(const psrti_owed_t *owed, const psrti_block_t *block)
{
    uint64_t at = owed->hdr.offset - owed->slice->first;
    return (const char *)block->data + at * owed->slice->table->value_bytes;
}
/* Does the slice wait for first values that nobody is there to give? */
static inline int psrti_is_orphan(const psrti_shard_t *s, const psrti_slice_t *slice)
{
    return !slice->ready && !s->view->workers[0].alive;
}

static inline size_t psrti_bit_words(uint32_t nworkers) { return (nworkers + 63) / 64; }
static inline uint64_t *psrti_contributed(const psrti_shard_t *s, psrti_slice_t *slice,
                                          uint64_t step)
{
    return slice->bits + (step % 2) * psrti_bit_words(s->nworkers);
}
static inline uint64_t *psrti_ended(const psrti_shard_t *s, psrti_slice_t *slice, uint64_t step)
{
    return slice->bits + (2 + step % 2) * psrti_bit_words(s->nworkers);
}
static inline int psrti_bit_get(const uint64_t *bits, uint32_t i)
{
    return (int)(bits[i / 64] >> (i % 64) & 1);
}
static inline void psrti_bit_set(uint64_t *bits, uint32_t i) { bits[i / 64] |= 1ull << (i % 64); }

#endif
