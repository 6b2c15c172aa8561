/* SPDX-License-Identifier: Apache-2.0 */
/* What of the machine this process may use. */
#ifndef PSRTI_BASE_TOPOLOGY_H
#define PSRTI_BASE_TOPOLOGY_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

/* Cores usable by this process: affinity mask and cgroup CPU quota (v1 and v2), at least 1.
 * `cgroup_root` NULL means /sys/fs/cgroup; tests pass a made-up tree. */
unsigned psrti_topology_cores(const char *cgroup_root);
/* Keeps this thread, and so those that it starts, on the CPU with number n, counted around, of the `cores`
 * CPUs of its mask, which goes to *own. 0, and nothing is changed: the mask has another number of CPUs, or
 * masks cannot be set here. */
int psrti_topology_pin(unsigned n, unsigned cores, cpu_set_t *own);
void psrti_topology_unpin(const cpu_set_t *own);
/* Lowest CPU quota of the cgroup at mount + group ("/a/b") and its ancestors up to the mount, in
 * cores, a part counting as a whole one; UINT_MAX without a limit. In a container the group may be
 * named as the host sees it and not exist below the mount: then only what exists counts. */
unsigned psrti_topology_quota(const char *mount, const char *group);
/* Where on the machine this process may run: of its first core the NUMA node in the upper 12 bits, below it the core.
 * Processes that may run everywhere have the same place. `cpu_root` NULL means /sys/devices/system/cpu. */
uint32_t psrti_topology_place(const char *cpu_root);
/* One line such as "2 cores, 1 NUMA node, L2 1 MiB, L3 32 MiB", through hwloc. */
void psrti_topology_describe(char *buf, size_t size);

#endif
