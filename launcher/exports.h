/* SPDX-License-Identifier: Apache-2.0 */
/* Variables for all tasks: -x and --env-file. */
#ifndef PSRTI_LAUNCHER_EXPORTS_H
#define PSRTI_LAUNCHER_EXPORTS_H

#include "launcher/job.h"

/* "NAME=VALUE"; "NAME", whose present value is passed on; "PREFIX*", all that begin so. Over what the
 * job file says for single roles. ERR_INVALID says what is wrong. */
psrt_status_t psrti_export(psrti_job_t *job, const char *text);

/* A file of such, one a line, without quotes or escapes; a # at its beginning makes a line a comment.
 * Errors name file and line. */
psrt_status_t psrti_export_file(psrti_job_t *job, const char *path);

#endif
