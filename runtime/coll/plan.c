/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/coll/plan.h"

#include <stdlib.h>

#include "base/util.h"
#include "runtime/coll/plan_int.h"

const char *const psrti_collective_names[PSRTI_COLL_COUNT] = {
#define X(name, text) text,
    PSRTI_COLLECTIVES(X)
#undef X
};

const char *const psrti_coll_algorithm_names[PSRTI_ALG_COUNT] = {
#define X(name, text) text,
    PSRTI_COLL_ALGORITHMS(X)
#undef X
};

const char *psrti_collective_name(psrti_collective_t collective)
{
    return psrti_collective_names[collective];
}

const char *psrti_coll_algorithm_name(psrti_coll_algorithm_t algorithm)
{
    return psrti_coll_algorithm_names[algorithm];
}

/* ---- steps ------------------------------------------------------------------------------------- */

void psrti_coll_round(plan_t *p) { p->rounds++; }

void psrti_coll_within(plan_t *p, const psrti_coll_part_t *part, void (*write)(plan_t *))
{
    const plan_t whole = *p;
    p->ranks = part->count;
    p->rank = part->own;
    p->root = part->root;
    p->nblocks = 1;
    p->part = *part;
    write(p);
    p->ranks = whole.ranks;
    p->rank = whole.rank;
    p->root = whole.root;
    p->part = whole.part;
    p->tmp = PSRTI_MAX(p->tmp, whole.tmp);
}

static uint32_t rank_of(const psrti_coll_part_t *part, uint32_t i)
{
    if (!part->list) return i;
    if (!part->starts) return part->list[i];
    return part->list[part->starts[i] + (i == part->root ? part->root_lane : part->lane)];
}

static ref_t whole_ref(const plan_t *p, ref_t ref)
{
    const psrti_coll_part_t *part = &p->part;
    int is_in = ref.buffer == PSRTI_COLL_IN;
    if (ref.buffer == PSRTI_COLL_TMP) return ref;
    if (is_in ? part->has_ranks_in : part->has_ranks_out) ref.block = rank_of(part, ref.block);
    return (ref_t){ is_in ? part->in : part->out, ref.block + part->first };
}

static int is_same(ref_t a, ref_t b) { return a.buffer == b.buffer && a.block == b.block; }

static void add_step(plan_t *p, psrti_coll_step_t step)
{
    step.src = whole_ref(p, step.src);
    step.dst = whole_ref(p, step.dst);
    if (step.kind == PSRTI_COLL_COPY && is_same(step.src, step.dst)) return;
    step.peer = rank_of(&p->part, step.peer);
    if (p->nsteps == p->room) {
        size_t room = p->room ? 2 * p->room : 16;
        psrti_coll_step_t *steps = realloc(p->steps, room * sizeof *steps);
        if (!steps) {
            p->failed = 1;
            return;
        }
        p->steps = steps;
        p->room = room;
    }
    step.round = p->rounds - 1;
    p->steps[p->nsteps++] = step;
}

void psrti_coll_send(plan_t *p, uint32_t peer, ref_t src, uint32_t nblocks)
{
    add_step(p, (psrti_coll_step_t){
                    .kind = PSRTI_COLL_SEND, .peer = peer, .src = src, .nblocks = nblocks });
}

void psrti_coll_recv(plan_t *p, uint32_t peer, ref_t dst, uint32_t nblocks)
{
    add_step(p, (psrti_coll_step_t){
                    .kind = PSRTI_COLL_RECV, .peer = peer, .dst = dst, .nblocks = nblocks });
}

void psrti_coll_fold(plan_t *p, uint32_t peer, int peer_first, ref_t src, ref_t dst,
                     uint32_t nblocks)
{
    add_step(p,
             (psrti_coll_step_t){ .kind = peer_first ? PSRTI_COLL_FOLD_FIRST : PSRTI_COLL_FOLD_LAST,
                                  .peer = peer,
                                  .src = src,
                                  .dst = dst,
                                  .nblocks = nblocks });
}

void psrti_coll_add(plan_t *p, ref_t src, ref_t dst, uint32_t nblocks)
{
    add_step(p, (psrti_coll_step_t){
                    .kind = PSRTI_COLL_ADD, .src = src, .dst = dst, .nblocks = nblocks });
}

void psrti_coll_copy(plan_t *p, ref_t src, ref_t dst, uint32_t nblocks)
{
    add_step(p, (psrti_coll_step_t){
                    .kind = PSRTI_COLL_COPY, .src = src, .dst = dst, .nblocks = nblocks });
}

