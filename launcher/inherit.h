/* SPDX-License-Identifier: Apache-2.0 */
/* What tasks take over from the environment in which psrt-launch was started. */
#ifndef PSRTI_LAUNCHER_INHERIT_H
#define PSRTI_LAUNCHER_INHERIT_H

#include "launcher/job.h"

extern const char *const psrti_inherit_words[]; /* by psrti_inherit_t; NULL at the end */

/* Puts another in the place of PSRTI_INHERIT_AUTO, once the hosts are known. */
void psrti_inherit_choose(psrti_job_t *job);

/* NULL: it is not set, or stays behind. */
const char *psrti_inherit_get(const psrti_job_t *job, const char *name);
void psrti_inherit_all(const psrti_job_t *job, psrti_env_t *env);

#endif
