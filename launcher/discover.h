/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts that a script of the user's lists: those of the job at first, and while it runs which
 * come and go. */
#ifndef PSRTI_LAUNCHER_DISCOVER_H
#define PSRTI_LAUNCHER_DISCOVER_H

#include <uv.h>

#include "launcher/job.h"

#define PSRTI_DISCOVER_LIMIT_MS 30000 /* for one run of the script */

/* Whether what flags and job file say of it goes together; ERR_INVALID says what does not. */
psrt_status_t psrti_discover_check(const psrti_job_t *job);

/* Runs the script and waits: what it lists are the job's hosts. ERR_INVALID: it cannot be run;
 * ERR_NOT_FOUND: it gave no list. */
psrt_status_t psrti_discover_first(psrti_job_t *job, uint64_t limit_ms);

/* All from the loop. */
typedef struct psrti_discovery_events {
    void (*added)(void *arg, unsigned host);            /* the job has it, as its last one */
    void (*named)(void *arg, unsigned host, int named); /* false: it is listed no more */
    void (*warned)(void *arg, const char *text);
    void *arg;
} psrti_discovery_events_t;

typedef struct psrti_discovery psrti_discovery_t;

/* Runs the script again and again, the interval of the job after its last end. When it fails, the
 * last list stays; the first failure of several in a row is told. */
psrti_discovery_t *psrti_discovery_open(uv_loop_t *loop, psrti_job_t *job, uint64_t limit_ms,
                                        const psrti_discovery_events_t *events);
/* Ends a run and closes the handles; release when the loop has closed them. NULL: nothing. */
void psrti_discovery_close(psrti_discovery_t *discovery);
void psrti_discovery_release(psrti_discovery_t *discovery);

#endif
