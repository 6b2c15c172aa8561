/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/tensorboard.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "tensorboard"

static int is_in_path(void)
{
    char file[PATH_MAX];
    const char *dir = getenv("PATH");
    while (dir && *dir) {
        int len = (int)strcspn(dir, ":");
        if (len && snprintf(file, sizeof file, "%.*s/" NAME, len, dir) < PATH_MAX &&
            !access(file, X_OK))
            return 1;
        dir += len + (dir[len] == ':');
    }
    return 0;
}

static int is_in(const char *virtualenv)
{
    char file[PATH_MAX];
    return snprintf(file, sizeof file, "%s/bin/" NAME, virtualenv) < PATH_MAX &&
           !access(file, X_OK);
}

int psrti_tensorboard_is(const psrti_role_t *role) { return !strcmp(role->name, NAME); }

void psrti_tensorboard_add(psrti_job_t *job, const char *directory)
{
    char *const argv[] = {
        (char *)NAME,     (char *)"--logdir", (char *)directory, (char *)"--host",
        (char *)"{host}", (char *)"--port",   (char *)"{port}",  NULL,
    };
    const psrti_role_t *workers = psrti_job_role_of(job, PSRTI_KIND_WORKER);
    const char *virtualenv = workers ? workers->virtualenv : NULL;
    int in_virtualenv = virtualenv && is_in(virtualenv);
    if (!in_virtualenv && !is_in_path()) {
        if (!job->quiet)
            fprintf(stderr, "psrt-launch: " NAME " is not in PATH%s%s; the job runs without it\n",
                    virtualenv ? " nor in " : "", virtualenv ? virtualenv : "");
        return;
    }
    char *copy = in_virtualenv ? psrti_xstrdup(virtualenv) : NULL; /* roles move */
    psrti_role_t *role = psrti_job_role(job, NAME);
    if (!role) role = psrti_job_add_role(job, NAME);
    psrti_role_set_argv(role, argv);
    psrti_job_set(&role->virtualenv, copy);
    role->restart.when = PSRTI_RESTART_ALWAYS;
    free(copy);
}
