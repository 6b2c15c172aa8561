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

static void add_step(plan_t *p, psrti_coll_step_t step)
{
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
    int power_of_two; /* only for such numbers of ranks */
} row_t;

#define ROW(collective, algorithm, write)                                                          \
    {                                                                                              \
        PSRTI_COLL_##collective, PSRTI_ALG_##algorithm, psrti_coll_##write, 0                      \
    }

static const row_t table[] = {
    ROW(ALLREDUCE, DIRECT, direct_allreduce),
    ROW(ALLREDUCE, RING, ring_allreduce),
    ROW(ALLREDUCE, HALVING, halving_allreduce),
    ROW(ALLREDUCE, DOUBLING, doubling_allreduce),
    ROW(ALLREDUCE, BINOMIAL, binomial_allreduce),
    ROW(ALLREDUCE, TWO_TREES, two_trees_allreduce),
    ROW(REDUCE, DIRECT, direct_reduce),
    ROW(REDUCE, RING, ring_reduce),
    ROW(REDUCE, BINOMIAL, binomial_reduce),
    ROW(REDUCE, TWO_TREES, two_trees_reduce),
    ROW(BROADCAST, DIRECT, direct_broadcast),
    ROW(BROADCAST, BINOMIAL, binomial_broadcast),
    ROW(BROADCAST, TWO_TREES, two_trees_broadcast),
    ROW(BROADCAST, SCATTER_RING, scatter_ring_broadcast),
    ROW(ALLGATHER, DIRECT, direct_allgather),
    ROW(ALLGATHER, RING, ring_allgather),
    ROW(ALLGATHER, BRUCK, bruck_allgather),
    ROW(REDUCE_SCATTER, RING, ring_reduce_scatter),
    { PSRTI_COLL_REDUCE_SCATTER, PSRTI_ALG_HALVING, psrti_coll_halving_reduce_scatter, 1 },
    ROW(REDUCE_SCATTER, PAIRWISE, pairwise_reduce_scatter),
    ROW(ALLTOALL, DIRECT, direct_alltoall),
    ROW(ALLTOALL, PAIRWISE, pairwise_alltoall),
    ROW(ALLTOALL, BRUCK, bruck_alltoall),
    ROW(GATHER, DIRECT, direct_gather),
    ROW(GATHER, BINOMIAL, binomial_gather),
    ROW(SCATTER, DIRECT, direct_scatter),
    ROW(SCATTER, BINOMIAL, binomial_scatter),
    ROW(BARRIER, DISSEMINATION, dissemination_barrier),
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

/* What one rank alone does: its input is the result. */
static void write_alone(plan_t *p, psrti_collective_t collective)
{
    if (collective != PSRTI_COLL_BARRIER) psrti_coll_copy(p, in_block(0), out_block(0), 1);
}

psrt_status_t psrti_coll_plan_new(psrti_collective_t collective, psrti_coll_algorithm_t algorithm,
                                  uint32_t ranks, uint32_t rank, uint32_t root,
                                  psrti_coll_plan_t **plan_p)
{
    const row_t *row = find_row(collective, algorithm);
    if (!does(row, ranks)) return PSRT_ERR_UNSUPPORTED;
    plan_t *p = calloc(1, sizeof *p);
    if (!p) return PSRT_ERR_NO_MEMORY;

    *p = (plan_t){ .ranks = ranks, .rank = rank, .root = root, .nblocks = 1, .rounds = 1 };
    if (ranks == 1)
        write_alone(p, collective);
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
