/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of psrt-launch. */
#ifndef PSRTI_LAUNCHER_OPTIONS_H
#define PSRTI_LAUNCHER_OPTIONS_H

#include "launcher/job.h"

/* Fills an initialised job. ERR_INVALID says which flag and what is allowed.
 * *done_p is set when --help or --version was printed and nothing is to be run. */
psrt_status_t psrti_options_parse(int argc, char **argv, psrti_job_t *job, int *done_p);

/* Names of flags that a verb takes out of argv before: errors suggest them too. They are kept. */
void psrti_options_also(const char *const *names, size_t count);

#endif