void psrti_coll_copy_to_circle(plan_t *p, ref_t src, psrti_coll_buffer_t circle, uint32_t first,
                               uint32_t nblocks)
{
    uint32_t head = PSRTI_MIN(nblocks, p->ranks - first);
    psrti_coll_copy(p, src, (ref_t){ circle, first }, head);
    if (head < nblocks)
        psrti_coll_copy(p, (ref_t){ src.buffer, src.block + head }, (ref_t){ circle, 0 },
                        nblocks - head);
}

void psrti_coll_copy_from_circle(plan_t *p, psrti_coll_buffer_t circle, uint32_t first, ref_t dst,
                                 uint32_t nblocks)
{
    uint32_t head = PSRTI_MIN(nblocks, p->ranks - first);
    psrti_coll_copy(p, (ref_t){ circle, first }, dst, head);
    if (head < nblocks)
        psrti_coll_copy(p, (ref_t){ circle, 0 }, (ref_t){ dst.buffer, dst.block + head },
                        nblocks - head);
}

/* ---- the table --------------------------------------------------------------------------------- */

typedef struct row {
    psrti_collective_t collective;
    psrti_coll_algorithm_t algorithm;
    void (*write)(plan_t *p);
    enum {
        AS_NUMBERED,   /* ranks follow one another by number                                */
        BY_TOPOLOGY,   /* as they are near one another, and blocks are no rank's            */
        GATHERS_PARTS, /* the same, and the blocks of OUT belong to ranks                  */
        SCATTERS_PARTS /* and those of IN do                                               */
    } order;
    int power_of_two; /* only for such numbers of ranks */
} row_t;

#define ROW(collective, algorithm, order, write)                                                   \
    {                                                                                              \
        PSRTI_COLL_##collective, PSRTI_ALG_##algorithm, psrti_coll_##write, order, 0               \
    }

static const row_t table[] = {
    ROW(ALLREDUCE, DIRECT, AS_NUMBERED, direct_allreduce),
    ROW(ALLREDUCE, RING, BY_TOPOLOGY, ring_allreduce),
    ROW(ALLREDUCE, HALVING, BY_TOPOLOGY, halving_allreduce),
    ROW(ALLREDUCE, DOUBLING, BY_TOPOLOGY, doubling_allreduce),
    ROW(ALLREDUCE, BINOMIAL, BY_TOPOLOGY, binomial_allreduce),
    ROW(ALLREDUCE, TWO_TREES, BY_TOPOLOGY, two_trees_allreduce),
    ROW(ALLREDUCE, PAIRWISE, AS_NUMBERED, pairwise_allreduce),
    ROW(REDUCE, DIRECT, AS_NUMBERED, direct_reduce),
    ROW(REDUCE, RING, BY_TOPOLOGY, ring_reduce),
    ROW(REDUCE, BINOMIAL, BY_TOPOLOGY, binomial_reduce),
    ROW(REDUCE, TWO_TREES, BY_TOPOLOGY, two_trees_reduce),
    ROW(BROADCAST, DIRECT, AS_NUMBERED, direct_broadcast),
    ROW(BROADCAST, BINOMIAL, BY_TOPOLOGY, binomial_broadcast),
    ROW(BROADCAST, TWO_TREES, BY_TOPOLOGY, two_trees_broadcast),
    ROW(BROADCAST, SCATTER_RING, BY_TOPOLOGY, scatter_ring_broadcast),
    ROW(ALLGATHER, DIRECT, AS_NUMBERED, direct_allgather),
    ROW(ALLGATHER, RING, GATHERS_PARTS, ring_allgather),
    ROW(ALLGATHER, BRUCK, AS_NUMBERED, bruck_allgather),
    ROW(REDUCE_SCATTER, RING, SCATTERS_PARTS, ring_reduce_scatter),
    { PSRTI_COLL_REDUCE_SCATTER, PSRTI_ALG_HALVING, psrti_coll_halving_reduce_scatter, AS_NUMBERED,
      1 },
    ROW(REDUCE_SCATTER, PAIRWISE, AS_NUMBERED, pairwise_reduce_scatter),
    ROW(ALLTOALL, DIRECT, AS_NUMBERED, direct_alltoall),
    ROW(ALLTOALL, PAIRWISE, AS_NUMBERED, pairwise_alltoall),
    ROW(ALLTOALL, BRUCK, AS_NUMBERED, bruck_alltoall),
    ROW(GATHER, DIRECT, AS_NUMBERED, direct_gather),
    ROW(GATHER, BINOMIAL, AS_NUMBERED, binomial_gather),
    ROW(SCATTER, DIRECT, AS_NUMBERED, direct_scatter),
    ROW(SCATTER, BINOMIAL, AS_NUMBERED, binomial_scatter),
    ROW(BARRIER, DISSEMINATION, AS_NUMBERED, dissemination_barrier),
    ROW(ALLREDUCE, ONE_LEADER, AS_NUMBERED, one_leader_allreduce),
    ROW(ALLREDUCE, ALL_LEADERS, AS_NUMBERED, all_leaders_allreduce),
    ROW(REDUCE, ONE_LEADER, AS_NUMBERED, one_leader_reduce),
    ROW(BROADCAST, ONE_LEADER, AS_NUMBERED, one_leader_broadcast),
    ROW(ALLGATHER, ALL_LEADERS, AS_NUMBERED, all_leaders_allgather),
    ROW(REDUCE_SCATTER, ALL_LEADERS, AS_NUMBERED, all_leaders_reduce_scatter),
    ROW(ALLTOALL, ALL_LEADERS, AS_NUMBERED, all_leaders_alltoall),
    ROW(GATHER, ONE_LEADER, AS_NUMBERED, one_leader_gather),
    ROW(SCATTER, ONE_LEADER, AS_NUMBERED, one_leader_scatter),
    ROW(BARRIER, ONE_LEADER, AS_NUMBERED, one_leader_barrier),
};

