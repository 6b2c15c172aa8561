/* SPDX-License-Identifier: Apache-2.0 */
/* `psrt-launch preflight`: are the hosts of a job fit for it? */
#ifndef PSRTI_LAUNCHER_PREFLIGHT_H
#define PSRTI_LAUNCHER_PREFLIGHT_H

#include "launcher/job.h"

/* Reaches all hosts as a run would, and prints a line on each. *code_p: 0 when all can be used. */
psrt_status_t psrti_preflight(psrti_job_t *job, int *code_p);

#endif
