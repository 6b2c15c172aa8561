/* SPDX-License-Identifier: Apache-2.0 */
/* The state behind core.h: core.c decides about tasks and the job, core_hosts.c where tasks run,
 * core_discovery.c which hosts there are. */
#ifndef PSRTI_LAUNCHER_CORE_STATE_H
#define PSRTI_LAUNCHER_CORE_STATE_H

#include "base/util.h"
#include "launcher/core.h"

#define PSRTI_CORE_ABANDON_NS (3 * PSRTI_NS_PER_S) /* after SIGKILL, for what does not die of it */
#define PSRTI_CORE_GIVE_UP_NS (2 * PSRTI_NS_PER_S)
/* For what did not start to be gone: longer than it takes to lose a host that is silent. */
#define PSRTI_CORE_STUCK_NS (30 * PSRTI_NS_PER_S)

/* What happens at step_ns; each step leads to the next. */
typedef enum psrti_step {
    PSRTI_STEP_ASK, /* ask all that still runs to end */
    PSRTI_STEP_KILL,
    PSRTI_STEP_ABANDON,
    PSRTI_STEP_GIVE_UP
} psrti_step_t;

typedef struct psrti_core_host {
    int up, cooling, named; /* used while it is up and named (by a discovery), and not cooling */
    int came;               /* it was up before */
    int told;               /* that it is needed, though it is not named any more */
    uint64_t until_ns;      /* end of the present cool-down */
    uint64_t cooldown_ns;   /* of the next one */
    unsigned failures;      /* of tasks there, one after the other */
} psrti_core_host_t;

struct psrti_core {
    psrti_job_t *job;
    psrti_core_params_t params;
    psrti_core_task_t *tasks;
    size_t count;
    psrti_core_host_t *hosts;
    size_t host_count;
    psrti_action_t *queue;
    size_t queue_start, queue_end, queue_capacity;
    uint64_t now, stop_ns, start_deadline_ns, grace_ns;
    uint64_t step_ns; /* UINT64_MAX: none */
    psrti_step_t step;
    psrti_cause_t cause;
    int ready, draining, finished, has_coordinator, has_deciders;
    int may_grow; /* there may be room for what was shed that there was not before */
};

void psrti_core_push(psrti_core_t *core, psrti_action_t action);
int psrti_core_is_ending(const psrti_core_t *core);
void psrti_core_go_on(psrti_core_t *core);            /* what every event ends with */
int psrti_core_has_ended(const psrti_core_task_t *t); /* its command, for good */
int psrti_core_is_optional(const psrti_role_t *role); /* nothing depends on its tasks */
/* Whether its tasks are started on another host when theirs goes away. */
int psrti_core_may_follow(const psrti_core_t *core, const psrti_role_t *role);
void psrti_core_set_phase(psrti_core_t *core, size_t task, psrti_phase_t phase);
void psrti_core_set_shed(psrti_core_t *core, size_t task); /* what it had of its host is free */
unsigned psrti_core_alive(const psrti_core_t *core, const psrti_role_t *role);
/* Lets its role go on without the task, if it may; false: not. */
int psrti_core_shed(psrti_core_t *core, size_t task, int growable);
/* The task's end or absence ends the job. */
void psrti_core_fail(psrti_core_t *core, size_t task);

/* Gives up starts that take longer than launch_timeout_ns; when it has to look again. */
void psrti_core_check_starts(psrti_core_t *core);
uint64_t psrti_core_start_deadline(const psrti_core_t *core);

/* Starts what is pending and due where there is a host for it; brings what was shed when a host
 * comes, in jobs that discover hosts whenever there is room. */
void psrti_core_place(psrti_core_t *core);
uint64_t psrti_core_place_deadline(const psrti_core_t *core);
void psrti_core_host_down(psrti_core_t *core, unsigned host);
void psrti_core_host_back(psrti_core_t *core, unsigned host);
void psrti_core_reach(psrti_core_t *core, unsigned host);
int psrti_core_has_other_host(const psrti_core_t *core, unsigned host); /* that may be used */
void psrti_core_host_failed(psrti_core_t *core, size_t task); /* an end counts against its host */
void psrti_core_host_healthy(psrti_core_t *core, unsigned host);

#endif
