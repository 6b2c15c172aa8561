/* SPDX-License-Identifier: Apache-2.0 */
/* A server's driver: one thread per owner, each with its net and shard, and the member that joins the
 * job. Threads share nothing; the member's thread hands them commands through their inboxes. */
#ifndef PSRTI_SERVER_H
#define PSRTI_SERVER_H

#include "base/config.h"
#include "base/jobkey.h"

typedef struct psrti_server psrti_server_t;

typedef struct psrti_server_start {
    const psrti_config_t *config; /* outlives the server */
    const psrti_jobkey_t *key;    /* likewise            */
    uint32_t rank, workers, servers;
    const char *coordinator;
    const char *transports; /* of the data links; NULL: as configured */
} psrti_server_start_t;

/* Opens the listeners and starts the threads; the job assembles in the background. */
psrt_status_t psrti_server_start(const psrti_server_start_t *params, psrti_server_t **server_p);
/* Until the job ends or *stop (may be NULL) is non-zero. OK: the job is over, or stopped. */
psrt_status_t psrti_server_wait(psrti_server_t *server, const volatile int *stop);
/* Ends the threads and frees everything. NULL allowed. */
void psrti_server_stop(psrti_server_t *server);

#endif
