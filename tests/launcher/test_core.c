/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's decisions, in virtual time. */
#include "launcher/core.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "support/test.h"

#define S PSRTI_NS_PER_S
#define MS PSRTI_NS_PER_MS
#define TASKS_MAX 16

enum { COORDINATOR, SERVER, WORKER, OTHER, ROLES };

/* A job of a coordinator, servers, workers and another task on some hosts. */
typedef struct bench {
    psrti_job_t job;
    psrti_role_t roles[ROLES];
    psrti_task_t tasks[TASKS_MAX];
    psrti_host_t hosts[3];
    psrti_core_t *core;
    uint64_t now;
    int running[TASKS_MAX]; /* has a process */
    unsigned starts[TASKS_MAX];
    int finished, gave_up;
    size_t said[16];     /* by kind */
    uint64_t last_delay; /* of SAY_RESTART */
} bench_t;

static void add_role(bench_t *b, int which, psrti_kind_t kind, unsigned count)
{
    static char *const names[] = { (char *)"coordinator", (char *)"server", (char *)"worker",
                                   (char *)"tensorboard" };
    b->roles[which] = (psrti_role_t){ .name = names[which],
                                      .kind = kind,
                                      .count = count,
                                      .min = count,
                                      .max = count,
                                      .success = kind == PSRTI_KIND_WORKER ? PSRTI_SUCCESS_ALL
                                                                           : PSRTI_SUCCESS_NONE };
    for (unsigned i = 0; i < count; i++) {
        psrti_task_t *task = &b->tasks[b->job.task_count];
        *task = (psrti_task_t){ .role = &b->roles[which], .index = i, .id = b->job.task_count++ };
    }
}

static void setup(bench_t *b, unsigned servers, unsigned workers, unsigned others)
{
    *b = (bench_t){ .now = 1000 * S };
    b->job = (psrti_job_t){ .roles = b->roles,
                            .role_count = ROLES,
                            .hosts = b->hosts,
                            .host_count = 1,
                            .tasks = b->tasks,
                            .grace_ns = 4 * S };
    add_role(b, COORDINATOR, PSRTI_KIND_COORDINATOR, 1);
    add_role(b, SERVER, PSRTI_KIND_SERVER, servers);
    add_role(b, WORKER, PSRTI_KIND_WORKER, workers);
    add_role(b, OTHER, PSRTI_KIND_OTHER, others);
}

static void restarts(bench_t *b, int role, unsigned limit)
{
    b->roles[role].restart = (psrti_restart_t){ .when = PSRTI_RESTART_ON_FAILURE,
                                                .limit = limit,
                                                .backoff_ns = 100 * MS,
                                                .backoff_max_ns = 1 * S,
                                                .healthy_ns = 60 * S };
}

static size_t task_of(const bench_t *b, int role, unsigned index)
{
    for (size_t i = 0; i < b->job.task_count; i++)
        if (b->tasks[i].role == &b->roles[role] && b->tasks[i].index == index) return i;
    cr_assert_fail("no such task");
    return 0;
}

static void act(bench_t *b)
{
    psrti_action_t action;
    while (psrti_core_next(b->core, &action)) {
        b->said[action.kind]++;
        if (action.kind == PSRTI_DO_START) {
            cr_assert(!b->running[action.task], "task %zu runs twice", action.task);
            cr_assert(!b->finished);
            b->running[action.task] = 1;
            b->starts[action.task]++;
            psrti_core_started(b->core, b->now, action.task);
        } else if (action.kind == PSRTI_SAY_RESTART) {
            b->last_delay = action.delay_ns;
        } else if (action.kind == PSRTI_DO_FINISH) {
            for (size_t i = 0; i < b->job.task_count; i++)
                cr_assert(!b->running[i]);
            b->finished++;
        } else if (action.kind == PSRTI_DO_GIVE_UP) {
            b->gave_up++;
        }
    }
}

static void begin(bench_t *b)
{
    psrti_core_params_t params = PSRTI_CORE_PARAMS;
    b->core = psrti_core_create(&b->job, &params, b->now);
    psrti_core_ready(b->core, b->now);
    act(b);
}

