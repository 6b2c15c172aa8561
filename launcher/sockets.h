/* SPDX-License-Identifier: Apache-2.0 */
/* The ports of the tasks on this host: bound when the job opens and kept until the task has its own
 * hold on them. A port that is only chosen could be lost before the task binds it. */
#ifndef PSRTI_LAUNCHER_SOCKETS_H
#define PSRTI_LAUNCHER_SOCKETS_H

#include "launcher/job.h"

typedef struct psrti_sockets {
    int **fds; /* of each task of the job, in the order of its ports; -1: released */
    const psrti_job_t *job;
} psrti_sockets_t;

/* Binds the ports of all tasks but those elsewhere, and fills them in. */
psrt_status_t psrti_sockets_open(psrti_sockets_t *sockets, psrti_job_t *job);
/* Those of the task that are not held, at the numbers that it has: it came here from another host. */
psrt_status_t psrti_sockets_bind(psrti_sockets_t *sockets, psrti_task_t *task);
void psrti_sockets_close(psrti_sockets_t *sockets);

const int *psrti_sockets_of(const psrti_sockets_t *sockets, const psrti_task_t *task);
/* Gives the ports of a task up, for the task to bind them itself. */
void psrti_sockets_release(psrti_sockets_t *sockets, const psrti_task_t *task);

#endif
