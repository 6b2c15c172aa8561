/* SPDX-License-Identifier: Apache-2.0 */
/* Which task runs on which host, with which GPUs. Pure: it follows from the description alone, so the
 * same job lies the same way in every run.
 *
 * Workers fill a host before the next, up to its slots; on hosts without a number of slots they are
 * spread in equal blocks, so that neighbours in rank are neighbours in place. Tasks of other roles
 * take no slots and go to the host that has the fewest of their role. */
#ifndef PSRTI_LAUNCHER_PLACE_H
#define PSRTI_LAUNCHER_PLACE_H

#include "launcher/job.h"

/* Fills in host, local_rank, local_size and gpu_ids of all tasks of a planned job. An elastic role that
 * does not fit becomes smaller, down to its min: its count is then below its max, and the job as if it
 * had been described so. In a job that discovers hosts it keeps its tasks, of which the last ones are
 * unplaced and have no host yet. ERR_INVALID names the task that fits nowhere, and for each host why not. */
psrt_status_t psrti_place(psrti_job_t *job);

/* For a task that is to run elsewhere than planned: whether it fits there beside all others where
 * they are now; the move, with GPUs and a local rank that no other task there has. */
int psrti_place_allows(const psrti_job_t *job, const psrti_task_t *task, unsigned host);
void psrti_place_move(psrti_job_t *job, psrti_task_t *task, unsigned host);
/* What it had of its host is free for others, until it is moved. */
void psrti_place_leave(psrti_task_t *task);

#endif
