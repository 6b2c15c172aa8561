/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a job, from -H, --hostfile and the job file. */
#ifndef PSRTI_LAUNCHER_HOSTS_H
#define PSRTI_LAUNCHER_HOSTS_H

#include <stdio.h>

#include "launcher/job.h"

typedef struct psrti_hosts {
    psrti_host_t *hosts;
    size_t count;
} psrti_hosts_t;

/* ERR_INVALID says what is wrong with which host; a host is listed once. */
psrt_status_t psrti_hosts_add(psrti_hosts_t *hosts, psrti_host_t *host); /* takes it over */
/* "[user@]host[:slots]"; an IPv6 address stands in brackets. */
psrt_status_t psrti_hosts_add_text(psrti_hosts_t *hosts, const char *text);
/* Several, with commas between them. */
psrt_status_t psrti_hosts_parse(psrti_hosts_t *hosts, const char *list);
/* One a line, as above or "host slots=4 user=me port=2222 gpus=2 cpus=8 mem=16g"; # starts a
 * comment. Errors name `name` and line; none is an error. */
psrt_status_t psrti_hosts_read(psrti_hosts_t *hosts, FILE *file, const char *name);
psrt_status_t psrti_hosts_load(psrti_hosts_t *hosts, const char *path);

/* The job's hosts from now on. */
void psrti_job_take_hosts(psrti_job_t *job, psrti_hosts_t *hosts);

void psrti_host_clear(psrti_host_t *host);
void psrti_hosts_clear(psrti_hosts_t *hosts);

#endif
