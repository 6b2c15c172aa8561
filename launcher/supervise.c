/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/supervise.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/contract.h"
#include "launcher/end.h"
#include "launcher/exits.h"
#include "launcher/output.h"
#include "launcher/tasklog.h"

#define COORDINATOR_RESTARTS 5
#define RESTART_DELAY_MS 100 /* doubles */
#define ABANDON_MS 3000      /* after SIGKILL, for what does not die of it */
#define GIVE_UP_MS 2000
#define OUTPUT_MS 1000 /* for the rest of the output after a stop by the user */
#define LAST_WORDS_MS 200
#define NAMES_MAX 16
#define NAMES_SIZE (NAMES_MAX * (PSRTI_TASK_NAME_MAX + 2) + 32)

typedef enum phase {
    PHASE_WAITING, /* not started, or to be restarted */
    PHASE_RUNNING,
    PHASE_ENDED, /* its command ended; processes of it may be left */
    PHASE_GONE
} phase_t;

typedef struct task_state {
    const psrti_task_t *task;
    phase_t phase;
    int pid, open_streams;
    int restart; /* once it is over */
    char host[64];
    uint64_t start_ns;
    psrti_end_t end;
    psrti_stream_t *streams[2];
    psrti_tasklog_t log;
    char line[PSRTI_ERROR_MAX]; /* psrtd: the last one on stderr */
    size_t line_len;
    int line_over;
} task_state_t;

/* Why the job is stopped; the first reason stays. */
typedef enum cause {
    CAUSE_NONE,
    CAUSE_TASK,    /* the first task that failed */
    CAUSE_SIGNAL,  /* the user */
    CAUSE_TIMEOUT, /* --timeout */
    CAUSE_ERROR    /* the launcher could not do something */
} cause_t;

/* What the deadline timer does when it fires; each step leads to the next. */
typedef enum step {
    STEP_ASK, /* ask all that still runs to end */
    STEP_KILL,
    STEP_ABANDON,
    STEP_GIVE_UP
} step_t;

typedef struct supervisor {
    psrti_job_t *job;
    const psrti_backend_ops_t *ops;
    psrti_backend_t *backend;
    psrti_output_t *output;
    uv_loop_t loop;
    uv_signal_t signals[3];
    uv_timer_t timeout, deadline, restart;
    task_state_t *tasks;
    size_t count;
    uint64_t start_ns, stop_ns; /* stop_ns: when the stop began; UINT64_MAX: not yet */
    cause_t cause;
    step_t step;
    int signal_count, stop_signal;
    int draining, finished, closed;
    char error[PSRTI_ERROR_MAX]; /* of CAUSE_ERROR */
} supervisor_t;

static double seconds(uint64_t ns) { return (double)ns / PSRTI_NS_PER_S; }

static uint64_t ns_to_ms(uint64_t ns) { return ns / PSRTI_NS_PER_MS + (ns % PSRTI_NS_PER_MS != 0); }

/* ---- what happened to the tasks -------------------------------------------------------------- */

static void describe(const task_state_t *t, char *buf, size_t size)
{
    psrti_end_describe(&t->end, t->task, t->pid, t->host, t->start_ns, buf, size);
}

static int has_ended(const task_state_t *t) { return t->phase >= PHASE_ENDED; }

/* The last line that psrtd wrote to stderr says why it ended. */
static void keep_last_line(task_state_t *t, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (t->line_over) t->line_len = 0;
        t->line_over = data[i] == '\n';
        if (!t->line_over && t->line_len < sizeof t->line - 1) t->line[t->line_len++] = data[i];
        t->line[t->line_len] = '\0';
    }
}

/* What psrtd said of a job that did not assemble; NULL: it ended otherwise. */
static const char *not_assembled(const task_state_t *t)
{
    static const char prefix[] = "psrtd: ";
    if (t->task->role->kind == PSRTI_KIND_WORKER || t->end.kind != PSRTI_END_EXITED ||
        t->end.value != PSRTI_EXIT_NOT_ASSEMBLED || strncmp(t->line, prefix, sizeof prefix - 1))
        return NULL;
    return t->line + sizeof prefix - 1;
}

