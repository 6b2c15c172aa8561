/* SPDX-License-Identifier: Apache-2.0 */
/* The same with hosts that a discovery adds, names no more, and names again. */
#include <signal.h>

#include "base/util.h"
#include "core_bench.h"
#include "support/test.h"

/* Workers 0, 1 (tasks 1, 2) on hosts 1, 0 with a slot each; 2 (task 3) waits. The coordinator, task 0,
 * is on host 0. */
static void setup(bench_t *b, unsigned min)
{
    bench_setup(b, 0, 3, 0);
    bench_on_hosts(b, 1);
    b->job.host_count = 2;
    b->job.discovers = 1;
    b->roles[WORKER].min = min;
    b->tasks[2].host = 0;
    b->tasks[3].host = PSRTI_NO_HOST;
    b->tasks[3].unplaced = 1;
}

static void stop(bench_t *b)
{
    psrti_core_stop(b->core, b->now, PSRTI_CAUSE_USER);
    bench_act(b);
    cr_assert_eq(bench_over(b), PSRTI_CAUSE_USER);
}

/* ---- waiting for the first host -------------------------------------------------------------- */

Test(core, who_has_no_host_waits_for_one)
{
    bench_t b;
    setup(&b, 1);
    bench_begin(&b);
    cr_assert_eq(bench_phase(&b, WORKER, 2), PSRTI_PHASE_SHED);
    cr_assert_eq(psrti_core_restart(b.core, b.now, 3, 0), PSRT_ERR_NOT_FOUND);
    bench_pass(&b, 300 * S);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    cr_assert_eq(bench_add_host(&b, 1), 2);
    cr_assert_eq(b.said[PSRTI_DO_REACH], 1);
    cr_assert_eq(b.starts[3], 0);
    bench_pass(&b, S);
    bench_host_up(&b, 2);
    cr_assert_eq(b.said[PSRTI_SAY_GROW], 1);
    cr_assert_eq(b.starts[3], 1);
    cr_assert_eq(b.tasks[3].host, 2);
    cr_assert_eq(psrti_core_task(b.core, 3)->attempt, 0);
    bench_lose_host(&b, 2);
    bench_pass(&b, 10 * S); /* a new host is as any other: this is its first cool-down */
    cr_assert_eq(b.said[PSRTI_DO_REACH], 2);
    bench_host_up(&b, 2);
    cr_assert_eq(b.starts[3], 2);
    stop(&b);
}

Test(core, a_new_host_is_tried_until_it_is_there)
{
    bench_t b;
    setup(&b, 1);
    bench_begin(&b);
    bench_add_host(&b, 1);
    static const uint64_t pauses[] = { 10 * S, 20 * S, 40 * S };
    for (size_t i = 0; i < PSRTI_COUNT(pauses); i++) {
        bench_pass(&b, pauses[i] - 1);
        cr_assert_eq(b.said[PSRTI_DO_REACH], i + 1);
        bench_pass(&b, 1);
        cr_assert_eq(b.said[PSRTI_DO_REACH], i + 2);
    }
    bench_name(&b, 2, 0); /* and no longer than it is listed */
    cr_assert_eq(psrti_core_deadline(b.core), UINT64_MAX);
    bench_pass(&b, 1000 * S);
    cr_assert_eq(b.said[PSRTI_DO_REACH], 4);
    bench_name(&b, 2, 1);
    cr_assert_eq(b.said[PSRTI_DO_REACH], 5);
    bench_host_up(&b, 2);
    cr_assert_eq(b.starts[3], 1);
    stop(&b);
}

