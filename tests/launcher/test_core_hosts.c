/* SPDX-License-Identifier: Apache-2.0 */
/* The same with hosts that are lost and come back, and roles that shrink and grow. */
#include <signal.h>

#include "base/util.h"
#include "core_bench.h"
#include "support/test.h"

/* ---- hosts ----------------------------------------------------------------------------------- */

Test(core, a_lost_hosts_tasks_go_elsewhere_uncounted)
{
    bench_t b;
    bench_setup(&b, 0, 3, 0); /* workers are tasks 1, 2, 3 on hosts 1, 2, 0 */
    bench_on_hosts(&b, 0);
    bench_restarts(&b, WORKER, 1);
    bench_begin(&b);
    bench_lose_host(&b, 1);
    bench_pass(&b, S);
    cr_assert_eq(b.starts[1], 2);
    cr_assert_neq(psrti_core_task(b.core, 1)->host, 1);
    cr_assert_eq(psrti_core_task(b.core, 1)->restarts, 0);
    bench_exits(&b, WORKER, 0, 1); /* the limit of 1 is still there */
    bench_pass(&b, S);
    cr_assert_eq(b.starts[1], 3);
    bench_exits(&b, WORKER, 0, 1);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, a_lost_host_ends_a_job_that_may_not_restart)
{
    bench_t b;
    bench_setup(&b, 0, 3, 0);
    bench_on_hosts(&b, 0);
    bench_begin(&b);
    bench_lose_host(&b, 2);
    size_t culprit = 0;
    cr_assert(psrti_core_culprit(b.core, &culprit));
    cr_assert_eq(culprit, 2);
    cr_assert_eq(psrti_core_task(b.core, 2)->end.kind, PSRTI_END_HOST_LOST);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, cool_down_doubles)
{
    bench_t b;
    bench_setup(&b, 0, 2, 0);
    bench_on_hosts(&b, 1);
    bench_restarts(&b, WORKER, 1);
    b.tasks[2].host = 0; /* the other host is full */
    b.job.host_count = 2;
    bench_begin(&b);
    /* Reaching it begins the next one, in case that fails. */
    static const uint64_t cooldowns[] = { 10 * S, 40 * S };
    for (size_t i = 0; i < 2; i++) {
        bench_lose_host(&b, 1);
        bench_pass(&b, cooldowns[i] - 1);
        cr_assert_eq(b.said[PSRTI_DO_REACH], i);
        bench_pass(&b, 1);
        cr_assert_eq(b.said[PSRTI_DO_REACH], i + 1);
        cr_assert_eq(b.starts[1], i + 1);
        bench_host_up(&b, 1);
        cr_assert_eq(b.starts[1], i + 2);
    }
    bench_lose_host(&b, 1); /* and never comes back */
    bench_pass(&b, 59 * S);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    bench_pass(&b, 2 * S);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, a_host_where_all_fails_is_left)
{
    bench_t b;
    bench_setup(&b, 0, 3, 0);
    bench_on_hosts(&b, 0);
    bench_restarts(&b, WORKER, 9);
    bench_begin(&b);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(psrti_core_task(b.core, 1)->host, 1);
        bench_exits(&b, WORKER, 0, 1);
        bench_pass(&b, S);
    }
    cr_assert_neq(psrti_core_task(b.core, 1)->host, 1);
    cr_assert_eq(b.said[PSRTI_SAY_COOLING], 1);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    bench_act(&b);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_USER);
}

Test(core, replaced_elsewhere_if_there_is_another)
{
    bench_t b;
    bench_setup(&b, 0, 3, 0);
    bench_on_hosts(&b, 0);
    bench_begin(&b);
    psrti_core_restart(b.core, b.now, 1, 1);
    bench_act(&b);
    bench_exits(&b, WORKER, 0, 143);
    cr_assert_eq(b.starts[1], 2);
    cr_assert_neq(psrti_core_task(b.core, 1)->host, 1);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    bench_act(&b);
    bench_over(&b);

    bench_setup(&b, 0, 1, 0);
    bench_begin(&b);
    psrti_core_restart(b.core, b.now, 1, 1);
    bench_act(&b);
    bench_exits(&b, WORKER, 0, 143);
    cr_assert_eq(b.starts[1], 2);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    bench_act(&b);
    bench_over(&b);
}

/* ---- starts that hang ------------------------------------------------------------------------ */