/* Failed by itself, not since the launcher stopped it. */
static int failed_before_stop(const supervisor_t *s, const task_state_t *t)
{
    return has_ended(t) && psrti_end_failed(&t->end) && t->end.time_ns <= s->stop_ns;
}

static int workers_ended(const supervisor_t *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->tasks[i].task->role->kind == PSRTI_KIND_WORKER && !has_ended(&s->tasks[i])) return 0;
    return 1;
}

/* ---- stopping -------------------------------------------------------------------------------- */

static void stop_tasks(supervisor_t *s, int workers, int others, psrti_stop_t how)
{
    for (size_t i = 0; i < s->count; i++) {
        task_state_t *t = &s->tasks[i];
        int is_worker = t->task->role->kind == PSRTI_KIND_WORKER;
        if (!(is_worker ? workers : others)) continue;
        if (t->phase == PHASE_WAITING)
            t->phase = PHASE_GONE;
        else if (t->phase != PHASE_GONE)
            s->ops->stop(s->backend, t->task, how);
    }
}

/* "a, b, c and 4 more", of the tasks that `pick` chooses; their number. */
static size_t list_names(const supervisor_t *s,
                         int (*pick)(const supervisor_t *, const task_state_t *), char *buf,
                         size_t size)
{
    size_t count = 0, pos = 0;
    *buf = '\0';
    for (size_t i = 0; i < s->count; i++)
        if (pick(s, &s->tasks[i]) && count++ < NAMES_MAX)
            psrti_append(buf, size, &pos, "%s%s", pos ? ", " : "", s->tasks[i].task->name);
    if (count > NAMES_MAX) psrti_append(buf, size, &pos, " and %zu more", count - NAMES_MAX);
    return count;
}

static int still_runs(const supervisor_t *s, const task_state_t *t)
{
    (void)s;
    return t->phase == PHASE_RUNNING;
}

static void note_stragglers(supervisor_t *s)
{
    char names[NAMES_SIZE];
    if (list_names(s, still_runs, names, sizeof names) && !s->job->quiet)
        psrti_output_note(s->output, "all workers ended, but not %s; asking to end", names);
}

static void set_step(supervisor_t *s, step_t step, uint64_t ms);
static void finish_when_over(supervisor_t *s);
static void close_all(supervisor_t *s);

static void on_deadline(uv_timer_t *timer)
{
    supervisor_t *s = timer->data;
    uint64_t grace_ms = ns_to_ms(s->job->grace_ns);
    switch (s->step) {
    case STEP_ASK:
        if (!s->cause) note_stragglers(s);
        stop_tasks(s, 1, 1, PSRTI_STOP_TERM);
        /* A stop has one grace time for all, a drain gives what did not leave another one. */
        set_step(s, STEP_KILL, s->cause ? grace_ms - grace_ms / 2 : grace_ms);
        break;
    case STEP_KILL:
        stop_tasks(s, 1, 1, PSRTI_STOP_KILL);
        set_step(s, STEP_ABANDON, ABANDON_MS);
        break;
    case STEP_ABANDON:
        stop_tasks(s, 1, 1, PSRTI_STOP_ABANDON);
        set_step(s, STEP_GIVE_UP, GIVE_UP_MS);
        break;
    case STEP_GIVE_UP: close_all(s); return;
    }
    finish_when_over(s);
}

static void set_step(supervisor_t *s, step_t step, uint64_t ms)
{
    s->step = step;
    uv_timer_start(&s->deadline, on_deadline, ms, 0);
}

/* Workers first: what they do when asked to end (save, say goodbye) may need the servers. Those
 * follow when the workers are gone, or after half of the grace time. A failed job has nothing left
 * to save. */
