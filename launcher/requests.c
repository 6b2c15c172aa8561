/* SPDX-License-Identifier: Apache-2.0 */
/* What users ask of a running job: status, logs, attach, kill, restart, replace. */
#include <signal.h>
#include <string.h>

#include "launcher/supervisor.h"

static const char *text_of(const json_t *request, const char *name)
{
    const char *text = json_string_value(json_object_get(request, name));
    return text ? text : "";
}

/* "worker", "worker:1", or "" for all. */
static int is_chosen(const psrti_task_t *task, const char *choice)
{
    return !*choice || !strcmp(choice, task->name) || !strcmp(choice, task->role->name);
}

static psrt_status_t choose(const psrti_supervisor_t *s, const char *choice, char **tasks_p)
{
    size_t count = 0;
    char *tasks = psrti_xcalloc(s->count, 1);
    for (size_t i = 0; i < s->count; i++)
        count += (size_t)(tasks[i] = (char)is_chosen(s->seats[i].task, choice));
    *tasks_p = tasks;
    if (count) return PSRT_OK;
    free(tasks);
    return psrti_fail(PSRT_ERR_NOT_FOUND, "no role or task %s in this job", choice);
}

static void send_names(const psrti_supervisor_t *s, psrti_watcher_t *watcher)
{
    json_t *names = json_array();
    for (size_t i = 0; i < s->count; i++)
        json_array_append_new(names, json_string(s->seats[i].task->name));
    psrti_watcher_answer(watcher, json_pack("{s:o}", "names", names));
}

static psrt_status_t ask_logs(const psrti_supervisor_t *s, psrti_watcher_t *watcher,
                              const json_t *request)
{
    char *tasks;
    psrt_status_t st = choose(s, text_of(request, "tasks"), &tasks);
    if (st) return st;
    send_names(s, watcher);
    for (size_t i = 0; i < s->count; i++)
        for (int fd = 1; tasks[i] && fd <= 2; fd++) {
            const psrti_tail_t *tail = &s->seats[i].tails[fd - 1];
            if (tail->len) psrti_watcher_output(watcher, i, fd, tail->data, tail->len);
        }
    if (json_is_true(json_object_get(request, "follow")))
        psrti_watcher_follow(watcher, tasks, 0);
    else
        free(tasks);
    return PSRT_OK;
}

static psrt_status_t ask_attach(const psrti_supervisor_t *s, psrti_watcher_t *watcher)
{
    char *tasks = psrti_xcalloc(s->count, 1);
    for (size_t i = 0; i < s->count; i++)
        tasks[i] = !s->seats[i].hidden;
    send_names(s, watcher);
    psrti_watcher_follow(watcher, tasks, 1);
    return PSRT_OK;
}

static psrt_status_t ask_kill(psrti_supervisor_t *s, const json_t *request)
{
    int sig = (int)json_integer_value(json_object_get(request, "signal"));
    switch (sig) {
    case SIGUSR1:
    case SIGUSR2: psrti_supervisor_forward(s, sig); return PSRT_OK;
    case SIGKILL:
        psrti_supervisor_stop(s, sig, 1);
        psrti_supervisor_kill(s);
        return PSRT_OK;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
        psrti_supervisor_note(s, "psrt-launch kill: stopping the job");
        psrti_supervisor_stop(s, sig, 1);
        return PSRT_OK;
    default:
        return psrti_fail(PSRT_ERR_INVALID,
                          "signal %d: not one of INT, TERM, HUP, KILL, USR1, USR2", sig);
    }
}

static psrt_status_t ask_restart(psrti_supervisor_t *s, const json_t *request, int elsewhere)
{
    const char *name = text_of(request, "tasks");
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(name, s->seats[i].task->name)) continue;
        psrti_supervisor_note(s, "%s is %s, at the user's wish", name,
                              elsewhere ? "replaced" : "restarted");
        psrt_status_t st = psrti_core_restart(s->core, psrti_now_ns(), i, elsewhere);
        psrti_supervisor_act(s);
        return st;
    }
    return psrti_fail(PSRT_ERR_NOT_FOUND, "no task %s in this job", name);
}

static psrt_status_t on_request(void *arg, psrti_watcher_t *watcher, const json_t *request)
{
    psrti_supervisor_t *s = arg;
    const char *verb = text_of(request, "verb");
    if (!strcmp(verb, "status")) {
        psrti_watcher_answer(watcher, psrti_state_json(s));
        return PSRT_OK;
    }
    if (!strcmp(verb, "logs")) return ask_logs(s, watcher, request);
    if (!strcmp(verb, "attach")) return ask_attach(s, watcher);
    if (!strcmp(verb, "kill")) return ask_kill(s, request);
    if (!strcmp(verb, "restart")) return ask_restart(s, request, 0);
    if (!strcmp(verb, "replace")) return ask_restart(s, request, 1);
    return psrti_fail(PSRT_ERR_INVALID, "unknown request %s", verb);
}

const psrti_control_ops_t psrti_requests = { .request = on_request };
