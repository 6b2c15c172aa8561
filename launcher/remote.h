/* SPDX-License-Identifier: Apache-2.0 */
/* The backend for other hosts: psrt-agent runs on each, dials back to the controller here and takes
 * orders from it. How the agents come to run is a starter's business: by ssh, as a step of Slurm. */
#ifndef PSRTI_LAUNCHER_REMOTE_H
#define PSRTI_LAUNCHER_REMOTE_H

#include "launcher/backend.h"

typedef struct psrti_starter psrti_starter_t;

/* All from the loop. */
typedef struct psrti_starter_events {
    /* Where psrtd is on that host, when it is not where it is here. */
    void (*psrtd)(void *arg, unsigned host, const char *path);
    /* The agent could not be started, or what started it ended. */
    void (*failed)(void *arg, unsigned host, const char *text);
    void *arg;
} psrti_starter_events_t;

typedef struct psrti_starter_ops {
    const char *name;
    psrt_status_t (*open)(uv_loop_t *loop, const psrti_job_t *job,
                          const psrti_starter_events_t *events, psrti_starter_t **starter_p);
    /* Starts the agent of a host, perhaps another one after the last ended, which gets the bootstrap (copied) on its standard input. That stays
     * open: its end ends the agent. */
    void (*start)(psrti_starter_t *starter, unsigned host, const void *bootstrap, size_t len);
    /* Ends the agents' inputs, and closes its handles when what it started has ended. */
    void (*close)(psrti_starter_t *starter);
    void (*release)(psrti_starter_t *starter);
} psrti_starter_ops_t;

psrt_status_t psrti_remote_open(uv_loop_t *loop, psrti_job_t *job,
                                const psrti_backend_events_t *events,
                                const psrti_starter_ops_t *starter, psrti_backend_t **backend_p);
/* The rest of a backend's table, for those that are made of a starter. */
psrt_status_t psrti_remote_start(psrti_backend_t *backend, const psrti_task_t *task,
                                 const psrti_launch_t *launch);
void psrti_remote_stop(psrti_backend_t *backend, const psrti_task_t *task, psrti_stop_t how);
void psrti_remote_signal(psrti_backend_t *backend, const psrti_task_t *task, int sig);
void psrti_remote_reach(psrti_backend_t *backend, unsigned host);
void psrti_remote_pause(psrti_backend_t *backend, int paused);
void psrti_remote_close(psrti_backend_t *backend);
void psrti_remote_release(psrti_backend_t *backend);

/* What is known of a host, in a line: address, cores, GPUs, locked memory, clock; or why it cannot
 * be used. True when it can. */
int psrti_remote_verdict(const psrti_backend_t *backend, unsigned host, char *buf, size_t size);

extern const psrti_backend_ops_t psrti_backend_ssh, psrti_backend_slurm;

#endif
