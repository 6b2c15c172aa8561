/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/jobkey.h"
#include "support/test.h"

typedef struct settings {
    char text[JOB_SETTINGS][128];
    const char *list[JOB_SETTINGS + 1];
} settings_t;

static void settings_of(const job_t *job, const char *role, unsigned rank, settings_t *s)
{
    int n = 0;
#define SET(...) snprintf(s->text[n++], sizeof s->text[0], __VA_ARGS__)
    SET("PSRT_ROLE=%s", role);
    SET("PSRT_RANK=%u", rank);
    SET("PSRT_WORKERS=%u", job->workers);
    SET("PSRT_SERVERS=%u", job->servers);
    SET("PSRT_COORDINATOR=%s", job->coordinator);
    SET("PSRT_JOB_DIR=%s", job->dir);
    SET("PSRT_SERVER_THREADS=%u", job->threads ? job->threads : 1);
    SET("PSRT_SECURITY=%s", job->security ? job->security : "encrypted");
    if (job->transport) SET("PSRT_TRANSPORT=%s", job->transport);
    if (job->extra) SET("%s", job->extra);
    if (strcmp(role, "coordinator") == 0) SET("PSRT_LISTEN_FD=%d", job->listen_fd);
#undef SET
    for (int i = 0; i < n; i++)
        s->list[i] = s->text[i];
    s->list[n] = NULL;
}

static void finish(job_task_t *t, psrt_status_t status)
{
    t->status = status;
    if (status) snprintf(t->text, sizeof t->text, "%s", psrt_last_error());
}

static void *run_coordinator(void *arg)
{
    job_task_t *t = arg;
    settings_t s = { 0 };
    psrt_server_params_t p = PSRT_SERVER_PARAMS_INIT;
    settings_of(t->job, "coordinator", 0, &s);
    p.settings = s.list;
    finish(t, psrt_coordinator_run(&p));
    return NULL;
}

static void *run_server(void *arg)
{
    job_task_t *t = arg;
    settings_t s = { 0 };
    psrt_server_params_t p = PSRT_SERVER_PARAMS_INIT;
    settings_of(t->job, "server", t->rank, &s);
    p.settings = s.list;
    finish(t, psrt_server_run(&p));
    return NULL;
}

static void *run_worker(void *arg)
{
    job_task_t *t = arg;
    settings_t s = { 0 };
    psrt_context_params_t p = PSRT_CONTEXT_PARAMS_INIT;
    psrt_context_t *ctx = NULL;
    settings_of(t->job, "worker", t->rank, &s);
    p.settings = s.list;
    psrt_status_t rc = psrt_context_create(&p, &ctx);
    if (!rc) rc = t->job->fn(ctx, t->rank, t->job->arg);
    finish(t, rc);
    psrt_context_destroy(ctx);
    return NULL;
}

static void open_job(job_t *job)
{
    psrti_jobkey_t key;
    char path[128];
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof sa;
    strcpy(job->dir, "/tmp/psrt-test-XXXXXX");
    cr_assert_not_null(mkdtemp(job->dir));
    snprintf(path, sizeof path, "%s/key", job->dir);
    cr_assert_eq(psrti_jobkey_generate(&key), PSRT_OK);
    cr_assert_eq(psrti_jobkey_write(&key, path), PSRT_OK);
    job->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(job->listen_fd, (struct sockaddr *)&sa, sizeof sa), 0);
    cr_assert_eq(listen(job->listen_fd, 64), 0);
    cr_assert_eq(getsockname(job->listen_fd, (struct sockaddr *)&sa, &len), 0);
    snprintf(job->coordinator, sizeof job->coordinator, "tcp://127.0.0.1:%d", ntohs(sa.sin_port));
}

void job_run(job_t *job)
{
    char cmd[128];
    unsigned n = 0;
    open_job(job);
    pthread_create(&job->task[n].thread, NULL, (job->task[n].job = job, run_coordinator),
                   &job->task[n]);
    n++;
    for (unsigned r = 0; r < job->servers; r++, n++) {
        job->task[n] = (job_task_t){ .job = job, .rank = r };
        pthread_create(&job->task[n].thread, NULL, run_server, &job->task[n]);
    }
    for (unsigned r = 0; r < job->workers; r++, n++) {
        job->task[n] = (job_task_t){ .job = job, .rank = r };
        pthread_create(&job->task[n].thread, NULL, run_worker, &job->task[n]);
    }
    /* Workers first: what went wrong there explains the rest. */
    for (unsigned i = n; i-- > 0;)
        pthread_join(job->task[i].thread, NULL);
    for (unsigned i = 0; i < n; i++)
        cr_expect_eq(job->task[i].status, PSRT_OK, "task %u of %u: %s: %s", i, n,
                     psrt_status_text(job->task[i].status), job->task[i].text);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", job->dir);
    cr_assert_eq(system(cmd), 0);
}
