/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/constraint.h"

#define EPSILON 1e-9 /* three tasks of 0.1 cpus fit into 0.3 */
#define REASON_MAX 128
#define NONE UINT_MAX

/* What is taken of a host. */
typedef struct use {
    double cpus;
    uint64_t mem_mb, gpus; /* gpus: bit n: GPU n */
    unsigned workers;
    unsigned of_role; /* tasks of the role that is placed now */
} use_t;

typedef struct placer {
    psrti_job_t *job;
    use_t *use;           /* of each host */
    unsigned *taken;      /* for constraints: of_role of each host */
    unsigned workers;     /* of a block on a host without a number of slots */
    psrti_task_t *misfit; /* the first that fits nowhere */
} placer_t;

/* ---- one task on one host -------------------------------------------------------------------- */

static unsigned gpus_of(const psrti_host_t *host)
{
    return host->gpus || host->gpu_names ? host->gpus : PSRTI_JOB_GPUS_MAX;
}

static const psrti_constraint_t *forbidding(const placer_t *p, const psrti_role_t *role,
                                            unsigned host)
{
    for (size_t i = 0; i < role->constraint_count; i++)
        if (!psrti_constraint_allows(&role->constraints[i], p->job, p->taken, &p->job->hosts[host]))
            return &role->constraints[i];
    return NULL;
}

/* False when it does not fit; why is written unless it is NULL. */
static int fits(const placer_t *p, const psrti_role_t *role, unsigned h, char *why)
{
    const psrti_host_t *host = &p->job->hosts[h];
    const use_t *use = &p->use[h];
    const psrti_constraint_t *c = forbidding(p, role, h);
    unsigned gpus_free = gpus_of(host) - (unsigned)__builtin_popcountll(use->gpus);
    size_t pos = 0;
    char ignored[REASON_MAX];
    char *to = why ? why : ignored;
    if (c)
        psrti_append(to, REASON_MAX, &pos, "%s %s%s%s", c->field, c->op, c->value ? " " : "",
                     c->value ? c->value : "");
    else if (role->kind == PSRTI_KIND_WORKER && host->slots && use->workers >= host->slots)
        psrti_append(to, REASON_MAX, &pos, "all %u slots taken", host->slots);
    else if (host->cpus > 0 && use->cpus + role->cpus > host->cpus + EPSILON)
        psrti_append(to, REASON_MAX, &pos, "%g of %g cpus free, %g wanted", host->cpus - use->cpus,
                     host->cpus, role->cpus);
    else if (host->mem_mb && use->mem_mb + role->mem_mb > host->mem_mb)
        psrti_append(to, REASON_MAX, &pos, "%zu of %zu MiB free, %zu wanted",
                     (size_t)(host->mem_mb - use->mem_mb), (size_t)host->mem_mb,
                     (size_t)role->mem_mb);
    else if (role->gpus > gpus_free)
        psrti_append(to, REASON_MAX, &pos, "%u of %u GPUs free, %u wanted", gpus_free,
                     gpus_of(host), role->gpus);
    return pos == 0;
}

static void count(use_t *use, const psrti_role_t *role)
{
    use->cpus += role->cpus;
    use->mem_mb += role->mem_mb;
    use->workers += role->kind == PSRTI_KIND_WORKER;
}

static void take_gpus(use_t *use, psrti_task_t *task)
{
    for (unsigned id = 0, i = 0; i < task->gpu_count && id < PSRTI_JOB_GPUS_MAX; id++) {
        if (use->gpus >> id & 1) continue;
        use->gpus |= UINT64_C(1) << id;
        task->gpu_ids[i++] = id;
    }
}

static void take(placer_t *p, psrti_task_t *task, unsigned host)
{
    use_t *use = &p->use[host];
    task->host = host;
    task->unplaced = 0;
    count(use, task->role);
    take_gpus(use, task);
    p->taken[host] = ++use->of_role;
}

/* ---- all tasks of a role --------------------------------------------------------------------- */

static unsigned first_with_room(const placer_t *p, const psrti_role_t *role)
{
    for (unsigned h = 0; h < p->job->host_count; h++) {
        unsigned slots = p->job->hosts[h].slots;
        if (p->use[h].workers < (slots ? slots : p->workers) && fits(p, role, h, NULL)) return h;
    }
    return NONE;
}

