/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and signalling processes through /proc: the descendants of one, or all of a job. */
#ifndef PSRTI_LAUNCHER_PROCTREE_H
#define PSRTI_LAUNCHER_PROCTREE_H

#include <stddef.h>
#include <sys/types.h>

/* Sends `sig` to every living descendant of `root`, in one pass; not to the processes of `except`
 * nor to what is below them. Returns how many there were, zombies not counted. A process that forks
 * meanwhile may be missed: whoever needs them all dead repeats until it is 0. */
size_t psrti_proctree_signal(pid_t root, int sig, const pid_t *except, size_t except_count);

/* The same for all processes of this user whose environment holds PSRT_JOB_DIR=dir, other than the
 * caller. */
size_t psrti_proctree_signal_job(const char *dir, int sig);

/* The children of this process, at most `capacity` of them. */
size_t psrti_proctree_children(pid_t *pids, size_t capacity);

#endif
