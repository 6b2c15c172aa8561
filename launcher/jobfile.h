/* SPDX-License-Identifier: Apache-2.0 */
/* The job file: JSON, as job.schema.json says and docs/launcher.md explains. Adding a key is a row in
 * a table here and its description there; a test compares them. */
#ifndef PSRTI_LAUNCHER_JOBFILE_H
#define PSRTI_LAUNCHER_JOBFILE_H

#include <jansson.h>

#include "launcher/job.h"

/* What the file says, over what the job already has. ERR_INVALID names file, line and column, or
 * file and key. */
/* Any JSON document. */
psrt_status_t psrti_jobfile_parse(const char *path, json_t **document_p);
psrt_status_t psrti_jobfile_load(psrti_job_t *job, const char *path);
/* One value of it from a flag, "roles.worker.cpus=2": a value that is no JSON is a text. */
psrt_status_t psrti_jobfile_set(psrti_job_t *job, const char *assignment);

#endif
