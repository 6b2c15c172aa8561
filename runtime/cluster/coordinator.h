/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's driver; coord_core.h is its pure state machine. */
#ifndef PSRTI_COORDINATOR_H
#define PSRTI_COORDINATOR_H

#include "base/config.h"
#include "base/jobkey.h"

typedef struct psrti_coordinator psrti_coordinator_t;

typedef struct psrti_coordinator_params {
    const psrti_config_t *config;
    const psrti_jobkey_t *key;
    uint32_t workers, servers;
    const char *transports;   /* "inproc" when embedded, "zmq" else                 */
    const char *bind_address; /* zmq: host:port, or NULL with listen_fd            */
    int listen_fd;
    const char *state_file; /* NULL: none (embedded)                              */
} psrti_coordinator_params_t;

/* Opens the listener; psrti_coordinator_addr tells where. */
psrt_status_t psrti_coordinator_open(const psrti_coordinator_params_t *params,
                                     psrti_coordinator_t **coord_p);
const char *psrti_coordinator_addr(const psrti_coordinator_t *coord);
/* Serves until the job ended or *stop (may be NULL) is non-zero, checked at least every 100 ms. OK:
 * all workers finished. ERR_START_TIMEOUT, ERR_PEER_LOST: last error names who. */
psrt_status_t psrti_coordinator_serve(psrti_coordinator_t *coord, const volatile int *stop);
void psrti_coordinator_close(psrti_coordinator_t *coord);

#endif
