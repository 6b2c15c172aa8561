/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that its owner writes and other processes read: files without a name, sealed, so that nobody can write to them
 * from elsewhere, and nobody kills a reader by cutting one short. */
#ifndef PSRTI_BASE_MEMFD_H
#define PSRTI_BASE_MEMFD_H

#include <stdbool.h>
#include <stdint.h>

#include <psrt/psrt.h>

/* A mapped memfd of `bytes`, zeroed, sealed. With `huge` its pages are there and large where possible. */
psrt_status_t psrti_memfd_create(uint64_t bytes, bool huge, int *fd_p, void **base_p);
/* Maps a memfd of exactly `bytes` from a peer for reading, if it is sealed; never closes fd. `why`
 * gets a static text on failure. */
psrt_status_t psrti_memfd_map(int fd, uint64_t bytes, void **base_p, const char **why);
/* Opens what another process of the same user has open, for reading; -1: it cannot be reached. Whoever named the two may
 * be wrong or in another PID namespace: what is behind it has to prove itself. */
int psrti_memfd_open(int32_t pid, int32_t fd);

#endif
