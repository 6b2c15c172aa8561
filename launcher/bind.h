/* SPDX-License-Identifier: Apache-2.0 */
/* Which of this host's processors a task is bound to: its share of the cores, whole cores with all
 * their hardware threads, neighbours together, so that a share lies within one package and its
 * memory where that is possible; or all those of one NUMA node. */
#ifndef PSRTI_LAUNCHER_BIND_H
#define PSRTI_LAUNCHER_BIND_H

#include <sched.h>
#include <stddef.h>

#include "launcher/contract.h"

#define PSRTI_BIND_SYSFS "/sys/devices/system/cpu"
#define PSRTI_BINDING_TEXT 256

typedef struct psrti_binding {
    cpu_set_t cpus;
    int node; /* -1: no NUMA node is meant */
} psrti_binding_t;

/* The share of number `part` of `parts` in the processors of `allowed`. With more parts than cores
 * several parts get the same core. */
void psrti_bind_share(const char *sysfs, const cpu_set_t *allowed, unsigned part, unsigned parts,
                      cpu_set_t *share);
/* The node of part `part` of `parts` and its processors of `allowed`. Nodes are those that have some of them;
 * parts are spread over them in order, and with more parts than nodes neighbours get the same one. Where the
 * system names no nodes all is node 0. */
int psrti_bind_node(const char *sysfs, const cpu_set_t *allowed, unsigned part, unsigned parts,
                    cpu_set_t *share);

/* Of what the launcher itself may use. Nothing is chosen for a launch that is not to be bound. */
psrt_status_t psrti_binding_choose(const psrti_launch_t *launch, psrti_binding_t *binding);
/* This process and what it becomes, its memory as far as the kernel lets it. False: errno is set. */
int psrti_binding_apply(const psrti_binding_t *binding);
/* "NUMA node 0, processors 0-3,8-11"; empty without a node. */
void psrti_binding_text(const psrti_binding_t *binding, char *text, size_t size);

#endif
