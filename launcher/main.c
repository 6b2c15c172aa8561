/* SPDX-License-Identifier: Apache-2.0 */
/* psrt-launch: starts, supervises and ends the tasks of a job. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include <psrt/psrt.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/compat/tfrun.h"
#include "launcher/discover.h"
#include "launcher/exits.h"
#include "launcher/inherit.h"
#include "launcher/options.h"
#include "launcher/place.h"
#include "launcher/plan.h"
#include "launcher/preflight.h"
#include "launcher/render/render.h"
#include "launcher/run.h"
#include "launcher/slurm.h"
#include "launcher/verbs.h"

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

/* ---- what is done with a job ----------------------------------------------------------------- */

typedef psrt_status_t action_fn(psrti_job_t *job, void *arg, int *code_p);

static unsigned count_placed(const psrti_job_t *job, const psrti_role_t *role)
{
    unsigned count = 0;
    for (size_t i = 0; i < job->task_count; i++)
        count += job->tasks[i].role == role && !job->tasks[i].unplaced;
    return count;
}

/* Elastic roles may have become smaller, or wait in part. */
static psrt_status_t place(psrti_job_t *job)
{
    psrt_status_t st = psrti_place(job);
    for (size_t i = 0; !st && !job->quiet && i < job->role_count; i++) {
        const psrti_role_t *role = &job->roles[i];
        unsigned placed = count_placed(job, role);
        if (placed < role->max)
            fprintf(stderr, "psrt-launch: the hosts hold %u of %u %s tasks%s\n", placed, role->max,
                    role->name, job->discovers ? "; the others wait for hosts" : "");
    }
    return st;
}

static psrt_status_t print_plan(psrti_job_t *job, void *arg, int *code_p)
{
    (void)arg;
    psrt_status_t st = place(job);
    if (st) return st;
    psrti_plan_print(job);
    if (fflush(stdout)) *code_p = PSRTI_EXIT_INTERNAL;
    return PSRT_OK;
}

/* A description may be for other systems too. */
static void note_containers(const psrti_job_t *job)
{
    for (size_t i = 0; i < job->role_count && !job->quiet; i++) {
        const psrti_role_t *role = &job->roles[i];
        if (role->image || role->volume_count)
            fprintf(
                stderr,
                "psrt-launch: role %s: image and volumes have no effect here: this backend runs no "
                "containers\n",
                role->name);
    }
}

static psrt_status_t run_job(psrti_job_t *job, void *arg, int *code_p)
{
    note_containers(job);
    if (job->dry_run) return print_plan(job, arg, code_p);
    const psrti_backend_ops_t *backend;
    psrt_status_t st = psrti_backend_find(job, &backend);
    if (!st) st = place(job);
    if (st) return st;
    return psrti_run(job, backend, code_p);
}

static psrt_status_t look_at_hosts(psrti_job_t *job, void *arg, int *code_p)
{
    (void)arg;
    psrt_status_t st = psrti_place(job);
    return st ? st : psrti_preflight(job, code_p);
}

/* The whole file or nothing of it. */
static psrt_status_t render_job(psrti_job_t *job, void *arg, int *code_p)
{
    const psrti_render_t *render = arg;
    (void)code_p;
    if (!job->name) psrti_job_set(&job->name, "psrt-job");
    psrt_status_t st = render->run(job, &render->params, stdout);
    if (!st && fflush(stdout)) st = psrti_fail(PSRT_ERR_IO, "stdout: %m");
    return st;
}

typedef psrt_status_t parse_fn(int argc, char **argv, psrti_job_t *job, int *done_p);

/* Those that neither flags nor a file name. */
static psrt_status_t find_hosts(psrti_job_t *job, action_fn *action)
{
    if (!job->host_count && job->backend && !strcmp(job->backend, "slurm"))
        return psrti_slurm_hosts(job);
    if (!job->discovery_script) return PSRT_OK;
    if (action == render_job)
        return psrti_fail(
            PSRT_ERR_INVALID,
            "--host-discovery-script: render writes a job for a system that has hosts "
            "of its own; drop it");
    job->discovers = 1;
    return psrti_discover_first(job, PSRTI_DISCOVER_LIMIT_MS);
}

