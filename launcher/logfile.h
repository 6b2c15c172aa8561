/* SPDX-License-Identifier: Apache-2.0 */
/* A file of output that takes a limited part of the disk: with half of the limit it becomes FILE.1, in
 * place of an older one, and a new FILE begins. Lines up to a sixteenth of the limit stay whole. */
#ifndef PSRTI_LAUNCHER_LOGFILE_H
#define PSRTI_LAUNCHER_LOGFILE_H

#include <stddef.h>
#include <stdint.h>

#include <psrt/status.h>

typedef struct psrti_logfile {
    int fd; /* -1: not open, and nothing is written */
    int full, in_line;
    int is_output; /* stdout and stderr lead to it, and go with it */
    char *path;
    uint64_t limit, size; /* limit: of both files; 0: none */
} psrti_logfile_t;

/* "100MiB"; 0 is none, less than 64 KiB ERR_INVALID. */
psrt_status_t psrti_logfile_parse_limit(const char *text, uint64_t *limit);

void psrti_logfile_init(psrti_logfile_t *file);
/* Anew; a FILE.1 of before is removed. */
psrt_status_t psrti_logfile_open(psrti_logfile_t *file, const char *path, uint64_t limit);
/* The same for all that the process itself writes to stdout and stderr from now on. */
psrt_status_t psrti_logfile_open_output(psrti_logfile_t *file, const char *path, uint64_t limit);
/* A failed write closes the file. */
psrt_status_t psrti_logfile_write(psrti_logfile_t *file, const char *data, size_t len);
void psrti_logfile_close(psrti_logfile_t *file);

#endif
