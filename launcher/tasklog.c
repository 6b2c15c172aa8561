/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/tasklog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static const char *const stream_names[] = { "stdout", "stderr" };

psrt_status_t psrti_tasklog_make_dir(const char *dir)
{
    if (!dir) return PSRT_OK;
    char *path = psrti_xstrdup(dir);
    int failed = 0;
    for (char *slash = path; slash;) {
        slash = strchr(slash + 1, '/');
        if (slash) *slash = '\0';
        failed = mkdir(path, 0777) && errno != EEXIST;
        if (slash) *slash = '/';
    }
    free(path);
    struct stat st;
    if (failed) return psrti_fail(PSRT_ERR_IO, "--log-dir %s: %s", dir, strerror(errno));
    if (stat(dir, &st) || !S_ISDIR(st.st_mode))
        return psrti_fail(PSRT_ERR_IO, "--log-dir %s: not a directory", dir);
    return PSRT_OK;
}

void psrti_tasklog_init(psrti_tasklog_t *log)
{
    psrti_logfile_init(&log->files[0]);
    psrti_logfile_init(&log->files[1]);
}

/* DIR/worker-0.stdout leads to the file of the present attempt. A file system without links has
 * none. */
static void link_current(const char *dir, const char *name, const char *path, int which)
{
    char link[PATH_MAX + 16], fresh[PATH_MAX + 32];
    snprintf(link, sizeof link, "%s/%s.%s", dir, name, stream_names[which]);
    snprintf(fresh, sizeof fresh, "%s.new", link);
    unlink(fresh);
    if (!symlink(strrchr(path, '/') + 1, fresh) && rename(fresh, link)) unlink(fresh);
}

psrt_status_t psrti_tasklog_open(psrti_tasklog_t *log, const psrti_job_t *job,
                                 const psrti_task_t *task)
{
    psrti_tasklog_init(log);
    char name[PSRTI_TASK_NAME_MAX];
    snprintf(name, sizeof name, "%s", task->name);
    char *colon = strchr(name, ':');
    if (colon) *colon = '-';
    for (int i = 0; job->log_dir && i < 2; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s.%u.%s", job->log_dir, name, task->attempt,
                 stream_names[i]);
        psrt_status_t st = psrti_logfile_open(&log->files[i], path, job->log_limit);
        if (st) {
            psrti_tasklog_close(log, 0);
            return st;
        }
        link_current(job->log_dir, name, path, i);
    }
    return PSRT_OK;
}

psrt_status_t psrti_tasklog_write(psrti_tasklog_t *log, int which, const char *data, size_t len)
{
    return psrti_logfile_write(&log->files[which], data, len);
}

void psrti_tasklog_close(psrti_tasklog_t *log, int which)
{
    psrti_logfile_close(&log->files[which]);
}
