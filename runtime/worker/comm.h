/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators and collectives of a worker: operations as all others, moved by whoever holds the baton. */
#ifndef PSRTI_WORKER_COMM_H
#define PSRTI_WORKER_COMM_H

#include <psrt/comm.h>

#include "runtime/coll/coll.h"
#include "runtime/worker/worker.h"

/* Each sets *comm_p and *op_p, or fails with neither. */
psrt_status_t psrti_worker_comm_create(psrti_worker_t *worker, const psrti_coll_tune_t *tune,
                                       const char *name, const uint32_t *ranks, uint32_t count,
                                       psrt_comm_t **comm_p, psrt_op_t **op_p);
psrt_status_t psrti_worker_comm_split(psrt_comm_t *parent, int32_t colour, int32_t key,
                                      psrt_comm_t **comm_p, psrt_op_t **op_p);
psrt_status_t psrti_worker_comm_dup(psrt_comm_t *parent, psrt_comm_t **comm_p, psrt_op_t **op_p);
psrt_status_t psrti_worker_comm_shrink(psrt_comm_t *failed, psrt_comm_t **comm_p, psrt_op_t **op_p);
void psrti_worker_comm_free(psrt_comm_t *comm);
void psrti_worker_comm_query(psrt_comm_t *comm, psrt_comm_attr_t *attr);
psrti_worker_t *psrti_comm_worker(const psrt_comm_t *comm);
/* Any thread, without the baton. It may have failed since. */
int psrti_comm_is_ready(const psrt_comm_t *comm, uint32_t *rank_p, uint32_t *ranks_p);
/* Ranks of the live workers of the view, malloc'ed. */
psrt_status_t psrti_worker_live_ranks(psrti_worker_t *worker, uint32_t **ranks_p,
                                      uint32_t *count_p);

/* The call is checked and copied. */
psrt_status_t psrti_worker_collective(psrt_comm_t *comm, const psrti_coll_call_t *call,
                                      psrt_op_t **op_p);
/* The same, and waits. */
psrt_status_t psrti_worker_collective_now(psrt_comm_t *comm, const psrti_coll_call_t *call);

#endif
