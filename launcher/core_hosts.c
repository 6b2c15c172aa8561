/* SPDX-License-Identifier: Apache-2.0 */
/* Where tasks run: the hosts that may be used, and who is started when on which. */
#include <limits.h>

#include "launcher/core_state.h"
#include "launcher/place.h"

#define FAILURES_IN_A_ROW 3 /* make a host cool down, when there is another */

static int is_usable(const psrti_core_t *core, unsigned host)
{
    return host < core->host_count && core->hosts[host].named && core->hosts[host].up &&
           !core->hosts[host].cooling;
}

static void set_cooling(psrti_core_t *core, psrti_core_host_t *h)
{
    h->cooling = 1;
    h->until_ns = core->now + h->cooldown_ns;
    h->cooldown_ns = PSRTI_MIN(2 * h->cooldown_ns, core->params.cooldown_max_ns);
}

static void cool_down(psrti_core_t *core, unsigned host)
{
    psrti_core_host_t *h = &core->hosts[host];
    h->failures = 0;
    psrti_core_push(
        core,
        (psrti_action_t){ .kind = PSRTI_SAY_COOLING, .host = host, .delay_ns = h->cooldown_ns });
    set_cooling(core, h);
}

void psrti_core_host_down(psrti_core_t *core, unsigned host)
{
    psrti_core_host_t *h = &core->hosts[host];
    if (!h->up) return;
    h->up = 0;
    if (h->named)
        cool_down(core, host);
    else
        h->cooling = 1; /* nobody wants it now */
}

void psrti_core_host_back(psrti_core_t *core, unsigned host)
{
    psrti_core_host_t *h = &core->hosts[host];
    h->until_ns = core->now;
    if (h->up) return;
    h->up = 1;
    if (!h->came) h->cooldown_ns = core->params.cooldown_ns; /* it was not lost yet */
    h->came = 1;
}

void psrti_core_reach(psrti_core_t *core, unsigned host)
{
    set_cooling(core, &core->hosts[host]); /* for the next try, should this one fail */
    psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_DO_REACH, .host = host });
}

/* At the end of its cool-down something is done with it. */
static int is_awaited(const psrti_core_host_t *h) { return h->cooling && (h->up || h->named); }

int psrti_core_has_other_host(const psrti_core_t *core, unsigned host)
{
    for (unsigned i = 0; i < core->host_count; i++)
        if (i != host && is_usable(core, i)) return 1;
    return 0;
}

void psrti_core_host_failed(psrti_core_t *core, size_t task)
{
    unsigned host = core->tasks[task].host;
    psrti_core_host_t *h = &core->hosts[host];
    psrti_end_kind_t kind = core->tasks[task].end.kind;
    if (kind == PSRTI_END_HOST_LOST || h->cooling) return;
    if (++h->failures < FAILURES_IN_A_ROW && kind != PSRTI_END_NOT_LAUNCHED) return;
    if (psrti_core_has_other_host(core, host)) cool_down(core, host);
}

void psrti_core_host_healthy(psrti_core_t *core, unsigned host)
{
    core->hosts[host].failures = 0;
    if (!core->hosts[host].cooling) core->hosts[host].cooldown_ns = core->params.cooldown_ns;
}

static unsigned load(const psrti_core_t *core, unsigned host, size_t except)
{
    unsigned count = 0;
    for (size_t i = 0; i < core->count; i++)
        count +=
            i != except && core->tasks[i].host == host && core->tasks[i].phase < PSRTI_PHASE_DONE;
    return count;
}

static int has_place(const psrti_core_t *core, size_t task)
{
    return !core->job->tasks[task].unplaced;
}

/* Where it has its place a task may be; who moves must fit. */
static int has_room(const psrti_core_t *core, unsigned host, size_t task)
{
    return (host == core->tasks[task].host && has_place(core, task)) ||
           psrti_place_allows(core->job, &core->job->tasks[task], host);
}

void psrti_core_set_shed(psrti_core_t *core, size_t task)
{
    psrti_core_set_phase(core, task, PSRTI_PHASE_SHED);
    psrti_place_leave(&core->job->tasks[task]);
    core->may_grow |= core->job->discovers;
}

/* The host that it has, unless it is to leave it; else the one with the fewest tasks. UINT_MAX:
 * none. */
