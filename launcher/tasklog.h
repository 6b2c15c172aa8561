/* SPDX-License-Identifier: Apache-2.0 */
/* --log-dir: the output of each start of a task, byte for byte, in two files. */
#ifndef PSRTI_LAUNCHER_TASKLOG_H
#define PSRTI_LAUNCHER_TASKLOG_H

#include <stddef.h>

#include "launcher/job.h"
#include "launcher/logfile.h"

typedef struct psrti_tasklog {
    psrti_logfile_t files[2];
} psrti_tasklog_t;

/* All of them do nothing without a directory. */
psrt_status_t psrti_tasklog_make_dir(const char *dir); /* with its parents */
void psrti_tasklog_init(psrti_tasklog_t *log);
psrt_status_t psrti_tasklog_open(psrti_tasklog_t *log, const psrti_job_t *job,
                                 const psrti_task_t *task);
/* which: 0 stdout, 1 stderr. A failed write closes the file. */
psrt_status_t psrti_tasklog_write(psrti_tasklog_t *log, int which, const char *data, size_t len);
void psrti_tasklog_close(psrti_tasklog_t *log, int which);

#endif
