/* SPDX-License-Identifier: Apache-2.0 */
/* What the end of a task means: whether it failed, with which exit code, in words. */
#ifndef PSRTI_LAUNCHER_END_H
#define PSRTI_LAUNCHER_END_H

#include "launcher/backend.h"

int psrti_end_failed(const psrti_end_t *end);
/* As a shell would tell it. */
int psrti_end_code(const psrti_end_t *end);
/* "worker:2 (pid 123) on host exited with code 3 after 1.2 s" */
void psrti_end_describe(const psrti_end_t *end, const psrti_task_t *task, int pid, const char *host,
                        uint64_t start_ns, char *buf, size_t size);

#endif
