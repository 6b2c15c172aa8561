/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/core_state.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/end.h"

const char *psrti_phase_name(psrti_phase_t phase)
{
    static const char *const names[] = { "pending", "starting", "running", "ending",
                                         "done",    "failed",   "stopped", "shed" };
    return names[phase];
}

/* ---- state and actions ----------------------------------------------------------------------- */

void psrti_core_push(psrti_core_t *core, psrti_action_t action)
{
    if (core->queue_end == core->queue_capacity) {
        core->queue_capacity = PSRTI_MAX(2 * core->queue_capacity, 64);
        core->queue = psrti_xrealloc(core->queue, core->queue_capacity * sizeof *core->queue);
    }
    core->queue[core->queue_end++] = action;
}

int psrti_core_next(psrti_core_t *core, psrti_action_t *action_p)
{
    if (core->queue_start == core->queue_end) {
        core->queue_start = core->queue_end = 0;
        return 0;
    }
    *action_p = core->queue[core->queue_start++];
    return 1;
}

void psrti_core_set_phase(psrti_core_t *core, size_t task, psrti_phase_t phase)
{
    core->tasks[task].phase = phase;
    core->tasks[task].since_ns = core->now;
}

static const psrti_role_t *role_of(const psrti_core_t *core, size_t task)
{
    return core->job->tasks[task].role;
}

int psrti_core_is_ending(const psrti_core_t *core) { return core->cause || core->draining; }

static int has_process(const psrti_core_task_t *t)
{
    return t->phase >= PSRTI_PHASE_STARTING && t->phase <= PSRTI_PHASE_ENDING && !t->gone;
}

int psrti_core_has_ended(const psrti_core_task_t *t)
{
    return t->phase >= PSRTI_PHASE_ENDING && !t->again;
}

static int has_succeeded(const psrti_core_task_t *t)
{
    return (t->phase == PSRTI_PHASE_DONE || (t->phase == PSRTI_PHASE_ENDING && !t->again)) &&
           !psrti_end_failed(&t->end);
}

/* Coordinator and servers outlive those that use them. */
static int serves(const psrti_role_t *role)
{
    return role->kind == PSRTI_KIND_COORDINATOR || role->kind == PSRTI_KIND_SERVER;
}

static int users_ended(const psrti_core_t *core)
{
    for (size_t i = 0; i < core->count; i++)
        if (!serves(role_of(core, i)) && !psrti_core_has_ended(&core->tasks[i])) return 0;
    return 1;
}

/* ---- stop ------------------------------------------------------------------------------------ */

static void settle(psrti_core_t *core, size_t task);

static void stop_tasks(psrti_core_t *core, int users, int servers, psrti_stop_t how)
{
    for (size_t i = 0; i < core->count; i++) {
        if (!(serves(role_of(core, i)) ? servers : users) || !has_process(&core->tasks[i]))
            continue;
        psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_DO_STOP, .task = i, .how = how });
    }
}

/* What was to be started is not; also what the caller has not taken from the queue yet. */
static void drop_starts(psrti_core_t *core)
{
    size_t kept = core->queue_start;
    for (size_t i = core->queue_start; i < core->queue_end; i++) {
        if (core->queue[i].kind == PSRTI_DO_START)
            core->tasks[core->queue[i].task].phase = PSRTI_PHASE_PENDING;
        else
            core->queue[kept++] = core->queue[i];
    }
    core->queue_end = kept;
    for (size_t i = 0; i < core->count; i++) {
        if (core->tasks[i].phase == PSRTI_PHASE_PENDING)
            psrti_core_set_phase(core, i, PSRTI_PHASE_STOPPED);
        settle(core, i);
    }
}

static void set_step(psrti_core_t *core, psrti_step_t step, uint64_t after_ns)
{
    core->step = step;
    core->step_ns = core->now + after_ns;
}

