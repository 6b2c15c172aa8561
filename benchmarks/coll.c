/* SPDX-License-Identifier: Apache-2.0 */
/* The process that was called: makes the area, starts the ranks for each transport, collects their rows. */
#include "coll.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "coll_area.h"
#include "coll_rank.h"
#include "flags.h"
#include "job.h"

#define ARGS_MAX 64

static const char usage[] =
    "usage: psrt-bench coll [flags]\n"
    "\n"
    "Measures collectives over sizes, transports and kinds of memory, in the columns of nccl-tests.\n"
    "Starts N ranks with psrt-launch for each transport.\n";

/* psrt-launch ... -- psrt-bench coll ARGS --transport NAME --area PATH */
static int run_transport(const coll_options_t *o, coll_transport_t transport, int argc, char **argv,
                         job_sink_t *sink)
{
    char own[PATH_MAX], launcher[PATH_MAX], ranks[16], area[64];
    char *name = (char *)coll_transport_names[transport];
    char *child[ARGS_MAX];
    if (job_own_path(own)) return -1;
    job_launcher_path(own, launcher);
    char *launch[] = { launcher, "--quiet",     "--no-prefix", "-w", ranks, "-s",
                       "0",      "--transport", name,          "--", own,   "coll" };
    int n = sizeof launch / sizeof *launch;
    if (argc > ARGS_MAX - n - 8) return bench_fail("too many arguments");
    snprintf(ranks, sizeof ranks, "%u", o->ranks);
    if (coll_area_create(o->ranks, o->max, area)) return -1;
    memcpy(child, launch, sizeof launch);
    for (int i = 0; i < argc; i++)
        child[n++] = argv[i];
    char *tail[] = { "--transport", name, "--area", area, NULL };
    memcpy(child + n, tail, sizeof tail);
    return job_run(sink, child, name);
}

static int run_all(const coll_options_t *o, int argc, char **argv)
{
    job_sink_t sink;
    int failed = 0;
    if (job_collect(o->json, &sink)) return -1;
    coll_row_header();
    for (unsigned transport = 0; transport < COLL_TRANSPORTS; transport++)
        if (o->transports & 1u << transport)
            failed |= run_transport(o, (coll_transport_t)transport, argc, argv, &sink);
    return job_collected(&sink, o->json) ? -1 : failed;
}

int bench_coll(int argc, char **argv)
{
    coll_options_t options;
    int result = coll_options_parse(argc, argv, usage, &options);
    if (result != BENCH_RUN) return result;
    if (options.area) return coll_rank_run(&options) ? BENCH_FAILED : BENCH_OK;
    signal(SIGINT, SIG_IGN); /* the launcher ends the job in order, then this process follows */
    return run_all(&options, argc, argv) ? BENCH_FAILED : BENCH_OK;
}
