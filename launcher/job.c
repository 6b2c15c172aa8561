/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/exits.h"
#include "launcher/hosts.h"
#include "launcher/program.h"

#define LAUNCH_DEFAULT (60 * PSRTI_NS_PER_S)
#define CONNECT_DEFAULT (30 * PSRTI_NS_PER_S)
#define GRACE_DEFAULT (5 * PSRTI_NS_PER_S)
#define BACKOFF_DEFAULT (1 * PSRTI_NS_PER_S)
#define BACKOFF_MAX_DEFAULT (60 * PSRTI_NS_PER_S)
#define HEALTHY_DEFAULT (300 * PSRTI_NS_PER_S)
#define RESTARTS_DEFAULT 3
#define COORDINATOR_RESTARTS 5
#define COORDINATOR_BACKOFF (100 * PSRTI_NS_PER_MS)

const char *psrti_kind_name(psrti_kind_t kind)
{
    static const char *const names[] = { "coordinator", "server", "worker", "other" };
    return names[kind];
}

/* ---- roles ----------------------------------------------------------------------------------- */

/* Names that other systems gave to what is a server or a worker to libpsrt. */
static psrti_kind_t kind_of(const char *name)
{
    static const struct {
        const char *name;
        psrti_kind_t kind;
    } known[] = {
        { "coordinator", PSRTI_KIND_COORDINATOR },
        { "server", PSRTI_KIND_SERVER },
        { "ps", PSRTI_KIND_SERVER },
        { "worker", PSRTI_KIND_WORKER },
        { "chief", PSRTI_KIND_WORKER },
        { "master", PSRTI_KIND_WORKER },
    };
    for (size_t i = 0; i < PSRTI_COUNT(known); i++)
        if (!strcmp(name, known[i].name)) return known[i].kind;
    return PSRTI_KIND_OTHER;
}

int psrti_role_name_is_valid(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    return *name >= 'a' && *name <= 'z' && strlen(name) < PSRTI_ROLE_NAME_MAX &&
           !name[strspn(name, letters)];
}

void psrti_role_set_count(psrti_role_t *role, unsigned count)
{
    int elastic = role->min < role->count;
    role->min = elastic ? PSRTI_MIN(role->min, count) : count;
    role->count = role->max = count;
}

int psrti_role_is_chief(const psrti_role_t *role)
{
    return !strcmp(role->name, "chief") || !strcmp(role->name, "master");
}

psrti_role_t *psrti_job_role(const psrti_job_t *job, const char *name)
{
    for (size_t i = 0; i < job->role_count; i++)
        if (!strcmp(job->roles[i].name, name)) return &job->roles[i];
    return NULL;
}

psrti_role_t *psrti_job_role_of(const psrti_job_t *job, psrti_kind_t kind)
{
    for (size_t i = 0; i < job->role_count; i++)
        if (job->roles[i].kind == kind) return &job->roles[i];
    return NULL;
}

/* It is off the data path and has its state in a file: the job lives on without it for a while. */
static psrti_restart_t coordinator_restart(void)
{
    psrti_restart_t restart = { .when = PSRTI_RESTART_ON_FAILURE,
                                .limit = COORDINATOR_RESTARTS,
                                .backoff_ns = COORDINATOR_BACKOFF,
                                .backoff_max_ns = BACKOFF_MAX_DEFAULT,
                                .healthy_ns = HEALTHY_DEFAULT,
                                .codes_set = 1 };
    static const uint8_t never[] = { 0, 2, PSRTI_EXIT_NOT_ASSEMBLED, PSRTI_EXIT_CANNOT_RUN,
                                     PSRTI_EXIT_NOT_FOUND };
    memset(restart.codes, 0xff, sizeof restart.codes);
    for (size_t i = 0; i < sizeof never; i++)
        restart.codes[never[i] / 8] &= (uint8_t) ~(1u << never[i] % 8);
    return restart;
}

psrti_role_t *psrti_job_add_role(psrti_job_t *job, const char *name)
{
    job->roles = psrti_xrealloc(job->roles, (job->role_count + 1) * sizeof *job->roles);
    psrti_role_t *role = &job->roles[job->role_count++];
    *role = (psrti_role_t){
        .name = psrti_xstrdup(name),
        .kind = kind_of(name),
        .count = 1,
        .min = 1,
        .max = 1,
        .ports = 1,
        .restart = { .limit = RESTARTS_DEFAULT,
                     .backoff_ns = BACKOFF_DEFAULT,
                     .backoff_max_ns = BACKOFF_MAX_DEFAULT,
                     .healthy_ns = HEALTHY_DEFAULT },
        .success = PSRTI_SUCCESS_DEFAULT,
    };
    if (role->kind == PSRTI_KIND_COORDINATOR) role->restart = coordinator_restart();
    return role;
}

