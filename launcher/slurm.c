/* SPDX-License-Identifier: Apache-2.0 */
/* Agents started as steps of the Slurm allocation that psrt-launch runs in, one on each node. A node that is
 * lost, or an allocation that is cancelled, ends its step. */
#include "launcher/slurm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"
#include "launcher/hostlist.h"
#include "launcher/hosts.h"
#include "launcher/login.h"

/* ---- the allocation -------------------------------------------------------------------------- */

/* One number a node; 0 where Slurm does not say. */
static psrt_status_t numbers_of(const char *variable, unsigned *numbers, size_t count)
{
    const char *text = getenv(variable);
    memset(numbers, 0, count * sizeof *numbers);
    if (!text || !psrti_hostlist_counts(text, numbers, count)) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID,
                      "%s=%s does not give a number for each of the %zu nodes of "
                      "SLURM_JOB_NODELIST",
                      variable, text, count);
}

psrt_status_t psrti_slurm_hosts(psrti_job_t *job)
{
    const char *list = getenv("SLURM_JOB_NODELIST");
    char **names;
    size_t count;
    if (!list)
        return psrti_fail(
            PSRT_ERR_INVALID,
            "backend slurm works in an allocation, and SLURM_JOB_NODELIST is not set: use "
            "salloc, or psrt-launch render slurm | sbatch");
    psrt_status_t st = psrti_hostlist_expand(list, &names, &count);
    if (st) return st;
    unsigned *tasks = psrti_xcalloc(count, sizeof *tasks),
             *cpus = psrti_xcalloc(count, sizeof *cpus);
    st = numbers_of("SLURM_TASKS_PER_NODE", tasks, count);
    if (!st) st = numbers_of("SLURM_JOB_CPUS_PER_NODE", cpus, count);
    psrti_hosts_t hosts = { 0 };
    for (size_t i = 0; i < count; i++) {
        psrti_host_t host = { .name = names[i], .slots = tasks[i], .cpus = cpus[i] };
        if (st)
            free(names[i]);
        else
            st = psrti_hosts_add(&hosts, &host);
    }
    if (st)
        psrti_hosts_clear(&hosts);
    else
        psrti_job_take_hosts(job, &hosts);
    free(names);
    free(tasks);
    free(cpus);
    return st;
}

/* ---- its steps ------------------------------------------------------------------------------- */

/* Steps of one allocation share its cores: the agents' steps must not shut out those of tasks. */
static char **make_argv(const psrti_job_t *job, unsigned host, const char *command)
{
    const char *const words[] = { "srun",          "--quiet",
                                  "--nodes=1",     "--ntasks=1",
                                  "--overlap",     "--mpi=none",
                                  "--cpu-bind=no", "--job-name=psrt-agent",
                                  "--nodelist",    job->hosts[host].name,
                                  "/bin/sh",       "-c",
                                  command };
    char **argv = psrti_xcalloc(PSRTI_COUNT(words) + 1, sizeof *argv);
    for (size_t i = 0; i < PSRTI_COUNT(words); i++)
        argv[i] = psrti_xstrdup(words[i]);
    return argv;
}

PSRTI_LOGIN_BACKEND(slurm, make_argv);
