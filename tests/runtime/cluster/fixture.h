/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator's core with scripted peers: requests are made by hand; what a test looks for in the answers
 * it notes itself. */
#ifndef PSRT_TESTS_COORD_FIXTURE_H
#define PSRT_TESTS_COORD_FIXTURE_H

#include "runtime/cluster/convert.h"
#include "runtime/cluster/coord_core.h"

#define SECOND PSRTI_NS_PER_S
#define PEERS 16
#define W(r) PSRTI_TASK(PSRTI_WORKER, r)
#define S(r) PSRTI_TASK(PSRTI_SERVER, r)

typedef struct coord_fx {
    psrti_coord_t *c;
    uint32_t start_workers; /* 0: both */
    uint64_t now;
    void (*sent)(void *arg, uint64_t peer, const Psrt__Control *m);
    void *arg;
    int finished;
    psrt_status_t status; /* of the job's end */
    char text[512];
    unsigned warnings;
    char note[512]; /* the last warning */
    char *state;    /* the file */
    size_t written; /* bytes, to it */
} coord_fx_t;

/* 2 workers and `servers` servers, at second 100; beats each second, leases of 5. `state` may be NULL. */
psrt_status_t coord_fx_open(coord_fx_t *fx, uint32_t servers, const char *state);
void coord_fx_close(coord_fx_t *fx);

psrt_status_t coord_fx_message(coord_fx_t *fx, uint64_t peer, const Psrt__Control *m);

typedef struct coord_fx_join {
    uint32_t task;
    uint64_t incarnation, nonce;
    uint32_t workers, servers;
    size_t threads;
    const psrti_table_spec_t *held; /* table 1; NULL: none */
} coord_fx_join_t;
psrt_status_t coord_fx_join(coord_fx_t *fx, uint64_t peer, const coord_fx_join_t *join);

psrt_status_t coord_fx_declare(coord_fx_t *fx, uint64_t peer, uint64_t request,
                               const psrti_table_spec_t *spec);
/* A server's answer to Hold. */
void coord_fx_held(coord_fx_t *fx, uint64_t peer, uint32_t table, psrt_status_t status,
                   const char *text);
/* Lets time pass; peers of the mask send heartbeats. */
void coord_fx_pass(coord_fx_t *fx, uint64_t ns, unsigned beating);

#endif
