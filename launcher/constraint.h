/* SPDX-License-Identifier: Apache-2.0 */
/* Placement constraints with Marathon's operators: which host may take the next task of a role,
 * given where its other tasks are. */
#ifndef PSRTI_LAUNCHER_CONSTRAINT_H
#define PSRTI_LAUNCHER_CONSTRAINT_H

#include "launcher/job.h"

/* What a host has for a field: its name for "hostname", else the attribute; NULL: nothing. */
const char *psrti_constraint_field(const psrti_host_t *host, const char *field);

/* Whether `host` may take one more task of a role that has taken[i] on job->hosts[i]. */
int psrti_constraint_allows(const psrti_constraint_t *constraint, const psrti_job_t *job,
                            const unsigned *taken, const psrti_host_t *host);

#endif