void psrti_job_set(char **text, const char *value)
{
    char *copy = value ? psrti_xstrdup(value) : NULL; /* may be the old one */
    free(*text);
    *text = copy;
}

char **psrti_argv_copy(char *const *argv)
{
    size_t count = 0;
    while (argv[count])
        count++;
    char **copy = psrti_xcalloc(count + 1, sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = psrti_xstrdup(argv[i]);
    return copy;
}

void psrti_argv_free(char **argv)
{
    for (char **arg = argv; arg && *arg; arg++)
        free(*arg);
    free(argv);
}

static void clear_command(psrti_role_t *role)
{
    psrti_argv_free(role->argv);
    free(role->shell);
    role->argv = NULL;
    role->shell = NULL;
}

void psrti_role_set_argv(psrti_role_t *role, char *const *argv)
{
    char **copy = psrti_argv_copy(argv);
    clear_command(role);
    role->argv = copy;
}

void psrti_role_set_shell(psrti_role_t *role, const char *shell)
{
    char *copy = psrti_xstrdup(shell);
    clear_command(role);
    role->shell = copy;
}

const char *psrti_role_program(const psrti_role_t *role)
{
    if (role->shell) return "/bin/sh";
    return role->argv ? role->argv[0] : "psrtd";
}

psrti_volume_t *psrti_role_add_volume(psrti_role_t *role)
{
    role->volumes = psrti_xrealloc(role->volumes, (role->volume_count + 1) * sizeof *role->volumes);
    psrti_volume_t *volume = &role->volumes[role->volume_count++];
    *volume = (psrti_volume_t){ 0 };
    return volume;
}

void psrti_role_clear_volumes(psrti_role_t *role)
{
    for (size_t i = 0; i < role->volume_count; i++) {
        free(role->volumes[i].source);
        free(role->volumes[i].target);
    }
    free(role->volumes);
    role->volumes = NULL;
    role->volume_count = 0;
}

void psrti_role_clear_constraints(psrti_role_t *role)
{
    for (size_t i = 0; i < role->constraint_count; i++) {
        free(role->constraints[i].field);
        free(role->constraints[i].op);
        free(role->constraints[i].value);
    }
    free(role->constraints);
    role->constraints = NULL;
    role->constraint_count = 0;
}

static void role_clear(psrti_role_t *role)
{
    clear_command(role);
    psrti_role_clear_volumes(role);
    psrti_role_clear_constraints(role);
    psrti_env_clear(&role->env);
    char *const texts[] = { role->name,       role->image,       role->directory,
                            role->virtualenv, role->initializer, role->finalizer };
    for (size_t i = 0; i < PSRTI_COUNT(texts); i++)
        free(texts[i]);
}

/* ---- job ------------------------------------------------------------------------------------- */

void psrti_job_init(psrti_job_t *job)
{
    *job = (psrti_job_t){ .grace_ns = GRACE_DEFAULT,
                          .connect_ns = CONNECT_DEFAULT,
                          .launch_timeout_ns = LAUNCH_DEFAULT };
}

void psrti_job_set_coordinator(psrti_job_t *job)
{
    for (size_t i = 0; i < job->task_count; i++) {
        const psrti_task_t *task = &job->tasks[i];
        if (task->role->kind != PSRTI_KIND_COORDINATOR || task->host == PSRTI_HOST_ELSEWHERE)
            continue;
        const char *host = job->hosts[task->host].address;
        snprintf(job->coordinator, sizeof job->coordinator,
                 strchr(host, ':') ? "tcp://[%s]:%u" : "tcp://%s:%u", host,
                 (unsigned)task->ports[0]);
    }
}

const psrti_host_t *psrti_job_host(const psrti_job_t *job, const psrti_task_t *task)
{
    return task->host == PSRTI_NO_HOST ? NULL : &job->hosts[task->host];
}

const char *psrti_job_host_name(const psrti_job_t *job, const psrti_task_t *task)
{
    const psrti_host_t *host = psrti_job_host(job, task);
    return host ? host->name : "-";
}

const char *psrti_job_dir(const psrti_job_t *job, const psrti_task_t *task)
{
    const psrti_host_t *host = psrti_job_host(job, task);
    return host && host->dir ? host->dir : job->dir;
}

const char *psrti_job_psrtd(const psrti_job_t *job, const psrti_task_t *task)
{
    const psrti_host_t *host = psrti_job_host(job, task);
    return host && host->psrtd ? host->psrtd : job->psrtd;
}

psrt_status_t psrti_job_set_security(psrti_job_t *job, const char *level)
{
    if (strcmp(level, "encrypted") && strcmp(level, "authenticated") && strcmp(level, "off"))
        return PSRT_ERR_INVALID;
    psrti_job_set(&job->security, level);
    return PSRT_OK;
}

void psrti_job_release(psrti_job_t *job)
{
    for (size_t i = 0; i < job->task_count; i++) {
        free(job->tasks[i].gpu_ids);
        free(job->tasks[i].ports);
    }
    for (size_t i = 0; i < job->role_count; i++)
        role_clear(&job->roles[i]);
    psrti_hosts_t hosts = { job->hosts, job->host_count };
    psrti_hosts_clear(&hosts);
    char *const texts[] = { job->name,      job->backend,   job->log_dir,      job->start_timeout,
                            job->security,  job->transport, job->worker_logs,  job->run_log,
                            job->interface, job->subnet,    job->ssh_identity, job->quiet_ranks };
    for (size_t i = 0; i < PSRTI_COUNT(texts); i++)
        free(texts[i]);
    psrti_argv_free(job->ssh_options);
    free(job->discovery_script);
    free(job->tasks);
    free(job->roles);
    psrti_env_clear(&job->env);
    *job = (psrti_job_t){ 0 };
}

/* ---- plan ------------------------------------------------------------------------------------ */

static int runs_psrtd(const psrti_role_t *role)
{
    return role->count && !role->argv && !role->shell;
}

/* By kind; of the workers the chief first. Equal ones stay in the order of the job file. */
static int comes_before(const psrti_role_t *a, const psrti_role_t *b)
{
    if (a->kind != b->kind) return a->kind < b->kind;
    return psrti_role_is_chief(a) && !psrti_role_is_chief(b);
}

static void sort_roles(psrti_job_t *job)
{
    for (size_t i = 1; i < job->role_count; i++) {
        psrti_role_t role = job->roles[i];
        size_t at = i;
        for (; at && comes_before(&role, &job->roles[at - 1]); at--)
            job->roles[at] = job->roles[at - 1];
        job->roles[at] = role;
    }
}

/* A chief decides alone; without one all workers do. */
static void choose_success(psrti_job_t *job)
{
    int has_chief = 0;
    for (size_t i = 0; i < job->role_count; i++)
        has_chief |= psrti_role_is_chief(&job->roles[i]);
    for (size_t i = 0; i < job->role_count; i++) {
        psrti_role_t *role = &job->roles[i];
        int decides = role->kind == PSRTI_KIND_WORKER && psrti_role_is_chief(role) == has_chief;
        if (role->success == PSRTI_SUCCESS_DEFAULT)
            role->success = decides ? PSRTI_SUCCESS_ALL : PSRTI_SUCCESS_NONE;
    }
}

/* Whoever started the launcher may have given it some of the GPUs only. */
static void find_gpus(psrti_host_t *host)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char device[32];
    if (visible) {
        psrti_job_set(&host->gpu_names, visible);
        host->gpus = *visible != '\0';
        for (; *visible && host->gpus < PSRTI_JOB_GPUS_MAX; visible++)
            host->gpus += *visible == ',';
        return;
    }
    do
        snprintf(device, sizeof device, "/dev/nvidia%u", host->gpus);
    while (!access(device, F_OK) && ++host->gpus < PSRTI_JOB_GPUS_MAX);
}

