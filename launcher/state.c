/* SPDX-License-Identifier: Apache-2.0 */
/* How things are: as JSON for `psrt-launch status`, as a line for a terminal, as a table. */
#include <string.h>

#include "launcher/end.h"
#include "launcher/supervisor.h"

#define LINE_MAX_LEN 256

static double seconds_since(uint64_t ns) { return (double)(psrti_now_ns() - ns) / PSRTI_NS_PER_S; }

static void last_line(const psrti_supervisor_t *s, size_t task, char buf[LINE_MAX_LEN])
{
    const psrti_tail_t *tails = s->seats[task].tails;
    psrti_tail_last_line(tails[0].len ? &tails[0] : &tails[1], buf, LINE_MAX_LEN);
}

static const char *job_state(const psrti_supervisor_t *s)
{
    if (psrti_core_cause(s->core)) return "stopping";
    if (psrti_core_draining(s->core)) return "draining";
    for (size_t i = 0; i < s->count; i++) {
        const psrti_core_task_t *t = psrti_core_task(s->core, i);
        if (!t->ever_started && t->phase != PSRTI_PHASE_SHED) return "starting";
    }
    return "running";
}

/* What a terminal and JSON may be given: other bytes would end the text. */
static json_t *text_or_null(const char *text)
{
    json_t *value = json_string(text);
    return value ? value : json_null();
}

static json_t *task_json(const psrti_supervisor_t *s, size_t task)
{
    const psrti_core_task_t *t = psrti_core_task(s->core, task);
    const psrti_seat_t *seat = &s->seats[task];
    char line[LINE_MAX_LEN];
    last_line(s, task, line);
    json_t *json =
        json_pack("{s:s, s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:f, s:o}", "task", seat->task->name,
                  "role", seat->task->role->name, "index", (int)seat->task->index, "state",
                  psrti_phase_name(t->phase), "host", psrti_job_host_name(s->job, seat->task),
                  "pid", seat->pid, "attempt", (int)t->attempt, "restarts", (int)t->restarts,
                  "since_s", seconds_since(t->since_ns), "last_line", text_or_null(line));
    if (t->phase >= PSRTI_PHASE_ENDING && t->ever_started && json)
        json_object_set_new(json, "exit_code", json_integer(psrti_end_code(&t->end)));
    return json;
}

json_t *psrti_state_json(const psrti_supervisor_t *s)
{
    json_t *tasks = json_array();
    for (size_t i = 0; i < s->count; i++)
        json_array_append_new(tasks, task_json(s, i));
    return json_pack("{s:s, s:s, s:s, s:f, s:o}", "job", psrti_record_id(s->record), "name",
                     s->job->name, "state", job_state(s), "elapsed_s", seconds_since(s->start_ns),
                     "tasks", tasks);
}

static void append_counts(const psrti_supervisor_t *s, const psrti_role_t *role, char *buf,
                          size_t size, size_t *pos)
{
    unsigned counts[PSRTI_PHASE_SHED + 1] = { 0 };
    int first = 1;
    for (size_t i = 0; i < s->count; i++)
        if (s->job->tasks[i].role == role) counts[psrti_core_task(s->core, i)->phase]++;
    for (int phase = 0; phase <= PSRTI_PHASE_SHED; phase++) {
        if (!counts[phase]) continue;
        psrti_append(buf, size, pos, "%s%s %u %s", first ? (*pos ? " | " : "") : ",",
                     first ? role->name : "", counts[phase],
                     psrti_phase_name((psrti_phase_t)phase));
        first = 0;
    }
}

void psrti_state_line(const psrti_supervisor_t *s, char *buf, size_t size)
{
    size_t pos = 0;
    char line[LINE_MAX_LEN];
    unsigned elapsed = (unsigned)seconds_since(s->start_ns);
    *buf = '\0';
    psrti_append(buf, size, &pos, "%u:%02u:%02u", elapsed / 3600, elapsed / 60 % 60, elapsed % 60);
    for (size_t i = 0; i < s->job->role_count; i++)
        append_counts(s, &s->job->roles[i], buf, size, &pos);
    last_line(s, s->last_seat, line);
    if (*line) psrti_append(buf, size, &pos, " | %s: %s", s->seats[s->last_seat].task->name, line);
}

void psrti_state_tell(psrti_supervisor_t *s)
{
    char line[LINE_MAX_LEN];
    psrti_supervisor_tell(s, "job %s is %s, after %.1f s", psrti_record_id(s->record), job_state(s),
                          seconds_since(s->start_ns));
    for (size_t i = 0; i < s->count; i++) {
        const psrti_core_task_t *t = psrti_core_task(s->core, i);
        last_line(s, i, line);
        psrti_supervisor_tell(s, "%-16s %-8s on %s, pid %d, attempt %u, for %.1f s%s%s",
                              s->seats[i].task->name, psrti_phase_name(t->phase),
                              psrti_job_host_name(s->job, s->seats[i].task), s->seats[i].pid,
                              t->attempt, seconds_since(t->since_ns), *line ? "; " : "", line);
    }
}