Test(core, what_was_shed_leaves_its_slot_to_others)
{
    bench_t b;
    setup(&b, 1);
    bench_begin(&b);
    bench_exits(&b, WORKER, 1, 1); /* fails and may not be restarted */
    cr_assert_eq(bench_phase(&b, WORKER, 1), PSRTI_PHASE_SHED);
    cr_assert_eq(b.starts[3], 1);
    cr_assert_eq(b.tasks[3].host, 0);
    psrti_core_restart(b.core, b.now, 2, 0);
    bench_act(&b);
    cr_assert_eq(b.starts[2], 1); /* finds its slot taken, and waits in turn */
    cr_assert_eq(bench_phase(&b, WORKER, 1), PSRTI_PHASE_SHED);
    bench_exits(&b, WORKER, 2, 1);
    cr_assert_eq(b.starts[2], 2);
    stop(&b);
}

/* ---- leaving --------------------------------------------------------------------------------- */

Test(core, tasks_of_a_host_that_is_not_named_go_elsewhere_uncounted)
{
    bench_t b;
    setup(&b, 2); /* policy NEVER: what is elastic follows the hosts all the same */
    bench_begin(&b);
    bench_host_up(&b, bench_add_host(&b, 2));
    cr_assert_eq(b.tasks[3].host, 2);
    bench_name(&b, 1, 0);
    cr_assert_eq(b.said[PSRTI_SAY_LEAVING], 1);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 1);
    cr_assert(b.asked[1]);
    bench_pass(&b, S);
    cr_assert_eq(b.starts[1], 1); /* not before it has ended */
    bench_exits(&b, WORKER, 0, 0);
    cr_assert_eq(psrti_core_task(b.core, 1)->end.kind, PSRTI_END_HOST_LOST);
    cr_assert_eq(b.said[PSRTI_SAY_RESTART], 1);
    bench_pass(&b, S);
    cr_assert_eq(b.starts[1], 2);
    cr_assert_eq(b.tasks[1].host, 2);
    cr_assert_eq(psrti_core_task(b.core, 1)->restarts, 0);
    cr_assert_eq(b.said[PSRTI_SAY_COOLING], 0); /* it is not the host's fault */
    bench_exits(&b, WORKER, 0, 0);              /* this end is its own */
    cr_assert_eq(bench_phase(&b, WORKER, 0), PSRTI_PHASE_DONE);
    stop(&b);
}

Test(core, without_another_host_they_are_shed_and_come_back)
{
    bench_t b;
    setup(&b, 1);
    bench_begin(&b);
    bench_name(&b, 1, 0);
    bench_name(&b, 1, 0); /* once */
    bench_exits(&b, WORKER, 0, 143);
    bench_pass(&b, S);
    cr_assert_eq(b.said[PSRTI_DO_STOP], 1);
    cr_assert_eq(bench_phase(&b, WORKER, 0), PSRTI_PHASE_SHED);
    bench_pass(&b, 300 * S);
    cr_assert_eq(b.starts[1], 1);
    bench_name(&b, 1, 1);
    cr_assert_eq(b.said[PSRTI_DO_REACH], 0); /* it was up all the time */
    cr_assert_eq(b.starts[1], 2);
    cr_assert_eq(b.starts[3], 0);
    stop(&b);
}

Test(core, below_the_minimum_they_wait_for_hosts)
{
    bench_t b;
    setup(&b, 2);
    bench_begin(&b);
    bench_name(&b, 1, 0);
    bench_exits(&b, WORKER, 0, 143);
    bench_pass(&b, 59 * S);
    cr_assert_eq(bench_phase(&b, WORKER, 0), PSRTI_PHASE_PENDING);
    bench_host_up(&b, bench_add_host(&b, 1));
    cr_assert_eq(b.starts[1], 2); /* before who was not there yet */
    cr_assert_eq(b.starts[3], 0);
    bench_lose_host(&b, 2); /* the same when a host is lost */
    bench_pass(&b, 59 * S);
    cr_assert_eq(psrti_core_cause(b.core), PSRTI_CAUSE_NONE);
    bench_pass(&b, 2 * S);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_TASK);
}

