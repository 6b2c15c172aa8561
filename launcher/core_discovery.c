/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts that come and go while the job runs: lost ones, and those that a discovery lists or does not. */
#include "launcher/core_state.h"

/* The job would end with it, were it to leave its host. */
static int is_bound(const psrti_core_t *core, size_t task)
{
    const psrti_role_t *role = core->job->tasks[task].role;
    return !psrti_core_has_ended(&core->tasks[task]) && !psrti_core_may_follow(core, role) &&
           !psrti_core_is_optional(role);
}

/* Told once. */
static int must_stay(psrti_core_t *core, unsigned host)
{
    for (size_t i = 0; i < core->count; i++) {
        if (core->tasks[i].host != host || !is_bound(core, i)) continue;
        if (!core->hosts[host].told)
            psrti_core_push(core,
                            (psrti_action_t){ .kind = PSRTI_SAY_STAYS, .task = i, .host = host });
        core->hosts[host].told = 1;
        return 1;
    }
    return 0;
}

static void leave(psrti_core_t *core, unsigned host)
{
    core->hosts[host].named = 0;
    psrti_core_push(core, (psrti_action_t){ .kind = PSRTI_SAY_LEAVING, .host = host });
    for (size_t i = 0; i < core->count; i++) {
        psrti_core_task_t *t = &core->tasks[i];
        if (t->host != host ||
            (t->phase != PSRTI_PHASE_STARTING && t->phase != PSRTI_PHASE_RUNNING))
            continue;
        t->leaving = 1;
        psrti_core_push(
            core, (psrti_action_t){ .kind = PSRTI_DO_STOP, .task = i, .how = PSRTI_STOP_TERM });
    }
}

static void come_again(psrti_core_t *core, unsigned host)
{
    core->hosts[host].named = 1;
    if (core->hosts[host].up)
        core->may_grow = 1;
    else
        psrti_core_reach(core, host);
}

void psrti_core_host_named(psrti_core_t *core, uint64_t now, unsigned host, int named)
{
    psrti_core_host_t *h = &core->hosts[host];
    core->now = now;
    if (psrti_core_is_ending(core))
        h->named = named;
    else if (named && !h->named)
        come_again(core, host);
    else if (!named && h->named && !must_stay(core, host))
        leave(core, host);
    psrti_core_go_on(core);
}

void psrti_core_host_added(psrti_core_t *core, uint64_t now)
{
    unsigned host = (unsigned)core->host_count++;
    core->now = now;
    core->hosts[host] = (psrti_core_host_t){ .named = 1, .cooldown_ns = core->params.cooldown_ns };
    if (!psrti_core_is_ending(core)) psrti_core_reach(core, host);
    psrti_core_go_on(core);
}

void psrti_core_host_lost(psrti_core_t *core, uint64_t now, unsigned host)
{
    core->now = now;
    psrti_core_host_down(core, host);
    psrti_core_go_on(core);
}

void psrti_core_host_up(psrti_core_t *core, uint64_t now, unsigned host)
{
    core->now = now;
    psrti_core_host_back(core, host);
    psrti_core_go_on(core);
}