static void begin_stop(supervisor_t *s, cause_t cause)
{
    if (s->cause || s->finished) return;
    s->cause = cause;
    s->stop_ns = psrti_now_ns();
    uv_timer_stop(&s->timeout);
    uv_timer_stop(&s->restart);
    int all = cause == CAUSE_TASK || cause == CAUSE_ERROR || workers_ended(s);
    uint64_t grace_ms = ns_to_ms(s->job->grace_ns);
    stop_tasks(s, 1, all, PSRTI_STOP_TERM);
    if (all)
        set_step(s, STEP_KILL, grace_ms);
    else
        set_step(s, STEP_ASK, grace_ms / 2);
    finish_when_over(s);
}

static void begin_stop_error(supervisor_t *s, const char *text)
{
    if (!s->cause) snprintf(s->error, sizeof s->error, "%s", text);
    begin_stop(s, CAUSE_ERROR);
}

static void on_signal(uv_signal_t *handle, int sig)
{
    supervisor_t *s = handle->data;
    if (s->signal_count++ == 0 && !s->finished) {
        if (!s->job->quiet)
            psrti_output_note(s->output, "SIG%s: stopping the job; a second signal kills it",
                              sigabbrev_np(sig));
        if (!s->cause) s->stop_signal = sig;
        begin_stop(s, CAUSE_SIGNAL);
        return;
    }
    if (s->finished) {
        close_all(s); /* no longer waits for the reader of the output */
        return;
    }
    stop_tasks(s, 1, 1, PSRTI_STOP_KILL);
    set_step(s, STEP_ABANDON, ABANDON_MS);
    finish_when_over(s);
}

static void on_timeout(uv_timer_t *timer) { begin_stop(timer->data, CAUSE_TIMEOUT); }

/* ---- the end --------------------------------------------------------------------------------- */

static task_state_t *first_failure(supervisor_t *s)
{
    task_state_t *first = NULL;
    for (size_t i = 0; i < s->count; i++) {
        task_state_t *t = &s->tasks[i];
        if (failed_before_stop(s, t) && (!first || t->end.time_ns < first->end.time_ns)) first = t;
    }
    return first;
}

static int ended_by_stop(const supervisor_t *s, const task_state_t *t)
{
    return has_ended(t) && t->end.time_ns > s->stop_ns;
}

static void note_others(supervisor_t *s, const task_state_t *first)
{
    char text[PSRTI_ERROR_MAX], names[NAMES_SIZE];
    for (size_t i = 0; i < s->count; i++) {
        if (&s->tasks[i] == first || not_assembled(&s->tasks[i]) ||
            !failed_before_stop(s, &s->tasks[i]))
            continue;
        describe(&s->tasks[i], text, sizeof text);
        psrti_output_note(s->output, "%s", text);
    }
    if (list_names(s, ended_by_stop, names, sizeof names))
        psrti_output_note(s->output, "ended by the launcher: %s", names);
}

/* Never NULL when the cause is a task. */
static const task_state_t *culprit(supervisor_t *s)
{
    return s->cause == CAUSE_TASK ? first_failure(s) : NULL;
}

/* The last line says which task ended the job and why. */
static void note_cause(supervisor_t *s)
{
    char text[PSRTI_ERROR_MAX];
    const task_state_t *first = culprit(s);
    double after = seconds(s->stop_ns - s->start_ns);
    if (!s->job->quiet && s->cause) note_others(s, first);
    if (first && not_assembled(first)) {
        psrti_output_note(s->output, "%s; the job was stopped", not_assembled(first));
    } else if (first) {
        describe(first, text, sizeof text);
        psrti_output_note(s->output, "%s; the job was stopped", text);
    } else if (s->cause == CAUSE_SIGNAL) {
        psrti_output_note(s->output, "the job was stopped by SIG%s after %.1f s",
                          sigabbrev_np(s->stop_signal), after);
    } else if (s->cause == CAUSE_TIMEOUT) {
        psrti_output_note(s->output, "the job was stopped by its --timeout after %.1f s", after);
    } else if (s->cause == CAUSE_ERROR) {
        psrti_output_note(s->output, "%s; the job was stopped", s->error);
    }
}

