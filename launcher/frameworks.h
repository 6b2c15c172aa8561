/* SPDX-License-Identifier: Apache-2.0 */
/* What programs of other systems read from their environment to know who they are: TensorFlow,
 * PyTorch, ps-lite (MXNet, BytePS) and TFMesos. Pure. docs/launcher.md lists the variables. */
#ifndef PSRTI_LAUNCHER_FRAMEWORKS_H
#define PSRTI_LAUNCHER_FRAMEWORKS_H

#include "launcher/job.h"

void psrti_frameworks_env(const psrti_job_t *job, const psrti_task_t *task, psrti_env_t *own);
/* Removes what an enclosing job has set of it: nobody is to take himself for a task of that one. */
void psrti_frameworks_unset(psrti_env_t *env);

#endif