static void end_as(bench_t *b, size_t task, psrti_end_kind_t kind, int value)
{
    psrti_end_t end = { .kind = kind, .value = value, .time_ns = b->now };
    psrti_core_ended(b->core, b->now, task, &end);
    act(b);
    b->running[task] = 0;
    psrti_core_gone(b->core, b->now, task);
    act(b);
    psrti_core_closed(b->core, b->now, task);
    act(b);
}

static void exits(bench_t *b, int role, unsigned index, int code)
{
    end_as(b, task_of(b, role, index), PSRTI_END_EXITED, code);
}

static void pass(bench_t *b, uint64_t ns)
{
    uint64_t until = b->now + ns;
    for (uint64_t at; (at = psrti_core_deadline(b->core)) <= until;) {
        b->now = PSRTI_MAX(b->now, at);
        psrti_core_tick(b->core, b->now);
        act(b);
    }
    b->now = until;
}

static psrti_phase_t phase_of(const bench_t *b, int role, unsigned index)
{
    return psrti_core_task(b->core, task_of(b, role, index))->phase;
}

static void end_rest(bench_t *b)
{
    for (size_t i = 0; i < b->job.task_count; i++)
        if (b->running[i]) end_as(b, i, PSRTI_END_SIGNALED, SIGTERM);
}

static psrti_cause_t over(bench_t *b)
{
    end_rest(b);
    cr_assert_eq(b->finished, 1);
    psrti_cause_t cause = psrti_core_cause(b->core);
    psrti_core_destroy(b->core);
    return cause;
}

/* ---- success and failure --------------------------------------------------------------------- */

Test(core, success_drains_servers)
{
    bench_t b;
    setup(&b, 2, 2, 0);
    begin(&b);
    exits(&b, WORKER, 0, 0);
    cr_assert(!psrti_core_draining(b.core));
    exits(&b, SERVER, 1, 0); /* was told that all are done with it */
    exits(&b, WORKER, 1, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(b.said[PSRTI_DO_STOP], 0); /* they may leave by themselves */
    pass(&b, 4 * S);
    cr_assert_eq(b.said[PSRTI_SAY_STRAGGLERS], 1);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 2);
    pass(&b, 4 * S); /* killed */
    cr_assert_eq(b.said[PSRTI_DO_STOP], 4);
    cr_assert_eq(over(&b), PSRTI_CAUSE_NONE);
}

Test(core, without_a_coordinator_servers_are_asked_at_once)
{
    bench_t b;
    setup(&b, 2, 1, 1);
    b.job.tasks = b.tasks + 1; /* all but the coordinator */
    memmove(b.tasks, b.tasks + 1, sizeof b.tasks - sizeof *b.tasks);
    b.job.tasks = b.tasks;
    b.job.task_count--;
    b.job.roles = b.roles + 1;
    b.job.role_count--;
    for (size_t i = 0; i < b.job.task_count; i++)
        b.tasks[i].id = i;
    begin(&b);
    exits(&b, WORKER, 0, 0);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 2); /* not tensorboard, which has its grace time */
    cr_assert_eq(over(&b), PSRTI_CAUSE_NONE);
}

Test(core, the_earliest_failure_is_the_cause)
{
    bench_t b;
    setup(&b, 1, 3, 0);
    begin(&b);
    b.now += 5 * S;
    exits(&b, WORKER, 2, 3);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_TASK);
    /* Seen later, but it ended before. */
    psrti_end_t earlier = { .kind = PSRTI_END_EXITED, .value = 7, .time_ns = b.now - S };
    size_t first = task_of(&b, WORKER, 0), culprit = 99;
    psrti_core_ended(b.core, b.now + MS, first, &earlier);
    b.running[first] = 0;
    psrti_core_gone(b.core, b.now + MS, first);
    act(&b);
    b.now += S;
    exits(&b, WORKER, 1, 9); /* because it was asked to end */
    cr_assert(psrti_core_culprit(b.core, &culprit));
    cr_assert_eq(culprit, first);
    cr_assert(psrti_core_failed_itself(b.core, task_of(&b, WORKER, 2)));
    cr_assert(!psrti_core_failed_itself(b.core, task_of(&b, WORKER, 1)));
    cr_assert_eq(phase_of(&b, WORKER, 1), PSRTI_PHASE_STOPPED);
    cr_assert_eq(over(&b), PSRTI_CAUSE_TASK);
}

