/* SPDX-License-Identifier: Apache-2.0 */
/* One owner's state machine: tables, slices, steps, windows. Pure: (state, event) -> (state, actions);
 * no I/O, clock, thread or randomness; actions leave through the env table. server.c drives it with
 * real links, tests/sim with simulated ones.
 *
 * Invariants
 *  - A contribution is added once: recorded in the client's window exactly when it was added; one that
 *    its client took back is recorded there as refused.
 *  - A slice is published whole: readers pin a block; an apply writes in place only when nobody does.
 *  - A sync step closes once, in order, when every member that counts for it has ended it.
 *  - Nothing waits inside: what cannot be answered yet is parked as a header, never as payload. */
#ifndef PSRTI_SHARD_H
#define PSRTI_SHARD_H

#include <psrt/ext/transport_v1.h>

#include "kernels/kernels.h"
#include "runtime/core/table_spec.h"
#include "runtime/core/view.h"

typedef struct psrti_shard psrti_shard_t;
typedef struct psrti_peer psrti_peer_t; /* a worker's session with this owner */

typedef struct psrti_shard_env {
    void *arg;
    /* As the transport's send; `link` is what psrti_shard_link_up was given. */
    psrt_status_t (*send)(void *arg, void *link, psrt_hdr_t *hdr, const void *data, uint64_t len,
                          psrt_tx_t *tx);
    psrt_status_t (*map)(void *arg, psrt_msg_t *msg, const void **data_p);
    /* Values: memory that the links carry without a copy. Zeroed or not. NULL: none left. */
    void *(*alloc)(void *arg, uint64_t bytes);
    void (*free)(void *arg, void *ptr);
    /* Wants a link to another owner, see psrti_shard_owner_up. Asked again while there is none. */
    void (*dial)(void *arg, uint32_t owner, const psrti_view_owner_t *address);
    uint64_t batch_bytes; /* payload of a BATCH at most; 0: every answer goes alone */
    /* Copies values that others read next, in the caches or past them; NULL: past them. */
    void (*write)(void *arg, void *dst, const void *src, uint64_t bytes);
} psrti_shard_env_t;

psrt_status_t psrti_shard_create(uint32_t owner, const psrti_kernels_t *kernels,
                                 const psrti_shard_env_t *env, psrti_shard_t **shard_p);
/* All links must be gone (their pending sends done). NULL allowed. */
void psrti_shard_destroy(psrti_shard_t *shard);

/* A newer view; older ones are ignored, the same one may come again for another joiner. A worker that
 * joined late counts from `from_step[i]` on `table[i]`, from step 0 on tables that are not listed
 * (they are newer than its request). */
void psrti_shard_view(psrti_shard_t *shard, psrti_view_t *view, uint32_t joiner, size_t count,
                      const uint32_t *table, const uint64_t *from_step);

/* Creates this owner's slices of a table. ERR_NO_MEMORY with last error: nothing remains. */
psrt_status_t psrti_shard_hold(psrti_shard_t *shard, uint32_t id, const psrti_table_spec_t *spec);

/* Before a worker joins late: closes no step above the reported ones until the next view. Calls
 * `report` for each table of which a step was begun; of the others no step at all is closed. */
void psrti_shard_prepare(psrti_shard_t *shard,
                         void (*report)(void *arg, uint32_t table, uint64_t open_step), void *arg);

/* A hyper-parameter set for a step, in two phases. From `prepare` on no step of the table from
 * `from_step` on is closed (PSRT_STEP_NEXT: none that is not closed on all slices already), until `end`
 * with the same or a higher number. *step_p: the lowest step that is still open on all slices; 0 if
 * none is here. A repeated question is answered again, one of another number drops the hold before it.
 * ERR_INVALID, ERR_LIMIT (with last error): nothing is held.
 * Updates of step n use the values set for n or before. Tables that are not sync take PSRT_STEP_NEXT,
 * and the change with `end`. */
psrt_status_t psrti_shard_set_prepare(psrti_shard_t *shard, uint64_t number, uint32_t table,
                                      const char *key, double value, uint64_t from_step,
                                      uint64_t *step_p);
/* With `commit`, and the number of the hold, the change holds from `from_step` on; else nothing
 * changes. */
void psrti_shard_set_end(psrti_shard_t *shard, uint64_t number, int commit, uint64_t from_step);

psrti_peer_t *psrti_shard_link_up(psrti_shard_t *shard, void *link, uint32_t task,
                                  uint64_t incarnation);
/* A link with another owner, which one of the two dialled; it is written, lost and read like the
 * others. The newest one in a direction counts. NULL: no memory. */
psrti_peer_t *psrti_shard_owner_up(psrti_shard_t *shard, void *link, uint32_t owner,
                                   uint64_t incarnation, int dialled);
/* Index of a server's thread, UINT32_MAX: there is no such owner. */
uint32_t psrti_shard_owner_of(const psrti_shard_t *shard, uint32_t server, uint32_t thread);
/* Sends answers that were kept for others to join them, which must not wait for long; repeats to other
 * owners what they did not answer. The time of the next repetition. */
uint64_t psrti_shard_progress(psrti_shard_t *shard, uint64_t now);
void psrti_shard_link_writable(psrti_shard_t *shard, psrti_peer_t *peer);
void psrti_shard_link_lost(psrti_shard_t *shard, psrti_peer_t *peer);
psrt_rx_t psrti_shard_msg(psrti_shard_t *shard, psrti_peer_t *peer, psrt_msg_t *msg);

typedef struct psrti_shard_counts {
    uint64_t applied;           /* messages whose gradient was added or applied */
    uint64_t duplicates;        /* messages found in a window or by (step, worker) */
    uint64_t late;              /* contributions to closed steps                */
    uint64_t moved;             /* messages refused for their term              */
    uint64_t parked;            /* pulls and push_pulls that had to wait        */
    uint64_t canceled;          /* requests taken back before they were served  */
    uint64_t steps;             /* sync steps of slices closed                  */
    uint64_t blocks;            /* value blocks in use, all versions            */
    uint64_t batches;           /* BATCH frames sent                            */
    uint64_t batched;           /* answers in them                              */
    uint64_t joined;            /* answers in the ACK of a later number         */
    uint64_t reports;           /* messages with partials sent to owners of groups */
    uint64_t reports_repeated;  /* after a time without a verdict                  */
    uint64_t verdicts_repeated; /* because a report came again                     */
    uint64_t skipped;           /* steps of groups that changed nothing            */
} psrti_shard_counts_t;
void psrti_shard_counts(const psrti_shard_t *shard, psrti_shard_counts_t *out);

/* For tests: the published values and version of a slice. ERR_NOT_FOUND. */
psrt_status_t psrti_shard_peek(const psrti_shard_t *shard, uint32_t table, uint64_t slice,
                               const void **values_p, uint64_t *version_p);

#endif
