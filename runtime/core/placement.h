/* SPDX-License-Identifier: Apache-2.0 */
/* Where an element lives: table -> slice -> virtual shard -> owner. Pure arithmetic.
 *
 * Invariant: every legal element has exactly one owner, for any number of owners, and all tasks
 * compute the same one from the same view. */
#ifndef PSRTI_PLACEMENT_H
#define PSRTI_PLACEMENT_H

#include "base/util.h"

#ifndef PSRTI_SLICE_SHIFT /* the simulator compiles its own cores with small slices */
#define PSRTI_SLICE_SHIFT 18
#endif
#define PSRTI_SLICE_ELEMS (1ull << PSRTI_SLICE_SHIFT) /* of every dtype */

static inline uint64_t psrti_slice_count(uint64_t elements)
{
    return (elements + PSRTI_SLICE_ELEMS - 1) >> PSRTI_SLICE_SHIFT;
}
static inline uint64_t psrti_slice_first(uint64_t slice) { return slice << PSRTI_SLICE_SHIFT; }
static inline uint64_t psrti_slice_len(uint64_t elements, uint64_t slice)
{
    return PSRTI_MIN(PSRTI_SLICE_ELEMS, elements - psrti_slice_first(slice));
}
/* Slice i of a table lives in virtual shard (hash(name) + i) mod V. */
static inline uint16_t psrti_slice_vshard(uint64_t name_hash, uint64_t slice, uint32_t vshards)
{
    return (uint16_t)((name_hash % vshards + slice % vshards) % vshards);
}

/* Task ids name a place in the job: role and rank. */
typedef enum psrti_role { PSRTI_COORDINATOR = 1, PSRTI_SERVER = 2, PSRTI_WORKER = 3 } psrti_role_t;
#define PSRTI_TASK(role, rank) ((uint32_t)(role) << 24 | (uint32_t)(rank))
#define PSRTI_TASK_ROLE(task) ((psrti_role_t)((task) >> 24))
#define PSRTI_TASK_RANK(task) ((task)&0xffffffu)
/* "worker:3" */
const char *psrti_task_name(uint32_t task, char buf[32]);

/* First layout of V virtual shards over owners: smooth weighted round-robin with equal weights. */
void psrti_place_vshards(uint32_t vshards, uint32_t owners, uint16_t *owner_of_vshard);

#endif
