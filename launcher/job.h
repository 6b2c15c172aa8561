/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a job: what the flags say, and the tasks that follow from it. Every placement
 * backend starts from the same description. */
#ifndef PSRTI_LAUNCHER_JOB_H
#define PSRTI_LAUNCHER_JOB_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

#include "launcher/env.h"

typedef enum psrti_role {
    PSRTI_ROLE_COORDINATOR,
    PSRTI_ROLE_SERVER,
    PSRTI_ROLE_WORKER
} psrti_role_t;

/* One process of the job, started anew at each attempt. */
typedef struct psrti_task {
    psrti_role_t role;
    unsigned index;   /* within the role; the rank */
    unsigned attempt; /* 0 for the first start */
    size_t id;        /* position in the job's tasks */
    char name[24];    /* "worker:1" */
    char *const *argv;
} psrti_task_t;

typedef struct psrti_job {
    /* From the flags. */
    unsigned workers, servers;
    char *const *command;       /* of the workers, NULL-terminated */
    const char *server_command; /* NULL: psrtd; "same": that of the workers; else for /bin/sh -c */
    const char *log_dir, *start_timeout, *security, *transport; /* NULL: not given */
    uint64_t timeout_ns;                                        /* 0: none */
    uint64_t grace_ns;
    psrti_env_t exports; /* -x */
    int dry_run, quiet, no_prefix;

    /* From psrti_job_plan. */
    psrti_task_t *tasks; /* coordinator, servers, workers */
    size_t task_count;
    char psrtd[PATH_MAX];
    char *psrtd_argv[2], *coordinator_argv[3], *shell_argv[4];

    /* From the backend when it opens. */
    char dir[PATH_MAX];    /* the job's directory on the hosts */
    char coordinator[128]; /* tcp://host:port */
} psrti_job_t;

#define PSRTI_JOB_SERVER_SAME "same"

const char *psrti_role_name(psrti_role_t role);

/* Finds psrtd and lays out the tasks. ERR_NOT_FOUND when psrtd is missing. */
psrt_status_t psrti_job_plan(psrti_job_t *job);
void psrti_job_release(psrti_job_t *job);

/* The variables that the launcher sets for a task, in the order in which --dry-run prints them.
 * listen_fd: of the coordinator, -1 for the others. */
void psrti_job_task_env(const psrti_job_t *job, const psrti_task_t *task, int listen_fd,
                        psrti_env_t *own);
/* Those over the launcher's own environment, less what belongs to another job. */
void psrti_job_full_env(const psrti_env_t *own, psrti_env_t *full);
/* True for a variable that says who a task is, which -x must not change. */
int psrti_job_env_is_reserved(const char *name);

/* The plan on stdout, without secrets. */
void psrti_job_print(const psrti_job_t *job);

#endif
