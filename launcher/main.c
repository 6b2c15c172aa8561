/* SPDX-License-Identifier: Apache-2.0 */
/* psrt-launch: starts, supervises and ends the tasks of a job. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include <psrt/psrt.h>

#include "base/log.h"
#include "launcher/exits.h"
#include "launcher/options.h"
#include "launcher/plan.h"
#include "launcher/render/render.h"
#include "launcher/supervise.h"

static int report(psrt_status_t st)
{
    fprintf(stderr, "psrt-launch: %s\n", psrt_last_error());
    if (st == PSRT_ERR_INVALID) {
        fprintf(stderr, "psrt-launch: --help lists the options\n");
        return PSRTI_EXIT_USAGE;
    }
    return st == PSRT_ERR_NOT_FOUND ? PSRTI_EXIT_UNAVAILABLE : PSRTI_EXIT_INTERNAL;
}

/* Started with a standard stream closed, the next descriptor would take its place. */
static int fill_standard_fds(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0) return 0;
    close(fd);
    return 1;
}

static int dry_run(psrti_job_t *job)
{
    psrti_plan_print(job);
    return fflush(stdout) ? PSRTI_EXIT_INTERNAL : 0;
}

/* The whole file or nothing of it. */
static psrt_status_t render_job(const psrti_render_t *render, psrti_job_t *job)
{
    if (!job->name) psrti_job_set(&job->name, "psrt-job");
    psrt_status_t st = render->run(job, &render->params, stdout);
    if (!st && fflush(stdout)) st = psrti_fail(PSRT_ERR_IO, "stdout: %m");
    return st;
}

int main(int argc, char **argv)
{
    psrti_job_t job;
    psrti_render_t render = { 0 };
    int done, code = 0;
    if (!fill_standard_fds()) return PSRTI_EXIT_INTERNAL;
    psrti_job_init(&job);
    argv = uv_setup_args(argc, argv); /* guardians show a title of their own */
    psrt_status_t st = PSRT_OK;
    if (argc > 1 && !strcmp(argv[1], "render")) st = psrti_render_options(&argc, argv, &render);
    if (!st) st = psrti_options_parse(argc, argv, &job, &done);
    if (!st && !done) st = psrti_job_plan(&job);
    if (!st && !done) {
        if (render.run)
            st = render_job(&render, &job);
        else if (job.dry_run)
            code = dry_run(&job);
        else
            st = psrti_supervise(&job, &psrti_backend_local, NULL, &code);
    }
    if (st) code = report(st);
    psrti_job_release(&job);
    return code;
}
