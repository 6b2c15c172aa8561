/* SPDX-License-Identifier: Apache-2.0 */
/* Where the programs are that belong to psrt-launch. */
#ifndef PSRTI_LAUNCHER_PROGRAM_H
#define PSRTI_LAUNCHER_PROGRAM_H

#include <limits.h>

#include <psrt/status.h>

/* Named by the variable (for tests), in the directory of this program, or in PATH. ERR_NOT_FOUND says
 * where it was looked for, and what it is needed for. */
psrt_status_t psrti_find_program(const char *name, const char *variable, const char *purpose,
                                 char path[PATH_MAX]);

#endif
