/* SPDX-License-Identifier: Apache-2.0 */
/* A job for the supervisor's core, in virtual time: the backend that does what the core says at once. */
#ifndef PSRT_TESTS_CORE_BENCH_H
#define PSRT_TESTS_CORE_BENCH_H

#include "launcher/core.h"

#define S PSRTI_NS_PER_S
#define MS PSRTI_NS_PER_MS
#define TASKS_MAX 16
#define HOSTS_MAX 8

enum { COORDINATOR, SERVER, WORKER, OTHER, ROLES };

/* A job of a coordinator, servers, workers and another task on some hosts. */
typedef struct bench {
    psrti_job_t job;
    psrti_role_t roles[ROLES];
    psrti_task_t tasks[TASKS_MAX];
    psrti_host_t hosts[HOSTS_MAX];
    psrti_core_t *core;
    uint64_t now;
    uint64_t launch_timeout_ns;
    int hangs[HOSTS_MAX];                    /* by host: what is to start there does not */
    int down[HOSTS_MAX], unnamed[HOSTS_MAX]; /* nothing may start there */
    int running[TASKS_MAX];                  /* has a process */
    int asked[TASKS_MAX];                    /* to end, in this attempt */
    unsigned starts[TASKS_MAX];
    int finished, gave_up;
    size_t said[24];     /* by kind */
    uint64_t last_delay; /* of SAY_RESTART */
} bench_t;

/* Of the coordinator and so many others, on one host. */
void bench_setup(bench_t *b, unsigned servers, unsigned workers, unsigned others);
/* On failure, up to the limit. */
void bench_restarts(bench_t *b, int role, unsigned limit);
size_t bench_task(const bench_t *b, int role, unsigned index);
/* Takes the core's actions: what is started runs. */
void bench_act(bench_t *b);
void bench_begin(bench_t *b);
/* The end of a task, its processes and its output. */
void bench_end_as(bench_t *b, size_t task, psrti_end_kind_t kind, int value);
void bench_exits(bench_t *b, int role, unsigned index, int code);
/* Time, with all that is due in it. */
void bench_pass(bench_t *b, uint64_t ns);
psrti_phase_t bench_phase(const bench_t *b, int role, unsigned index);
/* Whoever runs dies of SIGTERM. */
void bench_end_rest(bench_t *b);
/* That, and the job is finished: why. */
psrti_cause_t bench_over(bench_t *b);
/* Workers on three hosts in turn, the others on the first. */
void bench_on_hosts(bench_t *b, unsigned slots);
void bench_lose_host(bench_t *b, unsigned host);
void bench_host_up(bench_t *b, unsigned host);
/* One more, which is not up. */
unsigned bench_add_host(bench_t *b, unsigned slots);
void bench_name(bench_t *b, unsigned host, int named);

#endif
