/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a job: what the job file and the flags say, and the tasks that follow from it.
 * Every placement backend and every renderer starts from the same description. A job owns all that
 * it points to. */
#ifndef PSRTI_LAUNCHER_JOB_H
#define PSRTI_LAUNCHER_JOB_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

#include "base/jobkey.h"
#include "launcher/env.h"

#define PSRTI_JOB_TASKS_MAX 65535 /* of a role */
#define PSRTI_JOB_PORTS_MAX 64    /* of a task */
#define PSRTI_JOB_GPUS_MAX 64
#define PSRTI_JOB_HOSTS_MAX 1024      /* of a job that discovers hosts */
#define PSRTI_HOST_ELSEWHERE UINT_MAX /* of a task that an agent has nothing to do with */
#define PSRTI_NO_HOST (UINT_MAX - 1)  /* of a task that waits for its first one */
#define PSRTI_ROLE_NAME_MAX 32
#define PSRTI_TASK_NAME_MAX (PSRTI_ROLE_NAME_MAX + 8)

/* What a role is to libpsrt; in the order in which a job's roles are laid out. */
typedef enum psrti_kind {
    PSRTI_KIND_COORDINATOR,
    PSRTI_KIND_SERVER,
    PSRTI_KIND_WORKER,
    PSRTI_KIND_OTHER /* beside the training: an evaluator, TensorBoard */
} psrti_kind_t;

typedef enum psrti_restart_when {
    PSRTI_RESTART_NEVER,
    PSRTI_RESTART_ON_FAILURE,
    PSRTI_RESTART_ALWAYS
} psrti_restart_when_t;

typedef enum psrti_bind {
    PSRTI_BIND_NONE,
    PSRTI_BIND_CORES, /* each worker to its share of the host's cores */
    PSRTI_BIND_NUMA   /* each worker to one of the host's NUMA nodes */
} psrti_bind_t;

/* What tasks take over from the launcher's environment. */
typedef enum psrti_inherit {
    PSRTI_INHERIT_AUTO, /* only before psrti_inherit_choose */
    PSRTI_INHERIT_ALL,
    PSRTI_INHERIT_LISTED,
    PSRTI_INHERIT_NONE
} psrti_inherit_t;

/* Which ends of a role's tasks make the job succeed. */
typedef enum psrti_success {
    PSRTI_SUCCESS_DEFAULT, /* only before psrti_job_plan, which puts one of the others in place */
    PSRTI_SUCCESS_ALL,
    PSRTI_SUCCESS_ANY,
    PSRTI_SUCCESS_NONE /* they never decide it */
} psrti_success_t;

typedef struct psrti_restart {
    psrti_restart_when_t when;
    unsigned limit;
    uint64_t backoff_ns, backoff_max_ns; /* doubles from one to the other */
    uint64_t healthy_ns;                 /* after running for so long, restarts count from 0 */
    uint8_t codes[32];                   /* bit n: exit code n is restarted */
    int codes_set;                       /* not: all but 0, 2, 126 and 127 */
} psrti_restart_t;

typedef struct psrti_volume {
    char *source, *target;
    int read_only;
} psrti_volume_t;

/* Marathon's operators: UNIQUE CLUSTER GROUP_BY LIKE UNLIKE MAX_PER IS. */
typedef struct psrti_constraint {
    char *field, *op, *value; /* value: NULL when there is none */
} psrti_constraint_t;

typedef struct psrti_role {
    char *name; /* [a-z][a-z0-9_-]* */
    psrti_kind_t kind;
    unsigned count, min, max; /* elastic when min < max */
    char **argv;              /* exact, NULL-terminated; or */
    char *shell;              /* for /bin/sh -c; both NULL: psrtd */
    double cpus;              /* 0: not said */
    uint64_t mem_mb;          /* 0: not said */
    unsigned gpus;            /* per task */
    unsigned ports;           /* per task */
    psrti_env_t env;
    char *image, *directory, *virtualenv;
    char *initializer, *finalizer; /* for /bin/sh before the command, which then needs a success of
                                      it, and after it in any case; NULL: none */
    int doubled_braces;            /* the command is written for tfrun */
    psrti_volume_t *volumes;
    size_t volume_count;
    psrti_constraint_t *constraints;
    size_t constraint_count;
    psrti_restart_t restart;
    psrti_success_t success;
    uint64_t grace_ns; /* 0: the job's */
} psrti_role_t;

typedef struct psrti_host {
    char *name;
    char *address;     /* what other tasks dial; chosen by the backend, NULL before */
    char *user;        /* NULL: not said */
    unsigned ssh_port; /* 0: not said */
    /* What it has; 0: not said, no limit. */
    unsigned slots; /* places for workers */
    double cpus;
    uint64_t mem_mb;
    unsigned gpus;
    char *gpu_names;        /* "2,3": what they are called there; NULL: 0, 1 and so on */
    char *dir, *psrtd;      /* there; NULL: as the job's */
    psrti_env_t attributes; /* for constraints: "rack=r1" */
} psrti_host_t;

/* One process of the job, started anew at each attempt. */
typedef struct psrti_task {
    psrti_role_t *role;
    unsigned index;                  /* within the role */
    unsigned attempt;                /* 0 for the first start */
    size_t id;                       /* position in the job's tasks */
    char name[PSRTI_TASK_NAME_MAX];  /* "worker:1" */
    unsigned host;                   /* into the job's hosts; PSRTI_NO_HOST */
    int unplaced;                    /* takes nothing of it: it has none yet, or was shed */
    unsigned rank;                   /* among all tasks of its kind; a chief is worker 0 */
    unsigned local_rank, local_size; /* among those of its kind on its host */
    unsigned *gpu_ids;
    unsigned gpu_count;
    uint16_t *ports; /* role->ports of them; 0: not known yet, the backend fills them in */
} psrti_task_t;

