/* SPDX-License-Identifier: Apache-2.0 */
/* The loop around core.c: the backend's events and the timers go in, what the core decides is done
 * and told. */
#include "launcher/supervise.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/contract.h"
#include "launcher/expand.h"
#include "launcher/shown.h"
#include "launcher/supervisor.h"
#include "launcher/tensorboard.h"

#define OUTPUT_MS 1000 /* for the rest of the output after a stop by the user */
#define LAST_WORDS_MS 200
#define STATUS_MS 500
#define MERGE_MIN 3 /* so many tasks of a role are many */

static uint64_t ns_to_ms(uint64_t ns) { return ns / PSRTI_NS_PER_MS + (ns % PSRTI_NS_PER_MS != 0); }

/* ---- notes ----------------------------------------------------------------------------------- */

static void tell(psrti_supervisor_t *s, int show, const char *fmt, va_list ap)
{
    char *text;
    if (vasprintf(&text, fmt, ap) < 0) return;
    if (show) psrti_output_note(s->output, "%s", text);
    if (s->run_log) fprintf(s->run_log, "%s\n", text);
    psrti_control_note(s->control, text);
    psrti_record_event(s->record, json_pack("{s:s, s:s}", "event", "note", "text", text));
    free(text);
}

void psrti_supervisor_note(psrti_supervisor_t *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tell(s, !s->job->quiet, fmt, ap);
    va_end(ap);
}

void psrti_supervisor_tell(psrti_supervisor_t *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tell(s, 1, fmt, ap);
    va_end(ap);
}

size_t psrti_supervisor_names(const psrti_supervisor_t *s,
                              int (*pick)(const psrti_supervisor_t *s, size_t task), char *buf,
                              size_t size)
{
    size_t count = 0, pos = 0;
    *buf = '\0';
    for (size_t i = 0; i < s->count; i++)
        if (pick(s, i) && count++ < PSRTI_NAMES_MAX)
            psrti_append(buf, size, &pos, "%s%s", pos ? ", " : "", s->seats[i].task->name);
    if (count > PSRTI_NAMES_MAX)
        psrti_append(buf, size, &pos, " and %zu more", count - PSRTI_NAMES_MAX);
    return count;
}