/* Where none is named, this machine. */
static void add_this_host(psrti_job_t *job)
{
    job->hosts = psrti_xcalloc(1, sizeof *job->hosts);
    job->hosts[0].name = psrti_xstrdup("localhost");
    job->hosts[0].address = psrti_xstrdup("127.0.0.1");
    job->host_count = 1;
    find_gpus(&job->hosts[0]);
}

/* Others keep pointers to them, also to those that are still to come. */
static void reserve_hosts(psrti_job_t *job)
{
    job->host_capacity = job->host_count;
    if (!job->discovers) return;
    job->host_capacity = PSRTI_MAX(job->host_count, PSRTI_JOB_HOSTS_MAX);
    job->hosts = psrti_xrealloc(job->hosts, job->host_capacity * sizeof *job->hosts);
}

psrt_status_t psrti_job_add_host(psrti_job_t *job, psrti_host_t *host)
{
    if (job->host_count >= job->host_capacity) {
        psrt_status_t st =
            psrti_fail(PSRT_ERR_LIMIT, "host %s: the job has had %zu hosts, and may have no more",
                       host->name, job->host_count);
        psrti_host_clear(host);
        return st;
    }
    job->hosts[job->host_count++] = *host;
    *host = (psrti_host_t){ 0 };
    return PSRT_OK;
}

