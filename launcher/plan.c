/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/plan.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "launcher/backend.h"
#include "launcher/bind.h"
#include "launcher/contract.h"
#include "launcher/inherit.h"

#define HIDDEN "(hidden)"

/* ---- what is shown --------------------------------------------------------------------------- */

/* What is only known once the job runs. */
static void fill_in(psrti_job_t *job)
{
    snprintf(job->dir, sizeof job->dir, "(made at the start)");
    for (size_t i = 0; i < job->host_count; i++)
        if (!job->hosts[i].address) psrti_job_set(&job->hosts[i].address, job->hosts[i].name);
    for (size_t i = 0; i < job->task_count; i++)
        if (job->tasks[i].role->kind == PSRTI_KIND_COORDINATOR)
            snprintf(job->coordinator, sizeof job->coordinator, "tcp://%.64s:(chosen at the start)",
                     job->hosts[job->tasks[i].host].address);
}

/* ---- for people ------------------------------------------------------------------------------ */

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

static void print_row(const psrti_job_t *job, const psrti_task_t *task, int host_width,
                      int role_width)
{
    char ports[128] = "", gpus[PSRTI_JOB_GPUS_MAX * 3] = "-";
    size_t ports_pos = 0, gpus_pos = 0;
    psrti_launch_t launch;
    for (unsigned i = 0; i < task->role->ports; i++) {
        psrti_append(ports, sizeof ports, &ports_pos, "%s", i ? "," : "");
        if (task->ports[i])
            psrti_append(ports, sizeof ports, &ports_pos, "%u", (unsigned)task->ports[i]);
        else
            psrti_append(ports, sizeof ports, &ports_pos, "any");
    }
    for (unsigned i = 0; psrti_job_host(job, task) && i < task->gpu_count; i++)
        psrti_append(gpus, sizeof gpus, &gpus_pos, "%s%u", i ? "," : "", task->gpu_ids[i]);
    printf("%-*s  %-*s  %5u  %-5s  %-5s ", host_width, psrti_job_host_name(job, task), role_width,
           task->role->name, task->index, ports, gpus);
    if (!psrti_job_host(job, task)) {
        puts(" (waits for a host)");
        return;
    }
    psrti_contract_make(job, task, &launch);
    for (char *const *arg = launch.argv; *arg; arg++) {
        putchar(' ');
        print_quoted(*arg);
    }
    putchar('\n');
    psrti_launch_clear(&launch);
}

static void print_table(const psrti_job_t *job)
{
    int host_width = 4, role_width = 4;
    for (size_t i = 0; i < job->task_count; i++) {
        int host = (int)strlen(psrti_job_host_name(job, &job->tasks[i]));
        int role = (int)strlen(job->tasks[i].role->name);
        host_width = PSRTI_MAX(host_width, host);
        role_width = PSRTI_MAX(role_width, role);
    }
    printf("%-*s  %-*s  %5s  %-5s  %-5s  %s\n", host_width, "HOST", role_width, "ROLE", "INDEX",
           "PORT", "GPU", "COMMAND");
    for (size_t i = 0; i < job->task_count; i++)
        print_row(job, &job->tasks[i], host_width, role_width);
}

/* The topology of other hosts is known once the tasks are started there. */
static void print_binding(const psrti_job_t *job, const psrti_launch_t *launch)
{
    const psrti_backend_ops_t *ops;
    psrti_binding_t binding;
    char where[PSRTI_BINDING_TEXT] = "";
    if (!launch->bind) return;
    if (!psrti_backend_find(job, &ops) && ops == &psrti_backend_local &&
        !psrti_binding_choose(launch, &binding))
        psrti_binding_text(&binding, where, sizeof where);
    printf("    bound to part %u of %u of the %s%s%s\n", launch->bind_part, launch->bind_parts,
           launch->bind == PSRTI_BIND_NUMA ? "NUMA nodes" : "cores", *where ? ": " : "", where);
}

static void print_environment(const psrti_job_t *job, const psrti_task_t *task)
{
    psrti_env_t own = { 0 };
    psrti_launch_t launch;
    if (!psrti_job_host(job, task)) return; /* most of it follows from the host */
    psrti_contract_env(job, task, &own);
    psrti_contract_make(job, task, &launch);
    printf("\n%s\n", task->name);
    print_binding(job, &launch);
    psrti_launch_clear(&launch);
    if (task->role->directory) {
        fputs("    in directory ", stdout);
        print_quoted(task->role->directory);
        putchar('\n');
    }
    for (size_t i = 0; i < own.count; i++) {
        const char *value = strchr(own.entries[i], '=') + 1;
        printf("    %.*s", (int)(value - own.entries[i]), own.entries[i]);
        if (psrti_env_looks_secret(own.entries[i]))
            fputs(HIDDEN, stdout);
        else
            print_quoted(value);
        putchar('\n');
    }
    psrti_env_clear(&own);
}