static int exit_code(supervisor_t *s)
{
    const task_state_t *first = culprit(s);
    if (first) return psrti_end_code(&first->end);
    switch (s->cause) {
    case CAUSE_NONE: return 0;
    case CAUSE_SIGNAL: return PSRTI_EXIT_SIGNAL + s->stop_signal;
    case CAUSE_TIMEOUT: return PSRTI_EXIT_TIMEOUT;
    default: return PSRTI_EXIT_INTERNAL;
    }
}

static int is_over(const task_state_t *t) { return t->phase == PHASE_GONE && !t->open_streams; }

static void finish_when_over(supervisor_t *s)
{
    int gone = 1, over = 1;
    for (size_t i = 0; i < s->count; i++) {
        gone &= s->tasks[i].phase == PHASE_GONE;
        over &= is_over(&s->tasks[i]);
    }
    if (s->finished || !gone) return;
    /* Whoever stopped the job does not wait long for a reader that reads no more. */
    uint64_t patience_ms = s->signal_count > 1 ? 0 : ns_to_ms(s->job->grace_ns);
    if (s->cause != CAUSE_SIGNAL)
        uv_timer_stop(&s->deadline);
    else if (s->step != STEP_GIVE_UP)
        set_step(s, STEP_GIVE_UP, patience_ms + OUTPUT_MS);
    if (!over) return;
    s->finished = 1;
    uv_timer_stop(&s->timeout);
    note_cause(s);
    psrti_output_finish(s->output);
}

static void on_drained(void *arg) { close_all(arg); }

