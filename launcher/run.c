/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "launcher/exits.h"
#include "launcher/supervise.h"
#include "launcher/tasklog.h"

#define OUTPUT_NAME "output" /* in the log directory, of a job in the background */

static psrt_status_t supervise(psrti_job_t *job, const psrti_backend_ops_t *ops,
                               psrti_supervise_params_t *params, int *code_p)
{
    psrt_status_t st = psrti_supervise(job, ops, params, code_p);
    psrti_record_close(params->record);
    return st;
}

/* ---- in the background ----------------------------------------------------------------------- */

/* What the process in the background tells the one that started it: the job's id, once it is
 * ready. */
typedef struct background {
    int fd;
    const char *id;
} background_t;

static void on_ready(void *arg)
{
    background_t *b = arg;
    ssize_t ignored = write(b->fd, b->id, strlen(b->id));
    (void)ignored;
    close(b->fd);
    b->fd = -1;
}

/* Logs are with the job's record, unless the user said where. */
static psrt_status_t redirect(psrti_job_t *job, psrti_record_t *record, psrti_logfile_t *file)
{
    char path[PATH_MAX + 16];
    if (!job->log_dir) {
        snprintf(path, sizeof path, "%s/logs", psrti_record_dir(record));
        psrti_job_set(&job->log_dir, path);
    }
    psrt_status_t st = psrti_tasklog_make_dir(job->log_dir);
    if (st) return st;
    if (realpath(job->log_dir, path)) psrti_record_set(record, "log_dir", json_string(path));
    snprintf(path, sizeof path, "%s/" OUTPUT_NAME, job->log_dir);
    return psrti_logfile_open_output(file, path, job->log_limit);
}

static psrt_status_t run_in_background(psrti_job_t *job, const psrti_backend_ops_t *ops, int fd,
                                       int *code_p)
{
    background_t b = { .fd = fd };
    psrti_logfile_t output;
    psrti_supervise_params_t params = { .output = &output, .ready = on_ready, .arg = &b };
    psrti_logfile_init(&output);
    setsid();
    signal(SIGHUP, SIG_IGN); /* the terminal may go */
    psrt_status_t st = psrti_record_open(job, &params.record);
    if (!st) st = redirect(job, params.record, &output);
    if (st) {
        psrti_record_close(params.record);
        close(fd);
        return st;
    }
    b.id = psrti_record_id(params.record);
    st = supervise(job, ops, &params, code_p);
    psrti_logfile_close(&output);
    if (b.fd >= 0) close(b.fd);
    return st;
}

/* The id, or nothing when the job ended before it was ready; then its code. */
static int wait_until_ready(pid_t pid, int fd)
{
    char id[32];
    size_t len = 0;
    int status;
    for (ssize_t n; len < sizeof id - 1 && (n = read(fd, id + len, sizeof id - 1 - len)) != 0;)
        if (n > 0)
            len += (size_t)n;
        else if (errno != EINTR)
            break;
    id[len] = '\0';
    if (len) {
        printf("%s\n", id);
        fprintf(stderr,
                "psrt-launch: job %s runs in the background; `psrt-launch attach %s` shows "
                "it, `psrt-launch kill %s` stops it\n",
                id, id, id);
        return 0;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    fprintf(stderr, "psrt-launch: the job did not start; `psrt-launch ps -a` shows where its logs "
                    "are\n");
    return WIFEXITED(status) ? WEXITSTATUS(status) : PSRTI_EXIT_INTERNAL;
}

static psrt_status_t detach(psrti_job_t *job, const psrti_backend_ops_t *ops, int *code_p)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return psrti_fail(PSRT_ERR_LIMIT, "pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return psrti_fail(PSRT_ERR_LIMIT, "fork: %s", strerror(errno));
    }
    close(ends[pid == 0 ? 0 : 1]);
    if (pid == 0) return run_in_background(job, ops, ends[1], code_p);
    *code_p = wait_until_ready(pid, ends[0]);
    close(ends[0]);
    return PSRT_OK;
}

/* That of the first program of the user's. */
static const char *default_name(const psrti_job_t *job)
{
    for (size_t i = 0; i < job->role_count; i++) {
        const psrti_role_t *role = &job->roles[i];
        if (!role->argv) continue;
        const char *slash = strrchr(role->argv[0], '/');
        return slash ? slash + 1 : role->argv[0];
    }
    return "job";
}

psrt_status_t psrti_run(psrti_job_t *job, const psrti_backend_ops_t *ops, int *code_p)
{
    if (!job->name) psrti_job_set(&job->name, default_name(job));
    if (job->detach) return detach(job, ops, code_p);
    psrti_supervise_params_t params = { 0 };
    /* Where no record can be kept the job runs without; nobody finds it by psrt-launch ps then. */
    if (psrti_record_open(job, &params.record)) params.record = NULL;
    return supervise(job, ops, &params, code_p);
}
