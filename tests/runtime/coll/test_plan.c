/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective x algorithm x 1 to 33 ranks x roots, in place and not. */
#include <stdlib.h>

#include "base/util.h"
#include "plan_rig.h"
#include "support/test.h"

#define ALL(rig) ((1ull << (rig)->ranks) - 1)

/* ---- what each collective promises -------------------------------------------------------------- */

static int is_rooted(psrti_collective_t c)
{
    return c == PSRTI_COLL_REDUCE || c == PSRTI_COLL_BROADCAST || c == PSRTI_COLL_GATHER ||
           c == PSRTI_COLL_SCATTER;
}

static void expect_sum(const rig_t *rig, uint32_t rank, uint32_t at, uint32_t block)
{
    value_t v = rig->out[rank][at];
    cr_assert_eq(rig_contributors(v), ALL(rig), "%s: rank %u block %u lacks contributions",
                 rig_name(rig), rank, at);
    cr_assert_eq(rig_block(v), block, "%s", rig_name(rig));
}

static void expect_given(const rig_t *rig, uint32_t rank, uint32_t at, uint32_t from,
                         uint32_t block)
{
    cr_assert_eq(rig->out[rank][at], rig_given(from, block), "%s: rank %u block %u is another one",
                 rig_name(rig), rank, at);
}

static void expect_result(const rig_t *rig, uint32_t r)
{
    uint32_t nblocks = rig->plan[r]->nblocks;

    switch (rig->collective) {
    case PSRTI_COLL_ALLREDUCE:
        for (uint32_t b = 0; b < nblocks; b++) {
            expect_sum(rig, r, b, b);
            cr_assert_eq(rig->out[r][b], rig->out[0][b], "%s: rank %u has other bits than rank 0",
                         rig_name(rig), r);
        }
        break;
    case PSRTI_COLL_REDUCE:
        for (uint32_t b = 0; r == rig->root && b < nblocks; b++)
            expect_sum(rig, r, b, b);
        break;
    case PSRTI_COLL_BROADCAST:
        for (uint32_t b = 0; b < nblocks; b++)
            expect_given(rig, r, b, rig->root, b);
        break;
    case PSRTI_COLL_GATHER:
        if (r != rig->root) break;
        /* fall through */
    case PSRTI_COLL_ALLGATHER:
        for (uint32_t i = 0; i < rig->ranks; i++)
            expect_given(rig, r, i, i, 0);
        break;
    case PSRTI_COLL_REDUCE_SCATTER: expect_sum(rig, r, 0, r); break;
    case PSRTI_COLL_ALLTOALL:
        for (uint32_t i = 0; i < rig->ranks; i++)
            expect_given(rig, r, i, i, r);
        break;
    case PSRTI_COLL_SCATTER: expect_given(rig, r, 0, rig->root, r); break;
    case PSRTI_COLL_BARRIER:
        cr_assert_eq(rig->heard[r], ALL(rig), "%s: rank %u goes on before all have come",
                     rig_name(rig), r);
        break;
    default: cr_assert_fail("what does %s promise?", psrti_collective_name(rig->collective));
    }
}

static int has_in_place(psrti_collective_t c)
{
    return c != PSRTI_COLL_ALLTOALL && c != PSRTI_COLL_BARRIER;
}

static unsigned run_case(psrti_collective_t c, psrti_coll_algorithm_t a, uint32_t ranks,
                         uint32_t root)
{
    unsigned ran = 0;

    for (int in_place = 0; in_place <= has_in_place(c); in_place++) {
        rig_t rig;
        if (!rig_open(&rig, c, a, ranks, root, in_place)) return 0;
        rig_run(&rig);
        for (uint32_t r = 0; r < ranks; r++)
            expect_result(&rig, r);
        rig_close(&rig);
        ran++;
    }
    return ran;
}

Test(plan, every_collective_algorithm_ranks_and_root, .timeout = 120)
{
    for (int c = 0; c < PSRTI_COLL_COUNT; c++) {
        unsigned algorithms = 0;
        for (int a = 0; a < PSRTI_ALG_COUNT; a++) {
            unsigned ran = 0;
            for (uint32_t ranks = 1; ranks <= RIG_RANKS; ranks++)
                for (uint32_t root = 0; root < (is_rooted((psrti_collective_t)c) ? ranks : 1);
                     root += 1 + ranks / 9)
                    ran += run_case((psrti_collective_t)c, (psrti_coll_algorithm_t)a, ranks, root);
            algorithms += ran > 0;
        }
        cr_assert(algorithms > 0, "nothing does %s", psrti_collective_name((psrti_collective_t)c));
    }
}