Test(core, a_host_that_is_needed_stays)
{
    bench_t b;
    setup(&b, 1);
    bench_begin(&b);
    for (int i = 0; i < 2; i++) {
        bench_name(&b, 0, 0); /* the coordinator's */
        cr_assert_eq(b.said[PSRTI_SAY_STAYS], 1);
        cr_assert_eq(b.said[PSRTI_SAY_LEAVING], 0);
        cr_assert_eq(b.said[PSRTI_DO_STOP], 0);
        bench_name(&b, 0, 1);
    }
    bench_name(&b, 0, 0);
    bench_exits(&b, WORKER, 1, 1);
    psrti_core_restart(b.core, b.now, 2, 0);
    bench_act(&b);
    cr_assert_eq(b.starts[3], 1);
    cr_assert_eq(b.tasks[3].host, 0);
    stop(&b);

    bench_setup(&b, 1, 1, 1); /* tasks 1: server, 2: worker, 3: tensorboard */
    bench_on_hosts(&b, 1);
    b.job.discovers = 1;
    b.tasks[1].host = 1;
    b.tasks[3].host = 2;
    bench_restarts(&b, WORKER, 1);
    bench_begin(&b);
    bench_name(&b, 1, 0);
    cr_assert_eq(b.said[PSRTI_SAY_STAYS], 1); /* a server that may not be restarted */
    bench_name(&b, 2, 0);
    cr_assert_eq(b.said[PSRTI_SAY_LEAVING], 1); /* nothing depends on tensorboard */
    bench_exits(&b, OTHER, 0, 143);
    cr_assert_eq(b.said[PSRTI_SAY_GOES_ON], 1);
    stop(&b);
}

Test(core, hosts_that_are_lost_and_not_named_are_left_alone)
{
    bench_t b;
    setup(&b, 1);
    bench_begin(&b);
    bench_lose_host(&b, 1);
    bench_name(&b, 1, 0); /* while it cools down */
    bench_pass(&b, 1000 * S);
    cr_assert_eq(b.said[PSRTI_DO_REACH], 0);
    cr_assert_eq(psrti_core_deadline(b.core), UINT64_MAX);
    bench_name(&b, 1, 1);
    cr_assert_eq(b.said[PSRTI_DO_REACH], 1);
    bench_host_up(&b, 1);
    cr_assert_eq(b.starts[1], 2);
    bench_name(&b, 1, 0); /* and the other way round */
    bench_lose_host(&b, 1);
    cr_assert_eq(b.said[PSRTI_SAY_COOLING], 1);
    bench_pass(&b, 1000 * S);
    cr_assert_eq(b.said[PSRTI_DO_REACH], 1);
    bench_host_up(&b, 1);
    bench_pass(&b, 1000 * S);
    cr_assert_eq(b.starts[1], 2);
    bench_name(&b, 1, 1);
    cr_assert_eq(b.starts[1], 3);
    stop(&b);
}

/* A host goes and another one comes, before the tasks of the first have ended. */
Test(core, the_room_is_used_whatever_comes_first)
{
    bench_t b;
    setup(&b, 1);
    bench_begin(&b);
    bench_name(&b, 1, 0);
    bench_host_up(&b, bench_add_host(&b, 2));
    cr_assert_eq(b.starts[3], 1);
    cr_assert_eq(b.tasks[3].host, 2);
    bench_exits(&b, WORKER, 0, 143);
    bench_pass(&b, S);
    cr_assert_eq(b.starts[1], 2);
    cr_assert_eq(b.tasks[1].host, 2);
    stop(&b);
}

Test(core, names_mean_nothing_any_more_when_the_job_ends)
{
    bench_t b;
    setup(&b, 1);
    bench_begin(&b);
    psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
    bench_act(&b);
    size_t stops = b.said[PSRTI_DO_STOP];
    bench_name(&b, 1, 0);
    bench_add_host(&b, 1);
    bench_host_up(&b, 2);
    cr_assert_eq(b.said[PSRTI_DO_STOP], stops);
    cr_assert_eq(b.said[PSRTI_DO_REACH], 0);
    cr_assert_eq(b.starts[3], 0);
    cr_assert_eq(bench_over(&b), PSRTI_CAUSE_USER);
}