static void log_event(psrti_supervisor_t *s, const char *event, size_t task)
{
    const psrti_core_task_t *t = psrti_core_task(s->core, task);
    psrti_record_event(s->record,
                       json_pack("{s:s, s:s, s:i, s:s, s:i}", "event", event, "task",
                                 s->seats[task].task->name, "attempt", (int)t->attempt, "host",
                                 s->job->hosts[t->host].name, "pid", s->seats[task].pid));
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The last process is gone; the last output may still come. */
static void check_finished(psrti_supervisor_t *s)
{
    if (!s->gone || s->finished) return;
    for (size_t i = 0; i < s->count; i++)
        if (s->seats[i].open_streams) return;
    s->finished = 1;
    uv_timer_stop(&s->timeout);
    uv_timer_stop(&s->status);
    psrti_verdict_tell(s);
    psrti_output_finish(s->output);
}

static void on_patience(uv_timer_t *timer) { psrti_supervisor_close(timer->data); }

/* Whoever stopped the job does not wait long for a reader that reads no more. */
static void finish(psrti_supervisor_t *s)
{
    s->gone = 1;
    if (psrti_core_cause(s->core) == PSRTI_CAUSE_USER) {
        uint64_t patience_ms = s->signal_count > 1 ? 0 : ns_to_ms(s->job->grace_ns);
        uv_timer_start(&s->patience, on_patience, patience_ms + OUTPUT_MS, 0);
    }
    check_finished(s);
}

void psrti_supervisor_close(psrti_supervisor_t *s)
{
    if (s->closed) return;
    s->closed = 1;
    for (size_t i = 0; i < s->count; i++) {
        const psrti_core_task_t *t = psrti_core_task(s->core, i);
        if (t->phase >= PSRTI_PHASE_STARTING && t->phase <= PSRTI_PHASE_ENDING && !t->gone)
            psrti_supervisor_tell(s, "%s (pid %d) does not die; its guardian goes on trying",
                                  s->seats[i].task->name, s->seats[i].pid);
    }
    if (!s->finished) psrti_verdict_tell(s);
    s->finished = 1;
    psrti_output_status(s->output, NULL);
    for (size_t i = 0; i < PSRTI_SIGNALS; i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
    uv_timer_t *timers[] = { &s->timeout, &s->deadline, &s->patience, &s->status };
    for (size_t i = 0; i < PSRTI_COUNT(timers); i++)
        uv_close((uv_handle_t *)timers[i], NULL);
    psrti_control_close(s->control, psrti_verdict_code(s));
    psrti_discovery_close(s->discovery);
    s->ops->close(s->backend);
    for (size_t i = 0; i < s->count; i++)
        for (int k = 0; k < 2; k++)
            psrti_stream_close(s->seats[i].streams[k]);
    psrti_output_close(s->output);
}

static void on_drained(void *arg) { psrti_supervisor_close(arg); }

/* ---- what the core decided ------------------------------------------------------------------- */

/* "worker:3@node1". Many machines are localhost to themselves: such a one is shown by its name. */
psrti_stream_t *psrti_supervisor_stream(psrti_supervisor_t *s, size_t task, int fd)
{
    const psrti_seat_t *seat = &s->seats[task];
    char self[HOST_NAME_MAX + 1] = "", label[PSRTI_TASK_NAME_MAX + sizeof self];
    const char *host = seat->host;
    if (!s->job->label_host) return psrti_output_stream(s->output, fd, seat->task->name, task);
    if (!strcmp(host, "localhost") && !gethostname(self, sizeof self)) host = self;
    snprintf(label, sizeof label, "%s@%s", seat->task->name, host);
    return psrti_output_stream(s->output, fd, label, task);
}

static psrt_status_t start_attempt(psrti_supervisor_t *s, psrti_seat_t *seat)
{
    psrti_launch_t launch;
    psrt_status_t st = psrti_tasklog_open(&seat->log, s->job, seat->task);
    if (st) return st;
    psrti_contract_make(s->job, seat->task, &launch);
    st = s->ops->start(s->backend, seat->task, &launch);
    psrti_launch_clear(&launch);
    if (!st) return PSRT_OK;
    psrti_tasklog_close(&seat->log, 0);
    psrti_tasklog_close(&seat->log, 1);
    return st;
}

static void start_task(psrti_supervisor_t *s, const psrti_action_t *action)
{
    psrti_seat_t *seat = &s->seats[action->task];
    psrti_task_t *task = &s->job->tasks[action->task];
    task->attempt = psrti_core_task(s->core, action->task)->attempt;
    seat->pid = 0;
    snprintf(seat->host, sizeof seat->host, "%s", s->job->hosts[action->host].name);
    if (start_attempt(s, seat)) {
        snprintf(s->error, sizeof s->error, "%s", psrt_last_error());
        psrti_core_not_started(s->core, action->task);
        psrti_core_stop(s->core, psrti_now_ns(), PSRTI_CAUSE_ERROR);
        return;
    }
    seat->open_streams = 2;
    for (int i = 0; i < 2 && !seat->hidden; i++)
        seat->streams[i] = psrti_supervisor_stream(s, action->task, STDOUT_FILENO + i);
}

static int still_runs(const psrti_supervisor_t *s, size_t task)
{
    return psrti_core_task(s->core, task)->phase == PSRTI_PHASE_RUNNING;
}

static void say(psrti_supervisor_t *s, const psrti_action_t *a)
{
    char text[PSRTI_ERROR_MAX] = "", names[PSRTI_NAMES_SIZE];
    double delay = (double)a->delay_ns / PSRTI_NS_PER_S;
    const char *host = s->job->hosts[a->host].name;
    switch (a->kind) {
    case PSRTI_SAY_RESTART:
        psrti_verdict_describe(s, a->task, text, sizeof text);
        psrti_supervisor_note(s, "%s; it is restarted in %.1f s", text, delay);
        break;
    case PSRTI_SAY_SHED:
        psrti_verdict_describe(s, a->task, text, sizeof text);
        psrti_supervisor_note(s, "%s; the job goes on with %u of role %s", text, a->count,
                              s->job->tasks[a->task].role->name);
        break;
    case PSRTI_SAY_GROW:
        psrti_supervisor_note(s, "%s joins%s, on %s", s->seats[a->task].task->name,
                              psrti_core_task(s->core, a->task)->ever_started ? " again" : "",
                              host);
        break;
    case PSRTI_SAY_GOES_ON:
        psrti_verdict_describe(s, a->task, text, sizeof text);
        psrti_supervisor_note(s, "%s; the job goes on without it", text);
        break;
    case PSRTI_SAY_AFTER_END:
        psrti_verdict_describe(s, a->task, text, sizeof text);
        psrti_supervisor_note(s, "%s; all workers had ended before", text);
        break;
    case PSRTI_SAY_STRAGGLERS:
        if (psrti_supervisor_names(s, still_runs, names, sizeof names))
            psrti_supervisor_note(s, "all workers ended, but not %s; asking to end", names);
        break;
    case PSRTI_SAY_COOLING:
        psrti_supervisor_note(s, "host %s is not used for %.0f s", host, delay);
        break;
    case PSRTI_SAY_LEAVING: psrti_supervisor_note(s, "host %s is listed no more", host); break;
    case PSRTI_SAY_STAYS:
        psrti_supervisor_tell(s,
                              "host %s is listed no more, but %s cannot leave it: it stays in use",
                              host, s->seats[a->task].task->name);
        break;
    default: break;
    }
}

static void on_deadline(uv_timer_t *timer);

static void arm(psrti_supervisor_t *s)
{
    uint64_t at = psrti_core_deadline(s->core), now = psrti_now_ns();
    if (s->closed) return;
    if (at == UINT64_MAX) {
        uv_timer_stop(&s->deadline);
        return;
    }
    uv_update_time(&s->loop);
    uv_timer_start(&s->deadline, on_deadline, at > now ? ns_to_ms(at - now) : 0, 0);
}

void psrti_supervisor_act(psrti_supervisor_t *s)
{
    psrti_action_t action;
    while (psrti_core_next(s->core, &action)) {
        switch (action.kind) {
        case PSRTI_DO_START: start_task(s, &action); break;
        case PSRTI_DO_STOP:
            s->ops->stop(s->backend, &s->job->tasks[action.task], action.how);
            break;
        case PSRTI_DO_REACH:
            if (s->ops->reach) s->ops->reach(s->backend, action.host);
            break;
        case PSRTI_DO_FINISH: finish(s); break;
        case PSRTI_DO_GIVE_UP: psrti_supervisor_close(s); break;
        default: say(s, &action); break;
        }
    }
    psrti_hostnews_check(s);
    arm(s);
}

/* ---- what happens ---------------------------------------------------------------------------- */

static void on_deadline(uv_timer_t *timer)
{
    psrti_supervisor_t *s = timer->data;
    psrti_core_tick(s->core, psrti_now_ns());
    psrti_supervisor_act(s);
}

static void on_timeout(uv_timer_t *timer)
{
    psrti_supervisor_t *s = timer->data;
    psrti_core_stop(s->core, psrti_now_ns(), PSRTI_CAUSE_TIMEOUT);
    psrti_supervisor_act(s);
}

static void on_status(uv_timer_t *timer)
{
    char text[1024];
    psrti_supervisor_t *s = timer->data;
    int shown = !s->job->quiet && psrti_output_shows_status(s->output);
    int watched = psrti_control_is_watched(s->control);
    if (!shown && !watched) return;
    psrti_state_line(s, text, sizeof text);
    if (shown) psrti_output_status(s->output, text);
    if (watched) psrti_control_status(s->control, text);
}

void psrti_supervisor_stop(psrti_supervisor_t *s, int sig, int by_request)
{
    if (!psrti_core_cause(s->core)) {
        s->stop_signal = sig;
        s->stop_by_request = by_request;
    }
    psrti_core_stop(s->core, psrti_now_ns(), PSRTI_CAUSE_USER);
    psrti_supervisor_act(s);
}

void psrti_supervisor_kill(psrti_supervisor_t *s)
{
    psrti_core_kill(s->core, psrti_now_ns());
    psrti_supervisor_act(s);
}

/* Not to psrtd, which such a signal would only kill. What was started may be heard of before that it
 * was. */
void psrti_supervisor_forward(psrti_supervisor_t *s, int sig)
{
    for (size_t i = 0; i < s->count; i++) {
        const psrti_role_t *role = s->job->tasks[i].role;
        psrti_phase_t phase = psrti_core_task(s->core, i)->phase;
        if ((phase == PSRTI_PHASE_STARTING || phase == PSRTI_PHASE_RUNNING) &&
            (role->argv || role->shell))
            s->ops->signal(s->backend, s->seats[i].task, sig);
    }
}

static void on_ready(void *arg)
{
    psrti_supervisor_t *s = arg;
    psrti_control_ops_t ops = psrti_requests;
    ops.arg = s;
    if (psrti_control_open(&s->loop, s->job->dir, &ops, &s->control))
        psrti_supervisor_note(s, "this job cannot be asked: %s", psrt_last_error());
    psrti_record_set(s->record, "job_dir", json_string(s->job->dir));
    if (s->params.ready) s->params.ready(s->params.arg);
    psrti_hostnews_watch(s);
    psrti_core_ready(s->core, psrti_now_ns());
    psrti_supervisor_act(s);
}

static void on_failed(void *arg, const char *text)
{
    psrti_supervisor_t *s = arg;
    s->unavailable = 1;
    snprintf(s->error, sizeof s->error, "%s", text);
    psrti_core_stop(s->core, psrti_now_ns(), PSRTI_CAUSE_ERROR);
    psrti_supervisor_act(s);
}

static void on_started(void *arg, const psrti_task_t *task, const char *host, int pid,
                       const char *bound)
{
    psrti_supervisor_t *s = arg;
    psrti_seat_t *seat = &s->seats[task->id];
    seat->pid = pid;
    snprintf(seat->host, sizeof seat->host, "%s", host);
    psrti_core_started(s->core, psrti_now_ns(), task->id);
    log_event(s, "started", task->id);
    if (s->run_log) fprintf(s->run_log, "%s started on %s, pid %d\n", task->name, host, pid);
    if (*bound) psrti_supervisor_note(s, "%s on %s is bound to %s", task->name, host, bound);
    if (psrti_tensorboard_is(task->role))
        psrti_supervisor_note(s, "TensorBoard is at http://%s:%u/", psrti_expand_host(s->job, task),
                              (unsigned)task->ports[0]);
    psrti_supervisor_act(s);
}

static void on_ended(void *arg, const psrti_task_t *task, const psrti_end_t *end)
{
    psrti_supervisor_t *s = arg;
    char text[PSRTI_ERROR_MAX];
    psrti_core_ended(s->core, psrti_now_ns(), task->id, end);
    psrti_verdict_describe(s, task->id, text, sizeof text);
    if (s->run_log) fprintf(s->run_log, "%s\n", text);
    psrti_record_event(s->record,
                       json_pack("{s:s, s:s, s:i, s:s}", "event", "ended", "task", task->name,
                                 "attempt", (int)task->attempt, "text", text));
    psrti_supervisor_act(s);
}

static void on_gone(void *arg, const psrti_task_t *task)
{
    psrti_supervisor_t *s = arg;
    psrti_core_gone(s->core, psrti_now_ns(), task->id);
    psrti_supervisor_act(s);
}

static void on_output(void *arg, const psrti_task_t *task, int fd, const char *data, size_t len)
{
    psrti_supervisor_t *s = arg;
    psrti_seat_t *seat = &s->seats[task->id];
    int which = fd == STDERR_FILENO;
    if (len) {
        if (seat->streams[which]) psrti_stream_write(seat->streams[which], data, len);
        psrti_tail_add(&seat->tails[which], data, len);
        psrti_control_output(s->control, task->id, fd, data, len);
        if (task->role->kind == PSRTI_KIND_WORKER) s->last_seat = task->id;
        if (psrti_tasklog_write(&seat->log, which, data, len))
            psrti_supervisor_tell(s, "%s; its log ends here", psrt_last_error());
        return;
    }
    psrti_stream_close(seat->streams[which]);
    seat->streams[which] = NULL;
    psrti_tasklog_close(&seat->log, which);
    if (--seat->open_streams) return;
    psrti_core_closed(s->core, psrti_now_ns(), task->id);
    psrti_supervisor_act(s);
    check_finished(s);
}

static void on_pause(void *arg, int paused)
{
    psrti_supervisor_t *s = arg;
    s->ops->pause(s->backend, paused);
}

static const char *name_of(void *arg, size_t task)
{
    return ((psrti_supervisor_t *)arg)->seats[task].task->name;
}

/* ---- set up ---------------------------------------------------------------------------------- */

static void init_timers(psrti_supervisor_t *s)
{
    uv_timer_t *timers[] = { &s->timeout, &s->deadline, &s->patience, &s->status };
    for (size_t i = 0; i < PSRTI_COUNT(timers); i++) {
        uv_timer_init(&s->loop, timers[i]);
        timers[i]->data = s;
    }
    if (s->job->timeout_ns)
        uv_timer_start(&s->timeout, on_timeout, ns_to_ms(s->job->timeout_ns), 0);
    uv_timer_start(&s->status, on_status, STATUS_MS, STATUS_MS);
}

static psrti_core_t *create_core(const psrti_supervisor_t *s)
{
    psrti_core_params_t params = PSRTI_CORE_PARAMS;
    if (s->job->start_timeout)
        psrti_parse_duration(s->job->start_timeout, &params.start_timeout_ns);
    params.launch_timeout_ns = s->job->launch_timeout_ns;
    if (s->job->cooldown_ns) params.cooldown_ns = s->job->cooldown_ns;
    if (s->job->host_wait_ns) params.host_wait_ns = s->job->host_wait_ns;
    return psrti_core_create(s->job, &params, s->start_ns);
}

/* Who wants no prefixes wants all lines as they are. */
static int is_merged(const psrti_job_t *job)
{
    if (job->no_prefix) return 0;
    for (size_t i = 0; i < job->role_count; i++)
        if (job->roles[i].count >= MERGE_MIN) return 1;
    return 0;
}

static psrt_status_t open_run_log(psrti_supervisor_t *s)
{
    const char *path = s->job->run_log;
    if (!path) return PSRT_OK;
    s->run_log = fopen(path, "we");
    if (!s->run_log) return psrti_fail(PSRT_ERR_IO, "%s: %s", path, strerror(errno));
    setlinebuf(s->run_log);
    return PSRT_OK;
}

static psrt_status_t open_all(psrti_supervisor_t *s)
{
    const psrti_backend_events_t events = { .ready = on_ready,
                                            .failed = on_failed,
                                            .started = on_started,
                                            .output = on_output,
                                            .ended = on_ended,
                                            .gone = on_gone,
                                            .host_lost = psrti_hostnews_lost,
                                            .host_up = psrti_hostnews_up,
                                            .host_not_reached = psrti_hostnews_not_reached,
                                            .arg = s };
    const psrti_output_params_t params = { .loop = &s->loop,
                                           .file = s->params.output,
                                           .no_prefix = s->job->no_prefix,
                                           .timestamps = s->job->timestamps,
                                           .merge_tasks = is_merged(s->job) ? s->count : 0,
                                           .name = name_of,
                                           .pause = on_pause,
                                           .drained = on_drained,
                                           .arg = s };
    psrt_status_t st = psrti_tasklog_make_dir(s->job->log_dir);
    if (!st) st = open_run_log(s);
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

static void init_seats(psrti_supervisor_t *s)
{
    s->seats = psrti_xcalloc(s->count, sizeof *s->seats);
    for (size_t i = 0; i < s->count; i++) {
        const psrti_task_t *task = &s->job->tasks[i];
        s->seats[i].task = task;
        s->seats[i].hidden = !psrti_shown_has(s->job, task);
        psrti_tasklog_init(&s->seats[i].log);
    }
}

static void release_all(psrti_supervisor_t *s)
{
    psrti_output_release(s->output);
    s->ops->release(s->backend);
    psrti_control_release(s->control);
    psrti_discovery_release(s->discovery);
    uv_loop_close(&s->loop);
}

static void free_all(psrti_supervisor_t *s)
{
    for (size_t i = 0; i < s->count; i++) {
        psrti_tail_clear(&s->seats[i].tails[0]);
        psrti_tail_clear(&s->seats[i].tails[1]);
        psrti_tasklog_close(&s->seats[i].log, 0);
        psrti_tasklog_close(&s->seats[i].log, 1);
    }
    if (s->run_log) fclose(s->run_log);
    psrti_core_destroy(s->core);
    free(s->seats);
    free(s);
}

psrt_status_t psrti_supervise(psrti_job_t *job, const psrti_backend_ops_t *ops,
                              const psrti_supervise_params_t *params, int *exit_code_p)
{
    psrti_supervisor_t *s = psrti_xcalloc(1, sizeof *s);
    *s = (psrti_supervisor_t){ .job = job,
                               .ops = ops,
                               .params = *params,
                               .record = params->record,
                               .count = job->task_count };
    s->start_ns = psrti_now_ns();
    init_seats(s);
    s->core = create_core(s);
    psrt_status_t st = open_all(s);
    if (st) {
        free_all(s);
        return st;
    }
    psrti_signals_watch(s);
    init_timers(s);
    arm(s);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    *exit_code_p = psrti_verdict_code(s);
    psrti_record_set(s->record, "exit_code", json_integer(*exit_code_p));
    /* A sink's thread that waits for a reader cannot be joined. */
    if (!psrti_output_wait(s->output, LAST_WORDS_MS)) {
        psrti_record_close(s->record);
        _exit(*exit_code_p);
    }
    release_all(s);
    free_all(s);
    return PSRT_OK;
}
