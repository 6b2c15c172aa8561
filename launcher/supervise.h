/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a job from the first start to the last end. */
#ifndef PSRTI_LAUNCHER_SUPERVISE_H
#define PSRTI_LAUNCHER_SUPERVISE_H

#include "launcher/backend.h"
#include "launcher/logfile.h"
#include "launcher/record.h"

typedef struct psrti_supervise_params {
    psrti_record_t *record;   /* NULL: none is kept */
    psrti_logfile_t *output;  /* to which stdout and stderr lead; NULL: they lead elsewhere */
    void (*ready)(void *arg); /* all hosts are reached; NULL: nobody waits for it */
    void *arg;
} psrti_supervise_params_t;

/* Starts all tasks of a planned job and stays until the last is gone. *exit_code_p is written on
 * success: the code for psrt-launch to exit with; why it is not 0 was said on stderr. */
psrt_status_t psrti_supervise(psrti_job_t *job, const psrti_backend_ops_t *ops,
                              const psrti_supervise_params_t *params, int *exit_code_p);

#endif