/* Three workers, tasks 1, 2, 3, of which 1 hangs on host 1. */
static void begin_hanging(bench_t *b, int restarts)
{
    bench_setup(b, 0, 3, 0);
    bench_on_hosts(b, 0);
    if (restarts) bench_restarts(b, WORKER, 1);
    b->launch_timeout_ns = 5 * S;
    b->hangs[1] = 1;
    bench_begin(b);
    bench_pass(b, 5 * S - 1);
    cr_assert_eq(bench_phase(b, WORKER, 0), PSRTI_PHASE_STARTING);
    cr_assert_eq(b->said[PSRTI_DO_STOP], 0);
    bench_pass(b, 1);
    cr_assert_eq(psrti_core_task(b->core, 1)->end.kind, PSRTI_END_NOT_LAUNCHED);
}

Test(core, what_does_not_start_goes_elsewhere_uncounted)
{
    bench_t b;
    begin_hanging(&b, 1);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 1);
    cr_assert_eq(b.said[PSRTI_SAY_COOLING], 1);
    bench_pass(&b, S);
    cr_assert_eq(b.starts[1], 1); /* while something of it is left */
    bench_end_as(&b, 1, PSRTI_END_LOST, 0);
    bench_pass(&b, S);
    cr_assert_eq(b.starts[1], 2);
    cr_assert_neq(psrti_core_task(b.core, 1)->host, 1);
    cr_assert_eq(psrti_core_task(b.core, 1)->restarts, 0);
    cr_assert_eq(bench_phase(&b, WORKER, 0), PSRTI_PHASE_RUNNING);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    bench_act(&b);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_USER);
}

Test(core, what_does_not_start_and_may_not_restart_ends_the_job)
{
    bench_t b;
    size_t culprit = 0;
    begin_hanging(&b, 0);
    cr_assert(psrti_core_culprit(b.core, &culprit));
    cr_assert_eq(culprit, 1);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, what_does_not_start_on_the_only_host_ends_the_job)
{
    bench_t b;
    bench_setup(&b, 0, 1, 0);
    bench_restarts(&b, WORKER, 9);
    b.launch_timeout_ns = 5 * S;
    b.hangs[0] = 1;
    bench_begin(&b);
    bench_pass(&b, 5 * S);
    cr_assert_eq(b.said[PSRTI_SAY_COOLING], 0);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, what_does_not_start_and_cannot_be_killed_ends_the_job)
{
    bench_t b;
    begin_hanging(&b, 1);
    bench_pass(&b, 30 * S - 1);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    bench_pass(&b, 1);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, without_a_limit_a_start_may_take_for_ever)
{
    bench_t b;
    bench_setup(&b, 0, 1, 0);
    b.hangs[0] = 1;
    bench_begin(&b);
    cr_assert_eq(psrti_core_deadline(b.core), UINT64_MAX);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    bench_act(&b);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_USER);
}

/* ---- elastic --------------------------------------------------------------------------------- */

Test(core, shrinks_and_grows_with_stable_indices)
{
    bench_t b;
    bench_setup(&b, 0, 3, 0);
    bench_on_hosts(&b, 2);
    b.roles[WORKER].min = 2;
    bench_begin(&b);
    bench_lose_host(&b, 1); /* worker 0; policy NEVER */
    cr_assert_eq(bench_phase(&b, WORKER, 0), PSRTI_PHASE_SHED);
    cr_assert_eq(b.said[PSRTI_SAY_SHED], 1);
    bench_pass(&b, 30 * S);
    cr_assert_eq(bench_phase(&b, WORKER, 0), PSRTI_PHASE_SHED);
    bench_host_up(&b, 1);
    cr_assert_eq(b.said[PSRTI_SAY_GROW], 1);
    cr_assert_eq(bench_phase(&b, WORKER, 0), PSRTI_PHASE_RUNNING);
    cr_assert_eq(psrti_core_task(b.core, 1)->attempt, 1);
    bench_lose_host(&b, 1);
    bench_lose_host(&b, 2); /* below the minimum */
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, what_was_shed_does_not_hinder_success)
{
    bench_t b;
    bench_setup(&b, 0, 3, 0);
    b.roles[WORKER].min = 2;
    bench_begin(&b);
    bench_exits(&b, WORKER, 1, 1);
    cr_assert_eq(bench_phase(&b, WORKER, 1), PSRTI_PHASE_SHED);
    bench_exits(&b, WORKER, 0, 0);
    bench_exits(&b, WORKER, 2, 0);
    cr_assert(psrti_core_draining(b.core));
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_NONE);
}