Test(core, any_needs_one)
{
    bench_t b;
    setup(&b, 0, 3, 0);
    b.roles[WORKER].success = PSRTI_SUCCESS_ANY;
    begin(&b);
    exits(&b, WORKER, 0, 1); /* the others may still */
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    cr_assert_eq(b.said[PSRTI_SAY_GOES_ON], 1);
    exits(&b, WORKER, 2, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(over(&b), PSRTI_CAUSE_NONE);

    setup(&b, 0, 2, 0);
    b.roles[WORKER].success = PSRTI_SUCCESS_ANY;
    begin(&b);
    exits(&b, WORKER, 0, 1);
    exits(&b, WORKER, 1, 1);
    cr_assert_eq(over(&b), PSRTI_CAUSE_TASK);
}

Test(core, only_the_chief_decides)
{
    bench_t b;
    setup(&b, 1, 2, 1);
    b.roles[WORKER].success = PSRTI_SUCCESS_NONE;
    b.roles[OTHER].success = PSRTI_SUCCESS_ALL; /* the chief */
    begin(&b);
    exits(&b, WORKER, 0, 0);
    exits(&b, WORKER, 1, 0);
    cr_assert(!psrti_core_draining(b.core));
    exits(&b, OTHER, 0, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(over(&b), PSRTI_CAUSE_NONE);
}

Test(core, failures_of_what_nothing_depends_on)
{
    bench_t b;
    setup(&b, 1, 1, 1);
    begin(&b);
    exits(&b, OTHER, 0, 1);
    cr_assert_eq(b.said[PSRTI_SAY_GOES_ON], 1);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    exits(&b, SERVER, 0, 1);
    cr_assert_eq(over(&b), PSRTI_CAUSE_TASK);
}

Test(core, where_no_role_decides_all_do)
{
    bench_t b;
    setup(&b, 1, 0, 1);
    b.roles[WORKER].success = PSRTI_SUCCESS_NONE;
    begin(&b);
    cr_assert(!psrti_core_draining(b.core));
    exits(&b, OTHER, 0, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(over(&b), PSRTI_CAUSE_NONE);
}

/* ---- restarts -------------------------------------------------------------------------------- */

Test(core, restarts_back_off_up_to_the_limit)
{
    bench_t b;
    setup(&b, 0, 1, 0);
    restarts(&b, WORKER, 5);
    begin(&b);
    static const uint64_t delays[] = { 100 * MS, 200 * MS, 400 * MS, 800 * MS, 1 * S };
    for (size_t i = 0; i < 5; i++) {
        exits(&b, WORKER, 0, 1);
        cr_assert_eq(b.last_delay, delays[i]);
        cr_assert_eq(phase_of(&b, WORKER, 0), PSRTI_PHASE_PENDING);
        pass(&b, delays[i] - 1);
        cr_assert_eq(b.starts[1], i + 1);
        pass(&b, 1);
        cr_assert_eq(b.starts[1], i + 2);
        cr_assert_eq(psrti_core_task(b.core, 1)->attempt, i + 1);
    }
    exits(&b, WORKER, 0, 1);
    cr_assert_eq(b.starts[1], 6);
    cr_assert_eq(over(&b), PSRTI_CAUSE_TASK);
}

Test(core, health_resets_the_count)
{
    bench_t b;
    setup(&b, 0, 1, 0);
    restarts(&b, WORKER, 1);
    begin(&b);
    for (int i = 0; i < 4; i++) {
        pass(&b, 60 * S);
        exits(&b, WORKER, 0, 1);
        cr_assert_eq(b.last_delay, 100 * MS);
        pass(&b, S);
    }
    exits(&b, WORKER, 0, 1); /* after less than a minute */
    cr_assert_eq(over(&b), PSRTI_CAUSE_TASK);
}

Test(core, classes_of_codes)
{
    static const struct {
        psrti_end_kind_t kind;
        int value, restarted;
    } rows[] = {
        { PSRTI_END_EXITED, 1, 1 },     { PSRTI_END_EXITED, 2, 0 },
        { PSRTI_END_EXITED, 0, 0 },     { PSRTI_END_SIGNALED, SIGKILL, 1 },
        { PSRTI_END_CANNOT_RUN, 2, 0 }, { PSRTI_END_CANNOT_RUN, 13, 0 },
        { PSRTI_END_LOST, 9, 1 },
    };
    for (size_t i = 0; i < PSRTI_COUNT(rows); i++) {
        bench_t b;
        setup(&b, 0, 2, 0);
        restarts(&b, WORKER, 1);
        begin(&b);
        end_as(&b, task_of(&b, WORKER, 0), rows[i].kind, rows[i].value);
        cr_assert_eq(b.said[PSRTI_SAY_RESTART], (size_t)rows[i].restarted, "row %zu", i);
        end_rest(&b);
        psrti_core_destroy(b.core);
    }
    for (int code = 41; code < 44; code++) { /* only 42 */
        bench_t b;
        setup(&b, 0, 1, 0);
        restarts(&b, WORKER, 1);
        b.roles[WORKER].restart.codes_set = 1;
        b.roles[WORKER].restart.codes[42 / 8] = 1 << 42 % 8;
        begin(&b);
        exits(&b, WORKER, 0, code);
        cr_assert_eq(b.said[PSRTI_SAY_RESTART], code == 42);
        psrti_core_destroy(b.core);
    }
}

Test(core, a_restart_waits_for_processes_and_output)
{
    bench_t b;
    setup(&b, 0, 1, 0);
    restarts(&b, WORKER, 1);
    begin(&b);
    psrti_end_t end = { .kind = PSRTI_END_EXITED, .value = 1, .time_ns = b.now };
    psrti_core_ended(b.core, b.now, 1, &end);
    act(&b);
    pass(&b, 10 * S);
    cr_assert_eq(b.starts[1], 1);
    b.running[1] = 0;
    psrti_core_gone(b.core, b.now, 1);
    act(&b);
    pass(&b, 10 * S);
    cr_assert_eq(b.starts[1], 1);
    psrti_core_closed(b.core, b.now, 1);
    act(&b);
    pass(&b, S);
    cr_assert_eq(b.starts[1], 2);
    cr_assert(!b.finished);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    act(&b);
    cr_assert_eq(over(&b), PSRTI_CAUSE_USER);
}

Test(core, always_restarts_success_too)
{
    bench_t b;
    setup(&b, 0, 1, 1);
    restarts(&b, OTHER, 2);
    b.roles[OTHER].restart.when = PSRTI_RESTART_ALWAYS;
    begin(&b);
    exits(&b, OTHER, 0, 0);
    pass(&b, S);
    cr_assert_eq(b.starts[task_of(&b, OTHER, 0)], 2);
    exits(&b, WORKER, 0, 0);
    cr_assert(psrti_core_draining(b.core));
    exits(&b, OTHER, 0, 0); /* no more */
    pass(&b, S);
    cr_assert_eq(b.starts[task_of(&b, OTHER, 0)], 2);
    cr_assert_eq(over(&b), PSRTI_CAUSE_NONE);
}

Test(core, the_user_restarts)
{
    bench_t b;
    setup(&b, 1, 2, 0);
    begin(&b);
    size_t task = task_of(&b, WORKER, 0);
    cr_assert_eq(psrti_core_restart(b.core, b.now, task, 0), PSRT_OK);
    act(&b);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 1);
    exits(&b, WORKER, 0, 143); /* policy NEVER, and not counted */
    cr_assert_eq(b.starts[task], 2);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    exits(&b, WORKER, 0, 0); /* one that is over, too */
    cr_assert_eq(psrti_core_restart(b.core, b.now, task, 0), PSRT_OK);
    act(&b);
    cr_assert_eq(b.starts[task], 3);
    exits(&b, WORKER, 1, 0);
    cr_assert(!psrti_core_draining(b.core));
    exits(&b, WORKER, 0, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(psrti_core_restart(b.core, b.now, task, 0), PSRT_ERR_TOO_LATE);
    cr_assert_eq(over(&b), PSRTI_CAUSE_NONE);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static void on_hosts(bench_t *b, unsigned slots)
{
    b->job.host_count = 3;
    for (int i = 0; i < 3; i++)
        b->hosts[i].slots = slots;
    for (size_t i = 0; i < b->job.task_count; i++) /* coordinator on the first */
        b->tasks[i].host = (unsigned)(b->tasks[i].role == &b->roles[WORKER] ? i % 3 : 0);
}

static void lose_host(bench_t *b, unsigned host)
{
    psrti_core_host_lost(b->core, b->now, host);
    act(b);
    for (size_t i = 0; i < b->job.task_count; i++)
        if (b->running[i] && psrti_core_task(b->core, i)->host == host)
            end_as(b, i, PSRTI_END_HOST_LOST, 0);
}

Test(core, a_lost_hosts_tasks_go_elsewhere_uncounted)
{
    bench_t b;
    setup(&b, 0, 3, 0); /* workers are tasks 1, 2, 3 on hosts 1, 2, 0 */
    on_hosts(&b, 0);
    restarts(&b, WORKER, 1);
    begin(&b);
    lose_host(&b, 1);
    pass(&b, S);
    cr_assert_eq(b.starts[1], 2);
    cr_assert_neq(psrti_core_task(b.core, 1)->host, 1);
    cr_assert_eq(psrti_core_task(b.core, 1)->restarts, 0);
    exits(&b, WORKER, 0, 1); /* the limit of 1 is still there */
    pass(&b, S);
    cr_assert_eq(b.starts[1], 3);
    exits(&b, WORKER, 0, 1);
    cr_assert_eq(over(&b), PSRTI_CAUSE_TASK);
}

Test(core, a_lost_host_ends_a_job_that_may_not_restart)
{
    bench_t b;
    setup(&b, 0, 3, 0);
    on_hosts(&b, 0);
    begin(&b);
    lose_host(&b, 2);
    size_t culprit = 0;
    cr_assert(psrti_core_culprit(b.core, &culprit));
    cr_assert_eq(culprit, 2);
    cr_assert_eq(psrti_core_task(b.core, 2)->end.kind, PSRTI_END_HOST_LOST);
    cr_assert_eq(over(&b), PSRTI_CAUSE_TASK);
}

Test(core, cool_down_doubles)
{
    bench_t b;
    setup(&b, 0, 2, 0);
    on_hosts(&b, 1);
    restarts(&b, WORKER, 1);
    b.tasks[2].host = 0; /* the other host is full */
    b.job.host_count = 2;
    begin(&b);
    /* Reaching it begins the next one, in case that fails. */
    static const uint64_t cooldowns[] = { 10 * S, 40 * S };
    for (size_t i = 0; i < 2; i++) {
        lose_host(&b, 1);
        pass(&b, cooldowns[i] - 1);
        cr_assert_eq(b.said[PSRTI_DO_REACH], i);
        pass(&b, 1);
        cr_assert_eq(b.said[PSRTI_DO_REACH], i + 1);
        cr_assert_eq(b.starts[1], i + 1);
        psrti_core_host_up(b.core, b.now, 1);
        act(&b);
        cr_assert_eq(b.starts[1], i + 2);
    }
    lose_host(&b, 1); /* and never comes back */
    pass(&b, 59 * S);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    pass(&b, 2 * S);
    cr_assert_eq(over(&b), PSRTI_CAUSE_TASK);
}

Test(core, a_host_where_all_fails_is_left)
{
    bench_t b;
    setup(&b, 0, 3, 0);
    on_hosts(&b, 0);
    restarts(&b, WORKER, 9);
    begin(&b);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(psrti_core_task(b.core, 1)->host, 1);
        exits(&b, WORKER, 0, 1);
        pass(&b, S);
    }
    cr_assert_neq(psrti_core_task(b.core, 1)->host, 1);
    cr_assert_eq(b.said[PSRTI_SAY_COOLING], 1);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    act(&b);
    cr_assert_eq(over(&b), PSRTI_CAUSE_USER);
}

Test(core, replaced_elsewhere_if_there_is_another)
{
    bench_t b;
    setup(&b, 0, 3, 0);
    on_hosts(&b, 0);
    begin(&b);
    psrti_core_restart(b.core, b.now, 1, 1);
    act(&b);
    exits(&b, WORKER, 0, 143);
    cr_assert_eq(b.starts[1], 2);
    cr_assert_neq(psrti_core_task(b.core, 1)->host, 1);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    act(&b);
    over(&b);

    setup(&b, 0, 1, 0);
    begin(&b);
    psrti_core_restart(b.core, b.now, 1, 1);
    act(&b);
    exits(&b, WORKER, 0, 143);
    cr_assert_eq(b.starts[1], 2);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    act(&b);
    over(&b);
}

/* ---- elastic --------------------------------------------------------------------------------- */

Test(core, shrinks_and_grows_with_stable_indices)
{
    bench_t b;
    setup(&b, 0, 3, 0);
    on_hosts(&b, 2);
    b.roles[WORKER].min = 2;
    begin(&b);
    lose_host(&b, 1); /* worker 0; policy NEVER */
    cr_assert_eq(phase_of(&b, WORKER, 0), PSRTI_PHASE_SHED);
    cr_assert_eq(b.said[PSRTI_SAY_SHED], 1);
    pass(&b, 30 * S);
    cr_assert_eq(phase_of(&b, WORKER, 0), PSRTI_PHASE_SHED);
    psrti_core_host_up(b.core, b.now, 1);
    act(&b);
    cr_assert_eq(b.said[PSRTI_SAY_GROW], 1);
    cr_assert_eq(phase_of(&b, WORKER, 0), PSRTI_PHASE_RUNNING);
    cr_assert_eq(psrti_core_task(b.core, 1)->attempt, 1);
    lose_host(&b, 1);
    lose_host(&b, 2); /* below the minimum */
    cr_assert_eq(over(&b), PSRTI_CAUSE_TASK);
}

Test(core, what_was_shed_does_not_hinder_success)
{
    bench_t b;
    setup(&b, 0, 3, 0);
    b.roles[WORKER].min = 2;
    begin(&b);
    exits(&b, WORKER, 1, 1);
    cr_assert_eq(phase_of(&b, WORKER, 1), PSRTI_PHASE_SHED);
    exits(&b, WORKER, 0, 0);
    exits(&b, WORKER, 2, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(over(&b), PSRTI_CAUSE_NONE);
}

/* ---- stop ------------------------------------------------------------------------------------ */

Test(core, stop_asks_users_then_servers_then_kills)
{
    bench_t b;
    setup(&b, 1, 2, 0);
    begin(&b);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    act(&b);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 2);
    pass(&b, 2 * S - 1);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 2);
    pass(&b, 1); /* half of the grace time */
    cr_assert_eq(b.said[PSRTI_DO_STOP], 6);
    pass(&b, 2 * S);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 10);
    pass(&b, 3 * S);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 14);
    pass(&b, 2 * S);
    cr_assert_eq(b.gave_up, 1);
    cr_assert_eq(psrti_core_deadline(b.core), UINT64_MAX);
    psrti_core_destroy(b.core);
}

