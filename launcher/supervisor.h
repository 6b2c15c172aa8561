/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a running job's supervisor, shared by supervise.c (loop and actions), signals.c,
 * hostnews.c (hosts that come and go), verdict.c (why the job ended), state.c (how things are) and requests.c (what users ask for). */
#ifndef PSRTI_LAUNCHER_SUPERVISOR_H
#define PSRTI_LAUNCHER_SUPERVISOR_H

#include <jansson.h>
#include <stdio.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/control.h"
#include "launcher/core.h"
#include "launcher/discover.h"
#include "launcher/output.h"
#include "launcher/record.h"
#include "launcher/supervise.h"
#include "launcher/tail.h"
#include "launcher/tasklog.h"

#define PSRTI_NAMES_MAX 16
#define PSRTI_NAMES_SIZE (PSRTI_NAMES_MAX * (PSRTI_TASK_NAME_MAX + 2) + 32)
#define PSRTI_SIGNALS 6

/* What the supervisor keeps of a task beside what the core does. */
typedef struct psrti_seat {
    const psrti_task_t *task;
    int pid, open_streams, hidden; /* hidden: its output is not shown */
    char host[64];
    psrti_stream_t *streams[2];
    psrti_tasklog_t log;
    psrti_tail_t tails[2];
    uint64_t last_ns; /* of the last output */
} psrti_seat_t;

typedef struct psrti_supervisor {
    psrti_job_t *job;
    const psrti_backend_ops_t *ops;
    psrti_backend_t *backend;
    psrti_core_t *core;
    psrti_output_t *output;
    FILE *run_log; /* of the launcher's lines, beside the output; NULL: none */
    psrti_supervise_params_t params;
    psrti_record_t *record;       /* NULL: none could be made */
    psrti_control_t *control;     /* NULL: not open */
    psrti_discovery_t *discovery; /* NULL: the hosts are known, or not all there yet */
    uv_loop_t loop;
    uv_signal_t signals[PSRTI_SIGNALS];
    uv_timer_t timeout, deadline, patience, status;
    psrti_seat_t *seats;
    size_t count, last_seat; /* last_seat: the worker that wrote last */
    uint64_t start_ns;
    int signal_count, stop_signal, stop_by_request;
    int gone, finished, closed;  /* gone: nothing of the job is left but output */
    int unavailable;             /* that was a host that cannot be used */
    char error[PSRTI_ERROR_MAX]; /* of PSRTI_CAUSE_ERROR */
} psrti_supervisor_t;

/* Carries out what the core decided after an event. */
void psrti_supervisor_act(psrti_supervisor_t *s);
void psrti_supervisor_close(psrti_supervisor_t *s); /* waits for nothing any more */
void psrti_supervisor_stop(psrti_supervisor_t *s, int sig, int by_request); /* gracefully */
void psrti_supervisor_kill(psrti_supervisor_t *s);
void psrti_supervisor_forward(psrti_supervisor_t *s, int sig); /* to the user's programs */
/* A line of the launcher, shown unless quiet, and to those who watch. */
void psrti_supervisor_note(psrti_supervisor_t *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, shown also when quiet. */
void psrti_supervisor_tell(psrti_supervisor_t *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* For the output of a task where it runs at present. */
psrti_stream_t *psrti_supervisor_stream(psrti_supervisor_t *s, size_t task, int fd);

/* "a, b, c and 4 more", of the tasks that `pick` chooses; their number. */
size_t psrti_supervisor_names(const psrti_supervisor_t *s,
                              int (*pick)(const psrti_supervisor_t *s, size_t task), char *buf,
                              size_t size);

/* signals.c */
void psrti_signals_watch(psrti_supervisor_t *s);

/* hostnews.c: events of the backend */
void psrti_hostnews_lost(void *arg, unsigned host, const char *text); /* its tasks end as well */
void psrti_hostnews_up(void *arg, unsigned host, int back);
void psrti_hostnews_not_reached(void *arg, unsigned host, const char *text);
/* Looks from now on which hosts the user's script lists, if there is one; until the job ends. */
void psrti_hostnews_watch(psrti_supervisor_t *s);
void psrti_hostnews_check(psrti_supervisor_t *s);

/* verdict.c */
void psrti_verdict_describe(const psrti_supervisor_t *s, size_t task, char *buf, size_t size);
/* The last lines of the job: the last one says what ended it. */
void psrti_verdict_tell(psrti_supervisor_t *s);
int psrti_verdict_code(const psrti_supervisor_t *s);

/* state.c */
json_t *psrti_state_json(const psrti_supervisor_t *s);
void psrti_state_line(const psrti_supervisor_t *s, char *buf, size_t size); /* for a terminal */
void psrti_state_tell(psrti_supervisor_t *s); /* a table, as lines of the launcher */

/* requests.c */
extern const psrti_control_ops_t psrti_requests;

#endif
