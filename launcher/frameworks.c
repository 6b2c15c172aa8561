/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/frameworks.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "launcher/expand.h"

/* Linux takes no variable that is longer (MAX_ARG_STRLEN), and with one no program starts. */
#define VARIABLE_MAX 131072

/* The address of everybody, in a job that is too large for it, is left out: only programs that
 * need it should fail. */
static void set_list(psrti_env_t *own, const char *name, const char *value)
{
    if (strlen(name) + strlen(value) + 2 <= VARIABLE_MAX) psrti_env_set(own, name, value);
}

/* psrtd speaks none of these protocols. */
static int is_of_user(const psrti_role_t *role) { return role->argv || role->shell; }

static int trains(const psrti_role_t *role)
{
    return is_of_user(role) && (role->kind == PSRTI_KIND_SERVER || role->kind == PSRTI_KIND_WORKER);
}

/* ---- TensorFlow ------------------------------------------------------------------------------ */

/* TensorFlow wants it to know the cluster, but not to be in it. */
static int is_evaluator(const psrti_role_t *role) { return !strcmp(role->name, "evaluator"); }

static void add_address(json_t *cluster, const psrti_job_t *job, const psrti_task_t *task)
{
    const char *name = psrti_expand_role_name(task->role);
    json_t *list = json_object_get(cluster, name);
    if (!list) {
        list = json_array();
        json_object_set_new(cluster, name, list);
    }
    char *address = psrti_expand_address(job, task, 0);
    json_array_append_new(list, json_string(address));
    free(address);
}

static void tensorflow_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    size_t members = 0;
    if (!trains(task->role) && !is_evaluator(task->role)) return;
    json_t *cluster = json_object();
    for (size_t i = 0; i < job->task_count; i++) {
        const psrti_task_t *other = &job->tasks[i];
        if (!psrti_job_host(job, other)) continue;
        if (trains(other->role)) add_address(cluster, job, other);
        members += trains(other->role) || is_evaluator(other->role);
    }
    json_t *config = json_pack("{s:o, s:{s:s, s:i}}", "cluster", cluster, "task", "type",
                               psrti_expand_role_name(task->role), "index", (int)task->index);
    char *text = json_dumps(config, JSON_COMPACT);
    if (!text) psrti_out_of_memory();
    if (members > 1) set_list(own, "TF_CONFIG", text);
    free(text);
    json_decref(config);
}

static void tfmesos_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    if (!trains(task->role)) return;
    char *servers = psrti_expand(job, task, "{ps_hosts}");
    char *workers = psrti_expand(job, task, "{worker_hosts}");
    const psrti_role_t *server = psrti_job_role_of(job, PSRTI_KIND_SERVER);
    set_list(own, "TFMESOS_PS_HOSTS", server && is_of_user(server) ? servers : "");
    set_list(own, "TFMESOS_WORKER_HOSTS", workers);
    psrti_env_set(own, "TFMESOS_JOB_NAME", psrti_expand_role_name(task->role));
    psrti_env_setf(own, "TFMESOS_TASK_INDEX", "%u", task->index);
    psrti_env_set(own, "TFMESOS_DISTRIBUTED", "1");
    free(servers);
    free(workers);
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

static const psrti_task_t *first_worker(const psrti_job_t *job)
{
    for (size_t i = 0; i < job->task_count; i++)
        if (job->tasks[i].role->kind == PSRTI_KIND_WORKER) return &job->tasks[i];
    return NULL;
}

/* Worker 0 listens at the port that the launcher keeps for it. */
static void pytorch_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    if (task->role->kind != PSRTI_KIND_WORKER) return;
    unsigned node = psrti_expand_node_rank(job, task);
    psrti_env_setf(own, "RANK", "%u", task->rank);
    psrti_env_setf(own, "LOCAL_RANK", "%u", task->local_rank);
    psrti_env_setf(own, "WORLD_SIZE", "%u", job->workers);
    psrti_env_setf(own, "LOCAL_WORLD_SIZE", "%u", task->local_size);
    psrti_env_setf(own, "GROUP_RANK", "%u", node);
    psrti_env_setf(own, "NODE_RANK", "%u", node);
    const psrti_task_t *master = first_worker(job);
    if (!master->role->ports) return;
    char *port = psrti_expand(job, master, "{port}");
    psrti_env_set(own, "MASTER_ADDR", psrti_expand_host(job, master));
    psrti_env_set(own, "MASTER_PORT", port);
    free(port);
}