Test(core, start_deadline)
{
    bench_t b;
    psrti_core_params_t params = PSRTI_CORE_PARAMS;
    params.start_timeout_ns = 5 * S;
    setup(&b, 0, 1, 0);
    b.core = psrti_core_create(&b.job, &params, b.now); /* the hosts are not reached */
    cr_assert_eq(psrti_core_deadline(b.core), b.now + 5 * S);
    pass(&b, 6 * S);
    cr_assert_eq(over(&b), PSRTI_CAUSE_START);

    setup(&b, 0, 1, 0);
    b.core = psrti_core_create(&b.job, &params, b.now);
    psrti_core_ready(b.core, b.now);
    act(&b);
    pass(&b, 60 * S);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    act(&b);
    cr_assert_eq(over(&b), PSRTI_CAUSE_USER);
}

Test(core, what_was_not_started_yet_is_not_after_a_stop)
{
    bench_t b;
    psrti_core_params_t params = PSRTI_CORE_PARAMS;
    psrti_action_t action;
    setup(&b, 0, 3, 0);
    b.core = psrti_core_create(&b.job, &params, b.now);
    psrti_core_ready(b.core, b.now);
    cr_assert(psrti_core_next(b.core, &action));
    cr_assert_eq(action.kind, PSRTI_DO_START);
    psrti_core_not_started(b.core, action.task);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_ERROR);
    act(&b);
    cr_assert_eq(b.said[PSRTI_DO_START], 0);
    cr_assert_eq(over(&b), PSRTI_CAUSE_ERROR);
}

