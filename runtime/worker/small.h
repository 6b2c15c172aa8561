/* SPDX-License-Identifier: Apache-2.0 */
/* Small collectives of a communicator whose members are on one host go through shared memory (coll/flat.h): a call
 * that waits runs in the caller's thread without the baton, others, and those that wait long, are moved by whoever
 * holds it.
 *
 * Invariants
 *  - All members decide alike: the communicator takes this way if, when it was made, every member had mapped the segments
 *    of all others; a call takes it if psrti_flat_fits says so.
 *  - The engine counts these calls too, in the order in which they were made. Those that ran without the baton are
 *    counted before the next one that does not.
 *  - One thread at a time touches the flat object: the holder of the baton while calls are in the queue, else the
 *    caller. `slow` says which. */
#ifndef PSRTI_WORKER_SMALL_H
#define PSRTI_WORKER_SMALL_H

#include "runtime/coll/flat.h"
#include "runtime/worker/worker_int.h"

typedef struct psrti_small psrti_small_t;

/* All with the baton unless said otherwise. */

/* NULL: this communicator has too many members, or there is no memory. */
psrti_small_t *psrti_small_new(psrt_comm_t *comm);
/* Has the communicator still the members it had then? A shrink may have been proposed anew. */
int psrti_small_is_of(const psrti_small_t *small);
/* Goes on handing over. 1: done; *ok_p says whether this member could go this way. */
int psrti_small_meet(psrti_small_t *small, int32_t *ok_p);
/* What the members agreed on. */
void psrti_small_agree(psrti_small_t *small, int all);
/* Ends its calls with ERR_CANCELED and lets go of the segments. Memory that peers may still map goes when they let go of it. */
void psrti_small_drop(psrti_small_t *small);
psrt_rx_t psrti_small_segment(psrti_worker_t *w, uint32_t rank, psrt_msg_t *msg);

int psrti_small_takes(const psrt_comm_t *comm, const psrti_coll_call_t *call); /* any thread */
/* The caller's thread, without the baton: IN_PROGRESS: it has to go as an operation, which has begun if *begun_p. */
psrt_status_t psrti_small_run(psrt_comm_t *comm, const psrti_coll_call_t *call, int *begun_p);
void psrti_small_start(psrt_comm_t *comm, psrti_wcollop_t *op);
/* Before the engine begins a call of its own. */
void psrti_small_count(psrt_comm_t *comm);

/* Moves the calls that are queued; number of those that ended. */
unsigned psrti_smalls_move(psrti_worker_t *w, uint64_t now);
/* Before sleeping: 0: look again first. */
int psrti_smalls_sleep(psrti_worker_t *w);
void psrti_smalls_awake(psrti_worker_t *w);
void psrti_smalls_free(psrti_worker_t *w); /* at the end, links are gone */
void psrti_small_describe(const psrti_wcollop_t *op, char *buf, size_t size);

#endif
