/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/preflight.h"

#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "launcher/exits.h"
#include "launcher/remote.h"

typedef struct preflight {
    psrti_job_t *job;
    const psrti_backend_ops_t *ops;
    psrti_backend_t *backend;
    int good;
} preflight_t;

static void finish(preflight_t *p)
{
    char text[PSRTI_ERROR_MAX];
    p->good = 1;
    for (unsigned h = 0; h < p->job->host_count; h++) {
        int good = psrti_remote_verdict(p->backend, h, text, sizeof text);
        printf("%s: %s%s\n", p->job->hosts[h].name, good ? "ok: " : "", text);
        p->good &= good;
    }
    p->ops->close(p->backend);
}

static void on_ready(void *arg) { finish(arg); }

static void on_failed(void *arg, const char *text)
{
    (void)text; /* a line for each host says more */
    finish(arg);
}

static void on_host_lost(void *arg, unsigned host, const char *text)
{
    (void)arg, (void)host, (void)text; /* ready already */
}

psrt_status_t psrti_preflight(psrti_job_t *job, int *code_p)
{
    preflight_t p = { .job = job };
    const psrti_backend_events_t events = {
        .ready = on_ready, .failed = on_failed, .host_lost = on_host_lost, .arg = &p
    };
    uv_loop_t loop;
    psrt_status_t st = psrti_backend_find(job, &p.ops);
    if (st) return st;
    if (p.ops == &psrti_backend_local)
        return psrti_fail(PSRT_ERR_INVALID, "preflight looks at other hosts: name them with -H");
    if (uv_loop_init(&loop)) return psrti_fail(PSRT_ERR_LIMIT, "event loop: no descriptors left");
    signal(SIGPIPE, SIG_IGN);
    st = p.ops->open(&loop, job, &events, &p.backend);
    if (!st) {
        uv_run(&loop, UV_RUN_DEFAULT);
        p.ops->release(p.backend);
        *code_p = p.good && !fflush(stdout) ? 0 : PSRTI_EXIT_UNAVAILABLE;
    }
    uv_loop_close(&loop);
    return st;
}
