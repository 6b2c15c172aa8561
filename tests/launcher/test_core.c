/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's decisions, in virtual time: success, restarts, stops. */
#include <signal.h>

#include "base/util.h"
#include "core_bench.h"
#include "support/test.h"

/* ---- success and failure --------------------------------------------------------------------- */

Test(core, success_drains_servers)
{
    bench_t b;
    bench_setup(&b, 2, 2, 0);
    bench_begin(&b);
    bench_exits(&b, WORKER, 0, 0);
    cr_assert(!psrti_core_draining(b.core));
    bench_exits(&b, SERVER, 1, 0); /* was told that all are done with it */
    bench_exits(&b, WORKER, 1, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(b.said[PSRTI_DO_STOP], 0); /* they may leave by themselves */
    bench_pass(&b, 4 * S);
    cr_assert_eq(b.said[PSRTI_SAY_STRAGGLERS], 1);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 2);
    bench_pass(&b, 4 * S); /* killed */
    cr_assert_eq(b.said[PSRTI_DO_STOP], 4);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_NONE);
}

Test(core, without_a_coordinator_servers_are_asked_at_once)
{
    bench_t b;
    bench_setup(&b, 2, 1, 1);
    b.job.tasks = b.tasks + 1; /* all but the coordinator */
    memmove(b.tasks, b.tasks + 1, sizeof b.tasks - sizeof *b.tasks);
    b.job.tasks = b.tasks;
    b.job.task_count--;
    b.job.roles = b.roles + 1;
    b.job.role_count--;
    for (size_t i = 0; i < b.job.task_count; i++)
        b.tasks[i].id = i;
    bench_begin(&b);
    bench_exits(&b, WORKER, 0, 0);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 2); /* not tensorboard, which has its grace time */
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_NONE);
}

Test(core, the_earliest_failure_is_the_cause)
{
    bench_t b;
    bench_setup(&b, 1, 3, 0);
    bench_begin(&b);
    b.now += 5 * S;
    bench_exits(&b, WORKER, 2, 3);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_TASK);
    /* Seen later, but it ended before. */
    psrti_end_t earlier = { .kind = PSRTI_END_EXITED, .value = 7, .time_ns = b.now - S };
    size_t first = bench_task(&b, WORKER, 0), culprit = 99;
    psrti_core_ended(b.core, b.now + MS, first, &earlier);
    b.running[first] = 0;
    psrti_core_gone(b.core, b.now + MS, first);
    bench_act(&b);
    b.now += S;
    bench_exits(&b, WORKER, 1, 9); /* because it was asked to end */
    cr_assert(psrti_core_culprit(b.core, &culprit));
    cr_assert_eq(culprit, first);
    cr_assert(psrti_core_failed_itself(b.core, bench_task(&b, WORKER, 2)));
    cr_assert(!psrti_core_failed_itself(b.core, bench_task(&b, WORKER, 1)));
    cr_assert_eq(bench_phase(&b, WORKER, 1), PSRTI_PHASE_STOPPED);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, any_needs_one)
{
    bench_t b;
    bench_setup(&b, 0, 3, 0);
    b.roles[WORKER].success = PSRTI_SUCCESS_ANY;
    bench_begin(&b);
    bench_exits(&b, WORKER, 0, 1); /* the others may still */
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    cr_assert_eq(b.said[PSRTI_SAY_GOES_ON], 1);
    bench_exits(&b, WORKER, 2, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_NONE);

    bench_setup(&b, 0, 2, 0);
    b.roles[WORKER].success = PSRTI_SUCCESS_ANY;
    bench_begin(&b);
    bench_exits(&b, WORKER, 0, 1);
    bench_exits(&b, WORKER, 1, 1);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, only_the_chief_decides)
{
    bench_t b;
    bench_setup(&b, 1, 2, 1);
    b.roles[WORKER].success = PSRTI_SUCCESS_NONE;
    b.roles[OTHER].success = PSRTI_SUCCESS_ALL; /* the chief */
    bench_begin(&b);
    bench_exits(&b, WORKER, 0, 0);
    bench_exits(&b, WORKER, 1, 0);
    cr_assert(!psrti_core_draining(b.core));
    bench_exits(&b, OTHER, 0, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_NONE);
}

