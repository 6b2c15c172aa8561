/* SPDX-License-Identifier: Apache-2.0 */
/* TFMesos' tfrun: its flags, its shell, its doubled braces. */
#ifndef PSRTI_LAUNCHER_COMPAT_TFRUN_H
#define PSRTI_LAUNCHER_COMPAT_TFRUN_H

#include "launcher/job.h"

/* As psrti_options_parse. */
psrt_status_t psrti_tfrun_parse(int argc, char **argv, psrti_job_t *job, int *done_p);

#endif
