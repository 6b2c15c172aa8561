/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a planned job, here or in the background, and keeps a record of it. */
#ifndef PSRTI_LAUNCHER_RUN_H
#define PSRTI_LAUNCHER_RUN_H

#include "launcher/backend.h"

/* *code_p: for psrt-launch to exit with. With the job's detach: 0 when it runs in the background, and
 * its id was printed. */
psrt_status_t psrti_run(psrti_job_t *job, const psrti_backend_ops_t *ops, int *code_p);

#endif
