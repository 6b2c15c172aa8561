/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator as a pure state machine: events and time in, calls of the env table out.
 *
 * Peers are opaque numbers, one a connection, given by the driver. Invariants:
 *  - an incarnation is given once, and only grows, also over a restart with the state file;
 *  - a place (role and rank) has at most one living incarnation;
 *  - state that others rely on is persisted before the message that tells them is sent;
 *  - leases run on the coordinator's own running time: while it was stopped none expires;
 *  - every view that is sent has a higher number than all before, over all generations.
 * Nothing here blocks, reads a clock, logs, or calls back into the caller after finish. */
#ifndef PSRTI_COORD_CORE_H
#define PSRTI_COORD_CORE_H

#include <psrt/psrt.h>

#include "runtime/wire/wire.h"

typedef struct psrti_coord psrti_coord_t;

typedef struct psrti_coord_env {
    void *arg;
    /* The message is valid during the call. A peer that is gone is ignored. */
    void (*send)(void *arg, uint64_t peer, const Psrt__Control *msg);
    /* The core has forgotten the peer; no peer_lost follows. */
    void (*close)(void *arg, uint64_t peer);
    /* Replaces the state file, or appends to it; 0: it could not. NULL: none is kept. A tail that was not
     * written to its end, or anything appended twice, does no harm to who reads it. */
    int (*persist)(void *arg, const char *text, size_t len, int append);
    /* A line for the log: somebody died, joined late, was refused. */
    void (*note)(void *arg, psrt_log_level_t level, const char *text);
    /* The job is over; called once, last. */
    void (*finish)(void *arg, psrt_status_t status, const char *text);
} psrti_coord_env_t;

typedef struct psrti_coord_params {
    uint32_t workers, servers, vshards;
    uint32_t start_workers; /* of the lowest ranks: the job begins when they are there; 0: all */
    uint64_t heartbeat_ns, lease_ns, start_timeout_ns, drain_ns;
    const char *state; /* content of the state file; NULL: a new job */
    const char *job;   /* names the job in its state, one word; NULL: "-" */
} psrti_coord_params_t;

/* ERR_INVALID: the lease is shorter than two heartbeats, the state malformed or of another job. */
psrt_status_t psrti_coord_new(const psrti_coord_params_t *params, const psrti_coord_env_t *env,
                              uint64_t now, psrti_coord_t **coord_p);
void psrti_coord_free(psrti_coord_t *coord); /* NULL allowed */

/* `task` is what the link was authenticated as. */
void psrti_coord_peer_up(psrti_coord_t *coord, uint64_t peer, uint32_t task, uint64_t now);
void psrti_coord_peer_lost(psrti_coord_t *coord, uint64_t peer, uint64_t now);
/* ERR_PROTOCOL: the peer misbehaved; the driver closes it and says peer_lost. */
psrt_status_t psrti_coord_message(psrti_coord_t *coord, uint64_t peer, const Psrt__Control *msg,
                                  uint64_t now);
/* To be called at least at the time it returned. */
uint64_t psrti_coord_tick(psrti_coord_t *coord, uint64_t now);

#endif
