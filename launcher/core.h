/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to which task when: restarts, shrinking and growing, the end of the job. Pure: events
 * and the time go in, actions come out; no clock, no I/O. supervise.c carries the actions out. */
#ifndef PSRTI_LAUNCHER_CORE_H
#define PSRTI_LAUNCHER_CORE_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

#include "launcher/backend.h"

typedef struct psrti_core psrti_core_t;

typedef enum psrti_phase {
    PSRTI_PHASE_PENDING,  /* to be started, at a time or when a host is free */
    PSRTI_PHASE_STARTING, /* handed to the backend */
    PSRTI_PHASE_RUNNING,
    PSRTI_PHASE_ENDING,  /* its command ended; processes or output of it may be left */
    PSRTI_PHASE_DONE,    /* over: with success */
    PSRTI_PHASE_FAILED,  /* over: by itself, not with success */
    PSRTI_PHASE_STOPPED, /* over: by the launcher, or never started */
    PSRTI_PHASE_SHED     /* an elastic role goes on without it: it was lost, or had no host yet */
} psrti_phase_t;

/* Why the job is stopped; the first cause stays. */
typedef enum psrti_cause {
    PSRTI_CAUSE_NONE,
    PSRTI_CAUSE_TASK,    /* psrti_core_culprit: the task that failed first */
    PSRTI_CAUSE_USER,    /* a signal or `psrt-launch kill` */
    PSRTI_CAUSE_TIMEOUT, /* --timeout */
    PSRTI_CAUSE_START,   /* not all tasks were started in time */
    PSRTI_CAUSE_ERROR    /* the launcher could not do something */
} psrti_cause_t;

typedef struct psrti_core_task {
    psrti_phase_t phase;
    unsigned host, attempt;
    unsigned restarts; /* counted ones since it was healthy */
    uint64_t since_ns; /* of the phase */
    uint64_t start_ns; /* of the last attempt */
    psrti_end_t end;   /* of the last attempt; valid from ENDING on */

    /* The core's own. */
    unsigned avoid;               /* host to be left; UINT_MAX: none */
    uint64_t not_before_ns;       /* PENDING */
    uint64_t unplaced_ns;         /* PENDING without a host since; 0: not */
    uint64_t delay_ns;            /* of the restart that `again` announces */
    int again;                    /* is to be started anew once it is over */
    int by_user;                  /* its present end was asked for by psrti_core_restart */
    int leaving;                  /* it was asked for because its host is not named any more */
    int shedding, growable;       /* growable: shed, to come back with a host */
    int fatal;                    /* its end ends the job */
    int gone, output_open;        /* of the last attempt */
    int ever_started, after_stop; /* after_stop: its end does not count */
    int asked;                    /* to end, while the job drains */
} psrti_core_task_t;

typedef enum psrti_action_kind {
    PSRTI_DO_START,  /* task on host, as attempt */
    PSRTI_DO_STOP,   /* task, how */
    PSRTI_DO_REACH,  /* host is new, or was lost and has cooled down: try whether it is there */
    PSRTI_DO_FINISH, /* nothing of the job is left but output; the last but GIVE_UP never follows */
    PSRTI_DO_GIVE_UP, /* something cannot be killed; instead of FINISH */
    /* To be told to the user. */
    PSRTI_SAY_RESTART,    /* task: after delay_ns */
    PSRTI_SAY_SHED,       /* task; the role goes on with `count` */
    PSRTI_SAY_GROW,       /* task comes, or comes back, on host */
    PSRTI_SAY_GOES_ON,    /* task failed, and nothing depends on it */
    PSRTI_SAY_AFTER_END,  /* task failed when all that decides had succeeded */
    PSRTI_SAY_STRAGGLERS, /* tasks that still run are asked to end */
    PSRTI_SAY_COOLING,    /* host is not used for delay_ns */
    PSRTI_SAY_LEAVING,    /* host is not named any more: its tasks are asked to end */
    PSRTI_SAY_STAYS       /* host is not named any more, but task cannot leave it */
} psrti_action_kind_t;

