/* SPDX-License-Identifier: Apache-2.0 */
/* Which of this host's processors a task is bound to: its share of the cores, whole cores with all
 * their hardware threads, neighbours together, so that a share lies within one package and its
 * memory where that is possible. */
#ifndef PSRTI_LAUNCHER_BIND_H
#define PSRTI_LAUNCHER_BIND_H

#include <sched.h>

#define PSRTI_BIND_SYSFS "/sys/devices/system/cpu"

/* The share of number `part` of `parts` in the processors of `allowed`. With more parts than cores
 * several parts get the same core. */
void psrti_bind_share(const char *sysfs, const cpu_set_t *allowed, unsigned part, unsigned parts,
                      cpu_set_t *share);

#endif
