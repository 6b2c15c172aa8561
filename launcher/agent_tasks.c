/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of this host: the backend for one machine runs them, what it tells goes to the
 * controller. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/agent.h"
#include "launcher/hostenv.h"

/* More than this on its way to the controller, and tasks wait until it has left. */
#define BACKLOG_HIGH (1u << 20)

static void begin(psrti_wire_out_t *w, uint8_t type, const psrti_task_t *task)
{
    psrti_wire_put_u8(w, type);
    psrti_wire_put_u32(w, (uint32_t)task->id);
}

static psrti_task_t *read_id(psrti_agent_tasks_t *t, psrti_wire_in_t *r)
{
    uint32_t id = psrti_wire_get_u32(r);
    r->bad |= id >= t->job.task_count || !t->backend;
    return r->bad ? NULL : &t->job.tasks[id];
}

/* ---- what the backend tells ------------------------------------------------------------------ */

static void on_ready(void *arg)
{
    psrti_agent_t *agent = arg;
    const psrti_job_t *job = &agent->tasks.job;
    psrti_wire_out_t w = { 0 };
    psrti_wire_put_u8(&w, PSRTI_AGENT_OPENED);
    psrti_wire_put_text(&w, job->dir);
    for (size_t i = 0; i < job->task_count; i++) {
        if (job->tasks[i].host) continue;
        psrti_wire_put_u32(&w, (uint32_t)i);
        for (unsigned k = 0; k < job->tasks[i].role->ports; k++)
            psrti_wire_put_u32(&w, job->tasks[i].ports[k]);
    }
    psrti_agent_send(agent, &w);
}

static void on_failed(void *arg, const char *text)
{
    psrti_wire_out_t w = { 0 };
    psrti_wire_put_u8(&w, PSRTI_AGENT_FAILED);
    psrti_wire_put_text(&w, text);
    psrti_agent_send(arg, &w);
}

static void on_started(void *arg, const psrti_task_t *task, const char *host, int pid,
                       const char *bound)
{
    psrti_wire_out_t w = { 0 };
    begin(&w, PSRTI_AGENT_STARTED, task);
    psrti_wire_put_text(&w, host);
    psrti_wire_put_u32(&w, (uint32_t)pid);
    psrti_wire_put_text(&w, bound);
    psrti_agent_send(arg, &w);
}

static void apply_pause(psrti_agent_tasks_t *t)
{
    if (t->backend) psrti_backend_local.pause(t->backend, t->asked_pause || t->behind);
}

static void on_output(void *arg, const psrti_task_t *task, int fd, const char *data, size_t len)
{
    psrti_agent_t *agent = arg;
    psrti_wire_out_t w = { 0 };
    begin(&w, PSRTI_AGENT_OUTPUT, task);
    psrti_wire_put_u8(&w, (uint8_t)fd);
    psrti_wire_put_bytes(&w, data, len);
    psrti_agent_send(agent, &w);
    if (agent->tasks.behind || !agent->channel ||
        psrti_channel_backlog(agent->channel) < BACKLOG_HIGH)
        return;
    agent->tasks.behind = 1;
    apply_pause(&agent->tasks);
}

static void on_ended(void *arg, const psrti_task_t *task, const psrti_end_t *end)
{
    psrti_wire_out_t w = { 0 };
    begin(&w, PSRTI_AGENT_ENDED, task);
    psrti_wire_put_u32(&w, end->kind);
    psrti_wire_put_u32(&w, (uint32_t)end->value);
    psrti_wire_put_u64(&w, end->time_ns);
    psrti_agent_send(arg, &w);
}

static void on_gone(void *arg, const psrti_task_t *task)
{
    psrti_wire_out_t w = { 0 };
    begin(&w, PSRTI_AGENT_GONE, task);
    psrti_agent_send(arg, &w);
}

/* ---- what the controller wants --------------------------------------------------------------- */

/* One role for each task: all that the backend asks of it. */
static void read_task(psrti_wire_in_t *r, psrti_agent_tasks_t *t)
{
    static char *const a_command[] = { (char *)"command", NULL };
    psrti_job_t *job = &t->job;
    size_t i = job->task_count;
    const char *name = psrti_wire_get_text(r);
    uint32_t kind = psrti_wire_get_u32(r);
    int runs_psrtd = psrti_wire_get_u8(r);
    uint32_t ports = psrti_wire_get_u32(r);
    int is_here = psrti_wire_get_u8(r);
    r->bad |= !name || kind > PSRTI_KIND_OTHER || ports > PSRTI_JOB_PORTS_MAX;
    if (r->bad) return;
    psrti_role_t *role = &job->roles[job->role_count++];
    *role = (psrti_role_t){ .name = psrti_xstrdup(name), .kind = (psrti_kind_t)kind, .count = 1 };
    if (!runs_psrtd) role->argv = psrti_argv_copy(a_command);
    role->ports = ports;
    psrti_task_t *task = &job->tasks[job->task_count++];
    *task = (psrti_task_t){ .role = role, .id = i, .host = is_here ? 0 : PSRTI_HOST_ELSEWHERE };
    snprintf(task->name, sizeof task->name, "%s", name);
    task->ports = psrti_xcalloc(ports, sizeof *task->ports);
}

