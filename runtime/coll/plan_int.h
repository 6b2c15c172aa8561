/* SPDX-License-Identifier: Apache-2.0 */
/* Writing plans. A step that finds no memory marks the plan, which psrti_coll_plan_new then refuses. */
#ifndef PSRTI_COLL_PLAN_INT_H
#define PSRTI_COLL_PLAN_INT_H

#include "runtime/coll/plan.h"

typedef psrti_coll_plan_t plan_t;
typedef psrti_coll_ref_t ref_t;

static inline ref_t in_block(uint32_t block) { return (ref_t){ PSRTI_COLL_IN, block }; }
static inline ref_t out_block(uint32_t block) { return (ref_t){ PSRTI_COLL_OUT, block }; }
static inline ref_t tmp_block(uint32_t block) { return (ref_t){ PSRTI_COLL_TMP, block }; }

/* rank + by, and rank - by, on the circle of ranks; by < ranks. */
static inline uint32_t ahead(const plan_t *p, uint32_t rank, uint32_t by)
{
    return (rank + by) % p->ranks;
}
static inline uint32_t behind(const plan_t *p, uint32_t rank, uint32_t by)
{
    return (rank + p->ranks - by) % p->ranks;
}

/* Ranks counted from the root. */
static inline uint32_t from_root(const plan_t *p, uint32_t rank)
{
    return behind(p, rank, p->root);
}
static inline uint32_t to_rank(const plan_t *p, uint32_t v) { return ahead(p, v, p->root); }

/* Writes this part of a plan, from the current round on. p->nblocks is then that of the part. */
void psrti_coll_within(plan_t *p, const psrti_coll_part_t *part, void (*write)(plan_t *));

/* All go to the round `p->rounds - 1` at first; psrti_coll_round begins the next one. */
void psrti_coll_round(plan_t *p);
void psrti_coll_send(plan_t *p, uint32_t peer, ref_t src, uint32_t nblocks);
void psrti_coll_recv(plan_t *p, uint32_t peer, ref_t dst, uint32_t nblocks);
/* dst = src + received, or received + src if the peer's contributions come first. */
void psrti_coll_fold(plan_t *p, uint32_t peer, int peer_first, ref_t src, ref_t dst,
                     uint32_t nblocks);
void psrti_coll_add(plan_t *p, ref_t src, ref_t dst, uint32_t nblocks);
void psrti_coll_copy(plan_t *p, ref_t src, ref_t dst, uint32_t nblocks);
/* Copies a row onto a circle of p->ranks blocks, from `first` of the circle on. */
void psrti_coll_copy_to_circle(plan_t *p, ref_t src, psrti_coll_buffer_t circle, uint32_t first,
                               uint32_t nblocks);
void psrti_coll_copy_from_circle(plan_t *p, psrti_coll_buffer_t circle, uint32_t first, ref_t dst,
                                 uint32_t nblocks);

/* One a row of the table in plan.c. */
void psrti_coll_direct_allreduce(plan_t *p);
void psrti_coll_direct_reduce(plan_t *p);
void psrti_coll_direct_broadcast(plan_t *p);
void psrti_coll_direct_allgather(plan_t *p);
void psrti_coll_direct_gather(plan_t *p);
void psrti_coll_direct_scatter(plan_t *p);
void psrti_coll_direct_alltoall(plan_t *p);
void psrti_coll_ring_allreduce(plan_t *p);
void psrti_coll_ring_reduce(plan_t *p);
void psrti_coll_ring_reduce_scatter(plan_t *p);
void psrti_coll_ring_allgather(plan_t *p);
void psrti_coll_scatter_ring_broadcast(plan_t *p);
void psrti_coll_halving_allreduce(plan_t *p);
void psrti_coll_halving_reduce_scatter(plan_t *p);
void psrti_coll_doubling_allreduce(plan_t *p);
void psrti_coll_binomial_reduce(plan_t *p);
void psrti_coll_binomial_broadcast(plan_t *p);
void psrti_coll_binomial_allreduce(plan_t *p);
void psrti_coll_binomial_gather(plan_t *p);
void psrti_coll_binomial_scatter(plan_t *p);
void psrti_coll_two_trees_reduce(plan_t *p);
void psrti_coll_two_trees_broadcast(plan_t *p);
void psrti_coll_two_trees_allreduce(plan_t *p);
void psrti_coll_pairwise_allreduce(plan_t *p);
void psrti_coll_pairwise_reduce_scatter(plan_t *p);
void psrti_coll_pairwise_alltoall(plan_t *p);
void psrti_coll_bruck_allgather(plan_t *p);
void psrti_coll_bruck_alltoall(plan_t *p);
void psrti_coll_dissemination_barrier(plan_t *p);
void psrti_coll_one_leader_allreduce(plan_t *p);
void psrti_coll_one_leader_reduce(plan_t *p);
void psrti_coll_one_leader_broadcast(plan_t *p);
void psrti_coll_one_leader_barrier(plan_t *p);
void psrti_coll_all_leaders_allreduce(plan_t *p);
void psrti_coll_all_leaders_allgather(plan_t *p);
void psrti_coll_all_leaders_reduce_scatter(plan_t *p);
void psrti_coll_all_leaders_alltoall(plan_t *p);
void psrti_coll_one_leader_gather(plan_t *p);
void psrti_coll_one_leader_scatter(plan_t *p);

#endif
