/* SPDX-License-Identifier: Apache-2.0 */
/* Rings: each rank sends to the next and receives from the one before it, p - 1 rounds a phase. They move the
 * fewest bytes, 1/p of the data a round, and are slow to start. */
#include "base/util.h"
#include "runtime/coll/plan_int.h"

static uint32_t next(const plan_t *p) { return ahead(p, p->rank, 1); }
static uint32_t previous(const plan_t *p) { return behind(p, p->rank, 1); }

/* Every rank holds block `own` of OUT, the one behind it `own` - 1, and so on. */
static void gather_around(plan_t *p, uint32_t own, ref_t first)
{
    for (uint32_t k = 0; k + 1 < p->ranks; k++) {
        if (k) psrti_coll_round(p);
        psrti_coll_send(p, next(p), k ? out_block(behind(p, own, k)) : first, 1);
        psrti_coll_recv(p, previous(p), out_block(behind(p, own, k + 1)), 1);
    }
}

/* A block starts one rank behind the one where it ends and collects on its way. */
void psrti_coll_ring_allreduce(plan_t *p)
{
    p->nblocks = p->ranks;
    for (uint32_t k = 0; k + 1 < p->ranks; k++) {
        uint32_t send = behind(p, p->rank, k), fold = behind(p, send, 1);
        if (k) psrti_coll_round(p);
        psrti_coll_send(p, next(p), k ? out_block(send) : in_block(send), 1);
        psrti_coll_fold(p, previous(p), 1, in_block(fold), out_block(fold), 1);
    }
    psrti_coll_round(p);
    gather_around(p, next(p), out_block(next(p)));
}

/* The sum of block `rank` to `last`; what is under way alternates between two blocks of TMP. */
static void scatter_around(plan_t *p, ref_t last)
{
    p->tmp = 2;
    for (uint32_t k = 0; k + 1 < p->ranks; k++) {
        uint32_t send = behind(p, p->rank, k + 1), fold = behind(p, send, 1);
        if (k) psrti_coll_round(p);
        psrti_coll_send(p, next(p), k ? tmp_block((k - 1) % 2) : in_block(send), 1);
        psrti_coll_fold(p, previous(p), 1, in_block(fold),
                        k + 2 == p->ranks ? last : tmp_block(k % 2), 1);
    }
}

void psrti_coll_ring_reduce_scatter(plan_t *p) { scatter_around(p, out_block(0)); }

void psrti_coll_ring_reduce(plan_t *p)
{
    int is_root = p->rank == p->root;
    ref_t mine = is_root ? out_block(p->rank) : tmp_block(p->ranks % 2);

    p->nblocks = p->ranks;
    scatter_around(p, mine);
    psrti_coll_round(p);
    if (!is_root) {
        psrti_coll_send(p, p->root, mine, 1);
        return;
    }
    for (uint32_t k = 1; k < p->ranks; k++)
        psrti_coll_recv(p, ahead(p, p->rank, k), out_block(ahead(p, p->rank, k)), 1);
}

void psrti_coll_ring_allgather(plan_t *p)
{
    psrti_coll_copy(p, in_block(0), out_block(p->rank), 1);
    gather_around(p, p->rank, in_block(0));
}

/* ---- broadcast: scatter down a binomial tree, then a ring ----------------------------------------- */

/* How many ranks, counted from the root, the subtree of `v` has: v .. v + span - 1. */
static uint32_t span(const plan_t *p, uint32_t v)
{
    uint32_t size = v ? v & -v : p->ranks;
    return PSRTI_MIN(size, p->ranks - v);
}

/* Block i belongs to the rank i steps from the root. A rank gets its whole subtree's. */
static void scatter_down(plan_t *p, uint32_t v)
{
    uint32_t bit = 1;

    while (v ? !(v & bit) : bit < p->ranks)
        bit <<= 1;
    if (v) {
        psrti_coll_recv(p, to_rank(p, v - bit), out_block(v), span(p, v));
        psrti_coll_round(p);
    } else {
        psrti_coll_copy(p, in_block(0), out_block(0), p->nblocks);
    }
    for (bit >>= 1; bit; bit >>= 1)
        if (v + bit < p->ranks)
            psrti_coll_send(p, to_rank(p, v + bit),
                            (ref_t){ v ? PSRTI_COLL_OUT : PSRTI_COLL_IN, v + bit },
                            span(p, v + bit));
}

/* A block is not sent to a rank that has it from the scatter. */
static int holds(const plan_t *p, uint32_t v, uint32_t block)
{
    return block >= v && block - v < span(p, v);
}

void psrti_coll_scatter_ring_broadcast(plan_t *p)
{
    uint32_t v = from_root(p, p->rank), after = (v + 1) % p->ranks;

    p->nblocks = p->ranks;
    scatter_down(p, v);
    for (uint32_t k = 0; k + 1 < p->ranks; k++) {
        uint32_t send = behind(p, v, k), recv = behind(p, send, 1);
        psrti_coll_round(p);
        if (!holds(p, after, send))
            psrti_coll_send(p, next(p), (ref_t){ v ? PSRTI_COLL_OUT : PSRTI_COLL_IN, send }, 1);
        if (!holds(p, v, recv)) psrti_coll_recv(p, previous(p), out_block(recv), 1);
    }
}