typedef struct psrti_job {
    char *name;
    psrti_role_t *roles;
    size_t role_count;
    psrti_host_t *hosts;
    size_t host_count;
    int discovers;           /* hosts may be added while it runs; all have slots */
    unsigned slots_per_host; /* of discovered ones; 0: not said */
    char *backend;           /* NULL: local */
    psrti_env_t env;         /* of all tasks */
    psrti_inherit_t inherit;
    char *log_dir, *start_timeout, *security, *transport; /* NULL: not given */
    char *worker_logs;   /* of which workers output is shown: "0,2" or "*"; NULL: all */
    char *quiet_ranks;   /* of which it is not; only without worker_logs */
    uint64_t log_limit;  /* bytes of each file in log_dir; 0: none */
    uint64_t timeout_ns; /* 0: none */
    uint64_t grace_ns;
    uint64_t launch_timeout_ns; /* within which a task starts; 0: no limit */
    uint64_t cooldown_ns;       /* of a lost host; 0: the default */
    uint64_t host_wait_ns;      /* within which a task without a host finds one; 0: the default */
    psrti_bind_t bind;
    int no_coordinator; /* of a job without libpsrt */
    int psd_run;        /* a configuration of psd_run describes it */
    char *run_log;      /* file of the launcher's own lines; NULL: none */
    int dry_run, json;  /* a plan only; in JSON */
    int quiet, no_prefix, label_host, timestamps, detach;
    char *interface, *subnet;       /* of the addresses that tasks use; NULL: what a probe finds */
    char *discovery_script;         /* lists the hosts; NULL: they are known */
    uint64_t discovery_interval_ns; /* between its runs; 0: the default */
    uint64_t connect_ns;            /* for all hosts to be reached */
    unsigned ssh_port;              /* of hosts that have none of their own; 0: not said */
    char *ssh_identity;             /* NULL: as ssh's own configuration says */
    char **ssh_options;             /* for ssh -o; NULL: none */
    const psrti_jobkey_t *key;      /* NULL: a new one */

    /* From psrti_job_plan. */
    size_t host_capacity; /* so many hosts there may be, without moving */
    psrti_task_t *tasks;  /* in the order of the roles */
    size_t task_count;
    unsigned servers, workers; /* tasks of that kind */
    char psrtd[PATH_MAX];      /* empty: no task runs it */

    /* From the backend before it is ready. */
    char dir[PATH_MAX];    /* the job's directory on the hosts */
    char coordinator[128]; /* tcp://host:port */
} psrti_job_t;

/* NULL: the task has none yet. */
const psrti_host_t *psrti_job_host(const psrti_job_t *job, const psrti_task_t *task);
const char *psrti_job_host_name(const psrti_job_t *job, const psrti_task_t *task); /* "-": none */

/* Of a task's host. */
const char *psrti_job_dir(const psrti_job_t *job, const psrti_task_t *task);
const char *psrti_job_psrtd(const psrti_job_t *job, const psrti_task_t *task);

/* Its address, once that and its port are known. */
void psrti_job_set_coordinator(psrti_job_t *job);

const char *psrti_kind_name(psrti_kind_t kind);

/* Set up a zeroed job with the defaults; release frees what it owns. */
void psrti_job_init(psrti_job_t *job);
void psrti_job_release(psrti_job_t *job);
/* Replaces a text that the job owns. */
void psrti_job_set(char **text, const char *value);
psrt_status_t psrti_job_set_security(psrti_job_t *job,
                                     const char *level); /* ERR_INVALID, no text */

psrti_role_t *psrti_job_role(const psrti_job_t *job, const char *name); /* NULL: no such role */
/* The first of that kind, such as the servers whether called "server" or "ps"; NULL: none. */
psrti_role_t *psrti_job_role_of(const psrti_job_t *job, psrti_kind_t kind);
int psrti_role_name_is_valid(const char *name);
/* Adds one with the defaults of its name; invalidates pointers to roles. */
psrti_role_t *psrti_job_add_role(psrti_job_t *job, const char *name);

void psrti_role_set_count(psrti_role_t *role, unsigned count);
/* What the role runs from now on. */
void psrti_role_set_argv(psrti_role_t *role, char *const *argv);
void psrti_role_set_shell(psrti_role_t *role, const char *shell);
/* What a task of it executes, for messages. */
const char *psrti_role_program(const psrti_role_t *role);
int psrti_role_is_chief(const psrti_role_t *role);
psrti_volume_t *psrti_role_add_volume(psrti_role_t *role); /* zeroed */
void psrti_role_clear_volumes(psrti_role_t *role);
/* Of two or three words: field, operator, value. ERR_INVALID says what is wrong with them. */
psrt_status_t psrti_role_add_constraint(psrti_role_t *role, char *const *words);
void psrti_role_clear_constraints(psrti_role_t *role);
char **psrti_argv_copy(char *const *argv);
void psrti_argv_free(char **argv); /* NULL: nothing */

/* Adds the coordinator, finds psrtd and lays out the tasks. ERR_NOT_FOUND when psrtd is missing. */
psrt_status_t psrti_job_plan(psrti_job_t *job);
/* Of a planned job that discovers hosts: one more, at the end, which it takes over in any case.
 * ERR_LIMIT: there are PSRTI_JOB_HOSTS_MAX. */
psrt_status_t psrti_job_add_host(psrti_job_t *job, psrti_host_t *host);
/* Of a planned job: only the first `count` tasks of a role stay. */
void psrti_job_resize(psrti_job_t *job, psrti_role_t *role, unsigned count);

#endif