/* What is not set above; values may be anybody's secrets. */
static void print_inherited(const psrti_job_t *job)
{
    psrti_env_t env = { 0 };
    psrti_contract_inherited(job, &env);
    printf("\nbesides, of this environment (%s):", psrti_inherit_words[job->inherit]);
    if (job->inherit != PSRTI_INHERIT_LISTED) printf(" %zu variables", env.count);
    for (size_t i = 0; i < env.count && job->inherit == PSRTI_INHERIT_LISTED; i++)
        printf(" %.*s", (int)strcspn(env.entries[i], "="), env.entries[i]);
    putchar('\n');
    psrti_env_clear(&env);
}

/* ---- for programs ---------------------------------------------------------------------------- */

/* Arguments and variables are bytes; JSON has only UTF-8. */
static json_t *text(const char *bytes)
{
    json_t *value = json_string(bytes);
    return value ? value : json_string("(not UTF-8)");
}

static json_t *environment(const psrti_job_t *job, const psrti_task_t *task)
{
    psrti_env_t own = { 0 };
    json_t *object = json_object();
    psrti_contract_env(job, task, &own);
    for (size_t i = 0; i < own.count; i++) {
        char *name = psrti_xstrdup(own.entries[i]), *equal = strchr(name, '=');
        *equal = '\0';
        json_object_set_new(object, name, text(psrti_env_looks_secret(name) ? HIDDEN : equal + 1));
        free(name);
    }
    psrti_env_clear(&own);
    return object;
}

static json_t *describe(const psrti_job_t *job, const psrti_task_t *task)
{
    json_t *ports = json_array(), *gpus = json_array(), *argv = json_array();
    psrti_launch_t launch;
    psrti_contract_make(job, task, &launch);
    for (unsigned i = 0; i < task->role->ports; i++)
        json_array_append_new(ports, json_integer(task->ports[i]));
    for (unsigned i = 0; psrti_job_host(job, task) && i < task->gpu_count; i++)
        json_array_append_new(gpus, json_integer(task->gpu_ids[i]));
    for (char *const *arg = launch.argv; *arg; arg++)
        json_array_append_new(argv, text(*arg));
    json_t *object =
        json_pack("{ss?, ss, ss, si, si, so, so, so, so, so, so}", "host",
                  psrti_job_host(job, task) ? psrti_job_host_name(job, task) : NULL, "task",
                  task->name, "role", task->role->name, "index", (int)task->index, "rank",
                  (int)task->rank, "ports", ports, "gpus", gpus, "argv", argv, "directory",
                  launch.directory ? text(launch.directory) : json_null(), "environment",
                  environment(job, task), "bind",
                  launch.bind ? json_pack("{ss, si, si}", "to",
                                          launch.bind == PSRTI_BIND_NUMA ? "numa" : "cores", "part",
                                          (int)launch.bind_part, "parts", (int)launch.bind_parts)
                              : json_null());
    psrti_launch_clear(&launch);
    return object;
}

static json_t *inherited(const psrti_job_t *job)
{
    psrti_env_t env = { 0 };
    json_t *names = json_array();
    psrti_contract_inherited(job, &env);
    for (size_t i = 0; i < env.count; i++) {
        *strchr(env.entries[i], '=') = '\0';
        json_array_append_new(names, text(env.entries[i]));
    }
    psrti_env_clear(&env);
    return names;
}

static void print_json(const psrti_job_t *job)
{
    json_t *tasks = json_array();
    for (size_t i = 0; i < job->task_count; i++)
        json_array_append_new(tasks, describe(job, &job->tasks[i]));
    json_t *plan = json_pack("{so, so}", "tasks", tasks, "inherited", inherited(job));
    json_dumpf(plan, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(plan);
}

void psrti_plan_print(psrti_job_t *job)
{
    fill_in(job);
    if (job->json) {
        print_json(job);
        return;
    }
    print_table(job);
    for (size_t i = 0; i < job->task_count; i++)
        print_environment(job, &job->tasks[i]);
    print_inherited(job);
}