static int read_tasks(psrti_agent_t *agent, psrti_wire_in_t *r)
{
    psrti_agent_tasks_t *t = &agent->tasks;
    psrti_job_t *job = &t->job;
    const char *address = psrti_wire_get_text(r);
    uint32_t count = psrti_wire_get_u32(r);
    if (!address || count > (size_t)(r->end - r->at)) return 0;
    psrti_job_init(job);
    job->key = &agent->bootstrap.key;
    job->hosts = psrti_xcalloc(1, sizeof *job->hosts);
    job->host_count = 1;
    psrti_job_set(&job->hosts[0].address, address);
    job->roles = psrti_xcalloc(count, sizeof *job->roles);
    job->tasks = psrti_xcalloc(count, sizeof *job->tasks);
    for (uint32_t i = 0; i < count && !r->bad; i++)
        read_task(r, t);
    return psrti_wire_is_done(r);
}

void psrti_agent_tasks_open(psrti_agent_t *agent, psrti_wire_in_t *r)
{
    const psrti_backend_events_t events = { .ready = on_ready,
                                            .failed = on_failed,
                                            .started = on_started,
                                            .output = on_output,
                                            .ended = on_ended,
                                            .gone = on_gone,
                                            .arg = agent };
    psrti_agent_tasks_t *t = &agent->tasks;
    if (t->job.tasks || !read_tasks(agent, r)) {
        r->bad = 1;
        return;
    }
    if (psrti_backend_local.open(&agent->loop, &t->job, &events, &t->backend))
        on_failed(agent, psrt_last_error());
}

/* That it could not be started is an end like others. */
static void report_no_start(psrti_agent_t *agent, const psrti_task_t *task)
{
    const psrti_end_t end = { .kind = PSRTI_END_CANNOT_RUN,
                              .value = errno,
                              .time_ns = psrti_now_ns() };
    on_output(agent, task, 1, NULL, 0);
    on_output(agent, task, 2, NULL, 0);
    on_ended(agent, task, &end);
    on_gone(agent, task);
}

void psrti_agent_tasks_start(psrti_agent_t *agent, psrti_wire_in_t *r)
{
    psrti_task_t *task = read_id(&agent->tasks, r);
    if (!task) return;
    task->host = 0; /* it may have come from elsewhere */
    task->attempt = psrti_wire_get_u32(r);
    for (unsigned i = 0; i < task->role->ports; i++)
        task->ports[i] = (uint16_t)psrti_wire_get_u32(r);
    psrti_launch_t launch = { .argv = psrti_wire_get_texts(r),
                              .env.entries = psrti_wire_get_texts(r) };
    const char *directory = psrti_wire_get_text(r);
    launch.grace_ns = psrti_wire_get_u64(r);
    launch.virtualenv = psrti_wire_get_u8(r);
    launch.listen = psrti_wire_get_u8(r);
    uint8_t bind = psrti_wire_get_u8(r);
    launch.bind_part = psrti_wire_get_u32(r);
    launch.bind_parts = psrti_wire_get_u32(r);
    while (launch.env.entries[launch.env.count])
        launch.env.count++;
    launch.env.capacity = launch.env.count + 1;
    psrti_hostenv_add(&launch.env);
    launch.directory = directory ? psrti_xstrdup(directory) : NULL;
    r->bad |= !psrti_wire_is_done(r) || !launch.argv[0] || bind > PSRTI_BIND_NUMA ||
              (bind && launch.bind_part >= launch.bind_parts);
    launch.bind = (psrti_bind_t)bind;
    if (!r->bad && psrti_backend_local.start(agent->tasks.backend, task, &launch))
        report_no_start(agent, task);
    psrti_launch_clear(&launch);
}

void psrti_agent_tasks_stop(psrti_agent_t *agent, psrti_wire_in_t *r)
{
    const psrti_task_t *task = read_id(&agent->tasks, r);
    uint8_t how = psrti_wire_get_u8(r);
    r->bad |= how > PSRTI_STOP_ABANDON;
    if (!r->bad) psrti_backend_local.stop(agent->tasks.backend, task, (psrti_stop_t)how);
}

void psrti_agent_tasks_signal(psrti_agent_t *agent, psrti_wire_in_t *r)
{
    const psrti_task_t *task = read_id(&agent->tasks, r);
    uint32_t sig = psrti_wire_get_u32(r);
    if (!r->bad) psrti_backend_local.signal(agent->tasks.backend, task, (int)sig);
}

void psrti_agent_tasks_pause(psrti_agent_t *agent, int paused)
{
    agent->tasks.asked_pause = paused;
    apply_pause(&agent->tasks);
}

void psrti_agent_tasks_drained(psrti_agent_t *agent)
{
    if (!agent->tasks.behind) return;
    agent->tasks.behind = 0;
    apply_pause(&agent->tasks);
}

void psrti_agent_tasks_close(psrti_agent_t *agent)
{
    if (agent->tasks.backend) psrti_backend_local.close(agent->tasks.backend);
}

void psrti_agent_tasks_release(psrti_agent_t *agent)
{
    if (agent->tasks.backend) psrti_backend_local.release(agent->tasks.backend);
    psrti_job_release(&agent->tasks.job);
}