static void check_finished(psrti_core_t *core)
{
    if (core->finished || !psrti_core_is_ending(core)) return;
    for (size_t i = 0; i < core->count; i++)
        if (has_process(&core->tasks[i])) return;
    core->finished = 1;
    core->step_ns = UINT64_MAX;
    psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_DO_FINISH });
}

/* Users first: what they do when asked to end (save, say goodbye) may need the servers. Those
 * follow when the users are gone, or after half of the grace time. A failed job has nothing left
 * to save. */
static void begin_stop(psrti_core_t *core, psrti_cause_t cause)
{
    if (core->cause || core->finished) return;
    core->cause = cause;
    core->stop_ns = core->now;
    drop_starts(core);
    int all = cause == PSRTI_CAUSE_TASK || cause == PSRTI_CAUSE_ERROR || users_ended(core);
    stop_tasks(core, 1, all, PSRTI_STOP_TERM);
    if (all)
        set_step(core, PSRTI_STEP_KILL, core->grace_ns);
    else
        set_step(core, PSRTI_STEP_ASK, core->grace_ns / 2);
}

/* What is restarted also after a success (TensorBoard) never ends by itself; without a coordinator
 * nobody tells the servers when all workers have finished with them. */
static int must_be_asked(const psrti_core_t *core, const psrti_role_t *role)
{
    if (serves(role)) return !core->has_coordinator;
    return role->restart.when == PSRTI_RESTART_ALWAYS;
}

/* Servers and coordinator of libpsrt leave by themselves when all workers have finished with them. */
static void begin_drain(psrti_core_t *core)
{
    core->draining = 1;
    drop_starts(core);
    for (size_t i = 0; i < core->count; i++) {
        if (!must_be_asked(core, role_of(core, i)) || !has_process(&core->tasks[i])) continue;
        core->tasks[i].asked = 1;
        psrti_core_push(
            core, (psrti_action_t){ .kind = PSRTI_DO_STOP, .task = i, .how = PSRTI_STOP_TERM });
    }
    set_step(core, PSRTI_STEP_ASK, core->grace_ns);
}

static void do_step(psrti_core_t *core)
{
    switch (core->step) {
    case PSRTI_STEP_ASK:
        if (!core->cause) psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_SAY_STRAGGLERS });
        stop_tasks(core, 1, 1, PSRTI_STOP_TERM);
        /* A stop has one grace time for all, a drain gives what did not leave another one. */
        set_step(core, PSRTI_STEP_KILL,
                 core->cause ? core->grace_ns - core->grace_ns / 2 : core->grace_ns);
        break;
    case PSRTI_STEP_KILL:
        stop_tasks(core, 1, 1, PSRTI_STOP_KILL);
        set_step(core, PSRTI_STEP_ABANDON, PSRTI_CORE_ABANDON_NS);
        break;
    case PSRTI_STEP_ABANDON:
        stop_tasks(core, 1, 1, PSRTI_STOP_ABANDON);
        set_step(core, PSRTI_STEP_GIVE_UP, PSRTI_CORE_GIVE_UP_NS);
        break;
    case PSRTI_STEP_GIVE_UP:
        core->finished = 1;
        core->step_ns = UINT64_MAX;
        psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_DO_GIVE_UP });
        break;
    }
}

/* ---- success --------------------------------------------------------------------------------- */

static int role_succeeded(const psrti_core_t *core, const psrti_role_t *role, int any)
{
    size_t succeeded = 0, open = 0;
    for (size_t i = 0; i < core->count; i++) {
        const psrti_core_task_t *t = &core->tasks[i];
        if (role_of(core, i) != role) continue;
        succeeded += (size_t)has_succeeded(t);
        open += !has_succeeded(t) && t->phase != PSRTI_PHASE_SHED && !t->shedding;
    }
    return any ? succeeded > 0 : !open;
}

