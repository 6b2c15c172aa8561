/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/core/placement.h"

const char *psrti_task_name(uint32_t task, char buf[32])
{
    static const char *const roles[] = { "task", "coordinator", "server", "worker" };
    uint32_t role = PSRTI_TASK_ROLE(task);

    if (role == PSRTI_COORDINATOR) return snprintf(buf, 32, "coordinator"), buf;
    if (role >= PSRTI_COUNT(roles)) role = 0;
    snprintf(buf, 32, "%s:%u", roles[role], role ? PSRTI_TASK_RANK(task) : task);
    return buf;
}

/* Smooth weighted round-robin with equal weights visits the owners in turn. Consecutive slices of a
 * table have consecutive virtual shards, so every table is spread evenly too. */
void psrti_place_vshards(uint32_t vshards, uint32_t owners, uint16_t *owner_of_vshard)
{
    for (uint32_t v = 0; v < vshards; v++)
        owner_of_vshard[v] = (uint16_t)(v % owners);
}