Test(core, failures_of_what_nothing_depends_on)
{
    bench_t b;
    bench_setup(&b, 1, 1, 1);
    bench_begin(&b);
    bench_exits(&b, OTHER, 0, 1);
    cr_assert_eq(b.said[PSRTI_SAY_GOES_ON], 1);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    bench_exits(&b, SERVER, 0, 1);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, where_no_role_decides_all_do)
{
    bench_t b;
    bench_setup(&b, 1, 0, 1);
    b.roles[WORKER].success = PSRTI_SUCCESS_NONE;
    bench_begin(&b);
    cr_assert(!psrti_core_draining(b.core));
    bench_exits(&b, OTHER, 0, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_NONE);
}

/* ---- restarts -------------------------------------------------------------------------------- */

Test(core, restarts_back_off_up_to_the_limit)
{
    bench_t b;
    bench_setup(&b, 0, 1, 0);
    bench_restarts(&b, WORKER, 5);
    bench_begin(&b);
    static const uint64_t delays[] = { 100 * MS, 200 * MS, 400 * MS, 800 * MS, 1 * S };
    for (size_t i = 0; i < 5; i++) {
        bench_exits(&b, WORKER, 0, 1);
        cr_assert_eq(b.last_delay, delays[i]);
        cr_assert_eq(bench_phase(&b, WORKER, 0), PSRTI_PHASE_PENDING);
        bench_pass(&b, delays[i] - 1);
        cr_assert_eq(b.starts[1], i + 1);
        bench_pass(&b, 1);
        cr_assert_eq(b.starts[1], i + 2);
        cr_assert_eq(psrti_core_task(b.core, 1)->attempt, i + 1);
    }
    bench_exits(&b, WORKER, 0, 1);
    cr_assert_eq(b.starts[1], 6);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, health_resets_the_count)
{
    bench_t b;
    bench_setup(&b, 0, 1, 0);
    bench_restarts(&b, WORKER, 1);
    bench_begin(&b);
    for (int i = 0; i < 4; i++) {
        bench_pass(&b, 60 * S);
        bench_exits(&b, WORKER, 0, 1);
        cr_assert_eq(b.last_delay, 100 * MS);
        bench_pass(&b, S);
    }
    bench_exits(&b, WORKER, 0, 1); /* after less than a minute */
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
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
        bench_setup(&b, 0, 2, 0);
        bench_restarts(&b, WORKER, 1);
        bench_begin(&b);
        bench_end_as(&b, bench_task(&b, WORKER, 0), rows[i].kind, rows[i].value);
        cr_assert_eq(b.said[PSRTI_SAY_RESTART], (size_t)rows[i].restarted, "row %zu", i);
        bench_end_rest(&b);
        psrti_core_destroy(b.core);
    }
    for (int code = 41; code < 44; code++) { /* only 42 */
        bench_t b;
        bench_setup(&b, 0, 1, 0);
        bench_restarts(&b, WORKER, 1);
        b.roles[WORKER].restart.codes_set = 1;
        b.roles[WORKER].restart.codes[42 / 8] = 1 << 42 % 8;
        bench_begin(&b);
        bench_exits(&b, WORKER, 0, code);
        cr_assert_eq(b.said[PSRTI_SAY_RESTART], code == 42);
        psrti_core_destroy(b.core);
    }
}

Test(core, a_restart_waits_for_processes_and_output)
{
    bench_t b;
    bench_setup(&b, 0, 1, 0);
    bench_restarts(&b, WORKER, 1);
    bench_begin(&b);
    psrti_end_t end = { .kind = PSRTI_END_EXITED, .value = 1, .time_ns = b.now };
    psrti_core_ended(b.core, b.now, 1, &end);
    bench_act(&b);
    bench_pass(&b, 10 * S);
    cr_assert_eq(b.starts[1], 1);
    b.running[1] = 0;
    psrti_core_gone(b.core, b.now, 1);
    bench_act(&b);
    bench_pass(&b, 10 * S);
    cr_assert_eq(b.starts[1], 1);
    psrti_core_closed(b.core, b.now, 1);
    bench_act(&b);
    bench_pass(&b, S);
    cr_assert_eq(b.starts[1], 2);
    cr_assert(!b.finished);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    bench_act(&b);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_USER);
}