/* Where no role decides, all that is no service does. */
static int job_succeeded(const psrti_core_t *core)
{
    for (size_t i = 0; i < core->job->role_count; i++) {
        const psrti_role_t *role = &core->job->roles[i];
        int decides = core->has_deciders ? role->success != PSRTI_SUCCESS_NONE : !serves(role);
        if (decides && !role_succeeded(core, role, role->success == PSRTI_SUCCESS_ANY)) return 0;
    }
    return 1;
}

/* After a failure that is final: of its role another one may still succeed. */
static int another_may_succeed(const psrti_core_t *core, size_t task)
{
    for (size_t i = 0; i < core->count; i++) {
        const psrti_core_task_t *t = &core->tasks[i];
        if (i != task && role_of(core, i) == role_of(core, task) &&
            (has_succeeded(t) || t->again || t->phase <= PSRTI_PHASE_RUNNING))
            return 1;
    }
    return 0;
}

/* ---- the end of a task ----------------------------------------------------------------------- */

static int code_restarts(const psrti_restart_t *restart, const psrti_end_t *end)
{
    int code = psrti_end_code(end) & 0xff;
    if (restart->codes_set) return restart->codes[code / 8] >> (code % 8) & 1;
    return code != 2 && code != 126 && code != 127;
}

static int is_fault_of_host(const psrti_end_t *end)
{
    return end->kind == PSRTI_END_HOST_LOST || end->kind == PSRTI_END_NOT_LAUNCHED;
}

int psrti_core_is_optional(const psrti_role_t *role)
{
    return role->kind == PSRTI_KIND_OTHER && role->success == PSRTI_SUCCESS_NONE;
}

/* A coordinator, which others know by its address, cannot. Where hosts come and go, what is elastic
 * does whatever its policy is. */
int psrti_core_may_follow(const psrti_core_t *core, const psrti_role_t *role)
{
    if (role->kind == PSRTI_KIND_COORDINATOR) return 0;
    return role->restart.when != PSRTI_RESTART_NEVER ||
           (core->job->discovers && role->min < role->max);
}

/* By the role's policy. A lost host is not the task's fault and uses nothing up. */
static int may_restart(const psrti_core_t *core, size_t task, const psrti_end_t *end)
{
    const psrti_role_t *role = role_of(core, task);
    const psrti_restart_t *restart = &role->restart;
    if (end->kind == PSRTI_END_NOT_LAUNCHED &&
        !psrti_core_has_other_host(core, core->tasks[task].host))
        return 0;
    if (is_fault_of_host(end)) return psrti_core_may_follow(core, role);
    if (restart->when == PSRTI_RESTART_NEVER) return 0;
    if (core->tasks[task].restarts >= restart->limit) return 0;
    if (!psrti_end_failed(end)) return restart->when == PSRTI_RESTART_ALWAYS;
    return code_restarts(restart, end);
}

static uint64_t backoff(const psrti_restart_t *restart, unsigned restarts)
{
    uint64_t max = PSRTI_MAX(restart->backoff_max_ns, restart->backoff_ns);
    uint64_t delay = restart->backoff_ns;
    for (unsigned i = 0; i < restarts && delay < max; i++)
        delay = delay > max / 2 ? max : 2 * delay;
    return delay;
}

static void plan_restart(psrti_core_t *core, size_t task)
{
    psrti_core_task_t *t = &core->tasks[task];
    t->again = 1;
    t->delay_ns = backoff(&role_of(core, task)->restart, t->restarts);
    if (!is_fault_of_host(&t->end)) t->restarts++;
    psrti_core_push(
        core, (psrti_action_t){ .kind = PSRTI_SAY_RESTART, .task = task, .delay_ns = t->delay_ns });
}

unsigned psrti_core_alive(const psrti_core_t *core, const psrti_role_t *role)
{
    unsigned alive = 0;
    for (size_t i = 0; i < core->count; i++)
        alive += role_of(core, i) == role && core->tasks[i].phase != PSRTI_PHASE_SHED &&
                 !core->tasks[i].shedding;
    return alive;
}