/* argv[0] is not looked at. */
static int with_parsed(int argc, char **argv, parse_fn *parse, action_fn *action, void *arg)
{
    psrti_job_t job;
    int done, code = 0;
    psrti_job_init(&job);
    psrt_status_t st = parse(argc, argv, &job, &done);
    if (!st && !done) st = find_hosts(&job, action);
    if (!st && !done) st = psrti_job_plan(&job);
    if (!st && !done) psrti_inherit_choose(&job);
    if (!st && !done) st = action(&job, arg, &code);
    if (st) code = report(st);
    psrti_job_release(&job);
    return code;
}

static int with_job(int argc, char **argv, action_fn *action, void *arg)
{
    return with_parsed(argc, argv, psrti_options_parse, action, arg);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

static int verb_run(int argc, char **argv) { return with_job(argc - 1, argv + 1, run_job, NULL); }

static int verb_plan(int argc, char **argv)
{
    return with_job(argc - 1, argv + 1, print_plan, NULL);
}

static int verb_tfrun(int argc, char **argv)
{
    return with_parsed(argc - 1, argv + 1, psrti_tfrun_parse, run_job, NULL);
}

/* Hosts are looked at whatever would run there. */
static int verb_preflight(int argc, char **argv)
{
    char **words = psrti_xcalloc((size_t)argc + 3, sizeof *words);
    int count = argc - 1, has_command = 0;
    for (int i = 0; i < count; i++) {
        words[i] = argv[i + 1];
        has_command |= !strcmp(words[i], "--");
    }
    if (!has_command) {
        words[count++] = (char *)"--";
        words[count++] = (char *)"true";
    }
    int code = with_job(count, words, look_at_hosts, NULL);
    free(words);
    return code;
}

static int verb_render(int argc, char **argv)
{
    psrti_render_t render = { 0 };
    psrt_status_t st = psrti_render_options(&argc, argv, &render);
    int code = st ? report(st) : with_job(argc, argv, render_job, &render);
    psrti_render_clear(&render);
    return code;
}

static const struct verb {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[1] is the verb */
} verbs[] = {
    { "run", verb_run },
    { "plan", verb_plan },
    { "preflight", verb_preflight },
    { "render", verb_render },
    { "tfrun", verb_tfrun },
    { "ps", psrti_verb_ps },
    { "status", psrti_verb_status },
    { "logs", psrti_verb_logs },
    { "attach", psrti_verb_attach },
    { "kill", psrti_verb_kill },
    { "restart", psrti_verb_restart },
    { "replace", psrti_verb_restart },
};

static int is_program(const char *word)
{
    char path[PATH_MAX];
    if (strchr(word, '/')) return 1; /* its start will tell */
    for (const char *dir = getenv("PATH"); dir && *dir;) {
        int n = (int)strcspn(dir, ":");
        if (snprintf(path, sizeof path, "%.*s/%s", n, dir, word) < (int)sizeof path &&
            !access(path, X_OK))
            return 1;
        dir += n + (dir[n] == ':');
    }
    return 0;
}

/* The verb that was meant by a first word that is neither one nor a program; NULL: none. */
static const char *meant_verb(const char *word)
{
    const char *names[PSRTI_COUNT(verbs)];
    for (size_t i = 0; i < PSRTI_COUNT(verbs); i++)
        names[i] = verbs[i].name;
    return *word == '-' || is_program(word) ? NULL : psrti_nearest(word, names, PSRTI_COUNT(names));
}

int main(int argc, char **argv)
{
    if (!fill_standard_fds()) return PSRTI_EXIT_INTERNAL;
    argv = uv_setup_args(argc, argv); /* guardians show a title of their own */
    for (size_t i = 0; argc > 1 && i < PSRTI_COUNT(verbs); i++)
        if (!strcmp(argv[1], verbs[i].name)) return verbs[i].run(argc, argv);
    const char *meant = argc > 1 ? meant_verb(argv[1]) : NULL;
    if (!meant) return with_job(argc, argv, run_job, NULL);
    return report(psrti_fail(
        PSRT_ERR_INVALID, "%s is neither a verb nor a program; did you mean %s?", argv[1], meant));
}
