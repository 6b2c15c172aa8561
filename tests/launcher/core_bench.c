/* SPDX-License-Identifier: Apache-2.0 */
#include "core_bench.h"

#include <signal.h>

#include "base/util.h"
#include "support/test.h"

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

void bench_setup(bench_t *b, unsigned servers, unsigned workers, unsigned others)
{
    *b = (bench_t){ .now = 1000 * S };
    b->job = (psrti_job_t){ .roles = b->roles,
                            .role_count = ROLES,
                            .hosts = b->hosts,
                            .host_count = 1,
                            .host_capacity = HOSTS_MAX,
                            .tasks = b->tasks,
                            .grace_ns = 4 * S };
    add_role(b, COORDINATOR, PSRTI_KIND_COORDINATOR, 1);
    add_role(b, SERVER, PSRTI_KIND_SERVER, servers);
    add_role(b, WORKER, PSRTI_KIND_WORKER, workers);
    add_role(b, OTHER, PSRTI_KIND_OTHER, others);
}

void bench_restarts(bench_t *b, int role, unsigned limit)
{
    b->roles[role].restart = (psrti_restart_t){ .when = PSRTI_RESTART_ON_FAILURE,
                                                .limit = limit,
                                                .backoff_ns = 100 * MS,
                                                .backoff_max_ns = 1 * S,
                                                .healthy_ns = 60 * S };
}

size_t bench_task(const bench_t *b, int role, unsigned index)
{
    for (size_t i = 0; i < b->job.task_count; i++)
        if (b->tasks[i].role == &b->roles[role] && b->tasks[i].index == index) return i;
    cr_assert_fail("no such task");
    return 0;
}

void bench_act(bench_t *b)
{
    psrti_action_t action;
    while (psrti_core_next(b->core, &action)) {
        b->said[action.kind]++;
        if (action.kind == PSRTI_DO_START) {
            cr_assert(!b->running[action.task], "task %zu runs twice", action.task);
            cr_assert(!b->finished);
            cr_assert(!b->down[action.host] && !b->unnamed[action.host],
                      "task %zu starts on host %u", action.task, action.host);
            b->running[action.task] = 1;
            b->asked[action.task] = 0;
            b->starts[action.task]++;
            if (!b->hangs[action.host]) psrti_core_started(b->core, b->now, action.task);
        } else if (action.kind == PSRTI_DO_STOP) {
            b->asked[action.task] = 1;
        } else if (action.kind == PSRTI_SAY_LEAVING) {
            b->unnamed[action.host] = 1;
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

void bench_begin(bench_t *b)
{
    psrti_core_params_t params = PSRTI_CORE_PARAMS;
    params.launch_timeout_ns = b->launch_timeout_ns;
    b->core = psrti_core_create(&b->job, &params, b->now);
    psrti_core_ready(b->core, b->now);
    bench_act(b);
}

void bench_end_as(bench_t *b, size_t task, psrti_end_kind_t kind, int value)
{
    psrti_end_t end = { .kind = kind, .value = value, .time_ns = b->now };
    psrti_core_ended(b->core, b->now, task, &end);
    bench_act(b);
    b->running[task] = 0;
    psrti_core_gone(b->core, b->now, task);
    bench_act(b);
    psrti_core_closed(b->core, b->now, task);
    bench_act(b);
}

void bench_exits(bench_t *b, int role, unsigned index, int code)
{
    bench_end_as(b, bench_task(b, role, index), PSRTI_END_EXITED, code);
}

void bench_pass(bench_t *b, uint64_t ns)
{
    uint64_t until = b->now + ns;
    for (uint64_t at; (at = psrti_core_deadline(b->core)) <= until;) {
        b->now = PSRTI_MAX(b->now, at);
        psrti_core_tick(b->core, b->now);
        bench_act(b);
    }
    b->now = until;
}

psrti_phase_t bench_phase(const bench_t *b, int role, unsigned index)
{
    return psrti_core_task(b->core, bench_task(b, role, index))->phase;
}

void bench_end_rest(bench_t *b)
{
    for (size_t i = 0; i < b->job.task_count; i++)
        if (b->running[i]) bench_end_as(b, i, PSRTI_END_SIGNALED, SIGTERM);
}

psrti_cause_t bench_over(bench_t *b)
{
    bench_end_rest(b);
    cr_assert_eq(b->finished, 1);
    psrti_cause_t cause = psrti_core_cause(b->core);
    psrti_core_destroy(b->core);
    return cause;
}

void bench_on_hosts(bench_t *b, unsigned slots)
{
    b->job.host_count = 3;
    for (int i = 0; i < 3; i++)
        b->hosts[i].slots = slots;
    for (size_t i = 0; i < b->job.task_count; i++) /* coordinator on the first */
        b->tasks[i].host = (unsigned)(b->tasks[i].role == &b->roles[WORKER] ? i % 3 : 0);
}

void bench_lose_host(bench_t *b, unsigned host)
{
    b->down[host] = 1;
    psrti_core_host_lost(b->core, b->now, host);
    bench_act(b);
    for (size_t i = 0; i < b->job.task_count; i++)
        if (b->running[i] && psrti_core_task(b->core, i)->host == host)
            bench_end_as(b, i, PSRTI_END_HOST_LOST, 0);
}

void bench_host_up(bench_t *b, unsigned host)
{
    b->down[host] = 0;
    psrti_core_host_up(b->core, b->now, host);
    bench_act(b);
}

unsigned bench_add_host(bench_t *b, unsigned slots)
{
    unsigned host = (unsigned)b->job.host_count++;
    cr_assert(host < HOSTS_MAX);
    b->hosts[host].slots = slots;
    b->down[host] = 1;
    psrti_core_host_added(b->core, b->now);
    bench_act(b);
    return host;
}

void bench_name(bench_t *b, unsigned host, int named)
{
    if (named) b->unnamed[host] = 0;
    psrti_core_host_named(b->core, b->now, host, named);
    bench_act(b);
}
