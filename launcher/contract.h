/* SPDX-License-Identifier: Apache-2.0 */
/* What a task is started with: the contract between the launcher and the programs it runs. Pure: it
 * follows from the job, the task and their addresses. */
#ifndef PSRTI_LAUNCHER_CONTRACT_H
#define PSRTI_LAUNCHER_CONTRACT_H

#include "launcher/job.h"

/* The descriptor at which a task finds the first of its sockets. */
#define PSRTI_LISTEN_FD 3

/* One start of a task, complete. */
typedef struct psrti_launch {
    char **argv;
    psrti_env_t env; /* all of it, exact bytes */
    char *directory; /* NULL: that of the launcher */
    uint64_t grace_ns;
    int virtualenv; /* VIRTUAL_ENV is to be there */
    int listen; /* the task's sockets are handed over from PSRTI_LISTEN_FD on; else its ports are
                   released just before it runs */
    psrti_bind_t bind;              /* to a share of what */
    unsigned bind_part, bind_parts; /* its share on the host, unless PSRTI_BIND_NONE */
} psrti_launch_t;

/* The task's addresses are known. */
void psrti_contract_make(const psrti_job_t *job, const psrti_task_t *task, psrti_launch_t *launch);
void psrti_launch_clear(psrti_launch_t *launch);

/* True for a task that finds its sockets open; programs of the user may know nothing of that. */
int psrti_contract_takes_sockets(const psrti_task_t *task);
/* The variables that the launcher sets for a task, in the order in which a plan shows them. */
void psrti_contract_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own);
/* The variables of this process that tasks have besides, less what belongs to a host or another job. */
void psrti_contract_inherited(const psrti_job_t *job, psrti_env_t *env);
/* True for a variable that says who a task is, which -x must not change. */
int psrti_contract_env_is_reserved(const char *name);

#endif