static void close_all(supervisor_t *s)
{
    if (s->closed) return;
    s->closed = 1;
    for (size_t i = 0; i < s->count; i++)
        if (s->tasks[i].phase != PHASE_GONE)
            psrti_output_note(s->output, "%s (pid %d) does not die; its guardian goes on trying",
                              s->tasks[i].task->name, s->tasks[i].pid);
    if (!s->finished) note_cause(s);
    s->finished = 1;
    for (size_t i = 0; i < PSRTI_COUNT(s->signals); i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
    uv_close((uv_handle_t *)&s->timeout, NULL);
    uv_close((uv_handle_t *)&s->deadline, NULL);
    uv_close((uv_handle_t *)&s->restart, NULL);
    s->ops->close(s->backend);
    for (size_t i = 0; i < s->count; i++)
        for (int k = 0; k < 2; k++)
            psrti_stream_close(s->tasks[i].streams[k]);
    psrti_output_close(s->output);
}

/* ---- the course of the job ------------------------------------------------------------------- */

static psrt_status_t start_task(supervisor_t *s, task_state_t *t)
{
    t->start_ns = psrti_now_ns();
    snprintf(t->host, sizeof t->host, "an unknown host");
    psrt_status_t st = psrti_tasklog_open(&t->log, s->job->log_dir, t->task);
    if (st) return st;
    psrti_launch_t launch;
    psrti_contract_make(s->job, t->task, &launch);
    st = s->ops->start(s->backend, t->task, &launch);
    psrti_launch_clear(&launch);
    if (st) return st;
    t->phase = PHASE_RUNNING;
    t->open_streams = 2;
    for (int i = 0; i < 2; i++)
        t->streams[i] =
            psrti_output_stream(s->output, STDOUT_FILENO + i, t->task->name, t->task->id);
    return PSRT_OK;
}

static void on_restart(uv_timer_t *timer)
{
    supervisor_t *s = timer->data;
    for (size_t i = 0; i < s->count; i++)
        if (s->tasks[i].phase == PHASE_WAITING && start_task(s, &s->tasks[i]))
            begin_stop_error(s, psrt_last_error());
}

/* The coordinator is off the data path and has its state in a file: the job lives on without it for
 * a while. */
static int may_restart(const supervisor_t *s, const task_state_t *t)
{
    return t->task->role->kind == PSRTI_KIND_COORDINATOR && !s->cause && !s->draining &&
           psrti_end_failed(&t->end) && t->end.kind != PSRTI_END_CANNOT_RUN &&
           !(t->end.kind == PSRTI_END_EXITED && t->end.value == PSRTI_EXIT_NOT_ASSEMBLED) &&
           t->task->attempt < COORDINATOR_RESTARTS;
}

static void restart_later(supervisor_t *s, task_state_t *t)
{
    psrti_task_t *task = &s->job->tasks[t->task->id];
    uint64_t delay_ms = (uint64_t)RESTART_DELAY_MS << task->attempt;
    t->restart = 0;
    t->phase = PHASE_WAITING;
    task->attempt++;
    uv_timer_start(&s->restart, on_restart, delay_ms, 0);
}

static void note_end(supervisor_t *s, const task_state_t *t, const char *what)
{
    char text[PSRTI_ERROR_MAX];
    if (s->job->quiet) return;
    describe(t, text, sizeof text);
    psrti_output_note(s->output, "%s; %s", text, what);
}

/* Servers and coordinator leave by themselves when all workers have finished with them. One that
 * ended with 0 before has been told that they have. */
static void begin_drain(supervisor_t *s)
{
    s->draining = 1;
    uv_timer_stop(&s->timeout);
    uv_timer_stop(&s->restart);
    for (size_t i = 0; i < s->count; i++)
        if (s->tasks[i].phase == PHASE_WAITING) s->tasks[i].phase = PHASE_GONE;
    set_step(s, STEP_ASK, ns_to_ms(s->job->grace_ns));
}

static void on_started(void *arg, const psrti_task_t *task, const char *host, int pid)
{
    supervisor_t *s = arg;
    task_state_t *t = &s->tasks[task->id];
    t->pid = pid;
    snprintf(t->host, sizeof t->host, "%s", host);
}

static void on_ended(void *arg, const psrti_task_t *task, const psrti_end_t *end)
{
    supervisor_t *s = arg;
    task_state_t *t = &s->tasks[task->id];
    t->end = *end;
    t->phase = PHASE_ENDED;
    if (s->cause) {
        /* The rest of a graceful stop waited for the workers. */
        if (s->step == STEP_ASK && workers_ended(s)) set_step(s, STEP_ASK, 0);
    } else if (s->draining) {
        if (psrti_end_failed(end) && s->step == STEP_ASK)
            note_end(s, t, "all workers had ended before");
    } else if (may_restart(s, t)) {
        note_end(s, t, "it is restarted");
        t->end = (psrti_end_t){ 0 }; /* does not count */
        t->restart = 1;
    } else if (psrti_end_failed(end)) {
        begin_stop(s, CAUSE_TASK);
    } else if (task->role->kind == PSRTI_KIND_WORKER && workers_ended(s)) {
        begin_drain(s);
    }
}

/* Nothing of a start is left but perhaps output. */
static void check_over(supervisor_t *s, task_state_t *t)
{
    if (t->restart && is_over(t) && !s->cause && !s->draining)
        restart_later(s, t);
    else
        finish_when_over(s);
}

static void on_gone(void *arg, const psrti_task_t *task)
{
    supervisor_t *s = arg;
    task_state_t *t = &s->tasks[task->id];
    t->phase = PHASE_GONE;
    check_over(s, t);
}

static void on_output(void *arg, const psrti_task_t *task, int fd, const char *data, size_t len)
{
    supervisor_t *s = arg;
    task_state_t *t = &s->tasks[task->id];
    int which = fd == STDERR_FILENO;
    if (len) {
        psrti_stream_write(t->streams[which], data, len);
        if (which && task->role->kind != PSRTI_KIND_WORKER) keep_last_line(t, data, len);
        if (psrti_tasklog_write(&t->log, which, data, len))
            psrti_output_note(s->output, "%s; its log ends here", psrt_last_error());
        return;
    }
    psrti_stream_close(t->streams[which]);
    t->streams[which] = NULL;
    psrti_tasklog_close(&t->log, which);
    t->open_streams--;
    check_over(s, t);
}

static void on_ready(void *arg)
{
    supervisor_t *s = arg;
    for (size_t i = 0; i < s->count && !s->cause; i++)
        if (start_task(s, &s->tasks[i])) begin_stop_error(s, psrt_last_error());
}

static void on_failed(void *arg, const char *text) { begin_stop_error(arg, text); }

/* Each of its tasks ends with PSRTI_END_HOST_LOST as well, which decides. */
static void on_host_lost(void *arg, unsigned host, const char *text)
{
    supervisor_t *s = arg;
    psrti_output_note(s->output, "host %s was lost: %s", s->job->hosts[host].name, text);
}

static void on_pause(void *arg, int paused)
{
    supervisor_t *s = arg;
    s->ops->pause(s->backend, paused);
}

/* ---- set up ---------------------------------------------------------------------------------- */

static void watch_signals(supervisor_t *s)
{
    static const int stops[] = { SIGINT, SIGTERM, SIGHUP };
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < PSRTI_COUNT(s->signals); i++) {
        struct sigaction action;
        uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        /* nohup: what was ignored stays so. */
        if (!sigaction(stops[i], NULL, &action) && action.sa_handler == SIG_IGN) continue;
        uv_signal_start(&s->signals[i], on_signal, stops[i]);
    }
}