static unsigned fewest_of_role(const placer_t *p, const psrti_role_t *role)
{
    unsigned best = NONE;
    for (unsigned h = 0; h < p->job->host_count; h++)
        if ((best == NONE || p->use[h].of_role < p->use[best].of_role) && fits(p, role, h, NULL))
            best = h;
    return best;
}

static unsigned choose(const placer_t *p, const psrti_role_t *role)
{
    unsigned host = role->kind == PSRTI_KIND_WORKER ? first_with_room(p, role) : NONE;
    return host == NONE ? fewest_of_role(p, role) : host;
}

static psrt_status_t fits_nowhere(placer_t *p, psrti_task_t *task)
{
    p->misfit = task;
    char text[PSRTI_ERROR_MAX - 64] = "", why[REASON_MAX];
    size_t pos = 0;
    for (unsigned h = 0; h < p->job->host_count; h++) {
        if (sizeof text - pos < REASON_MAX + 80) {
            psrti_append(text, sizeof text, &pos, "; and %zu hosts more", p->job->host_count - h);
            break;
        }
        if (fits(p, task->role, h, why)) continue;
        psrti_append(text, sizeof text, &pos, "%s%s: %s", pos ? "; " : "", p->job->hosts[h].name,
                     why);
    }
    return psrti_fail(PSRT_ERR_INVALID, "%s fits on no host: %s", task->name, text);
}

/* Tasks of a role lie side by side. `first`: where the first goes; NONE: wherever it fits. */
static psrt_status_t place_role(placer_t *p, psrti_task_t *tasks, size_t n, unsigned first)
{
    for (unsigned h = 0; h < p->job->host_count; h++)
        p->taken[h] = p->use[h].of_role = 0;
    for (size_t i = 0; i < n && !tasks[i].unplaced; i++) {
        unsigned host = i || first == NONE ? choose(p, tasks[i].role) : first;
        if (host == NONE || !fits(p, tasks[i].role, host, NULL)) return fits_nowhere(p, &tasks[i]);
        take(p, &tasks[i], host);
    }
    return PSRT_OK;
}

static int follows_its_first(const psrti_role_t *role)
{
    for (size_t i = 0; i < role->constraint_count; i++)
        if (!strcmp(role->constraints[i].op, "CLUSTER") && !role->constraints[i].value) return 1;
    return 0;
}