static void add_task(psrti_job_t *job, psrti_role_t *role, unsigned index)
{
    psrti_task_t *task = &job->tasks[job->task_count];
    *task = (psrti_task_t){ .role = role, .index = index, .id = job->task_count++ };
    task->ports = psrti_xcalloc(role->ports, sizeof *task->ports);
    if (role->kind == PSRTI_KIND_COORDINATOR)
        snprintf(task->name, sizeof task->name, "%s", role->name);
    else
        snprintf(task->name, sizeof task->name, "%s:%u", role->name, index);
}

static void number_tasks(psrti_job_t *job)
{
    unsigned count[PSRTI_KIND_OTHER + 1] = { 0 };
    for (size_t i = 0; i < job->task_count; i++)
        job->tasks[i].rank = count[job->tasks[i].role->kind]++;
    for (size_t i = 0; i < job->task_count; i++) {
        job->tasks[i].local_rank = job->tasks[i].rank;
        job->tasks[i].local_size = count[job->tasks[i].role->kind];
    }
    job->servers = count[PSRTI_KIND_SERVER];
    job->workers = count[PSRTI_KIND_WORKER];
}

void psrti_job_resize(psrti_job_t *job, psrti_role_t *role, unsigned count)
{
    size_t kept = 0;
    for (size_t i = 0; i < job->task_count; i++) {
        psrti_task_t *task = &job->tasks[i];
        if (task->role == role && task->index >= count) {
            free(task->gpu_ids);
            free(task->ports);
            continue;
        }
        job->tasks[kept] = *task;
        job->tasks[kept].id = kept;
        kept++;
    }
    job->task_count = kept;
    role->count = count;
    number_tasks(job);
}

static int needs_command(const psrti_job_t *job, const psrti_role_t *role)
{
    switch (role->kind) {
    case PSRTI_KIND_COORDINATOR: return 0;
    case PSRTI_KIND_SERVER: return job->no_coordinator; /* psrtd waits for a coordinator */
    default: return 1;
    }
}

static psrt_status_t check_role(const psrti_job_t *job, const psrti_role_t *role)
{
    int runs = role->argv || role->shell;
    if (role->kind == PSRTI_KIND_COORDINATOR && (runs || role->count != 1 || job->no_coordinator))
        return psrti_fail(PSRT_ERR_INVALID,
                          "role %s: there is one coordinator, which psrtd is, or none", role->name);
    if (role->count && !runs && needs_command(job, role))
        return psrti_fail(PSRT_ERR_INVALID,
                          "role %s has nothing to run: give it argv or command, or -- CMD",
                          role->name);
    const psrti_role_t *first = psrti_job_role_of(job, role->kind);
    if (first != role && (role->kind == PSRTI_KIND_SERVER || role->kind == PSRTI_KIND_COORDINATOR))
        return psrti_fail(PSRT_ERR_INVALID, "roles %s and %s are both of kind %s; one may be",
                          first->name, role->name, psrti_kind_name(role->kind));
    return PSRT_OK;
}

static psrt_status_t check_job(const psrti_job_t *job)
{
    unsigned total = 0;
    for (size_t i = 0; i < job->role_count; i++) {
        psrt_status_t st = check_role(job, &job->roles[i]);
        if (st) return st;
        if (job->roles[i].kind != PSRTI_KIND_COORDINATOR) total += job->roles[i].count;
    }
    if (!total) return psrti_fail(PSRT_ERR_INVALID, "the job has no task: give it roles");
    return PSRT_OK;
}

psrt_status_t psrti_job_plan(psrti_job_t *job)
{
    psrt_status_t st = check_job(job);
    if (st) return st;
    if (!job->no_coordinator && !psrti_job_role_of(job, PSRTI_KIND_COORDINATOR))
        psrti_job_add_role(job, "coordinator");
    sort_roles(job);
    choose_success(job);
    size_t total = 0;
    for (size_t i = 0; i < job->role_count; i++) {
        total += job->roles[i].count;
        if (*job->psrtd || !runs_psrtd(&job->roles[i])) continue;
        st = psrti_find_program("psrtd", "PSRT_LAUNCH_PSRTD",
                                "it runs the coordinator and the servers", job->psrtd);
        if (st) return st;
    }
    if (!job->host_count) add_this_host(job);
    reserve_hosts(job);
    job->tasks = psrti_xcalloc(total, sizeof *job->tasks);
    for (size_t i = 0; i < job->role_count; i++)
        for (unsigned index = 0; index < job->roles[i].count; index++)
            add_task(job, &job->roles[i], index);
    number_tasks(job);
    return PSRT_OK;
}
