/* SPDX-License-Identifier: Apache-2.0 */
/* Exit codes of psrt-launch that are not those of a task; docs/launcher.md lists them. */
#ifndef PSRTI_LAUNCHER_EXITS_H
#define PSRTI_LAUNCHER_EXITS_H

enum {
    PSRTI_EXIT_USAGE = 2,
    PSRTI_EXIT_NOT_ASSEMBLED = 3, /* psrtd's: not all tasks came in time, as its last line says */
    PSRTI_EXIT_UNAVAILABLE = 69,  /* psrtd is missing */
    PSRTI_EXIT_INTERNAL = 70,     /* the system refused something that the launcher needs */
    PSRTI_EXIT_TIMEOUT = 124,
    PSRTI_EXIT_CANNOT_RUN = 126, /* as a shell: found, but not runnable */
    PSRTI_EXIT_NOT_FOUND = 127,
    PSRTI_EXIT_SIGNAL = 128 /* plus the signal */
};

#endif