/* With CLUSTER the first task decides for all: one place of it after the other is tried. */
static psrt_status_t place_cluster(placer_t *p, psrti_task_t *tasks, size_t n)
{
    size_t size = p->job->host_count * sizeof *p->use;
    use_t *before = psrti_xcalloc(p->job->host_count, sizeof *before);
    memcpy(before, p->use, size);
    psrt_status_t st = PSRT_ERR_INVALID;
    for (unsigned h = 0; st && h < p->job->host_count; h++) {
        memcpy(p->use, before, size);
        st = place_role(p, tasks, n, h);
    }
    free(before);
    return st;
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Workers that the slots do not hold, in equal blocks on the hosts without slots. */
static unsigned block(const psrti_job_t *job)
{
    unsigned unlimited = 0, rest = job->workers;
    for (size_t i = 0; i < job->host_count; i++) {
        unlimited += !job->hosts[i].slots;
        rest -= PSRTI_MIN(rest, job->hosts[i].slots);
    }
    return unlimited ? (rest + unlimited - 1) / unlimited : 0;
}

static void number_locally(psrti_job_t *job)
{
    unsigned *counts = psrti_xcalloc(job->host_count * (PSRTI_KIND_OTHER + 1), sizeof *counts);
    for (size_t i = 0; i < job->task_count; i++) {
        psrti_task_t *task = &job->tasks[i];
        if (task->unplaced) continue;
        task->local_rank = counts[task->host * (PSRTI_KIND_OTHER + 1) + task->role->kind]++;
    }
    for (size_t i = 0; i < job->task_count; i++) {
        psrti_task_t *task = &job->tasks[i];
        if (task->unplaced) continue;
        task->local_size = counts[task->host * (PSRTI_KIND_OTHER + 1) + task->role->kind];
    }
    free(counts);
}

static void make_gpu_ids(psrti_task_t *task)
{
    free(task->gpu_ids);
    task->gpu_count = task->role->gpus;
    task->gpu_ids = task->gpu_count ? psrti_xcalloc(task->gpu_count, sizeof *task->gpu_ids) : NULL;
}

/* *misfit_p: the task that did not fit. */
static psrt_status_t place_all(psrti_job_t *job, psrti_task_t **misfit_p)
{
    placer_t p = { .job = job,
                   .use = psrti_xcalloc(job->host_count, sizeof *p.use),
                   .taken = psrti_xcalloc(job->host_count, sizeof *p.taken),
                   .workers = block(job) };
    psrt_status_t st = PSRT_OK;
    for (size_t i = 0; i < job->task_count; i++)
        make_gpu_ids(&job->tasks[i]);
    for (size_t i = 0; i < job->task_count && !st;) {
        psrti_role_t *role = job->tasks[i].role;
        st = follows_its_first(role) ? place_cluster(&p, &job->tasks[i], role->count)
                                     : place_role(&p, &job->tasks[i], role->count, NONE);
        i += role->count;
    }
    free(p.use);
    free(p.taken);
    *misfit_p = p.misfit;
    return st;
}

/* The task and those behind it in its role wait for hosts that are still to come. */
static void let_wait(psrti_task_t *first)
{
    const psrti_role_t *role = first->role;
    for (psrti_task_t *task = first; task < first + (role->count - first->index); task++) {
        task->host = PSRTI_NO_HOST;
        task->unplaced = 1;
        task->local_rank = 0;
        task->local_size = 1;
    }
}

/* Leaves an elastic role the tasks before the one that did not fit. False: it needs that one. */
static int shrink(psrti_job_t *job, psrti_task_t *misfit)
{
    psrti_role_t *role = misfit->role;
    unsigned keep = misfit->index;
    if (!keep || keep < role->min) return 0;
    if (job->discovers)
        let_wait(misfit);
    else
        psrti_job_resize(job, role, keep);
    return 1;
}

psrt_status_t psrti_place(psrti_job_t *job)
{
    psrti_task_t *misfit;
    psrt_status_t st;
    do
        st = place_all(job, &misfit);
    while (st && misfit && shrink(job, misfit));
    if (!st) number_locally(job);
    return st;
}

/* ---- moving ---------------------------------------------------------------------------------- */

static placer_t without(const psrti_job_t *job, const psrti_task_t *except)
{
    placer_t p = { .job = (psrti_job_t *)job,
                   .use = psrti_xcalloc(job->host_count, sizeof *p.use),
                   .taken = psrti_xcalloc(job->host_count, sizeof *p.taken) };
    for (size_t i = 0; i < job->task_count; i++) {
        const psrti_task_t *task = &job->tasks[i];
        if (task == except || task->unplaced) continue;
        count(&p.use[task->host], task->role);
        p.taken[task->host] += task->role == except->role;
        for (unsigned k = 0; k < task->gpu_count; k++)
            p.use[task->host].gpus |= UINT64_C(1) << task->gpu_ids[k];
    }
    return p;
}

int psrti_place_allows(const psrti_job_t *job, const psrti_task_t *task, unsigned host)
{
    placer_t p = without(job, task);
    int allowed = fits(&p, task->role, host, NULL);
    free(p.use);
    free(p.taken);
    return allowed;
}

static int has_local_rank(const psrti_job_t *job, const psrti_task_t *except, unsigned host,
                          unsigned rank)
{
    for (size_t i = 0; i < job->task_count; i++) {
        const psrti_task_t *task = &job->tasks[i];
        if (task != except && !task->unplaced && task->host == host &&
            task->role->kind == except->role->kind && task->local_rank == rank)
            return 1;
    }
    return 0;
}

/* Those of a kind on a host: as many as their ranks there say. */
static void count_locally(psrti_job_t *job, psrti_kind_t kind, unsigned host)
{
    unsigned size = 0;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < job->task_count; i++) {
            psrti_task_t *task = &job->tasks[i];
            if (task->unplaced || task->host != host || task->role->kind != kind) continue;
            size = PSRTI_MAX(size, task->local_rank + 1);
            task->local_size = size;
        }
}

void psrti_place_move(psrti_job_t *job, psrti_task_t *task, unsigned host)
{
    placer_t p = without(job, task);
    take_gpus(&p.use[host], task);
    task->host = host;
    task->unplaced = 0;
    for (task->local_rank = 0; has_local_rank(job, task, host, task->local_rank);)
        task->local_rank++;
    count_locally(job, task->role->kind, host);
    free(p.use);
    free(p.taken);
}

void psrti_place_leave(psrti_task_t *task) { task->unplaced = 1; }