Test(core, always_restarts_success_too)
{
    bench_t b;
    bench_setup(&b, 0, 1, 1);
    bench_restarts(&b, OTHER, 2);
    b.roles[OTHER].restart.when = PSRTI_RESTART_ALWAYS;
    bench_begin(&b);
    bench_exits(&b, OTHER, 0, 0);
    bench_pass(&b, S);
    cr_assert_eq(b.starts[bench_task(&b, OTHER, 0)], 2);
    bench_exits(&b, WORKER, 0, 0);
    cr_assert(psrti_core_draining(b.core));
    bench_exits(&b, OTHER, 0, 0); /* no more */
    bench_pass(&b, S);
    cr_assert_eq(b.starts[bench_task(&b, OTHER, 0)], 2);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_NONE);
}

Test(core, the_user_restarts)
{
    bench_t b;
    bench_setup(&b, 1, 2, 0);
    bench_begin(&b);
    size_t task = bench_task(&b, WORKER, 0);
    cr_assert_eq(psrti_core_restart(b.core, b.now, task, 0), PSRT_OK);
    bench_act(&b);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 1);
    bench_exits(&b, WORKER, 0, 143); /* policy NEVER, and not counted */
    cr_assert_eq(b.starts[task], 2);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    bench_exits(&b, WORKER, 0, 0); /* one that is over, too */
    cr_assert_eq(psrti_core_restart(b.core, b.now, task, 0), PSRT_OK);
    bench_act(&b);
    cr_assert_eq(b.starts[task], 3);
    bench_exits(&b, WORKER, 1, 0);
    cr_assert(!psrti_core_draining(b.core));
    bench_exits(&b, WORKER, 0, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(psrti_core_restart(b.core, b.now, task, 0), PSRT_ERR_TOO_LATE);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_NONE);
}

/* ---- stop ------------------------------------------------------------------------------------ */

Test(core, stop_asks_users_then_servers_then_kills)
{
    bench_t b;
    bench_setup(&b, 1, 2, 0);
    bench_begin(&b);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    bench_act(&b);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 2);
    bench_pass(&b, 2 * S - 1);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 2);
    bench_pass(&b, 1); /* half of the grace time */
    cr_assert_eq(b.said[PSRTI_DO_STOP], 6);
    bench_pass(&b, 2 * S);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 10);
    bench_pass(&b, 3 * S);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 14);
    bench_pass(&b, 2 * S);
    cr_assert_eq(b.gave_up, 1);
    cr_assert_eq(psrti_core_deadline(b.core), UINT64_MAX);
    psrti_core_destroy(b.core);
}

Test(core, start_deadline)
{
    bench_t b;
    psrti_core_params_t params = PSRTI_CORE_PARAMS;
    params.start_timeout_ns = 5 * S;
    bench_setup(&b, 0, 1, 0);
    b.core = psrti_core_create(&b.job, &params, b.now); /* the hosts are not reached */
    cr_assert_eq(psrti_core_deadline(b.core), b.now + 5 * S);
    bench_pass(&b, 6 * S);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_START);

    bench_setup(&b, 0, 1, 0);
    b.core = psrti_core_create(&b.job, &params, b.now);
    psrti_core_ready(b.core, b.now);
    bench_act(&b);
    bench_pass(&b, 60 * S);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    bench_act(&b);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_USER);
}

Test(core, what_was_not_started_yet_is_not_after_a_stop)
{
    bench_t b;
    psrti_core_params_t params = PSRTI_CORE_PARAMS;
    psrti_action_t action;
    bench_setup(&b, 0, 3, 0);
    b.core = psrti_core_create(&b.job, &params, b.now);
    psrti_core_ready(b.core, b.now);
    cr_assert(psrti_core_next(b.core, &action));
    cr_assert_eq(action.kind, PSRTI_DO_START);
    psrti_core_not_started(b.core, action.task);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_ERROR);
    bench_act(&b);
    cr_assert_eq(b.said[PSRTI_DO_START], 0);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_ERROR);
}
