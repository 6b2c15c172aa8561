/* SPDX-License-Identifier: Apache-2.0 */
/* Why the job ended: its last lines and its exit code. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "launcher/end.h"
#include "launcher/exits.h"
#include "launcher/supervisor.h"

#define LAST_WORDS 2048 /* bytes of stderr of a failed task whose output is not shown */

void psrti_verdict_describe(const psrti_supervisor_t *s, size_t task, char *buf, size_t size)
{
    const psrti_core_task_t *t = psrti_core_task(s->core, task);
    const psrti_seat_t *seat = &s->seats[task];
    psrti_end_describe(&t->end, seat->task, seat->pid, seat->host, t->start_ns, buf, size);
}

/* What psrtd said of a job that did not assemble, in its last line; false: it ended otherwise. */
static int not_assembled(const psrti_supervisor_t *s, size_t task, char *buf, size_t size)
{
    static const char prefix[] = "psrtd: ";
    const psrti_end_t *end = &psrti_core_task(s->core, task)->end;
    if (s->job->tasks[task].role->kind == PSRTI_KIND_WORKER || end->kind != PSRTI_END_EXITED ||
        end->value != PSRTI_EXIT_NOT_ASSEMBLED)
        return 0;
    char line[PSRTI_ERROR_MAX];
    psrti_tail_last_line(&s->seats[task].tails[1], line, sizeof line);
    if (strncmp(line, prefix, sizeof prefix - 1)) return 0;
    snprintf(buf, size, "%s", line + sizeof prefix - 1);
    return 1;
}

static int ended_by_stop(const psrti_supervisor_t *s, size_t task)
{
    const psrti_core_task_t *t = psrti_core_task(s->core, task);
    return t->ever_started && t->phase >= PSRTI_PHASE_ENDING &&
           t->end.time_ns > psrti_core_stop_ns(s->core);
}

static int never_started(const psrti_supervisor_t *s, size_t task)
{
    return !psrti_core_task(s->core, task)->ever_started &&
           psrti_core_task(s->core, task)->phase != PSRTI_PHASE_SHED;
}

/* The last words of a task whose output nobody saw. */
static void show_hidden(psrti_supervisor_t *s, size_t task)
{
    const psrti_seat_t *seat = &s->seats[task];
    const psrti_tail_t *tail = &seat->tails[1];
    if (!seat->hidden || !tail->len) return;
    psrti_stream_t *stream = psrti_supervisor_stream(s, task, STDERR_FILENO);
    size_t from = tail->len > LAST_WORDS ? tail->len - LAST_WORDS : 0;
    const char *line = from ? memchr(tail->data + from, '\n', tail->len - from) : NULL;
    if (line) from = (size_t)(line - tail->data) + 1;
    psrti_stream_write(stream, tail->data + from, tail->len - from);
    psrti_stream_close(stream);
}

/* The last line, also for those who ask when the job has ended. */
static void conclude(psrti_supervisor_t *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void conclude(psrti_supervisor_t *s, const char *fmt, ...)
{
    char text[2 * PSRTI_ERROR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    psrti_supervisor_tell(s, "%s", text);
    json_t *json = json_string(text);
    if (json) psrti_record_set(s->record, "verdict", json);
}

static void tell_others(psrti_supervisor_t *s, size_t culprit)
{
    char text[PSRTI_ERROR_MAX], names[PSRTI_NAMES_SIZE];
    for (size_t i = 0; i < s->count; i++) {
        if (i == culprit || !psrti_core_failed_itself(s->core, i) ||
            not_assembled(s, i, text, sizeof text))
            continue;
        psrti_verdict_describe(s, i, text, sizeof text);
        psrti_supervisor_note(s, "%s", text);
    }
    if (psrti_supervisor_names(s, ended_by_stop, names, sizeof names))
        psrti_supervisor_note(s, "ended by the launcher: %s", names);
}

static void tell_start(psrti_supervisor_t *s)
{
    char names[PSRTI_NAMES_SIZE];
    psrti_supervisor_names(s, never_started, names, sizeof names);
    conclude(s, "not all tasks were started within %s: missing %s; the job was stopped",
             s->job->start_timeout, names);
}

void psrti_verdict_tell(psrti_supervisor_t *s)
{
    char text[PSRTI_ERROR_MAX];
    size_t culprit = SIZE_MAX;
    psrti_cause_t cause = psrti_core_cause(s->core);
    double after = (double)(psrti_core_stop_ns(s->core) - s->start_ns) / PSRTI_NS_PER_S;
    psrti_output_settle(s->output);
    if (psrti_core_culprit(s->core, &culprit)) show_hidden(s, culprit);
    if (cause) tell_others(s, culprit);
    if (culprit != SIZE_MAX) {
        if (!not_assembled(s, culprit, text, sizeof text))
            psrti_verdict_describe(s, culprit, text, sizeof text);
        conclude(s, "%s; the job was stopped", text);
    } else if (cause == PSRTI_CAUSE_USER) {
        conclude(s, "the job was stopped by %s%s after %.1f s",
                 s->stop_by_request ? "psrt-launch kill, as by SIG" : "SIG",
                 sigabbrev_np(s->stop_signal), after);
    } else if (cause == PSRTI_CAUSE_TIMEOUT) {
        conclude(s, "the job was stopped by its --timeout after %.1f s", after);
    } else if (cause == PSRTI_CAUSE_START) {
        tell_start(s);
    } else if (cause == PSRTI_CAUSE_ERROR) {
        conclude(s, "%s; the job was stopped", s->error);
    }
}

int psrti_verdict_code(const psrti_supervisor_t *s)
{
    size_t culprit;
    if (psrti_core_culprit(s->core, &culprit))
        return psrti_end_code(&psrti_core_task(s->core, culprit)->end);
    switch (psrti_core_cause(s->core)) {
    case PSRTI_CAUSE_NONE: return 0;
    case PSRTI_CAUSE_USER: return PSRTI_EXIT_SIGNAL + s->stop_signal;
    case PSRTI_CAUSE_TIMEOUT: return PSRTI_EXIT_TIMEOUT;
    case PSRTI_CAUSE_START: return PSRTI_EXIT_NOT_ASSEMBLED;
    default: return s->unavailable ? PSRTI_EXIT_UNAVAILABLE : PSRTI_EXIT_INTERNAL;
    }
}
