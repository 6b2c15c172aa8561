/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/log.h"
#include "base/topology.h"
#include "base/util.h"

/* Who a task is. Never taken over from the launcher's own environment, where a job that encloses
 * this one may have set it, and never from -x. */
static const char *const reserved[] = {
    "PSRT_ROLE",        "PSRT_RANK",    "PSRT_WORKERS",  "PSRT_SERVERS",
    "PSRT_COORDINATOR", "PSRT_JOB_DIR", "PSRT_KEY_FILE", "PSRT_LISTEN_FD",
};

const char *psrti_role_name(psrti_role_t role)
{
    static const char *const names[] = { "coordinator", "server", "worker" };
    return names[role];
}

int psrti_job_env_is_reserved(const char *name)
{
    for (size_t i = 0; i < PSRTI_COUNT(reserved); i++)
        if (!strcmp(name, reserved[i])) return 1;
    return 0;
}

/* ---- plan ------------------------------------------------------------------------------------ */

/* The directory of psrt-launch itself, then PATH. */
static psrt_status_t find_psrtd(char path[PATH_MAX])
{
    const char *override = getenv("PSRT_LAUNCH_PSRTD");
    if (override) {
        if (access(override, X_OK))
            return psrti_fail(PSRT_ERR_NOT_FOUND, "PSRT_LAUNCH_PSRTD=%s: %s", override,
                              strerror(errno));
        snprintf(path, PATH_MAX, "%s", override);
        return PSRT_OK;
    }
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash) *slash = '\0';
    if (slash && snprintf(path, PATH_MAX, "%s/psrtd", self) < PATH_MAX && !access(path, X_OK))
        return PSRT_OK;
    const char *dir = getenv("PATH");
    while (dir && *dir) {
        int n = (int)strcspn(dir, ":");
        if (n && snprintf(path, PATH_MAX, "%.*s/psrtd", n, dir) < PATH_MAX && !access(path, X_OK))
            return PSRT_OK;
        dir += n + (dir[n] == ':');
    }
    return psrti_fail(PSRT_ERR_NOT_FOUND,
                      "psrtd was found neither beside psrt-launch (%s) nor in PATH; "
                      "it runs the coordinator and the servers",
                      self);
}

static void add_task(psrti_job_t *job, psrti_role_t role, unsigned index, char *const *argv)
{
    psrti_task_t *task = &job->tasks[job->task_count];
    *task = (psrti_task_t){ .role = role, .index = index, .id = job->task_count, .argv = argv };
    if (role == PSRTI_ROLE_COORDINATOR)
        snprintf(task->name, sizeof task->name, "coordinator");
    else
        snprintf(task->name, sizeof task->name, "%s:%u", psrti_role_name(role), index);
    job->task_count++;
}

static char *const *server_argv(psrti_job_t *job)
{
    if (!job->server_command) return job->psrtd_argv;
    if (!strcmp(job->server_command, PSRTI_JOB_SERVER_SAME)) return job->command;
    return job->shell_argv;
}

psrt_status_t psrti_job_plan(psrti_job_t *job)
{
    psrt_status_t st = find_psrtd(job->psrtd);
    if (st) return st;
    job->psrtd_argv[0] = job->coordinator_argv[0] = job->psrtd;
    job->coordinator_argv[1] = (char *)"--coordinator";
    job->shell_argv[0] = (char *)"/bin/sh";
    job->shell_argv[1] = (char *)"-c";
    job->shell_argv[2] = (char *)job->server_command;
    job->tasks = psrti_xcalloc((size_t)job->workers + job->servers + 1, sizeof *job->tasks);
    add_task(job, PSRTI_ROLE_COORDINATOR, 0, job->coordinator_argv);
    for (unsigned i = 0; i < job->servers; i++)
        add_task(job, PSRTI_ROLE_SERVER, i, server_argv(job));
    for (unsigned i = 0; i < job->workers; i++)
        add_task(job, PSRTI_ROLE_WORKER, i, job->command);
    return PSRT_OK;
}

void psrti_job_release(psrti_job_t *job)
{
    free(job->tasks);
    psrti_env_clear(&job->exports);
    job->tasks = NULL;
}

/* ---- environment ----------------------------------------------------------------------------- */

