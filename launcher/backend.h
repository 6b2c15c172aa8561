/* SPDX-License-Identifier: Apache-2.0 */
/* A placement backend: where tasks run and how they are reached. The supervisor decides what is to
 * happen to which task and knows no backend but through this table. */
#ifndef PSRTI_LAUNCHER_BACKEND_H
#define PSRTI_LAUNCHER_BACKEND_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <psrt/status.h>

#include "launcher/contract.h"
#include "launcher/job.h"

typedef struct psrti_backend psrti_backend_t;

typedef enum psrti_end_kind {
    PSRTI_END_EXITED,        /* value: exit code */
    PSRTI_END_SIGNALED,      /* value: signal */
    PSRTI_END_CANNOT_RUN,    /* value: errno */
    PSRTI_END_NO_DIRECTORY,  /* it could not be started there; value: errno */
    PSRTI_END_NO_VIRTUALENV, /* nor without; value: errno */
    PSRTI_END_LOST,          /* what watched over the task was killed */
    PSRTI_END_HOST_LOST,     /* the host went away: no failure of the user's; value: 1 when the task
                                was asked to leave it */
    PSRTI_END_NOT_LAUNCHED   /* nor is this, which no backend tells: it did not start in time */
} psrti_end_kind_t;

typedef struct psrti_end {
    psrti_end_kind_t kind;
    int value;
    uint64_t time_ns; /* psrti_now_ns when it happened */
} psrti_end_t;

typedef enum psrti_stop {
    PSRTI_STOP_TERM,   /* SIGTERM to all of the task, SIGKILL after the grace time */
    PSRTI_STOP_KILL,   /* SIGKILL to all of it */
    PSRTI_STOP_ABANDON /* whatever else may help, when killing did not */
} psrti_stop_t;

/* Once ready or failed; then, for each start of a task: started (unless it cannot be run), ended,
 * gone; output at any time, on each stream up to and including a call with len 0, which may come
 * after gone. All from the loop, never from within a call of the table. */
typedef struct psrti_backend_events {
    void (*ready)(void *arg); /* the job's dir and coordinator, addresses of hosts, ports of tasks
                                 are filled in; tasks may be started */
    void (*failed)(void *arg, const char *text); /* with a verdict on each host that failed */
    void (*started)(void *arg, const psrti_task_t *task, const char *host, int pid,
                    const char *bound); /* empty: there is nothing to tell of it */
    void (*output)(void *arg, const psrti_task_t *task, int fd, const char *data, size_t len);
    void (*ended)(void *arg, const psrti_task_t *task, const psrti_end_t *end);
    void (*gone)(void *arg, const psrti_task_t *task); /* no process of it is left */
    /* Its tasks that ran end with PSRTI_END_HOST_LOST. */
    void (*host_lost)(void *arg, unsigned host, const char *text);
    /* One that was lost, or (not back) is new: tasks may be started there. */
    void (*host_up)(void *arg, unsigned host, int back);
    /* What `reach` came to instead, also from within it; not the same text twice on end. */
    void (*host_not_reached)(void *arg, unsigned host, const char *text);
    void *arg;
} psrti_backend_events_t;

typedef struct psrti_backend_ops {
    const char *name;
    /* Begins to reach the hosts of a planned job and to bind its tasks' ports, which it keeps. */
    psrt_status_t (*open)(uv_loop_t *loop, psrti_job_t *job, const psrti_backend_events_t *events,
                          psrti_backend_t **backend_p);
    /* Copies what it needs of the launch. */
    psrt_status_t (*start)(psrti_backend_t *backend, const psrti_task_t *task,
                           const psrti_launch_t *launch);
    void (*stop)(psrti_backend_t *backend, const psrti_task_t *task, psrti_stop_t how);
    /* SIGUSR1 or SIGUSR2 to the process that was started. */
    void (*signal)(psrti_backend_t *backend, const psrti_task_t *task, int sig);
    /* Tries to reach a host that was lost or added; host_up when that succeeds. NULL: it cannot be. */
    void (*reach)(psrti_backend_t *backend, unsigned host);
    void (*pause)(psrti_backend_t *backend, int paused); /* reads no output while paused */
    /* Clears up on the hosts and closes the loop's handles; run the loop until they are closed,
     * then release. Of tasks that are not gone, what watches over them clears up later. */
    void (*close)(psrti_backend_t *backend);
    void (*release)(psrti_backend_t *backend);
} psrti_backend_ops_t;

extern const psrti_backend_ops_t psrti_backend_local; /* this machine */

/* That of the job: named, or ssh when one of its hosts is another machine, or local. */
psrt_status_t psrti_backend_find(const psrti_job_t *job, const psrti_backend_ops_t **ops_p);

#endif