int psrti_core_shed(psrti_core_t *core, size_t task, int growable)
{
    const psrti_role_t *role = role_of(core, task);
    if (role->min >= role->max || psrti_core_alive(core, role) <= role->min) return 0;
    core->tasks[task].shedding = 1;
    core->tasks[task].growable = growable;
    psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_SAY_SHED,
                                            .task = task,
                                            .count = psrti_core_alive(core, role) });
    return 1;
}

void psrti_core_fail(psrti_core_t *core, size_t task)
{
    core->tasks[task].fatal = 1;
    begin_stop(core, PSRTI_CAUSE_TASK);
}

/* It failed and is not restarted. */
static void lose(psrti_core_t *core, size_t task)
{
    const psrti_role_t *role = role_of(core, task);
    psrti_core_task_t *t = &core->tasks[task];
    if (psrti_core_shed(core, task, is_fault_of_host(&t->end))) return;
    if (psrti_core_is_optional(role) ||
        (role->success == PSRTI_SUCCESS_ANY && another_may_succeed(core, task)))
        psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_SAY_GOES_ON, .task = task });
    else
        psrti_core_fail(core, task);
}

static void judge_end(psrti_core_t *core, size_t task)
{
    psrti_core_task_t *t = &core->tasks[task];
    int failed = psrti_end_failed(&t->end), again = may_restart(core, task, &t->end);
    if (core->cause) {
        t->after_stop = t->end.time_ns > core->stop_ns;
        t->fatal = failed && !again && !t->after_stop && !t->by_user;
        /* The rest of a graceful stop waited for the users. */
        if (core->step == PSRTI_STEP_ASK && users_ended(core)) core->step_ns = core->now;
    } else if (core->draining) {
        if (failed && core->step == PSRTI_STEP_ASK && !t->asked && !t->leaving)
            psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_SAY_AFTER_END, .task = task });
    } else if (t->by_user) {
        t->again = 1;
        t->delay_ns = 0;
    } else {
        if (failed) psrti_core_host_failed(core, task);
        if (again)
            plan_restart(core, task);
        else if (failed)
            lose(core, task);
        if (!psrti_core_is_ending(core) && job_succeeded(core)) begin_drain(core);
    }
}

