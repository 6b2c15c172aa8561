/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's driver: the client state machine over real links, waits, callbacks.
 *
 * The baton: whoever waits for an operation takes it and moves everything itself, so that no thread hop
 * lies on the path of an operation. Others leave their submissions in the inbox. A keeper thread takes
 * the baton when operations are in flight and no caller moved anything for 200 us. */
#ifndef PSRTI_WORKER_H
#define PSRTI_WORKER_H

#include "base/config.h"
#include "base/jobkey.h"
#include "runtime/worker/client.h"

typedef struct psrti_worker psrti_worker_t;

typedef struct psrti_worker_start {
    const psrti_config_t *config; /* outlives the worker */
    const psrti_jobkey_t *key;    /* likewise            */
    uint32_t rank, workers, servers;
    const char *coordinator;
    const char *transports; /* of the data links; NULL: as configured */
    void (*on_event)(void *arg, int event, const char *text);
    void *arg;
} psrti_worker_start_t;

/* Joins; returns when the job assembled. */
psrt_status_t psrti_worker_start(const psrti_worker_start_t *params, psrti_worker_t **worker_p);
/* Drains (bounded), leaves in order, frees everything. NULL allowed. */
void psrti_worker_stop(psrti_worker_t *worker);

psrt_status_t psrti_worker_declare(psrti_worker_t *worker, size_t count,
                                   const psrti_table_spec_t *specs, psrti_ctable_t **tables_p);
psrt_status_t psrti_worker_barrier(psrti_worker_t *worker, const char *name, uint32_t count,
                                   uint64_t timeout_ns);

/* How an operation ends. */
typedef struct psrti_submit {
    psrt_op_fn callback; /* NULL: none */
    void *arg;
    uint64_t deadline_ns; /* from now; 0: none */
} psrti_submit_t;

psrt_status_t psrti_worker_set(psrti_worker_t *worker, const psrti_ctable_t *table, const char *key,
                               double value, uint64_t from_step, uint64_t *step_p);

/* An operation; psrt_op_t of the public API. The transfers are copied. */
psrt_status_t psrti_worker_submit(psrti_worker_t *worker, const psrti_transfer_t *transfers,
                                  size_t count, const psrti_submit_t *how, psrt_op_t **op_p);
/* It ends soon, with ERR_CANCELED or as it would. */
void psrti_worker_cancel(psrt_op_t *op);
psrt_status_t psrti_worker_test(psrt_op_t *op, psrt_result_t *result_p);
/* ERR_INVALID in a callback of this worker, which runs with the baton or on the member's thread. */
psrt_status_t psrti_worker_may_wait(const psrti_worker_t *worker, const char *call);
/* Releases the op unless it returns ERR_TIMEOUT, or ERR_INVALID because a callback called it. */
psrt_status_t psrti_worker_wait(psrt_op_t *op, uint64_t timeout_ns);
void psrti_worker_release(psrt_op_t *op);

void *psrti_worker_alloc(psrti_worker_t *worker, uint64_t bytes); /* NULL: last error is set */
void psrti_worker_free(psrti_worker_t *worker, void *ptr);

typedef struct psrti_worker_facts {
    psrti_client_counts_t counts;
    uint64_t view;
    uint32_t live_workers, live_servers;
    char transports[128];
} psrti_worker_facts_t;
void psrti_worker_facts(psrti_worker_t *worker, psrti_worker_facts_t *out);
/* Fills at most `capacity` entries; returns how many tasks have the role. */
uint32_t psrti_worker_members(psrti_worker_t *worker, psrt_role_t role, psrt_member_t *members,
                              uint32_t capacity);
uint64_t psrti_worker_next_step(psrti_worker_t *worker, const psrti_ctable_t *table);
uint64_t psrti_worker_skipped_steps(psrti_worker_t *worker, const psrti_ctable_t *table);

#endif
