/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/topology.h"
#include "base/util.h"

/* Who a task is. Never taken over from the launcher's own environment, where a job that encloses
 * this one may have set it, and never from -x. */
static const char *const reserved[] = {
    "PSRT_ROLE",        "PSRT_RANK",    "PSRT_WORKERS",  "PSRT_SERVERS",
    "PSRT_COORDINATOR", "PSRT_JOB_DIR", "PSRT_KEY_FILE", "PSRT_LISTEN_FD",
};

int psrti_contract_env_is_reserved(const char *name)
{
    for (size_t i = 0; i < PSRTI_COUNT(reserved); i++)
        if (!strcmp(name, reserved[i])) return 1;
    return 0;
}

int psrti_contract_takes_sockets(const psrti_task_t *task)
{
    return task->role->kind == PSRTI_KIND_COORDINATOR;
}

/* ---- environment ----------------------------------------------------------------------------- */

static void set_default(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own,
                        const char *name, const char *value)
{
    if (!getenv(name) && !psrti_env_get(&job->env, name) && !psrti_env_get(&task->role->env, name))
        psrti_env_set(own, name, value);
}

static void worker_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    psrti_env_setf(own, "RANK", "%u", task->rank);
    psrti_env_setf(own, "LOCAL_RANK", "%u", task->local_rank);
    psrti_env_setf(own, "WORLD_SIZE", "%u", job->workers);
    /* Math libraries start a thread for every core of the host, in every worker. */
    char threads[16];
    unsigned share = psrti_topology_cores(NULL) / task->local_size;
    snprintf(threads, sizeof threads, "%u", PSRTI_MAX(share, 1));
    set_default(job, task, own, "OMP_NUM_THREADS", threads);
    set_default(job, task, own, "OPENBLAS_NUM_THREADS", threads);
}

void psrti_contract_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    psrti_env_set(own, "PSRT_ROLE", psrti_kind_name(task->role->kind));
    psrti_env_setf(own, "PSRT_RANK", "%u", task->rank);
    psrti_env_setf(own, "PSRT_WORKERS", "%u", job->workers);
    psrti_env_setf(own, "PSRT_SERVERS", "%u", job->servers);
    psrti_env_set(own, "PSRT_COORDINATOR", job->coordinator);
    psrti_env_set(own, "PSRT_JOB_DIR", psrti_job_dir(job, task));
    if (psrti_contract_takes_sockets(task))
        psrti_env_setf(own, "PSRT_LISTEN_FD", "%d", PSRTI_LISTEN_FD);
    if (job->start_timeout) psrti_env_set(own, "PSRT_START_TIMEOUT", job->start_timeout);
    if (job->security) psrti_env_set(own, "PSRT_SECURITY", job->security);
    if (job->transport) psrti_env_set(own, "PSRT_TRANSPORT", job->transport);
    set_default(job, task, own, "PYTHONUNBUFFERED", "1");
    if (task->role->kind == PSRTI_KIND_WORKER) worker_env(job, task, own);
    psrti_env_merge(own, job->env.entries);
    psrti_env_merge(own, task->role->env.entries);
}

/* Those over the launcher's own environment, less what belongs to another job. */
static void full_env(const psrti_env_t *own, psrti_env_t *full)
{
    psrti_env_merge(full, environ);
    for (size_t i = 0; i < PSRTI_COUNT(reserved); i++)
        psrti_env_unset(full, reserved[i]);
    psrti_env_unset(full, "PSRT_LAUNCH_PSRTD");
    psrti_env_merge(full, own->entries);
}

/* ---- argv ------------------------------------------------------------------------------------ */

static char **make_argv(const psrti_job_t *job, const psrti_task_t *task)
{
    const psrti_role_t *role = task->role;
    char *const shell[] = { (char *)"/bin/sh", (char *)"-c", role->shell, NULL };
    char *const psrtd[] = { (char *)psrti_job_psrtd(job, task),
                            role->kind == PSRTI_KIND_COORDINATOR ? (char *)"--coordinator" : NULL,
                            NULL };
    if (role->shell) return psrti_argv_copy(shell);
    return psrti_argv_copy(role->argv ? role->argv : psrtd);
}

void psrti_contract_make(const psrti_job_t *job, const psrti_task_t *task, psrti_launch_t *launch)
{
    const psrti_role_t *role = task->role;
    psrti_env_t own = { 0 };
    *launch = (psrti_launch_t){
        .argv = make_argv(job, task),
        .directory = role->directory ? psrti_xstrdup(role->directory) : NULL,
        .grace_ns = role->grace_ns ? role->grace_ns : job->grace_ns,
        .listen = psrti_contract_takes_sockets(task),
    };
    psrti_contract_env(job, task, &own);
    full_env(&own, &launch->env);
    psrti_env_clear(&own);
}

void psrti_launch_clear(psrti_launch_t *launch)
{
    for (char **arg = launch->argv; arg && *arg; arg++)
        free(*arg);
    free(launch->argv);
    free(launch->directory);
    psrti_env_clear(&launch->env);
    *launch = (psrti_launch_t){ 0 };
}
