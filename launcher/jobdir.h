/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a job on this host: mode 0700, with the key file, sockets and the coordinator's
 * state. The launcher and every guardian hold a shared lock (flock) on it; whoever gets the lock
 * exclusively knows that none of them is left, and removes it. */
#ifndef PSRTI_LAUNCHER_JOBDIR_H
#define PSRTI_LAUNCHER_JOBDIR_H

#include <limits.h>

#include <psrt/status.h>

#include "base/jobkey.h"

/* Makes the directory, under XDG_RUNTIME_DIR, TMPDIR or /tmp, and clears what dead jobs of this user left there.
 * *lock_p: the descriptor that holds the shared lock. */
psrt_status_t psrti_jobdir_create(char path[PATH_MAX], int *lock_p);
/* The same with the job's key in it, for tasks on this host. NULL: a new one. */
psrt_status_t psrti_jobdir_create_with_key(const psrti_jobkey_t *key, char path[PATH_MAX],
                                           int *lock_p);

/* Takes a shared lock of its own for this process; -1 on failure. */
int psrti_jobdir_lock(const char *path);

/* Ends the lock. If it was the last: kills what is left of the job and removes the directory. With
 * `launcher_died` it waits a moment for the launcher's lock. */
void psrti_jobdir_release(const char *path, int lock, int launcher_died);

/* Removes it with all that is in it; for the launcher, which knows that nobody uses it. */
void psrti_jobdir_remove(const char *path);

#endif
