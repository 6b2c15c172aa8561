/* SPDX-License-Identifier: Apache-2.0 */
/* The same with jobs and events at random. */
#include <signal.h>

#include "base/util.h"
#include "core_bench.h"
#include "launcher/place.h"
#include "support/test.h"

typedef struct chance {
    uint64_t state;
} chance_t;

static unsigned pick(chance_t *c, unsigned below)
{
    c->state = psrti_mix64(c->state + 1);
    return (unsigned)(c->state % below);
}

/* Hosts come and go; of the workers only some have one at first. */
static void discover(bench_t *b, chance_t *c)
{
    b->job.discovers = 1;
    b->job.workers = b->roles[WORKER].count;
    for (unsigned h = 0; h < HOSTS_MAX; h++)
        b->hosts[h].slots = 1 + pick(c, 2);
    b->roles[WORKER].min = 1 + pick(c, b->roles[WORKER].count);
    if (!psrti_place(&b->job)) return;
    b->roles[WORKER].min = 1;
    cr_assert(!psrti_place(&b->job));
}

static void random_job(bench_t *b, chance_t *c)
{
    bench_setup(b, pick(c, 3), 1 + pick(c, 5), pick(c, 3));
    bench_on_hosts(b, pick(c, 2) ? 0 : 4);
    b->job.host_count = 1 + pick(c, 3);
    for (size_t i = 0; i < b->job.task_count; i++)
        b->tasks[i].host %= (unsigned)b->job.host_count;
    for (int role = 0; role < ROLES; role++) {
        bench_restarts(b, role, pick(c, 4));
        b->roles[role].restart.healthy_ns = 0; /* so that the limit is one for the whole run */
        b->roles[role].restart.when = (psrti_restart_when_t)pick(c, 3);
        if (role == WORKER && pick(c, 2)) b->roles[role].min = 1 + pick(c, b->roles[role].count);
    }
    b->roles[WORKER].success = (psrti_success_t)pick(c, 3);
    if (pick(c, 2)) discover(b, c);
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

static void allow_all(const bench_t *b, unsigned *uncounted)
{
    for (size_t i = 0; i < b->job.task_count; i++)
        uncounted[i]++;
}

/* The job needs what is there, and it cannot go elsewhere. */
static int is_needed(const bench_t *b, unsigned host)
{
    for (size_t i = 0; i < b->job.task_count; i++) {
        const psrti_core_task_t *t = psrti_core_task(b->core, i);
        int role = (int)(b->tasks[i].role - b->roles);
        int lives = t->phase < PSRTI_PHASE_ENDING || (t->phase == PSRTI_PHASE_ENDING && t->again);
        int moves = role == WORKER   ? b->roles[WORKER].min < b->roles[WORKER].max
                    : role == SERVER ? 0
                                     : role == OTHER;
        moves |= role != COORDINATOR && b->roles[role].restart.when != PSRTI_RESTART_NEVER;
        if (t->host == host && lives && !moves) return 1;
    }
    return 0;
}

static void random_name(bench_t *b, chance_t *c, unsigned host, unsigned *uncounted)
{
    int named = (int)pick(c, 2), before = b->unnamed[host], needed = is_needed(b, host);
    int ending = psrti_core_cause(b->core) || psrti_core_draining(b->core);
    allow_all(b, uncounted);
    bench_name(b, host, named);
    if (named || ending) return;
    cr_assert_eq(b->unnamed[host], before || !needed);
    for (size_t i = 0; i < b->job.task_count; i++)
        if (b->unnamed[host] && b->running[i] && psrti_core_task(b->core, i)->host == host)
            cr_assert(b->asked[i] || psrti_core_task(b->core, i)->phase == PSRTI_PHASE_ENDING);
}

static void random_event(bench_t *b, chance_t *c, unsigned *uncounted)
{
    size_t task = pick(c, (unsigned)b->job.task_count);
    unsigned host = pick(c, (unsigned)b->job.host_count);
    switch (pick(c, 20)) {
    case 0: bench_host_up(b, host); break;
    case 1:
        if (pick(c, 4)) break;
        allow_all(b, uncounted); /* shed ones may come back too */
        bench_lose_host(b, host);
        break;
    case 2:
        if (pick(c, 4) || psrti_core_restart(b->core, b->now, task, (int)pick(c, 2))) break;
        uncounted[task]++;
        break;
    case 3:
        if (b->job.discovers) random_name(b, c, host, uncounted);
        break;
    case 4:
        if (b->job.discovers && b->job.host_count < HOSTS_MAX) bench_add_host(b, 1 + pick(c, 2));
        break;
    default:
        if (b->running[task] && !pick(c, 3))
            bench_end_as(b, task, pick(c, 8) ? PSRTI_END_EXITED : PSRTI_END_SIGNALED,
                         pick(c, 3) ? 0 : 1);
    }
    bench_act(b);
}

static void check_slots(const bench_t *b)
{
    unsigned taken[HOSTS_MAX] = { 0 };
    for (size_t i = 0; i < b->job.task_count; i++)
        if (b->running[i] && b->tasks[i].role == &b->roles[WORKER])
            taken[psrti_core_task(b->core, i)->host]++;
    for (unsigned h = 0; h < b->job.host_count && b->job.discovers; h++)
        cr_assert(taken[h] <= b->hosts[h].slots, "%u workers on host %u", taken[h], h);
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

/* All hosts are there, and all tasks do what they are to do: it comes to an end. */
static void run_out(bench_t *b)
{
    for (int round = 0; round < 60 && !b->finished && !b->gave_up; round++) {
        for (unsigned h = 0; h < b->job.host_count; h++) {
            bench_name(b, h, 1);
            bench_host_up(b, h);
        }
        for (size_t i = 0; i < b->job.task_count; i++)
            if (b->running[i]) bench_end_as(b, i, PSRTI_END_EXITED, 0);
        check_slots(b);
        bench_pass(b, 2 * S);
    }
    cr_assert(b->finished || b->gave_up);
}

Test(core, invariants_at_random)
{
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        bench_t b;
        chance_t c = { seed };
        unsigned uncounted[TASKS_MAX] = { 0 };
        random_job(&b, &c);
        bench_begin(&b);
        for (unsigned n = 0, steps = pick(&c, 300); n < steps && !b.finished; n++) {
            random_event(&b, &c, uncounted);
            check_sizes(&b);
            check_slots(&b);
            bench_pass(&b, pick(&c, 3000) * MS);
        }
        if (b.job.discovers && pick(&c, 2)) run_out(&b);
        if (!b.finished) {
            psrti_core_stop(b.core, b.now, PSRTI_CAUSE_USER);
            bench_act(&b);
            if (pick(&c, 2)) psrti_core_kill(b.core, b.now);
            bench_act(&b);
        }
        size_t starts = b.said[PSRTI_DO_START];
        if (pick(&c, 4)) bench_end_rest(&b); /* some die when asked, some never */
        bench_pass(&b, 60 * S);
        cr_assert_eq(b.finished + b.gave_up, 1, "seed %llu", (unsigned long long)seed);
        cr_assert_eq(b.said[PSRTI_DO_START], starts);
        cr_assert_eq(psrti_core_deadline(b.core), UINT64_MAX);
        check_limits(&b, uncounted);
        psrti_core_destroy(b.core);
    }
}
