/* SPDX-License-Identifier: Apache-2.0 */
/* Carries the plans of all ranks of a collective out, in one process, in a random order that the rules of
 * plan.h allow, on values that remember how they were made. */
#ifndef PSRT_TESTS_PLAN_RIG_H
#define PSRT_TESTS_PLAN_RIG_H

#include "runtime/coll/plan.h"

#define RIG_RANKS 33

/* A value: who contributed, to which block of the input, and in which order of additions. Two values with the
 * same number are the same bits whatever is added; a + b is not b + a, which have other bits for a maximum of
 * zeros and for NaN. 0: never written. */
typedef uint32_t value_t;

typedef struct rig {
    psrti_collective_t collective;
    psrti_coll_algorithm_t algorithm;
    uint32_t ranks, root;
    const psrti_coll_topo_t *topo;
    int in_place;
    uint64_t random;
    psrti_coll_plan_t *plan[RIG_RANKS];
    value_t *in[RIG_RANKS], *out[RIG_RANKS], *tmp[RIG_RANKS];
    uint64_t heard[RIG_RANKS];                       /* ranks that have begun, for barriers */
    uint64_t messages[RIG_RANKS], blocks[RIG_RANKS]; /* that it sent      */
    uint64_t crossed[RIG_RANKS],
        crossings[RIG_RANKS]; /* blocks, messages to other hosts, by host */
} rig_t;

/* 0: the algorithm does not do that. */
int rig_open(rig_t *rig, psrti_collective_t collective, psrti_coll_algorithm_t algorithm,
             const psrti_coll_topo_t *topo, uint32_t root, int in_place);
/* Ranks that are dealt to `hosts` hosts at random, at random places; 0: each has its own. */
psrti_coll_topo_t *rig_topo(uint32_t ranks, uint32_t hosts, uint64_t seed);
void rig_close(rig_t *rig);

/* Fails when nobody can go on, a step reads what was never written, two steps of a round get in each other's
 * way, a contribution is added twice, or messages do not match. */
void rig_run(rig_t *rig);

/* The value that rank gave as block `block`. */
value_t rig_given(uint32_t rank, uint32_t block);
/* Bits of the ranks that contributed, and the block they contributed to. */
uint64_t rig_contributors(value_t value);
uint32_t rig_block(value_t value);
/* What the name of a failing case is. */
const char *rig_name(const rig_t *rig);

#endif