/* ---- ps-lite --------------------------------------------------------------------------------- */

static const psrti_task_t *find_scheduler(const psrti_job_t *job)
{
    for (size_t i = 0; i < job->task_count; i++)
        if (!strcmp(job->tasks[i].role->name, "scheduler")) return &job->tasks[i];
    return NULL;
}

/* Only in jobs that have a scheduler: MXNet turns into a server at its import where DMLC_ROLE says
 * so, whatever else the program wanted. */
static void pslite_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    const psrti_task_t *scheduler = find_scheduler(job);
    if (!scheduler || (task != scheduler && !trains(task->role))) return;
    char *port = psrti_expand(job, scheduler, "{port}");
    psrti_env_set(own, "DMLC_ROLE",
                  task == scheduler ? "scheduler" : psrti_kind_name(task->role->kind));
    psrti_env_set(own, "DMLC_PS_ROOT_URI", psrti_expand_host(job, scheduler));
    psrti_env_set(own, "DMLC_PS_ROOT_PORT", port);
    psrti_env_setf(own, "DMLC_NUM_WORKER", "%u", job->workers);
    psrti_env_setf(own, "DMLC_NUM_SERVER", "%u", job->servers);
    psrti_env_set(own, "DMLC_NODE_HOST", psrti_expand_host(job, task));
    psrti_env_setf(own, "DMLC_TASK_ID", "%u", task->rank);
    if (task->role->kind == PSRTI_KIND_WORKER)
        psrti_env_setf(own, "DMLC_WORKER_ID", "%u", task->rank);
    if (task->role->kind == PSRTI_KIND_SERVER)
        psrti_env_setf(own, "DMLC_SERVER_ID", "%u", task->rank);
    psrti_env_setf(own, "DMLC_NUM_ATTEMPT", "%u", task->attempt);
    free(port);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* The one of number `id`, as its host calls it. */
static void append_gpu(char *ids, size_t size, size_t *pos, const char *names, unsigned id)
{
    for (unsigned i = 0; names && i < id; i++)
        names += strcspn(names, ",") + 1;
    if (names)
        psrti_append(ids, size, pos, "%.*s", (int)strcspn(names, ","), names);
    else
        psrti_append(ids, size, pos, "%u", id);
}

/* In a job that hands out GPUs a task that asked for none sees none. */
static void gpu_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    char ids[4096] = "";
    const psrti_host_t *host = psrti_job_host(job, task);
    size_t pos = 0;
    int handed_out = 0;
    for (size_t i = 0; i < job->task_count; i++)
        handed_out |= job->tasks[i].gpu_count > 0;
    if (!handed_out) return;
    for (unsigned i = 0; host && i < task->gpu_count; i++) {
        if (i) psrti_append(ids, sizeof ids, &pos, ",");
        append_gpu(ids, sizeof ids, &pos, host->gpu_names, task->gpu_ids[i]);
    }
    psrti_env_set(own, "CUDA_VISIBLE_DEVICES", ids);
}

/* ---- all ------------------------------------------------------------------------------------- */

void psrti_frameworks_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own)
{
    pytorch_env(job, task, own);
    tensorflow_env(job, task, own);
    tfmesos_env(job, task, own);
    pslite_env(job, task, own);
    gpu_env(job, task, own);
}

void psrti_frameworks_unset(psrti_env_t *env)
{
    static const char *const names[] = {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TF_CONFIG",
        "TFMESOS_PS_HOSTS",
        "TFMESOS_WORKER_HOSTS",
        "TFMESOS_JOB_NAME",
        "TFMESOS_TASK_INDEX",
        "TFMESOS_DISTRIBUTED",
    };
    for (size_t i = 0; i < PSRTI_COUNT(names); i++)
        psrti_env_unset(env, names[i]);
}
