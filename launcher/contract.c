/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/topology.h"
#include "base/util.h"
#include "launcher/expand.h"
#include "launcher/frameworks.h"
#include "launcher/hostenv.h"
#include "launcher/inherit.h"

/* Who a task is. Never taken over from the launcher's own environment, where a job that encloses
 * this one may have set it, and never from -x. */
static const char *const reserved[] = {
    "PSRT_ROLE",        "PSRT_RANK",    "PSRT_WORKERS",  "PSRT_SERVERS",   "PSRT_START_WORKERS",
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
    return !task->role->argv && !task->role->shell;
}

/* ---- environment ----------------------------------------------------------------------------- */

static void set_default(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own,
                        const char *name, const char *value)
{
    if (!psrti_inherit_get(job, name) && !psrti_env_get(&job->env, name) &&
        !psrti_env_get(&task->role->env, name))
        psrti_env_set(own, name, value);
}

/* Math libraries start a thread for every core of the host, in every worker. */
static void set_threads(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    char threads[16];
    unsigned share = psrti_topology_cores(NULL) / task->local_size;
    snprintf(threads, sizeof threads, "%u", PSRTI_MAX(share, 1));
    set_default(job, task, own, "OMP_NUM_THREADS", threads);
    set_default(job, task, own, "OPENBLAS_NUM_THREADS", threads);
}

/* Those of the user, whose values may have placeholders. */
static void set_expanded(const psrti_job_t *job, const psrti_task_t *task, const psrti_env_t *env,
                         psrti_env_t *own)
{
    for (size_t i = 0; i < env->count; i++) {
        const char *value = strchr(env->entries[i], '=') + 1;
        char *name = psrti_xstrdup(env->entries[i]);
        char *expanded = psrti_expand(job, task, value);
        name[value - 1 - env->entries[i]] = '\0';
        psrti_env_set(own, name, expanded);
        free(name);
        free(expanded);
    }
}

/* As its activate script does. */
static void enter_virtualenv(const psrti_job_t *job, const psrti_role_t *role, psrti_env_t *own)
{
    const char *path = psrti_env_get(own, "PATH");
    if (!path) path = psrti_inherit_get(job, "PATH");
    if (!role->virtualenv) return;
    char *joined = psrti_xstrdup(path ? path : "/usr/bin:/bin");
    psrti_env_setf(own, "PATH", "%s/bin:%s", role->virtualenv, joined);
    psrti_env_set(own, "VIRTUAL_ENV", role->virtualenv);
    free(joined);
}

/* Who has no host yet is not waited for. */
static void set_start_workers(const psrti_job_t *job, psrti_env_t *own)
{
    unsigned count = job->workers;
    for (size_t i = 0; i < job->task_count; i++) {
        const psrti_task_t *task = &job->tasks[i];
        if (task->role->kind == PSRTI_KIND_WORKER && task->unplaced)
            count = PSRTI_MIN(count, task->rank);
    }
    if (count < job->workers) psrti_env_setf(own, "PSRT_START_WORKERS", "%u", PSRTI_MAX(count, 1));
}

void psrti_contract_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    psrti_env_set(own, "PSRT_ROLE", psrti_kind_name(task->role->kind));
    psrti_env_setf(own, "PSRT_RANK", "%u", task->rank);
    psrti_env_setf(own, "PSRT_WORKERS", "%u", job->workers);
    psrti_env_setf(own, "PSRT_SERVERS", "%u", job->servers);
    if (task->role->kind == PSRTI_KIND_COORDINATOR) set_start_workers(job, own);
    psrti_env_set(own, "PSRT_COORDINATOR", job->coordinator);
    psrti_env_set(own, "PSRT_JOB_DIR", psrti_job_dir(job, task));
    if (psrti_contract_takes_sockets(task))
        psrti_env_setf(own, "PSRT_LISTEN_FD", "%d", PSRTI_LISTEN_FD);
    if (job->start_timeout) psrti_env_set(own, "PSRT_START_TIMEOUT", job->start_timeout);
    if (job->security) psrti_env_set(own, "PSRT_SECURITY", job->security);
    if (job->transport) psrti_env_set(own, "PSRT_TRANSPORT", job->transport);
    set_default(job, task, own, "PYTHONUNBUFFERED", "1");
    if (task->role->kind == PSRTI_KIND_WORKER) set_threads(job, task, own);
    psrti_frameworks_env(job, task, own);
    set_expanded(job, task, &job->env, own);
    set_expanded(job, task, &task->role->env, own);
    enter_virtualenv(job, task->role, own);
}