static void init_timers(supervisor_t *s)
{
    uv_timer_t *timers[] = { &s->timeout, &s->deadline, &s->restart };
    for (size_t i = 0; i < PSRTI_COUNT(timers); i++) {
        uv_timer_init(&s->loop, timers[i]);
        timers[i]->data = s;
    }
    if (s->job->timeout_ns)
        uv_timer_start(&s->timeout, on_timeout, ns_to_ms(s->job->timeout_ns), 0);
}

static psrt_status_t open_all(supervisor_t *s)
{
    const psrti_backend_events_t events = { .ready = on_ready,
                                            .failed = on_failed,
                                            .started = on_started,
                                            .output = on_output,
                                            .ended = on_ended,
                                            .gone = on_gone,
                                            .host_lost = on_host_lost,
                                            .arg = s };
    const psrti_output_params_t params = { .loop = &s->loop,
                                           .no_prefix = s->job->no_prefix,
                                           .pause = on_pause,
                                           .drained = on_drained,
                                           .arg = s };
    psrt_status_t st = psrti_tasklog_make_dir(s->job->log_dir);
    if (st) return st;
    if (uv_loop_init(&s->loop))
        return psrti_fail(PSRT_ERR_LIMIT, "event loop: no descriptors left");
    st = s->ops->open(&s->loop, s->job, &events, &s->backend);
    if (st) goto err_loop;
    st = psrti_output_create(&params, &s->output);
    if (st) goto err_backend;
    return PSRT_OK;
err_backend:
    s->ops->close(s->backend);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    s->ops->release(s->backend);
err_loop:
    uv_loop_close(&s->loop);
    return st;
}

psrt_status_t psrti_supervise(psrti_job_t *job, const psrti_backend_ops_t *ops, int *exit_code_p)
{
    supervisor_t *s = psrti_xcalloc(1, sizeof *s);
    *s = (supervisor_t){ .job = job, .ops = ops, .count = job->task_count, .stop_ns = UINT64_MAX };
    psrt_status_t st = open_all(s);
    if (st) {
        free(s);
        return st;
    }
    s->tasks = psrti_xcalloc(s->count, sizeof *s->tasks);
    for (size_t i = 0; i < s->count; i++) {
        s->tasks[i].task = &job->tasks[i];
        psrti_tasklog_init(&s->tasks[i].log);
    }
    s->start_ns = psrti_now_ns();
    watch_signals(s);
    init_timers(s);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    *exit_code_p = exit_code(s);
    /* A sink's thread that waits for a reader cannot be joined. */
    if (!psrti_output_wait(s->output, LAST_WORDS_MS)) _exit(*exit_code_p);
    psrti_output_release(s->output);
    ops->release(s->backend);
    uv_loop_close(&s->loop);
    free(s->tasks);
    free(s);
    return PSRT_OK;
}
