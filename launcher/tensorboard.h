/* SPDX-License-Identifier: Apache-2.0 */
/* --tensorboard DIR: TensorBoard as a task beside the training. */
#ifndef PSRTI_LAUNCHER_TENSORBOARD_H
#define PSRTI_LAUNCHER_TENSORBOARD_H

#include "launcher/job.h"

/* Adds its role, which never decides how the job ends, in the workers' virtual environment. Where it
 * is not installed a note says so and the job runs without. */
void psrti_tensorboard_add(psrti_job_t *job, const char *directory);
int psrti_tensorboard_is(const psrti_role_t *role);

#endif