static void set_default(const psrti_job_t *job, psrti_env_t *own, const char *name,
                        const char *value)
{
    if (!getenv(name) && !psrti_env_get(&job->exports, name)) psrti_env_set(own, name, value);
}

static void worker_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    psrti_env_setf(own, "RANK", "%u", task->index);
    psrti_env_setf(own, "LOCAL_RANK", "%u", task->index);
    psrti_env_setf(own, "WORLD_SIZE", "%u", job->workers);
    /* Math libraries start a thread for every core of the host, in every worker. */
    char threads[16];
    unsigned share = psrti_topology_cores(NULL) / job->workers;
    snprintf(threads, sizeof threads, "%u", PSRTI_MAX(share, 1));
    set_default(job, own, "OMP_NUM_THREADS", threads);
    set_default(job, own, "OPENBLAS_NUM_THREADS", threads);
}

void psrti_job_task_env(const psrti_job_t *job, const psrti_task_t *task, int listen_fd,
                        psrti_env_t *own)
{
    psrti_env_set(own, "PSRT_ROLE", psrti_role_name(task->role));
    psrti_env_setf(own, "PSRT_RANK", "%u", task->index);
    psrti_env_setf(own, "PSRT_WORKERS", "%u", job->workers);
    psrti_env_setf(own, "PSRT_SERVERS", "%u", job->servers);
    psrti_env_set(own, "PSRT_COORDINATOR", job->coordinator);
    psrti_env_set(own, "PSRT_JOB_DIR", job->dir);
    if (listen_fd >= 0) psrti_env_setf(own, "PSRT_LISTEN_FD", "%d", listen_fd);
    if (job->start_timeout) psrti_env_set(own, "PSRT_START_TIMEOUT", job->start_timeout);
    if (job->security) psrti_env_set(own, "PSRT_SECURITY", job->security);
    if (job->transport) psrti_env_set(own, "PSRT_TRANSPORT", job->transport);
    set_default(job, own, "PYTHONUNBUFFERED", "1");
    if (task->role == PSRTI_ROLE_WORKER) worker_env(job, task, own);
    psrti_env_merge(own, job->exports.entries);
}

void psrti_job_full_env(const psrti_env_t *own, psrti_env_t *full)
{
    psrti_env_merge(full, environ);
    for (size_t i = 0; i < PSRTI_COUNT(reserved); i++)
        psrti_env_unset(full, reserved[i]);
    psrti_env_unset(full, "PSRT_LAUNCH_PSRTD");
    psrti_env_merge(full, own->entries);
}

/* ---- --dry-run ------------------------------------------------------------------------------- */

static void print_quoted(const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=/.,:@%";
    if (*text && text[strspn(text, plain)] == '\0') {
        fputs(text, stdout);
        return;
    }
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
    putchar('\'');
}

/* By the names that such variables bear: a plan is pasted into reports. */
static int looks_secret(const char *entry)
{
    static const char *const words[] = {
        "SECRET", "TOKEN", "PASSW", "CREDENTIAL", "_KEY", "APIKEY"
    };
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(entry, "="), entry);
    for (size_t i = 0; i < PSRTI_COUNT(words); i++)
        if (strcasestr(name, words[i])) return 1;
    return 0;
}

static void print_task(const psrti_job_t *job, const psrti_task_t *task)
{
    psrti_env_t own = { 0 };
    psrti_job_task_env(job, task, task->role == PSRTI_ROLE_COORDINATOR ? 3 : -1, &own);
    printf("%s\n    role %s, index %u\n    command:", task->name, psrti_role_name(task->role),
           task->index);
    for (char *const *arg = task->argv; *arg; arg++) {
        putchar(' ');
        print_quoted(*arg);
    }
    printf("\n    environment:\n");
    for (size_t i = 0; i < own.count; i++) {
        const char *value = strchr(own.entries[i], '=') + 1;
        printf("        %.*s", (int)(value - own.entries[i]), own.entries[i]);
        if (looks_secret(own.entries[i]))
            fputs("(hidden)", stdout);
        else
            print_quoted(value);
        putchar('\n');
    }
    psrti_env_clear(&own);
}

void psrti_job_print(const psrti_job_t *job)
{
    for (size_t i = 0; i < job->task_count; i++)
        print_task(job, &job->tasks[i]);
}
