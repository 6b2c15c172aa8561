/* SPDX-License-Identifier: Apache-2.0 */
/* Starters that reach a host by a program of its own: one that runs a command there and passes its
 * standard streams on, as ssh and srun do. */
#ifndef PSRTI_LAUNCHER_LOGIN_H
#define PSRTI_LAUNCHER_LOGIN_H

#include "launcher/remote.h"

/* The program and its arguments, to run `command`, a line for /bin/sh, on a host. All is freed. */
typedef char **psrti_login_fn(const psrti_job_t *job, unsigned host, const char *command);

psrt_status_t psrti_login_open(uv_loop_t *loop, const psrti_job_t *job,
                               const psrti_starter_events_t *events, psrti_login_fn *argv_of,
                               psrti_starter_t **starter_p);
/* The rest of a starter's table. */
void psrti_login_start(psrti_starter_t *starter, unsigned host, const void *bootstrap, size_t len);
void psrti_login_close(psrti_starter_t *starter);
void psrti_login_release(psrti_starter_t *starter);

#endif
