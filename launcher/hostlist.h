/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's way to write many names of hosts in one word, as in SLURM_JOB_NODELIST. Pure. */
#ifndef PSRTI_LAUNCHER_HOSTLIST_H
#define PSRTI_LAUNCHER_HOSTLIST_H

#include <stddef.h>

#include <psrt/status.h>

#define PSRTI_HOSTLIST_MAX 65536 /* names */

/* "b04-[09-10],gpu[1,3]c[0-1]" into names, in the order in which scontrol show hostnames gives them;
 * widths of numbers are kept. The caller frees each and the array. ERR_INVALID says what is wrong. */
psrt_status_t psrti_hostlist_expand(const char *text, char ***names_p, size_t *count_p);

/* "2(x3),1", as in SLURM_TASKS_PER_NODE, into `count` numbers; ERR_INVALID when it is not so many. */
psrt_status_t psrti_hostlist_counts(const char *text, unsigned *counts, size_t count);

#endif
