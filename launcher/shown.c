/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/shown.h"

#include "base/log.h"
#include "launcher/indices.h"

static unsigned count_workers(const psrti_job_t *job)
{
    unsigned count = 0;
    for (size_t i = 0; i < job->role_count; i++)
        if (job->roles[i].kind == PSRTI_KIND_WORKER) count += job->roles[i].count;
    return count;
}

psrt_status_t psrti_shown_check(const psrti_job_t *job)
{
    const char *list = job->worker_logs ? job->worker_logs : job->quiet_ranks;
    if (!list) return PSRT_OK;
    if (job->worker_logs && job->quiet_ranks)
        return psrti_fail(PSRT_ERR_INVALID,
                          "--worker-logs (--tee) %s says already whose output is shown; drop "
                          "--quiet-ranks %s",
                          job->worker_logs, job->quiet_ranks);
    unsigned workers = count_workers(job), last = psrti_indices_max(list);
    if (!workers || last < workers) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INVALID, "%s %s: there is no worker %u, the last one is %u",
                      job->worker_logs ? "--worker-logs" : "--quiet-ranks", list, last,
                      workers - 1);
}

int psrti_shown_has(const psrti_job_t *job, const psrti_task_t *task)
{
    if (task->role->kind != PSRTI_KIND_WORKER) return 1;
    if (job->quiet_ranks) return !psrti_indices_has(job->quiet_ranks, task->rank);
    return !job->worker_logs || psrti_indices_has(job->worker_logs, task->rank);
}
