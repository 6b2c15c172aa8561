/* SPDX-License-Identifier: Apache-2.0 */
/* Where this process runs, as a value that others compare with theirs. */
#ifndef PSRTI_CORE_WHERE_H
#define PSRTI_CORE_WHERE_H

#include <stdint.h>

/* Processes with the same value can share memory: one boot of one kernel, the same user and pid namespaces and, where
 * there is one, the same job directory. */
uint64_t psrti_where_host(const char *job_dir);

#endif
