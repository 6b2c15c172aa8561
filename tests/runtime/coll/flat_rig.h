/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a flat group that carry out the same random sequence, and check each result. */
#ifndef PSRT_TESTS_FLAT_RIG_H
#define PSRT_TESTS_FLAT_RIG_H

#include "runtime/coll/flat.h"

#define FLAT_RIG_SEGMENT ((PSRTI_FLAT_BYTES + 4095u) / 4096u * 4096u) /* whole pages */
/* Where the word of odd operations stands: the format is fixed. */
#define FLAT_RIG_SLOT_1 4352u
/* Where sums begin; that of odd operations; the lap. */
#define FLAT_RIG_SUMS 8576u
#define FLAT_RIG_SUM_1 (FLAT_RIG_SUMS + 2 * 128u + PSRTI_FLAT_WIDE)
#define FLAT_RIG_LAP (FLAT_RIG_SUMS + 2 * (128u + PSRTI_FLAT_WIDE))

/* In memory shared with children. */
typedef struct flat_rig {
    uint32_t members, steps;
    uint64_t seed;
    void *segments[PSRTI_FLAT_MEMBERS];
    int bells[PSRTI_FLAT_MEMBERS]; /* eventfds: a message that wakes */
    char failures[PSRTI_FLAT_MEMBERS][200];
} flat_rig_t;

typedef struct flat_member {
    flat_rig_t *rig;
    uint32_t member;
} flat_member_t;

flat_rig_t *flat_rig_new(uint32_t members, uint32_t steps, uint64_t seed);
void flat_rig_free(flat_rig_t *rig);
/* What a member does, in its own thread or process; rig->failures tells what went wrong. */
void flat_rig_run(const flat_member_t *m);

#endif
