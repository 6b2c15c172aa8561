/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PSRTI_LAUNCHER_SLURM_H
#define PSRTI_LAUNCHER_SLURM_H

#include "launcher/job.h"

/* The nodes of the allocation, with their places and cpus, as the job's hosts. ERR_INVALID: there is none, or
 * its variables are not as Slurm writes them. */
psrt_status_t psrti_slurm_hosts(psrti_job_t *job);

#endif
