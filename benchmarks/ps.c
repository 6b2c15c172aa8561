/* SPDX-License-Identifier: Apache-2.0 */
#include "ps.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "flags.h"
#include "job.h"

#define ARGS_MAX 64

/* psrt-launch ... -- psrt-bench ps ARGS --worker TRANSPORT; inproc needs no launcher. */
static int run_transport(const ps_options_t *o, ps_transport_t transport, int argc, char **argv,
                         job_sink_t *sink)
{
    char own[PATH_MAX], launcher[PATH_MAX], workers[16], servers[16];
    char *child[ARGS_MAX];
    int n = 0;
    if (job_own_path(own)) return -1;
    if (argc > ARGS_MAX - 20) return bench_fail("too many arguments");
    job_launcher_path(own, launcher);
    snprintf(workers, sizeof workers, "%u", o->workers);
    snprintf(servers, sizeof servers, "%u", o->servers);
    char *name = (char *)ps_transport_names[transport];
    if (transport != PS_INPROC) {
        char *launch[] = { launcher, "--quiet", "--no-prefix", "-w", workers,
                           "-s",     servers,   "--transport", name };
        memcpy(child, launch, sizeof launch);
        n = sizeof launch / sizeof *launch;
        if (o->security) child[n++] = "--security", child[n++] = (char *)o->security;
        child[n++] = "--";
    }
    child[n++] = own;
    child[n++] = "ps";
    for (int i = 0; i < argc; i++)
        child[n++] = argv[i];
    child[n++] = "--worker";
    child[n++] = name;
    child[n] = NULL;
    return job_run(sink, child, name);
}

static int run_all(const ps_options_t *o, int argc, char **argv, job_sink_t *sink)
{
    int failed = 0;
    ps_row_header();
    for (unsigned transport = 0; transport < PS_TRANSPORTS; transport++)
        if (o->transports & 1u << transport)
            failed |= run_transport(o, (ps_transport_t)transport, argc, argv, sink);
    return failed;
}

static int run_with_json(const ps_options_t *o, int argc, char **argv)
{
    job_sink_t sink;
    if (job_collect(o->json, &sink)) return -1;
    int failed = run_all(o, argc, argv, &sink);
    return job_collected(&sink, o->json) ? -1 : failed;
}

int bench_ps(int argc, char **argv)
{
    ps_options_t options;
    int result = ps_options_parse(argc, argv, &options);
    if (result != BENCH_RUN) return result;
    if (options.worker) return ps_worker_run(&options) ? BENCH_FAILED : BENCH_OK;
    signal(SIGINT, SIG_IGN); /* the launcher ends the job in order, then this process follows */
    return run_with_json(&options, argc, argv) ? BENCH_FAILED : BENCH_OK;
}
