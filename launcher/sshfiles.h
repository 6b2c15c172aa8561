/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that a host needs to run tasks, and the command that finds or takes them there. */
#ifndef PSRTI_LAUNCHER_SSHFILES_H
#define PSRTI_LAUNCHER_SSHFILES_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

/* What lines of the command begin with that are for psrt-launch. */
#define PSRTI_SSH_WORD "psrt-ssh-1: "
#define PSRTI_SSHFILES_MAX 3

typedef struct psrti_sshfile {
    char *path;       /* here */
    const char *name; /* below the cache's directory there */
    uint8_t *data;
    size_t size;
    char hash[65]; /* SHA-256 */
} psrti_sshfile_t;

typedef struct psrti_sshfiles {
    psrti_sshfile_t files[PSRTI_SSHFILES_MAX]; /* psrt-agent first */
    size_t count;
} psrti_sshfiles_t;

/* psrt-agent, and psrtd (NULL: not needed) with the library beside it. */
psrt_status_t psrti_sshfiles_load(psrti_sshfiles_t *files, const char *psrtd);
void psrti_sshfiles_clear(psrti_sshfiles_t *files);
/* One line for any login shell. It prints "need MACHINE" and then reads the files, or "error TEXT",
 * or "run PSRTD" (nothing: where it is here) and becomes psrt-agent. Freed by the caller. */
char *psrti_sshfiles_command(const psrti_sshfiles_t *files);

#endif
