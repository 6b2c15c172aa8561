/* SPDX-License-Identifier: Apache-2.0 */
/* A control group (version 2) for the tree of one task, below that of its guardian, where the guardian may make
 * one: in a container of one's own, as root, in a delegated group. What a task starts stays in it, whatever it
 * does to its session, parents and environment, and is killed by one write, without a race with forks. Where there
 * is none everything works as before, by walking the tree. */
#ifndef PSRTI_LAUNCHER_CGROUP_H
#define PSRTI_LAUNCHER_CGROUP_H

#include <limits.h>
#include <sys/types.h>

typedef struct psrti_cgroup {
    char dir[PATH_MAX]; /* empty: none */
} psrti_cgroup_t;

/* Makes the group of a guardian, or finds none to be had. */
void psrti_cgroup_create(psrti_cgroup_t *group, pid_t guardian);
/* That of another guardian, perhaps not there. */
void psrti_cgroup_find(psrti_cgroup_t *group, pid_t guardian);
/* The calling process enters it, for good. */
void psrti_cgroup_enter(const psrti_cgroup_t *group);
/* SIGKILL to all in it. */
void psrti_cgroup_kill(const psrti_cgroup_t *group);
void psrti_cgroup_remove(const psrti_cgroup_t *group); /* once it is empty */
/* Removes empty groups of guardians that are no more: whoever removes them was killed too. */
void psrti_cgroup_clean(void);

#endif
