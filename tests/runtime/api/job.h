/* SPDX-License-Identifier: Apache-2.0 */
/* A whole job in one process: coordinator, servers and workers as threads over real transports. What
 * separate processes cannot give: sanitizers that see both ends, and several contexts in one program. */
#ifndef PSRT_TESTS_API_JOB_H
#define PSRT_TESTS_API_JOB_H

#include <pthread.h>

#include <psrt/psrt.h>

#define JOB_MAX 8
#define JOB_SETTINGS 16

typedef struct job job_t;

typedef struct job_task {
    job_t *job;
    pthread_t thread;
    unsigned rank;
    psrt_status_t status;
    char text[512];
} job_task_t;

/* Runs in a thread of its own with a joined context; returns OK or what went wrong. */
typedef psrt_status_t (*job_worker_fn)(psrt_context_t *ctx, unsigned rank, void *arg);

struct job {
    unsigned workers, servers, threads; /* threads of a server */
    const char *transport;
    const char *security;
    const char *extra; /* one more setting, or NULL */
    job_worker_fn fn;
    void *arg;
    char dir[64], coordinator[64];
    int listen_fd;
    job_task_t task[2 * JOB_MAX + 1];
};

/* Starts everything, waits for its end, and asserts that every task ended with OK. */
void job_run(job_t *job);

#endif