/* ---- at random ------------------------------------------------------------------------------- */

typedef struct chance {
    uint64_t state;
} chance_t;

static unsigned pick(chance_t *c, unsigned below)
{
    c->state = psrti_mix64(c->state + 1);
    return (unsigned)(c->state % below);
}

static void random_job(bench_t *b, chance_t *c)
{
    setup(b, pick(c, 3), 1 + pick(c, 5), pick(c, 3));
    on_hosts(b, pick(c, 2) ? 0 : 4);
    b->job.host_count = 1 + pick(c, 3);
    for (size_t i = 0; i < b->job.task_count; i++)
        b->tasks[i].host %= (unsigned)b->job.host_count;
    for (int role = 0; role < ROLES; role++) {
        restarts(b, role, pick(c, 4));
        b->roles[role].restart.healthy_ns = 0; /* so that the limit is one for the whole run */
        b->roles[role].restart.when = (psrti_restart_when_t)pick(c, 3);
        if (role == WORKER && pick(c, 2)) b->roles[role].min = 1 + pick(c, b->roles[role].count);
    }
    b->roles[WORKER].success = (psrti_success_t)pick(c, 3);
}

/* Over all ends, what the policy allows: limit + 1 starts, and one for each that was not counted. */
static void check_limits(const bench_t *b, const unsigned *uncounted)
{
    for (size_t i = 0; i < b->job.task_count; i++) {
        const psrti_restart_t *r = &b->tasks[i].role->restart;
        unsigned limit = r->when == PSRTI_RESTART_NEVER ? 0 : r->limit;
        unsigned rounds = 1 + uncounted[i]; /* the user's wish resets the count */
        cr_assert(b->starts[i] <= rounds * (limit + 1), "task %zu: %u starts", i, b->starts[i]);
    }
}