static const row_t *find_row(psrti_collective_t collective, psrti_coll_algorithm_t algorithm)
{
    for (size_t i = 0; i < PSRTI_COUNT(table); i++)
        if (table[i].collective == collective && table[i].algorithm == algorithm) return &table[i];
    return NULL;
}

static int does(const row_t *row, uint32_t ranks)
{
    return row && (!row->power_of_two || (ranks & (ranks - 1)) == 0);
}

int psrti_coll_plan_exists(psrti_collective_t collective, psrti_coll_algorithm_t algorithm,
                           uint32_t ranks)
{
    return does(find_row(collective, algorithm), ranks);
}

int psrti_coll_plan_packs(psrti_collective_t collective, psrti_coll_algorithm_t algorithm)
{
    return algorithm == PSRTI_ALG_BRUCK ||
           (collective == PSRTI_COLL_ALLTOALL && algorithm == PSRTI_ALG_ALL_LEADERS);
}

/* Where hosts swap blocks, there is one for each rank here and each rank there. */
uint64_t psrti_coll_plan_widest(psrti_collective_t collective, psrti_coll_algorithm_t algorithm,
                                const psrti_coll_topo_t *topo)
{
    uint64_t most = topo->most;
    int swaps = collective == PSRTI_COLL_ALLTOALL && algorithm == PSRTI_ALG_ALL_LEADERS;
    return swaps ? PSRTI_MAX(topo->ranks, most * most) : topo->ranks;
}

/* What one rank alone does: its input is the result. */
static void write_alone(plan_t *p, psrti_collective_t collective)
{
    if (collective != PSRTI_COLL_BARRIER) psrti_coll_copy(p, in_block(0), out_block(0), 1);
}

/* Hosts one after the other: each boundary between two is crossed once. */
static void write_by_topology(plan_t *p, const row_t *row)
{
    const psrti_coll_topo_t *t = p->topo;
    psrti_coll_part_t all = { .list = t->order,
                              .count = t->ranks,
                              .own = t->at[p->rank],
                              .root = t->at[p->root],
                              .in = PSRTI_COLL_IN,
                              .out = PSRTI_COLL_OUT,
                              .has_ranks_in = row->order == SCATTERS_PARTS,
                              .has_ranks_out = row->order == GATHERS_PARTS };
    psrti_coll_within(p, &all, row->write);
}

psrt_status_t psrti_coll_plan_new(psrti_collective_t collective, psrti_coll_algorithm_t algorithm,
                                  const psrti_coll_topo_t *topo, uint32_t rank, uint32_t root,
                                  psrti_coll_plan_t **plan_p)
{
    const row_t *row = find_row(collective, algorithm);
    if (!does(row, topo->ranks)) return PSRT_ERR_UNSUPPORTED;
    plan_t *p = calloc(1, sizeof *p);
    if (!p) return PSRT_ERR_NO_MEMORY;

    *p = (plan_t){ .ranks = topo->ranks, .rank = rank, .root = root, .topo = topo };
    p->nblocks = p->rounds = 1;
    p->part.out = PSRTI_COLL_OUT;
    if (topo->ranks == 1)
        write_alone(p, collective);
    else if (row->order != AS_NUMBERED)
        write_by_topology(p, row);
    else
        row->write(p);
    if (p->failed) {
        psrti_coll_plan_free(p);
        return PSRT_ERR_NO_MEMORY;
    }
    *plan_p = p;
    return PSRT_OK;
}

void psrti_coll_plan_free(psrti_coll_plan_t *plan)
{
    if (!plan) return;
    free(plan->steps);
    free(plan);
}
