/* SPDX-License-Identifier: Apache-2.0 */
/* What would be started where, for people and programs to read. */
#ifndef PSRTI_LAUNCHER_PLAN_H
#define PSRTI_LAUNCHER_PLAN_H

#include "launcher/job.h"

/* The plan of a placed job on stdout, without secrets; JSON when the job says so. */
void psrti_plan_print(psrti_job_t *job);

#endif
