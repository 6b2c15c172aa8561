/* SPDX-License-Identifier: Apache-2.0 */
/* A task's side of the control plane: joins, keeps the lease, declares, meets at barriers.
 *
 * member_core.h is the pure state machine; this is its driver: one thread with its own net.
 * Callbacks run on that thread; they must not block and may call psrti_member_held,
 * psrti_member_prepared, psrti_member_set_prepared and psrti_member_set_ended. */
#ifndef PSRTI_MEMBER_H
#define PSRTI_MEMBER_H

#include "runtime/core/net.h"
#include "runtime/core/table_spec.h"
#include "runtime/core/view.h"

typedef struct psrti_member psrti_member_t;

typedef struct psrti_member_table {
    uint32_t id;
    psrt_status_t status; /* OK, ERR_MISMATCH, ERR_SHARD_LOST, ... */
    const char *text;     /* of a failure; "" else                 */
    uint64_t first_step;  /* of this worker on the table           */
    const psrti_table_spec_t *spec;
} psrti_member_table_t;

/* A hyper-parameter set for a step: what servers are asked to hold for. */
typedef struct psrti_member_set {
    uint64_t number;
    uint32_t table;
    const char *key;
    double value;
    uint64_t from_step; /* PSRT_STEP_NEXT: the lowest that is still open on all slices */
} psrti_member_set_t;

typedef struct psrti_member_params {
    const psrti_config_t *config;
    const psrti_jobkey_t *key;
    uint32_t task;
    uint32_t workers, servers; /* of the job, as this task was told */
    const char *coordinator;   /* address: "tcp://..." or "inproc:..." */
    /* server: addresses of each thread (naddrs and addr are read); worker: one entry, or 0 if it does not
     * listen for other workers */
    uint32_t nthreads;
    const psrti_view_owner_t *threads;
    void *arg;
    /* Joined: the incarnation is known. Comes before the first view and before psrti_member_start
     * returns its OK to anyone waiting. */
    void (*on_joined)(void *arg, uint64_t incarnation);
    /* A new view. from_step is NULL or, after a late join, tells for each of `count` tables the
     * first step of `worker`; then the view may be one that is known already (a server that was cut
     * off learns of several joins one by one). The view is valid during the call; ref it to keep
     * it. */
    void (*on_view)(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                    const uint32_t *table, const uint64_t *from_step);
    /* worker: answer to psrti_member_declare; request 0: a declared table failed later */
    void (*on_declared)(void *arg, uint64_t request, size_t count,
                        const psrti_member_table_t *tables);
    /* server: create these tables, then psrti_member_held */
    void (*on_hold)(void *arg, size_t count, const psrti_member_table_t *tables);
    /* server: report the highest open step of every table through psrti_member_prepared, close no
     * step above it until the view that follows */
    void (*on_prepare)(void *arg, uint64_t view, uint32_t worker);
    /* server: hold the table from that step on, then psrti_member_set_prepared; `set` is valid during
     * the call */
    void (*on_set_prepare)(void *arg, const psrti_member_set_t *set);
    /* server: let go of it, with the change from `from_step` on if `commit`, then
     * psrti_member_set_ended. A number above that of the hold ends it as well, without a change. */
    void (*on_set_end)(void *arg, uint64_t number, int commit, uint64_t from_step);
    /* Last callback: OK the job is over; ERR_FENCED, ERR_COORDINATOR_LOST, ERR_START_TIMEOUT,
     * ERR_REFUSED, ERR_PEER_LOST (all workers died), ERR_UNREACHABLE ... */
    void (*on_end)(void *arg, psrt_status_t status, const char *text);
} psrti_member_params_t;

/* Starts the thread. */
psrt_status_t psrti_member_start(const psrti_member_params_t *params, psrti_member_t **member_p);
/* Blocks until the job assembled (first view with every task was delivered) or the end came; the
 * status and last error say why not. */
psrt_status_t psrti_member_wait_ready(psrti_member_t *member);
/* Ends the thread; call leave before for an orderly end. No callback afterwards. NULL allowed. */
void psrti_member_stop(psrti_member_t *member);

/* Any thread: */
void psrti_member_declare(psrti_member_t *member, uint64_t request, size_t count,
                          const psrti_table_spec_t *specs);
void psrti_member_used(psrti_member_t *member, uint32_t table); /* first push */
psrt_status_t psrti_member_barrier(psrti_member_t *member, const char *name, uint32_t count,
                                   uint64_t timeout_ns); /* blocks */
/* Sets a hyper-parameter of a table; blocks until all servers took it or one was too late.
 * PSRT_STEP_NEXT: from the lowest step that no server has begun to close. */
psrt_status_t psrti_member_set(psrti_member_t *member, uint32_t table, const char *key,
                               double value, uint64_t from_step, uint64_t *step_p);
/* Tells the coordinator that this task finished (or failed) and waits a bounded time for the
 * word to get out. */
void psrti_member_leave(psrti_member_t *member, int failed);
void psrti_member_held(psrti_member_t *member, size_t count, const psrti_member_table_t *tables);
void psrti_member_prepared(psrti_member_t *member, uint64_t view, size_t count,
                           const uint32_t *table, const uint64_t *open_step);
/* `step`: the lowest that is still open on all slices. Else the status says why it cannot be. */
void psrti_member_set_prepared(psrti_member_t *member, uint64_t number, uint64_t step,
                               psrt_status_t status, const char *text);
void psrti_member_set_ended(psrti_member_t *member, uint64_t number);
/* Monotonic time of the member thread's last turn with a confirmed incarnation. It stands still
 * from a gap in our own progress longer than the lease until the coordinator confirmed that we
 * still live: a server that finds it older than the lease must not apply anything. A coordinator
 * that is down does not stop it. */
uint64_t psrti_member_lease_seen(const psrti_member_t *member);

#endif