/* ---- what the algorithms are chosen for ----------------------------------------------------------- */

static uint32_t log2_up(uint32_t n)
{
    uint32_t k = 0;
    while ((1u << k) < n)
        k++;
    return k;
}

typedef struct cost {
    uint64_t messages, blocks; /* of the rank that sends most */
    uint32_t nblocks;
} cost_t;

static cost_t cost_of(psrti_collective_t c, psrti_coll_algorithm_t a, uint32_t ranks)
{
    rig_t rig;
    cost_t cost = { 0 };

    cr_assert(rig_open(&rig, c, a, ranks, 0, 0));
    rig_run(&rig);
    for (uint32_t r = 0; r < ranks; r++) {
        cost.messages = PSRTI_MAX(cost.messages, rig.messages[r]);
        cost.blocks = PSRTI_MAX(cost.blocks, rig.blocks[r]);
    }
    cost.nblocks = rig.plan[0]->nblocks;
    rig_close(&rig);
    return cost;
}

Test(plan, rings_and_halving_move_the_fewest_bytes)
{
    for (uint32_t p = 2; p <= RIG_RANKS; p++) {
        cost_t ring = cost_of(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_RING, p);
        cr_assert_eq(ring.nblocks, p);
        cr_assert_eq(ring.blocks, 2 * (p - 1));
        cr_assert_eq(cost_of(PSRTI_COLL_ALLGATHER, PSRTI_ALG_RING, p).blocks, p - 1);
        cr_assert_eq(cost_of(PSRTI_COLL_REDUCE_SCATTER, PSRTI_ALG_RING, p).blocks, p - 1);
        if (p & (p - 1)) continue;
        cost_t halving = cost_of(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_HALVING, p);
        cr_assert_eq(halving.nblocks, p);
        cr_assert_eq(halving.blocks, 2 * (p - 1));
        cr_assert_eq(halving.messages, 2 * log2_up(p));
    }
}

Test(plan, doubling_and_bruck_take_the_fewest_messages)
{
    for (uint32_t p = 2; p <= RIG_RANKS; p++) {
        cr_assert_eq(cost_of(PSRTI_COLL_ALLGATHER, PSRTI_ALG_BRUCK, p).messages, log2_up(p));
        cr_assert_eq(cost_of(PSRTI_COLL_ALLTOALL, PSRTI_ALG_BRUCK, p).messages, log2_up(p));
        cr_assert_eq(cost_of(PSRTI_COLL_BARRIER, PSRTI_ALG_DISSEMINATION, p).messages, log2_up(p));
        cr_assert_leq(cost_of(PSRTI_COLL_BROADCAST, PSRTI_ALG_BINOMIAL, p).messages, log2_up(p));
        if (!(p & (p - 1)))
            cr_assert_eq(cost_of(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_DOUBLING, p).messages, log2_up(p));
    }
}

/* The root and the leaves send less; a rank inside one tree sends its half to two children, or all of it once. */
Test(plan, two_trees_send_all_data_about_once)
{
    for (uint32_t p = 2; p <= RIG_RANKS; p++) {
        cost_t down = cost_of(PSRTI_COLL_BROADCAST, PSRTI_ALG_TWO_TREES, p);
        cr_assert_leq(down.blocks, down.nblocks);
        cost_t both = cost_of(PSRTI_COLL_ALLREDUCE, PSRTI_ALG_TWO_TREES, p);
        cr_assert_leq(both.blocks, 2 * both.nblocks);
    }
}

/* ---- refusals --------------------------------------------------------------------------------------- */

Test(plan, what_is_not_there_is_refused)
{
    psrti_coll_plan_t *p = NULL;

    cr_assert_eq(psrti_coll_plan_new(PSRTI_COLL_BARRIER, PSRTI_ALG_RING, 2, 0, 0, &p),
                 PSRT_ERR_UNSUPPORTED);
    cr_assert_eq(psrti_coll_plan_new(PSRTI_COLL_REDUCE_SCATTER, PSRTI_ALG_HALVING, 6, 0, 0, &p),
                 PSRT_ERR_UNSUPPORTED);
    cr_assert_null(p);
}