static unsigned choose_host(const psrti_core_t *core, size_t task)
{
    const psrti_core_task_t *t = &core->tasks[task];
    unsigned best = UINT_MAX, best_load = UINT_MAX;
    int stays = is_usable(core, t->host) && has_room(core, t->host, task);
    if (t->avoid != t->host && stays) return t->host;
    for (unsigned i = 0; i < core->host_count; i++) {
        if (i == t->avoid || !is_usable(core, i) || !has_room(core, i, task)) continue;
        unsigned tasks = load(core, i, task);
        if (tasks >= best_load) continue;
        best = i;
        best_load = tasks;
    }
    return best == UINT_MAX && stays ? t->host : best;
}

static void start(psrti_core_t *core, size_t task, unsigned host)
{
    psrti_core_task_t *t = &core->tasks[task];
    if (host != t->host || !has_place(core, task))
        psrti_place_move(core->job, &core->job->tasks[task], host);
    t->host = host;
    t->avoid = UINT_MAX;
    t->unplaced_ns = 0;
    t->start_ns = core->now;
    t->gone = t->by_user = t->leaving = t->shedding = t->growable = 0;
    t->output_open = 1;
    psrti_core_set_phase(core, task, PSRTI_PHASE_STARTING);
    psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_DO_START, .task = task, .host = host });
}

/* No host can take it: its role goes on without it, or it waits for a while. */
static void wait_for_host(psrti_core_t *core, size_t task)
{
    psrti_core_task_t *t = &core->tasks[task];
    if (!t->unplaced_ns) t->unplaced_ns = core->now;
    if (psrti_core_shed(core, task, 1)) {
        t->shedding = 0;
        psrti_core_set_shed(core, task);
    } else if (core->now >= t->unplaced_ns + core->params.host_wait_ns) {
        t->end = (psrti_end_t){ .kind = PSRTI_END_HOST_LOST, .time_ns = core->now };
        psrti_core_fail(core, task);
    }
}

/* Tasks of a role lie side by side, and want the same. */
static void grow(psrti_core_t *core)
{
    const psrti_role_t *full = NULL; /* has no room for another one */
    core->may_grow = 0;
    for (size_t i = 0; i < core->count; i++) {
        const psrti_role_t *role = core->job->tasks[i].role;
        psrti_core_task_t *t = &core->tasks[i];
        if (t->phase != PSRTI_PHASE_SHED || !t->growable || role == full ||
            psrti_core_alive(core, role) >= role->max)
            continue;
        unsigned host = choose_host(core, i);
        if (host == UINT_MAX && t->avoid == UINT_MAX) full = role;
        if (host == UINT_MAX) continue;
        t->attempt += (unsigned)t->ever_started;
        psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_SAY_GROW, .task = i, .host = host });
        start(core, i, host);
    }
}

void psrti_core_place(psrti_core_t *core)
{
    for (unsigned i = 0; i < core->host_count; i++) {
        psrti_core_host_t *h = &core->hosts[i];
        if (!is_awaited(h) || core->now < h->until_ns) continue;
        if (h->up) {
            h->cooling = 0;
            core->may_grow = 1;
        } else {
            psrti_core_reach(core, i);
        }
    }
    for (size_t i = 0; i < core->count && !core->cause; i++) {
        psrti_core_task_t *t = &core->tasks[i];
        if (t->phase != PSRTI_PHASE_PENDING || core->now < t->not_before_ns) continue;
        unsigned host = choose_host(core, i);
        if (host == UINT_MAX)
            wait_for_host(core, i);
        else
            start(core, i, host);
    }
    if (core->may_grow && !core->cause) grow(core);
}

uint64_t psrti_core_place_deadline(const psrti_core_t *core)
{
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; i < core->count; i++) {
        const psrti_core_task_t *t = &core->tasks[i];
        if (t->phase != PSRTI_PHASE_PENDING) continue;
        uint64_t due =
            t->unplaced_ns ? t->unplaced_ns + core->params.host_wait_ns : t->not_before_ns;
        at = PSRTI_MIN(at, due);
    }
    for (unsigned i = 0; i < core->host_count; i++)
        if (is_awaited(&core->hosts[i])) at = PSRTI_MIN(at, core->hosts[i].until_ns);
    return at;
}