/* Nothing of an attempt is left but perhaps output, for the end of which only a restart waits. */
static void settle(psrti_core_t *core, size_t task)
{
    psrti_core_task_t *t = &core->tasks[task];
    if (t->phase != PSRTI_PHASE_ENDING || !t->gone) return;
    if (t->again && !psrti_core_is_ending(core)) {
        if (t->output_open) return;
        t->not_before_ns = core->now + t->delay_ns;
        t->attempt++;
        t->again = 0;
        psrti_core_set_phase(core, task, PSRTI_PHASE_PENDING);
        return;
    }
    psrti_phase_t phase = !psrti_end_failed(&t->end)                ? PSRTI_PHASE_DONE
                          : t->after_stop || t->by_user || t->asked ? PSRTI_PHASE_STOPPED
                                                                    : PSRTI_PHASE_FAILED;
    if (t->shedding)
        psrti_core_set_shed(core, task);
    else
        psrti_core_set_phase(core, task, phase);
    t->again = t->shedding = 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

void psrti_core_go_on(psrti_core_t *core)
{
    if (core->ready && !psrti_core_is_ending(core)) psrti_core_place(core);
    if (!psrti_core_is_ending(core) && job_succeeded(core)) begin_drain(core);
    check_finished(core);
}

void psrti_core_ready(psrti_core_t *core, uint64_t now)
{
    core->now = now;
    core->ready = 1;
    psrti_core_go_on(core);
}

void psrti_core_started(psrti_core_t *core, uint64_t now, size_t task)
{
    core->now = now;
    core->tasks[task].ever_started = 1;
    if (core->tasks[task].phase == PSRTI_PHASE_STARTING)
        psrti_core_set_phase(core, task, PSRTI_PHASE_RUNNING);
}

void psrti_core_not_started(psrti_core_t *core, size_t task)
{
    core->tasks[task].output_open = 0;
    psrti_core_set_phase(core, task, PSRTI_PHASE_STOPPED);
}

void psrti_core_ended(psrti_core_t *core, uint64_t now, size_t task, const psrti_end_t *end)
{
    psrti_core_task_t *t = &core->tasks[task];
    if (!has_process(t) || t->phase == PSRTI_PHASE_ENDING) return;
    core->now = now;
    t->end = *end;
    if (t->leaving) t->end.kind = PSRTI_END_HOST_LOST, t->end.value = 1;
    t->ever_started = 1;
    psrti_core_set_phase(core, task, PSRTI_PHASE_ENDING);
    uint64_t healthy = role_of(core, task)->restart.healthy_ns;
    if (healthy && end->kind != PSRTI_END_NOT_LAUNCHED && end->time_ns >= t->start_ns + healthy) {
        t->restarts = 0;
        psrti_core_host_healthy(core, t->host);
    }
    if (end->kind == PSRTI_END_HOST_LOST) psrti_core_host_down(core, t->host);
    judge_end(core, task);
    psrti_core_go_on(core);
}

void psrti_core_gone(psrti_core_t *core, uint64_t now, size_t task)
{
    core->now = now;
    core->tasks[task].gone = 1;
    settle(core, task);
    psrti_core_go_on(core);
}

void psrti_core_closed(psrti_core_t *core, uint64_t now, size_t task)
{
    core->now = now;
    core->tasks[task].output_open = 0;
    settle(core, task);
    psrti_core_go_on(core);
}

static int all_started(const psrti_core_t *core)
{
    for (size_t i = 0; i < core->count; i++)
        if (!core->tasks[i].ever_started && core->tasks[i].phase != PSRTI_PHASE_SHED) return 0;
    return 1;
}

void psrti_core_tick(psrti_core_t *core, uint64_t now)
{
    core->now = now;
    if (now >= core->start_deadline_ns) {
        core->start_deadline_ns = UINT64_MAX;
        if (!psrti_core_is_ending(core) && !all_started(core)) begin_stop(core, PSRTI_CAUSE_START);
    }
    psrti_core_check_starts(core);
    if (now >= core->step_ns) do_step(core);
    psrti_core_go_on(core);
}

void psrti_core_stop(psrti_core_t *core, uint64_t now, psrti_cause_t cause)
{
    core->now = now;
    begin_stop(core, cause);
    psrti_core_go_on(core);
}

void psrti_core_kill(psrti_core_t *core, uint64_t now)
{
    core->now = now;
    begin_stop(core, PSRTI_CAUSE_USER);
    if (core->finished) return;
    stop_tasks(core, 1, 1, PSRTI_STOP_KILL);
    set_step(core, PSRTI_STEP_ABANDON, PSRTI_CORE_ABANDON_NS);
    psrti_core_go_on(core);
}

psrt_status_t psrti_core_restart(psrti_core_t *core, uint64_t now, size_t task, int elsewhere)
{
    psrti_core_task_t *t = &core->tasks[task];
    core->now = now;
    if (psrti_core_is_ending(core)) return psrti_fail(PSRT_ERR_TOO_LATE, "the job is ending");
    if (t->host == PSRTI_NO_HOST)
        return psrti_fail(PSRT_ERR_NOT_FOUND, "%s waits for its first host, and starts by itself",
                          core->job->tasks[task].name);
    if (elsewhere) t->avoid = t->host;
    t->restarts = 0;
    if (t->phase >= PSRTI_PHASE_DONE) {
        t->attempt += t->ever_started;
        psrti_core_set_phase(core, task, PSRTI_PHASE_PENDING);
    } else if (t->phase == PSRTI_PHASE_ENDING) {
        t->again = 1;
        t->shedding = 0;
    } else if (t->phase != PSRTI_PHASE_PENDING) {
        t->by_user = 1;
        psrti_core_push(
            core, (psrti_action_t){ .kind = PSRTI_DO_STOP, .task = task, .how = PSRTI_STOP_TERM });
    }
    t->not_before_ns = now;
    t->delay_ns = 0;
    psrti_core_go_on(core);
    return PSRT_OK;
}

/* ---- how things are -------------------------------------------------------------------------- */

uint64_t psrti_core_deadline(const psrti_core_t *core)
{
    uint64_t at = core->step_ns;
    if (psrti_core_is_ending(core)) return at;
    at = PSRTI_MIN(at, core->start_deadline_ns);
    at = PSRTI_MIN(at, psrti_core_start_deadline(core));
    return core->ready ? PSRTI_MIN(at, psrti_core_place_deadline(core)) : at;
}

const psrti_core_task_t *psrti_core_task(const psrti_core_t *core, size_t task)
{
    return &core->tasks[task];
}

psrti_cause_t psrti_core_cause(const psrti_core_t *core) { return core->cause; }

uint64_t psrti_core_stop_ns(const psrti_core_t *core) { return core->stop_ns; }

int psrti_core_draining(const psrti_core_t *core) { return core->draining; }

int psrti_core_failed_itself(const psrti_core_t *core, size_t task)
{
    const psrti_core_task_t *t = &core->tasks[task];
    return psrti_core_has_ended(t) && t->ever_started && psrti_end_failed(&t->end) && !t->by_user &&
           t->end.time_ns <= core->stop_ns;
}

int psrti_core_culprit(const psrti_core_t *core, size_t *task_p)
{
    const psrti_core_task_t *first = NULL;
    for (size_t i = 0; core->cause == PSRTI_CAUSE_TASK && i < core->count; i++) {
        const psrti_core_task_t *t = &core->tasks[i];
        if (!t->fatal || (first && t->end.time_ns >= first->end.time_ns)) continue;
        first = t;
        *task_p = i;
    }
    return first != NULL;
}

psrti_core_t *psrti_core_create(psrti_job_t *job, const psrti_core_params_t *params, uint64_t now)
{
    psrti_core_t *core = psrti_xcalloc(1, sizeof *core);
    *core = (psrti_core_t){ .job = job,
                            .params = *params,
                            .count = job->task_count,
                            .now = now,
                            .stop_ns = UINT64_MAX,
                            .step_ns = UINT64_MAX,
                            .start_deadline_ns = UINT64_MAX,
                            .grace_ns = job->grace_ns };
    if (params->start_timeout_ns) core->start_deadline_ns = now + params->start_timeout_ns;
    core->tasks = psrti_xcalloc(core->count, sizeof *core->tasks);
    for (size_t i = 0; i < job->role_count; i++) {
        const psrti_role_t *role = &job->roles[i];
        core->grace_ns = PSRTI_MAX(core->grace_ns, role->grace_ns);
        core->has_coordinator |= role->kind == PSRTI_KIND_COORDINATOR;
        core->has_deciders |= role->success != PSRTI_SUCCESS_NONE;
    }
    for (size_t i = 0; i < core->count; i++) {
        int waits = job->tasks[i].unplaced;
        core->tasks[i] = (psrti_core_task_t){
            .phase = waits ? PSRTI_PHASE_SHED : PSRTI_PHASE_PENDING,
            .growable = waits,
            .host = job->tasks[i].host,
            .avoid = UINT_MAX,
            .since_ns = now,
        };
    }
    core->host_count = PSRTI_MAX(job->host_count, 1);
    core->hosts =
        psrti_xcalloc(PSRTI_MAX(job->host_capacity, core->host_count), sizeof *core->hosts);
    for (size_t i = 0; i < core->host_count; i++)
        core->hosts[i] = (psrti_core_host_t){
            .named = 1, .up = 1, .came = 1, .cooldown_ns = params->cooldown_ns
        };
    return core;
}

void psrti_core_destroy(psrti_core_t *core)
{
    if (!core) return;
    free(core->queue);
    free(core->tasks);
    free(core->hosts);
    free(core);
}
