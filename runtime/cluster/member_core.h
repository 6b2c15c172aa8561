/* SPDX-License-Identifier: Apache-2.0 */
/* A task's side of the control plane as a pure state machine.
 *
 * Invariants:
 *  - what was asked (declares, barriers, sets, leaving) is repeated after every reconnect until it is
 *    answered or withdrawn, and answered once;
 *  - views are handed up in growing order;
 *  - after a gap in its own progress longer than the lease nothing is handed up, and
 *    psrti_member_core_is_current is false, until the coordinator confirmed the incarnation. */
#ifndef PSRTI_MEMBER_CORE_H
#define PSRTI_MEMBER_CORE_H

#include "runtime/cluster/member.h"
#include "runtime/wire/wire.h"

typedef struct psrti_member_core psrti_member_core_t;

typedef struct psrti_member_env {
    void *arg;
    void (*dial)(void *arg); /* link_up or link_lost follows, not from inside */
    void (*drop)(void *arg); /* the link or the attempt; no link_lost follows */
    void (*send)(void *arg, const Psrt__Control *msg); /* valid during the call */
    /* as in psrti_member_params_t; none may be NULL */
    void (*joined)(void *arg, uint64_t incarnation);
    void (*view)(void *arg, psrti_view_t *view, uint32_t worker, size_t count,
                 const uint32_t *table, const uint64_t *from_step);
    void (*declared)(void *arg, uint64_t request, size_t count, const psrti_member_table_t *tables);
    void (*hold)(void *arg, size_t count, const psrti_member_table_t *tables);
    void (*prepare)(void *arg, uint64_t view, uint32_t worker);
    void (*barrier_done)(void *arg, uint64_t request, psrt_status_t status, const char *text);
    void (*set_prepare)(void *arg, const psrti_member_set_t *set);
    void (*set_end)(void *arg, uint64_t number, int commit, uint64_t from_step);
    void (*set_done)(void *arg, uint64_t request, psrt_status_t status, const char *text,
                     uint64_t step);
    void (*end)(void *arg, psrt_status_t status, const char *text);
} psrti_member_env_t;

typedef struct psrti_member_core_params {
    uint32_t task, workers, servers, nthreads;
    const psrti_view_owner_t *threads; /* outlives the core */
    const char *host, *coordinator;    /* outlive the core; for texts */
    uint32_t pid;
    uint64_t nonce; /* random, not 0: names this process */
    uint64_t heartbeat_ns, lease_ns, start_timeout_ns, coordinator_timeout_ns;
} psrti_member_core_params_t;

psrt_status_t psrti_member_core_new(const psrti_member_core_params_t *params,
                                    const psrti_member_env_t *env, uint64_t now,
                                    psrti_member_core_t **core_p);
void psrti_member_core_free(psrti_member_core_t *core); /* NULL allowed */

void psrti_member_core_link_up(psrti_member_core_t *core, uint64_t now);
void psrti_member_core_link_lost(psrti_member_core_t *core, psrt_status_t status, const char *text,
                                 uint64_t now);
/* ERR_PROTOCOL: the coordinator misbehaves; the driver closes the link and says link_lost. */
psrt_status_t psrti_member_core_message(psrti_member_core_t *core, const Psrt__Control *msg,
                                        uint64_t now);
/* To be called at least at the time it returned. */
uint64_t psrti_member_core_tick(psrti_member_core_t *core, uint64_t now);

/* Requests are numbered by the caller, from 1, per kind. */
psrt_status_t psrti_member_core_declare(psrti_member_core_t *core, uint64_t request, size_t count,
                                        const psrti_table_spec_t *specs);
psrt_status_t psrti_member_core_barrier(psrti_member_core_t *core, uint64_t request,
                                        const char *name, uint32_t count);
/* The caller waits no longer: barrier_done follows and says who is missing. */
void psrti_member_core_withdraw(psrti_member_core_t *core, uint64_t request);
void psrti_member_core_used(psrti_member_core_t *core, uint32_t table);
psrt_status_t psrti_member_core_held(psrti_member_core_t *core, size_t count,
                                     const psrti_member_table_t *tables);
void psrti_member_core_prepared(psrti_member_core_t *core, uint64_t view, size_t count,
                                const uint32_t *table, const uint64_t *open_step);
psrt_status_t psrti_member_core_set(psrti_member_core_t *core, uint64_t request, uint32_t table,
                                    const char *key, double value, uint64_t from_step);
void psrti_member_core_set_prepared(psrti_member_core_t *core, uint64_t number, uint64_t step,
                                    psrt_status_t status, const char *text);
void psrti_member_core_set_ended(psrti_member_core_t *core, uint64_t number);
/* The word goes out now or after the next reconnect; ended when it was answered. No end
 * callback. */
void psrti_member_core_leave(psrti_member_core_t *core, int failed);

int psrti_member_core_ended(const psrti_member_core_t *core);
int psrti_member_core_is_ready(const psrti_member_core_t *core); /* has a view */
int psrti_member_core_is_current(
    const psrti_member_core_t *core); /* no gap since it was confirmed */
uint64_t psrti_member_core_incarnation(const psrti_member_core_t *core);

#endif
