/* SPDX-License-Identifier: Apache-2.0 */
/* Which tasks' output is shown: --worker-logs, --quiet-ranks. */
#ifndef PSRTI_LAUNCHER_SHOWN_H
#define PSRTI_LAUNCHER_SHOWN_H

#include "launcher/job.h"

/* Of a job with its roles: one list at most, of workers that there can be. */
psrt_status_t psrti_shown_check(const psrti_job_t *job);
int psrti_shown_has(const psrti_job_t *job, const psrti_task_t *task);

#endif
