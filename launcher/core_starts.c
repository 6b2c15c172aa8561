/* SPDX-License-Identifier: Apache-2.0 */
/* How long a start may take. */
#include "base/util.h"
#include "launcher/core_state.h"

/* When a start has taken too long, or what is left of it hinders the next one for too long. */
static uint64_t deadline(const psrti_core_t *core, size_t task)
{
    const psrti_core_task_t *t = &core->tasks[task];
    if (t->phase == PSRTI_PHASE_STARTING && core->params.launch_timeout_ns)
        return t->start_ns + core->params.launch_timeout_ns;
    if (t->phase == PSRTI_PHASE_ENDING && t->end.kind == PSRTI_END_NOT_LAUNCHED && t->again &&
        !t->gone)
        return t->since_ns + PSRTI_CORE_STUCK_NS;
    return UINT64_MAX;
}

/* Whatever holds a start up, its guardian may be as deaf. */
void psrti_core_check_starts(psrti_core_t *core)
{
    const psrti_end_t end = { .kind = PSRTI_END_NOT_LAUNCHED, .time_ns = core->now };
    for (size_t i = 0; i < core->count && !psrti_core_is_ending(core); i++) {
        if (core->now < deadline(core, i)) continue;
        if (core->tasks[i].phase == PSRTI_PHASE_ENDING) {
            core->tasks[i].again = 0;
            psrti_core_fail(core, i);
            continue;
        }
        psrti_core_push(
            core, (psrti_action_t){ .kind = PSRTI_DO_STOP, .task = i, .how = PSRTI_STOP_ABANDON });
        psrti_core_ended(core, core->now, i, &end);
    }
}

uint64_t psrti_core_start_deadline(const psrti_core_t *core)
{
    uint64_t at = UINT64_MAX;
    for (size_t i = 0; i < core->count; i++)
        at = PSRTI_MIN(at, deadline(core, i));
    return at;
}