typedef struct psrti_action {
    psrti_action_kind_t kind;
    size_t task;
    unsigned host, count;
    psrti_stop_t how;
    uint64_t delay_ns;
} psrti_action_t;

typedef struct psrti_core_params {
    uint64_t start_timeout_ns;  /* within which all tasks must have been started; 0: no limit */
    uint64_t launch_timeout_ns; /* from DO_START to psrti_core_started; 0: no limit */
    uint64_t cooldown_ns, cooldown_max_ns; /* of a lost or failing host; doubles each time */
    uint64_t host_wait_ns;                 /* how long a task may wait for a host */
} psrti_core_params_t;

#define PSRTI_CORE_PARAMS                                                                          \
    {                                                                                              \
        .cooldown_ns = 10 * PSRTI_NS_PER_S, .cooldown_max_ns = 600 * PSRTI_NS_PER_S,               \
        .host_wait_ns = 60 * PSRTI_NS_PER_S                                                        \
    }

/* Reads the job's roles, hosts and tasks, also later; changes only where its tasks are placed. */
psrti_core_t *psrti_core_create(psrti_job_t *job, const psrti_core_params_t *params, uint64_t now);
void psrti_core_destroy(psrti_core_t *core);

/* ---- events; after each, take the actions ---------------------------------------------------- */

void psrti_core_ready(psrti_core_t *core, uint64_t now); /* hosts are reached: tasks may start */
void psrti_core_started(psrti_core_t *core, uint64_t now, size_t task);
void psrti_core_ended(psrti_core_t *core, uint64_t now, size_t task, const psrti_end_t *end);
void psrti_core_gone(psrti_core_t *core, uint64_t now, size_t task);   /* its processes */
void psrti_core_closed(psrti_core_t *core, uint64_t now, size_t task); /* its output */
void psrti_core_not_started(psrti_core_t *core, size_t task); /* DO_START could not be done */
void psrti_core_host_lost(psrti_core_t *core, uint64_t now, unsigned host);
void psrti_core_host_up(psrti_core_t *core, uint64_t now, unsigned host);
/* The job has one host more, its last, which is not reached yet. */
void psrti_core_host_added(psrti_core_t *core, uint64_t now);
/* Discovery lists it no more, or again. Where it cannot be done without it stays in use. */
void psrti_core_host_named(psrti_core_t *core, uint64_t now, unsigned host, int named);
void psrti_core_tick(psrti_core_t *core, uint64_t now);
void psrti_core_stop(psrti_core_t *core, uint64_t now, psrti_cause_t cause); /* gracefully */
void psrti_core_kill(psrti_core_t *core, uint64_t now); /* what is to be stopped, at once */
/* At the user's wish: ends the task if it runs and starts it anew, on another host if there is one
 * and `elsewhere` says so. Not counted. ERR_TOO_LATE: the job is ending; ERR_NOT_FOUND: it has no
 * host yet. */
psrt_status_t psrti_core_restart(psrti_core_t *core, uint64_t now, size_t task, int elsewhere);

/* ---- what is to be done, and how things are -------------------------------------------------- */

int psrti_core_next(psrti_core_t *core, psrti_action_t *action_p); /* false: none left */
uint64_t psrti_core_deadline(const psrti_core_t *core); /* of the next tick; UINT64_MAX: none */
const psrti_core_task_t *psrti_core_task(const psrti_core_t *core, size_t task);
psrti_cause_t psrti_core_cause(const psrti_core_t *core);
uint64_t psrti_core_stop_ns(const psrti_core_t *core); /* UINT64_MAX: not stopped */
int psrti_core_draining(const psrti_core_t *core);     /* all that decides has succeeded */
/* Failed before the stop began, not only because of it. */
int psrti_core_failed_itself(const psrti_core_t *core, size_t task);
/* The failure that ended the job, the earliest by time; false: none did. */
int psrti_core_culprit(const psrti_core_t *core, size_t *task_p);
const char *psrti_phase_name(psrti_phase_t phase);

#endif
