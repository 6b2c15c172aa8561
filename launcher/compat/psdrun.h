/* SPDX-License-Identifier: Apache-2.0 */
/* Poseidon's psd_run: `-c config.json -o logs "cmd"`, whose configuration is known by its keys. The
 * workers' command gets the flags that psd_run added; psrtd is the server. */
#ifndef PSRTI_LAUNCHER_COMPAT_PSDRUN_H
#define PSRTI_LAUNCHER_COMPAT_PSDRUN_H

#include <jansson.h>

#include "launcher/job.h"

int psrti_psdrun_wrote(const json_t *document);
/* Nodes, users, the virtual environment. ERR_INVALID names file and key. */
psrt_status_t psrti_psdrun_read(psrti_job_t *job, const json_t *document, const char *path);
/* Command and logs, of a job that was read so. `out`: the folder of -o; NULL: this one. */
psrt_status_t psrti_psdrun_complete(psrti_job_t *job, char *const *command, const char *out);

#endif