static void random_event(bench_t *b, chance_t *c, unsigned *uncounted)
{
    size_t task = pick(c, (unsigned)b->job.task_count);
    unsigned host = pick(c, (unsigned)b->job.host_count);
    switch (pick(c, 20)) {
    case 0: psrti_core_host_up(b->core, b->now, host); break;
    case 1:
        if (pick(c, 4)) break;
        for (size_t i = 0; i < b->job.task_count; i++)
            uncounted[i]++; /* shed ones may come back too */
        lose_host(b, host);
        break;
    case 2:
        if (pick(c, 4) || psrti_core_restart(b->core, b->now, task, (int)pick(c, 2))) break;
        uncounted[task]++;
        break;
    default:
        if (b->running[task] && !pick(c, 3))
            end_as(b, task, pick(c, 8) ? PSRTI_END_EXITED : PSRTI_END_SIGNALED, pick(c, 3) ? 0 : 1);
    }
    act(b);
}

static void check_sizes(const bench_t *b)
{
    unsigned alive = 0;
    if (psrti_core_cause(b->core) || psrti_core_draining(b->core)) return;
    for (size_t i = 0; i < b->job.task_count; i++) {
        const psrti_core_task_t *t = psrti_core_task(b->core, i);
        alive += b->tasks[i].role == &b->roles[WORKER] && t->phase != PSRTI_PHASE_SHED;
        cr_assert(!b->running[i] ||
                  (t->phase >= PSRTI_PHASE_STARTING && t->phase <= PSRTI_PHASE_ENDING));
    }
    cr_assert(alive >= b->roles[WORKER].min);
}

Test(core, invariants_at_random)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        bench_t b;
        chance_t c = { seed };
        unsigned uncounted[TASKS_MAX] = { 0 };
        random_job(&b, &c);
        begin(&b);
        for (unsigned n = 0, steps = pick(&c, 300); n < steps && !b.finished; n++) {
            random_event(&b, &c, uncounted);
            check_sizes(&b);
            pass(&b, pick(&c, 3000) * MS);
        }
        if (!b.finished) {
            psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
            act(&b);
            if (pick(&c, 2)) psrti_core_kill(b.core, b.now);
            act(&b);
        }
        size_t starts = b.said[PSRTI_DO_START];
        if (pick(&c, 4)) end_rest(&b); /* some die when asked, some never */
        pass(&b, 60 * S);
        cr_assert_eq(b.finished + b.gave_up, 1, "seed %llu", (unsigned long long)seed);
        cr_assert_eq(b.said[PSRTI_DO_START], starts);
        cr_assert_eq(psrti_core_deadline(b.core), UINT64_MAX);
        check_limits(&b, uncounted);
        psrti_core_destroy(b.core);
    }
}