static const char *const for_testing[] = { "PSRT_LAUNCH_PSRTD", "PSRT_LAUNCH_AGENT",
                                           "PSRT_LAUNCH_SSH" };

void psrti_contract_inherited(const psrti_job_t *job, psrti_env_t *env)
{
    psrti_inherit_all(job, env);
    psrti_hostenv_remove(env);
    for (size_t i = 0; i < PSRTI_COUNT(reserved); i++)
        psrti_env_unset(env, reserved[i]);
    for (size_t i = 0; i < PSRTI_COUNT(for_testing); i++)
        psrti_env_unset(env, for_testing[i]);
    psrti_frameworks_unset(env);
}

/* Those over what is taken over; an agent adds what belongs to its host. */
static void full_env(const psrti_job_t *job, const psrti_task_t *task, const psrti_env_t *own,
                     psrti_env_t *full)
{
    const psrti_host_t *host = psrti_job_host(job, task);
    psrti_contract_inherited(job, full);
    if (host && !host->dir) psrti_hostenv_add(full); /* else its agent adds its own */
    if (psrti_env_get(own, "VIRTUAL_ENV")) psrti_env_unset(full, "PYTHONHOME");
    psrti_env_merge(full, own->entries);
}

/* ---- argv ------------------------------------------------------------------------------------ */

/* $1 initializer, $2 finalizer, then the command. The finalizer runs also when the task is asked to
 * end: a shell with a trap waits for the command, which gets the signal too. */
static const char wrapper[] = "first=$1 last=$2; shift 2; trap : TERM INT HUP\n"
                              "[ -z \"$first\" ] || /bin/sh -c \"$first\" || exit\n"
                              "\"$@\"; code=$?\n"
                              "[ -z \"$last\" ] || /bin/sh -c \"$last\"\n"
                              "exit $code";

static void add_arg(char **argv, const char *text)
{
    while (*argv)
        argv++;
    *argv = psrti_xstrdup(text);
}

static void add_expanded(const psrti_job_t *job, const psrti_task_t *task, char **argv,
                         const char *text)
{
    while (*argv)
        argv++;
    *argv = (task->role->doubled_braces ? psrti_expand_doubled : psrti_expand)(job, task, text);
}

static char **make_argv(const psrti_job_t *job, const psrti_task_t *task)
{
    const psrti_role_t *role = task->role;
    const char *first = role->initializer, *last = role->finalizer;
    size_t count = 0;
    while (role->argv && role->argv[count])
        count++;
    char **argv = psrti_xcalloc(count + 10, sizeof *argv);
    if (first || last) {
        const char *const words[] = { "/bin/sh",       "-c", wrapper, "/bin/sh", first ? first : "",
                                      last ? last : "" };
        for (size_t i = 0; i < PSRTI_COUNT(words); i++)
            add_arg(argv, words[i]);
    }
    if (role->shell) {
        add_arg(argv, "/bin/sh");
        add_arg(argv, "-c");
        add_expanded(job, task, argv, role->shell);
    } else if (role->argv) {
        for (size_t i = 0; i < count; i++)
            add_expanded(job, task, argv, role->argv[i]);
    } else {
        add_arg(argv, psrti_job_psrtd(job, task));
        if (role->kind == PSRTI_KIND_COORDINATOR) add_arg(argv, "--coordinator");
    }
    return argv;
}

void psrti_contract_make(const psrti_job_t *job, const psrti_task_t *task, psrti_launch_t *launch)
{
    const psrti_role_t *role = task->role;
    psrti_env_t own = { 0 };
    *launch = (psrti_launch_t){
        .argv = make_argv(job, task),
        .directory = role->directory ? psrti_expand(job, task, role->directory) : NULL,
        .grace_ns = role->grace_ns ? role->grace_ns : job->grace_ns,
        .virtualenv = role->virtualenv != NULL,
        .listen = psrti_contract_takes_sockets(task),
    };
    if (job->bind && role->kind == PSRTI_KIND_WORKER) {
        launch->bind = job->bind;
        launch->bind_part = task->local_rank;
        launch->bind_parts = task->local_size;
    }
    psrti_contract_env(job, task, &own);
    full_env(job, task, &own, &launch->env);
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
